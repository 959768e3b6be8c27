"A server on this machine reads the parent from the prompt, and answers sensibly, badly, slowly, hugely, hostilely."
import json
import re
from contextlib import ExitStack

import pytest
from endpoints import edit, serving

from evolora.attention.search import endpoint
from evolora.attention.search.endpoint import AnswerError, EndpointError, EndpointProposer, parse_answer, task_prompt
from evolora.host.mechanisms.frameworks import FRAMEWORKS, VARIANTS, variant
from evolora.host.mechanisms.program_source import LONGEST, Program, Refused, rules
from evolora.attention.search.proposal_format import Member
from evolora.utils.randomness import stream

FRAMEWORK, KEY = 'coefficient_dynamics', 'sk-very-secret-0123456789'
SOFTMAX, LINEAR = variant(FRAMEWORK), variant(FRAMEWORK, 'linear')
ESCAPED = f'{{"error": "{KEY}"}}'.replace('-', '\\u002d').encode()      # the same text, escaped in JSON
HOSTILE = ['<script>alert(1)</script>', '\x1b[2J\x1b]0;x\x07', '\u202egpj', 'x' * 1_000_000, '\ud800', '\x00']
KINDS = ['script', 'escapes', 'bidi', 'megabyte', 'surrogate', 'null']


def sharper(program):
    line = next(line for line in program.split('\n') if 'def inject' in line)
    return edit(line, f'{line[:-3]} -.4')


@pytest.fixture
def serve(monkeypatch):
    monkeypatch.delenv('EVOLORA_API_KEY', raising=False)
    with ExitStack() as servers: yield lambda answer: servers.enter_context(serving(answer))


def parent_in(asked):
    return re.search(r'# Current program\n```python\n(.*?)```', asked['messages'][1]['content'], re.DOTALL)[1]


def proposer(server, **settings):
    return EndpointProposer(FRAMEWORK, **{'url': server.url, 'model': 'm', 'sleep': lambda seconds: None, **settings})


def archive():
    return [Member(0, SOFTMAX, .5, {}), Member(1, LINEAR, .4, {}), Member(2, LINEAR, None, {'why': 'it leaks'})]


def test_a_sensible_answer_becomes_a_proposal(serve):
    server = serve(lambda asked, _: sharper(parent_in(asked)))
    found = proposer(server, temperature=.2, tokens=99).propose(stream(1), archive())
    assert found.operator == 'endpoint' and found.parents in {(0,), (1,)}
    assert Program(found.source).block == Program(archive()[found.parents[0]].source).block.replace('-.5', ' -.4')
    asked = server.asked[0]
    assert asked['path'] == '/v1/chat/completions' and (asked['model'], asked['temperature']) == ('m', .2)
    assert (asked['max_tokens'], asked['stream'], asked['seed']) == (99, False, found.notes['seed'])
    assert 'Authorization' not in asked['headers']
    assert json.loads(json.dumps(found.notes)) == found.notes
    assert 'it leaks' in asked['messages'][1]['content']


def test_the_same_stream_asks_the_same_question_and_another_does_not(serve):
    server = serve(lambda asked, _: sharper(parent_in(asked)))
    asks = proposer(server)
    assert asks.propose(stream(1), archive()) == asks.propose(stream(1), archive())
    asks.propose(stream(2), archive())
    seeds = [asked['seed'] for asked in server.asked]
    assert seeds[0] == seeds[1] != seeds[2]
    assert server.asked[0]['messages'] == server.asked[1]['messages']


def test_without_members_the_parent_is_softmax_and_without_limits_none_is_sent(serve):
    server = serve(lambda asked, _: sharper(parent_in(asked)))
    found = proposer(server, temperature=None, tokens=None).propose(stream(0), [])
    assert found.parents == () and parent_in(server.asked[0]) == SOFTMAX
    assert not {'temperature', 'max_tokens'} & set(server.asked[0])


def test_the_prompt_shows_at_most_three_good_and_two_others(serve):
    server = serve(lambda asked, _: sharper(parent_in(asked)))
    members = [Member(i, SOFTMAX.replace('-.5', f'-.{i + 10}'), i / 100, {}) for i in range(40)]
    proposer(server).propose(stream(0), members)
    shown = [int(n) for n in re.findall(r'^## Program (\d+), score', server.asked[0]['messages'][1]['content'], re.M)]
    assert len(shown) == 5 and min(shown[:3]) >= 36 and max(shown[3:]) < 37 and len(set(shown)) == 5


@pytest.mark.parametrize('name', FRAMEWORKS)
def test_the_rules_of_the_prompt_are_those_that_are_enforced(name):
    prompt = task_prompt(name)
    for words in rules().values(): assert ' '.join(words) in prompt
    for tool in FRAMEWORKS[name].tools: assert f'- {tool}(' in prompt
    for library in ('torch', 'torch.linalg', 'F', 'nn', 'math'):
        with pytest.raises(Refused): Program(FRAMEWORKS[name].program(f'def finish(self, y, x): return {library}.load'))
        for word in rules()[library]:
            used = f'def finish(self, y, x): return {library}.{word}'
            if library == 'nn': used = f'def setup(self): self.a = nn.{word}(1)'
            Program(FRAMEWORKS[name].program(used + '(1.)' * (word == 'tensor')))
    assert 'load' not in rules()['torch']


def test_both_forms_and_a_whole_program_are_read():
    block = Program(LINEAR).block
    fenced = f'My idea:\n```python\n{block}\n```\nGood luck.'
    for text in (fenced, f'```\n{LINEAR}```', f'<think>\n```\nno\n</think>\n{fenced}', fenced.replace('\n', '\r\n')):
        assert parse_answer(FRAMEWORK, SOFTMAX, text) == (LINEAR, {'form': 'block', 'dropped': False})
    source, notes = parse_answer(FRAMEWORK, SOFTMAX, f'```python\n{sharper(SOFTMAX)}```')
    assert ' -.4' in source and notes == {'form': 'edits', 'dropped': False}


def test_what_is_edited_outside_of_the_markers_is_dropped_and_noted():
    outside = edit('import math', 'import math, os')
    source, notes = parse_answer(FRAMEWORK, SOFTMAX, outside + sharper(SOFTMAX))
    assert source == parse_answer(FRAMEWORK, SOFTMAX, sharper(SOFTMAX))[0]
    assert notes == {'form': 'edits', 'dropped': True}
    assert parse_answer(FRAMEWORK, SOFTMAX, outside) == (SOFTMAX, {'form': 'edits', 'dropped': True})
    whole = LINEAR.replace('import math', 'import os') + 'os.remove("x")\n'
    assert parse_answer(FRAMEWORK, SOFTMAX, f'```\n{whole}```') == (LINEAR, {'form': 'block', 'dropped': True})


@pytest.mark.parametrize('text, why', [
    ('I cannot do that.', 'got 0 fences'), ('```\nx\n```\n```\ny\n```', 'got 4 fences'), ('```\n\n```', 'got none'),
    (edit('no such line', 'x = 1'), 'do not fit'), ('<<<<<<< SEARCH\nimport math', 'do not fit'),
    (edit('    # EVOLVE-BLOCK-END', ''), 'each marker once'),
    (edit('    # EVOLVE-BLOCK-END', '    # EVOLVE-BLOCK-END\nimport os\n    # EVOLVE-BLOCK-START'), 'each marker once'),
    (edit('import math', 'EVOLVE/BLOCK'), 'each marker once'),
    ('```\n# EVOLVE-BLOCK-END\n# EVOLVE-BLOCK-START\n```', 'each marker once'),
    ('```\nx = 1\n' + '# x' * LONGEST + '\n```', f'at most {LONGEST} characters'),
    ('x' * 100_001, 'at most 100000 characters'),
])
def test_an_answer_without_a_program_is_refused_in_one_line(text, why):
    with pytest.raises(AnswerError, match=why) as found: parse_answer(FRAMEWORK, SOFTMAX, text)
    assert '\n' not in str(found.value) and len(str(found.value)) < 300


@pytest.mark.parametrize('text', HOSTILE, ids=KINDS)
def test_a_hostile_answer_is_refused_or_a_program_like_any(serve, text):
    server = serve(lambda asked, _: f'{text}\n```\ndef finish(self, y, x): return y  # {text}\n```')
    try: found = proposer(server).propose(stream(0), archive())
    except EndpointError as error: assert str(error).isprintable() and len(str(error)) < 400
    else:
        assert len(found.source.encode()) <= 4 * LONGEST
        assert found.source.startswith(FRAMEWORKS[FRAMEWORK].head)
        try: Program(found.source)
        except Refused: pass


@pytest.mark.parametrize('text', HOSTILE, ids=KINDS)
def test_a_hostile_error_is_one_plain_line(serve, text):
    for status in (200, 400, 401, 404, 500):
        server = serve(lambda asked, _: (status, {'error': {'message': f'{text}\n{text}'}}))
        with pytest.raises(EndpointError) as found: proposer(server, retries=0).ask('', '', 0)
        assert str(found.value).isprintable() and len(str(found.value)) < 400


@pytest.mark.parametrize('status, body, why', [
    (401, {'error': {'message': KEY}}, 'set EVOLORA_API_KEY'),
    (404, {'error': 'no model m'}, 'no model m.*check the url'),
    (400, {'error': {'message': f'bad {KEY}'}}, 'change the model'), (302, b'', 'elsewhere'),
    (204, b'', 'check the url'),
    (500, b'<h1>oops</h1>', 'log of the server'), (429, {}, 'wait'),
    (200, b'<html>', "expected to send JSON, got .*'<html>'"), (200, b'\xff', 'expected to send JSON'),
    (200, b'{"choices": NaN}', 'expected to send JSON'), (200, b'[' * 100_000, 'expected to send JSON'),
    (200, b' ' * (1 << 20) + b' ', 'at most 1048576 bytes'),
    (200, {'error': {'message': f'over {KEY}'}}, 'got an error'),
    (200, f'{KEY} is no JSON'.encode(), 'JSON'), (200, ESCAPED, 'got an error'), (404, ESCAPED, 'check the url'),
])
def test_a_refusal_is_one_line_without_the_key(serve, status, body, why):
    server = serve(lambda asked, _: (status, body))
    with pytest.raises(EndpointError, match=why) as found: proposer(server, key=KEY, retries=1).ask('', '', 0)
    assert str(found.value).isprintable() and KEY not in str(found.value) and not isinstance(found.value, AnswerError)
    assert server.asked[0]['headers']['Authorization'] == f'Bearer {KEY}'
    assert len(server.asked) == (2 if status in (429, 500) else 1)


@pytest.mark.parametrize('body', [
    {}, {'choices': []}, {'choices': None}, {'choices': [None]}, {'choices': [{}]}, {'choices': [{'message': 'hi'}]},
    {'choices': [{'message': {'content': None}}]}, {'choices': [{'message': {'content': [1]}}]}, [], 3,
    {'choices': [{'message': {'content': ' '}}]},
    {'choices': [{'message': {'content': 'x'}, 'finish_reason': 'length'}]},
])
def test_an_empty_answer_is_the_models_fault_not_the_servers(serve, body):
    with pytest.raises(AnswerError): proposer(serve(lambda asked, _: (200, body))).ask('', '', 0)


def test_it_waits_as_long_as_it_is_asked_to_up_to_a_minute(serve):
    asked_for = iter(['7', 'Fri, 01 Jan 2100 00:00:00 GMT', 'Sun, 06 Nov 1994 08:49:37 GMT', 'soon', '9' * 5000, '-3'])
    server = serve(lambda asked, _: (503, b'', {'retry-after': text}) if (text := next(asked_for, None)) else 'at last')
    pauses = []
    assert proposer(server, retries=9, sleep=pauses.append).ask('', '', 0) == 'at last'
    assert pauses == [7., 60., 0., 8., 16., 32.]
    assert len({asked['seed'] for asked in server.asked}) == 1


def test_no_server_and_a_server_that_hangs_up():
    with serving(lambda asked, handler: handler.connection.close()) as server:
        with pytest.raises(EndpointError, match='expected an answer, got none'): proposer(server).ask('', '', 0)
    with pytest.raises(EndpointError, match='connection refused.; start it'): proposer(server).ask('', '', 0)


def test_a_slow_server_and_one_that_drips_are_left(serve):
    def drip(asked, handler):
        handler.wfile.write(b'HTTP/1.1 200 OK\r\n')
        for _ in range(600):        # a minute, in which no single read would wait for long
            if handler.server.done.wait(.1): return
            handler.wfile.write(b'X-A: b\r\n' if headers else b' ')
            handler.wfile.flush()

    for headers in (True, False):
        server = serve(drip)
        asks = proposer(server, timeout=.3)
        with pytest.raises(EndpointError, match='within 0.3 seconds.*raise timeout'): asks.ask('', '', 0)
    server = serve(lambda asked, handler: handler.server.done.wait(60) and None)
    with pytest.raises(EndpointError, match='raise timeout'): proposer(server, timeout=.2).ask('', '', 0)


@pytest.mark.parametrize('size', [b'-1', b'-ffff', b'7fffffffffff', b'200000'])
def test_a_chunk_of_a_wrong_size_is_not_read_past_a_megabyte(serve, size):
    sent = []
    def flood(asked, handler):
        handler.wfile.write(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n' + size + b'\r\n')
        while len(sent) < 32: sent.append(handler.wfile.write(b' ' * (1 << 20)))

    with pytest.raises(EndpointError, match='at most 1048576 bytes'): proposer(serve(flood)).ask('', '', 0)
    assert len(sent) < 32


def test_chunks_are_joined(serve):
    def chunked(asked, handler):
        body = json.dumps({'choices': [{'message': {'content': 'x' * 100_000}}]}).encode()
        handler.wfile.write(b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n')
        for at in range(0, len(body), 999):
            part = body[at:at + 999]
            handler.wfile.write(b'%x\r\n%s\r\n' % (len(part), part))
        handler.wfile.write(b'0\r\n\r\n')

    assert proposer(serve(chunked)).ask('', '', 0) == 'x' * 100_000


def test_a_redirect_is_not_followed_and_proxies_are_not_used(serve, monkeypatch):
    other = serve(lambda asked, _: 'from elsewhere')
    server = serve(lambda asked, _: (307, b'', {'Location': f'{other.url}/chat/completions'}))
    for name in ('http_proxy', 'HTTP_PROXY', 'all_proxy'): monkeypatch.setenv(name, other.url)
    with pytest.raises(EndpointError, match='elsewhere'): proposer(server, key=KEY).ask('', '', 0)
    assert len(server.asked) == 1 and not other.asked


def test_the_key_comes_from_the_environment_and_is_never_shown(serve, monkeypatch):
    monkeypatch.setenv('EVOLORA_API_KEY', KEY)
    server = serve(lambda asked, _: f'```\ndef finish(self, y, x): return y  # {KEY}\n```')
    asks = proposer(server)
    found = asks.propose(stream(0), [])
    assert server.asked[0]['headers']['Authorization'] == f'Bearer {KEY}'
    assert KEY not in repr(asks) + repr(found) and KEY not in json.dumps(server.asked[0]['messages'])
    proposer(server, key='').ask('', '', 0)
    assert 'Authorization' not in server.asked[-1]['headers']
    for bad in (f'{KEY}\n', f'{KEY} x', 'schlüssel'):
        with pytest.raises(ValueError, match='key expected') as found: proposer(server, key=bad)
        assert KEY not in str(found.value)


@pytest.mark.parametrize('url', [
    'localhost:8000', 'ftp://h/v1', 'http://', 'http://h:99999/v1', 'http://h/v1?x=1', 'http://h/v1#x',
    'http://h/ v1', '',
    'http://h/v1\r\nX: y', 'http://hö/v1', None, 5, b'http://h/v1', 'file:///etc/passwd', 'http://[::1/v1',
    'http://a..b/v1', f"http://{'a' * 70}/v1", 'http://./v1',
])
def test_an_address_that_is_none_is_refused(url):
    with pytest.raises(ValueError, match='url expected') as found: EndpointProposer(FRAMEWORK, url=url, model='m')
    assert str(found.value).isprintable()


@pytest.mark.parametrize('url, place', [
    ('http://[::1]/v1', ('::1', 80)), ('http://[::1%25lo]/v1', ('::1%25lo', 80)), ('https://h/v1', ('h', 443)),
    ('http://[::1]:7/v1', ('::1', 7)), ('http://h:0/v1', ('h', 0))])
def test_the_host_and_port_of_an_address_are_those_that_are_called(monkeypatch, url, place):
    called = []
    def refuse(address, *others):
        called.append(address)
        raise OSError('no route')

    monkeypatch.setattr(endpoint.socket, 'create_connection', refuse)
    asks = EndpointProposer(FRAMEWORK, url=url, model='m')
    with pytest.raises(EndpointError, match='expected an answer, got none'): asks.ask('', '', 0)
    assert called == [place]


def test_a_password_in_an_address_is_not_shown_and_a_key_does_not_travel_in_the_clear(monkeypatch):
    monkeypatch.delenv('EVOLORA_API_KEY', raising=False)
    with pytest.raises(ValueError, match='password') as found:
        EndpointProposer(FRAMEWORK, url='http://u:pw123@h/v1', model='m')
    assert 'pw123' not in str(found.value)
    with pytest.raises(ValueError, match='https') as found:
        EndpointProposer(FRAMEWORK, url='http://h/v1', model='m', key=KEY)
    assert KEY not in str(found.value)
    for url in ('http://localhost/v1', 'http://[::1]:80/v1', 'http://127.1.2.3/v1', 'https://h/v1'):
        EndpointProposer(FRAMEWORK, url=url, model='m', key=KEY)


@pytest.mark.parametrize('settings, why', [
    ({'framework': 'quantum'}, 'framework expected'), ({'model': ' '}, 'model expected'),
    ({'timeout': 0}, 'timeout expected'), ({'timeout': float('nan')}, 'timeout expected'),
    ({'retries': -1}, 'retries expected'), ({'tokens': 0}, 'tokens expected'),
    ({'temperature': float('nan')}, 'temperature expected'),
])
def test_settings_that_make_no_sense_are_refused(settings, why):
    with pytest.raises(ValueError, match=why):
        EndpointProposer(**{'framework': FRAMEWORK, 'url': 'http://127.0.0.1/v1', 'model': 'm', **settings})


@pytest.mark.parametrize('name', FRAMEWORKS)
def test_every_variant_survives_the_way_through_an_answer(name):
    for other in VARIANTS[name]:
        source = variant(name, other)
        assert parse_answer(name, variant(name), f'```python\n{Program(source).block}\n```')[0] == source
