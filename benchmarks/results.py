"""What a benchmark has measured, and the table of all of them."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table

__all__ = ["Result", "show", "write_page"]

_PAGE: Final = Path(__file__).resolve().parents[1] / "docs" / "reference" / "performance.md"
_HEAD: Final = """\
# Performance

Measured by `make bench`, which writes this page. Every figure is a ratio: to the plain SDK doing the same in the same
run, or to the physical limit (so many round trips of so many milliseconds), because seconds alone say more of the
machine than of the code; only what somebody waits for in a notebook is said in seconds. The emulator, the SDK, the
browser and sbnotebook share the machine.

"""


class Result(NamedTuple):
    """One figure.

    Args:
        what: was measured, with sizes and settings.
        measured: the figure with its unit, and what stands beside it.
        target: what it must reach, empty where it is only reported.
        reached: whether it does; None where there is no target.
    """

    what: str
    measured: str
    target: str = ""
    reached: bool | None = None


def show(results: Iterable[Result]) -> None:
    """Print results as a table."""
    table = Table("what", "measured", "must reach", "reached")
    for result in results:
        table.add_row(result.what, result.measured, result.target, _said(result.reached))
    Console().print(table)


def write_page(results: Iterable[Result]) -> None:
    """Write the page of the documentation, with the machine and the date."""
    rows = [f"| {r.what} | {r.measured} | {r.target} | {_said(r.reached)} |" for r in results]
    table = "\n".join(["| what | measured | must reach | reached |", "|---|---|---|---|", *rows])
    machine = (
        f"Measured on {datetime.now(UTC):%Y-%m-%d} with {os.cpu_count()} cores ({platform.machine()}, "
        f"{platform.system()}), Python {platform.python_version()}, azure-servicebus {version('azure-servicebus')}."
    )
    _PAGE.write_text(f"{_HEAD}{machine}\n\n{table}\n")


def _said(reached: bool | None) -> str:
    return {None: "", True: "yes", False: "no"}[reached]
