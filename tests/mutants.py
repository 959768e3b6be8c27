"""Planted faults: which of them does the suite find?

The sixty in mutants.json were drawn with seed 31 from the flat modules, before there were rooms and before any test
was cut; their names and lines have followed the moves since.

    python tests/mutants.py draw             choose sixty, from a fixed seed, and write tests/mutants.json
    python tests/mutants.py cover DATA       run the suite, and note in DATA which test executes which line
    python tests/mutants.py run DATA         plant each in a copy of the checkout, and run the tests of its line

A fault is a comparison turned round, a number changed, or a statement dropped; it is planted in the notebook and in its
module. Tests of its line run one after another, the quick ones first, until one fails or `--most` seconds are spent: of
a fault that no test finds in that time it is said that it survives. A line that runs when its module is imported, or
whose result is kept from one test to the next, belongs to whichever test came first: so the files that import the
module, and the one about the whole house, run after those. Needs `pip install pytest-cov`.
"""
import argparse
import ast
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CHOSEN = Path(__file__).with_suffix('.json')
KINDS = ('comparison', 'number', 'statement')
TURNED = {ast.Lt: '>=', ast.GtE: '<', ast.Gt: '<=', ast.LtE: '>', ast.Eq: '!=', ast.NotEq: '==', ast.In: 'not in',
          ast.NotIn: 'in', ast.Is: 'is not', ast.IsNot: 'is'}


def modules(): return [p for p in sorted((ROOT / 'evolora').rglob('*.py')) if not p.name.startswith('_')]


def faults(path):
    "(kind, definition, line as it is, line as it would be) of every fault that fits on a line of a module"
    code = path.read_text(encoding='utf-8')
    lines, found = code.split('\n'), []
    def add(kind, where, node, start, end, new):
        line = lines[node.lineno - 1].encode()
        if node.lineno == node.end_lineno:
            found.append((kind, where, line.decode(), (line[:start] + new.encode() + line[end:]).decode()))
    def walk(node, where):
        for child in ast.iter_child_nodes(node):
            inside = where
            if isinstance(child, (ast.FunctionDef, ast.ClassDef)): inside = f'{where}.{child.name}'.strip('.')
            elif isinstance(child, ast.Compare) and len(child.ops) == 1 and where:
                a, b = child.left, child.comparators[0]
                if a.end_lineno == b.lineno: add('comparison', where, child, a.end_col_offset, b.col_offset,
                                                 f' {TURNED[type(child.ops[0])]} ')
            elif isinstance(child, ast.Constant) and type(child.value) in (int, float) and where:
                add('number', where, child, child.col_offset, child.end_col_offset, repr(child.value + 1))
            elif isinstance(child, (ast.Expr, ast.AugAssign, ast.Assign)) and where and not (
                    isinstance(child.value, ast.Constant)
                    or isinstance(child, ast.Assign) and isinstance(child.targets[0], (ast.Name, ast.Tuple))):
                add('statement', where, child, child.col_offset, child.end_col_offset, 'pass')
            walk(child, inside)
    walk(ast.parse(code), '')
    return [f for f in found if lines.count(f[2]) == 1]      # a line that can be found again


def draw(n, seed):
    every = {kind: [] for kind in KINDS}
    for path in modules():
        for kind, where, before, after in faults(path):
            every[kind].append({'module': '.'.join(path.relative_to(ROOT).with_suffix('').parts), 'kind': kind,
                                'in': where, 'before': before, 'after': after})
    rng = random.Random(seed)
    return [fault for kind in KINDS for fault in rng.sample(every[kind], n // len(KINDS))]


def cover(data):
    os.environ |= {'EVOLORA_COVERAGE': str(data.resolve()), 'COVERAGE_FILE': str(data.resolve())}
    os.environ.setdefault('COVERAGE_CORE', 'ctrace')        # the one that tells tests apart
    subprocess.run([sys.executable, '-m', 'pytest', '-n', '2', '-q', '--cov=evolora', '--cov-context=test',
                    '--cov-report=', '-p', 'no:cacheprovider', f'--junit-xml={data}.xml'], cwd=ROOT)
    subprocess.run([sys.executable, '-m', 'coverage', 'combine', '--append', str(data.parent)], cwd=ROOT)
    subprocess.run([sys.executable, '-m', 'coverage', 'report', '--format=total'], cwd=ROOT)


def seconds_of(report):
    "Seconds of each test, by node id, out of a JUnit file"
    from xml.etree import ElementTree
    took = {}
    for case in ElementTree.parse(report).iter('testcase'):
        took[case.get('classname', '').replace('.', '/') + '.py::' + case.get('name')] = float(case.get('time'))
    return took


def tests_of(data, took, path, number):
    from coverage import CoverageData
    known = CoverageData(str(data))
    known.read()
    found = known.contexts_by_lineno(str(path)).get(number, [])
    return sorted({c.rpartition('|')[0] or c for c in found if '::' in c}, key=lambda t: took.get(t, 1.))


def files_of(module):
    "Test files that import a module, or all of its room if none does, and the one whose rules are for every module"
    parent, _, name = module.rpartition('.')
    named = re.compile(rf'{re.escape(module)}\b|from {re.escape(parent)} import [^\n]*\b{name}\b')
    every = sorted((ROOT / 'tests').rglob('test_*.py'))
    found = [path for path in every if named.search(path.read_text(encoding='utf-8'))]
    room = ROOT.joinpath('tests', *parent.split('.')[1:])
    found = found or [path for path in every if path.parent == room]
    return [str(path.relative_to(ROOT)) for path in [*found, ROOT / 'tests/test_layout.py']]


def plant(fault, root):
    "Put a fault into a copy of the checkout; returns its module and the line's number"
    path = root.joinpath(*fault['module'].split('.')).with_suffix('.py')
    text = path.read_text(encoding='utf-8')
    number = text.split('\n').index(fault['before']) + 1
    path.write_text(text.replace(fault['before'], fault['after'], 1), encoding='utf-8')
    own = path.parent / text.split('File to edit: ')[1].split('.ipynb')[0]
    book = Path(os.path.normpath(f'{own}.ipynb'))
    shown = book.read_text(encoding='utf-8')
    as_json = lambda line: json.dumps(line, ensure_ascii=False)[1:-1]
    assert shown.count(as_json(fault['before'])) >= 1, f"{fault['before']!r} is not in {book}"
    book.write_text(shown.replace(as_json(fault['before']), as_json(fault['after']), 1), encoding='utf-8')
    return path.relative_to(root), number, book.relative_to(root)


def run(fault, data, took, most):
    "What finds a fault: the name of a test, or None"
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / 'evolora'
        subprocess.run(['git', 'clone', '-q', str(ROOT), str(copy)], check=True)
        path, number, book = plant(fault, copy)
        tests = [t for t in tests_of(data, took, ROOT / path, number) if str(book) not in t]
        tests = [f'tests/test_notebooks.py::test_the_notebook_runs[{book}]', *tests, *files_of(fault['module'])]
        start, left = time.time(), most
        done = None
        try:
            done = subprocess.run([sys.executable, '-m', 'pytest', '-x', '-q', '-p', 'no:cacheprovider', '--no-header',
                                   '--tb=no', '-rfE', *tests], cwd=copy, capture_output=True, text=True, timeout=most,
                                  env=os.environ | {'PYTHONPATH': str(copy), 'OMP_NUM_THREADS': '1'})
            by = [line for line in done.stdout.splitlines() if line.startswith(('FAILED', 'ERROR'))]
            found = by[0].split()[1] if by else (None if done.returncode == 0 else f'exit code {done.returncode}')
        except subprocess.TimeoutExpired: found = None
        return {'found_by': found, 'tests': len(tests), 'seconds': round(time.time() - start)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('what', choices=['draw', 'cover', 'run'])
    parser.add_argument('data', nargs='?', type=Path, help='a file for what was covered')
    parser.add_argument('--out', type=Path, help='where to write what found each fault; default: beside DATA')
    parser.add_argument('--n', type=int, default=60)
    parser.add_argument('--seed', type=int, default=31)
    parser.add_argument('--most', type=float, default=600., help='seconds for the tests of a fault')
    given = parser.parse_args()
    if given.what == 'draw':
        CHOSEN.write_text(json.dumps(draw(given.n, given.seed), indent=1, ensure_ascii=False) + '\n', encoding='utf-8')
        return
    if given.data is None: parser.error('expected a file DATA')
    if given.what == 'cover': return cover(given.data)
    out = given.out or given.data.with_suffix('.found.json')
    seen = json.loads(out.read_text(encoding='utf-8')) if out.exists() else {}
    took = seconds_of(f'{given.data}.xml')
    for i, fault in enumerate(json.loads(CHOSEN.read_text(encoding='utf-8'))):
        if str(i) in seen: continue
        seen[i] = run(fault, given.data, took, given.most)
        out.write_text(json.dumps(seen, indent=1) + '\n', encoding='utf-8')
        print(i, fault['module'], fault['kind'], seen[i], flush=True)
    found = sum(f['found_by'] is not None for f in seen.values())
    print(f'{found} of {len(seen)} were found')


if __name__ == '__main__': main()
