"""What a run survives: kills at every kind of moment, and damage of every kind is named."""
import json
import math
import signal

import pandas as pd
import pytest
from utils.processes import exit_code

from evolora.experiments import crash_recovery
from evolora.ecology.config import PRESETS
from evolora.host.model import load_host
from evolora.experiments.crash_recovery import (MOMENTS, RUN_DAMAGES, damages, kills, small, recovery_tables,
                                          recovery_targets, recorded, weight)


@pytest.fixture(scope='module')
def host(): return load_host('embedded', threads=1)


def test_every_preset_has_a_small_sister():
    for name in (p.stem for p in PRESETS.glob('*.yaml')):
        assert small(name).market.questions == 6 and small(name).variation.every == 2


@pytest.fixture
def forked(monkeypatch):
    "Victims that import nothing, as their parent has done that; they are processes of their own all the same"
    monkeypatch.setattr(crash_recovery, '_run',
                        lambda folder, *how: exit_code(crash_recovery._victim, str(folder), *how))


def kept_through(found):
    assert found.same.all() and (found['lost beyond'] == 0).all()
    assert found.killed[found.moment != 'time'].all() and found.killed.any(), 'what is counted has to come'
    assert set(found.moment) <= set(MOMENTS)


def test_a_life_with_kills_ends_as_the_one_without(tmp_path, forked):
    found = kills(3, tmp_path, presets=['debug'], generations=3, each=3, seed=1)
    kept_through(found)
    assert (found.kept <= 3).all()


@pytest.mark.slow
def test_lives_with_many_kills_end_as_those_without(tmp_path):
    kept_through(kills(12, tmp_path, presets=['debug', 'ecology'], generations=4, each=3, seed=1))


def test_a_victim_is_a_process_that_dies_when_it_is_told(tmp_path):
    assert crash_recovery._run(tmp_path / 'x', 'frozen', 1, 1, 'event', 3, 0) == -signal.SIGKILL


def test_a_life_that_ends_otherwise_is_seen(tmp_path, monkeypatch, forked):
    "The comparison can fail: a run that was edited between two sessions"
    real = crash_recovery.recorded
    def edited(folder): return real(folder) | ({'ledger': 'other'} if ' ' in folder.name else {})
    monkeypatch.setattr(crash_recovery, 'recorded', edited)
    found = kills(1, tmp_path, presets=['frozen'], generations=2, each=1)
    assert not found.same.any()


def test_the_timings_are_not_compared(tmp_path):
    for name in ('timings', 'ledger'): (tmp_path / f'{name}.jsonl').write_text('{}\n')
    assert set(recorded(tmp_path)) == {'ledger'}


@pytest.mark.parametrize('n, seed', [(54, 3), pytest.param(216, 4, marks=pytest.mark.slow)])
def test_every_kind_of_damage_is_named_and_nothing_is_changed(tmp_path, host, n, seed):
    found = damages(n, tmp_path, host, seed=seed)
    assert set(found.damage) == {*RUN_DAMAGES, 'preset', 'adapter', 'model'}
    assert set(found.outcome) == {'named'}, found[found.outcome != 'named'].to_string()
    assert not found.changed.any() and not found['code ran'].any()


@pytest.mark.parametrize('verdict, attempt', [
    ('accepted', lambda: None), ('named', lambda: (_ for _ in ()).throw(ValueError('one line'))),
    ('long', lambda: (_ for _ in ()).throw(ValueError('two\nlines'))), ('traceback', lambda: {}['x'])])
def test_what_came_of_an_attempt(verdict, attempt): assert crash_recovery._verdict(attempt)[0] == verdict


def test_the_payloads_would_work(tmp_path):
    "A canary that no payload could reach would prove nothing"
    import pickle
    pickle.loads(pickle.dumps(crash_recovery._Payload(str(tmp_path / 'canary'))))
    assert (tmp_path / 'canary').exists()


def test_a_checkpoint_is_weighed(tmp_path, host):
    found = weight(tmp_path, host, organelles=3, generations=2)
    assert found['organelles'] == 3 and 0 < found['share'] < 1 and found['MB'] > .1
    assert math.isclose(found['share'], found['checkpoint, s'] / (10 * found['generation, s'] + found['checkpoint, s']))


def test_targets_report_what_was_missed():
    killed = pd.DataFrame([dict(preset='x', moment='time', killed=True, same=s, **{'lost beyond': lost})
                           for s, lost in ((True, 0), (False, 2))])
    damaged = pd.DataFrame([dict(damage='d', outcome=o, changed=c, **{'code ran': False})
                            for o, c in (('named', False), ('accepted', True))])
    found = {t['name']: t['met'] for t in recovery_targets(killed, damaged, {'share': .06})}
    assert [name for name, met in found.items() if met] == [
        'kills that came, of 2', 'damages that end in a traceback', 'times that code of a stranger ran']
    assert recovery_targets(killed, damaged, None)[-1]['met'] is None
    tables = recovery_tables(killed, damaged, {'share': .06})
    assert json.dumps([t.to_dict('records') for t in tables.values()], default=int)
