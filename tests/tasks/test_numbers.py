"""A number is read as Python's Decimal and Fraction read it, however tables, models and typesetters write it."""
from decimal import Decimal
from fractions import Fraction

import pandas as pd
import pytest
from hypothesis import given, settings, strategies as st

import evolora.tasks.question_set as question_set
from evolora.tasks.families import FAMILIES, Cell
from evolora.tasks.family import MAX_TEXT, last_number
from evolora.tasks.numbers import MAX_POWER, Number, last_number_in, number_of, same_number
from evolora.tasks.question_set import QuestionSet
from evolora.tasks.task_sets import draw_tasks

FILLER = [{'question': f'How many legs have {i} stools of kind {chr(97 + i % 26)}{i}?', 'answer': str(i)}
          for i in range(80)]


def numeric(gold, **how):
    rows = pd.DataFrame([*FILLER, {'question': 'How much is it?', 'answer': gold}])
    family = QuestionSet('x', rows, 'numeric', **how)
    return lambda reply: family.grade(family.tasks[-1], reply).success


def value(text):
    found = number_of(text)
    return found and found.value


@pytest.mark.parametrize('gold, right, wrong', [
    (2e-07, ('0.0000002', '2e-7', '2×10^-7', '2×10⁻⁷', '0,0000002'), ('7', '2', '0', '2e-8')),
    ('.5', ('0.5', '1/2', '50%', '½'), ('5', '.05')),
    ('1/2', ('0.5', '2/4', r'\frac{1}{2}', 'It is 1 / 2.'), ('2', '1', '12')),
    ('\u22125', ('-5', '\u22125', '- 5', '-5.0', 'x = -5'), ('5', '10-5')),
    ('1,5', ('1.5', '1,50', '3/2', '1½', '1 1/2'), ('5', '15', '1')),
    ('10^6', ('1000000', '1,000,000', '1 000 000', '1.000.000', '1e6', '10**6', '1 million', '10⁶'),
     ('6', '10', '106')),
    ('$1,234.50', ('1234.5', '1.234,50 €', 'US$ 1,234.50', '1\u202f234.50'), ('234.5', '1234', '50')),
    ('1 234', ('1234', 'It is 1 234.', '1,234'), ('234', '1')),
    ('50%', ('50 %', '0.5', '50', 'about 50 percent', '50\\%'), ('5', '0.5%', '500‰ of 2')),
    ('9.8 m/s^2', ('9.8', '9.8 m/s²', '9.80 m/s**2'), ('2', '8')),
    ('300 K', ('300', '300 K'), ('300K',)),
    ('12', ('12', '12 (as B12 shows)'), ('2024-05-12', '3/4/12', '1.2.12', '2:12', '√12', '2√12', '12π', 'r12')),
    (0, ('0', '-0', '0.0', '0%'), ('1e-12', '-1'))])
def test_replies_are_right_by_their_value(gold, right, wrong):
    grade = numeric(gold)
    assert not [reply for reply in right if not grade(reply)] and not [reply for reply in wrong if grade(reply)]


@pytest.mark.parametrize('gold', ['5 or 6', '5-6', 'about 5', 'x = 5', '2:30', '3/4/2024', '2024-05-01', '1.2.3',
                                  '1,23.4', 'D85561', '√2', '2π', '1/0', '1e999', '9^9^9', 'five', 'nan', 'inf', '(5)',
                                  '5 and a half', '1, 2, 3', '±5', '>5', '#### 72'])
def test_a_gold_answer_that_is_not_wholly_one_number_is_refused(gold):
    with pytest.raises(ValueError, match='row 81: expected one number and nothing else.*choose another grade'):
        numeric(gold)


def test_the_tolerance_is_a_part_of_the_gold_number():
    assert numeric('10', tolerance=.1)('11') and not numeric('10', tolerance=.1)('11.0000001')
    assert numeric('1/3')('0.3333333') and not numeric('1/3', tolerance=0)('0.3333333')
    assert not numeric(2e-10)('0') and not numeric(2e-10)('2.1e-10')
    for wrong in (-1, 1, float('nan')):
        with pytest.raises(ValueError, match='tolerance expected'): numeric('5', tolerance=wrong)


def test_the_gold_answer_is_checked_against_another_reader(monkeypatch):
    misread = lambda text: Number('7', Fraction(7))
    monkeypatch.setattr(question_set, 'number_of', misread)
    with pytest.raises(ValueError, match='row 1: expected the number 0, as Python reads'): numeric('2e-07')


@pytest.mark.parametrize('number, answer', [
    (Decimal('0.10'), '0.10'), (Fraction(1, 3), '1/3'), (3.0, '3'), (1e22, '1' + '0' * 22), (.1, '0.1')])
def test_numbers_of_all_kinds_keep_their_digits(number, answer):
    family = QuestionSet('x', [*FILLER, {'question': 'How much is it?', 'answer': number}], 'numeric')
    assert family.tasks[-1].answer == answer and value(answer) == Fraction(number if number != .1 else '0.1')


decimals = st.decimals(allow_nan=False, allow_infinity=False, min_value=Decimal('-1e30'), max_value=Decimal('1e30'))


@given(decimals)
def test_decimals_are_what_python_reads(number):
    for text in (str(number), f'{number:f}', f'{number:e}', f'{number:E}', str(number).replace('-', '\u2212')):
        assert value(text) == Fraction(number), text
        assert last_number_in(f'so it is {text}.').value == Fraction(number), text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_floats_are_what_python_reads(number):
    for text in (repr(number), f'{number:.17e}', f'{number:g}'): assert value(text) == Fraction(Decimal(text)), text


@given(st.integers(-10**9, 10**9), st.integers(1, 10**9))
def test_fractions_are_what_python_reads(above, below):
    wanted, minus = Fraction(above, below), '-' * (above < 0)
    for text in (f'{above}/{below}', f'{above} / {below}', rf'{minus}\frac{{{abs(above)}}}{{{below}}}'):
        assert value(text) == wanted, text
    whole, rest = divmod(abs(above), below)
    if rest: assert abs(value(f'{minus}{whole} {rest}/{below}')) == abs(wanted)


@given(st.integers(0, 10**15), st.integers(0, 999_999))
def test_separators_change_no_value(whole, rest):
    wanted = Fraction(f'{whole}.{rest:06}')
    grouped = f'{whole:,}'
    texts = [f'{whole:,}.{rest:06}', f'{whole}.{rest:06}', f'{whole},{rest:06}',
             f'{grouped.replace(",", ".")},{rest:06}']
    texts += [f'{grouped.replace(",", mark)}{point}{rest:06}' for mark in ' _\'’\u00a0\u202f' for point in '.,']
    for text in texts: assert (text, value(text)) == (text, wanted)
    for text in (f'${grouped}', f'{grouped} €', f'USD {grouped}', f'-{grouped}', f'{grouped} km', f'{grouped}%'):
        assert abs(value(text)) == whole, text


@given(st.integers(-99, 99), st.integers(-MAX_POWER, MAX_POWER))
def test_powers_are_what_python_reads(mantissa, power):
    wanted = mantissa * Fraction(10) ** power
    for text in (f'{mantissa}e{power}', f'{mantissa} × 10^{power}', rf'{mantissa}\times 10^{{{power}}}'):
        assert value(text) == wanted, text
    if mantissa > 0: assert value(f'{mantissa}^{abs(power)}') == mantissa ** abs(power)


@given(st.text('0123456789.,:/-+eE^*x% $€½²−_\'{}\\fracsqtπ\n', max_size=60))
@settings(max_examples=300)
def test_any_text_is_read_or_is_none(text):
    found = number_of(text)
    assert found is None or last_number_in(text.strip(), spaced=True) is not None
    plain = last_number(text)
    assert plain == '' or plain.strip()
    if found is None: return
    again = number_of(found.text)       # its plain spelling has the same value
    assert again is not None and same_number(Number('', again.value), Number('', found.value))


@pytest.mark.parametrize('text', ['1' * MAX_TEXT, '1,' * 9999, '1/' * 9999, '1 1/' * 4999, '1^' * 9999, '.5' * 9999,
                                  '-' * 19_999, '9^99999999', '1e99999999', '½' * 9999, '{' * 9999, r'\frac{' * 3000])
def test_what_a_model_may_reply_is_no_work(text):
    last_number(text)
    number_of(text)
    assert number_of(text[:2000]) is None


def test_whole_numbers_are_graded_as_before():
    for cell in ('math:2', 'math.sequence:1', 'time.minutes:3', 'fact.total:2', 'unit.convert:1'):
        for task in draw_tasks([Cell.parse(cell)], stream='train', n=10):
            family = FAMILIES[task.family]
            for form in ('{}', 'It is {}.', '**{}**', '1 2 3 {}', 'First 12, then {} apples', '= {} km',
                         r'\boxed{{{}}}'):
                assert family.grade(task, form.format(task.answer), extract=True).success, form
            for form in ('1{}', '{}1', '{}.5', '{},5', '1/{}', '{}/7', '10^{}', '-{}', '−{}',
                         '{} million', '√{}'):
                assert not family.grade(task, form.format(task.answer), extract=True).success, form
