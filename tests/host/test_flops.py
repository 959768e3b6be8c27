"""What is multiplied is counted: experts that a token is sent to, and no tower that sees"""
import pytest
from torch.utils.flop_counter import FlopCounterMode
import torch

from evolora.experiments.host_zoo import _quiet, zoo_host


@pytest.mark.parametrize('name', ['qwen3', 'gpt2', 'mpt', 'falcon'])
def test_the_zoo_costs_what_torch_counts(name):
    with _quiet():
        host = zoo_host(name)
        host.model.set_attn_implementation('eager')
        with FlopCounterMode(display=False) as counted, torch.no_grad():
            host.model(input_ids=torch.arange(3, 35)[None], use_cache=False, logits_to_keep=1)
    assert host.meter.forward(32, logits=1) == pytest.approx(counted.get_total_flops(), rel=.05)


@pytest.mark.parametrize('name, sent', [('mixtral', 2), ('qwen3_moe', 2), ('llama4_text', 1), ('gpt_oss', 2)])
def test_experts_count_as_often_as_a_token_is_sent_to_them(name, sent):
    with _quiet(): host = zoo_host(name)
    experts = [p for n, p in host.model.named_parameters() if 'experts.' in n and p.dim() == 3]
    plain = sum(m.weight.numel() for m in host.model.modules() if isinstance(m, torch.nn.Linear))
    plain -= host.model.get_output_embeddings().weight.numel()
    each = sum(p[0].numel() for p in experts)
    assert experts and host.meter.linear == plain + sent * each < plain + sum(p.numel() for p in experts)


def test_what_sees_costs_nothing_as_long_as_nothing_is_shown():
    with _quiet(): host = zoo_host('gemma3')
    tower = [n for n, m in host.model.named_modules() if isinstance(m, torch.nn.Linear) and 'vision' in n]
    text = sum(m.weight.numel() for m in host.model.get_decoder().modules() if isinstance(m, torch.nn.Linear))
    assert tower and host.meter.linear == text


def test_layers_of_different_widths_are_summed():
    with _quiet(): host = zoo_host('gemma4')
    widths = [c.num_attention_heads * c.head_dim for c in host.config.get_text_config().per_layer_config]
    assert len(set(widths)) == 2 and host.meter.attention == 4 * sum(widths)
