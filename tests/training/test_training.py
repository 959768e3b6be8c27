"""Jobs side by side: each ends as it should, whoever else is there."""
import math

import numpy as np
import pytest
import torch

from evolora.host.model import load_host
from evolora.training.jobs import expand_jobs
from evolora.training.live import chart_losses, training_html
from evolora.training.train import identity, resume_training, save_training, train_adapters
from evolora.training.trained import ecology_of, export_all, merged_adapter, population_of, score_adapters
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
    with pytest.raises(ValueError, match='begin again in a new folder'): resume_training(made, tmp_path)


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


# --- what newcomers ran into

def test_a_prompt_too_long_to_be_answered_is_named_before_anything_is_trained(host):
    long = dict(prompt='word ' * 190, completion='x')
    window, n = host.config.get_text_config().max_position_embeddings, len(host.encode([long['prompt']])[0])
    for how in (dict(data=[*ROWS, long], objective='rloo'),
                dict(data=ROWS[:5], metric='accuracy', validation=[long], max_new_tokens=window)):
        with pytest.raises(ValueError, match=f'job one: max_new_tokens expected at most {window - n} .*: {n} tokens'):
            train_adapters(host, [dict(name='good', data=ROWS), dict(max_new_tokens=window - n + 1) | how | dict(
                name='one')], steps=1)


def test_between_equals_the_surer_weights_are_kept(host):
    found = train_adapters(host, data=ROWS, validation=.2, metric='accuracy', rate=1e-4, steps=10,
                           every=2)
    seen = found.losses().dropna(subset='validation')
    best = seen[seen.accuracy == seen.accuracy.max()]
    p = found['adapter'].progress
    assert p.best_step == best.set_index('step').validation.idxmin() and len(best) > 1


def test_an_explicit_metric_is_honoured(host):
    verifier = lambda example, reply: len(reply)
    found = train_adapters(host, data=ROWS, validation=.2, objective='rloo', verifier=verifier, metric='loss', steps=6,
                           every=2, rate=.01, max_new_tokens=4)
    seen = found.losses().dropna(subset='validation').set_index('step').validation
    assert found['adapter'].progress.best == seen.min()
    with pytest.raises(ValueError, match='metric expected accuracy where validation has no completions'):
        train_adapters(host, data=ROWS, validation=[dict(prompt='a')], objective='rloo', verifier=verifier,
                       metric='loss', steps=1)


def test_jobs_that_are_judged_in_different_ways_have_no_best(host):
    for jobs in ([dict(name='a', validation=.2), dict(name='b', validation=.3)],
                 [dict(name='a', validation=.2, metric='accuracy'), dict(name='b', validation=.2)],
                 [dict(name='a'), dict(name='b', data=ROWS[:9])]):
        found = train_adapters(host, jobs, data=ROWS, steps=1)
        with pytest.raises(ValueError, match='judged alike'): found.best()
        assert chart_losses(found) is not None and 'Training' in found._repr_mimebundle_()['text/plain']


def test_turns_of_a_conversation_stay_on_one_side(host):
    talk = [dict(messages=[dict(role='user', content=f'hello {i}'), dict(role='assistant', content='hi'),
                           dict(role='user', content=f'q{i}'), dict(role='assistant', content='yes')])
            for i in range(20)]
    found = Training(host, expand_jobs(data=talk, validation=.3, steps=1))['adapter']
    known = [{e.row for e in part.examples} for part in (found.data, found.held)]
    assert not known[0] & known[1] and len(found.held) == 12 and len(found.data) == 28


@pytest.mark.parametrize('how, said', [
    (dict(warmup=50, steps=5), 'warmup expected less than the 5 steps'),
    (dict(lr=.1), 'did you mean rate'), (dict(learning_rate=.1), 'did you mean rate'),
    (dict(rate=(1e-3, 1e-2), name=['a', 'A']), 'whatever the case'), (dict(chunk=0), 'chunk expected'),
    (dict(data=[dict(prompt='\ud800', completion='y')]), 'row 1: expected text, got half of a character'),
    (dict(data=[*ROWS, dict(prompt='x', completoin='y')]), 'first row 41'),
    (dict(data=[dict(prompt='x', chosen='a', rejected='a')], objective='dpo'), 'replies that differ')])
def test_what_cannot_be_meant_is_said(host, how, said):
    with pytest.raises(ValueError, match=said) as error: train_adapters(host, **dict(data=ROWS, steps=2) | how)
    assert '\n' not in str(error.value)


def test_grids_of_any_kind(tmp_path):
    for name in ('a', 'b'): (tmp_path / f'{name}.jsonl').write_text('{"prompt": "x", "completion": "y"}\n')
    files = [str(tmp_path / f'{name}.jsonl') for name in ('a', 'b')]
    assert [job.data for job in expand_jobs(data=files)] == files
    assert [job.data for job in expand_jobs(data=['math:1', 'word.count:1'])] == [['math:1', 'word.count:1']]
    assert [job.seed for job in expand_jobs(data=ROWS, seed=range(3))] == [0, 1, 2]
    assert [job.rate for job in expand_jobs(data=ROWS, rate=np.array([1e-3, 1e-2]))] == [1e-3, 1e-2]
    assert [job.targets for job in expand_jobs(data=ROWS, targets=[['q_proj'], 'all-linear'])] == [['q_proj'],
                                                                                                    'all-linear']
    with pytest.raises(ValueError, match='at least one, got an empty list'): expand_jobs([], data=ROWS)


def test_a_checkpoint_whose_weights_were_changed_or_of_other_passes_is_refused(host, tmp_path):
    jobs = expand_jobs(data=ROWS, steps=2)
    one = Training(host, jobs)
    one.step()
    path = save_training(one, tmp_path)
    with pytest.raises(ValueError, match='another chunk'): resume_training(Training(host, jobs, chunk=16), tmp_path)
    data = bytearray(path.read_bytes())
    data[-40] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match='begin again in a new folder'): resume_training(Training(host, jobs), tmp_path)


def test_all_are_scored_on_one_set_as_each_is_alone(host):
    found = train_adapters(host, [dict(name='a', rank=4), dict(name='b', rate=.01, alpha=8.),
                                  dict(name='c', targets=['o_proj'], blocks=2)], data=ROWS[:20], steps=5)
    table = score_adapters(found, ROWS[20:], accuracy=True, max_new_tokens=4)
    for name in 'abc':
        population, ids = population_of(found, [name])
        made = population.generate([r['prompt'] for r in ROWS[20:]], [ids[name]] * 20, temperature=0., max_new_tokens=4)
        assert table.accuracy[name] == np.mean([t.strip() == r['completion'] for t, r in zip(made.texts, ROWS[20:])])
    held = train_adapters(host, [dict(name='a', rank=4, validation=ROWS[20:])], data=ROWS[:20], steps=5, every=5)
    assert abs(held['a'].progress.validation - table.loss['a']) < 1e-4
