"""A new host is measured before a run unless that is switched off, and the command says how long it takes."""
from itertools import count

import pytest

from evolora.cli.calibrate import settings_for
from evolora.ecology.config import load_config
from evolora.ecology.cost_forecast import priced_for
from evolora.evaluation import host_calibration
from evolora.evaluation.host_calibration import Effort, candidate_cells, most_seconds
from evolora.host.model import tiny_host
from evolora.tasks.forms import FORMS


@pytest.fixture
def new_host(tmp_path):
    host = tiny_host('llama')
    host.model.save_pretrained(tmp_path / 'new')
    host.tokenizer.save_pretrained(tmp_path / 'new')
    return tmp_path / 'new'


@pytest.mark.slow
def test_a_run_on_a_new_host_need_not_measure_it(cli, new_host, tmp_path, monkeypatch):
    def measured(*_, **__): raise ValueError('it was measured')
    monkeypatch.setattr(host_calibration, 'calibrate', measured)
    begin = ('run', '--host', new_host, '--preset', 'debug', '--generations', 1)
    code, out, err = cli(*begin, '--out', tmp_path / 'a')
    assert code and 'it was measured' in err and 'takes up to' in err and '--no-calibrate' in err
    code, out, err = cli(*begin, '--out', tmp_path / 'b', '--no-calibrate')
    assert not code and 'measured' not in err and (tmp_path / 'b' / 'generations.jsonl').exists()


def test_settings_for_a_new_host_say_how_long_it_is_measured(monkeypatch, capsys):
    def measured(*_, **__): raise ValueError('it was measured')
    monkeypatch.setattr(host_calibration, 'calibrate', measured)
    monkeypatch.setattr(host_calibration, 'most_seconds', lambda host: 300.)
    host = tiny_host('llama')
    assert settings_for(host, 'debug', measured=False) == (priced_for(load_config('debug'), host), None)
    with pytest.raises(ValueError, match='it was measured'): settings_for(host, 'debug')
    err = capsys.readouterr().err
    assert 'takes up to 5 minutes' in err and '--no-calibrate' in err


def test_the_most_seconds_are_those_of_every_answer_that_may_be_asked_for(monkeypatch):
    clock = count(0, 8)         # each call takes eight seconds, for eight answers
    monkeypatch.setattr(host_calibration.time, 'perf_counter', lambda: next(clock))
    cells = candidate_cells()
    for effort in (Effort(), Effort(measure=60)):
        answers = effort.total(len(FORMS), len(cells), len({c.family for c in cells}))
        assert most_seconds(tiny_host('llama'), effort, rows=8) == answers
