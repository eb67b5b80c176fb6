"""Panels in a window of 1024 pixels: hints in empty fields, records and stack traces are not cut off."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Run

CELLS: Final = [
    "%load_ext sbnotebook\n%sb_connect {emulator.connection_string} --into namespace",
    '''\
from sbnotebook import Message
TRACE = """System.InvalidOperationException: Order 0 has no price for article "A-7"
   at System.Linq.ThrowHelper.ThrowNoMatchException()
   at Acme.Orders.Pricing.PriceList.FindAsync(Article article) in /src/Pricing/PriceList.cs:line 61
   at Acme.Orders.OrderHandler.HandleAsync(Order order) in /src/OrderHandler.cs:line 118
   at Azure.Messaging.ServiceBus.ReceiverManager.OnMessage(EventArgs args)"""
namespace.create_queue("orders")
queue = namespace.entity("orders")
queue.send(Message(body=b'{"order": %d}' % n, subject="order") for n in range(12))
with queue.lock(12) as batch:
    batch.dead_letter(reason="PriceMissing", description=TRACE)
queue.send("one")''',
    "%sb_triage orders/$dlq",
    "%sb_browse orders",
    "%sb_peek orders/$dlq",
]
PANELS: Final = ".jp-OutputArea-output .sbn-panel"
# Words in an empty field do not count for its size, so they become its text for a moment.
CUT_OFF: Final = """() => [...document.querySelectorAll('.sbn-panel :is(input, textarea)[placeholder]')]
    .filter((field) => field.checkVisibility() && !field.value && field.placeholder)
    .filter((field) => {
        field.value = field.placeholder;
        const isCut = field.scrollWidth > field.clientWidth || field.scrollHeight > field.clientHeight;
        field.value = '';
        return isCut;
    })
    .map((field) => field.placeholder)"""
# A name such as InvalidOperationException may be broken between its words.
BROKEN: Final = """(places) => places.flatMap((place) => {
    const found = [];
    const texts = document.createTreeWalker(place, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const text = texts.currentNode;
        for (const word of text.data.matchAll(/[A-Z]?[a-z]+|[A-Z]+/g)) {
            const range = document.createRange();
            range.setStart(text, word.index);
            range.setEnd(text, word.index + word[0].length);
            if (new Set([...range.getClientRects()].map(({ top }) => top)).size > 1) found.push(word[0]);
        }
    }
    return found;
})"""
# A wider table is scrolled within the area of the output.
IS_WITHIN_OUTPUT: Final = """(head) => {
    const area = head.closest(".jp-OutputArea-output").getBoundingClientRect();
    return head.getBoundingClientRect().right <= Math.min(area.right, window.innerWidth);
}"""
SHOW_RECORD: Final = (
    "() => document.querySelectorAll('.sbn-alive').forEach((part) => part.classList.remove('sbn-alive'))"
)


@pytest.mark.browser
def test_words_fit_at_1024_pixels(run: Run, tmp_path: Path) -> None:
    notebook = run(CELLS)
    page = notebook.page
    page.set_viewport_size({"width": 1280, "height": 900})
    peeked = page.locator(".jp-OutputArea-output table").filter(has_text="orders/$dlq: 12 messages")
    for column in ("dead_letter_reason", "dead_letter_error_description", "body_text"):
        assert peeked.locator("th").get_by_text(column, exact=True).evaluate(IS_WITHIN_OUTPUT), column
    page.set_viewport_size({"width": 1024, "height": 768})
    triage = page.locator(PANELS).filter(has_text="Triage of orders/$dlq").first
    expect(triage.get_by_text("12 messages, peeked at")).to_be_visible()
    found = _cut_in_forms(page, triage)
    triage.get_by_role("button", name="Example").click()
    trace = triage.locator(".sbn-detail-trace")
    expect(trace).to_contain_text("OnMessage")
    page.screenshot(path=tmp_path / "detail.png")
    assert trace.evaluate_all(BROKEN) == []
    found |= _cut_in_send_form(page, page.locator(PANELS).filter(has=page.get_by_role("tree")))
    assert found == set()

    page.evaluate(SHOW_RECORD)
    record = page.locator("[class^=sbn-record-]")
    expect(record.get_by_text("Acme.Orders.Pricing.PriceList.FindAsync")).to_be_visible()
    record.screenshot(path=tmp_path / "record.png")
    assert record.locator("td").evaluate_all(BROKEN) == []
    assert (notebook.external, notebook.errors) == ([], [])


def _cut_in_forms(page: Page, panel: Locator) -> set[str]:
    """The words too long for their fields in the forms of all actions, and with all kinds of changes."""
    panel.get_by_role("button", name="Select 12", exact=True).click()
    bar = panel.locator(".sbn-sticky")
    form = panel.locator(".sbn-form")
    found: set[str] = set()
    for button in bar.get_by_role("button").filter(has_text="…").all():
        button.click()
        expect(form).to_be_visible()
        kind = form.get_by_label("Change", exact=True)
        for option in kind.locator("option").all_text_contents() if kind.count() else ():
            kind.select_option(option)
            found.update(page.evaluate(CUT_OFF))
        found.update(page.evaluate(CUT_OFF))
        form.get_by_role("button", name="Close").click()
        expect(form).to_be_hidden()
    return found


def _cut_in_send_form(page: Page, panel: Locator) -> set[str]:
    """The words too long for their fields beside the messages of a queue, and in the form to send one."""
    found: set[str] = set()
    panel.get_by_role("button", name="Send a message…").click()
    expect(panel.get_by_label("Properties")).to_be_visible()
    found.update(page.evaluate(CUT_OFF))
    return found
