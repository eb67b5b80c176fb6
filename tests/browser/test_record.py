"""The record of a triage in JupyterLab: hidden below the living panel, and shown where there is no kernel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Lab, run_notebook

CELLS = [
    "%load_ext sbnotebook\n%sb_connect emulator --into namespace",
    """\
namespace.create_queue("orders")
queue = namespace.entity("orders")
queue.send('{"secret": "body"}' for _ in range(30))
with queue.lock(30) as batch:
    held = list(batch.messages)
    batch.dead_letter(held[:18], reason="PriceMissing", description="no price")
    batch.dead_letter(held[18:], reason="CarrierUnknown", description="the carrier is <b>unknown</b>")""",
    "%sb_triage orders/$dlq",
]
SAVE = "async () => { await window.jupyterapp.commands.execute('docmanager:save') }"
END_KERNEL = "async () => { await window.jupyterapp.serviceManager.sessions.shutdownAll() }"


@pytest.mark.browser
def test_a_saved_notebook_shows_the_record_without_a_kernel(browser: Browser, lab: Lab, tmp_path: Path) -> None:
    notebook = run_notebook(browser, lab, CELLS)
    page = notebook.page
    panel = page.locator(".jp-OutputArea-output .sbn-panel").filter(has_text="Triage of orders/$dlq").first
    panel.get_by_role("button", name="Select 12", exact=True).click()
    panel.get_by_role("button", name="Complete…").click()
    panel.get_by_role("button", name="Show the plan").click()
    panel.get_by_role("button", name="Carry out").click()
    expect(panel.get_by_text("12 of 12 messages of orders/$dlq settled.")).to_be_visible()
    record = page.locator("[class^=sbn-record-]")
    expect(record).to_contain_text("12 of 12 messages of orders/$dlq settled.")
    expect(record).to_be_hidden()
    page.evaluate(SAVE)

    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--output", str(tmp_path / "record.html")]
    subprocess.run([*command, str(lab.folder / Path(page.url).name)], check=True, capture_output=True)
    with_record = browser.new_page(java_script_enabled=False)
    with_record.route("http*://**", lambda route: route.abort())
    with_record.goto((tmp_path / "record.html").as_uri())
    _shows_what_was_done(with_record)
    with_record.close()

    page.evaluate(END_KERNEL)
    page.reload()
    _shows_what_was_done(page)
    page.screenshot(path=tmp_path / "record.png")  # pytest keeps it where a test fails
    assert (notebook.external, notebook.errors) == ([], [])


def _shows_what_was_done(page: Page) -> None:
    record = page.locator("[class^=sbn-record-]")
    expect(record.get_by_text("18 messages, peeked at ")).to_be_visible()
    cells = record.locator("tbody td")
    expect(cells.nth(0)).to_have_text("18")
    expect(cells.nth(2)).to_have_text("no price")
    expect(record.get_by_text("12 of 12 messages of orders/$dlq settled.")).to_be_visible()
    expect(page.locator("body")).not_to_contain_text("Peeking…")
