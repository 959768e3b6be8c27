"""Conservation: whatever happens to a ledger, its rows explain every balance."""
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from evolora.economy.ledger import ACCOUNTS, Ledger
from evolora.economy.prices import (EconomyConfig, Prices, answer_cost, effective_population, gini, penalty, revenue,
                                    reward, roi, season)

CONFIG = EconomyConfig(cap=20., ticket=.7, grace=2, floor=1.5, founder_energy=10., newborn_energy=3.)
ENERGY = st.floats(0, 1000, allow_subnormal=False)
WHO = st.integers(0, 5)
EVENTS = st.one_of(
    st.tuples(st.just('open'), WHO, ENERGY), st.tuples(st.just('birth'), WHO, WHO, ENERGY),
    st.tuples(st.just('ticket'), WHO, st.floats(0, 4)), st.tuples(st.just('settle'), WHO, ENERGY, ENERGY, ENERGY),
    st.tuples(st.just('transfer'), WHO, WHO, ENERGY),
    st.tuples(st.just('top_up'), WHO, st.floats(0, 3) | st.just(math.nan)),
    st.tuples(st.just('share'), st.floats(0, 1)), st.tuples(st.just('close'), WHO),
    st.tuples(st.just('drain')), st.tuples(st.just('resume')))


class World:
    "Plays events on a ledger and keeps every row that was ever drained"

    def __init__(self):
        self.ledger, self.rows, self.born = Ledger(CONFIG), [], 0

    def play(self, generation, name, *values):
        ledger, alive = self.ledger, list(self.ledger.balances)
        pick = lambda number: alive[number % len(alive)]
        if name == 'open':
            self.born += 1
            ledger.open(f'o{self.born}', values[1], generation=generation)
        elif name == 'drain': self.rows += ledger.drain()
        elif name == 'resume':
            state = json.loads(json.dumps(ledger.state()))
            self.ledger = Ledger(CONFIG)
            self.ledger.restore(state)
        elif not alive: return
        elif name == 'birth':
            parents = tuple(dict.fromkeys(map(pick, values[:2])))
            self.born += 1
            amount = min(values[2], len(parents) * min(map(ledger.balance, parents)))
            ledger.open(f'o{self.born}', amount, reason='birth', generation=generation, parents=parents)
        elif name == 'ticket':
            assert ledger.pay_ticket(pick(values[0]), generation, values[1]) in ('paid', 'strike', 'bankrupt')
        elif name == 'settle':
            ledger.settle(pick(values[0]), cost=values[1], revenue=values[2], penalty=values[3], generation=generation)
        elif name == 'transfer' and pick(values[0]) != pick(values[1]):
            amount = min(values[2], ledger.balance(pick(values[0])))
            ledger.transfer(pick(values[0]), pick(values[1]), amount, generation=generation)
        elif name == 'top_up': ledger.top_up(pick(values[0]), values[1], generation)
        elif name == 'share':
            before = ledger.total()
            ledger.redistribute(values[0], generation=generation)
            assert abs(ledger.total() - before) <= 1e-9
        elif name == 'close': ledger.close(pick(values[0]), generation)


@settings(deadline=None, max_examples=150)
@given(st.lists(EVENTS, max_size=40))
def test_any_history_balances(events):
    world = World()
    for generation, event in enumerate(events):
        world.play(generation, *event)
        assert all(0 <= b <= CONFIG.cap for b in world.ledger.balances.values())
        audit = world.ledger.audit()
        assert audit.balanced and audit.discrepancy <= 1e-9
    rows, ledger = world.rows + world.ledger.drain(), world.ledger

    replayed, sides = {}, {}
    for row in rows:
        replayed[row['organelle']] = replayed.get(row['organelle'], 0) + Fraction(row['amount'])
        sides[row['account']] = sides.get(row['account'], 0) + Fraction(row['amount'])
        assert abs(float(replayed[row['organelle']]) - row['balance']) <= 1e-9
    for organelle, amount in replayed.items():
        assert abs(float(amount) - ledger.balances.get(organelle, 0.)) <= 1e-9
    audit = ledger.audit()
    for accounts, sign in ((audit.mints, 1), (audit.sinks, -1)):
        for account, amount in accounts.items(): assert sign * float(sides[account]) == amount
    for account, kind in ACCOUNTS.items():
        assert {'mint': 1, 'sink': -1, 'pool': 0}[kind] * sides.get(account, 0) >= 0


def test_audit_fails_when_a_balance_or_a_row_is_tampered_with():
    ledger = Ledger(CONFIG)
    ledger.open('o1', 5., generation=0)
    ledger.open('o2', 5., generation=0)
    ledger._balances['o1'] -= 1e-6
    assert not ledger.audit().balanced
    ledger._balances['o1'] += 1e-6
    assert ledger.audit().balanced
    # A one-sided gift leaves the totals right but is no gift
    ledger._post('o1', 'o2', 'transfer', -1., 0)
    assert not ledger.audit().balanced


def test_audit_survives_draining_long_histories():
    ledger, rng = Ledger(CONFIG), np.random.default_rng(0)
    ledger.open('o1', 5., generation=0)
    for generation in range(3000):
        ledger.settle('o1', cost=rng.random(), revenue=rng.random(), generation=generation)
        ledger.drain()
    assert ledger.frame().empty and ledger.audit().balanced
    assert ledger.audit().mints['market'] == pytest.approx(1500, rel=.05)


def test_a_refused_event_leaves_no_trace():
    ledger = Ledger(CONFIG)
    ledger.open('o1', 5., generation=0)
    ledger.open('o2', 1., generation=0)
    before = ledger.state()
    refused = [(ValueError, lambda: ledger.settle('o1', revenue=1., cost=math.inf, generation=1)),
               (ValueError, lambda: ledger.settle('o1', revenue=1., penalty=math.nan, generation=1)),
               (ValueError, lambda: ledger.open('o3', 6., reason='birth', generation=1, parents=('o1', 'o2'))),
               (ValueError, lambda: ledger.open('o3', 6., reason='birth', generation=1, parents=('o1', 'o1'))),
               (KeyError, lambda: ledger.open('o3', 1., reason='birth', generation=1, parents=('o1', 'o9'))),
               (ValueError, lambda: ledger.open('o1', 1., generation=1)),
               (ValueError, lambda: ledger.open('market', 1., generation=1)),
               (ValueError, lambda: ledger.open('o3', 1., reason='gift', generation=1)),
               (ValueError, lambda: ledger.transfer('o1', 'o1', 1., generation=1)),
               (ValueError, lambda: ledger.transfer('o2', 'o1', 1.5, generation=1)),
               (KeyError, lambda: ledger.transfer('o1', 'o9', 1., generation=1)),
               (ValueError, lambda: ledger.pay_ticket('o1', 1, factor=-1.)),
               (KeyError, lambda: ledger.pay_ticket('o9', 1)), (KeyError, lambda: ledger.close('o9', 1)),
               (KeyError, lambda: ledger.settle('o9', generation=1)), (KeyError, lambda: ledger.top_up('o9', 2., 1)),
               (ValueError, lambda: ledger.redistribute(1.5, generation=1)), (ValueError, lambda: ledger.restore({}))]
    for error, act in refused:
        with pytest.raises(error) as caught: act()
        assert '\n' not in str(caught.value)
        assert ledger.state() == before


def test_one_paid_ticket_clears_the_strikes():
    ledger = Ledger(EconomyConfig(ticket=1., grace=3))
    ledger.open('o1', 0., generation=0)
    assert [ledger.pay_ticket('o1', g) for g in (1, 2)] == ['strike', 'strike']
    ledger.settle('o1', revenue=1., generation=2)
    assert ledger.pay_ticket('o1', 3) == 'paid' and ledger.strikes == {'o1': 0} and ledger.balance('o1') == 0
    assert [ledger.pay_ticket('o1', g) for g in (4, 5, 6)] == ['strike', 'strike', 'bankrupt']


def test_an_unknown_roi_gets_no_help_and_help_stops_at_the_floor():
    ledger = Ledger(CONFIG)
    ledger.open('o1', 1., generation=0)
    assert ledger.top_up('o1', math.nan, 1) == ledger.top_up('o1', CONFIG.roi_gate, 1) == 'roi_blocked'
    assert ledger.top_up('o1', 1.01, 1) == 'success' and ledger.balance('o1') == CONFIG.floor
    assert ledger.top_up('o1', 9., 1) == 'already_sufficient'
    assert ledger.top_up('o1', 9., 1, floor=2., roi_gate=10.) == 'roi_blocked'


@given(st.floats(0, 1), st.booleans(), st.floats(.5, 2))
def test_reward_splits_without_loss(progress, success, price):
    r = reward(CONFIG, progress, success)
    assert r.total == pytest.approx(r.progress + r.bonus + r.failure)
    assert revenue(r.total, price) / price - penalty(r.total) == pytest.approx(r.total)
    assert revenue(r.total, price) >= 0 and penalty(r.total) >= 0


def test_cost_is_linear_and_has_the_shape_of_its_arguments():
    assert isinstance(answer_cost(CONFIG, .06, 40), float)
    one, two = answer_cost(CONFIG, np.array([.06, .12]), np.array([40, 80]))
    assert two == pytest.approx(2 * one) and answer_cost(CONFIG, .06, 40, fees=1.) == pytest.approx(one + 1)


def test_a_price_moves_against_success_within_its_bounds():
    prices = Prices(CONFIG)
    path = []
    for rate in [1.] * 20 + [0.] * 40:
        prices.observe('math:1', rate, 20)
        path.append(prices.price('math:1'))
    assert np.all(np.diff(path[:20]) <= 0) and np.all(np.diff(path[20:]) >= 0)
    assert min(path) == CONFIG.price_min and max(path) <= CONFIG.price_max and path[-1] > CONFIG.price_base
    unchanged = prices.state()
    prices.observe('math:1', 1., 0)
    assert prices.state() == unchanged
    with pytest.raises(ValueError, match='success_rate expected'): prices.observe('math:1', 1.2, 5)


def test_winter_is_never_easier():
    config = EconomyConfig(winter_every=7, winter_length=3)
    assert [season(config, g).name for g in range(7)] == ['summer'] * 4 + ['winter'] * 3
    assert season(EconomyConfig(winter_every=0), 19).name == 'summer'
    winter = season(config, 6)
    assert winter.revenue < 1 and winter.ticket > 1
    for wrong in ({'winter_revenue': 1.1}, {'winter_ticket': .9}, {'winter_revenue': 1., 'winter_ticket': 1.},
                  {'winter_length': 20}, {'founder_energy': 31.}, {'price_min': 1.5}, {'cap': math.nan},
                  {'grace': 2.5}):
        with pytest.raises(ValueError): EconomyConfig(**wrong)


@given(st.lists(st.floats(0, 100), min_size=1, max_size=30))
def test_concentration_stays_in_its_bounds(energies):
    assert -1e-9 <= gini(energies) <= 1 - 1 / len(energies) + 1e-9
    if sum(energies) > 1e-6: assert 1 - 1e-9 <= effective_population(energies) <= len(energies) + 1e-9


def test_roi_of_nothing_spent_is_unknown():
    assert math.isnan(roi(0., 0.)) and roi(1.5, 1.) == 1.5
    assert gini([]) == effective_population([]) == 0 == gini([0., 0.])


def test_the_ticket_costs_what_is_configured_and_more_in_winter():
    ledger = Ledger(CONFIG)
    ledger.open('o1', 5., generation=0)
    assert ledger.pay_ticket('o1', 1) == ledger.pay_ticket('o1', 2, factor=2.) == 'paid'
    assert ledger.balance('o1') == pytest.approx(5. - 3 * CONFIG.ticket)
    assert ledger.audit().sinks == {'commons': pytest.approx(3 * CONFIG.ticket)}


def test_sharing_takes_the_stated_part():
    ledger = Ledger(CONFIG)
    ledger.open('o1', 10., generation=0)
    ledger.open('o2', 2., generation=0)
    ledger.redistribute(.5, generation=1)
    assert ledger.balances == {'o1': pytest.approx(8.), 'o2': pytest.approx(4.)}


def test_a_gift_that_does_not_fit_overflows():
    ledger = Ledger(CONFIG)
    ledger.open('o1', 10., generation=0)
    ledger.open('o2', 19., generation=0)
    ledger.transfer('o1', 'o2', 4., generation=1)
    assert ledger.balances == {'o1': 6., 'o2': CONFIG.cap} and ledger.audit().sinks == {'overflow': 3.}
    assert ledger.frame().reason.tolist() == ['founder', 'founder', 'transfer', 'transfer', 'cap']
