"""Ranks change and functions do not; the budget binds; a life goes on bit for bit."""
import json

import numpy as np
import pytest
import torch

from evolora.ecology.checkpoint_files import read_checkpoint, write_checkpoint
from evolora.ecology.config import changed_config, load_config
from evolora.ecology.ecology import Ecology
from evolora.host.model import load_host
from evolora.society.morphogenesis import grown, rank_of, shrunk

SMALL = {'founders': 4, 'founder_step': .6, 'capacity': 4, 'rank': 4, 'max_rank': 8, 'max_new_tokens': 12,
         'cells': ['string.sort:1', 'word.count:1'],
         'market': {'questions': 8, 'round': 2, 'learn_every': 1, 'protect': 1}}
PROMPTS = ['Sort the letters: bad', 'Sort the letters: cabbed', 'How many words: a b c']


@pytest.fixture(scope='module')
def host(): return load_host('embedded', threads=1)


def begun(host, **knobs):
    return Ecology(host, changed_config(load_config('debug'), SMALL | {'society': {'morphogenesis': knobs}}), seed=2)


def delta(factors, alpha=8.): return {n: alpha / rank_of(factors) * B @ A for n, (A, B) in factors.items()}


def logits(population, id):
    return torch.cat([t.logits for t in population.forward(PROMPTS, [[5, 6]] * 3, [id] * 3, temperature=1.)])


def test_to_grow_changes_no_logit_and_opens_directions_that_can_learn(host):
    p = begun(host).population
    before, factors = logits(p, 'o2'), p.factors('o2')
    more = grown(factors, 8, np.random.default_rng(0))
    p.write('o2', more)
    assert p['o2'].rank == 8 and torch.allclose(logits(p, 'o2'), before, atol=1e-4)
    assert all(A[4:].any() and not B[:, 4:].any() for A, B in more.values()), 'else their gradient is zero for ever'


def test_to_shrink_is_the_nearest_of_its_rank_and_says_what_is_lost(host):
    p = begun(host).population
    factors = p.factors('o3')
    less, lost = shrunk(factors, 2)
    whole = sum(d.double().square().sum() for d in delta(factors).values())
    error = sum((a.double() - b.double()).square().sum() for a, b in zip(delta(factors).values(), delta(less).values()))
    assert float(error / whole) == pytest.approx(lost, rel=1e-4) and 0 < lost < 1
    best = sum(torch.linalg.svdvals(d.double())[2:].square().sum() for d in delta(factors).values())
    assert float(best / whole) == pytest.approx(lost, rel=1e-6)
    again, nothing = shrunk(grown(factors, 8, np.random.default_rng(1)), 4)
    assert nothing < 1e-9
    for a, b in zip(delta(again).values(), delta(factors).values()): assert torch.allclose(a, b, atol=1e-5)


def test_what_has_learned_nothing_can_still_learn_when_it_is_smaller(host):
    p = begun(host).population
    less, lost = shrunk(p.factors('o1'), 2)
    assert p.is_noop('o1') and lost == 0 and all(A.any() and not B.any() for A, B in less.values())


def test_the_believed_one_grows_and_the_one_that_loses_least_pays(host, monkeypatch):
    e = begun(host, budget=16, every=1, used=0.)
    e.plasticity.own[:] = 4
    held = {'o1': .1, 'o2': .6, 'o3': .2, 'o4': .1}
    monkeypatch.setattr(e.market, 'balance', held.get)
    part = e.society['morphogenesis']
    slot = e.population['o2'].slot
    for half in (*e.plasticity.first.values(), *e.plasticity.second.values()):
        for x in half.values(): x[slot] = 1.
    part.renew()
    assert part.total <= 16 and e.population['o2'].rank == 8
    assert e.population['o1'].rank < 4, 'it adds nothing, so it loses nothing'
    assert not any(x[slot].any() for half in e.plasticity.first.values() for x in half.values())
    assert e.plasticity.own[slot] == 4 and e.plasticity.averaged[slot] == 0
    grew, *shrank = e.society.rows()
    assert (grew['event'], grew['organelle']) == ('grew', 'o2') and {r['event'] for r in shrank} == {'shrank'}


def test_nobody_grows_that_others_could_not_pay_for_or_that_uses_little(host, monkeypatch):
    e = begun(host, budget=4, every=1, used=0.)
    for o in e.population: e.population.write(o.id, shrunk(e.population.factors(o.id), 1)[0])
    e.plasticity.own[:] = 4
    e.society['morphogenesis'].renew()
    assert not e.society.rows() and {o.rank for o in e.population} == {1}
    e = begun(host, budget=64, every=1, used=.5)
    e.plasticity.own[:] = 4
    e.society['morphogenesis'].renew()
    assert not e.society.rows(), 'no weaker half holds half'


def test_ranks_are_paid_for(host):
    "The phenotype: an answer of an organelle that grew costs more FLOPs"
    p = begun(host).population
    cost = lambda: float(p.generate(PROMPTS, ['o2'] * 3, temperature=0., max_new_tokens=4).flops.sum())
    before = cost()
    p.write('o2', grown(p.factors('o2'), 8, np.random.default_rng(0)))
    assert cost() > before


def test_a_life_goes_on_bit_for_bit_within_its_budget(host, tmp_path):
    knobs = dict(budget=12, every=1, used=0.)
    one = begun(host, **knobs)
    one.run(2, log=None)
    two = begun(host, **knobs)
    read_checkpoint(write_checkpoint(tmp_path, one), two)
    tables = lambda e: json.dumps({k: v for k, v in e.step().tables.items() if k != 'timings'})
    events = []
    for _ in range(3):
        assert tables(one) == tables(two)
        events += one.history[-1].society
    assert {'grew', 'shrank'} == {row['event'] for row in events}
    last = {row['generation']: row['numbers']['total'] for row in events}
    assert max(last.values()) <= 12 and one.market.audit().balanced
