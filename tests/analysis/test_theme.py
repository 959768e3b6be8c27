"The one place from which charts are made"
import re
import resource
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import vl_convert

import evolora
from evolora.analysis import theme


def test_web_addresses_are_checked_as_ever():
    "The grammar for them is compiled when one is checked, and not whenever a chart is made"
    code = ('import sys\nfrom evolora.analysis.theme import alt\nassert "rfc3987_syntax" not in sys.modules\n'
            'from jsonschema import FormatChecker\n'
            'print(*[FormatChecker().conforms(x, "iri") for x in ("http://a.b/c", "no iri")])')
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if find_spec('rfc3987_syntax'): assert done.stdout == 'True False\n'


BAR = {'mark': 'bar', 'data': {'values': [{'a': 1}]}, 'encoding': {'x': {'field': 'a', 'type': 'quantitative'}}}


@pytest.fixture
def little_space():
    "A limit of the address space at which the renderer would end this process"
    before = resource.getrlimit(resource.RLIMIT_AS)
    theme._check_space.cache_clear()
    resource.setrlimit(resource.RLIMIT_AS, (64 << 30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)
    theme._check_space.cache_clear()


def test_a_limit_at_which_the_renderer_would_end_the_process_is_one_line(little_space, tmp_path):
    with pytest.raises(ValueError, match='^expected 66 GiB of address space .* got a limit of 64 GiB; lift it'):
        theme.png_of(BAR, 1.)
    with pytest.raises(ValueError, match='address space'):
        theme.save_chart(theme.alt.Chart(theme.pd.DataFrame({'a': [1]})).mark_bar(), tmp_path / 'charts' / 'x.svg')
    assert [*tmp_path.iterdir()] == []


class PanicException(BaseException):
    "As Rust's panics reach Python"


@pytest.mark.parametrize('error', [PanicException('called on a `None` value\n  at x'), ValueError('Error:\n  no field'),
                                   MemoryError('no room')], ids=lambda e: type(e).__name__)
def test_what_the_renderer_does_not_draw_is_one_line(error):
    def render(spec): raise error
    with pytest.raises(ValueError, match='^expected a chart that can be drawn, got ') as told:
        theme.rendered(render, BAR)
    assert '\n' not in str(told.value)


def test_ctrl_c_while_a_chart_is_drawn_is_ctrl_c():
    def render(spec): raise KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt): theme.rendered(render, BAR)


def test_one_place_calls_the_renderer():
    calls = {f'{path.name}: {line.strip()}' for path in Path(evolora.__file__).parent.rglob('*.py')
             for line in path.read_text().splitlines() if re.search(r'vl_convert\.\w+\(', line)}
    assert calls == set()           # each is an argument of `rendered`
    assert theme.rendered(vl_convert.vegalite_to_svg, BAR).startswith('<svg')
