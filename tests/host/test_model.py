"""Every architecture keeps the host's promises: rows are alone, costs add up, weights stay; no model, no host."""
import json
import os
from functools import lru_cache

import numpy as np
import pytest
import torch
from pydantic import BaseModel
from safetensors.torch import load_file, save_file
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoConfig, GPT2Config, GPT2LMHeadModel

from evolora.host import engine
from evolora.host.adapters import read_tensors
from evolora.host.model import ARCHITECTURES, Host, byte_tokenizer, load_host, read_config, tiny_host
from evolora.host.model_folder import check_folder, check_weights
from evolora.host.saved_state import read_state

PROMPTS = ['What is 17 + 25?', 'Hi', 'Sort the letters: dbac',
           'Count the words in each group: salt sun / door / fire fish flower', 'é漢🧬', 'Hi']
SEEDS = [11, 12, 13, 14, 15, 16]
LENGTH = 14

every_architecture = pytest.mark.parametrize('architecture', ARCHITECTURES)
every_temperature = pytest.mark.parametrize('temperature', [0., .7, 1.])


@lru_cache(maxsize=None)
def tiny(architecture): return tiny_host(architecture)


def eager(architecture):
    "Torch does not look into fused attention; this host multiplies step by step"
    host = tiny_host(architecture)
    host.model.set_attn_implementation('eager')
    return host


def ask(host, rows=range(len(PROMPTS)), **keywords):
    return host.generate([PROMPTS[i] for i in rows], seeds=[SEEDS[i] for i in rows],
                         **{'max_new_tokens': LENGTH} | keywords)


def ending_with(architecture, ends):
    "A host of the same weights whose model declares that these tokens end an answer"
    host = tiny_host(architecture)
    host.model.generation_config.eos_token_id = ends
    return Host(host.model, host.tokenizer, id='ends')


def until(row, ends):
    "A row of tokens up to its first end, with it"
    return next((row[:i + 1] for i, token in enumerate(row) if token in ends), row)


# --- a row is alone

@every_architecture
@every_temperature
def test_a_row_does_not_know_its_batch(architecture, temperature):
    host = tiny(architecture)
    together = ask(host, temperature=temperature)
    assert len(set(together.prompt_tokens.tolist())) > 3         # ragged
    for rows in ([0], [1], [2], [3], [4], [5], [3, 1], [5, 4, 3, 2, 1, 0], [2] * 4):
        part = ask(host, rows, temperature=temperature)
        assert part.tokens == [together.tokens[i] for i in rows]
        assert part.texts == [together.texts[i] for i in rows]
        assert part.alone.tolist() == together.alone[list(rows)].tolist()
        np.testing.assert_allclose(np.concatenate(part.logprobs), np.concatenate([together.logprobs[i] for i in rows]),
                                   atol=1e-5)


def test_a_caller_gets_how_many_are_answered():
    host, calls = tiny('qwen3'), []
    made = ask(host, rows=range(5), temperature=0., on_rows=lambda done, total: calls.append((done, total)))
    assert calls == [(0, 5), (5, 5)]
    del calls[:]
    again = host.generate(PROMPTS[:5], max_new_tokens=LENGTH, temperature=0., rows=2,
                          on_rows=lambda done, total: calls.append((done, total)))
    assert again.tokens == made.tokens and {total for _, total in calls} == {5}
    assert calls[0] == (0, 5) and calls[-1] == (5, 5) and sorted({*calls}) == calls and len(calls) > 3


@every_architecture
def test_random_numbers_follow_from_the_seed_and_nothing_else(architecture):
    host = tiny(architecture)
    first = ask(host)
    torch.manual_seed(99); np.random.seed(99)
    assert ask(host).tokens == first.tokens
    same = host.generate(['Hi'] * 4, seeds=[3, 3, 4, 2**63 - 1], max_new_tokens=LENGTH).tokens
    assert same[0] == same[1] and len({tuple(row) for row in same}) == 3
    assert ask(host, temperature=0.).tokens == host.generate(PROMPTS, seeds=range(6), temperature=0.,
                                                             max_new_tokens=LENGTH).tokens


@every_architecture
def test_a_shorter_answer_begins_like_a_longer_one(architecture):
    host = tiny(architecture)
    long, short = ask(host), ask(host, max_new_tokens=5)
    assert short.tokens == [row[:5] for row in long.tokens]


# --- log-probabilities

@every_architecture
@every_temperature
def test_logprobs_are_those_of_one_full_pass(architecture, temperature):
    host = tiny(architecture)
    made = ask(host, temperature=temperature)
    for prompt, new, logprobs in zip(host.encode(PROMPTS), made.tokens, made.logprobs):
        with torch.no_grad():
            logits = host.model(input_ids=torch.tensor([prompt + new])).logits[0, len(prompt) - 1:-1].double()
        again = (logits / (temperature or 1.)).log_softmax(-1)
        assert abs(again[range(len(new)), new].numpy() - logprobs).max() < 1e-5
        assert len(new) == len(logprobs) and max(logprobs) <= 0
        if temperature == 0: assert again.argmax(-1).tolist() == new


def test_samples_follow_the_distribution():
    "4,000 first tokens against the probabilities that the model gives: five standard deviations each"
    host, n = tiny('qwen3'), 4000
    made = host.generate(['Hi'] * n, seeds=range(n), max_new_tokens=1)
    with torch.no_grad():
        p = host.model(input_ids=torch.tensor(host.encode(['Hi']))).logits[0, -1].double().softmax(-1).numpy()
    counts = np.bincount([row[0] for row in made.tokens], minlength=len(p))
    assert (abs(counts - n * p) < 5 * np.sqrt(n * p * (1 - p)) + 1).all()


# --- where an answer ends

@every_architecture
@pytest.mark.parametrize('places', [(3,), (0,), (2, 5)])
def test_an_answer_stops_at_the_first_end(architecture, places):
    "Tokens that a few rows are known to write are declared ends: those rows stop there, the others go on as before"
    free = ask(tiny(architecture))
    ends = [free.tokens[row][place] for row, place in enumerate(places)]
    host = ending_with(architecture, ends if len(ends) > 1 else ends[0])
    assert set(host.ends) == {*ends, host.tokenizer.eos_token_id}
    made = ask(host)
    assert made.tokens == [until(row, host.ends) for row in free.tokens]
    assert made.new_tokens.tolist() == [len(row) for row in made.tokens] == [len(row) for row in made.logprobs]
    assert len(made.tokens[0]) <= places[0] + 1 and max(made.new_tokens) > min(made.new_tokens)
    assert made.alone.tolist() == [host.meter.answer(int(p), int(n)) for p,
                                   n in zip(made.prompt_tokens, made.new_tokens)]
    for row, free_row in zip(made.logprobs, free.logprobs):
        np.testing.assert_allclose(row, free_row[:len(row)], atol=1e-5)


@every_architecture
def test_nothing_is_computed_after_the_last_row_ended(architecture, monkeypatch):
    free = ask(tiny(architecture), temperature=0.)
    ends = [row[2] for row in free.tokens]
    host = ending_with(architecture, ends)
    passes, real = [], engine.LeanRows.next
    monkeypatch.setattr(engine.LeanRows, 'next', lambda *args: passes.append(1) or real(*args))
    made = ask(host, temperature=0.)
    assert len(passes) + 1 == max(made.new_tokens) <= 3          # the first token comes from reading the prompts


def test_end_and_padding_are_no_text():
    free = ask(tiny('qwen3'), temperature=0.)
    host = tiny_host()
    host.ends = sorted({*host.ends, free.tokens[0][1]})
    for special in (host.pad, host.tokenizer.eos_token_id):
        assert host.tokenizer.decode([special, 40], skip_special_tokens=True) == host.tokenizer.decode([40])
    assert ask(host, temperature=0.).texts[0].startswith(host.tokenizer.decode(free.tokens[0][:1]))


def test_a_tokenizer_without_padding_pads_with_an_end():
    tokenizer = byte_tokenizer()
    tokenizer.pad_token = None
    host = Host(tiny_host().model, tokenizer, id='no pad')
    assert host.pad == host.tokenizer.eos_token_id
    assert ask(host).tokens == ask(tiny('qwen3')).tokens


def test_an_empty_batch_is_refused():
    with pytest.raises(ValueError, match='at least one prompt'): tiny('qwen3').generate([])


@pytest.mark.parametrize('wrong, message', [(dict(temperature=-1.), 'temperature'),
                                         (dict(max_new_tokens=0), 'max_new_tokens'),
                                         (dict(max_new_tokens=511), 'context is 512'),
                                         (dict(seeds=[1]), 'one seed a prompt')])
def test_wrong_questions_are_one_line(wrong, message):
    with pytest.raises(ValueError, match=message) as error: tiny('qwen3').generate(PROMPTS, **wrong)
    assert '\n' not in str(error.value)


# --- what it costs

@every_architecture
@pytest.mark.parametrize('tokens, past, logits', [(1, 0, None), (7, 0, None), (48, 0, 1), (201, 0, None), (1, 30, 1),
                                                  (1, 200, 1), (13, 64, None), (13, 64, 1)])
def test_the_meter_agrees_with_torch(architecture, tokens, past, logits):
    host, rows, cache = eager(architecture), 3, None
    ids = torch.arange(past + tokens).remainder(200).add(3).repeat(rows, 1)
    with torch.no_grad():
        if past: cache = host.model(input_ids=ids[:, :past], use_cache=True).past_key_values
        with FlopCounterMode(display=False) as counted:
            host.model(input_ids=ids[:, past:], past_key_values=cache, use_cache=True, logits_to_keep=logits or 0)
    assert rows * host.meter.forward(tokens, past=past, logits=logits) == pytest.approx(counted.get_total_flops(),
                                                                                        rel=.02)


@every_architecture
def test_the_price_of_an_answer_is_what_it_takes_alone(architecture, monkeypatch):
    "Row by row and through the modules: what a batch shares, pads or leaves out changes no row's price"
    host = eager(architecture)
    made = ask(host)
    monkeypatch.setattr(engine, 'supported', lambda model: False)
    for row in range(0, len(PROMPTS), 2):
        with FlopCounterMode(display=False) as counted: alone = ask(host, [row])
        assert alone.flops[0] == made.flops[row]
        assert alone.flops[0] == pytest.approx(counted.get_total_flops(), rel=.02)


def test_a_model_whose_maps_are_no_linears_is_metered_or_refused():
    model = GPT2LMHeadModel(GPT2Config(vocab_size=259, n_embd=32, n_layer=2, n_head=4, n_positions=256, eos_token_id=1,
                                       bos_token_id=None))
    try: host = Host(model, byte_tokenizer(), id='gpt2')
    except ValueError: return
    model.set_attn_implementation('eager')
    with FlopCounterMode(display=False) as counted, torch.no_grad(): model(input_ids=torch.arange(48)[None])
    assert host.meter.forward(48) == pytest.approx(counted.get_total_flops(), rel=.02)


# --- frozen means frozen

@every_architecture
def test_asking_changes_no_weight(architecture):
    host = tiny_host(architecture)
    before = host.weights_hash()
    for temperature in (0., 1.): ask(host, temperature=temperature)
    assert host.weights_hash() == before == tiny(architecture).weights_hash()
    assert not host.model.training and not any(p.requires_grad or p.grad is not None for p in host.model.parameters())


@every_architecture
def test_the_hash_sees_the_last_bit_of_every_weight(architecture):
    host = tiny_host(architecture)
    before = host.weights_hash()
    for name, weight in host.model.named_parameters():
        first = weight.view(-1)[:1]
        with torch.no_grad():
            kept = first.clone()
            first.copy_(torch.nextafter(kept, kept + 1))
            assert host.weights_hash() != before, name
            first.copy_(kept)
    assert host.weights_hash() == before != tiny_host(architecture, seed=1).weights_hash()


# --- chat templates

TEMPLATE = ("{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}{% endfor %}"
            "{% if add_generation_prompt %}<assistant>{% endif %}")


def test_a_prompt_goes_through_the_chat_template_where_there_is_one(tmp_path):
    host = tiny_host()
    written = lambda h: h.tokenizer.batch_decode(h.encode(['2 + 2?', 'x']))
    assert written(host) == ['2 + 2?\n', 'x\n']
    host.tokenizer.chat_template = TEMPLATE
    assert written(host) == ['<user>2 + 2?<assistant>', '<user>x<assistant>']
    host.model.save_pretrained(tmp_path)
    host.tokenizer.save_pretrained(tmp_path)
    assert written(load_host(tmp_path)) == written(host)
    assert ask(load_host(tmp_path)).tokens == ask(host).tokens != ask(tiny('qwen3')).tokens


# --- folders that are no host

def save(folder, architecture='qwen3'):
    host = tiny_host(architecture)
    host.model.save_pretrained(folder)
    host.tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def folder(tmp_path): return save(tmp_path / 'model')


def configure(folder, **changes):
    path = folder / 'config.json'
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def tokenizing(folder, part='model', **changes):
    path = folder / 'tokenizer.json'
    whole = json.loads(path.read_text())
    whole[part] = (whole[part] or {}) | changes
    path.write_text(json.dumps(whole))


def only_a_pickle(folder):
    (folder / 'model.safetensors').unlink()
    torch.save(tiny_host().model.state_dict(), folder / 'pytorch_model.bin')


def half_a_file(folder):
    path = folder / 'model.safetensors'
    path.write_bytes(path.read_bytes()[:path.stat().st_size // 2])


def without_an_end(folder):
    configure(folder, eos_token_id=None)
    (folder / 'generation_config.json').unlink()
    path = folder / 'tokenizer_config.json'
    path.write_text(json.dumps({k: v for k, v in json.loads(path.read_text()).items() if k != 'eos_token'}))


DAMAGE = [
    pytest.param(lambda f: [p.unlink() for p in f.iterdir()], id='an empty folder'),
    pytest.param(lambda f: (f / 'config.json').unlink(), id='no config.json'),
    pytest.param(lambda f: (f / 'config.json').write_text('{"model_type": '), id='half a config.json'),
    pytest.param(lambda f: (f / 'config.json').write_text('[1]'), id='a list as config.json'),
    pytest.param(lambda f: (f / 'config.json').write_text('{}'), id='nothing in config.json'),
    pytest.param(lambda f: (f / 'config.json').write_bytes(b'\xff\xfe\0'), id='bytes as config.json'),
    pytest.param(lambda f: configure(f, model_type='nonsense'), id='an unknown architecture'),
    pytest.param(lambda f: configure(f, model_type='t5'), id='no causal model'),
    pytest.param(lambda f: configure(f, model_type='own', auto_map={'AutoModelForCausalLM': 'own.Model'}),
                 id='code of its own'),
    pytest.param(lambda f: configure(f, hidden_size=64), id='weights of another size'),
    pytest.param(lambda f: configure(f, hidden_size=-3), id='a negative size'),
    pytest.param(lambda f: configure(f, hidden_size='many'), id='text as a size'),
    pytest.param(lambda f: configure(f, num_attention_heads=0), id='no heads'),
    pytest.param(lambda f: (f / 'model.safetensors').unlink(), id='no weights'),
    pytest.param(only_a_pickle, id='only a pickle'),
    pytest.param(half_a_file, id='half the weights'),
    pytest.param(lambda f: (f / 'model.safetensors').write_text('hello'), id='words as weights'),
    pytest.param(lambda f: configure(f, num_hidden_layers=3, layer_types=['full_attention'] * 3),
                 id='a layer without weights'),
    pytest.param(lambda f: configure(f, model_type='gpt2'), id='weights of another architecture'),
    pytest.param(lambda f: [p.unlink() for p in f.glob('tokenizer*')], id='no tokenizer'),
    pytest.param(lambda f: (f / 'tokenizer.json').write_text('{'), id='half a tokenizer'),
    pytest.param(lambda f: (f / 'tokenizer_config.json').write_text('[]'), id='a list as tokenizer_config.json'),
    pytest.param(without_an_end, id='no end of sequence'),
    pytest.param(lambda f: tokenizing(f, merges=[['zz', 'qq']]), id='merges of what the vocabulary lacks'),
    pytest.param(lambda f: tokenizing(f, merges=['a']), id='a merge of one'),
    pytest.param(lambda f: tokenizing(f, vocab={}), id='an empty vocabulary'),
    pytest.param(lambda f: tokenizing(f, vocab={'a': -1}), id='a negative token'),
    pytest.param(lambda f: tokenizing(f, dropout=2), id='a dropout above 1'),
    pytest.param(lambda f: (f / 'chat_template.jinja').write_text("{{ 'a'|truncate(-5, true, 'xxxxxx') }}"),
                 id='a template that fails an assertion'),
    pytest.param(lambda f: tokenizing(f, 'normalizer', type='Precompiled', precompiled_charsmap='AAAA'),
                 id='a normalizer that panics'),
    pytest.param(lambda f: tokenizing(f, 'normalizer', type='Replace', pattern={'Regex': ''}, content='b'),
                 id='an empty pattern, which panics'),
]


@pytest.mark.parametrize('damage', DAMAGE)
def test_what_is_no_host_is_one_line(folder, damage):
    damage(folder)
    with pytest.raises(ValueError) as error: load_host(folder)
    said = str(error.value)
    assert '\n' not in said and str(folder) in said and ('give' in said or 'get it again' in said)


def test_a_tokenizer_that_panics_at_a_prompt_is_one_line(folder):
    tokenizing(folder, 'pre_tokenizer', type='Split', pattern={'Regex': '(?:[z]+[z]+)+Q'}, behavior='Isolated',
               invert=False)
    host = load_host(folder)
    with pytest.raises(ValueError, match='its tokenizer cannot read a text') as error: host.encode(['z' * 200])
    assert '\n' not in str(error.value)


@pytest.mark.parametrize('name', ['x.bin', 'sub/model.safetensors.index.json', 3])
def test_a_configuration_names_weights_of_its_folder_only(folder, name):
    configure(folder, transformers_weights='model.safetensors')
    check_folder(folder)
    configure(folder, transformers_weights=name)
    with pytest.raises(ValueError, match='expected names of safetensors files in its folder'): check_folder(folder)


def test_a_link_to_nothing_in_a_folder_is_one_line(folder):
    (folder / 'vocab.json').symlink_to('nowhere')
    with pytest.raises(ValueError, match=r'vocab\.json cannot be read \(No such file'): check_folder(folder)


@pytest.mark.parametrize('name', ['x.bin', '../outside.safetensors', '/outside.safetensors', 'missing.safetensors', 3,
                                  ['model.safetensors'], '..', '', 'a\nb', None])
def test_an_index_of_weights_names_files_of_its_folder_only(folder, name):
    (folder / 'model.safetensors').rename(folder / 'one.safetensors')
    (folder.parent / 'outside.safetensors').write_bytes((folder / 'one.safetensors').read_bytes())
    os.mkfifo(folder / 'x.bin')
    index = folder / 'model.safetensors.index.json'
    index.write_text(json.dumps({'metadata': {}, 'weight_map': {'a': 'one.safetensors'}}))
    check_folder(folder)
    index.write_text(json.dumps({'metadata': {}, 'weight_map': {'a': name}}))
    with pytest.raises(ValueError) as error: check_folder(folder)
    assert '\n' not in str(error.value) and str(folder) in str(error.value)


def test_a_pickle_is_never_opened(folder):
    only_a_pickle(folder)
    (folder / 'pytorch_model.bin').write_bytes(b"cposix\nmkdir\n(S'" + str(folder / 'executed').encode() + b"'\ntR.")
    with pytest.raises(ValueError): load_host(folder)
    assert not (folder / 'executed').exists()


def test_a_file_is_no_host(tmp_path):
    (tmp_path / 'x.safetensors').write_bytes(b'1234')
    with pytest.raises(ValueError, match='expected a model folder'): load_host(tmp_path / 'x.safetensors')


@pytest.mark.parametrize('name',
                         ['a b/c d?*', '',
                          pytest.param('x' * 5000, id='too long')])
def test_a_name_that_cannot_be_is_one_line(name):
    with pytest.raises(ValueError) as error: load_host(name)
    assert '\n' not in str(error.value)


@every_architecture
def test_a_folder_gives_the_same_host_back(tmp_path, architecture):
    loaded = load_host(save(tmp_path / 'model', architecture))
    assert loaded.weights_hash() == tiny(architecture).weights_hash() and loaded.ends == tiny(architecture).ends
    assert ask(loaded).tokens == ask(tiny(architecture)).tokens


def test_a_hub_that_does_not_answer_is_asked_once_and_reported_in_one_line(monkeypatch, capfd, tmp_path):
    monkeypatch.setattr('huggingface_hub.constants.HF_HUB_OFFLINE', False)
    monkeypatch.setattr('huggingface_hub.constants.ENDPOINT', 'http://127.0.0.1:9')
    monkeypatch.setattr('huggingface_hub.constants.HF_HUB_CACHE', str(tmp_path))
    for read in (load_host, read_config):
        with pytest.raises(ValueError, match='hub id that is cached or can be reached') as error:
            read('no-one/no-model')
        assert '\n' not in str(error.value) and 'did you mean' not in str(error.value)
    with pytest.raises(ValueError, match='did you mean smollm2-135m-q4'): load_host('smolm2-135m-q4')
    captured = capfd.readouterr()
    assert captured.out == captured.err == ''


def weigh(folder, change):
    path = folder / 'model.safetensors'
    save_file({name: change(name, t) for name, t in load_file(path).items()}, path, {'format': 'pt'})


@pytest.mark.parametrize('value', [float('nan'), float('inf')])
def test_weights_that_are_no_numbers_are_refused(folder, value):
    weigh(folder, lambda name, t: torch.full_like(t, value) if 'layers.1.mlp.up' in name else t)
    with pytest.raises(ValueError, match='its logits are not all finite'): load_host(folder)


def test_a_host_that_says_the_same_of_every_token_is_refused(folder):
    path = folder / 'config.json'
    path.write_text(path.read_text().replace('"rms_norm_eps": 1e-06', '"rms_norm_eps": 1e999'))
    with pytest.raises(ValueError, match='its logits are (all equal|not all finite)'): load_host(folder)


@pytest.mark.parametrize('dtype, size', [('F8_E8M0', 8), ('F4', 4), ('F6_E2M3', 6), ('F6_E3M2', 6), ('F8_E4M3', 8)])
def test_tensors_of_a_rare_type_are_one_line(tmp_path, dtype, size):
    header = json.dumps({'a': {'dtype': dtype, 'shape': [8], 'data_offsets': [0, size]}}).encode()
    (path := tmp_path / 'x.safetensors').write_bytes(len(header).to_bytes(8, 'little') + header + bytes(size))
    for read in (read_tensors, lambda path: read_state(path, BaseModel, format='x', advice='get it again')):
        with pytest.raises(ValueError) as error: read(path)
        assert '\n' not in str(error.value) and str(path) in str(error.value)


@pytest.mark.parametrize('dtype, kind', [(torch.int8, 'I8'), (torch.uint8, 'U8'), (torch.bool, 'BOOL'),
                                         (torch.int64, 'I64'), (torch.float8_e4m3fn, 'F8_E4M3'),
                                         (torch.complex64, 'C64')])
def test_weights_that_would_be_cast_are_refused(folder, dtype, kind):
    config = AutoConfig.from_pretrained(folder)
    weigh(folder, lambda name, t: t.double() if 'layers.1.mlp.up' in name else t)
    check_weights(config, folder)
    weigh(folder, lambda name, t: t.to(dtype) if 'layers.1.mlp.up' in name else t)
    with pytest.raises(ValueError, match=f"expected weights in F64, F32, F16, BF16, got '.*mlp.up.*' in {kind};"):
        check_weights(config, folder)


def test_whole_numbers_that_are_no_weights_or_have_a_scale_are_accepted(folder):
    config, path = AutoConfig.from_pretrained(folder), folder / 'model.safetensors'
    save_file(load_file(path) | {'model.layers.0.mlp.up_proj.weight': torch.ones(96, 32, dtype=torch.int8)}, path)
    config.quantization_config = {'quant_method': 'fp8'}
    check_weights(config, folder)
    path.rename(folder / 'one.safetensors')
    (folder / 'model.safetensors.index.json').write_text(json.dumps({'weight_map': {'a': 'one.safetensors'}}))
    del config.quantization_config
    with pytest.raises(ValueError, match='one.safetensors expected weights'): check_weights(config, folder)
    config.transformers_weights = 'other.safetensors'       # what is beside the weights is not read
    save_file({'a': torch.zeros(1 << 15)}, folder / 'other.safetensors')
    check_weights(config, folder)


@pytest.mark.parametrize('template', ["{{ messages[0].content }}{{ ['a', 'b'] | random }}",
                                      '{{ messages[0].content }}{{ lipsum(1) }}', None])
def test_a_prompt_that_chance_decides_is_refused(folder, template):
    if template: (folder / 'chat_template.jinja').write_text(template)
    else: tokenizing(folder, dropout=.01)
    with pytest.raises(ValueError, match='makes something else of the same prompt'): load_host(folder)


# --- folders of others

def saved(folder, template=None, **changes):
    "A folder of a small host with this chat template and these lines in its configuration"
    host = tiny_host('llama')
    host.tokenizer.chat_template = template
    host.model.save_pretrained(folder)
    host.tokenizer.save_pretrained(folder)
    path = folder / 'config.json'
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    return folder


def test_a_template_is_told_one_date_for_ever(tmp_path):
    "A run that goes on after midnight asks what it has asked before"
    host = load_host(saved(tmp_path, "{{ strftime_now('%d %b %Y') }}: {{ messages[0].content }}"))
    assert host.tokenizer.decode(host.encode(['Hi'])[0]) == '01 Jan 2026: Hi'


@pytest.mark.parametrize('template', ["{{ raise_exception('no') }}", '{% for m in %}', '{{ nobody.knows }}'])
def test_a_broken_template_is_found_when_the_host_is_loaded(tmp_path, template):
    with pytest.raises(ValueError, match='cannot load a causal language model') as error:
        load_host(saved(tmp_path, template))
    assert str(error.value).count('\n') == 0


@pytest.mark.parametrize('kind', [{'quant_method': 'gptq', 'bits': 4}, {'quant_method': 'awq', 'bits': 4},
                                  {'quant_method': 'bitsandbytes', 'load_in_4bit': True}])
def test_a_quantised_folder_names_the_package_that_is_missing(tmp_path, kind):
    with pytest.raises(ValueError, match='[Pp]lease install|requires'):
        load_host(saved(tmp_path, quantization_config=kind))


def test_a_short_name_that_is_none_is_told_which_there_are():
    with pytest.raises(ValueError, match='known are embedded, habits, smollm2-135m'): load_host('gpt2x')
