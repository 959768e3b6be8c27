"""`--track`: long commands tell a tracker what their hooks tell them; what is wrong is said before anything begins."""
import importlib.util
import json

import pytest

from cli.test_app import sketched       # noqa: F401  one chart, and no picture is drawn
from cli.test_attention import SEARCH
from cli.test_attention import here as searching        # noqa: F401  a tiny tier, and jobs in this process
from experiments.test_study import TEXT, made
from evolora.analysis.trackers import TRACKERS
from evolora.ecology.run_folder import TABLES
from evolora.experiments import study as study_module
from evolora.training.train import LOSSES
from islands.test_islands_command import CONFIG

SMALL = ('--config', 'debug', '--set', 'market.questions=4')


class Notes:
    "A tracker that keeps what it is told, in a list for all"
    needs, told = 'json', []
    def look(self, folder): return f'look at {folder}'
    def begin(self, name, id, config, folder, again): self.told.append(('begin', name, id, config, again))
    def scalars(self, step, values): self.told.append(('scalars', step, values))
    def table(self, step, name, rows): self.told.append(('table', step, name, rows))
    def figure(self, step, name, png): self.told.append(('figure', step, name, png))
    def end(self, status): self.told.append(('end', status))


@pytest.fixture
def told(monkeypatch):
    monkeypatch.setitem(TRACKERS, 'notes', Notes)
    monkeypatch.setattr(Notes, 'told', [])
    return Notes.told


@pytest.fixture
def cli(cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv('RAY_ADDRESS', raising=False)
    return cli


def of(told, kind): return [one[1:] for one in told if one[0] == kind]


def test_a_run_is_tracked_and_gone_on_with(sketched, told, cli, tmp_path):
    assert cli('run', *SMALL, '--generations', 2, '--out', 'bare')[0] == 0
    code, out, err = cli('run', *SMALL, '--generations', 1, '--out', 'a', '--track', 'notes', '--track', 'notes')
    assert code == 0 and out.count('tracked by notes: look at a/track/notes') == 1
    assert cli('run', '--resume', 'a', '--generations', 2, '--track', 'notes')[0] == 0
    (name, id, config, again), (_, id_later, _, later) = of(told, 'begin')
    assert name == 'a' and id == id_later and (again, later) == (0, 1)
    assert config['config']['market']['questions'] == 4 and config['host']['id'] == 'embedded' and config['seed'] == 0
    rows = [json.loads(line) for line in (tmp_path / 'a/generations.jsonl').read_text().splitlines()]
    assert [(step, values['economy/roi']) for step, values in of(told, 'scalars')] == [
        (row['generation'], row['roi']) for row in rows]
    assert [(step, name) for step, name, _ in of(told, 'table')] == [(0, 'answers'), (1, 'answers')]
    pictures = {path.stem: path.read_bytes() for path in (tmp_path / 'a/charts').glob('*.png')}
    assert {name: png for step, name, png in of(told, 'figure') if step == 1} == pictures and pictures
    assert of(told, 'end') == [('finished',), ('finished',)]
    for table in set(TABLES) - {'timings'}:
        assert (tmp_path / f'a/{table}.jsonl').read_bytes() == (tmp_path / f'bare/{table}.jsonl').read_bytes(), table


def test_a_run_that_ends_early_was_stopped(sketched, told, cli):
    hopeless = ('--set', 'cells=["math:3"]', '--set', 'max_new_tokens=1')
    assert cli('run', *SMALL, *hopeless, '--generations', 9, '--patience', 1, '--track', 'notes')[0] == 3
    assert of(told, 'end') == [('stopped',)]


@pytest.mark.parametrize('command', [('run',), ('islands',), ('train', 'jobs.yaml'), ('study', 'plan.yaml'),
                                     ('attention', 'evolve')])
def test_what_is_wrong_is_said_before_anything_begins(command, cli, tmp_path):
    (tmp_path / 'jobs.yaml').write_text('data: mine.jsonl\n')
    (tmp_path / 'mine.jsonl').write_text('{"prompt": "1 + 1?", "completion": "2"}\n' * 4)
    (tmp_path / 'plan.yaml').write_text(TEXT)
    before = sorted(tmp_path.iterdir())
    code, out, err = cli(*command, '--track', 'tensorbord')
    assert code == 2 and "expected a tracker, got 'tensorbord'; known: tensorboard, trackio, wandb, mlflow" in err
    assert len(err.splitlines()) == 1 and sorted(tmp_path.iterdir()) == before


def test_a_training_tells_its_curves_once(told, cli, tmp_path):
    rows = [dict(prompt=f'What is {i} plus {i % 7}?', completion=str(i + i % 7)) for i in range(40)]
    (tmp_path / 'mine.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
    (tmp_path / 'jobs.yaml').write_text('data: mine.jsonl\nvalidation: 0.2\nrate: [1e-4, 1e-2]\nsteps: 4\n')
    assert cli('train', 'jobs.yaml', '--track', 'notes')[0] == 0
    numbers = {(name, step): x for step, values in of(told, 'scalars') for name, x in values.items()}
    lines = [line.split(',') for line in (tmp_path / 'jobs-trained' / LOSSES).read_text().splitlines()[1:]]
    known = {(f'loss/{job}', int(step)): float(loss) for job, step, loss, *_ in lines if loss}
    assert {k: x for k, x in numbers.items() if k[0].startswith('loss/')} == pytest.approx(known) and len(known) == 8
    assert any(name.startswith('validation/') for name, _ in numbers)
    [(step, name, table)] = of(told, 'table')
    assert (step, name) == (4, 'jobs') and table['job'].tolist() == ['rate=1e-4', 'rate=1e-2']


def test_islands_tell_of_each_epoch(told, cli, tmp_path):
    (tmp_path / 'tiny.yaml').write_text(CONFIG)
    islands = ('islands', '--n', 2, '--migrate-every', 1, '--config', 'tiny.yaml', '--generations', 2)
    assert cli(*islands, '--track', 'notes')[0] == 0
    found = {(step, name.rpartition('/')[2]): x for step, values in of(told, 'scalars') for name, x in values.items()
             if name.startswith('alive/')}
    assert set(found) == {(g, f'island-000{i}') for g in (1, 2) for i in (0, 1)} and min(found.values()) >= 1
    assert [(step, name) for step, name, _ in of(told, 'table')] == [(2, 'islands')]
    assert of(told, 'end') == [('finished',)] and of(told, 'begin')[0][2]['islands']['every'] == 1


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.setattr(study_module, 'make_cell', made)
    monkeypatch.setattr(study_module, 'hashes_of_cell', lambda *_: {'code': 'x', 'host': 'y'})
    monkeypatch.setattr(study_module, 'host_of', lambda plan, cell: None)
    (tmp_path / 'plan.yaml').write_text(TEXT)


def test_a_study_tells_of_each_cell_once(plan, told, cli, tmp_path):
    assert cli('study', 'plan.yaml', '--shard', '1/3', '--track', 'notes')[0] == 0
    first = of(told, 'scalars')
    assert len(first) == 5 and of(told, 'begin')[0][0] == 'shard-1-of-3'
    told.clear()
    assert cli('study', 'plan.yaml', '--track', 'notes')[0] == 0
    later = of(told, 'scalars')
    assert [step for step, _ in later] == [*range(6, 16)], 'five cells were there'
    cells = [json.loads(path.read_text()) for path in (tmp_path / 'runs/study-tried/cells').glob('*.json')]
    spent = [x for _, values in first + later for name, x in values.items() if name.startswith('compute/')]
    assert sorted(spent) == sorted(cell['gflops'] for cell in cells)
    assert all(0 <= x <= 1 for _, values in later for name, x in values.items() if name.startswith('accuracy/'))
    assert of(told, 'table') and of(told, 'end') == [('finished',)]


@pytest.mark.slow
def test_a_search_tells_of_each_candidate(searching, told, cli, monkeypatch):
    monkeypatch.chdir(searching)
    code, out, err = cli('attention', 'evolve', *SEARCH, '--budget', 2, '--out', searching / 'a', '--track', 'notes')
    assert code == 0, err
    assert [step for step, _ in of(told, 'scalars')] == [1, 2]
    assert all('search/best' in values for _, values in of(told, 'scalars'))
    [(step, name, table)] = of(told, 'table')
    assert (step, name, len(table)) == (2, 'candidates', 3) and of(told, 'begin')[0][2]['tier'] == 'tiny'


@pytest.mark.skipif(importlib.util.find_spec('tensorboard') is None, reason="pip install 'evolora[trackers]'")
def test_a_tensorboard_that_cannot_begin_costs_nothing_but_a_line(sketched, cli, tmp_path, monkeypatch):
    def broken(*ignored, **how): raise OSError('no space')
    monkeypatch.setattr('torch.utils.tensorboard.SummaryWriter', broken)
    code, out, err = cli('run', *SMALL, '--generations', 1, '--out', 'a', '--track', 'tensorboard')
    assert code == 0 and 'tensorboard failed, and the run goes on without it: OSError: no space' in err
    assert len((tmp_path / 'a/generations.jsonl').read_text().splitlines()) == 1
