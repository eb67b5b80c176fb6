"""The cursor, the focus and lists keep their places while the kernel changes rows, columns and counts."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, expect

from tests.browser.conftest import RUN_TIMEOUT, Notebook, Run

TABLE = """
from sbnotebook import PeekedMessage
from sbnotebook.widgets.table.message_table import MessageTable
subjects = ["UA"] * 6 + ["AA"] * 4 + ["DL"] * 2
table = MessageTable([
    PeekedMessage(entity="orders", sequence_number=number, subject=subject, message_id=f"m{number}")
    for number, subject in enumerate(subjects)
])
def settle(*numbers):
    table.patch({("orders", number): {"outcome": "settled"} for number in numbers})
def remove(*numbers):
    table.remove([("orders", number) for number in numbers])
table"""
TREE = """
from sbnotebook.widgets.entity_browser import Browser
for number in range(100):
    namespace.create_queue(f"queue-{number:03}")
panel = Browser(namespace)
panel"""
SELECTED = "[number for _, number in table.selected_keys]"
SCROLLED = "element => [element.scrollTop, element.closest('.jp-WindowedPanel-outer')?.scrollTop ?? 0]"


def shown(view: Locator, text: str) -> None:
    expect(view.locator(".sbn-counts")).to_contain_text(text, timeout=RUN_TIMEOUT)


@pytest.mark.browser
def test_cursor_filter_and_facet_stay_with_the_user(run: Run) -> None:
    notebook = run([TABLE])
    view = notebook.page.locator(".sbn-table").first
    shown(view, "12 shown")
    _cursor_stays_on_its_message(notebook, view)
    _filter_keeps_the_focus(notebook, view)
    _facet_keeps_its_order(notebook, view)
    assert (notebook.external, notebook.errors) == ([], [])


def _cursor_stays_on_its_message(notebook: Notebook, view: Locator) -> None:
    grid, keyboard = view.get_by_role("grid"), notebook.page.keyboard
    grid.focus()
    for _ in range(3):
        keyboard.press("ArrowDown")
    notebook.kernel("remove(0)")
    shown(view, "11 shown")
    expect(view.locator(".sbn-cursor")).to_contain_text("m3")
    keyboard.press("Space")
    notebook.comes_to(SELECTED, [3])
    keyboard.press("Shift+ArrowDown")
    notebook.comes_to(SELECTED, [3, 4])
    # An outcome by which the table is sorted moves rows, too; another table has its cursor at the same place.
    notebook.kernel("settle(1)")
    view.locator(".sbn-name[data-column=outcome]").click()
    grid.focus()
    keyboard.press("ArrowDown")
    expect(view.locator(".sbn-cursor")).to_contain_text("m2")
    notebook.kernel("settle(3, 4, 5)")
    expect(view.locator(".sbn-row").nth(1)).to_contain_text("m3")
    expect(view.locator(".sbn-cursor")).to_contain_text("m2")
    view.get_by_role("button", name="Clear selection").click()
    grid.focus()
    keyboard.press("Space")
    notebook.comes_to(SELECTED, [2])
    notebook.kernel("table.show(list(table.messages)[::-1])")
    expect(view.locator(".sbn-row").first).to_contain_text("m11")
    expect(view.locator(".sbn-row").nth(4)).to_have_class("sbn-row sbn-cursor")


def _filter_keeps_the_focus(notebook: Notebook, view: Locator) -> None:
    expect(view.locator(".sbn-name[data-column=outcome]")).to_have_count(0)
    view.get_by_role("button", name="Column filters").click()
    field = view.get_by_label("Filter subject")
    field.press_sequentially("U", delay=300)
    notebook.kernel("settle(1)")
    expect(view.locator(".sbn-name[data-column=outcome]")).to_be_visible()
    expect(field).to_be_focused()
    notebook.page.keyboard.type("A", delay=300)
    expect(field).to_have_value("UA")
    shown(view, "5 of 11 shown")
    notebook.page.keyboard.type("x")
    shown(view, "0 of 11 shown")
    view.get_by_role("button", name="Clear filters").click()
    expect(field).to_have_value("")


def _facet_keeps_its_order(notebook: Notebook, view: Locator) -> None:
    subjects = view.get_by_role("group", name="subject", exact=True)
    values = subjects.get_by_role("listitem")
    expect(values).to_have_text(["UA5", "AA4", "DL2"])
    values.nth(1).hover()
    notebook.kernel("remove(1, 2, 3)")
    expect(values).to_have_text(["UA2", "AA4", "DL2"])
    view.get_by_role("grid").hover()
    expect(values).to_have_text(["AA4", "DL2", "UA2"])
    subjects.get_by_label("AA").focus()
    notebook.kernel("remove(6, 7, 8)")
    expect(values).to_have_text(["AA1", "DL2", "UA2"])
    view.get_by_role("grid").focus()
    expect(values).to_have_text(["DL2", "UA2", "AA1"])


@pytest.mark.browser
def test_new_counts_do_not_scroll_back_to_the_focus(run: Run) -> None:
    notebook = run([TREE])
    tree = notebook.page.get_by_role("tree")
    expect(tree.get_by_role("treeitem")).to_have_count(100, timeout=RUN_TIMEOUT)
    tree.get_by_role("treeitem").first.click()
    tree.evaluate("element => (element.scrollTop = 600)")
    before = tree.evaluate(SCROLLED)
    assert before[0] == 600
    notebook.kernel("namespace.entity('queue-000').send(['x'])\npanel.tree.refresh()")
    expect(tree.get_by_role("treeitem", name="queue-000, queue, 1 active")).to_be_focused(timeout=RUN_TIMEOUT)
    assert tree.evaluate(SCROLLED) == before
