"""Whole generations with merges: births and deaths, in all books at once."""
import json
from collections import Counter

import pytest
import torch

from scripted import better, ecology, equal, chance_decides, in_final_test, moved, same, with_trial, world, worse
from evolora.assimilation.pairing import AssimilationConfig
from evolora.ecology.config import EcologyConfig
from evolora.tasks.curriculum import CurriculumConfig
from evolora.ecology.ecology import Ecology
from evolora.economy.prices import EconomyConfig
from evolora.assimilation.examiner import COMMONS, Examiner
from evolora.tasks.family import Grade
from evolora.tasks.forms import Form
from evolora.assimilation.gates import EVENTS, GATES, replay
from evolora.host.model import load_host, tiny_host
from evolora.organelles.updates import PlasticityConfig
from evolora.utils.randomness import seed_of, stream
from evolora.ecology.run_folder import TABLES, Run
from evolora.tasks.families import grade
from evolora.tasks.splits import stream_of
from evolora.ecology.variation import VariationConfig


@pytest.fixture(scope='module')
def host(): return tiny_host()


@pytest.fixture(autouse=True)
def graded_by_chance(monkeypatch):
    "Ordinary answers are graded by chance, by question and answer; gate tests follow their script"
    monkeypatch.setattr(Form, 'grade', lambda _, task, text: chance_decides(task, text))


def lived(ecology, generations):
    records = []
    ecology.run(generations, hooks=[records.append], log=None)
    return records


def rows(records, table): return [json.loads(json.dumps(r)) for record in records for r in record.tables[table]]
def deaths(records): return {r['organelle']: r['reason'] for r in rows(records, 'lineage') if r['event'] == 'death'}


# --- a merge

def test_a_merged_child_lives_and_differs_from_its_parents(host):
    e = ecology(host, world(founders=2, merging=dict(wait=9)), tokens=400)
    first = e.step()
    (merge,), (end,) = first.merges, [d for d in first.decisions if d.gate == 'merged']
    child, parents = e.population[merge.child], merge.parents
    assert (child.operator, child.parents, child.born) == ('merge', parents, 0) and end.numbers['child'] == child.id
    assert set(child.traits.niche.split('+')) == {e.population[p].traits.niche for p in parents} and len(parents) == 2
    ids = torch.tensor([[5, 6, 7, 8]] * 3)
    logits = e.population.logits(ids, organelles=[child.id, *parents])
    assert not torch.equal(logits[0], logits[1]) and not torch.equal(logits[0], logits[2])
    assert all(same(merge.factors[id], e.population.factors(id)) for id in (child.id, *parents))
    born = [r for r in first.lineage if r['event'] == 'birth' and r['reason'] == 'birth']
    assert [(r['organelle'], r['parents'], r['operator']) for r in born] == [(child.id, list(parents), 'merge')]
    assert (first.row['births'], first.row['deaths'], first.row['alive']) == (1, 0, 3)
    second = e.step()
    assert child.id in e.population and child.id in {a['organelle'] for a in second.episodes}
    assert {a['family'] for a in second.episodes if a['organelle'] == child.id} <= set(child.traits.niche.split('+'))


def test_parents_pay_for_the_child_by_their_wealth(host):
    e = ecology(host, world(), tokens=400)
    record = e.step()
    (merge,) = record.merges
    paid = {r['organelle']: -r['amount'] for r in record.ledger if r['reason'] == 'birth' and r['amount'] < 0}
    before = {id: next(r['balance'] for r in reversed(record.ledger) if r['organelle'] == id and r['reason'] != 'birth')
              for id in merge.parents}
    assert paid == pytest.approx({id: 2. * held / sum(before.values()) for id, held in before.items()})
    assert len(set(before.values())) == 2 and e.ledger.balance(merge.child) == pytest.approx(2.)


@pytest.mark.parametrize('absorb', [False, True])
def test_parents_end_with_a_merge_or_live_on(host, absorb):
    e = ecology(host, world(merging=dict(absorb=absorb)), tokens=400)
    record = e.step()
    (merge,) = record.merges
    legacy = [r for r in record.ledger if r['reason'] == 'legacy']
    if not absorb:
        assert all(p in e.population for p in merge.parents) and not legacy and record.row['deaths'] == 0
        return
    assert not any(p in e.population or p in e.ledger for p in merge.parents) and record.row['deaths'] == 2
    assert deaths([record]) == dict.fromkeys(merge.parents, f'absorbed by {merge.child}')
    assert sum(r['amount'] for r in legacy) == pytest.approx(0) and len(legacy) == 4
    overflow = sum(r['amount'] for r in record.ledger if r['organelle'] == merge.child and r['account'] == 'overflow')
    left = sum(r['amount'] for r in legacy if r['organelle'] == merge.child)
    assert e.ledger.balance(merge.child) == pytest.approx(2. + left + overflow) and e.ledger.audit().balanced
    assert not {*merge.parents} & {*e.assimilation.tokens.balances} and e.assimilation.tokens.balances[COMMONS] > 0
    assert set(merge.factors) == {merge.child, *merge.parents}, 'an audit can still ask them'
    assert len(lived(e, 1)) == 1


def test_in_a_full_world_parents_make_room(host):
    e = ecology(host, world(capacity=4, variation=VariationConfig(mu=4, offspring=0)), tokens=400)
    record = e.step()
    (merge,) = record.merges
    assert len(e.population) == 3 and deaths([record]) == dict.fromkeys(merge.parents, f'absorbed by {merge.child}')


def test_two_pairs_merge_in_one_generation(host):
    full = world(capacity=4, variation=VariationConfig(mu=4, offspring=0), merging=dict(merges=2))
    e = ecology(host, full, tokens=900)
    record = e.step()
    one, two = record.merges
    assert not {*one.parents} & {*two.parents} and e.assimilation.levels.found == [True, True]
    assert record.row['gates']['merged'] == 2 and replay(rows([record], 'gates')) == []
    # Once there is room, parents stay: the first pair made it.
    assert set(e.population.ids) == {one.child, two.child, *two.parents}
    assert one.numbers['e'] > 0 and e.assimilation.last_merge == 0


def test_weights_are_kept_again_some_generations_later(host):
    e = ecology(host, world(founders=2, merging=dict(audit=2, wait=9)), tokens=400)
    (merge,) = e.step().merges
    e.step()
    e.demography.bury(merge.parents[1], e.generation, 'test')
    assert merge.later == {}
    e.step()
    assert set(merge.later) == {merge.child, merge.parents[0]}, 'of those who still live'
    kept = dict(merge.later)
    e.step()
    assert merge.later == kept and len(e.merges) == 1


# --- a child on probation

def no_trace(e, id):
    a = e.assimilation
    books = (e.population, e.ledger, e.plasticity._expected, e.curriculum._returns, a.tokens.balances, a.trials,
             a.tried, a.skill, set(e.demography.recent.organelle))
    assert not any(id in book for book in books)


def test_ordinary_births_leave_seats_for_probation():
    one = EcologyConfig(capacity=6, variation=dict(mu=4), assimilation=dict(merges=1, trials=2))
    assert (one.seats, one.model_copy(update=dict(capacity=2)).seats) == (4, 1)
    assert EcologyConfig(capacity=6, variation=dict(mu=4), assimilation=dict(trials=2)).seats == 6, 'nothing merges'


@pytest.mark.parametrize('absorb', [False, True])
def test_a_child_that_proves_itself_is_promoted(host, absorb):
    e, _, trial = with_trial(host, merging=dict(absorb=absorb))
    e.assimilation.examiner.is_right = better
    records, a = [e.step()], e.assimilation
    while a.trials: records.append(e.step())        # until its log is long enough for a look
    record = records[-1]
    (merge,) = record.merges
    assert len(records) <= 3 and {r.row['births'] for r in records} == {0}, 'it was born before'
    assert record.row['gates']['trial_promoted'] == 1 and a.levels.found == [True] and a.trials == {}
    assert (merge.event, merge.child) == ('trial_promoted', trial.id)
    assert set(merge.factors) == {trial.id, *trial.child.parents}
    absorbed = dict.fromkeys(trial.child.parents, f'absorbed by {trial.id}')
    assert trial.id in e.population and deaths(records) == (absorbed if absorb else {})
    stipends = [r['amount'] for r in rows(records, 'ledger') if r['account'] == 'stipend']
    assert stipends == [2.] * len(records) and e.ledger.audit().balanced
    e.step()
    assert not [r for r in e.history[-1].ledger if r['account'] == 'stipend'], 'a promoted child pays for itself'


@pytest.mark.parametrize('absorb', [False, True])
def test_what_is_promoted_is_what_was_tested(host, absorb):
    "Not what it learned while its final test was open, and against its parents as they were at its beginning"
    e, trial = in_final_test(host, absorb=absorb)
    then = {id: e.population.factors(id) for id in (trial.id, *trial.child.parents)}
    asked, real = [], e.assimilation.examiner.ask
    e.assimilation.examiner.ask = lambda who, *args, **how: asked.append(who) or real(who, *args, **how)
    while trial.id in e.assimilation.trials:
        for id in then: moved(e.population, id)
        learned = e.population.factors(trial.id)
        record = e.step()
    (merge,), own = record.merges, [who for who in asked if 'child' in who]
    assert merge.event == 'trial_promoted' and len(own) > 1 and not same(learned, then[trial.id])
    assert same(e.population.factors(trial.id), then[trial.id]) and merge.factors.keys() == then.keys()
    assert all(same(merge.factors[id], f) for id, f in then.items())
    names = {'child': trial.id} | {id: id for id in trial.child.parents}
    assert all(same(f, then[names[name]]) for who in own for name, f in who.items())
    assert merge.numbers['pairs'] == trial.numbers()['pairs'] > 16 and merge.numbers['e'] >= 1 / trial.level


def test_a_child_that_goes_bankrupt_in_its_final_test_is_no_discovery(host):
    e, trial = in_final_test(host)
    e.ledger.charge(trial.id, e.ledger.balance(trial.id), 'evidence', e.generation)
    e.ledger._strikes[trial.id] = e.config.economy.grace - 1
    assert deaths([e.step()]) == {trial.id: 'bankrupt'} and e.assimilation.levels.found == [False] and not e.merges
    no_trace(e, trial.id)


def test_a_child_that_does_not_is_gone_and_its_energy_accounted(host):
    e, _, trial = with_trial(host)
    e.assimilation.examiner.is_right = worse
    records = lived(e, 6)
    assert [r.row['gates'].get('trial_expired', 0) for r in records] == [0, 0, 0, 0, 0, 1]
    assert deaths(records) == {trial.id: 'probation expired'} and records[-1].row['deaths'] == 1
    no_trace(e, trial.id)
    own = [r for r in rows(records, 'ledger') if r['organelle'] == trial.id]
    assert sum(r['account'] == 'stipend' for r in own) == 6 and own[-1]['reason'] == 'estate'
    assert own[-1]['balance'] == 0
    assert e.ledger.audit().balanced and e.assimilation.levels.found == [False] and not e.merges
    estate = [r for r in rows(records, 'tokens') if r['reason'] == 'estate']
    assert sum(r['tokens'] for r in estate) == 0 and estate[0]['organelle'] == trial.id
    assert set(trial.child.parents) <= {*e.population.ids} and len(lived(e, 1)) == 1


def test_a_bankrupt_child_is_not_promoted_and_its_gate_closes(host):
    e, _, trial = with_trial(host, merging=dict(absorb=True))
    e.assimilation.examiner.is_right = better
    e.ledger.charge(trial.id, e.ledger.balance(trial.id), 'evidence', 1)
    e.ledger._strikes[trial.id] = e.config.economy.grace - 1
    record = e.step()
    assert deaths([record]) == {trial.id: 'bankrupt'} and e.assimilation.levels.found == [False]
    (end,) = [d for d in record.decisions if d.organelle == trial.id]
    assert (end.gate, end.final, end.partners) == ('trial_expired', True, trial.child.parents) and not record.merges
    assert record.row['gates']['trial_expired'] == 1 and replay(rows([record], 'gates')) == []
    assert not [r for r in record.ledger if r['account'] == 'stipend'], 'a bankrupt child gets no stipend'
    no_trace(e, trial.id)
    assert set(trial.child.parents) <= {*e.population.ids}


def test_parents_may_die_in_the_generation_of_the_birth(host):
    e, _, trial = with_trial(host)
    for id in trial.child.parents: e.demography.bury(id, 0, 'test')
    e.assimilation.examiner.is_right = better
    assert e.step().row['gates']['trial_promoted'] == 1


def test_selection_spares_children_on_probation(host):
    e, record, trial = with_trial(host, variation=VariationConfig(mu=1, offspring=0, protect=0, champions=False))
    assert record.row['deaths'] == 3 and trial.id in e.population and len(e.population) == 2
    assert lived(e, 1)[0].row['alive'] == 2


def test_a_child_on_a_stipend_has_no_children(host):
    e, _, trial = with_trial(host, variation=VariationConfig(mu=9, offspring=2, maturity=0))
    for id in e.population.ids:
        if id != trial.id: e.demography.bury(id, 0, 'test')
    e.ledger.grant(trial.id, 9., 'stipend', 0)
    e.assimilation.examiner.is_right = equal
    assert e.step().row['births'] == 0 and trial.id in e.assimilation.trials
    e.assimilation.examiner.is_right = better
    record = e.step()
    assert record.row['gates']['trial_promoted'] == 1 and record.row['births'] > 0, 'a promoted child may have them'
    assert {tuple(r['parents']) for r in record.lineage if r['event'] == 'birth'} == {(trial.id,)}


def test_when_all_organelles_die_every_gate_is_closed(host):
    e, _, trial = with_trial(host)
    for id in e.population.ids:
        e.ledger.charge(id, e.ledger.balance(id), 'evidence', 1)
        e.ledger._strikes[id] = e.config.economy.grace - 1
    record = e.step()
    assert record.row['alive'] == 0 and e.assimilation.levels.found == [False] and e.assimilation.trials == {}
    assert set(e.assimilation.tokens.balances) == {COMMONS} and e.ledger.audit().balanced


# --- long lives

def chance(name, task, i):
    "By chance the child is right on 75 % of the questions, other organelles on 35 %; the host on all"
    draw = stream(0, purpose=f'{name} {task.id}').random()
    return name == 'host' or draw < {'child': .75}.get(name, .35)


LIVES = {'plain': {}, 'absorb': dict(merging=dict(absorb=True)),
         'two pairs': dict(merging=dict(merges=2, trials=2, pairs=48)),
         'crowded': dict(capacity=5, variation=VariationConfig(mu=4, offspring=2, protect=12)),
         'busy': dict(variation=VariationConfig(mu=5, offspring=2, protect=12),
                      plasticity=PlasticityConfig(rule='local'),
                      merging=dict(expert=.5, pairs=32, rule='fisher', probation=3)),
         'poor': dict(economy=EconomyConfig(founder_energy=12., newborn_energy=1., ticket=.8, price_token=.009,
                                            price_gflop=0., grace=2), merging=dict(reserve=.5, income=.05, pairs=32))}


@pytest.mark.parametrize('life', LIVES)
def test_all_books_agree_in_every_generation(host, life):
    e, sums, last = ecology(host, world(**LIVES[life] | dict(merging=dict(wait=2) | LIVES[life].get('merging', {}))),
                            tokens=300, is_right=chance), Counter(), {}
    a, c, seen = e.assimilation, e.config.assimilation, Counter()
    frozen = host.weights_hash()
    for generation in range(10):
        if not len(e.population): break
        looks, opened, old = len(a.examiner.evaluations), len(a.levels.found), set(a.trials)
        record = e.step()
        r, ids = record.row, set(e.population.ids)
        # energy and tokens: every balance is the sum of its rows, and none is negative
        assert e.ledger.audit().balanced and min(e.ledger.balances.values(), default=0) >= 0
        for row in record.tokens: sums[row['organelle']] += row['tokens']
        assert {k: n for k, n in sums.items() if n} == {k: n for k, n in a.tokens.balances.items() if n}
        assert all(0 <= n <= c.token_cap for n in a.tokens.balances.values())
        # what was asked was paid for, with gate questions only
        new = a.examiner.evaluations[looks:]
        asked = sum(len(who) * len(tasks) for who, tasks, _ in new)
        spent = -sum(x['tokens'] for x in record.tokens if x['reason'] in ('spent', 'survey'))
        assert r['gate_answers'] == asked == spent
        assert {stream_of(t) for _, tasks, _ in new for t in tasks} <= {'gate'}
        # the stream of gates: opened = closed + on probation
        assert a.levels.found.count(None) == len(a.trials) <= c.trials and set(a.trials) <= ids
        assert len(a.levels.found) - opened <= c.merges
        # decisions: one turn each, counted once, and true
        ends = Counter('ready' if d.passed and d.gate in GATES else d.gate for d in record.decisions if d.final)
        assert ends == {k: n for k, n in r['gates'].items() if k in {*GATES, *EVENTS, 'ready'}}
        assert sum(ends.values()) == len({d.organelle for d in record.decisions})
        assert replay(rows([record], 'gates')) == []
        for d in record.decisions:
            assert record.explain(d.organelle).split('\n').count(str(d)) == 1
        # births and deaths: no organelle is lost, none is too many, the dead are nowhere
        events = Counter(x['event'] for x in record.lineage if x['reason'] != 'founder')
        assert (r['births'], r['deaths'], r['alive']) == (events['birth'], events['death'], len(ids))
        assert len(ids) <= e.config.capacity and set(e.ledger.balances) == ids
        assert {*a.tried, *a.skill} <= ids and set(a.tokens.balances) <= ids | {COMMONS}
        broke = {x['organelle'] for x in record.lineage if x['event'] == 'death' and x['reason'] == 'bankrupt'}
        assert sum(x['account'] == 'stipend' for x in record.ledger) == len(old - broke)
        assert {d.organelle for d in record.decisions if d.organelle in old} == old
        # cooldowns
        for d in record.decisions:
            if d.gate != 'canary_failed': continue      # the first gate of a test
            for id in (d.organelle, *d.partners):
                assert generation - last.get(id, -99) >= c.wait
                last[id] = generation
        assert len(record.merges) == r['gates'].get('merged', 0) + r['gates'].get('trial_promoted', 0)
        seen.update(ends)
    assert host.weights_hash() == frozen and seen['merged'] + seen['trial_created'] >= 1, seen


def story(records): return {t: [json.dumps(x) for x in rows(records, t)] for t in TABLES if t != 'timings'}


def examined_for_real(host, config, seed):
    e = ecology(host, config, seed=seed, tokens=300)
    e.assimilation.examiner = Examiner(e.population, max_new_tokens=3, rows=64)
    return e


def test_the_same_seed_decides_the_same(host, monkeypatch):
    "Bit for bit, with the real examiner; the grader alone is a coin"
    monkeypatch.setattr(Form, 'grade', lambda _, t, text: Grade(True, 1., hash_of(t, text) < .5))
    config = world(plasticity=PlasticityConfig(rule='local'), merging=dict(canary_kept=0., margin=1., expert=.5))
    lives = []
    for seed in (1, 1, 2):
        e = examined_for_real(host, config, seed)
        lives.append((story(lived(e, 3)), e.assimilation.levels.state(), e.assimilation.tokens.state()))
    assert lives[0] == lives[1] and lives[0][0]['gates'] != lives[2][0]['gates']
    assert any('uplift_below_threshold' in row for row in lives[0][0]['gates']), 'a child was tested'


def hash_of(task, text): return seed_of(0, purpose=text, organelle=task.id) % 1000 / 1000


def test_gate_tests_leave_ordinary_generations_as_they_are(host):
    "Without an accepted child, a run with tests of pairs equals a run without merges"
    config = world(merging=dict(income=0.), plasticity=PlasticityConfig(rule='local'),
                   variation=VariationConfig(mu=4, offspring=1))
    with_tests = examined_for_real(host, config, 1)
    without = ecology(host, config.model_copy(update={'assimilation': AssimilationConfig()}), seed=1)
    lives = [story(lived(e, 3)) for e in (with_tests, without)]
    for table in ('episodes', 'ledger', 'lineage'): assert lives[0][table] == lives[1][table]
    assert with_tests.assimilation.levels.found and lives[1]['gates'] == lives[1]['tokens'] == []
    assert with_tests.curriculum.state() == without.curriculum.state()
    for id in without.population.ids: assert same(with_tests.population.factors(id), without.population.factors(id))


# --- edges

def test_without_merges_there_are_no_gates(host):
    e = ecology(host, world(merging=dict(merges=0, stall=1)))
    records = lived(e, 3)
    assert not rows(records, 'gates') and not rows(records, 'tokens') and repr(records[0]).endswith('gates quiet')
    assert {(r.row['floor'], r.row['roi_gate'], r.row['gate_answers']) for r in records} == {(1., 1., 0)}


def test_no_organelle_can_afford_a_question(host):
    config = world(economy=EconomyConfig(founder_energy=0., ticket=0., newborn_energy=0.),
                   curriculum=CurriculumConfig(budget_min=0))
    record = ecology(host, config).step()
    assert record.row['gates']['no_activity'] == 4 and record.row['episodes'] == 0 and not record.tokens


@pytest.mark.parametrize('cells', [['math:1'], ['math:1', 'math:2']])
def test_a_world_of_one_family_merges_nothing(host, cells):
    e = ecology(host, world(cells=cells), tokens=400, niches=['', 'math'])
    records = lived(e, 2)
    assert {d.numbers['fits'] for r in records for d in r.decisions if d.gate == 'no_partner'} == {0}


def test_one_organelle_has_its_turn(host):
    record = ecology(host, world(founders=1), tokens=400).step()
    assert record.row['gates'].get('no_partner') == 1 and record.decisions[-1].numbers['best'] == 'no organelle'


def test_a_winter_is_harder_to_be_solvent_in(host):
    config = world(economy=EconomyConfig(founder_energy=9., newborn_energy=2., ticket=.1, winter_every=2,
                                         winter_length=1, winter_ticket=3.))
    records = lived(ecology(host, config), 2)
    asked = [{d.numbers['least'] for d in r.decisions if d.gate == 'low_energy'} for r in records]
    assert asked == [{.1}, {.1 * 3}]


def test_a_drought_shows_in_the_record(host):
    e = ecology(host, world(merging=dict(stall=2, floor_step=3., floor_max=12.)), is_right=equal)
    relief = [(r.row['floor'], r.row['roi_gate']) for r in lived(e, 5)]
    assert relief == [(1., 1.), (1., 1.), (4., .9), (4., .9), (7., .8)]


def test_a_record_explains_and_lets_go(host):
    records = lived(ecology(host, world(), tokens=400), 2)
    text = records[0].explain(records[0].merges[0].parents[0])
    assert text.count('\n') >= 5 and 'merged: ' in text and records[0].explain('o99') == 'o99 had no turn'
    assert 'merged 1' in repr(records[0])
    kept = records[0].numbers_only()
    assert kept.decisions is kept.tokens is None and kept.merges == () and repr(kept) == repr(records[0])
    with pytest.raises(ValueError, match='expected the decisions of generation 0, got numbers only'): kept.explain('o1')


# --- the whole way, on a host that can answer

def test_a_run_on_the_embedded_host_decides_again(tmp_path, monkeypatch):
    monkeypatch.setattr(Form, 'grade', lambda _, task, text: grade(task, text))
    e = Ecology(load_host('embedded', threads=1), world(
        cells=['string.sort:2', 'word.count:2'], founders=3, max_new_tokens=16, economy=EconomyConfig(),
        merging=dict(canary_kept=0., worth=0.), plasticity=PlasticityConfig(rule='local'),
        variation=VariationConfig(mu=4, offspring=2, niche_change=1.)))
    run, records = Run.create(tmp_path / 'run', config=e.config.model_dump(), host={'id': 'embedded'}, seed=0,
                              version='0'), lived(e, 6)
    for record in records:
        for table, added in record.tables.items(): run.append(table, added)
    gates = run.read('gates').to_dict('records')
    assert len(gates) == len(rows(records, 'gates')) > 20 and replay(gates) == []
    stopped = next(i for i, row in enumerate(gates) if not row['passed'])
    gates[stopped] = gates[stopped] | {'passed': True}
    assert len(replay(gates)) == 1 and e.ledger.audit().balanced
    assert e.assimilation.levels.found, 'a child was tested'
