"""The experiment: cells are made once and not mixed, and the table has what the cells have."""
import json
import math
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from evolora.experiments import ecology_vs_rivals as learning
from evolora.experiments import learning_summary
from evolora.experiments.baselines import CONDITIONS, Trained, examples_worth, train
from evolora.experiments.speed import target
from evolora.evaluation.evaluation import answer, answer_all, selection
from evolora.utils.statistics import holm, iqm, sign_flip
from evolora.host.model import load_host
from evolora.experiments.ecology_vs_rivals import (Settings, Unfinished, experiment, packed, read_cells, run_cell,
                                                   unpacked)
from evolora.organelles.population import Population
from evolora.utils.randomness import stream
from evolora.evaluation.routing import fit_router
from evolora.experiments.learning_summary import Results, as_rows, crossed, for_people, summarise, table, targets
from evolora.ecology.variation import OPERATORS

TINY = Settings(budget=6., id=24, ood=8, points=2, probe=48, brittle=8)


def quiet(*arguments, **how): return experiment(*arguments, jobs=1, log=lambda line: None, **how)


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    "Two conditions and two seeds, really made"
    folder = tmp_path_factory.mktemp('made')
    return folder, quiet(['frozen', 'local'], range(2), folder, TINY)


# --- bits

@pytest.mark.parametrize('n', [1, 7, 8, 9, 64, 511])
def test_bits_come_back(n):
    right = np.random.default_rng(n).random(n) < .5
    assert unpacked(packed(right), n).tolist() == right.astype(float).tolist()
    assert len(packed(right)) == 2 * math.ceil(n / 8)
    with pytest.raises(ValueError, match='expected the bits'): unpacked(packed(right), n + 8)


# --- cells

def test_a_cell_says_what_was_measured(made):
    host, (folder, cells) = load_host('embedded', threads=1), made
    cell = cells[-1]
    trained = train(host, 'local', budget=cell['budget'], match='answers', seed=1)
    for kind, tasks in learning.evaluation_sets(24, 8).items():
        answers = answer(trained.population, tasks, 'o1')
        own = cell['ways']['adapter'][kind]
        assert unpacked(own['bits'], len(tasks)).tolist() == answers.success.astype(float).tolist()
        counted = {f: [int(g.success.sum()), len(g)] for f, g in answers.groupby('family', sort=False)}
        assert own['families'] == counted and own['gflops'] == pytest.approx(answers.gflops.mean())
    assert cell['spent']['answers'] == trained.spent.answers and cell['match'] == 'answers'
    assert 0 <= cell['budget'] - trained.spent.answers < 8                  # a question is asked eight times
    assert cell['gflops'] == pytest.approx(trained.spent.gflops)
    assert [c['curve'][0] for c in cells] == [[0., cells[0]['curve'][0][1]]] * 4 and len(cell['curve']) == 3
    assert cell['curve'][-1] == [round(trained.spent.gflops, 3),
                                 round(answer(trained.population, selection(48, seed=1), 'o1').success.mean(), 4)]
    assert cell == json.loads((folder / 'cells' / 'local-1.json').read_text())
    assert all(p.stat().st_size < 8000 for p in (folder / 'cells').iterdir())


def test_cells_are_paired_and_the_same_again(made, tmp_path):
    folder, cells = made
    again = run_cell(*_new(tmp_path), TINY, 'local', 0)
    without = lambda cell: json.loads(json.dumps({k: v for k, v in cell.items() if k != 'seconds'} | {
        'spent': {k: v for k, v in cell['spent'].items() if k != 'seconds'}}))
    assert without(again) == without(cells[2]) != without(cells[3])
    assert cells[0]['ways'] == cells[1]['ways'] and cells[0]['hashes'] == cells[1]['hashes']
    assert {k for k in cells[0]['hashes'] if cells[0]['hashes'][k] != cells[2]['hashes'][k]} == {'condition'}


def _new(path):
    (path / 'cells').mkdir()
    return (path,)


def test_what_is_there_is_not_made_again(made, monkeypatch):
    folder, cells = made
    monkeypatch.setattr(learning, 'run_cell', lambda *a: pytest.fail('a finished cell was made again'))
    assert quiet(['local', 'frozen'], [0, 1], folder, TINY) == cells[2:] + cells[:2]


def test_an_interrupted_experiment_keeps_its_cells_and_goes_on(tmp_path, monkeypatch):
    real, calls = learning.run_cell, []
    def pressed(*work):
        calls.append(work[2:4])
        if len(calls) == 2: raise KeyboardInterrupt
        return real(*work)
    monkeypatch.setattr(learning, 'run_cell', pressed)
    with pytest.raises(KeyboardInterrupt): quiet(['frozen'], range(3), tmp_path, TINY)
    assert [c['seed'] for c in read_cells(tmp_path)] == [0]
    assert [c['seed'] for c in quiet(['frozen'], range(3), tmp_path, TINY)] == [0, 1, 2]
    assert calls == [('frozen', 0), ('frozen', 1), ('frozen', 1), ('frozen', 2)]


def test_a_cell_that_fails_does_not_stop_the_others(tmp_path, monkeypatch):
    real, lines = learning.run_cell, []
    def failing(folder, settings, condition, seed, examples=None):
        if condition == 'ecology': raise ValueError('no organelle is left')
        return real(folder, settings, condition, seed, examples)
    monkeypatch.setattr(learning, 'run_cell', failing)
    with pytest.raises(Unfinished, match='2 of 3 cells failed.*ecology-0: no organelle is left') as e:
        experiment(['ecology', 'sft_bits', 'frozen'], [0], tmp_path, TINY, jobs=1, log=lines.append)
    assert '\n' not in str(e.value) and [c['condition'] for c in read_cells(tmp_path)] == ['frozen']
    assert any('ecology-0 FAILED' in line for line in lines) and any('1/3 frozen-0' in line for line in lines)


def other_budget(folder): return dict(settings=TINY.model_copy(update={'budget': 7.}))
def other_host(folder, key='host'):
    path = folder / 'cells' / 'frozen-0.json'
    cell = json.loads(path.read_text())
    cell['hashes'][key] = '0' * 16
    path.write_text(json.dumps(cell))
    return {}


@pytest.mark.parametrize('change, named', [(other_budget, 'settings'), (other_host, 'host'), *(
    (lambda folder, key=key: other_host(folder, key), key) for key in ('streams', 'grader', 'cost', 'condition'))])
def test_a_folder_made_otherwise_is_refused(tmp_path, change, named):
    quiet(['frozen'], [0], tmp_path, TINY)
    how = {'settings': TINY} | change(tmp_path)
    before = {p: p.read_bytes() for p in (tmp_path / 'cells').iterdir()}
    with pytest.raises(ValueError, match=f'frozen-0 with another {named}'): quiet(['frozen'], [1], tmp_path, **how)
    assert before == {p: p.read_bytes() for p in (tmp_path / 'cells').iterdir()}


@pytest.mark.parametrize('damage', ['', '{"format": 1}', '[]', '{"format": 2, "ways": {}, "hashes": {}, "seed": 0}'])
def test_a_damaged_cell_is_named(tmp_path, damage):
    (tmp_path / 'cells').mkdir()
    (tmp_path / 'cells' / 'frozen-0.json').write_text(damage)
    with pytest.raises(ValueError, match='frozen-0.json expected a cell'): quiet(['frozen'], [0], tmp_path, TINY)


def test_gold_for_bits_waits_for_the_ecology(tmp_path, monkeypatch):
    with pytest.raises(ValueError, match='add the condition ecology'): quiet(['sft_bits'], [0], tmp_path, TINY)
    assert not (tmp_path / 'cells').exists()
    asked = []
    def pretended(folder, settings, condition, seed, examples=None):
        asked.append((condition, examples))
        return {'condition': condition, 'seed': seed, 'gflops': 1., 'seconds': 1.,
                'spent': {'episodes': 900, 'right': 300}, 'ways': {'adapter': {'id': {'families': {'math': [1, 2]}}}}}
    monkeypatch.setattr(learning, 'run_cell', pretended)
    quiet(['sft_bits', 'ecology'], [0], tmp_path, TINY)
    assert asked == [('ecology', None), ('sft_bits', examples_worth(900, 300))]


def test_an_unknown_condition_makes_nothing(tmp_path):
    with pytest.raises(ValueError, match='known: frozen'): quiet(['frozen', 'magic'], [0], tmp_path / 'x', TINY)
    assert not (tmp_path / 'x').exists()


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
    assert learning.interim_accuracy(made, tasks) == np.mean(expected) < greedy - .1      # choosing and scoring on one
    alone = Population(host, capacity=1)
    alone.birth()
    trained = Trained(host, CONDITIONS['local'], 0, alone)
    assert learning.interim_accuracy(trained, tasks) == answer(host, tasks).success.mean()


@pytest.mark.slow
def test_two_processes_make_the_same_cells(made, tmp_path):
    folder, cells = made
    again = experiment(['frozen', 'local'], range(2), tmp_path, TINY, jobs=2, log=lambda line: None)
    assert [c['ways'] for c in again] == [c['ways'] for c in cells]


@pytest.mark.slow
def test_ctrl_c_ends_the_processes_and_keeps_what_was_made(tmp_path):
    code = 'from evolora.cli.app import main; main()'
    run = subprocess.Popen([sys.executable, '-c', code, 'bench', 'learning', '--conditions', 'frozen,local', '--seeds',
                            '200', '--budget', '30', '--out', str(tmp_path / 'x')], stderr=subprocess.PIPE, text=True,
                           env=os.environ | {'OMP_NUM_THREADS': '1'}, start_new_session=True)
    until = time.monotonic() + 120
    while time.monotonic() < until and not list((tmp_path / 'x').glob('cells/*.json')): time.sleep(.2)
    os.killpg(run.pid, signal.SIGINT)
    _, err = run.communicate(timeout=60)
    assert run.returncode == 130 and 'the same command makes the cells' in err and 'Traceback' not in err
    assert read_cells(tmp_path / 'x')


# --- all cells together

def test_the_bootstrap_draws_seeds_and_questions_again():
    rng = np.random.default_rng(0)
    by_seed, by_question = rng.standard_normal((6, 1)), rng.standard_normal(80)
    width = lambda x, **how: (lambda i: i.high - i.low)(crossed(np.broadcast_to(x, (6, 80)), ['a'] * 80, **how))
    assert width(np.zeros((6, 80))) == 0
    for values, sd, n in ((by_seed, by_seed.std(), 6), (by_question, by_question.std(), 80)):
        assert width(values) == pytest.approx(2 * 1.96 * sd / math.sqrt(n), rel=.12)
    both = width(by_seed + by_question)
    assert both == pytest.approx(math.hypot(width(by_seed), width(by_question)), rel=.1)
    assert width(by_question, rng=np.random.default_rng(1)) != width(by_question) == width(by_question)
    half = ['a'] * 40 + ['b'] * 40
    known = np.repeat([0., 1.], 40)             # all of the difference is between the strata, which are not drawn
    assert crossed(np.tile(known, (6, 1)), half).low == pytest.approx(.5)
    assert crossed(np.tile(known, (6, 1)), ['a'] * 80).low < .45
    for wrong in (np.zeros(3), np.zeros((0, 3)), np.zeros((2, 4))):
        with pytest.raises(ValueError, match='seeds, questions'): crossed(wrong, ['a'] * 3)


def test_resampled_means_are_those_of_drawn_rows_and_columns():
    "Against the same thing done slowly"
    values, rng = np.random.default_rng(3).random((4, 12)), np.random.default_rng(5)
    slow = [values[rng.integers(4, size=4)][:, rng.integers(12, size=12)].mean() for _ in range(6000)]
    fast = crossed(values, [0] * 12, resamples=6000)
    assert [fast.low, fast.high] == pytest.approx(np.quantile(slow, [.025, .975]), abs=.015)


RATES = {'frozen': (.5, .4), 'single': (.7, .45), 'random_search': (.55, .4), 'es': (.6, .4), 'sft': (.9, .3),
         'specialists': (.7, .4), 'local': (.8, .4), 'backprop': (.8, .4), 'ecology': (.88, .5)}


def invent(folder, rates=RATES, seeds=6, without=()):
    (folder / 'cells').mkdir(parents=True)
    hard = {kind: stream(0, purpose=kind).random(60) for kind in ('id', 'ood_depth', 'ood_family')}
    for name, (own, ood) in rates.items():
        for seed in range(seeds):
            if (name, seed) in without: continue
            rng = stream(seed, purpose=name)
            def part(kind, rate):
                right = hard[kind] < rate + .02 * rng.standard_normal()
                return {'families': {f: [int(right[i:i + 20].sum()), 20] for f, i in zip('abc', (0, 20, 40))},
                        'bits': packed(right), 'gflops': .05, 'energy': .3 / max(right.mean(), .01)}
            parts = {'id': part('id', own), 'ood_depth': part('ood_depth', ood), 'ood_family': part('ood_family', ood)}
            ways = {'routed' if name == 'ecology' else 'adapter': parts}
            cell = dict(format=1, condition=name, seed=seed, settings={'budget': 10., 'points': 2}, hashes={}, spent={},
                        gflops=10., curve=[[0., .5], [5., own], [10., own]], ways=ways, brittleness=None,
                        sampled={'accuracy': own, 'energy': .3 / own, 'gflops': .05})
            (folder / 'cells' / f'{name}-{seed}.json').write_text(json.dumps(cell))
    return folder


def test_the_table_says_what_the_cells_say(tmp_path):
    lines = table(invent(tmp_path))
    cells, by = read_cells(tmp_path), lines.set_index('condition')
    own = {(c['condition'], c['seed']): next(iter(c['ways'].values()))['id']['families'].values() for c in cells}
    right = {key: sum(k for k, _ in families) / 60 for key, families in own.items()}
    means = {n: [right[n, s] for s in range(6)] for n in RATES}
    for name in RATES:
        assert by.ID[name] == pytest.approx(np.mean(means[name]))
        assert by['ID low'][name] <= by.ID[name] <= by['ID high'][name]
        families = [[k / n for k, n in own[name, seed]] for seed in range(6)]
        assert by['worst family'][name] == pytest.approx(min(np.mean(families, 0)))
        assert by.IQM[name] == pytest.approx(iqm(np.array(families)))
    others = [n for n in RATES if n != 'ecology']
    p = {n: sign_flip(np.subtract(means['ecology'], means[n])) for n in others}
    assert {n: by.p[n] for n in others} == pytest.approx(p)
    assert {n: by['Holm p'][n] for n in others} == pytest.approx(holm(p))
    assert math.isnan(by.p['ecology']) and p['frozen'] == 1 / 64
    assert by['ID behind']['single'] == pytest.approx(np.mean(means['ecology']) - np.mean(means['single']))
    assert by['ID behind low']['single'] > 0 > by['ID behind low']['sft']
    assert by.retention['frozen'] == 1
    assert by.retention['sft'] == by['new families']['sft'] / by['new families']['frozen']
    assert json.dumps(as_rows(lines), allow_nan=False) and len(for_people(lines)) == 3


def test_differences_are_taken_seed_by_seed(tmp_path):
    "Where the ecology lacks a seed, the other's seed is not compared, though it counts for its own mean"
    invent(tmp_path, without={('ecology', 5), ('sft', 0)})
    results_ = Results(read_cells(tmp_path))
    gap, seeds = results_.gap('ecology', 'sft', ('id',))
    assert seeds == [1, 2, 3, 4] and gap.shape == (4, 60)
    assert (gap == results_.right('ecology', ('id',), None, seeds) - results_.right('sft', ('id',), None, seeds)).all()
    assert table(tmp_path).set_index('condition').seeds['sft'] == 5


def test_the_chart_of_families_shows_accuracy_and_gain(tmp_path):
    chart = learning_summary.charts(invent(tmp_path))['families'].to_dict()
    shown = pd.DataFrame(next(iter(chart['datasets'].values()))).set_index(['condition', 'family'])
    known = Results(read_cells(tmp_path))
    assert (shown.gain['frozen'] == 0).all()
    for family, accuracy in known.families('sft', ('id', 'ood_family')).mean().items():
        host = known.families('frozen', ('id', 'ood_family')).mean()[family]
        assert shown.loc[('sft', family), ['accuracy', 'gain']].tolist() == pytest.approx([accuracy, accuracy - host],
                                                                                         abs=1e-3)


def test_targets_are_met_and_missed(tmp_path):
    of = lambda folder: {t['name']: t for t in targets(folder)}
    good = of(invent(tmp_path / 'good'))
    assert good['ecology − frozen, ID']['met'] and good['ecology − frozen, ID, lower bound']['met']
    assert good["ecology's share of the gain of sft, ID"]['measured'] == pytest.approx(.38 / .4, abs=.08)
    adjusted = table(tmp_path / 'good').set_index('condition')['Holm p']
    for name in ('single', 'random_search', 'es'):
        assert good[f'ecology − {name} above 0, ID, Holm p']['measured'] == pytest.approx(adjusted[name])
        assert good[f'ecology − {name} above 0, ID, Holm p']['met'] == (adjusted[name] <= .05)
    assert good["the local rule's share of the gain of backprop, equal answers"]['measured'] == pytest.approx(1, abs=.1)
    assert good['ecology − sft, OOD']['met'] and good['families not trained, ecology ÷ frozen']['met']
    assert not good['families not trained, sft ÷ frozen, for comparison']['met']
    assert good['energy per correct answer, ecology ÷ frozen, greedy']['measured'] == pytest.approx(.5 / .88, rel=.1)
    poor = of(invent(tmp_path / 'poor', RATES | {'ecology': (.4, .2)}))
    ours = ('ecology', 'energy', 'families not trained, ecology')
    assert not any(t['met'] for name, t in poor.items() if name.startswith(ours))
    assert poor['ecology − specialists, ID or OOD, lower bound']['measured'] < 0


def test_what_is_missing_is_not_measured(tmp_path):
    found = targets(invent(tmp_path, {k: RATES[k] for k in ('frozen', 'ecology')}))
    known = {t['name'] for t in found if t['measured'] is not None}
    assert known == {'ecology − frozen, ID', 'ecology − frozen, ID, lower bound',
                     'ecology − frozen, the family that gains least', 'families not trained, ecology ÷ frozen',
                     *(f'energy per correct answer, ecology ÷ frozen, {how}' for how in ('greedy', 'sampled'))}
    assert all(t['met'] is None for t in found if t['name'] not in known)


def test_an_interval_that_touches_zero_does_not_lie_above_it():
    assert target('x', '> 0', 0.)['met'] is False and target('x', '> 0', 1e-9)['met'] is True
    assert target('x', '> 0', None)['met'] is None


def test_the_table_is_written_beside_the_cells_and_again(tmp_path):
    invent(tmp_path, seeds=2)
    first = {p.name: p.read_bytes() for p in summarise(tmp_path)}
    assert set(first) == {'table.csv', 'accuracy.png', 'curves.png', 'families.png'}
    assert first['accuracy.png'][:4] == b'\x89PNG'
    assert {p.name: p.read_bytes() for p in summarise(tmp_path)} == first
    assert len(pd.read_csv(tmp_path / 'table.csv')) == len(RATES)


def test_one_seed_of_one_condition_is_a_table_too(made, tmp_path):
    (tmp_path / 'cells').mkdir()
    (tmp_path / 'cells' / 'local-0.json').write_text(json.dumps(made[1][2]))
    lines = table(tmp_path)
    assert len(lines) == 1 and 'p' not in lines and for_people(lines) and learning_summary.charts(tmp_path)
    assert {t['measured'] for t in targets(tmp_path)} == {None}


ORPHANS = """
import os, sys, time
from pathlib import Path
def work(folder, n):
    while True:
        Path(folder, f'{n}').write_text(str(time.time()))
        time.sleep(.05)
if __name__ == '__main__':
    from evolora.experiments.ecology_vs_rivals import each
    list(each(work, [(sys.argv[1], 0), (sys.argv[1], 1)], jobs=2))
"""


@pytest.mark.parametrize('how', [signal.SIGKILL, pytest.param(signal.SIGTERM, marks=pytest.mark.slow)])
def test_workers_end_with_their_parent_however_it_ends(tmp_path, how):
    (tmp_path / 'orphans.py').write_text(ORPHANS)
    (tmp_path / 'signs').mkdir()
    parent = subprocess.Popen([sys.executable, tmp_path / 'orphans.py', tmp_path / 'signs'])
    def alive():
        signs = {p: p.read_text() for p in (tmp_path / 'signs').iterdir()}
        time.sleep(.5)
        return [p for p, sign in signs.items() if p.read_text() != sign]
    try:
        until = time.time() + 120
        while len(alive()) < 2 and time.time() < until: pass
        parent.send_signal(how)
        parent.wait(30)
        until = time.time() + 30
        while alive() and time.time() < until: pass
        assert len(list((tmp_path / 'signs').iterdir())) == 2 and not alive()
    finally: parent.kill()
