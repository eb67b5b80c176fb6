"""``%sb_triage`` in JupyterLab with 10,000 and 100,000 dead letters: how long until a user sees some, and has all.

Emulator, server, kernel and Chromium are processes of their own on the same machine; each size has a fresh kernel and
page, which has connected and nothing more. It is measured in the page, from the request to run the cell: until the
first row can be read, and until all rows are there with their causes and nothing is peeked any more.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Final

from benchmarks.emulators import emulator
from benchmarks.results import Result, show
from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.model import Message
from sbnotebook.settlement import Connection
from tests.browser.conftest import Lab, chromium, run_notebook, running_lab

__all__ = ["measure"]

SIZES: Final = (10_000, 100_000)
TARGETS: Final = {10_000: 3.0, 100_000: 5.0}
"""Seconds until all can be used."""
REASONS: Final = ("Invalid", "Late", "Unknown carrier", "Expired")
CONNECT: Final = "%load_ext sbnotebook\n%sb_connect env:SBNOTEBOOK_CONNECTION"
WAIT: Final = """async (count) => {
    const started = performance.now();
    const book = window.jupyterapp.shell.currentWidget.content;
    book.activeCellIndex = 1;
    window.jupyterapp.commands.execute('notebook:run-cell');
    const until = async (test) => {
        while (!test()) await new Promise((resolve) => setTimeout(resolve, 5));
        return (performance.now() - started) / 1000;
    };
    const said = (text) => [...document.querySelectorAll('.sbn-text')].some((each) => each.textContent.includes(text));
    const first = await until(() => document.querySelector('.sbn-row .sbn-cell')?.textContent);
    const store = document.querySelector('.sbn-table').store;
    const all = `${count.toLocaleString('en-US')} messages, peeked at`;
    const every = await until(() => store.rowCount === count && said(all) && store.causes.length);
    return [first, every];
}"""


def measure() -> list[Result]:
    """Measure both sizes."""
    results: list[Result] = []
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home,
        emulator() as (connection_string, _),
        running_lab(Path(home)) as lab,
    ):
        for count in SIZES:
            name = f"bench-{count}"
            _fill(connection_string, name, count)
            results.append(_measured(lab, connection_string, name, count))
    return results


def _fill(connection_string: str, name: str, count: int) -> None:
    """Send messages with the properties of dead letters, which look the same to a reader."""

    def letter(number: int) -> Message:
        reason = REASONS[number % len(REASONS)]
        fault = {"DeadLetterReason": reason, "DeadLetterErrorDescription": f"Flight {number} has no tail number"}
        body = f'{{"flight": {number}, "carrier": "UA", "note": "{"x" * 200}"}}'.encode()
        return Message(body=body, message_id=f"m{number}", subject="flight", application_properties=fault)

    with Namespace(Target(Connection(connection_string), ""), archive=False) as namespace:
        namespace.create_queue(name)
        namespace.entity(name).send(map(letter, range(count)), show_progress=False).raise_for_failures()


def _measured(lab: Lab, connection_string: str, name: str, count: int) -> Result:
    set_up = f"import os; os.environ['SBNOTEBOOK_CONNECTION'] = {connection_string!r}"
    with chromium() as browser:
        notebook = run_notebook(browser, lab, [f"{set_up}\n{CONNECT}", "pass"])
        notebook.page.evaluate(
            "(code) => window.jupyterapp.shell.currentWidget.content.widgets[1].model.sharedModel.setSource(code)",
            f"%sb_triage {name}",
        )
        first, every = notebook.page.evaluate(WAIT, count)
        largest = notebook.largest / 1e6
        notebook.close()
    most = TARGETS.get(count)
    return Result(
        f"%sb_triage of {count:,} messages in JupyterLab, until all of them and their causes are there",
        f"{every:.2f} s, the first rows after {first:.2f} s; the largest message {largest:.2f} MB",
        f"at most {most:.0f} s" if most else "",
        every <= most if most else None,
    )


if __name__ == "__main__":
    show(measure())
