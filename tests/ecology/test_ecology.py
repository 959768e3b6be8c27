"""Whole ecologies on a tiny host: the books balance, one seed gives one record, and the dead leave nothing behind."""
import json
import os
import signal
import threading
from collections import Counter
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch

from evolora.assimilation.merge_test import MergeConfig
from evolora.ecology.config import PRESETS, EcologyConfig, changed_config, load_config
from evolora.ecology.ecology import Ecology
from evolora.ecology.parts import _LIBRARY
from evolora.ecology.run_folder import TABLES, Run
from evolora.ecology.variation import VariationConfig
from evolora.economy import prices as money
from evolora.economy.market import MarketConfig
from evolora.economy.prices import EconomyConfig
from evolora.host.habit_host import HABIT_CELLS
from evolora.host.model import tiny_host
from evolora.organelles.traits import Traits
from evolora.organelles.updates import Plasticity, PlasticityConfig
from evolora.tasks.curriculum import CurriculumConfig
from evolora.tasks.families import ID_CELLS, Cell, grade
from evolora.tasks.family import Grade, Task
from evolora.tasks.forms import Form
from evolora.tasks.splits import stream_of
from evolora.utils.randomness import stream

PRESET_NAMES = sorted(p.stem for p in PRESETS.glob('*.yaml'))
CELLS = ['math:1', 'string.sort:2', 'logic.bool:1', 'word.count:3']

some_seeds = pytest.mark.parametrize('seed', [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])


@pytest.fixture(scope='module')
def host(): return tiny_host()


@pytest.fixture
def chance_decides(monkeypatch):
    "A tiny host is never right. Here chance decides, by question and answer"
    def grade(task, text):
        draws = stream(0, purpose=f'{task.id} {text}').random()
        return Grade(draws > .1, 1. if draws > .6 else round(draws, 2) if draws > .1 else 0., draws > .6)
    monkeypatch.setattr(Form, 'grade', lambda _, task, text: grade(task, text))


def small(**changes):
    "A world where things happen: several are believed and learn, recruits come, a census every other generation"
    sections = dict(market=MarketConfig(questions=8, round=2, learn_every=2, protect=1, contest=.2, met=16),
                    curriculum=CurriculumConfig(copies=2),
                    variation=VariationConfig(every=2, offspring=1, rank_change=.3))
    world = dict(founders=4, capacity=5, rank=2, max_rank=4, cells=CELLS, max_new_tokens=3)
    return EcologyConfig(**world | sections | changes)


def market(**changes): return dict(market=small().market.model_copy(update=changes))


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
    ecology, balances, seen, frozen = Ecology(host, small(), seed=seed), Counter(), set(), host.weights_hash()
    for _ in range(8):
        record = ecology.step()
        seen |= {(r['account'], r['reason']) for r in record.ledger}
        audit = ecology.market.audit()
        assert audit.balanced and sum(ecology.market.balances.values()) == pytest.approx(1)
        for row in record.ledger:       # the rows alone give every balance
            balances[row['organelle']] += row['amount']
            assert 0 <= row['balance'] <= 1
        for id in ecology.population.ids: assert balances[id] == pytest.approx(ecology.market.balance(id), abs=1e-9)
        for id in set(balances) - set(ecology.population.ids): assert balances[id] == pytest.approx(0, abs=1e-9)
        held = ecology.market.balances
        assert record.row['best'] == max(held, key=held.get) and record.row['gini'] == money.gini(held.values())
        assert record.row['effective_population'] == money.effective_population(held.values())
    assert host.weights_hash() == frozen
    assert {('stakes', reason) for reason in ('birth', 'bet', 'share', 'death')} <= seen


def test_a_generation_is_the_sum_of_its_tables(host, chance_decides):
    _, records = live(host, small())
    alive = 0
    for record in records:
        row, episodes = record.row, record.episodes
        assert row['episodes'] == len(episodes) == 16 and {e['generation'] for e in episodes} == {row['generation']}
        for name in ('revenue', 'penalty', 'cost'):
            assert row[name] == pytest.approx(sum(e[name] for e in episodes), abs=1e-9)
        assert row['net'] == pytest.approx(row['revenue'] - row['penalty'] - row['cost'], abs=1e-9)
        assert row['roi'] == pytest.approx(row['revenue'] / row['cost'])
        assert row['gflops']['play'] == pytest.approx(sum(e['gflops'] for e in episodes))
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
            assert set(cell) == {'episodes', 'accuracy', 'success_ema', 'learning_progress'}
            assert cell['accuracy'] == pytest.approx(sum(e['success'] for e in own) / len(own))
    assert sum(r.row['births'] for r in records) and sum(r.row['deaths'] for r in records)


def test_reward_and_cost_follow_from_the_answer_at_fixed_exchange_rates(host, chance_decides):
    rates = EconomyConfig(price_gflop=2., price_token=.01, success_bonus=.5, failure_cost=.3)
    _, records = live(host, small(economy=rates), generations=3)
    for e in rows(records, 'episodes'):
        assert e['cost'] == pytest.approx(2. * e['gflops'] + .01 * (e['prompt_tokens'] + e['new_tokens']))
        assert e['reward'] == pytest.approx(e['progress'] + .5 * e['success'] - .3 * (1 - e['progress']))
        assert (e['revenue'], e['penalty']) == (max(e['reward'], 0.), max(-e['reward'], 0.))


# --- presets

@pytest.mark.parametrize('name', PRESET_NAMES)
def test_every_preset_runs(host, name):
    config, frozen = load_config(name), host.weights_hash()
    ecology, records = live(host, config.model_copy(update={'max_new_tokens': 4}), generations=2)
    assert len(records) == 2 and ecology.market.audit().balanced and host.weights_hash() == frozen
    assert len(rows(records, 'episodes')) == 2 * config.market.questions * config.curriculum.copies


def test_the_presets_are_those_that_are_promised():
    assert PRESET_NAMES == ['debug', 'ecology', 'endogenous', 'frozen', 'real', 'relaxed', 'relaxed-debug', 'simple',
                            'single', 'stakes', 'worlds']


def test_endogenous_has_all_parts_on():
    assert {*load_config('endogenous').society} == {*_LIBRARY} - {'migration'}      # which needs neighbours


def test_frozen_is_the_bare_host_for_ever(host):
    ecology, records = live(host, load_config('frozen').model_copy(update={'max_new_tokens': 4}), generations=3)
    assert ecology.population.ids == ['o1'] and ecology.population.is_noop('o1')
    assert all((r.row['alive'], r.row['births'], r.row['deaths']) == (1, 0, 0) for r in records)


def test_single_is_one_organelle_that_learns(host, chance_decides):
    config = changed_config(load_config('single'), {'max_new_tokens': 3, 'market': {'questions': 8}})
    ecology, records = live(host, config, generations=4)
    assert all((r.row['alive'], r.row['births'], r.row['deaths']) == (1, 0, 0) for r in records)
    assert not ecology.population.is_noop('o1') and all(r.row['gflops']['learn'] > 0 for r in records)
    assert all(r.row['gflops']['score'] == 0 for r in records) and ecology.market.balance('o1') == 1


def test_only_the_first_founder_is_a_noop(host):
    ecology = Ecology(host, small())
    assert [ecology.population.is_noop(id) for id in ecology.population.ids] == [True, False, False, False]


# --- one seed, one story

@pytest.mark.parametrize('name', ['frozen', 'single', 'ecology', 'small'])
def test_the_same_seed_writes_the_same_bytes(tmp_path, chance_decides, name):
    few = {'max_new_tokens': 4, 'market': {'questions': 8}}
    config = small() if name == 'small' else changed_config(load_config(name), few)
    runs = {label: write(new_run(tmp_path / label, config), live(tiny_host(), config, seed=seed, generations=4)[1])
            for label, seed in (('a', 1), ('b', 1), ('c', 2))}
    for table in TABLES:
        if table == 'timings' or not runs['a'].path(table).exists(): continue
        first, second, other = (runs[label].path(table).read_bytes() for label in 'abc')
        assert first == second
        if table in ('episodes', 'generations'): assert first != other


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
    for _ in range(10):
        dead |= {e['organelle'] for e in ecology.step().lineage if e['event'] == 'death'}
        living = set(ecology.population.ids)
        assert living and not living & dead
        assert set(ecology.market.holders) == set(ecology.demography.births) == living
        assert set(ecology.plasticity._expected) <= living
        assert set(ecology.demography.table().index) == living
        if ecology.generation % 2 == 0: assert set(ecology.succession.skill) == living      # after a census
        # a dead organelle may be named only as a parent of another
        state = json.dumps([ecology.curriculum.state(), ecology.market.state(), ecology.serving.state()])
        assert not [id for id in dead if f'"{id}"' in state]
    assert len(dead) > 2
    for id in dead:
        with pytest.raises(KeyError): ecology.population[id]
        with pytest.raises(KeyError): ecology.market.balance(id)


@some_seeds
def test_seats_are_limited_and_names_are_not(host, chance_decides, seed):
    config = small(capacity=4, variation=VariationConfig(every=1, offspring=2))
    ecology, records = live(host, config, seed=seed, generations=10)
    assert all(1 <= r.row['alive'] <= 4 for r in records) and max(r.row['alive'] for r in records) == 4
    born = [e['organelle'] for e in rows(records, 'lineage') if e['event'] == 'birth']
    assert born == [f'o{i + 1}' for i in range(len(born))] and len(born) > 4
    died = [e['organelle'] for e in rows(records, 'lineage') if e['event'] == 'death']
    assert len(set(died)) == len(died) and set(born) - set(died) == set(ecology.population.ids)


# --- what is asked

@pytest.mark.parametrize('share, even', [(0., 8), (.5, 4), (1., 0)])
def test_the_bandit_chooses_the_cells_of_its_share_of_the_questions(host, chance_decides, share, even):
    ecology = Ecology(host, small(curriculum=CurriculumConfig(copies=2, chosen=share)))
    uneven = 0
    for _ in range(5):
        wanted = Counter(map(str, ecology.curriculum.choose(8 - even))) + Counter({c: even // 4 for c in CELLS})
        record = ecology.step()
        answers = Counter(f"{e['family']}:{e['depth']}" for e in record.episodes)
        assert answers == Counter({cell: 2 * n for cell, n in wanted.items()})
        questions = {(e['family'], e['depth'], e['task']) for e in record.episodes}
        assert len(questions) == 8, 'no question of a cell is asked twice'
        uneven += len(set(wanted.values())) > 1
    assert (uneven > 0) == (share > 0)
    assert ecology.curriculum.table().episodes.sum() == 5 * 16


def test_what_the_bandit_knows_changes_nothing_where_it_chooses_nothing(host, chance_decides):
    def told(**knobs):
        return rows(live(host, small(curriculum=CurriculumConfig(copies=2, **knobs)), generations=4)[1], 'episodes')
    assert told() == told(exploration=9., lp_mix=.2, discount=.5) != told(chosen=1.)


@pytest.mark.parametrize('name', [None, *PRESET_NAMES])
def test_only_train_questions_of_the_chosen_cells_are_asked(host, monkeypatch, name):
    asked = []
    monkeypatch.setattr(Form, 'grade', lambda _, task, text: asked.append(task) or Grade(False, 0., False))
    config = small() if name is None else load_config(name).model_copy(update={'max_new_tokens': 1})
    live(host, config, generations=2)
    assert asked and {stream_of(t) for t in asked} == {'train'}
    cells = {Cell.parse(c) for c in config.cells}
    assert {Cell(t.family, t.depth) for t in asked} <= cells <= {*ID_CELLS, *HABIT_CELLS}


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
    assert inside.wait(60) and ecology.part == 'serve'
    with pytest.raises(RuntimeError, match='running elsewhere'): ecology.step()
    go_on.set(); thread.join()
    assert ecology.generation == 1 and ecology.part == '' and ecology.step().row['generation'] == 1


@pytest.mark.parametrize('error', [ArithmeticError, KeyboardInterrupt])
def test_a_step_that_fails_has_not_been_and_gives_the_lock_back(host, monkeypatch, error):
    def learn(*_, **__): raise error('no')
    ecology, other = Ecology(host, small()), Ecology(host, small())
    for one in (ecology, other): one.step()
    held, weights = ecology.market.balances, ecology.population.weights_hash()
    monkeypatch.setattr(ecology.plasticity, 'learn', learn)
    for _ in range(2):
        with pytest.raises(error): ecology.step()
        assert ecology.market.balances == held and ecology.population.weights_hash() == weights
        assert len(ecology.history) == ecology.generation == 1
    with ecology.still(): pass
    monkeypatch.undo()
    assert json.dumps(ecology.step().tables | {'timings': 0}) == json.dumps(other.step().tables | {'timings': 0})


@pytest.mark.parametrize('generations', [0, -1])
def test_no_generations_is_an_error(host, generations):
    with pytest.raises(ValueError, match='at least 1 generation'): Ecology(host, small()).run(generations)


# --- learning

LEARNS = dict(curriculum=CurriculumConfig(copies=4), **market(contest=0., recruit=False))
STILL = dict(variation=VariationConfig(every=0))


def test_each_organelle_learns_from_its_own_answers_once(host, chance_decides, monkeypatch):
    lessons, real = [], Plasticity.learn
    def learn(self, lesson, **keywords):
        lessons.append(lesson)
        return real(self, lesson, **keywords)
    monkeypatch.setattr(Plasticity, 'learn', learn)
    frozen = host.weights_hash()
    ecology, records = live(host, small(**LEARNS), generations=3)
    assert len(lessons) == 6 and host.weights_hash() == frozen, 'two updates of two rounds each in a generation'
    answers = iter(rows(records, 'episodes'))
    for lesson in lessons:
        part = pd.DataFrame([next(answers) for _ in lesson.organelles]).assign(advantage=lesson.advantage)
        assert lesson.organelles == part.organelle.tolist() and len(part) == 16
        assert [len(a) for a in lesson.answers] == part.new_tokens.tolist()
        for key, same in part.groupby(['organelle', 'family', 'depth', 'task']):
            others = (same.reward.sum() - same.reward) / (len(same) - 1)
            assert len(same) == 4 and np.allclose(same.advantage, same.reward - others)
    assert next(answers, None) is None, 'every answer was learned from'


def test_learning_changes_weights_and_none_does_not(host, chance_decides):
    def weights(rule):
        config = small(**LEARNS | STILL, plasticity=PlasticityConfig(rule=rule))
        ecology, records = live(host, config, generations=2)
        return ecology.population, records
    (still, quiet), (moved, busy) = weights('none'), weights('local')
    assert all(still.is_noop(id) == (id == 'o1') for id in still.ids) and not moved.is_noop('o1')
    assert all(r.row['gflops']['learn'] == 0 and r.row['kl_from_host'] is None for r in quiet)
    assert all(r.row['gflops']['learn'] > 0 and r.row['kl_from_host'] >= 0 for r in busy)
    # the answers of the first two rounds come before any learning
    first = [[(e['organelle'], e['answer']) for e in records[0].episodes] for records in (quiet, busy)]
    assert first[0][:16] == first[1][:16] and first[0] != first[1]


def judged(host, weight, *verdicts):
    "A generation in which o2 got feedback but answers nothing, the rows of lessons that it got, and whether it changed"
    ecology = Ecology(host, small(**market(contest=1., recruit=False) | STILL, feedback=weight), seed=5)
    ecology.step()
    for up in verdicts: ecology.feedback('o2', 'Is 2 + 2 = 4?', 'True' if up else 'False', up)
    before, lessons, learn = ecology.population.factors('o2'), [], ecology.plasticity.learn
    ecology.plasticity.learn = lambda lesson, **how: lessons.append(lesson) or learn(lesson, **how)
    record = ecology.step()
    after = ecology.population.factors('o2')
    own = [(lesson.answers[i], lesson.advantage[i]) for lesson in lessons
           for i, id in enumerate(lesson.organelles) if id == 'o2']
    return record, own, not all(a.equal(b) for name in after for a, b in zip(after[name], before[name]))


def test_human_feedback_joins_one_lesson_and_moves_no_stakes(host, chance_decides):
    plain, own, changed = judged(host, .5)
    assert 'o2' not in {e['organelle'] for e in plain.episodes} and (own, changed) == ([], False)
    record, own, changed = judged(host, .5, True, False)
    assert [merit for _, merit in own] == [.5, -.5] and own[0][0] != own[1][0] and changed
    assert [(f['up'], f['reward']) for f in record.feedback] == [(True, .5), (False, -.5)]
    assert {r['reason'] for r in record.ledger} == {'bet', 'share'}
    noted, own, changed = judged(host, 0., True)
    assert [(f['up'], f['reward']) for f in noted.feedback] == [(True, 0.)] and (own, changed) == ([], False)
    assert noted.ledger == plain.ledger and noted.episodes == plain.episodes


def test_copies_differ_in_their_sampling_seed_and_organelles_share_it(host):
    "Common random numbers: whichever of several equal organelles is asked, it answers alike"
    def answers(contest):
        config = small(curriculum=CurriculumConfig(copies=4), founders=4, founder_step=0., **STILL,
                       **market(contest=contest), plasticity=PlasticityConfig(rule='none'))
        return pd.DataFrame(live(host, config, generations=1)[1][0].episodes)
    one, many = answers(1.), answers(0.)
    assert one.groupby(['family', 'depth', 'task']).answer.nunique().max() > 1
    assert one.organelle.nunique() == 1 < many.organelle.nunique() and one.answer.tolist() == many.answer.tolist()


def test_a_partial_generation_asks_fewer_and_has_no_census(host, chance_decides):
    ecology = Ecology(host, small(variation=VariationConfig(every=1)), seed=1)
    ecology.step()
    alive, record = ecology.population.ids, ecology.step(3)
    assert record.row['episodes'] == 3 * ecology.config.curriculum.copies and record.row['births'] == 0
    assert ecology.population.ids == alive and not record.evolution and ecology.market.audit().balanced
    assert ecology.step().row['episodes'] == 8 * ecology.config.curriculum.copies
    for wrong in (0, 9, 2.5, True):
        with pytest.raises(ValueError, match='a whole number from 1 to 8'): ecology.step(wrong)


def test_children_go_on_with_what_was_learned(host, chance_decides):
    config = small(**LEARNS, capacity=12, traits=Traits(step=.001),
                   variation=VariationConfig(every=1, offspring=2, rank_change=0., crossover=0.,
                                             operators={'gaussian': 1.}))
    ecology, records = live(host, config, generations=4)
    plasticity, population = ecology.plasticity, ecology.population
    born = [o for o in population if o.born == 3]       # when it ended: their parents learned no more
    assert len(born) == 2
    for child in born:
        parent = population[child.parents[0]]
        assert plasticity.updates[child.slot] == plasticity.updates[parent.slot] > 0
        for m in plasticity.first['B'].values():
            assert torch.equal(m[child.slot], m[parent.slot]) and m[child.slot].any()
        assert plasticity._expected[child.id] == plasticity._expected[parent.id] != {}


def test_the_es_rule_plays_its_variants_in_an_ecology(host, chance_decides):
    config = small(**LEARNS | STILL, founders=2, plasticity=PlasticityConfig(rule='es', pairs=2))
    ecology, records = live(host, config, generations=2)
    assert all(r.row['gflops']['learn'] > r.row['gflops']['play'] / 4 > 0 for r in records)
    assert not ecology.population.is_noop('o1')


# --- what is written down

def test_every_row_fits_its_table_and_comes_back(tmp_path, host, chance_decides):
    config = small(merging=MergeConfig(share=.5), society={'archive': {}})
    ecology, records = Ecology(host, config), []
    ecology.society['archive'].note('kept', 'o1', ['o2'], quality=.5)
    ecology.turn(tau=.2)
    ecology.feedback('o1', 'Is 2 + 2 = 4?', 'True', True)
    ecology.run(6, hooks=[records.append], log=None)
    run = write(new_run(tmp_path / 'run', config), records)
    for table, columns in TABLES.items():
        frame = run.table(table)
        assert len(frame) == len(rows(records, table)) > 0 and list(frame.columns) == list(columns)
        for row in rows(records, table): assert set(row) == set(columns)
    episodes, generations = run.table('episodes'), run.table('generations')
    assert episodes.groupby('generation').size().tolist() == generations.episodes.tolist()
    assert generations.generation.tolist() == list(range(len(records)))
    parts = ['serve', 'merge', 'renew', 'evolve', 'adapt']
    assert all(r.timing['seconds'] > 0 and list(r.timing['parts']) == parts for r in records)


def test_a_record_has_a_line_and_a_table(host, chance_decides):
    ecology, records = live(host, small(), generations=3)
    for record in records:
        line, row = record.ticker(), record.row
        spent = sum(x for part, x in row['gflops'].items() if part != 'alone')
        for part in ('generation', 'ROI', 'accuracy', f"believed {row['effective_population']:.1f} of {row['alive']} "
                     f"(+{row['births']} −{row['deaths']})", f"{record.timing['seconds']:.1f} s",
                     f"scoring {row['gflops']['score'] / spent:.0%} of {spent:.1f} GFLOPs"):
            assert part in line
        for gone in ('energy', 'season', 'gates'): assert gone not in line
        assert '\n' not in line and repr(record) in line and '| cell |' in record._repr_markdown_()
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
