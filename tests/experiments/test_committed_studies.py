"""What README and the pages of the experiments say of the committed studies is what their cells say."""
import json
from pathlib import Path

import numpy as np
import pytest

from evolora.ecology.config import load_config
from evolora.experiments.changing_worlds import kept
from evolora.experiments.screening import main_effects
from evolora.experiments.study import Study
from evolora.experiments.study_plan import own_studies
from evolora.experiments.study_report import compared, curves, draw, places
from evolora.experiments.study_results import Results, crossed
from evolora.tasks.task_sets import task_hashes
from evolora.utils.statistics import sign_flip

ROOT = Path(__file__).parents[2]
README = (ROOT / 'README.md').read_text(encoding='utf-8')
RESULTS = ROOT / 'nbs/experiments/results'
PAGES = '\n'.join(path.read_text(encoding='utf-8') for path in sorted([
    *(ROOT / 'nbs/experiments').glob('*.ipynb'), *(ROOT / 'nbs').glob('results.ipynb')])).replace('-', '−')
COMMITTED = ('islands', 'learning', 'longer', 'merges', 'real', 'rules', 'selection', 'selection_default',
             'selection_longer', 'selection_longest', 'society_allocation', 'society_archive',
             'society_confirmation', 'society_hazard', 'society_real', 'society_screen', 'untuned',
             'worlds', 'worlds_kinds', 'worlds_map', 'worlds_memory', 'worlds_parts',
             'worlds_rivals', 'worlds_seats', 'worlds_static')


def on_a_page(found):
    "Whether a page has the interval of a difference in points, with signs, or without where both ends are positive"
    low, high = found[1:]
    texts = ['[{:+.1f}, {:+.1f}]'.format(low, high)] + ['[{:.1f}, {:.1f}]'.format(low, high)] * (low > 0)
    return any(text.replace('-', '−') in PAGES for text in texts)


def points(lead): return [100 * x for x in lead]


@pytest.fixture(scope='module')
def results(): return {name: Results(list(Study(name, RESULTS / name).cells().values())) for name in COMMITTED
                      if name not in ('islands', 'selection_default', 'society_allocation', 'society_archive',
                                      'society_screen', 'worlds_static', 'worlds_kinds',
                                      'worlds_map')}        # of several worlds or budgets


@pytest.mark.parametrize('name', COMMITTED)
def test_a_committed_study_is_whole_and_of_its_file(name):
    study = Study(name, RESULTS / name)
    assert name in own_studies() and not study.missing() and len(study.record['openings']) == 1
    assert study.record['fingerprint'] == study.plan.fingerprint
    marks, cells = task_hashes(), study.cells().values() # nobody could repeat others
    assert cells and all({k: cell['hashes'][k] for k in marks} == marks for cell in cells)


@pytest.mark.parametrize('study,a,b,way', [
    ('learning', 'random_search', 'frozen', None), ('learning', 'ecology', 'frozen', None),
    ('learning', 'single', 'frozen', None), ('learning', 'sft', 'frozen', None),
    ('learning', 'ecology', 'single', None), ('learning', 'ecology', 'rft', None),
    ('real', 'ecology', 'frozen', None), ('real', 'ecology', 'single', None), ('real', 'ecology', 'rft', None),
    ('real', 'ecology', 'sft', None),
    ('longer', 'ecology', 'single', None), ('merges', 'with', 'without', 'routed'),
    ('merges', 'with', 'without', 'best'), ('untuned', 'ecology', 'single', None),
    ('selection_longer', 'ecology', 'single', None), ('selection_longer', 'ecology', 'specialists', None),
    ('selection_longest', 'ecology', 'single', None), ('selection_longest', 'ecology', 'specialists', None),
    ('worlds_seats', 'ecology', 'recent', None), ('worlds_seats', 'ecology_other', 'recent_other', None),
    ('worlds_parts', 'births_other', 'bank_other', None), ('worlds_parts', 'ecology', 'drawn', None),
    ('worlds_parts', 'ecology', 'no_ageing', None), ('worlds_parts', 'ecology', 'family_books', None),
    ('worlds', 'ecology', 'reset', None), ('worlds', 'ecology', 'posterior', None),
    ('society_confirmation', 'archive', 'ecology', None), ('society_real', 'archive', 'ecology', None),
    ('untuned', 'ecology', 'unmerged', 'routed'), ('untuned', 'ecology', 'unmerged', 'best')])
def test_a_page_has_the_interval_that_the_cells_give(results, study, a, b, way):
    own = results[study]
    assert on_a_page(crossed(100 * (own.right(a, ('id',), way) - own.right(b, ('id',), way)), own.labels(('id',))))


@pytest.mark.parametrize('a, b', [
    ('ecology', 'frozen'), ('ecology', 'single'), ('ecology', 'rft'), ('ecology', 'lot'), ('ecology', 'unmerged'),
    ('spread', 'spread_lot'), ('spread', 'spread_even'), ('spread', 'spread_stakes'), ('spread', 'spread_halving'),
    ('spread', 'spread_bandit')])
def test_a_page_has_what_selection_is_worth(results, a, b):
    assert on_a_page(points(results['selection'].lead(a, b, ('id',))))


def test_one_child_took_over_in_each_of_nine_runs_of_ten():
    cells = Study('selection', RESULTS / 'selection').cells()
    assert sum('took_over' in x['decisions'] for cell, x in cells.items() if cell.condition == 'ecology') == 9


@pytest.mark.parametrize('budget', (1000., 3000.))
@pytest.mark.parametrize('rival', ('one', 'specialists'))
def test_a_page_has_what_an_insurance_costs(budget, rival):
    study = Study('worlds_static', RESULTS / 'worlds_static')
    own = places(study.plan, study.cells())['static', 'embedded', budget]
    lead = points(own.lead('ecology', rival, ('id',)))
    assert on_a_page(lead) and lead[0] > -.5


@pytest.mark.parametrize('budget', (1000., 3000.))
@pytest.mark.parametrize('rival', ('ecology', 'single'))
def test_a_page_has_what_the_default_is_worth(budget, rival):
    study = Study('selection_default', RESULTS / 'selection_default')
    own = places(study.plan, study.cells())['default', 'embedded', budget]
    assert on_a_page(points(own.lead('quiet', rival, ('id',))))
    routed, best = (own.right('quiet', ('id',), way).mean(1) for way in ('routed', 'best'))
    assert (routed - best).max() < .004
    stakes, arm = load_config('stakes'), load_config('ecology').but(study.plan.conditions[2].changes)
    still = {'variation': stakes.variation, 'merging': stakes.merging}      # without births and merges these are idle
    assert arm.but(still) == stakes.but(still) and not stakes.variation.every and not stakes.merging.share


@pytest.mark.parametrize('world, rival', (('apart', 'reset'), ('skewed', 'reset'), ('sessions', 'context')))
def test_a_page_has_the_lead_in_worlds_of_three_kinds(world, rival):
    study = Study('worlds_kinds', RESULTS / 'worlds_kinds')
    own = places(study.plan, study.cells())[world, 'habits', 1000.]
    leads = {one: own.lead('ecology', one, ('id',)) for one in ('one', 'reset', 'context')}
    assert min(leads, key=lambda one: leads[one][0]) == rival, 'the best rival is the one that is named'
    assert on_a_page(points(leads[rival]))


def test_a_page_names_the_nearest_of_the_further_rivals(results):
    leads = {one: [100 * x for x in results['worlds_rivals'].lead('ecology', one, ('id',))] for one in (
        'gains', 'reptile', 'changepoint', 'bandit_frozen', 'thompson_pooled', 'reset')}
    assert min(leads, key=lambda one: leads[one][0]) == 'changepoint'
    assert on_a_page(leads['changepoint'])


ROWS = {'base model, untrained': ('bare', 'frozen', 'frozen'), 'one adapter': ('one', 'single', 'single'),
        'one adapter, reset when its reward drops': ('reset', None, None),
        'population': ('ecology', 'ecology', 'ecology'),
        'six adapters from the start, same stakes, no births': ('posterior', None, None),
        'an adapter for each world, told which world it is': ('told', None, None),
        'one adapter on its own right answers (rejection sampling)': (None, 'rft', 'rft'),
        'one adapter, supervised on gold answers': (None, 'sft', 'sft')}


def readme_row(name):
    return next(line for line in README.splitlines() if line.startswith(f'| {name} |')).strip('| ').split(' | ')


def runs_with_memory(arm):
    runs = json.loads((ROOT / 'tests/attacks/rivals.json').read_text(encoding='utf-8'))
    return [run for run in runs if run['study'] == 'worlds' and run['arm'] == arm]


def percent(share): return f'{100 * share:.0f}%'


@pytest.mark.parametrize('row', ROWS)
def test_readme_has_the_share_of_right_answers(results, row):
    "Changing worlds (second half, whole run, compute), a constant world, SmolLM2"
    _, second, whole, gflops, *constant = readme_row(row)
    changing, *arms = ROWS[row]
    for shown, study, arm in zip(constant, ('selection', 'real'), arms, strict=True):
        assert shown == ('–' if arm is None else percent(results[study].right(arm, ('id',)).mean())), study
    if changing is None: return
    worlds = results['worlds']
    curves = [[right for _, right in cell['curve']] for cell in worlds.cells[changing].values()]
    assert second == percent(worlds.right(changing, ('id',)).mean()) and whole == percent(np.mean(curves))
    assert gflops == f"{worlds.mean(changing, 'gflops'):.0f} ({len(curves)})"


@pytest.mark.parametrize('row, arm', [('base model + memory, untrained', 'bare_memory'),
                                      ('one adapter, reset when its reward drops, + memory', 'reset_memory'),
                                      ('population + memory', 'ecology_memory')])
def test_readme_has_the_rivals_with_memory_that_were_run(row, arm):
    own = runs_with_memory(arm)
    right = np.array([run['right'] for run in own])
    _, second, whole, gflops, *_ = readme_row(row)
    assert (second, whole) == (percent(right[:, 48:].mean()), percent(right.mean()))
    assert gflops == f"{np.mean([run['gflops'] for run in own]):,.0f} ({len(own)})"


def test_readme_has_what_a_population_with_memory_is_ahead_and_what_it_computes_more():
    population, single = runs_with_memory('ecology_memory'), runs_with_memory('reset_memory')
    assert [run['seed'] for run in population] == [run['seed'] for run in single] == [1, 2]
    mean = lambda name: [np.mean([run[name] for run in arm]) for arm in (population, single)]
    right, gflops = mean('right'), mean('gflops')
    assert f'is {100 * (right[0] - right[1]):.0f} points ahead of one adapter with memory over the whole run' in README
    assert f'two seeds, {100 * (gflops[0] / gflops[1] - 1):.0f}% more compute' in README


def test_readme_has_the_lead_of_one_adapter_and_its_p_and_it_is_not_significant(results):
    study = Study('selection', RESULTS / 'selection')
    row = compared(study.plan, study.cells()).set_index('comparison').loc['ecology − single']
    lead = [-100 * x for x in (row.difference, row.high, row.low)]
    assert '{:.1f} points [{:.1f}, {:.1f}] ahead of the population'.format(*lead) in README
    p = row['corrected p']
    assert f"(p = {f'{p:.2f}'.removeprefix('0')} after Holm's correction)" in README and p > .05


def test_the_best_of_single_adapters_and_of_banks_is_the_one_that_the_page_names(results):
    right = {arm: results['worlds'].right(arm, ('id',)).mean() for arm in results['worlds'].cells}
    best = lambda arms: max(arms, key=right.get)
    assert best(['one', 'wide', 'reset', 'context']) == 'reset' and best(['thompson', 'gradient']) == 'thompson'


@pytest.mark.parametrize('after', (4, 16))
def test_a_page_has_what_is_remembered(after):
    study = Study('worlds_memory', RESULTS / 'worlds_memory')
    found = kept(study.plan, study.cells(), after=after).set_index('condition').loc['ecology']
    text = [f'{found[k]:.2f}'.removeprefix('0') for k in ('estimate', 'low', 'high')]
    assert text[0] in PAGES and (after == 16 or f'[{text[1]}, {text[2]}]' in PAGES), text


def test_the_screen_of_society_has_every_run_and_finds_the_archive_where_worlds_return():
    study = Study('society_screen', RESULTS / 'society_screen')
    found = main_effects(study.plan, study.cells()).set_index(['world', 'part'])
    assert len(found) == 2 * 11 and set(found.seeds) == {3}
    shown = {world: {part for part, row in found.loc[world].iterrows() if row.low > 0 or row.high < 0}
             for world in ('recurring', 'static')}
    assert shown['recurring'] == {'archive', 'allocation: sharing', 'board', 'cache', 'latent', 'rater'}
    assert shown['static'] == {'cache', 'hazard', 'rater'}
    helps = {part for part, row in found.iterrows() if row.low > 0}
    assert helps == {('recurring', 'archive'), ('static', 'hazard')}
    # Lives that met fewer of a family are compared on as many.
    for place, own in places(study.plan, study.cells()).items():
        assert len(own.right('run_0', ('id',))) == 3, place


def test_plans_and_libraries_of_society_are_as_the_page_says():
    said = lambda gap: '{:+.1f} [{:+.1f}, {:+.1f}]'.format(*(100 * x for x in gap)).replace('-', '−')
    own = {name: places(study.plan, study.cells()) for name in ('society_allocation', 'society_archive')
           for study in [Study(name, RESULTS / name)]}
    page = (ROOT / 'nbs/experiments/society.ipynb').read_text(encoding='utf-8').replace(' points [', ' [')
    lead = lambda name, world, a, b: next(r for place, r in own[name].items() if world in str(place)).lead(
        a, b, ('id',))
    for world in ('recurring', 'static'):
        for rival in ('auction', 'bandit', 'chance'):
            assert lead('society_allocation', world, 'ecology', rival).low > .35
        assert said(lead('society_allocation', world, 'ecology', 'sharing')) in page
    for world in ('drawn', 'skewed'):
        for rival in ('ecology', 'recent'):
            assert said(lead('society_archive', world, 'archive', rival)) in page
    assert said(lead('society_archive', 'skewed', 'archive', 'seats')) in page
    assert '4.0 [2.2, 5.8]' in page
    assert said(lead('society_archive', 'drawn', 'seats', 'archive')) == '+4.0 [+2.2, +5.8]'


def test_the_archive_is_confirmed_and_hazards_are_not(results):
    "Each survivor of the screen left out, with other seeds; Holm over the two tests"
    kept, hit = results['society_confirmation'], results['society_hazard']
    archive, hazard = kept.lead('archive', 'ecology', ('id',)), hit.lead('hazard', 'ecology', ('id',))
    assert archive.low > 0 >= hazard.low
    assert abs(100 * archive.estimate - 2.9) < .06 and abs(100 * hazard.estimate + .3) < .06
    gaps = [r.gap(a, 'ecology', ('id',))[0].mean(1) for r, a in ((kept, 'archive'), (hit, 'hazard'))]
    p = [sign_flip(gap) for gap in gaps]
    assert 2 * p[0] < .05 and p[1] > .5
    assert abs(100 * kept.lead('archive', 'recent', ('id',)).estimate) < .1     # the library hardly ever had to choose


def test_where_there_are_many_curves_each_has_a_panel():
    study = Study('learning', RESULTS / 'learning')
    spec = draw(study.plan, study.cells())['curves'].to_dict()
    behind, own = spec['spec']['layer']
    assert sorted(spec['facet']['sort']) == sorted(set(curves(study.plan, study.cells()).condition))
    assert {row['other'] for row in spec['datasets'][behind['data']['name']]} == set(spec['facet']['sort'])
    assert 'data' not in own        # it has that of its panel


@pytest.mark.parametrize('world', ['recurring', 'apart'])
@pytest.mark.parametrize('rival', ['alone', 'house', 'large'])
def test_a_page_has_what_islands_and_migrants_are_worth(world, rival):
    study = Study('islands', RESULTS / 'islands')
    own = next(r for place, r in places(study.plan, study.cells()).items() if world in str(place))
    lead = own.lead('ring', rival, ('id',))
    assert on_a_page(points(lead))
    assert lead.low <= 0 if rival == 'alone' else lead.low > 0
