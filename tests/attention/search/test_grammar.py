"Genomes: all of them are programs that run, are causal and learn; and a search among them beats drawing."
import json
import socket
from functools import cache

import numpy as np
import pytest
import torch
from scipy import stats

from evolora.host.mechanisms.frameworks import FRAMEWORKS, VARIANTS, variant
from evolora.attention.search.grammar import (DynamicsGenome, Grammar, GrammarProposer, MatrixGenome, RandomProposer,
                                       RegressionGenome)
from evolora.attention.search.proposal_format import Member
from evolora.host.mechanisms.program_source import Program, build
from evolora.utils.randomness import stream

GRAMMARS = {name: Grammar(name) for name in FRAMEWORKS}
KNOWN = {
    'coefficient_dynamics': dict(
        softmax={}, linear=dict(readout='identity', normaliser='rms'),
        scalar=dict(readout='identity', normaliser='rms', evolution='input'),
        diagonal=dict(readout='identity', normaliser='rms', evolution='wide'),
        delta=dict(readout='identity', normaliser='rms', evolution='delta', norm='unit'),
        fading=dict(evolution='input')),
    'test_time_regression': dict(
        softmax={}, linear=dict(solver='without covariance', output='rms'),
        gated=dict(solver='without covariance', output='rms', forgetting='input'),
        delta=dict(solver='one step', output='rms', norm='unit'),
        ridge=dict(solver='ridge', output='rms', norm='unit'),
        conjugate=dict(solver='gradients 3', output='rms', norm='unit')),
    'matrix_mixers': dict(
        softmax={}, linear=dict(family='low rank', rows='rms'),
        semiseparable=dict(family='semiseparable', rows='rms'), toeplitz=dict(family='toeplitz'),
        cauchy=dict(family='cauchy'))}


def made(source, dim=32, heads=2):
    torch.manual_seed(0)
    return build(Program(source))(dim, heads)


def inputs(time=20, dim=32, seed=1): return torch.randn(2, time, dim, generator=torch.Generator().manual_seed(seed))


@cache
def drawn(framework, count=60):
    "So many different genomes"
    grammar, rng, found = GRAMMARS[framework], stream(0, purpose=f'test {framework}'), {}
    while len(found) < count: found[grammar.draw(rng)] = None
    return list(found)


@pytest.mark.parametrize('framework', FRAMEWORKS)
def test_defaults_are_the_baseline(framework):
    grammar = GRAMMARS[framework]
    assert Program(grammar.render(grammar.kind())).digest == Program(variant(framework)).digest
    assert str(grammar.kind()) == 'softmax attention'


@pytest.mark.parametrize('framework', FRAMEWORKS)
def test_every_standard_variant_is_a_genome(framework):
    assert set(KNOWN[framework]) == set(VARIANTS[framework])
    x, grammar = inputs(), GRAMMARS[framework]
    for name, genes in KNOWN[framework].items():
        one, other = made(grammar.render(grammar.kind(**genes)))(x), made(variant(framework, name))(x)
        torch.testing.assert_close(one, other, rtol=0, atol=1e-6)


@pytest.mark.parametrize('framework, size', [('coefficient_dynamics', 18276), ('test_time_regression', 2808),
                                             ('matrix_mixers', 5820)])
def test_the_space_is_counted(framework, size):
    grammar = GRAMMARS[framework]
    assert grammar.size == size == len(set(grammar.all))
    options = {name: {getattr(genome, name) for genome in grammar.all} for name in grammar.genes}
    assert all(options[name] == set(grammar.genes[name]) for name in grammar.genes)     # nothing is listed in vain
    digests = {Program(grammar.render(genome)).digest for genome in drawn(framework)}
    assert len(digests) == len(drawn(framework))


def outside(mixer, x):
    "How much the output up to the middle changes when the input after it does"
    half = x.shape[1] // 2
    other = torch.cat([x[:, :half], inputs(x.shape[1], x.shape[2], seed=2).to(x)[:, half:]], 1)
    return (mixer(x) - mixer(other))[:, :half].abs().max().item()


def some(framework, count):
    "The standard variants, and so many that were drawn"
    return [GRAMMARS[framework].kind(**genes) for genes in KNOWN[framework].values()] + drawn(framework, count)


def test_every_option_is_among_some():
    for framework, grammar in GRAMMARS.items():
        for name, options in grammar.genes.items():
            assert {getattr(genome, name) for genome in some(framework, 60)} == set(options), (framework, name)


@pytest.mark.parametrize('count', [60, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize('framework', FRAMEWORKS)
def test_genomes_run_are_causal_and_learn(framework, count):
    grammar, x = GRAMMARS[framework], inputs()
    for genome in some(framework, count):
        mixer = made(grammar.render(genome))
        y = mixer(x)
        assert y.shape == x.shape and y.isfinite().all(), genome
        (y * inputs(seed=3)).sum().backward()
        own = {name: p.grad for name, p in mixer.named_parameters() if not name.startswith(('project', 'output'))}
        for name, gradient in own.items():
            assert gradient is not None and gradient.isfinite().all(), (genome, name)
            assert gradient.abs().max() > 1e-6, (genome, name)
        assert all(p.grad is None or p.grad.isfinite().all() for p in mixer.parameters()), genome
        with torch.no_grad():
            assert outside(mixer.double(), x.double()) < 1e-9, genome
            for loud in (0., 30.): assert mixer(loud * x.double()).isfinite().all(), genome
            assert mixer(x[:, :1].double()).isfinite().all(), genome


@pytest.mark.parametrize('count', [60, pytest.param(200, marks=pytest.mark.slow)])
@pytest.mark.parametrize('framework', FRAMEWORKS)
def test_what_a_genome_adds_is_small(framework, count):
    grammar = GRAMMARS[framework]
    for genome in some(framework, count):
        kind, wide = build(Program(grammar.render(genome))), getattr(genome, 'evolution', '') == 'wide'
        for dim, heads in [(32, 2), (48, 3), (64, 4), (128, 8), (128, 4)]:
            with torch.device('meta'): mixer = kind(dim, heads)
            count = sum(p.numel() for p in mixer.parameters())
            # A block of a transformer has 12 dim² weights. `wide` is a standard variant and known to be larger.
            assert count - 4 * dim * (dim + 1) <= (.09 if wide else .05) * 12 * dim**2, (genome, dim)


@pytest.mark.parametrize('framework', FRAMEWORKS)
def test_draws_are_uniform(framework):
    grammar, rng = GRAMMARS[framework], stream(0, purpose='uniform')
    draws = [grammar.draw(rng) for _ in range(3000)]
    for name, options in grammar.genes.items():
        share = [np.mean([getattr(genome, name) == option for genome in grammar.all]) for option in options]
        seen = [sum(getattr(genome, name) == option for genome in draws) for option in options]
        assert stats.chisquare(seen, np.array(share) * len(draws)).pvalue > 1e-4, name


@pytest.mark.parametrize('framework', FRAMEWORKS)
def test_mutants_and_children(framework):
    grammar, rng = GRAMMARS[framework], stream(0, purpose='mutants')
    for a, b in zip(drawn(framework), drawn(framework)[1:]):
        mutant, child = grammar.mutate(rng, a), grammar.cross(rng, a, b)
        assert 1 <= sum(getattr(mutant, name) != getattr(a, name) for name in grammar.genes) <= 2
        assert all(getattr(child, name) in (getattr(a, name), getattr(b, name)) for name in grammar.genes)


@pytest.mark.slow
def test_every_genome_can_be_reached_from_the_baseline():
    grammar, rng = GRAMMARS['test_time_regression'], stream(0, purpose='walk')
    genome, seen = grammar.kind(), set()
    for _ in range(60_000):
        genome = grammar.mutate(rng, genome)
        seen.add(genome)
    assert len(seen) == grammar.size


@pytest.mark.parametrize('kind, genes, why', [
    (DynamicsGenome, dict(readout='sin'), 'gene readout expected one of exp'),
    (DynamicsGenome, dict(window=9), 'gene window'), (DynamicsGenome, dict(window=False), 'gene window'),
    (DynamicsGenome, dict(window=8.), 'gene window'), (DynamicsGenome, dict(gate=['none']), 'gene gate'),
    (DynamicsGenome, dict(readout='identity'), 'may be negative'),
    (DynamicsGenome, dict(readout='relu2', temperature='head'), 'temperature that cancels'),
    (DynamicsGenome, dict(evolution='delta'), 'length 1'), (DynamicsGenome, dict(norm='unit'), 'length 1'),
    (DynamicsGenome, dict(evolution='wide', gate='value'), 'matrix of rates'),
    (RegressionGenome, dict(solver='without covariance'), 'grows with the text'),
    (RegressionGenome, dict(solver='one step'), 'one step'),
    (RegressionGenome, dict(solver='ridge', window=8), 'window'),
    (MatrixGenome, dict(family='toeplitz', convolution='k'), 'keys that are never read')])
def test_what_does_not_go_together_cannot_be_made(kind, genes, why):
    with pytest.raises(ValueError, match=why) as caught: kind(**genes)
    assert '\n' not in str(caught.value)


def test_notes_are_json_and_are_read_back():
    for grammar in GRAMMARS.values():
        genome = grammar.draw(stream(3))
        notes = json.loads(json.dumps(grammar.notes(genome)))
        assert grammar.read(notes) == genome
        others = [other.read(notes) for other in GRAMMARS.values() if other is not grammar]
        assert others == [None, None] and grammar.read({}) is None
    with pytest.raises(ValueError, match='genome expected the genes'): grammar.read({'genome': {'x': 1}})
    with pytest.raises(ValueError, match='framework expected one of'): Grammar('quantum')


def test_softmax_with_one_more_is_its_formula():
    x, grammar = inputs(), GRAMMARS['coefficient_dynamics']
    for window in (0, 8):
        mixer = made(grammar.render(DynamicsGenome(normaliser='one more', window=window)))
        q, k, v = mixer.seen(x)
        scores = q @ k.mT * mixer.entries**-.5
        near = torch.ones(20, 20).tril() * (torch.ones(20, 20).triu(1 - window) if window else 1)
        weights = scores.exp() * near
        torch.testing.assert_close(mixer.coefficients(q, k, x), weights / (1 + weights.sum(-1, keepdim=True)))


def test_windows_and_blocks_end_at_their_length():
    x = inputs(time=40)
    for grammar, genes, seen in [
            ('coefficient_dynamics', dict(window=8), lambda i, j: 0 <= i - j < 8),
            ('coefficient_dynamics', dict(window=16, readout='softplus'), lambda i, j: 0 <= i - j < 16),
            ('test_time_regression', dict(window=8, forgetting='input'), lambda i, j: 0 <= i - j < 8),
            ('test_time_regression', dict(window=8, solver='without covariance', output='rms'),
             lambda i, j: 0 <= i - j < 8),
            ('matrix_mixers', dict(local='band 16'), lambda i, j: 0 <= i - j < 16),
            ('matrix_mixers', dict(local='block 8'), lambda i, j: j <= i and i // 8 == j // 8),
            ('matrix_mixers', dict(local='block 16', family='cauchy'), lambda i, j: j <= i and i // 16 == j // 16)]:
        mixer = made(GRAMMARS[grammar].render(GRAMMARS[grammar].kind(**genes))).double()
        for j in (5, 20):
            other = x.clone().double()
            other[:, j] += 1
            changed = (mixer(x.double()) - mixer(other)).abs().amax((0, 2)) > 1e-12
            assert changed.tolist() == [seen(i, j) for i in range(40)], (genes, j)


def test_a_forgetting_window_is_the_smoother_where_nothing_is_cut():
    grammar, x = GRAMMARS['test_time_regression'], inputs(time=8)
    for genes in (dict(forgetting='input'), dict(forgetting='scalar', solver='without covariance', output='rms')):
        plain, windowed = (made(grammar.render(grammar.kind(**genes, window=w)))(x) for w in (0, 8))
        torch.testing.assert_close(plain, windowed)


# Proposers

def member(grammar, index, genome, score): return Member(index, grammar.render(genome), score, grammar.notes(genome))


@pytest.mark.parametrize('framework', FRAMEWORKS)
def test_proposals_are_programs_with_parents(framework):
    grammar, proposer = GRAMMARS[framework], GrammarProposer(framework)
    archive, seen = [Member(7, variant(framework), .5, grammar.notes(grammar.kind()))], set()
    for n in range(30):
        proposal = proposer.propose(stream(0, generation=n), archive)
        assert set(proposal.parents) <= {m.index for m in archive} and proposal.parents
        assert len(set(proposal.parents)) == {'mutation': 1, 'crossover': 2}[proposal.operator]
        assert Program(proposal.source).framework == framework
        assert proposal.source == grammar.render(grammar.read(proposal.notes))
        seen.add(proposal.source)
        archive.append(Member(100 + n, proposal.source, n % 5 / 5, proposal.notes))
    assert len(seen) == 30      # nothing twice


def test_only_the_evaluated_are_parents():
    grammar, proposer = GRAMMARS['matrix_mixers'], GrammarProposer('matrix_mixers')
    genomes = drawn('matrix_mixers')
    archive = [member(grammar, 0, genomes[0], None), Member(1, variant('matrix_mixers'), .9, {}),
               Member(2, variant('coefficient_dynamics'), .9, GRAMMARS['coefficient_dynamics'].notes(DynamicsGenome()))]
    proposal = proposer.propose(stream(0), archive)
    assert (proposal.operator, proposal.parents) == ('random', ())
    archive.append(member(grammar, 3, genomes[1], -2.))
    assert {proposer.propose(stream(n), archive).parents for n in range(20)} == {(3,)}


def test_the_winner_of_a_tournament_is_the_parent():
    grammar, proposer = GRAMMARS['matrix_mixers'], GrammarProposer('matrix_mixers', crossing=0.)
    archive = [member(grammar, n, genome, float(n)) for n, genome in enumerate(drawn('matrix_mixers')[:9])]
    parents = [proposer.propose(stream(n), archive).parents[0] for n in range(200)]
    assert min(parents) == 5 and np.bincount(parents).argmax() == 8


def agree(grammar, genome, target): return np.mean([getattr(genome, n) == getattr(target, n) for n in grammar.genes])


def planted(proposer, seed, evaluations=60, noise=.05):
    "(true score of the best-looking member of a search for a hidden genome, all sources)"
    grammar, archive = GRAMMARS[proposer.framework], []
    target = grammar.draw(stream(seed, purpose='target'))
    for n in range(evaluations):
        proposal = proposer.propose(stream(seed, generation=n, purpose='propose'), archive)
        draws = noise * stream(seed, generation=n, purpose='noise').standard_normal()
        score = agree(grammar, grammar.read(proposal.notes), target) + draws
        archive.append(Member(n, proposal.source, score, proposal.notes))
    best = max(archive, key=lambda m: m.score)
    return agree(grammar, grammar.read(best.notes), target), [m.source for m in archive]


@pytest.fixture
def offline(monkeypatch):
    def refuse(*_, **__): raise AssertionError('a socket was opened')
    for name in ('socket', 'create_connection', 'getaddrinfo'): monkeypatch.setattr(socket, name, refuse)


@pytest.mark.parametrize('seeds', [12, pytest.param(24, marks=pytest.mark.slow)])
@pytest.mark.parametrize('framework', FRAMEWORKS)
def test_evolution_beats_drawing_on_a_planted_objective_without_a_network(framework, seeds, offline):
    gains = np.array([planted(GrammarProposer(framework), seed)[0] - planted(RandomProposer(framework), seed)[0]
                      for seed in range(seeds)])
    low = stats.t.interval(.95, len(gains) - 1, gains.mean(), stats.sem(gains))[0]
    assert low > 0, gains


def test_a_search_is_the_same_each_time():
    proposer = GrammarProposer('coefficient_dynamics')
    assert planted(proposer, 0, 20) == planted(proposer, 0, 20) != planted(proposer, 1, 20)
