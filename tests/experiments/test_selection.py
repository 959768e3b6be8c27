"""What is wanted of selection: each figure from the cells that it is about, and none where cells are missing."""
import numpy as np
import pytest

from evolora.experiments.baselines import CONDITIONS
from evolora.experiments.selection import selection_plan, selection_targets
from evolora.experiments.study_cell import make_cell
from evolora.experiments.study_plan import Plan, checked_plan, grid, load_plan
from evolora.experiments.study_report import account_tables, evolution, for_people
from evolora.experiments.study_results import checked_cell, packed
from evolora.experiments.study_tuning import trials_of

PLAN = selection_plan()
# Right answers out of 40 of each arm; ten points are four answers.
RIGHT = {'frozen': 10, 'single': 30, 'specialists': 31, 'unmerged': 30, 'ecology': 32, 'lot': 20, 'spread': 30,
         'spread_lot': 20, 'spread_stakes': 30, 'spread_even': 25, 'spread_halving': 30, 'spread_bandit': 31}


def made(cell, **changes):
    n, lives = RIGHT[cell.condition], CONDITIONS[cell.condition].source == 'life'
    part = {'families': {'math': [n, 40]}, 'bits': packed([i < n for i in range(40)]), 'gflops': .05, 'cost': .1}
    account = dict(selection=.03, learning=.1, birth=-.01, merge=0., arrivals=0., change=.12, discrepancy=1e-16,
                   censuses=4, income=1.2, incomes=3)
    price = {'price': account} if lives else {}
    fitness = [[10., 9, 6, .9, .5, .7], [20., 18, 6, .7, .4, .1], [30., 30, 6, .8, .6, .3]]
    return dict(format=1, condition=cell.condition, seed=cell.seed, asked=cell.budget, hashes={'cost': '1'},
                ways={'adapter': {'id': part}}, gflops=100., spent={'play': 40., 'learn': 50., 'evidence': 10.},
                organelles=6) | price | ({'births': 3, 'deaths': 2, 'fitness': fitness} if lives else {}) | changes


@pytest.fixture
def cells(): return {cell: checked_cell(made(cell)) for cell in grid(PLAN)}


def test_each_target_is_of_the_arms_that_it_names(cells):
    found = {t['name']: (t['measured'], t['met']) for t in selection_targets(PLAN, cells)}
    points = lambda a, b: pytest.approx(100 * (RIGHT[a] - RIGHT[b]) / 40)
    assert found["Price's terms add up, largest discrepancy"] == (1e-16, True)
    assert found["selection's term of a life, spread founders, low end"] == (pytest.approx(.03), True)
    assert found['ρ of worth with a large exam, spread founders'] == (pytest.approx(.8), True)      # the median
    assert found['spread: ecology − without selection, points'] == (points('spread', 'spread_even'), True)
    assert found['spread: ecology − successive halving, points'] == (points('spread', 'spread_halving'), True)
    assert found['spread: ecology − bandit, points'] == (points('spread', 'spread_bandit'), False)
    assert found['ecology − the better of single and specialists, points'] == (points('ecology', 'specialists'), True)
    assert found['merges: ecology − unmerged, points'] == (points('ecology', 'unmerged'), True)
    assert found["play's and learning's share of compute, ecology"] == (pytest.approx(.9), True)
    assert found['spread: ecology − lot, points, low end'][1] and found['preset: ecology − lot, points, low end'][1]
    assert all(met is not None for _, met in found.values())


def test_what_is_missing_is_not_measured(cells):
    names = ('spread', 'spread_lot', 'ecology')
    for name in names:
        part = {c: x for c, x in cells.items() if c.condition != name}
        assert any(t['met'] is None for t in selection_targets(PLAN, part)), name
    assert all(t['measured'] is None for t in selection_targets(PLAN, {}))
    assert evolution(PLAN, {}).empty
    bare = {c: {k: v for k, v in x.items() if k not in ('price', 'fitness')} for c, x in cells.items()}
    found = {t['name']: t['measured'] for t in selection_targets(PLAN, bare)}
    assert found['ρ of worth with a large exam, spread founders'] is None
    assert found["Price's terms add up, largest discrepancy"] is None


def test_the_account_has_a_row_a_life_in_two_tables(cells):
    table = evolution(PLAN, cells)
    assert [*table.condition] == [c.name for c in PLAN.conditions if c.source == 'life']
    assert np.allclose(table['ρ absence'], .5) and np.allclose(table['ρ income'], .4)
    one, two = account_tables(table).values()
    assert [*for_people(PLAN, cells)][-2:] == [*account_tables(table)]
    life = {c: x for c, x in cells.items() if c.seed == 1}
    assert evolution(PLAN, life)[['selection low', 'ρ shared high']].isna().all(None)       # one life has no interval
    assert {'selection', 'births'} <= {*one} and {'ρ shared', 'play, learning'} <= {*two} and len(one) == len(two)


def test_the_small_study_is_the_large_one_without_tuning_and_its_dearest_arms():
    whole, quick = load_plan('selection'), selection_plan(40., quick=True)
    assert PLAN.tuning is quick.tuning is None
    assert {c.name for c in PLAN.conditions} < {c.name for c in whole.conditions}
    assert len(grid(quick)) == 3 and quick.budgets == (40.,)
    assert all(whole.tuning.of(c.name) for c in whole.conditions if c.source != 'nothing')


def test_a_cell_keeps_the_account_and_the_ranks_of_a_life():
    brief = {'market': {'questions': 6, 'round': 3}, 'curriculum': {'copies': 2}, 'variation': {'every': 2}}
    plan = Plan.model_validate(dict(
        name='ranks', question='?', seeds=[1], conditions=[{'name': 'spread', 'generations': 9, 'changes': brief}],
        measured={'id': 24, 'also': ['fitness'], 'probe': 48}))
    cell = checked_cell(make_cell(plan, grid(plan)[0], {}))
    assert cell['price']['censuses'] == 3 and cell['price']['discrepancy'] <= 1e-9
    terms = sum(cell['price'][k] for k in ('selection', 'learning', 'birth', 'merge', 'arrivals'))
    assert terms == pytest.approx(cell['price']['change'], abs=1e-9)
    assert cell['fitness'] and all(row[1] >= 8 and row[2] >= 3 and all(x is None or -1 <= x <= 1 for x in row[3:])
                                   for row in cell['fitness'])


def test_trials_of_a_control_have_the_settings_of_what_it_controls():
    plan, settings = load_plan('selection'), lambda name: trials_of(load_plan('selection'), name)
    for one, other in (('ecology', 'lot'), ('ecology', 'unmerged'), ('spread', 'spread_lot')):
        assert settings(one) == settings(other) and len(settings(one)) == plan.tuning.trials
    assert settings('ecology') != settings('single')


def test_what_is_not_measured_of_a_served_life_is_refused():
    about = {'name': 'x', 'question': '?', 'conditions': ['spread'], 'worlds': [{'name': 'w', 'preset': 'worlds'}]}
    with pytest.raises(ValueError, match='fitness expected served: false, got true'):
        checked_plan(about | {'measured': {'served': True, 'also': ['fitness']}})
    with pytest.raises(ValueError, match='rung expected something like 4'):
        checked_plan(about | {'conditions': [{'name': 'spread_halving', 'changes': {'serving.rung': 'four'}}]})
