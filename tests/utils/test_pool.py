"""Pieces of work in processes: each comes back once, whatever becomes of the process that has it."""
import math
import os
import re
import signal
import subprocess
import sys
import time
from multiprocessing.connection import wait as wait_for
from pathlib import Path
from threading import Lock, Thread

import pytest

import evolora
from evolora.utils import pool
from evolora.utils.pool import TooMuch, each, run_child, try_forked


def dies_once(folder, n):
    "Ends its process the first time that it is called with n"
    path = Path(folder) / str(n)
    if not path.exists():
        path.touch()
        os._exit(9)
    return n * n


def sleeps(seconds):
    time.sleep(seconds)
    return os.getpid()


def raises(kind): raise kind('as planned')


@pytest.mark.parametrize('jobs', [1, 2])
def test_every_piece_comes_back_once_and_a_refusal_is_a_result(jobs):
    found = dict(each(math.sqrt, ((float(x),) for x in range(-2, 5)), jobs=jobs))
    assert len(found) == 7 and all(found[float(x),] == math.sqrt(x) for x in range(5))
    assert all(isinstance(found[float(x),], ValueError) for x in (-2, -1))


def test_a_piece_whose_process_dies_is_begun_again(tmp_path):
    found = dict(each(dies_once, [(str(tmp_path), n) for n in range(3)], jobs=2))
    assert [found[str(tmp_path), n] for n in range(3)] == [0, 1, 4]


def test_a_piece_that_kills_every_process_is_named_and_the_others_go_on():
    found = dict(each(os._exit, [(3,)], jobs=2, tries=2))
    assert isinstance(found[3,], ValueError) and 'died 2 times' in str(found[3,])
    assert '\n' not in str(found[3,])


@pytest.mark.parametrize('jobs', [1, 2])
def test_any_other_exception_ends_all_of_it(jobs):
    with pytest.raises(KeyError): list(each(raises, [(KeyError,), (ValueError,)], jobs=jobs))


def test_pieces_are_taken_when_there_is_somebody_for_them():
    taken = []
    def pieces():
        for x in range(4):
            taken.append(x)
            yield float(x),
    work = each(math.sqrt, pieces(), jobs=1)
    next(work)
    assert taken == [0]


def test_no_process_is_left_when_the_caller_leaves():
    others = set(pool.active_children())        # of other tests
    work = each(sleeps, [(0.,), (60.,), (60.,)], jobs=2)
    next(work)
    before = set(pool.active_children()) - others
    work.close()
    # By their sentinels: `is_alive` says yes for a moment after another thread has waited for a process.
    assert before and all(wait_for([process.sentinel], 60) for process in before)


ORPHANS = """
import os, sys, time
from pathlib import Path
def work(folder, n):
    while True:
        Path(folder, f'{n}').write_text(str(time.time()))
        time.sleep(.05)
if __name__ == '__main__':
    from evolora.utils.pool import each
    list(each(work, [(sys.argv[1], 0), (sys.argv[1], 1)], jobs=2))
"""


@pytest.mark.parametrize('how', [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_workers_end_with_their_parent_however_it_ends(tmp_path, how):
    (tmp_path / 'orphans.py').write_text(ORPHANS)
    (tmp_path / 'signs').mkdir()
    parent = subprocess.Popen([sys.executable, tmp_path / 'orphans.py', tmp_path / 'signs'])
    def alive():
        signs = {p: p.read_text() for p in (tmp_path / 'signs').iterdir()}
        time.sleep(.5)
        return [p for p, sign in signs.items() if p.read_text() != sign]
    try:
        until = time.time() + 120
        while len(alive()) < 2 and time.time() < until: pass
        parent.send_signal(how)
        parent.wait(30)
        until = time.time() + 30
        while alive() and time.time() < until: pass
        assert len(list((tmp_path / 'signs').iterdir())) == 2 and not alive()
    finally: parent.kill()


# --- what a command said that failed

def test_the_reason_of_a_failed_command_is_its_last_line():
    said = 'Traceback (most recent call last):\n\nValueError: no \x1b[2J host\n'
    code = f'import sys; print("half"); sys.exit({said!r})'
    with pytest.raises(ValueError, match=r'^the child failed: ValueError: no .\[2J host$') as error:
        run_child('the child', [sys.executable, '-S', '-c', code])
    assert '\x1b' not in str(error.value)
    with pytest.raises(ValueError, match='^the child failed: killed by signal 9$'):
        run_child('the child', ['sh', '-c', 'kill -9 $$'])


def test_no_subprocess_is_checked_by_python_which_loses_the_reason():
    package = Path(evolora.__file__).parent
    assert [p.name for p in package.rglob('*.py') if re.search(
        r'check=True|check_call|check_output|CalledProcessError', p.read_text())] == []


def raises_memory_error(): return 'a' * 10**11


def is_killed(): os.kill(os.getpid(), signal.SIGKILL)


def prints_and_ends():
    os.write(1, b'a line of the copy')
    os.write(2, b'a panic of the copy')
    raise SystemExit(3)


@pytest.mark.skipif(sys.platform != 'linux', reason='no copy of the process')
@pytest.mark.parametrize('call, ended', [(raises_memory_error, 'out of memory'), (is_killed, 'killed by signal 9')])
def test_a_copy_that_is_ended_is_one_line(call, ended):
    with pytest.raises(TooMuch, match=ended): try_forked(call, seconds=5, memory=1 << 28)


@pytest.mark.skipif(sys.platform != 'linux', reason='no copy of the process')
def test_a_copy_prints_nothing_and_changes_nothing(capfd):
    seen = []
    for call in (prints_and_ends, lambda: seen.append(1), lambda: 1 / 0): try_forked(call, seconds=5, memory=1 << 28)
    with pytest.raises(ValueError, match='^a\\?b$'): try_forked(lambda: int_of('a\ud800b'), seconds=5, memory=1 << 28)
    assert not seen and capfd.readouterr() == ('', '')


def int_of(text): raise ValueError(text)


@pytest.mark.skipif(sys.platform != 'linux', reason='no copy of the process')
def test_a_copy_of_a_thread_ends_by_itself():
    found = []
    thread = Thread(target=lambda: found.append(try_forked(lambda: 1, seconds=5, memory=1 << 28)))
    thread.start()
    thread.join(60)
    assert found == [None]


@pytest.mark.skipif(sys.platform != 'linux', reason='no copy of the process')
def test_a_copy_that_waits_for_a_lock_is_killed_and_refuses_nothing(monkeypatch):
    monkeypatch.setattr(pool, '_WAIT', .1)
    lock, copies = Lock(), []
    fork = os.fork
    monkeypatch.setattr(os, 'fork', lambda: copies.append(fork()) or copies[-1])
    with lock: try_forked(lock.acquire, seconds=1, memory=1 << 28)
    with pytest.raises(ProcessLookupError): os.kill(copies[0], 0)
