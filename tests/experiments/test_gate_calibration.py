"""The test of the test: what it accepts by simulation, gates held as `merge_test` holds them, planted nulls."""
import math
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from evolora.assimilation import merge_test
from evolora.assimilation.merge_test import MergeConfig, Merging, Trials
from evolora.assimilation.merging import RULES
from evolora.assimilation.sequential import ELond
from evolora.experiments import gate_calibration as acceptance
from evolora.experiments.gate_calibration import (HOMES, Pool, Sizes, candidate_pairs, discovery, false_accepts, held,
                                                  level_of, measure, merge_errors, planted, pools, power)
from evolora.host.model import load_host
from evolora.utils.randomness import stream

CONFIG = MergeConfig(share=.1, most=240, look=40)
rng = lambda seed=0: stream(seed, purpose='tests')


def pool(child, leader, n=600, share=.1):
    "Answers of a made-up child and leader of two families, which disagree on some questions beside"
    toss, drawn = rng(7).random((2, n)), rng(8).random((2, n))
    right = {f: (toss[i] < c, np.where(drawn[i] < share, drawn[i] < share / 2, toss[i] < l))
             for i, (f, c, l) in enumerate(zip(('math', 'logic'), child, leader))}
    return Pool('made up', *({f: found[i] for f, found in right.items()} for i in (0, 1)))


# --- simulations

def test_no_kind_of_differences_gets_in_more_often_than_alpha():
    table = false_accepts(CONFIG, streams=4000, rng=rng())
    assert table.differences.tolist() == list(acceptance._KINDS)
    for row in table.to_dict('records'):
        assert row['e-value, every look'] <= row['e-value, every pair'] <= .05 + 4 * math.sqrt(.05 * .95 / 4000)
    assert (table['naive, every look'][:3] > .1).all()
    assert (table['naive, every look'] <= table['naive, every pair']).all()


def test_one_look_of_the_naive_test_is_what_it_promises():
    "It is the looking that spoils it: with a single look at the end its false accepts are about alpha"
    table = false_accepts(CONFIG.model_copy(update={'look': 240}), streams=4000, rng=rng())
    share = table.set_index('differences')['naive, every look']['many disagree']
    assert share == pytest.approx(.05, abs=4 * math.sqrt(.05 / 4000))


@pytest.mark.parametrize('pairs, look, ends', [(10, 4, [3, 7, 9]), (8, 4, [3, 7]), (3, 8, [2])])
def test_the_last_look_is_at_the_end(pairs, look, ends): assert acceptance._looks(pairs, look).tolist() == ends


@pytest.mark.parametrize('kind', acceptance._KINDS)
@pytest.mark.parametrize('margin', [.05, .15])
def test_every_kind_is_behind_by_the_margin(kind, margin):
    x = acceptance._KINDS[kind](rng(), 200_000, margin)
    assert abs(x).max() <= 1 and x.mean() == pytest.approx(-margin, abs=4 * x.std() / 440)


def test_whoever_agrees_more_gets_in_more_often():
    table = power(CONFIG, streams=60, rng=rng())
    assert table.power.is_monotonic_decreasing and table.power[0] > .9 and table['median pairs'].is_monotonic_increasing
    alone = power(CONFIG, streams=60, families=1, rng=rng())
    assert (alone.power >= table.power).all() and (table.level == level_of(10, 2)).all()


def test_the_level_is_that_of_the_gate():
    assert level_of(1, 0) == pytest.approx(.05 * ELond().gamma(1))
    assert level_of(50, 5, .1) == pytest.approx(.1 * ELond().gamma(50) * 6)
    for gate, discoveries in ((0, 0), (3, 3), (3, -1)):
        with pytest.raises(ValueError, match='0 <= discoveries < gate'): level_of(gate, discoveries)


def test_merges_are_exact_whatever_the_ranks():
    table = merge_errors(cases=20, rng=rng())
    assert table.rule.tolist() == list(RULES) and (table.largest <= 1e-5).all() and (table['median'] > 0).all()


# --- gates

@pytest.mark.parametrize('child', [(.7, .7), (.75, .55), (.3, .7), (.66, .7)])
def test_a_gate_is_held_as_the_test_of_a_merge_holds_it(child, monkeypatch):
    "The loop of `merge_test`, given the same answers, leaves the same trials"
    made, kept = pool(child, (.7, .7)), []
    monkeypatch.setattr(merge_test, 'Trials', lambda *how: kept.append(Trials(*how)) or kept[-1])
    monkeypatch.setattr(merge_test, 'fresh', lambda cells, n, *_, **__: [cells[0].family] * n)
    at = dict.fromkeys(made.child, 0)
    def ask(who, tasks, *_, **__):
        f = tasks[0]
        part = slice(at[f], at[f] + len(tasks))
        at[f] = part.stop
        return {'child': made.child[f][part], 'leader': made.leader[f][part]}
    examiner = SimpleNamespace(ask=ask, bill={'gflops': 0.})
    merging = Merging(CONFIG, {id: None for id in ('o1', 'o2')}, [SimpleNamespace(family=f) for f in at], examiner)
    merging.population, merging.purse = SimpleNamespace(factors=lambda id: {}), math.inf
    first = merge_test.Candidate(('o1', 'o2'), .5, {}, 1., 0.)
    decision = merge_test.judge('no_pair', 'o1', 0, pairs=1, least=1)
    found = merging._test(first, {'math': 'o1', 'logic': 'o2'}, 0, [decision], 0., lambda purpose: None)
    ours = held(Trials([*at], level_of(1, 0), CONFIG.margin), made.child, made.leader, CONFIG)
    assert kept[0].differences == ours.differences and ours.differences['math']
    assert bool(found.child) == (ours.numbers['e'] >= ours.numbers['needed'])


# --- planted nulls

def test_a_planted_null_is_behind_by_the_margin_in_one_family():
    made, gaps = pool((.8, .8), (.75, .8), n=4000), []
    many = CONFIG.model_copy(update={'most': 4000})
    for seed in range(40):
        child, leader = acceptance._candidate(made, True, many, rng(seed))
        gap = {f: float(child[f].mean() - leader[f].mean()) for f in child}
        whole = {f: float(made.child[f].mean() - made.leader[f].mean()) for f in child}
        spoiled = [f for f in gap if gap[f] != pytest.approx(whole[f])]
        assert len(spoiled) == 1
        gaps.append(gap[spoiled[0]])
    assert np.mean(gaps) == pytest.approx(-CONFIG.margin, abs=.004)


def test_a_child_that_is_further_behind_is_left_as_it_is():
    made = pool((.3, .3), (.9, .9))
    child, _ = acceptance._candidate(made, True, CONFIG.model_copy(update={'most': 600}), rng())
    assert {f: own.sum() for f, own in child.items()} == {f: own.sum() for f, own in made.child.items()}


def test_a_real_child_meets_its_leaders_on_the_same_questions():
    made = Pool('', {'a': np.arange(50) % 2 == 0}, {'a': np.arange(50) % 2 == 0})
    child, leader = acceptance._candidate(made, False, CONFIG.model_copy(update={'most': 20}), rng())
    assert len(child['a']) == 20 and (child['a'] == leader['a']).all()


def test_few_of_the_accepted_are_false_and_the_real_are_found():
    made = [pool((.75, .8), (.75, .8)), pool((.8, .8), (.75, .75))]
    table = planted(made, CONFIG, runs=6, gates=20)
    ours, naive = discovery(table).to_dict('records')
    assert ours['FDR'] <= .05 < .08 < naive['FDR'] and ours['power'] > .5 and (table.true == 10).all()
    assert (table.accepted == table.false + table.found).all()
    assert table.equals(planted(made, CONFIG, runs=6, gates=20))
    assert not table.equals(planted(made, CONFIG, runs=6, gates=20, seed=1))


def test_a_child_that_is_behind_somewhere_is_false_whoever_made_it():
    table = planted([pool((.9, .5), (.8, .8))], CONFIG, runs=2, gates=10)
    assert (table.true == 0).all() and (table.found == 0).all() and discovery(table).power.tolist() == [0, 0]


def test_discovery_by_hand():
    table = pd.DataFrame({'false': [0, 1], 'accepted': [0, 4], 'true': [5, 5], 'found': [0, 3], 'naive false': [2, 2],
                          'naive accepted': [2, 4], 'naive found': [0, 2]})
    ours, naive = discovery(table).to_dict('records')
    assert (ours['FDR'], ours['power'], ours['accepted']) == (.125, .3, 2)
    assert (naive['FDR'], naive['power'], naive['mc_se']) == (.75, .2, pytest.approx(.25))


@pytest.mark.parametrize('found, named', [([], 'pools of at least 240 questions'),
                                          ([pool((.5, .5), (.5, .5), n=239)], 'pools of at least 240 questions'),
                                          ([pool((.1, .1), (0., 0.), share=.02)], 'nobody can be behind them')])
def test_a_pool_must_be_as_long_as_a_test_and_leaders_right_now_and_then(found, named):
    with pytest.raises(ValueError, match=named) as e: planted(found, CONFIG)
    assert '\n' not in str(e.value)


# --- real answers

def test_every_two_are_a_pair():
    made = list(pools(load_host('embedded', threads=1), homes=HOMES[:3], tasks=24, updates=1))
    assert [p.pair for p in made] == ['string.sort + word.count', 'string.sort + code.format',
                                        'word.count + code.format']
    for p in made:
        assert ' + '.join(p.child) == p.pair and list(p.leader) == list(p.child)
        assert all(own.shape == (24,) and own.dtype == bool for side in (p.child, p.leader) for own in side.values())
    table = candidate_pairs(made)
    assert len(table) == 6
    assert [-table.gap[i:i + 2].min() for i in (0, 2, 4)] == pytest.approx([p.lag for p in made])


def test_all_tables_are_made_and_every_wait_is_announced(monkeypatch):
    monkeypatch.setattr(acceptance, 'pools', lambda *a, **how: iter([pool((.75, .8), (.75, .8))]))
    lines, sizes = [], Sizes(streams=10, late=10, merges=1, runs=2, gates=4)
    tables = measure(None, CONFIG, sizes, log=lines.append)
    assert list(tables) == ['nulls', 'power', 'merges', 'pairs', 'planted'] and all(len(t) for t in tables.values())
    assert 'false accepts …' in lines and 'answers of made up' in lines and lines[-1] == 'planted nulls: 2 of 2 runs'
