"""Data of strangers become examples, or one line that names the row."""
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from evolora.host.model import load_host
from evolora.tasks.forms import System
from evolora.tasks.question_set import QuestionSet
from evolora.training.examples import Example, check_apart, encode_examples, read_examples, split_examples
from evolora.training.jobs import Job, expand_jobs, read_jobs
from evolora.utils.files import read_file

texts = st.text(max_size=12) | st.none() | st.integers() | st.lists(st.text(max_size=4), max_size=2)
message = st.fixed_dictionaries({}, optional=dict(role=st.sampled_from(['system', 'user', 'assistant', 'tool']) | texts,
                                                  content=texts))
chats = texts | st.lists(message, max_size=4)
rows = st.fixed_dictionaries({}, optional=dict(prompt=chats, completion=texts, chosen=texts, rejected=texts,
                                               messages=chats))


@settings(max_examples=300, deadline=None)
@given(st.lists(rows | texts, max_size=3))
def test_any_rows_are_examples_or_one_line(data):
    try: found = read_examples(data)
    except ValueError as e:
        assert '\n' not in str(e) and ('row' in str(e) or 'at least one example' in str(e) or 'data expected' in str(e))
        return
    assert all(isinstance(e, Example) and e.prompt for e in found)


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=60))
def test_any_bytes_are_lines_or_one_line(tmp_path_factory, data):
    path = tmp_path_factory.mktemp('data') / 'a.jsonl'
    path.write_bytes(data)
    try: read_examples(path)
    except ValueError as e: assert '\n' not in str(e) and str(path) in str(e)


@settings(max_examples=200, deadline=None)
@given(st.dictionaries(st.sampled_from(sorted(Job.model_fields)), texts | st.floats() | st.booleans(), max_size=6))
def test_any_settings_are_jobs_or_one_line(given):
    try: assert expand_jobs(data='a.jsonl', **{k: v for k, v in given.items() if k != 'data'})
    except ValueError as e: assert '\n' not in str(e)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=80))
def test_any_text_is_a_file_of_jobs_or_one_line(tmp_path_factory, text):
    path = tmp_path_factory.mktemp('jobs') / 'jobs.yaml'
    path.write_text(text, encoding='utf-8', newline='')
    try: read_jobs(path)
    except ValueError as e: assert '\n' not in str(e) and str(path) in str(e)


def test_a_conversation_is_read_with_what_stands_in_front():
    host = load_host('embedded', device='cpu')
    said = [dict(role='system', content='Be brief.'), dict(role='user', content='Hi'),
            dict(role='assistant', content='Yes?'), dict(role='user', content='2 + 2?'),
            dict(role='assistant', content='4')]
    first, second = read_examples([dict(messages=said)])
    assert isinstance(second.prompt[0], System) and second.completion == '4' and len(second.prompt) == 4
    ids = encode_examples(host, [second])
    assert host.tokenizer.decode(ids.prompts[0] + ids.replies[0]) == (
        '<|user|>Be brief.<|user|>Hi<|assistant|>Yes?<|end|><|user|>2 + 2?<|assistant|>4<|end|>')


@pytest.mark.parametrize('share', [.01, .3, .99])
def test_a_split_shares_no_prompt(share):
    data = [Example(f'{i % 20}?', str(i)) for i in range(60)]
    train, held = split_examples(data, share)
    check_apart(train, held)
    assert train and held and len(train) + len(held) == 60 and split_examples(data, share) == (train, held)


def test_a_path_is_looked_for_beside_its_file(tmp_path):
    (tmp_path / 'jobs.yaml').write_text(json.dumps(dict(data='a.jsonl', validation=['math:1'])))
    job, = read_jobs(tmp_path / 'jobs.yaml').jobs
    assert job.data == str(tmp_path / 'a.jsonl') and job.validation == ['math:1']


USER, GOOD, BAD = (dict(role=role, content=text) for role, text in (
    ('user', '2 + 2?'), ('assistant', '4'), ('assistant', '5')))
PARTS = lambda text: [dict(type='text', text=text[:1]), dict(type='text', text=text[1:])]


@pytest.mark.parametrize('row', [
    dict(prompt='2 + 2?', chosen='4', rejected='5'), dict(chosen=[USER, GOOD], rejected=[USER, BAD]),
    dict(prompt='2 + 2?', chosen=[USER, GOOD], rejected=[USER, BAD]),
    dict(prompt=[USER], chosen=[USER, GOOD], rejected=[USER, BAD]), dict(prompt=[USER], chosen=[GOOD], rejected=[BAD]),
    dict(chosen=np.array([USER, GOOD]), rejected=np.array([USER, BAD])),
    dict(chosen=[USER | dict(content=PARTS('2 + 2?')), GOOD | dict(content=PARTS('4'), tool_calls=None)],
         rejected=[USER, BAD])])
def test_pairs_are_read_as_trl_writes_them(row):
    assert [(e.prompt, e.completion, e.rejected) for e in read_examples([row])] == [('2 + 2?', '4', '5')]


def test_a_conversation_of_parts_is_one_of_texts():
    parts = [m | dict(content=PARTS(m['content'])) for m in (USER, GOOD)]
    for messages in ([USER, GOOD], parts, np.array([USER, GOOD])):
        assert read_examples([dict(messages=messages)])[0] == Example('2 + 2?', '4')
    said = [dict(role='developer', content='Hi'), USER, GOOD]
    assert read_examples([dict(messages=said)])[0].prompt[0] == System('Hi')


CALL = dict(role='assistant', content='', tool_calls=[dict(function=dict(name='add', arguments='{}'))])


@pytest.mark.parametrize('row, message', [
    (dict(messages=[USER, CALL]), 'got a tool call, which is not read; leave the row out'),
    (dict(messages=[USER, dict(role='tool', content='4')]), 'got a tool call'),
    (dict(chosen=[USER, CALL], rejected=[USER, BAD]), 'got a tool call'),
    (dict(messages=[USER, GOOD], tools=[dict(name='add')]), 'a value in the column tools, which is not read'),
    (dict(messages=[USER, GOOD], tools=dict(name='add')), 'column tools'),
    (dict(prompt='2 + 2?', completion='4', images=np.array(['x.png'])), 'column images'),
    (dict(prompt='2 + 2?', chosen='4', rejected='5', image=object()), 'column image, .* leave the row out'),
    *((dict(prompt='2 + 2?', completion='5', label=label), 'expected true or false as label .*, got .*rename the col')
      for label in (0, 1, 0., np.int64(0), 'false', 'True')),
    (dict(prompt='2 + 2?', completion='5', label=np.bool_(False)), 'label is false'),
    (dict(messages=[USER | dict(content=[dict(type='image', url='x')]), GOOD]), "a part of the type 'image'"),
    (dict(prompt='2 + 2?', completion='5', label=False), 'label is false'),
    (dict(prompt='2 + 2?', completion=[USER, GOOD]), 'completion expected one message, got 2'),
    (dict(chosen='4', rejected='5'), 'conversations that begin alike, or a prompt'),
    (dict(chosen=[USER, GOOD], rejected=[USER | dict(content='3?'), BAD]), 'the same but for the last message'),
    (dict(prompt='9?', chosen=[USER, GOOD], rejected=[USER, BAD]), 'expected the prompt that chosen and'),
    (dict(chosen=[USER, GOOD]), 'add the other')])
def test_what_a_row_means_otherwise_is_refused_with_advice_that_fits(row, message):
    with pytest.raises(ValueError, match=f'^row 1: .*{message}') as error: read_examples([row])
    assert '\n' not in str(error.value)


@pytest.mark.parametrize('row', [dict(tools=[], images=None), dict(tools='', image=np.array([])), dict(images=np.nan),
                                 dict(videos=pd.NA, audio={}), dict(label=True), dict(label=None), dict(label='joy')])
def test_a_column_that_says_nothing_is_ignored(row):
    assert read_examples([row | dict(prompt='2 + 2?', completion='4')]) == [Example('2 + 2?', '4')]


@pytest.mark.parametrize('name', ['a\0b', 'a\ud800b'])
def test_a_path_that_no_file_can_have_is_named(name):
    for read in (read_examples, lambda name: read_examples(Path(name)), read_file):
        with pytest.raises(ValueError, match='path of a file, got one with a NUL or half') as error: read(name)
        assert str(error.value).isprintable()


@pytest.mark.parametrize('key', ['1', '1.5', 'true', '~', '2001-01-01', '!!binary aGVsbG8='])
def test_a_setting_whose_name_is_no_text_is_refused(tmp_path, key):
    for text in (f'data: a.jsonl\n{key}: 2\n', f'data: a.jsonl\njobs:\n- {{{key}: 2}}\n'):
        (path := tmp_path / 'jobs.yaml').write_text(text)
        with pytest.raises(ValueError, match='jobs.yaml: expected names of settings .*no text'): read_jobs(path)


def test_a_key_that_stands_twice_is_refused_by_every_reader(tmp_path):
    (path := tmp_path / 'a.jsonl').write_text('{"prompt": "a", "prompt": "b", "completion": "c"}\n')
    for read in (read_examples, lambda path: QuestionSet('x', path)):
        with pytest.raises(ValueError, match="line 1: expected a JSON object.*the key 'prompt' stands in it twice"):
            read(path)
    path.write_bytes(b'\xef\xbb\xbf{"prompt": "a", "completion": "c", "score": NaN}\n')       # of a table with gaps
    assert read_examples(path) == [Example('a', 'c')]
