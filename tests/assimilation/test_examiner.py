"""An examiner asks gate questions only, grades by what is right today, and leaves no trace in a population."""
import random
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch

from scripted import CELLS, seed_for, moved, same
from evolora.assimilation import examiner as module
from evolora.assimilation.examiner import Examiner, fresh
from evolora.tasks.family import Grade, Task
from evolora.tasks.forms import Form
from evolora.host.model import tiny_host
from evolora.organelles.population import Population
from evolora.utils.randomness import stream
from evolora.tasks.families import ID_CELLS, Cell
from evolora.tasks.splits import stream_of
from evolora.tasks.task_sets import sample_tasks


@pytest.fixture(scope='module')
def host(): return tiny_host()


@pytest.fixture
def population(host):
    population = Population(host, capacity=4, max_rank=4, blocks=1)
    for i in range(3): moved(population, population.birth(rank=2, rng=stream(i)).id)
    return population


def rng(seed=0): return stream(seed, purpose='tests')


# --- questions

def test_only_gate_questions_are_asked():
    tasks = fresh(ID_CELLS, 240, rng(), seen=set())
    assert {stream_of(t) for t in tasks} == {'gate'} and len({t.id for t in tasks}) == len(tasks)


@pytest.mark.parametrize('n', [1, 3, 4, 10, 41])
def test_cells_share_alike(n):
    tasks = fresh(CELLS, n, rng(n), seen=set())
    counts = Counter(Cell(t.family, t.depth) for t in tasks)
    assert len(tasks) == n and set(counts) <= set(CELLS) and max(counts.values()) <= -(-n // len(CELLS))


def test_every_cell_can_be_the_only_one():
    for cell in ID_CELLS: assert len(fresh([cell], 48, rng(), seen=set())) == 48


def test_a_prefix_is_a_fair_sample():
    first = Counter(fresh(CELLS, 40, rng(seed), seen=set())[0].family for seed in range(80))
    assert set(first) == {c.family for c in CELLS} and max(first.values()) < 40


def test_no_question_is_asked_twice_until_there_is_nothing_left():
    seen, asked = set(), []
    for look in range(60):
        tasks = fresh([Cell('math', 1)], 24, rng(look), seen=seen)
        asked += [t.id for t in tasks]
        assert len(tasks) <= 24
        if not tasks: break
    assert len(set(asked)) == len(asked) == len(seen) > 40
    assert not tasks, 'a small cell runs dry'


def test_two_cells_that_share_a_question_give_it_once(monkeypatch):
    def sample(cell, *, n, **_): return [Task(cell.family, cell.depth, .5, f'{i}?', 'x', id=f'q{i}') for i in range(n)]
    monkeypatch.setattr(module, 'sample_tasks', sample)
    tasks = fresh([Cell('math', 1), Cell('math', 2)], 8, rng(), seen=set())
    assert sorted(t.id for t in tasks) == ['q0', 'q1', 'q2', 'q3']


@pytest.mark.parametrize('cells, n', [([], 4), (CELLS, 0)])
def test_an_evaluation_has_questions(cells, n):
    with pytest.raises(ValueError, match='expected at least one cell and one task') as e:
        fresh(cells, n, rng(), seen=set())
    assert '\n' not in str(e.value)


# --- answers

def graded(monkeypatch):
    texts = []
    monkeypatch.setattr(Form, 'grade', lambda _, t, text: texts.append(text) or Grade(True, 1., len(text) % 2 == 0))
    return texts


def test_all_have_the_same_seeds_and_answer_in_the_scratch_population_as_at_home(population, monkeypatch):
    texts, tasks = graded(monkeypatch), fresh(CELLS, 6, rng(), seen=set())
    examiner = Examiner(population, max_new_tokens=4)
    who = {'one': population.factors('o1'), 'twin': population.factors('o1'), 'host': None}
    right = examiner.ask(who, tasks, seed_for)
    assert texts[:6] == texts[6:12] and (right['one'] == right['twin']).all() and right['one'].shape == (6,)
    home = lambda who: population.generate([t.prompt for t in tasks], [who] * 6, seeds=[seed_for(t) for t in tasks],
                                           max_new_tokens=4, temperature=1.).texts
    assert texts[:6] == list(home('o1')) and texts[12:] == list(home(None))


def test_an_evaluation_leaves_no_trace(host, population):
    tasks, frozen = fresh(CELLS, 8, rng(), seen=set()), host.weights_hash()
    before = {id: population.factors(id) for id in population.ids}
    random.seed(1), np.random.seed(1), torch.manual_seed(1)
    states = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    examiner = Examiner(population, max_new_tokens=3)
    examiner.ask({id: population.factors(id) for id in population.ids} | {'host': None}, tasks, seed_for)
    assert all(same(before[id], population.factors(id)) for id in population.ids) and population.births == 3
    assert host.weights_hash() == frozen and len(examiner.scratch) == 0
    assert states[0] == random.getstate() and states[1] == np.random.get_state()[1].tolist()
    assert torch.equal(states[2], torch.get_rng_state())


def test_the_bill_is_what_was_asked_since_the_last_one(population):
    examiner, tasks = Examiner(population, max_new_tokens=3), fresh(CELLS, 4, rng(), seen=set())
    right = examiner.ask({'o1': population.factors('o1'), 'host': None}, tasks, seed_for)
    bill = examiner.settle()
    assert bill['answers'] == 8 and bill['right'] == sum(r.sum() for r in right.values())
    assert bill['tokens'] > 8 and bill['alone'] == bill['gflops'] > 0          # nothing was asked twice
    assert examiner.settle() == dict(answers=0, right=0, tokens=0, gflops=0., alone=0.)


def test_the_scratch_population_is_empty_after_an_error(population):
    examiner, tasks = Examiner(population, max_new_tokens=3), fresh(CELLS, 2, rng(), seen=set())
    crowd = {f'c{i}': population.factors('o1') for i in range(9)}
    with pytest.raises(ValueError, match='full at capacity 8'): examiner.ask(crowd, tasks, seed_for)
    assert len(examiner.scratch) == 0
    with pytest.raises(ValueError): examiner.ask({'o1': population.factors('o1')}, tasks, seed_for, max_new_tokens=0)
    assert len(examiner.scratch) == 0 and examiner.settle()['answers'] == 0
    del crowd['c8']
    assert len(examiner.ask(crowd, tasks, seed_for)) == 8, 'eight do fit'


@pytest.mark.parametrize('who, n', [({}, 2), ({'host': None}, 0)])
def test_an_evaluation_has_candidates_and_questions(population, who, n):
    with pytest.raises(ValueError, match='expected candidates and questions') as e:
        Examiner(population).ask(who, sample_tasks(CELLS[0], n=n, rng=rng()), seed_for)
    assert '\n' not in str(e.value)


def test_an_answer_is_graded_by_what_is_right_today(population, monkeypatch):
    monkeypatch.setattr(Form, 'grade', lambda _, task, text: Grade(True, 1., task.answer == 'today'))
    tasks, today = fresh(CELLS, 6, rng(), seen=set()), lambda task: replace(task, answer='today')
    for examiner, right in ((Examiner(population, max_new_tokens=3, today=today), 12), (Examiner(population), 0)):
        found = examiner.ask({'o1': population.factors('o1'), 'host': None}, tasks, seed_for)
        assert sum(row.sum() for row in found.values()) == examiner.settle()['right'] == right
