"""Over machines: what comes back from a Ray cluster is what comes back from processes here.

Ray is no dependency, so this is skipped without it: `pip install ray` and run this file.
"""
import time
from pathlib import Path

import pytest
from quick import FRAMEWORK, QUICK, SECRET, kept
from attention.search.test_search import config, history

from evolora.attention.search.search import begin_search, proposer_of
from evolora.attention.scoring.evaluation import Evaluator
from evolora.attention.scoring.fork_server import MARK
from evolora.attention.scoring.sandbox import Limits
from evolora.attention.scoring.workers import Job, RayWorkers, Workers

ray = pytest.importorskip('ray', reason='Ray is not installed here')


def nap(seconds): return Job('evolora.attention.scoring.sandbox:pause', {'seconds': seconds}, Limits(seconds=60))


@pytest.fixture(scope='module')
def cluster():
    ray.shutdown()              # of tests before, in the same process
    yield RayWorkers('local')
    ray.shutdown()


def test_outcomes_come_in_their_order_and_a_bad_job_is_an_outcome(cluster):
    wrong = Job('evolora.attention.scoring.sandbox:pause', {'hours': 1}, Limits(seconds=60))
    found = list(cluster.map([nap(.3), nap(.01), wrong, nap(.1)]))
    assert [outcome.result for outcome in found] == [.3, .01, None, .1] and found[2].status == 'crashed'
    assert cluster.count >= 1


def test_a_search_on_a_cluster_is_the_same_search(cluster, tmp_path):
    for name, crew in (('here', Workers(2)), ('there', cluster)):
        settings = config(budget=2)
        judge = Evaluator(FRAMEWORK, QUICK, cache=tmp_path / f'cache {name}', secret=SECRET)
        with begin_search(tmp_path / name, settings, judge, proposer_of(settings)) as search: search.run(workers=crew)
    here, there = history(tmp_path / 'here'), history(tmp_path / 'there')
    assert here == there and [row['status'] for row in here] == ['ok'] * 3
    assert kept(tmp_path / 'cache here').keys() == kept(tmp_path / 'cache there').keys()


def test_machines_that_train_otherwise_are_named_before_a_candidate_fails(cluster):
    judge = Evaluator(FRAMEWORK, QUICK)
    judge.agree(cluster)
    judge.digest = 'of another text'
    with pytest.raises(ValueError, match=r':\d+ expected corpus of another text as here, got [0-9a-f]+; install'):
        judge.agree(cluster)


def test_an_accelerator_is_asked_for(cluster):
    wants = Job('evolora.attention.scoring.sandbox:pause', {'seconds': .01}, Limits(seconds=60, accelerator=True))
    sent = cluster._send(wants)
    done, waiting = ray.wait([sent], timeout=3)
    ray.cancel(sent, force=True)
    assert waiting and not done, 'there is none, so no job may have begun'


def contained():
    "Contained processes of workers of Ray; not those from which they are forked, nor those of other tests"
    found = {}
    for entry in Path('/proc').glob('[0-9]*'):
        try:
            signs = dict(line.split(b'=', 1) for line in (entry / 'environ').read_bytes().split(b'\0') if b'=' in line)
            if (mark := signs.get(MARK.encode())) is None: continue
            owner = Path('/proc') / mark.decode().partition('-')[0] / 'cmdline'
            if owner.read_bytes().startswith(b'ray::'): found[int(entry.name)] = parent_of(entry)
        except OSError: continue
    return {pid for pid, parent in found.items() if parent in found}


def parent_of(entry): return int((entry / 'stat').read_text().rsplit(')', 1)[1].split()[1])


def alive(pids): return [pid for pid in pids if Path(f'/proc/{pid}').exists()]


def test_an_interrupt_stops_the_work_there_too(cluster):
    before = contained()
    outcomes = cluster.map([nap(.01), nap(50), nap(50)])
    assert next(outcomes).status == 'ok'
    begun = time.monotonic()
    while not (there := contained() - before) and time.monotonic() < begun + 40: time.sleep(.2)
    assert there
    outcomes.close()
    begun = time.monotonic()
    while alive(there) and time.monotonic() < begun + 30: time.sleep(.2)
    assert not alive(there)


@pytest.mark.parametrize('address', ['127.0.0.1:9', 'ray://127.0.0.1:9', '127.0.0.1:x', 'nowhere.invalid:6379'])
def test_a_cluster_that_is_not_there_is_one_line(address):
    ray.shutdown()
    with pytest.raises(ValueError, match=f'expected a Ray cluster at .{address}., got') as failed: RayWorkers(address)
    assert '\n' not in str(failed.value)
