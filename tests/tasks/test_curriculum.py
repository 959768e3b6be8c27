"""The plan is fair, the bandit learns, and state survives any stop."""
import json
from collections import namedtuple
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from evolora.tasks.curriculum import Curriculum, CurriculumConfig, Forager, budgets, fair_share
from evolora.tasks.families import Cell
from evolora.utils.randomness import stream

CONFIG = CurriculumConfig()
CELLS = ['math:1', 'math:2', 'string.sort:1', 'logic.bool:2', 'word.count:3']


def traits(explore=.3, appetite=1., selectivity=2., niche=""):
    return SimpleNamespace(explore=explore, appetite=appetite, selectivity=selectivity, niche=niche)


def rng_for(generation):
    return lambda organelle: stream(5, generation=generation, purpose='forage', organelle=organelle)


def episodes(seed, n=60, organelles=4, cells=CELLS):
    rng = np.random.default_rng(seed)
    success = rng.integers(2, size=n)
    return pd.DataFrame({'organelle': [f'o{i}' for i in rng.integers(organelles, size=n)],
                         'cell': [cells[i] for i in rng.integers(len(cells), size=n)], 'success': success.astype(bool),
                         'progress': np.maximum(success, rng.random(n)), 'net': rng.normal(size=n)})


def foragers(n, energy=10., **knobs): return [Forager(f'o{i}', energy, traits(**knobs)) for i in range(n)]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.integers(0, 24), max_size=30), st.integers(1, 200), st.integers(0, 9))
def test_fair_share_fills_the_limit_and_cuts_only_the_largest(wanted, limit, seed):
    wanted = np.array(wanted, int)
    shares = fair_share(wanted, limit, np.random.default_rng(seed).random(len(wanted)))
    assert shares.sum() == min(limit, wanted.sum()) and (shares <= wanted).all() and (shares >= 0).all()
    cut = shares < wanted
    if cut.any(): assert shares[cut].min() >= shares.max() - 1


def test_no_organelle_gets_more_than_wanted():
    assert fair_share(np.array([2, 4, 4]), 7, np.array([.1, .9, .5])).tolist() == [2, 2, 3]


def test_the_odd_rows_follow_the_lots_and_not_the_order_of_birth():
    wanted = np.full(10, 5)
    winners = [fair_share(wanted, 43, np.random.default_rng(seed).random(10)) == 5 for seed in range(200)]
    assert np.ptp(np.mean(winners, axis=0)) < .25


def test_budgets_rise_with_energy_and_appetite_within_bounds():
    energy = np.linspace(0, 60, 30)
    for appetite in (.25, 1., 4.):
        rows = budgets(CONFIG, energy, appetite)
        assert (np.diff(rows) >= 0).all() and rows[0] == CONFIG.budget_min and rows.max() <= CONFIG.budget_max
    assert (budgets(CONFIG, energy, 2.) >= budgets(CONFIG, energy, 1.)).all()
    with pytest.raises(ValueError, match='energy expected finite'): budgets(CONFIG, [1., np.nan], 1.)


def test_a_plan_has_the_budgeted_rows_and_counts_tasks_from_zero():
    curriculum = Curriculum(CONFIG, CELLS)
    curriculum.observe(episodes(0), generation=0)
    people = [Forager(f'o{i}', energy, traits()) for i, energy in enumerate([0., 5., 10., 30.])]
    plan = curriculum.plan(people, rng_for=rng_for(1))
    assert plan.groupby('organelle').size().tolist() == budgets(CONFIG, [0., 5., 10., 30.], 1.).tolist()
    for _, rows in plan.groupby(['organelle', 'cell']): assert rows['index'].tolist() == list(range(len(rows)))
    assert set(plan['source']) == {'bandit', 'own'} and set(plan['copy']) == {0}
    assert list(plan.columns) == ['organelle', 'cell', 'index', 'copy', 'source']
    pd.testing.assert_frame_equal(plan, curriculum.plan(people, rng_for=rng_for(1)))
    assert not plan.equals(curriculum.plan(people, rng_for=rng_for(2)))


@pytest.mark.parametrize('energy', [1., 7., 10., 30.])
def test_copies_answer_the_same_task_and_cost_rows(energy):
    curriculum = Curriculum(CurriculumConfig(copies=4), CELLS)
    plan = curriculum.plan([Forager('o1', energy, traits())], rng_for=rng_for(1))
    assert len(plan) == budgets(curriculum.config, [energy], 1.)[0]
    for _, rows in plan.groupby(['cell', 'index']):
        assert rows['copy'].tolist() == list(range(len(rows))) and len(rows) <= 4
    assert (plan.groupby(['cell', 'index']).size() < 4).sum() == (len(plan) % 4 > 0)


def test_a_niche_binds_own_choices_only():
    curriculum, cells = Curriculum(CONFIG, [Cell('math', 1), Cell('math', 2), Cell('logic.bool', 1)]), {'math'}
    plan = curriculum.plan([Forager('o1', 30., traits(explore=.4, niche='math'))], rng_for=rng_for(3))
    assert {c.family for c in plan.cell[plan.source == 'own']} == cells
    assert {c.family for c in plan.cell[plan.source == 'bandit']} == {'math', 'logic.bool'}
    elsewhere = curriculum.preference('o1', 2., 'regex.synthesis')
    assert (elsewhere > 0).all()                # a niche that is not played is none


def test_vacancies_share_what_there_is():
    curriculum = Curriculum(CONFIG, CELLS)
    free, full = curriculum.vacancies([]), curriculum.vacancies(['math'] * 3 + [''])
    assert full['math'] == pytest.approx(free['math'] / 4)
    assert all(full[f] == free[f] for f in free if f != 'math')


def test_a_plan_obeys_the_limit_and_has_no_organelle_twice():
    curriculum = Curriculum(CurriculumConfig(max_rows=25), CELLS)
    assert len(curriculum.plan(foragers(8), rng_for=rng_for(0))) == 25
    assert curriculum.plan([], rng_for=rng_for(0)).empty
    with pytest.raises(ValueError, match='different ids'): curriculum.plan(foragers(1) * 2, rng_for=rng_for(0))


def test_the_preferences_of_one_organelle_do_not_move_another_one():
    curriculum = Curriculum(CONFIG, CELLS)
    curriculum.observe(episodes(1), generation=0)
    alone = curriculum.plan(foragers(1, explore=0.), rng_for=rng_for(3))
    together = curriculum.plan(foragers(5, explore=0.), rng_for=rng_for(3))
    pd.testing.assert_frame_equal(alone, together[together.organelle == 'o0'])


def test_traits_decide_where_the_rows_come_from():
    curriculum = Curriculum(CONFIG, CELLS)
    paid = pd.DataFrame({'organelle': 'o0', 'cell': np.repeat(CELLS, 40), 'success': .5, 'progress': .5,
                         'net': np.repeat([-.4, -.2, .6, -.4, .1], 40)})
    curriculum.observe(paid, generation=0)
    keen = curriculum.plan(foragers(1, explore=0., selectivity=8., energy=30.), rng_for=rng_for(1))
    assert (keen.cell == 'string.sort:1').all() and (keen.source == 'own').all()
    assert (curriculum.plan(foragers(1, explore=1.), rng_for=rng_for(1)).source == 'bandit').all()
    assert curriculum.preference('o0', 0.).tolist() == [.2] * 5
    assert np.all(np.diff([curriculum.preference('o0', s)[2] for s in (0., 1., 2., 4., 8.)]) > 0)


def test_observing_is_independent_of_the_order_of_the_rows():
    one, other = Curriculum(CONFIG, CELLS), Curriculum(CONFIG, CELLS)
    for generation in range(8):
        news = episodes(generation)
        one.observe(news, generation=generation)
        other.observe(news.sample(frac=1, random_state=generation), generation=generation)
    assert json.dumps(one.state()) == json.dumps(other.state())


def test_a_restored_curriculum_goes_on_in_the_same_way():
    def play(curriculum, generations):
        for generation in generations:
            curriculum.inherit(f'c{generation}', ['o0', 'o1'])
            plan = curriculum.plan([*foragers(4), Forager(f'c{generation}', 5., traits())], rng_for=rng_for(generation))
            draws = np.random.default_rng([generation, len(plan)])
            solved = draws.random(len(plan)) < .3 + .01 * generation
            net = draws.normal(size=len(plan))
            curriculum.observe(plan.assign(success=solved, progress=solved, net=net), generation=generation)
            curriculum.forget(f'c{generation}')
        return json.dumps(curriculum.state())
    whole, first, second = (Curriculum(CONFIG, CELLS) for _ in range(3))
    expected = play(whole, range(14))
    second.restore(json.loads(play(first, range(6))))
    assert play(second, range(6, 14)) == expected
    assert len(whole.changes) and not any(o.startswith('c') for o in whole.state()['returns'])
    pd.testing.assert_frame_equal(whole.table(), second.table())


def test_the_mix_stays_in_its_bounds_and_the_configuration_as_it_was():
    config = CurriculumConfig(lp_mix=.4, lp_mix_min=.3, lp_mix_max=.6)
    for path, bound in ((lambda g: .3, .6), (lambda g: min(1., .02 + .05 * g), .3)):
        curriculum = Curriculum(config, CELLS)
        for g in range(18):
            rate = path(g)
            news = {'organelle': 'o0', 'cell': np.repeat(CELLS, 20), 'success': rate, 'progress': rate, 'net': 0.}
            curriculum.observe(pd.DataFrame(news), generation=g)
            assert .3 <= curriculum.lp_mix <= .6
        assert curriculum.lp_mix == bound and config.lp_mix == .4
        changes = curriculum.changes
        assert changes.lp_mix.iloc[-1] == bound and changes.before.iloc[0] == .4
        assert (changes.before.iloc[1:].to_numpy() == changes.lp_mix.iloc[:-1].to_numpy()).all()


def test_steady_cells_show_no_progress_and_moving_ones_do():
    curriculum = Curriculum(CONFIG, ['still:1', 'rising:1', 'falling:1'])
    for g in range(20):
        rates = np.repeat([.5, .1 + .04 * g, .9 - .04 * g], 10)
        news = dict(organelle='o0', cell=np.repeat(list(curriculum.cells), 10), success=rates, progress=rates, net=0.)
        curriculum.observe(pd.DataFrame(news), generation=g)
    still, rising, falling = curriculum.table().learning_progress
    assert still < 1e-12 and rising > .1 and falling == pytest.approx(rising)


def test_neglected_cells_are_visited_again():
    curriculum = Curriculum(CONFIG, CELLS)
    visits = {c: [] for c in CELLS}
    for g in range(60):
        chosen = curriculum.choose(6)
        for c in chosen: visits[c].append(g)
        solved = np.array([c == 'math:1' for c in chosen], float) * .5
        news = dict(organelle='o0', cell=chosen, success=solved, progress=solved, net=0.)
        curriculum.observe(pd.DataFrame(news), generation=g)
    assert len(visits['math:1']) > max(len(v) for c, v in visits.items() if c != 'math:1')
    assert all(max(v) > 40 for v in visits.values())


def test_cells_may_be_any_hashable_with_a_short_text():
    class Spot(namedtuple('Spot', 'family depth')):
        def __str__(self): return f'{self.family}:{self.depth}'
    spots = [Spot('math', 1), Spot('math', 2)]
    curriculum = Curriculum(CONFIG, spots)
    plan = curriculum.plan(foragers(2), rng_for=rng_for(0))
    assert set(map(type, plan['cell'])) == {Spot} and list(curriculum.table().cell) == ['math:1', 'math:2']
    curriculum.observe(plan.assign(success=True, progress=1., net=.2), generation=0)
    assert curriculum.table().episodes.sum() == len(plan)
    assert isinstance(curriculum.choose(1)[0], Spot)


def test_newborns_know_what_their_parents_knew_and_founders_nothing():
    curriculum = Curriculum(CONFIG, CELLS)
    curriculum.observe(episodes(3, n=300), generation=0)
    curriculum.inherit('c1', ['o0'])
    curriculum.inherit('c2', [])
    assert (curriculum.preference('c2', 4.) == curriculum.preference('unknown', 4.)).all()
    distance = lambda o: np.abs(curriculum.preference(o, 4.) - curriculum.preference('o0', 4.)).sum()
    assert 0 < distance('c1') < distance('c2')
    with pytest.raises(ValueError, match='new id'): curriculum.inherit('c1', ['o0'])


@pytest.mark.parametrize('change, message', [
    ({'cell': 'music:1'}, 'cell expected one of math:1'), ({'progress': 1.2}, 'progress expected finite and in'),
    ({'success': np.nan}, 'success expected finite'), ({'net': np.inf}, 'net expected finite')])
def test_a_bad_answer_is_refused_and_changes_nothing(change, message):
    curriculum = Curriculum(CONFIG, CELLS)
    before = curriculum.state()
    with pytest.raises(ValueError, match=message) as caught:
        curriculum.observe(episodes(0).assign(**change), generation=0)
    assert '\n' not in str(caught.value) and curriculum.state() == before


def test_wrong_configurations_states_and_cells_are_refused():
    for wrong in ({'slow': .5}, {'lp_mix': .9}, {'budget_min': 30}, {'max_rows': 0}, {'discount': 0.},
                  {'unknown': 1}, {'fast': '.1'}):
        with pytest.raises(ValueError): CurriculumConfig(**wrong)
    for cells in ([], ['math:1', 'math:1']):
        with pytest.raises(ValueError, match='cells expected'): Curriculum(CONFIG, cells)
    for state in ({}, Curriculum(CONFIG, CELLS[:2]).state()):
        with pytest.raises(ValueError, match='curriculum state expected'): Curriculum(CONFIG, CELLS).restore(state)


def test_choices_of_one_batch_spread_out():
    curriculum = Curriculum(CONFIG, CELLS)
    assert sorted(curriculum.choose(5)) == sorted(CELLS) and len(set(curriculum.choose(50))) == 5
    before = curriculum.state()
    assert curriculum.choose(7) == curriculum.choose(7) and curriculum.state() == before


def test_a_stranger_trusts_the_experience_of_the_population():
    curriculum, net = Curriculum(CONFIG, CELLS), np.repeat([0., 0., 1., 0., 0.], 50)
    news = dict(organelle='o0', cell=np.repeat(CELLS, 50), success=.5, progress=.5, net=net)
    curriculum.observe(pd.DataFrame(news), generation=0)
    assert curriculum.preference('stranger', 4.).argmax() == 2


def test_old_visits_fade():
    def chosen_again(discount):
        curriculum = Curriculum(CurriculumConfig(discount=discount), ['often:1', 'once:1'])
        for g in range(12):
            cells = ['often:1'] * 30 + ['once:1'] * 360 * (g == 0)
            news = dict(organelle='o0', cell=cells, success=.5, progress=.5, net=0.)
            curriculum.observe(pd.DataFrame(news), generation=g)
        return curriculum.choose(40).count('once:1')
    assert chosen_again(.7) > chosen_again(1.) == 20


def test_noise_does_not_count_as_learning_progress():
    curriculum = Curriculum(CurriculumConfig(lp_mix=.8, lp_mix_step=0.), ['coin:1', 'skill:1'])
    rng, values = np.random.default_rng(0), []
    for g in range(60):
        solved = np.r_[rng.random(10) < .5, rng.random(10) < .1 + .01 * g].astype(float)
        news = dict(organelle='o0', cell=np.repeat(['coin:1', 'skill:1'], 10), success=solved, progress=solved, net=0.)
        curriculum.observe(pd.DataFrame(news), generation=g)
        if g >= 20: values.append(curriculum.table()['value'])
    coin, skill = np.mean(values, axis=0)
    # Learnability alone is worth .2 to the coin; noise counted in full would bring it to .5
    assert coin < .4 < skill
