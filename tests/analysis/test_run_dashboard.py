"""A page is inert whatever a run holds, sends no request, and fits a phone.

The browser tests need Chromium and playwright; they are skipped without. No clock is asserted: when this was written, a
page of 40 generations could be used half a second after it was opened.
"""
import json
import re
import shutil
from html.parser import HTMLParser

import altair as alt
import pandas as pd
import pytest
from hostile import ANSWERS, SCRIPT, write_hostile, write_strange_cells
from synthetic import lived_again, records, write_run

from evolora.analysis.answers import answer_sample, answer_table
from evolora.analysis.tables import gather, load
from evolora.analysis.run_charts import CHARTS
from evolora.analysis.run_dashboard import dashboard, tame
from evolora.lab.lab import Lab
from evolora.analysis.offline_page import figure, inert, page, table_html
from evolora.analysis.run_report import report
from evolora.cli.watch import follow
from evolora.lab.widgets import TABS

OURS = set('html head meta title style body a header h1 h2 h3 bdi p dl div dt dd small nav ul li main section table '
           'caption thead tbody tr th td button figure figcaption details summary b noscript footer script label input '
           'output'.split())


class Page(HTMLParser):
    "Elements with their attributes, and the text outside of scripts and styles"
    def __init__(self, text):
        super().__init__()
        self.elements, self.text, self.inside = [], '', ''
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self.inside = tag

    def handle_data(self, data):
        if self.inside not in ('script', 'style'): self.text += data


@pytest.fixture(scope='module')
def evil(tmp_path_factory): return write_hostile(tmp_path_factory.mktemp('runs') / '<img src=x onerror=alert(1)>')


@pytest.fixture(scope='module')
def path(evil, tmp_path_factory): return dashboard(evil, tmp_path_factory.mktemp('pages') / 'page.html')


def test_text_is_inert():
    assert all(c.isprintable() for answer in ANSWERS for c in inert(answer))
    assert not any(c in inert(answer) for answer in ANSWERS for c in '<>"')
    assert max(len(inert(answer)) for answer in ANSWERS) < 1200


def test_no_element_and_no_attribute_comes_from_the_run(path):
    page = Page(path.read_text())
    assert {tag for tag, _ in page.elements} <= OURS
    assert sum(tag == 'script' for tag, _ in page.elements) == 3
    assert not any(name.startswith('on') or name in ('src', 'srcset') for _, attributes in page.elements
                   for name in attributes)
    assert all(attributes['href'].startswith('#') for tag, attributes in page.elements if tag == 'a')
    assert SCRIPT in page.text and '\x1b' not in page.text and '\u202e' not in page.text


def test_nothing_is_fetched_and_the_policy_forbids_it(path):
    text = path.read_text()
    policy = next(a['content'] for _, a in Page(text).elements if 'http-equiv' in a)
    assert policy.startswith("default-src 'none'") and 'unsafe-eval' not in policy and policy.count('sha256-') == 2
    outside = re.sub(r'<script>.*?</script>', '', text, flags=re.S)         # the library names schemas and namespaces
    named = set(re.findall(r'https?://[^"\\ ]+', outside))
    assert len(named) == 1 and named.pop().startswith('https://vega.github.io/schema/vega-lite/v')


def test_the_data_are_bounded_and_all_charts_are_there(path, evil):
    block = json.loads(re.search(r'id="data">(.*?)</script>', path.read_text(), re.S)[1])
    assert sorted(block) == sorted(CHARTS)
    assert path.stat().st_size < 1_600_000 and len(json.dumps(block)) < 300_000
    assert tame(load(evil)).lineage['organelle'].str.len().max() <= 60
    whole = load(evil)
    assert len(answer_sample(answer_table(whole.episodes, whole.tasks), limit=5)) == 5


@pytest.fixture(scope='module')
def strange(tmp_path_factory): return write_strange_cells(tmp_path_factory.mktemp('runs') / 'run')


def in_a_dashboard(folder, place, capsys): return dashboard(folder, place / 'page.html').read_text()


def in_a_report(folder, place, capsys):
    text, made = report(folder, place).read_text(), list((place / 'charts').iterdir())
    assert len(made) == len(CHARTS) and all(p.stat().st_size > 1000 for p in made)
    return text


def in_a_dashboard_of_several(folder, place, capsys):
    other = shutil.copytree(folder, place / '<img src=x onerror=alert(2)>')
    return dashboard([folder, other], place / 'page.html').read_text()


def in_a_report_of_several(folder, place, capsys):
    other = shutil.copytree(folder, place / '<img src=x onerror=alert(2)>')
    return report([folder, other], place / 'both').read_text()


def in_a_terminal(folder, place, capsys):
    follow(folder, once=True)
    return capsys.readouterr().out.replace('\n', '')


def in_the_lab(folder, place, capsys):
    lab, pages = Lab(folder), []
    try:
        for i in range(len(TABS)):
            lab.tabs.selected_index = i
            assert lab.error.value == ''
            pages += [x.value for x in vars(lab).values() if hasattr(x, 'value') and isinstance(x.value, str)]
        # Names in the data of a chart are drawn, as text: they are no markup.
        return ''.join([*pages, lab.snapshot_html(), lab.charts.description])
    finally: lab.close()


@pytest.mark.parametrize('shown', [in_a_dashboard, in_a_report, in_a_dashboard_of_several,
                                   in_a_report_of_several, in_a_terminal, in_the_lab])
def test_cells_and_gates_of_a_stranger_are_inert_wherever_a_run_is_shown(strange, tmp_path, capsys, shown, pictures):
    pictures('cells', 'gates', 'turns')
    text = shown(strange, tmp_path, capsys)
    bare = [tag for tag in re.findall(r'<[a-z][^<>]*>', text) if 'alert' in tag or 'onerror' in tag]
    assert len(text) > 500 and not bare and '<script>alert' not in text
    assert '\x1b' not in text and '\u202e' not in text


@pytest.mark.slow
def test_a_long_run_is_not_a_long_page(tmp_path):
    path = dashboard(write_run(tmp_path / 'long', generations=1000, size=8, tries=1).folder)
    assert path.stat().st_size < 3_000_000


def test_nor_is_one_of_ten_thousand_generations(tmp_path, monkeypatch):
    data = lived_again(gather(records(generations=200, size=8, tries=1), name='endless'), 50)
    monkeypatch.setattr('evolora.analysis.run_dashboard.load', lambda folder: data)
    assert dashboard('endless', tmp_path / 'page.html').stat().st_size < 3_000_000


def test_several_runs_share_a_page(tmp_path):
    folders, lines = [write_run(tmp_path / f'run{seed}', generations=5, seed=seed).folder for seed in (0, 1)], []
    with pytest.raises(ValueError, match='name one with out'): dashboard(folders)
    assert 'Mean over seeds' in dashboard(folders, tmp_path / 'page.html', log=lines.append).read_text()
    assert [line.split()[0] for line in lines] == ['reading'] * 2 + ['drawing'] * (len(lines) - 3) + ['writing']
    drawn = {line.split()[1] for line in lines if line.startswith('drawing')}
    assert {'accuracy', 'roi', 'population', 'beliefs', 'gates'} <= drawn


def test_runs_of_two_configurations_are_not_averaged(tmp_path):
    folders = [write_run(tmp_path / f'{size}-{seed}', generations=5, size=size, seed=seed).folder
               for size in (8, 9) for seed in (0, 1)]
    text = dashboard(folders, tmp_path / 'page.html').read_text()
    block = json.loads(re.search(r'id="data">(.*?)</script>', text, re.S)[1])
    for figure in (block['accuracy'], block['roi']):
        marks = next(columns for columns in figure['data'].values() if 'mean' in columns)
        assert {name[:3] for name in marks['configuration']} == {'C1:', 'C2:'} and set(marks['size']) == {2}


def many_rows():
    "A page with a table of generations in no order, and a chart of many numbers"
    frame = pd.DataFrame({'stakes': [2., 3., 1.]}, index=pd.Index([1000, 2, 10_000], name='generation'))
    chart = alt.Chart(pd.DataFrame({'generation': range(1234)})).mark_point().encode(x='generation:Q')
    shown, drawn = figure('many', chart.properties(title='Many', description='Many points').to_dict())
    return page('many', '', {'All': table_html(frame, 'Stakes') + shown}, {'many': drawn})


def test_a_row_is_named_by_its_number():
    heads = re.findall(r'<th scope="row"([^>]*)><bdi>(.*?)</bdi>', many_rows())
    assert heads == [(' data-value="1000.0"', '1000'), (' data-value="2.0"', '2'), (' data-value="10000.0"', '10000')]
    assert '<th scope="row"><bdi>&lt;b&gt;' in table_html(pd.DataFrame({'x': [1]}, index=['<b>']), 'x')


@pytest.fixture(scope='module')
def browser():
    api = pytest.importorskip('playwright.sync_api')
    if not (chromium := shutil.which('chromium')): pytest.skip('Chromium is not installed')
    with api.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=['--no-sandbox', '--disable-gpu'])
        yield browser
        browser.close()


def test_tables_are_sorted_by_number_and_state_where_they_end(browser, tmp_path):
    path, page = tmp_path / 'page.html', browser.new_page()
    path.write_text(many_rows())
    page.goto(path.as_uri())
    names = lambda: page.locator('tbody th').all_text_contents()
    page.locator('th button').first.click()
    first = names()
    page.locator('th button').first.click()
    assert [first, names()] == [['10000', '1000', '2'], ['2', '1000', '10000']]
    page.locator('details summary').click()
    page.locator('details caption').wait_for()
    assert page.locator('details caption').text_content() == 'The first 500 of 1,234 rows'
    assert page.locator('details tbody tr').count() == 500
    page.close()


def test_a_printed_page_has_all_charts_though_nobody_scrolled(browser, path):
    page = browser.new_page(viewport={'width': 1000, 'height': 500})
    page.goto(path.as_uri())
    for place in page.locator('[data-chart]').all():
        place.locator('svg').first.wait_for(state='attached', timeout=60_000)
    assert page.evaluate('scrollY') == 0
    page.emulate_media(media='print')
    charts = page.locator('[data-chart] svg:visible')
    assert charts.count() >= len(CHARTS) and not page.locator('nav:visible, label:visible').count()
    page.close()


def test_rows_with_what_is_typed_are_shown(browser, path):
    page = browser.new_page()
    page.goto(path.as_uri())
    rows, box = page.locator('label + .scroll tbody tr'), page.locator('[data-search]')
    every = rows.count()
    box.fill('wrong')
    few = page.locator('label + .scroll tbody tr:visible')
    assert 0 < few.count() < every and all('wrong' in text for text in few.all_inner_texts())
    assert page.locator('label output').inner_text() == f'{few.count()} of {every}'
    box.fill('')
    assert few.count() == every
    page.close()


@pytest.fixture(scope='module')
def several(evil, tmp_path_factory):
    place = tmp_path_factory.mktemp('several')
    return dashboard([evil, shutil.copytree(evil, place / '<svg onload=alert(1)>')], place / 'page.html')


@pytest.mark.parametrize('runs', ['path', 'several'])
@pytest.mark.parametrize(('width', 'scheme'), [(1280, 'light'), (390, 'dark')])
def test_a_browser_draws_it_all_alone(browser, request, runs, width, scheme):
    path = request.getfixturevalue(runs)
    context = browser.new_context(offline=True, viewport={'width': width, 'height': 800}, color_scheme=scheme)
    page, asked, wrong = context.new_page(), [], []
    page.on('request', lambda request: asked.append(request.url))
    page.on('console', lambda message: wrong.append(message.text) if message.type == 'error' else None)
    page.on('pageerror', lambda error: wrong.append(str(error)))
    page.on('dialog', lambda dialog: wrong.append('a dialog'))
    page.goto(path.as_uri())
    names = page.locator('[data-chart]').evaluate_all('all => all.map(one => one.dataset.chart)')
    assert sorted(names) == sorted(CHARTS)
    for name in names:
        place = page.locator(f'[data-chart="{name}"]')
        place.scroll_into_view_if_needed()
        place.locator('svg').first.wait_for(timeout=60_000)
        box = place.bounding_box()          # what is too wide for a phone is scrolled in its place
        assert 0 <= box['x'] and box['x'] + box['width'] <= width
    page.locator('th button').nth(1).click()
    page.locator('details summary').first.click()
    page.locator('details table').first.wait_for(timeout=60_000)
    assert page.locator('th[aria-sort]').count() == 1
    assert page.evaluate('document.documentElement.scrollWidth <= innerWidth')
    assert (asked, wrong) == ([path.as_uri()], [])
    assert not page.evaluate('eval === undefined') and page.locator('img').count() == 0
    context.close()
