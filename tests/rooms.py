"""The rooms of the house, in the order in which they may import each other, and the map that is drawn of them.

    python tests/rooms.py            say what each room holds and imports
    python tests/rooms.py --write    draw nbs/images/rooms.svg, and write the page of each room
"""
import ast
import json
import sys
from functools import cache
from html import escape
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NBS, PACKAGE = ROOT / 'nbs', ROOT / 'evolora'

# package → (folder of its notebooks, what it is for); a room imports only rooms above it
ROOMS = {
    'utils': ('01_utils', 'one seed, whole files, registries, statistics, the terminal'),
    'economy': ('02_economy', 'the market of beliefs; what an answer costs and earns'),
    'tasks': ('03_tasks', 'task families, strict graders, four streams, curriculum, worlds'),
    'host.mechanisms': ('04_host/mechanisms', 'what an attention mechanism is'),
    'host': ('04_host', 'the frozen model: loading, decoding, metering, batched generation'),
    'organelles': ('05_organelles', 'the population of adapters, its learning rules, and scoring'),
    'assimilation': ('06_assimilation', 'merging of weights, sequential tests, gates, a child beside its parents'),
    'ecology': ('07_ecology', 'configuration, one generation, births and deaths, run folders, resume'),
    'society': ('08_society', 'what plugs into the loop: archive, auctions, ranks, messages, colonies, …'),
    'evaluation': ('09_evaluation', 'measuring without touching, routing, answers, export, calibration'),
    'analysis': ('10_analysis', 'tables, charts, report, dashboard, animation, comparison'),
    'lab': ('11_lab', 'the JupyterLab panels and the runner behind them'),
    'attention.scoring': ('12_attention/scoring', 'what a mechanism is worth: models, exam, sandbox'),
    'attention.search': ('12_attention/search', 'proposals, search, what it found'),
    'attention.report': ('12_attention/report', 'records, charts, the report of a search, its panel'),
    'training': ('13_training', 'many adapters of one model, trained side by side'),
    'islands': ('14_islands', 'many ecologies that exchange organelles, in one process or on a Ray cluster'),
    'experiments': ('15_experiments', 'rivals, headline experiments, every benchmark'),
    'cli': ('16_cli', 'the evolora command'),
}


# What a newcomer reads of a room, after its purpose
GUIDE = {
    'utils':
        'Nothing here knows of language models. Read `randomness` first: it is short, and why a run can be '
        'repeated bit for bit begins there.',
    'economy':
        'Pure arithmetic, testable in milliseconds. `market` first: stakes that move by likelihood say who is '
        'believed. `prices` has what an answer costs and earns, at exchange rates that nobody pays.',
    'tasks':
        'Read `families` first: it has the smallest family, its strict grader, and how a family of your own '
        'is registered. `splits` keeps training, selection, gate and holdout questions apart; `worlds` says which '
        'answer is right when.',
    'host.mechanisms':
        'An attention mechanism is a class with a few hooks. Read `mixer`, then one of the three frameworks; '
        '`program_source` defines which untrusted source code is accepted.',
    'host':
        'Read `model` first: load a host, ask it, meter it. `engine` and `fast_layers` are why thousands of short '
        'answers are cheap; nothing above them needs to know how.',
    'organelles':
        'Read `population` first: births, deaths, answers, and peft in and out. Then `learning_rules`: which '
        'weights deserve a reward, by four rules, and `updates`, which takes the step. `scoring` asks all at once how '
        'likely they would have given an answer.',
    'assimilation':
        'When two adapters become one. Read `merging`, then `sequential`: evidence that may be looked at '
        'after every pair. `gates` are the named reasons why two organelles are not merged; `merge_test` lets a child '
        'stand beside the pair that it would replace.',
    'ecology':
        'Read `ecology` first: one generation, step by step, then `serving` (who answers) and `succession` (who has '
        'children, and who leaves). `lifecycle` carries out every birth and every death with '
        'its reason, `config` everything that can be set, `runs` and `sessions` the folder of a run and how '
        'it goes on.',
    'society':
        'Each module is a part that a configuration switches on under `society:`; none is needed for a life. What a '
        'part is stands in `ecology.parts`.',
    'evaluation':
        'Measuring changes nothing. Read `evaluation`, then `forgetting`: what an adapter changes where '
        'nothing was asked of it. `routing` decides which organelle answers, `free_questions` answers free '
        'questions.',
    'analysis':
        'Tables first (`tables`), then `run_charts` with one look (`theme`), then pages that hold them.',
    'lab':
        'The panels of JupyterLab. `lab` is what people call; `runner` keeps the ecology in a thread of its '
        'own; `widgets` know nothing of an ecology.',
    'attention.scoring':
        'Read `model_sizes` (the small transformers), then `exam` (predict, then reveal) and `evaluation`: a program '
        'is looked at, trained beside softmax at every size, and never twice. `sandbox` runs untrusted programs, and '
        '`cheats` are our attempts to fool all of this.',
    'attention.search':
        'Read `search` first. Proposers are `grammar`, `edits`, `endpoint` and `openevolve`; `rescoring` is '
        'what is left of a winner on fresh seeds.',
    'attention.report':
        'What a search found, and how sure that is.',
    'training':
        'A door of its own: no ecology is needed. Read `jobs` (what is to be trained), then `training` (the loop); '
        '`passes` is why it is fast: one pass of the model for all adapters.',
    'islands':
        'Read `migration` first: it is a part of an ecology like any other, and all that must happen exactly once '
        'happens there. `islands` lets many live, one after the other or, by `on_ray`, on a cluster.',
    'experiments':
        'What an ecology has to beat, and whether it does. Read `baselines`, then the studies, from `study_plan` (the '
        'file) to `study_report`. The rest are benchmarks, behind `evolora bench`.',
    'cli':
        'The `evolora` command. `app` has most of it; heavy modules are imported when a command runs.',
}


def notebooks_of(room):
    "The notebooks of a room, in reading order"
    return sorted((NBS / ROOMS[room][0]).glob('[0-9][0-9]_*.ipynb'))


# module → notebook, in the order in which they may import each other
MODULES = {f"{room}.{path.stem.split('_', 1)[1]}": path for room in ROOMS for path in notebooks_of(room)}


def room_of(module): return module.rpartition('.')[0]
def path_of(module): return PACKAGE / f"{module.replace('.', '/')}.py"


def imports(module, code):
    "(dotted name, whether it stands inside a function) of every import in a module of the package"
    def absolute(node):
        if isinstance(node, ast.Import): return [alias.name for alias in node.names]
        package = f'evolora.{module}'.split('.')[:-node.level]
        base = '.'.join(filter(None, [*(package if node.level else []), node.module or '']))
        return [base, *(f'{base}.{alias.name}' for alias in node.names)]
    def walk(node, lazy):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, (ast.Import, ast.ImportFrom)): yield from ((name, lazy) for name in absolute(child))
            yield from walk(child, lazy or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))
    return list(walk(ast.parse(code), False))


def used_by(module, code, known):
    "Modules of the package that this one imports, at the top or lazily"
    return {name[8:] for name, _ in imports(module, code) if name.startswith('evolora.')} & set(known)


@cache
def arrows():
    "(room, room it imports) → pairs of modules"
    found = {}
    for module in MODULES:
        for other in sorted(used_by(module, path_of(module).read_text(encoding='utf-8'), MODULES)):
            if room_of(module) != room_of(other):
                found.setdefault((room_of(module), room_of(other)), []).append((module, other))
    return found


# ---- the map -------------------------------------------------------------------------------------------------------
WIDE, LEFT, GAP, LINE = 560, 20, 14, 15


def wrapped(words, most=84):
    lines = ['']
    for word in words:
        if len(lines[-1]) + len(word) + 2 > most: lines.append('')
        lines[-1] += (', ' if lines[-1] else '') + word
    return lines


def drawn():
    "The map as SVG: a box a room, and an arc to each room that it imports, the thicker the more modules do"
    boxes, y = {}, 20
    for room in ROOMS:
        names = wrapped([path.stem.split('_', 1)[1] for path in notebooks_of(room)])
        high = 40 + LINE * len(names)
        boxes[room] = (y, high, names)
        y += high + GAP
    middle = {room: at + high / 2 for room, (at, high, _) in boxes.items()}
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1000 {y + 10}" font-family="sans-serif" '
           'font-size="12">', '<title>The rooms of evolora: each imports only rooms above it</title>',
           f'<rect width="1000" height="{y + 10}" fill="white"/>']
    order = list(ROOMS)
    for (room, other), pairs in sorted(arrows().items(), key=lambda a: (order.index(a[0][0]), order.index(a[0][1]))):
        a, b, far = middle[room], middle[other], LEFT + WIDE
        reach = far + 30 + 330 * abs(a - b) / y
        out.append(f'<path d="M{far} {a:.0f} C{reach:.0f} {a:.0f} {reach:.0f} {b:.0f} {far + 4} {b:.0f}" fill="none" '
                   f'stroke="#0072B2" stroke-opacity=".35" stroke-width="{min(.8 + .35 * len(pairs), 6):.1f}">'
                   f'<title>{room} imports {other}: {len(pairs)} pairs of modules</title></path>'
                   f'<path d="M{far} {b:.0f} l7 -4 v8 z" fill="#0072B2"/>')
    for room, (at, high, names) in boxes.items():
        out.append(f'<rect x="{LEFT}" y="{at}" width="{WIDE}" height="{high}" rx="8" fill="#F7F4EC" stroke="#999"/>'
                   f'<text x="{LEFT + 12}" y="{at + 19}"><tspan font-weight="bold" font-size="14">{room}</tspan>'
                   f'<tspan dx="10" fill="#555">{escape(ROOMS[room][1])}</tspan></text>')
        out += [f'<text x="{LEFT + 12}" y="{at + 38 + LINE * i}">{", ".join([line])}</text>'
                for i, line in enumerate(names)]
    return '\n'.join(out + ['</svg>']) + '\n'


MAP = NBS / 'images' / 'rooms.svg'


def page_of(room):
    "The page of a room as Markdown: what it is for, what to read first, its modules, and what it imports"
    folder, what = ROOMS[room]
    rows = []
    for path in notebooks_of(room):
        first = json.loads(path.read_text(encoding='utf-8'))['cells'][0]['source']
        title, purpose = ''.join(first).split('\n')[:2]
        rows.append(f"| [{title[2:]}]({path.name}) | {purpose.removeprefix('> ')} |")
    used = [b for a, b in arrows() if a == room]
    inner = [f"[{r}]({ROOMS[r][0].removeprefix(folder + '/')}/README.md)" for r in ROOMS if r.startswith(f'{room}.')]
    up = '../' * (folder.count('/') + 1)
    return '\n'.join([
        f'# {room}', '', f'{what[0].upper()}{what[1:]}. `from evolora.{room} import …`' if room != 'cli' else
        f'{what[0].upper()}{what[1:]}.', '', GUIDE[room], '', '| module | what it is |', '|---|---|', *rows, '',
        f"It imports {', '.join(f'[{r}]({up}{ROOMS[r][0]}/README.md)' for r in used) or 'no other room'}."
        + (f" Inside of it: {', '.join(inner)}." if inner else '')
        + f' [The map of all rooms]({up}images/rooms.svg).', ''])


def written():
    "path → text of all that is made here"
    return {MAP: drawn(), **{NBS / ROOMS[room][0] / 'README.md': page_of(room) for room in ROOMS}}

if __name__ == '__main__':
    if sys.argv[1:] == ['--write']:
        for path, text in written().items(): path.write_text(text, encoding='utf-8')
    elif sys.argv[1:]: sys.exit(__doc__)
    else:
        found = arrows()
        for room, (_, what) in ROOMS.items():
            print(f'{room}: {what}\n    {", ".join(p.stem[3:] for p in notebooks_of(room))}\n    imports '
                  f'{", ".join(b for a, b in found if a == room) or "no room"}')
