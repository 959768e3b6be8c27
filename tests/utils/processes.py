"""Processes of their own that a test starts, kills or crowds."""
import os
import resource
import signal
from pathlib import Path

from forks import FORKS

from evolora.ecology import sessions
from evolora.ecology.config import EcologyConfig
from evolora.host.model import load_host


def started(function, *arguments):
    "A process that calls this, which has to be importable"
    process = FORKS.Process(target=function, args=arguments)
    process.start()
    return process


def exit_code(function, *arguments):
    "What a process ends with that calls this"
    process = started(function, *arguments)
    process.join(300)
    return process.exitcode


def live_and_die(folder, config, at, stop, note):
    "Begin a run or go on with it, and die before the at-th call that changes what is on the disk; note their number"
    events, folder = 0, Path(folder)
    def deadly(function):
        def call(*args, **how):
            nonlocal events
            events += 1
            if events == at: os.kill(os.getpid(), signal.SIGKILL)
            return function(*args, **how)
        return call
    host = load_host('embedded', threads=1)
    for name in ('fsync', 'replace', 'rename', 'truncate', 'unlink'): setattr(os, name, deadly(getattr(os, name)))
    if folder.exists(): session = sessions.resume_session(folder, host, every=2)
    else: session = sessions.begin_session(folder, host, EcologyConfig.model_validate_json(config), seed=3, every=2)
    with session: session.live(stop, log=None)
    Path(note).write_text(str(events))


def run_out_of_room(folder, config, note):
    "Live three generations, and try more where no file may grow by more than 200 bytes; note what stopped it"
    folder, host = Path(folder), load_host('embedded', threads=1)
    with sessions.begin_session(folder, host, EcologyConfig.model_validate_json(config), seed=3, every=2) as session:
        session.live(3, log=None)
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        size = max(p.stat().st_size for p in folder.glob('*.jsonl')) + 200
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
        try: session.live(6, log=None)
        except OSError as e: Path(note).write_text(e.strerror)


def note_hash(path, cache, note):
    "Load a host with a cache of its own, and note the hash of its weights"
    os.environ['EVOLORA_CACHE'] = cache
    Path(note).write_text(load_host(path, device='cpu').weights_hash())
