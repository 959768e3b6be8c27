"""Settings and feedback in a running ecology: nothing changes half-way, all is recorded, a resumed run keeps it."""
import json
import math
import threading
from fractions import Fraction

import numpy as np
import pytest
from pydantic import ValidationError

from evolora.ecology import knobs as module
from evolora.ecology import ecology as world
from evolora.ecology.checkpoint_files import read_checkpoint, write_checkpoint
from evolora.ecology.config import EcologyConfig
from evolora.ecology.knobs import KNOBS, Controls
from evolora.tasks.curriculum import CurriculumConfig
from evolora.ecology.ecology import Ecology
from evolora.economy.ledger import Ledger
from evolora.economy.prices import EconomyConfig, season
from evolora.tasks.family import Grade
from evolora.tasks.forms import Form
from evolora.tasks.worlds import WorldConfig
from evolora.host.model import tiny_host
from evolora.organelles.population import Population
from evolora.organelles.updates import PlasticityConfig
from evolora.utils.randomness import stream
from evolora.ecology.run_folder import TABLES, Run, read
from evolora.ecology.sessions import begin_session, resume_session
from evolora.ecology.variation import VariationConfig

QUESTION, ANSWER = 'Is 2 + 2 = 4?', 'True'


@pytest.fixture(scope='module')
def host(): return tiny_host()


@pytest.fixture(autouse=True)
def chance_decides(monkeypatch):
    "A tiny host is never right: chance decides, by question and answer"
    def grade(task, text):
        draws = stream(0, purpose=f'{task.id} {text}').random()
        return Grade(draws > .1, draws if draws > .1 else 0., draws > .6)
    monkeypatch.setattr(Form, 'grade', lambda _, task, text: grade(task, text))


def small(**changes):
    "A world in which all organelles live, answer and have children"
    sections = dict(economy=EconomyConfig(founder_energy=9., newborn_energy=1., price_token=0., winter_every=0),
                    curriculum=CurriculumConfig(budget=4., budget_min=2, budget_max=6, copies=2),
                    variation=VariationConfig(mu=6, offspring=2, maturity=0))
    return EcologyConfig(**dict(founders=3, capacity=8, cells=['math:1', 'logic.bool:1'], max_new_tokens=3,
                                reserve=1.) | sections | changes)


def story(record, *without):
    return {name: rows for name, rows in record.tables.items() if name not in ('timings', *without)}


def one_line(error): return '\n' not in str(error.value) and len(str(error.value)) < 300


# --- knobs

@pytest.mark.parametrize('name', [n for n, k in KNOBS.items() if k.field])
def test_a_knob_takes_what_the_configuration_takes(host, name):
    "At the bounds, beyond them, and what is no number"
    def fits(value):
        tree = EcologyConfig().model_dump()
        *path, last = KNOBS[name].field.split('.')
        section = tree
        for part in path: section = section[part]
        section[last] = value
        try: EcologyConfig.model_validate(tree)
        except ValidationError: return False
        return True
    scratch, high = Controls(EcologyConfig(), Population(host, capacity=1)), KNOBS[name].high
    ends = [high, math.nextafter(high, math.inf)] if high < math.inf else []
    for value in [0., -5e-324, -1., 1, .5, 1.9, math.nan, True, '1', None, *ends]:
        if fits(value): scratch.turn(**{name: value})
        else:
            with pytest.raises(ValueError, match=f'{name} expected a number .* got .*nothing was turned') as error:
                scratch.turn(**{name: value})
            assert one_line(error)


@pytest.mark.parametrize('wrong', [dict(tau=2.1), dict(winter=-1), dict(winter=1.), dict(winter=True),
                                   dict(winter=1001), dict(ticket=math.inf), dict(ticket=10**400),
                                   dict(temperature='hot'), dict(prices=[1.]), dict(energy=1.), {'a' * 10**6: 1.}])
def test_if_one_value_is_wrong_nothing_is_turned(host, wrong):
    scratch = Controls(EcologyConfig(), Population(host, capacity=1))
    scratch.turn(tau=.1)
    before = scratch.state()
    with pytest.raises(ValueError, match='nothing was turned') as error: scratch.turn(**dict(ticket=2.) | wrong)
    assert one_line(error) and scratch.state() == before and scratch.waiting == ({'tau': .1}, 0)


def test_numbers_of_numpy_are_numbers(host):
    e = Ecology(host, small())
    e.turn(ticket=np.float32(.5), tau=np.float64(.25), winter=np.int64(2), prices=Fraction(3, 2))
    assert e.controls.waiting == (dict(ticket=.5, tau=.25, winter=2, prices=1.5), 0)
    assert {type(x) for x in e.controls.waiting[0].values()} == {int, float}
    with pytest.raises(ValueError, match='expected a knob to turn'): e.turn()


def test_each_knob_has_its_effect(host):
    e, seen = Ecology(host, small()), []
    seen.append(e.step())
    prices = {c: e.prices.price(c) for c in e.cells}
    e.turn(ticket=.5, prices=3., tau=0., temperature=0., winter=1)
    assert e.knobs == dict(ticket=.25, prices=1., tau=.3, temperature=1., feedback=0., winter=0), 'not applied yet'
    seen.append(e.step())
    assert e.knobs == dict(ticket=.5, prices=3., tau=0., temperature=0., feedback=0., winter=0), 'winter is over'
    last = seen[-1]
    assert {r['amount'] for r in last.ledger if r['reason'] == 'ticket'} == {-.5 * e.config.economy.winter_ticket}
    assert all(x['price'] == 3 * prices[f"{x['family']}:{x['depth']}"] for x in last.episodes)
    assert last.row['season'] == 'winter' and e.assimilation.examiner.how['temperature'] == 0.
    answers = {}        # greedy: all answers of one organelle to one question are the same
    for x in last.episodes: answers.setdefault((x['organelle'], x['task']), set()).add(x['answer'])
    assert all(len(a) == 1 for a in answers.values())
    born = [r for r in last.lineage if r['event'] == 'birth']
    traits = {r['organelle']: r['traits'] for record in seen for r in record.lineage}
    same = lambda t: {k: v for k, v in t.items() if k != 'niche'}
    assert born and all(same(r['traits']) == same(traits[r['parents'][0]]) for r in born), 'no spread'


def test_the_configuration_stays_and_the_record_has_each_change_once(host):
    config = small()
    e = Ecology(host, config)
    e.turn(ticket=.5)
    e.turn(ticket=.25, tau=.3)          # as it was
    e.turn(prices=2.)
    e.turn(prices=1.5, feedback=1)
    assert e.step().knobs == [dict(generation=0, knob='prices', value=1.5, was=1.),
                              dict(generation=0, knob='feedback', value=1., was=0.)]
    assert e.step().knobs == [] and e.config is config and e.knobs['prices'] == 1.5


def test_a_generation_under_way_does_not_see_new_requests(host, monkeypatch):
    "From another thread, at every part of it"
    one, two, parts = Ecology(host, small()), Ecology(host, small()), iter(range(99))
    def asking(name):
        part = getattr(Ecology, name)
        def call(self, *args, **how):
            if self is one and self.generation == 1:
                values = dict(ticket=.5 + next(parts), prices=2., tau=0., temperature=0., winter=2, feedback=1.)
                asked = threading.Thread(target=lambda: (self.turn(**values),
                                                         self.feedback('o1', QUESTION, name, True)))
                asked.start()
                asked.join()
            return part(self, *args, **how)
        monkeypatch.setattr(Ecology, name, call)
    for name in ('_tickets', '_plan', '_play', '_ask', '_grade', '_settle', '_learn', '_assimilate', '_adapt',
                 '_record'): asking(name)
    for _ in range(2): assert story(one.step()) == story(two.step())
    record = one.step()
    assert {r['knob']: r['value'] for r in record.knobs} == dict(ticket=.5 + next(parts) - 1, prices=2., tau=0.,
                                                                temperature=0., winter=2., feedback=1.)
    assert len(record.feedback) == 10 and record.row['season'] == 'winter' and story(record) != story(two.step())


# --- seasons

@pytest.mark.parametrize('seed', range(30))
def test_a_winter_lasts_as_long_as_requested(host, seed):
    "Against a reading of the rule, generation by generation: so many winters, then summer, until a winter begins"
    rng = stream(seed, purpose='winters')
    year = int(rng.integers(2, 9))
    economy = EconomyConfig(winter_every=year * int(rng.random() < .8), winter_length=int(rng.integers(1, year)))
    scratch, ledger = Controls(EcologyConfig(economy=economy), Population(host, capacity=1)), Ledger(economy)
    calendar = lambda g: season(economy, g).name == 'winter'
    left, spared = 0, False         # winters still owed; whether what is left of the calendar's is left out
    for g in range(60):
        if rng.random() < .2:
            left = int(rng.integers(0, 6))
            scratch.turn(winter=left)
            spared = calendar(g + left)
        scratch.apply(g, ledger)
        spared = spared and (left > 0 or calendar(g))
        expected = left > 0 or calendar(g) and not spared
        assert (scratch.season(g).name == 'winter') == expected == (scratch.values(g)['winter'] > 0)
        if left: assert scratch.values(g)['winter'] == left
        left = max(left - 1, 0)


# --- human feedback

def give_feedback(e, up=True): e.feedback('o1', QUESTION, ANSWER, up)


def test_without_a_weight_feedback_is_only_recorded(host):
    one, two = Ecology(host, small()), Ecology(host, small())
    give_feedback(one)
    one.feedback('o1', QUESTION, 'False', False)
    first, other = one.step(), two.step()
    assert story(first, 'feedback') == story(other, 'feedback') and other.feedback == []
    assert one.population.weights_hash() == two.population.weights_hash()
    assert first.feedback == [dict(generation=0, organelle='o1', prompt=QUESTION, answer=answer, up=up, reward=0.,
                                   energy=0.) for answer, up in ((ANSWER, True), ('False', False))]
    assert math.copysign(1., first.feedback[1]['reward']) == math.copysign(1., first.feedback[1]['energy']) == 1.


def chance(e, id):
    "Log-probability of the answer"
    population = e.population
    return sum(float(t.logprobs.sum()) for t in population.forward([QUESTION], [e.controls._tokens(ANSWER)], [id]))


@pytest.mark.parametrize('rule', ['hebbian', 'local', 'node', 'backprop'])
def test_every_rule_learns_from_positive_and_negative_feedback(host, rule):
    targets = ['o_proj', 'down_proj']
    found = {}
    for up in (True, False):
        e = Ecology(host, small(feedback=1., targets=targets, plasticity=PlasticityConfig(rule=rule, learning_rate=.1),
                                variation=VariationConfig(mu=6, offspring=0),
                                curriculum=CurriculumConfig(budget=1e-3, budget_min=0),
                                economy=EconomyConfig(ticket=0., winter_every=0)))
        for _ in range(4):
            give_feedback(e, up)
            record = e.step()
        assert record.row['episodes'] == 0 and record.row['gflops']['learn'] > 0, 'feedback alone is a lesson'
        found[up] = chance(e, 'o1')
        assert e.ledger.audit().balanced
    assert found[True] > chance(Ecology(host, small(targets=targets)), 'o1') > found[False]


@pytest.mark.parametrize('rule', ['es', 'none'])
def test_a_rule_that_learns_from_no_answers_moves_energy_only(host, rule):
    config = small(feedback=.5, plasticity=PlasticityConfig(rule=rule, pairs=1), variation=VariationConfig(offspring=0),
                   economy=EconomyConfig(founder_energy=9., winter_every=0))
    one, two = Ecology(host, config), Ecology(host, config)
    give_feedback(one)
    first, other = one.step(), two.step()
    assert one.population.weights_hash() == two.population.weights_hash()
    assert [r for r in first.ledger if r['account'] == 'positive feedback'] and first.feedback[0]['energy'] == .5
    assert first.episodes == other.episodes and one.ledger.audit().balanced


def test_energy_of_feedback_balances_at_both_ends(host):
    "No organelle loses more than it has or holds more than the cap, and feedback is booked before the ticket"
    e = Ecology(host, small(feedback=4., economy=EconomyConfig(cap=10., founder_energy=1., newborn_energy=1.,
                                                               ticket=.5)))
    e.feedback('o1', QUESTION, ANSWER, True)
    e.feedback('o2', QUESTION, ANSWER, False)
    for answer in 'abc': e.feedback('o3', QUESTION, answer, True)
    record = e.step()
    assert [(r['reward'], r['energy']) for r in record.feedback] == [(4., 4.), (-4., -1.), *[(4., 4.)] * 3]
    rows = [(r['organelle'], r['account'], r['amount'], r['balance']) for r in record.ledger]
    good, bad = 'positive feedback', 'negative feedback'
    assert rows[3:9] == [('o1', good, 4., 5.), ('o2', bad, -1., 0.), ('o3', good, 4., 5.), ('o3', good, 4., 9.),
                         ('o3', good, 4., 13.), ('o3', 'overflow', -3., 10.)]
    assert record.row['gates']['strike'] == 1 and e.ledger.audit().balanced
    audit = e.ledger.audit()
    assert audit.mints['positive feedback'] == 16. and audit.sinks['negative feedback'] == 1.


def test_the_last_feedback_on_an_answer_counts_once_also_after_a_checkpoint(host, tmp_path):
    one, two = Ecology(host, small(feedback=1.)), Ecology(host, small(feedback=1.))
    for up in (True, True, False): give_feedback(one, up)
    one.feedback('o2', QUESTION, ANSWER, True)
    read_checkpoint(write_checkpoint(tmp_path, one), two)
    give_feedback(two, False)                     # the restored one has the feedback given before
    for e in (one, two):
        assert e.controls.waiting[1] == 2 and e.controls.waits('o1', QUESTION, ANSWER)
        feedback = e.step().feedback
        assert [(f['organelle'], f['up'], f['reward']) for f in feedback] == [('o1', False, -1.), ('o2', True, 1.)]
        assert not e.controls.waits('o1', QUESTION, ANSWER)
    give_feedback(one)
    assert one.step().feedback, 'a generation later it counts again'


def test_feedback_on_an_organelle_that_has_died_is_kept_without_a_reward(host):
    e = Ecology(host, small(feedback=1.))
    give_feedback(e)
    e.demography.bury('o1', 0, 'test')
    assert e.step().feedback == [dict(generation=0, organelle='o1', prompt=QUESTION, answer=ANSWER, up=True,
                                      reward=None, energy=None)]
    with pytest.raises(ValueError, match="is alive, got 'o1'; known: o2, o3"): give_feedback(e)


@pytest.mark.parametrize('change, message', [
    (dict(organelle='o99'), 'known: o1, o2, o3'), (dict(organelle=['o1']), 'expected an organelle'),
    (dict(organelle='x' * 10**6), 'expected an organelle'), (dict(prompt='x' * 4097), 'at most 4096 characters'),
    (dict(prompt='x' * 2000), 'the context is 512'), (dict(answer='é' * 500), 'the context is 512'),
    (dict(prompt='\ud800'), 'Unicode text'), (dict(answer=None), 'Unicode text'), (dict(prompt=('a',)), 'Unicode'),
    (dict(up=1), 'True or False'), (dict(up='yes'), 'True or False')])
def test_what_could_not_be_learned_from_is_refused_in_one_line(host, change, message):
    population = Population(host, capacity=3, max_rank=1)
    for _ in range(3): population.birth(rank=1, rng=stream(0))
    scratch = Controls(EcologyConfig(), population)
    with pytest.raises(ValueError, match=message) as error:
        scratch.feedback(**dict(organelle='o1', prompt=QUESTION, answer=ANSWER, up=True) | change)
    assert one_line(error) and scratch.waiting == ({}, 0)


def test_feedback_on_an_empty_answer_and_a_long_one_is_recorded(host, tmp_path, monkeypatch):
    e = Ecology(host, small(feedback=1.))
    e.feedback('o1', QUESTION, '', False)
    e.feedback('o1', 'a | <b>\n' * 10, '\x00\x1b[31m', True)
    run = Run.create(tmp_path / 'run', config={}, host={'id': 'tiny'}, seed=0, version='0')
    run.record(e.step())
    assert run.read('feedback').answer.tolist() == ['', '\x00\x1b[31m']
    widest = dict(generation=0, organelle='o1', prompt='🙂' * module._LONGEST, answer='🙂' * module._LONGEST, up=True,
                  reward=1., energy=1.)
    run.append('feedback', [widest])


def test_requests_of_many_threads_are_all_kept(host, monkeypatch):
    monkeypatch.setattr(module, '_MOST', 10**6)
    e, applied, done = Ecology(host, small()), [], threading.Event()
    def press(k):
        for i in range(40):
            e.feedback('o1', f'{k} {i}', ANSWER, True)
            e.turn(ticket=.01 * k)
    threads = [threading.Thread(target=press, args=(k,)) for k in range(5)]
    def empty():
        while not done.is_set(): applied.extend(e.controls.apply(0, e.ledger).feedback)
    emptier = threading.Thread(target=empty)
    for t in (*threads, emptier): t.start()
    for t in threads: t.join()
    done.set()
    emptier.join()
    applied += e.controls.apply(0, e.ledger).feedback
    assert sorted(r['prompt'] for r in applied) == sorted(f'{k} {i}' for k in range(5) for i in range(40))
    own = {k: [r['prompt'] for r in applied if r['prompt'].startswith(f'{k} ')] for k in range(5)}
    assert all(own[k] == [f'{k} {i}' for i in range(40)] for k in own), 'in the order in which they were given'


def test_waiting_feedback_is_limited(host):
    e = Ecology(host, small())
    for i in range(module._MOST): e.feedback('o1', QUESTION, str(i), True)
    e.feedback('o1', QUESTION, '0', False)
    with pytest.raises(ValueError, match='at most 256 answers between two generations'): give_feedback(e)
    e.step()
    give_feedback(e)


# --- a run that is stopped

def recorded(folder): return {table: (folder / f'{table}.jsonl').read_bytes() for table in TABLES if table != 'timings'}


def late_requests(monkeypatch):
    "Requests at the end of a generation, before its checkpoint"
    step = Ecology.step
    def asking(self):
        record = step(self)
        if self.generation == 2:
            self.turn(ticket=.5, prices=2., tau=.1, temperature=.5, winter=4, feedback=.5)
            self.feedback('o1', QUESTION, ANSWER, True)
            self.feedback('o2', QUESTION, ANSWER, False)
        if self.generation == 3: self.turn(winter=0, feedback=0.)
        return record
    monkeypatch.setattr(Ecology, 'step', asking)


def test_requests_that_wait_at_a_kill_are_applied_by_the_resumed_run(host, tmp_path, monkeypatch):
    late_requests(monkeypatch)
    one, two = tmp_path / 'one', tmp_path / 'two'
    with begin_session(one, host, small(), seed=3, every=2) as session: session.live(4, log=None)
    def killed(record):
        if record.row['generation'] == 2: raise KeyboardInterrupt       # that one is run again
    with pytest.raises(KeyboardInterrupt):
        begin_session(two, host, small(), seed=3, every=2).live(4, hooks=[killed], log=None)
    with resume_session(two, host, every=2) as session:
        assert session.ecology.generation == 2 and session.ecology.controls.waiting[1] == 2
        session.live(4, log=None)
    assert recorded(one) == recorded(two) and session.ecology.config == small(), 'the run is what it was begun as'
    assert read(two, 'knobs').generation.tolist() == [2] * 6 + [3] * 2
    assert read(two, 'feedback').reward.tolist() == [.5, -.5]
    assert read(two, 'generations').season.tolist() == ['summer', 'summer', 'winter', 'summer']


def test_a_checkpoint_brings_the_knobs_back_to_every_part(host, tmp_path):
    one, two = Ecology(host, small()), Ecology(host, small())
    one.turn(ticket=.5, prices=2., tau=.1, temperature=.5, winter=4, feedback=.5)
    one.step()
    one.turn(tau=.2)
    read_checkpoint(write_checkpoint(tmp_path, one), two)
    assert two.knobs == one.knobs and two.controls.waiting == one.controls.waiting == ({'tau': .2}, 0)
    assert two.ledger.config == two.prices.config == one.ledger.config and two.ledger.config.ticket == .5
    assert two.demography.config.tau == .1 and two.assimilation.examiner.how == one.assimilation.examiner.how
    assert story(one.step()) == story(two.step()) and two.knobs['tau'] == .2


@pytest.mark.parametrize('wrong', [dict(values={'ticket': -1.}), dict(turns={'winter': 2.5}), dict(values={'x': 1.})])
def test_a_state_that_no_request_can_lead_to_is_refused(host, wrong):
    scratch = Ecology(host, small()).controls
    with pytest.raises((ValueError, KeyError)): scratch.restore(scratch.state() | wrong)


def test_an_answer_behind_solved_questions_is_learned_behind_them(host, tmp_path):
    talk = ('What is 1 + 2?', '3', QUESTION)
    one, two, plain = (Ecology(host, small(feedback=1.)) for _ in range(3))
    one.feedback('o1', talk, ANSWER, True)
    plain.feedback('o1', QUESTION, ANSWER, True)
    state = one.controls.state()
    assert one.controls.waits('o1', talk, ANSWER) and json.loads(json.dumps(state)) == state
    read_checkpoint(write_checkpoint(tmp_path, one), two)
    applied = two.controls.apply(0, two.ledger)
    assert applied.examples[0].prompt == talk and applied.feedback[0]['prompt'] == QUESTION
    first, other = one.step(), plain.step()
    assert first.feedback == other.feedback and one.population.weights_hash() != plain.population.weights_hash()


@pytest.mark.parametrize('prompt', [('a', 'b'), ('a', 1, 'c'), ('a', '\ud800', 'c'), ('a', 'b' * 4097, 'c'), ()])
def test_only_a_conversation_that_ends_with_a_question_can_be_judged(host, prompt):
    e = Ecology(host, small(feedback=1.))
    with pytest.raises(ValueError) as error: e.feedback('o1', prompt, ANSWER, True)
    assert one_line(error) and e.controls.waiting == ({}, 0)


# --- the world

CHANGING = {'cells': ['string.sort:1', 'word.count:1'], 'world': WorldConfig(schedule='recurring', period=3)}


@pytest.fixture
def by_answer(monkeypatch):
    "What chance decides depends on the answer that is right, and so on the world"
    def grade(task, text):
        draws = stream(0, purpose=f'{task.id} {task.answer} {text}').random()
        return Grade(draws > .1, draws if draws > .1 else 0., draws > .6)
    monkeypatch.setattr(Form, 'grade', lambda _, task, text: grade(task, text))


def test_a_hand_changes_the_world_with_the_next_generation_and_the_schedule_goes_on_from_there(host, by_answer):
    e, straight = Ecology(host, small(**CHANGING)), Ecology(host, small(**CHANGING))
    for generation in range(6):
        if generation == 2:
            e.change_world()
            e.change_world()                # asked twice before a generation: once
        assert (story(e.step(), 'knobs') == story(straight.step(), 'knobs')) == (generation < 2)
    assert [e.world.latest(g) for g in range(9)] == [0, 0, 1, 1, 1, 2, 2, 2, 3]
    assert [straight.world.latest(g) for g in range(9)] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert not e.controls.changing and e.controls.state()['world'] == {'changes': [2], 'waits': False}


def test_a_change_by_hand_is_written_down_and_a_change_of_the_schedule_is_not(host):
    e, rows = Ecology(host, small(**CHANGING)), []
    for generation in range(5):
        if generation in (0, 4): e.change_world()
        rows += e.step().knobs
    assert rows == [dict(generation=0, knob='world', value=1., was=0.),
                    dict(generation=4, knob='world', value=3., was=2.)]


def test_a_change_that_waits_or_was_made_is_kept_by_a_checkpoint_bit_for_bit(host, tmp_path, by_answer):
    lived, config = {}, small(**CHANGING)
    for name, stops in (('straight', ()), ('resumed', (2, 3, 5))):
        session = begin_session(tmp_path / name, host, config)
        for generation in range(7):
            if generation in (1, 3): session.ecology.change_world()
            if generation in stops:
                session.save()
                session.close()
                session = resume_session(tmp_path / name, host=host)
            session.step()
        session.save()
        session.close()
        lived[name] = {t: (tmp_path / name / f'{t}.jsonl').read_bytes() for t in TABLES
                       if t != 'timings' and (tmp_path / name / f'{t}.jsonl').exists()}
        assert session.ecology.world.changes == (1, 3)
    assert lived['straight'] == lived['resumed'] and len(read(tmp_path / 'resumed', 'knobs')) == 2


@pytest.mark.parametrize('world,says', [({}, 'got a static one'),
                                        ({'schedule': 'drawn', 'session': 4}, 'got clients that take turns')])
def test_a_world_without_a_next_one_is_not_changed(host, world, says):
    e = Ecology(host, small(**CHANGING | {'world': WorldConfig(**world)}))
    with pytest.raises(ValueError, match=says) as error: e.change_world()
    assert one_line(error) and not e.controls.changing
    assert e.step().knobs == [] and e.world.changes == ()


def test_a_static_world_keeps_the_state_that_it_had(host):
    state = Ecology(host, small()).controls.state()
    assert set(state) == {'values', 'winter', 'turns', 'feedback'}
    before = Ecology(host, small(**CHANGING))
    before.controls.restore(state)          # of a checkpoint from before worlds were changed by hand
    assert before.world.changes == () and not before.controls.changing
