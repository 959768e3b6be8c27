"""A population whose every answer is written down, so that all that follows is known."""
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from evolora.evaluation.evaluation import holdout
from evolora.tasks.families import Cell
from evolora.tasks.task_sets import draw_tasks


class Actors:
    "A population with a script: `script(organelle, prompt, seed)` is the whole answer"
    def __init__(self, script, ids=('o1', 'o2'), niches={}):
        self.script, self.ids, self.niches, self.asked = script, list(ids), niches, []

    def weights_hash(self): return 'ab' * 32
    def __getitem__(self, id): return SimpleNamespace(traits=SimpleNamespace(niche=self.niches.get(id, '')))

    def generate(self, prompts, organelles, *, temperature, seeds, max_new_tokens, rows, on_rows):
        self.asked.append(len(prompts))
        self.seeds = list(seeds)
        texts = [self.script(*row) for row in zip(organelles, prompts, seeds)]
        n, new = len(texts), np.array([len(t) for t in texts])
        return SimpleNamespace(texts=texts, prompt_tokens=np.full(n, 10), new_tokens=new, flops=1e9 * (1. + new))


MATH, SORT = draw_tasks([Cell('math', 1)], stream='selection', n=12), draw_tasks([Cell('string.sort', 2)],
                                                                                 stream='selection', n=12)
BOTH = MATH + SORT
GOLD = {t.prompt: t.answer for t in BOTH} | {t.prompt: t.answer for t in holdout(240)}


def specialists(organelle, prompt, seed):
    "o1 sums, o2 sorts, the host does neither"
    able = {'o1': prompt.startswith('What'), 'o2': prompt.startswith('Sort')}.get(organelle, False)
    return GOLD[prompt] if able else 'x'


def table(rows):
    "Answers to one task each row: (organelle, task, value, success)"
    return pd.DataFrame([dict(organelle=who, family='math', depth=1, task=task, text=value or '?', value=value,
                              parsed=value is not None, progress=float(right), success=right, prompt_tokens=10,
                              new_tokens=2, gflops=.5) for who, task, value, right in rows])


def wrong_lines(raised):
    with pytest.raises(ValueError) as e: raised()
    assert '\n' not in str(e.value), 'an error is one line'
    return str(e.value)
