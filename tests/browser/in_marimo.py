"""The panels in marimo: ``make check-marimo`` installs it and runs this."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from textwrap import indent
from typing import Final

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.browser.conftest import RUN_TIMEOUT, START_TIMEOUT, chromium

APP: Final = Path(__file__).resolve().parents[2] / "notebooks" / "triage_in_marimo.py"
MARIMO: Final = (sys.executable, "-m", "marimo")
EVERYTHING: Final = re.compile("")


SET_UP = """
from contextlib import ExitStack
import marimo as mo
import sbnotebook as sb
from sbnotebook.emulator import running
from sbnotebook.widgets.action_panel import ActionPanel
cleanup = ExitStack()
emulator = cleanup.enter_context(running(queues=["orders", "bills", "held"]))
ns = sb.connect(emulator.connection_string)
orders, bills, held = (ns.entity(name) for name in ("orders", "bills", "held"))
for _queue in (orders, bills, held):
    _queue.send(sb.Message(body=f'{{"number": {number}}}', subject="order") for number in range(20))
with bills.lock(3) as _batch, orders.lock(5) as _dead:
    _batch.defer(), _dead.dead_letter(reason="PriceMissing", description="no price")
ready = True
"""
PURGE = """
assert ready
actions = ActionPanel(ns)
actions.propose(lambda: orders.purge(show_progress=False))
actions
"""
PANELS = [
    SET_UP,
    "assert ready\nbills.peek(5)",
    "assert ready\nsb.Monitor(ns, ['orders', 'bills'], every=0.5)",
    "assert ready\nsb.Browser(ns)",
    "assert ready\nsb.LockBoard(ns, held.lock(5))",
    PURGE,
]
RECORDED = [SET_UP, "triage = sb.Triage(ns, 'orders/$dlq')\nassert triage.wait()\ntriage"]
ASSETS: Final = re.compile(r"https://[^\s\"'()]+/@marimo-team/frontend@[^/]+/dist")
STATIC: Final = Path(getattr(find_spec("marimo"), "origin", None) or ".").parent / "_static"
SAVED: Final = "http://saved.test"


def app_of(folder: Path, cells: list[str]) -> Path:
    """Write an app of marimo."""
    functions = (f"@app.cell\ndef _():\n{indent(code, '    ')}\n    return\n" for code in cells)
    app = folder / "app.py"
    app.write_text("\n".join(["import marimo", 'app = marimo.App(width="full")', *functions]))
    return app


def settings_of(folder: Path, theme: str = "light") -> dict[str, str]:
    """Return the environment of a marimo that has nothing of the user's."""
    settings = folder / ".config" / "marimo" / "marimo.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'[display]\ntheme = "{theme}"\n')
    own = {"HOME": str(folder), "XDG_CONFIG_HOME": str(settings.parents[1]), "XDG_DATA_HOME": str(folder / "data")}
    return os.environ | own


@contextmanager
def served(app: Path, folder: Path, theme: str = "light") -> Generator[str]:
    """Run an app, and give its address."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [*MARIMO, "run", str(app), "--headless", "--no-token", "--port", str(port)]
    server = subprocess.Popen(command, env=settings_of(folder, theme))
    try:
        deadline = time.monotonic() + START_TIMEOUT
        while server.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


@contextmanager
def opened(height: int = 1400) -> Generator[Page]:
    """A page, whose scripts must not fail."""
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": height})
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        yield page
        assert errors == []


def use(panel: Locator, name: str) -> None:
    panel.get_by_role("button", name=name, exact=True).click()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_triage_finds_edits_and_resubmits_a_cause(tmp_path: Path, theme: str) -> None:
    with served(APP, tmp_path, theme) as address, opened() as page:
        page.goto(address)
        panel = page.locator(".sbn-panel").first
        expect(panel).to_contain_text("150 messages, peeked at", timeout=RUN_TIMEOUT)
        use(panel, "Select 100")
        expect(panel).to_contain_text("100 messages are selected.")

        use(panel.locator(".sbn-selection"), "Edit and resubmit…")
        expect(panel.locator(".sbn-form").locator("button, input, select").first).to_be_focused()
        page.get_by_label("Name", exact=True).fill("carrier")
        page.get_by_label("Value", exact=True).fill("UA")
        use(panel, "Try it")
        expect(panel).to_contain_text("carrier")
        use(panel, "Show the plan")
        expect(panel.get_by_role("button", name="Carry out")).to_be_enabled(timeout=RUN_TIMEOUT)
        words = panel.locator(".sbn-words").first
        expect(words).to_be_focused()
        page.screenshot(path=tmp_path / "plan.png", full_page=True)
        use(panel, "Carry out")
        expect(panel).to_contain_text("Resubmitted 100 messages to orders.", timeout=RUN_TIMEOUT)
        expect(words).to_be_focused()
        expect(panel).to_contain_text("50 messages, peeked at")
        page.screenshot(path=tmp_path / "report.png", full_page=True)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_other_panels_act_in_marimo(tmp_path: Path, theme: str) -> None:
    with served(app_of(tmp_path, PANELS), tmp_path, theme) as address, opened(3600) as page:
        page.goto(address)
        expect(page.get_by_text("bills: 5 messages").first).to_be_visible(timeout=RUN_TIMEOUT)
        views = page.locator(".sbn-panel")
        expect(views).to_have_count(4, timeout=RUN_TIMEOUT)
        monitor, entities, locks, actions = (views.nth(place) for place in range(4))
        _watch(monitor)
        _complete_deferred(entities)
        _complete_held(locks)
        _purge_and_undo(actions)
        page.screenshot(path=tmp_path / "panels.png", full_page=True)


def _watch(monitor: Locator) -> None:
    expect(monitor.get_by_role("img", name="Per second, at least").first).to_be_visible()
    use(monitor, "Stop")
    expect(monitor).to_contain_text("Stopped.")
    use(monitor, "Start")
    expect(monitor).to_contain_text("as of")


def _complete_deferred(entities: Locator) -> None:
    entities.get_by_role("treeitem", name="bills").click()
    use(entities, "Deferred")
    use(entities, "Select 3 shown")
    use(entities, "Complete…")
    use(entities, "Show the plan")
    use(entities, "Carry out")
    expect(entities).to_contain_text("Completed 3 messages of bills.")
    use(entities, "All dead letters")
    expect(entities).to_contain_text("PriceMissing")


def _complete_held(locks: Locator) -> None:
    expect(locks).to_contain_text("5 messages are held.")
    use(locks, "Select 5 shown")
    use(locks, "Complete…")
    use(locks, "Show the plan")
    use(locks, "Carry out")
    expect(locks).to_contain_text("Completed 5 messages of held.")


def _purge_and_undo(actions: Locator) -> None:
    use(actions, "Carry out")
    expect(actions).to_contain_text("Purged 15 messages of orders.")
    use(actions, "Undo")
    use(actions, "Carry out")
    expect(actions).to_contain_text("Undo is done")


def test_an_exported_page_shows_the_record(tmp_path: Path) -> None:
    file = tmp_path / "record.html"
    command = [*MARIMO, "export", "html", str(app_of(tmp_path, RECORDED)), "-o", str(file)]
    subprocess.run(command, env=settings_of(tmp_path), check=True, timeout=START_TIMEOUT)
    html = ASSETS.sub(SAVED, file.read_text())

    def serve(route: Route) -> None:
        path = route.request.url.removeprefix(f"{SAVED}/").partition("?")[0]
        asset = STATIC / path
        if not path:
            route.fulfill(body=html, content_type="text/html")
        elif route.request.url.startswith(SAVED) and asset.is_file():
            route.fulfill(path=asset)
        else:
            route.abort()

    with opened() as page:
        page.route(EVERYTHING, serve)
        page.goto(f"{SAVED}/")
        record = page.locator(".sbn-panel.sbn-record")
        expect(record).to_contain_text("5 messages, peeked at", timeout=RUN_TIMEOUT)
        expect(record.get_by_role("cell", name="PriceMissing")).to_be_visible()
        expect(record.get_by_role("button")).to_have_count(0)
        page.screenshot(path=tmp_path / "record.png", full_page=True)
