"Tables count what was written; the books balance, and an interval holds what it promises."
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hostile import ANSWERS
from synthetic import CELLS, records, write_run

from evolora.analysis.tables import (age_table, attempt_table, balances, cell_history, cell_table, energy_table,
                                     gate_table, gather, lineage, load, markdown_table, organelle_table, summary,
                                     uplift_interval)
from evolora.analysis.run_charts import chart_lineage
from evolora.assimilation.gates import event, judge, turn
from evolora.analysis.weights import Beside
from evolora.utils.randomness import stream
from evolora.ecology.run_folder import TABLES, Run
from evolora.assimilation.sequential import log_e_value


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
    bounds = ['accuracy, low', 'accuracy, high']
    assert table['change'].drop(bounds).equals((table['last 5'] - table['first 5']).drop(bounds))
    assert table.loc[bounds, 'change'].isna().all() and table.loc[bounds].drop(columns='change').notna().all(None)


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


def test_a_run_in_memory_has_the_tables_of_its_folder(data):
    live = gather(records(), name='synthetic')
    for table in TABLES: pd.testing.assert_frame_equal(getattr(live, table), getattr(data, table))
    assert live.folder is None and data.about['seed'] == 0 and repr(live) == repr(data)
    with pytest.raises(ValueError, match='at least one generation'): gather([])


def test_records_of_numbers_only_give_typed_empty_tables(data):
    bare = gather(record.numbers_only() for record in records())
    for table in ('episodes', 'ledger', 'lineage', 'gates', 'tokens'):
        assert len(getattr(bare, table)) == 0 and list(getattr(bare, table)) == list(TABLES[table])
    for found in (balances(bare), energy_table(bare), gate_table(bare), attempt_table(bare), age_table(bare)):
        assert not found.notna().any().get('balance', False)
    unknown = ['blind guessing', 'accuracy, low', 'accuracy, high']         # which questions these were is in episodes
    assert summary(bare).drop(unknown).equals(summary(data).drop(unknown)) and summary(bare).loc[unknown[1]].iloc[0] > 0


def test_cells_of_generations_are_those_of_episodes(data):
    table = cell_history(data)
    counts = data.episodes.groupby(['generation', data.episodes['family'] + ':' + data.episodes['depth'].astype(str)])
    assert table[table['episodes'] > 0].set_index(['generation', 'cell'])['accuracy'].sort_index().tolist() == (
        counts['success'].mean().tolist())
    odd = data.generations.assign(cells=[{'math:1': 3}] * 30)
    with pytest.raises(ValueError, match='learning_progress'): cell_history(replace(data, generations=odd))


def test_the_ledger_balances_in_every_generation_and_shows_where_it_does_not(data):
    table = energy_table(data)
    assert table['balance'].abs().max() < 1e-9 and table['end'].tolist() == data.generations['energy'].tolist()
    assert table['market: revenue'].sum() == pytest.approx(data.episodes['revenue'].sum())
    row = data.ledger.query('generation == 7 and reason == "cost"').index[0]
    torn = energy_table(replace(data, ledger=data.ledger.drop(index=row)))['balance']
    assert torn[7] == pytest.approx(data.ledger.loc[row, 'amount']) and torn.drop(7).abs().max() < 1e-9
    late = replace(data, generations=data.generations[data.generations['generation'] > 9])
    assert np.isnan(energy_table(late)['begin'][10])       # what there was before is unknown


def test_gifts_between_organelles_change_no_stock(data):
    gift = data.ledger.iloc[:2].assign(account=['o2', 'o1'], organelle=['o1', 'o2'], reason='gift', amount=[-1., 1.])
    table = energy_table(replace(data, ledger=pd.concat([data.ledger, gift])))
    assert table['between'].tolist() == [1.] + [0.] * 29 and table['balance'].abs().max() < 1e-9


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
    assert list(table.index)[:3] == ['cooldown', 'low_power', 'canary_failed']
    assert (table['passed'] + table['failed'] == table['asked']).all()
    odd = gate_table(replace(data, gates=data.gates.assign(numbers=[{}] * len(data.gates))))
    assert odd['last'].str.endswith('{}').all()


def test_an_attempt_ends_with_the_probation_of_its_child():
    first, *_ = records(generations=1)
    how = dict(best='o2', uplift=.1, pairs=40, wins=8, losses=4, e=2., outlook=.5, energy_kept=.9)
    later = how | dict(uplift=.3, pairs=80, wins=30, losses=6, e=500.)
    steps = [judge('low_power', 'o1', 0, partners=['o2'], uplift=.1, level=.02, pairs=96, power=.6, least=.5),
             judge('canary_failed', 'o1', 0, partners=['o2'], kept=1., least=.7),
             judge('uplift_below_threshold', 'o1', 0, partners=['o2'], futility=.05, **how),
             event('trial_created', 'o1', 0, partners=['o2'], child='o9', **how)]
    end = [judge('low_power_dr', 'o9', 0, partners=['o1', 'o2'], rows=9, least=8),
           event('trial_promoted', 'o9', 0, partners=['o1', 'o2'], needed=50., **later)]
    poor = [judge('low_power', 'o3', 0, partners=['o4'], uplift=.1, level=.02, pairs=9, power=.1, least=.5)]
    table = attempt_table(gather([replace(first, decisions=turn(steps) + turn(end) + turn(poor))]))
    assert len(table) == 1      # an organelle that never had a child made no attempt
    assert table.loc[0, ['parents', 'child', 'outcome']].tolist() == ['o1 + o2', 'o9', 'trial_promoted']
    assert table.loc[0, ['uplift', 'sought', 'pairs', 'e', 'needed']].tolist() == [.3, .1, 80, 500., 50.]
    assert table.loc[0, ['low', 'high']].tolist() == list(uplift_interval(30, 6, 80))


def test_the_interval_of_an_uplift_excludes_zero_once_the_test_is_sure():
    for wins, losses in [(n, m) for n in range(40) for m in range(40)]:
        low, high = uplift_interval(wins, losses, 120)
        assert low <= (wins - losses) / 120 <= high
        if log_e_value(wins, losses) > np.log(80): assert low >= 0
        if log_e_value(losses, wins) > np.log(80): assert high <= 0
    assert uplift_interval(0, 0, 0) == (-1, 1)
    for wrong in ((-1, 0, 5), (3, 3, 5)):
        with pytest.raises(ValueError, match='count again'): uplift_interval(*wrong)


@pytest.mark.parametrize('shares', [(.05, .05, .9), (.4, .1, .5), (.5, .5, 0)])
def test_the_interval_of_an_uplift_is_right_at_every_look(shares):
    counts = stream(1, purpose='coverage').multinomial(10, shares, size=(150, 25)).cumsum(1)
    truth, missed = shares[0] - shares[1], 0
    for path in counts:
        bounds = [uplift_interval(won, lost, won + lost + tied) for won, lost, tied in path]
        missed += any(not low <= truth <= high for low, high in bounds)
    assert missed <= .05 * len(counts)


def test_balances_end_with_the_ledger_and_with_life(data):
    table = balances(data)
    assert table.groupby('generation').size().tolist() == data.generations['alive'].tolist()
    assert np.allclose(table.groupby('generation')['energy'].sum(), data.generations['energy'])


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
    run.append('feedback', [dict(generation=1, organelle='o1', prompt='p', answer='a' * 900_000, up=True, reward=1.,
                                 energy=1.)])
    assert len(markdown_table(load(run.folder).feedback)) < 2000
