"""The folder of an island may be edited: its report names in one line what it cannot use."""
import json
from types import SimpleNamespace

import pytest

from evolora.islands import islands_view
from evolora.islands.islands_folder import place_of
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


@pytest.mark.parametrize('change', [{'parents': 5}, {'parents': [[1]]}, {'organelle': [1]}, {'event': [1]}])
def test_a_birth_of_something_else_is_named(island, tmp_path, change):
    rewrite(island, 'lineage', [row | change for row in island.rows('lineage')])
    with pytest.raises(ValueError, match='lineage.jsonl.*expected .*restore the file'): curves(tmp_path)


def test_a_birth_without_parents_is_no_descendant(island, tmp_path):
    rewrite(island, 'lineage', [row | {'parents': None} for row in island.rows('lineage')])
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
