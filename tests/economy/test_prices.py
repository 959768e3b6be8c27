"""Costs, rewards and what is counted with them."""
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from evolora.economy.prices import EconomyConfig, answer_cost, effective_population, gini, penalty, revenue, reward, roi

CONFIG = EconomyConfig()


@given(st.floats(0, 1), st.booleans())
def test_reward_splits_without_loss(progress, success):
    r = reward(CONFIG, progress, success)
    assert r.total == pytest.approx(r.progress + r.bonus + r.failure)
    assert revenue(r.total) - penalty(r.total) == pytest.approx(r.total)
    assert min(revenue(r.total), penalty(r.total)) == 0 <= max(revenue(r.total), penalty(r.total))


def test_costs_and_rewards_have_the_shape_of_their_arguments():
    assert all(isinstance(x, float) for x in (answer_cost(CONFIG, .06, 40), revenue(-.1), revenue(1), penalty(-.1)))
    one, two = answer_cost(CONFIG, np.array([.06, .12]), np.array([40, 80]))
    assert two == pytest.approx(2 * one)
    r = reward(CONFIG, [[1., 0.]], [[True, False]]).total
    assert revenue(r).shape == penalty(r).shape == r.shape == (1, 2)


def test_a_cost_is_what_the_exchange_rates_say():
    assert answer_cost(EconomyConfig(price_gflop=2., price_token=.5), 3., 4) == 8.
    assert answer_cost(EconomyConfig(price_gflop=0., price_token=0.), 3., 4) == 0.
    r = reward(EconomyConfig(success_bonus=1., failure_cost=.5), [1., 0.], [True, False])
    assert r.total.tolist() == [2., -.5] and r.bonus.tolist() == [1., 0.] and r.failure.tolist() == [0., -.5]


@pytest.mark.parametrize('wrong', [{'price_gflop': -1.}, {'price_token': math.nan}, {'success_bonus': math.inf},
                                   {'failure_cost': '.1'}, {'ticket': .25}])
def test_wrong_exchange_rates_are_refused(wrong):
    with pytest.raises(ValueError): EconomyConfig(**wrong)


@pytest.mark.parametrize('break_it,says', [
    (lambda: answer_cost(CONFIG, -1., 40), 'gflops expected finite and not negative, got -1.0'),
    (lambda: answer_cost(CONFIG, 1., [40, math.nan]), 'tokens expected finite'),
    (lambda: reward(CONFIG, 1.5, True), 'progress expected finite and in'),
    (lambda: roi(1., math.inf), 'cost expected'),
    (lambda: gini([1., -1.]), 'stakes expected finite'), (lambda: effective_population([math.nan]), 'stakes expected')])
def test_numbers_that_cannot_be_are_refused_in_one_line(break_it, says):
    with pytest.raises(ValueError, match=says) as caught: break_it()
    assert '\n' not in str(caught.value)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=30))
def test_concentration_stays_in_its_bounds(stakes):
    assert -1e-9 <= gini(stakes) <= 1 - 1 / len(stakes) + 1e-9
    if sum(stakes) > 1e-6: assert 1 - 1e-9 <= effective_population(stakes) <= len(stakes) + 1e-9


def test_roi_of_nothing_spent_is_unknown():
    assert math.isnan(roi(0., 0.)) and roi(1.5, 1.) == 1.5
    assert gini([]) == effective_population([]) == 0 == gini([0., 0.])
