"""What a mechanism has to be: the standard ones are, a planted bad one of each kind is not, and is told why."""
import math

import pytest
import torch

from evolora.attention.scoring import validation
from evolora.host.mechanisms.frameworks import CONTROLS, FRAMEWORKS, VARIANTS, control, variant
from evolora.attention.scoring.model_sizes import read_tier
from evolora.host.mechanisms.program_source import Program
from evolora.attention.scoring.sandbox import Limits, Outcome
from evolora.attention.scoring.validation import BUDGET, Verdict, examine, validate

TIER = read_tier('tiny', sizes=((16, 2, 2), (24, 2, 3)), context=16)
STANDARD = {f'{name}/{kind}': variant(name, kind) for name in FRAMEWORKS for kind in VARIANTS[name]} | {
    f'controls/{name}': control(name) for name in CONTROLS}


def mixer(block): return Program(FRAMEWORKS['matrix_mixers'].program(block))
def failed(verdict): return [check.name for check in verdict.checks if not check.holds]


@pytest.mark.parametrize('name', STANDARD)
def test_the_standard_mechanisms_pass(name):
    verdict = examine(Program(STANDARD[name]), TIER)
    assert verdict.status == 'ok' and failed(verdict) == [] and len(verdict.checks) == 9
    exact = {check.name: check.number for check in verdict.checks}
    assert exact['rows'] == exact['causal'] == 0
    assert 0 <= exact['budget'] <= BUDGET


HEAD = 'def mix(self, q, k, v, x): return '
PLANTED = {
    'shape': ['def forward(self, x): return x[..., :1]', 'def forward(self, x): return x, x',
    'def forward(self, x): return 1.',
              'def forward(self, x): return x.to(torch.long)', 'def finish(self, y, x): return y[:, :, :1]',
              'def forward(self, x): return x[:1]', 'def forward(self, x): return x.shape[1]',
              'def forward(self, x): return x if x.shape[1] < 9 else x[:, 1:]'],
    'finite': [HEAD + 'v / (x.sum() * 0)', HEAD + 'torch.log(v)', HEAD + 'v * torch.exp(1e3 * v.abs())',
    HEAD + 'v * math.inf',
               HEAD + '(v - v).abs().sqrt() + v'],
    'deterministic': [HEAD + 'F.scaled_dot_product_attention(q, k, v, dropout_p=.5, is_causal=True)'],
    'stateless': [
        'def setup(self): self.seen_ = []\ndef mix(self, q, k, v, x):\n    self.seen_.append(1)\n    return v',
        'def setup(self): self.c = torch.zeros(1)\ndef mix(self, q, k, v, x):\n    c = self.c\n    c += 1\n'
        '    return v * c',
        'def setup(self): self.register_buffer("c", torch.zeros(1))\n'
        'def mix(self, q, k, v, x):\n    self.c[0] = self.c[0] + 1\n    return v',
        'def setup(self):\n    box = [1]\n    def f(v):\n        box[0] = box[0] + 1\n        return v * box[0]\n'
        '    self.f = f\ndef mix(self, q, k, v, x): return self.f(v)'],
    'rows': [HEAD + 'v - v.mean(0)', HEAD + 'v.flip(0)', HEAD + 'v * v.abs().amax((0, 1, 2))',
             HEAD + 'v / v.shape[0]', HEAD + 'v * (v.argmax(0, keepdim=True) + 1)'],
    'causal': [HEAD + 'v.mean(2, keepdim=True) + v', HEAD + 'v.roll(-1, 2)', HEAD + 'v.flip(2)',
               HEAD + 'v.softmax(2)', 'def forward(self, x): return self.output(x + x.mean(1, keepdim=True))',
               HEAD + '(q @ k.mT).softmax(-1) @ v', HEAD + 'F.scaled_dot_product_attention(q, k, v)',
               # behind a gate that is zero at first
               'def setup(self): self.gate = nn.Parameter(torch.zeros(1))\n' + HEAD + 'v + self.gate * v.roll(-1, 2)',
               # at one position only, and only at the length that is trained on
               HEAD + 'torch.cat([v[:, :, :11], v[:, :, 11:12] + v[:, :, 12:13], v[:, :, 12:]], 2) '
               'if v.shape[2] == 16 else v',
               # without a gradient
               HEAD + 'v + v.argmax(2, keepdim=True)', HEAD + 'v + v.sort(2, descending=True)[0]',
               HEAD + 'v + (v > v.roll(-1, 2)).to(v.dtype)',
               # by the length
               HEAD + 'v.cumsum(2) / x.shape[1]', HEAD + 'v * (x.shape[1] % 2 + 1)',
               HEAD + 'v * torch.arange(x.shape[1], 0, -1, dtype=x.dtype)[:, None]',
               HEAD + 'v * (2. if x.shape[1] == 13 else 1.)'],
    'alive': ['def setup(self): self.unused = nn.Parameter(torch.ones(3))',
              HEAD + 'past_max(v[..., None, None])[..., 0, 0]', HEAD + 'v * 0',
              'def forward(self, x): return torch.ones_like(x)',
              'def forward(self, x): return past_max(x[..., None, None])[..., 0, 0]',
              'def setup(self): self.shift = nn.Parameter(torch.zeros(self.heads, 1, 1))\n'
              'def matrix(self, q, k, x): return causal_softmax(q @ k.mT + self.shift)',
              'def setup(self): self.g = nn.Parameter(torch.ones(1))\n' + HEAD + 'v * (self.g > 0).to(v.dtype)',
              'def setup(self): self.g = nn.Linear(self.dim, self.dim)\n' + HEAD +
              'v + past_max(self.split(self.g(x))[..., None, None])[..., 0, 0]'],
    'gradient': [HEAD + 'v + ' + way for way in (
        'float(v.mean()) * v', 'math.exp(v.mean()) * v', 'v % 1e-3', 'v.to(torch.long)',
        'torch.linspace(v.mean(), v.mean(), 1)', 'v.view(torch.long).view(torch.float32)')],
    'budget': ['def setup(self):\n    self.a = nn.Linear(self.dim, 9 * self.dim)\n'
               '    self.b = nn.Linear(9 * self.dim, self.dim)\n'
               + HEAD + 'v + self.split(self.b(self.a(x)))'],
    'error': [
        'def mix(self, q, k, v, x):\n    w = self.project.weight\n    w *= 1.01\n    return v',
        'def matrix(self, q, k, x): return q @ k', 'def matrix(self, q): return q',
    'def matrix(self, q, k, x): return 1 / 0',
              'def matrix(self, q, k, x): return self.matrix(q, k, x)', 'def mix(self, q, k, v, x): pass',
              'def setup(self): self.a = nn.Linear(-1, 2)',
              HEAD + 'v if self.heads > 2 else q @ v',
              'def setup(self): self.me = self', HEAD + 'torch.zeros(3) @ v',
              'def matrix(self, q, k, x): return causal_softmax((q @ k.mT).float())'],
}


@pytest.mark.parametrize('kind', PLANTED)
def test_a_planted_bad_one_of_each_kind_is_found(kind):
    verdicts = {block: examine(mixer(block), TIER) for block in PLANTED[kind]}
    for block, verdict in verdicts.items():
        assert (verdict.status, verdict.kind) == ('invalid', kind), (block, verdict, failed(verdict))
        assert '\n' not in verdict.why and kind in verdict.why


@pytest.mark.parametrize('size', TIER.sizes)
def test_a_leak_in_batches_like_those_of_the_training_is_found_at_every_size(size):
    verdict = examine(mixer(f'def mix(self, q, k, v, x):\n    if x.shape[0] == {TIER.rows} and self.dim == {size.dim}: '
                            'v = v.roll(-1, 2)\n    return v.cumsum(2)'), TIER)
    assert verdict.kind == 'causal' and f'causal at dim {size.dim}: later tokens' in verdict.why


@pytest.mark.parametrize('position', [1, 2, 7, 8, 14, 15])
def test_a_leak_of_one_step_is_found_wherever_it_is(position):
    "x[t] seen at t - 1"
    block = ('def mix(self, q, k, v, x):\n'
             f'    here = (torch.arange(x.shape[1]) == {position - 1}).to(x.dtype)[:, None]\n'
             '    return v + here * v.roll(-1, 2)')
    assert failed(examine(mixer(block), TIER)) == ['causal']


@pytest.mark.parametrize('block', [
    'def mix(self, q, k, v, x):\n    ahead = v.roll(-1, 2)\n    return v.cumsum(2) + ahead - '
    'past_max(ahead[..., None, None])[..., 0, 0]',
    HEAD + 'v * (x.abs().amax((1, 2)) > 7).to(x.dtype)[:, None, None, None] + v'])
def test_what_looks_ahead_and_says_nothing_of_it_is_left_to_the_exam(block):
    "By its gradient alone, or at numbers that are not tried here; where it is asked, there is nothing ahead"
    assert examine(mixer(block), TIER).status == 'ok'


def test_what_goes_wrong_without_a_number_at_a_larger_size_is_not_forgotten(monkeypatch):
    real = validation._budget
    def fails(made, size, vocab):
        if size == TIER.sizes[1]: raise RuntimeError('on purpose')
        return real(made, size, vocab)
    monkeypatch.setattr(validation, '_budget', fails)
    program = mixer('def setup(self): self.g = nn.Parameter(torch.ones(1))\n' + HEAD + 'causal_softmax(q @ k.mT) @ v'
                    ' * self.g')
    assert (verdict := examine(program, TIER)).status == 'invalid'
    assert verdict.checks[-1].sentence.endswith('on purpose')
    monkeypatch.undo()
    assert examine(program, TIER).checks[-1].number > 0      # which is more than nothing


def test_a_mutation_that_changes_nothing_is_refused():
    parent = variant('coefficient_dynamics', 'softmax')
    clone = parent.replace('weights', 'w').replace('return w.sum', '\n        # the sum\n        return w.sum')
    assert examine(Program(clone), TIER, Program(parent)).kind == 'clone'
    assert validate(clone, tier=TIER, parent=parent).kind == 'clone'
    assert examine(Program(parent.replace('-.5', '-.25')), TIER, Program(parent)).status == 'ok'


def test_idle_projections_are_reported_and_tolerated():
    checks = examine(Program(STANDARD['matrix_mixers/toeplitz']), TIER).checks
    sentences = {check.name: check.sentence for check in checks}
    assert 'q and k are idle' in sentences['alive']


def test_examining_leaves_nothing_behind():
    torch.manual_seed(3)
    before, dtype = torch.get_rng_state(), torch.get_default_dtype()
    one = examine(Program(STANDARD['controls/mean']), TIER)
    assert torch.equal(before, torch.get_rng_state()) and torch.get_default_dtype() == dtype
    assert one == examine(Program(STANDARD['controls/mean']), TIER)       # to the bit


LIMITS = Limits(seconds=60, processor_seconds=40)


def test_text_goes_in_and_a_verdict_comes_out():
    assert validate(STANDARD['matrix_mixers/cauchy'], tier=TIER, limits=LIMITS) == examine(
        Program(STANDARD['matrix_mixers/cauchy']), TIER)
    assert validate('import os', tier=TIER).status == 'refused'
    kept = mixer('def setup(self): self.seen_ = [0.]\ndef mix(self, q, k, v, x):\n    y = v + self.seen_[-1]\n'
                 '    self.seen_.append(y.mean())\n    return y')
    assert validate(kept.source, tier=TIER, limits=LIMITS) == examine(kept, TIER)       # tensors are shown inside, too
    verdict = validate(mixer(HEAD + 'v.cumsum(2) / x.shape[1]').source, tier=TIER, limits=LIMITS)
    assert (verdict.status, failed(verdict)) == ('invalid', ['causal'])


@pytest.mark.parametrize('block, status', [
    # Of each status, one every day.
    pytest.param(HEAD + 'v * sum(i * j for i in range(1000000) for j in range(1000000))', 'timeout',
                 marks=pytest.mark.slow),
    ('def setup(self):\n    for i in range(1000000):\n        for j in range(1000000): pass', 'timeout'),
    (HEAD + 'v + torch.zeros(1000000, 1000000).sum()', 'memory'),
    pytest.param(HEAD + 'v * len([0] * 1000000 * 1000000)', 'memory', marks=pytest.mark.slow),
    ('def matrix(self, q, k, x): return self.matrix(q, k, x)', 'invalid'),
    pytest.param(HEAD + 'v * 9**9**9', 'timeout', marks=pytest.mark.slow)])
def test_what_takes_too_much_is_ended_and_named(block, status):
    limits = Limits(seconds=3) if status == 'timeout' else LIMITS
    assert validate(mixer(block).source, tier=TIER, limits=limits).status == status


@pytest.mark.parametrize('answer', [
    None, 'ok', [], {}, {'status': 'best'}, {'status': 'ok', 'score': 1}, {'status': 'ok', 'checks': [1]},
    {'status': 'ok', 'why': 'x' * 1000},
    {'status': 'ok', 'checks': [{'name': 'x', 'holds': 1, 'sentence': '', 'number': 0.}]},
    {'status': 'ok', 'checks': [{'name': 'x', 'holds': False, 'sentence': 'y', 'number': 0.}]},
    {'status': 'ok', 'checks': []}])
def test_the_result_of_the_process_is_not_trusted(monkeypatch, answer):
    monkeypatch.setattr(validation, 'contain', lambda *_: Outcome('ok', answer))
    assert validate(STANDARD['controls/mean'], tier=TIER).status == 'crashed'


def test_a_verdict_can_be_shown():
    verdict = Verdict(status='invalid', kind='x', why='x: y', checks=({'name': 'x', 'holds': False, 'sentence': 'y',
        'number': math.pi},))
    assert '| x | **no** | 3.1 | y |' in verdict._repr_markdown_()
    assert repr(verdict) == str(verdict) == 'Verdict(invalid, x: y)'
