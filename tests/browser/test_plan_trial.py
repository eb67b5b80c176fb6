"""Try a resubmit: compare, rehearse with a function of the notebook, copy it, and send a few first."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import CONTROL, DETECTOR, Notebook, Run, assert_nothing_ran

HOSTILE = """<img src=data:, onerror=detected('reason')> $x^2$ and $y$"""
CELLS = [
    "%load_ext sbnotebook\n%sb_connect {emulator.connection_string} --into namespace",
    f"""\
from IPython.display import HTML
from sbnotebook import Message, RejectMessage
namespace.create_queue("orders")
queue = namespace.entity("orders")
queue.send([Message(message_id=f"m{{n}}", body=b'{{"order": %d}}' % n, subject="order") for n in range(12)])
with queue.lock(12) as batch:
    batch.dead_letter(reason="PriceMissing", description="no price")
def ship(message):
    if message.message_id.startswith(("m3~", "m5~")):
        raise RejectMessage("CarrierUnknown", {HOSTILE!r})
from sbnotebook.widgets.triage import Triage
triage = Triage(namespace, "orders/$dlq")
triage""",
    f"HTML({CONTROL!r})",
]
LETTERS = "print(len(namespace.entity('orders/$dlq').peek()), len(queue.peek()))"


@pytest.mark.browser
def test_a_resubmit_is_tried_before_all_of_it_is_sent(run: Run) -> None:
    notebook = run(CELLS, DETECTOR)
    page = notebook.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    panel = page.locator(".jp-OutputArea-output .sbn-panel").filter(has_text="Triage of orders/$dlq")
    expect(panel.get_by_text("12 messages, peeked at")).to_be_visible()
    _compared(notebook, panel)
    _rehearsed(notebook, panel)
    _copied(page, panel)
    _sent_first(notebook, panel)
    assert_nothing_ran(notebook)


def _compared(notebook: Notebook, panel: Locator) -> None:
    panel.get_by_role("button", name="Compare").click()
    form = panel.locator(".sbn-form")
    expect(form).to_contain_text("Select two messages, or one dead letter to compare it")
    notebook.kernel("triage.table.select([('orders/$dlq', 1), ('orders/$dlq', 2)])")
    expect(panel.get_by_text("2 messages are selected.")).to_be_visible()
    panel.get_by_role("button", name="Compare").click()
    expect(form).to_contain_text("1 difference besides their places, ids and times.")
    expect(form.get_by_role("row").last).to_contain_text("body_json.order")
    form.get_by_role("button", name="Close").click()
    panel.get_by_role("button", name="Clear selection").click()


def _rehearsed(notebook: Notebook, panel: Locator) -> None:
    panel.get_by_role("button", name="Select 12 shown").click()
    panel.get_by_role("button", name="Resubmit…", exact=True).last.click()
    panel.get_by_role("button", name="Show the plan").click()
    words = panel.locator(".sbn-words").first
    expect(words).to_contain_text("Resubmit 12 messages of orders/$dlq to orders.")
    consumer = panel.get_by_label("Consumer")
    consumer.fill("ship")
    consumer.press("Tab")
    panel.get_by_role("button", name="Rehearse").click()
    expect(words).to_contain_text("10 consumed, 2 dead-lettered again. The namespace is as it was.")
    expect(words.get_by_role("row").filter(has_text="CarrierUnknown").first).to_contain_text("<img src=data:, onerror=")
    assert notebook.kernel(LETTERS) == "12 0"


def _copied(page: Page, panel: Locator) -> None:
    panel.get_by_label("Send a few first").check()
    panel.get_by_label("First", exact=True).fill("3")
    panel.get_by_label("First", exact=True).press("Tab")
    expect(panel.get_by_text("Ramp: 3 first, watched for 10m at most.")).to_be_visible()
    panel.get_by_role("button", name="Copy as cell").click()
    code = "%sb_resubmit orders/$dlq --messages 1-12 --to orders --ramp 3 --watch 10m\n"
    expect(panel.locator(".sbn-code")).to_have_text(code)
    expect(panel.get_by_text("Copied.", exact=True)).to_be_visible()
    assert page.evaluate("() => navigator.clipboard.readText()") == code
    # Where the browser does not let the page copy, the text is selected.
    page.evaluate(
        "() => { navigator.clipboard.writeText = () => Promise.reject(); document.execCommand = () => false }"
    )
    panel.get_by_role("button", name="Copy as Python").click()
    expect(panel.get_by_text("The browser does not let the page copy: the text is selected")).to_be_visible()
    assert ".with_ramp(3, watch='10m')" in page.evaluate("() => getSelection().toString()")


def _sent_first(notebook: Notebook, panel: Locator) -> None:
    panel.get_by_role("button", name="Carry out").click()
    expect(panel.get_by_text("3 of 12, watching these: 3 sent, 0 consumed")).to_be_visible()
    assert notebook.kernel(LETTERS) == "9 3"
    panel.get_by_role("button", name="Cancel").click()
    words = panel.locator(".sbn-words").first
    expect(words).to_contain_text("Resubmit was cancelled")
    expect(words).to_contain_text("The fate of the first messages, as it was seen last")
    assert notebook.kernel(LETTERS) == "9 3"
