"""No cheat of the collection gets away, and neither does one whose process lies about everything"""
import numpy as np
import pytest
from quick import SECRET, Inside

from evolora.attention.scoring.cheats import CHEATS, cheat, cheat_study, got_away
from evolora.attention.scoring.evaluation import Evaluator
from evolora.attention.scoring.model_sizes import read_tier
from evolora.host.mechanisms.program_source import Program, Refused

# Seconds a cheat, and long enough that softmax is clearly better than what is misled.
TIER = read_tier('tiny', sizes=((16, 2, 2), (24, 2, 2)), steps=60)
EVERY_DAY = ('ahead in single precision', 'ahead where rows begin alike', 'ahead without a gradient', 'the row before',
             'what was there before', 'ahead where the dice say so', 'more than it is given', 'a gradient of its own',
             'a gradient by a word of the library')


def refused(name):
    try: Program(cheat(name))
    except Refused: return True
    return False


@pytest.fixture(scope='module')
def judge():
    made = Evaluator('matrix_mixers', TIER, seeds=2, secret=SECRET)
    made.prepare(Inside())
    return made


def test_the_collection_has_many_habits_and_is_not_stopped_by_reading_alone():
    habits = {habit for habit, _ in CHEATS.values()}
    read = [name for name in CHEATS if not refused(name)]
    assert len(CHEATS) >= 24 and len(habits) >= 6 and len(read) >= 20
    assert len({Program(cheat(name)).digest for name in read}) == len(read)


@pytest.mark.parametrize('name', [pytest.param(name, marks=[pytest.mark.slow] * (name not in EVERY_DAY))
                                  for name in CHEATS])
def test_no_cheat_gets_away(judge, name):
    [row] = cheat_study(judge, Inside(), [name])
    assert not got_away(row) and row['habit'] == CHEATS[name][0], row
    assert (row['status'] == 'ok') == (row['gain'] is not None) and (row['status'] == 'ok') != bool(row['why']), row


@pytest.mark.parametrize('status,verdict,away', [
    ('ok', 'better', True), ('ok', 'unclear', True), ('ok', 'worse', False), ('refused', '', False),
    ('invalid', '', False), ('dropped', '', False)])
def test_away_is_who_was_measured_and_is_not_known_to_be_worse(status, verdict, away):
    assert got_away(dict(status=status, verdict=verdict)) is away


def test_a_cheat_that_never_comes_to_cheat_is_softmax():
    "To the bit: then it has no score that it does not deserve"
    row = dict(status='ok', verdict='unclear', gain=0., low=0., high=0.)
    assert not got_away(row) and got_away(row | {'high': 1e-9})


def test_an_honest_program_would_get_away(judge, monkeypatch):
    "So the study can fail"
    monkeypatch.setitem(CHEATS, 'honest', ('is softmax', 'def matrix(self, q, k, x): return '
                                                         'causal_softmax(q @ k.mT * self.entries**-.5) * 1.001'))
    [row] = cheat_study(judge, Inside(), ['honest'])
    assert got_away(row) and row['status'] == 'ok' and np.isfinite(row['gain'])
