"""A tokenizer of a stranger is tried in a copy of the process, and what it takes too much of is one line."""
import json
import sys

import pytest

from evolora.host.model import byte_tokenizer, load_host, tiny_host
from evolora.host.tokenizer_trial import read_tokenizer

pytestmark = pytest.mark.skipif(sys.platform != 'linux', reason='no copy of the process')
A = {'String': 'a'}


def replace(pattern, content): return {'type': 'Replace', 'pattern': pattern, 'content': content}


def sequence(parts, name='normalizers'): return {'type': 'Sequence', name: parts}


def split(regex): return {'type': 'Split', 'pattern': {'Regex': regex}, 'behavior': 'Isolated', 'invert': False}


BYTES = {'type': 'ByteLevel', 'add_prefix_space': False, 'trim_offsets': True, 'use_regex': False}
TEN = [replace(A, 'a' * 10)] * 10


@pytest.fixture
def folder(tmp_path):
    byte_tokenizer().save_pretrained(tmp_path)
    return tmp_path


def changed(folder, **parts):
    path = folder / 'tokenizer.json'
    path.write_text(json.dumps(json.loads(path.read_text()) | parts))
    return folder


@pytest.mark.parametrize('parts', [
    dict(normalizer=sequence(TEN)), dict(normalizer=replace(A, 'a' * 100_000)),
    dict(normalizer=sequence([{'type': 'Prepend', 'prepend': 'a' * 10**6}] * 50)),
    dict(pre_tokenizer=sequence([BYTES] * 40, 'pretokenizers')),
    dict(decoder=sequence([BYTES, *TEN], 'decoders')), dict(pre_tokenizer=split('(a+)+$')),
    dict(normalizer=replace({'Regex': '(a|a)*$'}, ''))],
    ids=['a chain', 'one rule', 'a prefix', 'bytes of bytes', 'a decoder', 'nested repeats', 'two ways'])
def test_a_tokenizer_that_takes_too_much_is_one_line(folder, parts, monkeypatch, capfd):
    monkeypatch.setattr('evolora.host.tokenizer_trial._MEMORY', 1 << 27)
    with pytest.raises(ValueError, match='^its tokenizer .*; give the host another tokenizer$') as error:
        read_tokenizer(changed(folder, **parts))
    assert '\n' not in str(error.value) and capfd.readouterr() == ('', '')


def test_a_tokenizer_that_takes_long_is_one_line(folder, monkeypatch):
    monkeypatch.setattr('evolora.host.tokenizer_trial._SECONDS', 0)
    with pytest.raises(ValueError, match='^its tokenizer took .* seconds for a few short texts'): read_tokenizer(folder)


def test_a_tokenizer_grows_while_it_is_read(folder, monkeypatch):
    monkeypatch.setattr('evolora.host.tokenizer_trial._MEMORY', 1 << 27)
    token = {'id': 259, 'content': 'aaa', 'single_word': False, 'lstrip': False, 'rstrip': False, 'normalized': True,
             'special': False}
    with pytest.raises(ValueError, match='killed by signal'):
        read_tokenizer(changed(folder, normalizer=sequence(TEN), added_tokens=[token]))


def test_what_a_tokenizer_does_not_know_is_no_reason(folder):
    words = {'type': 'WordLevel', 'vocab': {'<pad>': 0, '<eos>': 1, '<unk>': 2, 'a': 3}, 'unk_token': '<gone>'}
    assert read_tokenizer(changed(folder, model=words))(['a'])['input_ids'] == [[3]]


def test_a_host_is_refused_before_its_tokenizer_is_read_here(tmp_path, monkeypatch):
    host = tiny_host()
    host.model.save_pretrained(tmp_path)
    host.tokenizer.save_pretrained(tmp_path)
    changed(tmp_path, normalizer=replace(A, 'a' * 100_000))
    with pytest.raises(ValueError, match='its tokenizer makes .* expected at most 64 of each'): load_host(tmp_path)


def test_a_panic_while_a_tokenizer_is_read_stays_in_the_copy(monkeypatch, tmp_path):
    class PanicException(BaseException): "As Rust raises it"
    read = []
    def panics(source, **how):
        read.append(source)
        raise PanicException('no entry')
    monkeypatch.setattr('evolora.host.tokenizer_trial.AutoTokenizer.from_pretrained', panics)
    with pytest.raises(ValueError, match='^no entry$'): read_tokenizer(tmp_path)
    assert not read
