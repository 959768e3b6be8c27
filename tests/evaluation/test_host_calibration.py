"""Calibration: what can be learned, at which rates cost is counted, and a clear no."""
import json
import os
from math import comb

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evolora.evaluation import host_calibration as module
from evolora.evaluation.host_calibration import (Calibration, Effort, calibrate, calibration_of, candidate_cells,
                                            keep_calibration, known_calibration, mixed, pass_at, rehearse)
from evolora.economy.prices import EconomyConfig, answer_cost, revenue, reward
from evolora.ecology.config import load_config
from evolora.ecology.ecology import Ecology
from evolora.tasks.forms import FORMS
from evolora.host.model import load_host, tiny_host
from evolora.tasks.families import FAMILIES, OOD_FAMILIES, Cell, usual
from evolora.tasks.splits import stream_of

SOME = [Cell.parse(c) for c in ('math:1', 'string.sort:1', 'logic.bool:1', 'code.format:1')]
FEW = Effort(families=2, questions=1, answers=2, look=2, cells=4, measure=3)


@pytest.fixture(scope='module')
def embedded(): return load_host('embedded', threads=1)


@pytest.fixture(scope='module')
def found(embedded): return calibrate(embedded, cells=SOME, effort=FEW)


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch): monkeypatch.setenv('EVOLORA_CACHE', str(tmp_path / 'cache'))


@given(st.integers(1, 12), st.data())
def test_pass_at_k_is_the_share_of_hands_with_a_right_one(n, data):
    right, k = data.draw(st.integers(0, n)), data.draw(st.integers(1, n))
    assert pass_at(k, n, right) == pytest.approx(1 - comb(n - right, k) / comb(n, k))
    assert mixed(k, n, right) == pytest.approx(1 - (comb(n - right, k) + comb(right, k)) / comb(n, k))


@pytest.mark.parametrize('wrong', ((0, 4, 1), (5, 4, 1), (2, 4, 5), (2, 4, -1)))
def test_impossible_hands_are_refused(wrong):
    with pytest.raises(ValueError, match='expected 0 <= right <= n'): pass_at(*wrong)


def test_candidates_are_easy_and_leave_something_to_measure_with():
    cells = candidate_cells()
    assert {c.family for c in cells} == set(usual()) - set(OOD_FAMILIES)
    assert all(c.depth < FAMILIES[c.family].lowest + 2 for c in cells)
    assert module.tasks_mark(cells, FORMS) == '453bd10860f85880', 'no calibration that is kept is made again'


def test_only_train_questions_are_asked(embedded, monkeypatch):
    asked = {}
    def recording(name, real):
        def ask(model, tasks, *args, **how):
            asked.setdefault(name, set()).update(stream_of(t) for t in tasks)
            return real(model, tasks, *args, **how)
        monkeypatch.setattr(module, name, ask)
    for name in ('samples', 'answer'): recording(name, getattr(module, name))
    calibrate(embedded, cells=SOME, effort=FEW)
    assert asked == {'samples': {'train'}, 'answer': {'train'}}


def test_what_is_open_is_what_greedy_answers_leave_and_samples_reach():
    rows = [dict(cell='a:1', task=t, success=s, greedy=g, parsed=True, progress=0., prompt_tokens=1, new_tokens=1,
                 gflops=1.) for t, hits, g in (('x', 4, True), ('y', 4, False), ('z', 0, False))
            for s in [True] * hits + [False] * (8 - hits)]
    line = module._cells(pd.DataFrame(rows).assign(cell='math:1')).loc['math:1']
    assert line.open == pytest.approx((0 + pass_at(4, 8, 4) + 0) / 3) and line.greedy == pytest.approx(1 / 3)
    assert line.mixed == pytest.approx(2 * mixed(4, 8, 4) / 3) and line['pass@8'] == pytest.approx(2 / 3)


def test_cells_that_are_right_greedily_or_by_guessing_are_not_chosen():
    table = pd.DataFrame({'mixed': [.9, .5, .5, .1, .5], 'open': [0., .2, .4, .4, .4], 'pass@1': .3,
                          'chance': [0., .1, .2, .1, .33]}, index=['a:1', 'b:1', 'c:1', 'd:1', 'e:1'])
    assert module._choice(table) == ['b:1', 'c:1']


def test_where_the_hardest_cell_is_easy_the_next_depth_is_tried(embedded):
    seen = pd.DataFrame({'greedy': {'math:1': 1., 'math:2': 1., 'code.format:1': .5, 'logic.bool:3': 1.,
                                    'date.iso:1': 1.}})
    assert module._harder(seen) == [Cell('math', 3), Cell('date.iso', 2)]      # depth 4 is for the holdout
    found = calibrate(embedded, cells=SOME, effort=FEW.model_copy(update={'deeper': 5}))
    assert set(found.table.index) == {str(c) for c in SOME}                    # named cells are taken as they are


def test_no_more_is_asked_than_was_announced(embedded):
    asked = []
    found = calibrate(embedded, cells=SOME, effort=FEW, on_way=lambda *now: asked.append(now))
    total = FEW.total(len(FORMS), len(SOME), 4)
    assert found.answers <= total and all(done <= all_ == total for _, done, all_ in asked) and asked[-1][1] == total


def test_the_embedded_host_wants_bare_questions_in_cells_it_half_knows(found):
    assert found.form == 'plain' and set(found.chosen) <= {str(c) for c in SOME}
    best = found.table.loc[found.chosen]
    assert (best['mixed'] >= module.LEAST).all() and (best['pass@1'] < 1).all()


def test_the_same_host_gives_the_same_calibration(embedded, found):
    again = calibrate(embedded, cells=SOME, effort=FEW)
    assert again.model_dump(exclude={'seconds'}) == found.model_dump(exclude={'seconds'})


def test_the_answers_that_were_measured_return_what_they_cost():
    rows = pd.DataFrame({'progress': [1., .2, 0.], 'success': [True, False, False], 'gflops': [2., 1., 3.],
                         'prompt_tokens': [10, 10, 10], 'new_tokens': [2, 6, 4]})
    config = EconomyConfig(**module._rates(rows, EconomyConfig()))
    worth = reward(config, rows.progress, rows.success).total
    cost = answer_cost(config, rows.gflops, rows.prompt_tokens + rows.new_tokens)
    assert np.sum(revenue(worth)) / cost.sum() == pytest.approx(1, rel=1e-6)
    assert (config.price_gflop * rows.gflops).sum() == pytest.approx(cost.sum() / 2, rel=1e-6)


@pytest.mark.parametrize('cells, about, found', [(1, 16, 16), (5, 16, 15), (7, 16, 14), (12, 16, 12), (12, 4, 12),
                                                 (3, 32, 33)])
def test_every_cell_gets_equally_many_questions(cells, about, found): assert module._questions(cells, about) == found


def test_what_was_found_is_a_configuration_that_lives(embedded, found):
    config = found.apply(load_config('single'))
    assert set(found.changes) == {'economy', 'market', 'max_new_tokens', 'batch'}
    assert config.market.questions % len(found.chosen) == 0 and config.cells == found.chosen
    record = Ecology(embedded, config).step()
    assert {cell['episodes'] for cell in record.row['cells'].values()} == {
        config.curriculum.copies * config.market.questions // len(found.chosen)}
    assert .4 < record.row['roi'] < 2.5


@pytest.mark.parametrize('host', ('tiny', 'silent'))
def test_a_host_that_cannot_earn_is_refused_in_one_line(host, monkeypatch):
    model = tiny_host('llama')
    if host == 'silent': model.ends = list(range(len(model.tokenizer)))     # every token ends an answer
    with pytest.raises(ValueError) as error: calibrate(model, cells=SOME, effort=FEW)
    message = str(error.value)
    assert '\n' not in message and '0.0% are right in 4 cells' in message and 'the nearest is' in message


def test_what_is_known_is_kept_for_these_weights_and_tasks_only(embedded, found):
    assert known_calibration(embedded, cells=SOME) is None
    path = keep_calibration(embedded, found)
    assert known_calibration(embedded, cells=SOME) == found
    assert known_calibration(embedded, cells=SOME[:2]) is None
    assert known_calibration(tiny_host(), cells=SOME) is None
    assert known_calibration(embedded, cells=SOME, forms={'plain': FORMS['plain']}) is None
    for damage in (path.read_text()[:200], '{}', '[]', 'null', '\0', json.dumps(found.model_dump() | {'tasks': 'x'}),
                   json.dumps(found.model_dump() | {'format': 99}), json.dumps(found.model_dump() | {'form': 'odd'})):
        path.write_text(damage)
        assert known_calibration(embedded, cells=SOME) is None


def test_a_cache_that_cannot_be_written_is_no_trouble(embedded, found, tmp_path, monkeypatch):
    (tmp_path / 'file').write_text('')
    monkeypatch.setenv('EVOLORA_CACHE', str(tmp_path / 'file'))
    assert keep_calibration(embedded, found) is None and known_calibration(embedded, cells=SOME) is None


def test_the_calibration_of_a_run(tmp_path, found):
    assert calibration_of(tmp_path) is None
    (tmp_path / 'calibration.json').write_text(found.model_dump_json())
    assert calibration_of(tmp_path) == found
    for text in ('', '{', '{"format": 1}', '[1]'):
        (tmp_path / 'calibration.json').write_text(text)
        with pytest.raises(ValueError, match='expected a calibration, got something else'): calibration_of(tmp_path)


def test_it_is_shown_as_a_table(found):
    shown = found._repr_markdown_()
    assert 'answers best in the form *plain*' in shown and all(f'**{c}**' in shown for c in found.chosen)


def test_a_rehearsal_touches_nothing_else(embedded):
    config = load_config('debug')
    before, random = embedded.weights_hash(), np.random.get_state()[1].tolist()
    forecast = rehearse(embedded, config)
    assert forecast.answers == 48 and forecast.seconds > 0 and forecast.memory > 1e7
    assert forecast.alone > forecast.gflops > 0 and 'if every text were read whole' in str(forecast)
    assert embedded.weights_hash() == before and np.random.get_state()[1].tolist() == random
    assert not os.listdir(os.environ['EVOLORA_CACHE']) if os.path.exists(os.environ['EVOLORA_CACHE']) else True


def test_a_calibration_is_strict_about_its_fields(found):
    with pytest.raises(ValueError): Calibration.model_validate(found.model_dump() | {'extra': 1})
