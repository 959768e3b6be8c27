"What the benchmark of the measure counts, times, and lets pass"
import numpy as np
import pytest
from quick import FRAMEWORK, QUICK, Inside, inside

from evolora.attention.scoring import evaluation
from evolora.attention.scoring.evaluation import Cache, Evaluator
from evolora.attention.scoring.sandbox import Outcome
from evolora.attention.scoring.training import HORIZONS
from evolora.attention.search import measure_calibration
from evolora.attention.search.measure_calibration import (
    calibration_rows, calibration_targets, calibration_tables, null_pairs, null_study, power_study, time_study)
from evolora.utils.randomness import stream


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, 'work', inside)
    cache = Cache(tmp_path)
    return lambda first=0: Evaluator(FRAMEWORK, QUICK, first=first, cache=cache, gate=False)


def planted(seconds=100., found=True): return dict(found=found, seconds=seconds)


def bad(status='ok', score=.1): return {'status': status, 'score by paired_gain': score}


def timed(tier, ratio): return dict(tier=tier, ratio=ratio)


def cheat(status, verdict=''): return dict(cheat='a trick', status=status, verdict=verdict)


GOOD = dict(nulls=[dict(verdict='unclear')] * 40, planted=[planted()] * 20, covered=[dict(coverage=.95)],
            bad=[bad()] * 2,
            cheats=[cheat('ok', 'worse'), cheat('refused')], timed=[timed('tiny', 1.25), timed('small', 1.15)])


@pytest.mark.parametrize('name,change,met', [
    ('called better', dict(nulls=[dict(verdict='better')] * 5 + [dict(verdict='worse')] * 35), True),
    ('called better', dict(nulls=[dict(verdict='better')] * 6 + [dict(verdict='unclear')] * 34), False),
    ('gaps found', dict(planted=[planted(found=False)] + [planted()] * 19), True),
    ('gaps found', dict(planted=[planted(found=False)] * 2 + [planted()] * 18), False),
    ('seconds', dict(planted=[planted()] * 19 + [planted(241.)]), False),
    ('seconds', dict(planted=[planted()] * 19 + [planted(None)]), True),
    ('seconds', dict(planted=[planted(None)] * 20), None),
    ('interval', dict(covered=[dict(coverage=.95), dict(coverage=.92)]), False),
    ('interval', dict(covered=[dict(coverage=.95), dict(coverage=.98)]), False),
    ('controls', dict(bad=[bad(), bad(score=.5)]), False),
    ('controls', dict(bad=[bad(), bad('crashed', None)]), False),
    ('controls', dict(bad=[bad(), bad('dropped', None)]), False),
    ('cheats', dict(cheats=[cheat('ok', 'better'), cheat('refused')]), False),
    ('cheats', dict(cheats=[cheat('ok', 'unclear'), cheat('refused')]), False),
    ('cheats', dict(cheats=[cheat('invalid'), cheat('dropped')]), True),
    ('tiny tier', dict(timed=[timed('tiny', 1.26), timed('small', 1.)]), False),
    ('small tier', dict(timed=[timed('tiny', 1.), timed('small', 1.16)]), False),
    ('small tier', dict(timed=[timed('tiny', 1.)]), None)])
def test_a_target_is_met_by_what_was_measured_and_by_nothing_else(name, change, met):
    assert all(line['met'] for line in calibration_targets(**GOOD))
    lines = calibration_targets(**GOOD | change)
    [line] = [line for line in lines if name in line['name']]
    assert line['met'] is met and all(other['met'] for other in lines if other is not line)


def test_every_pair_has_a_baseline_and_seeds_of_its_own(make):
    asked = []
    def noted(first):
        asked.append(make(first))
        return asked[-1]
    pairs = list(null_pairs(noted, 3, workers=Inside()))
    seeds = [seed for evaluator in asked for seed in evaluator.seeds]
    assert len(set(seeds)) == len(seeds) == 6
    rows = null_study(pairs) + power_study(pairs)
    assert len({row['gain'] for row in rows}) == 6 and all(row['gain'] for row in rows)


def pair(difference, seconds=1.):
    "Losses of 3 sizes on 4 seeds that stray by a hundredth, and a candidate's that are lower by so much"
    baseline = 2 + stream(0, purpose='baseline').normal(0, .01, (3, 4))
    noise = stream(0, purpose='candidate').normal(0, .001, (3, 4))
    return dict(baseline=baseline, candidate=baseline - difference + noise, seconds=seconds)


def test_a_pair_of_four_seeds_is_two_null_candidates():
    rows = null_study([pair(0.), pair(.1)])
    assert len(rows) == 4 and [row['verdict'] for row in rows[2:]] == ['better'] * 2
    one = pair(.1)
    one['candidate'][:, 2:] = one['baseline'][:, 2:]
    assert [row['gain'] > .05 for row in null_study([one])] == [True, False]


def test_a_gap_is_planted_in_the_candidate_and_found():
    [row] = power_study([pair(0.)], gap=.01)
    assert row['found'] and row['gain'] - row['without'] == pytest.approx(.02, rel=.02) and row['seconds'] == 1.
    [row] = power_study([pair(-.5)], gap=.01)
    assert not row['found']


def test_what_comes_from_the_cache_is_not_timed(make):
    first, again = (next(null_pairs(make, 1, workers=Inside())) for _ in range(2))
    assert first['seconds'] > 0 and again['seconds'] is None
    assert all((first[name] == again[name]).all() for name in ('baseline', 'candidate'))


def test_both_ways_are_timed_in_turns_on_the_same_trainings(make, monkeypatch):
    asked = []
    def noted(job):
        asked.append(job)
        return inside(job)
    monkeypatch.setattr(measure_calibration, 'work', noted)
    row = time_study(make(), 3, tick=lambda: asked.append(None))
    assert (row['tier'], row['repeats']) == (QUICK.name, 3) and 0 < row['low'] <= row['ratio'] <= row['high']
    alone, apart = asked[:2]
    assert asked == [alone, apart, None, apart, alone, None, alone, apart, None]
    wanted = alone.arguments['wanted']
    assert wanted == list(apart.trainings.wanted) and len(wanted) == 2 * len(QUICK.sizes)
    losses = np.array(inside(alone).result['losses']).reshape(-1, len(HORIZONS))        # size and seed, horizon
    assert losses[:, -1].mean() < losses[:, 0].mean()
    parts = [[], [], [], [], [], [row]]
    assert calibration_rows(*parts) == [dict(part='time') | row]
    assert [*calibration_tables(*parts)][-1].startswith('Seconds')


def test_a_way_that_fails_is_not_timed(make, monkeypatch):
    monkeypatch.setattr(measure_calibration, 'work', lambda job: Outcome('timeout', None, 'it took longer than 1 s'))
    with pytest.raises(ValueError, match='softmax is timeout: it took longer'): time_study(make(), 1)
