"""Run a module notebook as nbdev_test does, in a process that was forked for it."""
import os
import sys
import tempfile


def run_in_fork(path, root, flags, folder):
    "Ends the process: 0 if every cell ran. What is printed goes to printed.txt in `folder`, temporary files beside it"
    printed = os.open(folder / 'printed.txt', os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    for stream in (1, 2): os.dup2(printed, stream)
    os.environ |= {'OMP_NUM_THREADS': '1', 'TMPDIR': str(folder)}
    os.environ.pop('PYTEST_CURRENT_TEST', None)
    tempfile.tempdir = None                     # was found, and kept, before TMPDIR was set
    os.chdir(root)
    from nbdev.test import test_nb
    passed, _ = test_nb(path, skip_flags=['slow', 'gpu'], force_flags=flags, basepath=root)
    sys.exit(0 if passed else 1)
