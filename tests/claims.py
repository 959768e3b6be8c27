"""Sentences of the notebooks that state a result, and whether they are still true.

    python tests/claims.py                  # every claim of the pages, as saved
    python tests/claims.py --plant 20       # false statements, drawn over all pages: which of them are found

`evolora.analysis.claims.claim` makes such a sentence from its values when a notebook is run. What is saved may be older
than what is computed now, or may have been edited: `stale` finds words that are not those of the source, without
running anything; `differing` finds all else, by comparing a notebook with itself after a run.
"""
import ast
import json
import random
import re
import sys
from copy import deepcopy
from pathlib import Path
from string import Formatter

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([ROOT / 'nbs/results.ipynb', *(path for folder in ('tutorials', 'experiments', 'lab')
                                              for path in (ROOT / 'nbs' / folder).glob('*.ipynb'))])


def joined(text): return text if isinstance(text, str) else ''.join(text)


def sentences(cell):
    "The sentences of the claims of a code cell, with values left open; ValueError for one that is no plain text"
    if 'claim(' not in joined(cell['source']): return []
    source = '\n'.join(x for x in joined(cell['source']).splitlines() if not x.lstrip().startswith(('%', '!')))
    calls = [node for node in ast.walk(ast.parse(source))
             if isinstance(node, ast.Call) and getattr(node.func, 'id', '') == 'claim']
    for call in calls:
        if not isinstance(call.args[0], ast.Constant):
            raise ValueError(f"{cell['id']}: expected a claim of plain text, values in braces: {ast.unparse(call):.80}")
    return [call.args[0].value for call in sorted(calls, key=lambda call: (call.lineno, call.col_offset))]


def said(cell):
    "What the claims of a cell said when it was run last"
    return [joined(output['data']['text/markdown']) for output in cell.get('outputs', ())
            if 'text/markdown' in output.get('data', {})] if sentences(cell) else []


def pattern(sentence):
    "A regular expression of what a sentence may become"
    return ''.join(re.escape(text) + ('' if name is None else '.+?') for text, name, *_ in Formatter().parse(sentence))


def stale(nb):
    "Claims whose saved words are not those of their source: (cell, what is wrong)"
    for cell in nb['cells']:
        if cell['cell_type'] != 'code': continue
        wanted, found = sentences(cell), said(cell)
        if wanted and not found: yield cell['id'], f'was never run: {wanted[0]}'
        for text in found:
            if not any(re.fullmatch(pattern(sentence), text, re.DOTALL) for sentence in wanted):
                yield cell['id'], f'no claim of this cell says: {text}'
        for sentence in wanted:
            if found and not any(re.fullmatch(pattern(sentence), text, re.DOTALL) for text in found):
                yield cell['id'], f'is not among what was saved: {sentence}'


def differing(saved, run):
    "Claims that say something else when the notebook is run: (cell, saved, now)"
    now = {cell['id']: said(cell) for cell in run['cells'] if cell['cell_type'] == 'code'}
    for cell in saved['cells']:
        if cell['cell_type'] == 'code' and cell['id'] in now and said(cell) != now[cell['id']]:
            yield cell['id'], said(cell), now[cell['id']]


# What a false statement has in the place of what a true one says.
SWAPS = [('more', 'less'), ('most', 'few'), ('above', 'below'), ('higher', 'lower'), ('ahead', 'behind'),
         ('all', 'none'), ('better', 'worse'), ('larger', 'smaller'), ('both', 'neither'), ('rises', 'falls'),
         ('before', 'after'),
         ('one', 'two'), ('three', 'four'), ('five', 'six'), ('first', 'last'), ('never', 'always'), ('is', 'is not'),
         ('are', 'are not')]
WORD = {a: b for pair in SWAPS for a, b in (pair, pair[::-1])}
FALSE = re.compile(r'\d+(?:\.\d+)?|\b(?:' + '|'.join(sorted(map(re.escape, WORD), key=len, reverse=True)) + r')\b')


def falsified(text, rng):
    "The text with one word or number turned into another one, or None if nothing in it can be"
    found = list(FALSE.finditer(text))
    if not found: return None
    hit = rng.choice(found)
    other = WORD.get(hit[0]) or str(round(float(hit[0]) + 1, 4) if '.' in hit[0] else int(hit[0]) + 1)
    return text[:hit.start()] + other + text[hit.end():]


def planted(nb, rng, kind):
    """The notebook with one false statement, and that statement; None if there is nothing of that kind.

    Kinds: `saved` (a sentence below a cell), `source` (the words of a claim), `prose` (any paragraph)."""
    nb = deepcopy(nb)
    cells = [c for c in nb['cells'] if c['cell_type'] == 'markdown'] if kind == 'prose' else [
        c for c in nb['cells'] if c['cell_type'] == 'code' and said(c)]
    rng.shuffle(cells)
    for cell in cells:
        if kind == 'saved':
            output = rng.choice([o for o in cell['outputs'] if 'text/markdown' in o.get('data', {})])
            if (text := falsified(joined(output['data']['text/markdown']), rng)) is None: continue
            output['data']['text/markdown'] = text
            return nb, text
        if kind == 'prose':
            if (text := falsified(joined(cell['source']), rng)) is None: continue
            cell['source'] = text
            return nb, text
        sentence = rng.choice(sentences(cell))
        literal = rng.choice([text for text, *_ in Formatter().parse(sentence) if FALSE.search(text)] or [''])
        if (text := falsified(literal, rng)) is None or joined(cell['source']).count(literal) != 1: continue
        cell['source'] = joined(cell['source']).replace(literal, text)
        return nb, sentence.replace(literal, text)
    return None


def read(path): return json.loads(Path(path).read_text(encoding='utf-8'))


def plants(number, kinds=('saved', 'source'), seed=0):
    "False statements over all pages: (page, kind, statement, whether it is found)"
    rng, pages = random.Random(seed), [(path, read(path)) for path in PAGES]
    pages = [(path, nb) for path, nb in pages if any(c['cell_type'] == 'code' and said(c) for c in nb['cells'])]
    while pages and number:
        path, nb = rng.choice(pages)
        made = planted(nb, rng, kind := rng.choice(kinds))
        if made is None: continue
        false, statement = made
        # What a run says is what is saved: test_notebooks holds the one to the other.
        yield path, kind, statement, bool([*stale(false), *differing(false, nb)])
        number -= 1


def main(arguments):
    if arguments[:1] == ['--plant']:
        for path, kind, statement, found in plants(int(arguments[1]), ('saved', 'source', 'prose')):
            print(f"{'found    ' if found else 'NOT found'} {path.name}, {kind}: {' '.join(statement.split())[:150]}")
        return
    for path in PAGES:
        for cell in read(path)['cells']:
            if cell['cell_type'] == 'code':
                for text in said(cell): print(f'{path.name}: {text}')


if __name__ == '__main__': main(sys.argv[1:])
