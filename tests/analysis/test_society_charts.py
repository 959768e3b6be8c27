"""A life under several names is one line, and who sleeps at the end is who was kept last."""
from dataclasses import replace

import pandas as pd
from synthetic import records

from evolora.analysis.society_charts import (archived, chart_archive, chart_messages, chart_prices, chart_reads,
                                              chart_sleepers, messages, reads, sold, spans)
from evolora.analysis.tables import gather


def told(lineage, society, generations=12):
    "A run with these births, deaths and doings of the archive"
    plain = gather(records(generations=generations, size=2))
    born = dict(operator='founder', rank=4, traits={}, reason='a test', parents=[])
    return replace(plain, lineage=pd.DataFrame([born | row for row in lineage]), society=pd.DataFrame([
        dict(part='archive', others=[], numbers={}) | row for row in society],
        columns=['generation', 'part', 'event', 'organelle', 'others', 'numbers']))


def birth(g, name, of=None): return dict(generation=g, event='birth', organelle=name) | (
    {'operator': 'woken', 'parents': [of]} if of else {})


def death(g, name): return dict(generation=g, event='death', organelle=name)
def did(g, event, name, others=(), **numbers): return dict(
    generation=g, event=event, organelle=name, others=list(others), numbers=numbers)


def test_a_life_goes_on_under_other_names():
    data = told([birth(0, 'o1'), birth(0, 'o2'), death(2, 'o2'), birth(5, 'o3', 'o2'), death(7, 'o3'),
                 birth(9, 'o4', 'o3')],
                [did(2, 'kept', 'o2'), did(5, 'woken', 'o3', ['o2']), did(7, 'kept', 'o3'),
                 did(9, 'woken', 'o4', ['o3'])])
    mine = spans(data).query("life == 'o2'")
    assert mine[['name', 'state', 'begin', 'end']].values.tolist() == [
        ['o2', 'awake', 0, 3], ['o2', 'asleep', 3, 5], ['o3', 'awake', 5, 8], ['o3', 'asleep', 8, 9],
        ['o4', 'awake', 9, 12]]
    assert '1 organelles were archived, and 2 times' in chart_sleepers(data).to_dict()['description']


def test_who_is_dropped_at_once_does_not_sleep_and_who_dies_in_the_generation_of_its_waking_has_no_bar():
    data = told([birth(0, 'o1'), birth(0, 'o2'), death(3, 'o2'), birth(4, 'o3', 'o1'), death(4, 'o3')],
                [did(3, 'kept', 'o2'), did(3, 'dropped', 'o2')])
    assert set(spans(data)['state']) == {'awake'} and (spans(data)['end'] > spans(data)['begin']).all()
    assert archived(data).empty and 'no organelle was archived' in str(chart_sleepers(data).to_dict())


def test_the_grid_has_who_sleeps_at_the_end():
    data = told([birth(0, 'o1')], [
        did(1, 'kept', 'o2', a=1., b=2., quality=.3), did(2, 'kept', 'o3', a=1., b=2., quality=.6),
        did(3, 'kept', 'o4', a=0., b=0., quality=.9), did(4, 'woken', 'o5', ['o4'])])
    assert archived(data)['organelle'].tolist() == ['o2', 'o3']
    spec = chart_archive(data).to_dict()
    assert spec['description'] == '2 asleep in 1 cells; the best is o3'
    assert 'nobody sleeps' in str(chart_archive(told([birth(0, 'o1')], [])).to_dict())


def test_numbers_that_are_missing_draw_nothing_wrong():
    data = told([birth(0, 'o1')], [did(1, 'kept', 'o2')])       # a folder may be anybody's
    assert archived(data)['a'].isna().all() and 'nobody sleeps' in str(chart_archive(data).to_dict())


def test_prices_are_means_over_questions():
    data = told([birth(0, 'o1')], [did(0, 'sold', 'o1', questions=3., bid=.1, price=.02) | {'part': 'allocation'},
                                   did(0, 'sold', 'o2', questions=1., bid=.02, price=.02) | {'part': 'allocation'},
                                   did(1, 'sold', 'o1', questions=2., bid=.1, price=.1), did(2, 'sold', 'o1')])
    assert sold(data)[['bid', 'price', 'buyers']].round(9).values.tolist() == [[.08, .02, 2], [.1, .1, 1]]
    assert '6 questions were sold' in chart_prices(data).to_dict()['description']
    assert 'no question was sold' in str(chart_prices(told([birth(0, 'o1')], [])).to_dict())


def test_messages_are_summed_and_have_intervals():
    counts = [did(g, 'messages', '', real=10., real_right=6., none=20., none_right=5.) | {'part': 'board'}
              for g in range(2)]
    data = told([birth(0, 'o1')], [*counts, did(0, 'read', 'o1', ['o2'], messages=2., paid=.1),
                                   did(1, 'read', 'o1', ['o2'], messages=3., paid=.1), did(1, 'read', 'o9')])
    table = messages(data)
    assert table['kind'].tolist() == ['real message', 'no message'] and table['share'].tolist() == [.6, .25]
    assert (table['low'] < table['share']).all() and (table['share'] < table['high']).all()
    assert reads(data).round(9).values.tolist() == [['o1', 'o2', 5., .2]]
    both = told([birth(0, 'o1')], [*counts, *({**row, 'part': 'cache'} for row in counts[:1])])
    assert messages(both).groupby('part').questions.sum().to_dict() == {'board': 60., 'cache': 30.}
    assert 'cache: no message: 25.0% of 20' in chart_messages(both).to_dict()['description']
    assert 'real message: 60.0% of 20' in chart_messages(data).to_dict()['description']
    assert '5 messages between 2 organelles' in chart_reads(data).to_dict()['description']
    empty = told([birth(0, 'o1')], [])
    assert 'no message was delivered' in str(chart_reads(empty).to_dict())
    assert 'no question was asked' in str(chart_messages(empty).to_dict())
