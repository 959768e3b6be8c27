"""Who may see what: a question is of one stream, whatever its depth, and streams have their shares."""
from collections import Counter
from dataclasses import replace

import pytest

from evolora.tasks.families import FAMILIES, Cell
from evolora.tasks.splits import STREAMS, stream_of
from evolora.tasks.task_sets import sample_tasks
from evolora.utils.randomness import stream as random_stream
from tasks.contract import drawn, every_cell, every_family


@every_family
def test_streams_are_disjoint_whatever_the_depth(family):
    where = {}
    for depth in FAMILIES[family].depths:
        for name in STREAMS:
            tasks = sample_tasks(Cell(family, depth), stream=name, n=8,
                                 rng=random_stream(1, purpose=f'{family} {depth}'))
            assert len({t.id for t in tasks}) == len({t.prompt for t in tasks}) == 8
            for t in tasks:
                assert where.setdefault(t.prompt, name) == where.setdefault(t.id, name) == name
                assert {stream_of(replace(t, depth=d, difficulty=1., answer='x', meta={}, id=''))
                        for d in range(1, 5)} == {name}


@every_cell
def test_streams_have_their_shares(cell):
    "Those of questions without twins"
    task = replace(drawn(cell).tasks[0], twins=())
    found = Counter(stream_of(replace(task, prompt=prompt)) for prompt in drawn(cell).answers)
    for name, share in STREAMS.items():
        # five standard deviations of the largest share
        assert abs(found[name] / found.total() - share / 100) < 5 * (.7 * .3 / found.total())**.5, found


@pytest.mark.parametrize('depth', range(4))
def test_no_stream_has_a_sum_that_another_has_the_other_way_round(depth):
    where, alone = {}, 0
    for name in STREAMS:
        for t in sample_tasks(Cell('math', depth), stream=name, n=300, rng=random_stream(depth, purpose=name),
                              fewer=True):
            pair = frozenset((t.prompt, *t.twins))
            assert where.setdefault(pair, name) == name, t.prompt
            alone += len(pair) == 1
    assert len(where) > 300 and (alone > 300) == (depth == 2), 'a difference has no twin'


def test_of_twins_in_different_streams_one_is_asked():
    found = Counter()
    for i in range(2000):
        t = FAMILIES['math'].draw(random_stream(i), 1, .5)
        turned = replace(t, prompt=t.twins[0], twins=(t.prompt,))
        found[tuple(sorted((stream_of(t), stream_of(turned))))] += 1
    assert {pair for pair in found if pair[0] != pair[1]} == {('', name) for name in STREAMS}
    assert ('', '') not in found, 'no sum is lost altogether'


def test_what_is_trained_on_is_what_it_was():
    "The embedded host learned from it: no question may leave `train` for another stream"
    for i in range(500):
        t = FAMILIES['math'].draw(random_stream(i), 1, .5)
        if stream_of(replace(t, twins=())) == 'train': assert stream_of(t) == 'train'
        else: assert stream_of(t) in ('', stream_of(replace(t, twins=())))
