"Tables count what was written, and charts say what they draw: numbers, encodings and titles, no pixels."
import json

import altair as alt
import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest
from synthetic import CELLS, write_run

from evolora.analysis import balances, cell_table, lineage, load, markdown_table, organelle_table, summary
from evolora.charts import (CHARTS, OKABE_ITO, bundle, chart_accuracy, chart_cells, chart_energy, chart_lineage,
                            chart_population, chart_roi, save_chart, setup)
from evolora.runs import Run


@pytest.fixture(scope='module')
def folder(tmp_path_factory): return write_run(tmp_path_factory.mktemp('runs') / 'synthetic').folder


@pytest.fixture(scope='module')
def data(folder): return load(folder)


def drawn(chart):
    "All datasets of a chart, by their columns"
    return [pd.DataFrame(rows) for rows in chart.to_dict()['datasets'].values()]


def walk(spec):
    "All marks of a specification, with what encloses them"
    yield spec
    for key in ('layer', 'vconcat'):
        for part in spec.get(key, []): yield from walk(part)


def test_the_summary_pools_rates_and_sums_events(data):
    table = summary(data, window=5)
    first, last = data.episodes[data.episodes['generation'] < 5], data.episodes[data.episodes['generation'] >= 25]
    assert list(table.columns) == ['first 5', 'last 5', 'change']
    for column, part in (('first 5', first), ('last 5', last)):
        assert table.loc['accuracy', column] == pytest.approx(part['success'].mean())
        assert table.loc['ROI', column] == pytest.approx(part['revenue'].sum() / part['cost'].sum())
        assert table.loc['episodes', column] == len(part)
    assert table.loc['deaths', 'last 5'] == data.generations['deaths'].tail(5).sum()
    assert table['change'].equals(table['last 5'] - table['first 5'])


def test_cells_and_organelles_account_for_every_episode(data):
    cells, organelles = cell_table(data), organelle_table(data)
    assert list(cells.index) == sorted(CELLS)
    assert cells['episodes'].sum() == organelles['episodes'].sum() == len(data.episodes)
    assert ((cells['low'] <= cells['accuracy']) & (cells['accuracy'] <= cells['high'])).all()
    assert organelles['died'].isna().sum() == data.generations['alive'].iloc[-1]
    one = organelles[organelles['operator'] == 'crossover'].iloc[0]
    assert len(one['parents'].split(' + ')) == 2
    assert organelles.loc['o1', 'accuracy'] == data.episodes.query('organelle == "o1"')['success'].mean()


def test_the_tree_has_everybody_once_and_children_below_their_parent(data):
    table, lines = organelle_table(data), lineage(data, limit=1000).split('\n')
    names = [line.split('**')[1] for line in lines]
    assert sorted(names) == sorted(table.index)
    depth = {name: len(line) - len(line.lstrip()) for name, line in zip(names, lines)}
    for name, parents in table['parents'].items():
        if not parents: continue
        first = parents.split(' + ')[0]
        assert depth[name] == depth[first] + 2 and names.index(name) > names.index(first)
    short = lineage(data, limit=10).split('\n')
    assert len(short) <= 11 and short[-1].endswith(f'and {len(table) - len(short) + 1} more')


def test_a_lineage_that_makes_no_sense_ends(tmp_path):
    run = write_run(tmp_path / 'run', generations=2)
    for child, parent in (('x', 'y'), ('y', 'x'), ('z', 'z')):
        run.append('lineage', [dict(generation=1, event='birth', organelle=child, parents=[parent],
                                    operator='mutation', rank=1, traits={}, reason=None)])
    assert 'o1' in lineage(load(run.folder)) and chart_lineage(load(run.folder)).to_dict()


def test_a_lineage_may_be_deeper_than_pythons_stack(tmp_path):
    run = write_run(tmp_path / 'run', generations=1, size=1)
    run.append('lineage', [dict(generation=0, event='birth', organelle=f'o{i}', parents=[f'o{i - 1}'],
                                operator='mutation', rank=1, traits={}, reason=None) for i in range(2, 1500)])
    assert len(lineage(load(run.folder), limit=2000).split('\n')) == 1499


def test_balances_end_with_the_ledger_and_with_life(data):
    table = balances(data)
    assert table.groupby('generation').size().tolist() == data.generations['alive'].tolist()
    assert np.allclose(table.groupby('generation')['energy'].sum(), data.generations['energy'])


@pytest.mark.parametrize('name', CHARTS)
def test_every_chart_speaks(data, name):
    spec = CHARTS[name](data).to_dict()
    assert spec['title']['text'] and spec['title']['subtitle'] and len(spec['description']) > 15
    titles = {axis: [part['encoding'][axis].get('title') for part in walk(spec) if axis in part.get('encoding', {})]
              for axis in 'xy'}
    assert 'generation' in titles['x'] and all(any(titles[axis]) for axis in 'xy')
    colours = {part['mark'].get('color') for part in walk(spec) if isinstance(part.get('mark'), dict)} - {None, 'black'}
    assert {colour for colour in colours if colour not in OKABE_ITO} <= {'#767676', '#999'}  # greys, beside the palette


def test_accuracy_and_roi_draw_rates_with_their_trend(data):
    for chart, column, trend in ((chart_accuracy, 'accuracy', 'trend'), (chart_roi, 'roi', 'roi_trend')):
        table = next(frame for frame in drawn(chart(data)) if trend in frame)
        assert np.allclose(table[column], data.generations[column]) and len(table) == 30
    part = data.episodes[data.episodes['generation'].between(6, 10)]
    table = next(frame for frame in drawn(chart_accuracy(data)) if 'trend' in frame)
    assert table.loc[10, 'trend'] == pytest.approx(part['success'].mean())
    spec = chart_accuracy(data).to_dict()
    assert (spec['layer'][0]['encoding']['y']['field'], spec['layer'][0]['encoding']['y2']['field']) == ('low', 'high')
    assert spec['layer'][0]['encoding']['y']['axis'] == {'format': '%'}


def test_population_draws_deaths_downwards(data):
    moves = next(frame for frame in drawn(chart_population(data)) if 'drawn' in frame)
    assert moves[moves['what'] == 'deaths']['drawn'].sum() == -data.generations['deaths'].sum() < 0
    assert moves[moves['what'] == 'births']['drawn'].sum() == data.generations['births'].sum()


def test_cells_are_ordered_and_coloured_by_the_same_scale_in_every_run(data):
    spec = chart_cells(data).to_dict()
    assert spec['encoding']['y']['sort'] == [f'{family}:{depth}' for family, depth in sorted(CELLS)]
    assert spec['encoding']['color']['scale'] == {'domain': [0, 1], 'scheme': 'cividis'}
    assert drawn(chart_cells(data))[0]['episodes'].sum() == len(data.episodes)


def test_lives_last_from_birth_to_death(data):
    lives = drawn(chart_lineage(data, limit=1000))[0].set_index('organelle')
    table = organelle_table(data)
    lives = lives.loc[table.index]
    assert (lives['end'] - lives['start'] == table['died'].fillna(29).astype(int) - table['born'] + 1).all()
    assert set(lives.loc[table.index[table['died'].isna()], 'fate']) == {'alive'}


def test_a_long_run_is_pooled_until_it_fits(tmp_path):
    data = load(write_run(tmp_path / 'long', generations=700, size=8, tries=1).folder)
    for name, chart in CHARTS.items(): assert max(map(len, drawn(chart(data)))) <= 5000, name
    assert 'one 3 generations' in chart_accuracy(data).to_dict()['title']['subtitle']
    assert next(f for f in drawn(chart_accuracy(data)) if 'trend' in f)['episodes'].sum() == len(data.episodes)


def test_one_generation_and_no_episodes_still_draw(tmp_path, data):
    folder = write_run(tmp_path / 'one', generations=1).folder
    assert summary(load(folder)).shape == (16, 3)
    (folder / 'episodes.jsonl').write_text('')
    (folder / 'ledger.jsonl').write_text('')
    for chart in CHARTS.values(): assert chart(load(folder)).to_dict()


def test_a_run_without_a_generation_is_refused(tmp_path):
    Run.create(tmp_path / 'run', config={}, host={'id': 'x'}, seed=0, version='0')
    with pytest.raises(ValueError, match='at least one generation'): load(tmp_path / 'run')
    with pytest.raises(ValueError, match='expected a run folder'): load(tmp_path)


def test_tables_escape_and_mark_what_is_missing():
    text = markdown_table(pd.DataFrame({'a|b': ['<b>', None], 'n': [.12345, float('nan')], 'k': [12345., 2.]}))
    assert text.split('\n')[2:] == ['| 0 | &lt;b&gt; | 0.123 | 12345 |', '| 1 | – | – | 2 |'] and r'a\|b' in text


def test_charts_are_saved_as_png_or_svg(tmp_path, data):
    chart = chart_population(data)
    assert save_chart(chart, tmp_path / 'new' / 'x.svg').read_text().startswith('<svg')
    assert alt.theme.active == 'default'        # saving lends the theme only for a moment
    with pytest.raises(ValueError, match='.png or .svg'): save_chart(chart, tmp_path / 'x.gif')


def test_jupyterlab_gets_version_5_and_a_picture(data):
    before, theme = alt.renderers.active, alt.theme.active
    try:
        setup(scale=.5)
        bundled, metadata = chart_energy(data)._repr_mimebundle_()
    finally:
        alt.renderers.enable(before)
        alt.theme.enable(theme)
    spec = bundled['application/vnd.vegalite.v5+json']
    assert spec['$schema'].endswith('v5.json') and spec['config']['range']['category'] == OKABE_ITO
    assert bundled['image/png'][:4] == b'\x89PNG' and bundled['text/plain'].startswith('Total energy')
    assert list(metadata) == ['application/vnd.vegalite.v5+json'] and json.dumps(spec)
    assert 'image/png' not in bundle(spec)[0]
