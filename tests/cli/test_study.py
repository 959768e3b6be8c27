"""`evolora study`: one file, one command, one line for what is wrong."""
import json

import pytest

from evolora.cli.app import main
from evolora.cli.study import shard_of
from evolora.experiments import study as module
from experiments.test_study import TEXT, made


@pytest.fixture
def file(tmp_path, monkeypatch):
    monkeypatch.setattr(module, 'make_cell', made)
    monkeypatch.setattr(module, 'hashes_of_cell', lambda *_: {'code': 'x', 'host': 'y'})
    monkeypatch.setattr(module, 'host_of', lambda plan, cell: None)
    monkeypatch.delenv('RAY_ADDRESS', raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'plan.yaml').write_text(TEXT)
    return 'plan.yaml'


def study(*arguments):
    "The exit code of a command"
    with pytest.raises(SystemExit) as end: main(['study', *map(str, arguments)])
    return end.value.code


def test_a_study_ends_in_its_report(file, capsys, tmp_path):
    assert study(file) == 0
    out = capsys.readouterr()
    assert 'report: runs/study-tried/report/README.md' in out.out and '15/15' in out.err
    assert 'Warning, fewer than 5 seeds: an interval marked 95% from 3 seeds' in out.out
    assert 'without its' in out.out and 'corrected p' in out.out
    assert (tmp_path / 'runs/study-tried/report/README.md').exists()


def test_shards_and_a_collection(file, capsys, tmp_path):
    assert study(file, '--shard', '1/2') == 0 and 'of other parts are not there' in capsys.readouterr().err
    assert study(file, '--shard', '2/2') == 0 and study(file, '--collect') == 0
    folder = tmp_path / 'runs/study-tried'
    assert len((folder / 'cells.jsonl').read_text().splitlines()) == 15 and not list((folder / 'cells').iterdir())


def test_a_dry_run_leaves_nothing(file, capsys, tmp_path):
    assert study(file, '--dry-run') == 0
    assert '15 cells, 180 GFLOPs' in capsys.readouterr().out and not (tmp_path / 'runs').exists()


@pytest.mark.parametrize('name, cells, trials', [('worlds', 120, 8), ('worlds_rivals', 80, 8)])
def test_conditions_of_another_preset_are_announced(capsys, tmp_path, name, cells, trials):
    assert study(name, '--dry-run', '--out', tmp_path / 'there') == 0
    out = capsys.readouterr().out
    assert f'{cells} cells' in out and 'one adapter' in out and f'{trials} at 400 GFLOPs' in out


def test_a_failed_cell_is_exit_code_1(file, capsys, monkeypatch):
    def broken(plan, cell, *rest, **how):
        if cell.seed == 3: raise RuntimeError('no')
        return made(plan, cell, *rest, **how)
    monkeypatch.setattr(module, 'make_cell', broken)
    assert study(file) == 1
    assert 'RuntimeError: no' in capsys.readouterr().err


@pytest.mark.parametrize('arguments, says', [
    (['nowhere.yaml'], 'cannot be read'), (['plan.yaml', '--shard', '3/2'], 'like 1/8'),
    (['plan.yaml', '--collect'], 'is not there'), (['plan.yaml', '--collect', '--dry-run'], 'alone'),
    (['plan.yaml', '--jobs', '0'], 'jobs'), (['.'], 'expected a file, got a folder')])
def test_what_is_wrong_is_one_line_and_exit_code_2(file, capsys, tmp_path, arguments, says):
    assert study(*arguments) == 2
    err = capsys.readouterr().err
    assert says in err and len(err.strip().splitlines()) == 1 and not (tmp_path / 'runs').exists()


def test_an_address_where_nobody_is_is_one_line(file, capsys, tmp_path):
    assert study(file, '--ray', '127.0.0.1:9') == 2
    assert 'Ray' in (err := capsys.readouterr().err) and len(err.strip().splitlines()) == 1
    assert not (tmp_path / 'runs').exists()


@pytest.mark.parametrize('text', ['', '/', '1', '0/3', '4/3', 'a/b', '1/2/3', '-1/2', '1.0/2', '١/٢',
                                  '1/99999999999999'])
def test_a_shard_is_a_part_of_a_number(text):
    assert shard_of('2/3') == (2, 3)
    with pytest.raises(ValueError, match='like 1/8'): shard_of(text)
