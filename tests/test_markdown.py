"""No text of unknown origin becomes a link or HTML in a page of Markdown, whatever engine renders it."""
from types import SimpleNamespace

import pandas as pd
import pytest
from rendered import ENGINES, NAMES, TEXTS, shown, strange
from synthetic import write_run

from evolora.analysis import run_report
from evolora.analysis.run_comparison import read_runs
from evolora.analysis.tables import load, markdown_table
from evolora.experiments.study_report import _markdown
from evolora.islands import islands_view
from evolora.training import trained
from evolora.utils.text import escape, fenced

PLACES = ['{}', '# {}', '**{}** and {}', '- **{}** {}', '| a | {} |\n|---|---|\n| {} | b |', '![{}](charts/x.png)',
          '*{}*',
          'text {}', '{}\n\n{}', '[{}', '{}](x.png)']


@pytest.mark.parametrize('text', TEXTS)
def test_a_text_is_text_wherever_it_stands(text):
    for place in PLACES[:9]: assert strange(place.format(*[escape(text)] * place.count('{}'))) == [], place
    assert '](javascript:' not in escape(text)


def test_the_check_sees_what_it_should():
    for text in ('[x](javascript:y)', 'https://evil.example', '<b onclick=x>', '<script>', '<!-- x -->',
                 '![x](http://y.z)'):
        assert strange(text), text
    assert all(strange('[x](y)')[i][0] == engine for i, engine in enumerate(ENGINES))


@pytest.mark.parametrize('text', TEXTS)
def test_a_reader_sees_the_text_as_it_is(text):
    assert shown(f'so: {escape(text)}') == f"so: {' '.join(text.split())}"


@pytest.mark.parametrize('text', TEXTS)
def test_a_fence_and_a_table_hold_it(text):
    frame = pd.DataFrame({text: [text, 'a'], 'n': [1, 2]}, index=[text, 'b'])
    assert strange(fenced(text, 'python')) == strange(markdown_table(frame)) == strange(_markdown(frame)) == []


def test_a_report_of_a_folder_with_such_a_name_has_no_link(tmp_path, monkeypatch):
    monkeypatch.setattr(run_report, 'CHARTS', {})
    monkeypatch.setattr(run_report, 'charts_of', lambda drawn: {})
    name = '[x](javascript:alert(1)) \\](javascript:y) <img src=x onerror=alert(1)>'
    folder = write_run(tmp_path / name, generations=6, size=4, tries=2).folder
    rows = (folder / 'lineage.jsonl').read_text().replace('"gaussian"', '"[x](javascript:y)"')
    (folder / 'lineage.jsonl').write_text(rows)
    parts, _ = run_report._one(load(folder), 50)
    several, _ = run_report._several(*read_runs([folder, write_run(tmp_path / 'b', generations=6, size=4).folder]))
    for page in map('\n\n'.join, (parts, several)):
        assert strange(page) == [] and '](javascript:' not in page and name[:24] in shown(page)


@pytest.mark.parametrize('name', NAMES)
def test_a_report_of_islands_has_no_link(name, tmp_path, monkeypatch):
    plan = SimpleNamespace(host={'id': name}, seed=0, islands=SimpleNamespace(
        waits=True, islands=2, topology='ring', migrants=1, every=2))
    pages = []
    for what, value in dict(read_plan=lambda folder: plan, _charts=lambda folder: {}, check_place=lambda place: None,
                            islands_table=lambda folder: pd.DataFrame({'state': ['lives'], 'island': [name]}),
                            write_report=lambda place, parts, charts, log: pages.append('\n\n'.join(parts))).items():
        monkeypatch.setattr(islands_view, what, value)
    islands_view.islands_report(tmp_path / name)
    assert strange(pages[0]) == [] and '](javascript:' not in pages[0]


class Sized(SimpleNamespace):
    def __len__(self): return 1


class Trained(dict):
    courses, host = (0,), None


def test_a_card_of_a_job_has_no_link(monkeypatch):
    name = NAMES[0]
    course = SimpleNamespace(
        progress=SimpleNamespace(step=1, steps=2, loss=.5, best=.5, best_step=1), held=[], metric='loss',
        job=SimpleNamespace(objective='sft', asks=False, verifier=None, model_dump=lambda **_: {name: name}),
        data=Sized(examples=[SimpleNamespace(task=None, prompt='q')], tokens=1))
    monkeypatch.setattr(trained, 'which_weights', lambda host: 'weights')
    monkeypatch.setattr(trained, 'how_to_load', lambda *_: 'use')
    page = trained._card(Trained({name: course}), name, None)
    assert strange(page) == [] and name in shown(page)
