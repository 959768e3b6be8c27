"""Trackers: each real package gets the same numbers, nothing leaves this machine, and a run does not notice."""
import dataclasses
import importlib.util
import json
import os
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from evolora.analysis import trackers
from evolora.analysis.run_charts import CHARTS
from evolora.analysis.tables import load
from evolora.analysis.theme import save_chart
from evolora.analysis.trackers import ANSWERS, TRACKERS, Tracked, about_run, answers_of, scalars_of, trackers_named
from evolora.ecology.config import load_config
from evolora.ecology.run_folder import TABLES
from evolora.ecology.sessions import begin_session, resume_session
from evolora.host.model import load_host

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = Path(__file__).with_name('tracked_run.py')
# Told by what they set that they run in a test, and then quiet by themselves.
QUIETING = ('CI', 'PYTEST', 'GITHUB_', 'MLFLOW', 'WANDB', 'TRACKIO', 'DO_NOT_TRACK')


def needs(name):
    return pytest.mark.skipif(importlib.util.find_spec(name) is None,
                              reason=f"needs {name}: pip install 'evolora[trackers]'")


LIGHT = [pytest.param(name, marks=needs(name)) for name in ('tensorboard', 'trackio')]
HEAVY = [pytest.param(name, marks=[needs(name), pytest.mark.slow]) for name in ('wandb', 'mlflow')]


@pytest.fixture(scope='module')
def lived(tmp_path_factory):
    "A run that nothing tracked: its folder and records"
    folder, records = tmp_path_factory.mktemp('lived') / 'a-run', []
    with begin_session(folder, load_host('embedded'), load_config('debug')) as session:
        session.live(3, hooks=[records.append], log=None)
        about = about_run(session.run)
    for name in ('roi', 'beliefs'): save_chart(CHARTS[name](load(folder)), folder / 'charts' / f'{name}.png', scale=1.)
    return folder, records, about


@pytest.fixture
def watched():
    "A proxy that is set for all programs, and counts who calls"
    calls, door = [], socket.create_server(('127.0.0.1', 0))
    def wait():
        while True:
            try: calls.append(door.accept()[0].recv(200))
            except OSError: return
    threading.Thread(target=wait, daemon=True).start()
    yield f'http://127.0.0.1:{door.getsockname()[1]}', calls
    door.close()


def tracked_alone(tracker, folder, lived, *turns, proxy=None, **more):
    "What a process of its own has tracked, as its package reads it back"
    given = dict(config=lived[2], records=[
        {f.name: getattr(r, f.name) for f in dataclasses.fields(r) if f.name not in ('decisions', 'merges')}
        for r in lived[1]])
    env = {k: v for k, v in os.environ.items() if not k.startswith(QUIETING) and not k.lower().endswith('_proxy')}
    env |= {name: proxy for name in ('HTTP_PROXY', 'HTTPS_PROXY', 'http_proxy', 'https_proxy')} if proxy else {}
    done = subprocess.run([sys.executable, SCRIPT, tracker, folder, *turns], input=json.dumps(given), text=True,
                          capture_output=True, timeout=300, cwd=folder.parent,
                          env=env | {'PYTHONPATH': str(ROOT), 'HOME': str(folder.parent)} | more)
    assert done.returncode == 0, done.stderr[-3000:]
    *noise, last = done.stdout.splitlines()
    assert not noise, 'a package printed into the output of the run'
    return json.loads(last)


@pytest.mark.parametrize('tracker', LIGHT + HEAVY)
def test_a_package_gets_all_of_it_and_sends_nothing(tracker, lived, tmp_path, watched):
    folder, proxy = tmp_path / 'a-run', watched[0]
    (folder / 'charts').mkdir(parents=True)
    for path in (lived[0] / 'charts').iterdir(): (folder / 'charts' / path.name).write_bytes(path.read_bytes())
    found = tracked_alone(tracker, folder, lived, '0-1', '1-2', proxy=proxy)       # the second begins one too early
    rows = [r.row for r in lived[1]]
    assert found['said'] == []
    known = dict(map(tuple, found['roi']))      # what came twice was the same
    assert known == pytest.approx({row['generation']: row['roi'] for row in rows}, rel=1e-6)
    if tracker == 'tensorboard': assert len(found['roi']) == 3, 'what is lived through again is there once'
    assert found['tables'] >= 3 and answers_of(lived[1][2])['question'].iloc[0][:12] in found['text']
    assert {'roi', 'beliefs'} <= set(found['figures'])
    assert 'learning_rate' in found['configuration']
    if tracker == 'wandb': assert len(found['ids']) == 1, 'a run that is gone on with is the same'
    assert found['reached'] == [] and watched[1] == [], 'somebody outside was called'


def test_a_proxy_notices_a_package_that_calls_home(lived, tmp_path, watched):
    pytest.importorskip('requests')
    subprocess.run([sys.executable, '-c', 'import requests; requests.get("http://home.invalid/", timeout=5)'],
                   env=os.environ | {'http_proxy': watched[0]}, capture_output=True)
    assert watched[1] and b'home.invalid' in watched[1][0]


@pytest.mark.parametrize('tracker', LIGHT[:1])
def test_a_run_is_the_same_bytes_with_and_without(tracker, lived, tmp_path):
    folder = tmp_path / 'a-run'
    with begin_session(folder, load_host('embedded'), load_config('debug')) as session, \
            Tracked([tracker], folder, about_run(session.run)) as tracked:
        session.live(2, hooks=[tracked], log=None)
    with resume_session(folder, load_host('embedded')) as session, Tracked([tracker], folder) as tracked:
        session.live(3, hooks=[tracked], log=None)
    for table in set(TABLES) - {'timings'}:
        assert session.run.path(table).read_bytes() == (lived[0] / session.run.path(table).name).read_bytes(), table
    assert (folder / 'track' / tracker).is_dir()


@pytest.mark.parametrize('tracker', LIGHT[:1])
def test_a_full_disk_costs_the_tracker_and_not_the_run(tracker, lived, tmp_path):
    code = ('import json, resource, signal, sys\n'
            'from evolora.analysis.trackers import Tracked\n'
            'signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n'
            'resource.setrlimit(resource.RLIMIT_FSIZE, (4000, 4000))\n'
            f'with Tracked([{tracker!r}], sys.argv[1], log=print) as tracked:\n'
            '    for i in range(200): tracked.scalars(i, dict(x=1.))\n'
            'print("lived")')
    done = subprocess.run([sys.executable, '-c', code, tmp_path], capture_output=True, text=True, cwd=ROOT)
    said = done.stdout.splitlines()
    assert said[-1] == 'lived' and len(said) == 2, done.stderr[-2000:]
    assert said[0].startswith(f'{tracker} failed, and the run goes on without it: OSError')


class Notes:
    "A tracker that keeps what it is told"
    needs = 'json'
    def __init__(self): self.told = []
    def look(self, folder): return str(folder)
    def begin(self, *told): self.told.append(('begin', *told))
    def scalars(self, step, values): self.told.append(('scalars', step, values))
    def table(self, step, name, rows): self.told.append(('table', step, name, rows))
    def figure(self, step, name, png): self.told.append(('figure', step, name))
    def end(self, status): self.told.append(('end', status))


@pytest.fixture
def notes(monkeypatch):
    monkeypatch.setitem(TRACKERS, 'notes', Notes)


def test_what_was_not_measured_is_left_out(notes, tmp_path):
    with Tracked(['notes'], tmp_path) as tracked:
        tracked.scalars(0, dict(a=1, b=None, c=float('nan'), d=float('inf')))
        tracked.scalars(1, dict(a=None))
        told = tracked.trackers['notes'].told
    assert [one for one in told if one[0] == 'scalars'] == [('scalars', 0, dict(a=1.))]


@pytest.mark.parametrize('error, status', [(None, 'finished'), (KeyboardInterrupt, 'stopped'), (ValueError, 'failed')])
def test_how_it_ended_is_told_once(notes, tmp_path, error, status):
    tracked = Tracked(['notes'], tmp_path)
    told = tracked.trackers['notes'].told
    try:
        with tracked:
            tracked.scalars(0, dict(a=1))
            if error: raise error
    except (KeyboardInterrupt, ValueError): pass
    tracked.end('failed')
    assert [one for one in told if one[0] == 'end'] == [('end', status)]


def test_nothing_is_written_before_the_first_number(notes, tmp_path):
    with Tracked(['notes'], tmp_path / 'new') as tracked: tracked.figures(0, tmp_path)
    assert not (tmp_path / 'new').exists()


def test_numbers_and_answers_are_those_of_the_record(lived):
    record = lived[1][-1]
    found, row = scalars_of(record), record.row
    assert found['learning/sampled_accuracy'] == record.accuracy and found['population/alive'] == row['alive']
    assert found['compute/total'] == pytest.approx(sum(row['gflops'].values()) - row['gflops']['alone'])
    moved = sum(max(e['amount'], 0) for e in record.ledger if e['reason'] == 'bet')
    assert found['energy/stakes/bet'] == pytest.approx(moved) and moved > 0
    assert found['merging/merges'] == row['gates'].get('took_over', 0)
    answers = answers_of(record)
    assert 0 < len(answers) <= ANSWERS
    given = {(e['organelle'], e['answer'], bool(e['success'])) for e in record.episodes}
    assert {(a.organelle, a.answer, a.verdict == 'right') for a in answers.itertuples()} <= given


def test_a_long_text_is_cut(lived, monkeypatch):
    monkeypatch.setattr(trackers, 'LONGEST', 5)
    assert answers_of(lived[1][0])['question'].str.len().max() == 5


def test_an_id_that_somebody_else_wrote_is_one_line(notes, tmp_path):
    (tmp_path / 'track').mkdir()
    (tmp_path / 'track/id').write_text('../../x')
    said = []
    with Tracked(['notes'], tmp_path, log=said.append) as tracked: tracked.scalars(0, dict(a=1))
    assert len(said) == 1 and 'expected 8 letters and digits' in said[0]


def test_a_package_that_is_missing_is_one_line_with_the_way(monkeypatch):
    monkeypatch.setattr(trackers, 'find_spec', lambda name: None)
    with pytest.raises(ValueError, match=r"mlflow expected the package mlflow, .*pip install 'evolora\[trackers\]'"):
        trackers_named(['mlflow'])


@pytest.mark.parametrize('tracker, variable', [
    ('trackio', 'TRACKIO_SERVER_URL'), ('wandb', 'WANDB_MODE'), ('mlflow', 'MLFLOW_TRACKING_URI')])
def test_who_tells_a_package_to_send_is_told_so_without_the_secret(tracker, variable, monkeypatch):
    for name in (variable, 'TRACKIO_SPACE_ID', 'TRACKIO_DIR'): monkeypatch.delenv(name, raising=False)
    assert '/a b/x' in TRACKERS[tracker]().look(Path('/a b/x')) and variable not in TRACKERS[tracker]().look(Path('x'))
    monkeypatch.setenv(variable, 'https://me:secret@example.invalid')
    assert TRACKERS[tracker]().look(Path('x')) == f'it goes where {variable} says'
