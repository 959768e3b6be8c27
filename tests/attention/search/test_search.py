"The search: the same again, also after it was killed; nothing twice; what fails is remembered; and why it ended."
import json
import multiprocessing
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hostile_candidates import CANDIDATES
from contained import contained
from quick import FRAMEWORK, QUICK, SECRET, Inside, inside, kept, prepared, scaled
from scipy import stats
from scipy.special import expit

from evolora.attention.search import search as discovery
from evolora.attention.scoring import evaluation, measurement
from evolora.attention.search.search import (SearchConfig, begin_search, judge_of, proposer_of, read_history,
                                             resume_search, search_config)
from evolora.attention.search.endpoint import AnswerError, EndpointError
from evolora.attention.scoring.evaluation import Evaluator, Look
from evolora.host.mechanisms.frameworks import FRAMEWORKS
from evolora.attention.search.grammar import Grammar, RandomProposer
from evolora.host.mechanisms.program_source import Program
from evolora.attention.search.proposal_format import Member, Proposal
from evolora.attention.scoring.sandbox import Limits
from evolora.attention.scoring.measurement import Measurement
from evolora.attention.scoring.workers import Job, RayWorkers, Workers, work
from evolora.utils.randomness import stream


class Near:
    "Scores a program by how close its one number is to .7, and writes down every call"
    facts, noise = {'wanted': .7}, 0.
    def __init__(self, fails=(), near=0.): self.fails, self.near, self.looked, self.jobs = fails, near, [], []
    def number(self, program): return float(program.block.split('* ')[1].split(')')[0])
    def look(self, program):
        self.looked.append(self.number(program))
        if self.number(program) in self.fails: return Look('invalid', 'on purpose')
        return Look('ok', cell=(int(self.number(program) * 4),))
    def close(self, program, look, others):
        return any(abs(self.number(program) - self.number(other)) < self.near for other, _ in others)
    def job(self, program): self.jobs.append(self.number(program))      # and None: it is known
    def judge(self, program, outcome):
        return dict(status='ok', why='', score=1 - abs(self.number(program) - .7), measured={})


class Listed:
    "Proposes what is on its list, by candidate and not by call, so that it can go on elsewhere"
    def __init__(self, *numbers): self.numbers = list(numbers)
    def propose(self, rng, archive):
        found = self.numbers.pop(0)
        if isinstance(found, Exception): raise found
        source = found if isinstance(found, str) else scaled(found).source
        return Proposal(source, (0,), 'listed', {'number': found})


class Mover:
    "Moves the number of a parent a little"
    def propose(self, rng, archive):
        able = [member for member in archive if member.score is not None]
        parent = max((able[i] for i in rng.integers(len(able), size=2)), key=lambda member: member.score)
        number = round(abs(parent.notes['number'] + .2 * rng.standard_normal()), 4)
        return Proposal(scaled(number).source, (parent.index,), 'move', {'number': number})


START = Proposal(scaled(.1).source, (), 'baseline', {'number': .1})


def config(**settings): return SearchConfig(**dict(framework=FRAMEWORK, budget=8, batch=2) | settings)


def begun(folder, *numbers, judge=None, **settings):
    settings = dict(budget=len(numbers)) | settings
    return begin_search(folder, config(**settings), judge or Near(), Listed(*numbers), START)


def searched(folder, *numbers, **settings):
    with begun(folder, *numbers, **settings) as search: return search, search.run()


def history(folder):
    "The rows, without the seconds that they took"
    rows = read_history(folder)
    for row in rows: row['measured'].pop('seconds', None)
    return rows


# Stopped, and gone on with

def forked(function, *arguments):
    "The exit code of a child in which this was called"
    child = multiprocessing.get_context('fork').Process(target=function, args=arguments)
    child.start()
    child.join()
    return child.exitcode


def killed_search(what, count, folder):
    "A search whose process is killed in the so-manieth call of something"
    judge = Near()
    holder = discovery if what in ('append', 'write_whole') else judge
    with begin_search(folder, config(batch=3), judge, Mover(), START) as search:
        calls, real = [], getattr(holder, what)
        def killing(*arguments, **settings):
            calls.append(1)
            if len(calls) == count:
                if what == 'append': real(arguments[0], arguments[1][:len(arguments[1]) // 2])      # half a row
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **settings)
        setattr(holder, what, killing)
        search.run()


@pytest.mark.parametrize('what, count', [('look', 2), ('judge', 2), ('append', 1), ('append', 2), ('append', 3),
                                         ('append', 5), ('write_whole', 2)])
def test_a_search_that_was_killed_goes_on_to_the_same_bytes(tmp_path, what, count):
    with begin_search(tmp_path / 'whole', config(batch=3), Near(), Mover(), START) as search: search.run()
    assert forked(killed_search, what, count, tmp_path / 'killed') == -signal.SIGKILL
    judge, known = Near(), len(read_history(tmp_path / 'killed'))
    with resume_search(tmp_path / 'killed', judge, Mover()) as search: search.run()
    whole, again = (tmp_path / name / 'history.jsonl' for name in ('whole', 'killed'))
    assert again.read_bytes() == whole.read_bytes()
    assert len(judge.jobs) == 9 - known and not (tmp_path / 'killed' / 'pending.json').exists()
    assert (tmp_path / 'killed' / 'end.json').read_bytes() == (tmp_path / 'whole' / 'end.json').read_bytes()


def test_a_batch_is_finished_before_it_is_asked_whether_to_stop(tmp_path, monkeypatch):
    numbers, settings = (.6, .1001, .1002, .1003, .1004, .1005), dict(batch=3, patience=1, budget=6)
    whole, why = searched(tmp_path / 'whole', *numbers, **settings)
    assert 'no improvement' in why and whole.done == 3
    def stop(path, data, real=discovery.append):
        if b'"index": 3' in data: raise KeyboardInterrupt
        real(path, data)
    monkeypatch.setattr(discovery, 'append', stop)
    with pytest.raises(KeyboardInterrupt): searched(tmp_path / 'stopped', *numbers, **settings)
    monkeypatch.undo()
    assert len(read_history(tmp_path / 'stopped')) == 3
    with resume_search(tmp_path / 'stopped', Near(), Listed()) as search: assert search.run() == why
    assert history(tmp_path / 'stopped') == history(tmp_path / 'whole')


def real_search(folder, most):
    "A search that trains, in a process that is killed after so many trainings of candidates"
    judge, settings = prepared(cache=folder / 'cache'), config(budget=3, batch=1)
    fit, made = measurement.fit_weights, []
    def counting(mechanism, tier, size, *, seed, **settings):
        with open(folder / 'made.txt', 'a') as file: file.write(f'{mechanism.__module__} {tuple(size)} {seed}\n')
        made.append(1)
        if len(made) > most: os.kill(os.getpid(), signal.SIGKILL)
        return fit(mechanism, tier, size, seed=seed, **settings)
    measurement.fit_weights, evaluation.work = counting, inside
    again, proposer = (folder / 'search').exists(), proposer_of(settings)
    opened = resume_search(folder / 'search', judge, proposer) if again else begin_search(
        folder / 'search', settings, judge, proposer)
    with opened as search: assert 'budget' in search.run(workers=Inside())


def test_a_real_search_that_was_killed_trains_nothing_twice(tmp_path):
    for name in ('whole', 'killed'): (tmp_path / name).mkdir()
    prepared()                  # the children begin with what is known here
    assert forked(real_search, tmp_path / 'whole', 1000) == 0
    assert forked(real_search, tmp_path / 'killed', 15) == -signal.SIGKILL      # two candidates are 12
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / 'killed' / 'cache').iterdir()}
    assert forked(real_search, tmp_path / 'killed', 1000) == 0
    assert history(tmp_path / 'killed' / 'search') == history(tmp_path / 'whole' / 'search')
    made = {name: (tmp_path / name / 'made.txt').read_text().splitlines() for name in ('whole', 'killed')}
    # What was at work when it was killed is lost; what was judged is not made again.
    measured = sum(row['status'] == 'ok' for row in history(tmp_path / 'whole' / 'search'))
    assert measured == 4 and len(made['whole']) == 18 == len(set(made['whole']))
    assert made['killed'][12:16] == made['killed'][16:20]
    assert made['killed'][:12] + made['killed'][16:] == made['whole']
    assert len(files) == 18 and all(path.stat().st_mtime_ns == when for path, when in files.items())


def test_others_facts_are_refused(tmp_path):
    searched(tmp_path / 'a', .2, .3)
    class Far(Near): facts = {'wanted': .2}
    with pytest.raises(ValueError, match='wanted 0.7 then, 0.2 now; begin a new search'):
        resume_search(tmp_path / 'a', Far(), Listed())
    changed = [Evaluator(framework, QUICK, **{'secret': SECRET} | settings).facts for framework, settings in (
        (FRAMEWORK, {}), (FRAMEWORK, {}), (FRAMEWORK, dict(seeds=3)), (FRAMEWORK, dict(first=5)),
        (FRAMEWORK, dict(kind='slope')), ('coefficient_dynamics', {}), (FRAMEWORK, dict(secret='another')))]
    assert len({json.dumps(facts) for facts in changed}) == 6


def test_only_one_at_a_time(tmp_path):
    with begun(tmp_path / 'a', .2), pytest.raises(ValueError, match='is at work'):
        resume_search(tmp_path / 'a', Near(), Listed())


# The same from the same seed

def test_a_seed_is_a_history(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, 'work', inside)
    for name, seed, control in (('a', 0, False), ('b', 0, False), ('c', 1, False), ('d', 0, True)):
        settings = config(budget=6, seed=seed, control=control)
        with begin_search(tmp_path / name, settings, Planted(seed=5), Noting(proposer_of(settings))) as search:
            search.run()
    files = [(tmp_path / name / 'history.jsonl').read_bytes() for name in 'abcd']
    assert files[0] == files[1] and len(set(files)) == 3


@pytest.mark.parametrize('other', ['none', pytest.param('one', marks=pytest.mark.slow)])
def test_two_workers_come_to_the_same_as_one_or_none(tmp_path, monkeypatch, other):
    monkeypatch.setattr(evaluation, 'work', inside)     # looks, and the baseline; the workers have processes
    (text := tmp_path / 'text.txt').write_text('a text that is read in no time, with words in it. ' * 2000)
    for name, crew in (('a', Workers(2)), ('b', {'none': Inside(), 'one': Workers(1)}[other])):
        judge, settings = prepared(cache=tmp_path / f'cache {name}', corpus=text), config(budget=2)
        with begin_search(tmp_path / name, settings, judge, proposer_of(settings)) as search: search.run(workers=crew)
    a, b = history(tmp_path / 'a'), history(tmp_path / 'b')
    assert a == b and len(a) == 3 and all(row['status'] == 'ok' for row in a)
    without = lambda folder: {name: {**found, 'seconds': 0} for name, found in kept(folder).items()}
    assert without(tmp_path / 'cache a') == without(tmp_path / 'cache b')


# What fails

LATE = 'if x.mean(2).abs().max() < .001 and x.std() > .1: {}'.format         # only behind a LayerNorm
BAD = dict(
    loop='for i in range(10**6):\n    for j in range(10**6): q = q + 0', exception='q = q @ torch.ones(3, 7)',
    late_memory=LATE('q = q + torch.ones(10**6, 10**6).sum()'), late_exception=LATE('q = q @ torch.ones(3, 7)'),
    late_nan=LATE('q = q / 0 - q / 0'), memory='q = q + torch.ones(10**6, 10**6).sum()', nan='q = q / 0 - q / 0',
    late_loop=LATE('q = q * sum(j for i in range(10**6) for j in range(10**6))'))
HARM = {name: code for name, (code, *_) in CANDIDATES.items()}         # nearly all are refused as they are read
READ = [name for name, (_, kind, _) in CANDIDATES.items() if kind == 'read']
# Every day, what a process of its own is not needed for is left in this one.
CONTAINED = dict(loop='looked at', late_memory='trained')


@pytest.mark.parametrize('every', [False, pytest.param(True, marks=pytest.mark.slow)])
def test_what_is_hostile_is_classified_and_the_search_goes_on(tmp_path, monkeypatch, every):
    names = [*BAD, *HARM] if every else [*[*BAD][:5], *(name for name in HARM if name not in READ)]
    indented = lambda code: '\n'.join('    ' + line for line in code.split('\n'))
    sources = {name: FRAMEWORKS[FRAMEWORK].program('def matrix(self, q, k, x):\n' + indented((BAD | HARM)[name])
                                                   + '\n    return causal_softmax(q @ k.mT)') for name in names}
    asked = {(sources[name], what) for name, what in CONTAINED.items()}
    hasty = Limits(seconds=100, processor_seconds=9 if every else 2)

    def made(job):
        trained = isinstance(job, Measurement)
        key = (job.trainings.source, 'trained') if trained else (job.arguments['source'], 'looked at')
        if not every and key not in asked: return inside(job)
        return work(job if trained else replace(job, limits=hasty))

    class Some(Workers):
        def map(self, jobs): return map(made, jobs)

    monkeypatch.setattr(evaluation, 'work', made)           # looks
    judge = prepared(cache=tmp_path / 'cache', limits=Limits(seconds=100, processor_seconds=12))
    # They do not look alike before they are run, and what they read like is not asked here.
    monkeypatch.setattr(Evaluator, 'close', lambda *_: False)
    settings = config(budget=len(sources) + 1, batch=9, invalid=100, patience=100)
    with begin_search(tmp_path / 'a', settings, judge, Listed(*sources.values(), .3)) as search:
        search.run(workers=Workers(2) if every else Some())
    rows = dict(zip(names, search.rows[1:]))
    statuses = {name: row['status'] for name, row in rows.items()}
    read = [name for name in HARM if name in statuses and statuses.pop(name) != 'refused']
    assert len(HARM) >= 40 and read == (READ if every else [])
    assert all(rows[name]['status'] in ('invalid', 'timeout', 'memory', 'crashed') for name in read)
    assert not every or statuses.pop('memory') in ('memory', 'invalid')
    expected = dict(loop='timeout', exception='invalid', late_memory='memory', late_exception='crashed',
                    late_nan='diverged', nan='invalid', late_loop='timeout')
    assert statuses == {name: status for name, status in expected.items() if name in names}
    for row in rows.values():
        assert row['score'] is None and row['why'].isprintable() and row['why'] and row['measured'] == {}
    assert 'computed for more than' in rows['loop']['why'] and 'RuntimeError' in rows['late_exception']['why']
    last = search.rows[-1]
    assert last['status'] == 'ok' and 0 < last['score'] < 1 and search.done == len(sources) + 1
    assert search.best['index'] in (0, last['index'])
    assert [member.index for member in search.parents()] == [0, last['index']]


def test_a_worker_that_is_killed_from_outside_is_tried_once_more():
    if not Path('/proc/self').is_dir(): pytest.skip('this system does not list processes')
    for kills, status in ((1, 'ok'), (2, 'crashed')):
        found, killed = [], set()
        job = Job('evolora.attention.scoring.sandbox:pause', {'seconds': 1.5}, Limits(seconds=100))
        thread = threading.Thread(target=lambda: found.append(work(job)))
        thread.start()
        while thread.is_alive() and len(killed) < kills:
            for pid in set(contained()) - killed:
                os.kill(pid, signal.SIGKILL)
                killed.add(pid)
            time.sleep(.01)
        thread.join()
        assert (len(killed), found[0].status) == (kills, status), found


@pytest.mark.parametrize('workers, count', [(Workers(), 1), (Workers(3), 3)], ids=['one', 'three'])
def test_as_many_jobs_are_under_way_at_once_as_there_are_workers(monkeypatch, workers, count):
    "One at a time where nobody said how many: a job may take all the memory that it is allowed"
    under_way, most, lock = 0, 0, threading.Lock()
    together = threading.Barrier(count)
    def contained(job, run):
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        together.wait(60)               # for ever, were there fewer workers
        time.sleep(.02)                 # one more, were there any, begins now
        with lock: under_way -= 1
        return job
    monkeypatch.setattr('evolora.attention.scoring.workers.work', contained)
    assert [*workers.map(range(6))] == [*range(6)] and most == count


def test_an_interrupt_stops_the_work():
    ended = []
    def contained(job, run):
        ended.append(run(job.task, job.arguments, job.limits))
        return ended[-1]
    jobs = [Job('evolora.attention.scoring.sandbox:pause', {'seconds': 0 if i == 0 else 500}, Limits(seconds=600))
            for i in range(3)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr('evolora.attention.scoring.workers.work', contained)
        outcomes = Workers(2).map(jobs)
        assert next(outcomes).status == 'ok'
        outcomes.close()                # as an exception does where they are waited for
    assert [outcome.status for outcome in ended][:2] == ['ok', 'timeout'] and len(ended) <= 3


def test_without_ray_there_is_one_line(monkeypatch):
    monkeypatch.setattr('evolora.utils.cluster.find_spec', lambda name: None)
    with pytest.raises(ValueError, match='pip install .*, or leave --ray away'): RayWorkers()


# Why it ends

def test_the_budget_counts_what_is_invalid(tmp_path):
    search, why = searched(tmp_path / 'a', .2, .3, .4, judge=Near(fails=(.3,)))
    assert why == 'the budget of 3 candidates is spent' and search.done == 3
    assert json.loads((tmp_path / 'a' / 'end.json').read_text()) == {'reason': why, 'candidates': 3}


def test_patience_asks_for_more_than_noise(tmp_path):
    slowly = [round(.1 + .01 * i, 2) for i in range(1, 11)]      # each a little better
    # The scores are .4, .41 and so on: steps of about .04 between logits.
    class Noisy(Near): noise = .22
    search, why = searched(tmp_path / 'a', *slowly, judge=Noisy(), batch=1, patience=5)
    assert why == 'no improvement above the noise in 5 candidates' and search.done == 5
    search, why = searched(tmp_path / 'b', *slowly, batch=1, patience=4)
    assert 'budget' in why and search.done == 10
    class LessNoisy(Near): noise = .18
    assert 'budget' in searched(tmp_path / 'c', *slowly, judge=LessNoisy(), batch=1, patience=5)[1]


def test_a_control_spends_its_budget(tmp_path):
    assert (config(budget=30).patience, config(budget=30, control=True).patience) == (20, 30)
    assert config(budget=30, control=True, patience=3).patience == 3
    worse = [round(.09 - .001 * i, 3) for i in range(25)]               # than the beginning
    assert 'no improvement' in searched(tmp_path / 'a', *worse, budget=25, batch=5)[1]
    assert 'budget' in searched(tmp_path / 'b', *worse, budget=25, batch=5, control=True)[1]


def test_a_search_that_is_far_ahead_still_sees_that_it_gets_better(tmp_path):
    class Far(Near):
        noise = .25
        def judge(self, program, outcome):      # logits of 4, 4.5, …: scores of .982, .989, …
            return dict(status='ok', why='', score=float(expit(50 * (self.number(program) - .1))), measured={})
    numbers = [round(.18 + .01 * i, 2) for i in range(8)]
    assert 'budget' in searched(tmp_path / 'a', *numbers, judge=Far(), batch=1, patience=1)[1]


def test_many_invalid_ones_in_a_row_end_it_and_others_do_not(tmp_path):
    numbers = [round(.2 + i / 100, 2) for i in range(8)]
    search, why = searched(tmp_path / 'a', *numbers, judge=Near(fails=numbers[1:]), batch=1, invalid=3)
    assert why == '4 candidates in a row were invalid, the last one: on purpose' and search.done == 5
    fails = [n for n in numbers if n != numbers[3]]
    assert searched(tmp_path / 'b', *numbers, judge=Near(fails=fails), batch=1, invalid=3)[0].done == 8
    class Drops(Near):          # valid, and worse than is worth measuring
        def judge(self, program, outcome):
            if program.digest == Program(START.source).digest: return super().judge(program, outcome)
            return dict(status='dropped', why='a loss of 9', score=None, measured={})
    search, why = searched(tmp_path / 'c', *numbers, judge=Drops(), batch=1, invalid=3)
    assert 'budget' in why and search.best['index'] == 0


def test_a_proposer_without_a_new_idea_is_barren(tmp_path):
    search, why = searched(tmp_path / 'a', .2, *[.1] * 5, budget=9, batch=1, tries=5)
    assert why == '5 proposals were known' and search.rows[-1]['status'] == 'barren'
    assert search.rows[-1]['dropped'] == {'listed: repeated': 5}


# Who has children, and who is not even measured

def test_the_best_of_each_cell_and_the_best_five_have_children(tmp_path):
    numbers = [.71, .72, .73, .74, .745, .05, .3, .26, .99, 1.5, .9]
    search, _ = searched(tmp_path / 'a', *numbers, judge=Near(fails=(.9,)), batch=1)
    by = {row['notes']['number']: row['index'] for row in search.rows}
    # .3 and .1 are the best of their cells, .99 and 1.5 of theirs; .26 and .05 are neither that nor among the five.
    best = {.71, .72, .73, .74, .745}
    assert {member.index for member in search.parents()} == {by[n] for n in best | {.1, .3, .99, 1.5}}
    assert {cell: row['notes']['number'] for cell, row in search.elites.items()} == {
        (0,): .1, (1,): .3, (2,): .71, (3,): .99, (6,): 1.5}
    assert search.best['index'] == by[.71] and not search.rows[by[.9]]['score']
    # A proposer sees what failed, and takes none of it as a parent.
    notes = {'status': 'invalid', 'why': 'on purpose'}
    assert search.archive() == [*search.parents(), Member(by[.9], scaled(.9).source, None, notes)]


def test_what_is_too_close_or_known_is_never_trained(tmp_path):
    judge = Near(near=.05)
    search, _ = searched(tmp_path / 'a', .3, .32, .3, .5, .51, .12, .8, judge=judge, budget=3, batch=2)
    assert judge.jobs == [.1, .3, .5, .8]                # the second of a batch is compared with its first
    assert [row['notes'].get('number') for row in search.rows] == judge.jobs
    assert judge.looked == [.1, .3, .32, .5, .51, .12, .8]
    assert search.rows[2]['dropped'] == {'listed: too close': 1, 'listed: repeated': 1}
    assert search.rows[3]['dropped'] == {'listed: too close': 2}


def test_what_may_not_be_run_counts_and_is_in_the_archive(tmp_path):
    judge = Near()
    ideas = .3, 'import os', AnswerError('no program'), .5
    with begun(tmp_path / 'a', *ideas, judge=judge, budget=4, batch=1) as search:
        assert 'budget' in search.run()
        assert judge.jobs == [.1, .3, .5]
        bad = search.rows[2:4]
        assert [(row['status'], row['score'], row['source']) for row in bad] == [
            ('refused', None, 'import os'), ('refused', None, '')]
        assert 'markers' in bad[0]['why'] and bad[1]['why'] == 'no program'
        assert [(m.index, m.notes['why']) for m in search.archive()[-2:]] == [(row['index'], row['why']) for row in bad]
    search, why = searched(tmp_path / 'b', *['import os'] * 9, budget=9, batch=1, invalid=3)
    assert why.startswith('4 candidates in a row were invalid') and search.done == 4
    long = 'x' * 10**6
    assert len(searched(tmp_path / 'c', long, budget=1)[0].rows[1]['source']) < 10**5


def test_an_endpoint_that_is_not_there_stops_it_with_what_there_is(tmp_path):
    with begun(tmp_path / 'a', .2, .3, EndpointError('no server answers'), budget=5, batch=1) as search:
        with pytest.raises(EndpointError, match='no server answers'): search.run()
    assert len(read_history(tmp_path / 'a')) == 3
    with resume_search(tmp_path / 'a', Near(), Listed(.4, .5, .6)) as search: assert 'budget' in search.run()


class Planted:
    "Scores a program by how many genes it shares with a hidden one, with noise; the proposer's notes have its genome"
    noise = 0.
    def __init__(self, seed):
        self.grammar, self.seed, self.facts = Grammar(FRAMEWORK), seed, {'seed': seed}
        self.target = self.grammar.draw(stream(seed, purpose='target'))
    def look(self, program): return Look('ok', cell=(0, 0))
    def close(self, program, look, others): return False
    def job(self, program): return None
    def true(self, digest):
        genome = self.grammar.read(Noting.known[digest])
        return float(np.mean([getattr(genome, gene) == getattr(self.target, gene) for gene in self.grammar.genes]))
    def judge(self, program, outcome):
        draws = .05 * stream(self.seed, purpose=program.digest).standard_normal()
        return dict(status='ok', why='', score=self.true(program.digest) + draws, measured={})


class Noting:
    "A proposer, and the notes of all that it proposed"
    known = {Program(discovery.baseline_of(FRAMEWORK).source).digest: discovery.baseline_of(FRAMEWORK).notes}
    def __init__(self, proposer): self.proposer = proposer
    def propose(self, rng, archive):
        found = self.proposer.propose(rng, archive)
        self.known[Program(found.source).digest] = found.notes
        return found


@pytest.mark.parametrize('seeds, budget', [(6, 20), pytest.param(12, 40, marks=pytest.mark.slow)])
def test_looking_at_what_was_found_beats_the_control_at_the_same_budget(tmp_path, seeds, budget):
    gains = []
    for seed in range(seeds):
        found = {}
        for control in (False, True):
            settings, judge = config(budget=budget, batch=4, seed=seed, control=control, patience=99), Planted(seed)
            proposer = proposer_of(settings)
            assert isinstance(proposer, RandomProposer) == control
            with begin_search(tmp_path / f'{seed}{control}', settings, judge, Noting(proposer)) as search: search.run()
            assert search.done == budget and (not control or not any(row['parents'] for row in search.rows))
            found[control] = judge.true(search.best['digest'])
        gains.append(found[False] - found[True])
    assert stats.t.interval(.95, seeds - 1, np.mean(gains), stats.sem(gains))[0] > 0, gains


def test_a_control_is_of_the_grammar_alone():
    with pytest.raises(ValueError, match='control expected the proposer grammar, got ast'):
        proposer_of(config(control=True, proposer='ast'))


# What lies on the disk is not believed

def damage(folder, how):
    path = folder / 'history.jsonl'
    lines = path.read_text().splitlines()
    row = json.loads(lines[1])
    changed = {'no score': {'score': None}, 'text score': {'score': 'high'}, 'cell': {'cell': [[1]]},
               'parents': {'parents': [None]}, 'source': {'source': 'import os'}, 'index': {'index': 5}}
    if how in changed: lines[1] = json.dumps(row | changed[how])
    if how == 'list': lines[1] = '[]'
    if how == 'NaN': lines[1] = lines[1].replace('"score": 0.', '"score": NaN, "x": 0.')
    if how == 'half': lines[1] = lines[1][:50]
    if how == 'empty': lines = []
    if how == 'missing': return path.unlink()
    path.write_text(''.join(line + '\n' for line in lines))
    if how == 'search': (folder / 'search.json').write_text('{"config": {"budget": 0}, "facts": {}}')
    if how == 'pending rows': (folder / 'pending.json').write_text('{}')
    if how == 'pending row': (folder / 'pending.json').write_text('{"rows": [1]}')
    if how == 'pending index': (folder / 'pending.json').write_text(json.dumps({'rows': [row | {'index': 7}]}))
    if how == 'pending': (folder / 'pending.json').write_text('{"rows": [')


@pytest.mark.parametrize('how', ['no score', 'text score', 'cell', 'parents', 'source', 'index', 'list', 'NaN', 'half',
                                 'empty', 'missing', 'search', 'pending rows', 'pending row', 'pending index',
                                 'pending'])
def test_a_damaged_folder_is_one_line_and_stays_as_it_is(tmp_path, how):
    with begun(tmp_path / 'a', .2, .3, .4, .5) as search: search.step()
    damage(tmp_path / 'a', how)
    before = {path.name: path.read_bytes() for path in (tmp_path / 'a').iterdir() if path.suffix != '.lock'}
    with pytest.raises(ValueError) as raised, resume_search(tmp_path / 'a', Near(), Listed(.4, .5)) as search:
        search.run()
    assert '\n' not in str(raised.value)
    assert before == {path.name: path.read_bytes() for path in (tmp_path / 'a').iterdir() if path.suffix != '.lock'}


def test_a_configuration_comes_back(tmp_path):
    with begun(tmp_path / 'a', .2, seed=3, patience=7) as search: assert search_config(tmp_path / 'a') == search.config
    with pytest.raises(ValueError, match='has no search.json'): search_config(tmp_path)


def test_a_tier_of_ones_own_comes_back(tmp_path):
    with begun(tmp_path / 'a', .2, tier=QUICK) as search:
        assert search_config(tmp_path / 'a').tier == QUICK and search.config.rung == 'quick'
    judge = judge_of(search_config(tmp_path / 'a'))
    assert judge.tier == QUICK and judge.seeds == (0, 1) and judge.device == 'cpu'
    assert judge_of(search.config, seeds=3, first=7).seeds == (7, 8, 9)
