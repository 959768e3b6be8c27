"""Every page of the lab can be read, on any window and in both themes: enough contrast, and nothing is cut off.

Contrast is judged by axe-core (WCAG 2 AA). What is looked at are the elements of our panel, not those of JupyterLab.
"""
from importlib.resources import files

import pytest
from browser import browsing, missing, serving
from .test_browser import CARDS, page, wait_for, write

from evolora.lab.widgets import TABS

pytestmark = pytest.mark.skipif(missing() is not None, reason=str(missing()))
WIDTHS = 390, 768, 1024, 1440, 2560
LOOK = """async () => {
  const panel = document.querySelector('.evolora-lab'), edge = panel.getBoundingClientRect().right;
  const name = e => `${e.tagName.toLowerCase()}.${[...e.classList].join('.')} ${e.textContent.trim().slice(0, 40)}`;
  const seen = e => e.checkVisibility() && e.getBoundingClientRect().width > 0;
  const scrolls = e => e && e !== panel.parentElement && (
    ['auto', 'scroll'].includes(getComputedStyle(e).overflowX) || scrolls(e.parentElement));
  const cut = [...panel.querySelectorAll('*')].filter(e => !e.closest('svg, details:not([open])') && seen(e) && (
    ['hidden', 'clip'].includes(getComputedStyle(e).overflowX) && e.scrollWidth > e.clientWidth + 2
    || e.getBoundingClientRect().right > edge + 2 && !scrolls(e.parentElement)));
  const said = await axe.run(panel, {runOnly: {type: 'rule', values: ['color-contrast']}, resultTypes: ['violations']});
  return {cut: cut.map(name), pale: said.violations.flatMap(v => v.nodes.map(n => `${n.html.slice(0, 90)} ${
    n.any.map(a => `${a.data.fgColor} on ${a.data.bgColor}`)}`))};
}"""
PLANT = """() => {       // five texts that are too pale, and five that are cut
  const panel = document.querySelector('.evolora-lab');
  for (let i = 0; i < 5; i++) {
    const pale = document.createElement('p'), cut = document.createElement('div');
    pale.textContent = 'too pale'; pale.style.cssText = `color: rgb(${[170 + i, 170, 170]}); background: #fff`;
    cut.textContent = 'cut off '.repeat(20);
    cut.style.cssText = `width: ${60 + i}px; overflow: hidden; white-space: nowrap`;
    for (const e of [pale, cut]) { e.className = 'planted'; panel.append(e); }
  }
}"""


def theme(notebook, name):
    notebook.page.get_by_role('menuitem', name='Settings').click()
    notebook.page.locator('.lm-Menu-item', has_text='Theme').first.hover()
    notebook.page.locator('.lm-Menu-item', has_text=f'JupyterLab {name}').first.click()
    notebook.page.wait_for_function(f"document.body.dataset.jpThemeLight === '{str(name == 'Light').lower()}'")
    notebook.page.wait_for_timeout(800)        # until charts have taken its colours


@pytest.fixture(scope='module')
def lab(tmp_path_factory):
    home = tmp_path_factory.mktemp('home')
    with serving(home / 'lab', home) as server, browsing(server) as notebook:
        notebook.page.set_viewport_size({'width': 1440, 'height': 1100})
        notebook.open(write(server.folder, 'cards.ipynb', CARDS, 'lab'))
        notebook.run_all()
        wait_for(notebook, '7 generations lived')
        notebook.page.locator('.jp-SideBar.jp-mod-left .lm-TabBar-tab').first.click()       # the list of files
        # JupyterLab's body has no height, and axe takes what is in it for hidden.
        notebook.page.add_style_tag(content='body {height: 100vh !important}')
        notebook.page.add_script_tag(content=(files('axe_playwright_python') / 'axe.min.js').read_text())
        yield notebook


@pytest.mark.parametrize('shade', ['Dark', 'Light'])
def test_every_page_can_be_read_at_every_width(lab, shade):
    lab.page.set_viewport_size({'width': 1440, 'height': 1100})
    theme(lab, shade)
    wrong = []
    for width in WIDTHS:
        lab.page.set_viewport_size({'width': width, 'height': 1100})
        for name in TABS:
            page(lab, name)
            lab.page.wait_for_timeout(150)
            found = lab.page.evaluate(LOOK)
            wrong += [(width, name, kind, what) for kind, list in found.items() for what in list]
    assert not wrong, '\n'.join(map(str, wrong[:40]))


def test_what_is_planted_is_found(lab):
    lab.page.set_viewport_size({'width': 1440, 'height': 1100})
    lab.page.evaluate(PLANT)
    found = lab.page.evaluate(LOOK)
    assert sum('planted' in what for what in found['cut']) == 5
    assert sum('planted' in what for what in found['pale']) == 5
    lab.page.evaluate("document.querySelectorAll('.planted').forEach(e => e.remove())")
