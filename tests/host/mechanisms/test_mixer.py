"""Mechanisms as matrices: what is exposed is what is used, it has the structure that its family promises, and the
output follows the values linearly. And a regression may be solved pair by pair."""
import pytest
import torch

from evolora.host.mechanisms.frameworks import CONTROLS, FRAMEWORKS, VARIANTS, variant
from evolora.host.mechanisms.program_source import Program, build, read_program
from evolora.host.mechanisms.regression import ridge

MATRICES = [f'matrix_mixers/{name}' for name in VARIANTS['matrix_mixers']] + [f'controls/{name}' for name in CONTROLS]
DYNAMICS = [f'coefficient_dynamics/{name}' for name in VARIANTS['coefficient_dynamics']]
TIME, ENTRIES = 21, 4


def at_work(name):
    "A mechanism with moved parameters, the text that it reads, and its queries, keys and values; double precision"
    generator = torch.Generator().manual_seed(0)
    def drawn(*shape): return torch.randn(shape, generator=generator, dtype=torch.float64)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        mixer = build(read_program(name))(2 * ENTRIES, 2).double()
    with torch.no_grad():
        for p in mixer.parameters(): p += .3 * drawn(*p.shape)
        x = drawn(2, TIME, 2 * ENTRIES)
        return mixer.requires_grad_(False), x, *mixer.seen(x)


def exposed(name):
    mixer, x, q, k, v = at_work(name)
    return mixer.coefficients(q, k, x).expand(2, 2, TIME, TIME)


@pytest.mark.parametrize('name', [*MATRICES, *DYNAMICS])
def test_the_matrix_that_is_exposed_is_the_one_that_is_used(name):
    mixer, x, q, k, v = at_work(name)
    M = exposed(name)
    assert not M.triu(1).any() and M.tril().abs().sum() > 0
    torch.testing.assert_close(mixer.mix(q, k, v, x), M @ v)
    # No values but these come in: those of single positions give its columns.
    single = torch.eye(TIME, dtype=v.dtype).expand(2, 2, -1, -1)
    torch.testing.assert_close(mixer.mix(q, k, single, x), M)
    torch.testing.assert_close(mixer(x), mixer.output(mixer.finish(M @ v, x).transpose(1, 2).flatten(2)))


@pytest.mark.parametrize('name', [*MATRICES, *DYNAMICS])
def test_the_output_is_linear_in_the_values(name):
    mixer, x, q, k, v = at_work(name)
    other = v.flip(2) + 1
    both = mixer.mix(q, k, 3 * v - .5 * other, x)
    torch.testing.assert_close(both, 3 * mixer.mix(q, k, v, x) - .5 * mixer.mix(q, k, other, x))


def ranks(M): return {int(r) for at in (5, 8, 12, 16) for r in torch.linalg.matrix_rank(M[..., at:, :at]).flatten()}


def test_blocks_below_the_diagonal_have_the_rank_of_their_family():
    for name in ('linear', 'semiseparable'): assert ranks(exposed(f'matrix_mixers/{name}')) == {ENTRIES}, name
    for name in ('linear', 'scalar', 'diagonal', 'delta'):
        assert ranks(exposed(f'coefficient_dynamics/{name}')) == {ENTRIES}, name
    for name in ('matrix_mixers/softmax', 'coefficient_dynamics/softmax'): assert max(ranks(exposed(name))) > ENTRIES
    assert ranks(exposed('controls/mean')) == {1}


def test_a_toeplitz_mixer_has_constant_diagonals_until_its_rows_are_divided():
    mixer, x, q, k, v = at_work('matrix_mixers/toeplitz')
    M = exposed('matrix_mixers/toeplitz')
    weights = mixer.distances(TIME)[:, torch.arange(TIME)[:, None] - torch.arange(TIME)].tril()
    torch.testing.assert_close(M * weights.abs().sum(-1, keepdim=True), weights.expand_as(M))
    whole = weights[0]
    for i in range(TIME): assert whole.diagonal(-i).unique().numel() == 1
    assert torch.equal(M[0], M[1])                          # whatever the query
    assert not torch.equal(exposed('matrix_mixers/cauchy')[0], exposed('matrix_mixers/cauchy')[1])


def recursive(q, k, v, penalty, log_rate):
    "Recursive least squares with forgetting, (time, entries) each: one pair after the other, no system solved"
    inverse, memory, answers = torch.eye(k.shape[1], dtype=k.dtype) / penalty, torch.zeros_like(v[:1].T @ k[:1]), []
    for t, keep in enumerate(log_rate.exp()):
        gain = inverse @ k[t] / (keep + k[t] @ inverse @ k[t])
        memory = memory + torch.outer(v[t] - memory @ k[t], gain)
        inverse = (inverse - torch.outer(gain, k[t] @ inverse)) / keep
        answers.append(memory @ q[t])
    return torch.stack(answers)


@pytest.mark.parametrize('forgets', [0., .05, .5])
def test_recursive_least_squares_come_to_the_ridge_solution(forgets):
    "Where old pairs are forgotten, the recursion forgets the ridge with them"
    _, _, q, k, v = at_work('test_time_regression/ridge')
    rate = -forgets * torch.rand(2, 2, TIME, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    left = .2 * rate.cumsum(-1).exp()[..., None, None]
    found = torch.stack([torch.stack([recursive(q[b, h], k[b, h], v[b, h], .2, rate[b, h]) for h in range(2)])
                         for b in range(2)])
    torch.testing.assert_close(found, ridge(q, k, v, left, rate), rtol=1e-8, atol=1e-8)
    if not forgets: torch.testing.assert_close(found, ridge(q, k, v, .2), rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize('name', ['softmax', 'linear'])
def test_a_shared_identity_holds_before_any_norm_could_hide_a_scale(name):
    found = []
    for framework in FRAMEWORKS:
        torch.manual_seed(0)
        mixer = build(Program(variant(framework, name)))(32, 2).double()
        found.append(mixer.mix(*mixer.seen(x := torch.randn(2, 12, 32, dtype=torch.float64)), x))
    assert found[0].abs().max() > .01
    for other in found[1:]: torch.testing.assert_close(other, found[0], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize('strike', ['1', '1.', 'self.one', 'torch.pi', 'self.one.expand(k.shape[:3])'])
def test_what_is_injected_is_a_number_of_any_kind_or_one_a_position(strike):
    body = f"""
    def setup(self): self.one = nn.Parameter(torch.ones(()))
    def inject(self, k, x): return {strike}"""
    mixer = build(Program(FRAMEWORKS['coefficient_dynamics'].program(body)))(32, 2)
    assert mixer(torch.randn(2, 5, 32)).isfinite().all()
