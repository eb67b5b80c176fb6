"""Messages as a table in the browser, which searches, filters, sorts and selects without the kernel.

The rows are sent once, when the browser asks for them, and are changed by row number; see ``static/index.js`` for the
other side. The browser sends its selection before any click that follows it, so the kernel acts on the latest one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any, Final

import anywidget
import numpy as np
import pyarrow as pa
import traitlets

from sbnotebook.analysis.arrays import array_of_values
from sbnotebook.client.messages import Messages
from sbnotebook.model import ReceivedMessage
from sbnotebook.widgets import background
from sbnotebook.widgets.background import answer_at_once
from sbnotebook.widgets.front_end import module, style
from sbnotebook.widgets.table.body_values import checked_path
from sbnotebook.widgets.table.cause_finder import MOST
from sbnotebook.widgets.table.message_detail import body_part, detail_of
from sbnotebook.widgets.table.row_packing import TableColumn, packets, patch_column, table_columns
from sbnotebook.widgets.table.rows import MessageRows, long_texts, matches

_VIEWS: Final = ("clipboard", "drawing", "facets", "timeline", "cause_rows", "causes", "detail", "filters")
_BASE: Final = ("transport", "columns", "slices", "row_set", "sorting", "shown_rows", "store", "focused")
_SCRIPTS: Final = (*_BASE, "header", "grid", "search", "toolbar", *_VIEWS, "index")
_STYLES: Final = ("look", "message_table", "facets", "timeline", "causes", "detail")
_PATCH: Final = 10_000
"""Rows in one message of changes, far below a megabyte."""
_MAX_NOTE: Final = 10_000
_MAX_FILTERS: Final = 50_000
_CAUSE: Final = TableColumn("cause", "text", hidden=True)


class MessageTable(MessageRows, anywidget.AnyWidget):
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

    _esm = module(*(f"{name}.js" for name in _SCRIPTS))
    _css = style(*(f"{name}.css" for name in _STYLES))
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
        MessageRows.__init__(self, messages, columns=columns, causes=causes)
        self._columns: list[TableColumn] = []
        self._filters: list[dict[str, Any]] = []  # as the browser made them, for the next page
        self._causes_sent = 0
        self._has_long = False
        self._pages: dict[str, int] = {}  # the browser pages that show the table, and how many selections each was sent
        anywidget.AnyWidget.__init__(
            self,
            options={
                "label": label,
                "facets": None if facets is None else list(facets),
                "timeline": timeline,
                "causes": causes,
                "countdown": countdown,
                "cause_action": cause_action,
            },
        )
        answer_at_once(self)
        self.rows_shown()

    def open(self) -> None:
        """Open the comm to the browser, which may answer on another thread before the constructor ends."""
        self.on_msg(self._receive)
        super().open()

    # ------------------------------------------------------------ changes of the rows

    def rows_shown(self) -> None:
        """Send other rows."""
        self._hidden = self._causes_sent = 0
        rows = self.rows
        self._columns = table_columns(rows.table, rows.extra, self.columns)
        self._send_rows()

    def rows_added(self, first: int) -> None:
        """Send the rows from number ``first`` on, and all rows of the columns that are new."""
        rows = self.rows
        known = {column.name: column for column in self._columns}
        now = table_columns(rows.table.slice(first), rows.extra, self.columns)
        new = [column for column in now if column.name not in known]
        self._columns = [*known.values(), *new]
        self._send_columns()
        self._send_packets([*known.values()], first)
        self._send_packets(new, 0)
        if self._pages:
            self._has_long = self._has_long or bool(long_texts(rows.table.slice(first)))
            self._emit("end", has_long=self._has_long)

    def rows_removed(self, numbers: Sequence[int]) -> None:
        """Tell the browser which rows go."""
        self._emit("remove", buffers=[_packed_numbers(numbers)])

    def cells_changed(self, changes: Mapping[str, Mapping[int, object]], page: str | None = None) -> None:
        """Send changed cells, to one page or to all."""
        kinds = {column.name: column for column in self._columns}
        for name, cells in changes.items():
            column, values = patch_column(name, list(cells.values()), kinds.get(name))
            if name not in kinds:
                self._columns.append(column)
            rows = list(cells)
            for start in range(0, len(rows), _PATCH):
                part = slice(start, start + _PATCH)
                self._emit("patch", page, [_packed_numbers(rows[part])], column=column.message, values=values[part])

    def selection_changed(self, page: str | None = None, but: str | None = None) -> None:
        """Send the selection to one page, or to all but one.

        A selection that a page sends before it has received this one is out of date: the count tells.
        """
        for each in self._pages:
            self._pages[each] += each == page or (page is None and each != but)
        chosen = np.zeros(len(self.rows), dtype=bool)
        chosen[list(self.selection)] = True
        self._emit("select", page, [np.packbits(chosen, bitorder="little").tobytes()], but=but)

    def causes_found(self) -> None:
        """Send the causes, and the cause of each message that had none before, in a hidden column."""
        self._columns = [column for column in self._columns if column.name != _CAUSE.name] + [_CAUSE]
        self._send_columns()
        self._send_packets([_CAUSE], self._causes_sent)
        self._causes_sent = len(self.causes.fingerprints)
        self._send_causes()

    def notes_changed(self) -> None:
        """Send the notes, and the number of resubmitted messages of each cause."""
        notes = {fingerprint: text[:_MAX_NOTE] for fingerprint, text in self.notes.items()}
        resubmits = self.resubmits.items()
        sent = {cause: [round(when.timestamp() * 1_000), count] for cause, (when, count) in resubmits}
        self._emit("notes", notes=notes, resubmits=sent)

    def say_problem(self, sentence: str) -> None:
        """Show an error in the browser."""
        self._emit("failed", text=sentence)

    # ------------------------------------------------------------ to the browser

    def _send_rows(self, page: str | None = None) -> None:
        """Send everything, to one page or to all."""
        if not self._pages:
            return  # before a page asks, do not look for long texts
        rows = self.rows
        columns = [column.message for column in self._columns]
        self._emit("begin", page, total=len(rows), columns=columns)
        self._send_packets(self._columns, 0, page)
        # The changes since the rows arrived. With the rows, the page takes a column away that only they had values in.
        self.cells_changed(rows.patched, page)
        self._emit("remove", page, buffers=[_packed_numbers(np.flatnonzero(rows.removed))])
        self.selection_changed(page)
        self._has_long = bool(rows.long_texts)
        self._emit("end", page, has_long=self._has_long)
        if self.causes.told:
            self._send_causes()

    def _send_columns(self) -> None:
        self._emit("columns", total=len(self.rows), columns=[column.message for column in self._columns])

    def _send_packets(self, columns: Sequence[TableColumn], first: int, page: str | None = None) -> None:
        if not self._pages:
            return
        table = self._table_from(first)
        known = [column for column in columns if column.name in table.column_names]  # others have changed cells only
        for packet in packets(table, known) if known else ():
            start, count = first + packet.first, packet.count
            self._emit("rows", page, first=start, count=count, parts=packet.parts, buffers=[packet.data])

    def _table_from(self, first: int) -> pa.Table:
        """Return the rows from a number on, with their causes if these are shown."""
        table: Any = self.rows.with_extra().slice(first)
        if _CAUSE not in self._columns:
            return table
        causes = self.causes.fingerprints[first:]
        later = len(table) - len(causes)  # rows that came meanwhile
        shown = dict(zip(table.column_names, table.columns, strict=True))
        return pa.table({**shown, _CAUSE.name: array_of_values([*causes, *[""] * later], pa.string())})

    def _send_causes(self) -> None:
        self._emit("causes", causes=self.causes.told)
        self.notes_changed()

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
        if not self.causes.told:
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
                self.selection_changed(but=page)
        self.on_change()
        self._on_selection()

    def _answer(self, content: Mapping[str, Any]) -> None:
        """Answer a question of a page, or tell it why there is no answer."""
        page, number = str(content["page"]), content["id"]
        name, asked = str(content["name"]), content["data"]

        def done(found: tuple[dict[str, object], list[bytes]]) -> None:
            self._emit("answer", page, id=number, data=found[0], buffers=found[1])

        def failed(sentence: str) -> None:
            self._emit("refusal", page, id=number, text=sentence)

        if name == "body_column":  # it reads all bodies
            background.start(partial(answer, self, name, asked), done=done, failed=failed)
            return
        try:
            if name == "note":
                self.write_note(str(asked["fingerprint"]), str(asked["text"])[:_MAX_NOTE])
            elif name == "act":
                self.on_act(str(asked["action"]))
            done(({}, []) if name in {"note", "act"} else answer(self, name, asked))
        except Exception as error:  # noqa: BLE001
            failed(background.sentence(error))


def answer(table: MessageRows, name: str, data: Mapping[str, Any]) -> tuple[dict[str, object], list[bytes]]:
    """Answer a question about the rows."""
    rows = table.rows
    if name == "body_column":
        return {"name": table.add_body_column(checked_path(data["path"]))}, []
    if name == "causes":
        wanted = data.get("fingerprints")
        found = table.causes.having(str(data["words"])) if wanted is None else table.causes.named(set(wanted))
        return {"causes": found[:MOST], "count": len(found)}, []
    if name == "search":
        return {}, list(matches(rows.long_texts, [str(word) for word in data["words"]], len(rows)))
    number = int(data["row"])
    message, decoded = rows.messages([number])[0], rows.decoded(number)
    if name == "body":
        return {}, [body_part(message, int(data["offset"]), as_text=bool(data["as_text"]), decoded=decoded)]
    return detail_of(message, decoded), []


def _packed_numbers(rows: Sequence[int] | np.ndarray[Any, Any]) -> bytes:
    return np.asarray(rows, dtype="<u4").tobytes()
