"""Intervals from few seeds: the table of what they cover is what the interval function gives."""
import numpy as np
import pytest

from evolora.experiments.study_coverage import (FEWEST, USUAL, WORST, coverage, coverage_text, invented_differences,
                                                simulated_coverage)
from evolora.utils.statistics import bootstrap


@pytest.mark.parametrize('seeds, share', [(2, USUAL), (3, USUAL), (5, USUAL), (2, WORST), (3, WORST), (10, WORST)])
def test_the_table_is_what_a_simulation_gives(seeds, share):
    "400 studies: a standard error of two points, where the table has 3,000"
    again = simulated_coverage(seeds, share, studies=400, resamples=300)
    assert coverage(seeds, share) == pytest.approx(again, abs=.06)


def test_two_seeds_cover_half_where_seeds_make_all_of_the_variance():
    "From two numbers the interval reaches from one to the other: the truth is between them half of the time"
    assert coverage(2, WORST) == pytest.approx(.5, abs=.03)
    rng, held = np.random.default_rng(0), 0
    for _ in range(600):
        seen = bootstrap(rng.standard_normal(2), resamples=200, rng=rng)
        held += seen.low <= 0 <= seen.high
    assert held / 600 == pytest.approx(coverage(2, WORST), abs=.06)


def test_two_and_three_seeds_cover_what_the_referee_found():
    assert [coverage(n) for n in (2, 3)] == pytest.approx([.83, .90], abs=.03)


def test_invented_differences_have_the_variance_that_they_promise():
    values = invented_differences(4000, .8, 16, np.random.default_rng(1))
    assert values.shape == (4000, 16) and values.mean(1).var() == pytest.approx(1, abs=.08)
    within = values.var(1, ddof=1).mean() / 16          # of a seed's mean, from its questions
    assert within == pytest.approx(.2, abs=.02)


def test_more_seeds_cover_more_and_a_number_between_counts_as_the_lower():
    for share in (USUAL, WORST):
        found = [coverage(n, share) for n in range(1, 30)]
        assert found == sorted(found) and found[10] == found[9] and found[-1] == coverage(1000, share)
    assert all(coverage(n, WORST) < coverage(n, USUAL) for n in range(1, 30))


@pytest.mark.parametrize('arguments, says', [((0,), 'expected 1 seed or more'), ((3, .5), 'a share out of 0.8 and 1')])
def test_what_has_no_coverage_is_one_line(arguments, says):
    with pytest.raises(ValueError, match=says): coverage(*arguments)


def test_below_five_seeds_there_is_a_warning():
    assert [coverage_text(n).startswith('Warning, fewer than 5 seeds') for n in (1, 4, FEWEST, 10)] == [
        True, True, False, False]
    assert f'{coverage(2):.0%}' in coverage_text(2) and f'{coverage(2, WORST):.0%}' in coverage_text(2)
    assert '1 seed ' in coverage_text(1) and '2 seeds ' in coverage_text(2)
