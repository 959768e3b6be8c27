"""The command: what can be done is done alike twice; what cannot is one line, exit code 2 and an untouched disk."""
import hashlib
import inspect
import io
import json
import logging
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import traceback
import warnings
from contextlib import contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import pandas as pd
import pytest
import typer
import yaml
from endless import MADE
from hostile import write_hostile
from huggingface_hub import constants
from pydantic import BaseModel
from safetensors.torch import load_file
from synthetic import write_run

import evolora
from evolora.host import pretraining
from evolora.experiments.baselines import CONDITIONS
from evolora.analysis.run_charts import CHARTS
from evolora.ecology.checkpoint_files import checkpoints
from evolora.cli.app import app, main, run
from evolora.cli.bench import publish
from evolora.ecology.config import EcologyConfig, changed_config, load_config
from evolora.ecology.diagnosis import PATIENCE
from evolora.ecology.ecology import Ecology
from evolora.evaluation.evaluation import example
from evolora.evaluation.free_questions import router_of
from evolora.host.downloads import KNOWN
from evolora.host.gguf import write_tiny_gguf
from evolora.host.model import load_host, tiny_host
from evolora.ecology.run_folder import TABLES, Run
from evolora.ecology.sessions import colony_ecology
from evolora.tasks.families import Cell, grade
from evolora.tasks.splits import stream_of
from evolora.tasks.task_sets import read_tasks
from evolora.experiments.trainer import Trainer, cells_named

SMALL = dict(founders=4, capacity=6, cells=['string.sort:1', 'math:1'], max_new_tokens=3,
             market=dict(questions=4, round=2, contest=0., protect=1), curriculum=dict(copies=2),
             variation=dict(every=2), merging=dict(share=.2, least=2, most=4, look=2))
GENERATIONS = 3


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    "A working folder of its own, and no way to the hub"
    monkeypatch.setattr('huggingface_hub.constants.HF_HUB_OFFLINE', True)
    (tmp_path / 'here').mkdir()
    monkeypatch.chdir(tmp_path / 'here')
    return tmp_path / 'here'


@contextmanager
def sketching(only='roi'):
    "Reports with one chart, of which no picture is drawn"
    charts = dict(CHARTS)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr('evolora.analysis.theme.png_of', lambda spec, scale: json.dumps(spec).encode())
        CHARTS.clear()
        CHARTS[only] = charts[only]
        try: yield
        finally:            # in the old order
            CHARTS.clear()
            CHARTS.update(charts)


@pytest.fixture
def sketched():
    "For what is not about reports, but makes them"
    with sketching(): yield


def own_streams(out, err, gone):
    "Standard output and error to files, or into pipes that nobody reads; and all that writes to them, as it would be"
    files = [os.open(path, os.O_WRONLY | os.O_CREAT) for path in (out, err)]
    if gone:
        read, write = os.pipe()
        os.close(read)
        files[:gone] = [write] * gone
    for stream, file in zip((1, 2), files): os.dup2(file, stream)
    sys.stdout = sys.__stdout__ = open(1, 'w', encoding='utf-8', closefd=False)
    sys.stderr = sys.__stderr__ = open(2, 'w', encoding='utf-8', closefd=False, buffering=1)
    for handler in logging.getLogger('transformers').handlers: handler.stream = sys.stderr
    warnings.showwarning = lambda *what: print(warnings.formatwarning(*what[:4]), end='', file=sys.stderr)
    for kind in (DeprecationWarning, PendingDeprecationWarning, ImportWarning, ResourceWarning):
        warnings.simplefilter('ignore', kind)
    os.environ['TOKENIZERS_PARALLELISM'] = 'false'      # or the library tells of the fork


@pytest.fixture(scope='module')
def command(tmp_path_factory):
    """The command in a process of its own: exit code, standard output, standard error.

    It is forked from this one, so that nothing is imported again. `gone`: so many streams have lost their reader."""
    def command(*arguments, gone=0):
        out, err = (tmp_path_factory.mktemp('streams') / name for name in ('out', 'err'))
        if not (child := os.fork()):
            code = 1
            try:
                signal.alarm(300)
                own_streams(out, err, gone)
                try: main([str(a) for a in arguments])
                except SystemExit as ended: code = ended.code or 0
                except BaseException: traceback.print_exc()
                try: sys.stdout.flush()         # as Python ends
                except OSError: code = 120
            finally: os._exit(code)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        return code, *(path.read_text() for path in (out, err))
    return command


def save(folder, **keywords):
    host = tiny_host(**keywords)
    host.model.save_pretrained(folder)
    host.tokenizer.save_pretrained(folder)
    return folder


def config(path='small.yaml', **changes):
    "A small world as a YAML file"
    Path(path).write_text(yaml.safe_dump(SMALL | changes))
    return path


@pytest.fixture(scope='module')
def world(tmp_path_factory):
    "A saved tiny host, and a finished run on it, made by a process of its own"
    folder = tmp_path_factory.mktemp('world')
    save(folder / 'host')
    config(folder / 'small.yaml')
    arguments = ['run', '--config', folder / 'small.yaml', '--host', folder / 'host', '--generations', GENERATIONS,
                 '--seed', 7, '--out', folder / 'run']
    made = subprocess.run([sys.executable, '-c', 'from evolora.cli.app import main; main()', *map(str, arguments)],
                          capture_output=True, text=True,
                          env=os.environ | {'PYTHONHASHSEED': '1', 'OMP_NUM_THREADS': '1'})
    assert (made.returncode, made.stderr) == (0, ''), made.stderr
    (folder / 'stdout.txt').write_text(made.stdout)
    return folder


def disk(folder):
    return {str(p.relative_to(folder)): None if p.is_dir() else p.read_bytes() for p in Path(folder).rglob('*')
            if not p.is_symlink()}


def refuses(cli, *arguments, named=''):
    "The command does nothing but print one line that names what came"
    before = disk('..')
    code, out, err = cli(*arguments)
    assert (code, out, len(err.splitlines())) == (2, '', 1), (code, out, err)
    assert err.startswith('evolora: ') and len(err) > 30 and named in err and err[:-1].isprintable(), err
    assert disk('..') == before


# --- what cannot be done: configuration

WORLDS = [
    ('rank: many', 'rank'), ('founders: "4"', 'founders'), ('founders: 2.5', 'founders'),
    ('founders: true', 'founders'), ('cells: math:1', 'cells'),
    ('economy: 3', 'economy'), ('market: null', 'market'), ('economy: {price_token: free}', 'economy.price_token'),
    ('variation: {every: many}', 'variation.every'), ('economy: {ticket: .5}', 'economy.ticket: unknown key'),
    ('market: {choice: luckiest}', 'expected largest or drawn'),
    ('popsize: 9', 'unknown key'), ('market: {questionss: 1}', 'unknown key'), ('traits: {greed: 1}', 'unknown key'),
    ('seed: 3', 'unknown key'),
    ('curriculum: {budgets: 1}', 'unknown key'), ('variation: {lambda: 1}', 'unknown key'),
    ('founders: 0', 'founders'), ('temperature: -1', 'temperature'), ('founder_step: 1.5', 'founder_step'),
    ('traits: {step: 1.1}', 'traits.step'), ('market: {even: .6}', 'market.even'),
    ('economy: {price_gflop: -1}', 'economy.price_gflop'), ('economy: {price_token: .nan}', 'economy.price_token'),
    ('alpha: .nan', 'alpha'), ('curriculum: {chosen: 2}', 'curriculum.chosen'),
    ('variation: {crossover: 2}', 'variation.crossover'),
    ('rank: 99', 'max_rank'), ('founders: 99', 'capacity'), ('variation: {selection: beauty}', 'variation.selection'),
    ('curriculum: {slow: .5}', 'slow'), ('variation: {operators: {magic: 1}}', 'magic'), ('alpha: .inf', 'alpha'),
    ('feedback: .inf', 'finite'),
    ('cells: []', 'cells'), ('cells: [maths:1]', 'task family'), ('cells: [math:5]', 'math:5'),
    ('cells: [math]', 'math'), ('targets: [nothing]', 'nothing'),
    ('a: [', 'YAML'), ('[1, 2]', 'keys and values'), ('just words', 'keys and values'), ('1: 2', 'keys'),
    ('? [a]\n: 1', 'YAML'),
    ('capacity: !!int ""', 'YAML'), ('capacity: !!int x', 'YAML'), ('alpha: !!float ""', 'YAML'),
    ('alpha: !!timestamp x', 'YAML'), ('alpha: !!bool maybe', 'YAML'), ('alpha: !!binary é', 'YAML'),
    ('!!map x', 'YAML'), ('!!set x', 'YAML'), ('cells: !!omap x', 'YAML'), ('rank: 9223372036854775808', '63 bits'),
    ('rank: 4\nrank: 4', "'rank' stands"), ('traits: {step: .1, step: .2}', "'step' stands"),
    ('"rank": 4\nrank: 5', "'rank' stands"), ('a: &a {rank: 4}\n<<: *a', '<<'), ('traits: {<<: {}}', '<<'),
    ('!!python/object/apply:os.mkdir [executed]', 'YAML'),
]
WORLDS = [pytest.param(text, named, id=text) for text, named in WORLDS] + [
    pytest.param('variation: {every: "4"}', 'variation.every', id='text as variation.every'),
    pytest.param('variation: {every: true}', 'variation.every', id='true as variation.every'),
    pytest.param('traits: {step: "0.5"}', 'traits.step', id='text as traits.step'),
    pytest.param('curriculum: {slow: .inf}', 'curriculum.slow', id='infinite slow'),
    pytest.param('[' * 600, 'YAML', id='nested YAML'),
    pytest.param('a0: &a0 {rank: 4}\n' + ''.join(f'a{i}: &a{i} {{<<: [*a{i - 1}, *a{i - 1}]}}\n' for i in range(1, 25)),
                 'aliases', id='24 levels of merges'),
    pytest.param('a0: &a0 [1]\n' + ''.join(f'a{i}: &a{i} [*a{i - 1}, *a{i - 1}]\n' for i in range(1, 25)) +
                 'cells: *a24', 'aliases', id='24 levels of aliases'),
    pytest.param('rank: 1' + ':59' * 20_000, 'x.yaml', id='a number to the base of 60'),
    pytest.param('alpha: 1' + ':59' * 2000 + '.0', 'YAML', id='a float beyond all floats'),
    pytest.param('# ' + 'x' * (1 << 16), 'at most', id='a long YAML'),
    pytest.param('rank: ' + '1' * 5000, 'x.yaml', id='a number of 5,000 digits'),
    pytest.param('rank: 2020-13-45', 'x.yaml', id='no such day'),
    pytest.param('max_new_tokens: 511', 'max_new_tokens', id='answers longer than the context'),
]


@pytest.mark.parametrize('text, named', WORLDS)
def test_a_bad_configuration_is_one_line(cli, world, text, named):
    Path('x.yaml').write_text(text)
    refuses(cli, 'run', '--config', 'x.yaml', '--host', world / 'host', '--generations', 1, '--out', 'out', named=named)


def numbers(model=EcologyConfig, path=()):
    "Where a configuration has floats"
    for name, field in model.model_fields.items():
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from numbers(field.annotation, (*path, name))
        elif float in (field.annotation, *get_args(field.annotation)): yield *path, name


def test_no_number_of_a_configuration_is_endless():
    assert len(found := list(numbers())) > 20
    for *path, name in found:
        for value in ('.inf', '-.inf', '.nan'):
            text = f'{name}: {value}'
            for section in reversed(path): text = f'{section}: {{{text}}}'
            Path('x.yaml').write_text(text)
            with pytest.raises(ValueError, match=name): load_config('x.yaml')


@pytest.mark.parametrize('make', MADE)
def test_a_configuration_that_never_ends_is_one_line(cli, make, tmp_path_factory):
    make(path := tmp_path_factory.mktemp('outside') / 'x.yaml')      # of what `refuses` reads
    for command in (['run', '--out', 'out'], ['run', '--dry-run'], ['calibrate', 'embedded', '--dry-run']):
        if command[-1] != '--dry-run' or make.__name__ != 'a_folder':
            refuses(cli, *command, '--config', path, named='x.yaml')


@pytest.mark.parametrize('name', ['ecologie', 'missing.yaml', '.', '', '/dev/null/x.yaml', 'x' * 5000])
def test_a_missing_configuration_is_one_line(cli, world, name):
    refuses(cli, 'run', '--config', name, '--host', world / 'host', '--out', 'out', named='expected a preset')


def test_a_configuration_of_bytes_is_one_line(cli, world):
    Path('x.yaml').write_bytes(b'\xff\xfe\0')
    refuses(cli, 'run', '--config', 'x.yaml', '--host', world / 'host', '--out', 'out', named='x.yaml')


# --- what cannot be done: hosts

def empty(folder): [p.unlink() for p in folder.iterdir()]
def break_config(folder): (folder / 'config.json').write_text('{')
def break_weights(folder): (folder / 'model.safetensors').write_bytes(b'hello')
def only_a_pickle(folder): (folder / 'model.safetensors').rename(folder / 'pytorch_model.bin')
def no_tokenizer(folder): [p.unlink() for p in folder.glob('tokenizer*')]


def resize(folder):
    path = folder / 'config.json'
    path.write_text(json.dumps(json.loads(path.read_text()) | {'hidden_size': 64}))


@pytest.mark.parametrize('damage', [empty, break_config, only_a_pickle,
                                    pytest.param(break_weights, id='break_weights'),
                                    pytest.param(no_tokenizer, id='no_tokenizer')])
def test_a_foreign_host_is_one_line(cli, world, damage):
    damage(Path(shutil.copytree(world / 'host', 'foreign')))
    refuses(cli, 'run', '--config', 'debug', '--host', 'foreign', '--out', 'out', named='foreign')


def test_a_host_whose_weights_do_not_fit_is_one_line_to_the_user(command, world):
    "In a process of its own, for what libraries log goes past the capture of this one"
    resize(Path(shutil.copytree(world / 'host', 'foreign')))
    code, out, err = command('run', '--config', 'debug', '--host', 'foreign', '--out', 'out')
    assert code == 2 and len(err.splitlines()) == 1 and not Path('out').exists(), err


@pytest.mark.parametrize('name', ['missing/folder', 'no/such/thing/at/all', 'a b',
                                  pytest.param('x' * 300, id='a long name')])
def test_a_missing_host_is_one_line(cli, name):
    refuses(cli, 'run', '--config', 'debug', '--host', name, '--out', 'out')
    refuses(cli, 'host', 'measure', '--host', name, '--out', 'out.json')


def test_a_file_is_no_host(cli):
    Path('host').write_text('weights')
    refuses(cli, 'run', '--config', 'debug', '--host', 'host', '--out', 'out', named='model folder')


# --- what cannot be done: places to write to

def a_folder(): Path('out').mkdir()
def a_file(): Path('out').write_text('precious')
def a_link(): Path('out').symlink_to('elsewhere')


@pytest.mark.parametrize('occupy', [a_folder, a_file, a_link])
def test_nothing_is_overwritten_by_a_run(cli, world, occupy):
    occupy()
    refuses(cli, 'run', '--config', 'debug', '--host', world / 'host', '--out', 'out', named='out')
    assert not Path('elsewhere').exists()


def test_a_run_that_is_there_may_be_gone_on_with(cli, world):
    refuses(cli, 'run', '--config', 'debug', '--host', world / 'host', '--out', world / 'run', named='--resume')


@pytest.mark.parametrize('out', ['file/out', '/proc/out',
                                 pytest.param('x' * 300, id='a long name')])
def test_a_place_that_cannot_be_is_one_line(cli, world, out):
    Path('file').write_text('')
    refuses(cli, 'run', '--config', 'debug', '--host', world / 'host', '--generations', 1, '--out', out)


@pytest.mark.parametrize('occupy', [a_folder, a_file, a_link])
def test_nothing_is_overwritten_by_tasks(cli, occupy):
    occupy()
    refuses(cli, 'tasks', '--n', 4, '--out', 'out', named='out')


# --- what cannot be done: arguments

@pytest.mark.parametrize('arguments, named', [
    (['run', '--generations', 'many'], '--generations'), (['run', '--generations', 0], '--generations'),
    (['run', '--seed', -1], '--seed'),
    (['run', '--threads', 0], '--threads'), (['run', '--population', 9], '--population'), (['run', 'extra'], 'extra'),
    (['walk'], 'walk'),
    (['tasks'], '--out'), (['tasks', '--family', 'maths', '--out', 'x'], 'maths'),
    (['tasks', '--split', 'test', '--out', 'x'], 'test'),
    (['tasks', '--n', 0, '--out', 'x'], '--n'), (['tasks', '--depth', 5, '--out', 'x'], '--depth'),
    (['tasks', '--n', 4, '--out', 'no/x'], 'no/x'),
    (['tasks', '--family', 'math', '--depth', 1, '--split', 'holdout', '--n', 1200, '--out', 'x'], 'ask for fewer'),
    (['ask'], 'run'), (['ask', 'run'], 'prompt'), (['host', 'walk'], 'walk'), (['host', 'train'], '--out'),
    (['host', 'train', '--steps', 0, '--out', 'x'], '--steps'),
    (['host', 'fetch'], 'NAME'),
    (['host', 'measure', '--n', 0], '--n'),
    (['sft', '--out', 's', '--gflops', 'inf'], '--gflops'), (['sft', '--out', 's', '--gflops', 'nan'], '--gflops')],
    ids=lambda x: ' '.join(map(str, x)) if isinstance(x, list) else '')
def test_a_bad_argument_is_one_line(cli, arguments, named): refuses(cli, *arguments, named=named)


def options(kind):
    "Every option of a kind, as the path of its command and its name"
    for path, command in commands():
        for option in command.params:
            of = option.type_descriptor.annotation if hasattr(option, 'type_descriptor') else None
            if option.opts[0].startswith('--') and kind in (of, *get_args(of)): yield path, option.opts[0]


NEEDED = {('sft',): ('--out', 'x'), ('timeline',): ('run',), ('watch',): ('run',), ('calibrate',): ('x',),
          ('host', 'train'): ('--out', 'x')}       # of a command, beside the option


@pytest.mark.parametrize('value', ['inf', '-inf', 'nan', '1e999'])
def test_no_number_of_the_command_line_is_endless(cli, value):
    assert len(found := list(options(float))) >= 4
    for path, option in found: refuses(cli, *path, *NEEDED.get(path, ()), option, value, named=option)


@pytest.mark.parametrize('value', [-1, 0, 1025, 100_000, 10 ** 30])
def test_threads_are_bounded_as_in_a_run(cli, value):
    found = [path for path, option in options(int) if option == '--threads']
    assert {('run',), ('calibrate',), ('train',), ('islands',), ('host', 'train'), ('bench', 'generation'),
            ('bench', 'real')} == set(found)
    for path in found: refuses(cli, *path, *NEEDED.get(path, ()), '--threads', value, named='--threads')
    with pytest.raises(ValueError, match='expected 1 to 1024'): load_host(threads=value)


@pytest.mark.parametrize('place', ['no/x', 'file/x', 'file', 'link'])
def test_a_place_for_a_result_is_looked_at_before_the_work(cli, place):
    Path('file').write_text('precious')
    Path('link').symlink_to('nowhere/x')
    with_out = {path for path, option in options(Path) if option == '--out' and path[:1] == ('bench',)}
    folders = {('bench', name) for name in ('suite', 'assimilation', 'real', 'worlds', 'selection')}
    assert len(with_out) > 8 and folders < with_out
    for path in sorted(with_out) if place.startswith('file') else sorted(with_out - folders):
        refuses(cli, *path, '--out', place, named=place)
    if place == 'no/x':
        for command in (['host', 'measure'], ['calibrate', 'embedded'], ['tasks']):
            refuses(cli, *command, '--out', place, named=place)
    if place == 'file/x':
        for command in ('sft', 'host train'): refuses(cli, *command.split(), '--out', place, named=place)


@pytest.mark.parametrize('as_json', [True, False])
def test_a_result_is_on_the_screen_before_it_is_written(capfd, monkeypatch, as_json):
    def full(file, data): raise OSError(28, 'No space left on device')
    monkeypatch.setattr('evolora.utils.files._put', full)
    rows = [{'a': 1.25}]
    with pytest.raises(OSError): publish('it', rows, [], {'It': pd.DataFrame(rows)}, as_json, Path('x'))
    assert '1.25' in capfd.readouterr().out and not list(Path().iterdir())


@pytest.mark.parametrize('command', [[], ['host']], ids=['evolora', 'evolora host'])
def test_no_command_shows_the_help(cli, command):
    _, out, err = cli(*command)
    assert 'Usage' in out and err == ''


# --- what cannot be done: asking

@pytest.mark.parametrize('name', ['missing', 'empty', 'file'])
def test_what_is_no_run_cannot_be_asked(cli, name):
    Path('empty').mkdir()
    Path('file').write_text('{}')
    refuses(cli, 'ask', name, 'hello', named='expected a run folder')


def last(run): return checkpoints(run)[-1]


def edit_host(id):
    def edit(run):
        record = json.loads((run / 'run.json').read_text())
        record['host']['id'] = id
        (run / 'run.json').write_text(json.dumps(record))
    return edit


def edit_config(run):
    record = json.loads((run / 'run.json').read_text())
    record['config']['founders'] = 5
    (run / 'run.json').write_text(json.dumps(record))


@pytest.mark.parametrize('damage', [lambda run: (run / 'run.json').write_text('{'),
                                    lambda run: (run / 'run.json').write_text('[]'), edit_config,
                                    edit_host(5), edit_host(['x']), edit_host('\x1b[2J'),
                                    lambda run: shutil.rmtree(run / 'checkpoints'),
                                    lambda run: (last(run) / 'population/population.json').unlink(),
                                    lambda run: next(last(run).rglob('*.safetensors')).write_bytes(b'x'),
                                    lambda run: next(last(run).rglob('*.safetensors')).unlink()],
                         ids=['half run.json', 'list run.json', 'edited', 'a number as host', 'a list as host',
                              'a host that steers', 'no checkpoint', 'no population.json', 'other weights',
                              'no weights'])
def test_a_damaged_run_cannot_be_asked(cli, world, damage):
    damage(Path(shutil.copytree(world / 'run', 'run')))
    refuses(cli, 'ask', 'run', 'hello')
    refuses(cli, 'run', '--resume', 'run', '--generations', GENERATIONS + 1)


@pytest.fixture
def online(monkeypatch):
    "The hub may be asked, as far as settings go; the list of what was"
    asked = []
    def ask(*what, **_):
        asked.append(what)
        raise OSError('no network here')
    for name in ('socket.socket.connect', 'socket.getaddrinfo', 'evolora.host.model.urlopen'):
        monkeypatch.setattr(name, ask)
    monkeypatch.setattr('huggingface_hub.constants.HF_HUB_OFFLINE', False)
    return asked


@pytest.mark.parametrize('id', ['someone/model', 'model', 'qwen3-0.6b', 'so&me/mo;del', '\x1b[2J/x'])
def test_no_name_in_a_file_makes_a_command_ask_the_hub(cli, world, online, tmp_path, monkeypatch, id):
    monkeypatch.setenv('HF_HUB_CACHE', str(tmp_path / 'hub'))
    edit_host(id)(Path(shutil.copytree(world / 'run', 'run')))
    Path('adapter').mkdir()
    Path('adapter/adapter_config.json').write_text(json.dumps({'base_model_name_or_path': id}))
    Path('rival/adapter').mkdir(parents=True)
    Path('rival/trained.json').write_text(json.dumps({'host': id, 'hashes': {}}))
    for command in (['ask', 'run', 'hello'], ['export', 'run', 'x'], ['holdout', 'run'], ['holdout', 'adapter'],
                    ['holdout', 'rival'], ['run', '--resume', 'run', '--generations', GENERATIONS + 1],
                    ['run', '--resume', 'run', '--config', world / 'small.yaml']):
        refuses(cli, *command)
        assert not online, command
    assert not constants.HF_HUB_OFFLINE
    if id == 'someone/model':
        assert 'if you trust it: evolora host measure --host someone/model' in cli('holdout', 'adapter')[2]
        with pytest.raises(ValueError): load_host(id)        # whom a user names, is asked
        assert online


def test_a_run_is_asked_on_its_own_host(cli, world, tmp_path, sketched):
    host = shutil.copytree(world / 'host', tmp_path / 'host')
    code, _, err = cli('run', '--config', config(), '--host', host, '--generations', 1, '--out', 'run')
    assert code == 0, err
    save(host, seed=1)
    refuses(cli, 'ask', 'run', 'hello', named='host was')


@pytest.mark.parametrize('arguments, named', [(['hello', '--members', 'o99'], 'o99'), ([''], 'prompt'),
                                             (['hello', '--strategy', 'pray'], 'pray'),
                                             (['hello', '--strategy', 'verify', '--members', 'o1'], 'at least 2'),
                                             (['hello', '--max-new-tokens', 0], '--max-new-tokens'),
                                             (['x' * 600], 'context'), (['hello', '--max-new-tokens', 8000], 'context'),
                                             pytest.param(['\udcff'], 'prompt', id='half a character')])
def test_what_cannot_be_asked_is_one_line(cli, world, arguments, named):
    run = Path(shutil.copytree(world / 'run', 'run'))
    refuses(cli, 'ask', run, *arguments, named=named)


# --- run, then ask

def test_a_run_prints_what_it_does(world):
    text = (world / 'stdout.txt').read_text()
    lines = [line for line in text.splitlines() if line.startswith('generation ')]
    assert len(lines) == GENERATIONS
    for line in lines: assert all(part in line for part in ('ROI', 'accuracy', 'believed', 'scoring', ' s'))
    assert 'Summary' in text and 'report.md' in text and 'evolora ask' in text and 'evolora holdout' in text


def test_a_run_leaves_plain_text_a_report_and_its_population(world):
    run = Run.open(world / 'run')
    assert run.version == evolora.__version__ and run.seed == 7 and run.host['id'] == str(world / 'host')
    assert run.hashes['host'] == load_host(world / 'host').weights_hash()
    assert set(run.hashes) == {'config', 'host', 'streams', 'grader', 'cost'}
    assert run.table('generations').generation.tolist() == list(range(GENERATIONS))
    # No knob was turned, no feedback given, there are no parts, and nothing was right, so that nothing can be compared
    # or merged.
    untouched = 'knobs', 'feedback', 'evolution', 'gates', 'society'
    for table in TABLES: assert bool(len(run.table(table))) is (table not in untouched)
    report = (world / 'run/report.md').read_text()
    charts = re.findall(r'!\[.*?\]\((.*?)\)', report)
    assert charts and all((world / 'run' / chart).stat().st_size > 1000 for chart in charts)


def test_the_same_seed_leaves_the_same_bytes(cli, world):
    "In another process, with other hashes of strings, in another place: only the clock differs"
    again = lambda seed, out: cli('run', '--config', world / 'small.yaml', '--host', world / 'host', '--generations',
                                  GENERATIONS, '--seed', seed, '--out', out)
    assert again(7, 'again/run')[0] == 0
    with sketching(): assert again(8, 'other/run')[0] == 0
    first, second, other = disk(world / 'run'), disk('again/run'), disk('other/run')
    assert first.keys() == second.keys()
    # A manifest vouches for the timings, too.
    assert {name for name in first if first[name] != second[name]} == {
        'timings.jsonl', f'checkpoints/{GENERATIONS:06}/manifest.json'}
    assert all(first[f'{table}.jsonl'] != other[f'{table}.jsonl'] for table in ('episodes', 'generations', 'ledger'))


def test_a_run_without_a_place_takes_the_next_free_one(cli, world, sketched):
    for _ in range(2): assert cli('run', '--config', config(), '--host', world / 'host', '--generations', 1)[0] == 0
    assert sorted(p.name for p in Path('runs').iterdir()) == ['small-seed0', 'small-seed0-2']


def alive(run):
    return [o['id'] for o in json.loads((last(run) / 'population/population.json').read_text())['organelles']]


@pytest.mark.parametrize('strategy', ['route', 'vote', 'verify'])
def test_a_run_is_asked_and_says_who_answered_and_why(cli, world, strategy):
    run = Path(shutil.copytree(world / 'run', 'run'))
    before = disk(run)
    code, out, err = cli('ask', run, 'Sort the letters: dbac', '--strategy', strategy)
    assert code == 0 and out.startswith(f'{strategy}: ') and 'because' in out and any(id in out for id in alive(run))
    assert 'resembles string.sort' in err and 'GFLOPs' in err
    assert cli('ask', run, 'Sort the letters: dbac', '--strategy', strategy)[1] == out
    assert disk(run) == before, 'nothing is fitted: whom to ask is known'


def test_several_questions_are_asked_of_one_host(cli, world, monkeypatch):
    run = Path(shutil.copytree(world / 'run', 'run'))
    alone = [cli('ask', run, q)[1] for q in ('Sort the letters: dbac', 'What is 2 + 3?')]
    monkeypatch.setattr('sys.stdin', io.StringIO('Sort the letters: dbac\n\n \nWhat is 2 + 3?'))
    code, out, err = cli('ask', run, '--interactive')
    assert code == 0 and out == ''.join(alone) and err.count('GFLOPs') == 2 and '? ' not in err.splitlines()[0][:2]
    monkeypatch.setattr('sys.stdin', io.StringIO('x' * 100_000 + '\nSort the letters: dbac\n'))
    code, out, err = cli('ask', run, '-i')
    assert code == 0 and out == alone[0] and err.splitlines()[0].startswith('evolora: ')
    assert 'got both' in cli('ask', run, 'Sort the letters: dbac', '-i')[2]


def test_the_version_is_that_of_the_package(cli):
    import evolora
    assert cli('--version')[:2] == (0, f'evolora {evolora.__version__}\n')


def test_who_waits_sees_a_bar_that_goes_when_it_is_done(cli, world, monkeypatch, sketched):
    run, seen = Path(shutil.copytree(world / 'run', 'run')), []
    monkeypatch.setattr('evolora.utils.terminal.Bars.update', lambda bar, job, **how: seen.append(
        (bar.tasks[job].description, how['completed'], how['total'])))
    monkeypatch.setattr('evolora.utils.terminal.Bars.advance', lambda bar, job: seen.append(bar.tasks[job].description))
    other = Path(shutil.copytree(world / 'run', 'other'))
    assert cli('compare', run, other)[0] == 0 and seen == ['reading', 'reading']
    del seen[:]
    assert cli('run', '--resume', run, '--generations', GENERATIONS)[0] == 0 and seen == ['report'] * (len(CHARTS) + 2)
    del seen[:]
    assert cli('report', run, other, '--html', '--out', 'both')[0] == 0
    drawn = len(seen) // 2 - 3          # charts for which both have something to show; two readings, one page
    assert seen == ['report'] * (drawn + 3) + ['dashboard'] * (drawn + 3) and drawn >= 1


@pytest.mark.parametrize('word, command', [('dashboard', 'report RUN --html'), ('resume', 'run --resume'),
                                          ('presets', 'config')])
def test_what_is_looked_for_under_another_name_is_found(cli, word, command): refuses(cli, word, 'x', named=command)


def test_a_preset_may_be_called_one(cli):
    assert cli('run', '--preset', 'debug', '--dry-run') == cli('run', '--config', 'debug', '--dry-run')


def test_who_waits_for_the_libraries_is_told_before_anything_else(cli, world, monkeypatch):
    said = []
    monkeypatch.setattr('evolora.cli.hosts.meanwhile', lambda look, **how: nullcontext(said.append(look())))
    assert cli('run', '--preset', 'debug', '--dry-run')[0] == 0 and said[0].startswith('loading the libraries')


def test_a_value_of_a_configuration_is_not_cut(cli, monkeypatch):
    monkeypatch.setenv('COLUMNS', '50')
    lines = cli('config', 'debug')[1].splitlines()
    assert lines[0] == 'cells = ["string.sort:1", "logic.bool:1", "math:1"]' and lines[1].startswith('    (default')
    assert all(len(line) <= 50 for line in lines if line.startswith(' '))


def test_any_living_organelle_and_the_host_can_be_asked(cli, world):
    run = Path(shutil.copytree(world / 'run', 'run'))
    for id in [*alive(run), 'host']: assert id in cli('ask', run, 'hello', '--members', id)[1]


def test_what_was_grown_is_taken_away(cli, world):
    run = Path(shutil.copytree(world / 'run', 'run'))
    for name in (alive(run)[0], 'best', 'merged'):
        code, out, err = cli('export', run, name, '--organelle', name, '--n', 24)
        assert code == 0 and name in out, err
        assert 'asking the adapter' in err and 'asking the host' in err
        assert ('asking all organelles' in err) == (name == 'merged'), 'the best one is believed most'
        assert sorted(p.name for p in Path(name).iterdir()) == ['README.md', 'adapter_config.json',
                                                                'adapter_model.safetensors']
    refuses(cli, 'export', run, 'best', named='best')
    refuses(cli, 'export', run, 'other', '--organelle', 'o99', named='o99')


def test_it_is_taken_to_other_programs(cli, world):
    run = Path(shutil.copytree(world / 'run', 'run'))
    for name, held in (('merged', 'model.safetensors'), ('gguf', 'adapter.gguf')):
        code, out, err = cli('export', run, name, '--format', name, '--n', 24)
        assert code == 0 and name in out and {held, 'README.md'} <= {p.name for p in Path(name).iterdir()}, err
        refuses(cli, 'export', run, name, '--format', name, named='exists')
    assert cli('export', run, 'adapter', '--n', 24)[0] == 0
    refuses(cli, 'export', 'adapter', 'again', '--format', 'gguf', named='give --host')
    code, out, err = cli('export', 'adapter', 'again', '--format', 'gguf', '--host', world / 'host')
    assert code == 0 and Path('again/adapter.gguf').stat().st_size == Path('gguf/adapter.gguf').stat().st_size, err
    for arguments, named in ((['--format', 'onnx'], 'peft, merged, gguf'), (['--organelle', 'o1'], '--organelle')):
        refuses(cli, 'export', 'adapter', 'other', *arguments, named=named)
    refuses(cli, 'export', run, 'other', '--host', 'embedded', named='--host')
    assert not Path('other').exists()


# --- going on

def test_a_run_goes_on_as_if_it_had_never_stopped(cli, world, sketched):
    small = ['--config', world / 'small.yaml', '--host', world / 'host', '--seed', 7]
    assert cli('run', *small, '--generations', 1, '--out', 'run')[0] == 0
    code, out, err = cli('run', '--resume', 'run', '--generations', GENERATIONS)
    assert code == 0 and 'going on after 1 generations' in out and 'nothing is lived through' not in err, err
    one, two = disk(world / 'run'), disk('run')
    tables = [f'{table}.jsonl' for table in TABLES if table != 'timings']
    assert all(one[name] == two[name] for name in tables)
    code, out, err = cli('run', '--resume', 'run', *small, '--generations', GENERATIONS)
    assert code == 0 and 'nothing is lived through' in err, 'what is the same does no harm'
    assert all(disk('run')[name] == two[name] for name in tables), 'there was nothing left to do'


@pytest.mark.parametrize('arguments, named', [
    (['--seed', 8], 'expected the seed of the run, 7'), (['--host', 'embedded'], 'expected the host of the run'),
    (['--config', 'debug'], 'expected the configuration of the run'), (['--out', 'x'], 'got both'),
    (['--dry-run'], 'got both')], ids=lambda x: str(x[0]) if isinstance(x, list) else '')
def test_a_run_does_not_go_on_as_another_one(cli, world, arguments, named):
    shutil.copytree(world / 'run', 'run')
    refuses(cli, 'run', '--resume', 'run', *arguments, named=named)


def test_a_damaged_run_does_not_go_on(cli, world):
    shutil.copytree(world / 'run', 'run')
    (last('run') / 'state.json').write_text('{}')
    refuses(cli, 'run', '--resume', 'run', named='state.json')
    refuses(cli, 'run', '--resume', 'nowhere', named='expected a run folder')


def test_a_folder_that_was_removed_is_not_to_be_resumed(cli, world, monkeypatch, sketched):
    from evolora.ecology import run_folder
    def gone(path, data):
        shutil.rmtree('run', ignore_errors=True)
        return real(path, data)
    real = run_folder.append
    monkeypatch.setattr(run_folder, 'append', gone)
    code, out, err = cli('run', '--config', config(), '--host', world / 'host', '--out', 'run')
    assert code == 2 and len(err.splitlines()) == 1
    assert '--resume' not in err and 'run was removed: restore it, or begin a new run' in err


def test_a_full_disk_is_one_line_that_says_how_to_go_on(cli, world, monkeypatch, sketched):
    from evolora.ecology import run_folder
    def full(path, data):
        if len(list(Path('run').glob('timings.jsonl'))): raise OSError(28, 'No space left on device')
        return real(path, data)
    real = run_folder.append
    monkeypatch.setattr(run_folder, 'append', full)
    code, out, err = cli('run', '--config', config(), '--host', world / 'host', '--out', 'run')
    assert code == 2 and len(err.splitlines()) == 1
    assert 'No space left on device' in err and 'goes on' in err and '--resume run' in err
    monkeypatch.setattr(run_folder, 'append', real)
    assert cli('run', '--resume', 'run', '--generations', 2)[0] == 0


def test_a_disk_that_was_full_from_the_beginning_is_one_line(cli, world, monkeypatch):
    def full(file, data): raise OSError(28, 'No space left on device')
    monkeypatch.setattr('evolora.utils.files._put', full)
    refuses(cli, 'run', '--config', config(), '--host', world / 'host', '--out', 'run', named='left on device; choose')


OFTEN = 'embedded', 'smollm2-135m-q4', 'gemma-3-270m'      # ours, a file, a folder of the hub


@pytest.mark.parametrize('host', [pytest.param(host, marks=[pytest.mark.slow][:host not in OFTEN])
                                  for host in ('embedded', *KNOWN)])
def test_a_dry_run_loads_and_writes_nothing(cli, monkeypatch, host):
    monkeypatch.setattr('evolora.host.model.load_host', lambda *args, **how: pytest.fail('weights were loaded'))
    monkeypatch.setenv('EVOLORA_CACHE', 'nowhere')
    code, out, err = cli('run', '--host', host, '--dry-run')
    assert code == 0 and 'no weights were loaded' in out and 'GFLOP' in out, err
    assert not list(Path().iterdir())


def test_a_gguf_file_is_lived_on_and_gone_on_with(cli, tmp_path, monkeypatch, sketched):
    monkeypatch.setenv('EVOLORA_CACHE', str(tmp_path / 'cache'))
    write_tiny_gguf('tiny.gguf')
    assert cli('run', '--config', config(), '--host', 'tiny.gguf', '--generations', 1, '--out', 'run')[0] == 0
    assert Run.open('run').host['id'] == str(Path('tiny.gguf').absolute())
    assert cli('run', '--resume', 'run', '--host', 'tiny.gguf', '--generations', 2)[0] == 0
    assert cli('ask', 'run', 'hello')[0] == 0
    code, out, err = cli('run', '--host', 'tiny.gguf', '--config', 'debug', '--dry-run')
    assert code == 0 and '33,088' in out, err
    refuses(cli, 'run', '--host', 'smollm2-135m-q4', '--out', 'out', named='evolora host fetch smollm2-135m-q4')
    Path('tiny.gguf').write_bytes(Path('tiny.gguf').read_bytes()[:5000])
    for arguments in (['run', '--host', 'tiny.gguf', '--out', 'out'], ['run', '--host', 'tiny.gguf', '--dry-run'],
                      ['ask', 'run', 'hello'], ['host', 'measure', '--host', 'tiny.gguf', '--out', 'x.json']):
        refuses(cli, *arguments, named='not a whole GGUF file')


# --- comparing, and what is here

def test_runs_are_compared_where_they_can_be(cli, world, sketched):
    dear = config('dear.yaml', economy=dict(price_token=1.))
    assert cli('run', '--config', dear, '--host', world / 'host', '--generations', 2, '--out', 'dear')[0] == 0
    code, out, err = cli('compare', world / 'run', 'dear')
    assert code == 0 and 'economy.price_token' in out and 'seed' in out and 'accuracy' in out and 'capacity' not in out
    shutil.copytree('dear', '[bold]')
    assert '2 [bold]' in cli('compare', 'dear', '[bold]')[1]
    (Path('[bold]') / 'lineage.jsonl').write_text('{}')
    refuses(cli, 'compare', 'dear', '[bold]', named='lineage.jsonl')
    assert cli('run', '--config', 'debug', '--generations', 1, '--out', 'foreign')[0] == 0
    for arguments, named in (((world / 'run',), 'two runs'), ((world / 'run', 'foreign'), 'host was'),
                             ((world / 'run', 'nowhere'), 'run folder')):
        refuses(cli, 'compare', *arguments, named=named)


def test_the_doctor_looks_at_everything(cli, monkeypatch):
    code, out, err = cli('doctor', '--json')
    found = json.loads(out)
    names = {row['what'].split()[0].lower() for row in found['rows']}
    assert {'torch', 'python'} <= names and code == (not found['ready'])


def test_a_run_can_be_asked_from_anywhere(cli, world, monkeypatch, sketched):
    shutil.copytree(world / 'host', 'host')
    assert cli('run', '--config', config(), '--host', 'host', '--generations', 1, '--out', 'run')[0] == 0
    Path('deep').mkdir()
    monkeypatch.chdir('deep')
    assert cli('ask', '../run', 'hello')[0] == 0


def test_a_run_ends_with_a_question_of_its_own_cells(cli, world, sketched):
    def suggested(*cells):
        code, out, _ = cli('run', '--config', config(cells=cells), '--host', world / 'host', '--generations', 1,
                           '--out', cells[0].replace(':', '-'))
        line, = (x for x in out.splitlines() if x.startswith('ask it: '))
        return code == 0 and line.partition('-1 ')[2]
    assert suggested('string.sort:1', 'math:1') == '"Sort the letters: jghn"'
    for name in ('math', 'json_repair'):        # the latter asks for double quotes, which a shell would take away
        question = example([Cell(name, 1)])
        assert shlex.split(suggested(f'{name}:1')) == [question]
    assert '"' in question


def test_a_run_without_a_right_answer_stops_says_why_and_goes_on(cli, world, sketched):
    small = config(cells=['math:1'], variation=dict(every=0))
    code, out, err = cli('run', '--config', small, '--host', world / 'host', '--generations', 9, '--out', 'run')
    assert (code, err) == (3, '') and Run.open('run').table('generations').accuracy.tolist() == [0.] * PATIENCE
    assert 'no answer was right in generations 0 to 2; all is kept' in out
    assert f'evolora calibrate {world / "host"}' in out and 'go on: evolora run --resume run --generations 6' in out
    assert all(line.isprintable() for line in out.splitlines())
    code, out, err = cli('run', '--resume', 'run', '--generations', 6)
    assert (code, err) == (0, '') and 'generations 0 to 5' in out, 'it is printed, but the end was asked for'
    code, out, err = cli('run', '--resume', 'run', '--generations', 8, '--patience', 0)
    assert (code, err) == (0, '') and 'stopped' not in out
    assert cli('run', '--resume', 'run', '--generations', 20, '--patience', 9)[0] == 3
    assert len(Run.open('run').rows('generations')) == 9
    refuses(cli, 'run', '--resume', 'run', '--patience', -1, named='--patience')
    assert inspect.signature(run).parameters['patience'].default == PATIENCE


# --- looking at a run: made-up tables do, and no model is needed

@pytest.fixture(scope='module')
def made(tmp_path_factory):
    "Two made-up runs of one kind"
    place = tmp_path_factory.mktemp('made')
    return [write_run(place / f'seed{seed}', generations=6, size=8, tries=2, seed=seed).folder for seed in (0, 1)]


@pytest.fixture
def pair(made): return [Path(shutil.copytree(run, run.name)) for run in made]


def test_a_report_is_written_and_named(cli, pair, sketched):
    one = pair[0]
    before = disk(one)
    code, out, err = cli('report', one)
    assert (code, out) == (0, 'report: seed0/report.md\n') and err == ''
    assert {name.split('/')[0] for name in disk(one).keys() - before.keys()} == {'report.md', 'charts'}
    code, out, err = cli('report', one, '--html', '--out', 'new/place')
    assert (code, out) == (0, 'report: new/place/report.md\ndashboard: new/place/dashboard.html\n')
    assert Path('new/place/report.md').read_bytes() == (one / 'report.md').read_bytes()
    assert sorted(p.name for p in Path('new/place').iterdir()) == ['charts', 'dashboard.html', 'report.md']
    code, out, err = cli('report', *pair, '--html', '--out', 'both')
    assert code == 0 and 'both/dashboard.html' in out and '# 2 runs' in Path('both/report.md').read_text()
    refuses(cli, 'report', *pair, named='--out')
    refuses(cli, 'report', one, '--limit', 3, named='--limit')


def test_a_film_is_written_once(cli, pair):
    code, out, err = cli('timeline', pair[0], '--seconds', 1)
    assert (code, out) == (0, 'film: seed0/timeline.gif\n') and '6/6' in err
    assert (pair[0] / 'timeline.gif').read_bytes()[:6] == b'GIF89a'
    refuses(cli, 'timeline', pair[0], named='timeline.gif, which exists')
    assert cli('timeline', pair[0], '--out', 'films/x.webp')[0] == 0 and Path('films/x.webp').exists()
    for arguments, named in ((('--out', 'x.mp4'), '.gif or .webp'), (('--seconds', 0), '--seconds'),
                             (('--seconds', 'nan'), '--seconds'), (('--out', f'{"x" * 300}.gif'), 'too long')):
        refuses(cli, 'timeline', pair[0], *arguments, named=named)


def test_one_look_at_a_run(cli, pair):
    before = disk('.')
    code, out, err = cli('watch', pair[0], '--once')
    assert (code, err) == (0, '') and '6 generations' in out and 'generation   5' in out and disk('.') == before
    for every in (0, 'nan', 'often'): refuses(cli, 'watch', pair[0], '--every', every, named='--every')


def test_watching_ends_quietly_with_ctrl_c(cli, pair, monkeypatch):
    def pressed(seconds): raise KeyboardInterrupt
    monkeypatch.setattr('evolora.cli.watch.time.sleep', pressed)
    code, out, err = cli('watch', pair[0])
    assert (code, err) == (0, '') and '6 generations' in out


def test_a_comparison_shows_means_and_no_interval_of_two(cli, pair):
    code, out, err = cli('compare', *pair)
    out = ' '.join(out.split())
    assert (code, err) == (0, '') and 'Rates of the last generations, accuracy with 95 % intervals' in out
    assert 'Mean over seeds' in out and 'too few for an interval' in out


LOOKS = {'report': ['report'], 'html': ['report', '--html'], 'timeline': ['timeline'], 'watch': ['watch', '--once'],
         'compare': ['compare', 'seed0']}
WRITES = ['report', 'html', 'timeline']


def rewrite(table, **changes):
    "Every row of a table has something else"
    def damage(run):
        path = run / f'{table}.jsonl'
        rows = [json.loads(line) | changes for line in path.read_text().splitlines()]
        path.write_text(''.join(json.dumps(row) + '\n' for row in rows))
    return damage


def no_generation(run): (run / 'generations.jsonl').write_text('')
def edited(run): (run / 'run.json').write_text('{"format": 1}')
def deep(run): (run / 'run.json').write_text('[' * 100_000)
def no_rows(run): (run / 'generations.jsonl').write_text('nonsense\n' * 2)


def a_folder_as_table(run):
    (run / 'generations.jsonl').unlink()
    (run / 'generations.jsonl').mkdir()


@pytest.mark.parametrize('look', LOOKS.values(), ids=LOOKS)
@pytest.mark.parametrize('name', ['nowhere', 'empty', 'file', '', pytest.param('x' * 300, id='a long name')])
def test_what_is_no_run_cannot_be_looked_at(cli, pair, look, name):
    Path('empty').mkdir()
    Path('file').write_text('{}')
    refuses(cli, *look, name, named='too long' if len(name) == 300 else 'expected a run folder')


@pytest.mark.parametrize('look', LOOKS.values(), ids=LOOKS)
@pytest.mark.parametrize('damage', [edited, deep], ids=lambda x: x.__name__)
def test_a_record_of_a_hostile_hand_is_one_line(cli, pair, look, damage):
    damage(pair[1])
    refuses(cli, *look, pair[1], named='run.json')


@pytest.mark.parametrize('look', [LOOKS[name] for name in LOOKS if name != 'watch'],
                         ids=[name for name in LOOKS if name != 'watch'])
@pytest.mark.parametrize('damage, named', [
    (no_generation, 'at least one generation'), (no_rows, 'generations.jsonl'),
    (a_folder_as_table, 'generations.jsonl'),
    (rewrite('generations', cells=None), 'cells'), (rewrite('generations', cells={'a': 5}), 'every cell'),
    (rewrite('generations', gflops=None), 'gflops'), (rewrite('episodes', family=None), 'family'),
    (rewrite('lineage', parents=[5, {}]), 'parents'), (rewrite('lineage', organelle=None), 'organelle')],
    ids=['no generation', 'no rows', 'a folder', 'no cells', 'other cells', 'no FLOPs', 'no family', 'other parents',
         'no organelle'])
def test_tables_of_a_hostile_hand_are_one_line(cli, pair, look, damage, named):
    damage(pair[1])
    refuses(cli, *look, pair[1], named=named)


def test_a_run_without_a_generation_can_be_watched(cli, pair):
    no_generation(pair[0])
    assert '0 generations' in cli('watch', pair[0], '--once')[1]


def test_hostile_names_are_shown_as_names(cli, pair):
    def shown(folder, *looks):
        for look in looks:
            code, out, err = cli(*LOOKS[look], folder)
            assert code == 0 and '\x1b' not in out + err and 'Traceback' not in err, err
        assert all((folder / name).exists() for name in ('report.md', 'dashboard.html', 'timeline.gif'))
    shown(write_hostile(Path('r\x1b[2J'), generations=3), 'html', 'timeline')        # the former writes a report, too
    rewrite('lineage', parents=['o1'])(pair[0])      # all organelles descend from o1, o1 too
    with sketching('lineage'): shown(pair[0], *WRITES)


@pytest.mark.parametrize('arguments, blocks', [
    (['report'], 'report.md'), (['report'], 'charts'), (['report', '--html'], 'dashboard.html'),
    (['timeline'], 'timeline.gif'), (['report', '--out', 'file'], 'file'), (['report', '--out', 'file/deep'], 'file'),
    (['timeline', '--out', 'file/x.gif'], 'file')], ids=lambda x: ' '.join(x) if isinstance(x, list) else x)
def test_what_is_not_ours_stays(cli, pair, arguments, blocks):
    Path('file').write_text('precious')
    if blocks != 'file': (pair[0] / blocks).write_text('precious')
    command, *options = arguments
    refuses(cli, command, pair[0], *options, named=blocks)


def test_nothing_is_written_where_a_link_of_a_run_leads(cli, pair):
    Path('elsewhere').mkdir()
    (pair[0] / 'charts').symlink_to(Path('elsewhere').absolute())
    refuses(cli, 'report', pair[0], named='charts')
    Path('mine').mkdir()
    (Path('mine') / 'charts').symlink_to('nowhere')
    refuses(cli, 'report', *pair, '--out', 'mine', named='charts')


def test_a_full_disk_leaves_no_half_of_a_page(cli, pair, monkeypatch, sketched):
    def full(file, data): raise OSError(28, 'No space left on device')
    monkeypatch.setattr('evolora.utils.files._put', full)
    for look in WRITES:
        code, out, err = cli(*LOOKS[look], pair[0])
        assert (code, out) == (2, '') and 'No space left' in err.splitlines()[-1] and 'Traceback' not in err
        assert not [p for p in pair[0].rglob('*') if p.suffix in ('.md', '.png', '.html', '.gif', '.tmp')]


@pytest.mark.parametrize('name', ['report', 'timeline', 'watch', 'compare'])
def test_help_has_an_example(cli, name): assert f'evolora {name} runs/a' in ' '.join(cli(name, '--help')[1].split())


# --- a reader that goes away

GONE = """
import os, sys
read, write = os.pipe()
os.close(read)
os.dup2(write, 1)
if sys.argv.pop(1) == 'both': os.dup2(write, 2)
from evolora.cli.app import main
main()
"""


def silent(streams, *arguments):
    done = subprocess.run([sys.executable, '-c', GONE, streams, *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize('arguments', [pytest.param(['compare', 'seed0', 'seed1'], marks=pytest.mark.slow),
                                       ['watch', 'seed0', '--once'], ['--help'],
                                       ['tasks', '--n', '3', '--out', 'x']], ids=' '.join)
@pytest.mark.parametrize('streams', ['one', 'both'])
def test_a_reader_that_has_gone_ends_the_command_quietly(pair, arguments, streams):
    assert silent(streams, *arguments) == (141, '', '')


@pytest.mark.parametrize('gone', [1, 2], ids=['one', 'both'])
def test_tables_whose_reader_has_gone_end_quietly(pair, command, gone):
    assert command('compare', 'seed0', 'seed1', gone=gone) == (141, '', '')


def test_an_error_without_a_reader_is_quiet_too():
    assert silent('both', 'watch', 'nowhere') == (141, '', '')
    code, _, err = silent('one', 'watch', 'nowhere')
    assert code == 2 and 'expected a run folder' in err


def shell(redirected, *arguments):
    "The command as a shell starts it: exit code, standard output, standard error"
    command = f'exec "$0" -c "from evolora.cli.app import main; main()" "$@" {redirected}'
    done = subprocess.run(['sh', '-c', command, sys.executable, *arguments], capture_output=True, text=True)
    return done.returncode, done.stdout, done.stderr


def test_streams_that_are_closed_from_the_beginning_lead_nowhere(pair):
    assert shell('>&- 2>&- <&-', 'tasks', '--n', '3', '--out', 'closed.jsonl') == (0, '', '')
    assert shell('', 'tasks', '--n', '3', '--out', 'open.jsonl')[0] == 0
    assert Path('closed.jsonl').read_bytes() == Path('open.jsonl').read_bytes()
    code, _, err = shell('<&-', 'runs', '.', '--remove', 'seed0')
    assert code == 2 and err.startswith('evolora: expected --yes') and err.count('\n') == 1


@pytest.mark.skipif(not Path('/dev/full').exists(), reason='there is no disk that is always full')
@pytest.mark.parametrize('arguments', [['config', 'debug'], ['--version']], ids=' '.join)
def test_output_to_a_full_disk_is_one_line(pair, arguments):
    assert shell('>/dev/full', *arguments) == (
        2, '', 'evolora: No space left on device; choose a place that can be read and written\n')
    assert shell('>/dev/full 2>&1', *arguments)[0] == 2


def test_a_run_whose_reader_has_gone_can_go_on(cli, command, world, sketched):
    arguments = ['run', '--config', config(), '--host', world / 'host', '--generations', '3', '--out', 'run']
    assert command(*arguments, gone=1) == (141, '', '')
    assert cli('run', '--resume', 'run', '--generations', 2)[0] == 0


# --- Ctrl-C

def pressed(monkeypatch, times):
    "Ctrl-C is pressed in generation 1"
    step = Ecology.step
    def pressing(self):
        if self.generation == 1:
            for _ in range(times): os.kill(os.getpid(), signal.SIGINT)
        return step(self)
    monkeypatch.setattr(Ecology, 'step', pressing)


def test_ctrl_c_keeps_the_generation_the_population_and_the_report(cli, world, monkeypatch, sketched):
    pressed(monkeypatch, 1)
    code, out, err = cli('run', '--config', config(), '--host', world / 'host', '--generations', 50, '--out', 'run')
    assert code == 0 and 'stopped after generation 1, which is kept' in out
    assert Run.open('run').table('generations').generation.tolist() == [0, 1] and Path('run/report.md').exists()
    assert cli('ask', 'run', 'hello')[0] == 0


def test_the_second_ctrl_c_ends_at_once_and_keeps_what_was_written(cli, world, monkeypatch, sketched):
    pressed(monkeypatch, 2)
    code, out, err = cli('run', '--config', config(), '--host', world / 'host', '--generations', 50, '--out', 'run')
    assert code == 130 and 'Traceback' not in err
    assert Run.open('run').table('generations').generation.tolist() == [0]
    assert cli('ask', 'run', 'hello')[0] == 0, 'the checkpoint of the beginning is there'


# --- tasks

def test_the_same_seed_writes_the_same_tasks(cli):
    files = {}
    for name, seed in (('a', 3), ('b', 3), ('c', 4)):
        code, out, _ = cli('tasks', '--split', 'gate', '--n', 60, '--seed', seed, '--out', name)
        assert code == 0 and '60 gate tasks' in out
        files[name] = Path(name).read_bytes()
    assert files['a'] == files['b'] != files['c']
    assert hashlib.sha256(files['a']).hexdigest()[:16] == '8a5e8b1a5c0796c2', 'only usual families'
    tasks = read_tasks('a')
    assert len(tasks) == 60 and {stream_of(t) for t in tasks} == {'gate'} and {t.depth for t in tasks} == {1, 2, 3}
    assert all(grade(t, t.answer).success for t in tasks)


def test_one_family_at_one_depth(cli):
    assert cli('tasks', '--family', 'regex.synthesis', '--depth', 4, '--split', 'holdout', '--n', 7, '--out',
               'x')[0] == 0
    assert {(t.family, t.depth, stream_of(t)) for t in read_tasks('x')} == {('regex.synthesis', 4, 'holdout')}


# --- help

def commands(group=typer.main.get_command(app), path=()):
    yield path, group
    for name, command in getattr(group, 'commands', {}).items(): yield from commands(command, (*path, name))


@pytest.mark.parametrize('path, command', list(commands()), ids=lambda x: ' '.join(x) if isinstance(x, tuple) else '')
def test_help_tells_every_option(cli, path, command):
    code, out, err = cli(*path, '--help')
    out = re.sub(r'\x1b\[[0-9;]*m', '', out)
    assert (code, err) == (0, '') and 'Usage' in out
    for option in (name for p in command.params for name in p.opts if name.startswith('--')): assert option in out
    for name in getattr(command, 'commands', {}): assert name in out
    assert all(p.help for p in command.params if p.name != 'help')


def test_the_commands_are_those_that_are_promised():
    assert {' '.join(path) for path, _ in commands()} == {
        '', 'run', 'config', 'ask', 'tasks', 'sft', 'holdout', 'host', 'host fetch', 'host train', 'host measure',
        'calibrate',
        'bench', 'bench throughput', 'bench hosts', 'bench real', 'bench study',
        'bench generation', 'bench learning', 'bench memory', 'bench many', 'bench islands', 'train', 'islands',
        'bench suite', 'bench assimilation', 'bench resume', 'bench lab',
        'bench worlds', 'bench selection', 'bench society', 'bench attention', 'attention', 'attention evaluate',
        'attention evolve',
        'attention report', 'export', 'compare', 'docs', 'doctor', 'report', 'runs', 'timeline', 'watch', 'lab',
        'study'}


def test_a_forecast_says_what_it_does_not_know(cli):
    code, out, err = cli('run', '--dry-run', '--config', 'endogenous')
    assert code == 0 and 'not in it: what archive, allocation' in out + err
    assert 'not in it' not in ''.join(cli('run', '--dry-run')[1:])


# --- training the host

@pytest.fixture
def seconds(monkeypatch):
    "A curriculum that is over in seconds"
    import evolora.host.habit_host       # noqa: F401  it derives from the curriculum as it is
    quick = dict(hidden=16, layers=1, heads=2, basics=2, first_stage=3, steps=7, rows=2, row=96, checkpoint_every=2)
    monkeypatch.setattr(pretraining, 'PretrainingConfig', partial(pretraining.PretrainingConfig, **quick))


def interrupted(monkeypatch, at):
    calls, real = [], pretraining.loss_of
    def loss_of(model, batch):
        calls.append(1)
        if len(calls) == at: raise KeyboardInterrupt
        return real(model, batch)
    monkeypatch.setattr(pretraining, 'loss_of', loss_of)


def test_a_host_is_trained_and_training_goes_on_where_it_stopped(cli, seconds, monkeypatch):
    assert cli('host', 'train', '--threads', 1, '--out', 'whole')[0] == 0
    with monkeypatch.context() as patched:
        interrupted(patched, at=6)
        code, out, err = cli('host', 'train', '--threads', 1, '--out', 'parts')
        assert code == 130 and 'goes on from the last checkpoint' in err and 'Traceback' not in err
        assert sorted(p.name for p in Path('parts').iterdir()) == ['checkpoint.safetensors']
    assert cli('host', 'train', '--threads', 1, '--out', 'parts')[0] == 0
    whole, parts = (load_file(f'{folder}/model.safetensors') for folder in ('whole', 'parts'))
    assert whole.keys() == parts.keys() and all(whole[k].equal(parts[k]) for k in whole)
    assert Path('whole/pretraining.json').read_bytes() == Path('parts/pretraining.json').read_bytes()
    assert len(json.loads(Path('whole/pretraining.json').read_text())['losses']) == 7
    assert not Path('parts/checkpoint.safetensors').exists()
    host = load_host('parts')
    assert host.weights_hash() == load_host('whole').weights_hash() and host.tokenizer.chat_template
    assert len(host.generate(['What is 17 + 25?'], max_new_tokens=2)) == 1
    refuses(cli, 'host', 'train', '--out', 'parts', named='parts')           # finished: not to be trained over


def test_a_checkpoint_is_not_continued_with_other_settings(cli, seconds, monkeypatch):
    with monkeypatch.context() as patched:
        interrupted(patched, at=4)
        assert cli('host', 'train', '--threads', 1, '--out', 'host')[0] == 130
    refuses(cli, 'host', 'train', '--threads', 1, '--seed', 1, '--out', 'host', named='other settings')


def test_a_checkpoint_that_is_none_is_one_line(cli, seconds):
    Path('host').mkdir()
    Path('host/checkpoint.safetensors').write_text('hello')
    refuses(cli, 'host', 'train', '--threads', 1, '--out', 'host', named='checkpoint')


@pytest.mark.parametrize('occupy', [a_file, lambda: (a_folder(), Path('out/x').write_text('precious'))],
                         ids=['a file', 'a full folder'])
def test_nothing_is_overwritten_by_training(cli, seconds, occupy):
    occupy()
    refuses(cli, 'host', 'train', '--threads', 1, '--out', 'out', named='out')


def test_measuring_writes_no_second_table(cli, world):
    Path('table.json').write_text('precious')
    refuses(cli, 'host', 'measure', '--host', world / 'host', '--n', 8, '--out', 'table.json', named='table.json')


# --- what it learned

def trained(folder): return json.loads(Path(folder, 'trained.json').read_text())


def test_an_adapter_is_trained_on_gold_answers_and_goes_on_where_it_stopped(cli, monkeypatch):
    how = ('--examples', 480, '--families', 'string.sort', '--seed', 5)
    monkeypatch.setattr('evolora.experiments.baselines.CONDITIONS', {n: c.model_copy(update={'tasks': 20})
                                                         for n, c in CONDITIONS.items()})
    with monkeypatch.context() as patched:
        update, calls = Trainer.update, []
        def pressing(self, n=None):
            calls.append(n)
            if len(calls) == 13: raise KeyboardInterrupt
            return update(self, n)
        patched.setattr(Trainer, 'update', pressing)
        code, out, err = cli('sft', *how, '--out', 'parts')
    assert code == 130 and 'goes on from the last checkpoint' in err and 'Traceback' not in err
    assert [p.name for p in Path('parts').iterdir()] == ['checkpoint.safetensors']
    refuses(cli, 'sft', '--examples', 480, '--out', 'parts', named='another seed, cells')
    code, out, err = cli('sft', *how, '--out', 'parts')
    assert code == 0 and '480 gold answers' in out and 'evolora holdout parts' in out
    assert sorted(p.name for p in Path('parts').iterdir()) == ['adapter', 'trained.json']
    note = trained('parts')
    assert note['spent']['gold'] == 480 and note['families'] == 'string.sort' and note['seed'] == 5
    assert note['selection']['adapter'] > note['selection']['host'] + .1        # it does learn
    assert f"{note['selection']['adapter']:.1%}" in out
    refuses(cli, 'sft', *how, '--out', 'parts', named='parts')                   # finished: not to be trained over


def test_supervision_can_be_given_in_gflops(cli):
    assert cli('sft', '--gflops', 3, '--families', 'math', '--out', 'x')[0] == 0
    assert abs(trained('x')['spent']['learn'] / 3 - 1) < .03


def test_an_adapter_of_a_family_that_has_changed_since_is_not_compared(cli):
    assert cli('sft', '--gflops', 3, '--families', 'date.iso', '--out', 'x')[0] == 0
    note = trained('x')
    assert 'task family date.iso' in note['hashes']
    Path('x/trained.json').write_text(json.dumps(note | {'hashes': note['hashes'] | {'task family date.iso': 'other'}}))
    refuses(cli, 'holdout', 'x', named='task family date.iso')


@pytest.mark.parametrize('arguments, named', [
    (('--examples', 5, '--gflops', 2.), '--gflops'), (('--families', 'maths'), 'maths'),
    (('--families', 'math.multi_step'), 'kept for the holdout'), (('--examples', 0), '--examples'),
    (('--gflops', -1), '--gflops'), (('--host', 'nowhere'), 'nowhere')])
def test_what_cannot_be_supervised_is_one_line(cli, arguments, named):
    refuses(cli, 'sft', *arguments, '--out', 'new', named=named)


@pytest.mark.parametrize('occupy', [a_file, lambda: (a_folder(), Path('out/x').write_text('precious'))],
                         ids=['a file', 'a full folder'])
def test_nothing_is_overwritten_by_supervision(cli, occupy):
    occupy()
    refuses(cli, 'sft', '--examples', 5, '--out', 'out', named='out')


def test_the_holdout_measures_runs_and_adapters_beside_the_host(cli, world):
    assert cli('sft', '--examples', 40, '--host', world / 'host', '--out', 'rival')[0] == 0
    code, out, err = cli('holdout', world / 'run', 'rival', '--n', 24, '--json')
    assert code == 0
    rows, origins = (json.loads(out)[k] for k in ('rows', 'origins'))
    assert origins[str(world / 'run')].keys() == {'host', 'seed', 'version', 'config', 'streams', 'grader', 'cost'}
    ways = ['routed', 'vote', 'oracle']
    assert [(r['what'], r['way']) for r in rows if not r['way'].startswith('best')] == [
        ('host', 'host'), *((str(world / 'run'), w) for w in ways), ('rival', 'adapter')]
    assert sum(r['way'].startswith('best: o') for r in rows) == 1
    assert all(r['ID low'] <= r['ID'] <= r['ID high'] for r in rows) and rows[0]['ID gain'] == 0
    shutil.copytree(world / 'run', 'twin')
    code, out, err = cli('holdout', world / 'run', 'twin', '--n', 24)
    assert code == 0 and 'What differs' in out
    code, out, err = cli('holdout', 'rival', '--n', 24)
    assert code == 0 and 'looked at once' in out and 'adapter' in out
    assert 'By family' in out and 'json_repair' in out and 'of ordinary questions answered otherwise' in out


def test_what_does_not_compare_is_one_line(cli, world):
    assert cli('sft', '--examples', 4, '--families', 'math:1', '--host', world / 'host', '--out', 'there')[0] == 0
    assert cli('sft', '--examples', 4, '--families', 'math:1', '--out', 'here')[0] == 0
    for arguments, named in (((), 'runs'), (('nowhere',), 'nowhere'), (('here', 'there'), 'one host'),
                             (('here', '--n', 3), '--n')):
        code, out, err = cli('holdout', *arguments)
        assert code == 2 and out == '' and named in err.lower() and 'Traceback' not in err, err


# --- studies that are measurements

@pytest.fixture
def brief(monkeypatch):
    "The headline, in a moment"
    from evolora.experiments import suite
    def small(host='embedded', quick=False):
        plan = suite_plan(host, True)
        return plan.model_copy(update={'budgets': (6.,), 'seeds': (1,), 'measured': plan.measured.model_copy(
            update={'id': 24})})
    suite_plan = suite.suite_plan
    monkeypatch.setattr(suite, 'suite_plan', small)


def suite(*more): return ('bench', 'suite', '--jobs', 1, *more)


def test_the_suite_prints_its_table_and_goes_on(cli, brief, sketched):
    code, out, err = cli(*suite('--out', 'cells', '--json'))
    assert code == 0 and '3/3 sft-1' in err and 'report: cells/report/README.md' in err, err
    result = json.loads(out)
    assert (result['name'], result['rows'][0]['condition']) == ('suite', 'frozen')
    assert set(result) == {'name', 'rows', 'targets', 'targets_met'} and len(result['targets']) == 2
    before = disk('cells')
    code, out, err = cli(*suite('--out', 'cells'))
    assert code == 0 and '3 of 3 cells are there' in err
    assert 'Accuracy on selection questions' in out and 'Targets' in out
    assert all(disk('cells')[name] == before[name] for name in before if name.startswith('cells/'))
    refuses(cli, *suite('--out', 'cells', '--seeds', 2), named='expected the study of this folder')
    refuses(cli, *suite('--out', 'cells/study.json'), named='folder')
    refuses(cli, *suite('--host', 'nowhere'), named='nowhere')


def test_ctrl_c_keeps_the_finished_cells(cli, brief, monkeypatch):
    from evolora.experiments import study
    real = study.make_cell
    def pressing(plan, cell, *rest, **how):
        if cell.condition == 'single': raise KeyboardInterrupt
        return real(plan, cell, *rest, **how)
    monkeypatch.setattr(study, 'make_cell', pressing)
    code, out, err = cli(*suite('--out', 'cells'))
    assert code == 130 and 'the same command makes the cells' in err and 'Traceback' not in err and out == ''
    assert [p.name for p in Path('cells/cells').iterdir()] == ['frozen-1.json']


def test_a_quick_suite_leaves_nothing(cli, brief):
    code, out, err = cli('bench', 'suite', '--quick')
    assert code == 0 and 'frozen-1' in err and 'single-1' in err and not list(Path().iterdir())


def test_a_suite_with_a_failed_cell_prints_the_others(cli, brief, monkeypatch, sketched):
    from evolora.experiments import study
    real = study.make_cell
    def failing(plan, cell, *rest, **how):
        if cell.condition == 'single': raise ValueError('gone')
        return real(plan, cell, *rest, **how)
    monkeypatch.setattr(study, 'make_cell', failing)
    code, out, err = cli(*suite('--out', 'cells'))
    assert code == 2 and 'frozen' in out and err.splitlines()[-1].startswith('evolora: 1 of 3 cells failed')


def test_the_driver_is_checked(cli, monkeypatch):
    from evolora.experiments import study_check as check
    import pandas as pd
    monkeypatch.setattr(check, 'timings', lambda plan, folder, repeats, tick: [
        {'one': 2., 'two': 1.1, 'cells': 1.99, 'overhead': .005, 'speedup': 1.8}])
    monkeypatch.setattr(check, 'ways', lambda plan, folder, tick: pd.DataFrame(
        {'way': ['one process', 'three shards'], 'same': [True, True], 'said': ''}))
    monkeypatch.setattr(check, 'refusals', lambda plan, folder: pd.DataFrame(
        {'what': ['a full disk'], 'exit': [2], 'wanted': [2], 'fine': [True], 'said': ['evolora: no']}))
    code, out, err = cli('bench', 'study', '--quick', '--json')
    found = {t['name']: t['met'] for t in json.loads(out)['targets']}
    assert code == 0 and set(found.values()) == {None, True} and sum(v is None for v in found.values()) == 4


# --- merges

@pytest.fixture
def short(monkeypatch):
    "Lives and simulations that take a moment"
    from evolora.experiments import gate_calibration as acceptance
    from evolora.experiments import study_plan
    sizes = dict(streams=10, late=10, merges=1, homes=2, tasks=400, runs=1, gates=2)
    toss = np.random.default_rng(0).random((2, 400))
    made = acceptance.Pool('made up', *({f: toss[i] < .7 for i, f in enumerate(('math', 'logic.bool'))} for _ in 'ab'))
    Amounts, load = acceptance.Sizes, study_plan.load_plan
    def small(name):
        plan = load(name)
        first, twin = plan.conditions
        return plan.model_copy(update={
            'conditions': (first.model_copy(update={'generations': 4}), twin),
            'measured': plan.measured.model_copy(update=dict(id=24, ood=8, audit=8))})
    monkeypatch.setattr(study_plan, 'load_plan', small)
    monkeypatch.setattr(acceptance, 'Sizes', lambda **how: Amounts(**how | sizes))
    monkeypatch.setattr(acceptance, 'pools', lambda *a, **how: iter([made]))


def merging(*more): return ('bench', 'assimilation', '--seeds', 1, '--jobs', 1, *more)


def test_the_measurement_of_merges_prints_its_tables_and_goes_on(cli, short):
    code, out, err = cli(*merging('--out', 'merges', '--json'))
    assert code == 0 and '2/2 without-1' in err and 'planted nulls: 1 of 1 runs' in err, err
    result = json.loads(out)
    assert (result['name'], set(result)) == ('assimilation', {'name', 'rows', 'targets', 'targets_met'})
    assert {'Lives', 'Power at the tenth gate'} <= {r['table'] for r in result['rows']}
    assert len(result['targets']) == 7
    assert {'acceptance.json', 'study.json', 'cells/with-1.json', 'cells/without-1.json'} <= set(disk('merges'))
    before = disk('merges')
    code, out, err = cli(*merging('--out', 'merges'))
    assert code == 0 and disk('merges') == before and '2 of 2 cells are there' in err
    assert 'the simulations are there' in err and 'Lives' in out and 'Targets' in out and 'not measured' in out
    refuses(cli, *merging('--out', 'merges', '--host', 'nowhere'), named='nowhere')
    refuses(cli, *merging('--out', 'merges/acceptance.json'), named='folder')


def test_ctrl_c_keeps_the_finished_lives(cli, short, monkeypatch):
    from evolora.experiments import study
    real = study.make_cell
    def pressing(plan, cell, *rest, **how):
        if cell.condition == 'without': raise KeyboardInterrupt
        return real(plan, cell, *rest, **how)
    monkeypatch.setattr(study, 'make_cell', pressing)
    code, out, err = cli(*merging('--out', 'merges'))
    assert code == 130 and 'the same command makes the cells' in err and 'Traceback' not in err and out == ''
    assert [p.name for p in Path('merges/cells').iterdir()] == ['with-1.json']


def test_a_quick_measurement_of_merges_leaves_nothing(cli, short):
    code, out, err = cli('bench', 'assimilation', '--quick')
    assert code == 0 and 'without-1' in err and 'Targets' in out and not list(Path().iterdir())


# --- parts of one's own

MINE = """
from evolora.tasks.family import Family
from evolora.tasks.families import register_family

class Backwards(Family):
    name, longest = 'string.reverse', 7
    def draw(self, rng, depth, difficulty):
        word = ''.join(chr(97 + int(i)) for i in rng.permutation(26)[:depth + 3])
        return self.task(depth, difficulty, f'Turn round: {word}', word[::-1])

register_family(Backwards())
"""


def test_a_family_of_ones_own_is_supervised_like_any_other(command, here, tmp_path):
    (here / 'mine.py').write_text(MINE)
    host = save(tmp_path / 'host')
    arguments = ['sft', '--host', host, '--examples', 12, '--families', 'string.reverse,math', '--out', 'rival']
    code, out, err = command('--parts', 'mine.py', *arguments)
    assert code == 0 and 'of 120 selection questions' in out, err        # twenty for each of six cells
    assert 'task family string.reverse' in trained('rival')['hashes']
    code, out, err = command(*arguments[:-1], 'other')
    assert code == 2 and 'register_family' in err and err.count('\n') == 1
    code, out, err = command('--parts', 'mine.py', *arguments[:-1], 'other', '--families', 'math.multi_step')
    assert code == 2 and 'kept for the holdout' in err and 'string.reverse' in err and err.count('\n') == 1


@pytest.mark.parametrize('text, named', [
    ('x = 1\nraise SystemExit(0)', 'line 2: '), ('import sys\nsys.exit()', 'SystemExit'),
    ('raise SystemExit("bye")', 'bye'), ('1 / 0', 'ZeroDivisionError'),
    ('import not_there', "No module named 'not_there'"),
    ('from evolora import not_there', 'not_there'), ('raise Exception("a\\nb\\x1b[2J")', 'Exception: a b'),
    ('def f(): raise OSError\n\nf()', 'line 1: '), ('raise ValueError', 'ValueError'), ('x = (', 'line 1: '),
    ('x = 1\0', 'null'), ('# ' + 'x' * (1 << 20), 'at most'), ('raise typer', 'NameError'),
    ('import typer\nraise typer.Exit(0)', 'Exit'), ('import typer\nraise typer.Abort', 'Abort')],
    ids=lambda x: x[:20].replace('\0', ''))
def test_parts_that_cannot_be_taken_are_one_line(cli, text, named):
    Path('mine.py').write_text(text)
    refuses(cli, '--parts', 'mine.py', 'tasks', '--out', 'x', named='mine.py')
    refuses(cli, '--parts', 'mine.py', 'tasks', '--out', 'x', named=named)


@pytest.mark.parametrize('make', MADE)
def test_parts_that_are_no_file_are_one_line(cli, make, tmp_path_factory):
    make(path := tmp_path_factory.mktemp('outside') / 'mine.py')
    refuses(cli, '--parts', path, 'tasks', '--out', 'x', named='mine.py')


def test_ctrl_c_ends_parts_too(cli):
    Path('mine.py').write_text('raise KeyboardInterrupt')
    assert cli('--parts', 'mine.py', 'tasks', '--out', 'x')[0] == 130


def test_parts_of_ones_own_come_from_a_file_and_a_run_needs_them(command, here, tmp_path, sketched):
    (here / 'mine.py').write_text(MINE)
    host, world = save(tmp_path / 'host'), config(cells=['string.reverse:1', 'math:1'])
    begin = ['run', '--config', world, '--host', host, '--out', 'r', '--generations', 2]
    for refused in (begin, ['--parts', 'yours.py', *begin], ['--parts', world, *begin]):
        code, out, err = command(*refused)
        assert code == 2 and not out and err.count('\n') == 1 and not (here / 'r').exists(), err
    assert command('--parts', 'mine.py', *begin)[0] == 0
    assert 'task family string.reverse' in Run.open('r').hashes
    more = ['run', '--resume', 'r', '--generations', 3]
    code, _, err = command(*more)
    assert code == 2 and err.count('\n') == 1 and 'register_family' in err
    (here / 'other.py').write_text(MINE.replace('depth + 3', 'depth + 2'))
    code, _, err = command('--parts', 'other.py', *more)
    assert code == 2 and 'string.reverse was' in err and len(Run.open('r').rows('generations')) == 2
    assert command('--parts', 'mine.py', *more)[0] == 0 and len(Run.open('r').rows('generations')) == 3


# --- cells of one's own, in a form

@pytest.fixture(scope='module')
def guided(command, tmp_path_factory):
    "A llama of random numbers, and a run on it that plays two cells behind solved questions"
    folder = tmp_path_factory.mktemp('guided')
    save(folder / 'host', architecture='llama')
    config(folder / 'small.yaml', form='shots')
    arguments = ['run', '--config', folder / 'small.yaml', '--host', folder / 'host', '--generations', 1, '--out',
                 folder / 'run']
    with sketching(): code, out, err = command(*arguments)
    assert code == 0, err
    return folder


def test_a_free_question_is_asked_in_the_form_of_the_run(cli, guided):
    run = Path(shutil.copytree(guided / 'run', 'run'))
    code, out, err = cli('ask', run, 'Sort the letters: dbac')
    assert code == 0 and 'it was asked as a question of string.sort:1, with 3 solved questions, extraction\n' in err
    code, out, err = cli('ask', run, 'Tell me a joke', '--members', 'host', '--max-new-tokens', 4)
    assert code == 0 and 'it was asked as it stands\n' in err


def test_what_was_grown_in_a_form_says_so(cli, guided):
    code, out, err = cli('export', guided / 'run', 'out', '--n', 24)
    card = Path('out/README.md').read_text()
    assert code == 0 and 'trained with **3 solved questions, extraction**' in card and '| without them |' in card
    assert 'asking the adapter, without solved questions' in err


def test_a_rival_is_trained_by_command_and_meets_the_same_questions(cli, guided):
    rival = ['sft', '--host', guided / 'host', '--examples', 6, '--form', 'shots', '--out', 'rival', '--families']
    code, out, err = cli(*rival, 'string.sort:1,math:1')
    assert code == 0 and 'of 40 selection questions' in out, err
    note = trained('rival')
    assert note['cells'] == ['math:1', 'string.sort:1'] and note['form']['shots'] == 3
    code, out, err = cli('holdout', guided / 'run', 'rival', '--n', 24)
    assert code == 0 and 'Holdout, 24 questions of string.sort:1, math:1' in out and 'OOD' not in out, err
    rows = json.loads(cli('holdout', guided / 'run', 'rival', '--n', 24, '--json')[1])['rows']
    assert rows[-1]['way'] == 'adapter' and 'OOD' not in rows[0]


def test_cells_and_families_are_named_together(cli):
    named = lambda text: ' '.join(map(str, cells_named(text)))
    assert named('string.sort, math:4,math:1') == 'math:1 math:4 string.sort:1 string.sort:2 string.sort:3'
    assert named('math:2,math') == 'math:1 math:2 math:3' and len(cells_named('all')) == 24


@pytest.mark.parametrize('arguments, named', [
    (('--families', 'math:7'), 'math:7'), (('--families', 'maths:1'), 'maths'), (('--families', ':'), 'known'),
    (('--form', 'prose'), 'plain, instruction, shots, both')])
def test_a_rival_that_cannot_be_is_one_line(cli, arguments, named):
    refuses(cli, 'sft', *arguments, '--examples', 4, '--out', 'new', named=named)


def test_runs_of_other_cells_or_forms_do_not_share_a_holdout(cli, guided, world, sketched):
    begin = ('run', '--host', guided / 'host', '--generations', 1)
    assert cli(*begin, '--config', config('a.yaml', cells=['math:1']), '--out', 'a')[0] == 0
    assert cli(*begin, '--config', config('b.yaml', form='shots', cells=['math:1']), '--out', 'b')[0] == 0
    for runs, named in ((('a', 'b'), 'in the form of'), ((guided / 'run', 'b'), 'look at each by itself')):
        code, out, err = cli('holdout', *runs, '--n', 24)
        assert code == 2 and out == '' and named in err and 'Traceback' not in err, err


# --- runs in a world that changes

@pytest.fixture(scope='module')
def served_run(tmp_path_factory):
    "A short life in a world that changes, as a run"
    folder = tmp_path_factory.mktemp('served')
    settings = changed_config(load_config('worlds'), {
        'cells': ['string.sort:1', 'word.count:1'], 'max_new_tokens': 12, 'world': {'worlds': 2, 'period': 2},
        'market': {'questions': 8}, 'curriculum': {'copies': 2}})
    (folder / 'small.yaml').write_text(yaml.safe_dump(settings.model_dump(mode='json', exclude_unset=True)))
    with pytest.raises(SystemExit):
        main(['run', '--host', 'habits', '--config', str(folder / 'small.yaml'), '--generations', '3', '--out',
              str(folder / 'run')])
    return folder / 'run'


def test_a_market_answers_by_whom_it_believes(cli, served_run):
    ecology = colony_ecology(served_run)
    leader = ecology.market.leader('string.sort')
    code, out, err = cli('ask', served_run, 'Sort the letters: hgfa')
    assert code == 0 and f'{leader} answers: believed most in string.sort' in out
    assert router_of(served_run, ecology.population).table['string.sort'] == leader


def test_the_holdout_of_a_world_that_changes_is_asked_world_by_world(cli, served_run):
    before = disk(served_run)
    code, out, err = cli('holdout', served_run, '--n', 24, '--json')
    rows = json.loads(out.splitlines()[-1])['rows']
    assert code == 0 and [row['world'] for row in rows] == [0, 1]
    assert {*rows[0]} == {'world', 'questions', 'host', *(f'after {k}' for k in (0, 1, 4, 16, 64))}
    assert all(row['questions'] == 24 and 0 <= row['host'] <= 1 for row in rows)
    code, out, err = cli('holdout', served_run, '--n', 24)
    assert code == 0 and 'after 64' in out and 'Holdout, 24 questions in each world' in out
    assert disk(served_run) == before


def test_runs_of_changing_worlds_are_not_put_beside_others(cli, served_run):
    refuses(cli, 'holdout', served_run, served_run, named='whose world changes')
