"""The house: what lies where, who may import whom, and how large a module may grow.

The import rule: a module imports only modules whose notebook comes earlier by file name. It holds wherever the import
stands: at the top, under `if TYPE_CHECKING`, or lazily inside a function. Being lazy saves time; it does not break a
cycle of ideas. Only for heavy libraries does the place matter: some modules may need them, but only when they are used.

`import evolora` took 2 ms when this was written (0.3 s is allowed). No clock is asserted: that nothing but the package
itself is loaded says the same on every machine.
"""
import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from evolora.theme import lacks

ROOT = Path(__file__).resolve().parents[1]
NBS, PACKAGE = ROOT / 'nbs', ROOT / 'evolora'
TOP_LEVEL = {'nbs', 'evolora', 'settings.ini', 'setup.py', 'tests', 'README.md', 'CONTRIBUTING.md', 'LICENSE', '.ci',
             '.gitignore'}

# Modules of evolora.attention that may import torch at the top.
ATTENTION = '''
    operations mixers dynamics regression matrices frameworks programs hosting corpus ladder training validation
    evaluation diversity proposals edits endpoint grammar openevolve discovery findings records pictures
    account panel standards bridge'''.split()

# Libraries that few modules may import: at the top, and only inside functions.
HEAVY = {
    'torch': ({'adapters', 'credit', 'decoder', 'engine', 'generation', 'gguf', 'host', 'plasticity', 'pretraining',
               'trees',
               'organelles', 'merging', 'variation', 'exams', 'assimilation', 'trials', 'demography', 'configuration',
               'controls', 'profiles', 'ecology', 'state', 'checkpoints', 'sessions', 'audit', 'training', 'baselines',
               'export', 'comparison', 'inspection', 'runner', 'views', 'weights', 'widgets', 'window', 'lab',
               'overhead',
               'acceptance', 'benchmarks', 'learning', 'results', 'survival', 'twins', 'flops', 'calibration', 'real',
               'forgetting',
               *(f'attention.{name}' for name in ATTENTION)},
              {'runs', 'doctor', 'bench', 'cli'}),
    'altair': ({'theme', 'charts', 'attempts', 'inspection', 'live', 'report', 'dashboard', 'timeline', 'weights',
                *(f'attention.{name}' for name in ('pictures', 'account', 'panel'))},
               {'cli', 'bench', 'results'}),
    'vl_convert': ({'theme', 'page', 'timeline'}, set()),
    'ipywidgets': ({'widgets', 'window', 'lab', 'attention.panel'}, set()),
    'IPython': ({'lab'}, set()),           # which cell is run
}
LIKE_TORCH = {'transformers', 'peft', 'accelerate', 'safetensors.torch'}    # importing these imports torch


def place(path):
    "Where a module notebook comes in reading order"
    if path.parent == NBS: return path.stem
    # Mechanisms stand below the host, which may be built of one; the search for them stands on everything but commands.
    return f"{'00' if path.stem < '10' else '19'}_~{path.stem}"


# name → notebook, in import order
MODULES = {'.'.join([*path.relative_to(NBS).parts[:-1], path.stem.split('_', 1)[1]]): path for path in sorted(
    [*NBS.glob('[0-9]*.ipynb'), *NBS.glob('attention/[0-9]*.ipynb')], key=place)}
NOTEBOOKS = [path for path in sorted(NBS.rglob('*.ipynb'))
             if not any(part.startswith(('.', '_')) for part in path.relative_to(NBS).parts)]

VEGALITE = 'application/vnd.vegalite'
WIDTH = 120
SOURCES = [path for folder in (PACKAGE, ROOT / 'tests') for path in sorted(folder.rglob('*.py'))
           if path.name != '_modidx.py']


def ids(path): return path.relative_to(NBS).as_posix()
def load(path): return json.loads(path.read_text(encoding='utf-8'))
def module_of(name): return PACKAGE / f"{name.replace('.', '/')}.py"
def source(cell): return cell['source'] if isinstance(cell['source'], str) else ''.join(cell['source'])


def python(code):
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


def exported(path):
    "The lines of the exported cells of a notebook, without the directives"
    cells = [source(cell) for cell in load(path)['cells']
             if cell['cell_type'] == 'code' and re.match(r'#\|\s*export', source(cell))]
    return [line for cell in cells for line in cell.strip().split('\n') if not line.startswith('#|')]


def absolute(node, module):
    "The dotted names that an import statement in a module of the package may load"
    if isinstance(node, ast.Import): return [alias.name for alias in node.names]
    package = f'evolora.{module}'.split('.')[:-node.level]
    base = '.'.join(filter(None, [*(package if node.level else []), node.module or '']))
    return [base, *(f'{base}.{alias.name}' for alias in node.names)]


def imports(module, code):
    "(dotted name, whether it stands inside a function) of every import in a module of the package"
    def walk(node, lazy):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.Import, ast.ImportFrom)):
                yield from ((name, lazy) for name in absolute(child, module))
            yield from walk(child, lazy or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))
    return list(walk(ast.parse(code), False))


def wrong_order(module, code, order):
    "Modules of the package that this one imports although their notebook does not come before its own"
    # `gguf` is a library, and `evolora.gguf` a module of ours
    used = {name[8:] for name, _ in imports(module, code) if name.startswith('evolora.')} & set(order)
    return sorted(name for name in used if order.index(name) >= order.index(module))


def wrong_heavy(module, code):
    "Heavy libraries that this module imports where it may not"
    wrong = []
    for name, lazy in imports(module, code):
        like_torch = any(name == like or name.startswith(like + '.') for like in LIKE_TORCH)
        library = 'torch' if like_torch else name.split('.')[0]
        anywhere, lazily = HEAVY.get(library, ({module}, set()))
        if module not in anywhere and not (lazy and module in lazily): wrong.append(name)
    return wrong


def test_the_top_level_is_fixed():
    command = ['git', '-c', 'safe.directory=*', 'ls-files', '-z']
    try: done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip('this is no git checkout: what belongs to it is not known')
    assert {path.split('/')[0] for path in done.stdout.split('\0') if path} == TOP_LEVEL


def test_notebook_and_module_have_the_same_name():
    for name, path in MODULES.items():
        assert re.fullmatch(r'\d\d_[a-z]+', path.stem), f'{path.name}: expected two digits, an underscore and one word'
        named = [match[1] for cell in load(path)['cells']
                 if (match := re.match(r'#\|\s*default_exp\s+(\S+)', source(cell)))]
        assert named == [name], f'{path.name}: expected `#| default_exp {name}`, got {named}'
        module = module_of(name).read_text(encoding='utf-8')
        assert f'../nbs/{ids(path)}' in module, f'evolora.{name} comes from another notebook'


def test_every_module_has_a_notebook():
    assert len(set(MODULES)) == len([path for path in NOTEBOOKS if path.stem[:1].isdigit() and path.parent.name in (
        'nbs', 'attention')]), 'two notebooks write one module'
    found = {'.'.join(path.relative_to(PACKAGE).with_suffix('').parts) for path in PACKAGE.rglob('*.py')}
    assert found - {'__init__', '_modidx', 'attention.__init__'} == set(MODULES)


@pytest.mark.parametrize('name', MODULES)
def test_imports_go_back_in_reading_order(name):
    wrong = wrong_order(name, module_of(name).read_text(encoding='utf-8'), list(MODULES))
    assert not wrong, f'{MODULES[name].name} comes before, and so may not import: {wrong}'


@pytest.mark.parametrize('name', MODULES)
def test_heavy_libraries_stay_where_they_belong(name):
    wrong = wrong_heavy(name, module_of(name).read_text(encoding='utf-8'))
    assert not wrong, f'evolora.{name} may not import {wrong} there'


def test_the_rules_catch_what_they_are_for():
    order = ['tasks', 'host', 'economy']
    assert wrong_order('host', 'from .economy import x', order) == ['economy']
    assert wrong_order('host', 'def f():\n    from evolora import economy', order) == ['economy']
    assert wrong_order('host', 'def f():\n    import evolora.host', order) == ['host']
    assert wrong_order('host', 'from .tasks import x\nimport numpy', order) == []
    assert wrong_order('tasks', 'import host', order) == []
    order = ['attention.mixers', 'host', 'attention.search']
    assert wrong_order('attention.mixers', 'from ..host import x\nfrom .search import y', order) == sorted(order[1:])
    assert wrong_order('host', 'from evolora.attention import search', order) == ['attention.search']
    assert wrong_order('attention.search', 'from ..host import x\nfrom .mixers import y', order) == []
    assert wrong_heavy('economy', 'def f():\n    import torch.nn') == ['torch.nn']
    assert wrong_heavy('economy', 'from transformers import x') == ['transformers', 'transformers.x']
    assert wrong_heavy('cli', 'def f():\n    import torch') == wrong_heavy('host', 'import torch') == []
    assert wrong_heavy('cli', 'import torch') == ['torch'] and wrong_heavy('ecology', 'import altair') == ['altair']


def test_importing_the_package_loads_nothing_else():
    loaded = python('import sys; before = set(sys.modules); import evolora; print(*sorted(set(sys.modules) - before))')
    assert loaded == ['evolora']


def test_modules_without_torch_load_no_torch():
    pure = [name for name in MODULES if name not in HEAVY['torch'][0]]
    code = ''.join(f'import evolora.{name}\nif "torch" in sys.modules: print({name!r}); sys.exit()\n' for name in pure)
    assert python(f'import sys\n{code}') == [], 'the module named here, or one that it imports, loads torch'


@pytest.mark.parametrize('path', MODULES.values(), ids=ids)
def test_a_module_is_no_longer_than_a_reader_can_hold(path, record_property):
    lines = exported(path)
    record_property('exported_lines', len(lines))
    assert len(lines) <= 400, f'{path.name} exports {len(lines)} lines, at most 400 are wanted: it is two modules'


def too_wide(path):
    "The lines that a reader would have to scroll for; nbdev writes the list of names, and nobody reads it"
    generated, wide = False, []
    for number, line in enumerate(path.read_text(encoding='utf-8').split('\n'), 1):
        generated = line.startswith('__all__ = [') or generated
        if len(line) > WIDTH and not generated:
            wide.append(f'{path.name}:{number} has {len(line)} columns')
        if line.endswith(']'): generated = False
    return wide


@pytest.mark.parametrize('path', SOURCES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_line_is_too_wide(path):
    wide = too_wide(path)
    assert not wide, f'at most {WIDTH} are wanted: ' + ', '.join(wide)


def test_only_the_generated_list_of_names_may_be_wide(tmp_path):
    path, wide, fits = tmp_path / 'x.py', 'é' * (WIDTH + 1), 'é' * WIDTH
    path.write_text(f"__all__ = ['{wide}',\n           '{wide}']\n{fits}\n{wide}\n", encoding='utf-8')
    assert too_wide(path) == [f'x.py:4 has {WIDTH + 1} columns']


@pytest.mark.parametrize('path', MODULES.values(), ids=ids)
def test_a_module_notebook_opens_with_its_name_and_purpose(path):
    first = load(path)['cells'][0]
    assert first['cell_type'] == 'markdown' and re.match(rf"# {path.stem.split('_', 1)[1]}\n> \S", source(first))


@pytest.mark.parametrize('path', NOTEBOOKS, ids=ids)
def test_a_notebook_is_clean_and_small(path):
    nb, module = load(path), path in MODULES.values()
    names = [cell.get('id') for cell in nb['cells']]
    assert all(names) and len(set(names)) == len(names), 'every cell needs an id of its own'
    assert (nb['nbformat'], nb['nbformat_minor'] >= 5) == (4, True)
    assert nb['metadata'].get('kernelspec') == {'display_name': 'python3', 'language': 'python', 'name': 'python3'}
    assert set(nb['metadata']) <= {'kernelspec', 'widgets'}, 'run nbdev_clean'
    code = [cell for cell in nb['cells'] if cell['cell_type'] == 'code']
    assert all(cell['execution_count'] is None for cell in code), 'run nbdev_clean'
    outputs = [output for cell in code for output in cell['outputs']]
    assert not any(output['output_type'] == 'error' for output in outputs), 'an error was left in the outputs'
    kinds = [kind for output in outputs for kind in output.get('data', {})]
    view = 'application/vnd.jupyter.widget-view+json'
    assert 'widgets' in nb['metadata'] or view not in kinds, 'a widget without its state'
    if module: assert not any(kind.startswith('image/') for kind in kinds), 'a picture'
    size, limit = path.stat().st_size, 100_000 if module else 300_000
    assert size <= limit, f'{path.name} has {size} bytes, at most {limit} are wanted: keep outputs small'


def pictures(path):
    "(cell, mime bundle) of every chart that was saved as a specification"
    bundles = [(cell['id'], output.get('data', {})) for cell in load(path)['cells'] if cell['cell_type'] == 'code'
               for output in cell['outputs']]
    return [(cell, data) for cell, data in bundles if any(VEGALITE in kind for kind in data)]


def mute(path):
    "What the charts of a notebook do not say, and what a reader without JavaScript cannot see"
    wrong = [f'{cell}: {lack}' for cell, data in pictures(path) for kind, spec in data.items() if VEGALITE in kind
             for lack in lacks(spec)]
    if path in MODULES.values(): return wrong           # these have no pictures, and 18_benchmarks has a table instead
    return wrong + [f'{cell}: no picture beside the chart' for cell, data in pictures(path) if 'image/png' not in data]


@pytest.mark.parametrize('path', NOTEBOOKS, ids=ids)
def test_every_saved_chart_speaks(path):
    wrong = mute(path)
    assert not wrong, f'mend the cell and run {path.name} again: ' + '; '.join(wrong)


def test_there_are_charts_to_hear_and_a_mute_one_is_found(tmp_path):
    seen = {ids(path): len(pictures(path)) for path in NOTEBOOKS}
    assert seen['18_benchmarks.ipynb'] and seen['experiments/learning.ipynb']
    assert sum(seen.values()) > 30, seen
    spec = {'title': 'Drift', 'description': 'Drift by generation, which rises', 'mark': 'line', 'encoding': {
        'x': {'field': 'generation', 'type': 'quantitative', 'title': 'generation'},
        'y': {'field': 'drift', 'type': 'quantitative', 'title': 'drift'}}}
    output = {'output_type': 'display_data', 'data': {'application/vnd.vegalite.v5+json': spec}, 'metadata': {}}
    path = tmp_path / 'x.ipynb'
    path.write_text(json.dumps({'cells': [{'cell_type': 'code', 'id': 'a', 'outputs': [output]}]}), encoding='utf-8')
    assert mute(path) == ['a: y (drift) has no unit: drift', 'a: no picture beside the chart']


# A slider is dead without a kernel, so nothing of it is kept; the prose around it says what is seen.
SLIDERS = {'04_when_to_merge.ipynb': {'874da062'}, '05_energy_and_survival.ipynb': {'28564cc1'}}
SILENT = {'setup', 'cleanup', 'close'}      # what is called for what it does


def speaks(code):
    "Whether a cell shows something when it is run, by its last statement"
    if re.search(r'^#\|\s*(eval:\s*false|hide)', code, re.M) or code.rstrip().endswith(';'): return False
    *_, last = ast.parse(code).body or [None]
    name = lambda call: getattr(call.func, 'attr', getattr(call.func, 'id', ''))
    if isinstance(last, ast.Expr): return not (isinstance(last.value, ast.Call) and name(last.value) in SILENT)
    return isinstance(last, (ast.For, ast.With, ast.If)) and any(
        isinstance(node, ast.Call) and name(node) in ('print', 'display') for node in ast.walk(last))


def lost(path):
    "Cells whose outputs are not there, although readers who run nothing look for them"
    return [cell['id'] for cell in load(path)['cells'] if cell['cell_type'] == 'code' and not cell['outputs']
            and speaks(source(cell)) and cell['id'] not in SLIDERS.get(path.name, ())]


@pytest.mark.parametrize('path', sorted((NBS / 'tutorials').glob('*.ipynb')), ids=ids)
def test_a_tutorial_shows_what_it_talks_about(path):
    assert not (found := lost(path)), f'run {path.name} again: nothing is shown below {", ".join(found)}'


def test_a_cell_that_lost_its_output_is_found(tmp_path):
    codes = {'x = 6': False, 'x': True, 'x;': False, 'f(x).g': True, 'charts.setup(scale=.7)': False, 'setup().x': True,
             'for i in x: display(i)': True, 'def f(): print(x)': False, '#| eval: false\nx': False, '': False,
             '#| hide\nx': False, 'place.cleanup()': False, 'assert x, print': False, 'if x: print(x)': True}
    assert {code: speaks(code) for code in codes} == codes
    cells = [{'cell_type': 'code', 'id': str(i), 'outputs': [{}] * i, 'source': 'x'} for i in range(2)]
    path = tmp_path / 'x.ipynb'
    path.write_text(json.dumps({'cells': cells}), encoding='utf-8')
    assert lost(path) == ['0']
    for name, kept in SLIDERS.items():
        code = {cell['id']: source(cell) for cell in load(NBS / 'tutorials' / name)['cells']}
        assert all('Slider(' in code[cell] for cell in kept), name
