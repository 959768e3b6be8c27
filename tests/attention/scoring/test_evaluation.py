"What a program is worth: that it is the program that is trained, that it is trained once, and failures are reported."
import json
import multiprocessing
import shutil
from math import isfinite

import numpy as np
import pytest
from endless import instead, pipe
from scipy.special import logit
from quick import FRAMEWORK, QUICK, SECRET, SOFTMAX, Counted, Inside, inside, kept, program, scaled

from evolora.attention.scoring import evaluation
from evolora.attention.scoring.evaluation import Cache, Evaluator
from evolora.host.mechanisms.frameworks import control
from evolora.attention.scoring.measurement import Measurement
from evolora.attention.scoring.model_sizes import TIERS, LanguageModel, Tier
from evolora.host.mechanisms.program_source import Program, build
from evolora.attention.scoring.sandbox import Outcome
from evolora.attention.scoring.scaling import fit, paired_gain, score
from evolora.attention.scoring.workers import Workers

ZERO = scaled('self.entries**-.5', 'y * 0')
SENTINEL = program('def setup(self): self.sentinel = nn.Parameter(torch.zeros(7))\n'
                   'def matrix(self, q, k, x): return causal_softmax(q @ k.mT * self.entries**-.5 + '
                   'self.sentinel.sum())')
# Softmax under other names, with other spaces
CLONE = program('def matrix(self, queries, keys, tokens):\n    # the same\n'
                '    return causal_softmax(queries @ keys.mT * self.entries**-.5)')


@pytest.fixture
def trainings(monkeypatch): return Counted(monkeypatch)


@pytest.fixture(scope='module')
def made(tmp_path_factory):
    "A cache with the trainings of softmax, what they came to, and the result of the job"
    folder = tmp_path_factory.mktemp('made')
    evaluator = judge(folder)
    result = inside(evaluator.job(SOFTMAX)).result
    found = evaluator.judge(SOFTMAX, Outcome('ok', result))
    return folder, losses(found).tolist(), json.dumps(result)


def judge(cache=None, **settings):
    return Evaluator(FRAMEWORK, **{'tier': QUICK, 'cache': cache, 'secret': SECRET} | settings)


def losses(found): return np.array(found['measured']['losses']['1.0'])


# What is trained

def test_what_is_trained_is_the_candidate(trainings):
    longer = QUICK.model_copy(update={'steps': 10, 'context': 16, 'held': 4096})      # so that softmax learns something
    evaluator = judge(tier=longer)
    base, zero, mean = (evaluator.evaluate(p) for p in (SOFTMAX, ZERO, Program(control('mean'))))
    for one, other in ((base, zero), (base, mean), (zero, mean)):
        assert (losses(one) != losses(other)).all()
    assert losses(base).shape == (3, 2) and (losses(zero) > losses(base)).mean() > .5
    assert [base['score'], base['measured']['gain']['gain']] == [.5, 0.]


def test_every_parameter_of_a_candidate_is_counted(trainings, tmp_path):
    evaluator = judge(tmp_path)
    found = evaluator.evaluate(SENTINEL)
    counted = [sum(p.numel() for p in LanguageModel(build(SENTINEL), size, QUICK.vocab).parameters())
               for size in QUICK.sizes]
    assert found['measured']['parameters'] == counted
    assert counted == [n + 7 for n in evaluator.sizes]      # one layer each, and 7 is too few to take a hidden unit
    own = [trained['parameters']['own'] for trained in kept(tmp_path).values()]
    assert sorted(set(own)) == [0, 7]


def test_in_a_process_of_its_own_it_comes_to_the_same_with_a_text_of_ones_own_too(trainings, tmp_path):
    text = tmp_path / 'text.txt'
    text.write_text('a text of one\'s own, with words in it. ' * 2000)
    evaluator = judge(tmp_path / 'cache', corpus=text)
    evaluator.evaluate(SOFTMAX)
    job = evaluator.job(ZERO)
    [outcome] = Workers(1).map([job])
    assert outcome.status == 'ok', outcome.why
    ours = inside(job).result
    unlike = lambda found: [(key, {**trained, 'seconds': 0}) for key, trained in found['trained']]
    assert unlike(outcome.result) == unlike(ours)
    assert evaluator.judge(ZERO, outcome)['status'] == 'ok'
    text.write_text('another text, with other words in it. ' * 2000)
    outcome = inside(Measurement(evaluator.trainings(ZERO, evaluator._wanted())))
    assert outcome.status == 'crashed' and 'the corpus has changed' in outcome.why


# The same again

def test_the_same_seed_gives_the_same_losses_and_another_does_not(trainings):
    one, again, other = (judge(first=first).evaluate(scaled(.3)) for first in (0, 0, 2))
    assert losses(one).tolist() == losses(again).tolist() and len(trainings) == 3 * 12
    assert one['measured']['gain'] == again['measured']['gain'] and one['score'] == again['score']
    assert (losses(one) != losses(other)).all() and (losses(one)[:, 0] != losses(one)[:, 1]).all()


def test_candidate_and_baseline_see_the_same_batches(trainings, tmp_path):
    for name, candidate in (('a', SOFTMAX), ('b', ZERO)):
        found = inside(Measurement(judge().trainings(candidate, judge()._wanted()))).result['trained']
        (tmp_path / name).write_text(json.dumps([(key, trained['batches']) for key, trained in found]))
    a, b = (json.loads((tmp_path / name).read_text()) for name in 'ab')
    assert a == b and len({digest for _, digest in a}) == len(a) == 6      # a size and a seed have batches of their own


# Never twice

def test_a_program_with_a_known_digest_is_not_trained_again(trainings, tmp_path):
    first = judge(tmp_path).evaluate(SOFTMAX)
    assert len(trainings) == 6 and CLONE.source != SOFTMAX.source
    trainings.clear()
    again = judge(tmp_path).evaluate(CLONE)
    assert not trainings and losses(again).tolist() == losses(first).tolist()
    assert judge(tmp_path).job(CLONE) is None


@pytest.mark.parametrize('what', ['steps', 'seed', 'data', 'code', 'rate', 'more seeds', 'exam'])
def test_what_is_another_training_is_made(trainings, made, tmp_path, what):
    shutil.copytree(made[0], tmp_path / 'cache')
    text = tmp_path / 'text.txt'
    text.write_text('a text of one\'s own, with words in it. ' * 2000)
    other = {'steps': dict(tier=Tier(**QUICK.model_dump() | {'steps': 21})), 'seed': dict(first=2),
             'rate': dict(tier=Tier(**QUICK.model_dump() | {'rate': .01})), 'data': dict(corpus=text), 'code': {},
             'more seeds': dict(seeds=3), 'exam': dict(secret='another')}[what]
    found = judge(tmp_path / 'cache', **other).evaluate(ZERO if what == 'code' else SOFTMAX)
    assert found['status'] == 'ok' and len(trainings) == (3 if what == 'more seeds' else 6)


def test_a_name_of_a_tier_is_not_a_training(made):
    assert judge(made[0], tier=Tier(**QUICK.model_dump() | {'name': 'tiny'})).job(SOFTMAX) is None


def spoil(path, how):
    text = path.read_text()
    if how == 'folder':
        path.unlink()
        return path.mkdir()
    found = json.loads(text)
    number = str(found['trained']['losses']['1.0'])
    if how == 'other loss': found['trained']['losses']['1.0'] -= .5
    if how == 'wrong types': found['trained']['losses'] = [1, 2]
    if how == 'more': found['trained']['more'] = 1
    if how == 'no check': del found['check']
    path.write_text({'truncated': text[:len(text) // 2], 'empty': '', 'list': '[1, 2]', 'nothing': '{}',
                     'NaN': text.replace(number, 'NaN'), 'huge': text + ' ' * (1 << 17),
                     'deep': '[' * 60_000}.get(how, json.dumps(found)))


@pytest.mark.parametrize('how', ['truncated', 'empty', 'list', 'nothing', 'NaN', 'huge', 'deep', 'other loss', 'more',
                                 'wrong types', 'no check', 'folder'])
@pytest.mark.filterwarnings('ignore:.*it is not kept')
def test_a_damaged_training_is_made_again(trainings, made, tmp_path, how):
    cache = shutil.copytree(made[0], tmp_path / 'cache')
    spoil(sorted(cache.glob('*.json'))[0], how)
    again = judge(cache).evaluate(SOFTMAX)
    assert len(trainings) == 1 and losses(again).tolist() == made[1]
    assert how == 'folder' or judge(cache).job(SOFTMAX) is None


def test_a_cache_that_cannot_be_written_costs_time_and_nothing_else(trainings, tmp_path, monkeypatch):
    def full(path, data): raise OSError(28, 'No space left on device')
    monkeypatch.setattr(evaluation, 'write_whole', full)
    with pytest.warns(UserWarning, match='No space left on device; it is not kept'):
        assert judge(tmp_path).evaluate(SOFTMAX)['status'] == 'ok'


def test_what_another_process_trained_meanwhile_stays_under_its_own_name(trainings, tmp_path):
    alone = judge(tmp_path / 'alone', seeds=3).evaluate(ZERO)
    slow, quick = judge(tmp_path / 'cache', seeds=3), judge(tmp_path / 'cache', seeds=2)
    job = slow.job(ZERO)
    outcome = inside(job)
    # Another process, between job and judgement
    quick._keep(ZERO, inside(Measurement(quick.trainings(ZERO, quick._wanted()))).result)
    found = slow.judge(ZERO, outcome)
    assert losses(found).tolist() == losses(alone).tolist()
    assert losses(judge(tmp_path / 'cache', seeds=3).evaluate(ZERO)).tolist() == losses(alone).tolist()


def write(folder, trained, times):
    cache = Cache(folder)
    for _ in range(times): cache.put('key', evaluation.Trained.from_dict(trained))


def test_writers_side_by_side_leave_something_whole(made, tmp_path):
    trained = next(iter(kept(made[0]).values()))
    context = multiprocessing.get_context('fork')
    writers = [context.Process(target=write, args=(tmp_path / 'many', trained, 100)) for _ in range(3)]
    (tmp_path / 'many').mkdir()
    for writer in writers: writer.start()
    seen = 0
    while any(writer.is_alive() for writer in writers):
        if (tmp_path / 'many' / 'key.json').exists():
            assert Cache(tmp_path / 'many').get('key').as_dict() == trained
            seen += 1
    assert seen and [writer.exitcode for writer in writers] == [0, 0, 0]
    assert [path.name for path in (tmp_path / 'many').iterdir()] == ['key.json']


def test_a_cache_has_one_secret_that_only_its_owner_reads(tmp_path):
    first, again, other = Cache(tmp_path / 'a').secret, Cache(tmp_path / 'a').secret, Cache(tmp_path / 'b').secret
    assert first == again != other and len(first) == 32 and Cache().secret != Cache().secret
    assert (tmp_path / 'a' / 'secret').stat().st_mode & 0o077 == 0
    assert [path.name for path in (tmp_path / 'a').iterdir()] == ['secret']
    (tmp_path / 'a' / 'secret').write_text('short')
    with pytest.raises(ValueError, match='secret expected 32 characters'): Cache(tmp_path / 'a').secret
    instead(tmp_path / 'a' / 'secret', pipe)
    with pytest.raises(ValueError, match='secret expected 32 characters'): Cache(tmp_path / 'a').secret
    assert judge(tmp_path / 'b', secret=None).secret == other


def test_the_facts_tell_secrets_apart_and_do_not_tell_them():
    one, other = judge(), judge(secret='another')
    assert one.facts['exam'] != other.facts['exam'] and SECRET not in json.dumps(one.facts)


# What fails

def test_losses_that_are_none_have_no_score(trainings):
    found = judge().evaluate(scaled(.3, 'y * 1e6 * 1e6 * 1e6 * 1e6 * 1e6 * 1e6 * 1e6'))
    assert (found['status'], found['score'], found['measured']) == ('diverged', None, {})
    assert 'the loss was nan at step' in found['why'] or 'the loss was inf at step' in found['why']


@pytest.mark.parametrize('status', ['timeout', 'memory', 'crashed'])
def test_a_job_that_failed_has_no_score_and_a_reason(trainings, status):
    found = judge().judge(ZERO, Outcome(status, None, 'on purpose'))
    assert found == dict(status=status, why='on purpose', score=None, measured={})


def test_a_baseline_that_fails_is_one_line(trainings, monkeypatch):
    class Late:
        def map(self, jobs): return (Outcome('timeout', None, 'it took longer than 1 s') for _ in jobs)
    with pytest.raises(ValueError, match='baseline expected losses, got timeout: it took longer than 1 s'):
        judge().prepare(Late())
    monkeypatch.setattr(evaluation, 'work', lambda job: Outcome('crashed', None, 'on purpose'))
    with pytest.raises(ValueError, match='crashed: on purpose'): judge().measure(SOFTMAX)


def test_preparing_trains_the_baseline_once(trainings, tmp_path):
    evaluator = judge(tmp_path)
    evaluator.prepare(Inside())
    assert len(trainings) == 6 and evaluator.job(SOFTMAX) is None
    assert isfinite(evaluator.noise) and 0 < evaluator.noise


@pytest.mark.parametrize('kind', ['paired_gain', 'slope', 'slope_lcb'])
def test_noise_is_how_far_two_mechanisms_that_are_the_same_lie_apart(monkeypatch, kind):
    evaluator, rng, seeds, sd = judge(kind=kind, seeds=3), np.random.default_rng(0), 3, .01
    line = 3 - .1 * np.log(evaluator.sizes)[:, None]
    def draw(): return line + sd * rng.standard_normal((3, seeds))
    def reached(base, table):
        if kind == 'paired_gain': return logit(score(paired_gain(base, table)))
        return logit(score(fit(evaluator.sizes, table), kind))
    apart, noise = [], []
    for _ in range(300):
        base = draw()
        monkeypatch.setattr(Evaluator, 'measure', lambda self, program: {'losses': {'1.0': base.tolist()}})
        noise.append(evaluator.noise)
        apart.append(reached(base, draw()) - reached(base, draw()))
    assert .8 * np.std(apart) < np.sqrt(np.mean(np.square(noise))) < (1.3 if kind != 'slope_lcb' else 2) * np.std(apart)


def test_a_candidate_that_falls_far_behind_is_dropped_before_it_costs(trainings, monkeypatch):
    monkeypatch.setitem(TIERS, 'tiny', Tier(**QUICK.model_dump() | {'name': 'tiny'}))
    evaluator = judge(tier=Tier(**QUICK.model_dump() | {'name': 'dear', 'steps': 20}))
    evaluator.prepare(Inside())
    trainings.clear()
    assert judge().gate is None and 3 < evaluator.gate[1] < 8
    free = judge(tier=evaluator.tier, gate=False)
    assert free.gate is None and free.facts == evaluator.facts | {'gate': False} and 'gate' not in evaluator.facts
    assert evaluator.evaluate(scaled(.3))['status'] == 'ok' and evaluator.job(SOFTMAX) is None
    assert len(trainings) == 3 + 6                  # one of each size at the gate, and two behind it
    trainings.clear()
    monkeypatch.setattr(evaluator, 'gate', (evaluator.gate[0], 1.))
    bad = evaluator.evaluate(ZERO)
    assert (bad['status'], bad['score']) == ('dropped', None)
    assert 'at the tiny tier, where at most 1.000 is let through' in bad['why']
    assert len(trainings) == 3 and {seed for *_, seed in trainings} == {0}


@pytest.mark.parametrize('forged', [
    {}, {'trained': []}, {'trained': None}, {'trained': [1]}, {'dropped': [{}]}, {'trained': [], 'more': 1}, [], None,
    'one too many', 'a loss that is none', 'no losses', 'text for a number'])
def test_a_result_that_was_not_asked_for_is_a_crash(made, forged):
    evaluator, result = judge(), json.loads(made[2])
    if isinstance(forged, str):
        wanted, first = result['trained'][0]
        if forged == 'one too many': result['trained'].append([[[8, 1, 1], 99, None], first])
        if forged == 'a loss that is none': first['losses']['1.0'] = float('nan')
        if forged == 'no losses': first['losses'] = {}
        if forged == 'text for a number': first['flops'] = 'many'
    else: result = forged
    found = evaluator.judge(SOFTMAX, Outcome('ok', result))
    assert (found['status'], found['score']) == ('crashed', None) and 'something else' in found['why']


@pytest.mark.parametrize('forged', [
    {}, [], None, {'status': 1}, {'status': 'ok', 'cell': 'x'}, {'status': 'ok', 'description': {'rank': 'much'}},
    {'status': 'ok', 'description': {'rank': float('inf')}}, {'status': 'ok', 'more': 1}, {'status': 'ok'},
    {'status': 'fine'}, {'status': 'ok', 'cell': [1, 2], 'description': {'entropy': '.5', 'lookback': .5, 'rank': .5}},
    {'status': 'ok', 'cell': [1, True], 'description': {'entropy': .5, 'lookback': .5, 'rank': .5}}])
def test_a_look_that_is_none_is_a_crash(monkeypatch, forged):
    monkeypatch.setattr(evaluation, 'work', lambda job: Outcome('ok', forged))
    assert judge().look(SOFTMAX).status == 'crashed'


def test_what_diverges_at_the_gate_is_invalid_and_not_merely_behind(trainings, monkeypatch):
    monkeypatch.setitem(TIERS, 'tiny', Tier(**QUICK.model_dump() | {'name': 'tiny'}))
    evaluator = judge(tier=Tier(**QUICK.model_dump() | {'name': 'dear', 'steps': 20}))
    evaluator.prepare(Inside())
    found = evaluator.evaluate(scaled('self.entries**-.5', 'y / (y.sum() - y.sum())'))
    assert found['status'] == 'diverged' and 'the loss was nan' in found['why']


def test_a_longer_row_may_be_looked_at_for_longer(monkeypatch):
    asked = []
    monkeypatch.setattr(evaluation, 'work', lambda job: asked.append(job.limits) or Outcome('crashed', None, 'no'))
    for context in (16, 32, 128): judge(tier=Tier(**QUICK.model_dump() | {'context': context})).look(SOFTMAX)
    assert [limits.processor_seconds for limits in asked] == [60, 60, 240]


def test_a_clone_is_close_and_another_kernel_is_not(trainings):
    def gated(number, scores='q @ k.mT'): return program(f"""
        warmth = {number}
        def setup(self): self.rate, self.gate = nn.Linear(self.dim, self.heads), nn.Linear(self.dim, self.dim)
        def prepare(self, q, k, v, x): return rms(q) * self.warmth, rms(k), v
        def matrix(self, q, k, x):
            return causal_softmax({scores} * self.entries**-.5 + cut(F.logsigmoid(self.rate(x)).mT[..., None, :]))
        def finish(self, y, x): return y * self.split(torch.sigmoid(self.gate(x)))""")
    evaluator, one, other, kernel = judge(), gated(1.001), gated(1.002), gated(1.002, '(q @ k.mT) ** 2 * 9')
    looks = {program: evaluator.look(program) for program in (one, other, kernel)}
    assert {look.status for look in looks.values()} == {'ok'}, looks
    assert evaluator.close(other, looks[other], [(one, looks[one])])
    assert not evaluator.close(kernel, looks[kernel], [(one, looks[one]), (other, looks[other])])


def test_a_tier_has_the_time_that_it_takes():
    least = judge().limits.processor_seconds
    seed = Evaluator(FRAMEWORK, 'seed', seeds=4).limits
    # 1000 steps of the four sizes are 4.6e13 operations, and took 12 minutes of a processor
    assert least < 1000 and seed.processor_seconds > 4 * 2 * 12 * 60 and seed.seconds > seed.processor_seconds


def test_a_text_that_changed_is_not_charged_to_a_candidate(trainings, tmp_path):
    text = tmp_path / 'text.txt'
    text.write_text('the quick brown fox jumps over the lazy dog; ' * 2000)
    evaluator = judge(corpus=text)
    evaluator.measure(SOFTMAX)
    text.write_text('another text, just as long as the one before; ' * 2000)
    job = evaluator.job(ZERO)
    with pytest.raises(ValueError, match='text.txt expected the text that was begun with, got another'):
        evaluator.judge(ZERO, inside(job))
    text.unlink()
    with pytest.raises(ValueError, match='text.txt'): evaluator.judge(ZERO, inside(job))


@pytest.mark.parametrize('kind,least', [('paired_gain', 2), ('slope_lcb', 3)])
def test_a_ladder_too_short_for_its_score_is_refused_before_anything_is_trained(kind, least):
    short = QUICK.model_copy(update={'sizes': QUICK.sizes[:least - 1]})
    with pytest.raises(ValueError, match=f'tier expected {least} sizes or more to score by {kind}, got {least - 1}'):
        Evaluator(FRAMEWORK, short, kind=kind)


def test_another_device_is_another_measurement(trainings, monkeypatch, tmp_path):
    with pytest.raises(ValueError, match='device expected cpu or cuda'): judge(device='abacus')
    monkeypatch.setattr('torch.cuda.is_available', lambda: True)
    monkeypatch.setattr('torch.cuda.get_device_name', lambda: 'a GPU')
    here, there = judge(tmp_path), judge(tmp_path, device='cuda')
    assert there.facts == here.facts | {'device': 'a GPU'} and 'device' not in here.facts
    assert there.limits.accelerator and not here.limits.accelerator
    job = there.job(SOFTMAX)
    assert job.trainings.device == 'cuda' and job.limits == there.limits
    here.evaluate(SOFTMAX)
    assert here.job(SOFTMAX) is None and there.job(SOFTMAX) is not None
