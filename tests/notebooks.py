"""Run a module notebook as nbdev_test does, in a process that was forked for it."""
import os
import sys
import tempfile
from contextlib import contextmanager


@contextmanager
def traced(path):
    "While `mutants.py cover` asks for it: the lines of the package that a notebook executes, under its test's name"
    if 'EVOLORA_COVERAGE' not in os.environ:
        yield
        return
    from coverage import Coverage
    found = Coverage(data_file=os.environ['EVOLORA_COVERAGE'], data_suffix=True, source_pkgs=['evolora'],
                     context=f'tests/test_notebooks.py::test_the_notebook_runs[{path}]')
    found.start()
    try: yield
    finally:
        found.stop()
        found.save()


def run_in_fork(path, root, flags, folder):
    "Ends the process: 0 if every cell ran. What is printed goes to printed.txt in `folder`, temporary files beside it"
    printed = os.open(folder / 'printed.txt', os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2): os.dup2(printed, stream)
    os.environ |= {'OMP_NUM_THREADS': '1', 'TMPDIR': str(folder)}
    os.environ.pop('PYTEST_CURRENT_TEST', None)
    tempfile.tempdir = None                     # was found, and kept, before TMPDIR was set
    os.chdir(root)
    from nbdev.test import test_nb
    with traced(path.relative_to(root) if path.is_relative_to(root) else path):
        passed, _ = test_nb(path, skip_flags=['slow', 'gpu'], force_flags=flags, basepath=root)
    sys.exit(0 if passed else 1)
