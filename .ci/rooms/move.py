"""Move the flat house into rooms: notebooks, modules, imports, links, tests. Run once, in a clean checkout."""
import ast, json, os, re, subprocess, sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).parent))
from rooms import ROOMS, TESTS
NUMBER = {'utils': '01', 'economy': '02', 'tasks': '03', 'host': '04', 'organelles': '05', 'assimilation': '06',
          'ecology': '07', 'evaluation': '09', 'analysis': '10', 'lab': '11', 'attention': '12', 'experiments': '13', 'cli': '15'}
R = Path(sys.argv[1]).resolve()
os.chdir(R)
def folder(room): head, *rest = room.split('.'); return '/'.join([f'{NUMBER[head]}_{head}', *rest])
NAME, BOOK = {}, {}                      # dotted old → dotted new; old notebook path → new
for room, mods in ROOMS.items():
    for i, m in enumerate(mods, 1):
        old, _, new = m.partition('>'); new = new or old.split('.')[-1]
        NAME[f'evolora.{old}'] = f'evolora.{room}.{new}'
        stem = old.split('.')[-1]
        src = [p for p in Path('nbs/attention' if old.startswith('attention.') else 'nbs').glob(f'[0-9][0-9]_{stem}.ipynb')]
        assert len(src) == 1, (old, src)
        BOOK[src[0].as_posix()] = f'nbs/{folder(room)}/{i:02d}_{new}.ipynb'
git = lambda *a: subprocess.run(['git', *a], check=True, capture_output=True)
def mv(a, b):
    Path(b).parent.mkdir(parents=True, exist_ok=True)
    git('mv', a, b)

FROM = re.compile(r'^([ \t]*)from evolora(\.attention)? import ([\w, ]+?)([ \t]*(?:#.*)?)$', re.M)
INLINE = re.compile(r'from evolora(\.attention)? import (\w+)(?! as)(?=\\n|;|\')')
DOTTED = re.compile(r'(?<![\w./-])evolora\.(attention\.)?([a-z_]+)\b')
PATHS = re.compile(r'\bevolora/(attention/)?([a-z_]+)\.py\b')
BOOKS = re.compile(r'\bnbs/(?:attention/)?\d\d_\w+\.ipynb\b')
KEEP = {}
def hold(text):                          # what is rewritten once is not seen again
    key = f'\ue000{len(KEEP)}\ue001'; KEEP[key] = text; return key
def release(text):
    while '\ue000' in text: text = re.sub('\ue000\\d+\ue001', lambda m: KEEP[m[0]], text)
    return text
def one_from(indent, sub, names, tail, sep='\n'):
    lines, rest = [], []
    for n in names.split(','):
        name, _, alias = (x.strip() for x in n.strip().partition(' as '))
        new = NAME.get(f'evolora{sub or ""}.{name}')
        if new is None: rest.append(n.strip()); continue
        pkg, _, stem = new.rpartition('.')
        lines.append(f'{indent}from {pkg} import {stem}' + (f' as {alias or name}' if (alias or name) != stem else ''))
    if rest: lines.insert(0, f'{indent}from evolora{sub or ""} import {", ".join(rest)}')
    return hold(sep.join(lines) + tail)
def text_of(t):
    t = FROM.sub(lambda m: one_from(m[1], m[2], m[3], m[4]), t)
    t = INLINE.sub(lambda m: one_from('', m[1], m[2], '', '; '), t)
    t = DOTTED.sub(lambda m: hold(NAME[m[0]]) if m[0] in NAME else m[0], t)
    t = PATHS.sub(lambda m: NAME.get('evolora.' + (m[1] or '').replace('/', '.') + m[2], m[0][:-3].replace('/', '.')).replace('.', '/') + '.py', t)
    t = BOOKS.sub(lambda m: BOOK.get(m[0], m[0]), t)
    return release(t)
HEADER = re.compile(r'^([ \t]*)from evolora\.attention\.(mixers|dynamics|regression|matrices) import ')
FACE = 'evolora.host.mechanisms'
def headers(t):                          # of programs, which stand in strings: one public face that never moves
    try: real = {n.lineno for n in ast.walk(ast.parse(t)) if isinstance(n, ast.ImportFrom)}
    except SyntaxError: real = set()
    lines = t.split('\n')
    for i, line in enumerate(lines, 1):
        if i not in real: lines[i - 1] = HEADER.sub(lambda m: hold(f'{m[1]}from {FACE} import '), line)
    return '\n'.join(lines)
SAID = re.compile(r'from evolora\.attention\.(mixers|dynamics|regression|matrices) import ')
def said(x):                             # what a notebook has printed
    if isinstance(x, str): return SAID.sub(f'from {FACE} import ', x)
    if isinstance(x, list): return [said(y) for y in x]
    return {k: said(y) for k, y in x.items()} if isinstance(x, dict) else x
LINK = re.compile(r'(\]\(|src=")([^)\s#"]+)')
def links(t, old, new):                  # relative links of a text that lay at `old`
    def sub(m):
        if re.match(r'[a-z]+:', m[2]): return m[0]
        at = os.path.normpath(os.path.join(os.path.dirname(old), m[2]))
        if not (at in BOOK or Path(at).exists() or at in GONE): return m[0]
        at = BOOK.get(at, at)
        return m[1] + os.path.relpath(at, os.path.dirname(new))
    return LINK.sub(sub, t)
GONE = set(BOOK)
PLACES = {'own = f"from {self.base.__module__} import': 'own = f"from {FACE} import', 'from {Mixer.__module__} import {shared}': 'from {FACE} import {shared}',
          "_SHARED = (": "FACE = 'evolora.host.mechanisms'        # where programs find their tools; it never moves, or none could be read again\n_SHARED = (",
          "PRESETS = Path(__file__).parent / 'presets' if '__file__' in globals() else Path('../evolora/presets')":
          "PRESETS = Path(evolora.__file__).parent / 'ecology/presets'",
          "EMBEDDED = Path(__file__).parent / 'embedded' if '__file__' in globals() else Path('../evolora/embedded')":
          "EMBEDDED = Path(evolora.__file__).parent / 'host/embedded'",
          "_MODES = (Path(__file__).parent if '__file__' in globals() else Path('../evolora')) / 'embedded' / 'modes.json'":
          "_MODES = Path(evolora.__file__).parent / 'tasks/modes.json'"}
def sorted_imports(t):                   # runs of `from evolora…` at the left margin, in alphabetical order
    out, run, lines, i = [], [], t.split('\n'), 0
    def flush():
        run.sort(key=lambda block: (block[0].split()[1], block[0])); out.extend(l for b in run for l in b); run.clear()
    while i < len(lines):
        if lines[i].startswith('from evolora'):
            block = [lines[i]]
            while block[0].count('(') and '\n'.join(block).count('(') > '\n'.join(block).count(')'): i += 1; block.append(lines[i])
            run.append(block)
        else: flush(); out.append(lines[i])
        i += 1
    flush()
    return '\n'.join(out)
EXP = re.compile(r'^(#\|\s*default_exp\s+)(\S+)', re.M)

books = [p for p in subprocess.run(['git', 'ls-files', '*.ipynb'], capture_output=True, text=True).stdout.split()]
for old, new in BOOK.items(): mv(old, new)
for old, new in NAME.items(): mv(old.replace('.', '/') + '.py', new.replace('.', '/') + '.py')
mv('evolora/presets', 'evolora/ecology/presets'); mv('evolora/embedded', 'evolora/host/embedded')
mv('evolora/host/embedded/modes.json', 'evolora/tasks/modes.json')
for room in ROOMS:
    init = Path('evolora', *room.split('.'), '__init__.py')
    if not init.exists(): init.write_text('')
for old in books:
    new = BOOK.get(old, old)
    nb = json.loads(Path(new).read_text(encoding='utf-8'))
    for cell in nb['cells']:
        s = cell['source'] if isinstance(cell['source'], str) else ''.join(cell['source'])
        if cell['cell_type'] == 'code':
            t = EXP.sub(lambda m: m[1] + hold(NAME['evolora.' + m[2]][8:]) if 'evolora.' + m[2] in NAME else m[0], s)
            t = text_of(headers(t))
        else: t = text_of(links(s, old, new))
        if cell['cell_type'] == 'code':
            for a, b in PLACES.items(): t = t.replace(a, b)
            t = sorted_imports(t)
        if t != s: cell['source'] = t.splitlines(keepends=True)
        if cell.get('outputs'): cell['outputs'] = said(cell['outputs'])
    Path(new).write_text(json.dumps(nb, ensure_ascii=False, indent=1) + '\n', encoding='utf-8')
files = subprocess.run(['git', 'ls-files', 'tests', 'CONTRIBUTING.md', '.ci/run', 'settings.ini', 'setup.py'], capture_output=True, text=True).stdout.split()
for f in files:
    p = Path(f)
    if p.suffix not in ('.py', '.md', '.ini', '') or not p.is_file(): continue
    s = p.read_text(encoding='utf-8')
    t = text_of(headers(s) if p.suffix == '.py' else s)
    if t != s: p.write_text(t, encoding='utf-8')
for stem, room in TESTS.items():
    old = f'tests/test_{stem}.py'
    if not Path(old).exists(): print('no test', old); continue
    name = stem.removeprefix('attention_')
    new = NAME.get(f'evolora.attention.{name}' if stem.startswith('attention_') else f'evolora.{name}', '').rpartition('.')[2] or name
    d = Path('tests', *room.split('.')); d.mkdir(exist_ok=True, parents=True)
    for up in [d, *d.parents][:-2]:
        pass
    depth = len(room.split('.'))
    s = Path(old).read_text(encoding='utf-8')
    t = s.replace("Path(__file__).resolve().parents[1]", f"Path(__file__).resolve().parents[{1 + depth}]").replace(
        "str(Path(__file__).parent)", f"str(Path(__file__).parents[{depth}])")
    mv(old, str(d / f'test_{new}.py')); (d / f'test_{new}.py').write_text(t, encoding='utf-8')
for d in {p.parent for p in Path('tests').rglob('test_*.py')} | {p.parent.parent for p in Path('tests').rglob('test_*.py')}:
    if d not in (Path('tests'), Path('.')) : (d / '__init__.py').touch()

def edit(path, a, b):
    t = Path(path).read_text(encoding='utf-8'); assert a in t, (path, a); Path(path).write_text(t.replace(a, b, 1), encoding='utf-8')
for book in ('nbs/07_ecology/03_config.ipynb', 'nbs/03_tasks/05_streams.ipynb'):
    edit(book, '"from evolora.', '"import evolora\\n",\n    "from evolora.')
edit('setup.py', "package_data={'evolora': ['presets/*.yaml', 'embedded/*']", "package_data={'evolora': ['ecology/presets/*.yaml', 'host/embedded/*', 'tasks/modes.json']")

for p in [*Path('nbs/experiments/results/attention').rglob('*'), *Path('nbs/results').rglob('*')]:
    if p.is_file() and p.suffix in ('.jsonl', '.json', '.py', '.txt', '.md'):
        t = p.read_text(encoding='utf-8')
        if (u := SAID.sub(f'from {FACE} import ', t)) != t: p.write_text(u, encoding='utf-8')
for old, new in BOOK.items():            # a notebook opens with the name of its module
    nb = json.loads(Path(new).read_text(encoding='utf-8'))
    first = nb['cells'][0]; s = ''.join(first['source']); stem = Path(new).stem[3:]
    first['source'] = re.sub(r'^# .*', f'# {stem}', s, count=1).splitlines(keepends=True)
    Path(new).write_text(json.dumps(nb, ensure_ascii=False, indent=1) + '\n', encoding='utf-8')
new = Path(__file__).parent / 'new'
for p in new.rglob('*'):
    if p.is_file(): (R / p.relative_to(new)).write_text(p.read_text(encoding='utf-8'), encoding='utf-8')
edit('tests/test_notebooks.py', "MODULES = notebooks('nbs', recursive=False) + notebooks('nbs/attention', recursive=False)",
     "MODULES = [path.relative_to(ROOT).as_posix() for path in rooms.MODULES.values()]")
edit('tests/test_notebooks.py', 'from kernels import in_kernel\n', 'import rooms\nfrom kernels import in_kernel\n')
edit('tests/test_notebooks.py', 'def test_slow_notebooks_exist():', """def test_no_module_notebook_is_forgotten():
    "Before there were rooms the suite ran 117 of them; a glob that misses a room would be fast, and green"
    found = [path for path in (ROOT / 'nbs').rglob('[0-9][0-9]_*.ipynb')
             if path.relative_to(ROOT / 'nbs').parts[0][0].isdigit() and '.ipynb_checkpoints' not in path.parts]
    assert sorted(MODULES) == sorted(path.relative_to(ROOT).as_posix() for path in found) and len(MODULES) >= 117


def test_slow_notebooks_exist():""")
edit('settings.ini', 'filelock>=3.16', 'filelock>=3.16 lazy_loader>=0.4')
edit('setup.py', "'tasks/modes.json']", "'tasks/modes.json', 'py.typed', '**/*.pyi']")
Path('evolora/py.typed').touch()

for f in ('nbs/09_evaluation/06_calibration.ipynb', 'nbs/15_cli/04_calibrate.ipynb', 'tests/evaluation/test_calibration.py'):
    t = Path(f).read_text(encoding='utf-8')
    Path(f).write_text(re.sub(r'\bcandidates\b(?=\(|\\n|, keep)', 'candidate_cells', t), encoding='utf-8')

def wrapped(t):                          # imports whose first line has grown too wide
    lines, out = t.split('\n'), []
    try: nodes = {n.lineno: n for n in ast.walk(ast.parse(t)) if isinstance(n, ast.ImportFrom)}
    except SyntaxError: return t
    i = 1
    while i <= len(lines):
        n = nodes.get(i)
        if n is None or all(len(l) <= 120 for l in lines[i - 1:n.end_lineno]) or '#' in ''.join(lines[i - 1:n.end_lineno]):
            out.append(lines[i - 1]); i += 1; continue
        indent = lines[i - 1][:len(lines[i - 1]) - len(lines[i - 1].lstrip())]
        head = lines[i - 1].partition(' import ')[0] + ' import ('
        names = [a.name + (f' as {a.asname}' if a.asname else '') for a in n.names]
        line = head
        for k, name in enumerate(names):
            part = name + (', ' if k < len(names) - 1 else ')')
            if len((line + part).rstrip()) > 119: out.append(line.rstrip()); line = ' ' * len(head) + part
            else: line += part
        out.append(line); i = n.end_lineno + 1
    return '\n'.join(out)
for old in books:
    path = Path(BOOK.get(old, old)); nb = json.loads(path.read_text(encoding='utf-8')); changed = False
    for cell in nb['cells']:
        s = ''.join(cell['source'])
        if cell['cell_type'] == 'code' and (u := wrapped(s)) != s: cell['source'] = u.splitlines(keepends=True); changed = True
    if changed: path.write_text(json.dumps(nb, ensure_ascii=False, indent=1) + '\n', encoding='utf-8')
for path in Path('tests').rglob('*.py'):
    t = path.read_text(encoding='utf-8')
    u = re.sub(r'What no lesson shows of `evolora\.[\w.]*?\.?(\w+)`( and `evolora\.[\w.]*?\.?(\w+)`)?',
               lambda m: f'What no lesson shows of `{m[1]}`' + (f' and `{m[3]}`' if m[2] else ''), t)
    u = wrapped(u)
    if u != t: path.write_text(u, encoding='utf-8')
J = lambda line: json.dumps(line, ensure_ascii=False)[1:-1]
for path, a, b in (
    ('nbs/10_analysis/04_run_comparison.ipynb', "checkpoints, read_manifest      # they bring torch, which this module does without", "checkpoints, read_manifest      # brings torch"),
    ('nbs/12_attention/scoring/09_evaluation.ipynb', "    job = Job('evolora.attention.scoring.evaluation:reads', {'path'", "    job = Job('evolora.attention.scoring.evaluation:reads',\n              {'path'"),
    ('nbs/12_attention/search/07_openevolve_bridge.ipynb', "seed=config.seed, resume=again,", "seed=config.seed,\n                           resume=again,"),
    ('nbs/13_experiments/09_recovery.ipynb', "*arguments[1:]])})'", "*arguments[1:]])})')"),
    ('nbs/13_experiments/09_recovery.ipynb', "    code = f'from evolora.experiments.recovery import _victim; _victim(*{json", "    code = ('from evolora.experiments.recovery import _victim; '\n            f'_victim(*{json"),
):
    t = Path(path).read_text(encoding='utf-8')
    if path.endswith('.ipynb') and '\n' in b: b = b.replace('\n', '\\n",\n    "')
    assert a in t, (path, a)
    Path(path).write_text(t.replace(a, b, 1), encoding='utf-8')
for path, a, b in (
    ('tests/attention/scoring/test_sandbox.py', "'evolora.attention.scoring.sandbox:pause()', 'evolora.attention.scoring.sandbox:a.b', ''", "'evolora.attention.scoring.sandbox:pause()',\n                                  'evolora.attention.scoring.sandbox:a.b', ''"),
    ('tests/host/test_downloads.py', "        job = subprocess.Popen([sys.executable, '-c', 'from evolora.cli.app import main; main()', 'host', 'fetch', NAME],", "        code = 'from evolora.cli.app import main; main()'\n        job = subprocess.Popen([sys.executable, '-c', code, 'host', 'fetch', NAME],"),
    ('tests/test_readme.py', """('[tasks](00_tasks.ipynb#grading "title")', '[tasks](nbs/03_tasks/05_streams.ipynb#grading "title")')""", """('[tasks](03_tasks/05_streams.ipynb#grading "title")',\n     '[tasks](nbs/03_tasks/05_streams.ipynb#grading "title")')"""),
): edit(path, a, b)
