"""What no lesson shows of `evaluation`: it touches nothing, and its numbers are those of a count by hand.

Most tests ask actors: a population whose every answer is written down here, so that all that follows is known.
"""
import json
import math
import random
import re
from collections import Counter
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from actors import BOTH, GOLD, MATH, SORT, Actors, specialists, table, wrong_lines
from evolora.tasks.curriculum import CurriculumConfig
from evolora.ecology.config import EcologyConfig
from evolora.ecology.ecology import Ecology
from evolora.economy.market import MarketConfig
from evolora.economy.prices import EconomyConfig, answer_cost
from evolora.evaluation.evaluation import (AUGMENTATIONS, COLUMNS, KINDS, Evaluation, answer, brittleness, cells_of,
                                           compare, evaluate, answer_all, holdout, oracle, samples, selection, vote)
from evolora.utils.statistics import wilson
from evolora.host.model import load_host, tiny_host
from evolora.organelles.population import Population
from evolora.ecology.run_folder import Run
from evolora.tasks.families import CELLS, FAMILIES, ID_CELLS, OOD_DEPTH, OOD_FAMILIES, Cell, grade
from evolora.tasks.splits import stream_of
from evolora.tasks.task_sets import chance, draw_tasks
from evolora.evaluation.routing import fit_router
from evolora.ecology.variation import OPERATORS, VariationConfig


# --- purity, on real models

@pytest.fixture(scope='module')
def host(): return load_host('embedded', threads=1)


@pytest.fixture(scope='module')
def pop(host):
    one = Population(host, capacity=3)
    for i in range(3):
        id = one.birth().id
        one.write(id, OPERATORS['gaussian'](one.factors(id), rng=np.random.default_rng(i), step=.6))
    return one


def world(pop):
    "All that a measurement might touch"
    return (pop.weights_hash(), pop.host.weights_hash(), pop.ids, pop.births, [vars(o) for o in pop],
            {n: t.clone() for n, t in pop.stack.A.items()}, torch.get_rng_state().tolist(),
            [str(x) for x in np.random.get_state()], random.getstate(), pop.host.model.training,
            sum(len(m._forward_hooks) for m in pop.host.model.modules()), torch.is_grad_enabled())


def same(one, other):
    return all(torch.equal(a[n], b[n]) if isinstance(a, dict) else a == b
               for a, b in zip(one, other) for n in (a if isinstance(a, dict) else [None]))


def test_measuring_touches_nothing(pop):
    chosen, fresh = selection(24), [t for t in holdout(48) if t.family in ('math', 'string.sort', 'code.format')]
    router = fit_router(pop, chosen)
    kept, before = router.model_dump_json(), world(pop)
    first = evaluate(pop, fresh, router=router)
    for measure in (lambda: answer(pop, fresh, 'o1', temperature=1.), lambda: answer_all(pop, fresh, host=True),
                    lambda: samples(pop, fresh, ['o1', None] * 9, 2), lambda: fit_router(pop, chosen, by='cell'),
                    lambda: evaluate(pop.host, fresh), lambda: brittleness(pop, fresh[:6], 'o2'),
                    lambda: (first.by_family(), first.interval(resamples=50), compare(first, first, resamples=50))):
        measure()
        assert same(world(pop), before)
    assert router.model_dump_json() == kept
    pd.testing.assert_frame_equal(evaluate(pop, fresh, router=router).answers, first.answers)


def test_the_next_generation_does_not_know_that_it_was_watched(host):
    config = EcologyConfig(founders=3, capacity=5, cells=['math:1', 'string.sort:1'], max_new_tokens=8,
                           curriculum=CurriculumConfig(copies=2), market=MarketConfig(questions=8),
                           variation=VariationConfig(every=1))
    watched, alone = Ecology(host, config), Ecology(host, config)
    for _ in range(2):
        watched.step(), alone.step()
        books = deepcopy((watched.market.state(), watched.curriculum.state(), watched.succession.state()))
        evaluate(watched.population, holdout(16))
        fit_router(watched.population, selection(16))
        brittleness(watched.population, holdout(8), watched.population.ids[0])
        assert (watched.market.state(), watched.curriculum.state(), watched.succession.state()) == books
        assert watched.market.audit().balanced
    mine, yours = watched.step().tables, alone.step().tables
    assert mine['episodes'] and all(repr(mine[t]) == repr(yours[t]) for t in mine if t != 'timings')
    assert watched.population.weights_hash() == alone.population.weights_hash()


def test_the_host_is_the_population_without_organelles(pop):
    fresh = holdout(24)
    pd.testing.assert_frame_equal(answer(pop, fresh), answer(pop.host, fresh))
    pd.testing.assert_frame_equal(answer(pop, fresh, temperature=1.), answer(pop.host, fresh, temperature=1.))
    mutant = answer(pop, fresh, 'o1')
    bare = answer(pop, fresh)
    assert (mutant.gflops > bare.gflops).any() and mutant.text.tolist() != bare.text.tolist()


def test_sampling_depends_on_task_seed_and_sample(host):
    fresh = holdout(16)
    at = lambda tasks, **how: answer(host, tasks, temperature=1., **how).set_index('task').text
    pd.testing.assert_series_equal(at(fresh[::-1]).sort_index(), at(fresh).sort_index())
    assert at(fresh[:4]).tolist() == at(fresh).tolist()[:4]
    assert at(fresh, seed=1).tolist() != at(fresh).tolist() != at(fresh, sample=1).tolist()
    several = samples(host, fresh, None, 3)
    assert several['sample'].tolist() == [0, 1, 2] * 16
    for s in range(3): assert several[several['sample'] == s].text.tolist() == at(fresh, sample=s).tolist()
    assert at(fresh).tolist() == answer(host, fresh, temperature=1., rows=5).text.tolist()


# --- answers

def test_an_answer_is_a_row():
    texts = iter(['7', 'Answer: 7', 'seven', GOLD[MATH[3].prompt]])
    rows = answer(Actors(lambda *_: next(texts)), MATH[:4], ['o1', None, 'o2', 'o2'])
    assert list(rows) == COLUMNS
    assert rows.organelle.tolist() == ['o1', None, 'o2', 'o2'] and rows.value[2] is None
    assert rows.value[:2].tolist() == ['7', '7'] and rows.parsed.tolist() == [True, True, False, True]
    assert rows.success.tolist() == [False, False, False, True]
    assert rows.gflops.tolist() == [1. + len(t) for t in rows.text]


@pytest.mark.parametrize('family', FAMILIES)
def test_a_value_is_the_content_and_not_the_spelling(family):
    task = draw_tasks([Cell(family, 2)], stream='selection', n=1)[0]
    rows = answer(Actors(lambda id, *_: {'o1': task.answer, 'o2': f'I think\n Answer: {task.answer} \n'}[id]),
                  [task, task], ['o1', 'o2'])
    assert rows.success.all() and rows.value[0] == rows.value[1]
    json.loads(rows.value[0])


def test_the_order_of_keys_is_no_part_of_a_value():
    task = draw_tasks([Cell('json_repair', 3)], stream='selection', n=1)[0]
    other = json.dumps(dict(reversed(task.meta['whole'].items())))
    rows = answer(Actors(lambda id, *_: {'o1': task.answer, 'o2': other}[id]), [task, task], ['o1', 'o2'])
    assert rows.value[0] == rows.value[1] and rows.text[0] != rows.text[1] and rows.success.all()


def test_a_family_is_known_by_its_depth_too():
    "Two cells may ask one question and want different answers: both stay in one table"
    one = MATH[0]
    two = replace(one, depth=3, answer='0')
    e = Evaluation(answer(Actors(lambda *_: one.answer), [one, two]), 'x')
    assert e.answers.success.tolist() == [True, False]


def test_everyone_answers_everything():
    actors = Actors(specialists)
    rows = answer_all(actors, BOTH, host=True)
    assert len(rows) == 3 * 24 and actors.asked == [72]         # in one batch
    assert actors.seeds == 3 * actors.seeds[:24] and len(set(actors.seeds)) == 24, 'a task has one seed for all'
    right = rows.assign(who=[id or 'host' for id in rows.organelle]).groupby(['who', 'family']).success.sum().unstack()
    assert right.loc['o1'].tolist() == [12, 0] and right.loc['o2'].tolist() == [0, 12] and not right.loc['host'].any()


@pytest.mark.parametrize('call, message', [
    (lambda a: answer(a, []), 'at least one task, got none'),
    (lambda a: answer(a, [replace(MATH[0], id='')]), 'expected tasks with ids'),
    (lambda a: answer(a, MATH, ['o1']), 'got 1 for 12 tasks'),
    (lambda a: answer(a, MATH, 'o9'), "no organelle 'o9' to answer; known: o1, o2"),
    (lambda a: answer(object(), MATH), 'expected a Population or a Host, got object'),
    (lambda a: answer_all(a, [*MATH, MATH[0]]), 'each task once'),
    (lambda a: answer_all(Actors(specialists, ids=[]), MATH), 'at least one organelle, got none'),
    (lambda a: samples(a, MATH, None, 0), 'expected k >= 1'),
    (lambda a: samples(a, MATH, None, 2, temperature=0), 'greedy answers are all one'),
    (lambda a: samples(a, MATH, None, 2, sample=1), 'leave it out'),
    (lambda a: evaluate(a, [], 'o1'), 'at least one task, got none'),
    (lambda a: evaluate(a, [MATH[0]] * 2), 'each task once'),
])
def test_bad_questions(call, message): assert message in wrong_lines(lambda: call(Actors(specialists)))


def test_a_host_knows_no_organelle():
    assert 'none, only the host' in wrong_lines(lambda: answer(tiny_host(), MATH, 'o1'))


# --- one of many

def test_the_most_frequent_value_wins():
    rows = table([('o1', 't', '1', False), ('o2', 't', '2', True), ('o3', 't', '1', False)])
    chosen = vote(rows)
    assert chosen.value.tolist() == ['1'] and not chosen.success[0] and chosen.agreement[0] == 2 / 3
    assert chosen.organelle.tolist() == ['vote'] and chosen.answers.tolist() == [3]
    assert (chosen.prompt_tokens[0], chosen.new_tokens[0], chosen.gflops[0]) == (30, 6, 1.5)     # all are paid
    assert oracle(rows).value.tolist() == ['2'] and oracle(rows).success[0] and oracle(rows).gflops[0] == 1.5


@pytest.mark.parametrize('values, winner', [('12', '1'), ('21', '2'), ('1221', '1'), ('2112', '2'), ('3122', '2')])
def test_ties_go_to_the_one_that_came_first(values, winner):
    assert vote(table([(None, 't', v, False) for v in values])).value.tolist() == [winner]


def test_the_unreadable_have_no_vote():
    assert vote(table([('o1', 't', None, False)] * 3 + [('o2', 't', '5', True)])).value.tolist() == ['5']
    unread = vote(table([('o1', 't', None, False)] * 2))
    assert unread.value[0] is None and not unread.parsed[0] and unread.agreement[0] == 0
    assert Evaluation(unread, 'unread').parse_rate == 0


def test_the_vote_is_blind_to_gold():
    rows = table([(None, task, v, right) for task in 'abc' for v, right in zip('1121', (False, False, True, False))])
    lies = rows.assign(success=~rows.success, progress=1 - rows.progress)
    assert vote(lies).value.tolist() == vote(rows).value.tolist() == ['1'] * 3
    assert oracle(rows).value.tolist() == ['2'] * 3 and oracle(lies).value.tolist() == ['1'] * 3


def test_votes_and_oracles_keep_the_order_of_tasks():
    rows = table([('o1', t, '1', False) for t in 'cab'] + [('o2', t, '2', True) for t in 'bac'])
    assert vote(rows).task.tolist() == oracle(rows).task.tolist() == list('cab')
    assert 'use answer()' in wrong_lines(lambda: vote(rows.drop(columns='gflops')))


def test_an_oracle_prefers_progress_where_nothing_is_right():
    rows = table([('o1', 't', '1', False), ('o2', 't', '2', False)]).assign(progress=[.25, .5])
    assert oracle(rows).value.tolist() == ['2'] and oracle(rows).progress[0] == .5


# --- an evaluation

@pytest.fixture
def half(): return evaluate(Actors(specialists), BOTH, 'o1')


def test_numbers_of_an_evaluation(half):
    assert (half.accuracy, half.parse_rate, half.macro, len(half)) == (.5, 1., .5, 24)
    assert half.families == {'math': 1., 'string.sort': 0.} and half.worst_family == 'string.sort'
    assert tuple(half.interval()) == (.5, *wilson(12, 24)) and half.name == 'o1'
    # 12 sums of two or three digits each cost 1 GFLOP and one a character; 12 wrong letters cost 2
    spent = sum(1 + len(t.answer) for t in MATH) + 12 * 2
    assert half.gflops_per_correct == pytest.approx(spent / 12)
    tokens = sum(len(t.answer) for t in MATH) + 12 * 1 + 24 * 10
    for config in (EconomyConfig(), EconomyConfig(price_gflop=1., price_token=2.)):
        assert half.cost_per_correct(config) == pytest.approx(answer_cost(config, spent, tokens) / 12)


def test_the_mean_of_families():
    rows = table([(None, t, '1', t == 'a') for t in 'abcd']) # .25 in math, and 1 in the other
    other = table([(None, 'e', '1', True)]).assign(family='word.count')
    e = Evaluation(pd.concat([rows, other]), 'x')
    assert (e.macro, e.accuracy) == pytest.approx((.625, .4))
    assert Evaluation(rows, 'one').worst_family == 'math'


def test_the_table_by_family(half):
    rows = half.by_family()
    assert list(rows) == ['n', 'accuracy', 'low', 'high', 'chance', 'corrected'] and rows.n.tolist() == [12, 12]
    assert tuple(rows.loc['math', ['low', 'high']]) == wilson(12, 12)
    c = chance(Cell('string.sort', 2))
    assert rows.chance['string.sort'] == pytest.approx(c)
    assert rows.corrected.tolist() == pytest.approx([1, -c / (1 - c)])
    assert half.by_family(level=.5).high['string.sort'] < rows.high['string.sort']
    assert '| math | 12 | 1.000 |' in half._repr_markdown_() and '24 tasks' in repr(half)


def test_chance_is_the_mean_over_the_cells_asked():
    tasks = draw_tasks([Cell('math', 1), Cell('math', 3)], stream='selection', n=8)
    got = evaluate(Actors(lambda *_: '0'), tasks).by_family().chance['math']
    assert got == pytest.approx((chance(Cell('math', 1)) + chance(Cell('math', 3))) / 2)


def test_nothing_right_is_infinitely_dear():
    e = evaluate(Actors(specialists), BOTH)
    assert (e.name, e.accuracy, e.gflops_per_correct, e.cost_per_correct()) == ('host', 0, math.inf, math.inf)
    assert e.interval().low == 0 < e.interval().high and 'inf' in e._repr_markdown_()


def test_the_bootstrap_of_an_evaluation_stays_within_cells(half):
    assert tuple(half.interval(resamples=100)) == (.5, .5, .5)          # each family is all right or all wrong
    assert half.interval(resamples=50, seed=1) == half.interval(resamples=50, seed=1)


def test_an_evaluation_keeps_its_own_table(half):
    rows = half.answers.copy()
    e = Evaluation(rows, 'x')
    rows['success'] = True
    assert e.accuracy == .5


@pytest.mark.parametrize('change, message', [
    (lambda a: a.drop(columns='gflops'), "none named 'gflops'"), (lambda a: a.iloc[:0], 'at least one answer'),
    (lambda a: pd.concat([a, a]), 'choose with vote() or oracle()')])
def test_what_is_no_evaluation(half, change, message):
    assert message in wrong_lines(lambda: Evaluation(change(half.answers), 'x'))


def test_a_comparison_is_paired(half):
    other = evaluate(Actors(specialists), BOTH[::-1], 'o2')             # the order does not matter
    rows = compare(half, other)
    assert rows.index.tolist() == ['overall', 'math', 'string.sort'] and rows.index.name == 'o1 − o2'
    assert rows.loc['overall', ['n', 'difference', 'wins', 'losses']].tolist() == [24, 0, 12, 12]
    assert rows.loc['math', ['a', 'b', 'difference', 'low', 'high']].tolist() == [1, 0, 1, 1, 1]
    assert rows.loc['string.sort', ['difference', 'wins', 'losses']].tolist() == [-1, 0, 12]
    assert compare(half, half).difference.tolist() == [0, 0, 0]
    pd.testing.assert_frame_equal(compare(half, other), rows)


def test_a_comparison_is_the_paired_bootstrap_of_evidence():
    rng = np.random.default_rng(0)
    rows = [table([(None, f'{i}', '1', bool(r)) for i, r in enumerate(rng.random(200) < p)]) for p in (.6, .4)]
    a, b = (Evaluation(r, 'x') for r in rows)
    got = compare(a, b).loc['overall']
    d = rows[0].success.astype(float) - rows[1].success
    assert got.difference == pytest.approx(d.mean()) and got.wins - got.losses == pytest.approx(200 * d.mean())
    assert got.high - got.low == pytest.approx(2 * 1.96 * d.std() / np.sqrt(200), rel=.12)


def test_only_the_same_tasks_compare(half):
    fewer = evaluate(Actors(specialists), BOTH[1:])
    assert "got 1 that only one of 'o1' and 'host' answered" in wrong_lines(lambda: compare(half, fewer))


# --- brittleness

def test_brittleness_by_hand():
    "o1 cannot bear a space in front; of its 12 sums all but two are right as they are"
    fails = {t.prompt for t in MATH[:2]}
    def reply(id, prompt, seed):
        clean = prompt.strip()
        right = clean not in fails if not prompt.startswith(' ') else clean == MATH[0].prompt
        return GOLD[clean] if right else 'x'
    rows = brittleness(Actors(reply), MATH, 'o1', augmentations={'front': lambda p: f' {p}', 'end': lambda p: f'{p} ',
                                                                 'none': lambda p: p})
    assert rows.tasks.tolist() == [12, 12, 0, 12] and rows.index.tolist() == ['front', 'end', 'none', 'any']
    assert rows.plain.tolist()[:2] == [10 / 12] * 2 and rows.accuracy.tolist()[:2] == [1 / 12, 10 / 12]
    assert rows.lost.tolist() == [10, 0, 0, 10] and rows.brittle.tolist()[:2] == [1, 0] and rows.brittle['any'] == 1
    assert rows.accuracy['any'] == 0 and np.isnan(rows.brittle['none'])
    assert tuple(rows.loc['end', ['low', 'high']]) == wilson(0, 10)
    front = brittleness(Actors(reply), MATH, 'o1', augmentations={'front': lambda p: f' {p}'})
    assert front.accuracy.tolist() == [1 / 12, 0], 'only what was right as it is can be right in every version'


def test_who_solves_nothing_has_nothing_to_lose():
    rows = brittleness(Actors(specialists), SORT, 'o1')
    assert rows.brittle.isna().all() and (rows.lost == 0).all() and (rows.low == 0).all() and (rows.high == 1).all()
    assert 'the row for all' in wrong_lines(lambda: brittleness(Actors(specialists), SORT, augmentations={'any': str}))
    assert 'got 2 for 12 tasks' in wrong_lines(lambda: brittleness(Actors(specialists), SORT, ['o1', 'o2']))


@pytest.mark.parametrize('family', FAMILIES.library)
def test_an_augmentation_never_changes_what_is_asked(family, host):
    "Behind the first word everything stays, to the last letter, but for a question mark that is no content"
    tasks = draw_tasks([c for c in CELLS if c.family == family], stream='holdout', n=24)
    unknown = host.tokenizer.unk_token_id
    assert unknown is not None and unknown in host.encode(['Ünk'])[0]
    for t in tasks:
        first, content = t.prompt.split(' ', 1)
        assert re.fullmatch('[A-Z][a-z]+', first), 'the first word is an instruction'
        assert content.endswith('?') == (family in ('math', 'math.sequence', 'math.multi_step'))
        for name, change in AUGMENTATIONS.items():
            changed = change(t.prompt)
            assert content.removesuffix('?') in changed, name
            assert first.lower() in changed.lower() and unknown not in host.encode([changed])[0], name
            assert (changed == t.prompt) == (name == 'no question mark' and not content.endswith('?')), name
            assert abs(len(changed) - len(t.prompt)) <= len('Question: ')


# --- streams

@pytest.mark.parametrize('kind', KINDS)
def test_tasks_are_spread_over_their_cells(kind):
    for draw, stream in ((holdout, 'holdout'), (selection, 'selection')):
        tasks = draw(64, kind=kind)
        count = pd.Series([(t.family, t.depth) for t in tasks]).value_counts()
        assert len(tasks) == 64 and len(count) == len(KINDS[kind]) and count.max() - count.min() <= 1
        assert {stream_of(t) for t in tasks} == {stream}
        assert {t.id for t in tasks} != {t.id for t in draw(64, seed=1, kind=kind)}


def test_the_kinds_divide_all_cells():
    assert sorted(sum(KINDS.values(), ())) == sorted(CELLS)
    assert {c.depth for c in KINDS['ood_depth']} == {OOD_DEPTH}
    assert {c.family for c in KINDS['ood_family']} == set(OOD_FAMILIES)
    assert not {c.family for c in KINDS['id'] + KINDS['ood_depth']} & set(OOD_FAMILIES)


def test_bad_draws():
    assert 'kind expected one of' in wrong_lines(lambda: holdout(4, kind='all'))
    assert 'at least 1 task' in wrong_lines(lambda: selection(0))


def test_grades_are_those_of_tasks():
    rows = answer(Actors(lambda id, prompt, seed: GOLD.get(prompt, '1')), BOTH[::5])
    for t, row in zip(BOTH[::5], rows.itertuples()):
        g = grade(t, row.text)
        assert (row.parsed, row.progress, row.success) == (g.parsed, g.progress, g.success)


# --- cells of a run

def test_default_cells_are_asked_what_they_always_were():
    for draw in (selection, holdout):
        assert draw(100, seed=3, cells=ID_CELLS) == draw(100, seed=3) == draw(100, seed=3, cells=list(ID_CELLS) * 2)


def test_own_cells_share_the_questions_evenly_and_a_small_one_gives_all(monkeypatch):
    cells = [Cell('math', 2), Cell('string.sort', 4)]
    for draw, stream in ((selection, 'selection'), (holdout, 'holdout')):
        tasks = draw(31, cells=cells)
        assert Counter((t.family, t.depth) for t in tasks) == {cells[0]: 16, cells[1]: 15}
        assert {stream_of(t) for t in tasks} == {stream} and len({t.id for t in tasks}) == 31
    message = 'expected 500 selection questions a cell, got all there are: math:0 has'
    with pytest.warns(UserWarning, match=message) as w:
        few = selection(1000, cells=[Cell('math', 0), Cell('string.sort', 3)])
    assert len(w) == 1 and 20 < sum(t.family == 'math' for t in few) < 500 and len({t.id for t in few}) == len(few)
    assert sum(t.family == 'string.sort' for t in few) == 500
    for cells, kind in ((ID_CELLS, 'ood_depth'), ([], 'id')):
        with pytest.raises(ValueError, match='leave one out'): selection(4, kind=kind, cells=cells)


def test_the_cells_of_a_run_are_read_from_its_record(tmp_path):
    def run(name, config):
        return Run.create(tmp_path / name, config=config, seed=0, version='0', host={'id': 'x'})
    assert cells_of(run('usual', {})) == ID_CELLS
    assert cells_of(run('own', {'cells': ['math:2', 'math:4', 'math:2']})) == (Cell('math', 2), Cell('math', 4))
    for i, cells in enumerate((['math:9'], ['math'], [3], 'math:1', [], ['m\n:1'], {'math:1': 1})):
        with pytest.raises(ValueError, match='run.json') as e: cells_of(run(str(i), {'cells': cells}))
        assert '\n' not in str(e.value)
