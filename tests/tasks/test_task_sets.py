"""Cells and their fingerprints, what guessing earns, and files of tasks."""
import hashlib
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from evolora.tasks.family import Family
from evolora.tasks.families import (CELLS, FAMILIES, ID_CELLS, NATURAL, OOD_CELLS, OOD_DEPTH, OOD_FAMILIES,
                                    PUZZLES, Cell, cell_hashes, family_hash, grade, usual)
from evolora.tasks.splits import STREAMS
from evolora.tasks.task_sets import chance, count_mode, draw_tasks, mode_share, read_tasks, task_hashes, write_tasks
from tasks.contract import EASY_CELLS, PLAIN_CELLS, PUZZLE_CELLS


def replies(task, rng):
    "Everything that a family itself can say to a task"
    family = FAMILIES[task.family]
    return [task.answer, family.slip(task, rng), family.misconception(task), f'The answer is {task.answer}.', '',
            task.prompt]


# --- cells

def test_cells_are_in_or_out_of_distribution():
    assert len(CELLS) == len(set(CELLS)) == 4 * len(FAMILIES.library) == 40
    assert set(ID_CELLS) | set(OOD_CELLS) == set(CELLS) and not set(ID_CELLS) & set(OOD_CELLS)
    assert {c.family for c in ID_CELLS}.isdisjoint(OOD_FAMILIES) and OOD_DEPTH not in {c.depth for c in ID_CELLS}
    assert {c.family for c in ID_CELLS} == set(FAMILIES.library) - set(OOD_FAMILIES)
    assert all(Cell.parse(str(c)) == c for c in CELLS + EASY_CELLS + PLAIN_CELLS)


def test_the_default_world_is_what_it_was():
    "Results of the embedded host say these; easier depths and families in plain words leave them alone"
    assert task_hashes() == {'streams': 'de149dd80b956488', 'grader': 'e432c976bf0cd557'}
    assert {c.family for c in CELLS} == {c.family for c in EASY_CELLS} == set(FAMILIES.library)
    assert not {f.name for f in NATURAL + PUZZLES} & set(FAMILIES.library)


def test_puzzles_are_in_no_default():
    "As it was before there were any: the families that are meant where none is named, and the cells of the world"
    assert usual() == [*FAMILIES.library, *(f.name for f in NATURAL)] and set(FAMILIES) - set(usual()) == {
        'regex.mutation', 'regex.refactor', 'regex.debug', 'regex.explain'}
    marks = [hashlib.sha256(repr(list(map(str, cells))).encode()).hexdigest()[:16]
             for cells in (CELLS, ID_CELLS, OOD_CELLS)]
    assert marks == ['70592c79f531727a', '2edb49f4263f3710', '8a8fee5bd28bae61']


@pytest.mark.parametrize('text, message', [
    ('math:5', 'a depth from 0 to 4'), ('math:-1', 'a depth from 0 to 4'), ('math:00', 'a depth from 0 to 4'),
    ('math', 'a depth from 0 to 4'), ('date.iso:0', 'a depth from 1 to 4'), ('maths:0', 'expected a task family')])
def test_a_depth_that_a_family_lacks_is_refused_in_one_line(text, message):
    with pytest.raises(ValueError, match=message) as error: Cell.parse(text)
    assert len(str(error.value).splitlines()) == 1


def test_hashes_follow_the_cells_that_are_played():
    assert cell_hashes(CELLS) == {}
    played = [Cell('math', 0), Cell('math', 1), Cell('string.sort', 2), Cell('date.iso', 1), Cell('date.iso', 2)]
    assert cell_hashes(played) == {f'task family {name}': family_hash(FAMILIES[name]) for name in ('date.iso', 'math')}
    marks = cell_hashes(EASY_CELLS + PLAIN_CELLS + PUZZLE_CELLS)
    assert len(set(marks.values())) == len(marks) == len(FAMILIES)


def test_another_extraction_is_another_family():
    class Twin(type(FAMILIES['date.iso'])):
        def extract(self, text): return Family.extract(self, text)
    assert family_hash(Twin()) != family_hash(FAMILIES['date.iso'])


@pytest.mark.parametrize('cell', [Cell('math', 0), Cell('word.after', 2), Cell('date.weekday', 1)], ids=str)
def test_modes_that_are_not_stored_are_counted(cell):
    assert mode_share(cell) == count_mode(cell) and mode_share(cell) <= chance(cell) < .5


# --- files

@pytest.mark.parametrize('name', STREAMS)
def test_the_same_seed_writes_the_same_bytes(tmp_path, name):
    first, second, other = (write_tasks(draw_tasks(CELLS, stream=name, n=90, seed=seed), tmp_path / file).read_bytes()
                            for seed, file in ((3, 'a'), (3, 'b'), (4, 'c')))
    assert first == second != other
    assert len(first.splitlines()) == 90


def test_another_process_asks_the_same():
    "Hashes of strings differ from process to process; nothing may hang on them"
    code = ('from evolora.tasks.families import CELLS\n'
            'from evolora.tasks.task_sets import draw_tasks, task_hashes\n'
            'print([t.prompt for t in draw_tasks(CELLS, stream="gate", n=80, seed=1)], task_hashes())')
    printed = [subprocess.run([sys.executable, '-c', code], env={'PYTHONHASHSEED': h}, capture_output=True, text=True,
                              check=True).stdout for h in '12']
    assert printed[0] == printed[1] and 'regex' in printed[0]


def test_a_task_that_was_written_is_graded_alike(tmp_path):
    for family in FAMILIES:
        tasks = draw_tasks([Cell(family, d) for d in FAMILIES[family].depths], stream='selection', n=20, seed=5)
        back = read_tasks(write_tasks(tasks, tmp_path / f'{family}.jsonl'))
        assert back == tasks
        rng = np.random.default_rng(0)
        for t, b in zip(tasks, back):
            for reply in replies(t, rng): assert grade(t, reply) == grade(b, reply)


@pytest.mark.parametrize('line', ['{', '[]', '3', 'null', '{"family": "math"}',
                                  '{"family": "maths", "depth": 1, "difficulty": 0, "prompt": "", "answer": ""}',
                                  '{"family": "math", "depth": 5, "difficulty": 0, "prompt": "", "answer": ""}',
                                  '{"family": 1}'])
def test_a_line_that_is_no_task_is_named(tmp_path, line):
    good = write_tasks(draw_tasks(ID_CELLS, stream='train', n=1), tmp_path / 'good').read_text()
    (bad := tmp_path / 'bad').write_text(good + line + '\n')
    with pytest.raises(ValueError, match='line 2: expected a task') as error: read_tasks(bad)
    assert len(str(error.value).splitlines()) == 1


def test_a_line_separator_in_a_question_ends_no_line_of_a_file(tmp_path):
    task = draw_tasks([Cell('math', 1)], stream='train', n=1)[0]
    odd = replace(task, prompt='one\u2028two\x85three')
    assert read_tasks(write_tasks([odd, task], tmp_path / 'x.jsonl')) == [odd, task]


def test_a_disk_that_ends_leaves_no_half_of_a_file(tmp_path, monkeypatch):
    def full(file, data):
        file.write(data[:20])
        raise OSError(28, 'No space left on device')
    monkeypatch.setattr('evolora.utils.files._put', full)
    tasks = draw_tasks([Cell.parse('math:1')], stream='train', n=2)
    with pytest.raises(ValueError, match='No space left'): write_tasks(tasks, tmp_path / 'tasks.jsonl')
    assert not list(tmp_path.iterdir())
