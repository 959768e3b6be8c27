"""Hostile candidates in a contained process: with the kernel's filter nothing gets out; with limits alone it is known
what does; the next call works, and no process is left."""
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

import hostile_candidates
from contained import contained
from evolora.attention.scoring import sandbox
from evolora.attention.scoring.sandbox import SHIELDS, Limits, contain, protection
from hostile_candidates import CANDIDATES, FORK, HARM

pytestmark = pytest.mark.skipif(os.name != 'posix', reason='needs a Unix')
LIMITS = Limits(seconds=15, processor_seconds=5, memory=1 << 30, output_bytes=1 << 20, result_bytes=1 << 16)
WITH_TORCH = {'large tensor', 'save a tensor'}
PAUSE = 'evolora.attention.scoring.sandbox:pause'


@pytest.fixture(autouse=True)
def tasks_of_the_tests(monkeypatch, tmp_path_factory):
    "In here, and nowhere else, a task may be one that executes text"
    # Others may be at work on this machine.
    monkeypatch.setattr(sandbox.tempfile, 'tempdir', str(tmp_path_factory.mktemp('temporary')))
    monkeypatch.setattr(sandbox, '_PACKAGES', ('evolora.attention.', 'hostile_candidates'))
    monkeypatch.syspath_prepend(str(Path(hostile_candidates.__file__).parent))


@pytest.fixture(scope='module')
def here(): return {what: holds for what, (holds, _) in protection().items()}


def leftovers(): return set(Path(sandbox.tempfile.gettempdir()).glob('evolora-*'))


class Victim:
    "What a candidate may want to harm: a folder with a cache, a port, the parent and its secrets"
    def __init__(self, folder, monkeypatch):
        self.folder, self.hit = folder, []
        (folder / 'kept').write_text('as it was')
        (folder / 'cache').mkdir()
        for key in 'ab': (folder / 'cache' / f'{16 * key}.json').write_text('{"trained": {}, "check": ""}')
        os.chmod(folder / 'kept', 0o600)
        monkeypatch.setenv('EVOLORA_TEST_SECRET', 'xyzzy')
        self.server = socket.create_server(('127.0.0.1', 0))
        self.server.setblocking(False)
        self.port = self.server.getsockname()[1]
        self.before = signal.signal(signal.SIGURG, lambda *_: self.hit.append('signal'))
        self.image, self.left = self.look(), leftovers()

    def look(self):
        return {(str(p), p.lstat().st_mode, p.is_file() and p.read_bytes()) for p in self.folder.rglob('*')}

    def harmed(self, outcome):
        "What happened that must not"
        harm = list(self.hit)
        if self.look() != self.image: harm.append('files')
        with suppress(BlockingIOError): self.server.accept(), harm.append('call')
        # What it was started with; what is put into os.environ later is not seen by others.
        began = Path('/proc/self/environ')
        if began.exists() and str(outcome.result) == began.read_text(errors='replace') != '': harm.append('secret')
        if leftovers() - self.left: harm.append('folders')
        if contained(): harm.append('processes')
        return harm

    def close(self):
        self.server.close()
        signal.signal(signal.SIGURG, self.before)


@pytest.fixture
def victim(tmp_path, monkeypatch):
    made = Victim(tmp_path, monkeypatch)
    yield made
    made.close()


def attack(name, victim, shields):
    code = CANDIDATES[name][0]
    limits = LIMITS.model_copy(update={'processor_seconds': 10, 'memory': 3 << 30}) if name in WITH_TORCH else LIMITS
    # What takes for ever is not waited for.
    expected = CANDIDATES[name][2][0 if shields else 1]
    if 'timeout' in expected: limits = limits.model_copy(update={'seconds': 1.2, 'processor_seconds': 1})
    outcome = contain('hostile_candidates:perform', dict(code=code, folder=str(victim.folder), port=victim.port),
        limits,
                      shields=shields)
    assert '\n' not in outcome.why and outcome.why.isprintable() and len(outcome.why) < 400
    assert len(outcome.printed) <= sandbox.TAIL and outcome.seconds < limits.seconds + 5
    return outcome


# What is ended in the same way as another is not waited for every day: name → the other.
LIKE = {'long range': 'endless loop', 'huge power': 'endless loop', 'catch everything': 'endless loop',
        'catastrophic regex': 'endless loop', 'wait for a lock': 'sleep', 'growing text': 'growing list',
        'large tensor': 'large list', 'recursion in C': 'stack of C', 'save a tensor': 'write a file'}


@pytest.mark.parametrize('name', [pytest.param(name, marks=[pytest.mark.slow] * (name in LIKE)) for name in CANDIDATES])
def test_with_every_shield_nothing_gets_out(name, victim, here, record_property):
    if not here['start a process']: pytest.skip('this machine has no seccomp')
    outcome = attack(name, victim, SHIELDS)
    record_property('outcome', f'{outcome.status}: {outcome.why}')
    print(f'TABLE {name} | filter | {outcome.status} | {outcome.why} | {outcome.result!r:.40}')
    if name == 'secrets of the parent' and not here['read the environment of others']: pytest.skip('no namespaces')
    assert outcome.status in CANDIDATES[name][2][0], outcome
    assert victim.harmed(outcome) == [] and 'xyzzy' not in str(outcome.result)
    if name in {'fork bomb', 'own environment'}: assert outcome.result in (0, [])


# Where the filter makes no difference, a few stand for the rest, which are slow.
QUICK = {'endless loop', 'ignore signals', 'large list', 'stack of C', 'hard exit', 'fork bomb', 'print gigabytes',
         'close the pipe', 'deep JSON'}
# And of what limits do not prevent, some: another file that is changed, another socket.
MORE = {'empty a file', 'rename a file', 'link', 'folder', 'rights', 'write here', 'poison a module', 'anonymous file',
        'take the place of a training', 'server', 'local socket'}


def later(name, same): return [pytest.mark.slow] * (name in {*LIKE, *MORE} or same and name not in QUICK)


ALONE = [pytest.param(name, marks=later(name, filtered == limited))
         for name, (_, _, (filtered, limited)) in CANDIDATES.items() if limited is not None]


@pytest.mark.parametrize('name', ALONE)
def test_with_limits_alone_accidents_are_contained_and_harm_is_known(name, victim):
    expected = CANDIDATES[name][2][1]
    outcome = attack(name, victim, ())
    harm = victim.harmed(outcome)
    print(f'TABLE {name} | limits | {outcome.status} | {outcome.why} | {harm}')
    assert 'processes' not in harm and 'folders' not in harm     # the end of a call is the end of what it started
    assert outcome.status in expected - set(HARM) and set(harm) == expected & set(HARM), (outcome, harm)


MANY = FORK.replace('range(20)', 'range(300)') + 'return children'


@pytest.mark.skipif(os.name == 'posix' and os.geteuid() == 0, reason='the kernel counts no processes of root')
@pytest.mark.parametrize('shields', [(), ('namespaces',)])
def test_there_are_only_so_many_processes(shields):
    "A few more than asked for, since others of this user may end meanwhile; without the limit it is all of them"
    limits = LIMITS.model_copy(update={'processes': 3})
    outcome = contain('hostile_candidates:perform', dict(code=MANY, folder='', port=0), limits, shields=shields)
    assert outcome.status == 'ok' and 0 < outcome.result < 250 and contained() == []


def test_after_all_of_them_a_call_works():
    outcome = contain('hostile_candidates:honest', {}, LIMITS)
    assert (outcome.status, outcome.result, contained()) == ('ok', True, [])


@pytest.mark.parametrize('shields', [SHIELDS, ()])
def test_an_interrupt_ends_the_child_and_is_passed_on(shields):
    if threading.current_thread() is not threading.main_thread(): pytest.skip('signals go to the main thread')
    threading.Timer(.8, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt): contain(PAUSE, {'seconds': 30}, Limits(seconds=20), shields=shields)
    assert contained() == []


def test_when_the_parent_is_killed_the_child_goes_too(here):
    if sys.platform != 'linux': pytest.skip('only Linux signals a child')
    code = ('from evolora.attention.scoring.sandbox import contain, Limits\n'
            f'contain({PAUSE!r}, dict(seconds=30), Limits(seconds=25))')
    parent = subprocess.Popen([sys.executable, '-c', code], env=os.environ | {'PYTHONPATH': os.pathsep.join(sys.path)})
    try:
        ends = time.monotonic() + 20
        while len(contained(parent.pid, servers=True)) < 2 and time.monotonic() < ends: time.sleep(.05)
        assert len(contained(parent.pid, servers=True)) == 2
    finally:
        parent.kill()
        parent.wait()
    ends = time.monotonic() + 5
    while contained(parent.pid, servers=True) and time.monotonic() < ends: time.sleep(.05)
    assert contained(parent.pid, servers=True) == []


def test_calls_from_several_threads_do_not_disturb_each_other():
    found = {}
    def call(n): found[n] = contain(PAUSE, {'seconds': n / 100}, Limits(seconds=20))
    threads = [threading.Thread(target=call, args=(n,)) for n in range(4)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    assert {n: outcome.result for n, outcome in found.items()} == {n: n / 100 for n in range(4)}


@pytest.mark.parametrize('task', ['os:system', 'evolora.utils.files:append', 'evolora.attention.scoring.sandbox',
    'evolora.attentionx:a',
                                  'evolora.attention.scoring.sandbox:pause()',
                                  'evolora.attention.scoring.sandbox:a.b', '', ':',
                                  'a:b:c'])
def test_only_tasks_of_the_package(task):
    with pytest.raises(ValueError, match='name one of ours'): contain(task, {})


def test_a_task_that_is_not_there_is_a_crash():
    for task in ['evolora.attention.nothing:f', 'evolora.attention.scoring.sandbox:nothing']:
        outcome = contain(task, {}, LIMITS)
        assert outcome.status == 'crashed' and 'Error' in outcome.why
    assert contain(PAUSE, {'wrong': 1}, LIMITS).status == 'crashed'


def test_a_shielded_process_can_do_what_training_needs():
    code = '''import torch
from torch.utils.flop_counter import FlopCounterMode
with torch.device('meta'): model = torch.nn.Linear(4, 4)
with FlopCounterMode(display=False) as counter: model(torch.empty(2, 4, device='meta'))
layer, x = torch.nn.Linear(4, 4).double(), torch.linspace(0, 1, 8, dtype=torch.float64).reshape(2, 4)
optimizer = torch.optim.AdamW(layer.parameters(), lr=1e-3)
torch.linalg.solve(layer.weight @ layer.weight.T + torch.eye(4), layer(x).T).square().sum().backward()
optimizer.step()
torch.nn.functional.conv1d(torch.ones(1, 2, 9), torch.ones(2, 2, 3))
return counter.get_total_flops()'''
    outcome = contain('hostile_candidates:perform', dict(code=code, folder='', port=0), Limits(seconds=60))
    assert (outcome.status, outcome.result) == ('ok', 64), outcome


def test_no_descriptor_is_left_open():
    before = len(os.listdir('/proc/self/fd')) if Path('/proc').is_dir() else 0
    for _ in range(3): contain(PAUSE, {'seconds': 0}, LIMITS)
    if before: assert len(os.listdir('/proc/self/fd')) == before


def test_with_an_accelerator_less_holds_and_the_network_stays_out_of_reach(here, monkeypatch):
    monkeypatch.setenv('CUDA_VISIBLE_DEVICES', '3')
    with socket.create_server(('127.0.0.1', 0)) as server:
        task, arguments = 'evolora.attention.scoring.sandbox:attempt', {'port': server.getsockname()[1]}
        tried = contain(task, arguments, Limits(seconds=30, accelerator=True)).result
    assert tried['compute without end'] and tried['write into a file'] and not tried['start a process']
    assert tried['reach the network'] or 'namespaces' not in SHIELDS or not here['read the environment of others']
    seen = 'import os\nreturn os.environ["CUDA_VISIBLE_DEVICES"]'
    arguments = dict(code=seen, folder='', port=0)
    found = [contain('hostile_candidates:perform', arguments, Limits(accelerator=on)).result for on in (False, True)]
    assert found == ['', '3']


def test_limits_refuse_nonsense():
    for wrong in [dict(seconds=0), dict(seconds='soon'), dict(memroy=1), dict(memory=-1), dict(processor_seconds=.5)]:
        with pytest.raises(ValueError): Limits(**wrong)


def test_another_system_gets_an_error_that_names_what_is_expected(monkeypatch):
    monkeypatch.setattr(sandbox.os, 'name', 'nt')
    try: contain(PAUSE, {'seconds': 0})
    except ValueError as error: found = str(error)
    finally: monkeypatch.undo()
    assert 'expected Linux or macOS' in found


@pytest.mark.parametrize('machine', [0, 1])
def test_every_jump_of_the_filter_lands_inside_and_the_end_refuses(machine):
    import struct
    program = sandbox._filter(machine, 1234)
    steps = [struct.unpack('HBBI', program[i:i + 8]) for i in range(0, len(program), 8)]
    assert len(steps) < 4096 and steps[-1] == (6, 0, 0, 0x50001)
    for i, (code, yes, no, _) in enumerate(steps):
        if code in (0x15, 0x35, 0x45): assert max(i + 1 + yes, i + 1 + no) < len(steps)


def run(program, machine, number, *arguments):
    "What the kernel would answer: a reader of filters, in place of the kernel of another machine"
    import struct
    words = {0: number, 4: (0xC000003E, 0xC00000B7)[machine]}
    for i, value in enumerate((*arguments, *[0] * (6 - len(arguments)))):
        words[16 + 8 * i], words[20 + 8 * i] = value & 0xFFFFFFFF, value >> 32
    held, at = 0, 0
    while True:
        code, yes, no, value = struct.unpack('HBBI', program[8 * at:8 * at + 8])
        at += 1
        if code == 0x20: held = words[value]
        elif code == 0x06: return value
        else: at += yes if {0x15: held == value, 0x35: held >= value, 0x45: bool(held & value)}[code] else no


@pytest.mark.parametrize('machine', [0, 1])
def test_the_answer_of_the_filter_to_each_call(machine):
    program, pick = sandbox._filter(machine, 1234), lambda *both: both[machine]
    allow, deny, missing = 0x7FFF0000, 0x50001, 0x50026
    def log(number, *arguments): return run(program, machine, number, *arguments)
    openat, clone, kill, prlimit = pick(257, 56), pick(56, 220), pick(62, 129), pick(302, 261)
    assert log(pick(0, 63)) == log(pick(1, 64)) == allow
    for flag in (os.O_RDONLY, os.O_RDONLY | 0o2000000, os.O_WRONLY, os.O_RDWR, os.O_CREAT, 0o20200002):
        assert log(openat, 0, 0, flag) == deny
    assert log(clone, 0x3D0F00) == allow and log(clone, 17) == log(clone, 0x4000000 | 17) == deny
    assert log(kill, 1234) == allow and log(kill, 1) == log(kill, 0) == log(kill, 2**32 - 1) == deny
    assert log(prlimit, 0, 9, 0) == allow and log(prlimit, 0, 9, 4096) == log(prlimit, 0, 9, 1 << 40) == deny
    assert log(pick(157, 167), 15) == allow and log(pick(157, 167), 1) == log(pick(157, 167), 22) == deny
    assert log(pick(72, 25), 0, 3) == allow and log(pick(72, 25), 0, 8) == deny
    # socket, execve, ptrace, unlinkat, mount, unshare, bpf, setsid, shmget
    for number in (pick(41, 198), pick(59, 221), pick(101, 117), pick(263, 35), pick(165, 40), pick(272, 97), pick(321,
        280),
                   pick(112, 157), pick(29, 194)): assert log(number) == deny
    for number in (425, 435, 437, 438, 999, 0x40000000 + 2): assert log(number) == missing
    assert run(program, 1 - machine, 0) == 0x80000000
