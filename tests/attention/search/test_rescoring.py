"After a search: fresh seeds, controls that are known to be bad, what each part is worth, and several heads together."
import json

import numpy as np
import pytest
import torch
from quick import FRAMEWORK, QUICK, SECRET, SOFTMAX, Counted, Inside, inside, prepared, program, scaled

from evolora.attention.scoring import evaluation
from evolora.attention.report import search_report
from evolora.attention.report.search_report import account
from evolora.attention.search.search import SearchConfig, begin_search, proposer_of, read_history
from evolora.attention.scoring.evaluation import Evaluator
from evolora.attention.search.rescoring import (FRESH, ablation, controls, ensemble, findings, horizons, parts, rescore,
                                        write_findings)
from evolora.host.mechanisms.frameworks import CONTROLS, control, variant
from evolora.attention.search.grammar import DynamicsGenome, Grammar
from evolora.attention.report.search_charts import fooled
from evolora.attention.scoring.model_sizes import TIERS
from evolora.host.mechanisms.program_source import Program, build
from evolora.attention.report.records import Findings, read_part, read_search
from evolora.attention.scoring.sandbox import Outcome
from evolora.attention.scoring.exam import Trained
from evolora.attention.scoring.measurement import Trainings


@pytest.fixture
def trainings(monkeypatch): return Counted(monkeypatch)


def fresh(framework=FRAMEWORK, **settings):
    return Evaluator(framework, QUICK, **{'first': FRESH, 'seeds': 2, 'secret': SECRET} | settings)


class Watched(Inside):
    "Remembers the jobs"
    def __init__(self): self.jobs = []
    def map(self, jobs):
        jobs = list(jobs)
        self.jobs += jobs
        return (inside(job) for job in jobs)


# All of it

def test_a_search_is_looked_at_again_on_seeds_that_it_did_not_use(trainings, tmp_path, monkeypatch):
    settings = SearchConfig(framework=FRAMEWORK, budget=4)
    judge = prepared(cache=tmp_path / 'cache')
    with begin_search(tmp_path / 'a', settings, judge, proposer_of(settings)) as search: search.run(workers=Inside())
    used = {seed for *_, seed in trainings}
    trainings.clear()
    rows = read_history(tmp_path / 'a')
    found = findings(rows, fresh(cache=tmp_path / 'cache'), top=2, workers=Inside())
    assert not used & set(found['seeds'])
    assert used == {0, 1} and {seed for *_, seed in trainings} == {FRESH, FRESH + 1} == set(found['seeds'])
    best = sorted((row for row in rows[1:] if row['status'] == 'ok'), key=lambda row: -row['score'])[:2]
    assert [winner['index'] for winner in found['winners']] == [row['index'] for row in best]
    for winner, row in zip(found['winners'], best):
        assert winner['losses']['1.0'] != row['measured']['losses']['1.0'] and winner['score'] == row['score']
        assert winner['gain']['sizes'] and winner['fit']['slope'] and 0 < winner['scores']['paired_gain'] < 1
    assert found['baseline']['gain']['gain'] == 0 and set(found['controls']) == set(CONTROLS)
    assert [row['k'] for row in found['ensemble']] == [1, 2]
    assert found['horizon']['n'] == sum(row['status'] == 'ok' for row in rows)
    write_findings(tmp_path / 'a', found)
    monkeypatch.setattr(search_report, 'save_chart', lambda chart, path: path)
    assert read_search(tmp_path / 'a').findings.seeds == [FRESH, FRESH + 1]
    page = account(tmp_path / 'a').read_text()
    assert 'on 2 fresh seeds' in page and 'On fresh seeds' in page and 'Not yet re-scored' not in page


def test_a_search_that_found_nothing_has_findings_too(trainings, tmp_path):
    row = dict(index=0, status='ok', score=.5, measured={}, source=SOFTMAX.source, notes={}, digest='')
    found = findings([row], fresh(), workers=Inside())
    assert (found['winners'], found['ablation'], found['ensemble'], found['horizon']) == ([], [], [], None)
    assert json.loads(json.dumps(found)) == found


def test_a_winner_that_fails_again_has_that_status(trainings):
    late = program('def matrix(self, q, k, x):\n    if self.dim == 16: q = q / 0 - q / 0\n'
                   '    return causal_softmax(q @ k.mT)')
    found = rescore(fresh(), {'late': late, 'fine': scaled(.3)}, Inside())
    assert (found['late']['status'], found['late']['score'], found['fine']['status']) == ('diverged', None, 'ok')
    assert ablation(fresh(), late, {}, Inside())[0]['status'] == 'unknown'      # there is nothing to compare with


# Controls that are known to be bad

def planted(monkeypatch, extra):
    "Losses that follow a law, and are higher by `extra(module of the mechanism, dim)`"
    def planted_loss(module, dim, seed):
        draws = .01 * np.random.default_rng([seed, dim]).standard_normal()      # of seed and size: pairs share it
        own = np.random.default_rng([seed, dim, *module.encode()])
        return 3 - .2 * np.log(dim) + draws + .001 * own.standard_normal() + extra(module, dim)
    def trained(self, run):
        module, found = f'evolora_program_{Program(self.source).digest}', []
        for (dim, *_), seed, _ in self.wanted:
            both = {h: planted_loss(module, dim, seed) + .1 * (1 - h) for h in (.25, .5, 1.)}
            found.append(Trained('ok', '', both, both, both, {'all': 12 * dim**2, 'own': 0}, 1000, '', 1.))
        return found
    monkeypatch.setattr(Trainings, 'trained', trained)
    monkeypatch.setattr(evaluation, 'work', inside)


def test_the_gain_is_not_fooled_by_what_is_bad_when_small_and_the_slope_is(monkeypatch):
    names = {f'evolora_program_{found.digest}': name for name, found in controls(QUICK).items()}
    bad = {'mean': {8: .15, 12: .17, 16: .2}, 'handicapped': {8: .5, 12: .3, 16: .02}}
    def extra(module, dim): return bad[names[module]][dim] if module in names else 0.
    planted(monkeypatch, extra)
    found = rescore(fresh(), controls(QUICK), Inside())
    scores = {name: one['measured']['scores'] for name, one in found.items()}
    base = fresh().evaluate(SOFTMAX)
    assert all(one['score'] == scores[name]['paired_gain'] < .5 == base['score'] for name, one in found.items())
    assert scores['handicapped']['slope'] > 1.1 * base['measured']['scores']['slope']   # though better nowhere
    assert max(found['handicapped']['measured']['gain']['sizes']) < 0
    row = dict(index=0, status='ok', score=.5, measured={}, source=SOFTMAX.source, notes={}, digest='')
    again = read_part(Findings, findings([row], fresh(), workers=Inside()), 'findings')
    assert {name for name, one in again.controls.items() if fooled(one, again.baseline)} == {'handicapped'}
    chosen = rescore(fresh(kind='slope'), controls(QUICK), Inside())['handicapped']['score']
    assert chosen == scores['handicapped']['slope']         # who selects by slope is fooled


def test_controls_are_what_they_are_called():
    for name, tier in TIERS.items():
        found = controls(tier)
        assert set(found) == {'mean', 'handicapped'} == set(CONTROLS)
        # What is bad when small is softmax at the widest size of the ladder, whichever that is.
        for size in tier.sizes:
            torch.manual_seed(0)
            x = torch.randn(1, 8, size.dim)
            mixers = []
            for program in (found['handicapped'], SOFTMAX, found['mean']):
                torch.manual_seed(1)
                mixers.append(build(program)(size.dim, size.heads)(x))
            same = [torch.allclose(mixers[0], other, atol=1e-5) for other in mixers[1:]]
            assert same == ([True, False] if size == tier.sizes[-1] else [False, True]), (name, size)
    with pytest.raises(ValueError, match='control expected one of'): control('none')


# What each part is worth

def test_genes_are_taken_back_one_by_one(trainings):
    grammar = Grammar('coefficient_dynamics')
    genome = DynamicsGenome(evolution='delta', norm='unit', gate='output', window=16)   # a window of the whole context
    rows = ablation(fresh('coefficient_dynamics'), Program(grammar.render(genome)), grammar.notes(genome), Inside())
    by = {row['component'].partition(':')[0]: row for row in rows}
    assert {name: row['status'] for name, row in by.items()} == dict(
        evolution='fails', norm='fails', gate='measured', window='inert')       # the first two only go together
    assert by['gate']['component'] == 'gate: output → none' and by['evolution']['gain'] is None
    gain = by['gate']['gain']
    assert gain['gain'] and gain['low'] < gain['gain'] < gain['high'] and set(by['window']['gain']['sizes']) == {0}


def test_a_part_that_helps_is_worth_what_it_helps(monkeypatch):
    grammar = Grammar('coefficient_dynamics')
    genome = DynamicsGenome(gate='output', temperature='head')
    whole = Program(grammar.render(genome))
    ungated = Program(grammar.render(DynamicsGenome(temperature='head')))
    planted(monkeypatch, lambda module, dim: .2 * (module != f'evolora_program_{whole.digest}')
            + .1 * (module == f'evolora_program_{ungated.digest}'))
    rows = ablation(fresh('coefficient_dynamics'), whole, grammar.notes(genome), Inside())
    gains = {row['component']: row['gain']['gain'] for row in rows}
    assert gains == pytest.approx({'gate: output → none': .3, 'temperature: head → none': .2}, abs=.01)
    assert {row['gain']['verdict'] for row in rows} == {'better'}


def test_without_a_genome_hunks_are_taken_back(trainings):
    framework = 'coefficient_dynamics'
    changed = variant(framework).replace('return self.entries**-.5', 'return self.entries**-.25')
    changed = changed.replace('keepdim=True)', 'keepdim=True) * 1')
    found = parts(Program(changed), {})
    assert len(found) == 2 and all(isinstance(rest, Program) for rest in found.values())
    rows = ablation(fresh(framework), Program(changed), {}, Inside())
    statuses = {row['component']: row['status'] for row in rows}
    assert [status for name, status in statuses.items() if 'normaliser' in name] == ['inert']
    assert [status for name, status in statuses.items() if 'inject' in name] == ['measured']


def test_a_part_whose_rest_diverges_is_not_reported_as_impossible(trainings):
    whole = program('def matrix(self, q, k, x): return causal_softmax(q @ k.mT)\n'
                    'def finish(self, y, x): return y')
    rest = program('def matrix(self, q, k, x):\n    if self.dim == 16: q = q / 0 - q / 0\n'
                   '    return causal_softmax(q @ k.mT)')
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('evolora.attention.search.rescoring.parts', lambda *_: {'the part': rest, 'another': None})
        found = ablation(fresh(), whole, {}, Inside())
    assert [(row['component'], row['status'], row['gain']) for row in found] == [
        ('the part', 'diverged', None), ('another', 'fails', None)]


def test_a_program_that_no_diff_can_be_made_of_is_one_part(trainings):
    odd = program('def matrix(self, q, k, x):\n    """\n=======\n    """\n    return causal_softmax(q @ k.mT * .3)')
    assert list(parts(odd, {})) == ['everything'] and parts(odd, {})['everything'].digest == SOFTMAX.digest


def test_softmax_has_no_parts():
    grammar = Grammar('coefficient_dynamics')
    assert parts(Program(grammar.render(DynamicsGenome())), grammar.notes(DynamicsGenome())) == {}
    assert parts(SOFTMAX, {}) == {}


# Several together

def test_members_together_are_no_worse_than_they_are_on_average(trainings):
    workers, evaluator, programs = Watched(), fresh(), [scaled(.3), scaled(.9, 'y * 2'), Program(control('mean'))]
    rows = ensemble(evaluator, programs, workers)
    assert [row['k'] for row in rows] == [1, 2, 3]
    first, recall = rows[0], QUICK.recall
    assert first['loss'] == first['mean_member'] == first['best_member']
    assert 0 < recall < 1
    # The same model as that which was scored, at the largest size, with the first of the fresh seeds
    assert first['loss'] == pytest.approx(evaluator.evaluate(programs[0])['measured']['losses']['1.0'][-1][0], abs=2e-5)
    base = evaluator.measure(SOFTMAX)['losses']['1.0'][-1]
    assert first['baselines'] == pytest.approx(base[0], abs=2e-5)
    assert rows[1]['baselines'] < np.mean(base)
    for row in rows[1:]: assert row['best_member'] <= row['mean_member'] and row['loss'] < row['mean_member']
    seeds = [(job.trainings.source == SOFTMAX.source, job.trainings.wanted[0][1]) for job in workers.jobs]
    assert seeds == [(False, FRESH)] * 3 + [(True, FRESH), (True, FRESH + 1), (True, FRESH + 2)]


def test_a_member_that_fails_leaves_a_smaller_ensemble(trainings):
    class Failing(Inside):
        def map(self, jobs):
            return (Outcome('crashed', None, 'x') if job.trainings.source == scaled(.4).source else inside(job)
                    for job in jobs)
    rows = ensemble(fresh(), [scaled(.3), scaled(.4)], Failing())
    assert [row['k'] for row in rows] == [1]


# Whether an early look would do

def rows_of(early, late):
    return [dict(status='ok', measured={'losses': {'0.5': [[a]], '1.0': [[b]]}}) for a, b in zip(early, late)]


def test_horizons_are_compared_by_rank():
    rising = [1., 2., 3., 4., 5.]
    failed = [dict(status='crashed', measured={})]
    assert horizons(rows_of(rising, rising) + failed)['value'] == pytest.approx(1)
    found = horizons(rows_of(rising, rising[::-1]))
    assert found['value'] == pytest.approx(-1) and found['n'] == 5
    assert horizons(rows_of(rising[:3], rising[:3])) is None and horizons(rows_of(rising, [1.] * 5)) is None
