"""A cell: what was trained is what is written, the same again, in every world, and after an end as well."""
import json

import numpy as np
import pytest

from evolora.ecology.variation import OPERATORS
from evolora.evaluation.evaluation import answer, answer_all, selection
from evolora.evaluation.routing import fit_router
from evolora.experiments.baselines import CONDITIONS, Life, Trained, train
from evolora.experiments.study_cell import (hashes_of_cell, interim_accuracy, make_cell, questions, share_done,
                                            taught)
from evolora.experiments.study_code import code_commit
from evolora.experiments.study_plan import Measured, Plan, Variant, World, grid
from evolora.experiments.study_results import unpacked
from evolora.host.model import load_host
from evolora.organelles.population import Population

PLAN = Plan(name='tiny', question='?', budgets=(6.,), seeds=(1,), conditions=('frozen', 'local'),
            measured=Measured(id=24, ood=8, points=2, probe=48, brittle=8,
                              also=('curve', 'sampled', 'brittleness', 'forgetting')))


@pytest.fixture(scope='module')
def made(): return {c.condition: make_cell(PLAN, c, {}) for c in grid(PLAN)}


def test_a_cell_says_what_was_measured(made):
    host, cell = load_host('embedded', threads=1), made['local']
    trained = train(host, 'local', budget=cell['budget'], match='answers', seed=1)
    for kind, tasks in questions(PLAN, grid(PLAN)[1]).items():
        answers = answer(trained.population, tasks, 'o1')
        own = cell['ways']['adapter'][kind]
        assert unpacked(own['bits'], len(tasks)).tolist() == answers.success.astype(float).tolist()
        counted = {f: [int(g.success.sum()), len(g)] for f, g in answers.groupby('family', sort=False)}
        assert own['families'] == counted and own['gflops'] == pytest.approx(answers.gflops.mean())
    assert cell['spent']['answers'] == trained.spent.answers and cell['match'] == 'answers'
    assert 0 <= cell['budget'] - trained.spent.answers < 8                  # a question is asked eight times
    assert cell['curve'][-1] == [round(trained.spent.gflops, 3),
                                 round(answer(trained.population, selection(48, seed=1), 'o1').success.mean(), 4)]
    assert made['frozen']['forgetting']['changed'] == 0 < cell['forgetting']['loss']


def test_a_cell_records_its_commit_which_decides_nothing(made):
    assert made['local']['commit'] == code_commit() and 'commit' not in made['local']['hashes']


def test_cells_are_paired_and_say_what_they_depend_on(made):
    hashes = [made[name]['hashes'] for name in ('frozen', 'local')]
    assert {k for k in hashes[0] if hashes[0][k] != hashes[1][k]} == {'condition'}
    cell, host = grid(PLAN)[0], load_host('embedded', threads=1)
    for change, key in (({'worlds': (World(cells=('math:1',)),), 'measured': Measured()}, 'world'),
                        ({'name': 'other'}, 'questions'), ({'measured': Measured(id=48)}, 'questions')):
        other = hashes_of_cell(PLAN.model_copy(update=change), cell, host)
        assert other[key] != hashes[0][key], key


@pytest.mark.parametrize('form', ['', 'plain'])
def test_a_world_decides_what_is_taught_and_asked(form):
    world = World(name='sums', cells=('math:1', 'math:2'), changes={'max_new_tokens': 9}, form=form)
    plan = PLAN.model_copy(update={'worlds': (world,), 'measured': Measured(id=12), 'conditions': (
        Variant(name='frozen'), Variant(name='sft', settings={'tasks': 8}))})
    plan = Plan.model_validate(plan.model_dump())
    for cell in grid(plan):
        content = make_cell(plan, cell, {})
        assert list(next(iter(content['ways'].values()))['id']['families']) == ['math'] and content['world'] == 'sums'
        assert plan.condition(cell).longest == 9 and [str(c) for c in taught(plan, cell)] == ['math:1', 'math:2']
    with pytest.raises(ValueError, match='measured.ood expected 0'):
        Plan.model_validate(plan.model_dump() | {'measured': Measured(ood=8).model_dump()})


def test_what_became_of_a_life_is_in_its_cell():
    brief = {'market': {'questions': 6, 'round': 3}, 'curriculum': {'copies': 2}}
    plan = PLAN.model_copy(update={'conditions': (Variant(name='ecology', generations=2, changes=brief),),
                                   'measured': Measured(id=24, audit=8, also=('audit',))})
    cell = make_cell(plan, grid(plan)[0], {})
    assert (cell['generations'], cell['births'], cell['deaths'], cell['audit']) == (2, 1, 0, [])
    assert cell['organelles'] == 2 and cell['decisions'] == {'no_pair': 2} and list(cell['ways'])[0] == 'routed'


def test_progress_is_noted_and_goes_with_the_checkpoint(tmp_path, monkeypatch):
    from evolora.experiments import study_cell
    seen, write = [], study_cell._Heartbeat.__call__
    monkeypatch.setattr(study_cell, 'BEAT', 0.)
    def noted(self, trained):
        write(self, trained)
        seen.append(share_done(tmp_path / 'x'))
    monkeypatch.setattr(study_cell._Heartbeat, '__call__', noted)
    alone = PLAN.model_copy(update={'conditions': (Variant(name='local'),), 'measured': Measured(id=24)})
    cell = make_cell(alone, grid(alone)[0], {}, tmp_path / 'x')
    assert seen and seen == sorted(seen) and 0 < seen[0] <= seen[-1] <= 1
    assert json.dumps(cell) == json.dumps(make_cell(alone, grid(alone)[0], {})) and share_done(tmp_path / 'none') == 0


def test_the_curve_routes_by_the_other_half():
    "Organelles that differ by noise: what half of the questions shows about them is used on the other half only"
    host, rng = load_host('embedded', threads=1), np.random.default_rng(0)
    population = Population(host, capacity=4)
    for _ in range(4):
        one = population.birth(rng=rng)
        population.write(one.id, OPERATORS['gaussian'](population.factors(one.id), rng=rng, step=1.))
    tasks, made = selection(48, seed=1), Trained(host, CONDITIONS['ecology'], 0, population)
    answers = answer_all(population, tasks)
    right = answers.success.to_numpy().reshape(4, 48)
    expected = []
    for half in (0, 1):
        mine = answers[np.tile(np.arange(48) % 2 == half, 4)]
        router = fit_router(population, tasks[half::2], answers=mine)
        expected += [right[population.ids.index(router.route([t])[0]), i] for i, t in enumerate(tasks) if i % 2 != half]
    greedy = np.mean([right[population.ids.index(id), i] for i, id in enumerate(
        fit_router(population, tasks, answers=answers).route(tasks))])
    assert interim_accuracy(made, tasks) == np.mean(expected) < greedy - .1      # choosing and scoring on one
    life = Life(host, CONDITIONS['ecology'].model_copy(update={'changes': {'founders': 4}}), seed=3)
    for id in life.population.ids:
        life.population.write(id, OPERATORS['gaussian'](life.population.factors(id), rng=rng, step=1.))
    for f, id in zip(life.ecology.market.families, ['o1', 'o2', 'o3', 'o4'] * 2):
        life.ecology.market.settle(f, {o: float(o == id) for o in life.population.ids})
    who = [life.ecology.market.leader(t.family) for t in tasks]
    view = Trained(host, CONDITIONS['ecology'], 0, life.population, learner=life)
    assert len({*who}) == 4 and interim_accuracy(view, tasks) == answer(life.population, tasks, who).success.mean()
    alone = Population(host, capacity=1)
    alone.birth()
    trained = Trained(host, CONDITIONS['local'], 0, alone)
    assert interim_accuracy(trained, tasks) == answer(host, tasks).success.mean()
