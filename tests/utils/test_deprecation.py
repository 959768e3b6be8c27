"No deprecated name outlives the version that was announced, and each is announced in time."
import ast
import warnings

import pytest
from rooms import PACKAGE

from evolora import __version__
from evolora.utils.deprecation import Deprecation, EvoloraDeprecationWarning, deprecated, moved, outlived


@pytest.fixture(autouse=True)
def apart(monkeypatch):
    "What a test announces is forgotten after it"
    monkeypatch.setattr('evolora.utils.deprecation.KNOWN', {})
    monkeypatch.setattr('evolora.utils.deprecation._TOLD', set())


def announced(code):
    "(line, old name, since, removed) of the deprecations in a module; ValueError where a version is no plain text"
    tree, found = ast.parse(code), []
    owners = {id(mark): node.name for node in ast.walk(tree) for mark in getattr(node, 'decorator_list', ())}
    for call in ast.walk(tree):
        name = getattr(getattr(call, 'func', None), 'attr', getattr(getattr(call, 'func', None), 'id', ''))
        if name not in ('deprecated', 'Deprecation') or not isinstance(call, ast.Call): continue
        said = {k.arg: ast.literal_eval(k.value) for k in call.keywords if k.arg in ('since', 'removed')}
        old = owners.get(id(call)) or ast.literal_eval(call.args[0])
        found.append((call.lineno, old, said['since'], said['removed']))
    return found


def late(code, version):
    "Old names in a module that should be gone in a version"
    mine = [Deprecation(old, 'x', since=since, removed=removed) for _, old, since, removed in announced(code)]
    return [note.old for note in outlived(version) if note in mine]


def test_no_name_outlives_its_version():
    modules = {path: path.read_text(encoding='utf-8') for path in sorted(PACKAGE.rglob('*.py'))
               if path.name not in ('_modidx.py', 'deprecation.py')}
    assert len(modules) > 100
    wrong = {path.name: names for path, code in modules.items()
             if 'eprecat' in code and (names := late(code, __version__))}
    assert not wrong, f'version {__version__} was announced to be without these: remove them: {wrong}'


def test_one_that_does_is_found():
    code = ("from x import deprecated\n@deprecated('new', since='0.1', removed='0.2')\ndef old(): pass\n"
            "OPTION = Deprecation('--old', '--new', since='0.1', removed='0.3')\n")
    assert announced(code) == [(2, 'old', '0.1', '0.2'), (4, '--old', '0.1', '0.3')]
    assert late(code, '0.1.9') == [] and late(code, '0.2.0') == ['old'] and late(code, '1.0') == ['old', '--old']
    with pytest.raises(ValueError, match='at least one minor version'): late(code.replace('0.3', '0.1.5'), '0.1')


def test_the_warning_names_the_successor_once_and_the_line_of_the_caller():
    @deprecated('total', since='0.1', removed='0.2')
    def slow(x): return x
    note = Deprecation('a.old', 'a.new', since='0.1', removed='0.2')
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter('always')
        assert (slow(1), slow(2)) == (1, 2)
        assert moved({'a': {'old': 3}}, note) == {'a': {'new': 3}} == moved({'a': {'old': 3}}, note)
    assert [str(w.message).partition(' is ')[0] for w in heard] == ['slow', 'a.old']
    assert all('goes in 0.2; use ' in str(w.message) and w.filename == __file__ for w in heard)
    assert all(w.category is EvoloraDeprecationWarning and issubclass(w.category, FutureWarning) for w in heard)


def test_a_user_sees_it_from_any_module_without_asking():
    "The filters that Python begins with hide a DeprecationWarning of another module, and show this one"
    with warnings.catch_warnings(record=True) as heard:
        warnings.resetwarnings()
        for kind in (DeprecationWarning, PendingDeprecationWarning): warnings.simplefilter('ignore', kind)
        warnings.warn('hidden', DeprecationWarning)
        warnings.warn('seen', EvoloraDeprecationWarning)
    assert [str(w.message) for w in heard] == ['seen']
