"""A gradient is the slope of the values or it is found out; honest kinks, jumps and casts are no reason to refuse"""
import numpy as np
import pytest
import torch
from quick import program
from torch import nn

from evolora.attention.scoring import training
from evolora.attention.scoring.corpus import standard_library
from evolora.attention.scoring.gradient_check import (
    GradientStopped, Point, compare, forged_gradient, in_precision, watched)
from evolora.attention.scoring.model_sizes import read_tier
from evolora.attention.scoring.training import batch_shapes, checked_steps, fit_weights
from evolora.host.mechanisms.frameworks import CONTROLS, VARIANTS
from evolora.host.mechanisms.mixer import past_max
from evolora.host.mechanisms.program_source import build, read_program
from evolora.utils.randomness import stream

TIER = read_tier('tiny', steps=3, sizes=((8, 1, 2),))
SIZE = TIER.sizes[0]
INPUTS = torch.from_numpy(stream(0, purpose='inputs').standard_normal((40, 6))).float()


def points(loss, count=12, seed=0):
    "Points of a loss of two matrices, at the gradient that torch gives"
    rng = stream(seed, purpose='points')
    weights = {name: torch.from_numpy(rng.standard_normal((6, 6))).float().requires_grad_() for name in ('a', 'b')}
    value = loss(weights['a'], weights['b'])
    gradients = dict(zip(weights, torch.autograd.grad(value, list(weights.values()))))
    plain = {name: p.detach() for name, p in weights.items()}
    def evaluate(values):
        with torch.no_grad(), in_precision(values['a'].dtype): return loss(values['a'], values['b']).item()
    def again():
        values = {name: p.double().requires_grad_() for name, p in plain.items()}
        with in_precision(torch.float64): value = loss(values['a'], values['b'])
        return dict(zip(values, torch.autograd.grad(value, list(values.values()))))
    return [compare(evaluate, plain, gradients, value.item(), again, rng, ['b']) for _ in range(count)]


def outcome(x, a): return torch.tanh(x.to(a.dtype) @ a)


HONEST = {
    'smooth': lambda a, b: (outcome(INPUTS, a) @ b).square().mean(),
    'relu': lambda a, b: (torch.relu(INPUTS.to(a.dtype) @ a) @ b).abs().mean(),
    'max': lambda a, b: torch.maximum(outcome(INPUTS, a), outcome(INPUTS, b)).amax(-1).square().mean(),
    'a choice that jumps': lambda a, b: (outcome(INPUTS, a) * (INPUTS.to(a.dtype) @ b > 0)).square().mean() + b.sum(),
    'the largest': lambda a, b: outcome(INPUTS, a).topk(2, -1)[0].square().mean() + b.square().mean(),
    'a tensor without effect': lambda a, b: outcome(INPUTS, a).square().mean() + 0 * b.sum(),
    'a cast to single precision': lambda a, b: (outcome(INPUTS, a) @ b).float().square().mean()}


def still(x): return x.detach()
def gap(b): return (b - 1).square().sum()
def stairs(x, levels):
    for i in range(levels): x = x - (x > 64 * .5**i).to(x.dtype) * 64 * .5**i
    return x


def add(x): return lambda a, b: outcome(INPUTS, a).square().mean() + .01 * b.square().mean() + x(b)


FORGED = {
    'a gap': add(lambda b: .1 * (gap(b) - still(gap(b)))),
    'a small gap': add(lambda b: 1e-3 * (gap(b) - still(gap(b)))),
    'one entry': add(lambda b: b[0, 0] - still(b[0, 0])),
    'fine stairs': add(lambda b: stairs(gap(b), 34)),
    'what single precision loses': add(lambda b: .1 * ((gap(b) + 1e9) - 1e9)),
    'in single precision alone': add(lambda b: .1 * (gap(b) - still(gap(b))) * (b.dtype == torch.float32)),
    'half of a gradient': lambda a, b: (outcome(INPUTS, a) @ (b / 2 + still(b) / 2)).square().mean(),
    'no gradient': lambda a, b: (outcome(INPUTS, a) @ still(b)).square().mean() + 0 * b.sum(),
    'a number': lambda a, b: outcome(INPUTS, a).square().mean() * float(b.square().mean()) + 1e-3 * b.sum()}


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize('name', HONEST)
def test_an_honest_gradient_is_the_slope_of_its_values(name, seed):
    found = points(HONEST[name], seed=seed)
    assert forged_gradient(found) == '', found
    assert not any(point.excused for point in found)


@pytest.mark.parametrize('seed', range(3))
@pytest.mark.parametrize('name', FORGED)
def test_a_forged_gradient_is_not(name, seed):
    assert forged_gradient(points(FORGED[name], seed=seed))


def test_coarse_stairs_are_found_over_a_large_step():
    "Between two steps they are honest"
    found = points(add(lambda b: .01 * stairs(gap(b), 13)), 40)
    assert 'over a step of 1%' in forged_gradient(found)


@pytest.mark.parametrize('kinks, why', [(0, ''), (2, ''), (3, '3 of 8 points; kinks excuse 2')])
def test_a_quarter_of_the_points_may_be_at_kinks(kinks, why):
    found = [Point(2. if i < kinks else .1, .1, .1, True, False) for i in range(8)]
    assert why in forged_gradient(found) and bool(why) == bool(forged_gradient(found))


@pytest.mark.parametrize('point', [Point(2., 0., 0., False, False), Point(0., 0., 2., True, True),
                                   Point(np.inf, 0., 0., False, False)])
def test_one_point_is_enough_where_values_are_smooth(point):
    assert forged_gradient([Point(0., 0., 0., False, False)] * 50 + [point])


WAYS = {'a number': lambda w: float(w.sum()), 'math': lambda w: __import__('math').exp(w.sum()),
        'a whole number': lambda w: int(w[0]), 'rounding': lambda w: w.round(), 'a remainder': lambda w: w % 1,
        'linspace': lambda w: torch.linspace(w[0], w[1], 2), 'a copy': lambda w: torch.tensor([w[0], w[1]]),
        'whole numbers': lambda w: w.to(torch.long), 'bits': lambda w: w.view(torch.int32),
        'places of another tensor': lambda w: torch.zeros(3, dtype=torch.long).__setitem__(slice(None), w)}


@pytest.mark.parametrize('name', WAYS)
def test_what_stops_a_gradient_is_seen_in_use(name):
    weight = torch.ones(3, requires_grad=True)
    with pytest.raises(GradientStopped), watched(): WAYS[name](weight * 2)


@pytest.mark.parametrize('way', [
    lambda w: w * (w > 0), lambda w: w[w.argmax()], lambda w: w.sort()[1], lambda w: torch.zeros_like(w) + w,
    lambda w: bool((w > 0).all()), lambda w: w.float(), lambda w: w.topk(2), lambda w: int((w > 0).sum()),
    lambda w: torch.zeros(3).__setitem__(0, w[0]), lambda w: torch.linalg.lstsq(torch.outer(w, w), w[:, None]),
    lambda w: torch.arange(3).type_as(w) * w, lambda w: torch.ones(1).expand_as(w) * w, lambda w: torch.ones(3).to(w),
    lambda w: torch.where(w > 0, 1., 0.) * w, lambda w: nn.functional.one_hot(w.argmax(), 3) * w])
def test_masks_choices_and_shapes_stop_none(way):
    with watched(): way(torch.ones(3, requires_grad=True) * 2)


@pytest.fixture(scope='module')
def library(): return standard_library(64, most=400_000)


STANDARD = [f'{framework}/{name}' for framework in VARIANTS for name in VARIANTS[framework]]
STANDARD += [f'controls/{name}' for name in CONTROLS]


@pytest.mark.parametrize('name', STANDARD)
def test_no_standard_mechanism_is_refused_by_any_secret(library, name):
    mechanism = build(read_program(name))
    for secret in ('one', 'another', 'a third'):
        found = fit_weights(mechanism, TIER, SIZE, seed=0, corpus=library, secret=secret, checked={0, 2})
        assert (found.status, found.why) == ('ok', '')


@pytest.mark.parametrize('finish', [
    'return torch.relu(y)', 'return torch.maximum(y, -y)', 'return y * (y > 0)', 'return y.sort(-1)[0]',
    'return y.float().type_as(x)', 'assert y.ndim == 4, "heads"\n    return y'])
def test_honest_programs_with_kinks_casts_and_assertions_pass(library, finish):
    mechanism = build(program('def matrix(self, q, k, x): return causal_softmax(q @ k.mT)\n'
                              f'def finish(self, y, x):\n    {finish}'))
    found = fit_weights(mechanism, TIER, SIZE, seed=0, corpus=library, secret='one', checked={0, 1, 2})
    assert (found.status, found.why) == ('ok', '')


@pytest.mark.parametrize('checked', [set(), {0, 2}])
def test_a_training_that_forges_with_a_word_of_the_library_ends_at_the_first_step(library, checked):
    still = 'past_max(t[..., None, None])[..., 0, 0]'
    mechanism = build(program('def matrix(self, q, k, x): return causal_softmax(q @ k.mT)\n'
                              f'def still(self, t): return {still}\n'
                              'def finish(self, y, x): return y + y.square() - self.still(y.square())'))
    seen = []
    found = fit_weights(mechanism, TIER, SIZE, seed=0, corpus=library, secret='one', checked=checked,
                        at=lambda horizon, _: seen.append(horizon))
    assert found.status == 'invalid' and 'a maximum that is kept without gradient has an effect' in found.why
    assert seen == []


@pytest.mark.parametrize('use, has_effect', [
    (lambda w: (w - past_max(w)).exp() / (w - past_max(w)).exp().sum(-1, keepdim=True), False),
    (lambda w: (w - past_max(w)).exp() / (w * 1 - past_max(w * 1)).exp().sum(-1, keepdim=True), False),
    (lambda w: w - past_max(w), True), (lambda w: past_max(w).square() + w, True), (lambda w: w * 2, False)])
def test_a_maximum_without_gradient_may_have_no_effect(use, has_effect):
    weight = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    with watched() as seen: loss = (use(weight * 2).tril() * torch.arange(4)).sum()
    loss.backward()
    if not has_effect: return seen.check_held()
    with pytest.raises(GradientStopped, match='kept without gradient'): seen.check_held()


def test_the_check_changes_no_weight(library):
    mechanism, found = build(read_program('matrix_mixers/softmax')), []
    for checked in (set(), {0, 1, 2}):
        def keep(horizon, model): found.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
        fit_weights(mechanism, TIER, SIZE, seed=0, corpus=library, checked=checked, at=keep)
    assert torch.equal(found[2], found[5])


def test_shapes_are_of_the_secret_and_say_nothing_of_the_step():
    tier = read_tier('tiny')
    shapes, other = batch_shapes(tier, 'one'), batch_shapes(tier, 'another')
    assert shapes == batch_shapes(tier, 'one') and shapes != other and len(set(shapes)) > 50
    tokens = np.mean([rows * length for rows, length in shapes])
    assert tokens == pytest.approx(tier.rows * tier.context, rel=.1)
    assert {length for _, length in shapes} <= set(range(16, 33, 2)) and max(shapes, key=lambda one: one[1])[1] == 32
    assert checked_steps(tier, 'one') != checked_steps(tier, 'another') and len(checked_steps(tier, 'one')) == 5


@pytest.mark.parametrize('rows, context', [(1, 10), (2, 10), (3, 12)])
def test_the_smallest_tiers_have_shapes(rows, context):
    shapes = training.batch_shapes(read_tier('tiny', rows=rows, context=context), 'one')
    assert min(rows for rows, _ in shapes) >= 1 and {length % 2 for _, length in shapes} == {0}
    assert min(length for _, length in shapes) >= 8


@pytest.mark.parametrize('error, why', [(.05, ''), (1., 'not the slope')])
def test_a_gradient_that_single_precision_knows_roughly_is_no_forgery(error, why):
    "Where double precision knows it better, and both agree by and large"
    rng = stream(0, purpose='rough')
    weight = torch.from_numpy(rng.standard_normal(400))
    rough = weight * torch.from_numpy(1 + error * rng.standard_normal(400))
    found = [compare(lambda values: values['a'].double().square().sum().item() / 2, {'a': weight.float()},
                     {'a': rough.float()}, (weight.float().double().square().sum() / 2).item(),
                     lambda: {'a': weight.float().double()}, rng) for _ in range(20)]
    assert why in forged_gradient(found) and bool(why) == bool(forged_gradient(found))
