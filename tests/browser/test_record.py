"""The record of a triage: hidden below the living panel, and shown where there is no kernel."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import SAVE, SHUT_DOWN, Lab, LightNotebook, run_notebook

CELLS = [
    "%load_ext sbnotebook\n%sb_connect {emulator.connection_string} --into namespace",
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


@pytest.mark.browser
def test_the_record_is_seen_without_its_panel_only(run_here: Callable[..., LightNotebook], browser: Browser) -> None:
    page = run_here(CELLS).page
    _complete(page)
    record = page.locator("[class^=sbn-record-]").evaluate("(record) => record.outerHTML")
    without_kernel = browser.new_page(java_script_enabled=False)
    without_kernel.set_content(record)
    _shows_what_was_done(without_kernel)


@pytest.mark.browser
@pytest.mark.thorough
def test_a_saved_notebook_shows_the_record_without_a_kernel(browser: Browser, lab: Lab, tmp_path: Path) -> None:
    notebook = run_notebook(browser, lab, CELLS)
    page = notebook.page
    _complete(page)
    page.evaluate(SAVE)
    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--output", str(tmp_path / "record.html")]
    subprocess.run([*command, str(lab.folder / Path(page.url).name)], check=True, capture_output=True)
    with_record = browser.new_page(java_script_enabled=False)
    with_record.route("http*://**", lambda route: route.abort())
    with_record.goto((tmp_path / "record.html").as_uri())
    _shows_what_was_done(with_record)
    with_record.close()

    page.evaluate(SHUT_DOWN)
    page.reload()
    _shows_what_was_done(page)
    page.screenshot(path=tmp_path / "record.png")  # pytest keeps it where a test fails
    assert (notebook.external, notebook.errors) == ([], [])


def _complete(page: Page) -> None:
    """Complete a cause, which the hidden record then has."""
    panel = page.locator(".jp-OutputArea-output .sbn-panel").filter(has_text="Triage of orders/$dlq").first
    for name in ("Select 12", "Complete…", "Show the plan", "Carry out"):
        panel.get_by_role("button", name=name, exact=True).click()
    expect(panel.get_by_text("Completed 12 messages of orders/$dlq.")).to_be_visible()
    record = page.locator("[class^=sbn-record-]")
    expect(record).to_contain_text("Completed 12 messages of orders/$dlq.")
    expect(record).to_be_hidden()


def _shows_what_was_done(page: Page) -> None:
    record = page.locator("[class^=sbn-record-]")
    expect(record.get_by_text("18 messages, peeked at ")).to_be_visible()
    cells = record.locator("tbody td")
    expect(cells.nth(0)).to_have_text("18")
    expect(cells.nth(2)).to_have_text("no price")
    expect(record.get_by_text("Completed 12 messages of orders/$dlq.")).to_be_visible()
    expect(page.locator("body")).not_to_contain_text("Peeking…")
    expect(record).not_to_contain_text("secret")  # a saved notebook has no bodies
