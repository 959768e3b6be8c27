"How far something is: it is told where the work is done, and nothing of what is computed depends on who listens"
import numpy as np
import pytest
from evolora.ecology.config import load_config
from evolora.ecology.ecology import Ecology
from evolora.host.model import load_host, tiny_host
from evolora.organelles.lessons import Lesson
from evolora.organelles.learning_rules import credit
from evolora.organelles.population import Population
from evolora.organelles.scoring import score
from evolora.utils.terminal import bar_of
from evolora.utils.underway import Underway, heard, tell


@pytest.fixture
def population():
    found = Population(tiny_host(), capacity=2, max_rank=4)
    for _ in range(2): found.birth()
    return found


def told(work):
    "What a piece of work tells, by name"
    found = {}
    with heard(lambda what, *how: found.setdefault(what, []).append(how)): made = work()
    return found, made


def test_answers_are_told_token_by_token(population):
    ask = lambda: population.generate([f'What is {i}?' for i in range(5)], ['o1', 'o2', 'o1', 'o2', 'o1'],
                                      seeds=range(5), max_new_tokens=6, rows=2)
    found, made = told(ask)
    done, of, tokens = zip(*found['answering'])
    assert set(of) == {5} and list(done) == sorted(done) and done[-1] == 5
    assert sum(tokens) == sum(map(len, made.tokens))
    assert ask().tokens == made.tokens


def test_lessons_and_scores_are_told(population):
    prompts, answers = [f'What is {i}?' for i in range(6)], [[5 + i, 1] for i in range(6)]
    lesson = Lesson(prompts, answers, ['o1', 'o2'] * 3, np.ones(6), 1.)
    found, _ = told(lambda: credit(population, lesson, 'local', chunk=40))
    done = [d for d, _, _ in found['learning']]
    assert done == sorted(done) and len(set(done)) > 2 and found['learning'][-1][:2] == (6, 6)
    found, _ = told(lambda: score(population, prompts, answers, chunk=40))
    assert found['scoring'][0][:2] == (0, 6) and found['scoring'][-1][:2] == (6, 6)


def test_weights_that_are_read_are_told(tmp_path):
    made = tiny_host()
    made.model.save_pretrained(tmp_path)
    made.tokenizer.save_pretrained(tmp_path)
    found, host = told(lambda: load_host(tmp_path))
    weights = [d for d, _, _ in found['reading weights']]
    assert weights == list(range(len(weights))) and len(weights) > 10
    assert load_host(tmp_path).weights_hash() == host.weights_hash()


def test_a_generation_says_how_far_it_is():
    "In the first one for each part; then for the whole, by what earlier ones took"
    ecology, seen = Ecology(load_host('embedded', threads=1), load_config('debug')), []
    class Watching(Underway):
        def __call__(self, *what):
            super().__call__(*what)
            seen.append((self.what, self.done, self.usual, bar_of(self)))
    import evolora.ecology.ecology as module
    before, module.Underway = module.Underway, Watching
    try:
        for _ in range(2): ecology.step()
    finally: module.Underway = before
    first = [s for s in seen if s[2] is None]
    answers = [done for what, done, *_ in first if what == 'answering']
    most = load_config('debug').market.questions * load_config('debug').curriculum.copies
    assert answers[-1] == (most, most) and {'answering', 'learning', 'scoring'} <= {s[0] for s in seen}
    assert 'left' in seen[-1][3] and len(first) < len(seen)
    plain = Ecology(load_host('embedded', threads=1), load_config('debug'))
    for _ in range(2): plain.step()
    assert plain.population.weights_hash() == ecology.population.weights_hash()


def test_whoever_listens_may_break_the_work():
    "It is code of the one who waits: an error in it is not hidden"
    def broken(*what): raise KeyError('mine')
    with pytest.raises(KeyError, match='mine'), heard(broken): tell('x', 1, 2)
    tell('x', 1, 2)
