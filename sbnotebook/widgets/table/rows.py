"""The rows beneath every table of messages, with the selection, the causes and the notes that go with them.

A message is addressed by its key, never by its place: filters, sorting and removal change places, and an action on the
wrong message may go unnoticed and cannot always be undone.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbnotebook.analysis import frames, tables
from sbnotebook.analysis.arrays import array_of_flags, array_of_numbers
from sbnotebook.analysis.decoders import DECODE_ERROR
from sbnotebook.client.messages import Messages
from sbnotebook.model import ReceivedMessage
from sbnotebook.widgets.background import Callbacks
from sbnotebook.widgets.pretty import JsonPath
from sbnotebook.widgets.table.body_values import body_values, path_name
from sbnotebook.widgets.table.cause_finder import CauseFinder, Causes
from sbnotebook.widgets.table.row_packing import CUT, NOT_SHOWN, shown_texts

MessageKey = tuple[str, int]
"""The address of the entity as text, and the sequence number."""

_NOTHING: Final[Mapping[str, Sequence[object]]] = {}
_NO_CAUSES: Final = Causes([], [])
_MAX_WORDS: Final = 20
_MOST_BODY_COLUMNS: Final = 20


def keys_of(messages: Messages | Iterable[ReceivedMessage]) -> list[MessageKey]:
    """Return the keys of messages, in their order.

    Example:
        >>> from sbnotebook.model import EntityAddress, PeekedMessage
        >>> keys_of([PeekedMessage(entity=EntityAddress.parse("orders"), sequence_number=7)])
        [('orders', 7)]
    """
    if isinstance(messages, Messages):
        return _keys_of_table(messages.to_arrow())
    return [(str(message.entity), message.sequence_number) for message in messages]


# ------------------------------------------------------------ the rows


class Rows:
    """Messages in the order in which they came, each with its row number. No number is used twice."""

    def __init__(self, table: pa.Table, extra: Mapping[str, Sequence[object]] = _NOTHING) -> None:
        self.table = table
        self.extra: dict[str, Any] = {name: _array(name, values, len(table)) for name, values in extra.items()}
        self.removed = np.zeros(len(table), dtype=bool)
        self.patched: dict[str, dict[int, object]] = {}

    def __len__(self) -> int:
        """Return how many row numbers are in use, removed ones included."""
        return len(self.table)

    @cached_property
    def keys(self) -> list[MessageKey]:
        """Return the key at each row number."""
        return _keys_of_table(self.table)

    @cached_property
    def numbers(self) -> dict[MessageKey, int]:
        """Return the row number of each key, removed ones included."""
        return {key: row for row, key in enumerate(self.keys)}

    def with_extra(self) -> pa.Table:
        """Return the message columns and the further ones, which replace a message column of the same name."""
        columns: Any = {name: self.table.column(name) for name in self.table.column_names}
        return pa.table(columns | self.extra)

    @cached_property
    def long_texts(self) -> dict[str, Any]:
        """Return the columns of which the rows show only a part of some texts."""
        return long_texts(self.table)

    def present(self, keys: Iterable[MessageKey]) -> list[int]:
        """Return the row numbers of these keys, without those that are unknown or removed."""
        found = (self.numbers.get(key) for key in dict.fromkeys(keys))
        return [row for row in found if row is not None and not self.removed[row]]

    def extended(self, added: Rows) -> Rows:
        """Return these rows with further ones behind them, without the messages that are already in these rows."""
        known = self.numbers.get
        new = [row for row, key in enumerate(added.keys) if (at := known(key)) is None or self.removed[at]]
        taken = added.table if len(new) == len(added) else _taken(added.table, new)
        both = Rows(pa.concat_tables([self.table, taken], promote_options="default"))
        both.extra = _joined(self, {name: _taken(values, new) for name, values in added.extra.items()}, len(new))
        # Numbers stay, so data by number stays, too.
        keys = [added.keys[row] for row in new]
        both.keys = [*self.keys, *keys]
        both.numbers = self.numbers | {key: row for row, key in enumerate(keys, len(self))}
        both.removed[: len(self)] = self.removed
        both.patched = self.patched
        return both

    def patch(self, values: Mapping[MessageKey, Mapping[str, object]]) -> dict[str, dict[int, object]]:
        """Keep changed cells, and return them by column and row number."""
        changed: dict[str, dict[int, object]] = {}
        for key, cells in values.items():
            for row in self.present([key]):
                for name, value in cells.items():
                    changed.setdefault(name, {})[row] = value
        for name, cells in changed.items():
            self.patched.setdefault(name, {}).update(cells)
        return changed

    def column(self, name: str) -> Any:
        """Return the values of a column as they are now, with its changed cells."""
        table: Any = self.with_extra()
        values = table.column(name) if name in table.column_names else pa.nulls(len(self))
        if name not in self.patched:
            return values
        cells = dict(enumerate(values.to_pylist())) | self.patched[name]
        return _array(name, list(cells.values()), len(self))

    def decoded(self, row: int) -> tuple[str | None, str | None] | None:
        """Return the text that a decoder made of a body, and why there is none; None where no decoder was used."""
        if DECODE_ERROR not in self.table.column_names:
            return None
        text, error = (self.table.column(name)[row].as_py() for name in ("body_text", DECODE_ERROR))
        return text, error

    def messages(self, rows: Sequence[int] | None = None) -> Messages:
        """Return the messages at these row numbers; by default all that were not removed."""
        if rows is None:
            return Messages(self.table.filter(array_of_flags(~self.removed)) if self.removed.any() else self.table)
        return Messages(_taken(self.table, rows))


def _keys_of_table(table: pa.Table) -> list[MessageKey]:
    entities: Any = table.column("entity").to_pylist()
    numbers: Any = table.column("sequence_number").to_pylist()
    return list(zip(entities, numbers, strict=True))


def _taken(values: Any, rows: Sequence[int]) -> Any:
    return values.take(array_of_numbers(np.asarray(rows, np.int64)))


def _array(name: str, values: Sequence[object], count: int) -> Any:
    if len(values) != count:
        raise ValueError(f"The column {name!r} has {len(values)} values for {count} messages: give one for each.")
    given: Any = values
    try:
        return pa.array(given)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def _joined(before: Rows, added: dict[str, Any], count: int) -> dict[str, Any]:
    """Join the further columns of rows that came in two parts; a column that a part lacks is null in it."""
    joined: dict[str, Any] = {}
    for name in before.extra | added:
        parts = [before.extra.get(name, pa.nulls(len(before))), added.get(name, pa.nulls(count))]
        values: list[object] = [value for part in parts for value in part.to_pylist()]
        joined[name] = _array(name, values, len(values))
    return joined


# ------------------------------------------------------------ words in texts that are too long for a row


def long_texts(table: pa.Table) -> dict[str, Any]:
    """Return the columns of which the rows show only a part of some texts.

    Example:
        >>> list(long_texts(pa.table({"subject": ["UA"], "body_text": ["x" * 1_000]})))
        ['body_text']
    """
    long: dict[str, Any] = {}
    for name in table.column_names:
        column: Any = table.column(name)
        if name not in NOT_SHOWN and (pa.types.is_string(column.type) or pa.types.is_map(column.type)):
            texts = shown_texts(name, column)
            longest: Any = pc.max(pc.utf8_length(texts))
            if (longest.as_py() or 0) > CUT:
                long[name] = texts
    return long


def matches(texts: Mapping[str, Any], words: Sequence[str], count: int) -> Iterable[bytes]:
    """Yield for each word the rows that contain it, as bits. Upper and lower case are the same."""
    for word in words[:_MAX_WORDS]:
        found = np.zeros(count, dtype=bool)
        for column in texts.values():
            hits: Any = pc.match_substring(column, word, ignore_case=True)
            found |= hits.fill_null(fill_value=False).to_numpy()
        yield np.packbits(found, bitorder="little").tobytes()


# ------------------------------------------------------------ the table, however it is drawn


class MessageRows:
    """A table of messages: its rows, the selection, the causes and the notes, however it is drawn.

    Its methods from ``rows_shown`` to ``say_problem`` draw a change. They are called under the lock, in any thread, and
    ``on_change`` after each of them.

    Example:
        >>> table = MessageRows(columns=["subject"])
        >>> table.patch({("orders", 7): {"outcome": "settled"}})  # an unknown key: passed over
        >>> table.count, table.selected_keys
        (0, ())
    """

    def __init__(
        self,
        messages: Messages | Sequence[ReceivedMessage] = (),
        *,
        columns: Sequence[str] | None = None,
        causes: bool = False,
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
        self.causes = _NO_CAUSES
        self.notes: dict[str, str] = {}
        self.resubmits: dict[str, tuple[datetime, int]] = {}
        """When messages of a cause were last resubmitted, and how many in all."""
        self._body_columns: dict[str, JsonPath] = {}
        self.on_change, self.on_causes, self.on_act, self._on_selection, self._on_note = (
            Callbacks(self.say_problem) for _ in range(5)
        )
        self._finder = CauseFinder(self._take_causes, self.say_problem)
        self._is_finding = False

    # ------------------------------------------------------------ the rows

    def show(
        self, messages: Messages | Sequence[ReceivedMessage], extra: Mapping[str, Sequence[object]] = _NOTHING
    ) -> None:
        """Replace all rows. Selection, filters and sorting stay, the selection by key."""
        rows = self._with_body_columns(_table_of(messages), extra)
        with self.lock:
            keys = self.selected_keys
            self.rows, self.load, self.causes = rows, self.load + 1, _NO_CAUSES
            self.selection = tuple(sorted(rows.present(keys))) if keys else ()
            self._draw(self.rows_shown)
        self._find_causes()
        if len(self.selection) != len(keys):
            self._on_selection()

    def append(
        self, messages: Messages | Sequence[ReceivedMessage], extra: Mapping[str, Sequence[object]] = _NOTHING
    ) -> None:
        """Add rows at the end. Messages that are already in the table are left out."""
        with self.lock:
            first = len(self.rows)
            self.rows = self.rows.extended(self._with_body_columns(_table_of(messages), extra))
            self._draw(self.rows_added, first)
        self._find_causes()

    def patch(self, values: Mapping[MessageKey, Mapping[str, object]]) -> None:
        """Change cells. A column with a new name is added."""
        with self.lock:
            self._draw(self.cells_changed, self.rows.patch(values))

    def remove(self, keys: Iterable[MessageKey]) -> None:
        """Remove rows, also from the selection."""
        with self.lock:
            numbers = self.rows.present(keys)
            self.rows.removed[numbers] = True
            before = len(self.selection)
            self.selection = tuple(number for number in self.selection if not self.rows.removed[number])
            self._draw(self.rows_removed, numbers)
        if len(self.selection) != before:
            self._on_selection()

    @property
    def messages(self) -> Messages:
        """Return all messages, in the order in which they came."""
        return self.rows.messages()

    @property
    def count(self) -> int:
        """Return how many messages there are, without those that were removed."""
        return len(self.rows) - int(self.rows.removed.sum())

    def add_body_column(self, path: JsonPath) -> str:
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
                self._draw(self.rows_added, len(rows))
        return name

    def _with_body_columns(self, table: pa.Table, extra: Mapping[str, Sequence[object]]) -> Rows:
        rows = Rows(table, extra)
        for name, path in self._body_columns.items():
            rows.extra[name] = _values_at(table, path)
        return rows

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
            self._draw(self.selection_changed)
        self._on_selection()

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
        return self._on_selection.add(callback)

    # ------------------------------------------------------------ causes and notes

    def find_causes(self) -> None:
        """Group the messages by cause, these and all that follow, in the background; only where causes are shown."""
        self._is_finding = self.with_causes
        self._find_causes()

    def wait_for_causes(self, timeout: float) -> bool:
        """Wait until the causes of all messages are found, or for so many seconds; tells whether they are."""
        return self._finder.wait(timeout)

    def count_causes(self, keys: Iterable[MessageKey]) -> Counter[str]:
        """Count messages by the fingerprint of their cause, without those whose cause is not known."""
        with self.lock:
            places = (self.rows.numbers.get(key) for key in keys)
            found = self.causes.fingerprints
            return Counter(found[place] for place in places if place is not None and place < len(found))

    def set_resubmits(self, resubmits: Mapping[str, tuple[datetime, int]]) -> None:
        """Show beside the causes when their messages were last resubmitted, and how many in all."""
        self.resubmits = dict(resubmits)
        self._draw(self.notes_changed)

    def set_notes(self, notes: Mapping[str, str]) -> None:
        """Show notes beside the causes."""
        self.notes = dict(notes)
        self._draw(self.notes_changed)

    def on_note(self, callback: Callable[[str, str], object]) -> Callable[[], None]:
        """Call a function with fingerprint and text of each note that the user writes."""
        return self._on_note.add(callback)

    def write_note(self, fingerprint: str, text: str) -> None:
        """Pass on a note that the user has written."""
        self._on_note(fingerprint, text)

    def _find_causes(self) -> None:
        if self._is_finding and len(self.rows):
            self._finder.find(self.load, self.rows.table)

    def _take_causes(self, load: int, causes: Causes) -> None:
        with self.lock:
            if load != self.load:
                return  # the rows were replaced meanwhile, and their causes come, too
            self.causes = causes
            self._draw(self.causes_found)
        self.on_causes()

    # ------------------------------------------------------------ drawing

    def _draw(self, change: Callable[..., object], *details: object) -> None:
        change(*details)
        self.on_change()

    def rows_shown(self) -> None:
        """Draw other rows."""

    def rows_added(self, first: int) -> None:
        """Draw the rows from number ``first`` on, which are new."""

    def rows_removed(self, numbers: Sequence[int]) -> None:
        """Take rows away."""

    def cells_changed(self, changes: Mapping[str, Mapping[int, object]]) -> None:
        """Draw changed cells, given by column and row number."""

    def selection_changed(self) -> None:
        """Draw the selection."""

    def causes_found(self) -> None:
        """Draw the causes."""

    def notes_changed(self) -> None:
        """Draw the notes."""

    def say_problem(self, sentence: str) -> None:
        """Show an error that would be seen nowhere else."""

    def __repr__(self) -> str:
        return tables.messages_text(self.messages)


def _values_at(table: pa.Table, path: JsonPath) -> Any:
    bodies: Any = table.column("body_text").to_pylist()
    return pa.array(body_values(bodies, path), pa.string())


def _table_of(messages: Messages | Sequence[ReceivedMessage]) -> pa.Table:
    return messages.to_arrow() if isinstance(messages, Messages) else frames.to_arrow(messages)
