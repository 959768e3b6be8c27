"""A mechanism as the attention of a host: trained, saved, read whole, lived on, and refused where it may not run."""
import json
import shutil
from copy import deepcopy
from functools import lru_cache
from types import SimpleNamespace

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file
from torch.utils.flop_counter import FlopCounterMode
from transformers import AutoModelForCausalLM

from scripted import chance_decides
from evolora.cli import app as cli
from evolora.analysis.tables import load, summary
from evolora.host.mechanisms.frameworks import FRAMEWORKS, VARIANTS, variant
from evolora.host.mechanisms.mechanism_model import MechanismConfig, MechanismForCausalLM, check_causal, mechanism_flops
from evolora.host.mechanisms.program_source import Program, Refused, read_program
from evolora.ecology.config import load_config
from evolora.organelles.learning_rules import Reading, credit, learning_flops
from evolora.organelles.lessons import Lesson, plant
from evolora.host.engine import WholeRows, session
from evolora.evaluation.peft_export import export
from evolora.host.sampling import Authors
from evolora.host.flops import WholeMeter
from evolora.host.model import Host, byte_tokenizer, load_host, tiny_host
from evolora.organelles.population import Population
from evolora.host import pretraining
from evolora.host.pretraining import PretrainingConfig, build_tokenizer, loss_of, new_model, pack, pretrain, unpack
from evolora.ecology.cost_forecast import blueprint, forecast
from evolora.ecology.sessions import begin_session, colony, resume_session

MECHANISMS = ('matrix_mixers/semiseparable', 'coefficient_dynamics/delta')
SMALL = PretrainingConfig(hidden=32, layers=2, rows=6, row=128, basics=60, first_stage=40, steps=48)
PROMPTS = ['What is 17 + 25?', 'Hi', 'Sort the letters: dbac', 'Count the words: salt sun door fire fish flower', 'Hi']
EVERY = [f'{framework}/{name}' for framework in VARIANTS for name in VARIANTS[framework]]


def lively(what, seed=0, **shape):
    "A random host with a mechanism, that does not repeat its prompt"
    tokenizer = byte_tokenizer()
    config = dict(vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=2, num_attention_heads=4,
                  intermediate_size=64, max_position_embeddings=512, initializer_range=.5, pad_token_id=0,
                  eos_token_id=1, program=what if '\n' in what else read_program(what).source)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return Host(MechanismForCausalLM(MechanismConfig(**config | shape)), tokenizer, id=f'lively-{what:.40}')


def settled(host, **keywords):
    "Two organelles that change something"
    population, rng = Population(host, capacity=4, **keywords), np.random.default_rng(0)
    for rank in (2, 4):
        one = population.birth(rank=rank, rng=rng)
        population.write(one.id, {n: (A, torch.from_numpy(.2 * rng.standard_normal(B.shape)).float())
                                  for n, (A, B) in population.factors(one.id).items()})
    return population


@pytest.fixture(scope='module', autouse=True)
def one_tokenizer():
    "Every training makes the same one, which takes longer than a step of it"
    made = lru_cache(build_tokenizer)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pretraining, 'build_tokenizer', lambda *seed: deepcopy(made(*seed)))
        yield


@pytest.fixture(scope='module', params=[MECHANISMS[0], pytest.param(MECHANISMS[1], marks=pytest.mark.slow)])
def trained(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp('host') / 'host'
    return SimpleNamespace(folder=pretrain(SMALL, folder, attention=read_program(request.param)), what=request.param)


# --- a folder

def test_a_saved_host_is_loaded_bit_for_bit(trained):
    host, plain = load_host(trained.folder), AutoModelForCausalLM.from_pretrained(trained.folder).eval()
    ids = torch.tensor(host.encode(['What is 3 + 4?']))
    model = new_model(SMALL, build_tokenizer(0), read_program(trained.what))
    model.load_state_dict(load_file(trained.folder / 'model.safetensors'), strict=False)
    with torch.no_grad(): logits = [m(ids).logits for m in (host.model, plain, model.eval())]
    assert torch.equal(logits[0], logits[1]) and torch.equal(logits[0], logits[2])
    assert host.model.program.source == read_program(trained.what).source
    assert host.tokenizer.get_vocab() == build_tokenizer(0).get_vocab()
    assert json.loads((trained.folder / 'config.json').read_text())['model_type'] == 'evolora_mechanism'
    assert not any(p.suffix == '.py' for p in trained.folder.iterdir())
    losses = json.loads((trained.folder / 'pretraining.json').read_text())['losses']
    assert np.mean(losses[-10:]) < losses[0] - .5


@pytest.mark.parametrize('block, kind', [
    ('def matrix(self, q, k, x): return open("canary")', 'name'), ('import os', 'class'),
    ('def matrix(self, q, k, x): return q.__class__', 'attribute'),
    ('def matrix(self, q, k, x):\n    while True: pass', 'grammar')])
def test_a_foul_program_in_a_folder_is_refused_in_one_line(trained, tmp_path, block, kind):
    folder = shutil.copytree(trained.folder, tmp_path / 'foul')
    path = folder / 'config.json'
    source = FRAMEWORKS['matrix_mixers'].program(block)
    path.write_text(json.dumps(json.loads(path.read_text()) | {'program': source}))
    with pytest.raises(ValueError) as error: load_host(folder)
    assert f'({kind}: ' in str(error.value) and '\n' not in str(error.value)
    with pytest.raises(Refused) as error: AutoModelForCausalLM.from_pretrained(folder)
    assert error.value.kind == kind
    with pytest.raises(ValueError, match=kind): forecast(folder)


@pytest.mark.parametrize('program', ['', 'import os\nos.mkdir("canary")\n', 'x' * 20_000, None, 3])
def test_what_is_no_program_is_refused(trained, tmp_path, program, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(trained.folder, tmp_path / 'foul')
    path = folder / 'config.json'
    path.write_text(json.dumps(json.loads(path.read_text()) | {'program': program}))
    with pytest.raises(ValueError, match='cannot load'): load_host(folder)
    assert not (tmp_path / 'canary').exists()


def test_another_mechanism_with_the_same_weights_is_another_host(tmp_path):
    "Softmax and the mean have no parameters of their own"
    softmax = lively('matrix_mixers/softmax')
    softmax.model.save_pretrained(tmp_path / 'a')
    softmax.tokenizer.save_pretrained(tmp_path / 'a')
    before = load_host(tmp_path / 'a').weights_hash()
    path = tmp_path / 'a' / 'config.json'
    path.write_text(json.dumps(json.loads(path.read_text()) | {'program': read_program('controls/mean').source}))
    assert load_host(tmp_path / 'a').weights_hash() != before == softmax.weights_hash()


def test_tensors_that_are_no_parameters_are_saved_with_the_weights(tmp_path):
    block = '''
        def setup(self):
            self.size = torch.arange(self.heads) + 1.
            self.register_buffer('other', torch.ones(2), persistent=False)
        def matrix(self, q, k, x): return causal_softmax(q @ k.mT * self.size[:, None, None])'''
    host = lively(FRAMEWORKS['matrix_mixers'].program(block))
    host.model.save_pretrained(tmp_path)
    again = AutoModelForCausalLM.from_pretrained(tmp_path)
    ids = torch.arange(4, 20)[None]
    with torch.no_grad(): assert torch.equal(host.model(ids).logits, again(ids).logits)


# --- reading whole texts

@pytest.mark.parametrize('what', EVERY)
def test_a_row_does_not_know_its_batch(what):
    host, seeds = lively(what), range(5)
    together = host.generate(PROMPTS, seeds=seeds, max_new_tokens=5)
    assert len(set(together.prompt_tokens.tolist())) > 3
    for i, prompt in enumerate(PROMPTS):
        alone = host.generate([prompt], seeds=[i], max_new_tokens=5)
        assert alone.tokens == [together.tokens[i]] and alone.flops[0] == together.alone[i]
        np.testing.assert_allclose(alone.logprobs[0], together.logprobs[i], atol=1e-4)
    few = host.generate(PROMPTS, seeds=seeds, max_new_tokens=5, chunk=40, rows=3)
    assert few.tokens == together.tokens


@pytest.mark.parametrize('what', ('matrix_mixers/softmax', *MECHANISMS))
def test_decoding_is_the_plain_loop(what):
    host = lively(what)
    made = host.generate(PROMPTS, temperature=0., max_new_tokens=8)
    for ids, tokens in zip(host.encode(PROMPTS), made.tokens):
        text = torch.tensor([ids])
        with torch.no_grad():
            for _ in range(8): text = torch.cat([text, host.model(text).logits[:, -1:].argmax(-1)], 1)
        assert text[0, len(ids):][:len(tokens)].tolist() == tokens and len(tokens) in (8, *[
            i + 1 for i, t in enumerate(tokens) if t in host.ends])


@pytest.mark.parametrize('what', MECHANISMS)
def test_transformers_generate_pads_on_the_left_and_needs_no_cache(what):
    host = lively(what)
    encoded = host.encode(PROMPTS)
    width = max(map(len, encoded))
    ids = torch.tensor([[0] * (width - len(e)) + e for e in encoded])
    mask = torch.tensor([[0] * (width - len(e)) + [1] * len(e) for e in encoded])
    made = host.model.generate(ids, attention_mask=mask, max_new_tokens=8, do_sample=False, eos_token_id=host.ends)
    ours = host.generate(PROMPTS, temperature=0., max_new_tokens=8)
    for row, tokens in zip(made[:, width:].tolist(), ours.tokens): assert row[:len(tokens)] == tokens
    with pytest.raises(ValueError, match='use_cache expected False'):
        host.model.generate(ids, attention_mask=mask, max_new_tokens=2, use_cache=True)


@pytest.mark.parametrize('what', MECHANISMS)
def test_adapters_answer_alone_as_in_a_batch_and_traces_agree(what):
    host = lively(what)
    population = settled(host, targets=('q_proj', 'o_proj', 'gate_proj', 'down_proj'))
    assert population.kinds == ('project', 'output', 'up_proj', 'down_proj')
    who = ['o1', 'o2', None, 'o1', 'o2']
    made = population.generate(PROMPTS, who, seeds=range(5), max_new_tokens=9)
    bare = host.generate(PROMPTS, seeds=range(5), max_new_tokens=9)
    assert made.tokens != bare.tokens and made.tokens[2] == bare.tokens[2]
    for i, (prompt, one) in enumerate(zip(PROMPTS, who)):
        assert population.generate([prompt], [one], seeds=[i], max_new_tokens=9).tokens == [made.tokens[i]]
        tokens = torch.tensor([host.encode([prompt])[0] + made.tokens[i]])
        logits = population.logits(tokens, organelles=[one])[0, -1 - len(made.tokens[i]):-1]
        again = logits.log_softmax(-1)[range(len(made.tokens[i])), made.tokens[i]]
        np.testing.assert_allclose(again.numpy(), made.logprobs[i], atol=1e-4)
    seen = np.zeros(5)
    for trace in population.forward(PROMPTS, made.tokens, who, chunk=100):
        for row, place, logprob in zip(trace.rows.tolist(), trace.places.tolist(), trace.logprobs.tolist()):
            assert abs(logprob - made.logprobs[row][place]) < 1e-4
            seen[row] += 1
        assert {len(x) for x in trace.inputs.values()} == {len(trace)} == {len(trace.hidden)}
    assert seen.tolist() == [len(t) for t in made.tokens]


def test_left_padding_means_nothing_to_logits():
    host = lively(MECHANISMS[0])
    population = settled(host)
    ids = torch.tensor([[0, 0, 0, 40, 41, 42], [50, 51, 52, 53, 54, 55]])
    mask = torch.tensor([[0, 0, 0, 1, 1, 1], [1] * 6])
    padded = population.logits(ids, mask, organelles=['o1', 'o2'])
    alone = population.logits(ids[:1, 3:], organelles=['o1'])
    assert (padded[0, 3:] - alone[0]).abs().max() < 1e-4
    with pytest.raises(ValueError, match='some inside'):
        host.model(ids, attention_mask=torch.tensor([[1, 0, 1, 1, 1, 1], [1] * 6]))


def test_the_engine_takes_the_way_that_the_model_names():
    host = lively(MECHANISMS[0])
    plan = lambda host: Authors([None]).plan([(0,)], [[5, 6, 7]], 2, 100)
    assert type(session(host.model, plan(host))) is WholeRows
    assert type(session(tiny_host('qwen3').model, plan(host))) is not WholeRows


# --- learning

@pytest.mark.parametrize('what', MECHANISMS)
def test_gradients_are_those_of_each_text_by_itself(what):
    "Rows that share prompt and organelle are not packed; backprop is checked against plain autograd over one text"
    host = lively(what)
    population = settled(host, targets=('project', 'output', 'up_proj', 'down_proj'))
    answers = [[70, 71, 1], [72, 1], [73, 74, 75, 1]]
    lesson = Lesson(['ab', 'ab', 'a longer one'], answers, ['o1', 'o1', 'o2'], [1., -1., .5])
    trees = list(plant(population, lesson))
    assert sum(len(t.ids) for t in trees) == 3
    reading = Reading(population, ['o1', 'o2'])
    for t in trees:
        weights = torch.ones(len(t.at))
        together = reading.read(t).detach()
        for row in t.rows.unique().tolist():
            alone = lesson.take([row])
            single, = plant(population, alone)
            one = Reading(population, alone.organelles).read(single).detach()
            assert (together[t.rows == row] - one).abs().max() < 1e-4 and weights.shape == together.shape
    found = credit(population, lesson, 'backprop')
    assert found and (learning_flops(population, lesson, 'backprop') > learning_flops(population, lesson,
                                                                                      'hebbian')).all()
    for rule in ('local', 'node'):
        assert credit(population, lesson, rule, **({'rng': np.random.default_rng(0)} if rule == 'node' else {}))
    assert credit(settled(host, targets=('output', 'down_proj')), lesson, 'hebbian')


# --- costs

@pytest.mark.parametrize('what', EVERY)
def test_the_bill_covers_every_product_and_every_reading_again(what):
    host = lively(what)
    c, meter = host.config, host.meter
    assert type(meter) is WholeMeter and blueprint(host).meter.answer(20, 5) == meter.answer(20, 5)
    ids = torch.arange(4, 24)[None]
    with FlopCounterMode(display=False) as counter, torch.no_grad(): host.model(ids)
    assert counter.get_total_flops() <= meter.forward(20) < 3 * counter.get_total_flops()
    assert meter.answer(20, 5) == sum(meter.forward(n, logits=1) for n in range(20, 25))
    assert meter.passed(20, 5) == 20 + 21 + 22 + 23 + 24 and meter.answer(20, 0) == 0
    short, long = (mechanism_flops(read_program(what), c.hidden_size, 4, tokens) for tokens in (20, 40))
    assert long > 2 * short


def test_a_program_that_looks_at_numbers_has_a_price_too():
    block = '''
        def matrix(self, q, k, x):
            scores = q @ k.mT
            return causal_softmax(scores * 2. if float(q.sum()) > 0 else scores)'''
    program = Program(FRAMEWORKS['matrix_mixers'].program(block))
    assert mechanism_flops(program, 32, 4, 9) > 9 * 4 * 32 * 32 * 2
    host = lively(program.source)
    assert host.generate(PROMPTS, max_new_tokens=2).flops.min() > 0
    with pytest.raises(ValueError, match='forecast expected a mechanism that needs shapes only'): forecast(host)


# --- training

def test_a_document_has_a_row_of_its_own():
    tokenizer = build_tokenizer(0)
    batch, model = pack(SMALL, 0, tokenizer), new_model(SMALL, tokenizer, read_program(MECHANISMS[0]))
    parts = unpack(batch)
    texts = {tuple(batch['ids'][batch['document'] == n].tolist()) for n in range(int(batch['document'].max()) + 1)}
    lone = {tuple(row[:len(text)].tolist()) for p in parts for row in p['ids'] for text in texts
            if row[:len(text)].tolist() == list(text) and not row[len(text):].any()}
    assert lone == texts and all((p['positions'].diff() <= 1).all() for p in parts)
    one = {**batch, 'answer': batch['answer'] & (batch['document'] == 1)}
    shifted = torch.where(batch['document'] == 1, batch['ids'], (batch['ids'] + 7) % len(tokenizer))
    with torch.no_grad(): assert abs(loss_of(model, one) - loss_of(model, {**one, 'ids': shifted})) < 1e-5


class Stop(Exception): pass


def test_training_goes_on_with_the_same_mechanism_only(tmp_path):
    config, mechanism = SMALL.model_copy(update={'steps': 4, 'checkpoint_every': 2}), read_program(MECHANISMS[1])
    def stop(step, loss):
        if step == 3: raise Stop
    straight = load_file(pretrain(config, tmp_path / 'a', attention=mechanism) / 'model.safetensors')
    with pytest.raises(Stop): pretrain(config, tmp_path / 'b', attention=mechanism, on_step=stop)
    for other in (None, read_program(MECHANISMS[0])):
        with pytest.raises(ValueError, match='another --out, or the same --attention') as error:
            pretrain(config, tmp_path / 'b', attention=other)
        assert mechanism.digest in str(error.value) and '\n' not in str(error.value)
    resumed = load_file(pretrain(config, tmp_path / 'b', attention=mechanism) / 'model.safetensors')
    assert all(torch.equal(straight[k], resumed[k]) for k in straight)


@pytest.mark.parametrize('block, kind', [
    ('def finish(self, y, x): return y + self.split(x.mean(1, keepdim=True))', 'causality'),
    ('def finish(self, y, x): return y - self.split(x.sum(1, keepdim=True) * 0 + x.shape[1])', 'causality'),
    ('def matrix(self, q, k, x): return q @ k', 'fails'), ('def forward(self, x): return x[:, :1]', 'shape')])
def test_a_mechanism_that_cheats_or_fails_is_not_trained(tmp_path, block, kind):
    program = Program(FRAMEWORKS['matrix_mixers'].program(block))
    with pytest.raises(Refused) as error: pretrain(SMALL, tmp_path / 'host', attention=program)
    assert error.value.kind == kind and not (tmp_path / 'host').exists()


def test_no_standard_mechanism_cheats():
    for what in EVERY: check_causal(read_program(what), 32, 4, 192)


AHEAD = 'def matrix(self, q, k, x):\n    scores = q @ k.mT * self.entries**-.5\n'
LATE = Program(FRAMEWORKS['matrix_mixers'].program(
    AHEAD + '    return causal_softmax(scores) if x.shape[1] <= 64 else torch.softmax(scores, -1)'))


def test_a_mechanism_that_cheats_on_long_texts_only_is_not_trained(tmp_path, capsys):
    check_causal(LATE, 32, 4)
    for longest in (65, 192):
        with pytest.raises(Refused, match='causality'): check_causal(LATE, 32, 4, longest)
    with pytest.raises(Refused, match='causality'): pretrain(SMALL, tmp_path / 'host', attention=LATE)
    (tmp_path / 'late.py').write_text(LATE.source)
    code, out, err = command(capsys, 'host', 'train', '--attention', tmp_path / 'late.py', '--out', tmp_path / 'other')
    assert (code, out) == (2, '') and 'causal at dim' in err and not (tmp_path / 'other').exists()


# --- the life on it

def test_an_ecology_lives_learns_and_goes_on(trained, tmp_path, monkeypatch):
    monkeypatch.setattr('evolora.tasks.forms.Form.grade', lambda _, task, text: chance_decides(task, text))
    host = load_host(trained.folder, threads=1)
    config = load_config('debug').model_copy(update={
        'cells': ['logic.bool:1', 'regex.recognition:1'], 'max_new_tokens': 8, 'temperature': .5})
    assert forecast(trained.folder, config).value['memory: keys and values'] == 0
    with begin_session(tmp_path / 'straight', host, config, every=1) as straight:
        straight.live(2, log=None)
        whole = straight.ecology.population.weights_hash()
    with begin_session(tmp_path / 'run', host, config, every=1) as first: first.live(1, log=None)
    with resume_session(tmp_path / 'run', every=1) as second:
        second.live(2, log=None)
        assert second.ecology.population.weights_hash() == whole
    assert summary(load(tmp_path / 'run')).loc['GFLOPs, learn'].max() > 0
    population, run = colony(tmp_path / 'run')
    norms = population.norms().delta_norm
    assert (norms > 0).any() and population.kinds == ('project', 'output', 'up_proj', 'down_proj')
    with pytest.raises(ValueError, match='peft export expected an architecture that transformers knows'):
        export(population, 'best', tmp_path / 'out', run=run)
    assert not (tmp_path / 'out').exists()
    population.save(tmp_path / 'saved')
    assert Population.load(tmp_path / 'saved', host).weights_hash() == population.weights_hash()


def command(capsys, *arguments):
    with pytest.raises(SystemExit) as stopped: cli.main(list(map(str, arguments)))
    printed = capsys.readouterr()
    return stopped.value.code, printed.out, printed.err


@pytest.mark.parametrize('trained', MECHANISMS[:1], indirect=True)
def test_the_commands(trained, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / 'mine.py').write_text(variant('matrix_mixers', 'linear'))
    (tmp_path / 'small.yaml').write_text(yaml.safe_dump({'founders': 2, 'capacity': 3, 'cells': ['logic.bool:1'],
                                                         'curriculum': {'copies': 2}, 'market': {'questions': 4},
                                                         'max_new_tokens': 4}))
    threads = torch.get_num_threads()
    assert command(capsys, 'host', 'train', '--attention', 'mine.py', '--steps', 1, '--out', 'host', '--threads',
                   threads)[0] == 0
    assert load_host('host').model.program == read_program('matrix_mixers/linear')
    assert command(capsys, 'run', '--host', trained.folder, '--config', 'small.yaml', '--dry-run')[0] == 0
    assert command(capsys, 'run', '--host', trained.folder, '--config', 'small.yaml', '--generations', 1, '--out',
                   'run')[0] == 0
    assert command(capsys, 'ask', 'run', 'Sort the letters: dbca', '--members', 'o1,host')[0] == 0
    code, out, err = command(capsys, 'export', 'run', 'out')
    assert (code, out) == (2, '') and 'evolora_mechanism' in err and len(err.splitlines()) == 1
    ahead = variant('matrix_mixers').replace('causal_softmax(', 'torch.softmax(')
    ahead = ahead.replace('entries**-.5)', 'entries**-.5, -1)')
    (tmp_path / 'ahead.py').write_text(ahead)
    for what, message in (('nothing', 'which is neither'), ('small.yaml', 'markers'), ('ahead.py', 'causal')):
        code, out, err = command(capsys, 'host', 'train', '--attention', what, '--out', 'other')
        assert (code, out) == (2, '') and message in err and len(err.splitlines()) == 1
    assert not (tmp_path / 'other').exists()
