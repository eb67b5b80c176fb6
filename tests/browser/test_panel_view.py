"""A panel in a front end without views of ipywidgets that puts it into a shadow root, as marimo does.

``make check-marimo`` drives the same panel in marimo itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import LightNotebook

CELLS: Final = [
    """\
from sbnotebook import RejectMessage, Triage
from sbnotebook.widgets.panel import Record
from tests.filled_queues import filled_client_queue
def reject(message):
    raise RejectMessage("Unknown carrier", f"Order {message.message_id} names the carrier 'XY'")
orders = filled_client_queue(namespace, "orders", 5)
orders.process(reject, show_progress=False)
triage = Triage(namespace, "orders/$dlq")
triage.record = Record(triage)
display({"application/vnd.jupyter.widget-view+json": {"model_id": triage.view.model_id}}, raw=True)""",
]


@pytest.mark.browser
def test_triage_in_a_shadow_root_resubmits_a_cause(run_here: Callable[..., LightNotebook]) -> None:
    notebook = run_here(CELLS, in_shadow=True)
    page = notebook.page
    opener = page.get_by_role("button", name="Example", exact=True).first
    opener.press("Enter")
    page.get_by_role("region", name="Message", exact=True).get_by_role("tab").first.press("Escape")
    expect(opener).to_be_focused()
    page.get_by_role("button", name="Select 5", exact=True).click()
    expect(page.get_by_text("5 messages are selected.")).to_be_visible()
    bar = page.locator(".sbn-selection")
    expect(bar.locator("button > svg > path")).to_have_count(int(notebook.kernel("print(len(triage.bar.actions))")))
    bar.get_by_role("button", name="Resubmit…", exact=True).click()
    rate, words = page.get_by_label("Rate per second"), page.locator(".sbn-words").first
    expect(page.locator(".sbn-form input").first).to_be_focused()
    rate.fill("many")
    page.get_by_role("button", name="Show the plan").click()
    expect(page.get_by_text("Write a number above 0")).to_be_visible()
    rate.fill("200")
    # The fault goes with the press. The button must not move away from under the pointer before the release.
    edge = page.get_by_role("button", name="Show the plan").bounding_box()
    assert edge is not None
    page.mouse.move(edge["x"] + edge["width"] / 2, edge["y"] + edge["height"] - 2)
    page.mouse.down()
    notebook.kernel("")
    page.mouse.up()
    expect(page.get_by_text("Write a number above 0")).to_be_hidden()
    expect(words).to_be_focused()
    page.get_by_role("button", name="Carry out").click()
    expect(words).to_contain_text("Resubmitted 5 messages to orders.")
    expect(words).to_be_focused()
    expect(page.get_by_text("Nothing is dead-lettered here")).to_be_visible()
    assert notebook.kernel("print(len(orders.peek(show_progress=False)))") == "5"

    # A page that marimo exports has the last state of all parts, and no kernel.
    record = page.locator(".sbn-record")
    expect(record).to_be_hidden()
    page.add_init_script("window.__MARIMO_STATIC__ = {}")
    page.reload()
    expect(record.get_by_text("Resubmitted 5 messages to orders.")).to_be_visible()
    expect(page.get_by_role("button")).to_have_count(0)
    assert notebook.errors == []
