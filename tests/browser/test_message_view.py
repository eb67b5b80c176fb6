"""The table that takes the place of our own in JupyterLab where that is not loaded, and only there."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import RUN_TIMEOUT, Lab, Notebook, run_notebook

MATHEMATICS = "costs $x^2$ and $\\alpha$"
MARKUP = "<img src=x onerror=alert(1)>"
SET_UP = f"""
import ipywidgets
from sbnotebook import PeekedMessage
from sbnotebook.widgets import panel
from sbnotebook.widgets.blocks import Grid
from sbnotebook.widgets.table.message_table import MessageTable
from sbnotebook.widgets.table.message_table import PlainTable

panel._PLAIN_AFTER = 2.0

class View(panel.Panel):
    def __init__(self, messages):
        super().__init__()
        self.table = MessageTable(messages)
        self.plain = PlainTable(self.table, self.redraw)

    def blocks(self):
        return [Grid(self.table, self.plain.blocks)]

subjects = [{MATHEMATICS!r}, {MARKUP!r}] + [f"S{{n}}" for n in range(2, 45)]
view = View(
    [PeekedMessage(entity="orders", sequence_number=n, subject=each, body=b"body") for n, each in enumerate(subjects)]
)
view.table.select([("orders", 3)])
"""
BUSY = "import time\ntime.sleep(4)"


def swaps(notebook: Notebook) -> str:
    return notebook.kernel("print(view.is_plain, view.table.selected_keys)")


@pytest.mark.browser
@pytest.mark.thorough
def test_plain_table_replaces_one_that_is_not_loaded(browser: Browser, lab: Lab) -> None:
    # The control shows that a label without care is set as mathematics, so that the test can tell.
    cells = [SET_UP, "view", f"ipywidgets.Label({MATHEMATICS!r})"]
    notebook = run_notebook(browser, lab, cells, blocked="/extensions/anywidget/")
    outputs = notebook.page.locator(".jp-OutputArea-output")
    view, control = outputs.first, outputs.last
    expect(view.get_by_text("1 to 20 of 45, 1 selected")).to_be_visible(timeout=RUN_TIMEOUT)
    expect(view.get_by_text("This is the plain panel")).to_be_visible()
    expect(view.get_by_role("checkbox", name="#3", exact=True)).to_be_checked()

    expect(control.locator("mjx-container").first).to_be_attached(timeout=RUN_TIMEOUT)
    expect(view.get_by_text(MATHEMATICS)).to_be_visible()
    expect(view.get_by_text(MARKUP)).to_be_visible()
    expect(view.locator("mjx-container, img")).to_have_count(0)

    view.get_by_role("checkbox", name="#5", exact=True).check()
    expect(view.get_by_text("1 to 20 of 45, 2 selected")).to_be_visible(timeout=RUN_TIMEOUT)
    view.get_by_role("button", name="Next").click()
    expect(view.get_by_text("21 to 40 of 45, 2 selected")).to_be_visible(timeout=RUN_TIMEOUT)
    view.get_by_role("textbox", name="Find").fill("S4")
    view.get_by_role("textbox", name="Find").press("Enter")
    expect(view.get_by_text("1 to 6 of 6 found (45 in all), 2 selected (2 not among")).to_be_visible(
        timeout=RUN_TIMEOUT
    )
    view.get_by_role("checkbox", name="#44", exact=True).check()
    expect(view.get_by_text("3 selected (2 not among")).to_be_visible(timeout=RUN_TIMEOUT)
    notebook.kernel("view.table.patch({('orders', 44): {'outcome': 'settled'}})")
    expect(view.get_by_text("settled")).to_be_visible(timeout=RUN_TIMEOUT)
    view.get_by_role("button", name="Look").last.click()
    expect(view.locator("pre")).to_contain_text("Message 44 of orders", timeout=RUN_TIMEOUT)
    assert swaps(notebook) == "True (('orders', 3), ('orders', 5), ('orders', 44))"
    assert notebook.external == []


@pytest.mark.browser
@pytest.mark.thorough
def test_a_busy_kernel_is_no_reason_for_the_plain_table(browser: Browser, lab: Lab) -> None:
    notebook = run_notebook(browser, lab, [SET_UP, "view", BUSY])
    view = notebook.page.locator(".jp-OutputArea-output").first
    expect(view.locator(".sbn-counts")).to_have_text("45 shown, 1 selected", timeout=RUN_TIMEOUT)
    assert swaps(notebook) == "False (('orders', 3),)"
    notebook.kernel("view.use_plain()")
    view.get_by_role("checkbox", name="#5", exact=True).check()
    notebook.kernel("view.use_plain(False)")
    expect(view.locator(".sbn-counts")).to_have_text("45 shown, 2 selected", timeout=RUN_TIMEOUT)
    assert swaps(notebook) == "False (('orders', 3), ('orders', 5))"
    assert (notebook.external, notebook.errors) == ([], [])
