"""What watching costs is measured as described. No time is asserted: `evolora bench lab` prints times.

The page that a browser opens is made by hand, so that it can misbehave; that needs Chromium and playwright.
"""
import json
import shutil

import pandas as pd
import pytest

from evolora.cli import app as cli
from evolora.experiments import lab_overhead
from evolora.ecology.config import load_config
from evolora.ecology.ecology import Ecology
from evolora.host.model import load_host
from evolora.experiments.lab_overhead import (faults, first_generation, lab_rows, lab_tables, lab_targets, live_long,
                                              visits, watch)

PAGE = '''<table><tr><th><button>a</button><th>
<button onclick="this.parentElement.setAttribute('aria-sort', 'up')">b</button></table>
<p data-chart="x"><svg width="9" height="9"></svg></p><script>SCRIPT</script>'''
SEEN = [dict(sorted=s, drawn=s + 9., outside=0) for s in (.3, .4, 3.)]


@pytest.fixture(scope='module')
def host(): return load_host('embedded', threads=1)


@pytest.fixture(scope='module')
def run(host, tmp_path_factory): return live_long(tmp_path_factory.mktemp('runs') / 'long', host, 3)


def pairs(slower, ticks=6., n=8): return pd.DataFrame(dict(alone=1., watched=1. + slower, slower=slower, ticks=ticks),
                                                       index=pd.RangeIndex(n, name='pair'))


def named(*how): return {t['name'].split(',')[0]: t['met'] for t in lab_targets(*how)}


def test_pairs_live_the_same_generations(host):
    made, ticks = [], []
    def make():
        made.append(Ecology(host, load_config('debug')))
        return made[-1]
    table = watch(make, 2, block=2, tick=lambda: ticks.append(1))
    alone, seen = ([generation.row for generation in ecology.history] for ecology in made)
    assert alone == seen and list(table.index) == [0, 1] and len(ticks) == 2
    assert (table['slower'] == table['watched'] / table['alone'] - 1).all() and (table['ticks'] > 0).all()
    with pytest.raises(ValueError, match='expected 1 or more'): watch(make, 0)


def test_a_long_run_is_lived_and_can_be_gone_on_with(run):
    found = faults(run)
    assert {'accuracy', 'attempts', 'delta', 'spectra', 'similarity', 'movement', 'live'} <= set(found.index)
    assert not found.map(len).any()


def test_a_chart_that_says_nothing_is_found(run, monkeypatch):
    silent = lab_overhead.live_spec([]) | {'description': ''}
    monkeypatch.setattr(lab_overhead, 'live_spec', lambda rows: silent)
    found = faults(run)
    assert set(found['live']) == {'no description'} and found.map(len).astype(bool).sum() == 1
    page = dict(generations=1000, bytes=10, first=[])
    assert named(pairs(0.), page, SEEN, found)['charts that lack title'] is False
    assert list(lab_tables(pairs(0.), page, SEEN, '', found)['What charts lack']['chart']) == ['live']


def test_targets_are_met_missed_or_not_measured():
    good, page = pd.Series({'x': []}), dict(generations=1000, bytes=2_900_000, first=[9., 8., 40.],
                                          commands=dict(zip(lab_overhead.COMMANDS, ([.4, .4, 3.], [9., 8., 40.]))))
    met = named(pairs(.04), page, SEEN, good)
    assert list(met.values()) == [True] * 9, 'a slow visit, or a late chart, is not the median click'
    asked = [dict(sorted=3., drawn=3., outside=1)]
    slow = page | {'bytes': 3_100_000, 'first': [11., 12., 1.],
                   'commands': dict(zip(lab_overhead.COMMANDS, ([.6], [11.])))}
    missed = named(pairs(.06, ticks=4.), slow, asked, pd.Series({'x': ['no title']}))
    assert list(missed.values()) == [False] * 9
    short = named(pairs(.06, n=7), page | {'generations': 999, 'first': [], 'commands': {}}, [], good)
    assert list(short.values()) == [True, None, None, None, None, True, None, None, None]


def test_where_there_is_no_browser_the_reason_is_given(tmp_path, monkeypatch):
    pytest.importorskip('playwright')
    monkeypatch.setattr(shutil, 'which', lambda name: None)
    rows, why = visits(tmp_path / 'page.html')
    assert rows == [] and why.startswith('no chromium')
    assert first_generation(tmp_path / 'lab') == (None, why)
    tables = lab_tables(pairs(0.), dict(generations=3, bytes=9, first=[]), rows, why, pd.Series({'x': []}))
    assert why in [str(x) for table in tables.values() for x in table.to_numpy().ravel()]


@pytest.mark.parametrize('script, outside', [('', 0), ("fetch('http://evolora.invalid/x').catch(() => 0)", 1)])
def test_what_a_page_asks_of_others_is_counted(tmp_path, script, outside):
    path, ticks = tmp_path / 'a page.html', []
    path.write_text(PAGE.replace('SCRIPT', script))
    rows, why = visits(path, 2, tick=lambda: ticks.append(1))
    if why: pytest.skip(why)
    assert [row['outside'] for row in rows] == [outside] * 2 == [outside] * len(ticks)
    assert all(0 < row['sorted'] <= row['drawn'] for row in rows)


def test_the_command_reports_what_was_and_was_not_measured(run, capsys, monkeypatch):
    monkeypatch.setattr(lab_overhead, 'live_long', lambda *how, tick: run)
    monkeypatch.setattr('evolora.ecology.config.load_config', lambda name, real=load_config: real('debug'))
    monkeypatch.setattr(lab_overhead, 'visits', lambda path, times, tick: ([], 'no chromium; none'))
    monkeypatch.setattr(lab_overhead, 'first_generation', lambda folder: (7.5, ''))
    monkeypatch.setattr(lab_overhead, 'COMMANDS', {name: ['--help'] for name in lab_overhead.COMMANDS})
    with pytest.raises(SystemExit) as ended: cli.main(['bench', 'lab', '--quick', '--pairs', '1', '--json'])
    out, err = capsys.readouterr()
    found = json.loads(out)
    assert ended.value.code == 0 and found['name'] == 'lab' and 'watching' in err
    kinds = [row['table'] for row in found['rows']]
    assert [kinds.count(kind) for kind in ('pairs', 'page', 'visits')] == [1, 1, 0] and kinds.count('charts') > 10
    page = found['rows'][1]
    assert page['generations'] == 20 and page['bytes'] > 100_000 and page['not_opened'] == 'no chromium; none'
    assert [t['met'] is None for t in found['targets']] == [False, True, True, True, True, False, False, False, False]


def test_rows_are_json():
    rows = lab_rows(pairs(.01), dict(generations=3, bytes=9, first=[]), SEEN, '', pd.Series({'x': ['no title']}))
    assert json.loads(json.dumps(rows))[-1] == {'table': 'charts', 'chart': 'x', 'lacks': ['no title']}
    assert rows[8]['not_opened'] is None and rows[9]['table'] == 'visits'
