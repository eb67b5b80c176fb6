"""A panel in JupyterLab: plain widgets in the place of our view, the plain table, and a kernel that is restarted."""

from __future__ import annotations

import pytest
from playwright.sync_api import Browser, Locator, expect

from tests.browser.conftest import SAVE, Lab, Notebook, run_notebook

CELLS = [
    "%load_ext sbnotebook\n%sb_connect emulator --into namespace",
    """\
from sbnotebook.widgets.triage import Triage
namespace.create_queue("orders")
queue = namespace.entity("orders")
queue.send(["x"] * 5)
with queue.lock(5) as batch:
    batch.dead_letter(reason="PriceMissing", description="no price")
triage = Triage(namespace, "orders/$dlq")
triage""",
]
BY_IPYWIDGETS = ".lm-Widget.jupyter-button"
TOP = "(element) => element.getBoundingClientRect().top"
SAID = "(panel) => getComputedStyle(panel, '::before').content"


@pytest.mark.browser
@pytest.mark.thorough
def test_a_panel_is_drawn_by_our_view_where_it_loads(browser: Browser, lab: Lab) -> None:
    notebook = run_notebook(browser, lab, CELLS)
    page = notebook.page
    panel = page.locator(".jp-OutputArea-output .sbn-panel").first
    _is_drawn(panel)
    # What a page sees that loads our view too late, and what the next page sees.
    notebook.kernel("triage.use_plain()")
    expect(panel.locator(BY_IPYWIDGETS).filter(has_text="Refresh")).to_be_visible()
    page.evaluate(SAVE)
    page.reload()
    _is_drawn(panel)

    _plain_table(notebook, panel)
    notebook.end_kernel()
    expect(panel.get_by_role("button", name="Refresh")).to_be_visible()
    # A sentence above it, and no icon of a broken link over each part.
    page.wait_for_function(f"() => ({SAID})(document.querySelector('.sbn-panel')).includes('has ended')")


def _is_drawn(panel: Locator) -> None:
    expect(panel.get_by_text("5 messages, peeked at")).to_be_visible()
    expect(panel.get_by_role("button", name="Refresh")).to_be_visible()
    expect(panel.locator(BY_IPYWIDGETS)).to_have_count(0)


def _plain_table(notebook: Notebook, panel: Locator) -> None:
    """A row of the plain table has its check box beside its values."""
    notebook.kernel("triage.use_plain()")
    values = panel.locator(".widget-html").filter(has_text="PriceMissing ·").first
    expect(values).to_be_visible()
    box = panel.get_by_role("checkbox", name="#1", exact=True)
    first, second = box.evaluate(TOP), values.evaluate(TOP)
    assert abs(first - second) < 20  # pixels
