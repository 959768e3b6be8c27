"""Islands: whoever lives when, and whoever dies, nothing comes twice and nothing is lost."""
import json
import math
import random
import shutil
import signal

import pytest
import torch
from hypothesis import given, settings, strategies as st

from evolora.ecology.config import changed_config, load_config
from evolora.ecology.ecology import Ecology
from evolora.ecology.run_folder import TABLES
from evolora.ecology.sessions import resume_session
from evolora.economy.market import Market, MarketConfig, likelihood_of
from evolora.host.model import load_host
from evolora.islands import islands
from evolora.islands.island import Island
from evolora.islands.islands import Islands, OneAfterTheOther, begin_islands, resume_islands
from evolora.islands.islands_folder import place_of, status_of
from evolora.islands.migrants import Booking, Papers, Ticket, fingerprint_of, pack, unpack
from evolora.islands.migration import Departure
from evolora.islands.plan import TOPOLOGIES, IslandsConfig, made_plan, read_plan, write_plan

CONFIG = changed_config(load_config('debug'), {'market': {'protect': 1, 'questions': 8}, 'capacity': 3, 'founders': 2,
                                               'max_new_tokens': 8, 'curriculum': {'copies': 2}})


@pytest.fixture(scope='module')
def host(): return load_host('embedded', device='cpu')


def written(folder, islands):
    "All tables of all islands, but for the clock"
    found = {}
    for i in range(islands):
        for table in TABLES:
            path = place_of(folder, i) / f'{table}.jsonl'
            if table != 'timings': found[i, table] = path.read_bytes() if path.exists() else b''
    return found


def checkpoints(folder, islands):
    "All files of all checkpoints that are kept; but no manifests, which hold the hash of a table of clocks"
    return {str(path.relative_to(folder)): path.read_bytes() for i in range(islands)
            for path in sorted((place_of(folder, i) / 'checkpoints').rglob('*'))
            if path.is_file() and path.name != 'manifest.json'}


def events(folder, islands):
    "Tickets that were sent, and those that arrived in any way, over all islands"
    sent, came = [], []
    for i in range(islands):
        path = place_of(folder, i) / 'society.jsonl'
        for line in path.read_text().splitlines() if path.exists() else ():
            row = json.loads(line)
            if row['part'] == 'migration': (sent if row['event'] == 'sent' else came).append(row['others'][0])
    return sent, came


class Chance(OneAfterTheOther):
    "Errands in any order; and now and then whoever carries one out dies, before its checkpoint or after it"
    def __init__(self, *args, luck=0, deaths=0.):
        super().__init__(*args)
        self.rng, self.chance, self.died = random.Random(luck), deaths, 0

    def wait(self):
        if not self.errands or self.stopped(): return None
        self.rng.shuffle(self.errands)
        island, arrivals, confirmed, epoch = self.errands.popleft()
        while self.rng.random() < self.chance:
            one = self.island(island)
            if self.rng.random() < .5:
                one.migration.receive(arrivals)                 # a generation is lived, and forgotten
                one.session.step()
            else: one.live(arrivals, confirmed, epoch)          # all is done, and nobody hears of it
            one.close()
            self.islands[island] = Island(self.folder, self.plan, island, self.host)
            self.died += 1
        return self.island(island).live(arrivals, confirmed, epoch)


def many(folder, host, config, islands, *, seed=1, crew=OneAfterTheOther, **how):
    plan = made_plan(islands, config, host, seed)
    return Islands(write_plan(folder, plan), plan, crew(folder, plan, host, **how))


@pytest.mark.parametrize('topology', ['ring', 'star', 'full'])
def test_in_any_order_and_whoever_dies_the_tables_are_the_same(host, tmp_path, topology):
    plan = IslandsConfig(islands=3, every=2, topology=topology)
    first = many(tmp_path / 'plain', host, CONFIG, plan)
    first.run(6)
    chance = many(tmp_path / 'chance', host, CONFIG, plan, crew=Chance, luck=3, deaths=.5)
    chance.run(6)
    assert chance.crew.died >= 3
    assert written(tmp_path / 'plain', 3) == written(tmp_path / 'chance', 3)
    assert first.audit().balanced and chance.audit().balanced and first.audit() == chance.audit()
    sent, came = events(tmp_path / 'plain', 3)
    assert len({*sent}) == len(sent) and len({*came}) == len(came) and {*came} <= {*sent} and len(came) > 3


@pytest.mark.parametrize('seed', range(3))
def test_without_waiting_nothing_comes_twice_and_nothing_is_lost(host, tmp_path, seed):
    plan = IslandsConfig(islands=4, every=1, topology='full', waits=False, stale=1)
    found = many(tmp_path / 'all', host, CONFIG, plan, crew=Chance, luck=seed, deaths=.3)
    found.run(4)
    audit = found.audit()
    assert audit.balanced and audit.in_flight >= 0 and found.crew.died >= 2
    sent, came = events(tmp_path / 'all', 4)
    open_ = [str(d.booking.ticket) for r in found.reports.values() for d in r.departures
             if d.booking.ticket.epoch > found.reports[d.booking.ticket.to].marks.get(r.island, -1)]
    waiting = [str(t) for island in found.crew.islands.values() for t, *_ in island.migration.waiting]
    assert sorted(sent) == sorted(came + open_ + waiting)


def test_ctrl_c_keeps_all_and_resuming_changes_nothing(host, tmp_path):
    plan = IslandsConfig(islands=2, every=3)
    many(tmp_path / 'whole', host, CONFIG, plan).run(6)
    halved = many(tmp_path / 'halved', host, CONFIG, plan)
    step = Ecology.step
    def stepped(self, *args):
        record = step(self, *args)
        if self.generation == 2: signal.raise_signal(signal.SIGINT)
        return record
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Ecology, 'step', stepped)
        table = halved.run(6)
    assert table.generation.tolist() == [2, 0]                  # in the middle of an epoch, and before one
    assert resume_islands(tmp_path / 'halved', host).run(6).generation.tolist() == [6, 6]
    assert written(tmp_path / 'whole', 2) == written(tmp_path / 'halved', 2)
    assert checkpoints(tmp_path / 'whole', 2) == checkpoints(tmp_path / 'halved', 2)


def test_a_process_killed_at_random_leaves_the_files_of_an_undisturbed_run(host, tmp_path):
    "tables and checkpoints, byte for byte; only clocks differ"
    plan, rng = IslandsConfig(islands=3, every=1), random.Random(1)
    many(tmp_path / 'whole', host, CONFIG, plan).run(7)
    found, step, kills = many(tmp_path / 'killed', host, CONFIG, plan), Ecology.step, 0
    def stepped(self, *args):
        if rng.random() < .3: raise MemoryError
        return step(self, *args)
    while True:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Ecology, 'step', stepped)
            try: found.run(7)
            except MemoryError: kills += 1
            else: break
        found = resume_islands(tmp_path / 'killed', host)
    assert kills >= 2 and written(tmp_path / 'whole', 3) == written(tmp_path / 'killed', 3)
    whole, killed = checkpoints(tmp_path / 'whole', 3), checkpoints(tmp_path / 'killed', 3)
    assert [*whole] == [*killed] and not [name for name in whole if whole[name] != killed[name]]


def test_islands_whose_worlds_differ_ask_for_different_answers(tmp_path):
    habits = load_host('habits', threads=1)
    config = changed_config(load_config('worlds'), {'market': {'questions': 8, 'protect': 1}, 'world': {'period': 2},
                                                    'max_new_tokens': 12, 'cells': ['string.sort:1', 'word.count:1']})
    found = many(tmp_path / 'apart', habits, config, IslandsConfig(islands=2, every=2, apart=1))
    found.run(4)
    worlds = [[found.crew.islands[i].session.ecology.world.number(g) for g in range(4)] for i in range(2)]
    assert worlds == [[0, 0, 1, 1], [1, 1, 2, 2]] and found.audit().balanced


def test_an_island_alone_is_an_ecology_alone(host):
    with_, without = (Ecology(host, changed_config(CONFIG, {'society': parts}), seed=2)
                      for parts in ({'migration': {'to': []}}, {}))
    for _ in range(4):
        a, b = (json.dumps({k: v for k, v in e.step().tables.items() if k != 'timings'}) for e in (with_, without))
        assert a == b


# --- what is refused

def papers(host, ticket, population, id, **other):
    one = population[id]
    return Papers(**dict(ticket=str(ticket), host=host.weights_hash(), organelle=id, parents=[], born=0,
                         operator='founder', came=[], traits=one.traits, alpha=population.alpha, updates=3,
                         energy={'': .01}) | other)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=200), st.integers(0, 400), st.booleans())
def test_any_bytes_are_a_migrant_or_one_line(host, junk, at, replaced):
    e = Ecology(host, CONFIG, seed=0)
    ticket = Ticket(0, 0, 1, 0)
    data = pack(papers(host, ticket, e.population, 'o1'), e.population.factors('o1'))
    data = junk if replaced else data[:at] + junk + data[at + len(junk):]
    booking = Booking(ticket, fingerprint_of(data), {'': .01})         # even one that its sender has booked
    try: found, factors = unpack(data, booking, e.population, host.weights_hash())
    except ValueError as error: assert '\n' not in str(error) and str(error).startswith('migrant 0.0.1.0: expected')
    else: assert all(torch.isfinite(t).all() for AB in factors.values() for t in AB) and math.isfinite(found.updates)


def test_a_forged_migrant_stops_nothing_and_is_counted(host, tmp_path):
    found = many(tmp_path / 'two', host, CONFIG, IslandsConfig(islands=2, every=2))
    live = Island.live
    def forging(self, arrivals=(), *what, **how):
        bad = [Departure(d.booking, d.data[:-4] + b'\xff\xff\x80\x7f') for d in arrivals]
        return live(self, bad if self.number else arrivals, *what, **how)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Island, 'live', forging)
        table = found.run(6)
    assert table.refused.tolist() == [0, 2] and table.arrived.tolist()[1] == 0
    assert len(found.lines) == 2 and all('the bytes that its sender booked' in line for line in found.lines)
    assert found.audit().balanced and found.audit().refused > 0
    assert len(status_of(tmp_path / 'two')) == 2


def test_a_folder_of_another_plan_host_or_owner_is_refused(host, tmp_path):
    plan = IslandsConfig(islands=2, every=2)
    many(tmp_path / 'two', host, CONFIG, plan).run(2)
    with pytest.raises(ValueError, match='which exists'): begin_islands(tmp_path / 'two', host, CONFIG, plan)
    path = tmp_path / 'two/islands.json'
    text = path.read_text()
    for old, new, said in [('"every": 2', '"every": 4', 'an edited one'), ('"seed": 1', '"seed": 2', 'an edited one'),
                           (host.weights_hash(), '0' * 16, 'an edited one'), ('"waits": true', '"waits": false',
                                                                              'an edited one'),
                           ('evolora.islands.1', 'evolora.islands.9', 'a plan of islands')]:
        path.write_text(text.replace(old, new))
        with pytest.raises(ValueError, match=said) as error: resume_islands(tmp_path / 'two', host).run(4)
        assert '\n' not in str(error.value)
    path.write_text(text)
    with pytest.raises(ValueError, match='a folder of islands'): read_plan(tmp_path)
    assert resume_islands(tmp_path / 'two', host).run(4).generation.tolist() == [4, 4]


# --- energy that crosses

@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.floats(0, .5), st.floats(0, 1)), max_size=30))
def test_whatever_is_sent_arrives_or_is_in_flight(moves):
    markets = [Market(MarketConfig(), ('a', 'b')) for _ in range(3)]
    for m in markets:
        for who in ('o1', 'o2'): m.enter(who)
    flying, born = {}, 2
    for here, there, part, luck in moves:
        energy = markets[here].send('o1', part)
        for book, x in energy.items(): flying[book] = flying.get(book, 0.) + x
        born += 1
        if luck < .8:
            markets[there].admit(f'o{born}' if luck < .5 else None, energy)
            for book, x in energy.items(): flying[book] -= x
        markets[there].settle('a', likelihood_of(True, {'o1': luck, 'o2': .5}))
        assert all(m.audit().balanced for m in markets)
        for name in markets[0].books:
            total = sum(m.books[name].total for m in markets) + flying.get(name, 0.)
            assert abs(total - 3) < 1e-12
    for m in markets:
        again = Market(MarketConfig(), ('a', 'b'))
        again.restore(m.state())
        assert again.state() == m.state() and again.abroad == m.abroad


@pytest.mark.parametrize('topology', TOPOLOGIES)
@pytest.mark.parametrize('n', [2, 3, 7])
def test_senders_are_those_whose_neighbour_one_is(host, topology, n):
    plan = made_plan(IslandsConfig(islands=n, topology=topology), CONFIG, host)
    assert all(sorted(plan.senders(i)) == [j for j in range(n) if i in plan.neighbours(j)] for i in range(n))


# --- what a hostile reader found

def delivered(host, seed=0, **changes):
    "An ecology on island 1, and a migrant for it from island 0"
    part = lambda i: {'society': {'migration': {'island': i, 'to': [1 - i], 'every': 2}}}
    here, there = (Ecology(host, changed_config(CONFIG, part(i) | changes), seed=seed + i) for i in range(2))
    here.run(2, log=None)
    return here, there, here.society['migration'].departures


def test_a_delivery_twice_in_one_or_with_a_foreign_ticket_changes_nothing(host):
    _, there, left = delivered(host)
    part = there.society['migration']
    part.receive([*left, *left])
    assert len(part.waiting) == len(left) == 1
    foreign = Departure(left[0].booking._replace(ticket=Ticket(7, 10**15, 5, 0)), left[0].data)
    assert 'expected one for island 1' in part.receive([foreign])[0] and set(part.marks) == {0}


@pytest.mark.parametrize('spoil', [
    lambda f: {n: (A * 0 + 1e19, B) for n, (A, B) in f.items()}, lambda f: {n: (A, B * torch.inf) for n, (A, B) in
                                                                          f.items()},
    lambda f: {n: (A.double(), B) for n, (A, B) in f.items()}, lambda f: {n: (A[0, 0], B) for n, (A, B) in f.items()}])
def test_weights_that_would_break_an_island_do_not_land(host, spoil):
    here, there, left = delivered(host)
    factors = spoil(here.population.factors('o1'))
    energy = left[0].booking.energy
    data = pack(papers(host, Ticket(0, 0, 1, 0), here.population, 'o1', energy=energy), factors)
    found = there.society['migration'].receive([Departure(Booking(Ticket(0, 0, 1, 0), fingerprint_of(data), energy),
                                                          data)])
    assert len(found) == 1 and '\n' not in found[0] and len(found[0]) < 400
    there.run(1, log=None)
    assert there.market.audit().balanced and there.society['migration'].counts['refused'] == 1


@pytest.mark.parametrize('energy', [-.1, 1e308, math.nan])
def test_energy_that_no_island_can_have_does_not_land(host, energy):
    here, there, left = delivered(host)
    one = left[0]
    text = one.data.replace(str(one.booking.energy['']).encode(), str(energy).encode())
    booking = one.booking._replace(energy=one.booking.energy | {'': energy}, sha256=fingerprint_of(text))
    assert len(there.society['migration'].receive([Departure(booking, text)])) == 1
    there.run(1, log=None)


def test_whoever_leads_or_has_just_landed_keeps_its_seat(host):
    here, there, left = delivered(host)
    there.run(6, log=None)
    leaders, energy = {there.market.leader(f) for f in there.market.families}, left[0].booking.energy
    several = []
    for k in range(4):
        ticket = Ticket(0, 3, 1, k)
        found = pack(papers(host, ticket, here.population, 'o1', energy=energy, updates=9),
                     here.population.factors('o1'))
        several.append(Departure(Booking(ticket, fingerprint_of(found), energy), found))
    there.society['migration'].receive(several)
    there.society['migration'].heard([])
    assert leaders <= {*there.population.ids} and there.market.audit().balanced
    counts = there.society['migration'].counts
    assert counts['arrived'] + counts['no seat'] == 4


def test_who_was_judged_may_leave_for_a_migrant(host):
    here, there, left = delivered(host, feedback=1., capacity=2)
    there.run(2, log=None)
    for id in there.population.ids: there.feedback(id, 'What is 2 plus 2?', '4', True)
    there.society['migration'].receive(left)
    there.run(1, log=None)


def test_an_older_checkpoint_of_one_island_loses_nobody(host, tmp_path):
    plan = IslandsConfig(islands=3, every=1)
    many(tmp_path / 'whole', host, CONFIG, plan).run(6)
    many(tmp_path / 'back', host, CONFIG, plan).run(4)
    latest = sorted((place_of(tmp_path / 'back', 1) / 'checkpoints').iterdir())[-1]
    shutil.rmtree(latest)
    again = resume_islands(tmp_path / 'back', host)
    again.run(6)
    assert written(tmp_path / 'whole', 3) == written(tmp_path / 'back', 3) and again.audit().balanced


def test_what_has_arrived_is_kept_until_no_checkpoint_lacks_it(host, tmp_path, monkeypatch):
    monkeypatch.setattr(islands, '_DELAY', -9)      # the delay comes on top of this
    found = many(tmp_path / 'two', host, CONFIG, IslandsConfig(islands=2, every=1))
    zero, one = (Island(tmp_path / 'two', found.plan, i, host) for i in range(2))
    found.reports = {0: zero.live(), 1: one.live()}
    found.reports[1] = one.live(*found.errand(1, 9)[1:])            # it has the first migrant of island 0 now
    assert found.reports[1].marks == {0: 0} and found.errand(0, 9).confirmed == {1: -1}
    found.reports[0] = zero.live(*found.errand(0, 9)[1:])
    kept = lambda: [str(d.booking.ticket) for d in found.reports[0].departures]
    assert kept() == ['0.0.1.0', '0.1.1.0']
    one.close()
    shutil.rmtree(sorted((place_of(tmp_path / 'two', 1) / 'checkpoints').iterdir())[-1])
    one = Island(tmp_path / 'two', found.plan, 1, host)
    found.reports[1] = one.report()
    assert found.reports[1].marks == {} and found.audit().balanced
    for _ in range(2): found.reports[1] = one.live(*found.errand(1, 9)[1:])
    found.reports[0] = zero.live(*found.errand(0, 9)[1:])
    assert '0.0.1.0' not in kept() and found.audit().balanced and one.migration.counts['arrived'] + \
        one.migration.counts['no seat'] == 2
    zero.close(), one.close()


def test_an_island_does_not_live_alone_and_islands_may_be_few_at_a_time(host, tmp_path):
    plan = IslandsConfig(islands=4, every=1)
    found = many(tmp_path / 'four', host, CONFIG, plan, most=2)
    found.run(1)
    assert found.run(2).generation.tolist() == [2] * 4 and len(found.crew.islands) == 2
    with pytest.raises(ValueError, match='evolora islands --resume'):
        resume_session(place_of(tmp_path / 'four', 1), host)
    many(tmp_path / 'all', host, CONFIG, plan).run(2)
    assert written(tmp_path / 'four', 4) == written(tmp_path / 'all', 4)


@pytest.mark.parametrize('edit', [
    lambda m: m['departures'][0]['ticket'].__setitem__(0, 2), lambda m: m['departures'][0]['ticket'].__setitem__(2, 9),
    lambda m: m['departures'][0]['papers']['energy'].update({'': 50.}), lambda m: m['marks'].update({'0': -1}),
    lambda m: m['departures'][0]['papers']['energy'].update({'': -.5}),
    lambda m: m['departures'].append(m['departures'][0]), lambda m: m['sent']['1'].update({'': 3.})])
def test_an_edited_state_is_refused(host, edit):
    here, there, left = delivered(host)
    state = json.loads(json.dumps(here.society['migration'].state(), default=lambda t: t.tolist()))
    as_tensors = lambda d: {n: {x: torch.tensor(t) for x, t in AB.items()} for n, AB in d.items()}
    edit(state)
    for one in state['departures']: one['factors'] = as_tensors(one['factors'])
    books = dict(here.market.abroad)
    try: here.society['migration'].restore(state)
    except ValueError: return
    # What a checkpoint asks beside it.
    assert any(abs(books[b] - x) > 1e-9 for b, x in here.society['migration'].abroad().items())
