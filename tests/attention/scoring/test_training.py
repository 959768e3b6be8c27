"""Trainings are deterministic and paired, what they cost is what they spend, and what diverges says so"""
import pytest
import torch

from evolora.attention.scoring import training
from evolora.attention.scoring.corpus import standard_library
from evolora.attention.scoring.model_sizes import LanguageModel, parameters, read_tier, step_flops
from evolora.attention.scoring.training import HORIZONS, counted_steps, fit_weights, one_thread, rate_at
from evolora.host.mechanisms.frameworks import FRAMEWORKS
from evolora.host.mechanisms.operation_counts import count_operations
from evolora.host.mechanisms.program_source import Program, build, read_program

TIER = read_tier('tiny', steps=24)
SIZE = TIER.sizes[0]


@pytest.fixture(scope='module')
def library(): return standard_library(64, most=400_000)


@pytest.fixture(scope='module')
def softmax(): return build(read_program('matrix_mixers/softmax'))


def fitted(mechanism, library, size=SIZE, seed=0, **settings):
    "What came of a training, and the weights at each horizon"
    found = {}
    def keep(horizon, model): found[horizon] = torch.cat([p.detach().flatten() for p in model.parameters()])
    return fit_weights(mechanism, TIER, size, seed=seed, corpus=library, at=keep, **settings), found


@pytest.fixture(scope='module')
def trained(library, softmax): return fitted(softmax, library)


def mechanism(name): return build(read_program(name))


def same(one, other): return list(one) == list(other) and all(torch.equal(one[h], other[h]) for h in one)


def test_twice_the_same_is_the_same_to_the_bit(library, softmax, trained):
    torch.manual_seed(99)
    torch.rand(3)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    again, weights = fitted(softmax, library)
    assert list(weights) == list(HORIZONS) and same(weights, trained[1])
    for part in ('status', 'batches', 'parameters', 'flops'): assert getattr(again, part) == getattr(trained[0], part)
    assert torch.equal(torch.get_rng_state(), before) and torch.get_num_threads() == threads


def test_the_number_of_threads_around_it_does_not_matter(library, softmax, trained):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert same(fitted(softmax, library)[1], trained[1]) and torch.get_num_threads() == 2
        with one_thread(): assert torch.get_num_threads() == 1
    finally: torch.set_num_threads(before)


@pytest.mark.parametrize('name', ['controls/mean', 'coefficient_dynamics/fading', 'test_time_regression/ridge',
                                  'coefficient_dynamics/diagonal'])
def test_every_mechanism_sees_the_batches_of_the_baseline(library, trained, name):
    other, weights = fitted(mechanism(name), library)
    assert other.batches == trained[0].batches and other.status == 'ok' and not same(weights, trained[1])


def test_seeds_and_sizes_see_batches_of_their_own(library, softmax, trained):
    other, larger = (fitted(softmax, library, size, seed)[0] for size, seed in ((SIZE, 1), (TIER.sizes[1], 0)))
    assert len({trained[0].batches, other.batches, larger.batches}) == 3


def test_other_weights_to_start_from_and_the_same_batches(library, softmax, trained):
    other, weights = fitted(softmax, library, start=7)
    assert other.batches == trained[0].batches and not same(weights, trained[1])


def test_counts_belong_to_the_model_that_was_trained(softmax, trained):
    assert trained[0].parameters == parameters(LanguageModel(softmax, SIZE, 64))
    # Shorter rows take less for each token.
    assert trained[0].flops == pytest.approx(24 * step_flops(softmax, TIER, SIZE), rel=.15)


def test_counting_changes_no_weight_and_where_it_is_done_hardly_a_count(library, softmax, trained):
    for counted in ({3, 11, 20}, {23}):
        other, weights = fitted(softmax, library, counted=counted)
        assert same(weights, trained[1]) and other.flops == pytest.approx(trained[0].flops, rel=.15)


@pytest.mark.parametrize('idle', [lambda x, calls: x.device.type == 'meta', lambda x, calls: calls < 2,
                                  lambda x, calls: not torch.is_grad_enabled(),
                                  lambda x, calls: x.dtype != torch.float32])
def test_less_work_while_it_is_counted_is_more_work_than_is_gained(library, softmax, idle):
    "It would have to know which steps are counted"
    class Sly(softmax):
        calls = 0
        def finish(self, y, x):
            Sly.calls += 1
            if idle(y, Sly.calls): return y
            for _ in range(5): y = y + 0 * torch.tanh(y)
            return y
    class Honest(softmax):
        def finish(self, y, x):
            for _ in range(5): y = y + 0 * torch.tanh(y)
            return y
    steps = counted_steps(TIER, 'a secret')
    assert len(steps) == 3 and steps == counted_steps(TIER, 'a secret') and max(steps) < TIER.steps
    assert fitted(Sly, library, counted=steps)[0].flops == fitted(Honest, library, counted=steps)[0].flops


@pytest.mark.parametrize('late', [False, True])
def test_what_diverges_says_when(library, softmax, late):
    class Explosive(softmax):
        calls = 0
        def finish(self, y, x):
            Explosive.calls += 1
            return y / (y - y) if not late or Explosive.calls > 2 * 15 else y
    found, weights = fitted(Explosive, library)
    assert found.status == 'diverged' and 'nan' in found.why and 1. not in weights


@pytest.mark.parametrize('steps', [1, 2, 3])
def test_very_short_trainings_have_every_horizon(library, softmax, steps):
    seen, tier = [], read_tier('tiny', steps=steps)
    fit_weights(softmax, tier, SIZE, seed=0, corpus=library, at=lambda horizon, _: seen.append(horizon))
    assert seen == [.25, .5, 1.]


def test_the_rate_rises_and_falls():
    rates = [rate_at(step, TIER) for step in range(TIER.steps)]
    top = rates.index(max(rates))
    assert 0 < top < 4 and max(rates) <= TIER.rate and rates[-1] < .1 * TIER.rate and rates[top:] == sorted(
        rates[top:], reverse=True)


def test_a_step_follows_a_gradient_of_length_one_at_most(library, softmax, monkeypatch):
    "What is longer is cut, or one odd batch would decide where a training ends; what is shorter stays as it is"
    lengths, make = [], training._optimizer
    def watched(model, tier):
        optimizer = make(model, tier)
        def look(*_): lengths.append(torch.cat([p.grad.flatten() for p in model.parameters()]).norm().item())
        optimizer.register_step_pre_hook(look)
        return optimizer
    monkeypatch.setattr(training, '_optimizer', watched)
    class Steep(softmax):
        def finish(self, y, x): return 30 * y
    fitted(Steep, library)
    assert len(lengths) == TIER.steps and max(lengths) == pytest.approx(1., abs=1e-4) and min(lengths) < .9


def test_a_corpus_of_other_tokens_is_refused(library, softmax):
    with pytest.raises(ValueError, match='expected a vocabulary of 128'):
        fit_weights(softmax, read_tier('small', steps=1), SIZE, seed=0, corpus=library)


REMEMBERS = {       # programs that are softmax, where nothing of one step is there in the next
    'a list': ('self.kept = []', 'self.kept.append(y)\n    return y * (1. + (len(self.kept) > 3))'),
    'a closure': ('kept = []\n    self.note = lambda y: kept.append(y) is None and len(kept)',
                  'return y * (1. + (self.note(y) > 3))'),
    'a generator': ('self.calls = enumerate(range(10**6))',
                    'for n, _ in self.calls: break\n    return y * (1. + (n > 3))'),
    'a buffer': ('self.register_buffer("calls", torch.zeros(1))',
                 'self.calls[0] = self.calls[0] + 1\n    return y * (1. + (self.calls[0] > 3).float())'),
    'a tensor': ('self.calls = torch.zeros(1)',
                 'now = self.calls\n    now += 1\n    return y * (1. + (self.calls > 3).float())')}


@pytest.mark.parametrize('how', REMEMBERS)
def test_no_step_knows_of_another(library, how):
    setup, finish = REMEMBERS[how]
    block = ('def setup(self):\n    {}\n'
             'def matrix(self, q, k, x): return causal_softmax(q @ k.mT * self.entries**-.5)\n'
             'def finish(self, y, x):\n    {}')
    sly, plain = (build(Program(FRAMEWORKS['matrix_mixers'].program(block.format(*text)))) for text in (
        (setup, finish), ('pass', 'return y')))
    assert same(fitted(sly, library)[1], fitted(plain, library)[1])


def test_weights_that_are_written_over_are_whole_again_in_the_next_step(library, softmax):
    class Writes(softmax):
        def finish(self, y, x):
            with torch.no_grad(): self.output.bias.add_(1.)
            return y
    class Adds(softmax):
        def forward(self, x): return super().forward(x) + 1.
    wrote, found = fitted(Writes, library)
    assert wrote.status == 'ok' and not same(found, fitted(softmax, library)[1])
    off = (found[.25] - fitted(Adds, library)[1][.25]).abs().max()
    assert off < 1e-3, 'as much in each step, and not more and more'


def test_constants_of_a_setup_are_the_same_in_each_step(library, softmax):
    seen = []
    class Draws(softmax):
        def setup(self): self.numbers = torch.randn(3)
        def finish(self, y, x):
            seen.append(self.numbers)
            return y
    fitted(Draws, library, checked=set())       # in double precision, torch draws other numbers
    assert len(seen) > 40 and len({tuple(x.tolist()) for x in seen}) == SIZE.layers


def test_tied_parameters_stay_tied(library, softmax):
    class Tied(softmax):
        def setup(self):
            self.one = torch.nn.Linear(self.dim, self.dim)
            self.two = torch.nn.Linear(self.dim, self.dim)
            self.two.weight = self.one.weight
    model = LanguageModel(Tied, SIZE, TIER.vocab).renewed()
    assert all(b.mixer.two.weight is b.mixer.one.weight for b in model.blocks)
    assert fitted(Tied, library)[0].status == 'ok'


def test_a_setup_that_makes_other_parameters_is_refused(library, softmax):
    made = []
    class Odd(softmax):
        def setup(self):
            made.append(1)
            self.own = torch.nn.Parameter(torch.zeros(len(made)))
    with pytest.raises(TypeError, match='the same parameters each time'): fitted(Odd, library)


def test_a_program_cannot_tell_by_its_numbers_that_it_is_counted(library, softmax):
    import torch.nn.functional as F
    told = set()
    class Looks(softmax):
        def mix(self, q, k, v, x):
            fused = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            plain = (q * self.entries**-.25) @ (k * self.entries**-.25).mT
            plain = plain.masked_fill(torch.ones_like(plain[0, 0]).tril() == 0, float('-inf')).softmax(-1) @ v
            told.add(bool((fused == plain).all()))
            return v
    fitted(Looks, library, counted={0, 1, 2})
    assert len(told) == 1


@pytest.mark.parametrize('product', [lambda a, b: a @ b, lambda a, b: torch.stack([a @ x for x in b.T], 1),
                                     lambda a, b: torch.stack([torch.stack([x @ y for y in b.T]) for x in a])])
def test_a_product_costs_the_same_however_it_is_written(product):
    a, b = torch.randn(6, 8), torch.randn(8, 5)
    assert 2 * 6 * 8 * 5 <= count_operations(lambda: product(a, b)) <= 2 * 6 * 8 * 5 + 2 * 6 * 5
