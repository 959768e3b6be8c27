"""Where the length of a text decides how its positions are turned, a row is read in a batch as it is read alone."""
import numpy as np
import pytest
import torch
from transformers import Phi3Config, Phi3ForCausalLM

from evolora.host.engine import company_of
from evolora.host.model import Host, byte_tokenizer, tiny_host
from evolora.host.sampling import sample, trace
from evolora.organelles.lessons import Lesson, plant
from evolora.organelles.population import Population
from evolora.training.passes import Fleet, Passes, Text

BORDER = 32
USUAL = dict(vocab_size=259, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, pad_token_id=0, eos_token_id=1, bos_token_id=None, initializer_range=.5)


def phi():
    rope = dict(rope_type='longrope', rope_theta=1e4, short_factor=[1.] * 4, long_factor=[9., 5., 7., 3.],
                original_max_position_embeddings=BORDER)
    return Phi3ForCausalLM(Phi3Config(**USUAL, max_position_embeddings=512, rope_parameters=rope,
                                      original_max_position_embeddings=BORDER))


@pytest.fixture
def host():
    torch.manual_seed(0)
    return Host(phi(), byte_tokenizer(), id='long')


def ids(n, seed=0): return np.random.default_rng(seed).integers(3, 259, n).tolist()


def alone(model, prompt, new):
    "Greedy tokens, each read with all in front of it, by itself"
    text = list(prompt)
    with torch.no_grad():
        for _ in range(new):
            logits = model(input_ids=torch.tensor([text]), use_cache=False).logits
            text.append(int(logits[0, -1].argmax()))
    return text[len(prompt):]


LENGTHS = (5, 20, 28, 31, 32, 33, 60, 90)


def test_the_rotation_changes_at_the_border(host):
    "Else the other tests could not fail"
    text = torch.tensor([ids(BORDER + 1)])
    with torch.no_grad(): longer, shorter = (host.model(input_ids=x, use_cache=False).logits[0, BORDER - 1]
                                             for x in (text, text[:, :-1]))
    assert (longer - shorter).abs().max() > 1e-2


def test_a_row_answers_in_a_batch_as_alone(host):
    prompts = [ids(n, n) for n in LENGTHS]
    made = sample(host.model, prompts, ends=[-1], max_new_tokens=8, temperature=0)
    assert made.tokens == [alone(host.model, p, 8) for p in prompts]
    for p, tokens in zip(prompts, made.tokens):
        assert sample(host.model, [p], ends=[-1], max_new_tokens=8, temperature=0).tokens == [tokens]


def test_given_answers_are_read_in_a_batch_as_alone(host):
    prompts, answers = [ids(n, n) for n in LENGTHS], [ids(2 + n % 5, 100 + n) for n in LENGTHS]
    together, found = list(trace(host.model, prompts, answers)), {}
    for t in together: found |= {(r, p): x for r, p, x in zip(t.rows.tolist(), t.places.tolist(), t.logprobs.tolist())}
    for i, (p, a) in enumerate(zip(prompts, answers)):
        by_itself = next(iter(trace(host.model, [p], [a])))
        for place, x in zip(by_itself.places.tolist(), by_itself.logprobs.tolist()):
            assert found[i, place] == pytest.approx(x, abs=1e-4)
    assert len(found) == sum(map(len, answers))


def test_a_pass_of_training_holds_texts_of_one_side(host):
    texts = [Text(i % 2, tuple(ids(n, n)), tuple(ids(3, n))) for i, n in enumerate(LENGTHS)]
    fleet = Fleet(host, [2, 2], [4., 4.], [0, 1], ('o_proj',))
    together = Passes(host, fleet)(texts)[0]
    assert np.allclose(together, [Passes(host, fleet)([t])[0][0] for t in texts], atol=1e-4)
    with pytest.raises(ValueError, match='shorten them'):
        Passes(host, fleet)([Text(0, tuple(ids(20)), tuple(ids(k))) for k in (3, 30)], unit=2)


def test_a_lesson_holds_texts_of_one_side(host):
    population = Population(host, capacity=1, max_rank=4, targets=('o_proj',))
    one = population.birth().id
    n = len(LENGTHS)
    lesson = Lesson(['x' * n for n in LENGTHS], [ids(3, n) for n in LENGTHS], [one] * n, np.ones(n))
    company, rows = company_of(host.model), []
    for trees in plant(population, lesson):
        assert len({company(n) for n in trees.lengths.tolist()}) == 1
        rows += trees.rows.tolist()
    assert {*rows} == {*range(len(LENGTHS))}


@pytest.mark.parametrize('architecture', ['qwen3', 'llama', 'gemma3'])
def test_other_models_read_all_texts_together(architecture):
    company = company_of(tiny_host(architecture).model)
    assert {company(n, 100) for n in (1, 50, 5000)} == {0}
