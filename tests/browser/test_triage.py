"""A whole triage as a person does it: from a cause to the reconciliation, by mouse and by keyboard."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import Notebook, Run, write

MOST_TABS = 150
CELLS = [
    "%load_ext sbnotebook\n%sb_connect {emulator.connection_string} --into namespace",
    """\
from sbnotebook import Message
def dead_letters(name):
    namespace.create_queue(name)
    queue = namespace.entity(name)
    queue.send(Message(message_id=f"{name}-{n}", body=b'{"order": %d}' % n, subject="order") for n in range(30))
    with queue.lock(30) as batch:
        held = list(batch.messages)
        batch.dead_letter(held[:18], reason="PriceMissing", description="no price")
        batch.dead_letter(held[18:], reason="CarrierUnknown", description="the carrier is unknown")
for name in ("orders", "bills"):
    dead_letters(name)
namespace.create_queue("repaired")
def bodies(name):
    return sorted(message.body_text for message in namespace.entity(name).peek(show_progress=False))""",
    """\
from sbnotebook.widgets.triage import Triage
orders, bills = Triage(namespace, "orders/$dlq"), Triage(namespace, "bills/$dlq")
display(orders, bills)""",
]
ALL = """sorted(f'{{"order": {n}}}' for n in range(30))"""
RECONCILED = f"""\
sent = namespace.entity("repaired").peek(show_progress=False)
print(sorted(bodies("orders/$dlq") + bodies("repaired")) == {ALL})
print(len(sent), {{message.application_properties["carrier"] for message in sent}})"""
FOCUSED = """() => {
    const element = document.activeElement;
    return element.getAttribute('aria-label') || element.placeholder || element.textContent.trim();
}"""


@pytest.mark.browser
def test_a_triage_by_mouse_and_another_by_keyboard(run: Run) -> None:
    notebook = run(CELLS)
    panels = notebook.page.locator(".jp-OutputArea-output .sbn-panel")
    orders = panels.filter(has_text="Triage of orders/$dlq")
    bills = panels.filter(has_text="Triage of bills/$dlq")
    for panel in (orders, bills):
        expect(panel.get_by_text("30 messages, peeked at")).to_be_visible()
    _the_first_ten(orders)
    _what_is_hidden_is_told(orders)
    _by_mouse(notebook, orders)
    _a_note(notebook, orders)
    _by_keyboard(notebook, bills)
    assert (notebook.external, notebook.errors) == ([], [])
    assert notebook.largest < 1_000_000


def _the_first_ten(panel: Locator) -> None:
    """Select the first messages of a cause beside a selection of all, and open the form on the cause itself."""
    panel.get_by_role("button", name="Select 30 shown").click()
    cause = panel.get_by_role("listitem").filter(has_text="no price")
    cause.get_by_role("button", name="First 10").click()
    expect(panel.get_by_text("10 messages are selected.")).to_be_visible()
    cause.get_by_role("button", name="Resubmit…").click()
    expect(panel.locator(".sbn-form").locator("input, select").first).to_be_focused()
    panel.get_by_role("button", name="Show the plan").click()
    expect(panel.get_by_text("Resubmit 10 messages of orders/$dlq to orders.")).to_be_visible()
    panel.get_by_role("button", name="Not now").click()
    # None of the other cause is selected: its form is for all of them.
    other = panel.get_by_role("listitem").filter(has_text="the carrier is unknown")
    other.get_by_role("button", name="Resubmit…").click()
    expect(panel.get_by_text("12 messages are selected.")).to_be_visible()
    expect(panel.locator(".sbn-form").locator("input, select").first).to_be_focused()  # in the form that came last
    panel.get_by_role("button", name="Close", exact=True).click()
    expect(panel.locator(".sbn-form")).to_have_count(0)
    panel.get_by_role("button", name="Clear selection").click()


def _what_is_hidden_is_told(panel: Locator) -> None:
    panel.get_by_role("button", name="Select 12", exact=True).click()
    expect(panel.get_by_text("12 messages are selected.")).to_be_visible()
    search = panel.get_by_placeholder("Search all columns")
    search.fill("orders-29")
    expect(panel.get_by_text("12 messages are selected, 11 hidden by a filter.")).to_be_visible()
    panel.get_by_role("button", name="Complete…").click()
    expect(panel.get_by_text("they are removed from here, and nothing is sent.")).to_be_visible()
    panel.get_by_role("button", name="Show the plan").click()
    expect(panel.get_by_text("11 of them are hidden by the filter")).to_be_visible()
    panel.get_by_role("button", name="Not now").click()
    search.fill("")
    expect(panel.get_by_text("12 messages are selected.")).to_be_visible()


def _by_mouse(notebook: Notebook, panel: Locator) -> None:
    """Repair the messages of a cause, send them to another queue, and complete one of the others."""
    panel.get_by_role("button", name="Edit and resubmit…").click()
    write(panel.get_by_placeholder("name of the property"), "carrier")
    write(panel.get_by_placeholder("value; it keeps the type that it has"), "UA")
    panel.get_by_role("button", name="Try it").click()
    expect(panel.get_by_text("Message 1 of 12, number 19")).to_be_visible()
    write(panel.get_by_label("To", exact=True), "repaired")
    panel.get_by_role("button", name="Show the plan").click()
    expect(panel.get_by_text("Resubmit 12 messages of orders/$dlq to repaired, edited.")).to_be_visible()
    assert notebook.kernel("print(len(bodies('orders/$dlq')), len(bodies('repaired')))") == "30 0"
    panel.get_by_role("button", name="Carry out").click()
    expect(panel.get_by_text("Resubmitted 12 messages to repaired.")).to_be_visible()
    expect(panel.get_by_text("18 messages, peeked at")).to_be_visible()
    panel.get_by_role("button", name="Done").click()
    expect(panel.get_by_text("Nothing is planned.")).to_be_visible()  # the panel is shorter now, so the page may move
    assert notebook.kernel(RECONCILED) == "True\n12 {'UA'}"


def _a_note(notebook: Notebook, panel: Locator) -> None:
    panel.get_by_role("button", name="Note").click()
    expect(panel.get_by_label("Note on")).to_be_focused()
    notebook.page.keyboard.type("see INC-4711")
    notebook.page.keyboard.press("Enter")
    expect(panel.get_by_text("see INC-4711")).to_be_visible()
    notebook.comes_to("list(namespace.notes().values())", ["see INC-4711"])


def _by_keyboard(notebook: Notebook, panel: Locator) -> None:
    """Complete the messages of a cause, and send them back."""
    page = notebook.page
    _tab_to(page, "Select 12")
    page.keyboard.press("Enter")
    expect(panel.get_by_text("12 messages are selected.")).to_be_visible()
    _tab_to(page, "Complete…")
    page.keyboard.press("Enter")
    expect(panel.get_by_text("they are removed from here, and nothing is sent.")).to_be_visible()
    _tab_to(page, "Show the plan")
    page.keyboard.press("Space")
    expect(panel.get_by_text("Complete 12 messages of bills/$dlq.")).to_be_visible()
    assert notebook.kernel("print(len(bodies('bills/$dlq')))") == "30"
    _tab_to(page, "Carry out")
    page.keyboard.press("Enter")
    expect(panel.get_by_text("Completed 12 messages of bills/$dlq.")).to_be_visible()
    assert notebook.kernel("print(len(bodies('bills/$dlq')), len(bodies('bills')))") == "18 0"
    _tab_to(page, "Undo")
    page.keyboard.press("Enter")
    expect(panel.get_by_text("Send back 12 messages")).to_be_visible()  # the focus goes to the plan when it comes
    _tab_to(page, "Carry out")
    page.keyboard.press("Enter")
    expect(panel.get_by_text("Undo is done")).to_be_visible()
    both = "sorted(bodies('bills/$dlq') + bodies('bills'))"
    assert notebook.kernel(f"print({both} == {ALL})") == "True"
    assert notebook.kernel("print(len(bodies('bills/$dlq')), len(bodies('bills')))") == "18 12"


def _tab_to(page: Page, name: str) -> None:
    """Press Tab until the element with this name has the focus."""
    for _ in range(MOST_TABS):
        page.keyboard.press("Tab")
        if page.evaluate(FOCUSED) == name:
            return
    pytest.fail(f"The Tab key does not come to {name!r}; it is at {page.evaluate(FOCUSED)!r}.")
