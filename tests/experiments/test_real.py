"""A real host: what is measured there, and the lives that were committed."""
from pathlib import Path

import pandas as pd
import pytest

from evolora.experiments import real
from evolora.ecology.config import load_config
from evolora.experiments.study_results import Results, read_cells
from evolora.experiments.suite import suite_plan

RESULTS = Path(__file__).parents[2] / 'nbs/experiments/results'


def test_a_generation_of_other_size():
    config = load_config('real')
    larger = real.of_answers(config, 128)
    answers = lambda c: c.market.questions * c.curriculum.copies
    assert answers(larger) == 128 != answers(config)
    assert real.of_answers(config, 1).market.questions == 1


def test_what_was_not_measured_is_no_target_met():
    equal = pd.DataFrame({'kept': [True], 'whole': [True], 'margin': [1.], 'sure': [True]})
    rows = real.real_targets(None, {'questions': 16, 'ratios': [9.]}, equal, 0., [],
                             suite_plan('smollm2-135m-q4'), {}, None, [])
    measured = {r['name'] for r in rows if r['met'] is not None}
    assert measured == {'sure greedy answers unlike those of transformers',
                        'largest difference to peft, log-probability'}


def test_families_of_committed_lives_fit_the_order_of_their_answers():
    for cell in read_cells(RESULTS / 'real'):
        right = {way: Results([cell]).right(cell['condition'], ('id',), way)[0] for way in cell['ways']}
        for way, own in right.items():
            at = 0
            for family, (k, n) in cell['ways'][way]['id']['families'].items():
                assert own[at:at + n].sum() == k, (cell['condition'], cell['seed'], family)
                at += n
