"""The house: what lies where, who may import whom, and how large a module may grow.

The rooms, their order and their map are in `rooms.py`. A room imports only rooms above it, and inside a room a module
imports only modules whose notebook comes before its own. It holds wherever the import stands: at the top, under
`if TYPE_CHECKING`, or lazily inside a function. Being lazy saves time; it does not break a cycle of ideas. Only for
heavy libraries does the place matter: some modules may need them, but only when they are used.

Each rule is one case, which names everything that offends it.
"""
import ast
import json
import re
import subprocess
import sys
from functools import cache
from importlib import import_module
from typing import Annotated

import pytest
from pydantic import BaseModel, Field, TypeAdapter, ValidationError

import evolora
import faces
import rooms
from evolora.analysis.theme import lacks
from rooms import MODULES, NBS, PACKAGE, ROOMS, ROOT, path_of, room_of, used_by, written

rooms.imports = imports = cache(rooms.imports)      # three rules look at every module: it is parsed once

TOP_LEVEL = {'nbs', 'evolora', 'settings.ini', 'setup.py', 'tests', 'README.md', 'CONTRIBUTING.md', 'LICENSE', '.ci',
             '.gitignore'}

# Libraries that only some rooms (or modules) may import: at the top, and only inside functions.
HEAVY = {
    'torch': ({'host.mechanisms', 'host', 'organelles', 'assimilation', 'ecology', 'society', 'evaluation', 'analysis',
               'training', 'islands', 'lab', 'attention.scoring', 'attention.search', 'attention.report',
               'experiments'},
              {'cli'}),
    'altair': ({'analysis', 'lab', 'attention.report', 'training.live'}, {'cli', 'experiments'}),
    'vl_convert': ({'analysis'}, set()),
    'ipywidgets': ({'lab', 'attention.report.panel', 'islands.islands_view'}, set()),
    'IPython': ({'lab', 'training.live', 'islands.islands_view', 'analysis.claims'}, set()),
}
LIKE_TORCH = {'transformers', 'peft', 'accelerate', 'safetensors.torch'}    # importing these imports torch
# Modules that load no torch, beside those of utils, economy, tasks and cli: what reads a run starts at once.
QUICK = {'host.downloads', 'assimilation.sequential', 'assimilation.gates',
         'ecology.record', 'ecology.diagnosis', 'ecology.run_folder', 'evaluation.evaluation', 'evaluation.routing',
         'evaluation.free_questions', 'analysis.tables', 'analysis.theme', 'analysis.gate_charts',
         'analysis.run_comparison', 'analysis.run_charts', 'analysis.offline_page', 'analysis.run_dashboard',
         'analysis.run_report', 'analysis.run_animation', 'analysis.trackers', 'analysis.run_list',
         'lab.open_notebooks', 'lab.live_charts',
         'attention.scoring.sandbox', 'attention.scoring.workers', 'attention.scoring.scaling',
         'islands.islands_folder'}
LIGHT = {'utils', 'economy', 'tasks', 'cli'}

NOTEBOOKS = [path for path in sorted(NBS.rglob('*.ipynb'))
             if not any(part.startswith(('.', '_')) for part in path.relative_to(NBS).parts)]
VEGALITE = 'application/vnd.vegalite'
WIDTH = 120
SOURCES = [path for folder in (PACKAGE, ROOT / 'tests') for path in sorted(folder.rglob('*.py'))
           if path.name != '_modidx.py']


def ids(path): return path.relative_to(NBS).as_posix()
def load(path): return json.loads(path.read_text(encoding='utf-8'))
def source(cell): return cell['source'] if isinstance(cell['source'], str) else ''.join(cell['source'])
def code_of(module): return path_of(module).read_text(encoding='utf-8')


def python(code):
    done = subprocess.run([sys.executable, '-c', code], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.split()


def exported(path):
    "The lines of the exported cells of a notebook, without the directives"
    cells = [source(cell) for cell in load(path)['cells']
             if cell['cell_type'] == 'code' and re.match(r'#\|\s*export', source(cell))]
    return [line for cell in cells for line in cell.strip().split('\n') if not line.startswith('#|')]


def wrong_order(module, code, order):
    "Modules of the package that this one imports although they do not come before it"
    return sorted(name for name in used_by(module, code, order) if order.index(name) >= order.index(module))


def wrong_heavy(module, code):
    "Heavy libraries that this module imports where it may not"
    wrong, own = [], {module, room_of(module)}
    for name, lazy in imports(module, code):
        like_torch = any(name == like or name.startswith(like + '.') for like in LIKE_TORCH)
        library = 'torch' if like_torch else name.split('.')[0]
        anywhere, lazily = HEAVY.get(library, (own, set()))
        if not own & anywhere and not (lazy and own & lazily): wrong.append(name)
    return wrong


def test_the_top_level_is_fixed():
    command = ['git', '-c', 'safe.directory=*', 'ls-files', '-z']
    try: done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip('this is no git checkout: what belongs to it is not known')
    assert {path.split('/')[0] for path in done.stdout.split('\0') if path} == TOP_LEVEL


def test_every_notebook_writes_the_module_of_its_name():
    wrong = []
    for name, path in MODULES.items():
        named = [match[1] for cell in load(path)['cells']
                 if (match := re.match(r'#\|\s*default_exp\s+(\S+)', source(cell)))]
        if named != [name]: wrong.append(f'{ids(path)}: expected `#| default_exp {name}`, got {named}')
        if f'nbs/{ids(path)}' not in code_of(name): wrong.append(f'evolora.{name} comes from another notebook')
    assert not wrong


def test_every_notebook_and_every_module_has_a_room():
    numbered = [path for path in NOTEBOOKS if path.relative_to(NBS).parts[0][:1].isdigit()]
    assert sorted(numbered) == sorted(MODULES.values()), 'a notebook outside of the rooms, or two of one name'
    found = {'.'.join(path.relative_to(PACKAGE).with_suffix('').parts) for path in PACKAGE.rglob('*.py')}
    assert {name for name in found if not name.rpartition('.')[2].startswith('_')} == set(MODULES)
    rooms = {path.name for path in PACKAGE.iterdir() if not path.name.startswith(('_', '.'))} - {'py.typed'}
    assert rooms == {room.split('.')[0] for room in ROOMS} and len(rooms) <= 16


def test_rooms_and_modules_import_one_way():
    order = list(MODULES)
    wrong = {name: found for name in MODULES if (found := wrong_order(name, code_of(name), order))}
    assert not wrong, f'these import what comes after them: {wrong}'


def test_heavy_libraries_stay_where_they_belong():
    wrong = {name: found for name in MODULES if (found := wrong_heavy(name, code_of(name)))}
    assert not wrong, f'these may not import that there: {wrong}'


def test_the_rules_catch_what_they_are_for():
    order = ['tasks.splits', 'host.model', 'host.pretraining', 'economy.market']
    assert wrong_order('host.model', 'from ..economy.market import x', order) == ['economy.market']
    assert wrong_order('host.model', 'def f():\n    from evolora.economy import market', order) == ['economy.market']
    assert wrong_order('host.model', 'def f():\n    import evolora.host.model', order) == ['host.model']
    assert wrong_order('host.model', 'from .pretraining import y', order) == ['host.pretraining']
    assert wrong_order('host.model', 'from ..tasks.splits import x\nimport numpy', order) == []
    assert wrong_order('host.pretraining', 'from .model import x', order) == []
    assert wrong_order('tasks.splits', 'import host', order) == []
    assert wrong_heavy('economy.market', 'def f():\n    import torch.nn') == ['torch.nn']
    assert wrong_heavy('economy.market', 'from transformers import x') == ['transformers', 'transformers.x']
    assert wrong_heavy('cli.app', 'def f():\n    import torch') == wrong_heavy('host.model', 'import torch') == []
    assert wrong_heavy('cli.app', 'import torch') == ['torch']
    assert wrong_heavy('ecology.ecology', 'import altair') == ['altair']
    assert wrong_heavy('attention.report.panel', 'import ipywidgets') == []
    assert wrong_heavy('attention.report.search_charts', 'import ipywidgets') == ['ipywidgets']


def test_the_map_and_the_pages_of_the_rooms_follow_the_house():
    old = [path.relative_to(NBS).as_posix() for path, text in written().items()
           if not path.exists() or path.read_text(encoding='utf-8') != text]
    assert not old, f'the house has changed: run `python tests/rooms.py --write` for {old}'


def test_importing_the_package_loads_nothing_but_the_lazy_loader():
    code = 'import sys, {0}; before = set(sys.modules); import evolora; print(*sorted(set(sys.modules) - before))'
    assert python(code.format('lazy_loader, ast')) == ['evolora']


def tops(): return {name for names in faces.NOUNS.values() for name in names} | {room.split('.')[0] for room in ROOMS}


def test_the_faces_hand_on_what_there_is():
    assert not faces.unwritten(), 'names have changed: run `python tests/faces.py --write`'
    assert set(dir(evolora)) == tops()
    lost = [f'{place}.{name}' for place in ('evolora', *(f'evolora.{room}' for room in ROOMS))
            for name in dir(import_module(place)) if not hasattr(import_module(place), name)]
    assert not lost


@pytest.mark.slow
def test_the_faces_hand_it_on_where_nothing_was_imported():
    found = python('import evolora; print(*dir(evolora)); [getattr(evolora, name) for name in dir(evolora)]')
    assert set(found) == tops()
    python(''.join(f'import evolora.{room} as room; [getattr(room, name) for name in dir(room)]\n' for room in ROOMS))


def test_modules_without_torch_load_no_torch():
    pure = [name for name in MODULES if name in QUICK or room_of(name) in LIGHT]
    assert QUICK <= set(MODULES)
    code = ''.join(f'import evolora.{name}\nif "torch" in sys.modules: print({name!r}); sys.exit()\n' for name in pure)
    assert python(f'import sys\n{code}') == [], 'the module named here, or one that it imports, loads torch'


def defaults(model):
    "(name, whether the field takes it) of each default of a model; pydantic itself never looks"
    for name, field in model.model_fields.items():
        if field.is_required() or field.default_factory: continue
        kind = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
        try: TypeAdapter(kind).validate_python(field.default)
        except ValidationError: yield f'{model.__name__}.{name}', False
        else: yield f'{model.__name__}.{name}', True


def test_a_default_is_a_value_that_its_field_takes():
    "Or settings that were written to a file are refused when they are read again"
    places = [f'evolora.{name}' for name in MODULES if 'BaseModel' in path_of(name).read_text(encoding='utf-8')]
    models = [x for place in places for x in vars(import_module(place)).values()
              if isinstance(x, type) and issubclass(x, BaseModel) and x.__module__ == place]
    found = [pair for model in models for pair in defaults(model)]
    assert len(found) > 200 and not [name for name, taken in found if not taken]
    class Wrong(BaseModel): rate: float = Field(.5, gt=1)
    assert [*defaults(Wrong)] == [('Wrong.rate', False)]


def test_a_module_is_no_longer_than_a_reader_can_hold():
    long = {ids(path): n for path in MODULES.values() if (n := len(exported(path))) > 400}
    assert not long, f'these export more than 400 lines, and are two modules each: {long}'


def too_wide(path):
    "The lines that a reader would have to scroll for; nbdev writes the list of names, which is not read"
    generated, wide = False, []
    for number, line in enumerate(path.read_text(encoding='utf-8').split('\n'), 1):
        generated = line.startswith('__all__ = [') or generated
        if len(line) > WIDTH and not generated:
            wide.append(f'{path.name}:{number} has {len(line)} columns')
        if line.endswith(']'): generated = False
    return wide


def test_no_line_is_too_wide():
    wide = [found for path in SOURCES for found in too_wide(path)]
    assert not wide, f'at most {WIDTH} are wanted: ' + ', '.join(wide)


def test_only_the_generated_list_of_names_may_be_wide(tmp_path):
    path, wide, fits = tmp_path / 'x.py', 'é' * (WIDTH + 1), 'é' * WIDTH
    path.write_text(f"__all__ = ['{wide}',\n           '{wide}']\n{fits}\n{wide}\n", encoding='utf-8')
    assert too_wide(path) == [f'x.py:4 has {WIDTH + 1} columns']


def test_a_module_notebook_opens_with_its_name_and_purpose():
    firsts = {path: load(path)['cells'][0] for path in MODULES.values()}
    wrong = [ids(path) for path, first in firsts.items() if first['cell_type'] != 'markdown'
             or not re.match(rf"# {path.stem.split('_', 1)[1]}\n> \S", source(first))]
    assert not wrong, f'expected `# name` and `> what it is for` in the first cell of: {wrong}'


def unclean(path):
    "What is wrong with a saved notebook"
    nb, module, wrong = load(path), path in MODULES.values(), []
    def expect(holds, what):
        if not holds: wrong.append(f'{ids(path)}: {what}')
    names = [cell.get('id') for cell in nb['cells']]
    expect(all(names) and len(set(names)) == len(names), 'every cell needs an id of its own')
    expect((nb['nbformat'], nb['nbformat_minor'] >= 5) == (4, True), 'another format')
    expect(nb['metadata'].get('kernelspec') == {'display_name': 'python3', 'language': 'python', 'name': 'python3'},
           'another kernel')
    expect(set(nb['metadata']) <= {'kernelspec', 'widgets'}, 'run nbdev_clean')
    code = [cell for cell in nb['cells'] if cell['cell_type'] == 'code']
    expect(all(cell['execution_count'] is None for cell in code), 'run nbdev_clean')
    outputs = [output for cell in code for output in cell['outputs']]
    expect(not any(output['output_type'] == 'error' for output in outputs), 'an error was left in the outputs')
    kinds = [kind for output in outputs for kind in output.get('data', {})]
    view = 'application/vnd.jupyter.widget-view+json'
    expect('widgets' in nb['metadata'] or view not in kinds, 'a widget without its state')
    if module: expect(not any(kind.startswith('image/') for kind in kinds), 'a picture')
    size, limit = path.stat().st_size, 100_000 if module else 300_000
    expect(size <= limit, f'{size} bytes, at most {limit} are wanted: keep outputs small')
    return wrong


def test_notebooks_are_clean_and_small():
    assert not (wrong := [found for path in NOTEBOOKS for found in unclean(path)]), '\n'.join(wrong)


def pictures(path):
    "(cell, mime bundle) of every chart that was saved as a specification"
    bundles = [(cell['id'], output.get('data', {})) for cell in load(path)['cells'] if cell['cell_type'] == 'code'
               for output in cell['outputs']]
    return [(cell, data) for cell, data in bundles if any(VEGALITE in kind for kind in data)]


def mute(path):
    "What the charts of a notebook lack, and what a reader without JavaScript cannot see"
    wrong = [f'{cell}: {lack}' for cell, data in pictures(path) for kind, spec in data.items() if VEGALITE in kind
             for lack in lacks(spec)]
    if path in MODULES.values(): return wrong           # these have no pictures, and speed has a table instead
    return wrong + [f'{cell}: no picture beside the chart' for cell, data in pictures(path) if 'image/png' not in data]


def test_every_saved_chart_speaks():
    wrong = {ids(path): found for path in NOTEBOOKS if (found := mute(path))}
    assert not wrong, f'mend the cells and run these again: {wrong}'


def test_there_are_charts_to_hear_and_a_mute_one_is_found(tmp_path):
    seen = {ids(path): len(pictures(path)) for path in NOTEBOOKS}
    assert seen['15_experiments/01_speed.ipynb'] and seen['experiments/learning.ipynb']
    assert sum(seen.values()) > 30, seen
    spec = {'title': 'Drift', 'description': 'Drift by generation, which rises', 'mark': 'line', 'encoding': {
        'x': {'field': 'generation', 'type': 'quantitative', 'title': 'generation'},
        'y': {'field': 'drift', 'type': 'quantitative', 'title': 'drift'}}}
    output = {'output_type': 'display_data', 'data': {'application/vnd.vegalite.v5+json': spec}, 'metadata': {}}
    path = tmp_path / 'x.ipynb'
    path.write_text(json.dumps({'cells': [{'cell_type': 'code', 'id': 'a', 'outputs': [output]}]}), encoding='utf-8')
    assert mute(path) == ['a: y (drift) has no unit: drift', 'a: no picture beside the chart']


# A slider is dead without a kernel, so nothing of it is kept; the prose around it describes what is seen.
SLIDERS = {'05_believing_a_merge.ipynb': {'874da062'}}
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


def test_a_tutorial_shows_what_it_talks_about():
    wrong = {path.name: found for path in sorted((NBS / 'tutorials').glob('*.ipynb')) if (found := lost(path))}
    assert not wrong, f'run these again: nothing is shown below the cells {wrong}'


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
