"""Teams answer without gold, are promoted on evidence alone, lose their dead at once, and pay for all that they ask."""
import json
import math
from types import SimpleNamespace

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


def test_who_is_no_member_and_other_families_are_maps_below(host):
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


# --- a verifier

def judged(host, likely, monkeypatch, **knobs):
    "A colony whose members answer differently, and a verifier that says yes to some texts"
    e, part, c = with_colony(host, answer='verifier', **knobs)
    e.population.death('o4')
    e.market.leave('o4')
    e.population.capacity = 8
    one = e.demography.found(0, rank=2, traits=e.config.traits, step=0., reason='verifier')
    def scored(population, prompts, tokens, organelles, **how):
        assert organelles == [one.id] and all(p[-1] == 'Is that right?' for p in prompts)
        yes = [likely(p[-2]) for p in prompts[::2]]
        log = np.log([x for y in yes for x in (1 - y, y)])
        return SimpleNamespace(logprobs=log[:, None], likelihoods=np.exp(log)[:, None], flops=np.ones(len(log)) * 1e9,
                               alone=np.ones(len(log)) * 1e9)
    monkeypatch.setattr('evolora.society.colony.score', scored)
    return e, part, c, one.id


def test_what_the_verifier_holds_right_is_handed_in_and_paid_for(host, monkeypatch):
    e, part, c, verifier = judged(host, lambda text: .9 if len(text) % 2 else .2, monkeypatch, fee=.01)
    c.promoted, tasks = True, asked(e, n=8)
    before = e.market.belief('string.sort')
    part.choose(tasks, ['o2'] * len(tasks), range(len(tasks)))
    assert e.market.belief('string.sort') == before, 'whoever chooses after it cannot tell how it was graded'
    verdicts, bill = list(part._verdicts), part.settled([], [])
    after = e.market.belief('string.sort')
    assert verdicts and bill.gflops > 0 and not part._fees
    won = sum(v.right for v in verdicts) - sum(not v.right for v in verdicts)
    assert after[verifier] - before[verifier] == pytest.approx(.01 * won)
    assert after['o2'] - before['o2'] == pytest.approx(after['o3'] - before['o3'])
    assert e.market.audit().balanced
    for v in verdicts:
        said_yes = v.tokens == e.host.tokenizer('yes', add_special_tokens=False)['input_ids']
        task = next(t for t in tasks if t.prompt == v.prompt[0])
        assert v.right == (said_yes == e.host.form.grade(task, v.prompt[1]).success), 'paid by the grade, afterwards'


def test_a_verifier_learns_from_its_verdicts_and_from_nothing_else_of_the_team(host, monkeypatch):
    e, part, c, verifier = judged(host, lambda text: .9 if len(text) % 2 else .2, monkeypatch)
    tasks, lessons = asked(e, n=8), []
    part.choose(tasks, ['o2'] * len(tasks), range(len(tasks)))
    part._verdicts[0] = part._verdicts[0]._replace(right=not part._verdicts[-1].right)
    learn = e.plasticity.learn
    e.plasticity.learn = lambda lesson, **how: (lessons.append(lesson), learn(lesson, **how))[1]
    n = len(part._verdicts)
    bill = part.renew()
    lesson, = lessons
    assert {*lesson.organelles} == {verifier} and len(lesson) == n and abs(lesson.advantage.sum()) < 1e-9
    assert bill.gflops > 0 and not part._verdicts and not e.population.is_noop(verifier)
    assert verifier not in {id for c in part.colonies for id in c.members}


def test_a_verifier_is_asked_nothing_else_and_keeps_its_seat(host, monkeypatch):
    e, part, c, verifier = judged(host, lambda text: .5, monkeypatch)
    tasks = asked(e, n=4)
    e.market.trade(lambda shares: {verifier: .9 * shares['o1'], 'o1': -.9 * shares['o1']})
    who = part._without_verifier(tasks, [verifier, 'o2', verifier, 'o3'])
    belief = e.market.belief('string.sort')
    best = max((x for x in belief if x != verifier), key=belief.get)
    assert who == [best, 'o2', best, 'o3']
    assert not part.allows('leave', verifier) and not part.allows('merge', verifier) and part.allows('leave', 'o2')


def test_verdicts_that_wait_are_saved_and_others_are_dropped(host, monkeypatch):
    e, part, c, verifier = judged(host, lambda text: .9, monkeypatch)
    tasks = asked(e, n=8)
    part.choose(tasks, ['o2'] * len(tasks), range(len(tasks)))
    part.settled([], [])
    state, waiting = part.state(), list(part._verdicts)
    assert waiting
    part._verdicts, part._chances = [], {(0, 'x'): .5}
    part.restore(json.loads(json.dumps(state)))
    assert part._verdicts == waiting and not part._chances
    with pytest.raises(ValueError, match='restore the state from a copy'):
        part.restore(state | {'verdicts': [[['a', 'b'], [5], True]]})


def test_who_hands_in_for_a_team_reads_no_message(host):
    e, part, c = with_colony(host)
    c.promoted, tasks = True, asked(e)
    chosen = part.choose(tasks, ['o2'] * len(tasks), range(len(tasks)))
    assert not any(part.allows('read', id) for id in {*chosen})
    part.settled([], [])
    assert all(part.allows('read', id) for id in {*chosen})


def test_without_a_verifier_a_team_goes_by_likelihood_and_one_is_founded_where_a_seat_is_free(host):
    e, part, c = with_colony(host, answer='verifier')
    other, same, d = with_colony(host, answer='likelihood')
    tasks = asked(e)
    for x, y in ((e, part), (other, same)): y.choose(tasks, ['o2'] * len(tasks), range(len(tasks)))
    assert c.routes == d.routes and part.verifier is None
    part.renew()
    assert part.verifier is None, 'no seat is free'
    e.demography.bury('o4', 0, 'a test')
    part.renew()
    assert e.population[part.verifier].operator == 'verifier'
    e.demography.bury(part.verifier, 0, 'a test')
    assert part.verifier is None


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
