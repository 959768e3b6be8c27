"""Each question about patterns has the answer that it claims, and a reply is right only for what it matches."""
import re
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from evolora.tasks.automata import accepts, equivalent, parsed
from evolora.tasks.families import FAMILIES, PUZZLES, Cell, grade
from evolora.tasks.family import Grade
from evolora.tasks.regex_puzzles import _mends, edited, in_one_order, sentence
from evolora.tasks.regexes import draw_pattern, spell
from evolora.tasks.splits import STREAMS, stream_of
from evolora.tasks.task_sets import sample_tasks
from evolora.utils.randomness import stream as random_stream
from tasks.contract import one_task

MUTATION, REFACTOR, DEBUG, EXPLAIN = PUZZLES
DEPTHS = range(1, 5)
UNREADABLE = Grade(False, 0., False)


def draws(family, depth, n=60):
    rng = random_stream(3, purpose=f'{family.name} {depth}')
    return [family.draw(rng, depth, i / (n - 1)) for i in range(n)]


# --- what is asked

@pytest.mark.parametrize('depth', DEPTHS)
def test_exactly_one_text_changes_sides(depth):
    for t in draws(MUTATION, depth):
        old, new = re.match('An edit turns (.+) into (.+)[.] For', t.prompt).groups()
        texts = t.prompt.split(': ')[1].split()
        sides = {x: (bool(re.fullmatch(old, x)), bool(re.fullmatch(new, x))) for x in texts}     # ours, and short
        assert len(sides) == 4 and [x for x, (a, b) in sides.items() if a != b] == [t.answer]
        assert {(True, True), (False, False)} <= set(sides.values()), 'what matches, or fails, is no give-away'
        assert sides[t.meta['same']] == (True, True)


def test_an_edit_read_backwards_is_a_twin_in_the_same_stream():
    for name in STREAMS:
        for t in sample_tasks(Cell('regex.mutation', 1), stream=name, n=20, rng=random_stream(0)):
            (twin,) = t.twins
            old, new = t.meta['old'], t.meta['new']
            assert twin == t.prompt.replace(f'{old} into {new}.', f'{new} into {old}.') != t.prompt
            assert stream_of(replace(t, prompt=twin, twins=(t.prompt,))) in (name, '')


@pytest.mark.parametrize('depth', DEPTHS)
def test_what_is_shown_is_longer_and_the_same(depth):
    for t in draws(REFACTOR, depth):
        shown, most = re.match('Write (.+) in at most ([0-9]+) characters', t.prompt).groups()
        assert shown == t.meta['shown'] and len(shown) > len(t.answer) == int(most) and equivalent(shown, t.answer)


@pytest.mark.parametrize('depth', DEPTHS)
def test_a_broken_pattern_has_one_mend(depth):
    "Of all patterns that are one quantifier away, those that fit what is shown are spellings of one"
    for t in draws(DEBUG, depth):
        broken, good, bad = re.match('One quantifier of (.+) is wrong[.] Mend it to match (.+) but not (.+)',
                                     t.prompt).groups()
        fits = lambda p: all(accepts(p, x) for x in good.split()) and not any(accepts(p, x) for x in bad.split())
        assert broken == t.meta['broken'] and fits(t.answer) and not fits(broken)
        fitting = [m for m in map(spell, _mends(t.meta['atoms'])) if fits(m)]
        assert t.answer in fitting and all(equivalent(m, t.answer) for m in fitting)
        assert set(good.split()) < set(t.meta['good']) and set(bad.split()) < set(t.meta['bad']), 'some are hidden'


@pytest.mark.parametrize('depth', DEPTHS)
def test_one_sentence_is_right(depth):
    for t in draws(EXPLAIN, depth):
        assert len(set(t.meta['patterns'])) == 4 and t.meta['patterns'][0] == t.meta['pattern']
        assert not any(equivalent(p, q) for i, p in enumerate(t.meta['patterns']) for q in t.meta['patterns'][:i])
        options = dict(re.findall('([A-D]): (.+?)[.](?: |$)', t.prompt))
        assert list(options) == list('ABCD') and len(set(options.values())) == 4
        assert read(options[t.answer]) == t.meta['pattern']
        assert {read(o) for o in options.values()} == set(t.meta['patterns'])


def read(said):
    "A pattern out of its sentence, written by someone else than the one who wrote the sentence"
    signs = {'one or more': '+', 'any number of': '*', 'at most one': '?', 'one': ''}
    out = ''
    for part in said.split(', then '):
        how = next(s for s in signs if part.startswith(s + ' '))
        what = part.removeprefix(how + ' ').strip('()').split(' or ')
        out += what[0] if len(what) == 1 else f'[{"".join(what)}]' if len(what[1]) == 1 else f'({"|".join(what)})'
        out += signs[how]
    return out


@pytest.mark.parametrize('depth', DEPTHS)
def test_letters_are_balanced(depth):
    found = Counter(t.answer for t in draws(EXPLAIN, depth, 400))
    assert set(found) == set('ABCD') and min(found.values()) > 65 and max(found.values()) < 140, found


@pytest.mark.parametrize('depth', DEPTHS)
def test_nothing_is_gained_without_a_look_at_the_pattern(depth):
    "Guessing from the four options alone: a place, a length, a likeness to the others, how often signs stand there"
    texts = [(t.meta['texts'], t.answer) for t in draws(MUTATION, depth, 400)]
    said = [(re.findall('[A-D]: (.+?)[.](?: |$)', t.prompt), 'ABCD'.index(t.answer))
            for t in draws(EXPLAIN, depth, 400)]
    bag = lambda o: Counter(o.replace(',', '').split() if ' ' in o else o)
    ways = {'first': lambda o, all: -all.index(o), 'last': lambda o, all: all.index(o),
            'alike': lambda o, all: sum((bag(o) & bag(other)).total() for other in all),
            'unlike': lambda o, all: -sum((bag(o) & bag(other)).total() for other in all),
            'long': lambda o, all: len(o), 'short': lambda o, all: -len(o),
            'signs': lambda o, all: o.count('any') + o.count('more')}
    for most, own in ((.36, texts), (.33, [(all, all[i]) for all, i in said])):
        for name, way in ways.items():
            right = np.mean([max(all, key=lambda o: way(o, all)) == answer for all, answer in own])
            assert right < most, (name, right)


def test_options_have_one_order():
    one = in_one_order(['x', 'y', 'z'], 'p')
    assert all(in_one_order(list(o), 'p') == one for o in product('xyz', repeat=3) if len(set(o)) == 3)
    assert len({tuple(in_one_order(['x', 'y', 'z'], str(i))) for i in range(50)}) == 6


def test_an_edit_changes_one_place():
    rng = np.random.default_rng(0)
    for i in range(200):
        atoms = draw_pattern(rng, 1 + i % 4, .5)
        k = int(rng.integers(len(atoms)))
        other = edited(atoms, k, rng, 1 + i % 4, i % 2, ('+', '*', '?'))
        assert [x != y for x, y in zip(atoms, other)] == [j == k for j in range(len(atoms))]
        assert (other[k][0] == atoms[k][0]) == (bool(atoms[k][1]) and i % 2 == 1)
        assert bool(other[k][1]) == bool(atoms[k][1]), 'a quantifier stays one'


# --- what replies are worth

HOSTILE = ['', ' ', 'a' * 10_000, '(a+)+$', '((a+)+)+b', '(a|aa)+$b', '(?=.*)', '(?<=a)b', '(?<!a)b', '(?!a)b',
           '(?P<x>a)(?P=x)', '(?s).*', '(?i)A', '(a)\\1', '(?R)', '\\w+', '.*', '[^x]*', '(|a)*',
           'a{99}{99}', '((a{9}){9}){9}', 'é+', 'ａ+', 'а+',
           '\ud800', 'a\u200b', '\0', '(' * 79, '^', '$', '^$', '|', '()', 'a|' * 39, '[a-', '(?', '🧬', '\u202ea']


@pytest.mark.parametrize('family', [REFACTOR, DEBUG], ids=lambda f: f.name)
@pytest.mark.parametrize('depth', DEPTHS)
def test_hostile_patterns_earn_nothing_much(family, depth):
    for t in draws(family, depth, 12):
        for reply in HOSTILE:
            for extract in (False, True):
                found = grade(t, reply, extract)
                assert not found.success and found.progress < 1, (t.prompt, reply)
                if not (parsed(reply) and accepts(reply, 'a')): assert found.progress <= .9


@pytest.mark.parametrize('wrap', ['{}(?=)', '(?:{})(?!x)', '(?P<n>{})', '(?s){}', '{} ', ' {}', '`{}`', '"{}"', '/{}/',
                                  '{}\\b', '{}{{1}}+', '({}', '{})', '\u200b{}', '{}\u0301', 'regex: {}'])
@pytest.mark.parametrize('family', [REFACTOR, DEBUG], ids=lambda f: f.name)
def test_what_is_around_a_right_pattern_is_no_part_of_the_grammar(family, wrap):
    for t in draws(family, 2, 6):
        found = grade(t, wrap.format(t.answer))
        assert found == (Grade(True, 1., True) if wrap.strip() == '{}' else UNREADABLE), found  # ends are cut


@pytest.mark.parametrize('depth', DEPTHS)
def test_a_refactoring_is_paid_for_what_it_saves(depth):
    for t in draws(REFACTOR, depth, 20):
        shown, gold = t.meta['shown'], t.answer
        assert grade(t, shown) == grade(t, f'({shown})') == Grade(True, 0., False), 'a copy saves nothing'
        for longer in (f'({gold})', f'{gold[:-1]}({gold[-1]})' if gold[-1].isalpha() else f'(?:{gold})'):
            worth = max(0, (len(shown) - len(longer)) / (len(shown) - len(gold)))
            assert grade(t, longer) == Grade(True, worth, False)
        for near in {gold + '?' if gold[-1].isalpha() else gold[:-1], gold[1:]} - {gold}:
            if not equivalent(near, gold): assert grade(t, near).progress == 0, 'nearly the same is another program'


def test_another_spelling_that_is_short_enough_is_right():
    t = REFACTOR.task(3, .5, 'Write ((a|ba)+|) in at most 7 characters, matching the same texts', '(a|ba)*',
                      shown='((a|ba)+|)', atoms=[['(a|ba)', '*']])
    assert grade(t, '(b?a)*').success and 0 < grade(t, '(?:b?a)*').progress < 1
    assert grade(t, 'b?a*') == Grade(True, 0., False)


@pytest.mark.parametrize('depth', DEPTHS)
def test_a_mend_is_graded_by_more_than_what_is_shown(depth):
    cheated = 0
    for t in draws(DEBUG, depth, 40):
        good, bad = re.search('match (.+) but not (.+)', t.prompt).groups()
        listed = '|'.join(good.split())
        found = grade(t, listed)
        assert found.success == equivalent(listed, t.answer)
        cheated += found.success
        assert grade(t, t.meta['broken']) == Grade(True, 0., False), 'as it was'
        assert grade(t, '.*') == grade(t, 'a{0}') == Grade(True, 0., False), 'all of one half'
        everything = '|'.join(t.meta['good'])
        if parsed(everything) and not equivalent(everything, t.answer):
            assert grade(t, everything) == Grade(True, .9, False), 'hidden texts come out right, and it is still a list'
        assert grade(t, f'(?:{t.answer})').success and grade(t, f'^{t.answer}$').success, 'any spelling'
    assert cheated < 4


@pytest.mark.parametrize('reply', ['a', 'b.', 'AB', 'A B', 'A:', '(A)', 'A.', 'E', 'Ａ', 'Α', '', 'ABCD', 'A\u0301',
                                   'a)', 'A or B'])
def test_a_choice_is_one_letter(reply):
    for t in draws(EXPLAIN, 1, 8): assert grade(t, reply) == UNREADABLE


@pytest.mark.parametrize('reply, letter', [('It is B.', 'B'), ('B, not C', 'C'), ('**D**', 'D'), ('ABCD', ''),
                                           ('A' * 30_000, '')])
def test_the_last_letter_that_stands_alone(reply, letter): assert EXPLAIN.extract(reply) == letter


def test_a_text_is_one_word_of_the_letters():
    t = one_task('regex.mutation')
    for reply in (t.answer.upper(), f'{t.answer} ', f'"{t.answer}"', ' '.join(t.meta['texts']), f'{t.answer}x',
                  t.meta['old']):
        assert grade(t, reply).success == (reply.strip() == t.answer)


def test_what_sentences_say():
    assert sentence([['a', ''], ['[bc]', '*'], ['(d|ed)', '?'], ['f', '+']]) == (
        'one a, then any number of (b or c), then at most one (d or ed), then one or more f')
