"""Policies are JSON or nothing; what does not parse has no effect and is counted; a lot says whether they count."""
import json
from math import fsum

import numpy as np
import pytest

from evolora.ecology.checkpoint_files import read_checkpoint, write_checkpoint
from evolora.ecology.config import changed_config, load_config
from evolora.ecology.ecology import Ecology
from evolora.ecology.parts import Graded
from evolora.host.model import load_host
from evolora.society.policy import Policy, constrained, fields_of, parsed

SMALL = {'founders': 4, 'founder_step': .4, 'capacity': 4, 'cells': ['string.sort:1', 'word.count:1'],
         'max_new_tokens': 12, 'market': {'questions': 8, 'round': 2, 'learn_every': 1, 'protect': 1}}
FAMILIES = ['string.sort', 'word.count']


@pytest.fixture(scope='module')
def host(): return load_host('embedded', threads=1)


def begun(host, more={}, **knobs):
    society = ({'policy': knobs} if knobs else {}) | more
    return Ecology(host, changed_config(load_config('debug'), SMALL | {'society': society}), seed=5)


def text(pref='string.sort', budget=1, comms='none', gate='hold'):
    return json.dumps({'cell_pref': pref, 'budget_frac': budget, 'comms': comms, 'gate_bias': gate})


def task(family='string.sort'): return type('Task', (), {'family': family})()


# --- writing

@pytest.mark.parametrize('bad', ['', 'null', '[]', '{}', text() + '\n{}', text(pref='math'), text(budget=.3),
                                 text(budget=True), text(budget=[1]), text(comms={}), '{' * 1000, 'x' * 10**6,
                                 text().replace('"', "'"),
                                 text()[:-1] + ', "cell_pref": 1}', 'NaN', text(budget=float('nan'))])
def test_what_is_no_policy_does_not_parse(bad): assert parsed(bad, FAMILIES) is None


def test_all_that_can_be_written_under_constraint_parses_and_is_drawn_as_the_model_gives_it(host):
    e, rng = begun(host), np.random.default_rng(0)
    drawn = [constrained(e.population, 'o2', fields_of(FAMILIES), rng) for _ in range(20)]
    assert all(parsed(t, FAMILIES) for t, _ in drawn) and all(b.gflops > 0 for _, b in drawn)
    # Nearly without temperature it is the likeliest value of each field.
    cold = {constrained(e.population, 'o2', fields_of(FAMILIES), np.random.default_rng(i), temperature=.01)[0]
            for i in range(3)}
    assert len(cold) == 1


# --- what it does

def test_a_preferred_family_is_taken_over_by_who_is_believed_half_as_much(host, monkeypatch):
    e = begun(host, active=1.)
    part = e.society['policy']
    monkeypatch.setattr(e.market, 'belief', lambda family: {'o1': .5, 'o2': .26, 'o3': .2, 'o4': .04})
    part.texts = {'o2': text(), 'o3': text()}
    assert part.choose([task(), task('word.count')], ['o1', 'o1'], [0, 1]) == ['o2', 'o1']
    part.texts = {'o3': text(), 'o4': 'anything'}
    assert part.choose([task()], ['o1'], [2]) == ['o1'], 'o3 is believed too little, and what does not parse is nothing'


def test_who_has_used_its_budget_hands_on(host, monkeypatch):
    e = begun(host, active=1.)
    part = e.society['policy']
    monkeypatch.setattr(e.market, 'belief', lambda family: {'o1': .5, 'o2': .3, 'o3': .1, 'o4': .1})
    part.texts = {'o1': text(pref='word.count', budget=.25)}        # two of eight
    assert part.choose([task()] * 4, ['o1'] * 4, range(4)) == ['o1', 'o1', 'o2', 'o2']


def test_it_says_who_reads_and_who_may_be_merged_while_policies_count(host):
    e = begun(host, active=1.)
    part = e.society['policy']
    part.texts = {'o1': text(), 'o2': text(comms='read', gate='offer')}
    assert [e.society.allows(what, id) for what in ('read', 'merge') for id in ('o1', 'o2', 'o3')] == [
        False, True, True, False, True, True]
    part.config = part.config.model_copy(update={'active': 0.})
    assert e.society.allows('merge', 'o1') and part.choose([task()], ['o3'], [0]) == ['o3']


def test_the_lot_is_drawn_for_a_generation_and_grades_are_kept_apart(host):
    e = begun(host, active=.5)
    part, drawn = e.society['policy'], []
    for e.generation in range(80): drawn.append(part.count)
    assert 25 < sum(drawn) < 55
    for e.generation in (drawn.index(True), drawn.index(False)):
        part.observe([Graded('string.sort', 'q', [1], e.generation == drawn.index(True), 'o1', .5)] * 3)
    assert part.grades == [3, 3, 3, 0]


def test_tokens_are_paid_for_and_what_does_not_parse_is_counted(host):
    e = begun(host, use='free', every=1, price=.001)
    e.plasticity.own[:] = 4
    part = e.society['policy']
    part.texts = {'o2': text()}
    bill = part.renew()
    rows = e.society.rows()
    free = next(r for r in rows if r['event'] == 'written freely')
    assert free['numbers'] == {'texts': 4., 'parsed': 0.} and bill.gflops > 0
    assert [r['event'] for r in rows].count('no policy') == 4 and part.policy('o2') is None
    assert all(fsum(b.stakes.values()) == b.total for b in e.market.books.values())
    assert isinstance(parsed(text(), FAMILIES), Policy)


# --- a life

def tables(e): return json.dumps({k: v for k, v in e.step().tables.items() if k not in ('timings', 'society')})


def test_policies_that_never_count_and_cost_nothing_change_no_answer(host):
    bare, idle, on = begun(host), begun(host, active=0., price=0., every=1), begun(host, active=1., every=1)
    lives = [[json.loads(tables(e))['episodes'] for _ in range(3)] for e in (bare, idle, on)]
    assert lives[0] == lives[1] != lives[2]


def test_a_life_goes_on_bit_for_bit(host, tmp_path):
    more = {'board': {'read': .5}}
    one = begun(host, more, every=1)
    one.run(2, log=None)
    two = begun(host, more, every=1)
    read_checkpoint(write_checkpoint(tmp_path, one), two)
    assert any(one.society['policy'].texts.values())
    for _ in range(2):
        assert tables(one) == tables(two) and one.history[-1].society == two.history[-1].society


def test_who_leaves_takes_its_policy_along_and_damage_is_refused(host):
    e = begun(host, every=1)
    part = e.society['policy']
    part.texts = {'o2': text()}
    good = part.state()
    e.demography.bury('o2', 0, 'a test')
    assert not part.texts
    for wrong in ({'texts': {'o1': 5}}, {'texts': {'o1': 'x' * 2000}}, {'served': {'o1': -1}}, {'grades': [1, 2, 3]}):
        with pytest.raises(ValueError, match='restore the state from a copy'): part.restore(good | wrong)
