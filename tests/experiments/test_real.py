"""The experiment on a real host, lived on the embedded one: what it counts, keeps, refuses and adds up."""
import json
import shutil
from pathlib import Path

import pandas as pd
import pytest

from evolora.experiments import real
from evolora.experiments.ecology_vs_rivals import gather, read_cells
from evolora.tasks.forms import Form
from evolora.tasks.task_sets import task_hashes

RESULTS = Path(__file__).parents[2] / 'nbs/experiments/results'
README = (Path(__file__).parents[2] / 'README.md').read_text(encoding='utf-8')

CELLS = ['string.sort:1', 'json_repair:1']
PRICES = {'economy': {'price_gflop': .5, 'price_token': .01}, 'max_new_tokens': 24}


def settings(**more):
    return real.Settings(**dict(host='embedded', form=Form(), cells=CELLS, changes=PRICES, generations=2, questions=6,
                                routing=2) | more)


@pytest.fixture(scope='module')
def lived(tmp_path_factory):
    folder = tmp_path_factory.mktemp('real')
    return folder, real.experiment(folder, settings(), (1, 2), jobs=1, log=lambda line: None)


def of(cells, arm, seed): return next(c for c in cells if (c['condition'], c['seed']) == (arm, seed))


def test_every_arm_lives_once_a_seed_and_the_frozen_host_once(lived):
    found = sorted((c['condition'], c['seed']) for c in lived[1])
    assert found == sorted([('frozen', 1), *((a, s) for a in real.ARMS[1:] for s in (1, 2))])
    table = real.summary(lived[1])
    assert list(table.index) == list(real.ARMS) and table.seeds['frozen'] == 1 and (table.seeds[1:] == 2).all()


def test_rivals_get_what_the_ecology_of_their_seed_has_used(lived):
    for arm in ('single', 'rft', 'sft'):
        for seed in (1, 2):
            budget = of(lived[1], 'ecology', seed)['gflops']
            assert .8 * budget < of(lived[1], arm, seed)['gflops'] < 1.2 * budget
    assert of(lived[1], 'frozen', 1)['gflops'] == 0 and of(lived[1], 'frozen', 1)['changed'] == 0


def test_the_same_seed_is_the_same_life(lived, tmp_path):
    again = real.run_arm(tmp_path, settings(), 'ecology', 1)
    timing = {'seconds', 'generation_seconds'}
    strip = lambda c: {k: x for k, x in c.items() if k not in timing}
    assert strip(json.loads(json.dumps(again))) == strip(of(lived[1], 'ecology', 1))


def test_what_is_there_is_not_lived_again_and_other_settings_are_refused(lived, monkeypatch):
    folder, cells = lived
    monkeypatch.setattr(real, 'run_arm', lambda *work: pytest.fail('it was lived again'))
    assert len(real.experiment(folder, settings(), (1, 2), jobs=1)) == len(cells)
    for other in (settings(generations=3), settings(cells=CELLS[:1]), settings(steps=real.STEPS | {'sft': .5})):
        with pytest.raises(ValueError, match='name a new folder'): real.experiment(folder, other, (1, 2), jobs=1)


def test_a_life_does_not_depend_on_the_steps_of_its_rivals(lived, tmp_path):
    cells = [c for c in lived[1] if c['condition'] != 'sft']
    (tmp_path / 'back').mkdir()
    (tmp_path / 'back' / 'cells.jsonl').write_text(''.join(json.dumps(c) + '\n' for c in cells))
    other = settings(steps=real.STEPS | {'sft': .5})
    assert len(real.experiment(tmp_path / 'back', other, (1, 2), names=real.ARMS[:-1], jobs=1)) == len(cells)


def test_an_experiment_goes_on_from_gathered_cells(lived, tmp_path, monkeypatch):
    folder = Path(shutil.copytree(lived[0], tmp_path / 'copy'))
    path = gather(folder)
    assert path == folder / 'cells.jsonl' and not list((folder / 'cells').glob('*')) and read_cells(folder) == lived[1]
    monkeypatch.setattr(real, 'run_arm', lambda *work: pytest.fail('it was lived again'))
    assert real.summary(real.experiment(folder, settings(), (1, 2), jobs=1)).equals(real.summary(lived[1]))
    monkeypatch.undo()
    path.write_text(''.join(json.dumps(c) + '\n' for c in lived[1] if c['condition'] != 'single'))
    again = real.experiment(folder, settings(), (1, 2), jobs=1)     # a budget is read from the gathered ecology
    assert real.summary(again).equals(real.summary(lived[1])) and gather(folder) == path


@pytest.mark.parametrize('damage', ('', '{', '[]', '{"format": 1}', '{"format": 1, "ways": 1, "hashes": 1, "seed": 1}',
                                    '{"format": 1, "ways": 1, "hashes": 1, "condition": "x", "seed": "1"}'))
def test_a_damaged_line_is_named_and_nothing_is_written(lived, tmp_path, damage):
    folder = Path(shutil.copytree(lived[0], tmp_path / 'copy'))
    path = gather(folder)
    first, *rest = path.read_text().splitlines()
    path.write_text('\n'.join([first, damage, *rest]) + '\n')
    before = path.read_bytes()
    with pytest.raises(ValueError, match='line 2, expected a cell'): gather(folder)
    assert path.read_bytes() == before


def test_every_arm_is_tuned_by_equal_trials_on_selection_questions(tmp_path, monkeypatch):
    asked, draw = set(), real.draw_tasks
    def listening(*cells, stream, **how):
        asked.add(stream)
        return draw(*cells, stream=stream, **how)
    monkeypatch.setattr(real, 'draw_tasks', listening)
    how = dict(steps=(.002, .02), budget=3., generations=1, jobs=1)
    table = real.tune(tmp_path, settings(), how.pop('steps'), **how, log=lambda line: None)
    assert asked == {'selection'}
    assert table.groupby('arm').size().to_dict() == dict.fromkeys(real.ARMS[1:], 2)
    assert table[table.arm != 'ecology'].GFLOPs.between(2, 4).all()
    monkeypatch.setattr(real, 'run_arm', lambda *work: pytest.fail('a trial was lived again'))
    assert real.tune(tmp_path, settings(), (.002, .02), **how, log=lambda line: None).equals(table)
    with pytest.raises(ValueError, match='name a new folder'):
        real.tune(tmp_path, settings(), (.002, .02), **how | {'budget': 4.})


def test_a_generation_of_other_size():
    usual, larger = (c.curriculum for c in (settings().config(), real.of_answers(settings().config(), 128)))
    assert larger.max_rows == larger.budget_max == 128
    assert larger.budget == usual.budget * 128 / usual.max_rows


def test_what_was_not_measured_is_no_target_met():
    equal = pd.DataFrame({'kept': [True], 'whole': [True], 'margin': [1.], 'sure': [True]})
    rows = real.real_targets(None, {'questions': 16, 'ratios': [9.]}, equal, 0., [], [], None, [])
    measured = {r['name'] for r in rows if r['met'] is not None}
    assert measured == {'sure greedy answers unlike those of transformers',
                        'largest difference to peft, log-probability'}


@pytest.mark.parametrize('name', ('.', 'longer', 'real', 'real_ten_cells'))
def test_committed_lives_are_of_the_questions_that_readme_says(name):
    "Of today's, or of those of before, which README names: nobody can repeat these, or go on with them"
    before, marks = {'streams': '79eff44281fa29a6', 'grader': 'd2911b1a7e228625'}, task_hashes()
    for cell in read_cells(RESULTS / name):
        own = {k: cell['hashes'][k] for k in marks}
        assert own == marks or own == before and 'of the questions and graders of before' in README


@pytest.mark.parametrize('name', ('real', 'real_ten_cells'))
def test_families_of_committed_lives_fit_the_order_of_their_answers(name):
    for cell in read_cells(RESULTS / name):
        right, at = real._right(cell), 0
        for family, (k, n) in cell['ways']['first']['id']['families'].items():
            assert right[at:at + n].sum() == k, (cell['condition'], cell['seed'], family)
            at += n
