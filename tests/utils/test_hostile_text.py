"""Whatever a file holds: each reader of structured text returns a value, or raises a ValueError of one line."""
import json
import os
import random
import sys
from contextlib import suppress
from types import SimpleNamespace

import pytest

from evolora.attention.search.search import read_history, search_config
from evolora.ecology.checkpoint_files import read_manifest
from evolora.ecology.config import load_config
from evolora.ecology.run_folder import Run, read
from evolora.evaluation.host_calibration import calibration_of
from evolora.evaluation.routing import Router
from evolora.evaluation.serving_formats import vllm_lacks
from evolora.experiments.study import Study
from evolora.experiments.study_plan import load_plan
from evolora.experiments.study_results import read_cells
from evolora.host.adapters import read_peft, read_peft_host
from evolora.host.gguf import gguf_config, write_tiny_gguf
from evolora.host.model_folder import check_folder
from evolora.host.templates import _applied, check_template
from evolora.host.model import byte_tokenizer
from evolora.analysis.run_list import list_runs
from evolora.islands.islands_folder import status_of
from evolora.islands.plan import read_plan
from evolora.organelles.population import _read_saved
from evolora.tasks.question_set import QuestionSet
from evolora.tasks.task_sets import read_tasks
from evolora.training.examples import read_examples
from evolora.training.jobs import read_jobs
from evolora.utils.files import digest, first_bytes, open_file, parse_json, read_file, read_json, read_lines, read_yaml

DEEP = [b'[' * 90 + b']' * 90, b'[' * 9000 + b']' * 9000, b'{"a":' * 90 + b'1' + b'}' * 90, b'[' * 70000]
ODD = [b'', b'\0' * 100, b'\xff\xfe\xff', '{"a": 1}'.encode('utf-16'), b'null', b'0', b'"x"', b'[]', b'{}', b'{}\n{}\n',
       b'[{}]', b'{"a": NaN}', b'{"a": 1e999}', b'{"a": ' + b'9' * 5000 + b'}', b'{"a": 1, "a": 2}', b'\xef\xbb\xbf{}',
       b'{"a": "\\ud800"}', b'"' * 5000, b',' * 5000, b'a,b\n1\n', b'x' * (1 << 21)]
ALIASES = b'a: &a [x, x, x, x, x, x, x, x, x]\n' + b''.join(
    b'%c: &%c [%s]\n' % (n + 1, n + 1, b', '.join([b'*%c' % n] * 9)) for n in range(ord('a'), ord('j')))
YAML = [ALIASES, b'a: &a [*a]', b'a: ' + b'1:' * 3000 + b'1', b'- ' * 500, b'? ' * 500, b'{' * 500, b'a: !!int ""',
        b'a: !!python/object/apply:os.system [x]', b'<<: {a: 1}', b'a: 1\na: 2', b'{[1]: 2}', b'a: !!timestamp x',
        b'a: ' + b'[1,' * 3000, b'!!binary x', b'a: "' + b'\\x41' * 3000 + b'"', b'%TAG ! x', b'--- 1\n--- 2']
GRID = b'data: x\n' + b''.join(b'%s: [%s]\n' % (key, b', '.join(b'%d' % (i + 2) for i in range(99)))
                              for key in (b'rank', b'batch', b'seed', b'steps', b'every', b'patience'))


def in_folder(name, reader):
    "A reader of a folder in which the file has this name"
    def of(path):
        place = path.parent / 'folder' / name
        place.parent.mkdir(parents=True, exist_ok=True)
        with suppress(FileNotFoundError): place.unlink()
        os.rename(path, place)
        reader(path.parent / 'folder')
    return of


def table(name):
    def of(folder):
        with suppress(FileExistsError): Run.create(folder / 'run', config={}, host={'id': 'x'}, seed=0, version='0')
        os.replace(folder / f'{name}.jsonl', folder / 'run' / f'{name}.jsonl')
        read(folder / 'run', name)
    return of


def record_of(folder): return Study.record.fget(SimpleNamespace(folder=folder))


READERS = {
    'JSON': lambda path: parse_json(path.read_bytes(), 1 << 22), 'JSON file': read_json, 'YAML file': read_yaml,
    'lines': lambda path: list(read_lines(path)), 'jobs': read_jobs, 'preset': load_config, 'study': load_plan,
    'questions': lambda path: QuestionSet('hostile', path), 'tasks': read_tasks, 'examples': read_examples,
    'question table': lambda path: QuestionSet('hostile', path.rename(path.with_suffix('.csv'))),
    'run': in_folder('run.json', Run.open), 'generations': in_folder('generations.jsonl', table('generations')),
    'episodes': in_folder('episodes.jsonl', table('episodes')), 'cells': in_folder('cells.jsonl', read_cells),
    'cell': in_folder('cells/a.json', read_cells), 'study record': in_folder('study.json', record_of),
    'runs': in_folder('run/generations.jsonl', list_runs), 'islands': in_folder('run/islands.json', list_runs),
    'manifest': in_folder('manifest.json', read_manifest), 'plan of islands': in_folder('islands.json', read_plan),
    'status': in_folder('status.json', status_of), 'calibration': in_folder('calibration.json', calibration_of),
    'router': Router.load, 'adapter': in_folder('adapter_config.json', lambda f: read_peft(f, alpha=8.)),
    'host of an adapter': in_folder('adapter_config.json', read_peft_host),
    'adapter for vLLM': in_folder('adapter_config.json', vllm_lacks),
    'population': _read_saved, 'search': in_folder('search.json', search_config),
    'history': in_folder('history.jsonl', read_history), 'model': in_folder('config.json', check_folder)}


def survives(reader, path):
    "The message, or nothing; any other error than a ValueError of one line fails"
    try: reader(path)
    except ValueError as error:
        text = str(error)
        assert text.strip() and '\n' not in text and len(text) < 2000, text[:300]
        return text


@pytest.mark.parametrize('name', READERS)
def test_hostile_text_is_a_value_or_one_line(tmp_path, name):
    rng = random.Random(name)
    whole = json.dumps({'format': 1, 'config': {}, 'files': {}, 'islands': [], 'generation': 0, 'a': [{}]}).encode()
    cases = [*DEEP, *ODD, *YAML, GRID]
    for _ in range(20):
        data = bytearray(whole)
        for _ in range(rng.randrange(1, 6)): data[rng.randrange(len(data))] = rng.choice(b'{}[]",:0e-N\\\n\0\xff')
        cases.append(bytes(data))
    if name not in ('YAML file', 'jobs', 'preset', 'study'): cases = [c for c in cases if c not in YAML[-3:]]
    for data in cases:
        path = tmp_path / 'hostile.jsonl'
        path.write_bytes(data)
        survives(READERS[name], path)


def test_yaml_stands_for_no_more_than_a_file_may_hold(tmp_path, monkeypatch):
    monkeypatch.setattr('evolora.utils.files._WHOLE', 1 << 14)
    path = tmp_path / 'x.yaml'
    for text in ('a: [' + '1, ' * 400 + '1]', 'a: &a "' + 'x' * 3000 + '"\nb: [*a, *a, *a, *a, *a, *a]',
                 'a: ' + 'x' * 20_000):
        path.write_text(text)
        assert 'stand for more than a file may hold' in survives(read_yaml, path)
    path.write_text('a: &a [1, 2]\nb: *a\nc: *a')
    assert read_yaml(path) == {'a': [1, 2], 'b': [1, 2], 'c': [1, 2]}


@pytest.mark.parametrize('name', ['JSON file', 'YAML file', 'lines', 'jobs', 'preset', 'study', 'tasks', 'questions',
                                  'examples', 'router'])
def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path, name):
    os.mkfifo(tmp_path / 'pipe')
    (tmp_path / 'zero').symlink_to('/dev/zero')
    (tmp_path / 'folder').mkdir()
    with open(tmp_path / 'large', 'wb') as file: file.truncate(1 << 36)
    for kind in ('pipe', 'zero', 'folder', 'large'): assert survives(READERS[name], tmp_path / kind), kind
    for reader in (read_file, digest, first_bytes, lambda path: open_file(path).__enter__()):
        for kind in ('pipe', 'zero', 'folder'): assert survives(reader, tmp_path / kind)


@pytest.mark.parametrize('kind', ['pipe', 'zero', 'large'])
@pytest.mark.parametrize('name', ['generations', 'episodes'])
def test_tables_are_files_of_limited_size(tmp_path, name, kind):
    run = Run.create(tmp_path / 'run', config={}, host={'id': 'x'}, seed=0, version='0')
    if kind == 'pipe': os.mkfifo(run.path(name))
    elif kind == 'zero': run.path(name).symlink_to('/dev/zero')
    else:
        with run.path(name).open('wb') as file: file.truncate(1 << 36)
    assert survives(lambda folder: read(folder, name), run.folder)


def test_a_generation_that_stands_twice_is_named(tmp_path):
    from synthetic import write_run
    run = write_run(tmp_path / 'run', generations=3, size=3, tries=2)
    for name in ('generations', 'timings'):
        path, lines = run.path(name), run.path(name).read_bytes().splitlines(keepends=True)
        for wrong in (lines + lines, lines[:1] + lines, lines[::-1], lines + lines[-1:]):
            path.write_bytes(b''.join(wrong))
            assert 'expected a later generation' in survives(lambda folder: read(folder, name), run.folder)
        path.write_bytes(b''.join(lines))


@pytest.mark.parametrize('template', [
    '{% for i in range(9) %}{% for j in range(99999) %}{{ j }}{% endfor %}{% endfor %}', "{{ 'x' * 100000000000 }}",
    '{{ 9 ** 9 ** 9 ** 9 }}', '{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}', "{{ 'x'.center(100000000000) }}",
    '{% for i in messages %}' * 40 + '{% endfor %}' * 40, 'x' * 300_000,
    '{{ (' + '(' * 3000 + '1' + ')' * 3000 + ') }}'])
def test_templates_that_write_without_end_are_refused(template):
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    assert survives(check_template, tokenizer)


def test_a_template_in_an_endless_loop_is_stopped(monkeypatch):
    monkeypatch.setattr('evolora.host.templates._SECONDS', .1)
    tokenizer = byte_tokenizer()
    loop = '{% for i in range(99999) %}'
    tokenizer.chat_template = loop * 3 + '{% endfor %}' * 3
    assert 'took more than' in survives(check_template, tokenizer)


def watched(monkeypatch):
    "The renderings in this process; those in a copy of it go to the list of the copy"
    used = []
    monkeypatch.setattr('evolora.host.templates._applied', lambda *how: used.append(how) or _applied(*how))
    return used


@pytest.mark.skipif(sys.platform != 'linux', reason='no limits of memory')
@pytest.mark.parametrize('template', ["{{ '%09999999999d' % 1 }}{% endif %}", "{{ '%09999999999d' % 1 }}{{ 1 | no }}"])
def test_a_template_that_does_not_compile_is_refused_by_the_copy(template, monkeypatch):
    used = watched(monkeypatch)
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    assert 'its chat template fails' in survives(check_template, tokenizer)
    assert not used


@pytest.mark.skipif(sys.platform != 'linux', reason='no copy of the process')
@pytest.mark.parametrize('template', [
    "{{ '%0999999999d' % 1 }}", "{{ ('a' * 9999999) | replace('a', 'b' * 999) }}", "{{ [0] * 9999999999 }}",
    "{% if messages | length > 8 %}{{ '%0999999999d' % 1 }}{% endif %}{{ messages[0].content }}"])
def test_a_template_that_needs_much_memory_never_runs_in_this_process(template, monkeypatch):
    monkeypatch.setattr('evolora.host.templates._MEMORY', 1 << 27)
    used = watched(monkeypatch)
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = template
    assert 'MemoryError' in survives(check_template, tokenizer)
    assert not used


@pytest.mark.skipif(sys.platform != 'linux', reason='no copy of the process')
def test_a_template_in_one_endless_call_is_stopped(monkeypatch):
    monkeypatch.setattr('evolora.utils.pool._WAIT', 200)        # also on a busy machine
    monkeypatch.setattr('evolora.host.templates._SECONDS', 0)
    monkeypatch.setattr('evolora.host.templates._in_time', lambda work, seconds: work())     # the call holds the GIL
    tokenizer = byte_tokenizer()
    tokenizer.chat_template = "{{ ('a ' * 30000000) | wordwrap(1) }}"
    assert 'took more than 1 seconds of processor time' in survives(check_template, tokenizer)


@pytest.mark.parametrize('changes', [
    dict(num_hidden_layers=10**6), dict(num_experts=10**6), dict(hidden_size=10**30), dict(layer_types=['x'] * 5000),
    dict(text_config=dict(n_layer=10**9)), dict(num_hidden_layers=60, moe=[dict(num_local_experts=10**5)])])
def test_a_model_out_of_all_measure_is_refused_before_it_is_built(tmp_path, changes):
    (tmp_path / 'config.json').write_text(json.dumps(dict(num_hidden_layers=2) | changes))
    assert survives(check_folder, tmp_path)


@pytest.mark.parametrize('about', [dict(block_count=4000), dict(expert_count=10**9), dict(embedding_length=1 << 31)])
def test_a_gguf_out_of_all_measure_is_refused_before_it_is_built(tmp_path, about):
    assert survives(gguf_config, write_tiny_gguf(tmp_path / 'x.gguf', about=about))


@pytest.mark.parametrize('number', ['010', '-01', '1:1', '1:30.5', '1_0', '1_0.5', '0_1', '00.5', '!!int "010"'])
def test_a_number_that_two_versions_of_yaml_read_differently_is_refused(tmp_path, number):
    path = tmp_path / 'x.yaml'
    path.write_text(f'rank: {number}')
    assert 'read differently' in survives(read_yaml, path)


def test_plain_numbers_of_yaml_are_read_as_ever(tmp_path):
    path = tmp_path / 'x.yaml'
    path.write_text('a: [0, -0, 0.5, .5, 10, -1.5, 1.0e-3, 0.0, 100, "010", .inf]')
    assert read_yaml(path) == {'a': [0, 0, .5, .5, 10, -1.5, 1e-3, 0., 100, '010', float('inf')]}


@pytest.mark.parametrize('name', ['YAML file', 'preset', 'jobs', 'study'])
@pytest.mark.parametrize('text', ['[]', 'false', '0', "''", '0.0'])
def test_an_empty_value_is_no_empty_file(tmp_path, name, text):
    path = tmp_path / 'x.yaml'
    path.write_text(text)
    assert 'expected keys and values' in survives(READERS[name], path)
    path.write_text('# nothing')
    if name in ('YAML file', 'preset'): READERS[name](path)
