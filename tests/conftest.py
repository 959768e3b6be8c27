"""Options: what takes long runs only when it is asked for.

One thread, so that parallel workers do not fight and sums do not vary.
"""
import os
import signal

os.environ.setdefault('OMP_NUM_THREADS', '1')   # before anything imports torch

import pytest

# Who was started in the background may be deaf to Ctrl-C, and its children too; some tests press it.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN: signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser):
    parser.addoption('--slow', action='store_true',
                     help="also run what is marked slow: tests, and notebook cells with `#| slow`")
    parser.addoption('--tutorials', action='store_true',
                     help='also run the tutorials and experiments that take minutes')


def pytest_configure(config):
    config.addinivalue_line('markers', 'slow: takes more than a few seconds; runs with --slow')
    config.addinivalue_line('markers', 'tutorials: a notebook that takes minutes; runs with --tutorials')


def pytest_collection_modifyitems(config, items):
    for option in ('slow', 'tutorials'):
        if config.getoption(f'--{option}'): continue
        for item in items:
            if item.get_closest_marker(option): item.add_marker(pytest.mark.skip(reason=f'runs with pytest --{option}'))


@pytest.fixture
def cli(capfd):
    "Runs the command in this process: exit code, standard output, standard error"
    from evolora.cli.app import main
    def cli(*arguments):
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended: main([str(a) for a in arguments])
        return (ended.value.code or 0, *capfd.readouterr())
    return cli
