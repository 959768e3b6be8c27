"""What no lesson shows of `statistics`: closed forms, brute force, and intervals that catch what they promise."""
from fractions import Fraction
from itertools import product

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from evolora.utils.statistics import Interval, bootstrap, holm, iqm, paired, power_pairs, sign_flip, wilson
from evolora.utils.randomness import stream

rng = lambda seed=0: stream(seed, purpose='tests')


# --- shares

@pytest.mark.parametrize('level', [.5, .9, .95, .999])
def test_wilson_is_scipys(level):
    for n in (1, 7, 40):
        for k in range(n + 1):
            theirs = stats.binomtest(k, n).proportion_ci(level, method='wilson')
            assert wilson(k, n, level) == pytest.approx(tuple(theirs), abs=1e-12)


def test_wilson_solves_its_equation():
    "At each bound the share lies exactly z standard errors away"
    z = stats.norm.ppf(.975)
    for p in wilson(13, 30): assert abs(13 / 30 - p) == pytest.approx(z * np.sqrt(p * (1 - p) / 30))


def test_wilson_takes_arrays_and_edges():
    low, high = wilson([0, 3, 10], 10)
    assert low.tolist() == [wilson(k, 10)[0] for k in (0, 3, 10)] and (low[0], high[2]) == (0, 1)
    assert wilson(0, 0) == (0, 1) and all(type(x) is float for x in wilson(1, 2))
    low, high = wilson(np.arange(51), 50)
    assert (np.diff(low) > 0).all() and (np.diff(high) > 0).all() and (low >= 0).all() and (high <= 1).all()


@pytest.mark.parametrize('k, n', [(3, 2), (-1, 2), (1, float('nan')), (float('nan'), 2), (1, np.inf), ([1, 5], [2, 4])])
def test_wilson_refuses_what_cannot_be_counted(k, n):
    with pytest.raises(ValueError, match='expected 0 <= successes <= n') as e: wilson(k, n)
    assert '\n' not in str(e.value)


@pytest.mark.parametrize('level', [0, 1, 95, -.5, '.95', float('nan')])
def test_a_level_is_a_share(level):
    with pytest.raises(ValueError, match='level expected a number between 0 and 1'): wilson(1, 2, level)
    with pytest.raises(ValueError, match='level expected a number between 0 and 1'):
        bootstrap([1, 2], level=level, rng=rng())


# --- the bootstrap

def test_the_same_generator_gives_the_same_interval():
    values = rng().random(50)
    assert bootstrap(values, rng=rng(1)) == bootstrap(values, rng=rng(1)) != bootstrap(values, rng=rng(2))
    assert isinstance(bootstrap(values, rng=rng()), Interval)


def test_the_fast_mean_is_the_slow_mean():
    "The vectorised path and the loop over resamples agree on the interval, with and without strata"
    values, strata = rng().standard_normal(60) + np.repeat([0, 5, 9], 20), np.repeat(list('abc'), 20)
    for labels in (None, strata):
        fast = bootstrap(values, strata=labels, resamples=4000, rng=rng(1))
        slow = bootstrap(values, strata=labels, statistic=lambda x: x.mean(), resamples=4000, rng=rng(2))
        width = fast.high - fast.low
        assert fast.estimate == slow.estimate == pytest.approx(values.mean())
        assert fast.low == pytest.approx(slow.low, abs=.06 * width)
        assert fast.high == pytest.approx(slow.high, abs=.06 * width)


def test_resampling_in_pieces_changes_nothing_but_the_memory(monkeypatch):
    values = rng().random(40)
    whole = bootstrap(values, strata=[0] * 30 + [1] * 10, rng=rng(1))
    monkeypatch.setattr('evolora.utils.statistics._AT_ONCE', 64)
    assert bootstrap(values, strata=[0] * 30 + [1] * 10, rng=rng(1)) == whole


def test_strata_keep_their_sizes():
    "With constant strata every resample has the same mean; without them it varies"
    values, strata = [0.] * 30 + [1.] * 10, ['no'] * 30 + ['yes'] * 10
    assert bootstrap(values, strata=strata, rng=rng()) == (.25, .25, .25)
    median = bootstrap(values, strata=strata, statistic=np.median, resamples=50, rng=rng())
    assert median == (0, 0, 0)
    free = bootstrap(values, rng=rng())
    assert free.low < .25 < free.high
    cells = [('math', 1)] * 30 + [('math', 2)] * 10         # a label may be anything that can be a key
    assert bootstrap(values, strata=iter(cells), rng=rng()) == (.25, .25, .25)


def test_the_bootstrap_catches_the_truth_about_as_often_as_it_promises():
    draw = rng(7)
    caught = []
    for _ in range(400):
        low, high = bootstrap(draw.exponential(2., 60), resamples=400, level=.9, rng=draw)[1:]
        caught.append(low <= 2 <= high)
    assert .83 < np.mean(caught) < .94        # a little under .9, as percentile intervals of skewed values are


def test_the_width_is_the_standard_error():
    values = rng().standard_normal(2500)
    low, high = bootstrap(values, rng=rng(1))[1:]
    assert high - low == pytest.approx(2 * 1.96 / 50, rel=.1)


def test_true_and_false_are_numbers():
    assert bootstrap([True, False, True, True], rng=rng()).estimate == .75
    assert paired([True, False], [False, True], rng=rng()).estimate == 0


@pytest.mark.parametrize('values', [[], [1, float('nan')], [[1, 2], [3, 4]], [float('inf')], 5 * [None]])
def test_the_bootstrap_refuses_what_was_not_measured(values):
    with pytest.raises(ValueError, match='values expected one row of finite numbers') as e: bootstrap(values, rng=rng())
    assert '\n' not in str(e.value)


def test_resamples_are_at_least_one():
    with pytest.raises(ValueError, match='resamples must be at least 1'): bootstrap([1], resamples=0, rng=rng())


# --- pairs

def test_pairs_stay_together():
    "A constant gain has no doubt at all, however much the tasks differ"
    b = rng().standard_normal(40) * 100
    assert paired(b + 1, b, rng=rng()) == pytest.approx((1, 1, 1))
    assert paired(b[::-1] + 1, b, rng=rng()).high > 10


def test_pairs_have_the_same_length():
    with pytest.raises(ValueError, match='expected pairs, got 2 and 3 values'): paired([1, 2], [1, 2, 3], rng=rng())


def test_a_paired_interval_turns_around_with_its_arguments():
    a, b = rng(1).random(30), rng(2).random(30)
    one, other = paired(a, b, rng=rng()), paired(b, a, rng=rng())
    assert (one.estimate, one.low, one.high) == pytest.approx((-other.estimate, -other.high, -other.low))


# --- sign flips

def exact(differences):
    "The definition, in exact arithmetic"
    d = [Fraction(x) for x in differences]
    sums = [sum(s * x for s, x in zip(signs, d)) for signs in product([1, -1], repeat=len(d))]
    return sum(s >= sum(d) for s in sums) / len(sums)


@pytest.mark.parametrize('differences', [[1, 2, 3], [-1, 2, 3], [1, 1, 1, -1, -1], [0, 0, 5], [-1, -2], [3, -3],
                                         [.125, .25, -.5, .375, 1, -.0625]])
def test_sign_flips_are_counted(differences): assert sign_flip(differences) == exact(differences)


@pytest.mark.parametrize('n', [1, 2, 5, 10, 20])
def test_the_floor_is_one_pattern(n):
    assert sign_flip(np.linspace(1, 2, n)) == 2.**-n
    assert sign_flip(-np.linspace(1, 2, n)) == 1


def test_ties_count_against_the_claim_even_when_sums_are_rounded():
    d = [.1, .2, .3, -.3, .1]           # many sums that are equal, but not in binary
    assert sign_flip(d) == exact([Fraction(round(10 * x), 10) for x in d])
    assert sign_flip(np.array(d) * 1e-9) == sign_flip(np.array(d) * 1e9) == sign_flip(d)
    assert sign_flip([0.] * 8) == 1


def test_sign_flip_is_valid_and_uniform():
    "Under the null every level that ten signs can reach is reached as often as its p-value states"
    p = np.array([sign_flip(x) for x in rng(3).standard_normal((3000, 10))])
    for level in (.05, .25, .5):
        assert np.mean(p <= level) == pytest.approx(np.floor(level * 1024) / 1024, abs=3.5 * np.sqrt(level / 3000))


def test_too_many_or_no_differences():
    with pytest.raises(ValueError, match='at most 20 differences, got 21'): sign_flip([1] * 21)
    with pytest.raises(ValueError, match='differences expected one row'): sign_flip([])


# --- many tests

def test_holm_by_hand():
    "Holm's own recipe: .005·4 = .02, .011·3 = .033, .02·2 = .04, and .04·1 may not be smaller than that"
    assert holm([.04, .005, .011, .02]) == pytest.approx([.04, .02, .033, .04])
    assert holm([.01, .01, .03]) == pytest.approx([.03, .03, .03])
    assert holm([.5, .6, .9]) == pytest.approx([1, 1, 1])
    assert holm([.2]) == pytest.approx([.2])


def test_holm_rejects_as_the_stepwise_procedure_does():
    for p in rng().random((300, 6))**3:
        accepted, order = set(), np.argsort(p)
        for step, i in enumerate(order):
            if p[i] > .05 / (6 - step): break
            accepted.add(i)
        assert set(np.flatnonzero(holm(p) <= .05)) == accepted


def test_holm_gives_back_what_it_was_given():
    values = {'b': .03, 'a': .01}
    assert list(holm(values).items()) == [('b', .03), ('a', .02)] and values == {'b': .03, 'a': .01}
    series = holm(pd.Series([.03, .01], ['x', 'y']))
    assert series.to_dict() == {'x': .03, 'y': .02}
    assert holm(np.full((2, 2), .01)).tolist() == [[.04, .04], [.04, .04]]
    assert holm({}) == {} and holm([]).shape == (0,)


def test_holm_keeps_the_order_and_only_raises():
    p = rng().random(50)
    adjusted = holm(p)
    assert (adjusted >= p).all() and (adjusted <= 1).all() and (np.diff(adjusted[np.argsort(p)]) >= 0).all()


@pytest.mark.parametrize('p', [[.1, 1.2], [-.1], {'a': float('nan')}])
def test_holm_refuses_what_is_no_p_value(p):
    with pytest.raises(ValueError, match='p-values from 0 to 1'): holm(p)


# --- the middle half

def test_iqm_is_the_trimmed_mean_where_that_is_exact():
    for n in (4, 8, 40):
        x = rng(n).standard_normal(n)
        assert iqm(x) == pytest.approx(stats.trim_mean(x, .25))


def test_iqm_is_the_middle_half_for_any_n():
    "Four copies of each value can be cut at the quartiles without a rest"
    for n in range(1, 12):
        x = rng(n).standard_normal(n)
        assert iqm(x) == pytest.approx(stats.trim_mean(np.repeat(x, 4), .25))
    assert iqm(np.arange(12).reshape(3, 4)) == 5.5


def test_iqm_ignores_a_runaway_and_the_order():
    x = [1., 2, 3, 4, 5, 6, 7, 8]
    assert iqm(x) == iqm(x[::-1]) == iqm([*x[:-1], 1e9])
    with pytest.raises(ValueError, match='finite numbers'): iqm([])


# --- power

def test_the_published_numbers():
    assert power_pairs(.05, .2) == 493 and power_pairs(.1, .2) == 122


def test_power_asks_for_more_where_less_is_to_be_seen():
    assert power_pairs(.05, .2) < power_pairs(.05, .3) and power_pairs(.05, .2) < power_pairs(.04, .2)
    assert power_pairs(.05, .2) < min(power_pairs(.05, .2, power=.9), power_pairs(.05, .2, alpha=.01))
    assert power_pairs(1., 1.) >= 1 and type(power_pairs(.1, .2)) is int


@pytest.mark.parametrize('uplift, discordant', [(0, .2), (-.1, .2), (.3, .2), (.1, 1.2), (float('nan'), .2)])
def test_power_refuses_an_uplift_that_cannot_be(uplift, discordant):
    with pytest.raises(ValueError, match='0 < uplift <= discordant <= 1'): power_pairs(uplift, discordant)
