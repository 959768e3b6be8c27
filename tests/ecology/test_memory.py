"""Memory in the prompt: which examples are shown, to whom, what they cost, and that a run with them resumes exactly."""
import json

import numpy as np
import pytest

from evolora.ecology.config import EcologyConfig, changed_config, checked_config, load_config
from evolora.ecology.ecology import Ecology
from evolora.ecology.memory import Memory, MemoryConfig, Solved, with_examples
from evolora.ecology.parts import Graded
from evolora.ecology.run_folder import config_hash
from evolora.ecology.sessions import begin_session, resume_session
from evolora.evaluation.world_exam import exam_in_world
from evolora.experiments.world_arms import begun
from evolora.host.model import load_host, tiny_host
from evolora.organelles.scoring import score
from scripted import chance_decides

SMALL = {'cells': ['string.sort:1', 'word.count:1'], 'max_new_tokens': 4, 'world': {'worlds': 2, 'period': 2},
         'market': {'questions': 4, 'round': 2}, 'curriculum': {'copies': 2}}


@pytest.fixture(scope='module')
def host(): return tiny_host()


@pytest.fixture(scope='module')
def embedded(): return load_host('embedded', threads=1)


@pytest.fixture
def chance(monkeypatch):
    monkeypatch.setattr('evolora.tasks.forms.Form.grade', lambda _, task, text: chance_decides(task, text))


def remembering(host, changes=None, seed=2, **memory):
    config = changed_config(load_config('worlds'), SMALL | {'memory': {'shots': 1} | memory} | (changes or {}))
    return Ecology(host, config, seed=seed)


def graded(right, place=0, organelle='o1', family='string.sort', shown=(), text='abc'):
    return Graded(family, f'question {place}', [97], right, organelle, .5, text, 1, place, '', tuple(shown))


# --- configuration

def test_without_memory_a_configuration_is_what_it_was():
    assert 'memory' not in EcologyConfig().model_dump()
    off = EcologyConfig().but({'memory.drop': 9})
    assert config_hash(off.model_dump()) == config_hash(EcologyConfig().model_dump())


@pytest.mark.parametrize('changes', [{'shots': 1}, {'shots': 1, 'drop': 9}, {'shots': 1, 'key': 'none'},
                                     {'shots': 1, 'owner': 'member'}, {'shots': 2}, {'shots': 1, 'bare': True}])
def test_every_setting_of_memory_is_in_the_hash(changes):
    config = EcologyConfig().but({'curriculum.copies': 2})
    one = changed_config(config, {'memory': {'shots': 1}}) if changes != {'shots': 1} else config
    other = changed_config(config, {'memory': changes})
    assert config_hash(one.model_dump()) != config_hash(other.model_dump())
    assert checked_config(json.loads(json.dumps(other.model_dump())), 'a file') == other


@pytest.mark.parametrize('changes, line', [
    ({'memory': {'shots': 1, 'key': 'client'}}, 'memory.key expected family or none where no clients take turns'),
    ({'memory': {'shots': 1, 'bare': True}, 'curriculum': {'copies': 1}}, 'memory.bare expected curriculum.copies of'),
    ({'memory': {'shots': 9}}, 'memory.shots'), ({'memory': {'shots': 1, 'owner': 'none'}}, 'memory.owner'),
    ({'memory': {'shot': 1}}, 'is shots meant')])
def test_settings_that_make_no_sense_are_refused_in_one_line(changes, line):
    with pytest.raises(ValueError, match=line) as error: checked_config(changes, 'a file')
    assert '\n' not in str(error.value)


# --- what is shown

def test_the_latest_right_answer_is_shown_until_it_misleads(host):
    e = remembering(host, drop=4)
    task = e.put([(e.cells['string.sort:1'], 0)])[0]
    shown = lambda: e.serving.examples([task], ['o1'], [0])[0]
    assert shown() == ()
    e.serving.remember([graded(False), graded(True, text='first'), graded(True, text='second')])
    assert [s.answer for s in shown()] == ['first'], 'the first right answer to a question'
    for place in range(3): e.serving.remember([graded(False, place, shown=shown())])
    assert shown()
    e.serving.remember([graded(False, 3, shown=shown())])
    assert shown() == ()


def test_one_grade_per_question_and_four_are_counted_as_answers(host):
    for copies, questions in ((1, 4), (4, 1)):
        e = remembering(host, drop=4)
        example = Solved('o1', 'string.sort', 'q', 'a', 0)
        e.serving.memory.examples.add('string.sort', example)
        for place in range(questions):
            assert e.serving.memory.shown('string.sort') == (example,)
            e.serving.remember([graded(False, place, shown=(example,)) for _ in range(copies)])
        assert e.serving.memory.shown('string.sort') == ()


def test_in_a_round_wrong_answers_count_against_the_example_that_they_were_given_under(host):
    e = remembering(host, drop=1)
    stale = Solved('o1', 'string.sort', 'q', 'a', 0)
    e.serving.memory.examples.add('string.sort', stale)
    e.serving.remember([graded(True, 0, shown=(stale,)), graded(False, 1, shown=(stale,))])
    assert [s.question for s in e.serving.memory.shown('string.sort')] == ['question 0'], 'the new one is untried'


def test_right_answers_are_stored_as_bare_questions_and_examples_never_nest(host, chance):
    e = remembering(host)
    prompts = []
    for _ in range(6):
        record = e.step()
        prompts += [p for p, _ in e.serving.met.answers]
        assert all(isinstance(p, str) for p, _ in e.serving.met.answers)
        assert len(record.tables['society']) == 1
    assert prompts and e.serving.memory.examples.known
    assert all(isinstance(s.question, str) for known in e.serving.memory.examples.known.values() for s in known)


def test_half_of_the_copies_are_asked_without_examples_and_both_halves_are_reported(host, chance):
    e = remembering(host, bare=True)
    rows = [row for _ in range(6) for row in e.step().tables['society']]
    numbers = [row['numbers'] for row in rows]
    assert {(row['part'], row['event']) for row in rows} == {('memory', 'memory')}
    assert all(n['shown'] + n['bare'] == 8 and n['bare'] >= 4 for n in numbers) and sum(n['shown'] for n in numbers)


def test_only_as_many_examples_are_shown_as_the_context_has_room_for(host):
    e = remembering(host, shots=2)
    task = e.put([(e.cells['string.sort:1'], 0)])[0]
    small = Solved('o1', 'string.sort', 'q', 'a', 0)
    longest = e.host.config.get_text_config().max_position_embeddings
    large = small._replace(question='long ' * longest)
    e.serving.memory.examples.add('string.sort', large)
    assert e.serving.examples([task], ['o1'], [0]) == [()]
    e.serving.memory.examples.add('string.sort', small)
    assert e.serving.examples([task], ['o1'], [0]) == [(small,)]


def test_a_client_has_a_memory_of_its_own(host):
    e = remembering(host, {'world': {'schedule': 'recurring', 'worlds': 2, 'session': 2}}, key='client')
    numbers = [e.world.number(0, place) for place in range(64)]
    first, other = 0, numbers.index(1 - numbers[0])
    e.serving.remember([graded(True, first)])
    task = e.put([(e.cells['word.count:1'], 0)])[0]
    assert len(e.serving.examples([task], ['o1'], [first])[0]) == 1, 'also in another family'
    assert e.serving.examples([task], ['o1'], [other]) == [()]


# --- members with memories

def members(host):
    e = remembering(host, {'founders': 3, 'founder_step': .2}, owner='member')
    for id, answer in (('o1', 'abc'), ('o2', 'cba')):
        example = Solved(id, 'string.sort', 'Sort the letters: cab', answer, 0)
        e.serving.memory.examples.add(f'{id} string.sort', example)
    return e


def test_each_member_is_scored_under_its_own_memory(embedded):
    e = members(embedded)
    bare = 'Sort the letters: fed'
    shown = {id: with_examples(bare, e.serving.memory.shown(f'{id} string.sort')) for id in e.population.ids}
    assert shown['o1'] != shown['o2'] != shown['o3'] == bare
    answer = Graded('string.sort', shown['o1'], e.host.tokenizer('def')['input_ids'], True, 'o1', .1, 'def', 1, 0, bare,
                    e.serving.memory.shown('o1 string.sort'))
    asked = {}
    settle = e.market.settle
    e.market.settle = lambda family, given, shared=0.: (asked.update(given), settle(family, given, shared))[1]
    e.serving.settle([answer])
    alone = {id: score(e.population, [shown[id]], [answer.tokens], [id]).likelihoods[0, 0] for id in ('o2', 'o3')}
    assert asked['o1'] == .1 and {id: asked[id] for id in alone} == pytest.approx(alone, rel=1e-5)
    assert asked['o3'] != pytest.approx(asked['o2'], rel=1e-3)


def test_a_member_keeps_only_what_it_leads_after_and_takes_it_along(host):
    e = members(host)
    leader = e.market.leader('word.count')
    other = next(id for id in e.population.ids if id != leader)
    e.serving.remember([graded(True, 0, leader, 'word.count'), graded(True, 1, other, 'word.count')])
    known = e.serving.memory.examples.known
    assert f'{leader} word.count' in known and f'{other} word.count' not in known
    e.demography.bury('o2', 0, 'a test')
    e.serving.remember([])
    assert not any(topic.startswith('o2 ') for topic in known)


# --- cost, exams, resume

def test_copies_share_the_reading_of_their_example(embedded):
    question, example = 'Sort the letters: fed', Solved('o1', 'string.sort', 'Sort the letters: cab', 'abc', 0)
    prompt = with_examples(question, [example])
    one, four = (embedded.generate([prompt] * n, max_new_tokens=1, seeds=range(n)).flops.sum() for n in (1, 4))
    assert four < 1.2 * one


def test_an_exam_says_what_memory_adds_and_leaves_nothing_behind(host, chance):
    e = remembering(host)
    for _ in range(4): e.step()
    before = json.dumps(e.serving.state(), sort_keys=True)
    table = exam_in_world(e, 0, after=(0, 4), questions=16)
    assert json.dumps(e.serving.state(), sort_keys=True) == before
    assert {'accuracy', 'without_memory', 'host'} <= {*table}
    assert 'without_memory' not in exam_in_world(begun(host, 'bare', e.config.but({'memory.shots': 0}), seed=2), 0,
                                                 after=(0,), questions=16)


@pytest.mark.parametrize('memory', [{}, {'key': 'none', 'shots': 2, 'drop': 3}, {'owner': 'member'}, {'bare': True}])
def test_a_run_with_memory_resumes_as_if_it_had_not_stopped(host, chance, tmp_path, memory):
    config = remembering(host, **memory).config
    with begin_session(tmp_path / 'whole', host, config, seed=3) as whole: whole.live(6, log=None)
    with begin_session(tmp_path / 'part', host, config, seed=3) as part: part.live(3, log=None)
    with resume_session(tmp_path / 'part', host) as again:
        again.live(6, log=None)
        assert again.ecology.serving.state() == whole.ecology.serving.state()
        assert again.ecology.serving.memory.examples.known
        assert again.ecology.population.weights_hash() == whole.ecology.population.weights_hash()


@pytest.mark.parametrize('damage', [
    lambda s: s['memory'].update(examples=[['t', 'o1', 'f', 'q', 'a', 0, 99]]),
    lambda s: s['memory'].update(examples=[['t', 'o1', 'f', 'q', 7, 0, 0]]),
    lambda s: s['memory'].update(counts={'shown': 1})])
def test_a_damaged_memory_is_refused_and_changes_nothing(host, chance, damage):
    e = remembering(host)
    for _ in range(3): e.step()
    good = e.serving.state()
    bad = json.loads(json.dumps(good))
    damage(bad)
    with pytest.raises(ValueError, match='restore the state from a copy'): e.serving.restore(bad)
    assert e.serving.state() == good


# --- nothing latches: a change that is missed

RATE = {'fresh': .8, 'stale': .02, 'bare': .2}


@pytest.mark.parametrize('copies', [1, 4])
@pytest.mark.parametrize('key', ['family', 'none'])
def test_no_memory_keeps_a_stale_example(copies, key):
    rng = np.random.default_rng(0)
    memory = Memory(MemoryConfig(shots=1, key=key))
    topic = memory.config.topic('sort')
    memory.examples.add(topic, Solved('o1', 'sort', 'q', 'stale', 0))
    right = []
    for place in range(60):
        shown = memory.shown(topic)
        found = rng.random(copies) < RATE[shown[0].answer if shown else 'bare']
        memory.observe([graded(bool(r), place, family='sort', shown=shown, text='fresh') for r in found],
                       topic=lambda _: topic, leads=lambda *_: True)
        right += found.tolist()
    assert np.mean(right[len(right) // 2:]) > .6
