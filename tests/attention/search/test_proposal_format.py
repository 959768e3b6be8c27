"SEARCH/REPLACE text: what it leads to, what it cannot reach, and its message when it does not fit."
from itertools import permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evolora.host.mechanisms.frameworks import FRAMEWORKS, VARIANTS, variant
from evolora.attention.search.proposal_format import Member, Proposal, apply_diff, diff_text, read_answer

SOFTMAX, DELTA = (variant('coefficient_dynamics', name) for name in ('softmax', 'delta'))
LINE = '    def evolve(self, q, k, x): return plain_scores(q, k)'


def block(search, replace): return f'<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n'
def program(lines): return FRAMEWORKS['matrix_mixers'].head + ''.join(f'{line}\n' for line in lines) + (
    '    # EVOLVE-BLOCK-END\n')


@pytest.mark.parametrize('framework', VARIANTS)
def test_from_every_variant_to_every_other(framework):
    for a, b in permutations(VARIANTS[framework], 2):
        before, after = variant(framework, a), variant(framework, b)
        assert apply_diff(before, diff_text(before, after)) == after
    assert diff_text(before, before) == ''


few = st.lists(st.sampled_from(['    a', '    a  ', '    b', '', '    c = 1', '        ']), min_size=1, max_size=12)


@settings(max_examples=300, deadline=None)
@given(few, few)
def test_the_way_there_is_the_way_back(old, new):
    before, after = program(old), program(new)
    try: text = diff_text(before, after)
    except ValueError: assert not any(line.strip() for line in old)     # nothing that could be searched for
    else: assert (apply_diff(before, text) if text else before) == after


def test_only_the_block_is_within_reach():
    for line in ('import math', 'class Attention(CoefficientDynamics):', '    # EVOLVE-BLOCK-START'):
        with pytest.raises(ValueError, match='got none'): apply_diff(SOFTMAX, block(line, 'import os'))
    with pytest.raises(ValueError, match='marker'): apply_diff(SOFTMAX, block(LINE, '# EVOLVE-BLOCK-END\nimport os'))
    changed = DELTA.replace('import math', 'import os') + 'print("hello")\n'
    assert read_answer(changed, SOFTMAX) == DELTA
    for text in (f'```python\n{changed}```', f'So:\n  ```\n{changed}\n  ```\nand `this`', changed):
        assert read_answer(text, SOFTMAX) == DELTA


def test_a_block_of_another_framework_stays_in_the_frame_of_the_parent():
    answer = read_answer(variant('matrix_mixers', 'cauchy'), SOFTMAX)
    assert answer.startswith(FRAMEWORKS['coefficient_dynamics'].head) and 'rows_sum_to_one' in answer


def test_blanks_at_the_ends_of_lines_do_not_count():
    assert apply_diff(SOFTMAX, block(LINE + '   ', LINE)) == SOFTMAX
    assert apply_diff(SOFTMAX.replace(LINE, LINE + '\t'), block(LINE, LINE)) == SOFTMAX
    with pytest.raises(ValueError, match='got none'): apply_diff(SOFTMAX, block(LINE.strip(), ''))


def test_blocks_are_looked_for_in_the_parent():
    two = program(['    a = 1', '    b = 2'])
    assert apply_diff(two, block('    a = 1', '    b = 2') + block('    b = 2', '    a = 1')) == program(
        ['    b = 2', '    a = 1'])
    assert apply_diff(two, block('    b = 2', '') + block('    a = 1', '    c = 3')) == program(['    c = 3', ''])


@pytest.mark.parametrize('text, why', [
    ('', 'at least one'), ('talk', 'at least one'), (block('', 'x'), 'SEARCH of block 1 expected lines'),
    (block('  ', 'x'), 'got none'), (block(LINE, LINE) * 2, 'overlap'), (block('no such line', ''), 'copy whole lines'),
    (block(LINE, '') + block('nowhere', ''), 'SEARCH of block 2'), ('<<<<<<< SEARCH\nx', 'finish it'),
    ('<<<<<<< SEARCH\nx\n=======\ny', 'finish it'), ('<<<<<<< SEARCH\n' + block('x', 'y'), 'out of turn'),
    ('>>>>>>> REPLACE\n', 'out of turn')])
def test_what_does_not_fit_is_one_line(text, why):
    with pytest.raises(ValueError, match=why) as caught: apply_diff(SOFTMAX, text)
    assert '\n' not in str(caught.value)


def test_twice_is_not_once():
    twice = program(['    a = 1', '    b = 2', '    a = 1', '    c = 3'])
    with pytest.raises(ValueError, match='2 places'): apply_diff(twice, block('    a = 1', ''))
    once = program(['    a = 1', '    b = 2', '    c = 3'])
    assert apply_diff(twice, block('    a = 1\n    c = 3', '    c = 3')) == once


@pytest.mark.parametrize('text, why', [
    ('I do not know.', 'got neither'), (f'```\n{DELTA}```\n```\n{SOFTMAX}```', 'one program, got 2'),
    (DELTA.replace('# EVOLVE-BLOCK-END', ''), 'keep both markers'), (DELTA + DELTA, 'keep both markers')])
def test_an_answer_that_is_none(text, why):
    with pytest.raises(ValueError, match=why): read_answer(text, SOFTMAX)


def test_programs_of_two_frameworks_have_no_diff():
    with pytest.raises(ValueError, match='differ outside'): diff_text(SOFTMAX, variant('matrix_mixers'))
    with pytest.raises(ValueError, match='like those of a diff'): diff_text(program(['a']), program(['"', '=======']))


def test_records_do_not_change():
    for record in (Member(0, SOFTMAX, None), Proposal(SOFTMAX, (0,), 'edit')):
        with pytest.raises(AttributeError): record.source = DELTA
        assert record.notes == {}
