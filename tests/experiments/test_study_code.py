"""Which code made a cell: the same fingerprint on every Python, again from a commit, and the commit itself."""
import ast
import json
import subprocess
from pathlib import Path

import pytest

import evolora
from evolora.experiments.study_code import COMMIT, PACKAGE, code_commit, code_version, tree_text
from evolora.experiments.study_results import checked_cell, packed, read_cells

RESULTS = Path(__file__).parents[2] / 'nbs/experiments/results'
SOURCE = '''
class Cell:
    "Kept"
    x: int = 1
def width(value, sign=''):
    "As text"
    return f'{value:{sign}.{2}f}'
'''
# Written by `ast.dump` of Python 3.11, docstrings taken out. Python 3.12 and 3.13 would each write something else.
TEXT = (
    "Module(body=[ClassDef(name='Cell', bases=[], keywords=[], body=[AnnAssign(target=Name(id='x', ctx=Store()), "
    "annotation=Name(id='int', ctx=Load()), value=Constant(value=1), simple=1)], decorator_list=[]), "
    "FunctionDef(name='width', args=arguments(posonlyargs=[], args=[arg(arg='value'), arg(arg='sign')], kwonlyargs=[], "
    "kw_defaults=[], defaults=[Constant(value='')]), body=[Return(value=JoinedStr(values=[FormattedValue(value=Name("
    "id='value', ctx=Load()), conversion=-1, format_spec=JoinedStr(values=[FormattedValue(value=Name(id='sign', "
    "ctx=Load()), conversion=-1), Constant(value='.'), FormattedValue(value=Constant(value=2), conversion=-1), "
    "Constant(value='f')]))]))], decorator_list=[])], type_ignores=[])")


def git(folder, *arguments):
    return subprocess.run(['git', '-c', 'user.name=a', '-c', 'user.email=a@b.c', *arguments], cwd=folder, check=True,
                          capture_output=True, text=True).stdout.strip()


def write(package, **modules):
    for name, text in modules.items():
        (package / 'experiments').mkdir(parents=True, exist_ok=True)
        (package / f'experiments/{name}.py').write_text(text)


@pytest.fixture
def package(tmp_path):
    "A committed package of which `arms` and all of `host` decide"
    found = tmp_path / 'project/small'
    write(found, study_code="_DECIDING = ('host', 'experiments/arms.py')\n", arms='def arm(x): return x + 1\n')
    (found / 'host').mkdir()
    for path in (found / '__init__.py', found / 'host/model.py'): path.write_text('one = 1\n')
    git(found.parent, 'init', '--quiet')
    git(found.parent, 'add', '.')
    git(found.parent, 'commit', '-qm', 'first')
    return found


def test_a_tree_is_written_alike_on_every_python():
    assert tree_text(ast.parse(SOURCE)) == TEXT


def test_what_only_later_pythons_write_is_left_out():
    tree = ast.parse(SOURCE)
    later = type('FunctionDef', (ast.FunctionDef,), {'_fields': (*ast.FunctionDef._fields, 'type_params')})
    function = tree.body[1]
    fields = {field: getattr(function, field) for field in ast.FunctionDef._fields}
    tree.body[1] = later(**fields | {'type_params': []})
    function.body[-1].value.values[0].format_spec.values.append(ast.Constant(value=''))
    assert tree_text(tree) == TEXT
    tree.body[1].type_params = [ast.Name(id='T', ctx=ast.Load())]
    assert 'type_params=[Name' in tree_text(tree)


def test_a_fingerprint_comes_back_from_its_commit(package):
    commit, before = git(package, 'rev-parse', 'HEAD'), code_version(package=package)
    assert code_version(commit, package=package) == before
    write(package, arms='def arm(x):\n    "Adds"\n    return x + 1      # one\n', other='print(1)\n')
    assert code_version(package=package) == before, 'prose, and a module that decides nothing'
    write(package, arms='def arm(x): return x + 2\n')
    after = code_version(package=package)
    assert after != before and code_version('HEAD', package=package) == before
    git(package, 'commit', '-qam', 'second')
    assert code_version('HEAD', package=package) == after and code_version(commit[:10], package=package) == before


def test_a_commit_is_read_by_its_own_list_and_runs_nothing(package):
    "Older commits have their list in `study_plan`, with names in a row"
    (package / 'experiments/study_code.py').unlink()
    write(package, study_plan="raise SystemExit\n_DECIDING = ('host', *(\n"
                              "    f'experiments/{name}.py' for name in ('arms',)))")
    git(package, 'add', '--all')
    git(package, 'commit', '-qm', 'older')
    assert code_version('HEAD', package=package) == code_version('HEAD~1', package=package)
    (package / 'experiments/study_plan.py').write_text('')
    git(package, 'commit', '-qam', 'before there were studies')
    with pytest.raises(ValueError, match='studies began later'): code_version('HEAD', package=package)


def test_a_module_on_the_list_that_is_missing_is_named(package):
    (package / 'experiments/arms.py').unlink()
    with pytest.raises(ValueError, match='expected experiments/arms.py in the package'): code_version(package=package)


@pytest.mark.parametrize('commit', ['--all', 'nothing', 'HEAD~5', '', '--output=x'])
def test_what_is_no_commit_is_one_line(package, commit):
    with pytest.raises(ValueError, match='expected a commit of the checkout') as error:
        code_version(commit, package=package)
    assert '\n' not in str(error.value) and not list(package.parent.glob('x*'))


def test_a_commit_says_whether_the_files_are_those_of_it(package):
    commit = git(package, 'rev-parse', 'HEAD')
    assert code_commit(package) == commit
    (package.parent / 'notes.txt').write_text('outside of the package')
    assert code_commit(package) == commit
    (package / 'new.py').write_text('')
    assert code_commit(package) == f'{commit}+', 'a module that is not committed'
    (package / 'new.py').unlink()
    (package / 'host/model.py').write_text('one = 2\n')
    assert code_commit(package) == f'{commit}+'


def test_a_package_without_a_checkout_has_a_version(package, tmp_path, monkeypatch):
    version = f'version {evolora.__version__}'
    installed = package.parent / 'venv/evolora'
    installed.mkdir(parents=True)
    (installed / '__init__.py').write_text('')
    (package.parent / '.gitignore').write_text('venv\n')
    assert code_commit(installed) == version, 'the repository around it is not its own'
    assert code_commit(tmp_path) == version
    commit = git(package, 'rev-parse', 'HEAD')
    monkeypatch.setenv('GIT_DIR', str(tmp_path / 'elsewhere'))
    assert code_commit(package) == commit, 'a hook points git elsewhere'
    monkeypatch.setenv('PATH', '')
    assert code_commit(package) == version, 'there is no git'


def test_a_cell_may_have_a_commit_and_older_ones_have_none():
    bits = [True, False]
    cell = dict(format=1, condition='a', seed=1, hashes={}, gflops=1., ways={'adapter': {'id': {
        'families': {'math': [1, 2]}, 'bits': packed(bits)}}})
    for said in ({}, {'commit': code_commit()}, {'commit': 'a' * 40 + '+'}, {'commit': 'version 0.1.0'}):
        assert checked_cell(cell | said)
    for lie in ('', 'a' * 39, '<b>' + 'a' * 40, 'a' * 40 + '\n', 'version |', 5, ['a' * 40]):
        with pytest.raises(ValueError, match='commit'): checked_cell(cell | {'commit': lie})


@pytest.mark.slow
def test_the_committed_code_has_the_fingerprint_of_the_code_that_runs():
    commit = code_commit()
    if commit.startswith('version') or commit.endswith('+'): pytest.skip('the code that runs is in no commit')
    assert code_version(commit) == code_version()


MADE_FROM = {'d18b260': ('islands', 'society_real'), '2ce0339': ('rules', 'selection_longer', 'selection_longest'),
             '716d7e4': ('learning', 'longer', 'merges', 'untuned'), 'f888e9c': ('real', 'worlds_parts'),
             'c95a071': ('selection',), '370cd39': ('selection_default', 'society_screen'), '9897771': ('worlds',),
             '3fdff6a': ('society_allocation', 'society_archive'), '57c7807': ('worlds_seats',),
             '53c212b': ('society_confirmation', 'society_hazard'), '2f869b2': ('worlds_memory',),
             'ef17ed9': ('worlds_kinds', 'worlds_map', 'worlds_rivals'), '515fe4a': ('worlds_static',)}


@pytest.mark.slow
@pytest.mark.parametrize('commit', MADE_FROM)
def test_cells_that_recorded_no_commit_come_from_this_one(commit):
    "The first commit whose code has the fingerprint of the cells"
    try: version = code_version(commit)
    except ValueError: pytest.skip('this is no checkout with its history')
    for name in MADE_FROM[commit]:
        assert {cell['hashes']['code'] for cell in read_cells(RESULTS / name)} == {version}, name


def test_every_committed_study_has_its_commit():
    there = {path.parent.name for path in RESULTS.glob('*/study.json')
             if not all('commit' in cell for cell in read_cells(path.parent))}
    assert there == {name for names in MADE_FROM.values() for name in names}
