"Processes that are contained at this moment, as the system lists them"
import os
from pathlib import Path

from evolora.attention.scoring.fork_server import MARK


def contained(parent=None, servers=False):
    "Those that were forked for a call of this parent, default: of this process; the warm ones too, on request"
    found, parent = [], parent or os.getpid()
    mark = f'{MARK}={parent}-'.encode()
    for entry in Path('/proc').glob('[0-9]*'):
        try:
            state, born_of = (entry / 'stat').read_text().rsplit(')', 1)[1].split()[:2]
            if state != 'Z' and mark in (entry / 'environ').read_bytes() and (servers or int(born_of) != parent):
                found.append(int(entry.name))
        except OSError: pass        # it has ended meanwhile
    return found
