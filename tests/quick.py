"""A ladder that takes a moment, and jobs that run in this process, so that they can be counted and spoilt.

What is the same each time is worked out once a process: the operations of a step, and what a source says. Their own
tests are `test_model_sizes` and `test_program_source`.
"""
import importlib
import json
import threading
from contextlib import suppress
from functools import cache, wraps

from evolora.attention.scoring import evaluation, measurement
from evolora.host.mechanisms.frameworks import FRAMEWORKS, variant
from evolora.attention.scoring.model_sizes import read_tier
from evolora.host.mechanisms.program_source import Program
from evolora.attention.scoring.sandbox import Outcome, pack, unpack
from evolora.attention.scoring.workers import work
from evolora.attention.search import search as discovery

QUICK = read_tier('tiny', name='quick', sizes=((8, 1, 1), (12, 1, 1), (16, 1, 2)), steps=4, rows=4, context=12,
                  held=256)
FRAMEWORK, SECRET = 'matrix_mixers', 'of the tests'
SOFTMAX = Program(variant(FRAMEWORK))


def counted_once(count):
    "`step_flops` that knows what it counted; the module of a program has its digest in its name"
    known = {}
    @wraps(count)
    def counted(mechanism, tier, size):
        key = mechanism.__module__, mechanism.__qualname__, tier, tuple(size)
        if key not in known: known[key] = count(mechanism, tier, size)
        return known[key]
    return counted


discovery.Program = evaluation.Program = measurement.Program = cache(Program)
evaluation.step_flops = counted_once(evaluation.step_flops)


def program(block): return Program(FRAMEWORKS[FRAMEWORK].program(block))


def scaled(number, finish='y'):
    "Softmax with another temperature, and something done to its output"
    return program(f'def matrix(self, q, k, x): return causal_softmax(q @ k.mT * {number})\n'
                   f'def finish(self, y, x): return {finish}')


def here(task, arguments, limits=None, **settings):
    "A contained call, made in this process"
    module, _, name = task.partition(':')
    arguments, _ = unpack(pack(arguments))
    try: result = getattr(importlib.import_module(module), name)(**arguments)
    except Exception as error: return Outcome('crashed', None, f'{type(error).__name__}: {error}')
    return Outcome('ok', unpack(pack(result))[0])


# A process has one choice of attention kernels, and two trainings at once would leave it changed.
_ONE = threading.Lock()


def inside(job, run=None):
    "The outcome of a job, made here"
    with _ONE: return work(job, here)


class Inside:
    "Workers that are none"
    count = 1
    def map(self, jobs): return (inside(job) for job in jobs)


def prepared(framework=FRAMEWORK, **settings):
    "A judge that has trained its baseline here, and not in a process of its own"
    judge = evaluation.Evaluator(framework, QUICK, **{'secret': SECRET} | settings)
    judge.prepare(Inside())
    return judge


class Counted(list):
    "The trainings that are made from now on, as (mechanism, size, seed); contained ones are not seen"
    def __init__(self, monkeypatch):
        fit = measurement.fit_weights
        def counting(mechanism, tier, size, *, seed, **settings):
            self.append((mechanism.__module__, tuple(size), seed))
            return fit(mechanism, tier, size, seed=seed, **settings)
        monkeypatch.setattr(measurement, 'fit_weights', counting)
        monkeypatch.setattr(evaluation, 'work', inside)


def kept(folder):
    "The trainings in a cache, by name of file"
    found = {}
    for path in sorted(folder.glob('*.json')):
        with suppress(ValueError): found[path.name] = json.loads(path.read_text())['trained']
    return found
