"""The lab without a browser: a button is a line of Python, nothing is doubled, and hostile text does nothing.

The widgets have no page here, only their traits, which is all that a page would receive.
"""
import json
import os
import re
import signal
import threading
import time

import pandas as pd
import pytest

from scripted import chance_decides

from evolora.lab import lab as module
from evolora.lab import runner as running
from evolora.lab import live_view as window
from evolora.analysis.tables import balances, gather, load, world_rates, world_table
from evolora.ecology.checkpoint_files import checkpoints
from evolora.ecology.config import PRESETS, changed_config, load_config
from evolora.ecology.diagnosis import PATIENCE
from evolora.ecology.knobs import KNOBS
from evolora.ecology.ecology import Ecology
from evolora.ecology.state import state_of
from evolora.evaluation.evaluation import example
from evolora.tasks.family import Grade
from evolora.tasks.forms import Form
from evolora.tasks.forms import FORMS
from evolora.assimilation.gates import EVENTS, GATES, Gate, gate_label, register_gate
from evolora.host.model import load_host, tiny_host
from evolora.lab.lab import Lab
from evolora.lab.live_charts import accounts, lanes, live_spec, points, stops
from evolora.lab.runner import Runner
from evolora.ecology.run_folder import Run
from evolora.ecology.sessions import begin_session, resume_session
from evolora.tasks.families import Cell
from evolora.lab.answer_views import answers_html, replies_html
from evolora.lab.html_views import gates_html, organelle_html, population_html, shown, society_html, table_html
from evolora.lab.views import MOST_ANSWERS, View, kept_of, look, look_at
from evolora.lab.widgets import TABS, error_html

LONG = 300      # seconds; nothing takes that long, but a busy machine shall not fail a test
HOSTILE = ['<script>alert(1)</script>', '<img src=x onerror=alert(1)>', '\x1b[2J\x1b]0;x\x07', '\u202edesrever',
           '"\' onmouseover=alert(1)', '</bdi></td></table><h1>', '<' * 1_000_000, '\ud800', '&lt;b&gt;']


@pytest.fixture(scope='module')
def host(): return load_host('embedded', threads=1)


@pytest.fixture(scope='module')
def config(): return load_config('debug')


@pytest.fixture
def ecology(host, config): return Ecology(host, config)


@pytest.fixture(autouse=True)
def nothing_stays_open():
    yield
    for lab in list(module._OPEN.values()):
        lab.runner.stop()
        lab.close()
        assert lab.wait(LONG)
    assert not module._OPEN


def rest(lab):
    assert lab.wait(LONG)
    return lab


def stepped(lab, n=1):
    lab.run(n)
    return rest(lab)


def logged(lab):
    "Which generations stand on the page Log, the first one first"
    return [int(n) for n in re.findall(r'generation +(\d+)', opened(lab, 'Log').log_page.value)][::-1]


def plain(out): return ' | '.join(x['data']['text/plain'] for x in out.outputs)


# the runner

def test_a_generation_on_the_thread_is_the_one_of_the_main_thread(host, config, ecology):
    runner, straight = Runner(ecology), Ecology(host, config)
    runner.run(3)
    assert runner.wait(LONG)
    straight.run(3, log=None)
    assert [g.row for g in ecology.history] == [g.row for g in straight.history]


def test_a_pause_keeps_what_is_left_and_a_stop_forgets_it(ecology):
    runner = Runner(ecology)
    first = threading.Event()
    runner.watchers.append(lambda record: first.set())
    runner.run(1000)
    assert first.wait(LONG)
    runner.pause()
    assert runner.wait(LONG) and runner.rest == 1000 - ecology.generation
    left = runner.rest
    runner.step()
    assert runner.wait(LONG) and runner.rest == left
    runner.stop()
    assert runner.rest == 0


def test_an_error_ends_the_run_and_is_kept_until_the_next(ecology):
    runner, real = Runner(ecology), ecology.step
    def broken(): raise OSError('no space left')
    ecology.step = broken
    runner.run(5)
    assert runner.wait(LONG) and str(runner.error) == 'no space left' and runner.left == 0 and ecology.generation == 0
    ecology.step = real
    runner.run(1)
    assert runner.wait(LONG) and runner.error is None and ecology.generation == 1


def test_a_watcher_that_fails_ends_the_run_too(ecology):
    runner = Runner(ecology)
    runner.watchers.append(lambda record: 1 / 0)
    runner.run(5)
    assert runner.wait(LONG) and isinstance(runner.error, ZeroDivisionError) and ecology.generation == 1


def test_a_job_runs_between_two_generations(ecology):
    runner = Runner(ecology)
    runner.run(3)
    seen = runner.submit(lambda e: (e.part, e._busy.locked())).result(LONG)
    assert seen == ('', True) and runner.wait(LONG) and ecology.generation == 3


def test_a_run_in_which_nothing_is_right_stops_and_the_panel_says_why(host, config, monkeypatch):
    monkeypatch.setattr(Form, 'grade', lambda _, task, text: Grade(False, 0., False))
    def play(self, plan, tasks, prompts, real=Ecology._play):
        answers = real(self, plan, tasks, prompts)
        answers.texts = [HOSTILE[0] + HOSTILE[2]] * len(tasks)
        return answers
    monkeypatch.setattr(Ecology, '_play', play)
    lab = Lab(Ecology(host, config))
    lab.run()
    rest(lab)
    assert (lab.ecology.generation, lab.runner.found.case) == (PATIENCE, 'unread')
    assert 'stopped, see below' in lab.status.value and not lab.run_button.disabled
    text = lab.error.value
    assert 'evolora calibrate' in text and '&lt;script&gt;' in text and '<script>' not in text and '\x1b' not in text
    monkeypatch.undo()
    stepped(lab)
    assert lab.ecology.generation == PATIENCE + 1 and lab.runner.found is None and lab.error.value == ''


def test_patience_of_a_session_is_judged_by_its_tables_and_saved(tmp_path):
    with begin_session(tmp_path / 'run', tiny_host(), load_config('debug').model_copy(update={'max_new_tokens': 3}),
                       every=50) as session: session.live(2, log=None)
    runner = Runner(resume_session(tmp_path / 'run', tiny_host(), every=50))
    runner.run()
    assert runner.wait(LONG) and runner.error is None and runner.left == runner.rest == 0
    assert runner.found.when == 'generations 0 to 2' and int(checkpoints(tmp_path / 'run')[-1].name) == 3
    runner.world.close()
    assert Runner(Ecology(tiny_host(), load_config('debug')), patience=0).patience == 0


# the panel

def test_every_button_says_what_it_does_in_python(ecology):
    lab = Lab(ecology)
    buttons = [w for name, w in vars(lab).items() if name.endswith('_button')]
    assert len(buttons) == 13 and all(b.description and 'lab.' in b.tooltip for b in buttons)


def test_a_step_is_seen_everywhere(ecology):
    lab = Lab(ecology)
    lab.step_button.click()
    rest(lab)
    assert '1 generation lived ' in lab.status.value and 'aria-live="polite"' in lab.status.value
    assert [p['alive'] for p in lab.charts.data['points']] == [ecology.history[0].row['alive']]
    for i, page in enumerate(TABS):
        lab.tabs.selected_index = i
        if page == 'Population': assert all(id in lab.population_page.value for id in ecology.population.ids)
        if page == 'Organelle':
            lab.select(next(id for id in ecology.population.ids if not ecology.population.is_noop(id)))
            rest(lab)
            assert 'Traits' in lab.organelle_page.value
            assert all(words in plain(lab.weights) for words in ('norm of ΔW', 'Singular values', 'birth'))
        if page == 'Similarity':
            rest(lab)
            assert 'Cosine' in plain(lab.similarity) and 'Distance from birth' in plain(lab.similarity)
        if page == 'Log': assert 'ROI' in lab.log_page.value and repr(ecology.history[0]) in lab.ticker.value
    assert lab.error.value == ''


def opened(lab, page):
    lab.tabs.selected_index = TABS.index(page)
    return rest(lab)


def test_the_numbers_behind_the_curves_are_a_table_and_a_copy_is_a_picture(ecology):
    lab = Lab(ecology)
    assert lab.table.empty
    lab.step()
    rest(lab)
    assert lab.table['generation'].tolist() == [0]
    assert lab.table['accuracy'].iloc[0] == ecology.history[0].row['accuracy']
    shown = lab._repr_mimebundle_()['text/html']
    assert '<img' in shown and ecology.population.ids[0] in shown and 'no generation yet' not in shown


def test_what_stays_of_a_panel_is_an_output_of_its_own_that_is_drawn_again_when_it_rests(ecology, monkeypatch):
    published = []
    monkeypatch.setattr(window, 'display', lambda data, **how: published.append((data, how)))
    lab = Lab(ecology)
    stepped(lab)
    assert not published, 'nothing is displayed yet'
    lab._ipython_display_()
    (panel, how), (line, first), (picture, second) = published
    assert 'application/vnd.jupyter.widget-view+json' in panel and 'display_id' not in how
    assert 'generation 0 ' in line['text/markdown'] and picture['image/png'].startswith(b'\x89PNG')
    assert first['display_id'] != second['display_id'] and 'update' not in first
    del published[:]
    stepped(lab, 3)
    (line, again), (picture, _) = published         # once for three generations
    assert 'generation 3 ' in line['text/markdown'] and again == first | {'update': True}
    assert 'generation 3' in picture['text/plain']
    lab.ask('Sort the letters: jghn')
    rest(lab)
    assert len(published) == 2, 'nothing was lived since'


@pytest.mark.parametrize('pace, left, said', [(2., 141, 'running, 141 to go, about 5 min'),
                                              (.01, 3, '3 to go, about 1 s'), (60., 100, 'about 1.7 h'),
                                              (None, 3, 'running, 3 to go'), (9., 0, 'finishing')])
def test_what_is_left_is_said_in_time(ecology, pace, left, said):
    runner = Runner(ecology)
    runner.pace, runner.left, runner.busy, runner.began = pace, left, True, 1.
    assert runner.doing.endswith(said)


def test_quick_presses_on_step_are_generations_each(ecology):
    lab = Lab(ecology)
    for _ in range(5):
        assert not lab.step_button.disabled
        lab.step_button.click()
    rest(lab)
    assert ecology.generation == 5
    lab.run()
    assert lab.step_button.disabled, 'one more than without end means nothing'
    lab.stop()
    rest(lab)


def test_many_and_stop_are_buttons(ecology, monkeypatch):
    lab = Lab(ecology)
    asked = []
    monkeypatch.setattr(lab.runner, 'run', lambda n=None: asked.append(n))
    monkeypatch.setattr(lab.runner, 'stop', lambda: asked.append('stop'))
    lab.n.value = 7
    lab.many_button.click()
    lab.stop_button.click()
    assert asked == [7, 'stop']


def test_weights_are_drawn_for_the_page_that_is_open_and_no_other(ecology, monkeypatch):
    calls = []
    for name in ('organelle_specs', 'population_specs'):
        real = getattr(window, name)
        monkeypatch.setattr(window, name, lambda *given, real=real, name=name: calls.append(name) or real(*given))
    lab = stepped(Lab(ecology), 2)
    learned = ecology.demography.table()['updates'].idxmax()
    lab.select(next(id for id in ecology.population.ids if id != learned))
    assert not calls and not lab.weights.outputs
    opened(lab, 'Similarity')
    opened(lab, 'Organelle')
    lab.select(learned)
    rest(lab)
    assert calls == ['population_specs', 'organelle_specs', 'organelle_specs'] and lab.organelle in plain(lab.weights)
    opened(lab, 'Live')
    opened(lab, 'Organelle')
    assert len(calls) == 3, 'nothing has changed since'
    one = lab.organelle
    assert stepped(lab).error.value == '' and lab.organelle == one and len(calls) == 4, 'no detour by another organelle'
    moved = f'Distance from birth of {lab.organelle}'
    assert all(words in plain(lab.weights) for words in ('norm of ΔW', 'Singular values', moved))
    opened(lab, 'Similarity')
    moved = f'Distance from birth of {len(ecology.population)} organelles'
    assert 'Cosine' in plain(lab.similarity) and moved in plain(lab.similarity)


def test_weights_are_drawn_no_more_often_than_they_may_while_generations_are_left(ecology, monkeypatch):
    monkeypatch.setattr(window, '_EVERY', 0.)
    lab, drawn = opened(stepped(Lab(ecology)), 'Similarity'), []
    real = window.population_specs
    monkeypatch.setattr(window, 'population_specs', lambda *given: drawn.append(1) or real(*given))
    lab._rested = float('inf')
    stepped(lab, 4)
    assert len(drawn) == 1 and ecology.generation == 5, 'only what is left at the end'


def test_charts_of_weights_do_without_what_is_not_there(ecology):
    lab = opened(stepped(Lab(ecology)), 'Organelle')
    ecology.demography.births.clear()
    lab.select(ecology.population.ids[-1])
    assert 'its birth was not kept' in plain(rest(lab).weights)
    assert 'births were not kept' in plain(opened(lab, 'Similarity').similarity) and lab.error.value == ''
    one = ecology.population.ids[0]
    for id in ecology.population.ids[1:]: ecology.demography.bury(id, 1, 'to be alone')
    ecology.population.write(one, {n: (A, 0 * B) for n, (A, B) in ecology.population.factors(one).items()})
    again = opened(rest(Lab(ecology)), 'Similarity')
    assert 'two that add something' in plain(again.similarity)
    assert 'adds nothing yet' in plain(opened(again, 'Organelle').weights) and again.error.value == ''
    again._drawn.clear()
    again.runner.submit(lambda e: e.demography.bury(one, 1, 'gone')).result(LONG)
    again.show_open()
    assert 'not alive any more' in plain(rest(again).weights) and again.error.value == ''


def test_before_there_is_an_ecology_nothing_can_be_turned(host, config, tmp_path):
    with begin_session(tmp_path / 'run', host, config) as session: session.live(1, log=None)
    lab = Lab(tmp_path / 'run')
    assert lab.world_button.disabled and all(box.disabled for box in lab.knobs.values())
    for page, out in (('Organelle', lab.weights), ('Similarity', lab.similarity)):
        assert 'press Step' in plain(getattr(opened(lab, page), 'similarity' if page == 'Similarity' else 'weights'))
    assert lab.ecology is None, 'a look loads no model'
    lab.step_button.click()
    assert not rest(lab).world_button.disabled and 'Cosine' in plain(lab.similarity)


# which thread sets the buttons

class Watched:
    "A lock with an event for when a thread has to wait for it"
    def __init__(self): self.lock, self.waits = threading.RLock(), threading.Event()

    def __enter__(self):
        if not self.lock.acquire(blocking=False):
            self.waits.set()
            self.lock.acquire()

    def __exit__(self, *_): self.lock.release()


def test_what_was_seen_first_is_not_shown_last(ecology, monkeypatch):
    lab = stepped(Lab(ecology))
    lab._drawing, runner, arrange = Watched(), lab.runner, lab.arrange
    late, arrived = threading.Event(), threading.Event()
    def slowly(*given, **how):
        if how['busy']:             # the one that saw a generation under way, and is overtaken
            arrived.set()
            assert late.wait(LONG)
        arrange(*given, **how)
    lab.arrange = slowly
    runner.busy, runner.left = True, 1
    first = threading.Thread(target=lab.refresh)
    first.start()
    assert arrived.wait(LONG)
    runner.busy, runner.left = False, 0
    second = threading.Thread(target=lambda: (lab.refresh(), late.set()))
    waiting = threading.Thread(target=lambda: lab._drawing.waits.wait(LONG) and late.set())
    second.start()
    waiting.start()                 # either the second waits for the first, or it is through
    for thread in (first, second): thread.join(LONG)
    lab._drawing.waits.set()
    assert not lab.step_button.disabled and lab.pause_button.disabled and 'at rest' in lab.status.value


def test_a_bar_that_moves_after_the_end_is_put_back(ecology):
    lab = stepped(Lab(ecology))
    tick, still = lab._tick, lab.progress.value
    def late():
        lab.runner.busy = False     # the runner comes to rest, and reports it, between a look and what is shown of it
        lab.refresh()
        lab.progress.value = 'generation 2: learn, 0.1 s'
    lab._tick, lab.runner.busy = late, True
    lab._beating.acquire()
    lab._beat()
    assert lab.progress.value == still and not lab.step_button.disabled and not lab._beating.locked()


def test_the_same_lab_again_takes_over_and_doubles_nothing(ecology):
    first = stepped(Lab(ecology))
    threads, watchers = threading.active_count(), len(first.runner.watchers)
    for _ in range(5): lab = rest(Lab(ecology))
    assert lab.runner is first.runner and len(lab.runner.watchers) == watchers == 2 and len(module._OPEN) == 1
    assert threading.active_count() <= threads + 1 and first.closed
    lab.step()
    assert rest(lab).view.generation == ecology.generation == 2
    assert logged(lab) == [0, 1]


def test_a_lab_that_takes_over_a_run_under_way_lets_it_go_on(ecology):
    Lab(ecology).run(3)
    lab = rest(Lab(ecology))
    assert ecology.generation == 3 and lab.view.generation == 3


def test_closing_leaves_the_ecology_alive(ecology):
    lab = stepped(Lab(ecology))
    lab.close()
    lab.close()
    ecology.step()
    assert ecology.generation == 2 and not module._OPEN


def test_knobs_are_turned_by_boxes_and_by_python_and_stand_where_they_stood_after_an_error(ecology):
    lab = stepped(Lab(ecology))
    lab.knobs['bet'].value = .125
    assert ecology.controls.waiting[0] == {'bet': .125} and '0.125' in lab.waiting.value
    stepped(lab)
    assert ecology.market.config.bet == .125 and lab.waiting.value == ''
    lab.knobs['bet'].value = 0.
    assert 'above 0 and at most 1' in lab.error.value and lab.knobs['bet'].value == .125
    lab.turn(contest=1., newborn=.3)
    stepped(lab)
    assert (lab.knobs['contest'].value, lab.knobs['newborn'].value) == (1., .3)
    assert ecology.controls.waiting[0] == {}, 'the panel turned a knob by itself'


def test_a_box_for_each_knob_says_which_values_it_takes(ecology):
    rows = opened(lab := stepped(Lab(ecology)), 'Knobs').tabs.children[TABS.index('Knobs')].children[0].children
    assert [row.children[0] for row in rows] == list(lab.knobs.values()) and list(lab.knobs) == list(KNOBS)
    for row, knob in zip(rows, KNOBS.values(), strict=True): assert knob.bounds in row.children[1].value


def test_a_selection_survives_while_its_organelle_is_alive(ecology):
    lab = stepped(Lab(ecology))
    lab.select(ecology.population.ids[-1])
    chosen = lab.organelle
    stepped(lab)
    assert lab.organelle == chosen if chosen in ecology.population else lab.organelle in ecology.population


def test_an_answer_is_asked_for_praised_and_recorded(ecology):
    lab = stepped(Lab(ecology))
    lab.prompt.value = 'Sort the letters: jghn'
    lab.ask_button.click()
    rest(lab)
    assert 'to host' in lab.answers.value and not lab.up_button.disabled
    lab.up_button.click()
    stepped(lab)
    record = ecology.history[-1].feedback
    assert [(f['organelle'], f['prompt'], f['up']) for f in record] == [(lab.last_answer[0], lab.prompt.value, True)]


def test_what_is_suggested_to_ask_is_a_question_of_the_run(host, config, tmp_path):
    assert rest(Lab(Ecology(host, config))).prompt.placeholder == 'Sort the letters: jghn'
    other = config.model_copy(update={'cells': ['logic.bool:1', 'math:1']})
    wanted = example([Cell('logic.bool', 1)])
    with begin_session(tmp_path / 'run', host, other) as session: session.live(1, log=None)
    lab = Lab(tmp_path / 'run')
    assert lab.ecology is None and lab.prompt.placeholder == wanted, 'before anything is loaded'
    stepped(lab).ask_button.click()
    assert rest(lab).prompt.placeholder == wanted == lab.last_answer[1]
    lab.new('debug')
    assert rest(lab).prompt.placeholder == 'Sort the letters: jghn'


def test_a_folder_with_cells_that_are_unknown_here_is_shown_all_the_same(host, config, tmp_path, monkeypatch):
    with begin_session(tmp_path / 'run', host, config) as session: session.live(1, log=None)
    def unknown(run): raise ValueError('expected a task family')
    monkeypatch.setattr(window, 'cells_of', unknown)
    lab = Lab(tmp_path / 'run')
    assert lab.view.generation == 1 and lab.prompt.placeholder and not lab.error.value


def test_a_caller_that_waits_for_an_answer_may_judge_it_at_once(ecology, monkeypatch):
    lab, go = stepped(Lab(ecology)), threading.Event()
    class Late(running.Future):         # its result is there before any callback
        def _invoke_callbacks(self): go.wait(LONG) and super()._invoke_callbacks()
    monkeypatch.setattr(running, 'Future', Late)
    lab.ask('Sort the letters: jghn', max_new_tokens=4)
    try: lab.feedback(True)
    finally: go.set()
    assert rest(lab).judged and ecology.controls.waiting[1] == 1


def test_the_last_verdict_on_an_answer_counts_once_and_is_worth_what_waits(ecology):
    lab = stepped(Lab(ecology))
    lab.turn(feedback=2.)
    lab.ask('Sort the letters: jghn', max_new_tokens=4)
    rest(lab)
    for button in (lab.up_button, lab.up_button, lab.down_button): button.click()
    assert 'negative feedback: weight 2 in the next lesson' in lab.feedback_text.value
    assert ecology.controls.waiting[1] == 1
    stepped(lab)
    assert [(f['up'], f['reward']) for f in ecology.history[-1].feedback] == [(False, -2.)]
    assert lab.up_button.disabled and 'booked' in lab.feedback_text.value
    with pytest.raises(ValueError, match='booked'): lab.feedback(True)
    stepped(lab)
    assert ecology.history[-1].feedback == []
    lab.ask('Sort the letters: jghn', max_new_tokens=4)
    assert not rest(lab).up_button.disabled, 'another answer is another verdict'


def test_feedback_that_a_generation_has_applied_is_not_given_again_while_it_lasts(ecology, monkeypatch):
    lab = stepped(Lab(ecology))
    lab.ask('Sort the letters: jghn', max_new_tokens=4)
    rest(lab).feedback(True)
    begun, go, real = threading.Event(), threading.Event(), ecology.serving.rounds
    slow = lambda *how: begun.set() or go.wait(LONG) and real(*how)
    monkeypatch.setattr(ecology.serving, 'rounds', slow, raising=False)
    lab.step()
    assert begun.wait(LONG)
    lab.down_button.click()
    text, waits = lab.error.value, ecology.controls.waiting[1]
    go.set()
    assert 'booked' in text and waits == 0 and rest(lab)


# errors

def test_an_error_stands_until_the_next_thing_is_asked_for(ecology, monkeypatch):
    lab = stepped(Lab(ecology))
    lab.knobs['bet'].value = -1.
    stood = lab.error.value
    assert 'nothing was turned' in stood
    lab.runner.run(2)           # not by way of this panel
    assert rest(lab).error.value == stood and ecology.generation == 3
    lab.knobs['bet'].value = .5
    assert lab.error.value == ''
    for call in (lab.step, lab.pause, lab.stop, lambda: lab.turn(tau=.1), lambda: lab.ask('x', max_new_tokens=1)):
        rest(lab).error.value = stood
        call()
        assert lab.error.value == ''


def test_a_question_that_fails_says_so_and_leaves_nothing_to_judge(ecology):
    lab = stepped(Lab(ecology))
    lab.ask('Sort the letters: jghn', max_new_tokens=4)
    assert not rest(lab).up_button.disabled
    lab.prompt.value = 'a b ' * 2000
    lab.ask_button.click()
    rest(lab)
    assert 'the question failed' in lab.answers.value and 'waits' not in lab.answers.value
    assert 'context' in lab.error.value and lab.up_button.disabled
    with pytest.raises(ValueError, match='judge'): lab.feedback(True)


@pytest.mark.parametrize('call, words', [
    (lambda lab: lab.select('o99'), 'alive'), (lambda lab: lab.ask('  '), 'question'),
    (lambda lab: lab.run(0), '1 or more'),
    (lambda lab: lab.turn(speed=2), 'knob'), (lambda lab: lab.feedback(True), 'ask'),
    (lambda lab: lab.new('no such'), 'preset'),
    (lambda lab: lab.new(seed=-1), '0 or more'), (lambda lab: Lab(preset='debug', seed=-1), '0 or more')])
def test_what_cannot_be_done_is_one_line(ecology, call, words):
    lab = stepped(Lab(ecology))
    with pytest.raises(ValueError, match=words) as e: call(lab)
    assert '\n' not in str(e.value) and ecology.generation == 1


def test_an_error_of_a_generation_stands_in_the_panel(ecology):
    lab = rest(Lab(ecology))
    def broken(): raise RuntimeError('<b>out of memory</b>\nand more')
    ecology.step = broken
    lab.step_button.click()
    rest(lab)
    assert '&lt;b&gt;out of memory' in lab.error.value and 'Traceback' in lab.error.value
    assert not lab.step_button.disabled, 'one may try again'


def breaks_once(ecology, monkeypatch):
    "The next lesson fails, in the middle of a generation"
    def learn(*_, **__):
        monkeypatch.undo()
        raise RuntimeError('out of memory')
    monkeypatch.setattr(ecology.plasticity, 'learn', learn)


def cannot_be_written(monkeypatch):
    "The next generation is lived, and there is no room for its rows"
    def record(*_):
        monkeypatch.undo()
        raise OSError(28, 'No space left on device')
    monkeypatch.setattr(Run, 'record', record)


def test_a_generation_that_breaks_off_is_shown_and_lived_again(ecology, monkeypatch):
    lab, other = stepped(Lab(ecology)), Ecology(ecology.host, ecology.config, seed=ecology.seed)
    held = ecology.market.balances
    breaks_once(ecology, monkeypatch)
    lab.run(5)
    rest(lab)
    assert ecology.generation == 1 and 'out of memory' in lab.error.value and ecology.market.balances == held
    assert not any(button.disabled for button in (lab.step_button, lab.run_button, lab.ask_button))
    lab.step()
    rest(lab)
    assert ecology.generation == 2 and not lab.error.value
    assert ecology.history[-1].row == other.run(2, log=None)[-1].row


def test_new_clears_what_was_seen(ecology, monkeypatch):
    lab = opened(stepped(Lab(ecology)), 'Organelle')
    lab.ask('Sort the letters: jghn', max_new_tokens=4)
    for page in TABS: opened(lab, page)
    lab.turn(bet=.25)
    assert all(x.value for x in (lab.answers, lab.population_page, lab.organelle_page, lab.waiting, lab.ticker))
    go, real = threading.Event(), module.world_of
    monkeypatch.setattr(module, 'world_of', lambda *how: lambda: go.wait(LONG) and real(*how)())
    lab.new('debug', 5)
    empty = [lab.answers.value, lab.population_page.value, lab.organelle_page.value, lab.log_page.value,
             lab.gates_page.value, lab.waiting.value, lab.charts.charts, lab.charts.data, lab.weights.outputs,
             lab.similarity.outputs]
    assert not any(empty), empty
    go.set()
    opened(lab, 'Live')
    assert lab.view.generation == 0 and lab.charts.charts == [] and 'seed 5' in lab.head.value
    assert {name for _, name in lab.who.options} == set(lab.ecology.population.ids)
    assert logged(stepped(lab)) == [0]


def test_new_waits_for_whatever_is_under_way(ecology, monkeypatch):
    lab, go = stepped(Lab(ecology)), threading.Event()
    assert not lab.new_button.disabled
    real = module.answers_beside
    monkeypatch.setattr(module, 'answers_beside', lambda *a, **k: go.wait(LONG) and real(*a, **k))
    lab.prompt.value = 'Sort the letters: jghn'
    lab.ask_button.click()
    disabled, loading = lab.new_button.disabled, []
    with pytest.raises(ValueError, match='wait for it'): lab.new('debug', 5)
    go.set()
    assert disabled and not rest(lab).new_button.disabled
    go.clear()
    made = module.world_of
    monkeypatch.setattr(module, 'world_of', lambda *how: lambda: go.wait(LONG) and made(*how)())
    lab.new('debug', 5)
    loading = [lab.new_button.disabled, lab.pause_button.disabled]
    go.set()
    assert loading == [True, True] and not rest(lab).new_button.disabled


def test_an_ecology_that_cannot_be_made_is_reported(ecology, monkeypatch):
    def broken(): raise OSError('no model here')
    monkeypatch.setattr(module, 'world_of', lambda *how: broken)
    lab = rest(Lab(preset='debug'))
    assert 'no model here' in lab.error.value and not lab.new_button.disabled
    other = rest(Lab(ecology))
    monkeypatch.setattr(module, 'world_of', lambda *how: broken)
    other.new('debug', 3)
    assert 'no model here' in rest(other).error.value


def test_a_configuration_of_ones_own_is_a_preset(ecology, tmp_path):
    mine = tmp_path / 'mine.yaml'
    mine.write_text((PRESETS / 'debug.yaml').read_text())
    lab = rest(Lab(preset=mine))
    assert lab.preset.value == str(mine) and {'debug', 'ecology'} < set(lab.preset.options)
    assert lab.ecology.config == load_config('debug')
    lab.new(seed=4)
    assert rest(lab).ecology.seed == 4 and lab.preset.value == str(mine)
    other = rest(Lab(ecology))
    other.new(str(mine), 6)
    assert rest(other).preset.value == str(mine) and len(other.preset.options) == len(lab.preset.options)


def test_a_lab_that_is_closed_does_nothing_and_says_so(ecology):
    over, lab = stepped(Lab(ecology)), rest(Lab(ecology))
    for call in (over.step, over.run, over.pause, over.stop, over.new, lambda: over.turn(bet=.5),
                 lambda: over.ask('Sort the letters: jghn'), lambda: over.feedback(True)):
        with pytest.raises(ValueError, match=r'closed.*Lab\(') as e: call()
        assert '\n' not in str(e.value)
    assert rest(lab).ecology is ecology and ecology.generation == 1 and ecology.controls.waiting[0] == {}


def test_new_asks_again_where_generations_would_be_forgotten(ecology):
    lab = stepped(Lab(ecology))
    lab.preset.value, lab.seed.value = 'debug', 5
    lab.new_button.click()
    assert lab.ecology is ecology and 'forgotten' in lab.error.value
    lab.new_button.click()
    rest(lab)
    assert lab.ecology is not ecology and lab.ecology.seed == 5 and stepped(lab).view.generation == 1


# which lab is whose

def in_cell(monkeypatch, cell, request):
    "A kernel that reports this cell and request as the ones it runs"
    class Kernel:
        def get_parent(self): return {'header': {'msg_id': request}, 'metadata': {'cellId': cell}}
    shell = type('Shell', (), {'kernel': Kernel()})()
    monkeypatch.setattr(module, 'get_ipython', lambda: shell)


def test_a_cell_that_is_run_again_closes_the_lab_that_is_not_visible_any_more(host, config, monkeypatch):
    in_cell(monkeypatch, 'a', '1')
    one, beside = Lab(Ecology(host, config)), Lab(Ecology(host, config, seed=1))
    in_cell(monkeypatch, 'b', '2')
    elsewhere = Lab(Ecology(host, config, seed=2))
    one.run()
    in_cell(monkeypatch, 'a', '3')
    lab = Lab(Ecology(host, config, seed=3))
    assert one.closed and beside.closed and not elsewhere.closed and not lab.closed
    assert set(module._OPEN.values()) == {elsewhere, lab}
    assert one.wait(LONG) and one.runner.left == 0, 'it would run on without buttons'
    one.ecology.step()          # and its owner may still step it
    monkeypatch.setattr(module, 'get_ipython', lambda: None)
    assert rest(Lab(Ecology(host, config, seed=4))).cell is None and not lab.closed


def test_closing_ends_a_run(ecology):
    lab = Lab(ecology)
    lab.run()
    lab.close()
    assert lab.wait(LONG) and lab.runner.left == 0


def test_new_stops_the_lab_that_showed_the_same(ecology):
    other = Lab(preset='debug', seed=7)
    other.run()
    lab = rest(Lab(ecology))
    lab.new('debug', 7)
    assert other.closed and other.wait(LONG) and rest(lab).ecology is not other.ecology


def test_the_boxes_of_new_are_labelled_as_such(ecology):
    lab = rest(Lab(ecology))
    first, *boxes = lab.beginning_row.children
    assert 'begin anew' in first.value and boxes == [lab.preset, lab.seed, lab.new_button]


# folders

def test_a_look_loads_no_model_and_resume_does(host, config, tmp_path):
    with begin_session(tmp_path / 'run', host, config) as session: session.live(2, log=None)
    lab = Lab(tmp_path / 'run')
    with pytest.raises(ValueError, match='resume'): lab.turn(bet=.5)
    assert lab.ecology is None
    ecology = lab.resume()
    rest(lab)
    assert ecology is lab.ecology is lab.resume() and ecology.generation == 2
    assert not lab.world_button.disabled and lab.knobs['bet'].value == ecology.knobs['bet']
    assert stepped(lab).view.generation == 3
    assert rest(Lab(Ecology(host, config))).resume() and rest(Lab(preset='debug', seed=3)).resume().seed == 3


def test_what_was_lived_before_is_shown_too(host, config, tmp_path):
    folder, ecology = tmp_path / 'run', Ecology(host, config)
    ecology.run(3, log=None)
    assert logged(rest(Lab(ecology))) == [0, 1, 2]
    with begin_session(folder, host, config) as session:
        session.live(2, log=None)
        watching = Lab(folder)
        assert logged(watching) == [0, 1] and repr(session.ecology.history[-1]) in watching.ticker.value
    assert logged(stepped(watching)) == [0, 1, 2]


def test_the_books_of_an_organelle_come_to_the_stakes_that_it_holds(host, config, tmp_path):
    folder = tmp_path / 'run'
    with begin_session(folder, host, config) as session: session.live(2, log=None)
    def check(lab, since):
        assert lab.view.since == since and set(lab.view.alive.index) <= set(lab.view.books)
        for id, belief in lab.view.alive['belief'].items():
            whole = lab.view.births[id]['generation'] >= since
            assert not whole or sum(lab.view.books[id].values()) == pytest.approx(belief)
            assert ('over its life' if whole else f'since generation {since}') in organelle_html(lab.view, id)
    lab = Lab(folder)
    check(lab, 0)
    check(stepped(lab, 2), 0)               # its session has tables
    check(stepped(Lab(folder)), 0)          # who takes over knows it too
    ecology = Ecology(host, config)
    ecology.run(3, log=None)
    check(stepped(Lab(ecology)), 2)         # of an ecology in memory, only the latest is at hand
    check(stepped(Lab(Ecology(host, config, seed=1)), 3), 0)


def test_a_folder_whose_session_broke_off_goes_on_from_its_checkpoint(host, config, tmp_path, monkeypatch):
    folder = tmp_path / 'run'
    with begin_session(folder, host, config) as session: session.live(2, log=None)
    lab = stepped(Lab(folder))
    cannot_be_written(monkeypatch)
    stepped(lab, 3)
    assert 'No space left' in lab.error.value and lab.step_button.disabled
    assert 'Lab(' in lab.status.value and 'checkpoint' in lab.status.value
    with pytest.raises(ValueError, match='checkpoint'): lab.step()
    again = Lab(folder)
    assert lab.closed and again.runner is not lab.runner and not again.step_button.disabled
    assert again.view.generation == 3 and stepped(again).view.generation == 4 and again.error.value == ''
    assert [row['generation'] for row in Run.open(folder).rows('generations')] == [0, 1, 2, 3]


def test_a_session_that_broke_off_under_its_own_lab_is_resumed_from_its_folder(host, config, tmp_path, monkeypatch):
    session = begin_session(tmp_path / 'run', host, config)
    lab = stepped(Lab(session))
    breaks_once(session.ecology, monkeypatch)
    stepped(lab)
    assert not session.over and 'out of memory' in lab.error.value and stepped(lab).view.generation == 2
    cannot_be_written(monkeypatch)
    stepped(lab)
    assert session.over and 'checkpoint' in lab.status.value and lab.step_button.disabled
    assert stepped(Lab(tmp_path / 'run')).view.generation == 3


def test_a_folder_that_is_moved_away_is_reported_and_watched_again_when_it_is_back(host, config, tmp_path):
    def until(seen):
        end = time.monotonic() + LONG
        while not seen() and time.monotonic() < end: time.sleep(.05)
        assert seen()
    folder, away = tmp_path / 'run', tmp_path / 'away'
    with begin_session(folder, host, config) as session: session.live(1, log=None)
    lab = Lab(folder)
    folder.rename(away)
    until(lambda: 'not there any more' in lab.status.value and 'run folder' in lab.error.value)
    assert lab.step_button.disabled
    away.rename(folder)
    until(lambda: lab.error.value == '' and not lab.step_button.disabled)
    with resume_session(folder, host) as session: session.live(2, log=None)
    until(lambda: lab.view.generation == 2)


def test_a_free_folder_is_resumed_and_written_and_left_to_others(host, config, tmp_path):
    folder = tmp_path / 'run'
    with begin_session(folder, host, config) as session: session.live(2, log=None)
    lab = Lab(folder)
    assert lab.view.generation == 2 and lab.ecology is None
    lab.step()
    rest(lab)
    assert lab.view.generation == 3 and len(Run.open(folder).rows('generations')) == 3
    again = Lab(str(folder))
    assert again.runner is lab.runner
    stepped(again)
    again.close()
    assert again.wait(LONG)
    assert stepped(Lab(folder)).view.generation == 5


def test_a_run_that_cannot_be_saved_is_reported_when_its_lab_is_closed(host, config, tmp_path, monkeypatch):
    folder = tmp_path / 'run'
    with begin_session(folder, host, config) as session: session.live(1, log=None)
    lab = stepped(Lab(folder))
    def full(): raise OSError('no space left')
    monkeypatch.setattr(lab.runner.world, 'save', full)
    with pytest.warns(UserWarning, match='no space left.*checkpoint'):
        lab.close()
        assert lab.wait(LONG)


def test_a_folder_that_another_process_writes_is_watched(host, config, tmp_path):
    with begin_session(tmp_path / 'run', host, config) as session:
        session.live(1, log=None)
        lab = Lab(tmp_path / 'run')
        assert 'at work' in lab.status.value and lab.step_button.disabled
        with pytest.raises(ValueError, match='watched'): lab.step()
        session.live(2, log=None)
        until = time.monotonic() + LONG
        while lab.view.generation < 2 and time.monotonic() < until: time.sleep(.05)
        assert lab.view.generation == 2


def test_a_folder_without_checkpoint_is_shown(ecology, tmp_path):
    run = Run.create(tmp_path / 'run', config=ecology.config.model_dump(), host={'id': 'embedded'}, seed=0, version='x')
    run.record(ecology.step())
    lab = Lab(tmp_path / 'run')
    assert 'no checkpoint' in lab.status.value and len(lab.view.alive) == len(ecology.population)
    with pytest.raises(ValueError, match='run folder'): Lab(tmp_path)


def test_a_folder_says_what_the_ecology_says(host, config, tmp_path):
    with begin_session(tmp_path / 'run', host, config) as session: session.live(7, log=None)
    data = load(tmp_path / 'run')
    here, there = look(session.ecology, kept=kept_of(data)), look_at(data)
    both = list(there.alive)
    assert set(here.alive) - set(both) == {'leads', 'updates', 'as the host'}, 'what only weights and beliefs can tell'
    pd.testing.assert_frame_equal(here.alive[both].sort_index(), there.alive.sort_index(), check_dtype=False)
    assert [v['sentence'] for v in here.decisions] == [v['sentence'] for v in there.decisions]


def test_what_is_kept_of_records_is_what_the_tables_of_the_run_say(host, config, tmp_path):
    session = begin_session(tmp_path / 'run', host, config)
    lab = stepped(Lab(session), 7)
    kept, told = lab.memory.kept, kept_of(load(tmp_path / 'run'))
    assert kept.lived == told.lived and kept.births == told.births and list(kept.events) == list(told.events)
    assert list(kept.tests) == list(told.tests) and [r['generation'] for r in kept.evolution] == [
        r['generation'] for r in told.evolution] == [5]
    assert {id: pytest.approx(own) for id, own in told.books.items()} == kept.books
    pd.testing.assert_frame_equal(*(pd.DataFrame(k.stakes).sort_values(['generation', 'organelle'], ignore_index=True)
                                    for k in (kept, told)), check_dtype=False)
    lab.close()
    session.close()


def test_the_living_are_listed_by_belief_with_what_they_answered_and_where_they_lead(ecology):
    lab, episodes = Lab(ecology), []
    lab.runner.watchers.append(lambda record: episodes.extend(record.episodes if record else ()))
    table, beliefs = stepped(lab, 3).view.alive, ecology.market.table()
    assert table['belief'].is_monotonic_decreasing and table['belief'].to_dict() == ecology.market.balances
    asked = pd.DataFrame(episodes).groupby('organelle')['success'].agg(['mean', 'size'])
    assert table['answers'].sum() == len(episodes) and table['right'].dropna().to_dict() == pytest.approx(
        asked['mean'].to_dict())
    led = {id: words.split(', ') for id, words in table['leads'].items() if words != '–'}
    told = {f: id for id, families in led.items() for f in families}
    assert told == {f: ecology.market.leader(f) for f in beliefs.index}
    page = opened(lab, 'Population').population_page.value
    assert all(event['reason'] in page for event in lab.view.events) and 'Who answers in which family' in page
    lab.select(beliefs.iloc[0].idxmax())
    card = opened(lab, 'Organelle').organelle_page.value
    assert 'Believed now, by family' in card and 'plasticity' in card and 'Lineage' in card


def test_gates_are_seen_with_their_sentences_and_the_children_that_were_tested(host, config):
    ecology, found = Ecology(host, changed_config(config, {'merging': {'share': 1.}})), []
    lab = Lab(ecology)
    lab.runner.watchers.append(lambda record: found.extend(record.decisions if record else ()))
    page = opened(stepped(lab, 8), 'Gates').gates_page.value
    assert all(shown(str(d)) in page for d in ecology.history[-1].decisions) and ecology.history[-1].decisions
    tested = [d for d in found if d.final and 'e' in d.numbers]
    assert tested and [t['generation'] for t in lab.view.tests] == [d.generation for d in tested][::-1]
    assert all(f"{d.numbers['e']:.3g}" in page and gate_label(d.gate) in page for d in tested)


# questions and answers

def test_answers_stand_beside_their_questions_and_are_picked(ecology):
    lab = stepped(Lab(ecology))
    lab.tabs.selected_index = TABS.index('Answers')
    rest(lab)
    rows, tasks = ecology.history[-1].episodes, {t['question']: t for t in ecology.history[-1].tasks}
    assert all(tasks[r['question']]['task'] == r['task'] for r in rows)
    page = lab.replies_page.value
    assert f'{len(rows)} answers fit, of the latest {len(rows)} of {len(rows)};' in page
    last = tasks[rows[-1]['question']]
    assert shown(last['prompt']) in page and shown(last['gold']) in page
    cell, verdict = f"{rows[0]['family']}:{rows[0]['depth']}", 'right'
    lab.picks['cell'].value, lab.picks['verdict'].value = cell, verdict
    fits = [r for r in rows if f"{r['family']}:{r['depth']}" == cell and r['success']]
    assert f'>{len(fits)} answers fit' in lab.replies_page.value
    lab.step()
    assert lab.picks['cell'].value == cell, 'a choice stays while it lives on'
    rest(lab)


def test_a_drawn_question_is_of_the_niche_and_graded(ecology):
    lab = stepped(Lab(ecology), 2)
    lab.draw_button.click()
    rest(lab)
    family = ecology.market.table()[lab.organelle].idxmax()
    assert lab.drawn.family == family and lab.prompt.value == lab.drawn.prompt
    before = repr(state_of(ecology))
    lab.ask_button.click()
    rest(lab)
    assert repr(state_of(ecology)) == before, 'to ask changes nothing'
    page = lab.answers.value
    assert f'right is: <b>{shown(lab.drawn.answer)}</b>' in page and page.count('the router asks it') == 1
    marks = [page.count(mark) for mark in ('✓ right', '✗ wrong', '– no answer found')]
    assert sum(marks) == page.count('class="answer"') >= 2
    first = lab.drawn
    assert lab.question() != first or len({lab.question().id for _ in range(5)}) > 1
    assert lab.ask('Sort the letters: jghn').gold is None and '✓' not in lab.answers.value
    assert lab.ask(first).gold == first.answer


def test_what_is_kept_of_answers_is_bounded(ecology):
    ecology.step()
    kept = kept_of(gather(ecology.history))
    for _ in range(40): kept.live(ecology, ecology.history[-1])
    assert len(kept.answers) <= MOST_ANSWERS


# hostile text

@pytest.mark.parametrize('text', HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_does_nothing(ecology, text):
    ecology.step()
    view = look(ecology)
    one = view.alive.index[0]
    evil = View(text, {text: text}, view.rows, view.alive.rename(index={one: text}).assign(leads=text),
                {text: view.births[one] | {'operator': text, 'parents': [text], 'traits': {text: text}}},
                [dict(organelle=text, partners=[text], gate=text, final=True, sentence=f'{text}: {text}')],
                [dict(view.ledger[0], organelle=text, reason=text)], {text: {text: 1e300}}, 1,
                beliefs=view.beliefs.rename(index=lambda _: text, columns={one: text}),
                events=[dict(view.events[0], organelle=text, operator=text, parents=[text], reason=text)],
                tests=[dict(generation=0, organelle=text, partners=[text], gate=text,
                            numbers={'e': text, 'best': text})],
                society=[dict(generation=0, part=text, event=text, organelle=text, others=[text],
                              numbers={text: text, 'n': 1e300})])
    lab = rest(Lab(ecology))
    lab.draw(evil)
    lab.fail(ValueError(text))
    pages = [organelle_html(evil, text), gates_html(evil), population_html(evil), society_html(evil), shown(text),
             lab.snapshot_html(),
             answers_html(pd.DataFrame({'text': [text], 'tokens': [1], f'to {text}': [-1.]}, index=[text]), text,
                          gold=text, routed=text),
             replies_html(view.answers.assign(cell=text, organelle=text, question=text, answer=text,
                                              **{'right answer': text}), 9),
             lab.error.value, lab.head.value]
    for page in pages:
        assert not any(bad in page for bad in ('<script', '<img src=x', '\x1b', '\u202e', '<h1', '\ud800'))
        assert page.encode() and len(page) < 500_000
    assert all(label.replace('\n', '').isprintable() and len(label) <= 80 for label, _ in lab.who.options)


# the curves

def test_the_data_of_the_curves_is_bounded_and_keeps_totals(ecology):
    ecology.run(3, log=None)
    rows = [ecology.history[i % 3].row | {'generation': i, 'gates': {'no_pair': 1, f'x{i}': 9}} for i in range(10_001)]
    drawn = points(rows)
    assert len(drawn) <= 500 and sum(p['births'] for p in drawn) == sum(r['births'] for r in rows)
    assert sum(s['turns'] for s in stops(rows)) == len(rows), 'only decisions of gates are counted'
    assert len(json.dumps(live_spec(rows))) < 200_000
    assert gather(ecology.history).generations.shape[0] == 3


def test_the_gates_have_a_lane_each_in_the_order_in_which_they_are_met(ecology, monkeypatch):
    ecology.run(1, log=None)
    def drawn(*names): return live_spec([ecology.history[0].row | {'gates': {name: 1 for name in names}}])['vconcat'][2]
    usual = drawn('no_pair')
    assert drawn('took_over') == usual, 'the same lanes, whatever was met'
    order = usual['encoding']['y']['scale']['domain']
    assert order == [gate_label(name) for name in [*EVENTS, *reversed(GATES)]] and len({*order}) == len(order)
    monkeypatch.setattr(GATES, 'own', GATES.own.copy())
    register_gate(Gate('patience', 'has it waited?', 'waited', '>=', 'least', 'waited {waited}, {least} expected',
                       lambda *_: dict(waited=1, least=0), label='impatient'))
    try:
        assert drawn('no_pair') == usual and lanes([{'gates': {'patience': 1}}])[:2] == ('no_pair', 'patience')
        assert drawn('patience')['encoding']['y']['scale']['domain'][-2:] == ['impatient', gate_label('no_pair')]
    finally: del GATES['patience']


ACCOUNT = dict(before=.5, after=.56, selection=.02, learning=.06, birth=-.01, merge=0., arrivals=-.01, reliability=.4,
               income=None, children={'o5': {}})


def test_the_bars_of_an_account_begin_at_0_and_come_to_the_whole_change():
    bars, whole = accounts([ACCOUNT | {'generation': g} for g in (5, 8, 11)])
    assert [w['change'] for w in whole] == [pytest.approx(.06)] * 3 and [w['children'] for w in whole] == [1] * 3
    for bar in bars[:5]: assert bar['high'] - bar['low'] == pytest.approx(abs(bar['change']))
    up, down = ([b for b in bars[:5] if sign * b['change'] > 0] for sign in (1, -1))
    assert min(b['low'] for b in up) == max(b['high'] for b in down) == 0
    assert max(b['high'] for b in up) == pytest.approx(.08) and min(b['low'] for b in down) == pytest.approx(-.02)
    assert all(8.5 - 3 < bar['begin'] < bar['end'] == 8.5 for bar in bars[5:10]), 'it ends with its census'
    many, sums = accounts([ACCOUNT | {'generation': g} for g in range(600)])
    assert len(sums) == 60 and sum(w['change'] for w in sums) == pytest.approx(36) and len(many) == 300
    assert accounts([]) == ([], [])
    alone = accounts([ACCOUNT | {'generation': 31}])[0][0]
    assert 15.5 <= alone['begin'] < alone['end'] == 31.5, 'the census before the first account was half as late'
    odd, = accounts([ACCOUNT | {'generation': 1, 'learning': float('nan'), 'reliability': 'x', 'children': None}])[1]
    assert odd['reliability'] is None and odd['change'] == pytest.approx(0) and odd['children'] == 0


def test_a_census_is_drawn_and_its_numbers_are_a_table(ecology):
    lab = stepped(Lab(ecology), 5)
    before = len(lab.charts.charts)
    assert lab.evolution.empty and lab.charts.data['terms'] == []
    stepped(lab)
    row, = ecology.history[-1].evolution
    assert lab.evolution['generation'].tolist() == [5] and lab.evolution['learning'].iloc[0] == row['learning']
    assert lab.charts.data['whole'][0]['change'] == pytest.approx(row['after'] - row['before'], abs=1e-5)
    assert len(lab.charts.charts) == before + 1
    held = lab.charts.data['stakes']
    assert {r['organelle'] for r in held if r['generation'] == 5} == set(ecology.population.ids)


def test_an_error_is_one_line_with_a_traceback_for_those_who_ask():
    assert '<details>' in error_html(ValueError('a\nb'), 'trace') and 'a b' in error_html(ValueError('a\nb'))
    assert 'KeyError' in error_html(KeyError()) and error_html(None) == ''


def test_a_question_is_asked_and_judged_in_the_form_of_the_ecology():
    config = load_config('debug').model_copy(update={'form': FORMS['shots'], 'cells': ['string.sort:2', 'math:1']})
    lab = stepped(Lab(Ecology(tiny_host('llama'), config)))
    lab.prompt.value = 'Sort the letters: jghn'
    lab.ask_button.click()
    rest(lab)
    assert 'as a question of string.sort:2, with 3 solved questions' in lab.answers.value
    assert len(lab.last_answer[1]) == 7 and lab.last_answer[1][-1] == lab.prompt.value
    lab.up_button.click()
    stepped(lab)
    assert [f['prompt'] for f in lab.ecology.history[-1].feedback] == [lab.prompt.value]
    lab.ask('Tell me a joke', max_new_tokens=4)
    assert 'as it stands' in rest(lab).answers.value and lab.last_answer[1] == 'Tell me a joke'
    lab.close()


# a world that changes

SMALL_WORLD = {'cells': ['string.sort:1', 'word.count:1'], 'max_new_tokens': 6, 'capacity': 3,
               'market': {'questions': 6, 'round': 2, 'learn_every': 2, 'protect': 0, 'asleep': .2},
               'world': {'period': 3}, 'curriculum': {'copies': 2}}


@pytest.fixture
def changing(monkeypatch):
    monkeypatch.setattr(Form, 'grade', lambda _, task, text: chance_decides(task, text))
    return Ecology(tiny_host(), changed_config(load_config('worlds'), SMALL_WORLD))


def bands(lab):
    "Which world lies beneath the charts of the page Live, from generation to generation"
    opened(lab, 'Live')
    rows = lab.charts.data['world']
    return [(row['first'], row['last'], row['world'], row['hand']) for row in rows]


def test_the_button_changes_the_world_with_the_next_generation_and_the_charts_show_it(changing):
    lab = stepped(Lab(changing))
    lab.world_button.click()
    assert 'from the next generation on: <bdi>the next world</bdi>' in lab.waiting.value and not lab.error.value
    stepped(lab)
    assert not lab.waiting.value and changing.history[-1].knobs == [dict(generation=1, knob='world', value=1., was=0.)]
    assert bands(lab) == [(0, 0, 0, False), (1, 1, 1, True)]
    lab.change_world()
    stepped(lab, 4)
    assert bands(lab) == [(0, 0, 0, False), (1, 1, 1, True), (2, 4, 2, True), (5, 5, 3, False)]
    assert 'data:image/png' in lab.snapshot_html()


def test_a_static_world_is_not_changed_and_the_panel_says_so_in_a_line(ecology):
    lab = stepped(Lab(ecology))
    lab.world_button.click()
    assert 'role="alert"><bdi>expected a world that changes, got a static one' in lab.error.value
    with pytest.raises(ValueError, match='got a static one'): lab.change_world()
    assert not lab.waiting.value and not ecology.controls.changing
    assert 'world' not in lab.charts.data


def test_a_run_that_a_hand_changed_is_the_same_in_the_lab_after_it_was_resumed(changing, tmp_path):
    with begin_session(tmp_path / 'run', changing.host, changing.config) as session:
        for generation in range(3):
            if generation == 1: session.ecology.change_world()
            session.step()
        session.ecology.change_world()      # it waits in the checkpoint
        session.save()
        kept = look(session.ecology, name='run')
    watching = rest(Lab(tmp_path / 'run'))
    assert bands(watching) == [(0, 0, 0, False), (1, 2, 1, True)]
    seen = watching.view.alive
    assert seen['belief'].sum() == pytest.approx(1) and seen['state'].tolist() == kept.alive['state'].tolist()
    resumed = resume_session(tmp_path / 'run', host=changing.host)
    lab = stepped(Lab(resumed))
    assert bands(lab) == [(0, 0, 0, False), (1, 2, 1, True), (3, 3, 2, True)]
    # What the lab collected from record to record is what the tables of the run say.
    assert world_rates(lab.memory.kept.counts).equals(world_table(load(tmp_path / 'run')))
    held = balances(load(tmp_path / 'run')).set_index(['generation', 'organelle'])['stakes']
    assert lab.view.stakes.set_index(['generation', 'organelle'])['stakes'].to_dict() == pytest.approx(held.to_dict())
    lab.close()
    resumed.close()


def test_the_card_counts_what_an_organelle_did_in_each_world(changing):
    lab = stepped(Lab(changing), 7)
    one = lab.view.alive['answers'].idxmax()
    lab.select(one)
    page = opened(lab, 'Organelle').organelle_page.value
    rows = lab.view.known.loc[one]
    assert 'Worlds that it knows' in page and 'Believed now, by family' in page
    for where, row in rows.iterrows(): assert f'<bdi>{where}</bdi></th><td class="n">' in page
    best = rows['low'].idxmax()
    assert lab.view.alive.loc[one, 'knows best'] == (f"{best} ({rows.loc[best, 'right']:.0%} of "
                                                     f"{rows.loc[best, 'answers']:,} answers)")
    assert 'knows best' in opened(lab, 'Population').population_page.value
    answered = {e['organelle'] for e in changing.history[-1].episodes}
    for id, row in lab.view.alive.iterrows():
        assert (row['state'] == 'dormant') == (changing.market.balance(id) < .2 and id not in answered)


def test_what_parts_of_society_do_has_a_page(host, config):
    lab = rest(Lab(Ecology(host, changed_config(config, {'society': {'board': {'read': 1.}, 'guard': {}}}))))
    assert 'switched on by its name' in opened(lab, 'Society').society_page.value
    page = opened(stepped(lab, 3), 'Society').society_page.value
    assert '>board<' in page and '>guard<' in page and 'messages' in page and 'moved' in page


# --- what was made is kept

def test_an_ecology_in_memory_is_saved_with_all_its_answers_and_lives_on_in_its_folder(host, config, tmp_path):
    lab = stepped(Lab(Ecology(host, config)), 2)
    assert lab.saving_row.layout.display == ''
    lab.save_as.value = str(tmp_path / 'mine')
    lab.save_button.click()
    assert rest(lab).name == 'mine' and lab.saving_row.layout.display == 'none' and not lab.error.value
    assert 'mine' in lab.head.value and 'in memory' not in lab.head.value
    stepped(lab)
    lab.close()
    assert lab.runner.wait(LONG)
    run, whole = Run.open(tmp_path / 'mine'), Ecology(host, config)
    records = [whole.step() for _ in range(3)]
    assert run.rows('episodes') == [row for r in records for row in json.loads(json.dumps(r.tables['episodes']))]
    assert run.rows('lineage') == json.loads(json.dumps([row for r in records for row in r.tables['lineage']]))
    assert stepped(Lab(tmp_path / 'mine')).view.generation == 4


def test_a_lab_is_saved_while_it_runs_and_loses_no_generation(host, config, tmp_path):
    lab = Lab(Ecology(host, config))
    lab.run(4)
    assert lab.save(tmp_path / 'mine') == tmp_path / 'mine'
    rest(lab)
    assert [row['generation'] for row in Run.open(tmp_path / 'mine').rows('generations')] == [0, 1, 2, 3]
    assert {row['generation'] for row in Run.open(tmp_path / 'mine').rows('episodes')} == {0, 1, 2, 3}


def test_generations_that_were_lived_elsewhere_are_kept_with_what_is_known_of_them(host, config, tmp_path):
    ecology = Ecology(host, config)
    ecology.run(2, log=None)
    lab = stepped(Lab(ecology))
    lab.save(tmp_path / 'mine')
    run = Run.open(tmp_path / 'mine')
    assert len(run.rows('generations')) == 3 and {row['generation'] for row in run.rows('episodes')} == {2}
    born = [row for row in run.rows('lineage') if row['event'] == 'birth']
    assert {*ecology.population.ids} <= {row['organelle'] for row in born}
    assert len(born) == len({row['organelle'] for row in born})


@pytest.mark.parametrize('place', ['there', 'file/in'])
def test_where_something_is_nothing_is_saved_and_the_lab_says_so(host, config, tmp_path, place):
    (tmp_path / 'there').mkdir()
    (tmp_path / 'there' / 'mine.txt').write_text('x')
    (tmp_path / 'file').write_text('x')
    lab = stepped(Lab(Ecology(host, config)))
    with pytest.raises((ValueError, OSError)): lab.save(tmp_path / place)
    assert rest(lab).error.value and lab.folder is None and stepped(lab).view.generation == 2
    assert {p.name for p in tmp_path.rglob('*')} == {'there', 'mine.txt', 'file'}
    assert lab.save(tmp_path / 'new') == tmp_path / 'new'


def test_what_is_kept_already_is_not_saved_twice(host, config, tmp_path):
    with begin_session(tmp_path / 'run', host, config) as session:
        with pytest.raises(ValueError, match='kept in'): stepped(Lab(session)).save(tmp_path / 'other')
        Lab(session).close()


def test_where_there_is_no_room_for_a_draft_life_goes_on(host, config, monkeypatch):
    def full(*_): raise OSError(28, 'No space left on device')
    monkeypatch.setattr('evolora.ecology.drafts.Draft.catch_up', full)
    lab = stepped(Lab(Ecology(host, config)), 2)
    assert lab.view.generation == 2 and not lab.error.value and lab.runner.draft is None


# the cards of those that are clicked

def clicked(lab, page, organelle):
    page._handle_custom_msg({'organelle': organelle}, [])
    return rest(lab)


def test_a_name_on_any_page_opens_the_card_of_that_organelle(ecology):
    lab = stepped(Lab(ecology), 3)
    last = lab.view.alive.index[-1]
    assert f'data-organelle="{last}"' in opened(lab, 'Population').population_page.value
    clicked(lab, lab.population_page, last)
    assert (lab.page, lab.organelle) == ('Organelle', last)
    card = lab.organelle_page.value
    assert 'Lineage' in card and 'Its latest answers' in card and f'data-organelle="{last}"' in card
    clicked(lab, lab.organelle_page, 'o99')
    assert 'lived here' in lab.error.value and lab.organelle == last


def test_who_sleeps_stands_on_a_map_and_has_a_card_but_is_not_asked(host, config):
    ecology = Ecology(host, changed_config(config, {'founders': 3, 'founder_step': .6, 'capacity': 3,
                                                    'market': {'protect': 1}, 'society': {'archive': {'most': 4}}}))
    lab = stepped(Lab(ecology))
    ecology.plasticity.own[:] = 8                       # as if all had learned
    left = ecology.population.ids[-1]
    ecology.demography.bury(left, 0, 'an example')
    stepped(lab)
    assert lab.view.standing(left) == 'asleep'
    page = opened(lab, 'Society').society_page.value
    assert 'Who sleeps' in page and f'data-organelle="{left}"' in page
    clicked(lab, lab.society_page, left)
    card = lab.organelle_page.value
    assert (lab.page, lab.organelle) == ('Organelle', left) and 'in the archive' in card and 'an example' in card
    assert (f'{left} (asleep)', left) in lab.who.options
    with pytest.raises(ValueError, match=f'alive to ask, got {left}, which is asleep'): lab.ask('Sort the letters: bad')
    with pytest.raises(ValueError, match='alive to ask'): lab.question()
    assert lab.ask_button.disabled and lab.exam_button.disabled and not lab.step_button.disabled
    lab.select(lab.view.alive.index[0])
    assert not lab.ask_button.disabled and lab.ask('Sort the letters: bad').answers.shape[0] >= 2


def test_one_that_died_is_found_by_its_descendants(host, config):
    ecology = Ecology(host, changed_config(config, {'founders': 3, 'capacity': 3}))
    lab = stepped(Lab(ecology))
    ecology.demography.bury('o2', 0, 'an example')
    stepped(lab)
    lab.select('o2')
    card = opened(lab, 'Organelle').organelle_page.value
    assert 'gone' in card and 'an example' in card and 'children' in card
    stepped(lab)
    assert lab.organelle == 'o2', 'it stays where the reader is'
    lab.who.value = lab.view.alive.index[0]
    stepped(lab)
    assert lab.organelle in lab.view.alive.index


def test_shares_in_a_family_add_up_to_those_of_the_population_page(ecology):
    view = stepped(Lab(ecology), 4).view
    for id, row in view.alive.iterrows():
        right, answers = (sum(x) for x in zip((0, 0), *view.lived.get(id, {}).values()))
        assert answers == row['answers'] and (not answers or right / answers == row['right'])
        assert pd.isna(row['95 %']) == (not answers)


def test_an_exam_compares_with_the_host_and_changes_nothing(host, config):
    lab, still = stepped(Lab(Ecology(host, config)), 2), Ecology(host, config)
    still.run(2, log=None)
    found = lab.exam(24)
    assert found.loc['overall', 'n'] == 24 and found['n'].iloc[1:].sum() == 24
    assert f'Exam of <bdi>{lab.organelle}</bdi>' in lab.exam_page.value
    stepped(lab)
    still.step()
    assert lab.ecology.history[-1].row == still.history[-1].row
    lab.exam_button.click()
    assert 'the bare host' in rest(lab).exam_page.value
    with pytest.raises(ValueError, match='alive to ask, got'):
        lab.who.options = (*lab.who.options, ('o99', 'o99'))
        lab.who.value = 'o99'
        lab.exam(24)


def test_enter_asks_and_the_last_verdict_does_not_stand_beside_a_fresh_answer(ecology):
    lab = stepped(Lab(ecology))
    lab.prompt.value = 'Sort the letters: jghn'
    lab.prompt._handle_custom_msg({'event': 'submit'}, [])
    assert lab.answers.value and rest(lab).last_answer[1] == lab.prompt.value
    lab.feedback(True)
    stepped(lab)
    assert 'booked' in lab.feedback_text.value
    lab.prompt._handle_custom_msg({'event': 'submit'}, [])
    assert rest(lab).judgeable and lab.feedback_text.value == ''


def test_a_panel_says_the_preset_that_it_shows(tmp_path, host, config):
    with begin_session(tmp_path / 'run', host, config, seed=3) as session: session.live(1, log=None)
    lab = Lab(tmp_path / 'run')
    assert (lab.preset.value, lab.seed.value) == ('debug', 3)
    assert Lab(Ecology(host, config, seed=4)).seed.value == 4
    other = Lab(Ecology(host, changed_config(config, {'founders': 1}), seed=4))
    assert (other.preset.value, other.seed.value) == ('ecology', 4)


def test_the_card_is_of_the_one_that_was_clicked_also_after_one_that_died(host, config):
    ecology = Ecology(host, changed_config(config, {'founders': 3, 'capacity': 3}))
    lab = stepped(Lab(ecology))
    ecology.demography.bury('o2', 0, 'an example')
    lab = opened(stepped(lab), 'Organelle')
    for one in ('o2', lab.view.alive.index[0], 'o2', lab.view.alive.index[-1]):
        clicked(lab, lab.population_page, one)
        assert lab.organelle == one and ('an example' in lab.organelle_page.value) == (one == 'o2')
        assert f'data-organelle="{one}"' in lab.organelle_page.value


def test_a_part_that_ends_the_program_ends_one_generation_only(ecology, monkeypatch):
    lab = stepped(Lab(ecology))
    with monkeypatch.context() as broken:
        broken.setattr(ecology, '_learn', lambda *a, **k: (_ for _ in ()).throw(SystemExit(1)))
        stepped(lab)
        assert lab.view.generation == 1 and lab.error.value
    assert stepped(lab).view.generation == 2
    with pytest.raises(SystemExit): lab.runner.submit(lambda e: (_ for _ in ()).throw(SystemExit(1))).result(LONG)
    assert stepped(lab).view.generation == 3


def test_a_lab_of_an_ecology_that_has_lived_shows_it_at_once(ecology):
    ecology.run(2, log=None)
    lab = Lab(ecology)
    assert lab.view.generation == 2 and len(lab.table) == 2 and 'generations' in repr(lab)
    lab.select(ecology.population.ids[0])
    rest(lab)


def test_odd_calls_get_a_line(ecology):
    lab = stepped(Lab(ecology))
    for call in (lambda: lab.exam('4'), lambda: lab.exam(0), lambda: lab.exam(1.5), lambda: lab.select(['o1']),
                 lambda: lab.ask(None), lambda: lab.ask(3), lambda: lab.save(' '), lambda: Lab(preset=None),
                 lambda: Lab(seed=1.5), lambda: Lab(seed='3')):
        with pytest.raises(ValueError, match='expected'): call()
    rest(lab)


def test_an_interrupt_of_the_cell_that_waits_stops_the_life(ecology):
    lab = stepped(Lab(ecology))
    lab.run()
    threading.Timer(.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    assert lab.wait(LONG)
    assert lab.runner.doing == 'at rest' and len(ecology.history) == ecology.generation > 1
