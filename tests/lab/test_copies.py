"""`evolora lab`: the notebooks travel with the package, the copies are the user's, JupyterLab gets what was asked."""
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from packages import build
from evolora.experiments.study_plan import own_studies
from evolora.lab import open_notebooks as notebooks
from evolora.cli.app import main
from evolora.lab.open_notebooks import copy_notebooks, lab_command, lab_notebooks

FIRST = '01_step_generations.ipynb'


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    (tmp_path / 'here').mkdir()
    monkeypatch.chdir(tmp_path / 'here')


@pytest.fixture
def started(monkeypatch):
    "What would have been started"
    commands = []
    monkeypatch.setattr(os, 'execv', lambda path, command: commands.append((path, *command)))
    return commands


def run(*arguments):
    with pytest.raises(SystemExit) as ended: main(['lab', *map(str, arguments)])
    return ended.value.code or 0


def test_a_changed_copy_is_kept_and_a_missing_one_comes_back(tmp_path, monkeypatch):
    (tmp_path / 'shipped').mkdir()
    for name in 'abc': (tmp_path / 'shipped' / f'{name}.ipynb').write_text(name)
    monkeypatch.setattr(notebooks, 'lab_notebooks', lambda: sorted((tmp_path / 'shipped').iterdir()))
    assert set(copy_notebooks('mine/own').values()) == {'copied'}
    Path('mine/own/a.ipynb').write_text('A')
    Path('mine/own/b.ipynb').unlink()
    assert copy_notebooks('mine/own') == {'a.ipynb': 'changed', 'b.ipynb': 'copied', 'c.ipynb': 'unchanged'}
    assert [Path(f'mine/own/{name}.ipynb').read_text() for name in 'abc'] == ['A', 'b', 'c']
    assert sorted(os.listdir('mine/own')) == ['a.ipynb', 'b.ipynb', 'c.ipynb'], 'something else was left behind'


@pytest.mark.parametrize('make', [Path.mkdir, lambda path: path.symlink_to('nowhere')], ids=['folder', 'dangling link'])
def test_what_has_the_name_of_a_notebook_is_maps_below(make):
    Path('mine').mkdir()
    make(Path('mine', FIRST))
    assert copy_notebooks('mine')[FIRST] == 'changed'
    assert not Path('mine/nowhere').exists() and not Path('mine', FIRST).is_file()


def test_the_command_copies_says_so_and_starts_jupyterlab(started, capfd):
    assert run('mine folder', '--no-browser', '--port', 8899, '--allow-root') == 0
    (path, *command), = started
    assert path == command[0] == sys.executable and command[1:3] == ['-m', 'jupyterlab']
    assert f'--ServerApp.root_dir={Path("mine folder").resolve()}' in command
    assert {'--no-browser', '--ServerApp.port=8899', '--allow-root',
            f'--LabApp.default_url=/lab/tree/{FIRST}'} <= set(command)
    assert Path('mine folder', FIRST).read_bytes() == lab_notebooks()[0].read_bytes()
    assert 'copied now: ' in capfd.readouterr().out


def test_copy_only_starts_nothing_and_names_what_was_kept(started, capfd):
    assert run('--copy-only') == 0 and started == []
    Path('evolora-lab', FIRST).write_text('mine')
    assert run('--copy-only') == 0
    assert f'{FIRST} was changed and stays so' in capfd.readouterr().out
    assert Path('evolora-lab', FIRST).read_text() == 'mine'


def test_a_plain_command_asks_for_a_browser_and_for_no_port(monkeypatch):
    monkeypatch.setattr(os, 'geteuid', lambda: 1000, raising=False)
    assert lab_command('mine')[5:] == []


def test_what_cannot_start_is_one_line_and_an_untouched_disk(started, monkeypatch, capfd):
    monkeypatch.setattr(os, 'geteuid', lambda: 0, raising=False)
    assert run() == 2 and 'add --allow-root' in (text := capfd.readouterr().err) and text.count('\n') == 1
    monkeypatch.setattr(notebooks, 'find_spec', lambda _: None)
    assert run('--allow-root') == 2 and 'pip install jupyterlab' in capfd.readouterr().err
    assert os.listdir() == started == []
    Path('file').write_text('')
    for folder in ('file', 'file/below'):
        assert run(folder, '--copy-only') == 2
        assert capfd.readouterr().err.count('\n') == 1
    assert run('--port', 0, '--copy-only') == 2


def test_a_package_without_notebooks_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(notebooks.evolora, '__file__', str(tmp_path / 'evolora' / '__init__.py'))
    with pytest.raises(ValueError, match='expected lab notebooks in .*_lab, got none; install evolora again'):
        lab_notebooks()


@pytest.fixture(scope='module')
def built(tmp_path_factory):
    "A source distribution, and the wheel that is built from it alone"
    pytest.importorskip('setuptools', minversion='70.1', reason='setuptools, which builds packages, is not installed')
    return build(tmp_path_factory.mktemp('dist'))


def test_the_notebooks_and_the_studies_travel_with_the_package(built, tmp_path):
    source, wheel = built
    with tarfile.open(source) as archive: names = {name.partition('/')[2] for name in archive.getnames()}
    assert {'settings.ini', f'nbs/lab/{FIRST}'} <= names
    with zipfile.ZipFile(wheel) as archive: archive.extractall(tmp_path / 'site')
    code = 'from evolora.lab.open_notebooks import lab_notebooks; print(*lab_notebooks(), sep="\\n")'
    env = os.environ | {'PYTHONPATH': str(tmp_path / 'site')}
    done = subprocess.run([sys.executable, '-c', code], cwd=tmp_path / 'site', env=env, capture_output=True, text=True,
                          check=True)
    found = [Path(line) for line in done.stdout.split()]
    assert found == sorted((tmp_path / 'site' / 'evolora' / '_lab').glob('*.ipynb'))
    assert [path.name for path in found] == [path.name for path in lab_notebooks()]
    code = 'from evolora.experiments.study_plan import own_studies; print(*own_studies().values(), sep="\\n")'
    done = subprocess.run([sys.executable, '-c', code], cwd=tmp_path / 'site', env=env, capture_output=True, text=True,
                          check=True)
    studies = [Path(line) for line in done.stdout.split()]
    assert studies == sorted((tmp_path / 'site' / 'evolora' / '_studies').glob('*.yaml'))
    assert {path.stem for path in studies} == set(own_studies())
