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

from evolora.tasks import regexes as patterns
from evolora.tasks.family import MAX_TEXT, Family, Grade, last_json, last_match, last_number, plain_line
from evolora.utils.randomness import stream as random_stream
from evolora.tasks.families import (CELLS, FAMILIES, ID_CELLS, NATURAL, OOD_CELLS, OOD_DEPTH, OOD_FAMILIES, Cell,
                                    cell_hashes, family_hash, grade)
from evolora.tasks.streams import STREAMS, stream_of
from evolora.tasks.task_sets import (chance, count_mode, draw_tasks, mode_share, read_tasks, sample_tasks, task_hashes,
                                     write_tasks)

EASY_CELLS = tuple(Cell(name, 0) for name, family in FAMILIES.items() if family.lowest == 0)
PLAIN_CELLS = tuple(Cell(family.name, depth) for family in NATURAL for depth in family.depths)
UNREADABLE = Grade(False, 0., False)
OPEN = 'regex.synthesis', 'text.write'      # many answers are right

every_cell = pytest.mark.parametrize('cell', CELLS + EASY_CELLS + PLAIN_CELLS, ids=str)
every_family = pytest.mark.parametrize('family', FAMILIES)
every_plain_cell = pytest.mark.parametrize('cell', PLAIN_CELLS, ids=str)


def distinct(cell):
    "Prompts that a cell must have at least; easy ones are few, small sums most of all"
    return 5000 if cell in CELLS else 1000 if cell in PLAIN_CELLS else 500


class Drawn(NamedTuple):
    answers: dict       # of each distinct prompt
    modes: Counter      # how often each answer came, repeated prompts included
    tasks: list         # the first few, difficulties from 0 to 1


@lru_cache(maxsize=None)
def drawn(cell):
    "Draws of a cell until enough prompts are distinct, or it is clear that they never will be"
    rng, family = random_stream(0, purpose=f'contract {cell}'), FAMILIES[cell.family]
    found = Drawn({}, Counter(), [])
    for i in range(4 * distinct(cell)):
        task = family.draw(rng, cell.depth, (0., .25, .5, .75, 1.)[i] if i < 5 else rng.random())
        found.answers[task.prompt] = task.answer
        found.modes[task.answer] += 1
        if i < 120: found.tasks.append(task)
        if len(found.answers) == distinct(cell): break
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
    assert len(found.answers) >= distinct(cell)
    answer, count = found.modes.most_common(1)[0]
    most = max(2 / len(found.modes), .05 if cell in CELLS else .2)      # a week has seven days
    assert count / found.modes.total() <= most, f'{answer!r} {count} times'


@every_cell
def test_answers_and_prompts_are_one_short_line(cell):
    family = FAMILIES[cell.family]
    for prompt, answer in drawn(cell).answers.items():
        assert 0 < len(answer) <= family.longest and answer == answer.strip()
        assert prompt == ' '.join(prompt.split()) and prompt.isascii() and answer.isascii()


@every_family
def test_depth_changes_what_is_asked(family):
    ask = lambda depth, seed: FAMILIES[family].draw(np.random.default_rng(seed), depth, .5).prompt
    for shallow, deep in combinations(FAMILIES[family].depths, 2):
        assert sum(ask(shallow, seed) != ask(deep, seed) for seed in range(20)) >= 19


@every_cell
def test_difficulty_changes_what_is_asked(cell):
    ask = lambda difficulty, seed: FAMILIES[cell.family].draw(np.random.default_rng(seed), cell.depth,
                                                              difficulty).prompt
    assert any(ask(0., seed) != ask(1., seed) for seed in range(20))


@every_cell
def test_the_same_random_stream_asks_the_same(cell):
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
            if cell.family == 'text.write': continue        # where a sentence is wanted, talking is answering
            # A sentence happens to be a regular expression; it separates nothing.
            assert graded == (Grade(True, 0., False) if graded.parsed and cell.family == 'regex.synthesis'
                              else UNREADABLE), reply


@every_cell
def test_the_answer_to_another_question_is_wrong(cell):
    tasks = drawn(cell).tasks
    for task, other in zip(tasks, tasks[1:]):
        graded = grade(task, other.answer)
        assert 0 <= graded.progress <= 1 and graded.success == (graded.progress == 1.)
        if cell.family not in OPEN: assert graded.parsed and graded.success == (task.answer == other.answer)


@pytest.mark.parametrize('digits', ['٠١٢٣٤٥٦٧٨٩', '０１２３４５６７８９', '߀߁߂߃߄߅߆߇߈߉'])
@pytest.mark.parametrize('family', ['math', 'math.sequence', 'math.multi_step', 'word.count', 'json_repair', 'date.iso',
                                    'time.minutes', 'unit.convert', 'fact.total', 'text.fields'])
def test_digits_are_ascii(family, digits):
    task = one_task(family)
    foreign = task.answer.translate(str.maketrans('0123456789', digits))
    assert foreign != task.answer and grade(task, foreign) == UNREADABLE


# --- the answer in a longer reply

@every_family
def test_a_family_states_how_its_answer_looks_and_where_it_is(family):
    f = FAMILIES[family]
    assert f.instruction != Family.instruction and f.extraction != Family.extraction, 'every family states its own'
    assert f.instruction[0].isupper() and f.instruction.endswith('.') and f.extraction.startswith('the last')


@every_cell
def test_extraction_finds_what_a_chat_model_answers(cell):
    "On a line of its own, fenced, emphasised, or in a sentence where the family's rule allows for one"
    lines = 'the last line' in FAMILIES[cell.family].extraction
    for task in drawn(cell).tasks[:40]:
        for reply in (task.answer, f'Sure! Here you are:\n\n{task.answer}', f'```\n{task.answer}\n```',
                      f'Answer: {task.answer}', f'**{task.answer}**', f'`{task.answer}`',
                      *([] if lines else [f'I think it is {task.answer}.', f'The result:\n{task.answer}\n\n!'])):
            assert grade(task, reply, extract=True) == Grade(True, 1., True), (task.prompt, reply)


@every_cell
def test_extraction_never_makes_a_wrong_answer_right(cell):
    rng = random_stream(0, purpose=f'wrong {cell}')
    for task in drawn(cell).tasks[:40]:
        slip = FAMILIES[cell.family].slip(task, rng)
        for reply in (slip, f'```\n{slip}\n```', f'{task.answer}\nNo, sorry:\n{slip}', '', '?!\n...'):
            assert not grade(task, reply, extract=True).success, (task.prompt, reply)


@pytest.mark.parametrize('text, number', [
    ('10 - 3 = 7', '7'), ('10-3', '3'), ('it is -3', '-3'), ('1,234,567 people', '1234567'), ('1,23', '23'),
    ('3.50', '3.50'), ('2:05', '2:05'), ('none', ''), ('12 and \u0663', '12'), ('9' * 3000, '')])
def test_the_last_number(text, number): assert last_number(text) == number


@pytest.mark.parametrize('text, found', [
    ('{"a":1} and {"b":{"c":2}}.', '{"b":{"c":2}}'), ('{"a":1} {', '{"a":1}'), ('{{"a":1}}', '{"a":1}'),
    ('{"a":"}"}', '{"a":"}"}'), ("{'a':1}", ''), ('[1]', ''), ('', '')])
def test_the_last_json_object(text, found): assert last_json(text) == found


@pytest.mark.parametrize('text, line', [
    ('"moon".', 'moon'), ('**`a = b`**', 'a = b'), ('```python\na = b\n```\n', 'a = b'), ('answer: x', 'x'),
    ('"', '"'), ('``', '``'), ("it's", "it's"), ('', ''), ('```', '')])
def test_the_plain_line(text, line): assert plain_line(text) == line


@pytest.mark.parametrize('piece', ['{', '{"a":', '[{"a":', '{"a":[', '9', '9,', '9,999', '9 ', '-', 'a', 'a, ', 'a-',
                                   'T', 'TFTF', '"', '`', '```\n', '\n', 'answer:', '\\', '1:', '2000-01-', 'K, '])
@pytest.mark.parametrize('n', [MAX_TEXT, MAX_TEXT + 1, 50 * MAX_TEXT])
def test_extraction_reads_any_text_once(piece, n):
    "With a rule that looked back far, a text like this would take hours; beyond its length nothing is looked for"
    text = (piece * (n // len(piece) + 1))[:n]
    for rule in (last_number, last_json, plain_line, lambda t: last_match('[0-9]+(?: [0-9]+)*', t)):
        found = rule(text)
        assert len(found) <= 2000 and (n <= MAX_TEXT or found == '')
    for family in FAMILIES: assert not grade(one_task(family), text, extract=True).success


# --- other conventions

@every_plain_cell
def test_under_a_habit_another_answer_is_right(cell):
    "In the changed world the habit's answer is right in both readings, the usual one is wrong, and the other way round"
    family = FAMILIES[cell.family]
    assert len(set(family.habits)) == len(family.habits) >= 2
    for name in family.habits:
        apart = []
        for task in drawn(cell).tasks[:60]:
            changed, reply = family.with_habit(task, name), family.habit(task, name)
            assert (changed.prompt, changed.id, changed.family) == (task.prompt, task.id, task.family)
            assert 0 < len(reply) <= family.longest + 2 and grade(task, reply).parsed
            for extract in (False, True): assert grade(changed, reply, extract) == Grade(True, 1., True), (name, reply)
            apart.append(not grade(task, reply).success and not grade(changed, task.answer).success)
        assert np.mean(apart) > .75, name


@every_plain_cell
def test_a_list_pays_for_every_part_that_is_right(cell):
    for task in drawn(cell).tasks[:40]:
        parts = task.answer.split(', ')
        if task.answer.startswith('{') or len(parts) < 2: continue
        half = ', '.join([*parts[:-1], 'x' if cell.family == 'text.code' else 'thing'])
        assert 0 < grade(task, half).progress < 1 and grade(task, parts[0]).progress == 0


def test_a_habit_that_a_family_lacks_is_refused_in_one_line():
    for family, known in (('date.iso', 'dmy, mdy'), ('math', 'it has none'), ('text.write', 'upper, lower')):
        with pytest.raises(ValueError, match=known) as error: FAMILIES[family].with_habit(one_task(family), 'x' * 999)
        assert len(str(error.value)) < 200


def test_the_judge_of_sentences_counts_conditions():
    task = one_task('text.write', depth=3)
    first, second = task.meta['first'], task.meta['second']
    worth = lambda reply: grade(task, reply).progress
    one_fault, two_faults = task.answer.replace('The', 'The very', 1), f'The {second} of {first}'
    assert worth(task.answer) == 1 > worth(one_fault) > worth(two_faults) > 0
    assert worth('Such a thing never was') == 0, 'without the wanted words nothing has begun'
    assert grade(task, f'{first} {first} {second}') == UNREADABLE, 'a word twice in a row'
    assert grade(task, f'{first} ' * 60 + second) == UNREADABLE


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
    graded, holds = grade(task, rude(task)[name], extract=True), task.answer in rude(task)[name]
    assert isinstance(graded, Grade) and 0 <= graded.progress <= 1 and (holds or not graded.success)


@settings(max_examples=150, deadline=None)
@given(text=st.one_of(st.text(max_size=80), st.text('0123456789 -+TFyn{}[]":,abc()|*?.\\\n', max_size=60)),
       seed=st.integers(0, 3))
def test_any_text_is_graded(text, seed):
    for family in FAMILIES:
        for extract in (False, True):
            graded = grade(one_task(family, depth=1 + seed, seed=seed), text, extract)
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
    code = f'from evolora.tasks.regexes import matches\nfor bomb in {BOMBS!r}: print(matches(bomb, "a" * 200))'
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
    assert len(CELLS) == len(set(CELLS)) == 4 * len(FAMILIES.library) == 40
    assert set(ID_CELLS) | set(OOD_CELLS) == set(CELLS) and not set(ID_CELLS) & set(OOD_CELLS)
    assert {c.family for c in ID_CELLS}.isdisjoint(OOD_FAMILIES) and OOD_DEPTH not in {c.depth for c in ID_CELLS}
    assert {c.family for c in ID_CELLS} == set(FAMILIES.library) - set(OOD_FAMILIES)
    assert all(Cell.parse(str(c)) == c for c in CELLS + EASY_CELLS + PLAIN_CELLS)


def test_the_default_world_is_what_it_was():
    "Results of the embedded host say these; easier depths and families in plain words leave them alone"
    assert task_hashes() == {'streams': '79eff44281fa29a6', 'grader': 'd2911b1a7e228625'}
    assert {c.family for c in CELLS} == {c.family for c in EASY_CELLS} == set(FAMILIES.library)
    assert not {f.name for f in NATURAL} & set(FAMILIES.library)


@pytest.mark.parametrize('text, message', [
    ('math:5', 'a depth from 0 to 4'), ('math:-1', 'a depth from 0 to 4'), ('math:00', 'a depth from 0 to 4'),
    ('math', 'a depth from 0 to 4'), ('date.iso:0', 'a depth from 1 to 4'), ('maths:0', 'expected a task family')])
def test_a_depth_that_a_family_lacks_is_refused_in_one_line(text, message):
    with pytest.raises(ValueError, match=message) as error: Cell.parse(text)
    assert len(str(error.value).splitlines()) == 1


def test_hashes_follow_the_cells_that_are_played():
    assert cell_hashes(CELLS) == {}
    played = [Cell('math', 0), Cell('math', 1), Cell('string.sort', 2), Cell('date.iso', 1), Cell('date.iso', 2)]
    assert cell_hashes(played) == {f'task family {name}': family_hash(FAMILIES[name]) for name in ('date.iso', 'math')}
    marks = cell_hashes(EASY_CELLS + PLAIN_CELLS)
    assert len(set(marks.values())) == len(marks) == len(FAMILIES)


def test_another_extraction_is_another_family():
    class Twin(type(FAMILIES['date.iso'])):
        def extract(self, text): return Family.extract(self, text)
    assert family_hash(Twin()) != family_hash(FAMILIES['date.iso'])


@pytest.mark.parametrize('cell', [Cell('math', 0), Cell('word.after', 2), Cell('date.weekday', 1)], ids=str)
def test_modes_that_are_not_stored_are_counted(cell):
    assert mode_share(cell) == count_mode(cell) and mode_share(cell) <= chance(cell) < .5


@pytest.mark.parametrize('family', sorted(set(FAMILIES) - set(OOD_FAMILIES)))
def test_the_deepest_questions_are_asked_nowhere_else(family):
    "Or training at a shallower depth would be training out of distribution"
    deepest = drawn(Cell(family, OOD_DEPTH)).answers.keys()
    for depth in range(FAMILIES[family].lowest, OOD_DEPTH):
        assert deepest.isdisjoint(drawn(Cell(family, depth)).answers)


@pytest.mark.parametrize('family', sorted(set(FAMILIES) - set(OPEN)))
def test_one_question_has_one_answer_at_any_depth(family):
    answers = {}
    for depth in FAMILIES[family].depths:
        for prompt, answer in drawn(Cell(family, depth)).answers.items():
            assert answers.setdefault(prompt, answer) == answer, prompt


@every_family
def test_streams_are_disjoint_whatever_the_depth(family):
    where = {}
    for depth in FAMILIES[family].depths:
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
        assert abs(found[name] / found.total() - share / 100) < 5 * (.7 * .3 / found.total())**.5, found


# --- files

@pytest.mark.parametrize('name', STREAMS)
def test_the_same_seed_writes_the_same_bytes(tmp_path, name):
    first, second, other = (write_tasks(draw_tasks(CELLS, stream=name, n=90, seed=seed), tmp_path / file).read_bytes()
                            for seed, file in ((3, 'a'), (3, 'b'), (4, 'c')))
    assert first == second != other
    assert len(first.splitlines()) == 90


def test_another_process_asks_the_same():
    "Hashes of strings differ from process to process; nothing may hang on them"
    code = ('from evolora.tasks.streams import *\n'
            'print([t.prompt for t in draw_tasks(CELLS, stream="gate", n=80, seed=1)], task_hashes())')
    printed = [subprocess.run([sys.executable, '-c', code], env={'PYTHONHASHSEED': h}, capture_output=True, text=True,
                              check=True).stdout for h in '12']
    assert printed[0] == printed[1] and 'regex' in printed[0]


@every_family
def test_a_task_that_was_written_is_graded_alike(tmp_path, family):
    tasks = draw_tasks([Cell(family, d) for d in FAMILIES[family].depths], stream='selection', n=40, seed=5)
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
