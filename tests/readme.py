"""README.md is nbs/index.ipynb, rendered without Quarto.

    python tests/readme.py            print it
    python tests/readme.py --write    write README.md

nbdev's processors drop what the directives hide, nbconvert makes the markdown, and relative links, which start from
nbs/ in the notebook, are made to start from the root.
"""
import posixpath
import re
import sys
from pathlib import Path

import nbformat
from execnb.nbio import nb2str
from nbconvert import MarkdownExporter
from nbdev.process import NBProcessor
from nbdev.processors import clean_magics, hide_, hide_line, rm_export, rm_header_dash, strip_ansi

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r'^(`{3,}|~{3,}).*?^\1[`~]*[ \t]*$', re.MULTILINE | re.DOTALL)
LINK = re.compile(r'(?P<before>\]\(\s*<?|\b(?:src|href)=["\'])(?P<target>[^\s<>()"\']+)')
CODE = re.compile(r'(`+)(?!`).*?(?<!`)\1(?!`)')


def outside(pattern: re.Pattern, text: str, change) -> str:
    "Change only what lies between the matches of a pattern"
    parts, at = [], 0
    for match in pattern.finditer(text):
        parts += [change(text[at:match.start()]), match[0]]
        at = match.end()
    return ''.join(parts) + change(text[at:])


def from_root(match: re.Match) -> str:
    "A relative link of a notebook in nbs/, as seen from the root"
    target = match['target']
    if re.match(r'[A-Za-z][A-Za-z0-9+.-]*:|[/#]', target): return match[0]
    path, mark, rest = re.match(r'([^?#]*)([?#]?)(.*)', target).groups()
    return match['before'] + posixpath.normpath(posixpath.join('nbs', path)) + mark + rest


def relink(markdown: str) -> str:
    "Markdown whose links started from nbs/, with links that start from the root; code is left alone"
    return outside(FENCE, markdown, lambda text: outside(CODE, text, lambda prose: LINK.sub(from_root, prose)))


def render(path: Path = ROOT / 'nbs' / 'index.ipynb') -> str:
    "The markdown of a notebook; outputs that would need files of their own are refused"
    procs = [hide_, hide_line, rm_export, rm_header_dash, strip_ansi, clean_magics]
    nb = NBProcessor(path, process=True, procs=procs).nb
    nb.metadata['language_info'] = {'name': 'python'}   # nbdev_clean drops it, and then code fences name no language
    for cell in nb.cells:   # directives are left for Quarto
        if cell.cell_type == 'code': cell.source = re.sub(r'^#\|.*\n?', '', cell.source, flags=re.MULTILINE)
    markdown, resources = MarkdownExporter().from_notebook_node(nbformat.reads(nb2str(nb), as_version=4))
    if resources.get('outputs'):
        raise ValueError(f"{path}: expected outputs of text only, got {', '.join(resources['outputs'])}; "
                         f"save the picture in nbs/images/ and link it from a markdown cell")
    return re.sub(r'\n{3,}', '\n\n', relink(markdown)).strip() + '\n'


if __name__ == '__main__':
    if sys.argv[1:] == ['--write']: (ROOT / 'README.md').write_text(render(), encoding='utf-8')
    elif sys.argv[1:]: sys.exit(__doc__)
    else: sys.stdout.write(render())
