"""`evolora config` says what can be set, and `--set` sets it, wherever something begins."""
import json

import pytest

from evolora.cli.settings import changes_of
from evolora.ecology.config import PRESETS, load_config, settings

PRESET_NAMES = sorted(p.stem for p in PRESETS.glob('*.yaml'))


@pytest.mark.parametrize('preset', PRESET_NAMES)
def test_all_settings_are_printed_with_value_default_unit_and_meaning(cli, preset):
    code, out, err = cli('config', preset)
    rows = settings(load_config(preset))
    assert code == 0 and not err and out.count(' = ') >= len(rows) and f'{len(rows)} of {len(rows)} settings' in out
    for row in rows:
        assert f"{row['setting']} = " in out and ' '.join(row['meaning'].split()[:3]) in ' '.join(out.split())


def test_what_lies_between_two(cli):
    code, out, _ = cli('config', 'single', '--diff', 'frozen')
    named = [line.partition(' = ')[0] for line in out.splitlines() if ' = ' in line and not line.startswith(' ')]
    one, other = load_config('single'), load_config('frozen')
    assert code == 0 and named == [row['setting'] for row in settings(one, other) if row['value'] != row['other']]
    assert 'are the same in all' in cli('config', 'debug', '--diff', 'debug')[1]
    assert 'market.bet = 0.5' in cli('config', 'debug', '--own', '--set', 'market.bet=.5')[1]


@pytest.mark.parametrize('told, value', [('.5', .5), ('1e-3', 1e-3), ('7', 7), ('none', 'none'), ('null', None),
                                         ('true', True), ('["math:1"]', ['math:1']), ('a=b', 'a=b'), ('', '')])
def test_a_value_is_read_as_what_it_looks_like(told, value):
    assert changes_of([f'market.bet = {told}']) == {'market.bet': value}


@pytest.mark.parametrize('words, said', [
    (['run', '--config', 'debug', '--set', 'market.bet'], 'expected NAME=VALUE'),
    (['run', '--config', 'debug', '--set', 'market.bett=1'], 'is bet meant'),
    (['run', '--config', 'debug', '--set', 'market.bet=7'], 'less than or equal to 1'),
    (['run', '--set', 'founders=' + '[' * 100_000], 'founders'),
    (['islands', '--n', '2', '--config', 'debug', '--set', 'founders=0'], 'founders'),
    (['config', 'debug', '--set', 'x=1'], 'unknown key'), (['config', 'debgu'], 'expected a preset'),
    (['config', 'debug', '--diff', 'debgu'], 'expected a preset')])
def test_what_does_not_fit_is_one_line_and_nothing_is_begun(cli, tmp_path, monkeypatch, words, said):
    monkeypatch.chdir(tmp_path)
    code, out, err = cli(*words)
    assert code == 2 and err.count('\n') == 1 and said in err and not [*tmp_path.iterdir()]


def test_a_run_begins_with_it_and_goes_on_as_it_began(cli, tmp_path):
    folder, begin = tmp_path / 'run', ('run', '--generations', 1, '--set', 'market.bet=.5', '--set', 'capacity=3')
    assert cli(*begin, '--config', 'debug', '--out', folder)[0] == 0
    config = json.loads((folder / 'run.json').read_text())['config']
    assert config['market']['bet'] == .5 and config['capacity'] == 3
    same = ('run', '--resume', folder, '--generations', 2)
    assert cli(*same, '--set', 'market.bet=.5')[0] == 0
    code, _, err = cli(*same, '--set', 'market.bet=.4')
    assert code == 2 and 'market.bet was 0.5 and is 0.4' in err
    assert cli(*same, '--config', 'debug', '--set', 'market.bet=.5', '--set', 'capacity=3')[0] == 0
