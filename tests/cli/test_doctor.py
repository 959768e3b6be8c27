"""A doctor who does not faint: whatever is broken is a line with advice, offline, and nothing is changed."""
import hashlib
import os
import socket
import subprocess
import sys
from dataclasses import replace
from importlib import metadata
from pathlib import Path

import pytest
from huggingface_hub import constants

from evolora.cli import doctor
from evolora.host import names
from evolora.cli.doctor import examine
from evolora.host.model import load_host
from evolora.ecology.cost_forecast import PROFILES

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def empty_home(monkeypatch, tmp_path):
    "A home and a hub cache that are empty"
    for name in ('HOME', 'USERPROFILE'): monkeypatch.setenv(name, str(tmp_path))
    monkeypatch.delenv('EVOLORA_CACHE', raising=False)
    monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(tmp_path / 'cache' / 'hub'))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def found(table=None):
    table = examine() if table is None else table
    assert list(table.columns) == ['what', 'found', 'verdict', 'advice'] and table.what.is_unique
    assert set(table.verdict) <= {'ok', 'note', 'missing'}
    assert not (table.map(lambda text: '\n' in text)).any(axis=None)
    assert ((table.advice != '') == (table.verdict != 'ok')).all(), 'advice where there is something to do'
    return table.set_index('what')


def test_a_healthy_machine(empty_home, monkeypatch):
    def online(*_): raise AssertionError('the doctor went online')
    monkeypatch.setattr(socket.socket, 'connect', online)
    monkeypatch.setattr(socket, 'getaddrinfo', online)
    table = found()
    assert not (table.verdict == 'missing').any()
    assert table.loc['torch', 'found'] == metadata.version('torch')
    assert load_host('embedded').weights_hash() in table.loc['host: embedded', 'found']
    for name, profile in PROFILES.items():
        found_as = 'not cached' if profile.hub else 'not fetched'
        assert (table.loc[f'host: {name}', ['found', 'verdict']] == [found_as, 'note']).all()
    assert list(empty_home.iterdir()) == [], 'something was written'


def test_who_you_are_is_not_shown(empty_home):
    table = examine()
    assert not table.map(lambda text: str(empty_home) in text).any(axis=None)
    assert found(table).loc['folder: hub cache', 'found'].startswith('~/cache')


@pytest.mark.parametrize('name, version, wanted', [
    ('numpy', '1.26.4', 'numpy>=2'), ('peft', None, 'peft>=0.21'), ('transformers', '6.0', 'transformers<6,>=5.20')])
def test_a_library_that_will_not_do(name, version, wanted, monkeypatch):
    real = metadata.version
    def other(asked):
        if asked != name: return real(asked)
        if version is None: raise metadata.PackageNotFoundError(asked)
        return version
    monkeypatch.setattr(metadata, 'version', other)
    row = found().loc[name]
    assert (row.found, row.verdict, row.advice) == (version or 'not installed', 'missing', f"pip install '{wanted}'")


def test_an_extra_is_no_need(monkeypatch):
    real = metadata.version
    def without(name):
        if name in ('hypothesis', 'nbdev'): raise metadata.PackageNotFoundError(name)
        return real(name)
    monkeypatch.setattr(metadata, 'version', without)
    row = found().loc['extra: dev']
    assert (row.found, row.verdict) == ('without nbdev, hypothesis', 'note') and 'evolora[dev]' in row.advice


def test_evolora_that_was_never_installed(monkeypatch):
    def nothing(name): raise metadata.PackageNotFoundError(name)
    monkeypatch.setattr(metadata, 'metadata', nothing)
    table = found()
    assert table.loc['versions', 'verdict'] == 'missing' and table.loc['host: embedded', 'verdict'] == 'ok'


def test_a_damaged_embedded_host(monkeypatch, tmp_path):
    monkeypatch.setitem(names._SHIPPED, 'embedded', tmp_path / 'gone')
    row = found().loc['host: embedded']
    assert row.verdict == 'missing' and 'expected a model folder' in row.found


def test_a_host_that_is_cached(empty_home, monkeypatch):
    profile = PROFILES['qwen3-0.6b']
    folder = empty_home / 'cache' / 'hub' / f"models--{profile.hub.replace('/', '--')}"
    (folder / 'refs').mkdir(parents=True)
    (folder / 'refs' / 'main').write_text('abc')
    (folder / 'snapshots' / 'abc').mkdir(parents=True)
    verdicts = []
    for part in ('config.json', 'tokenizer.json', 'model.safetensors'):
        (folder / 'snapshots' / 'abc' / part).write_text('')
        verdicts.append(tuple(found().loc['host: qwen3-0.6b', ['found', 'verdict']]))
    assert verdicts == [('cached in part', 'note')] * 2 + [('cached', 'ok')]
    assert found().loc['host: gemma-3-270m', 'found'] == 'not cached'


def test_a_host_that_was_fetched_as_a_file(empty_home, monkeypatch):
    from evolora.host import downloads as fetch
    small = replace(fetch.KNOWN['smollm2-135m-q4'], size=5, sha256=hashlib.sha256(b'hello').hexdigest())
    monkeypatch.setitem(fetch.KNOWN, small.name, small)
    small.path.parent.mkdir(parents=True)
    small.path.write_bytes(b'hello')
    row = found().loc[f'host: {small.name}']
    assert row.verdict == 'ok' and small.sha256[:16] in row.found and 'not loaded yet' in row.found
    assert found().loc['folder: evolora cache', 'found'].startswith('~/.cache/evolora')
    small.path.write_bytes(b'jello')
    row = found().loc[f'host: {small.name}']
    assert (row.found, row.verdict, row.advice) == ('another file than it should be', 'note',
                                                    f'evolora host fetch {small.name}')
    assert found().loc['host: smollm2-135m', 'found'] == 'not cached', 'the one is not the other'


def test_offline_is_said(monkeypatch):
    monkeypatch.setenv('HF_HUB_OFFLINE', '1')
    assert tuple(found().loc['hub', ['found', 'verdict']]) == ('offline: HF_HUB_OFFLINE', 'note')


def test_a_folder_that_cannot_be_written_to(empty_home, monkeypatch):
    (empty_home / 'file').write_text('')
    monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(empty_home / 'file' / 'hub'))
    row = found().loc['folder: hub cache']
    assert row.verdict == 'note' and 'HF_HOME' in row.advice


def test_more_threads_than_cores(monkeypatch):
    import torch
    monkeypatch.setattr(torch, 'get_num_threads', lambda: 10**6)
    row = found().loc['threads']
    assert row.verdict == 'note' and 'OMP_NUM_THREADS=1' in row.advice


LIBRARIES = ['torch', 'transformers', 'huggingface_hub', 'packaging', 'jupyter_core']


@pytest.mark.parametrize('libraries', [LIBRARIES, *(pytest.param([x], marks=[pytest.mark.slow][:x != 'torch'])
                                                    for x in LIBRARIES)], ids=' '.join)
def test_without_a_library_there_is_still_a_table(libraries):
    code = (f"import sys; sys.modules |= dict.fromkeys({libraries})\n"
            "from evolora.cli.doctor import examine\nprint(*examine().verdict)")
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True,
                          env=os.environ | {'PYTHONPATH': str(ROOT)})
    assert done.returncode == 0, done.stderr
    verdicts = done.stdout.split()
    assert 'missing' in verdicts and 'ok' in verdicts


@pytest.mark.parametrize('library, parts', [
    ('huggingface_hub', ['folders', 'hub']), ('packaging', ['versions']), ('jupyter_core', ['JupyterLab'])])
def test_what_needs_a_missing_library_is_missing_and_nothing_else(library, parts, monkeypatch):
    for name in list(sys.modules):
        if name.split('.')[0] == library: monkeypatch.setitem(sys.modules, name, None)
    table = found()
    assert all('ModuleNotFoundError' in table.loc[part, 'found'] for part in parts)
    missing = {*table.index[table.verdict == 'missing']} - {'host: embedded'}         # which may need it, too
    assert missing == set(parts)


@pytest.mark.parametrize('error', doctor._BROKEN)
def test_a_part_that_breaks_is_a_finding(error, monkeypatch):
    def broken():
        yield 'first', 'well', 'ok', ''
        raise error('two\nlines')
    monkeypatch.setattr(doctor, '_PARTS', {'second': broken})
    table = found()
    assert table.verdict.tolist() == ['ok', 'missing'] and 'two lines' in table.loc['second', 'found']
