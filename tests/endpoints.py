"A language model that is none: a server on this machine that speaks its language."
import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


def edit(search, replace): return f'<<<<<<< SEARCH\n{search}\n=======\n{replace}\n>>>>>>> REPLACE\n'


class Server(ThreadingHTTPServer):
    "Hands every request to `answer(asked, handler)`: a text, (status, body) or (status, body, headers), or None"
    daemon_threads = True

    def __init__(self, answer):
        super().__init__(('127.0.0.1', 0), Handler)
        self.answer, self.asked, self.done = answer, [], threading.Event()

    @property
    def url(self): return f'http://127.0.0.1:{self.server_port}/v1'

    def handle_error(self, request, client_address): pass      # the other side hung up, and meant to


class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers['Content-Length'])))
        self.server.asked.append({'path': self.path, 'headers': dict(self.headers), **asked})
        found = self.server.answer(asked, self)
        if found is None: return
        if isinstance(found, str): found = 200, {'choices': [{'message': {'content': found}}]}
        status, body, *headers = found
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        for name, value in (headers[0] if headers else {}).items(): self.send_header(name, value)
        self.send_header('Content-Length', str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args): pass


@contextmanager
def serving(answer):
    "A server at work until the block ends"
    server = Server(answer)
    threading.Thread(target=server.serve_forever, args=[.01], daemon=True).start()
    try: yield server
    finally:
        server.done.set()
        server.shutdown()
        server.server_close()
