"""The bandit learns where questions are worth asking, and its state survives any stop."""
import json
from collections import namedtuple

import numpy as np
import pandas as pd
import pytest

from evolora.tasks.curriculum import Curriculum, CurriculumConfig

CONFIG = CurriculumConfig()
CELLS = ['math:1', 'math:2', 'string.sort:1', 'logic.bool:2', 'word.count:3']


def episodes(seed, n=60, cells=CELLS):
    rng = np.random.default_rng(seed)
    success = rng.integers(2, size=n)
    return pd.DataFrame({'cell': [cells[i] for i in rng.integers(len(cells), size=n)],
                         'success': success.astype(bool), 'progress': np.maximum(success, rng.random(n))})


def graded(cells, success): return {'cell': cells, 'success': success, 'progress': success}


def steady(cells, rate): return graded(list(cells), np.broadcast_to(rate, len(cells)))


def test_observing_is_independent_of_the_order_of_the_rows_and_of_other_columns():
    one, other = Curriculum(CONFIG, CELLS), Curriculum(CONFIG, CELLS)
    for generation in range(8):
        news = episodes(generation)
        one.observe(news, generation=generation)
        other.observe(news.assign(organelle='o1').sample(frac=1, random_state=generation), generation=generation)
    assert json.dumps(one.state()) == json.dumps(other.state())


def test_the_table_says_what_came():
    curriculum = Curriculum(CONFIG, CELLS)
    news = {'cell': ['math:2', 'math:1', 'math:2'], 'success': [True, False, False], 'progress': [1., 0., .5]}
    curriculum.observe(news, generation=0)
    table = curriculum.table().set_index('cell')
    assert list(table) == ['episodes', 'success_ema', 'progress', 'learning_progress', 'value']
    assert table.episodes.tolist() == [1, 2, 0, 0, 0] and table.success_ema.tolist()[:2] == pytest.approx([0., .5])
    assert table.progress.tolist() == pytest.approx([0., .75, 0., 0., 0.])
    assert table.learning_progress.abs().max() < 1e-12          # the first answers of a cell are no progress


def test_a_restored_curriculum_goes_on_in_the_same_way():
    def play(curriculum, generations):
        for generation in generations:
            chosen = curriculum.choose(40)
            solved = np.random.default_rng([generation, len(chosen)]).random(len(chosen)) < .3 + .01 * generation
            curriculum.observe(graded(chosen, solved), generation=generation)
        return json.dumps(curriculum.state())
    whole, first, second = (Curriculum(CONFIG, CELLS) for _ in range(3))
    expected = play(whole, range(14))
    second.restore(json.loads(play(first, range(6))))
    assert play(second, range(6, 14)) == expected and len(whole.changes)
    pd.testing.assert_frame_equal(whole.table(), second.table())


def test_the_mix_stays_in_its_bounds_and_the_configuration_as_it_was():
    config = CurriculumConfig(lp_mix=.4, lp_mix_min=.3, lp_mix_max=.6)
    for path, bound in ((lambda g: .3, .6), (lambda g: min(1., .02 + .05 * g), .3)):
        curriculum = Curriculum(config, CELLS)
        for g in range(18):
            curriculum.observe(steady(np.repeat(CELLS, 20), path(g)), generation=g)
            assert .3 <= curriculum.lp_mix <= .6
        assert curriculum.lp_mix == bound and config.lp_mix == .4
        changes = curriculum.changes
        assert changes.lp_mix.iloc[-1] == bound and changes.before.iloc[0] == .4
        assert (changes.before.iloc[1:].to_numpy() == changes.lp_mix.iloc[:-1].to_numpy()).all()


def test_steady_cells_show_no_progress_and_moving_ones_do():
    curriculum = Curriculum(CONFIG, ['still:1', 'rising:1', 'falling:1'])
    for g in range(20):
        rates = np.repeat([.5, .1 + .04 * g, .9 - .04 * g], 10)
        curriculum.observe(graded(np.repeat(list(curriculum.cells), 10), rates), generation=g)
    still, rising, falling = curriculum.table().learning_progress
    assert still < 1e-12 and rising > .1 and falling == pytest.approx(rising)


def test_neglected_cells_are_visited_again():
    curriculum = Curriculum(CONFIG, CELLS)
    visits = {c: [] for c in CELLS}
    for g in range(60):
        chosen = curriculum.choose(6)
        for c in chosen: visits[c].append(g)
        curriculum.observe(graded(chosen, [.5 * (c == 'math:1') for c in chosen]), generation=g)
    assert len(visits['math:1']) > max(len(v) for c, v in visits.items() if c != 'math:1')
    assert all(max(v) > 40 for v in visits.values())


def test_cells_may_be_any_hashable_with_a_short_text():
    class Spot(namedtuple('Spot', 'family depth')):
        def __str__(self): return f'{self.family}:{self.depth}'
    spots = [Spot('math', 1), Spot('math', 2)]
    curriculum = Curriculum(CONFIG, spots)
    chosen = curriculum.choose(12)
    assert set(map(type, chosen)) == {Spot} and list(curriculum.table().cell) == ['math:1', 'math:2']
    curriculum.observe(steady(chosen, 1.), generation=0)
    assert curriculum.table().episodes.sum() == len(chosen)


@pytest.mark.parametrize('change, message', [
    ({'cell': 'music:1'}, 'cell expected one of math:1'), ({'progress': 1.2}, 'progress expected finite and in'),
    ({'success': np.nan}, 'success expected finite'), ({'progress': -np.inf}, 'progress expected finite')])
def test_a_bad_answer_is_refused_and_changes_nothing(change, message):
    curriculum = Curriculum(CONFIG, CELLS)
    before = curriculum.state()
    news = pd.concat([episodes(0), episodes(1, n=1).assign(**change)])     # after good ones
    with pytest.raises(ValueError, match=message) as caught: curriculum.observe(news, generation=0)
    assert '\n' not in str(caught.value) and curriculum.state() == before


@pytest.mark.parametrize('column', ['cell', 'success', 'progress'])
def test_a_missing_column_is_named(column):
    with pytest.raises(ValueError, match=f'got no {column}; add them'):
        Curriculum(CONFIG, CELLS).observe(episodes(0).drop(columns=column), generation=0)


def test_wrong_configurations_states_and_cells_are_refused():
    for wrong in ({'slow': .5}, {'lp_mix': .9}, {'chosen': 1.1}, {'chosen': -.1}, {'copies': 0}, {'discount': 0.},
                  {'budget': 10.}, {'fast': '.1'}):
        with pytest.raises(ValueError): CurriculumConfig(**wrong)
    assert [CurriculumConfig(chosen=x).chosen for x in (0., .5, 1.)] == [0., .5, 1.] and CONFIG.chosen == 0.
    for cells in ([], ['math:1', 'math:1']):
        with pytest.raises(ValueError, match='cells expected'): Curriculum(CONFIG, cells)
    for state in ({}, Curriculum(CONFIG, CELLS[:2]).state()):
        with pytest.raises(ValueError, match='curriculum state expected'): Curriculum(CONFIG, CELLS).restore(state)


def test_choices_of_one_batch_spread_out():
    curriculum = Curriculum(CONFIG, CELLS)
    assert sorted(curriculum.choose(5)) == sorted(CELLS) and len(set(curriculum.choose(50))) == 5
    before = curriculum.state()
    assert curriculum.choose(7) == curriculum.choose(7) and curriculum.state() == before and curriculum.choose(0) == []


def test_old_visits_fade():
    def chosen_again(discount):
        curriculum = Curriculum(CurriculumConfig(discount=discount), ['often:1', 'once:1'])
        for g in range(12):
            curriculum.observe(steady(['often:1'] * 30 + ['once:1'] * 360 * (g == 0), .5), generation=g)
        return curriculum.choose(40).count('once:1')
    assert chosen_again(.7) > chosen_again(1.) == 20


def test_noise_does_not_count_as_learning_progress():
    curriculum = Curriculum(CurriculumConfig(lp_mix=.8, lp_mix_step=0.), ['coin:1', 'skill:1'])
    rng, values = np.random.default_rng(0), []
    for g in range(60):
        solved = np.r_[rng.random(10) < .5, rng.random(10) < .1 + .01 * g].astype(float)
        curriculum.observe(graded(np.repeat(['coin:1', 'skill:1'], 10), solved), generation=g)
        if g >= 20: values.append(curriculum.table()['value'])
    coin, skill = np.mean(values, axis=0)
    # Learnability alone is worth .2 to the coin; noise counted in full would bring it to .5
    assert coin < .4 < skill


def test_the_display_names_the_most_valuable_cells_first():
    curriculum = Curriculum(CONFIG, [f'math:{i}' for i in range(1, 11)])
    curriculum.observe(steady(['math:1'] * 50, 1.), generation=0)
    shown = curriculum._repr_markdown_()
    assert shown.startswith('10 cells') and shown.count('\n| math:') == 8 and '| math:1 |' not in shown
