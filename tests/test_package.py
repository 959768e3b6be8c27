"What is built can be installed and used without the checkout, and its version stands in one place."
import json
import os
import re
import subprocess
import sys
import sysconfig
import zipfile
from configparser import ConfigParser
from email.parser import Parser

import pytest
from packages import ROOT, build

import evolora

settings = ConfigParser(delimiters=['='])
settings.read(ROOT / 'settings.ini', encoding='utf-8')
SETTINGS = settings['DEFAULT']


@pytest.fixture(scope='module')
def wheel(tmp_path_factory):
    pytest.importorskip('setuptools', minversion='70.1', reason='setuptools, which builds packages, is not installed')
    return build(tmp_path_factory.mktemp('dist'))[1]


def test_the_version_of_settings_ini_is_the_only_one():
    version = SETTINGS['version']
    assert re.fullmatch(r'\d+\.\d+\.\d+', version) and evolora.__version__ == version
    cite = re.search(r'^  version = \{(.*)\},$', (ROOT / 'README.md').read_text(encoding='utf-8'), re.M)
    assert cite[1] == version, 'edit nbs/index.ipynb, then python tests/readme.py --write'
    heading = re.search(r'^## (\S+?),? ', (ROOT / 'nbs/changelog.md').read_text(encoding='utf-8'), re.M)
    assert heading[1] == version, 'nbs/changelog.md says first what this version brings'
    written = [path.name for path in (ROOT / 'evolora').rglob('*.py')
               if re.search(rf'''^\s*(VERSION|__version__|_?version)\s*=\s*['"]''', path.read_text('utf-8'), re.M)]
    assert written == ['__init__.py'], 'ask evolora.__version__'


def test_the_wheel_has_the_version_the_bounds_and_the_python_of_settings_ini(wheel):
    with zipfile.ZipFile(wheel) as archive:
        name, = [name for name in archive.namelist() if name.endswith('.dist-info/METADATA')]
        about = Parser().parsestr(archive.read(name).decode())
    assert about['Version'] == SETTINGS['version'] and about['Requires-Python'] == f">={SETTINGS['min_python']}"
    needed = [line.partition(';')[0].strip() for line in about.get_all('Requires-Dist') if 'extra ==' not in line]
    name_of = lambda line: re.split('[<>=]', line)[0].lower().replace('_', '-')
    plain = lambda line: (name_of(line), frozenset(re.findall('[<>=]+[^,]+', line)))
    assert set(map(plain, needed)) == set(map(plain, SETTINGS['requirements'].split()))


def test_every_requirement_has_a_lower_bound():
    assert [line for line in SETTINGS['requirements'].split() if '>=' not in line] == []


def test_the_wheel_holds_every_file_of_the_package(wheel):
    kept = lambda path: '__pycache__' not in path.parts and not path.name.startswith('.')
    files = [path for path in (ROOT / 'evolora').rglob('*') if path.is_file()]
    mine = {path.relative_to(ROOT).as_posix() for path in filter(kept, files)}
    with zipfile.ZipFile(wheel) as archive: names = set(archive.namelist())
    assert mine <= names, f'add them to package_data in setup.py: {sorted(mine - names)[:8]}'
    more = {name for name in names - mine if '.dist-info/' not in name}
    assert all(name.startswith(('evolora/_lab/', 'evolora/_studies/')) for name in more), sorted(more)[:8]


@pytest.fixture(scope='module')
def elsewhere(wheel, tmp_path_factory):
    "An environment with the wheel, far from the checkout; what it requires comes from the one that runs this test"
    place = tmp_path_factory.mktemp('elsewhere')
    subprocess.run([sys.executable, '-m', 'venv', '--without-pip', place / 'venv'], check=True)
    site, = (place / 'venv').glob('lib/python*/site-packages')
    with zipfile.ZipFile(wheel) as archive: archive.extractall(site)
    (site / 'others.pth').write_text('\n'.join({sysconfig.get_path('purelib'), sysconfig.get_path('platlib')}) + '\n')
    env = {k: x for k, x in os.environ.items() if k != 'PYTHONPATH'} | {'COLUMNS': '80', 'OMP_NUM_THREADS': '1'}

    def run(*arguments, code='from evolora.cli.app import main; main()'):
        done = subprocess.run([place / 'venv/bin/python', '-c', code, *arguments], cwd=place, env=env, text=True,
                              capture_output=True)
        assert done.returncode == 0, done.stderr[-2000:]
        return done.stdout

    return run


@pytest.mark.slow
def test_what_is_installed_works_without_the_checkout(elsewhere):
    code = ('import evolora; names = {n: str(getattr(evolora, n)) for n in evolora.__all__}; '
            'print(evolora.__file__, len(names), *evolora.load_config("stakes").cells)')
    place, names, *cells = elsewhere(code=code).split()
    assert 'elsewhere' in place and int(names) > 30 and cells
    assert elsewhere('--version').strip() == f'evolora {evolora.__version__}'
    commands = elsewhere('--help')
    assert all(word in commands for word in ('runs', 'lab', 'study'))
    assert 'JupyterLab' in elsewhere('lab', '--help')
    assert 'copied now: 5' in elsewhere('lab', '--copy-only')
    said = elsewhere('run', '--config', 'debug', '--generations', '2', '--out', 'runs/a')
    assert 'report: ' in said and 'go on: ' in said
    row, = json.loads(elsewhere('runs', '--json'))['rows']
    assert (row['name'], row['state'], row['preset'], row['generations'], row['aim']) == ('a', 'done', 'debug', 2, 2)


def test_the_small_of_it(elsewhere):
    assert 'elsewhere' in elsewhere(code='import evolora; print(evolora.__file__)')
    assert elsewhere('--version').strip() == f'evolora {evolora.__version__}'
