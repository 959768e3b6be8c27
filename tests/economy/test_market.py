"""The market: money is conserved, and with everything at stake it is Bayes' rule."""
import json
from math import fsum

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

from evolora.economy.book import Book
from evolora.economy.market import Audit, Market, MarketConfig, likelihood_of

IDS = [f'o{i}' for i in range(1, 7)]
chance = st.floats(0, 1)


def book(n=4):
    found = Book()
    for i, who in enumerate(IDS[:n]): found.enter(who, 1 / (i + 1))
    return found


@settings(deadline=None)
@given(st.lists(st.tuples(st.lists(st.floats(.001, 1), min_size=4, max_size=4), st.booleans()), min_size=1,
                max_size=60))
def test_all_at_stake_is_the_posterior_computed_by_hand(answers):
    found, log = book(), np.zeros(4)
    for p, right in answers:
        p = np.minimum(p, .999)
        found.bet(likelihood_of(right, dict(zip(IDS, p))))
        log += np.log(p if right else 1 - p)
    posterior = np.exp(log - log.max())
    posterior /= posterior.sum()
    assert np.abs(np.array([found.stakes[who] for who in IDS[:4]]) - posterior).max() < 1e-9


@settings(deadline=None, max_examples=60)
@given(st.data())
def test_money_is_conserved_whatever_happens(data):
    market = Market(MarketConfig(bet=data.draw(st.sampled_from([.3, 1.])), even=data.draw(st.sampled_from([0., .02])),
                                 past=data.draw(st.sampled_from([0., .05]))), ('sort', 'count'))
    market.enter('o1')
    born, rows = 1, []
    for _ in range(data.draw(st.integers(1, 25))):
        what = data.draw(st.sampled_from(['bet', 'bet', 'bet', 'recruit', 'child', 'leave', 'merge', 'pay', 'take']))
        if what in ('recruit', 'child'):
            born += 1
            some = st.lists(st.sampled_from(market.holders), min_size=1, max_size=2, unique=True)
            market.welcome(f'o{born}', data.draw(some) if what == 'child' else ())
        elif what == 'leave' and len(market.holders) > 1: market.leave(data.draw(st.sampled_from(market.holders)))
        elif what == 'merge' and len(market.holders) > 1:
            born += 1
            parents = data.draw(st.lists(st.sampled_from(market.holders), min_size=2, max_size=2, unique=True))
            market.enter(f'o{born}', 0.)
            market.take_over(f'o{born}', parents)
            market.leave(parents[1])
        elif what in ('pay', 'take'):
            family, who = data.draw(st.sampled_from(['sort', 'count'])), data.draw(st.sampled_from(market.holders))
            part = data.draw(chance) * (1 if what == 'pay' else -1)
            market.lay_aside('c1 pot', family, lambda held, inside: {who: part * (held[who] if part > 0 else inside)})
        else:
            asked = data.draw(st.lists(st.sampled_from(market.holders), min_size=1, unique=True))
            market.settle(data.draw(st.sampled_from(['sort', 'count'])), {who: data.draw(chance) for who in asked})
        assert market.audit().discrepancy <= 1e-12
        for b in (*market.books.values(), *market.trust.values()):
            every = *b.stakes.values(), *b.aside.values()
            assert abs(fsum(every) - 1) <= 1e-12 and all(w >= -1e-15 for w in every)
        rows += market.rows(0)
    moved, books = pd.DataFrame(rows).groupby('organelle').amount.sum(), market.books.values()
    assert set(moved.index) >= {who for who, held in market.balances.items() if held} and abs(moved.sum() - 1) <= 1e-9
    for who, share in moved.items():
        held = fsum({**b.stakes, **b.aside}.get(who, 0.) for b in books) / len(books)
        assert share == pytest.approx(held, abs=1e-9)
    if not any(b.aside for b in books): assert fsum(market.balances.values()) == pytest.approx(1, abs=1e-9)
    assert abs(fsum(market.belief('sort').values()) - 1) <= 1e-9


def test_an_answer_that_only_who_holds_nothing_thought_possible_moves_nothing():
    book = Book()
    for who in ('rich', 'broke'): book.enter(who, 0.)
    assert book.bet({'rich': 2e-311, 'broke': 1.}) == 0. and book.stakes == {'rich': 1., 'broke': 0.}


def test_belief_weighs_books_by_their_trust():
    market = Market(MarketConfig(even=0.), ('sort', 'count'))
    for who in ('o1', 'o2'): market.enter(who)
    for _ in range(3): market.settle('sort', {'o1': .1, 'o2': .9})          # both books of `sort` come to trust o2,
    for _ in range(6): market.settle('count', {'o1': .9, 'o2': .1})         # the common one then o1 again
    market.settle('sort', {'o1': .1, 'o2': .9})
    v = market.trust['sort'].stakes
    by_hand = {who: v['all'] * market.books[''].stakes[who] + v['own'] * market.books['sort'].stakes[who]
               for who in ('o1', 'o2')}
    assert v['own'] > .8 and market.belief('sort') == pytest.approx(by_hand) and market.leader('sort') == 'o2'


def test_births_and_deaths_are_no_opinion():
    b = book()
    b.bet(dict(zip(IDS, (.9, .5, .2, .1))))
    before = {who: b.stakes[who] / b.stakes['o2'] for who in IDS[:4]}
    b.enter('o5', .25)
    assert b.stakes['o5'] == pytest.approx(.25)
    assert {who: b.stakes[who] / b.stakes['o2'] for who in IDS[:4]} == pytest.approx(before)
    b.leave('o1')
    assert b.stakes['o3'] / b.stakes['o2'] == pytest.approx(before['o3']) and fsum(b.stakes.values()) == 1.
    for who in ('o2', 'o3', 'o4', 'o5'): b.leave(who)
    assert not b.stakes


def lived():
    "A market of three in which beliefs differ from book to book"
    market = Market(MarketConfig(), ('sort', 'count'))
    for who in IDS[:3]: market.enter(who)
    for family, given in (('sort', (.9, .5, .2)), ('count', (.3, .6, .1)), ('sort', (.8, .1, .4))):
        market.settle(family, dict(zip(IDS, given)))
    return market


@pytest.mark.parametrize('parents', [('o1',), ('o1', 'o3')])
def test_a_child_gets_half_of_what_its_parents_hold_in_every_book(parents):
    market = lived()
    before = {name: dict(b.stakes) for name, b in market.books.items()}
    market.welcome('o4', parents)
    for name, b in market.books.items():
        assert b.stakes['o4'] == pytest.approx(sum(before[name][p] for p in parents) / 2)
        for who in IDS[:3]: assert b.stakes[who] == pytest.approx(before[name][who] * (.5 if who in parents else 1.))
    assert market.audit().balanced


def test_a_newborn_without_parents_gets_its_part_of_all():
    market = lived()
    market.welcome('o4')
    assert market.balance('o4') == pytest.approx(market.config.newborn)


def test_leaving_returns_what_the_others_got():
    market = lived()
    before, left = market.balances, market.leave('o2')
    assert left == before['o2'] and market.holders == ['o1', 'o3']
    assert sum(market.balances[who] - before[who] for who in ('o1', 'o3')) == pytest.approx(left)
    moved = pd.DataFrame(market.rows(0)).query("reason == 'death'").set_index('organelle').amount
    assert moved['o2'] == pytest.approx(-left) and moved.sum() == pytest.approx(0., abs=1e-12)


def test_nobody_bets_with_what_is_laid_aside_and_it_comes_back():
    one, two = book(), book()
    one.lay_aside('pot', {who: .4 * w for who, w in one.stakes.items()})
    likelihood = dict(zip(one.stakes, (.9, .5, .2, .1)))
    for b in (one, two):
        assert b.bet(likelihood) == pytest.approx(.425)
        b.spread(.02)
    assert {who: w / .6 for who, w in one.stakes.items()} == pytest.approx(two.stakes), 'the same bets with less money'
    one.enter('o9', .1)
    one.leave('o1')
    assert one.stakes['o9'] > 0 and fsum(one.stakes.values()) + one.aside['pot'] == 1
    first = next(iter(one.stakes))
    with pytest.raises(ValueError, match='expected no more than there is'): one.lay_aside('pot', {first: -.5})
    with pytest.raises(ValueError, match='which is a holder'): one.lay_aside(first, {first: .1})
    one.lay_aside('pot', {first: -one.aside['pot']})
    assert not one.aside and fsum(one.stakes.values()) == 1


def test_an_audit_finds_a_stake_that_came_from_nowhere():
    market = lived()
    sound = market.audit()
    assert sound.balanced and sound.begun == 5. and '**balanced**' in sound._repr_markdown_()  # 3 books, 2 of trust
    market.books['sort'].stakes['o1'] += 1e-6
    found = market.audit()
    assert not found.balanced and found.discrepancy == pytest.approx(1e-6) and '**off by' in found._repr_markdown_()
    assert Audit(1., 1., 1e-6, tolerance=1e-5).balanced


def test_a_holder_that_was_not_asked_keeps_its_stake():
    b = book()
    b.bet({'o1': .9, 'o2': .1})
    assert [b.stakes[who] for who in ('o3', 'o4')] == pytest.approx([.25, .25], abs=1e-15)
    assert b.stakes['o1'] == pytest.approx(.45)


def test_an_answer_that_nobody_thought_possible_teaches_nothing():
    b = book()
    before = dict(b.stakes)
    assert b.bet(dict.fromkeys(IDS[:4], 0.)) == 0. and b.stakes == before


def test_small_bets_leave_the_less_accurate_something_and_shares_bring_them_back():
    def after(part, even=0., past=0.):
        b = book()
        for _ in range(200):
            b.bet(dict(zip(IDS, (.9, .6, .3, .1))), part)
            b.spread(even, past)
        return b
    whole, half, even = after(1.), after(.1), after(1., .02)
    assert whole.stakes['o2'] < 1e-12 and half.stakes['o2'] > 1e-6 and even.stakes['o4'] > .004
    rich = after(1., 0., .02)
    assert rich.stakes['o2'] > rich.stakes['o4']        # o2 was rich for longer


def test_who_was_rich_before_comes_back_sooner_than_who_never_was():
    "Mixing past posteriors: o1 was right, o2 is right now; of o1 and o3, o1 is the one that a change brings back"
    def turn(**share):
        b = book()
        for who in ('o1', 'o2'):
            for _ in range(60):
                b.bet({k: .8 if k == who else .1 for k in IDS[:4]})
                b.spread(**share)
        return b.stakes
    past = turn(even=.001, past=.02)
    even = turn(even=.021, past=0.)
    assert past['o1'] > 3 * past['o3'] and even['o1'] == pytest.approx(even['o3'])


@pytest.mark.parametrize('books', ('both', 'all', 'family'))
def test_a_market_that_was_saved_goes_on_bit_for_bit(books):
    def live(market, answers, seed):
        rng = np.random.default_rng(seed)
        for _ in range(answers):
            family = ('sort', 'count')[int(rng.integers(2))]
            market.settle(family, likelihood_of(bool(rng.integers(2)), dict(zip(market.holders, rng.random(9)))))
        return market
    def make():
        market = Market(MarketConfig(books=books, past=.01), ('sort', 'count'))
        for who in IDS: market.enter(who)
        market.lay_aside('c1 pot', 'sort', lambda held, inside: {who: .3 * w for who, w in held.items()})
        return market
    whole = live(live(make(), 50, 1), 50, 2)
    saved, again = json.loads(json.dumps(live(make(), 50, 1).state())), make()
    again.restore(saved)
    assert live(again, 50, 2).state() == whole.state() and again.rows(3) == whole.rows(3)


def test_trust_goes_to_the_book_that_bets_better():
    "Families that agree make the common book worth more, families that do not make it worth less"
    def trust(agree):
        market = Market(MarketConfig(), ('sort', 'count'))
        for who in IDS[:4]: market.enter(who)
        for n in range(400):
            world = n // 50
            right = {'sort': IDS[world % 4], 'count': IDS[world % 4 if agree else (3 * world + 1) % 4]}
            family = ('sort', 'count')[n % 2]
            market.settle(family, {who: .6 if who == right[family] else .1 for who in market.holders})
        return np.mean([b.stakes['all'] for b in market.trust.values()])
    assert trust(True) > .5 > trust(False)


@pytest.mark.parametrize('break_it,says', [
    (lambda m: m.settle('sort', {'o1': 1.5}), 'likelihood expected finite and in'),
    (lambda m: m.settle('sort', {'o1': float('nan')}), 'likelihood expected finite'),
    (lambda m: m.settle('sort', {'o7': .5}), 'holds no stake'),
    (lambda m: m.settle('jump', {'o1': .5}), 'family of this'),
    (lambda m: m.enter('o1'), 'holds a stake already'), (lambda m: m.leave('o9'), 'holds no stake'),
    (lambda m: m.welcome('o2', ('o1',)), 'a new holder'), (lambda m: m.welcome('o3', ('o1', 'o9')), 'holds no stake'),
    (lambda m: m.welcome('o3', ('o1', 'o1')), 'different parents'),
    (lambda m: MarketConfig(bet=0.), 'greater than 0'), (lambda m: MarketConfig(books='some'), 'should match pattern')])
def test_bad_input_is_one_line_and_changes_nothing(break_it, says):
    market = Market(MarketConfig(), ('sort',))
    market.enter('o1')
    market.enter('o2')
    before = market.state()
    with pytest.raises((ValueError, KeyError), match=says): break_it(market)
    assert market.state() == before
