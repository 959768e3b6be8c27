"""Nomination: which organelles may merge, what is known of each, and what knowing costs."""
import pytest
from pydantic import ValidationError

from scripted import (CELLS, FAMILIES, SHORT, candidate_pairs, decided, log, seed_for, meeting, on_probation,
                     rarely_better, rng, tried, worse)
from evolora.assimilation.pairing import Assimilation, AssimilationConfig
from evolora.economy.ledger import Ledger
from evolora.economy.prices import EconomyConfig
from evolora.utils.statistics import wilson
from evolora.assimilation.examiner import COMMONS, Examiner
from evolora.assimilation.gates import tally
from evolora.host.model import tiny_host
from evolora.organelles.population import Population, Traits
from evolora.tasks.families import Cell
from evolora.tasks.splits import stream_of


@pytest.fixture(scope='module')
def host(): return tiny_host()


# --- what is known

def test_facts_are_counted_at_home(host):
    m = meeting(host)
    recent = log({'o1': {'math': .5}, 'o2': 1.}, generation=9, n=8, tasks=4)
    facts = m.a.facts(recent)
    assert facts.answers.to_dict() == {'o1': 32, 'o2': 32} and facts.tasks.to_dict() == {'o1': 4, 'o2': 4}
    assert facts.best.to_dict() == {'o1': 'math', 'o2': 'string.sort'}
    assert facts.low['o1'] == pytest.approx(wilson(4, 8)[0]) and facts.low['o2'] == pytest.approx(wilson(8, 8)[0])
    assert facts.own['o1'] == {'math': .5, 'string.sort': 0., 'logic.bool': 0., 'word.count': 0.}


def test_the_best_family_is_the_one_in_which_it_stands_out(host):
    "Not the one with most right answers: all could do that before"
    m = meeting(host, niches=['', 'math+logic.bool'])
    m.a.beginning = {'math': [50, 45], 'logic.bool': [50, 5], 'string.sort': [50, 0], 'word.count': [50, 0]}
    recent = log({'o1': {'math': 1., 'logic.bool': .75}, 'o2': {'string.sort': 1., 'math': 1.}}, generation=9)
    facts = m.a.facts(recent)
    assert (facts.best['o1'], facts.others['o1']) == ('logic.bool', .1)
    assert facts.best['o2'] in ('math', 'logic.bool'), 'what it does away from home is not what it stands for'


def test_no_answers_and_no_living_organelle(host):
    m = meeting(host, answers=0)
    for recent in (m.recent, log({'o9': 1.}, generation=9)):
        facts = m.a.facts(recent)
        assert facts.answers.tolist() == [0, 0] and facts.best.tolist() == ['no family'] * 2
        turns = m.a.nominate(facts, 10, energy=m.energy, solvent=0.)
        assert [d.gate for steps in turns.values() for d in steps] == ['no_activity'] * 2 and set(turns) == {'o1', 'o2'}
    for id in m.population.ids: m.population.death(id)
    facts = m.a.facts(m.recent)
    assert m.a.nominate(facts, 10, energy={}, solvent=0.) == {} and not facts.size
    assert list(m.a.pair({}, facts, 10, energy={}, price=5., rng=rng, seed_for=seed_for)) == []


def test_a_single_organelle_finds_no_partner(host):
    decisions, attempts = decided(meeting(host, niches=['math']))
    assert not attempts and tally(decisions) == {'no_partner': 1} and decisions[-1].numbers['best'] == 'no organelle'


def test_what_was_verified_is_kept_and_how_it_began(host):
    m = meeting(host, pool=5)
    m.a.beginning.clear()
    episodes = dict(family=['math'] * 100, depth=[1] * 100, success=[i % 2 == 0 for i in range(100)])
    m.a.remember(episodes, [f'p{i}' for i in range(100)], [[i] for i in range(100)])
    m.a.remember({'family': ['math'], 'depth': [2], 'success': [False]}, ['x'], [[1]])
    assert list(m.a.pool['math:1']) == [(f'p{i}', [i]) for i in (90, 92, 94, 96, 98)] and not m.a.pool['math:2']
    assert m.a.beginning == {'math': [64, 32]}, 'the first 64, whatever comes later'


def test_the_dead_are_forgotten(host):
    m = meeting(host, is_right=rarely_better, **SHORT)
    trial = on_probation(m)
    held = dict(m.a.tokens.balances)
    m.a.skill['o1'] = {'string.sort': (0., 9)}
    for id in ('o1', trial.id, 'unknown'): m.a.forget(id, 11)
    assert 'o1' not in m.a.tried and 'o1' not in m.a.skill and not m.a.trials
    assert m.a.levels.found == [False] and m.a.tokens.balances[COMMONS] == held['o1']
    m.a.forget(trial.id, 12)        # a gate is closed once
    assert '0 on probation' in repr(m.a)


# --- nomination

def test_a_child_on_probation_is_no_nominee(host):
    m = meeting(host, is_right=rarely_better, **SHORT)
    trial = on_probation(m)
    facts = m.a.facts(log({id: 1. for id in m.population.ids}, generation=11))
    assert trial.id in facts.index
    turns = m.a.nominate(facts, 14, energy=dict.fromkeys(m.population.ids, 9.), solvent=0.)
    assert trial.id not in turns and set(turns) == {'o1', 'o2'}


@pytest.mark.parametrize('wait', [0, 2, 5])
def test_a_test_is_followed_by_a_pause(host, wait):
    m = meeting(host, wait=wait, is_right=worse)
    assert tried(m).outcome == 'canary_failed'
    for later in range(7):
        turns = m.a.nominate(m.facts, 10 + later, energy=m.energy, solvent=0.)
        assert all(('cooldown' == steps[-1].gate) == (later < wait) for steps in turns.values())


@pytest.mark.parametrize('gate, knobs', [('low_tokens', dict(tokens=20)),
                                         ('low_power', dict(uplift=.05, least_power=.9))])
def test_a_pair_stopped_before_the_test_need_not_wait(host, gate, knobs):
    m = meeting(host, wait=5, **knobs)
    assert tried(m).outcome == gate and not m.a.tried and not m.a.examiner.evaluations
    turns = m.a.nominate(m.facts, 11, energy=m.energy, solvent=0.)
    assert all(steps[-1].passed for steps in turns.values())


def test_numbers_can_be_written_down(host):
    for d in decided(meeting(host, niches=FAMILIES, merges=2))[0]:
        assert all(type(x) in (int, float, str) for x in d.numbers.values()), d


# --- surveys and promises

def surveyed(m): m.a.survey(m.population.ids, m.generation, rng=rng, seed_for=seed_for)


def test_a_survey_asks_each_at_the_home_of_the_other_and_each_pays(host):
    m = meeting(host)
    surveyed(m)
    asked = {(who[0], tasks[0].family, len(who), len(tasks)) for who, tasks, _ in m.a.examiner.evaluations}
    assert asked == {('o1', 'string.sort', 1, 8), ('o2', 'math', 1, 8)}
    assert m.a.tokens.balances == {'o1': 600 - 8, 'o2': 600 - 8}
    assert [(r['organelle'], r['tokens']) for r in m.a.tokens.drain() if r['reason'] == 'survey'] == [('o2', -8),
                                                                                                      ('o1', -8)]
    assert {stream_of(t) for _, tasks, _ in m.a.examiner.evaluations for t in tasks} == {'gate'}
    assert m.a.skill == {'o1': {'string.sort': (0., 10)}, 'o2': {'math': (0., 10)}}


def test_strangers_to_a_family_are_surveyed_together(host):
    m = meeting(host, niches=['math', 'string.sort', 'math+logic.bool'])
    surveyed(m)
    asked = {tasks[0].family: who for who, tasks, _ in m.a.examiner.evaluations}
    assert asked == {'math': ['o2'], 'string.sort': ['o1', 'o3'], 'logic.bool': ['o1', 'o2']}, 'none at home'
    assert all(len({t.family for t in tasks}) == 1 for _, tasks, _ in m.a.examiner.evaluations)


def test_what_is_known_is_not_asked_again_until_it_is_old(host):
    m = meeting(host)
    for generation, calls in ((10, 2), (11, 2), (19, 2), (20, 4)):
        m.generation = generation
        surveyed(m)
        assert len(m.a.examiner.evaluations) == calls


@pytest.mark.parametrize('tokens, calls, promise', [((7, 7), 0, None), ((8, 7), 1, None), ((7, 8), 1, None),
                                                    ((8, 8), 2, .5)])
def test_a_survey_that_cannot_be_paid_promises_nothing(host, tokens, calls, promise):
    m = meeting(host, tokens=0, worth=0.)
    for id, n in zip(m.population.ids, tokens): m.a.tokens.earn(id, n, 0)
    surveyed(m)
    assert len(m.a.examiner.evaluations) == calls and m.a.promise('o1', 'o2', m.facts) == promise
    assert [m.a.tokens.balances[id] for id in m.population.ids] == [n % 8 for n in tokens], 'no debts for others'
    turns, found = candidate_pairs(m)
    assert bool(found) == (calls == 2), 'an unknown promise makes no pair, even where any promise is enough'
    stops = {(d.gate, d.numbers['promise']) for steps in turns.values() for d in steps if not d.passed}
    assert stops == (set() if found else {('no_partner', None)})


def test_two_organelles_that_need_the_commons_do_not_spend_it_twice(host):
    m = meeting(host, tokens=0)
    m.a.tokens.earn(COMMONS, 15, 0)
    surveyed(m)
    assert len(m.a.examiner.evaluations) == 1 and m.a.tokens.balances[COMMONS] == 7


def test_the_commons_pay_for_organelles_without_tokens(host):
    m = meeting(host, tokens=0)
    m.a.tokens.earn(COMMONS, 100, 0)
    surveyed(m)
    assert m.a.tokens.balances == {COMMONS: 84}


def test_a_promise_is_the_best_of_both_in_each_family(host):
    m = meeting(host)
    m.facts = m.a.facts(log({'o1': {'math': .75}, 'o2': {'string.sort': .5}}, generation=9))
    m.a.skill = {'o1': {'string.sort': (.1, 9)}, 'o2': {'math': (.25, 9)}}
    assert m.a.promise('o1', 'o2', m.facts) == pytest.approx((.75 + .5) / 2 - (.75 + .1) / 2)
    assert m.a.promise('o2', 'o1', m.facts) == m.a.promise('o1', 'o2', m.facts)
    m.a.skill['o2'] = {'math': (1., 9)}
    assert m.a.promise('o1', 'o2', m.facts) == 0., 'an organelle that is better in both gains nothing'
    del m.a.skill['o1']
    assert m.a.promise('o1', 'o2', m.facts) is None, 'what is not known is no promise'


# --- pairs

@pytest.mark.parametrize('niches', [['', ''], ['', '', 'math'], ['math', 'math'], FAMILIES[:1] + ['']])
def test_a_pair_has_two_niches_of_which_neither_holds_the_other(host, niches):
    turns, found = candidate_pairs(meeting(host, niches=niches, worth=0., scores=1))
    assert found == [] and {steps[-1].numbers['fits'] for steps in turns.values()
                            if steps[-1].gate == 'no_partner'} <= {0}


def test_a_world_of_one_family_has_no_pairs(host):
    "There a niche with the name of the family is the same as none"
    m = meeting(host, niches=['math', 'math', ''], cells=[Cell('math', 1), Cell('math', 2)], worth=0.)
    assert m.a.home('o1') == m.a.home('o3') == ['math']
    decisions, attempts = decided(m)
    assert attempts == [] and tally(decisions) == {'no_partner': 2, 'no_best_cell': 1}


@pytest.mark.parametrize('operator, found', [('crossover', 1), ('gaussian', 1), ('merge', 0), ('expert', 0)])
def test_what_has_been_merged_is_not_merged_again(host, operator, found):
    "A crossover of generalists is no merge, though it has two parents and the niche of everything"
    m = meeting(host, cells=CELLS[:2])
    m.population.birth(rank=2, traits=Traits(niche=''), parents=('o1', 'o2'), operator=operator)
    m.facts = m.a.facts(m.recent)
    m.energy['o3'] = 1.
    assert len(candidate_pairs(m)[1]) == found


@pytest.mark.parametrize('merges, found', [(1, 1), (2, 2), (5, 2)])
def test_tests_of_a_generation_are_limited(host, merges, found):
    m = meeting(host, niches=FAMILIES, merges=merges)
    decisions, attempts = decided(m)
    pairs = [(d.organelle, *d.partners) for d in decisions if d.gate == 'reserve_active']
    assert len(attempts) == len(pairs) == found and len({id for pair in pairs for id in pair}) == 2 * found
    assert tally(decisions)['merge_limit'] == max(4 - 2 * found, 0) and m.a.levels.found == [True] * found
    limits = [d.numbers for d in decisions if d.gate == 'merge_limit']
    assert all(n['taken'] < found or n['taken'] == merges for n in limits), 'it reports how many tests were taken'


UNEVEN = {'o1': {'math': .5}, 'o2': {'string.sort': .75}, 'o3': {'logic.bool': 1.}, 'o4': {'word.count': .6}}


def known(m, **others):
    "Away from home all shares are 0 but these: o1_math=.5"
    away = {id: dict.fromkeys(FAMILIES, (0., m.generation)) for id in m.population.ids}
    for name, share in others.items():
        id, family = name.split('_')
        away[id][next(f for f in FAMILIES if f.startswith(family))] = share, m.generation
    m.a.skill = away


def test_the_most_promising_pair_comes_first(host):
    m = meeting(host, niches=FAMILIES)
    m.facts = m.a.facts(log(UNEVEN, generation=9))
    turns, (parents,) = candidate_pairs(m)
    assert parents == ('o3', 'o2'), 'of a pair the one that stands out more has the turn'
    assert [len(turns[id]) for id in m.population.ids] == [8, 6, 9, 8]
    assert {turns[id][-1].gate for id in ('o1', 'o4')} == {'merge_limit'}
    m = meeting(host, niches=FAMILIES)
    m.facts = m.a.facts(log(UNEVEN, generation=9))
    known(m, o2_logic=.75, o3_string=.75)
    assert m.a.promise('o3', 'o2', m.facts) == 0., 'those who can the same gain nothing'
    assert candidate_pairs(m)[1] == [('o3', 'o4')]


def test_an_organelle_whose_best_partner_is_taken_takes_the_next(host):
    m = meeting(host, niches=FAMILIES, merges=2)
    m.facts = m.a.facts(log(UNEVEN, generation=9))
    assert candidate_pairs(m)[1] == [('o3', 'o2'), ('o4', 'o1')]
    m = meeting(host, niches=FAMILIES[:3], merges=2)
    turns, found = candidate_pairs(m)
    assert found == [('o1', 'o2')] and turns['o3'][-1].gate == 'no_partner'
    assert turns['o3'][-1].numbers == dict(promise=None, worth=.1, best='no organelle', fits=0), 'none is left'


def test_a_pair_that_is_stopped_leaves_its_place_to_the_next(host):
    m = meeting(host, niches=FAMILIES, tokens=0)
    m.facts = m.a.facts(log(UNEVEN, generation=9))
    known(m)
    m.a.tokens.earn('o4', 300, 0)
    decisions, attempts = decided(m)
    assert [made.outcome for made in attempts] == ['low_tokens', 'low_tokens', 'merged']
    assert [d.organelle for d in decisions if d.gate == 'low_tokens' and d.passed] == ['o4']
    assert tally(decisions) == {'low_tokens': 2, 'ready': 1, 'merge_limit': 1}


@pytest.mark.parametrize('weaker, second', [('o3', 'o3'), ('o1', 'o1')])
def test_only_the_first_of_a_niche_is_considered(host, weaker, second):
    m = meeting(host, niches=['math', 'string.sort', 'math'], weaker=weaker)
    turns, (parents,) = candidate_pairs(m)
    assert [id for id, steps in turns.items() if not steps[-1].passed] == [second] not in parents
    stop = turns[second][-1]
    found = stop.numbers
    assert stop.gate == 'second_in_niche' and found['best'] in parents and found['low'] < found['first']
    assert not any(second in who for who, _, _ in m.a.examiner.evaluations), 'and no other is asked'


def test_equals_of_a_niche_are_both_the_first(host):
    turns, found = candidate_pairs(meeting(host, niches=['math', 'string.sort', 'math']))
    assert found == [('o1', 'o2')] and all(steps[5].passed for steps in turns.values())


def test_candidate_partners_are_few(host):
    m = meeting(host, niches=FAMILIES, candidates=1)
    turns, _ = candidate_pairs(m)
    assert {len(who) for who, _, _ in m.a.examiner.evaluations} == {1} and len(m.a.examiner.evaluations) == 2
    assert [steps[-1].gate for steps in turns.values()].count('second_in_niche') == 3, 'the partner, and two not asked'
    with pytest.raises(ValidationError, match='candidates'): AssimilationConfig(candidates=8)


def test_all_candidate_partners_find_a_slot(host):
    population = Population(host, capacity=8, max_rank=4, blocks=1)
    for i in range(8): population.birth(rank=2, traits=Traits(niche='string.sort' if i else 'math'))
    a = Assimilation(AssimilationConfig(merges=1, candidates=7, survey=4), population, CELLS,
                     Examiner(population, max_new_tokens=2))
    for id in population.ids: a.tokens.earn(id, 4, 0)
    a.survey(population.ids, 3, rng=rng, seed_for=seed_for)
    assert set(a.skill) == set(population.ids) and a.examiner.bill['answers'] == 8 * 4
    assert not any(a.tokens.balances.values())


# --- what evidence costs, and what a drought changes

def test_tokens_are_bought_with_energy_above_the_reserve(host):
    m, ledger = meeting(host, tokens=0, token_price=.3, income=.25, reserve=2.), Ledger(EconomyConfig(cap=30.))
    for id, energy in (('o1', 14.), ('o2', 1.)): ledger.open(id, energy, generation=0)
    m.a.earn(ledger, 1)
    assert m.a.tokens.balances == {'o1': 10} and ledger.balances == pytest.approx({'o1': 11., 'o2': 1.})
    assert [(r['account'], r['amount']) for r in ledger.drain()][-1] == ('evidence', pytest.approx(-3.))
    ledger.grant('o1', 25., 'market', 1)
    m.a.earn(ledger, 1)
    assert m.a.tokens.balances[COMMONS] == int(6. / .3) and ledger.audit().balanced


def test_no_token_is_bought_that_finds_no_room(host):
    m, ledger = meeting(host, tokens=0, token_cap=3), Ledger(EconomyConfig(cap=30.))
    ledger.open('o1', 30., generation=0)
    for generation in range(3): m.a.earn(ledger, generation)
    assert m.a.tokens.balances == {'o1': 3} and ledger.balance('o1') == pytest.approx(30 - 3 * .3)


def test_the_economy_relaxes_by_steps_and_within_bounds(host):
    a = meeting(host, stall=6, floor_step=2., floor_max=12., roi_gate_step=.25, roi_gate_min=0.).a
    found = [a.relief(g, floor=1., roi_gate=1.) for g in (0, 5, 6, 12, 36, 600)]
    assert found == [(1., 1.), (1., 1.), (3., .75), (5., .5), (12., 0.), (12., 0.)]
    a.last_merge = 600
    assert a.relief(605, floor=1., roi_gate=1.) == (1., 1.) == a.relief(3, floor=1., roi_gate=1.)
    assert a.relief(9000, floor=20., roi_gate=-0.) == (20., 0.), 'what is beyond the bounds stays where it is'


def test_relief_neither_begins_without_merges_nor_revives_what_is_off(host):
    assert meeting(host, merges=0).a.relief(600, floor=1., roi_gate=1.) == (1., 1.)
    assert meeting(host).a.relief(600, floor=0., roi_gate=1.) == (0., 1.), 'a floor of 0 switches top-ups off'


@pytest.mark.parametrize('knob', [dict(merges=-1), dict(alpha=0.), dict(look=7), dict(token_price=0.),
                                  dict(rule='mean'), dict(worth=float('nan')), dict(merge=1), dict(merges=True)])
def test_knobs_have_bounds(knob):
    with pytest.raises(ValidationError): AssimilationConfig(**knob)
