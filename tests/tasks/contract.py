"""Draws of every cell that the tests of this folder share, and rules that hold for all cells at once."""
from collections import Counter
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from evolora.tasks.families import CELLS, FAMILIES, NATURAL, PUZZLES, Cell
from evolora.utils.randomness import stream as random_stream

EASY_CELLS = tuple(Cell(name, 0) for name, family in FAMILIES.items() if family.lowest == 0)
PLAIN_CELLS = tuple(Cell(family.name, depth) for family in NATURAL for depth in family.depths)
PUZZLE_CELLS = tuple(Cell(family.name, depth) for family in PUZZLES for depth in family.depths)
EVERY_CELL = CELLS + EASY_CELLS + PLAIN_CELLS + PUZZLE_CELLS
OPEN = 'regex.synthesis', 'regex.refactor', 'regex.debug', 'text.write'     # many answers are right
DEAR = 'logic.bool', *(name for name in FAMILIES if name.startswith('regex.'))  # a draw takes as long as dozens


def every(cases):
    "A test of one case becomes one of all cases, which lists those that fail"
    def of(test):
        def all_of_them():
            failed = []
            for case in cases:
                try: test(case)
                except Exception as e: failed.append(f'{case}: {type(e).__name__} {e}'[:400])
            assert not failed, '\n'.join(failed)
        all_of_them.__name__, all_of_them.__doc__ = test.__name__, test.__doc__
        return all_of_them
    return of


every_cell, every_family, every_plain_cell = every(EVERY_CELL), every(FAMILIES), every(PLAIN_CELLS)


def distinct(cell):
    "Prompts that a cell must have at least; easy ones are few, small sums most of all"
    return 5000 if cell in CELLS else 1000 if cell in PLAIN_CELLS + PUZZLE_CELLS else 500


class Drawn(NamedTuple):
    answers: dict       # of each distinct prompt
    modes: Counter      # how often each answer came, repeated prompts included
    tasks: list         # the first few, difficulties from 0 to 1


@lru_cache(maxsize=None)
def drawn(cell, whole=False):
    "Some draws of a cell; or until enough prompts are distinct, or it is clear that they never will be"
    rng, family = random_stream(0, purpose=f'contract {cell}'), FAMILIES[cell.family]
    found = Drawn({}, Counter(), [])
    for i in range(4 * distinct(cell) if whole else 300 if cell.family in DEAR else 1500):
        task = family.draw(rng, cell.depth, (0., .25, .5, .75, 1.)[i] if i < 5 else rng.random())
        found.answers[task.prompt] = task.answer
        found.modes[task.answer] += 1
        if i < 120: found.tasks.append(task)
        if whole and len(found.answers) == distinct(cell): break
    return found


def expected(cell):
    "Different prompts in the draws of a cell, had it just as many as it must have, all equally likely"
    n = distinct(cell)
    return n * (1 - (1 - 1 / n)**drawn(cell).modes.total())


def common(found, cell):
    "The most frequent answer, its share, and the largest share that it may have"
    answer, count = found.modes.most_common(1)[0]
    most = max(2 / len(found.modes), .05 if cell in CELLS else .2)      # a week has seven days
    return answer, count / found.modes.total(), most


def one_task(family, depth=3, seed=0): return FAMILIES[family].draw(np.random.default_rng(seed), depth, .5)
