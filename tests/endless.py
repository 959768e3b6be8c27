"What may lie in the place of a file: no reader may wait for a writer, or read without an end."
import os


def pipe(path): os.mkfifo(path)
def zero(path): path.symlink_to('/dev/zero')
def a_folder(path): path.mkdir()


def sparse(path):
    "Forty gigabytes that take no room"
    path.touch()
    os.truncate(path, 40 << 30)


MADE = [pipe, zero, a_folder, sparse]


def instead(path, make):
    "The same path, with something else in the place of the file"
    path.unlink(missing_ok=True)
    make(path)
    return path
