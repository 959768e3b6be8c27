"""Rivals in a world that changes: a life goes on bit for bit, and a study counts what came in its second half."""
import json
from collections import Counter

import numpy as np
import pytest
import torch

from evolora.ecology.config import changed_config, load_config
from evolora.ecology.memory import with_examples
from evolora.ecology.parts import Graded
from evolora.evaluation.routing import believed_router
from evolora.evaluation.world_exam import exam_in_world
from evolora.experiments.baselines import CONDITIONS, Life, train
from evolora.experiments.study_cell import make_cell
from evolora.experiments.study_plan import Cell, checked_plan
from evolora.experiments.study_results import Results, checked_cell
from evolora.experiments.world_arms import ARMS, begun
from evolora.host.model import tiny_host
from evolora.organelles.learning_rules import credit
from evolora.organelles.lessons import Lesson
from evolora.organelles.scoring import score
from evolora.organelles.updates import kl_from_host
from evolora.utils.randomness import stream
from scripted import chance_decides, same

SMALL = {'cells': ['string.sort:1', 'word.count:1'], 'max_new_tokens': 4, 'world': {'worlds': 2, 'period': 2},
         'market': {'questions': 4, 'round': 2}, 'curriculum': {'copies': 2}}


@pytest.fixture(scope='module')
def host(): return tiny_host()


@pytest.fixture
def chance(monkeypatch):
    monkeypatch.setattr('evolora.tasks.forms.Form.grade', lambda _, task, text: chance_decides(task, text))


def brief(name, **knobs):
    condition = CONDITIONS[name]
    return condition.model_copy(update={'preset': 'worlds', 'changes': SMALL | condition.changes | {
        'market': SMALL['market'] | condition.changes.get('market', {})} | ({'serving': knobs} if knobs else {})})


# The tiny host's maps are too thin for the ranks of `wide`, which is `one` but for its rank.
NAMES = [name for name in ARMS if name != 'wide']


# The same after a fall was found, after the adapters were frozen, and in the other way to choose a gain.
TURNS = [('reset', dict(threshold=.1, slack=0.)), ('reptile', dict(threshold=.1, slack=0.)),
         ('changepoint', dict(threshold=.1, slack=0.)), ('changepoint', dict(threshold=.1, slack=0., pooled=True)),
         ('bandit_frozen', dict(train_generations=1)), ('bandit_frozen', dict(train_generations=3, pooled=True)),
         ('halving', dict(rung=1))]


@pytest.mark.parametrize('name, knobs', [*((name, {}) for name in NAMES), *TURNS])
def test_a_life_that_was_stopped_goes_on_as_it_would_have(host, chance, tmp_path, name, knobs):
    whole, part = Life(host, brief(name, **knobs), seed=2), Life(host, brief(name, **knobs), seed=2)
    for _ in range(5): whole.update()
    for _ in range(2): part.update()
    part.save(tmp_path)
    if 'threshold' in knobs:
        found = [getattr(x.ecology.serving, 'changes' if name == 'changepoint' else 'resets') for x in (part, whole)]
        assert 0 < found[0] < found[1]      # a fall was found on both sides of the stop
    again = Life(host, brief(name, **knobs), seed=2)
    again.load(tmp_path)
    for _ in range(3): again.update()
    assert again.served == whole.served and again.spent.gflops == whole.spent.gflops
    assert again.ecology.serving.state() == whole.ecology.serving.state()
    assert again.ecology.market.state() == whole.ecology.market.state()
    assert again.population.weights_hash() == whole.population.weights_hash()


def test_all_arms_meet_the_same_questions_as_often(host, chance):
    asked = {}
    for name in NAMES:
        ecology = begun(host, name, changed_config(load_config('worlds'), SMALL), seed=2)
        asked[name] = [e['task'] for _ in range(3) for e in ecology.step().episodes]
    assert all(tasks == asked['one'] for tasks in asked.values())


def answered(right, family='string.sort', organelle='o1'):
    return Graded(family, 'Sort the letters: cab', [3, 1], right, organelle, .9, 'abc')


def test_a_detector_replaces_the_adapter_once_its_rewards_have_fallen(host, chance):
    ecology = begun(host, 'reset', changed_config(load_config('worlds'), SMALL), seed=2, threshold=3.)
    ecology.serving.settle([answered(True)] * 30)
    assert ecology.population.ids == ['o1'] and ecology.serving.resets == 0
    ecology.serving.settle([answered(False)] * 8)
    assert ecology.population.ids == ['o2'] and ecology.serving.resets == 1
    ecology.serving.settle([answered(False, organelle='o2')] * 20)      # never right: nothing has fallen
    assert ecology.population.ids == ['o2']
    ecology.serving.settle([answered(False, organelle='o2')] * 60)      # but at last it is below the floor
    assert ecology.population.ids == ['o3']


def test_a_bank_comes_to_ask_whoever_is_right(host, chance):
    for name, knobs in (('thompson', {}), ('gradient', {}), ('thompson', dict(pooled=True)), ('changepoint', {})):
        ecology = begun(host, name, changed_config(load_config('worlds'), SMALL), seed=2, **knobs)
        task, rng = ecology.put([(next(iter(ecology.cells.values())), 0)])[0], np.random.default_rng(0)
        for _ in range(200):
            who = ecology.serving.choose(task, 0, rng)
            ecology.serving.settle([answered(who == 'o3', task.family, who)])
        assert [ecology.serving.choose(task, 0, rng) for _ in range(20)].count('o3') > 15


def test_the_latest_right_answer_stands_in_front_of_the_question(host, chance):
    ecology = begun(host, 'context', changed_config(load_config('worlds'), SMALL), seed=2)
    task = ecology.put([(next(iter(ecology.cells.values())), 0)])[0]
    bare, = ecology.serving.prompts([task])
    ecology.serving.remember([answered(True, task.family), answered(False, task.family)])
    shown, = ecology.serving.examples([task], ['o1'], [0])
    assert with_examples(bare, shown) == ('Sort the letters: cab', 'abc', bare)


def test_a_bandit_takes_its_exam_with_whom_it_found_best(host, chance):
    ecology = begun(host, 'thompson', changed_config(load_config('worlds'), SMALL), seed=2, pooled=True)
    ecology.serving.settle([answered(who == 'o4', 'word.count', who) for who in ecology.population.ids for _ in '1234'])
    assert believed_router(ecology).table == {'string.sort': 'o4', 'word.count': 'o4'}


def test_without_selection_all_answer_alike_and_no_stake_moves(host, chance):
    ecology = begun(host, 'even', changed_config(load_config('worlds'), SMALL), seed=2)
    records = [ecology.step() for _ in range(12)]
    asked = Counter(e['organelle'] for r in records for e in r.episodes)
    assert set(asked) == {*ecology.population.ids} and max(asked.values()) < 4 * min(asked.values())
    assert len({round(x, 12) for x in ecology.market.balances.values()}) == 1
    assert all(ecology.plasticity.updates[o.slot] for o in ecology.population)
    assert len({f'{believed_router(ecology).table}' for _ in range(3) if ecology.step()}) > 1   # drawn, not the first


def test_halving_keeps_whoever_was_right_more_often(host, chance):
    ecology = begun(host, 'halving', changed_config(load_config('worlds'), SMALL), seed=2, rung=2)
    serving, alive = ecology.serving, []
    for generation in range(8):
        ecology.generation = generation
        ids = ecology.population.ids
        serving.settle([answered(int(who[1:]) > i, organelle=who) for who in ids for i in range(7)])
        alive.append([*ecology.population.ids])
    assert [len(ids) for ids in alive] == [6, 6, 3, 3, 2, 2, 1, 1] and alive[-1] == ['o6']
    assert serving.leader('word.count') == 'o6' and set(alive[2]) == {'o4', 'o5', 'o6'}


def test_just_after_a_halving_whoever_was_best_before_it_leads(host, chance):
    ecology = begun(host, 'halving', changed_config(load_config('worlds'), SMALL), seed=2, rung=1)
    serving = ecology.serving
    for generation in range(2):
        ecology.generation = generation
        serving.settle([answered(int(who[1:]) > i, organelle=who) for who in ecology.population.ids for i in range(7)])
    serving.right = {}
    assert serving.leader('word.count') == 'o6'


def test_a_bank_by_chances_is_led_by_one_that_was_asked(host, chance):
    ecology = begun(host, 'thompson', changed_config(load_config('worlds'), SMALL), seed=2, discount=1.)
    ecology.serving.settle([answered(i < 40, organelle='o2', family='word.count') for i in range(100)])
    assert ecology.serving.leader('word.count') == 'o2'         # 40 of 100, and of the others nothing is known


@pytest.mark.parametrize('name, verdicts', [('halving', 4), ('thompson', 4), ('reset', 1), ('ecology', 1)])
def test_who_goes_by_own_rewards_sees_those_of_every_answer(host, chance, monkeypatch, name, verdicts):
    config = changed_config(load_config('worlds'), SMALL | {'curriculum': {'copies': 4}})
    ecology, seen = begun(host, name, config, seed=2), []
    settle = ecology.serving.settle
    monkeypatch.setattr(ecology.serving, 'settle', lambda answers: seen.extend(answers) or settle(answers))
    ecology.step()
    assert len(seen) == verdicts * ecology.config.market.questions


# --- the four that know what the ecology knows of changes

def small(host, name, changes=None, **knobs):
    return begun(host, name, changed_config(load_config('worlds'), SMALL), seed=2, changes=changes, **knobs)


def scattered(ecology, id, seed=0):
    "Other weights for an organelle"
    rng = stream(seed, purpose='scattered')
    drawn = {n: tuple(torch.from_numpy(rng.standard_normal(x.shape) * .1).float() for x in AB)
             for n, AB in ecology.population.factors(id).items()}
    ecology.population.write(id, drawn)
    return drawn


def test_reptile_begins_anew_at_a_start_that_has_moved_a_part_of_the_way(host, chance):
    ecology = small(host, 'reptile', threshold=3., step=.25)
    population, serving = ecology.population, ecology.serving
    start, one = population.ids
    assert same(population.factors(start), population.factors(one)) and population.is_noop(one)
    begin, fell = population.factors(start), scattered(ecology, one)
    ecology.plasticity.updates[population[one].slot] = 7
    serving.settle([answered(True, organelle=one)] * 30)
    assert population.ids == [start, one] and same(population.factors(start), begin)
    serving.settle([answered(False, organelle=one)] * 8)
    assert serving.resets == 1 and len(population) == 2 and one not in population
    new = population.ids[-1]
    for n, AB in population.factors(start).items():
        for x, was, far in zip(AB, begin[n], fell[n]): assert torch.allclose(x, .75 * was + .25 * far) and x.any()
    assert same(population.factors(start), population.factors(new)) and ecology.plasticity.updates[
        population[new].slot] == 0
    assert same(ecology.demography.births[new], population.factors(new))
    assert serving.choose(None, 0, None) == new and serving.learns(None, 0, new) and not serving.learns(None, 0, one)


def test_the_start_of_reptile_neither_answers_nor_learns(host, chance):
    ecology = small(host, 'reptile')
    start, one = ecology.population.ids
    before = ecology.population.factors(start)
    found = [e['organelle'] for _ in range(3) for e in ecology.step().episodes]
    assert {*found} == {one} and not ecology.population.is_noop(one)
    assert same(ecology.population.factors(start), before)


def test_a_fall_makes_a_bandit_forget_one_family_at_once(host):
    ecology = small(host, 'changepoint', threshold=3.)
    serving = ecology.serving
    serving.settle([answered(True), answered(True, 'word.count')] * 20)
    assert serving.counts['string.sort']['o1'] == [20., 0.] and serving.changes == 0       # nothing fades
    serving.settle([answered(False)] * 6)
    assert serving.counts['string.sort']['o1'] == [20., 6.] and serving.changes == 0
    serving.settle([answered(False)])
    assert serving.changes == 1 and 'string.sort' not in serving.counts and 'string.sort' not in serving.detectors
    assert serving.counts['word.count']['o1'] == [20., 0.]
    serving.settle([answered(False)] * 30)      # never right since: nothing has fallen
    assert serving.changes == 1


def test_what_falls_is_measured_against_the_own_mean_of_whoever_answers(host):
    ecology = small(host, 'changepoint', threshold=3.)
    ecology.serving.settle([answered(True)] * 20 + [answered(False, organelle='o2')] * 20)     # o2 was never better
    assert ecology.serving.changes == 0
    ecology.serving.settle([answered(False)] * 7)
    assert ecology.serving.changes == 1


def test_families_can_be_forgotten_together(host):
    ecology = small(host, 'changepoint', threshold=3., pooled=True)
    ecology.serving.settle([answered(True), answered(True, 'word.count')] * 20)
    assert ecology.serving.counts['']['o1'] == [40., 0.]
    ecology.serving.settle([answered(False), answered(False, 'word.count')] * 3)
    assert ecology.serving.changes == 1 and ecology.serving.counts['']['o1'] == [0., 1.]


def test_adapters_that_were_told_their_world_are_frozen_and_then_chosen(host, chance):
    ecology = small(host, 'bandit_frozen', train_generations=4)
    population, serving = ecology.population, ecology.serving
    found = [{e['organelle'] for e in ecology.step().episodes} for _ in range(4)]
    assert found == [{'o2'}, {'o2'}, {'o3'}, {'o3'}] and serving.of == {'0': 'o2', '1': 'o3'}     # a period is two
    assert serving.counts == {}
    assert not any(population.is_noop(id) for id in ('o2', 'o3')) and population.is_noop('o1')
    weights = population.weights_hash()
    later = [ecology.step() for _ in range(4)]
    assert population.weights_hash() == weights and all(r.row['gflops']['learn'] == 0 for r in later)
    assert {e['organelle'] for r in later for e in r.episodes} == {'o1', 'o2', 'o3'}       # the host is one of them
    assert {*serving.counts['word.count']} == {'o1', 'o2', 'o3'}
    task, rng = ecology.put([(next(iter(ecology.cells.values())), 0)])[0], np.random.default_rng(0)
    for _ in range(200):
        who = serving.choose(task, 0, rng)
        serving.settle([answered(who == 'o1', task.family, who)])
    assert [serving.choose(task, 0, rng) for _ in range(20)].count('o1') > 15


def test_with_more_worlds_than_seats_some_share_one(host, chance):
    ecology = small(host, 'bandit_frozen', {'founders': 2, 'world': {'worlds': 2, 'period': 1}})
    for _ in range(3): ecology.step()
    assert ecology.serving.of == {'0': 'o2', '1': 'o2'}


def copied(population, gains=(1., -1., .5, 0.)):
    "Whether all organelles are the first one under their gains"
    one = population.factors('o1')
    return all(same(population.factors(id), {n: (A, gain * B) for n, (A, B) in one.items()})
               for id, gain in zip(population.ids, gains))


LESSON = ['Sort the letters: cab'], [[97, 98, 99]]


def likelihoods(ecology): return score(ecology.population, *LESSON, [*ecology.population.ids, None]).logprobs[0]


def test_under_a_gain_a_reward_moves_the_one_adapter_the_right_way(host):
    for who, order in (('o1', [0, 2, 3, 1]), ('o2', [1, 3, 2, 0]), ('o4', [0, 2, 3, 1])):       # gains 1, -1, .5, 0
        ecology = small(host, 'gains', {'plasticity': {'warmup': 0, 'learning_rate': .005}})
        assert copied(ecology.population)
        for i in range(6):
            table = ecology.plasticity.learn(Lesson(*LESSON, [who], [1.]), rng=stream(i))
            assert copied(ecology.population) and (table.step > 0).all() and (table.gflops > 0).all()
        found = likelihoods(ecology)
        assert np.argsort(-found[:4]).tolist() == order and found[3] == pytest.approx(found[4])
        assert ecology.plasticity.updates.tolist()[:4] == [6, 0, 0, 0]


def test_the_direction_is_the_gradient_of_what_was_answered_under_all_gains(host):
    ecology = small(host, 'gains', {'plasticity': {'warmup': 0, 'beta1': 0., 'probe': 0.}})
    scattered(ecology, 'o1')
    ecology.plasticity.copy()
    rows = Lesson(LESSON[0] * 4, [[97, 98, 99], [98, 97], [99, 98], [98, 98]], ['o1', 'o2', 'o2', 'o3'],
                  [1., -1., .5, 2.])
    population, factors, by_hand = ecology.population, ecology.population.factors('o1'), {}
    for id, gain, n in (('o1', 1., 1), ('o2', -1., 2), ('o3', .5, 1)):
        own = credit(population, rows.take([i for i, who in enumerate(rows.organelles) if who == id]))
        for name in factors:
            A, B = by_hand.get(name, (0., 0.))
            by_hand[name] = A + n / 4 * own.A[name][0], B + n / 4 * gain * own.B[name][0]
    ecology.plasticity.learn(rows, rng=stream(0))
    slot = population['o1'].slot
    for name, (A, B) in by_hand.items():        # with beta1 zero the first moment is the direction
        assert torch.allclose(ecology.plasticity.first['A'][name][slot], A, atol=1e-7)
        assert torch.allclose(ecology.plasticity.first['B'][name][slot], B, atol=1e-7)


def test_all_gains_are_held_where_the_furthest_is(host):
    ecology = small(host, 'gains', {'plasticity': {'warmup': 0, 'kl_max': 1e-4, 'probe': 1.}})
    for i in range(3):
        table = ecology.plasticity.learn(Lesson(*LESSON, ['o2'], [1.]), rng=stream(i))
        assert copied(ecology.population)
    assert table.kl_scale['o2'] < 1 and kl_from_host(ecology.population, Lesson(*LESSON, ['o1'], [1.]))['o1'] < 1e-3


def test_a_gain_is_chosen_by_what_it_would_have_given(host):
    ecology = small(host, 'gains', {'plasticity': {'warmup': 0}})
    for i in range(6): ecology.plasticity.learn(Lesson(*LESSON, ['o2'], [1.]), rng=stream(i))
    task = ecology.put([(ecology.cells['string.sort:1'], 0)])[0]
    one = Graded(task.family, LESSON[0][0], LESSON[1][0], True, 'o1', float(np.exp(likelihoods(ecology)[0])), 'abc')
    assert ecology.serving.choose(task, 0, None) == 'o1'
    bills = [ecology.serving.settle([one]).bill for _ in range(10)]
    assert ecology.serving.choose(task, 0, None) == 'o2' and bills[0].gflops > 0
    other = ecology.put([(ecology.cells['word.count:1'], 0)])[0]
    assert ecology.serving.choose(other, 0, None) == 'o1'      # of this family nothing was said


def test_a_gain_is_heard_in_the_answer(host, chance):
    ecology = small(host, 'gains', {'market': {'contest': 0.}})
    scattered(ecology, 'o1')
    ecology.plasticity.copy()
    ids = ecology.population.ids
    shown = ecology.population.logits(torch.tensor([[97, 98, 99]] * 5), organelles=[*ids, None])
    assert torch.allclose(shown[3], shown[4]) and all(not torch.allclose(shown[i], shown[4]) for i in range(3))
    asked = [e['organelle'] for _ in range(3) for e in ecology.step().episodes]
    assert len({*asked}) > 2 and copied(ecology.population)


@pytest.mark.parametrize('name, changes, knobs, line', [
    ('halving', {}, {'rung': 0}, 'rung expected 1 generation'),
    ('gains', {}, {'gains': (1., -1.)}, 'one for each of 4 founders'),
    ('gains', {}, {'gains': (-1., 1., .5, 0.)}, 'the first of them 1'),
    ('bandit_frozen', {}, {'train_generations': 0}, 'train_generations above 0'),
    ('bandit_frozen', {'founders': 1}, {}, '2 founders or more'),
    ('reptile', {}, {'outer': 1.}, "reptile expected knobs out of threshold, slack, step, floor, patience, got"),
    ('halving', {}, {'rung': 'four'}, 'rung expected something like 4, got .four'),
    ('halving', {}, {'rung': True}, 'rung expected something like 4'), ('ecology', {}, {'rung': 4}, "serving out of"),
    ('thompson', {}, {'discount': 7.}, 'discount expected above 0'),
    ('search', {}, {'mutants': 4}, '8 mutants or more'),
    ('search', {}, {'size': 0}, 'a size above 0')])
def test_knobs_that_make_no_sense_are_refused(host, name, changes, knobs, line):
    with pytest.raises(ValueError, match=line): small(host, name, changes, **knobs)


# --- in a study

def plan(**changes):
    return checked_plan({
        'name': 'small', 'question': 'Is it counted?', 'worlds': [{'name': 'w', 'preset': 'worlds', 'changes': SMALL}],
        'conditions': [{'name': name, 'generations': 4} for name in ('ecology', 'one')], 'seeds': 1,
        'measured': {'served': True}, 'comparisons': [{'of': 'ecology', 'against': ['one']}]} | changes)


def test_the_second_half_of_a_life_is_the_exam(host, chance, monkeypatch):
    monkeypatch.setattr('evolora.experiments.study_cell.host_of', lambda plan, cell: host)
    announced = plan()
    cells = [checked_cell(json.loads(json.dumps(make_cell(announced, Cell(name, 1, 'tiny', 1000., 'w'), {}))))
             for name in ('ecology', 'one')]
    results = Results(cells)
    life = Life(host, announced.variant('one').condition(announced.worlds[0]), seed=1)
    for _ in range(4): life.update()
    by_hand = [x for family in ('string.sort', 'word.count') for _, row in life.served[2:] for f, x in row
               if f == family]
    assert results.right('one', ('id',)).tolist() == [by_hand] and len(by_hand) == 8
    whole = [x for family in ('string.sort', 'word.count') for _, row in life.served for f, x in row if f == family]
    assert results.exact and results.right('one', ('id',), 'whole').tolist() == [whole] and len(whole) == 16
    assert np.mean(whole) == pytest.approx(np.mean([right for _, right in cells[1]['curve']]), abs=1e-3)
    assert [len(c['curve']) for c in cells] == [4, 4] and cells[1]['curve'][-1][0] == round(cells[1]['gflops'], 3)


def test_what_is_remembered_is_measured_and_changes_nothing_else(host, chance, monkeypatch):
    monkeypatch.setattr('evolora.experiments.study_cell.host_of', lambda plan, cell: host)
    monkeypatch.setattr('evolora.experiments.study_cell.exam_in_world', lambda ecology, world, seed: exam_in_world(
        ecology, world, (0, 1), questions=8, seed=seed))
    made = {also: make_cell(plan(measured={'served': True, 'also': list(also)}), Cell('ecology', 1, 'tiny', 1000., 'w'),
                            {}) for also in ((), ('memory',))}
    remembered = checked_cell(made['memory',]).pop('memory')
    assert [row[:2] for row in remembered] == [[0, 0], [0, 1], [1, 0], [1, 1]]
    assert all(0 <= right <= 1 for _, _, right in remembered)
    for cell in made.values(): cell['hashes'].pop('questions')
    assert made['memory',] == made[()]


def test_an_arm_that_cannot_be_put_back_is_not_asked_what_it_remembers(host, chance, monkeypatch):
    monkeypatch.setattr('evolora.experiments.study_cell.host_of', lambda plan, cell: host)
    announced = plan(conditions=[{'name': 'reset', 'generations': 2}], comparisons=[],
                     measured={'served': True, 'also': ['memory']})
    assert make_cell(announced, Cell('reset', 1, 'tiny', 1000., 'w'), {})['memory'] == []


def test_memory_is_measured_of_those_that_are_served():
    with pytest.raises(ValueError, match='memory expected served: true, got false'): plan(measured={'also': ['memory']})


def test_only_lives_can_be_served():
    with pytest.raises(ValueError, match='expected conditions that live.* got frozen'):
        plan(conditions=['frozen', {'name': 'ecology', 'generations': 4}], comparisons=[])


def test_a_trained_market_is_its_own_router(host, chance):
    made = train(host, brief('ecology'), generations=6, seed=2)
    assert len(made.population) > 1 and made.spent.choose == 0
    market = made.learner.ecology.market
    assert made.routers['family'].table == {f: market.leader(f) for f in market.families}


def test_an_arm_with_memory_has_settings_to_choose_though_nothing_is_trained():
    found = {name: (CONDITIONS[name].learns, CONDITIONS[name].tunable) for name in (
        'bare', 'bare_memory', 'contexts', 'one', 'one_memory')}
    assert found == {'bare': (False, False), 'bare_memory': (False, True), 'contexts': (False, True),
                     'one': (True, True), 'one_memory': (True, True)}
