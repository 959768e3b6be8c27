"""The README's pictures of a run: what its report and its dashboard begin with, and its lives.

    python tests/pictures.py runs/ecology-seed0 nbs/images

The report and the dashboard are written into the run's folder first. The picture of the lab comes from test_browser.py.
"""
import shutil
import sys
from pathlib import Path

from nbconvert.filters import markdown2html
from playwright.sync_api import sync_playwright

from browser import SWITCHES, chromium
from evolora.dashboard import dashboard
from evolora.report import report

STYLE = """
body { font: 15px/1.6 sans-serif; max-width: 900px; margin: 20px auto }
h2 { font-size: 20px; border-bottom: 1px solid #d8dee4; padding-bottom: 8px } img { max-width: 100% }
table { border-collapse: collapse; font-size: 13px } td, th { border: 1px solid #d8dee4; padding: 4px 12px }
"""


def picture(browser, page, width, height, path, shown):
    "A picture of the part of a page that a selector finds, or of its beginning"
    tab = browser.new_page(viewport={'width': width, 'height': height}, reduced_motion='reduce')
    tab.goto(page.as_uri())
    tab.wait_for_load_state('networkidle')
    if shown is None: tab.screenshot(path=path)
    else:
        for chart in tab.locator(f'{shown} [data-chart]').all():
            chart.scroll_into_view_if_needed()
            chart.locator('svg, canvas').first.wait_for()
        tab.locator(shown).screenshot(path=path)
    tab.close()


def take(run, out):
    "Write report.png, dashboard.png and lives.png"
    text = markdown2html(report(run).read_text(encoding='utf-8'))
    begin = text.index('From first to last')
    page = run / 'picture.html'
    shown = text[text.rindex('<h2', 0, begin):]
    page.write_text(f'<meta charset="utf-8"><style>{STYLE}</style>{shown}', encoding='utf-8')
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium(), args=SWITCHES)
            picture(browser, page, 1000, 1000, out / 'report.png', None)
            picture(browser, dashboard(run), 1280, 900, out / 'dashboard.png', '#learning')
            browser.close()
    finally: page.unlink()
    shutil.copy(run / 'charts' / 'lives.png', out / 'lives.png')


if __name__ == '__main__': take(*map(Path, sys.argv[1:]))
