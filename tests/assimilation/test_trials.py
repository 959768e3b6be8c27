"""A child is made of its parents, tested against both on fresh questions, and every end closes what it opened."""
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from scripted import (CELLS, FAMILIES, SHORT, better, equal, forgetful, log, meeting, moved, narrow,
                      on_probation, rarely_better, rng, same, seed_for, tried)
from evolora.assimilation import trials as module
from evolora.assimilation.examiner import Examiner
from evolora.tasks.family import Grade
from evolora.tasks.forms import Form
from evolora.assimilation.gates import GATES
from evolora.assimilation.sequential import ELond, PairedTest
from evolora.host.model import tiny_host
from evolora.organelles.updates import Plasticity, PlasticityConfig
from evolora.utils.randomness import stream
from evolora.tasks.splits import stream_of
from evolora.assimilation.trials import Attempt, conceive, probation, screen


@pytest.fixture(scope='module')
def host(): return tiny_host()


def dense(factors, alpha=8.): return {n: alpha / len(A) * B.double() @ A.double() for n, (A, B) in factors.items()}
def paid(m): return 600 * 2 - sum(m.a.tokens.balances.values())


def look(m, trial, recent, generation=11, **how):
    return probation(m.a, trial, recent, generation, seed_for=seed_for,
                     rng=lambda purpose: stream(1, generation=generation, purpose=purpose), **how)


# --- a child before its birth

def test_a_merged_child_lies_between_its_parents(host):
    "Its ΔW is the weighted mean of theirs, where the rank can hold it"
    m = meeting(host)
    for id in ('o1', 'o2'): m.population.write(id, {n: (torch.cat([A, 0 * A]), torch.cat([B, 0 * B], 1))
                                                    for n, (A, B) in m.population.factors(id).items()})
    child = conceive(m.a, ('o1', 'o2'), m.plasticity, [.6, .2], rng('child'))
    one, two, made = (dense(f) for f in (m.population.factors('o1'), m.population.factors('o2'), child.factors))
    assert all(torch.allclose(made[n], .75 * one[n] + .25 * two[n], atol=1e-6) for n in made)
    assert child[1:] == (('o1', 'o2'), 'merge', 'math+string.sort', pytest.approx(1), 0.)


@pytest.mark.parametrize('lows, weights', [([.8, .8], (.5, .5)), ([.4, .8], (1 / 3, 2 / 3)), ([0., 0.], (.5, .5))])
def test_the_parent_that_is_shown_to_do_more_counts_more(host, monkeypatch, lows, weights):
    seen, real = [], module.merge
    monkeypatch.setattr(module, 'merge', lambda parents, w, **how: seen.append(w) or real(parents, w, **how))
    m = meeting(host)
    conceive(m.a, ('o1', 'o2'), m.plasticity, lows, rng('child'))
    assert seen == [pytest.approx(weights)]


@pytest.mark.parametrize('rule', ['linear', 'ties', 'fisher'])
def test_every_rule_makes_a_child_that_differs_from_both(host, rule):
    m = meeting(host, rule=rule)
    before = {id: m.population.factors(id) for id in m.population.ids}
    child = conceive(m.a, ('o1', 'o2'), m.plasticity, [.8, .8], rng('child'))
    assert all(not same(child.factors, f) and same(m.population.factors(id), f) for id, f in before.items())
    assert 0 < child.energy_kept <= 1 and len(m.a.examiner.scratch) == 0


def fill_pool(m):
    ids = m.population.host.encode(['7', 'abc'])
    m.a.pool = {'math:1': [('What is 3 + 4?', ids[0])] * 3, 'string.sort:2': [('Sort: cab', ids[1])],
                'logic.bool:1': [('secret', ids[0])]}


def test_a_trained_child_begins_as_its_first_parent_and_learns_from_both_homes(host, monkeypatch):
    lessons, real = [], Plasticity.learn
    def learn(self, lesson, **how):
        lessons.append(lesson)
        return real(self, lesson, **how)
    monkeypatch.setattr(Plasticity, 'learn', learn)
    m = meeting(host, expert=1., lessons=3)
    fill_pool(m)
    before = {id: m.population.factors(id) for id in m.population.ids}
    child = conceive(m.a, ('o1', 'o2'), m.plasticity, [.8, .8], rng('child'))
    assert (child.operator, child.energy_kept) == ('expert', 1.) and child.gflops > 0 and len(m.a.examiner.scratch) == 0
    assert not same(child.factors, before['o1']) and all(same(m.population.factors(id), f) for id, f in before.items())
    assert len(lessons) == 3 and all((one.advantage == 1).all() for one in lessons)
    assert sorted(p for one in lessons for p in one.prompts) == ['Sort: cab'] + 3 * ['What is 3 + 4?']
    far = lambda id: sum((dense(child.factors)[n] - dense(before[id])[n]).norm() for n in child.factors)
    assert far('o1') < far('o2'), 'it starts from its first parent'


@pytest.mark.parametrize('pool, rule', [(False, 'local'), (True, 'none'), (True, 'es')])
def test_without_a_lesson_or_a_rule_it_is_merged(host, pool, rule):
    m = meeting(host, expert=1.)
    if pool: fill_pool(m)
    training = Plasticity(m.population, PlasticityConfig(rule=rule))
    assert conceive(m.a, ('o1', 'o2'), training, [.8, .8], rng('child')).operator == 'merge'


def test_the_same_seed_makes_the_same_child(host):
    children = []
    for seed in (1, 1, 2):
        m = meeting(host, expert=1.)
        fill_pool(m)
        children.append(conceive(m.a, ('o1', 'o2'), m.plasticity, [.8, .8], stream(seed)).factors)
    assert same(children[0], children[1]) and not same(children[0], children[2])


# --- the test

ENDS = {'merged': dict(is_right=better), 'trial_created': dict(is_right=rarely_better, **SHORT),
        'low_tokens': dict(tokens=20), 'low_power': dict(uplift=.05, least_power=.9),
        'canary_failed': dict(is_right=forgetful), 'probe_failed': dict(is_right=narrow),
        'uplift_below_threshold': dict(is_right=equal),
        'gate_check_failed': dict(is_right=rarely_better, trials=0, **SHORT)}


@pytest.mark.parametrize('end', ENDS)
def test_every_end_leaves_the_books_in_order(host, end):
    m = meeting(host, **ENDS[end])
    before, held = {id: m.population.factors(id) for id in m.population.ids}, dict(m.a.tokens.balances)
    made = tried(m)
    assert isinstance(made, Attempt) and made.outcome == end
    assert m.a.tried == ({} if end in ('low_tokens', 'low_power') else {'o1': 10, 'o2': 10}), 'no test, no pause'
    # gates of the stream are closed, or open on probation
    opened = made.trial is not None
    assert m.a.levels.found == ([{'merged': True, 'trial_created': None}.get(end, False)] if opened else [])
    assert opened == (end not in ('low_tokens', 'low_power', 'canary_failed', 'probe_failed'))
    # what was asked is paid by both parents, alike
    asked = sum(len(who) * len(tasks) for who, tasks, _ in m.a.examiner.evaluations)
    assert held['o1'] + held['o2'] - sum(m.a.tokens.balances.values()) == asked == m.a.examiner.bill['answers']
    assert abs(m.a.tokens.balances['o1'] - m.a.tokens.balances['o2']) <= 4
    assert bool(asked) == (end not in ('low_tokens', 'low_power'))
    # no parent was changed, none was born, only a merge is remembered as one
    assert m.population.ids == ['o1', 'o2'] and all(same(m.population.factors(id), f) for id, f in before.items())
    assert (m.a.last_merge == 10) == (end == 'merged') and m.a.trials == {}
    # exactly the last decision is the stop
    assert [d.passed for d in made.decisions[:-1]] == [True] * (len(made.decisions) - 1)
    assert made.decisions[-1].passed == (end in ('merged', 'trial_created'))
    assert all(d.organelle == 'o1' and d.partners == ('o2',) and d.gate in GATES for d in made.decisions)


def test_canary_probe_and_looks_ask_in_their_cells(host):
    m = meeting(host, is_right=rarely_better, pairs=64, least_power=0., futility=0.)
    tried(m)
    canary, probe, *looks = m.a.examiner.evaluations
    assert canary[0] == ['child', 'host'] and {t.depth for t in canary[1]} == {1} and canary[2] == {'temperature': 0.}
    assert {t.difficulty for t in canary[1]} == {0.}
    assert probe[0] == ['child', 'o1', 'o2'] and {t.family for t in probe[1]} <= set(FAMILIES[2:])
    assert len(looks) > 1 and {t.family for _, tasks, _ in looks for t in tasks} == set(FAMILIES[:2])
    ids = [t.id for _, tasks, _ in m.a.examiner.evaluations for t in tasks]
    assert len(set(ids)) == len(ids), 'no question is asked twice'
    assert {stream_of(t) for _, tasks, _ in m.a.examiner.evaluations for t in tasks} == {'gate'}


def test_generalists_have_no_probe(host):
    m = meeting(host, cells=CELLS[:2])
    made = tried(m)
    assert made.outcome == 'merged' and 'probe_failed' not in [d.gate for d in made.decisions]


def test_a_host_that_solves_nothing_has_no_canary(host):
    "Nothing easy can be forgotten by a child of a host that knows nothing"
    m = meeting(host, is_right=lambda name, t, i: name == 'child' and t.difficulty > 0)
    made = tried(m)
    assert made.outcome == 'merged'
    assert next(d for d in made.decisions if d.gate == 'canary_failed').numbers['kept'] == 1.


def test_a_parent_that_is_beaten_is_not_asked_again(host):
    m = meeting(host, is_right=lambda name, t, i: name in ('child', 'host') or name == 'o2' and i % 4, power=.999)
    made = tried(m)
    looks = [who for who, _, _ in m.a.examiner.evaluations[2:]]
    assert made.outcome == 'merged' and looks[0] == ['child', 'o1', 'o2'] and looks[-1] == ['child', 'o2']
    assert made.trial.tests['o1'].pairs == 16 < made.trial.tests['o2'].pairs
    assert made.decisions[-1].numbers['best'] == 'o2' and made.decisions[-1].numbers['e'] == made.trial.e
    assert made.trial.e == made.trial.tests['o2'].peak < made.trial.tests['o1'].peak


def test_both_parents_must_be_beaten(host):
    "A child that is far above one parent and equal to the other is none"
    m = meeting(host, is_right=lambda name, t, i: name != 'o1')
    made = tried(m)
    assert made.outcome == 'uplift_below_threshold' and made.decisions[-1].numbers['best'] == 'o2'
    assert made.trial.tests['o1'].crossed and made.trial.tests['o2'].crossed is None


def test_equal_children_are_rarely_accepted(host):
    "A hundred first gates at a level below .01, on answers that are coins"
    accepted = 0
    m = meeting(host, pairs=200, trials=0, canary_kept=0., margin=1., futility=0., tokens=2000, uplift=.3)
    for seed in range(100):
        draw = stream(seed, purpose='coins')
        m.a.examiner.is_right, m.a.discordant = (lambda name, t, i: draw.random() < .5), .5
        m.a.levels.levels, m.a.levels.found = [], []
        for id in ('o1', 'o2'): m.a.tokens.earn(id, 2000, 10)
        accepted += tried(m).outcome == 'merged'
    assert accepted <= 2


def test_what_a_test_shows_of_strangers_is_remembered(host):
    "The survey need not ask again what the test has seen"
    m = meeting(host, is_right=lambda name, t, i: name in ('child', 'host') or i % 2, survey=8, pairs=100)
    tried(m)
    assert set(m.a.skill) == {'o1', 'o2'}
    assert set(m.a.skill['o1']) == {'string.sort'} and set(m.a.skill['o2']) == {'math'}
    assert all(0 < share < 1 and when == 10 for known in m.a.skill.values() for share, when in known.values())


def test_the_next_test_is_planned_with_what_this_one_met(host):
    m = meeting(host)
    tried(m)
    assert m.a.discordant == pytest.approx(.2 + .2 * (1 - .2)), 'every pair was discordant'


def test_tokens_never_run_out_in_a_test(host):
    "However many tokens the parents hold: a test plans for as many pairs as they can pay"
    for tokens in range(30, 130, 7):
        m = meeting(host, is_right=rarely_better, tokens=tokens, least_power=0., futility=0., trials=0)
        made = tried(m)
        assert made.outcome == ('low_tokens' if 2 * tokens < 80 else 'gate_check_failed')
        assert min(m.a.tokens.balances.values()) >= 0


@pytest.mark.parametrize('seat, outcome', [(True, 'trial_created'), (False, 'merged')])
def test_a_first_test_ends_early_where_a_child_could_wait(host, seat, outcome):
    "An open test goes on in later generations, if its child can live that long; else now"
    m = meeting(host, is_right=rarely_better, least_power=0., futility=0., probation_after=32, tokens=2000, uplift=.1)
    while not seat and len(m.population) < m.population.capacity - 1: m.population.birth(rank=2)
    made = tried(m)
    assert made.outcome == outcome and (made.trial.numbers()['pairs'] == 32 if seat else
                                        made.trial.numbers()['pairs'] > 32)
    assert m.a.levels.found == [None if seat else True]


@pytest.mark.parametrize('calls, outcome, pairs', [(1, 'gate_check_failed', 0), (2, 'gate_check_failed', 0),
                                                   (3, 'trial_created', 16)])
def test_cells_may_run_out_of_questions(host, monkeypatch, calls, outcome, pairs):
    "After the canary, after the probe, after a look: what was seen until then decides"
    left, real = [True] * calls, module.fresh
    monkeypatch.setattr(module, 'fresh', lambda *args, **how: real(*args, **how) if left and left.pop() else [])
    m = meeting(host, is_right=rarely_better, least_power=0., futility=0.)
    made = tried(m)
    assert made.outcome == outcome and len(m.a.examiner.evaluations) == calls
    assert made.trial.numbers()['pairs'] == pairs and made.trial.numbers()['uplift'] == pairs / 16 / 8
    assert m.a.discordant == pytest.approx(.2 + .2 * (pairs / 16 / 8 - .2) * bool(pairs)), 'no pair, no news'
    assert all(np.isfinite(x) for d in made.decisions for x in d.numbers.values() if not isinstance(x, str))


def test_a_pair_is_tested_by_the_real_examiner(host, monkeypatch):
    "Nothing is steered but the grader, to which the twin of a parent is as right as the parent"
    def grade(task, text): return Grade(True, 1., bool(stream(0, purpose=f'{task.id}{text}').random() < .5))
    monkeypatch.setattr(Form, 'grade', lambda _, task, text: grade(task, text))
    m = meeting(host, trials=0, canary_kept=0., margin=1.)
    m.population.write('o2', m.population.factors('o1'))
    m.a.examiner = Examiner(m.population, max_new_tokens=3)
    made = tried(m)
    assert made.outcome == 'uplift_below_threshold' and m.a.examiner.bill['answers'] == paid(m)
    # Twice o1 is o1 again, up to the last bits of a sum.
    assert made.trial.tests['o1'].wins == made.trial.tests['o1'].losses == 0


# --- probation

def test_a_trial_goes_on_with_the_test_that_was_open(host):
    m = meeting(host, is_right=rarely_better, **SHORT)
    trial = on_probation(m)
    assert trial.nominee == 'o1' and trial.since == 10 and (trial.gate, trial.level) == (1, m.a.levels.levels[0])
    assert all(t.pairs == 16 and t.most == 16 + 6 * 16 for t in trial.tests.values())
    assert set(trial.controls) == {'o1', 'o2'}
    m.a.examiner.is_right, pooled = better, dict(trial.tests)
    decisions, outcome = look(m, trial, log({'o1': 1., 'o2': 1., 'o3': 1.}, generation=11))
    assert all(t.pairs == 32 for t in pooled.values()) and outcome == 'trial_promoted'
    assert [d.gate for d in decisions] == ['low_power_dr', 'log_below_threshold', 'low_tokens', 'trial_frozen',
                                           'low_tokens', 'trial_promoted']
    assert m.a.levels.found == [True] and m.a.last_merge == 11
    who, tasks, _ = m.a.examiner.evaluations[-1]
    assert who == ['child', 'o1', 'o2'] and {t.family for t in tasks} == set(FAMILIES[:2])
    assert {stream_of(t) for t in tasks} == {'gate'}


@pytest.mark.parametrize('generation, outcome', [(11, 'open'), (15, 'open'), (16, 'trial_expired'),
                                                 (20, 'trial_expired')])
def test_time_is_up_after_so_many_generations(host, generation, outcome):
    m = meeting(host, is_right=rarely_better, **SHORT)
    trial = on_probation(m)
    decisions, found = look(m, trial, log({}, generation=11), generation)
    assert found == outcome and m.a.levels.found == [None if outcome == 'open' else False] and m.a.last_merge == 0
    assert [d.gate for d in decisions] == ['low_power_dr'] + ['trial_expired'] * (outcome != 'open')


def test_trials_are_limited_and_need_room(host):
    m = meeting(host, is_right=rarely_better, **SHORT)
    on_probation(m)
    m.a.tried.clear()
    assert tried(m).outcome == 'gate_check_failed', 'one at a time'
    m = meeting(host, is_right=rarely_better, **SHORT)
    while len(m.population) < m.population.capacity - 1: m.population.birth(rank=2)
    assert tried(m).outcome == 'gate_check_failed', 'the last seat is for merges'
    m = meeting(host, is_right=lambda name, t, i: name == 'host' or name == 'child' and (
        t.difficulty == 0 or i % 4 == 3) or name == 'o1' and i % 4 == 0, futility=0., **SHORT)
    assert tried(m).outcome == 'gate_check_failed', 'and hope: it was not above its best parent'


def test_the_log_counts_only_what_came_after_the_birth(host):
    m = meeting(host, is_right=rarely_better, **SHORT)
    trial = on_probation(m)
    for recent, rows in ((log({'o1': 1., 'o3': 1.}, generation=10), 0), (log({'o1': 1.}, generation=11), 0),
                         (log({'o2': 1., 'o3': 1.}, generation=11), 0 if trial.numbers()['best'] == 'o1' else 12),
                         (log({'o1': 1., 'o2': 1., 'o3': 1.}, generation=11, n=7), 7), (log({}, generation=11), 0)):
        found = screen(m.a, trial, recent, 12, rng('screen'))
        assert found[0].numbers['rows'] == rows and found[0].passed == (rows >= 8) == (len(found) == 2)


def test_a_stray_answer_holds_up_no_look(host):
    "One cell in which both are known is enough; the others are left out"
    m = meeting(host, is_right=rarely_better, **SHORT)
    trial = on_probation(m)
    known = log({'o1': .5, 'o2': .5, 'o3': 1.}, generation=11, n=24, cells=CELLS[:1])
    stray = pd.concat([log({'o1': 1., 'o2': 1.}, generation=11, n=30, cells=CELLS[1:2]),
                       log({'o3': 0.}, generation=11, n=1, cells=CELLS[1:2])])
    alone, both, nothing = (screen(m.a, trial, recent, 12, rng('screen')) for recent in (
        known, pd.concat([known, stray]), stray))
    assert both == alone and both[0].numbers['rows'] == 24 and both[1].passed
    assert len(nothing) == 1 and nothing[0].numbers['rows'] == 1


@pytest.mark.parametrize('skill, hope', [({'o1': .5, 'o2': .5, 'o3': 1.}, True), ({'o1': .5, 'o2': .5, 'o3': .5}, True),
                                         ({'o1': 1., 'o2': 1., 'o3': 0.}, False)])
def test_the_log_leaves_hope_or_none(host, skill, hope):
    m = meeting(host, is_right=rarely_better, **SHORT)
    trial = on_probation(m)
    decision = screen(m.a, trial, log(skill, generation=11, n=24), 12, rng('screen'))[-1]
    assert decision.gate == 'log_below_threshold' and decision.passed == hope
    assert decision.numbers['estimate'] == pytest.approx(skill['o3'] - skill['o1'], abs=.1)
    calls = len(m.a.examiner.evaluations)
    look(m, trial, log(skill, generation=11, n=24), 12)
    assert len(m.a.examiner.evaluations) == calls + hope, 'without hope nothing is spent'


@pytest.mark.parametrize('dead', [['o1'], ['o2'], ['o1', 'o2']])
def test_the_dead_are_still_there_to_be_beaten(host, dead):
    "In the very generation of the birth, before any look at the child"
    m = meeting(host, is_right=rarely_better, **SHORT)
    trial = on_probation(m)
    weights, best = {id: m.population.factors(id) for id in dead}, trial.numbers()['best']
    for id in dead:
        m.a.forget(id, 10)
        m.population.death(id)
    m.a.examiner.is_right = better
    alive = [id for id in ('o1', 'o2') if id not in dead]
    decisions, outcome = look(m, trial, log(dict.fromkeys([*alive, 'o3'], 1.), generation=11))
    assert outcome == 'trial_promoted' and m.a.examiner.evaluations[-1][0] == ['child', 'o1', 'o2']
    assert all(same(trial.controls[id], f) for id, f in weights.items())
    assert decisions[-2].gate == 'low_tokens' and decisions[-2].numbers['tokens'] > 0, 'their estate is in the commons'
    assert len(decisions) == (6 if best in alive else 4)


def test_parents_are_met_as_they_are_now(host):
    m = meeting(host, is_right=rarely_better, **SHORT)
    trial = on_probation(m)
    moved(m.population, 'o1')
    look(m, trial, log({}, generation=11))
    assert same(trial.controls['o1'], m.population.factors('o1'))


def test_no_look_asks_again_what_a_test_has_counted(host, monkeypatch):
    "Neither its first pairs nor those of earlier looks; where nothing is left, nothing is asked"
    m = meeting(host, is_right=rarely_better, probation=99, cells=CELLS[:2], **SHORT)
    trial = on_probation(m)
    few, real = trial.tests['o1'].asked[:], module.fresh
    monkeypatch.setattr(module, 'fresh', lambda cells, n, rng, *, seen, **how: real(
        cells, n, stream(4, purpose='always the same'), seen=seen, **how))
    full = log({'o1': 1., 'o2': 1., 'o3': 1.}, generation=11)
    assert len(few) == 4 + 16 and look(m, trial, full)[1] == 'open', 'a canary and a look'
    counted, held = trial.tests['o1'].asked[:], dict(m.a.tokens.balances)
    assert counted[:20] == few and len(set(counted)) == len(counted) > 20
    assert counted[20:] == [t.id for t in m.a.examiner.evaluations[-1][1]]
    calls = len(m.a.examiner.evaluations)
    decisions, outcome = look(m, trial, full)       # the same draw once more
    assert outcome == 'open' and len(m.a.examiner.evaluations) == calls and m.a.tokens.balances == held
    assert trial.tests['o1'].asked == counted and decisions[-1].passed


def test_a_look_waits_for_tokens(host):
    m = meeting(host, is_right=rarely_better, **SHORT)
    trial = on_probation(m)
    m.a.tokens.spend(['o1', 'o2'], m.a.tokens.held(['o1', 'o2']) - 47, 10)
    full = log({'o1': 1., 'o2': 1., 'o3': 1.}, generation=11)
    decisions, outcome = look(m, trial, full)
    assert outcome == 'open' and (decisions[-1].gate, decisions[-1].passed) == ('low_tokens', False)
    assert decisions[-1].numbers == dict(tokens=47, least=48)
    m.a.tokens.earn('o3', 1, 11)
    assert look(m, trial, full)[0][2].passed and m.a.tokens.held(['o1', 'o2', 'o3']) == 0


def test_what_nominated_a_pair_is_no_evidence_for_it(host):
    "Questions of a recent survey are not asked again by the test, nor counted if they were; old ones may be"
    m = meeting(host, is_right=rarely_better, **SHORT)
    m.a.surveyed = {'new': 5, 'old': -5}
    test = on_probation(m).tests['o1']
    assert 'new' in test.asked and 'old' not in test.asked
    with pytest.raises(ValueError, match="got 'new'"): test.observe([1], [0], ['new'])


# --- the final test

FULL = log({'o1': 1., 'o2': 1., 'o3': 1.}, generation=11)


def test_a_child_that_was_better_and_is_worse_now_is_not_promoted(host):
    "It beats one parent, forgets, and then beats the other one: never was it better than both"
    m = meeting(host, is_right=lambda name, t, i: name in ('child', 'host') or name == 'o2' and i % 8, **SHORT)
    trial = on_probation(m)
    assert trial.tests['o1'].crossed and trial.tests['o2'].crossed is None
    moved(m.population, trial.id)
    m.a.examiner.is_right = lambda name, t, i: name == 'o1' or name == 'child' and i % 2     # half as good as o1
    decisions, outcome = look(m, trial, FULL)
    assert outcome == 'trial_expired' and m.a.levels.found == [False] and m.a.last_merge == 0
    begun, end = [d for d in decisions if d.gate in ('trial_frozen', 'trial_expired')]
    assert begun.numbers['e'] >= begun.numbers['needed'] > end.numbers['e'] and end.numbers['best'] == 'o1'
    assert end.numbers['uplift'] == -.5 and end.numbers['pairs'] == 16


def openly(host, **changes):
    "A child in the middle of its final test, which takes several generations: 16 pairs in each"
    knobs = dict(pairs=64, least_power=0., probation_after=16, futility=0., tokens=2000, uplift=.1, probation=3)
    m = meeting(host, is_right=rarely_better, **knobs | changes)
    trial = on_probation(m)
    m.a.examiner.is_right = lambda name, t, i: (i % 4 == 0 if trial.final is not None else True) and name == 'child'
    decisions, outcome = look(m, trial, FULL)
    assert outcome == 'open' and trial.final == 11 and decisions[-2].gate == 'trial_frozen'
    return m, trial


def test_both_sides_are_tested_as_they_were_when_the_final_test_began(host):
    m, trial = openly(host)
    asked, real = [], m.a.examiner.ask
    m.a.examiner.ask = lambda who, *args, **how: asked.append(who) or real(who, *args, **how)
    then = {'child': m.population.factors(trial.id), 'o1': m.population.factors('o1'), 'o2': m.population.factors('o2')}
    assert {id: t.pairs for id, t in trial.tests.items()} == {'o1': 16, 'o2': 16}
    for id in (trial.id, 'o1', 'o2'): moved(m.population, id)
    outcomes = [look(m, trial, FULL, generation)[1] for generation in (12, 13)]
    assert outcomes == ['open', 'trial_promoted'] and len(asked) == 2 and m.a.levels.found == [True]
    assert all(same(who[name], f) for who in asked for name, f in then.items())
    assert same(trial.child.factors, then['child']) and not same(m.population.factors(trial.id), then['child'])


def test_no_question_is_asked_twice_in_a_trial(host):
    "Of canary, probe, first looks, looks on probation and final test; and the tests would refuse it"
    m, trial = openly(host)
    for generation in (12, 13): look(m, trial, FULL, generation)
    names = [who for who, _, _ in m.a.examiner.evaluations]
    ids = [t.id for _, tasks, _ in m.a.examiner.evaluations for t in tasks]
    assert len(names) == 3 + 1 + 3 and len(set(ids)) == len(ids) > 4 + 8 + 5 * 14
    assert all(sorted(t.asked) == sorted(ids) for t in trial.tests.values())
    for question in ids[::9]:
        with pytest.raises(ValueError, match='each once'): trial.tests['o1'].observe([1], [0], [question])


def test_a_final_test_waits_for_tokens_and_ends_with_its_own_time(host):
    "As many generations as the probation, counted from its beginning; the pooled evidence is no discovery"
    m, trial = openly(host)
    m.a.tokens.balances = {'o1': 47}
    for generation in (12, 13):
        decisions, outcome = look(m, trial, FULL, generation)
        assert outcome == 'open' and [(d.gate, d.passed) for d in decisions] == [('low_tokens', False)]
        assert decisions[0].numbers == dict(tokens=47, least=48) and m.a.tokens.balances == {'o1': 47}
    decisions, outcome = look(m, trial, FULL, 14)
    assert outcome == 'trial_expired' and [d.gate for d in decisions] == ['low_tokens', 'trial_expired']
    assert m.a.levels.found == [False] and decisions[-1].numbers['pairs'] == 16


def test_a_final_test_begins_where_probation_would_have_ended(host):
    m = meeting(host, is_right=rarely_better, probation=3, **SHORT)
    trial = on_probation(m)
    m.a.examiner.is_right = better
    m.a.tokens.balances = {'o1': 48}
    assert look(m, trial, FULL, 13)[1] == 'open' and trial.final == 13, 'tokens for one look'
    m.a.tokens.earn('o2', 48, 14)
    assert look(m, trial, FULL, 14)[1] == 'trial_promoted' and sum(m.a.tokens.balances.values()) == 0


@pytest.mark.parametrize('futility, pairs', [(.05, 16), (0., 64)])
def test_a_final_test_that_is_lost_ends_the_trial(host, futility, pairs):
    "Given up as soon as there is no hope, or when its pairs are used up"
    m = meeting(host, is_right=rarely_better, pairs=64, least_power=0., probation_after=16, futility=0., tokens=2000,
                uplift=.1, probation=9)
    trial = on_probation(m)
    m.a.config = m.a.config.model_copy(update=dict(futility=futility, probation_after=64))
    m.a.examiner.is_right = lambda name, t, i: name == 'child' if trial.final is None else name == 'o2' or (
        name == 'child') and i % 2
    decisions, outcome = look(m, trial, FULL)
    assert outcome == 'trial_expired' and decisions[-1].numbers['pairs'] == pairs
    assert trial.tests['o2'].verdict() == ('abandon' if futility else 'exhausted') and m.a.levels.found == [False]


@pytest.mark.parametrize('dead', [['o1'], ['o1', 'o2']])
def test_parents_may_die_in_the_final_test(host, dead):
    m, trial = openly(host)
    weights = dict(trial.controls)
    for id in dead:
        m.a.forget(id, 11)
        m.population.death(id)
    assert [look(m, trial, FULL, generation)[1] for generation in (12, 13)] == ['open', 'trial_promoted']
    assert m.a.examiner.evaluations[-1][0] == ['child', 'o1', 'o2']
    assert all(same(trial.controls[id], f) for id, f in weights.items())


def test_a_child_that_dies_in_its_final_test_is_no_discovery(host):
    m, trial = openly(host)
    m.a.forget(trial.id, 12)
    assert m.a.levels.found == [False] and m.a.trials == {}


def test_a_child_that_is_merged_at_once_needs_no_second_test(host):
    made = tried(meeting(host))
    assert made.outcome == 'merged' and made.trial.final is None


def test_children_that_are_no_better_in_the_end_are_rarely_promoted(host, monkeypatch):
    "While answers are pooled they seem far better; in the final test one parent is their equal, and a coin decides"
    level, trials, promoted, ids = .2, 200, 0, iter(range(10**6))
    draw, m = np.random.default_rng(0), meeting(host, is_right=rarely_better, probation=9, **SHORT)
    trial = on_probation(m)
    monkeypatch.setattr(module, 'screen', lambda *args: [])
    monkeypatch.setattr(module, 'fresh', lambda cells, n, rng, **how: [
        SimpleNamespace(id=f'question {next(ids)}', family='math') for _ in range(n)])
    m.a.config = m.a.config.model_copy(update=dict(pairs=64, futility=0.))
    m.a.examiner.is_right = lambda name, t, i: name == 'child' if trial.final is None else name != 'o1' and (
        draw.random() < .5)
    for _ in range(trials):
        m.a.levels, m.a.tokens.balances = ELond(), {'o1': 999}
        trial.gate, trial.level, trial.final = m.a.levels.open()[0], level, None
        m.a.levels.levels = [level]
        trial.tests = {id: PairedTest(level, most=16, least=16) for id in ('o1', 'o2')}
        found = look(m, trial, FULL)[1]
        assert found != 'open' and m.a.levels.found == [found == 'trial_promoted']
        promoted += found == 'trial_promoted'
    assert 0 < promoted <= level * trials, 'a true null is promoted at its level at most'
