"Distances of text and behaviour: nothing for clones, something for another kernel, what is refused untrained."
from itertools import permutations

import pytest
import torch
from torch.func import jacrev

from evolora.attention.scoring.diversity import (CELLS, ast_distance, behaviour_distance, cell_of, describe, influence,
                                                 novel)
from evolora.host.mechanisms.frameworks import FRAMEWORKS, VARIANTS, control, variant
from evolora.host.mechanisms.mixer import Mixer
from evolora.host.mechanisms.program_source import Program, build

SOFTMAX = Program(variant('coefficient_dynamics'))
CLONE = Program(SOFTMAX.source.replace('weights', 'w'))
KERNEL = Program(SOFTMAX.source.replace('torch.exp(scores - past_max(scores))', 'F.softplus(scores)'))
PROGRAMS = [Program(variant(framework, name)) for framework in FRAMEWORKS for name in VARIANTS[framework]]
SMALL = dict(dim=8, time=10, draws=1)


def test_a_clone_is_at_no_distance_and_a_kernel_at_some():
    assert ast_distance(SOFTMAX, CLONE) == 0 < ast_distance(SOFTMAX, KERNEL) < 1
    made = Program(variant('coefficient_dynamics', 'scalar'))
    renamed = Program(made.source.replace('self.rate', 'self.speed'))
    assert made.digest != renamed.digest and ast_distance(made, renamed) == 0
    here, clone, kernel = (describe(build(p), **SMALL) for p in (SOFTMAX, CLONE, KERNEL))
    assert behaviour_distance(here, clone) == 0 < behaviour_distance(here, kernel) < 1


def test_the_distance_of_trees_is_a_metric():
    near = {(a.digest, b.digest): ast_distance(a, b) for a in PROGRAMS for b in PROGRAMS}
    digests = [p.digest for p in PROGRAMS]
    for a, b, c in permutations(digests, 3):
        assert near[a, b] == near[b, a] and near[a, c] <= near[a, b] + near[b, c] + 1e-12
    assert all((far == 0) == (a == b) and far <= 1 for (a, b), far in near.items())


@pytest.mark.parametrize('program', PROGRAMS, ids=lambda p: f'{p.framework}-{p.digest[:4]}')
def test_influence_is_the_jacobian(program):
    torch.manual_seed(0)
    mixer, x = build(program)(4, 2).double(), torch.randn(2, 6, 4, dtype=torch.float64)
    found = influence(mixer, x)
    for text in range(2):
        jacobian = jacrev(lambda one: mixer(one[None])[0])(x[text])        # (time, dim, time, dim)
        torch.testing.assert_close(found[text], jacobian.square().sum((1, 3)).sqrt())
    assert found.triu(1).abs().max() == 0


class _Shift(Mixer):
    "Each position is the one before it"
    def forward(self, x): return torch.cat([torch.zeros_like(x[:, :1]), x[:, :-1]], 1)


class _Same(Mixer):
    def forward(self, x): return x


class _Mean(Mixer):
    def forward(self, x): return x.cumsum(1) / torch.arange(1, x.shape[1] + 1)[:, None]


class _Nothing(Mixer):
    def forward(self, x): return torch.zeros_like(x)


def test_descriptors_of_what_is_known():
    same, mean, shift, nothing = (describe(kind, **SMALL) for kind in (_Same, _Mean, _Shift, _Nothing))
    assert same == pytest.approx({'entropy': 0, 'lookback': 0, 'rank': 1}, abs=1e-9)
    assert mean['entropy'] == pytest.approx(1) and mean['lookback'] == pytest.approx(.5) and mean['rank'] < 1
    assert shift['entropy'] == pytest.approx(0) and shift['rank'] == pytest.approx(.9)
    assert shift['lookback'] == pytest.approx(sum(1 / i for i in range(1, 10)) / 9)
    assert nothing == {'entropy': 0, 'lookback': 0, 'rank': 0}


def test_descriptions_are_repeated_and_leave_the_global_generator_alone():
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    one = describe(build(KERNEL), **SMALL)
    assert torch.equal(before, torch.random.get_rng_state())
    assert describe(build(KERNEL), **SMALL) == one != describe(build(KERNEL), seed=1, **SMALL)


def test_one_mechanism_in_three_frameworks_is_one_point():
    for name in ('softmax', 'linear'):
        points = [describe(build(Program(variant(framework, name))), **SMALL) for framework in FRAMEWORKS]
        assert max(behaviour_distance(points[0], other) for other in points) < 1e-6


def test_cells_fill():
    low, high = ({name: edge for name in CELLS} for edge in (0., 1.))
    assert cell_of(low) == (0, 0) and cell_of(high) == (4, 4)
    assert cell_of({'lookback': .35, 'rank': .7}) == (1, 1)     # an edge belongs to the bin above
    points = [describe(build(program)) for program in PROGRAMS[:5]] + [describe(build(Program(control('mean'))))]
    assert len({cell_of(point) for point in points}) >= 3


def test_what_is_refused_before_training():
    tempered = Program(SOFTMAX.source.replace('-.5', '-.49'))
    known, near = [(SOFTMAX, describe(build(SOFTMAX)))], describe(build(tempered))
    assert novel(CLONE, None, known) == 'repeated'
    assert novel(tempered, near, known, tree=.25) == 'too close'
    assert novel(tempered, near, known, tree=.1) == '' == novel(tempered, near, known, tree=.25, behaviour=0.)
    assert novel(tempered, None, known, tree=.25) == '' == novel(tempered, near, [(SOFTMAX, None)], tree=.25)
    assert novel(KERNEL, describe(build(KERNEL)), iter(known), tree=.25) == '' == novel(SOFTMAX, None, [])


def test_a_mechanism_without_derivatives_is_refused():
    block = 'def matrix(self, q, k, x): return torch.log(q @ k.mT)'
    with pytest.raises(ValueError, match='finite derivatives, got nan') as caught:
        describe(build(Program(FRAMEWORKS['matrix_mixers'].program(block))), **SMALL)
    assert '\n' not in str(caught.value)
