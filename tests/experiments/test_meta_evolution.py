"""Ecologies that evolve: equal compute for every strategy, a state that is taken over whole, and no peeking."""
import numpy as np
import pytest

from evolora.ecology.config import load_config
from evolora.ecology.ecology import Ecology
from evolora.experiments.meta_evolution import (RANGES, STRATEGIES, MetaLife, changed_knobs, drawn_knobs, meta,
                                               meta_study)
from evolora.host.model import load_host
from evolora.utils.randomness import stream

SMALL = dict(lives=4, rounds=3, budget=6., questions=24)


@pytest.fixture(scope='module')
def host(): return load_host('embedded', threads=1)


@pytest.mark.parametrize('strategy', STRATEGIES)
def test_every_strategy_spends_the_same_compute_with_its_exams(host, strategy):
    ticks = []
    found = meta(host, load_config('debug'), strategy, seed=2, tick=lambda: ticks.append(1), **SMALL)
    assert found.gflops == pytest.approx(4 * 3 * 6., rel=.04) and len(ticks) == len(found.rows)
    lives = [len({row['life'] for row in found.rows if row['round'] == k}) for k in range(3)]
    assert lives == {'evolve': [4, 4, 4], 'halve': [4, 2, 1], 'stay': [1, 1, 1]}[strategy]
    assert found.best.right == max(row['right'] for row in found.rows if row['round'] == 2)
    again = meta(host, load_config('debug'), strategy, seed=2, **SMALL)
    assert again.rows == found.rows


def test_the_worst_takes_over_from_the_best_and_the_best_goes_on_unharmed(host):
    one, other = (MetaLife(Ecology(host, load_config('debug'), seed=3), knobs)
                  for knobs in ({}, {'contest': .3, 'bet': .5}))
    one.ecology.run(2, log=None)
    alone = Ecology(host, load_config('debug'), seed=3)
    alone.run(2, log=None)
    other.gflops = 7.
    other.become(one, {'contest': .9})
    other.ecology.turn(contest=.9)
    other.ecology.step()
    assert other.ecology.generation == 3 and other.gflops == 7. and other.ecology.knobs['contest'] == .9
    same = [str({k: x for k, x in e.step().tables.items() if k != 'timings'}) for e in (one.ecology, alone)]
    assert same[0] == same[1], 'what the other one does is not felt here'


def test_knobs_stay_in_ranges_that_can_be_turned(host):
    rng, e = stream(0, purpose='test'), Ecology(host, load_config('debug'))
    for _ in range(50):
        knobs = drawn_knobs(rng)
        for _ in range(20): knobs = changed_knobs(knobs, rng, size=1.)
        e.turn(**knobs)
        assert all(low <= knobs[name] <= high for name, (low, high) in RANGES.items())


def test_judged_are_questions_that_did_not_choose(host, monkeypatch):
    asked = []
    exam = MetaLife.exam
    def noted(self, tasks):
        asked.append({t.prompt for t in tasks})
        return exam(self, tasks)
    monkeypatch.setattr(MetaLife, 'exam', noted)
    table = meta_study(host, load_config('debug'), seeds=(1,), lives=2, rounds=1, budget=8., questions=64, judge=128)
    assert table.strategy.tolist() == [*STRATEGIES] and np.ptp(table.gflops) < .1 * table.gflops.mean()
    chose, judged = set.union(*(x for x in asked if len(x) <= 64)), [x for x in asked if len(x) > 64]
    assert len(judged) == 3 and not any(x & chose for x in judged)


def test_what_no_strategy_could_do_is_refused(host):
    for wrong in (dict(strategy='guess'), dict(lives=1), dict(rounds=0), dict(budget=0.), dict(budget=.01)):
        with pytest.raises(ValueError, match='^expected '): meta(host, load_config('debug'), **wrong)
