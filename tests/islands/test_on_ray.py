"""Islands on a real Ray cluster of this machine: the same tables, whoever is killed; and what is wrong, in one line."""
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

import pytest

ray = pytest.importorskip('ray')

from evolora.experiments.islands_bench import Killer
from evolora.host.model import load_host
from evolora.islands import on_ray
from evolora.islands.islands import OneAfterTheOther, resume_islands
from evolora.islands.islands_folder import status_of
from evolora.islands.on_ray import OnRay
from evolora.islands.plan import IslandsConfig

from .test_islands import CONFIG, events, many, written


@pytest.fixture(scope='module')
def host(): return load_host('embedded', device='cpu')


@pytest.fixture(scope='module')
def cluster():
    "This machine alone, with room for two"
    os.environ['RAY_USAGE_STATS_ENABLED'] = '0'
    ray.shutdown()              # of tests before, in the same process
    ray.init(address='local', num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level='ERROR')
    yield
    ray.shutdown()


@pytest.mark.parametrize('workers, kills', [(1, 0), (2, 3)])
def test_the_tables_are_those_of_one_process(host, cluster, tmp_path, workers, kills):
    plan = IslandsConfig(islands=3, every=2)
    many(tmp_path / 'here', host, CONFIG, plan, crew=OneAfterTheOther).run(6)
    there = many(tmp_path / 'there', host, CONFIG, plan, crew=OnRay, address='local', workers=workers)
    killer = Killer(kills, 9)
    there.run(6, on_report=lambda _, report: report and killer())
    assert written(tmp_path / 'here', 3) == written(tmp_path / 'there', 3)
    assert killer.killed == kills and bool(kills) == bool(sum(there.crew.restarts.values())) and there.audit().balanced


def test_without_waiting_whoever_is_killed_nothing_is_lost(host, cluster, tmp_path):
    plan = IslandsConfig(islands=3, every=1, topology='full', waits=False)
    found, killer = many(tmp_path / 'all', host, CONFIG, plan, crew=OnRay, address='local'), Killer(3, 15)
    table = found.run(5, on_report=lambda _, report: report and killer())
    sent, came = events(tmp_path / 'all', 3)
    assert found.audit().balanced and table.generation.tolist() == [5] * 3 and killer.killed == 3
    assert len({*sent}) == len(sent) and len({*came}) == len(came) and {*came} <= {*sent}


def test_a_folder_that_a_machine_does_not_see_is_refused(host, cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(on_ray, '_reads', lambda path: '')          # as on a machine with another disk
    found = many(tmp_path / 'one', host, CONFIG, IslandsConfig(islands=2, every=2), crew=OnRay, address='local')
    with pytest.raises(ValueError, match='a folder that all machines share') as error: found.run(2)
    assert '\n' not in str(error.value) and not [*(tmp_path / 'one').glob('.seen-*')]


def test_an_island_that_dies_again_and_again_ends_the_run_by_name(host, cluster, tmp_path, monkeypatch):
    monkeypatch.setattr(on_ray, '_TRIES', 2)
    monkeypatch.setattr(on_ray, '_Actor', type('Dies', (), {'__init__': lambda self, *args: None,
                                                            'live': lambda self, *what: os._exit(1)}))
    found = many(tmp_path / 'one', host, CONFIG, IslandsConfig(islands=2, every=2), crew=OnRay, address='local')
    with pytest.raises(ValueError, match=r'island \d: expected a report, got a process that died 2 times'): found.run(2)


def test_an_error_of_an_island_comes_back_in_one_line(host, cluster, tmp_path):
    found = many(tmp_path / 'one', host, CONFIG, IslandsConfig(islands=2, every=2), crew=OnRay, address='local')
    (tmp_path / 'one/island-0001').mkdir()
    (tmp_path / 'one/island-0001/run.json').write_text('{')
    with pytest.raises(ValueError, match='island 1: .*run.json'): found.run(2)


def test_more_islands_than_cores_share_processes(host, cluster, tmp_path):
    said = []
    found = many(tmp_path / 'five', host, CONFIG, IslandsConfig(islands=5, every=1), crew=OnRay, address='local',
                 log=said.append)
    found.run(1)
    assert said == ['5 islands share 2 processes'] and len(found.reports) == 5


# --- as a person starts it

BIN = Path(sys.executable).parent


def started(*words):
    return subprocess.Popen([BIN / 'evolora', 'islands', *map(str, words)], stdout=subprocess.PIPE, text=True,
                            stderr=subprocess.PIPE, env=os.environ | {'OMP_NUM_THREADS': '1'})


def test_a_dead_address_is_one_line(tmp_path):
    process = started('--n', 2, '--config', 'debug', '--out', tmp_path / 'x', '--ray', '127.0.0.1:9')
    out, err = process.communicate(timeout=300)
    assert process.returncode == 2 and err.count('\n') == 1 and "a Ray cluster at '127.0.0.1:9'" in err


def free_port():
    with socket.socket() as s:
        s.bind(('127.0.0.1', 0))
        return s.getsockname()[1]


def head(port):
    "A head of a cluster of its own, in a short folder: its sockets have names of at most 107 letters"
    place = tempfile.mkdtemp(prefix='r', dir='/tmp')
    subprocess.run([BIN / 'ray', 'start', '--head', f'--port={port}', '--num-cpus=2', '--include-dashboard=false',
                    f'--temp-dir={place}'], check=True, capture_output=True, timeout=120,
                   env=os.environ | {'RAY_USAGE_STATS_ENABLED': '0'})
    return place


def kill_all(place):
    for pid in subprocess.run(['pgrep', '-f', place], capture_output=True, text=True).stdout.split():
        with suppress(OSError): os.kill(int(pid), signal.SIGKILL)


def test_a_head_that_dies_leaves_one_line_and_a_folder_that_goes_on(host, tmp_path):
    port, folder = free_port(), tmp_path / 'x'
    place = head(port)
    try:
        process = started('--n', 2, '--config', 'debug', '--generations', 200, '--migrate-every', 2, '--out', folder,
                          '--ray', f'127.0.0.1:{port}')
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline and not any(r['generation'] >= 2 for r in status_of(folder)): time.sleep(.5)
    finally: kill_all(place)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 2 and 'the head of the Ray cluster' in err.splitlines()[-1]
    assert not any('Traceback' in line for line in err.splitlines())
    lived = max(r['generation'] for r in status_of(folder)) + 2
    table = resume_islands(folder, host).run(lived - lived % 2)
    assert table.generation.min() >= lived - 1


def test_what_no_machine_has_is_said(host, cluster, tmp_path):
    for how in (dict(cpus=3.), dict(gpus=1.)):
        found = many(tmp_path / f'x{[*how][0]}', host, CONFIG, IslandsConfig(islands=2, every=1), crew=OnRay,
                     address='local', **how)
        with pytest.raises(ValueError, match='got none in this cluster; ask for less'): found.run(1)
