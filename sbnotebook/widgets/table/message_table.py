"""Messages as a table in the browser: searched, filtered, sorted and selected there, whatever the kernel does.

The rows are sent once, when the browser says that it is there, and changed by row number; see ``static/index.js`` for
the other side. The kernel acts on the selection that it was last told, which is told before any click that follows it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import anywidget
import numpy as np
import traitlets

from sbnotebook.analysis import frames, tables
from sbnotebook.client.messages import Messages
from sbnotebook.model import ReceivedMessage
from sbnotebook.widgets import background
from sbnotebook.widgets.background import Callbacks
from sbnotebook.widgets.static_files import module, style
from sbnotebook.widgets.table.answers import answer
from sbnotebook.widgets.table.causes import CauseFinder, Causes
from sbnotebook.widgets.table.packing import Column, columns_of, packets, patch_column
from sbnotebook.widgets.table.rows import NOTHING, MessageKey, Rows

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["MessageTable"]

_VIEWS: Final = ("drawing", "facets", "timeline", "causes", "detail")
_SCRIPTS: Final = ("transport", "columns", "sorting", "store", "header", "grid", "search", "toolbar", *_VIEWS, "index")
_STYLES: Final = ("message_table", "facets", "timeline", "causes", "detail")
_PATCH: Final = 10_000
"""Rows in one message of changes, far below a megabyte."""
_MAX_NOTE: Final = 10_000
_CAUSE: Final = "cause"


class MessageTable(anywidget.AnyWidget):
    """Messages as a table in the browser.

    Args:
        messages: to show at first.
        columns: those that are shown, in this order; None for those that most want to see. The others can be chosen in
            the table.
        facets: columns of which the values are listed with their counts beside the table, to filter by; None for those
            where that helps, () for none.
        timeline: show how many messages were enqueued when.
        causes: group the messages by what went wrong with them, and show the groups.
        countdown: show ``locked_until`` as the time that is left.
        label: what the table shows, for those who hear it.

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
    ) -> None:
        self._lock = threading.RLock()
        self._chosen = columns
        self._with_causes = causes
        self._load = 0
        self._rows = Rows(Messages().to_arrow())
        self._columns: list[Column] = []
        self._selection: tuple[int, ...] = ()
        self._hidden = 0
        self._causes: list[dict[str, str]] = []
        self._finder = CauseFinder(self._show_causes, self._fail)
        self._notes: dict[str, str] = {}
        self._pages: dict[str, int] = {}  # the browsers that show it, and how many selections each was told
        self._on_selection, self._on_note, self._on_ready = (Callbacks(self._fail) for _ in range(3))
        super().__init__(
            options={
                "label": label,
                "facets": None if facets is None else list(facets),
                "timeline": timeline,
                "causes": causes,
                "countdown": countdown,
            }
        )
        self.on_msg(self._receive)
        self.show(messages)

    # ------------------------------------------------------------ rows

    def show(
        self, messages: Messages | Sequence[ReceivedMessage], extra: Mapping[str, Sequence[object]] = NOTHING
    ) -> None:
        """Replace all rows; selection, filters and sorting are kept, the selection by key.

        Args:
            messages: to show.
            extra: further columns, each with a value for every message.
        """
        rows = Rows(_table_of(messages), extra)
        with self._lock:
            keys = self.selected_keys
            self._rows, self._load, self._causes = rows, self._load + 1, []
            self._columns = columns_of(rows.table, rows.extra, self._chosen)
            self._selection = tuple(sorted(rows.present(keys))) if keys else ()
            self._hidden = 0
            self._send_rows()
        self._find_causes()
        if len(self._selection) != len(keys):
            self._on_selection()

    def append(
        self, messages: Messages | Sequence[ReceivedMessage], extra: Mapping[str, Sequence[object]] = NOTHING
    ) -> None:
        """Add rows behind those that are there; messages that are there already are left out.

        Args:
            messages: to add.
            extra: further columns, each with a value for every message.
        """
        with self._lock:
            first = len(self._rows)
            self._rows = self._rows.extended(_table_of(messages), extra)
            known = {column.name: column for column in self._columns}
            now = columns_of(self._rows.table, self._rows.extra, self._chosen)
            new = [column for column in now if column.name not in known]
            self._columns = [*known.values(), *new]
            self._send_columns()
            self._send_packets([*known.values()], first)
            self._send_packets(new, 0)
            self._emit("end", has_long=bool(self._rows.long_texts))
        self._find_causes()

    def patch(self, values: Mapping[MessageKey, Mapping[str, object]]) -> None:
        """Change cells; a column that is new appears.

        Args:
            values: new values by column, for each message.

        Example:
            >>> MessageTable().patch({("orders", 7): {"outcome": "settled"}})
        """
        with self._lock:
            self._send_changes(self._rows.patch(values))

    def remove(self, keys: Iterable[MessageKey]) -> None:
        """Take rows away, also out of the selection.

        Args:
            keys: of the messages; those that are not there are passed over.
        """
        with self._lock:
            rows = self._rows.present(keys)
            self._rows.removed[rows] = True
            gone = set(rows)
            before = len(self._selection)
            self._selection = tuple(row for row in self._selection if row not in gone)
            self._emit("remove", buffers=[_numbers(rows)])
        if len(self._selection) != before:
            self._on_selection()

    @property
    def rows(self) -> Rows:
        """What it holds, changed cells included, for a table that takes its place."""
        with self._lock:
            return self._rows

    @property
    def messages(self) -> Messages:
        """All rows, in the order in which they came."""
        return self._rows.messages()

    # ------------------------------------------------------------ selection

    def select(self, keys: Iterable[MessageKey]) -> None:
        """Select these messages and no others.

        Args:
            keys: of the messages; those that are not there are passed over.
        """
        with self._lock:
            self._selection = tuple(sorted(self._rows.present(keys)))
            self._send_selection()
        self._on_selection()

    @property
    def selected_keys(self) -> tuple[MessageKey, ...]:
        """The keys of the selected messages."""
        with self._lock:
            return tuple(self._rows.keys[row] for row in self._selection)

    @property
    def selected(self) -> Messages:
        """The selected messages, with all columns."""
        with self._lock:
            return self._rows.messages(self._selection)

    @property
    def hidden(self) -> int:
        """How many of the selected messages a filter hides now."""
        return self._hidden

    @property
    def is_ready(self) -> bool:
        """Whether a browser has shown that it can draw the table."""
        return bool(self._pages)

    def on_selection(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call a function whenever the selection changes.

        Args:
            callback: takes nothing, may be called in any thread, and must not block.

        Returns:
            A function that ends it.
        """
        return self._on_selection.add(callback)

    def on_ready(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call a function each time that a browser says that it is there and asks for the rows.

        Returns:
            A function that ends it.
        """
        return self._on_ready.add(callback)

    # ------------------------------------------------------------ causes

    def set_notes(self, notes: Mapping[str, str]) -> None:
        """Show notes beside the causes.

        Args:
            notes: by the cause's fingerprint.
        """
        self._notes = {fingerprint: text[:_MAX_NOTE] for fingerprint, text in notes.items()}
        self._emit("notes", notes=self._notes)

    def on_note(self, callback: Callable[[str, str], object]) -> Callable[[], None]:
        """Call a function with fingerprint and text of each note that is written.

        Args:
            callback: must not block.

        Returns:
            A function that ends it.
        """
        return self._on_note.add(callback)

    def _find_causes(self) -> None:
        """Group the messages beside and when the rows were sent, which need not wait for it."""
        if self._with_causes and self._pages and len(self._rows):
            self._finder.find(self._load, self._rows.table)

    def _show_causes(self, load: int, causes: Causes) -> None:
        with self._lock:
            if load != self._load:
                return  # others were shown meanwhile, and their causes come, too
            later = len(self._rows) - len(causes.fingerprints)
            column = self._rows.add(_CAUSE, [*causes.fingerprints, *[""] * later])
            self._causes = causes.told
            self._columns = [known for known in self._columns if known.name != _CAUSE] + [column]
            self._send_columns()
            self._send_packets([column], 0)
            self._send_causes()

    def _send_causes(self) -> None:
        self._emit("causes", causes=self._causes)
        self._emit("notes", notes=self._notes)

    # ------------------------------------------------------------ to the browser

    def _send_rows(self, page: str | None = None) -> None:
        """Send everything, to one page or to all."""
        columns = [column.message for column in self._columns]
        self._emit("begin", page, total=len(self._rows), columns=columns)
        self._send_packets(self._columns, 0, page)
        self._emit("remove", page, buffers=[_numbers(np.flatnonzero(self._rows.removed))])
        self._send_changes(self._rows.patched, page)
        self._send_selection(page)
        self._emit("end", page, has_long=bool(self._rows.long_texts))
        if self._causes:
            self._send_causes()

    def _send_columns(self) -> None:
        self._emit("columns", total=len(self._rows), columns=[column.message for column in self._columns])

    def _send_packets(self, columns: Sequence[Column], first: int, page: str | None = None) -> None:
        if not self._pages:
            return
        table = self._rows.with_extra()
        there = [column for column in columns if column.name in table.column_names]  # others have changed cells only
        for packet in packets(table, there, first) if there else ():
            self._emit("rows", page, first=packet.first, count=packet.count, parts=packet.parts, buffers=[packet.data])

    def _send_changes(self, changes: Mapping[str, Mapping[int, object]], page: str | None = None) -> None:
        kinds = {column.name: column for column in self._columns}
        for name, cells in changes.items():
            column, values = patch_column(name, list(cells.values()), kinds.get(name))
            if name not in kinds:
                self._columns.append(column)
            rows = list(cells)
            for start in range(0, len(rows), _PATCH):
                part = slice(start, start + _PATCH)
                self._emit("patch", page, [_numbers(rows[part])], column=column.message, values=values[part])

    def _emit(self, kind: str, page: str | None = None, buffers: Sequence[bytes] = (), **content: object) -> None:
        """Send a message where there is somebody to take it; who comes later is sent everything."""
        if self._pages:
            now = datetime.now(UTC).timestamp() * 1000
            self.send({**content, "kind": kind, "page": page, "load": self._load, "now": now}, list(buffers))

    def _send_selection(self, page: str | None = None, but: str | None = None) -> None:
        """Tell one page, or all but one. What a page tells before it has heard of this no longer counts."""
        for each in self._pages:
            self._pages[each] += each == page or (page is None and each != but)
        chosen = np.zeros(len(self._rows), dtype=bool)
        chosen[list(self._selection)] = True
        self._emit("select", page, [np.packbits(chosen, bitorder="little").tobytes()], but=but)

    # ------------------------------------------------------------ from the browser

    def _receive(self, _: object, content: dict[str, Any], buffers: Sequence[memoryview]) -> None:
        # Nobody sees what a callback raises.
        try:
            match content.get("kind"):
                case "ready":
                    self._welcome(str(content["page"]))
                case "selection":
                    self._take_selection(content, buffers[0])
                case "request":
                    self._answer(content)
                case _:
                    pass
        except Exception as error:  # noqa: BLE001
            self._fail(background.sentence(error))

    def _welcome(self, page: str) -> None:
        with self._lock:
            self._pages[page] = 0
            self._send_rows(page)
        if not self._causes:
            self._find_causes()
        self._on_ready()

    def _take_selection(self, content: Mapping[str, Any], bits: memoryview) -> None:
        with self._lock:
            page = str(content["page"])
            if content["turn"] != self._pages.get(page):
                return  # the browser has not yet heard of other rows, or of another selection: that one counts
            flags = np.unpackbits(np.frombuffer(bits, np.uint8), bitorder="little", count=len(self._rows))
            self._selection = tuple(np.flatnonzero(flags.astype(bool) & ~self._rows.removed).tolist())
            self._hidden = int(content["hidden"])
            if len(self._pages) > 1:
                self._send_selection(but=page)
        self._on_selection()

    def _answer(self, content: Mapping[str, Any]) -> None:
        page, number = str(content["page"]), content["id"]
        name, asked = str(content["name"]), content["data"]
        try:
            if name == "note":
                self._on_note(str(asked["fingerprint"]), str(asked["text"])[:_MAX_NOTE])
            data, buffers = ({}, []) if name == "note" else answer(self._rows, name, asked)
        except Exception as error:  # noqa: BLE001
            self._emit("refusal", page, id=number, text=background.sentence(error))
        else:
            self._emit("answer", page, id=number, data=data, buffers=buffers)

    def _fail(self, text: str) -> None:
        self._emit("failed", text=text)

    def __repr__(self) -> str:
        return tables.messages_text(self.messages)


def _table_of(messages: Messages | Sequence[ReceivedMessage]) -> pa.Table:
    return messages.to_arrow() if isinstance(messages, Messages) else frames.to_arrow(messages)


def _numbers(rows: Sequence[int] | np.ndarray[Any, Any]) -> bytes:
    return np.asarray(rows, dtype="<u4").tobytes()
