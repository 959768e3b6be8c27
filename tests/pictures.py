"""The README's pictures of a run: what its report and its dashboard begin with, and its lives.

    python tests/pictures.py runs/stakes-seed0 nbs/images

The report and the dashboard are written into the run's folder first. The picture of the lab comes from test_browser.py.
"""
import shutil
import sys
from pathlib import Path

from nbconvert.filters import markdown2html
from PIL import Image
from playwright.sync_api import sync_playwright

from browser import SWITCHES, chromium
from evolora.analysis.run_dashboard import dashboard
from evolora.analysis.run_report import report

STYLE = """
body { font: 15px/1.6 sans-serif; max-width: 900px; margin: 20px auto } .anchor-link { display: none }
h2 { font-size: 20px; border-bottom: 1px solid #d8dee4; padding-bottom: 8px } img { max-width: 100% }
table { border-collapse: collapse; font-size: 13px } td, th { border: 1px solid #d8dee4; padding: 4px 12px }
"""


def take(browser, page, path, *, width, height, shown=None):
    "A picture of the beginning of a page, or of what a selector finds on it"
    tab = browser.new_page(viewport={'width': width, 'height': height}, reduced_motion='reduce')
    tab.goto(page.as_uri())
    tab.wait_for_load_state('networkidle')
    for chart in tab.locator(f'{shown} [data-chart]').all() if shown else []:
        chart.scroll_into_view_if_needed()
        chart.locator('svg').first.wait_for()
    (tab.locator(shown) if shown else tab).screenshot(path=path)
    tab.close()
    picture = Image.open(path).convert('RGB')
    picture.quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)       # a third of the size


def pictures(run, out):
    "Write report.png, dashboard.png and lives.png"
    text = markdown2html(report(run).read_text(encoding='utf-8'))
    page, shown = run / 'picture.html', text[text.rindex('<h2', 0, text.index('From first to last')):]
    page.write_text(f'<meta charset="utf-8"><style>{STYLE}</style>{shown}', encoding='utf-8')
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=SWITCHES)
            take(browser, page, out / 'report.png', width=1000, height=1070)
            # So high that nothing has to be scrolled: the links of the page stay at the top of the window.
            take(browser, dashboard(run), out / 'dashboard.png', width=1280, height=2400, shown='#learning .charts')
            browser.close()
    finally: page.unlink()
    shutil.copy(run / 'charts' / 'lineage.png', out / 'lives.png')


if __name__ == '__main__': pictures(*map(Path, sys.argv[1:]))
