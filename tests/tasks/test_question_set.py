"""A list of questions of a user's own is a family that an ecology lives on, and that cannot leak."""
import json
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from evolora.ecology.config import load_config
from evolora.ecology.ecology import Ecology
from evolora.host.model import load_host
from evolora.tasks import task_sets
from evolora.tasks.families import FAMILIES, Cell, family_hash, register_family
from evolora.tasks.question_set import QuestionSet, near_duplicates
from evolora.tasks.splits import stream_of
from evolora.tasks.task_sets import draw_tasks

ROWS = [{'question': f'Sort the letters: {w}', 'answer': ''.join(sorted(w))}
        for w in (a + b + c for a in 'qwertzuiop' for b in 'asdfgh' for c in 'yxcv')]


@pytest.fixture
def own():
    before = dict(FAMILIES.own)
    yield lambda *a, **k: register_family(QuestionSet(*a, **k))
    for name in set(FAMILIES.own) - set(before):
        del FAMILIES[name], FAMILIES.own[name]


def test_an_ecology_lives_on_a_list(own):
    own('letters', ROWS)
    config = load_config('debug').but(cells=['letters:1'])
    ecology = Ecology(load_host('embedded', threads=1), config)
    ecology.run(2, log=None)
    asked = {row['task'] for row in ecology.table('episodes').to_dict('records')}
    known = {t.prompt: stream_of(t) for t in FAMILIES['letters'].tasks}
    prompts = [row['prompt'] for row in ecology.table('tasks').to_dict('records')]
    assert asked and {known[p] for p in prompts} == {'train'}


def test_streams_never_share_a_question_or_a_near_duplicate():
    shouted = [row | {'question': row['question'].replace(':', ' ;').upper()} for row in ROWS[::3]]
    rows = ROWS + shouted
    family = QuestionSet('letters', rows)
    where = {}
    for task in family.tasks:
        if stream := stream_of(task): where.setdefault(task.prompt.replace(' ;', ':').casefold(), set()).add(stream)
    assert max(map(len, where.values())) == 1 and len(family.leaks()) == len(ROWS[::3])


def test_a_list_is_the_same_from_everywhere(tmp_path):
    (tmp_path / 'a.jsonl').write_text('\n'.join(map(json.dumps, ROWS)))
    pd.DataFrame(ROWS).to_csv(tmp_path / 'a.csv', index=False)
    sources = ROWS, tmp_path / 'a.jsonl', tmp_path / 'a.csv', pd.DataFrame(ROWS)
    one, *others = [QuestionSet('x', source).tasks for source in sources]
    assert all(tasks == one for tasks in others)


def test_its_fingerprint_follows_what_it_asks_and_how_it_grades(own):
    a = own('one_list', ROWS)
    first = FAMILIES.own['one_list']
    register_family(QuestionSet('one_list', ROWS[:-1], grade=lambda reply, task: reply == task.answer), replace=True)
    assert FAMILIES.own['one_list'] != first and a.questions == len(ROWS)


def test_a_function_that_grades_beyond_its_bounds_is_named():
    with pytest.raises(ValueError, match='expected 0 to 1, got 7'): QuestionSet('x', ROWS, grade=lambda reply, task: 7)


@given(st.lists(st.text('ab ,.', max_size=60), max_size=12))
@settings(max_examples=60, deadline=None)
def test_near_duplicates_are_groups(texts):
    groups = near_duplicates(texts)
    places = [i for group in groups for i in group]
    assert len(places) == len(set(places)) and all(len(group) > 1 for group in groups)
    assert all(0 <= i < len(texts) for i in places)
    same = {}
    for i, text in enumerate(texts): same.setdefault(text, []).append(i)
    for alike in same.values():     # equal texts stand together
        if len(alike) > 1: assert any(set(alike) <= set(group) for group in groups)


def test_many_questions_are_compared_in_time_that_grows_with_them():
    words = [f'word{i}' for i in range(500)]
    texts = [' '.join(words[(i * 7 + j * (1 + i % 11)) % 500] for j in range(30)) for i in range(3000)]
    texts.append(texts[17] + ' indeed')
    assert any({17, 3000} <= set(group) for group in near_duplicates(texts))


def test_a_run_on_a_list_goes_on_with_the_list(tmp_path):
    "As a user does it: a file of parts, a run, and its resume without the file is refused by name"
    (tmp_path / 'mine.jsonl').write_text('\n'.join(map(json.dumps, ROWS)))
    (tmp_path / 'mine.py').write_text(
        'from evolora.tasks.families import register_family\nfrom evolora.tasks.question_set import QuestionSet\n'
        "register_family(QuestionSet('letters', 'mine.jsonl'))\n")
    def evolora(*arguments):
        return subprocess.run([sys.executable, '-c', 'from evolora.cli.app import main; main()', *arguments],
                              cwd=tmp_path, capture_output=True, text=True)
    cells = 'cells=["letters:1"]'
    made = evolora('--parts', 'mine.py', 'run', '--preset', 'debug', '--set', cells, '--generations', '2',
                   '--out', 'a')
    assert made.returncode == 0, made.stderr
    assert evolora('--parts', 'mine.py', 'run', '--resume', 'a', '--generations', '3').returncode == 0
    alone = evolora('run', '--resume', 'a', '--generations', '4')
    assert alone.returncode == 2 and 'letters' in alone.stderr and len(alone.stderr.splitlines()) == 1


@pytest.mark.parametrize('value, said', [
    (1234567, '1234567'), (10**15, '1000000000000000'), (2.0, '2'), (.1234567, '0.1234567'), (-3, '-3'),
    (np.int64(7654321), '7654321')])
def test_a_number_keeps_all_of_its_digits(value, said):
    rows = [{'question': f'Which number is it, {i}?', 'answer': value} for i in range(60)]
    family = QuestionSet('numbers', rows, grade='numeric')
    assert {t.answer for t in family.tasks} == {said} and family.grade(family.tasks[0], said).success


@pytest.mark.parametrize('i', [0, 17, len(ROWS) - 1])
@pytest.mark.parametrize('field, value', [('answer', 'zzz'), ('question', 'Sort the letters: zzzz')])
def test_one_edited_row_makes_another_list(i, field, value):
    "A few draws would not show it, and a run would go on with other questions"
    edited = [dict(row) for row in ROWS]
    edited[i][field] = value
    assert family_hash(QuestionSet('letters', ROWS)) != family_hash(QuestionSet('letters', edited))
    assert family_hash(QuestionSet('letters', ROWS)) == family_hash(QuestionSet('letters', ROWS))


def test_depths_have_no_gap():
    with pytest.raises(ValueError, match='none of depth 2'):
        QuestionSet('gap', [row | {'depth': 1 + 2 * (i % 2)} for i, row in enumerate(ROWS)])


# --- tables

ASKED = [(f'In case {i}, how many legs has stool {chr(97 + i % 26)}{i}; and why?', str(i)) for i in range(80)]
TABLE = pd.DataFrame(ASKED, columns=['question', 'answer'])


@pytest.mark.parametrize('separator', [',', ';', '\t'])
@pytest.mark.parametrize('header', ['question,answer', 'Question,ANSWER', ' question , answer ',
                                    '\ufeffquestion,answer'])
@pytest.mark.parametrize('codec', ['utf-8', 'utf-16'])
def test_a_table_is_read_whatever_its_separator_header_and_codec(tmp_path, separator, header, codec):
    if codec == 'utf-16': header = header.removeprefix('\ufeff')     # this codec writes a mark by itself
    rows = TABLE.to_csv(index=False, header=False, sep=separator)
    (path := tmp_path / 'a.csv').write_bytes((header.replace(',', separator) + '\r\n' + rows).encode(codec))
    assert [(t.prompt, t.answer) for t in QuestionSet('x', path).tasks] == ASKED


@pytest.mark.parametrize('change, message', [
    (lambda q, a: f'{q},{a}', r'row 3: expected 2 fields separated by commas \(question, answer\), got 3; put'),
    (lambda q, a: f'"{q}",{a},', 'row 3: expected 2 fields separated by commas.*got 3.*none at the end of a line'),
    (lambda q, a: f'"{q}"', 'row 3: expected 2 fields separated by commas.*got 1'),
    (lambda q, a: f'"{q}" or so,{a}', 'line 4: expected fields separated by commas, got .*mend the quotation marks'),
    (lambda q, a: f'"{q},{a}', 'expected .*(fields|quotation marks)')])
def test_a_row_that_lost_a_part_is_named(tmp_path, change, message):
    rows = [f'"{q}",{a}' for q, a in ASKED]
    rows[2] = change(*ASKED[2])
    (path := tmp_path / 'a.csv').write_text('\n'.join(['question,answer', *rows]))
    with pytest.raises(ValueError, match=message) as error: QuestionSet('x', path)
    assert '\n' not in str(error.value)


@pytest.mark.parametrize('header, message', [
    ('question|answer', 'expected columns separated by commas, semicolons, tabs, got one column'),
    ('question,answer,', 'expected a name for each column'), ('answer,Answer', 'each once'),
    ('q,a', r"expected question and answer, got \['a', 'q'\]; rename")])
def test_a_header_that_will_not_do_is_named(tmp_path, header, message):
    (path := tmp_path / 'a.csv').write_text(header + '\n"Who?",I\n')
    with pytest.raises(ValueError, match=message): QuestionSet('x', path)


def test_a_file_in_another_codec_is_named(tmp_path):
    (path := tmp_path / 'a.csv').write_bytes('question,answer\nWie heißt er?,Jürgen\n'.encode('latin-1'))
    with pytest.raises(ValueError, match='a.csv: expected text in UTF-8, got the byte 0xdf at position 23; save it as'):
        QuestionSet('x', path)


@pytest.mark.parametrize('text', ['می‌خواهم', '👨‍👩‍👧‍👦', 'Donau\xaddampf', '\U0001fae9', '\u2068a\u2069'])
def test_a_row_with_joiners_or_new_signs_is_a_row(own, text):
    family = own('joined', [*ROWS, {'question': f'What is {text}?', 'answer': text}])
    task = family.tasks[-1]
    assert text in task.prompt and family.grade(task, text).success


@pytest.mark.parametrize('text', ['a\x1b[2J', 'a\x00b', 'a\ud800', 'a\u202eb'])
def test_a_row_that_steers_is_refused_with_its_number(text):
    for row in ({'question': text, 'answer': 'x'}, {'question': 'x', 'answer': text}):
        with pytest.raises(ValueError, match=f'row {len(ROWS) + 1}: expected 1 to'): QuestionSet('x', [*ROWS, row])


@pytest.mark.parametrize('name', ['question', 'answer', 'depth'])
def test_a_number_that_no_float_holds_is_refused(tmp_path, name):
    path = tmp_path / 'list.jsonl'
    path.write_text(json.dumps({'question': 'How many?', 'answer': '1', 'depth': 1} | {name: 10**400}))
    with pytest.raises(ValueError, match=f'line 1: expected .*{name}.*got 1000'): QuestionSet('large', path)


@pytest.mark.parametrize('written, answer', [
    ('9007199254740993.0', '9007199254740993'), ('1e23', '1' + 23 * '0'), ('0.1', '0.1'), ('4.10', '4.1'), ('3.0', '3'),
    ('0.1000000000000000055511151231257827', '0.1000000000000000055511151231257827'), ('1e-400', '1E-400')])
def test_a_number_keeps_the_digits_that_are_written(tmp_path, written, answer):
    path = tmp_path / 'list.jsonl'
    path.write_text(''.join(f'{{"question": "Question {i}?", "answer": {written}, "depth": 1.0}}\n' for i in range(60)))
    assert {task.answer for task in QuestionSet('digits', path).tasks} == {answer}


@pytest.mark.parametrize('depth', ['1.0000000000000000001', '"1.0000000000000000001"', '0.99999999999999999999',
                                   '1e400', '1e-99999999999999999999', '"sNaN"'])
def test_a_depth_is_exactly_a_whole_number(tmp_path, depth):
    path = tmp_path / 'list.jsonl'
    path.write_text(f'{{"question": "How many?", "answer": "1", "depth": {depth}}}')
    with pytest.raises(ValueError, match='line 1: expected a') as error: QuestionSet('deep', path)
    assert '\n' not in str(error.value)


def test_a_question_about_an_image_is_refused_unless_its_grader_reads_it():
    row = ROWS[0] | {'image': 'x.png'}
    with pytest.raises(ValueError, match='row 1: expected text alone, got a value in the column image'):
        QuestionSet('seen', [row, *ROWS[1:]])
    grade = lambda reply, task: float(reply == task.answer)
    grade.columns = 'image',
    assert QuestionSet('seen', [row | r for r in ROWS], grade).tasks[0].meta['image'] == 'x.png'
    assert QuestionSet('none', [r | {'image': None, 'tools': []} for r in ROWS]).questions == len(ROWS)


def test_a_cell_with_few_tasks_does_not_draw_for_hours(own, monkeypatch):
    monkeypatch.setattr(task_sets, '_IDLE', 300)
    own('few', ROWS)
    with pytest.raises(ValueError, match='few:1 has no 1000000 different train tasks .* ask for fewer'):
        draw_tasks([Cell('few', 1)], stream='train', n=10**6)


def test_a_pattern_with_half_of_a_character_is_refused():
    with pytest.raises(ValueError, match='row 1: expected a pattern of RE2, got') as error:
        QuestionSet('half', [row | {'pattern': '\ud800|.*'} for row in ROWS], 'regex')
    assert not isinstance(error.value, UnicodeError)


@pytest.mark.parametrize('names', [('Question', 'QUESTION'), ('question', ' Question ')])
def test_two_names_that_differ_only_in_case_are_refused(tmp_path, names):
    path = tmp_path / 'list.jsonl'
    path.write_text(json.dumps(dict.fromkeys(names, 'How many?') | {'answer': '1'}))
    with pytest.raises(ValueError, match='line 1: expected question once, got'): QuestionSet('twins', path)
