"Charts state what they draw, draw what the tables say, and fit: numbers, encodings, titles and sizes, no pixels."
import json
from dataclasses import replace

import altair as alt
import numpy as np
import pandas as pd
import pytest
from scipy.stats import t as student
from synthetic import CELLS, lived_again, records

from evolora.analysis.tables import EVOLUTION, age_table, attempt_table, balances, gather, organelle_table
from evolora.analysis.run_charts import (CHARTS, OKABE_ITO, bundle, chart_accuracy, chart_ages, chart_attempts,
                                         chart_beliefs, chart_cells, chart_compute, chart_curriculum, chart_evolution,
                                         chart_gates, chart_kl, chart_lineage, chart_population, chart_roi, chart_turns,
                                         lacks, save_chart, setup)
from evolora.analysis.run_comparison import called
from evolora.ecology.run_folder import TABLES


@pytest.fixture(scope='module')
def data(): return gather(records(), name='synthetic')


@pytest.fixture(scope='module')
def long(): return gather(records(generations=700, size=8, tries=1), name='long')


@pytest.fixture(scope='module')
def endless(): return lived_again(gather(records(generations=200, size=8, tries=1), name='endless'), 50)


def drawn(chart):
    "All datasets of a chart, by their columns"
    return [pd.DataFrame(rows) for rows in chart.to_dict()['datasets'].values()]


def walk(spec):
    "All marks of a specification, with what encloses them"
    yield spec
    for key in ('layer', 'vconcat'):
        for part in spec.get(key, []): yield from walk(part)


@pytest.mark.parametrize('name', CHARTS)
def test_every_chart_has_title_description_and_units(data, name):
    spec = CHARTS[name](data).to_dict()
    assert lacks(spec) == [] and spec['title']['subtitle']
    colours = {part['mark'].get('color') for part in walk(spec) if isinstance(part.get('mark'), dict)} - {None, 'black'}
    greys = {'#767676', '#999', '#333', '#cccccc', 'white'}
    assert {colour for colour in colours if colour not in OKABE_ITO} <= greys


def test_accuracy_and_roi_draw_rates_with_their_trend(data):
    for chart, column, trend in ((chart_accuracy, 'accuracy', 'trend'), (chart_roi, 'roi', 'roi_trend')):
        table = next(frame for frame in drawn(chart(data)) if trend in frame)
        assert np.allclose(table[column], data.generations[column], rtol=1e-3) and len(table) == 30
    part = data.episodes[data.episodes['generation'].between(6, 10)]
    table = next(frame for frame in drawn(chart_accuracy(data)) if 'trend' in frame)
    assert table.loc[10, 'trend'] == pytest.approx(part['success'].mean(), rel=1e-3)
    spec = chart_accuracy(data).to_dict()
    assert (spec['layer'][0]['encoding']['y']['field'], spec['layer'][0]['encoding']['y2']['field']) == ('low', 'high')
    assert spec['layer'][0]['encoding']['y']['axis'] == {'format': '%'}


def test_population_draws_deaths_downwards(data):
    moves = next(frame for frame in drawn(chart_population(data)) if 'drawn' in frame)
    down, up = moves[moves['drawn'] < 0], moves[moves['drawn'] > 0]
    assert down['drawn'].sum() == -data.generations['deaths'].sum()
    assert up['drawn'].sum() == data.generations['births'].sum()
    assert set(down['what']) == {'worth least', 'missed least', 'replaced by a merge'}
    assert set(up['what']) == {'recruit', 'child', 'merge'}
    bare = replace(data, lineage=data.lineage[:0])
    counts = next(frame for frame in drawn(chart_population(bare)) if 'drawn' in frame)
    assert set(counts['what']) == {'births', 'deaths'} and counts['drawn'].sum() == moves['drawn'].sum()


def test_cells_are_ordered_and_coloured_by_the_same_scale_in_every_run(data):
    spec = chart_cells(data).to_dict()
    assert spec['encoding']['y']['scale']['domain'] == [f'{family}:{depth}' for family, depth in sorted(CELLS)]
    assert spec['encoding']['color']['scale'] == {'domain': [0, 1], 'scheme': 'cividis'}
    assert drawn(chart_cells(data))[0]['episodes'].sum() == len(data.episodes)
    with pytest.raises(ValueError, match="got 'speed'"): chart_cells(data, 'speed')


def test_lives_last_from_birth_to_death(data):
    lives = drawn(chart_lineage(data, limit=1000))[0].set_index('organelle')
    table = organelle_table(data)
    lives = lives.loc[table.index]
    assert (lives['end'] - lives['start'] == table['died'].fillna(29).astype(int) - table['born'] + 1).all()
    assert set(lives.loc[table.index[table['died'].isna()], 'fate']) == {'alive'}


def test_several_runs_are_drawn_as_their_mean_with_a_t_interval():
    runs = [gather(records(generations=n, size=6, seed=seed), name='x') for seed, n in enumerate((12, 12, 12, 7))]
    spec = chart_accuracy(runs).to_dict()
    assert spec['title']['text'] == 'Accuracy of 4 runs' and lacks(spec) == [] == lacks(chart_roi(runs).to_dict())
    marks = next(f for f in drawn(chart_accuracy(runs)) if 'mean' in f).set_index('generation')
    assert marks['size'].tolist() == [4] * 7 + [3] * 5
    values = [run.generations['accuracy'][9] for run in runs[:3]]
    low, high = student.interval(.95, 2, np.mean(values), np.std(values, ddof=1) / np.sqrt(3))
    assert marks.loc[9, ['mean', 'low', 'high']].tolist() == pytest.approx([np.mean(values), low, high], rel=1e-3)
    assert chart_accuracy(runs[:1]).to_dict() == chart_accuracy(runs[0]).to_dict()
    with pytest.raises(ValueError, match='got none'): chart_roi([])


def test_who_came_from_elsewhere_is_no_child(data):
    births = data.lineage[(data.lineage['event'] == 'birth') & (data.lineage['reason'] != 'founder')].index
    lineage = data.lineage.copy()
    lineage.loc[births[:4], 'operator'] = ['migrant', 'woken', 'gaussian', 'merge']
    rows = next(rows for rows in chart_population(replace(data, lineage=lineage)).to_dict()['datasets'].values()
                if 'what' in rows[0])
    assert {'migrant', 'woken', 'child', 'merge'} <= {row['what'] for row in rows}


def test_intervals_of_shares_end_where_shares_end():
    runs = [gather(records(generations=6, size=6, tries=1, seed=s), about={'seed': s}) for s in (0, 1, 2)]
    band = next(rows for rows in chart_accuracy(runs).to_dict()['datasets'].values() if 'mean' in rows[0])
    reach = [(row['low'], row['high']) for row in band if row['low'] is not None]
    assert reach and all(0 <= low <= high <= 1 for low, high in reach)
    plain = next(rows for rows in chart_roi(runs).to_dict()['datasets'].values() if 'mean' in rows[0])
    assert all(row['low'] >= 0 for row in plain if row['low'] is not None)


@pytest.mark.parametrize('name', [name for name in CHARTS if name not in ('accuracy', 'roi')])
def test_of_several_runs_each_chart_is_drawn_beside_the_others(data, name):
    runs = [replace(data, name=f'run {i}') for i in 'abc']
    chart = CHARTS[name](runs)
    spec = chart.to_dict()
    assert [one['title']['text'] for one in spec['concat']] == ['1 run a', '2 run b', '3 run c']
    assert not lacks(spec) and spec['description'].count('run ') >= 3
    one = CHARTS[name](data).to_dict()
    shared = spec.get('resolve', {}).get('scale', {}).get('y')
    y = [layer['encoding']['y']['type'] for layer in (one, *one.get('layer', ()))
         if 'field' in layer.get('encoding', {}).get('y', {})]
    if y and 'hconcat' not in one: assert shared == ('shared' if set(y) == {'quantitative'} else 'independent')
    with pytest.raises(ValueError, match='at most 12 runs'): CHARTS[name]([data] * 13)


def test_what_was_done_is_marked_with_words_while_there_is_room(data):
    knobs = pd.DataFrame({'generation': [3, 9], 'knob': ['feedback', 'tau'], 'was': [0., 1.], 'value': [.5, 2.]})
    run = replace(data, knobs=knobs, lineage=data.lineage.iloc[:0])
    for name in ('accuracy', 'roi', 'beliefs', 'evolution'):
        marks = next(rows for rows in CHARTS[name](run).to_dict()['datasets'].values() if 'cause' in rows[0])
        assert [(m['generation'], m['cause'], m['label']) for m in marks] == [
            (3, 'feedback 0 → 0.5', 'feedback 0 → 0.5'), (9, 'tau 1 → 2', 'tau 1 → 2')]
    many = replace(run, knobs=pd.concat([knobs.assign(generation=2 * i, value=i * 1.) for i in range(70)]))
    marks = next(rows for rows in chart_accuracy(many).to_dict()['datasets'].values() if 'cause' in rows[0])
    assert [m['generation'] for m in marks] == [*range(20, 140, 2)] and not any(m['label'] for m in marks)
    assert marks[0]['cause'] == 'feedback 0 → 10; tau 1 → 10'
    merged = next(rows for rows in chart_accuracy(data).to_dict()['datasets'].values() if 'cause' in rows[0])
    born = data.lineage[data.lineage['operator'] == 'merge'].query('event == "birth"')
    assert sum(m['cause'].count('merge into') for m in merged) == len(born)


def test_a_configuration_is_called_by_what_sets_it_apart():
    run = lambda i, config: replace(gather(records(generations=2, size=4)), config=config,
                                    about={'configuration': i, 'seed': 0})
    one, two = run('a', {'market': {'even': .1}, 'founders': 2}), run('b', {'market': {'even': .2}, 'founders': 2})
    assert called([one, two, one]) == ['C1: market.even=0.1', 'C2: market.even=0.2', 'C1: market.even=0.1']
    assert called([one, one]) == ['C1', 'C1'] and called([one, replace(two, config=None)]) == ['C1', 'C2']
    three = run('c', {'market': {'even': .3}, 'founders': 3, 'capacity': 9})
    assert called([one, three])[1].endswith(' …')
    assert '\x1b' not in called([one, run('d', {'market': {'even': '\x1b[2J' * 9}})])[1]


def test_each_configuration_has_a_mean_of_its_own_and_a_seed_counts_once():
    def run(kind, seed):
        return gather(records(generations=8, size=8, tries=2, seed=seed), name=f'{kind}{seed}',
                      about={'configuration': kind, 'seed': seed % 10})
    groups = {'one': [run('one', 0), run('one', 1), run('one', 2)], 'two': [run('two', 10), run('two', 11)]}
    runs = [*groups['one'], *groups['two'], run('one', 0), run('three', 5)]         # one seed again, and one alone
    for chart, rate in ((chart_accuracy, 'accuracy'), (chart_roi, 'roi')):
        spec = chart(runs).to_dict()
        assert spec['title']['text'].endswith('of 7 runs') and lacks(spec) == []
        marks = next(f for f in drawn(chart(runs)) if 'mean' in f)
        assert marks.groupby('configuration', sort=False)['size'].first().to_dict() == {'C1': 3, 'C2': 2}
        for kind, group in zip(('C1', 'C2'), groups.values()):
            mine = np.mean([run.generations[rate] for run in group], axis=0)
            assert np.allclose(marks.loc[marks['configuration'] == kind, 'mean'], mine, rtol=1e-3)
        lines = next(f for f in drawn(chart(runs)) if 'run' in f)
        assert lines.groupby('run').size().tolist() == [8] * 7 and 'C3 no mean' in spec['description']
        colour = spec['layer'][2]['encoding']['color']
        assert colour['scale']['domain'] == ['C1', 'C2', 'C3'] and colour['legend'] is not None
        assert chart(groups['one']).to_dict()['layer'][2]['encoding']['color']['legend'] is None


def test_the_bars_of_evolution_add_up_to_its_line(data):
    terms, line = (next(f for f in drawn(chart_evolution(data)) if c in f) for c in ('through', 'change'))
    assert len(line) == len(data.evolution) and set(terms['through']) == {*EVOLUTION.values()}
    assert np.allclose(terms.groupby('generation')['amount'].sum(), line['change'], rtol=1e-2)
    assert np.allclose(line['change'], data.evolution['after'] - data.evolution['before'], rtol=1e-3)
    assert 'learning +' in chart_evolution(data).to_dict()['description']


def test_pooled_censuses_keep_the_identity(endless):
    terms, line = (next(f for f in drawn(chart_evolution(endless)) if c in f) for c in ('through', 'change'))
    assert len(line) <= 125 and terms['amount'].sum() == pytest.approx(line['change'].sum(), rel=1e-2)
    whole = (endless.evolution['after'] - endless.evolution['before']).sum()
    assert line['change'].sum() == pytest.approx(whole, rel=1e-3)


def test_compute_and_distance_are_those_of_the_rows(data, long):
    parts = drawn(chart_compute(data))[0]
    assert parts.groupby('part', sort=False)['gflops'].mean().tolist() == pytest.approx([20., 40., 6., .2])
    assert np.allclose(next(f for f in drawn(chart_kl(data)) if 'kl' in f)['kl'], data.generations['kl_from_host'])
    part = data.generations.assign(kl_from_host=np.nan)
    assert 'nobody learned' in chart_kl(replace(data, generations=part)).to_dict()['description']
    assert drawn(chart_compute(long))[0]['gflops'].sum() == pytest.approx(66.2 * 117, rel=1e-2)     # 700 in sixes


def test_stakes_are_a_band_of_the_few_that_held_most(data):
    table, held = next(f for f in drawn(chart_beliefs(data)) if 'stakes' in f), balances(data)
    assert np.allclose(table.groupby('generation')['stakes'].sum(), 1, atol=1e-3)
    named = held.groupby('organelle')['stakes'].max().nlargest(8).index
    assert set(table['organelle']) == {*named, 'others'}


def test_the_share_of_turns_at_each_gate_is_one_in_all(data):
    table = drawn(chart_gates(data))[0]
    assert np.allclose(table.groupby('generation')['share'].sum(), 1, atol=2e-3)
    assert table['ended'].sum() == data.gates['final'].sum()


def test_the_latest_turns_are_shown_in_words(data):
    table, ended = drawn(chart_turns(data))[0], data.gates[data.gates['final']].tail(20)
    assert table['name'].tolist() == [f'g{g}: {id}' for g, id in zip(ended['generation'], ended['organelle'])]
    assert table['words'].str.contains('GFLOPs set aside|to choose from|child').all()
    assert (table['ended'] == 'merge').tolist() == ended['gate'].eq('took_over').tolist()
    assert len(drawn(chart_turns(data, limit=3))[0]) == 3


def test_attempts_are_the_table_with_the_evidence_that_was_needed(data):
    table, known = next(f for f in drawn(chart_attempts(data)) if 'came' in f), attempt_table(data)
    assert len(table) == len(known) == 6 and (table['needed'] == 256).all()
    assert np.allclose(table['e'], known['e'], rtol=1e-3)
    assert (table['came'] == 'took over').tolist() == (known['e'] >= known['needed']).tolist()
    assert chart_attempts(data).to_dict()['layer'][1]['encoding']['x']['scale']['type'] == 'log'
    assert len(next(f for f in drawn(chart_attempts(data, limit=2)) if 'came' in f)) == 2


def test_hostile_names_are_text(data):
    evil = '<script>alert(1)</script>'
    gates = data.gates.assign(organelle=evil, numbers=[{}] * len(data.gates), gate=evil)
    spec = chart_turns(replace(data, gates=gates)).to_dict()
    assert lacks(spec) == [] and {part['mark']['type'] for part in spec['layer']} == {'point', 'text'}


def test_ages_are_the_table(data):
    assert np.allclose(drawn(chart_ages(data))[0]['median'], age_table(data)['median'])


@pytest.mark.parametrize('name', CHARTS)
def test_a_long_run_is_pooled_until_it_fits(long, name):
    spec = CHARTS[name](long).to_dict()
    assert lacks(spec) == [] and len(json.dumps(spec)) < 400_000
    assert max(map(len, spec['datasets'].values())) <= 3100


@pytest.mark.parametrize('name', CHARTS)
def test_ten_thousand_generations_fit_as_well(endless, name):
    assert len(endless.generations) == 10_000 and len(organelle_table(endless)) > 3000
    spec = CHARTS[name](endless).to_dict()
    assert lacks(spec) == [] and len(json.dumps(spec)) < 400_000
    assert max(map(len, spec['datasets'].values())) <= 3100


def test_all_curves_of_long_runs_fit_as_well(endless):
    runs = [replace(endless, name=f'run {i}', about={'configuration': f'{i % 3}', 'seed': i}) for i in range(12)]
    for chart in (chart_accuracy, chart_roi):
        spec = chart(runs).to_dict()
        assert len(json.dumps(spec)) < 1_000_000 and max(map(len, spec['datasets'].values())) <= 3100


def test_pooling_loses_nothing(long):
    table = next(f for f in drawn(chart_accuracy(long)) if 'trend' in f)
    assert table['episodes'].sum() == len(long.episodes)
    assert '3 generations' in chart_accuracy(long).to_dict()['title']['subtitle']
    assert (drawn(chart_lineage(long))[0]['fate'] == 'alive').any()
    dead = long.lineage.loc[long.lineage['event'] == 'death', 'organelle']
    early = replace(long, episodes=long.episodes[long.episodes['organelle'].isin(dead)],     # the living are not asked
                    lineage=long.lineage.assign(parents=[[]] * len(long.lineage)))
    spec = chart_lineage(early).to_dict()
    assert (drawn(chart_lineage(early))[0]['fate'] == 'alive').any() and 'the latest 60' in spec['title']['subtitle']


@pytest.mark.parametrize('name', CHARTS)
def test_one_generation_and_missing_tables_still_draw(name):
    one = gather(records(generations=1))
    assert lacks(CHARTS[name](one).to_dict()) == []
    bare = gather(record.numbers_only() for record in records(generations=3))
    assert lacks(CHARTS[name](bare).to_dict()) == []


@pytest.mark.parametrize('name', ['accuracy', 'roi', 'kl', 'compute', 'gates', 'curriculum'])
def test_rates_and_counts_need_the_rows_of_generations_alone(data, name):
    data = replace(data, lineage=data.lineage[data.lineage['operator'] != 'merge'])     # which is marked
    bare = replace(data, **{table: getattr(data, table).iloc[:0] for table in TABLES if table != 'generations'})
    def drawn_without_bounds(run):          # which questions were asked, and so how wide a band is, stands in episodes
        spec = CHARTS[name](run).to_dict()
        sets = [[{k: x for k, x in row.items() if k not in ('low', 'high')} for row in rows]
                for rows in spec.pop('datasets', {}).values()]
        for key in ('data', 'layer', 'vconcat'): spec.pop(key, None)
        return spec, sets
    assert drawn_without_bounds(bare) == drawn_without_bounds(data)


def test_a_lack_is_named():
    frame = pd.DataFrame({'generation': [0], 'kl': [1.]})
    chart = alt.Chart(frame).mark_point().encode(x='generation:Q', y=alt.Y('kl:Q', title='KL'))
    assert lacks(chart.to_dict()) == ['no title', 'no description', 'x (generation) has no title',
                                      'y (kl) has no unit: KL']
    layers = alt.layer(chart, chart.encode(y=alt.Y('kl:Q', title='KL (nats)')))
    assert 'y (kl) has no unit: KL' not in lacks(layers.to_dict())
    assert lacks(alt.hconcat(chart, chart).to_dict()).count('x (generation) has no title') == 2
    hidden = chart.encode(x=alt.X('generation:Q', axis=None))
    assert not any('generation' in line for line in lacks(hidden.to_dict()))


def test_charts_are_saved_as_png_or_svg(tmp_path, data):
    chart = chart_population(data)
    assert save_chart(chart, tmp_path / 'new' / 'x.svg').read_text().startswith('<svg')
    assert alt.theme.active == 'default'        # saving lends the theme only for a moment
    with pytest.raises(ValueError, match='.png or .svg'): save_chart(chart, tmp_path / 'x.gif')


def test_jupyterlab_gets_version_5_and_a_picture(data):
    before, theme = alt.renderers.active, alt.theme.active
    try:
        setup(scale=.5)
        bundled, metadata = chart_roi(data)._repr_mimebundle_()
    finally:
        alt.renderers.enable(before)
        alt.theme.enable(theme)
    spec = bundled['application/vnd.vegalite.v5+json']
    assert spec['$schema'].endswith('v5.json') and spec['config']['range']['category'] == OKABE_ITO
    assert bundled['image/png'][:4] == b'\x89PNG' and bundled['text/plain'].startswith('ROI')
    assert list(metadata) == ['application/vnd.vegalite.v5+json'] and json.dumps(spec)
    assert 'image/png' not in bundle(spec)[0]


def test_the_curriculum_shows_success_and_progress_and_names_them(data):
    panels = chart_curriculum(data).to_dict()['hconcat']
    assert [panel['encoding']['color']['field'] for panel in panels] == ['accuracy', 'learning_progress']
    assert [panel['title']['text'] for panel in panels] == ['accuracy', 'learning progress']
