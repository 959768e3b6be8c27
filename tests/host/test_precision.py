"""What a host is computed in: what it was saved in where the machine is good at that"""
import pytest
import torch

from evolora.ecology.cost_forecast import blueprint
from evolora.host import precision
from evolora.experiments.reopened import reopen
from evolora.experiments.speed import workload
from evolora.host.model import load_host, recorded_host, tiny_host
from evolora.organelles.learning_trial import check_learning
from evolora.organelles.population import Population
from evolora.host.precision import host_device, host_dtype, margin_of


def kept(folder, dtype):
    host = tiny_host()
    host.model.to(dtype).save_pretrained(folder)
    host.tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize('able', [True, False])
@pytest.mark.parametrize('saved', [torch.bfloat16, torch.float16, torch.float32])
def test_a_processor_that_multiplies_bfloat16_does(able, saved, tmp_path, monkeypatch):
    monkeypatch.setattr(precision.torch.cpu, 'get_capabilities', lambda: {'avx2': True, 'avx512_bf16': able})
    wanted = torch.bfloat16 if able and saved == torch.bfloat16 else torch.float32
    host = load_host(kept(tmp_path, saved), device='cpu')
    assert host.dtype == wanted and host.origin.saved == str(saved).removeprefix('torch.')
    if not torch.cuda.is_available(): assert blueprint(tmp_path).dtype == wanted        # and so says the forecast
    assert load_host(tmp_path, device='cpu', dtype='float32').dtype == torch.float32


def test_what_is_unknown_is_exact():
    assert host_dtype(device=torch.device('cpu')) == torch.float32
    assert host_dtype(device=torch.device('meta'), saved='bfloat16') == 'auto'


@pytest.mark.parametrize('read, name', [(host_device, 'meta'), (host_device, 'x\x1b'), (host_dtype, 'float8_e4m3fn'),
                                        (host_dtype, 'meta'), (host_dtype, 'int8')])
def test_a_device_without_values_and_a_type_that_nothing_computes_in_are_refused(read, name):
    with pytest.raises(ValueError, match='expected .*, got .*; leave it out') as error: read(name)
    assert '\n' not in str(error.value)


def test_learning_is_right_in_bfloat16(tmp_path):
    host = load_host(kept(tmp_path, torch.bfloat16), device='cpu', dtype='bfloat16')
    check_learning(Population(host, capacity=2, max_rank=4), 'backprop')


def test_a_decision_that_turns_with_the_batch_was_close():
    host, prompts = load_host('embedded', dtype='bfloat16', device='cpu'), workload(1, 64)
    together = host.generate(prompts, temperature=0, max_new_tokens=8)
    alone = [host.generate([p], temperature=0, max_new_tokens=8) for p in prompts]
    turned = [i for i, one in enumerate(alone) if one.tokens[0] != together.tokens[i]]
    assert together.close == margin_of(torch.bfloat16) > margin_of(torch.float16) > margin_of(torch.float32)
    assert all(min(together.margins[i], alone[i].margins[0]) < together.close for i in turned)
    # And the closest decisions of all rows move by less than that, turned or not.
    assert max(abs(together.margins[i] - alone[i].margins[0]) for i in range(64) if i not in turned) < together.close


@pytest.mark.parametrize('then, now', [(torch.float32, True), (torch.bfloat16, False)])
def test_what_another_machine_computed_is_opened_as_it_was(tmp_path, monkeypatch, then, now):
    "An adapter and a trained folder hold the hash of their host's weights, in the precision of then"
    folder = kept(tmp_path / 'host', torch.bfloat16)
    population = Population(load_host(folder, device='cpu', dtype=then), capacity=1, max_rank=4)
    population.export_peft(population.birth(rank=2).id, tmp_path / 'adapter')
    weights = population.host.weights_hash()
    monkeypatch.setattr(precision.torch.cpu, 'get_capabilities', lambda: {'avx512_bf16': now})
    assert load_host(folder, device='cpu').dtype != then
    found = reopen(tmp_path / 'adapter', host=folder)
    assert (found.host.dtype, found.host.weights_hash()) == (then, weights)
    assert recorded_host(folder, device='cpu', weights='of another').dtype != then        # which is then refused
