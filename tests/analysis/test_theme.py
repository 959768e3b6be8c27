"The one place from which charts are made"
import subprocess
import sys
from importlib.util import find_spec


def test_web_addresses_are_checked_as_ever():
    "The grammar for them is compiled when one is checked, and not whenever a chart is made"
    code = ('import sys\nfrom evolora.analysis.theme import alt\nassert "rfc3987_syntax" not in sys.modules\n'
            'from jsonschema import FormatChecker\n'
            'print(*[FormatChecker().conforms(x, "iri") for x in ("http://a.b/c", "no iri")])')
    done = subprocess.run([sys.executable, '-c', code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    if find_spec('rfc3987_syntax'): assert done.stdout == 'True False\n'
