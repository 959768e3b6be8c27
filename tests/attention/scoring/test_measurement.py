"""Whatever a contained process writes, it writes weights or predictions: no lie about losses is possible, and no lie
about shapes is believed"""
import copy
import json
import math

import numpy as np
import pytest
from quick import QUICK, SECRET, SOFTMAX, here, scaled

from evolora.attention.scoring import measurement
from evolora.attention.scoring.corpus import corpus_of
from evolora.attention.scoring.measurement import UNREADABLE, Failed, Measurement, Trainings
from evolora.attention.scoring.sandbox import Limits, Outcome
from evolora.attention.scoring.training import HORIZONS

WANTED = tuple([list(size), seed, None] for size in QUICK.sizes[:2] for seed in (0, 1))


def trainings(source=SOFTMAX.source, **settings):
    return Trainings(**dict(source=source, tier=QUICK, wanted=WANTED, secret=SECRET, path=None,
                            digest=corpus_of(None, QUICK.vocab).digest, device='cpu', limits=Limits()) | settings)


def lying(change, task=''):
    "A sandbox whose processes write something else than they found"
    def run(name, arguments, limits, **more):
        outcome = here(name, arguments, limits)
        if task in name: change(outcome.result)
        return outcome
    return run


@pytest.fixture(scope='module')
def honest(): return trainings().trained(here)


def test_predictions_of_certainty_are_worth_a_guess_and_no_more():
    def certain(found): found['numbers'] = np.full(len(found['numbers']) // 4, 3e38, np.float32).tobytes()
    for one in trainings().trained(lying(certain, 'predict_many')):
        assert one.loss == pytest.approx(math.log(QUICK.vocab))


@pytest.mark.parametrize('number', [np.nan, np.inf, -np.inf])
def test_predictions_that_are_no_numbers_are_no_losses(number):
    def spoil(found): found['numbers'] = np.full(len(found['numbers']) // 4, number, np.float32).tobytes()
    assert {one.status for one in trainings().trained(lying(spoil, 'predict_many'))} == {'diverged'}


def test_predictions_that_change_with_the_company_are_refused():
    calls = []
    def drift(found):
        calls.append(1)
        if len(calls) > 1: found['numbers'] = (np.frombuffer(found['numbers'], np.float32)[::-1]).tobytes()
    with pytest.raises(Failed, match='depend on what else it is asked') as failed:
        trainings().trained(lying(drift, 'predict_many'))
    assert failed.value.outcome.status == 'invalid'


@pytest.mark.parametrize('change', [
    lambda found: found.pop('numbers'), lambda found: found.update(numbers=found['numbers'][:-4]),
    lambda found: found.update(numbers='x' * len(found['numbers'])), lambda found: found.update(loss=0.),
    lambda found: found.update(numbers=[0.]), lambda found: found.update(numbers=found['numbers'] + b'1234')])
def test_predictions_in_another_form_are_a_crash(change):
    with pytest.raises(Failed, match=UNREADABLE): trainings().trained(lying(change, 'predict_many'))


def made(number, **changes): return lambda found: found['made'][number].update(changes)


def test_weights_of_another_model_are_worth_what_they_predict(honest):
    def swap(found):
        floats = np.frombuffer(found['weights'], np.float32)
        found['weights'] = (floats * 1.5).astype(np.float32).tobytes()
    swapped = trainings().trained(lying(swap, 'fit_many'))
    assert [one.losses for one in swapped] != [one.losses for one in honest]


def shapes(number, change):
    def changed(found):
        named = found['made'][number]['shapes'] = copy.deepcopy(found['made'][number]['shapes'])
        change(named)
    return changed


@pytest.mark.parametrize('change', [
    lambda found: found.pop('weights'), lambda found: found.update(weights=found['weights'][:-4]),
    lambda found: found.update(weights='x' * len(found['weights'])), lambda found: found.update(made=[]),
    lambda found: found.update(made=found['made'][:-1]), lambda found: found.update(more=1),
    lambda found: found.update(losses={'1.0': .001}), made(0, losses={'1.0': .001}), made(0, status='fine'),
    made(0, why='x' * 1000), made(0, flops=-1), made(0, flops=.5), made(0, flops='1'), made(0, batches='x'),
    made(0, seconds=float('inf')), made(0, seconds=-1.), made(0, shapes=[]), made(0, shapes=None),
    shapes(0, lambda named: named.pop()), shapes(0, lambda named: named.append(['more', [1 << 20]])),
    shapes(0, lambda named: named[0].__setitem__(1, [-64, -8])),
    shapes(0, lambda named: named[0].__setitem__(1, [512])),
    shapes(0, lambda named: named[0].__setitem__(0, 'x' * 500)), shapes(0, lambda named: named.append(['x', [0] * 20])),
    shapes(0, lambda named: named[0].__setitem__(1, [8, 64]))])
def test_weights_in_another_form_are_a_crash(change):
    with pytest.raises(Failed) as failed: trainings().trained(lying(change, 'fit_many'))
    assert failed.value.outcome.status == 'crashed'


def test_names_that_the_model_does_not_have_are_found_by_the_process_that_predicts():
    def rename(found):
        for one in found['made']: one['shapes'][-1][0] = 'norm.other'
    with pytest.raises(Failed, match='the parameters that were trained, got others'):
        trainings().trained(lying(rename, 'fit_many'))


def test_more_parameters_than_the_budget_allows_are_refused_by_the_parent():
    def more(found):
        extra = 2000
        floats, parts, at = np.frombuffer(found['weights'], np.float32), [], 0
        for one in found['made']:
            size = sum(math.prod(shape) for _, shape in one['shapes'])
            for _ in HORIZONS:
                parts += [floats[at:at + size], np.zeros(extra, np.float32)]
                at += size
            one['shapes'].append(['blocks.0.mixer.more', [extra]])
        found['weights'] = np.concatenate(parts).tobytes()
    with pytest.raises(Failed, match='parameters at dim 8, where') as failed:
        trainings().trained(lying(more, 'fit_many'))
    assert failed.value.outcome.status == 'invalid'


def test_the_parent_counts_parameters_as_a_model_does(honest):
    from evolora.attention.scoring.model_sizes import LanguageModel, parameters
    from evolora.host.mechanisms.program_source import build
    for one, (size, _, _) in zip(honest, WANTED):
        assert one.parameters == parameters(LanguageModel(build(SOFTMAX), size, QUICK.vocab))


def test_a_process_that_trains_is_given_no_held_out_text_and_one_that_predicts_no_answer():
    seen = {}
    def watching(name, arguments, limits, **more):
        seen.setdefault(name.rpartition(':')[2], arguments)
        return here(name, arguments, limits)
    one = trainings()
    one.trained(watching)
    assert np.frombuffer(seen['fit_many']['tokens'], seen['fit_many']['kind']).tobytes() == one.corpus.train.tobytes()
    assert SECRET not in json.dumps({task: {key: value for key, value in given.items() if not isinstance(value, bytes)}
                                     for task, given in seen.items()})
    asked = sum(part.prefixes.size for part in one.exam.parts)
    assert len(seen['predict_many']['prefixes']) == 4 * asked
    assert set(seen['predict_many']) == {'source', 'tier', 'models', 'weights', 'shapes', 'prefixes', 'device'}
    # A beginning is nobody's continuation: the window of each question begins where no other's lies.
    for part in one.exam.parts: assert part.prefixes.tobytes() in seen['predict_many']['prefixes']


def test_what_diverges_leaves_the_others_as_they_are(honest):
    explosive = scaled('self.entries**-.5', 'y / (y - y) if self.dim == 12 else y').source
    found = trainings(explosive).trained(here)
    assert [one.status for one in found] == ['ok', 'ok', 'diverged', 'diverged']
    assert [one.losses for one in found[:2]] == [one.losses for one in honest[:2]]


def test_a_gate_decides_with_the_cheap_trainings_alone():
    calls = []
    def counting(name, arguments, limits, **more):
        calls.append((name.rpartition(':')[2], len(arguments.get('wanted', arguments.get('models', [])))))
        return here(name, arguments, limits)
    cheap = trainings(wanted=WANTED[:1])
    for most, made_here in ((1e-3, 'dropped'), (99., 'trained')):
        calls.clear()
        outcome = Measurement(trainings(scaled(.3).source), (cheap, most)).outcome(counting)
        assert list(outcome.result) == [made_here]
        assert [name for name, _ in calls] == ['fit_many', 'predict_many', 'predict_many'] * (1 + (most > 1))
        assert calls[0][1] == 1


def test_the_same_secret_is_the_same_losses_to_the_bit_and_another_is_not(honest):
    again, other = trainings().trained(here), trainings(secret='another').trained(here)
    assert [one.losses for one in again] == [one.losses for one in honest]
    assert all(a.losses != b.losses and a.batches != b.batches for a, b in zip(honest, other)), 'shapes are secret'


def test_a_call_that_fails_is_the_outcome_and_one_that_crashes_is_tried_once_more():
    for status, tries in (('timeout', 1), ('memory', 1), ('crashed', 2)):
        calls = []
        def failing(name, arguments, limits, **more):
            calls.append(name)
            return Outcome(status, None, 'on purpose')
        outcome = Measurement(trainings()).outcome(failing)
        assert (outcome.status, outcome.why, len(calls)) == (status, 'on purpose', tries)


def test_results_are_bounded_by_what_a_tier_allows():
    bounds = {}
    def noting(name, arguments, limits, **more):
        bounds[name.rpartition(':')[2]] = limits.result_bytes
        return here(name, arguments, limits)
    trainings().trained(noting)
    count = sum(measurement._bound('matrix_mixers', QUICK.sizes[i], QUICK.vocab) for i in (0, 0, 1, 1))
    assert bounds['fit_many'] == 4 * 3 * count + (1 << 20) and bounds['predict_many'] < 1 << 22
