"""Whatever reads a file that may come from a stranger refuses, at once and in one line, what never ends."""
import json
import shutil

import pytest
import torch
from endless import MADE, instead
from safetensors.torch import save

from evolora.analysis.offline_page import check_page
from evolora.analysis.run_report import check_place
from evolora.attention.search.openevolve import _lines
from evolora.attention.search.search import read_history
from evolora.cli.watch import Tail
from evolora.ecology.config import load_config
from evolora.ecology.run_folder import Run, _stump, read
from evolora.evaluation.host_calibration import CALIBRATION, calibration_of
from evolora.evaluation.routing import Router
from evolora.experiments.study_results import read_cells
from evolora.host.adapters import read_peft, read_tensors
from evolora.host.mechanisms.program_source import read_program
from evolora.host.model import load_host
from evolora.host.names import EMBEDDED
from evolora.lab.open_notebooks import copy_notebooks, lab_notebooks
from evolora.tasks.task_sets import read_tasks
from synthetic import write_run


def rows(folder): list(Tail(folder / 'generations.jsonl').rows())
def cells(folder):
    (folder / 'cells').mkdir()
    shutil.move(folder / 'c.json', folder / 'cells/c.json')
    read_cells(folder)


READERS = {
    'config': ('x.yaml', lambda folder: load_config(folder / 'x.yaml')),
    'record': ('run.json', Run.open),
    'table': ('generations.jsonl', lambda folder: read(folder, 'generations')),
    'watch': ('generations.jsonl', rows),
    'report': ('report.md', check_place),
    'page': ('x.html', lambda folder: check_page(folder / 'x.html')),
    'router': ('router.json', lambda folder: Router.load(folder / 'router.json')),
    'tasks': ('tasks.jsonl', lambda folder: read_tasks(folder / 'tasks.jsonl')),
    'cells': ('cells.jsonl', read_cells),
    'one cell': ('c.json', cells),
    'weights': ('x.safetensors', lambda folder: read_tensors(folder / 'x.safetensors')),
    'adapter': ('adapter_config.json', lambda folder: read_peft(folder, alpha=8.)),
    'mechanism': ('x.py', lambda folder: read_program(folder / 'x.py')),
    'search': ('history.jsonl', read_history),
    'trace': ('trace.jsonl', lambda folder: list(_lines(folder / 'trace.jsonl')))}
OF_ANY_SIZE = {'report', 'page'}      # of these only the beginning is read


@pytest.mark.parametrize('make', MADE)
@pytest.mark.parametrize('reader', READERS)
def test_what_never_ends_is_refused(tmp_path, reader, make):
    name, read = READERS[reader]
    folder = write_run(tmp_path / 'run', generations=2).folder
    instead(folder / name, make)
    with pytest.raises(ValueError) as error: read(folder)
    assert '\n' not in str(error.value) and len(str(error.value)) < 400
    if make.__name__ != 'sparse' or reader not in OF_ANY_SIZE: assert 'expected' in str(error.value)


@pytest.mark.parametrize('make', MADE)
def test_a_calibration_that_never_ends_is_none_or_refused(tmp_path, make):
    instead(tmp_path / CALIBRATION, make)
    try: assert calibration_of(tmp_path) is None
    except ValueError as error: assert 'expected a calibration, got something else' in str(error)


@pytest.mark.parametrize('make', MADE)
def test_no_row_is_added_to_what_is_no_table(tmp_path, make):
    "A writer looks at the last line first, and must not wait for it"
    instead(tmp_path / 'x.jsonl', make)
    if make.__name__ == 'sparse': return
    with pytest.raises(ValueError, match='expected a file'): _stump(tmp_path / 'x.jsonl')


@pytest.mark.parametrize('make', MADE[:2] + MADE[3:])
@pytest.mark.parametrize('name', ['config.json', 'tokenizer.json', 'model.safetensors'])
def test_a_host_that_never_ends_is_refused(tmp_path, name, make):
    shutil.copytree(EMBEDDED, tmp_path / 'host')
    instead(tmp_path / 'host' / name, make)
    with pytest.raises(ValueError) as error: load_host(tmp_path / 'host')
    assert '\n' not in str(error.value)


@pytest.mark.parametrize('begins', [b'', b'GGUF'])
def test_a_gguf_file_that_never_ends_is_refused(tmp_path, begins):
    (tmp_path / 'x.gguf').write_bytes(begins)
    with (tmp_path / 'x.gguf').open('r+b') as file: file.truncate(40 << 30)
    with pytest.raises(ValueError, match='GGUF') as error: load_host(tmp_path / 'x.gguf')
    assert '\n' not in str(error.value)


def test_a_copy_of_a_notebook_that_never_ends_was_changed(tmp_path):
    for make, source in zip(MADE, lab_notebooks()): instead(tmp_path / source.name, make)
    found = copy_notebooks(tmp_path)
    assert [found[source.name] for source in lab_notebooks()][:4] == ['changed'] * 4


def test_weights_are_as_long_as_their_header_says(tmp_path):
    "A file with a good header and forty gigabytes behind it, and one that is a little too large"
    path = tmp_path / 'x.safetensors'
    path.write_bytes(save({'a': torch.zeros(4)}))
    assert read_tensors(path).keys() == {'a'}
    with path.open('r+b') as file: file.truncate((1 << 30) - 1)
    with pytest.raises(ValueError, match='no readable safetensors'): read_tensors(path)
    with pytest.raises(ValueError, match='at most 10 bytes'): read_tensors(path, most=10)


@pytest.mark.parametrize('changes', [
    {'lora_alpha': 10 ** 400}, {'lora_alpha': 1e308}, {'lora_alpha': -10 ** 400}, {'r': 10 ** 400},
    {'r': 10 ** 400, 'use_rslora': True}, {'lora_alpha': 10 ** 400, 'use_rslora': True}, {'peft_type': 'x' * 10_000},
    {'x' * 10_000: 'y' * 10_000}], ids=lambda changes: '+'.join(k[:9] for k in changes))
def test_numbers_beyond_all_floats_are_refused(tmp_path, changes):
    config = {'peft_type': 'LORA', 'r': 1, 'lora_alpha': 8} | changes
    (tmp_path / 'adapter_config.json').write_text(json.dumps(config))
    weights = {f'base_model.model.x.lora_{x}.weight': torch.ones(shape) for x, shape in (('A', (1, 4)), ('B', (4, 1)))}
    (tmp_path / 'adapter_model.safetensors').write_bytes(save(weights))
    with pytest.raises(ValueError, match='expected') as error: read_peft(tmp_path, alpha=8.)
    assert '\n' not in str(error.value) and len(str(error.value)) < 400
