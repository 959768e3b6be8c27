"""The host with an adapter added in: the same answers, in every architecture and precision, or nothing at all."""
import subprocess
import sys

import pytest
import torch
from safetensors import SafetensorError
from transformers import GPT2Config, GPT2LMHeadModel

from evolora.ecology.variation import OPERATORS
from evolora.evaluation import merged_export as module
from evolora.evaluation.merged_export import MERGED, fold, write_merged
from evolora.evaluation.peft_export import export
from evolora.host.mechanisms.mechanism_model import MechanismConfig, MechanismForCausalLM
from evolora.host.mechanisms.program_source import read_program
from evolora.host.model import ARCHITECTURES, Host, byte_tokenizer, load_host, tiny_host
from evolora.organelles.population import Population
from evolora.utils.randomness import stream

ASKED = ['What is 2 + 3?', 'Sort the letters: jghn', 'héllo = ?']


def one(host, rank=3, step=.6, **how):
    "A mutant alone on a host"
    population = Population(host, capacity=1, max_rank=4, **how)
    population.birth(rank=rank)
    population.write('o1', OPERATORS['gaussian'](population.factors('o1'), rng=stream(rank), step=step))
    return population


def gpt2():
    config = GPT2Config(vocab_size=259, n_embd=16, n_layer=2, n_head=2, n_positions=128, eos_token_id=1, bos_token_id=1,
                        initializer_range=.2)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Host(GPT2LMHeadModel(config), byte_tokenizer(), id='tiny-gpt2')


def mechanism():
    config = MechanismConfig(hidden_size=32, num_hidden_layers=1, vocab_size=259, eos_token_id=1,
                             program=read_program('matrix_mixers/cauchy').source)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return Host(MechanismForCausalLM(config), byte_tokenizer(), id='strange')


HOSTS = {**{a: (lambda a=a: tiny_host(a)) for a in ARCHITECTURES}, 'gpt2': gpt2, 'mechanism': mechanism,
         'embedded': lambda: load_host('embedded', threads=1)}
TARGETS = {'gpt2': ('c_attn', 'c_proj', 'c_fc')}


@pytest.mark.parametrize('kind', HOSTS)
def test_a_merged_folder_answers_as_host_and_adapter(kind, tmp_path):
    host = HOSTS[kind]()
    population = one(host, **({'targets': TARGETS[kind]} if kind in TARGETS else {}))
    before = host.weights_hash()
    write_merged(population, tmp_path / 'out')
    assert host.weights_hash() == before
    other = load_host(tmp_path / 'out', threads=1)
    moved = 0.
    for ids in host.encode(ASKED):
        ids = torch.tensor([ids])
        ours, bare = (population.logits(ids, organelles=[who]) for who in ('o1', None))
        with torch.no_grad(): theirs = other.model(input_ids=ids).logits
        assert torch.allclose(ours, theirs, atol=1e-4 * float(ours.abs().max()))
        moved = max(moved, float((ours - bare).abs().max()))
    assert moved > .01
    how = dict(temperature=0, max_new_tokens=3)
    ours, theirs = population.generate(ASKED, organelles=['o1'] * 3, **how), other.generate(ASKED, **how)
    sure = ours.margins > 1e-4                  # a tie may fall either way
    assert [t for t, s in zip(ours.tokens, sure) if s] == [t for t, s in zip(theirs.tokens, sure) if s] and sure.any()


def test_plain_transformers_needs_nothing_else(tmp_path):
    population = one(load_host('embedded', threads=1))
    folder = export(population, 'o1', tmp_path / 'a, "strange" = näme', layout=MERGED, n=24)
    assert len({p.stat().st_mode for p in folder.iterdir() if p.is_file()}) == 1        # a server reads it, too
    code = ("import sys, torch\nfrom transformers import AutoModelForCausalLM, AutoTokenizer\n"
            "t, m = (c.from_pretrained(sys.argv[1]) for c in (AutoTokenizer, AutoModelForCausalLM))\n"
            "ids = t.apply_chat_template([{'role': 'user', 'content': 'Sort the letters: jghn'}],\n"
            "    add_generation_prompt=True, return_tensors='pt', return_dict=True)\n"
            "out = m.generate(**ids, max_new_tokens=16, do_sample=False)[0, ids['input_ids'].shape[1]:]\n"
            "assert not {'evolora', 'peft'} & set(sys.modules)\nprint(t.decode(out, skip_special_tokens=True))")
    done = subprocess.run([sys.executable, '-c', code, str(folder)], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    ours = population.generate(['Sort the letters: jghn'], organelles=['o1'], temperature=0, max_new_tokens=16)
    assert done.stdout.strip() == ours.texts[0].strip()
    assert {p.suffix for p in folder.iterdir()} <= {'.json', '.safetensors', '.md', '.jinja'}


@pytest.mark.parametrize('rank', [1, 2, 4])
def test_ranks_differ_and_what_was_never_changed_adds_nothing(rank):
    host = tiny_host('qwen2')
    population = Population(host, capacity=2, max_rank=4)
    population.birth(rank=rank)
    mine = host.model.state_dict()
    assert all(torch.equal(w, mine[n]) for n, w in fold(population, 'o1').items())
    population.write('o1', OPERATORS['gaussian'](population.factors('o1'), rng=stream(rank), step=.6))
    for name, (A, B) in population.factors('o1').items():
        added = fold(population, 'o1')[f'{name}.weight'] - mine[f'{name}.weight']
        assert torch.allclose(added, 8. / rank * B @ A, atol=1e-5) and torch.linalg.matrix_rank(added, tol=1e-4) == rank


def test_sixteen_bits_are_kept_and_rounded_once(tmp_path):
    host = tiny_host('llama')
    host.model.to(torch.bfloat16)
    population = one(host, step=.2)
    folder = export(population, 'o1', tmp_path / 'out', layout=MERGED, n=24)
    other = load_host(folder, threads=1, dtype='bfloat16')
    assert other.dtype == torch.bfloat16 and 'saved in bfloat16' in (folder / 'README.md').read_text()
    for name, (A, B) in population.factors('o1').items():
        exact = host.model.get_submodule(name).weight.float() + population.scale('o1') * (B.float() @ A.float())
        assert torch.equal(other.model.get_submodule(name).weight, exact.to(torch.bfloat16))


def test_what_answers_otherwise_is_not_left_behind(tmp_path, monkeypatch):
    population = one(tiny_host('llama'))
    monkeypatch.setattr(module, 'fold', lambda population, id: population.host.model.state_dict())  # nothing added
    with pytest.raises(ValueError, match='expected the same log-probabilities of the merged folder, got others'):
        export(population, 'o1', tmp_path / 'out', layout=MERGED, n=24)
    assert not list(tmp_path.iterdir())


def test_shared_packed_and_overflowing_weights_are_refused_before_anything_is_asked(tmp_path, monkeypatch):
    monkeypatch.setattr('evolora.evaluation.peft_export.measured', lambda *_, **__: pytest.fail('it was asked'))
    tied = Population(tiny_host('gemma3'), capacity=1, targets=('q_proj', 'lm_head'))
    tied.birth(rank=1)
    packed = one(tiny_host('llama'))
    linear = packed.host.model.get_submodule(next(iter(packed.shapes)))
    linear.weight = torch.nn.Parameter(linear.weight.to(torch.int8), requires_grad=False)
    for population, said in ((tied, 'got lm_head, which shares'), (packed, 'weights in 16 or 32 bits, got torch.int8')):
        with pytest.raises(ValueError, match=said): export(population, 'o1', tmp_path / 'out', layout=MERGED, n=24)
    large = one(tiny_host('llama'))
    large.host.model.half()
    large.write('o1', {n: (A + 300, B + 300) for n, (A, B) in large.factors('o1').items()})
    with pytest.raises(ValueError, match='float16 can hold, got NaN or infinity in model'): fold(large, 'o1')
    assert not list(tmp_path.iterdir())


def test_an_existing_folder_stays_as_it_is(tmp_path):
    (tmp_path / 'out').mkdir()
    with pytest.raises(ValueError, match='which exists; choose another'):
        export(one(tiny_host('llama')), 'o1', tmp_path / 'out', layout=MERGED, n=24)
    assert not list((tmp_path / 'out').iterdir())


def test_a_full_disk_is_one_error_and_leaves_nothing(tmp_path, monkeypatch):
    host = tiny_host('qwen2')
    population = Population(host, capacity=2, max_rank=4)
    population.birth()
    def full(*_, **__): raise SafetensorError('I/O error: No space left on device (os error 28)')
    monkeypatch.setattr(type(host.model), 'save_pretrained', full)
    with pytest.raises(OSError, match='No space left'): export(population, 'o1', tmp_path / 'out', layout=MERGED, n=24)
    assert not [*tmp_path.iterdir()]
