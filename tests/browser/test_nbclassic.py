"""The triage in the classic notebook, which has no dark theme and no theme's variables but those of ipywidgets."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from tests.browser.conftest import CONTRAST, Lab, cells_of, faults

SET_UP: Final = """
import os
os.environ["XDG_DATA_HOME"] = {data!r}
from sbnotebook import Message, connect
from sbnotebook.widgets.triage import Triage
namespace = connect("emulator")
namespace.create_queue("orders")
queue = namespace.entity("orders")
queue.send(Message(body=b'{{"order": %d}}' % n, subject="order") for n in range(40))
with queue.lock(40) as batch:
    batch.dead_letter(reason="PriceMissing", description="no price")
triage = Triage(namespace, "orders/$dlq")
display(triage)
"""
MOST_HEIGHT: Final = 200  # pixels
READY: Final = """() => window.Jupyter?.notebook?.kernel?.is_connected() && Jupyter.notebook._fully_loaded
  && Jupyter.notebook.kernel.comm_manager.targets["jupyter.widget"]
  && requirejs.s.contexts._.config.map["*"]?.anywidget"""
# ipywidgets asks the kernel for its widgets first, and loses what changes meanwhile. Answers come in order.
WIDGETS_READY: Final = "() => new Promise((done) => Jupyter.notebook.kernel.comm_info('jupyter.widget', done))"


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1400, "height": 800}, color_scheme="dark")
    yield page
    page.evaluate("() => window.Jupyter?.notebook?.kernel?.kill?.()")
    page.close()


@pytest.mark.browser
@pytest.mark.thorough
def test_the_classic_notebook_shows_the_triage(page: Page, lab: Lab, tmp_path: Path) -> None:
    name = f"t{time.time_ns()}"
    cell = SET_UP.format(data=str(lab.folder.parent / f"data-{name}"))
    (lab.folder / f"{name}.ipynb").write_text(json.dumps(cells_of([cell])))
    page.goto(f"{lab.url}/notebooks/{name}.ipynb")
    page.wait_for_function(READY)
    page.evaluate(WIDGETS_READY)
    page.evaluate("() => Jupyter.notebook.execute_all_cells()")
    panel = page.locator(".sbn-panel").first
    expect(panel.get_by_text("40 messages, peeked at")).to_be_visible()
    # The notebook's own style sheet would stretch drawings to their width.
    assert panel.locator(".sbn-timeline svg").evaluate("(drawing) => drawing.clientHeight") < MOST_HEIGHT
    _bar_stays_in_sight(panel)
    _complete_all(panel)
    page.screenshot(path=tmp_path / "classic.png")
    assert faults(page, ".sbn-panel", CONTRAST) == []


def _bar_stays_in_sight(panel: Locator) -> None:
    """The bar of the selection is at the lower edge while the table above it is scrolled past."""
    panel.get_by_text("Triage of orders/$dlq").evaluate("(title) => title.scrollIntoView(true)")
    bar = panel.locator(".sbn-sticky")
    expect(bar).to_be_hidden()
    panel.get_by_role("button", name="Select 40", exact=True).click()
    panel.get_by_text("Triage of orders/$dlq").evaluate("(title) => title.scrollIntoView(true)")
    expect(bar.get_by_role("button", name="Complete…")).to_be_in_viewport()


def _complete_all(panel: Locator) -> None:
    panel.get_by_role("button", name="Complete…").click()
    panel.get_by_role("button", name="Show the plan").click()
    panel.get_by_role("button", name="Carry out").click()
    expect(panel.get_by_text("Completed 40 messages of orders/$dlq.")).to_be_visible()
