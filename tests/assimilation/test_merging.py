"""What no lesson shows of `merging`: each rule against its dense definition, peft itself, and populations."""
import math
import warnings
from copy import deepcopy

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evolora.host.adapters import read_peft, write_peft
from evolora.host.model import tiny_host
from evolora.assimilation.merging import (RULES, align, beside, combine, consensus, energy_kept, evidence_weights,
                                          fisher_mean, merge, merge_error, ties_mean, truncate)
from evolora.organelles.population import Population
from evolora.organelles.traits import Traits
from evolora.utils.randomness import stream

SHAPES = {'wide': (12, 40), 'tall': (40, 12), 'thin': (10, 10)}


def draw(shapes, rank, seed=0, size=.3):
    rng = stream(seed, purpose='factors')
    normal = lambda *shape: torch.from_numpy(rng.standard_normal(shape)).float()
    return {n: (normal(rank, d_in) / d_in**.5, size * normal(d_out, rank)) for n, (d_out, d_in) in shapes.items()}


def draw_fisher(seed):
    rng = stream(seed, purpose='fisher')
    return {n: tuple(torch.from_numpy(rng.gamma(.5, size=d)) for d in shape) for n, shape in SHAPES.items()}


def dense(factors, alpha=8.): return {n: alpha / len(A) * (B.double() @ A.double()) for n, (A, B) in factors.items()}


def apart(one, two): return max(float((one[n] - two[n]).norm() / max(two[n].norm(), 1e-30)) for n in two)


def by_loops(cores, weights, rule, F, density):
    "The rules as published, one number at a time; precisions have a floor"
    n, k, l = cores.shape
    kept, out = cores.copy(), np.zeros((k, l))
    if rule == 'ties':
        for core in kept: core.ravel()[np.argsort(-abs(core.ravel()))[max(round(density * (k * l)), 1):]] = 0
    for a in range(k):
        for b in range(l):
            x = kept[:, a, b]
            if rule == 'linear': out[a, b] = sum(w * v for w, v in zip(weights, x))
            elif rule == 'fisher':
                f = F[:, a, b] + 1e-6
                out[a, b] = sum(weights * f * x) / sum(weights * f)
            else:
                sign = np.sign(weights @ x)
                agree = [i for i in range(n) if x[i] * sign > 0]
                out[a, b] = sum(weights[i] * x[i] for i in agree) / sum(weights[i] for i in agree) if agree else 0
    return out


def reference(parents, weights, rule, fisher=None, density=.5):
    "The merge of the dense matrices, in the basis of NumPy's decomposition of them, before the cut"
    found = {}
    for n in parents[0]:
        W = np.stack([dense(p)[n].numpy() for p in parents])
        def basis(M):
            U, S, _ = np.linalg.svd(M, full_matrices=False)
            return U[:, S > 1e-12 * S[0]]
        U, V = basis(np.hstack(list(W))), basis(np.vstack(list(W)).T)
        F = None if fisher is None else np.stack([U.T**2 @ np.outer(*(x.numpy() for x in f[n])) @ V**2 for f in fisher])
        found[n] = torch.from_numpy(U @ by_loops(U.T @ W @ V, np.array(weights), rule, F, density) @ V.T)
    return found


def best(M, rank):
    U, S, Vt = torch.linalg.svd(M, full_matrices=False)
    return (U[:, :rank] * S[:rank]) @ Vt[:rank]


# --- the rules, against their dense definition

@settings(max_examples=30, deadline=None)
@given(ranks=st.lists(st.integers(1, 5), min_size=1, max_size=4), rank=st.integers(1, 8), seed=st.integers(0, 1000),
       rule=st.sampled_from(RULES), density=st.sampled_from((.2, .5, 1.)))
def test_a_merge_is_the_dense_merge(ranks, rank, seed, rule, density):
    parents = [draw(SHAPES, r, seed + i) for i, r in enumerate(ranks)]
    weights = stream(seed).dirichlet(np.ones(len(ranks))).tolist()
    fisher = [draw_fisher(seed + i) for i in range(len(ranks))] if rule == 'fisher' else None
    found = merge(parents, weights, rank=rank, rule=rule, fisher=fisher, density=density)
    whole = reference(parents, weights, rule, fisher, density)
    for n, (A, B) in found.factors.items():
        assert A.shape == (rank, SHAPES[n][1]) and B.shape == (SHAPES[n][0], rank) and A.dtype == torch.float32
        # By its error: where two singular values are nearly equal, the cut itself is not unique.
        error, least = ((x - whole[n]).norm() for x in (8 / rank * B.double() @ A.double(), best(whole[n], rank)))
        assert error <= least + 1e-5 * whole[n].norm()
    kept = sum(best(M, rank).square().sum() for M in whole.values()) / sum(M.square().sum() for M in whole.values())
    assert found.energy_kept == pytest.approx(kept.item(), abs=1e-9)
    assert (found.rule, found.weights) == (rule, tuple(weights))


@pytest.mark.parametrize('density', [.2, .5, 1.])
@pytest.mark.parametrize('ranks', [(1, 1), (2, 3, 5), (4, 1, 2, 3)])
def test_cores_are_exact_in_float64(ranks, density):
    parents, scales = [draw(SHAPES, r, i) for i, r in enumerate(ranks)], [8 / r for r in ranks]
    weights = stream(1).dirichlet(np.ones(len(ranks))).tolist()
    shared = align(parents, scales)
    for i, parent in enumerate(parents):
        assert apart({n: left @ cores[i] @ right for n, (left, cores, right) in shared.items()}, dense(parent)) < 1e-10
    sums = {n: left @ torch.einsum('i,ikl->kl', cores.new_tensor(weights), cores) @ right
            for n, (left, cores, right) in shared.items()}
    assert apart(sums, {n: (U * S) @ Vt for n, (U, S, Vt) in combine(parents, weights, scales).items()}) < 1e-10
    assert apart(sums, reference(parents, weights, 'linear')) < 1e-10
    ties = {n: left @ ties_mean(cores, weights, density=density) @ right for n, (left, cores, right) in shared.items()}
    assert apart(ties, reference(parents, weights, 'ties', density=density)) < 1e-10
    fisher, by_fisher = [draw_fisher(i) for i in range(len(ranks))], {}
    for n, (left, cores, right) in shared.items():
        F = torch.stack([left.square().T @ f[n][0].outer(f[n][1]) @ right.square().T for f in fisher])
        by_fisher[n] = left @ fisher_mean(cores, weights, F) @ right
    assert apart(by_fisher, reference(parents, weights, 'fisher', fisher)) < 1e-10


def test_a_merge_does_not_see_factors_order_or_padding():
    one, two, three = (draw(SHAPES, r, r) for r in (2, 3, 4))
    M = torch.from_numpy(stream(5).standard_normal((3, 3)))
    other = {n: ((M.inverse() @ A.double()).float(), (B.double() @ M).float()) for n, (A, B) in two.items()}
    padded = {n: (torch.cat([A, A * 0]), torch.cat([B * 2, B * 0], 1)) for n, (A, B) in one.items()}    # scale 8 / 4
    F = [draw_fisher(i) for i in range(3)]
    for rule in RULES:
        keywords = lambda fisher: dict(rank=9, rule=rule, fisher=fisher if rule == 'fisher' else None)
        a = merge([one, two, three], [.5, .3, .2], **keywords(F))
        b = merge([three, padded, other], [.2, .5, .3], **keywords([F[2], F[0], F[1]]))
        assert apart(dense(b.factors), dense(a.factors)) < 1e-4


@pytest.mark.parametrize('rule', RULES)
def test_a_single_parent_stays_as_it_is(rule):
    parent = draw(SHAPES, 3)
    fisher = [draw_fisher(0)] if rule == 'fisher' else None
    for parents, weights in (([parent], [1.]), ([parent, parent], [.5, .5])):
        found = merge(parents, weights, rank=3, rule=rule, fisher=fisher and fisher * len(parents))
        assert apart(dense(found.factors), dense(parent)) < 1e-5 and found.energy_kept == pytest.approx(1)


@pytest.mark.parametrize('rule', RULES)
def test_silent_parents_make_a_silent_child(rule):
    silent = {n: (A, B * 0) for n, (A, B) in draw(SHAPES, 3).items()}
    found = merge([silent, silent], [.5, .5], rank=4, rule=rule, fisher=[None, None] if rule == 'fisher' else None)
    assert found.energy_kept == 1. and {len(A) for A, _ in found.factors.values()} == {4}
    assert not any(d.any() for d in dense(found.factors).values())


def test_ties_by_hand():
    cores = torch.tensor([[[5., -4., 3., 0.]], [[-1., -2., 4., 0.]], [[-6., .1, .2, 0.]]], dtype=torch.float64)
    assert ties_mean(cores, [1., 1., 1.], density=1.).tolist() == [[-3.5, -3., pytest.approx(2.4), 0.]]
    assert ties_mean(cores, [1., 1., 1.], density=.25).tolist() == [[-6., 0., 4., 0.]]
    assert ties_mean(cores, [2., 0., 1.], density=.25).tolist() == [[5., 0., 0., 0.]]       # who weighs nothing is mute
    assert torch.equal(ties_mean(cores, [2., 2., 2.]), ties_mean(cores, [1., 1., 1.]))
    assert ties_mean(cores.new_tensor([[[1.]], [[-1.]]]), [.5, .5]).item() == 0             # no sign is elected


def test_fisher_follows_the_surer_parent():
    cores = torch.from_numpy(stream(0).standard_normal((2, 3, 4)))
    sure = torch.ones(2, 3, 4, dtype=torch.float64)
    sure[0, 0], sure[1, 0] = 1e9, 0
    found = fisher_mean(cores, [.5, .5], sure)
    assert torch.allclose(found[0], cores[0, 0]) and torch.allclose(found[1:], cores[:, 1:].mean(0))
    assert torch.allclose(fisher_mean(cores, [.25, .75], sure * 0), .25 * cores[0] + .75 * cores[1])
    parents = [draw(SHAPES, 2, i) for i in range(2)]
    ones = {n: (torch.ones(d_out), torch.ones(d_in)) for n, (d_out, d_in) in SHAPES.items()}
    plain, unknown, known = (dense(merge(parents, [.3, .7], rank=4, **keywords).factors) for keywords in
                             ({}, dict(rule='fisher', fisher=[None, None]), dict(rule='fisher', fisher=[ones, None])))
    assert apart(unknown, plain) < 1e-5 and apart(known, plain) < 1e-5


def test_linear_is_a_sum():
    one, two = draw(SHAPES, 2), draw(SHAPES, 3, 1)
    difference = merge([one, two], [1., -1.], rank=5, scales=[1., 3.], scale=.5)
    for n, (A, B) in difference.factors.items():
        assert (.5 * B @ A - (one[n][1] @ one[n][0] - 3 * two[n][1] @ two[n][0])).abs().max() < 1e-5
    assert max(d.abs().max() for d in dense(merge([one, one], [1., -1.], rank=2).factors).values()) < 1e-6


def test_a_cut_and_what_it_keeps():
    spectrum = combine([draw(SHAPES, 4)], [1.], [2.])
    kept = [energy_kept(spectrum, r) for r in range(1, 6)]
    assert kept == sorted(kept) and kept[3] == kept[4] == 1 and kept[0] < .9
    for r in (1, 4, 6):
        for A, B in truncate(spectrum, rank=r, scale=8 / r).values():
            assert torch.allclose(A.norm(dim=1), B.norm(dim=0) * 8 / r, atol=1e-5)       # an even split
            assert len(A) == r and not A[4:].any() and not B[:, 4:].any()


def test_beside_adds_up():
    one, two = draw(SHAPES, 2), draw(SHAPES, 3, 1)
    for n, (A, B) in beside(one, two).items():
        assert len(A) == 5 and torch.allclose(B @ A, one[n][1] @ one[n][0] + two[n][1] @ two[n][0], atol=1e-6)


@pytest.mark.parametrize('rule', RULES)
def test_the_error_that_is_reported(rule):
    errors = [merge_error(stream(seed), rule=rule, ranks=ranks, rank=rank)
              for seed in range(5) for ranks, rank in (((1, 8), 4), ((3, 3, 2), 1), ((2, 2), 6))]
    assert 0 < max(errors) < 1e-5
    assert merge_error(stream(0), rule=rule) == merge_error(stream(0), rule=rule) != merge_error(stream(1), rule=rule)


@pytest.mark.parametrize('keywords, message', [
    (dict(parents=[], weights=[]), 'got 0 parents'), (dict(weights=[1.]), 'equally many'),
    (dict(scales=[1.]), 'equally many'), (dict(weights=[1.], rule='ties'), 'equally many'),
    (dict(weights=[math.nan, 1.]), 'finite weights'), (dict(weights=[math.nan, 1.], rule='ties'), 'finite weights'),
    (dict(weights=[0., 0.]), 'other than 0'), (dict(weights=[0., 0.], rule='ties'), 'other than 0'),
    (dict(scales=[1., math.inf]), 'finite weights and scales'), (dict(weights=[2., -1.], rule='ties'), 'subtract'),
    (dict(rank=0), 'at least 1'), (dict(rule='dare'), "got 'dare'"), (dict(density=0., rule='ties'), 'density'),
    (dict(density=math.nan, rule='ties'), 'density'), (dict(rule='fisher'), 'one fisher per parent'),
    (dict(fisher=[None, None]), 'no fisher'), (dict(rule='fisher', fisher=[None]), 'got 1 for 2'),
    (dict(rule='fisher', fisher=[None, {}]), 'rows and columns'),
    (dict(rule='fisher', fisher=[None, {n: (torch.ones(3), torch.ones(3)) for n in SHAPES}]), 'rows and columns'),
    (dict(rule='fisher', fisher=[None, {n: (-torch.ones(o), torch.ones(i)) for n, (o, i) in SHAPES.items()}]), '>= 0'),
    (dict(parents=[draw(SHAPES, 2), draw({'wide': (12, 40)}, 2)]), 'same modules'),
    (dict(parents=[draw(SHAPES, 2), draw(SHAPES | {'thin': (10, 9)}, 2)], rule='ties'), 'same modules'),
])
def test_errors_are_one_line(keywords, message):
    given = dict(parents=[draw(SHAPES, 2), draw(SHAPES, 3)], weights=[.5, .5], rank=2) | keywords
    with pytest.raises(ValueError, match=message) as error: merge(given.pop('parents'), given.pop('weights'), **given)
    assert '\n' not in str(error.value)


def test_evidence_weights():
    assert evidence_weights([.5, .7, .2], host=.3) == pytest.approx([1 / 3, 2 / 3, 0])
    assert evidence_weights([.1, .2], host=.3) == [.5, .5] and evidence_weights(np.array([.4])) == [1.]
    for bad in ([], [math.nan]):
        with pytest.raises(ValueError, match='finite lower bound'): evidence_weights(bad)


# --- on a model

@pytest.fixture
def pop():
    one = Population(tiny_host(), capacity=4, max_rank=6)
    for rank in (3, 2, 5): one.birth(draw(one.shapes, rank, rank), operator='by hand')
    one.death('o2')
    one.birth(draw(one.shapes, 3, 9), traits=Traits(step=.3), parents=('o1', 'o3'), generation=2, operator='crossover')
    return one


def test_the_linear_merge_of_peft_has_cross_terms(pop, tmp_path):
    import peft
    for id in ('o1', 'o4'): pop.export_peft(id, tmp_path / id)
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')             # peft asks transformers for a name that was renamed
        model = peft.PeftModel.from_pretrained(deepcopy(pop.host.model), tmp_path / 'o1', adapter_name='o1')
        model.load_adapter(tmp_path / 'o4', adapter_name='o4')
        model.add_weighted_adapter(['o1', 'o4'], [.3, .7], 'child', combination_type='linear')
    theirs = {n: model.base_model.model.get_submodule(n).get_delta_weight('child').detach() for n in pop.shapes}
    one, two, s = pop.factors('o1'), pop.factors('o4'), pop.scale('o1')
    a, b = (.3 * s)**.5, (.7 * s)**.5
    formula = {n: (a * one[n][1] + b * two[n][1]) @ (a * one[n][0] + b * two[n][0]) for n in one}
    mean = {n: .3 * pop.delta('o1')[n] + .7 * pop.delta('o4')[n] for n in one}
    assert apart(theirs, formula) < 1e-5 and apart(theirs, mean) > .3
    assert apart(dense(merge([one, two], [.3, .7], rank=6).factors), {n: M.double() for n, M in mean.items()}) < 1e-5


def test_a_consensus_is_the_merge_of_its_members(pop):
    before = pop.weights_hash()
    weights = {'o4': .5, 'o1': .2, 'o3': .3}
    for keywords in ({}, dict(rule='ties', density=.3), dict(rule='fisher', fisher={'o1': None})):
        found = consensus(pop, weights, rank=4, **keywords)
        again = keywords | ({'fisher': [None] * 3} if 'fisher' in keywords else {})
        want = merge([pop.factors(id) for id in weights], list(weights.values()), rank=4, **again)
        assert all(torch.equal(x, y) for n in pop.shapes for x, y in zip(found.factors[n], want.factors[n]))
    assert pop.weights_hash() == before
    with pytest.raises(KeyError, match='o2'): consensus(pop, {'o2': 1.}, rank=2)
    with pytest.raises(ValueError, match='got 0 parents'): consensus(pop, {}, rank=2)


def test_a_consensus_travels(pop, tmp_path):
    common = consensus(pop, {'o1': .5, 'o3': .5}, rank=2).factors
    write_peft(tmp_path, common, alpha=pop.alpha, targets=pop.targets, host=pop.host.id)
    back = read_peft(tmp_path, alpha=pop.alpha)
    assert all(torch.equal(x, y) for n in pop.shapes for x, y in zip(back[n], common[n]))
