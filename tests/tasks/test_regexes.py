"""Whatever pattern a model writes, it is matched in time that grows with the text, and alike on every machine."""
import re
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from evolora.tasks import regexes
from evolora.tasks.families import FAMILIES, grade
from tasks.contract import one_task

BOMBS = ['(a|aa)+$b', '((a+)+)+$b', '(a*)*(a*)*(a*)*b', '(?R)+b', '(?R)', '((?1)|a)*b', '(a?(?R))', '(.|..)*$b',
         '(?=(a|aa)+$b)a', '(?e)(a|aa)+$b',
         '(?b)(a|aa)+$b', '(?r)b(a|aa)+', '(?p)(a|aa)+$b', '(a|a|a|a|a|a)+$b', '(?:a?){9}b', 'a{99999}{99999}',
         '((a{1000}){1000}){1000}', '(?:\\pL|\\pN){1000}', '.{1000}.{1000}.{1000}',
         '(' * 40, '[' * 40, '\\' * 39]


@pytest.mark.parametrize('pattern', ['(?R)', '(?1)', '(a)\\1', '(?=a)a', '(?<=a)a', '(?!b)a', '(?P=x)', '(?>a)', 'a*+',
                                     '(?e)a', '\\L<a>', '(?(1)a)', '\ud800', '', 'a' * 41])
def test_what_is_not_regular_is_no_pattern(pattern):
    task = one_task('regex.synthesis')
    assert not regexes.compiles(pattern) and not regexes.matches(pattern, 'aaaa')
    assert not grade(task, pattern).parsed and not grade(task, pattern).success


def test_bombs_earn_nothing():
    task = one_task('regex.synthesis')
    for bomb in BOMBS: assert not grade(task, bomb).success, bomb


@pytest.mark.parametrize('depth', range(5))
def test_patterns_mean_what_they_mean_in_python(depth):
    rng = np.random.default_rng(depth)
    for _ in range(100):
        atoms = regexes.draw_pattern(rng, depth, rng.random())
        pattern = regexes.spell(atoms)
        texts = [regexes.expand(atoms, rng), regexes.mismatch(atoms, rng), 'x', '']
        assert [regexes.matches(pattern, x) for x in texts] == [bool(re.fullmatch(pattern, x)) for x in texts], pattern


@pytest.mark.parametrize('depth', range(5))
def test_a_list_of_what_is_shown_passes_only_where_there_is_no_more(depth):
    family, passed = FAMILIES['regex.synthesis'], 0
    for i in range(120):
        task = family.draw(np.random.default_rng(i), depth, i % 11 / 10)
        assert all(re.fullmatch(task.answer, x) for x in task.meta['good']), task.prompt
        shown = task.prompt.split(' but not ')[0].split()[4:]
        if grade(task, '|'.join(shown)).success:
            assert not set('+*') & set(task.answer) and set(task.meta['good']) == set(shown), task.prompt
            passed += 1
        else: assert not grade(task, '|'.join([*shown, *shown])).success
    assert passed < 10


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
