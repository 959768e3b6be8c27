"""The source distribution and the wheel, which is made from it alone, built from a copy of this checkout.

    python tests/packages.py dist       put both into the folder `dist`
"""
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def build(out):
    "Paths of the source distribution and of the wheel in a folder; needs setuptools, and asks no index"
    out = Path(out).resolve()
    with tempfile.TemporaryDirectory() as place:
        copy = Path(place) / 'evolora'
        copy.mkdir()
        for name in ('setup.py', 'settings.ini', 'README.md', 'LICENSE'): shutil.copy(ROOT / name, copy)
        for name in ('evolora', 'nbs/lab'):
            shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns('__pycache__', '.*'))
        (copy / 'nbs/experiments').mkdir()
        for path in (ROOT / 'nbs/experiments').glob('*.yaml'): shutil.copy(path, copy / 'nbs/experiments')
        source = out / made('sdist', copy, out)
        with tarfile.open(source) as archive: archive.extractall(Path(place) / 'source', filter='data')
        return source, out / made('wheel', next((Path(place) / 'source').iterdir()), out)


def made(kind, folder, out):
    "The name of what was built from a folder"
    code = f'from setuptools import build_meta; print(build_meta.build_{kind}({str(out)!r}))'
    done = subprocess.run([sys.executable, '-c', code], cwd=folder, capture_output=True, text=True)
    if done.returncode: raise RuntimeError(f'{kind} was not built: {done.stderr[-2000:]}')
    return done.stdout.split()[-1]


if __name__ == '__main__':
    Path(sys.argv[1]).mkdir(parents=True, exist_ok=True)
    print(*build(sys.argv[1]), sep='\n')
