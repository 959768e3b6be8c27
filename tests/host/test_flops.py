"""What is multiplied is counted: experts that a token is sent to, and no tower that sees"""
import pytest
from torch.utils.flop_counter import FlopCounterMode
import torch

from evolora.experiments.host_zoo import _quiet, zoo_host
from evolora.host.flops import FlopMeter


@pytest.mark.parametrize('name', ['qwen3', 'gpt2', 'mpt', 'falcon'])
def test_the_zoo_costs_what_torch_counts(name):
    with _quiet():
        host = zoo_host(name)
        host.model.set_attn_implementation('eager')
        with FlopCounterMode(display=False) as counted, torch.no_grad():
            host.model(input_ids=torch.arange(3, 35)[None], use_cache=False, logits_to_keep=1)
    assert host.meter.forward(32, logits=1) == pytest.approx(counted.get_total_flops(), rel=.05)


@pytest.mark.parametrize('name', ['mixtral', 'qwen3_moe', 'gpt_oss', 'granitemoe', 'jetmoe', 'gemma4, experts', 'jamba',
                                  'recurrent_gemma'])
def test_experts_cost_what_torch_counts(name):
    "Stacked weights: of experts those that a token is sent to, of others all"
    with _quiet():
        host = zoo_host(name)
        host.model.set_attn_implementation('eager')
        host.model.set_experts_implementation('eager')      # whose products torch sees one by one
        with FlopCounterMode(display=False) as counted, torch.no_grad():
            host.model(input_ids=torch.arange(3, 35)[None], use_cache=False, logits_to_keep=1)
    assert host.meter.forward(32, logits=1) == pytest.approx(counted.get_total_flops(), rel=.15)


def test_a_model_that_does_not_say_how_many_experts_is_refused():
    with _quiet(): host = zoo_host('mixtral')
    host.config.num_experts_per_tok = host.config.moe_k = 0
    with pytest.raises(ValueError, match='mixtral stacks experts .* got none'): FlopMeter.of(host.model)


def test_what_sees_costs_nothing_as_long_as_nothing_is_shown():
    with _quiet(): host = zoo_host('gemma3')
    tower = [n for n, m in host.model.named_modules() if isinstance(m, torch.nn.Linear) and 'vision' in n]
    text = sum(m.weight.numel() for m in host.model.get_decoder().modules() if isinstance(m, torch.nn.Linear))
    assert tower and host.meter.linear == text


def test_layers_of_different_widths_are_summed():
    with _quiet(): host = zoo_host('gemma4')
    widths = [c.num_attention_heads * c.head_dim for c in host.config.get_text_config().per_layer_config]
    assert len(set(widths)) == 2 and host.meter.attention == 4 * sum(widths)
