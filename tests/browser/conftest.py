"""JupyterLab in headless Chromium: a server with nothing of the user's, and a page that reaches nothing else.

One server serves all tests of a process; each notebook has a file, a kernel and an emulator's folder of its own, and is
closed with its kernel when its test ends.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from playwright.sync_api import Browser, Locator, Page, Request, WebSocket, expect, sync_playwright

from sbnotebook.emulator import stop
from tests.browser.firefox import firefox

START_TIMEOUT = 60.0
RUN_TIMEOUT = 60_000  # milliseconds
expect.set_options(timeout=RUN_TIMEOUT)
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
READY = """() => {
    const context = window.jupyterapp?.shell.currentWidget?.context;
    return context?.isReady && context.sessionContext.session?.kernel?.status === 'idle';
}"""
FAILURES = """() => [...window.jupyterapp.shell.currentWidget.content.model.cells]
    .flatMap((cell) => cell.toJSON().outputs ?? [])
    .filter((output) => output.output_type === 'error')
    .map((output) => `${output.ename}: ${output.evalue}`)"""
RUN_ALL = "async () => { await window.jupyterapp.commands.execute('notebook:run-all-cells') }"
RUN_CODE = """async (code) => {
    const kernel = window.jupyterapp.shell.currentWidget.context.sessionContext.session.kernel;
    const future = kernel.requestExecute({ code, store_history: false });
    let text = '';
    future.onIOPub = ({ header, content }) => {
        if (header.msg_type === 'stream') text += content.text;
        if (header.msg_type === 'error') text += content.traceback.join('\\n');
    };
    const reply = await future.done;
    return [reply.content.status, text];
}"""
RUN_CELL = """(code) => {
    const kernel = window.jupyterapp.shell.currentWidget.context.sessionContext.session.kernel;
    window.isBusy = true;
    kernel.requestExecute({ code }).done.then(() => { window.isBusy = false; });
}"""
SLEEP = """
import pathlib, time
while not pathlib.Path({path!r}).exists():
    time.sleep(0.05)
"""
SHUT_DOWN = "async () => { await window.jupyterapp.serviceManager.sessions.shutdownAll() }"
NO_NEWS = {"fetchNews": "false"}  # a notification would ask for it


@dataclass
class Lab:
    """A running JupyterLab.

    Args:
        url: its address.
        folder: where its notebooks are.
        static: it serves the files of this folder below ``/static``.
    """

    url: str
    folder: Path
    static: Path


@dataclass
class Notebook:
    """A notebook whose cells were run.

    Args:
        page: the page that shows it.
        external: addresses outside this machine that the page asked for; none was answered.
        errors: uncaught errors of the page's scripts.
        largest: bytes of the largest message that came over a websocket.
    """

    page: Page
    external: list[str] = field(default_factory=list[str])
    errors: list[str] = field(default_factory=list[str])
    largest: int = 0

    def kernel(self, code: str) -> str:
        """Run code in the notebook's kernel, beside its cells; gives what it prints."""
        status, text = self.page.evaluate(RUN_CODE, code)
        assert status == "ok", text
        return text.strip()

    def comes_to(self, expression: str, value: object) -> None:
        """An expression comes to have a value in the kernel, which hears of clicks beside its cells."""
        deadline = time.monotonic() + RUN_TIMEOUT / 1000
        while (found := json.loads(self.kernel(f"import json; print(json.dumps({expression}))"))) != value:
            assert time.monotonic() < deadline, found

    def close(self) -> None:
        """Close the page and shut the kernel down."""
        self.page.evaluate(SHUT_DOWN)
        self.page.close()

    def _watch(self, lab: Lab) -> None:
        def ask(request: Request) -> None:
            if not request.url.startswith((lab.url, "data:", "blob:")):
                self.external.append(request.url)

        def receive(message: str | bytes) -> None:
            self.largest = max(self.largest, len(message))

        def open_socket(socket: WebSocket) -> None:
            socket.on("framereceived", receive)

        self.page.on("request", ask)
        self.page.on("websocket", open_socket)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))


_open: list[Notebook] = []


@pytest.fixture(autouse=True)
def closed_notebooks() -> Iterator[None]:
    """Close what the test opened, while its browser is still there."""
    yield
    while _open:
        _open.pop().close()


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with running_lab(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


@pytest.fixture(scope="session")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which Chromium keeps JupyterLab's scripts, compiled."""
    return tmp_path_factory.mktemp("profile")


# Not for the session: while it is open, no other test of the process could run an event loop.
@pytest.fixture(scope="module")
def browser(profile: Path) -> Iterator[Browser]:
    is_firefox = os.environ.get("SBNOTEBOOK_BROWSER") == "firefox"
    with firefox() if is_firefox else chromium(profile=profile) as browser:
        yield browser


@contextmanager
def running_lab(home: Path) -> Generator[Lab]:
    """A JupyterLab that has its settings and notebooks in a folder."""
    folder = home / "notebooks"
    settings = home / "settings" / "@jupyterlab" / "apputils-extension"
    static = home / "static"
    for each in (folder, settings, static):
        each.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(NO_NEWS))
    port = _free_port()
    url = f"http://127.0.0.1:{port}"
    # Kernels have their sockets there, whose paths may have 107 bytes at most.
    with TemporaryDirectory(prefix="lab-") as runtime:
        environment = _environment(home) | {"JUPYTER_RUNTIME_DIR": runtime}
        server = subprocess.Popen(_command(port, folder, static), env=environment, start_new_session=True)
        try:
            _wait_until_up(port, server)
            yield Lab(url, folder, static)
        finally:
            os.killpg(server.pid, signal.SIGTERM)
            server.wait()
            for data in home.glob("data-*"):
                stop(data / "sbnotebook" / "emulator")


@contextmanager
def chromium(*arguments: str, profile: Path | None = None) -> Generator[Browser]:
    """A browser without a window, which reaches this machine only.

    Args:
        arguments: of its command line.
        profile: its first context keeps what pages load in this folder.
    """
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert executable, f"There is no browser to test with: install one of {', '.join(BROWSERS)}."
    options = ["--no-sandbox", "--disable-gpu", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", *arguments]
    with sync_playwright() as playwright:
        if profile is None:
            browser = playwright.chromium.launch(executable_path=executable, args=options)
        else:
            context = playwright.chromium.launch_persistent_context(profile, executable_path=executable, args=options)
            browser = context.browser
            assert browser
        yield browser
        browser.close()


def run_notebook(
    browser: Browser,
    lab: Lab,
    cells: list[str],
    script: str = "",
    *,
    blocked: str | None = None,
    patience: int = RUN_TIMEOUT,
) -> Notebook:
    """Write a notebook, open it in a new page that runs a script first, and run all of its cells to the end.

    Args:
        browser: where to open it.
        lab: the server.
        cells: their code.
        script: runs in the page before all others.
        blocked: addresses with this part are not loaded, as behind a firewall.
        patience: milliseconds that the cells may take.
    """
    page = (browser.contexts or [browser])[0].new_page()
    page.set_viewport_size({"width": 1400, "height": 1600})
    notebook = Notebook(page)
    _open.append(notebook)
    notebook._watch(lab)  # pyright: ignore[reportPrivateUsage]  # noqa: SLF001
    if script:
        page.add_init_script(script)
    # Chromium reaches no other machine, and loads everything anew where a page has routes.
    if browser.browser_type.name == "firefox":
        page.route(lambda url: not url.startswith(lab.url), lambda route: route.abort())
    if blocked:
        page.route(lambda url: blocked in url, lambda route: route.abort())
    name = f"t{time.time_ns()}"
    (lab.folder / f"{name}.ipynb").write_text(json.dumps(cells_of(cells)))
    page.goto(f"{lab.url}/lab/workspaces/{name}/tree/{name}.ipynb?reset")
    page.wait_for_function(READY, timeout=RUN_TIMEOUT)
    notebook.kernel(f"import os; os.environ['XDG_DATA_HOME'] = {str(lab.folder.parent / f'data-{name}')!r}")
    page.evaluate(RUN_ALL)
    page.wait_for_function(READY, timeout=patience)
    assert page.evaluate(FAILURES) == [], "a cell failed, and those behind it did not run"
    return notebook


def write(field: Locator, words: str) -> None:
    """Write words into a field of a form, and end it: Firefox does not take Playwright's `fill` for typing."""
    field.fill(words)
    field.dispatch_event("change")


@contextmanager
def sleeping_cell(notebook: Notebook, folder: Path, before: str = "") -> Generator[None]:
    """Run a cell that sleeps until the end of the block, and check that it does.

    Args:
        notebook: in whose kernel.
        folder: for a file that ends it.
        before: code that the cell runs first.
    """
    end = folder / "end"
    notebook.page.evaluate(RUN_CELL, before + SLEEP.format(path=str(end)))
    try:
        yield
        assert notebook.page.evaluate("() => window.isBusy"), "the cell has ended before"
    finally:
        end.touch()


def cells_of(cells: list[str]) -> dict[str, Any]:
    empty: dict[str, Any] = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {
        "cells": [{**empty, "id": f"cell-{number}", "source": cell} for number, cell in enumerate(cells)],
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _command(port: int, folder: Path, static: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}"),
        *("--ServerApp.port_retries=0", "--IdentityProvider.token=", "--ServerApp.password="),
        *(f"--ServerApp.root_dir={folder}", f"--ServerApp.extra_static_paths={static}", "--ServerApp.allow_root=True"),
        # So that the page can be asked about the kernel.
        "--LabApp.expose_app_in_browser=True",
        "--LabApp.extension_manager=readonly",
        # A port that is free when Jupyter chooses it may be taken when the kernel binds it.
        "--KernelManager.transport=ipc",
    ]


def _environment(home: Path) -> dict[str, str]:
    own = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "jupyter",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
    }
    return os.environ | {"JUPYTER_PREFER_ENV_PATH": "1"} | {name: str(home / path) for name, path in own.items()}


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def _wait_until_up(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with socket.create_connection(("127.0.0.1", port), timeout=1):
                return
        except OSError:
            time.sleep(0.1)
    pytest.fail("JupyterLab did not start; its log is above.")
