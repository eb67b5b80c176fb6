"""The results of benchmarks, and their table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

__all__ = ["Result", "show"]


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


def _said(reached: bool | None) -> str:
    return {None: "", True: "yes", False: "no"}[reached]
