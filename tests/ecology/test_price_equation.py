"""The books of evolution add up, whoever lives, dies, is born of one or two, or comes from nowhere."""
from math import fsum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolora.ecology.price_equation import PriceTerms, Descent, heredity, price_terms, reliability_of, true_variance

VALUES = st.floats(-1e3, 1e3)


@st.composite
def generations(draw):
    "A generation: values before and after, and where the new ones come from"
    before = {f'o{i}': z for i, z in enumerate(draw(st.lists(VALUES, min_size=1, max_size=12)))}
    after = {who: draw(VALUES) for who in before if draw(st.booleans())}
    born = {}
    for i in range(draw(st.integers(0 if after else 1, 6))):
        parents = tuple(draw(st.lists(st.sampled_from([*before]), max_size=3)))
        born[f'n{i}'], after[f'n{i}'] = Descent(parents, draw(st.sampled_from(['birth', 'merge']))), draw(VALUES)
    return before, after, born


def mean(values): return fsum(values.values()) / len(values)


@settings(deadline=None)
@given(generations())
def test_the_terms_add_up_to_the_change(life):
    before, after, born = life
    assert price_terms(before, after, born).total == pytest.approx(mean(after) - mean(before), abs=1e-9)


@settings(deadline=None)
@given(generations())
def test_each_term_is_what_its_name_says(life):
    before, after, born = life
    kin = {who: (who,) if who in before else born[who].parents for who in after}
    kind = {who: 'learning' if who in before else born[who].how for who in after}
    ids, descended = [*before], [who for who in after if kin[who]]
    weight = np.array([sum(kin[who].count(p) / len(kin[who]) for who in descended) for p in ids])
    found = price_terms(before, after, born)
    if not descended: return
    value = np.array([before[p] for p in ids])
    assert found.selection == pytest.approx(np.cov(weight, value, ddof=0).item(0, 1) / weight.mean(), abs=1e-6)
    for how in ('learning', 'birth', 'merge'):
        gained = [after[who] - np.mean([before[p] for p in kin[who]]) for who in descended if kind[who] == how]
        assert getattr(found, how) == pytest.approx(sum(gained) / len(descended), abs=1e-6)
    new = [after[who] for who in after if not kin[who]]
    rest = np.mean([after[who] for who in descended])
    assert found.arrivals == pytest.approx(len(new) / len(after) * (np.mean(new) - rest) if new else 0, abs=1e-6)


@settings(deadline=None)
@given(generations(), st.floats(-5, 5), st.floats(-10, 10))
def test_units_and_the_zero_of_the_value_do_not_matter(life, scale, shift):
    before, after, born = life
    moved = [{who: scale * z + shift for who, z in values.items()} for values in (before, after)]
    assert price_terms(*moved, born) == pytest.approx([scale * x for x in price_terms(before, after, born)], abs=1e-6)


@settings(deadline=None)
@given(st.lists(VALUES, min_size=2, max_size=12), st.integers(0, 2 ** 31))
def test_selection_is_the_covariance_of_offspring_and_value(values, seed):
    rng, before = np.random.default_rng(seed), {f'o{i}': z for i, z in enumerate(values)}
    children = rng.integers(0, 3, len(values))
    if not children.sum(): children[0] = 1
    born = {f'n{i}-{k}': Descent((f'o{i}',)) for i, n in enumerate(children) for k in range(n)}
    after = {who: before[descent.parents[0]] for who, descent in born.items()}
    found = price_terms(before, after, born)
    assert found.selection == pytest.approx(np.cov(children, values, ddof=0)[0, 1] / children.mean(), abs=1e-6)
    assert found[1:] == pytest.approx([0] * 4, abs=1e-9)


def test_a_term_is_zero_where_what_it_counts_did_not_happen():
    before = {'a': 1., 'b': 2., 'c': 4.}
    assert price_terms(before, {'a': 3., 'b': 2., 'c': 4.}, {}) == pytest.approx([0, 2 / 3, 0, 0, 0])
    child = price_terms(before, {**before, 'd': 5.}, {'d': Descent(('c',))})
    assert (child.learning, child.merge, child.arrivals) == (0, 0, 0) and child.birth == pytest.approx(1 / 4)
    assert PriceTerms(1, 2, 3, 4, 5) + PriceTerms(1, 1, 1, 1, 1) == PriceTerms(2, 3, 4, 5, 6)


@pytest.mark.parametrize('h2', [0., .4, 1.])
def test_the_slope_is_that_of_the_truth_not_of_the_measure(h2):
    rng = np.random.default_rng(0)
    truth = rng.normal(0, 1, 5000)
    child, seen = h2 * truth + rng.normal(0, .3, 5000), truth + rng.normal(0, .7, 5000)
    found = heredity(seen, child, np.full(5000, .49))
    assert found.slope == pytest.approx(h2, abs=.05)
    assert heredity(seen, child).slope == pytest.approx(h2 / 1.49, abs=.05)


@pytest.mark.parametrize('n, luck', [(12, 0.), (60, 0.), (60, .5), (200, 1.)])
def test_the_standard_error_covers_two_thirds_of_lives(n, luck):
    rng, inside, known = np.random.default_rng(n), 0, 0
    for _ in range(2000):
        truth = rng.normal(0, 1, n)
        found = heredity(truth + rng.normal(0, np.sqrt(luck), n), .5 * truth + rng.normal(0, .5, n), np.full(n, luck))
        inside, known = inside + (abs(found.slope - .5) < found.error), known + np.isfinite(found.slope)
    assert known > 1900 and inside / known == pytest.approx(.68, abs=.045)


def test_strangers_in_a_population_that_gets_better_are_no_relatives():
    rng, when = np.random.default_rng(3), np.repeat(np.arange(40), 20)
    parents, children = .05 * when + rng.normal(0, .1, 800), .05 * when + .05 + rng.normal(0, .1, 800)
    assert heredity(parents, children).slope > .8                       # pooled, the trend is taken for heredity
    within = heredity(parents, children, generations=when)
    assert abs(within.slope) < 3 * within.error


def test_the_breeders_equation_counts_what_is_real_of_the_differential():
    rng = np.random.default_rng(4)
    truth = rng.normal(0, 1, 20_000)
    seen, child = truth + rng.normal(0, 1, 20_000), .5 * truth + rng.normal(0, .3, 20_000)
    best = seen > np.median(seen)
    found, luck = heredity(seen, child, np.ones(20_000)), np.ones(20_000)
    came = child[best].mean() - child.mean()
    assert found.response(seen[best].mean() - seen.mean(), reliability_of(seen, luck)) == pytest.approx(came, abs=.02)


def test_pure_luck_has_no_slope():
    rng = np.random.default_rng(5)
    slopes = [heredity(rng.normal(0, 1, 30), rng.normal(0, 1, 30), np.ones(30)).slope for _ in range(200)]
    assert np.isnan(slopes).mean() > .9


def test_reliability_is_the_share_that_is_not_luck():
    rng = np.random.default_rng(1)
    for share in (0., .5, .9):
        truth = rng.normal(0, np.sqrt(share), 20_000)
        seen = truth + rng.normal(0, np.sqrt(1 - share), 20_000)
        errors = np.full(20_000, 1 - share)
        assert reliability_of(seen, errors) == pytest.approx(share, abs=.03)
        assert true_variance(seen, errors) == pytest.approx(share, abs=.03)
    assert reliability_of([1., 1.], [0., 0.]) == 0 == reliability_of([], [])
