"""What no lesson shows of `sequential`: an independent library, other definitions, and promises kept."""
import json

import numpy as np
import pytest
from online_fdr import e_values
from online_fdr.core.abstract.abstract_gamma_seq import AbstractGammaSequence
from scipy import stats
from scipy.special import zeta

from evolora.utils.randomness import stream
from evolora.assimilation.sequential import ELond, betting, confidence_sequence

rng = lambda seed=0: stream(seed, purpose='tests')


# --- bets

def test_a_bet_is_its_definition_and_the_librarys():
    "Stakes from the past only, and the same capital in the library's betting process"
    d, margin = rng().uniform(-1, 1, 60), .1
    theirs, past = e_values.BettingEProcess(lambda score: stake), []
    guesses = []
    for x, log_e in zip(d, betting(d, margin)):
        mean = sum(past) / (len(past) + 1)
        variance = (1 + sum(guesses)) / (len(past) + 1)
        stake = min(max((mean - margin) / (variance + (mean - margin)**2), 0), .75 / (1 + margin))
        assert theirs.update(x - margin) == pytest.approx(np.exp(log_e), rel=1e-9)
        past.append(x)
        guesses.append((x - sum(past) / (len(past) + 1))**2)


def test_a_bet_does_not_know_the_future():
    d = rng().uniform(-1, 1, (3, 50))
    other = d.copy()
    other[:, 30:] = 1
    assert (betting(d)[:, :30] == betting(other)[:, :30]).all()
    assert (betting(d)[1] == betting(d[1])).all()


def test_no_stream_ruins_the_bettor():
    for margin in (-.99, -.5, 0, .5, .99):
        logs = betting(np.r_[np.ones(200), -np.ones(200)], margin)
        assert np.isfinite(logs).all()


@pytest.mark.parametrize('margin', [-.5, 0, .3])
def test_no_bet_cries_wolf(margin):
    "Two-point distributions, the hardest for a given mean: false alarms at any of 400 looks"
    for high in (.35, .6, 1.):
        for low in (-1, -.6):
            share = (margin - low) / (high - low)
            d = np.where(rng().random((1500, 400)) < share, high, low)
            assert (betting(d, margin) >= np.log(20)).any(1).mean() <= .05 + .012


@pytest.mark.parametrize('differences, margin',
                         [([2], 0), ([float('nan')], 0), (.5, 0), ([.5], 1), ([.5], -1), ([.5], float('nan'))])
def test_bets_have_bounds(differences, margin):
    with pytest.raises(ValueError, match='between -1 and 1') as e: betting(differences, margin)
    assert '\n' not in str(e.value)


# --- confidence sequences

def test_the_bounds_are_those_of_the_definition():
    "Reject every mean on the grid by the bet itself; the bound is the last of an unbroken row"
    d, grid = rng().choice([-1, 0, 1], 150, p=[.1, .5, .4]), np.arange(-.96, 1, .04)
    low, high = confidence_sequence(d, .1, step=.04)
    gone = np.array([np.maximum.accumulate(betting(d, m)) >= np.log(20) for m in grid])
    for t in range(150):
        unbroken = np.argmin(np.r_[gone[:, t], False])
        assert low[t] == pytest.approx(grid[unbroken - 1] if unbroken else -1)
    other = confidence_sequence(-d, .1, step=.04)
    assert (high == -other[0]).all() and (low == -other[1]).all()
    assert (np.diff(low) >= 0).all() and (np.diff(high) <= 0).all() and low[0] == -1 and high[0] == 1


def test_a_coarse_grid_is_only_wider():
    d = rng().choice([-1, 0, 1], 400, p=[.1, .5, .4])
    fine, coarse = confidence_sequence(d, step=.005), confidence_sequence(d, step=.05)
    assert (coarse[0] <= fine[0] + 1e-9).all() and (coarse[1] >= fine[1] - 1e-9).all()
    assert (fine[0] - coarse[0]).max() <= .05 + 1e-9
    assert confidence_sequence(d, step=1)[0][-1] == 0


def test_it_holds_at_all_times():
    missed = 0
    for seed in range(300):
        low, high = confidence_sequence(rng(seed).choice([-1, 0, 1], 200, p=[.3, .3, .4]), .1, step=.02)
        missed += not ((low <= .1) & (.1 <= high)).all()
    assert missed <= stats.binom.isf(.01, 300, .1)


@pytest.mark.parametrize('options', [{'alpha': 95}, {'step': 0}, {'step': 2}])
def test_a_confidence_sequence_has_sensible_knobs(options):
    with pytest.raises(ValueError, match='expected a number'): confidence_sequence([.1, .2], **options)


# --- many tests

class Gamma(AbstractGammaSequence):
    "Our shares in the library's terms"
    def calc_gamma(self, j, **_): return j**-1.2 / zeta(1.2)


def test_one_after_the_other_they_decide_as_the_library():
    ours, theirs = ELond(.1), e_values.ELond(.1, Gamma())
    for e in np.exp(rng().exponential(4, 300)):
        number, level = ours.open()
        assert ours.close(number, e) == theirs.test_one(e) and level == pytest.approx(theirs.current_level)
    assert ours.discoveries == theirs.num_reject > 20


def test_the_shares_sum_to_one():
    tests, n = ELond(exponent=1.5), 100_000
    head = sum(tests.gamma(t) for t in range(1, n + 1))
    rest = zeta(1.5, n + 1) / zeta(1.5)
    assert head < 1 and head + rest == pytest.approx(1)


def test_a_level_is_fixed_when_its_test_opens():
    tests = ELond()
    levels = [tests.open()[1] for _ in range(4)]
    assert [tests.close(t, np.inf) for t in (3, 1)] == [True, True] and tests.levels == levels
    assert tests.level == pytest.approx(3 * .05 * tests.gamma(5)) and tests.open() == (5, tests.levels[4])
    assert not tests.close(2, 1 / levels[1] * .999) and tests.close(4, 1 / levels[3])
    assert tests.table().status.tolist() == ['discovery', 'closed', 'discovery', 'discovery', 'open']
    assert '3 discoveries in 5 tests, 1 open' in repr(tests)


def test_the_book_resumes_from_plain_json():
    tests = ELond(.1, exponent=1.5)
    for _ in range(5): tests.open()
    tests.close(2, 1e9)
    resumed = ELond(**json.loads(json.dumps(tests.state(), allow_nan=False)))
    assert resumed == tests and resumed.open() == tests.open() and resumed.close(1, 5) == tests.close(1, 5)
    state = tests.state()
    tests.open()
    assert len(state['levels']) == 6                                    # a copy, not a view
    assert len(ELond().table()) == 0


@pytest.mark.parametrize('test, e', [(0, 1), (3, 1), (1, -1), (1, float('nan')), (2, 5)])
def test_only_open_tests_are_closed(test, e):
    tests = ELond()
    for _ in range(2): tests.open()
    tests.close(2, 5)
    with pytest.raises(ValueError, match='expected an open test'): tests.close(test, e)


@pytest.mark.parametrize('options', [{'alpha': 0}, {'exponent': 1}, {'exponent': float('nan')}])
def test_a_book_that_cannot_balance(options):
    with pytest.raises(ValueError, match='expected a number'): ELond(**options)


def test_the_worst_dependence_keeps_the_promise():
    """Null e-values as large and as aligned as the law allows: all tests win together.

    With u uniform, an E of 1/level where u is at most the level, else 0, is an e-value, even when all share one u.
    Of 20 tests that are open together, those are discoveries whose level is at least u.
    """
    alpha, false = .5, []
    for u in rng().random(4000):
        tests = ELond(alpha)
        opened = [tests.open() for _ in range(20)]
        for number, level in opened: tests.close(number, 1 / level if u <= level else 0)
        false.append(tests.discoveries > 0)                             # all are nulls: the share is 0 or 1
    assert np.mean(false) <= alpha and np.mean(false) == pytest.approx(alpha / zeta(1.2), abs=.02)


@pytest.mark.parametrize('batch', [1, 10])
def test_false_discoveries_are_few_among_many(batch):
    "Sharp two-point e-values, 40 % nulls: the mean share of false ones, at every size of overlap"
    draw, shares = rng(batch), []
    for _ in range(400):
        tests, null, false = ELond(.2), draw.random(60) < .4, 0
        for first in range(0, 60, batch):
            for number, level in [tests.open() for _ in range(batch)]:
                e = (draw.random() < level) / level if null[number - 1] else np.exp(draw.normal(6, 2))
                false += tests.close(number, e) and null[number - 1]
        shares.append(false / max(1, tests.discoveries))
    assert 0 < np.mean(shares) < .2
