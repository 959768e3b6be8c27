"""Whole searches with each proposer of ours: without a network, the same again, and gone on with after a stop. A
language model is a server on this machine whose answers follow from the seed that it is sent."""
import socket

import pytest
from endpoints import edit, serving
from quick import FRAMEWORK, QUICK, SOFTMAX, Inside, inside, prepared

from evolora.attention.search import search as discovery
from evolora.attention.scoring import evaluation
from evolora.attention.search.search import SearchConfig, begin_search, proposer_of, read_history, resume_search
from evolora.attention.scoring.evaluation import Evaluator, Look
from evolora.host.mechanisms.frameworks import FRAMEWORKS
from evolora.host.mechanisms.program_source import Program
from evolora.attention.report.records import operators

OFFLINE = ('grammar', 'ast')


class Toy:
    "Worth of a program by its digest, in no time"
    facts, noise = {'toy': True}, 0.
    def look(self, program):
        if int(program.digest, 16) % 5 == 0: return Look('invalid', 'on purpose')
        return Look('ok', cell=(int(program.digest[:2], 16) % 4, 0))
    def close(self, program, look, others): return False
    def job(self, program): return None
    def judge(self, program, outcome):
        return dict(status='ok', why='', score=.5 if program == SOFTMAX else int(program.digest[:6], 16) / 2**24,
                    measured={})


@pytest.fixture
def offline(monkeypatch):
    "There is no network, and jobs run in this process, where that is true"
    def none(*arguments, **settings): raise OSError('expected no socket, got one')
    monkeypatch.setattr(evaluation, 'work', inside)
    for name in ('socket', 'create_connection', 'create_server', 'socketpair', 'getaddrinfo'):
        monkeypatch.setattr(socket, name, none)
    with pytest.raises(OSError, match='expected no socket'): socket.socket()


def config(proposer, **settings):
    return SearchConfig(**dict(framework=FRAMEWORK, proposer=proposer, budget=24, patience=99, invalid=99) | settings)


def searched(folder, settings, judge=None, **endpoint):
    with begin_search(folder, settings, judge or Toy(), proposer_of(settings, **endpoint)) as search:
        return search.run(workers=Inside())


def history(folder):
    "The rows, without the seconds that they took"
    rows = read_history(folder)
    for row in rows: row['measured'].pop('seconds', None)
    return rows


class Stop(Exception): pass


def stopped(folder, settings, monkeypatch, **endpoint):
    "A search that was stopped while it wrote its sixth row"
    def stop(path, data, real=discovery.append):
        if b'"index": 6' in data: raise Stop
        real(path, data)
    with monkeypatch.context() as patch:
        patch.setattr(discovery, 'append', stop)
        with pytest.raises(Stop): searched(folder, settings, **endpoint)
    assert len(read_history(folder)) == 6


# Without a network

@pytest.mark.parametrize('framework', FRAMEWORKS)
@pytest.mark.parametrize('proposer', OFFLINE)
def test_a_search_without_a_network_is_the_same_again_and_another_with_another_seed(tmp_path, offline, proposer,
                                                                                   framework):
    for name, seed in (('a', 0), ('b', 0), ('c', 1)):
        why = searched(tmp_path / name, config(proposer, seed=seed, framework=framework))
        assert why == 'the budget of 24 candidates is spent'
    files = [(tmp_path / name / 'history.jsonl').read_bytes() for name in 'abc']
    assert files[0] == files[1] != files[2]
    rows = read_history(tmp_path / 'a')
    read = [row['digest'] for row in rows if row['status'] != 'refused']
    assert len(set(read)) == len(read) > 20 and any(max(row['parents']) > 0 for row in rows[1:])
    assert {row['status'] for row in rows} - {'refused'} == {'ok', 'invalid'}
    table = operators(rows)
    assert table['proposed'].sum() >= 24 and table['valid'].between(0, 1).all()
    if proposer == 'ast': assert table['repeated'].sum() + table['refused'].sum() > 0 and len(table) > 4


@pytest.mark.parametrize('proposer', OFFLINE)
def test_a_search_that_was_stopped_goes_on_to_the_same_bytes(tmp_path, offline, monkeypatch, proposer):
    settings = config(proposer, budget=12, batch=3)
    searched(tmp_path / 'whole', settings)
    stopped(tmp_path / 'stopped', settings, monkeypatch)
    with resume_search(tmp_path / 'stopped', Toy(), proposer_of(settings)) as search: search.run()
    whole, again = ((tmp_path / name / 'history.jsonl').read_bytes() for name in ('whole', 'stopped'))
    assert whole == again


def test_edits_are_looked_at_trained_and_measured_like_everything(tmp_path, offline):
    for name in 'ab':
        judge = prepared(cache=tmp_path / f'cache {name}')
        assert 'budget' in searched(tmp_path / name, config('ast', budget=2), judge)
    rows = history(tmp_path / 'a')
    assert rows == history(tmp_path / 'b') and len(rows) == 3
    measured = [row for row in rows if row['status'] == 'ok']
    assert len(measured) >= 2 and all(0 < row['score'] < 1 and row['measured']['gain'] for row in measured)
    assert all(Program(row['source']).digest == row['digest'] for row in rows)


# A language model

def answers(asked, handler):
    "An edit of the scores that follows from the seed; sometimes talk, sometimes what may not be read"
    seed, program = asked['seed'], asked['messages'][-1]['content'].partition('# Other programs')[0]
    if seed % 7 == 0: return 'I would rather not.'
    line = next(line for line in program.split('\n') if 'def matrix' in line)
    scores = 'open(q)' if seed % 7 == 1 else f'q @ k.mT * .{seed % 1000 + 1}'
    return edit(line, f'    def matrix(self, q, k, x): return causal_softmax({scores})')


def test_a_model_searches_and_goes_on_and_is_asked_nothing_twice(tmp_path, monkeypatch):
    settings = config('llm', budget=12, batch=3)
    with serving(answers) as server:
        endpoint = {'url': server.url, 'model': 'stub'}
        assert 'budget' in searched(tmp_path / 'whole', settings, **endpoint)
        asked = [question['seed'] for question in server.asked]
        server.asked.clear()
        stopped(tmp_path / 'stopped', settings, monkeypatch, **endpoint)
        with resume_search(tmp_path / 'stopped', Toy(), proposer_of(settings, **endpoint)) as search: search.run()
        assert [question['seed'] for question in server.asked] == asked      # a batch that was proposed is on the disk
    rows = read_history(tmp_path / 'whole')
    assert rows == read_history(tmp_path / 'stopped') and len(rows) == 13
    assert {row['operator'] for row in rows} == {'baseline', 'endpoint', 'answer'}
    assert all(row['status'] == 'refused' and 'expected' in row['why'] for row in rows if row['operator'] == 'answer')
    proposed = [row['notes'] for row in rows if row['operator'] == 'endpoint']
    assert all(notes['model'] == 'stub' and notes['seed'] in asked for notes in proposed)
    table = operators(rows)
    assert table.loc['endpoint', 'evaluated'] > 3 and table.loc['endpoint', 'refused'] > 0
    assert table.loc['answer', 'refused'] > 0 and len(asked) == table['proposed'].sum()


def test_what_a_model_proposes_is_trained_and_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, 'work', inside)
    with serving(answers) as server:
        judge = prepared(cache=tmp_path / 'cache')
        settings = config('llm', budget=2)
        assert 'budget' in searched(tmp_path / 'a', settings, judge, url=server.url, model='stub')
        shown = server.asked[-1]['messages']
    rows = read_history(tmp_path / 'a')
    assert [row['status'] for row in rows] == ['ok'] * 3 and all(row['measured']['gain'] for row in rows)
    assert 'MatrixMixer' in shown[0]['content'] and 'score 0.5' in shown[1]['content']


def test_the_prompt_has_the_reason_why_the_last_program_failed(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, 'work', inside)
    monkeypatch.setattr('evolora.attention.scoring.workers.work', inside)       # a search trains its own baseline
    def learns(asked, handler):
        program, _, failed = asked['messages'][-1]['content'].partition('# What failed lately')
        line = next(line for line in program.split('\n') if 'def matrix' in line)
        scores = 'q @ k.mT * .5' if failed else 'q @ torch.ones(3, 7)'
        return edit(line, f'    def matrix(self, q, k, x): return causal_softmax({scores})')
    with serving(learns) as server:
        settings = config('llm', budget=2, batch=1)
        judge = Evaluator(FRAMEWORK, QUICK, cache=tmp_path / 'cache')
        searched(tmp_path / 'a', settings, judge, url=server.url, model='stub')
        last = server.asked[-1]['messages'][-1]['content'].partition('# What failed lately')[2]
    rows = read_history(tmp_path / 'a')
    assert [row['status'] for row in rows] == ['ok', 'invalid', 'ok'] and f"- invalid: {rows[1]['why'][:40]}" in last
