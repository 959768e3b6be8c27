"""An exam in a world leaves nothing behind, whoever answers, and follows what grades say."""
import json

import pytest
from scripted import chance_decides

from evolora.ecology.config import changed_config, load_config
from evolora.ecology.ecology import Ecology
from evolora.evaluation.world_exam import exam_in_world, exam_in_worlds
from evolora.experiments.world_arms import ARMS, begun
from evolora.host.model import tiny_host
from evolora.tasks.families import under
from evolora.tasks.worlds import World

SMALL = {'cells': ['string.sort:1', 'word.count:1'], 'max_new_tokens': 4, 'world': {'worlds': 2, 'period': 2},
         'market': {'questions': 4, 'round': 2}, 'curriculum': {'copies': 2}}
# Their population changes while they answer.
MOVING = ['reset', 'reset_memory', 'reptile', 'told', 'told_habit', 'halving']


@pytest.fixture(scope='module')
def host(): return tiny_host()


@pytest.fixture
def chance(monkeypatch):
    monkeypatch.setattr('evolora.tasks.forms.Form.grade', lambda _, task, text: chance_decides(task, text))


def lived(host, name):
    ecology = begun(host, name, changed_config(load_config('worlds'), SMALL), seed=3)
    ecology.run(3, log=None)
    return ecology


def kept(ecology):
    "All that a later generation could notice"
    weights = {id: [x.tolist() for AB in ecology.population.factors(id).values() for x in AB]
               for id in ecology.population.ids}
    return json.dumps([ecology.market.state(), ecology.serving.state(), weights, ecology.plasticity.updates.tolist(),
                       ecology.generation, [ecology.world.number(g) for g in range(8)]])


@pytest.mark.parametrize('name', [name for name in ARMS if name not in ('wide', *MOVING)])
def test_nothing_is_left_behind_and_life_goes_on_as_it_would_have(host, chance, name):
    one, other = lived(host, name), lived(host, name)
    before = kept(one)
    first = exam_in_world(one, 0, (0, 1, 4), questions=8)
    assert kept(one) == before and exam_in_world(one, 0, (0, 1, 4), questions=8).equals(first)
    assert one.step().episodes == other.step().episodes and kept(one) == kept(other)


@pytest.mark.parametrize('name', MOVING)
def test_an_arm_whose_population_changes_while_it_answers_is_refused(host, chance, name):
    with pytest.raises(ValueError, match='population stays while it answers'): exam_in_world(lived(host, name), 0)


def test_grades_in_the_exam_move_nothing(host, chance, monkeypatch):
    ecology, settled = lived(host, 'ecology'), []
    real = ecology.serving.settle
    monkeypatch.setattr(type(ecology.serving), 'settle',
                        lambda self, answers: settled.append(len(answers)) or real(answers))
    exam_in_world(ecology, 1, (0, 2, 5), questions=8)
    assert settled == [1] * 5


def test_tasks_are_of_the_world_that_was_asked_for(host, chance, monkeypatch):
    ecology, graded = lived(host, 'ecology'), []
    monkeypatch.setattr('evolora.tasks.forms.Form.grade', lambda _, task, text: graded.append(task) or chance_decides(
        task, text))
    exam_in_world(ecology, 1, (0,), questions=8)            # the host, then the ecology
    world = World(ecology.config.world, ecology.config.families, ecology.seed)
    counted = [task for task in graded if task.family == 'word.count']      # whose answers follow from its numbers
    answers = lambda number: [under(task, world.stopped(number).habit('word.count', 0)).answer for task in counted]
    assert len(graded) == 16 and counted and [t.answer for t in counted] == answers(1) != answers(0)


def test_the_host_is_asked_the_same_in_the_same_world(host, chance, monkeypatch):
    ecology, asked = lived(host, 'ecology'), []
    real = ecology.population.generate
    monkeypatch.setattr(ecology.population, 'generate', lambda prompts, who, **how: asked.append(
        (prompts, who, how['seeds'])) or real(prompts, who, **how))
    found = exam_in_worlds(ecology, (0,), questions=8, kind='holdout')
    assert found.world.tolist() == [0, 1] and found.questions.tolist() == [8, 8]
    for bare, own in zip(asked[::2], asked[1::2]):
        assert bare[0] == own[0] and bare[2] == own[2] and bare[1] == [None] * 8 and None not in own[1]


@pytest.mark.parametrize('after', [(), (-1, 2), (4, 1), (1, 1), (0, 1.5), ('x',)])
def test_senseless_numbers_of_grades_are_refused(host, chance, after):
    with pytest.raises(ValueError, match='rising numbers of grade'): exam_in_world(lived(host, 'one'), 0, after)


@pytest.mark.parametrize('number', [-1, 1.5, 'x', True, None])
def test_what_is_no_world_is_refused(host, chance, number):
    with pytest.raises(ValueError, match="a world's number from 0"): exam_in_world(lived(host, 'one'), number)


def test_it_waits_for_nobody(host, chance):
    ecology = lived(host, 'ecology')
    with ecology.still(), pytest.raises(RuntimeError, match='running elsewhere'):
        exam_in_world(ecology, 0, (0,))


def test_without_worlds_there_is_no_exam(host):
    static = changed_config(load_config('worlds'), SMALL | {'world': {'schedule': 'static'}})
    with pytest.raises(ValueError, match='a world that changes'): exam_in_world(Ecology(host, static), 0)
