"""*Cancel* in a triage in JupyterLab while a cell sleeps: how long until the report is drawn.

Emulator, server, kernel and Chromium are processes of their own on the same machine. A resubmit of 20,000 dead letters
is cancelled a second after it began, three times. It is measured in the page, from the click until the report is drawn:
by then nothing more is sent, and the messages that were locked are released.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path
from statistics import median
from typing import Final

from playwright.sync_api import Page, expect

from benchmarks.emulators import emulator
from benchmarks.results import Result, show
from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.model import Message
from sbnotebook.settlement import Connection
from tests.browser.conftest import chromium, run_notebook, running_lab

__all__ = ["measure"]

COUNT: Final = 20_000
GROUP: Final = 5_000
"""Messages to dead-letter at once."""
TIMES: Final = 3
MOST: Final = 0.5
"""Seconds from the click to the report."""
CELL: Final = """
%load_ext sbnotebook
%sb_connect env:SBNOTEBOOK_CONNECTION
%sb_triage orders/$dlq
"""
CANCEL: Final = """async () => {
    const nap = () => new Promise((resolve) => setTimeout(resolve, 5));
    const buttons = document.querySelector('.sbn-actions').getElementsByTagName('button');
    const find = () => [...buttons].find((each) => each.textContent === 'Cancel');
    while (!find()) await nap();
    const isEnded = () => document.querySelector('.sbn-words').textContent.includes('was cancelled');
    const started = performance.now();
    find().click();
    while (!isEnded()) await nap();
    return (performance.now() - started) / 1000;
}"""


def measure() -> list[Result]:
    """Measure the cancels, and give the slowest one the target."""
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home,
        emulator() as (connection_string, _),
        running_lab(Path(home)) as lab,
        chromium() as browser,
    ):
        with Namespace(Target(Connection(connection_string), ""), archive=False) as namespace:
            _fill(namespace)
        set_up = f"import os; os.environ['SBNOTEBOOK_CONNECTION'] = {connection_string!r}"
        notebook = run_notebook(browser, lab, [set_up, CELL])
        with notebook.busy(Path(home)):
            seconds = [_cancelled(notebook.page) for _ in range(TIMES)]
        notebook.close()
    slowest = max(seconds)
    return [
        Result(
            f"Cancel of a resubmit of {COUNT:,} messages in JupyterLab while a cell sleeps, until its report is drawn",
            f"{slowest:.2f} s, the slowest of {TIMES}; {median(seconds):.2f} s in the middle",
            f"at most {MOST} s",
            slowest <= MOST,
        )
    ]


def _fill(namespace: Namespace) -> None:
    namespace.create_queue("orders")
    orders = namespace.entity("orders")
    orders.send((Message(body=b"x" * 900) for _ in range(COUNT)), show_progress=False).raise_for_failures()
    for _ in range(COUNT // GROUP):
        with orders.lock(GROUP) as batch:
            batch.dead_letter(reason="PriceMissing", description="no price").raise_for_failures()


def _cancelled(page: Page) -> float:
    """Resubmit all messages, and return the seconds that a cancel of it takes."""
    panel = page.locator(".jp-OutputArea-output .sbn-panel").filter(has_text="Triage of").first
    panel.get_by_role("button", name=re.compile("^Select .* shown$")).click(timeout=60_000)
    panel.locator(".sbn-selection").get_by_role("button", name="Resubmit…", exact=True).click()
    panel.get_by_role("button", name="Show the plan").click()
    confirm = panel.get_by_role("button", name="Carry out")
    expect(confirm).to_be_enabled(timeout=60_000)
    confirm.press("Enter")
    expect(panel.get_by_role("button", name="Cancel")).to_be_visible()
    page.wait_for_timeout(1_000)
    return page.evaluate(CANCEL)


if __name__ == "__main__":
    show(measure())
