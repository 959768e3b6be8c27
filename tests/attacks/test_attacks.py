"""No claim that our pages state falls to an attack, and every attack can fell."""
import copy
from dataclasses import replace

import numpy as np
import pytest

from evolora.experiments.study_plan import Cell, Plan, checked_plan
from evolora.experiments.study_results import WHOLE, packed
from evidence import Evidence, committed, evidence_of, points
from pages import leads_on, page_names, sections_with
from rivals import FROZEN, SINGLE, kept
from run import ATTACKS, falls
from stated_claims import CLAIMS, NO_LEADS, STATUSES, Claim

ids = lambda claims: [f'{c.status}: {c.text}' for c in claims]


def test_there_are_twelve_attacks_each_written_down():
    assert sorted(ATTACKS) == list(range(1, 13))
    assert all(f'Attack {n}:' in __import__(attack.__module__).__doc__ for n, attack in ATTACKS.items())


@pytest.mark.parametrize('claim', CLAIMS, ids=ids(CLAIMS))
def test_a_claim_falls_to_no_attack_but_those_that_its_page_concedes(claim):
    found = falls(claim)
    if claim.status == 'withdrawn': assert found
    else: assert set(found) <= set(claim.concedes), found


@pytest.mark.parametrize('claim', CLAIMS, ids=ids(CLAIMS))
def test_a_claim_is_found_on_its_pages_and_its_limit_or_withdrawal_next_to_it(claim):
    assert claim.status in STATUSES and claim.places
    for page, text, beside in claim.places:
        where = sections_with(page, text)
        assert where, f'{page} no longer says {text!r}'
        assert beside or claim.status == 'standing', f'{page} says {text!r} without a limit'
        assert any(beside in section for section in where), f'{page} says {text!r} without {beside!r} in that section'


def test_only_a_limited_claim_concedes_something():
    assert all(bool(c.concedes) <= (c.status in ('limited', 'pilot')) for c in CLAIMS)


def figures(claim: Claim) -> set[str]:
    "The numbers of points by which a page may state a claim"
    found = {*claim.figures, f'{claim.lead:.1f}'}
    if not claim.study or claim.measure: return found
    own = evidence_of(claim)
    seen = own.seen(claim)
    numbers = [seen.seen.estimate, seen.without.estimate]
    if own.plan.measured.served: numbers.append(own.seen(claim, WHOLE).seen.estimate)
    if own.first_period(claim): numbers.append(own.before_change(claim))
    return found | {text for x in numbers for text in (points(x)[1:], f'{abs(100 * x):.0f}')}


@pytest.mark.parametrize('page', page_names())
def test_a_page_states_no_lead_that_is_not_in_the_list(page):
    known = set().union(*(figures(c) for c in CLAIMS if any(place.page == page for place in c.places)), set())
    spared = [text for other, text, _ in NO_LEADS if other == page]
    for figure, around in leads_on(page):
        assert figure in known or any(text in around for text in spared), (
            f'{page} says a lead of {figure}: “…{around}…”; add it to tests/attacks/stated_claims.py')


def test_the_search_for_leads_finds_one_of_each_form(monkeypatch):
    import pages
    text = ('It has +4.5 points [+2.0, +7.0]. It is 3 points [1, 5] ahead, or ahead of all others by 6.1 points. '
            'That is −2.0 [−3.0, −1.0], and +0.5 [−1.0, +2.0].')
    monkeypatch.setattr(pages, 'prose', lambda page: text)
    assert [figure for figure, _ in pages.leads_on('any')] == ['4.5', '3', '6.1']


def test_no_exception_is_stale():
    for page, text, why in NO_LEADS: assert why and sections_with(page, text), f'{page} no longer says {text!r}'


# An invented study, in which nothing is wrong; each attack gets one fault.
ARMS = {'ecology': .8, 'reset': .5}


def plan_of(seeds: int = 6, of: str = 'ecology', against: str = 'reset', **changes) -> Plan:
    "A study of two arms; `changes` are those of the preset"
    conditions = [{'name': name, 'generations': 96} for name in (of, against)]
    worlds = [{'name': 'recurring', 'preset': 'worlds', 'changes': changes}]
    return checked_plan({'name': 'invented', 'question': 'Is it ahead?', 'hosts': 'habits', 'seeds': seeds,
                         'worlds': worlds, 'conditions': conditions, 'measured': {'served': True},
                         'comparisons': [{'of': of, 'against': [against]}]})


def curve_of(right: float, first: float = .5) -> list[list[float]]:
    "Accuracy in each generation, with another one before the first change"
    return [[float(i), first if i < 8 else right] for i in range(96)]


def exam_of(right: float, n: int, seed: int) -> dict:
    "So many answers of one family, of which this share is right"
    answers = np.random.default_rng(seed).permutation(np.arange(n) < round(right * n))
    return {'id': {'families': {'word.count': [int(answers.sum()), n]}, 'bits': packed(answers)}}


def cell_of(arm: str, seed: int, right: float) -> dict:
    "A run with this share of right answers, in the first period half of them"
    ways = {'served': exam_of(right, 480, seed), WHOLE: exam_of(right, 960, seed)}
    return {'condition': arm, 'seed': seed, 'ways': ways, 'curve': curve_of(right), 'gflops': 600., 'hashes': {},
            'spent': {'answers': 12288}}


def invented(plan=None, **changed) -> Claim:
    "A claim on an invented study that survives all attacks but that of a missing rival; `changed` are fields of it"
    plan = plan or plan_of()
    names = [c.name for c in plan.conditions]
    cells = {Cell(arm, seed, 'habits', plan.budgets[0], 'recurring'): cell_of(arm, seed, right)
             for arm, right in zip(names, ARMS.values()) for seed in plan.seeds}
    return replace(Claim('It is ahead.', 'standing', (), 'invented', *names, evidence=Evidence(plan, cells)), **changed)


def spoiled(claim: Claim, arm: str, change) -> Claim:
    "The same claim after a change to the cells of one arm"
    cells = copy.deepcopy(claim.evidence.cells)
    for cell, found in cells.items():
        if cell.condition == arm: change(found)
    return replace(claim, evidence=Evidence(claim.evidence.plan, cells))


def again(cell: dict, right: float, *ways: str) -> None:
    "Other answers in these parts of a run"
    made = cell_of(cell['condition'], cell['seed'], right)
    for way in ways: cell['ways'][way] = made['ways'][way]


def test_an_invented_claim_falls_to_rivals_only_where_they_do_better():
    strong = spoiled(invented(), 'reset', lambda cell: cell.update(curve=curve_of(.75)))
    assert falls(strong) == {}
    assert set(falls(invented())) == {1, 2}         # .5 is less than the base model with memory, and than one adapter
    away = invented(plan_of(world={'period': 4}))
    assert 'never run in this world' in falls(away)[1] and 2 not in falls(away)
    assert falls(replace(away, part=True)) == {}


def test_a_better_detector_fells_a_lead_over_the_same_arm():
    # The committed run of the tuned detector is on the map; with the rival as weak as there, the claim falls.
    run = next(run for run in kept() if run['arm'] == 'reset')
    on_map = next(c for c in CLAIMS if (c.study, c.world, c.against) == (run['study'], run['world'], 'reset'))
    assert 3 in falls(on_map)
    cells = {k: copy.deepcopy(x) for k, x in committed('worlds_map').cells.items()}
    for k, x in cells.items():
        if k.condition == 'reset': x['curve'] = [[a, .99] for a, _ in x['curve']]
    assert 3 not in falls(replace(on_map, evidence=Evidence(committed('worlds_map').plan, cells)))


def test_a_label_fells(): assert 4 in falls(invented(plan_of(of='told')))


def test_a_whole_run_fells():
    assert 5 in falls(spoiled(invented(), 'ecology', lambda cell: again(cell, .5, WHOLE)))
    assert 5 in falls(invented(least=40.)) and 5 not in falls(invented(least=20.))


def test_one_seed_that_carries_a_lead_fells():
    def only_the_third(cell): again(cell, .9 if cell['seed'] == 3 else .5, 'served')
    assert 6 in falls(spoiled(invented(), 'ecology', only_the_third))


def test_a_lead_before_any_change_fells():
    def begins(right): return lambda cell: cell.update(curve=curve_of(.8, first=right))
    assert 7 in falls(spoiled(invented(), 'ecology', begins(.7)))
    assert 7 not in falls(spoiled(invented(), 'ecology', begins(.6)))


def test_more_compute_fells():
    assert 8 in falls(spoiled(invented(), 'ecology', lambda cell: cell.update(gflops=640.)))
    assert 8 not in falls(spoiled(invented(), 'reset', lambda cell: cell.update(gflops=900.)))


def test_more_grades_fell_unless_the_lead_stays_by_as_many():
    more = lambda cell: cell.update(spent={'answers': 2 * 12288})
    late = lambda cell: (more(cell), cell.update(curve=[[float(i), .4 if i < 48 else .9] for i in range(96)]))
    assert 9 not in falls(spoiled(invented(), 'ecology', more))
    assert 9 in falls(spoiled(invented(), 'ecology', late))


def test_many_tests_and_few_seeds_fell():
    assert {10, 11} <= set(falls(invented(plan_of(seeds=4)))) and not {10, 11} & set(falls(invented()))


def test_a_small_lead_fells():
    assert 12 in falls(spoiled(invented(), 'ecology', lambda cell: again(cell, .52, 'served', WHOLE)))
    assert 12 not in falls(invented())


@pytest.mark.parametrize('number', range(1, 13))
def test_every_attack_fells_a_claim_that_our_pages_withdrew_or_limited(number):
    assert any(ATTACKS[number](claim) for claim in CLAIMS if claim.status != 'standing')


def test_runs_of_rivals_are_whole_and_say_who_made_them():
    assert kept()
    for run in kept():
        assert len(run['right']) >= 96 and all(0 <= x <= 1 for x in run['right'])
        assert run['gflops'] > 0 and len(run['commit']) == 40, 'run it again from a clean checkout'
    assert {FROZEN.arm, SINGLE.arm, 'reset'} <= {run['arm'] for run in kept()}
