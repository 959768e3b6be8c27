"""Who leaves may come back: what is kept, when it wakes, what that costs, and that nothing is made of nothing."""
import math
from collections import Counter

import numpy as np
import pytest

from evolora.ecology.checkpoint_files import read_checkpoint, write_checkpoint
from evolora.ecology.config import changed_config, load_config
from evolora.ecology.ecology import Ecology
from evolora.ecology.parts import Graded
from evolora.host.model import load_host
from evolora.organelles.traits import Traits
from evolora.society.archive import MEASURES, Archive, Played, cells_of, largest, measured

SMALL = {'founders': 4, 'founder_step': .6, 'capacity': 4, 'cells': ['string.sort:1', 'word.count:1'],
         'market': {'protect': 1}, 'max_new_tokens': 8}


@pytest.fixture(scope='module')
def host(): return load_host('embedded', threads=1)


@pytest.fixture(scope='module')
def habits(): return load_host('habits', threads=1)


def grown(host, **knobs):
    "An ecology with an archive, whose organelles count as having learned"
    e = Ecology(host, changed_config(load_config('debug'), SMALL | {'society': {'archive': knobs}}))
    e.plasticity.own[:] = 8
    return e, e.society['archive']


def answers(ecology, who, n=6):
    "Right answers that one would give, as the market sees them"
    prompts = [f'Sort the letters: {w}' for w in ('bad', 'cab', 'feed', 'hide', 'jade', 'bead', 'chef', 'gab')[:n]]
    made = ecology.population.generate(prompts, [who] * n, temperature=0., max_new_tokens=8)
    return [Graded('string.sort', p, t, True, 'o1', .1) for p, t in zip(prompts, made.tokens)]


def scripted(archive, monkeypatch, table):
    "Likelihoods by the name that an organelle has or had, whatever is asked"
    def scored(population, rows, who):
        names = [archive.sleepers[id].id if population is archive.home else id for id in who]
        return np.array([[table.get(name, [.1] * len(rows))[i] for name in names] for i in range(len(rows))]).reshape(
            len(rows), len(who))
    monkeypatch.setattr(archive, '_scored', scored)


# --- what an organelle does

def test_every_measure_stays_within_its_cells():
    rng, families = np.random.default_rng(0), ['math', 'sort', 'count']
    one = type('One', (), {'rank': 1024})()
    for _ in range(200):
        played = Played(int(rng.integers(20)), int(rng.integers(5000)), Counter(
            {(str(rng.choice(families)), int(rng.integers(30))): int(rng.integers(1, 9))
             for _ in range(rng.integers(4))}))
        above = rng.standard_normal(int(rng.integers(64)))
        for m in MEASURES: assert 0 <= measured(m, one, played, above, families) < cells_of(m, families)


def test_a_signature_tells_behaviours_apart_and_keeps_near_ones_together():
    rng = np.random.default_rng(0)
    look = lambda above: tuple(measured(m, None, None, above, []) for m in ('signature_a', 'signature_b'))
    some = rng.random((100, 64)) - .5
    same = np.mean([look(x) == look(x + .01 * rng.standard_normal(64)) for x in some])
    assert same > .85 and len({look(x) for x in some}) > 70


def test_the_largest_sum_over_the_latest_is_that_of_every_start_tried():
    steps = np.random.default_rng(1).standard_normal((9, 5))
    want = [max(0, *(steps[k:, j].sum() for k in range(9))) for j in range(5)]
    assert np.allclose(largest(steps), want) and (largest(np.empty((0, 3))) == 0).all()


# --- who is kept

def test_the_better_one_of_a_cell_stays_judged_anew(host, monkeypatch):
    e, archive = grown(host, measures=['niche', 'rank'])            # all in one cell
    e.serving.met.answers, e.serving.met.families = [('x', [1])] * 2, ['string.sort'] * 2
    table = {'o2': [.5, .5], 'o3': [.4, .4], 'o4': [.6, .6]}
    scripted(archive, monkeypatch, table)
    for id in ('o2', 'o3'): e.demography.bury(id, 0, 'a test')
    assert [s.id for s in archive.sleepers.values()] == ['o2'] and len(archive.home) == 1
    table['o2'] = [.7, .7]                                           # it was judged .5, and is better than that
    e.demography.bury('o4', 0, 'a test')
    assert [(s.id, s.quality) for s in archive.sleepers.values()] == [('o2', .7)]
    assert [row['event'] for row in e.society.rows()] == ['kept', 'dropped', 'dropped']
    assert archive.grid().notna().sum().sum() == 1 and archive.qd_score == .7


def test_a_full_archive_does_without_a_copy_first(host, monkeypatch):
    e, archive = grown(host, most=2, measures=['signature_a', 'signature_b'])
    cells = iter([(0, 0), (1, 1), (2, 2)])
    monkeypatch.setattr('evolora.society.archive.measured', lambda m, *_, seen=[]: (
        seen.append(m) or (next(cells)[0] if len(seen) % 2 else len(seen) // 2 - 1)))
    e.serving.met.answers, e.serving.met.families = [('x', [1])] * 3, ['string.sort'] * 3
    scripted(archive, monkeypatch, {'o2': [.9, .1, .1], 'o3': [.1, .9, .1], 'o4': [.1, .89, .1]})
    for id in ('o2', 'o3', 'o4'): e.demography.bury(id, 0, 'a test')
    assert {s.id for s in archive.sleepers.values()} == {'o2', 'o3'}, 'what o4 gives is given without it'


def test_the_control_keeps_what_was_used_last(host):
    e, archive = grown(host, most=2, keep='recent')
    for generation, id in enumerate(('o2', 'o3', 'o4')):
        e.generation = generation
        e.demography.bury(id, generation, 'a test')
    assert [s.id for s in archive.sleepers.values()] == ['o3', 'o4']


def test_what_never_learned_is_not_kept(host):
    e, archive = grown(host)
    e.plasticity.own[:] = 0
    e.demography.bury('o2', 0, 'a test')
    assert not archive.sleepers and not e.society.rows()


# --- who comes back

def test_a_sleeper_wakes_when_odds_are_reached_with_its_weights_rate_and_stakes(host):
    e, archive = grown(host)
    right, weights = answers(e, 'o3'), e.population.factors('o3')
    e.plasticity.own[e.population['o3'].slot] = 21
    e.demography.bury('o3', 0, 'a test')
    bills = [archive.settled([a], [.1]) for a in right]
    back = e.population.ids[-1]
    assert e.population[back].parents == ('o3',) and e.population[back].operator == 'woken'
    assert all(A.equal(weights[n][0]) and B.equal(weights[n][1]) for n, (A, B) in e.population.factors(back).items())
    assert e.plasticity.own[e.population[back].slot] == e.plasticity.updates[e.population[back].slot] == 21
    assert not archive.sleepers and e.market.audit().balanced and e.market.balance(back) > .5
    assert bills[0].gflops == 0 and sum(b.gflops for b in bills) > 0, 'one answer cannot make such odds'
    woke = next(row for row in e.society.rows() if row['event'] == 'woken')
    assert woke['numbers']['gain'] >= math.log(archive.config.odds) and woke['others'] == ['o3']


def test_while_the_living_do_well_no_sleeper_is_asked(host):
    e, archive = grown(host)
    right = answers(e, 'o3')
    e.demography.bury('o3', 0, 'a test')
    archive._paid()
    assert sum((archive.settled([a], [.9]) for a in right), archive._paid()).gflops == 0
    assert len(archive.sleepers) == 1


def test_wrong_answers_wake_nobody(host):
    e, archive = grown(host)
    wrong = [a._replace(right=False) for a in answers(e, 'o3')]
    e.demography.bury('o3', 0, 'a test')
    archive.settled(wrong, [.1] * len(wrong))
    assert len(archive.sleepers) == 1 and not archive.latest


def test_a_sleeper_of_another_world_is_refuted_by_one_answer(host, monkeypatch):
    e, archive = grown(host)
    e.demography.bury('o3', 0, 'a test')
    asked = []
    scripted(archive, monkeypatch, {'o3': [.01] * 9})
    real = archive._scored
    monkeypatch.setattr(archive, '_scored', lambda p, rows, who: (
        asked.append(len(rows) * len(who)) or real(p, rows, who)))
    for a in answers(e, 'o1', 8): archive.settled([a], [.3])
    assert 0 < sum(asked) <= 2 and len(archive.sleepers) == 1


def test_the_seat_comes_from_the_one_that_the_sleeper_makes_superfluous(host, monkeypatch):
    e, archive = grown(host)
    e.demography.bury('o4', 0, 'a test')
    e.serving.recruit()
    e.population.write('o5', e.population.factors('o2'))            # no longer a no-op
    e.serving.met.answers, e.serving.met.families = [('x', [1])] * 3, ['string.sort'] * 3
    scripted(archive, monkeypatch, {'o1': [.9] * 9, 'o2': [.1, .8, .1] * 3, 'o3': [.1, .1, .8] * 3,
                                    'o5': [.7, .1, .1] * 3, 'o4': [.95, .1, .1] * 3})
    monkeypatch.setattr(e.population, 'is_noop', lambda id: id == 'o1')
    name, = archive.sleepers
    archive._wake(name, 9.)
    assert 'o5' not in e.population and len(e.population) == 4


def test_a_recruits_seat_does_not_come_from_who_leads(host, monkeypatch):
    e, archive = grown(host)
    e.serving.met.answers, e.serving.met.families = [('x', [1])], ['string.sort']
    scripted(archive, monkeypatch, {'o2': [.0], 'o3': [.5], 'o4': [.9]})
    monkeypatch.setattr(e.population, 'is_noop', lambda id: False)
    monkeypatch.setattr(e.market, 'leader', lambda family: 'o2')
    archive.renew()
    assert 'o2' in e.population and len(e.population) == 3


def test_the_sleeper_that_the_living_lack_most_is_born_again_and_stays(host, monkeypatch):
    e, archive = grown(host, respawn=1., measures=['niche', 'rank'])
    for id, family in (('o3', 'string.sort'), ('o4', 'word.count')):
        archive.played[id] = Played(1, 2, Counter({(family, 1): 1}))
        e.demography.bury(id, 0, 'a test')
    e.serving.met.answers, e.serving.met.families = [('x', [1])] * 2, ['string.sort'] * 2
    scripted(archive, monkeypatch, {'o1': [.9, .1], 'o2': [.9, .1], 'o3': [.9, .1], 'o4': [.1, .8]})
    e.generation = e.config.variation.every - 1
    archive.renew()
    child = e.population[e.population.ids[-1]]
    assert child.parents == ('o4',) and child.operator == 'respawned' and len(archive.sleepers) == 2
    e.generation += 1
    archive.renew()
    assert len(e.population) == 3, 'only at a census'


# --- it goes on bit for bit, and costs nothing that is not on a bill

def life(habits, **more):
    "Worlds that come back in turn, more of them than seats; hardly any odds are needed"
    return changed_config(load_config('worlds'), {
        'capacity': 2, 'world': {'worlds': 3, 'period': 2}, 'cells': ['string.sort:1', 'word.count:1'],
        'max_new_tokens': 12, 'market': {'questions': 8, 'round': 2, 'learn_every': 1, 'protect': 1, 'met': 16}} | more)


def test_a_life_with_an_archive_goes_on_bit_for_bit(habits, tmp_path):
    config = life(habits, society={'archive': {'odds': 1.5, 'most': 3}})
    one = Ecology(habits, config)
    one.run(6, log=None)
    two = Ecology(habits, config)
    read_checkpoint(write_checkpoint(tmp_path, one), two)
    archive = one.society['archive']
    assert archive.sleepers and [vars(s) for s in archive.sleepers.values()] == [
        vars(s) for s in two.society['archive'].sleepers.values()]
    events = []
    for _ in range(6):
        a, b = one.step(), two.step()
        assert {k: v for k, v in a.tables.items() if k != 'timings'} == {
            k: v for k, v in b.tables.items() if k != 'timings'}
        events += [row['event'] for row in a.society]
    assert 'woken' in events and 'kept' in events and one.market.audit().balanced


def test_a_damaged_archive_is_refused(habits, tmp_path):
    one = Ecology(habits, life(habits, society={'archive': {'most': 3}}))
    archive = one.society['archive']
    archive.played['o1'] = Played(1, 2, Counter())
    one.plasticity.own[:] = 8
    one.demography.bury('o1', 0, 'a test')
    state = archive.state()
    for wrong in ({'sleepers': state['sleepers'] * 4}, {'latest': [['x', [10**6], .5, {}]]},
                  {'sleepers': [state['sleepers'][0] | {'cell': [99, 0]}]}):
        with pytest.raises(ValueError, match='restore the state'): archive.restore(state | wrong)
    archive.restore(state)
    assert archive.state()['sleepers'] == state['sleepers'] and isinstance(archive, Archive)
    assert Traits(**state['sleepers'][0]['traits']) == Traits()
