"""The triage in marimo: ``make check-marimo`` installs it and runs this."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import RUN_TIMEOUT, START_TIMEOUT, chromium

APP = Path(__file__).resolve().parents[2] / "notebooks" / "triage_in_marimo.py"


@pytest.fixture(params=["light", "dark"])
def address(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    settings = tmp_path / ".config" / "marimo" / "marimo.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text(f'[display]\ntheme = "{request.param}"\n')
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "marimo", "run", str(APP), "--headless", "--no-token", "--port", str(port)]
    own = {"HOME": str(tmp_path), "XDG_CONFIG_HOME": str(settings.parents[1]), "XDG_DATA_HOME": str(tmp_path / "data")}
    server = subprocess.Popen(command, env=os.environ | own)
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


def use(page: Page, name: str, *, inside: str = ".sbn-panel-view") -> None:
    page.locator(inside).get_by_role("button", name=name, exact=True).click()


def test_triage_finds_edits_and_resubmits_a_cause(address: str, tmp_path: Path) -> None:
    with chromium() as browser:
        page = browser.new_page(viewport={"width": 1400, "height": 1400})
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.goto(address)
        panel = page.locator(".sbn-panel-view").first
        expect(panel).to_contain_text("150 messages, peeked at", timeout=RUN_TIMEOUT)
        use(page, "Select 100")
        expect(panel).to_contain_text("100 messages are selected.")

        use(page, "Edit and resubmit…", inside=".sbn-selection")
        page.get_by_label("Name", exact=True).fill("carrier")
        page.get_by_label("Value", exact=True).fill("UA")
        use(page, "Try it")
        expect(panel).to_contain_text("carrier")
        use(page, "Show the plan")
        expect(panel.get_by_role("button", name="Carry out")).to_be_enabled(timeout=RUN_TIMEOUT)
        page.screenshot(path=tmp_path / "plan.png", full_page=True)
        use(page, "Carry out")
        expect(panel).to_contain_text("100 of 100 messages of orders/$dlq settled.", timeout=RUN_TIMEOUT)
        expect(panel).to_contain_text("50 messages, peeked at")
        assert errors == []
