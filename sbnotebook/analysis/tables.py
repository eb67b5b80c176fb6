"""Show messages, plans, reports and other rows as tables: HTML for notebooks, text for terminals.

Texts from messages are escaped and cut at a length, and are never evaluated. Characters that a terminal acts on, or
that change the reading order, are shown as a dot.
"""

from __future__ import annotations

import copy
import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final, Self, TypeAlias, TypeVar, overload

from sbnotebook.model import EntityAddress, Message, MessageState, Outcome, OutcomeStatus, Report, Resubmit
from sbnotebook.model.body import json_letters
from sbnotebook.settlement import Preview

if TYPE_CHECKING:
    import pandas as pd

MAX_ROWS: Final = 50
_MAX_CELL, _ENDING = 120, 40
"""The most characters of a cell, and of the note about a cut: a text with this note is not cut again."""
_TEXT_WIDTH: Final = 140
_MAX_FAILURES: Final = 20
_FEW: Final = 3
"""Messages that were skipped for the same reason and are rows; more are one sentence."""
_FIRST: Final = "The first messages"
_REMOVING: Final = ("complete", "dead-letter", "defer", "purge", "cancel")
"""Verbs of actions that a new plan continues: it finds only messages that were not settled."""
_CONTEXT: Final = 24
"""Characters shown around the change of an edit in a long value."""
_SHORT: Final = 28
"""The longest cell that stays on its line, such as a time."""
_SHORT_IN_HTML: Final = len("MaxDeliveryCountExceeded")
_LONG_WORD: Final = re.compile(r"\S{19,}")
_NAME_PARTS: Final = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[._/\\:])(?=[A-Za-z])")
"""Between the parts of a name, such as ``System.Invalid|Operation|Exception``."""
_CELL_CSS: Final = "text-align:left;vertical-align:top;padding:.3em .6em"  # pages outside Jupyter have no padding
_SHORT_CSS: Final = f"{_CELL_CSS};white-space:pre"
_LONG_CSS: Final = f"{_CELL_CSS};white-space:pre-wrap;overflow-wrap:anywhere;min-width:9em;max-width:32em"
# What matters comes first: a notebook at 1,280 pixels has room up to the body.
MESSAGE_COLUMNS: Final = (
    "sequence_number",
    "enqueued_time",
    "state",
    "scheduled_enqueue_time",
    "subject",
    "delivery_count",
    "dead_letter_reason",
    "dead_letter_error_description",
    "body_text",
    "message_id",
)
LOCKED_COLUMNS: Final = ("sequence_number", "locked_until", *MESSAGE_COLUMNS[1:])
"""For locked messages: the end of each lock is beside its number."""
# A notebook would set a text between two dollar signs as a formula, links included.
_NO_FORMULAS: Final = 'class="mathjax_ignore tex2jax_ignore"'


def html_table(headers: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "") -> str:
    """Return rows as an HTML table; every cell is escaped."""
    head = "".join(f'<th style="{_CELL_CSS}">{_html(name).replace("_", "_<wbr>")}</th>' for name in headers)
    body = "".join(f"<tr>{''.join(map(_html_cell, row))}</tr>" for row in rows)
    title = f'<caption style="caption-side:top;text-align:left">{_html(caption)}</caption>' if caption else ""
    return f"<table {_NO_FORMULAS}>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def text_table(
    headers: Sequence[str], rows: Sequence[Sequence[Any]], caption: str = "", *, one_line: bool = False
) -> str:
    """Return rows as a text table without control characters."""
    from prettytable import PrettyTable, TableStyle

    cells = [list(headers), *([printable(cell_text(value)) for value in row] for row in rows)]
    limits = _limits(cells)
    if one_line:
        cells = [
            [text if len(text) <= width else f"{text[: width - 1]}…" for text, width in zip(row, limits, strict=True)]
            for row in cells
        ]
    table = PrettyTable()
    table.set_style(TableStyle.SINGLE_BORDER)
    table.header = False  # its names would have to differ: they are the first row
    for row in cells:
        table.add_row(row, divider=row is cells[0])
    table.align = "l"
    if not one_line:
        table.max_width.update(zip(table.field_names, limits, strict=True))
    # Above the table and not its title, which would be broken at the table's width.
    return f"{printable(caption)}\n{table if headers else ''}".strip()


def _limits(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return a limit for each column: long ones share the rest of the line with the short ones."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    long = [width > _SHORT for width in widths]
    taken = sum(0 if is_long else width for width, is_long in zip(widths, long, strict=True))
    room = (_TEXT_WIDTH - 1 - taken - 3 * len(widths)) // max(1, sum(long))
    return [max(room, _SHORT // 2) if is_long else _TEXT_WIDTH for is_long in long]


def messages_table(
    messages: Sequence[Message],
    most: int,
    where_from: str = "",
    columns: Sequence[str] = MESSAGE_COLUMNS,
    note: str = "",
    *,
    rows: Iterable[object] | None = None,
) -> tuple[list[str], list[list[Any]], str]:
    """Return the columns of the first messages that are not empty, the rows, and a caption.

    Give the first messages as ``rows`` with these columns, where a message would decode its text once more.
    """
    counted = counted_rows("message", len(messages), most)
    caption = ". ".join(filter(None, (f"{where_from}: {counted}" if where_from else counted, note)))
    return *used_columns(columns, messages[:most] if rows is None else rows), caption


def preview_html(preview: Preview) -> str:
    found = [html_table(*table) for table in _preview_tables(preview)]
    return "".join([f"<p {_NO_FORMULAS}><strong>Plan: {_html(preview.sentence)}</strong></p>", *found])


def preview_text(preview: Preview) -> str:
    found = [text_table(*table, one_line=table[-1] == _FIRST) for table in _preview_tables(preview)]
    return "\n".join([f"Plan: {printable(preview.sentence)}", *found])


def _preview_tables(preview: Preview) -> list[Table]:
    found: list[Table] = [(*used_columns(MESSAGE_COLUMNS, preview.messages), _FIRST)] if preview.messages else []
    changes = [
        [each.sequence_number, each.field, *around_difference(each.before, each.after)] for each in preview.changes
    ]
    changed: Table = ["sequence_number", "field", "before", "after"], changes, "What changes in them"
    return [*found, changed] if changes else found


def report_html(report: Report) -> str:
    said, table = _report_parts(report)
    return "".join([*(f"<p {_NO_FORMULAS}>{_html(line)}</p>" for line in said), *(html_table(*each) for each in table)])


def report_text(report: Report) -> str:
    said, table = _report_parts(report)
    return "\n".join([*map(printable, said), *(text_table(*each) for each in table)])


def _report_parts(report: Report) -> tuple[list[str], list[Table]]:
    """Return sentences, and the first outcomes as rows, without those whose reason a sentence says for many."""
    failures = report.failures
    reasons = Counter(_reason(each) for each in failures if each.status is OutcomeStatus.SKIPPED)
    many = {reason: count for reason, count in reasons.most_common(5) if count > _FEW}
    rows = (each for each in failures if each.status is not OutcomeStatus.SKIPPED or _reason(each) not in many)
    summary = str(report) if report.speed is None else f"{report} ({report.speed})"
    said = [summary, *(f"{count:,} skipped: {reason}" for reason, count in many.items())]
    shown = list(islice(rows, _MAX_FAILURES))
    more = f", the first {_MAX_FAILURES} shown" if len(failures) > _MAX_FAILURES else ""
    caption = f"Not settled: {len(failures):,} of {len(report):,}{more}"
    columns = ("sequence_number", "message_id", "status", "condition", "description", "tracking_id")
    return said, [(*used_columns(columns, shown), caption)] if shown else []


def _reason(skipped: Outcome) -> str:
    reason = skipped.description or ""
    return reason + again(skipped) if "interrupted" in reason else reason


def again(skipped: Outcome) -> str:
    """Return a sentence, after a space, about running interrupted work again; an empty text where none helps."""
    if skipped.verb in ("send", "schedule"):
        return " Running it again sends the settled ones again."
    # Clones of dead letters go elsewhere; those of other messages may be among the messages of a new plan.
    is_left_out = skipped.verb in _REMOVING or (skipped.verb == Resubmit.verb and skipped.entity.sub_queue is not None)
    return " Run it again to continue." if is_left_out else ""


def printable(text: str, keep: str = "") -> str:
    """Replace each character of a text that cannot be printed with a dot."""
    if text.isprintable():
        return text
    return "".join(character if character.isprintable() or character in keep else "·" for character in text)


def used_columns(columns: Sequence[str], items: Iterable[object]) -> tuple[list[str], list[list[Any]]]:
    return without_empty(columns, [[_value_of(item, name) for name in columns] for item in items])


def _value_of(item: object, name: str) -> Any:
    value = getattr(item, name, None)
    if name == "came_back" and value:
        return f"came back {value:,} time{'s' if value != 1 else ''}"
    text = json_letters(value) if name == "body_text" and value else value
    # A body may be large, and many rows are shown: cut it before the next one is read.
    return cell_text(text) if type(text) is str else text


def around_difference(before: str, after: str) -> tuple[str, str]:
    """Cut most of the common beginning and end of two values, so that the change is visible."""
    head = _same_start(before, after)
    tail = _same_start(before[head:][::-1], after[head:][::-1])
    start, rest = max(0, head - _CONTEXT), max(0, tail - _CONTEXT)

    def window(value: str) -> str:
        return f"{'…' if start else ''}{value[start : len(value) - rest]}{'…' if rest else ''}"

    return window(before), window(after)


def _same_start(one: str, other: str) -> int:
    pairs = zip(one, other, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))


def counted_rows(what: str, count: int, max_rows: int) -> str:
    shown = f", the first {max_rows} shown" if count > max_rows else ""
    return f"{count:,} {what}{'s' if count != 1 else ''}{shown}"


def _html_cell(value: Any) -> str:
    text = printable(cell_text(value), keep="\n\t")
    if len(text) <= _SHORT_IN_HTML:
        return f'<td style="{_SHORT_CSS}">{html.escape(text)}</td>'
    broken = _LONG_WORD.sub(lambda word: _NAME_PARTS.sub("<wbr>", word[0]), html.escape(text))
    return f'<td style="{_LONG_CSS}">{broken}</td>'


def _html(text: str) -> str:
    return html.escape(printable(text))


def cell_text(value: Any) -> str:
    """Return the text of a cell, cut at a length; times are in ISO format, and None is empty."""
    if value is None:
        return ""
    text = (
        value.isoformat(sep=" ", timespec="seconds").replace("+00:00", "Z")
        if isinstance(value, datetime)
        else str(value)
    )
    return text if len(text) <= _MAX_CELL + _ENDING else f"{text[:_MAX_CELL]}… ({len(text):,} characters)"


# ---------------------------------------------------------------- results that are shown as tables

Table: TypeAlias = tuple[Sequence[str], Sequence[Sequence[Any]], str]
"""Headers, rows and a caption."""
T = TypeVar("T")


class Shown:
    """A result that is shown as a table of its first rows: HTML in a notebook, text elsewhere.

    Without rows, its caption is shown alone.
    """

    _one_line: ClassVar[bool] = True
    """True cuts long cells in the text; False breaks them into lines."""

    def _table(self, most: int) -> Table:
        raise NotImplementedError

    def as_text(self, max_rows: int = 20) -> str:
        """Return a text table, as shown in terminals.

        Args:
            max_rows: the maximum number of rows.
        """
        headers, rows, caption = self._table(max_rows)
        return text_table(headers, rows, caption, one_line=self._one_line) if rows else printable(caption)

    def as_html(self, max_rows: int = MAX_ROWS) -> str:
        """Return an HTML table, as shown in notebooks; texts of messages are escaped.

        Args:
            max_rows: the maximum number of rows.
        """
        headers, rows, caption = self._table(max_rows)
        return html_table(headers, rows, caption) if rows else f"<p>{html.escape(printable(caption))}</p>"

    def __repr__(self) -> str:
        return self.as_text()

    def _repr_html_(self) -> str:
        return self.as_html()


class ShownRows(Shown, Sequence[T]):
    """A sequence that is shown as a table, and becomes a frame. A slice of it is the same with fewer rows."""

    _fields: ClassVar[Sequence[str]]
    """The attributes of a row that are the columns of a frame."""

    def __init__(self, rows: Iterable[T] = ()) -> None:
        self._all = tuple(rows)

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas frame with a row for each of them."""
        import pandas as pd

        values = ([getattr(row, name) for name in self._fields] for row in self._all)
        rows = [[str(each) if isinstance(each, EntityAddress) else each for each in row] for row in values]
        return pd.DataFrame(rows, columns=pd.Index(self._fields))

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[T]:
        return iter(self._all)

    @overload
    def __getitem__(self, index: int) -> T: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> T | Self:
        if not isinstance(index, slice):
            return self._all[index]
        part = copy.copy(self)
        part._all = self._all[index]  # noqa: SLF001 (of the same class)
        return part


def without_empty(headers: Sequence[str], rows: Sequence[Sequence[Any]]) -> tuple[list[str], list[list[Any]]]:
    empty = (None, "", 0, MessageState.ACTIVE)
    used = [place for place in range(len(headers)) if any(row[place] not in empty for row in rows)]
    return [headers[place] for place in used], [[row[place] for place in used] for row in rows]
