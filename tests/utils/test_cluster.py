"""A cluster is joined in one place, and machines that would give other numbers are refused by name."""
import os
import sys
from types import SimpleNamespace

import pytest

from evolora.utils import cluster


@pytest.mark.parametrize('found', [None, SimpleNamespace(origin=None)])       # nothing, or a folder called ray
def test_without_ray_there_is_one_line(monkeypatch, found):
    monkeypatch.setattr(cluster, 'find_spec', lambda name: found)
    with pytest.raises(ValueError, match='got none; pip install') as error: cluster.join_cluster('10.0.0.1:6379')
    assert '\n' not in str(error.value)


@pytest.mark.parametrize('what, value', [('torch', '1.0'), ('threads', '2'), ('evolora', '9'), ('python', '2.7')])
def test_a_machine_that_differs_is_named_with_the_difference(what, value):
    here = cluster.facts()
    cluster.unlike(here, {'a': dict(here), 'b': dict(here)})
    with pytest.raises(ValueError, match=f'machine b .*{what} {value} where this one has'):
        cluster.unlike(here, {'a': dict(here), 'b': here | {what: value}})


@pytest.mark.parametrize('token, address, early, mode', [
    (True, 'local', False, None), (True, '127.0.0.1:1', False, 'token'), (False, '127.0.0.1:1', False, None),
    (True, '127.0.0.1:1', True, None)])
def test_a_token_is_shown_where_there_is_one(monkeypatch, tmp_path, token, address, early, mode):
    "`ray start` asks for it as soon as the file is there, and a client has to say so before it imports Ray"
    for name in ('RAY_AUTH_MODE', 'RAY_AUTH_TOKEN', 'RAY_AUTH_TOKEN_PATH'): monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv('HOME', str(tmp_path))       # whoever ran a cluster here has a token in the real one
    if token:
        (tmp_path / '.ray').mkdir()
        (tmp_path / '.ray/auth_token').write_text('secret')
    monkeypatch.setattr(cluster, 'find_spec', lambda name: SimpleNamespace(origin='ray/__init__.py'))
    (tmp_path / 'ray.py').write_text('def is_initialized(): return True')
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setitem(sys.modules, 'ray', None)       # so that the one in here is put back afterwards
    del sys.modules['ray']
    if early: import ray  # noqa: F401
    monkeypatch.setenv('RAY_USAGE_STATS_ENABLED', '0')
    before = dict(os.environ)
    try:
        cluster.join_cluster(address)
        assert os.environ.get('RAY_AUTH_MODE') == mode
    finally:
        os.environ.clear()
        os.environ.update(before)


@pytest.mark.parametrize('folder, address, asked', [('/tmp', 'local', None), ('/a/folder' * 9, 'local', '/tmp/ray'),
                                                    ('/a/folder' * 9, 'auto', None)])
def test_a_deep_folder_for_temporary_files_leaves_room_for_the_names_of_sockets(monkeypatch, folder, address, asked):
    told = {}
    monkeypatch.setenv('TMPDIR', folder)
    monkeypatch.delenv('RAY_TMPDIR', raising=False)
    monkeypatch.setenv('RAY_AUTH_MODE', '')
    monkeypatch.setattr(cluster, 'find_spec', lambda name: SimpleNamespace(origin='ray/__init__.py'))
    monkeypatch.setitem(sys.modules, 'ray', SimpleNamespace(is_initialized=lambda: False,
                                                            init=lambda **how: told.update(how)))
    cluster.join_cluster(address)
    assert told['address'] == address and told.get('_temp_dir') == asked


def test_a_ray_that_does_not_come_up_here_is_one_line(monkeypatch):
    def init(**how): raise Exception('The current node timed out\nduring startup.')     # as Ray 2.60 does
    monkeypatch.setattr(cluster, 'find_spec', lambda name: SimpleNamespace(origin='ray/__init__.py'))
    monkeypatch.setenv('RAY_AUTH_MODE', '')
    monkeypatch.setitem(sys.modules, 'ray', SimpleNamespace(is_initialized=lambda: False, init=init))
    with pytest.raises(ValueError, match='start on this machine, got The current node timed out during startup.; try'):
        cluster.join_cluster('local')
