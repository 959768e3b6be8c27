"""Teams answer without gold, are promoted on evidence alone, lose their dead at once, and pay for all that they ask."""
import json
import math
from math import fsum

import numpy as np
import pytest

from evolora.assimilation.sequential import betting
from evolora.ecology.checkpoint_files import read_checkpoint, write_checkpoint
from evolora.ecology.config import changed_config, load_config
from evolora.ecology.ecology import Ecology
from evolora.evaluation.evaluation import selection
from evolora.host.model import load_host
from evolora.society.colony import Colony, held_likely, picked, team_exam, voted

SMALL = {'founders': 4, 'founder_step': .6, 'capacity': 4, 'cells': ['string.sort:1', 'word.count:1'],
         'max_new_tokens': 12, 'market': {'questions': 8, 'round': 2, 'learn_every': 1, 'protect': 1}}


@pytest.fixture(scope='module')
def host(): return load_host('embedded', threads=1)


def begun(host, **knobs):
    society = {'colony': knobs} if knobs else {}
    e = Ecology(host, changed_config(load_config('debug'), SMALL | {'society': society}), seed=7)
    e.plasticity.own[:] = 4
    return e


def with_colony(host, family='string.sort', members=('o2', 'o3'), **knobs):
    e = begun(host, **({'probe': 1.} | knobs))
    part = e.society['colony']
    test, level = part.tests.open()
    part.colonies, part.count = [Colony('c1', family, list(members), 0, test, level)], 1
    return e, part, part.colonies[0]


def asked(e, family='string.sort', n=6): return [t for t in selection(40, seed=3, cells=[*e.cells.values()])
                                                  if t.family == family][:n]


# --- the answer

def test_no_rule_knows_which_answer_is_right():
    texts, belief = ['a', 'b', 'b', 'c'], [.4, .3, .2, .1]
    assert voted(texts, belief).tolist() == pytest.approx([.4, .5, .5, .1])
    assert picked(voted(texts, belief), texts, belief, 0) == 1, 'the most believed author of the heaviest answer'
    assert picked(voted(texts, belief), texts, belief, 2) == 2, 'the routed one gave it'
    likely = np.array([[.9, .1], [.2, .8]])
    assert held_likely(likely, [3., 1.]).tolist() == pytest.approx([.7, .35])
    assert held_likely(likely, [0., 0.]).tolist() == pytest.approx([.5, .5])
    assert picked(np.array([.5, .5]), ['a', 'b'], [.1, .9], 0) == 0


@pytest.mark.parametrize('answer', ['vote', 'likelihood'])
def test_on_trial_the_routed_member_answers_and_the_pair_is_kept(host, answer):
    e, part, c = with_colony(host, answer=answer)
    tasks = asked(e)
    who = part.choose(tasks, ['o2'] * len(tasks), range(len(tasks)))
    assert list(who) == ['o2'] * len(tasks) and len(c.differences) == len(tasks) == c.routes[0]
    bill = part.settled([], [])
    assert bill.gflops > 0 and bill.alone >= bill.gflops and part.settled([], []).gflops == 0, 'charged once'


def test_a_team_names_the_member_whose_answer_weighs_most(host, monkeypatch):
    e, part, c = with_colony(host)
    c.promoted, tasks = True, asked(e, n=2)
    monkeypatch.setattr(part, '_answers', lambda probes: [
        (p, ['x', 'y'], np.array(w), [.6, .4]) for p, w in zip(probes, ([.2, .5], [.5, .2]))])
    assert part.choose(tasks, ['o2', 'o2'], [3, 4]) == ['o3', 'o2']


def test_who_is_no_member_and_other_families_are_left_alone(host):
    e, part, c = with_colony(host)
    tasks = asked(e, 'word.count', 3) + asked(e, n=2)
    who = ['o2', 'o2', 'o2', 'o1', 'o4']
    assert list(part.choose(tasks, who, range(5))) == who and not c.differences


def test_the_budget_of_routes_is_kept(host):
    e, part, c = with_colony(host, routes=4)
    tasks = asked(e)
    part.choose(tasks, ['o2'] * 6, range(6))
    assert len(c.differences) == 4
    e, part, c = with_colony(host, routes=0)
    part.choose(tasks, ['o2'] * 6, range(6))
    assert not c.differences and part.settled([], []).gflops == 0, 'zero budget delivers nothing'


# --- promotion and the end

def test_promotion_takes_the_evidence_that_its_level_asks_for(host):
    e, part, c = with_colony(host)
    need = -math.log(c.level)
    n = next(n for n in range(1, 200) if Colony('x', 'f', [], 0, 1, .1, differences=[1] * n).log_e >= need)
    c.differences = [1] * (n - 1)
    part.renew()
    assert not c.promoted
    c.differences = [1] * n
    part.renew()
    assert c.promoted and c.differences == [] and part.tests.discoveries == 1
    assert any(r['event'] == 'promoted' for r in e.society.rows())


def test_false_promotions_are_rare(host):
    "Teams that are as good as the routed member, looked at after every pair"
    pairs = np.random.default_rng(0).choice([1, -1, 0], (400, 300), p=[.15, .15, .7])
    assert (betting(pairs) >= -math.log(.05)).any(1).mean() < .07


def test_what_proves_worse_is_dissolved_and_gets_no_second_trial(host):
    e, part, c = with_colony(host)
    c.differences = [-1] * 60
    part.renew()
    assert c not in part.colonies and ['string.sort', 'o2', 'o3'] in part.refuted
    assert any(r['event'] == 'dissolved: worse than its best member' for r in e.society.rows())
    assert all(x.members != ['o2', 'o3'] for x in part.colonies if x.family == 'string.sort')


def test_a_dead_member_leaves_at_once(host):
    e, part, c = with_colony(host)
    e.demography.bury('o3', 0, 'a test')
    assert not part.colonies
    e, part, c = with_colony(host, members=('o2', 'o3', 'o4'), size=3)
    c.promoted, c.differences, (first, level) = True, [1, 0], (c.test, c.level)
    e.demography.bury('o3', 0, 'a test')
    assert c.members == ['o2', 'o4'] and not c.promoted and c.differences == [] and c.test != first


def test_several_colonies_live_at_once_of_those_that_are_believed_most(host, monkeypatch):
    e = begun(host, size=2)
    held = {'string.sort': {'o1': .1, 'o2': .5, 'o3': .1, 'o4': .3},
            'word.count': {'o1': .4, 'o2': .1, 'o3': .4, 'o4': .1}}
    monkeypatch.setattr(e.market, 'belief', held.get)
    part = e.society['colony']
    part.renew()
    assert {c.family: c.members for c in part.colonies} == {'string.sort': ['o2', 'o4'], 'word.count': ['o1', 'o3']}
    e.plasticity.own[:] = 0
    fresh = begun(host, size=2)
    fresh.plasticity.own[:] = 0
    fresh.society['colony'].renew()
    assert not fresh.society['colony'].colonies, 'who has learned nothing founds nothing'


def test_members_of_a_team_share_and_nothing_is_lost(host):
    e, part, c = with_colony(host, pool=.5)
    c.promoted = True
    e.market.trade(lambda shares: {'o2': .1, 'o1': -.1})
    before = {name: dict(b.stakes) for name, b in e.market.books.items()}
    part.renew()
    changed = [name for name, b in e.market.books.items() if b.stakes != before[name]]
    assert changed and all(fsum(b.stakes.values()) == b.total for b in e.market.books.values())
    for name in changed:
        a, b = (before[name][id] for id in ('o2', 'o3'))
        after = e.market.books[name].stakes
        assert after['o2'] - after['o3'] == pytest.approx(.5 * (a - b)) and after['o1'] == before[name]['o1']


# --- a life, and an exam

def tables(e): return json.dumps({k: v for k, v in e.step().tables.items() if k not in ('timings', 'society')})


def test_a_life_with_colonies_goes_on_bit_for_bit(host, tmp_path):
    one = begun(host, probe=1.)
    one.run(2, log=None)
    two = begun(host, probe=1.)
    read_checkpoint(write_checkpoint(tmp_path, one), two)
    assert one.society['colony'].colonies == two.society['colony'].colonies != []
    for _ in range(2):
        assert tables(one) == tables(two) and one.history[-1].society == two.history[-1].society
    assert one.market.audit().balanced


def test_trials_change_no_answer_and_cost_what_they_cost(host):
    bare, trial = begun(host), begun(host, probe=1.)
    free, held = ([json.loads(tables(e)) for _ in range(3)] for e in (bare, trial))
    assert [t['episodes'] for t in free] == [t['episodes'] for t in held]
    assert trial.history[-1].row['gflops']['score'] > bare.history[-1].row['gflops']['score']


def test_an_exam_of_a_team_is_paired_and_changes_nothing(host):
    e = begun(host, probe=1.)
    e.run(1, log=None)
    before = json.dumps([e.market.state(), e.society.state()['colony'], e.serving.state()])
    tasks = asked(e, n=8)
    team = e.population.ids[1:3]
    found = team_exam(e, team, tasks)
    assert json.dumps([e.market.state(), e.society.state()['colony'], e.serving.state()]) == before
    assert found.equals(team_exam(e, team, tasks)) and len(found) == 8
    assert (found.team_gflops >= found.often_gflops * .99).all() and (found.best_gflops < found.often_gflops).all()


def test_a_damaged_colony_is_refused(host):
    e, part, c = with_colony(host)
    good = part.state()
    for wrong in ({'members': ['o2', 'o2']}, {'members': ['o2', 'gone']}, {'family': 'none'}, {'test': 9},
                  {'differences': [2]}, {'level': 2.}, {'extra': 1}):
        with pytest.raises(ValueError, match='restore the state from a copy'):
            part.restore(good | {'colonies': [good['colonies'][0] | wrong]})
    part.restore(good)
    assert json.dumps(part.state()) == json.dumps(good)
