"""The reader of untrusted programs is attacked: what gets in, what is refused as what, and what a digest may hide."""
import time
import warnings

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from evolora.host.mechanisms.frameworks import CONTROLS, FRAMEWORKS, VARIANTS, control, variant
from evolora.host.mechanisms.program_source import DEEPEST, LONGEST, Program, Refused, build, read_program, rules
from hostile_candidates import CANDIDATES

HEAD = 'def readout(self, s): return '
BODY = 'def readout(self, s):\n    '


def source_of(block, framework='coefficient_dynamics'): return FRAMEWORKS[framework].program(block)


def kind_of(source):
    "'read', or the kind of the refusal"
    try: Program(source).digest
    except Refused as error:
        assert '\n' not in str(error) and len(str(error)) < 400
        return error.kind
    return 'read'


REFUSED = {
    'grammar': [
        HEAD + '(y := s)', HEAD + 'f"{s.__class__}"', HEAD + '{}', HEAD + '{1: s}', HEAD + '{s}', HEAD + '[*{1}]',
        BODY + 'yield s', BODY + 'raise s', BODY + 'import os',
        BODY + 'with s: pass', BODY + 'try: pass\n    finally: pass', BODY + 'while s: pass', BODY + 'del s',
        BODY + 'global readout', BODY + 'def f():\n        nonlocal s\n    return s', BODY + 'class A: pass',
        BODY + 'match s:\n        case _: return s', HEAD + 'torch.zeros(**s)', HEAD + 'torch.sum(s, __class__=1)',
        HEAD + 'torch.add(s, 1, out=s)', '@torch.exp\ndef readout(self, s): return s',
        HEAD + 'lambda: ' * (DEEPEST + 1) + 's', HEAD + 'not ' * 300 + 's', HEAD + 's' + '[0]' * 300,
        HEAD + '+'.join(['s'] * (2 * DEEPEST))],
    'name': [
        # A call that may never be made unlocks nothing.
        *(f'def setup(self):\n    if self.dim < 0: self.register_buffer("{name}", torch.zeros(1))\n' + HEAD + 's'
          for name in ('add_module', 'train', 'apply', 'compile', 'register_forward_hook', '_parameters', 'training',
                       'register_state_dict_post_hook', 'forward', 'project', 'not a name', '__dict__', 'dim')),
        'def setup(self): self.register_buffer("c" + "d", torch.ones(1))',
        'def setup(self): self.register_buffer(self.dim, torch.ones(1))',
        'def setup(self): self.register_buffer(name="c", tensor=torch.ones(1))',
        'def setup(self): self.register_buffer()',
        HEAD + 'open("x")', HEAD + '__import__("os")', HEAD + '__builtins__', HEAD + '__name__',
        HEAD + 'getattr(s, "x")',
        HEAD + 'eval("s")', HEAD + 'type(s)', HEAD + 'vars()', HEAD + 'print(s)', HEAD + 'object', HEAD + 'Mixer',
        HEAD + 'ﬁ', HEAD + 'ｏpen("x")', 'def __init__(self): pass', 'def __getattr__(self, s): return s',
        'def parameters(self): return []', 'def train(self, mode=True): return self', 'def apply(self, f): return f',
        'def state_dict(self): return 1', 'def dim(self): return 1', 'def project(self, x): return x',
        'dim = 3\n' + HEAD + 's', 'forward = 1\n' + HEAD + 's', 'training = 1\n' + HEAD + 's',
        '__slots__ = 3\n' + HEAD + 's',
        'call_super_init = True\n' + HEAD + 's', 'torch = 1\n' + HEAD + 's', BODY + 'torch = s',
        'def readout(self, nn): return nn.load', BODY + 'self = s\n    return s', HEAD + '(lambda self: self)(s)',
        BODY + 'def setup(self): self.x = 1\n    setup(self)\n    return s', HEAD + '[s for self in [s]]',
        'def setup(self):\n    self = self.project\n    self.weight = 1', HEAD + '(lambda *, self: self)(self=s)',
        'def setup(self):\n    for self in [self.output]: self.bias2 = None'],
    'attribute': [
        *(HEAD + f's.{name}()' for name in ('detach', 'clone', 'requires_grad_', 'retain_grad', 'item', 'floor',
                                            'round', 'ceil', 'long', 'int', 'half')),
        HEAD + 'torch.no_grad()', HEAD + 'torch.autograd', HEAD + 's.requires_grad', HEAD + 'torch.floor(s)',
        HEAD + 'torch.remainder(s, 1)', HEAD + 'torch.fmod(s, 1)', HEAD + 'nn.ParameterList([s])',
        HEAD + 's.__class__', HEAD + 's.numpy()', HEAD + 's.data', HEAD + 's.grad', HEAD + 's.grad_fn',
        HEAD + 's.tolist()',
        HEAD + 's.register_hook(s)', HEAD + 's.ｎumpy()', HEAD + 's._﹍class__', HEAD + '"{0.__class__}".format(s)',
        HEAD + 'torch.load("x")', HEAD + 'torch.save(s, "x")', HEAD + 'torch.ops', HEAD + 'torch.hub',
        HEAD + 'torch.os',
        HEAD + 'torch.utils.cpp_extension', HEAD + 'torch._C', HEAD + 'torch.randn(1)', HEAD + 'torch.manual_seed(1)',
        HEAD + 'torch.empty(9)', HEAD + 'torch.from_file("x")', HEAD + 'torch.compile(s)',
        HEAD + 'torch.set_num_threads(9)',
        HEAD + 'F.dropout(s)', HEAD + 'nn.Module', HEAD + 'nn.modules', HEAD + 'nn.Dropout()',
        HEAD + 'math.factorial(9)',
        HEAD + 'super().__setattr__("x", s)', HEAD + 'super().apply(len)', HEAD + 'self.__dict__',
        HEAD + 'max([s], key=torch.load)', BODY + 't = torch\n    return t.load("x")', HEAD + '(torch).load("x")',
        HEAD + '(torch if s else nn).hub', HEAD + '[torch][0].save(s, "x")', HEAD + 'decay.__globals__',
        HEAD + '(1).real',
        HEAD + 'self.readout.__func__', HEAD + 'self.project.parameters()', HEAD + 'self.training',
        HEAD + 'self.zero_grad()',
        *(f'def readout(self, {name}): return self.{name}()' for name in (
            'train', 'eval', 'parameters', 'state_dict', 'load_state_dict', 'apply', 'requires_grad_', 'compile',
            'cuda',
            'register_forward_hook', 'modules', 'zero_grad', 'to_empty', 'add_module', 'get_submodule',
            'share_memory')),
        HEAD + '(s for s in s).gi_frame', HEAD + '[self.train for train in [s]]'],
    'state': [
        BODY + 'self.last = s', BODY + 'self.last += s', BODY + 'torch.pi = 4', BODY + 'self.project.bias = None',
        BODY + 'for self.x in [1]: pass', HEAD + '[0 for self.x in [1]]', BODY + 'a, self.x = s, s',
        BODY + 'self.x: int = 1',
        BODY + '[self.x, *self.y] = s', BODY + 'nn.Linear.forward = len',
        'def setup(self): self.project = nn.Identity()',
        'def setup(self): self.training = 1', 'def setup(self): self.parameters = lambda: []',
        'def setup(self): self.named_parameters = lambda: []', 'def setup(self): self.register_parameter = len',
        'def setup(self): self.__class__ = len', 'def setup(self): self._parameters = []',
        'def setup(self): self.forward = len',
        'def setup(self): self.project.bias = None', 'def setup(self): math.pi = 3',
        'def setup(self): self.T_destination = 1',
        'def setup(self):\n    for x in [self]: x.forward = 1'],
    'class': [
        'pass', 'x = [1, 2]', 'def readout(s): return s', 'def readout(*self): return self', 'if 1: pass', 'torch.exp',
        'async def readout(self, s): return s', 'class A: pass', 'def readout(self, /, s): return s', '"%s" % 1',
        'x = 9**9**9\n' + HEAD + 's', 'def readout(self, s, n=999999**999999): return s',
        'def readout(self, s, z=[]): return s', 'def readout(self, s, *, z=[]): return s',
        'def readout(self, s, z=sum(range(1000000))): return s', 'def readout(self, s, z=torch.zeros(9)): return s',
        'def readout(self, s, f=lambda: 1): return s', 'x: int = 1', 'x = 1\nx = 2', HEAD + 's\n' + HEAD + '-s',
        'readout = 1\n' + HEAD + 's'],
    'constant': [HEAD + '10000000', HEAD + '-10000000', HEAD + '0x' + 'f' * 5000, HEAD + '1j', HEAD + 'b"x"',
                 'x = 2000000\n' + HEAD + 's', 'def readout(self, s, n=2000000): return s', HEAD + '"x" * 2000000',
                 # Text formats, and what formats can find out how it is being watched.
                 BODY + 'return "grad" in "%s" % s', 'f = "%s"\n' + HEAD + 'self.f % s',
                 'def readout(self, s, f="%s"): return f % s', HEAD + '["a"]', HEAD + 's if "a" == "b" else -s',
                 HEAD + 'F.pad(s, (0, 0), value="a")', HEAD + 'torch.einsum("i,i->i", "%s" % s, s)',
                 HEAD + 'F.gelu(s, approximate=["tanh"])', HEAD + 'torch.exp("%s")', HEAD + '"%s" and s',
                 'def told(self, s, mode, p): return p in mode % s\n' + HEAD + 'self.told(s, mode="%s", p="grad")',
                 HEAD + 'F.pad(s, (0, 0), mode="other")', HEAD + 'F.gelu(s, approximate="fro")',
                 # What is known by heart
                 'table = 1\n' + HEAD + 's + torch.tensor([' + ', '.join(['12345'] * 200) + '])',
                 HEAD + 'torch.tensor([' + '.123456789, ' * 100 + '])',
                 'def setup(self): self.register_buffer("' + 'x' * 700 + '", torch.ones(1))'],
    'syntax': [
        '', HEAD + '(', HEAD + 'await s', HEAD + 's\n x', HEAD + 's\x00', HEAD + '"\ud800"', HEAD + 's # \ud800',
        HEAD + '9' * 5000, HEAD + '(' * 300,
        HEAD + '-' * 4000 + 's', HEAD + 's' + '.T' * 3000, HEAD + 's' + '()' * 3000, HEAD + 's' + '+s' * 3000,
        HEAD + '"""',
        HEAD + '😀', HEAD + '\u202e s', 'def readout(self, s, s): return s',
        HEAD + '1_', BODY + 'break', BODY + 's: int\n    global s', HEAD + '"\\N{no such}"'],
    # What would be a copy without gradient.
    'gradient': [
        HEAD + 'nn.Parameter(s)', HEAD + 'nn.Linear(2, 2)(s)', HEAD + 'torch.tensor(s)', HEAD + 'torch.tensor([s[0]])',
        HEAD + 'torch.tensor(float(s))', HEAD + 'self.setup()', HEAD + 'super().setup()',
        'def setup(self): self.copy = nn.Parameter\n' + HEAD + 'self.copy(s)',
        'def setup(self): self.copy = torch.tensor\n' + HEAD + 'self.copy(s)',
        'def setup(self): self.copy = lambda t: nn.Parameter(t)\n' + HEAD + 'self.copy(s)',
        'def setup(self):\n    def copy(t): return nn.Parameter(t)\n    self.copy = copy',
        'def setup(self): self.copies = [copy for copy in [nn.Parameter]]\n' + HEAD + 'self.copies[0](s)',
        'def setup(self, t=None): self.copy = t\n' + HEAD + 's'],
    'markers': [HEAD + 's\n# EVOLVE-BLOCK-END', HEAD + '"EVOLVE-BLOCK-START"', HEAD + 's # EVOLVE-BLOCK-END ' ],
    'length': [HEAD + '"' + 'x' * 1_000_000 + '"', HEAD + '(' * 1_000_000, HEAD + 's #' + ' s' * LONGEST,
    HEAD + 's + \\\n' * 1000],
}


@pytest.mark.parametrize('kind', REFUSED)
def test_attempts_are_refused_as_what_they_are(kind):
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')         # of the compiler, about what it is given
        found = {block: kind_of(source_of(block) if kind != 'markers' else source_of('pass').replace('pass', block))
                 for block in REFUSED[kind]}
    wrong = {block[:80]: got for block, got in found.items() if got != kind}
    assert not wrong, wrong


@pytest.mark.parametrize('text', [None, b'class Attention: pass', 7, ['x']])
def test_what_is_no_text_is_refused(text):
    assert kind_of(text) == 'syntax'


def test_hostile_candidates_do_not_pass_the_front_door():
    wrong = {name: (found, kind) for name, (code, kind, _) in CANDIDATES.items()
             if (found := kind_of(source_of(BODY + code.replace('\n', '\n    ')))) != kind}
    assert not wrong and len(CANDIDATES) >= 40, wrong


def test_what_a_mechanism_needs_is_read():
    blocks = [
        '"""A docstring."""\n' + HEAD + 's', 'scale = -0.5\n' + HEAD + 's * self.scale',
        HEAD + 'F.gelu(s, approximate="tanh")',
        BODY + 'a = torch.einsum("...i,...i->...i", s, s)\n    return a',
        HEAD + 's[..., None][..., 0]', BODY + 'assert s.ndim > 1, "a matrix"\n    return s',
        HEAD + 's * torch.tensor([[1., -2.]]).sum()',
        'def readout(self, s, power: float = -2.) -> float: return s**power', HEAD + 'sum(x for x in [s, s])',
        BODY + 'def twice(x): return 2 * x\n    return twice(s)', BODY + 'a, *b = s, s, s\n    return a + b[0]',
        HEAD + 'super().readout(s)',
        'def setup(self): self.gain = nn.Parameter(torch.ones(1))\n' + HEAD + 's * self.gain',
        'def setup(self): self.register_buffer("c", torch.ones(1))\n' + HEAD + 's * self.c',
        'def helper(self, s): return s\n' + HEAD + 'self.helper(s)',
        BODY + 'for _ in range(3): s = s / 2\n    return s',
        HEAD + 's\r\n', HEAD + '\\\n    s', '# type: ignore\n' + HEAD + 's', HEAD + 's if self.dim > 3 else -s',
        HEAD + '+'.join(['s'] * 40)]
    for block in blocks:
        assert build(Program(source_of(block)))(8, 2)(torch.randn(1, 4, 8)).shape == (1, 4, 8), block
    for name in FRAMEWORKS:
        for kind in VARIANTS[name]: build(Program(variant(name, kind)))(8, 2)
    for name in CONTROLS: build(Program(control(name)))(8, 2)


def test_the_frame_cannot_be_changed():
    good = variant('matrix_mixers', 'softmax')
    for bad in [good.replace('import math', 'import math, os'), 'import os\n' + good, good + 'import os\n',
        '\ufeff' + good,
                good.replace('\n', '\r\n'), good.replace('MatrixMixer', 'object'), good[:-1], good.replace('    #',
                '  #', 1)]:
        assert kind_of(bad) in {'outside', 'markers'}
    assert kind_of(good.replace('        def', 'def').replace('    def', 'def')) == 'syntax'
    assert kind_of(good.replace('    def matrix', '    x = 1\nclass B:\n    def matrix')) == 'class'
    assert kind_of(good.replace('    def matrix', '    x = 1\nimport os\nclass Attention:\n    def matrix')) == 'class'


def test_reading_runs_nothing_and_building_computes_nothing():
    began = time.process_time()
    for block in [HEAD + '9**9**9**9', HEAD + '(1,) * 1000000 * 1000000',
        HEAD + '1 << 1000000 << 1000000',
                  'def readout(self, s: torch.zeros(1000000, 1000000)): return s',
                  HEAD + 'sum(range(1000000)) ** 1000000',
                  'def readout(self, s) -> sum(x for x in range(1000000) for y in range(1000000)): return s']:
        build(Program(source_of(block)))
    assert time.process_time() - began < 60     # any of them would take hours


def test_a_program_has_no_builtins_but_those_on_the_list():
    made = build(Program(source_of(HEAD + 's')))
    found = made.readout.__globals__['__builtins__']
    assert {name for name in found if not name.startswith('_')} == set(rules()['builtins'])
    assert not {'open', 'getattr', '__loader__'} & set(found)


def test_torch_may_import_while_a_program_calls_it():
    # PyTorch looks for __import__ among the builtins of its caller.
    mixer = build(Program(source_of(HEAD + 'torch.ones_like(s) * s')))(8, 2)
    with FlopCounterMode(display=False) as counter: mixer(torch.ones(1, 4, 8))
    assert counter.get_total_flops() > 0


def same(one, other): return Program(source_of(one)).digest == Program(source_of(other)).digest


def test_clones_have_one_digest():
    assert same(HEAD + 'sum(x for x in [s, s])', HEAD + 'sum(item for item in [s, s])')
    assert same(HEAD + '[w * 2 for w in [s]][0]', 'def readout(self, t): return [v * 2 for v in [t]][0] # other')
    assert same(BODY + 'a = s\n    return a', BODY + '"doc"\n    b = (s)\n    return b')
    assert same('def a(self): return 1\ndef b(self): return 2', 'def b(self): return 2\n\n\ndef a(self): return 1')


def test_one_digest_never_stands_for_two_programs():
    "A cache by digest would hand one the score of the other"
    pairs = [
        # arguments given by name
        ('def h(self, a, b): return a - b\n' + HEAD + 'self.h(a=s, b=1)',
        'def h(self, b, a): return b - a\n' + HEAD + 'self.h(a=s, b=1)'),
        (BODY + 'def f(a, b): return a - b\n    return f(a=s, b=1)',
        BODY + 'def f(b, a): return b - a\n    return f(a=s, b=1)'),
        # an inner function and a variable of one name
        (BODY + 'f = 3.\n    def f(): return 2\n    return f', BODY + 'g = 3.\n    def f(): return 2\n    return g'),
        # a name that looks like a number that was given
        (BODY + 'def h(): return v2\n    v1 = s\n    v2 = -s\n    return h()',
        BODY + 'def h(): return v1\n    v1 = s\n    v2 = -s\n    return h()'),
        (HEAD + '[v1 for v1 in [s]][0]', 'def other(self, v1): return v1\n' + HEAD + '[v1 for q in [s]][0]'),
        # a built-in that is bound in an inner scope only
        (HEAD + '[max for max in [s]][0] * max(2, 3)', HEAD + '[min for min in [s]][0] * min(2, 3)'),
        (HEAD + 's * 1', HEAD + 's * 1.'), (HEAD + 's * 1', HEAD + 's * True'), (HEAD + 's - 1', HEAD + 's + 1'),
        (HEAD + 's * .1', HEAD + 's * .10000000000000002'), (HEAD + 's[:1]', HEAD + 's[1:]'), (HEAD + 's * 1e400',
        HEAD + 's * 1e300')]
    assert [pair for pair in pairs if same(*pair)] == []
    assert Program(variant('matrix_mixers', 'softmax')).digest != Program(variant('test_time_regression',
        'softmax')).digest


def test_whether_a_program_is_read_does_not_depend_on_the_caller():
    def below(depth, source): return below(depth - 1, source) if depth else kind_of(source)
    for terms in (20, 60, DEEPEST - 8, DEEPEST, 150):
        source = source_of(HEAD + '+'.join(['s'] * terms))
        assert kind_of(source) == below(300, source)


def test_a_file_that_is_no_text_or_too_long(tmp_path):
    path = tmp_path / 'x.py'
    path.write_bytes(b'\xff\xfe\x00')
    with pytest.raises(Refused, match='UTF-8'): read_program(path)
    path.write_bytes(b'x' * 5 * LONGEST)
    with pytest.raises(ValueError, match='expected at most'): read_program(path)
    with pytest.raises(ValueError, match='got a folder'): read_program(tmp_path)
    path.write_bytes(variant('matrix_mixers', 'linear').replace('\n', '\r\n').encode())         # of another system
    assert read_program(path) == read_program('matrix_mixers/linear')
