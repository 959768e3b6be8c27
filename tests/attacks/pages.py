"""The pages that state results, as text: README, notebooks and recipes, with what cells show, without tables."""
import json
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FIGURE = r'(\d+(?:\.\d+)?)'
_INTERVAL = r'(?:\[[^\]]*\] )?'
# A positive difference whose interval is above zero, and a number of points that somebody is ahead.
LEADS = (re.compile(rf'\+{FIGURE}(?: points)? \[\+'),
         re.compile(rf'{FIGURE} (?:points? )?{_INTERVAL}(?:points )?ahead'),
         re.compile(rf'ahead[^.|\n]{{0,60}}? by {FIGURE}'))


def page_names() -> list[str]:
    "All pages that may state a lead"
    nbs = ROOT / 'nbs'
    found = [ROOT / 'README.md', nbs / 'results.ipynb', nbs / 'howto.md', *sorted(nbs.glob('experiments/*.ipynb')),
             *sorted(nbs.glob('tutorials/*.ipynb'))]
    return [path.relative_to(ROOT).as_posix() for path in found]


def _shown(cell: dict) -> list[str]:
    "The prose of a cell: its own, or what it shows as Markdown"
    if cell['cell_type'] == 'markdown': return [''.join(cell['source'])]
    found = [output.get('data', {}).get('text/markdown') for output in cell.get('outputs', [])]
    return [''.join(text) for text in found if text]


@cache
def prose(page: str) -> str:
    "The text of a page, in one line a paragraph"
    text = (ROOT / page).read_text()
    if not page.endswith('.ipynb'): return text
    return '\n\n'.join(part for cell in json.loads(text)['cells'] for part in _shown(cell))


def sections(page: str) -> list[str]:
    "A page from one heading of the first two levels to the next"
    return re.split(r'(?m)^(?=##? )', prose(page))


def sections_with(page: str, fragment: str) -> list[str]:
    "The sections in which a text stands"
    return [section for section in sections(page) if fragment in section]


def leads_on(page: str) -> list[tuple[str, str]]:
    "Each stated lead of a page: its figure, and the text around it"
    text, found = prose(page), {}
    for pattern in LEADS:
        for match in pattern.finditer(text):
            found[match.start(1)] = match[1], text[max(0, match.start() - 80):match.end() + 40].replace('\n', ' ')
    return [found[at] for at in sorted(found)]
