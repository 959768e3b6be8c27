"What a host is called, where the name leads, and which hosts are refused when they are loaded"
import pytest
import torch
import transformers
from evolora.host.adapters import read_peft_host
from evolora.host.model import Origin, byte_tokenizer, load_host, read_config, tiny_host
from evolora.host.names import HUB, host_id, host_source, public_name
from evolora.organelles.population import Population


def saved(folder, model=None, tokenizer=None):
    "A model folder"
    made = tiny_host('llama')
    (model or made.model).save_pretrained(folder)
    (tokenizer or made.tokenizer).save_pretrained(folder)
    return folder


@pytest.mark.parametrize('name, wanted', [('a/b@c1', 'a/b@c1'), ('gpt2', 'gpt2'),
                                          ('qwen3-0.6b@v1', HUB['qwen3-0.6b'] + '@v1')])
def test_a_revision_stands_behind_the_name(name, wanted):
    assert host_source(name) == host_id(name) == wanted


@pytest.mark.parametrize('name, match', [
    ('a/b@', 'leave it out for the newest'), ('a/b@ c', 'leave it out'), ('a/b@' + 'c' * 101, 'leave it out'),
    ('smollm2-135m-q4@v1', 'one file with one hash')])
def test_what_is_no_revision_is_refused(name, match):
    with pytest.raises(ValueError, match=match): host_source(name)


def test_transformers_is_asked_for_the_revision(tmp_path, monkeypatch):
    "All that is read of a repository is of one revision"
    made, asked = load_host(saved(tmp_path / 'host')), []
    monkeypatch.setattr('evolora.host.model._hub_answers', lambda: False)
    class Stub:
        def __init__(self, given): self.given = given
        def from_pretrained(self, name, **how):
            asked.append((name, how['revision'], how['trust_remote_code'], how['local_files_only']))
            return self.given
    for part, given in (('model.AutoConfig', made.config), ('tokenizer_trial.AutoTokenizer', made.tokenizer),
                        ('model.AutoModelForCausalLM', (made.model, {'missing_keys': []}))):
        monkeypatch.setattr(f'evolora.host.{part}', Stub(given))
    found = load_host('some/model@abc')
    assert read_config('some/model@abc') is made.config
    assert asked == [('some/model', 'abc', False, True)] * 4
    assert (found.id, found.origin.repository) == ('some/model@abc', 'some/model')
    load_host('some/model')
    assert asked[-1][:2] == ('some/model', 'main')


def test_the_precision_is_said(tmp_path):
    model = tiny_host('llama').model.to(torch.bfloat16)
    host = load_host(saved(tmp_path / 'host', model), device='cpu', dtype='float32')
    assert host.dtype == torch.float32 and host.precision == 'float32, saved in bfloat16'
    assert 'weights in float32, saved in bfloat16' in host._repr_markdown_()
    assert load_host(tmp_path / 'host', dtype='bfloat16', device='cpu').precision == 'bfloat16'


def test_a_tokenizer_of_another_model_is_refused(tmp_path):
    "With ids that the model has no vector for"
    config = transformers.LlamaConfig(vocab_size=40, hidden_size=16, intermediate_size=32, num_hidden_layers=1,
                                      num_attention_heads=2, max_position_embeddings=64)
    saved(tmp_path / 'host', transformers.LlamaForCausalLM(config))
    with pytest.raises(ValueError, match='up to 39, got [0-9]+; its tokenizer is') as e: load_host(tmp_path / 'host')
    assert '\n' not in str(e.value)


@pytest.mark.parametrize('decoder', [False, True])
def test_a_model_that_reads_in_both_directions_is_no_host(tmp_path, decoder):
    config = transformers.BertConfig(vocab_size=len(byte_tokenizer()), hidden_size=32, num_hidden_layers=2,
                                     num_attention_heads=2, intermediate_size=64, is_decoder=decoder,
                                     initializer_range=.2)
    saved(tmp_path / 'host', transformers.BertLMHeadModel(config), byte_tokenizer())
    if decoder: assert load_host(tmp_path / 'host').generate(['Hi'], seeds=[1], max_new_tokens=3).tokens[0]
    else:
        with pytest.raises(ValueError, match='bert reads in both directions'): load_host(tmp_path / 'host')


@pytest.mark.parametrize('origin, base, revision', [
    (None, None, None), (Origin('model.safetensors'), None, None),
    (Origin('model.safetensors', repository='some/model', commit='c' * 40), 'some/model', 'c' * 40)])
def test_an_adapter_tells_no_path(tmp_path, origin, base, revision):
    host = load_host(saved(tmp_path / 'mine'))
    if origin: host.origin = origin
    assert host.id == str(tmp_path / 'mine') and public_name(host.id) == 'mine'
    population = Population(host, capacity=1, max_rank=4)
    population.birth()
    population.export_peft('o1', tmp_path / 'adapter')
    wanted = f'{base}@{revision}' if revision else base
    assert read_peft_host(tmp_path / 'adapter') == (wanted, 'mine', host.weights_hash())
    for file in (tmp_path / 'adapter').iterdir(): assert str(tmp_path).encode() not in file.read_bytes()


def test_an_adapter_is_the_same_file_each_time(tmp_path):
    population = Population(tiny_host('llama'), capacity=1, max_rank=4)
    population.birth()
    for i in range(8): population.export_peft('o1', tmp_path / str(i))
    assert len({(tmp_path / str(i) / 'adapter_model.safetensors').read_bytes() for i in range(8)}) == 1
