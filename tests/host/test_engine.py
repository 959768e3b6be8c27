"""Many adapters in one batch answer as each would alone, in tokens, log-probabilities and traces; nothing is left over.

Every promise is kept two ways: with the layers of `evolora.host.fast_layers`, and through the modules of any model.
"""
import gc
from collections import Counter
from copy import deepcopy
from types import SimpleNamespace

import numpy as np
import peft
import pytest
import torch
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, GPT2Config, GPT2LMHeadModel

from evolora.host import engine
from evolora.host.fast_layers import Decoder
from evolora.host.engine import LeanRows, ModuleRows, buckets
from evolora.host.sampling import groups_of, sample, uniforms
from evolora.host.model import ARCHITECTURES, Host, byte_tokenizer, load_host, tiny_host
from evolora.organelles.population import Population

TARGETS = {'qwen3': ('o_proj', 'down_proj'), 'qwen2': ('q_proj', 'v_proj', 'gate_proj'),
           'llama': ('q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj'),
           'gemma3': ('k_proj', 'o_proj', 'up_proj', 'down_proj')}
TEXT = 'Which of the seven foxes jumps over a lazy dog at night, and why would it?'
PROMPTS = [TEXT[i:i + n - 1] for i, n in enumerate((1, 2, 3, 5, 8, 13, 21, 34, 47, 60))]    # tokens, a newline included
LENGTH = 17
NAMES = [None, *(f'o{rank}' for rank in range(1, 9))]       # organelle o3 has rank 3

# Who answers which prompt: {case: [(prompt, organelle)]}
BATCHES = {
    'one bare row': [(4, None)],
    'one short row': [(0, 'o3')],
    'one long row': [(9, 'o8')],
    'bare rows of all lengths': [(i, None) for i in range(10)],
    'all ranks and lengths': [(i % 10, NAMES[(i + i // 10) % 9]) for i in range(30)],
    'copies': [(6, 'o5')] * 9 + [(2, None)] * 3 + [(9, 'o1')] + [(7, 'o5')] * 7 + [(0, 'o8')] * 3 + [(2, 'o2')] * 2,
    'one answers most rows': ([(i % 10, 'o6') for i in range(43)] + [(i, 'o2') for i in range(5)]
                              + [(3, 'o7'), (8, None), (8, 'o4'), (1, None)])}


def draw(pop, rank, seed=0, size=.2):
    rng = np.random.default_rng(seed)
    normal = lambda *shape: torch.from_numpy(rng.standard_normal(shape)).float()
    return {n: (normal(rank, d_in) / d_in**.5, size * normal(d_out, rank)) for n, (d_out, d_in) in pop.shapes.items()}


def lively(architecture, seed=0):
    "A tiny host whose norms and biases do something, and that does not repeat its prompt"
    host = tiny_host(architecture, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in host.model.named_parameters():
            if 'norm' in name or name.endswith('bias'): weight += .3 * torch.randn(weight.shape, generator=generator)
        if host.model.config.tie_word_embeddings:
            host.model.config.tie_word_embeddings = False
            head = .2 * torch.randn(host.model.lm_head.weight.shape, generator=generator)
            host.model.lm_head.weight = torch.nn.Parameter(head, requires_grad=False)
    return host


def settled(host, targets=('o_proj', 'down_proj')):
    "A population with one organelle of each rank"
    pop = Population(host, capacity=10, max_rank=8, targets=targets)
    for rank in range(1, 9): pop.birth(draw(pop, rank, seed=rank))
    return pop


def answered(model, ids, ends, pad=0):
    "What a model of transformers answers greedily to one prompt, and the log-probability of each token"
    ids = torch.tensor([ids])
    with torch.no_grad():
        made = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=False, pad_token_id=pad,
                              max_new_tokens=LENGTH, eos_token_id=ends, return_dict_in_generate=True,
                              output_logits=True)
    tokens = made.sequences[0, ids.shape[1]:]
    logprobs = torch.cat(made.logits).float().log_softmax(-1).gather(-1, tokens[:, None])[:, 0]
    return tokens.tolist(), logprobs.tolist()


@pytest.fixture(scope='module', params=ARCHITECTURES)
def colony(request, tmp_path_factory):
    "A population, and a peft model of each organelle that answers alone; some of the answers end early"
    host = lively(request.param, seed=1)
    pop = settled(host, TARGETS[request.param])
    models = {None: deepcopy(host.model)}
    for id in pop.ids:
        folder = tmp_path_factory.mktemp('peft') / id
        pop.export_peft(id, folder)
        models[id] = peft.PeftModel.from_pretrained(deepcopy(host.model), folder).eval()
    encoded, known = host.encode(PROMPTS), {}
    free = [answered(models[who], encoded[p], [300])[0] for p, who in BATCHES['all ranks and lengths'][::3]]
    host.ends = sorted({free[row][place] for row, place in ((1, 2), (3, 5), (5, 0))})

    def alone(p, who):
        if (p, who) not in known: known[p, who] = answered(models[who], encoded[p], host.ends, host.pad)
        return known[p, who]
    return SimpleNamespace(architecture=request.param, host=host, pop=pop, alone=alone, encoded=encoded)


def modules_only(monkeypatch): monkeypatch.setattr(engine, 'supported', lambda model: False)


def own_layers_only(monkeypatch):
    def refuse(*args): raise AssertionError('expected the layers of evolora.host.fast_layers')
    monkeypatch.setattr(engine, 'ModuleRows', refuse)


WAYS = {'own layers': own_layers_only, 'modules': modules_only}
both_ways = pytest.mark.parametrize('way', WAYS)


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    "Both ways to compute a batch, and no way around them"
    WAYS[request.param](monkeypatch)
    return request.param


def ask(pop, batch, **keywords):
    return pop.generate([PROMPTS[p] for p, _ in batch], [who for _, who in batch],
                        **{'max_new_tokens': LENGTH, 'temperature': 0.} | keywords)


def assert_same(made, tokens, logprobs, unsure=None):
    "Rows differ only where a decision was closer than rounding, and these are few, at most one in 20 by default"
    assert len(made) == len(tokens)
    differs = [i for i, row in enumerate(tokens) if made.tokens[i] != row]
    assert all(made.margins[i] < made.close for i in differs), (differs, made.margins[differs])
    assert made.unsure <= (max(1, len(made) // 20) if unsure is None else unsure)
    same = [i for i in range(len(made)) if i not in differs]
    assert len(same) >= len(made) - made.unsure
    if not same: return
    np.testing.assert_allclose(np.concatenate([made.logprobs[i] for i in same]),
                               np.concatenate([logprobs[i] for i in same]), atol=1e-4)


# --- greedy answers are those of peft

@pytest.mark.parametrize('case', BATCHES)
def test_a_greedy_batch_equals_peft_one_prompt_at_a_time(colony, way, case):
    made = ask(colony.pop, BATCHES[case])
    assert_same(made, *zip(*(colony.alone(p, who) for p, who in BATCHES[case])))


def test_the_greedy_cases_have_something_to_distinguish(colony):
    "Organelles disagree with the bare host and with each other, some answers end early, and none repeats one token"
    rows = [colony.alone(p, who)[0] for p, who in BATCHES['all ranks and lengths']]
    assert len({tuple(r) for r in rows}) > 20 and len({t for r in rows for t in r}) > 40
    assert any(len(r) == 1 for r in rows) and sum(len(r) < LENGTH for r in rows) >= 3
    assert sum(len(r) == LENGTH for r in rows) >= 7
    long = lambda who: str([colony.alone(p, who)[0] for p in (6, 7, 8, 9)])
    assert len({long(who) for who in (None, 'o2', 'o5', 'o6', 'o8')}) == 5


@pytest.mark.parametrize('limits', [{'rows': 1}, {'chunk': 1}, {'chunk': 40, 'rows': 7}])
def test_limits_do_not_change_a_greedy_batch(colony, way, limits):
    batch = (BATCHES['copies'] + BATCHES['all ranks and lengths'])[::2 if limits.get('rows', 9) > 1 else 5]
    made = ask(colony.pop, batch, **limits)
    assert_same(made, *zip(*(colony.alone(p, who) for p, who in batch)))


@both_ways
def test_an_answer_of_one_token_needs_no_second_pass(way, monkeypatch):
    pop = settled(lively('qwen3'))
    long = ask(pop, BATCHES['copies'], max_new_tokens=3)
    WAYS[way](monkeypatch)
    for rows in (LeanRows, ModuleRows): monkeypatch.setattr(rows, 'next', None)
    assert ask(pop, BATCHES['copies'], max_new_tokens=1).tokens == [row[:1] for row in long.tokens]


@both_ways
def test_a_slot_that_changed_hands_answers_for_its_new_owner(way, monkeypatch):
    WAYS[way](monkeypatch)
    host = lively('llama')
    used, fresh = settled(host), Population(host, capacity=10, max_rank=8)
    before = ask(used, [(p, 'o8') for p in range(0, 10, 3)])

    def assert_as_if_new(id, rank, seed):
        twin = fresh.birth(draw(used, rank, seed=seed))
        made, expected = (ask(pop, [(p, one) for p in range(0, 10, 3)]) for pop, one in ((used, id), (fresh, twin.id)))
        assert made.tokens == expected.tokens != before.tokens
        np.testing.assert_allclose(np.concatenate(made.logprobs), np.concatenate(expected.logprobs), atol=1e-5)
    used.death('o8')
    assert used.birth(draw(used, 5, seed=50)).slot == 7
    assert_as_if_new('o9', 5, 50)
    for id, rank in (('o7', 5), ('o4', 1), ('o1', 8)):      # narrower, much narrower, wider
        used.write(id, draw(used, rank, seed=rank + 60))
        assert_as_if_new(id, rank, rank + 60)


def test_adapters_that_were_arranged_before_are_taken_for_no_other_rows():
    pop = settled(tiny_host())
    before = pop._adapters(['o5'] * 4 + ['o6'] * 4 + ['o7'] * 4)
    name, (d_out, d_in) = next(iter(pop.shapes.items()))
    x = torch.randn(6, d_in, generator=torch.Generator().manual_seed(0))
    for who in (['o5', 'o5', 'o6'], ['o7', 'o6', 'o5'], ['o8', 'o6', None]):
        for made in (pop._adapters(who, before), pop._adapters(who)):
            out = torch.zeros(len(who) * 2, d_out)
            made.add(name, x, out)
            for place, i in enumerate(made.order):          # two tokens a row
                mine = slice(2 * place, 2 * place + 2)
                expected = torch.zeros(2, d_out) if who[i] is None else x[mine] @ pop.delta(who[i])[name].mT
                torch.testing.assert_close(out[mine], expected, atol=1e-5, rtol=1e-5)


@both_ways
def test_tokens_read_together_are_tokens_read_one_by_one(way, monkeypatch):
    "And some rows may leave in between"
    model = lively('gemma3').model
    WAYS[way](monkeypatch)
    ids = [[5, 6, 7], [8], [9, 10, 11, 12, 13, 14]]
    texts = torch.arange(20, 20 + 6 * 12).view(6, 12)
    for cuts in ([12], [1] * 12, [3, 1, 5, 1, 2]):
        with torch.inference_mode():
            rows = engine.session(model, engine.Plan(ids, [1, 2, 3], 13))
            assert type(rows) is {'own layers': LeanRows, 'modules': ModuleRows}[way]
            group, seen, at = rows.read()[1].tolist(), [], 0
            assert sorted(group) == [0, 1, 1, 2, 2, 2]
            lines = [*range(6)]
            for step, cut in enumerate(cuts):
                if step == 1: lines = [lines[i] for i in rows.keep(torch.tensor([0, 2, 3, 5])).tolist()]
                logits = rows.step(texts[lines, at:at + cut], torch.arange(len(lines) * cut))
                at += cut
                seen.append((lines, logits.view(len(lines), cut, -1)[:, -1], at))
        for lines, logits, end in seen:
            for line, one in zip(lines, logits):
                text = torch.tensor([ids[group[line]] + texts[line, :end].tolist()])
                with torch.no_grad(): expected = model(text, use_cache=False).logits[0, -1]
                torch.testing.assert_close(one, expected, atol=2e-4, rtol=1e-4)


def test_wider_scales_than_one_for_all(way):
    "Organelles of different rank have different scales, also where they lie in one block of equal width"
    host = lively('qwen2')
    pop = Population(host, capacity=3, max_rank=8, alpha=3.)
    for rank in (5, 8, 1): pop.birth(draw(pop, rank, seed=rank))
    batch = [(p, who) for p in (1, 6, 8) for who in ('o1', 'o2', 'o3', None)]
    made = ask(pop, batch)
    for i, (p, who) in enumerate(batch):
        ids = torch.tensor([host.encode([PROMPTS[p]])[0] + made.tokens[i]])
        logits = pop.logits(ids, organelles=[who])[0, -len(made.tokens[i]) - 1:-1]
        assert logits.argmax(-1).tolist() == made.tokens[i]


@pytest.mark.parametrize('architecture', ['qwen3', 'gemma3'])
def test_an_adapter_at_the_unembedding_is_not_left_out(architecture):
    host = lively(architecture)
    pop = Population(host, capacity=2, targets=('lm_head', 'o_proj'))
    pop.birth(draw(pop, 4))
    made = ask(pop, [(3, 'o1'), (7, 'o1')], max_new_tokens=6)
    assert made.tokens != ask(pop, [(3, None), (7, None)], max_new_tokens=6).tokens
    for p, new in zip((3, 7), made.tokens):
        ids = torch.tensor([host.encode([PROMPTS[p]])[0] + new])
        assert pop.logits(ids, organelles=['o1'])[0, -len(new) - 1:-1].argmax(-1).tolist() == new


# --- the random numbers of a row follow from its seed and nothing else

CROWD = BATCHES['copies'] + BATCHES['all ranks and lengths'][::2]
SEEDS = [1000 + 7 * i for i in range(len(CROWD))]


def sampled(pop, which, **keywords):
    return ask(pop, [CROWD[i] for i in which], seeds=[SEEDS[i] for i in which], **{'temperature': 1.} | keywords)


@pytest.fixture(scope='module')
def crowds(colony):
    "What the whole crowd samples, per way, computed once"
    found = {}
    for name, force in WAYS.items():
        with pytest.MonkeyPatch.context() as patch:
            force(patch)
            found[name] = sampled(colony.pop, range(len(CROWD)))
        assert found[name].unsure <= len(CROWD) / 5         # a token of 259 is easily missed by little
    return found


def assert_same_rows(made, rows, whole):
    close = int((whole.margins[rows] < 2 * whole.close).sum())
    assert_same(made, [whole.tokens[i] for i in rows], [whole.logprobs[i] for i in rows], unsure=close)


def test_sampling_does_not_know_its_batch(colony, way, crowds):
    whole, n = crowds[way], len(CROWD)
    rng = np.random.default_rng(5)
    shuffled = rng.permutation(n).tolist()
    for rows, limits in [([*range(n)], {}), (shuffled, {}), (shuffled[:n // 3], {}), (shuffled[n // 3:], {'rows': 5}),
                         (shuffled[::-1], {'chunk': 16}), ([*range(9)] * 2, {'rows': 4})]:
        assert_same_rows(sampled(colony.pop, rows, **limits), rows, whole)


def test_sampling_one_row_at_a_time_is_sampling_them_together(colony, way, crowds):
    whole, differs = crowds[way], 0
    for i in range(0, len(CROWD), 4):
        made = sampled(colony.pop, [i])
        assert_same_rows(made, [i], whole)
        differs += made.tokens[0] != whole.tokens[i]
    assert differs <= 1


def test_both_ways_sample_the_same(crowds):
    assert_same_rows(crowds['modules'], [*range(len(CROWD))], crowds['own layers'])
    np.testing.assert_allclose(crowds['modules'].margins, crowds['own layers'].margins, atol=1e-4)


@both_ways
@settings(max_examples=4, deadline=None, derandomize=True, phases=[Phase.generate])
@given(rows=st.lists(st.integers(0, len(CROWD) - 1), min_size=1, max_size=14), limit=st.integers(1, 14),
       chunk=st.integers(1, 150))
def test_any_company_and_any_limit_give_the_same_answers(colony, crowds, way, rows, limit, chunk):
    with pytest.MonkeyPatch.context() as patch:
        WAYS[way](patch)
        assert_same_rows(sampled(colony.pop, rows, rows=limit, chunk=chunk), rows, crowds[way])


def test_other_seeds_give_other_answers(colony, way, crowds):
    "Also the copies of one prompt differ from each other, and so do temperatures"
    whole, rows = crowds[way], range(12)
    other = ask(colony.pop, [CROWD[i] for i in rows], seeds=[SEEDS[i] + 1 for i in rows], temperature=1.)
    long = [i for i in rows if min(len(other.tokens[i]), len(whole.tokens[i])) > 4]
    assert len(long) > 4 and all(other.tokens[i] != whole.tokens[i] for i in long)
    assert len({tuple(whole.tokens[i]) for i in range(9)}) == 9
    same = ask(colony.pop, [CROWD[0]] * 4, seeds=[8, 9, 8, 8], temperature=1.)
    assert same.tokens[0] == same.tokens[2] == same.tokens[3] != same.tokens[1]
    assert sampled(colony.pop, rows, temperature=.3).tokens != whole.tokens[:12]


def test_margins_show_a_close_decision():
    "By hand: how much probability another token was missed by"
    from evolora.host.sampling import choose
    p = torch.tensor([[.2, .5, .3]] * 4)
    tokens, logprobs, margins = choose(p.log(), 1., torch.tensor([.1, .21, .69, .9999999]).double())
    assert tokens.tolist() == [0, 1, 1, 2]
    torch.testing.assert_close(margins, torch.tensor([.1, .01, .01, 0.]), atol=1e-6, rtol=0)
    torch.testing.assert_close(logprobs, torch.tensor([.2, .5, .5, .3]).log())
    tokens, logprobs, margins = choose(p.log(), 0., None)
    assert tokens.tolist() == [1] * 4
    torch.testing.assert_close(margins, torch.full((4,), .2))


# --- what a pass over given answers sees

def traced(pop, made, batch, rows=None, **keywords):
    rows = range(len(batch)) if rows is None else rows
    return list(pop.forward([PROMPTS[batch[i][0]] for i in rows], [made.tokens[i] for i in rows],
                            [batch[i][1] for i in rows], **keywords))


def by_line(traces):
    "Everything that was seen, sorted by row and place: {name: tensor}"
    rows, places = (torch.cat([getattr(t, x) for t in traces]) for x in ('rows', 'places'))
    order = torch.tensor(sorted(range(len(rows)), key=lambda i: (int(rows[i]), int(places[i]))))
    parts = {x: torch.cat([getattr(t, x) for t in traces])[order]
             for x in ('rows', 'places', 'tokens', 'logprobs', 'logits', 'hidden')}
    return parts | {n: torch.cat([t.inputs[n] for t in traces])[order] for n in traces[0].inputs}


def seen_by_hooks(pop, ids, who):
    "What the adapted modules are given in one plain pass over one text"
    found, handles = {}, []
    note = lambda name: lambda module, inputs, output: found.__setitem__(name, inputs[0][0].clone())
    with torch.no_grad(), pop.rows([who]):
        for name in pop.shapes: handles.append(pop.host.model.get_submodule(name).register_forward_hook(note(name)))
        try: logits = pop.host.model(torch.tensor([ids]), use_cache=False).logits[0]
        finally:
            for handle in handles: handle.remove()
    return found, logits


def test_a_trace_has_a_line_for_every_token_and_none_twice(colony, way, crowds):
    made = crowds[way]
    for chunk in (1, 64, 4096):
        traces = traced(colony.pop, made, CROWD, chunk=chunk)
        lines = Counter((int(r), int(p)) for t in traces for r, p in zip(t.rows, t.places))
        assert lines == Counter((i, k) for i, row in enumerate(made.tokens) for k in range(len(row)))
        assert [made.tokens[r][k] for t in traces for r, k in zip(t.rows.tolist(), t.places.tolist())] == [
            token for t in traces for token in t.tokens.tolist()]
        whose = [set(t.rows.tolist()) for t in traces]
        assert sum(map(len, whose)) == len(set().union(*whose)) == len(CROWD)
        assert len(traces) == 1 if chunk == 4096 else len(traces) > 3


@pytest.mark.parametrize('temperature', [1., .6])
def test_a_trace_repeats_the_logprobs_of_sampling(colony, way, temperature):
    made = sampled(colony.pop, range(len(CROWD)), temperature=temperature)
    found = by_line(traced(colony.pop, made, CROWD, temperature=temperature))
    np.testing.assert_allclose(found['logprobs'].numpy(), np.concatenate(made.logprobs), atol=1e-4)
    if temperature != 1.:
        plain = by_line(traced(colony.pop, made, CROWD))
        assert (plain['logprobs'] - found['logprobs']).abs().max() > .1


def test_the_hidden_state_of_a_trace_gives_its_logits(colony, way, crowds):
    found, model = by_line(traced(colony.pop, crowds[way], CROWD)), colony.host.model
    with torch.no_grad(): logits = model.lm_head(model.model.norm(found['hidden']))
    torch.testing.assert_close(logits, found['logits'], atol=1e-4, rtol=1e-4)
    again = found['logits'].log_softmax(-1).gather(-1, found['tokens'][:, None])[:, 0]
    torch.testing.assert_close(again, found['logprobs'], atol=1e-5, rtol=0)


def test_the_inputs_of_a_trace_are_those_that_hooks_see(colony, way, crowds):
    made = crowds[way]
    found = by_line(traced(colony.pop, made, CROWD))
    assert {*colony.pop.shapes} == {*found} - {'rows', 'places', 'tokens', 'logprobs', 'logits', 'hidden'}
    for i in (0, 1, 9, 12, *range(20, len(CROWD), 2)):
        p, who = CROWD[i]
        prompt, mine = colony.encoded[p], found['rows'] == i
        seen, logits = seen_by_hooks(colony.pop, prompt + made.tokens[i], who)
        at = slice(len(prompt) - 1, len(prompt) - 1 + len(made.tokens[i]))
        for name in colony.pop.shapes:
            torch.testing.assert_close(found[name][mine], seen[name][at], atol=2e-4, rtol=1e-4)
        torch.testing.assert_close(found['logits'][mine], logits[at], atol=2e-4, rtol=1e-4)


def test_a_trace_does_not_depend_on_its_chunks(colony, way, crowds):
    whole = by_line(traced(colony.pop, crowds[way], CROWD))
    for chunk in (1, 50, 200):
        for name, value in by_line(traced(colony.pop, crowds[way], CROWD, chunk=chunk)).items():
            torch.testing.assert_close(value, whole[name], atol=2e-4, rtol=1e-4)


@pytest.mark.parametrize('chunk', [1, 50, 90, 200])
def test_a_chunk_holds_as_many_tokens_as_it_was_given(colony, way, crowds, chunk):
    "Copies of a prompt are together and count it once; a group that is larger has a chunk of its own"
    made, alone, full = crowds[way], 0, 0
    groups = groups_of([colony.encoded[p] for p, _ in CROWD], [who for _, who in CROWD])
    size = lambda g: len(colony.encoded[CROWD[g[0]][0]]) + sum(len(made.tokens[i]) for i in g)
    for t in traced(colony.pop, made, CROWD, chunk=chunk):
        mine = [g for g in groups if {*g} <= {*t.rows.tolist()}]
        assert sorted(sum(mine, ())) == sorted({*t.rows.tolist()})
        assert len(mine) == 1 or sum(map(size, mine)) <= chunk
        alone, full = alone + (len(mine) == 1), full + (len(mine) > 1)
    assert alone if chunk < 90 else full


def test_both_ways_see_the_same(colony, crowds, monkeypatch):
    lean = by_line(traced(colony.pop, crowds['own layers'], CROWD))
    modules_only(monkeypatch)
    modules = by_line(traced(colony.pop, crowds['own layers'], CROWD))
    assert lean.keys() == modules.keys() and len(lean['rows']) > 200
    for name, value in lean.items(): torch.testing.assert_close(modules[name], value, atol=2e-4, rtol=1e-4)


@both_ways
def test_answers_of_one_token_and_of_very_different_lengths(way, monkeypatch):
    WAYS[way](monkeypatch)
    pop = settled(lively('qwen3'), ('q_proj', 'o_proj'))
    for answers in ([[7]] * 4, [[7], [8], [9, 10, 11], [12]], [[7], [*range(40, 70)], [3], [4, 5]]):
        made = SimpleNamespace(tokens=answers)
        batch = [(0, 'o2'), (0, 'o2'), (5, None), (8, 'o7')]
        found = by_line(traced(pop, made, batch))
        assert found['tokens'].tolist() == sum(answers, []) and len(found['model.layers.0.self_attn.q_proj']) == len(
            found['rows'])
        for i, (p, who) in enumerate(batch):
            ids = pop.host.encode([PROMPTS[p]])[0]
            seen, logits = seen_by_hooks(pop, ids + answers[i], who)
            torch.testing.assert_close(found['logits'][found['rows'] == i], logits[len(ids) - 1:-1], atol=1e-4,
                                       rtol=1e-4)
            for name in pop.shapes:
                torch.testing.assert_close(found[name][found['rows'] == i], seen[name][len(ids) - 1:-1], atol=1e-4,
                                           rtol=1e-4)


@both_ways
def test_bare_rows_are_traced_too(way, monkeypatch):
    WAYS[way](monkeypatch)
    pop = settled(lively('gemma3'))
    batch = [(3, None), (8, None)]
    made = ask(pop, batch)
    found = by_line(traced(pop, made, batch))
    mixed = by_line(traced(pop, SimpleNamespace(tokens=made.tokens * 2), batch + [(3, 'o8'), (8, 'o1')]))
    for name, value in found.items():
        torch.testing.assert_close(mixed[name][:len(value)], value, atol=1e-4, rtol=1e-4)
    for name in pop.shapes: assert len(found[name]) == len(found['rows'])


# --- the model stays what it was

every_architecture = pytest.mark.parametrize('architecture', ARCHITECTURES)


@every_architecture
@both_ways
def test_asking_leaves_the_model_as_it_was(architecture, way, monkeypatch, tmp_path):
    WAYS[way](monkeypatch)
    host = lively(architecture)
    pop, before, names = settled(host), host.weights_hash(), [n for n, _ in host.model.named_parameters()]
    batch = BATCHES['copies'][::3]
    size = sum(p.nbytes for p in host.model.parameters())
    made = ask(pop, batch)
    list(pop.forward(PROMPTS[:2], made.tokens[:2], ['o1', None]))
    assert host.weights_hash() == before and [n for n, _ in host.model.named_parameters()] == names
    gc.collect()
    held = {p.untyped_storage().data_ptr(): p.untyped_storage().nbytes() for p in host.model.parameters()}
    assert sum(held.values()) <= 1.01 * size                        # nothing is held twice
    q, k = (getattr(host.model.model.layers[0].self_attn, name).weight for name in ('q_proj', 'k_proj'))
    if way == 'own layers': assert k.data_ptr() == q.data_ptr() + q.nbytes      # nor copied for every batch
    host.model.save_pretrained(tmp_path)
    host.tokenizer.save_pretrained(tmp_path)
    back = load_host(tmp_path)
    assert back.weights_hash() == before
    back.ends = host.ends
    assert ask(settled(back), batch).tokens == made.tokens
    twin = deepcopy(host.model)
    assert all(torch.equal(a, b) for a, b in zip(twin.parameters(), host.model.parameters()))
    with torch.no_grad(): next(iter(twin.model.layers)).self_attn.q_proj.weight.add_(1.)
    assert host.weights_hash() == before                            # a copy is no view
    copied = Host(twin, host.tokenizer, id='copy')
    copied.ends = host.ends
    assert ask(settled(copied), batch).tokens != made.tokens == ask(pop, batch).tokens


@every_architecture
def test_a_weight_that_changes_is_seen_by_the_next_answer(architecture):
    "Every kind of weight, in place and by load_state_dict: no copy of it goes stale"
    host = lively(architecture)
    pop, generator = settled(host), torch.Generator().manual_seed(3)
    batch = [(5, None), (8, 'o4')]
    last = ask(pop, batch).logprobs
    for name, weight in [(n, p) for n, p in host.model.named_parameters() if 'layers.1' not in n]:
        with torch.no_grad(): weight.add_(.3 * torch.randn(weight.shape, generator=generator))
        made = ask(pop, batch)
        for (p, who), tokens, logprobs in zip(batch, made.tokens, made.logprobs):
            ids = host.encode([PROMPTS[p]])[0] + tokens
            logits = pop.logits(torch.tensor([ids]), organelles=[who])[0, -len(tokens) - 1:-1].log_softmax(-1)
            np.testing.assert_allclose(logits[range(len(tokens)), tokens].numpy(), logprobs, atol=1e-4, err_msg=name)
        assert made.logprobs != last, name
        last = made.logprobs
    fresh = lively(architecture, seed=1)
    host.model.load_state_dict(fresh.model.state_dict())
    assert ask(pop, batch[:1]).tokens == ask(settled(fresh), batch[:1]).tokens


def test_a_map_that_is_replaced_is_seen_by_the_next_answer():
    host = lively('llama')
    pop, batch = settled(host), [(6, None), (8, 'o4')]
    before = ask(pop, batch)
    attention = host.model.model.layers[0].self_attn
    attention.k_proj = deepcopy(attention.k_proj)
    assert ask(pop, batch).tokens == before.tokens
    attention.k_proj.weight.data = -attention.k_proj.weight.data
    made = ask(pop, batch)
    assert made.tokens != before.tokens
    for (p, who), tokens in zip(batch, made.tokens):
        ids = torch.tensor([host.encode([PROMPTS[p]])[0] + tokens])
        assert pop.logits(ids, organelles=[who])[0, -len(tokens) - 1:-1].argmax(-1).tolist() == tokens


def test_a_host_that_has_answered_can_still_be_differentiated_through():
    host = lively('qwen3')
    x = torch.randn(1, 4, host.config.hidden_size, requires_grad=True)
    host.model(inputs_embeds=x).logits.sum().backward()
    before, x.grad = x.grad, None
    ask(settled(host), BATCHES['copies'][:2])
    host.model(inputs_embeds=x).logits.sum().backward()
    torch.testing.assert_close(x.grad, before)


@every_architecture
@both_ways
@pytest.mark.parametrize('how', ['moved', 'loaded'])
def test_a_bfloat16_host_answers(architecture, way, how, monkeypatch, tmp_path):
    host = lively(architecture)
    exact = settled(host)
    made = ask(exact, BATCHES['copies'][:14], temperature=1.)
    exact_lines = by_line(traced(exact, made, BATCHES['copies'][:14]))
    WAYS[way](monkeypatch)
    if how == 'moved': host.model.to(torch.bfloat16)                # after it has answered
    else:
        host.model.save_pretrained(tmp_path)
        host.tokenizer.save_pretrained(tmp_path)
        host = load_host(tmp_path, dtype=torch.bfloat16)
    pop = settled(host)
    assert host.dtype == torch.bfloat16
    rough = ask(pop, BATCHES['copies'][:14], temperature=1.)
    assert all(np.isfinite(row).all() and len(row) for row in rough.logprobs)
    lines = by_line(traced(pop, made, BATCHES['copies'][:14]))
    assert lines['hidden'].dtype == torch.bfloat16
    off = (lines['logprobs'].float() - exact_lines['logprobs']).abs()
    assert 0 < off.mean() < .15                                     # bfloat16 has three digits


# --- what cannot be answered is refused before anything is computed

@pytest.fixture
def idle(monkeypatch):
    "A population whose host may not compute"
    host = lively('qwen3')
    pop = settled(host)

    def refuse(*args, **keywords): raise AssertionError('something was computed')
    monkeypatch.setattr(Decoder, 'run', refuse)
    monkeypatch.setattr(type(host.model), 'forward', refuse)
    with pytest.raises(AssertionError, match='computed'): ask(pop, [(0, 'o1')])
    return pop


@pytest.mark.parametrize('prompts, who, keywords, message', [
    (['x' * 512], ['o1'], {}, 'prompt 0 has 513 tokens.*context is 512'),
    (['ok', 'x' * 495], [None, 'o1'], {}, 'prompt 1 has 496 tokens and 17 more.*512'),
    ([], [], {}, 'at least one prompt'),
    (['a', 'b'], ['o1'], {}, 'got 1 for 2 prompts'),
    (['a'], ['o1', None], {}, 'got 2 for 1 prompts'),
    (['a'], ['o1'], {'rows': 0}, 'rows must be at least 1, got 0'),
    (['a'], ['o1'], {'chunk': 0}, 'chunk must be at least 1, got 0'),
    (['a'], ['o1'], {'chunk': -4}, 'chunk must be at least 1, got -4'),
    (['a'], ['o1'], {'max_new_tokens': 0}, 'max_new_tokens must be at least 1'),
    (['a'], ['o1'], {'temperature': -.5}, 'temperature must be 0'),
    (['a', 'b'], ['o1', 'o2'], {'seeds': [1]}, 'got 1 for 2 prompts')])
def test_a_batch_that_cannot_be_answered(idle, prompts, who, keywords, message):
    with pytest.raises(ValueError, match=message) as error:
        idle.generate(prompts, who, **{'max_new_tokens': LENGTH} | keywords)
    assert '\n' not in str(error.value)


@pytest.mark.parametrize('prompts, answers, who, keywords, message', [
    (['x' * 510], [[5, 6]], ['o1'], {}, 'prompt 0 has 511 tokens and 2 more.*512'),
    ([], [], [], {}, 'at least one row'),
    (['a', 'b'], [[5]], ['o1', 'o2'], {}, 'got 1 and 2 for 2 prompts'),
    (['a'], [[5]], ['o1', 'o2'], {}, 'got 1 and 2 for 1 prompts'),
    (['a', 'b'], [[5], []], ['o1', 'o2'], {}, 'answer 1 has no tokens'),
    (['a'], [[5]], ['o1'], {'chunk': 0}, 'chunk must be at least 1, got 0')])
def test_answers_that_cannot_be_read(idle, prompts, answers, who, keywords, message):
    with pytest.raises(ValueError, match=message) as error: idle.forward(prompts, answers, who, **keywords)
    assert '\n' not in str(error.value)


def test_unknown_organelles_and_empty_prompts_are_named(idle, monkeypatch):
    for call in (lambda: idle.generate(['a', 'b'], ['o1', 'o99']),
                 lambda: idle.forward(['a', 'b'], [[5], [6]], ['o99', None])):
        with pytest.raises(KeyError, match="no organelle 'o99'; known: o1, o2"): call()
    monkeypatch.setattr(Host, 'encode', lambda self, prompts: [[9], []])
    with pytest.raises(ValueError, match="prompt 1 has no tokens: 'b'"): idle.generate(['a', 'b'], [None, 'o1'])


def test_ranks_and_numbers_that_no_batch_can_use(idle):
    spoilt = draw(idle, 2)
    spoilt[next(iter(spoilt))][0][0, 0] = float('nan')
    before = idle.weights_hash()
    for change in (idle.birth, lambda factors: idle.write('o3', factors)):
        with pytest.raises(ValueError, match='expected finite factors, got NaN'): change(spoilt)
        with pytest.raises(ValueError, match=r'rank must be in 1\.\.8, got 9'): change(draw(idle, 9))
    with pytest.raises(ValueError, match=r'rank must be in 1\.\.8, got 9'): idle.birth(rank=9)
    assert idle.weights_hash() == before


FULL = [torch.OutOfMemoryError('x'), MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")]


@pytest.mark.parametrize('error', FULL, ids=lambda e: type(e).__name__)
@both_ways
def test_when_memory_runs_out_the_error_names_what_to_lower(way, error, monkeypatch):
    pop = settled(lively('qwen3'))
    WAYS[way](monkeypatch)

    def run_out(*args, **keywords): raise error
    monkeypatch.setattr(Decoder, 'run', run_out)
    monkeypatch.setattr(type(pop.host.model), 'forward', run_out)
    with pytest.raises(MemoryError, match='rows=33 and chunk=44.*lower rows or chunk') as raised:
        pop.generate(['a'], ['o1'], rows=33, chunk=44)
    assert '\n' not in str(raised.value)
    with pytest.raises(MemoryError, match='chunk=55.*lower chunk'): list(pop.forward(['a'], [[5]], ['o1'], chunk=55))
    monkeypatch.undo()
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in pop.host.model.modules())
    assert len(pop.generate(['a'], ['o1'], max_new_tokens=3).tokens[0]) == 3      # and it can be asked again


@both_ways
def test_memory_that_runs_out_later_is_reported_as_well(way, monkeypatch):
    pop = settled(lively('qwen3'))
    WAYS[way](monkeypatch)
    for rows in (LeanRows, ModuleRows):
        monkeypatch.setattr(rows, 'next', lambda *args: (_ for _ in ()).throw(torch.OutOfMemoryError('x')))
    with pytest.raises(MemoryError, match='rows=512 and chunk=768'): pop.generate(['a'], ['o1'])


@both_ways
def test_other_errors_pass_through_unchanged(way, monkeypatch):
    pop, error = settled(lively('qwen3')), RuntimeError('something else')
    WAYS[way](monkeypatch)

    def fail(*args, **keywords): raise error
    monkeypatch.setattr(Decoder, 'run', fail)
    monkeypatch.setattr(type(pop.host.model), 'forward', fail)
    for call in (lambda: pop.generate(['a'], ['o1']), lambda: list(pop.forward(['a'], [[5]], ['o1']))):
        with pytest.raises(RuntimeError) as raised: call()
        assert raised.value is error


# --- models of other kinds

def classes_used(monkeypatch):
    "Which classes compute the batches from here on"
    used = []
    for rows in (LeanRows, ModuleRows):
        real = rows.read
        monkeypatch.setattr(rows, 'read', lambda self, *args, real=real: used.append(type(self)) or real(self, *args))
    return used


@pytest.fixture(scope='module')
def gpt2():
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=259, n_embd=32, n_layer=2, n_head=4, n_positions=128, eos_token_id=1,
                                       bos_token_id=None, initializer_range=.3, tie_word_embeddings=False))
    return Host(model, byte_tokenizer(), id='gpt2')


def test_a_model_of_another_kind_goes_through_its_modules(gpt2, monkeypatch):
    "GPT-2 counts positions in an embedding and has no linear maps but one: bare it answers as transformers does"
    used = classes_used(monkeypatch)
    expected = [answered(gpt2.model, ids, gpt2.ends, gpt2.pad) for ids in gpt2.encode(PROMPTS * 2)]
    for limits in ({}, {'rows': 3, 'chunk': 16}):
        made = gpt2.generate(PROMPTS * 2, max_new_tokens=LENGTH, temperature=0., **limits)
        assert_same(made, *zip(*expected))
    assert {*used} == {ModuleRows} and len({t for row in made.tokens for t in row}) > 40
    whole = gpt2.generate(PROMPTS, max_new_tokens=LENGTH, seeds=range(10))
    part = gpt2.generate(PROMPTS[3:7], max_new_tokens=LENGTH, seeds=range(3, 7), chunk=5)
    assert_same(part, whole.tokens[3:7], whole.logprobs[3:7], unsure=whole.unsure)


def test_the_one_linear_map_of_such_a_model_can_be_adapted(gpt2):
    pop = Population(gpt2, capacity=3, targets=('lm_head',))
    for rank in (2, 7): pop.birth(draw(pop, rank, seed=rank, size=1.))
    batch = [(p, who) for p in (0, 4, 7) for who in ('o1', None, 'o2')]
    made = ask(pop, batch)
    bare = ask(pop, [(p, None) for p, _ in batch])
    assert made.tokens[1::3] == bare.tokens[1::3] and made.tokens[0] != bare.tokens[0]
    found = by_line(traced(pop, made, batch))
    with torch.no_grad(): normed = gpt2.model.transformer.ln_f(found['hidden'])
    torch.testing.assert_close(normed, found['lm_head'], atol=1e-5, rtol=1e-5)
    for i, (p, who) in enumerate(batch):
        ids = torch.tensor([gpt2.encode([PROMPTS[p]])[0] + made.tokens[i]])
        logits = pop.logits(ids, organelles=[who])[0, -len(made.tokens[i]) - 1:-1]
        assert logits.argmax(-1).tolist() == made.tokens[i]
        torch.testing.assert_close(found['logits'][found['rows'] == i], logits, atol=1e-4, rtol=1e-4)


def test_a_window_shorter_than_the_text_goes_through_the_modules(monkeypatch):
    "The same model looks further back when its window is wide, and then gives other answers"
    used, made = classes_used(monkeypatch), {}
    for window in (8, 4096):
        torch.manual_seed(1)
        config = Gemma3TextConfig(vocab_size=259, hidden_size=32, intermediate_size=96, num_hidden_layers=2,
                                  num_attention_heads=4, num_key_value_heads=2, head_dim=8, max_position_embeddings=512,
                                  pad_token_id=0, eos_token_id=1, bos_token_id=None, initializer_range=.3,
                                  sliding_window=window, layer_types=['sliding_attention', 'full_attention'],
                                  tie_word_embeddings=False)
        host = Host(Gemma3ForCausalLM(config), byte_tokenizer(), id='window')
        expected = [answered(host.model, ids, host.ends, host.pad) for ids in host.encode(PROMPTS)]
        pop = settled(host)
        for limits in ({}, {'rows': 4, 'chunk': 30}):
            made[window] = ask(pop, [(p, None) for p in range(10)], **limits)
            assert_same(made[window], *zip(*expected))
        mixed = ask(pop, [(9, 'o3'), (8, None), (7, 'o8')])
        for (p, who), tokens in zip([(9, 'o3'), (8, None), (7, 'o8')], mixed.tokens):
            ids = torch.tensor([host.encode([PROMPTS[p]])[0] + tokens])
            assert pop.logits(ids, organelles=[who])[0, -len(tokens) - 1:-1].argmax(-1).tolist() == tokens
    assert made[8].tokens[8:] != made[4096].tokens[8:]
    assert used[:len(used) // 2] == [ModuleRows] * (len(used) // 2) and {*used[len(used) // 2:]} == {LeanRows}


def test_a_window_is_wide_enough_as_long_as_the_text_fits(monkeypatch):
    used, host = classes_used(monkeypatch), lively('gemma3')
    for layer in host.model.model.layers: layer.self_attn.sliding_window = 40
    host.generate(['x' * 19], max_new_tokens=20)
    host.generate(['x' * 20], max_new_tokens=20)
    assert used == [LeanRows, ModuleRows]


def test_a_hook_of_somebody_else_is_called(monkeypatch):
    used, host, calls = classes_used(monkeypatch), lively('qwen3'), []
    pop = settled(host)
    before = ask(pop, BATCHES['copies'])
    for register in ('register_forward_hook', 'register_forward_pre_hook'):
        handle = getattr(host.model.model.layers[1].mlp, register)(lambda *args: calls.append(1) and None)
        again = ask(pop, BATCHES['copies'])
        assert calls and again.tokens == before.tokens
        handle.remove()
        calls.clear()
    ask(pop, BATCHES['copies'])
    assert not calls and used == [LeanRows, ModuleRows, ModuleRows, LeanRows]
    handle = host.model.model.layers[1].mlp.register_forward_hook(lambda module, inputs, output: 2 * output)
    assert ask(pop, BATCHES['copies']).tokens != before.tokens
    handle.remove()


# --- no work for nothing

def passes(monkeypatch, way):
    "The rows of every pass after the first"
    found, rows = [], {'own layers': LeanRows, 'modules': ModuleRows}[way]
    real = rows.next
    monkeypatch.setattr(rows, 'next', lambda self, tokens: found.append(len(tokens)) or real(self, tokens))
    return found


def test_rows_are_dropped_as_they_end(colony, way, monkeypatch):
    batch = BATCHES['all ranks and lengths'] + BATCHES['copies']
    free = ask(colony.pop, batch)
    monkeypatch.setattr(colony.host, 'ends', [*{row[3] for row in free.tokens[::2] if len(row) > 3}])
    counted = passes(monkeypatch, way)
    made = ask(colony.pop, batch)
    longest = max(made.new_tokens)
    needed = [int((made.new_tokens > step).sum()) for step in range(1, longest)]
    assert len(counted) == longest - 1 and longest > 8
    assert all(live <= rows <= live / .75 for live, rows in zip(needed, counted))
    assert sum(counted) < .6 * len(batch) * longest


def test_a_row_that_ends_at_once_takes_no_second_pass(colony, way, monkeypatch):
    first = ask(colony.pop, [(6, 'o5')], max_new_tokens=1).tokens[0]
    monkeypatch.setattr(colony.host, 'ends', first)
    counted = passes(monkeypatch, way)
    assert ask(colony.pop, [(6, 'o5')] * 3).tokens == [first] * 3 and not counted


def test_copies_of_a_prompt_are_read_once(monkeypatch):
    pop, read, real = settled(lively('llama')), [], Decoder.run
    monkeypatch.setattr(Decoder, 'run', lambda self, ids, *args, **how: read.append(ids.numel()) or real(
        self, ids, *args, **how))
    ids = pop.host.encode(PROMPTS)
    for copies in (1, 3, 7, 9):
        read.clear()
        pop.generate([PROMPTS[8]] * copies, ['o4'] * copies, max_new_tokens=1)
        assert read == [len(ids[8])]
    read.clear()
    pop.generate([PROMPTS[8]] * 6, ['o4', None, 'o4', 'o5', None, 'o4'], max_new_tokens=1)
    assert sum(read) == 3 * len(ids[8])                             # once for each that answers it
    read.clear()
    ask(pop, BATCHES['copies'], max_new_tokens=1)
    unique = sum(len(ids[p]) for p, _ in {*BATCHES['copies']})
    assert unique <= sum(read) <= unique + 150 * len(read) < sum(len(ids[p]) for p, _ in BATCHES['copies'])
    read.clear()
    ask(pop, BATCHES['all ranks and lengths'], max_new_tokens=1, chunk=30)
    assert all(n <= 30 or n in (len(ids[7]), len(ids[8]), len(ids[9])) for n in read) and len(read) > 10


def test_the_modules_read_copies_of_a_prompt_once(monkeypatch):
    modules_only(monkeypatch)
    pop, read = settled(lively('llama')), []
    real = type(pop.host.model).forward
    monkeypatch.setattr(type(pop.host.model), 'forward',
                        lambda self, input_ids, **rest: read.append(tuple(input_ids.shape)) or real(self, input_ids,
                                                                                                   **rest))
    pop.generate([PROMPTS[8]] * 9, ['o4'] * 9, max_new_tokens=2, temperature=0.)
    assert read == [(1, len(pop.host.encode([PROMPTS[8]])[0])), (9, 1)]


# --- random numbers and lengths

def splitmix(seed, count):
    "The reference implementation of Steele, Lea & Flood (2014), in whole numbers"
    found, state = [], seed % 2**64
    for _ in range(count):
        state = (state + 0x9E3779B97F4A7C15) % 2**64
        z = state
        z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ z >> 27) * 0x94D049BB133111EB % 2**64
        found.append(z ^ z >> 31)
    return found


@given(st.lists(st.one_of(st.integers(0, 9), st.integers(-2**70, 2**70)), min_size=1, max_size=5), st.integers(1, 9))
@settings(max_examples=50, deadline=None, derandomize=True)
def test_uniforms_are_splitmix64(seeds, count):
    found = uniforms(seeds, count)
    assert found.shape == (len(seeds), count) and found.dtype == np.float64
    assert found.tolist() == [[(z >> 11) / 2**53 for z in splitmix(seed, count)] for seed in seeds]
    assert (found >= 0).all() and (found < 1).all()


def test_uniforms_repeat_and_differ_between_seeds():
    "The first number of seed 1234567 is in every published test of SplitMix64"
    assert splitmix(1234567, 2) == [6457827717110365317, 3203168211198807973]
    found = uniforms(range(200), 50)
    assert np.array_equal(found, uniforms(range(200), 50)) and len(np.unique(found)) == found.size
    assert np.array_equal(found[:, :7], uniforms(range(200), 7))
    assert abs(found.mean() - .5) < .01 and abs(np.corrcoef(found[:100].ravel(), found[100:].ravel())[0, 1]) < .05


@given(st.lists(st.integers(1, 600), min_size=1, max_size=60), st.floats(0, 4000),
       st.one_of(st.just(float('inf')), st.integers(1, 3000)))
@settings(max_examples=200, deadline=None, derandomize=True)
def test_buckets_waste_and_hold_no_more_than_they_may(lengths, spare, limit):
    found = buckets(lengths, spare=spare, limit=limit)
    assert sorted(sum(found, [])) == list(range(len(lengths)))
    for bucket in found:
        mine = [lengths[i] for i in bucket]
        assert mine and max(mine) * len(mine) - sum(mine) <= spare
        assert len(mine) == 1 or max(mine) * len(mine) <= limit
    # As few as this way of cutting allows: no bucket could have taken the first of the next.
    for now, after in zip(found, found[1:]):
        first = lengths[after[0]]
        assert (first * len(now) - sum(lengths[i] for i in now) > spare or first * (len(now) + 1) > limit)


def test_a_part_that_somebody_replaced_is_heard():
    host = lively('qwen3')
    mlp = host.model.model.layers[0].mlp
    before, real = host.generate(['hello'], max_new_tokens=5, temperature=0.).logprobs, mlp.forward
    mlp.forward = lambda x: 3 * real(x)
    assert host.generate(['hello'], max_new_tokens=5, temperature=0.).logprobs != before


def test_tokens_that_do_not_exist_are_refused():
    pop = Population(lively('qwen3'), capacity=1)
    pop.birth(draw(pop, 2))
    for token in (9999, -1):
        with pytest.raises(ValueError, match=f'answer 1 expected token ids from 0 to 258, got .*{token}'):
            pop.forward(['a', 'b'], [[5], [5, token]], ['o1', 'o1'])


def test_a_long_prompt_and_a_long_answer_need_not_fit_together():
    pop = Population(lively('qwen3'), capacity=1)
    pop.birth(draw(pop, 2))
    lines = sum(len(t) for t in pop.forward(['x' * 500, 'a'], [[5], [6] * 100], ['o1', 'o1']))
    assert lines == 101
    with pytest.raises(ValueError, match='context is 512'): pop.forward(['x' * 500], [[6] * 100], ['o1'])


def test_a_trace_can_be_learned_from():
    pop = Population(lively('qwen3'), capacity=1)
    pop.birth(draw(pop, 2))
    trace, = pop.forward(['a'], [[5, 6, 7]], ['o1'])
    weight = torch.zeros(4, trace.hidden.shape[1], requires_grad=True)
    (trace.hidden @ weight.T).sum().backward()
    torch.testing.assert_close(weight.grad[0], trace.hidden.sum(0))


def test_a_model_with_a_state_reads_whole_texts():
    from transformers import MambaConfig, MambaForCausalLM
    torch.manual_seed(0)
    model = MambaForCausalLM(MambaConfig(vocab_size=259, hidden_size=16, num_hidden_layers=1, state_size=4,
                                         eos_token_id=1))
    prompts = [[5, 6], [9, 8, 7, 6, 5, 4]]
    made = sample(model, prompts, ends=[1], max_new_tokens=4, temperature=0.)
    for prompt, tokens in zip(prompts, made.tokens):
        with torch.no_grad(): logits = model(torch.tensor([prompt + tokens])).logits[0, len(prompt) - 1:-1]
        assert logits.argmax(-1).tolist() == tokens
