"""A run that was stopped goes on bit for bit, from every preset; what is damaged is refused, and nothing is changed."""
import hashlib
import json
import os
import shutil
import signal
from collections import deque
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from safetensors.torch import load_file, save_file
from scripted import chance_decides
from utils.processes import exit_code, live_and_die, run_out_of_room

from evolora.assimilation.merge_test import MergeConfig
from evolora.ecology.checkpoint_files import (checkpoints, prune, read_births, read_checkpoint, verified,
                                              write_checkpoint)
from evolora.ecology.config import PRESETS, EcologyConfig, changed_config, load_config
from evolora.ecology.drafts import load_ecology, save_ecology
from evolora.ecology.ecology import Ecology
from evolora.ecology.run_folder import TABLES, Run
from evolora.ecology.sessions import begin_session, colony, colony_births, resume_session
from evolora.ecology.state import PARTS
from evolora.ecology.variation import VariationConfig
from evolora.economy.market import MarketConfig
from evolora.host.model import load_host, tiny_host
from evolora.organelles.updates import PlasticityConfig
from evolora.utils.files import digest
from evolora.utils.manifest import _seal

SMALL = {'market': {'questions': 6, 'round': 2, 'learn_every': 1, 'protect': 1}, 'max_new_tokens': 12}


@pytest.fixture(scope='module')
def host(): return load_host('embedded', threads=1)


def preset(name):
    "A preset with fewer and shorter answers, and births early enough to be seen"
    config = changed_config(load_config(name), SMALL)
    return changed_config(config, {'variation': {'every': 1}}) if config.variation.every else config


def lived(folder, host, config, stops, seed=3, every=2):
    "A run that is stopped at some generations and gone on with"
    for i, stop in enumerate(stops):
        session = begin_session(folder, host, config, seed=seed, every=every) if not i else resume_session(
            folder, host, every=every)
        with session: session.live(stop, log=None)
    return folder


def recorded(folder):
    "All tables of a run but the timings, as bytes"
    return {table: (folder / f'{table}.jsonl').read_bytes() for table in TABLES
            if table != 'timings' and (folder / f'{table}.jsonl').exists()}


def kept(folder):
    "The latest checkpoint, file by file"
    where = checkpoints(folder)[-1]
    return {p.relative_to(where).as_posix(): p.read_bytes() for p in sorted(where.rglob('*'))
            if p.is_file() and p.name != 'manifest.json'}


# --- nothing is forgotten

# What is given, and what every generation writes before it reads.
CONSTANT = {'host', 'history', 'rng', 'scratch', '_busy', '_timing', 'underway'}


def differences(one, two, path='', seen=None):
    "Paths of all that differs between two objects, whatever they are made of"
    seen = {} if seen is None else seen         # with the objects, so that no id is used twice
    if id(one) in seen or isinstance(one, (type, str, int, float, bool, bytes, type(None), Fraction)):
        return [] if id(one) in seen or one == two or one != one and two != two else [path]
    seen[id(one)] = one
    if type(one) is not type(two): return [path]
    if isinstance(one, torch.Tensor): return [] if one.dtype == two.dtype and one.equal(two) else [path]
    if isinstance(one, np.ndarray): return [] if one.dtype == two.dtype and np.array_equal(one, two) else [path]
    if isinstance(one, (pd.DataFrame, pd.Series)): return [] if one.equals(two) and (
        one.index.equals(two.index)) else [path]
    if isinstance(one, dict):
        if list(one) != list(two): return [f'{path} keys']
        return [d for k in one for d in differences(one[k], two[k], f'{path}[{k!r}]', seen)]
    if isinstance(one, (list, tuple, deque)):
        if len(one) != len(two) or isinstance(one, deque) and one.maxlen != two.maxlen: return [f'{path} length']
        return [d for i, (a, b) in enumerate(zip(one, two)) for d in differences(a, b, f'{path}[{i}]', seen)]
    if callable(one) and not hasattr(one, '__dict__'): return []
    inner = {k: v for k, v in getattr(one, '__dict__', {}).items() if k not in CONSTANT}
    other = {k: v for k, v in getattr(two, '__dict__', {}).items() if k not in CONSTANT}
    return [] if callable(one) and not inner else differences(inner, other, path, seen)


@pytest.fixture
def busy(monkeypatch):
    "An ecology that learns, bears and buries, in which a child has taken over, knobs are turned and feedback waits"
    monkeypatch.setattr('evolora.tasks.forms.Form.grade', lambda _, task, text: chance_decides(task, text))
    quick = MergeConfig(share=1., least=4, most=32, look=8, margin=.9, alpha=.5, lag=1., weights=[.5], wait=2)
    e = Ecology(tiny_host(), EcologyConfig(
        founders=3, founder_step=.3, capacity=5, rank=2, max_rank=4, cells=['string.sort:2', 'word.count:2'],
        max_new_tokens=3, audit=2, feedback=.5, plasticity=PlasticityConfig(probe=.5), merging=quick,
        market=MarketConfig(questions=8, round=2, learn_every=2, contest=.3, protect=1, met=16),
        variation=VariationConfig(every=2, offspring=1), society={'archive': {}}), seed=1)
    e.merging.purse = 9.
    lead(e)
    e.step()
    e.turn(tau=.2, even=.1)
    for _ in range(3): e.step()
    e.turn(contest=.4)
    e.feedback(e.population.ids[0], 'Is 2 + 2 = 4?', 'True', True)
    e.demography.bury(e.population.ids[0], e.generation, 'an example')
    assert e.society['archive'].sleepers and e.society['archive'].latest
    assert e.merges and e.merges[0].later and e.merging.tried and e.merging.levels.found and e.succession.skill
    assert e.plasticity._expected and e.serving.met.answers and e.controls.waiting == ({'contest': .4}, 1)
    return e


def lead(ecology):
    "Let one organelle lead the first family, and another one the second"
    for id, family in zip([id for id in ecology.population.ids if not ecology.population.is_noop(id)],
                          ecology.market.families):
        given = {one: 1. if one == id else .1 for one in ecology.market.holders}
        for _ in range(4): ecology.market.settle(family, given)


def newborn(one):
    "Another ecology of the same kind that has not lived yet"
    return Ecology(one.host, one.config, seed=one.seed)


def woken(one, where):
    "An ecology that goes on from there"
    two = newborn(one)
    read_checkpoint(where, two)
    return two


def test_an_ecology_that_was_saved_is_the_same_in_every_attribute(busy, tmp_path):
    assert differences(busy, woken(busy, write_checkpoint(tmp_path, busy))) == []


def test_the_walk_would_find_any_part_that_is_forgotten(busy, tmp_path, monkeypatch):
    where, missed = write_checkpoint(tmp_path, busy), []
    monkeypatch.setattr('evolora.ecology.checkpoint_files._sound', lambda e: True)
    monkeypatch.setattr('evolora.ecology.checkpoint_files._same', lambda *trees: True)
    for name in PARTS:
        monkeypatch.setattr('evolora.ecology.state.PARTS', tuple(p for p in PARTS if p != name))
        two = newborn(busy)
        try: read_checkpoint(where, two)
        except ValueError: pass         # forgotten tensors are noticed at once
        if not any(name in d for d in differences(busy, two)): missed.append(name)
    assert not missed


# --- a generation that breaks off has not been

def breaking(ecology, at):
    "An error when the ecology is asked for a random stream the `at`-th time, all through a generation; whether it came"
    real, count = ecology.rng, [0]
    def rng(*where):
        count[0] += 1
        if count[0] == at: raise MemoryError('an example')
        return real(*where)
    ecology.rng = ecology.demography.rng = rng
    try: ecology.step()
    except MemoryError: return True
    finally: ecology.rng = ecology.demography.rng = real
    return False


@pytest.mark.parametrize('at', [1, 2, 5, 9, 14, 20])
def test_a_generation_that_breaks_off_leaves_every_attribute_as_it_was(busy, tmp_path, at):
    two = woken(busy, write_checkpoint(tmp_path, busy))
    assert breaking(busy, at) or at > 9
    del busy.rng
    busy.demography.rng = busy.rng
    if busy.generation == two.generation: assert differences(busy, two) == []


def test_one_that_breaks_off_at_its_very_end_has_not_been_either(busy, tmp_path):
    "As it is closed: after all that it paid, and with its record in the history"
    two, end = woken(busy, write_checkpoint(tmp_path, busy)), busy._record
    def closed(*how):
        busy.examiner.add(1.5, 2.)
        end(*how)
        busy.examiner.add(1.5, 2.)
        raise KeyboardInterrupt
    busy._record, lived = closed, list(busy.history)
    with pytest.raises(KeyboardInterrupt): busy.step()
    del busy._record
    assert differences(busy, two) == [] and busy.history == lived
    assert json.dumps(busy.step().tables | {'timings': 0}) == json.dumps(two.step().tables | {'timings': 0})


@pytest.mark.parametrize('name', ['endogenous', 'worlds', 'relaxed'])
def test_a_life_that_breaks_off_now_and_then_is_the_life_that_does_not(host, name):
    config, rng = preset(name), np.random.default_rng(0)
    one, two = Ecology(host, config, seed=3), Ecology(host, config, seed=3)
    broken = 0
    for _ in range(4):
        broken += sum(breaking(two, int(at)) for at in rng.integers(1, 20, 2) if two.generation < one.generation + 1)
        if two.generation == one.generation: two.step()
        assert json.dumps(one.step().tables | {'timings': 0}) == json.dumps(two.history[-1].tables | {'timings': 0})
    assert broken > 2


def test_what_was_requested_while_it_broke_off_still_waits(busy):
    def learn(*_, **__):
        busy.turn(tau=.7)
        busy.feedback(busy.population.ids[-1], 'Is 1 + 1 = 2?', 'True', True)
        raise MemoryError('an example')
    waited, busy.plasticity.learn = busy.controls.waiting, learn
    with pytest.raises(MemoryError): busy.step()
    assert busy.controls.waiting == (waited[0] | {'tau': .7}, waited[1] + 1)


def test_a_session_goes_on_after_a_generation_that_broke_off(host, tmp_path, monkeypatch):
    def full(*_, **__): raise MemoryError('an example')
    config = preset('debug')
    with begin_session(tmp_path / 'a', host, config, seed=3, every=2) as session:
        for generation in range(3):
            with monkeypatch.context() as patch:
                patch.setattr(session.ecology.plasticity, 'learn', full)
                with pytest.raises(MemoryError): session.step()
            assert session.step().row['generation'] == generation and not session.over
        session.save()
    with begin_session(tmp_path / 'b', host, config, seed=3, every=2) as session: session.live(3, log=None)
    assert recorded(tmp_path / 'a') == recorded(tmp_path / 'b')


# --- it goes on bit for bit

@pytest.mark.parametrize('name', sorted(p.stem for p in PRESETS.glob('*.yaml')))
def test_twice_k_is_k_and_k(host, tmp_path, name):
    config = preset(name)
    one, two = lived(tmp_path / 'one', host, config, [4]), lived(tmp_path / 'two', host, config, [1, 2, 4])
    assert recorded(one) == recorded(two) and len(recorded(one)['generations'].splitlines()) == 4
    assert kept(one) == kept(two)


def test_merges_go_on_as_well(busy, tmp_path):
    "What is put aside for tests, how much evidence the next one takes, and the weights that an audit needs"
    two, before = woken(busy, write_checkpoint(tmp_path / 'a', busy)), len(busy.merges)
    for _ in range(4):
        for world in (busy, two): lead(world)
        one, other = (json.dumps(world.step().tables | {'timings': 0}) for world in (busy, two))
        assert one == other
    assert len(busy.merges) > before and differences(busy, two) == []
    assert differences(busy, woken(busy, write_checkpoint(tmp_path / 'b', busy))) == []


def test_a_checkpoint_of_an_earlier_format_is_refused_by_name(busy, tmp_path):
    where = write_checkpoint(tmp_path, busy)
    manifest = json.loads((where / 'manifest.json').read_text())
    manifest['format'] = 'evolora.checkpoint.4'
    (where / 'manifest.json').write_text(json.dumps(manifest | {'sha256': _seal(manifest)}))
    with pytest.raises(ValueError, match="checkpoint.5, got 'evolora.checkpoint.4'"): woken(busy, where)


def test_the_order_of_keys_in_a_configuration_makes_no_difference(host, tmp_path):
    config = preset('debug')
    turned = config.model_copy(update={'variation': config.variation.model_copy(
        update={'operators': dict(reversed(config.variation.operators.items()))})})
    one, two = (lived(tmp_path / n, host, c, [4]) for n, c in (('one', config), ('two', turned)))
    assert recorded(one) == recorded(two)


def test_a_session_goes_on_to_a_total(host, tmp_path, capsys):
    folder = lived(tmp_path / 'a', host, preset('debug'), [3])
    with resume_session(folder, host) as session:
        assert [g.row['generation'] for g in session.ecology.history] == [0, 1, 2]
        session.live(3)
        assert capsys.readouterr().out == '' and session.ecology.generation == 3
        session.live(4)
    assert [p.name for p in checkpoints(folder)] == ['000003', '000004'], 'the last two are kept'


# --- kills

def killed(folder, config, at, stop=5):
    return exit_code(live_and_die, folder, config.model_dump_json(), at, stop, folder.with_suffix('.note'))


def test_a_run_does_not_slip_into_another_dtype(host, tmp_path):
    folder = lived(tmp_path / 'run', host, load_config('debug'), (1,))
    with pytest.raises(ValueError, match='host was .* and is'): resume_session(
            folder, load_host('embedded', dtype='bfloat16', threads=1))


def test_a_run_killed_between_two_writes_resumes_to_the_same_tables(host, tmp_path):
    config = preset('frozen')
    assert killed(tmp_path / 'whole', config, 0) == 0
    moments = np.linspace(2, int((tmp_path / 'whole.note').read_text()) - 1, 3).astype(int).tolist()
    for at in moments:
        folder = tmp_path / f'killed {at}'
        assert killed(folder, config, at) == -signal.SIGKILL
        assert killed(folder, config, 0) == 0
        assert recorded(folder) == recorded(tmp_path / 'whole') and not list(folder.rglob('*.tmp'))


def test_a_torn_table_is_cut_to_its_checkpoint(host, tmp_path):
    config = preset('frozen')
    whole, torn = (lived(tmp_path / n, host, config, [4]) for n in ('whole', 'torn'))
    shutil.rmtree(checkpoints(torn)[-1])        # as if it had been killed just before: the tables are longer
    with (torn / 'ledger.jsonl').open('a') as file: file.write('{"generation": 4, "org')
    lived_again = resume_session(torn, host)
    with lived_again as session:
        assert session.ecology.generation == 2 and len(Run.open(torn).rows('generations')) == 2
        session.live(4, log=None)
    assert recorded(torn) == recorded(whole)


# --- a full disk

def test_a_full_disk_ends_a_run_between_two_generations(host, tmp_path):
    config, folder = preset('frozen'), tmp_path / 'full'
    assert exit_code(run_out_of_room, folder, config.model_dump_json(), tmp_path / 'note') == 0
    assert (tmp_path / 'note').read_text() == 'File too large'
    run = Run.open(folder)
    for table in ('generations', 'episodes', 'timings'):
        assert {row['generation'] for row in run.rows(table)} == {0, 1, 2}, 'all tables or none'
    with resume_session(folder, host, every=2) as session: session.live(6, log=None)
    assert recorded(folder) == recorded(lived(tmp_path / 'whole', host, config, [6]))


# --- what is refused

@pytest.fixture(scope='module')
def good(host, tmp_path_factory): return lived(tmp_path_factory.mktemp('good') / 'run', host, preset('debug'), [4])


@pytest.fixture
def copy(good, tmp_path): return Path(shutil.copytree(good, tmp_path / 'copy'))


def everything(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in sorted(folder.rglob('*'))
            if p.is_file() and p.name != '.lock'}


def refused(folder, host, match):
    before = everything(folder)
    with pytest.raises(ValueError, match=match) as error: resume_session(folder, host)
    assert '\n' not in str(error.value) and everything(folder) == before, 'nothing is changed'


def last(folder): return checkpoints(folder)[-1]


def rewritten(folder, change):
    "A forgery: change the state, and make a manifest that fits"
    path = last(folder) / 'state.json'
    tree = json.loads(path.read_text())
    change(tree)
    path.write_text(json.dumps(tree))
    manifest = json.loads((last(folder) / 'manifest.json').read_text())
    for name in ('state.json', 'state.safetensors'):
        path = last(folder) / name
        manifest['files'][name] = {'bytes': path.stat().st_size, 'sha256': digest(path)}
    (last(folder) / 'manifest.json').write_text(json.dumps(manifest | {'sha256': _seal(manifest)}))


DAMAGE = {
    'a flipped bit': (lambda f: flip(last(f) / 'state.safetensors'), 'expected the bytes that were written'),
    'a flipped bit of the manifest': (lambda f: flip(last(f) / 'manifest.json'), 'manifest.json expected'),
    'a short file': (lambda f: os.truncate(last(f) / 'state.json', 100), 'expected [0-9]+ bytes, got 100'),
    'a missing file': (lambda f: (last(f) / 'state.json').unlink(), "expected a file 'state.json', got none"),
    'a file too many': (lambda f: (last(f) / 'x.pkl').write_text(''), "expected no file 'x.pkl'"),
    'a link': (lambda f: ((last(f) / 'state.json').unlink(), (last(f) / 'state.json').symlink_to('/etc/passwd')),
               'expected a file, got something else'),
    'rows that were edited': (lambda f: edit(f / 'episodes.jsonl', b'"success": true', b'"success":false'),
                              'expected the rows that were written'),
    'rows that are missing': (lambda f: os.truncate(f / 'ledger.jsonl', 50), 'expected at least [0-9]+ bytes, got 50'),
    'a table that is missing': (lambda f: (f / 'ledger.jsonl').unlink(), 'expected [0-9]+ bytes, got no file'),
    'a table that is a folder': (lambda f: ((f / 'ledger.jsonl').unlink(), (f / 'ledger.jsonl').mkdir()),
                                 'expected a file of rows'),
    'an empty table that leads elsewhere': (lambda f: ((f / 'knobs.jsonl').unlink(),
                                                       (f / 'knobs.jsonl').symlink_to(f.parent / 'outside')),
                                            'expected a file of rows'),
    'no checkpoint': (lambda f: shutil.rmtree(f / 'checkpoints'), 'expected a run with a checkpoint'),
    'checkpoints elsewhere': (lambda f: (shutil.move(f / 'checkpoints', f.parent / 'there'),
                                         (f / 'checkpoints').symlink_to(f.parent / 'there')),
                              'checkpoints expected a folder, got a link'),
    'a file for checkpoints': (lambda f: (shutil.rmtree(f / 'checkpoints'), (f / 'checkpoints').write_text('')),
                               'checkpoints expected a folder, got something else'),
    'a last checkpoint that is a link': (lambda f: (last(f).rename(f.parent / 'there'),
                                                    (f / 'checkpoints' / '000004').symlink_to(f.parent / 'there')),
                                         '000004 expected a folder, got a link; .* earlier checkpoint'),
    'a link to nothing': (lambda f: (f / 'checkpoints' / '000009').symlink_to('nowhere'),
                          '000009 expected a folder, got a link'),
    'a file for a checkpoint': (lambda f: (f / 'checkpoints' / '000009').write_text(''),
                                '000009 expected a folder, got something else'),
    'a link among the earlier': (lambda f: (f / 'checkpoints' / '000001').symlink_to(last(f)),
                                 '000001 expected a folder, got a link'),
    'another seed': (lambda f: edit(f / 'run.json', b'"seed": 3', b'"seed": 4'), 'run.json expected what was written'),
    'another version': (lambda f: edit(f / 'run.json', b'"version": "', b'"version": "9'), 'version was 9.* and is'),
    'another configuration': (lambda f: edit(f / 'run.json', b'"rank": ', b'"rank": 1'), 'config was changed'),
}


def flip(path, at=-40):
    data = bytearray(path.read_bytes())
    data[at] ^= 4
    path.write_bytes(data)


def edit(path, old, new):
    data = path.read_bytes()
    assert old in data
    path.write_bytes(data.replace(old, new, 1))


@pytest.mark.parametrize('what', DAMAGE)
def test_damage_is_named_and_nothing_is_changed(host, copy, what):
    damage, message = DAMAGE[what]
    damage(copy)
    refused(copy, host, message)


def holder(tree, id, share):
    "Let an organelle hold this in every book"
    for book in tree['parts']['market']['books'].values(): book['stakes'][id], book['past'][id] = share, share


def merge(tree, **changes):
    "Say that a child took over, of which no weights are kept"
    usual = dict(generation=1, child='o2', parents=['o1'], numbers={}, factors={}, later={})
    tree['merges'].append(usual | changes)


FORGERIES = {
    'text for a number': lambda t: t.update(generation='4'),
    'a number that counts as another': lambda t: t.update(generation=True),
    'a negative generation': lambda t: t.update(generation=-1),
    'a part that is missing': lambda t: t['parts'].pop('market'),
    'a part too many': lambda t: t['parts'].update(shell='rm'),
    'a key too many': lambda t: t.update(shell='rm'),
    'a list for an object': lambda t: t.update(parts=[]),
    'a stake without an organelle': lambda t: holder(t, 'o99', 0.),
    'a stake in one book only': lambda t: t['parts']['market']['books']['']['stakes'].update(o99=0.),
    'a stake from nowhere': lambda t: holder(t, 'o1', 1.),
    'a sum that is no number': lambda t: t['parts']['market']['books'][''].update(moved=[['o1', 'bet', '1/0']]),
    'a tensor that is not there': lambda t: t['parts']['plasticity']['moments'].update(
        {next(iter(t['parts']['plasticity']['moments'])): {'$tensor': '/x'}}),
    'a running mean without an organelle': lambda t: t['parts']['plasticity']['expected'].update(o99={}),
    'a birth that was forgotten': lambda t: t['births'].popitem(),
    'columns of different length': lambda t: t['parts']['serving']['families'].append('math'),
    'a pair that never lived': lambda t: t['parts']['merging'].update(tried=[['o1', 'o99', 1]]),
    'a pair that is no pair': lambda t: t['parts']['merging'].update(tried=[['o1', '../o2', 1]]),
    'a pair of the future': lambda t: t['parts']['merging'].update(tried=[['o1', 'o2', 4]]),
    'a purse that is no number': lambda t: t['parts']['merging'].update(purse='9'),
    'a skill of one that never lived': lambda t: t['parts']['succession']['skill'].update(o99=.5),
    'an income of one that never lived': lambda t: t['parts']['succession']['earned'].update(o99=.5),
    'an income below nothing': lambda t: t['parts']['succession']['earned'].update(o1=-1.),
    'a merge without weights': lambda t: merge(t),
    'a merge of the future': lambda t: merge(t, generation=4),
    'a merge of one that never lived': lambda t: merge(t, child='o99'),
}


@pytest.mark.parametrize('what', FORGERIES)
def test_a_forged_state_is_refused_though_its_manifest_fits(host, copy, what):
    rewritten(copy, FORGERIES[what])
    refused(copy, host, 'expected the state of an ecology')


def test_births_that_were_not_kept_are_refused(host, copy):
    "Also where no tensor is left of them"
    def change(tree):
        gone, path = next(iter(tree['births'])), last(copy) / 'state.safetensors'
        tree['births'].pop(gone)
        save_file({n: x for n, x in load_file(path).items() if not n.startswith(f'/births/{gone}/')}, path)
    rewritten(copy, change)
    refused(copy, host, 'expected the state of an ecology')
    with pytest.raises(ValueError, match='expected the factors of each of its organelles as births'):
        read_births(last(copy), colony(copy, {'embedded': host})[0])


@pytest.mark.parametrize('part', ['/births', '/parts/plasticity'])
@pytest.mark.parametrize('dtype', [torch.float16, torch.int64, torch.bool])
def test_numbers_of_another_kind_are_refused(host, copy, part, dtype):
    "Not only in the population, also beside it"
    path = last(copy) / 'state.safetensors'
    tensors = load_file(path)
    name = next(n for n in sorted(tensors) if n.startswith(part))
    save_file(tensors | {name: tensors[name].to(dtype)}, path)
    rewritten(copy, lambda tree: None)
    refused(copy, host, f'state.safetensors expected float32, got .* in {dtype}'.replace('torch.', ''))


STRANGE = {'id': ['', '/etc/passwd'], 'device': ['x', ''], 'dtype': ['x', ''], 'threads': [0, 10**5]}


@pytest.mark.parametrize('key, value', [(k, v) for k, values in STRANGE.items() for v in values])
def test_a_host_that_cannot_be_loaded_names_the_run(copy, key, value):
    "Who named no host cannot know which one is meant"
    record = json.loads((copy / 'run.json').read_text())
    record['host'][key] = value
    (copy / 'run.json').write_text(json.dumps(record))
    for wake in (resume_session, colony, colony_births) if key in ('id', 'dtype') else (resume_session,):
        with pytest.raises(ValueError, match='expected') as error: wake(copy)
        assert '\n' not in str(error.value) and str(copy) in str(error.value)


def test_a_negative_seed_names_the_run(host, copy):
    edit(copy / 'run.json', b'"seed": 3', b'"seed": -1')
    with pytest.raises(ValueError, match='got -1') as error: resume_session(copy, host)
    assert str(copy) in str(error.value)


def test_a_deep_or_huge_state_is_refused(host, copy):
    path = last(copy) / 'state.json'
    path.write_text('[' * 10**6)
    manifest = json.loads((last(copy) / 'manifest.json').read_text())
    manifest['files']['state.json'] = {'bytes': path.stat().st_size, 'sha256': digest(path)}
    (last(copy) / 'manifest.json').write_text(json.dumps(manifest | {'sha256': _seal(manifest)}))
    refused(copy, host, 'nested too deeply')


def test_a_generation_without_a_row_is_noticed(host, copy):
    "After a forged manifest, or a step of the ecology outside its session"
    path, manifest = copy / 'timings.jsonl', last(copy) / 'manifest.json'
    path.write_bytes(b''.join(path.read_bytes().splitlines(keepends=True)[:-1]))
    known = json.loads(manifest.read_text())
    known['tables']['timings'] = {'bytes': path.stat().st_size, 'sha256': digest(path)}
    manifest.write_text(json.dumps(known | {'sha256': _seal(known)}))
    refused(copy, host, 'a row and a timing for each of 4 generations')


@pytest.mark.parametrize('keep', [0, 1, 10, .5], ids=['none', 'a byte', 'half a row', 'half of the rows'])
def test_no_rows_are_cut_that_a_checkpoint_has_lived_through(host, copy, keep):
    "After a forged manifest; rows of later generations, and what a power cut left, are cut as ever"
    path, manifest = copy / 'episodes.jsonl', last(copy) / 'manifest.json'
    lines = path.read_bytes().splitlines(keepends=True)
    kept = b''.join(lines[:len(lines) // 2]) if keep == .5 else path.read_bytes()[:keep]
    known = json.loads(manifest.read_text())
    known['tables']['episodes'] = {'bytes': len(kept), 'sha256': hashlib.sha256(kept).hexdigest()}
    manifest.write_text(json.dumps(known | {'sha256': _seal(known)}))
    refused(copy, host, 'episodes.jsonl expected only rows of later generations after')


def test_what_a_kill_left_after_a_checkpoint_is_cut(host, copy, good):
    rows = (good / 'ledger.jsonl').read_bytes()
    later = rows.splitlines()[-1].replace(b'"generation": 3', b'"generation": 4')
    for left in (later + b'\n', b'\0' * 5000, later + b'\n' + later[:40], b'\0' * 30 + b'\n' + later + b'\n', b'7\n'):
        (copy / 'ledger.jsonl').write_bytes(rows + left)
        with resume_session(copy, host): assert (copy / 'ledger.jsonl').read_bytes() == rows


def test_a_foreign_host_is_named(copy):
    refused(copy, tiny_host('qwen3'), 'host was [0-9a-f]+ and is')


def test_other_arithmetic_is_named(host, copy):
    "Sums of two threads end in other bits than those of one"
    torch.set_num_threads(2)
    try: refused(copy, host, 'threads was 1 and is 2')
    finally: torch.set_num_threads(1)


def test_swapped_checkpoints_are_refused(host, copy, tmp_path):
    "Each is whole in itself, but of another run"
    other = lived(tmp_path / 'other', host, preset('debug'), [4], seed=4)
    shutil.rmtree(last(copy))
    shutil.copytree(last(other), last(copy).with_name(last(other).name) if checkpoints(copy) else
                    copy / 'checkpoints' / last(other).name)
    refused(copy, host, 'run.json expected what was written')


def test_a_renamed_checkpoint_is_another_generation(host, copy):
    last(copy).rename(last(copy).with_name('000009'))
    refused(copy, host, 'expected the state of an ecology')


def test_a_session_interrupted_within_a_generation_has_to_be_resumed(host, tmp_path, monkeypatch):
    "What is in memory is then half a generation; only the checkpoint is whole"
    config, folder, real = preset('frozen'), tmp_path / 'a', Ecology.step
    with begin_session(folder, host, config, seed=3, every=2) as session:
        def pressed(self):
            record = real(self)
            if self.generation == 4: raise KeyboardInterrupt
            return record
        monkeypatch.setattr(Ecology, 'step', pressed)
        with pytest.raises(KeyboardInterrupt): session.live(6, log=None)
        monkeypatch.undo()
        for attempt in (lambda: session.live(6, log=None), session.save):
            with pytest.raises(ValueError, match='resume_session') as error: attempt()
            assert '\n' not in str(error.value)
        with resume_session(folder, host) as again: again.live(6, log=None)
    assert recorded(folder) == recorded(lived(tmp_path / 'whole', host, config, [6]))


def test_a_session_that_is_over_writes_no_more(host, copy):
    with resume_session(copy, host) as session: pass
    before = everything(copy)
    with pytest.raises(ValueError, match='resume_session'): session.live(6, log=None)
    assert everything(copy) == before


@pytest.mark.parametrize('lost', ['.', 'checkpoints', 'run.json'])
def test_a_run_that_was_removed_is_not_to_be_resumed(host, copy, lost):
    session = resume_session(copy, host)
    with session: shutil.rmtree(copy / lost) if lost != 'run.json' else (copy / lost).unlink()
    with pytest.raises(ValueError, match='was removed: restore it, or begin a new run') as error: session.save()
    assert 'resume_session' not in str(error.value) and '\n' not in str(error.value)


def test_nothing_is_begun_with_a_senseless_interval(host, tmp_path):
    with pytest.raises(ValueError, match='every 1 or more'):
        begin_session(tmp_path / 'a', host, preset('debug'), every=0)
    assert not list(tmp_path.iterdir())


def test_the_names_of_tables_are_on_the_disk_before_a_checkpoint_counts_on_them(host, tmp_path, monkeypatch):
    synced, real = [], os.fsync
    def noted(handle): synced.append(os.path.realpath(f'/proc/self/fd/{handle}')), real(handle)
    with begin_session(tmp_path / 'a', host, preset('frozen'), every=9) as session:
        session.run.record(session.ecology.step())
        monkeypatch.setattr(os, 'fsync', noted)
        session.tables()
    assert str(tmp_path / 'a') in synced


def test_two_sessions_never_share_a_folder(host, copy):
    with resume_session(copy, host): refused(copy, host, f'process {os.getpid()} on')


def test_a_folder_that_exists_is_not_begun_again(host, copy):
    before = everything(copy)
    with pytest.raises(ValueError, match='which exists'): begin_session(copy, host, preset('debug'))
    assert everything(copy) == before


def test_a_colony_is_had_without_its_books(host, copy, good):
    with resume_session(good, host) as session: expected = session.ecology.population.weights_hash()
    before = everything(copy)
    population, run = colony(copy, {'embedded': host})
    assert population.weights_hash() == expected and run.seed == 3 and everything(copy) == before
    with resume_session(copy, host): assert len(colony(copy, {'embedded': host})[0]), 'also while a session is open'
    for hosts, message in (({'embedded': tiny_host()}, 'host was'), ({'embedded': host}, 'expected the bytes')):
        with pytest.raises(ValueError, match=message): colony(copy, hosts)
        flip(last(copy) / 'state.json')
    with pytest.raises(ValueError, match='expected a run folder'): colony(copy.parent)


def test_a_colony_of_another_record_is_refused(host, copy):
    "Otherwise a model card would name a forged seed"
    edit(copy / 'run.json', b'"seed": 3', b'"seed": 4')
    with pytest.raises(ValueError, match='run.json expected what was written'): colony(copy, {'embedded': host})


def test_pruning_takes_the_oldest(tmp_path):
    for name in ('000002', '000010', '000004', 'x', '1'): (tmp_path / 'checkpoints' / name).mkdir(parents=True)
    prune(tmp_path)
    assert sorted(p.name for p in (tmp_path / 'checkpoints').iterdir()) == ['000004', '000010', '1', 'x']
    with pytest.raises(ValueError): verified(tmp_path / 'checkpoints' / '000010')
    (tmp_path / 'checkpoints' / '000003').symlink_to(tmp_path)
    with pytest.raises(ValueError, match='000003 expected a folder, got a link'): prune(tmp_path, keep=1)
    assert len(list((tmp_path / 'checkpoints').iterdir())) == 5


# --- an ecology in memory

def test_what_is_saved_from_memory_is_the_same_in_every_attribute_and_resumes(busy, tmp_path):
    run = save_ecology(busy, tmp_path / 'run')
    loaded = load_ecology(tmp_path / 'run', busy.host)
    assert [d for d in differences(busy, loaded) if 'operators' not in d] == []     # keys in another order
    assert len(run.rows('generations')) == busy.generation
    before = everything(tmp_path / 'run')
    one, two = busy.step(), loaded.step()
    assert json.dumps(one.tables | {'timings': 0}) == json.dumps(two.tables | {'timings': 0})
    assert everything(tmp_path / 'run') == before, 'what was loaded lives in memory'
    with resume_session(tmp_path / 'run', busy.host) as session: assert session.step().row == one.row


def test_an_ecology_that_was_loaded_is_saved_again(host, tmp_path):
    ecology = Ecology(host, preset('debug'), seed=3)
    ecology.run(2, log=None)
    save_ecology(ecology, tmp_path / 'a')
    loaded = load_ecology(tmp_path / 'a', host)
    save_ecology(loaded, tmp_path / 'b')
    with resume_session(tmp_path / 'b', host) as session: assert session.step().row == ecology.step().row


def test_nothing_is_saved_while_a_generation_is_under_way_or_where_something_is(host, tmp_path):
    ecology = Ecology(host, preset('debug'), seed=3)
    with ecology.still(), pytest.raises(RuntimeError, match='running elsewhere'): save_ecology(ecology, tmp_path / 'a')
    save_ecology(ecology, tmp_path / 'a')
    before = everything(tmp_path)
    with pytest.raises(ValueError, match='a'): save_ecology(ecology, tmp_path / 'a')
    assert everything(tmp_path) == before and ecology.step()


def test_an_ecology_that_was_stepped_beside_its_session_is_not_written_on(tmp_path, host):
    session = begin_session(tmp_path / 'run', host, preset('debug'), every=1)
    session.step()
    session.ecology.step()
    for go_on in (session.step, session.save, lambda: session.live(9, log=None)):
        with pytest.raises(ValueError, match='stepped by itself.*resume_session'): go_on()
    session.close()
    with resume_session(tmp_path / 'run', host) as again: assert again.step().row['generation'] == 1


def test_a_run_that_is_ahead_of_its_checkpoint_is_loaded_as_of_the_checkpoint(tmp_path, host):
    session = begin_session(tmp_path / 'run', host, preset('debug'), every=2)
    for _ in range(3): session.step()
    session.close()
    loaded = load_ecology(tmp_path / 'run', host)
    assert (loaded.generation, len(loaded.history)) == (2, 2)
    with resume_session(tmp_path / 'run', host) as again: assert again.step().row == loaded.step().row


@pytest.mark.parametrize('table', ['generations', 'episodes'])
def test_a_run_whose_tables_were_edited_is_not_loaded(tmp_path, host, table):
    with begin_session(tmp_path / 'run', host, preset('debug')) as session: session.live(2, log=None)
    path = tmp_path / f'run/{table}.jsonl'
    path.write_text(path.read_text().replace('"generation": 1', '"generation": 1 ', 1))
    with pytest.raises(ValueError, match=f'{table}.jsonl'): load_ecology(tmp_path / 'run', host)


@pytest.mark.parametrize('name', ['', ' ', 'a\0b', None, 3])
def test_what_names_no_folder_is_not_saved_to(tmp_path, host, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match='expected the name of a new folder'):
        save_ecology(Ecology(host, preset('debug')), name)
    with pytest.raises(ValueError, match='expected an Ecology'): save_ecology('x', 'y')
    assert not list(tmp_path.iterdir())


def test_a_folder_below_home_is_meant_by_a_tilde(tmp_path, host, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path / 'home'))
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'home').mkdir()
    save_ecology(Ecology(host, preset('debug')), '~/mine ')
    assert (tmp_path / 'home/mine/run.json').exists() and not (tmp_path / '~').exists()
    assert load_ecology('~/mine', host).generation == 0


@pytest.mark.parametrize('seed', [1.5, '3', True, None, -1])
def test_a_seed_is_a_whole_number(host, seed):
    with pytest.raises(ValueError, match='seed expected a whole number'): Ecology(host, preset('debug'), seed=seed)
    assert Ecology(host, preset('debug'), seed=np.int64(3)).seed == 3


def test_an_interrupt_waits_until_the_ecology_is_back(host, monkeypatch):
    ecology = Ecology(host, preset('debug'))
    ecology.step()
    before, books = ecology.population.weights_hash(), ecology.market.restore
    def interrupted(state):
        os.kill(os.getpid(), signal.SIGINT)
        books(state)
    monkeypatch.setattr(ecology.market, 'restore', interrupted)
    monkeypatch.setattr(ecology, '_learn', lambda *a, **k: 1 / 0)
    with pytest.raises(KeyboardInterrupt): ecology.step()
    assert ecology.population.weights_hash() == before and ecology.generation == 1
    monkeypatch.undo()
    twin = Ecology(host, preset('debug'))
    twin.run(2, log=None)
    assert ecology.step().row == twin.history[-1].row


def test_posts_stand_in_one_order_before_and_after_a_resume(tmp_path, host):
    config = preset('debug').but(variation={'every': 2}, society={'board': {}})
    with begin_session(tmp_path / 'run', host, config, seed=1) as session:
        session.live(4, log=None)
        board = session.ecology.society['board']
        state = board.state()
        known = board.examples.known
        assert len(known) > 1
        board.examples.known = {family: known[family] for family in reversed(known)}    # first posted to, then
        assert board.state() == state
    with resume_session(tmp_path / 'run', host) as again: assert again.ecology.society['board'].state() == state
