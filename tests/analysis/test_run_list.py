"A list of runs has a row for whatever lies there, believes none of it, and removes only what evolora wrote."
import json
import os
import time
from pathlib import Path

import pytest
from hostile import write_hostile
from synthetic import write_run

from evolora.analysis.run_list import check_removable, list_runs, remove_run
from evolora.ecology.config import load_config
from evolora.ecology.run_folder import Run
from evolora.utils.files import locked, note_aim


def rows(folder, **how): return list_runs(folder, **how).set_index('name').to_dict('index')


def test_a_run_is_told_by_its_head_and_its_last_generations(tmp_path):
    run = write_run(tmp_path / 'runs' / 'a', generations=12, seed=7)
    row = rows(tmp_path / 'runs')['a']
    last = run.table('generations').tail(5)
    right = (last.accuracy * last.episodes).sum() / last.episodes.sum()
    assert row['accuracy'] == pytest.approx(right)
    assert (row['generations'], row['seed'], row['host'], row['kind']) == (12, 7, 'synthetic', 'run')
    assert row['size'] == sum(p.stat().st_size for p in run.folder.iterdir())
    assert abs(row['written'].timestamp() - time.time()) < 600


def test_the_four_states(tmp_path):
    for name in ('running', 'done', 'short', 'killed', 'stepped'): write_run(tmp_path / name, generations=3, size=4)
    for name, aim in {'running': 9, 'done': 3, 'short': 9}.items():
        with locked(tmp_path / name): note_aim(tmp_path / name, aim)
    (tmp_path / 'killed/.owner.json').write_text('{"process": 1, "machine": "x\\u001b[2J"}')
    (tmp_path / 'killed/.lock').touch()
    (tmp_path / 'bad').mkdir()
    (tmp_path / 'bad/run.json').write_text('[]')
    with locked(tmp_path / 'running'): found = rows(tmp_path)
    assert {name: row['state'] for name, row in found.items()} == {
        'running': 'running', 'done': 'done', 'short': 'stopped', 'killed': 'stopped', 'stepped': 'stopped',
        'bad': 'damaged'}
    assert found['short']['aim'] == 9 and 'did not end well' in found['killed']['note']
    assert rows(tmp_path)['running']['state'] == 'stopped', 'the lock has gone with its owner'


def test_what_is_damaged_or_hostile_is_a_row_with_a_reason(tmp_path):
    place = tmp_path / 'runs'
    write_hostile(place / 'hostile\x1b[2J\n')
    for name in ('torn', 'nonsense', 'pipe', 'linked table', 'linked head', 'old', 'edited', 'deep', 'huge'):
        write_run(place / name, generations=3, size=4)
    with (place / 'torn/generations.jsonl').open('a') as file: file.write('{"generation": 3')
    (place / 'nonsense/generations.jsonl').write_text('{}\n')
    (place / 'pipe/generations.jsonl').unlink()
    os.mkfifo(place / 'pipe/generations.jsonl')
    for name, file in {'linked table': 'generations.jsonl', 'linked head': 'run.json'}.items():
        (place / name / file).rename(tmp_path / file)
        (place / name / file).symlink_to(tmp_path / file)
    head = json.loads((place / 'old/run.json').read_text())
    (place / 'old/run.json').write_text(json.dumps(head | {'format': 3}))
    (place / 'edited/run.json').write_text(json.dumps(head | {'config': {'population': 9}}))
    (place / 'deep/run.json').write_text('[' * 100_000)
    (place / 'huge/run.json').write_text(' ' * (1 << 21))
    (place / 'link').symlink_to(place / 'torn')
    (place / 'loop').symlink_to(place)
    (place / 'file').write_text('')
    (place / 'islands').mkdir()
    (place / 'islands/islands.json').write_text('{"seed": 1, "host": {"id": "x"}, "config": {}}')
    (place / 'islands/status.json').write_text('{"islands": [7]}')
    (place / 'study').mkdir()
    (place / 'study/study.json').write_text('{"plan": {"worlds": [1]}}')
    found = rows(place)
    damaged = {name: row['note'] for name, row in found.items() if row['state'] == 'damaged'}
    assert set(found) - set(damaged) == {'hostile\x1b[2J\n', 'torn'}
    assert found['torn']['generations'] == 3, 'a line that is being written is not counted'
    for name, why in {'nonsense': 'expected rows', 'pipe': 'a pipe', 'linked table': 'a link', 'linked head': 'no file',
                      'old': 'got 3', 'edited': 'config was changed', 'deep': 'nested', 'huge': 'at most', 'link':
                      'a link', 'islands': 'status.json', 'study': 'plan of a study'}.items():
        assert why in damaged[name] and str(place) not in damaged[name], (name, damaged[name])


def test_a_study_of_many_worlds_and_hosts_is_counted_without_a_loop_over_both(tmp_path):
    (tmp_path / 'study').mkdir()
    plan = dict(worlds=[{'hosts': ['x']}] * 39_999 + [{}], hosts=['x'] * 40_000, budgets=[1], seeds=[1], conditions=[1])
    (tmp_path / 'study/study.json').write_text(json.dumps({'plan': plan}))
    assert rows(tmp_path)['study']['note'] == '0 of 1600000000 cells'


def test_a_name_that_is_no_text_is_listed(tmp_path):
    name = os.fsdecode(b'caf\xe9')
    write_run(tmp_path / name, generations=1, size=4)
    assert name in rows(tmp_path)


def test_presets_are_found_by_their_settings(tmp_path):
    for name, config in {'own': {'population': 4}, 'worlds': load_config('worlds').model_dump(), 'changed': load_config(
            'worlds').but(market=dict(bet=.123), capacity=5, economy=dict(price_gflop=3.)).model_dump()}.items():
        Run.create(tmp_path / name, config=config, host={'id': 'x'}, seed=0, version='0')
    found = {name: (row['preset'], row['changed']) for name, row in rows(tmp_path).items()}
    assert found == {'own': ('', 0), 'worlds': ('worlds', 0), 'changed': ('worlds', 2)}


def test_other_folders_of_evolora_have_a_row_too(tmp_path):
    (islands := tmp_path / 'many').mkdir()
    plan = dict(seed=4, host={'id': 'x'}, config=load_config('worlds').model_dump())
    (islands / 'islands.json').write_text(json.dumps(plan))
    status = [dict(generation=n, accuracy=r) for n, r in ((5, .5), (7, None), (6, 1.))]
    (islands / 'status.json').write_text(json.dumps({'islands': status}))
    write_run(islands / 'island-0000', generations=5, size=4)
    (study := tmp_path / 'study').mkdir()
    names = dict(worlds=[{'name': 'a', 'hosts': ['x']}, {'name': 'b', 'hosts': []}], hosts=['x', 'y'], budgets=[1],
                 seeds=[0, 1], conditions=[{}, {}])
    (study / 'study.json').write_text(json.dumps({'plan': names}))
    (study / 'cells').mkdir()
    (study / 'cells/one.json').touch()
    (study / 'cells.jsonl').write_text('{}\n{}\n')
    (training := tmp_path / 'training').mkdir()
    (training / 'losses.csv').touch()
    found = rows(tmp_path)
    assert {name: (row['kind'], row['state'], row['note']) for name, row in found.items()} == {
        'many': ('islands', 'stopped', '3 islands'), 'study': ('study', 'stopped', '3 of 12 cells'),
        'training': ('training', 'stopped', '')}
    assert (found['many']['generations'], found['many']['accuracy'], found['many']['preset']) == (5, .75, 'worlds')
    with locked(islands): note_aim(islands, 5)
    (training / 'adapters').mkdir()
    found = rows(tmp_path)
    assert found['many']['state'] == found['training']['state'] == 'done'
    assert {name: (row['aim'], row['state']) for name, row in rows(islands).items()} == {'island-0000': (5, 'done')}
    with locked(islands / 'island-0000'): assert rows(tmp_path)['many']['state'] == 'running'


def test_a_long_run_is_not_read_as_a_whole(tmp_path, monkeypatch):
    run = write_run(tmp_path / 'a', generations=3, size=4)
    line = run.path('generations').read_text().splitlines()[-1]
    run.path('generations').write_text('nonsense\n' * 100_000 + f'{line}\n' * 9)
    monkeypatch.setattr(Path, 'read_bytes', _only_heads(Path.read_bytes))
    assert rows(tmp_path)['a']['generations'] == 3


def _only_heads(read):
    def checked(path):
        assert path.suffix == '.json', f'{path} was read as a whole'
        return read(path)
    return checked


def test_only_a_run_of_evolora_goes_and_nothing_beside_it(tmp_path):
    outside = tmp_path / 'outside'
    outside.mkdir()
    (outside / 'kept').touch()
    place = tmp_path / 'runs'
    for name in ('a', 'mine', 'linked', 'other', 'alive', 'inner'): write_run(place / name, generations=2, size=4)
    (place / 'mine/notes.md').touch()
    (place / 'linked/charts').symlink_to(outside)
    (place / 'other/run.json').write_text('{"name": "of another program"}')
    (place / 'a/checkpoints').mkdir()
    (place / 'a/checkpoints/link').symlink_to(outside)          # deeper in it a link goes, and what it leads to stays
    (place / 'link').symlink_to(place / 'a')
    (place / 'plain').mkdir()
    (place / 'study').mkdir()
    (place / 'study/study.json').touch()
    (inner := place / 'inner/checkpoints/x').mkdir(parents=True)
    with locked(place / 'alive'), locked(inner):
        for name, why in {'mine': 'notes.md', 'linked': 'charts', 'other': 'what evolora wrote', 'link': 'the link',
                          'plain': 'neither', 'study': 'study', 'alive': 'is at work', 'inner': 'is at work',
                          'nowhere': 'neither'}.items():
            with pytest.raises(ValueError, match=why): remove_run(place / name)
    there = sorted(p.name for p in place.iterdir())
    remove_run(place / 'a')
    assert sorted(p.name for p in place.iterdir()) == [name for name in there if name != 'a']
    assert (outside / 'kept').exists()


def test_islands_go_with_their_runs_unless_something_else_is_there(tmp_path):
    (many := tmp_path / 'many').mkdir()
    head = dict(format='x', version='0', seed=0, host={}, config={}, hashes={}, islands={}, sha256='')
    (many / 'islands.json').write_text(json.dumps(head))
    write_run(many / 'island-0000', generations=1, size=4)
    (many / 'island-0000/notes').touch()
    with pytest.raises(ValueError, match='island-0000/notes'): check_removable(many)
    (many / 'island-0000/notes').unlink()
    remove_run(many)
    assert not list(tmp_path.iterdir())


def test_a_run_that_cannot_be_removed_stays_whole(tmp_path, monkeypatch):
    run = write_run(tmp_path / 'a', generations=2, size=4)
    monkeypatch.setattr(os, 'replace', lambda *_: (_ for _ in ()).throw(PermissionError(13, 'no')))
    with pytest.raises(PermissionError): remove_run(run.folder)
    assert Run.open(run.folder) and len(run.rows('generations')) == 2


def test_a_run_that_was_tracked_goes_with_what_trackers_wrote(tmp_path):
    run = tmp_path / 'a'
    write_run(run)
    (run / 'track' / 'tensorboard').mkdir(parents=True)
    (run / 'track' / 'tensorboard' / 'events').write_text('x')
    remove_run(run)
    assert not run.exists()
