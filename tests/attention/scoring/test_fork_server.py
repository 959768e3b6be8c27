"""A warm process forks one for each call, knows how each ended, and leaves none behind"""
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from contained import contained

from evolora.attention.scoring.fork_server import ForkServer, ended, search_path

pytestmark = pytest.mark.skipif(os.name != 'posix', reason='needs a Unix')
LINUX = pytest.mark.skipif(sys.platform != 'linux', reason='only Linux adopts and lists processes')


@pytest.fixture(scope='module')
def server(tmp_path_factory):
    "One that finds the functions of this file's folder"
    folder = tmp_path_factory.mktemp('calls')
    (folder / 'calls_of_the_tests.py').write_text(CALLS)
    sys.path.append(str(folder))
    made = ForkServer()
    yield made
    made.close()
    sys.path.remove(str(folder))


CALLS = '''
import os, sys, time

def say(text, code=0):
    print(text, flush=True)
    os._exit(code)

def numbers(pipe, text):
    os.write(pipe, text.encode())
    os._exit(0)

def nothing(): pass

def wrong(): raise ValueError('on purpose')

def sleep(seconds):
    time.sleep(seconds)
    os._exit(0)

def killed(by): os.kill(os.getpid(), by)

def look():
    open_ones = sorted(map(int, os.listdir('/proc/self/fd')))[:-1]
    print(sorted(os.environ), os.getsid(0) == os.getpid(), open_ones, flush=True)
    os._exit(0)

def orphans():
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0: time.sleep(60)
        time.sleep(60)
    os._exit(0)

def busy(seconds):
    while time.process_time() < seconds: pass
    os._exit(0)
'''


def call(server, name, *more, wait=True, **arguments):
    "(what it printed, (exit status, seconds of computing))"
    out, into = os.pipe()
    pid, told = server.start(f'calls_of_the_tests:{name}', arguments, into, *more)
    os.close(into)
    if not wait: return pid, out, told
    with open(out) as printed, open(told, 'rb') as about: return printed.read(), ended(about.read())


def test_what_a_call_prints_and_how_it_ends_comes_back(server):
    assert call(server, 'say', text='hello') == ('hello\n', (0, pytest.approx(0, abs=1)))
    assert call(server, 'say', text='x', code=7)[1][0] == 7
    assert call(server, 'killed', by=int(signal.SIGSEGV))[1][0] == -signal.SIGSEGV


def test_a_call_that_returns_or_raises_ends_as_a_failure_and_runs_nothing_of_the_server(server):
    assert call(server, 'nothing') == ('', (1, pytest.approx(0, abs=1)))
    printed, (code, _) = call(server, 'wrong')
    assert code == 1
    assert call(server, 'say', text='still there')[0] == 'still there\n'


def test_descriptors_that_come_along_are_the_first_arguments(server):
    read, write = os.pipe()
    assert call(server, 'numbers', write, text='12')[1][0] == 0
    os.close(write)
    with open(read) as file: assert file.read() == '12'


def test_seconds_of_computing_are_those_of_the_call(server):
    assert .3 < call(server, 'busy', seconds=.3)[1][1] < 3


@LINUX
def test_a_call_has_a_session_few_descriptors_and_none_of_our_secrets(server, monkeypatch):
    printed, _ = call(server, 'look')
    names, session, descriptors = eval(printed.replace('] True [', '], True, ['))
    assert session and descriptors == [0, 1, 2]
    known = {'PATH', 'LD_LIBRARY_PATH', 'HOME', 'LANG', 'PYTHONHASHSEED', 'CUDA_CACHE_DISABLE', 'EVOLORA_CONTAINED'}
    assert {name for name in names if not name.endswith('_NUM_THREADS')} <= known | {'LC_CTYPE'}


@LINUX
def test_what_a_call_leaves_behind_ends_with_it(server):
    assert call(server, 'orphans')[1][0] == 0
    assert contained() == []


@LINUX
def test_calls_side_by_side_are_told_apart(server):
    found = {}
    def one(n): found[n] = call(server, 'say', text=n, code=n)
    threads = [threading.Thread(target=one, args=(n,)) for n in range(8)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert {n: (printed, code) for n, (printed, (code, _)) in found.items()} == {n: (f'{n}\n', n) for n in range(8)}


@LINUX
def test_a_server_that_was_killed_takes_its_calls_along_and_another_takes_its_place(server):
    pid, out, told = call(server, 'sleep', wait=False, seconds=60)
    server._process.kill()
    with open(told, 'rb') as about: assert ended(about.read()) is None
    os.close(out)
    ends = time.monotonic() + 5
    while Path(f'/proc/{pid}').exists() and time.monotonic() < ends: time.sleep(.02)
    assert not Path(f'/proc/{pid}').exists()
    assert call(server, 'say', text='again')[0] == 'again\n'


def test_after_a_fork_the_child_has_a_server_of_its_own(server):
    assert call(server, 'say', text='x')[1][0] == 0
    ours, (read, write) = server._process.pid, os.pipe()
    if (pid := os.fork()) == 0:
        code = 1
        try:
            same = call(server, 'say', text='y')[0] == 'y\n' and server._process.pid != ours
            os.write(write, json.dumps([same, server._process.pid]).encode())
            server.close()
            code = 0
        finally: os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0
    os.close(write)
    with open(read) as file: same, other = json.loads(file.read())
    assert same and other != ours and call(server, 'say', text='z')[0] == 'z\n' and server._process.pid == ours


def test_a_request_that_is_interrupted_leaves_no_half_of_it(server, monkeypatch):
    def stop(*_): raise KeyboardInterrupt
    monkeypatch.setattr(os, 'read', stop)
    with pytest.raises(KeyboardInterrupt): server.start('calls_of_the_tests:sleep', {'seconds': 60}, 1)
    monkeypatch.undo()
    assert call(server, 'say', text='fine')[0] == 'fine\n' and contained() == []


def test_it_ends_with_its_parent():
    code = ('import os, time\nfrom evolora.attention.scoring.fork_server import ForkServer\nserver = ForkServer()\n'
            'server.start("time:sleep", {}, 1)\nprint(server._process.pid, flush=True)\ntime.sleep(60)')
    parent = subprocess.Popen([sys.executable, '-c', code], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, env=os.environ | {'PYTHONPATH': os.pathsep.join(search_path())})
    server = int(parent.stdout.readline())
    parent.kill()
    parent.wait()
    parent.stdout.close()
    ends = time.monotonic() + 5
    while Path(f'/proc/{server}').exists() and time.monotonic() < ends: time.sleep(.05)
    assert not Path(f'/proc/{server}').exists()


@pytest.mark.parametrize('told', [b'', b'[', b'nonsense'])
def test_an_end_that_nobody_tells_of_is_none(told): assert ended(told) is None
