"Tables count what was written, and stakes and the terms of evolution add up."
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hostile import ANSWERS
from synthetic import CELLS, EVERY, records, write_run

from evolora.analysis.tables import (EVOLUTION, age_table, attempt_table, balances, cell_history, cell_table,
                                     evolution_sentence, evolution_table, gate_table, gather, left_because, lineage,
                                     load, markdown_table, organelle_table, stake_table, summary)
from evolora.analysis.run_charts import chart_lineage
from evolora.assimilation.gates import event, judge, turn
from evolora.economy.market import MarketConfig
from evolora.analysis.weights import Beside
from evolora.ecology.price_equation import inheritance
from evolora.ecology.run_folder import TABLES, Run


@pytest.fixture(scope='module')
def folder(tmp_path_factory): return write_run(tmp_path_factory.mktemp('runs') / 'synthetic').folder


@pytest.fixture(scope='module')
def data(folder): return load(folder)


def test_the_summary_pools_rates_and_sums_events(data):
    table = summary(data, window=5)
    first, last = data.episodes[data.episodes['generation'] < 5], data.episodes[data.episodes['generation'] >= 25]
    assert list(table.columns) == ['first 5', 'last 5', 'change']
    for column, part in (('first 5', first), ('last 5', last)):
        assert table.loc['accuracy', column] == pytest.approx(part['success'].mean())
        assert table.loc['ROI', column] == pytest.approx(part['revenue'].sum() / part['cost'].sum())
        assert table.loc['episodes', column] == len(part)
    assert table.loc['deaths', 'last 5'] == data.generations['deaths'].tail(5).sum()
    assert table.loc['believed', 'last 5'] == pytest.approx(data.generations['effective_population'].tail(5).mean())
    assert table.loc['GFLOPs, score'].tolist() == [6., 6., 0.]
    bounds = ['accuracy, low', 'accuracy, high']
    assert table['change'].drop(bounds).equals((table['last 5'] - table['first 5']).drop(bounds))
    assert table.loc[bounds, 'change'].isna().all() and table.loc[bounds].drop(columns='change').notna().all(axis=None)


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
                                    operator='gaussian', rank=1, traits={}, reason=None)])
    assert 'o1' in lineage(load(run.folder)) and chart_lineage(load(run.folder)).to_dict()


def test_a_lineage_may_be_deeper_than_pythons_stack(tmp_path):
    run = write_run(tmp_path / 'run', generations=1, size=1)
    run.append('lineage', [dict(generation=0, event='birth', organelle=f'o{i}', parents=[f'o{i - 1}'],
                                operator='gaussian', rank=1, traits={}, reason=None) for i in range(2, 1500)])
    assert len(lineage(load(run.folder), limit=2000).split('\n')) == 1499


def test_a_run_in_memory_has_the_tables_of_its_folder(data):
    live = gather(records(), name='synthetic')
    for table in TABLES: pd.testing.assert_frame_equal(getattr(live, table), getattr(data, table))
    assert live.folder is None and data.about['seed'] == 0 and repr(live) == repr(data)
    with pytest.raises(ValueError, match='at least one generation'): gather([])


def test_records_of_numbers_only_give_typed_empty_tables(data):
    bare = gather(record.numbers_only() for record in records())
    for table in ('episodes', 'ledger', 'lineage', 'gates', 'evolution'):
        assert len(getattr(bare, table)) == 0 and list(getattr(bare, table)) == list(TABLES[table])
    for found in (balances(bare), gate_table(bare), attempt_table(bare), age_table(bare), evolution_table(bare)):
        assert not len(found)
    assert stake_table(bare)[['held', 'booked']].isna().all(axis=None) and len(stake_table(bare)) == 30
    unknown = ['blind guessing', 'accuracy, low', 'accuracy, high']         # which questions these were is in episodes
    assert summary(bare).drop(unknown).equals(summary(data).drop(unknown)) and summary(bare).loc[unknown[1]].iloc[0] > 0


def test_cells_of_generations_are_those_of_episodes(data):
    table = cell_history(data)
    counts = data.episodes.groupby(['generation', data.episodes['family'] + ':' + data.episodes['depth'].astype(str)])
    assert table[table['episodes'] > 0].set_index(['generation', 'cell'])['accuracy'].sort_index().tolist() == (
        counts['success'].mean().tolist())
    odd = data.generations.assign(cells=[{'math:1': 3}] * 30)
    with pytest.raises(ValueError, match='learning_progress'): cell_history(replace(data, generations=odd))


def test_stakes_are_a_closed_account_and_a_lost_row_is_found(data):
    table = stake_table(data)
    assert np.allclose(table[['held', 'booked']], 1) and (table.drop(columns=['held', 'booked']) >= 0).all(axis=None)
    assert table.loc[0, 'birth'] == pytest.approx(1) and not table.loc[data.generations['deaths'].eq(0), 'death'].any()
    row = data.ledger.query('generation == 7 and reason == "bet"').iloc[0]
    torn = stake_table(replace(data, ledger=data.ledger.drop(index=row.name)))['booked']
    assert np.allclose(torn[:7], 1) and np.allclose(torn[7:], 1 - row['amount'])


def test_the_terms_of_evolution_add_up_census_by_census(data):
    table = evolution_table(data)
    assert table.index.tolist() == [*range(2 * EVERY - 1, 30, EVERY)]
    assert np.allclose(table['change'], table['after'] - table['before'])
    assert np.allclose(table['change'], table[[*EVOLUTION]].sum(axis=1))
    text, did = evolution_sentence(data), table.sum().round(3)
    assert f"up to generation 29, the mean likelihood of a right answer changed by {did['change']:+.3f}" in text
    assert f"selection {did['selection']:+.3f}" in text and f"learning {did['learning']:+.3f}" in text
    children = [c for row in data.evolution['children'] for c in row.values()]
    assert children and text.endswith(str(inheritance(children))) and f'{len(children)} children' in text
    torn = data.evolution.assign(children=[{'o1': {'parent_skill': '<b>'}}, *[None] * (len(table) - 1)])
    assert 'children' not in evolution_sentence(replace(data, evolution=torn))
    assert 'not known' in evolution_sentence(replace(data, evolution=data.evolution[:0]))
    assert '-0.000' not in evolution_sentence(replace(data, evolution=data.evolution.assign(merge=-1e-9)))


def test_deaths_are_of_few_kinds(data):
    deaths = data.lineage[data.lineage['event'] == 'death']
    counts = deaths['reason'].map(left_because).value_counts()
    assert set(counts.index) == {'worth least', 'missed least', 'replaced by a merge'}
    assert counts.sum() == data.generations['deaths'].sum() and left_because(None) == 'for other reasons'


@pytest.mark.parametrize('config, share', [({'market': {'asleep': .2}}, .2), ({}, None), ({'market': 3}, None),
                                           ({'market': {'asleep': '.2'}}, None), ({'market': {'asleep': -1.}}, None)])
def test_who_is_dormant_is_known_of_every_folder(tmp_path, config, share):
    run = Run.create(tmp_path / 'run', config=config, host={'id': 'x'}, seed=0, version='0')
    for record in records(generations=1): run.record(record)
    assert load(run.folder).asleep == (MarketConfig().asleep if share is None else share)


def test_ages_count_generations_since_birth(data):
    table, lives = age_table(data), organelle_table(data)
    assert table['alive'].tolist() == data.generations['alive'].tolist()
    for generation in (0, 11, 29):
        here = lives[(lives['born'] <= generation) & (lives['died'].fillna(99) > generation)]
        ages = generation - here['born']
        assert table.loc[generation, ['youngest', 'median', 'oldest']].tolist() == [
            ages.min(), ages.median(), ages.max()]


def test_gates_are_counted_in_the_order_they_are_met(data):
    table = gate_table(data)
    assert table['asked'].sum() == len(data.gates) and table['ended'].sum() == data.gates['final'].sum()
    assert list(table.index) == ['no_pair', 'low_compute', 'child_unlikely', 'not_shown_equal', 'took_over']
    assert (table['passed'] + table['failed'] == table['asked']).all()
    odd = gate_table(replace(data, gates=data.gates.assign(numbers=[{}] * len(data.gates))))
    assert odd['last'].str.endswith('{}').all()


def test_an_attempt_is_a_tested_child_whoever_took_the_turn():
    first, second, third = records(generations=3)
    numbers = dict(family='math', e=500., needed=256., uplift=-.02, pairs=80)
    steps = [judge('no_pair', 'o1', 0, pairs=2, least=1),
             judge('child_unlikely', 'o1', 0, partners=['o2', 'o4'], lag=.03, most=.1),
             judge('not_shown_equal', 'o1', 0, partners=['o2', 'o4'], **numbers),
             event('took_over', 'o1', 0, partners=['o2', 'o4'], child='o9', energy_kept=.9, **numbers)]
    poor = [judge('child_unlikely', 'o3', 1, partners=['o4'], lag=.3, most=.1)]
    weak = [judge('not_shown_equal', 'o3', 2, partners=['o4'], **numbers | {'e': 2.})]
    table = attempt_table(gather([replace(record, decisions=turn(made)) for record, made in (
        (first, steps), (second, poor), (third, weak))]))
    assert table['parents'].tolist() == ['o2 + o4', 'o3 + o4']     # a child that was never tested is no attempt
    assert table['outcome'].tolist() == ['took_over', 'not_shown_equal'] and table.loc[0, 'child'] == 'o9'
    assert table.loc[0, ['family', 'uplift', 'pairs', 'e', 'needed']].tolist() == ['math', -.02, 80, 500., 256.]
    assert table.loc[0, 'lag'] == .03
    assert np.isnan(table.loc[1, 'lag']) and table.loc[1, 'e'] == 2.


def test_balances_end_with_the_ledger_and_with_life(data):
    table = balances(data)
    assert table.groupby('generation').size().tolist() == data.generations['alive'].tolist()
    assert np.allclose(table.groupby('generation')['stakes'].sum(), 1)


def test_one_generation_and_no_episodes_have_a_summary(tmp_path):
    folder = write_run(tmp_path / 'one', generations=1).folder
    assert summary(load(folder)).shape == (16, 3)


def test_a_run_without_a_generation_is_refused(tmp_path):
    Run.create(tmp_path / 'run', config={}, host={'id': 'x'}, seed=0, version='0')
    with pytest.raises(ValueError, match='at least one generation'): load(tmp_path / 'run')
    with pytest.raises(ValueError, match='expected a run folder'): load(tmp_path)


def test_tables_escape_and_mark_what_is_missing():
    text = markdown_table(pd.DataFrame({'a|b': ['<b>', None], 'n': [.12345, float('nan')], 'k': [12345., 2.]}))
    assert text.split('\n')[2:] == ['| 0 | &lt;b&gt; | 0.123 | 12345 |', '| 1 | – | – | 2 |'] and r'a\|b' in text


@pytest.mark.parametrize('text', ANSWERS)
def test_a_table_of_a_stranger_is_inert_and_short(text):
    answers = pd.DataFrame({'text': [text, 'x'], text: [1, 2]}, index=[text, 'o1'])
    both = Beside(text, text, answers, answers)
    shown = [markdown_table(answers), markdown_table(answers, limit=50), both._repr_markdown_()]
    for page in shown: assert all(c.isprintable() or c == '\n' for c in page) and '<' not in page
    assert len(shown[0]) < 16_000 and len(shown[1]) < 2500 and len(shown[2]) < 30_000
    if len(text) > 500: assert f'{text[:500]} … ({len(text):,} characters)' in shown[0]


def test_feedback_on_hostile_answers_is_inert_and_short(tmp_path):
    run = write_run(tmp_path / 'run', generations=2)
    run.append('feedback', [dict(generation=1, organelle='o1', prompt='p', answer='a' * 900_000, up=True, reward=1.)])
    assert len(markdown_table(load(run.folder).feedback)) < 2000
