"""Questions are secret, each window is used once, and what is not in a process cannot be seen there"""
import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from evolora.attention.scoring import training
from evolora.attention.scoring.corpus import standard_library
from evolora.attention.scoring.exam import (
    COMPANY, Trained, answer_losses, company_effect, draw_exam, exam_losses, mixed_company, predict, train)
from evolora.attention.scoring.model_sizes import LanguageModel, read_tier
from evolora.attention.scoring.training import HORIZONS
from evolora.host.mechanisms.frameworks import VARIANTS
from evolora.host.mechanisms.program_source import build, read_program

TIER = read_tier('tiny', steps=24, held=2048)
SIZE = TIER.sizes[0]


@pytest.fixture(scope='module')
def library(): return standard_library(64, most=2_000_000)


@pytest.fixture(scope='module')
def softmax(): return build(read_program('matrix_mixers/softmax'))


@pytest.fixture(scope='module')
def exam(library): return draw_exam(library, TIER, 'a secret')


@pytest.fixture(scope='module')
def trained(library, softmax): return train(softmax, TIER, SIZE, seed=0, corpus=library)


def text(exam): return [part for part in exam.parts if part.kind == 'text']


def test_no_window_is_asked_about_twice_and_windows_do_not_overlap(library, exam):
    numbered = replace(library, held=np.arange(len(library.held)))
    starts = np.concatenate([part.prefixes[:, 0] for part in text(draw_exam(numbered, TIER, 'a secret'))])
    assert len(set(starts)) == len(starts) and (starts % (TIER.context + 1) == 0).all()
    for part in text(draw_exam(numbered, TIER, 'a secret')):
        assert (np.diff(part.prefixes) == 1).all() and (part.answers == part.prefixes[:, -1] + 1).all()


def test_every_position_is_asked_about_equally_often(exam):
    lengths = [part.prefixes.shape[1] for part in text(exam)]
    assert lengths == list(range(1, TIER.context + 1)) and len({len(part.answers) for part in text(exam)}) == 1
    asked = {kind: sum(len(part.answers) for part in exam.parts if part.kind == kind) for kind in ('text', 'recall')}
    assert asked['text'] / len(exam) == pytest.approx(.75, abs=.02) and len(exam) == pytest.approx(2048, rel=.05)


def test_the_answer_of_a_recall_question_is_on_the_card_of_its_key(exam):
    for part in exam.parts:
        if part.kind == 'text': continue
        ids = part.prefixes - (64 - 48)
        keys, values = (ids[:, :6] - 12) // 6, (ids[:, :6] - 12) % 6
        found = values[keys == ids[:, -1:]]
        assert (found + 6 == part.answers - (64 - 48)).all()


def test_a_secret_decides_all_of_it_and_another_shares_next_to_nothing(library, exam):
    assert draw_exam(library, TIER, 'a secret').digest == exam.digest
    other = draw_exam(library, TIER, 'another')
    def windows(exam): return {part.prefixes[i].tobytes() for part in text(exam)[8:] for i in range(len(part.answers))}
    shared = len(windows(exam) & windows(other)) / len(windows(exam))
    assert other.digest != exam.digest and shared < .1


def test_a_text_that_is_too_short_is_refused_and_one_that_is_just_long_enough_is_not(library):
    for windows, fits in ((TIER.context - 1, False), (TIER.context, True)):
        short = replace(library, held=library.held[:windows * (TIER.context + 1)])
        if fits: assert len(text(draw_exam(short, TIER, ''))) == TIER.context
        else:
            with pytest.raises(ValueError, match='enough for 31; use a longer text'): draw_exam(short, TIER, '')
    half = replace(library, held=library.held[:10 * TIER.context * (TIER.context + 1)])
    assert len(text(draw_exam(half, TIER, ''))[0].answers) == 5


def test_a_model_that_knows_nothing_has_the_loss_of_a_guess(exam):
    flat = [np.zeros((len(part.answers), 64), np.float32) for part in exam.parts]
    assert exam_losses(exam, flat, .25) == pytest.approx(dict.fromkeys(('loss', 'text', 'recall'), math.log(64)))


@pytest.mark.parametrize('scale,shift', [(1., 0.), (1., 1e6), (50., -3.)])
def test_losses_are_those_of_a_softmax_in_double_precision(exam, scale, shift):
    numbers = [scale * np.random.default_rng(i).standard_normal((len(part.answers), 64)) + shift
               for i, part in enumerate(exam.parts)]
    for part, one, found in zip(exam.parts, numbers, answer_losses(exam, numbers)):
        wanted = torch.nn.functional.cross_entropy(torch.from_numpy(one), torch.from_numpy(part.answers).long(),
                                                   reduction='none')
        np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-9, atol=1e-9)
        assert (found >= 0).all()


@pytest.mark.parametrize('bad', [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_no_loss(exam, bad):
    numbers = [np.full((len(part.answers), 64), bad) for part in exam.parts]
    assert not math.isfinite(exam_losses(exam, numbers, .25)['loss'])


def test_infinite_certainty_of_one_token_is_worth_what_it_deserves(exam):
    "A program may not claim more than 1 for a right answer, and pays for a wrong one"
    one = [np.where(np.arange(64) == 5, 1e30, 0.) for _ in exam.parts]
    numbers = [np.tile(row, (len(part.answers), 1)) for row, part in zip(one, exam.parts)]
    assert exam_losses(exam, numbers, .25)['text'] > 1e20


@pytest.mark.parametrize('name', [f'{framework}/{name}' for framework, named in VARIANTS.items() for name in named])
def test_our_own_mechanisms_answer_alike_in_any_company(exam, name):
    model = LanguageModel(build(read_program(name)), SIZE, 64)
    few, chosen = mixed_company(exam, 'a secret')
    share = [len(some) / len(part.answers) for some, part in zip(chosen, exam.parts)]
    assert min(share) > 0 and max(share) < .75 and len(set(share)) > 4, 'nobody knows how many'
    assert company_effect(exam, predict(model, exam.questions), chosen, predict(model, few.questions)) < COMPANY / 100


@pytest.mark.parametrize('kind', ['row before', 'mean of all', 'past calls', 'number of rows'])
def test_company_of_any_kind_shows(softmax, exam, kind):
    class Nosy(softmax):
        past = []
        def finish(self, y, x):
            if kind == 'row before': return y + y.roll(1, 0)
            if kind == 'mean of all': return y + y.mean((0, 2), keepdim=True)
            if kind == 'number of rows': return y + len(y) / 10
            Nosy.past.append(y.detach().mean())
            return y + sum(Nosy.past[-5:])
    model = LanguageModel(Nosy, SIZE, 64)
    few, chosen = mixed_company(exam, 'a secret')
    first = predict(model, exam.questions)
    Nosy.past.clear()
    assert company_effect(exam, first, chosen, predict(model, few.questions)) > COMPANY


# The whole

def test_the_loss_is_the_weighted_mean_of_its_parts(trained):
    assert list(trained.losses) == list(trained.text) == list(trained.recall) == list(HORIZONS)
    for h in HORIZONS: assert trained.losses[h] == pytest.approx(.75 * trained.text[h] + .25 * trained.recall[h])
    assert trained.loss == trained.losses[1.] < trained.losses[.25]


def test_another_secret_is_another_loss_of_the_same_training(library, softmax, trained):
    other = train(softmax, TIER, SIZE, seed=0, corpus=library, secret='another')
    assert other.batches != trained.batches and other.losses != trained.losses
    assert other.loss == pytest.approx(trained.loss, abs=.2)
    again = train(softmax, TIER, SIZE, seed=0, corpus=library, secret='another')
    assert again.losses == other.losses


def test_what_is_evolved_is_what_is_trained(library, softmax, trained):
    class Silent(softmax):
        def finish(self, y, x): return y * 0
    silent = train(Silent, TIER, SIZE, seed=0, corpus=library)
    assert silent.batches == trained.batches and silent.losses != trained.losses


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


def test_a_model_that_is_no_number_in_the_exam_alone_has_diverged(library, softmax):
    class Sudden(softmax):
        def finish(self, y, x): return y if len(y) < 30 or x.shape[1] < 20 else y / 0
    found = train(Sudden, TIER, SIZE, seed=0, corpus=library)
    assert found.status == 'diverged' and 'held back was nan' in found.why and found.losses == {}


@pytest.fixture
def exam_alone(monkeypatch):
    "The exam has to be enough without the comparison of predictions in training and in an exam"
    monkeypatch.setattr(training, '_other_in_training', lambda shifts: '')


@pytest.mark.parametrize('row,position', [(0, 1), (0, 31), (7, 16), (3, 2)])
def test_seeing_one_token_of_the_future_in_training_is_worth_nothing(library, softmax, trained, row, position,
                                                                      exam_alone):
    class Prophet(softmax):
        def finish(self, y, x):
            if len(y) <= row or y.shape[2] <= position: return y
            y = y.clone()           # (rows, heads, time, entries)
            y[row, :, position - 1] += y[row, :, position]
            return y
    assert train(Prophet, TIER, SIZE, seed=0, corpus=library).loss > trained.loss - .02


def test_seeing_all_of_the_future_is_worth_less_than_nothing(library, softmax, exam_alone):
    class Prophet(softmax):
        def finish(self, y, x): return y + 3 * y.roll(-1, 2)
    tier = read_tier('tiny', steps=120, held=2048)
    honest, prophet = (train(kind, tier, SIZE, seed=0, corpus=library) for kind in (softmax, Prophet))
    assert prophet.loss > honest.loss + .05


def test_a_training_goes_through_json(trained):
    assert Trained.from_dict(json.loads(json.dumps(trained.as_dict(), allow_nan=False))) == trained


@pytest.mark.slow
def test_attention_is_worth_something_on_the_small_tier():
    tier, corpus = read_tier('small'), standard_library(128)
    losses = [train(build(read_program(name)), tier, tier.sizes[0], seed=0, corpus=corpus)
              for name in ('matrix_mixers/softmax', 'controls/mean')]
    assert losses[0].loss < .9 * losses[1].loss and losses[0].recall[1.] < .3 < 1 < losses[1].recall[1.]
