"""A study: announced before its first cell, whole after any interruption, the same whoever makes its cells."""

import json
import re
import subprocess
import sys

import numpy as np
import pytest
import yaml
from rendered import shown, strange

from evolora.experiments import study as module
from evolora.experiments.study import Study, Unfinished
from evolora.experiments.study_code import COMMIT
from evolora.experiments.study_plan import Cell, Plan, World, checked_plan, grid, load_plan, name_of, needed, share_of
from evolora.experiments.study_report import accuracy, compared, for_people, report
from evolora.experiments.study_results import packed, unpacked

TEXT = '''
name: tried
question: Does it | work?
seeds: 3
budgets: 20
conditions: [frozen, single, ecology, sft_bits, {name: twin, of: unmerged, budget_of: ecology}]
measured: {id: 36}
comparisons:
- {of: ecology, against: [frozen, single]}
- {of: single, against: [frozen], test: different}
'''
RIGHT = {'frozen': .4, 'single': .6, 'ecology': .7, 'sft_bits': .8, 'twin': .65}


@pytest.fixture
def plan(tmp_path):
    (tmp_path / 'plan.yaml').write_text(TEXT)
    return load_plan(tmp_path / 'plan.yaml')


def made(plan, cell, known, folder=None, every=10):
    "A cell as `make_cell` makes it, without a model"
    for name in (n.condition for n in needed(plan, cell)): assert known[name]['condition'] == name
    right = np.random.default_rng([cell.seed, len(cell.condition)]).random(36) < RIGHT[cell.condition]
    return {'format': 1, 'study': plan.name, 'condition': cell.condition, 'seed': cell.seed, 'host': cell.host,
            'world': cell.world, 'asked': cell.budget, 'budget': 20., 'commit': 'a' * 40,
            'hashes': {'code': 'x', 'host': 'y'}, 'gflops': 19.5, 'spent': {'episodes': 10, 'right': 4},
            'ways': {'host': {'id': {
                'families': {'math': [int(right[:18].sum()), 18], 'string.sort': [int(right[18:].sum()), 18]},
                'bits': packed(right), 'parsed': 1., 'gflops': .1, 'cost': 1.}}}}


@pytest.fixture
def fake(monkeypatch):
    monkeypatch.setattr(module, 'make_cell', made)
    monkeypatch.setattr(module, 'hashes_of_cell', lambda *_: {'code': 'x', 'host': 'y'})
    monkeypatch.setattr(module, 'host_of', lambda plan, cell: None)


def run(plan, folder, **how):
    lines = []
    study = Study(plan, folder)
    return study, study.run(log=lines.append, **how), lines


# --- the plan

@pytest.mark.parametrize('old, new, says', [
    ('seeds: 3', 'seeds: 0', 'seeds expected at least one'), ('seeds: 3', 'seeds: [1, 1]', 'seeds expected each once'),
    ('seeds: 3', 'seeds: many', 'seeds'), ('budgets: 20', 'budgets: -1', 'budgets expected numbers above 0'),
    ('budgets: 20', 'budgets: .inf', 'budgets'), ('name: tried', 'name: ../tried', 'name'),
    ('[frozen, single, e', '[frozen, frozen, single, e', 'conditions expected each once'),
    ('single, ecology', 'singel, ecology', "got 'singel'"),
    ('budget_of: ecology', 'budget_of: sft_bits', 'waits for none'),
    ('budget_of: ecology', 'budget_of: twin', 'waits for none'), ('budget_of', 'budgetof', 'unknown key'),
    ('{id: 36}', '{id: 36, stream: train}', 'measured.stream'), ('{id: 36}', '{id: 36, also: [mood]}', 'measured.also'),
    ('[frozen, single]}\n-', '[frosty]}\n-', "got 'frosty'"), ('test: different', 'test: lucky', 'test'),
    ('test: different', 'kind: ood', 'measured.ood 0'),
    ('name: twin, of: unmerged', 'name: twin, of: local, changes: {rank: 2}', 'write them under settings'),
    ('name: twin, of: unmerged', 'name: twin, of: unmerged, changes: {rnk: 2}', 'rnk'),
    ('question: Does it | work?', 'question: ""', 'question'), ('seeds: 3', 'seeds: 999999', 'at most')])
def test_what_does_not_fit_is_one_line(tmp_path, old, new, says):
    assert old in TEXT
    (tmp_path / 'x.yaml').write_text(TEXT.replace(old, new))
    with pytest.raises(ValueError) as error: load_plan(tmp_path / 'x.yaml')
    assert says in str(error.value) and 'x.yaml' in str(error.value) and '\n' not in str(error.value)


def test_a_change_is_a_change_of_the_preset(plan):
    from evolora.experiments.baselines import condition_named
    wide = Plan.model_validate(plan.model_dump() | {'conditions': [
        {'name': 'wide', 'of': 'ecology', 'changes': {'rank': 4, 'market': {'even': .25}}},
        {'name': 'quick', 'of': 'sft', 'settings': {'tasks': 8, 'plasticity': {'learning_rate': .02}}}],
        'comparisons': ()})
    config, usual = wide.variant('wide').condition().config(), condition_named('ecology').config()
    assert (config.rank, config.market.even) == (4, .25) and config.curriculum == usual.curriculum
    quick, sft = wide.variant('quick').condition(), condition_named('sft')
    assert (quick.tasks, quick.plasticity.learning_rate, quick.plasticity.rule) == (8, .02, sft.plasticity.rule)


def test_cells_have_names_of_their_own_and_wait_for_those_of_their_seed(plan):
    own = (World(), World(name='sums', cells=('math:1',)), World(name='far', hosts=('b',)))
    large = plan.model_copy(update={'hosts': ('a', 'b'), 'budgets': (20., 1e3), 'worlds': own})
    assert len({name_of(large, c) for c in grid(large)}) == len(grid(large)) == 5 * 3 * 2 * (2 + 2 + 1)
    assert all(c.host == 'b' for c in grid(large) if c.world == 'far')
    assert needed(plan, Cell('twin', 2, 'embedded', 20.)) == [Cell('ecology', 2, 'embedded', 20.)]
    order = [c for c in grid(plan)]
    assert all(order.index(n) < order.index(c) for c in order for n in needed(plan, c))


@pytest.mark.parametrize('shards', [1, 2, 3, 7, 40])
def test_shards_are_all_cells_once_and_nobody_waits_for_another_shard(plan, shards):
    parts = [share_of(plan, i + 1, shards) for i in range(shards)]
    assert sorted(sum(parts, [])) == sorted(grid(plan))
    for part in parts: assert all(n in part for c in part for n in needed(plan, c))
    if shards <= 3: assert min(map(len, parts)) > 0
    with pytest.raises(ValueError, match='expected a shard out of'): share_of(plan, shards + 1, shards)


# --- the driver

def test_a_second_call_makes_nothing_and_shards_make_the_same_bytes(plan, tmp_path, fake):
    one, cells, _ = run(plan, tmp_path / 'one')
    before = {p.name: p.stat().st_mtime_ns for p in (tmp_path / 'one/cells').iterdir()}
    _, again, lines = run(plan, tmp_path / 'one')
    assert again == cells and lines == ['15 of 15 cells are there']
    assert {p.name: p.stat().st_mtime_ns for p in (tmp_path / 'one/cells').iterdir()} == before
    for i in (3, 1, 2): run(plan, tmp_path / 'parts', shard=(i, 3))
    assert one.gather().read_bytes() == Study(plan, tmp_path / 'parts').gather().read_bytes()
    assert run(plan, tmp_path / 'one')[1] == cells, 'gathered cells count as well'


def test_another_plan_is_refused_in_words_and_nothing_changes(plan, tmp_path, fake):
    study, *_ = run(plan, tmp_path / 'x')
    record = (tmp_path / 'x/study.json').read_bytes()
    twin = plan.conditions[-1].model_copy(update={'changes': {'rank': 4}})
    for change, says in (({'seeds': (1, 2)}, r'seeds was \[1, 2, 3\] and is \[1, 2\]'),
                         ({'conditions': (*plan.conditions[:-1], twin)},
                          'conditions.twin.changes.rank was None and is 4')):
        with pytest.raises(ValueError, match=says) as error: run(plan.model_copy(update=change), tmp_path / 'x')
        assert '--out' in str(error.value) and '\n' not in str(error.value)
    assert (tmp_path / 'x/study.json').read_bytes() == record
    (tmp_path / 'y').mkdir()
    (tmp_path / 'y/thesis.txt').write_text('mine')
    with pytest.raises(ValueError, match='holds something else'): run(plan, tmp_path / 'y')
    assert [p.name for p in (tmp_path / 'y').iterdir()] == ['thesis.txt']


def test_cells_of_other_code_are_refused_in_words(plan, tmp_path, fake, monkeypatch):
    run(plan, tmp_path / 'x')
    monkeypatch.setattr(module, 'hashes_of_cell', lambda *_: {'code': 'z', 'host': 'y'})
    with pytest.raises(ValueError, match='cell .* was made under other circumstances: code was x and is z'):
        run(plan, tmp_path / 'x')


def test_a_cell_that_raises_is_named_and_the_study_goes_on(plan, tmp_path, fake, monkeypatch):
    def broken(plan, cell, *rest, **how):
        if (cell.condition, cell.seed) == ('ecology', 2): raise ZeroDivisionError('a part of my own')
        return made(plan, cell, *rest, **how)
    monkeypatch.setattr(module, 'make_cell', broken)
    lines, study = [], Study(plan, tmp_path / 'x')
    why = r'3 of 15 cells failed.*ecology-2: ZeroDivisionError: a part of my own \(test_study'
    with pytest.raises(Unfinished, match=why): study.run(log=lines.append)
    failed = [line for line in lines if 'FAILED' in line]
    assert len(failed) == 3 and sum('it waits for ecology-2, which is missing' in line for line in failed) == 2
    assert len(study.cells()) == 12 and study.state().failed.sum() == 3
    monkeypatch.setattr(module, 'make_cell', made)
    assert len(run(plan, tmp_path / 'x')[1]) == 15


def test_ctrl_c_keeps_what_is_done(plan, tmp_path, fake, monkeypatch):
    def stopped(plan, cell, *rest, **how):
        if cell.seed == 2: raise KeyboardInterrupt
        return made(plan, cell, *rest, **how)
    monkeypatch.setattr(module, 'make_cell', stopped)
    with pytest.raises(KeyboardInterrupt): run(plan, tmp_path / 'x')
    done = Study(plan, tmp_path / 'x').cells()
    assert done and all(c.seed == 1 for c in done)


def test_a_full_disk_leaves_no_half_cell(plan, tmp_path, fake, monkeypatch):
    whole = module.write_whole
    def full(path, data):
        if 'single-2' in str(path): raise OSError(28, 'No space left on device', str(path))
        return whole(path, data)
    monkeypatch.setattr(module, 'write_whole', full)
    with pytest.raises(OSError): run(plan, tmp_path / 'x')
    monkeypatch.setattr(module, 'write_whole', whole)
    assert all(p.suffix == '.json' for p in (tmp_path / 'x/cells').iterdir()) and Study(plan, tmp_path / 'x').cells()
    assert len(run(plan, tmp_path / 'x')[1]) == 15


@pytest.mark.parametrize('text', ['{}', '[]', 'x', '{"format": 1}', '{"format": 1, "format": 1}'])
def test_a_file_that_is_no_cell_is_named(plan, tmp_path, fake, text):
    run(plan, tmp_path / 'x')
    (tmp_path / 'x/cells/single-2.json').write_text(text)
    with pytest.raises(ValueError, match='single-2.json') as error: Study(plan, tmp_path / 'x').cells()
    assert '\n' not in str(error.value)


def test_the_holdout_is_counted(plan, tmp_path, fake, monkeypatch):
    study, *_ = run(plan, tmp_path / 'x')
    run(plan, tmp_path / 'x')
    assert len(study.record['openings']) == 1
    chosen = plan.model_copy(update={'measured': plan.measured.model_copy(update={'stream': 'selection'})})
    assert run(chosen, tmp_path / 'y')[0].record['openings'] == []


def test_an_opening_of_before_commits_were_recorded_counts_as_the_same(plan, tmp_path, fake):
    study, *_ = run(plan, tmp_path / 'x')
    assert re.search(COMMIT, study.record['openings'][0]['commit'])
    older = study.record | {'openings': [{k: study.record['openings'][0][k] for k in ('code', 'fingerprint')}]}
    (tmp_path / 'x/study.json').write_text(json.dumps(older))
    run(plan, tmp_path / 'x')
    assert study.record['openings'] == older['openings']


def test_a_cell_may_come_from_two_commits_and_the_page_says_which(plan, tmp_path, fake):
    study, *_ = run(plan, tmp_path / 'x')
    study.gather()
    path = tmp_path / 'x/cells/single-2.json'
    lines = [json.loads(line) for line in (tmp_path / 'x/cells.jsonl').read_text().splitlines()]
    own = next(c for c in lines if c['condition'] == 'single' and c['seed'] == 2)
    path.write_text(json.dumps(own | {'commit': 'b' * 40 + '+'}))
    (tmp_path / 'x/cells.jsonl').write_text(''.join(
        json.dumps({k: x for k, x in c.items() if k != 'commit' or c['seed'] != 3}) + '\n' for c in lines))
    assert study.cells() and study.check(study.cells()) is None
    page = report(study).read_text()
    made = json.loads(page.split('```json')[1].split('```')[0])
    assert made['cells of commits'] == {'a' * 40: 9, 'b' * 40 + '+': 1, 'not recorded': 5}
    assert 'Warning, fewer than 5 seeds: an interval marked 95% from 3 seeds' in page
    path.write_text(json.dumps(own | {'commit': 'b' * 40, 'gflops': 3.}))
    with pytest.raises(ValueError, match='got two that differ'): study.cells()


def test_a_comparison_over_another_part_is_another_plan(plan, tmp_path, fake):
    values = yaml.safe_load(TEXT) | {'measured': {'served': True}, 'conditions': ['ecology', {
        'name': 'single', 'of': 'ecology', 'changes': {'founders': 1}}], 'comparisons': [{
            'of': 'ecology', 'against': ['single']}]}
    Study(checked_plan(values), tmp_path / 'x').prepare()
    values['comparisons'][0]['over'] = 'whole'
    with pytest.raises(ValueError, match='comparisons.ecology on id over whole runs') as error:
        Study(checked_plan(values), tmp_path / 'x').prepare()
    assert '\n' not in str(error.value)


def test_what_a_notebook_shows_is_escaped(plan, tmp_path, fake):
    study, *_ = run(plan.model_copy(update={'question': '<script>'}), tmp_path / 'x')
    assert '<script>' not in study._repr_html_() and '15 of 15 cells' in repr(study)


# --- the report

def test_no_text_of_a_plan_becomes_a_link_in_its_page(plan, tmp_path, fake, monkeypatch):
    monkeypatch.setattr('evolora.experiments.study_report.draw', lambda plan, cells: {})
    evil = '[x](javascript:alert(1)) \\](javascript:y) <img src=x onerror=z> https://evil.example'
    study, *_ = run(plan.model_copy(update={'question': evil, 'refuted_by': evil}), tmp_path / 'x')
    page = report(study).read_text()
    prose = page.partition('```json')[0]
    assert strange(page) == [] and '](javascript:' not in prose and shown(prose).count(evil) == 2


def test_the_announced_comparisons_are_made_and_no_others(plan, tmp_path, fake):
    study, *_ = run(plan, tmp_path / 'x')
    table = compared(plan, study.cells())
    assert table.comparison.tolist() == ['ecology − frozen', 'ecology − single', 'single − frozen']
    assert table.test.tolist() == ['greater', 'greater', 'different'] and (table['corrected p'] >= table.p).all()
    lines = accuracy(plan, study.cells())
    by = lines.set_index('condition')['id']
    assert table.difference[0] == pytest.approx(by['ecology'] - by['frozen']) and table.low[0] < table.high[0]
    only = {c: x for c, x in study.cells().items() if c.condition == 'ecology' or c[:2] == ('frozen', 1)}
    assert compared(plan, only).note.tolist() == ['2 of 3 seeds are missing', *['announced, not run'] * 2]


def test_the_page_has_what_a_reader_asks_for(plan, tmp_path, fake):
    study, *_ = run(plan, tmp_path / 'x')
    page = report(study).read_text()
    for text in ('No refutation was written down', '15 of 15 cells', 'was opened 1 time.', plan.fingerprint,
                 'ecology − frozen', 'accuracy.png'): assert text in page, text
    there = {p.name for p in (tmp_path / 'x/report').iterdir()}
    assert there >= {'accuracy.png', 'accuracy.svg', 'differences.svg', 'accuracy.csv', 'comparisons.csv',
                     'families.csv'}
    table = next(t for title, t in for_people(plan, study.cells()).items() if 'Accuracy' in title)
    assert len(table) == 5 and table['id'].str.contains(r'\[').all()


def test_bits_come_back():
    for n in (1, 8, 9, 513):
        right = np.random.default_rng(n).random(n) < .5
        assert (unpacked(packed(right), n) == right).all()
    with pytest.raises(ValueError, match='expected the bits of 7 answers'): unpacked('ffff', 7)


# --- a folder or a file of a stranger

TWO = [{'of': 'ecology', 'against': ['frozen', 'single']}, {'of': 'single', 'against': ['frozen'], 'test': 'different'}]


@pytest.mark.parametrize('other', [TWO[::-1], [*TWO, {'of': 'twin', 'against': ['frozen']}],
                                   [TWO[0] | {'test': 'different'}, TWO[1]],
                                   [TWO[0] | {'against': ['frozen', 'single', 'twin']}, TWO[1]]])
def test_no_comparison_is_announced_afterwards(plan, tmp_path, fake, other):
    run(plan, tmp_path / 'x')
    changed = Plan.model_validate(plan.model_dump() | {'comparisons': other})
    with pytest.raises(ValueError, match='expected the study of this folder, got another'): run(changed, tmp_path / 'x')


@pytest.mark.parametrize('old, new, says', [
    ('budgets: 20', 'budgets: [20, 20.0000001]', 'six digits'),
    ('against: [frozen, single]', 'against: [frozen, frozen]', 'once'),
    ('against: [frozen, single]', 'against: [ecology]', 'against itself'),
    ('against: [frozen, single]', 'against: []', 'got none'), ('{id: 36}', '{id: 100000000}', 'measured.id'),
    ('{id: 36}', '{also: [[1]]}', 'measured.also'), ('seeds: 3', 'seeds: 1000000000000', 'at most'),
    ('budget_of: ecology', 'budget_of: frozen', 'which learns'),
    ('budget_of: ecology', 'settings: {what: x}', "got 'what'"),
    ('budget_of: ecology', 'settings: {preset: /etc/passwd}', "got 'preset'"),
    ('budget_of: ecology', 'settings: {plasticity: 1, plasticity.learning_rate: .1}', 'inside of another'),
    ('name: twin, of: unmerged, budget_of: ecology', 'name: twin, of: sft, settings: {rank: true}', 'rank'),
    ('question: Does it | work?', 'question: "\\ud800"', 'x.yaml')])
def test_what_would_go_wrong_later_is_said_at_once(tmp_path, old, new, says):
    assert old in TEXT
    (tmp_path / 'x.yaml').write_text(TEXT.replace(old, new))
    with pytest.raises(ValueError) as error: load_plan(tmp_path / 'x.yaml')
    assert says in str(error.value) and '\n' not in str(error.value)


@pytest.mark.parametrize('name', ['cells', 'checkpoints', 'failed', 'report', 'tuning', 'log.jsonl', 'cells.jsonl'])
def test_nothing_is_written_or_removed_behind_a_link(plan, tmp_path, fake, name):
    run(plan, tmp_path / 'x')
    place, outside = tmp_path / 'x' / name, tmp_path / 'outside'
    if place.is_dir(): place.rename(tmp_path / 'old')
    elif place.exists(): place.unlink()
    if '.' in name: outside.write_text('precious')
    else:
        (outside / 'single-2').mkdir(parents=True)
        (outside / 'single-2/cell.json').write_text('{}')
    place.symlink_to(outside)
    look = lambda: (sorted(p.relative_to(tmp_path) for p in outside.rglob('*')),
                    outside.is_file() and outside.read_text())
    before = look()
    with pytest.raises(ValueError, match='without links'): run(plan, tmp_path / 'x')
    assert look() == before


def spoil(key, value):
    def change(cell):
        at = cell
        for k in key[:-1]: at = at[k]
        at[key[-1]] = value
    return change


PART = ('ways', 'host', 'id')


@pytest.mark.parametrize('change', [
    spoil(('host',), []), spoil(('asked',), {}), spoil(('world',), [1]), spoil(('ways',), {}), spoil(PART, None),
    spoil((*PART, 'bits'), 5), spoil((*PART, 'bits'), 'ff'), spoil((*PART, 'bits'), 'ffffffffff'),
    spoil((*PART, 'families'), [1]), spoil((*PART, 'families'), {'math': 'ab'}),
    spoil((*PART, 'families'), {'math': [1, 36]}), spoil((*PART, 'families'), {'other': [36, 36]}),
    spoil(('gflops',), 'x'), spoil(('gflops',), None), spoil(('hashes',), {}), spoil(('hashes', 'code'), 'z'),
    spoil(('seed',), 3), spoil(('condition',), 'ecology'), spoil(('sampled',), 3), spoil(('curve',), [[1]]),
    spoil(('commit',), '<script>'), spoil(('commit',), 7)])
@pytest.mark.parametrize('collected', [False, True])
def test_a_cell_that_lies_is_refused(plan, tmp_path, fake, change, collected):
    study, *_ = run(plan, tmp_path / 'x')
    path = tmp_path / 'x/cells/single-2.json'
    cell = json.loads(path.read_text())
    change(cell)
    path.write_text(json.dumps(cell))
    with pytest.raises(ValueError) as error:
        if collected:
            study.check(study.cells())
            report(study)
        else: study.run(log=lambda line: None)
    assert '\n' not in str(error.value) and len(str(error.value)) > 30


def test_a_second_cell_of_another_name_is_refused(plan, tmp_path, fake):
    study, *_ = run(plan, tmp_path / 'x')
    (tmp_path / 'x/cells/zz.json').write_bytes((tmp_path / 'x/cells/single-2.json').read_bytes())
    with pytest.raises(ValueError, match='expected the cell zz, got single-2'): study.cells()


@pytest.mark.parametrize('change', [{'openings': 3}, {'openings': None}, {'openings': [1]}, {'plan': 5}, {'format': 99},
                                    {'plan': {'conditions': 1}}])
def test_a_record_that_is_none_is_named(plan, tmp_path, fake, change):
    run(plan, tmp_path / 'x')
    path = tmp_path / 'x/study.json'
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ValueError, match='study.json') as error: run(plan, tmp_path / 'x')
    assert '\n' not in str(error.value)


@pytest.mark.parametrize('text', ['5', 'null', '["seconds"]', '{"seconds": 1, "cell": []}', '{"seconds": null}', '{',
                                  '', '\xff'])
def test_a_log_that_is_none_costs_nobody_the_report(plan, tmp_path, fake, text):
    study, *_ = run(plan, tmp_path / 'x')
    (tmp_path / 'x/log.jsonl').write_bytes(text.encode('latin-1') + b'\n')
    assert report(study).exists()


def test_two_drivers_do_not_take_each_others_checkpoints(tmp_path):
    from evolora.utils.files import locked
    place = tmp_path / 'single-2'
    place.mkdir()
    code = ('import sys; from evolora.experiments.study import work\n'
            'work("{}", None, {}, sys.argv[1])')
    with locked(place):
        other = subprocess.run([sys.executable, '-c', code, str(place)], capture_output=True, text=True)
    assert other.returncode == 1 and 'ValueError: expected' in other.stderr and 'is at work' in other.stderr
