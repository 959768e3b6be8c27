"""`evolora train`: a file of jobs becomes peft folders; what is wrong is one line, and nothing is written."""
import json
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest

from evolora.cli.app import main
from evolora.host.model import load_host
from evolora.organelles.population import Population


@pytest.fixture
def jobs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [dict(prompt=f'What is {i} plus {i % 7}?', completion=str(i + i % 7)) for i in range(40)]
    (tmp_path / 'mine.jsonl').write_text(''.join(json.dumps(row) + '\n' for row in rows))
    def write(text='data: mine.jsonl\nvalidation: 0.2\nrate: [1e-4, 1e-2]\nsteps: 12\n'):
        (tmp_path / 'jobs.yaml').write_text(text)
        return tmp_path
    return write


def code(*arguments):
    with pytest.raises(SystemExit) as end: main(['train', *map(str, arguments)])
    return end.value.code


def test_a_file_becomes_adapters(jobs, capsys):
    folder = jobs()
    assert code('jobs.yaml', '--dry-run') == 0 and not (folder / 'jobs-trained').exists()
    assert code('jobs.yaml') == 0
    said = capsys.readouterr().out
    assert 'best: rate=1e-2' in said and 'done' in said
    made = sorted(path.name for path in (folder / 'jobs-trained/adapters').iterdir())
    assert made == ['rate=1e-2', 'rate=1e-4'] and not (folder / 'jobs-trained/checkpoint.safetensors').exists()
    population = Population(load_host('embedded'), targets=('all-linear',))
    population.import_peft(folder / 'jobs-trained/adapters/rate=1e-2')
    losses = pd.read_csv(folder / 'jobs-trained/losses.csv')
    assert losses.groupby('job').loss.count().tolist() == [12, 12]
    assert code('jobs.yaml') == 2 and 'is finished; name another folder' in capsys.readouterr().err


@pytest.mark.parametrize('text, said', [
    ('data: none.jsonl\n', 'none.jsonl: expected a file of JSON lines'), ('data: [', 'expected YAML'),
    ('data: mine.jsonl\nparalel: 4\n', 'did you mean parallel?'), ('data: mine.jsonl\nblocks: 9\n', 'at most 4'),
    ('data: mine.jsonl\nrate: 1e9\n', 'less than or equal'), ('data: mine.jsonl\nname: Ä b\n', 'letters from a to z'),
    ('data: mine.jsonl\nrnk: 4\n', "got 'rnk'; did you mean rank?"), ('rank: 4\n', 'expected data, got none'),
    ('data: mine.jsonl\nrank: 0\n', 'rank: Input should be greater than or equal to 1, got 0'),
    ('data: mine.jsonl\nobjective: dpo\n', 'dpo expected a chosen and a rejected reply'),
    ('data: mine.jsonl\ntargets: nothing\n', "target 'nothing' names no linear map"),
    ('data: mine.jsonl\nvalidation: mine.jsonl\n', 'got 40 of 40 that are'),
    ('data: mine.jsonl\nhost: nowhere\n', "cannot load a causal language model from 'nowhere'"),
    ('data: mine.jsonl\nhalving: 3\n', 'halving expected validation data'),
    ('data: mine.jsonl\nmax_tokens: 3\n', 'raise max_tokens'), ('data: big.jsonl\n', 'line 1: expected at most'),
    ('data: holes.jsonl\n', 'holes.jsonl, line 2: completion expected a text')])
def test_what_is_wrong_is_one_line_and_nothing_is_written(jobs, text, said, capsys):
    folder = jobs(text)
    (folder / 'big.jsonl').write_text('{"prompt": "' + 'x' * (10 << 20) + '"}\n')
    (folder / 'holes.jsonl').write_text('{"prompt": "a", "completion": "b"}\n{"prompt": "a", "completion": ""}\n')
    before = sorted(folder.iterdir())
    assert code('jobs.yaml') == 2
    error = capsys.readouterr().err
    assert said in error and error.count('evolora: ') == 1 and 'Traceback' not in error
    assert sorted(folder.iterdir()) == before


def test_ctrl_c_keeps_what_is_done_and_resume_ends_as_if_nothing_had_been(jobs, capsys):
    folder = jobs('data: mine.jsonl\nvalidation: 0.2\nrate: [1e-4, 1e-2]\nsteps: 300\n')
    command = [sys.executable, '-c', 'from evolora.cli.app import main; main()', 'train', 'jobs.yaml', '--out',
               'stopped', '--threads', '1']
    run = subprocess.Popen(command, cwd=folder, stderr=subprocess.PIPE, text=True)
    while run.poll() is None and not any((folder / 'stopped').glob('*')): time.sleep(.2)
    time.sleep(2)
    assert run.poll() is None, run.stderr.read()
    run.send_signal(signal.SIGINT)
    assert run.wait(60) == 130 and '--resume' in run.stderr.read()
    begun = len(pd.read_csv(folder / 'stopped/losses.csv'))
    assert 0 < begun < 600
    assert code('jobs.yaml', '--out', 'stopped') == 2 and 'say --resume' in capsys.readouterr().err
    data = (folder / 'mine.jsonl').read_text()
    (folder / 'mine.jsonl').write_text(data.replace('"6"', '"7"'))
    assert code('jobs.yaml', '--out', 'stopped', '--resume', '--threads', 1) == 2
    assert 'was begun with another data (of rate=1e-4); name' in capsys.readouterr().err
    (folder / 'mine.jsonl').write_text(data)
    assert code('jobs.yaml', '--out', 'stopped', '--resume', '--threads', 2) == 2
    assert 'another threads (1, now 2)' in capsys.readouterr().err
    assert code('jobs.yaml', '--out', 'stopped', '--resume', '--threads', 1) == 0
    assert code('jobs.yaml', '--out', 'whole', '--threads', 1) == 0
    weights = lambda name: (folder / name / 'adapters/rate=1e-2/adapter_model.safetensors').read_bytes()
    assert weights('stopped') == weights('whole')
    assert (folder / 'stopped/losses.csv').read_bytes() == (folder / 'whole/losses.csv').read_bytes()
