"`evolora runs` fits a terminal, steers none, and asks before it removes."
import json
import sys
from functools import partial

import pytest
from synthetic import write_run

from evolora.utils.files import locked, note_aim


@pytest.fixture
def run(cli): return partial(cli, 'runs')


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.setenv('COLUMNS', '80')
    for name, generations in {'a': 2, 'b': 6, 'c': 4}.items():
        write_run(tmp_path / name, generations=generations, size=4)
    with locked(tmp_path / 'b'): note_aim(tmp_path / 'b', 6)
    with locked(tmp_path / 'c'): note_aim(tmp_path / 'c', 40)
    return tmp_path


def test_a_table_of_eighty_columns(run, place):
    code, out, error = run(place)
    assert code == 0 and error == '' and max(map(len, out.splitlines())) <= 80
    lines = {line.split('│')[1].strip(): line for line in out.splitlines() if line.startswith('│')}
    assert list(lines) == ['a', 'b', 'c'] and '4/40' in lines['c'] and 'stopped' in lines['c'] and 'done' in lines['b']
    assert 'sampled answers' in out and 'no score' in out


def test_rows_are_filtered_and_sorted(run, place):
    names = lambda *how: [r['name'] for r in json.loads(run(place, '--json', *how)[1])['rows']]
    assert names('--sort', 'generations') == ['b', 'c', 'a'] and names() == ['a', 'b', 'c']
    assert names('--state', 'done') == ['b'] and names('--host', 'SYNTH') == ['a', 'b', 'c'] == names('--sort', 'seed')
    assert names('--host', '.*') == names('--preset', 'worlds') == []
    assert 'none of 3 runs' in run(place, '--preset', 'worlds')[1]
    (place / 'empty').mkdir()
    assert 'no runs in' in run(place / 'empty')[1]


def test_no_name_steers_the_terminal(run, place):
    (place / 'x\x1b]0;y\x07\n[bold]z').mkdir()
    (place / 'x\x1b]0;y\x07\n[bold]z' / 'run.json').write_text('"\\u001b[2J"')
    code, out, _ = run(place)
    assert code == 0 and '\x1b' not in out and '\x07' not in out and '[bold]z' in out and 'damaged' in out


@pytest.mark.parametrize('how, says', [
    (['--state', 'dead'], '--state expected running'), (['--sort', 'age'], '--sort expected'),
    (['--json', '--remove', 'a'], 'got both'), (['--remove', 'q', '--yes'], "known: 'a', 'b', 'c'"),
    (['--remove', '../x', '--yes'], 'expected one of the runs'), (['--remove', 'a'], 'expected --yes'),
    (['--state', 'done', '--remove', 'a', '--yes'], "known: 'b'")])
def test_what_does_not_fit_is_one_line(run, place, how, says):
    code, out, error = run(place, *how)
    assert code == 2 and error.count('\n') == 1 and says in error and out == ''
    assert all((place / name / 'run.json').exists() for name in 'abc')


def test_a_folder_that_is_not_there_is_one_line(run, tmp_path):
    code, _, error = run(tmp_path / 'nowhere')
    assert code == 2 and error.count('\n') == 1 and 'which is none' in error


def test_patterns_remove_what_is_listed_after_all_were_checked(run, place):
    with locked(place / 'c'):
        code, _, error = run(place, '--remove', '*', '--yes')
        assert code == 2 and 'is at work' in error and (place / 'a').exists()
    code, out, _ = run(place, '--state', 'stopped', '--remove', '*', '--yes')
    assert code == 0 and out.startswith('removed: 2 runs') and [p.name for p in place.iterdir()] == ['b']
    assert run(place / 'b', '--remove', 'b', '--yes')[0] == 0 and not (place / 'b').exists()


@pytest.mark.parametrize('answer, left', [('n\n', True), ('y\n', False)])
def test_a_person_is_asked(run, place, monkeypatch, answer, left):
    monkeypatch.setattr('typer.confirm', lambda question: print(question) or answer == 'y\n')
    monkeypatch.setattr(sys.stdin, 'isatty', lambda: True, raising=False)
    code, out, error = run(place, '--remove', 'a')
    assert code == 0 and 'To be removed' in out and 'Remove 1 run, ' in out and (place / 'a').exists() == left
    assert ('nothing was removed' in error) == left
