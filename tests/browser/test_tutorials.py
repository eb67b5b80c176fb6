"""A tutorial in JupyterLab, as its reader runs it: from the first cell to the last, with the panels that it shows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Lab, run_notebook

TUTORIAL = Path(__file__).resolve().parents[2] / "notebooks" / "01_peek_lock_settle.ipynb"
# Spark starts a JVM.
PATIENCE = 240_000


@pytest.mark.browser
@pytest.mark.thorough
def test_the_first_tutorial_runs_and_shows_its_board(browser: Browser, lab: Lab) -> None:
    cells = [cell for cell in json.loads(TUTORIAL.read_text())["cells"] if cell["cell_type"] == "code"]
    notebook = run_notebook(browser, lab, ["".join(cell["source"]) for cell in cells], patience=PATIENCE)
    outputs = notebook.page.locator(".jp-OutputArea-output")
    expect(outputs.locator(".sbn-panel").filter(has_text="Held in flights").first).to_be_visible()
    # An error in any cell stops those behind it, and these names are bound by one of the last.
    counts = "completed.settled, completed_later.settled, len(left), len(messages)"
    completed, later, left, sent = map(int, notebook.kernel(f"print({counts})").split())
    assert completed + later + left == sent
    assert notebook.kernel("print(len(still_there), len(pushed) > 0)") == "0 True"
    assert notebook.external == []
    assert notebook.errors == []
