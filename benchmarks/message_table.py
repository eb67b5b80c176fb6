"""The message table in JupyterLab with 10,000 and 100,000 messages: how long a user waits, and what memory it takes.

Server, kernel and Chromium share the machine, and each size has a fresh kernel and page. The messages are in the kernel
already; the time to the first row is from the request to run the cell to a row in the page, with the import of the
widgets. What happens in the browser is measured there, the drawing included: from the call to the next frame.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from benchmarks.results import Result
from tests.browser.conftest import Notebook, chromium, run_notebook, running_lab

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["measure"]

SIZES: Final = (10_000, 100_000)
MOST: Final = {"first row": 1_000, "text filter": 100, "sort": 100, "facets": 100, "removal of 1,000": 200}
"""Milliseconds."""
MAKE: Final = """
from datetime import UTC, datetime, timedelta
from sbnotebook import PeekedMessage
from sbnotebook.client import Messages

def message(number):
    fault = {"DeadLetterErrorDescription": f"Flight {number} has no tail number", "attempt": number % 7}
    return PeekedMessage(
        entity="orders/$dlq",
        sequence_number=number,
        enqueued_time=datetime(2026, 11, 1, tzinfo=UTC) + timedelta(seconds=number),
        subject=("UA", "AA", "DL")[number % 3],
        message_id=f"{number * 7919 % 1_000_003:08x}",
        delivery_count=number % 5,
        application_properties={"DeadLetterReason": ("Invalid", "Late", "Unknown carrier")[number % 3], **fault},
        body=f'{{"flight": {number}, "carrier": "UA", "note": "' .encode() + b"x" * 200 + b'"}',
    )

messages = Messages(message(number) for number in range(COUNT))
"""
SHOW: Final = """
from sbnotebook.widgets.table.message_table import MessageTable
table = MessageTable(messages)
table
"""
FIRST_ROW: Final = """async () => {
    const started = performance.now();
    const book = window.jupyterapp.shell.currentWidget.content;
    book.activeCellIndex = 1;
    window.jupyterapp.commands.execute('notebook:run-cell');
    const soon = () => new Promise((resolve) => setTimeout(resolve, 5));
    while (!document.querySelector('.sbn-row .sbn-cell')?.textContent) await soon();
    const first = performance.now() - started;
    while (document.querySelector('.sbn-table').store.state !== 'ready') await soon();
    return [first, performance.now() - started];
}"""
ACTIONS: Final = """async () => {
    const { store } = document.querySelector('.sbn-table');
    const pause = (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds));
    const drawn = () => new Promise((resolve) => requestAnimationFrame(() => setTimeout(resolve)));
    const search = document.querySelector('.sbn-search');
    while (store.texts.length < store.total || store.texts.includes(undefined)) await pause(50);
    await pause(1000); // facets, too, are drawn
    const measured = {};
    const measure = async (name, actions) => {
        measured[name] = [];
        for (const action of actions) {
            const shown = new Promise((resolve) => store.addEventListener('shown', resolve, { once: true }));
            const started = performance.now();
            action();
            await shown;
            await drawn();
            measured[name].push(performance.now() - started);
            await pause(300 + 17 * Math.random()); // 300 ms are 18 frames: each would begin at the same time in a frame
        }
    };
    const find = (word) => () => store.setFilter('text', (row) => store.searchText(row).includes(word));
    await measure('text filter', ['flight 77', 'tail', 'zzz', '00a', 'late'].map(find));
    store.clearFilters();
    const orders = ['message_id', 'enqueued_time', 'delivery_count', 'dead_letter_error_description', 'subject'];
    await measure('sort', orders.map((name) => () => store.sortBy(name)));
    store.sortBy(null);
    const removal = (start) => () => store.remove(Uint32Array.from({ length: 1000 }, (_, index) => 9 * index + start));
    await measure('removal of 1,000', [0, 1, 2, 3, 4].map(removal));
    return measured;
}"""
FACETS: Final = """async () => {
    const { store } = document.querySelector('.sbn-table');
    const list = document.querySelector('.sbn-facets');
    const times = [];
    for (const subject of ['UA', 'AA', 'DL', 'UA', 'AA']) {
        const changed = new Promise((resolve) => new MutationObserver(resolve).observe(list, {
            childList: true, subtree: true, characterData: true, attributes: true,
        }));
        const started = performance.now();
        store.setFilter('subject', (row) => store.value(row, 'subject') === subject);
        await changed;
        times.push(performance.now() - started);
        await new Promise((resolve) => setTimeout(resolve, 500));
    }
    store.clearFilters();
    return times;
}"""


def measure() -> list[Result]:
    """Measure both sizes."""
    results: list[Result] = []
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home,
        running_lab(Path(home)) as lab,
    ):
        for count in SIZES:
            with chromium("--enable-precise-memory-info") as browser:
                notebook = run_notebook(browser, lab, [MAKE.replace("COUNT", str(count)), "pass"])
                results += _measured(notebook, count)
                notebook.close()
    return results


def _measured(notebook: Notebook, count: int) -> list[Result]:
    page = notebook.page
    page.evaluate(
        "(code) => window.jupyterapp.shell.currentWidget.content.widgets[1].model.sharedModel.setSource(code)", SHOW
    )
    empty = _heap(page)
    first, every = page.evaluate(FIRST_ROW)
    times: dict[str, list[float]] = {"first row": [first], **page.evaluate(ACTIONS), "facets": page.evaluate(FACETS)}
    results = [_result(name, count, times[name]) for name in MOST]
    transfer = f"all rows after {every / 1000:.2f} s, the largest message {notebook.largest / 1e6:.2f} MB"
    memory = f"{_heap(page) - empty:.0f} MB more in the page"
    return [*results, Result(f"message table with {count:,} messages: transfer and memory", f"{transfer}, {memory}")]


def _result(name: str, count: int, times: list[float]) -> Result:
    middle, most = median(times), MOST[name]
    spread = f" ({min(times):.0f} to {max(times):.0f} ms)" if len(times) > 1 else ""
    what = f"message table with {count:,} messages: {name}"
    return Result(what, f"{middle:.0f} ms{spread}", f"at most {most} ms", middle <= most)


def _heap(page: Page) -> float:
    memory: Any = page.evaluate("() => performance.memory.usedJSHeapSize")
    return memory / 1e6
