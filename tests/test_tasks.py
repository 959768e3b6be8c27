"""One contract for every cell: what a question is, who may see it, and what a reply is worth, whatever the reply."""
import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from functools import lru_cache
from itertools import combinations
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from evolora import patterns
from evolora.families import Grade
from evolora.randomness import stream as random_stream
from evolora.tasks import (CELLS, FAMILIES, ID_CELLS, OOD_CELLS, OOD_DEPTH, OOD_FAMILIES, STREAMS, Cell, draw_tasks,
                           grade, read_tasks,
                           sample_tasks, stream_of, write_tasks)

DISTINCT = 5000             # prompts that a cell must have at least
UNREADABLE = Grade(False, 0., False)

every_cell = pytest.mark.parametrize('cell', CELLS, ids=str)
every_family = pytest.mark.parametrize('family', FAMILIES)


class Drawn(NamedTuple):
    answers: dict       # of each distinct prompt
    modes: Counter      # how often each answer came, repeated prompts included
    tasks: list         # the first few, difficulties from 0 to 1


@lru_cache(maxsize=None)
def drawn(cell):
    "Draws of a cell until enough prompts are distinct, or it is clear that they never will be"
    rng, family = random_stream(0, purpose=f'contract {cell}'), FAMILIES[cell.family]
    found = Drawn({}, Counter(), [])
    for i in range(4 * DISTINCT):
        task = family.draw(rng, cell.depth, (0., .25, .5, .75, 1.)[i] if i < 5 else rng.random())
        found.answers[task.prompt] = task.answer
        found.modes[task.answer] += 1
        if i < 120: found.tasks.append(task)
        if len(found.answers) == DISTINCT: break
    return found


def replies(task, rng):
    "Everything that a family itself can say to a task"
    family = FAMILIES[task.family]
    return [task.answer, family.slip(task, rng), family.misconception(task), f'The answer is {task.answer}.', '',
            task.prompt]


def one_task(family, depth=3, seed=0): return FAMILIES[family].draw(np.random.default_rng(seed), depth, .5)


# --- what is asked

@every_cell
def test_a_cell_has_thousands_of_prompts_and_no_common_answer(cell):
    found = drawn(cell)
    assert len(found.answers) >= DISTINCT
    answer, count = found.modes.most_common(1)[0]
    assert count / found.modes.total() <= max(2 / len(found.modes), .05), f'{answer!r} {count} times'


@every_cell
def test_answers_and_prompts_are_one_short_line(cell):
    family = FAMILIES[cell.family]
    for prompt, answer in drawn(cell).answers.items():
        assert 0 < len(answer) <= family.longest and answer == answer.strip()
        assert prompt == ' '.join(prompt.split()) and prompt.isascii() and answer.isascii()


@every_family
def test_depth_changes_what_is_asked(family):
    ask = lambda depth, seed: FAMILIES[family].draw(np.random.default_rng(seed), depth, .5).prompt
    for shallow, deep in combinations(range(1, 5), 2):
        assert sum(ask(shallow, seed) != ask(deep, seed) for seed in range(20)) >= 19


@every_cell
def test_difficulty_changes_what_is_asked(cell):
    ask = lambda difficulty, seed: FAMILIES[cell.family].draw(np.random.default_rng(seed), cell.depth,
                                                              difficulty).prompt
    assert any(ask(0., seed) != ask(1., seed) for seed in range(20))


@every_cell
def test_the_same_stream_of_luck_asks_the_same(cell):
    family = FAMILIES[cell.family]
    twice = [family.draw(np.random.default_rng(7), cell.depth, .3) for _ in range(2)]
    assert twice[0] == twice[1]
    assert (twice[0].family, twice[0].depth, twice[0].difficulty) == (*cell, .3)


# --- what replies are worth

@every_cell
def test_gold_is_right_at_every_difficulty(cell):
    for task in drawn(cell).tasks:
        for reply in (task.answer, f'  {task.answer}\n\n', f'Let me see: 12 or so.\nAnswer: {task.answer}',
                      f'ANSWER:{task.answer}'):
            assert grade(task, reply) == Grade(True, 1., True), (task.prompt, reply)


@every_cell
def test_a_slip_is_readable_and_never_right(cell):
    rng = random_stream(0, purpose=f'slips {cell}')
    for task in drawn(cell).tasks:
        graded = grade(task, slip := FAMILIES[cell.family].slip(task, rng))
        assert graded.parsed and not graded.success and 0 <= graded.progress < 1, (task.prompt, slip)


@every_cell
def test_a_misconception_is_readable_and_mostly_wrong(cell):
    graded = [grade(task, FAMILIES[cell.family].misconception(task)) for task in drawn(cell).tasks]
    assert all(g.parsed and 0 <= g.progress <= 1 for g in graded)
    assert np.mean([g.success for g in graded]) < .5


@every_cell
def test_talking_is_not_answering(cell):
    for task in drawn(cell).tasks[:40]:
        for reply in ('', ' \n\t\n', 'Answer:', 'Answer: \n'): assert grade(task, reply) == UNREADABLE
        for reply in (f'The answer is {task.answer}.', f'{task.answer} or 12, I think!', f'{task.answer}\nThat is all.',
                      task.prompt):
            graded = grade(task, reply)
            # A sentence happens to be a regular expression; it tells nothing apart.
            assert graded == (Grade(True, 0., False) if graded.parsed and cell.family == 'regex.synthesis'
                              else UNREADABLE), reply


@every_cell
def test_the_answer_to_another_question_is_wrong(cell):
    tasks = drawn(cell).tasks
    for task, other in zip(tasks, tasks[1:]):
        graded = grade(task, other.answer)
        assert 0 <= graded.progress <= 1 and graded.success == (graded.progress == 1.)
        if cell.family != 'regex.synthesis': assert graded.parsed and graded.success == (task.answer == other.answer)


@pytest.mark.parametrize('digits', ['٠١٢٣٤٥٦٧٨٩', '０１２３４５６７８９', '߀߁߂߃߄߅߆߇߈߉'])
@pytest.mark.parametrize('family', ['math', 'math.sequence', 'math.multi_step', 'word.count', 'json_repair'])
def test_digits_are_ascii(family, digits):
    task = one_task(family)
    foreign = task.answer.translate(str.maketrans('0123456789', digits))
    assert foreign != task.answer and grade(task, foreign) == UNREADABLE


# --- replies from hell

def rude(task):
    "Replies by name that a model may write and no grader may stumble over"
    key = next(iter(task.meta.get('whole', {'a': 0})))
    return {'nothing but brackets': '[' * 100_000, 'objects in objects': '{"a":' * 100_000,
            'megabytes of letters': 'a' * 3_000_000,
            'megabytes of lines': '\n' * 3_000_000, 'a long way to the answer': ' ' * 3_000_000 + 'x',
            'answers to answers': 'answer:' * 300_000,
            'nulls': '\0' * 50, 'half a character': '\ud800', 'a huge number': '9' * 1999,
            'a number of minus signs': '-' * 1999,
            'infinity': '1e999', 'json infinity': '{"%s":Infinity}' % key, 'json not a number': '{"%s":NaN}' % key,
            'json huge': '{"%s":%s}' % (key, '7' * 1900), 'json twice': '{"%s":1,"%s":[]}' % (key, key),
            'a byte order mark': f'\ufeff{task.answer}',
            'backwards': f'\u202e{task.answer}', 'a superscript': f'{task.answer}²', 'emoji': '🧬' * 700,
            'combining': 'e' + '\u0301' * 1900,
            'separators': '1\x1c2\x1d3\x1e4\x852\u20282\u20293', 'percent': '%s%d%n', 'braces': '{0}{task.answer}',
            'code': '__import__("os")._exit(1)'}


@every_family
@pytest.mark.parametrize('name', rude(one_task('math')))
def test_rude_replies_are_graded_and_wrong(family, name):
    task = one_task(family)
    graded = grade(task, rude(task)[name])
    assert isinstance(graded, Grade) and 0 <= graded.progress < 1 and not graded.success


@settings(max_examples=150, deadline=None)
@given(text=st.one_of(st.text(max_size=80), st.text('0123456789 -+TFyn{}[]":,abc()|*?.\\\n', max_size=60)),
       seed=st.integers(0, 3))
def test_any_text_is_graded(text, seed):
    for family in FAMILIES:
        graded = grade(one_task(family, depth=1 + seed, seed=seed), text)
        assert 0 <= graded.progress <= graded.parsed and graded.success == (graded.progress == 1.)


@settings(max_examples=60, deadline=None)
@given(value=st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4), lambda inside:
                          st.lists(inside, max_size=3) | st.dictionaries(st.sampled_from('abcxyz'), inside, max_size=4),
                          max_leaves=8))
def test_any_json_is_graded(value):
    text = json.dumps(value)
    for depth in range(1, 5):
        graded = grade(one_task('json_repair', depth), text)
        assert 0 <= graded.progress <= 1
        assert graded.parsed == isinstance(value, dict)


def test_json_nested_to_any_level_is_graded():
    task = one_task('json_repair', 1)
    key = next(iter(task.meta['whole']))
    for levels in range(1, 1000):
        assert not grade(task, '{"%s":%s1%s}' % (key, '[' * levels, ']' * levels)).success, levels


def test_what_is_cut_off_does_not_make_a_line_an_answer():
    "A line too long to be looked at whole is not an answer, whatever its end"
    task = one_task('math')
    assert grade(task, f'I do not know. Perhaps{" " * 3000}{task.answer}') == UNREADABLE


# --- the clock of the matcher

BOMBS = ['(a|aa)+$b', '((a+)+)+$b', '(a*)*(a*)*(a*)*b', '(?R)+b', '(?R)', '((?1)|a)*b', '(a?(?R))', '(.|..)*$b',
         '(?=(a|aa)+$b)a', '(?e)(a|aa)+$b',
         '(?b)(a|aa)+$b', '(?r)b(a|aa)+', '(?p)(a|aa)+$b', '(a|a|a|a|a|a)+$b', '(?:a?){9}b', 'a{99999}{99999}',
         '(' * 40, '[' * 40, '\\' * 39]


def test_every_match_has_a_clock(monkeypatch):
    clocks, real = [], patterns.regex.fullmatch
    def watched(pattern, text, **options):
        clocks.append(options.get('timeout'))
        return real(pattern, text, **options)
    monkeypatch.setattr(patterns.regex, 'fullmatch', watched)
    task = one_task('regex.synthesis')
    for bomb in BOMBS: assert not grade(task, bomb).success, bomb
    assert clocks and set(clocks) == {patterns.MATCH_SECONDS}


def test_bombs_go_off_quietly():
    "In a process of its own, which can be ended if the clock should fail; the limit is generous, not a measurement"
    code = f'from evolora.patterns import matches\nfor bomb in {BOMBS!r}: print(matches(bomb, "a" * 200))'
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ['False'] * len(BOMBS), '')


@settings(max_examples=200, deadline=None)
@given(pattern=st.lists(st.sampled_from([*'abc()[]|+*?.^$\\-!<>=', '(?', '(?:', '(?P<a>', '(?P=a)', '(?R)', '(?1)',
                                         '(?>', '(?<=', '(?!', '(?(1)', '\\L<a>',
                                         '\\1', '\\K', '\\X', '(?V1)', '(?e)', '(?r)', '(?L)', '[[', '--', '[:alpha:]',
                                         '(?#', '\\x', '\\p']),
                        min_size=1, max_size=10).map(''.join))
@pytest.mark.filterwarnings('ignore::FutureWarning')
def test_any_pattern_comes_back(pattern):
    assert patterns.matches(pattern, 'aabbc') in (True, False)


# --- who may see what

def test_cells_are_in_or_out_of_distribution():
    assert len(CELLS) == len(set(CELLS)) == 4 * len(FAMILIES)
    assert set(ID_CELLS) | set(OOD_CELLS) == set(CELLS) and not set(ID_CELLS) & set(OOD_CELLS)
    assert {c.family for c in ID_CELLS}.isdisjoint(OOD_FAMILIES) and OOD_DEPTH not in {c.depth for c in ID_CELLS}
    assert {c.family for c in ID_CELLS} == set(FAMILIES) - set(OOD_FAMILIES)
    assert all(Cell.parse(str(c)) == c for c in CELLS)


@pytest.mark.parametrize('family', sorted(set(FAMILIES) - set(OOD_FAMILIES)))
def test_the_deepest_questions_are_asked_nowhere_else(family):
    "Or training at a shallower depth would be training out of distribution"
    deepest = drawn(Cell(family, OOD_DEPTH)).answers.keys()
    for depth in range(1, OOD_DEPTH): assert deepest.isdisjoint(drawn(Cell(family, depth)).answers)


@pytest.mark.parametrize('family', sorted(set(FAMILIES) - {'regex.synthesis'}))
def test_one_question_has_one_answer_at_any_depth(family):
    answers = {}
    for depth in range(1, 5):
        for prompt, answer in drawn(Cell(family, depth)).answers.items():
            assert answers.setdefault(prompt, answer) == answer, prompt


@every_family
def test_streams_are_disjoint_whatever_the_depth(family):
    where = {}
    for depth in range(1, 5):
        for name in STREAMS:
            tasks = sample_tasks(Cell(family, depth), stream=name, n=25,
                                 rng=random_stream(1, purpose=f'{family} {depth}'))
            assert len({t.id for t in tasks}) == len({t.prompt for t in tasks}) == 25
            for t in tasks:
                assert where.setdefault(t.prompt, name) == where.setdefault(t.id, name) == name
                assert {stream_of(replace(t, depth=d, difficulty=1., answer='x', meta={}, id=''))
                        for d in range(1, 5)} == {name}


@every_cell
def test_streams_have_their_shares(cell):
    task = drawn(cell).tasks[0]
    found = Counter(stream_of(replace(task, prompt=prompt)) for prompt in drawn(cell).answers)
    for name, share in STREAMS.items():
        # five standard deviations of the largest share
        assert abs(found[name] / len(drawn(cell).answers) - share / 100) < .035, found


# --- files

@pytest.mark.parametrize('name', STREAMS)
def test_the_same_seed_writes_the_same_bytes(tmp_path, name):
    first, second, other = (write_tasks(draw_tasks(CELLS, stream=name, n=90, seed=seed), tmp_path / file).read_bytes()
                            for seed, file in ((3, 'a'), (3, 'b'), (4, 'c')))
    assert first == second != other
    assert len(first.splitlines()) == 90


def test_another_process_asks_the_same():
    "Hashes of strings differ from process to process; nothing may hang on them"
    code = ('from evolora.tasks import *\n'
            'print([t.prompt for t in draw_tasks(CELLS, stream="gate", n=80, seed=1)], task_hashes())')
    said = [subprocess.run([sys.executable, '-c', code], env={'PYTHONHASHSEED': h}, capture_output=True, text=True,
                           check=True).stdout for h in '12']
    assert said[0] == said[1] and 'regex' in said[0]


@every_family
def test_a_task_that_was_written_is_graded_alike(tmp_path, family):
    tasks = draw_tasks([Cell(family, d) for d in range(1, 5)], stream='selection', n=40, seed=5)
    back = read_tasks(write_tasks(tasks, tmp_path / 'x.jsonl'))
    assert back == tasks
    rng = np.random.default_rng(0)
    for t, b in zip(tasks, back):
        for reply in replies(t, rng): assert grade(t, reply) == grade(b, reply)


@pytest.mark.parametrize('line', ['{', '[]', '3', 'null', '{"family": "math"}',
                                  '{"family": "maths", "depth": 1, "difficulty": 0, "prompt": "", "answer": ""}',
                                  '{"family": "math", "depth": 5, "difficulty": 0, "prompt": "", "answer": ""}',
                                  '{"family": 1}', ''])
def test_a_line_that_is_no_task_is_named(tmp_path, line):
    good = write_tasks(draw_tasks(ID_CELLS, stream='train', n=1), tmp_path / 'good').read_text()
    (bad := tmp_path / 'bad').write_text(good + line + '\n')
    with pytest.raises(ValueError, match='line 2: expected a task') as error: read_tasks(bad)
    assert len(str(error.value).splitlines()) == 1
