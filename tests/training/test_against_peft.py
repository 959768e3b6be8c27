"""Trained side by side, adapters become what each would have become alone with peft and torch's AdamW."""
import math
import warnings

import peft
import pytest
import torch

from evolora.experiments.host_zoo import _quiet, zoo_host
from evolora.host.model import load_host
from evolora.training.jobs import expand_jobs
from evolora.training.steps import batch_of
from evolora.training.training import Training

ROWS = [dict(prompt=f'What is {i} + {i % 7}?' + ' Say it.' * (i % 3), completion=f'{i + i % 7}' + '!' * (i % 4))
        for i in range(22)]
JOBS = [dict(name='plain'), dict(name='decayed', weight_decay=.1, rank=2, alpha=4.),
        dict(name='others', betas=[.8, .95], eps=1e-6, rank=5, clip=None, schedule='cosine', warmup=5, seed=3),
        dict(name='clipped', clip=.05, batch=3, rank=4, schedule='constant'), dict(name='slow', rate=1e-4)]


def alone(host, course, first, steps):
    "(losses, factors) of the same job with peft, a step after the other"
    job, data = course.job, course.data
    with warnings.catch_warnings():
        warnings.simplefilter('ignore')
        fan = not isinstance(host.model.get_submodule(next(iter(first))), torch.nn.Linear)
        config = peft.LoraConfig(r=job.rank, lora_alpha=job.alpha, target_modules=[*first], fan_in_fan_out=fan)
        model = peft.get_peft_model(host.model, config)
    try:
        leaf = lambda n, x: model.get_submodule(f'base_model.model.{n}.lora_{x}.default').weight
        for n, (A, B) in first.items(): leaf(n, 'A').data, leaf(n, 'B').data = A.clone(), B.clone()
        leaves = [leaf(n, x) for n in first for x in 'AB']
        adam = torch.optim.AdamW(leaves, lr=1., betas=job.betas, eps=job.eps, weight_decay=job.weight_decay)
        losses = []
        for step in range(steps):
            rows = [(data.prompts[i], data.replies[i]) for i in batch_of(job, len(data), step)]
            width = max(len(p) + len(r) for p, r in rows)
            pad = lambda x, value: torch.tensor([[*own, *[value] * (width - len(own))] for own in x])
            out = model(input_ids=pad([p + r for p, r in rows], 0), use_cache=False,
                        attention_mask=pad([[1] * (len(p) + len(r)) for p, r in rows], 0),
                        labels=pad([[-100] * len(p) + r for p, r in rows], -100))
            adam.zero_grad()
            out.loss.backward()
            if job.clip: torch.nn.utils.clip_grad_norm_(leaves, job.clip)
            for group in adam.param_groups: group['lr'] = job.rate_at(step, steps)
            adam.step()
            losses.append(out.loss.item())
        return losses, {n: (leaf(n, 'A').detach().clone(), leaf(n, 'B').detach().clone()) for n in first}
    finally: model.unload()


@pytest.mark.parametrize('name', ['embedded', 'llama', 'gemma3_text', 'gpt2', 'phi3', 'granite'])
def test_side_by_side_is_as_alone(name):
    with _quiet():
        host = load_host('embedded', device='cpu') if name == 'embedded' else zoo_host(name)
        training = Training(host, expand_jobs(JOBS, data=ROWS, steps=50), chunk=300)
        first = {n: training.factors(n) for n in training.courses}
        while not training.done: training.step()
        losses = training.losses()
        for job, course in training.courses.items():
            wanted, weights = alone(host, course, first[job], 50)
            ours = losses[losses.job == job].loss.tolist()
            assert max(abs(a - b) for a, b in zip(ours, wanted)) < 1e-5 * max(1., *wanted), job
            off = max(float((x - y).abs().max()) for n in weights for x, y in zip(training.factors(job)[n], weights[n]))
            assert off < 1e-5, (job, off)
            assert not math.isclose(ours[0], ours[-1], rel_tol=1e-3)
