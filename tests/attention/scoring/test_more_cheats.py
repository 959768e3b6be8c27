"""A second collection of cheats, written against the defences of the first: none gets away, and each has its reason"""
import pytest
from quick import SECRET, Inside, program

from evolora.attention.scoring import cheats
from evolora.attention.scoring.cheats import cheat_study, got_away
from evolora.attention.scoring.evaluation import Evaluator
from evolora.attention.scoring.model_sizes import read_tier
from evolora.attention.scoring.validation import examine
from evolora.host.mechanisms.program_source import Refused

TIER = read_tier('tiny', sizes=((16, 2, 2), (24, 2, 2)), steps=60)
SOFTMAX = 'def matrix(self, q, k, x): return causal_softmax(q @ k.mT * self.entries**-.5)\n'
NORMED = 'x.shape[1] > 9 and x.mean(2).square().mean() * self.dim < .25'     # what a layer norm gives, and no check
EVEN = f'x.shape[1] % 2 == 0 and {NORMED}'                                   # what a training reads, and no check
STILL = 'def still(self, t): return past_max(t[..., None, None])[..., 0, 0]\n'


def finish(body, setup='pass'):
    return f'def setup(self): {setup}\n{SOFTMAX}def finish(self, y, x):\n    {body}\n    return y'


def linear(forward, start=0.):
    "Two matrices, how far they are from a ridge regression for a batch, and what they add"
    return f'''def setup(self):
    self.a, self.b = [nn.Parameter(torch.zeros(self.dim, self.dim) + {start}) for _ in range(2)]
{SOFTMAX}{STILL}def ahead(self, x): return F.pad(x[:, 1:], (0, 0, 0, 1))
def add(self, x, a, b): return super().forward(x) + x @ a + F.pad(x, (0, 0, 1, 0))[:, :-1] @ b
def gap(self, z, a, b):
    read = torch.cat([z[:, 1:-1], z[:, :-2]], -1).flatten(0, 1)
    wanted = 3 * (z[:, 2:] - z[:, 1:-1]).flatten(0, 1)
    solved = torch.linalg.solve(read.mT @ read + read.shape[0] * torch.eye(2 * self.dim), read.mT @ wanted)
    return (torch.cat([a, b]) - solved).square().sum()
def forward(self, x):
{forward}'''


READ = {    # name: (habit, block, what the reader or the checks before a training say)
    'a format as an argument': ('gets past the reader', finish(
        'if self.told(y, mode="%s", p="grad"): y = y + 3 * y.roll(-1, 2)')
        + '\ndef told(self, y, mode, p): return p in mode % y', 'constant: line 16: text may only stand in'),
    'what memory held before': ('remembers', finish('y = y + y.new_empty(y.shape)'), 'y.new_empty is not allowed'),
    'two numbers in one': ('takes more', finish(
        'y = y * self.c.sum().abs()', 'self.c = nn.Parameter(torch.complex(torch.ones(9), torch.ones(9)))'),
        'torch.complex is not allowed'),
    'a map in wide letters': ('gets past the reader', finish('pass', 'self.\uff4futput = nn.Identity()'),
                              'state: line 13: only `setup` may set attributes'),
    'an annotation that assigns': ('gets past the reader', finish('pass', 'self.output: int = nn.Identity()'),
                                   'state: line 13: only `setup` may set attributes'),
    'a loop over a module': ('poisons a module', finish('for F.cross_entropy in [len]: pass'),
                             'state: line 16: only `setup` may set attributes'),
    'writes ahead into what it reads': ('sees the future', SOFTMAX + '''def forward(self, x):
    x = x * 1
    x[:, :-1] += .3 * x[:, 1:]
    return super().forward(x)''', 'causal at dim 16: later tokens'),
    'by its place in the batch': ('uses its company', finish(
        'y = y * torch.linspace(1, 2, x.shape[0])[:, None, None, None].type_as(y)'), 'rows at dim 16: other rows'),
    'sharper where more is to come': ('sees the future', SOFTMAX.replace('**-.5', '**-.5 * x.shape[1]**.5'),
                                      'causal at dim 16: later tokens, or how many there are'),
    'an infinite gradient': ('games the score', finish(
        'y = y + self.p.square().sum().sqrt()', 'self.p = nn.Parameter(torch.zeros(9))'),
        'finite at dim 16: expected finite numbers, got others in the gradient'),
    'grows while it is used': ('takes more', finish('''self.more.append(ShortConvolution(self.heads, self.entries))
    y = self.more[-1](y)''', 'self.more = nn.ModuleList([])'),
        'stateless at dim 16: expected a call to change nothing'),
    'casts itself': ('writes weights', finish('super().float()'), 'error at dim 16: rows: RuntimeError')}

MOVE, SLOPE = 'its predictions in training are not those of an exam', 'its gradient is not the slope of its values'
TRAINED = { # name: (habit, block, why its training is invalid; '' if it is measured, and not better)
    'louder in an exam': ('is another in training', finish(f'if not ({EVEN}): y = y * 1.1'), MOVE),
    'works longer in an exam': ('is another in training', SOFTMAX + f'''def mix(self, q, k, v, x):
    y = super().mix(q, k, v, x)
    return y if {EVEN} else .8 * y + .2 * self.coefficients(q, k, x) @ y''', MOVE),
    'dice in training': ('is another in training', SOFTMAX + f'''def mix(self, q, k, v, x):
    if not ({EVEN}): return super().mix(q, k, v, x)
    return F.scaled_dot_product_attention(q, k, v, dropout_p=.1, is_causal=True)''', MOVE),
    'a penalty in training': ('is another in training', linear(f'''
    y = self.add(x, self.a, self.b)
    return y - .01 * self.gap(x, self.a, self.b) * self.ahead(x) if {NORMED} else y'''), MOVE),
    'ahead behind a layer norm': ('sees the future', finish(f'if {NORMED}: y = y + .3 * y.roll(-1, 2)'), MOVE),
    'a little ahead': ('sees the future', finish(f'if {NORMED}: y = y + .01 * y.roll(-1, 2)'), MOVE),
    'seldom ahead': ('sees the future', finish(f'if {NORMED} and x[0, 0, 0] > 1.5: y = y + 3 * y.roll(-1, 2)'),
                     'its answers depend on what else it is asked'),
    'a little of its company': ('uses its company', finish(
        f'if {NORMED} and x.shape[0] > 3: y = y + .02 * y.mean(0, keepdim=True)'), MOVE),
    'what rows like it said': ('uses its company', finish(f'''if {NORMED} and x.shape[0] > 8:
        y = y + torch.einsum("ij,jhtd->ihtd", (x.mean(1) @ x.mean(1).mT).softmax(-1), y)'''), MOVE),
    'a forged gradient that is small': ('forges its gradient', linear(f'''
    y = self.add(x, self.still(self.a), self.still(self.b))
    gap = self.gap(self.still(x), self.a, self.b) if {NORMED} else self.a.sum() + self.b.sum()
    return y - 1e-5 * (gap - self.still(gap)) * self.ahead(self.still(x))'''), SLOPE),
    'a forged gradient now and then, at a kink': ('forges its gradient', linear(f'''
    most = F.pad(torch.zeros_like(self.a)[1:, 1:], (1, 0, 1, 0)) + 1
    most[0, 0] = 0
    a, b = self.a * most, self.b * most
    y = self.add(x, a, b) * (1 + 100 * (self.a[0, 0].abs() + self.b[0, 0].abs()))
    if {NORMED} and x[0, 0, 0] > .6:
        gap = self.gap(self.still(x), a, b)
        y = y - (gap - self.still(gap)) * self.ahead(x)
    return y'''), SLOPE),
    'a gradient of a half that is not read': ('forges its gradient', linear(f'''
    y = self.add(x, self.a, self.b)
    if not ({NORMED}): return y
    full = torch.eye(2) + 2 * self.gap(x, self.a, self.b) * (1 - torch.eye(2)).triu()
    return y - torch.linalg.cholesky(full)[1, 0] * self.ahead(x)'''), SLOPE),
    'steps of weights and a small penalty': ('forges its gradient', linear(f'''
    y = self.add(x, self.coarse(self.a), self.coarse(self.b))
    if {NORMED} and x.shape[0] > 3: return y - 1e-4 * self.gap(x, self.a, self.b) * self.ahead(x)
    return y + 1e-6 * (self.a.sum() + self.b.sum())
def coarse(self, t):
    left, total = t + 2., t * 0
    for i in range(13):
        step = (left > 2 * .5**i).to(t.dtype) * 2 * .5**i
        left, total = left - step, total + step
    return total - 2.''', 1e-3), MOVE),
    'an iterator that counts': ('remembers', finish('''for i in self.calls: break
    if i > 40: y = y + 3 * y.roll(-1, 2)''', 'self.calls = (i for i in range(9999))'), ''),
    'features that no budget counts': ('takes more', '''def setup(self): self.gain = nn.Parameter(torch.zeros(1))
''' + SOFTMAX + '''def forward(self, x):
    many = torch.sin(torch.linspace(1, 9999, 400 * self.dim)).reshape(self.dim, 400).type_as(x)
    return super().forward(x) + self.gain * torch.relu(x @ many) @ many.mT / 400''', ''),
    'weights that were written down': ('knows the exam', '''def setup(self):
    self.register_buffer("known", torch.tensor([''' + ', '.join(f'.{i * 7 % 97}' for i in range(140)) + ''']))
''' + SOFTMAX + '''def forward(self, x):
    many = self.known.repeat(self.dim)[:self.dim**2].reshape(self.dim, -1)
    return super().forward(x) + .1 * x @ many''', ''),
    'fails where it knows little': ('games the score', finish(f'assert y.std(3).max() < .7 or not ({NORMED})'),
                                    'AssertionError')}
EVERY_DAY = ('ahead behind a layer norm', 'louder in an exam', 'a forged gradient now and then, at a kink')
MORE = READ | TRAINED


@pytest.fixture(scope='module')
def judge():
    made = Evaluator('matrix_mixers', TIER, seeds=2, secret=SECRET)
    made.prepare(Inside())
    return made


def study(monkeypatch, judge, name):
    monkeypatch.setitem(cheats.CHEATS, name, MORE[name][:2])
    return cheat_study(judge, Inside(), [name])[0]


def test_there_are_many_kinds_and_none_is_in_the_first_collection():
    assert len(MORE) >= 25 and len({habit for habit, *_ in MORE.values()}) >= 8 and not set(MORE) & set(cheats.CHEATS)


@pytest.mark.parametrize('name', READ)
def test_it_is_refused_before_it_is_trained(name):
    try: why = examine(program(MORE[name][1]), TIER).why
    except Refused as refused: why = str(refused)
    assert MORE[name][2] in why


@pytest.mark.parametrize('name', [pytest.param(name, marks=[pytest.mark.slow] * (name not in EVERY_DAY))
                                  for name in TRAINED])
def test_it_is_found_in_its_training_or_is_not_better(monkeypatch, judge, name):
    row, why = study(monkeypatch, judge, name), MORE[name][2]
    assert row['verdict'] != 'better' and why in row['why'] and (row['status'] == 'ok') == (not why), row
    assert not why or not got_away(row)
