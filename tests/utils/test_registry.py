"""Parts of one's own: what gets a name, what is refused, and that a run does not go on with another part."""
import json
from dataclasses import replace as changed

import numpy as np
import pytest
import torch

from scripted import chance_decides
from evolora.organelles import learning_rules as rules
from evolora.assimilation.merge_test import MergeConfig
from evolora.ecology.config import EcologyConfig
from evolora.economy.market import MarketConfig
from evolora.organelles.learning_rules import RULES, costs_like, learning_flops, local, register_rule
from evolora.tasks.forms import Form
from evolora.organelles.lessons import Lesson
from evolora.ecology.record import hashes_of
from evolora.ecology.ecology import Ecology
from evolora.evaluation.evaluation import evaluate
from evolora.tasks.family import Family
from evolora.assimilation.gates import GATES, Gate, measured, register_gate
from evolora.host.model import tiny_host
from evolora.utils.registry import Parts, fingerprint
from evolora.organelles.updates import PlasticityConfig
from evolora.evaluation.routing import fit_router
from evolora.ecology.run_folder import Run
from evolora.ecology.sessions import begin_session, resume_session
from evolora.tasks.families import CELLS, FAMILIES, ID_CELLS, Cell, grade, register_family
from evolora.tasks.splits import STREAMS, stream_of
from evolora.tasks.task_sets import chance, draw_tasks, read_tasks, task_hashes, write_tasks


@pytest.fixture(autouse=True)
def as_before():
    "Whatever a test registers is gone after it"
    books = FAMILIES, RULES, GATES
    kept, like = [(dict(b), dict(b.own)) for b in books], dict(rules._LIKE)
    yield
    for book, (parts, own) in zip(books, kept):
        book.clear()
        book.update(parts)
        book.own = own
    rules._LIKE.clear()
    rules._LIKE.update(like)


@pytest.fixture(scope='module')
def host(): return tiny_host()


def world(**changes):
    "A small ecology on that host"
    return EcologyConfig(**{'founders': 2, 'capacity': 3, 'cells': ['math:2', 'logic.bool:1'], 'max_new_tokens': 3,
                            'market': MarketConfig(questions=6), 'curriculum': {'copies': 2}} | changes)


class Reverse(Family):
    "Right or wrong, and nothing but `draw`"
    name, longest = 'string.reverse', 7

    def draw(self, rng, depth, difficulty):
        word = ''.join(chr(97 + int(i)) for i in rng.permutation(26)[:depth + 3])
        return self.task(depth, difficulty, f'Turn round: {word}', word[::-1], word=word)


class Graded(Reverse):
    "The same questions, with partial progress"
    def progress(self, value, task): return float(np.mean([a == b for a, b in zip(value.ljust(40), task.answer)]))


def positive(reading, trees, weights, **_): return local(reading, trees, weights.clamp(min=0))
def negative(reading, trees, weights, **_): return local(reading, trees, weights.clamp(max=0))


def rank_of(merging, nominee, leaders):
    return dict(rank=merging.population[nominee].rank, wanted=3, best=next(iter(leaders)))


BROAD = Gate('broad', 'has it room for two?', 'rank', '>=', 'wanted', 'has rank {rank} for {best}, {wanted} expected',
             rank_of)


def one_line(call, *expected):
    with pytest.raises(ValueError) as error: call()
    text = str(error.value)
    assert '\n' not in text and len(text) < 700 and all(s in text for s in expected), text


# --- the book of names

def test_the_library_is_never_replaced():
    for book, part in ((FAMILIES, FAMILIES['math']), (RULES, positive), (GATES, BROAD)):
        for name in (*book.library, *book.reserved):
            before = book.get(name)
            one_line(lambda: book.register(name, part, 'x', replace=True), repr(name), 'which the library has')
            assert book.get(name) is before and name not in book.own


def test_the_same_part_again_is_no_error_and_another_one_is():
    book = Parts('part', {}, 'register')
    book.register('a', 1, 'x')
    book.register('a', 2, 'x')
    assert book['a'] == 2, 'the latest, as when a notebook cell is run again'
    one_line(lambda: book.register('a', 3, 'y'), "'a'", 'replace=True')
    assert book['a'] == 2 and book.own == {'a': 'x'}
    book.register('a', 3, 'y', replace=True)
    assert book['a'] == 3 and book.hashes(['a', 'b']) == {'part a': 'y'}


@pytest.mark.parametrize('name', ['', 'A', 'math:1', 'a+b', 'a b', 'a\n', '../a', 'a' * 41, None, 7, '1a'])
def test_a_name_is_a_name(name): one_line(lambda: Parts('part', {}, '').register(name, 1, 'x'), 'lower-case letters')


STRANGE = ['<script>alert(1)</script>', '\x1b[2J\x1b]0;x\x07', '\u202edesrever', 'two\nlines', 'a' * 10_000, '\ud800',
           '', None, 7]


@pytest.mark.parametrize('name', STRANGE, ids=range(len(STRANGE)))
@pytest.mark.parametrize('faulty', [False, True])
def test_a_hostile_name_is_refused_in_one_plain_line_whatever_else_is_wrong(name, faulty):
    def rule(reading, trees, weights): return {}, {}
    draw = {'draw': lambda self, rng, depth, difficulty: 1 / 0} if faulty else {}
    tries = [lambda: register_family(type('Mine', (Reverse,), {'name': name} | draw)()),
             lambda: register_gate(changed(BROAD, name=name, relation='=' if faulty else '>='))]
    if isinstance(name, str):
        rule.__name__ = name
        tries.append(lambda: register_rule(rule if faulty else changed_name(positive, name)))
    for register in tries:
        with pytest.raises(ValueError, match='lower-case letters') as e: register()
        assert str(e.value).isprintable() and len(str(e.value)) < 300
    assert not FAMILIES.own and not RULES.own and not GATES.own


def changed_name(function, name):
    "The same function with another name"
    def other(*given, **more): return function(*given, **more)
    other.__name__ = name
    return other


def test_a_fingerprint_is_about_the_text():
    assert fingerprint(positive, 1) == fingerprint(positive, 1) != fingerprint(positive, 2)
    assert fingerprint(positive) != fingerprint(negative)
    one_line(lambda: fingerprint(eval('lambda: 1')), 'whose text can be read')


# --- a family

def test_a_family_of_ones_own_is_asked_like_any_other(tmp_path, host):
    before = task_hashes.__wrapped__(), CELLS, ID_CELLS
    assert register_family(Graded()).name in FAMILIES
    cells = [Cell.parse(f'string.reverse:{d}') for d in (1, 2, 3, 4)]
    for name in STREAMS:
        tasks = draw_tasks(cells, stream=name, n=80)
        assert len({t.id for t in tasks}) == 80 and {stream_of(t) for t in tasks} == {name}
        assert all(grade(t, t.answer).success and not grade(t, t.answer[::-1]).success for t in tasks)
    assert read_tasks(write_tasks(tasks, tmp_path / 'x')) == tasks
    assert 0 < chance(cells[0]) < .01
    assert evaluate(host, tasks[:8]).accuracy == 0
    assert (task_hashes.__wrapped__(), CELLS, ID_CELLS) == before, 'results without it stay comparable'


def test_a_router_knows_the_family(host):
    register_family(Reverse())
    e = Ecology(host, world(cells=['string.reverse:1', 'math:1']))
    tasks = draw_tasks([Cell('string.reverse', 1), Cell('math', 1)], stream='selection', n=24)
    router = fit_router(e.population, tasks)
    assert set(router.table) <= {'string.reverse', 'math'} and len(router.route(tasks)) == 24
    assert type(router).model_validate_json(router.model_dump_json()) == router
    del FAMILIES['string.reverse']
    with pytest.raises(ValueError, match='register_family'): type(router).model_validate_json(router.model_dump_json())


def family(**methods): return type('Mine', (Reverse,), {'name': 'mine'} | methods)()


@pytest.mark.parametrize('bad, expected', [
    (family(draw=lambda self, rng, depth, difficulty: 'Say hello'), 'return self.task'),
    (family(draw=lambda self, rng, depth, difficulty: Reverse.draw(self, rng, 1, difficulty)), 'its own depth'),
    (family(draw=lambda self, rng, depth, difficulty: self.task(depth, 0, 'a' * 2000, 'b')), '1 to 1000 characters'),
    (family(draw=lambda self, rng, depth, difficulty: self.task(depth, 0, 'two\nlines', 'b')), 'one printable line'),
    (family(draw=lambda self, rng, depth, difficulty: self.task(depth, 0, 'say', 'b' * 9)), '1 to 7 characters'),
    (family(draw=lambda self, rng, depth, difficulty: self.task(depth, 0, 'say', '')), '1 to 7 characters'),
    (family(draw=lambda self, rng, depth, difficulty: self.task(depth, 0, f'say {rng.integers(9)}', 'b')),
     '300 different questions'),
    (family(draw=lambda self, rng, depth, difficulty: Reverse.draw(self, np.random.default_rng(), depth, 0)),
     'the same seed'),
    (family(draw=lambda self, rng, depth, difficulty: self.task(depth, 0, f'say {rng.integers(10**6)}', 'b', x={1})),
     'TypeError'),
    (family(draw=lambda self, rng, depth, difficulty: 1 / 0), 'ZeroDivisionError'),
    (family(read=lambda self, line, task: None), 'gold answer'),
    (family(progress=lambda self, value, task: .5), 'gold answer'),
    (family(progress=lambda self, value, task: 1. if value == task.answer else -.1), 'from 0 to 1'),
    (family(progress=lambda self, value, task: 1. if value == task.answer else float('nan')), 'from 0 to 1'),
    (family(progress=lambda self, value, task: float(value[3] == task.answer[3])), 'IndexError'),
    (family(read=lambda self, line, task: line, progress=lambda self, value, task: float(value in task.answer)),
     'empty reply'),
    (Reverse, 'register Mine()'), ('string.reverse', 'register Mine()')])
def test_a_fault_of_a_family_is_named_and_nothing_is_registered(bad, expected):
    one_line(lambda: register_family(bad), expected)
    assert not FAMILIES.own


def test_a_family_that_asks_or_scores_otherwise_is_another_one():
    register_family(Reverse())
    register_family(Reverse())
    one_line(lambda: register_family(Graded()), "'string.reverse'", 'replace=True')
    first = FAMILIES.own['string.reverse']
    register_family(Graded(), replace=True)
    assert FAMILIES.own['string.reverse'] != first


# --- a rule

def test_a_rule_of_ones_own_teaches(host, monkeypatch):
    register_rule(positive, costs='local')
    assert costs_like('positive') == 'local' and costs_like('node') == 'node'
    monkeypatch.setattr(Form, 'grade', lambda _, task, text: chance_decides(task, text))
    def after(rule):
        e = Ecology(host, world(plasticity=PlasticityConfig(rule=rule, warmup=0)))
        e.run(2, log=None)
        return e.population.weights_hash(), sum(r.row['gflops']['learn'] for r in e.history)
    (mine, mine_cost), (usual, usual_cost), (none, _) = (after(r) for r in ('positive', 'local', 'none'))
    assert len({mine, usual, none}) == 3 and mine_cost > 0 < usual_cost
    assert after('positive')[0] == mine


def shape(reading, trees, weights, **_):
    A, B = local(reading, trees, weights)
    return A, {n: x[:, :1] for n, x in B.items()}


def nothing(reading, trees, weights, **_): return {}, {}
def nan(reading, trees, weights, **_): return tuple({n: x * torch.nan for n, x in h.items()} for h in
                                                    local(reading, trees, weights))
def none(reading, trees, weights, **_): return local(reading, trees, weights)
def closed(reading, trees, weights): return local(reading, trees, weights)
def single(reading, trees, weights, **_): return local(reading, trees, weights)[1]


@pytest.mark.parametrize('rule, expected', [
    (shape, 'in shape'), (nothing, 'for each of'), (nan, 'finite'), (none, 'which the library has'),
    (closed, "'rng'"), (single, 'two dictionaries'), (local, 'which the library has'), ('local', 'a function')])
def test_a_fault_of_a_rule_is_named(rule, expected):
    one_line(lambda: register_rule(rule), expected)
    assert not RULES.own and not rules._LIKE


def test_an_unknown_rule_is_refused_by_the_configuration():
    with pytest.raises(ValueError, match='register_rule'): PlasticityConfig(rule='positive')
    for rule in ('es', 'none', 'local'): assert PlasticityConfig(rule=rule).rule == rule


# --- a gate

@pytest.mark.parametrize('gate, expected', [
    (changed(BROAD, measure=None), 'a measure'), (changed(BROAD, name='no_pair'), 'which the library has'),
    (changed(BROAD, name='took_over'), 'which the library has'), (changed(BROAD, relation='='), 'one of >=, >, <'),
    (changed(BROAD, name='Broad'), 'lower-case'), ('broad', 'a measure')])
def test_a_fault_of_a_gate_is_named(gate, expected):
    one_line(lambda: register_gate(gate), expected)
    assert not GATES.own


@pytest.mark.parametrize('numbers, expected', [
    (None, "'rank' and 'wanted'"), ({'rank': 2}, "'rank' and 'wanted'"),
    ({'rank': float('inf'), 'wanted': 3, 'best': ''}, 'finite'), ({'rank': None, 'wanted': 3, 'best': ''}, 'finite'),
    ({'rank': 2, 'wanted': 3}, 'its sentence'), ({'rank': [2], 'wanted': 3, 'best': ''}, 'finite')])
def test_numbers_that_cannot_be_kept_are_refused(numbers, expected):
    register_gate(changed(BROAD, measure=lambda *about: numbers))
    one_line(lambda: measured('broad'), 'gate broad', expected)


def test_a_configuration_names_known_gates_of_ones_own_once():
    register_gate(BROAD)
    assert MergeConfig(gates=['broad']).gates == ['broad']
    for gates, expected in ((['broad', 'broad'], 'each gate once'), (['no_pair'], 'asked anyway'),
                        (['slim'], 'register_gate')):
        with pytest.raises(ValueError, match=expected): MergeConfig(gates=gates)


# --- a run with all three

def own_world(**changes):
    return world(cells=['string.reverse:1', 'math:1'], plasticity=PlasticityConfig(rule='positive'),
                 merging=dict(gates=['broad']), **changes)


def test_a_run_goes_on_with_the_same_parts_alone(tmp_path, host):
    def register(): return register_family(Reverse()), register_rule(positive), register_gate(BROAD)
    register()
    with begin_session(tmp_path / 'run', host, own_world(), every=1) as session: session.live(2, log=None)
    run = Run.open(tmp_path / 'run')
    own = {k for k in run.hashes if k not in hashes_of(host)} - {'config'}
    assert own == {'task family string.reverse', 'rule positive', 'gate broad'}
    assert {r['family'] for r in run.rows('episodes')} == {'string.reverse', 'math'}
    def go_on():
        with resume_session(tmp_path / 'run', host) as session: return session.ecology.generation
    assert go_on() == 2
    for book, name, other in ((FAMILIES, 'string.reverse', lambda: register_family(Graded(), replace=True)),
                              (RULES, 'positive', lambda: register_rule(positive, costs='hebbian', replace=True)),
                              (GATES, 'broad', lambda: register_gate(changed(BROAD, question='else?'), replace=True))):
        other()
        one_line(go_on, f'{name} was', 'parts of your own')
        del book[name], book.own[name]
        one_line(go_on, repr(name), book.how)
        register()
        assert go_on() == 2
    assert hashes_of(host) == {k: v for k, v in Ecology(host, own_world()).hashes().items() if k not in own}


def test_the_rest_of_a_process_does_not_change_a_run(host):
    def lived():
        e = Ecology(host, world(), seed=3)
        e.run(2, log=None)
        return e.population.weights_hash(), e.hashes()
    before = lived()
    register_family(Reverse())
    register_rule(positive)
    register_gate(BROAD)
    assert lived() == before


def test_flops_of_a_rule_of_ones_own_are_those_it_names(host):
    register_rule(negative, costs='backprop')
    population = Ecology(host, world()).population
    lesson = Lesson(['ab'], [[70, 1]], [population.ids[0]], [1.])
    assert learning_flops(population, lesson, 'negative') == learning_flops(population, lesson, 'backprop')
