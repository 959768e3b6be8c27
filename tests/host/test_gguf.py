"""A GGUF file is read by what is in it: whole ones give the same host twice, the others one line, in bounded time."""
import os
import shutil
import struct
import time
import tracemalloc

import gguf
import numpy as np
import pytest
import torch
from torch import nn

from actors import wrong_lines
from utils.processes import note_hash, started
from evolora.host import gguf as module
from evolora.ecology.config import load_config
from evolora.host.fast_layers import supported
from evolora.ecology.ecology import Ecology
from evolora.host.downloads import KNOWN, cache_folder, found
from evolora.utils.files import digest
from evolora.host.gguf import dequantise, kept, plain_folder, read_header, write_tiny_gguf
from evolora.host.model import load_host, read_config
from evolora.host.names import host_id, host_source
from evolora.ecology.cost_forecast import blueprint, profile_of

REAL = KNOWN['smollm2-135m-q4']
REAL_PATH = REAL.path if found(REAL) else None      # where it was fetched to, before tests have a cache of their own


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    "A cache of its own"
    monkeypatch.setenv('EVOLORA_CACHE', str(tmp_path / 'cache'))
    return tmp_path / 'cache'


@pytest.fixture
def path(tmp_path): return write_tiny_gguf(tmp_path / 'tiny.gguf')


# --- a host like any other

@pytest.mark.parametrize('kind', ['F32', 'F16', 'Q8_0', 'Q4_0', 'Q4_1', 'Q5_1'])
def test_the_weights_are_those_of_the_file(tmp_path, kind):
    host = load_host(write_tiny_gguf(tmp_path / 'x.gguf', kind=kind), device='cpu')
    raw = {t.name: gguf.dequantize(t.data, t.tensor_type) for t in gguf.GGUFReader(tmp_path / 'x.gguf').tensors}
    core = host.model.model
    for ours, theirs in ((core.embed_tokens, 'token_embd'), (core.layers[1].mlp.down_proj, 'blk.1.ffn_down'),
                         (core.layers[0].self_attn.v_proj, 'blk.0.attn_v'), (core.norm, 'output_norm')):
        assert np.array_equal(ours.weight.numpy(), raw[f'{theirs}.weight'])
    assert supported(host.model) and host.dtype == torch.float32
    assert all(type(m) is nn.Linear for n, m in host.model.named_modules() if n.endswith('_proj'))
    assert host.model.lm_head.weight is core.embed_tokens.weight


def test_it_is_asked_and_lives_like_any_other(path):
    host = load_host(path, device='cpu')
    assert host.tokenizer.decode(host.encode(['hello'])[0]) == ('<|im_start|>user\nhello<|im_end|>\n'
                                                                '<|im_start|>assistant\n')
    assert host.ends == [host.tokenizer.convert_tokens_to_ids('<|im_end|>')] == [2] and host.pad == 2
    assert host.tokenizer.padding_side == 'left'
    together, alone = host.generate(['hello', 'Hi'], seeds=[1, 2]), host.generate(['Hi'], seeds=[2])
    assert together.tokens[1] == alone.tokens[0]
    ecology = Ecology(host, load_config('debug'))
    ecology.step()
    assert ecology.market.audit().balanced


def test_the_second_time_is_the_first(path, cache, capfd):
    first, _ = load_host(path), capfd.readouterr()
    second = load_host(path)
    assert capfd.readouterr().err == '', 'nothing is printed when nothing is done'
    assert first.weights_hash() == second.weights_hash() == load_host(path, dtype='float32').weights_hash()
    assert first.origin == second.origin and first.origin.sha256 == digest(path) and first.origin.file == 'tiny.gguf'
    assert first.generate(['Hi'], seeds=[3]).tokens == second.generate(['Hi'], seeds=[3]).tokens
    assert load_host(path, dtype='bfloat16').dtype == torch.bfloat16


def test_what_is_computed_is_printed_in_one_line(path, capfd):
    load_host(path)
    out, err = capfd.readouterr()
    assert out == '' and len(err.splitlines()) == 1 and 'tiny.gguf: 33,088 weights' in err and '%|' not in err


def test_it_is_found_by_file_folder_link_and_without_an_ending(path, tmp_path):
    wanted = load_host(path)
    folder = tmp_path / 'one'
    folder.mkdir()
    shutil.copy(path, folder / 'Model.GGUF')
    blob = shutil.copy(path, tmp_path / 'sha256-0a1b')          # as Ollama names them
    link = tmp_path / 'link.gguf'
    link.symlink_to(blob)
    for name in (folder, str(folder / 'Model.GGUF'), blob, link):
        assert load_host(name).origin.sha256 == wanted.origin.sha256
    assert load_host(link).id == str(link) and load_host(folder).id == str(folder / 'Model.GGUF')
    for id in (wanted.id, load_host(folder).id): assert load_host(id).id == id == host_id(id)
    shutil.copy(path, folder / 'second.gguf')
    assert 'give one of them: Model.GGUF, second.gguf' in wrong_lines(lambda: load_host(folder))


def test_the_ending_is_read_afresh_where_there_is_none(path, tmp_path):
    "No cached folder helps here"
    model, tokenizer = dequantise(shutil.copy(path, tmp_path / 'sha256-0a1b'))
    assert supported(model) and tokenizer.chat_template


def test_a_run_on_it_goes_on(path, tmp_path):
    from evolora.ecology.sessions import begin_session, resume_session
    config = load_config('debug')
    with begin_session(tmp_path / 'run', load_host(path, device='cpu', threads=1), config, seed=1) as session:
        session.live(2, log=lambda *_: None)
    with resume_session(tmp_path / 'run') as again: again.live(3, log=lambda *_: None)
    assert again.ecology.generation == 3 and again.ecology.host.id == str(path)
    write_tiny_gguf(path, seed=5)
    assert 'host was' in wrong_lines(lambda: resume_session(tmp_path / 'run'))


def test_its_costs_are_known_without_its_weights(path, cache):
    plan, host = blueprint(path), load_host(path)
    assert (plan.parameters, plan.meter, plan.id) == (host.parameters, host.meter, host.id)
    assert plan.dtype == torch.float32 and read_config(path).eos_token_id == 2 and profile_of(path) is None


# --- the cache

def flip(file):
    data = bytearray(file.read_bytes())
    data[len(data) // 2] ^= 1
    file.write_bytes(data)


SPOIL = {'one bit of a weight': lambda f: flip(f / 'model.safetensors'),
         'another tokenizer': lambda f: flip(f / 'tokenizer.json'),
         'another end': lambda f: (f / 'generation_config.json').write_text('{"eos_token_id": 5}'),
         'no note': lambda f: (f / 'origin.json').unlink(),
         'a note that is no note': lambda f: (f / 'origin.json').write_text('[1]'),
         'a note of nothing': lambda f: (f / 'origin.json').write_text('{"files": {}}'),
         'a note that leads out': lambda f: (f / 'origin.json').write_text('{"files": {"../../x": "0"}}'),
         'more than was noted': lambda f: (f / 'adapter_config.json').write_text('{}'),
         'a part missing': lambda f: (f / 'chat_template.jinja').unlink()}


@pytest.mark.parametrize('spoil', SPOIL.values(), ids=SPOIL)
def test_what_was_kept_is_not_believed(path, spoil):
    wanted, sha = load_host(path), digest(path)
    weights = wanted.weights_hash()         # weights are mapped from the file: before it is written to
    spoil(kept(sha))
    assert kept(sha) is None
    again = load_host(path)
    assert again.weights_hash() == weights and again.ends == wanted.ends and kept(sha)
    assert again.tokenizer.chat_template == wanted.tokenizer.chat_template


def a_file_as_cache(cache): cache.write_text('precious')


def a_full_disk(cache): pass


@pytest.mark.parametrize('occupy', [a_file_as_cache, a_full_disk])
def test_without_a_cache_there_is_a_host_and_a_line(path, cache, occupy, monkeypatch):
    occupy(cache)
    if occupy is a_full_disk:
        def full(*_, **__): raise OSError(28, 'No space left on device')
        monkeypatch.setattr(module, 'write_whole', full)
    with pytest.warns(UserWarning, match='cannot be kept in .* set EVOLORA_CACHE') as caught: host = load_host(path)
    assert len(caught) == 1 and '\n' not in str(caught[0].message)
    assert host.tokenizer.padding_side == 'left' and supported(host.model) and host.origin.sha256 == digest(path)
    if occupy is a_file_as_cache: assert cache.read_text() == 'precious'
    else: assert not [p for p in cache.rglob('*') if p.is_file() and p.name != '.lock'], 'nothing half written'
    monkeypatch.undo()
    monkeypatch.setenv('EVOLORA_CACHE', str(cache.parent / 'elsewhere'))
    assert load_host(path).weights_hash() == host.weights_hash()


def test_a_killed_process_leaves_nothing_that_counts(path, cache):
    draft = cache / 'gguf' / f'.{digest(path)}.77777.tmp'
    draft.mkdir(parents=True)
    (draft / 'model.safetensors').write_bytes(b'half')
    load_host(path)
    assert not draft.exists() and kept(digest(path))


def test_stopped_in_the_middle_nothing_is_kept(path, cache, monkeypatch):
    def stopped(*_): raise KeyboardInterrupt
    monkeypatch.setattr(module, 'digest', stopped)
    with pytest.raises(KeyboardInterrupt): plain_folder(path, '0' * 64)
    assert not [p for p in cache.rglob('*') if p.is_file() and p.name != '.lock']


def test_two_at_once_make_one(path, cache, tmp_path):
    jobs = [started(note_hash, str(path), str(cache), str(tmp_path / f'note{i}')) for i in range(2)]
    for job in jobs: job.join(300)
    hashes = {(tmp_path / f'note{i}').read_text() for i in range(2)}
    assert len(hashes) == 1 and not any(job.exitcode for job in jobs)
    assert [p.name for p in (cache / 'gguf').iterdir() if not p.name.startswith('.')] == [digest(path)]


# --- what is no host

def packed(path, at, code, value):
    data = bytearray(path.read_bytes())
    struct.pack_into(f'<{code}', data, at, value)
    path.write_bytes(data)


def cut(path, to): path.write_bytes(path.read_bytes()[:to])


def renamed(path, old, new):
    data = path.read_bytes()
    assert data.count(old) >= 1 and len(old) == len(new)
    path.write_bytes(data.replace(old, new))


def field(path, name, code, value, back=0):
    "Overwrite what follows a name"
    packed(path, path.read_bytes().index(name) + len(name) + back, code, value)


DAMAGE = {
    'nothing': lambda p: p.write_bytes(b''),
    'four letters': lambda p: p.write_bytes(b'GGUF'),
    'words': lambda p: p.write_text('hello, these are weights'),
    'a pickle': lambda p: p.write_bytes(b"cposix\nmkdir\n(S'executed'\ntR."),
    'a zip': lambda p: p.write_bytes(b'PK\3\4' + p.read_bytes()[4:]),
    'half of it': lambda p: cut(p, p.stat().st_size // 2),
    'all but a byte': lambda p: cut(p, p.stat().st_size - 1),
    'its header': lambda p: cut(p, 2000),
    'another byte order': lambda p: p.write_bytes(b'GGUF\0\0\0\3' + p.read_bytes()[8:]),
    'version 1': lambda p: packed(p, 4, 'I', 1),
    'all tensors of the world': lambda p: packed(p, 8, 'Q', 2**64 - 1),
    'no tensors': lambda p: packed(p, 8, 'Q', 0),
    'all keys of the world': lambda p: packed(p, 16, 'Q', 2**63),
    'a key without end': lambda p: packed(p, 24, 'Q', 2**62),
    'a list without end': lambda p: field(p, b'tokenizer.ggml.tokens', 'Q', 2**60, 8),
    'a long list of nothing': lambda p: field(p, b'tokenizer.ggml.tokens', 'Q', 10**7, 8),
    'a list of lists': lambda p: field(p, b'tokenizer.ggml.tokens', 'I', 9, 4),
    'an unknown type': lambda p: field(p, b'llama.block_count', 'I', 77),
    'five dimensions': lambda p: field(p, b'token_embd.weight', 'I', 5),
    'a tensor without end': lambda p: field(p, b'token_embd.weight', 'Q', 2**62, 4),
    'a tensor of nothing': lambda p: field(p, b'token_embd.weight', 'Q', 0, 4),
    'an unknown kind': lambda p: field(p, b'token_embd.weight', 'I', 4711, 20),
    'a tensor behind the end': lambda p: field(p, b'output_norm.weight', 'Q', 2**40, 16),
    'a tensor over another': lambda p: field(p, b'output_norm.weight', 'Q', 0, 16),
    'a billion blocks': lambda p: field(p, b'llama.block_count', 'I', 10**9, 4),
    'no blocks': lambda p: field(p, b'llama.block_count', 'I', 0, 4),
    'one block more': lambda p: field(p, b'llama.block_count', 'I', 3, 4),
    'a wider model': lambda p: field(p, b'llama.feed_forward_length', 'I', 2**31, 4),
    'no heads': lambda p: field(p, b'llama.attention.head_count', 'I', 0, 4),
    'another width': lambda p: field(p, b'llama.embedding_length', 'I', 64, 4),
    'an unknown architecture': lambda p: renamed(p, b'llama', b'camel'),
    'no tokenizer': lambda p: write_tiny_gguf(p, tokenizer=False),
    'a tensor of another name': lambda p: renamed(p, b'blk.0.ffn_up', b'blk.7.ffn_up'),
}


@pytest.mark.parametrize('damage', DAMAGE.values(), ids=DAMAGE)
def test_what_is_no_host_is_one_line(path, cache, damage, capfd):
    damage(path)
    tracemalloc.start()
    begun = time.process_time()
    try: line = wrong_lines(lambda: load_host(path))
    finally: peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert str(path) in line and capfd.readouterr().err == '', 'the refusal is the only line'
    assert peak < 200e6 and time.process_time() - begun < 30, 'bounded'
    assert not cache.exists() or not [p for p in cache.rglob('*') if p.is_file() and p.name != '.lock']


def test_what_is_refused_once_it_is_computed_is_one_line(path, cache, capfd, monkeypatch):
    def refuses(tokenizer): raise ValueError('its template says nothing')
    monkeypatch.setattr('evolora.host.model.check_template', refuses)
    assert 'its template says nothing' in wrong_lines(lambda: load_host(path)) and capfd.readouterr().err == ''


def test_what_is_refused_and_cannot_be_kept_is_one_line(path, monkeypatch, capfd, recwarn):
    def full(*_): raise OSError('no room')
    monkeypatch.setattr(module, 'dequantise', full)
    assert 'no room' in wrong_lines(lambda: load_host(path)) and not recwarn and capfd.readouterr().err == ''


def test_a_file_in_parts_is_refused(path):
    header = read_header(path)
    header.about['split.count'] = 3
    assert 'one part of several' in wrong_lines(lambda: module._checked(header))


def test_a_folder_is_no_file(tmp_path):
    (tmp_path / 'x.gguf').mkdir()
    assert 'expected a model folder' in wrong_lines(lambda: load_host(tmp_path / 'x.gguf'))
    assert 'does not exist' in wrong_lines(lambda: load_host(tmp_path / 'y' / 'x.gguf'))
    os.mkfifo(tmp_path / 'pipe.gguf')
    assert 'expected a model folder' in wrong_lines(lambda: load_host(tmp_path / 'pipe.gguf'))


def test_any_byte_may_be_wrong(path):
    "A thousand files with some wrong bytes in the header: each is refused in one line, or its lengths are whole"
    rng, data = np.random.default_rng(0), path.read_bytes()
    for _ in range(1000):
        wrong = bytearray(data)
        for at in rng.integers(0, 4000, rng.integers(1, 6)): wrong[at] = rng.integers(256)
        path.write_bytes(wrong)
        try: header = read_header(path)
        except ValueError as e: assert '\n' not in str(e)
        else: assert sum(t.size for t in header.tensors) <= len(data)


# --- the real one

fetched = pytest.mark.skipif(REAL_PATH is None, reason='evolora host fetch smollm2-135m-q4')
SHAPE = 'hidden_size', 'head_dim', 'rope_parameters', 'max_position_embeddings', 'tie_word_embeddings'


@fetched
def test_what_is_known_of_the_real_one_is_what_its_header_says(cache):
    "Its weights are not read"
    cache.mkdir()
    (cache / 'hosts').symlink_to(REAL_PATH.parents[1])
    profile, config = profile_of(REAL_PATH), read_config(REAL_PATH)
    assert profile.name == 'smollm2-135m-q4' and host_source('smollm2-135m-q4') == REAL.path
    for key in SHAPE: assert getattr(profile.config(), key) == getattr(config, key), key
    plan = blueprint('smollm2-135m-q4')
    assert plan.parameters == 134_515_008 and plan.id == REAL.name


@pytest.mark.slow
@fetched
def test_the_real_one(cache):
    cache.mkdir()
    (cache / 'hosts').symlink_to(REAL_PATH.parents[1])
    if (made := REAL_PATH.parents[2] / 'gguf').exists(): (cache / 'gguf').symlink_to(made)      # it takes 20 s
    assert host_source('smollm2-135m-q4') == REAL.path and cache_folder() == cache
    host = load_host('smollm2-135m-q4', device='cpu', threads=1)
    assert (host.id, host.origin.sha256, host.parameters) == (REAL.name, REAL.sha256, 134_515_008)
    assert host.weights_hash() == 'bac68de1ca99e847' and supported(host.model) and host.ends == [2]
    answers = host.generate(['What is the capital of France?'], temperature=0.).texts
    assert answers == ['The capital of France is Paris.']
    profile, text = profile_of(host), 'What is 17 + 25?'
    assert profile.name == 'smollm2-135m-q4' and profile_of(REAL_PATH) is profile
    assert profile.frame == len(host.encode([text])[0]) - len(host.tokenizer(text)['input_ids'])
    plan = blueprint('smollm2-135m-q4')
    assert (plan.meter, plan.id, plan.dtype) == (host.meter, host.id, host.dtype)
    made, config = profile.config(), host.config
    for key in SHAPE:
        assert getattr(made, key) == getattr(config, key), key
