"""A run whose world changes: what lies beneath its charts, who is dormant, and who knows which world."""
from dataclasses import replace
from inspect import unwrap
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from scripted import chance_decides
from synthetic import records

from evolora.analysis.run_charts import CHARTS, chart_accuracy, chart_lineage, lacks
from evolora.analysis.run_dashboard import _one, tame
from evolora.analysis.tables import (_world_of, balances, dormant_table, evolution_sentence, gather, load, world_table)
from evolora.analysis.theme import stretches
from evolora.ecology.config import changed_config, load_config
from evolora.ecology.sessions import begin_session
from evolora.host.model import tiny_host
from evolora.tasks.worlds import World, WorldConfig
from evolora.utils.statistics import wilson

SMALL = {'cells': ['string.sort:1', 'word.count:1'], 'max_new_tokens': 4, 'capacity': 4,
         'market': {'questions': 8, 'round': 2, 'learn_every': 2, 'protect': 0, 'asleep': .2},
         'world': {'period': 3}, 'curriculum': {'copies': 2}}


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    "Ten generations of a small market in worlds of three generations, the first cut short by hand"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr('evolora.tasks.forms.Form.grade', lambda _, task, text: chance_decides(task, text))
        config = changed_config(load_config('worlds'), SMALL)
        with begin_session(tmp_path_factory.mktemp('run') / 'run', tiny_host(), config) as session:
            for generation in range(10):
                if generation == 1: session.ecology.change_world()
                session.step()
            session.save()
        return session.run.folder


@pytest.fixture(scope='module')
def data(folder): return load(folder)


def in_a(data, changes=(), **settings):
    families = dict.fromkeys(data.episodes['family'])
    world = World(WorldConfig(**{'schedule': 'recurring', 'period': 3} | settings), families)
    world.changes = changes
    return replace(data, world=world)


def rects(chart):
    "The rows of the band of each panel"
    def panels(spec):
        for key in ('vconcat', 'hconcat'):
            for part in spec.get(key, []): yield from panels(part)
        if 'layer' in spec or 'mark' in spec: yield spec
    spec = chart.to_dict()
    of = lambda layer: layer.get('data', {}).get('name')
    return [next((spec['datasets'][of(layer)] for layer in panel.get('layer', [])
                  if of(layer) and 'strip' in str(spec['datasets'][of(layer)][:1])), None) for panel in panels(spec)]


# --- the band

def test_a_run_knows_its_world_and_what_a_hand_did_to_it(data):
    assert data.world.changes == (1,) and data.asleep == .2 and [*data.knobs['knob']] == ['world']
    band = data.world.band(10)[['start', 'end', 'world']].values.tolist()
    assert band == [[0, 1, 0], [1, 4, 1], [4, 7, 2], [7, 10, 3]]


@pytest.mark.parametrize('name', [n for n, entry in CHARTS.items() if not entry.needs])
def test_the_world_lies_beneath_every_chart_over_generations(data, name):
    chart = CHARTS[name](data)
    found = rects(chart)
    assert found and all(found) and lacks(chart.to_dict()) == []
    for rows in found:
        assert [(r['first'], r['last'], r['world']) for r in rows] == [(0, 0, 0), (1, 3, 1), (4, 6, 2), (7, 9, 3)]
        assert [r['hand'] for r in rows] == [False, True, False, False] and len({r['fill'] for r in rows}) == 4
        assert (rows[0]['start'], rows[-1]['end']) == (-.5, 9.5)


@pytest.mark.parametrize('name', CHARTS)
def test_a_world_that_never_changes_draws_nothing(name):
    plain = gather(records(generations=8, size=6))
    plain = replace(plain, lineage=plain.lineage[plain.lineage['operator'] != 'merge'])     # merges are marked
    static = gather(records(generations=8, size=6), world=World(WorldConfig(), ('math',)))
    assert static.world is None
    drawn = CHARTS[name](replace(plain, world=World(WorldConfig(), ('math',)))).to_dict()
    assert drawn == CHARTS[name](plain).to_dict() == unwrap(CHARTS[name].draw)(plain).to_dict()


def test_what_is_under_the_band_is_what_was_drawn_without_it(data):
    with_world, without = chart_accuracy(data).to_dict(), chart_accuracy(replace(data, world=None)).to_dict()
    assert [part['encoding'] for part in with_world['layer'][-len(without['layer']):]] == [
        part['encoding'] for part in without['layer']]
    assert with_world['title'] == without['title'] and with_world['description'] == without['description']


@pytest.mark.parametrize('settings,says', [
    ({'consistent': .5}, 'not for all families alike'), ({'drift': .5}, 'not for all families alike'),
    ({'session': 2}, 'take turns')])
def test_worlds_of_families_and_clients_get_no_band(data, settings, says):
    for name in ('accuracy', 'curriculum', 'beliefs'):
        spec = CHARTS[name](in_a(data, **settings)).to_dict()
        assert says in str(spec) and lacks(spec) == []
        assert all(rows is None or {r['fill'] for r in rows} == {None} for rows in rects(
            CHARTS[name](in_a(data, **settings))))


def test_many_worlds_are_grey_and_too_many_are_counted():
    families = ('string.sort', 'word.count')
    world = World(WorldConfig(schedule='new', period=2), families)
    rows, note = stretches(world, -.5, 199.5, 560)
    assert note == 'world' and len(rows) == 100 and len({r['fill'] for r in rows}) == 2
    assert all(a['fill'] != b['fill'] for a, b in zip(rows, rows[1:])) and rows[5]['label'] == ''
    assert stretches(world, -.5, 399.5, 560) == ([], 'the world changes 199 times, too often to draw')
    few = World(WorldConfig(schedule='recurring', period=40, fade=5), families)
    rows, _ = stretches(few, 20.5, 99.5, 560)       # the end of a run
    assert [(r['start'], r['end'], r['world'], r['label']) for r in rows] == [
        (20.5, 39.5, 0, '0'), (39.5, 44.5, 1, ''), (44.5, 79.5, 1, '1'), (79.5, 84.5, 2, ''), (84.5, 99.5, 2, '2')]


def test_several_runs_show_a_world_only_if_they_share_it(data):
    other = replace(data, name='other')
    assert all(rects(chart_accuracy([data, other]))) and all(rects(chart_accuracy(iter([data, other]))))
    for another in (in_a(data), replace(data, world=None)): assert rects(chart_accuracy([data, another])) == [None]


# --- the dormant

def test_the_dormant_hold_little_and_do_not_answer(data):
    table = dormant_table(data)
    asleep = {(who, g) for who, start, end in table.itertuples(index=False) for g in range(start, end)}
    held = balances(data)
    answered = set(zip(data.episodes['organelle'], data.episodes['generation']))
    expected = {(who, g) for g, who, share in held.itertuples(index=False) if share < .2 and (who, g) not in answered}
    assert asleep == expected != set() and (table['start'] < table['end']).all()
    assert not len(dormant_table(replace(data, config={'market': {'asleep': 0.}})))


def test_lives_are_hollow_where_they_are_dormant(data):
    frames = [pd.DataFrame(rows) for rows in chart_lineage(data).to_dict()['datasets'].values()]
    hollow = next(f for f in frames if list(f) == ['organelle', 'start', 'end'])
    assert np.allclose(hollow[['start', 'end']] + .5, dormant_table(data)[['start', 'end']])
    assert 'hollow: dormant, below 20%' in str(chart_lineage(data).to_dict()['title'])
    assert 'hollow' not in str(chart_lineage(replace(data, config={'market': {'asleep': 0.}})).to_dict()['title'])


def test_a_page_has_no_section_of_what_did_not_happen(data):
    head, sections, drawn = _one(data, 20, lambda line: None)
    assert {*sections} == {'Summary', 'Learning', 'Stakes', 'Population', 'Compute', 'Answers'} and 'gates' not in drawn
    plain = gather(records(generations=18, size=6))
    _, sections, drawn = _one(plain, 20, lambda line: None)
    assert {'Merging', 'Evolution', 'Society'} <= {*sections} and {*drawn} == {*CHARTS}
    assert evolution_sentence(plain)[:40] in sections['Evolution'] and '<dt>believed</dt>' in head


# --- which worlds an organelle knows

def test_what_is_known_of_a_world_is_counted_from_the_answers_that_were_given_there(data):
    table = world_table(data)
    assert table['answers'].sum() == len(data.episodes) and len(table) > 3
    numbers = data.episodes['generation'].map(lambda g: [0, 1, 1, 1, 2, 2, 2, 3, 3, 3][g])
    for (who, where), row in table.iterrows():
        own = data.episodes[(data.episodes['organelle'] == who) & (numbers == int(where.split()[1]))]
        questions = own.groupby(['generation', 'family', 'depth', 'task']).ngroups
        assert (row['answers'], row['questions'], row['latest']) == (len(own), questions, own['generation'].max())
        assert row['right'] == pytest.approx(own['success'].mean())
        assert (row['low'], row['high']) == pytest.approx(wilson(row['right'] * questions, questions))


def test_mixed_generations_are_left_out_and_families_that_go_alone_have_rows_of_their_own(data):
    fades = world_table(in_a(data, fade=1))
    mixed = data.episodes['generation'].isin([3, 6, 9])
    assert fades['answers'].sum() == (~mixed).sum() < len(data.episodes)
    assert not len(world_table(in_a(data, session=3))) and not len(world_table(replace(data, world=None)))
    alone = in_a(data, consistent=.5)
    table = world_table(alone)
    assert table['answers'].sum() == len(data.episodes)
    for (who, where), row in table.iterrows():
        family, _, habit = where.partition(': ')
        own = data.episodes[(data.episodes['organelle'] == who) & (data.episodes['family'] == family)]
        there = own['generation'].map(lambda g: alone.world.habit(family, g)) == habit.replace('the usual one', '')
        assert row['answers'] == there.sum()


def test_a_run_with_a_schedule_that_is_not_known_here_is_read_without_its_world(data, folder, monkeypatch):
    monkeypatch.setattr('evolora.tasks.worlds.SCHEDULES.named', lambda name: (_ for _ in ()).throw(ValueError('gone')))
    with pytest.warns(UserWarning, match='its world is left out: .*gone'): assert load(folder).world is None
    assert tame(data).world is data.world


@pytest.mark.parametrize('world, last', [(5, 0), ([], 0), ({'schedule': 'recurring', 'more': 1}, 0),
                                         ({'schedule': 'recurring'}, 10 ** 15)])
def test_what_a_stranger_wrote_as_a_world_is_left_out(world, last):
    run = SimpleNamespace(config={'world': world, 'cells': ['string.sort:1']}, seed=0, folder='x')
    tables = {'knobs': pd.DataFrame({'knob': [], 'generation': []}),
              'generations': pd.DataFrame({'generation': [last]})}
    with pytest.warns(UserWarning, match='x: its world is left out'): assert _world_of(run, tables) is None
    run.config['world'], tables['generations'] = {'schedule': 'recurring'}, pd.DataFrame({'generation': [7]})
    assert _world_of(run, tables).config.schedule == 'recurring'
