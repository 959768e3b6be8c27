"""The audit of merges: its own questions, its differences by hand, and intervals that catch what they promise."""
import numpy as np
import pandas as pd
import pytest
import torch

from evolora.experiments.merge_audit import COMPARISONS, audit, pooled, tasks_for
from evolora.assimilation.examiner import Examiner, fresh
from evolora.assimilation.merge_test import Merge
from evolora.host.model import load_host
from evolora.organelles.population import Population
from evolora.utils.randomness import seed_of, stream
from evolora.tasks.families import Cell
from evolora.tasks.splits import stream_of

CELLS = [Cell('math', 1), Cell('string.sort', 1), Cell('string.sort', 2), Cell('word.count', 1)]
rng = lambda seed=0: stream(seed, purpose='tests')


@pytest.fixture(scope='module')
def population():
    made = Population(load_host('embedded', threads=1), capacity=3, max_rank=4, blocks=1)
    made.birth(rng=stream(0), rank=4)
    return made


@pytest.fixture(scope='module')
def weights(population):
    "Three adapters that change many answers"
    start = population.factors('o1')
    return [{n: (A, torch.from_numpy(.1 * rng(i).standard_normal(B.shape)).float()) for n, (A, B) in start.items()}
            for i in range(3)]


def merge(child, first, second, later=(), name='o9'):
    return Merge(3, name, ('o1', 'o2'), {}, {'o1': first, 'o2': second, name: child}, dict(later))


# --- questions

def test_the_questions_are_even_over_the_cells_and_nobody_else_has_them():
    tasks = tasks_for(merge(None, None, None), CELLS, n=24)
    assert len(tasks) == 24 and {stream_of(t) for t in tasks} == {'selection'}
    counts = pd.Series([f'{t.family}:{t.depth}' for t in tasks]).value_counts()
    assert set(counts.index) == {str(c) for c in CELLS} and counts.max() - counts.min() <= 1
    gate = {t.id for t in fresh(CELLS, 96, rng(), seen=set())}
    assert not gate & {t.id for t in tasks}


def test_every_merge_and_seed_has_questions_of_its_own():
    ids = lambda name, seed: tuple(t.id for t in tasks_for(merge(None, None, None, name=name), CELLS, n=24, seed=seed))
    assert ids('o9', 0) == ids('o9', 0) and len({ids('o9', 0), ids('o9', 1), ids('o8', 0)}) == 3


# --- differences

def test_the_differences_are_those_of_the_answers(population, weights):
    "By hand: the same questions and sampling seeds, in each family the better parent on these very tasks"
    child, first, second = weights
    later = {'o9': second, 'o1': child}
    row = audit(population, [merge(child, first, second, later)], CELLS, n=48, seed=5).iloc[0]
    tasks = tasks_for(merge(child, first, second), CELLS, n=48, seed=5)
    seed_for, families = lambda t: seed_of(5, purpose='audit luck', organelle=t.id), [t.family for t in tasks]
    who = {'child': child, 'first': first, 'second': second}
    mean = {t: pd.DataFrame(Examiner(population).ask(who, tasks, seed_for, temperature=t)).groupby(families).mean()
            for t in (0., 1.)}
    share = pd.Series(families).value_counts(normalize=True)
    gap = lambda one, pair: float(((one - pair) * share).sum())
    best = {t: m[['first', 'second']].max(axis=1) for t, m in mean.items()}
    assert row.admission == pytest.approx(gap(mean[0.].child, best[0.]))
    assert row.sampled == pytest.approx(gap(mean[1.].child, best[1.]))
    assert row.later == pytest.approx(gap(mean[0.].second, best[0.]))
    assert row.living == pytest.approx(gap(mean[0.].second, mean[0.].child))
    assert (mean[0.]['first'] > mean[0.]['second']).nunique() == 2, 'each parent leads somewhere'
    for name in COMPARISONS:
        assert row[name] == pytest.approx((row[f'{name} wins'] - row[f'{name} losses']) / 48)
        assert row[f'{name} low'] <= row[name] <= row[f'{name} high']
    assert (row.child, row.parents, row.n, row.generation) == ('o9', 'o1+o2', 48, 3)


@pytest.mark.parametrize('alive, missing', [((), {'later', 'living'}), (('o9',), {'living'}),
                                            (('o1', 'o2'), {'later', 'living'}), (('o9', 'o2'), set())])
def test_the_dead_are_missing(population, weights, alive, missing):
    row = audit(population, [merge(*weights, {id: weights[0] for id in alive})], CELLS, n=8).iloc[0]
    assert {name for name in COMPARISONS if np.isnan(row[name])} == missing


def test_an_audit_changes_no_organelle_and_reports_each_merge(population, weights):
    before, ticks = population.weights_hash(), []
    audit(population, [merge(*weights), merge(*weights, name='o7')], CELLS, n=8, on_merge=lambda: ticks.append(1))
    assert population.weights_hash() == before and len(ticks) == 2


# --- all of them

def counted(wins, losses, n):
    "A table of merges with these counts at admission, and nothing later"
    wins, losses = np.asarray(wins, float), np.asarray(losses, float)
    table = pd.DataFrame({'n': n} | {f'{name}{end}': np.nan for name in COMPARISONS
                                     for end in ('', ' low', ' high', ' wins', ' losses')}, index=range(len(wins)))
    gap = (wins - losses) / n
    return table.assign(**{'admission': gap, 'admission low': gap - .02, 'admission high': gap + .02,
                           'admission wins': wins, 'admission losses': losses})


def test_shares_of_merges():
    table = counted([60, 50, 40, 30], [40, 49, 48, 50], 100)        # each within two points of its difference
    line = pooled(table, margin=.09, rng=rng()).loc['admission']
    assert (line.merges, line.as_good, line.shown) == (4, .75, .5)
    assert line.difference == pytest.approx((.2 + .01 - .08 - .2) / 4)
    assert pooled(table, margin=.03, rng=rng()).loc['admission'].as_good == .5


def test_an_audit_of_nothing_is_empty(population):
    lines = pooled(audit(population, [], CELLS), rng=rng())
    assert lines.merges.tolist() == [0] * 4 and lines.difference.isna().all() and lines.low.isna().all()


def test_one_merge_has_the_interval_of_its_tasks():
    lines = pooled(counted([80], [40], 400), rng=rng(), resamples=20_000).loc['admission']
    half = 1.96 * np.sqrt((.3 - .1**2) / 400)
    assert (lines.high - lines.low) / 2 == pytest.approx(half, rel=.05)


def test_the_pooled_interval_covers_the_mean_of_merges_that_differ():
    "Merges with effects around .05, 20 of 200 tasks each; the interval of tasks alone would cover far too seldom"
    draw, hits, naive, runs = rng(1), 0, 0, 400
    for _ in range(runs):
        effect = draw.normal(.05, .06, 20).clip(-.2, .2)
        table = counted(draw.binomial(200, (.2 + effect) / 2), draw.binomial(200, (.2 - effect) / 2), 200)
        line = pooled(table, rng=draw, resamples=300).loc['admission']
        hits += line.low <= .05 <= line.high
        one = 1.96 * np.sqrt(.2 / 200 / 20)
        naive += abs(line.difference - .05) <= one
    assert .90 <= hits / runs <= .98 and naive / runs < .85


@pytest.mark.parametrize('how', [dict(resamples=0), dict(level=1.), dict(level=95)])
def test_an_interval_needs_resamples_and_a_level(how):
    with pytest.raises(ValueError, match='resamples >= 1 and a level between 0 and 1') as e:
        pooled(counted([1], [1], 10), rng=rng(), **how)
    assert '\n' not in str(e.value)
