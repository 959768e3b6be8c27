"""What cells hold, as arrays: bits, pairs, and the interval that all reports use."""
import json
import math

import numpy as np
import pandas as pd
import pytest

from evolora.experiments.speed import target
from evolora.experiments.study_results import Results, as_rows, crossed, packed, read_cells, unpacked


@pytest.mark.parametrize('n', [1, 7, 8, 9, 64, 511])
def test_bits_come_back(n):
    right = np.random.default_rng(n).random(n) < .5
    assert unpacked(packed(right), n).tolist() == right.astype(float).tolist()
    assert len(packed(right)) == 2 * math.ceil(n / 8)
    with pytest.raises(ValueError, match='expected the bits'): unpacked(packed(right), n + 8)


def test_the_bootstrap_draws_seeds_and_questions_again():
    rng = np.random.default_rng(0)
    by_seed, by_question = rng.standard_normal((6, 1)), rng.standard_normal(80)
    width = lambda x, **how: (lambda i: i.high - i.low)(crossed(np.broadcast_to(x, (6, 80)), ['a'] * 80, **how))
    assert width(np.zeros((6, 80))) == 0
    for values, sd, n in ((by_seed, by_seed.std(), 6), (by_question, by_question.std(), 80)):
        assert width(values) == pytest.approx(2 * 1.96 * sd / math.sqrt(n), rel=.12)
    both = width(by_seed + by_question)
    assert both == pytest.approx(math.hypot(width(by_seed), width(by_question)), rel=.1)
    assert width(by_question, rng=np.random.default_rng(1)) != width(by_question) == width(by_question)
    half = ['a'] * 40 + ['b'] * 40
    known = np.repeat([0., 1.], 40)             # all of the difference is between the strata, which are not drawn
    assert crossed(np.tile(known, (6, 1)), half).low == pytest.approx(.5)
    assert crossed(np.tile(known, (6, 1)), ['a'] * 80).low < .45
    for wrong in (np.zeros(3), np.zeros((0, 3)), np.zeros((2, 4))):
        with pytest.raises(ValueError, match='seeds, questions'): crossed(wrong, ['a'] * 3)


def test_resampled_means_are_those_of_drawn_rows_and_columns():
    "Against the same thing done slowly"
    values, rng = np.random.default_rng(3).random((4, 12)), np.random.default_rng(5)
    slow = [values[rng.integers(4, size=4)][:, rng.integers(12, size=12)].mean() for _ in range(6000)]
    fast = crossed(values, [0] * 12, resamples=6000)
    assert [fast.low, fast.high] == pytest.approx(np.quantile(slow, [.025, .975]), abs=.015)


def cell(condition, seed, right, way='adapter', **more):
    right = np.asarray(right, bool)
    half = len(right) // 2
    part = {'families': {'a': [int(right[:half].sum()), half], 'b': [int(right[half:].sum()), len(right) - half]},
            'bits': packed(right), 'gflops': .1, 'cost': 1.}
    return dict(format=1, condition=condition, seed=seed, hashes={}, gflops=2., ways={way: {'id': part}}, **more)


def test_differences_are_taken_seed_by_seed():
    "Where one lacks a seed, the other's seed is not compared, though it counts for its own mean"
    rng = np.random.default_rng(0)
    cells = [cell(name, seed, rng.random(60) < .6) for name, seeds in (('a', range(5)), ('b', range(1, 6)))
             for seed in seeds]
    results = Results(cells)
    gap, seeds = results.gap('a', 'b', ('id',))
    assert seeds == [1, 2, 3, 4] and gap.shape == (4, 60)
    assert (gap == results.right('a', ('id',), None, seeds) - results.right('b', ('id',), None, seeds)).all()
    by_family = results.families('a', ('id',))
    assert by_family.to_numpy() @ [.5, .5] == pytest.approx(results.right('a', ('id',)).mean(1))


def test_a_life_that_ends_with_one_organelle_counts_by_its_one_way():
    ways = cell('a', 1, [1, 1, 1, 0])['ways']
    alive = cell('a', 1, [1, 1, 1, 0]) | {'ways': {'routed': ways['adapter'], 'best': ways['adapter']}}
    results = Results([alive, cell('a', 2, [0, 0, 1, 0])])
    assert results.ways('a') == ['routed', 'best']
    for way in (None, 'routed', 'best'): assert results.right('a', ('id',), way).mean(1).tolist() == [.75, .25]


def test_cells_of_another_cost_version_are_refused():
    old, new = (cell(name, 1, [1, 0]) | {'hashes': {'cost': version}} for name, version in (('a', '1'), ('b', '2')))
    with pytest.raises(ValueError, match='counted alike, got cost versions 1 and 2; make the older ones again'):
        Results([old, new])
    assert Results([old, old | {'condition': 'b'}]).right('b', ('id',)).tolist() == [[1., 0.]]


def test_what_is_missing_is_no_number():
    results = Results([cell('a', 1, [1, 0]), cell('a', 2, [1, 0], sampled={'accuracy': .5})])
    assert math.isnan(results.mean('a', 'sampled', 'accuracy'))
    assert results.mean('a', 'ways', 'adapter', 'id', 'gflops') == .1
    assert as_rows(pd.DataFrame({'x': [1., math.nan]})) == [{'x': 1.}, {'x': None}]
    with pytest.raises(ValueError, match='evolora study'): Results([])


def test_gathered_cells_may_have_blank_lines_and_a_byte_order_mark(tmp_path):
    rows = [json.dumps(cell('a', seed, [1, 0])) for seed in (1, 2)]
    (tmp_path / 'cells.jsonl').write_text('\ufeff' + '\n\n'.join(rows) + '\n \n', encoding='utf-8')
    assert read_cells(tmp_path) == [json.loads(row) for row in rows]


def test_a_cell_without_the_usual_questions_is_refused(tmp_path):
    ways = cell('a', 1, [1, 0])['ways']
    (tmp_path / 'cells.jsonl').write_text(json.dumps(cell('a', 1, [1, 0]) | {
        'ways': {name: {'ood': parts['id']} for name, parts in ways.items()}}))
    with pytest.raises(ValueError, match='line 1: expected a cell of a study, .*the questions id in every way'):
        read_cells(tmp_path)


@pytest.mark.parametrize('damage', ('', '{', '[]', '{"format": 1}', '{"format": 1, "ways": 1, "hashes": 1, "seed": 1}',
                                    '{"format": 1, "ways": {}, "hashes": {}, "condition": "x", "seed": "1"}',
                                    '{"format": 2, "ways": {}, "hashes": {}, "condition": "x", "seed": 1}'))
def test_a_damaged_cell_is_named(tmp_path, damage):
    (tmp_path / 'cells').mkdir()
    (tmp_path / 'cells/a-1.json').write_text(damage)
    with pytest.raises(ValueError, match='a-1.json') as error: read_cells(tmp_path)
    assert '\n' not in str(error.value)
    (tmp_path / 'cells/a-1.json').unlink()
    (tmp_path / 'cells.jsonl').write_text(json.dumps(cell('a', 1, [1, 0])) + '\n' + damage + '\n')
    if damage:
        with pytest.raises(ValueError, match='cells.jsonl, line 2'): read_cells(tmp_path)


def test_an_interval_that_touches_zero_does_not_lie_above_it():
    assert target('x', '> 0', 0.)['met'] is False and target('x', '> 0', 1e-9)['met'] is True
    assert target('x', '> 0', None)['met'] is None
