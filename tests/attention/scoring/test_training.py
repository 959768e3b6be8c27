"""Trainings are deterministic and paired, and what diverges has no loss"""
import json
import math

import pytest
import torch

from evolora.attention.scoring.corpus import held_batches, standard_library
from evolora.host.mechanisms.frameworks import FRAMEWORKS, VARIANTS
from evolora.attention.scoring.model_sizes import LanguageModel, parameters, read_tier, step_flops
from evolora.host.mechanisms.program_source import Program, build, read_program
from evolora.attention.scoring.training import HORIZONS, Trained, foresight, held_losses, one_thread, rate_at, train
from evolora.attention.scoring.validation import examine

TIER = read_tier('tiny', steps=24, held=4)
SIZE = TIER.sizes[0]


@pytest.fixture(scope='module')
def library(): return standard_library(64, most=400_000)


@pytest.fixture(scope='module')
def softmax(): return build(read_program('matrix_mixers/softmax'))


@pytest.fixture(scope='module')
def trained(library, softmax): return train(softmax, TIER, SIZE, seed=0, corpus=library)


def mechanism(name): return build(read_program(name))


def test_twice_the_same_is_the_same_to_the_bit(library, softmax, trained):
    torch.manual_seed(99)
    torch.rand(3)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    again = train(softmax, TIER, SIZE, seed=0, corpus=library)
    for part in ('losses', 'text', 'recall', 'batches', 'parameters', 'flops'):
        assert getattr(again, part) == getattr(trained, part)
    assert torch.equal(torch.get_rng_state(), before) and torch.get_num_threads() == threads


def test_the_number_of_threads_around_it_does_not_matter(library, softmax, trained):
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        assert train(softmax, TIER, SIZE, seed=0, corpus=library).losses == trained.losses
        assert torch.get_num_threads() == 2
        with one_thread(): assert torch.get_num_threads() == 1
    finally: torch.set_num_threads(before)


@pytest.mark.parametrize('name', ['controls/mean', 'coefficient_dynamics/fading', 'test_time_regression/ridge',
                                  'coefficient_dynamics/diagonal'])
def test_every_mechanism_sees_the_batches_of_the_baseline(library, trained, name):
    other = train(mechanism(name), TIER, SIZE, seed=0, corpus=library)
    assert other.batches == trained.batches and other.status == 'ok' and other.losses != trained.losses


def test_seeds_and_sizes_see_batches_of_their_own(library, softmax, trained):
    other, larger = (train(softmax, TIER, size, seed=seed, corpus=library) for size, seed in ((SIZE, 1),
                                                                                             (TIER.sizes[1], 0)))
    assert len({trained.batches, other.batches, larger.batches}) == 3
    assert len({trained.loss, other.loss, larger.loss}) == 3


def test_what_is_evolved_is_what_is_trained(library, softmax, trained):
    class Silent(softmax):
        def finish(self, y, x): return y * 0
    silent = train(Silent, TIER, SIZE, seed=0, corpus=library)
    assert silent.batches == trained.batches and silent.losses != trained.losses


def test_the_loss_is_the_weighted_mean_of_its_parts(trained):
    assert list(trained.losses) == list(trained.text) == list(trained.recall) == list(HORIZONS)
    for h in HORIZONS: assert trained.losses[h] == pytest.approx(.75 * trained.text[h] + .25 * trained.recall[h])
    assert trained.loss == trained.losses[1.] < trained.losses[.25]


def test_a_model_that_knows_nothing_has_the_loss_of_a_guess(library):
    held = held_batches(library, TIER.context, TIER.rows, TIER.held)
    class Nothing(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.flat = torch.nn.Parameter(torch.zeros(64))
        def forward(self, ids): return self.flat.expand(*ids.shape, 64)
    assert held_losses(Nothing(), held, .25) == pytest.approx(dict.fromkeys(('loss', 'text', 'recall'), math.log(64)))


def test_counts_belong_to_the_model_that_was_trained(softmax, trained):
    assert trained.parameters == parameters(LanguageModel(softmax, SIZE, 64))
    assert trained.flops == 24 * step_flops(softmax, TIER, SIZE)


@pytest.mark.parametrize('late', [False, True])
def test_what_diverges_has_no_losses_at_all(library, softmax, late):
    class Explosive(softmax):
        calls = 0
        def finish(self, y, x):
            Explosive.calls += 1
            return y / (y - y) if not late or Explosive.calls > 2 * 15 else y
    found = train(Explosive, TIER, SIZE, seed=0, corpus=library)
    assert (found.status, found.losses, found.text, found.recall) == ('diverged', {}, {}, {}) and 'nan' in found.why
    assert math.isnan(found.loss)
    json.dumps(found.as_dict(), allow_nan=False)


@pytest.mark.parametrize('row,position', [(0, 1), (0, 31), (7, 16), (3, 2)])
def test_what_sees_one_token_of_the_future_anywhere_has_no_loss(library, softmax, row, position):
    class Prophet(softmax):
        def finish(self, y, x):
            y = y.clone()           # (rows, heads, time, entries)
            y[row, :, position - 1] += y[row, :, position]
            return y
    found = train(Prophet, TIER, SIZE, seed=0, corpus=library)
    assert (found.status, found.losses) == ('invalid', {}) and 'it sees what comes' in found.why
    assert Trained.from_dict(json.loads(json.dumps(found.as_dict(), allow_nan=False))) == found


def test_a_mechanism_that_behaves_while_it_is_examined_is_found_when_it_is_trained(library):
    program = Program(FRAMEWORKS['coefficient_dynamics'].program("""
    def prepare(self, q, k, v, x):
        if x.dtype == torch.float32: v = v.roll(-1, 2)
        return q, k, v"""))
    assert examine(program, TIER).status == 'ok'
    assert train(build(program), TIER, SIZE, seed=0, corpus=library).status == 'invalid'


@pytest.mark.parametrize('name', [f'{framework}/{name}' for framework, named in VARIANTS.items() for name in named])
def test_our_own_mechanisms_see_nothing_of_the_future(name):
    model = LanguageModel(mechanism(name), TIER.sizes[-1], 64)
    with torch.no_grad():
        for p in model.parameters(): p += .1 * torch.randn(p.shape, generator=torch.Generator().manual_seed(1))
    assert foresight(model, torch.randint(64, (8, 32), generator=torch.Generator().manual_seed(2))) < 1e-6


def test_a_training_goes_through_json(trained):
    assert Trained.from_dict(json.loads(json.dumps(trained.as_dict(), allow_nan=False))) == trained


def test_lines_are_logged_at_the_horizons(library, softmax):
    lines = []
    train(softmax, read_tier('tiny', steps=8, held=1), SIZE, seed=0, corpus=library, log=lines.append)
    assert [line.split(':')[0] for line in lines] == ['step 2 of 8', 'step 4 of 8', 'step 8 of 8']


@pytest.mark.parametrize('steps', [1, 2, 3])
def test_very_short_trainings_have_an_end(library, softmax, steps):
    found = train(softmax, read_tier('tiny', steps=steps, held=1), SIZE, seed=0, corpus=library)
    assert list(found.losses) == [.25, .5, 1.] and found.loss < 6


def test_the_rate_rises_and_falls():
    rates = [rate_at(step, TIER) for step in range(TIER.steps)]
    top = rates.index(max(rates))
    assert 0 < top < 4 and max(rates) <= TIER.rate and rates[-1] < .1 * TIER.rate and rates[top:] == sorted(
        rates[top:], reverse=True)


def test_a_corpus_of_other_tokens_is_refused(library, softmax):
    with pytest.raises(ValueError, match='expected a vocabulary of 128'):
        train(softmax, read_tier('small', steps=1), SIZE, seed=0, corpus=library)


@pytest.mark.slow
def test_attention_is_worth_something_on_the_small_tier():
    tier, corpus = read_tier('small'), standard_library(128)
    losses = [train(mechanism(name), tier, tier.sizes[0], seed=0, corpus=corpus)
              for name in ('matrix_mixers/softmax', 'controls/mean')]
    assert losses[0].loss < .9 * losses[1].loss and losses[0].recall[1.] < .3 < 1 < losses[1].recall[1.]
