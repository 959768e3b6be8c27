"""Who may see what: a question is of one stream, whatever its depth, and streams have their shares."""
from collections import Counter
from dataclasses import replace

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
    task = drawn(cell).tasks[0]
    found = Counter(stream_of(replace(task, prompt=prompt)) for prompt in drawn(cell).answers)
    for name, share in STREAMS.items():
        # five standard deviations of the largest share
        assert abs(found[name] / found.total() - share / 100) < 5 * (.7 * .3 / found.total())**.5, found
