"""Lives with merges: a child takes over from two in all books at once, and every decision can be decided again."""
import json
from collections import Counter

import numpy as np
import pytest
import torch
from scripted import chance_decides, moved, same

from evolora.assimilation.examiner import Examiner
from evolora.assimilation.gates import EVENTS, GATES, replay
from evolora.assimilation.merge_test import MergeConfig
from evolora.ecology.config import EcologyConfig, changed_config
from evolora.ecology.ecology import Ecology
from evolora.ecology.run_folder import TABLES, Run
from evolora.ecology.serving import Settled
from evolora.ecology.variation import VariationConfig
from evolora.economy.market import MarketConfig
from evolora.host.model import load_host, tiny_host
from evolora.organelles.updates import PlasticityConfig
from evolora.tasks.curriculum import CurriculumConfig
from evolora.tasks.family import Grade
from evolora.tasks.forms import Form
from evolora.tasks.splits import stream_of
from evolora.utils.randomness import seed_of, stream

# A test takes some dozens of answers here, not hundreds, and the child may be far behind.
QUICK = dict(share=1., least=24, most=48, look=8, margin=.5, alpha=.5, lag=1., weights=[.5], wait=3)


@pytest.fixture(scope='module')
def host(): return tiny_host()


@pytest.fixture(autouse=True)
def graded_by_chance(monkeypatch):
    "Ordinary answers are graded by chance, by question and answer; merge tests follow their script"
    monkeypatch.setattr(Form, 'grade', lambda _, task, text: chance_decides(task, text))


class Script(Examiner):
    "An examiner with a script: `is_right(name, task)` is whether the child or the leader is right"
    def __init__(self, population, is_right):
        super().__init__(population)
        self.is_right, self.evaluations = is_right, []

    def ask(self, who, tasks, seed_for, **how):
        self.evaluations.append((dict(who), list(tasks)))
        right = {name: np.array([bool(self.is_right(name, t)) for t in tasks]) for name in who}
        for key, x in dict(answers=len(who) * len(tasks), right=int(sum(r.sum() for r in right.values())),
                           gflops=1e-5 * len(who) * len(tasks)).items(): self.bill[key] += x
        return right


# Scripts.
def equal(name, task): return True
def worse(name, task): return name == 'leader'
def chance(name, task): return stream(0, purpose=f'{name} {task.id}').random() < {'child': .7, 'leader': .5}[name]


def config(**changes):
    "Three founders, two families, and no births, deaths or learning unless changed"
    usual = dict(founders=3, founder_step=.3, capacity=6, rank=2, max_rank=4, cells=['string.sort:2', 'word.count:2'],
                 max_new_tokens=3, market=MarketConfig(questions=8, round=2, books='family', recruit=False, met=16),
                 curriculum=CurriculumConfig(copies=2), plasticity=PlasticityConfig(rule='none'),
                 variation=VariationConfig(every=0), merging=MergeConfig(**QUICK))
    return changed_config(EcologyConfig(**usual), changes)


def scripted(e, is_right):
    e.examiner = e.merging.examiner = Script(e.population, is_right)
    return e


def led(host, is_right=equal, *, seed=0, **changes):
    "An ecology of which o2 leads one family and o3 the other, whatever they answer; a test can be afforded at once"
    e = Ecology(host, config(**changes), seed=seed)
    if is_right: scripted(e, is_right)
    for id, family in zip(('o2', 'o3'), e.market.families):
        for _ in range(3): e.market.settle(family, {one: 1. if one == id else .1 for one in e.population.ids})
    e.market.rows(0)
    e.serving.settle = lambda answers: Settled()    # stakes stay as they are
    e.merging.purse = 1e3
    return e


def lived(ecology, generations):
    records = []
    ecology.run(generations, hooks=[records.append], log=None)
    return records


def rows(records, table): return [json.loads(json.dumps(r)) for record in records for r in record.tables[table]]
def story(records): return {t: [json.dumps(x) for x in rows(records, t)] for t in TABLES if t != 'timings'}


# --- a child takes over

def test_by_lot_a_child_takes_over_at_the_same_time_whose_parents_are_drawn(host):
    found = {}
    for seed in range(10):
        for way in ('shared', 'lot'):
            e = led(host, seed=seed, cells=['string.sort:2', 'word.count:2', 'code.format:2'],
                    variation={'selection': way})
            for _ in range(3):
                e.market.settle('code.format', {one: 1. if one == 'o1' else .1 for one in e.population.ids})
            e.market.rows(0)
            e.population.write('o1', {n: (A, 2 * B) for n, (A, B) in e.population.factors('o2').items()})
            leads = [e.market.leader(f) for f in e.market.families]
            assert len({*leads}) == 3 and not any(e.population.is_noop(id) for id in leads), leads
            record = e.step()
            found[way, seed] = [frozenset(m.parents) for m in record.merges]
            assert e.market.audit().balanced
            for merge, end in zip(record.merges, [d for d in record.decisions if d.gate == 'took_over'], strict=True):
                assert {*end.parents} == {*merge.parents}
                assert all(e.market.balance(p) == 0 for p in merge.parents)
    merges = {way: [len(x) for (w, _), x in found.items() if w == way] for way in ('shared', 'lot')}
    assert merges['shared'] == merges['lot'] and sum(merges['lot']) >= 5
    assert len({pair for (way, _), pairs in found.items() if way == 'lot' for pair in pairs}) == 3


def test_a_merged_child_lives_and_differs_from_its_parents(host):
    e = led(host)
    record = e.step()
    (merge,), (end,) = record.merges, [d for d in record.decisions if d.final]
    child, parents = e.population[merge.child], merge.parents
    assert (child.operator, child.parents, child.born) == ('merge', parents, 0) and set(parents) == {'o2', 'o3'}
    assert (end.gate, end.numbers['child']) == ('took_over', child.id) and record.row['gates'] == {'took_over': 1}
    ids = torch.tensor([[5, 6, 7, 8]] * 3)
    logits = e.population.logits(ids, organelles=[child.id, *parents])
    assert not torch.equal(logits[0], logits[1]) and not torch.equal(logits[0], logits[2])
    assert merge.factors.keys() == {child.id, *parents}
    assert all(same(merge.factors[id], e.population.factors(id)) for id in merge.factors)
    assert same(e.demography.births[child.id], e.population.factors(child.id))
    born = [r for r in record.lineage if r['event'] == 'birth' and r['reason'] == 'birth']
    assert [(r['organelle'], r['parents'], r['operator']) for r in born] == [(child.id, list(parents), 'merge')]
    assert (record.row['births'], record.row['deaths'], record.row['alive']) == (1, 0, 4)
    assert {a['organelle'] for a in e.step().episodes} == {child.id}, 'it answers for both'


def test_the_child_gets_the_stakes_of_its_parents(host):
    e = led(host)
    held = e.market.balances
    (merge,) = e.step().merges
    assert e.market.balance(merge.child) == pytest.approx(held['o2'] + held['o3'])
    assert [e.market.balance(id) for id in ('o1', 'o2', 'o3')] == pytest.approx([held['o1'], 0, 0])
    moved = Counter()
    for r in e.history[-1].ledger: moved[r['reason']] += r['amount']
    assert moved == pytest.approx({'merge': 0})     # a bystander gives nothing
    assert e.market.audit().balanced
    assert {e.market.leader(f) for f in e.market.families} == {merge.child}


def test_where_all_seats_are_taken_one_parent_leaves(host):
    e = led(host, capacity=3)
    record = e.step()
    (merge,) = record.merges
    gone = {r['organelle']: r['reason'] for r in record.lineage if r['event'] == 'death'}
    assert gone == {merge.parents[1]: f'{merge.child} answers for it'} and record.row['alive'] == 3
    assert merge.parents[1] not in e.population and merge.parents[1] in merge.factors, 'an audit can still ask it'
    assert set(e.market.holders) == set(e.population.ids) and len(lived(e, 1)) == 1


def test_a_child_that_is_worse_leaves_no_trace_but_its_decisions(host):
    e, twin = led(host, worse), led(host, merging={'share': 0.})
    records, plain = lived(e, 6), lived(twin, 6)
    assert [r.row['gates'] for r in records] == [{'not_shown_equal': 1}, {'no_pair': 1}, {'no_pair': 1}] * 2
    assert not e.merges and e.merging.levels.found == [False] * 2 and replay(rows(records, 'gates')) == []
    for table in ('episodes', 'ledger', 'lineage'): assert story(records)[table] == story(plain)[table]
    assert e.population.weights_hash() == twin.population.weights_hash() and len(e.examiner.scratch) == 0
    assert e.curriculum.state() == twin.curriculum.state() and e.market.state() == twin.market.state()


def test_weights_are_kept_again_some_generations_later(host):
    e = led(host, audit=2, merging={'wait': 9})
    (merge,) = e.step().merges
    e.step()
    moved(e.population, merge.child)
    e.demography.bury(merge.parents[1], e.generation, 'test')
    assert merge.later == {}
    e.step()
    assert set(merge.later) == {merge.child, merge.parents[0]}, 'of those who still live'
    assert not same(merge.later[merge.child], merge.factors[merge.child])
    kept = dict(merge.later)
    e.step()
    assert merge.later == kept and len(e.merges) == 1


def test_a_record_explains_and_lets_go(host):
    e = led(host)
    first, second = lived(e, 2)
    one, partner = (d := first.decisions[-1]).organelle, d.partners[0]
    text = first.explain(one)
    assert text.count('\n') == 4 and text.endswith(first.explain(partner).split('\n')[-1])
    assert 'child took over: ' in text and first.explain('o99') == 'o99 had no turn'
    assert 'gates took_over 1' in repr(first) and 'gates' not in repr(second)
    kept = first.numbers_only()
    assert kept.decisions is None and kept.merges == () and repr(kept) == repr(first)
    with pytest.raises(ValueError, match='expected the decisions of generation 0, got numbers only'): kept.explain('o1')


# --- what it takes

def test_without_a_share_there_are_no_tests(host):
    records = lived(led(host, merging={'share': 0.}), 3)
    assert not rows(records, 'gates') and {r.row['gate_answers'] for r in records} == {0}
    assert {r.row['gflops']['gate'] for r in records} == {0.}


def test_a_world_of_one_family_merges_nothing(host):
    e = led(host, cells=['string.sort:1', 'string.sort:2'])
    assert [r.row['gates'] for r in lived(e, 2)] == [{'no_pair': 1}] * 2


def test_the_host_itself_is_no_leader_to_merge(host):
    "A no-op has nothing to give: where it leads, there is no turn at all, or no pair"
    e = led(host, founder_step=0.)
    assert all(r.row['gates'] == {} and not r.decisions for r in lived(e, 2))


def test_tests_wait_until_they_can_be_paid(host):
    e = led(host)
    e.merging.purse = 0.
    records = lived(e, 24)
    ends = [[*r.row['gates']] for r in records]
    waited = ends.index(['took_over'])
    assert waited > 2 and ends[:waited] == [['low_compute']] * waited
    for n, record in enumerate(records[:waited], 1):
        purse, least = (record.decisions[-1].numbers[k] for k in ('purse', 'least'))
        assert purse == pytest.approx(sum(r.row['gflops']['play'] for r in records[:n])) and purse < least


# --- long lives

LIVES = {'plain': {}, 'full': dict(capacity=3),
         'busy': dict(market={'recruit': True, 'contest': .3, 'protect': 1}, plasticity={'rule': 'local'},
                      variation={'every': 2, 'offspring': 1}, capacity=5)}


@pytest.mark.parametrize('life', LIVES)
def test_all_books_agree_in_every_generation(host, life):
    e = scripted(Ecology(host, config(market={'even': .2, 'met': 8}, merging={'share': .8}), seed=1), chance)
    e = scripted(Ecology(host, changed_config(e.config, LIVES[life]), seed=1), chance)
    m, frozen, seen, tried = e.merging, host.weights_hash(), Counter(), {}
    spent = m.purse = 0. if life == 'busy' else .4      # GFLOPs: the first test need not be saved for
    for generation in range(12):
        for id, family in zip([id for id in e.population.ids if not e.population.is_noop(id)][-2:], e.market.families):
            e.market.settle(family, {one: 1. if one == id else .2 for one in e.population.ids})
        looks, opened = len(e.examiner.evaluations), len(m.levels.found)
        record = e.step()
        r, ids, new = record.row, set(e.population.ids), e.examiner.evaluations[looks:]
        # what was asked was counted and paid for, with gate questions only
        assert r['gate_answers'] == sum(len(who) * len(tasks) for who, tasks in new)
        assert {stream_of(t) for _, tasks in new for t in tasks} <= {'gate'}
        assert len({t.id for _, tasks in new for t in tasks}) == sum(len(tasks) for _, tasks in new), 'each once'
        spent += .8 * (r['gflops']['play'] + r['gflops']['learn']) - r['gflops']['gate']
        assert m.purse == pytest.approx(spent)
        # the stream of tests: each is closed in the generation in which it was opened
        assert None not in m.levels.found and len(m.levels.found) - opened == bool(new)
        # one turn at most, counted once, and true
        assert r['gates'] == Counter(d.gate for d in record.decisions if d.final) and sum(r['gates'].values()) <= 1
        assert replay(rows([record], 'gates')) == [] and {*r['gates']} <= {*GATES, *EVENTS}
        for d in record.decisions: assert record.explain(d.organelle).split('\n').count(str(d)) == 1
        assert len(record.merges) == r['gates'].get('took_over', 0) == sum(m.levels.found[opened:])
        # births and deaths: no organelle is lost, none is too many, the dead are nowhere
        events = Counter(x['event'] for x in record.lineage if x['reason'] != 'founder')
        assert (r['births'], r['deaths'], r['alive']) == (events['birth'], events['death'], len(ids))
        assert len(ids) <= e.config.capacity and set(e.market.holders) == set(e.demography.births) == ids
        assert e.market.audit().balanced and set(e.plasticity._expected) <= ids
        for x in record.evolution:
            parts = sum(x[k] for k in ('selection', 'learning', 'birth', 'merge', 'arrivals'))
            assert parts == pytest.approx(x['after'] - x['before'], abs=1e-9)
            seen['in the account'] += x['merge'] != 0
        # the same pair is not tested again too soon
        for pair in ({tuple(sorted(d.parents)) for d in record.decisions if d.gate == 'not_shown_equal'}):
            assert generation - tried.get(pair, -99) >= e.config.merging.wait
            tried[pair] = generation
        seen.update(r['gates'])
    assert host.weights_hash() == frozen and seen['took_over'] and seen['low_compute'], seen
    assert len(e.merges) == seen['took_over'] and len({m.child for m in e.merges}) == len(e.merges)


def test_the_same_seed_decides_the_same(host, monkeypatch):
    "Bit for bit, with the real examiner; the grader alone is a coin"
    coin = lambda task, text: seed_of(0, purpose=text, organelle=task.id) % 1000 < 500
    monkeypatch.setattr(Form, 'grade', lambda _, task, text: Grade(True, 1., coin(task, text)))
    lives = []
    for seed in (1, 1, 2):
        e = led(host, None, seed=seed, plasticity={'rule': 'local'})
        records = lived(e, 4)
        lives.append((story(records), e.merging.state(), e.population.weights_hash()))
        assert any(r.row['gate_answers'] for r in records), 'a child was tested'
    assert lives[0] == lives[1] and lives[0][0]['gates'] != lives[2][0]['gates']


def test_a_run_on_the_embedded_host_decides_again(tmp_path, monkeypatch):
    monkeypatch.undo()
    e = led(load_host('embedded', threads=1), None, founder_step=.05, max_new_tokens=16, plasticity={'rule': 'local'})
    run, records = Run.create(tmp_path / 'run', config=e.config.model_dump(), host={'id': 'embedded'}, seed=0,
                              version='0'), lived(e, 5)
    for record in records: run.record(record)
    gates = run.table('gates').to_dict('records')
    assert len(gates) == len(rows(records, 'gates')) > 5 and e.merging.levels.found and replay(gates) == []
    for i, row in enumerate(gates): # one that was decided otherwise is found, wherever it is
        assert replay(gates[:i] + [row | {'passed': not row['passed']}] + gates[i + 1:])
