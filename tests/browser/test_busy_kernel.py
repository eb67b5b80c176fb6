"""The panels answer while a cell sleeps: selection bar, forms and plans, the monitor, and the browser of entities."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.browser.conftest import Lab, run_notebook

SOON = 10_000  # milliseconds; on an idle machine, 500 are enough
SET_UP = """
from sbnotebook import Message
from sbnotebook.widgets.entity_browser import Browser
from sbnotebook.widgets.monitor import Monitor
from sbnotebook.widgets.triage import Triage

for name in ("orders", "bills"):
    namespace.create_queue(name)
orders = namespace.entity("orders")
_ = orders.send(Message(body=b"{}", message_id=f"m{n}") for n in range(120))
bills = namespace.entity("bills")
_ = bills.send([Message(body=b"{}", subject="bill")] * 3)
with orders.lock(120) as batch, bills.lock(3) as deferred:
    _ = batch.dead_letter(reason="PriceMissing", description="no price"), deferred.defer()
triage, browser = Triage(namespace, "orders/$dlq"), Browser(namespace)
monitor = Monitor(namespace, ["orders"], every=60)
"""


def use(panel: Locator, name: str) -> None:
    # Before the name is the icon, which is a letter of its own.
    # By the keyboard: a click may miss a button that moves because the panel above it is drawn.
    panel.get_by_role("button", name=re.compile(rf"^\W*{re.escape(name)}$")).press("Enter")


def see(panel: Locator, text: str) -> None:
    expect(panel.get_by_text(text).first).to_be_visible()


def carry_out(panel: Locator) -> None:
    """Show a plan, which takes the focus, and carry it out."""
    use(panel, "Show the plan")
    expect(panel.locator(".sbn-words").first).to_be_focused()
    use(panel, "Carry out")


def act(panel: Locator) -> None:
    """Plan a slow resubmit in the triage, pause and cancel it, and look again."""
    use(panel, "First 10")
    see(panel, "10 messages are selected.")
    use(panel, "Select 120")
    see(panel, "120 messages are selected.")
    use(panel.locator(".sbn-selection"), "Resubmit…")
    rate = panel.get_by_label("Rate per second")
    rate.fill("many")
    use(panel, "Show the plan")
    see(panel, "Write a number above 0")
    rate.fill("10")
    carry_out(panel)
    expect(panel.get_by_role("gridcell", name="settled", exact=True).first).to_be_visible()
    use(panel, "Pause")
    see(panel, "Paused. Locks are renewed.")
    use(panel, "Continue")
    use(panel, "Cancel")
    expect(panel.get_by_text("Resubmit was cancelled")).to_be_visible(timeout=SOON)
    use(panel, "Refresh")
    expect(panel.get_by_text("120 messages, peeked at")).to_have_count(0)  # the others move when it is drawn
    see(panel, "messages, peeked at")


def control(panel: Locator) -> None:
    """Stop and start the samples of the monitor, which are taken while it is in sight, and take them oftener."""
    panel.locator(".sbn-chart").first.scroll_into_view_if_needed()
    see(panel, "as of")
    use(panel, "Stop")
    see(panel, "Stopped.")
    use(panel, "Start")
    see(panel, "as of")
    every = panel.get_by_label("every (s)")
    every.fill("0.1")
    every.press("Enter")
    expect(panel.get_by_role("img", name="Per second, at least")).to_be_visible()  # by a second sample


def browse(panel: Locator) -> None:
    """Choose a queue, and complete its deferred messages."""
    panel.get_by_role("treeitem", name="bills").click()
    use(panel, "Deferred")
    # Before, the same three are shown among all messages, and the button to select them is disabled while others come.
    expect(panel.get_by_role("gridcell", name="in the journal")).to_have_count(3)
    use(panel, "Select 3 shown")
    use(panel, "Complete…")
    carry_out(panel)
    see(panel, "Completed 3 messages of bills.")


@pytest.mark.browser
@pytest.mark.thorough
def test_all_controls_answer_while_a_cell_sleeps(browser: Browser, lab: Lab, tmp_path: Path) -> None:
    notebook = run_notebook(browser, lab, [SET_UP, "display(triage, monitor, browser)"])
    panels = notebook.page.locator(".jp-OutputArea-output .sbn-panel")
    triage = panels.filter(has_text="Triage of orders/$dlq").first
    see(triage, "120 messages, peeked at")
    with notebook.busy(tmp_path):
        act(triage)
        control(panels.filter(has_text="every (s)").first)
        browse(panels.filter(has=notebook.page.get_by_role("tree")).first)
    left = int(notebook.kernel("print(len(orders.peek()) + len(namespace.entity('orders/$dlq').peek()))"))
    assert left == 120
    assert (notebook.external, notebook.errors) == ([], [])
