"""The frame around a mechanism: counts that are exact, a start that is shared, and what is refused"""
import pytest
import torch
from pydantic import ValidationError
from torch import nn

from evolora.host.mechanisms.frameworks import CONTROLS, FRAMEWORKS, VARIANTS
from evolora.attention.scoring.model_sizes import (TIERS, LanguageModel, Size, Tier, blank, ladder_sizes, parameters,
                                              positions, read_tier, step_flops)
from evolora.host.mechanisms.program_source import Program, build, read_program

NAMES = [f'{framework}/{name}' for framework in VARIANTS for name in VARIANTS[framework]]
NAMES += [f'controls/{name}' for name in CONTROLS]
SMALLEST = Size(16, 2, 2)


def mechanism(name='matrix_mixers/softmax'): return build(read_program(name))


def test_the_seed_ladder_has_half_a_million_to_four_million_parameters():
    softmax = mechanism()
    counts = ladder_sizes(TIERS['seed'], softmax)
    for size, count, target in zip(TIERS['seed'].sizes, counts, (.5e6, 1e6, 2e6, 4e6), strict=True):
        model = LanguageModel(softmax, size, 256)
        assert count == sum(p.numel() for p in model.parameters()) and abs(count / target - 1) < .1
        found = parameters(model)
        assert found['embedding'] == 256 * size.dim < .06 * count and found['own'] == 0
        assert found['all'] == found['embedding'] + found['without_embedding']
    assert TIERS['gpu'].sizes == TIERS['seed'].sizes and TIERS['gpu'].steps == 100_000
    assert (TIERS['gpu'].context, TIERS['gpu'].rows) == (128, 64)


def test_a_ladder_of_pairs_is_counted_without_its_table():
    softmax, pairs = mechanism(), read_tier('gpu', vocab=16384)
    bytewise = [parameters(blank(softmax, size, 256)) for size in pairs.sizes]
    assert ladder_sizes(pairs, softmax) == [found['without_embedding'] for found in bytewise]


@pytest.mark.parametrize('name', NAMES)
def test_every_variant_runs_counts_and_starts_where_the_baseline_does(name):
    baseline, model = (LanguageModel(mechanism(n), SMALLEST, 64, seed=3) for n in ('matrix_mixers/softmax', name))
    ids = torch.arange(24).reshape(2, 12)
    with torch.no_grad(): logits, shorter = model(ids), model(ids[:, :7])
    assert logits.shape == (2, 12, 64) and logits.isfinite().all()
    assert torch.allclose(logits[:, :7], shorter, atol=1e-4)
    assert 0 <= parameters(model)['all'] - parameters(baseline)['all'] < 2 * 33
    assert parameters(model) == parameters(blank(mechanism(name), SMALLEST, 64))
    theirs = dict(model.named_parameters())
    for key, p in baseline.named_parameters():
        both = tuple(slice(min(a, b)) for a, b in zip(p.shape, theirs[key].shape, strict=True))
        assert torch.equal(p[both], theirs[key][both]), key
    assert step_flops(mechanism(name), read_tier('tiny', rows=2), SMALLEST) > 0


def test_numbers_of_a_setup_come_from_the_seed_and_not_from_the_global_generator():
    class Drawn(mechanism()):
        def setup(self): self.drawn = nn.Parameter(torch.randn(3))
    state = torch.get_rng_state()
    one, same, other = (LanguageModel(Drawn, SMALLEST, 64, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(torch.get_rng_state(), state)
    drawn = [model.blocks[0].mixer.drawn for model in (one, same, other)]
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    assert not torch.equal(drawn[0], one.blocks[1].mixer.drawn)


@pytest.mark.parametrize('entries', [1, 33, 66, 500])
def test_what_a_mechanism_adds_is_seen_and_paid_for(entries):
    class Sentinel(mechanism()):
        def setup(self): self.sentinel = nn.Parameter(torch.zeros(entries))
    found, base = parameters(blank(Sentinel, SMALLEST, 64)), parameters(blank(mechanism(), SMALLEST, 64))
    assert found['own'] == 2 * entries and found['all'] - base['all'] == 2 * (entries % 33)


def test_the_price_grows_with_what_is_done():
    def price(**changes): return step_flops(mechanism(), read_tier('tiny', **changes), SMALLEST)
    assert price(rows=16) == pytest.approx(2 * price(rows=8), rel=.01) and price(context=64) > 2 * price(context=32)
    for size in TIERS['seed'].sizes:
        n, tokens = parameters(blank(mechanism(), size, 256))['all'], 16 * 64
        by_hand = 6 * n * tokens + 12 * size.layers * tokens * 64 * size.dim
        assert step_flops(mechanism(), read_tier('seed', rows=16, context=64), size) == pytest.approx(by_hand, rel=.01)


def test_around_a_mechanism_everything_is_as_it_always_is():
    "Pre-norm, one part after the other, plain residuals, GELU, a last norm, and the table at both ends; no dropout"
    torch.manual_seed(0)
    size = Size(8, 2, 2)
    model = LanguageModel(build(read_program('matrix_mixers')), size, 16, seed=3)
    for parameter in model.parameters(): parameter.data.normal_(0, .3)
    ids = torch.randint(16, (2, 5))
    x = model.embedding.weight[ids] / .1 + positions(5, 8)        # a small table, whose rows are as long as positions
    for block in model.blocks:
        x = x + block.mixer(nn.functional.layer_norm(x, (8,), block.mixer_norm.weight, block.mixer_norm.bias))
        y = nn.functional.layer_norm(x, (8,), block.norm.weight, block.norm.bias)
        y = y @ block.up.weight.T + block.up.bias
        y = y * .5 * (1 + torch.erf(y / 2**.5))
        x = x + y @ block.down.weight.T + block.down.bias
    x = nn.functional.layer_norm(x, (8,), model.norm.weight, model.norm.bias)
    assert torch.allclose(model(ids), x @ model.embedding.weight.T, atol=1e-5)
    assert torch.equal(model(ids), model.eval()(ids))


def test_positions_do_not_depend_on_what_follows():
    assert torch.equal(positions(100, 16)[:9], positions(9, 16))
    assert len({tuple(row.tolist()) for row in positions(128, 16)}) == 128


def test_tiers_are_checked():
    assert Tier.model_validate_json(TIERS['small'].model_dump_json()) == TIERS['small']
    assert read_tier('small', steps=7).tokens == 7 * TIERS['small'].rows * TIERS['small'].context
    for wrong, why in [(dict(stpes=1), 'stpes'), (dict(steps=0), 'steps'), (dict(sizes=[]), 'sizes'),
                       (dict(sizes=[(9, 1, 3)]), 'even dim'), (dict(rate=float('nan')), 'rate'),
                       (dict(context=9), 'context'), (dict(vocab=10), 'vocab')]:
        with pytest.raises(ValueError, match=why): read_tier('small', **wrong)
    with pytest.raises(ValueError, match='tier expected one of'): read_tier('middle')
    with pytest.raises(ValidationError): TIERS['tiny'].steps = 3


def test_a_mechanism_that_looks_at_numbers_is_counted_too():
    source = FRAMEWORKS['matrix_mixers'].program("""
        def matrix(self, q, k, x):
            scores = q @ k.mT * self.entries**-.5
            return causal_softmax(scores if scores.sum() > 0 else -scores)""")
    tier = read_tier('tiny', rows=2)
    price = step_flops(mechanism(), tier, SMALLEST)
    assert price < step_flops(build(Program(source)), tier, SMALLEST) < 1.05 * price


def test_a_product_of_matrices_in_disguise_is_not_free():
    source = FRAMEWORKS['matrix_mixers'].program("""
        def matrix(self, q, k, x):
            return causal_softmax((q[..., :, None, :] * k[..., None, :, :]).sum(-1) * self.entries**-.5)""")
    tier = read_tier('tiny', rows=2)
    assert step_flops(build(Program(source)), tier, SMALLEST) > .95 * step_flops(mechanism(), tier, SMALLEST)


def test_a_mechanism_may_have_maps_with_the_names_of_others():
    source = FRAMEWORKS['matrix_mixers'].program("""
        def setup(self): self.{0}, self.{1} = nn.Linear(self.dim, 5 * self.dim), nn.Linear(8, self.heads)
        def matrix(self, q, k, x): return causal_softmax(q @ k.mT)""")
    one, other = (LanguageModel(build(Program(source.format(*names))), SMALLEST, 64) for names in (
        ('up', 'down'), ('rise', 'fall')))
    for a, b in (('up', 'rise'), ('down', 'fall')):
        spreads = [getattr(model.blocks[0].mixer, name).weight.std().item() for model, name in ((one, a), (other, b))]
        assert spreads[0] == pytest.approx(spreads[1], rel=.6)
    plain = LanguageModel(mechanism('matrix_mixers/softmax'), SMALLEST, 64)
    assert torch.equal(one.blocks[0].down.weight[:, :8], plain.blocks[0].down.weight[:, :8])


def test_fused_attention_of_a_program_that_looks_at_numbers_has_its_price():
    def priced(scores):
        block = f'def mix(self, q, k, v, x): return F.scaled_dot_product_attention(q, k, {scores}, is_causal=True)'
        return step_flops(build(Program(FRAMEWORKS['matrix_mixers'].program(block))), read_tier('tiny'), SMALLEST)
    shapes, numbers = priced('v'), priced('v if v.sum() > 0 else -v')
    assert shapes < numbers < 1.05 * shapes
    assert shapes > .95 * step_flops(mechanism(), read_tier('tiny'), SMALLEST)
