"""Handed beginnings: one reading for all readers, and what the author knows where it can get there."""
import numpy as np
import pytest
import torch

from evolora.host.flops import FlopMeter
from evolora.host.model import load_host
from evolora.organelles.handing import Handed, answers, reach
from evolora.organelles.population import Population
from evolora.utils.randomness import stream

TURNS = 'Sort the letters: hgf', 'fgh'


def grown(blocks=None, targets=('o_proj', 'down_proj'), ranks=(4, 4)):
    population = Population(load_host('embedded', threads=1), capacity=4, blocks=blocks, targets=targets)
    for seed, rank in enumerate(ranks):
        rng = stream(seed, purpose='test')
        draw = lambda *shape: torch.from_numpy(rng.standard_normal(shape)).float()
        population.birth({n: (draw(rank, d_in) / d_in**.5, draw(d_out, rank) * .2)
                          for n, (d_out, d_in) in population.shapes.items()})
    return population


def asked(n, reader=None):
    turns = [(*TURNS, f'Sort the letters: {x}') for x in ('dcb', 'fed', 'gfe', 'bac')[:n]]
    return [Handed(t, reader) for t in turns] if reader else turns


@pytest.mark.parametrize('blocks, targets, carries', [(1, ('o_proj', 'down_proj'), False), (1, ('v_proj',), True),
                                                      (2, ('down_proj',), True), (None, ('o_proj',), True)])
def test_a_prefix_carries_what_its_author_knows_just_where_reach_says_so(blocks, targets, carries):
    population = grown(blocks, targets)
    assert bool(reach(population)) is carries
    likely = lambda prompts: np.concatenate(answers(population, prompts, ['o2'] * 3, seeds=[0] * 3, temperature=0.,
                                                    max_new_tokens=1).logprobs)
    own, itself, other = likely(asked(3)), likely(asked(3, 'o2')), likely(asked(3, 'o1'))
    assert np.abs(own - itself).max() < 1e-4
    assert bool(np.abs(own - other).max() > 1e-3) is carries


def test_ordinary_prompts_beside_handed_ones_are_answered_bit_for_bit_as_without_them():
    population = grown()
    mixed = [x for pair in zip(asked(3), asked(3, 'o1')) for x in pair]
    both = answers(population, mixed, ['o2', 'o1'] * 3, seeds=range(6), max_new_tokens=4)
    alone = population.generate(asked(3), ['o2'] * 3, seeds=[0, 2, 4], max_new_tokens=4)
    handed = answers(population, asked(3, 'o1'), ['o1'] * 3, seeds=[1, 3, 5], max_new_tokens=4)
    assert both.texts[::2] == alone.texts and both.logprobs[::2] == alone.logprobs
    assert both.texts[1::2] == handed.texts and both.tokens[1::2] == handed.tokens
    for name in ('flops', 'alone', 'prompt_tokens', 'new_tokens', 'margins'):
        assert (getattr(both, name)[::2] == getattr(alone, name)).all()
        assert (getattr(both, name)[1::2] == getattr(handed, name)).all()


def test_the_reading_of_a_prefix_is_paid_once_at_its_authors_rank():
    population = grown(ranks=(8, 2))
    meter, host = FlopMeter.of(population.host.model), population.host
    bill = lambda n: answers(population, asked(n, 'o1'), ['o2'] * n, seeds=range(n), max_new_tokens=1)
    head = host.kept(asked(1), host.encode(asked(1)), 1, True).lengths[0]
    one, four = bill(1), bill(4)
    reading = meter.forward(head, logits=0) + head * population.adapter_flops_per_token('o1')
    rest = [one.flops.sum() - reading, four.flops.sum() - reading]
    assert rest[1] == pytest.approx(4 * rest[0], rel=1e-6) and rest[0] > 0


def test_what_cannot_be_handed_over_is_refused():
    population = grown()
    with pytest.raises(ValueError, match='in front of a question'): Handed(('only a question',), 'o1')
    with pytest.raises(KeyError, match='no organelle'): answers(population, asked(1, 'o7'), ['o2'], seeds=[0])
    population.host.keeps = False
    with pytest.raises(ValueError, match='on a host that keeps it'):
        answers(population, asked(1, 'o1'), ['o2'], seeds=[0])
