"""The messages of a table, each at a row of its own for as long as they are shown.

A message is addressed by its key, never by its place: filters, sorting and removal change places, and an action on the
wrong message cannot be undone by anyone who does not notice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbnotebook.client.messages import Messages
from sbnotebook.model import ReceivedMessage
from sbnotebook.widgets.table.packing import CUT, NOT_SHOWN, Column, texts_of

__all__ = ["NOTHING", "MessageKey", "Rows", "Table", "keys_of", "long_texts", "matches"]

_MAX_WORDS: Final = 20


def long_texts(table: pa.Table) -> dict[str, Any]:
    """The columns of which the rows show only a part of some texts.

    Args:
        table: with message columns.

    Example:
        >>> list(long_texts(pa.table({"subject": ["UA"], "body_text": ["x" * 1_000]})))
        ['body_text']
    """
    long: dict[str, Any] = {}
    for name in table.column_names:
        column: Any = table.column(name)
        if name not in NOT_SHOWN and (pa.types.is_string(column.type) or pa.types.is_map(column.type)):
            texts = texts_of(column)
            longest: Any = pc.max(pc.utf8_length(texts))
            if (longest.as_py() or 0) > CUT:
                long[name] = texts
    return long


def matches(texts: Mapping[str, Any], words: Sequence[str], count: int) -> Iterable[bytes]:
    """For each word, the rows in which it stands, as bits; upper and lower case are the same.

    Args:
        texts: columns of texts.
        words: to look for, the first 20 of them.
        count: of rows.
    """
    for word in words[:_MAX_WORDS]:
        found = np.zeros(count, dtype=bool)
        for column in texts.values():
            hits: Any = pc.match_substring(column, word, ignore_case=True)
            found |= hits.fill_null(fill_value=False).to_numpy()
        yield np.packbits(found, bitorder="little").tobytes()


MessageKey = tuple[str, int]
"""The address of the entity as text, and the sequence number."""

NOTHING: Final[Mapping[str, Sequence[object]]] = {}


class Table(Protocol):
    """What a panel needs of the table of messages that it stands on, whatever shows it."""

    def show(
        self, messages: Messages | Sequence[ReceivedMessage], extra: Mapping[str, Sequence[object]] = NOTHING
    ) -> None:
        """Replace all rows; selection, filters and sorting are kept, the selection by key."""
        ...

    def append(
        self, messages: Messages | Sequence[ReceivedMessage], extra: Mapping[str, Sequence[object]] = NOTHING
    ) -> None:
        """Add rows behind those that are there; messages that are there already are left out."""
        ...

    def patch(self, values: Mapping[MessageKey, Mapping[str, object]]) -> None:
        """Change cells: values by column, for each message; a column that is new appears."""
        ...

    def remove(self, keys: Iterable[MessageKey]) -> None:
        """Take rows away, also out of the selection."""
        ...

    def select(self, keys: Iterable[MessageKey]) -> None:
        """Select these messages and no others."""
        ...

    @property
    def messages(self) -> Messages:
        """All rows, in the order in which they came."""
        ...

    @property
    def selected_keys(self) -> tuple[MessageKey, ...]:
        """The keys of the selected messages."""
        ...

    @property
    def selected(self) -> Messages:
        """The selected messages, with all columns."""
        ...

    @property
    def hidden(self) -> int:
        """How many of the selected messages a filter hides now."""
        ...

    def on_selection(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Call a function whenever the selection changes, until the function that is returned is called."""
        ...

    def set_notes(self, notes: Mapping[str, str]) -> None:
        """Show these notes beside the causes, by fingerprint."""
        ...

    def on_note(self, callback: Callable[[str, str], object]) -> Callable[[], None]:
        """Call a function with fingerprint and text of each note that is written, until the returned one is called."""
        ...


def keys_of(messages: Messages | Iterable[ReceivedMessage]) -> list[MessageKey]:
    """The keys of messages, in their order.

    Example:
        >>> from sbnotebook.model import EntityAddress, PeekedMessage
        >>> keys_of([PeekedMessage(entity=EntityAddress.parse("orders"), sequence_number=7)])
        [('orders', 7)]
    """
    if isinstance(messages, Messages):
        return _keys_of_table(messages.to_arrow())
    return [(str(message.entity), message.sequence_number) for message in messages]


class Rows:
    """Messages in the order in which they came, each with its row number; numbers are never used again.

    Args:
        table: the messages, with all message columns.
        extra: further columns, each with a value for every message.

    Raises:
        ValueError: a further column has more or fewer values than there are messages.
    """

    def __init__(self, table: pa.Table, extra: Mapping[str, Sequence[object]] = NOTHING) -> None:
        self.table = table
        self.extra: dict[str, Any] = {name: _array(name, values, len(table)) for name, values in extra.items()}
        self.removed = np.zeros(len(table), dtype=bool)
        self.patched: dict[str, dict[int, object]] = {}

    def __len__(self) -> int:
        """How many row numbers are in use, removed ones included."""
        return len(self.table)

    @cached_property
    def keys(self) -> list[MessageKey]:
        """The key at each row number."""
        return _keys_of_table(self.table)

    @cached_property
    def numbers(self) -> dict[MessageKey, int]:
        """The row number of each key, removed ones included."""
        return {key: row for row, key in enumerate(self.keys)}

    def with_extra(self) -> pa.Table:
        """The message columns and the further ones; a further one takes the place of a message column of its name."""
        columns: Any = {name: self.table.column(name) for name in self.table.column_names}
        return pa.table(columns | self.extra)

    def add(self, name: str, values: Sequence[object]) -> Column:
        """Add a column that is hidden until the user asks for it.

        Args:
            name: the column's.
            values: one for each row number.
        """
        self.extra[name] = _array(name, values, len(self))
        return Column(name, "text", hidden=True)

    @cached_property
    def long_texts(self) -> dict[str, Any]:
        """The columns of which the rows show only a part of some texts."""
        return long_texts(self.table)

    def present(self, keys: Iterable[MessageKey]) -> list[int]:
        """The row numbers of those of the keys that are there."""
        found = (self.numbers.get(key) for key in dict.fromkeys(keys))
        return [row for row in found if row is not None and not self.removed[row]]

    def extended(self, table: pa.Table, extra: Mapping[str, Sequence[object]] = NOTHING) -> Rows:
        """These rows and further ones behind them, without the messages that are here already."""
        added = Rows(table, extra)
        new = [row for row, key in enumerate(added.keys) if not self.present([key])]
        both = Rows(pa.concat_tables([self.table, _taken(added.table, new)]))
        both.extra = _joined(self, {name: _taken(values, new) for name, values in added.extra.items()}, len(new))
        both.removed[: len(self)] = self.removed
        both.patched = self.patched
        return both

    def patch(self, values: Mapping[MessageKey, Mapping[str, object]]) -> dict[str, dict[int, object]]:
        """Keep changed cells, and give them by column and row number."""
        changed: dict[str, dict[int, object]] = {}
        for key, cells in values.items():
            for row in self.present([key]):
                for name, value in cells.items():
                    changed.setdefault(name, {})[row] = value
        for name, cells in changed.items():
            self.patched.setdefault(name, {}).update(cells)
        return changed

    def messages(self, rows: Sequence[int] | None = None) -> Messages:
        """The messages at these row numbers, or all that were not removed."""
        if rows is None:
            return Messages(self.table.filter(pa.array(~self.removed)) if self.removed.any() else self.table)
        return Messages(_taken(self.table, rows))


def _keys_of_table(table: pa.Table) -> list[MessageKey]:
    entities: Any = table.column("entity").to_pylist()
    numbers: Any = table.column("sequence_number").to_pylist()
    return list(zip(entities, numbers, strict=True))


def _taken(values: Any, rows: Sequence[int]) -> Any:
    return values.take(pa.array(rows, pa.int64()))


def _array(name: str, values: Sequence[object], count: int) -> Any:
    if len(values) != count:
        raise ValueError(f"The column {name!r} has {len(values)} values for {count} messages: give one for each.")
    given: Any = values
    try:
        return pa.array(given)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def _joined(before: Rows, added: dict[str, Any], count: int) -> dict[str, Any]:
    """Further columns of rows that came one after the other; what one of them does not have is null there."""
    joined: dict[str, Any] = {}
    for name in before.extra | added:
        parts = [before.extra.get(name, pa.nulls(len(before))), added.get(name, pa.nulls(count))]
        values: list[object] = [value for part in parts for value in part.to_pylist()]
        joined[name] = _array(name, values, len(values))
    return joined
