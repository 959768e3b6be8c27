"""Hazards make life harder, winter more so; tolls are conserved, and who dies is told why."""
import json
from math import fsum

import pytest

from evolora.ecology.checkpoint_files import read_checkpoint, write_checkpoint
from evolora.ecology.config import changed_config, load_config
from evolora.ecology.ecology import Ecology
from evolora.host.model import load_host
from evolora.society.hazard import levied

SMALL = {'founders': 4, 'founder_step': .6, 'capacity': 5, 'cells': ['string.sort:1', 'word.count:1'],
         'max_new_tokens': 12, 'market': {'questions': 8, 'round': 2, 'learn_every': 1, 'protect': 1}}


@pytest.fixture(scope='module')
def host(): return load_host('embedded', threads=1)


def begun(host, seed=2, **knobs):
    return Ecology(host, changed_config(load_config('debug'), SMALL | {'society': {'hazard': knobs} if knobs else {}}),
                   seed=seed)


def met(host, generation, seeds=60, **knobs):
    "How many hazards come to the first census of so many ecologies"
    e, found = begun(host, **knobs), 0
    for seed in range(seeds):
        e.seed, e.generation = seed, generation
        e.society['hazard'].renew()
        found += len(e.society.rows())
    return found


def test_hazards_come_as_often_as_it_says_and_more_often_in_winter(host):
    knobs = dict(chance=.1, toll=0., year=4, length=1, winter=4.)
    summer, winter = met(host, 0, **knobs), met(host, 3, **knobs)         # three of four are no recruit
    assert summer == pytest.approx(18, abs=13) and winter == pytest.approx(72, abs=20) and winter > 2 * summer


def test_a_toll_is_paid_to_the_others_and_nothing_is_lost(host):
    e = begun(host, chance=1., toll=.02)
    e.society['hazard'].renew()
    assert [r['event'] for r in e.society.rows()] == ['paid'] * 3 and len(e.population) == 4
    for book in e.market.books.values(): assert fsum(book.stakes.values()) == book.total
    assert e.market.balance('o1') > .25, 'the recruit is spared'
    assert sum(levied({'a': .1, 'b': .9}, 'a', .3).values()) == 0. and levied({'a': .1, 'b': .9}, 'a', .3)['a'] == -.1


def test_who_cannot_pay_dies_of_it_and_the_last_one_does_not(host):
    e = begun(host, chance=1., toll=1.)
    e.society['hazard'].renew()
    assert e.population.ids == ['o1'] and e.market.balance('o1') == 1.
    deaths = [row for row in e.demography.lineage() if row['event'] == 'death']
    assert len(deaths) == 3 and all(row['reason'].startswith('a hazard: it held') for row in deaths)
    e.population.write('o1', {n: (A, B + 1) for n, (A, B) in e.population.factors('o1').items()})
    e.society['hazard'].renew()
    assert len(e.population) == 1


def test_a_reserve_pays_a_toll_and_goes_with_its_owner(host):
    e = begun(host, chance=0., toll=.1, save=.5)
    part, account = e.society['hazard'], 'o2 reserve'
    inside = lambda: [b.aside.get(account, 0.) for b in e.market.books.values()]
    whole = lambda: all(fsum((*b.stakes.values(), *b.aside.values())) == b.total for b in e.market.books.values())
    for _ in range(6): part.renew()
    assert all(.07 < x <= .1001 for x in inside()) and whole() and not any('o1 reserve' in b.aside
                                                                     for b in e.market.books.values())
    e.market.trade(lambda shares: {'o2': -.99 * shares['o2'], 'o1': .99 * shares['o2']})     # a bad streak
    assert e.market.balance('o2') < .1
    part.config = part.config.model_copy(update={'chance': 1.})
    before, stake = e.market.balance('o2'), e.market.books[''].stakes['o2']
    part.renew()
    assert 'o2' in e.population and max(inside()) < .03 and whole(), 'poor, but it had saved'
    assert e.market.balance('o2') < before + .1, 'and it is not rich now'
    part.config = part.config.model_copy(update={'chance': 0.})
    part.renew()
    e.demography.bury('o2', 0, 'a test')
    assert inside() == [0.] * 3 and whole()


def test_life_is_harder(host):
    def learned(**knobs):
        e = begun(host, **knobs)
        e.run(6, log=None)
        return sum(int(e.plasticity.own[o.slot]) for o in e.population)
    assert learned(chance=.5, toll=.95) < .5 * learned(chance=0.)


def test_without_a_chance_it_changes_nothing_and_with_one_a_life_goes_on_bit_for_bit(host, tmp_path):
    tables = lambda e: json.dumps({k: v for k, v in e.step().tables.items() if k != 'timings'})
    free, calm = begun(host), begun(host, chance=0.)
    assert [tables(free) for _ in range(2)] == [tables(calm) for _ in range(2)]
    one = begun(host, chance=.3, toll=.1, year=2, length=1, save=.2)
    one.run(2, log=None)
    two = begun(host, chance=.3, toll=.1, year=2, length=1, save=.2)
    read_checkpoint(write_checkpoint(tmp_path, one), two)
    assert [tables(one) for _ in range(3)] == [tables(two) for _ in range(3)]
    assert one.market.audit().balanced
