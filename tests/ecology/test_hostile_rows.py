"""Whatever stands inside the objects of a row: a run folder is read, or refused in one line."""
import json

import pytest

from evolora.analysis.gate_charts import chart_attempts, chart_gates, chart_turns
from evolora.analysis.society_charts import chart_archive, chart_messages, chart_prices, chart_reads, chart_sleepers
from evolora.analysis.tables import cell_history, load, summary
from synthetic import write_run

HUGE = 10**400
CHARTS = (chart_gates, chart_turns, chart_attempts, chart_prices, chart_reads, chart_archive, chart_messages,
          chart_sleepers)


@pytest.fixture(scope='module')
def made(tmp_path_factory): return write_run(tmp_path_factory.mktemp('rows') / 'run', generations=8, size=4, tries=2)


def changed(run, table, change):
    "Change the rows of a table, or write one, read the run and draw it; the table is put back"
    path, before = run.path(table), run.path(table).read_bytes() if run.path(table).exists() else b''
    rows = [json.loads(line) for line in before.splitlines()]
    for row in rows: row |= change
    if not rows: rows = [change]
    path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
    try:
        data = load(run.folder)
        summary(data), cell_history(data)
        for draw in CHARTS: draw(data).to_dict()
    finally: path.write_bytes(before)


@pytest.mark.parametrize('table, change', [
    *(('generations', {'gflops': gflops}) for gflops in (
        {'play': 'x'}, {'play': None}, {'learn': {}}, {'play': HUGE}, {'play': [1, 2]}, {'play': True})),
    ('generations', {'cells': {'math:1': dict(episodes=HUGE, accuracy=.5, success_ema=.5, learning_progress=0.)}}),
    ('generations', {'gates': {'took_over': HUGE}}), ('generations', {'gates': {'took_over': None}}),
    ('gates', {'numbers': {'e': HUGE}}), ('timings', {'parts': {'serve': 'x'}}),
    *(('lineage', {'generation': g}) for g in (2**62, -2**62, -1, 2**40 + 1)),
    *(('society', dict(generation=1, part='hints', event=event, organelle='o1', others=['o2'],
                       numbers=dict.fromkeys(('messages', 'paid', 'questions', 'bid', 'price'), HUGE)))
      for event in ('read', 'sold'))])
def test_an_object_that_holds_something_else_is_named(made, table, change):
    name = next(key for key in ('gflops', 'cells', 'gates', 'numbers', 'parts', 'generation') if key in change
                and (table, key) != ('society', 'generation'))
    with pytest.raises(ValueError, match=rf'{table}.jsonl line 1: {name} expected .*restore') as error:
        changed(made, table, change)
    assert '\n' not in str(error.value)


@pytest.mark.parametrize('value', [None, 'x', [1], {}])
def test_numbers_of_gates_are_numbers(made, value):
    numbers = dict.fromkeys(('e', 'needed', 'uplift', 'pairs', 'lag', 'most', 'least', 'purse', 'energy_kept'), value)
    with pytest.raises(ValueError, match='expected uplift, pairs.*as numbers in the table gates of run'):
        changed(made, 'gates', {'numbers': numbers})


@pytest.mark.parametrize('table', ['lineage', 'ledger', 'gates'])
def test_a_row_long_after_the_last_generation_is_named(made, table):
    with pytest.raises(ValueError, match=f'{table}.jsonl: expected generations up to 7, .* got {2**40}'):
        changed(made, table, {'generation': 2**40})


@pytest.mark.parametrize('event', ['read', 'sold', 'messages', 'kept'])
def test_numbers_of_society_are_numbers(made, event):
    names = 'messages', 'paid', 'questions', 'bid', 'price', 'a', 'b', 'quality', 'real', 'real_right'
    row = dict(generation=1, part='archive' if event == 'kept' else 'hints', event=event, organelle='o1', others=['o2'])
    for value in ('x', [1], {}, 1e308, True):
        with pytest.raises(ValueError, match=r'society.jsonl: expected a number as .messages., got'):
            changed(made, 'society', row | {'numbers': dict.fromkeys(names, value)})
    for value in (None, 1., 2**53): changed(made, 'society', row | {'numbers': dict.fromkeys(names, value)})
