"""Data of strangers become examples, or one line that names the row."""
import json

import pytest
from hypothesis import given, settings, strategies as st

from evolora.host.model import load_host
from evolora.tasks.forms import System
from evolora.training.examples import Example, check_apart, encode_examples, read_examples, split_examples
from evolora.training.jobs import Job, expand_jobs, read_jobs

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
