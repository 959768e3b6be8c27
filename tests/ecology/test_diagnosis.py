"""Why nothing is earned: three cases from made-up answers and from whole runs, and no advice that was not computed."""
import math

import pytest
from hostile import ANSWERS, BIDI, ESCAPE, SCRIPT
from ecology.test_ecology import small
from ecology.test_sessions import recorded

from evolora.tasks.curriculum import CurriculumConfig
from evolora.ecology.diagnosis import (CASES, LAST, PATIENCE, Seen, books, break_even, by_cell, diagnose,
                                       extinction_certain, inert, seen_in, unpaid_generations)
from evolora.ecology.ecology import Ecology
from evolora.economy.prices import EconomyConfig, answer_cost
from evolora.tasks.family import Grade
from evolora.tasks.forms import Form
from evolora.host.model import tiny_host
from evolora.utils.randomness import stream
from evolora.ecology.run_folder import Run
from evolora.ecology.sessions import begin_session, resume_session
from evolora.ecology.variation import VariationConfig

ECONOMY = EconomyConfig(price_gflop=4., price_token=.01, ticket=.2)


@pytest.fixture(scope='module')
def host(): return tiny_host()


def graded(monkeypatch, grade): monkeypatch.setattr(Form, 'grade', lambda _, task, text: grade(task, text))


def answers(cell, n, *, right=0, read=True, answer='7', k=4, price=1., generation=0, gflops=.05):
    "So many answers, k to a question, of which the first ones are right; cost as the economy has it"
    family, depth = cell.split(':')
    rows = [dict(generation=generation, organelle=f'o{i % k}', family=family, depth=int(depth), task=f'{cell} {i // k}',
                 parsed=read, success=i < right, answer=answer, prompt_tokens=6, new_tokens=4, gflops=gflops,
                 price=price) for i in range(n)]
    for row in rows:
        row |= dict(cost=answer_cost(ECONOMY, gflops, 10), revenue=1.25 * price * row['success'],
                    penalty=0. if row['success'] else .1)
    return rows


def seen(*episodes, generation=0, alive=3, season='summer', energy=6., gates={'paid': 3}, ledger=(), **row):
    revenue = math.fsum(e['revenue'] for e in episodes)
    return Seen(dict(generation=generation, alive=alive, season=season, energy=energy, gates=dict(gates),
                     revenue=revenue, parse_rate=1., accuracy=0., kl_from_host=None) | row,
                list(episodes), list(ledger))


def look(*episodes, **how): return diagnose([seen(*episodes)], ECONOMY, **how)


# --- the cases, from made-up answers

def test_answers_to_one_question_are_its_k():
    table = by_cell([*answers('math:1', 12, right=5), *answers('math:1', 2, generation=1),
                     *answers('logic.bool:2', 3)], ECONOMY)
    one = table.loc['math:1']
    # The first question was asked again a generation later: six answers to it, the second one has a right one as well.
    assert one[['answers', 'questions', 'solved', 'fewest', 'most']].tolist() == [14, 3, 2, 4, 6]
    assert one.right == pytest.approx(5 / 14) and one.worth == pytest.approx(1.25) and one.cost == pytest.approx(.3)
    assert table.loc['logic.bool:2', ['questions', 'solved']].tolist() == [1, 0]


def test_what_cannot_be_read_is_a_matter_of_form():
    found = look(*answers('math:1', 38, read=False, answer='Sure!'), *answers('math:1', 2, answer='8'),
                 host='a/b c', longest=4)
    text = str(found)
    assert found.case == 'unread' and '5.0% of 40' in text and '‹Sure!›' in text and '‹8›' not in text
    assert "evolora calibrate 'a/b c'" in text and 'max_new_tokens 4' in text and 'price_' not in text
    assert 'max_new_tokens' not in str(look(*answers('math:1', 40, read=False), longest=5))


def test_at_most_three_replies_are_shown_the_usual_ones_first():
    rows = [e for i in range(6) for e in answers('math:1', 6 - i, read=False, answer=f'reply {i}')]
    assert [line for line in look(*rows).found if '‹' in line] == [f'  ‹reply {i}›' for i in range(3)]


@pytest.mark.parametrize('reply', [*ANSWERS, '\ud800', '\r\n\x07', ''])
def test_hostile_replies_names_and_hosts_are_inert(reply):
    rows = [e | {'family': SCRIPT + ESCAPE + BIDI} for e in answers('math:1', 20, read=False, answer=reply)]
    found = look(*rows, host=reply + ESCAPE, cells=[reply])
    assert all(line.isprintable() and len(line) < 1000 for line in str(found).split('\n'))
    assert all(line.isprintable() for line in str(look(*[e | {'parsed': True} for e in rows], host=reply)).split('\n'))
    assert inert('x' * 10**6).endswith('… (1,000,000 characters)') and inert('a\nb') == 'a b'


def test_what_is_never_right_is_too_hard_and_no_price_is_named():
    found = look(*answers('math:1', 40), *answers('math:3', 8), cells=['math:1', 'math:2', 'math:3'])
    text = str(found)
    assert found.case == 'wrong' and found.count['solved'] == 0 and '0 of 12 questions' in text and 'below 24%' in text
    assert 'math:1, math:3; ' in text and 'not asked in these generations: math:2' in text
    assert 'price_' not in text and 'at any price' in text and 'evolora host measure' in text
    assert 'evolora calibrate' in str(look(*answers('math:1', 40), form='3 solved questions'))


@pytest.mark.parametrize('right, gflops, names', [(8, .05, {'price_level', 'price_gflop'}), (2, .05, {'price_level'}),
                                                  (1, 50., set()), (39, .05, None)])
def test_what_is_too_dear_comes_with_the_price_at_which_it_is_even(right, gflops, names):
    rows = [seen(*answers('math:1', 40, right=right, gflops=gflops), gates={'paid': 2, 'strike': 1})]
    found, sums = diagnose(rows, ECONOMY), books(rows, ECONOMY)
    assert found.sums == sums and sums['tickets'] == pytest.approx(.6), 'unpaid tickets were due'
    if names is None:
        assert found.case == 'even' and 'economy.' not in str(found)
        return
    prices = break_even(sums, ECONOMY)
    assert found.case == 'dear' and set(prices) == names
    assert all(f'economy.{name}' in str(found) for name in names) and ('no economy.' in str(found)) == (not names)
    rest = sums['penalty'] + sums['tickets']
    if 'price_level' in names: assert sums['revenue'] * prices['price_level'] == pytest.approx(sums['cost'] + rest)
    if 'price_gflop' in names:
        cheaper = ECONOMY.model_copy(update={'price_gflop': prices['price_gflop']})
        cost = math.fsum(answer_cost(cheaper, e['gflops'], 10) for e in rows[0].episodes)
        assert sums['revenue'] == pytest.approx(cost + rest)


def test_what_is_named_is_rounded_to_the_safe_side():
    rows = [seen(*answers('math:1', 40, right=8))]
    prices, found = break_even(books(rows, ECONOMY), ECONOMY), diagnose(rows, ECONOMY).found
    number = lambda after: float(' '.join(found).split(after)[1].split()[0])
    assert -1e-9 <= number('price_level at or above ') / prices['price_level'] - 1 < .01
    assert -1e-9 <= 1 - number('price_gflop at or below ') / prices['price_gflop'] < .01


def test_cells_with_and_without_a_right_answer_are_named():
    found = look(*answers('math:1', 40, right=4), *answers('math:3', 8))
    assert 'right at least once: math:1; never: math:3' in found.found


def test_right_answers_of_worthless_cells_are_no_matter_of_skill():
    found = look(*answers('math:1', 40, right=20, price=0.))
    assert found.case == 'unpaid' and '5 of 10 questions' in str(found) and 'prices of 0 to 0' in str(found)


@pytest.mark.parametrize('before, read, case', [
    (dict(parse_rate=.9, accuracy=.3), True, 'lost'), (dict(parse_rate=.9, accuracy=0.), True, 'wrong'),
    (dict(parse_rate=.9, accuracy=.3), False, 'lost'), (dict(parse_rate=.04, accuracy=.01), False, 'unread')])
def test_neither_form_nor_cells_are_the_reason_if_energy_was_earned_before(before, read, case):
    found = look(*answers('math:1', 40, read=read), before=dict(generation=7, kl_from_host=.5) | before)
    assert found.case == case and ('until generation 7' in str(found)) == (case == 'lost')


def test_no_question_at_all_has_no_table():
    found = diagnose([seen(energy=0., alive=2)], ECONOMY)
    assert found.case == 'unasked' and '2 organelles hold 0 energy' in str(found) and 'pass@k' not in str(found)


def test_the_energy_that_is_left_is_divided_by_its_fall_in_the_ledger():
    ledger = [dict(account=a, amount=x) for a, x in (('genesis', 30.), ('compute', -4.), ('relief', 1.))]
    two = [seen(*answers('math:1', 8), ledger=ledger),
           seen(*answers('math:1', 8), generation=1, energy=9., ledger=ledger[1:])]
    assert '9 is left, and falls by 3 a generation: enough for 3.0' in str(diagnose(two, ECONOMY))
    assert 'does not fall' in str(look(*answers('math:1', 8)))


def test_every_case_has_a_text_and_one_line_for_errors():
    found = [look(*answers('math:1', 40, read=False)), look(*answers('math:1', 40)), diagnose([seen()], ECONOMY)]
    assert [f.case for f in found] == ['unread', 'wrong', 'unasked']
    assert all(f.line.startswith(CASES[f.case]) and '\n' not in f.line for f in found) and '0.0% of 40' in found[0].line
    with pytest.raises(ValueError, match='at least one generation'): diagnose([])


# --- patience

def noise(**changes):
    "A world on which a tiny host earns nothing, and lives for a while"
    return small(founders=3, cells=['math:1'], max_new_tokens=2, variation=VariationConfig(mu=3, offspring=0),
                 economy=EconomyConfig(founder_energy=20., newborn_energy=2., ticket=.3),
                 curriculum=CurriculumConfig(budget=2., budget_max=2), **changes)


def poor():
    "The same, and it can pay one ticket"
    economy = EconomyConfig(founder_energy=1., newborn_energy=1., ticket=1., grace=2)
    return noise().model_copy(update={'economy': economy})


@pytest.mark.parametrize('patience', [1, 2, 3, 7])
def test_it_stops_while_organelles_are_alive_and_may_go_on(host, patience):
    ecology, lines = Ecology(host, noise()), []
    for turn in (1, 2):
        ecology.run(50, patience=patience, log=lines.append)
        assert ecology.generation == turn * patience and len(ecology.population) == 3
        assert f'no energy was earned in generations 0 to {ecology.generation - 1}; 3 organelles are alive' in lines[-1]


def test_a_run_that_reaches_its_end_has_a_diagnosis_as_well(host):
    lines = []
    Ecology(host, noise()).run(3, patience=3, log=lines.append)
    assert 'no energy was earned' in lines[-1]


@pytest.mark.parametrize('patience', [-1, 1.5, True, '3', None])
def test_patience_is_a_number_of_generations(host, patience):
    ecology = Ecology(host, noise())
    with pytest.raises(ValueError, match='patience expected 0 or more'): ecology.run(1, patience=patience)
    assert ecology.generation == 0


def test_it_stops_before_the_ticket_that_ends_all(host):
    ecology, lines = Ecology(host, poor()), []
    ecology.run(50, patience=40, log=lines.append)
    assert extinction_certain(ecology) and len(ecology.population) == 3
    assert 'bankrupt at its next ticket; 3 organelles' in lines[-1]
    ecology.run(50, patience=40, log=lines.append)
    assert not len(ecology.population) and lines[-1].startswith('no organelle is left after generation')


@pytest.mark.parametrize('case', ['unread', 'wrong', 'dear'])
def test_a_run_logs_its_case(host, monkeypatch, case):
    draws = lambda task, text: stream(0, purpose=f'{task.id} {text}').random() < .15
    grades = {'unread': lambda *_: Grade(False, 0., False), 'wrong': lambda *_: Grade(True, 0., False),
              'dear': lambda task, text: Grade(True, float(draws(task, text)), draws(task, text))}
    graded(monkeypatch, grades[case])
    costly = EconomyConfig(founder_energy=6., newborn_energy=2., ticket=.3, price_token=.3)
    ecology, lines, records = Ecology(host, noise().model_copy(update={'economy': costly})), [], []
    ecology.run(50, patience=0 if case == 'dear' else PATIENCE, hooks=[records.append], log=lines.append)
    assert (len(ecology.population) == 0) == (case == 'dear') and CASES[case] in lines[-1]
    assert 'cheaper ticket' not in lines[-1] and 'founders' not in lines[-1]
    if case == 'dear':
        recent = [Seen(r.row, r.episodes, r.ledger) for r in records[-LAST:]]
        assert break_even(books(recent, costly), costly) and 'economy.price_level at or above' in lines[-1]


def test_a_generation_with_revenue_restarts_the_count(host, monkeypatch):
    graded(monkeypatch, lambda *_: Grade(True, *((1., True) if ecology.generation == 4 else (0., False))))
    ecology = Ecology(host, noise())
    ecology.run(30, patience=5, log=None)
    assert (ecology.generation, unpaid_generations(ecology.history)) == (10, 5)


def test_what_was_earned_before_is_named(host, monkeypatch):
    graded(monkeypatch, lambda *_: Grade(True, 1., True) if ecology.generation < 4 else Grade(False, 0., False))
    ecology, lines = Ecology(host, noise()), []
    ecology.run(30, patience=2, log=lines.append)
    assert CASES['lost'] in lines[-1] and 'until generation 3: 100.0% read, 100.0% right' in lines[-1]


def test_a_life_that_earns_is_the_same_with_and_without(host, monkeypatch, tmp_path):
    draws = lambda task, text: stream(0, purpose=f'{task.id} {text}').random()
    graded(monkeypatch, lambda task, text: Grade(draws(task, text) > .2, draws(task, text), draws(task, text) > .5))
    config = small(economy=EconomyConfig(founder_energy=20., newborn_energy=2., ticket=.3, price_token=0.))
    for name, patience in (('with', 2), ('without', 0)):
        with begin_session(tmp_path / name, host, config) as session:
            assert session.live(6, log=None, patience=patience) is None
    assert recorded(tmp_path / 'with') == recorded(tmp_path / 'without')
    assert (tmp_path / 'with' / 'run.json').read_bytes() == (tmp_path / 'without' / 'run.json').read_bytes()


# --- with a folder

def test_a_dark_run_is_kept_resumed_and_judged_by_its_tables(host, tmp_path):
    config, lines = noise(), []
    with begin_session(tmp_path / 'run', host, config, every=50) as session:
        found = session.live(9, log=lines.append, patience=3)
        assert found.case == 'unread' and str(found) == lines[-1] and session.ecology.generation == 3
    with begin_session(tmp_path / 'straight', host, config) as straight: straight.live(5, log=None)
    with resume_session(tmp_path / 'run', host) as session:     # two more in a life of patience 5
        again = session.live(9, log=None, patience=5)
        assert session.ecology.generation == 5 and again.when == 'generations 0 to 4'
        assert again.count['answers'] == sum(g.row['episodes'] for g in session.ecology.history)
        assert again.count['answers'] == len(Run.open(tmp_path / 'run').rows('episodes'))
    assert recorded(tmp_path / 'run') == recorded(tmp_path / 'straight')


def test_tables_and_memory_give_the_same_diagnosis(host, tmp_path):
    with begin_session(tmp_path / 'run', host, noise()) as session:
        kept = []
        session.live(3, log=None, hooks=[kept.append])
        ours = diagnose([Seen(r.row, r.episodes, r.ledger) for r in kept], session.ecology.config.economy)
        theirs = diagnose(session.seen(0), session.ecology.config.economy)
        assert str(ours) == str(theirs) and len(session.seen(1)) == 2


def test_the_diagnosis_of_an_ended_run_is_given_again(host, tmp_path):
    with begin_session(tmp_path / 'run', host, poor()) as session: first = session.live(40, log=None)
    lines = []
    with resume_session(tmp_path / 'run', host) as session: again = session.live(40, log=lines.append)
    assert first.why.startswith('no organelle is left') and str(again) == str(first) == lines[-1]


def test_rows_without_a_generation_are_left_out():
    rows = [dict(generation=4)]
    assert seen_in(rows, [dict(generation=3), dict(generation=4)], []) == [Seen(rows[0], [dict(generation=4)], [])]
