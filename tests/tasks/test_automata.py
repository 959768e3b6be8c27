"""Whether two patterns are the same is decided as by trying every text, whatever they are, and in bounded steps."""
import re
from itertools import product

import pytest
from hypothesis import given, settings, strategies as st

from evolora.tasks import automata, regexes
from evolora.tasks.automata import MAX_LENGTH, accepts, difference, equivalent, parsed

TEXTS = [''.join(t) for n in range(6) for t in product('ab', repeat=n)] + ['c', 'ac', 'cb', '\n', 'a\n', 'é', '🧬']
PIECES = st.recursive(
    st.sampled_from(['a', 'b', '.', '[ab]', '[^a]', '[a-c]', '']),
    lambda inner: st.one_of(st.tuples(inner, inner).map(''.join), st.tuples(inner, inner).map('({0[0]}|{0[1]})'.format),
                            st.tuples(inner, st.sampled_from(['*', '+', '?', '{2}', '{1,}', '{0,2}', '{0}'])).map(
                                '(?:{0[0]}){0[1]}'.format)), max_leaves=5)


@settings(max_examples=300, deadline=None)
@given(pattern=PIECES)
def test_a_pattern_matches_here_what_it_matches_elsewhere(pattern):
    if parsed(pattern) is None:     # only for its length: too many positions need more than five leaves
        assert not pattern or len(pattern) > MAX_LENGTH or '{2}){2}' in pattern
        return
    whole = re.compile(pattern)     # ours, and short texts: no bomb
    for text in TEXTS:
        assert accepts(pattern, text) == bool(whole.fullmatch(text)), (pattern, text)
        if regexes.compiles(pattern): assert accepts(pattern, text) == regexes.matches(pattern, text), (pattern, text)


@settings(max_examples=300, deadline=None)
@given(one=PIECES, two=PIECES)
def test_what_tells_two_patterns_apart_is_shortest(one, two):
    if parsed(one) is None or parsed(two) is None:
        assert not equivalent(one, two)
        return
    found = difference(one, two)
    assert equivalent(one, two) == equivalent(two, one) == (found is None)
    apart = [t for t in TEXTS if accepts(one, t) != accepts(two, t)]
    if found is None: assert not apart
    else:
        assert accepts(one, found) != accepts(two, found)
        assert all(len(found) <= len(t) for t in apart)


@pytest.mark.parametrize('one, two', [
    ('a+', 'aa*'), ('a?', '(a|)'), ('a?', '(|a)'), ('[ab]', '(a|b)'), ('(a|ba)', 'b?a'), ('(a*b*)*', '[ab]*'),
    ('(ab)*a', 'a(ba)*'), ('a{2,3}', 'aaa?'), ('^a$', 'a'), ('^a|b$', '(a|b)'), ('(a+)+', 'a+'), ('(?:)*a', 'a'),
    ('[^a-z]|[a-z]', '.|[^a]'), ('((a|b)|c)*', '[a-c]*'), ('a{0}b', 'b'), ('(a?){3}', 'a{0,3}')])
def test_other_spellings(one, two): assert equivalent(one, two) and equivalent(two, one)


@pytest.mark.parametrize('one, two, text', [
    ('a*', 'a{0,40}', 'a' * 41), ('.', '[^a]', '\n'), ('a', 'A', 'A'), ('[a-f]*', '.*', '\0'), ('a|', 'a', ''),
    ('(a|b)*a(a|b){3}', '(a|b)*a(a|b){4}', 'aaaa'), ('[a-y]', '[a-z]', 'z'), ('[^a]', '[^ab]', 'b')])
def test_a_text_that_few_would_try(one, two, text): assert difference(one, two) == text


@pytest.mark.parametrize('pattern', [
    '', 'a' * (MAX_LENGTH + 1), '(', ')', 'a)', '(a', '[', ']', '[]', '[^]', 'a**', 'a*+', 'a+?', 'a??', '*', '+a',
    '|*',
    '(?R)', '(?1)', '(a)\\1', '(?=a)a', '(?!b)a', '(?<=a)a', '(?<!a)a', '(?P<x>a)', '(?P=x)', '(?>a)', '(?s).', '(?i)a',
    '(?#a)', '(?(1)a)', '\\w', '\\', '\\b', 'a b', ' a', 'a\n', '\ta', 'é', 'ａ', '\u0661', 'a\u0301', '\ud800', '🧬',
    '[b-a]', '[a-]', '[-a]', '[a^]', '[[:alpha:]]', 'a{3,2}', 'a{,3}', 'a{1', 'a{x}', 'a{100}', 'a{1}{2}', 'a^', '$a',
    '^*', '^^a', 'a$$', '(^a)', '(a$)', 'a{٣}', '((a{9}){9}){9}', '((((a{99}){99}){99}){99}){99}', '(' * 79,
    '(((((((((){99}){99}){99}){99}){99}){99}){99}){99}){99}', '((((|){99}|){99}|){99}|){99}',
    '(' * 40 + ')' * 39, '\0'])
def test_what_is_not_in_the_grammar_is_no_pattern(pattern):
    assert parsed(pattern) is None and not accepts(pattern, 'a') and not equivalent(pattern, pattern)
    with pytest.raises(ValueError, match='two patterns of the kind') as e: difference('a', pattern)
    assert len(str(e.value).splitlines()) == 1 and len(str(e.value)) < 300


def test_hostile_patterns_are_decided_in_few_steps(monkeypatch):
    "Counted and not timed: no pattern takes more steps than pairs of states and stretches of characters allow"
    bombs = ['(a+)+b', '((a+)+)+b', '(a|aa)+b', '(a|a|a|a|a|a)+b', '(a*)*(a*)*(a*)*b', '(.|..)*b', '(a|b)*a(a|b){50}',
             '(.*a|.*b|.*c|.*d|.*e|.*f|.*g|.*h){7}i', '.*(.*.*.*.*.*.*.*.*.*){9}', '(' * 26 + 'a' + ')*' * 26,
             'a{99}', '((((a?){3}){3}){3})b', '(((((((((a*)*)*)*)*)*)*)*)*)*b']
    steps = []
    real = automata.Automaton.step
    monkeypatch.setattr(automata.Automaton, 'step', lambda self, *args: steps.append(1) or real(self, *args))
    for bomb in bombs:
        assert parsed(bomb), bomb
        for other in ('a', 'a+b', bomb + 'c'):
            steps.clear()
            difference.cache_clear()
            assert not equivalent(bomb, other) or (bomb, other) in [(b, 'a+b') for b in bombs]
            assert len(steps) <= 2 * automata.MAX_STATES * 40, bomb
        steps.clear()
        assert accepts(bomb, 'a' * 500) == regexes.matches(bomb, 'a' * 500) or not regexes.compiles(bomb)
        assert len(steps) == 500


def test_what_is_not_decided_counts_as_different():
    one, two = '(a|b)*a(a|b){20}', '(b|a)*a(a|b){20}'
    with pytest.raises(ValueError, match='at most 400 states') as e: difference(one, two)
    assert len(str(e.value).splitlines()) == 1 and not equivalent(one, two)
