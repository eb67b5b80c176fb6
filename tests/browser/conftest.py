"""Notebooks in headless Chromium: on a light page by default, and in JupyterLab with all its parts.

``run`` runs a notebook's cells in this process, and shows what they display on the page of ``light_page.py``. A
thorough run does the same in JupyterLab. One browser serves all tests of a process, and one JupyterLab, with nothing of
the user's, in pages that reach nothing else. Each notebook has an emulator of its own, which its cells know as
``emulator`` and ``namespace``, and is closed when its test ends.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, Protocol

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Locator, Page, Request, ViewportSize, WebSocket, expect, sync_playwright

from sbnotebook.emulator import stop
from tests.browser.firefox import firefox
from tests.browser.light_page import light_notebook

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
THEME = "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })"
RESTART = """async () => {
    await window.jupyterapp.shell.currentWidget.context.sessionContext.session.kernel.restart();
}"""
SAVE = "async () => { await window.jupyterapp?.commands.execute('docmanager:save') }"
SHUT_DOWN = "async () => { await window.jupyterapp.serviceManager.sessions.shutdownAll() }"
CONNECT = """
from sbnotebook import connect
from sbnotebook.emulator import running
_running = running()
emulator = _running.__enter__()
namespace = connect(emulator.connection_string)
"""
DISCONNECT = "namespace.close(); _running.__exit__(None, None, None)"
CONTROL = """<img src="data:," onerror="detected('control')">"""
DETECTOR = "window.found = []; window.detected = (what) => window.found.push(what)"
CONTRAST: Final = {"runOnly": ["color-contrast"]}
VIEWPORT: Final[ViewportSize] = {"width": 1400, "height": 1600}
NO_NEWS = {"fetchNews": "false"}  # a notification would ask for it

# asyncio offers it to those who make event loops.
_set_running_loop: Final = asyncio._set_running_loop  # noqa: SLF001


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


class Notebook(ABC):
    """A notebook whose cells were run.

    Args:
        page: the page that shows it.
        address: of the server that it comes from.
    """

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self.external: list[str] = []
        """Addresses outside this machine that the page asked for; none was answered."""
        self.errors: list[str] = []
        """Uncaught errors of the page's scripts."""
        self.largest = 0
        """Bytes of the largest message of the kernel to the page."""

        ours = (address, "data:", "blob:")

        def ask(request: Request) -> None:
            if not request.url.startswith(ours):
                self.external.append(request.url)

        page.on("request", ask)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        # Chromium reaches no other machine, and loads everything anew where a page has routes.
        if page.context.browser and page.context.browser.browser_type.name == "firefox":
            page.route(lambda url: not url.startswith(ours), lambda route: route.abort())

    @abstractmethod
    def kernel(self, code: str) -> str:
        """Run code in the notebook's kernel, beside its cells; gives what it prints."""

    @abstractmethod
    def use_theme(self, theme: str) -> None:
        """Show the page ``light`` or ``dark``."""

    @abstractmethod
    def busy(self, folder: Path, before: str = "") -> AbstractContextManager[None]:
        """Keep the kernel busy with a cell until the end of the block, where the notebook has a kernel.

        Args:
            folder: for a file that ends the cell.
            before: code that runs first.
        """

    @abstractmethod
    def end_kernel(self) -> None:
        """End the kernel under the page."""

    @abstractmethod
    def close(self) -> None:
        """Close the page and what runs the notebook's code."""

    def comes_to(self, expression: str, value: object) -> None:
        """An expression comes to have a value in the kernel, which hears of clicks beside its cells."""
        deadline = time.monotonic() + RUN_TIMEOUT / 1000
        while (found := json.loads(self.kernel(f"import json; print(json.dumps({expression}))"))) != value:
            assert time.monotonic() < deadline, found


class LabNotebook(Notebook):
    """A notebook in JupyterLab, with a kernel of its own."""

    def __init__(self, page: Page, lab: Lab) -> None:
        super().__init__(page, lab.url)
        page.on("websocket", self._watch)

    def _watch(self, socket: WebSocket) -> None:
        def receive(message: str | bytes) -> None:
            self.largest = max(self.largest, len(message))

        socket.on("framereceived", receive)

    def kernel(self, code: str) -> str:
        status, text = self.page.evaluate(RUN_CODE, code)
        assert status == "ok", text
        return text.strip()

    def use_theme(self, theme: str) -> None:
        self.page.evaluate(THEME, f"JupyterLab {theme.capitalize()}")

    @contextmanager
    def busy(self, folder: Path, before: str = "") -> Generator[None]:
        end = folder / "end"
        self.page.evaluate(RUN_CELL, before + SLEEP.format(path=str(end)))
        try:
            yield
            assert self.page.evaluate("() => window.isBusy"), "the cell has ended before"
        finally:
            end.touch()

    def end_kernel(self) -> None:
        self.page.evaluate(RESTART)

    def close(self) -> None:
        self.page.evaluate(SHUT_DOWN)
        self.page.close()


class LightNotebook(Notebook):
    """A notebook of this process, on a light page."""

    def __init__(self, page: Page, *, in_shadow: bool = False) -> None:
        self._end = ExitStack()
        self._kernel, self._cells = self._end.enter_context(light_notebook())
        super().__init__(page, self._kernel.address)
        page.goto(f"{self._kernel.address}/{'?shadow' * in_shadow}")
        page.evaluate("() => window.heard()")

    def run(self, cells: Sequence[str]) -> None:
        for cell in cells:
            self._cells.run(cell)

    @property
    def variables(self) -> dict[str, Any]:
        """What the cells have bound."""
        return self._cells.variables

    def kernel(self, code: str) -> str:
        self.page.evaluate("() => window.heard()")  # as in Jupyter, after what the page has sent
        return self._cells.evaluate(code)

    def use_theme(self, theme: str) -> None:
        self.page.emulate_media(color_scheme="dark" if theme == "dark" else "light")

    @contextmanager
    def busy(self, folder: Path, before: str = "") -> Generator[None]:
        del folder
        self.kernel(before)
        yield

    def end_kernel(self) -> None:
        self._kernel.hang_up()
        self.page.wait_for_function("() => window.isCutOff")

    def close(self) -> None:
        self.errors += self._kernel.errors
        self.page.close()
        try:
            self._cells.evaluate(DISCONNECT)
        finally:
            self._end.close()


_open: list[Notebook] = []


@pytest.fixture(scope="session")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    with running_lab(tmp_path_factory.mktemp("lab")) as lab:
        yield lab


class Run(Protocol):
    """Runs the cells of a notebook on a page that runs a script first."""

    def __call__(self, cells: list[str], script: str = "") -> Notebook: ...


@pytest.fixture(params=["light page", pytest.param("JupyterLab", marks=pytest.mark.thorough)])
def run(request: pytest.FixtureRequest, browser: Browser) -> Run:
    """Run a notebook on the light page, and in JupyterLab in a thorough run."""
    if request.param == "JupyterLab":
        return partial(run_notebook, browser, request.getfixturevalue("lab"))
    return request.getfixturevalue("run_here")


@pytest.fixture
def run_here(browser: Browser, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., LightNotebook]:
    """Run a notebook on the light page."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    def run_here(cells: list[str], script: str = "", *, in_shadow: bool = False) -> LightNotebook:
        page = browser.new_page(viewport=VIEWPORT)
        if script:
            page.add_init_script(script)
        notebook = LightNotebook(page, in_shadow=in_shadow)
        _open.append(notebook)
        notebook.run([CONNECT, *cells])
        return notebook

    return run_here


@pytest.fixture(scope="session")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which Chromium keeps JupyterLab's scripts, compiled."""
    return tmp_path_factory.mktemp("profile")


@pytest.fixture(scope="session")
def shared_browser(profile: Path) -> Iterator[tuple[Browser, asyncio.AbstractEventLoop]]:
    is_firefox = os.environ.get("SBNOTEBOOK_BROWSER") == "firefox"
    with firefox() if is_firefox else chromium(profile=profile) as browser:
        loop = asyncio.get_running_loop()
        _set_running_loop(None)
        yield browser, loop
        _set_running_loop(loop)


@pytest.fixture
def browser(shared_browser: tuple[Browser, asyncio.AbstractEventLoop]) -> Iterator[Browser]:
    """The browser of this process, whose notebooks are closed at the end.

    Playwright's event loop counts as running for this test only: others of the process have loops of their own.
    """
    browser, loop = shared_browser
    _set_running_loop(loop)
    yield browser
    while _open:
        _open.pop().close()
    for context in browser.contexts[1:]:
        context.close()
    _set_running_loop(None)


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
    page.set_viewport_size(VIEWPORT)
    notebook = LabNotebook(page, lab)
    _open.append(notebook)
    if script:
        page.add_init_script(script)
    if blocked:
        page.route(lambda url: blocked in url, lambda route: route.abort())
    name = f"t{time.time_ns()}"
    (lab.folder / f"{name}.ipynb").write_text(json.dumps(cells_of(cells)))
    page.goto(f"{lab.url}/lab/workspaces/{name}/tree/{name}.ipynb?reset")
    page.wait_for_function(READY, timeout=RUN_TIMEOUT)
    notebook.kernel(f"import os; os.environ['XDG_DATA_HOME'] = {str(lab.folder.parent / f'data-{name}')!r}\n{CONNECT}")
    page.evaluate(RUN_ALL)
    page.wait_for_function(READY, timeout=patience)
    assert page.evaluate(FAILURES) == [], "a cell failed, and those behind it did not run"
    return notebook


def assert_nothing_ran(notebook: Notebook) -> None:
    """The page has run no text of a message, no script of it failed, and it asked for nothing elsewhere.

    It has run ``DETECTOR`` first, and a cell has shown ``CONTROL``: so the detector works.
    """
    notebook.page.wait_for_function("() => window.found.length > 0")
    assert notebook.page.evaluate("() => window.found") == ["control"]
    assert (notebook.external, notebook.errors) == ([], [])


def faults(page: Page, context: str, options: dict[str, Any]) -> list[str]:
    """The findings of axe-core in a part of the page: a rule, an element that breaks it, and how to repair it."""
    axe: Any = Axe()  # its types are incomplete
    found = axe.run(page, context=context, options=options).response["violations"]
    return [f"{each['id']}: {node['html'][:200]} {node['failureSummary']}" for each in found for node in each["nodes"]]


def write(field: Locator, words: str) -> None:
    """Write words into a field of a form, and end it: Firefox does not take Playwright's `fill` for typing."""
    field.fill(words)
    field.dispatch_event("change")


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
