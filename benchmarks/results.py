"""The results of benchmarks, and their table."""

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

`make bench` measures these figures and writes this page. Most are ratios, because seconds depend on the machine. Each
compares sbnotebook with the plain SDK in the same run, or with the physical limit: the number of round trips times
their duration. Times that you wait for in a notebook are in seconds. The emulator, the SDK, the browser and sbnotebook
share the machine.


"""


class Result(NamedTuple):
    """One figure.

    Args:
        what: the measured action, with sizes and settings.
        measured: the figure with its unit, and the figures to compare it with.
        target: the value to reach, empty if there is none.
        reached: whether it reaches the target; None without a target.
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
