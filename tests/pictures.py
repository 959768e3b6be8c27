"""Pictures of runs, for README and for the page of recipes.

    python tests/pictures.py stakes runs/worlds-seed0 nbs/images    # README: who holds the stakes of a run, stakes.png
    python tests/pictures.py pages runs/stakes-seed0 nbs/images     # recipes: report.png, dashboard.png, lives.png

The first run is `evolora run --host habits --preset worlds --generations 64`, the second one `evolora run`. The report
and the dashboard are written into the run's folder first. The picture of the lab comes from test_browser.py.
"""
import shutil
import sys
from pathlib import Path

import altair as alt
import pandas as pd
from nbconvert.filters import markdown2html
from PIL import Image
from playwright.sync_api import sync_playwright

from browser import SWITCHES, chromium
from evolora.analysis.run_dashboard import dashboard
from evolora.analysis.run_report import report
from evolora.analysis.tables import balances, load
from evolora.analysis.theme import GREY, OKABE_ITO, png_of

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


GREYS = ['#c4c4c4', '#dcdcdc']
DARK_TEXT = {'#E69F00', '#009E73', '#CC79A7', '#56B4E9', '#F0E442'}


def adapter_colours(held):
    "The adapters in order of birth, and their colours: one of Okabe and Ito for each leader, greys for the others"
    ids = sorted(held['organelle'].unique(), key=lambda id: (len(id), id))
    led = {*held.loc[held.groupby('generation')['stakes'].idxmax(), 'organelle']}
    leaders = [id for id in ids if id in led]
    others = [id for id in ids if id not in led]
    greys = {id: GREYS[i % len(GREYS)] for i, id in enumerate(others)}
    return ids, dict(zip(leaders, OKABE_ITO, strict=False)) | greys


def label_places(held, ids, colours):
    "A row per stretch of generations with the same largest stake: the middle of the leader's area, and its name"
    shares = held.pivot(index='generation', columns='organelle', values='stakes').fillna(0.)[ids]
    below, leader = shares.cumsum(axis=1) - shares, shares.idxmax(axis=1)
    rows = []
    for _, part in leader.groupby((leader != leader.shift()).cumsum()):
        id, at = part.iloc[0], part.index[len(part) // 2]
        if len(part) < 4 or colours[id] in GREYS: continue
        rows.append({'generation': at + .5, 'y': below.loc[at, id] + shares.loc[at, id] / 2, 'name': id,
                     'text': '#111' if colours[id] in DARK_TEXT else 'white'})
    return pd.DataFrame(rows)


def changes(data, last):
    "A row per period of the world: where it starts, its middle, and a letter for the world"
    band = data.world.band(last)
    return pd.DataFrame({'start': band['start'], 'middle': (band['start'] + band['end'].clip(upper=last)) / 2,
                         'letter': [chr(65 + int(world)) for world in band['world']]})


def over_generations(name, last, ticks, title=None):
    "The axis of generations, the same in both panels"
    axis = alt.Axis(grid=False, values=ticks)
    return alt.X(f'{name}:Q', title=title, axis=axis, scale=alt.Scale(domain=[0, last], nice=False))


def stakes_panel(held, periods, last, ticks):
    "Stacked shares of all stakes; a label per stretch that one adapter leads; above it the letters of the worlds"
    ids, colours = adapter_colours(held)
    labels = label_places(held, ids, colours)
    end = held[held['generation'] == last - 1].assign(generation=last)      # otherwise the last step has no width
    steps = pd.concat([held, end]).round(4).assign(order=lambda t: t['organelle'].map(ids.index))
    share = alt.Y('stakes:Q', title='share of all stakes', stack='zero', axis=alt.Axis(format='%', grid=False),
                  scale=alt.Scale(domain=[0, 1]))
    colour = alt.Color('organelle:N', legend=None, scale=alt.Scale(domain=ids, range=[colours[id] for id in ids]))
    areas = alt.Chart(steps).mark_area(interpolate='step-after', stroke='white', strokeWidth=.5).encode(
        x=over_generations('generation', last, ticks), y=share, order='order:Q', color=colour)
    names = alt.Chart(labels).mark_text(fontSize=17, fontWeight='bold').encode(
        x='generation:Q', y='y:Q', text='name:N', color=alt.Color('text:N', scale=None))
    letters = alt.Chart(periods).mark_text(fontSize=14, color='#222').encode(
        x='middle:Q', y=alt.value(-14), text='letter:N')
    note = alt.Chart(pd.DataFrame([{'note': 'world'}])).mark_text(fontSize=13, color='#222', align='right').encode(
        x=alt.value(-8), y=alt.value(-16), text='note:N')
    return alt.layer(areas, names, letters, note)


def stakes_chart(data):
    "The share of all stakes per adapter above the share of right answers, over the generations of a run"
    last = int(data.generations['generation'].max()) + 1
    periods = changes(data, last)
    ticks = [*map(int, periods['start']), last]
    rules = alt.Chart(periods[1:]).mark_rule(color='#222', strokeDash=[4, 3]).encode(x='start:Q')
    above = alt.layer(stakes_panel(balances(data), periods, last, ticks), rules)
    curve = data.generations[['generation', 'accuracy']]
    curve = pd.concat([curve, curve.tail(1).assign(generation=last)])
    right = alt.Chart(curve).mark_line(
        color='#222', strokeWidth=2, interpolate='step-after').encode(
        x=over_generations('generation', last, ticks, 'generation'),
        y=alt.Y('accuracy:Q', title='right answers', axis=alt.Axis(format='%', tickCount=3),
                scale=alt.Scale(domain=[0, 1])))
    world = (f'One run of {last} generations. The world (which answers are right) changes every '
             f'{data.world.config.period} generations without notice.')
    colours = 'Each colour is one adapter. Grey: adapters that never had the largest stake.'
    title = alt.Title('Share of all stakes per adapter', offset=14, subtitle=[world, colours])
    below = alt.layer(right, rules).properties(width=860, height=90)
    return alt.vconcat(above.properties(width=860, height=280), below, spacing=12).properties(title=title)


def stakes(run, out):
    "Write stakes.png"
    alt.theme.enable('evolora')
    spec = stakes_chart(load(run)).to_dict()
    title = {'anchor': 'start', 'fontSize': 18, 'subtitleFontSize': 13, 'subtitleColor': '#444'}
    axis = {'labelFontSize': 13, 'titleFontSize': 14, 'titleFontWeight': 'normal', 'domainColor': GREY}
    spec['config'] = {**spec['config'], 'title': title, 'axis': axis}
    (out / 'stakes.png').write_bytes(png_of(spec, 1.5))


def pages(run, out):
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


if __name__ == '__main__': {'stakes': stakes, 'pages': pages}[sys.argv[1]](*map(Path, sys.argv[2:]))
