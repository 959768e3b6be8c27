"""What no lesson shows of `free_questions`: which members are asked, what counts as the same answer, hostile text."""
import math
import shutil
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from actors import BOTH, Actors, wrong_lines
from evolora.ecology.config import changed_config, load_config
from evolora.ecology.sessions import begin_session
from evolora.evaluation import free_questions as asking
from evolora.evaluation.free_questions import Profiles, ask, profiles_of, question, ranking, replies, router_of
from evolora.evaluation.evaluation import selection
from evolora.tasks.family import Family
from evolora.tasks.forms import FORMS, Form
from evolora.host.model import load_host, tiny_host
from evolora.organelles.population import Population
from evolora.utils.randomness import stream
from evolora.evaluation.routing import Router, believed_router, fit_router
from evolora.tasks.families import FAMILIES, Cell, register_family
from evolora.tasks.task_sets import sample_tasks
from evolora.ecology.variation import OPERATORS

CONFIG = changed_config(load_config('debug'), {'max_new_tokens': 4})
PROMPTS = {'math': 'What is 12 + 30?', 'string.sort': 'Sort the letters: hgfa',
           'json_repair': 'Repair the JSON: {"a":1',
           'logic.bool': 'True or false, left to right: T and F; not T; F or T; T', None: 'Tell me a joke'}


class Colony(Actors):
    "Actors that can be asked to verify, too: `likes(verifier, prompt, text)` is each token's log-probability"
    def __init__(self, reply_of, ids=('o1', 'o2', 'o3'), likes=lambda who, prompt, text: -1.):
        super().__init__(lambda id, prompt, seed: reply_of(id, prompt), ids)
        self.likes, self.answered, self.read = likes, [], []
        self.host = SimpleNamespace(encode=lambda prompts: [[1] * 10 for _ in prompts],
                                    config=SimpleNamespace(get_text_config=SimpleNamespace),
                                    meter=SimpleNamespace(forward=lambda tokens, logits: 1000 * tokens + logits))

    def adapter_flops_per_token(self, id): return 7

    def generate(self, prompts, organelles, *, temperature, max_new_tokens, seeds=None, rows=512,
                 on_rows=None):
        assert temperature == 0
        self.answered += zip(organelles, prompts)
        made = super().generate(prompts, organelles, temperature=temperature, seeds=[0] * len(prompts),
                                max_new_tokens=max_new_tokens, rows=rows, on_rows=on_rows)
        made.tokens = [[*map(ord, text), 1] for text in made.texts]
        return made

    def forward(self, prompts, answers, organelles):
        texts = [''.join(map(chr, a[:-1])) for a in answers]
        self.read += zip(organelles, prompts, texts)
        each = [[self.likes(*row)] * len(a) for row, a in zip(zip(organelles, prompts, texts), answers)]
        yield SimpleNamespace(rows=torch.tensor([i for i, row in enumerate(each) for _ in row]),
                              logprobs=torch.tensor([x for row in each for x in row]))


def router(best='o1', **table):
    "A router of a colony: who answers which family"
    return Router(by='family', table={k.replace('_', '.') if k != 'json_repair' else k: v for k, v in table.items()},
                  best=best, weights='ab' * 32, fitted=(), answers=1, gflops=0.)


ROUTER = router(math='o2', string_sort='o3', json_repair='o1', logic_bool='o2')


def reply_of(**texts): return lambda id, prompt: texts[id or 'host']


def test_a_route_asks_one_member_and_the_host_where_nothing_is_recognised():
    colony = Colony(reply_of(o1='1', o2='2', o3='3', host='4'))
    for family, who in (('math', 'o2'), ('string.sort', 'o3'), ('json_repair', 'o1'), (None, None)):
        colony.answered.clear()
        reply = ask(colony, PROMPTS[family], router=ROUTER)
        assert (reply.organelle, reply.text, reply.guess.family) == (who, who[1] if who else '4', family)
        assert colony.answered == [(who, PROMPTS[family])] and list(reply.answers.organelle) == [who]
        assert reply.flops == 2 * 10**9 and ('nothing like it' if family is None else family) in reply.why


def test_the_ranking_has_each_organelle_once_with_the_reason():
    order = ranking(Colony(None, ids=('o4', 'o1', 'o2', 'o3')), ROUTER, 'string.sort')
    assert order == {'o3': 'chosen for string.sort', 'o1': 'best overall', 'o2': 'chosen for math, logic.bool',
                     'o4': 'chosen for nothing'}
    assert list(ranking(Colony(None), ROUTER, None)) == [None, 'o1', 'o2', 'o3']
    with_host = router(best=None, math='o2', string_sort=None)
    assert list(ranking(Colony(None), with_host, 'math')) == ['o2', None, 'o1', 'o3']


def test_named_members_are_asked_in_the_order_of_the_ranking():
    colony = Colony(reply_of(o1='1', o2='2', o3='3', host='4'))
    reply = ask(colony, PROMPTS['math'], router=ROUTER, members=['o3', None, 'o1'], strategy='vote')
    assert list(reply.answers.organelle) == ['o1', 'o3', None] and reply.answers.why.iloc[2] == 'the bare host'
    assert reply.organelle == 'o1' and 'as many another one: o1 is trusted most' in reply.why
    routed = ask(colony, PROMPTS['math'], router=ROUTER, members=['o3', 'o1'])
    assert routed.organelle == 'o1' and len(routed.answers) == 1
    assert ask(colony, PROMPTS['math'], router=ROUTER, members=[None]).text == '4'


def test_a_team_has_the_size_that_was_asked_for():
    colony = Colony(reply_of(o1='1', o2='2', o3='3'))
    for size, who in ((1, ['o2']), (2, ['o2', 'o1']), (9, ['o2', 'o1', 'o3'])):
        assert list(ask(colony, PROMPTS['math'], router=ROUTER, strategy='vote', team=size).answers.organelle) == who


@pytest.mark.parametrize('family, texts, chosen, count', [
    ('math', ('8', '7', ' 8'), 'o1', 2.),                           # o2 is trusted most, and outvoted
    ('math', ('Answer: 8', '7', 'I think\n8'), 'o1', 2.),           # the last line counts, as for the grader
    ('math', ('eight', '7', 'eight'), 'o2', 1.),                    # what cannot be read counts for nothing
    ('math', ('8', 'seven', '9'), 'o1', 1.),                        # a tie goes to the ranking, readable ones only
    ('math', ('a', 'b', 'b'), 'o2', 0.),                            # no answer can be read
    ('json_repair', ('{"b":2}', '{"a": 1,"b":2}', '{"b":2,"a":1}'), 'o2', 2.),      # one object, two spellings
    ('logic.bool', ('tftf', 'TFTF', 'tftf'), 'o2', 1.),             # the grader is strict about case
    (None, ('Because\nof  Rain', 'sun', 'OF RAIN'), 'o1', 2.),      # an unknown family is read by its last line
    (None, ('', 'sun', ''), 'o2', 1.)])
def test_equal_answers_count_together(family, texts, chosen, count):
    colony = Colony(reply_of(**dict(zip(('o1', 'o2', 'o3'), texts))))
    reply = ask(colony, PROMPTS[family], router=ROUTER, strategy='vote', members=['o1', 'o2', 'o3'])
    assert reply.organelle == chosen and reply.text == texts[int(chosen[1]) - 1]
    assert reply.answers.set_index('organelle').score[chosen] == count and reply.answers.score.max() == count
    assert ('no member' if count == 0 else f'{count:.0f} of 3') in reply.why


def test_the_second_member_verifies_what_the_others_propose():
    colony = Colony(reply_of(o1='yes', o2='no', o3='maybe'), likes=lambda who, prompt, text: -len(text))
    reply = ask(colony, PROMPTS['math'], router=ROUTER, strategy='verify')        # o2 first, then o1, then o3
    assert {who for who, _ in colony.answered} == {'o2', 'o3'} and {who for who, *_ in colony.read} == {'o1'}
    assert (reply.text, reply.organelle) == ('no', 'o2') and 'o1 gives it -2.00' in reply.why and '-5.00' in reply.why
    assert dict(zip(reply.answers.organelle, reply.answers.text)) == {'o2': 'no', 'o1': '(verifies)', 'o3': 'maybe'}
    assert list(reply.answers.score[[0, 2]]) == [-2, -5] and math.isnan(reply.answers.score[1])
    # Generating: 1 + characters; reading: 10 tokens of the prompt and the characters, with as many logits and one more.
    assert reply.flops == (3 + 6) * 10**9 + sum(1007 * (10 + n) + n + 1 for n in (2, 5))
    other = ask(Colony(reply_of(o1='yes', o2='no', o3='maybe'), likes=lambda *row: len(row[2]) - 9.),
                PROMPTS['math'], router=ROUTER, strategy='verify')
    assert (other.text, other.organelle) == ('maybe', 'o3')


def test_equal_proposals_are_read_once_and_the_first_is_chosen():
    colony = Colony(reply_of(o1='x', o2='8', o3='8'))
    reply = ask(colony, PROMPTS['math'], router=ROUTER, strategy='verify')
    assert colony.read == [('o1', PROMPTS['math'], '8')]
    assert reply.organelle == 'o2' and 'no other proposal' in reply.why
    two = ask(colony, PROMPTS['math'], router=ROUTER, strategy='verify', members=['o3', 'o2'])
    assert (two.organelle, list(two.answers.text)) == ('o2', ['8', '(verifies)'])


@pytest.mark.parametrize('strategy', asking.STRATEGIES)
def test_many_questions_are_answered_as_one_by_one(strategy):
    colony = Colony(lambda id, prompt: str(len(prompt) + ord((id or 'h0')[1])),
                    likes=lambda who, prompt, text: -float(text[-1]))
    prompts = [*PROMPTS.values(), PROMPTS['math']]
    many, single = (replies(colony, prompts, router=ROUTER, strategy=strategy),
                    [ask(colony, p, router=ROUTER, strategy=strategy) for p in prompts])
    for one, other in zip(many, single):
        assert one.answers.equals(other.answers)
        assert replace(one, answers=None).__dict__ == replace(other, answers=None).__dict__


@pytest.mark.parametrize('how, line', [
    (dict(strategy='guess'), "strategy expected one of route, vote, verify, got 'guess'"),
    (dict(prompt=''), 'expected a prompt in Unicode text'), (dict(prompt=' \n'), 'expected a prompt in Unicode text'),
    (dict(prompt=3), 'expected a prompt in Unicode text, got 3'),
    (dict(prompt='a\ud800'), 'expected a prompt in Unicode text'),
    (dict(members=['o9']), "no organelle 'o9' to ask; known: host, o1, o2, o3"),
    (dict(members=['o1\nx']), "no organelle"), (dict(members=[['o1']]), 'no organelle'),
    (dict(members=[]), 'members expected'), (dict(members='o1'), "members expected 'auto'"),
    (dict(members=['o1', 'o1']), 'name each once'), (dict(team=0), 'team must be at least 1'),
    (dict(strategy='verify', members=['o1']), 'verify expected at least 2 members, got 1'),
    (dict(strategy='verify', team=1), 'verify expected at least 2 members, got 1'),
    (dict(router=ROUTER.model_copy(update={'weights': 'cd' * 32})), 'got other weights; fit it again'),
    (dict(router=ROUTER.model_copy(update={'best': 'o77'})), "no organelle 'o77' to ask"),
    (dict(router=ROUTER.model_copy(update={'table': {}})), 'expected at least one question')])
def test_what_cannot_be_asked_is_refused_in_one_line(how, line):
    colony, how = Colony(reply_of(o1='1', o2='2', o3='3')), {'router': ROUTER} | how
    prompt = how.pop('prompt', PROMPTS['math'])
    assert line in wrong_lines(lambda: ask(colony, prompt, **how)) and not colony.answered
    assert 'at least one prompt' in wrong_lines(lambda: replies(colony, [], router=ROUTER))


def test_profiles_see_questions_and_no_gold():
    tasks = selection(96)
    blind = [replace(t, answer='?', meta={}) for t in tasks]
    guesses = [Profiles(some).guess(t.prompt) for some in (tasks, blind, tasks[::-1]) for t in tasks]
    assert guesses[:96] == guesses[96:192] and all(g.family == t.family for g, t in zip(guesses, tasks))
    assert [g.nearest for g in guesses[:96]] == [g.nearest for g in guesses[192:]]
    assert all(0 <= g.likeness <= 1 + 1e-12 for g in guesses)


@pytest.mark.parametrize('prompt', ['', ' ', '?', '\0', 'x' * 10**5, '{' * 1000])
def test_any_text_can_be_compared(prompt):
    guess = Profiles(BOTH).guess(prompt)
    assert guess.nearest in ('math', 'string.sort') and 0 <= guess.likeness < .45 and guess.family is None


def test_profiles_expect_questions_and_a_cosine():
    assert 'at least one question' in wrong_lines(lambda: Profiles([]))
    assert 'least expected a cosine' in wrong_lines(lambda: Profiles(BOTH, least=2))
    assert Profiles(BOTH, least=0).guess('Tell me a joke').family in ('math', 'string.sort')


def test_what_a_model_wrote_is_shown_escaped():
    evil = '<img src=x onerror=alert(1)> | ![](http://x) `y` **z**\n\n| a |'
    for strategy in asking.STRATEGIES:
        reply = ask(Colony(lambda id, prompt: evil), f'{evil} what?', router=ROUTER, strategy=strategy)
        shown = reply._repr_markdown_()
        assert '<img' not in shown and '**z**' not in shown and '![]' not in shown
        assert len(shown.splitlines()) == 6 + {'route': 1, 'vote': 3, 'verify': 3}[strategy]
    assert '\n' not in repr(ask(Colony(lambda id, prompt: evil), 'x', router=ROUTER))


def test_the_router_of_a_run_is_its_market_and_asks_nothing(tmp_path):
    host = tiny_host()
    with begin_session(tmp_path / 'run', host, CONFIG) as session: session.live(2, log=None)
    population, before = session.ecology.population, sorted(p.name for p in (tmp_path / 'run').iterdir())
    router = router_of(tmp_path / 'run', population)
    assert router == believed_router(session.ecology) and router.answers == 0
    assert sorted(p.name for p in (tmp_path / 'run').iterdir()) == before
    reply = ask(population, PROMPTS['math'], router=router, max_new_tokens=4)
    assert reply.organelle == session.ecology.market.leader('math') and reply.why.endswith('believed most in math')
    assert 'believed most in no family' in ranking(population, router, 'math').values()
    shutil.rmtree(tmp_path / 'run' / 'checkpoints')
    assert 'checkpoint' in wrong_lines(lambda: router_of(tmp_path / 'run', population))


@pytest.fixture(scope='module')
def living():
    "Three mutants on the embedded host, and their router"
    population = Population(load_host('embedded', threads=1), capacity=4)
    for i in range(3):
        one = population.birth(rng=stream(i))
        population.write(one.id, OPERATORS['gaussian'](population.factors(one.id), rng=stream(i, purpose='x'), step=.6))
    return population, fit_router(population, selection(24))


def test_asking_changes_nothing(living):
    population, router = living
    before = (population.weights_hash(), population.births, population.ids, population.host.weights_hash(),
              np.random.get_state()[1].tolist(), torch.get_rng_state().tolist(), router.model_dump_json())
    for strategy in asking.STRATEGIES:
        first, again = (replies(population, list(PROMPTS.values()), router=router, strategy=strategy) for _ in range(2))
        assert [(r.text, r.why, r.flops) for r in first] == [(r.text, r.why, r.flops) for r in again]
    assert before == (population.weights_hash(), population.births, population.ids, population.host.weights_hash(),
                      np.random.get_state()[1].tolist(), torch.get_rng_state().tolist(), router.model_dump_json())


def test_the_score_is_the_mean_log_probability_of_the_verifier(living):
    population, router = living
    reply = ask(population, PROMPTS['string.sort'], router=router, strategy='verify')
    proposer, verifier = reply.answers.organelle[0], reply.answers.organelle[1]
    made = population.generate([reply.prompt], [proposer], temperature=0, max_new_tokens=48)
    read, written = population.host.encode([reply.prompt])[0], made.tokens[0]
    logits = population.logits(torch.tensor([read + written[:-1]]), organelles=[verifier])[0, len(read) - 1:]
    wanted = logits.log_softmax(-1)[torch.arange(len(written)), written].mean().item()
    assert made.texts[0] == reply.answers.text[0] and reply.answers.score[0] == pytest.approx(wanted, abs=1e-5)


def test_too_long_a_question_is_refused_in_one_line(living):
    population, router = living
    assert 'context is 1024; shorten it' in wrong_lines(lambda: ask(population, 'long ' * 1000, router=router))
    assert 'context is 1024' in wrong_lines(lambda: ask(population, 'x', router=router, max_new_tokens=2000))


# --- questions in a form

SHOTS, CELLS = FORMS['shots'], (Cell('math', 2), Cell('math', 3), Cell('string.sort', 2))


class Shouting(Family):
    "Has a depth 0, and is not of the default cells"
    name, lowest, longest = 'word.shout', 0, 8
    def draw(self, rng, depth, difficulty):
        word = ''.join(chr(97 + int(i)) for i in rng.integers(26, size=depth + 4))
        return self.task(depth, difficulty, f'Write this word in capitals: {word}', word.upper())
    def extract(self, text): return ''.join(w for w in text.split() if w.isupper())


@pytest.fixture
def shouting(monkeypatch):
    for name, value in (('own', dict(FAMILIES.own)),): monkeypatch.setattr(FAMILIES, name, value)
    register_family(Shouting())
    yield [Cell('word.shout', 0), Cell('word.shout', 2)]
    del FAMILIES['word.shout']


def test_a_question_is_put_as_its_familys_easiest_cell():
    asked = question('What is 12 + 30?', SHOTS, CELLS)
    solved = sample_tasks(Cell('math', 2), n=4, rng=stream(0, purpose='shots math:2'))[:3]
    assert asked.prompt == (*(x for t in solved for x in (t.prompt, t.answer)), 'What is 12 + 30?')
    assert asked.how == 'as a question of math:2, with 3 solved questions, extraction'
    assert question('Sort the letters: hgfa', SHOTS, CELLS).cell == Cell('string.sort', 2)
    shown = question('What is 12 + 30?', FORMS['instruction'], CELLS)
    assert shown.prompt == f"What is 12 + 30?\n{FAMILIES['math'].instruction}"


def test_what_resembles_nothing_is_put_as_it_stands():
    for prompt in ('Tell me a joke', PROMPTS['json_repair']):       # the run knows nothing of JSON
        asked = question(prompt, SHOTS, CELLS)
        assert (asked.cell, asked.prompt, asked.how) == (None, prompt, 'as it stands')
    assert question('Tell me a joke', FORMS['both'], CELLS).how == 'as it stands, after the system line'
    assert question('Tell me a joke', SHOTS, CELLS).value('Because\nof  Rain') == 'of rain'


def test_in_the_plain_form_nothing_is_put_around_a_question():
    for prompt in PROMPTS.values():
        asked = question(prompt, Form())
        assert asked.prompt == prompt and asked.how == ''
        assert asked.guess == profiles_of(asking.ID_CELLS).guess(prompt)


def test_no_question_has_its_own_answer_in_front(shouting):
    for cell in (Cell('math', 2), shouting[0]):
        for t in sample_tasks(cell, n=4, rng=stream(0, purpose=f'shots {cell}')):
            asked = question(f' {t.prompt}  ', SHOTS, [cell])
            assert asked.cell == cell and len(asked.prompt) == 7 and t.prompt not in asked.prompt[:-1]


def test_profiles_know_the_families_of_a_run(shouting):
    profiles = profiles_of([*CELLS, *shouting])
    assert set(profiles.families) == {'math', 'string.sort', 'word.shout'}
    asked = question('Write this word in capitals: pear', SHOTS, [*CELLS, *shouting])
    assert asked.cell == shouting[0] and asked.value('that is:\nPEAR now') == '"PEAR"' and asked.value('pear') is None
    assert question('Write this word in capitals: pear', SHOTS, CELLS).cell is None
    assert set(profiles_of([Cell('regex.synthesis', 1)]).families) == {'regex.synthesis'}


def test_the_colony_is_asked_in_its_form_and_the_verifier_reads_in_it():
    colony = Colony(reply_of(o1='It is 8.', o2='I say 7', o3='8'))
    colony.host.form = SHOTS
    own = ROUTER.model_copy(update={'cells': tuple(map(str, CELLS)), 'form': SHOTS})
    put = question('What is 12 + 30?', SHOTS, CELLS).prompt
    reply = ask(colony, 'What is 12 + 30?', router=own, strategy='vote')
    assert {p for _, p in colony.answered} == {put} and reply.prompt == 'What is 12 + 30?'
    assert reply.organelle == 'o1' and '2 of 3' in reply.why, 'of a longer reply the last number counts'
    assert 'asked as a question of math:2, with 3 solved' in reply._repr_markdown_()
    ask(colony, 'What is 12 + 30?', router=own, strategy='verify')
    assert {p for _, p, _ in colony.read} == {put}
    assert 'expected the form that the router was fitted in' in wrong_lines(
        lambda: ask(colony, 'What is 12 + 30?', router=ROUTER))


def test_a_colony_in_a_form_answers_for_real(shouting):
    population = Population(tiny_host('llama').in_form(SHOTS), capacity=2)
    for i in range(2): population.birth(rng=stream(i))
    router = fit_router(population, selection(8, cells=shouting), max_new_tokens=2)
    assert set(router.cells) == set(map(str, shouting)) and router.form == SHOTS
    for prompt in ('Write this word in capitals: pear', 'Tell me a joke'):
        for strategy in asking.STRATEGIES:
            assert ask(population, prompt, router=router, strategy=strategy, max_new_tokens=4).how
