"""The lab without a browser: a button is a line of Python, nothing is doubled, and hostile text does nothing.

The widgets have no page here, only their traits, which is all that a page would be told.
"""
import json
import threading
import time

import pandas as pd
import pytest

from evolora import lab as module
from evolora.analysis import gather
from evolora.configuration import load_config
from evolora.ecology import Ecology
from evolora.host import load_host
from evolora.lab import Lab
from evolora.live import live_spec, points, stops
from evolora.runner import Runner
from evolora.runs import Run
from evolora.sessions import begin_session
from evolora.views import View, answers_html, gates_html, look, organelle_html, shown, table_html
from evolora.widgets import TABS, error_html

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


# the runner

def test_a_generation_on_the_thread_is_the_one_of_the_main_thread(host, config, ecology):
    runner, straight = Runner(ecology), Ecology(host, config)
    runner.run(3)
    assert runner.wait(LONG)
    straight.run(3, say=None)
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


def test_a_run_ends_when_nobody_is_left(host, config):
    poor = config.model_copy(update={'economy': config.economy.model_copy(update={
        'ticket': 50., 'founder_energy': 1., 'floor': 0.})})
    ecology = Ecology(host, poor)
    lab = stepped(Lab(ecology), 50)
    assert not len(ecology.population) and ecology.generation < 50 and lab.runner.error is None
    assert 'nobody is left' in lab.status.value and lab.step_button.disabled and lab.snapshot_html()


# the panel

def test_every_button_says_what_it_does_in_python(ecology):
    lab = Lab(ecology)
    buttons = [w for name, w in vars(lab).items() if name.endswith('_button')]
    assert len(buttons) == 9 and all(b.description and 'lab.' in b.tooltip for b in buttons)


def test_a_step_is_seen_everywhere(ecology):
    lab = Lab(ecology)
    lab.step_button.click()
    rest(lab)
    assert 'generation 1 ' in lab.status.value and 'aria-live="polite"' in lab.status.value
    chart = next(iter(lab.charts.outputs[0]['data'].values()))
    assert [p['alive'] for p in chart['datasets']['points']] == [ecology.history[0].row['alive']]
    for i, page in enumerate(TABS):
        lab.tabs.selected_index = i
        if page == 'Population': assert all(id in lab.population_page.value for id in ecology.population.ids)
        if page == 'Organelle':
            rest(lab)
            assert 'Traits' in lab.organelle_page.value
            assert 'ΔW' in lab.weights.outputs[0]['data']['text/plain']
        if page == 'Log': assert 'ROI' in lab.log_page.value
    assert lab.error.value == ''


def test_the_same_lab_again_takes_over_and_doubles_nothing(ecology):
    first = stepped(Lab(ecology))
    threads, watchers = threading.active_count(), len(first.runner.watchers)
    for _ in range(5): lab = rest(Lab(ecology))
    assert lab.runner is first.runner and len(lab.runner.watchers) == watchers == 1 and len(module._OPEN) == 1
    assert threading.active_count() <= threads + 1 and first.closed
    lab.step()
    assert rest(lab).view.generation == ecology.generation == 2
    assert len(lab._lines) == 2


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
    lab.knobs['ticket'].value = .125
    assert ecology.controls.waiting[0] == {'ticket': .125} and '0.125' in lab.waiting.value
    stepped(lab)
    assert ecology.knobs['ticket'] == .125 and lab.waiting.value == ''
    lab.knobs['ticket'].value = -1.
    assert 'nothing was turned' in lab.error.value and lab.knobs['ticket'].value == .125
    lab.turn(winter=2)
    stepped(lab)
    assert lab.knobs['winter'].value == 1 and ecology.controls.waiting[0] == {}, 'the panel turned a knob by itself'


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
    assert [(f['organelle'], f['prompt'], f['up']) for f in record] == [(lab.said[0], lab.prompt.value, True)]


@pytest.mark.parametrize('call, words', [
    (lambda lab: lab.select('nobody'), 'alive'), (lambda lab: lab.ask('  '), 'question'),
    (lambda lab: lab.run(0), '1 or more'),
    (lambda lab: lab.turn(speed=2), 'knob'), (lambda lab: lab.thumb(True), 'ask'),
    (lambda lab: lab.new('no such'), 'preset'),
    (lambda lab: lab.new(seed=-1), '0 or more')])
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


def test_new_asks_again_where_generations_would_be_forgotten(ecology):
    lab = stepped(Lab(ecology))
    lab.preset.value, lab.seed.value = 'debug', 5
    lab.new_button.click()
    assert lab.ecology is ecology and 'forgotten' in lab.error.value
    lab.new_button.click()
    rest(lab)
    assert lab.ecology is not ecology and lab.ecology.seed == 5 and stepped(lab).view.generation == 1


# folders

def test_a_free_folder_is_resumed_and_written_and_left_to_others(host, config, tmp_path):
    folder = tmp_path / 'run'
    with begin_session(folder, host, config) as session: session.live(2, say=None)
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


def test_a_folder_where_somebody_is_at_work_is_watched(host, config, tmp_path):
    with begin_session(tmp_path / 'run', host, config) as session:
        session.live(1, say=None)
        lab = Lab(tmp_path / 'run')
        assert 'at work' in lab.status.value and lab.step_button.disabled
        with pytest.raises(ValueError, match='watched'): lab.step()
        session.live(2, say=None)
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
    from evolora.analysis import load
    from evolora.views import look_at
    with begin_session(tmp_path / 'run', host, load_config('ecology')) as session: session.live(2, say=None)
    here, there = look(session.ecology), look_at(load(tmp_path / 'run'))
    pd.testing.assert_frame_equal(here.alive.sort_index(), there.alive.sort_index(), check_dtype=False)
    assert [v['says'] for v in here.verdicts] == [v['says'] for v in there.verdicts]


# hostile text

@pytest.mark.parametrize('text', HOSTILE, ids=range(len(HOSTILE)))
def test_hostile_text_does_nothing(ecology, text):
    ecology.step()
    view = look(ecology)
    one = view.alive.index[0]
    evil = View(text, {text: text}, view.rows, view.alive.rename(index={one: text}).assign(niche=text),
                {text: view.births[one] | {'operator': text, 'parents': [text], 'traits': {text: text}}},
                [dict(organelle=text, partners=[text], gate=text, final=True, says=f'{text}: {text}')],
                [dict(view.ledger[0], organelle=text, reason=text)])
    lab = rest(Lab(ecology))
    lab.draw(evil)
    lab._fail(ValueError(text))
    pages = [organelle_html(evil, text), gates_html(evil), table_html(evil.alive), shown(text), lab.snapshot_html(),
             answers_html(pd.DataFrame({'text': [text], 'tokens': [1], f'to {text}': [-1.]}, index=[text])),
             lab.error.value, lab.head.value]
    for page in pages:
        assert not any(bad in page for bad in ('<script', '<img src=x', '\x1b', '\u202e', '<h1', '\ud800'))
        assert page.encode() and len(page) < 500_000


# the curves

def test_the_data_of_the_curves_is_bounded_and_keeps_totals(ecology):
    ecology.run(3, say=None)
    rows = [ecology.history[i % 3].row | {'generation': i, 'gates': {'ready': 1, f'x{i}': 9}} for i in range(10_001)]
    drawn = points(rows)
    assert len(drawn) <= 500 and sum(p['births'] for p in drawn) == sum(r['births'] for r in rows)
    assert sum(s['turns'] for s in stops(rows)) == len(rows), 'only what gates say is counted'
    assert len(json.dumps(live_spec(rows))) < 200_000
    assert gather(ecology.history).generations.shape[0] == 3


def test_an_error_is_one_line_with_a_traceback_for_those_who_ask():
    assert '<details>' in error_html(ValueError('a\nb'), 'trace') and 'a b' in error_html(ValueError('a\nb'))
    assert 'KeyError' in error_html(KeyError()) and error_html(None) == ''
