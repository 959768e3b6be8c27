"""Worth by play against a large exam: ranks that are known, nothing left behind, and when there is no ranking."""
import json
import math

import numpy as np
import pytest
from scripted import chance_decides

from evolora.ecology.config import changed_config, load_config
from evolora.ecology.ecology import Ecology
from evolora.evaluation.evaluation import selection
from evolora.evaluation.fitness_exam import census, fitness_ranks, gold_census
from evolora.host.model import load_host, tiny_host
from evolora.organelles.lessons import Lesson
from evolora.utils.randomness import stream

CELLS = ['string.sort:1', 'logic.bool:1']


def begun(host, **changes):
    config = {'cells': CELLS, 'world': {'schedule': 'static'}, 'founders': 4, 'founder_step': 0., 'capacity': 4,
              'market': {'questions': 4, 'recruit': False}, 'curriculum': {'copies': 2}, 'variation': {'every': 0}}
    return Ecology(host, changed_config(load_config('worlds'), config | changes), seed=1)


def taught(ecology, tasks, steps):
    "Each organelle sees the gold answers of these tasks so many times"
    gold = [(p, t) for p, t in zip(ecology.host.form.prompts(tasks), gold_tokens(ecology.host, tasks))]
    for one, n in zip(ecology.population.ids, steps):
        lesson = Lesson(*map(list, zip(*gold)), [one] * len(gold), np.ones(len(gold)))
        for i in range(n): ecology.plasticity.learn(lesson, rng=stream(i))


def gold_tokens(host, tasks):
    ids = host.tokenizer([t.answer for t in tasks], add_special_tokens=False)['input_ids']
    return [[*x, *host.ends[:1]] for x in ids]


def test_who_learned_more_is_ranked_above_by_play_and_by_the_exam_and_nothing_changes():
    ecology = begun(load_host('embedded', threads=1))
    cells = [*ecology.cells.values()]
    taught(ecology, selection(16, seed=7, cells=cells), (0, 1, 3, 6))
    for prompt, tokens in zip(ecology.host.form.prompts(tasks := selection(24, seed=8, cells=cells)),
                              gold_tokens(ecology.host, tasks)):
        ecology.serving.met.add('string.sort', prompt, tokens, np.random.default_rng(0))
    exam = selection(96, seed=2, cells=cells)
    skill = [*gold_census(ecology, exam).skill.values()]
    assert skill == sorted(skill) and skill[-1] > skill[0] + .05
    before = json.dumps([ecology.market.state(), ecology.serving.state(), ecology.population.weights_hash()])
    ranks = fitness_ranks(ecology, exam)
    assert ranks.organelles == 4 and ranks.shared > .7 and math.isnan(ranks.belief)      # all are believed alike
    assert json.dumps([ecology.market.state(), ecology.serving.state(), ecology.population.weights_hash()]) == before
    assert fitness_ranks(ecology, exam)[:3] == ranks[:3]
    for book in ecology.market.books.values(): book.stakes['o1'] += 1e-17 * book.total + 1e-16
    assert math.isnan(fitness_ranks(ecology, exam).belief), 'rounding ranks nobody'


def test_the_census_is_of_the_living_and_gives_probabilities(monkeypatch):
    monkeypatch.setattr('evolora.tasks.forms.Form.grade', lambda _, task, text: chance_decides(task, text))
    ecology = begun(tiny_host(), max_new_tokens=4)
    for _ in range(3): ecology.step()
    found = census(ecology, ecology.serving.met.answers)
    assert found.organelles == ecology.population.ids
    assert found.likelihoods.shape == (len(ecology.serving.met.answers), 4)
    assert ((found.likelihoods >= 0) & (found.likelihoods <= 1)).all()


@pytest.mark.parametrize('changes', [{'founders': 2}, {}])
def test_without_three_organelles_or_a_right_answer_there_is_no_ranking(changes):
    assert fitness_ranks(begun(tiny_host(), max_new_tokens=4, **changes), selection(4, seed=2)) is None
