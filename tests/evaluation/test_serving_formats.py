"""What vLLM and llama.cpp take: each planted fault is named, and a GGUF adapter adds what the organelle adds."""
import json
import shlex
import shutil

import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import MistralConfig, MistralForCausalLM

from evolora.ecology.variation import OPERATORS
from evolora.evaluation import serving_formats as module
from evolora.evaluation.peft_export import export
from evolora.evaluation.serving_formats import (GGUF, LAYOUTS, VLLM_RANKS, converted, layout_named, vllm_command,
                                                vllm_lacks, vllm_rank, write_lora_gguf)
from evolora.experiments.reopened import reopen
from evolora.host.adapters import LLAMA_MAPS
from evolora.host.gguf import write_tiny_gguf
from evolora.host.model import ARCHITECTURES, Host, byte_tokenizer, load_host, tiny_host
from evolora.organelles.population import Population
from evolora.utils.randomness import stream

PREFIX = 'base_model.model.model.layers.0.self_attn.q_proj'


def one(host, rank=3, step=.6, **how):
    population = Population(host, capacity=1, max_rank=max(rank, 8), **how)
    population.birth(rank=rank)
    population.write('o1', OPERATORS['gaussian'](population.factors('o1'), rng=stream(rank), step=step))
    return population


@pytest.fixture(scope='module')
def healthy(tmp_path_factory):
    folder = tmp_path_factory.mktemp('healthy') / 'out'
    one(tiny_host('llama'), rank=8, targets=LLAMA_MAPS).export_peft('o1', folder)
    return folder


@pytest.fixture
def plant(healthy, tmp_path):
    def made(tensors=lambda t: t, **settings):
        folder = shutil.copytree(healthy, tmp_path / 'planted')
        config = json.loads((folder / 'adapter_config.json').read_text()) | settings
        (folder / 'adapter_config.json').write_text(json.dumps({k: v for k, v in config.items() if v is not ...}))
        save_file(tensors(load_file(healthy / 'adapter_model.safetensors')), folder / 'adapter_model.safetensors')
        return folder
    return made


@pytest.mark.parametrize('targets', [('q_proj',), LLAMA_MAPS, 'all-linear'], ids=str)
@pytest.mark.parametrize('architecture', ARCHITECTURES)
def test_what_is_exported_lacks_nothing(architecture, targets, tmp_path):
    population = one(tiny_host(architecture), targets=(targets,) if isinstance(targets, str) else targets)
    population.export_peft('o1', tmp_path / 'out')
    assert vllm_lacks(tmp_path / 'out') == [] == vllm_lacks(tmp_path / 'out', 8)


@pytest.mark.parametrize('settings, said', [
    ({'r': ...}, 'r is missing'), ({'r': 0}, 'r is 0, and has'), ({'r': -8}, 'r is -8'), ({'r': 8.}, 'r is 8.0'),
    ({'r': True}, 'r is True'), ({'r': 513}, 'r is 513, and the most is 512'), ({'r': 4}, 'not that of rank 4'),
    ({'lora_alpha': ...}, 'lora_alpha is missing'), ({'lora_alpha': 'a'}, "lora_alpha is 'a'"),
    ({'target_modules': []}, 'target_modules is missing'), ({'peft_type': 'LOHA'}, "peft_type is 'LOHA'"),
    ({'use_dora': True}, 'use_dora is on: DoRA is refused'),
    ({'modules_to_save': ['lm_head']}, 'modules_to_save is on'),
    ({'bias': 'all'}, "bias is 'all'"), ({'fan_in_fan_out': True}, 'as for GPT-2'),
    ({'rank_pattern': {'q_proj': 4}}, 'rank_pattern is'), ({'alpha_pattern': {'q_proj': 4}}, 'alpha_pattern is'),
    ({'layer_replication': [[0, 2]]}, 'layer_replication is'), ({'lora_bias': True}, 'lora_bias is True'),
    ({'alora_invocation_tokens': [1, 2]}, 'alora_invocation_tokens is'),
    ({'init_lora_weights': 'pissa'}, "init_lora_weights is 'pissa'"), ({'what_comes_next': 1}, 'what_comes_next is 1')],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else '')
def test_a_setting_is_named(plant, settings, said):
    assert any(said in line for line in vllm_lacks(plant(**settings)))


@pytest.mark.parametrize('settings', [{'use_rslora': True}, {'lora_alpha': 1.5}, {'target_modules': r'.*\.(q_proj)$'},
                                      {'rank_pattern': {}, 'modules_to_save': None, 'use_dora': False}], ids=str)
def test_what_vllm_reads_is_no_fault(plant, settings): assert vllm_lacks(plant(**settings)) == []


@pytest.mark.parametrize('change, said', [
    (lambda t: {k: v for k, v in t.items() if k != f'{PREFIX}.lora_A.weight'}, 'q_proj has no lora_A.weight'),
    (lambda t: {k: v for k, v in t.items() if k != f'{PREFIX}.lora_B.weight'}, 'q_proj has no lora_B.weight'),
    (lambda t: t | {f'{PREFIX}.lora_A.weight': torch.ones(4, 32)}, 'has the shape (4, 32), not that of rank 8'),
    (lambda t: t | {f'{PREFIX}.lora_A.default.weight': torch.ones(8, 32)}, 'is no lora_A.weight or lora_B.weight'),
    (lambda t: t | {f'{PREFIX}.lora_magnitude_vector': torch.ones(8)}, 'is no lora_A.weight or lora_B.weight'),
    (lambda t: t | {f'{PREFIX}.lora_B.bias': torch.ones(8)}, 'is no lora_A.weight or lora_B.weight'),
    (lambda t: t | {f'{PREFIX}.lora_A.weight': torch.full((8, 32), torch.inf)}, 'has NaN or infinity in it'),
    (lambda t: {}, 'holds no tensor'), (lambda t: {k: v.to(torch.int8) for k, v in t.items()}, 'in int8')])
def test_a_tensor_is_named(plant, change, said):
    assert any(said in line for line in vllm_lacks(plant(tensors=change)))


def test_files_that_are_missing_or_damaged_are_named(plant, tmp_path):
    folder = plant()
    (folder / 'adapter_model.safetensors').write_bytes(b'\xff' * 100)
    assert 'no readable safetensors file' in vllm_lacks(folder)[0]
    (folder / 'adapter_model.safetensors').unlink()
    assert 'expected a safetensors file' in vllm_lacks(folder)[0]
    (folder / 'adapter_config.json').write_text('{"r": ')
    assert 'adapter_config.json cannot be read' in vllm_lacks(folder)[0]
    assert 'adapter_config.json cannot be read' in vllm_lacks(tmp_path / 'nowhere')[0]


def test_ranks_are_those_that_vllm_has(healthy):
    assert [vllm_rank(r) for r in (1, 8, 9, 65, 300, 512)] == [8, 8, 16, 128, 320, 512]
    for rank in (0, 513):
        with pytest.raises(ValueError, match='from 1 to 512'): vllm_rank(rank)
    with pytest.raises(ValueError, match='expected one of 1, 8, 16'): vllm_lacks(healthy, 7)
    assert vllm_lacks(healthy, 1) == ['r is 8, which --max-lora-rank 1 refuses; 8 would do']
    assert all(vllm_lacks(healthy, rank) == [] for rank in VLLM_RANKS[1:])


def as_vllm_reads(item):
    "The rule of its command line: NAME=PATH where there is a = and no comma, JSON else"
    if '=' in item and ',' not in item:
        name, path = item.split('=')
        return name, path
    found = json.loads(item)
    return found['name'], found['path']


@pytest.mark.parametrize('name', ['plain', 'a=b', 'a,b', "it's", 'zwei Wörter', '{"name"', '$(date)', '-x'])
@pytest.mark.parametrize('place', ['out', 'a=b', 'x, y', 'schön "hier"'])
def test_the_command_is_read_as_it_was_meant(healthy, tmp_path, name, place):
    folder = shutil.copytree(healthy, tmp_path / place)
    words = shlex.split(vllm_command(folder, 'some/base', name))
    assert words[:5] == ['vllm', 'serve', 'some/base', '--enable-lora', '--lora-modules']
    assert as_vllm_reads(words[5]) == (name, str(folder)) and words[6:] == ['--max-lora-rank', '8']


def test_a_command_is_not_given_for_what_is_refused(plant):
    with pytest.raises(ValueError, match='expected a folder that vLLM takes: use_dora'):
        vllm_command(plant(use_dora=True), 'x')


# --- llama.cpp

def read(path):
    "(alpha, {name: array as it is stored}) of a GGUF adapter, and its header as llama.cpp wants it"
    found = gguf.GGUFReader(path)
    about = {k: f.contents() for k, f in found.fields.items() if not k.startswith('GGUF.')}
    assert (about['general.type'], about['adapter.type']) == ('adapter', 'lora')
    return about['general.architecture'], about['adapter.lora.alpha'], {t.name: t.data for t in found.tensors}


def mistral():
    config = MistralConfig(vocab_size=259, hidden_size=32, intermediate_size=96, num_hidden_layers=2, eos_token_id=1,
                           num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=128)
    return Host(MistralForCausalLM(config), byte_tokenizer(), id='tiny-mistral')


@pytest.mark.parametrize('kind, called', [('llama', 'llama'), ('mistral', 'llama'), ('qwen2', 'qwen2'),
                                          ('qwen3', 'qwen3'), ('gemma3', 'gemma3')])
def test_every_map_has_its_name_its_shape_and_its_sum(kind, called, tmp_path):
    host = mistral() if kind == 'mistral' else tiny_host(kind)
    population = one(host, targets=LLAMA_MAPS)
    write_lora_gguf(tmp_path / 'a.gguf', population.factors('o1'), alpha=population.alpha, config=host.config)
    architecture, alpha, stored = read(tmp_path / 'a.gguf')
    assert (architecture, alpha) == (called, 8.)
    names = dict(zip(LLAMA_MAPS, ('attn_q', 'attn_k', 'attn_v', 'attn_output', 'ffn_gate', 'ffn_up', 'ffn_down')))
    for module_name, (A, B) in population.factors('o1').items():
        _, _, layer, _, short = module_name.split('.')
        A_, B_ = (stored.pop(f'blk.{layer}.{names[short]}.weight.lora_{x}') for x in 'ab')
        added = alpha / len(A_) * B_ @ A_
        if called == 'llama' and short in ('q_proj', 'k_proj'):         # row 2i + j of a head is row i of its half j
            heads = {'q_proj': 4, 'k_proj': 2}[short]
            half = len(B) // heads // 2
            rows = [h * 2 * half + j * half + i for h in range(heads) for i in range(half) for j in (0, 1)]
        else: rows = list(range(len(B)))
        assert np.allclose(added, (population.scale('o1') * B @ A)[rows].numpy(), atol=1e-5)
    assert not stored


def moved(tmp_path, targets):
    "How far a file with the adapter added in, in its own order, is from host and organelle, and both from the host"
    host = load_host(write_tiny_gguf(tmp_path / 'host.gguf', kind='F32'), threads=1)
    grown = one(host, targets=targets)
    write_lora_gguf(tmp_path / 'lora.gguf', grown.factors('o1'), alpha=grown.alpha, config=host.config)
    _, alpha, stored = read(tmp_path / 'lora.gguf')
    changed = gguf.GGUFReader(shutil.copy(tmp_path / 'host.gguf', tmp_path / 'other.gguf'), 'r+')
    for t in changed.tensors:
        if f'{t.name}.lora_a' in stored:
            A, B = (stored.pop(f'{t.name}.lora_{x}') for x in 'ab')
            t.data[:] += alpha / len(A) * B @ A
    changed.data.flush()
    assert not stored
    other = load_host(tmp_path / 'other.gguf', threads=1)
    ids = torch.tensor(host.encode(['Sort the letters: jghn']))
    ours, bare = (grown.logits(ids, organelles=[who]).log_softmax(-1) for who in ('o1', None))
    with torch.no_grad(): theirs = other.model(input_ids=ids).logits.log_softmax(-1)
    return float((ours - theirs).abs().max()), float((ours - bare).abs().max())


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch): monkeypatch.setenv('EVOLORA_CACHE', str(tmp_path / 'cache'))


def test_the_reader_of_hosts_finds_the_same_sum(tmp_path):
    off, far = moved(tmp_path, LLAMA_MAPS)
    assert off < 1e-4 < .1 < far


def test_without_the_other_order_of_rows_the_sum_would_be_another(tmp_path, monkeypatch):
    monkeypatch.setattr(module, '_as_stored', lambda B, heads: B)
    assert moved(tmp_path, ('q_proj', 'k_proj'))[0] > .01


def test_llama_cpp_itself_answers_as_the_organelle(tmp_path):
    "Where its bindings are installed: log-probabilities of the next token, without and with the adapter"
    llama = pytest.importorskip('xllamacpp')
    host = load_host(write_tiny_gguf(tmp_path / 'host.gguf', kind='F32', hidden=128), threads=1)
    grown = one(host, step=.1, targets=LLAMA_MAPS)
    write_lora_gguf(tmp_path / 'lora.gguf', grown.factors('o1'), alpha=grown.alpha, config=host.config)
    ids = host.encode(['What is 2 + 3?'])[0]
    ours = {who: grown.logits(torch.tensor([ids]), organelles=[who]).log_softmax(-1)[0, -1] for who in (None, 'o1')}
    for who in ours:
        p = llama.CommonParams()
        p.model.path, p.n_ctx, p.n_gpu_layers, p.n_parallel, p.warmup = str(tmp_path / 'host.gguf'), 256, 0, 1, False
        p.cpuparams.n_threads = 1
        if who: p.lora_adapters = [llama.CommonAdapterLoraInfo(str(tmp_path / 'lora.gguf'), 1.)]
        server = llama.Server(p)
        found = server.handle_completions({'prompt': ids, 'max_tokens': 1, 'temperature': 0, 'logprobs': 9})
        top = found['choices'][0]['logprobs']['content'][0]['top_logprobs']
        assert max(abs(t['logprob'] - float(ours[who][t['id']])) for t in top) < .05        # it keeps 16 bits
    assert (ours[None] - ours['o1']).abs().max() > .5


def test_a_folder_of_peft_is_converted(tmp_path):
    population = one(load_host('embedded', threads=1))
    population.export_peft('o1', tmp_path / 'peft')
    again = reopen(tmp_path / 'peft').population
    for name, layout in LAYOUTS.items():
        folder = converted(again, tmp_path / name, layout) if name != 'peft' else tmp_path / 'peft'
        assert name == 'peft' or '## Use' in (folder / 'README.md').read_text()
    direct = export(population, 'o1', tmp_path / 'direct', layout=GGUF, n=24)
    one_file, other = (read(folder / 'adapter.gguf') for folder in (tmp_path / 'gguf', direct))
    assert one_file[:2] == other[:2] and one_file[2].keys() == other[2].keys()
    assert all(np.allclose(x, other[2][k], atol=1e-6) for k, x in one_file[2].items())
    with pytest.raises(ValueError, match='which exists'): converted(again, tmp_path / 'gguf', GGUF)


def test_formats_are_known_by_name():
    assert all(layout_named(name) is layout for name, layout in LAYOUTS.items())
    with pytest.raises(ValueError, match="format expected one of peft, merged, gguf, got 'onnx'"): layout_named('onnx')
