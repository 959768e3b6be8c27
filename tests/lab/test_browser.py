"""What a user sees: JupyterLab as `evolora lab` opens it, in a real browser.

The first notebook is a stand-in with a chart and a button of our own; what fails there is the way to the page, and not
the panel. The second is the lab notebook itself. Pictures of it land in the test's folder, or in the one
that EVOLORA_SCREENSHOTS names; `lab.png` among them is the README's.
"""
import os
import re
import time
from pathlib import Path

import nbformat
import pytest
from browser import browsing, missing, serving
from synthetic import write_run

from evolora.analysis.run_charts import CHARTS
from evolora.lab.open_notebooks import lab_notebooks

if reason := missing(): pytest.skip(reason, allow_module_level=True)
from playwright.sync_api import expect

FIRST = lab_notebooks()[0]
CHART = """
import altair as alt
import ipywidgets
import pandas as pd

from evolora.analysis.run_charts import bundle, setup

setup()
chart = alt.Chart(pd.DataFrame({'generation': [0, 1, 2], 'alive': [4, 6, 5]}), title='Alive').mark_line().encode(
    x='generation:Q', y='alive:Q')
chart
"""
LIVE = """
from evolora.lab.lab import Lab
lab = Lab(preset='debug', seed=1)
lab.run(5)
lab.wait()
lab
"""

PANEL = """
from evolora.lab.lab import _cell

button, status = ipywidgets.Button(description='Step'), ipywidgets.HTML('generation 0')
picture, cell = ipywidgets.Output(), ipywidgets.Label(f'made by {_cell()[0]}')
def step(_):
    status.value = f'generation {int(status.value.split()[-1]) + 1}'
    data, metadata = bundle(chart.to_dict())
    picture.outputs = ({'output_type': 'display_data', 'data': data, 'metadata': metadata},)
button.on_click(step)
ipywidgets.VBox([button, status, picture, cell])
"""

ALL = """
from IPython.display import display

from evolora.analysis.tables import load
from evolora.analysis.run_charts import CHARTS, setup

setup()
data = load('run')
for chart in CHARTS.values(): display(chart(data))
"""


@pytest.fixture
def server(tmp_path):
    "Each test its own: JupyterLab opens again what an earlier page had open, and whose panel would be pressed?"
    home = tmp_path / 'home'
    home.mkdir()
    with serving(home / 'lab', home) as server: yield server


@pytest.fixture
def notebook(server):
    with browsing(server) as notebook: yield notebook


@pytest.fixture
def pictures(tmp_path): return Path(os.environ.get('EVOLORA_SCREENSHOTS', tmp_path))


def write(folder, name, *cells):
    v4 = nbformat.v4
    nb = v4.new_notebook(cells=[v4.new_code_cell(cell.strip()) for cell in cells], metadata={'kernelspec': {
        'name': 'python3', 'language': 'python', 'display_name': 'python3'}})
    nbformat.write(nb, folder / name)
    return name


def panel(notebook): return notebook.page.locator('.jp-OutputArea-output .jupyter-widgets').first


def wait_for(notebook, pattern):
    "The text of the widgets, once it matches"
    widgets = panel(notebook)
    # The text as it is seen: what lies in different lines is not run together.
    expect(widgets).to_contain_text(re.compile(pattern, re.IGNORECASE), use_inner_text=True)
    return widgets.inner_text()


def page(notebook, name): panel(notebook).locator('.lm-TabBar-tab').filter(has_text=name).click()
def drawn(notebook, *titles):
    "Until each is seen, and nothing is wider than the panel"
    for title in titles: expect(panel(notebook)).to_contain_text(re.compile(title))
    for svg in panel(notebook).locator('.jp-RenderedVegaLite svg').all():
        if svg.is_visible(): assert svg.bounding_box()['width'] < panel(notebook).bounding_box()['width']


def lived(notebook): return int(re.search(r'(\d+) generations? lived', wait_for(notebook, r'\d generations? lived'))[1])


def test_a_chart_and_a_button_work_without_the_internet(server, notebook, tmp_path):
    name = write(server.folder, 'a stand-in.ipynb', CHART, PANEL)
    notebook.open(name)
    notebook.run_all()
    made_by = nbformat.read(server.folder / name, as_version=4).cells[1].id
    wait_for(notebook, f'made by {made_by}')        # or a lab could not know whose place it takes
    expect(notebook.charts).to_have_count(1)
    expect(notebook.charts).to_contain_text('Alive')
    for i in (1, 2, 3):
        notebook.button('Step').click()
        wait_for(notebook, rf'generation {i}\b')
    expect(notebook.charts).to_have_count(2)
    assert notebook.shot(tmp_path / 'standin.png').stat().st_size > 10_000
    assert notebook.outside == [], 'JupyterLab was not content with what is on this machine'
    notebook.page.evaluate("fetch('http://evolora.invalid/x').catch(() => null)")
    assert notebook.outside == ['http://evolora.invalid/x'], 'a request to the outside is not noticed'


def ticks(chart): return chart.locator('.role-axis-label').first.text_content()


def test_charts_keep_their_zoom_mark_a_generation_everywhere_and_fit_their_window(server, notebook, tmp_path):
    notebook.page.set_viewport_size({'width': 1400, 'height': 1000})
    notebook.open(write(server.folder, 'zoom.ipynb', LIVE))
    notebook.run_all()
    wait_for(notebook, '5 generations lived')
    page, first = notebook.page.locator('.evolora-charts'), notebook.page.locator('.evolora-charts .chart').first
    expect(page).to_have_attribute('data-generation', '4')
    box = first.bounding_box()
    notebook.page.mouse.move(box['x'] + .6 * box['width'], box['y'] + .4 * box['height'])
    expect(page.locator('.said')).to_contain_text(re.compile(r'generation \d . accuracy'))
    assert page.locator('.chart svg .mark-rule.role-mark line[stroke="#888"]').count() >= 4, 'a rule in every chart'
    whole = ticks(first)
    notebook.page.mouse.wheel(0, -500)
    expect(first.locator('.role-axis-label').first).not_to_have_text(whole)
    zoomed = ticks(first)
    notebook.button('Step').click()
    wait_for(notebook, '6 generations lived')
    expect(page).to_have_attribute('data-generation', '5')
    assert ticks(first) == zoomed, 'it jumped'
    page.get_by_role('button', name='whole').click()
    expect(first.locator('.role-axis-label').first).to_contain_text('5')
    notebook.page.keyboard.press('Control+b')       # the list of files takes all of a phone
    for width in (390, 768, 1440, 2560):
        notebook.page.set_viewport_size({'width': width, 'height': 1000})
        time.sleep(1.5)
        inside, charts = page.bounding_box(), page.locator('.chart').all()
        for chart in charts:
            box = chart.locator('svg.marks').bounding_box()
            assert box['x'] >= inside['x'] - 1 and box['x'] + box['width'] <= inside['x'] + inside['width'] + 1, width
            assert box['width'] > .8 * chart.bounding_box()['width'], f'at {width} a chart leaves room unused'
        notebook.shot(tmp_path / f'{width}.png')
    assert notebook.outside == []


def test_charts_are_there_after_a_change_of_theme_and_behind_another_page(server, notebook):
    notebook.page.set_viewport_size({'width': 1400, 'height': 1000})
    notebook.open(write(server.folder, 'dark.ipynb', LIVE))
    notebook.run_all()
    wait_for(notebook, '5 generations lived')
    charts, tab = notebook.page.locator('.evolora-charts'), notebook.page.locator('.evolora-lab .lm-TabBar-tab')
    label = notebook.live.first.locator('.role-axis-label text').first
    expect(charts).to_have_attribute('data-generation', '4')
    first, shades = notebook.live.first, []
    for theme in ('Dark', 'Light'):
        notebook.page.get_by_role('menuitem', name='Settings').click()
        notebook.page.locator('.lm-Menu-item', has_text='Theme').first.hover()
        notebook.page.locator('.lm-Menu-item', has_text=f'JupyterLab {theme}').first.click()
        time.sleep(3)
        assert first.bounding_box()['width'] > 200 and first.locator('.mark-line path').first.get_attribute('d')
        shades.append(label.get_attribute('fill'))
    assert 'rgba(255' in shades[0] and 'rgba(0' in shades[1], shades
    tab.filter(has_text='Gates').click()
    notebook.button('Step').click()
    wait_for(notebook, '6 generations lived')
    tab.filter(has_text='Live').click()
    expect(charts).to_have_attribute('data-generation', '5')
    assert first.bounding_box()['width'] > 200


CARDS = """
from evolora.ecology.config import changed_config, load_config
from evolora.ecology.ecology import Ecology
from evolora.host.model import load_host
from evolora.lab.lab import Lab

config = changed_config(load_config('debug'), {'founders': 4, 'founder_step': .6, 'capacity': 5,
                                               'market': {'protect': 1}, 'society': {'archive': {'most': 4}}})
ecology = Ecology(load_host('embedded', threads=1), config)
ecology.run(4, log=None)
ecology.plasticity.own[:] = 8
for id in ('o2', 'o3'): ecology.demography.bury(id, 0, 'an example')
lab = Lab(ecology)
lab.run(3)
_ = lab.wait()
"""


def test_a_name_opens_a_card_by_mouse_and_by_keyboard(server, notebook, pictures):
    notebook.page.set_viewport_size({'width': 1400, 'height': 1300})
    notebook.open(write(server.folder, 'cards.ipynb', CARDS, 'lab'))
    notebook.run_all()
    wait_for(notebook, '7 generations lived')
    names = panel(notebook).locator('button.pick:visible')
    for name, say in (('Society', 'Who sleeps'), ('Organelle', 'in the archive')):
        if name == 'Society': page(notebook, name)
        wait_for(notebook, say)
        notebook.page.screenshot(path=pictures / f'{name}.png')
        if name == 'Society': names.first.click()
    page(notebook, 'Population')
    wait_for(notebook, 'Who is believed')
    notebook.page.screenshot(path=pictures / 'Population.png')
    names.nth(1).focus()
    chosen = names.nth(1).inner_text()
    notebook.page.keyboard.press('Enter')
    wait_for(notebook, 'Lineage: whom it comes from')
    notebook.button('Exam').click()
    wait_for(notebook, f'Exam of {chosen} and the bare host')
    notebook.page.screenshot(path=pictures / 'Organelle.png')
    assert not notebook.outside


def test_jupyterlab_draws_every_chart_of_a_run(server, notebook):
    write_run(server.folder / 'run', generations=12, size=6, tries=2)
    notebook.open(write(server.folder, 'all charts.ipynb', ALL))
    notebook.run_all()
    expect(notebook.charts).to_have_count(len(CHARTS))
    drawn = notebook.charts.evaluate_all("all => all.map(one => one.querySelectorAll('path[d], text').length)")
    assert min(drawn) > 10, drawn
    assert notebook.outside == []


def test_a_picture_stays_when_the_kernel_is_gone_and_the_notebook_is_opened_again(server, notebook):
    name = write(server.folder, 'stays.ipynb', """
from evolora.lab.lab import Lab
lab = Lab(preset='debug')
lab.run(2)
lab.wait()
lab
""")
    notebook.open(name)
    notebook.run_all()
    wait_for(notebook, r'2 generations lived')
    notebook.button('Step').click()
    wait_for(notebook, r'3 generations lived')
    stays = notebook.page.locator('.jp-OutputArea-output').filter(has_text='The picture stays')
    expect(stays).to_contain_text(last := re.compile(r'generation\s+2 '))
    notebook.page.keyboard.press('Control+s')
    deadline = time.monotonic() + 60
    saved = lambda: [o for c in nbformat.read(server.folder / name, as_version=4).cells for o in c.outputs]
    while time.monotonic() < deadline and len(saved()) < 3: time.sleep(.5)
    assert [sorted(o.data) for o in saved()][1:] == [['text/markdown'], ['image/png', 'text/plain']]
    server.end_kernels()
    notebook.open(name)
    pictures = notebook.page.locator('.jp-OutputArea-output img')
    expect(pictures).to_have_count(1)
    assert pictures.first.bounding_box()['width'] > 300
    expect(notebook.page.locator('.jp-RenderedMarkdown').filter(has_text='The picture stays')).to_contain_text(last)


def test_the_copy_is_what_the_command_opens_and_it_lives(server, notebook):
    assert (server.folder / FIRST.name).read_bytes() == FIRST.read_bytes()
    notebook.open()
    assert notebook.page.url.endswith(f'/lab/tree/{FIRST.name}')
    notebook.press_run()
    wait_for(notebook, r'1 generation lived')
    notebook.button('Step').click()
    wait_for(notebook, r'2 generations lived')
    expect(notebook.live.first).to_be_visible()
    assert notebook.outside == []


@pytest.mark.slow
def test_the_lab_is_stepped_run_paused_turned_and_looked_into(notebook, pictures, record_property):
    started = time.monotonic()
    def passed(until):
        record_property(f'seconds until {until}', seconds := round(time.monotonic() - started, 1))
        print(f'{seconds} s until {until}')
    notebook.open()
    passed('the notebook is open')
    kept = notebook.page.locator('.jp-OutputArea-output img')       # of a panel that is long gone
    expect(kept).to_be_visible()
    assert kept.evaluate('picture => picture.naturalWidth') > 500 and not panel(notebook).count()
    assert 'rror' not in notebook.code.first.inner_text()
    notebook.shot(pictures / 'lab_saved.png')
    notebook.press_run()
    wait_for(notebook, r'1 generation lived')
    passed('the first generation is seen')
    assert kept.count() <= 1        # not that of the panel that is gone beside that of the new one
    notebook.run_all()      # the panel's cell again, too: it goes on with the same ecology, and is not doubled
    wait_for(notebook, r'2 generations lived')
    expect(notebook.page.locator('.jp-OutputArea-output .jupyter-widgets .lm-TabBar:visible')).to_have_count(1)
    for i in (3, 4, 5):
        notebook.button('Step').click()
        wait_for(notebook, rf'{i} generations lived')
    expect(notebook.live.first).to_be_visible()
    notebook.shot(pictures / 'lab_step.png', of=panel(notebook))

    notebook.button('Run').click()
    wait_for(notebook, r'(3[3-9]|[4-9]\d) generations lived')      # two censuses, so that there is an account
    notebook.button('Pause').click()
    expect(notebook.button('Run')).to_be_enabled()
    paused = lived(notebook)
    wait_for(notebook, rf'generation +{paused - 1} \| ROI')       # the ticker
    label = f'up to generation {paused - 1}, where accuracy is '
    expect(panel(notebook).locator(f'[aria-label*="{label}"]').first).to_be_visible()
    notebook.page.set_viewport_size({'width': 1280, 'height': 2200})       # or a picture ends where the window does
    notebook.shot(pictures / 'lab.png', of=panel(notebook))
    passed('the picture is made')

    page(notebook, 'Knobs')
    contest = notebook.page.get_by_label('contest', exact=True)
    contest.fill('-1')
    contest.press('Enter')
    wait_for(notebook, 'contest expected a number from 0 to 1')
    contest.fill('0.25')
    contest.press('Enter')
    wait_for(notebook, r'from the next generation on: contest = 0\.25')
    notebook.button('Change the world').click()
    wait_for(notebook, 'expected a world that changes, got a static one')
    notebook.shot(pictures / 'lab_knobs.png', of=panel(notebook))
    assert lived(notebook) == paused, 'it went on although it was paused'
    notebook.button('Step').click()
    wait_for(notebook, rf'{paused + 1} generations lived')
    expect(panel(notebook)).not_to_contain_text('from the next generation on')     # it has been applied
    assert contest.input_value() == '0.25'

    page(notebook, 'Population')
    wait_for(notebook, 'Who is believed')
    wait_for(notebook, 'latest births and deaths(.|\\n)*founder')
    page(notebook, 'Gates')
    wait_for(notebook, 'Where merges ended so far(.|\\n)*child took over')
    page(notebook, 'Organelle')
    organelles = panel(notebook).locator('select:visible', has=notebook.page.locator('option[value=o1]'))
    chosen, other = (organelles.locator('option').nth(i).get_attribute('value') for i in (0, -1))
    for one in (other, chosen):         # the first is believed most: it has learned, and adds something to the host
        organelles.select_option(one)
        wait_for(notebook, rf'Believed now, by family(.|\n)*Lineage(.|\n)*{one}\b')
    drawn(notebook, rf'How much {chosen} adds to the host', 'Singular values of',
          'Distance moved since birth|no movement since birth')
    notebook.shot(pictures / 'lab_organelle.png', of=panel(notebook))
    page(notebook, 'Similarity')
    drawn(notebook, 'Similarity of organelles', 'Distance moved since birth')
    notebook.shot(pictures / 'lab_kinship.png', of=panel(notebook))
    assert notebook.outside == []
