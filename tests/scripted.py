"""Two or more specialists whose answers to the examiner are scripted, so that every gate can be steered."""
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd

from evolora.host.adapters import Factors
from evolora.assimilation.pairing import Assimilation, AssimilationConfig
from evolora.ecology.config import EcologyConfig
from evolora.tasks.curriculum import CurriculumConfig
from evolora.ecology.ecology import Ecology
from evolora.economy.prices import EconomyConfig
from evolora.assimilation.examiner import Examiner
from evolora.tasks.family import Grade
from evolora.assimilation.gates import turn
from evolora.organelles.population import Population, Traits
from evolora.organelles.updates import Plasticity, PlasticityConfig
from evolora.utils.randomness import seed_of, stream
from evolora.tasks.families import Cell
from evolora.assimilation.trials import attempt
from evolora.ecology.variation import VariationConfig, gaussian

CELLS = [Cell('math', 2), Cell('string.sort', 2), Cell('logic.bool', 1), Cell('word.count', 3)]
FAMILIES = [c.family for c in CELLS]
# A test takes some dozens of answers here, not thousands.
QUICK = dict(merges=1, wait=2, survey=8, look=16, canary=4, probe=8, uplift=.4, expert=0.)
SHORT = dict(pairs=16, least_power=0.)      # one look, too few pairs for a verdict


class Script(Examiner):
    "An examiner with a script: `is_right(name, task, i)` is whether the i-th question of a call is answered right"
    def __init__(self, population, is_right):
        super().__init__(population)
        self.is_right, self.evaluations = is_right, []

    def ask(self, who, tasks, seed_for, **how):
        assert who and tasks and all(f is None or isinstance(f, dict) for f in who.values())
        self.evaluations.append((list(who), list(tasks), how))
        right = {name: np.array([bool(self.is_right(name, t, i)) for i, t in enumerate(tasks)]) for name in who}
        self.bill['answers'] += len(who) * len(tasks)
        self.bill['right'] += int(sum(r.sum() for r in right.values()))
        return right


# Scripts. In a survey a name is an organelle, and none can do what is asked away from home.
def better(name, task, i): return name in ('child', 'host')
def worse(name, task, i): return name != 'child'
def equal(name, task, i): return name in ('child', 'host') and task.difficulty == 0     # at home no answer is right
def rarely_better(name, task, i): return equal(name, task, i) or name == 'child' and i % 8 == 0
def narrow(name, task, i): return better(name, task, i) == (task.difficulty == 0 or task.family in FAMILIES[:2])
def forgetful(name, task, i): return name == 'host' or name == 'child' and task.difficulty > 0


def seed_for(task): return seed_of(3, organelle=task.id)
def rng(purpose): return stream(1, purpose=purpose)


def moved(population, id, step=.3):
    rng, alpha = stream(9, organelle=id), population.alpha
    population.write(id, gaussian(population.factors(id), rng=rng, step=step, alpha=alpha))


def log(skill, *, generation, n=12, cells=CELLS, tasks=None):
    "n answers a cell of each organelle, a share of them right: skill is {organelle: share or {family: share}}"
    rows = [dict(generation=generation, organelle=id, family=c.family, depth=c.depth, task=f'{c} {i % (tasks or n)}',
                 success=(i + .5) / n < (share.get(c.family, 0.) if isinstance(share, dict) else share))
            for id, share in skill.items() for c in cells for i in range(n)]
    return pd.DataFrame(rows, columns=['generation', 'organelle', 'family', 'depth', 'task', 'success'])


def meeting(host, *, niches=FAMILIES[:2], is_right=better, tokens=600, energy=20., price=5., generation=10, answers=12,
            others=0, cells=CELLS, weaker=None, **knobs):
    "Specialists who solve everything at home (one may solve half), with energy, tokens, and a scripted examiner"
    population = Population(host, capacity=8, max_rank=4, blocks=1)
    for i, niche in enumerate(niches):
        moved(population, population.birth(rank=2, traits=Traits(niche=niche), rng=stream(i)).id)
    config = AssimilationConfig(**QUICK | knobs)
    a = Assimilation(config, population, cells, Script(population, is_right))
    a.beginning = {f: [64, others] for f in a.families}
    for id in population.ids: a.tokens.earn(id, tokens, 0)
    skill = {o.id: {o.traits.niche: .5 if o.id == weaker else 1.} for o in population}
    recent = log(skill, generation=generation, n=answers, cells=cells)
    return SimpleNamespace(a=a, population=population, generation=generation, price=price, recent=recent,
                           facts=a.facts(recent), energy=dict.fromkeys(population.ids, energy),
                           plasticity=Plasticity(population, PlasticityConfig(rule='local', probe=0.)))


def paired(m, turns):
    return m.a.pair(turns, m.facts, m.generation, energy=m.energy, price=m.price, rng=rng, seed_for=seed_for)


def candidate_pairs(m):
    "The free gates and the survey: turns, and pairs as if each of them began a test"
    turns = m.a.nominate(m.facts, m.generation, energy=m.energy, solvent=.3)
    return turns, list(paired(m, turns))


def tried(m, pair=('o1', 'o2')):
    return attempt(m.a, pair, m.generation, plasticity=m.plasticity, lows=[.8, .8], rng=rng, seed_for=seed_for)


def decided(m):
    "All decisions of a generation without a child on probation, and the attempts of its pairs"
    turns, attempts = m.a.nominate(m.facts, m.generation, energy=m.energy, solvent=.3), []
    for pair in paired(m, turns):
        attempts.append(tried(m, pair))
        turns[pair[0]] += attempts[-1].decisions
    return [d for steps in turns.values() for d in turn(steps)], attempts


def on_probation(m, pair=('o1', 'o2')):
    "A trial whose child lives in the population"
    trial = tried(m, pair).trial
    one = m.population.birth(trial.child.factors, traits=Traits(niche=trial.child.niche), parents=pair,
                             operator='merge', generation=m.generation)
    trial.id, m.a.trials[one.id] = one.id, trial
    return trial


def same(one: Factors, two: Factors) -> bool:
    return all(a.shape == b.shape and a.equal(b) for n in one for a, b in zip(one[n], two[n]))


def ecology(host, config, *, is_right=better, seed=0, tokens=0, niches=FAMILIES) -> Ecology:
    "A world of specialists with a scripted examiner; nothing was known before they began, and none has to wait"
    world = Ecology(host, config, seed=seed)
    for id, niche in zip(world.population.ids, niches * len(world.population)):
        one = world.population[id]
        world.population._members[id] = replace(one, traits=one.traits.model_copy(update={'niche': niche}))
        if tokens: world.assimilation.tokens.earn(id, tokens, 0)
    world.assimilation.tried = dict.fromkeys(world.population.ids, -99)
    world.assimilation.examiner = Script(world.population, is_right)
    world.assimilation.beginning = {f: [64, 0] for f in world.assimilation.families}
    return world


def chance_decides(task, text):
    "A grade by chance, by question and answer: for daily life, while the examiner follows its script"
    draw = stream(0, purpose=f'{task.id} {text}').random()
    return Grade(draw > .1, 1. if draw > .6 else .1 * (draw > .1), draw > .6)


def world(**changes):
    "Four specialists who answer enough to be known at once, have energy, and neither learn nor die unless changed"
    knobs = QUICK | dict(wait=0, scores=2, token_price=.05, worth=0., least_power=0.) | changes.pop('merging', {})
    sections = dict(economy=EconomyConfig(founder_energy=20., newborn_energy=2., ticket=.1, price_token=.001,
                                          price_gflop=0.),
                    curriculum=CurriculumConfig(budget_min=12, budget=12., budget_max=12),
                    variation=VariationConfig(mu=9, offspring=0), plasticity=PlasticityConfig(rule='none'))
    life = dict(founders=4, founder_step=.3, capacity=9, cells=list(map(str, CELLS)),
                max_new_tokens=3, reserve=1., rank=2, max_rank=4, traits=Traits(explore=0.))
    return EcologyConfig(**life | sections | changes, assimilation=AssimilationConfig(**knobs))


def with_trial(host, **changes):
    "A world in which a child was born on probation in generation 0, its record, and the trial"
    merging = dict(pairs=16, wait=99) | changes.pop('merging', {})
    e = ecology(host, world(merging=merging, **changes), tokens=400, is_right=rarely_better)
    record = e.step()
    e.assimilation.tried = dict.fromkeys(e.population.ids, 0)       # no other pair is tested from now on
    (trial,) = e.assimilation.trials.values()
    assert record.row['gates']['trial_created'] == 1 and trial.id in e.population and not record.merges
    return e, record, trial


def in_final_test(host, *, absorb=False, **changes):
    "A world with a child in the middle of its final test: 16 pairs a generation, of which it wins a quarter"
    merging = dict(pairs=64, probation_after=16, futility=0., uplift=.1, absorb=absorb)
    e, _, trial = with_trial(host, merging=merging, **changes)
    e.assimilation.examiner.is_right = lambda name, t, i: name == 'child' and (trial.final is None or i % 4 == 0)
    while trial.final is None: e.step()
    assert trial.id in e.assimilation.trials and {t.pairs for t in trial.tests.values()} == {16}
    return e, trial
