"""Why nothing is learned: each case from made-up answers and from whole runs, and no advice that was not computed."""
from types import SimpleNamespace

import pytest
from hostile import ANSWERS, BIDI, ESCAPE, SCRIPT

from evolora.ecology.config import EcologyConfig
from evolora.ecology.diagnosis import (CASES, DIFFER, LAST, PATIENCE, READ, EarlyStopping, Seen, by_cell, diagnose,
                                       inert, seen_in, wrong_generations)
from evolora.ecology.ecology import Ecology
from evolora.ecology.run_folder import TABLES, Run
from evolora.ecology.sessions import begin_session, resume_session
from evolora.economy.market import MarketConfig
from evolora.economy.prices import EconomyConfig, reward
from evolora.host.model import tiny_host
from evolora.organelles.updates import Plasticity, PlasticityConfig
from evolora.tasks.curriculum import CurriculumConfig
from evolora.tasks.family import Grade
from evolora.tasks.forms import Form
from evolora.utils.randomness import stream


@pytest.fixture(scope='module')
def host(): return tiny_host()


def graded(monkeypatch, grade): monkeypatch.setattr(Form, 'grade', lambda _, task, text: grade(task, text))


def answers(cell, n, *, right=0, read=True, answer='7', k=4, generation=0, organelle='o1', progress=0.):
    "So many answers, k to a question, of which the first ones are right"
    family, depth = cell.split(':')
    return [dict(generation=generation, organelle=organelle, family=family, depth=int(depth), task=f'{cell} {i // k}',
                 parsed=read, success=i < right, answer=answer, new_tokens=4,
                 reward=float(reward(EconomyConfig(), 1. if i < right else progress, i < right).total))
            for i in range(n)]


def seen(*episodes, generation=0, **row):
    return Seen(dict(generation=generation, parse_rate=1., accuracy=0., kl_from_host=None) | row, list(episodes))


def look(*episodes, **how): return diagnose([seen(*episodes)], **how)


# --- the cases, from made-up answers

def test_answers_to_one_question_are_its_k():
    table = by_cell([*answers('math:1', 12, right=5), *answers('math:1', 2, generation=1),
                     *answers('logic.bool:2', 3)])
    one = table.loc['math:1']
    # The first question was asked again a generation later: six answers to it, the second one has a right one as well.
    assert one[['answers', 'questions', 'solved', 'fewest', 'most']].tolist() == [14, 3, 2, 4, 6]
    assert one.right == pytest.approx(5 / 14) and one.read == 1
    assert table.loc['logic.bool:2', ['questions', 'solved']].tolist() == [1, 0]


def test_copies_are_of_one_organelle_in_one_generation():
    "As a lesson compares them: what two organelles, or two generations, answered differently is no difference to learn"
    rows = [*answers('math:1', 4, right=4), *answers('math:1', 4, generation=1), *answers('math:1', 4, organelle='o2'),
            *answers('math:1', 4, right=1, organelle='o3'), *answers('math:1', 1, organelle='o4')]
    assert by_cell(rows).loc['math:1', ['questions', 'compared', 'differ']].tolist() == [1, 4, 1]


def test_what_differs_is_what_has_an_advantage(host):
    "The same groups, and the same answer, as the advantages that lessons are made of"
    rng = stream(0, purpose='copies')
    rows = [e | {'reward': float(rng.choice([0., .1, .2]))} for who in ('o1', 'o2') for cell in ('math:1', 'math:2')
            for e in answers(cell, 40, organelle=who, k=3)]
    learning = Plasticity(SimpleNamespace(stack=SimpleNamespace(A={}, B={}), capacity=2))
    columns = [[e[k] for e in rows] for k in ('organelle', 'task')]
    found = learning.advantages([e['reward'] for e in rows], *columns, [f"{e['family']}:{e['depth']}" for e in rows])
    moved = {}
    for e, x in zip(rows, found): moved.setdefault((e['organelle'], e['task']), []).append(x)
    several = [xs for xs in moved.values() if len(xs) > 1]
    table = by_cell(rows)
    assert table.compared.sum() == len(several) and table.differ.sum() == sum(map(any, several)) > 0


def test_what_cannot_be_read_is_a_matter_of_form():
    found = look(*answers('math:1', 38, read=False, answer='Sure!'), *answers('math:1', 2, answer='8'),
                 host='a/b c', longest=4)
    text = str(found)
    assert found.case == 'unread' and '5.0% of 40' in text and '‹Sure!›' in text and '‹8›' not in text
    assert "evolora calibrate 'a/b c'" in text and 'max_new_tokens 4' in text
    assert 'max_new_tokens' not in str(look(*answers('math:1', 40, read=False), longest=5))
    few = round(READ * 40)
    for n, case in ((few - 1, 'unread'), (few, 'wrong')):
        assert look(*answers('math:1', 40 - n, read=False), *answers('math:1', n)).case == case


def test_at_most_three_replies_are_shown_the_usual_ones_first():
    rows = [e for i in range(6) for e in answers('math:1', 6 - i, read=False, answer=f'reply {i}')]
    assert [line for line in look(*rows).found if '‹' in line] == [f'  ‹reply {i}›' for i in range(3)]


@pytest.mark.parametrize('reply', [*ANSWERS, '\ud800', '\r\n\x07', ''])
def test_hostile_replies_names_and_hosts_are_inert(reply):
    rows = [e | {'family': SCRIPT + ESCAPE + BIDI} for e in answers('math:1', 20, read=False, answer=reply)]
    found = look(*rows, host=reply + ESCAPE, cells=[reply])
    assert all(line.isprintable() and len(line) < 1000 for line in str(found).split('\n'))
    for right in (0, 20):
        read = [e | {'parsed': True, 'success': i < right} for i, e in enumerate(rows)]
        assert all(line.isprintable() for line in str(look(*read, host=reply)).split('\n'))
    assert inert('x' * 10**6).endswith('… (1,000,000 characters)') and inert('a\nb') == 'a b'


def test_what_is_never_right_is_too_hard():
    found = look(*answers('math:1', 40), *answers('math:3', 8), cells=['math:1', 'math:2', 'math:3'])
    text = str(found)
    assert found.case == 'wrong' and found.count['solved'] == 0 and '0 of 12 questions' in text and 'below 24%' in text
    assert 'math:1, math:3; ' in text and 'not asked in these generations: math:2' in text
    assert 'evolora host measure' in text and '0 of 12 questions had copies that differ in reward, not even' in text
    assert 'evolora calibrate' in str(look(*answers('math:1', 40), form='3 solved questions'))


def test_progress_can_be_learned_from_where_nothing_is_right():
    rows = [e | x for i in range(5) for e, x in zip(answers('math:1', 40), [{}, {}, {'reward': .2}])]
    found = look(*rows)
    assert found.case == 'wrong' and '1 of 1 questions had copies that differ in reward, by progress' in str(found)
    assert 'copies that differ' not in str(look(*answers('math:1', 9, k=1))), 'there is one answer to each'


def test_copies_that_are_alike_have_no_difference_to_learn_from():
    solved, never = answers('math:1', 40, right=40, answer='5'), answers('math:3', 40, answer='6')
    found = look(*solved, *never, temperature=.1)
    assert found.case == 'alike' and '0 of 20 questions had copies that differ' in str(found)
    assert 'right at least once: math:1; never: math:3' in found.found
    assert 'of the 20 that are alike 10 were right in each copy, and 20 had the same words in each' in found.found
    assert 'temperature 0.1 is too low' in str(found) and 'harder cells' not in str(found)
    words = [e | {'answer': f'{i}'} for i, e in enumerate([*solved, *never])]
    assert 'temperature' not in str(look(*words)), 'they differ in words, so sampling is not too cold'
    assert 'harder cells have more to teach' in str(look(*solved, *never[:4]))


@pytest.mark.parametrize('differ, case', [(0, 'alike'), (1, 'alike'), (2, 'fine'), (9, 'fine')])
def test_a_few_questions_that_differ_are_enough(differ, case):
    "Of forty questions: at least the share `DIFFER`"
    assert DIFFER == .05
    rows = [*answers('math:1', 4, right=4), *(e for i in range(39) for e in answers(
        f'math:{i + 2}', 4, right=int(i < differ)))]
    found = look(*rows)
    assert found.case == case and f'{differ} of 40 questions had copies that differ in reward' in str(found)


@pytest.mark.parametrize('k, how', [(1, {}), (4, {'baseline': 'cell'})])
def test_where_copies_are_not_compared_they_cannot_be_too_alike(k, how):
    found = look(*answers('math:1', 8, right=4, k=k), **how)
    assert found.case == 'fine' and 'compared with the running mean of the cell' in str(found)
    assert look(*answers('math:1', 8, right=4)).case == 'alike'


@pytest.mark.parametrize('before, read, right, case', [
    (dict(parse_rate=.9, accuracy=.3), True, 0, 'lost'), (None, True, 0, 'wrong'),
    (dict(parse_rate=.9, accuracy=.3), False, 0, 'lost'), (dict(parse_rate=.04, accuracy=.01), False, 0, 'unread'),
    (dict(parse_rate=.9, accuracy=.3), True, 39, 'fine')])
def test_neither_form_nor_cells_are_the_reason_if_it_was_right_before(before, read, right, case):
    before = before and dict(generation=7, kl_from_host=.5) | before
    found = look(*answers('math:1', 40, read=read, right=right, k=20), before=before)
    assert found.case == case and ('the last right answer is of generation 7' in str(found)) == (case == 'lost')


def test_every_case_has_a_text_and_one_line_for_errors():
    before = dict(generation=0, parse_rate=1., accuracy=.5, kl_from_host=None)
    found = [look(*answers('math:1', 40, read=False)), look(*answers('math:1', 40)),
             look(*answers('math:1', 40, right=40)), look(*answers('math:1', 40), before=before),
             look(*answers('math:1', 40, right=2))]
    assert [f.case for f in found] == list(CASES)
    assert all(f.line.startswith(CASES[f.case]) and '\n' not in f.line for f in found) and '0.0% of 40' in found[0].line


@pytest.mark.parametrize('generations, says', [([], 'got none; live'), ([seen()], 'got 1 without any; live')])
def test_without_an_answer_there_is_no_diagnosis(generations, says):
    with pytest.raises(ValueError, match=says): diagnose(generations)


def test_rows_without_a_generation_are_left_out():
    rows = [dict(generation=4)]
    assert seen_in(rows, [dict(generation=3), dict(generation=4)]) == [Seen(rows[0], [dict(generation=4)])]


# --- patience

def noise(**changes):
    "A world in which a tiny host is never right"
    sections = dict(market=MarketConfig(questions=6, round=3), curriculum=CurriculumConfig(copies=2),
                    plasticity=PlasticityConfig(rule='none'))
    return EcologyConfig(**dict(founders=2, capacity=3, cells=['math:1'], max_new_tokens=2) | sections | changes)


@pytest.mark.parametrize('patience', [1, 2, 3, 7])
def test_it_stops_while_nothing_is_right_and_may_go_on(host, patience):
    ecology, lines = Ecology(host, noise()), []
    for turn in (1, 2):
        ecology.run(50, patience=patience, log=lines.append)
        assert ecology.generation == turn * patience
        assert f'no answer was right in generations 0 to {ecology.generation - 1}; all is kept' in lines[-1]


def test_a_run_that_reaches_its_end_has_a_diagnosis_as_well(host):
    lines = []
    Ecology(host, noise()).run(3, patience=3, log=lines.append)
    assert 'no answer was right' in lines[-1]


def test_without_patience_it_waits_for_ever_and_may_be_asked(host):
    ecology, lines = Ecology(host, noise()), []
    ecology.run(PATIENCE + 1, patience=0, log=lines.append)
    assert ecology.generation == PATIENCE + 1 and not any('stopped' in line for line in lines)
    found = EarlyStopping(ecology, 0).look('asked')
    assert (found.case, found.why, found.when) == ('unread', 'asked', f'generation {PATIENCE}'), 'what it still has'


@pytest.mark.parametrize('patience', [-1, 1.5, True, '3', None])
def test_patience_is_a_number_of_generations(host, patience):
    ecology = Ecology(host, noise())
    with pytest.raises(ValueError, match='patience expected 0 or more'): ecology.run(1, patience=patience)
    assert ecology.generation == 0


@pytest.mark.parametrize('case', ['unread', 'wrong'])
def test_a_run_logs_its_case(host, monkeypatch, case):
    graded(monkeypatch, lambda *_: Grade(case == 'wrong', 0., False))
    ecology, lines = Ecology(host, noise()), []
    ecology.run(50, patience=PATIENCE, log=lines.append)
    assert ecology.generation == PATIENCE and CASES[case] in lines[-1]


def test_a_generation_with_a_right_answer_restarts_the_count(host, monkeypatch):
    graded(monkeypatch, lambda *_: Grade(True, *((1., True) if ecology.generation == 4 else (0., False))))
    ecology = Ecology(host, noise())
    ecology.run(30, patience=5, log=None)
    assert (ecology.generation, wrong_generations(ecology.history)) == (10, 5)


def test_what_was_right_before_is_named(host, monkeypatch):
    graded(monkeypatch, lambda *_: Grade(True, 1., True) if ecology.generation < 4 else Grade(False, 0., False))
    ecology, lines = Ecology(host, noise()), []
    ecology.run(30, patience=2, log=lines.append)
    assert CASES['lost'] in lines[-1] and 'of generation 3: 100.0% read, 100.0% right' in lines[-1]
    assert 'generations 4 to 5' in lines[-1]


def test_the_latest_generations_are_looked_at_where_they_were_right(host, monkeypatch):
    graded(monkeypatch, lambda *_: Grade(True, 1., True))
    ecology = Ecology(host, noise())
    watch = EarlyStopping(ecology, 2)
    ecology.run(LAST + 2, patience=watch, log=None)
    found = watch.look()
    assert watch.found is None and (found.case, found.when) == ('alike', f'generations 2 to {LAST + 1}')
    # The same question may come twice in a generation: then all its copies are compared.
    assert found.count['answers'] == 12 * LAST and found.count['compared'] <= 6 * LAST


# --- with a folder

def recorded(folder): return {table: (folder / f'{table}.jsonl').read_bytes() for table in TABLES
                              if table != 'timings' and (folder / f'{table}.jsonl').exists()}


def test_a_life_that_is_right_at_times_is_the_same_with_and_without(host, monkeypatch, tmp_path):
    draws = lambda task, text: stream(0, purpose=f'{task.id} {text}').random()
    graded(monkeypatch, lambda task, text: Grade(draws(task, text) > .2, draws(task, text), draws(task, text) > .5))
    for name, patience in (('with', 2), ('without', 0)):
        with begin_session(tmp_path / name, host, noise()) as session:
            assert session.live(4, log=None, patience=patience) is None
    assert recorded(tmp_path / 'with') == recorded(tmp_path / 'without')
    assert (tmp_path / 'with' / 'run.json').read_bytes() == (tmp_path / 'without' / 'run.json').read_bytes()


def test_a_run_that_was_stopped_is_kept_resumed_and_judged_by_its_tables(host, tmp_path):
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
        ours, theirs = diagnose([Seen(r.row, r.episodes) for r in kept]), diagnose(session.seen(0))
        assert str(ours) == str(theirs) and len(session.seen(1)) == 2
