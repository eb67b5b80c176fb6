"""Messages as a table in the browser, which searches, filters, sorts and selects without the kernel.

The rows are sent once, when the browser asks for them, and are changed by row number; see ``static/index.js`` for the
other side. The browser sends its selection before any click that follows it, so the kernel acts on the latest one.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

import anywidget
import numpy as np
import pyarrow as pa
import traitlets

from sbnotebook.analysis import frames, tables
from sbnotebook.analysis.arrays import array_of_numbers, array_of_values
from sbnotebook.analysis.groups import CAUSE, CauseReader, Group, group_by_cause
from sbnotebook.client.messages import Messages
from sbnotebook.model import ReceivedMessage
from sbnotebook.model.json_text import Path, parse_path
from sbnotebook.model.outcome import counted
from sbnotebook.settlement import Resubmitted
from sbnotebook.widgets import background
from sbnotebook.widgets.background import Callbacks, answer_at_once
from sbnotebook.widgets.front_end import module, style
from sbnotebook.widgets.pretty import visible
from sbnotebook.widgets.table.message_detail import LONGEST_PATH, body_part, detail_of
from sbnotebook.widgets.table.row_packing import TableColumn, changed_cells, packets, path_name, table_columns
from sbnotebook.widgets.table.rows import MessageKey, Rows, body_values, long_texts, matches

_MAX_NOTE: Final = 10_000
_LONGEST_CAUSE: Final = 300
_IN_TEXT: Final = 20
_MAX_FILTERS: Final = 50_000
_MOST_BODY_COLUMNS: Final = 20
_CAUSE: Final = TableColumn("cause", "text", hidden=True)
_CAUSES: Final = 200
"""Causes in one message, less than a megabyte."""
_NOTHING: Final[Mapping[str, Sequence[object]]] = {}
_NO_RESUBMITS: Final[Mapping[str, Resubmitted]] = {}


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
            every.setdefault(group.fingerprint, _told(group))
            for place in group.sequence_numbers:
                found[place] = group.fingerprint
        return Causes([*self.fingerprints, *found], every, self._read)


def _told(group: Group) -> dict[str, str]:
    texts = {
        "reason": group.reason,
        "cause": group.cause,
        "frame": group.frame,
        "subject": group.subject,
        "source": group.source,
    }
    return {"fingerprint": group.fingerprint} | {
        name: visible((text or "")[:_LONGEST_CAUSE]) for name, text in texts.items()
    }


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
        self.rows = Rows(_table_of(messages))
        self.load = 1
        """Counts how often all rows were replaced."""
        self.selection: tuple[int, ...] = ()
        """The selected row numbers, in ascending order."""
        self._hidden = 0
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
        self._has_long = False
        self._pages: dict[str, int] = {}  # the browser pages that show the table, and how many selections each was sent
        options = {"label": label, "facets": facets if facets is None else [*facets], "timeline": timeline}
        super().__init__(options=options | {"causes": causes, "countdown": countdown, "cause_action": cause_action})
        answer_at_once(self)
        self._show_rows()

    def open(self) -> None:
        """Open the comm to the browser, which may answer on another thread before the constructor ends."""
        self.on_msg(self._receive)
        super().open()

    # ------------------------------------------------------------ the rows

    def show(
        self, messages: Messages | Sequence[ReceivedMessage], extra: Mapping[str, Sequence[object]] = _NOTHING
    ) -> None:
        """Replace all rows. Selection, filters and sorting stay, the selection by key."""
        rows = self._with_body_columns(_table_of(messages), extra)
        with self.lock:
            keys = self.selected_keys
            self.rows, self.load, self.causes = rows, self.load + 1, Causes()
            self.selection = tuple(sorted(rows.present(keys))) if keys else ()
            self._show_rows()
            self.on_change.tell()
        self._find_causes()
        if len(self.selection) != len(keys):
            self._on_selection.tell()

    def append(
        self, messages: Messages | Sequence[ReceivedMessage], extra: Mapping[str, Sequence[object]] = _NOTHING
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
            if changes := self.rows.patch(values):
                self._send_cells(changes)
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
            values = _values_at(rows.table, path)  # which may take seconds
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
        return Rows(table, {**extra, **{name: _values_at(table, path) for name, path in self._body_columns.items()}})

    # ------------------------------------------------------------ the selection

    def select(self, keys: Iterable[MessageKey]) -> None:
        """Select these messages and no others."""
        with self.lock:
            numbers = self.rows.present(keys)
        self.select_rows(numbers, self._hidden)

    def select_rows(self, numbers: Iterable[int], hidden: int) -> None:
        """Select these rows and no others, of which a filter hides so many."""
        with self.lock:
            self.selection, self._hidden = tuple(sorted(numbers)), hidden
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

    @property
    def hidden(self) -> int:
        """Return how many of the selected messages a filter hides, in the view that was used last."""
        return self._hidden

    def on_selection(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call a function whenever the selection changes."""
        return self._on_selection(callback)

    # ------------------------------------------------------------ causes and notes

    def find_causes(self) -> None:
        """Group the messages by cause, these and all that follow, in the background; only where causes are shown."""
        self._is_finding = self.with_causes
        self._find_causes()

    def wait_for_causes(self, timeout: float) -> bool:
        finder = self._finder
        if finder is not None:
            finder.join(timeout)
        return self._finder is None

    def count_causes(self, keys: Iterable[MessageKey]) -> Counter[str]:
        """Count messages by the fingerprint of their cause, without those whose cause is not known."""
        with self.lock:
            places = (self.rows.numbers.get(key) for key in keys)
            found = self.causes.fingerprints
            return Counter(found[place] for place in places if place is not None and place < len(found))

    def set_notes(self, notes: Mapping[str, str], resubmits: Mapping[str, Resubmitted] = _NO_RESUBMITS) -> None:
        self.notes, self.resubmits = dict(notes), dict(resubmits)
        self._send_notes()
        self.on_change.tell()

    def _find_causes(self) -> None:
        with self.lock:
            if self._is_finding and self._finder is None:
                self._finder = background.start(self._examine, failed=self._miss_causes)

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
        """Return the names of the columns that are shown at first."""
        return [column.name for column in self._columns if not column.hidden]

    def _show_rows(self) -> None:
        self._hidden = 0
        rows = self.rows
        self._columns = table_columns(rows.with_extra(), rows.extra, self.columns)
        self._send_rows()

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
            self._has_long = self._has_long or bool(long_texts(rows.table.slice(first)))
            self._emit("end", has_long=self._has_long)
        self.on_change.tell()

    def _send_cells(self, changes: Mapping[str, Mapping[int, object]]) -> None:
        kinds = {column.name: column for column in self._columns}
        for name, cells in changes.items():
            column, table = changed_cells(name, list(cells.values()), kinds.get(name))
            if name not in kinds:
                self._columns.insert(1, column)  # near the front, to be seen without scrolling
            rows = list(cells)
            for packet in packets(table, [column]) if self._pages else ():
                numbers = _packed_numbers(rows[packet.first : packet.first + packet.count])
                self._emit("patch", buffers=[packet.data, numbers], column=column.message, parts=packet.parts)

    def _send_selection(self, page: str | None = None, but: str | None = None) -> None:
        """Send the selection to one page, or to all but one."""
        for each in self._pages:
            self._pages[each] += each == page or (page is None and each != but)
        chosen = np.zeros(len(self.rows), dtype=bool)
        chosen[list(self.selection)] = True
        self._emit("select", page, [np.packbits(chosen, bitorder="little").tobytes()], but=but)

    def _send_notes(self) -> None:
        notes = {fingerprint: text[:_MAX_NOTE] for fingerprint, text in self.notes.items()}
        resubmits = self.resubmits.items()
        sent = {cause: [round(when.timestamp() * 1_000), count] for cause, (when, count) in resubmits}
        self._emit("notes", notes=notes, resubmits=sent)

    def say_problem(self, sentence: str) -> None:
        self._emit("failed", text=sentence)

    def _send_rows(self, page: str | None = None) -> None:
        if not self._pages:
            return  # before a page asks, do not look for long texts
        rows = self.rows
        columns = [column.message for column in self._columns]
        self._emit("begin", page, total=len(rows), columns=columns)
        self._send_packets(self._columns, 0, page)
        self._emit("remove", page, buffers=[_packed_numbers(np.flatnonzero(rows.removed))])
        self._send_selection(page)
        self._has_long = bool(rows.long_texts)
        self._emit("end", page, has_long=self._has_long)
        if self.causes.every:
            self._send_causes(0, page)

    def _send_columns(self) -> None:
        self._emit("columns", total=len(self.rows), columns=[column.message for column in self._columns])

    def _send_packets(self, columns: Sequence[TableColumn], first: int, page: str | None = None) -> None:
        if not self._pages or not columns:
            return
        for packet in packets(self._table_from(first), columns):
            start, count = first + packet.first, packet.count
            self._emit("rows", page, first=start, count=count, parts=packet.parts, buffers=[packet.data])

    def _table_from(self, first: int) -> pa.Table:
        table: Any = self.rows.with_extra(first)
        if _CAUSE not in self._columns:
            return table
        causes = self.causes.fingerprints[first:]
        later = len(table) - len(causes)  # rows that came meanwhile
        shown = dict(zip(table.column_names, table.columns, strict=True))
        return pa.table({**shown, _CAUSE.name: array_of_values([*causes, *[""] * later], pa.string())})

    def _send_causes(self, first: int, page: str | None = None) -> None:
        causes = [*self.causes.every.values()][first:] if self._pages else []
        for start in range(0, len(causes), _CAUSES):
            part = json.dumps(causes[start : start + _CAUSES]).encode()
            self._emit("causes", page, [zlib.compress(part)])
        self._send_notes()

    def _emit(self, kind: str, page: str | None = None, buffers: Sequence[bytes] = (), **content: object) -> None:
        """Send a message if a browser shows the table. A page that comes later is sent everything."""
        if self._pages:
            now = datetime.now(UTC).timestamp() * 1000
            self.send({**content, "kind": kind, "page": page, "load": self.load, "now": now}, list(buffers))

    # ------------------------------------------------------------ from the browser

    def _receive(self, _: object, content: dict[str, Any], buffers: Sequence[memoryview]) -> None:
        # ipywidgets would hide errors raised here.
        try:
            match content.get("kind"):
                case "ready":
                    self._welcome(str(content["page"]))
                case "selection":
                    self._take_selection(content, buffers[0])
                case "request":
                    self._answer(content)
                case "filters":
                    # Those of the last page that changed one.
                    self._filters = content["filters"] if len(str(content["filters"])) <= _MAX_FILTERS else []
                case _:
                    pass
        except Exception as error:  # noqa: BLE001
            self.say_problem(background.sentence(error))

    def _welcome(self, page: str) -> None:
        with self.lock:
            self._pages[page] = 0
            self._send_rows(page)
            if self._filters:
                self._emit("filters", page, filters=self._filters)
        self.find_causes()

    def _take_selection(self, content: Mapping[str, Any], bits: memoryview) -> None:
        with self.lock:
            page = str(content["page"])
            if content["turn"] != self._pages.get(page):
                return  # the page has not yet received other rows, or another selection: that one counts
            flags = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little", count=len(self.rows))
            self.selection = tuple(np.flatnonzero(flags.astype(bool) & ~self.rows.removed).tolist())
            self._hidden = int(content["hidden"])
            if len(self._pages) > 1:
                self._send_selection(but=page)
        self.on_change.tell()
        self._on_selection.tell()

    def _answer(self, content: Mapping[str, Any]) -> None:
        page, number = str(content["page"]), content["id"]
        name, asked = str(content["name"]), content["data"]

        def work() -> None:
            found, pieces = answer(self, name, asked)
            self._emit("answer", page, id=number, data=found, buffers=pieces)

        def failed(sentence: str) -> None:
            self._emit("refusal", page, id=number, text=sentence)

        if name == "body_column":  # it reads all bodies
            background.start(work, failed=failed)
            return
        try:
            work()
        except Exception as error:  # noqa: BLE001
            failed(background.sentence(error))


def _values_at(table: pa.Table, path: Path) -> list[object]:
    bodies: Any = table.column("body_text").to_pylist()
    return [*body_values(bodies, path)]


def _table_of(messages: Messages | Sequence[ReceivedMessage]) -> pa.Table:
    return messages.to_arrow() if isinstance(messages, Messages) else frames.to_arrow(messages)


def answer(table: MessageTable, name: str, data: Mapping[str, Any]) -> tuple[dict[str, object], list[bytes]]:
    rows = table.rows
    if name == "note":
        table.on_note.tell(str(data["fingerprint"]), str(data["text"])[:_MAX_NOTE])
        return {}, []
    if name == "act":
        table.on_act.tell(str(data["action"]))
        return {}, []
    if name == "body_column":
        return {"name": table.add_body_column(parse_path(str(data["path"])[:LONGEST_PATH]))}, []
    if name == "search":
        return {}, list(matches(rows.long_texts, [str(word) for word in data["words"]], len(rows)))
    number = int(data["row"])
    message, decoded = rows.messages([number])[0], rows.decoded(number)
    if name == "body":
        return {}, [body_part(message, int(data["offset"]), as_text=bool(data["as_text"]), decoded=decoded)]
    return detail_of(message, decoded), []


def _packed_numbers(rows: Sequence[int] | np.ndarray[Any, Any]) -> bytes:
    return np.asarray(rows, dtype="<u4").tobytes()
