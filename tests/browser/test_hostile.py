"""Hostile messages in all panels and in the HTML of the magics: nothing of them runs, and nothing stops the page."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from sbnotebook.testing.hostile import hostile_messages, hostile_texts
from tests.browser.conftest import Lab, LightNotebook, Notebook, run_notebook

COUNT = len(hostile_messages())
LONGEST_TASK = 5_000  # milliseconds, on a machine that does much else; a text in one piece took 29,000
CELLS = [
    "%load_ext sbnotebook\n%sb_connect {emulator.connection_string} --into namespace",
    """\
from sbnotebook.testing.hostile import hostile_messages, hostile_texts
namespace.create_queue("orders")
orders = namespace.entity("orders")
orders.send(hostile_messages())
texts = list(hostile_texts().values())
with orders.lock(200) as batch:
    for message, text in zip(batch.messages, texts * 2):
        batch.dead_letter([message], reason=text, description=text)
orders.send(hostile_messages())""",
    "%sb_peek orders/$dlq -n 200",
    "%sb_groups orders/$dlq",
    "%sb_resubmit orders/$dlq --dry-run",
    """\
from sbnotebook import Browser, LockBoard, MessageTable, Monitor, Triage
triage = Triage(namespace, "orders/$dlq")
triage""",
    "messages = namespace.entity('orders/$dlq').peek(show_progress=False)\nMessageTable(messages)",
    "plain = Triage(namespace, 'orders/$dlq')\nplain.use_plain()\nplain",
    "board = LockBoard(namespace, orders.lock(100))\nboard",
    "browser = Browser(namespace, 'orders/$dlq')\nbrowser",
    "Monitor(namespace, ['orders'])",
]
WATCH = """
window.__longest = 0;
new PerformanceObserver((list) => {
  for (const { duration } of list.getEntries()) window.__longest = Math.max(window.__longest, duration);
}).observe({ entryTypes: ['longtask'] });
"""
SAVE = """async () => {
  const { commands, shell } = window.jupyterapp;
  await commands.execute('@jupyter-widgets/jupyterlab-manager:saveWidgetState');
  await commands.execute('docmanager:save');
}"""
# What could only come from a message.
MADE = """() => [
  ...document.querySelectorAll('img[src="x"], svg[onload], iframe[srcdoc], [onerror], [onfocus], [onmouseover]'),
  ...[...document.querySelectorAll('a')].filter((link) => /^\\s*javascript:/i.test(link.getAttribute('href') ?? '')),
  ...[...document.scripts].filter((script) => script.textContent.startsWith('window.__hit')),
  ...document.querySelectorAll('.jp-OutputArea-output mjx-container, .jp-OutputArea-output .MathJax'),
].map((element) => element.outerHTML.slice(0, 200))"""


BODIES = ("changing direction", "a long line", "many lines", "combining marks", "deep JSON", "deep XML", "numbers")
"""Those that take a browser the most."""


@pytest.mark.browser
def test_nothing_of_a_hostile_message_runs_in_a_page(run_here: Callable[..., LightNotebook]) -> None:
    _is_attacked(run_here(CELLS))


@pytest.mark.browser
@pytest.mark.thorough
def test_nothing_of_a_hostile_message_runs_or_stops_jupyterlab(browser: Browser, lab: Lab, tmp_path: Path) -> None:
    notebook = run_notebook(browser, lab, [*CELLS, "orders.peek(20).plot(by='subject')"], WATCH)
    chart = notebook.page.locator(".js-plotly-plot")
    expect(chart.get_by_text(hostile_texts()["image"], exact=True).first).to_be_visible()
    _is_attacked(notebook)
    assert notebook.page.evaluate("window.__longest") < LONGEST_TASK
    _is_inert_as_a_document(browser, _as_html(_saved(notebook, lab), tmp_path))


def _is_attacked(notebook: Notebook) -> None:
    page = notebook.page
    triage = page.locator(".jp-OutputArea-output .sbn-panel").filter(has_text="Triage of orders/$dlq").first
    expect(triage.get_by_text(f"{COUNT} messages, peeked at")).to_be_visible()
    _look_into(triage)
    _edit_and_resubmit(triage)
    _is_inert(page)
    # The detector sees what runs.
    page.evaluate("(text) => { document.createElement('div').innerHTML = text }", hostile_texts()["image"])
    page.wait_for_function("window.__hit === 1")
    page.evaluate("() => { delete window.__hit }")
    assert (notebook.external, notebook.errors) == ([], [])
    assert notebook.largest < 1_000_000


def _look_into(table: Locator) -> None:
    search = table.get_by_placeholder("Search all columns")
    first = table.locator(".sbn-row").first
    for name in BODIES:
        search.fill(name)
        expect(first).to_contain_text(name)  # a row below it still moves
        first.click()
        expect(table.locator(".sbn-detail")).to_contain_text(name)
    search.fill("")


def _edit_and_resubmit(panel: Locator) -> None:
    panel.get_by_role("button", name=f"Select {COUNT} shown").click()
    panel.get_by_role("button", name="Edit and resubmit…").click()
    panel.get_by_placeholder("name of the property").fill("__proto__")
    panel.get_by_placeholder("value; it keeps the type that it has").fill(hostile_texts()["image"])
    panel.get_by_role("button", name="Try it").click()
    expect(panel.get_by_text(f"Message 1 of {COUNT}")).to_be_visible()
    panel.get_by_role("button", name="Show the plan").click()
    panel.get_by_role("button", name="Carry out").click()
    expect(panel.get_by_text(re.compile(r"Resubmitted \d+"))).to_be_visible()


def _is_inert(page: Page) -> None:
    assert page.evaluate(MADE) == []
    assert page.evaluate("window.__hit") is None


def _saved(notebook: Notebook, lab: Lab) -> Path:
    """The notebook with the state of its widgets in its file."""
    notebook.page.evaluate(SAVE)
    file = lab.folder / Path(notebook.page.url).name
    text = file.read_text()
    assert "application/vnd.jupyter.widget-state+json" in text
    key = notebook.kernel("print(namespace.connection_string.split('SharedAccessKey=')[1].split(';')[0])")
    assert key
    assert key not in text
    return file


def _is_inert_as_a_document(browser: Browser, file: Path) -> None:
    page = browser.new_page()
    page.route("**/*", lambda route: route.continue_() if route.request.url.startswith("file:") else route.abort())
    page.goto(file.as_uri())
    expect(page.get_by_text(hostile_texts()["script"]).first).to_be_visible()
    assert page.evaluate(MADE) == []
    assert page.evaluate("window.__hit") is None
    page.close()


def _as_html(notebook: Path, folder: Path) -> Path:
    command = [sys.executable, "-m", "nbconvert", "--to", "html", "--output-dir", str(folder), str(notebook)]
    subprocess.run(command, check=True, capture_output=True)
    return folder / f"{notebook.stem}.html"
