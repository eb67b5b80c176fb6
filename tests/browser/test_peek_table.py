"""What ``%sb_peek`` shows in JupyterLab, and what hostile messages do there: nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import RUN_TIMEOUT, Lab, run_notebook

SCRIPT = "<script>detected('script')</script>"
# An address that cannot be an image, so that the error comes at once and nothing is asked for.
IMAGE = """<img src="data:," onerror="detected('image')">"""
CONTROL = """<img src="data:," onerror="detected('control')">"""
DETECTOR = "window.found = []; window.detected = (what) => window.found.push(what)"
# A wider table is scrolled within the area of the output.
IS_WITHIN_OUTPUT = """head => {
    const area = head.closest(".jp-OutputArea-output").getBoundingClientRect()
    return head.getBoundingClientRect().right <= Math.min(area.right, window.innerWidth)
}"""

CELLS = [
    "%load_ext sbnotebook\n%sb_connect emulator --into namespace\nnamespace.create_queue('orders')",
    f"hostile = [{{'subject': {SCRIPT!r}, 'body': {IMAGE!r}}}, {SCRIPT!r}, 'plain text']\n%sb_send orders hostile",
    f"%sb_lock orders -n 1\n%sb_deadletter --reason '{IMAGE}' --description '{SCRIPT}'",
    "%sb_peek orders",
    "%sb_peek orders/$dlq",
    f"from IPython.display import HTML\nHTML({CONTROL!r})",
]


@pytest.mark.browser
def test_messages_are_a_table_and_nothing_in_them_runs(browser: Browser, lab: Lab, tmp_path: Path) -> None:
    notebook = run_notebook(browser, lab, CELLS, DETECTOR)
    notebook.page.screenshot(path=tmp_path / "peek.png")  # pytest keeps it where a test fails
    outputs = notebook.page.locator(".jp-OutputArea-output")
    live = outputs.locator("table").filter(has_text="orders: 2 messages")
    dead = outputs.locator("table").filter(has_text="orders/$dlq: 1 message")
    expect(live.locator("tbody tr")).to_have_count(2, timeout=RUN_TIMEOUT)
    expect(live.locator("td").filter(has_text=SCRIPT)).to_have_text(SCRIPT)
    expect(live.locator("td").filter(has_text="plain text")).to_be_visible()
    for hostile in (IMAGE, SCRIPT):
        expect(dead.locator("td").filter(has_text=hostile).first).to_have_text(hostile)
    expect(outputs.locator("table img, table script")).to_have_count(0)

    # The columns that matter are on a small screen, and need no scrolling.
    notebook.page.set_viewport_size({"width": 1280, "height": 900})
    notebook.page.screenshot(path=tmp_path / "peek-1280.png")
    for column in ("dead_letter_reason", "dead_letter_error_description", "body_text"):
        assert dead.locator("th").get_by_text(column, exact=True).evaluate(IS_WITHIN_OUTPUT), column

    notebook.page.wait_for_function("() => window.found.length > 0", timeout=RUN_TIMEOUT)
    assert notebook.page.evaluate("() => window.found") == ["control"], "the control shows that the detector works"
    assert notebook.external == []
