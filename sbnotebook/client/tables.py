"""Messages, reports and other rows as tables: HTML for notebooks, text for terminals.

Everything that comes from a message is escaped and cut at a length, and is never evaluated.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final

from sbnotebook.model import ReceivedMessage

__all__ = ["html_table", "messages_html", "messages_text", "text_table"]

MAX_ROWS: Final = 50
_MAX_CELL: Final = 120
_CSS: Final = "text-align:left;vertical-align:top;white-space:pre-wrap;overflow-wrap:anywhere;max-width:32em"
_COLUMNS: Final = (
    "sequence_number",
    "enqueued_time",
    "state",
    "subject",
    "message_id",
    "delivery_count",
    "dead_letter_reason",
    "dead_letter_error_description",
    "body_text",
)


def html_table(headers: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "") -> str:
    """Rows as an HTML table; every cell is escaped."""
    head = "".join(f'<th style="text-align:left">{html.escape(name)}</th>' for name in headers)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CSS}">{html.escape(_cell(value))}</td>' for value in row) + "</tr>"
        for row in rows
    )
    title = f'<caption style="caption-side:top;text-align:left">{html.escape(caption)}</caption>' if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def text_table(headers: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "") -> str:
    """Rows as a text table without control characters."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(caption) if caption else None, title_justify="left")
    for name in headers:
        table.add_column(Text(name), overflow="fold")
    for row in rows:
        table.add_row(*(Text(_printable(_cell(value))) for value in row))
    console = Console(width=140, color_system=None, force_terminal=False)
    with console.capture() as captured:
        console.print(table)
    return captured.get().rstrip()


def messages_html(messages: Sequence[ReceivedMessage], where_from: str = "", max_rows: int = MAX_ROWS) -> str:
    """Messages as an HTML table of the columns that say something, the first rows only."""
    headers, rows = _message_rows(messages[:max_rows])
    return html_table(headers, rows, _caption(messages, where_from, max_rows))


def messages_text(messages: Sequence[ReceivedMessage], where_from: str = "", max_rows: int = 20) -> str:
    """Messages as a text table of the columns that say something, the first rows only."""
    headers, rows = _message_rows(messages[:max_rows])
    return text_table(headers, rows, _caption(messages, where_from, max_rows))


def _message_rows(messages: Sequence[ReceivedMessage]) -> tuple[list[str], list[list[Any]]]:
    values = [[getattr(message, name) for name in _COLUMNS] for message in messages]
    used = [index for index in range(len(_COLUMNS)) if any(row[index] not in (None, "") for row in values)]
    return [_COLUMNS[index] for index in used], [[row[index] for index in used] for row in values]


def _caption(messages: Sequence[ReceivedMessage], where_from: str, max_rows: int) -> str:
    count = f"{len(messages):,} message{'s' if len(messages) != 1 else ''}"
    shown = f", the first {max_rows} shown" if len(messages) > max_rows else ""
    return f"{where_from}: {count}{shown}" if where_from else f"{count}{shown}"


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = value.isoformat(sep=" ", timespec="seconds") if isinstance(value, datetime) else str(value)
    return text if len(text) <= _MAX_CELL else f"{text[:_MAX_CELL]}… ({len(text):,} characters)"


def _printable(text: str) -> str:
    # A terminal would act on control characters that a message holds.
    return "".join(character if character.isprintable() else "·" for character in text)
