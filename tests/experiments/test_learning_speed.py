"""Lessons that are timed are the same lesson; no time is asserted."""
import pytest
import torch

from evolora.experiments import learning_speed as ls
from evolora.experiments.learning_speed import (OneByOne, against_peft, disagreement, fixed_lesson, learners,
                                                learning_tables, learning_targets, lesson_ways, shaped)
from evolora.host.model import tiny_host


@pytest.fixture(scope='module')
def population(): return learners(tiny_host(), 3)


def test_every_row_of_the_lesson_is_useful_and_everybody_has_as_many(population):
    lesson = fixed_lesson(population, 24)
    assert (abs(lesson.advantage) == 1).all() and {*lesson.organelles} == {*population.ids}
    assert [lesson.organelles.count(id) for id in population.ids] == [8, 8, 8]
    assert all(2 <= len(a) <= 8 for a in lesson.answers) and fixed_lesson(population, 24).answers == lesson.answers


def test_peft_goes_the_same_way(population):
    lesson = fixed_lesson(population, 24)
    assert disagreement(population, lesson) < 1e-4


def test_another_way_would_be_seen(population, monkeypatch):
    lesson, honest = fixed_lesson(population, 24), OneByOne.loss
    monkeypatch.setattr(OneByOne, 'loss', lambda self, id: honest(self, id) * 1.01)
    assert disagreement(population, lesson) > 5e-3


def test_peft_moves_what_it_learns(population):
    theirs = OneByOne(population, fixed_lesson(population, 24))
    before = [p.clone() for p in theirs.model.parameters()]
    theirs()
    moved = [n for (n, p), old in zip(theirs.model.named_parameters(), before) if not torch.equal(p, old)]
    assert moved and all('lora' in n for n in moved) and {n.split('.')[-2] for n in moved} == {*population.ids}


@pytest.mark.parametrize('able', [True, False])
@pytest.mark.parametrize('usual', [torch.float32, torch.bfloat16])
def test_ways_are_the_same_lesson_and_after_is_what_one_gets(monkeypatch, able, usual):
    monkeypatch.setattr(ls, 'multiplies_bfloat16', lambda: able)
    def load(dtype):
        host = tiny_host()
        host.model.to(dtype or (usual if able else torch.float32))
        return host
    found = lesson_ways(load, organelles=2, answers=16, blocks=8, repeats=1)
    assert list(found['steps']) == ['float32, 8,192', 'float32, 2,048', 'float32', *['bfloat16'] * able]
    exact = found['steps']['float32']
    assert all(abs(x - exact) < .1 * exact for x in found['steps'].values())
    assert found['after'] == ('bfloat16' if able and usual == torch.bfloat16 else 'float32')
    median = {k: x['median'] for k, x in found['seconds'].items()}
    assert found['ratios']['2,048']['median'] == pytest.approx(median['float32, 2,048'] / median[found['after']])


def test_targets_and_tables():
    against = [against_peft(tiny_host(), organelles=2, answers=16, repeats=1)]
    ways = [dict(lesson_ways(lambda dtype: tiny_host(), organelles=2, answers=16, repeats=1), host='smollm2-135m-q4')]
    told = learning_targets(against, ways)
    assert [t['target'] for t in told] == ['>= 1.2', '<= 0.001', '>= 1.5'] and told[1]['met']
    assert [len(t) for t in learning_tables(against, ways).values()] == [1, 1]
    slow = [dict(against[0], ratio={'median': 1.1, 'low': 1., 'high': 2.})]
    assert learning_targets(slow, [])[0]['met'] is False


def test_a_shape_is_a_known_one():
    with pytest.raises(ValueError, match='expected a shape out of .*qwen3-0.6b.*got'): shaped('unicorn')
