"""Scaling laws and paired gains: what is known of a slope, and which mechanism counts as better"""
import warnings

import numpy as np
import pytest

from evolora.attention.scoring.scaling import (coverage, fit, horizon_correlation, loss_table, paired_gain, power,
                                               score, smallest_gain)
from evolora.utils.randomness import stream

LADDER = np.array([.47e6, 1.02e6, 1.90e6, 4.05e6])
HONEST, GAMED = np.array([5.0, 4.8, 4.6, 4.4]), np.array([5.6, 5.2, 4.8, 4.4])


def noise(seed, shape): return stream(seed, purpose='test').standard_normal(shape)


@pytest.mark.parametrize('seeds', [1, 2, 4])
def test_the_line_is_found_again(seeds):
    found = fit(LADDER, np.repeat((2. - .1 * np.log(LADDER))[:, None], seeds, 1))
    assert np.allclose([found.slope, found.intercept, found.r2, found.fitness], [-.1, 2., 1., .1])
    assert np.allclose(found.interval, -.1) and found.method == ('residuals' if seeds == 1 else 'within sizes')


@pytest.mark.parametrize('seeds', [1, 2, 3, 5])
def test_the_slopes_interval_has_its_nominal_coverage(seeds):
    # With four thousand repeats, an honest interval is a hundredth off in less than 1 of 250; the target allows two.
    assert .93 <= coverage(LADDER, seeds=seeds, repeats=4000, seed=11) <= .97


def test_the_gains_interval_has_its_nominal_coverage():
    held, by_seed = [], []
    for k in range(1000):
        both, own = noise(2 * k, (4, 3)), noise(2 * k + 1, (4, 3))
        gain = paired_gain(3 + both, 2.9 + both + .3 * own)
        held.append(gain.interval.low <= .1 <= gain.interval.high)
        by_seed.append(gain.by_seed.low <= .1 <= gain.by_seed.high)
    assert .927 <= np.mean(held) <= .973 and .927 <= np.mean(by_seed) <= .973


def test_only_the_interval_by_seed_survives_differences_that_move_together():
    held, by_seed = [], []
    for k in range(600):
        gain = paired_gain(np.full((4, 3), 3.), 3 + np.repeat(noise(k, (1, 3)), 4, 0) + .1 * noise(k + 10**6, (4, 3)))
        held.append(gain.interval.low <= 0 <= gain.interval.high)
        by_seed.append(gain.by_seed.low <= 0 <= gain.by_seed.high)
    assert np.mean(held) < .9 and .92 <= np.mean(by_seed) <= .98


def test_two_sizes_have_neither_r2_nor_interval():
    with pytest.warns(UserWarning, match='2 sizes'): found = fit(LADDER[:2], [[2.9, 2.8], [2.6, 2.5]])
    assert (found.r2, found.interval, found.lack_of_fit, found.method) == (None, None, None, 'none')
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        fit(LADDER[:3], [2.9, 2.6, 2.5])


@pytest.mark.parametrize('missing', [np.nan, np.inf, -np.inf, None])
def test_a_missing_loss_is_never_left_out(missing):
    table = [[3., 3.], [2.9, missing], [2.8, 2.8], [2.7, 2.7]]
    with pytest.raises(ValueError, match='at size 1, seed 1'): fit(LADDER, table)
    with pytest.raises(ValueError, match='candidate expected finite'): paired_gain(np.ones((4, 2)), table)


def test_lack_of_fit_flags_a_power_law_with_a_floor_and_leaves_lines_alone():
    bent = 1.7 + 90 * LADDER**-.34
    found = [fit(LADDER, bent[:, None] + .005 * noise(k, (4, 3))) for k in range(40)]
    assert np.mean([f.lack_of_fit < .05 for f in found]) > .9 and min(f.r2 for f in found) > .95
    line = (4.6 - .16 * np.log(LADDER))[:, None]
    assert np.mean([fit(LADDER, line + .005 * noise(k, (4, 3))).lack_of_fit < .05 for k in range(400)]) < .08
    assert fit(LADDER, bent).lack_of_fit is None


def test_the_slope_is_fooled_and_the_gain_is_not():
    jitter = .004 * noise(0, (2, 4, 3))
    base, cheat = HONEST[:, None] + jitter[0], GAMED[:, None] + jitter[1]
    slopes, gain = [fit(LADDER, x) for x in (base, cheat)], paired_gain(base, cheat)
    assert score(slopes[1], 'slope') > score(slopes[0], 'slope')
    assert score(slopes[1], 'slope_lcb') > score(slopes[0], 'slope_lcb')
    assert gain.verdict == 'worse' and not gain.better and score(gain) < .5 < score(paired_gain(base, base - .01))
    assert fit(LADDER, HONEST - .1).slope == pytest.approx(fit(LADDER, HONEST).slope)


def test_what_is_invalid_scores_below_everything_valid():
    worst = [score(paired_gain([3., 3.], [loss, loss])) for loss in (4., 40., 1e6, 1e300)]
    assert all(value > 0 for value in worst) and score(None) == score(None, 'slope') == 0
    assert score(fit(LADDER, [1., 1e3, 1e6, 1e9]), 'slope') > 0
    gains = [score(paired_gain([[3., 3.02]] * 2, [[3. - g, 3.02 - g]] * 2)) for g in (-1, -.1, -.01, 0, .01, .1)]
    assert gains == sorted(gains) and len(set(gains)) == len(gains) and gains[3] == .5 and max(gains) <= 1


def test_one_seed_has_an_interval_over_sizes_and_one_loss_has_none():
    gain = paired_gain([3., 2.9, 2.8], [2.9, 2.8, 2.71])
    assert gain.method == 'over sizes' and gain.better and gain.by_seed is gain.noise is None
    alone = paired_gain([3.], [2.])
    assert (alone.interval, alone.method, alone.verdict, alone.gain) == (None, 'none', 'unclear', 1.)
    assert alone.relative == pytest.approx(1 / 3) and '–' in alone._repr_markdown_()
    with pytest.raises(ValueError, match='pairs are needed'): paired_gain(np.ones((4, 2)), np.ones((4, 3)))


def test_power_is_that_of_a_simulation():
    for gain in (0., .4, .8):
        wins = [paired_gain(np.full((4, 4), 3.), 3 - gain + noise(k, (4, 4))).better for k in range(800)]
        assert np.mean(wins) == pytest.approx(power(gain, 1.), abs=.06)
    assert power(smallest_gain(.02, seeds=3), .02, seeds=3) == pytest.approx(.95)
    with pytest.raises(ValueError, match='one seed shows no noise'): power(.1, .1, seeds=1)


def test_a_planted_gain_of_one_per_cent_is_found_with_four_seeds():
    # One per cent of a loss on the small tier, and the largest sd of a paired difference that finds it.
    gain, sd = .0164, .0116
    assert smallest_gain(sd, sizes=4, seeds=4) == pytest.approx(gain, rel=.01)
    wins = [paired_gain(1.64 + sd * noise(k, (4, 4)), np.full((4, 4), 1.64 - gain)).better for k in range(600)]
    assert np.mean(wins) == pytest.approx(.95, abs=.03)
    # And what is not there is rarely found.
    false = [paired_gain(1.64 + sd * noise(k, (4, 4)), np.full((4, 4), 1.64)).better for k in range(600)]
    assert np.mean(false) < .05


def test_horizons():
    a = noise(1, 30)
    near, far = horizon_correlation(a, a + .3 * noise(2, 30)), horizon_correlation(a, noise(3, 30))
    assert near.low > .7 and far.low < 0 < far.high
    perfect = horizon_correlation(range(6), range(6))
    assert perfect.estimate == perfect.high == 1 and perfect.low < .9
    truth = 6 / np.pi * np.arcsin(.6 / 2)       # Spearman's for a Pearson correlation of .6
    held = []
    for k in range(400):
        x, y = noise(k, (2, 20))
        found = horizon_correlation(x, .6 * x + .8 * y)
        held.append(found.low <= truth <= found.high)
    assert .92 <= np.mean(held) <= .98
    with pytest.raises(ValueError, match='at least 4'): horizon_correlation([1, 2], [1, 2])


def test_tables_and_kinds_are_checked():
    assert loss_table('losses', [3., 2.]).shape == (2, 1)
    with pytest.raises(ValueError, match='a row a size'): loss_table('losses', np.ones((2, 2, 2)))
    with pytest.raises(ValueError, match='sizes expected'): fit([1e6, 1e6, 2e6], [3., 2., 1.])
    with pytest.raises(ValueError, match='kind expected'): score(None, 'loss')
    with pytest.raises(ValueError, match='expected a Gain, got Fit'): score(fit(LADDER, HONEST))


@pytest.mark.parametrize('gain, verdict', [(.0049, 'unclear'), (.0051, 'better'), (0., 'unclear'), (-.001, 'worse')])
def test_better_is_a_lower_end_of_five_thousandths_at_least(gain, verdict):
    base = 2 + noise(5, (4, 2))
    found = paired_gain(base, base - gain)
    assert found.verdict == verdict and found.better == (verdict == 'better')
    assert found.interval.low == pytest.approx(gain)
