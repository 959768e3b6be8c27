"""A study gives what the drivers before it gave, condition by condition and seed by seed, to the last byte.

Goes with the old drivers in the next commit; `python tests/experiments/test_same_as_before.py` compares all conditions.
"""
import json
import sys
import tempfile
from pathlib import Path

import pytest

from evolora.experiments import ecology_vs_rivals as before
from evolora.experiments import merge_ablation as twins
from evolora.experiments.baselines import CONDITIONS
from evolora.experiments.study_cell import make_cell, questions
from evolora.experiments.study_plan import Cell, Measured, Plan, Variant

NAMES = [*[n for n in CONDITIONS if n != 'sft_bits'], 'sft_bits']
SIZES = dict(id=96, ood=96, points=2, probe=48, brittle=16)
PLAN = Plan(name='same', question='Is it as before?', budgets=(250.,), seeds=(1, 2), conditions=NAMES,
            measured=Measured(**SIZES, also=('curve', 'sampled', 'brittleness')))
TWINS = Plan(name='twins', question='Is it as before?', seeds=(1, 2), conditions=(
    Variant(name='with', of='ecology', generations=8), Variant(name='without', of='unmerged', budget_of='with')),
    measured=Measured(id=96, ood=96, also=('audit',), audit=64))


def part(cell, *left_out):
    "What both drivers write, as bytes"
    cell = json.loads(json.dumps(cell))
    for way in cell['ways'].values():
        for evaluation in way.values(): evaluation.pop('parsed', None)
    cell['spent'].pop('seconds', None)
    kept = ('ways', 'spent', 'gflops', 'organelles', 'curve', 'sampled', 'brittleness', 'examples', 'audit', 'generations', 'tokens')
    return json.dumps({k: cell[k] for k in kept if k in cell and k not in left_out}, sort_keys=True)


def asked(monkeypatch, module, plan):
    "The old driver asks the study's questions"
    monkeypatch.setattr(module, 'evaluation_sets', lambda *_: questions(plan, Cell('frozen', 1, 'embedded', 250.)))


def pair(monkeypatch, folder, name, seed, known):
    asked(monkeypatch, before, PLAN)
    worth = before._worth({('ecology', seed): known['ecology', seed]}, seed) if name == 'sft_bits' else None
    old = before.run_cell(folder, before.Settings(budget=250., **SIZES), name, seed, worth)
    new = make_cell(PLAN, Cell(name, seed, 'embedded', 250.), {'ecology': known.get(('ecology', seed))})
    known[name, seed] = new
    return part(old), part(new, 'generations', 'tokens')        # which the old driver did not keep


def lives(monkeypatch, folder, seed):
    asked(monkeypatch, twins, TWINS)
    settings, known, rows = twins.Settings(generations=8, audit=64, id=96, ood=96), {}, []
    for name in ('with', 'without'):
        old = twins.run_life(folder, settings, name, seed, old['gflops'] if rows else None)
        known[name] = make_cell(TWINS, Cell(name, seed, 'embedded', 1000.), known)
        out = () if name == 'with' else ('audit', 'tokens')     # the old driver did not look at these
        rows.append((part(old, *out), part(known[name], *out)))
    return rows


@pytest.mark.slow
@pytest.mark.parametrize('name', ['frozen', 'few_shot', 'single', 'sft', 'local'])
def test_a_cell_is_as_before(monkeypatch, tmp_path, name):
    (tmp_path / 'cells').mkdir()
    old, new = pair(monkeypatch, tmp_path, name, 1, {})
    assert old == new


if __name__ == '__main__':
    patch = pytest.MonkeyPatch()
    with tempfile.TemporaryDirectory() as scratch:
        folder, known, same = Path(scratch), {}, []
        (folder / 'cells').mkdir()
        for seed in (1, 2):
            for name in NAMES:
                try: old, new = pair(patch, folder, name, seed, known)
                except ValueError as error: print(name, seed, 'FAILED', error, flush=True); continue
                same.append(old == new)
                print(name, seed, len(new), 'same' if old == new else 'DIFFERENT', flush=True)
                if old != new: print(old[:3000], '\n', new[:3000])
            for name, (old, new) in zip(('with', 'without'), lives(patch, folder, seed)):
                same.append(old == new)
                print(name, seed, len(new), 'same' if old == new else 'DIFFERENT', flush=True)
                if old != new: print(old[-3000:], '\n', new[-3000:])
    print(sum(same), 'of', len(same), 'same')
    sys.exit(not all(same))
