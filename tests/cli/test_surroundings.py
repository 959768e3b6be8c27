"""The command in surroundings that lack something: a codec without a character, a user without a home."""
import io
import os
import re
import subprocess
import sys

import pytest
from synthetic import write_run

from evolora.analysis import theme
from evolora.cli import app
from evolora.ecology.drafts import _place
from evolora.host import downloads
from evolora.utils.files import in_home, read_yaml


def command(*arguments, folder, **env):
    "A finished `evolora …` in a process of its own"
    return subprocess.run([sys.executable, '-c', 'from evolora.cli.app import main; main()', *arguments], cwd=folder,
                          capture_output=True, env=os.environ | env)


@pytest.fixture
def homeless(monkeypatch):
    "A user that the system does not know, without HOME"
    import pwd
    def unknown(uid): raise KeyError(f'getpwuid(): uid not found: {uid}')
    monkeypatch.setattr(pwd, 'getpwuid', unknown)
    for name in ('HOME', 'EVOLORA_CACHE', 'XDG_CACHE_HOME'): monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize('codec', ['cp1252', pytest.param('latin-1', marks=pytest.mark.slow)])
def test_output_that_a_codec_lacks_a_character_of_is_shown_without_it(tmp_path, codec):
    done = command('config', 'debug', folder=tmp_path, PYTHONIOENCODING=codec)
    assert (done.returncode, done.stderr) == (0, b'') and b'--set NAME=VALUE' in done.stdout


@pytest.mark.parametrize('errors', ['strict', 'surrogateescape'])
def test_a_stream_of_the_c_locale_shows_what_it_lacks_as_question_marks(monkeypatch, errors):
    for name in ('stdout', 'stderr'):
        monkeypatch.setattr(sys, name, io.TextIOWrapper(io.BytesIO(), encoding='ascii', errors=errors))
    with pytest.raises(SystemExit) as ended: app.main(['config', 'debug', '--set', 'adapter.kind=ž'])
    sys.stderr.flush()
    assert ended.value.code == 2 and sys.stderr.buffer.getvalue().count(b'\n') == 1
    with pytest.raises(SystemExit) as ended: app.main(['config', 'debug', '--own'])
    assert not ended.value.code and b'market' in sys.stdout.buffer.getvalue()


@pytest.mark.parametrize('columns', ['0', '1', '19'])
def test_a_terminal_of_few_columns_is_taken_as_one_of_twenty(cli, monkeypatch, tmp_path, columns):
    write_run(tmp_path / 'run', generations=3)
    for command in (['config', 'debug', '--own'], ['watch', tmp_path / 'run', '--once'], ['runs', tmp_path]):
        monkeypatch.setenv('COLUMNS', '20')
        wanted = cli(*command)
        monkeypatch.setenv('COLUMNS', columns)
        found = cli(*command)
        assert found[0] == 0 and not found[2] and found[1].strip()
        assert found == wanted or columns == '0'        # then it is asked for its width


def test_a_unicode_error_is_a_sentence(monkeypatch, capsys):
    def fails(*arguments, **how): 'ž'.encode('latin-1')
    monkeypatch.setattr(app, 'app', fails)
    assert app._code(['config']) == 2
    line = capsys.readouterr().err
    assert "'latin-1' codec can't encode character" in line and 'PYTHONIOENCODING=utf-8' in line
    assert line.count('\n') == 1


@pytest.mark.parametrize('codec', ['utf-8', 'utf-8-sig', 'utf-16'])
def test_yaml_is_read_in_the_codecs_of_editors(tmp_path, codec):
    (path := tmp_path / 'a.yaml').write_text('name: Jürgen\n', encoding=codec)
    assert read_yaml(path) == {'name': 'Jürgen'}


def test_yaml_in_another_codec_is_one_line(tmp_path):
    (path := tmp_path / 'a.yaml').write_bytes('name: Jürgen\n'.encode('latin-1'))
    with pytest.raises(ValueError, match='a.yaml: expected text in UTF-8, got the byte 0xfc at position 7'):
        read_yaml(path)


def test_without_a_home_what_needs_one_says_so(homeless):
    with pytest.raises(ValueError, match='expected a home folder for .*, got none .*; set EVOLORA_CACHE'):
        downloads.cache_folder()
    with pytest.raises(ValueError, match='name a folder without ~'): _place('~/mine')
    with pytest.raises(ValueError, match='expected a home folder'): in_home('~nobody-of-this-name/x', 'name another')
    assert str(in_home('runs/~x', '')) == 'runs/~x'


def test_without_a_home_nothing_is_kept(homeless, tmp_path):
    (file := tmp_path / 'x.gguf').write_bytes(b'GGUF')
    assert downloads.known_file(file) is None
    assert not any(downloads.found(host) for host in downloads.KNOWN.values() if not host.hub)


def test_a_home_is_lent_only_while_a_library_asks(homeless):
    with theme._some_home(): assert os.path.expanduser('~') != '~'
    assert os.path.expanduser('~') == '~' and 'HOME' not in os.environ


@pytest.mark.slow
def test_a_run_on_the_embedded_host_needs_no_home(tmp_path):
    (tmp_path / 'sitecustomize.py').write_text('import os, pwd\nos.environ.pop("HOME", None)\n'
                                               'def unknown(uid): raise KeyError(uid)\npwd.getpwuid = unknown\n')
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get('PYTHONPATH'))))
    done = command('run', '--preset', 'debug', '--generations', '1', '--out', 'life', folder=tmp_path, PYTHONPATH=path,
                   PYTHONIOENCODING='cp1252')
    assert done.returncode == 0, done.stderr.decode(errors='replace')[-500:]
    assert len((tmp_path / 'life' / 'generations.jsonl').read_text().splitlines()) == 1


@pytest.mark.parametrize('text, written', [
    ('larger:1', r'\["larger:1"\]'), ('math:1, math:2', r'\["math:1", "math:2"\]')])
def test_a_list_given_as_text_is_answered_with_the_form_that_works(tmp_path, capsys, text, written):
    with pytest.raises(SystemExit): app.main(['config', 'debug', '--set', f'cells={text}'])
    line = capsys.readouterr().err
    assert re.search(f"write {written}, with --set 'cells={written}'", line) and line.count('\n') == 1
    works = re.search("--set '(.*)'", line)[1].replace('larger', 'math')
    with pytest.raises(SystemExit) as ended: app.main(['config', 'debug', '--set', works])
    assert not ended.value.code
