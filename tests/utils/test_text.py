"""Text of unknown origin in markdown: in a line, and in a block of code."""
import pytest

from evolora.utils.text import escape, fenced

EVIL = '<img src=x onerror=alert(1)> | ```\n`a` ![](http://x) **z**\n\n# head \x1b[2J'


def test_a_line_does_nothing_and_is_cut():
    assert escape('a\nb') == 'a b'
    assert escape('|' * 1_000_000) == r'\|' * 1000 + ' … (1,000,000 characters)'
    assert escape('abc', 2) == 'ab … (3 characters)'
    assert escape('<' * 9, 2) == '&lt;&lt; … (9 characters)'        # cut before it is escaped
    assert '\x1b' not in escape(EVIL) and len(escape(EVIL).splitlines()) == 1


@pytest.mark.parametrize('text', [EVIL, '```', '`' * 40, '~~~', '', 'x\n' + '`' * 3])
def test_no_line_ends_a_block_of_code(text):
    first, *lines, last = fenced(text, 'python').split('\n')
    assert last == first.removesuffix('python') == '`' * len(last) and len(last) >= 3
    assert all(last not in line for line in lines) and '\x1b' not in fenced(text)
