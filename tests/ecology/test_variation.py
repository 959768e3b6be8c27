"""Beyond the notebook of `variation`: changed logits over seeds, exactness over ranks, the edges of operators."""
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evolora.host.model import tiny_host
from evolora.organelles.population import Population
from evolora.organelles.traits import Traits
from evolora.ecology.variation import OPERATORS, VariationConfig, crossover, limits, make_offspring, mutate_traits


@pytest.fixture(scope='module')
def pop():
    one = Population(tiny_host(), capacity=8, max_rank=6)
    one.birth(rank=3)                                                  # o1: B = 0
    one.birth(draw(one.shapes, 3), operator='by hand')                 # o2
    return one


def draw(shapes, rank, seed=0, size=.1):
    rng = np.random.default_rng(seed)
    normal = lambda *shape: torch.from_numpy(rng.standard_normal(shape)).float()
    return {n: (normal(rank, d_in) / d_in**.5, size * normal(d_out, rank)) for n, (d_out, d_in) in shapes.items()}


def dense(factors, alpha=8.): return {n: (alpha / len(A) * (B.double() @ A.double())) for n, (A, B) in factors.items()}


def rank_of(factors): return len(next(iter(factors.values()))[0])


def change(pop, parent, factors):
    ids = torch.from_numpy(np.random.default_rng(1).integers(1, 250, (4, 8)))
    child = pop.birth(factors)
    logits = [pop.logits(ids, organelles=[i] * 4) for i in (parent, child.id)]
    pop.death(child.id)
    return (logits[1] - logits[0]).abs().max().item()


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize('name', OPERATORS)
def test_every_operator_changes_the_logits(pop, name, seed):
    child = OPERATORS[name](pop.factors('o2'), rng=np.random.default_rng(seed), step=.05)
    assert change(pop, 'o2', child) > 1e-4
    assert rank_of(child) == {'widen': 4, 'narrow': 2}.get(name, 3)


@pytest.mark.parametrize('name', ['gaussian', 'direction', 'widen'])
@pytest.mark.parametrize('rank', [1, 3])
def test_what_wakes_a_noop(pop, name, rank):
    founder = pop.birth(rank=rank)
    assert pop.is_noop(founder.id)
    child = OPERATORS[name](pop.factors(founder.id), rng=np.random.default_rng(0), step=.05)
    assert change(pop, founder.id, child) > 1e-4
    pop.death(founder.id)


@pytest.mark.parametrize('name', OPERATORS)
def test_operators_repeat_and_touch_nothing(pop, name):
    given, state = pop.factors('o2'), torch.get_rng_state()
    kept = {n: (A.clone(), B.clone()) for n, (A, B) in given.items()}
    once, twice = (OPERATORS[name](given, rng=np.random.default_rng(5), step=.1) for _ in range(2))
    for n in given:
        assert all(torch.equal(a, b) for a, b in zip(once[n], twice[n]))
        assert all(torch.equal(a, b) for a, b in zip(given[n], kept[n]))
        assert all(a.data_ptr() != b.data_ptr() for a, b in zip(once[n], given[n]))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize('name', OPERATORS)
def test_operators_survive_a_silenced_adapter(pop, name):
    silent = {n: (A * 0, B * 0) for n, (A, B) in pop.factors('o2').items()}
    child = OPERATORS[name](silent, rng=np.random.default_rng(0), step=.1)
    assert all(t.isfinite().all() for AB in child.values() for t in AB)
    assert any(d.any() for d in dense(child).values()) == (name in ('gaussian', 'direction', 'widen'))


@pytest.mark.parametrize('rank', [1, 2, 6])
@pytest.mark.parametrize('alpha', [2., 8.])
def test_a_step_moves_the_output_by_its_size(pop, rank, alpha):
    founder = {n: (A, B * 0) for n, (A, B) in draw(pop.shapes, rank).items()}
    for name in ('gaussian', 'direction'):
        sizes = []
        for seed in range(8):
            child = OPERATORS[name](founder, rng=np.random.default_rng(seed), step=.1, alpha=alpha)
            sizes += [(d.norm() / len(d)**.5).item() for d in dense(child, alpha).values()]
        assert np.mean(sizes) == pytest.approx(.1, rel=.15)


def test_direction_gives_up_only_the_weakest(pop):
    child = OPERATORS['direction'](pop.factors('o2'), rng=np.random.default_rng(0), step=.01)
    before, after = dense(pop.factors('o2')), dense(child)
    for n in before:
        S = torch.linalg.svdvals(before[n])
        expected = np.hypot(S[2].item(), .01 * len(before[n])**.5)
        assert (after[n] - before[n]).norm().item() == pytest.approx(expected, rel=.05)


@settings(max_examples=25, deadline=None)
@given(ranks=st.lists(st.integers(1, 8), min_size=1, max_size=4), rank=st.integers(1, 8), seed=st.integers(0, 1000))
def test_crossover_is_the_dense_truncated_svd(ranks, rank, seed):
    rng = np.random.default_rng(seed)
    shapes = {'wide': (12, 40), 'tall': (40, 12), 'thin': (10, 10)}
    parents = [draw(shapes, r, seed + i) for i, r in enumerate(ranks)]
    weights = rng.uniform(-1, 1, len(ranks)).tolist()
    child = crossover(parents, weights, rank=rank)
    assert rank_of(child) == rank
    for n in shapes:
        total = sum(w * dense(p)[n] for p, w in zip(parents, weights))
        U, S, Vt = torch.linalg.svd(total, full_matrices=False)
        best = (U[:, :rank] * S[:rank]) @ Vt[:rank]
        # Where two singular values are equal, the cut is not unique; only its error is.
        assert (dense(child)[n] - total).norm() <= (best - total).norm() + 1e-5 * max(1, total.norm().item())
        A, B = child[n]
        assert torch.allclose(A.norm(dim=1), B.norm(dim=0) * 8 / rank, atol=1e-4)          # an even split


def test_crossover_with_other_scales_and_edges(pop):
    one, two = draw(pop.shapes, 2), draw(pop.shapes, 3, 1)
    child = crossover([one, two], [.25, .75], rank=5, scales=[1., 3.], scale=.5)
    for n in one:
        want = .25 * one[n][1] @ one[n][0] + .75 * 3 * two[n][1] @ two[n][0]
        assert (.5 * child[n][1] @ child[n][0] - want).abs().max() < 1e-5
    assert max(d.abs().max() for d in dense(crossover([one, one], [1., -1.], rank=2)).values()) < 1e-6
    for bad in (lambda: crossover([], [], rank=1), lambda: crossover([one], [1.], rank=0),
                lambda: crossover([one], [float('nan')], rank=1),
                lambda: crossover([one, {'other': one[n]}], [1., 1.], rank=1)):
        with pytest.raises(ValueError): bad()


def test_traits_change_within_their_limits_and_the_niche_stays():
    rng, seen = np.random.default_rng(0), {'step': [], 'plasticity': []}
    for start in (Traits(step=.001, plasticity=.1, niche='math'), Traits(step=1., plasticity=10., niche='math')):
        for _ in range(200):
            start = mutate_traits(start, rng, tau=2)
            assert start.niche == 'math'
            for name, values in seen.items(): values.append(getattr(start, name))
    for name, values in seen.items(): assert (min(values), max(values)) == limits(name)     # both ends were reached


def test_traits_change_by_a_factor_of_the_size_that_is_asked_for():
    rng = np.random.default_rng(1)
    logs = np.log([[child.step / .05, child.plasticity]
                   for child in (mutate_traits(Traits(step=.05), rng, tau=.2) for _ in range(2000))])
    assert logs.mean(0) == pytest.approx([0, 0], abs=.02) and logs.std(0) == pytest.approx([.2, .2], rel=.08)
    assert abs(np.corrcoef(logs.T)[0, 1]) < .08
    assert mutate_traits(Traits(step=.05), rng, tau=0) == Traits(step=.05)


def test_offspring_are_born_different(pop):
    rng, seen = np.random.default_rng(0), set()
    config = VariationConfig(rank_change=.3, operators={o: 1. for o in ('gaussian', 'direction', 'rescale', 'silence')})
    for _ in range(120):
        child = make_offspring(pop, [str(p) for p in rng.permutation(['o1', 'o2'])], rng, config)
        one = pop.birth(child.factors, **child.birth)
        assert one.rank == child.rank <= pop.max_rank and one.parents == child.parents
        ids = torch.from_numpy(np.random.default_rng(1).integers(1, 250, (2, 8)))
        logits = {i: pop.logits(ids, organelles=[i] * 2) for i in (one.id, *child.parents)}
        assert all((logits[one.id] - logits[p]).abs().max() > 1e-5 for p in child.parents)
        pop.death(one.id)
        seen.add(child.operator)
    assert seen == {*OPERATORS, 'crossover'}


def test_offspring_repeat(pop):
    children = [make_offspring(pop, ['o2', 'o1'], np.random.default_rng(3)) for _ in range(2)]
    assert children[0][1:] == children[1][1:]
    assert all(torch.equal(a, b) for n in pop.shapes for a, b in zip(children[0].factors[n], children[1].factors[n]))


def test_ranks_stay_possible(pop):
    config, rng = VariationConfig(crossover=0, rank_change=1), np.random.default_rng(0)
    widest, thin = pop.birth(draw(pop.shapes, pop.max_rank)), pop.birth(draw(pop.shapes, 1))
    assert {make_offspring(pop, [widest.id], rng, config).operator for _ in range(10)} == {'narrow'}
    assert {make_offspring(pop, [thin.id], rng, config).operator for _ in range(10)} == {'widen'}
    pop.death(widest.id), pop.death(thin.id)


@pytest.mark.parametrize('bad',
                         [{'operators': {'widen': 1.}}, {'operators': {}}, {'operators': {'gaussian': -1.}},
                          {'operators': {'gaussian': float('nan')}},
                          {'every': -1}, {'offspring': -1}, {'selection': 'best'}, {'spread': 3.},
                          {'crossover': 1.5}, {'tau': -1.}, {'mu': 4}])
def test_bad_configurations(bad):
    with pytest.raises(ValueError): VariationConfig(**bad)
