"""JupyterLab in headless Chromium: a server with nothing of the user's, and a page that reaches nothing else."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, Route, sync_playwright

from sbnotebook.emulator import stop

START_TIMEOUT = 60.0
RUN_TIMEOUT = 60_000  # milliseconds
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
READY = """() => {
    const context = window.jupyterapp?.shell.currentWidget?.context;
    return context?.isReady && context.sessionContext.session?.kernel?.status === 'idle';
}"""
RUN_ALL = "async () => { await window.jupyterapp.commands.execute('notebook:run-all-cells') }"
NO_NEWS = {"fetchNews": "false"}  # a notification would ask for it


@dataclass
class Lab:
    """A running JupyterLab.

    Args:
        url: its address.
        folder: where its notebooks are.
    """

    url: str
    folder: Path


@dataclass
class Notebook:
    """A notebook whose cells were run.

    Args:
        page: the page that shows it.
        external: addresses outside this machine that the page asked for; none was answered.
    """

    page: Page
    external: list[str]


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    home = tmp_path_factory.mktemp("lab")
    folder = home / "notebooks"
    settings = home / "settings" / "@jupyterlab" / "apputils-extension"
    for each in (folder, settings):
        each.mkdir(parents=True)
    (settings / "notification.jupyterlab-settings").write_text(json.dumps(NO_NEWS))
    port = _free_port()
    server = subprocess.Popen(_command(port, folder), env=_environment(home), start_new_session=True)
    url = f"http://127.0.0.1:{port}"
    try:
        _wait_until_up(port, server)
        yield Lab(url, folder)
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()
        stop(home / "data" / "sbnotebook" / "emulator")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    executable = next(filter(None, map(shutil.which, BROWSERS)), None)
    assert executable, f"There is no browser to test with: install one of {', '.join(BROWSERS)}."
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox", "--disable-gpu"])
        yield browser
        browser.close()


def run_notebook(browser: Browser, lab: Lab, cells: list[str], script: str) -> Notebook:
    """Write a notebook, open it in a new page that runs a script first, and run all of its cells to the end."""
    page = browser.new_page(viewport={"width": 1400, "height": 1600})
    external: list[str] = []

    def only_this_machine(route: Route) -> None:
        if route.request.url.startswith(lab.url):
            route.continue_()
        else:
            external.append(route.request.url)
            route.abort()

    page.add_init_script(script)
    page.route("**/*", only_this_machine)
    (lab.folder / "test.ipynb").write_text(json.dumps(_notebook(cells)))
    page.goto(f"{lab.url}/lab/workspaces/t{time.time_ns()}/tree/test.ipynb?reset")
    page.wait_for_function(READY, timeout=RUN_TIMEOUT)
    page.evaluate(RUN_ALL)
    page.wait_for_function(READY, timeout=RUN_TIMEOUT)
    return Notebook(page, external)


def _notebook(cells: list[str]) -> dict[str, Any]:
    empty: dict[str, Any] = {"cell_type": "code", "execution_count": None, "metadata": {}, "outputs": []}
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return {
        "cells": [{**empty, "id": f"cell-{number}", "source": cell} for number, cell in enumerate(cells)],
        "metadata": {"kernelspec": kernel},
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _command(port: int, folder: Path) -> list[str]:
    return [
        *(sys.executable, "-m", "jupyterlab", "--no-browser", "--ip=127.0.0.1", f"--port={port}"),
        *("--ServerApp.port_retries=0", "--IdentityProvider.token=", "--ServerApp.password="),
        *(f"--ServerApp.root_dir={folder}", "--ServerApp.allow_root=True"),
        # So that the page can be asked about the kernel.
        "--LabApp.expose_app_in_browser=True",
        "--LabApp.extension_manager=readonly",
    ]


def _environment(home: Path) -> dict[str, str]:
    own = {
        "JUPYTER_CONFIG_DIR": "config",
        "JUPYTER_DATA_DIR": "jupyter",
        "JUPYTER_RUNTIME_DIR": "runtime",
        "JUPYTERLAB_SETTINGS_DIR": "settings",
        "JUPYTERLAB_WORKSPACES_DIR": "workspaces",
        "IPYTHONDIR": "ipython",
        "XDG_DATA_HOME": "data",
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
