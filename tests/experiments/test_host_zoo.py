"""Nearly seventy architectures: each answers as transformers does, learns as autograd says, and exports or says why."""
import pytest
import torch

from evolora.experiments import host_zoo
from evolora.experiments.host_zoo import ZOO, zoo_host, zoo_row, zoo_targets
from evolora.organelles import learning_rules, lessons
from evolora.organelles.learning_trial import check_learning
from evolora.organelles.population import Population

# peft 0.21 keeps away from the fused kernels of these, or takes their dense maps for those of experts.
UNEXPORTED = {'mamba', 'mamba2', 'falcon_h1', 'deepseek_v2', 'deepseek_v3', 'dots1', 'qwen3_next'}


@pytest.mark.parametrize('name', ZOO)
def test_it_answers_learns_and_exports(name):
    with host_zoo._quiet(): row = zoo_row(name)
    assert row['like_generate'] and row['learns'] == 'right', row
    assert max(row[x] for x in ('answering', 'reading', 'gradient')) < 1e-3, row
    assert row['export'].split(':')[0] == ('refused' if name in UNEXPORTED else 'same'), row


def adapted(name): return Population(zoo_host(name), capacity=2, max_rank=4, targets=('all-linear',))


def test_what_is_there_is_enough():
    rows = [dict(like_generate=True, learns='right', export='same', answering=0., reading=0., gradient=0.)] * len(ZOO)
    assert len(ZOO) >= 60 and all(t['met'] for t in zoo_targets(rows))
    for bad in ({'like_generate': False}, {'learns': 'wrong'}, {'gradient': .1}, {'export': 'other'}):
        assert not all(t['met'] for t in zoo_targets([*rows, rows[0] | bad]))


def test_a_host_that_forgets_its_scale_is_refused(monkeypatch):
    "Logits by the head alone are what a gradient was once computed from"
    read = learning_rules.Reading.read
    def forgetful(self, trees, **how):
        own = type(self.model).forward
        def bare(model, *args, **keywords):
            scaling, model.config.logits_scaling = model.config.logits_scaling, 1.
            try: return own(model, *args, **keywords)
            finally: model.config.logits_scaling = scaling
        monkeypatch.setattr(type(self.model), 'forward', bare)
        try: return read(self, trees, **how)
        finally: monkeypatch.setattr(type(self.model), 'forward', own)
    monkeypatch.setattr(learning_rules.Reading, 'read', forgetful)
    with pytest.raises(ValueError, match='a host that learns what it should, got granite, where'):
        check_learning(adapted('granite'))


@pytest.mark.parametrize('name', ['mpt', 'bloom', 'gpt_neo', 'mistral'])
def test_a_host_that_takes_no_trees_would_be_refused_with_them(name, monkeypatch):
    monkeypatch.setattr(lessons, 'takes_trees', lambda host, tokens: True)
    monkeypatch.setattr('evolora.organelles.learning_trial.PROMPTS', ('What is 2 + 3?' * 3, 'Sort: c a b' * 3))
    with pytest.raises(ValueError, match='expected a host that'): check_learning(adapted(name))


def test_one_that_breaks_off_is_refused_by_its_name(monkeypatch):
    population = adapted('opt')
    monkeypatch.setattr(learning_rules.Reading, 'read', lambda *_, **__: torch.zeros(1) @ torch.zeros(2))
    with pytest.raises(ValueError, match='adapters can learn on, got opt, where a first lesson ends in RuntimeError'):
        check_learning(population)


def test_towers_heads_and_routers_carry_no_adapters():
    for name in ('qwen2_moe', 'deepseek_v3', 'bert' if 'bert' in ZOO else 'opt', 'gpt2'):
        host = zoo_host(name)
        names = Population(host, capacity=1, max_rank=2, targets=('all-linear',)).shapes
        assert names and not any(n.split('.')[-1] in ('gate', 'lm_head', 'shared_expert_gate') for n in names)


def test_llamas_maps_are_asked_for_by_default_and_others_found():
    for name, some in (('gpt2', 'c_attn'), ('phi3', 'qkv_proj'), ('mpt', 'Wqkv')):
        host = zoo_host(name)
        population = Population(host, capacity=1, max_rank=2, targets=(
            'q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'), blocks=1)
        assert some in population.kinds
    with pytest.raises(ValueError, match="target 'o_proj' names no linear map"):
        Population(zoo_host('gpt2'), targets=('o_proj',))
