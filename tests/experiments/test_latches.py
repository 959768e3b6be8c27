"""No rival latches: a change that was missed, or that came after a long time, does not keep an arm wrong for good."""
import numpy as np
import pytest

from evolora.ecology.config import changed_config, load_config
from evolora.ecology.memory import Solved
from evolora.ecology.parts import Graded
from evolora.experiments.world_arms import ARMS, begun
from evolora.host.model import tiny_host
from evolora.utils.randomness import stream

SMALL = {'cells': ['string.sort:1', 'word.count:1'], 'max_new_tokens': 4, 'world': {'worlds': 2, 'period': 2},
         'market': {'questions': 4, 'round': 2}, 'curriculum': {'copies': 2}}
STALE = .06         # share of right answers of an adapter, or under an example, of the convention that is gone


@pytest.fixture(scope='module')
def host(): return tiny_host()


def arm(host, name, **knobs): return begun(host, name, changed_config(load_config('worlds'), SMALL), seed=2, **knobs)


def answered(right, organelle, place=0, shown=()):
    return Graded('string.sort', f'question {place}', [3], bool(right), organelle, .5, 'abc', place=place,
                  shown=tuple(shown))


@pytest.mark.parametrize('before', [0, 6, 300])
@pytest.mark.parametrize('name', ['reset', 'reset_memory', 'reptile'])
def test_a_detector_replaces_the_adapter_after_a_change_that_it_missed(host, name, before):
    e = arm(host, name)
    for i in range(before): e.serving.settle([answered(i % 10 < 7, e.population.ids[-1])])
    resets, one, rng = e.serving.resets, e.population.ids[-1], stream(before, purpose='missed change')
    for _ in range(400):
        e.serving.settle([answered(rng.random() < STALE, e.population.ids[-1])])
        if e.serving.resets > resets: break
    assert e.serving.resets == resets + 1 and e.population.ids[-1] != one


def often(host, name, knobs, before):
    "How many of the last 400 questions go to the best adapter, after another one was the best for so many"
    e, rng = arm(host, name, **knobs), stream(before, purpose=f'{name} {knobs}')
    task, asked = e.put([(e.cells['string.sort:1'], 0)])[0], []
    for i in range(before + 1500):
        best = 'o2' if i < before else 'o5'
        who = e.serving.choose(task, 0, rng)
        e.serving.settle([answered(rng.random() < (.8 if who == best else STALE), who)])
        asked.append(who)
    return asked[-400:].count('o5')


@pytest.mark.parametrize('name, knobs', [
    ('thompson', {}), ('thompson', dict(discount=.98)), ('thompson', dict(pooled=True)), ('gradient', {}),
    ('changepoint', {}), ('changepoint', dict(pooled=True))])
def test_a_bank_asks_the_best_one_as_often_after_a_change_as_without_one(host, name, knobs):
    never, missed, late = (often(host, name, knobs, before) for before in (0, 6, 300))
    assert never > 120 and min(missed, late) > .8 * never       # one of six by chance: 67


@pytest.mark.parametrize('name', ['posterior', 'posterior_memory', 'ecology', 'ecology_memory'])
def test_stakes_turn_to_another_one_after_a_change(host, name):
    e = arm(host, name)
    while len(e.population) < 3: e.serving.recruit()
    ids, turns = e.population.ids, []
    for best in (0, 1):
        for turn in range(400):
            if e.serving.leader('string.sort') == ids[best] and turn: break
            e.market.settle('string.sort', {id: .8 if i == best else STALE for i, id in enumerate(ids)})
        turns.append(turn)
    assert max(turns) < 20


@pytest.mark.parametrize('name', [*(n for n, a in ARMS.items() if a.changes.get('memory')), 'context'])
def test_no_arm_keeps_an_example_that_misleads(host, name):
    e = arm(host, name)
    memory = e.serving.memory
    topic, one = e.serving.topic('string.sort', 0, 'o1'), e.population.ids[0]
    memory.examples.add(topic, Solved(one, 'string.sort', 'Sort the letters: cab', 'stale', 0))
    for place in range(64):
        shown = memory.shown(topic)
        if not any(s.answer == 'stale' for s in shown): break
        e.serving.remember([answered(False, one, place, shown) for _ in range(2)])      # no lucky answer helps
    assert place < 10


def test_a_memory_without_dropping_would_fail_this(host):
    e = arm(host, 'context', drop=4096)
    e.serving.memory.examples.add('string.sort', Solved('o1', 'string.sort', 'q', 'stale', 0))
    for place in range(64): e.serving.remember([answered(False, 'o1', place, e.serving.memory.shown('string.sort'))])
    assert e.serving.memory.shown('string.sort')[0].answer == 'stale'
