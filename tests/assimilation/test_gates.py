"""Every gate stops an organelle and lets one pass, in its own sentence, and is counted exactly once."""
import json
from string import Formatter

import pytest

from scripted import (FAMILIES, SHORT, better, decided, equal, forgetful, log, seed_for, meeting, narrow,
                     on_probation, rarely_better, rng, tried)
from evolora.assimilation.gates import EVENTS, GATES, event, explain, gate_label, judge, replay, tally, turn
from evolora.host.model import tiny_host
from evolora.assimilation.trials import probation


@pytest.fixture(scope='module')
def host(): return tiny_host()


def rows(decisions): return [json.loads(json.dumps(vars(d))) for d in decisions]


# --- the registry alone

TEXTS = {'best', 'topup', 'child'}      # what a sentence names, all the rest are numbers


def numbers(sentence, **known):
    holes = {name for _, name, _, _ in Formatter().parse(sentence) if name and name != 'partners'}
    return {name: 'o1' if name in TEXTS else 1 for name in sorted(holes)} | known


def at(gate, difference):
    "Numbers with the judged one so far above its bound"
    g = GATES[gate]
    return numbers(g.sentence) | {g.value: 1 + difference, g.bound: 1}


@pytest.mark.parametrize('gate', GATES)
def test_a_gate_opens_on_one_side_only(gate):
    verdicts = {d: GATES[gate].passes(at(gate, d)) for d in (-.5, 0, .5)}
    assert list(verdicts.values()) == {'>=': [0, 1, 1], '>': [0, 0, 1], '<': [1, 0, 0]}[GATES[gate].relation]
    assert not GATES[gate].passes(at(gate, float('nan'))), 'what was not measured opens nothing'
    with pytest.raises(KeyError, match=GATES[gate].value): GATES[gate].passes({GATES[gate].bound: 1})


def at_gate_opens(gate, difference): return (difference < 0) == (GATES[gate].relation == '<')


@pytest.mark.parametrize('gate', GATES)
def test_a_gate_reports_what_it_compared_in_one_line(gate):
    g = GATES[gate]
    assert g.name == gate and g.question.endswith('?') and g.label and '_' not in g.label
    for difference in (-.5, .5):
        decision = judge(gate, 'o7', 3, partners=['o8'], **at(gate, difference))
        line, answer = str(decision), 'yes' if at_gate_opens(gate, difference) else f'NO, {g.label} ({gate})'
        assert line.startswith(f'{g.question} {answer}: o7 ') and '\n' not in line
    a, b = (str(judge(gate, 'o7', 3, **at(gate, d))).split(':', 1)[1] for d in (-.5, .5))
    assert a != b, 'the sentence shows the number that is judged'


def test_labels_tell_ends_of_a_turn_apart():
    ends = [*GATES, *EVENTS, 'ready']
    labels = [gate_label(name) for name in ends]
    assert len({*labels}) == len(ends) and gate_label('of_my_own') == 'of my own'
    assert all('no_' not in label and len(label) < 30 for label in labels)


def test_what_is_not_known_opens_nothing_and_has_a_sentence():
    unknown = judge('no_partner', 'o7', 3, promise=None, worth=.1, best='no organelle', fits=2)
    assert not unknown.passed and 'promise of none is known' in str(unknown) and '-1' not in str(unknown)
    assert replay([json.loads(json.dumps(vars(d))) for d in turn([unknown])]) == []


@pytest.mark.parametrize('name', EVENTS)
def test_an_event_reports_what_happened_in_one_line(name):
    line = str(event(name, 'o7', 3, partners=['o8', 'o9'], **numbers(EVENTS[name], uplift=.25)))
    assert line.startswith(f'{gate_label(name)}: o7 ') and '+0.25' in line and '\n' not in line
    assert event(name, 'o7', 3).passed == (name != 'trial_expired')


def test_names_are_known_and_no_event_is_called_as_a_gate():
    assert not GATES.keys() & EVENTS.keys()
    for made, known in ((judge, GATES), (event, EVENTS)):
        with pytest.raises(ValueError, match="got 'rain'; add it to") as e: made('rain', 'o1', 0)
        assert '\n' not in str(e.value) and all(name in str(e.value) for name in known)


@pytest.mark.parametrize('gate', GATES)
def test_a_turn_counts_once_whatever_came_before(gate):
    before = [judge(g, 'o1', 0, **at(g, {'<': -1}.get(GATES[g].relation, 1))) for g in GATES if g != gate]
    stop = judge(gate, 'o1', 0, **at(gate, {'<': 1}.get(GATES[gate].relation, -1)))
    decisions = turn([*before, stop])
    assert [d.final for d in decisions] == [False] * len(before) + [True] and tally(decisions) == {gate: 1}
    assert tally(turn(before)) == {'ready': 1} and explain(decisions, 'o1').count('\n') == len(before)
    assert replay(rows(decisions)) == []


def test_turns_may_be_empty():
    assert turn([]) == [] and tally([]) == {} and replay([]) == [] and explain([], 'o1') == 'o1 had no turn'


# --- the record

HONEST = [*turn([judge('no_activity', 'o1', 4, answers=9, least=1, window=10),
                 judge('uplift_below_threshold', 'o1', 4, partners=['o2'], outlook=1., futility=0., uplift=.3,
                       best='o2', pairs=32),
                 judge('gate_check_failed', 'o1', 4, partners=['o2'], e=200., needed=112., best='o2', pairs=32),
                 event('merged', 'o1', 4, partners=['o2'], child='o3', uplift=.3, best='o2', e=200., energy_kept=.9)]),
          *turn([judge('low_power_dr', 'o9', 4, partners=['o1', 'o2'], rows=0, least=8),
                 event('trial_expired', 'o9', 4, partners=['o1', 'o2'], e=3., needed=112., best='o1', uplift=.1)])]


def forged(i, **changes): return [r | changes if j == i else r for j, r in enumerate(rows(HONEST))]


def test_an_honest_record_decides_again(): assert replay(rows(HONEST)) == replay(vars(d) for d in HONEST) == []


@pytest.mark.parametrize('i', range(len(HONEST)))
def test_no_verdict_can_be_turned_around(i):
    if HONEST[i].gate == 'merged': return
    assert any(f'row {i}: {HONEST[i].gate} of' in line for line in replay(forged(i, passed=not HONEST[i].passed)))


@pytest.mark.parametrize('record, line', [
    (forged(2, numbers=rows(HONEST)[2]['numbers'] | {'e': 100.}),
     'row 2: gate_check_failed of o1 was noted as passed=True, its numbers give False'),
    (forged(5, gate='trial_promoted', passed=True),
     'row 5: trial_promoted of o9 was noted as passed=True, its numbers give False'),
    (forged(5, gate='trial_promoted', passed=False),
     'row 5: trial_promoted of o9 came after low_power_dr had stopped it'),
    (rows(HONEST)[:2] + rows(HONEST)[3:], 'row 2: merged of o1 did not come after gate_check_failed'),
    (forged(3, gate='trial_created'), 'row 3: trial_created of o1 did not come after uplift_below_threshold'),
    (rows(HONEST) + rows(HONEST)[4:5], 'row 6: low_power_dr of o9 came after trial_expired had stopped it'),
    (rows(HONEST)[:-1], 'generation 4: the turn of o9 ended 0 times'),
    (forged(4, final=True), 'generation 4: the turn of o9 ended 2 times'),
    ([r | {'final': i in (0, 5)} for i, r in enumerate(rows(HONEST))],
     'generation 4: the turn of o1 went on after its end')])
def test_a_forged_record_is_found(record, line): assert line in replay(record)


def test_a_record_of_another_version_is_an_error():
    with pytest.raises(ValueError, match="row 1 expected a known gate, got 'bad_day'"):
        replay(forged(1, gate='bad_day'))


# --- each gate in the pipeline: what makes it stop an organelle, in a world where all others open

LOSER = {'o3': 0., 'o1': 1., 'o2': 1.}      # o3 is the child
STOPS = {
    'no_activity': dict(answers=0), 'cooldown': dict(generation=1), 'insufficient_scores': dict(answers=7),
    'no_best_cell': dict(others=64), 'second_in_niche': dict(niches=['math', 'string.sort', 'math'], weaker='o3'),
    'low_energy': dict(energy=.1), 'merge_limit': dict(niches=FAMILIES),
    'no_partner': dict(niches=['math', 'math']), 'reserve_active': dict(energy=3.), 'low_tokens': dict(tokens=20),
    'low_power': dict(uplift=.05, least_power=.9), 'canary_failed': dict(is_right=forgetful),
    'probe_failed': dict(is_right=narrow),
    'uplift_below_threshold': dict(is_right=equal),
    'gate_check_failed': dict(is_right=rarely_better, trials=0, **SHORT),
    'low_power_dr': dict(log=log(LOSER, generation=11, n=7)),
    'log_below_threshold': dict(log=log(LOSER, generation=11))}
ON_PROBATION = ('low_power_dr', 'log_below_threshold')


def looked(host, recent, *, is_right=better, generation=11, **changes):
    "A child on probation, and what a look at it decides"
    m = meeting(host, is_right=rarely_better, **SHORT, **changes)
    trial = on_probation(m)
    m.a.examiner.is_right = is_right
    return m, trial, *probation(m.a, trial, recent, generation, rng=rng, seed_for=seed_for)


@pytest.mark.parametrize('gate', GATES)
def test_every_gate_stops_an_organelle_and_is_counted_once(host, gate):
    if gate in ON_PROBATION:
        m, _, decisions, outcome = looked(host, STOPS[gate]['log'])
        decisions = turn(decisions)
        assert outcome == 'open'
        assert len(m.a.examiner.evaluations) == 3, 'a canary, a probe and a look; none on probation'
    else:
        m = meeting(host, **STOPS[gate])
        decisions, _ = decided(m)
    stops = [d for d in decisions if d.gate == gate and not d.passed]
    assert stops and all(d.final for d in stops) and tally(decisions)[gate] == len(stops)
    assert {d.gate for d in decisions if not d.passed} == {gate}, 'no other gate stopped any'
    turns = {d.organelle for d in decisions}
    assert sum(tally(decisions).values()) == len(turns) == sum(d.final for d in decisions)
    assert replay(rows(decisions)) == []
    for id in turns:
        own = [d for d in decisions if d.organelle == id]
        assert len({d.gate for d in own}) == len(own) and all(str(d) in explain(decisions, id).split('\n') for d in own)
    assert m.a.levels.found.count(None) == len(m.a.trials), 'a gate of the stream is closed with the test'


def test_every_gate_opens(host):
    decisions, (made,) = decided(meeting(host))
    assert made.outcome == 'merged' and all(d.passed for d in decisions)
    _, _, later, _ = looked(host, log({'o1': 1., 'o2': 1., 'o3': 1.}, generation=11))
    assert {d.gate for d in decisions + later if d.passed} >= GATES.keys()


def test_a_pair_meets_the_gates_in_the_order_of_their_price(host):
    decisions, _ = decided(meeting(host))
    order = [list(GATES).index(d.gate) for d in decisions if d.organelle == 'o1']
    assert order == sorted(order) and len(set(order)) == len(order)
    partner = [d for d in decisions if d.organelle == 'o2']
    assert partner[-1].final and partner[-1].passed, 'a partner has its own turn, which nothing stopped'
    lines = explain(decisions, 'o2').split('\n')
    assert [line.partition('?')[0] + '?' for line in lines] == [GATES[d.gate].question for d in decisions
                                                                if d.organelle == 'o2' or 'o2' in d.partners]


# --- each event

def promoted(host):
    _, trial, decisions, outcome = looked(host, log({'o1': 1., 'o2': 1., 'o3': 1.}, generation=11), look=32)
    return decisions, outcome


def expired(host):
    _, _, decisions, outcome = looked(host, log(LOSER, generation=11), generation=16)
    return decisions, outcome


def frozen(host):
    "It begins its final test, and has no tokens left for it"
    _, _, decisions, outcome = looked(host, log({'o1': 1., 'o2': 1., 'o3': 1.}, generation=11), tokens=65)
    assert outcome == 'open'
    return decisions, decisions[-2].gate


@pytest.mark.parametrize('name', EVENTS)
def test_every_event_happens(host, name):
    "Merges and trials are the outcome of an attempt, and noted by the ecology; the end of a probation notes itself"
    made = {'merged': lambda: (None, tried(meeting(host)).outcome),
            'trial_created': lambda: (None, tried(meeting(host, is_right=rarely_better, **SHORT)).outcome),
            'trial_frozen': lambda: frozen(host), 'trial_promoted': lambda: promoted(host),
            'trial_expired': lambda: expired(host)}
    decisions, outcome = made[name]()
    assert outcome == name
    if name == 'trial_frozen':
        assert [d.gate for d in decisions[-2:]] == [name, 'low_tokens'] and '+0.56 over' in str(decisions[-2])
        assert replay(rows(turn(decisions))) == [] and tally(turn(decisions)) == {'low_tokens': 1}
    elif decisions:
        assert decisions[-1].gate == name and decisions[-1].organelle == 'o3' and decisions[-1].partners == ('o1', 'o2')
        assert replay(rows(turn(decisions))) == [] and tally(turn(decisions)) == {name: 1}
