"""Scoring: what every organelle would have said, in one pass, is what each says by itself."""
import numpy as np
import pytest
import torch

from evolora.host import fast_layers
from evolora.host.model import ARCHITECTURES, load_host, tiny_host
from evolora.organelles import scoring
from evolora.organelles.population import Population
from evolora.organelles.scoring import score
from evolora.tasks.families import CELLS
from evolora.tasks.forms import Form
from evolora.tasks.task_sets import draw_tasks
from evolora.utils.randomness import stream


def crowd(host, blocks=1, ranks=(2, 4, 8), size=.3, **where):
    population = Population(host, capacity=len(ranks), blocks=blocks, **where)
    for rank in ranks:
        id = population.birth(rank=rank, rng=stream(rank)).id
        population.write(id, {n: (A, torch.from_numpy(size * stream(rank).standard_normal(tuple(B.shape))).float())
                              for n, (A, B) in population.factors(id).items()})
    return population


def answered(population, n=12, form=False):
    host = population.host
    prompts = host.form.prompts(draw_tasks(CELLS[:3], stream='train', n=n)) if form else [
        'abcdefg'[:1 + i % 7] for i in range(n)]
    who = [[*population.ids, None][i % (len(population) + 1)] for i in range(n)]
    return prompts, who, population.generate(prompts, who, max_new_tokens=6, seeds=range(n), temperature=.8)


def each_alone(population, prompts, tokens, organelles, temperature):
    found = np.zeros((len(prompts), len(organelles)))
    for k, id in enumerate(organelles):
        for trace in population.forward(prompts, tokens, [id] * len(prompts), temperature=temperature):
            np.add.at(found[:, k], trace.rows.numpy(), trace.logprobs.numpy())
    return found


@pytest.mark.parametrize('blocks', (1, 2, 4))
@pytest.mark.parametrize('architecture', ARCHITECTURES)
def test_one_pass_says_what_each_says_alone(architecture, blocks):
    population = crowd(tiny_host(architecture, layers=4), blocks)
    prompts, who, made = answered(population)
    everyone = [*population.ids, None]
    found = score(population, prompts, made.tokens, everyone, temperature=.8)
    np.testing.assert_allclose(found.logprobs, each_alone(population, prompts, made.tokens, everyone, .8), atol=2e-4)
    own = [found.logprobs[i, everyone.index(id)] for i, id in enumerate(who)]
    np.testing.assert_allclose(own, [sum(x) for x in made.logprobs], atol=2e-4)
    assert ((0 <= found.likelihoods) & (found.likelihoods <= 1)).all()


@pytest.mark.parametrize('blocks', (1, 3))
def test_beginnings_that_are_kept_change_nothing(blocks):
    population = crowd(tiny_host(layers=4).in_form(Form(shots=2)), blocks)
    prompts, _, made = answered(population, form=True)
    assert population.host.kept(prompts, population.host.encode(prompts), 6)
    everyone = [*population.ids, None]
    kept = score(population, prompts, made.tokens, everyone)
    population.host.keeps = False
    whole = score(population, prompts, made.tokens, everyone)
    np.testing.assert_allclose(kept.logprobs, whole.logprobs, atol=2e-4)
    assert (kept.flops < whole.flops).all() and (kept.alone == whole.alone).all()


@pytest.mark.parametrize('chunk', (1, 64, 8192))
def test_the_size_of_a_pass_does_not_matter(chunk):
    population = crowd(tiny_host(layers=3), blocks=1)
    prompts, _, made = answered(population)
    whole = score(population, prompts, made.tokens)
    np.testing.assert_allclose(score(population, prompts, made.tokens, chunk=chunk).logprobs, whole.logprobs, atol=1e-4)


def test_hosts_that_share_nothing_are_scored_all_the_same(monkeypatch):
    population = crowd(tiny_host(layers=3), blocks=1)
    prompts, _, made = answered(population)
    lean = score(population, prompts, made.tokens)
    monkeypatch.setattr(scoring, 'supported', lambda model: False)
    usual = score(population, prompts, made.tokens)
    np.testing.assert_allclose(lean.logprobs, usual.logprobs, atol=2e-4)
    assert (usual.flops == usual.alone).all() and (lean.flops < usual.flops).all()


def test_the_bill_is_for_the_blocks_below_once_and_for_those_above_for_each():
    population = crowd(tiny_host(layers=4), blocks=1)
    m, n, a = population.host.meter, len(population.host.encode(['abc'])[0]), 4
    ids = population.ids
    def bill(who): return score(population, ['abc'], [[70, 71, 72, 1]], who).flops[0]
    layers = m.forward(n + a - 1, logits=0)
    own = sum(population.adapter_flops_per_token(id) for id in ids) * (n + a - 1)
    expected = layers * (3 / 4 + 3 / 4) + own + 3 * 2 * m.unembedding * a
    assert bill(ids) == pytest.approx(expected, rel=1e-12)
    assert bill([None]) == pytest.approx(layers + 2 * m.unembedding * a)


def test_scoring_changes_nothing():
    population = crowd(tiny_host(layers=3), blocks=1)
    prompts, _, made = answered(population)
    before, state = population.weights_hash(), torch.get_rng_state()
    score(population, prompts, made.tokens)
    assert population.weights_hash() == before and torch.equal(torch.get_rng_state(), state)


def test_a_unique_right_answer_is_scored_with_its_frequency():
    "p_i(right answer | question) is organelle i's accuracy at temperature 1, without sampling noise"
    host = load_host('embedded', threads=1)
    population = crowd(host, blocks=1, ranks=(4,), size=.02)
    task = draw_tasks([c for c in CELLS if c.family == 'string.sort'][:1], stream='train', n=1)[0]
    gold = host.tokenizer([task.answer], add_special_tokens=False)['input_ids'][0] + host.ends[:1]
    p = score(population, [task.prompt], [gold]).likelihoods[0, 0]
    made = population.generate([task.prompt] * 2000, ['o1'] * 2000, seeds=range(2000), max_new_tokens=12)
    share = np.mean([text == task.answer for text in made.texts])
    assert abs(share - p) < 4 * np.sqrt(p * (1 - p) / 2000) and 0 < p < 1


@pytest.mark.parametrize('prompts,answers,who,says', [
    ([], [], None, 'got 0 and 1'), (['a'], [[1]], [], 'got 1 and 0'),
    (['a'], [[1], [2]], None, 'one answer per prompt'),
    (['a'], [[]], None, 'at least one token'), (['a'], [[1]], ['o9'], 'no organelle')])
def test_bad_input_is_one_line(prompts, answers, who, says):
    population = crowd(tiny_host(), ranks=(2,))
    with pytest.raises((ValueError, KeyError), match=says): score(population, prompts, answers, who)
