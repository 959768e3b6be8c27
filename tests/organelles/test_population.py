"""What no lesson shows of `adapters` and `population`: parity everywhere, hostile files, no traces."""
import gc
import hashlib
import json
import math
from copy import deepcopy

import numpy as np
import peft
import pytest
import safetensors.torch
import torch

from evolora.host.model import tiny_host
from evolora.organelles.population import Population
from evolora.organelles.traits import Organelle, Traits

ARCHITECTURES = ('qwen3', 'qwen2', 'gemma3', 'llama')


@pytest.fixture(scope='module')
def host(): return tiny_host()


def draw(pop, rank, seed=0, size=.2):
    rng = np.random.default_rng(seed)
    normal = lambda *shape: torch.from_numpy(rng.standard_normal(shape)).float()
    return {n: (normal(rank, d_in) / d_in**.5, size * normal(d_out, rank)) for n, (d_out, d_in) in pop.shapes.items()}


@pytest.fixture
def pop(host):
    one = Population(host, capacity=5, max_rank=6)
    for rank in (1, 3, 6): one.birth(draw(one, rank, seed=rank), operator='by hand')
    return one


def batch(rows, tokens=10, vocabulary=250, seed=0):
    rng = np.random.default_rng(seed)
    ids = torch.from_numpy(rng.integers(1, vocabulary, (rows, tokens)))
    padding = torch.from_numpy(rng.integers(0, tokens - 1, rows))
    return ids, (torch.arange(tokens) >= padding[:, None]).long()


def with_peft(pop, id, folder, ids, mask):
    pop.export_peft(id, folder)
    model = peft.PeftModel.from_pretrained(deepcopy(pop.host.model), folder).eval()
    with torch.no_grad():
        return model(ids, attention_mask=mask, position_ids=(mask.cumsum(-1) - 1).clamp(min=0)).logits


@pytest.mark.parametrize('targets',
                         [('o_proj', 'down_proj'), ('q_proj', 'v_proj', 'up_proj'), ('layers.0.mlp.down_proj',)])
@pytest.mark.parametrize('architecture', ARCHITECTURES)
def test_logits_equal_peft(architecture, targets, tmp_path):
    host = tiny_host(architecture)
    pop = Population(host, capacity=4, max_rank=8, targets=targets)
    for rank in (1, 3, 8): pop.birth(draw(pop, rank, seed=rank))
    who = ['o3', 'o1', None, 'o2', 'o3', 'o3', None, 'o1']
    ids, mask = batch(len(who))
    ours = pop.logits(ids, mask, organelles=who)
    for id in pop.ids:
        mine = torch.tensor([w == id for w in who])
        theirs = with_peft(pop, id, tmp_path/id, ids, mask)
        seen = mask[mine].bool()
        assert (ours[mine] - theirs[mine])[seen].abs().max() < 1e-5
        bare = pop.logits(ids, mask, organelles=[None] * len(who))
        assert (ours[mine] - bare[mine])[seen].abs().max() > 1e-3      # the adapters do something to agree about


@pytest.mark.parametrize('architecture', ARCHITECTURES)
def test_rows_without_an_organelle_are_the_host_bit_for_bit(architecture):
    host = tiny_host(architecture)
    ids, mask = batch(8)
    position_ids = (mask.cumsum(-1) - 1).clamp(min=0)
    with torch.no_grad():
        untouched = host.model(ids, attention_mask=mask, position_ids=position_ids, use_cache=False).logits
    pop = Population(host, capacity=2)
    pop.birth(draw(pop, 4)), pop.birth(draw(pop, 2))
    for who in (['o1', None] * 4, [None, 'o1', 'o2', None, None, 'o2', 'o1', 'o1'], ['o1'] * 4 + [None] * 4,
                [None] * 8):
        logits = pop.logits(ids, mask, organelles=who)
        for i, w in enumerate(who): assert torch.equal(logits[i], untouched[i]) == (w is None)


def test_a_bfloat16_host_keeps_float32_adapters():
    host = tiny_host()
    full = Population(host, capacity=1)
    full.birth(draw(full, 3))
    ids, mask = batch(4)
    exact = full.logits(ids, mask, organelles=['o1'] * 4)
    host.model.to(torch.bfloat16)
    bare, mixed = (full.logits(ids, mask, organelles=who) for who in ([None] * 4, ['o1', None, 'o1', 'o1']))
    assert torch.equal(mixed[1], bare[1]) and full.factors('o1')[next(iter(full.shapes))][0].dtype == torch.float32
    assert (mixed - exact)[0][mask[0].bool()].abs().mean() < .2 * (bare - exact)[0][mask[0].bool()].abs().mean()


def test_order_and_grouping_of_rows_do_not_matter(pop):
    ids, mask = batch(12)
    who = ['o1', 'o2', 'o3'] * 4
    mixed = pop.logits(ids, mask, organelles=who)
    order = torch.tensor(sorted(range(12), key=lambda i: who[i]))
    grouped = pop.logits(ids[order], mask[order], organelles=[who[i] for i in order])
    assert (mixed[order] - grouped).abs().max() < 1e-5
    for i in (0, 4, 8):
        alone = pop.logits(ids[i:i + 1], mask[i:i + 1], organelles=[who[i]])
        assert (mixed[i] - alone[0]).abs().max() < 1e-5


def test_generate_gives_each_row_its_own_answer_and_bill(pop):
    prompts, who = ['a', 'bcd', 'a', 'a longer one'], ['o2', 'o3', None, 'o2']
    made = pop.generate(prompts, who, max_new_tokens=5, temperature=0)
    bare = pop.host.generate(prompts, max_new_tokens=5, temperature=0)
    assert made.tokens[2] == bare.tokens[2] and made.alone[2] == bare.alone[2]
    for i, (p, w) in enumerate(zip(prompts, who)):
        alone = pop.generate([p], [w], max_new_tokens=5, temperature=0)
        assert alone.tokens[0] == made.tokens[i]
        expected = pop.host.meter.answer(int(made.prompt_tokens[i]), int(made.new_tokens[i]))
        passed = made.prompt_tokens[i] + max(made.new_tokens[i] - 1, 0)
        assert made.flops[i] == expected + passed * (0 if w is None else pop.adapter_flops_per_token(w))
    sizes = sum(sum(s) for s in pop.shapes.values())
    assert pop.adapter_flops_per_token('o2') == 2 * 3 * sizes and pop.parameters('o3') == 6 * sizes


def test_copies_share_the_reading_of_their_question_and_nothing_else(pop):
    prompts, who = ['abcdef'] * 4 + ['abcdef'] + ['b'], ['o2'] * 4 + ['o3', 'o2']
    made = pop.generate(prompts, who, max_new_tokens=5, seeds=range(6))
    read = len(pop.host.encode(['abcdef'])[0])
    per_token = pop.adapter_flops_per_token('o2')
    once = pop.host.meter.forward(read, logits=1) + read * per_token
    assert made.alone[:4].sum() - made.flops[:4].sum() == pytest.approx(3 * once)
    assert made.flops[4:].tolist() == made.alone[4:].tolist()       # another organelle, another question


@pytest.mark.parametrize('rows', [1, 3, 5])
def test_wrong_number_of_rows(pop, rows):
    ids, mask = batch(rows)
    with pytest.raises(ValueError, match=f'expected a batch of 2 rows.*got input of shape \\({rows},'):
        pop.logits(ids, mask, organelles=['o1', None])


def test_an_error_inside_rows_leaves_the_host_bare(pop):
    ids, _ = batch(2)
    bare = pop.host.model(ids).logits
    with pytest.raises(ZeroDivisionError):
        with pop.rows(['o1', 'o2']): 1 / 0
    assert torch.equal(pop.host.model(ids).logits, bare)
    with pop.rows(['o1', 'o2']): assert not torch.equal(pop.host.model(ids).logits, bare)


def test_two_populations_never_answer_at_once(pop):
    other = Population(pop.host, capacity=1)
    other.birth(draw(other, 2))
    with pytest.raises(RuntimeError, match='already answering'):
        with pop.rows(['o1']), other.rows(['o1']): pass
    with pytest.raises(RuntimeError, match='already answering'):
        with pop.rows(['o1']), pop.rows(['o1']): pass
    ids, mask = batch(2)
    alone = pop.logits(ids, mask, organelles=['o1', 'o2'])
    assert torch.equal(pop.logits(ids, mask, organelles=['o1', 'o2']), alone)     # attached twice, counted once


def test_nothing_stays_attached(pop):
    count = lambda: sum(len(m._forward_hooks) for m in pop.host.model.modules())
    with pop.rows(['o1']): assert count() == len(pop.shapes)
    assert count() == 0
    with pytest.raises(ZeroDivisionError), pop.rows(['o1']): 1 / 0
    pop.generate(['a'], ['o1'], max_new_tokens=2)
    assert count() == 0


def test_the_host_stays_frozen(pop, tmp_path):
    before = pop.host.weights_hash()
    pop.generate(['a', 'b'], ['o1', 'o2'], max_new_tokens=3)
    pop.write('o1', draw(pop, 2))
    pop.save(tmp_path/'p')
    assert pop.host.weights_hash() == before and not any(p.requires_grad for p in pop.host.model.parameters())


def test_ids_are_never_reused_and_slots_are(pop):
    pop.death('o1')
    assert 'o1' not in pop and len(pop) == 2
    assert not any(s[0].any() for s in (*pop.stack.A.values(), *pop.stack.B.values()))
    assert [pop.birth().slot for _ in range(3)] == [0, 3, 4] and pop.ids == ['o2', 'o3', 'o4', 'o5', 'o6']
    with pytest.raises(ValueError, match='full at capacity 5'): pop.birth()
    pop.death('o6')
    assert pop.birth().id == 'o7'                                      # a refused birth takes no number


def test_a_narrower_heir_of_a_slot_inherits_nothing(pop):
    pop.death('o3')
    heir = pop.birth(draw(pop, 2, seed=9))
    assert heir.slot == 2 and not any(s[2, 2:].any() for s in (*pop.stack.A.values(), *pop.stack.B.values()))
    pop.write('o2', draw(pop, 1, seed=8))
    assert pop['o2'].rank == 1 and not any(s[1, 1:].any() for s in (*pop.stack.A.values(), *pop.stack.B.values()))


def test_founders_repeat_and_are_noops(host):
    one, two = Population(host), Population(host)
    assert torch.equal(torch.cat([A for A, _ in one.factors(one.birth().id).values()], 1),
                       torch.cat([A for A, _ in two.factors(two.birth().id).values()], 1))
    assert one.is_noop('o1') and one.norms().delta_norm['o1'] == 0
    one.birth()
    assert one.weights_hash() != two.weights_hash()
    one.write('o2', draw(one, 2))
    assert not one.is_noop('o2')
    dense = torch.cat([d.flatten() for d in one.delta('o2').values()]).norm().item()
    assert one.norms().delta_norm['o2'] == pytest.approx(dense, rel=1e-5)


def test_cancelling_directions_are_a_noop(pop):
    factors = draw(pop, 2)
    pop.write('o1', {n: (A[:1].repeat(2, 1), torch.cat([B[:, :1], -B[:, :1]], 1)) for n, (A, B) in factors.items()})
    assert pop.is_noop('o1')


def test_delta_is_what_the_forward_pass_adds(pop):
    host = deepcopy(pop.host.model)
    with torch.no_grad():
        for n, d in pop.delta('o2').items(): host.get_submodule(n).weight += d
    ids, mask = batch(3)
    with torch.no_grad():
        merged = host(ids, attention_mask=mask, position_ids=(mask.cumsum(-1) - 1).clamp(min=0)).logits
    assert (merged - pop.logits(ids, mask, organelles=['o2'] * 3))[mask.bool()].abs().max() < 1e-5


def _without(f): f.pop(next(iter(f)))
def _unknown(f): f['lm_head'] = next(iter(f.values()))
def _nan(f): next(iter(f.values()))[1][0, 0] = float('nan')
def _infinite(f): next(iter(f.values()))[0][0, 0] = float('inf')
def _flipped(f): n = next(iter(f)); f[n] = f[n][::-1]
def _ragged(f): n = next(iter(f)); f[n] = (f[n][0], f[n][1][:, :1])


@pytest.mark.parametrize('spoil, message',
                         [(_without, 'is missing'), (_unknown, "factors name 'lm_head'"), (_nan, 'finite'),
                          (_infinite, 'finite'), (_flipped, 'rank must be'), (_ragged, 'expected A')])
def test_bad_factors_change_nothing(pop, spoil, message):
    factors = draw(pop, 2)
    spoil(factors)
    before = pop.weights_hash(), pop.births, pop.ids
    with pytest.raises(ValueError, match=message): pop.birth(factors)
    with pytest.raises(ValueError, match=message): pop.write('o2', factors)
    assert (pop.weights_hash(), pop.births, pop.ids) == before


@pytest.mark.parametrize('keywords, message', [({'rank': 0}, 'got 0'), ({'rank': 7}, 'got 7')])
def test_bad_ranks(pop, keywords, message):
    with pytest.raises(ValueError, match=message): pop.birth(**keywords)
    with pytest.raises(ValueError, match='got 7'): pop.birth(draw(pop, 7))
    with pytest.raises(ValueError, match='rank 3 was asked for'): pop.birth(draw(pop, 2), rank=3)
    assert pop.births == 3


@pytest.mark.parametrize('keywords, message',
                         [({'capacity': 0}, 'capacity'), ({'max_rank': 0}, 'max_rank'),
                          ({'max_rank': 10**6}, 'thinnest'),
                          ({'alpha': 0}, 'alpha'), ({'alpha': float('nan')}, 'alpha'),
                          ({'targets': ('nope',)}, "'nope'"), ({'targets': ()}, 'at least one')])
def test_bad_populations(host, keywords, message):
    with pytest.raises(ValueError, match=message): Population(host, **keywords)


def test_unknown_ids_name_the_known(pop):
    for call in (pop.__getitem__, pop.death, pop.factors, pop.delta, pop.is_noop, pop.parameters,
                 lambda i: pop.rows([i])):
        with pytest.raises(KeyError, match='known: o1, o2, o3'): call('o9')
    with pytest.raises(ValueError, match='at least one row'): pop.rows([])
    with pytest.raises(ValueError, match='got 1 for 2 prompts'): pop.generate(['a', 'b'], ['o1'])


# peft

@pytest.mark.parametrize('settings',
                         [{'r': 2, 'lora_alpha': 16}, {'r': 6, 'lora_alpha': .5},
                          {'r': 3, 'lora_alpha': 5, 'use_rslora': True}])
@pytest.mark.parametrize('architecture', ARCHITECTURES)
def test_import_what_peft_saved(architecture, settings, tmp_path):
    host = tiny_host(architecture)
    pop = Population(host, max_rank=6)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = peft.get_peft_model(deepcopy(host.model),
                                    peft.LoraConfig(target_modules=['o_proj', 'down_proj'], init_lora_weights=False,
                                                    **settings)).eval()
    model.save_pretrained(tmp_path)
    one = pop.import_peft(tmp_path, generation=4)
    assert (one.rank, one.born, one.operator) == (settings['r'], 4, 'imported')
    ids, _ = batch(2)
    with torch.no_grad(): theirs = model(ids).logits
    ours = pop.logits(ids, organelles=[one.id] * 2)
    # These adapters are large (B is not zero and not small), so the tolerance is relative.
    assert (ours - theirs).abs().max() < 1e-5 * theirs.abs().max().clamp(min=1)


def test_peft_round_trip_is_exact(pop, tmp_path):
    for id in list(pop.ids)[:2]:
        pop.export_peft(id, tmp_path/id)
        twin = pop.import_peft(tmp_path/id)
        for n in pop.shapes: assert all(torch.equal(a, b) for a, b in zip(pop.factors(id)[n], pop.factors(twin.id)[n]))


@pytest.mark.parametrize('change',
                         [{'use_dora': True}, {'bias': 'all'}, {'rank_pattern': {'o_proj': 2}},
                          {'alpha_pattern': {'o_proj': 2}},
                          {'modules_to_save': ['lm_head']}, {'lora_bias': True},
                          {'init_lora_weights': 'pissa'}, {'a_feature_of_tomorrow': {'on': 1}},
                          {'peft_type': 'IA3'}, {'r': 5}, {'r': '3'}, {'lora_alpha': None},
                          {'lora_alpha': -1}])
def test_peft_features_that_are_refused(pop, tmp_path, change):
    pop.export_peft('o2', tmp_path/'x')
    path = tmp_path/'x'/'adapter_config.json'
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError) as e: pop.import_peft(tmp_path/'x')
    assert '\n' not in str(e.value) and str(tmp_path/'x') in str(e.value) and pop.births == 3


@pytest.mark.parametrize('change, match', [
    (lambda x: x.long(), 'expected float32 or .* in int64'), (lambda x: x.bool(), 'in bool'),
    (lambda x: x.to(torch.float8_e4m3fn), 'in float8_e4m3fn'), (lambda x: x * math.nan, 'expected finite factors'),
    (lambda x: x + math.inf, 'expected finite factors'), (lambda x: x.repeat(2, 2), 'of rank')])
def test_numbers_that_are_no_weights_are_refused(pop, tmp_path, change, match):
    pop.export_peft('o2', tmp_path/'x')
    path = tmp_path/'x'/'adapter_model.safetensors'
    tensors = {n: change(x) for n, x in safetensors.torch.load_file(path).items()}
    safetensors.torch.save_file(tensors, path)
    with pytest.raises(ValueError, match=match) as e: pop.import_peft(tmp_path/'x')
    assert '\n' not in str(e.value) and str(tmp_path/'x') in str(e.value) and pop.births == 3


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float64])
def test_adapters_of_other_precision_are_taken(pop, tmp_path, dtype):
    pop.export_peft('o2', tmp_path/'x')
    path = tmp_path/'x'/'adapter_model.safetensors'
    safetensors.torch.save_file({n: x.to(dtype) for n, x in safetensors.torch.load_file(path).items()}, path)
    pop.import_peft(tmp_path/'x')
    for n, (A, B) in pop.factors('o2').items():
        for mine, theirs in zip((A, B), pop.factors('o4')[n]): assert theirs.equal(mine.to(dtype).float())


def test_what_a_population_cannot_take_names_the_adapter(pop, tmp_path):
    other = Population(pop.host, targets=('q_proj',))
    other.birth(rank=2)
    other.export_peft('o1', tmp_path/'q')
    large = Population(pop.host, max_rank=8)
    large.birth(rank=8)
    large.export_peft('o1', tmp_path/'r')
    for name, match in (('q', 'is missing'), ('r', 'rank must be in')):
        with pytest.raises(ValueError, match=match) as e: pop.import_peft(tmp_path/name)
        assert str(e.value).startswith(f'{tmp_path/name}: ')


def test_foreign_peft_folders(pop, tmp_path):
    with pytest.raises(ValueError, match='has no adapter_config.json'): pop.import_peft(tmp_path/'nowhere')
    pop.export_peft('o2', tmp_path/'x')
    (tmp_path/'x'/'adapter_model.safetensors').write_bytes(b'not tensors at all')
    with pytest.raises(ValueError, match='no readable safetensors'): pop.import_peft(tmp_path/'x')
    (tmp_path/'x'/'adapter_model.safetensors').unlink()
    (tmp_path/'x'/'adapter_model.bin').write_bytes(b'a pickle')
    with pytest.raises(ValueError, match='expected a safetensors file'): pop.import_peft(tmp_path/'x')
    (tmp_path/'x'/'adapter_config.json').write_text('[1')
    with pytest.raises(ValueError, match='expected JSON'): pop.import_peft(tmp_path/'x')
    with pytest.raises(ValueError, match='not an empty folder'): pop.export_peft('o2', tmp_path/'x')
    other = Population(pop.host, targets=('q_proj',))
    other.birth(rank=2)
    other.export_peft('o1', tmp_path/'q')
    with pytest.raises(ValueError, match='is missing'): pop.import_peft(tmp_path/'q')


# save and load

@pytest.fixture
def saved(pop, tmp_path):
    pop.death('o2')
    pop.birth(draw(pop, 4, seed=4), traits=Traits(step=.0321, plasticity=1 / 3), parents=('o1', 'o3'), generation=7,
              operator='crossover')
    pop.birth()
    pop.death('o5')
    pop.save(tmp_path/'p')
    return tmp_path/'p'


def test_save_and_load_are_exact(pop, saved):
    back = Population.load(saved, pop.host)
    assert list(back) == list(pop) and back.weights_hash() == pop.weights_hash() and back.births == pop.births == 5
    assert back['o4'] == Organelle('o4', 1, 4, Traits(step=.0321, plasticity=1 / 3), ('o1', 'o3'), 7, 'crossover')
    for n in pop.shapes:
        assert torch.equal(pop.stack.A[n], back.stack.A[n]) and torch.equal(pop.stack.B[n], back.stack.B[n])
    assert back.birth().id == 'o6'
    for setting in ('alpha', 'targets', 'capacity', 'max_rank'): assert getattr(back, setting) == getattr(pop, setting)


def test_an_empty_population_can_be_saved(host, tmp_path):
    Population(host, capacity=2).save(tmp_path/'p')
    assert Population.load(tmp_path/'p', host).birth().id == 'o1'


def test_saving_again_replaces_and_foreign_files_are_safe(pop, saved):
    pop.death('o1')
    pop.save(saved)
    assert Population.load(saved, pop.host).ids == pop.ids and len(list(saved.iterdir())) == 2
    (saved/'thesis.txt').write_text('years of work')
    with pytest.raises(ValueError, match='no population wrote'): pop.save(saved)
    with pytest.raises(ValueError, match='no population wrote'): pop.save(saved/'thesis.txt')
    assert (saved/'thesis.txt').read_text() == 'years of work'


def test_an_interrupted_save_leaves_the_earlier_one(pop, saved, monkeypatch):
    before = Population.load(saved, pop.host).weights_hash()
    pop.death('o1')
    import evolora.organelles.population as module
    def power_cut(path, data):
        if path.suffix == '.json': raise OSError('power cut')
        return path.write_bytes(data)
    with monkeypatch.context() as m:
        m.setattr(module, 'write_whole', power_cut)
        with pytest.raises(OSError): pop.save(saved)
    assert Population.load(saved, pop.host).weights_hash() == before
    pop.save(saved)
    assert len(list(saved.iterdir())) == 2


def _edit(**changes): return lambda saved: saved.update(changes)
def _edit_member(**changes): return lambda saved: saved['organelles'][1].update(changes)


@pytest.mark.parametrize('edit',
                         [_edit(format='other'), _edit(births=1), _edit(capacity=1), _edit(capacity=-1),
                          _edit(alpha=0), _edit(max_rank=4),
                          _edit(capacity=2**20), _edit(max_rank=10**6), _edit(targets=[]), _edit(targets=['x']),
                          _edit(weights='../../etc/passwd'), _edit(weights='0' * 64), _edit(surprise=1),
                          _edit(organelles=[]), _edit(targets=['q_proj']),
                          _edit_member(id='o1'), _edit_member(id='x'), _edit_member(slot=0),
                          _edit_member(slot=99), _edit_member(rank=7), _edit_member(rank=2),
                          _edit_member(traits={'step': 9}), _edit_member(traits={'appetite': 1.}),
                          _edit_member(born=-1), _edit_member(parents='o1')])
def test_edited_saves_are_refused(pop, saved, edit):
    path = saved/'population.json'
    found = json.loads(path.read_text())
    edit(found)
    path.write_text(json.dumps(found))
    with pytest.raises(ValueError) as e: Population.load(saved, pop.host)
    assert '\n' not in str(e.value) and str(saved) in str(e.value)


def reweighted(saved, change):
    "A forgery: other weights, and a population.json that fits"
    (old,), found = saved.glob('*.safetensors'), json.loads((saved/'population.json').read_text())
    tensors = {n: change(x).contiguous() for n, x in safetensors.torch.load_file(old).items()}
    data = safetensors.torch.save(tensors)
    found['weights'] = hashlib.sha256(data).hexdigest()
    old.unlink()
    new = saved/f"population-{found['weights'][:16]}.safetensors"
    new.write_bytes(data)
    (saved/'population.json').write_text(json.dumps(found))
    return new


@pytest.mark.parametrize('dtype', [torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool])
def test_a_population_is_saved_in_float32(pop, saved, dtype):
    new = reweighted(saved, lambda x: x.to(dtype))
    with pytest.raises(ValueError, match=f'expected float32, got .* in {dtype}'.replace('torch.', '')) as e:
        Population.load(saved, pop.host)
    assert '\n' not in str(e.value) and str(new) in str(e.value)


@pytest.mark.parametrize('number', [math.nan, math.inf])
def test_weights_that_are_not_finite_are_refused_by_file(pop, saved, number):
    new = reweighted(saved, lambda x: x + number)
    with pytest.raises(ValueError, match='expected finite factors') as e: Population.load(saved, pop.host)
    assert '\n' not in str(e.value) and str(new) in str(e.value)


def test_damaged_and_foreign_saves(pop, saved, tmp_path):
    with pytest.raises(ValueError, match='other weights'): Population.load(saved, tiny_host(seed=1))
    with pytest.raises(ValueError, match='has no population.json'): Population.load(tmp_path, pop.host)
    path = next(saved.glob('*.safetensors'))
    tensors = safetensors.torch.load_file(path)
    next(iter(tensors.values()))[0, 0, 0] = float('nan')
    safetensors.torch.save_file(tensors, path)
    with pytest.raises(ValueError, match='damaged'): Population.load(saved, pop.host)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(ValueError, match='no readable safetensors'): Population.load(saved, pop.host)
    path.unlink()
    with pytest.raises(ValueError, match='got none'): Population.load(saved, pop.host)


def test_a_full_population_shows_eight_rows(host):
    pop = Population(host, capacity=12)
    for _ in range(12): pop.birth()
    shown = pop._repr_markdown_()
    assert '| o8 |' in shown and '| o9 |' not in shown and '4 more' in shown and 'no-op' in shown
