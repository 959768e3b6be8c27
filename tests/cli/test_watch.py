"Watching reads what is new and nothing twice; whatever a run contains, the terminal is not steered."
import io
import json
import os

import pytest
from hostile import write_hostile
from rich.console import Console
from synthetic import write_run

from evolora.utils.files import locked, note_aim, truncate
from evolora.ecology.run_folder import Run
from evolora.cli.watch import Tail, Watch, follow, sparkline


def shown(folder):
    out = io.StringIO()
    follow(folder, once=True, console=Console(file=out, width=200))
    return out.getvalue()


def test_one_look_shows_where_a_run_is(tmp_path):
    folder = write_run(tmp_path / 'run', generations=12).folder
    text = shown(folder)
    assert '12 generations, 1.0 s each; nobody is at work here; seed 0, host synthetic' in text
    assert 'generation  11 | ROI' in text
    assert 'believed (1/Σp²)' in text and '| believed ' in text and 'ROI' in text


def test_it_says_whether_somebody_is_at_work_and_how_far_that_one_wants_to_get(tmp_path):
    folder = write_run(tmp_path / 'run', generations=12).folder
    with locked(folder):
        assert f'12 generations, 1.0 s each; process {os.getpid()} on ' in shown(folder)
        note_aim(folder, 200)
        assert '12 of 200 generations' in shown(folder) and 'is at work, about 3 min left; seed 0' in shown(folder)
        for bad in ('{', '[]', '{"aim": -1}', '{"aim": "x"}', '{"process": "\\u001b[2J", "aim": 1e999}'):
            (folder / '.owner.json').write_text(bad) if (folder / '.owner.json').exists() else None
            assert '\x1b' not in shown(folder) and '12 generations' in shown(folder)
    assert 'nobody is at work here' in shown(folder)


def test_only_new_bytes_are_read(tmp_path, monkeypatch):
    folder = write_run(tmp_path / 'run', generations=5).folder
    watch, path = Watch(Run.open(folder)).look(), folder / 'generations.jsonl'
    lines = path.read_text().splitlines(keepends=True)
    path.write_text('x' * len(''.join(lines[:-1])) + lines[-1])         # what was read is not looked at again
    with path.open('a') as file: file.write(lines[-1].replace('"generation": 4', '"generation": 5')[:-20])
    assert watch.look().generations == 5
    with path.open('a') as file: file.write(lines[-1][-20:])
    assert watch.look().generations == 6 and len(watch.numbers['accuracy']) == 6


def test_a_table_may_be_absent_torn_damaged_or_cut(tmp_path):
    tail = Tail(tmp_path / 'x.jsonl')
    assert list(tail.rows()) == []
    tail.path.write_bytes(b'{"a": 1}\nnonsense\n[1]\n\xff\n{"a": 2}\n{"a"')
    assert [row['a'] for row in tail.rows()] == [1, 2]
    tail.path.write_bytes(b'{"a": 3}\n')
    assert [row['a'] for row in tail.rows()] == [3]


@pytest.mark.parametrize('grown', [0, 1, 2, 5], ids='{} after the cut'.format)
@pytest.mark.parametrize('replaced', [False, True], ids=['in place', 'another file'])
def test_a_run_that_goes_back_is_read_anew(tmp_path, grown, replaced):
    run = write_run(tmp_path / 'run', generations=6)
    watch = Watch(run).look()
    other = write_run(tmp_path / 'other', generations=12, seed=1)
    for table in ('generations', 'timings'):
        lines = run.path(table).read_text().splitlines(keepends=True)[:4]
        lines += other.path(table).read_text().replace('"seconds": 1.0', '"seconds": 2.0').splitlines(
            keepends=True)[4:4 + grown]
        if replaced: run.path(table).unlink()
        else: truncate(run.path(table), 0)
        with run.path(table).open('a') as file: file.writelines(lines)
    fresh = Watch(Run.open(run.folder)).look()
    watch.look()
    assert watch.generations == 4 + grown and len(watch.numbers['accuracy']) == 4 + grown
    assert (watch.numbers, watch.news, watch.seconds) == (fresh.numbers, fresh.news, fresh.seconds)


def test_a_table_that_is_gone_is_forgotten(tmp_path):
    run = write_run(tmp_path / 'run', generations=3)
    watch = Watch(run).look()
    for table in ('generations', 'timings'): run.path(table).unlink()
    assert watch.look().generations == 0 == len(watch.news) == len(watch.seconds) == len(watch.numbers['roi'])


def test_a_run_that_goes_back_and_does_the_same_again_is_read_on(tmp_path):
    run = write_run(tmp_path / 'run', generations=6)
    lines = (path := run.path('generations')).read_text().splitlines(keepends=True)
    path.write_text(''.join(lines[:5]))
    watch = Watch(run).look()
    truncate(path, len(''.join(lines[:3])))
    with path.open('a') as file: file.writelines(lines[3:])
    assert watch.look().generations == 6 and len(watch.numbers['accuracy']) == 6


def test_a_run_that_has_not_begun_and_one_that_is_none(tmp_path):
    Run.create(tmp_path / 'run', config={}, host={'id': '\x1b[31mred[bold]'}, seed=0, version='0')
    assert '0 generations; nobody is at work here; seed 0' in shown(tmp_path / 'run')
    for wrong in (tmp_path, tmp_path / 'nothing'):
        with pytest.raises(ValueError, match='expected a run folder'): follow(wrong, once=True)


def test_the_terminal_is_not_steered(tmp_path):
    folder = write_hostile(tmp_path / 'r\x1b[2J[bold]\u202e')
    row = json.loads((folder / 'generations.jsonl').read_text().splitlines()[-1])
    with (folder / 'generations.jsonl').open('a') as file:
        for change in ({'gates': {'took_over': '\x1b]0;owned\x07[red]'}}, {'effective_population': 'text'},
                       {'gates': None}, {'accuracy': True},
                       {'alive': 10 ** 400}):
            file.write(json.dumps(row | change) + '\n')
    text = shown(folder)
    assert all(c.isprintable() or c == '\n' for c in text) and '[red]' in text


def test_bars_rise_with_the_values():
    assert sparkline(range(8)) == '▁▂▃▄▅▆▇█' and sparkline([1, 1]) == '▄▄' and sparkline([]) == ''
    assert sparkline([0, None, float('nan'), float('inf'), 1]) == '▁···█' and len(sparkline(range(100))) == 32
