"""`evolora attention`: what can be done is done and goes on where it was left; what cannot is one line and exit 2."""
import errno
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import cache, partial
from pathlib import Path

import pytest
from endpoints import edit, serving
from quick import QUICK, Counted, inside

from evolora.cli import attention as commands
from evolora.attention.scoring import evaluation
from evolora.attention.scoring import model_sizes as ladder
from evolora.attention.scoring import sandbox, workers
from evolora.attention.scoring.corpus import standard_library
from evolora.attention.search import search
from evolora.attention.search.search import read_history
from evolora.host.mechanisms.frameworks import variant
from evolora.attention.scoring.sandbox import protection
from evolora.attention.scoring.model_sizes import Tier
from evolora.host.mechanisms.program_source import Program
from evolora.attention.report.records import read_search
from evolora.attention.scoring.sandbox import Outcome
from evolora.cli.app import main

SOFTMAX = variant('matrix_mixers')
TINY = Tier(**QUICK.model_dump() | {'name': 'tiny'})
SEARCH = ('--framework', 'matrix_mixers', '--tier', 'tiny', '--workers', 1)
DRIVEN = ('--framework', 'matrix_mixers', '--tier', 'tiny', '--proposer', 'openevolve')
openevolve = pytest.mark.skipif(importlib.util.find_spec('openevolve') is None,
                                reason="needs OpenEvolve: pip install 'evolora[attention]'")


tried = cache(sandbox.protection)       # what a candidate could do here is the same each time


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    "A working folder of its own, a tiny tier that takes no time, and jobs in this process"
    monkeypatch.setattr(sandbox, 'protection', tried)
    (tmp_path / 'here').mkdir()
    monkeypatch.chdir(tmp_path / 'here')
    monkeypatch.setitem(ladder.TIERS, 'tiny', TINY)
    monkeypatch.setattr('evolora.attention.scoring.workers.work', inside)
    monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'cache'))
    return tmp_path / 'here'


@pytest.fixture
def trainings(monkeypatch): return Counted(monkeypatch)


@pytest.fixture
def unpainted(monkeypatch): monkeypatch.setattr('evolora.attention.report.search_report.save_chart', lambda *_: None)


@pytest.fixture
def cli(cli): return partial(cli, 'attention')


def refused(found, words):
    "That there was one line on standard error, with these words and no escape code"
    code, out, err = found
    assert code == 2 and not out, found
    assert err.count('\n') == 1 and err.startswith('evolora: ') and words in err, err
    assert '\x1b' not in err and 'Traceback' not in err


# Evaluate

def test_a_variant_is_evaluated_and_known_the_second_time(cli, trainings, here):
    code, out, err = cli('evaluate', 'matrix_mixers/linear', '--tier', 'tiny', '--json')
    assert code == 0, err
    tokens, epochs = re.search(r': ([\d,]+) tokens of it for each training, ([\d.e+-]+) epochs', err).groups()
    left = [what for what, (prevented, _) in protection().items() if not prevented]
    assert f"keeps them from this: {', '.join(left)}\n" in err if left else 'candidates run contained\n' in err
    tokens, seen = int(tokens.replace(',', '')), TINY.rows * TINY.context * TINY.steps
    assert tokens == int(seen * (1 - TINY.recall))
    assert float(epochs) == pytest.approx(tokens / len(standard_library(TINY.vocab).train), rel=.05)
    found = json.loads(out)
    assert found['status'] == 'ok' and found['facts']['tier']['name'] == 'tiny' and len(trainings) == 12
    (here / 'linear.py').write_text(variant('matrix_mixers', 'linear').replace('q @ k.mT', 'q  @  k.mT'))
    trainings.clear()
    code, out, _ = cli('evaluate', 'linear.py', '--tier', 'tiny')
    assert code == 0 and not trainings and 'paired gain, nats' in out and 'fitness' in out and 'verdict' in out
    assert 'embedding' in out and all(f'{64 * dim / n:.0%}' in out for dim, n in zip(
        (size[0] for size in found['facts']['tier']['sizes']), found['measured']['parameters']))
    assert not [path for path in here.iterdir() if path.name != 'linear.py']


def test_a_mechanism_and_softmax_are_trained_side_by_side(cli, trainings, monkeypatch):
    asked, real = [], workers.Workers.map
    def counting(self, jobs):
        jobs = list(jobs)
        asked.append((self.count, len(jobs)))
        return real(self, jobs)
    monkeypatch.setattr(workers.Workers, 'map', counting)
    assert cli('evaluate', 'matrix_mixers/linear', '--tier', 'tiny', '--workers', 2, '--json')[0] == 0
    assert cli('evaluate', 'matrix_mixers/toeplitz', '--tier', 'tiny', '--json')[0] == 0
    assert json.loads(cli('evaluate', 'matrix_mixers', '--tier', 'tiny', '--json')[1])['score'] == .5
    assert asked == [(2, 2), (1, 1), (1, 0)] and len(trainings) == 3 * 6


def test_softmax_that_fails_is_one_line(cli, monkeypatch):
    late = Outcome('timeout', None, 'it took longer than 1 s')
    monkeypatch.setattr(workers.Workers, 'map', lambda self, jobs: (late for _ in jobs))
    code, out, err = cli('evaluate', 'matrix_mixers/linear', '--tier', 'tiny')
    assert (code, out) == (2, '') and 'softmax expected losses, got timeout' in err.splitlines()[-1], err


def test_trainings_lie_in_the_cache_of_the_user(monkeypatch, tmp_path):
    assert commands._cache(None) == tmp_path / 'cache' / 'evolora' / 'attention'
    monkeypatch.delenv('XDG_CACHE_HOME')
    monkeypatch.setenv('HOME', str(tmp_path))
    assert commands._cache(None) == tmp_path / '.cache' / 'evolora' / 'attention'
    assert commands._cache(Path('x')) == Path('x')


def test_what_is_invalid_is_said_with_exit_code_1(cli, trainings, here):
    ahead = SOFTMAX.replace('causal_softmax(', 'torch.softmax(').replace('entries**-.5)', 'entries**-.5, -1)')
    (here / 'ahead.py').write_text(ahead)
    code, out, err = cli('evaluate', 'ahead.py', '--tier', 'tiny')
    assert code == 1 and not out and 'ahead.py is invalid: ' in err and not trainings
    assert json.loads(cli('evaluate', 'ahead.py', '--tier', 'tiny', '--json')[1])['status'] == 'invalid'


def test_a_text_of_ones_own(cli, trainings, here):
    (here / 'text.txt').write_text('a text of one\'s own, with words in it. ' * 2000)
    code, out, err = cli('evaluate', 'matrix_mixers/linear', '--tier', 'tiny', '--corpus', 'text.txt', '--json')
    assert code == 0 and json.loads(out)['status'] == 'ok', err


BAD = [
    (('evaluate', 'matrix_mixers/none'), 'expected one of softmax'),
    (('evaluate', 'nothing.py'), 'which is neither'), (('evaluate', 'controls/none'), 'which is neither'),
    (('evaluate', 'syntax.py'), 'syntax'),
    (('evaluate', 'bytes.py'), 'is not UTF-8 text'), (('evaluate', 'long.py'), 'expected at most'),
    (('evaluate', '.'), 'got a folder'), (('evaluate', '/dev/zero'), 'got a device or a pipe'),
    (('evaluate', 'matrix_mixers', '--tier', 'tiny', '--corpus', '/dev/zero'), 'which is neither'),
    (('evaluate', 'matrix_mixers', '--tier', 'huge'), 'tier expected one of tiny'),
    (('evaluate', 'matrix_mixers', '--seeds', 1), '--seeds'),
    (('evaluate', 'matrix_mixers', '--tier', 'tiny', '--corpus', 'none.txt'), 'none.txt'),
    (('evaluate', 'matrix_mixers', '--tier', 'tiny', '--corpus', 'bytes.py'), 'bytes.py'),
    (('evaluate', 'matrix_mixers', '--tier', 'tiny', '--corpus', 'short.txt'), 'short.txt'),
    (('evaluate', 'matrix_mixers', '--tier', 'tiny', '--cache', 'short.txt'), 'short.txt'),
    (('evaluate', 'matrix_mixers', '--tier', 'tiny', '--vocab', 7), 'tier vocab expected'),
    (('evaluate', 'matrix_mixers', '--tier', 'tiny', '--steps', 0), '--steps'),
    (('evaluate', 'matrix_mixers', '--tier', 'tiny', '--device', 'abacus'), 'device expected cpu or cuda'),
    (('evolve', '--tier', 'huge'), 'tier expected one of tiny'), (('evolve', '--framework', 'none'), '--framework'),
    (('evolve', '--proposer', 'none'), '--proposer'), (('evolve', '--score', 'none'), '--score'),
    (('evolve', '--budget', 0), '--budget'), (('evolve', '--out', 'short.txt'), 'which exists'),
    (('evolve', '--resume', 'nowhere'), 'nowhere has no search.json'),
    (('evolve', '--resume', '.'), 'has no search.json'),
    (('evolve', '--resume', 'a', '--out', 'b'), 'expected --resume or --out, got both'),
    (('evolve', '--proposer', 'llm'), 'llm expected --url and --model'),
    (('evolve', '--url', 'http://127.0.0.1:9/v1', '--model', 'x'), 'grammar expected no --url and no --model'),
    (('report', 'nowhere', '--seeds', 4), '--seeds expected --rescore beside it'),
    (('report', 'nowhere', '--top', 1, '--tier', 'tiny'), '--tier expected --rescore beside it'),
    (('evolve', '--proposer', 'openevolve', '--model', 'x'), 'openevolve expected --url and --model'),
    *[(('evolve', '--proposer', 'openevolve', '--url', 'http://127.0.0.1:9/v1', '--model', 'x', f'--{name}', given),
       f'openevolve expected no --{name}, got one') for name, given in (
           ('workers', 2), ('ray', 'local'), ('batch', 2), ('patience', 20))],
    (('evolve', '--proposer', 'llm', '--url', 'file:///etc', '--model', 'x'), 'url'),
    (('evolve', '--proposer', 'ast', '--control'), 'control expected the proposer grammar'),
    (('evolve', *SEARCH, '--corpus', 'bytes.py', '--out', 'new'), 'bytes.py'),
    (('report', 'nowhere'), 'nowhere'), (('report', '.'), 'history.jsonl'),
    (('report', 'nowhere', '--rescore'), 'history.jsonl'), (('report', 'short.txt'), 'short.txt'),
]


@pytest.mark.parametrize('arguments, words', BAD, ids=lambda part: '-'.join(map(str, part))[:60])
def test_what_cannot_be_done_is_one_line_and_nothing_is_written(cli, trainings, here, arguments, words):
    (here / 'syntax.py').write_text(SOFTMAX.replace('(self, q', '(self q'))
    (here / 'bytes.py').write_bytes(bytes(range(256)) * 100)
    (here / 'long.py').write_text(SOFTMAX + '#' * 50_000)
    (here / 'short.txt').write_text('short')
    before = sorted(here.rglob('*'))
    found = cli(*arguments)
    refused(found, words)
    assert sorted(here.rglob('*')) == before and not trainings


def test_a_hostile_file_prints_no_escape_codes(cli, here):
    codes = '\x1b]0;x\x07\x1b[2J'
    texts = [SOFTMAX.replace('self.entries', f'self.entries{codes}'), codes, SOFTMAX.replace('matrix(', f'{codes}('),
             SOFTMAX.replace('class', f'# {codes}\nclass'), SOFTMAX.replace('x):', 'x, *, y="' + codes + '"): #')]
    for i, text in enumerate(texts):
        name = here / f'{codes}{i}.py' if i % 2 else here / f'{i}.py'
        name.write_text(text)
        code, out, err = cli('evaluate', name.name, '--tier', 'tiny')
        assert code in (1, 2) and '\x1b' not in out + err and '\x07' not in out + err, err


def test_ray_that_is_not_installed_is_one_line(cli, monkeypatch):
    monkeypatch.setattr('evolora.utils.cluster.find_spec', lambda name: None)
    code, out, err = cli('evolve', *SEARCH, '--ray', 'local')
    assert code == 2 and err.splitlines()[-1].startswith('evolora: expected Ray on this machine') and not out
    assert 'Traceback' not in err and not Path('searches').exists()


# Evolve, and what comes of it

def test_a_search_its_control_and_a_report(cli, trainings, unpainted, here):
    code, out, err = cli('evolve', *SEARCH, '--budget', 2)
    assert code == 0 and 'over: the budget of 2 candidates is spent' in out and '--rescore' in out, err
    assert re.search(r'^took: \d+\.\d minutes$', out, re.M)
    assert cli('evolve', *SEARCH, '--budget', 2, '--control', '--out', 'control')[0] == 0
    [folder] = (here / 'searches').iterdir()
    assert folder.name == 'matrix_mixers-grammar-seed0' and len(read_history(folder)) == 3
    refused(cli('evolve', *SEARCH, '--out', folder), 'or go on in it with --resume')
    trainings.clear()
    code, out, err = cli('evolve', '--resume', folder, '--budget', 99)
    assert code == 0 and not trainings and len(read_history(folder)) == 3       # its own settings count
    code, out, err = cli('report', folder, 'control', '--rescore', '--seeds', 2, '--top', 1)
    assert code == 0 and out.strip() == str(folder / 'report.md') and (folder / 'report.md').exists(), err
    assert min(seed for *_, seed in trainings) >= 1000
    assert [read_search(one).findings.seeds for one in (folder, 'control')] == [[1000, 1001]] * 2
    assert 'Against the control, on fresh seeds' in (folder / 'report.md').read_text()


def test_the_winner_is_a_file_that_can_be_evaluated(cli, trainings, unpainted, here, searched):
    shutil.copytree(searched, here / 'a')
    assert cli('report', 'a')[0] == 0
    [row] = read_history(here / 'a')[1:]
    # Only where something scored above softmax is there a winner.
    assert (here / 'a' / 'winner.py').exists() == (row['score'] > .5)
    row |= {'score': .9, 'status': 'ok'}
    first, _ = (here / 'a' / 'history.jsonl').read_text().splitlines()
    (here / 'a' / 'history.jsonl').write_text(f'{first}\n{json.dumps(row)}\n')
    assert cli('report', 'a')[0] == 0 and (here / 'a' / 'winner.py').read_text() == row['source']
    assert json.loads(cli('evaluate', 'a/winner.py', '--tier', 'tiny', '--json')[1])['digest'] == row['digest']


def test_a_tier_with_changes_is_searched_and_gone_on_with(cli, trainings, unpainted, here):
    code, out, err = cli('evolve', *SEARCH, '--steps', 7, '--vocab', 256, '--budget', 1, '--out', 'a')
    assert code == 0, err
    tier = read_search(here / 'a').facts['tier']
    assert (tier['steps'], tier['vocab'], tier['name']) == (7, 256, 'tiny')
    trainings.clear()
    assert cli('evolve', '--resume', 'a')[0] == 0 and not trainings
    assert cli('report', 'a')[0] == 0 and 'on the tier tiny' in (here / 'a' / 'report.md').read_text()


def test_without_a_gpu_there_is_one_line(cli, trainings, here, monkeypatch):
    monkeypatch.setattr('torch.cuda.is_available', lambda: False)
    for command in (('evaluate', 'matrix_mixers'), ('evolve', '--out', 'a')):
        refused(cli(*command, '--tier', 'tiny', '--device', 'cuda'), 'got cuda, and there is none')
    assert not trainings and not (here / 'a').exists()


@pytest.fixture(scope='module')
def searched(tmp_path_factory):
    "The folder of a search with one candidate"
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(ladder.TIERS, 'tiny', TINY)
        patch.setattr('evolora.attention.scoring.workers.work', inside)
        patch.setattr(evaluation, 'work', inside)
        folder = tmp_path_factory.mktemp('searched')
        arguments = ['evolve', *SEARCH, '--budget', 1, '--out', folder / 'a', '--cache', folder / 'cache']
        with pytest.raises(SystemExit) as ended: main(['attention', *map(str, arguments)])
        assert not ended.value.code
    return folder / 'a'


@pytest.mark.parametrize('name, text, words', [
    ('history.jsonl', '[]\n', 'expected a row'), ('history.jsonl', '{"index": 0\n', 'expected JSON'),
    ('history.jsonl', '', 'baseline'), ('search.json', '{"config": {}, "facts": 3}', 'begin a new search'),
    ('search.json', '[]', 'expected a JSON object'), ('search.json', '{"config": {"budget": 0}}', 'configuration'),
    ('pending.json', '{"rows": 3}', 'expected rows'), ('pending.json', '{"rows": [', 'expected JSON')])
def test_a_damaged_search_is_one_line(cli, trainings, here, searched, name, text, words):
    shutil.copytree(searched, here / 'a')
    (here / 'a' / name).write_text(text)
    before = {path: path.read_bytes() for path in (here / 'a').iterdir()}
    code, out, err = cli('evolve', '--resume', 'a')
    assert code == 2 and words in err.splitlines()[-1] and 'Traceback' not in err and not out, err
    if name != 'pending.json' and 'facts' not in text:
        refused(cli('report', 'a'), '')
    assert {path: path.read_bytes() for path in (here / 'a').iterdir()} == before


def test_other_data_is_refused_before_anything_is_trained(cli, trainings, here):
    text = here / 'text.txt'
    text.write_text('a text of one\'s own, with words in it. ' * 2000)
    assert cli('evolve', *SEARCH, '--budget', 1, '--out', 'a', '--corpus', text)[0] == 0
    text.write_text('another text, with other words in it. ' * 2000)
    trainings.clear()
    code, _, err = cli('evolve', '--resume', 'a')
    assert code == 2 and 'begin a new search' in err.splitlines()[-1] and 'corpus' in err and not trainings


STOPPED = '''
import sys
from quick import inside
from cli.test_attention import TINY, evaluation, ladder, main
ladder.TIERS['tiny'], evaluation.work = TINY, inside
main(sys.argv[1:])
'''


def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(here, searched):
    "Looks are in its process, and trainings in one of their own; softmax is known"
    paths, cache = os.pathsep.join([str(Path(__file__).parents[1]), *sys.path]), searched.parent / 'cache'
    process = subprocess.Popen(
        [sys.executable, '-c', STOPPED, 'attention', 'evolve', *map(str, SEARCH), '--out', 'a', '--batch', '1',
         '--cache', str(cache)], stderr=subprocess.PIPE, text=True, env=os.environ | {'PYTHONPATH': paths})
    lines = []
    for line in process.stderr:
        lines.append(line)
        if 'candidates are done' in line: break
    time.sleep(1)
    assert (here / 'a' / 'history.jsonl').exists(), lines
    process.send_signal(signal.SIGINT)
    rest = process.stderr.read()
    assert process.wait() == 130 and 'go on with evolora attention evolve --resume a' in rest, rest
    assert 'Traceback' not in rest and len(read_history(here / 'a')) >= 1 and not (here / 'a' / 'end.json').exists()


@pytest.mark.parametrize('error', [None, KeyboardInterrupt])
def test_a_folder_that_was_removed_is_not_to_be_resumed(cli, here, searched, monkeypatch, error):
    def gone(path, data):
        shutil.rmtree(Path(path).parent)
        if error: raise error
        return real(path, data)
    real = search.append
    monkeypatch.setattr(search, 'append', gone)
    shutil.copytree(searched.parent / 'cache', here / 'cache')
    code, out, err = cli('evolve', *SEARCH, '--budget', 2, '--out', 'a', '--cache', 'cache')
    assert code == (130 if error else 2) and '--resume' not in err and 'Traceback' not in err
    assert 'a was removed: restore it, or begin a new search' in err.splitlines()[-1]


def test_a_full_disk_is_one_line_that_says_how_to_go_on(cli, here, searched, monkeypatch):
    def full(path, data): raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(search, 'append', full)
    shutil.copytree(searched.parent / 'cache', here / 'cache')
    code, out, err = cli('evolve', *SEARCH, '--budget', 2, '--out', 'a', '--cache', 'cache')
    assert code == 2 and err.splitlines()[-1] == (
        'evolora: a: No space left on device; mend it; `evolora attention evolve --resume a` goes on')


# A language model, and OpenEvolve

def test_a_model_that_is_not_there_is_one_line(cli, trainings, here):
    code, _, err = cli('evolve', *SEARCH, '--proposer', 'llm', '--url', 'http://127.0.0.1:9/v1', '--model', 'x',
                       '--out', 'a', '--budget', 1)
    assert code == 2 and err.splitlines()[-1].startswith('evolora: ') and 'Traceback' not in err
    assert len(read_history(here / 'a')) == 1


def test_without_openevolve_there_is_one_line(cli, trainings, here, monkeypatch):
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, 'find_spec', lambda name, *a: None if name == 'openevolve' else find(name, *a))
    found = cli('evolve', *DRIVEN, '--url', 'http://127.0.0.1:9/v1', '--model', 'x')
    refused(found, "got none; pip install 'evolora[attention]'")
    assert not trainings and not list(here.iterdir())


def tempered(asked, handler):
    "Another temperature each time; on turn 2 nothing, on turn 3 what may not be read"
    turn = len(handler.server.asked)
    if turn == 2: return 'I would rather not.'
    text = asked['messages'][-1]['content']
    program = text.rpartition('# Current Program')[2]
    line = next(line for line in program.split('\n') if 'def matrix' in line)
    if turn == 3: return edit(line, line.replace('return ', 'return open('))
    return edit(line, f'    def matrix(self, q, k, x): return causal_softmax(q @ k.mT * .{turn})')


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    "In processes of OpenEvolve, too, jobs run where they are asked for"
    site = tmp_path / 'site'
    site.mkdir()
    (site / 'sitecustomize.py').write_text(
        'import sys\n'
        'if any(part.endswith("score_of") for part in sys.orig_argv):       # where programs are judged\n'
        f'    sys.path.append({str(Path(__file__).parents[1])!r})\n'
        '    from quick import evaluation, inside\n'
        '    evaluation.work = inside\n')
    monkeypatch.setenv('PYTHONPATH', str(site))
    monkeypatch.syspath_prepend(str(site))


@openevolve
def test_openevolve_searches_and_a_report_is_written_of_it(cli, trainings, unpainted, here, elsewhere):
    with serving(tempered) as server:
        ask = ('--url', server.url, '--model', 'stub')
        code, out, err = cli('evolve', *DRIVEN, *ask, '--steps', 3, '--budget', 3, '--out', 'a')
        assert code == 0, err
        assert 'over: the budget of 3 iterations is spent' in out and len(server.asked) == 3
        # One answer was of no use; it was asked for all the same.
        before = (here / 'a' / 'history.jsonl').read_bytes()
        code, out, err = cli('evolve', '--resume', 'a', *ask)
        assert code == 0 and 'the budget of 3 iterations is spent' in out and len(server.asked) == 3, err
        assert (here / 'a' / 'history.jsonl').read_bytes() == before
    rows = read_history(here / 'a')
    assert rows[0]['operator'] == 'baseline' and len(rows) >= 2
    assert {row['operator'] for row in rows[1:]} <= {'openevolve', 'none'}
    valid = [row for row in rows if row['status'] == 'ok']
    assert len(valid) >= 2 and all(0 < row['score'] < 1 and row['measured']['gain'] for row in valid)
    assert len({Program(row['source']).digest for row in valid}) == len(valid)
    code, out, err = cli('report', 'a')
    assert code == 0 and 'the openevolve proposer' in (here / 'a' / 'report.md').read_text(), err
