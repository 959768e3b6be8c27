"""What no lesson shows of `off_policy`: estimates by hand, honest cross-fitting, other seeds, and damaged logs."""
import warnings

import numpy as np
import pandas as pd
import pytest

from evolora.utils.randomness import stream
from evolora.tasks.families import Cell
from evolora.assimilation.off_policy import Uplift, aipw, aipw_bias, least_squares, propensities, simulate_log

rng = lambda seed=0: stream(seed, purpose='tests')
constant = lambda value: lambda x, y: lambda new: np.full(len(new), value)


def log_of(rows=480, seed=0, **knobs): return simulate_log(rows, rng=rng(seed), **knobs)


# --- the estimate, by hand

def by_hand(log, m, level=1.959963984540054):
    "The definition, row by row, with one prediction for all"
    total, variance, n = 0., 0., len(log)
    for _, own in log.groupby(['family', 'depth']):
        gaps = []
        for row in own.to_dict('records'):
            psi = {a: m + (row['organelle'] == a) / row[f'p:{a}'] * (row['success'] - m) for a in ('o2', 'o1')}
            gaps.append(psi['o2'] - psi['o1'])
        total += len(own) / n * np.mean(gaps)
        variance += (len(own) / n)**2 * np.var(gaps, ddof=1) / len(own)
    return total, total - level * variance**.5, total + level * variance**.5


@pytest.mark.parametrize('m', [0., .4, 1.])
def test_the_estimate_is_its_definition(m):
    log = log_of().iloc[:-31]                   # strata of different sizes
    found = aipw(log, 'o2', 'o1', model=constant(m), least=2, rng=rng())
    assert tuple(found.interval) == pytest.approx(by_hand(log, m))
    assert found.se == pytest.approx((found.high - found.low) / 2 / 1.959963984540054)


def test_without_a_model_it_is_inverse_propensity_weighting():
    log = log_of()
    found = aipw(log, 'o2', 'o1', model=constant(0.), rng=rng())
    sides = [np.where(log.organelle == a, log.success / log[f'p:{a}'], 0.) for a in ('o2', 'o1')]
    assert found.estimate == pytest.approx((sides[0] - sides[1]).mean())
    assert found.alternatives.inverse_propensity == pytest.approx(found.estimate)
    assert found.alternatives.outcome_model == 0


def test_a_model_that_knows_leaves_no_doubt():
    "Outcomes that the organelle and the cell decide are predicted exactly; then the propensities do not matter"
    log = log_of(1200)
    worth = {('o1', 'copy'): .5, ('o2', 'copy'): .75, ('o1', 'math'): .25, ('o2', 'math'): 0., ('o3', 'copy'): 1.,
             ('o3', 'math'): 1.}
    log['progress'] = [worth[key] for key in zip(log.organelle, log.family)]
    found = aipw(log, 'o2', 'o1', outcome='progress', mix={'copy:1': 3, 'math:2': 1}, rng=rng())
    assert tuple(found.interval) == pytest.approx((.75 * .25 - .25 * .25,) * 3)
    assert found.alternatives.to_numpy()[[0, 1, 3]] == pytest.approx(.125)


def test_naive_is_the_difference_within_strata():
    log = log_of()
    table = aipw(log, 'o2', 'o1', rng=rng()).strata
    for (family, depth), own in log.groupby(['family', 'depth']):
        mean, row = own.groupby('organelle').success.mean(), table.loc[f'{family}:{depth}']
        assert row.naive == pytest.approx(mean.o2 - mean.o1)
        assert (row.n, row.candidate, row.control) == (len(own), *((own.organelle == a).sum() for a in ('o2', 'o1')))
        assert row.lowest == own[['p:o1', 'p:o2']].min(axis=None)


def test_when_lots_were_drawn_it_is_the_difference_of_means():
    log = log_of(6000, foraging=0.)
    mean = log.groupby('organelle').success.mean()
    found = aipw(log, 'o2', 'o1', rng=rng())
    assert np.allclose(log[['p:o1', 'p:o2', 'p:o3']], 1 / 3)
    assert found.estimate == pytest.approx(mean.o2 - mean.o1, abs=1.5 * found.se)
    # All weights are 3: the rarer organelle's answers are worth what they count, as far as the strata are even.
    assert found.effective == pytest.approx(min((log.organelle == a).sum() for a in ('o1', 'o2')), rel=1e-2)


def test_it_turns_around_with_its_arguments():
    log = log_of()
    one, other = aipw(log, 'o2', 'o1', rng=rng()), aipw(log, 'o1', 'o2', rng=rng())
    assert tuple(one.interval) == pytest.approx((-other.estimate, -other.high, -other.low))


def test_the_same_generator_deals_the_same_folds():
    log = log_of()
    assert aipw(log, 'o2', 'o1', rng=rng(1)).interval == aipw(log, 'o2', 'o1', rng=rng(1)).interval
    assert aipw(log, 'o2', 'o1', rng=rng(1)).interval != aipw(log, 'o2', 'o1', rng=rng(2)).interval


# --- models

def test_least_squares_is_the_regression():
    x = np.column_stack([np.repeat(np.eye(3), 10, axis=0), rng().standard_normal(30)])
    y = x @ [.1, .5, .3, -.2] + rng(1).normal(0, .1, 30)
    theirs = np.linalg.solve(x.T @ x, x.T @ y)
    assert least_squares(x, y)(x) == pytest.approx(x @ theirs)


@pytest.mark.parametrize('folds', [2, 5, 7])
def test_no_row_has_a_part_in_its_own_prediction(folds):
    log, seen = log_of(200), []
    who = dict(zip(log.difficulty - log.difficulty.mean(), log.organelle))      # a name for each row

    def spy(x, y):
        learnt = x[:, -1]
        def predict(new):
            seen.append((learnt, new[:, -1]))
            return np.full(len(new), y.mean())
        return predict

    aipw(log, 'o2', 'o1', model=spy, folds=folds, least=2, rng=rng())
    nearest = lambda value: who[min(who, key=lambda known: abs(known - value))]
    assert len(seen) == 2 * folds
    for learnt, new in seen:
        assert not set(learnt) & set(new)
        assert len({nearest(value) for value in learnt}) == 1
    for arm in (0, 1):                      # every row is predicted once for the candidate, once for the control
        assert sorted(np.concatenate([new for _, new in seen[arm::2]])) == pytest.approx(sorted(who))


def test_a_model_is_never_fitted_to_no_rows():
    "With two answers of each, a fold may hold both; then the prediction is left out, not made up"
    log = pd.DataFrame({'organelle': ['a', 'a', 'b', 'b'], 'success': [1, 0, 1, 0], 'p:a': .5, 'p:b': .5})
    learnt = []
    def spy(x, y):
        learnt.append(len(y))
        return least_squares(x, y)
    for seed in range(20):
        found = aipw(log, 'a', 'b', strata=(), covariates=(), model=spy, folds=2, least=2, rng=rng(seed))
        assert np.isfinite(found.estimate)
    assert 0 < min(learnt) and len(learnt) < 20 * 4


def test_strata_and_covariates_may_be_left_out():
    log = log_of()
    found = aipw(log, 'o2', 'o1', strata=(), covariates=(), rng=rng())
    assert found.strata.index.tolist() == ['all'] and found.n == 480
    assert aipw(log, 'o2', 'o1', strata=('family',), rng=rng()).strata.index.tolist() == ['copy', 'math']


# --- doubly robust, on other seeds than the lesson's

def test_either_half_is_enough_and_none_is_not():
    table = aipw_bias(runs=250, seed=5)
    z = (table.bias / table.mc_se).abs()
    assert (z.iloc[:3] < 3.5).all() and z.iloc[3] > 30
    assert table.loc[('right', 'right'), 'coverage'] > .91 and table.loc[('wrong', 'right'), 'coverage'] > .91
    assert table.inverse_propensity.abs().to_numpy() == pytest.approx([0, .18, 0, .18], abs=.02)
    assert table.outcome_model.abs().to_numpy() == pytest.approx([0, 0, .18, .18], abs=.02)


def test_the_table_is_about_aipw():
    own = []
    for run in range(3):
        draw = stream(4, generation=run, purpose='aipw bias')
        own.append(aipw(simulate_log(960, rng=draw), 'o2', 'o1', rng=draw))
    row = aipw_bias(runs=3, seed=4).loc[('right', 'right')]
    assert row.bias == pytest.approx(np.mean([u.estimate for u in own]) - .1)
    assert row.mc_se == pytest.approx(np.std([u.estimate for u in own], ddof=1) / 3**.5)
    assert row.coverage == pytest.approx(np.mean([u.low <= .1 <= u.high for u in own]))
    assert row.outcome_model == pytest.approx(np.mean([u.alternatives.outcome_model for u in own]) - .1)


def test_without_an_uplift_there_is_rarely_one():
    "Equal organelles: at most one verdict in forty is `uplift`, apart from chance"
    verdicts = []
    for seed in range(200):
        log = log_of(480, seed)
        log['success'] = rng(1000 + seed).random(480) < np.where(log.family == 'copy', .7, .3)
        verdicts.append(aipw(log, 'o2', 'o1', rng=rng(seed)).verdict)
    assert verdicts.count('uplift') <= 12


@pytest.mark.parametrize('knobs', [dict(runs=1), dict(rows=199)])
def test_too_small_a_simulation(knobs):
    with pytest.raises(ValueError, match='at least 2 runs of 200 rows'): aipw_bias(**knobs)


# --- strata that defer, and verdicts

def test_a_stratum_defers_below_least():
    table = aipw(log_of(200), 'o2', 'o1', least=2, rng=rng()).strata
    fewest = table[['candidate', 'control']].min(axis=1)
    least = int(fewest.min())
    assert aipw(log_of(200), 'o2', 'o1', least=least, rng=rng()).deferred == []
    found = aipw(log_of(200), 'o2', 'o1', least=least + 1, rng=rng())
    assert found.deferred == fewest.index[fewest == least].tolist() and found.verdict == 'low_power_dr'
    assert found.n == table.n[fewest > least].sum() and np.isfinite(found.estimate)


def test_what_is_left_is_weighed_among_itself():
    log = log_of(9600)
    both = aipw(log, 'o2', 'o1', mix={'copy:2': .2, 'math:1': .1, 'nowhere:1': .7}, rng=rng())
    known = aipw(log, 'o2', 'o1', mix={'copy:2': 2, 'math:1': 1}, rng=rng())
    assert both.interval == pytest.approx(known.interval) and known.verdict == 'uplift'
    assert both.deferred == ['nowhere:1'] and both.verdict == 'low_power_dr'


@pytest.mark.parametrize('knobs', [dict(least=1000), dict(mix={'nowhere:1': 1})])
def test_where_everything_defers_there_is_no_number(knobs):
    found = aipw(log_of(), 'o2', 'o1', rng=rng(), **knobs)
    assert np.isnan([found.estimate, found.low, found.high, found.se]).all() and (found.n, found.effective) == (0, 0)
    assert found.verdict == 'low_power_dr' and found.alternatives.isna().all()
    assert 'nan' in repr(found) and '–' in found._repr_markdown_()


@pytest.mark.parametrize('low, high, verdict', [(.01, .2, 'uplift'), (-.01, .2, 'low_power_dr'), (.06, .2, 'uplift'),
    (-.2, .04, 'uplift_below_threshold'), (.01, .04, 'uplift_below_threshold'), (-.2, -.1, 'uplift_below_threshold'),
    (0., .06, 'low_power_dr')])
def test_the_interval_decides(low, high, verdict):
    table = pd.DataFrame({'n': [9], 'uplift': [.1]})
    assert Uplift('a', 'b', .1, low, high, .1, 9., table, .05, .95).verdict == verdict


def test_a_mix_may_name_its_cells_in_any_way():
    log = log_of()
    ways = [{'math:2': 1, 'copy:1': 3}, {('math', 2): 1, ('copy', 1): 3}, {Cell('math', 2): 1, Cell('copy', 1): 3}]
    found = [aipw(log, 'o2', 'o1', mix=mix, rng=rng()).interval for mix in ways]
    assert found[0] == found[1] == found[2] != aipw(log, 'o2', 'o1', rng=rng()).interval
    own = {f'{f}:{d}': n for (f, d), n in log.groupby(['family', 'depth']).size().items()}
    assert aipw(log, 'o2', 'o1', mix=own, rng=rng()).interval == aipw(log, 'o2', 'o1', rng=rng()).interval


def test_a_level_widens():
    wide, narrow = (aipw(log_of(), 'o2', 'o1', level=level, rng=rng()) for level in (.99, .5))
    assert (wide.high - wide.low) / (narrow.high - narrow.low) == pytest.approx(2.5758 / .67449, rel=1e-4)


def test_it_shows_itself():
    found = aipw(log_of(), 'o2', 'o1', rng=rng())
    assert repr(found) == f'Uplift(o2 − o1: {found.interval}, 480 rows, {found.verdict})'
    assert found._repr_markdown_().count('\n') == 7


# --- propensities

def test_propensities_are_shares_of_the_answers():
    "Foragers that draw their cells answer each cell in the proportions that are computed"
    choice = pd.DataFrame(rng().dirichlet([1., 1, 1], 4), list('abcd'), ['x:1', 'y:1', 'z:2'])
    rows, draw = dict(zip('dcba', [40, 10, 80, 20])), rng(1)
    counts = pd.DataFrame({a: draw.multinomial(rows[a] * 5000, choice.loc[a]) for a in 'abcd'}, choice.columns)
    expected = propensities(rows, choice)
    assert expected.columns.tolist() == ['p:a', 'p:b', 'p:c', 'p:d']
    assert np.allclose(expected, counts.div(counts.sum(axis=1), axis=0), atol=.01)


def test_a_cell_that_no_organelle_chooses_has_no_propensities():
    choice = pd.DataFrame([[1., 0, 0], [.5, .5, 0]], ['a', 'b'], ['x', 'y', 'z'])
    found = propensities({'a': 1, 'b': 2}, choice)
    assert found.to_dict('index') == {'x': {'p:a': .5, 'p:b': .5}, 'y': {'p:a': 0., 'p:b': 1.}}


@pytest.mark.parametrize('rows, values, what', [({'a': 1}, [[.5, .5], [1., 0]], 'rows expected the organelles'),
    ({'a': 1, 'b': 1}, [[.5, .6], [1., 0]], 'add up to 1'), ({'a': 1, 'b': 1}, [[1.5, -.5], [1., 0]], 'add up to 1')])
def test_propensities_refuse(rows, values, what):
    with pytest.raises(ValueError, match=what) as e: propensities(rows, pd.DataFrame(values, ['a', 'b'], ['x', 'y']))
    assert '\n' not in str(e.value)


def test_the_simulated_router_does_what_it_logs():
    log = log_of(40_000, exploration=.18)
    chances = log[['p:o1', 'p:o2', 'p:o3']]
    assert np.allclose(chances.sum(axis=1), 1) and chances.min(axis=None) >= .06
    for who in ('o1', 'o2', 'o3'):
        miss = (log.organelle == who) - log[f'p:{who}']
        for part in (miss, miss * log.difficulty, miss[log.family == 'math']):
            assert abs(part.mean()) < 4 * part.std() / len(part)**.5
    assert log.equals(log_of(40_000)) and not log.equals(log_of(40_000, seed=1))


@pytest.mark.parametrize('knobs', [dict(rows=0), dict(exploration=1.1), dict(exploration=-.1)])
def test_a_world_that_cannot_be(knobs):
    with pytest.raises(ValueError, match='expected rows and an exploration from 0 to 1'): log_of(**knobs)


# --- logs that are refused

def test_tiny_propensities_are_reported_and_only_those():
    log = log_of(exploration=.03)
    with pytest.warns(UserWarning, match='let the router explore'): aipw(log, 'o2', 'o1', rng=rng())
    with warnings.catch_warnings():
        warnings.simplefilter('error')
        aipw(log, 'o2', 'o1', floor=log[['p:o1', 'p:o2']].min(axis=None), rng=rng())
        aipw(log_of(), 'o2', 'o1', rng=rng())


@pytest.mark.parametrize('column, value, what', [('p:o1', 0., r'p:o1 expected above 0 and at most 1, got 0\.0'),
    ('p:o2', -.1, 'p:o2 expected above 0'), ('p:o2', 1.5, 'got 1.5'), ('p:o1', np.nan, 'got nan'),
    ('p:o1', .97, 'expected at most 1, got 1.'), ('success', 1.5, r'success expected in \[0, 1\], got 1.5'),
    ('success', np.nan, 'got nan'), ('difficulty', np.inf, 'difficulty expected finite numbers, got inf')])
def test_one_bad_value_is_enough(column, value, what):
    log = log_of()
    log[column] = log[column].astype(float)
    log.loc[7, column] = value
    with pytest.raises(ValueError, match=what) as e: aipw(log, 'o2', 'o1', rng=rng())
    assert '\n' not in str(e.value)


def test_what_is_not_asked_about_may_be_impossible():
    "An organelle that never enters a cell is no obstacle to a question about the others"
    log = log_of()
    whole = aipw(log, 'o2', 'o1', mix={'math:1': 1}, rng=rng())
    log['success'] = log.success.astype(float)
    log.loc[log.family == 'copy', ['p:o2', 'success']] = np.array([0., np.nan])
    assert aipw(log, 'o2', 'o1', mix={'math:1': 1}, rng=rng()).interval == whole.interval


@pytest.mark.parametrize('drop', ['organelle', 'depth', 'difficulty', 'success', 'p:o2'])
def test_every_column_is_needed(drop):
    with pytest.raises(ValueError, match=f'got no {drop}; log them'):
        aipw(log_of().drop(columns=drop), 'o2', 'o1', rng=rng())


@pytest.mark.parametrize('knobs, what', [(dict(folds=1), 'folds must be at least 2'), (dict(least=1), 'least must be'),
    (dict(level=95), 'level expected between 0 and 1, got 95'), (dict(worth=0), 'worth expected between'),
    (dict(mix={}), 'mix expected shares'), (dict(mix={'math:1': -1}), 'mix expected shares'),
    (dict(mix={'math:1': 0.}), 'mix expected shares'), (dict(mix={'math:1': np.nan}), 'mix expected shares')])
def test_knobs_have_bounds(knobs, what):
    with pytest.raises(ValueError, match=what) as e: aipw(log_of(), 'o2', 'o1', rng=rng(), **knobs)
    assert '\n' not in str(e.value)


def test_two_organelles_and_some_answers():
    with pytest.raises(ValueError, match="two organelles to compare, got 'o1' twice"):
        aipw(log_of(), 'o1', 'o1', rng=rng())
    with pytest.raises(ValueError, match='at least one answer, got none'): aipw(log_of()[:0], 'o2', 'o1', rng=rng())
