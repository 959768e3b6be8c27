"The panel of a search without a browser: it follows what others write, shows errors, doubles nothing, and closes."
import json
import os
import re
import threading
import time

import pytest
from searches import HOSTILE, findings, rows, write_hostile, write_search

from evolora.attention.report import panel as module
from evolora.attention.report.panel import SearchPanel, candidate_html, state_of
from evolora.attention.report.records import read_search
from evolora.attention.report.search_charts import chart_history, chart_lineage, chart_map
from evolora.utils.files import locked, write_whole
from evolora.analysis.theme import lacks

LONG = 60       # seconds; nothing takes that long, but a busy machine shall not fail a test
V5 = 'application/vnd.vegalite.v5+json'
WE = f'process {os.getpid()} on '


@pytest.fixture(autouse=True)
def nothing_stays_open():
    yield
    for panel in list(module._OPEN.values()): panel.close()
    assert not module._OPEN
    assert until(lambda: not any(t.name == 'evolora-panel' for t in threading.enumerate()))


def until(true):
    deadline = time.monotonic() + LONG
    while not (now := true()) and time.monotonic() < deadline: time.sleep(.05)
    return now


def begin(folder, history, n):
    "A search of which the first n rows are written"
    return write_search(folder, history[:n], end=None, budget=len(history) - 1)


def go_on(folder, history, first, last):
    with (folder / 'history.jsonl').open('a') as file:
        for row in history[first:last]: file.write(json.dumps(row) + '\n')


def drawn(out): return out.outputs[0]['data'][V5]


def test_it_follows_what_another_writes(tmp_path):
    history = rows(12)
    folder = begin(tmp_path / 'x', history, 1)
    panel = SearchPanel(folder)
    assert '0 of 12 candidates' in panel.status.value and 'no process is at work' in panel.status.value
    with locked(folder):
        go_on(folder, history, 1, 5)
        (folder / 'pending.json').write_text(json.dumps({'rows': history[5:7]}))
        assert until(lambda: '4 of 12 candidates' in panel.status.value and WE in panel.status.value)
        assert until(lambda: '2 being measured' in panel.status.value)
        go_on(folder, history, 5, 13)
        assert until(lambda: len(panel.record.rows) == 13)
    write_whole(folder / 'end.json', json.dumps({'reason': 'the budget is spent'}))
    assert until(lambda: 'ended: the budget is spent' in panel.status.value)
    assert until(lambda: '13 candidates' in drawn(panel.history)['description'])
    assert 'width:100%' in panel.progress.value and not panel.error.value


def test_who_is_at_work_is_seen_although_no_file_changes(tmp_path):
    panel = SearchPanel(folder := begin(tmp_path / 'x', rows(4), 3))
    assert 'no process is at work' in panel.status.value
    with locked(folder): assert until(lambda: WE in panel.status.value)
    assert until(lambda: 'can be resumed' in panel.status.value) and not panel.error.value


def test_a_page_is_filled_when_it_is_opened_and_no_sooner(tmp_path):
    panel = SearchPanel(write_search(tmp_path / 'x', rows(6)))
    pictures = [panel.history, panel.descent, panel.map]
    texts = [panel.best_page, panel.candidate_page, panel.operators_page]
    for i in range(len(module._TABS)):
        panel.tabs.selected_index = i
        filled = [bool(page.outputs) for page in pictures] + [bool(page.value) for page in texts]
        assert filled == [n <= i for n in range(len(module._TABS))], module._TABS[i]
    charts = [draw(panel.record.table) for draw in (chart_history, chart_lineage, chart_map)]
    assert [drawn(out)['title']['text'] for out in pictures] == [chart.to_dict()['title']['text'] for chart in charts]


def test_every_page_shows_something(tmp_path):
    panel = SearchPanel(write_search(tmp_path / 'x', found=findings(rows())))
    for i, out in enumerate((panel.history, panel.descent, panel.map)):
        panel.tabs.selected_index = i
        spec = drawn(out)
        assert lacks(spec) == [] and spec['config']['axis']['labelFontSize'] == 11
    panel.tabs.selected_index = 3
    assert f'<th scope="row"><bdi>{panel.record.best}</bdi></th>' in panel.best_page.value
    panel.tabs.selected_index = 5
    assert 'crossover' in panel.operators_page.value
    panel.select(panel.record.best)
    page = panel.candidate_page.value
    for words in ('better than softmax attention', 'score by slope', 'lookback', 'def ', 'by <bdi>'):
        assert words in page
    assert panel.tabs.selected_index == 4 and not panel.error.value
    with pytest.raises(ValueError, match='expected 0 to 36, got 99'): panel.select(99)


def test_a_failed_candidate_shows_why(tmp_path):
    record = read_search(write_search(tmp_path / 'x'))
    failed = next(row for row in record.rows if row['status'] != 'ok')
    assert f"{failed['status']}: {failed['why']}" in candidate_html(record, failed['index'])
    assert 'the baseline' in candidate_html(record, 0)
    assert 'can be resumed' in state_of(tmp_path, read_search(write_search(tmp_path / 'y', rows(2), end=None)))


def test_an_error_is_shown_and_goes(tmp_path):
    history = rows(6)
    folder = begin(tmp_path / 'x', history, 4)
    panel, good = SearchPanel(folder), (folder / 'history.jsonl').read_bytes()
    with (folder / 'history.jsonl').open('a') as file: file.write('{"index": 4}\n')
    assert until(lambda: 'expected operator' in panel.error.value) and 'role="alert"' in panel.error.value
    assert len(panel.record.rows) == 4 and panel.history.outputs
    write_whole(folder / 'history.jsonl', good)
    assert until(lambda: not panel.error.value)
    (folder / 'history.jsonl').unlink()
    assert until(lambda: 'has no history.jsonl' in panel.error.value)


def test_a_second_panel_replaces_the_first_and_closing_ends_the_thread(tmp_path):
    folder = write_search(tmp_path / 'x', rows(3))
    first = SearchPanel(folder)
    second = SearchPanel(f'{folder}/../x')
    assert first.closed and not second.closed and list(module._OPEN.values()) == [second]
    assert until(lambda: sum(t.name == 'evolora-panel' for t in threading.enumerate()) == 1)
    second.close()
    second.close()
    second.look()
    assert second.comm is None or second.closed
    with pytest.raises(ValueError, match='no history.jsonl'): SearchPanel(tmp_path)


def test_drawing_does_not_wait_for_reading(tmp_path, monkeypatch):
    folder, slow, entered = write_search(tmp_path / 'x', rows(4)), threading.Event(), threading.Event()
    panel, real = SearchPanel(folder), module.read_search
    def read(path):
        entered.set()
        assert slow.wait(LONG)
        return real(path)
    monkeypatch.setattr(module, 'read_search', read)
    try:
        panel._due = 0.
        (folder / 'end.json').write_text(json.dumps({'reason': 'other'}))
        assert entered.wait(LONG)
        panel.select(2)                     # would wait for ever
        assert 'Candidate 2' in panel.candidate_page.value
        panel.close()
    finally: slow.set()


def test_hostile_texts_do_nothing(tmp_path):
    panel = SearchPanel(write_hostile(tmp_path / 'x'))
    pages = [panel.head.value, panel.status.value, panel.snapshot_html()]
    for i in range(6):
        panel.tabs.selected_index = i
        pages += [panel.best_page.value, panel.operators_page.value]
    for i in range(len(HOSTILE) + 1):
        panel.select(i)
        pages.append(panel.candidate_page.value)
    for page in pages:
        assert not re.search(r'<script|<img src=x|<svg|</pre>#|" onmouseover', page)
        assert not set('\x1b\u202e\ud800') & set(page) and len(page) < 200_000
    for label, _ in panel.who.options: assert label.isprintable()
    assert not panel.error.value


def test_without_widgets_there_is_a_picture(tmp_path):
    panel = SearchPanel(write_search(tmp_path / 'x', rows(5)))
    data = panel._repr_mimebundle_()
    data = data[0] if isinstance(data, tuple) else data
    assert 'application/vnd.jupyter.widget-view+json' in data
    assert data['text/html'].count('src="data:image/png;base64,') == 1 and '5 of 5 candidates' in data['text/html']
    assert repr(panel) == "SearchPanel('x', 5 candidates)"


def test_a_thousand_candidates_are_no_burden(tmp_path):
    history = rows(40, seed=2)
    many = [row | {'index': i} for i, row in enumerate((history[:1] + history[1:] * 25)[:1000])]
    panel = SearchPanel(write_search(tmp_path / 'x', many))
    assert len(panel.who.options) == 1000 and len(json.dumps(drawn(panel.history))) < 400_000
