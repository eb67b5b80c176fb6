"""Messages as a table in the browser, which searches, filters, sorts and selects without the kernel; its plain form.

The rows are sent once, when the browser asks for them, and are changed by row number; see ``static/index.js`` for the
other side. The browser sends its selection before any click that follows it, so the kernel acts on the latest one.
"""

from __future__ import annotations

import json
import re
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, Final

import anywidget
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import traitlets

from sbnotebook.analysis import frames, tables
from sbnotebook.analysis.groups import CAUSE, SUB_QUEUE, CauseReader, group_by_cause
from sbnotebook.analysis.page_columns import array_of_flags, array_of_numbers, array_of_values
from sbnotebook.client.messages import Messages
from sbnotebook.model import ReceivedMessage
from sbnotebook.model.json_text import Path, parse_path
from sbnotebook.model.report import counted
from sbnotebook.settlement import Resubmitted
from sbnotebook.widgets.blocks import Block, Button, Code, Field, Row, Table, Text
from sbnotebook.widgets.panel import Callbacks, answer_at_once, sentence, start
from sbnotebook.widgets.pretty import cell, visible
from sbnotebook.widgets.renderers.browser import module, style
from sbnotebook.widgets.table.message_detail import LONGEST_PATH, Decoded, body_part, detail_of
from sbnotebook.widgets.table.row_packing import (
    NOTHING,
    MessageKey,
    Rows,
    TableColumn,
    body_values,
    changed_cells,
    holding,
    matches,
    packets,
    path_name,
    shown_texts,
    table_columns,
    title_of,
)

_MAX_NOTE: Final = 10_000
_LONGEST_CAUSE: Final = 300
_TRAITS: Final = ("reason", "cause", "frame", "subject", "source")
_IN_TEXT: Final = 20
_MAX_FILTERS: Final = 50_000
_MOST_BODY_COLUMNS: Final = 20
_CAUSE: Final = TableColumn("cause", "text", hidden=True)
_CAUSES: Final = 200
"""Causes in one message, less than a megabyte."""
_kernels: Final[Any] = pc


@dataclass(frozen=True, slots=True)
class Causes:
    """The causes of the first rows of a table, in which each row is examined once."""

    fingerprints: list[str] = field(default_factory=list[str])
    """The cause of each row."""
    every: dict[str, dict[str, str]] = field(default_factory=dict[str, dict[str, str]])
    """The texts of each cause, by its fingerprint."""
    _read: CauseReader = field(default_factory=CauseReader)

    def and_of(self, table: pa.Table) -> Causes:
        """Return these, and those of the further rows of a table."""
        added: Any = table.slice(len(self.fingerprints))
        # By place: two entities may have messages with the same sequence number.
        places = array_of_numbers(np.arange(len(added), dtype=np.int64))
        number = added.schema.get_field_index("sequence_number")
        found, every = [""] * len(added), self.every.copy()
        for group in group_by_cause(added.set_column(number, "sequence_number", places), CAUSE, self._read):
            texts = {name: visible((getattr(group, name) or "")[:_LONGEST_CAUSE]) for name in _TRAITS}
            every.setdefault(group.fingerprint, {"fingerprint": group.fingerprint, **texts})
            for place in group.sequence_numbers:
                found[place] = group.fingerprint
        return Causes([*self.fingerprints, *found], every, self._read)


class MessageTable(anywidget.AnyWidget):
    """Messages as a table in the browser.

    Args:
        messages: to show at first.
        columns: those to show, in this order; by default those that most users need. Users can choose others in the
            table.
        facets: columns whose values are listed beside the table with their counts, to filter by. By default those for
            which this helps; () for none.
        timeline: show how many messages were enqueued when.
        causes: group the messages by what went wrong with them, and show the groups.
        countdown: show ``locked_until`` as the time left.
        label: the name of the table for screen readers.
        cause_action: the name of an action that each cause offers for its messages; ``on_act`` gets it.

    Example:
        >>> table = MessageTable(columns=["sequence_number", "subject"])
        >>> len(table.messages), table.selected_keys
        (0, ())
    """

    _esm = module("index.js")
    _css = style("look.css", "message_table.css", "facets.css", "timeline.css", "causes.css", "detail.css")
    options: Any = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        messages: Messages | Sequence[ReceivedMessage] = (),
        *,
        columns: Sequence[str] | None = None,
        facets: Sequence[str] | None = None,
        timeline: bool = False,
        causes: bool = False,
        countdown: bool = False,
        label: str = "Messages",
        cause_action: str = "",
    ) -> None:
        self.lock = threading.RLock()
        self.columns = columns
        self.with_causes = causes
        self.rows = Rows(_table_of(()))
        self.load = 0
        """Counts how often all rows were replaced."""
        self.selection: tuple[int, ...] = ()
        """The selected row numbers, in ascending order."""
        self.hidden = 0
        """How many of the selected messages a filter hides, in the view that was used last."""
        self.causes = Causes()
        self.notes: dict[str, str] = {}
        self.resubmits: dict[str, Resubmitted] = {}
        self._body_columns: dict[str, Path] = {}
        self.on_change, self.on_causes, self.on_act, self.on_note, self._on_selection = (
            Callbacks(self.say_problem) for _ in range(5)
        )
        self._is_finding = False
        self._finder: threading.Thread | None = None
        self._columns: list[TableColumn] = []
        self._filters: list[dict[str, Any]] = []  # as the browser made them, for the next page
        self._pages: dict[str, int] = {}  # the browser pages that show the table, and how many selections each was sent
        self.on_msg(self._receive)  # the page may answer on another thread before the constructor ends
        options = {"label": label, "facets": facets if facets is None else [*facets], "cause_action": cause_action}
        super().__init__(options=options | {"timeline": timeline, "causes": causes, "countdown": countdown})
        answer_at_once(self)
        self.show(messages)

    # ------------------------------------------------------------ the rows

    def show(
        self, messages: Messages | Sequence[ReceivedMessage], extra: Mapping[str, Sequence[object]] = NOTHING
    ) -> None:
        """Replace all rows. Selection, filters and sorting stay, the selection by key."""
        rows = self._with_body_columns(_table_of(messages), extra)
        with self.lock:
            keys = self.selected_keys
            self.rows, self.load, self.causes = rows, self.load + 1, Causes()
            self.selection = tuple(sorted(rows.present(keys))) if keys else ()
            self.hidden, self._columns = 0, table_columns(rows.with_extra(), rows.extra, self.columns)
            self._send_rows()
            self.on_change.tell()
        self._find_causes()
        if len(self.selection) != len(keys):
            self._on_selection.tell()

    def append(
        self, messages: Messages | Sequence[ReceivedMessage], extra: Mapping[str, Sequence[object]] = NOTHING
    ) -> None:
        """Add rows at the end. Messages that are already in the table are left out."""
        with self.lock:
            first = len(self.rows)
            self.rows = self.rows.extended(self._with_body_columns(_table_of(messages), extra))
            self._add_rows(first)
        self._find_causes()

    def patch(self, values: Mapping[MessageKey, Mapping[str, object]]) -> None:
        """Change cells. A column with a new name is added."""
        with self.lock:
            changes = self.rows.patch(values)
            kinds = {column.name: column for column in self._columns}
            for name, cells in changes.items():
                column, table = changed_cells(name, list(cells.values()), kinds.get(name))
                if name not in kinds:
                    self._columns.insert(1, column)  # near the front, to be seen without scrolling
                rows = list(cells)
                for packet in packets(table, [column]) if self._pages else ():
                    numbers = _packed_numbers(rows[packet.first : packet.first + packet.count])
                    self._emit("patch", buffers=[packet.data, numbers], column=column.message, parts=packet.parts)
            if changes:
                self.on_change.tell()

    def remove(self, keys: Iterable[MessageKey]) -> None:
        """Remove rows, also from the selection."""
        with self.lock:
            numbers = self.rows.present(keys)
            self.rows.removed[numbers] = True
            before = len(self.selection)
            self.selection = tuple(number for number in self.selection if not self.rows.removed[number])
            self._emit("remove", buffers=[_packed_numbers(numbers)])
            self.on_change.tell()
        if len(self.selection) != before:
            self._on_selection.tell()

    @property
    def messages(self) -> Messages:
        """Return all messages, in the order in which they came."""
        return self.rows.messages()

    @property
    def count(self) -> int:
        """Return how many messages there are, without those that were removed."""
        return len(self.rows) - int(self.rows.removed.sum())

    def add_body_column(self, path: Path) -> str:
        """Add a column with the value at a path in each JSON body, also in those that come later."""
        name = path_name(path)
        while name not in self._body_columns:
            rows = self.rows
            values = body_values(rows.table, path)  # which may take seconds
            with self.lock:
                if len(self._body_columns) >= _MOST_BODY_COLUMNS:
                    raise ValueError(f"The table has {_MOST_BODY_COLUMNS} such columns already: run the cell again.")
                if rows is not self.rows:
                    continue
                self._body_columns[name] = path
                rows.extra[name] = values
                self._add_rows(len(rows))
        return name

    def _with_body_columns(self, table: pa.Table, extra: Mapping[str, Sequence[object]]) -> Rows:
        return Rows(table, {**extra, **{name: body_values(table, path) for name, path in self._body_columns.items()}})

    # ------------------------------------------------------------ the selection

    def select(self, keys: Iterable[MessageKey]) -> None:
        """Select these messages and no others."""
        with self.lock:
            numbers = self.rows.present(keys)
        self.select_rows(numbers, self.hidden)

    def select_rows(self, numbers: Iterable[int], hidden: int) -> None:
        """Select these rows and no others, of which a filter hides so many."""
        with self.lock:
            self.selection, self.hidden = tuple(sorted(numbers)), hidden
            self._send_selection()
            self.on_change.tell()
        self._on_selection.tell()

    @property
    def selected_keys(self) -> tuple[MessageKey, ...]:
        """Return the keys of the selected messages."""
        with self.lock:
            return tuple(self.rows.keys[number] for number in self.selection)

    @property
    def selected(self) -> Messages:
        """Return the selected messages, with all columns."""
        with self.lock:
            return self.rows.messages(self.selection)

    def on_selection(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call a function whenever the selection changes."""
        return self._on_selection(callback)

    # ------------------------------------------------------------ causes and notes

    def find_causes(self) -> None:
        """Group the messages by cause, these and all that follow, in the background; only where causes are shown."""
        self._is_finding = self.with_causes
        self._find_causes()

    def wait_for_causes(self, timeout: float) -> bool:
        if finder := self._finder:
            finder.join(timeout)
        return self._finder is None

    def count_causes(self, keys: Iterable[MessageKey]) -> Counter[str]:
        """Count messages by the fingerprint of their cause, without those whose cause is not known."""
        with self.lock:
            places = (self.rows.numbers.get(key) for key in keys)
            found = self.causes.fingerprints
            return Counter(found[place] for place in places if place is not None and place < len(found))

    def set_notes(self, notes: Mapping[str, str], resubmits: Mapping[str, Resubmitted]) -> None:
        self.notes, self.resubmits = dict(notes), dict(resubmits)
        self._send_notes()
        self.on_change.tell()

    def _find_causes(self) -> None:
        with self.lock:
            if self._is_finding and self._finder is None:
                self._finder = start(self._examine, failed=self._miss_causes)

    def _examine(self) -> None:
        """Find the causes of rows until each has one; rows may come, or be replaced, meanwhile."""
        while True:
            with self.lock:
                load, rows, before = self.load, self.rows, self.causes
                if len(before.fingerprints) == len(rows):
                    self._finder = None
                    return
            causes = before.and_of(rows.table)
            with self.lock:
                if load != self.load:
                    continue
                self.causes = causes
                self._columns = [column for column in self._columns if column.name != _CAUSE.name] + [_CAUSE]
                self._send_columns()
                self._send_packets([_CAUSE], len(before.fingerprints))
                self._send_causes(len(before.every))
                self.on_change.tell()
            self.on_causes.tell()

    def _miss_causes(self, problem: str) -> None:
        self._finder = None
        self.say_problem(problem)

    # ------------------------------------------------------------ to the browser

    def __repr__(self) -> str:
        if self.with_causes:
            return self.messages.groups().as_text()
        with self.lock:
            rows, names = self.rows, self.shown_columns
            first = np.flatnonzero(~rows.removed)[:_IN_TEXT].tolist()
            cells = [[rows.cell(row, name) for name in names] for row in first]
        more = f", the first {_IN_TEXT} shown" if self.count > _IN_TEXT else ""
        return tables.text_table(names, cells, f"{counted(self.count)}{more}", one_line=True)

    @property
    def shown_columns(self) -> list[str]:
        return [column.name for column in self._columns if not column.hidden]

    def _add_rows(self, first: int) -> None:
        """Send the rows from number ``first`` on, and all rows of the columns that are new."""
        rows = self.rows
        known = {column.name: column for column in self._columns}
        now = table_columns(rows.with_extra(first), rows.extra, self.columns)
        new = [column for column in now if column.name not in known]
        self._columns = [*known.values(), *new]
        self._send_columns()
        self._send_packets([*known.values()], first)
        self._send_packets(new, 0)
        if self._pages:
            self._emit("end", has_long=bool(Rows(rows.table.slice(first)).long_texts))
        self.on_change.tell()

    def _send_selection(self, page: str | None = None, but: str | None = None) -> None:
        """Send the selection to one page, or to all but one."""
        for each in self._pages:
            self._pages[each] += each == page or (page is None and each != but)
        chosen = np.zeros(len(self.rows), dtype=bool)
        chosen[list(self.selection)] = True
        self._emit("select", page, [np.packbits(chosen, bitorder="little").tobytes()], but=but)

    def _send_notes(self) -> None:
        notes = {fingerprint: text[:_MAX_NOTE] for fingerprint, text in self.notes.items()}
        sent = {cause: [round(each.time.timestamp() * 1_000), each.messages] for cause, each in self.resubmits.items()}
        self._emit("notes", notes=notes, resubmits=sent)

    def say_problem(self, sentence: str) -> None:
        self._emit("failed", text=sentence)

    def _send_rows(self, page: str | None = None) -> None:
        if not self._pages:
            return  # before a page asks, do not look for long texts
        self._send_columns("begin", page)
        self._send_packets(self._columns, 0, page)
        self._emit("remove", page, buffers=[_packed_numbers(np.flatnonzero(self.rows.removed))])
        self._send_selection(page)
        self._emit("end", page, has_long=bool(self.rows.long_texts))
        if self.causes.every:
            self._send_causes(0, page)

    def _send_columns(self, kind: str = "columns", page: str | None = None) -> None:
        self._emit(kind, page, total=len(self.rows), columns=[column.message for column in self._columns])

    def _send_packets(self, columns: Sequence[TableColumn], first: int, page: str | None = None) -> None:
        if not self._pages or not columns:
            return
        table = self.rows.with_extra(first)
        if _CAUSE in columns:
            causes = self.causes.fingerprints[first:]
            later = [""] * (len(table) - len(causes))  # rows that came meanwhile
            table = table.append_column(_CAUSE.name, array_of_values([*causes, *later], pa.string()))
        for packet in packets(table, columns):
            place = {"first": first + packet.first, "count": packet.count}
            self._emit("rows", page, [packet.data], parts=packet.parts, **place)

    def _send_causes(self, first: int, page: str | None = None) -> None:
        causes = [*self.causes.every.values()][first:] if self._pages else []
        for place in range(0, len(causes), _CAUSES):
            part = json.dumps(causes[place : place + _CAUSES]).encode()
            self._emit("causes", page, [zlib.compress(part)])
        self._send_notes()

    def _emit(self, kind: str, page: str | None = None, buffers: Sequence[bytes] = (), **content: object) -> None:
        """Send a message if a browser shows the table. A page that comes later is sent everything."""
        if self._pages:
            content |= {"kind": kind, "page": page, "load": self.load, "now": datetime.now(UTC).timestamp() * 1000}
            self.send(content, list(buffers))

    # ------------------------------------------------------------ from the browser

    def _receive(self, _: object, content: dict[str, Any], buffers: Sequence[memoryview]) -> None:
        # ipywidgets would hide errors raised here.
        try:
            match content.get("kind"):
                case "ready":
                    page = str(content["page"])
                    with self.lock:
                        self._pages[page] = 0
                        self._send_rows(page)
                        if self._filters:
                            self._emit("filters", page, filters=self._filters)
                    self.find_causes()
                case "selection":
                    self._take_selection(content, buffers[0])
                case "request":  # in a thread of its own: a column of values reads all bodies
                    refuse = partial(self._emit, "refusal", str(content["page"]), id=content["id"])
                    start(partial(self._answer, content), failed=lambda text: refuse(text=text))
                case "filters":
                    # Those of the last page that changed one.
                    self._filters = content["filters"] if len(str(content["filters"])) <= _MAX_FILTERS else []
                case _:
                    pass
        except Exception as error:  # noqa: BLE001
            self.say_problem(sentence(error))

    def _take_selection(self, content: Mapping[str, Any], bits: memoryview) -> None:
        with self.lock:
            page = str(content["page"])
            if content["turn"] != self._pages.get(page):
                return  # the page has not yet received other rows, or another selection: that one counts
            flags = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little", count=len(self.rows))
            self.selection = tuple(np.flatnonzero(flags.astype(bool) & ~self.rows.removed).tolist())
            self.hidden = int(content["hidden"])
            if len(self._pages) > 1:
                self._send_selection(but=page)
        self.on_change.tell()
        self._on_selection.tell()

    def _answer(self, content: Mapping[str, Any]) -> None:
        found, pieces = answer(self, str(content["name"]), content["data"])
        self._emit("answer", str(content["page"]), pieces, id=content["id"], data=found)


def _table_of(messages: Messages | Sequence[ReceivedMessage]) -> pa.Table:
    return messages.to_arrow() if isinstance(messages, Messages) else frames.to_arrow(messages)


def answer(table: MessageTable, name: str, data: Mapping[str, Any]) -> tuple[dict[str, object], list[bytes]]:
    rows = table.rows
    match name:
        case "note":
            table.on_note.tell(str(data["fingerprint"]), str(data["text"])[:_MAX_NOTE])
        case "act":
            table.on_act.tell(str(data["action"]))
        case "body_column":
            return {"name": table.add_body_column(parse_path(str(data["path"])[:LONGEST_PATH]))}, []
        case "search":
            return {}, list(matches(rows.long_texts, [str(word) for word in data["words"]], len(rows)))
        case "body":
            message, decoded = rows.message(int(data["row"]))
            return {}, [body_part(message, int(data["offset"]), as_text=bool(data["as_text"]), decoded=decoded)]
        case _:
            return detail_of(*rows.message(int(data["row"]))), []
    return {}, []


def _packed_numbers(rows: Sequence[int] | np.ndarray[Any, Any]) -> bytes:
    return np.asarray(rows, dtype="<u4").tobytes()


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MOST_LISTED: Final = 50
_TOLD: Final = ("count", "reason", "cause", "frame", "first seen", "last seen", "resubmitted", "came back", "note")


def causes_block(messages: MessageTable) -> Table | None:
    with messages.lock:
        rows, found, notes, resubmits = messages.rows, messages.causes, messages.notes, messages.resubmits.copy()
        removed = rows.removed.copy()
    if len(found.fingerprints) != len(rows):
        return None
    # Arrow's own groups, scalars and times would import pandas.
    columns: dict[str, Any] = {"cause": array_of_values(found.fingerprints, pa.string())}
    are_letters = _kernels.match_substring(rows.table["entity"], SUB_QUEUE).cast(pa.int32())
    back = _kernels.multiply(rows.table["resubmit_count"], are_letters)
    columns |= {"time": pc.cast(rows.table["enqueued_time"], pa.int64()), "back": back}
    kept: Any = pa.table(columns).filter(array_of_flags(~removed))
    counts = Counter(kept["cause"].to_pylist())
    lines: list[list[Any]] = []
    for fingerprint, count in counts.most_common(_MOST_LISTED):
        cause, only = found.every[fingerprint], array_of_values([fingerprint], pa.string())
        its = kept.filter(_kernels.is_in(kept["cause"], value_set=only))
        traits = (cause["reason"] or "(no reason)", cause["cause"] or None, cause["frame"] or None)
        times = _kernels.min_max(its["time"]).as_py().values()
        when, often = resubmits.get(fingerprint, (None, 0))
        sent = f"{often:,}, {cell(when)}" if often else None
        back = _kernels.sum(_kernels.sign(its["back"])).as_py() or None
        span = [None if time is None else _EPOCH + timedelta(microseconds=time) for time in times]
        lines.append([count, *traits, *span, sent, back, notes.get(fingerprint) or None])
    if others := counts.total() - sum(line[0] for line in lines):
        lines.append([others, f"{len(counts) - len(lines):,} more causes", *[None] * (len(_TOLD) - 2)])
    return Table(*tables.without_empty(_TOLD, lines))


_PAGE: Final = 20
_MOST_COLUMNS: Final = 8
"""More would not fit beside each other."""
_MAX_CELL: Final = 120
_MOST_CAUSES: Final = 200
_ALL: Final = "all"
_AS_THEY_CAME: Final = "as they came"
_LONG_LINE: Final = re.compile(r"[^\n]{500}(?=[^\n])")


class PlainTable:
    """The rows of a table as blocks."""

    def __init__(self, table: MessageTable, redraw: Callable[[], object]) -> None:
        self._table = table
        table.on_change(redraw)
        self._words = self._cause = self._sort = ""
        self._is_descending = False
        self._first = 0
        self._looked_at = ""
        self._found: tuple[object, list[int]] = (None, [])

    def blocks(self) -> list[Block]:
        table = self._table
        with table.lock:
            table.find_causes()
            found = self._find()
            self._first = max(0, min(self._first, (len(found) - 1) // _PAGE * _PAGE))
            page, selected = found[self._first : self._first + _PAGE], set(table.selection)
            counts = self._counts(found, page, selected)
            columns = [name for name in table.shown_columns if name != "sequence_number"][:_MOST_COLUMNS]
            order = self._order(columns)
            rows = [self._row(number, columns, is_on=number in selected) for number in page]
        before, after = (partial(setattr, self, "_first", self._first + rows) for rows in (-_PAGE, _PAGE))
        controls = [
            Button("Previous", before, icon="chevron-left", is_enabled=self._first > 0),
            Button("Next", after, icon="chevron-right", is_enabled=found[-1:] != page[-1:]),
            Button(
                "Select all of these",
                lambda: self._select({*table.selection, *found}),
                "Select every message that was found, on all pages",
            ),
            Button("Clear selection", partial(self._select, set()), "Select no message"),
            Text(counts, is_strong=True),
        ]
        find = Field("Find", self._words, partial(self._ask, "_words"), hint="in all columns, then Enter")
        detail = [Button("Close", partial(self._look, None)), Code(self._looked_at)] if self._looked_at else []
        return [*self._causes(), find, order, Row(controls), *rows, *detail]

    def _causes(self) -> list[Block]:
        table = self._table
        if not table.with_causes:
            return []
        names: dict[str, str] = {}
        for fingerprint, count in Counter(table.causes.fingerprints).most_common(_MOST_CAUSES):
            traits = [table.causes.every[fingerprint][name] for name in _TRAITS[:-1]]
            told = "; ".join(filter(None, traits)) or "no reason"
            names[f"{count:,} with {told[:_MAX_CELL]}".replace("\n", " ")] = fingerprint
        chosen = next((name for name, fingerprint in names.items() if fingerprint == self._cause), _ALL)
        field = Field(
            "Cause",
            chosen,
            lambda name: self._ask("_cause", names.get(name, "")),
            "choice",
            [_ALL, *names],
            size="wide",
        )
        if not self._cause:
            return [field]
        note = partial(table.on_note.tell, self._cause)
        return [field, Field("Note", table.notes.get(self._cause, ""), note, "area", size="wide", key=self._cause)]

    def _order(self, columns: Sequence[str]) -> Row:
        names = {title_of(name): name for name in ("sequence_number", *columns)}
        chosen = next((title for title, name in names.items() if name == self._sort), _AS_THEY_CAME)
        turn = partial(self._ask, "_is_descending")
        by = Field(
            "Sort by",
            chosen,
            lambda title: self._ask("_sort", names.get(title, "")),
            "choice",
            [_AS_THEY_CAME, *names],
            size="short",
        )
        return Row([by, Field("largest first", self._is_descending, turn, "check")], key="order")

    def _find(self) -> list[int]:
        """Return the rows to show, in their order; the same search is done once."""
        table, rows = self._table, self._table.rows
        asked = (self._words, self._cause, self._sort, self._is_descending)
        known = (table.load, len(rows), table.count, len(table.causes.fingerprints), rows.changes, *asked)
        if known == self._found[0]:
            return self._found[1]
        shown = ~rows.removed
        if words := self._words.strip():
            columns: Any = rows.with_extra().columns
            readable = [each for each in columns if pa.types.is_string(each.type) or pa.types.is_integer(each.type)]
            shown &= holding((each.cast(pa.string()) for each in readable), words, len(rows))
        if self._cause:
            causes = np.array(table.causes.fingerprints)
            shown[: len(causes)] &= causes == self._cause
        found = np.flatnonzero(shown)
        if self._sort:
            values = rows.with_extra().column(self._sort).take(array_of_numbers(found))
            order = "descending" if self._is_descending else "ascending"
            sortable = shown_texts(self._sort, values) if pa.types.is_map(values.type) else values
            found = found[_kernels.array_sort_indices(sortable, order=order).to_numpy()]
        self._found = known, found.tolist()
        return self._found[1]

    def _row(self, number: int, columns: Sequence[str], *, is_on: bool) -> Block:
        rows = self._table.rows
        key = rows.keys[number]
        said = " · ".join(filter(None, (cell(rows.cell(number, column), _MAX_CELL) for column in columns)))
        tick = Field(f"#{key[1]}", is_on, partial(self._tick, key), "check")
        look = Button("Look", partial(self._look, key), f"Show message #{key[1]}")
        return Row([tick, look, Text(said)], key=f"{key[0]} {key[1]}")

    def _counts(self, found: Sequence[int], page: Sequence[int], selected: set[int]) -> str:
        total, hidden = self._table.count, len(selected.difference(found))
        place = f"{self._first + 1:,} to {self._first + len(page):,} of {len(found):,}" if page else "No message"
        of = "" if len(found) == total else f" found ({total:,} in all)"
        not_found = f" ({hidden:,} not among those found)" if hidden else ""
        return f"{place}{of}, {len(selected):,} selected{not_found}"

    # ------------------------------------------------------------ clicks

    def _ask(self, name: str, value: object) -> None:
        """Take what the rows are found or sorted by, and show the first of them."""
        setattr(self, name, value)
        self._first = 0

    def _tick(self, key: MessageKey, is_on: bool) -> None:
        with self._table.lock:
            numbers, selected = set(self._table.rows.present([key])), set(self._table.selection)
        self._select(selected | numbers if is_on else selected - numbers)

    def _select(self, numbers: set[int]) -> None:
        with self._table.lock:
            hidden = len(numbers.difference(self._find()))
        self._table.select_rows(numbers, hidden)

    def _look(self, key: MessageKey | None) -> None:
        with self._table.lock:
            numbers = self._table.rows.present([key] if key else [])
            self._looked_at = _detail_text(*self._table.rows.message(numbers[0])) if numbers else ""


def _detail_text(message: ReceivedMessage, decoded: Decoded | None) -> str:
    detail = detail_of(message, decoded)
    parts = [detail["title"], detail["about"], *detail["notes"]]
    if fault := detail["fault"]:
        parts += ["", "Dead letter", f"  {fault['reason']}", *(f"  {line}" for line, _ in fault["lines"])]
    for section in detail["sections"]:
        parts += ["", section["title"], *(f"  {name}: {value}" for name, value, *_ in section["rows"])]
    view = detail["views"][0]
    told = "\n".join([*parts, "", f"Body ({view['name']}) {view['note']}".rstrip(), view["text"]])
    # A browser needs half a minute to lay out a long line that changes its direction.
    return _LONG_LINE.sub(r"\g<0>\n", told)
