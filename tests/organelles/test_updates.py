"""Six rules: each matches its formula, each learns only from its own organelle's reward, and what learns stays."""
import math

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from evolora.organelles.learning_rules import RULES, Credit, Reading, credit, learning_flops
from evolora.organelles.lessons import Lesson, plant
from evolora.host.model import load_host, tiny_host
from evolora.organelles.population import Population
from evolora.organelles.traits import Traits
from evolora.organelles.updates import (Plasticity, PlasticityConfig, centred_ranks, evolution_strategy,
                                        group_advantage, kl_from_host)
from evolora.utils.randomness import seed_of, stream
from evolora.tasks.families import Cell, grade
from evolora.tasks.task_sets import sample_tasks
from evolora.ecology.variation import OPERATORS
from host.test_engine import lively

MAPS = ('q_proj', 'k_proj', 'v_proj', 'o_proj', 'gate_proj', 'up_proj', 'down_proj')
WRITERS = ('o_proj', 'down_proj')
ARCHITECTURES = ('qwen3', 'qwen2', 'llama', 'gemma3')


def crowd(host, ranks=(4, 2, 3), targets=WRITERS, **keywords):
    population = Population(host, capacity=len(ranks) + 1, targets=targets, **keywords)
    for i, rank in enumerate(ranks):
        one = population.birth(rank=rank, rng=stream(i, purpose='crowd'))
        awake = OPERATORS['gaussian'](population.factors(one.id), rng=stream(i, purpose='awake'), step=.3)
        population.write(one.id, awake)
    return population


def spoken(population, seed=0, copies=3, advantage=None):
    "Random prompts of three lengths, answered several times by each organelle"
    rng = np.random.default_rng(seed)
    prompts = [''.join(chr(97 + c) for c in rng.integers(0, 26, n)) for n in (3, 9, 17)]
    asked = [(p, id) for id in population.ids for p in prompts for _ in range(copies)]
    made = population.generate([p for p, _ in asked], [id for _, id in asked], max_new_tokens=7,
                               seeds=range(len(asked)))
    advantage = rng.standard_normal(len(asked)) if advantage is None else np.full(len(asked), float(advantage))
    return Lesson([p for p, _ in asked], made.tokens, [id for _, id in asked], advantage), made


def total(reading, lesson, population, **keywords):
    "Log-probability of each answer, read from trees"
    found = torch.zeros(len(lesson), dtype=torch.float64)
    for trees in plant(population, lesson, **keywords):
        found.index_add_(0, trees.rows, reading.read(trees, grad=False).detach().double())
    return found


# --- reading

@pytest.mark.parametrize('chunk', [1, 60, 8192])
@pytest.mark.parametrize('architecture', ARCHITECTURES)
def test_an_answer_is_read_as_it_was_sampled(architecture, chunk):
    population = crowd(lively(architecture), targets=MAPS)
    lesson, made = spoken(population)
    reading = Reading(population, population.ids)
    sampled = torch.tensor([sum(row) for row in made.logprobs], dtype=torch.float64)
    assert (total(reading, lesson, population, chunk=chunk) - sampled).abs().max() < 2e-4


@pytest.mark.parametrize('architecture', ARCHITECTURES)
def test_backprop_is_the_gradient_of_peft(architecture, tmp_path):
    import peft
    host = lively(architecture)
    population = crowd(host, ranks=(3,), targets=MAPS)
    lesson, _ = spoken(population)
    found = credit(population, lesson, 'backprop')
    population.export_peft('o1', tmp_path / 'adapter')
    model = peft.PeftModel.from_pretrained(lively(architecture).model, tmp_path / 'adapter', is_trainable=True).eval()
    prompts, loss = host.encode(lesson.prompts), 0.
    for prompt, answer, advantage in zip(prompts, lesson.answers, lesson.advantage):
        logits = model(torch.tensor([[*prompt, *answer[:-1]]])).logits[0, len(prompt) - 1:]
        loss = loss + advantage * logits.log_softmax(-1).gather(-1, torch.tensor(answer)[:, None]).sum()
    (loss / len(lesson)).backward()
    theirs = {n: p.grad for n, p in model.named_parameters() if p.grad is not None}
    for n in population.shapes:
        a, b = (theirs[f'base_model.model.{n}.lora_{x}.default.weight'] for x in 'AB')
        scale = max(a.abs().max(), b.abs().max()).item()
        assert (found.A[n][0] - a).abs().max() < 2e-4 * scale and (found.B[n][0] - b.T).abs().max() < 2e-4 * scale


def test_the_temperature_counts():
    population = crowd(lively('llama'), ranks=(3,))
    lesson, _ = spoken(population)
    cold = Lesson(lesson.prompts, lesson.answers, lesson.organelles, lesson.advantage, temperature=.5)
    for trees in plant(population, cold):
        a, b = (Reading(population, ['o1'], t).read(trees, grad=False).detach() for t in (1., .5))
        assert (a - b).abs().max() > 1e-3
    assert credit(population, lesson, 'local').cosine(credit(population, cold, 'local')) < .9999


# --- the rules, in closed form

@pytest.mark.parametrize('architecture', ARCHITECTURES)
def test_hebbian_is_two_outer_products(architecture):
    if architecture == 'gemma3': pytest.skip('gemma norms what a map gives before it is added: see the test below')
    population = crowd(lively(architecture), ranks=(4, 2))
    lesson, _ = spoken(population)
    found, reading = credit(population, lesson, 'hebbian'), Reading(population, population.ids)
    want = {n: ([0., 0.], [0., 0.]) for n in population.shapes}
    for trees in plant(population, lesson):
        weights = torch.tensor(lesson.advantage, dtype=torch.float32)[trees.rows]
        error, = torch.autograd.grad((reading.read(trees, grad=False) * weights).sum(), reading.residual)
        for tree, owner in enumerate(trees.owner.tolist()):
            id = population.ids[owner]
            for n, (A, B) in population.factors(id).items():
                x, s = reading.inputs[n][tree], population.scale(id)
                want[n][0][owner] = want[n][0][owner] + s * torch.einsum('ro,to,ti->ri', B.T, error[tree], x)
                want[n][1][owner] = want[n][1][owner] + s * torch.einsum('to,ri,ti->ro', error[tree], A, x)
    for n, (A, B) in want.items():
        for k, id in enumerate(population.ids):
            r, rows = population[id].rank, lesson.organelles.count(id)
            for mine, theirs in ((found.A[n][k], A[k]), (found.B[n][k], B[k])):
                assert (mine[:r] - theirs / rows).abs().max() < 1e-6 + 1e-5 * theirs.abs().max() and not mine[r:].any()


@pytest.mark.parametrize('architecture', ARCHITECTURES)
def test_local_is_exact_in_the_last_block_and_only_there(architecture):
    population = crowd(lively(architecture), targets=MAPS)
    lesson, _ = spoken(population)
    exact, found = (credit(population, lesson, rule) for rule in ('backprop', 'local'))
    assert found.cosine(exact, module='layers.1.') == pytest.approx(1, abs=1e-6)
    ratio = found.flat(module='layers.1.').norm() / exact.flat(module='layers.1.').norm()
    assert float(ratio) == pytest.approx(1, abs=1e-5)
    assert found.cosine(exact, module='layers.0.') < .999


def test_local_in_one_block_does_not_hear_of_the_others():
    "The gradient inside a block, its input held fixed: written out for the down projection of block 0"
    host = lively('llama')
    population = crowd(host, ranks=(2,), targets=('down_proj',))
    lesson, _ = spoken(population)
    found, reading, n = credit(population, lesson, 'local'), Reading(population, ['o1']), 'model.layers.0.mlp.down_proj'
    want = 0.
    for trees in plant(population, lesson):
        weights = torch.tensor(lesson.advantage, dtype=torch.float32)[trees.rows]
        error, = torch.autograd.grad((reading.read(trees, grad=False) * weights).sum(), reading.residual)
        A, _ = population.factors('o1')[n]
        want = want + population.scale('o1') * torch.einsum('nto,ri,nti->ro', error, A, reading.inputs[n])
    assert (found.B[n][0] - want / len(lesson)).abs().max() < 1e-6 + 1e-5 * want.abs().max()


def test_node_is_the_gradient_of_A_on_average():
    population = crowd(lively('llama'), ranks=(3,), blocks=1)
    lesson, _ = spoken(population)
    exact, rng = credit(population, lesson, 'backprop'), stream(0, purpose='node')
    exact.B = {n: torch.zeros_like(b) for n, b in exact.B.items()}          # node leaves B alone
    few, many = (credit(population, lesson, 'node', rng=rng, pairs=p, sigma=.05) for p in (4, 400))
    assert not any(b.any() for b in many.B.values())
    assert many.cosine(exact) > .75 and many.cosine(exact) > few.cosine(exact) + .1
    length = many.flat().dot(exact.flat()) / exact.flat().square().sum()
    assert float(length) == pytest.approx(1, abs=.25)                       # and not only its direction


def test_node_by_hand():
    "One pair of noise: gain times noise times input, over twice the variance"
    population = crowd(lively('llama'), ranks=(2,), targets=('down_proj',), blocks=1)
    lesson, n = Lesson(['abc'], [[70, 71, 1]], ['o1'], [2.]), 'model.layers.1.mlp.down_proj'
    found = credit(population, lesson, 'node', rng=stream(5), sigma=.2, pairs=1)
    reading, (trees,) = Reading(population, ['o1']), plant(population, lesson)
    reading.read(trees, grad=False)
    x = reading.inputs[n]
    size = .2 * x.square().mean().sqrt()
    noise = torch.from_numpy(stream(5).standard_normal((*x.shape[:2], 2))).float() * size
    gain = sum(s * 2. * reading.read(trees, grad=False, noise={n: s * noise}).sum() for s in (1, -1)).detach()
    want = gain * (noise[0].T @ x[0]) / (2 * size**2)                       # x is the block's own: noise above is none
    assert (found.A[n][0] - want).abs().max() < 1e-5 * want.abs().max() + 1e-6


def test_es_by_hand():
    population = crowd(tiny_host('llama'), ranks=(2,), targets=('down_proj',))
    lesson, tried = Lesson(['abc', 'abc', 'xyz'], [[70, 1]] * 3, ['o1'] * 3, [0., 0., 0.]), []
    def rollout(variants, rows, who):
        tried.append((variants, list(zip(rows, who))))
        return np.array([float(int(id[1:])) for id in who]), np.full(len(rows), 5.)     # later twins are better
    found, cost = evolution_strategy(population, lesson, rollout, sigma=.1, pairs=2, rng=stream(3))
    (variants, asked), = tried
    assert sorted(asked) == [(row, f'o{v}') for row in (0, 2) for v in (1, 2, 3, 4)]    # each question once
    assert cost.tolist() == [20., 0., 20.]
    rng, u = stream(3), centred_ranks([1, 2, 3, 4])
    noises = [{n: [torch.from_numpy(rng.standard_normal(tuple(x.shape))).float() for x in AB]
               for n, AB in population.factors('o1').items()} for _ in range(2)]
    for n, (A, B) in population.factors('o1').items():
        size = A.square().mean().sqrt()
        want = sum((u[2 * i] - u[2 * i + 1]) / (4 * .1) * e[n][0] / size for i, e in enumerate(noises))
        assert (found.A[n][0] - want).abs().max() < 1e-6
        plus, minus = (variants.factors(id)[n][0] for id in ('o1', 'o2'))
        assert ((plus + minus) / 2 - A).abs().max() < 1e-6
        assert ((plus - minus) / 2 - .1 * size * noises[0][n][0]).abs().max() < 1e-6


@pytest.mark.parametrize('rule', ['hebbian', 'local', 'backprop', 'node'])
def test_zero_teaches_nothing_and_opposites_mirror(rule):
    population = crowd(lively('qwen3'))
    lesson, _ = spoken(population)
    other = lambda f: Lesson(lesson.prompts, lesson.answers, lesson.organelles, f * lesson.advantage)
    go = lambda lesson: credit(population, lesson, rule, **({'rng': stream(1)} if rule == 'node' else {})).flat()
    assert not go(other(0.)).any() and go(lesson).any()
    near = (1e-3 if rule == 'node' else 1e-5) * max(1, go(lesson).abs().max())      # node is a difference of two sums
    assert (go(other(-1.)) + go(lesson)).abs().max() < near
    assert (go(other(3.)) - 3 * go(lesson)).abs().max() < 3 * near


@pytest.mark.parametrize('rule', ['hebbian', 'local', 'backprop'])
def test_credit_is_ones_own(rule):
    population = crowd(lively('gemma3'))
    lesson, _ = spoken(population)
    together = credit(population, lesson, rule)
    for id in population.ids:
        alone = credit(population, lesson.take([i for i, o in enumerate(lesson.organelles) if o == id]), rule)
        r = population[id].rank
        k = together.organelles.index(id)
        for half in 'AB':
            for n, x in getattr(alone, half).items():
                theirs = getattr(together, half)[n][k, :r]
                assert (x[0] - theirs).abs().max() < 1e-5 * max(1, float(theirs.abs().max()))


def test_a_trace_that_forgets_credits_the_last_token_only():
    population = crowd(lively('llama'), ranks=(2,))
    lesson, _ = spoken(population)
    found = credit(population, lesson, 'backprop', decay=0.)
    # the log-probability of the last token alone
    want, reading = None, Reading(population, ['o1'])
    for trees in plant(population, lesson):
        logprobs, last = reading.read(trees), trees.left == 0
        loss = (logprobs * torch.tensor(lesson.advantage, dtype=torch.float32)[trees.rows])[last].sum()
        error, = torch.autograd.grad(loss, reading.residual)
        g = torch.autograd.grad(reading.outputs[-1], list(reading.B.values()), grad_outputs=error)
        want = g if want is None else [a + b for a, b in zip(want, g)]
    for n, g in zip(reading.B, want): assert (found.B[n] - g / len(lesson)).abs().max() < 1e-6


@pytest.mark.parametrize('rule', ['hebbian', 'local', 'backprop'])
def test_flops_are_those_that_torch_counts(rule):
    class Counter(TorchDispatchMode):
        flops = 0
        def __torch_dispatch__(self, function, types, args=(), keywords=None):
            out = function(*args, **(keywords or {}))
            if formula := flop_registry.get(function._overloadpacket):
                self.flops += formula(*args, **(keywords or {}), out_val=out)
            return out
    host = tiny_host('llama', hidden=64, layers=4)
    population = crowd(host, ranks=(4,), targets=WRITERS if rule == 'hebbian' else MAPS)
    population.host.model.set_attn_implementation('eager')          # torch does not count fused attention
    lesson = Lesson(['a' * 40], [[70] * 30 + [1]], ['o1'], [1.])
    with Counter() as counter: credit(population, lesson, rule)
    assert learning_flops(population, lesson, rule)[0] == pytest.approx(counter.flops, rel=.12)


@pytest.mark.parametrize('rule', ['hebbian', 'local', 'backprop'])
def test_answers_to_one_question_share_the_reading_of_it_in_the_bill(rule):
    population = crowd(tiny_host('llama', hidden=64, layers=4), ranks=(4,),
                       targets=WRITERS if rule == 'hebbian' else MAPS)
    lesson = lambda n: Lesson(['a' * 40] * n, [[70] * 9 + [1]] * n, ['o1'] * n, np.ones(n))
    one, four = (learning_flops(population, lesson(n), rule).sum() for n in (1, 4))
    nothing = learning_flops(population, Lesson(['a' * 40], [[1]], ['o1'], [1.]), rule).sum()      # reads the question
    readout = 4 * population.host.meter.unembedding
    assert four == pytest.approx(4 * one - 3 * (nothing - readout), rel=1e-9)
    assert learning_flops(population, lesson(4), rule, alone=True).sum() == pytest.approx(4 * one)


# --- advantages

def test_group_advantage_leaves_oneself_out():
    rng = np.random.default_rng(0)
    reward, groups = rng.random(40), rng.integers(0, 8, 40).tolist()
    found = group_advantage(reward, groups)
    for i, g in enumerate(groups):
        others = [reward[j] for j in range(40) if groups[j] == g and j != i]
        if others: assert found[i] == pytest.approx(reward[i] - np.mean(others))
        else: assert math.isnan(found[i])


def test_the_cell_baseline_is_older_than_the_answer():
    plasticity = Plasticity(crowd(tiny_host()), PlasticityConfig(baseline='cell', baseline_rate=.5))
    go = lambda *rewards: plasticity.advantages(np.array(rewards), ['o1'] * len(rewards), list('abcdef')[:len(rewards)],
                                                ['math:1'] * len(rewards)).tolist()
    assert go(1., 0.) == [0., 0.]                       # nothing was expected yet
    assert go(1., 1.) == [.5, .5]                       # .5 was
    assert go(0.) == [-.75]
    assert Plasticity(crowd(tiny_host())).advantages(np.array([1.]), ['o1'], ['a'], ['math:1']).tolist() == [0.]


# --- learning

@pytest.mark.parametrize('rule', ['hebbian', 'local', 'node', 'backprop'])
def test_what_one_organelle_learns_changes_no_other(rule):
    host = lively('llama')
    population, ids = crowd(host), torch.tensor([[5, 6, 7, 8]] * 4)
    lesson, _ = spoken(population)
    before, frozen = population.logits(ids, organelles=['o1', 'o2', 'o3', None]), host.weights_hash()
    mine = lesson.take([i for i, o in enumerate(lesson.organelles) if o == 'o1'])
    Plasticity(population, PlasticityConfig(rule=rule)).learn(mine, rng=stream(0))
    after = population.logits(ids, organelles=['o1', 'o2', 'o3', None])
    assert torch.equal(before[1:], after[1:]) and (before[0] - after[0]).abs().max() > 1e-4
    assert host.weights_hash() == frozen


@pytest.mark.parametrize('rule', ['hebbian', 'local', 'backprop', 'none'])
def test_nothing_useful_changes_nothing(rule):
    population = crowd(lively('llama'))
    lesson, _ = spoken(population, advantage=0)
    before = population.weights_hash()
    report = Plasticity(population, PlasticityConfig(rule=rule)).learn(lesson, rng=stream(0))
    assert population.weights_hash() == before and not report.gflops.any()


def test_the_first_update_moves_each_number_by_the_learning_rate():
    "Adam's first update moves every number that has a gradient by `step`, in the gradient's direction"
    population = crowd(lively('llama'), ranks=(3,))
    lesson, _ = spoken(population)
    found, before = credit(population, lesson, 'local'), population.factors('o1')
    Plasticity(population, PlasticityConfig(learning_rate=.02, warmup=0, probe=0.)).learn(lesson, rng=stream(0))
    for n, (A, B) in population.factors('o1').items():
        for new, old, g in ((A, before[n][0], found.A[n][0]), (B, before[n][1], found.B[n][0].T)):
            big = g.abs() > 1e-4
            assert ((new - old)[big] - .02 * g.sign()[big]).abs().max() < 1e-4 and big.any()


def test_adam_by_hand():
    population = crowd(lively('llama'), ranks=(2,), targets=('down_proj',), blocks=1)
    config = PlasticityConfig(learning_rate=.01, half_life=3., warmup=2, beta1=.8, beta2=.9, probe=0.)
    plasticity, (n,) = Plasticity(population, config), population.shapes
    A = population.factors('o1')[n][0].double()
    m = v = 0.
    for k in range(1, 6):
        lesson, _ = spoken(population, seed=k)
        g = credit(population, lesson, 'local').A[n][0].double()
        m, v = .8 * m + .2 * g, .9 * v + .1 * g**2
        rate = .01 / (1 + (k - 1) / 3) * min(1, k / 2)
        A = A + rate * (m / (1 - .8**k)) / ((v / (1 - .9**k)).sqrt() + 1e-8)
        plasticity.learn(lesson, rng=stream(k))
        assert (population.factors('o1')[n][0] - A).abs().max() < 1e-5
        A = population.factors('o1')[n][0].double()


def test_a_trait_scales_the_learning_rate():
    moved = []
    for factor in (1., .25):
        population = crowd(lively('llama'), ranks=(2,))
        one = population.birth(population.factors('o1'), traits=Traits(plasticity=factor))
        lesson, _ = spoken(population)
        mine = lesson.take([i for i, o in enumerate(lesson.organelles) if o == one.id])
        moved.append(Plasticity(population, PlasticityConfig(probe=0.)).learn(mine, rng=stream(0)).step.iloc[0])
    assert moved[1] == pytest.approx(moved[0] / 4, rel=1e-4)


@pytest.mark.parametrize('seed', range(3))
def test_the_kl_trust_region_holds(seed):
    population = crowd(lively('qwen3'))
    lesson, _ = spoken(population, seed=seed)
    config = PlasticityConfig(learning_rate=.5, warmup=0, kl_max=.2, probe=1.)
    report = Plasticity(population, config).learn(lesson, rng=stream(seed))
    held = kl_from_host(population, lesson)
    assert all(held[id] <= .2 + 1e-9 for id in population.ids) and (report.kl_scale < 1).all()
    assert report.kl.to_dict() == pytest.approx(held)


def test_drift_is_the_kl_divergence_from_the_host():
    population = crowd(lively('llama'), ranks=(2,))
    population.birth(rank=2)                                                # a no-op
    lesson, _ = spoken(population)
    found = kl_from_host(population, lesson)
    assert found['o2'] == pytest.approx(0., abs=1e-6) and found['o1'] > 1e-3   # one row may be rounded unlike another
    mine = lesson.take([0])
    prompt, = population.host.encode(mine.prompts)
    ids = torch.tensor([[*prompt, *mine.answers[0][:-1]]] * 2)
    p, q = population.logits(ids, organelles=['o1', None])[:, len(prompt) - 1:].double().log_softmax(-1)
    assert kl_from_host(population, mine)['o1'] == pytest.approx(float((p.exp() * (p - q)).sum(-1).mean()), abs=1e-5)


def test_state_goes_on_bit_for_bit():
    def go(stop):
        population = crowd(lively('llama'))
        plasticity = Plasticity(population, PlasticityConfig(baseline='cell'))
        for k in range(4):
            if k == stop:
                state = plasticity.state()
                plasticity = Plasticity(population, plasticity.config)
                plasticity.restore(state | {'moments': {n: x.clone() for n, x in state['moments'].items()}})
            lesson, made = spoken(population, seed=k)
            reward = np.array([sum(t) % 7 for t in made.tokens], float)
            lesson.advantage = plasticity.advantages(reward, lesson.organelles, lesson.prompts, ['c'] * len(lesson))
            plasticity.learn(lesson, rng=stream(k))
        return population.weights_hash()
    assert go(2) == go(None)


def test_moments_are_inherited_where_coordinates_are():
    population = crowd(lively('llama'), ranks=(3,))
    plasticity = Plasticity(population)
    lesson, _ = spoken(population)
    plasticity.learn(lesson, rng=stream(0))
    def child(operator):
        one = population.birth(OPERATORS[operator](population.factors('o1'), rng=stream(1), step=.01))
        plasticity.inherit(one.id, ('o1',), operator)
        slot, same = one.slot, population['o1'].slot
        found = [torch.equal(x[slot], x[same]) for h in plasticity.first.values() for x in h.values()]
        moments = [x for half in (*plasticity.first.values(), *plasticity.second.values()) for x in half.values()]
        blank = not any(x[slot].any() for x in moments)
        counts = [int(count[slot]) for count in (plasticity.updates, plasticity.averaged, plasticity.own)]
        plasticity.forget(one.id)
        population.death(one.id)
        return all(found), blank, counts
    for operator in ('gaussian', 'rescale'): assert child(operator) == (True, False, [1, 1, 0])
    for operator in ('direction', 'widen', 'narrow'): assert child(operator) == (False, True, [1, 0, 0])
    newborn = population.birth(rank=2)                  # in the slot that the dead have left
    plasticity.inherit(newborn.id)
    assert not plasticity.second['A'][next(iter(population.shapes))][newborn.slot].any()


def test_moments_that_begin_anew_make_no_step_longer_than_its_rate():
    "Under a gradient that stays, every entry moves by the learning rate, in the child's first update and in all others"
    population = crowd(lively('llama'), ranks=(3,))
    plasticity = Plasticity(population, PlasticityConfig(half_life=1e9, warmup=0))
    child = population.birth(OPERATORS['direction'](population.factors('o1'), rng=stream(1), step=.01), parents=('o1',))
    def step(id):
        ones = ({n: torch.ones_like(x)[None] for n, x in half.items()} for half in halves(population.factors(id)))
        return float(plasticity.step(Credit([id], *ones, np.ones(1)))[0])
    def halves(factors): return {n: A for n, (A, _) in factors.items()}, {n: B.T for n, (_, B) in factors.items()}
    steps = [step('o1') for _ in range(30)]
    plasticity.inherit(child.id, ('o1',), 'direction')
    assert [step(child.id) for _ in range(20)] == pytest.approx([steps[0]] * 20, rel=1e-3) == steps[:20]


@pytest.mark.parametrize('sharing', [0., .4, 1.])
def test_relatives_share_directions_and_strangers_do_not(sharing):
    population = crowd(lively('llama'), ranks=(3,))
    child = population.birth(OPERATORS['gaussian'](population.factors('o1'), rng=stream(1), step=.01), parents=('o1',))
    plasticity = Plasticity(population, PlasticityConfig(sharing=sharing))
    plasticity.inherit('o1')
    plasticity.inherit(child.id, ('o1',), 'gaussian')
    lesson, _ = spoken(population)
    found = credit(population, lesson, 'local')
    mixed = plasticity._shared(found)
    for half in 'AB':
        for n, x in getattr(found, half).items():
            want = (1 - sharing) * x + sharing * x.mean(0, keepdim=True)
            assert (getattr(mixed, half)[n] - want).abs().max() < 1e-6
    plasticity.inherit(child.id, ('o1',), 'direction')          # another basis: not related any more
    assert all(torch.equal(a, b) for a, b in zip(plasticity._shared(found).A.values(), found.A.values()))


def test_node_reparametrises_a_noop_without_changing_its_output():
    population = Population(lively('llama'), capacity=1)
    population.birth(rank=2)
    lesson, _ = spoken(population)
    plasticity = Plasticity(population, PlasticityConfig(rule='node'))
    plasticity._wake(['o1'])
    assert population.is_noop('o1') and all(B.any() and not A.any() for A, B in population.factors('o1').values())
    plasticity.learn(lesson, rng=stream(0))
    assert not population.is_noop('o1')


# --- does it learn? one small task, eight seeds, in seconds

@pytest.fixture(scope='module')
def embedded(): return load_host('embedded', threads=1)


def gain(host, seed, shuffle=False, updates=10, **config):
    "Accuracy on fresh questions after some updates, minus that of a control that learned nothing"
    population, cell = Population(host, capacity=2, targets=MAPS, blocks=1), Cell('word.count', 1)
    for i in range(2): population.birth(rank=8, rng=stream(seed, purpose='founder', organelle=i))
    plasticity = Plasticity(population, PlasticityConfig(**config))
    for g in range(updates):
        asked = [t for t in sample_tasks(cell, n=8, rng=stream(seed, generation=g)) for _ in range(8)]
        draws = [seed_of(seed, generation=g, organelle=i) for i in range(len(asked))]
        made = population.generate([t.prompt for t in asked], ['o1'] * len(asked), seeds=draws)
        reward = np.array([grade(t, x).success for t, x in zip(asked, made.texts)], float)
        if shuffle: stream(seed, generation=g, purpose='shuffle').shuffle(reward)
        advantage = plasticity.advantages(reward, ['o1'] * len(asked), [t.id for t in asked], ['c'] * len(asked))
        plasticity.learn(Lesson([t.prompt for t in asked], made.tokens, ['o1'] * len(asked), advantage), rng=stream(g))
    test = sample_tasks(cell, stream='selection', n=96, rng=stream(seed, purpose='test'))
    draws = [seed_of(seed, purpose='test', organelle=i) for i in range(len(test))] * 2
    made = population.generate([t.prompt for t in test] * 2, ['o1'] * 96 + ['o2'] * 96, seeds=draws)
    right = [grade(t, x).success for t, x in zip(test * 2, made.texts)]
    return (sum(right[:96]) - sum(right[96:])) / 96


@pytest.mark.parametrize('seed', range(8))
def test_learning_beats_a_control_in_every_seed(embedded, seed): assert gain(embedded, seed) > .1


def test_shuffled_rewards_teach_nothing(embedded):
    assert np.mean([gain(embedded, seed, shuffle=True) for seed in range(3)]) < .08


# --- what is refused

def test_errors_say_what_to_do():
    population = crowd(tiny_host())
    lesson = Lesson(['a'], [[70, 1]], ['o1'], [1.])
    for call, message in ((lambda: credit(population, lesson, 'hope'), 'rule expected one of'),
                          (lambda: credit(population, lesson.take([]), 'local'), 'empty lesson'),
                          (lambda: credit(crowd(tiny_host(), targets=MAPS), lesson, 'hebbian'), 'to the residual'),
                          (lambda: Lesson(['a'], [[]], ['o1'], [1.]), 'at least one token'),
                          (lambda: Lesson(['a'], [[1]], ['o1'], [math.inf]), 'advantage expected finite'),
                          (lambda: Plasticity(population, PlasticityConfig(rule='es')).learn(lesson, rng=stream(0)),
                           'rollout'),
                          (lambda: Plasticity(population).restore({'moments': {}}), 'restore it where it was saved')):
        with pytest.raises(ValueError, match=message): call()
    with pytest.raises(KeyError, match='known: o1'): credit(population, Lesson(['a'], [[70]], ['o9'], [1.]), 'local')


# --- how sure an organelle is of a weight

def uncorrelated(population, truth, rng):
    "A credit in which every entry of dL/d(delta W) is drawn by itself, with variance rows_o columns_j"
    A, B = {}, {}
    for n, (a, b) in population.factors('o1').items():
        rows, columns = truth[n]
        G = torch.from_numpy(rng.standard_normal((len(rows), len(columns)))) * rows.outer(columns).sqrt()
        s = population.scale('o1')
        A[n], B[n] = (s * b.T.double() @ G).float()[None], (s * a.double() @ G.T).float()[None]
    return Credit(['o1'], A, B, np.ones(1))


def test_fisher_is_the_mean_square_of_the_gradient():
    population, rng = Population(tiny_host(), capacity=2, targets=('o_proj', 'up_proj')), stream(0)
    signs = lambda *shape: torch.from_numpy(rng.choice([-1., 1.], shape)).float()
    # Columns of one length: the levels are exact, too, and not only rows and columns.
    population.birth({n: (.1 * signs(4, d_in), signs(d_out, 4)) for n, (d_out, d_in) in population.shapes.items()})
    truth = {n: tuple(torch.from_numpy(rng.uniform(.2, 3, d)) * (k + 1) for d in shape)
             for k, (n, shape) in enumerate(population.shapes.items())}
    plasticity = Plasticity(population, PlasticityConfig(beta2=.999, learning_rate=1e-7))
    assert plasticity.fisher('o1') is None
    for _ in range(1500): plasticity.step(uncorrelated(population, truth, rng))
    found, F = plasticity.fisher('o1'), {n: rows.outer(columns) for n, (rows, columns) in truth.items()}
    mean = sum(x.sum() for x in F.values()) / sum(x.numel() for x in F.values())
    for n, (rows, columns) in found.items():
        want = F[n] / mean
        assert columns.mean() == pytest.approx(1) and rows.mean() == pytest.approx(float(want.mean()), rel=.02)
        for mine, true in ((rows, want.mean(1)), (columns, want.mean(0) / want.mean())):
            off = mine / true - 1
            assert off.abs().max() < .25 and off.square().mean().sqrt() < .06


def test_fisher_does_not_see_the_size_of_rewards():
    population = crowd(tiny_host())
    lesson, _ = spoken(population)
    found = []
    for factor in (1., 1000.):
        plasticity = Plasticity(population, PlasticityConfig(learning_rate=1e-9))
        louder = Lesson(lesson.prompts, lesson.answers, lesson.organelles, factor * lesson.advantage)
        plasticity.step(credit(population, louder, 'local'))
        found.append(plasticity.fisher('o2'))
        total = sum((rows.sum() * columns.sum()).item() for rows, columns in found[-1].values())
        assert total == pytest.approx(sum(math.prod(shape) for shape in population.shapes.values()))
    for n in population.shapes:
        assert all(torch.allclose(x, y, rtol=1e-3) and (x >= 0).all() for x, y in zip(found[0][n], found[1][n]))


def test_fisher_of_one_trained_factor_is_uniform_in_the_other():
    population = crowd(tiny_host(), ranks=(3,))
    plasticity, n = Plasticity(population), next(iter(population.shapes))
    plasticity.second['A'][n][0, :3] = torch.arange(1., population.shapes[n][1] + 1)
    found = plasticity.fisher('o1')
    assert torch.equal(found[n][0], found[n][0][:1].expand(population.shapes[n][0])) and found[n][0][0] > 0
    assert torch.allclose(found[n][1] / found[n][1][0], torch.arange(1., population.shapes[n][1] + 1).double())
    assert not any(rows.any() for m, (rows, _) in found.items() if m != n)
    population.write('o1', {m: (A, B * 0) for m, (A, B) in population.factors('o1').items()})
    assert plasticity.fisher('o1') is None                          # silenced: of what size A's gradients were is lost


def test_merging_by_fisher_takes_what_plasticity_gives():
    from evolora.assimilation.merging import merge
    population = crowd(tiny_host())
    lesson, _ = spoken(population)
    plasticity = Plasticity(population)
    plasticity.learn(lesson.take([i for i, id in enumerate(lesson.organelles) if id != 'o3']), rng=stream(0))
    fisher = [plasticity.fisher(id) for id in population.ids]
    assert [f is None for f in fisher] == [False, False, True]
    parents = [population.factors(id) for id in population.ids]
    both = [merge(parents, [1, 1, 1], rank=9, rule=rule, fisher=f).factors for rule, f in
            (('linear', None), ('fisher', fisher))]
    assert all(B.isfinite().all() and not torch.allclose(B, both[0][n][1]) for n, (_, B) in both[1].items())
