"""The message table: what a user does with mouse and keys, and what the kernel then knows."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.browser.conftest import CONTROL, DETECTOR, RUN_TIMEOUT, Notebook, Run, assert_nothing_ran

HOSTILE = """<img src="data:," onerror="detected('message')">\u202e\x1b"""
COUNT = 10_000

MESSAGES = f"""
from datetime import UTC, datetime, timedelta
from IPython.display import HTML
from sbnotebook import PeekedMessage
from sbnotebook.client import Messages
from sbnotebook.widgets.blocks import Button
from sbnotebook.widgets.panel import Panel
from sbnotebook.widgets.table.message_table import MessageTable

def message(number):
    return PeekedMessage(
        entity="orders/$dlq",
        sequence_number=number,
        enqueued_time=datetime(2026, 11, 1, tzinfo=UTC) + timedelta(minutes=number),
        subject=("UA", "AA", "DL")[number % 3],
        message_id=f"m{{number}}",
        delivery_count=number % 7,
        application_properties={{"DeadLetterReason": {HOSTILE!r} if number == 4 else "Invalid"}},
        body=(f"flight {{number}} " + "x" * (number % 400) + (" needle" if number == 399 else "")).encode(),
    )

messages = Messages([message(number) for number in range({COUNT})])
table = MessageTable(messages, facets=(), label="Dead letters")
seen = []
class Look(Panel):
    def blocks(self):
        return [Button("Look", lambda: seen.append([table.selected_keys, table.hidden]))]
button = Look()
"""


def counts(view: Locator, text: str) -> None:
    expect(view.locator(".sbn-counts")).to_have_text(text, timeout=RUN_TIMEOUT)


def shows(view: Locator, *numbers: int) -> None:
    """The first rows have these sequence numbers."""
    cells = view.locator(".sbn-row:not([hidden]) > :nth-child(2)")
    for place, number in enumerate(numbers):
        expect(cells.nth(place)).to_have_text(str(number), timeout=RUN_TIMEOUT)


def tab_to(page: Page, target: Locator) -> None:
    """Press Tab until something has the focus."""
    for _ in range(40):
        if target.evaluate("element => element === document.activeElement"):
            return
        page.keyboard.press("Tab")
    pytest.fail(f"The Tab key does not reach {target}.")


@pytest.mark.browser
def test_ten_thousand_messages_with_mouse_and_keys(run: Run) -> None:
    cells = [MESSAGES, "table", "button", "table", f"HTML({CONTROL!r})"]
    notebook = run(cells, DETECTOR)
    first, second = (notebook.page.locator(".sbn-table").nth(place) for place in (0, 1))
    counts(first, "10,000 shown")
    counts(second, "10,000 shown")
    assert notebook.largest < 1_000_000
    grid = first.get_by_role("grid", name="Dead letters")
    expect(grid).to_have_attribute("aria-rowcount", str(COUNT + 2))
    assert grid.get_by_role("row").count() < 60, "only the rows in sight are elements"

    filters_and_sorting(first, second)
    selection(notebook, first)
    changes_from_the_kernel(notebook, first)
    ranges(notebook, first)
    keys_only(notebook, first)
    half_a_million(second)

    assert_nothing_ran(notebook)
    assert notebook.largest < 1_000_000


def filters_and_sorting(view: Locator, other: Locator) -> None:
    view.locator(".sbn-search").fill("ua m123")
    counts(view, "5 of 10,000 shown")
    counts(other, "5 of 10,000 shown")
    expect(other.locator(".sbn-search")).to_have_value("ua m123")
    view.locator(".sbn-search").fill("needle")  # is behind the part of the body in the browser
    counts(view, "1 of 10,000 shown")
    shows(view, 399)
    view.get_by_role("button", name="Clear filters").click()
    counts(view, "10,000 shown")
    expect(view.locator(".sbn-search")).to_have_value("")

    subject = view.locator(".sbn-name[data-column=subject]")
    subject.click()
    expect(subject).to_have_attribute("aria-sort", "ascending")
    shows(view, 1, 4, 7)
    expect(view.locator(".sbn-row").nth(1)).to_contain_text("onerror=\"detected('message')\">··")
    subject.click()
    expect(subject).to_have_attribute("aria-sort", "descending")
    shows(view, 0, 3, 6)

    view.get_by_role("button", name="Column filters").click()
    view.get_by_label("Filter deliveries").fill(">=5")
    view.get_by_label("Filter enqueued").fill("2026-11-02")
    counts(view, "412 of 10,000 shown")
    view.get_by_label("Filter deliveries").fill("many")
    expect(view.get_by_label("Filter deliveries")).to_have_attribute("aria-invalid", "true")
    counts(view, "1,440 of 10,000 shown")
    view.get_by_role("button", name="Columns", exact=True).click()
    view.get_by_role("checkbox", name="enqueued").uncheck()  # with its filter
    counts(view, "10,000 shown")
    expect(view.locator(".sbn-name[data-column=enqueued_time]")).to_have_count(0)
    view.page.keyboard.press("Escape")
    expect(view.get_by_role("group", name="Columns that are shown")).to_be_hidden()


def selection(notebook: Notebook, view: Locator) -> None:
    for place in (0, 2):
        view.locator(".sbn-row").nth(place).locator(".sbn-check").click()
    view.locator(".sbn-name[data-column=subject]").click()  # unsorted again
    view.locator(".sbn-row").nth(1).click(modifiers=["Control"])
    counts(view, "10,000 shown, 3 selected")
    view.get_by_label("Filter subject").fill("=ua")
    counts(view, "3,334 of 10,000 shown, 3 selected (1 hidden by the filter)")
    notebook.page.get_by_role("button", name="Look").click()
    keys = [["orders/$dlq", number] for number in (0, 1, 6)]
    notebook.comes_to("seen", [[keys, 1]])
    notebook.comes_to("[m.message_id for m in table.selected]", ["m0", "m1", "m6"])

    view.get_by_role("button", name="Select 3,334 shown").click()
    counts(view, "3,334 of 10,000 shown, 3,335 selected (1 hidden by the filter)")
    notebook.comes_to("[len(table.selected_keys), table.hidden]", [3335, 1])
    view.get_by_role("button", name="Clear selection").click()
    view.locator(".sbn-row").nth(1).locator(".sbn-check").click()
    view.locator(".sbn-row").nth(4).click(modifiers=["Shift"])
    counts(view, "3,334 of 10,000 shown, 4 selected")
    notebook.comes_to("[n for _, n in table.selected_keys]", [3, 6, 9, 12])


def changes_from_the_kernel(notebook: Notebook, view: Locator) -> None:
    notebook.kernel("table.remove([('orders/$dlq', 6), ('orders/$dlq', 7), ('orders/$dlq', 0)])")
    counts(view, "3,332 of 9,997 shown, 3 selected")
    notebook.kernel("table.patch({('orders/$dlq', n): {'outcome': 'settled'} for n in range(3, 100)})")
    expect(view.locator(".sbn-name[data-column=outcome]")).to_be_visible()
    expect(view.locator(".sbn-row").first).to_contain_text("settled")
    notebook.kernel("table.append([message(9), message(20_001), message(20_002)])")
    counts(view, "3,333 of 9,999 shown, 3 selected")
    notebook.kernel("table.show([message(n) for n in (12, 3, 5, 4, 0)])")
    counts(view, "3 of 5 shown, 2 selected")
    shows(view, 12, 3, 0)
    notebook.comes_to("[n for _, n in table.selected_keys]", [12, 3])
    notebook.kernel("table.show([])")
    expect(view.get_by_text("No messages are shown.")).to_be_visible()
    notebook.kernel("table.show(messages)")
    view.get_by_role("button", name="Clear filters").click()
    counts(view, "10,000 shown")
    expect(view.locator(".sbn-name[data-column=enqueued_time]")).to_have_count(0)  # as the user left it


def ranges(notebook: Notebook, view: Locator) -> None:
    """A range holds the rows between its ends, and none of another selection or of replaced rows."""
    rows = view.locator(".sbn-row")
    numbers = "[n for _, n in table.selected_keys]"
    for place in (2, 5):
        rows.nth(place).click(modifiers=["Control"])
    rows.nth(7).click(modifiers=["Shift"])
    notebook.comes_to(numbers, [2, 5, 6, 7])
    view.get_by_role("button", name="Clear selection").click()
    rows.nth(8).click(modifiers=["Shift"])
    notebook.comes_to(numbers, [7, 8])
    notebook.kernel("table.show(messages[3:])")
    counts(view, "9,997 shown, 2 selected")
    rows.nth(9).click(modifiers=["Shift"])
    notebook.comes_to(numbers, [7, 8, 11, 12])
    # No row is there that Space could select, and one that was scrolled away comes back.
    view.locator(".sbn-search").fill("no such message")
    counts(view, "0 of 9,997 shown, 4 selected (4 hidden by the filter)")
    grid = view.get_by_role("grid")
    grid.press("Space")
    notebook.comes_to(numbers, [7, 8, 11, 12])
    view.get_by_role("button", name="Clear filters").click()
    counts(view, "9,997 shown, 4 selected")
    grid.evaluate("element => (element.scrollTop = 50_000)")
    expect(view.locator(".sbn-cursor:not([hidden])")).to_have_count(0)
    grid.press("Space")
    expect(view.locator(".sbn-cursor:not([hidden])")).to_contain_text("m3")
    notebook.comes_to(numbers, [3, 7, 8, 11, 12])
    view.get_by_role("button", name="Clear selection").click()
    notebook.kernel("table.show(messages)")
    counts(view, "10,000 shown")


def keys_only(notebook: Notebook, view: Locator) -> None:
    page = notebook.page
    search = view.locator(".sbn-search")
    search.focus()
    page.keyboard.type("DL")
    counts(view, "3,334 of 10,000 shown")  # one of them has a needle
    header = view.locator(".sbn-name[data-column=sequence_number]")
    tab_to(page, header)
    width = header.bounding_box()
    page.keyboard.press("Shift+ArrowRight")
    wider = header.bounding_box()
    assert width is not None
    assert wider is not None
    assert wider["width"] == width["width"] + 16
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    expect(header).to_have_attribute("aria-sort", "descending")
    grid = view.get_by_role("grid")
    tab_to(page, grid)
    page.keyboard.press("Space")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Shift+ArrowDown")
    page.keyboard.press("Shift+ArrowUp")
    notebook.comes_to("[n for _, n in table.selected_keys]", [9992, 9995, 9998])
    page.keyboard.press("End")
    cursor = view.locator(".sbn-row.sbn-cursor:not([hidden])")
    expect(cursor).to_contain_text("m2", timeout=RUN_TIMEOUT)
    expect(cursor).to_be_in_viewport()
    expect(grid).to_have_attribute("aria-activedescendant", str(cursor.get_attribute("id")))
    page.keyboard.press("PageUp")
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(view.locator(".sbn-row.sbn-open")).to_contain_text("9998")
    notebook.kernel("table.show(messages[5000:])")
    counts(view, "1,667 of 5,000 shown, 3 selected")
    expect(view.locator(".sbn-row.sbn-open")).to_contain_text("9998")  # its current place
    notebook.kernel("table.show(messages)")
    counts(view, "3,334 of 10,000 shown, 3 selected")
    page.keyboard.press("Escape")
    expect(view.locator(".sbn-row.sbn-open")).to_have_count(0)
    notebook_cells = page.locator(".jp-Cell").count()
    for key in ("d", "d", "x"):
        page.keyboard.press(key)
    page.keyboard.press("Control+a")
    counts(view, "3,334 of 10,000 shown, 3,334 selected")
    expect(view.get_by_role("status").first).to_have_text("3,334 of 10,000 shown, 3,334 selected")
    assert page.locator(".jp-Cell").count() == notebook_cells, "the keys did nothing to the notebook"


MANY = """() => {
    const { store } = document.querySelector(".sbn-table");
    const count = 500_000;
    store.clearFilters();
    store.sortBy(null);
    store.begin(store.laidOut([{ name: "sequence_number", title: "sequence", kind: "number", hidden: false }]), count);
    store.put("sequence_number", 0, Float64Array.from({ length: count }, (_, row) => row));
    store.total = count;
    store.forget();
    store.tell("rows", { kind: "replaced" });
}"""


def half_a_million(view: Locator) -> None:
    """More rows than a browser can scroll to: all can be reached all the same."""
    view.page.evaluate(MANY)
    counts(view, "500,000 shown")
    view.get_by_role("grid").focus()
    for key, number in (("End", 499_999), ("ArrowUp", 499_998), ("Home", 0), ("PageDown", None), ("ArrowDown", None)):
        view.page.keyboard.press(key)
        cursor = view.locator(".sbn-row.sbn-cursor:not([hidden])")
        expect(cursor).to_be_in_viewport(timeout=RUN_TIMEOUT)
        if number is not None:
            expect(cursor.locator(".sbn-cell")).to_have_text(str(number))


LOCKED = """
from datetime import UTC, datetime, timedelta
from sbnotebook import PeekedMessage
from sbnotebook.widgets.blocks import Button
from sbnotebook.widgets.panel import Panel
from sbnotebook.widgets.table.message_table import MessageTable

now = datetime.now(UTC)
messages = [PeekedMessage(entity="orders", sequence_number=2**60 + number) for number in range(4)]
untils = [now + timedelta(minutes=5), now + timedelta(seconds=3600), now - timedelta(seconds=1), None]
table = MessageTable(countdown=True)
table.show(messages, {"locked_until": untils})
display(table)
table.on_selection(lambda: 1 / 0)
"""
READING = """element => element.store.addEventListener("rows", ({ target }) => {
    for (let row = 0; row < target.total; row++) target.searchText(row);
})"""


def later_columns_are_searched(notebook: Notebook, view: Locator) -> None:
    """A column that comes after the others of its rows is searched, too, however early these were read."""
    view.evaluate(READING)
    notebook.kernel("table.append([PeekedMessage(entity='orders', sequence_number=5, subject='late')])")
    view.get_by_placeholder("Search all columns").fill("late")
    counts(view, "1 of 5 shown")
    view.get_by_role("button", name="Clear filters").click()


@pytest.mark.browser
def test_locks_run_down_in_the_browser(run: Run) -> None:
    notebook = run([LOCKED])
    view = notebook.page.locator(".sbn-table")
    counts(view, "4 shown")
    left = view.locator(".sbn-row .sbn-cell:nth-child(3)")
    before = left.nth(0).inner_text()
    assert before.startswith(("4:", "5:00"))
    expect(left.nth(0)).not_to_have_text(before, timeout=RUN_TIMEOUT)
    expect(left.nth(2)).to_have_text("ended")
    expect(left.nth(2)).to_have_class("sbn-cell sbn-number sbn-soon")
    expect(left.nth(3)).to_have_text("ended")  # no end: it is held no longer
    expect(left.nth(1)).to_contain_text("59:")
    shows(view, 2**60, 2**60 + 1)
    view.evaluate("element => element.store.tellTime(Date.now() + 3600e3)")  # the kernel's clock is an hour ahead
    expect(left.nth(1)).to_have_text("ended", timeout=RUN_TIMEOUT)
    view.locator(".sbn-name[data-column=sequence_number]").click()
    view.locator(".sbn-name[data-column=sequence_number]").click()
    shows(view, *(2**60 + number for number in (3, 2, 1, 0)))
    later_columns_are_searched(notebook, view)
    view.locator(".sbn-row .sbn-check").nth(1).click()
    expect(view.get_by_role("alert")).to_have_text("ZeroDivisionError: division by zero")
    notebook.end_kernel()
    gone = "The kernel that filled this table is gone. Run the cell again."
    view.locator(".sbn-row .sbn-check").nth(2).click()
    expect(view.get_by_role("alert")).to_have_text(gone)
    view.locator(".sbn-row .sbn-cell").first.click()
    expect(view.get_by_role("region", name="Message")).to_contain_text(gone)
    assert notebook.errors == []
