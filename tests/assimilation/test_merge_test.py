"""A merged child beside the pair that it would replace: the test, the candidates, and what it costs."""
import json
import math
from dataclasses import replace as changed

import numpy as np
import pytest
import torch
from scripted import chance_decides

from evolora.assimilation.examiner import Examiner
from evolora.assimilation.gates import GATES, Gate, explain, register_gate, replay, tally, turn
from evolora.assimilation.merge_test import Candidate, MergeConfig, Merging, Trials, candidates, pairs_of
from evolora.ecology.checkpoint_files import read_checkpoint, write_checkpoint
from evolora.ecology.config import changed_config, load_config
from evolora.ecology.ecology import Ecology
from evolora.host.model import tiny_host
from evolora.organelles.population import Population
from evolora.organelles.scoring import score
from evolora.tasks.families import Cell
from evolora.utils.randomness import stream

CELLS = ('string.sort:1', 'word.count:1')
LEADERS = {'string.sort': 'o1', 'word.count': 'o2'}


@pytest.fixture(scope='module')
def host(): return tiny_host()


@pytest.fixture
def population(host):
    found = Population(host, capacity=4, max_rank=4)
    for seed in (0, 1, 2):
        rng = stream(seed, purpose='test')
        draw = lambda *shape: torch.from_numpy(rng.standard_normal(shape)).float()
        found.birth({n: (draw(2, d_in) * 3, draw(d_out, 2)) for n, (d_out, d_in) in found.shapes.items()})
    return found


@pytest.fixture
def chance(monkeypatch):
    monkeypatch.setattr('evolora.tasks.forms.Form.grade', lambda _, task, text: chance_decides(task, text))


def merging(population, **changes):
    config = MergeConfig(**{'share': 1., 'weights': [.5], 'least': 8, 'look': 24, 'lag': 1.} | changes)
    return Merging(config, population, [Cell.parse(c) for c in CELLS], Examiner(population, max_new_tokens=4))


def known(population, id='o1'):
    made = population.generate(['1+1'] * 3, [id] * 3, max_new_tokens=2, seeds=[1, 2, 3])
    return [(f, '1+1', tokens) for f in LEADERS for tokens in made.tokens]


def step(m, leaders=LEADERS, rows=None, generation=0, **how):
    return m.step(leaders, known(m.population) if rows is None else rows, generation,
                  **{'spent': 1e3, 'answer': 1e-3, 'rng': lambda purpose: stream(0, purpose=purpose)} | how)


# --- the test

@pytest.mark.parametrize('behind, most', [(.1, .05), (.2, .005)])
def test_a_child_that_is_behind_by_the_margin_seldom_passes(behind, most):
    rng, passed = stream(0, purpose='test'), 0
    for _ in range(400):
        trials = Trials(['f'], .05, .1)
        while trials.open and len(trials.differences['f']) < 240:
            leader = rng.random(24) < .7
            trials.observe('f', leader & (rng.random(24) < 1 - behind / .7), leader)
        passed += trials.equal('f')
    assert passed / 400 <= most + 2 * math.sqrt(most * (1 - most) / 400)


def test_it_is_over_as_soon_as_the_child_is_worse_in_one_family():
    trials = Trials(['a', 'b'], .05, .1)
    trials.observe('a', [False] * 40, [True] * 40)
    assert trials.worse('a') and not trials.equal('a') and trials.open == []


def test_it_goes_on_only_where_nothing_is_shown():
    trials = Trials(['a', 'b'], .05, .1)
    trials.observe('a', [True] * 200, [True] * 200)
    assert trials.equal('a') and trials.open == ['b'] and trials.numbers['family'] == 'b' and trials.numbers['e'] == 1.


def test_what_was_shown_once_stays_shown():
    trials = Trials(['a'], .05, .1)
    trials.observe('a', [True] * 100, [True] * 100)
    before = trials.e('a')
    trials.observe('a', [False] * 3, [True] * 3)
    assert trials.e('a') == before


# --- candidates

def test_pairs_lead_different_families():
    assert pairs_of({'a': 'o1', 'b': 'o2', 'c': 'o1', 'd': 'o3'}) == [('o1', 'o2'), ('o1', 'o3'), ('o2', 'o3')]
    assert pairs_of({'a': 'o1', 'b': 'o1'}) == [] == pairs_of({})


def test_the_child_of_an_organelle_and_itself_lags_nowhere_and_all_that_was_used_is_billed(population):
    scratch = Population(population.host, capacity=2, max_rank=4)
    rows = known(population)
    leaders = {'string.sort': 'o1', 'word.count': 'o1'}
    found, gflops, alone = candidates(population, scratch, [('o1', 'o1')], leaders, rows, [.3, .5, .7])
    assert [c.lag for c in found] == pytest.approx([0.] * 3, abs=1e-6) and 0 < gflops <= alone
    assert not len(scratch) and [c.energy_kept for c in found] == pytest.approx([1.] * 3)


def test_the_most_promising_comes_first_and_unknown_families_promise_nothing(population):
    scratch = Population(population.host, capacity=8, max_rank=4)
    found, *_ = candidates(population, scratch, [('o1', 'o2'), ('o2', 'o3')],
                           LEADERS | {'math': 'o3'}, known(population), [.2, .5, .8])
    assert len(found) == 6 and [c.lag for c in found] == sorted(c.lag for c in found)
    rows = [('math', '1+1', [1]), ('math', '2+2', [2, 3])]      # of the family x, where o2 leads, nothing is known
    alone, *_ = candidates(population, scratch, [('o2', 'o3')], {'math': 'o3', 'x': 'o2'}, rows, [.5])
    child, (_, prompts, tokens) = scratch.birth(alone[0].factors).id, zip(*rows)
    mean = lambda who, id: score(who, [*prompts], [*tokens], [id]).likelihoods.mean()
    assert alone[0].lag == pytest.approx(mean(population, 'o3') - mean(scratch, child), abs=1e-6) != 0
    scratch.death(child)
    for rows in ([], [('math', '1+1', [1])]):   # and of this pair nothing is
        assert candidates(population, scratch, [('o1', 'o2')], LEADERS | {'math': 'o3'}, rows, [.5]) == ([], 0., 0.)


# --- one attempt

def rows_of(decisions): return [json.loads(json.dumps(vars(d))) for d in turn(decisions)]


@pytest.mark.parametrize('leaders, changes, how, gate', [
    ({'string.sort': 'o1', 'word.count': 'o1'}, {}, {}, 'no_pair'), (LEADERS, {'share': 1e-9}, {}, 'low_compute'),
    (LEADERS, {'lag': 0.}, {}, 'child_unlikely'), (LEADERS, {}, {'rows': []}, 'child_unlikely')])
def test_each_gate_can_stop_it(population, leaders, changes, how, gate):
    found = step(merging(population, **changes), leaders, **how)
    assert found.decisions[-1].gate == gate and not found.decisions[-1].passed and found.child is None
    assert [d.gate for d in found.decisions] == [*GATES][:[*GATES].index(gate) + 1], 'in the order of their price'
    assert tally(turn(found.decisions)) == {gate: 1} and replay(rows_of(found.decisions)) == []


def test_without_a_share_nothing_is_done(population):
    assert step(merging(population, share=0.)) == ([], None, {})


def test_a_child_that_is_never_behind_passes_and_what_it_cost_is_taken_from_the_purse(population):
    m = merging(population)                     # no answer is ever right on this host
    found = step(m)
    assert isinstance(found.child, Candidate) and [d.passed for d in found.decisions] == [True] * 4
    assert found.numbers['e'] >= found.numbers['needed'] == 1 / m.levels.levels[0] and m.levels.discoveries == 1
    bill = m.examiner.settle()
    assert m.purse == pytest.approx(1e3 - bill['gflops']) and bill['answers'] == 2 * found.numbers['pairs']


def test_a_child_that_is_behind_does_not_pass(population, monkeypatch):
    m = merging(population)
    monkeypatch.setattr(m.examiner, 'ask', lambda who, tasks, seed_for, **how: {
        'child': np.zeros(len(tasks), bool), 'leader': np.arange(len(tasks)) % 2 == 0})
    found = step(m)
    assert found.child is None and found.decisions[-1].gate == 'not_shown_equal' and m.levels.found == [False]
    assert found.numbers['pairs'] <= 96                                     # it is seen soon


def test_no_question_is_asked_twice_and_both_answer_greedily(population, monkeypatch):
    m, asked = merging(population), []
    def ask(who, tasks, seed_for, **how):
        assert list(who) == ['child', 'leader'] and how == {'temperature': 0.}
        asked.extend(t.id for t in tasks)
        return {'child': np.zeros(len(tasks), bool), 'leader': np.zeros(len(tasks), bool)}
    monkeypatch.setattr(m.examiner, 'ask', ask)
    assert step(m).child and len(set(asked)) == len(asked) > 100


def test_each_family_is_asked_about_beside_its_leader(population, monkeypatch):
    m, beside = merging(population), set()
    def ask(who, tasks, seed_for, **how):
        for id in LEADERS.values():
            if all(a.equal(b) for n, two in population.factors(id).items() for a, b in zip(who['leader'][n], two)):
                beside.update((t.family, id) for t in tasks)
        return {'child': np.ones(len(tasks), bool), 'leader': np.zeros(len(tasks), bool)}
    monkeypatch.setattr(m.examiner, 'ask', ask)
    assert step(m).child.parents == ('o1', 'o2') and beside == set(LEADERS.items())


def test_the_child_of_two_others_is_noted_as_theirs(population):
    "The pairs of the nominee were tried lately: the turn is its own, the child is not"
    m = merging(population)
    m.cells.append(Cell.parse('math:1'))
    m.tried = {('o1', 'o2'): 0, ('o1', 'o3'): 0}
    found = step(m, LEADERS | {'math': 'o3'}, [('math', *row[1:]) for row in known(population)], generation=1)
    assert found.child.parents == found.decisions[-1].parents == ('o2', 'o3')
    assert {d.organelle for d in found.decisions} == {'o1'} and found.decisions[-1].partners == ('o2', 'o3')
    assert explain(found.decisions, 'o3').count('child of o2 and o3') == 1


def test_a_pair_waits_before_it_is_tried_again(population):
    m = merging(population, wait=3)
    step(m)
    gates = [step(m, generation=g).decisions[-1].gate for g in (1, 2, 3)]
    assert gates[:2] == ['no_pair'] * 2 and gates[2] != 'no_pair'


def test_the_dead_are_forgotten(population):
    m = merging(population)
    step(m)
    population.death('o1')
    step(m, {'string.sort': 'o2', 'word.count': 'o2'}, rows=[])
    assert m.tried == {}


def test_its_state_is_plain_and_comes_back(population):
    m = merging(population)
    step(m)
    again = merging(population)
    again.restore(m.state())
    assert again.state() == m.state() and again.levels.level == m.levels.level


@pytest.mark.parametrize('changes', [{'share': 2.}, {'margin': 0.}, {'weights': []}, {'weights': [.5, .5]},
                                     {'weights': [1.]}, {'weights': [-3.]},
                                     {'least': 128, 'most': 2}, {'alpha': 1.}, {'least': 1},
                                     {'gates': ['no_pair']}, {'gates': ['unheard_of']}])
def test_settings_that_make_no_sense_are_refused(changes):
    with pytest.raises(ValueError): MergeConfig(**changes)


# --- gates of one's own

OWN = Gate('broad', 'has it room for two?', 'rank', '>=', 'wanted', 'has rank {rank}, {wanted} expected',
           lambda merging, nominee, leaders: dict(rank=merging.population[nominee].rank,
                                                  wanted=len({*leaders.values()})))


@pytest.fixture
def own():
    "Whatever a test registers is gone after it"
    yield register_gate(OWN)
    for name in [*GATES.own]: del GATES[name], GATES.own[name]


def test_it_stops_a_merge_before_any_compute_and_is_counted_explained_and_replayed(population, own):
    register_gate(changed(OWN, measure=lambda merging, nominee, leaders: dict(rank=2, wanted=3)), replace=True)
    m = merging(population, gates=['broad'])
    found = step(m)
    assert [d.gate for d in found.decisions] == ['no_pair', 'broad'] and found.child is None
    assert m.purse == 1e3 and m.tried == {} and m.examiner.settle()['answers'] == 0
    assert tally(turn(found.decisions)) == {'broad': 1} and replay(rows_of(found.decisions)) == []
    assert explain(found.decisions, 'o1').endswith('NO, broad (broad): o1 has rank 2, 3 expected')


def test_one_that_opens_changes_nothing_else(population, own):
    usual, found = step(merging(population)), step(merging(population, gates=['broad']))        # rank 2, two leaders
    assert [d.gate for d in found.decisions][:2] == ['no_pair', 'broad'] and found.decisions[1].passed
    assert [d for d in found.decisions if d.gate != 'broad'] == usual.decisions and found.numbers == usual.numbers


def test_registered_is_not_at_work(population, own):
    register_gate(changed(OWN, measure=lambda *about: 1 / 0), replace=True)
    assert step(merging(population)).child


def test_a_configuration_names_each_gate_once(own):
    assert MergeConfig(gates=['broad']).gates == ['broad']
    for gates, expected in ((['broad', 'broad'], 'each gate once'), (['low_compute'], 'asked anyway'),
                            (['slim'], 'register_gate')):
        with pytest.raises(ValueError, match=expected): MergeConfig(gates=gates)


# --- in a life

SMALL = {'cells': [*CELLS], 'max_new_tokens': 4, 'capacity': 3, 'founders': 3, 'founder_step': .3,
         'market': {'questions': 6, 'round': 2, 'learn_every': 1, 'protect': 1, 'contest': 0., 'recruit': False,
                    'books': 'family', 'met': 8},
         'world': {'schedule': 'static'}, 'curriculum': {'copies': 2},
         'merging': {'share': 1., 'least': 2, 'look': 24, 'most': 48, 'weights': [.5], 'lag': 1., 'alpha': .9,
                     'margin': .9}}


def begun(host, seed=1, **changes):
    return Ecology(host, changed_config(changed_config(load_config('worlds'), SMALL), changes), seed=seed)


def test_the_child_gets_what_its_parents_held_and_the_books_balance(host, chance):
    e = begun(host)
    e.merging.purse = 1.        # GFLOPs, so that one can be afforded
    records = [e.step() for _ in range(12)]
    took = [d for r in records for d in r.decisions if d.gate == 'took_over']
    assert took
    for r in records:
        rows = [vars(d) | {'partners': list(d.partners)} for d in r.decisions]
        assert not replay(rows) and r.row['alive'] <= 3
        for merge in r.merges:
            held = {x['organelle']: x['balance'] for x in r.ledger}
            assert held[merge.child] > 0 and set(merge.factors) == {merge.child, *merge.parents}
            left = [x for x in r.lineage if x['event'] == 'death']
            assert [x['organelle'] for x in left] == [merge.parents[1]]            # the seats were full
    assert e.market.audit().balanced and any(r.row['gflops']['gate'] for r in records)


def test_merges_go_on_bit_for_bit_from_a_checkpoint(host, chance, tmp_path):
    e = begun(host, variation={'every': 3, 'offspring': 1})
    for _ in range(5): e.step()
    write_checkpoint(tmp_path, e)
    again = begun(host, variation={'every': 3, 'offspring': 1})
    read_checkpoint(next((tmp_path / 'checkpoints').iterdir()), again)
    rows = [[x.step().tables | {'timings': 0} for _ in range(6)] for x in (e, again)]
    assert rows[0] == rows[1] and any(row['gates'] for row in rows[0])


def test_the_account_of_evolution_knows_merges(host, chance):
    e = begun(host, variation={'every': 3, 'offspring': 0})
    rows = [x for _ in range(16) for x in e.step().evolution]
    assert any(x['merge'] for x in rows)
    for x in rows:
        parts = math.fsum(x[k] for k in ('selection', 'learning', 'birth', 'merge', 'arrivals'))
        assert abs(parts - (x['after'] - x['before'])) <= 1e-9
