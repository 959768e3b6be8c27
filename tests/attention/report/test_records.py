"The folder of a search is checked: shapes, numbers, sizes; texts of any kind become one line."
import json

import numpy as np
import pytest
from searches import HOSTILE, findings, rows, write_hostile, write_search

from evolora.attention.report.records import (
    GainFound, Measured, candidates, operators, plain, plain_lines, read_part, read_search)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    history = rows()
    return write_search(tmp_path_factory.mktemp('searches') / 'one', history, found=findings(history))


def test_the_table_matches_the_rows(folder):
    record, history = read_search(folder), rows()
    table = record.table
    assert table['index'].tolist() == list(range(37)) and record.best == max(
        (row for row in history if row['status'] == 'ok'), key=lambda row: row['score'])['index']
    assert table['ok'].tolist() == [row['status'] == 'ok' for row in history]
    for row in history:
        line = table.loc[row['index']]
        if row['status'] != 'ok': assert np.isnan(line[['score', 'gain', 'loss', 'flops']].astype(float)).all()
        else:
            assert line['gain'] == row['measured']['gain']['gain']
            assert line['fitness'] == -row['measured']['fit']['slope']
            assert line['loss'] == pytest.approx(np.mean(row['measured']['losses']['1.0']))
    assert (table['best'].diff().dropna() >= 0).all() and table['improved'].sum() == table['best'].nunique()
    assert record.baseline == 'softmax attention' and record.end.startswith('the budget')


def test_operators_add_up(folder):
    record = read_search(folder)
    table, history = operators(record.rows), record.rows
    assert table['proposed'].sum() == 36 + sum(sum(row['dropped'].values()) for row in history)
    assert (table[['refused', 'repeated', 'too close', 'failed', 'evaluated']].sum(axis=1) == table['proposed']).all()
    assert table['improved'].sum() == record.table['improved'].sum() - 1       # the baseline is no proposal
    assert table['failed'].sum() == (~record.table['ok']).sum()
    assert np.allclose((table['proposed'] * table['valid'] * table['new']).fillna(0), table['evaluated'])
    assert np.allclose((table['evaluated'] * table['success']).fillna(0), table['improved'])


def test_shares_of_an_operator_count_what_happened_to_its_proposals():
    history = [row | {'dropped': {}, 'operator': 'edit'} for row in rows(7, fails=0)]
    history[2]['dropped'] = {'edit: repeated': 1, 'edit: too close': 1}
    history[3] |= {'status': 'invalid', 'score': None, 'measured': {}}
    for row, name in zip(history[4:], ('edit', 'edit', 'wish')):
        row |= {'operator': name, 'status': 'refused', 'score': None, 'measured': {}}
    table = operators(history)
    assert table.loc['edit', ['proposed', 'refused', 'failed', 'evaluated']].tolist() == [8, 2, 1, 3]
    assert table.loc['edit', ['valid', 'new']].tolist() == [5 / 8, 3 / 5]
    history[1] |= {'status': 'dropped', 'score': None, 'measured': {}}        # it runs, and is far behind at the gate
    table = operators(history)
    assert table.loc['edit', ['failed', 'left behind', 'evaluated']].tolist() == [1, 1, 2]
    assert table.loc['edit', ['valid', 'new']].tolist() == [5 / 8, 3 / 5]
    assert table.loc['wish', 'valid'] == 0 and table.loc['wish', ['new', 'success']].isna().all()


@pytest.mark.parametrize('change, message', [
    ({'score': 'high'}, 'score of type float'), ({'score': 1e300}, 'less than or equal'),
    ({'parents': [99]}, 'parents'), ({'parents': ['0']}, 'parents'), ({'cell': [.5]}, 'cell'),
    ({'cell': [10**9]}, 'cell'), ({'description': {'entropy': 'much'}}, 'description.entropy'),
    ({'measured': {'gain': {'gain': True}}}, 'gain.gain'),
    ({'measured': {'losses': {'1.0': [[1.], [1., 2.]]}}}, 'no table'), ({'measured': {'flops': [1.] * 99}}, 'flops'),
    ({'measured': {'scores': {'x': 'y'}}}, 'scores.x')])
def test_what_a_search_does_not_write_is_one_line(tmp_path, change, message):
    history = rows(6, fails=0)
    history[3] |= change
    with pytest.raises(ValueError, match=message) as error: read_search(write_search(tmp_path / 'x', history)).table
    assert '\n' not in str(error.value) and len(str(error.value)) < 500


def test_files_that_are_missing_torn_or_too_large(tmp_path, folder):
    with pytest.raises(ValueError, match='has no history.jsonl'): read_search(tmp_path)
    torn = write_search(tmp_path / 'torn', rows(3), end=None)
    with (torn / 'history.jsonl').open('a') as file: file.write('{"index": 4, ')
    assert len(read_search(torn).rows) == 4 and read_search(torn).end is None
    (torn / 'findings.json').write_text('[1]')
    with pytest.raises(ValueError, match='expected a JSON object'): read_search(torn)
    (torn / 'findings.json').unlink()
    with (torn / 'history.jsonl').open('ab') as file: file.truncate(1 << 29)
    with pytest.raises(ValueError, match='at most'): read_search(torn)
    (torn / 'history.jsonl').write_text('')
    with pytest.raises(ValueError, match='no whole row'): read_search(torn)


def test_hostile_texts_are_read_as_text(tmp_path):
    record = read_search(write_hostile(tmp_path / 'x'))
    for text in (*record.table['operator'], *record.table['why'], *operators(record.rows).index, record.end):
        assert text.isprintable() and len(text) <= 301
    for text in HOSTILE: assert plain_lines(text).replace('\n', '').isprintable() and len(plain(text)) <= 61
    plain_lines('\ud800').encode()


def test_missing_is_no_error_and_losses_may_have_gaps():
    gaps = read_part(Measured, json.loads('{"losses": {"1.0": [[1.0, null], [2.0, 3.0]]}, "new": 1}'), 'x')
    assert np.isnan(gaps.loss()) and gaps.loss('0.5') != gaps.loss('0.5') and gaps.table('0.5').shape == (0, 0)
    failed = [row | {'status': 'timeout', 'score': None, 'measured': {}} for row in rows(4)]
    table = candidates(failed)
    assert not table['ok'].any() and not table['improved'].any() and table['best'].isna().all()


@pytest.mark.parametrize('low, verdict', [(.0049, 'unclear'), (.005, 'better'), (None, 'unclear')])
def test_a_record_has_the_verdict_of_the_measurement(low, verdict):
    assert GainFound(gain=.02, low=low, high=.03).verdict == verdict
