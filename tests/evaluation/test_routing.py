"""What no lesson shows of `routing`: which organelle is chosen, what is refused, and what a hostile file may hold."""
import json
import math

import numpy as np
import pandas as pd
import pytest

from actors import BOTH, GOLD, MATH, SORT, Actors, specialists, wrong_lines
from evolora.ecology.config import load_config
from evolora.ecology.ecology import Ecology
from evolora.evaluation import routing
from evolora.evaluation.evaluation import evaluate, answer_all, holdout
from evolora.tasks.forms import FORMS
from evolora.host.model import tiny_host
from evolora.organelles.population import Population
from evolora.evaluation.routing import Router, _advantage, believed_router, fit_router
from evolora.tasks.families import CELLS, Cell
from evolora.tasks.splits import STREAMS, stream_of
from evolora.tasks.task_sets import draw_tasks


def test_specialists_are_found():
    actors = Actors(specialists)
    router = fit_router(actors, BOTH)
    assert router.table == {'math': 'o1', 'string.sort': 'o2'} and router.best == 'o1'
    assert (router.answers, router.gflops) == (48, answer_all(actors, BOTH).gflops.sum())
    assert set(router.fitted) == {t.id for t in BOTH}
    fresh = [t for t in holdout(240) if t.family in ('math', 'string.sort')]
    e = evaluate(actors, fresh, router=router)
    assert e.accuracy == 1 and e.name == 'routed by family' and set(e.answers.organelle) == {'o1', 'o2'}
    assert evaluate(actors, fresh, 'o1').accuracy < 1


def test_answers_at_hand_are_not_asked_again_but_still_paid():
    actors = Actors(specialists)
    rows = answer_all(actors, BOTH)
    actors.asked.clear()
    shuffled = fit_router(actors, BOTH, answers=rows.sample(frac=1, random_state=0))
    assert shuffled == fit_router(Actors(specialists), BOTH) and not actors.asked


def test_the_unknown_goes_to_the_best_lower_bound():
    def reply(id, prompt, seed): return GOLD[prompt] if id == 'o2' or prompt.startswith('What') else 'x'
    router = fit_router(Actors(reply), BOTH)
    assert router.best == 'o2' and router.route(holdout(8, kind='ood_family')) == ['o2'] * 8
    assert router.table == {'math': 'o2', 'string.sort': 'o2'}
    assert fit_router(Actors(reply), BOTH, prior=0).table['math'] == 'o2'    # equal at sums: the better one overall


def test_between_equals_the_oldest_and_before_it_the_host():
    equal = Actors(lambda id, prompt, seed: GOLD[prompt])
    assert fit_router(equal, BOTH).best == 'o1'
    router = fit_router(equal, BOTH, host=True)
    assert router.best is None and router.route(BOTH) == [None] * 24


def test_practice_in_a_family_counts_until_answers_show_otherwise():
    "o1 is the better one overall and in sums; o2 practises sums"
    def reply(id, prompt, seed): return GOLD[prompt] if id == 'o1' or prompt != MATH[0].prompt else 'x'
    few = MATH[:4] + SORT[:4]                   # o1 solves all, o2 all but one of the sums
    at_home = Actors(reply, niches={'o2': 'math'})
    assert fit_router(at_home, few, home=.3).table == {'math': 'o2', 'string.sort': 'o1'}
    assert fit_router(at_home, few, home=0).table == fit_router(Actors(reply), few).table == dict.fromkeys(
        ('math', 'string.sort'), 'o1')
    assert fit_router(at_home, few, prior=0).table['math'] == 'o1'
    assert fit_router(at_home, few).best == 'o1'            # a belief about one family is none about others
    never = Actors(lambda id, prompt, seed: GOLD[prompt] if id == 'o1' else 'x', niches={'o2': 'math'})
    assert fit_router(never, BOTH).table['math'] == 'o1'


def test_shrinking_beats_chance_in_one_family():
    "o1 is right in all but one of 24; o2 got the one sorting task more, and nothing else"
    def reply(id, prompt, seed):
        at_home = prompt == SORT[0].prompt
        return GOLD[prompt] if (id == 'o2') == at_home or (id == 'o2' and prompt in few) else 'x'
    few = {t.prompt for t in SORT}
    actors, tasks = Actors(reply), MATH + SORT[:2]
    # sorting: o1 solves 1 of 2, o2 solves 2 of 2; overall 13 and 2 of 14
    assert fit_router(actors, tasks, prior=0).table == {'math': 'o1', 'string.sort': 'o2'}
    shrunk = lambda s, overall, m: (s + m * overall) / (2 + m)
    for m, winner in ((1, 'o2'), (2, 'o1'), (20, 'o1')):
        assert (shrunk(2, 2 / 14, m) > shrunk(1, 13 / 14, m)) == (winner == 'o2')
        assert fit_router(actors, tasks, prior=m).table['string.sort'] == winner


def test_a_router_by_cell_falls_back_twice():
    cells = [Cell('math', 1), Cell('math', 2), Cell('string.sort', 1)]
    tasks = draw_tasks(cells, stream='selection', n=60)
    gold = {t.prompt: (t.answer, t.family, t.depth) for t in tasks}
    knows = {'o1': {('math', 1)}, 'o2': {('math', 2), ('string.sort', 1)}}
    actors = Actors(lambda id, prompt, seed: gold[prompt][0] if gold[prompt][1:] in knows[id] else 'x')
    router = fit_router(actors, tasks, by='cell')
    assert router.table == {'math:1': 'o1', 'math:2': 'o2', 'string.sort:1': 'o2', 'math': 'o2', 'string.sort': 'o2'}
    assert router.best == 'o2'
    made = Router(**router.model_dump() | {'table': {'math:1': 'o1', 'math': 'o2'}, 'best': 'o1'})
    ask = [draw_tasks([c], stream='holdout', n=1)[0] for c in (Cell('math', 1), Cell('math', 4), Cell('word.count', 1))]
    assert made.route(ask) == ['o1', 'o2', 'o1']
    assert fit_router(actors, tasks).table == {'math': 'o2', 'string.sort': 'o2'}    # the cells are out of sight


def test_a_cell_believes_its_family_first():
    "Both solve math:1; o2 is better at sums, and o1 overall"
    cells = {Cell('math', 1): ('o1', 'o2'), Cell('math', 2): ('o2',), Cell('string.sort', 1): ('o1',)}
    tasks = [t for c, n in zip(cells, (4, 20, 30)) for t in draw_tasks([c], stream='selection', n=n)]
    gold = {t.prompt: (t.answer, cells[t.family, t.depth]) for t in tasks}
    router = fit_router(Actors(lambda id, prompt, seed: gold[prompt][0] if id in gold[prompt][1] else 'x'), tasks,
                        by='cell')
    assert router.best == 'o1' and router.table['math:1'] == 'o2' == router.table['math']


@pytest.mark.parametrize('stream', [s for s in STREAMS if s != 'selection'])
def test_a_router_is_fitted_on_selection_tasks(stream):
    alien = draw_tasks([Cell('math', 1)], stream=stream, n=1)
    message = wrong_lines(lambda: fit_router(Actors(specialists), MATH + alien))
    assert f'got 1 others, the first one from the {stream} stream' in message


def test_what_a_router_saw_is_no_measurement():
    router = fit_router(Actors(specialists), BOTH)
    fresh = [t for t in holdout(48) if t.family == 'math']
    assert 'got 1 of 7' in wrong_lines(lambda: evaluate(Actors(specialists), [*fresh, MATH[3]], router=router))


def test_a_router_belongs_to_its_population():
    actors = Actors(specialists)
    router = fit_router(actors, BOTH)
    actors.weights_hash = lambda: 'cd' * 32
    fresh = [t for t in holdout(48) if t.family == 'math']
    assert 'got other weights; fit it again' in wrong_lines(lambda: evaluate(actors, fresh, router=router))
    assert 'an organelle or a router' in wrong_lines(lambda: evaluate(actors, fresh, 'o1', router=router))


@pytest.mark.parametrize('how, message', [
    (dict(by='depth'), "by expected 'family' or 'cell', got 'depth'"), (dict(prior=-1), 'prior expected 0 or more'),
    (dict(prior=math.inf), 'prior expected 0 or more'), (dict(home=2), 'home expected a share'),
    (dict(level=2), 'level expected'),
    (dict(answers=answer_all(Actors(specialists), BOTH[:-1])), 'expected 48 answers, got 46'),
    (dict(answers=pd.concat([answer_all(Actors(specialists), BOTH)] * 2)), 'got another of o1'),
    (dict(answers=answer_all(Actors(specialists), BOTH, host=True)), 'got another of the host'),
    (dict(answers=answer_all(Actors(specialists), BOTH), host=True), 'expected 72 answers, got 48'),
    (dict(answers=answer_all(Actors(specialists), BOTH), seed=1), 'expected answers or seed, got both'),
    (dict(answers=answer_all(Actors(specialists), BOTH).drop(columns='task')), "none named 'task'"),
])
def test_bad_fits(how, message): assert message in wrong_lines(lambda: fit_router(Actors(specialists), BOTH, **how))


def test_only_organelles_can_be_routed_to():
    assert 'expected a Population, got Host' in wrong_lines(lambda: fit_router(tiny_host(), BOTH, host=True))
    assert 'got none' in wrong_lines(lambda: fit_router(Actors(specialists, ids=[]), BOTH))


def test_the_stream_can_be_read_off_the_id():
    for name in STREAMS:
        for t in draw_tasks(CELLS, stream=name, n=80): assert routing._stream_of_id(t.id) == name == stream_of(t)


def test_a_router_survives_the_disk(tmp_path):
    for router in (fit_router(Actors(specialists), BOTH, by='cell'), fit_router(Actors(specialists), BOTH, host=True)):
        path = router.save(tmp_path / f'{router.by}.json')
        assert Router.load(path) == router and json.loads(path.read_text())['format'] == 'evolora.router.1'
        assert 'not overwritten' in wrong_lines(lambda: router.save(path))
    assert 'No such file' in wrong_lines(lambda: Router.load(tmp_path / 'none.json'))
    assert 'cannot write' in wrong_lines(lambda: router.save(tmp_path / 'no' / 'folder.json'))
    assert 'cannot write' in wrong_lines(lambda: router.save(tmp_path / ('x' * 300)))
    assert 'expected a file, got a folder' in wrong_lines(lambda: Router.load(tmp_path))


HOSTILE = {
    'no JSON': lambda r: '{"by": ', 'a list': lambda r: '[]', 'nothing': lambda r: '', 'deep': lambda r: '[' * 100_000,
    'bytes': lambda r: b'\xff\xfe', 'unknown key': lambda r: r | {'a\nb': 1}, 'missing key': lambda r: {'by': 'family'},
    'unknown family': lambda r: r | {'table': {'maths': 'o1'}},
    'unknown cell': lambda r: r | {'by': 'cell', 'table': {'math:9': 'o1'}},
    'a cell by family': lambda r: r | {'table': {'math:1': 'o1'}},
    'a path for an organelle': lambda r: r | {'table': {'math': '../o1'}}, 'o0': lambda r: r | {'best': 'o0'},
    'number for an organelle': lambda r: r | {'best': 1}, 'newline behind an organelle': lambda r: r | {'best': 'o1\n'},
    'fitted on the holdout': lambda r: r | {'fitted': [holdout(1)[0].id]},
    'fitted on the train stream': lambda r: r | {'fitted': ['0' * 16]}, 'no id': lambda r: r | {'fitted': ['xyz']},
    'free of charge': lambda r: r | {'answers': 0}, 'half an answer': lambda r: r | {'answers': 1.5},
    'NaN': lambda r: json.dumps(r | {'gflops': float('nan')}), 'negative': lambda r: r | {'gflops': -1.},
    'another format': lambda r: r | {'format': 'evolora.router.2'}, 'other weights': lambda r: r | {'weights': 'ab'},
    'by guess': lambda r: r | {'by': 'guess'}}


@pytest.mark.parametrize('name', HOSTILE)
def test_a_router_from_a_stranger(name, tmp_path):
    text = HOSTILE[name](json.loads(fit_router(Actors(specialists), BOTH).model_dump_json()))
    path = tmp_path / 'router.json'
    if isinstance(text, dict): text = json.dumps(text)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    message = wrong_lines(lambda: Router.load(path))
    assert message.startswith(f'{path}: ') and message.endswith('expected a file that Router.save wrote')
    assert len(message) < 600


def test_a_router_that_was_changed_is_found_out(tmp_path):
    "One organelle for another is a valid table, and not the one that was fitted"
    path = fit_router(Actors(specialists), BOTH).save(tmp_path / 'router.json')
    text = path.read_text()
    for changed in (text.replace('"o2"', '"o1"'), text.replace(' "sha256"', ' "sha255"')):
        path.write_text(changed)
        assert changed != text and 'expected a file that Router.save wrote' in wrong_lines(lambda: Router.load(path))
    path.write_text(text)
    assert Router.load(path).sealed() == text


def test_a_router_is_shown_short():
    router = fit_router(Actors(specialists), BOTH, host=True)
    assert '| string.sort | o2 |' in router._repr_markdown_() and 'fitted on 24 tasks' in repr(router)


def test_the_advantage_of_specialists_is_read_off_the_answers():
    "Where specialists are better at home they are believed to be; where practice did not help none is"
    def helped(id, prompt, seed): return GOLD[prompt] if (id == 'o1') == prompt.startswith('What') else 'x'
    few = MATH[:3] + SORT[:3]
    homes = {'o1': 'math', 'o2': 'string.sort'}
    assert fit_router(Actors(helped, niches=homes), few).table == {'math': 'o1', 'string.sort': 'o2'}
    same = Actors(lambda id, prompt, seed: GOLD[prompt], niches={'o2': 'math'})
    assert fit_router(same, few).table == dict.fromkeys(('math', 'string.sort'), 'o1')
    assert fit_router(same, few, home=.3).table == {'math': 'o2', 'string.sort': 'o1'}
    right, families = np.array([[1, 1, 0, 0], [0, 0, 1, 1.]]), ['math', 'math', 'string.sort', 'string.sort']
    assert _advantage(right, families, [['math'], ['string.sort']]) == 1 and _advantage(right, families, [[], []]) == 0
    assert _advantage(right, families, [['string.sort'], ['math']]) == 0


# --- cells and form

@pytest.fixture(scope='module')
def guided():
    population = Population(tiny_host('llama').in_form(FORMS['shots']), capacity=2)
    population.birth()
    return population


def test_a_router_knows_its_cells_and_its_form(guided, tmp_path):
    router = fit_router(guided, BOTH[:3] + BOTH[-3:], max_new_tokens=2)
    assert router.cells == ('math:1', 'string.sort:2') and router.form == FORMS['shots']
    assert Router.load(router.save(tmp_path / 'r.json')) == router and Router(**router.model_dump()) == router
    bare = Population(tiny_host('llama'), capacity=2)
    bare.birth()
    text = wrong_lines(lambda: evaluate(bare, holdout(2), router=router))
    assert 'expected the form that the router was fitted in, 3 solved questions, extraction, got the question' in text


def test_the_default_cells_and_the_plain_form_are_left_out_of_a_file(tmp_path):
    router = fit_router(Actors(specialists), BOTH)
    old = router.model_copy(update={'cells': ()})
    known = json.loads(old.sealed())
    assert not {'cells', 'form'} & known.keys() and 'form' not in json.loads(router.sealed())
    assert Router.load(old.save(tmp_path / 'r.json')) == old


def test_a_market_is_a_router_that_was_never_fitted():
    ecology = Ecology(tiny_host(), load_config('debug'))
    first, second = ecology.population.ids
    for _ in range(4): ecology.market.settle('math', {first: .1, second: .8})
    router = believed_router(ecology)
    assert router.table == {f: ecology.market.leader(f) for f in ecology.config.families}
    assert router.table['math'] == second
    assert router.cells == tuple(ecology.config.cells) and (router.fitted, router.answers) == ((), 0)
    assert router.best == max(ecology.population.ids, key=ecology.market.balance)
    assert 'as a market believes' in repr(router) and 'GFLOPs' not in router._repr_markdown_()


@pytest.mark.parametrize('change', [{'cells': ['maths:1']}, {'cells': 'math:1'}, {'cells': [1]}, {'form': 'shots'},
                                    {'form': {'shots': 99}}, {'form': {'evil': 1}}, {'form': {'system': 'x' * 501}}])
def test_cells_and_form_of_a_strangers_router_are_checked(tmp_path, change):
    known = json.loads(fit_router(Actors(specialists), BOTH).sealed()) | change
    known.pop('sha256')
    (tmp_path / 'r.json').write_text(json.dumps(known | {'sha256': routing.config_hash(known)}))
    assert 'expected a file that Router.save wrote' in wrong_lines(lambda: Router.load(tmp_path / 'r.json'))
