"""Announced differences: both parts of a run, without the strongest seed, and the p-values beside them."""
import numpy as np
import pytest

from evolora.experiments.changing_worlds import world_targets
from evolora.experiments.study_differences import (beside_a_lead, compared, coverage_note, difference,
                                                   difference_tables, strongest_seed)
from evolora.experiments.study_plan import Cell, Plan, checked_plan, grid
from evolora.experiments.study_report import accuracy, for_people
from evolora.experiments.study_results import Results, checked_cell, crossed, packed
from evolora.experiments.study_tuning import begun, round_plan, scored
from evolora.experiments.suite import suite_targets

VALUES = {'name': 'parts', 'question': 'From when on?', 'seeds': 6, 'measured': {'served': True},
          'conditions': ['ecology', {'name': 'one', 'of': 'ecology', 'changes': {'founders': 1}}],
          'comparisons': [{'of': 'ecology', 'against': ['one']},
                          {'of': 'ecology', 'against': ['one'], 'over': 'whole'}]}


def part(right):
    return {'families': {'math': [sum(right), len(right)]}, 'bits': packed(right), 'gflops': .1}


def served(condition, seed, early, late, exact=True): # right of 20 answers in each half of a run
    halves = [[i < n for i in range(20)] for n in (early, late)]
    whole = {'whole': {'id': part([x for half in halves for x in half])}} if exact else {}
    return checked_cell(dict(
        format=1, condition=condition, seed=seed, hashes={}, gflops=5., spent={'evidence': 1.}, organelles=1,
        ways={'served': {'id': part(halves[1])}} | whole, curve=[[1., early / 20], [2., late / 20]]))


def cells(ecology, one, exact=True): # by seed: right in each half
    return {Cell(name, seed, 'embedded', 1000.): served(name, seed, *halves, exact)
            for name, runs in (('ecology', ecology), ('one', one)) for seed, halves in enumerate(runs, 1)}


# Ahead late by 5, 6, 4, 5, 6 and 16 of 20; behind early by 4, in each seed.
ECOLOGY = [(2, 10 + more) for more in (0, 1, -1, 0, 1, 10)]
ONE = [(6, 5)] * 5 + [(6, 4)]
LATE, WHOLE_RUN = [.25, .3, .2, .25, .3, .8], [.025, .05, 0, .025, .05, .3]


@pytest.mark.parametrize('by_seed, strongest', [
    ({1: .1, 2: .3, 4: .2}, 2), ({1: -.1, 2: .3, 4: -.9}, 4), ({1: .0, 2: .0}, 1), ({1: .5}, None), ({}, None),
    ({1: .1, 2: float('nan')}, None)])
def test_the_strongest_seed_is_the_one_that_carries_the_mean(by_seed, strongest):
    assert strongest_seed(by_seed) == strongest
    if strongest is not None and any(by_seed.values()):
        rest = lambda seed: abs(np.mean([x for s, x in by_seed.items() if s != seed]))
        assert rest(strongest) == min(map(rest, by_seed))


@pytest.mark.parametrize('exact', [True, False])
def test_both_parts_of_a_run_stand_side_by_side(exact):
    plan = checked_plan(VALUES)
    table = compared(plan, cells(ECOLOGY, ONE, exact))
    assert table.over.tolist() == ['second', 'whole'] and table.seeds.tolist() == [6, 6]
    for name, own in (('second', LATE), ('whole', WHOLE_RUN)):
        assert table[name].tolist() == pytest.approx([np.mean(own)] * 2)
        assert table[f'{name} without'].tolist() == pytest.approx([np.mean(own[:5])] * 2)
    assert table.difference.tolist() == pytest.approx([np.mean(LATE), np.mean(WHOLE_RUN)])
    assert table.without.tolist() == pytest.approx([np.mean(LATE[:5]), np.mean(WHOLE_RUN[:5])])
    assert table['strongest seed'].tolist() == [6, 6]
    # All differences have one sign in the second half; a difference of zero counts for either sign.
    assert table.p.tolist() == pytest.approx([1 / 64, 2 / 64])
    assert table['corrected p'].tolist() == pytest.approx([2 / 64, 2 / 64])


def test_the_interval_over_a_whole_run_is_paired_by_answer_where_answers_are_kept():
    exact, older = (Results(cells(ECOLOGY, ONE, exact).values()) for exact in (True, False))
    gap, seeds = exact.gap('ecology', 'one', ('id',), 'whole')
    assert gap.shape == (6, 40) and seeds == [1, 2, 3, 4, 5, 6]
    assert difference(exact, 'ecology', 'one', way='whole').seen == crossed(gap, ['math'] * 40)
    by_curve = difference(older, 'ecology', 'one', way='whole')
    assert by_curve.seen == pytest.approx(crossed(np.array(WHOLE_RUN)[:, None], ['run']))
    assert list(by_curve.by_seed.values()) == pytest.approx(WHOLE_RUN)


def test_one_older_cell_makes_all_of_its_place_count_by_curves():
    "Or some runs would count by answers and others by generations"
    mixed = cells(ECOLOGY, ONE)
    mixed |= {cell: x for cell, x in cells(ECOLOGY, ONE, exact=False).items() if cell[:2] == ('one', 3)}
    results = Results(mixed.values())
    assert not results.exact and results.right('ecology', ('id',), 'whole').shape == (6, 1)
    assert results.lead('ecology', 'one', ('id',), 'whole').estimate == pytest.approx(np.mean(WHOLE_RUN))


def test_runs_of_equal_compute_are_levelled_over_the_whole_as_over_the_half():
    short, long = served('a', 1, 20, 0), served('b', 1, 20, 0)
    halves = [[True] * 40, [False] * 40]
    long['ways'] = {'served': {'id': part(halves[1])}, 'whole': {'id': part(halves[0] + halves[1])}}
    results = Results([short, checked_cell(long)])
    assert results.exact and results.right('b', ('id',), 'whole').tolist() == [[1.] * 20 + [0.] * 20]
    assert results.right('b', ('id',)).tolist() == [[0.] * 20] and len(results.labels(('id',), 'whole')) == 40


def test_a_run_without_its_curve_has_no_whole():
    bare = {cell: x | {'curve': []} for cell, x in cells(ECOLOGY, ONE, exact=False).items()}
    table = compared(checked_plan(VALUES), bare)
    assert table.second.notna().all() and table.whole.isna().all() and table.p.isna().tolist() == [False, True]
    assert difference_tables(checked_plan(VALUES), table)['The same over both parts of a run, in points'][
        'whole run'].tolist() == ['']


@pytest.mark.parametrize('ways', [
    lambda s, w: {'whole': w, 'served': s}, lambda s, w: {'whole': w}, lambda s, w: {'adapter': s, 'whole': w},
    lambda s, w: {'served': s, 'whole': {'ood_depth': w['id']}}, lambda s, w: {'served': s, 'whole': {}},
    lambda s, w: {'served': s, 'whole': {'id': w['id'] | {'bits': 'ff'}}}])
def test_a_whole_run_that_lies_is_refused(ways):
    cell = served('a', 1, 3, 4)
    with pytest.raises(ValueError, match='expected a cell of a study'):
        checked_cell(cell | {'ways': ways(cell['ways']['served'], cell['ways']['whole'])})


def test_a_plan_says_what_it_is_judged_on_and_older_plans_stay_what_they_were():
    plan = checked_plan(VALUES)
    written = plan.model_dump(mode='json')
    assert [c.get('over') for c in written['comparisons']] == [None, 'whole'] and checked_plan(written) == plan
    older = checked_plan(VALUES | {'comparisons': VALUES['comparisons'][:1]})
    assert 'over' not in older.model_dump_json() and older.fingerprint != plan.fingerprint
    for change, says in (({'measured': {'id': 64}}, 'an exam has no halves'),
                         ({'comparisons': [*VALUES['comparisons'], VALUES['comparisons'][1]]}, 'got one twice'),
                         ({'comparisons': [VALUES['comparisons'][0] | {'over': 'first'}]}, 'second.*whole')):
        with pytest.raises(ValueError, match=says) as error: checked_plan(VALUES | change)
        assert '\n' not in str(error.value)


def test_tables_for_people_have_both_parts_and_the_lead_without_its_strongest_seed():
    plan = checked_plan(VALUES)
    shown = for_people(plan, cells(ECOLOGY, ONE))
    lines, leads, parts = shown.values()
    assert lines['whole run'].str.contains(r'^0\.3').tolist() == [True, False] and len(lines) == 2
    assert leads.over.tolist() == ['second half', 'whole run'] and leads['corrected p'].tolist() == ['0.031'] * 2
    assert leads.difference[0].startswith('+35.0 [') and leads['without its strongest seed'][0].startswith('+26.0 [')
    assert len(parts) == 1 and parts['second half'][0] == leads.difference[0]
    assert parts['whole run'][0] == leads.difference[1]
    assert 'whole' in accuracy(plan, cells(ECOLOGY, ONE)) and coverage_note(plan, cells(ECOLOGY, ONE)).startswith('An ')
    few = {c: x for c, x in cells(ECOLOGY, ONE).items() if c.seed < 4}
    assert coverage_note(plan, few).startswith('Warning, fewer than 5 seeds') and coverage_note(plan, {}) == ''


def exam(condition, seed, right):
    return dict(format=1, condition=condition, seed=seed, hashes={}, gflops=1., ways={'host': {'id': part(
        [i < right for i in range(20)]) | {'cost': 1.}}})


@pytest.mark.parametrize('over, wanted', [('whole', .5), ('second', .8)])
def test_trials_are_judged_by_the_part_that_the_comparisons_are_about(over, wanted):
    plan = checked_plan(VALUES | {'comparisons': [{'of': 'ecology', 'against': ['one'], 'over': over}], 'tuning': {
        'trials': 2, 'budget': 5., 'knobs': [{'of': ['ecology', 'one'], 'values': {'market.even': [.02, .05]}}]}})
    trials = round_plan(plan, 1, begun(plan))
    made = {cell: served(cell.condition, cell.seed, 4, 16) for cell in grid(trials)}
    assert scored(plan, made, begun(plan)).accuracy.tolist() == pytest.approx([wanted] * 4)


def test_an_exam_has_one_part():
    plan = Plan.model_validate(dict(name='exam', question='?', seeds=(1, 2, 3), conditions=('frozen', 'single'),
                                    comparisons=[{'of': 'single', 'against': ['frozen']}]))
    made = {Cell(name, seed, 'embedded', 1000.): exam(name, seed, right) for name, gains in (
        ('frozen', (5, 5, 5)), ('single', (6, 7, 20))) for seed, right in enumerate(gains, 1)}
    table = compared(plan, made)
    assert not {'over', 'second', 'whole'} & set(table) and len(difference_tables(plan, table)) == 1
    row = table.iloc[0]
    assert (row.difference, row.without, row['strongest seed']) == pytest.approx((.3, .075, 3))
    assert row['without low'] == pytest.approx(.05 - .0, abs=.06) and row.p == 1 / 8 == row['corrected p']


def test_a_benchmark_shows_both_numbers_next_to_its_lead():
    plan = checked_plan(VALUES | {'name': 'quick', 'conditions': ['ecology', {'name': 'one', 'generations': 4}]})
    made = cells(ECOLOGY, ONE)
    found = {row['name']: row for row in suite_targets(plan, made)}
    assert found['ecology − one, id, without its strongest seed, points']['measured'] == pytest.approx(26.)
    assert found["ecology − one, id, Holm's p"] == dict(
        name="ecology − one, id, Holm's p", target='<= 0.05', measured=2 / 64, met=True)
    whole = found['ecology − one, id, whole run, without its strongest seed, points']
    assert whole['measured'] == pytest.approx(3.) and whole['met'] and len(found) == 6
    of_worlds = [row['name'] for row in world_targets(plan, made)]
    assert of_worlds[:3] == ['ecology − best single adapter that was run, points',
                             'ecology − one, id, without its strongest seed, '
                             'points', "ecology − one, id, Holm's p"]
    assert beside_a_lead(compared(plan, {}), 'ecology − one', '> 0') == []
