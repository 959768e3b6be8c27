"Run folders: same rows same bytes, nothing overwritten, damage named, foreign content distrusted."
import json
import os
import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from evolora.utils.files import write_whole
from evolora.ecology.run_folder import TABLES, Run, config_hash, read

SAMPLES = {int: 3, float: .1, bool: True, str: 'o1', list: ['o1'], dict: {'b': 1, 'a': .5}}


def row(table, **changes):
    return {name: SAMPLES[kind] for name, kind in TABLES[table].items()} | changes


def create(folder, **changes):
    usual = {'config': {'founders': 4}, 'host': {'id': 'tiny'}, 'seed': 1, 'version': '0'}
    return Run.create(folder, **usual | changes)


@pytest.fixture
def run(tmp_path): return create(tmp_path / 'new' / 'run')


@pytest.mark.parametrize('table', TABLES)
def test_every_table_comes_back_typed_and_is_one_pandas_call(run, table):
    run.append(table, [row(table), row(table, generation=4)])
    frame = run.table(table)
    assert list(frame.columns) == list(TABLES[table]) and frame['generation'].tolist() == [3, 4]
    assert [frame.iloc[0][name] for name in frame] == [SAMPLES[kind] for kind in TABLES[table].values()]
    pd.testing.assert_frame_equal(frame, pd.read_json(run.path(table), lines=True, dtype=False, precise_float=True))


@pytest.mark.parametrize('table', TABLES)
def test_an_empty_table_has_the_same_columns_and_types(run, table):
    empty = run.table(table)
    assert len(empty) == 0 and list(empty.columns) == list(TABLES[table])
    run.append(table, [row(table)])
    pd.testing.assert_series_equal(empty.dtypes, run.table(table).dtypes)


def test_same_rows_same_bytes(tmp_path):
    runs = [create(tmp_path / name) for name in 'ab']
    runs[0].append('generations', [row('generations'), row('generations', generation=4)])
    for generation in (np.int64(3), np.int32(4)):    # other number types, other orders of keys, other portions
        one = row('generations', generation=generation, accuracy=np.float64(.1),
                  gates={'a': np.float64(.5), 'b': np.int8(1)})
        runs[1].append('generations', [dict(reversed(one.items()))])
    assert (tmp_path / 'a/run.json').read_bytes() == (tmp_path / 'b/run.json').read_bytes()
    assert runs[0].path('generations').read_bytes() == runs[1].path('generations').read_bytes()


@settings(max_examples=60, deadline=None)
@given(number=st.floats(allow_infinity=False), text=st.text(st.characters(exclude_categories=['Cs']), max_size=30))
def test_numbers_and_text_come_back_exactly(tmp_path_factory, number, text):
    run = create(tmp_path_factory.mktemp('exact') / 'run')
    run.append('episodes', [row('episodes', cost=number, answer=text)])
    back = run.table('episodes').iloc[0]
    assert back['answer'] == text and (back['cost'] == number or (np.isnan(back['cost']) and np.isnan(number)))
    json.loads(run.path('episodes').read_bytes(),
               parse_constant=lambda constant: pytest.fail(f'{constant} is not JSON'))


def test_missing_values_are_null_in_the_file_and_missing_in_the_table(run):
    run.append('lineage', [row('lineage', event='death', rank=None, operator=None, traits=None)])
    assert json.loads(run.path('lineage').read_text())['rank'] is None
    assert run.table('lineage')[['rank', 'operator', 'traits']].isna().all(axis=None)


@pytest.mark.parametrize('change, message', [
    ({'balanec': 1.}, 'unknown balanec'), ({'generation': None}, 'generation expected int'),
    ({'generation': True}, 'expected int'), ({'generation': 2 ** 63}, 'smaller number'),
    ({'amount': 'much'}, 'amount expected float'), ({'amount': np.inf}, 'division by zero'),
    ({'amount': 10 ** 400}, 'smaller number'), ({'reason': b'x'}, 'got a bytes'),
    ({'reason': 'x' * 2 ** 20}, 'at most 1048576 bytes'),
])
def test_a_wrong_row_is_refused_and_takes_its_companions_along(run, change, message):
    with pytest.raises(ValueError, match=message): run.append('ledger', [row('ledger'), row('ledger') | change])
    assert not run.path('ledger').exists()


def test_a_missing_column_is_named(run):
    with pytest.raises(ValueError, match='missing balance'):
        run.append('ledger', [{key: value for key, value in row('ledger').items() if key != 'balance'}])


def test_an_unknown_table_is_refused(run):
    for use in (lambda: run.append('episode', []), lambda: run.table('../ledger'), lambda: run.mend('x'),
                lambda: run.path('x')):
        with pytest.raises(ValueError, match='expected a table of a run'): use()


@pytest.mark.parametrize('existing', ['folder', 'file', 'dangling link', 'run'])
def test_what_exists_is_never_touched(tmp_path, existing):
    place = tmp_path / 'here'
    if existing == 'folder': place.mkdir()
    if existing == 'file': place.write_text('mine')
    if existing == 'dangling link': place.symlink_to(tmp_path / 'nowhere')
    if existing == 'run': create(place)
    before = {path: path.read_bytes() for path in tmp_path.rglob('*') if path.is_file()}
    with pytest.raises(ValueError, match='which exists; choose another') as caught: create(place)
    assert '\n' not in str(caught.value)
    assert {path: path.read_bytes() for path in tmp_path.rglob('*') if path.is_file()} == before
    assert not (tmp_path / 'nowhere').exists()


@pytest.mark.parametrize('wrong', [{'config': {'x': float('inf')}}, {'config': {'x': object()}}, {'seed': 1.5},
                                   {'seed': None}, {'host': 'tiny'}, {'host': {}}, {'host': {'id': 5}},
                                   {'version': 1}, {'hashes': {'tasks': 7}}])
def test_a_wrong_beginning_writes_nothing(tmp_path, wrong):
    with pytest.raises(ValueError): create(tmp_path / 'run', **wrong)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_made_is_one_line(tmp_path):
    (tmp_path / 'file').write_text('mine')
    with pytest.raises(ValueError, match='expected a place for a new folder.*choose another'):
        create(tmp_path / 'file' / 'run')


def test_what_was_created_is_what_is_opened(run):
    again = Run.open(run.folder)
    assert (again.config, again.host, again.seed, again.version) == ({'founders': 4}, {'id': 'tiny'}, 1, '0')
    assert again.hashes == {'config': config_hash({'founders': 4})}


@pytest.mark.parametrize('make', [lambda f: None, lambda f: f.mkdir(), lambda f: f.write_text('x')])
def test_what_is_no_run_says_how_to_get_one(tmp_path, make):
    make(tmp_path / 'x')
    wanted = r'expected a run folder \(with run.json\), got .*; make one with `evolora run --out DIR`'
    with pytest.raises(ValueError, match=wanted):
        read(tmp_path / 'x', 'episodes')


@pytest.mark.parametrize('content, message', [
    (b'', 'expected JSON'), (b'[1]', 'got a list'), (b'{}', 'missing format'), (b'\xff', 'expected JSON'),
    (b'[' * 200_000, 'nested too deeply'), (b' ' * (1 << 20) + b'{}', 'at most'),
    (lambda r: r | {'format': r['format'] + 1}, 'another version'),
    (lambda r: r | {'format': r['format'] - 1}, 'another version'), (lambda r: r | {'seed': 'x'}, 'seed expected int'),
    (lambda r: r | {'config': {'founders': 5}}, 'changed after'), (lambda r: r | {'hashes': {'config': 1}}, 'hashes'),
    (lambda r: r | {'host': None}, 'host expected a value'), (lambda r: r | {'more': 1}, 'unknown more'),
])
def test_a_damaged_record_is_one_line(run, content, message):
    path = run.folder / 'run.json'
    if not isinstance(content, bytes): content = json.dumps(content(json.loads(path.read_bytes()))).encode()
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message) as caught: Run.open(run.folder)
    assert 'run.json' in str(caught.value) and '\n' not in str(caught.value)


@pytest.fixture
def three(run):
    run.append('ledger', [row('ledger', generation=g) for g in range(3)])
    return run


def test_a_last_line_cut_anywhere_is_reported_and_the_rest_is_read(three):
    path = three.path('ledger')
    whole = path.read_bytes()
    start = whole.rstrip(b'\n').rfind(b'\n') + 1
    for cut in (1, 10, len(whole) - start - 2):
        path.write_bytes(whole[:start + cut])
        with pytest.warns(UserWarning, match=rf'ledger.jsonl line 3 is torn, {cut} bytes were skipped'):
            assert three.table('ledger')['generation'].tolist() == [0, 1]


def test_a_whole_last_line_without_its_end_is_a_row(three):
    path = three.path('ledger')
    whole = path.read_bytes()
    path.write_bytes(whole[:-1])
    assert len(three.table('ledger')) == 3
    three.append('ledger', [row('ledger')])
    assert path.read_bytes()[:len(whole)] == whole and len(three.table('ledger')) == 4


@pytest.mark.parametrize('stump', [b'{"gener', b'\0' * 40, b'{"generation": 3\n', b'\xf0\x9f'])
def test_nothing_is_written_onto_a_stump_until_it_is_mended(three, stump):
    path = three.path('ledger')
    whole = path.read_bytes()
    path.write_bytes(whole + stump)
    with pytest.raises(ValueError, match='`mend` the table first'): three.append('ledger', [row('ledger')])
    assert path.read_bytes() == whole + stump
    assert three.mend('ledger') == len(stump) and path.read_bytes() == whole and three.mend('ledger') == 0


@pytest.mark.parametrize('damage, message', [
    (lambda line: line[:-5], 'expected one JSON object'),
    (lambda line: b'', 'expected one JSON object'),
    (lambda line: b'7', 'got a int'),
    (lambda line: line.replace(b'0.1', b'NaN', 1), 'NaN is not JSON'),
    (lambda line: line.replace(b'0.1', b'1e999', 1), 'smaller number'),
    (lambda line: line.replace(b'0.1', b'"0.1"', 1), 'amount expected float'),
    (lambda line: line.replace(b': 1,', b': null,', 1), 'generation expected int'),
    (lambda line: line.replace(b'"reason"', b'"raeson"'), 'missing reason; unknown raeson'),
    (lambda line: b'[' * 100_000, 'nested too deeply'),
    (lambda line: line.replace(b': 1,', b': ' + b'9' * 30 + b',', 1), 'smaller number'),
    (lambda line: b' ' * (1 << 20) + line, 'at most 1,048,576 bytes'),
])
def test_damage_further_up_names_file_and_line(three, damage, message):
    path = three.path('ledger')
    lines = path.read_bytes().split(b'\n')
    lines[1] = damage(lines[1])
    path.write_bytes(b'\n'.join(lines))
    with pytest.raises(ValueError, match=rf'ledger.jsonl,? line 2: .*{message}'): three.table('ledger')


def test_a_sound_table_warns_about_nothing(three):
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        assert len(three.table('ledger')) == 3


def test_what_is_no_file_is_not_opened(run):
    os.mkfifo(run.path('ledger'))
    with pytest.raises(ValueError, match='expected a file of rows'): run.table('ledger')


def test_the_summary_is_a_small_table_of_escaped_text(tmp_path):
    run = create(tmp_path / 'a|b', host={'id': '<script>|x'})
    run.append('ledger', [row('ledger')] * 2)
    text = run._repr_markdown_()
    assert '| ledger | 2 rows |' in text and '<script>' not in text and r'a\|b' in text
    assert len(text.split('\n')) - 2 <= 12 and str(tmp_path) not in text + repr(run)


def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    write_whole(tmp_path / 'x', 'old')
    monkeypatch.setattr(os, 'replace', lambda *_: (_ for _ in ()).throw(OSError('disk')))
    with pytest.raises(OSError): write_whole(tmp_path / 'x', 'new')
    assert [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [('x', 'old')]
