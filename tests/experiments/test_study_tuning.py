"""Tuning: as many trials for every condition, on selection questions, the same whoever makes them."""
import json

import numpy as np
import pytest
from experiments.test_study import run

from evolora.cli.app import main
from evolora.experiments import study as module
from evolora.experiments.study import Study, Unfinished
from evolora.experiments.study_plan import Plan, grid, load_plan
from evolora.experiments.study_report import report
from evolora.experiments.study_results import packed
from evolora.experiments.study_tuning import begun, round_plan, rounds, trials_of

TEXT = '''
name: fair
question: Which rule is better?
seeds: 2
budgets: 80
conditions: [frozen, ecology, {name: mine, of: sft}, sft_bits]
measured: {id: 36}
comparisons: [{of: ecology, against: [mine]}]
tuning:
  trials: 4
  budget: 40
  questions: 24
  halving: true
  knobs:
  - {of: [mine, sft_bits], values: {plasticity.learning_rate: [.001, .002, .01], rank: [2, 4]}}
  - {of: ecology, values: {plasticity.learning_rate: [.01, .04], capacity: [10, 12, 14]}}
'''


def rate(condition):
    "Settings are better the higher their learning rate; the host knows a third"
    if condition.source == 'nothing': return .3
    own = condition.config().plasticity if condition.source == 'life' else condition.plasticity
    return min(.95, .4 + 10 * own.learning_rate)


def made(plan, cell, known, folder=None, every=10):
    n = plan.measured.id
    right = np.arange(n) < rate(plan.condition(cell)) * n
    return {'format': 1, 'study': plan.name, 'condition': cell.condition, 'seed': cell.seed, 'host': cell.host,
            'world': cell.world, 'asked': cell.budget, 'hashes': {'code': 'x'}, 'gflops': cell.budget,
            'spent': {'episodes': 10, 'right': 4}, 'ways': {'adapter': {'id': {
                'families': {'math': [int(right.sum()), n]}, 'bits': packed(right), 'gflops': .1, 'cost': 1.}}}}


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.setattr(module, 'make_cell', made)
    monkeypatch.setattr(module, 'hashes_of_cell', lambda *_: {'code': 'x'})
    monkeypatch.setattr(module, 'host_of', lambda plan, cell: None)
    (tmp_path / 'plan.yaml').write_text(TEXT)
    return load_plan(tmp_path / 'plan.yaml')


def test_the_best_settings_go_into_the_study(plan, tmp_path):
    study, cells, lines = run(plan, tmp_path / 'x')
    best = max(trials_of(plan, 'mine'), key=lambda s: s.get('plasticity.learning_rate', .005))
    assert study.final.variant('mine').condition().plasticity.learning_rate == best['plasticity.learning_rate'] == .01
    assert study.final.variant('frozen') == plan.variant('frozen') and study.final.tuning is None
    right = {c['condition']: c['ways']['adapter']['id']['families']['math'][0] for c in cells}
    assert right['mine'] == round(.5 * 36) and right['frozen'] == 11
    assert sum('trials are there' in line for line in lines) == 2
    table = json.loads((tmp_path / 'x/tuning.json').read_text())['trials']
    by = {name: [r for r in table if r['condition'] == name] for name in ('ecology', 'mine', 'sft_bits')}
    assert {name: len(own) for name, own in by.items()} == dict.fromkeys(by, 4 + 2)
    assert {name: sum(r['GFLOPs'] for r in own) for name, own in by.items()} == dict.fromkeys(by, 4 * 20. + 2 * 40.)
    page = report(study).read_text()
    assert 'Tuning: 4 trials of each condition on 24 selection questions, in rounds of 4 at 20 GFLOPs and 2' in page
    assert r'plasticity.learning\_rate 0.01' in page and (tmp_path / 'x/report/tuning.csv').exists()


def test_trials_use_other_seeds_and_no_holdout(plan):
    for number, (_, budget) in enumerate(rounds(plan.tuning), 1):
        part = round_plan(plan, number, {c: [0, 1, 2, 3] for c in ('ecology', 'mine', 'sft_bits')})
        assert part.measured.stream == 'selection' and not set(part.seeds) & set(plan.seeds)
        assert part.budgets == (budget,) and part.variant('sft_bits_t01').examples_of == 'ecology_t00'
        assert not part.comparisons and 'frozen' not in {c.name for c in part.conditions}


def test_a_second_call_tunes_nothing_and_shards_choose_the_same(plan, tmp_path):
    one, cells, _ = run(plan, tmp_path / 'one')
    record = (tmp_path / 'one/tuning.json').read_bytes()
    assert run(plan, tmp_path / 'one')[1] == cells and (tmp_path / 'one/tuning.json').read_bytes() == record
    for again in range(8):
        last = [run(plan, tmp_path / 'parts', shard=(i, 3))[2] for i in (1, 2, 3)]
        if len(Study(plan, tmp_path / 'parts').cells()) == 8: break
    assert again <= 2 and (tmp_path / 'parts/tuning.json').read_bytes() == record
    assert one.gather().read_bytes() == Study(plan, tmp_path / 'parts').gather().read_bytes()
    assert not any('FAILED' in line for lines in last for line in lines)


def test_a_trial_that_fails_is_out_and_all_of_them_are_an_error(plan, tmp_path, monkeypatch):
    def broken(plan, cell, *rest, **how):
        if cell.condition.startswith('mine_t') and rate(plan.condition(cell)) >= worst: raise ValueError('blown up')
        return made(plan, cell, *rest, **how)
    worst = .5
    monkeypatch.setattr(module, 'make_cell', broken)
    study, _, lines = run(plan, tmp_path / 'x')
    assert study.final.variant('mine').condition().plasticity.learning_rate < .01
    assert any('blown up' in line for line in lines)
    worst = 0.
    with pytest.raises(ValueError, match='tuning expected a trial of mine that ends'): run(plan, tmp_path / 'y')
    assert not (tmp_path / 'y/tuning.json').exists() and not (tmp_path / 'y/cells/mine-1.json').exists()


def test_a_trial_of_which_one_seed_failed_is_no_winner(plan, tmp_path, monkeypatch):
    twice = plan.model_copy(update={'tuning': plan.tuning.model_copy(update={'seeds': 2})})
    last = max(twice.seeds) + 101
    def broken(plan, cell, *rest, **how):
        best = cell.condition.startswith('mine_t') and rate(plan.condition(cell)) >= .5
        if best and cell.seed == last: raise ValueError('blown up')
        return made(plan, cell, *rest, **how)
    monkeypatch.setattr(module, 'make_cell', broken)
    study, *_ = run(twice, tmp_path / 'x')
    assert study.final.variant('mine').condition().plasticity.learning_rate < .01


@pytest.mark.parametrize('old, new, says', [
    ('rank: [2, 4]', 'rank: [2, 2]', 'each value once'), ('rank: [2, 4]', 'name: [a, b]', "got 'name'"),
    ('trials: 4', 'trials: 3', '4 or more'), ('name: mine', f'name: {"m" * 35}', 'tuning.knobs'),
    ('rank: [2, 4]', 'plasticity: [1, 2]', 'inside of another'), ('trials: 4', 'trials: 1000', 'other settings')])
def test_trials_are_not_padded(tmp_path, old, new, says):
    assert old in TEXT
    (tmp_path / 'x.yaml').write_text(TEXT.replace(old, new))
    with pytest.raises(ValueError) as error: Study(tmp_path / 'x.yaml', tmp_path / 'x')
    assert says in str(error.value) and '\n' not in str(error.value)


def test_a_cell_that_fails_later_keeps_the_tuning(plan, tmp_path, monkeypatch):
    def broken(plan, cell, *rest, **how):
        if cell == ('mine', 2, 'embedded', 80., 'default'): raise ValueError('gone')
        return made(plan, cell, *rest, **how)
    monkeypatch.setattr(module, 'make_cell', broken)
    with pytest.raises(Unfinished, match='1 of 8 cells failed'): run(plan, tmp_path / 'x')
    assert list(Study(plan, tmp_path / 'x').failed.values()) == ['gone']
    monkeypatch.setattr(module, 'make_cell', made)
    assert len(run(plan, tmp_path / 'x')[1]) == 8 and not Study(plan, tmp_path / 'x').failed


@pytest.mark.parametrize('old, new, says', [
    ('  - {of: ecology, values: {plasticity.learning_rate: [.01, .04], capacity: [10, 12, 14]}}\n', '',
     'got none of ecology: arms with unequal trials'),
    ('{of: ecology, values', '{of: [ecology, frozen], values', 'got some of frozen'),
    ('of: ecology, values', 'of: ecolgy, values', "got 'ecolgy'"), ('trials: 4', 'trials: 1', 'tuning.trials'),
    ('rank: [2, 4]', 'rank: 2', 'for each setting a list'), ('budget: 40', 'budget: .inf', 'tuning.budget')])
def test_what_does_not_fit_is_one_line(tmp_path, old, new, says):
    assert old in TEXT
    (tmp_path / 'x.yaml').write_text(TEXT.replace(old, new))
    with pytest.raises(ValueError) as error: load_plan(tmp_path / 'x.yaml')
    assert says in str(error.value) and '\n' not in str(error.value)


@pytest.mark.parametrize('knob, says', [('rnk: [2, 3, 5, 7]', 'rnk'), ('rank: [0, -1, -2, -3]', 'rank'),
                                        ('rank: [2, 4]', 'at least 3 other settings of mine, got 2')])
def test_a_knob_that_does_not_fit_is_one_line_before_any_work(tmp_path, capsys, monkeypatch, knob, says):
    monkeypatch.chdir(tmp_path)
    text = TEXT.replace('{plasticity.learning_rate: [.001, .002, .01], rank: [2, 4]}', f'{{{knob}}}')
    (tmp_path / 'x.yaml').write_text(text)
    with pytest.raises(SystemExit) as end: main(['study', 'x.yaml'])
    err = capsys.readouterr().err
    assert end.value.code == 2 and says in err and len(err.strip().splitlines()) == 1, err
    assert not (tmp_path / 'runs').exists()


@pytest.mark.parametrize('text', ['{}', '[]', '{"fingerprint": "x", "chosen": {"mine": 1}}', None])
def test_an_outcome_of_another_study_is_refused(plan, tmp_path, text):
    study, *_ = run(plan, tmp_path / 'x')
    record = json.loads((tmp_path / 'x/tuning.json').read_text())
    record['chosen']['mine'] = 99
    (tmp_path / 'x/tuning.json').write_text(text or json.dumps(record))
    with pytest.raises(ValueError, match='tuning.json') as error: study.final
    assert '\n' not in str(error.value)


def test_a_plan_comes_back_from_json(plan):
    assert Plan.model_validate_json(plan.model_dump_json()) == plan
    assert Plan.model_validate_json(plan.model_dump_json()).fingerprint == plan.fingerprint


def test_trials_run_in_the_worlds_that_tuning_names(plan, tmp_path):
    "and their settings hold in every world"
    changed = TEXT.replace('tuning:\n', 'worlds: [{name: calm}, {name: wild}]\ntuning:\n  worlds: [wild]\n')
    (tmp_path / 'two.yaml').write_text(changed)
    two = load_plan(tmp_path / 'two.yaml')
    assert {c.world for c in grid(round_plan(two, 1, begun(two)))} == {'wild'}
    study, cells, _ = run(two, tmp_path / 'two')
    assert study.tried.chosen['ecology'] and all(t.accuracy is not None for t in study.tried.trials)
    assert {c['world'] for c in cells} == {'calm', 'wild'}
    assert 'Tuning in wild: 4 trials' in report(study).read_text()


def test_a_world_that_the_study_has_not_is_refused(plan, tmp_path):
    (tmp_path / 'other.yaml').write_text(TEXT.replace('tuning:\n', 'tuning:\n  worlds: [mars]\n'))
    with pytest.raises(ValueError, match="tuning.worlds expected worlds of the study, got 'mars'"):
        load_plan(tmp_path / 'other.yaml')
