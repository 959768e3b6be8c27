"""A file is there completely or not at all, whatever interrupts; and what strangers wrote is refused in one line."""
import json
import os
import resource
import signal
import subprocess
import sys
import textwrap

import pytest
from endless import MADE

from evolora.utils import files
from evolora.utils.files import (about, append, checked_file, digest, locked, new_folder, owner, parse_json, read_file,
                                 read_json, sweep, truncate, write_whole)


def inside(code, *arguments, limit=None):
    "Run code in a process of its own, which may write files of at most `limit` bytes"
    def bound():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)       # too large is then an error and no death
        if limit is not None: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    return subprocess.run([sys.executable, '-c', textwrap.dedent(code), *map(str, arguments)], capture_output=True,
                          text=True, preexec_fn=bound)


# --- one file

@pytest.mark.parametrize('moment', ['write', 'fsync', 'replace'])
def test_a_write_that_fails_leaves_the_old_file_and_no_draft(tmp_path, monkeypatch, moment):
    write_whole(tmp_path / 'x', 'old')
    def fails(*arguments): raise OSError('disk')
    if moment == 'write': failed = inside("""
        import sys
        from evolora.utils.files import write_whole
        write_whole(sys.argv[1], b'n' * 5000)""", tmp_path / 'x', limit=1000).returncode != 0
    else:
        monkeypatch.setattr(os, moment, fails)
        with pytest.raises(OSError): write_whole(tmp_path / 'x', 'new')
        failed = True
    assert failed and [(p.name, p.read_text()) for p in tmp_path.iterdir()] == [('x', 'old')]


def test_the_bytes_are_on_the_disk_before_the_name_is(tmp_path, monkeypatch):
    "The order in which things reach the disk is the whole point"
    events, real = [], {name: getattr(os, name) for name in ('fsync', 'replace')}
    def noted(name): return lambda *args: (events.append(name), real[name](*args))[1]
    for name in real: monkeypatch.setattr(os, name, noted(name))
    write_whole(tmp_path / 'x', b'new')
    assert events == ['fsync', 'replace', 'fsync'] and (tmp_path / 'x').read_bytes() == b'new'


# --- a file that grows

def test_rows_are_added_together_or_not_at_all(tmp_path):
    append(tmp_path / 'x', b'one\n')
    done = inside("""
        import sys
        from evolora.utils.files import append
        try: append(sys.argv[1], b'n' * 5000)
        except OSError as e: print(e.strerror)""", tmp_path / 'x', limit=1000)
    assert done.stdout.strip() == 'File too large' and (tmp_path / 'x').read_bytes() == b'one\n'
    append(tmp_path / 'x', b'two\n')
    truncate(tmp_path / 'x', 5)
    assert (tmp_path / 'x').read_bytes() == b'one\nt'


# --- a folder

def test_a_folder_appears_when_it_is_full(tmp_path):
    with pytest.raises(KeyError), new_folder(tmp_path / 'a') as draft:
        (draft / 'x').write_text('x')
        raise KeyError
    assert not list(tmp_path.iterdir())
    with new_folder(tmp_path / 'b' / 'a') as draft:
        (draft / 'x').write_text('x')
        assert not (tmp_path / 'b' / 'a').exists()
    assert (tmp_path / 'b' / 'a' / 'x').read_text() == 'x'
    for taken in ('b', 'link'):
        (tmp_path / 'link').is_symlink() or (tmp_path / 'link').symlink_to('nowhere')
        with pytest.raises(ValueError, match='which exists'), new_folder(tmp_path / taken): pass
    (tmp_path / 'file').write_text('')
    with pytest.raises(ValueError, match='expected a place'), new_folder(tmp_path / 'file' / 'a'): pass


def test_of_two_that_make_one_folder_the_first_has_it(tmp_path):
    with pytest.raises(ValueError, match='which exists') as error, new_folder(tmp_path / 'a') as draft:
        (draft / 'x').write_text('second')
        (tmp_path / 'a').mkdir()
        (tmp_path / 'a' / 'x').write_text('first')
    assert '\n' not in str(error.value) and [p.name for p in tmp_path.iterdir()] == ['a']
    assert (tmp_path / 'a' / 'x').read_text() == 'first'


def test_drafts_of_the_killed_are_swept_and_nothing_else(tmp_path):
    for name in ('.a.1.tmp', '.b.2.tmp', 'c.tmp', '.d'): (tmp_path / name).mkdir()
    (tmp_path / '.f.3.tmp').write_text('')
    (tmp_path / '.l.4.tmp').symlink_to(tmp_path / 'c.tmp')
    sweep(tmp_path)
    assert {p.name for p in tmp_path.iterdir()} == {'c.tmp', '.d'}


KILLED = """
    import os, sys
    from evolora.utils.files import new_folder, write_whole
    if sys.argv[2] == 'file': os.fsync = lambda handle: os.kill(os.getpid(), 9)
    if sys.argv[2] == 'file': write_whole(sys.argv[1] + '/x', 'x')
    with new_folder(sys.argv[1] + '/x') as draft:
        write_whole(draft / 'x', 'x')
        os.kill(os.getpid(), 9)"""


@pytest.mark.parametrize('what', ['folder', 'file'])
def test_the_next_new_folder_takes_away_what_the_killed_left(tmp_path, what):
    assert inside(KILLED, tmp_path, what).returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith('.x.') and left.suffix == '.tmp'
    with new_folder(tmp_path / 'y'): assert not left.exists()
    assert [p.name for p in tmp_path.iterdir()] == ['y']


def test_drafts_of_the_living_and_of_strangers_stay(tmp_path):
    "Of this process, of its parent, of another machine, of another program"
    mine, dead = files._draft(tmp_path / 'x').name, 2**22 + 1
    kept = [mine, mine.replace(str(os.getpid()), str(os.getppid())), mine.replace(str(os.getpid()), '0'),
            f'.x.{"0" * 8}-{dead}.tmp', f'.x.{dead}.tmp', f'x.{files._MACHINE}-{dead}.tmp',
            f'.x.{files._MACHINE}-{"9" * 40}.tmp']
    gone = [mine.replace(str(os.getpid()), str(dead)), f'.a b-1.{files._MACHINE}-{dead}.tmp']
    for name in kept + gone: (tmp_path / name).mkdir()
    with new_folder(tmp_path / 'y'): pass
    assert {p.name for p in tmp_path.iterdir()} == {*kept, 'y'}


# --- fingerprints and JSON

def test_fingerprints_are_of_so_many_bytes(tmp_path):
    (tmp_path / 'x').write_bytes(bytes(3 << 20))
    (tmp_path / 'y').write_bytes(bytes(3 << 20) + b'more')
    (tmp_path / 'empty').touch()
    assert digest(tmp_path / 'x') == digest(tmp_path / 'y', 3 << 20) != digest(tmp_path / 'y')
    assert digest(tmp_path / 'x', 0) == digest(tmp_path / 'empty')
    with pytest.raises(ValueError, match=f'at least {4 << 20} bytes, got {3 << 20}'): digest(tmp_path / 'x', 4 << 20)


@pytest.mark.parametrize('data', [b'', b'{', b'[' * 10**5, b'NaN', b'-Infinity', b'\xff', b'"' + b'x' * 2000 + b'"',
                                  b'{"a": 1, "a": 1}', b'[{"b": {"a": 1, "c": [], "a": 2}}]'])
def test_what_is_no_json_is_refused_in_one_line(tmp_path, data):
    with pytest.raises(ValueError) as error: parse_json(data, 1000)
    assert '\n' not in str(error.value) and len(str(error.value)) < 200
    (tmp_path / 'x.json').write_bytes(data)
    with pytest.raises(ValueError, match='x.json expected') as error: read_json(tmp_path / 'x.json', 1000)
    assert '\n' not in str(error.value)


def test_an_object_is_wanted(tmp_path):
    (tmp_path / 'x.json').write_text('[1]')
    with pytest.raises(ValueError, match='expected a JSON object, got list'): read_json(tmp_path / 'x.json')
    with pytest.raises(ValueError, match='has no y.json'): read_json(tmp_path / 'y.json')
    (tmp_path / 'x.json').write_text('{"a": 1}')
    assert read_json(tmp_path / 'x.json') == {'a': 1}


def test_a_key_stands_once():
    assert parse_json(b'{"a": {"b": 1}, "b": {"a": 2, "b": null}}') == {'a': {'b': 1}, 'b': {'a': 2, 'b': None}}
    with pytest.raises(ValueError, match="'b' stands in it twice"): parse_json(b'{"a": 1, "b": {"b": 1}, "b": 3}')


@pytest.mark.parametrize('make', MADE)
@pytest.mark.parametrize('read', [read_file, read_json, checked_file])
def test_what_is_no_plain_file_is_not_read(tmp_path, read, make):
    make(tmp_path / 'x.json')
    named = 'at most' if make.__name__ == 'sparse' else 'a file, got a'
    with pytest.raises(ValueError, match=f'x.json expected {named}') as error: read(tmp_path / 'x.json')
    assert '\n' not in str(error.value)


def test_a_plain_file_is_read_as_far_as_it_may(tmp_path):
    (tmp_path / 'x').write_bytes(b'1234')
    (tmp_path / 'link').symlink_to('x')
    assert read_file(tmp_path / 'x', 4) == read_file(str(tmp_path / 'link')) == b'1234'
    assert checked_file(tmp_path / 'x') == tmp_path / 'x'
    with pytest.raises(ValueError, match='at most 3 bytes, got 4'): read_file(tmp_path / 'x', 3)
    with pytest.raises(FileNotFoundError): read_file(tmp_path / 'y')


def test_what_is_said_of_a_file_names_it(tmp_path):
    for text, said in (('expected a, got b', f'{tmp_path}: expected a, got b'), (f'{tmp_path}/x is bad',) * 2):
        with pytest.raises(ValueError) as error, about(tmp_path): raise ValueError(text)
        assert str(error.value) == said
    with pytest.raises(KeyError), about(tmp_path): raise KeyError


# --- one at a time

HOLD = """
    import sys, time
    from evolora.utils.files import locked
    with locked(sys.argv[1]) as last:
        print('mine', last, flush=True)
        time.sleep(60)"""


def test_the_second_process_is_refused_and_the_owner_is_named(tmp_path):
    with subprocess.Popen([sys.executable, '-c', textwrap.dedent(HOLD), str(tmp_path)], stdout=subprocess.PIPE,
                          text=True) as other:
        try:
            assert other.stdout.readline() == 'mine None\n'
            with pytest.raises(ValueError, match=f'process {other.pid} on') as error, locked(tmp_path): pass
            assert '\n' not in str(error.value)
        finally: other.kill()
    # Its lock died with it; its note did not.
    with locked(tmp_path) as last: assert last == f'process {other.pid} on {files.socket.gethostname()!r}'
    with locked(tmp_path) as last: assert last is None


def test_a_note_of_a_stranger_is_only_text(tmp_path):
    for note in ('{', '[]', json.dumps({'process': '\x1b[2J' * 100, 'machine': '\x1b[2J'})):
        (tmp_path / '.owner.json').write_text(note)
        assert len(owner(tmp_path)) < 120 and '\x1b' not in owner(tmp_path)


def test_a_lock_that_is_a_link_empties_no_file(tmp_path):
    "filelock before 3.20.1 followed it, and cut what it led to: so that version is the lower bound"
    (tmp_path / 'precious').write_text('kept')
    (tmp_path / '.lock').symlink_to(tmp_path / 'precious')
    (tmp_path / '.owner.json').write_text('{}')
    for look in (lambda: files.taken(tmp_path), lambda: locked(tmp_path).__enter__()):
        with pytest.raises(OSError): look()
    assert (tmp_path / 'precious').read_text() == 'kept'


def test_how_far_a_process_wanted_to_get_is_known_after_it_has_gone(tmp_path):
    with locked(tmp_path):
        assert files.aim_of(tmp_path) is None
        files.note_aim(tmp_path, 40)
        assert files.aim_of(tmp_path) == 40
    assert files.aim_of(tmp_path) is None and files.aim_of(tmp_path, last=True) == 40
    for bad in ('{', '[]', '{"aim": -1}', '{"aim": "x"}'):
        (tmp_path / '.aim.json').write_text(bad)
        assert files.aim_of(tmp_path, last=True) is None


def test_a_folder_goes_at_once_and_leaves_what_its_links_lead_to(tmp_path, monkeypatch):
    for name in ('goes/deep', 'stays'): (tmp_path / name).mkdir(parents=True)
    (tmp_path / 'stays/x').touch()
    (tmp_path / 'goes/deep/link').symlink_to(tmp_path / 'stays')
    monkeypatch.chdir(tmp_path)
    files.remove_folder('goes')
    assert [p.name for p in tmp_path.iterdir()] == ['stays'] and (tmp_path / 'stays/x').exists()
