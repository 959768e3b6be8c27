"""Blueprints of hosts: counts without weights equal those with them, and scaled rates make hosts comparable."""
from dataclasses import replace

import numpy as np
import pytest
import torch

from evolora.assimilation.merge_test import MergeConfig
from evolora.ecology.config import EcologyConfig, load_config
from evolora.ecology.cost_forecast import (PROFILES, _Full, _lesson, _scored, _scored_at_once, _scoring, blueprint,
                                           forecast, kept_for_learning, priced_for, profile_of)
from evolora.ecology.ecology import Ecology
from evolora.ecology.variation import VariationConfig
from evolora.economy.market import MarketConfig
from evolora.economy.prices import answer_cost
from evolora.host.downloads import KNOWN
from evolora.host.fast_layers import Decoder
from evolora.host.gguf import write_tiny_gguf
from evolora.host.model import ARCHITECTURES, Host, byte_tokenizer, load_host, tiny_host
from evolora.host.names import HUB, host_id, host_source
from evolora.organelles.learning_rules import RULES
from evolora.organelles.lessons import Lesson
from evolora.organelles.population import Population
from evolora.organelles.scoring import score, scoring_flops
from evolora.organelles.updates import PlasticityConfig
from evolora.tasks.curriculum import CurriculumConfig
from evolora.utils.files import digest

every_architecture = pytest.mark.parametrize('architecture', ARCHITECTURES)
every_profile = pytest.mark.parametrize('name', PROFILES)


@pytest.fixture(scope='module')
def embedded(): return load_host('embedded', threads=1)


def small(**changes):
    "Few questions, and few seats"
    return EcologyConfig(**dict(founders=2, capacity=4, cells=['string.sort:1', 'math:1'], max_new_tokens=12,
                                curriculum=CurriculumConfig(copies=4),
                                market=MarketConfig(questions=8, learn_every=1)) | changes)


def save(host, folder):
    host.model.save_pretrained(folder)
    host.tokenizer.save_pretrained(folder)
    return folder


# --- names

def test_every_short_name_has_a_profile():
    assert set(PROFILES) == set(KNOWN) and {n: p.hub for n, p in PROFILES.items() if p.hub} == HUB
    for name, known in KNOWN.items():
        assert (known.hub, known.memory) == (PROFILES[name].hub, 4 * PROFILES[name].weights)


@pytest.mark.parametrize('name', HUB)
def test_a_folder_of_a_short_name_goes_first(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert host_source(name) == HUB[name] and profile_of(name) == profile_of(HUB[name]) == PROFILES[name]
    save(tiny_host(), tmp_path / name)
    assert host_source(name) == (tmp_path / name).resolve() and profile_of(name) is None
    assert load_host(name).id == str((tmp_path / name).resolve())


@every_profile
def test_a_loaded_host_is_known_by_its_id(name):
    assert profile_of(Host(tiny_host().model, byte_tokenizer(), id=HUB.get(name, name))) is PROFILES[name]


def test_a_file_of_a_package_has_its_name(tmp_path, monkeypatch):
    "Whether it is here or not; a folder of that name goes first, and a copy of the file is known by its hash"
    monkeypatch.setenv('EVOLORA_CACHE', str(tmp_path / 'cache'))
    monkeypatch.chdir(tmp_path)
    name, path = 'smollm2-135m-q4', write_tiny_gguf(tmp_path / 'copy.gguf')
    assert host_source(name).name == 'SmolLM2-135M-Instruct.Q4_1.gguf' and host_id(name) == name
    assert profile_of(name) is PROFILES[name] and profile_of('smollm2-135m') is not PROFILES[name]
    assert profile_of(path) is None
    as_if = replace(KNOWN[name], size=path.stat().st_size, sha256=digest(path))
    monkeypatch.setitem(KNOWN, name, as_if)
    host = load_host(path)
    assert profile_of(path) is profile_of(host) is PROFILES[name] and host.id == str(path)
    save(tiny_host(), tmp_path / name)
    assert host_source(name) == tmp_path / name and profile_of(name) is None


def test_the_two_kinds_of_a_host_differ_in_their_weights_only():
    hub, file = (PROFILES[n].model_dump() for n in ('smollm2-135m', 'smollm2-135m-q4'))
    assert {k for k in hub if hub[k] != file[k]} == {'name', 'hub', 'dtype', 'mind'}
    prices = [priced_for(load_config('ecology'), n) for n in ('smollm2-135m', 'smollm2-135m-q4')]
    assert prices[0] == prices[1]


# --- blueprints

@pytest.mark.parametrize('name, weights', [('qwen3-0.6b', 596_049_920), ('gemma-3-270m', 268_098_176),
                                           ('qwen2.5-0.5b', 494_032_768), ('smollm2-135m', 134_515_008),
                                           ('smollm2-135m-q4', 134_515_008), ('smollm2-360m', 361_821_120)])
def test_the_sizes_of_a_profile_make_the_model_that_is_known(name, weights):
    plan = blueprint(name, dtype='bfloat16')
    assert plan.parameters == PROFILES[name].weights == weights
    assert {p.dtype for p in plan.model.parameters()} == {torch.bfloat16} and all(p.is_meta for p in
                                                                                  plan.model.parameters())
    config = plan.config
    assert (config.model_type, config.tie_word_embeddings) == (PROFILES[name].model_type, True)
    assert (config.num_attention_heads, config.num_key_value_heads) == (PROFILES[name].heads, PROFILES[name].kv_heads)


def test_gemma_looks_far_back_in_every_sixth_layer_only():
    config = blueprint('gemma-3-270m').config
    assert config.sliding_window == 512
    assert [i for i, kind in enumerate(config.layer_types) if kind == 'full_attention'] == [5, 11, 17]


@every_architecture
def test_a_blueprint_has_the_shapes_and_costs_of_its_host(architecture, tmp_path):
    host = tiny_host(architecture)
    for plan in (blueprint(host), blueprint(save(host, tmp_path / 'model'))):
        assert (plan.parameters, plan.meter, plan.dtype) == (host.parameters, host.meter, host.dtype)
        assert {n: p.shape for n, p in plan.model.named_parameters()} == {n: p.shape for n, p in
                                                                          host.model.named_parameters()}
    assert blueprint(host).id == host.id


def test_a_blueprint_draws_no_random_numbers():
    torch.manual_seed(7)
    np.random.seed(7)
    ours, theirs = torch.get_rng_state(), np.random.get_state()[1].copy()
    forecast('gemma-3-270m', small())
    assert torch.equal(torch.get_rng_state(), ours) and (np.random.get_state()[1] == theirs).all()


@pytest.mark.parametrize('break_it', [lambda f: (f / 'config.json').write_text('{"model_type": "t5"}'),
                                      lambda f: (f / 'config.json').write_text('['),
                                      lambda f: (f / 'config.json').unlink()])
def test_what_is_no_host_is_one_line(break_it, tmp_path):
    break_it(save(tiny_host(), tmp_path))
    with pytest.raises(ValueError) as e: blueprint(tmp_path)
    assert '\n' not in str(e.value) and str(tmp_path) in str(e.value)


def test_a_dtype_has_a_name():
    for host in (load_host, blueprint): assert host('embedded', dtype='bfloat16').dtype == torch.bfloat16
    for wrong in ('auto', 'int8', 'nn', torch.int8):
        with pytest.raises(ValueError, match='dtype expected'): load_host('embedded', dtype=wrong)


# --- rates

@pytest.mark.parametrize('preset', ['ecology', 'single', 'frozen'])
def test_at_home_nothing_changes(preset, embedded):
    config = load_config(preset)
    assert priced_for(config, 'embedded') is config and priced_for(config, embedded) is config


@every_profile
def test_a_typical_answer_costs_as_much_as_at_home(name):
    config, cost = load_config('ecology'), {}
    for host in ('embedded', name):
        plan, economy = blueprint(host), priced_for(config, host).economy
        cost[host] = answer_cost(economy, plan.meter.answer(plan.prompt, 8) / 1e9, plan.prompt + 8)
    assert cost[name] == pytest.approx(cost['embedded'], rel=1e-9)
    scaled = priced_for(config, name)
    assert 0 < scaled.economy.price_gflop < config.economy.price_gflop / 100
    same = {'price_gflop': 1., 'price_token': 1.}
    assert scaled.economy.model_copy(update=same) == config.economy.model_copy(update=same)
    assert scaled.model_copy(update={'economy': config.economy}) == config


def test_the_price_of_a_token_changes_with_the_frame_only():
    config, n = load_config('ecology'), 20 + 2 + 8
    assert priced_for(config, tiny_host()).economy.price_token == config.economy.price_token
    assert priced_for(config, 'qwen2.5-0.5b').economy.price_token == pytest.approx(
        config.economy.price_token * n / (20 + PROFILES['qwen2.5-0.5b'].frame + 8))


def answered(host, config):
    "The answers of a generation"
    return Ecology(host, config).step().episodes


@every_architecture
def test_a_generation_on_another_host_costs_what_it_would_cost_at_home(architecture, embedded):
    "Answer by answer: the same numbers of tokens, read and written at home, cost the same within a few per cent"
    config, host = small(), tiny_host(architecture, hidden=192, layers=4)
    dear, answers = answered(host, config), answered(host, priced_for(config, host))
    home = Population(embedded, capacity=1, max_rank=8, targets=tuple(config.targets), blocks=config.blocks)
    ours = home.adapter_flops_per_token(home.birth(rank=8).id)
    p, n, cost = np.array([[a[k] for k in ('prompt_tokens', 'new_tokens', 'cost')] for a in answers]).T
    k = config.curriculum.copies
    flops = np.array([embedded.meter.answer(int(x), int(y), copies=k) for x, y in zip(p, n)]) + ours * (p / k + n - 1)
    at_home = answer_cost(config.economy, flops / 1e9, p + n)
    assert cost.sum() == pytest.approx(at_home.sum(), rel=.05)
    assert sum(a['cost'] for a in dear) > 1.2 * cost.sum()


# --- what learning keeps

def taught(host, **where):
    population = Population(host, capacity=2, max_rank=4, **where)
    if not host.device.type == 'meta':
        for _ in range(2): population.birth(rank=4)
    return population


def lesson(rows=12):
    who = [f'o{i // 4 % 2 + 1}' for i in range(rows)]
    return Lesson([f'Say {i // 4}' for i in range(rows)], [[70] * 5] * rows, who, np.ones(rows))


def kept(host, rule, **where):
    return kept_for_learning(taught(host, **{'targets': ('o_proj', 'down_proj')} | where), lesson(), rule)


@every_architecture
def test_only_backprop_keeps_the_blocks_between(architecture):
    host = tiny_host(architecture, layers=6)
    first = ('layers.0.self_attn.o_proj', 'layers.0.mlp.down_proj')
    bytes = {rule: kept(host, rule, targets=first) for rule in RULES}
    assert bytes['node'] <= bytes['hebbian'] < bytes['local'] < bytes['backprop'] / 2
    assert kept(host, 'hebbian') <= 1.1 * bytes['hebbian']             # no block is kept, with however many adapters
    assert kept(host, 'local') > 2 * bytes['local']
    assert kept(host, 'local', blocks=1) == kept(host, 'backprop', blocks=1)
    assert not any(p.requires_grad or p.grad is not None for p in host.model.parameters())


@every_architecture
@pytest.mark.parametrize('rule', RULES)
def test_the_forecast_of_what_a_lesson_keeps(architecture, rule):
    "The forecast reads the same lesson on tensors without numbers; only fused attention may keep less than forecast"
    host, config = tiny_host(architecture), small()
    writers = config.model_copy(update={'targets': ['o_proj', 'down_proj'], 'blocks': None})
    plan = blueprint(host)
    full = _Full(plan, writers)
    real = Population(host, capacity=writers.capacity + 1, max_rank=writers.max_rank, targets=tuple(writers.targets))
    for _ in range(writers.capacity): real.birth(rank=writers.rank)
    task = _lesson(full, writers, 32, 6)
    plan.prompt = len(host.encode(task.prompts[:1])[0])
    planned, found = kept_for_learning(full, task, rule), kept_for_learning(real, task, rule)
    assert found == planned if rule != 'backprop' else found <= planned <= 1.6 * found


# --- what scoring takes

@every_architecture
@pytest.mark.parametrize('blocks', [None, 1])
def test_scoring_is_counted_without_weights_as_with_them(architecture, blocks):
    "Whole hosts and their blueprints, one organelle and several"
    host, config = tiny_host(architecture, layers=3), small(blocks=blocks)
    full, real = _Full(blueprint(host), config), Population(host, capacity=4, max_rank=config.max_rank,
                                                            targets=tuple(config.targets), blocks=blocks)
    for _ in range(4): real.birth(rank=config.rank)
    question, new = 'Sort the letters: d b a c', 6
    full.host.prompt = len(host.encode([question])[0])
    for k in (1, 2, 4):
        scored = score(real, [question], [[70] * new], real.ids[:k])
        assert _scoring(full, new, k) == pytest.approx(scored.flops[0], rel=1e-9)
        alone = scoring_flops(real, [question], host.encode([question]), [[70] * new], real.ids[:k], None, shared=False)
        assert scored.alone[0] == pytest.approx(alone[0], rel=1e-9), 'what a host without shared blocks is billed'


@pytest.mark.parametrize('changes, when', [
    ({}, ['a generation', 'a seat', 'a census', 'an account']),
    ({'variation': VariationConfig(every=0)}, ['a generation', 'a seat']),
    ({'variation': VariationConfig(selection='lot')}, ['a generation', 'a seat', 'a census', 'an account']),
    ({'market': MarketConfig(recruit=False)}, ['a generation', 'a census', 'an account']),
    ({'founders': 1, 'capacity': 1, 'variation': VariationConfig(every=0), 'market': MarketConfig(recruit=False)}, [])])
def test_what_is_never_scored_is_not_forecast(changes, when):
    assert [name for name, *_ in _scored(small(**changes))] == when
    table = forecast('embedded', small(**changes))
    assert [w.removeprefix('work: score, ') for w in table.index if 'work: score' in w] == when
    assert (table.value['memory: scoring'] > 0) == bool(when)


@pytest.mark.parametrize('capacity, met, questions', [(3, 64, 2), (12, 64, 4), (40, 512, 8), (2, 4, 64), (700, 8, 2)])
def test_as_many_rows_of_the_vocabulary_as_scoring_holds_at_once(embedded, monkeypatch, capacity, met, questions):
    rows, logits = [], Decoder.logits
    monkeypatch.setattr(Decoder, 'logits', lambda self, x: rows.append(len(x)) or logits(self, x))
    config = small(founders=1, capacity=capacity, market=MarketConfig(questions=questions, met=met))
    population, new = Population(embedded, capacity=capacity, max_rank=1, blocks=1), 3
    for _ in range(capacity): population.birth(rank=1)
    prompts = [f'Sort the letters: {i:04}' for i in range(met)]
    text = len(embedded.encode(prompts[:1])[0]) + new - 1
    for n, k in ((min(questions, config.market.round), capacity), (met, capacity + 1)):
        score(population, prompts[:n], [[70] * new] * n, [*population.ids, None][:k])
    assert max(rows) == _scored_at_once(config, text, 8192) * new


# --- the forecast

def test_the_forecast_knows_what_is_there(embedded):
    config = load_config('ecology')
    found, ecology = forecast('embedded', config, dtype='float32').value, Ecology(embedded, config)
    population = ecology.population
    assert found['parameters: the host'] == embedded.parameters
    assert found['parameters: an organelle'] == population.parameters('o1')
    stacks = [s for p in (population, ecology.examiner.scratch) for s in (p.stack.A, p.stack.B)]
    assert found['memory: adapters'] == sum(x.nbytes for stack in stacks for x in stack.values())
    moments = ecology.plasticity.state()['moments']
    assert found['memory: moments of learning'] == sum(x.nbytes for x in moments.values())
    assert found['memory: the host'] == sum(p.nbytes for p in embedded.model.parameters())


@pytest.mark.parametrize('preset, rule', [('ecology', 'local'), ('ecology', 'node'), ('single', 'backprop'),
                                          ('single', 'es'), ('frozen', 'none')])
def test_a_lived_generation_is_of_the_size_that_was_forecast(embedded, preset, rule):
    config = load_config(preset)
    config = config.model_copy(update={'plasticity': config.plasticity.model_copy(update={'rule': rule})})
    found, lived = forecast('embedded', config).value, Ecology(embedded, config).step().row
    for part in ('play', 'learn'):
        planned = found[f'work: {part}, a generation'] / 1e9
        if lived['gflops'][part]: assert .5 < planned / lived['gflops'][part] < 2, part
        else: assert planned == 0, part


def test_the_forecast_on_another_embedded_host():
    host, config = load_host('habits', threads=1), load_config('worlds')
    table, record = forecast(host, config), Ecology(host, config).step()
    assert abs(table.value['work: play, a generation'] / 1e9 / record.row['gflops']['play'] - 1) < .2


def test_a_full_ecology_scores_what_was_forecast_at_most(embedded):
    "All seats taken, and each organelle believed enough to be awake"
    config = small(founders=4, founder_step=.01, variation=VariationConfig(every=0),
                   market=MarketConfig(questions=8, met=8, asleep=0., recruit=False))
    ecology, new = Ecology(embedded, config), 8
    record = ecology.step()
    tokens = [e['prompt_tokens'] for e in record.episodes], [e['new_tokens'] for e in record.episodes]
    question, new = (round(np.mean(x)) for x in tokens)
    planned = forecast('embedded', config, question=question - 2, new=new).value['work: score, a generation'] / 1e9
    # All but the one that answered; they are fewer where one organelle answered a whole round.
    assert .5 * planned < record.row['gflops']['score'] < 1.15 * planned


def test_tests_of_merges_get_a_share_of_play_and_learn():
    value = lambda share: forecast('embedded', small(merging=MergeConfig(share=share))).value
    found = value(.25)
    assert found['work: tests of merges'] == pytest.approx(.25 * (found['work: play, a generation']
                                                                  + found['work: learn, a generation']))
    assert not any('merges' in what for what in value(0.).index)


def test_a_rate_is_what_an_answer_costs(embedded):
    config = small()
    found, plan = forecast('embedded', config), blueprint('embedded')
    own = _Full(plan, config).adapter_flops_per_token('o1') * plan.meter.passed(plan.prompt, 8)
    cost = answer_cost(config.economy, (plan.meter.answer(plan.prompt, 8) + own) / 1e9, plan.prompt + 8)
    assert found.value['rates: an answer'] == pytest.approx(cost) and found.unit['rates: an answer'] == 'reward'


def test_half_the_width_is_half_the_memory():
    wide, thin = (forecast('qwen2.5-0.5b', small(), dtype=d).value for d in ('float32', 'bfloat16'))
    for what in ('the host', 'keys and values'): assert wide[f'memory: {what}'] == 2 * thin[f'memory: {what}']
    for what in ('adapters', 'moments of learning'): assert wide[f'memory: {what}'] == thin[f'memory: {what}']


def test_smaller_passes_take_less_memory():
    config = load_config('ecology')
    less = config.model_copy(update={'batch': 4, 'plasticity': config.plasticity.model_copy(update={'chunk': 64})})
    wide, thin = (forecast('qwen3-0.6b', c, dtype='bfloat16').value for c in (config, less))
    for what in ('keys and values', 'logits', 'kept for learning'):
        assert thin[f'memory: {what}'] < wide[f'memory: {what}'] / 2
    works = wide.index[wide.index.str.startswith('work')]
    assert (thin[works] == wide[works]).all()


# --- half precision

@every_architecture
@pytest.mark.parametrize('device', ['cpu', pytest.param('cuda', marks=pytest.mark.skipif(
    not torch.cuda.is_available(), reason='there is no cuda here'))])
@pytest.mark.parametrize('rule', ['local', 'backprop'])
def test_a_generation_in_bfloat16(architecture, device, rule, monkeypatch):
    "A random host is never right, so every other answer is called good"
    host = tiny_host(architecture)
    host.model.to(device, torch.bfloat16)
    config = small(blocks=None, plasticity=PlasticityConfig(rule=rule))
    ecology = Ecology(host, priced_for(config, host))
    monkeypatch.setattr(ecology.plasticity, 'advantages', lambda reward, *_: 1. - 2 * (np.arange(len(reward)) % 2))
    before = ecology.population.weights_hash()
    records = ecology.run(2, log=None)
    assert host.dtype == torch.bfloat16 and host.device.type == device
    assert records[-1].row['gflops']['learn'] > 0 and ecology.population.weights_hash() != before
    for stack in (ecology.population.stack.A, ecology.population.stack.B):
        assert all(x.dtype == torch.float32 and x.isfinite().all() for x in stack.values())
    assert ecology.market.audit().balanced and np.isfinite(records[-1].row['kl_from_host'])
