"""Traits that answers and gradients show: a temperature of one's own, and blocks that are left alone."""
import json

import numpy as np
import pytest
import torch

from evolora.ecology.config import EcologyConfig
from evolora.ecology.variation import OPERATORS, VariationConfig, make_offspring, mutate_traits
from evolora.host.adapters import blocks_of
from evolora.economy.market import MarketConfig
from evolora.host.model import load_host, tiny_host
from evolora.organelles.learning_rules import RULES, credit
from evolora.organelles.lessons import Lesson
from evolora.organelles.population import Population
from evolora.organelles.scoring import score
from evolora.organelles.traits import Traits
from evolora.organelles.updates import Plasticity, PlasticityConfig
from evolora.utils.randomness import stream
from ecology.test_sessions import kept, lived, recorded
from organelles.test_updates import MAPS, WRITERS, spoken

TEMPERATURE = .8


def pair(traits, host=None, targets=MAPS, **keywords):
    "Two organelles with the same weights and these traits"
    population = Population(host or tiny_host(), capacity=4, targets=targets, **keywords)
    for one in traits:
        born = population.birth(rank=3, traits=one, rng=stream(0, purpose='pair'))
        population.write(born.id, OPERATORS['gaussian'](population.factors(born.id), rng=stream(1, purpose='pair'),
                                                        step=.5))
    return population


def asked(who, n=12):
    return [f'{"abcd"[i % 4]} and {i // 2}' for i in range(n)], [who[i % len(who)] for i in range(n)]


@pytest.mark.parametrize('architecture', ['qwen3', 'gemma3', 'llama'])
def test_an_answer_is_as_probable_to_all_that_ask_as_when_it_was_given(architecture):
    population = pair([Traits(), Traits(exploration=1.7), Traits(exploration=.5)], tiny_host(architecture))
    prompts, who = asked(population.ids)
    made = population.generate(prompts, who, temperature=TEMPERATURE, max_new_tokens=5, seeds=range(len(who)))
    said = np.array([sum(row) for row in made.logprobs])
    read = np.zeros(len(who))
    for trace in population.forward(prompts, made.tokens, who, temperature=TEMPERATURE):
        np.add.at(read, trace.rows.numpy(), trace.logprobs.double().numpy())
    scored = score(population, prompts, made.tokens, temperature=TEMPERATURE)
    own = [scored.organelles.index(id) for id in who]
    learned = credit(population, Lesson(prompts, made.tokens, who, np.ones(len(who)), TEMPERATURE))
    assert np.allclose(read, said, atol=1e-4) and learned is not None
    assert np.allclose(scored.logprobs[range(len(who)), own], said, atol=1e-4)
    plain = score(pair([Traits()] * 3, tiny_host(architecture)), prompts, made.tokens, temperature=TEMPERATURE)
    assert np.abs(plain.logprobs - scored.logprobs)[:, 1:].min() > 1e-3    # and it does make a difference


@pytest.mark.parametrize('rule', [r for r in RULES if r != 'none'])
def test_exploration_learns_as_a_temperature_does(rule):
    "A factor on the temperature, and the temperature itself: the same answers, and the same directions"
    hot, mild = (pair([Traits(exploration=e)] * 2, targets=WRITERS) for e in (2., 1.))
    prompts, who = asked(hot.ids)
    made = [p.generate(prompts, who, temperature=t, max_new_tokens=4, seeds=range(len(who)))
            for p, t in ((hot, TEMPERATURE), (mild, 2 * TEMPERATURE))]
    assert made[0].tokens == made[1].tokens
    advantage = np.random.default_rng(0).standard_normal(len(who))
    found = [credit(p, Lesson(prompts, made[0].tokens, who, advantage, t), rule, rng=stream(3, purpose='noise'))
             for p, t in ((hot, TEMPERATURE), (mild, 2 * TEMPERATURE))]
    for side in ('A', 'B'):
        for name, x in getattr(found[0], side).items():
            assert torch.allclose(x, getattr(found[1], side)[name], atol=1e-6), (side, name)


@pytest.mark.parametrize('rule', ['local', 'backprop', 'hebbian', 'node', 'es'])
def test_what_is_in_front_of_the_last_blocks_stays_as_the_host_is(rule):
    population = pair([Traits(blocks=1), Traits()], targets=WRITERS)
    last = f'{list(blocks_of(population.host.model))[-1]}.'
    plasticity = Plasticity(population, PlasticityConfig(rule=rule, learning_rate=.05))
    before = population.factors('o1')
    luck = np.random.default_rng(0)
    rollout = lambda twins, rows, who: (luck.random(len(rows)), np.ones(len(rows)))
    for seed in range(3): plasticity.learn(spoken(population, seed)[0], rng=stream(seed, purpose='update'),
                                           rollout=rollout)
    for name, factors in population.factors('o1').items():
        inside, moved = name.startswith(last), [not torch.equal(x, y) for x, y in zip(factors, before[name])]
        assert any(moved) if inside else not any(x.any() for x in factors), name
    assert all(any(x.any() for x in f) for f in population.factors('o2').values())


def test_children_keep_to_the_blocks_of_their_first_parent():
    population = pair([Traits(blocks=1, exploration=1.5), Traits()])
    last, config = f'{list(blocks_of(population.host.model))[-1]}.', VariationConfig(crossover=.5, rank_change=.4)
    for seed in range(30):
        child = make_offspring(population, ['o1', 'o2'], stream(seed, purpose='child'), config)
        born = population.birth(child.factors, **child.birth)
        loud = {name for name, (A, B) in population.factors(born.id).items() if A.any() and B.any()}
        assert loud and all(name.startswith(last) for name in loud) and born.traits.exploration != 1.5
        population.death(born.id)


def test_who_does_not_explore_has_children_that_do_not():
    assert mutate_traits(Traits(), stream(0, purpose='x')).exploration == 1
    same = [mutate_traits(Traits(exploration=e), stream(0, purpose='x')) for e in (1., 1.5)]
    assert same[0].step == same[1].step and same[0].plasticity == same[1].plasticity and same[1].exploration != 1.5


def test_an_edited_save_that_changes_other_blocks_is_refused(tmp_path):
    population = pair([Traits(blocks=1)])
    one = population['o1']
    population._members['o1'] = one.__class__(**vars(one) | {'traits': Traits()})
    population.write('o1', pair([Traits()]).factors('o1'))
    population._members['o1'] = one
    population.save(tmp_path / 'p')
    with pytest.raises(ValueError, match='zeros in front of the last 1 blocks of o1'):
        Population.load(tmp_path / 'p', population.host)


@pytest.mark.parametrize('field, value, said', [('blocks', [-1], 'from 0 to 1024, got -1'),
                                                ('exploration', [1., 0.], 'from 0.1 to 10, got 0')])
def test_wrong_lists_are_refused(field, value, said):
    with pytest.raises(ValueError, match=said): VariationConfig(**{field: value})


def test_an_ecology_of_such_founders_lives_and_resumes_bit_for_bit(tmp_path):
    config = EcologyConfig(founders=4, capacity=6, max_new_tokens=8, plasticity=PlasticityConfig(probe=.5),
                           market=MarketConfig(questions=8, round=2, learn_every=1),
                           variation=VariationConfig(blocks=[0, 1], exploration=[.7, 1.4], every=2))
    host = load_host('embedded', threads=1)
    whole, parts = (lived(tmp_path / name, host, config, stops) for name, stops in (('a', [4]), ('b', [2, 4])))
    assert recorded(whole) == recorded(parts) and kept(whole) == kept(parts)
    born = [row for line in (whole / 'lineage.jsonl').read_text().splitlines()
            if (row := json.loads(line))['event'] == 'birth' or row['operator'] == 'founder']
    assert {(r['traits']['blocks'], r['traits']['exploration']) for r in born[:4]} == {(0, .7), (1, .7), (0, 1.4),
                                                                                      (1, 1.4)}
