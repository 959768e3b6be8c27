"""Students get the questions, the lecturer the answers, both from the tutorials as they are."""
import importlib.util
import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).resolve().parents[2]
spec = importlib.util.spec_from_file_location('editions', ROOT / 'nbs/teaching/editions.py')
editions = importlib.util.module_from_spec(spec)
spec.loader.exec_module(editions)
TUTORIALS = sorted((ROOT / 'nbs/tutorials').glob('[0-9]*.ipynb'))


def test_every_tutorial_has_exercises_with_folded_answers():
    for path in TUTORIALS:
        found = [cell for cell in nbformat.read(path, as_version=4).cells if editions.is_exercise(cell)]
        assert 3 <= len(found) <= 5, f'{path.name} has {len(found)} exercises'
        assert all(len(editions.ANSWER.findall(cell.source)) == 1 for cell in found), path.name


def test_students_see_no_answer_and_have_room_for_theirs(tmp_path):
    made = editions.write('students', tmp_path / 'course')
    assert len(made) == len(TUTORIALS)
    for name, n in made:
        nb = nbformat.read(tmp_path / 'course' / name, as_version=4)
        nbformat.validate(nb)
        assert sum(cell.source == '# your answer\n' for cell in nb.cells if cell.cell_type == 'code') == n
        exercises = [cell.source for cell in nb.cells if editions.is_exercise(cell)]
        assert len(exercises) == n and not any('<details>' in x or '<summary>' in x for x in exercises)


def test_both_editions_differ_in_answers_alone(tmp_path):
    editions.write('students', tmp_path / 'a')
    editions.write('answers', tmp_path / 'b')
    for path in TUTORIALS:
        a, b = (nbformat.read(tmp_path / x / path.name, as_version=4).cells for x in 'ab')
        a = [cell for cell in a if cell.source != '# your answer\n']
        assert [c.source for c in a if not editions.is_exercise(c)] == [
            c.source for c in b if not editions.is_exercise(c)]
        assert all(y.source.startswith(x.source[:30]) for x, y in zip(a, b) if editions.is_exercise(x))


def test_links_of_a_copy_lead_somewhere(tmp_path):
    editions.write('students', tmp_path / 'course')
    for path in (tmp_path / 'course').glob('*.ipynb'):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type != 'markdown': continue
            for target in re.findall(r'\]\(([^)#]+)[^)]*\)', re.sub(r'```.*?```', '', cell.source, flags=re.S)):
                if not re.match(r'[a-z]+:', target): assert (path.parent / target).exists(), (path.name, target)


def test_what_a_copy_reads_lies_beside_it(tmp_path):
    editions.write('students', tmp_path / 'course')
    read = 0
    for path in (tmp_path / 'course').glob('*.ipynb'):
        for cell in nbformat.read(path, as_version=4).cells:
            if cell.cell_type != 'code': continue
            assert '../' not in cell.source, (path.name, cell.id)
            for target in re.findall(r'''['"]((?:experiments|results)/[^'"{]*)''', cell.source):
                assert (path.parent / target).exists(), (path.name, target)
                read += 1
    assert read >= 10


def test_outputs_can_be_left_out_and_pages_chosen(tmp_path):
    made = editions.write('answers', tmp_path / 'course', ['01'], outputs=False)
    nb = nbformat.read(tmp_path / 'course' / made[0][0], as_version=4)
    assert len(made) == 1 and not any(cell.outputs for cell in nb.cells if cell.cell_type == 'code')


def test_nothing_is_overwritten_and_bad_numbers_are_named(tmp_path, capsys):
    (tmp_path / 'there').mkdir()
    assert editions.main(['students', str(tmp_path / 'there')]) == 2
    assert editions.main(['students', str(tmp_path / 'new'), '--only', '99']) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 2 and 'choose another' in told[0] and '99' in told[1] and not (tmp_path / 'new').exists()


def test_an_exercise_without_an_answer_is_named():
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell('### Exercise 1: count\n\nHow many?')])
    with pytest.raises(ValueError, match='Exercise 1: count'): editions.open_exercises(nb)
