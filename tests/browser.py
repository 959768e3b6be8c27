"""JupyterLab as `evolora lab` starts it, and a real browser that looks at it.

`serving` and `browsing` are context managers: the server and the browser of a test end with it, whatever happens. The
browser is Debian's Chromium; it can resolve no name at all, and what it asks of any host but the server is recorded in
`Notebook.outside`. Nothing waits for a number of seconds: what is waited for is seen, on the page or in an answer.
"""
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError
from urllib.parse import quote, urlsplit
from urllib.request import Request, urlopen

PATIENCE = 300      # seconds until something that should be seen counts as missing; a busy machine is slow
TOKEN = 'for-this-test-only'
SWITCHES = ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage', '--disable-background-networking',
            '--disable-component-update', '--disable-sync', '--no-first-run', '--no-default-browser-check',
            '--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1']
# JupyterLab asks about its news once for each user, in front of everything else.
SETTINGS = {'@jupyterlab/apputils-extension/notification': {'fetchNews': 'false', 'checkForUpdates': False}}
NUMBERED = re.compile(r'\[\d+\]')
RUN = 'import sys; from evolora.cli.app import main; main(sys.argv[1:])'


def chromium() -> str | None:
    "Where the browser is, if there is one"
    return next(filter(None, map(shutil.which, ('chromium', 'chromium-browser', 'google-chrome'))), None)


def missing() -> str | None:
    "Why no browser test can run, or None"
    try: import playwright.sync_api     # noqa: F401
    except ImportError: return "playwright is not installed: pip install -e '.[dev]'"
    if chromium() is None: return 'there is no Chromium: apt-get install chromium'
    return None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(('127.0.0.1', 0))
        return probe.getsockname()[1]


@dataclass
class Server:
    url: str
    folder: Path
    process: subprocess.Popen

    def ask(self, path: str):
        "What the server's own interface answers"
        with self._send(path) as reply: return json.load(reply)

    def _send(self, path: str, method: str = 'GET'):
        return urlopen(Request(f'{self.url}{path}', headers={'Authorization': f'token {TOKEN}'}, method=method),
                       timeout=30)

    def end_kernels(self) -> None:
        "As if the server had been begun again: no notebook has a kernel"
        for session in self.ask('/api/sessions'): self._send(f"/api/sessions/{session['id']}", 'DELETE').close()


def wait_for_answer(server: Server, log: Path) -> None:
    "Until the server answers; RuntimeError with its last words if it ends or stays silent"
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and server.process.poll() is None:
        try: server.ask('/api/status')
        except (URLError, OSError): time.sleep(.1)
        else: return
    raise RuntimeError(f'JupyterLab does not answer; its last words: {log.read_text(errors="replace")[-2000:]}')


@contextmanager
def serving(folder: Path, home: Path) -> Iterator[Server]:
    "`evolora lab` on a folder, with settings of its own in `home`"
    for name, settings in SETTINGS.items():
        path = home / 'settings' / f'{name}.jupyterlab-settings'
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(settings), encoding='utf-8')
    port, log = free_port(), home / 'jupyterlab.log'
    own = {'JUPYTER_CONFIG_DIR': 'config', 'JUPYTER_DATA_DIR': 'data', 'JUPYTER_RUNTIME_DIR': 'runtime',
           'JUPYTERLAB_SETTINGS_DIR': 'settings', 'JUPYTERLAB_WORKSPACES_DIR': 'workspaces', 'IPYTHONDIR': 'ipython'}
    env = os.environ | {name: str(home / path) for name, path in own.items()} | {
        'JUPYTER_TOKEN': TOKEN, 'OMP_NUM_THREADS': '1'}
    command = [sys.executable, '-c', RUN, 'lab', str(folder), '--no-browser', '--allow-root', '--port', str(port)]
    with log.open('w') as words:
        process = subprocess.Popen(command, env=env, cwd=home, stdin=subprocess.DEVNULL, stdout=words,
                                   stderr=subprocess.STDOUT, start_new_session=True)
    server = Server(f'http://127.0.0.1:{port}', folder, process)
    try:
        wait_for_answer(server, log)
        yield server
    finally:
        process.terminate()         # JupyterLab ends its kernels, then itself
        try: process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@dataclass
class Notebook:
    "A page of the browser with a notebook in it"
    page: object
    server: Server
    outside: list[str] = field(default_factory=list)

    def watch(self) -> None:
        "Record what is asked of any host but the server"
        def note(asked):
            parts = urlsplit(asked.url)
            if parts.scheme in ('http', 'https', 'ws', 'wss') and parts.netloc != urlsplit(self.server.url).netloc:
                self.outside.append(asked.url)
        self.page.context.on('request', note)
        self.page.on('websocket', note)

    def open(self, name: str | None = None) -> None:
        "Open a notebook, or what JupyterLab opens by itself, and wait until its kernel can be asked"
        self.page.goto(f'{self.server.url}/lab/tree/{quote(name)}?reset&token={TOKEN}' if name
                       else f'{self.server.url}/?token={TOKEN}')
        self.page.wait_for_selector('.jp-NotebookPanel .jp-Cell')
        # The indicator beside the notebook shows idle also before there is a kernel.
        self.page.wait_for_selector('#jp-main-statusbar :text("| Idle")')

    @property
    def code(self): return self.page.locator('.jp-NotebookPanel .jp-CodeCell')

    def run_cell(self, i: int) -> None:
        "Run a code cell and wait until it has run"
        cell = self.code.nth(i)
        cell.locator('.cm-content').click()
        self.page.keyboard.press('Control+Enter')
        self.ran(cell)

    def press_run(self) -> None:
        "Press ▶, which runs the cell that is chosen; as a notebook opens, the first one is"
        self.page.locator('.jp-NotebookPanel-toolbar [data-jp-item-name="run"]').click()

    def run_all(self) -> None:
        "Choose Run All Cells in the menu, and wait until they have run"
        self.page.get_by_role('menuitem', name='Run', exact=True).click()
        self.page.get_by_role('menuitem', name='Run All Cells', exact=True).click()
        for i in range(self.code.count()): self.ran(self.code.nth(i))

    def ran(self, cell) -> None:
        "Wait until a cell has a number; AssertionError with its text if that is an error"
        from playwright.sync_api import expect
        prompt = cell.locator('.jp-InputArea-prompt')
        expect(prompt).to_have_text(NUMBERED)
        errors = cell.locator('.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.error"], '
                              '.jp-OutputArea-output[data-mime-type="application/vnd.jupyter.stderr"]')
        assert not errors.count(), errors.all_inner_texts()

    def button(self, text: str):
        return self.page.locator('.jupyter-widgets.jupyter-button').filter(has_text=re.compile(rf'^\s*{text}\s*$'))

    @property
    def charts(self): return self.page.locator('.jp-RenderedVegaLite svg')

    @property
    def live(self):
        "Charts of a panel"
        return self.page.locator('.evolora-charts .chart svg.marks')

    def shot(self, path: Path, of=None) -> Path:
        "A picture of the page, or of a part of it"
        path.parent.mkdir(parents=True, exist_ok=True)
        (of or self.page).screenshot(path=path)
        return path


@contextmanager
def browsing(server: Server, *, width: int = 1280, height: int = 900) -> Iterator[Notebook]:
    "A browser with one page, on which nothing was opened yet"
    from playwright.sync_api import expect, sync_playwright
    expect.set_options(timeout=PATIENCE * 1000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=SWITCHES, timeout=PATIENCE * 1000)
        try:
            page = browser.new_page(viewport={'width': width, 'height': height}, reduced_motion='reduce')
            page.set_default_timeout(PATIENCE * 1000)
            notebook = Notebook(page, server)
            notebook.watch()
            yield notebook
        finally: browser.close()
