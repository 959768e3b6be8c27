"""What README, and the page of an earlier experiment, say of the committed studies is what their cells say."""
from pathlib import Path

import pytest

from evolora.ecology.config import load_config
from evolora.experiments.changing_worlds import kept
from evolora.experiments.screening import main_effects
from evolora.experiments.study import Study
from evolora.experiments.study_plan import own_studies
from evolora.experiments.study_report import curves, draw, evolution, places
from evolora.experiments.study_results import Results, crossed
from evolora.experiments.world_map import lead_map
from evolora.tasks.task_sets import task_hashes
from evolora.utils.statistics import sign_flip

ROOT = Path(__file__).parents[2]
README = (ROOT / 'README.md').read_text(encoding='utf-8')
RESULTS = ROOT / 'nbs/experiments/results'
PAGE = (ROOT / 'nbs/experiments/learning.ipynb').read_text(encoding='utf-8').replace('-', '−')   # before the market
COMMITTED = ('islands', 'learning', 'longer', 'merges', 'real', 'rules', 'selection', 'selection_default',
             'selection_longer', 'selection_longest', 'society_allocation', 'society_archive',
             'society_confirmation', 'society_hazard', 'society_real', 'society_screen', 'untuned',
             'worlds', 'worlds_kinds', 'worlds_map', 'worlds_memory', 'worlds_parts',
             'worlds_rivals', 'worlds_seats', 'worlds_static')


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
def test_readme_has_the_interval_that_the_cells_give(results, study, a, b, way):
    own = results[study]
    found = crossed(100 * (own.right(a, ('id',), way) - own.right(b, ('id',), way)), own.labels(('id',)))
    text = '{:+.1f} [{:+.1f}, {:+.1f}]'.format(*found).replace('-', '−')
    said = PAGE if study in ('learning', 'longer', 'merges', 'untuned') else README
    assert text.replace(' [', ' points [') in said or text in said, text


@pytest.mark.parametrize('a, b', [
    ('ecology', 'frozen'), ('random_search', 'frozen'), ('single', 'frozen'), ('rft', 'frozen'), ('sft', 'frozen'),
    ('ecology', 'single'), ('ecology', 'rft'), ('ecology', 'lot'), ('ecology', 'unmerged'), ('spread', 'spread_lot'),
    ('spread', 'spread_stakes'), ('spread', 'spread_halving'), ('spread', 'spread_bandit')])
def test_readme_has_what_selection_is_worth(results, a, b):
    text = '{:+.1f} [{:+.1f}, {:+.1f}]'.format(*(100 * x for x in results['selection'].lead(a, b, ('id',))))
    assert text.replace('-', '−') in README.replace(' points [', ' [')


def test_readme_says_what_stakes_and_evidence_are_worth(results):
    own, cells = results['selection'], Study('selection', RESULTS / 'selection').cells()
    lead = [100 * x for x in own.lead('spread', 'spread_even', ('id',))]
    assert '{:.1f} points [{:.1f}, {:.1f}] ahead of six that answer'.format(*lead) in README
    spent = [x['spent']['evidence'] / x['gflops'] for cell, x in cells.items() if cell.condition == 'ecology']
    assert f"{100 * sum(spent) / len(spent):.0f} % of the ecology's compute goes into evidence" in README
    rank = evolution(Study('selection', RESULTS / 'selection').plan, cells).set_index('condition').loc['spread']
    text = [f'{rank[k]:.2f}'.removeprefix('0') for k in ('ρ shared', 'ρ shared low', 'ρ shared high')]
    assert '{} [{}, {}]'.format(*text) in README
    assert sum('took_over' in x['decisions'] for cell, x in cells.items() if cell.condition == 'ecology') == 9


def test_readme_says_how_far_the_map_reaches():
    study = Study('worlds_map', RESULTS / 'worlds_map')
    for single, text in ((True, 'begun anew {:+.1f} to {:+.1f} points'), (False, 'without births {:+.1f} to {:+.1f}.')):
        lead = 100 * lead_map(study.plan, study.cells(), single=single).lead
        assert text.format(lead.min(), lead.max()).replace('-', '−') in README
    first = lead_map(study.plan, study.cells()).set_index('world').lead
    assert first.idxmax() == 'together_4' and first.idxmin() == 'seats_16'


def in_readme(lead):
    "In points: a difference that README has with its interval"
    found = [100 * x for x in lead]
    assert '{:+.1f} [{:+.1f}, {:+.1f}]'.format(*found).replace('-', '−') in README.replace(' points [', ' [')
    return found[0]


@pytest.mark.parametrize('budget', (1000., 3000.))
@pytest.mark.parametrize('rival', ('one', 'specialists'))
def test_readme_has_what_an_insurance_costs(budget, rival):
    study = Study('worlds_static', RESULTS / 'worlds_static')
    own = places(study.plan, study.cells())['static', 'embedded', budget]
    assert in_readme(own.lead('ecology', rival, ('id',))) > -.5


@pytest.mark.parametrize('budget', (1000., 3000.))
@pytest.mark.parametrize('rival', ('ecology', 'single'))
def test_readme_has_what_the_default_is_worth(budget, rival):
    study = Study('selection_default', RESULTS / 'selection_default')
    own = places(study.plan, study.cells())['default', 'embedded', budget]
    in_readme(own.lead('quiet', rival, ('id',)))
    routed, best = (own.right('quiet', ('id',), way).mean(1) for way in ('routed', 'best'))
    assert (routed - best).max() < .004
    stakes, arm = load_config('stakes'), load_config('ecology').but(study.plan.conditions[2].changes)
    still = {'variation': stakes.variation, 'merging': stakes.merging}      # without births and merges these are idle
    assert arm.but(still) == stakes.but(still) and not stakes.variation.every and not stakes.merging.share


@pytest.mark.parametrize('world, rival', (('apart', 'reset'), ('skewed', 'reset'), ('sessions', 'context')))
def test_readme_has_the_lead_in_worlds_of_three_kinds(world, rival):
    study = Study('worlds_kinds', RESULTS / 'worlds_kinds')
    own = places(study.plan, study.cells())[world, 'habits', 1000.]
    leads = {one: own.lead('ecology', one, ('id',)) for one in ('one', 'reset', 'context')}
    assert min(leads, key=lambda one: leads[one][0]) == rival, 'the best rival is the one that is named'
    in_readme(leads[rival])


def test_readme_names_the_nearest_of_the_further_rivals(results):
    leads = {one: [100 * x for x in results['worlds_rivals'].lead('ecology', one, ('id',))] for one in (
        'gains', 'reptile', 'changepoint', 'bandit_frozen', 'thompson_pooled', 'reset')}
    assert min(leads, key=lambda one: leads[one][0]) == 'changepoint'
    said = '{:+.1f} points [{:+.1f}, {:+.1f}]'.format(*leads['changepoint']).replace('-', '−')
    assert f'the ecology is ahead of it by {said}' in README


@pytest.mark.parametrize('condition', ('frozen', 'random_search', 'ecology', 'single', 'rft', 'sft'))
def test_readme_has_the_share_of_right_answers(results, condition):
    named = {'frozen': 'the frozen host', 'random_search': 'variation and selection', 'ecology': 'the ecology, each',
             'single': 'one adapter, same rule', 'rft': 'one adapter, trained on its own',
             'sft': 'one adapter, supervised'}[condition]
    line = next(line for line in README.splitlines() if line.startswith(f'| {named}'))
    assert f"| {100 * results['selection'].right(condition, ('id',)).mean():.0f} % |" in line


@pytest.mark.parametrize('arm, named', [
    ('told_habit', 'told which world it is: an adapter for each family'),
    ('told', 'told which world it is: an adapter for each |'),
    ('posterior', 'six adapters by the same stakes'), ('ecology', '**the ecology**'),
    ('recent', 'the ecology, but whoever was used least recently'), ('reset', 'one adapter, begun anew'),
    ('wide', 'one adapter of four times the rank'), ('thompson', 'six adapters, by sampled chances'),
    ('gradient', 'six adapters behind a gate'), ('context', 'one adapter that sees'),
    ('bare', 'the host alone'), ('one', 'one adapter |')])
def test_readme_has_what_the_arms_answered_and_spent(results, arm, named):
    line, own = next(line for line in README.splitlines() if line.startswith(f'| {named}')), results['worlds']
    assert line.endswith(f"| {100 * own.right(arm, ('id',)).mean():.0f} % | {own.mean(arm, 'gflops'):.0f} |")


def test_the_best_of_single_adapters_and_of_banks_is_the_one_that_readme_names(results):
    right = {arm: results['worlds'].right(arm, ('id',)).mean() for arm in results['worlds'].cells}
    best = lambda arms: max(arms, key=right.get)
    assert best(['one', 'wide', 'reset', 'context']) == 'reset' and best(['thompson', 'gradient']) == 'thompson'


@pytest.mark.parametrize('after', (4, 16))
def test_readme_has_what_is_remembered(after):
    study = Study('worlds_memory', RESULTS / 'worlds_memory')
    found = kept(study.plan, study.cells(), after=after).set_index('condition').loc['ecology']
    text = [f'{found[k]:.2f}'.removeprefix('0') for k in ('estimate', 'low', 'high')]
    assert text[0] in README and f'[{text[1]}, {text[2]}]' in README, text


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


def test_plans_and_libraries_of_society_are_as_the_page_and_readme_say():
    points = lambda gap: '{:+.1f} [{:+.1f}, {:+.1f}]'.format(*(100 * x for x in gap)).replace('-', '−')
    own = {name: places(study.plan, study.cells()) for name in ('society_allocation', 'society_archive')
           for study in [Study(name, RESULTS / name)]}
    page, readme = (text.replace(' points [', ' [') for text in (
        (ROOT / 'nbs/experiments/society.ipynb').read_text(encoding='utf-8'), README))
    lead = lambda name, world, a, b: next(r for place, r in own[name].items() if world in str(place)).lead(
        a, b, ('id',))
    for world in ('recurring', 'static'):
        for rival in ('auction', 'bandit', 'chance'):
            assert lead('society_allocation', world, 'ecology', rival).low > .35
        assert points(lead('society_allocation', world, 'ecology', 'sharing')) in page
    for world in ('drawn', 'skewed'):
        for rival in ('ecology', 'recent'):
            assert points(lead('society_archive', world, 'archive', rival)) in page
    assert points(lead('society_archive', 'skewed', 'archive', 'seats')) in page
    assert points(lead('society_archive', 'drawn', 'archive', 'ecology')) in readme
    assert '4.0 [2.2, 5.8]' in readme and '4.0 [2.2, 5.8]' in page
    assert points(lead('society_archive', 'drawn', 'seats', 'archive')) == '+4.0 [+2.2, +5.8]'


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
def test_readme_has_what_islands_and_migrants_are_worth(world, rival):
    study = Study('islands', RESULTS / 'islands')
    own = next(r for place, r in places(study.plan, study.cells()).items() if world in str(place))
    lead = own.lead('ring', rival, ('id',))
    assert '{:+.1f} points [{:+.1f}, {:+.1f}]'.format(*(100 * x for x in lead)).replace('-', '−') in README
    assert lead.low <= 0 if rival == 'alone' else lead.low > 0


def test_readme_says_of_the_same_generations_what_the_page_computes():
    page = (ROOT / 'nbs/experiments/islands.ipynb').read_text(encoding='utf-8')     # its claims are made again by CI
    assert 'recurring*: ring − alone +2.0 points [+0.9, +3.1] in the same' in page
    assert 'apart*: ring − alone +0.0 points [-0.1, +0.2] in the same' in page
    assert '+2.0 points [+0.9, +3.1] and +0.0 [−0.1, +0.2]' in README
