"""The cache of trainings, and candidates that try to write into it: from their process, or with their results. What
they reach is their own name."""
import json
import shutil
from pathlib import Path

import hostile_candidates
import numpy as np
import pytest
from hostile_candidates import CANDIDATES, WRITE
from quick import FRAMEWORK, QUICK, SECRET, SOFTMAX, Counted, inside, scaled

from evolora.attention.scoring import sandbox
from evolora.attention.scoring.evaluation import Evaluator
from evolora.attention.scoring.sandbox import SHIELDS, Limits, Outcome, contain, protection

LIMITS, OTHER = Limits(seconds=60, processor_seconds=30), scaled(.3)


@pytest.fixture(scope='module')
def here(): return {what: holds for what, (holds, _) in protection().items()}


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    "A cache with the trainings of softmax, and what an honest process gives back for another mechanism"
    folder = tmp_path_factory.mktemp('made')
    judge(folder)._keep(SOFTMAX, inside(judge(folder).job(SOFTMAX)).result)
    return folder, json.dumps(inside(judge(folder).job(OTHER)).result)


@pytest.fixture
def cache(made, tmp_path): return Path(shutil.copytree(made[0], tmp_path / 'cache'))


@pytest.fixture
def result(made): return json.loads(made[1])


@pytest.fixture
def raw(monkeypatch):
    "Code past the reader, in a contained process whose FOLDER is a cache"
    monkeypatch.setattr(sandbox, '_PACKAGES', ('evolora.attention.', 'hostile_candidates'))
    monkeypatch.syspath_prepend(str(Path(hostile_candidates.__file__).parent))
    def run(code, folder, shields=SHIELDS):
        return contain('hostile_candidates:perform', dict(code=code, folder=str(folder), port=0), LIMITS,
                       shields=shields)
    return run


def judge(cache): return Evaluator(FRAMEWORK, QUICK, cache=cache, secret=SECRET)
def image(folder): return {path.name: path.read_bytes() for path in folder.iterdir()}
def losses(found): return np.array(found['measured']['losses']['1.0']).tolist()


@pytest.mark.parametrize('name', ['poison the cache', 'take the place of a training'])
def test_a_candidate_that_knows_the_path_of_the_cache_cannot_write_there(monkeypatch, cache, raw, here, name):
    if not here['write into a file']: pytest.skip('this machine does not prevent writing')
    first, before = judge(cache).evaluate(SOFTMAX), image(cache)
    if here['make or remove a file']:
        assert raw(CANDIDATES[name][0], cache).status in CANDIDATES[name][2][0] and image(cache) == before
    raw(CANDIDATES[name][0], cache, ())
    # Limits alone let them empty a file and make another; they fill none, and what is not whole is trained again.
    assert set(image(cache).values()) <= {b'', *before.values()}
    trainings = Counted(monkeypatch)
    assert losses(judge(cache).evaluate(SOFTMAX)) == losses(first) and len(trainings) == 6
    assert before.keys() <= image(cache).keys() and b'' not in [image(cache)[name] for name in before]


FORGED = {
    'another size': lambda wanted: [[9, 9, 9], *wanted[1:]], 'another seed': lambda wanted: [wanted[0], 99, None],
    'another start': lambda wanted: [*wanted[:2], 5], 'a key of the cache': lambda wanted: 32 * 'a',
    'a program': lambda wanted: [SOFTMAX.source, *wanted[1:]], 'nothing': lambda wanted: None}


@pytest.mark.parametrize('what', FORGED)
@pytest.mark.parametrize('first', [True, False])
def test_a_result_for_what_was_not_asked_is_kept_under_no_name_but_ones_own(cache, result, what, first):
    evaluator, before = judge(cache), image(cache)
    wanted, trained = result['trained'][0]
    trained = trained | {'losses': dict.fromkeys(trained['losses'], .001)}
    result['trained'].insert(0 if first else 6, [FORGED[what](wanted), trained])
    found = evaluator.judge(OTHER, Outcome('ok', result))
    assert (found['status'], found['score']) == ('crashed', None)
    own = {f'{evaluator._key(OTHER, QUICK, evaluator.digest, *one)}.json' for one in evaluator._wanted()}
    assert {name: data for name, data in image(cache).items() if name not in own} == before


def test_a_result_that_a_process_made_up_is_no_result_and_changes_no_entry(cache, raw):
    "With a reader that is bypassed as well, all that can be written is weights and predictions"
    evaluator, before, asked = judge(cache), image(cache), []
    made_up = json.dumps({'value': {'trained': [[one, {'losses': {'1.0': .001}}] for one in evaluator._wanted()]},
                          'bytes': {}}).encode()
    def lying(task, arguments, limits):
        asked.append(task.partition(':')[2])
        return raw(WRITE + f'write({made_up!r})\nos._exit(0)', cache)
    found = evaluator.judge(OTHER, evaluator.job(OTHER).outcome(lying))
    assert (found['status'], found['score']) == ('crashed', None) and set(asked) == {'fit_many'}
    assert image(cache) == before
