"""Every gate opens on one side only, in its own sentence, and a record cannot be improved by hand.

That each gate stops a merge in a life is a test of those who ask, in `test_merge_test`.
"""
import json
from dataclasses import replace as changed
from string import Formatter

import numpy as np
import pytest

from evolora.assimilation.gates import (EVENTS, GATES, Gate, event, explain, gate_label, judge, measured, register_gate,
                                        replay, tally, turn)


def rows(decisions): return [json.loads(json.dumps(vars(d))) for d in decisions]


# --- the registry alone

TEXTS = {'family', 'child'}      # what a sentence names, all the rest are numbers


def numbers(sentence, **known):
    holes = {name for _, name, _, _ in Formatter().parse(sentence) if name and name != 'parents'}
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


def opens(gate, difference): return (difference < 0) == (GATES[gate].relation == '<')


@pytest.mark.parametrize('gate', GATES)
def test_a_gate_reports_what_it_compared_in_one_line(gate):
    g = GATES[gate]
    assert g.name == gate and g.question.endswith('?') and g.label and '_' not in g.label
    for difference in (-.5, .5):
        line = str(judge(gate, 'o7', 3, partners=['o8'], **at(gate, difference)))
        answer = 'yes' if opens(gate, difference) else f'NO, {g.label} ({gate})'
        assert line.startswith(f'{g.question} {answer}: o7 ') and '\n' not in line
    a, b = (str(judge(gate, 'o7', 3, **at(gate, d))).split(':', 1)[1] for d in (-.5, .5))
    assert a != b, 'the sentence shows the number that is judged'


def test_labels_tell_ends_of_a_turn_apart():
    ends = [*GATES, *EVENTS]
    labels = [gate_label(name) for name in ends]
    assert len({*labels}) == len(ends) and gate_label('of_my_own') == 'of my own'
    assert all('no_' not in label and len(label) < 30 for label in labels)


def test_what_is_not_known_opens_nothing_and_has_a_sentence():
    unknown = judge('child_unlikely', 'o7', 3, lag=None, most=.1)
    assert not unknown.passed and 'no right answer of the past' in str(unknown)
    assert replay(rows(turn([unknown]))) == []


@pytest.mark.parametrize('name', EVENTS)
def test_an_event_reports_what_happened_in_one_line(name):
    happened = event(name, 'o7', 3, partners=['o8'], **numbers(EVENTS[name], uplift=.25))
    line = str(happened)
    assert line.startswith(f'{gate_label(name)}: o7 ') and 'o7 and o8' in line and '+0.25' in line and '\n' not in line
    assert happened.passed


@pytest.mark.parametrize('partners, parents', [(['o8'], ('o7', 'o8')), (['o8', 'o9'], ('o8', 'o9'))])
def test_the_child_of_two_others_is_theirs(partners, parents):
    decision = judge('not_shown_equal', 'o7', 3, partners=partners, **at('not_shown_equal', -.5))
    assert decision.parents == parents and f"the child of {' and '.join(parents)} " in str(decision)


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
    assert explain(decisions, 'o1').count('\n') == len(before) and replay(rows(decisions)) == []


def test_turns_may_be_empty():
    assert turn([]) == [] and tally([]) == {} and replay([]) == [] and explain([], 'o1') == 'o1 had no turn'


# --- the record

SHOWN = dict(family='math', e=200., needed=112., uplift=.02, pairs=96)
HONEST = [*turn([judge('no_pair', 'o1', 4, pairs=1, least=1),
                 judge('low_compute', 'o1', 4, purse=52., least=41.),
                 judge('child_unlikely', 'o1', 4, partners=['o2'], lag=.02, most=.1),
                 judge('not_shown_equal', 'o1', 4, partners=['o2'], **SHOWN),
                 event('took_over', 'o1', 4, partners=['o2'], child='o3', energy_kept=.9, **SHOWN)]),
          *turn([judge('no_pair', 'o3', 5, pairs=1, least=1), judge('low_compute', 'o3', 5, purse=3., least=41.)])]


def forged(i, **changes): return [r | changes if j == i else r for j, r in enumerate(rows(HONEST))]


def test_an_honest_record_decides_again(): assert replay(rows(HONEST)) == replay(vars(d) for d in HONEST) == []


@pytest.mark.parametrize('i', range(len(HONEST)))
def test_no_verdict_can_be_turned_around(i):
    assert any(f'row {i}: {HONEST[i].gate} of' in line for line in replay(forged(i, passed=not HONEST[i].passed)))


@pytest.mark.parametrize('record, line', [
    (forged(3, numbers=SHOWN | {'e': 100.}),
     'row 3: not_shown_equal of o1 was noted as passed=True, its numbers give False'),
    (forged(4, numbers=SHOWN | {'e': 100.}), 'row 4: took_over of o1 was noted as passed=True, its numbers give False'),
    (forged(1, passed=False), 'row 2: child_unlikely of o1 came after low_compute had stopped it'),
    (rows(HONEST)[:3] + rows(HONEST)[4:], 'row 3: took_over of o1 did not come after not_shown_equal'),
    (rows(HONEST) + rows(HONEST)[5:6], 'row 7: no_pair of o3 came after low_compute had stopped it'),
    (rows(HONEST)[:-1], 'generation 5: the turn of o3 ended 0 times'),
    (forged(5, final=True), 'generation 5: the turn of o3 ended 2 times'),
    ([r | {'final': i in (0, 6)} for i, r in enumerate(rows(HONEST))],
     'generation 4: the turn of o1 went on after its end'),
    ([r | {'final': i in (3, 5)} for i, r in enumerate(rows(HONEST)[:4] + rows(HONEST)[5:])],
     'generation 4: the turn of o1 ended at not_shown_equal, which opened')])
def test_a_forged_record_is_found(record, line): assert line in replay(record)


def test_a_record_of_another_version_is_an_error():
    with pytest.raises(ValueError, match="row 1 expected a known gate, got 'bad_day'"):
        replay(forged(1, gate='bad_day'))


# --- gates of one's own

OWN = Gate('of_my_own', 'is it?', 'it', '>', 'bound', 'has {it}, {bound} expected', lambda *about: {})


@pytest.fixture(autouse=True)
def as_before():
    "Whatever a test registers is gone after it"
    yield
    for name in [*GATES.own]: del GATES[name], GATES.own[name]


@pytest.mark.parametrize('changes, expected', [
    (dict(measure=None), 'give it a measure'), (dict(relation='='), 'one of >=, >, <'),
    (dict(name='low_compute'), 'which the library has'), (dict(name='took_over'), 'which the library has'),
    (dict(name='No Name'), 'lower-case')])
def test_a_gate_that_cannot_be_registered(changes, expected):
    with pytest.raises(ValueError, match=expected) as e: register_gate(changed(OWN, **changes))
    assert '\n' not in str(e.value) and 'of_my_own' not in GATES


def test_numbers_of_numpy_become_plain_ones():
    register_gate(changed(OWN, measure=lambda *about: dict(it=np.float32(.5), bound=np.int64(0), family='math')))
    found = measured('of_my_own', 'merging', 'o1', {})
    assert json.loads(json.dumps(found)) == dict(it=.5, bound=0, family='math')
    decision = judge('of_my_own', 'o1', 3, **found)
    assert decision.passed and str(decision) == 'is it? yes: o1 has 0.5, 0 expected'


@pytest.mark.parametrize('given, expected', [
    (None, "'it' and 'bound'"), (dict(it=1), "'it' and 'bound'"), (dict(it=None, bound=1), 'finite numbers'),
    (dict(it=float('inf'), bound=1), 'finite numbers'), (dict(it=[1], bound=1), 'finite numbers')])
def test_numbers_that_cannot_be_kept_are_refused(given, expected):
    register_gate(changed(OWN, measure=lambda *about: given))
    with pytest.raises(ValueError, match=expected) as e: measured('of_my_own')
    assert '\n' not in str(e.value)


def test_a_sentence_fits_its_numbers():
    register_gate(changed(OWN, sentence='has {it} of {all}', measure=lambda *about: dict(it=1, bound=0)))
    with pytest.raises(ValueError, match="its sentence does not fit its numbers, it, bound"): measured('of_my_own')
