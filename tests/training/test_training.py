"""Jobs side by side: each ends as it should, whoever else is there."""
import math

import numpy as np
import pytest
import torch

from evolora.host.model import load_host
from evolora.training.jobs import expand_jobs
from evolora.training.live import chart_losses, training_html
from evolora.training.train import identity, resume_training, save_training, train_adapters
from evolora.training.trained import ecology_of, export_all, merged_adapter, population_of
from evolora.training.training import Training
from evolora.utils.files import locked

ROWS = [dict(prompt=f'What is {i} plus {i % 7}?', completion=str(i + i % 7)) for i in range(40)]


@pytest.fixture(scope='module')
def host(): return load_host('embedded', device='cpu')


def same(a, b): return all(torch.equal(x, y) for n in a for x, y in zip(a[n], b[n]))


def test_neighbours_change_nothing_but_rounding(host):
    alone = train_adapters(host, [dict(name='a', rank=4)], data=ROWS, steps=20, rate=.003)
    among = train_adapters(host, [dict(name='b', rank=8, seed=5), dict(name='a', rank=4), dict(name='c', rate=.05)],
                           data=ROWS, steps=20, rate=.003)
    for n, (A, B) in alone.factors('a').items():
        assert (A - among.factors('a')[n][0]).abs().max() < 1e-4 and (B - among.factors('a')[n][1]).abs().max() < 1e-4


def test_so_many_at_a_time_come_to_the_same(host):
    settings = dict(data=ROWS, validation=.2, steps=12, rate=[1e-4, 1e-3, 1e-2], patience=2, every=2)
    all_, two = train_adapters(host, **settings), train_adapters(host, parallel=2, **settings)
    assert all_.table().state.tolist() == two.table().state.tolist()
    assert np.allclose(all_.table().best, two.table().best, atol=1e-4)
    seen = []
    train_adapters(host, parallel=2, on_step=lambda t: seen.append(len(t._in('running'))), **settings)
    assert max(seen) <= 2


def test_patience_keeps_the_best_and_frees_a_place(host):
    found = train_adapters(host, data=ROWS, validation=.2, steps=60, rate=[.05, .001], every=3, patience=2, parallel=1)
    p = found['rate=0.05'].progress
    assert p.state == 'stopped' and p.step == p.best_step + 6 and 'no progress' in p.note
    at = found.losses().dropna(subset='validation').query("job == 'rate=0.05'").set_index('step').validation
    assert at[p.best_step] == at.min() == p.best


@pytest.mark.parametrize('objective', ['rloo', 'rft'])
def test_rewards_are_learned_from(host, objective):
    longer = lambda example, reply: float('7' in reply)
    found = train_adapters(host, data=ROWS, validation=.2, objective=objective, verifier=longer, steps=25, batch=8,
                           samples=8, rate=.01, max_new_tokens=8)
    seen = found.losses().dropna(subset='accuracy')
    steps = seen.dropna(subset='rate').accuracy
    assert steps.tail(5).mean() > steps.head(5).mean() + .2
    assert found.table().best.iloc[0] == seen[seen.rate.isna()].accuracy.max()


def test_preferences_are_learned(host):
    rows = [dict(prompt=f'What is {i} plus 1?', chosen='yes', rejected=str(i + 1)) for i in range(24)]
    found = train_adapters(host, data=rows, validation=.25, objective='dpo', steps=20, rate=.003)
    losses = found.losses()
    assert abs(losses.loss.dropna().iloc[0] - math.log(2)) < 1e-4           # nobody is preferred at first
    assert found.table().best.iloc[0] < .2


@pytest.mark.parametrize('broken, note', [(lambda e, r: 1 / 0, 'ended in ZeroDivisionError'),
                                          (lambda e, r: math.nan, 'expected to give a number')])
def test_a_verifier_that_fails_ends_its_own_job(host, broken, note):
    found = train_adapters(host, [dict(name='bad', objective='rloo', verifier=broken), dict(name='good')], data=ROWS,
                           steps=3, max_new_tokens=4)
    assert found.table().state.tolist() == ['failed', 'done'] and note in found['bad'].progress.note
    assert found.best() == 'good' and 'failed' in training_html(found)


def test_who_blew_up_is_not_the_best(host):
    found = train_adapters(host, data=ROWS, validation=.2, rate=[1e-3, 50.], steps=30)
    assert found.table().state.tolist() == ['done', 'failed'] and found.best() == 'rate=0.001'
    assert 'rate below 50' in found['rate=50'].progress.note


def test_where_all_fail_and_where_nothing_was_learned_it_is_said(host):
    with pytest.raises(ValueError, match='all failed; adapter: its verifier ended in KeyError'):
        train_adapters(host, data=ROWS, objective='rloo', verifier=lambda e, r: {}['x'], steps=2, max_new_tokens=4)
    never = train_adapters(host, data=ROWS, objective='rloo', verifier=lambda e, r: 0, steps=2, max_new_tokens=4)
    assert 'nothing was learned' in never.table().note.iloc[0]
    with pytest.raises(ValueError, match='parallel expected a whole number from 1, got 0'):
        train_adapters(host, data=ROWS, parallel=0)


def test_halving_goes_by_what_they_are_now_and_only_among_likes(host):
    found = train_adapters(host, data=ROWS, validation=.2, rate=[1e4, 1e-5, 1e-3], halving=3, steps=8)
    assert found['rate=0.001'].progress.state == 'done'
    jobs = Training(host, expand_jobs(data=ROWS, validation=.2, rate=[1e-4, 1e-3], steps=8), halving=2)
    for c, best, now in zip(jobs.courses.values(), (.5, .9), (2., .9)):     # the first was better once
        c.progress.state, c.progress.best, c.progress.validation = 'paused', best, now
    jobs._pause()
    assert [c.progress.state for c in jobs.courses.values()] == ['stopped', 'waiting']
    with pytest.raises(ValueError, match='judged alike'):
        train_adapters(host, [dict(name='a', validation=.2), dict(name='b', validation=.3)], data=ROWS, halving=2)


@pytest.mark.parametrize('names', [['7', '1'], ['NA', '007'], ['nan', 'True']])
def test_names_that_look_like_numbers_stay_names(host, tmp_path, names):
    jobs = expand_jobs([dict(name=name) for name in names], data=ROWS, steps=2)
    one, two = Training(host, jobs), Training(host, jobs)
    one.step()
    save_training(one, tmp_path)
    resume_training(two, tmp_path)
    assert two.losses().job.tolist() == names and two.losses().equals(one.losses())


def test_a_folder_belongs_to_one_training_at_a_time(host, tmp_path):
    with locked(tmp_path), pytest.raises(ValueError, match='is at work'):
        train_adapters(host, data=ROWS, steps=1, out=tmp_path)


def test_halving_counts_down(host):
    settings = dict(data=ROWS, validation=.2, steps=18, rate=[1e-5, 1e-4, 3e-4, 1e-3, 3e-3, 1e-2], seed=[0, 1, 2])
    found = train_adapters(host, halving=3, **settings)
    steps = found.table().step.value_counts().to_dict()
    assert steps == {2: 12, 6: 4, 18: 2} and len(found.courses) == 18
    assert found.best() in found.table().query('step == 18').index


def test_a_checkpoint_of_all_kinds_of_jobs_is_whole(host, tmp_path):
    kinds = [dict(name='plain'), dict(name='narrow', targets=['o_proj'], blocks=2, rank=2),
             dict(name='asks', objective='rloo', max_new_tokens=4)]
    jobs = expand_jobs(kinds, data=ROWS[:15], validation=.2, steps=9, batch=3, every=2)     # more than one epoch
    one, two = Training(host, jobs), Training(host, jobs)
    for _ in range(5): one.step()
    save_training(one, tmp_path)
    resume_training(two, tmp_path)
    assert identity(one) == identity(two) and one.losses().equals(two.losses())
    while not one.done: one.step(), two.step()
    assert all(same(one.factors(n), two.factors(n)) for n in one.courses) and one.table().equals(two.table())


@pytest.mark.parametrize('damage', [lambda p: p.write_bytes(p.read_bytes()[:200]), lambda p: p.write_bytes(b'{}'),
                                    lambda p: p.with_name('losses.csv').unlink()])
def test_a_damaged_folder_is_refused_in_one_line(host, tmp_path, damage):
    made = Training(host, expand_jobs(data=ROWS, steps=2))
    made.step()
    damage(save_training(made, tmp_path))
    with pytest.raises(ValueError, match='remove it to begin again'): resume_training(made, tmp_path)


def test_what_comes_of_it(host, tmp_path):
    found = train_adapters(host, [dict(name='a', alpha=8.), dict(name='b', alpha=32., rank=4)], data=ROWS, steps=6)
    population, ids = population_of(found)
    delta = population.delta(ids['b'])
    for n, (A, B) in found.factors('b').items(): assert torch.allclose(delta[n], 8. * B @ A, atol=1e-5)
    assert export_all(found, tmp_path / 'all') == dict(a='', b='')
    assert export_all(found, tmp_path / 'all') == dict(a='there already', b='there already')
    factors, kept = merged_adapter(found, ['a', 'b'], rank=12)
    assert abs(kept - 1) < 1e-4 and next(iter(factors.values()))[0].shape[0] == 12
    n = next(iter(factors))
    mean = (population.delta(ids['a'])[n] + delta[n]) / 2
    assert torch.allclose(population.alpha / 12 * factors[n][1] @ factors[n][0], mean, atol=1e-4)


def test_founders_are_the_adapters_that_were_trained(host):
    found = train_adapters(host, [dict(name='a', alpha=8.), dict(name='b', alpha=32., rank=4)], data=ROWS, steps=4)
    ecology = ecology_of(found, ['b', 'a'], 'debug')
    delta = ecology.population.delta(ecology.population.ids[0])
    for n, (A, B) in found.factors('b').items(): assert torch.allclose(delta[n], 8. * B @ A, atol=1e-5)
    assert len(ecology.population) == 2 and ecology.population[ecology.population.ids[0]].rank == 4


def test_the_picture_is_of_all(host):
    found = train_adapters(host, data=ROWS, validation=.2, steps=4, rate=[1e-3, 1e-2])
    spec = chart_losses(found).to_dict()
    assert 'on validation examples' in spec['title']['subtitle']
    assert all(n in spec['description'] for n in found.courses)
    assert 'no step' in chart_losses(Training(host, expand_jobs(data=ROWS))).to_dict()['description']
