"""The monitor in JupyterLab: it refreshes by itself while it is visible."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import RUN_TIMEOUT, Lab, run_notebook

CELLS = [
    """
from sbnotebook import Message, connect
from sbnotebook.emulator import running
from sbnotebook.widgets.monitor import Monitor
server = running(queues=["orders"], topics={"flights": ["audit"]})
namespace = connect(server.__enter__().connection_string)
orders = namespace.entity("orders")
report = orders.send([Message(body=b"x")] * 40)
monitor = Monitor(namespace, ["orders", "flights"], every=0.2)
""",
    "monitor",
]
COLLAPSE = "async () => { await window.jupyterapp.commands.execute('notebook:hide-all-cell-outputs') }"
EXPAND = "async () => { await window.jupyterapp.commands.execute('notebook:show-all-cell-outputs') }"
CLEAR = "async () => { await window.jupyterapp.commands.execute('notebook:clear-all-cell-outputs') }"
CLOSE = "monitor.close(); namespace.close(); server.__exit__(None, None, None)"


@pytest.mark.browser
def test_counts_and_rates_are_drawn_while_they_are_seen(browser: Browser, lab: Lab, tmp_path: Path) -> None:
    notebook = run_notebook(browser, lab, CELLS)
    expect.set_options(timeout=RUN_TIMEOUT)
    panel = notebook.page.locator(".jp-OutputArea-output .sbn-panel")
    orders = panel.get_by_role("region", name="orders")
    expect(orders.get_by_text("40", exact=True).first).to_be_visible()
    expect(panel.get_by_role("region", name="flights/subscriptions/audit")).to_be_visible()

    notebook.kernel("report = orders.send([Message(body=b'x')] * 60)")
    messages = orders.get_by_role("img", name="active: 100 now, between 40 and 100")
    expect(messages).to_be_visible()
    expect(orders.get_by_role("img", name="Each second, at least")).to_be_visible()
    messages.focus()
    notebook.page.keyboard.press("Home")
    expect(orders.locator(".sbn-chart-value.sbn-line-active b")).to_have_text("40")

    panel.get_by_role("button", name="Stop").click()
    expect(panel.get_by_text("Stopped.")).to_be_visible()
    panel.get_by_role("button", name="Start").click()
    expect(panel.get_by_text("as of")).to_be_visible()
    notebook.page.screenshot(path=tmp_path / "monitor.png")  # pytest keeps it where a test fails

    notebook.page.evaluate(COLLAPSE)
    notebook.comes_to("monitor.is_sampling", False)
    notebook.page.evaluate(EXPAND)
    notebook.comes_to("monitor.is_sampling", True)
    notebook.page.evaluate(CLEAR)
    notebook.comes_to("monitor.is_sampling", False)
    assert int(notebook.kernel("print(len(monitor.to_pandas()))")) > 4
    assert (notebook.external, notebook.errors) == ([], [])
    assert notebook.largest <= 1_000_000
    notebook.kernel(CLOSE)
