"""The reference site: nothing that can be set, read, typed or called is missing in it, and no link of it is dead."""
import ast
import importlib.util
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest
from pydantic import BaseModel

import evolora
import rooms
from evolora.analysis.tables import _LEFT
from evolora.assimilation.gates import EVENTS, GATES, gate_label
from evolora.ecology.config import EcologyConfig, load_config, settings
from evolora.ecology.ecology import Ecology
from evolora.ecology.knobs import KNOBS
from evolora.ecology.lifecycle import LINEAGE
from evolora.ecology.parts import _LIBRARY, part_named
from evolora.ecology.record import TICKER
from evolora.ecology.run_folder import COLUMNS, TABLES
from evolora.economy.book import REASONS
from evolora.host.model import load_host

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / 'nbs' / 'docs'
sys.path.insert(0, str(DOCS))
import build            # noqa: E402  what makes the site is no package
import interface        # noqa: E402
import reference        # noqa: E402


@pytest.fixture(scope='module')
def pages(): return {Path(name).stem: text for name, text in reference.pages().items()}


@pytest.fixture(scope='module')
def lived():
    "Tables of a short life in which much happens"
    changes = {'cells': ['string.sort:1', 'word.count:1'], 'capacity': 3, 'market.questions': 8, 'market.round': 2,
               'market.contest': 0., 'market.protect': 0, 'variation.every': 2, 'variation.sure': 1.,
               'merging.share': .2, 'merging.least': 2, 'merging.most': 4, 'merging.look': 2}
    ecology, records = Ecology(load_host('embedded'), load_config('debug').but(changes), seed=0), []
    ecology.controls.turn(bet=.5)
    ecology.run(6, hooks=[records.append], log=None)
    return records


def told(page, name):
    "What a page says of a thing, from its heading on"
    parts = re.split(r'^\(\S*\)=\n##+ ', page, flags=re.MULTILINE)
    return next(part for part in parts if part.startswith(f'{name}\n'))


# ---- what can be set -----------------------------------------------------------------------------------------------
def test_every_setting_stands_there_with_default_unit_effect_and_where_it_is_read(pages):
    rows = settings(EcologyConfig())
    assert len(rows) > 90
    for row in rows:
        about = told(pages['settings'], row['setting'])
        default = f"default {reference.value_of(row['default'])}"
        for fact in (reference.plain(row['meaning']), default, row['unit'], row['bounds']):
            assert fact in about, (row['setting'], fact)
        assert re.search(r'Read in: \[', about), f"{row['setting']}: read by no module"


def test_a_setting_is_read_where_the_page_says():
    models = dict(reference.sections())
    assert reference.used_in('market.bet', models['market']) == ['economy.market']
    assert 'ecology.succession' in reference.used_in('variation.offspring', models['variation'])      # as `c.offspring`
    assert 'host.adapters' not in reference.used_in('capacity', models[''])
    assert reference.used_in('market.nothing', models['market']) == []


def test_every_part_of_society_and_every_other_configuration_stands_there(pages):
    for name in _LIBRARY:
        about = told(pages['society'], name)
        for field in part_named(name).Config.model_fields: assert f'| `{field}` |' in about, (name, field)
    own = {model for _, model in reference.sections()} | {part_named(name).Config for name in _LIBRARY}
    listed = {getattr(import_module(f'evolora.{m}'), x) for m, names in reference.MODELS.items() for x in names}
    places = [import_module(f'evolora.{name}') for name in rooms.MODULES
              if 'Config(' in rooms.path_of(name).read_text(encoding='utf-8')]
    there = {x for place in places for name, x in vars(place).items() if name.endswith('Config') and isinstance(x, type)
             and issubclass(x, BaseModel) and x.__module__ == place.__name__ and x.model_fields}
    assert there <= own | listed, there - own - listed
    for model in listed:
        about = told(pages['models'], model.__name__)
        for field in model.model_fields: assert f'| `{field}` |' in about, (model, field)
    assert all(f'| `{name}` |' in pages['knobs'] for name in KNOBS)


def test_every_command_and_option_stands_there(pages):
    "Against what `--help` of the command itself says"
    found, text = 0, pages['commands']
    for path, command in reference.commands():
        about = told(text, path)
        for option in command.params:
            for name in option.opts if option.opts[0].startswith('-') else [option.name.upper()]:
                assert f'`{name}`' in about, (path, name)
                found += 1
    assert found > 150 and '## evolora docs\n' in text and '## evolora host fetch\n' in text


def test_every_environment_variable_that_is_read_stands_there(pages):
    read, text = reference.environment_read(), '\n'.join(text for _, text in reference.sources().values())
    assert {'EVOLORA_CACHE', 'RAY_ADDRESS', 'HF_HUB_OFFLINE', 'CUDA_VISIBLE_DEVICES'} <= read
    assert read - reference.INTERNAL <= reference.ENVIRONMENT.keys() and reference.INTERNAL <= read
    assert not [name for name in reference.ENVIRONMENT if name not in text], 'nothing reads these any more'
    assert all(f'| `{name}` |' in pages['environment'] for name in reference.ENVIRONMENT)


# ---- what a run leaves ---------------------------------------------------------------------------------------------
def test_every_column_has_a_meaning_and_none_is_stale(pages, lived):
    assert [*map(list, COLUMNS.values())] == [*map(list, TABLES.values())] and [*COLUMNS] == [*TABLES]
    seen = {name: set().union(*(row for record in lived for row in record.tables[name])) for name in TABLES}
    assert len([name for name in TABLES if seen[name]]) >= 8
    for name, columns in TABLES.items():
        assert not seen[name] or seen[name] == {*columns}
        about = told(pages['tables'], name)
        for column in columns: assert f'| `{column}` |' in about and len(COLUMNS[name][column]) > 5, (name, column)
    for name in ('gflops', 'cells'):
        inner = lived[-1].row[name] if name == 'gflops' else next(iter(lived[-1].row[name].values()))
        for key in inner: assert f'`{key}`' in COLUMNS['generations'][name], (name, key)
    for part in lived[-1].timing['parts']: assert f'`{part}`' in COLUMNS['timings']['parts'], part


def test_every_reason_that_is_lived_through_has_a_meaning(pages, lived):
    ledger = {row['reason'] for record in lived for row in record.ledger}
    assert {'bet', 'share', 'birth'} <= ledger <= REASONS.keys()
    lineage = [row for record in lived for row in record.lineage]
    assert {row['event'] for row in lineage} == {'birth', 'death'}
    for row in lineage:
        assert any(mark in row['reason'] for mark in LINEAGE[row['event']]), row
    for table, page in ((REASONS, 'ledger'), *((x, 'lineage') for x in LINEAGE.values())):
        for name, text in table.items():
            assert f'| `{name}` | {reference.cell(reference.plain(text))} |' in pages[page]


CALLS = 'bury', 'found', '_welcome', 'wake'

def test_no_reason_is_stale_and_none_of_the_source_is_missing():
    "Every text that is given as a reason somewhere in the package, against the list"
    given = {'birth': set(), 'death': set()}
    for tree in reference.trees().values():
        for node in ast.walk(tree):
            if not isinstance(node, ast.Call) or getattr(node.func, 'attr', '') not in CALLS: continue
            texts = [n.value for part in [*node.args, *(k.value for k in node.keywords)] for n in ast.walk(part)
                     if isinstance(n, ast.Constant) and isinstance(n.value, str)]
            if node.func.attr == 'bury': given['death'].add(' '.join(texts))
            else: given['birth'] |= {*texts}
    assert all(any(mark in text for mark in LINEAGE['death']) for text in given['death'] if text.strip())
    assert {name for name in given['birth'] if re.fullmatch('[a-z]+', name)} <= LINEAGE['birth'].keys()
    code = ' '.join(re.sub(r"['\"]\s*f?['\"]", '', text) for name, (_, text) in reference.sources().items()
                    if name != 'ecology.lifecycle')
    assert not [mark for mark in LINEAGE['death'] if mark not in code and mark != 'answers for it']
    assert {*_LEFT} <= LINEAGE['death'].keys()


def test_the_ticker_and_the_gates_are_told(pages, lived):
    parts = [part.split() for part in lived[-1].ticker().split(' | ')]
    said = [words[0] for words in parts[:-1]] + [parts[-1][-1]]
    assert [name for name in TICKER if name != 'gates' or 'gates' in said] == said
    assert all(f'| `{name}` |' in pages['ticker'] for name in TICKER)
    for name in [*GATES.library, *EVENTS]: assert f'## {name}: {gate_label(name)}\n' in pages['gates']
    for gate in map(GATES.get, GATES.library):
        assert gate.sentence in pages['gates'] and f'`{gate.value} {gate.relation} {gate.bound}`' in pages['gates']


# ---- what can be called --------------------------------------------------------------------------------------------
NAMED = re.compile(r'^````\{py:(?:function|class|data)\} (evolora(?:\.\w+)+)', re.MULTILINE)


def test_the_public_names_are_those_that_the_reference_shows():
    shown = {name.removesuffix('.md').removeprefix('interface/'): NAMED.findall(text)
             for name, text in interface.pages().items()}
    assert {*shown} == {*rooms.ROOMS}
    for room, names in shown.items():
        public = {f'evolora.{module}.{name}' for module in rooms.MODULES if rooms.room_of(module) == room
                  for name in getattr(import_module(f'evolora.{module}'), '__all__', ())}
        assert {*names} == public and len(names) == len(public), room
        face = import_module(f'evolora.{room}')
        handed_on = {name for name in dir(face) if not isinstance(getattr(face, name), ModuleType)}
        assert handed_on <= {name.rpartition('.')[2] for name in names}, room
    assert sum(map(len, shown.values())) > 1000


def test_a_function_is_shown_with_types_comments_and_its_place():
    text = interface.pages()['interface/economy.md']
    prices = 'evolora.economy.prices'
    assert f'{{py:function}} {prices}.answer_cost(config: {prices}.EconomyConfig, gflops, tokens)' in text
    assert '- `gflops`: GFLOPs of prefill and decoding together, a number or one per answer' in text
    assert '```{py:method} bet(likelihood: dict[str, float], part: float=1.0) -> float' in text   # patched
    assert '[01_prices.ipynb](../nbs/02_economy/01_prices.ipynb)' in text and '`evolora/economy/prices.py`' in text


# ---- the site ------------------------------------------------------------------------------------------------------
def test_a_notebook_is_shown_without_what_readers_do_not_need():
    code = lambda source, **data: dict(cell_type='code', id='x', source=source,
                                       outputs=[dict(data=data)] if data else [])
    nb = dict(cells=[code('#| hide\nx'), code('#| export\ndef f(): ...'), code('#| default_exp a.b'),
                     code('chart', **{'application/vnd.vegalite.v5+json': {}, 'image/png': 'AA'}),
                     dict(cell_type='markdown', id='y', source=['[there](a.ipynb#What-It-Is) ![](attachment:p.svg)'],
                          attachments={'p.svg': {'image/svg+xml': ['<svg/>']}})],
              metadata=dict(kernelspec={}), nbformat=4, nbformat_minor=5)
    text, pictures = build.notebook(json.dumps(nb))
    cells = json.loads(text)['cells']
    assert [cell['source'] for cell in cells] == ['def f(): ...', 'chart', '[there](a.ipynb#what-it-is) ![](p.svg)']
    assert cells[1]['outputs'] == [{'data': {'image/png': 'AA'}}] and pictures == {'p.svg': b'<svg/>'}


def test_dead_links_anchors_and_what_would_be_fetched_are_found(tmp_path):
    (tmp_path / 'a.html').write_text(
        '<h1 id="here"></h1><a href="b.html#there">x</a><a href="#here">y</a><a href="c.html">z</a>'
        '<a href="https://example.org">w</a><img src="p.png"><script src="//cdn/x.js"></script>', encoding='utf-8')
    (tmp_path / 'b.html').write_text('<p id="else"></p><a href="a.html?x=1#here">x</a>', encoding='utf-8')
    assert build.faults(tmp_path) == ['a.html links to b.html#there, and there is no such anchor',
                                      'a.html links to c.html, which is not there',
                                      'a.html links to p.png, which is not there', 'a.html loads //cdn/x.js']


def test_a_site_that_is_there_is_opened_and_something_else_is_left_alone(cli, tmp_path, monkeypatch):
    opened = []
    monkeypatch.setattr('webbrowser.open', lambda url: opened.append(url) or True)
    site = tmp_path / 'site'
    (site / '.source').mkdir(parents=True)
    (site / 'index.html').write_text('x')
    monkeypatch.setattr(evolora, '__file__', str(tmp_path / 'lib/evolora/__init__.py'))
    code, out, err = cli('docs', '--out', site)
    assert (code, out, err) == (0, f"site: {site / 'index.html'}\n", '') and opened == [(site / 'index.html').as_uri()]
    assert cli('docs', '--out', site, '--no-open')[0] == 0 and len(opened) == 1
    for words, said in ((['--build', '--out', site], 'got an installed package without nbs/docs'),
                        (['--out', tmp_path / 'new'], 'clone the repository'),
                        (['--out', tmp_path], 'which is something else')):
        code, out, err = cli('docs', '--no-open', *words)
        assert code == 2 and not out and err.count('\n') == 1 and said in err
    assert not (tmp_path / 'new').exists()


def test_without_sphinx_one_line_says_what_to_install(cli, tmp_path, monkeypatch):
    there = importlib.util.find_spec
    monkeypatch.setattr('evolora.cli.docs.find_spec', lambda name: None if name == 'myst_nb' else object())
    code, out, err = cli('docs', '--out', tmp_path / 'site')
    assert code == 2 and "expected myst-nb to build the site" in err and "pip install 'evolora[docs]'" in err
    assert err.count('\n') == 1 and not (tmp_path / 'site').exists() and there is importlib.util.find_spec


def found(index, query):
    "Pages that the search leads to directly, by a title or an entry of the index, as its script compares them"
    entries = [(text.lower(), places) for kind in ('alltitles', 'indexentries') for text, places in index[kind].items()]
    return {index['docnames'][place[0]] for text, places in entries for place in places
            if query in text and len(query) >= len(text) / 2}


@pytest.mark.skipif(not importlib.util.find_spec('sphinx'), reason="needs `pip install -e '.[docs]'`")
def test_the_site_is_built_without_a_warning_or_a_dead_link_and_its_search_knows_the_fields_words(tmp_path):
    "Two minutes on one core"
    site = tmp_path / 'site'
    command = [sys.executable, '-c', 'from evolora.cli.app import main; main()', 'docs', '--no-open', '--out', site]
    done = subprocess.run(command, env=os.environ | {'PYTHONPATH': str(ROOT)}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert 'every link leads somewhere' in done.stdout and f"site: {site / 'index.html'}" in done.stdout
    assert [*tmp_path.iterdir()] == [site]      # and nothing beside it
    text = (site / 'searchindex.js').read_text(encoding='utf-8')
    index = json.loads(text.removeprefix('Search.setIndex(').removesuffix(')'))
    for query in ('learning rate', 'why did it die', 'kl', 'stake', 'resume', 'cache', 'turn merges off'):
        assert 'called' in found(index, query), query
    assert found(index, 'market.bet') == {'reference/settings'} and not found(index, 'no such thing')
    assert {f'nbs/tutorials/{path.stem}' for path in (ROOT / 'nbs/tutorials').glob('*.ipynb')} <= {*index['docnames']}
