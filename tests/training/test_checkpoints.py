"""A damaged checkpoint of a training is refused in one line, also by someone who computes the hashes again."""
import json
import math

import pytest
import safetensors.torch
import torch
from safetensors import safe_open

from evolora.experiments.baselines import CONDITIONS
from evolora.experiments.trainer import Trainer
from evolora.host.habit_host import HabitConfig
from evolora.host.model import tiny_host
from evolora.host.pretraining import _load_checkpoint, _optimizers, _save_checkpoint, new_model
from evolora.host.saved_state import write_state
from evolora.training.jobs import expand_jobs
from evolora.training.train import resume_training, save_training
from evolora.training.training import Training

ROWS = [dict(prompt=f'Say {i}', completion=str(i)) for i in range(12)]


@pytest.fixture(scope='module')
def host(): return tiny_host(hidden=16, layers=2)


def jobs_saved(host, folder):
    "`evolora train`"
    jobs = expand_jobs([dict(name='a'), dict(name='b')], data=ROWS, validation=.2, steps=4, every=1)
    make = lambda: Training(host, jobs)
    one = make()
    one.step()
    return save_training(one, folder), lambda: resume_training(make(), folder)


def sft_saved(host, folder):
    "`evolora sft`"
    make = lambda: Trainer(host, CONDITIONS['sft'].model_copy(update={'tasks': 3}))
    one = make()
    one.update()
    return one.save(folder), lambda: make().load(folder)


def pretraining_saved(host, folder):
    "`evolora host train`"
    config = HabitConfig(hidden=16, layers=1, rows=1, row=64, steps=4, first_stage=2)
    tokenizer = config.tokenizer()
    model = new_model(config, tokenizer)
    optimizers = _optimizers(model, config)
    model(input_ids=torch.ones(1, 4, dtype=torch.long)).logits.square().mean().backward()
    for optimizer in optimizers: optimizer.step()
    folder.mkdir(parents=True)
    _save_checkpoint(folder, config, 1, [math.nan], model, optimizers)
    fresh = lambda: new_model(config, tokenizer)
    path = folder / 'checkpoint.safetensors'
    def load():
        again = fresh()
        return _load_checkpoint(path, config, again, _optimizers(again, config))
    return path, load


FLOATS = [(name,) for name in ('loss', 'validation', 'accuracy', 'best', 'best_loss')]       # any number may be
KINDS = {'train': jobs_saved, 'sft': sft_saved, 'pretraining': pretraining_saved}


@pytest.fixture(scope='module', params=KINDS)
def saved(request, host, tmp_path_factory):
    "(path, its bytes, how it is loaded)"
    path, load = KINDS[request.param](host, tmp_path_factory.mktemp('saved') / 'folder')
    return path, path.read_bytes(), load


def parts(path):
    with safe_open(path, 'pt') as file:
        texts = file.metadata()
        return json.loads(texts['state']), json.loads(texts['manifest']), {k: file.get_tensor(k) for k in file.keys()}


def leaves(tree, place=()):
    "Each place in a tree"
    yield place
    for key, x in tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ():
        yield from leaves(x, (*place, key))


def put(tree, place, value):
    "The tree with another value in a place"
    if not place: return value
    made = dict(tree) if isinstance(tree, dict) else list(tree)
    made[place[0]] = put(made[place[0]], place[1:], value)
    return made


def deep(n): return json.loads('[' * n + ']' * n)


def refused(load, *what):
    try: load()
    except ValueError as e: error = e
    else: raise AssertionError(f'read all the same: {what}')
    assert '\n' not in str(error) and len(str(error)) < 1500, str(error)
    return str(error)


def forge(path, state, tensors):
    "Write it again with right hashes"
    with safe_open(path, 'pt') as file: manifest = json.loads(file.metadata()['manifest'])
    losses = path.with_name('losses.csv')
    write_state(path, state, tensors, format=manifest['format'],
                beside={losses.name: losses.read_bytes()} if losses.name in manifest['files'] else {})


def test_a_whole_one_is_read(saved): saved[2]()


def test_any_flipped_bit_is_seen(saved):
    path, data, load = saved
    for i in range(0, len(data), len(data) // 60):
        path.write_bytes(data[:i] + bytes([data[i] ^ 4]) + data[i + 1:])
        try: refused(load)
        finally: path.write_bytes(data)


@pytest.mark.parametrize('keep', [0, 7, 200, .5, -1])
def test_a_truncated_or_missing_file_is_refused(saved, keep):
    path, data, load = saved
    path.write_bytes(data[:int(keep * len(data)) if isinstance(keep, float) else keep])
    try: refused(load)
    finally: path.write_bytes(data)


def test_another_kind_of_file_and_none_are_refused(saved):
    path, data, load = saved
    path.unlink()
    try:
        refused(load)
        path.mkdir()
        refused(load)
        path.rmdir()
        path.symlink_to('/dev/zero')
        refused(load)
    finally:
        path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
        path.write_bytes(data)


def test_one_without_a_manifest_says_what_to_do(saved):
    path, data, load = saved
    state, _, tensors = parts(path)
    path.write_bytes(safetensors.torch.save(tensors, {'state': json.dumps(state)}))
    try: assert 'earlier version' in (said := refused(load)) and 'begin again' in said
    finally: path.write_bytes(data)


def test_a_forged_state_is_refused_wherever_it_is_wrong(saved):
    path, data, load = saved
    state, _, tensors = parts(path)
    places = [place for place in leaves(state) if 'identity' not in place and 'config' not in place]
    try:
        for place in places:
            for value in ({'a': None}, [None], 2**70, -7, 'x' * 2000, deep(40)):
                forge(path, put(state, place, value), tensors)
                if place[-1:] == ('note',) and isinstance(value, str): continue
                if (place[-1:] in FLOATS or place[:1] == ('losses',)) and value in (-7, 2**70): continue
                refused(load, place, value)
        for made in (state | {'more': 1}, {k: x for k, x in [*state.items()][1:]}, deep(70), 'x' * 100):
            forge(path, made, tensors)
            refused(load)
    finally: path.write_bytes(data)


def test_forged_settings_are_refused(saved):
    path, data, load = saved
    state, _, tensors = parts(path)
    name = 'identity' if 'identity' in state else 'config'
    try:
        for place in [(), *((k,) for k in state[name])]:
            for value in (None, [], {}, 7, 'x'):
                if value == (state[name] if not place else state[name][place[0]]): continue
                forge(path, state | {name: put(state[name], place, value)}, tensors)
                refused(load)
    finally: path.write_bytes(data)


def test_forged_tensors_are_refused(saved):
    path, data, load = saved
    state, _, tensors = parts(path)
    first = next(name for name, t in tensors.items() if t.dim() > 1)
    try:
        for made in ({k: t for k, t in tensors.items() if k != first}, tensors | {first: tensors[first][:1]},
                     tensors | {first: tensors[first].double()}, {}, tensors | {first: torch.zeros(())}):
            forge(path, state, made)
            refused(load)
    finally: path.write_bytes(data)


def test_forged_losses_are_refused(host, tmp_path):
    path, load = jobs_saved(host, tmp_path / 'folder')
    state, _, tensors = parts(path)
    losses = path.with_name('losses.csv')
    for text in ('', 'job\n', 'job,step\na,1\n', losses.read_text() + 'a,x,1,1,1,1,1\n', '\0' * 100, '"' * 50,
                 losses.read_text() + 'a,' * 50 + '\n', losses.read_text() + 'a,99999999999999999999,1,1,1,1,1\n'):
        losses.write_text(text)
        forge(path, state, tensors)
        refused(load)
