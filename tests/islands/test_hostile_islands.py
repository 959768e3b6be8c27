"""The folder of an island may be edited: its report names in one line what it cannot use."""
import json
from types import SimpleNamespace

import pytest

from evolora.islands import islands_view
from evolora.islands.islands_folder import place_of, status_of
from evolora.islands.islands_view import crossings, curves
from synthetic import write_run

TICKET = dict(generation=1, part='migration', event='arrived', organelle='o1', others=['1.0.0.3'], numbers={})


@pytest.fixture
def island(tmp_path, monkeypatch):
    "A run as the only island of its folder"
    plan = SimpleNamespace(islands=SimpleNamespace(islands=1, every=2))
    monkeypatch.setattr(islands_view, 'read_plan', lambda folder: plan)
    return write_run(place_of(tmp_path, 0), generations=4, size=4, tries=2)


def rewrite(run, table, rows): run.path(table).write_text(''.join(json.dumps(row) + '\n' for row in rows))


@pytest.mark.parametrize('change', [
    {'parents': 5}, {'parents': None}, {'parents': [[1]]}, {'organelle': [1]}, {'event': [1]}])
def test_a_birth_of_something_else_is_named(island, tmp_path, change):
    rewrite(island, 'lineage', [row | change for row in island.rows('lineage')])
    with pytest.raises(ValueError, match='lineage.jsonl.*expected .*restore the file'): curves(tmp_path)


def test_a_birth_without_parents_is_no_descendant(island, tmp_path):
    rewrite(island, 'lineage', [row | {'parents': []} for row in island.rows('lineage')])
    assert curves(tmp_path)['by_migrants'].eq(0).all()


@pytest.mark.parametrize('change', [
    {'others': 5}, {'event': [1]}, {'others': {'a': 1}}, *({'others': [x]} for x in (
        'x.y', '1.2', 1, '\u0661.0.0.0', '9' * 5000 + '.0.0.0', '1.0.0.3\n'))])
def test_a_crossing_without_a_ticket_is_named(island, tmp_path, change):
    rewrite(island, 'society', [TICKET | change])
    with pytest.raises(ValueError, match='society.jsonl.*expected .*restore the file') as error: crossings(tmp_path)
    assert '\n' not in str(error.value)


def test_crossings_are_counted_by_island_and_event(island, tmp_path):
    rewrite(island, 'society', [TICKET, TICKET, TICKET | {'event': 'sent'}, TICKET | {'others': []}])
    assert crossings(tmp_path).values.tolist() == [[1, 0, 'arrived', 2]]


@pytest.mark.parametrize('read', [curves, crossings])
def test_an_island_whose_rows_are_not_those_of_its_checkpoint_is_refused(island, tmp_path, monkeypatch, read):
    def edited(run): raise ValueError(f"{run.path('society')} expected the rows that were written, got others")
    monkeypatch.setattr(islands_view, 'check_unedited', edited)
    with pytest.raises(ValueError, match='expected the rows that were written'): read(tmp_path)


@pytest.mark.parametrize('read', [curves, crossings])
def test_numbers_of_an_island_that_are_none_are_refused(island, tmp_path, read):
    rewrite(island, 'society', [TICKET | {'numbers': {'kept': 1e200}}])
    with pytest.raises(ValueError, match="society.jsonl.* number as 'kept', got 1e"): read(tmp_path)


@pytest.mark.parametrize('value', ['9' * 4300, '9' * 400, '1e999', '-1e300', '"x"', '[1]', '{}', 'true'])
@pytest.mark.parametrize('name', ['generation', 'accuracy', 'seconds'])
def test_a_status_that_is_no_number_is_refused_before_it_is_shown(tmp_path, name, value):
    (tmp_path / 'status.json').write_text(f'{{"islands": [{{"island": 0, "{name}": {value}}}]}}')
    with pytest.raises(ValueError, match='status.json expected .*, got something else') as error: status_of(tmp_path)
    assert len(str(error.value)) < 400


def test_a_status_may_lack_numbers(tmp_path):
    rows = [{'island': 0, 'generation': 2, 'accuracy': None, 'state': 'lives'}, {}]
    (tmp_path / 'status.json').write_text(json.dumps({'islands': rows}))
    assert status_of(tmp_path) == rows
