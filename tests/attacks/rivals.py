"""Rivals that no committed study had, run in the world of a study, and what they answered: rivals.json.

`right` is the accuracy in each generation, of the first answer to each question, as cells of studies have it.
"""
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from evolora.experiments.baselines import Life
from evolora.experiments.study_code import code_commit
from evolora.experiments.study_plan import Plan, Variant, load_plan
from evolora.host.model import recorded_host
from evolora.utils.files import write_whole

KEPT = Path(__file__).parent / 'rivals.json'


@dataclass(frozen=True)
class Rival:
    "An arm with its settings; each is run in the worlds of studies"
    arm: str
    changes: dict = field(default_factory=dict)     # of the preset
    knobs: dict = field(default_factory=dict)       # of its `Serving`

    def settings(self) -> dict: return {'arm': self.arm, 'changes': self.changes, 'knobs': self.knobs}


_SLOW = {'plasticity': {'learning_rate': .01, 'half_life': 300., 'kl_max': 3.}}
FROZEN = Rival('bare_memory')
SINGLE = Rival('reset_memory', _SLOW, {'threshold': 5.})
TUNED = Rival('reset', _SLOW | {'market': {'learn_every': 1}, 'curriculum': {'copies': 5}},
              {'threshold': 3., 'slack': .05})


def kept() -> list[dict]:
    "All runs that are committed"
    return json.loads(KEPT.read_text()) if KEPT.exists() else []


def runs_of(rival: Rival, study: str, world: str) -> dict[int, dict]: # by seed
    "The committed runs of a rival in one world of a study"
    wanted = rival.settings() | {'study': study, 'world': world}
    return {run['seed']: run for run in kept() if all(run[k] == x for k, x in wanted.items())}


def lived(rival: Rival, plan: Plan, world: str, seed: int) -> dict:
    "One run of a rival, as long as the arms of the study live"
    variant = Variant(name='rival', of=rival.arm, changes=rival.changes | {'serving': rival.knobs})
    generations = next(c.generations for c in plan.conditions if c.generations)
    life = Life(recorded_host(plan.hosts[0], threads=1), variant.condition(plan.world(world)), seed=seed)
    for _ in range(generations): life.update()
    right = [round(float(np.mean([success for _, success in answers])), 4) for _, answers in life.served]
    return {'study': plan.name, 'world': world} | rival.settings() | {
        'seed': seed, 'right': right, 'gflops': round(life.spent.gflops, 1), 'commit': code_commit()}


def keep(run: dict) -> None:
    "Add a run to the file, in place of an earlier one of the same settings and seed"
    same = ('study', 'world', 'arm', 'changes', 'knobs', 'seed')
    others = [old for old in kept() if any(old[k] != run[k] for k in same)]
    lines = sorted(json.dumps(one) for one in [*others, run])
    write_whole(KEPT, '[\n' + ',\n'.join(lines) + '\n]\n')


def run_again(rival: Rival, seeds: Sequence[int], write: bool, study: str, world: str) -> None:
    "Run a rival on each seed and print its accuracy; minutes per seed"
    for seed in seeds:
        run = lived(rival, load_plan(study), world, seed)
        if write: keep(run)
        right = run['right']
        print(f"{rival.arm}, seed {seed}: {np.mean(right):.1%} over the whole run, "
              f"{np.mean(right[len(right) // 2:]):.1%} in the second half, {run['gflops']:.0f} GFLOPs", flush=True)
