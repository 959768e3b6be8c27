"""The benchmarks measure what they claim to measure. No time is asserted: speed is a command."""
import json
from pathlib import Path

import pytest
import torch

from evolora.experiments import speed
from evolora.cli import app as cli
from evolora.ecology.config import changed_config
from evolora.experiments.learning_speed import learning_targets
from evolora.experiments.memory_use import memory_targets
from evolora.experiments.speed import (Rivals, alternate, crowd, generation_parts, generation_tables,
                                       generation_targets, peak_gflops, report, settlers, target, throughput,
                                       throughput_tables, throughput_targets, unequal, useful_flops,
                                       workload)
from evolora.host.model import load_host

ROWS = 48


@pytest.fixture(scope='module')
def host(): return load_host('embedded', threads=1)


@pytest.fixture
def small(monkeypatch):
    monkeypatch.setattr(speed, 'ROWS', ROWS)
    monkeypatch.setattr(speed.workload, '__defaults__', (ROWS,))
    monkeypatch.setattr(speed, 'peak_gflops', lambda: lambda: 1e4)          # a test of its own measures it
    def fewer(size): return changed_config(crowd(size), {'max_new_tokens': 4})
    monkeypatch.setattr(speed, 'crowd', fewer)


@pytest.fixture(scope='module')
def settled(host):
    prompts, population = workload(4, ROWS), settlers(host, 3, mixed=True, step=.3)
    return prompts, population, [population.ids[i * 3 // ROWS] for i in range(ROWS)]


def test_the_workload_is_ragged_and_comes_from_everywhere():
    prompts = workload(4)
    assert len(prompts) == 512 and len(set(prompts)) >= 120          # a short question may come twice
    assert all(prompts[i] == prompts[i + 3] for i in range(0, 512, 4))
    assert len(workload(1)) == 512 and workload(1) == workload(1)
    assert len({len(p) for p in prompts}) > 20


def test_settlers_answer_otherwise_than_the_host_and_have_the_ranks_that_are_said(host):
    population = settlers(host, 6, mixed=True)
    assert {o.rank for o in population} <= {2, 4, 8, 16} and len({o.rank for o in population}) > 1
    assert {o.rank for o in settlers(host, 3)} == {8}
    assert not any(population.is_noop(id) for id in population.ids)


def test_rivals_do_the_same_work(host, settled):
    "Equal greedy tokens for transformers and both ways of peft, and no sleeping organelle"
    prompts, population, who = settled
    rivals = Rivals(host, prompts, population, who)
    found = unequal(host, population, prompts, who, rivals, slow=True)
    assert [found[k] for k in ('(b) against (a)', '(c) against (d)', '(c) against (e)')] == [0, 0, 0]
    assert found['changed by adapters'] > 3 and rivals.transformers(0) != rivals.mixed(0)


def test_unequal_rows_are_counted(host, settled):
    prompts, population, who = settled
    rivals = Rivals(host, prompts, population, [population.ids[0]] * ROWS)      # peft answers for the wrong organelle
    assert unequal(host, population, prompts, who, rivals, slow=True)['(c) against (e)'] > 0


def test_useful_flops_leave_out_what_is_shared(host):
    prompts = workload(4, ROWS)
    made = host.generate(prompts, seeds=range(ROWS), max_new_tokens=8)
    assert .2 * made.alone.sum() < useful_flops(host, made, 4) < made.flops.sum() < made.alone.sum()
    read = sum(host.meter.forward(int(p), logits=1) for p in made.prompt_tokens)
    assert made.alone.sum() - made.flops.sum() == pytest.approx(.75 * read)


def test_contestants_take_turns_and_warm_up_is_not_counted():
    log = []
    found = alternate({'x': lambda: log.append('x'), 'y': lambda: log.append('y')}, {'x': 3, 'y': 2})
    assert ''.join(log) == 'xyxyxyx' and {k: len(v) for k, v in found.items()} == {'x': 3, 'y': 2}
    assert len(alternate({'x': lambda: log.append('z')}, {'x': 1})['x']) == 1 and log.count('z') == 1


def test_targets_can_be_met_and_missed():
    assert [target('x', '>= 2', m)['met'] for m in (1.9, 2, None)] == [False, True, None]
    assert [target('x', '<= 0.15', m)['met'] for m in (.1, .2)] == [True, False]
    assert report('x', [], [target('x', '>= 2', 3), target('y', '>= 2', None)])['targets_met']
    assert not report('x', [], [target('x', '>= 2', 3), target('y', '>= 2', 1)])['targets_met']


RESULTS = Path(__file__).parents[2] / 'nbs/results'


@pytest.mark.parametrize('name, targets', [('throughput', throughput_targets), ('generation', generation_targets),
                                           ('memory', lambda rows: memory_targets(*rows)),
                                           ('learning', lambda rows: learning_targets(
                                               *([r for r in rows if r['table'] == t] for t in ('peft', 'ways'))))])
def test_committed_measurements_meet_and_miss_the_targets_of_today(name, targets):
    found = json.loads((RESULTS / f'{name}.json').read_text())
    assert report(name, found['rows'], targets(found['rows'])) == found


def test_the_command_without_quick_measures_what_is_committed(host, monkeypatch):
    "A line each, in the same order; every target has a population that it is about"
    monkeypatch.setattr(speed, 'peak_gflops', lambda: None)
    monkeypatch.setattr(speed, '_contest', lambda host, size, mixed, threads, *rest: (size, mixed, threads))
    monkeypatch.setattr(speed, '_parts', lambda host, size, *rest: size)
    lines = {name: json.loads((RESULTS / f'{name}.json').read_text())['rows'] for name in ('throughput', 'generation')}
    assert throughput(host) == [(l['population'], l['ranks'] != '8', l['threads']) for l in lines['throughput']]
    assert generation_parts(host) == [l['population'] for l in lines['generation']]


def test_throughput_has_a_line_for_each_population_and_number_of_threads(host, small, monkeypatch):
    monkeypatch.setattr(speed, 'ROWS', 16)
    monkeypatch.setattr(speed.workload, '__defaults__', (16,))
    ticks, before = [], torch.get_num_threads()
    lines = throughput(host, sizes=(2, 5), threads=(1,), repeats=2, slow_repeats=1, tick=lambda: ticks.append(1))
    assert [(l['population'], l['ranks'], l['copies']) for l in lines] == [(2, '8', 4), (2, '2-16', 4), (5, '8', 1),
                                                                          (5, '2-16', 1)]
    assert torch.get_num_threads() == before and ticks
    plain = lines[0]
    assert set(plain['tokens_per_second']) == set('abcde') and set(lines[1]['tokens_per_second']) == set('bc')
    assert sum(v for k, v in plain['unequal'].items() if k[0] == '(') == 0
    for l in lines:
        assert .9 < l['limit'] < 1 and l['gflops'] > 0 and l['peak_gflops'] > l['gflops']
        for spread in filter(None, l['ratios'].values()): assert spread['low'] <= spread['median'] <= spread['high']
        over, ratio = l['ratios']['c/b over limit']['median'], l['ratios']['c/b']['median']
        assert over == pytest.approx(ratio / l['limit'])
    assert json.loads(json.dumps(report('throughput', lines, throughput_targets(lines))))['name'] == 'throughput'
    tables = throughput_tables(lines)
    assert list(tables) == ['1 thread, ranks 8', '1 thread, ranks 2-16']
    assert [list(t.columns) for t in tables.values()] == [['', 'P = 2', 'P = 5']] * 2


def test_an_interrupted_contest_keeps_the_lines_that_are_done(host, small, monkeypatch):
    real = speed._contest
    def contest(host, size, *rest):
        if size == 3: raise KeyboardInterrupt
        return real(host, size, *rest)
    monkeypatch.setattr(speed, '_contest', contest)
    how = dict(threads=(1,), repeats=1, slow_repeats=1, mixed=False)
    assert [l['population'] for l in throughput(host, sizes=(2, 3), **how)] == [2]
    with pytest.raises(KeyboardInterrupt): throughput(host, sizes=(3,), **how)


def test_the_parts_of_a_generation_add_up(host, small):
    line, = generation_parts(host, sizes=(4,), generations=2)
    parts = line['milliseconds']
    assert {'serve', 'merge', 'renew', 'evolve', 'adapt', 'record'} <= set(parts)
    assert 0 < line['other_than_model']['median'] < 1 and line['answers'] == ROWS
    assert line['milliseconds_per_answer']['median'] * ROWS < sum(parts.values())
    assert [len(table) for table in generation_tables([line]).values()] == [1]


def test_a_crowd_shares_the_same_number_of_answers():
    for size in (8, 512):
        config = crowd(size)
        assert config.capacity == config.founders == size
        assert config.market.questions * config.curriculum.copies == 512 and config.market.contest == 0


def test_the_peak_is_a_rate(): assert peak_gflops()() > 1


@pytest.mark.parametrize('name', ['throughput', 'generation', 'learning', 'memory', 'lab'])
def test_a_result_is_not_written_over(name, tmp_path, capsys):
    there = tmp_path / 'there.json'
    there.write_text('mine')
    with pytest.raises(SystemExit) as e: cli.main(['bench', name, '--quick', '--out', str(there)])
    err = capsys.readouterr().err
    assert e.value.code == 2 and 'expected a new file for --out' in err and err.count('\n') == 1
    assert there.read_text() == 'mine'


def test_the_command_speaks_json_and_writes_it(small, tmp_path, capsys):
    with pytest.raises(SystemExit) as e:
        cli.main(['bench', 'generation', '--quick', '--json', '--out', str(tmp_path / 'new.json')])
    line = capsys.readouterr().out.strip().splitlines()[-1]
    found = json.loads(line)
    assert not e.value.code and json.loads((tmp_path / 'new.json').read_text()) == found
    assert set(found) == {'name', 'rows', 'targets', 'targets_met'}
    assert [t['name'] for t in found['targets']] == ['everything but model time in a generation, P = 32']
