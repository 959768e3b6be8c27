"Charts of a search name what they show, match the tables, and cope with one row, a thousand, or nothing valid."
import numpy as np
import pandas as pd
import pytest
from searches import SIZES, findings, hostile, rows

from evolora.attention.report.search_charts import (chart_ablation, chart_ensemble, chart_fits, chart_history,
                                                    chart_horizons, chart_lineage, chart_map, chart_pareto,
                                                    chart_scores, fooled, front)
from evolora.attention.report.records import Findings, Measured, candidates, read_part
from evolora.attention.scoring.scaling import fit, horizon_correlation
from evolora.analysis.theme import lacks, png_of

OF_TABLES = {'history': chart_history, 'lineage': chart_lineage, 'pareto': chart_pareto, 'map': chart_map,
             'horizons': chart_horizons}


@pytest.fixture(scope='module')
def history(): return rows()


@pytest.fixture(scope='module')
def table(history): return candidates(history)


@pytest.fixture(scope='module')
def found(history): return read_part(Findings, findings(history), 'findings')


def charts(history, found):
    "Every picture of a search"
    table = candidates(history)
    first = read_part(Measured, history[0]['measured'], 'row 0')
    drawn = {name: draw(table) for name, draw in OF_TABLES.items()} | {'both': chart_history(table, table)}
    if not found:
        return drawn | {'fits': chart_fits({'baseline': first}), 'scores': chart_scores({'0': first}, first)}
    winners = {str(w.index): w for w in found.winners}
    return drawn | {'fits': chart_fits({'baseline': found.baseline} | winners),
                    'ablation': chart_ablation(found.ablation),
                    'scores': chart_scores(winners, found.baseline, found.controls),
                    'ensemble': chart_ensemble(found.ensemble)}


def drawn(chart, column):
    return next(pd.DataFrame(rows) for rows in chart.to_dict()['datasets'].values() if rows and column in rows[0])


@pytest.mark.parametrize('n', [0, 1, pytest.param(3, marks=pytest.mark.slow), 36])
def test_every_chart_has_titles_and_renders(n):
    history = rows(n, fails=.2 if n > 3 else 0)
    for name, chart in charts(history, read_part(Findings, findings(history), 'x') if n > 3 else None).items():
        spec = chart.to_dict()
        assert lacks(spec) == [] and spec['title']['subtitle'], name
        assert png_of(spec, .5)[:8] == b'\x89PNG\r\n\x1a\n', name


def test_a_thousand_candidates_fit():
    history = rows(40, seed=2)
    many = [row | {'index': i} for i, row in enumerate((history[:1] + history[1:] * 25)[:1000])]
    for name, chart in charts(many, None).items():
        spec = chart.to_dict()
        assert len(str(spec)) < 400_000 and lacks(spec) == [], name
    assert 'low' not in [e.get('y', {}).get('field') for layer in chart_history(candidates(many)).to_dict()['layer']
                         if layer['mark'].get('type') == 'rule' for e in [layer['encoding']]]


def test_a_chart_without_valid_rows_states_it(history):
    table = candidates([row | {'status': 'crashed', 'score': None, 'measured': {}, 'cell': []} for row in history])
    for name, draw in OF_TABLES.items(): assert 'nothing to draw' in str(draw(table).to_dict()['title']), name


def test_the_history_draws_every_candidate_once_and_the_best_so_far(table):
    chart = chart_history(table)
    above, below = drawn(chart, 'group'), drawn(chart, 'why')
    assert sorted([*above['index'], *below['index']]) == list(range(37))
    assert set(below['index']) >= set(table.loc[~table['ok'], 'index']) and (below['why'] != '').all()
    steps = drawn(chart, 'best')
    assert steps['index'].tolist() == [*table.loc[table['improved'], 'index'], 36]
    best = table.loc[table['score'].idxmax()]
    assert steps.iloc[-1][['best', 'low', 'high']].tolist() == pytest.approx(
        best[['gain', 'low', 'high']].tolist(), rel=1e-3)


def test_what_is_far_below_stands_at_the_bottom(table):
    far = table.copy()
    far.loc[7, ['gain', 'low', 'high', 'score']] = [-5., -5.1, -4.9, 1e-9]
    below = drawn(chart_history(far), 'why').set_index('index')
    assert 'far below' in below.loc[7, 'why'] and below.loc[7, 'status'] == 'ok'


@pytest.mark.parametrize('n', [8, 9, 12])
def test_of_more_than_eight_operators_the_rarest_are_drawn_as_one(n):
    table = candidates(rows(40, fails=0))
    names = [f'o{i // 2 % (n if i % 2 else 3)}' for i in table['index']]
    chart = chart_history(table.assign(operator=names))
    points = drawn(chart, 'group')
    counts = points['operator'].value_counts()
    named = [name for name in counts.index if (points['group'] == name).any()]
    legend = next(layer['encoding']['color']['scale']['domain'] for layer in chart.to_dict()['layer']
                  if layer['mark']['type'] == 'point')
    assert len(counts) == n and legend == (named if n == 8 else [*named, 'others']) and len(legend) == 8
    assert (points['group'] == points['operator'].where(points['operator'].isin(named), 'others')).all()
    assert counts[named].min() >= max(counts.drop(named), default=0)


def test_the_control_is_drawn_beside(table):
    control = candidates(rows(20, seed=5, control=True))
    spec = chart_history(table, control).to_dict()
    assert 'Control: 21 candidates' in spec['description']
    assert set(drawn(chart_history(table, control), 'who')['who']) == {'search', 'control'}


def test_lines_are_those_of_the_fit(history):
    m = read_part(Measured, history[0]['measured'], 'x')
    line = drawn(chart_fits({'baseline': m}), 'line')
    ends = fit(SIZES, m.table())([SIZES[0], SIZES[-1]])
    assert line['line'].iloc[[0, -1]].tolist() == pytest.approx(ends.tolist(), rel=1e-3)
    assert (line['low'] < line['line']).all() and (line['high'] > line['line']).all()
    two = read_part(Measured, {'parameters': [1e4, 2e4], 'losses': {'1.0': [[3.], [2.]]}}, 'x')
    assert drawn(chart_fits({'two': two}), 'line')['low'].isna().all()      # through two points any line fits


def test_no_candidate_beats_the_front(table):
    known = table[table['ok']]
    numbers = [i for i in known['index'] if not ((known['loss'] <= known.loc[i, 'loss']) & (
        known['flops'] <= known.loc[i, 'flops']) & (known['index'] != i)).any()]
    assert sorted(front(table)) == numbers


def test_what_has_a_far_higher_loss_is_counted_and_not_drawn_beside_the_front(table):
    beaten = next(i for i in table.index[table['ok']] if i and i not in front(table))
    far = table.copy()
    far.loc[beaten, 'loss'] = 50.
    chart = chart_pareto(far)
    shown, known = drawn(chart, 'kind'), far[far['ok']]
    left = known.drop(shown['index'])
    assert beaten in left.index and set(front(far)) <= set(shown['index']) and len(shown) > .8 * len(known)
    assert left['loss'].min() > shown['loss'].max()
    assert f'; {len(left)} with far higher losses are left out' in chart.to_dict()['title']['subtitle']


def test_the_descent_of_the_best_is_marked(table):
    edges = drawn(chart_lineage(table), 'child')
    pairs = {(p, i) for i, parents, ok in zip(table['index'], table['parents'], table['ok']) if ok for p in parents}
    assert set(zip(edges['index'], edges['child'])) == pairs
    assert edges.loc[edges['child'] == table['score'].idxmax(), 'way'].all()


def test_the_map_keeps_the_best_of_each_cell(table):
    cells = drawn(chart_map(table), 'tries').set_index(['i', 'j'])
    for (i, j), row in cells.iterrows():
        there = table[table['ok'] & (table['cell'].map(tuple) == (i, j))]
        assert there['score'].idxmax() == row['index'] and len(there) == row['tries']


def test_horizons_show_the_correlation(table):
    known = table[table['ok']]
    order = horizon_correlation(known['half'], known['loss'])
    title = str(chart_horizons(table).to_dict()['title'])
    assert f'{order.estimate:.2f} (95 %: {order.low:.2f} … {order.high:.2f})' in title


def test_a_control_that_fools_the_slope_is_named(found):
    winners = {str(w.index): w for w in found.winners}
    title = str(chart_scores(winners, found.baseline, found.controls).to_dict()['title'])
    assert fooled(found.controls['handicapped'], found.baseline) and 'fooled by: handicapped' in title
    assert not any(fooled(w, found.baseline) for w in found.winners)


def test_where_there_are_few_points_each_has_its_name(found):
    one = found.winners[0]
    def named(n):       # points that lie on each other share a text
        spec = chart_scores({f'candidate {i}': one for i in range(n)}, found.baseline, found.controls).to_dict()
        text, = (layer for layer in spec['layer'] if layer['mark']['type'] == 'text')
        return [row['name'] for row in spec['datasets'][text['data']['name']]]
    most = 6 - len(found.controls)
    assert most > 1 and named(2) == ['candidate 0, 1', *found.controls]
    assert named(most + 1) == ['candidate 0', *found.controls]


def test_the_forest_plot_separates_helps_from_inert(found):
    assert drawn(chart_ablation(found.ablation), 'came')['came'].tolist() == ['helps', 'unclear', 'inert', 'fails']


def test_hostile_texts_are_cut_and_printable():
    history, found = hostile()
    for name, chart in charts(history, read_part(Findings, found, 'x')).items():
        spec = chart.to_dict()
        for data in spec['datasets'].values():
            for row in data:
                for value in row.values():
                    if isinstance(value, str): assert value.isprintable() and len(value) < 200, name
        assert len(spec['description']) < 600 and spec['description'].isprintable()
        png_of(spec, .5)


def test_numbers_are_finite_in_json(table):
    for draw in OF_TABLES.values():
        for data in draw(table).to_dict()['datasets'].values():
            for row in data:
                assert all(np.isfinite(value) for value in row.values() if isinstance(value, float))
