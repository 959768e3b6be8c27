"""What tests of several rooms share: cells, adapters that do something, and grades that chance decides."""
from evolora.ecology.variation import gaussian
from evolora.host.adapters import Factors
from evolora.tasks.families import Cell
from evolora.tasks.family import Grade
from evolora.utils.randomness import seed_of, stream

CELLS = [Cell('math', 2), Cell('string.sort', 2), Cell('logic.bool', 1), Cell('word.count', 3)]


def seed_for(task): return seed_of(3, organelle=task.id)


def moved(population, id, step=.3):
    rng, alpha = stream(9, organelle=id), population.alpha
    population.write(id, gaussian(population.factors(id), rng=rng, step=step, alpha=alpha))


def same(one: Factors, two: Factors) -> bool:
    return all(a.shape == b.shape and a.equal(b) for n in one for a, b in zip(one[n], two[n]))


def chance_decides(task, text):
    "A grade by chance, by question and answer"
    draw = stream(0, purpose=f'{task.id} {text}').random()
    return Grade(draw > .1, 1. if draw > .6 else .1 * (draw > .1), draw > .6)
