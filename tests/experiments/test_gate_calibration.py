"""The tests of the tests: simulations against closed forms, gates held as `trials` holds them, planted nulls."""
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from evolora.experiments import gate_calibration as acceptance
from evolora.assimilation import trials
from evolora.experiments.gate_calibration import (HOMES, Pool, Sizes, candidate_pairs, coverage, discovery,
                                                  false_accepts, level_of, measure, merge_errors, planted, pools, power,
                                                  samples)
from evolora.assimilation.pairing import AssimilationConfig
from evolora.host.model import load_host
from evolora.assimilation.merging import RULES
from evolora.utils.randomness import stream
from evolora.assimilation.sequential import ELond, PairedTest, power_at

CONFIG = AssimilationConfig(pairs=400, look=40)
rng = lambda seed=0: stream(seed, purpose='tests')


def pool(child, one, other, n=1000):
    "Answers of a made-up pair and child, all of them by chance alone"
    toss = rng(7).random((5, n))
    return Pool('made up', toss[0] < child, toss[1:3] < [[one], [other]], toss[3:] < [[one], [other]])


# --- simulations

def test_false_accepts_are_those_of_the_closed_form():
    table = false_accepts(CONFIG, streams=4000, shares=(.1, .4), rng=rng())
    for row in table.to_dict('records'):
        exact = power_at(0., row['discordant'], 400, .05)
        assert abs(row['e-value, every pair'] - exact) < 4 * math.sqrt(exact / 4000)
        assert row['e-value, every look'] <= row['e-value, every pair'] <= .05 + 4 * math.sqrt(.05 / 4000)
        assert .15 < row['naive, every look'] < row['naive, every pair']


def test_one_look_of_the_naive_test_is_what_it_promises():
    "It is the looking that spoils it: with a single look at the end its false accepts are alpha"
    once = AssimilationConfig(pairs=400, look=400)
    share = false_accepts(once, streams=4000, shares=(.4,), rng=rng())['naive, every look'].item()
    assert share == pytest.approx(.05, abs=4 * math.sqrt(.05 / 4000))


@pytest.mark.parametrize('pairs, look, ends', [(10, 4, [3, 7, 9]), (8, 4, [3, 7]), (3, 8, [2])])
def test_the_last_look_is_at_the_end(pairs, look, ends): assert acceptance._looks(pairs, look).tolist() == ends


def test_power_is_that_of_the_closed_form_less_what_futility_costs():
    never = CONFIG.model_copy(update={'futility': 0.})
    patient, hasty = (power(c, streams=200, rng=rng()).iloc[0] for c in (never, CONFIG))
    exact = power_at(.1, .2, 400, level_of(50, 5))
    assert patient['without futility'] == pytest.approx(exact) and patient['given up'] == 0
    assert patient.power == pytest.approx(exact, abs=4 * math.sqrt(exact * (1 - exact) / 200))
    assert patient.power - hasty['given up'] <= hasty.power <= patient.power and hasty['median pairs'] < 400


def test_the_level_is_that_of_the_gate():
    assert level_of(1, 0) == pytest.approx(.05 * ELond().gamma(1))
    assert level_of(50, 5, .1) == pytest.approx(.1 * ELond().gamma(50) * 6)
    for gate, discoveries in ((0, 0), (3, 3), (3, -1)):
        with pytest.raises(ValueError, match='0 <= discoveries < gate'): level_of(gate, discoveries)


def test_half_are_accepted_by_the_median():
    row = samples(CONFIG, streams=4000, rng=rng()).iloc[0]
    assert power_at(.1, .2, int(row['median']), .05) == pytest.approx(.5, abs=.03)
    assert power_at(.1, .2, int(row['ninth decile']), .05) == pytest.approx(.9, abs=.03)
    assert (row['fixed for 0.05'], row.ratio) == (493, row['median'] / 493)


def test_a_median_that_is_not_reached_is_infinite():
    row = samples(CONFIG.model_copy(update={'pairs': 20}), streams=200, rng=rng()).iloc[0]
    assert row['median'] == math.inf and row.accepted < .5


def test_coverage_notices_bounds_that_are_too_narrow(monkeypatch):
    "Fixed-n bounds, looked at at all times"
    def fixed(x, alpha):
        n = np.arange(1, len(x) + 1)
        mean, half = x.cumsum() / n, 1.96 * np.sqrt(np.maximum(x.var(), 1e-9) / n)
        return mean - half, mean + half
    honest = coverage(CONFIG, sequences=40, n=200, rng=rng())
    assert (honest.coverage >= .9).all() and (honest.width > 0).all()
    monkeypatch.setattr(acceptance, 'confidence_sequence', fixed)
    assert (coverage(CONFIG, sequences=40, n=200, rng=rng()).coverage < .85).all()


@pytest.mark.parametrize('name', acceptance._DRAWN)
def test_the_means_are_those_of_what_is_drawn(name):
    mean, draw = acceptance._DRAWN[name]
    x = draw(rng(), 100_000)
    assert abs(x).max() <= 1 and x.mean() == pytest.approx(mean, abs=4 * x.std() / 300)


def test_merges_are_exact_whatever_the_ranks():
    table = merge_errors(cases=20, rng=rng())
    assert table.rule.tolist() == list(RULES) and (table.largest <= 1e-5).all() and (table['median'] > 0).all()


# --- gates

@pytest.mark.parametrize('shares', [(.7, .5, .55), (.5, .5, .5), (.55, .5, .5), (.9, .1, .85)])
def test_a_gate_is_held_as_trials_hold_it(shares):
    "The loop of `trials`, given the same answers, leaves the same tests"
    made, level = pool(*shares), .01
    ours = acceptance._held(made.child[:400], made.parents[:, :400], level, CONFIG)
    at, names = [0], ['o1', 'o2']
    def ask(asked, n, cells):
        part = slice(at[0], at[0] + n)
        at[0] += n
        rows = {'child': made.child, 'o1': made.parents[0], 'o2': made.parents[1]}
        tasks = [SimpleNamespace(family='math', id=str(i)) for i in range(part.start, part.stop)]
        return tasks, {name: rows[name][part] for name in asked}
    rich = SimpleNamespace(held=lambda payers: 10**6)
    known = SimpleNamespace(config=CONFIG, home=lambda id: ['math'], skill={}, tokens=rich)
    theirs = {id: PairedTest(level, most=400, least=40, futility=CONFIG.futility) for id in names}
    trials._test(SimpleNamespace(a=known, ask=ask, home=[], generation=0, payers=names), theirs, 400)
    assert ours == [*theirs.values()]


# --- planted nulls

def test_a_planted_null_is_exactly_null():
    "Even where chance favoured one of the twins throughout, it does not favour the candidate"
    toss = Pool('by chance', np.ones(4000, bool), np.zeros((2, 4000), bool), np.ones((2, 4000), bool))
    candidate, controls = acceptance._candidate(toss, True, 4000, rng())
    assert controls.shape == (1, 4000) and (candidate != controls[0]).all()
    assert candidate.mean() == pytest.approx(.5, abs=4 / math.sqrt(4000) / 2)


def test_a_real_child_meets_both_parents_on_the_same_questions():
    made = Pool('', np.arange(50) % 2 == 0, np.array([np.arange(50) % 2 == 0, np.arange(50) % 2 == 1]), None)
    candidate, controls = acceptance._candidate(made, False, 20, rng())
    assert len(candidate) == 20 and (candidate == controls[0]).all() and (candidate != controls[1]).all()


def test_few_of_the_accepted_are_false_and_the_real_are_found():
    table = planted([pool(.75, .5, .5), pool(.7, .55, .5)], CONFIG, runs=6, gates=20)
    ours, naive = discovery(table).to_dict('records')
    assert ours['FDR'] <= .05 < .1 < naive['FDR'] and ours['power'] > .5 and (table.true == 10).all()
    assert (table.accepted == table.false + table.found).all()
    assert table.equals(planted([pool(.75, .5, .5), pool(.7, .55, .5)], CONFIG, runs=6, gates=20))
    assert not table.equals(planted([pool(.75, .5, .5), pool(.7, .55, .5)], CONFIG, runs=6, gates=20, seed=1))


def test_a_child_that_is_no_better_is_false_whoever_made_it():
    table = planted([pool(.4, .5, .3)], CONFIG, runs=2, gates=10)
    assert (table.true == 0).all() and (table.found == 0).all() and discovery(table).power.tolist() == [0, 0]


def test_discovery_by_hand():
    table = pd.DataFrame({'false': [0, 1], 'accepted': [0, 4], 'true': [5, 5], 'found': [0, 3], 'naive false': [2, 2],
                          'naive accepted': [2, 4], 'naive found': [0, 2]})
    ours, naive = discovery(table).to_dict('records')
    assert (ours['FDR'], ours['power'], ours['accepted']) == (.125, .3, 2)
    assert (naive['FDR'], naive['power'], naive['mc_se']) == (.75, .2, pytest.approx(.25))


@pytest.mark.parametrize('found', [[], [pool(.5, .5, .5, n=399)]])
def test_a_pool_must_be_as_long_as_a_test(found):
    with pytest.raises(ValueError, match='pools of at least 400 questions') as e: planted(found, CONFIG)
    assert '\n' not in str(e.value)


# --- real answers

def test_every_two_are_a_couple_and_twins_are_the_parents_again():
    made = list(pools(load_host('embedded', threads=1), homes=HOMES[:3], tasks=24, updates=1))
    assert [p.pair for p in made] == ['string.sort + word.count', 'string.sort + code.format',
                                        'word.count + code.format']
    for p in made:
        assert p.child.shape == (24,) and p.parents.shape == p.twins.shape == (2, 24) and p.child.dtype == bool
        assert (p.parents != p.twins).any()
    table = candidate_pairs(made)
    assert table.uplift.tolist() == [p.child.mean() - max(p.parents.mean(1)) for p in made]


def test_all_tables_are_made_and_every_wait_is_announced(monkeypatch):
    monkeypatch.setattr(acceptance, 'pools', lambda *a, **how: iter([pool(.75, .5, .5)]))
    lines, sizes = [], Sizes(streams=10, late=10, sequences=2, logs=2, merges=1, runs=2, gates=4)
    tables = measure(None, CONFIG, sizes, log=lines.append)
    assert list(tables) == ['nulls', 'power', 'samples', 'sequences', 'logs', 'merges', 'couples', 'planted']
    assert all(len(t) for t in tables.values()) and {'model', 'propensities', 'bias', 'mc_se'} <= set(tables['logs'])
    assert 'false accepts …' in lines and 'answers of made up' in lines and lines[-1] == 'planted nulls: 2 of 2 runs'
