"""Births and deaths, and their account: on a tiny host where chance grades."""
from math import fsum
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import chance_decides

from evolora.ecology.checkpoint_files import read_checkpoint, write_checkpoint
from evolora.ecology.config import changed_config, load_config
from evolora.ecology.ecology import Ecology
from evolora.ecology.price_equation import Descent, inheritance, price_terms
from evolora.ecology.succession import Census, Luck, drawn_parents, shared
from evolora.ecology.variation import Offspring, VariationConfig, make_offspring
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


def test_founders_and_newcomers_have_ranks_in_turn_and_children_inherit_theirs(host):
    e = begun(host, variation={'ranks': [2, 4, 8]}, founders=4, capacity=6)
    assert [o.rank for o in e.population] == [2, 4, 8, 2]
    e.serving.recruit()
    assert e.population['o5'].rank == 4
    calm = e.config.variation.model_copy(update={'rank_change': 0., 'crossover': 0.})
    child = make_offspring(e.population, ['o3'], e.rng('a test'), calm)
    assert child.rank == e.demography.bear(child, 0).rank == 8
    with pytest.raises(ValueError, match='variation.ranks expected at most max_rank'):
        begun(host, variation={'ranks': [2, 99]})


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
    assert all(x['gflops'] > 0 for x in rows)


def test_a_child_of_one_that_came_since_the_last_census_has_a_birth(host):
    e = begun(host, capacity=9)
    came = e.demography.found(4, rank=2, traits=e.config.traits, step=.2, reason='recruit').id
    child = e.demography.bear(Offspring(e.population.factors(came), 2, e.config.traits, (came,), 'gaussian'), 4).id
    found, likelihoods = [id for id in e.population.ids if id != child], np.full((3, len(e.population) - 1), .5)
    likelihoods[:, found.index(came)] = .1
    e.succession.skill = {id: .5 for id in found if id != came}
    terms = e.succession._account(Census(found, likelihoods), {came: Descent(())},
                                  Census([child], np.full((3, 1), .4))).terms
    n = len(e.population)                       # the parent is in the middle, so the child is its child
    assert terms.birth == pytest.approx(.3 / n) and terms.arrivals == pytest.approx(.1 / len(found) - .5 / len(found))


@pytest.mark.parametrize('inherits', [1., .5, 0.])
def test_heredity_is_found_from_a_census_and_the_luck_of_questions_is_not_taken_for_it(host, inherits):
    "Six organelles on hard and easy questions, each child with a part of what its parent is ahead by"
    e, rng, rows = begun(host), np.random.default_rng(0), []
    ids = [f'o{i}' for i in range(6)]
    e.succession.ecology = SimpleNamespace(population={'child': SimpleNamespace(parents=('o0',))})
    for _ in range(1200):
        skill = rng.normal(0, .06, 6)
        own = np.concatenate([skill, [skill.mean() + inherits * (skill[0] - skill.mean())]])
        seen = rng.beta(.5, .5, (64, 1)) * .6 + own + rng.normal(0, .15, (64, 7))
        seen[:, 6] += inherits * (seen - own)[:, 0] - inherits * (seen - own)[:, :6].mean(1)    # also in its oddities
        rows += e.succession._children(Census(ids, seen[:, :6]), Census(['child'], seen[:, 6:])).values()
    found = inheritance(rows)
    assert found.heredity.slope == pytest.approx(inherits, abs=.12) and found.heredity.pairs == 1200
    assert found.came == pytest.approx(0, abs=.01)


def test_parents_and_children_are_measured_by_different_answers(host):
    e = begun(host)
    e.succession.ecology = SimpleNamespace(population={'child': SimpleNamespace(parents=('o1',))})
    found = Census(['o1', 'o2'], np.array([[.9, .5], [.1, .1]] * 4))
    young = Census(['child'], np.array([[0.], [.3]] * 4))
    row = e.succession._children(found, young)['child']
    assert (row['parent_above'], row['child_above'], row['luck']) == pytest.approx((.2, .2, 0.))
    few = e.succession._children(*(Census(c.organelles, c.likelihoods[:3]) for c in (found, young)))['child']
    assert 'parent_above' not in few and inheritance([few]) is None


def test_who_is_chosen_by_some_answers_is_measured_by_others(host, monkeypatch):
    e, seen = begun(host), {'chosen': set(), 'measured': set()}
    census = e.succession._census
    def noted(organelles, answers):
        # `_measured` asks by the answers that were kept, whoever is asked.
        seen['measured' if answers is e.succession.asked else 'chosen'].update(prompt for prompt, _ in answers)
        return census(organelles, answers)
    monkeypatch.setattr(e.succession, '_census', noted)
    for _ in range(10): e.step()
    assert seen['chosen'] and seen['measured'] and seen['chosen'].isdisjoint(seen['measured'])


@pytest.mark.parametrize('sure', [.05, 1.])
def test_choosing_among_equals_is_not_taken_for_selection(host, sure):
    "Six organelles that differ by luck only: the worst leaves, and by other answers it was no worse than the rest"
    rng, total = np.random.default_rng(0), []
    for _ in range(800):
        judged, found = (Census([f'o{i}' for i in range(6)], rng.beta(.5, .5, (32, 6))) for _ in range(2))
        if judged.luck().p > sure: continue
        worth, skill = judged.worth(), found.skill
        left = {id: x for id, x in skill.items() if id != min(worth, key=worth.get)}
        total.append(price_terms(skill, left, {}).selection)
    assert len(total) > 20 and abs(np.mean(total)) < 3 * np.std(total) / len(total)**.5


def test_the_young_have_no_children_and_do_not_leave_for_one(host, monkeypatch):
    monkeypatch.setattr(Census, 'luck', lambda self, by='shared': Luck(1., 0.))
    e, updates = begun(host, market={'protect': 5}), {'bear': [], 'bury': []}
    bear, bury = e.demography.bear, e.demography.bury
    known = lambda id: int(e.plasticity.own[e.population[id].slot])
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


def test_whoever_leads_is_as_safe_from_the_lot_as_from_selection(host, monkeypatch):
    monkeypatch.setattr(Census, 'luck', lambda self, by='shared': Luck(1., 0.))
    e, leads = begun(host, variation={'selection': 'lot'}), []
    bury = e.demography.bury
    e.demography.bury = lambda id, *about: leads.append(id in {
        e.market.leader(f) for f in e.market.families}) or bury(id, *about)
    for _ in range(24): e.step()
    assert len(leads) > 3 and not any(leads)


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


@pytest.mark.parametrize('changes', [{'every': -1}, {'selection': 'best'}, {'spread': 3.}, {'ranks': [0]}])
def test_settings_that_make_no_sense_are_refused(changes):
    with pytest.raises(ValueError): VariationConfig(**changes)
