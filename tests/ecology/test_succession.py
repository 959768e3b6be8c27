"""Births and deaths, and their account: on a tiny host where chance grades."""
from math import fsum

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import chance_decides

from evolora.ecology.checkpoint_files import read_checkpoint, write_checkpoint
from evolora.ecology.config import changed_config, load_config
from evolora.ecology.ecology import Ecology
from evolora.ecology.succession import Census, Luck, drawn_parents, shared
from evolora.ecology.variation import VariationConfig
from evolora.host.model import tiny_host

SMALL = {'cells': ['string.sort:1', 'word.count:1'], 'max_new_tokens': 4,
         'capacity': 4, 'founders': 3, 'founder_step': 0.,
         'market': {'questions': 6, 'round': 2, 'learn_every': 1, 'protect': 1, 'contest': 0., 'recruit': False},
         'world': {'schedule': 'static'}, 'curriculum': {'copies': 2},
         'variation': {'every': 2, 'offspring': 1, 'spread': 2., 'tau': .3, 'crossover': 0.}}


@pytest.fixture(scope='module')
def host(): return tiny_host()


@pytest.fixture(autouse=True)
def chance(monkeypatch):
    monkeypatch.setattr('evolora.tasks.forms.Form.grade', lambda _, task, text: chance_decides(task, text))


def begun(host, seed=0, **changes):
    return Ecology(host, changed_config(changed_config(load_config('worlds'), SMALL), changes), seed=seed)


def lived(host, generations, seed=0, **changes):
    e = begun(host, seed, **changes)
    return e, [e.step() for _ in range(generations)]


def events(records, kind): return [row for r in records for row in r.lineage if row['event'] == kind]


# --- worth

@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=6))
def test_shared_success_is_at_most_ones_own_and_twins_get_alike(rows):
    s = np.array(rows)
    found, twice = shared(s), shared(np.hstack([s, s[:, :1]]))
    assert (found >= 0).all() and (found <= s + 1e-12).all()
    assert np.allclose(twice[:, 0], twice[:, -1]) and (twice[:, 0] <= found[:, 0] + 1e-12).all()


def test_a_lone_expert_is_worth_more_than_one_of_two_and_a_twin_of_the_best_more_than_the_poor():
    s = np.array([[.9, .9, .1, .2]] * 6 + [[.1, .1, .9, .2]] * 4)
    worth = Census(['a', 'twin', 'expert', 'poor'], s).worth()
    assert worth['expert'] > worth['poor'] and worth['a'] == worth['twin'] > worth['poor']
    assert Census(['a', 'twin', 'expert', 'poor'], s).worth('absence')['a'] == 0.


@pytest.mark.parametrize('worth, never', [({'a': 1., 'b': 0., 'c': 1.}, {'b'}), ({}, set()),
                                          ({'a': 0., 'b': 0.}, set())])
def test_parents_are_drawn_by_worth_and_evenly_where_there_is_none(worth, never):
    rng = np.random.default_rng(0)
    drawn = {who for _ in range(200) for who in drawn_parents(['a', 'b', 'c'], worth, 2, rng)}
    assert drawn == {'a', 'b', 'c'} - never
    assert all(len({*drawn_parents(['a', 'b', 'c'], worth, 2, rng)}) == 2 for _ in range(20))


# --- what comes of it

def test_founders_differ_in_how_fast_they_learn_and_children_take_after_their_parents(host):
    e, records = lived(host, 12)
    born = {row['organelle']: row for row in events(records, 'birth')}
    founders = [row['traits']['plasticity'] for row in born.values() if row['reason'] == 'founder']
    assert len({*founders}) == 3 and all(.1 <= x <= 10 for x in founders)
    children = [row for row in born.values() if row['reason'] == 'birth']
    assert len(children) >= 2
    for row in children: assert row['traits']['plasticity'] != born[row['parents'][0]]['traits']['plasticity']


def test_without_spread_all_founders_are_alike(host):
    e = begun(host, variation={'spread': 0.})
    assert {o.traits.plasticity for o in e.population} == {1.}


def test_a_child_gets_half_of_its_parents_stakes(host):
    e, records = lived(host, 4)
    child = next(row for row in events(records, 'birth') if row['reason'] == 'birth')
    rows = [x for r in records for x in r.ledger if x['reason'] == 'birth' and x['generation'] == child['generation']]
    moved = {x['organelle']: x['amount'] for x in rows}
    parent = child['parents'][0]
    assert moved[child['organelle']] == pytest.approx(-moved[parent]) and set(moved) == {child['organelle'], parent}
    assert e.market.audit().balanced


def test_the_account_adds_up_in_every_row_and_says_what_children_are_like(host, monkeypatch):
    monkeypatch.setattr(Census, 'luck', lambda self, by='shared': Luck(1., 0.))
    e, records = lived(host, 16, market={'recruit': True})
    rows = [x for r in records for x in r.evolution]
    assert len(rows) == 7                                       # a census every other generation; the first one begins
    for x in rows:
        parts = fsum(x[k] for k in ('selection', 'learning', 'birth', 'merge', 'arrivals'))
        assert abs(parts - (x['after'] - x['before'])) <= 1e-9 and 0 <= x['reliability'] <= 1
    assert any(x['children'] for x in rows) and any(x['arrivals'] for x in rows)
    for child in (c for x in rows for c in x['children'].values()):
        assert abs(child['child_skill'] - child['parent_skill']) - 1e-12 <= child['differs'] <= 1


def test_the_young_have_no_children_and_do_not_leave_for_one(host, monkeypatch):
    monkeypatch.setattr(Census, 'luck', lambda self, by='shared': Luck(1., 0.))
    e, updates = begun(host, market={'protect': 5}), {'bear': [], 'bury': []}
    bear, bury = e.demography.bear, e.demography.bury
    known = lambda id: int(e.plasticity.updates[e.population[id].slot])
    e.demography.bear = lambda child, now: updates['bear'].extend(map(known, child.parents)) or bear(child, now)
    e.demography.bury = lambda id, *about: updates['bury'].append(known(id)) or bury(id, *about)
    for _ in range(14): e.step()
    assert len(updates['bear']) > 2 and updates['bury'] and min(updates['bear'] + updates['bury']) >= 5


def test_learning_is_all_there_is_where_nobody_comes_or_goes(host):
    e, records = lived(host, 8, variation={'offspring': 0})
    for x in (x for r in records for x in r.evolution):
        assert x['selection'] == x['birth'] == x['arrivals'] == 0.
        assert x['learning'] == pytest.approx(x['after'] - x['before'])


def test_seats_are_never_exceeded_and_whoever_is_worth_least_leaves(host, monkeypatch):
    monkeypatch.setattr(Census, 'luck', lambda self, by='shared': Luck(1., 0.))
    e, records = lived(host, 16)
    assert all(r.row['alive'] <= 4 for r in records)
    deaths = events(records, 'death')
    assert deaths and all(row['reason'].endswith('the least of all that lead nowhere') for row in deaths)


def test_nobody_leaves_where_differences_are_no_more_than_luck(host, monkeypatch):
    monkeypatch.setattr(Census, 'luck', lambda self, by='shared': Luck(0., .4))
    e, records = lived(host, 12)
    assert not events(records, 'death') and records[-1].row['alive'] == 4          # the free seat was taken, by lot


def test_a_leader_does_not_leave_for_a_child_however_little_it_is_worth(host, monkeypatch):
    monkeypatch.setattr(Census, 'luck', lambda self, by='shared': Luck(1., 0.))
    e, leading = begun(host), []
    bury = e.demography.bury
    e.demography.bury = lambda id, *about: leading.append(
        id in {e.market.leader(f) for f in e.market.families}) or bury(id, *about)
    monkeypatch.setattr(Census, 'worth', lambda self, by='shared': {
        id: float(id not in {e.market.leader(f) for f in e.market.families}) for id in self.organelles})
    for _ in range(14): e.step()
    assert leading and not any(leading)


def test_luck_is_judged_by_the_same_questions():
    rng = np.random.default_rng(0)
    easy, own = rng.uniform(0, .8, (64, 1)), rng.normal(0, .02, (64, 3))
    apart = Census([*'abc'], np.clip(easy + own + [[0., .05, .1]], 0, 1)).luck('absence')
    alike = Census([*'abc'], np.clip(easy + own, 0, 1)).luck()
    assert apart.p < 1e-6 and apart.reliability > .9 and alike.p > .01
    assert Census(['a'], easy).luck() == Census([*'ab'], easy[:1].repeat(2, 1)).luck() == (0., 1.)


def test_a_lottery_has_as_many_births_and_deaths_at_the_same_times_but_others(host, monkeypatch):
    monkeypatch.setattr(Census, 'luck', lambda self, by='shared': Luck(1., 0.))
    lives = {way: lived(host, 16, variation={'selection': way})[1] for way in ('shared', 'lot')}
    times = {way: [(x['generation'], x['event']) for r in lives[way] for x in r.lineage] for way in lives}
    assert times['shared'] == times['lot']
    who = {way: [x['organelle'] for x in events(lives[way], 'death')] for way in lives}
    assert who['shared'] != who['lot']
    assert {x['reason'] for x in events(lives['lot'], 'death')} == {'drawn by lot'}


def test_a_lottery_also_decides_who_leaves_for_a_recruit(host):
    changes = {'variation': {'selection': 'lot', 'offspring': 0}, 'market': {'recruit': True}}
    deaths = events(lived(host, 12, **changes)[1], 'death')
    assert deaths and {row['reason'] for row in deaths} == {'drawn by lot'}


def test_without_a_census_the_state_is_empty_and_nothing_is_billed(host):
    plain, counted = (lived(host, 4, variation={'every': every, 'offspring': 0})[1] for every in (0, 2))
    assert not any(r.evolution for r in plain) and any(r.evolution for r in counted)
    assert [r.episodes for r in plain] == [r.episodes for r in counted]             # looking changes nothing
    score = lambda records: fsum(r.row['gflops']['score'] for r in records)
    assert score(plain) < score(counted)


def test_it_goes_on_bit_for_bit_from_a_checkpoint(host, tmp_path):
    e, _ = lived(host, 5)
    again = begun(host)
    read_checkpoint(write_checkpoint(tmp_path, e), again)
    rows = [[x.step() for _ in range(6)] for x in (e, again)]
    assert [r.tables | {'timings': 0} for r in rows[0]] == [r.tables | {'timings': 0} for r in rows[1]]
    assert any(r.evolution for r in rows[0])


@pytest.mark.parametrize('forged, what', [
    ({'asked': [['a', []]]}, 'token ids'), ({'asked': [['a', [True]]]}, 'token ids'),
    ({'skill': {'o1': float('nan')}}, 'from 0 to 1')])
def test_a_forged_state_is_refused_in_one_line_and_changes_nothing(host, forged, what):
    e, _ = lived(host, 4)
    before = e.succession.state()
    state = {'asked': [], 'skill': {}, 'earned': {}} | forged
    with pytest.raises(ValueError, match=what) as error: e.succession.restore(state)
    assert '\n' not in str(error.value) and e.succession.state() == before


@pytest.mark.parametrize('changes', [{'every': -1}, {'selection': 'best'}, {'spread': 3.}])
def test_settings_that_make_no_sense_are_refused(changes):
    with pytest.raises(ValueError): VariationConfig(**changes)
