"""The monitor: it refreshes by itself while it is visible."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Run

CELLS = [
    """
from sbnotebook import Message
from sbnotebook.widgets.monitor import Monitor
namespace.create_queue("orders")
namespace.create_topic("flights")
namespace.create_subscription("flights", "audit")
orders = namespace.entity("orders")
report = orders.send([Message(body=b"x")] * 40)
monitor = Monitor(namespace, ["orders", "flights"], every=0.2)
""",
    "monitor",
]
SET_SHOWN = """async (isShown) => {
    const command = isShown ? 'notebook:show-all-cell-outputs' : 'notebook:hide-all-cell-outputs';
    await window.jupyterapp?.commands.execute(command);
    if (!window.jupyterapp) document.querySelector('.jp-OutputArea-output').hidden = !isShown;
}"""
CLEAR = """async () => {
    await window.jupyterapp?.commands.execute('notebook:clear-all-cell-outputs');
    document.querySelector('.jp-OutputArea-output')?.remove();
}"""


@pytest.mark.browser
def test_counts_and_rates_are_drawn_while_they_are_seen(run: Run, tmp_path: Path) -> None:
    notebook = run(CELLS)
    panel = notebook.page.locator(".jp-OutputArea-output .sbn-panel")
    orders = panel.get_by_role("region", name="orders")
    expect(orders.get_by_text("40", exact=True).first).to_be_visible()
    expect(panel.get_by_role("region", name="flights/subscriptions/audit")).to_be_visible()

    notebook.kernel("report = orders.send([Message(body=b'x')] * 60)")
    messages = orders.get_by_role("img", name="active: 100 now, between 40 and 100")
    expect(messages).to_be_visible()
    expect(orders.get_by_role("img", name="Per second, at least")).to_be_visible()
    messages.focus()
    notebook.page.keyboard.press("Home")
    expect(orders.locator(".sbn-chart-value").first).to_have_text("active40")

    panel.get_by_role("button", name="Stop").click()
    expect(panel.get_by_text("Stopped.")).to_be_visible()
    panel.get_by_role("button", name="Start").click()
    expect(panel.get_by_text("as of")).to_be_visible()
    notebook.page.screenshot(path=tmp_path / "monitor.png")  # pytest keeps it where a test fails

    notebook.page.evaluate(SET_SHOWN, False)
    notebook.comes_to("monitor.is_sampling", False)
    notebook.page.evaluate(SET_SHOWN, True)
    notebook.comes_to("monitor.is_sampling", True)
    notebook.page.evaluate(CLEAR)
    notebook.comes_to("monitor.is_sampling", False)
    assert int(notebook.kernel("print(len(monitor.to_pandas()))")) > 4
    assert (notebook.external, notebook.errors) == ([], [])
    assert notebook.largest <= 1_000_000
