"""Whole ecologies on a tiny host: the books balance, one seed gives one record, and the dead leave nothing behind."""
import json
import os
import signal
import threading
from collections import Counter
from math import fsum
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from evolora.assimilation.pairing import AssimilationConfig
from evolora.ecology.config import PRESETS, EcologyConfig, load_config
from evolora.tasks.curriculum import CurriculumConfig
from evolora.ecology.ecology import Ecology
from evolora.economy.ledger import ACCOUNTS
from evolora.economy.prices import EconomyConfig
from evolora.tasks.forms import Form
from evolora.host.habit_host import HABIT_CELLS
from evolora.host.model import tiny_host
from evolora.tasks.family import Grade, Task
from evolora.organelles.population import Traits
from evolora.organelles.updates import Plasticity, PlasticityConfig
from evolora.utils.randomness import stream
from evolora.ecology.run_folder import TABLES, Run
from evolora.tasks.families import ID_CELLS, Cell, grade
from evolora.tasks.splits import stream_of
from evolora.ecology.variation import VariationConfig

PRESET_NAMES = sorted(p.stem for p in PRESETS.glob('*.yaml'))
CELLS = ['math:1', 'string.sort:2', 'logic.bool:1', 'word.count:3']

some_seeds = pytest.mark.parametrize('seed', [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])


@pytest.fixture(scope='module')
def host(): return tiny_host()


@pytest.fixture
def chance_decides(monkeypatch):
    "A tiny host is never right. Here chance decides, by question and answer, so that some earn and some do not"
    def grade(task, text):
        draws = stream(0, purpose=f'{task.id} {text}').random()
        return Grade(draws > .1, 1. if draws > .6 else round(draws, 2) if draws > .1 else 0., draws > .6)
    monkeypatch.setattr(Form, 'grade', lambda _, task, text: grade(task, text))


def small(**changes):
    "A world where things happen: births, selection, poverty"
    sections = dict(economy=EconomyConfig(founder_energy=6., newborn_energy=2., ticket=.3, price_token=.01),
                    curriculum=CurriculumConfig(budget=6., budget_max=8),
                    variation=VariationConfig(mu=4, offspring=3, protect=1, rank_change=.3))
    world = dict(founders=5, capacity=9, cells=CELLS, max_new_tokens=3, reserve=1.)
    return EcologyConfig(**world | sections | changes)


RICH = EconomyConfig(founder_energy=20., newborn_energy=2., ticket=.3, price_token=0.)


def live(host, config, *, seed=0, generations=8, **keywords):
    ecology, records = Ecology(host, config, seed=seed, **keywords), []
    ecology.run(generations, hooks=[records.append], log=None)
    return ecology, records


def rows(records, table): return [row for record in records for row in record.tables[table]]
def story(records):
    return {table: [json.dumps(row) for row in rows(records, table)] for table in TABLES if table != 'timings'}


def write(run, records):
    for record in records:
        for table, added in record.tables.items(): run.append(table, added)
    return run


def new_run(folder, config):
    return Run.create(folder, config=config.model_dump(), host={'id': 'tiny'}, seed=0, version='0')


# --- the books

@some_seeds
def test_the_books_balance_every_generation(host, chance_decides, seed):
    ecology, balances, seen, frozen = Ecology(host, small(), seed=seed), {}, set(), host.weights_hash()
    for _ in range(8):
        record = ecology.step()
        seen |= {(r['account'], r['reason']) for r in record.ledger}
        assert ecology.ledger.audit().balanced
        for row in record.ledger:       # the rows alone give every balance
            assert row['account'] in ACCOUNTS or row['account'].startswith('o')
            balances[row['organelle']] = balances.get(row['organelle'], 0.) + row['amount']
            assert 0 <= row['balance'] <= ecology.config.economy.cap or row['reason'] in ('revenue', 'cost', 'penalty')
        for id in ecology.population.ids: assert balances[id] == pytest.approx(ecology.ledger.balance(id), abs=1e-9)
        for id in set(balances) - set(ecology.population.ids): assert balances[id] == pytest.approx(0, abs=1e-9)
        assert record.row['energy'] == fsum(ecology.ledger.balances.values())
    assert host.weights_hash() == frozen
    assert {('genesis', 'founder'), ('commons', 'ticket'), ('market', 'revenue'), ('compute', 'cost'),
            ('fines', 'penalty'), ('estate', 'estate')} <= seen


def test_a_generation_is_the_sum_of_its_tables(host, chance_decides):
    _, records = live(host, small())
    alive = 0
    for record in records:
        row, episodes = record.row, record.episodes
        assert row['episodes'] == len(episodes) and {e['generation'] for e in episodes} == {row['generation']}
        for name in ('revenue', 'penalty', 'cost'):
            assert row[name] == pytest.approx(sum(e[name] for e in episodes), abs=1e-9)
        assert row['net'] == pytest.approx(row['revenue'] - row['penalty'] - row['cost'], abs=1e-9)
        assert row['roi'] == pytest.approx(row['revenue'] / row['cost'])
        for name, column in (('accuracy', 'success'), ('parse_rate', 'parsed'), ('progress', 'progress')):
            assert row[name] == pytest.approx(sum(e[column] for e in episodes) / len(episodes))
        events = Counter(e['event'] for e in record.lineage if e['reason'] != 'founder')
        assert (row['births'], row['deaths']) == (events['birth'], events['death'])
        alive += sum({'birth': 1, 'death': -1}[e['event']] for e in record.lineage)
        assert row['alive'] == alive
        visits = Counter(f"{e['family']}:{e['depth']}" for e in episodes)
        assert {name: cell['episodes'] for name, cell in row['cells'].items()} == visits
        for name, cell in row['cells'].items():
            own = [e for e in episodes if f"{e['family']}:{e['depth']}" == name]
            assert {e['price'] for e in own} == {cell['price']}
            assert cell['accuracy'] == pytest.approx(sum(e['success'] for e in own) / len(own))
    assert sum(r.row['births'] for r in records) and sum(r.row['deaths'] for r in records)


def test_the_ledger_agrees_with_the_episodes(host, chance_decides):
    _, records = live(host, small())
    for record in records:
        for id in {e['organelle'] for e in record.episodes}:
            for reason, sign in (('revenue', 1), ('cost', -1), ('penalty', -1)):
                booked = sum(r['amount'] for r in record.ledger if r['organelle'] == id and r['reason'] == reason)
                assert booked == pytest.approx(sign * sum(e[reason] for e in record.episodes if e['organelle'] == id),
                                               abs=1e-9)


# --- presets

@pytest.mark.parametrize('name', PRESET_NAMES)
def test_every_preset_runs(host, name):
    config, frozen = load_config(name), host.weights_hash()
    ecology, records = live(host, config.model_copy(update={'max_new_tokens': 4}), generations=2)
    assert len(records) == 2 and ecology.ledger.audit().balanced and host.weights_hash() == frozen
    assert len(rows(records, 'episodes')) == sum(r.row['episodes'] for r in records) > 0


def test_the_presets_are_those_that_are_promised():
    assert PRESET_NAMES == ['debug', 'ecology', 'frozen', 'real', 'single', 'worlds']


def test_frozen_is_the_bare_host_for_ever(host):
    ecology, records = live(host, load_config('frozen').model_copy(update={'max_new_tokens': 4}), generations=3)
    assert ecology.population.ids == ['o1'] and ecology.population.is_noop('o1')
    assert all((r.row['alive'], r.row['births'], r.row['deaths']) == (1, 0, 0) for r in records)


def test_single_is_one_organelle_that_learns(host, chance_decides):
    config = load_config('single')
    few = config.curriculum.model_copy(update={'budget_min': 12, 'budget_max': 12})
    config = config.model_copy(update={'max_new_tokens': 3, 'curriculum': few})
    ecology, records = live(host, config, generations=4)
    assert all((r.row['alive'], r.row['births'], r.row['deaths']) == (1, 0, 0) for r in records)
    assert not ecology.population.is_noop('o1') and all(r.row['gflops']['learn'] > 0 for r in records)


def test_only_the_first_founder_sleeps(host):
    ecology = Ecology(host, small())
    assert [ecology.population.is_noop(id) for id in ecology.population.ids] == [True, False, False, False, False]


# --- one seed, one story

@pytest.mark.parametrize('name', ['frozen', 'single', 'ecology'])
def test_the_same_seed_writes_the_same_bytes(tmp_path, chance_decides, name):
    config = load_config(name)
    few = {'budget': 6., 'budget_min': 2, 'budget_max': 12}
    config = config.model_copy(update={'max_new_tokens': 4, 'curriculum': config.curriculum.model_copy(update=few)})
    runs = {label: write(new_run(tmp_path / label, config), live(tiny_host(), config, seed=seed, generations=4)[1])
            for label, seed in (('a', 1), ('b', 1), ('c', 2))}
    for table in TABLES:
        first, second, other = (runs[label].path(table).read_bytes() for label in 'abc')
        if table != 'timings': assert first == second
        if table in ('episodes', 'generations', 'ledger'): assert first != other


def test_what_happens_elsewhere_makes_no_difference(host, chance_decides):
    "Neither Torch's global state, nor another world on the same host, nor how far it is run at a time"
    ecology, whole = Ecology(host, small(), seed=3), []
    for _ in range(5):
        torch.manual_seed(5)
        Ecology(host, small(), seed=9).step()
        whole += ecology.run(1, log=None)
    assert story(whole) == story(live(host, small(), seed=3, generations=5)[1])


@pytest.mark.parametrize('batch', [1, 7, 500])
def test_the_batch_size_changes_no_answer(host, batch):
    answers = lambda b: [(e['organelle'], e['task'], e['answer'])
                         for e in rows(live(host, small(batch=b), generations=2)[1], 'episodes')]
    assert answers(batch) == answers(64)


# --- births and deaths

@some_seeds
def test_the_dead_are_forgotten_everywhere(host, chance_decides, seed):
    ecology, dead = Ecology(host, small(), seed=seed), set()
    for _ in range(8):
        dead |= {e['organelle'] for e in ecology.step().lineage if e['event'] == 'death'}
        living = set(ecology.population.ids)
        assert living and not living & dead
        assert set(ecology.ledger.balances) == set(ecology.ledger.strikes) == living
        assert set(ecology.curriculum._returns) <= living
        assert set(ecology.demography.recent.organelle) <= living
        assert set(ecology.demography.ranking().index) == living
        # a dead organelle may be named only as a parent of another
        ledger = {k: v for k, v in ecology.ledger.state().items() if k != 'rows'}
        state = json.dumps([ecology.curriculum.state(), ledger])
        assert not [id for id in dead if f'"{id}"' in state]
    assert len(dead) > 3
    for id in dead:
        with pytest.raises(KeyError): ecology.population[id]


@some_seeds
def test_parents_pay_for_their_children(host, chance_decides, seed):
    ecology, records = live(host,
                            small(economy=RICH, variation=VariationConfig(mu=4, offspring=3, protect=1, crossover=.5)),
                            seed=seed, generations=10)
    births = [e for e in rows(records, 'lineage') if e['event'] == 'birth' and e['reason'] == 'birth']
    assert len(births) > 3 and {len(b['parents']) for b in births} == {1, 2}
    ledger = rows(records, 'ledger')
    for birth in births:
        child, parents = birth['organelle'], birth['parents']
        share = ecology.config.economy.newborn_energy / len(parents)
        for parent in parents:
            booked = lambda *key: [r for r in ledger if (r['organelle'], r['account'], r['reason']) == (*key, 'birth')]
            gift, received = booked(parent, child), booked(child, parent)
            assert [r['amount'] for r in gift] == [pytest.approx(-share)]
            assert [r['amount'] for r in received] == [pytest.approx(share)]
            assert gift[0]['generation'] == birth['generation'] and gift[0]['balance'] >= 0
        opening = [r for r in ledger if r['organelle'] == child][:len(parents)]
        assert opening[-1]['balance'] == pytest.approx(ecology.config.economy.newborn_energy)
    minted = [r for r in ledger if r['account'] in ('genesis', 'nursery')]
    assert {r['reason'] for r in minted} == {'founder'} and len(minted) == ecology.config.founders


@some_seeds
def test_room_is_limited_and_names_are_not(host, chance_decides, seed):
    config = small(capacity=6, economy=RICH, variation=VariationConfig(mu=3, offspring=6, protect=1))
    ecology, records = live(host, config, seed=seed, generations=10)
    assert all(1 <= r.row['alive'] <= 6 for r in records) and max(r.row['alive'] for r in records) == 6
    born = [e['organelle'] for e in rows(records, 'lineage') if e['event'] == 'birth']
    assert born == [f'o{i + 1}' for i in range(len(born))] and len(born) > 6
    died = [e['organelle'] for e in rows(records, 'lineage') if e['event'] == 'death']
    assert len(set(died)) == len(died) and set(born) - set(died) == set(ecology.population.ids)


def test_the_poor_have_no_children(host):
    ecology, records = live(host, small(reserve=100.), generations=4)
    assert sum(r.row['births'] for r in records) == 0


def test_all_organelles_can_die(host):
    log, records, config = [], [], small(variation=VariationConfig(mu=9), economy=EconomyConfig(
        founder_energy=1., newborn_energy=1., ticket=1., grace=2))
    ecology = Ecology(host, config)
    ecology.run(30, hooks=[records.append], log=log.append)
    assert len(records) < 10 and len(ecology.population) == len(ecology.ledger) == 0 and ecology.ledger.audit().balanced
    assert log[-1].startswith('no organelle is left') and 'cheaper' not in log[-1] and len(log) == len(records) + 1
    last = records[-1].row
    assert (last['alive'], last['energy'], last['best'], last['best_fitness']) == (0, 0., None, None)
    assert {e['reason'] for e in rows(records, 'lineage') if e['event'] == 'death'} == {'bankrupt'}
    assert ecology.run(3, log=None) == []
    with pytest.raises(RuntimeError, match='no organelle is alive since generation'): ecology.step()


def test_strikes_come_before_bankruptcy(host):
    _, records = live(host,
                      small(founders=1, economy=EconomyConfig(founder_energy=0., newborn_energy=0., ticket=1., grace=3,
                                                              floor=0.)), generations=9)
    assert [r.row['gates'] for r in records] == [{'strike': 1}, {'strike': 1}, {'bankrupt': 1}]
    assert [r.row['alive'] for r in records] == [1, 1, 0] and records[-1].row['episodes'] == 0


def test_a_generation_may_ask_nothing(host):
    "No energy and no minimum: no organelle can afford a question, and the run goes on"
    config = small(economy=EconomyConfig(founder_energy=0., ticket=0., newborn_energy=0.),
                   curriculum=CurriculumConfig(budget_min=0),
                   variation=VariationConfig(mu=9))
    ecology, records = live(host, config, generations=3)
    assert [r.row['episodes'] for r in records] == [0, 0, 0] and all(r.row['accuracy'] is None and r.row['roi'] is None
                                                                     for r in records)
    assert len(ecology.population) == 5


def test_winter_is_harder(host, chance_decides):
    config = small(economy=EconomyConfig(founder_energy=9., newborn_energy=3., winter_every=3, winter_length=1,
                                         ticket=.2))
    _, records = live(host, config, generations=6)
    assert [r.row['season'] for r in records] == ['summer', 'summer', 'winter'] * 2
    tickets = [{round(-r['amount'], 9) for r in record.ledger if r['reason'] == 'ticket'} for record in records]
    assert tickets == [{.2}, {.2}, {.4}] * 2


# --- which organelle is asked what

@some_seeds
def test_visitors_of_a_cell_meet_the_same_questions(host, chance_decides, seed):
    _, records = live(host, small(), seed=seed)
    shared = 0
    for record in records:
        met = {}
        for e in record.episodes:
            met.setdefault((e['family'], e['depth']), {}).setdefault(e['organelle'], []).append(e['task'])
        for visitors in met.values():
            longest = max(visitors.values(), key=len)
            assert all(tasks == longest[:len(tasks)]
                       for tasks in visitors.values()) and len(set(longest)) == len(longest)
            shared += len(visitors) > 1
    assert shared


@pytest.mark.parametrize('name', [None, *PRESET_NAMES])
def test_only_train_questions_of_the_chosen_cells_are_asked(host, monkeypatch, name):
    asked = []
    monkeypatch.setattr(Form, 'grade', lambda _, task, text: asked.append(task) or Grade(False, 0., False))
    config = small() if name is None else load_config(name).model_copy(update={'max_new_tokens': 1})
    live(host, config, generations=2)
    assert asked and {stream_of(t) for t in asked} == {'train'}
    cells = {Cell.parse(c) for c in config.cells}
    assert {Cell(t.family, t.depth) for t in asked} <= cells <= {*ID_CELLS, *HABIT_CELLS}


def test_equal_organelles_answer_alike(host):
    "Common random numbers: equal adapters give equal answers to equal questions"
    _, records = live(host, small(founders=3, founder_step=0.), generations=1)
    known = {}
    for e in records[0].episodes: assert known.setdefault(e['task'], e['answer']) == e['answer']
    assert len(known) < len(records[0].episodes)


# --- being stopped

def interrupt(times):
    "A hook that presses Ctrl-C in generation 1"
    def hook(record):
        if record.row['generation'] == 1:
            for _ in range(times): os.kill(os.getpid(), signal.SIGINT)
    return hook


def test_ctrl_c_ends_after_the_generation_and_keeps_it(host, chance_decides):
    ecology, lines, kept, usual = Ecology(host, small()), [], [], signal.getsignal(signal.SIGINT)
    records = ecology.run(50, hooks=[interrupt(1), kept.append], log=lines.append)
    assert [r.row['generation'] for r in records] == [0, 1] and records == ecology.history
    assert kept[0].timing == records[0].timing and kept[1] is records[1]
    assert lines[-1] == 'stopped after generation 1, which is kept' and signal.getsignal(signal.SIGINT) is usual
    # and it can go on
    ecology.run(2, hooks=[kept.append], log=None)
    assert story(kept) == story(live(host, small(), generations=4)[1])


def test_the_second_ctrl_c_does_not_wait(host):
    ecology, kept, usual = Ecology(host, small()), [], signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt): ecology.run(50, hooks=[interrupt(2), kept.append], log=None)
    assert [r.row['generation'] for r in kept] == [0] and signal.getsignal(signal.SIGINT) is usual
    assert ecology.step().row['generation'] == 2         # the lock was given back


def test_only_the_main_thread_listens(host):
    ecology, records = Ecology(host, small()), []
    thread = threading.Thread(target=lambda: records.extend(ecology.run(2, log=None)))
    thread.start(); thread.join()
    assert len(records) == 2


def test_two_cannot_step_at_once(host, monkeypatch):
    inside, go_on, real = threading.Event(), threading.Event(), grade
    def slow(task, text):
        inside.set()
        assert go_on.wait(60)
        return real(task, text)
    monkeypatch.setattr(Form, 'grade', lambda _, task, text: slow(task, text))
    ecology = Ecology(host, small())
    thread = threading.Thread(target=ecology.step)
    thread.start()
    assert inside.wait(60)
    with pytest.raises(RuntimeError, match='running elsewhere'): ecology.step()
    go_on.set(); thread.join()
    assert ecology.generation == 1 and ecology.step().row['generation'] == 1


def test_a_step_that_fails_gives_the_lock_back_and_is_not_begun_again(host, monkeypatch):
    def learn(*_, **__): raise ArithmeticError('no')
    ecology = Ecology(host, small())
    ecology.step()
    monkeypatch.setattr(ecology.plasticity, 'learn', learn)
    with pytest.raises(ArithmeticError): ecology.step()
    with ecology.still(): assert ecology.half
    monkeypatch.undo()
    owned = ecology.ledger.balances
    for _ in range(2):
        with pytest.raises(RuntimeError, match='generation 1 ended half-way'): ecology.step()
    assert ecology.ledger.balances == owned, 'the tickets were taken again'


@pytest.mark.parametrize('generations', [0, -1])
def test_no_generations_is_an_error(host, generations):
    with pytest.raises(ValueError, match='at least 1 generation'): Ecology(host, small()).run(generations)


# --- learning

LEARNS = dict(curriculum=CurriculumConfig(budget=8., budget_max=8, copies=4))


def test_each_organelle_learns_from_its_own_answers_once_a_generation(host, chance_decides, monkeypatch):
    lessons, real = [], Plasticity.learn
    def learn(self, lesson, **keywords):
        lessons.append(lesson)
        return real(self, lesson, **keywords)
    monkeypatch.setattr(Plasticity, 'learn', learn)
    frozen = host.weights_hash()
    ecology, records = live(host, small(**LEARNS), generations=3)
    assert len(lessons) == 3 and host.weights_hash() == frozen
    for lesson, record in zip(lessons, records):
        assert lesson.organelles == [e['organelle'] for e in record.episodes]
        assert [len(a) for a in lesson.answers] == [e['new_tokens'] for e in record.episodes]
        for key, rows in pd.DataFrame(record.episodes).assign(advantage=lesson.advantage).groupby(
                ['organelle', 'family', 'depth', 'task']):
            if len(rows) > 1:
                others = (rows.reward.sum() - rows.reward) / (len(rows) - 1)
                assert np.allclose(rows.advantage, rows.reward - others)


def test_learning_changes_weights_and_none_does_not(host, chance_decides):
    def weights(rule):
        config = small(**LEARNS, variation=VariationConfig(mu=9, offspring=0), plasticity=PlasticityConfig(rule=rule))
        ecology, records = live(host, config, generations=2)
        return ecology.population, records
    (still, quiet), (moved, busy) = weights('none'), weights('local')
    assert all(still.is_noop(id) == (id == 'o1') for id in still.ids) and not moved.is_noop('o1')
    assert all(r.row['gflops']['learn'] == 0 and r.row['kl_from_host'] is None for r in quiet)
    assert all(r.row['gflops']['learn'] > 0 and r.row['kl_from_host'] >= 0 for r in busy)
    # in the first generation the answers come before any learning
    assert [e['answer'] for e in quiet[0].episodes] == [e['answer'] for e in busy[0].episodes]


def test_copies_differ_in_their_sampling_seed_and_organelles_share_it(host):
    config = small(**LEARNS, founders=3, founder_step=0., plasticity=PlasticityConfig(rule='none'),
                   traits=Traits(explore=0., selectivity=0.))
    _, (record,) = live(host, config, generations=1)
    answers = pd.DataFrame(record.episodes)
    assert answers.groupby(['organelle', 'family', 'depth', 'task']).answer.nunique().max() > 1
    for _, rows in answers.groupby(['family', 'depth', 'task']):           # all are no-ops here
        answers = rows.groupby('organelle').answer.agg(tuple)
        shortest = min(map(len, answers))
        assert len({a[:shortest] for a in answers}) == 1


def test_children_go_on_with_what_was_learned(host, chance_decides):
    config = small(**LEARNS, capacity=20, economy=RICH, traits=Traits(step=.001),
                   variation=VariationConfig(mu=4, offspring=3, rank_change=0., crossover=0.,
                                             operators={'gaussian': 1.}))
    ecology, _ = live(host, config, generations=4)
    plasticity, population = ecology.plasticity, ecology.population
    born = [o for o in population if o.born == 3]
    assert born
    for child in born:
        parent = next((population[p] for p in child.parents if p in population), None)
        if parent is None: continue
        assert plasticity.updates[child.slot] == plasticity.updates[parent.slot] > 0
        for m in plasticity.first['B'].values():
            assert torch.equal(m[child.slot], m[parent.slot]) and m[child.slot].any()


def test_the_es_rule_plays_its_variants_in_an_ecology(host, chance_decides):
    config = small(**LEARNS, founders=2, plasticity=PlasticityConfig(rule='es', pairs=2))
    ecology, records = live(host, config, generations=2)
    assert all(r.row['gflops']['learn'] > r.row['gflops']['play'] / 4 > 0 for r in records)
    assert len(ecology.population) >= 2


def test_the_immature_have_no_children(host, chance_decides):
    config = small(economy=RICH, variation=VariationConfig(mu=4, offspring=3, maturity=3))
    _, records = live(host, config, generations=6)
    births = [e for e in rows(records, 'lineage') if e['event'] == 'birth']
    born = {e['organelle']: e['generation'] for e in births}
    assert sum(r.row['births'] for r in records[:3]) == 0 < sum(r.row['births'] for r in records[3:])
    assert all(e['generation'] - born[p] >= 3 for e in births for p in e['parents'])


def test_niches_are_taken_up_by_children(host, chance_decides):
    config = small(**LEARNS, economy=RICH, variation=VariationConfig(mu=4, offspring=3, niche_change=1.))
    ecology, records = live(host, config, generations=4)
    born = [e for e in rows(records, 'lineage') if e['event'] == 'birth' and e['reason'] == 'birth']
    families = {Cell.parse(c).family for c in CELLS}
    assert born and {e['traits']['niche'] for e in born} <= families and len({e['traits']['niche'] for e in born}) > 1
    assert all(e['traits']['niche'] == '' for e in rows(records, 'lineage') if e['reason'] == 'founder')


# --- what is written down

def test_every_row_fits_its_table_and_comes_back(tmp_path, host, chance_decides):
    config = small(economy=EconomyConfig(founder_energy=5., newborn_energy=2., ticket=.8, grace=2),
                   assimilation=AssimilationConfig(merges=1))
    ecology, records = Ecology(host, config), []
    ecology.turn(tau=.2)
    ecology.feedback('o1', 'Is 2 + 2 = 4?', 'True', True)
    ecology.run(8, hooks=[records.append], log=None)
    run = write(new_run(tmp_path / 'run', config), records)
    for table, columns in TABLES.items():
        frame = run.read(table)
        assert len(frame) == len(rows(records, table)) > 0 and list(frame.columns) == list(columns)
        for row in rows(records, table): assert list(row) == list(columns) or set(row) == set(columns)
    episodes, generations = run.read('episodes'), run.read('generations')
    assert episodes.groupby('generation').size().tolist() == generations.episodes.tolist()
    assert generations.generation.tolist() == list(range(len(records)))
    assert all(r.timing['seconds'] > 0 and set(r.timing['parts']) >= {'plan', 'play', 'grade', 'settle'}
               for r in records)


def test_a_record_has_a_line_and_a_table(host, chance_decides):
    ecology, records = live(host, small(), generations=3)
    for record in records:
        line = record.ticker()
        mean = record.row['energy'] / record.row['alive']
        for part in ('generation', 'ROI', 'accuracy', f'energy {mean:.1f} each',
                     f"alive {record.row['alive']} (+{record.row['births']} −{record.row['deaths']})", ' s'):
            assert part in line
        assert '\n' not in line and '| cell |' in record._repr_markdown_()
    assert ecology._repr_markdown_().count('\n| o') - 1 == min(8, len(ecology.population))


def test_history_keeps_all_numbers_and_the_latest_tables(host, chance_decides):
    ecology, records = live(host, small(), generations=3)
    assert len(ecology.history) == 3 and ecology.history[-1] is records[-1]
    for kept, record in zip(ecology.history[:-1], records):
        assert kept.row == record.row | {'cells': {}} and kept.ticker() == record.ticker() and record.tables['episodes']
        assert kept.episodes is kept.ledger is kept.lineage is None and kept._repr_markdown_()
        with pytest.raises(ValueError, match=f"generation {kept.row['generation']}, got numbers only"): kept.tables


def test_one_question_in_two_cells_is_graded_by_each(host):
    ecology = Ecology(host, small())
    tasks = [Task('math.sequence', depth, .5, 'What comes next: 1 2 4 8?', answer, id='same')
             for depth, answer in ((3, '15'), (4, '16'))]
    answers = SimpleNamespace(texts=['16', '16'], flops=np.ones(2), prompt_tokens=np.ones(2, int),
                              new_tokens=np.ones(2, int))
    plan = pd.DataFrame({'organelle': ['o1', 'o1']})
    assert ecology._grade(plan, tasks, answers)['success'] == [False, True]


def test_results_carry_the_hashes_of_what_they_compare_with(host):
    hashes, others = Ecology(host, small()).hashes(), Ecology(tiny_host(seed=1), small()).hashes()
    assert set(hashes) == {'streams', 'grader', 'host', 'cost'}
    assert [name for name in hashes if hashes[name] != others[name]] == ['host']
    assert hashes['host'] == host.weights_hash()
