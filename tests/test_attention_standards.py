"What the benchmark of the measure counts, times, and lets pass"
import pytest
from quick import FRAMEWORK, QUICK, Inside, inside

from evolora.attention import evaluation
from evolora.attention.evaluation import Cache, Evaluator
from evolora.attention.standards import control_study, null_study, power_study, standards_targets


@pytest.fixture
def make(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, 'work', inside)
    cache = Cache(tmp_path)
    return lambda first=0: Evaluator(FRAMEWORK, QUICK, first=first, cache=cache, gate=False)


def planted(seconds=100., found=True): return dict(found=found, seconds=seconds)


def bad(status='ok', score=.1): return {'status': status, 'score by paired_gain': score}


GOOD = dict(nulls=[dict(verdict='unclear')] * 40, planted=[planted()] * 20, covered=[dict(coverage=.95)],
            bad=[bad()] * 2)


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
    ('controls', dict(bad=[bad(), bad('dropped', None)]), False)])
def test_a_target_is_met_by_what_was_measured_and_by_nothing_else(name, change, met):
    assert all(line['met'] for line in standards_targets(**GOOD))
    lines = standards_targets(**GOOD | change)
    [line] = [line for line in lines if name in line['name']]
    assert line['met'] is met and all(other['met'] for other in lines if other is not line)


def test_every_null_and_every_gap_has_a_baseline_and_seeds_of_its_own(make):
    asked = []
    def noted(first):
        asked.append(make(first))
        return asked[-1]
    rows = null_study(noted, 3, workers=Inside()) + power_study(noted, 2, workers=Inside())
    seeds = [seed for evaluator in asked for seed in evaluator.seeds]
    assert len(set(seeds)) == len(seeds) == 10 and len({row['gain'] for row in rows}) == 5
    assert all(row['gain'] for row in rows)


def test_what_comes_from_the_cache_is_not_timed(make):
    first, again = (power_study(make, 1, workers=Inside())[0] for _ in range(2))
    assert first.pop('seconds') > 0 and again.pop('seconds') is None and first == again


def test_controls_that_fail_say_so(make, monkeypatch):
    found = control_study(make(), Inside())
    assert [row['control'] for row in found] == ['mean', 'handicapped'] and all(row['status'] == 'ok' for row in found)
