"""Two lives of one seed: equal compute, one difference, cells made once, and targets that report what was found."""
import json
import math

import numpy as np
import pandas as pd
import pytest

from evolora.assimilation.merge_test import Merge
from evolora.experiments import merge_ablation
from evolora.experiments.gate_calibration import Sizes
from evolora.experiments.baselines import Life
from evolora.host.model import load_host
from evolora.experiments.study import Study
from evolora.experiments.study_plan import load_plan
from evolora.experiments.study_results import crossed, packed
from evolora.experiments.merge_ablation import (acceptance, for_people, gains, lives, merges, report, rows, targets)


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    "Both lives of a seed, really lived, and a merge that the test put there"
    folder, real = tmp_path_factory.mktemp('made'), Life.update
    def update(self, n=1):
        real(self, n)
        if self.condition.name == 'with' and self.updates == 2:
            own = self.population.factors('o1')
            self.ecology.merges.append(Merge(1, 'o9', ('o1', 'o2'), {}, {'o1': own, 'o2': own, 'o9': own},
                                             {'o1': own}))
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Life, 'update', update)
        plan = load_plan('merges')
        first, twin = plan.conditions
        plan = plan.model_copy(update={
            'seeds': (1,), 'conditions': (first.model_copy(update={'generations': 3}), twin),
            'measured': plan.measured.model_copy(update={'id': 24, 'ood': 8, 'audit': 8})})
        return folder, Study(plan, folder / 'study').run(log=lambda line: None)


def cell(name, seed, right, *, audit=(), decisions=None, generations=60):
    "A cell of a full life, as if it had been lived"
    part = {'families': {'math': [int(sum(right)), len(right)]}, 'bits': packed(right)}
    return dict(condition=name, seed=seed, generations=generations, organelles=3, decisions=decisions or {},
                audit=list(audit), gflops=10., spent=dict(play=3., learn=4., evidence=3.),
                ways={way: dict.fromkeys(('id', 'ood_depth', 'ood_family'), part) for way in ('routed', 'best')})


def audited(wins, losses, n=100):
    gap = (wins - losses) / n
    return dict(generation=9, child='o3', parents='o1+o2', n=n,
                **{'admission': gap, 'admission low': gap - .1, 'admission high': gap + .1, 'admission wins': wins,
                   'admission losses': losses, 'later': None})


# --- lives

def test_the_twins_differ_in_one_thing():
    one, other = (c.condition().config().model_dump() for c in load_plan('merges').conditions)
    assert one['merging'].pop('share') > 0 == other['merging'].pop('share') and one == other


def test_the_twins_spend_the_same(made):
    one, other = made[1]
    assert [c['condition'] for c in made[1]] == ['with', 'without'] and one['generations'] == 3
    assert other['budget'] == one['gflops'] and other['gflops'] == pytest.approx(one['gflops'], rel=.1)
    for c in made[1]:
        assert c['gflops'] == pytest.approx(sum(c['spent'][k] for k in ('play', 'learn', 'evidence')))
        assert c['spent']['choose'] == 0


def test_a_merge_is_audited_in_the_cell(made):
    table = merges(made[1])
    assert table[['seed', 'child', 'parents', 'n']].values.tolist() == [[1, 'o9', 'o1+o2', 8]]
    assert (table.admission.item(), table.sampled.item()) == (0, 0) and table.later.isna().all()
    assert table.dtypes['later low'] == float


# --- the simulations

def test_the_simulations_are_kept_and_not_mixed(tmp_path, monkeypatch):
    host, calls = load_host('embedded', threads=1), []
    def measure(*arguments, **how):
        calls.append(1)
        return {'merges': pd.DataFrame({'rule': ['ties'], 'largest': [math.nan]})}
    monkeypatch.setattr(merge_ablation, 'measure', measure)
    first = acceptance(tmp_path, host, Sizes(runs=2), log=lambda line: None)
    again = acceptance(tmp_path, host, Sizes(runs=2), log=lambda line: None)
    assert calls == [1] and again['merges'].rule.tolist() == ['ties'] == first['merges'].rule.tolist()
    assert again['merges'].largest.isna().all()
    with pytest.raises(ValueError, match='tables of these settings'):
        acceptance(tmp_path, host, Sizes(runs=3), log=lambda line: None)


# --- the tables and targets of lives

def test_gains_are_paired():
    one, other = np.array([[1, 1, 0, 1], [1, 0, 1, 1]]), np.array([[1, 0, 0, 1], [0, 0, 1, 1]])
    cells = [cell('with', s, r) for s, r in enumerate(one)] + [cell('without', s, r) for s, r in enumerate(other)]
    row = gains([*cells, cell('with', 7, [1, 1, 1, 1])]).iloc[0]
    assert (row.holdout, row.seeds, row.estimate) == ('ID', 2, .25)
    assert (row.low, row.high) == crossed(one - other, ['math'] * 4)[1:]
    assert gains(cells[:2]).empty and gains([cells[0], cells[3]]).empty


def test_a_line_a_life():
    table = lives([cell('without', 2, [1, 0]), cell('with', 2, [1, 1], decisions={'took_over': 4, 'not_shown_equal': 3,
                                                                                 'no_pair': 9})])
    assert table.life.tolist() == ['with', 'without'] and table.merged.tolist() == [4, 0]
    assert table.tested.tolist() == [7, 0] and table.ID.tolist() == [1, .5]


FULL = [cell('with', 1, [1] * 20, decisions={'took_over': 3}, audit=[audited(10, 11, n=1000)]),
        cell('with', 2, [1] * 20, decisions={'took_over': 1}, audit=[audited(50, 10, n=1000)]),
        cell('without', 1, [1] * 10 + [0] * 10), cell('without', 2, [1] * 20)]


def test_targets_of_lives():
    found = {t['name']: (t['measured'], t['met']) for t in targets({}, FULL)}
    assert found['merges in the median run'] == (2, True)
    assert found['with − without merges, ID, equal GFLOPs'] == (.25, True)
    assert found['merged child − the pair, fresh questions, lower bound'][1] is True
    far = [FULL[0] | {'audit': [audited(10, 300, n=1000)]}, *FULL[1:]]
    assert [t['met'] for t in targets({}, far) if 'the pair' in t['name']] == [False]


def test_targets_of_simulations():
    simulated = {'nulls': pd.DataFrame({'e-value, every look': [.01, .02], 'e-value, every pair': [.04, .06],
                                        'naive, every look': [.3, .3]}),
                 'power': pd.DataFrame({'discordant': [.05, .1, .2], 'power': [1., .9, .3]}),
                 'planted': pd.DataFrame({'rule': ['e-LOND', 'naive'], 'FDR': [.01, .2]}),
                 'merges': pd.DataFrame({'largest': [1e-7, 2e-7]})}
    found = targets(simulated, [])
    assert [t['measured'] for t in found] == [.06, .9, .01, 2e-7, None, None, None]
    assert [t['met'] for t in found] == [False, True, True, True, None, None, None]


def test_short_lives_are_no_measurement():
    short = [c | {'generations': 12} for c in FULL]
    assert {t['met'] for t in targets({}, short)} == {None} and len(targets({}, [])) == 7


def test_every_number_is_json_and_people_get_less():
    found = report({'merges': pd.DataFrame({'rule': ['ties'], 'largest': [2e-7]})}, FULL)
    assert json.loads(json.dumps(rows(found), allow_nan=False)) == rows(found)
    assert {r['table'] for r in rows(found)} == set(found) and rows(found)[0]['largest'] == 2e-7
    shown = for_people(found)
    assert shown['Merges in ΔW against dense matrices'].largest.tolist() == ['2.0e-07']
    assert shown['Audits'].admission[1] == '+0.040 [-0.060, +0.140]' and shown['Audits'].later[0] == '–'
    assert shown['With − without, at equal GFLOPs'].columns.tolist() == ['holdout', 'who answers', 'seeds',
                                                                             'estimate', 'without strongest']
    assert 'evidence' not in shown['Lives'] and 'evidence' in shown['Bills of these lives, GFLOPs']
    assert report({}, []) == {} == for_people({})


def test_a_table_of_one_row_stands_upright():
    shown = merge_ablation._narrow(pd.DataFrame([dict.fromkeys('abcdefg', 1.5)]))
    assert shown.columns.tolist() == ['what', 'value'] and shown.value.tolist() == ['1.500'] * 7
