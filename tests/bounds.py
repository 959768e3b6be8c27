"""The versions that evolora says it works with, installed and tried: the lowest of each requirement, or the newest.

    python tests/bounds.py                          the lowest, on the Python that runs this
    python tests/bounds.py --newest --python 3.13   the newest, on another one
    python tests/bounds.py tests/lab                other tests than the usual part

It builds the wheel from a copy of this checkout, lets uv (`pip install uv`) resolve what settings.ini requires,
installs both in a fresh environment, asks whether all fits together, and runs a part of the tests in which each
requirement is used, against the wheel. Nothing is left behind. uv hears UV_FIND_LINKS and UV_CONSTRAINT: a folder with
a wheel of torch for processors alone, and a file with `torch==2.13.0+cpu`, save gigabytes.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
from configparser import ConfigParser
from pathlib import Path

from packages import ROOT, build

# Each room, and each requirement at its work, in some minutes
USUAL = ['utils/test_files.py', 'utils/test_statistics.py', 'utils/test_text.py', 'utils/test_terminal.py',
         'utils/test_deprecation.py', 'economy', 'tasks/test_families.py', 'tasks/test_regexes.py',
         'host/test_model.py', 'host/test_gguf.py', 'organelles/test_population.py', 'ecology/test_config.py',
         'ecology/test_run_folder.py', 'evaluation/test_peft_export.py', 'analysis/test_tables.py',
         'analysis/test_run_charts.py', 'analysis/test_run_report.py', 'analysis/test_run_list.py',
         'training/test_examples.py', 'training/test_against_peft.py', 'lab/test_copies.py', 'cli/test_runs.py',
         'cli/test_settings.py']
TOOLS = ['pytest', 'pytest-timeout', 'hypothesis', 'nbclient', 'setuptools']


def requirements():
    "What the package needs to run, as settings.ini has it"
    settings = ConfigParser(delimiters=['='])
    settings.read(ROOT / 'settings.ini', encoding='utf-8')
    return settings['DEFAULT']['requirements'].split()


def called(*command, **how):
    "Run a command; SystemExit with its name where it fails"
    done = subprocess.run([*map(str, command)], **how)
    if done.returncode: sys.exit(f"bounds: {' '.join(map(str, command[:4]))} … ended with {done.returncode}")
    return done


def main():
    asked = argparse.ArgumentParser(description=__doc__.partition('\n')[0])
    asked.add_argument('tests', nargs='*', default=[f'tests/{name}' for name in USUAL])
    asked.add_argument('--python', default=sys.executable, help='a version or a path')
    asked.add_argument('--newest', action='store_true', help='the newest of each requirement, not the lowest')
    told = asked.parse_args()
    uv = [sys.executable, '-m', 'uv']
    if subprocess.run([*uv, '--version'], capture_output=True).returncode:
        sys.exit('bounds: expected uv, got none; pip install uv')
    with tempfile.TemporaryDirectory() as place:
        place = Path(place)
        _, wheel = build(place)
        (place / 'needs.txt').write_text('\n'.join(requirements()) + '\n')
        called(*uv, 'venv', '-q', '-p', told.python, place / 'venv')
        python, pins = place / 'venv/bin/python', place / 'pins.txt'
        how = ['--no-header', '--no-annotate', '--only-binary', ':all:', '--python', python]
        called(*uv, 'pip', 'compile', '-q', *how, '--resolution', 'highest' if told.newest else 'lowest-direct',
               place / 'needs.txt', '-o', pins, stdout=subprocess.DEVNULL)
        # The tools of the tests are no part of what is tried, and are the newest that go with it.
        called(*uv, 'pip', 'install', '-q', '-p', python, '-r', pins, wheel, *TOOLS)
        names = {re.split('[<>=]', line)[0].lower().replace('_', '-') for line in requirements()}
        print('\n'.join(line for line in pins.read_text().splitlines() if line.partition('==')[0] in names))
        called(python, '-V')
        called(*uv, 'pip', 'check', '-p', python)
        env = {k: x for k, x in os.environ.items() if k != 'PYTHONPATH'}
        where = called(python, '-c', 'import evolora; print(evolora.__file__)', cwd=place, env=env, text=True,
                       capture_output=True).stdout
        if str(place) not in where: sys.exit(f'bounds: expected the wheel, got {where}')
        # The script, and not `python -m pytest`, which would import the checkout.
        called(place / 'venv/bin/pytest', '-q', '-p', 'no:cacheprovider', '--timeout', '600', *told.tests, cwd=ROOT,
               env=env)


if __name__ == '__main__': main()
