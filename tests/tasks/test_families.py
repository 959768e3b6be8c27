"""One contract for every cell: what a question is, and what a reply is worth, whatever the reply."""
import json
import re
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from evolora.tasks.family import MAX_TEXT, Family, Grade, last_json, last_match, last_number, plain_line
from evolora.tasks.families import FAMILIES, OOD_DEPTH, OOD_FAMILIES, Cell, family_hash, grade
from evolora.utils.randomness import stream as random_stream
from tasks.contract import (OPEN, common, distinct, drawn, every, every_cell, every_family, every_plain_cell, expected,
                            one_task)

UNREADABLE = Grade(False, 0., False)


# --- what is asked

@every_cell
def test_draws_of_a_cell_repeat_no_more_than_if_it_had_thousands_of_prompts(cell):
    found = drawn(cell)
    assert len(found.answers) >= expected(cell)
    answer, share, most = common(found, cell)
    assert share <= most, f'{answer!r} {share:.0%}'


@pytest.mark.slow
@every_cell
def test_a_cell_has_thousands_of_prompts_and_no_common_answer(cell):
    found = drawn(cell, whole=True)
    assert len(found.answers) >= distinct(cell)
    answer, share, most = common(found, cell)
    assert share <= most, f'{answer!r} {share:.0%}'


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


NUMBERS = {     # of a cell: how many a question has, and the least and the most at difficulty 0 and at 1
    'math:0': (2, (1, 9), (1, 19)), 'math:1': (2, (10, 60), (10, 99)), 'math:3': (2, (100, 500), (100, 999)),
    'word.count:0': (2, (1, 3), (1, 4)), 'word.count:1': (2, (1, 5), (1, 6)), 'word.count:2': (3, (1, 4), (1, 5)),
    'word.count:3': (3, (1, 7), (1, 8)), 'word.count:4': (4, (1, 7), (1, 8)), 'date.weekday:1': (1, (1, 2), (1, 2)),
    'date.weekday:2': (1, (3, 4), (3, 6)), 'date.weekday:3': (1, (2, 3), (2, 6)),
    'date.weekday:4': (1, (8, 11), (8, 20)), 'time.minutes:1': (1, (2, 6), (2, 12)),
    'time.minutes:2': (2, (2, 50), (2, 50)), 'time.minutes:3': (2, (1, 59), (1, 59)),
    'unit.convert:1': (1, (2, 9), (2, 20)), 'fact.most:1': (3, (2, 30), (2, 12)),
    'fact.most:2': (3, (20, 99), (500, 700)), 'fact.most:3': (4, (20, 99), (500, 700)),
    'fact.order:1': (3, (1, 90), (1, 40)), 'fact.order:2': (4, (1, 90), (1, 40)),
    'fact.order:3': (4, (100, 999), (100, 300))}


@every(NUMBERS)
def test_numbers_are_as_many_and_as_large_as_the_depth_and_the_difficulty_say(name):
    cell, (count, *ends) = Cell.parse(name), NUMBERS[name]
    family, rng = FAMILIES[cell.family], random_stream(0, purpose=f'numbers {name}')
    for difficulty, (low, high) in enumerate(ends):
        asked = [family.draw(rng, cell.depth, difficulty) for _ in range(400)]
        found = [re.findall('[0-9]+', task.prompt) or task.answer.split() for task in asked]
        assert {len(numbers) for numbers in found} == {count}
        least, most = (end(int(n) for numbers in found for n in numbers) for end in (min, max))
        few = (high - low) // 100       # of many numbers the last may not be among those that were drawn
        assert low <= least <= low + few and high - few <= most <= high, (difficulty, least, most)


@every_cell
def test_the_same_random_stream_asks_the_same(cell):
    family = FAMILIES[cell.family]
    twice = [family.draw(np.random.default_rng(7), cell.depth, .3) for _ in range(2)]
    assert twice[0] == twice[1]
    assert (twice[0].family, twice[0].depth, twice[0].difficulty) == (*cell, .3)


@every(sorted(set(FAMILIES) - set(OOD_FAMILIES)))
def test_the_deepest_questions_are_asked_nowhere_else(family):
    "Or training at a shallower depth would be training out of distribution"
    deepest = drawn(Cell(family, OOD_DEPTH)).answers.keys()
    for depth in range(FAMILIES[family].lowest, OOD_DEPTH):
        assert deepest.isdisjoint(drawn(Cell(family, depth)).answers)


@every(sorted(set(FAMILIES) - set(OPEN)))
def test_one_question_has_one_answer_at_any_depth(family):
    answers = {}
    for depth in FAMILIES[family].depths:
        for prompt, answer in drawn(Cell(family, depth)).answers.items():
            assert answers.setdefault(prompt, answer) == answer, prompt


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


@every(['math', 'math.sequence', 'math.multi_step', 'word.count', 'json_repair', 'date.iso', 'time.minutes',
        'unit.convert', 'fact.total', 'text.fields'])
def test_digits_are_ascii(family):
    task = one_task(family)
    for digits in ('٠١٢٣٤٥٦٧٨٩', '０１２３４５６７８９', '߀߁߂߃߄߅߆߇߈߉'):
        foreign = task.answer.translate(str.maketrans('0123456789', digits))
        assert foreign != task.answer and grade(task, foreign) == UNREADABLE, digits


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
    ('10 - 3 = 7', '7'), ('10-3', '3'), ('it is -3', '-3'), ('1,234,567 people', '1234567'), ('1,23', '1.23'),
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


PIECES = ('{', '{"a":', '[{"a":', '{"a":[', '9', '9,', '9,999', '9 ', '-', 'a', 'a, ', 'a-', 'T', 'TFTF', '"', '`',
          '```\n', '\n', 'answer:', '\\', '1:', '2000-01-', 'K, ')


@every(PIECES)
def test_extraction_reads_any_text_once(piece):
    "With a rule that looked back far, a text like this would take hours; beyond its length nothing is looked for"
    for n in (MAX_TEXT, MAX_TEXT + 1, 50 * MAX_TEXT):
        text = (piece * (n // len(piece) + 1))[:n]
        for rule in (last_number, last_json, plain_line, lambda t: last_match('[0-9]+(?: [0-9]+)*', t)):
            found = rule(text)
            assert len(found) <= 2000 and (n <= MAX_TEXT or found == ''), n
        for family in FAMILIES: assert not grade(one_task(family), text, extract=True).success, (family, n)


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


_SYMBOLIC = [Cell(f, d) for f in ('math.sequence', 'string.sort', 'word.count', 'logic.bool', 'json_repair',
                                  'code.format', 'regex.recognition') for d in FAMILIES[f].depths]


@pytest.mark.parametrize('cell', _SYMBOLIC, ids=str)
def test_symbols_have_four_conventions_that_exclude_each_other(cell):
    "Of two conventions at most one is right on nearly all tasks, in both readings, and the right one is wholly right"
    family, apart = FAMILIES[cell.family], []
    for task in drawn(cell).tasks[:60]:
        worlds = [task, *(family.with_habit(task, name) for name in family.habits)]
        assert len(worlds) == 4 and all(len(t.answer) <= family.longest for t in worlds)
        for extract in (False, True):
            right = [[grade(t, other.answer, extract).success for other in worlds] for t in worlds]
            assert all(right[i][i] for i in range(4))
        assert all(grade(t, t.answer) == grade(t, f'Well.\n{t.answer}', True) == Grade(True, 1., True) for t in worlds)
        apart.append(np.sum(right) == 4)
    assert np.mean(apart) > (.4 if cell.depth == 0 else .8), cell


@pytest.mark.parametrize('text,answer,says', [
    ('it is +-+- then', '----', '+-+-'), ('a+-+-', '++++', ''), ('x: 10-01', '+-+-', ''),
    ('TFTF, so 1010', 'TTTT', 'TFTF'),
    ('TFTF, so 1010', '1010', '1010'), ('ynny', 'TTTT', ''), ('-TFTF', 'TFFF', 'TFTF')])
def test_marks_are_read_as_the_task_wants_them(text, answer, says):
    task = replace(one_task('logic.bool'), answer=answer)
    assert FAMILIES['logic.bool'].extract_for(text, task) == says
    assert FAMILIES['logic.bool'].read('TFTF', task) == ('TFTF' if {*answer} <= {*'TF'} else None)


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

RUDE = {        # by name, what a model may write and no grader may stumble over, given a key and the answer
    'nothing but brackets': lambda key, answer: '[' * 100_000,
    'objects in objects': lambda key, answer: '{"a":' * 100_000,
    'megabytes of letters': lambda key, answer: 'a' * 3_000_000,
    'megabytes of lines': lambda key, answer: '\n' * 1_000_000,
    'a long way to the answer': lambda key, answer: ' ' * 3_000_000 + 'x',
    'answers to answers': lambda key, answer: 'answer:' * 300_000,
    'nulls': lambda key, answer: '\0' * 50, 'half a character': lambda key, answer: '\ud800',
    'a huge number': lambda key, answer: '9' * 1999, 'a number of minus signs': lambda key, answer: '-' * 1999,
    'infinity': lambda key, answer: '1e999', 'json infinity': lambda key, answer: '{"%s":Infinity}' % key,
    'json not a number': lambda key, answer: '{"%s":NaN}' % key,
    'json huge': lambda key, answer: '{"%s":%s}' % (key, '7' * 1900),
    'json twice': lambda key, answer: '{"%s":1,"%s":[]}' % (key, key),
    'a byte order mark': lambda key, answer: f'\ufeff{answer}', 'backwards': lambda key, answer: f'\u202e{answer}',
    'a superscript': lambda key, answer: f'{answer}²', 'emoji': lambda key, answer: '🧬' * 700,
    'combining': lambda key, answer: 'e' + '\u0301' * 1900,
    'separators': lambda key, answer: '1\x1c2\x1d3\x1e4\x852\u20282\u20293',
    'percent': lambda key, answer: '%s%d%n', 'braces': lambda key, answer: '{0}{task.answer}',
    'code': lambda key, answer: '__import__("os")._exit(1)'}


@every(RUDE)
def test_rude_replies_are_graded_and_wrong_in_every_family(name):
    for family in FAMILIES:
        task = one_task(family)
        reply = RUDE[name](next(iter(task.meta.get('whole', {'a': 0}))), task.answer)
        graded = grade(task, reply)
        assert isinstance(graded, Grade) and 0 <= graded.progress < 1 and not graded.success, family
        graded, holds = grade(task, reply, extract=True), task.answer in reply
        assert isinstance(graded, Grade) and 0 <= graded.progress <= 1 and (holds or not graded.success), family


@settings(max_examples=80, deadline=None)
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


@pytest.mark.parametrize('family, wrong', [
    ('math', ('0{}', '00{}', '+{}', '-{}', '{}.0', '{}.', '{}e0', '0x{}', '1_{}')),
    ('math.sequence', ('0{}', '+{}', '{}.0')), ('math.multi_step', ('0{}', '+{}', '{}.0')),
    ('word.count', ('0{}', '+{}', '-{}', '{}  1')), ('fact.total', ('0{}', '+{}', '{}.0')),
    ('unit.convert', ('0{}', '+{}', '{}.0')), ('time.minutes', ('0{}', '+{}', '{}.0')), ('date.iso', ('0{}', '+{}'))])
def test_an_answer_has_one_form(family, wrong):
    "A zero in front or a sign is another text: whoever grades leniently pays for it"
    for depth in (1, 2, 3):
        task = one_task(family, depth)
        assert grade(task, task.answer).success
        for form in wrong: assert not grade(task, form.format(task.answer)).success, form.format(task.answer)


def test_minus_zero_is_no_number():
    task = replace(one_task('math', 2), answer='0')
    assert [grade(task, reply).success for reply in ('0', '-0', '00', '+0')] == [True, False, False, False]


@pytest.mark.parametrize('family', ['json_repair', 'text.fields'])
def test_an_object_has_each_key_once(family):
    for depth in (1, 2, 3):
        task = one_task(family, depth)
        inside, key = task.answer[1:-1], json.loads(task.answer)
        first = json.dumps({next(iter(key)): 'x'})[1:-1]
        assert grade(task, task.answer).success
        for reply in (f'{{{inside},{inside}}}', f'{{{first},{inside}}}', f'{{{inside},{first}}}'):
            assert grade(task, reply) == Grade(False, 0., False), reply


def test_zero_in_an_object_has_no_sign():
    task = one_task('json_repair')
    task = replace(task, answer='{"a":0}', meta={'whole': {'a': 0}})
    assert [grade(task, reply).success for reply in ('{"a":0}', '{"a":-0}', '{"a":0.0}', '{"a":false}')] == [
        True, False, False, False]


def _integer(self, line, task):
    try: return int(line)
    except ValueError: return None

def _object(self, line, task):
    try: value = json.loads(line)
    except ValueError: return None
    return value if isinstance(value, dict) else None

@pytest.mark.parametrize('family, lenient', [
    ('math', _integer), ('json_repair', _object), ('date.iso', lambda self, line, task: line.strip('"') or None),
    ('string.sort', lambda self, line, task: line.lower() or None)])
def test_a_more_lenient_reader_is_another_grader(family, lenient):
    "What replies are in a fingerprint decides what it notices"
    assert family_hash(type('Other', (type(FAMILIES[family]),), {'read': lenient})()) != family_hash(FAMILIES[family])
