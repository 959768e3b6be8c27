"Bars and lines that say how far something is come when it takes long, and leave nothing behind."
import io
import re
import sys
import time
from threading import Event
from types import SimpleNamespace

import nbformat
import pandas as pd
import pytest
from nbclient import NotebookClient
from rich.console import Console

from evolora.utils import terminal
from evolora.utils.text import escape, fenced
from evolora.utils.terminal import Tracker, drawn_again, fit_text, meanwhile, progress, show, tracked, visible


@pytest.fixture
def clock(monkeypatch):
    "A clock that only we move"
    now = SimpleNamespace(at=100.)
    monkeypatch.setattr(terminal.time, 'monotonic', lambda: now.at)
    return now


@pytest.fixture
def notebook(monkeypatch):
    "What a kernel is asked to clear"
    cleared = []
    monkeypatch.setitem(sys.modules, 'ipykernel', SimpleNamespace())
    monkeypatch.setitem(sys.modules, 'IPython.display', SimpleNamespace(
        clear_output=lambda wait=False: cleared.append(wait)))
    return cleared


def test_a_bar_goes_where_something_fails_and_stays_where_all_is_well(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(terminal, 'Console', lambda **how: Console(file=out, force_terminal=True, color_system=None))
    with progress() as bar: bar.reached('answers', 3, 4)
    assert '3/4' in out.getvalue()
    out.truncate(0)
    with pytest.raises(ValueError), progress() as bar:
        bar.reached('answers', 1, 4)
        raise ValueError('no')
    shown = re.sub(r'\x1b\[[0-9;?]*[A-Za-z]', '', out.getvalue()).strip('\0\r\n ')
    assert out.getvalue().rstrip().endswith(('\x1b[2K', '\x1b[?25h')) or not shown, 'the bar was drawn, and wiped out'


def test_without_a_terminal_there_is_a_line_at_the_start_one_a_minute_and_one_at_the_end(clock, capsys):
    with progress(clock=lambda: clock.at) as bar:
        for done in range(1, 9):
            clock.at += 20
            bar.reached('asking the host', done, 8)
    assert capsys.readouterr().err.splitlines() == [f'asking the host {n}/8' for n in (1, 4, 7, 8)]


def test_a_quarter_of_an_hour_whose_steps_are_not_known_has_no_total(clock, capsys):
    with progress(clock=lambda: clock.at) as bar:
        job = bar.add_task('answering', total=None)
        for _ in range(180):
            clock.at += 5
            bar.advance(job)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [f'answering {n}' for n in (*range(1, 181, 12), 180)]


def test_pieces_one_after_the_other_share_the_lines(clock, capsys):
    with progress(clock=lambda: clock.at) as bar:
        for what in ('killing', 'damaging'):
            for done in range(1, 4): bar.reached(what, done, 3)
    assert capsys.readouterr().err.splitlines() == ['killing 1/3', 'killing 3/3, damaging 3/3']


def test_what_a_terminal_removes_is_silent_for_a_minute_and_at_the_end(clock, capsys):
    with progress(stays=False, clock=lambda: clock.at) as bar:
        for done in range(1, 9):
            clock.at += 20
            bar.reached('reading', done, 8)
    assert capsys.readouterr().err.splitlines() == ['reading 3/8', 'reading 6/8']


def test_what_is_refused_before_its_first_step_is_done_writes_no_line(capsys):
    with pytest.raises(ValueError), progress() as bar:
        bar.reached('reading', 0, 8)
        raise ValueError('no')
    assert capsys.readouterr().err == ''


def test_what_fails_has_no_last_line(clock, capsys):
    with pytest.raises(ValueError), progress(clock=lambda: clock.at) as bar:
        for done in range(1, 4): bar.reached('reading', done, 8)
        raise ValueError('no')
    assert capsys.readouterr().err.splitlines() == ['reading 1/8']


def test_colours_that_are_forced_make_no_terminal(monkeypatch, capsys):
    monkeypatch.setenv('FORCE_COLOR', '1')
    monkeypatch.setattr(terminal, 'Console', lambda **how: Console(file=sys.stderr, force_terminal=True))
    with progress() as bar: bar.reached('reading', 1, 1)
    assert capsys.readouterr().err == 'reading 1/1\n'


def test_a_table_that_would_be_drawn_again_is_lines(clock, capsys):
    with drawn_again(clock=lambda: clock.at) as draw:
        for step in range(1, 9):
            clock.at += 20
            draw(None, None, lambda: f'step {step} of 8')
    assert capsys.readouterr().err.splitlines() == [f'step {n} of 8' for n in (1, 4, 7, 8)]


def test_a_wait_without_a_line_is_told_after_a_minute(monkeypatch, capsys):
    monkeypatch.setattr(terminal, 'EVERY', .01)
    looks, looked = [], Event()
    def look():
        looks.append(1)
        if len(looks) == 2: looked.set()
        return 'generation 0: play \x1b[2J'
    with meanwhile(look) as write:
        write('a line')
        assert looked.wait(60)
    out = capsys.readouterr()
    assert out.out == 'a line\n' and set(out.err.splitlines()) == {'generation 0: play \N{REPLACEMENT CHARACTER}[2J'}


def test_bars_are_known_by_their_names():
    with progress() as bar:
        for done in (0, 2, 4): bar.reached('asking', done, 4)
        bar.reached('measuring', 1, 2)
        assert [(task.description, task.completed, task.total) for task in bar.tasks] == [
            ('asking', 4, 4), ('measuring', 1, 2)]
        bar.vanish()


def test_what_is_missing_is_a_dash_and_what_is_there_no_markup(capsys):
    show(pd.DataFrame({'[b]what': ['accuracy, low', '[red]x'], 'change': [float('nan'), .25]}), 'Summary')
    out = capsys.readouterr().out
    assert '–' in out and 'nan' not in out and '0.250' in out and '[red]x' in out and '[b]what' in out


def test_a_notebook_shows_one_line_and_clears_it(clock, notebook, capsys):
    for _ in tracked(range(10), 'generations'): clock.at += 1
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith('generations ██░') and out[0].endswith('1 of 10, about 9 s left') and len(out) == 10
    assert notebook == [True] * 10 + [False]
    with Tracker('GFLOPs', 200.) as far:
        for spent in (50., 51., 52.):
            clock.at += .15
            far.at(spent)
    assert capsys.readouterr().out == '' and len(notebook) == 11, 'half a second is no time'


def test_what_stops_in_the_middle_is_cleared_as_well(clock, notebook, capsys):
    with pytest.raises(ValueError), Tracker('steps', 3) as tick:
        clock.at += 5
        tick('any', 'arguments')
        raise ValueError('no')
    assert notebook == [True, False] and '1 of 3, about 10 s left' in capsys.readouterr().out


def test_a_terminal_gets_a_bar_that_goes(clock, monkeypatch, capsys):
    monkeypatch.setattr(terminal, '_clear', lambda: None)
    for _ in tracked(range(3), 'steps'): clock.at += 1
    out = capsys.readouterr()
    assert out.out == '' and not out.err.strip()


def test_a_real_kernel_keeps_nothing_of_it(tmp_path):
    cells = ["import time\nfrom evolora.utils.terminal import tracked\n"
             "for i in tracked(range(4), 'naps'): time.sleep(.3)\n'the end'"]
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in cells], metadata={
        'kernelspec': {'name': 'python3', 'language': 'python', 'display_name': 'python3'}})
    seen = []
    client = NotebookClient(nb, timeout=120, kernel_name='python3', resources={'metadata': {'path': str(tmp_path)}})
    keep = client.process_message
    client.process_message = lambda msg, *rest: (seen.append(msg['content'].get('text', '')), keep(msg, *rest))[1]
    client.execute()
    assert any('2 of 4' in text for text in seen)
    assert [output['output_type'] for output in nb.cells[0].outputs] == ['execute_result']


@pytest.mark.parametrize('is_terminal', [True, False])
def test_what_is_under_way_is_seen_below_the_lines_and_only_on_a_terminal(is_terminal, monkeypatch, capsys):
    words, looked = io.StringIO(), Event()
    monkeypatch.setattr(terminal, 'Console', lambda stderr: Console(file=words, force_terminal=is_terminal))
    def look():
        looked.set()
        return 'generation 0: play \x1b[2J'
    with meanwhile(look, every=.01) as write:
        assert not is_terminal or looked.wait(60)
        deadline = time.monotonic() + 60
        while is_terminal and 'play' not in words.getvalue() and time.monotonic() < deadline: time.sleep(.01)
        write('a line')
    assert capsys.readouterr().out == 'a line\n'
    assert ('generation 0: play' in words.getvalue()) == is_terminal and '\x1b[2J' not in words.getvalue()


@pytest.mark.parametrize('columns', [30, 80, 400])
def test_no_column_is_cut_however_narrow_the_terminal(capsys, monkeypatch, columns):
    monkeypatch.setenv('COLUMNS', str(columns))
    names = [f'measure number {i}' for i in range(12)]
    show(pd.DataFrame([['first arm', *range(12)], ['second arm', *range(100, 112)]], columns=['arm', *names]), 'Arms')
    text = capsys.readouterr().out
    assert '…' not in text and ('┃' in text) == (columns == 400)
    seen = ' '.join(text.split())
    assert all(name in seen for name in names) and '111' in seen and max(map(len, text.splitlines())) <= columns


def test_words_stand_left_and_numbers_right(capsys, monkeypatch):
    monkeypatch.setenv('COLUMNS', '100')
    show(pd.DataFrame({'what': ['a', 'b'], 'word': ['x', 'a long one'], 'n': [1, 100]}), 'T')
    row = next(line for line in capsys.readouterr().out.splitlines() if line.startswith('│ a'))
    assert row.split('│')[2].startswith(' x') and row.split('│')[3].endswith('1 ')


# Persian and Hindi with their joiners, a family, a flag of tags, a soft hyphen, a sign newer than this Python.
WRITTEN = ['می‌خواهم', 'क्‍ष', '👨‍👩‍👧‍👦',
           '🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f', 'Donau\xaddampf',
           '\U0001fae9', 'שלום\u200f!', '\u2068a\u2069 b', 'naïve\xa0café']


@pytest.mark.parametrize('text', WRITTEN)
def test_what_people_write_is_fit_and_stays(text):
    assert fit_text(text)
    if '\u2068' not in text: assert visible(text) == text and escape(text) == ' '.join(text.split())


@pytest.mark.parametrize('text', ['a\x1b[2J', 'a\x00', 'a\x9b', 'a\ud800', 'a\u202eb', 'a\u202db', 'a\x7f', 'a\rb'])
def test_what_steers_is_not_fit_and_is_replaced(text):
    assert not fit_text(text)
    assert '\N{REPLACEMENT CHARACTER}' in visible(text) and not set(text[1:2]) & {*visible(text), *fenced(text)}


def test_directions_and_line_ends_of_unicode_are_replaced_where_text_is_shown():
    for sign in '\u2028\u2029\u202a\u202b\u202c\u2066\u2067\u2068\u2069': assert sign not in visible(f'a{sign}b')
    assert visible('a\nb') == 'a\nb'
