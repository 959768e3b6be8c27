"""What the guard takes it gives: limits are met, nothing is made or lost, and no limit is no guard."""
import json
from math import fsum

import numpy as np
import pytest

from evolora.ecology.checkpoint_files import read_checkpoint, write_checkpoint
from evolora.ecology.config import changed_config, load_config
from evolora.ecology.ecology import Ecology
from evolora.economy.prices import gini
from evolora.host.model import load_host
from evolora.society.guard import capped, levelled

SMALL = {'market': {'questions': 6, 'round': 2, 'learn_every': 1}, 'max_new_tokens': 12}


@pytest.fixture(scope='module')
def host(): return load_host('embedded', threads=1)


def begun(host, **knobs):
    return Ecology(host, changed_config(load_config('debug'), SMALL | {'society': {'guard': knobs} if knobs else {}}),
                   seed=3)


def tables(e, *but): return json.dumps({k: v for k, v in e.step().tables.items() if k not in ('timings', *but)})


def test_limits_are_met_and_nothing_is_made_or_lost():
    rng = np.random.default_rng(2)
    for _ in range(500):
        n = int(rng.integers(1, 12))
        shares = dict(enumerate(rng.dirichlet(np.full(n, .2)).tolist()))
        if rng.random() < .2: shares = dict(enumerate([1.] + [0.] * (n - 1)))
        cap, limit = rng.random(2)
        cut, even = capped(shares, cap), levelled(shares, limit)
        for found in (cut, even):
            assert fsum(found.values()) == pytest.approx(1., abs=1e-12) and min(found.values()) >= 0
            order = sorted(shares, key=shares.get)
            assert all(found[a] <= found[b] + 1e-12 for a, b in zip(order, order[1:])), 'none overtakes another one'
        assert max(cut.values()) <= max(cap, 1 / n) + 1e-12
        assert gini([*even.values()]) <= max(limit, 0.) + 1e-9


def test_below_the_cap_ratios_stay():
    found = capped({'a': .7, 'b': .2, 'c': .1}, .4)
    assert found['b'] / found['c'] == pytest.approx(2) and found['a'] == .4


def test_without_a_limit_it_changes_nothing_of_a_life(host):
    free, held = begun(host), begun(host, cap=1., gini=1.)
    assert [tables(free, 'society') for _ in range(3)] == [tables(held, 'society') for _ in range(3)]
    assert all(row['numbers']['moved'] == 0 for row in held.history[-1].society)


def test_a_guarded_life_keeps_its_limits_balances_and_goes_on_bit_for_bit(host, tmp_path):
    one = begun(host, cap=.4, gini=.3)
    one.run(2, log=None)
    two = begun(host, cap=.4, gini=.3)
    read_checkpoint(write_checkpoint(tmp_path, one), two)
    for _ in range(3):
        assert tables(one) == tables(two)
        assert one.history[-1].society[0]['numbers']['moved'] > 0
        for book in one.market.books.values():
            assert fsum(book.stakes.values()) == book.total
    part = one.society['guard']
    part.settled([], [])
    for book in one.market.books.values():
        assert max(book.stakes.values()) <= .4 + 1e-9 and gini([*book.stakes.values()]) <= .3 + 1e-9
    assert part.moved == 0, 'it was level already'
    with pytest.raises(ValueError, match='restore the state'): part.restore({'moved': float('nan')})
