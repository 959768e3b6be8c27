"""One pass for many adapters computes what the model with changed weights would, whatever the architecture."""
import numpy as np
import pytest
import torch

from evolora.experiments.host_zoo import ZOO, _quiet, zoo_host
from evolora.host.adapters import ALL_LINEAR
from evolora.host.model import load_host, tiny_host
from evolora.training.passes import Fleet, Passes, Text, _groups


def some_texts(adapters, rows, seed=0):
    rng = np.random.default_rng(seed)
    some = lambda low, high: tuple(rng.integers(3, 200, rng.integers(low, high)).tolist())
    return [Text(i, some(2, 20), some(1, 9)) for i in range(adapters) for _ in range(rows)]


def moved(host, ranks, blocks=None):
    fleet = Fleet(host, ranks, [8. + r for r in ranks], range(len(ranks)), (ALL_LINEAR,), blocks)
    rng = torch.Generator().manual_seed(0)
    for n, B in fleet.B.items():
        for i, r in enumerate(ranks): B[i, :r] = .1 * torch.randn(r, B.shape[2], generator=rng)
    return fleet


def alone(host, fleet, texts):
    "Log-probabilities by the model with changed weights, a text after the other"
    found = []
    for t in texts:
        changed = {}
        for n in fleet.shapes:
            linear = isinstance(m := host.model.get_submodule(n), torch.nn.Linear)      # GPT-2 keeps them turned
            weight, more = m.weight, fleet.scale[t.adapter, 0, 0] * fleet.B[n][t.adapter].mT @ fleet.A[n][t.adapter]
            changed[f'{n}.weight'] = weight + (more if linear else more.mT).to(weight.dtype)
        with torch.no_grad(): logits = torch.func.functional_call(
            host.model, changed, (torch.tensor([t.read]),), dict(use_cache=False)).logits[0, len(t.prompt) - 1:]
        found.append(float(logits.float().log_softmax(-1).gather(-1, torch.tensor(t.reply)[:, None]).sum()))
    return np.array(found)


@pytest.mark.parametrize('blocks', [None, 1])
@pytest.mark.parametrize('name', sorted(ZOO))
def test_every_animal_is_read_as_it_is(name, blocks):
    with _quiet():
        host = zoo_host(name)
        fleet, texts = moved(host, [2, 4], blocks), some_texts(2, 3)
        passes = Passes(host, fleet, chunk=60)
        wanted = alone(host, fleet, texts)
        for _ in range(2): assert abs(passes(texts)[0] - wanted).max() < 2e-4 * max(1, abs(wanted).max())
        if blocks: assert passes.below.begin and passes.below.computed == sum(len(t) for t in {t.read for t in texts})


def test_adapters_do_not_touch_each_other():
    host = load_host('embedded', device='cpu')
    fleet, texts = moved(host, [4, 4, 2]), some_texts(3, 4)
    together, grads = Passes(host, fleet)(texts, lambda numbers, sums: np.ones(len(numbers)))
    n = next(iter(fleet.shapes))
    for B in fleet.B.values(): B[1] = torch.nan
    after, others = Passes(host, fleet)(texts, lambda numbers, sums: np.ones(len(numbers)))
    ok = [i for i, t in enumerate(texts) if t.adapter != 1]
    assert np.isnan(after[[i for i in range(12) if i not in ok]]).all()
    assert abs(after[ok] - together[ok]).max() < 1e-4
    assert all(torch.allclose(a[[0, 2]], b[[0, 2]], atol=1e-4) for a, b in zip(grads[n], others[n]))


@pytest.mark.parametrize('chunk', [1, 40, 300, 10_000])
@pytest.mark.parametrize('unit', [1, 2])
def test_groups_hold_every_text_once_and_units_stay_together(chunk, unit):
    texts = some_texts(5, 6, seed=1)
    groups = list(_groups(texts, chunk, unit))
    rows = [i for group in groups for part in group for i in part]
    assert sorted(rows) == list(range(30))
    for group in groups:
        assert all(len({texts[i].adapter for i in part}) == 1 for part in group)
        assert len({texts[part[0]].adapter for part in group}) == len(group)        # each adapter comes once
        assert all(part[k + 1] == part[k] + 1 for part in group for k in range(0, len(part), unit) if unit == 2)
        size = len(group) * max(map(len, group)) * max(len(texts[i].read) for part in group for i in part)
        assert size <= chunk or max(map(len, group)) == unit and len(group) == 1


def test_what_is_kept_below_has_a_limit():
    host = tiny_host()
    passes = Passes(host, moved(host, [2], 1))
    passes.below.room = 20_000
    texts = some_texts(1, 40)
    first = passes(texts)[0]
    assert passes.below.used <= 20_000 and abs(passes(texts)[0] - first).max() < 1e-5


def test_bfloat16_hosts_learn_in_float32():
    host = load_host('embedded', device='cpu', dtype='bfloat16')
    fleet = moved(host, [4, 4])
    sums, grads = Passes(host, fleet)(some_texts(2, 3), lambda numbers, sums: np.ones(len(numbers)))
    assert np.isfinite(sums).all() and all(x.dtype == torch.float32 for pair in grads.values() for x in pair)
