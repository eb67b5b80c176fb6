"""Entities and their messages: by mouse, by keyboard, and with hostile messages."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.conftest import CONTROL, DETECTOR, Notebook, Run, assert_nothing_ran

HOSTILE = """<img src="data:," onerror="detected('message')">"""

CELLS = [
    f"""
from sbnotebook import Message
from sbnotebook.widgets.entity_browser import Browser
for name in ("bookings", "orders"):
    namespace.create_queue(name)
namespace.create_topic("flights")
for name in ("audit", "billing"):
    namespace.create_subscription("flights", name)
orders = namespace.entity("orders")
messages = [Message(body=b'{{"n": 1}}', message_id=f"m{{n}}", subject="UA" if n % 4 else "DL") for n in range(300)]
hostile = Message(body={HOSTILE!r}.encode(), subject={HOSTILE!r}, message_id="hostile")
report = orders.send([hostile, *messages])
report = orders.schedule(["x", "y"], delay="2h")
report = namespace.entity("flights").send([Message(subject="departed")] * 3)
""",
    "panel = Browser(namespace)\npanel",
    f"from IPython.display import HTML\nHTML({CONTROL!r})",
]


@pytest.mark.browser
def test_entities_are_browsed_messages_cancelled_and_sent(run: Run, tmp_path: Path) -> None:
    notebook = run(CELLS, DETECTOR)
    panel = notebook.page.locator(".jp-OutputArea-output .sbn-panel").first
    choose_by_keyboard(panel)
    see_a_new_queue(panel, notebook)
    look_into_orders(panel)
    cancel_what_is_scheduled(panel, notebook)
    send(panel, notebook)
    notebook.page.screenshot(path=tmp_path / "browser.png")  # pytest keeps it where a test fails
    assert_nothing_ran(notebook)
    assert notebook.largest <= 1_000_000


def choose_by_keyboard(panel: Locator) -> None:
    tree = panel.get_by_role("tree")
    expect(tree.get_by_role("treeitem")).to_have_count(3)
    panel.get_by_label("Filter entities by name").press("ArrowDown")
    for key in ("End", "ArrowRight"):
        panel.page.keyboard.press(key)
    expect(tree.get_by_role("treeitem", name="audit, subscription, 3 active")).to_be_visible()
    for key in ("ArrowDown", "ArrowDown", "Enter"):
        panel.page.keyboard.press(key)
    expect(panel.get_by_text("flights/subscriptions/billing", exact=True)).to_be_visible()
    expect(panel.get_by_role("row", name="departed")).to_have_count(3)
    panel.get_by_label("Filter entities by name").fill("ord")
    expect(tree.get_by_role("treeitem")).to_have_count(1)


def see_a_new_queue(panel: Locator, notebook: Notebook) -> None:
    """The counts refresh after a while without a click."""
    notebook.kernel("namespace.create_queue('ordered'); panel.tree.next_at = 0.0")
    notebook.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")  # it says that it is in sight
    expect(panel.get_by_role("treeitem", name="ordered, queue")).to_be_visible()


def look_into_orders(panel: Locator) -> None:
    panel.get_by_role("treeitem", name="orders, queue, 301 active").click()
    expect(panel.get_by_text("250 messages. More may follow.")).to_be_visible()
    expect(panel.get_by_role("gridcell", name=HOSTILE).first).to_have_text(HOSTILE)
    panel.get_by_role("button", name="Load more").click()
    expect(panel.get_by_text("303 in all. That is the end.")).to_be_visible()

    where = panel.get_by_label("Where")
    where.fill("subjekt = 'DL'")
    where.press("Enter")
    expect(panel.get_by_text("subjekt", exact=False).last).to_be_visible()
    where.fill("subject = 'DL'")
    where.press("Enter")
    expect(panel.get_by_text("75 messages among 303. That is the end.")).to_be_visible()
    where.fill("")
    where.press("Enter")
    expect(panel.get_by_text("250 messages. More may follow.")).to_be_visible()


def cancel_what_is_scheduled(panel: Locator, notebook: Notebook) -> None:
    panel.get_by_role("button", name="Scheduled").click()
    panel.get_by_role("button", name="Select 2 shown").click()
    expect(panel.get_by_text("2 messages are selected.")).to_be_visible()
    panel.get_by_role("button", name="Cancel…").click()
    panel.get_by_role("button", name="Show the plan").click()
    expect(panel.get_by_text("Cancel 2 messages of orders.")).to_be_visible()
    panel.get_by_role("button", name="Carry out").click()
    expect(panel.get_by_text("Cancelled 2 messages of orders.")).to_be_visible()
    expect(panel.get_by_text("No messages are shown.")).to_be_visible()
    assert notebook.kernel("print(len(orders.scheduled()))") == "0"
    panel.get_by_role("button", name="Done").click()


def send(panel: Locator, notebook: Notebook) -> None:
    panel.get_by_role("button", name="Send a message…").click()
    panel.get_by_label("Body", exact=True).fill('{"flight": 1545}')
    panel.get_by_label("Subject", exact=True).fill("new")
    panel.get_by_label("Properties").fill("attempt = two (long)")
    panel.get_by_role("button", name="Show what will be sent").click()
    expect(panel.get_by_text("The value of 'attempt' is not of the type long.")).to_be_visible()
    panel.get_by_label("Properties").fill("attempt = 2 (long)")
    panel.get_by_role("button", name="Show what will be sent").click()
    expect(panel.get_by_text("Send 1 message to orders.")).to_be_visible()
    panel.get_by_role("button", name="Carry out").click()
    expect(panel.get_by_text("Sent 1 message to orders.")).to_be_visible()
    sent = "(m,) = orders.peek(where=\"subject = 'new'\"); print(m.body, dict(m.application_properties))"
    assert notebook.kernel(sent) == "b'{\"flight\": 1545}' {'attempt': 2}"
