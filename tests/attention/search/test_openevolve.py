"OpenEvolve in a process of its own: what it may do, what it wrote, and what is done about its defects."
import asyncio
import importlib.util
import json
import logging
import os
import re
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from endpoints import edit, serving

from evolora.attention.search import openevolve as bridge
from evolora.attention.search.openevolve_history import search_openevolve
from evolora.attention.search.search import SearchConfig
from evolora.host.mechanisms.frameworks import variant
from evolora.attention.search.openevolve import answered, best_openevolve, judge, read_openevolve, run_openevolve
from evolora.host.mechanisms.program_source import Program
from evolora.attention.scoring.sandbox import Limits

INSTALLED = importlib.util.find_spec('openevolve') is not None
needs_openevolve = pytest.mark.skipif(not INSTALLED, reason="needs OpenEvolve: pip install 'evolora[attention]'")
SOFTMAX, KEY = variant('coefficient_dynamics'), 'sk-very-secret-0123456789'
POWERS = '''
import sys, time
source = open(sys.argv[1], encoding='utf-8').read()
if 'past_max(q)' in source: time.sleep(600)
power = [word for word in source.split() if word.startswith('self.entries**-')][0]
print('a line that is no score')
print(1 + abs(float(power[15:])))
'''
FUNCTIONS = '''
import os
def length(source):
    print("noise")
    return {"score": len(source) / 100, "more": [1]}
def refuses(source): return {"score": 0, "why": "\x1b[2J" + "x" * 10_000}
def minus(source): return -1
def nothing(source): return None
def true(source): return True
def text(source): return "9"
def infinite(source): return float("inf")
def fails(source): raise RuntimeError("on purpose")
def floods(source): print("x" * (3 << 20))
def ends(source): os._exit(3)
def late(source): print("9", flush=True); os._exit(3)
'''
CLIENT = '''
import attention.search.test_openevolve as tests

class Model:
    def __init__(self): self.model, self.turn = 'stub', 0

    async def generate_with_context(self, system_message, messages, **settings):
        self.turn += 1
        return tests.answer(messages[-1]['content'], self.turn)

def client(config): return Model()
'''


def answer(prompt, turn):
    "A steeper power and an edit of the header; on turn 2 what hangs the evaluator, on turn 4 nothing"
    if turn == 4: return 'I would rather not.'
    program = re.search(r'# Current Program\n```python\n(.*?)\n```', prompt, re.DOTALL)[1]
    line = next(line for line in program.split('\n') if 'def inject' in line)
    power = float(line.rpartition('**')[2])
    steeper = edit(line, f'{line.rpartition("**")[0]}**{power - .125}')
    if turn == 2: return edit(line, f'{line}\n    def prepare(self, q, k, v, x): return past_max(q) * 1, k, v')
    return edit('import math', 'import math, os') + steeper


@pytest.fixture
def script(tmp_path):
    path = tmp_path / 'powers.py'
    path.write_text(POWERS)
    return str(path)


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / 'stub_scores.py').write_text(FUNCTIONS)
    (tmp_path / 'stub_client.py').write_text(CLIENT)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2]))
    return 'stub_scores'


# What needs no OpenEvolve

def test_without_openevolve_there_is_one_line_with_the_fix(tmp_path, monkeypatch, script):
    run = dict(program=Program(SOFTMAX), evaluator=script, client='m:f', iterations=1)
    monkeypatch.setattr(bridge.importlib.util, 'find_spec', lambda name: None)
    with pytest.raises(ValueError, match=re.escape("got none; pip install 'evolora[attention]'")):
        run_openevolve(tmp_path / 'run', **run)
    monkeypatch.setattr(bridge.importlib.util, 'find_spec', lambda name: True)
    monkeypatch.setattr(bridge.importlib.metadata, 'version', lambda name: '0.5.0')
    with pytest.raises(ValueError, match='expected version 0.4.0, got 0.5.0'): run_openevolve(tmp_path / 'run', **run)
    assert not (tmp_path / 'run').exists()


def test_importing_the_bridge_does_not_import_openevolve():
    assert 'openevolve' not in sys.modules


def judged(tmp_path, evaluator, source=SOFTMAX, **settings):
    return judge(evaluator, source, framed=SOFTMAX, folder=tmp_path, **settings)


def test_a_script_and_a_function_give_scores(tmp_path, script, module):
    assert judged(tmp_path, script) == (1.5, '', SOFTMAX)
    (tmp_path / 'f').mkdir()
    assert judged(tmp_path / 'f', f'{module}:length') == (len(SOFTMAX) / 100, '', SOFTMAX)


def test_a_program_is_put_into_our_frame_and_read_before_anything_runs(tmp_path):
    never = 'no_such_module:f'
    score, why, _ = judged(tmp_path, never, SOFTMAX.replace('torch.exp', 'open'))
    assert score == 0 and re.fullmatch(r'refused: name: line \d+: open is not known', why)
    for source in ('', 'x = 1', SOFTMAX + SOFTMAX, 'x' * 100_000, '\ud800'):
        assert judged(tmp_path, never, source)[0] == 0
    assert not list(tmp_path.iterdir())
    score, why, found = judged(tmp_path, never, SOFTMAX.replace('import math', 'import os') + 'os.remove("x")\n')
    assert (score, found) == (0., SOFTMAX) and 'no_such_module' in why


@pytest.mark.parametrize('name, why', [
    ('refuses', 'x' * 250), ('minus', 'finite number of at least 0, got .-1'), ('nothing', "got 'None'"),
    ('true', "got 'True'"), ('text', "got '9'"), ('infinite', "no score but 'Infinity'"),
    ('fails', 'RuntimeError: on purpose'),
    ('floods', 'printed more than'), ('ends', 'exit code 3'), ('late', '^9$'), ('missing', 'AttributeError'),
])
def test_what_is_no_score_is_zero_with_the_reason_in_a_line(tmp_path, module, name, why):
    score, reason, source = judged(tmp_path, f'{module}:{name}')
    assert score == 0. and re.search(why, reason) and reason.isprintable() and len(reason) <= 300
    assert not list(tmp_path.glob('*.json'))


def test_nothing_is_evaluated_twice_and_a_damaged_score_is_made_again(tmp_path):
    script = tmp_path / 'counts.py'
    script.write_text(f'open({str(tmp_path / "n")!r}, "a").write("x")\nprint(.25)\n')
    clone = SOFTMAX.replace('weights', 'w')
    assert judged(tmp_path, str(script))[0] == judged(tmp_path, str(script), clone)[0] == .25
    assert (tmp_path / 'n').read_text() == 'x'
    for damage in ('{', '{"score": NaN}', '{"score": -1}', '[]', '{"score": "9"}'):
        next(tmp_path.glob('*.json')).write_text(damage)
        assert judged(tmp_path, str(script))[0] == .25
    assert (tmp_path / 'n').read_text() == 'x' * 6


def test_an_evaluation_ends_with_all_that_it_started(tmp_path):
    script = tmp_path / 'starts.py'
    script.write_text(f'''import subprocess, sys, time
child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])
open({str(tmp_path / "pid")!r}, 'w').write(str(child.pid))
time.sleep(600)
''')
    assert judged(tmp_path, str(script), seconds=2) == (0., 'timeout: it took longer than 2 s', SOFTMAX)
    if (tmp_path / 'pid').exists():
        stat, ends = Path('/proc') / (tmp_path / 'pid').read_text() / 'stat', time.monotonic() + 10
        def alive(): return stat.exists() and stat.read_text().rpartition(')')[2].split()[0] != 'Z'
        while alive() and time.monotonic() < ends: time.sleep(.01)      # it was signalled, and a busy machine is slow
        assert not alive()


def written(folder, *lines, score=1.5):
    (folder / 'openevolve').mkdir(parents=True, exist_ok=True)
    (folder / 'job.json').write_text(json.dumps({'program': SOFTMAX, 'score': score}))
    data = b''.join(line if isinstance(line, bytes) else json.dumps(line).encode() + b'\n' for line in lines)
    (folder / 'openevolve' / 'evolution_trace.jsonl').write_bytes(data)
    return folder


def record(source, *, before=SOFTMAX, score=2., iteration=1, **more):
    return {'iteration': iteration, 'child_metrics': {'combined_score': score}, 'child_code': source,
            'parent_code': before, **more}


def test_what_was_tried_is_read_and_the_best_is_read_again(tmp_path):
    steep = SOFTMAX.replace('-.5', '-.75')
    evil = SOFTMAX.replace('torch.exp', 'open')
    folder = written(tmp_path, record(steep), record(evil, before=steep, score=9., iteration=2),
                     record(SOFTMAX.replace('import math', 'import os'), before='unknown', score=0., iteration=4),
                     b'{"cut o')
    tried = read_openevolve(folder)
    assert list(tried.columns) == ['index', 'iteration', 'parent', 'score', 'source']
    assert tried.score.tolist() == [1.5, 2., 9., 0.] and tried.iteration.tolist() == [0, 1, 2, 4]
    assert [None if p is None else int(p) for p in tried.parent.astype(object).where(tried.parent.notna(), None)] == [
        None, 0, 1, None]
    assert tried.source[3] == SOFTMAX           # as it was judged: in our frame
    assert best_openevolve(tried).source == steep


@pytest.mark.parametrize('line', [
    b'\n', b'x\n', b'[]\n', b'null\n', b'{}\n', b'\xff\n', b'[' * 2000 + b'\n',
    b'"' + b'x' * (1 << 20) + b'"\n', b'x' * (1 << 21), record(None), record('x', score=float('nan')),
    record('x', score=-1), record('x', score=True), record('x', score='9'),
    record('x', score=10**400), record('x' * 30_000), record('x', iteration=-1), record('x', iteration=10**30),
    record('x', iteration='1'), {**record('x'), 'child_metrics': []},
])
def test_a_trace_that_was_changed_is_refused(tmp_path, line):
    folder = written(tmp_path, record(SOFTMAX), line)
    with pytest.raises(ValueError, match='line 2, got something else'): read_openevolve(folder)


def test_a_folder_without_a_run_is_refused_and_without_programs_there_is_no_best(tmp_path):
    with pytest.raises(ValueError, match='no job.json'): read_openevolve(tmp_path)
    (tmp_path / 'job.json').write_text('{"program": 3}')
    with pytest.raises(ValueError, match='the job of a run'): read_openevolve(tmp_path)
    for score in (10**400, {'a': 1}, 'x', [1], True, -1):
        (tmp_path / 'job.json').write_text(json.dumps({'program': 'x = 1', 'score': score}))
        with pytest.raises(ValueError, match='job.json expected a finite score'): read_openevolve(tmp_path)
    (tmp_path / 'job.json').write_text(json.dumps({'program': 'x = 1', 'score': 1.}))
    with pytest.raises(ValueError, match='one program that can be read'): best_openevolve(read_openevolve(tmp_path))


def test_what_was_answered_is_counted_also_where_a_run_did_not_end(tmp_path):
    folder = written(tmp_path, record(SOFTMAX))
    assert answered(folder) == 1
    (folder / 'done.json').write_text('{"iterations": 4, "rows": 2}')      # three answers gave no program
    assert answered(folder) == 4
    assert answered(written(tmp_path, record(SOFTMAX), record(SOFTMAX, iteration=5))) == 5
    (folder / 'done.json').write_text('{"iterations": "4"}')
    with pytest.raises(ValueError, match='expected two counts'): answered(folder)


def test_a_search_asks_for_what_is_left_of_its_budget(tmp_path, monkeypatch):
    first = dict(index=0, source=SOFTMAX, digest=Program(SOFTMAX).digest)
    search = SimpleNamespace(folder=tmp_path, config=SearchConfig(budget=5, proposer='openevolve'), rows=[first],
                             judge=SimpleNamespace(limits=Limits()), done=0, way_on=str)
    answers, asked = iter([2, 3]), []
    def run(folder, *, iterations, **settings):
        asked.append((iterations, settings['resume']))
        found = answered(folder) if settings['resume'] else 0
        done = json.dumps({'iterations': found + next(answers), 'rows': 1})
        (written(folder) / 'done.json').write_text(done)
    monkeypatch.setattr('evolora.attention.search.openevolve_history.run_openevolve', run)
    with pytest.raises(ValueError, match='answer 5 times, got 2 answers; look at the server, and go on with --resume'):
        search_openevolve(search, {}, tmp_path / 'cache')
    for _ in range(2):
        assert search_openevolve(search, {}, tmp_path / 'cache') == 'the budget of 5 iterations is spent'
    assert asked == [(5, False), (3, True)] and search.rows == [first]


def test_a_history_grows_while_openevolve_is_at_work(tmp_path, monkeypatch):
    first = dict(index=0, source=SOFTMAX, digest=Program(SOFTMAX).digest)
    search = SimpleNamespace(folder=tmp_path, config=SearchConfig(budget=2, proposer='openevolve'), rows=[first],
                             judge=SimpleNamespace(limits=Limits()), done=0)
    def seen(): return [json.loads(line) for line in (tmp_path / 'history.jsonl').read_text().split('\n')[:-1]]
    def run(folder, **settings):
        lines, ends = [], time.monotonic() + 60
        for i in (1, 2):
            lines.append(record(SOFTMAX.replace('-.5', f'-.{i}'), iteration=i))
            written(folder, *lines, b'{"cut o')
            while not (tmp_path / 'history.jsonl').exists() or len(seen()) <= i:
                assert time.monotonic() < ends
                time.sleep(.02)
        raise ValueError('the server is gone')
    monkeypatch.setattr('evolora.attention.search.openevolve_history.run_openevolve', run)
    monkeypatch.setattr('evolora.attention.search.openevolve_history._EVERY', .05)
    with pytest.raises(ValueError, match='the server is gone'): search_openevolve(search, {}, tmp_path / 'cache')
    assert [row['operator'] for row in seen()[1:]] == ['openevolve'] * 2 and search.rows == seen()


# What needs it

def run(folder, script, **settings):
    return run_openevolve(folder, **{'program': Program(SOFTMAX), 'evaluator': script, 'iterations': 3, **settings})


def checkpoints(folder):
    return sorted((folder / 'openevolve' / 'checkpoints').iterdir(), key=lambda path: int(path.name[11:]))


def programs(folder): return [json.loads(path.read_text()) for path in checkpoints(folder)[-1].glob('programs/*.json')]


@needs_openevolve
def test_an_endpoint_three_iterations_markers_checkpoints_and_resume(tmp_path, script, monkeypatch):
    monkeypatch.setenv('EVOLORA_API_KEY', 'another')
    handlers, folder, one = list(logging.getLogger().handlers), tmp_path / 'run', {'database': {'num_islands': 1}}

    async def in_a_notebook(): return run(folder, script, endpoint=endpoint, settings=one)

    with serving(lambda asked, _: answer(asked['messages'][1]['content'], 1)) as server:
        endpoint = {'url': server.url, 'model': 'stub', 'key': KEY}
        tried = asyncio.run(in_a_notebook())
        assert len(server.asked) == 3 and server.asked[0]['path'] == '/v1/chat/completions'
        assert {asked['headers']['Authorization'] for asked in server.asked} == {f'Bearer {KEY}'}
        assert 'CoefficientDynamics' in server.asked[0]['messages'][0]['content']
        assert tried.iteration.tolist() == [0, 1, 2, 3] and tried.score.max() >= tried.score[0] == 1.5
        assert tried.score[1:].min() > 1.5 and tried.parent[1:].notna().all()
        # The worker has the setting for markers: not even the checkpoint has the edit of the header.
        assert len(programs(folder)) >= 4 and not any('math, os' in found['code'] for found in programs(folder))
        assert [path.name for path in checkpoints(folder)] == ['checkpoint_1', 'checkpoint_2', 'checkpoint_3']

        # The newest checkpoint was changed: it would put files of ours into prompts.
        victim = next(checkpoints(folder)[-1].glob('programs/*.json'))
        victim.write_text(json.dumps({**json.loads(victim.read_text()), 'artifact_dir': '/etc'}))
        longer = run(folder, script, endpoint=endpoint, iterations=1, resume=True, settings=one)
        assert longer.source[:4].tolist() == tried.source.tolist() and longer.iteration.tolist() == [0, 1, 2, 3, 3]
        assert longer.score.max() >= tried.score.max()
    assert best_openevolve(longer).source == longer.source[longer.score.idxmax()]
    for path in folder.rglob('*'):
        if path.is_file(): assert KEY.encode() not in path.read_bytes(), path
    assert logging.getLogger().handlers == handlers and 'openevolve' not in sys.modules
    assert os.environ['EVOLORA_API_KEY'] == 'another'
    with pytest.raises(ValueError, match='resume=True'): run(folder, script, endpoint=endpoint)
    with pytest.raises(ValueError, match='program expected the one with which'):
        run(folder, script, endpoint=endpoint, resume=True, program=Program(SOFTMAX.replace('-.5', '-.25')))


@needs_openevolve
def test_a_client_and_a_candidate_that_hangs_its_evaluator(tmp_path, script, module):
    folder = tmp_path / 'run'
    with pytest.warns(UserWarning, match='1 of 4 iterations gave no program; the last because: No valid diffs'):
        tried = run(folder, script, client='stub_client:client', iterations=4, seconds=3,
                    settings={'database': {'num_islands': 1}})
    assert tried.iteration.tolist() == [0, 1, 2, 3] and answered(folder) == 4
    assert [score > 1.5 for score in tried.score[1:]] == [True, False, True] and tried.score[2] == 0
    assert best_openevolve(tried).source == tried.source[tried.score.idxmax()]
    # The next prompt with that program has the reason why it has no score.
    assert ['timeout' in str(found['artifacts_json']) for found in programs(folder)].count(True) >= 1
    assert not any('math, os' in found['code'] for found in programs(folder))


@needs_openevolve
def test_requests_without_an_answer_are_still_to_be_made(tmp_path, script):
    folder, one = tmp_path / 'run', {'database': {'num_islands': 1}}
    def dies(asked, handler):
        turn = len(handler.server.asked)
        return answer(asked['messages'][1]['content'], [0, 1, 4][turn]) if turn < 3 else (400, {})
    with serving(dies) as server:
        endpoint = {'url': server.url, 'model': 'stub', 'retries': 0}
        with pytest.warns(UserWarning, match='3 of 4 iterations gave no program; the last because: LLM gen'):
            tried = run(folder, script, endpoint=endpoint, iterations=4, settings=one)
    assert (len(tried), answered(folder)) == (2, 2)     # a program, and an answer without one


@needs_openevolve
def test_an_unknown_setting_and_an_endpoint_that_is_down_are_one_line(tmp_path, script):
    endpoint = {'url': 'http://127.0.0.1:9/v1', 'model': 'm', 'retries': 0}
    with pytest.raises(ValueError, match='database.num_iland; it has archive_size'):
        run(tmp_path / 'unknown', script, endpoint=endpoint, settings={'database': {'num_iland': 3}})
    with pytest.raises(ValueError, match='127.0.0.1:9 expected a server, got none .connection refused.'):
        run(tmp_path / 'down', script, endpoint=endpoint)
    assert answered(tmp_path / 'down') == 0


@needs_openevolve
@pytest.mark.parametrize('settings, why', [
    ({}, 'endpoint or a client, got none'), ({'endpoint': {}, 'client': 'm:f'}, 'got both'),
    ({'client': 'os.system'}, 'client expected'), ({'client': 'm:f', 'evaluator': 'no.py'}, 'not there'),
    ({'client': 'm:f', 'evaluator': 'x y'}, 'evaluator expected'),
    ({'client': 'm:f', 'iterations': 0}, 'iterations exp'),
    ({'client': 'm:f', 'evaluator': 'no_module:f'}, 'no_module'), ({'client': 'm:f', 'resume': True}, 'no job.json'),
    ({'endpoint': {'modle': 'x'}}, 'got modle'), ({'endpoint': {'url': 'ftp://x', 'model': 'm'}}, 'url expected'),
    ({'endpoint': {}}, 'endpoint expected'), ({'client': 'm:f', 'settings': {'llm': {}}}, 'llm, which is set here'),
    ({'client': 'm:f', 'settings': {'evaluator': {'cascade_evaluation': True}}}, 'cascade_evaluation, which is set'),
])
def test_what_makes_no_sense_is_refused_before_anything_starts(tmp_path, script, settings, why):
    with pytest.raises(ValueError, match=why): run(tmp_path / 'run', script, **settings)
    assert not (tmp_path / 'run' / 'log.txt').exists()
