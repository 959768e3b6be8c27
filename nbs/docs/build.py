"""The reference site, from this checkout alone: `evolora docs`, or

    python nbs/docs/build.py FOLDER

Notebooks and pages are copied beside the site, with the pages that `reference` and `interface` make of what the package
itself knows; Sphinx reads that copy and runs nothing of it. What Sphinx warns of is an error, and so is a link that
leads nowhere, or a page that would fetch something.
"""
import base64
import json
import posixpath
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote

DOCS = Path(__file__).resolve().parent
ROOT, NBS = DOCS.parents[1], DOCS.parent
sys.path.insert(0, str(ROOT))       # the package of this checkout, whatever is installed

import interface        # noqa: E402
import reference        # noqa: E402

BESIDE = ['CONTRIBUTING.md', 'tests/training/test_against_peft.py']      # what pages link to outside of nbs/
SHOWN = {'.ipynb', '.md', '.yaml', '.png', '.svg', ''}
ROOM_LINK = re.compile(r'^\| \[\w+\]\((\d\d_\w+)\.ipynb\)', re.MULTILINE)
ANCHOR = re.compile(r'(\]\([^)\s]*#)([^)\s]+)')       # Jupyter's keep capitals, which those of Sphinx have not
FOLDED = re.compile(r'^#\|\s*fold\s*$', re.MULTILINE)      # a cell that is there for its output
VEGALITE = 'application/vnd.vegalite'


# ---- what is shown -------------------------------------------------------------------------------------------------
def put(path: Path, data: bytes) -> None:
    "Write a file if it is another one than is there: Sphinx reads again what is younger than its last build"
    if path.is_file() and path.read_bytes() == data: return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


def lower_anchors(text: str) -> str:
    "Markdown whose links to headings are those of Sphinx"
    return ANCHOR.sub(lambda m: m[1] + m[2].lower(), text)


def notebook(text: str) -> tuple[str, dict[str, bytes]]:
    "A notebook as readers see it, without hidden cells, directives and live charts; and the pictures attached to it"
    nb, cells, pictures = json.loads(text), [], {}
    for cell in nb['cells']:
        source = ''.join(cell['source'])
        if re.search(r'^#\|\s*hide\s*$', source, re.MULTILINE): continue
        if cell['cell_type'] == 'code':
            if FOLDED.search(source): cell = cell | {'metadata': {'tags': ['hide-input']}}
            source = re.sub(r'^#\|.*\n?', '', source, flags=re.MULTILINE).strip()
            for output in cell['outputs']:
                data = output.get('data', {})
                for kind in [k for k in data if k.startswith(VEGALITE)]: del data[kind]
                if said := data.get('text/markdown'): data['text/markdown'] = lower_anchors(''.join(said))
        else: source = lower_anchors(source).replace('](attachment:', '](')
        for name, kinds in cell.pop('attachments', {}).items():
            for kind, data in kinds.items():
                whole = ''.join(data)
                pictures[name] = whole.encode() if whole.startswith('<') else base64.b64decode(whole)
        if source: cells.append(cell | {'source': source})
    about = {'kernelspec': nb['metadata']['kernelspec'], 'language_info': {'name': 'python'}}
    return json.dumps(nb | {'cells': cells, 'metadata': about}, ensure_ascii=False), pictures


def with_contents(text: str) -> str:
    "The page of a room, with its notebooks below it in the tree of pages"
    names = ROOM_LINK.findall(text)
    return text + '\n```{toctree}\n:hidden:\n\n' + '\n'.join(names) + '\n```\n' if names else text


def with_index(text: str) -> str:
    "A page whose lines `Also: …` are entries of the index as well, so that the search leads to just above that heading"
    def entries(found):
        head, words = found.groups()
        marks = ''.join(f'```{{index}} ! {word}\n```\n' for word in words.split(', '))
        return f'{marks}\n{head}\n\nAlso: {words}.'
    return re.sub(r'^(### .*)\n+Also: (.*)\.$', entries, text, flags=re.MULTILINE)


def shown() -> dict[str, bytes]:
    "Every file that Sphinx reads, by its path: those of the checkout, and those that are made of the package"
    hidden = lambda path: DOCS in path.parents or any(part.startswith('.') for part in path.relative_to(ROOT).parts)
    files = [path for path in sorted(NBS.rglob('*')) if path.is_file() and path.suffix in SHOWN and not hidden(path)]
    made = {}
    for path in [*files, *(ROOT / name for name in BESIDE)]:
        data, place = path.read_bytes(), path.relative_to(ROOT).as_posix()
        if path.suffix == '.ipynb':
            text, pictures = notebook(data.decode())
            data = text.encode()
            made |= {posixpath.join(posixpath.dirname(place), name): picture for name, picture in pictures.items()}
        if path.name == 'README.md': data = with_contents(data.decode()).encode()
        made[place] = data
    made |= {path.name: with_index(path.read_text(encoding='utf-8')).encode() for path in DOCS.glob('*.md')}
    return made | {place: text.encode() for place, text in (reference.pages() | interface.pages()).items()}


# ---- what is wrong with it -----------------------------------------------------------------------------------------
class Page(HTMLParser):
    "Where a page can be entered, where its links lead, and what it loads"
    def __init__(self, text: str):
        super().__init__()
        self.ids, self.links, self.loads = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        found = dict(attributes)
        self.ids |= {found[k] for k in ('id', 'name') if found.get(k)}
        if tag == 'a' and found.get('href'): self.links.add(found['href'])
        if tag in ('script', 'img', 'iframe', 'source', 'video') and found.get('src'): self.loads.add(found['src'])
        if tag == 'link' and found.get('href') and found.get('rel') not in ('author', 'canonical'):
            self.loads.add(found['href'])


def faults(site: Path) -> list[str]:
    "Links and anchors that lead nowhere, and what would come from a network"
    pages = {path.relative_to(site).as_posix(): Page(path.read_text(encoding='utf-8')) for path in site.rglob('*.html')
             if '_static' not in path.parts}
    wrong = []
    for name, page in pages.items():
        wrong += [f'{name} loads {url}' for url in page.loads if re.match(r'(https?:)?//', url)]
        for link in page.links | page.loads:
            if re.match(r'[a-z][a-z0-9+.-]*:|//', link): continue
            path, _, anchor = link.partition('#')
            beside = posixpath.join(posixpath.dirname(name), unquote(path.split('?')[0]))
            target = posixpath.normpath(beside) if path else name
            if not (site / target).is_file(): wrong.append(f'{name} links to {link}, which is not there')
            elif anchor and target in pages and unquote(anchor) not in pages[target].ids:
                wrong.append(f'{name} links to {link}, and there is no such anchor')
    return sorted(wrong)


# ---- the site ------------------------------------------------------------------------------------------------------
def build(out: Path) -> None:
    "Make the site; ValueError with the first things that are wrong with it"
    from myst_nb import sphinx_ext
    from sphinx.application import Sphinx
    sphinx_ext.OUTPUT_FOLDER = f'{out.name}/.outputs'       # it takes a folder beside the site, which is not ours
    source, made = out / '.source', shown()
    for place, data in made.items(): put(source / place, data)
    for place, data in made.items():        # what a saved output links to, which Sphinx does not see
        if place.endswith('.yaml'): put(out / place, data)
    for path in source.rglob('*'):
        if path.is_file() and path.relative_to(source).as_posix() not in made: path.unlink()
    app = Sphinx(source, DOCS, out, out / '.doctrees', 'html', parallel=2, warningiserror=True, status=None)
    app.build()
    if app.statuscode: raise ValueError('expected pages without warnings, got those above; mend them')
    if wrong := faults(out): raise ValueError(
        '\n'.join([*wrong[:20], f'expected pages without faults, got {len(wrong)} in {out}; mend them']))
    print(f'{len(made)} files, {sum(1 for _ in out.rglob("*.html"))} pages, every link leads somewhere')


if __name__ == '__main__':
    if len(sys.argv) != 2: sys.exit(__doc__)
    try: build(Path(sys.argv[1]).resolve())
    except ValueError as e: sys.exit(f'{e}')
