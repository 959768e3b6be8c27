"""Worlds: which answer is right when, and that nothing else changes."""
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from evolora.ecology.config import EcologyConfig, changed_config, load_config
from evolora.tasks.families import CELLS, Cell, conventions, under
from evolora.tasks.splits import stream_of
from evolora.tasks.task_sets import sample_tasks
from evolora.tasks.worlds import SCHEDULES, World, WorldConfig, register_schedule
from evolora.utils.randomness import stream

FAMILIES = ('string.sort', 'word.count', 'code.format', 'logic.bool', 'math.sequence', 'json_repair')


def world(families=FAMILIES, seed=1, **settings): return World(WorldConfig(**settings), families, seed)


def habits(w, generation, place=0): return [w.habit(f, generation, place) for f in w.families]


def test_the_default_never_changes_anything():
    w = World(WorldConfig(), [c.family for c in CELLS])
    for cell in CELLS[::7]:
        task = sample_tasks(cell, n=1, rng=stream(0))[0]
        assert all(w.task(task, g, p) is task for g in (0, 5, 10**6) for p in (0, 99))
    assert w.config.static and len(w.band(9)) == 1


def test_a_static_world_is_not_written_and_every_other_one_is():
    config = load_config('ecology')
    assert 'world' not in config.model_dump() and EcologyConfig(**config.model_dump()) == config
    changed = changed_config(load_config('ecology'), {'cells': ['string.sort:1'], 'world': {'schedule': 'drawn'}})
    assert changed.model_dump()['world']['schedule'] == 'drawn' and EcologyConfig(**changed.model_dump()) == changed


@pytest.mark.parametrize('schedule', ('recurring', 'drawn', 'skewed', 'new', 'absent'))
def test_two_worlds_of_as_many_as_there_are_habits_differ_in_every_family(schedule):
    w = world(schedule=schedule, period=3)
    for k in range(3):
        before, after = (habits(w, 3 * j) for j in (k, k + 1))
        if max(w.number(3 * k), w.number(3 * k + 3)) < 4: assert all(a != b for a, b in zip(before, after))
        assert habits(w, 3 * k) == habits(w, 3 * k + 2)


def test_recurring_worlds_come_back_as_they_were_and_new_ones_do_not():
    turn, fresh = world(schedule='recurring', period=2), world(schedule='new', period=2)
    assert habits(turn, 0) == habits(turn, 8) == habits(turn, 80)
    assert [fresh.number(g) for g in (0, 2, 4, 600)] == [0, 1, 2, 300]
    assert len({tuple(habits(fresh, 2 * k)) for k in range(40)}) > 35


def test_the_first_of_absent_worlds_comes_twice_and_then_stays_away():
    w = world(schedule='absent', worlds=3, period=2)
    assert [w.number(g) for g in range(24)] == [n for n in (0, 1, 2, 0, 1, 2, 1, 2, 1, 2, 1, 2) for _ in range(2)]


def test_a_skewed_schedule_meets_some_worlds_often_and_never_stays():
    w = world(schedule='skewed', worlds=8, period=1)
    numbers = [w.number(g) for g in range(600)]
    count = np.bincount(numbers, minlength=8)
    assert all(a != b for a, b in zip(numbers, numbers[1:])) and (count > 0).all()
    assert count[0] > 2 * count[7] and count[0] > count[3] > count[7] / 2


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 300), st.integers(0, 2**40), st.sampled_from(['recurring', 'drawn', 'skewed', 'new', 'absent']),
       st.sampled_from([0., .5, 1.]), st.sampled_from([.3, 1.]))
def test_a_world_needs_no_past(generation, seed, schedule, consistent, drift):
    "Asked at once, in another order, or by another object: the same"
    make = lambda: world(seed=seed, schedule=schedule, period=3, consistent=consistent, drift=drift)
    lived, asked = make(), make()
    for g in range(0, generation, 7): habits(lived, g)
    assert habits(lived, generation) == habits(asked, generation)


def test_families_that_do_not_follow_change_each_by_itself():
    w = world(schedule='drawn', period=1, consistent=.5)
    assert len(w.following) == 3
    seen = {f: [conventions(f).index(w.habit(f, g)) for g in range(400)] for f in w.families}
    own = [f for f in w.families if f not in w.following]
    def shift(a, b): return len({(x - y) % 4 for x, y in zip(seen[a], seen[b])})
    inside = list(w.following)
    assert shift(inside[0], inside[1]) == 1 and shift(own[0], own[1]) == 4 and shift(own[0], inside[0]) == 4
    assert .2 < np.mean([a == b for a, b in zip(seen[own[0]], seen[own[0]][1:])]) < .3


def test_a_drifting_world_changes_so_many_families_at_a_time():
    w = world(schedule='recurring', period=1, drift=.25)
    moved = [np.mean([a != b for a, b in zip(habits(w, g), habits(w, g + 1))]) for g in range(300)]
    assert .15 < np.mean(moved) < .3


def test_a_world_fades_in_and_clients_take_turns():
    w = world(schedule='recurring', period=10, fade=4)
    share = lambda g: np.mean([w.number(g, p) == 1 for p in range(400)])
    assert share(9) == 0 and share(14) == 1
    assert np.allclose([share(g) for g in range(10, 14)], [.2, .4, .6, .8], atol=.08)
    c = world(schedule='recurring', session=12)
    numbers = [c.number(3, p) for p in range(480)]
    assert all(len(set(numbers[i:i + 12])) == 1 for i in range(0, 480, 12)) and len(set(numbers)) == 4
    assert numbers != [c.number(4, p) for p in range(480)]


def test_streams_hold_in_every_world():
    w = world(schedule='drawn', period=1)
    for family in FAMILIES:
        for name in ('train', 'holdout'):
            for task in sample_tasks(Cell(family, 1), stream=name, n=5, rng=stream(3)):
                for g in range(6):
                    now = w.task(task, g)
                    assert (now.id, now.prompt, now.depth) == (task.id, task.prompt, task.depth)
                    assert stream_of(now) == name and now == under(task, w.habit(family, g))


@pytest.mark.parametrize('values,says', [
    ({'schedule': 'sometimes'}, 'known: recurring'), ({'schedule': 'new', 'period': 0}, 'greater than or equal to 1'),
    ({'schedule': 'new', 'fade': 8}, 'less than the period'), ({'schedule': 'new', 'drift': 0.}, 'greater than 0'),
    ({'schedule': 'new', 'fade': 2, 'session': 3}, 'got both'), ({'worlds': 1}, 'greater than or equal to 2'),
    ({'period': 3}, 'a schedule beside period'),
    ({'schedule': 'new', 'noise': 1}, 'Extra inputs')])
def test_bad_worlds_are_one_line(values, says):
    with pytest.raises(ValueError, match=says): WorldConfig(**values)


def test_a_family_without_enough_conventions_is_refused_with_the_configuration():
    with pytest.raises(ValueError, match='conventions of math, got 4'):
        changed_config(load_config('ecology'), {'world': {'schedule': 'drawn'}})


def test_a_schedule_of_ones_own():
    def there_and_back(period, worlds, before, rng): return period % 2
    def broken(period, worlds, before, rng): return 'summer'
    try:
        register_schedule(there_and_back)
        assert [world(schedule='there_and_back', period=1).number(g) for g in range(4)] == [0, 1, 0, 1]
        config = changed_config(load_config('ecology'), {'cells': ['string.sort:1'],
                                                         'world': {'schedule': 'there_and_back'}})
        assert 'schedule there_and_back' in config.own_parts
        with pytest.raises(ValueError, match="world's number from 0, got 'summer'"): register_schedule(broken)
        with pytest.raises(ValueError, match='which the library has'):
            register_schedule(_named('new'))
    finally:
        SCHEDULES.pop('there_and_back', None)
        SCHEDULES.own.pop('there_and_back', None)


def _named(name):
    def schedule(period, worlds, before, rng): return 0
    schedule.__name__ = name
    return schedule


# --- changes by hand

def test_a_change_by_hand_begins_a_period_and_skips_none():
    w = world(schedule='recurring', period=4)
    w.changes = 2, 3, 7, 20
    numbers = [w.number(g) for g in range(28)]
    plain = [world(schedule='recurring', period=4).number(g) for g in range(28)]
    assert numbers[:12] == [0, 0, 1, 2, 2, 2, 2, 3, 3, 3, 3, 0] and numbers[:2] == plain[:2]
    lengths = [int(s.end - s.start) for s in w.band(27).itertuples()]
    assert lengths == [2, 1, 4, 4, 4, 4, 1, 4, 3]               # 20 came in the middle of a period


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 60), max_size=6, unique=True).map(sorted), st.integers(1, 7),
       st.sampled_from(['recurring', 'drawn', 'skewed', 'new']))
def test_after_each_change_by_hand_another_world_holds_than_before(changes, period, schedule):
    w = world(schedule=schedule, period=period)
    w.changes = tuple(changes)
    periods = [w.period(g) for g in range(64)]
    assert all(b - a in (0, 1) for a, b in zip(periods, periods[1:]))
    assert all(periods[g] == periods[g - 1] + 1 and w.number(g) != w.number(g - 1) for g in changes if g)
    assert periods[0] == (0 in changes)


def test_the_band_says_when_a_world_fades_in_and_nothing_where_clients_take_turns():
    fades = world(schedule='recurring', period=5, fade=2)
    assert fades.band(10).values.tolist() == [[0, 5, 0, False], [5, 7, 1, True], [7, 10, 1, False]]
    assert not len(world(schedule='recurring', session=4).band(10)) and fades.stopped(2).band(10)['world'].eq(2).all()
    common = [world(**how).common for how in ({'schedule': 'drawn'}, {'schedule': 'drawn', 'consistent': .5},
                                              {'schedule': 'drawn', 'drift': .5},
                                              {'schedule': 'drawn', 'session': 3})]
    assert common == [True, False, False, False]
