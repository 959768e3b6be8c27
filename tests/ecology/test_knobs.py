"""Settings and feedback in a running ecology: nothing changes half-way, all is recorded, a resumed run keeps it."""
import json
import math
import threading
from fractions import Fraction

import numpy as np
import pytest
from pydantic import ValidationError

from evolora.ecology import knobs as module
from evolora.ecology.checkpoint_files import read_checkpoint, write_checkpoint
from evolora.ecology.config import EcologyConfig
from evolora.ecology.ecology import Ecology
from evolora.ecology.knobs import KNOBS, Controls, Knob
from evolora.ecology.run_folder import TABLES, Run, read
from evolora.ecology.serving import Serving
from evolora.ecology.sessions import begin_session, resume_session
from evolora.ecology.succession import Succession
from evolora.ecology.variation import VariationConfig
from evolora.economy.market import MarketConfig
from evolora.host.model import tiny_host
from evolora.organelles.learning_rules import RULES
from evolora.organelles.population import Population
from evolora.organelles.updates import Plasticity, PlasticityConfig
from evolora.tasks.curriculum import CurriculumConfig
from evolora.tasks.family import Grade
from evolora.tasks.forms import Form
from evolora.tasks.worlds import WorldConfig
from evolora.utils.randomness import stream

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
    "A world in which several organelles answer, learn and have children"
    sections = dict(market=MarketConfig(questions=8, contest=0., protect=0), curriculum=CurriculumConfig(copies=2),
                    variation=VariationConfig(every=2))
    return EcologyConfig(**dict(founders=3, capacity=6, cells=['math:1', 'logic.bool:1'], max_new_tokens=3)
                         | sections | changes)


def story(record, *without):
    return {name: rows for name, rows in record.tables.items() if name not in ('timings', *without)}


def one_line(error): return '\n' not in str(error.value) and len(str(error.value)) < 300


# --- knobs

def test_a_bound_that_is_open_is_said_and_kept():
    knob = lambda *bounds: Knob('a', 'b', 'c', *bounds)
    words = {knob(0.): 'of at least 0', knob(0., math.inf, True): 'above 0', knob(0., 2.): 'from 0 to 2',
             knob(0., 1., True): 'above 0 and at most 1', knob(0., 1., False, True): 'of at least 0 and below 1',
             knob(0., 1., True, True): 'above 0 and below 1'}
    assert all(k.bounds == f'a number {text}' for k, text in words.items())
    for k in words:
        assert k.takes(k.low) != k.above and not k.takes(-1e-9) and k.takes(1e-9)
        assert not k.takes(math.inf) and not k.takes(math.nan)
        if k.high < math.inf: assert k.takes(k.high) != k.below and not k.takes(k.high + 1e-9)


@pytest.mark.parametrize('name', KNOBS)
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
    ends = [math.nextafter(high, 0), high, math.nextafter(high, math.inf)] if high < math.inf else []
    taken = 0
    for value in [0., -5e-324, 5e-324, -1., 1, .5, 1.9, math.nan, True, '1', None, *ends]:
        if fits(value):
            scratch.turn(**{name: value})
            taken += 1
        else:
            with pytest.raises(ValueError, match=f'{name} expected a number .* got .*nothing was turned') as error:
                scratch.turn(**{name: value})
            assert one_line(error)
    assert taken >= 3


@pytest.mark.parametrize('wrong', [dict(tau=2.1), dict(bet=0.), dict(newborn=1.), dict(bet=True), dict(contest=-.1),
                                   dict(temperature=math.inf), dict(temperature=10**400), dict(even='much'),
                                   dict(even=[.1]), dict(energy=1.), {'a' * 10**6: 1.}])
def test_if_one_value_is_wrong_nothing_is_turned(host, wrong):
    scratch = Controls(EcologyConfig(), Population(host, capacity=1))
    scratch.turn(tau=.1)
    before = scratch.state()
    with pytest.raises(ValueError, match='nothing was turned') as error: scratch.turn(**dict(feedback=2.) | wrong)
    assert one_line(error) and scratch.state() == before and scratch.waiting == ({'tau': .1}, 0)


def test_numbers_of_numpy_are_numbers(host):
    e = Ecology(host, small())
    e.turn(contest=np.float32(.5), tau=np.float64(.25), feedback=np.int64(2), temperature=Fraction(3, 2))
    assert e.controls.waiting == (dict(contest=.5, tau=.25, feedback=2., temperature=1.5), 0)
    assert {type(x) for x in e.controls.waiting[0].values()} == {float}
    with pytest.raises(ValueError, match='expected a knob to turn'): e.turn()


def lived(host, generations=1, turned=None, **changes):
    "An ecology with some knobs turned before its first generation, and its records"
    e, records = Ecology(host, small(**dict(founders=2) | changes)), []
    if turned: e.turn(**turned)
    for _ in range(generations): records.append(e.step())
    return e, records


def test_a_turned_temperature_makes_copies_alike(host):
    words = {}
    for turned in (None, {'temperature': .01}):
        e, records = lived(host, turned=turned)
        found = {}
        for x in records[0].episodes: found.setdefault((x['organelle'], x['task']), []).append(x['answer'])
        words[bool(turned)] = [len(set(texts)) for texts in found.values() if len(texts) > 1]
    assert max(words[True]) == 1 < max(words[False]) and e.examiner.how['temperature'] == .01


def test_a_turned_contest_leaves_the_questions_to_one(host):
    "In each family and round; at 0 all answer as often as they are believed"
    most = {}
    for turned in (None, {'contest': 1.}):
        found = {}
        for e in lived(host, turned=turned, market=MarketConfig(questions=16, contest=0., newborn=.5,
                                                                               round=8))[1][0].episodes:
            found.setdefault(e['family'], []).append(e['organelle'])
        most[bool(turned)] = max(len(set(who[:8])) for who in found.values())
    assert most == {False: 2, True: 1}


@pytest.mark.parametrize('name, value, less', [('bet', .05, True), ('even', .5, False)])
def test_smaller_bets_move_stakes_less_and_a_larger_share_evens_them_out(host, name, value, less):
    quiet = dict(market=MarketConfig(questions=8, contest=0., even=0., recruit=False), plasticity=PlasticityConfig(
        rule='none'), variation=VariationConfig(every=0), founder_step=1.)
    (plain, _), (turned, _) = lived(host, **quiet), lived(host, turned={name: value}, **quiet)
    begun = Ecology(host, small(founders=2, **quiet)).market.balances
    moved = lambda e: sum(abs(x - begun[id]) for id, x in e.market.balances.items())
    apart = lambda e: max(e.market.balances.values()) - min(e.market.balances.values())
    if less: assert 0 < moved(turned) < moved(plain) / 2
    else: assert apart(turned) < apart(plain) and apart(turned) < .5
    assert turned.market.audit().balanced


def test_a_turned_share_of_the_newborn_is_what_a_recruit_begins_with(host):
    for turned, share in ((None, .1), ({'newborn': .5}, .5)):
        e, (record,) = lived(host, turned=turned)
        recruit = [r['organelle'] for r in record.lineage if r['reason'] == 'recruit']
        begun = [r['amount'] for r in record.ledger if r['organelle'] in recruit and r['reason'] == 'birth']
        assert begun == [pytest.approx(share)]


def test_without_a_spread_children_have_the_traits_of_their_parents(host):
    for turned in ({'tau': 2.}, {'tau': 0.}):
        _, records = lived(host, 4, turned, variation=VariationConfig(every=1))
        rows = [r for record in records for r in record.lineage if r['event'] == 'birth']
        traits = {r['organelle']: r['traits'] for r in rows}
        same = lambda r: all(r['traits'][k] == traits[r['parents'][0]][k] for k in ('step', 'plasticity'))
        kin = [same(r) for r in rows if r['parents']]
        assert kin and (all(kin) if not turned['tau'] else not any(kin))


def test_values_are_what_holds_and_not_what_waits(host):
    e = Ecology(host, small())
    begun = {name: module._at(small(), knob.field) for name, knob in KNOBS.items()}
    e.turn(contest=.25)
    assert e.knobs == begun
    e.step()
    assert e.knobs == begun | {'contest': .25}


def test_the_configuration_stays_and_the_record_has_each_change_once(host):
    config = small()
    e = Ecology(host, config)
    e.turn(contest=.5)
    e.turn(contest=0., tau=.3)          # as it was
    e.turn(even=.25)
    e.turn(even=.125, feedback=1)
    assert e.step().knobs == [dict(generation=0, knob='even', value=.125, was=.02),
                              dict(generation=0, knob='feedback', value=1., was=0.)]
    assert e.step().knobs == [] and e.config is config and e.controls.values()['even'] == .125


def test_a_generation_under_way_does_not_see_new_requests(host, monkeypatch):
    "From another thread, at every part of it"
    one, two, parts = Ecology(host, small()), Ecology(host, small()), iter(range(99))
    def asking(owner, name):
        part = getattr(owner, name)
        def call(self, *args, **how):
            if (self if owner is Ecology else self.ecology) is one and one.generation == 1:
                values = dict(temperature=.5 + next(parts) / 64, contest=1., bet=.5, even=.25, newborn=.5, tau=0.,
                              feedback=1.)
                asked = threading.Thread(target=lambda: (one.turn(**values),
                                                         one.feedback('o1', QUESTION, name, True)))
                asked.start()
                asked.join()
            return part(self, *args, **how)
        monkeypatch.setattr(owner, name, call)
    places = [*((Ecology, n) for n in ('_play', '_ask', '_grade', '_learn', '_merge', '_adapt', '_record')),
              *((Serving, n) for n in ('rounds', 'settle', 'renew')), (Succession, 'step')]
    for place in places: asking(*place)
    for _ in range(2): assert story(one.step()) == story(two.step())
    record = one.step()
    assert {r['knob']: r['value'] for r in record.knobs} == dict(
        temperature=.5 + (next(parts) - 1) / 64, contest=1., bet=.5, even=.25, newborn=.5, tau=0., feedback=1.)
    assert len(record.feedback) == len(places) and story(record) != story(two.step())


# --- human feedback

def give_feedback(e, up=True): e.feedback('o1', QUESTION, ANSWER, up)


def test_without_a_weight_feedback_is_only_recorded(host):
    one, two = Ecology(host, small()), Ecology(host, small())
    give_feedback(one)
    one.feedback('o1', QUESTION, 'False', False)
    first, other = one.step(), two.step()
    assert story(first, 'feedback') == story(other, 'feedback') and other.feedback == []
    assert one.population.weights_hash() == two.population.weights_hash()
    assert first.feedback == [dict(generation=0, organelle='o1', prompt=QUESTION, answer=answer, up=up, reward=0.)
                              for answer, up in ((ANSWER, True), ('False', False))]
    assert math.copysign(1., first.feedback[1]['reward']) == 1.


def chance(e, id):
    "Log-probability of the answer"
    population = e.population
    return sum(float(t.logprobs.sum()) for t in population.forward([QUESTION], [e.controls._tokens(ANSWER)], [id]))


@pytest.mark.parametrize('rule', RULES)
def test_every_rule_learns_from_positive_and_negative_feedback(host, monkeypatch, rule):
    "All answers of a generation have the same reward, so that feedback alone is a lesson"
    monkeypatch.setattr(Form, 'grade', lambda *_: Grade(True, 0., False))
    targets, found = ['o_proj', 'down_proj'], {}
    for up in (True, False):
        e = Ecology(host, small(feedback=1., targets=targets, plasticity=PlasticityConfig(rule=rule, learning_rate=.1),
                                variation=VariationConfig(every=0), market=MarketConfig(questions=4, recruit=False)))
        for _ in range(4):
            give_feedback(e, up)
            record = e.step()
            assert record.feedback[0]['reward'] == (1. if up else -1.)
        assert record.row['gflops']['learn'] > 0
        found[up] = chance(e, 'o1')
    assert found[True] > chance(Ecology(host, small(targets=targets)), 'o1') > found[False]


@pytest.mark.parametrize('rule', ['es', 'none'])
def test_a_rule_that_learns_from_no_given_answers_only_records_feedback(host, rule):
    config = small(feedback=.5, plasticity=PlasticityConfig(rule=rule, pairs=1))
    one, two = Ecology(host, config), Ecology(host, config)
    give_feedback(one)
    first, other = one.step(), two.step()
    assert one.population.weights_hash() == two.population.weights_hash()
    assert first.feedback[0]['reward'] == 0. and story(first, 'feedback') == story(other, 'feedback')


def test_feedback_moves_no_stakes_and_is_learned_from_once_in_a_generation(host, monkeypatch):
    e, lessons = Ecology(host, small(feedback=.5, market=MarketConfig(questions=12, round=2, learn_every=1))), []
    learn = Plasticity.learn
    monkeypatch.setattr(Plasticity, 'learn', lambda self, lesson, **how: lessons.append(lesson) or learn(
        self, lesson, **how))
    give_feedback(e)
    before = e.market.state()
    applied = e.controls.apply(0)
    assert e.market.state() == before and len(applied.examples) == 1
    give_feedback(e)
    record = e.step()
    judged = [[i for i, prompt in enumerate(x.prompts) if prompt == QUESTION] for x in lessons]
    assert len(lessons) == 6 and list(map(len, judged)) == [1, 0, 0, 0, 0, 0]
    assert [lessons[0].advantage[i] for i in judged[0]] == [.5] and record.feedback[0]['reward'] == .5
    assert {r['reason'] for r in record.ledger} <= {'bet', 'share', 'birth', 'death', 'merge'}


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
                                      reward=None)]
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
    assert run.table('feedback').answer.tolist() == ['', '\x00\x1b[31m']
    widest = dict(generation=0, organelle='o1', prompt='🙂' * module._LONGEST, answer='🙂' * module._LONGEST, up=True,
                  reward=1.)
    run.append('feedback', [widest])


def test_requests_of_many_threads_are_all_kept(host, monkeypatch):
    monkeypatch.setattr(module, '_MOST', 10**6)
    e, applied, done = Ecology(host, small()), [], threading.Event()
    def press(k):
        for i in range(40):
            e.feedback('o1', f'{k} {i}', ANSWER, True)
            e.turn(contest=.01 * k)
    threads = [threading.Thread(target=press, args=(k,)) for k in range(5)]
    def empty():
        while not done.is_set(): applied.extend(e.controls.apply(0).feedback)
    emptier = threading.Thread(target=empty)
    for t in (*threads, emptier): t.start()
    for t in threads: t.join()
    done.set()
    emptier.join()
    applied += e.controls.apply(0).feedback
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
            self.turn(temperature=.5, contest=.25, bet=.75, even=.1, newborn=.2, tau=.1, feedback=.5)
            self.feedback('o1', QUESTION, ANSWER, True)
            self.feedback('o2', QUESTION, ANSWER, False)
        if self.generation == 3: self.turn(contest=1., feedback=0.)
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
    assert read(two, 'knobs').generation.tolist() == [2] * 7 + [3] * 2
    assert read(two, 'feedback').reward.tolist() == [.5, -.5]


def test_a_checkpoint_brings_the_knobs_back_to_every_part(host, tmp_path):
    one, two = Ecology(host, small()), Ecology(host, small())
    one.turn(temperature=.5, contest=.25, bet=.75, even=.1, newborn=.2, tau=.1, feedback=.5)
    one.step()
    one.turn(tau=.2)
    read_checkpoint(write_checkpoint(tmp_path, one), two)
    assert two.controls.values() == one.controls.values()
    assert two.controls.waiting == one.controls.waiting == ({'tau': .2}, 0)
    assert two.market.config == one.market.config and two.market.config.bet == .75
    assert two.demography.config.tau == .1 and two.examiner.how == one.examiner.how
    assert story(one.step()) == story(two.step()) and two.controls.values()['tau'] == .2


@pytest.mark.parametrize('wrong', [dict(values={'bet': 0.}), dict(turns={'even': 2.5}), dict(values={'x': 1.})])
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
    applied = two.controls.apply(0)
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


def test_a_static_world_has_no_state(host):
    one, two = Controls(small(), Population(host, capacity=1)), Controls(small(), Population(host, capacity=1))
    state = one.state()
    assert set(state) == {'values', 'turns', 'feedback'}
    two.restore(state)
    assert two.world.changes == () and not two.changing and two.state() == state
