"""The faces of the rooms: what `from evolora.tasks import …` finds, and `from evolora import …`.

    python tests/faces.py --write    write an `__init__.py` and its stub for each room

A room hands on the names that its modules export, lazily: nothing is imported until it is asked for, and editors read
the stubs. Two modules of a room do not export the same name, and no module is called like a name that its room hands
on, so that `evolora.tasks.x` is never one thing in the morning and another at night.
"""
import ast
import sys

from rooms import PACKAGE, ROOMS, MODULES, path_of, room_of

NOUNS = {       # of a first afternoon: what the package itself hands on
    'ecology': ['Ecology', 'EcologyConfig', 'Session', 'begin_session', 'load_config', 'resume_session'],
    'host': ['Host', 'load_host'],
    'organelles': ['Organelle', 'Population', 'Traits'],
    'economy': ['Market'],
    'tasks': ['Cell', 'Family', 'Grade', 'Task', 'draw_tasks', 'register_family'],
    'evaluation': ['Evaluation', 'ask', 'calibrate', 'evaluate', 'export', 'fit_router'],
    'analysis': ['RunData', 'dashboard', 'list_runs', 'load', 'report'],
    'lab': ['Lab'],
    'training': ['export_all', 'train_adapters'],
}
# Rooms whose modules are used one by one: each experiment has Settings and an `experiment`, each command its name.
BY_MODULE = {'experiments', 'cli'}
ABOUT = {'attention': 'the search for attention mechanisms: scoring, search, report'}


def exported(module):
    "The names that a module exports; those that it only hands on belong to the module that they come from"
    tree, names, others = ast.parse(path_of(module).read_text(encoding='utf-8')), [], set()
    for node in tree.body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], 'id', '') == '__all__':
            names = ast.literal_eval(node.value)
        if isinstance(node, ast.ImportFrom): others |= {alias.asname or alias.name for alias in node.names}
    return [name for name in names if name not in others]


def names_of(room):
    "module → the names that its room hands on; ValueError for a name that would mean two things"
    modules = [m for m in MODULES if room_of(m) == room]
    stems, taken, found = {m.rpartition('.')[2] for m in modules}, {}, {}
    for module in modules:
        stem = module.rpartition('.')[2]
        for name in exported(module):
            if name in stems: raise ValueError(f'{room}: {module} exports {name}, and a module is called so too')
            if name in taken: raise ValueError(f'{room}: {name} is exported by {taken[name]} and by {module}')
            taken[name] = module
        found[stem] = sorted(exported(module))
    return found


def stub(lines): return ''.join(lines) or '...\n'


def listed(module, names):
    "An import that hands names on, in lines that fit"
    text = f'from .{module} import ('
    for name in names:
        part = f'{name} as {name}, '
        text += ('\n    ' if len(text.rpartition('\n')[2]) + len(part) > 116 or text.endswith('(') else '') + part
    return '\n'.join(line.rstrip() for line in text.split('\n')) + '\n)\n'


def faces():
    "path → text of every face"
    rooms = {**ABOUT, **{room: what for room, (_, what) in ROOMS.items()}}
    for room, what in rooms.items():
        folder = PACKAGE.joinpath(*room.split('.'))
        inner = sorted({r[len(room) + 1:].split('.')[0] for r in ROOMS if r.startswith(f'{room}.')})
        stems = [m.rpartition('.')[2] for m in MODULES if room_of(m) == room]
        lines = [f'from . import {name} as {name}\n' for name in sorted([*inner, *stems])]
        if room in ROOMS and room not in BY_MODULE:
            lines += [listed(module, names) for module, names in names_of(room).items() if names]
        yield folder / '__init__.py', (f'"""{what}"""\nimport lazy_loader\n\n'
                                       '__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)\n')
        yield folder / '__init__.pyi', stub(lines)
    tops = sorted({room.split('.')[0] for room in ROOMS})
    yield PACKAGE / '__init__.pyi', ''.join(
        [f'from . import {name} as {name}\n' for name in tops]
        + [listed(room, names) for room, names in NOUNS.items()] + ['__version__: str\n'])


def unwritten():
    return [path for path, text in faces() if not path.exists() or path.read_text(encoding='utf-8') != text]


if __name__ == '__main__':
    if sys.argv[1:] != ['--write']: sys.exit(__doc__)
    for path, text in faces(): path.write_text(text, encoding='utf-8')
