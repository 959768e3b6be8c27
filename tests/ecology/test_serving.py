"""Rounds, beliefs, who comes and who goes: on a tiny host where chance grades, and on the host with four habits."""
from collections import Counter
from itertools import pairwise
from math import fsum

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import chance_decides

from evolora.ecology.config import changed_config, load_config
from evolora.ecology.ecology import Ecology
from evolora.ecology.parts import Bill, Graded
from evolora.ecology.serving import Met, Settled, absence, agreeing, expendable, settle, to_score
from evolora.ecology.sessions import begin_session, resume_session
from evolora.economy.market import Market, MarketConfig, likelihood_of
from evolora.host.model import load_host, tiny_host
from evolora.organelles.scoring import score
from evolora.utils.randomness import stream

SMALL = {'cells': ['string.sort:1', 'word.count:1'], 'max_new_tokens': 4, 'capacity': 3,
         'market': {'questions': 6, 'round': 2, 'learn_every': 2, 'protect': 1},
         'world': {'period': 2}, 'curriculum': {'copies': 2}}


@pytest.fixture(scope='module')
def host(): return tiny_host()


@pytest.fixture
def chance(monkeypatch):
    monkeypatch.setattr('evolora.tasks.forms.Form.grade', lambda _, task, text: chance_decides(task, text))


def begun(host, seed=0, **changes):
    "An ecology that has not lived yet"
    return Ecology(host, changed_config(changed_config(load_config('worlds'), SMALL), changes), seed=seed)


def lived(host, generations, seed=0, **changes):
    e = begun(host, seed, **changes)
    return e, [e.step() for _ in range(generations)]


# --- one generation

def test_each_question_is_answered_by_one_organelle_as_often_as_there_are_copies(host, chance):
    e, records = lived(host, 3)
    for record in records:
        answers = pd.DataFrame(record.episodes)
        by = answers.groupby(['family', 'depth', 'task'], sort=False).organelle.agg(['size', 'nunique'])
        assert len(answers) == 12 and len(by) == 6 and set(by['size']) == {2} and set(by['nunique']) == {1}


def test_all_cells_are_asked_alike_and_only_right_answers_are_remembered(host, chance):
    e, records = lived(host, 4)
    firsts = [x for r in records for x in r.episodes[::2]]
    for record in records:
        assert sorted(Counter(x['family'] for x in record.episodes).values()) == [6, 6]
    assert e.serving.met.seen == sum(x['success'] for x in firsts) and 0 < e.serving.met.seen < len(firsts)


def test_questions_are_the_same_whoever_answers(host, chance):
    asked = lambda **changes: [e['task'] for r in lived(host, 3, **changes)[1] for e in r.episodes]
    assert asked() == asked(capacity=1, market={'recruit': False}) == asked(market={'contest': 0., 'round': 6})


def test_stakes_are_a_closed_account(host, chance):
    e, records = lived(host, 6)
    rows = pd.DataFrame([row for r in records for row in r.ledger])
    assert e.market.audit().balanced and abs(fsum(e.market.balances.values()) - 1) <= 1e-12
    assert set(rows.account) == {'stakes'} and abs(fsum(rows.amount) - 1) <= 1e-9
    for who, own in rows.groupby('organelle'):
        assert own.balance.iloc[-1] == e.market.balances.get(who, 0.)
        assert fsum(own.amount) == pytest.approx(own.balance.iloc[-1], abs=1e-9)


def test_what_compute_costs_decides_nothing(host, chance):
    "Cost, like revenue, is counted for charts: nobody pays it"
    one, two = (lived(host, 4, **changes)[1] for changes in ({}, {'economy': {'price_token': .5, 'price_gflop': 0.}}))
    assert [r.ledger for r in one] == [r.ledger for r in two] and one[0].row['cost'] != two[0].row['cost']
    free = {'cost', 'net', 'roi'}
    for a, b in zip(one, two):
        assert {k: x for k, x in a.row.items() if k not in free} == {k: x for k, x in b.row.items() if k not in free}
        assert [x | {'cost': 0} for x in a.episodes] == [x | {'cost': 0} for x in b.episodes]


def test_only_those_that_answered_learn(host, chance):
    e = begun(host)
    for _ in range(5):
        before = {o.id: e.population.norms().delta_norm[o.id] for o in e.population}
        record = e.step()
        answered = {x['organelle'] for x in record.episodes}
        after = e.population.norms().delta_norm
        assert all(after[id] == norm for id, norm in before.items() if id in after and id not in answered)


def test_whoever_is_not_believed_any_more_is_not_taught_by_what_it_answered(host, chance):
    e = begun(host, market={'learn_every': 3, 'protect': 99}, capacity=2)
    e.step()
    assert not e.population.is_noop('o1') and len(e.population) == 2
    weights = {k: [x.clone() for x in AB] for k, AB in e.population.factors('o1').items()}
    e.serving.settle = lambda answers: (e.market.settle('string.sort', {'o1': .01, 'o2': 1.}),
                                        e.market.settle('word.count', {'o1': .01, 'o2': 1.}), Settled())[-1]
    record = e.step()
    assert {x['organelle'] for x in record.episodes} == {'o1', 'o2'}        # it answered, and was believed no more
    assert all(a.equal(b) for k, AB in e.population.factors('o1').items() for a, b in zip(AB, weights[k]))
    assert not e.population.is_noop('o2')


def test_the_bill_has_the_scoring(host, chance):
    e, records = lived(host, 5)
    kinds = {'play', 'learn', 'gate', 'alone', 'score'}
    assert len(e.population) > 1 and all(set(r.row['gflops']) == kinds for r in records)
    assert sum(r.row['gflops']['score'] for r in records) > 0
    alone, records = lived(host, 3, capacity=1, market={'recruit': False})
    assert all(r.row['gflops']['score'] == 0 for r in records)


# --- who is scored

def scored(monkeypatch, market, population, answers):
    "Which organelles were scored, call by call"
    calls = []
    def spy(population, prompts, tokens, ids, **how):
        calls.append((len(prompts), list(ids)))
        return score(population, prompts, tokens, ids, **how)
    monkeypatch.setattr('evolora.ecology.serving.score', spy)
    settle(market, population, answers, temperature=1.)
    return calls


def test_sleepers_are_scored_only_where_one_could_overtake(host, monkeypatch):
    e = begun(host, founders=3)
    market = Market(MarketConfig(asleep=.05), ['string.sort'])
    for id in e.population.ids: market.enter(id, .02)
    sure = Graded('string.sort', 'Sort the letters: cab', [3, 1], True, 'o1', .9)
    assert scored(monkeypatch, market, e.population, [sure]) == []
    wrong = sure._replace(right=False, likelihood=.999)
    assert scored(monkeypatch, market, e.population, [wrong, sure]) == [(1, ['o2', 'o3'])]


@settings(deadline=None, max_examples=80)
@given(st.lists(st.floats(.001, 1), min_size=2, max_size=6), st.booleans(), st.floats(0, 1), st.floats(0, .5))
def test_no_sleeper_that_could_overtake_is_left_asleep(weights, right, likelihood, asleep):
    market = Market(MarketConfig(asleep=asleep, books='all', even=0.), ['sort'])
    for i, _ in enumerate(weights): market.enter(f'o{i}', 1 / (i + 1))
    market.settle('sort', {f'o{i}': w for i, w in enumerate(weights)})
    leader, belief = market.leader('sort'), market.belief('sort')
    asked = to_score(market, Graded('sort', '', [1], right, leader, likelihood))
    assert leader not in asked and {id for id, b in belief.items() if b >= asleep} - {leader} <= {*asked}
    # Whatever those would have given that were left out, the same one is believed most afterwards.
    left, others = {*belief} - {leader, *asked}, dict.fromkeys(belief, .4) | {leader: likelihood}
    def led(scored):
        after = Market(market.config, ['sort'])
        after.restore(market.state())
        after.settle('sort', likelihood_of(right, scored))
        return after.leader('sort')
    for sure in (0., 1.):
        every = others | dict.fromkeys(left, sure)
        if left: assert led(every) == led({id: every[id] for id in (leader, *asked)})


def test_what_an_answer_was_sampled_with_is_what_scoring_finds(host, chance):
    "The one that answered is not scored: its own log-probability counts, and must be the one that scoring would find"
    e, seen = begun(host), []
    def look(answers):
        for a in answers:
            seen.append(a.likelihood)
            assert a.likelihood == pytest.approx(score(e.population, [a.prompt], [a.tokens],
                                                       [a.organelle]).likelihoods[0, 0], rel=1e-3)
        return Settled()
    e.serving.settle = look
    for _ in range(2): e.step()
    assert len(seen) == 12 and not e.population.is_noop('o1')


# --- who comes and who goes

def test_one_that_never_learned_is_always_there_while_there_is_a_seat(host, chance):
    e = begun(host, capacity=9)
    for _ in range(8):
        e.step()
        assert any(e.population.is_noop(id) for id in e.population.ids)
    assert begun(host, market={'recruit': False}).serving.renew() == Bill()


def test_without_a_seat_whoever_is_missed_least_leaves_and_never_the_only_one_that_knows(host, monkeypatch):
    e = begun(host, founders=3, founder_step=.1)
    monkeypatch.setattr(e.population, 'is_noop', lambda id: False)
    e.plasticity.own[:] = 5
    monkeypatch.setattr('evolora.ecology.serving.absence', lambda likelihoods: np.array([.2, .1, .3, 0.]))
    e.serving.met.add('string.sort', 'Sort the letters: cab', [3, 1], stream(0, purpose='test'))
    e.generation = 4
    bill = e.serving.renew()
    assert 0 < bill.gflops <= bill.alone and e.population.ids == ['o1', 'o3', 'o4']
    gone, came = e.demography.lineage()[-2:]
    assert (gone['organelle'], gone['event'], came['organelle'], came['reason']) == ('o2', 'death', 'o4', 'recruit')
    assert gone['reason'] == 'its absence costs 0.1000 of a right answer' and 'o2' not in e.market.holders


def test_the_only_eligible_member_stays_if_its_absence_costs_more_than_a_newcomer_brings(host, monkeypatch):
    e = begun(host, founders=3, founder_step=.1)
    monkeypatch.setattr(e.population, 'is_noop', lambda id: False)
    e.plasticity.own[:] = [5 * (o.id == 'o3') for o in e.population] + [0] * (len(e.plasticity.own) - 3)
    monkeypatch.setattr('evolora.ecology.serving.absence', lambda likelihoods: np.array([0., .01, .37, 0.]))
    e.serving.met.add('string.sort', 'Sort the letters: cab', [3, 1], stream(0, purpose='test'))
    bill = e.serving.renew()
    assert bill.gflops > 0 and e.population.ids == ['o1', 'o2', 'o3'], 'the census is paid, and all stay'


def test_the_member_with_the_largest_marginal_contribution_never_leaves_for_an_untrained_one():
    rng = np.random.default_rng(0)
    for _ in range(5000):
        members, answers = int(rng.integers(1, 9)), int(rng.integers(1, 40))
        skill = rng.beta(*rng.choice([.1, .5, 1., 3.], 2), (answers, members + 1))      # the last column is the host
        ids = [f'o{i}' for i in range(members)]
        costs = dict(zip(ids, absence(skill)[:-1].tolist()))
        able = [id for id in ids if rng.random() < rng.choice([.2, 1.])]
        spare = expendable(costs, able)
        assert set(spare) <= set(able)
        if max(costs.values()) > 0: assert max(costs, key=costs.get) not in spare
        assert all(costs[id] <= np.mean([*costs.values()]) + 1e-12 for id in spare)


def _scored_as(host, monkeypatch, table, **market):
    "An ecology of three that have learned, with 64 right answers, to which they give these likelihoods"
    e = begun(host, founders=3, founder_step=.3, capacity=4, market=market)
    e.plasticity.own[:] = 8
    monkeypatch.setattr(e.population, 'is_noop', lambda id: False)
    rng = stream(0, purpose='test')
    for i in range(64): e.serving.met.add('string.sort', 'Sort the letters: cab', [3 + i % 5, 1], rng)
    monkeypatch.setattr('evolora.organelles.scoring.Scores.likelihoods', property(lambda scores: table))
    return e


def test_two_that_always_agree_become_one_which_gets_the_stakes_of_both(host, monkeypatch):
    knows = np.random.default_rng(0).random((64, 2))
    e = _scored_as(host, monkeypatch, knows[:, [0, 0, 1]], agree=.15)
    for book in e.market.books.values(): book._set({'o1': .3, 'o2': .5, 'o3': .2}, 'bet')
    e.market.rows(0)
    bill = e.serving.renew()
    assert 0 < bill.gflops <= bill.alone and e.population.ids == ['o2', 'o3', 'o4']
    gone = e.demography.lineage()[-2]
    assert gone['organelle'] == 'o1' and gone['reason'].startswith('it always agrees with o2 (E ')
    for book in e.market.books.values(): assert book.stakes['o2'] / book.stakes['o3'] == pytest.approx(4.)
    moved = pd.DataFrame(e.market.rows(0))
    merged = moved[moved.reason == 'merge'].set_index('organelle').amount
    assert merged.to_dict() == pytest.approx({'o1': -.3, 'o2': .3}) and e.market.audit().balanced


@pytest.mark.parametrize('agree, alike', [(.15, False), (0., True)])
def test_two_that_differ_stay_two_and_nobody_is_scored_where_it_is_off(host, monkeypatch, agree, alike):
    knows = np.random.default_rng(0).random((64, 3))
    e = _scored_as(host, monkeypatch, np.ones((64, 3)) if alike else knows, agree=agree)
    assert (e.serving.renew() == Bill()) == alike and e.population.ids == ['o1', 'o2', 'o3', 'o4']


def test_the_young_are_not_taken_for_one(host, monkeypatch):
    e = _scored_as(host, monkeypatch, np.ones((64, 3)), agree=.15)
    e.plasticity.own[:] = e.config.market.protect - 1
    assert e.serving.renew() == Bill() and e.population.ids == ['o1', 'o2', 'o3', 'o4']


def test_agreement_that_was_looked_for_is_billed_where_nobody_may_leave(host, monkeypatch):
    e = _scored_as(host, monkeypatch, np.ones((64, 3)), agree=.15)
    e.serving.recruit()                                     # the fourth and last seat
    monkeypatch.setattr(e.serving, 'unite', lambda: Bill(1., 2.))
    e.plasticity.own[:] = 0
    assert e.serving.renew() == Bill(1., 2.) and len(e.population) == 4


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2 ** 31))
def test_agreement_is_claimed_falsely_no_more_often_than_it_may_be(seed):
    "Four organelles that differ by just the margin on average, in 40 lives: all pairs together at most one in twenty"
    rng = np.random.default_rng(seed)
    lives = [agreeing(rng.choice([0., .3], (64, 4)), margin=.15) for _ in range(40)]    # |difference| is 0 or .3
    assert sum(map(bool, lives)) <= 7                                                   # of 2 at most; 7 is 1 in 1,000


def test_the_young_do_not_have_to_leave(host, monkeypatch):
    e = begun(host, founders=3, founder_step=.1, market={'protect': 4})
    monkeypatch.setattr(e.population, 'is_noop', lambda id: False)
    assert e.serving.renew() == Bill() and e.population.ids == ['o1', 'o2', 'o3']


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(1, 5), st.integers(0, 2 ** 31))
def test_absence_is_what_is_lost_without(k, n, seed):
    table = np.random.default_rng(seed).random((n, k))
    def best(t): return t.max(1).mean() if t.shape[1] else 0.
    if k > 1:
        lost = [best(table) - best(np.delete(table, i, 1)) for i in range(k)]
        assert absence(table) == pytest.approx(lost)
    doubled = np.concatenate([table, table], 1)
    assert not absence(doubled).any()           # nobody misses one of two that always agree


def test_a_reservoir_keeps_all_alike():
    kept = np.zeros(40)
    for seed in range(600):
        met, rng = Met(8), stream(seed, purpose='test')
        for i in range(40): met.add('', '', [i], rng)
        for _, (i,) in met.answers: kept[i] += 1
    assert abs(kept / 600 - .2).max() < .07     # four standard errors


# --- resumed, refused

@pytest.mark.parametrize('changes', [{}, {'market': {'books': 'family', 'contest': 0., 'past': .01}}])
def test_it_goes_on_bit_for_bit(host, chance, tmp_path, changes):
    config = begun(host, **changes).config
    whole, parts = Ecology(host, config, seed=3), Ecology(host, config, seed=3)
    rows = [whole.step().tables for _ in range(5)]
    for _ in range(2): parts.step()
    with begin_session(tmp_path / 'run', host, config, seed=3, every=1) as session: session.live(2, log=None)
    with resume_session(tmp_path / 'run', host) as session:
        again = [session.step().tables for _ in range(3)]
        there = session.ecology
        assert there.market.state() == whole.market.state() and there.serving.state() == whole.serving.state()
        for id in whole.population.ids:
            for (a, b), (c, d) in zip(whole.population.factors(id).values(), there.population.factors(id).values()):
                assert a.equal(c) and b.equal(d)
    for one, two in zip(rows[2:], again):
        assert all(one[t] == two[t] for t in one if t != 'timings')


@pytest.mark.parametrize('forge, line', [
    (lambda s: s['books']['']['stakes'].update(o1=5.), 'stakes that sum to 1.0'),
    (lambda s: s['books']['']['stakes'].update(o1=-1., o2=2.), 'stake'),
    (lambda s: s['books']['']['stakes'].update(o1=float('nan')), 'stake'),
    (lambda s: s['books']['']['stakes'].pop('o1'), 'stakes that sum to 1.0'),
    (lambda s: s['books'].pop('string.sort'), 'market state expected'),
    (lambda s: s['books'][''].update(bets=None), 'a number of bets'),
    (lambda s: s['books'][''].update(bets=-1), 'a number of bets'),
    (lambda s: s['books'][''].update(moved=[['o1', 'bet', '1e9']]), 'invalid literal'),
    (lambda s: s['books'][''].update(moved=[['stranger', 'bet', '1/2']]), 'movements that sum to 0'),
    (lambda s: s['books'][''].update(moved=[['o1', 'gift', '0/1']]), 'each for one of account'),
    (lambda s: s['books']['string.sort'].update(total=2.), 'stakes that sum to 2.0'),
    (lambda s: s['trust']['string.sort'].update(stakes={'all': 1.}, past={'all': 1.}), "trust in 'all' and 'own'"),
    (lambda s: s['trust']['string.sort'].update(stakes={}, past={}), "trust in 'all' and 'own'")])
def test_forged_stakes_are_refused(host, chance, forge, line):
    e, _ = lived(host, 3)
    state = e.market.state()
    forge(state)
    with pytest.raises(ValueError, match=line): Market(e.config.market, e.config.families).restore(state)


@pytest.mark.parametrize('forged, line', [
    ({'seen': -5}, 'got 1 of -5'), ({'seen': None}, 'of None'), ({'seen': 1 << 80}, 'right answers of all'),
    ({'answers': [['q', [1]]] * 100}, 'got 100'),
    ({'families': []}, 'got 1 of 200'), ({'families': [3]}, 'got 1 of 200'),
    ({'answers': [['q', [10**9]]]}, 'token ids below'), ({'answers': [['q', [-1]]]}, 'token ids below'),
    ({'answers': [['q', []]]}, 'token ids below'), ({'answers': [['q', ['a']]]}, 'token ids below'),
    ({'answers': [['q', [1] * 10000]]}, 'the context is'), ({'answers': [[['a', 'b'], [1]]]}, 'end with a question')])
def test_forged_memories_are_refused(host, forged, line):
    with pytest.raises(ValueError, match=line):
        begun(host).serving.restore({'seen': 200, 'answers': [['q', [1]]], 'families': ['word.count']} | forged)


@pytest.mark.parametrize('changes, line', [
    ({'market': {'questions': 0}}, 'greater than or equal to 1'),
    ({'market': {'contest': 2.}}, 'less than or equal to 1'),
    ({'market': {'round': 0}}, 'greater than or equal to 1'), ({'market': {'books': 'one'}}, 'both|all|family'),
    ({'market': {'tau': 1.}}, 'Extra inputs')])
def test_what_does_not_fit_is_named(changes, line):
    with pytest.raises(ValueError, match=line.replace('|', '.')): changed_config(load_config('worlds'), changes)


# --- what it is for

def test_an_ecology_remembers_a_world_that_was_away():
    "Two worlds take turns on the host with four habits: a second organelle learns the second, and the first comes back"
    config = changed_config(load_config('worlds'), {
        'cells': ['string.sort:1', 'word.count:1', 'code.format:1'], 'world': {'worlds': 2, 'period': 7},
        'market': {'questions': 24, 'learn_every': 1}})
    e = Ecology(load_host('habits', threads=1), config, seed=1)
    records = [e.step() for _ in range(17)]
    believed = [r.row['best'] for r in records]
    changed = [(a, b) for a, b in pairwise(believed) if a != b]
    assert believed[5] == 'o1' == believed[-1] and believed[12] not in ('o1', None) and len(changed) == 2
    accuracy = [r.row['accuracy'] for r in records]
    assert np.mean(accuracy[15:]) > .8 * np.mean(accuracy[5:7])     # as good as before it was away
    assert np.mean(accuracy[15:]) > np.mean(accuracy[:3])
