"""Rivals in a world that changes: a life goes on bit for bit, and a study counts what came in its second half."""
import json

import pytest

from evolora.ecology.config import changed_config, load_config
from evolora.ecology.serving import Graded
from evolora.evaluation.world_exam import exam_in_world
from evolora.experiments.baselines import CONDITIONS, Life, train
from evolora.experiments.study_cell import make_cell
from evolora.experiments.study_plan import Cell, checked_plan
from evolora.experiments.study_results import Results, checked_cell
from evolora.experiments.world_arms import ARMS, begun
from evolora.host.model import tiny_host
from scripted import chance_decides

SMALL = {'cells': ['string.sort:1', 'word.count:1'], 'max_new_tokens': 4, 'world': {'worlds': 2, 'period': 2},
         'market': {'questions': 4, 'round': 2}, 'curriculum': {'copies': 2}}


@pytest.fixture(scope='module')
def host(): return tiny_host()


@pytest.fixture
def chance(monkeypatch):
    monkeypatch.setattr('evolora.tasks.forms.Form.grade', lambda _, task, text: chance_decides(task, text))


def brief(name):
    condition = CONDITIONS[name]
    return condition.model_copy(update={'preset': 'worlds', 'changes': SMALL | condition.changes | {
        'market': SMALL['market'] | condition.changes.get('market', {})}})


# The tiny host's maps are too thin for the ranks of `wide`, which is `one` but for its rank.
NAMES = [name for name in ARMS if name != 'wide']


@pytest.mark.parametrize('name', NAMES)
def test_a_life_that_was_stopped_goes_on_as_it_would_have(host, chance, tmp_path, name):
    whole, part = Life(host, brief(name), seed=2), Life(host, brief(name), seed=2)
    for _ in range(5): whole.update()
    for _ in range(2): part.update()
    part.save(tmp_path)
    again = Life(host, brief(name), seed=2)
    again.load(tmp_path)
    for _ in range(3): again.update()
    assert again.served == whole.served and again.spent.gflops == whole.spent.gflops
    assert again.ecology.serving.state() == whole.ecology.serving.state()
    assert again.ecology.ledger.state() == whole.ecology.ledger.state()


def test_all_arms_meet_the_same_questions_as_often(host, chance):
    asked = {}
    for name in NAMES:
        ecology = begun(host, name, changed_config(load_config('worlds'), SMALL), seed=2)
        asked[name] = [e['task'] for _ in range(3) for e in ecology.step().episodes]
    assert all(tasks == asked['one'] for tasks in asked.values())


def answered(right, family='string.sort', organelle='o1'):
    return Graded(family, 'Sort the letters: cab', [3, 1], right, organelle, .9, 'abc')


def test_a_detector_replaces_the_adapter_once_its_rewards_have_fallen(host, chance):
    ecology = begun(host, 'reset', changed_config(load_config('worlds'), SMALL), seed=2, threshold=3.)
    ecology.serving.settle([answered(True)] * 30)
    assert ecology.population.ids == ['o1'] and ecology.serving.resets == 0
    ecology.serving.settle([answered(False)] * 8)
    assert ecology.population.ids == ['o2'] and ecology.serving.resets == 1
    ecology.serving.settle([answered(False, organelle='o2')] * 30)      # never right: nothing has fallen
    assert ecology.population.ids == ['o2']


def test_a_bank_comes_to_ask_whoever_is_right(host, chance):
    import numpy as np
    for name in ('thompson', 'gradient'):
        ecology = begun(host, name, changed_config(load_config('worlds'), SMALL), seed=2)
        task, rng = ecology.put([(next(iter(ecology.cells.values())), 0)])[0], np.random.default_rng(0)
        for _ in range(200):
            who = ecology.serving.choose(task, 0, rng)
            ecology.serving.settle([answered(who == 'o3', task.family, who)])
        assert [ecology.serving.choose(task, 0, rng) for _ in range(20)].count('o3') > 15


def test_the_latest_right_answer_stands_in_front_of_the_question(host, chance):
    ecology = begun(host, 'context', changed_config(load_config('worlds'), SMALL), seed=2)
    task = ecology.put([(next(iter(ecology.cells.values())), 0)])[0]
    bare, = ecology.serving.prompts([task])
    ecology.serving.settle([answered(True, task.family), answered(False, task.family)])
    assert ecology.serving.prompts([task]) == [('Sort the letters: cab', 'abc', bare)]


# --- in a study

def plan(**changes):
    return checked_plan({
        'name': 'small', 'question': 'Is it counted?', 'worlds': [{'name': 'w', 'preset': 'worlds', 'changes': SMALL}],
        'conditions': [{'name': name, 'generations': 4} for name in ('ecology', 'one')], 'seeds': 1,
        'measured': {'served': True}, 'comparisons': [{'of': 'ecology', 'against': ['one']}]} | changes)


def test_the_second_half_of_a_life_is_the_exam(host, chance, monkeypatch):
    monkeypatch.setattr('evolora.experiments.study_cell.host_of', lambda plan, cell: host)
    announced = plan()
    cells = [checked_cell(json.loads(json.dumps(make_cell(announced, Cell(name, 1, 'tiny', 1000., 'w'), {}))))
             for name in ('ecology', 'one')]
    results = Results(cells)
    life = Life(host, announced.variant('one').condition(announced.worlds[0]), seed=1)
    for _ in range(4): life.update()
    by_hand = [x for family in ('string.sort', 'word.count') for _, row in life.served[2:] for f, x in row
               if f == family]
    assert results.right('one', ('id',)).tolist() == [by_hand] and len(by_hand) == 8
    assert [len(c['curve']) for c in cells] == [4, 4] and cells[1]['curve'][-1][0] == round(cells[1]['gflops'], 3)


def test_what_is_remembered_is_measured_and_changes_nothing_else(host, chance, monkeypatch):
    monkeypatch.setattr('evolora.experiments.study_cell.host_of', lambda plan, cell: host)
    monkeypatch.setattr('evolora.experiments.study_cell.exam_in_world', lambda ecology, world, seed: exam_in_world(
        ecology, world, (0, 1), questions=8, seed=seed))
    made = {also: make_cell(plan(measured={'served': True, 'also': list(also)}), Cell('ecology', 1, 'tiny', 1000., 'w'),
                            {}) for also in ((), ('memory',))}
    remembered = checked_cell(made['memory',]).pop('memory')
    assert [row[:2] for row in remembered] == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert all(0 <= right <= 1 for _, _, right in remembered)
    for cell in made.values(): cell['hashes'].pop('questions')
    assert made['memory',] == made[()]


def test_an_arm_that_cannot_be_put_back_is_not_asked_what_it_remembers(host, chance, monkeypatch):
    monkeypatch.setattr('evolora.experiments.study_cell.host_of', lambda plan, cell: host)
    announced = plan(conditions=[{'name': 'reset', 'generations': 2}], comparisons=[],
                     measured={'served': True, 'also': ['memory']})
    assert make_cell(announced, Cell('reset', 1, 'tiny', 1000., 'w'), {})['memory'] == []


def test_memory_is_measured_of_those_that_are_served():
    with pytest.raises(ValueError, match='memory expected served: true, got false'): plan(measured={'also': ['memory']})


@pytest.mark.parametrize('changes, line', [
    ({'conditions': ['frozen', {'name': 'ecology', 'generations': 4}], 'comparisons': []}, 'live by a market'),
    ({'worlds': [{'name': 'w', 'preset': 'ecology'}]}, 'live by a market')])
def test_only_lives_with_a_market_can_be_served(changes, line):
    with pytest.raises(ValueError, match=line): plan(**changes)


def test_a_trained_market_is_its_own_router(host, chance):
    made = train(host, brief('ecology'), generations=6, seed=2)
    assert len(made.population) > 1 and made.spent.choose == 0
    market = made.learner.ecology.ledger
    assert made.routers['family'].table == {f: market.leader(f) for f in market.families}
