"""What a file holds is used, or refused by its name: tensors, metadata, keys of a configuration, and adapters."""
import dataclasses
import json

import gguf
import numpy as np
import peft
import pytest
import torch
from safetensors.torch import load_file, save_file

from actors import wrong_lines
from evolora.host.adapters import INERT_SETTINGS, read_peft, write_peft
from evolora.host.gguf import gguf_config, write_tiny_gguf
from evolora.host.leftovers import _divisors
from evolora.host.model import load_host, tiny_host


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch): monkeypatch.setenv('EVOLORA_CACHE', str(tmp_path / 'cache'))


# --- files of llama.cpp

@pytest.fixture
def with_more(tmp_path, monkeypatch):
    "A tiny file, into which a function writes more"
    def make(more, **how):
        begin = gguf.GGUFWriter.write_header_to_file
        def also(self, *args, **keywords):
            more(self)
            return begin(self, *args, **keywords)
        with monkeypatch.context() as patch:
            patch.setattr(gguf.GGUFWriter, 'write_header_to_file', also)
            return write_tiny_gguf(tmp_path / 'more.gguf', **how)
    return make


def ones(name, *shape): return lambda w: w.add_tensor(name, np.ones(shape, np.float32))
def number(key, value): return lambda w: w.add_float32(key, value)


LEFT = {'blk.0.attn_q.bias': ones('blk.0.attn_q.bias', 32),
        'blk.1.attn_k_norm.weight': ones('blk.1.attn_k_norm.weight', 8),
        'blk.2.attn_q.weight': ones('blk.2.attn_q.weight', 32, 32), 'output.bias': ones('output.bias', 261),
        'rope_factors_long.weight': ones('rope_factors_long.weight', 4), 'something': ones('something', 3),
        'llama.logit_scale': number('llama.logit_scale', .5),
        'llama.embedding_scale': number('llama.embedding_scale', 12.),
        'llama.attention.scale': number('llama.attention.scale', .1),
        'llama.final_logit_softcapping': number('llama.final_logit_softcapping', 30.),
        'llama.attention.clamp_kqv': number('llama.attention.clamp_kqv', 8.),
        'llama.attention.causal': lambda w: w.add_bool('llama.attention.causal', False),
        'llama.attention.sliding_window': lambda w: w.add_uint32('llama.attention.sliding_window', 16),
        'llama.attention.value_length': lambda w: w.add_uint32('llama.attention.value_length', 4),
        'llama.rope.scaling.type': lambda w: w.add_string('llama.rope.scaling.type', 'longrope'),
        'llama.not.yet.known': lambda w: w.add_uint32('llama.not.yet.known', 1)}


@pytest.mark.parametrize('name', LEFT)
def test_what_a_file_holds_and_is_not_read_is_named(with_more, name):
    with pytest.raises(ValueError) as error: gguf_config(with_more(LEFT[name]))
    assert name in str(error.value) and '\n' not in str(error.value)


def test_the_host_of_such_a_file_is_refused_in_one_line(with_more):
    assert 'blk.0.attn_q.bias' in wrong_lines(lambda: load_host(with_more(LEFT['blk.0.attn_q.bias'])))


@pytest.mark.parametrize('key, value', [('attention.key_length', 8), ('attention.value_length', 8), ('logit_scale', 1.),
                                        ('attention.sliding_window', 512), ('attention.sliding_window', 0),
                                        ('expert_count', 0), ('attention.clamp_kqv', 0.)])
def test_what_changes_nothing_is_no_reason_to_refuse(tmp_path, key, value):
    gguf_config(write_tiny_gguf(tmp_path / 'x.gguf', about={key: value}))


def turned(config): return {k: v for k, v in config.rope_parameters.items() if k != 'rope_theta'}


def test_positions_that_metadata_scale_are_scaled(with_more):
    def linear(w):
        w.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        w.add_rope_scaling_factor(4.)
    assert turned(gguf_config(with_more(linear))) == {'rope_type': 'linear', 'factor': 4.}
    def yarn(w):
        w.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        w.add_rope_scaling_factor(4.)
        w.add_rope_scaling_orig_ctx_len(128)
    assert turned(gguf_config(with_more(yarn))) == {'rope_type': 'yarn', 'factor': 4.,
                                                    'original_max_position_embeddings': 128}


@pytest.mark.parametrize('factor, original', [(8., 8192), (32., 8192), (32., 512)])
def test_factors_of_frequencies_are_those_of_llama_3(with_more, factor, original):
    waves = 2 * np.pi * 5e5 ** (np.arange(0, 64, 2) / 64)
    factors = _divisors(waves, factor, original).astype(np.float32)
    how = dict(kind='F32', hidden=256, about={'rope.freq_base': 5e5, 'context_length': 1 << 17})
    host = load_host(with_more(lambda w: w.add_tensor('rope_freqs.weight', factors), **how), device='cpu')
    assert torch.allclose(host.model.model.rotary_emb.inv_freq, torch.from_numpy(2 * np.pi / waves / factors).float(),
                          rtol=1e-5)


def test_factors_that_no_rotation_has_are_refused(with_more):
    factors = np.array([1, 3, 2, 8], np.float32)
    with pytest.raises(ValueError, match='rope_freqs.weight'):
        gguf_config(with_more(lambda w: w.add_tensor('rope_freqs.weight', factors)))


def test_a_tokenizer_that_cuts_otherwise_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(gguf.GGUFWriter, 'add_tokenizer_pre',
                        lambda self, pre: self.add_string('tokenizer.ggml.pre', 'of-tomorrow'))
    with pytest.raises(ValueError, match='of-tomorrow'): gguf_config(write_tiny_gguf(tmp_path / 'x.gguf'))


# --- folders

@pytest.fixture
def folder(tmp_path):
    host = tiny_host('llama')
    host.model.save_pretrained(tmp_path / 'model')
    host.tokenizer.save_pretrained(tmp_path / 'model')
    return tmp_path / 'model'


@pytest.mark.parametrize('name, shape', [('model.layers.0.self_attn.q_proj.bias', (32,)),
                                         ('model.layers.1.self_attn.v_proj.lora_A.weight', (4, 32)),
                                         ('model.layers.2.mlp.up_proj.weight', (96, 32)), ('score.weight', (2, 32)),
                                         ('model.layers.0.self_attn.q_norm.weight', (8,))])
def test_a_weight_without_a_place_is_named(folder, name, shape):
    file = folder / 'model.safetensors'
    save_file(load_file(file) | {name: torch.ones(shape)}, file, {'format': 'pt'})
    assert name in wrong_lines(lambda: load_host(folder))


def test_old_folders_hold_frequencies_and_are_read(folder):
    file = folder / 'model.safetensors'
    save_file(load_file(file) | {'model.layers.0.self_attn.rotary_emb.inv_freq': torch.ones(4)}, file, {'format': 'pt'})
    load_host(folder)


def test_a_weight_of_another_shape_is_refused(folder):
    file = folder / 'model.safetensors'
    save_file(load_file(file) | {'model.layers.0.mlp.up_proj.weight': torch.ones(95, 32)}, file, {'format': 'pt'})
    wrong_lines(lambda: load_host(folder))


@pytest.mark.parametrize('key, value', [('logit_scale', .25), ('final_logit_softcapping', 30.), ('sliding_window', 16),
                                        ('embedding_multiplier', 12), ('clip_qkv', 8)])
def test_a_key_of_another_architecture_is_named(folder, key, value):
    config = json.loads((folder / 'config.json').read_text())
    (folder / 'config.json').write_text(json.dumps(config | {key: value}))
    assert key in wrong_lines(lambda: load_host(folder))
    (folder / 'config.json').write_text(json.dumps(config | {key: None, 'logit_scale': 1., 'sliding_window': 512}))
    load_host(folder)


def test_an_adapter_beside_the_weights_is_not_put_around_them(folder):
    (folder / 'adapter_config.json').write_text('{"peft_type": "LORA", "target_modules": ["q_proj"]}')
    assert 'adapter_config.json' in wrong_lines(lambda: load_host(folder))


# --- adapters

def test_no_setting_of_peft_that_changes_the_adapter_is_passed_over(tmp_path):
    write_peft(tmp_path / 'a', {'q': (torch.ones(2, 4), torch.ones(4, 2))}, alpha=4., targets=('q',))
    file = tmp_path / 'a' / 'adapter_config.json'
    usual, inert = json.loads(file.read_text()), {'r', 'lora_alpha', 'peft_type', *INERT_SETTINGS}
    read_peft(tmp_path / 'a', alpha=4.)
    settings = {f.name for f in dataclasses.fields(peft.LoraConfig)} - inert
    assert {'use_dora', 'rank_pattern', 'alpha_pattern', 'modules_to_save', 'bias', 'lora_bias',
            'layer_replication', 'trainable_token_indices'} <= settings
    for key in settings:
        file.write_text(json.dumps(usual | {key: 'all' if key == 'bias' else {'q': 1}}))
        with pytest.raises(ValueError, match=key): read_peft(tmp_path / 'a', alpha=4.)


@pytest.mark.parametrize('key', ['base_model.model.q.bias', 'base_model.model.q.lora_magnitude_vector',
                                 'base_model.model.head.weight', 'base_model.model.q.lora_embedding_A'])
def test_a_tensor_of_an_adapter_that_is_no_factor_is_named(tmp_path, key):
    write_peft(tmp_path / 'a', {'q': (torch.ones(2, 4), torch.ones(4, 2))}, alpha=4., targets=('q',))
    file = tmp_path / 'a' / 'adapter_model.safetensors'
    save_file(load_file(file) | {key: torch.ones(4)}, file, {'format': 'pt'})
    with pytest.raises(ValueError, match=key): read_peft(tmp_path / 'a', alpha=4.)
