"""Committed cells as attacks see them: a difference over each part of a run, and what arms spent and were told."""
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import numpy as np
import pandas as pd

from evolora.experiments.baselines import CONDITIONS
from evolora.experiments.results_page import arm_facts
from evolora.experiments.study import Study
from evolora.experiments.study_differences import Difference, compared, difference, difference_of, places
from evolora.experiments.study_plan import Cell, Plan
from evolora.experiments.study_results import WHOLE, Results
from evolora.utils.statistics import holm, sign_flip
from stated_claims import Claim

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / 'nbs/experiments/results'
_RANKS = ('organelles', 'shared', 'absence', 'stakes')     # what a point of `fitness` holds behind its GFLOPs


class Evidence:
    "A study as attacks see it: a plan and its finished cells"
    def __init__(self, plan: Plan, cells: dict[Cell, dict]):
        self.plan, self.cells = plan, cells
        self._results: dict[tuple, Results | None] = {}
        self._compared: pd.DataFrame | None = None
        self._seen: dict[tuple, Difference] = {}

    def results(self, claim: Claim) -> Results:
        "The arms of all in the place of a claim; ValueError where no cell is finished"
        if not self._results: self._results = places(self.plan, self.cells)
        found = self._results.get(self.place(claim))
        if found is None: raise ValueError(f'expected cells of {claim.study} in {self.place(claim)}, got none')
        return found

    def place(self, claim: Claim) -> tuple[str, str, float]:
        "World, host and budget; the only one of the study where the claim names none"
        plan = self.plan
        return (claim.world or plan.worlds[0].name, claim.host or plan.hosts[0], claim.budget or plan.budgets[0])

    def own(self, claim: Claim, arm: str) -> dict[int, dict]: # by seed
        "The cells of an arm in the place of a claim, on the seeds that both arms have"
        world, host, budget = self.place(claim)
        by_arm = {name: {c.seed: found for c, found in self.cells.items() if (c.condition, c.world, c.host, c.budget)
                         == (name, world, host, budget)} for name in (claim.of, claim.against)}
        both = set.intersection(*map(set, by_arm.values()))
        return {seed: by_arm[arm][seed] for seed in sorted(both)}

    def seen(self, claim: Claim, way: str | None = None) -> Difference: # `WHOLE`: of the whole run
        "How far the claim's arm is ahead, in the part of a run that the study judges"
        key = (*self.place(claim), claim.of, claim.against, claim.measure, way)
        if key not in self._seen:
            found = self._ranks(claim) if claim.measure else difference(self.results(claim), claim.of, claim.against,
                                                                        way=way)
            if found is None: raise ValueError(f'expected cells of {claim.of} and {claim.against}, got none of one')
            self._seen[key] = found
        return self._seen[key]

    def _ranks(self, claim: Claim) -> Difference:
        "The same of a rank correlation of the last look at a run"
        value = {arm: {seed: cell['fitness'][-1] for seed, cell in self.own(claim, arm).items()}
                 for arm in (claim.of, claim.against)}
        at = _RANKS.index(claim.measure) + 2
        gaps = {seed: value[claim.of][seed][at] - value[claim.against][seed][at] for seed in value[claim.of]}
        return difference_of(np.array([*gaps.values()])[:, None], [*gaps], ['run'])

    def mean_spent(self, claim: Claim, arm: str) -> tuple[float, float]:
        "GFLOPs and graded answers of an arm, means over seeds"
        cells = self.own(claim, arm).values()
        return (float(np.mean([c['gflops'] for c in cells])), float(np.mean([c['spent']['answers'] for c in cells])))

    def learns(self, arm: str) -> bool:
        "Whether an arm is trained, and so could have spent more"
        variant = self.plan.variant(arm)
        return CONDITIONS[variant.of or variant.name].learns

    def serving(self, arm: str) -> str:
        "Who decides which adapter of an arm answers, see `world_arms`; empty: stakes"
        variant = self.plan.variant(arm)
        return CONDITIONS[variant.of or variant.name].serving

    def told(self, arm: str) -> str:
        "What an arm is told and others may not be: a world, a place, gold answers; empty: nothing"
        facts = arm_facts(self.plan.variant(arm))
        labels = [facts['told']] if facts['told'] != 'no' else []
        return ', '.join([*labels, *(['gold answers'] if facts['trained on'] == 'gold answers' else [])])

    def first_period(self, claim: Claim) -> int:
        "Generations before the first change; 0 where nothing changes within a run, or clients take turns"
        world = self.plan.world(self.place(claim)[0]).config().world
        lived = min((len(c.get('curve') or ()) for c in self.own(claim, claim.of).values()), default=0)
        return world.period if not world.static and not world.session and world.period < lived else 0

    def changes(self, claim: Claim) -> bool:
        "Whether the right answer changes in the world of a claim"
        return self.plan.measured.served and not self.plan.world(self.place(claim)[0]).config().world.static

    def before_change(self, claim: Claim) -> float:
        "The difference over the generations before the first change, as a share"
        n = self.first_period(claim)
        means = [np.mean([[right for _, right in cell['curve'][:n]] for cell in self.own(claim, arm).values()])
                 for arm in (claim.of, claim.against)]
        return float(means[0] - means[1])

    def corrected(self, claim: Claim) -> float:
        "Holm's p over the announced comparisons; a claim that was not announced joins them, in both directions"
        if self._compared is None: self._compared = compared(self.plan, self.cells)
        table, row = self._compared, self._row(claim)
        corrected = table.get('corrected p') if len(table) else None
        if row is not None: return float(row['p'] if corrected is None else row['corrected p'])
        differences = np.array([*self.seen(claim).by_seed.values()])
        own = min(1., 2 * min(sign_flip(differences), sign_flip(-differences)))
        return own if corrected is None else float(holm([*table.p.dropna(), own])[-1])

    def _row(self, claim: Claim) -> pd.Series | None:
        "The announced comparison of a claim, also the other way round if it was two-sided"
        table = self._compared
        if not len(table) or claim.measure: return None
        here = pd.Series(True, index=table.index)
        for name, value in zip(('world', 'host', 'budget'), self.place(claim)):
            if name in table: here &= table[name] == value
        if 'over' in table: here &= table.over == 'second'
        forth = table.comparison == f'{claim.of} − {claim.against}'
        back = (table.comparison == f'{claim.against} − {claim.of}') & (table.test == 'different')
        found = table[here & (table.kind == 'id') & (forth | back)]
        return found.iloc[0] if len(found) else None


@cache
def committed(study: str) -> Evidence:
    "The committed cells of a study; read once"
    found = Study(study, RESULTS / study)
    return Evidence(found.plan, found.cells())


def evidence_of(claim: Claim) -> Evidence:
    "The cells that a claim rests on"
    return claim.evidence or committed(claim.study)


def points(x: float) -> str:
    "A difference in points, with its sign"
    return f'{100 * x:+.1f}'.replace('-', '−')


def interval(seen: Iterable[float]) -> str:
    "A difference and its interval, in points"
    estimate, low, high = seen
    return f'{points(estimate)} [{points(low)}, {points(high)}]'


def common(first: dict[int, float], second: dict[int, float]) -> tuple[float, float, list[int]]:
    "Means over the seeds that both have, or over all of each if none is the same; and the seeds of the first"
    seeds = sorted(set(first) & set(second))
    if not first or not second: return np.nan, np.nan, []
    ours, theirs = (seeds, seeds) if seeds else ([*first], [*second])
    return float(np.mean([first[s] for s in ours])), float(np.mean([second[s] for s in theirs])), ours


def of_curves(cells: dict[int, dict], part: str) -> dict[int, float]: # by seed
    "Accuracy from the curve of each run: `whole`, or its `second` half"
    found = {}
    for seed, cell in cells.items():
        right = [x for _, x in cell['curve']]
        found[seed] = float(np.mean(right if part == 'whole' else right[len(right) // 2:]))
    return found
