"""What the magics show and ask."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Protocol

from IPython.core.error import StdinNotImplementedError
from IPython.display import display

from sbnotebook.client import tables
from sbnotebook.errors import DecisionError
from sbnotebook.model import Report

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from sbnotebook.magics.arguments import Given

__all__ = ["Applicable", "carry_out", "register", "say"]


class Applicable(Protocol):
    """A plan: shows what it would do, and does it."""

    def __len__(self) -> int:
        """With how many messages."""
        ...

    def apply(self, *, max_in_flight: int = ..., rate: float | None = ...) -> Report:
        """Carry it out."""
        ...


def carry_out(plan: Applicable, given: Given, *, asks: bool) -> Applicable | Report:
    """Show a plan, ask, and carry it out.

    Args:
        plan: what is to be done.
        given: holds ``dry_run``, ``yes``, and where the magic has them ``max_in_flight`` and ``rate``.
        asks: whether a plan needs a confirmation here.

    Returns:
        The plan itself for a dry run, otherwise the report.

    Raises:
        DecisionError: it was not confirmed, or nobody can be asked; nothing was done.
    """
    if given.dry_run:
        return plan
    display(plan)
    if asks and len(plan) and not given.yes:
        _confirm()
    limits = {name: getattr(given, name) for name in ("max_in_flight", "rate") if hasattr(given, name)}
    report = plan.apply(**limits)
    if not report.ok:
        # Said at once, because the report may be bound to a name, or not be the last value of its cell.
        say(f"Not every message was settled: {report}.", file=sys.stderr)
    return report


def say(text: str, file: Any = None) -> None:
    """Write a line below the cell.

    Args:
        text: of our own; what comes from messages is shown by :mod:`sbnotebook.client.tables`.
        file: None for the standard output.
    """
    print(text, file=file)


def register(shell: InteractiveShell) -> None:
    """Have a shell show reports as tables."""
    formatters: Any = shell.display_formatter
    formatters.formatters["text/html"].for_type(Report, tables.report_html)
    formatters.formatters["text/plain"].for_type(Report, _pretty_report)


def _pretty_report(report: Report, printer: Any, _cycle: bool) -> None:
    printer.text(tables.report_text(report))


def _confirm() -> None:
    try:
        answer = input("Carry the plan out? [y/N] ")
    except (EOFError, StdinNotImplementedError):
        raise DecisionError("Nobody can be asked here, so nothing was done: check the plan and add --yes.") from None
    if answer.strip().lower() not in ("y", "yes"):
        raise DecisionError("Nothing was done: the plan was not confirmed.")
