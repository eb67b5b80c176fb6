"""Show the results of magics: tables, boards and lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sbnotebook.analysis import tables
from sbnotebook.client import LockedBatch, Messages
from sbnotebook.model import Report

if TYPE_CHECKING:
    from IPython.core.interactiveshell import InteractiveShell

    from sbnotebook.magics.current import Current


def say(text: str, file: Any = None) -> None:
    """Write a line below the cell."""
    print(text, file=file)


def has_widgets(shell: Any) -> bool:
    """Return True for the shell of a notebook, which can show widgets; a terminal has text."""
    return getattr(shell, "kernel", None) is not None


def show_results(shell: InteractiveShell, current: Current) -> None:
    """Have a shell show reports and messages as tables, and locked messages as a board."""
    formatters: Any = shell.display_formatter
    html, plain = formatters.formatters["text/html"], formatters.formatters["text/plain"]

    def messages_html(messages: Messages) -> str | None:
        rows = current.settings.max_rows
        return messages.as_html() if rows is None else messages.as_html(rows)

    def messages_text(messages: Messages, printer: Any, _cycle: bool) -> None:
        rows = current.settings.max_rows
        printer.text(messages.as_text() if rows is None else messages.as_text(rows))

    # Reports and messages are tables in notebooks and terminals; a locked batch is a board in notebooks.
    html.for_type(Report, tables.report_html)
    plain.for_type(Report, _report_text)
    html.for_type(Messages, messages_html)
    plain.for_type(Messages, messages_text)
    if has_widgets(shell):
        formatters.mimebundle_formatter.for_type(LockedBatch, _board(current))


def _report_text(report: Report, printer: Any, _cycle: bool) -> None:
    printer.text(tables.report_text(report))


def _board(current: Current) -> Any:
    def board(batch: LockedBatch, include: Any = None, exclude: Any = None) -> Any:
        if not (batch.is_open and current.holds(batch)):
            return None  # a table shows its last state
        shown: Any = current.board()
        return shown._repr_mimebundle_(include=include, exclude=exclude)

    return board
