"""Candidates that mean harm, as data: name → (code, what the reader calls it, what it comes to inside `contain`).

The code is the body of a method. As text it goes through the front door, where it is refused; executed raw, by
`perform`, it shows what the process is worth when one got through. Bombs are small: what they show is whether the
first step is taken, not whether the machine survives the millionth. FOLDER is a folder of the test, which shall stay
as it is; PORT is a port of the test that shall get no connection; the pipe of the result is found by looking for it.

What it comes to is a set of statuses with the kernel's filter, and one with limits alone. To the latter belongs the
harm that limits do not prevent and that the test sees: 'files', 'signal', 'call' or 'secret'. 'ok' means that nothing
was seen: the candidate did what harms no other process, or swallowed an error, and then ended as honest ones do. There
is more than one status where they depend on the Python, on the rights of the user, or on the settings of the kernel.
"""
import os

FIND_PIPE = '''import os, stat
pipes = [fd for fd in range(3, 64) if os.path.exists(f"/proc/self/fd/{fd}") and stat.S_ISFIFO(os.fstat(fd).st_mode)]
'''
WRITE = FIND_PIPE + '''
def write(head, more=b""): os.write(pipes[-1], len(head).to_bytes(8, "big") + head + more)
'''
FORK = '''import os, time
children = 0
for _ in range(20):
    try:
        if os.fork() == 0: time.sleep(30)
        children += 1
    except OSError: pass
'''
DAEMON = '''import os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(30)
    os._exit(0)
os.wait()
'''
# Trainings are kept as JSON, under names that any program can work out.
POISON = '''import pathlib
for path in pathlib.Path(FOLDER).rglob("*.json"): open(path, "w").write(path.name * 20)
open(f"{FOLDER}/{'0' * 32}.json", "w").write("{}")
'''
REPLACE = '''import os, pathlib
found = [*pathlib.Path(FOLDER).rglob("*.json")]
for path in found: os.link(path, f"{path}.mine"), path.unlink()
for path in found: pathlib.Path(path).write_text("{}")
'''
C, T, M, OK = 'crashed', 'timeout', 'memory', 'ok'
FILES, SIGNAL, CALL, SECRET = HARM = 'files', 'signal', 'call', 'secret'

# name: (code, kind of the refusal, statuses with the filter, statuses with limits alone)
_ALL = {
    # time
    'endless loop': ('while True: pass', 'grammar', {T}, {T}),
    'long range': ('for i in range(10**9):\n    for j in range(10**9): pass', 'read', {T}, {T}),
    'sleep': ('import time\ntime.sleep(60)', 'grammar', {T}, {T}),
    'catastrophic regex': ('import re\nre.match("(a+)+b", "a" * 64)', 'grammar', {T}, {T}),
    'huge power': ('return str(9**9**9)', 'name', {T}, {T}),
    'wait for input': ('import sys\nreturn sys.stdin.read()', 'grammar', {OK}, {OK}),
    'wait for a lock': ('import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()', 'grammar', {T},
    {T}),
    'ignore signals': ('import signal\nfor n in range(1, 65):\n    try: signal.signal(n, signal.SIG_IGN)\n    '
                       'except (OSError, '
                       'ValueError): pass\nwhile True: pass', 'grammar', {T}, {T}),
    'catch everything': ('while True:\n    try: raise KeyboardInterrupt\n    except BaseException: pass', 'grammar',
    {T}, {T}),
    # memory
    'large list': ('return len([0] * 10**10)', 'read', {M}, {M}),
    'large tensor': ('import torch\nreturn torch.zeros(1 << 40).sum().item()', 'grammar', {M}, {M}),
    'growing list': ('s = [bytearray(1 << 24)]\nwhile True: s.append(bytearray(1 << 24))', 'name', {M}, {M}),
    'growing text': ('s = "x" * 1000000\nwhile True: s = s + s', 'constant', {M}, {M}),
    'large mapping': ('import mmap\nreturn len(mmap.mmap(-1, 1 << 44))', 'grammar', {M}, {M}),
    # the stack
    'recursion': ('def f(): return f()\nreturn f()', 'read', {C}, {C}),
    'recursion in C': ('import sys\nsys.setrecursionlimit(10**9)\ndef f(): return f()\nf()', 'grammar', {C, M, T}, {C,
    M, T}),
    'stack of C': ('import itertools\ns = iter([])\nfor _ in range(10**6): s = itertools.chain(s)\nreturn len(list(s))',
                   'grammar', {C}, {C}),
    'null pointer': ('import ctypes\nctypes.string_at(0)', 'grammar', {C}, {C}),
    # the end
    'exit': ('raise SystemExit(0)', 'grammar', {C}, {C}),
    'hard exit': ('import os\nos._exit(0)', 'grammar', {C}, {C}),
    'abort': ('import os\nos.abort()', 'grammar', {C}, {C}),
    'abort in C': ('import ctypes\nctypes.CDLL(None).abort()', 'grammar', {C}, {C}),
    'kill itself': ('import os, signal\nos.kill(os.getpid(), signal.SIGKILL)', 'grammar', {C}, {C}),
    'strange exception': ('class E(BaseException):\n    def __str__(self): raise SystemExit\nraise E', 'name', {C},
    {C}),
    # processes
    'fork bomb': (FORK + 'return children', 'grammar', {OK}, {OK}),
    'daemon': (DAEMON, 'grammar', {C}, {OK}),
    'program': ('import subprocess\nreturn subprocess.run(["/bin/true"]).returncode', 'grammar', {C}, {OK}),
    'shell': ('import os\nos.system(f"echo > {FOLDER}/shell")\nreturn os.listdir(FOLDER)', 'grammar', {C},
    {OK, FILES}),
    'replace itself': ('import os\nos.execv("/bin/sleep", ["sleep", "30"])', 'grammar', {C}, {T}),
    'thread bomb': ('import threading, time\nfor _ in range(5000): threading.Thread(target=time.sleep, args=(30,), '
                    'daemon=True).start()', 'grammar', {C}, {C}),
    'leave the session': ('import os\nos.setsid()', 'grammar', {C}, {C}),
    # Its parent is the warm process that all are forked from.
    'signal the parent': ('import os, signal\nos.kill(os.getppid(), signal.SIGURG)', 'grammar', {C}, {OK}),
    'kill the parent': ('import os, time\nos.kill(os.getppid(), 9)\ntime.sleep(30)', 'grammar', {C}, {C}),
    'stop the group': ('import os, signal\nos.killpg(0, signal.SIGTSTP)\nos.kill(0, signal.SIGSTOP)', 'grammar', {C},
    {T}),
    # files
    'write a file': ('open(f"{FOLDER}/new", "w").write("x")', 'attribute', {C}, {OK, FILES}),
    'overwrite a file': ('open(f"{FOLDER}/kept", "r+").write("poison")', 'attribute', {C}, {OK}),
    'append to a file': ('import os\nos.write(os.open(f"{FOLDER}/kept", os.O_APPEND | os.O_WRONLY), b"x")', 'grammar',
    {C}, {C}),
    'empty a file': ('open(f"{FOLDER}/kept", "w")', 'name', {C}, {OK, FILES}),
    'remove a file': ('import os\nos.remove(f"{FOLDER}/kept")', 'grammar', {C}, {OK, FILES}),
    'rename a file': ('import os\nos.rename(f"{FOLDER}/kept", f"{FOLDER}/gone")', 'grammar', {C}, {OK, FILES}),
    'link': ('import os\nos.symlink("/etc/passwd", f"{FOLDER}/link")', 'grammar', {C}, {OK, FILES}),
    'folder': ('import os\nos.mkdir(f"{FOLDER}/folder")', 'grammar', {C}, {OK, FILES}),
    'rights': ('import os\nos.chmod(f"{FOLDER}/kept", 0o777)', 'grammar', {C}, {OK, FILES}),
    'write here': ('open("here", "w").write("x" * 100)', 'attribute', {C}, {OK}),
    'poison a module': ('import pathlib, sys\np = pathlib.Path(FOLDER, "poison.py")\np.write_text("x")', 'grammar',
    {C}, {C, FILES}),
    'fill the disk': ('f = open(f"{FOLDER}/full", "wb")\nwhile True: f.write(b"x" * (1 << 20))', 'name', {C},
    {C, FILES}),
    'poison the cache': (POISON, 'grammar', {C}, {OK, FILES}),
    'take the place of a training': (REPLACE, 'grammar', {OK}, {C, FILES}),
    'anonymous file': ('import os\nos.open(FOLDER, os.O_TMPFILE | os.O_RDWR)', 'grammar', {C}, {OK}),
    'raw system call': ('import ctypes\nlibc = ctypes.CDLL(None, use_errno=True)\nfor n in (83, 257, 437, 425, '
                        '41, 57, 59, 101, '
                        '165, 272, 319, 435): libc.syscall(n, -100, FOLDER.encode(), 0o102, 0o777, 0)\nreturn 1',
                        'grammar', {OK}, None),
    'save a tensor': ('import torch\ntorch.save(torch.ones(3), f"{FOLDER}/x.pt")', 'grammar', {C}, {C, FILES}),
    # the network, and others
    'connection': ('import socket\nsocket.create_connection(("127.0.0.1", PORT), 2)', 'grammar', {C}, {OK, CALL}),
    'server': ('import socket\nsocket.create_server(("127.0.0.1", 0))', 'grammar', {C}, {OK}),
    'local socket': ('import socket\nsocket.socketpair()', 'grammar', {C}, {OK}),
    'secrets of the parent': ('import os\nreturn open(f"/proc/{os.getppid()}/environ").read()', 'grammar', {C},
    {OK}),
    'memory of the parent': ('import os\nopen(f"/proc/{os.getppid()}/mem", "r+b")', 'grammar', {C}, {OK}),
    # PTRACE_SEIZE, for PTRACE_ATTACH would stop the tests, and who ends too soon leaves them stopped.
    'trace the parent': ('import ctypes, os\n'
                         'if ctypes.CDLL(None).ptrace(0x4206, os.getppid(), 0, 0): raise OSError("no")', 'grammar', {C},
    {OK, C}),
    'raise the limits': ('import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))\n'
                         'return len(bytearray(1 << 33))',
                         'grammar', {C}, {C, M, OK}),
    'own environment': ('import os\nreturn [k for k in os.environ if "SECRET" in k]', 'grammar', {OK}, {OK}),
    # the result
    'print gigabytes': ('while True: print("x" * (1 << 20))', 'grammar', {C}, {C}),
    'print escapes': ('print("\\x1b[2J" * 100)\nraise ValueError("\\x1b[2J\\n\\x00line")', 'name', {C}, {C}),
    'huge result': ('return "x" * (1 << 23)', 'constant', {C}, {C}),
    'no JSON': ('return object()', 'name', {C}, {C}),
    'not a number': ('return float("nan")', 'constant', {C}, {C}),
    'forged not a number': (WRITE + 'write(b\'{"value": NaN, "bytes": {}}\')\nos._exit(0)', 'grammar', {C}, {C}),
    'infinite number': (WRITE + 'write(b\'{"value": 1e999, "bytes": {}}\')\nos._exit(0)', 'grammar', {C}, {C}),
    'bytes that are not there': (WRITE + 'write(b\'{"value": {}, "bytes": {"a": 9}}\', b"123")\nos._exit(0)', 'grammar',
                                 {C}, {C}),
    'fewer than no bytes': (WRITE + 'write(b\'{"value": {}, "bytes": {"a": -1, "b": 4}}\', b"123")\nos._exit(0)',
                            'grammar', {C}, {C}),
    'a length without end': (FIND_PIPE + 'os.write(pipes[-1], b"\\xff" * 8 + b"{}")\nos._exit(0)', 'grammar', {C}, {C}),
    'deep JSON': (WRITE + 'write(b"[" * 50000)\nos._exit(0)', 'grammar', {C}, {C}),
    'two results': (WRITE + 'write(b\'{"value": 1, "bytes": {}}\')\nreturn 2', 'grammar', {C}, {C}),
    'forged error': (WRITE + 'write(b\'{"value": 1, "bytes": {}, "error": "\\\\u001b[2J\\\\n", "memory": "yes"}\')\n'
                     'os._exit(0)', 'grammar', {C}, {C}),
    'unknown form': (WRITE + 'write(b\'{"value": 1, "bytes": {}, "status": "ok"}\')\nos._exit(0)', 'grammar', {C}, {C}),
    'close the pipe': (FIND_PIPE + 'for fd in pipes: os.close(fd)', 'grammar', {C}, {C}),
    'close everything': ('import os\nos.closerange(0, 64)\nwhile True: pass', 'grammar', {T}, {T}),
    'flood the pipe': (FIND_PIPE + 'while True: os.write(pipes[-1], b" " * 65536)', 'grammar', {C}, {C}),
    # Code in the process where the result is made can make it up: nothing but reading prevents that.
    'forged result': (WRITE + 'write(b\'{"value": "forged", "bytes": {}}\')\nos._exit(0)', 'grammar', {OK}, {OK}),
}
CANDIDATES = {name: (code, kind, (filtered, limited)) for name, (code, kind, filtered, limited) in _ALL.items()}


def perform(code, folder, port):
    "Execute code as the body of a function, past every reader: only in tests, only inside `contain`"
    names = {'FOLDER': folder, 'PORT': port}
    lines = ''.join(f'    {line}\n' for line in code.split('\n'))
    exec(compile(f'def candidate():\n{lines}', '<hostile>', 'exec'), names)
    return names['candidate']()


def honest(): return os.getpid() > 0
