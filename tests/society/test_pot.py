"""Pots are filled and emptied by their rules, and stakes and pots together are always what they were."""
import json
from math import fsum

import pytest

from evolora.ecology.checkpoint_files import read_checkpoint, write_checkpoint
from evolora.ecology.config import changed_config, load_config
from evolora.ecology.ecology import Ecology
from evolora.host.model import load_host
from evolora.society.colony import Colony
from evolora.society.pot import subsidies

SMALL = {'founders': 4, 'founder_step': .6, 'capacity': 5, 'cells': ['string.sort:1', 'word.count:1'],
         'max_new_tokens': 12, 'market': {'questions': 8, 'round': 2, 'learn_every': 1, 'protect': 1}}


@pytest.fixture(scope='module')
def host(): return load_host('embedded', threads=1)


def begun(host, members=('o2', 'o3'), **knobs):
    quiet = {'tax': .2, 'reserve': .5, 'floor': 0., 'most': 1., 'child': 0.}
    e = Ecology(host, changed_config(load_config('debug'), SMALL | {'society': {'colony': {'probe': 0.},
                                                                               'pot': quiet | knobs}}), seed=7)
    e.plasticity.own[:] = 4
    colonies = e.society['colony']
    test, level = colonies.tests.open()
    colonies.tests.close(test, 1e9)
    colonies.colonies, colonies.count = [Colony('c1', 'string.sort', list(members), 0, test, level, promoted=True)], 1
    return e, e.society['pot'], colonies.colonies[0]


def whole(e):
    "Stakes and pots of each book, to the last bit"
    return {name: fsum((*b.stakes.values(), *b.aside.values())) == b.total for name, b in e.market.books.items()}


def shares(e, family='string.sort'): return {name: dict(b.stakes) for name, (b, _) in e.market._of(family).items()}


# --- the rules

def test_members_pay_their_tax_and_nobody_else_does(host):
    e, part, c = begun(host)
    before = shares(e)
    part.renew()
    for name, book in shares(e).items():
        assert book['o2'] == pytest.approx(.8 * before[name]['o2']) and book['o1'] == before[name]['o1']
        paid = .2 * (before[name]['o2'] + before[name]['o3'])
        assert e.market.pot('c1 pot', 'string.sort')[name] == pytest.approx(paid)
    assert all(whole(e).values()) and not e.market.books['word.count'].aside
    assert sum(e.market.belief('string.sort').values()) == pytest.approx(1), 'beliefs are shares of what can be bet'


def test_who_holds_too_little_is_helped_out_of_what_is_above_the_reserve(host):
    e, part, c = begun(host, tax=0., floor=.5, reserve=.25)
    e.market.trade(lambda held: {'o2': held['o3'] * .9, 'o3': -held['o3'] * .9})
    e.market.lay_aside('c1 pot', 'string.sort', lambda held, inside: {'o1': .02})
    before = shares(e)
    part.renew()
    for name, book in shares(e).items():
        lacks = .25 * (before[name]['o2'] + before[name]['o3']) - before[name]['o3']
        assert book['o3'] - before[name]['o3'] == pytest.approx(min(lacks, .75 * .02))
        assert book['o2'] == before[name]['o2']
    assert subsidies({'a': .1, 'b': .2, 'c': .9}, .75, .1) == pytest.approx({'a': .2 / 3, 'b': .1 / 3})
    assert subsidies({'a': .1, 'b': .1}, 1., .5) == {}


def test_what_is_above_the_largest_pot_goes_back(host):
    e, part, c = begun(host, tax=.5, most=.05)
    part.renew()
    assert part.inside('c1 pot') == pytest.approx(.05) and all(whole(e).values())


def test_a_pot_pays_for_a_child_that_takes_nothing_from_its_parents(host):
    e, part, c = begun(host, child=.05)
    part.renew()
    row = next(r for r in e.society.rows() if r['event'] == 'child')
    child = e.population[row['organelle']]
    assert child.parents[0] in ('o2', 'o3') and part.inside('c1 pot') == 0 and all(whole(e).values())
    for name, (book, _) in e.market._of('string.sort').items(): assert book.stakes[child.id] == pytest.approx(
        .2 * (book.stakes['o2'] + book.stakes['o3']) / .8)
    assert e.market.books['word.count'].stakes[child.id] == 0
    part.renew()
    assert len(e.population) == 5, 'no seat is free'


def test_no_child_where_none_is_wanted(host):
    e, part, c = begun(host, tax=.9)
    part.renew()
    assert len(e.population) == 4


# --- its end

@pytest.mark.parametrize('members', [('o2', 'o3'), ('o1', 'o2', 'o3')])
def test_who_dies_leaves_the_pot_to_the_others_of_the_team_at_once(host, members):
    e, part, c = begun(host, members)
    part.renew()
    inside, before = e.market.pot('c1 pot', 'string.sort'), shares(e)
    assert min(inside.values()) > 0
    e.market.leave, left = (lambda id: None), e.market.leave        # what the dying one holds is not looked at here
    e.demography.bury('o2', 0, 'a test')
    others = [id for id in members if id != 'o2']
    for name, book in shares(e).items():
        for id in others: assert book[id] - before[name][id] == pytest.approx(inside[name] / len(others))
        assert book['o4'] == before[name]['o4']
    left('o2')
    assert not part.teams and not any(b.aside for b in e.market.books.values()) and all(whole(e).values())
    assert e.society.rows()[-1]['others'] == [id for id in members if id != 'o2']


def test_a_team_that_is_dissolved_or_back_on_trial_gets_its_pot_back(host):
    for end in (lambda e, c: e.society['colony']._dissolve(c, 'a test'), lambda e, c: setattr(c, 'promoted', False)):
        e, part, c = begun(host)
        part.renew()
        end(e, c)
        before = shares(e)
        inside = e.market.pot('c1 pot', 'string.sort')
        part.renew()
        for name, book in shares(e).items():
            assert book['o2'] - before[name]['o2'] == pytest.approx(inside[name] / 2)
        assert not part.teams and all(whole(e).values())


# --- a life

def tables(e): return json.dumps({k: v for k, v in e.step().tables.items() if k not in ('timings', 'society')})


def test_a_life_with_pots_goes_on_bit_for_bit_and_never_loses_anything(host, tmp_path):
    knobs = {'tax': .3, 'floor': .6, 'child': .2, 'most': .3}
    one, two = begun(host, **knobs)[0], begun(host, **knobs)[0]
    one.run(2, log=None)
    assert one.society['pot'].teams
    read_checkpoint(write_checkpoint(tmp_path, one), two)
    for _ in range(3):
        assert tables(one) == tables(two) and one.history[-1].society == two.history[-1].society
        assert all(whole(one).values()) and one.market.audit().balanced
    reasons = {row['reason'] for row in one.history[-1].ledger}
    assert 'pot' in reasons


def test_a_pot_needs_teams_and_damaged_ones_are_refused(host):
    with pytest.raises(ValueError, match='expected the part colony'):
        Ecology(host, changed_config(load_config('debug'), SMALL | {'society': {'pot': {}}}))
    turned = changed_config(load_config('debug'), SMALL | {'society': {'pot': {}, 'colony': {}}})
    assert [*Ecology(host, turned).society.parts] == ['colony', 'pot'], 'whatever the order in which they are named'
    e, part, c = begun(host)
    part.renew()
    good = part.state()
    for wrong in ({'c1 pot': ['gone', ['o2']]}, {'c1 pot': ['string.sort', ['o9']]}, {'c1 pot': ['string.sort', []]}):
        with pytest.raises(ValueError, match='restore the state from a copy'): part.restore({'teams': wrong})
    part.restore(good)
    assert part.state() == good
