"""Other plans of who answers: what moves, that it goes on bit for bit, and that an exam changes nothing."""
import json
from math import fsum

import numpy as np
import pytest

from evolora.ecology.checkpoint_files import read_checkpoint, write_checkpoint
from evolora.ecology.config import changed_config, load_config
from evolora.ecology.ecology import Ecology
from evolora.ecology.parts import Graded
from evolora.economy.book import Book
from evolora.economy.market import Market, MarketConfig
from evolora.evaluation.world_exam import exam_in_world
from evolora.host.model import load_host
from evolora.society.allocation import Auction, Sharing, Thompson, auctioned, traded

RULES = 'auction', 'sharing', 'bandit', 'even'
SMALL = {'founders': 3, 'capacity': 4, 'cells': ['string.sort:1', 'word.count:1'], 'max_new_tokens': 12,
         'market': {'questions': 8, 'round': 2, 'learn_every': 1, 'protect': 1, 'met': 16}}


@pytest.fixture(scope='module')
def host(): return load_host('embedded', threads=1)


@pytest.fixture(scope='module')
def habits(): return load_host('habits', threads=1)


def begun(host, rule, preset='debug', **more):
    society = {'allocation': {'rule': rule}} if rule else {}
    return Ecology(host, changed_config(load_config(preset), SMALL | {'society': society} | more), seed=4)


def tables(e): return json.dumps({k: v for k, v in e.step().tables.items() if k != 'timings'})


# --- the mechanism

def test_a_sale_moves_stakes_and_makes_none():
    rng = np.random.default_rng(0)
    for _ in range(300):
        n = int(rng.integers(1, 9))
        shares = dict(enumerate(rng.dirichlet(np.full(n, .3)).tolist()))
        bids = {id: min(.1 * rng.random(), w) for id, w in shares.items()}
        winner, price = auctioned(bids)
        assert bids[winner] == max(bids.values()) >= price == (sorted(bids.values())[-2] if n > 1 else 0.)
        for right in (True, False):
            gains = traded(shares, winner, .1 * right - price, .02)
            assert abs(sum(gains.values())) < 1e-15 and min(shares[i] + gains[i] for i in shares) >= -1e-15
            book = Book()
            book.restore(book.state() | {'stakes': shares, 'past': shares})
            book.trade(gains)
            assert fsum(book.stakes.values()) == 1.


def test_an_answer_is_shared_by_likelihood_alone():
    book = Book()
    for who in 'abc': book.enter(who, .5)
    before = dict(book.stakes)
    assert book.share_out({'a': .8, 'b': .2}, .1) == pytest.approx(
        (before['a'] * .8 + before['b'] * .2) / (before['a'] + before['b']))
    pot = .1 * (before['a'] + before['b'])
    assert book.stakes == pytest.approx({'a': .9 * before['a'] + .8 * pot, 'b': .9 * before['b'] + .2 * pot,
                                         'c': before['c']}), 'who was not asked neither pays nor gets'
    assert book.share_out({'a': 0., 'b': 0.}, .1) == 0. and fsum(book.stakes.values()) == 1.


def test_who_holds_nothing_comes_back_where_answers_are_shared_and_not_where_they_are_bet():
    def after(shared):
        market = Market(MarketConfig(books='all', even=0.), ['f'])
        market.enter('rich')
        market.enter('poor', 1e-6)
        for _ in range(20): market.settle('f', {'rich': .4, 'poor': .8}, shared)
        return market.balance('poor')
    assert after(.1) > .5 and after(0.) == pytest.approx(.5, abs=.05)        # 2**20 is about 1e6
    assert after(.1) < after(.9) == pytest.approx(2 / 3)


def test_a_trade_that_leaves_a_debt_or_money_over_is_refused():
    book = Book()
    for who in 'ab': book.enter(who, .5)
    for gains in ({'a': -.6, 'b': .6}, {'a': .1}, {'a': .1, 'b': -.2}):
        with pytest.raises(ValueError, match='sum to 0 and leave no debt'): book.trade(gains)
    with pytest.raises(KeyError): book.trade({'c': 0.})
    assert book.stakes == {'a': .5, 'b': .5}


# --- in a life

@pytest.mark.parametrize('rule', RULES)
def test_a_life_goes_on_bit_for_bit_and_balances(host, rule, tmp_path):
    one = begun(host, rule)
    one.run(2, log=None)
    two = begun(host, rule)
    read_checkpoint(write_checkpoint(tmp_path, one), two)
    assert [tables(one) for _ in range(3)] == [tables(two) for _ in range(3)]
    assert one.market.audit().balanced
    assert all(fsum(b.stakes.values()) == b.total for b in one.market.books.values())


def test_a_generation_that_was_cut_short_keeps_what_was_sold(host, tmp_path):
    one = begun(host, 'auction')
    one.step(questions=4)
    two = begun(host, 'auction')
    read_checkpoint(write_checkpoint(tmp_path, one), two)
    assert one.serving.sold and tables(one) == tables(two)
    sold = sum(row['numbers']['questions'] for row in one.history[-1].society)
    assert sold == 12 and not one.serving.sold


def test_each_rule_lives_another_life(host):
    lives = {rule: [tables(e := begun(host, rule)) for _ in range(2)] for rule in ('', *RULES)}
    assert len({json.dumps(x) for x in lives.values()}) == 5


def test_what_is_sold_goes_to_the_highest_bid_for_the_second(host, monkeypatch):
    e = begun(host, 'auction', market=SMALL['market'] | {'books': 'all'})
    e.serving.counts['string.sort'] = {'o1': [80., 20.], 'o2': [50., 50.], 'o3': [20., 80.]}
    monkeypatch.setattr(e.serving, '_drawn', lambda family, rng: {'o1': .8, 'o2': .5, 'o3': .2})
    task = type('Task', (), {'family': 'string.sort'})()
    assert e.serving.choose(task, 7, None) == 'o1' and e.serving.prices == {7: pytest.approx(.05)}
    assert e.serving.sold == {'string.sort': {'o1': [1., pytest.approx(.08), pytest.approx(.05)]}}
    before = e.market.balances
    e.serving.settle([Graded('string.sort', 'x', [1], True, 'o1', .5, place=7)])
    w, even = before['o1'], e.market.config.even
    assert e.market.balance('o1') == pytest.approx(w + (1 - w) * .05 + even * (1 / 3 - w))
    assert not e.serving.prices and e.market.audit().balanced


def test_who_is_broke_cannot_outbid(host, monkeypatch):
    e = begun(host, 'auction')
    held = {'o1': .001, 'o2': .5, 'o3': .499}
    monkeypatch.setattr(e.market, 'belief', lambda family: dict(held))
    monkeypatch.setattr(e.serving, '_drawn', lambda family, rng: {'o1': 1., 'o2': .3, 'o3': .2})
    assert e.serving.choose(type('Task', (), {'family': 'string.sort'})(), 0, None) == 'o2'


@pytest.mark.parametrize('rule', RULES)
def test_an_exam_changes_nothing(habits, rule):
    e = begun(habits, rule, 'worlds', world={'worlds': 2, 'period': 2})
    e.step()
    before = json.dumps([e.market.state(), e.serving.state(), e.society.state()])
    first = exam_in_world(e, 1, (0, 2), questions=8)
    assert json.dumps([e.market.state(), e.serving.state(), e.society.state()]) == before
    assert first.equals(exam_in_world(e, 1, (0, 2), questions=8))


def test_a_newborn_has_no_record_and_who_left_is_forgotten(host):
    e = begun(host, 'bandit')
    e.serving.counts = {'string.sort': {'o1': [3., 1.], 'gone': [9., 0.]}}
    known = e.serving._of('string.sort')
    assert known == {'o1': [3., 1.], 'o2': [0., 0.], 'o3': [0., 0.]} and isinstance(e.serving, Thompson)


@pytest.mark.parametrize('rule, wrong', [('auction', {'counts': {'f': {'o1': [1., -1.]}}}),
                                         ('auction', {'sold': {'f': {'o1': [1.]}}}),
                                         ('bandit', {'counts': {'f': {'o1': ['1', 2]}}}),
                                         ('bandit', {'counts': {'f': {'o1': [float('nan'), 2.]}}})])
def test_a_damaged_record_is_refused(host, rule, wrong):
    e = begun(host, rule)
    with pytest.raises(ValueError, match='restore the state from a copy'): e.serving.restore(e.serving.state() | wrong)


def test_a_rule_is_a_serving_with_its_knobs(host):
    e = begun(host, None, society={'allocation': {'rule': 'auction', 'fade': .5, 'prize': .2}})
    assert isinstance(e.serving, Auction) and (e.serving.discount, e.serving.prize) == (.5, .2)
    e = begun(host, None, society={'allocation': {'rule': 'sharing', 'prize': .3}})
    assert isinstance(e.serving, Sharing) and e.serving.prize == .3
