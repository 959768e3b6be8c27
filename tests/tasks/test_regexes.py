"""The matcher has a clock: whatever pattern a model writes, it comes back."""
import subprocess
import sys

import pytest
from hypothesis import given, settings, strategies as st

from evolora.tasks import regexes
from evolora.tasks.families import grade
from tasks.contract import one_task

BOMBS = ['(a|aa)+$b', '((a+)+)+$b', '(a*)*(a*)*(a*)*b', '(?R)+b', '(?R)', '((?1)|a)*b', '(a?(?R))', '(.|..)*$b',
         '(?=(a|aa)+$b)a', '(?e)(a|aa)+$b',
         '(?b)(a|aa)+$b', '(?r)b(a|aa)+', '(?p)(a|aa)+$b', '(a|a|a|a|a|a)+$b', '(?:a?){9}b', 'a{99999}{99999}',
         '(' * 40, '[' * 40, '\\' * 39]


def test_every_match_has_a_clock(monkeypatch):
    clocks, real = [], regexes.regex.fullmatch
    def watched(pattern, text, **options):
        clocks.append(options.get('timeout'))
        return real(pattern, text, **options)
    monkeypatch.setattr(regexes.regex, 'fullmatch', watched)
    task = one_task('regex.synthesis')
    for bomb in BOMBS: assert not grade(task, bomb).success, bomb
    assert clocks and set(clocks) == {regexes.MATCH_SECONDS}


def test_bombs_go_off_quietly():
    "In a process of its own, which can be ended if the clock should fail; the limit is generous, not a measurement"
    code = f'from evolora.tasks.regexes import matches\nfor bomb in {BOMBS!r}: print(matches(bomb, "a" * 200))'
    done = subprocess.run([sys.executable, '-W', 'ignore', '-c', code], capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout.split(), done.stderr) == (0, ['False'] * len(BOMBS), '')


@settings(max_examples=200, deadline=None)
@given(pattern=st.lists(st.sampled_from([*'abc()[]|+*?.^$\\-!<>=', '(?', '(?:', '(?P<a>', '(?P=a)', '(?R)', '(?1)',
                                         '(?>', '(?<=', '(?!', '(?(1)', '\\L<a>',
                                         '\\1', '\\K', '\\X', '(?V1)', '(?e)', '(?r)', '(?L)', '[[', '--', '[:alpha:]',
                                         '(?#', '\\x', '\\p']),
                        min_size=1, max_size=10).map(''.join))
@pytest.mark.filterwarnings('ignore::FutureWarning')
def test_any_pattern_comes_back(pattern):
    assert regexes.matches(pattern, 'aabbc') in (True, False)
