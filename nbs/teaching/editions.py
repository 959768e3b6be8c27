"""Two editions of the tutorials from one source: with answers for the lecturer, with open exercises for students.

    python nbs/teaching/editions.py students ~/course
    python nbs/teaching/editions.py answers ~/course-with-answers
    python nbs/teaching/editions.py students ~/course --only 01 03 05 --without-outputs

An exercise is a markdown cell with a heading `### Exercise …`; its answer is folded into `<details>`. Students get the
question and an empty cell below it. The tutorials themselves stay as they are, and nothing is overwritten.
"""
import argparse
import re
import shutil
import sys
from pathlib import Path

import nbformat
from nbformat.v4 import new_code_cell

SOURCE = Path(__file__).resolve().parents[1]
ANSWER = re.compile(r'\n*<details>\s*<summary>Answer</summary>.*?</details>\n*', re.DOTALL)
DATA = re.compile(r'''(?<=['"(])\.\./(?=(?:experiments|results)/)''')      # committed results that cells read
LINK = re.compile(r'(?<=\]\()\.\./([^)]+)(?=\))')
HOME = 'https://github.com/evolora/evolora/blob/main/nbs/'


def is_exercise(cell):
    return cell.cell_type == 'markdown' and bool(re.search('^### Exercise', cell.source, re.MULTILINE))


def open_exercises(nb):
    "Take the answers out, and leave room for those of the students; how many there were"
    cells, n = [], 0
    for cell in nb.cells:
        cells.append(cell)
        if not is_exercise(cell): continue
        if not ANSWER.search(cell.source):
            raise ValueError(f"expected an answer in <details> below {cell.source.strip().splitlines()[0]!r}, got none")
        n += 1
        cell.source = ANSWER.sub('\n', cell.source).strip()
        cells.append(new_code_cell('# your answer\n', id=f'answer{n:02d}'))
    nb.cells = cells
    return n


def write(kind, folder, only=(), outputs=True):
    "Write an edition into a new folder: (file, exercises) of each tutorial"
    folder = Path(folder)
    if folder.exists(): raise ValueError(f"expected a new folder, got {folder}, which exists; choose another")
    pages = [path for path in sorted((SOURCE / 'tutorials').glob('[0-9]*.ipynb')) if not only or path.name[:2] in only]
    if missing := set(only) - {path.name[:2] for path in pages}:
        raise ValueError(f"expected numbers of tutorials, like 01, got {', '.join(sorted(missing))}")
    made, temporary = [], folder.with_name(f'.{folder.name}.new')
    shutil.rmtree(temporary, ignore_errors=True)
    (temporary / 'images').mkdir(parents=True)
    for path in pages:
        nb = nbformat.read(path, as_version=4)
        n = open_exercises(nb) if kind == 'students' else sum(map(is_exercise, nb.cells))
        for cell in nb.cells:
            if cell.cell_type == 'markdown': cell.source = own_links(cell.source, temporary)
            else: cell.source = own_data(cell.source, temporary)
            if cell.cell_type == 'code' and not outputs: cell.outputs, cell.execution_count = [], None
        nbformat.write(nb, temporary / path.name)
        made.append((path.name, n))
    temporary.rename(folder)
    return made


def own_data(source, folder):
    "A cell that reads committed results reads those beside it, which come along: some seven megabytes"
    if DATA.search(source):
        for name in ('experiments', 'results'):
            shutil.copytree(SOURCE / name, folder / name, dirs_exist_ok=True,
                            ignore=shutil.ignore_patterns('*.ipynb', '.ipynb_checkpoints'))
    return DATA.sub('', source)


def own_links(text, folder):
    "Pictures and the glossary are taken along; links to other pages lead to the repository"
    def moved(match):
        target = match[1]
        name, page = Path(target.partition('#')[0]), SOURCE / target.partition('#')[0]
        if name.parts[0] == 'images' or name.name == 'glossary.ipynb':
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(page, folder / name)
            return target       # beside the notebooks: there is no folder above them
        return HOME + target
    return LINK.sub(moved, text)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('kind', choices=['students', 'answers'])
    parser.add_argument('folder')
    parser.add_argument('--only', nargs='+', default=(), metavar='NN', help='numbers of tutorials, like 01 03')
    parser.add_argument('--without-outputs', action='store_true', help='students see nothing that they did not run')
    asked = parser.parse_args(arguments)
    try: made = write(asked.kind, asked.folder, asked.only, not asked.without_outputs)
    except (ValueError, OSError) as error:
        print(f'editions: {error}', file=sys.stderr)
        return 2
    for name, n in made: print(f'{name}: {n} exercises')
    return 0


if __name__ == '__main__': sys.exit(main())
