"The tables of the results page say what the committed cells say."
import ast
import json
import re
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

from evolora.experiments.results_page import (Points, arm_facts, arm_table, between_seeds, coverage, lead_table, leads,
                                              whole_runs)
from evolora.experiments.study import Study
from evolora.experiments.study_plan import load_plan

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / 'nbs/experiments/results'
CODE = 'from evolora.experiments.study_plan import code_version; print(code_version())'


def study(name): return Study(name, RESULTS / name)


@pytest.fixture(scope='module')
def turns(): return study('society_real')


@pytest.fixture(scope='module')
def lead(turns): return leads(turns)['archive − ecology']


def test_a_difference_shows_its_sign_and_its_interval():
    assert str(Points(19.88, 17.94, 21.7)) == '+19.9 [+17.9, +21.7]'
    assert str(Points(-1.23, -2.4, -.1)) == '−1.2 [−2.4, −0.1]'
    assert str(Points(-1.23, np.nan, np.nan)) == '−1.2'


def test_a_whole_run_is_the_mean_of_its_generations(turns, lead):
    runs = whole_runs(turns.plan, turns.cells()).set_index(['condition', 'seed']).right
    for cell, found in turns.cells().items():
        assert runs[cell.condition, cell.seed] == pytest.approx(sum(x for _, x in found['curve']) / 32)
    assert lead.whole.estimate == pytest.approx(100 * (runs['archive'].mean() - runs['ecology'].mean()))
    assert lead.whole.low < lead.whole.estimate < lead.whole.high


def test_a_lead_without_its_strongest_seed_is_the_mean_of_the_others(turns, lead):
    half = {}
    for cell, found in turns.cells().items():
        half[cell.condition, cell.seed] = 100 * np.mean([x for _, x in found['curve'][16:]])
    gaps = sorted(half['archive', s] - half['ecology', s] for s in turns.plan.seeds)
    assert lead.measured.estimate == pytest.approx(np.mean(gaps)) and lead.seeds == 3
    assert lead.strongest == pytest.approx(gaps[-1]) and lead.without.estimate == pytest.approx(np.mean(gaps[:-1]))


def test_the_strongest_seed_of_a_loss_is_its_lowest():
    found = leads(study('selection_longest'))['ecology − single']
    assert found.measured.estimate < 0 and found.without.estimate > found.measured.estimate > found.strongest
    assert found.whole is None


def test_places_are_named_and_p_values_are_those_of_the_report():
    found = leads(study('selection_default'))
    assert [*found][0] == '1000: quiet − ecology' and len(found) == 6
    assert found['1000: quiet − ecology'].holm >= found['1000: quiet − ecology'].p > 0
    assert np.isnan(leads(study('merges'), [('without', 'with')])['without − with'].holm)


def test_what_an_arm_is_given_is_told():
    worlds, static, islands = load_plan('worlds'), load_plan('selection'), load_plan('islands')
    facts = lambda plan, name: [*arm_facts(plan.variant(name)).values()]
    assert facts(worlds, 'ecology') == ['no', 'no', 'own rewards'] and facts(worlds, 'bare') == ['no', 'no', 'no']
    assert facts(worlds, 'told')[0] == 'world' and facts(worlds, 'context')[1] == 'yes'
    assert facts(islands, 'ring')[0] == 'place' and facts(islands, 'house')[0] == 'no'
    assert [facts(static, k)[2] for k in ('sft', 'rft', 'frozen', 'random_search')] == [
        'gold answers', 'own right answers', 'no', 'no']
    assert arm_facts(load_plan('worlds_parts').variant('in_context'))['trained on'] == 'no'


def test_tables_have_a_row_per_arm_and_difference(turns, lead):
    names = {'archive': 'with', 'ecology': 'without'}
    arms, differences = arm_table(turns, names), lead_table(turns, {'x': lead}, names)
    assert [*arms.index] == ['with', 'without'] and [*differences.index] == ['with − without']
    assert arms.loc['with', 'second half, %'].startswith('58.2 [') and arms['seeds'].tolist() == [3, 3]
    assert differences.loc['with − without', 'second half'] == str(lead.measured)


def test_few_seeds_cover_less():
    worst = [coverage(n, 1.) for n in (2, 3, 5, 10)]
    assert worst == sorted(worst) and .45 < worst[0] < .55 and .87 < worst[-1] < .93
    assert coverage(2, 0.) > .95
    for wrong in ((1, .5), (3, 1.5)):
        with pytest.raises(ValueError, match='two seeds or more'): coverage(*wrong)


def test_scatter_is_split_between_seeds_and_questions(turns, lead):
    assert 0 < between_seeds(turns, lead) < 1


def made_by():
    "The commits that the page names, by fingerprint"
    source = [''.join(c['source']) for c in json.loads((ROOT / 'nbs/results.ipynb').read_text())['cells']]
    found = next(re.search(r'MADE_BY = (\{.*?\})', text, re.DOTALL) for text in source if 'MADE_BY = ' in text)
    return ast.literal_eval(found[1])


@pytest.mark.slow
@pytest.mark.parametrize('fingerprint', made_by())
def test_the_named_commit_has_this_fingerprint(fingerprint, tmp_path):
    packed = subprocess.run(['git', 'archive', made_by()[fingerprint], 'evolora'], cwd=ROOT, capture_output=True)
    if packed.returncode: pytest.skip('no history here')
    if sys.version_info[:2] != (3, 11): pytest.skip('fingerprints depend on the Python version')
    with tarfile.open(fileobj=BytesIO(packed.stdout)) as archive: archive.extractall(tmp_path, filter='data')
    done = subprocess.run([sys.executable, '-c', CODE], cwd=tmp_path, capture_output=True, text=True,
                          env={'PYTHONPATH': str(tmp_path), 'PATH': ''})
    assert done.stdout.strip() == fingerprint, done.stderr[-500:]
