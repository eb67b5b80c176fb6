"""The rows of a table of messages, by number and by key.

A message is addressed by its key, never by its place: filters, sorting and removal change places, and an action on the
wrong message may go unnoticed and cannot always be undone.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbnotebook.analysis.arrays import array_of_flags, array_of_numbers
from sbnotebook.analysis.decoders import DECODE_ERROR
from sbnotebook.client.messages import Messages
from sbnotebook.model import ReceivedMessage
from sbnotebook.model.body import json_letters
from sbnotebook.model.budget import PARSED_CHARACTERS
from sbnotebook.model.json_text import Path
from sbnotebook.widgets.table.row_packing import CUT, NOT_SHOWN, array_of_cells, shown_texts

MessageKey = tuple[str, int]
"""The address of the entity as text, and the sequence number."""

_NOTHING: Final[Mapping[str, Sequence[object]]] = {}
_MAX_WORDS: Final = 20
# Numbers stay text: one of a million digits would take hours.
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
_CONSTANTS: Final = {None: "null", True: "true", False: "false"}


def keys_of(messages: Messages | Iterable[ReceivedMessage]) -> list[MessageKey]:
    """Return the keys of messages, in their order."""
    if isinstance(messages, Messages):
        return _keys_of_table(messages.to_arrow())
    return [(str(message.entity), message.sequence_number) for message in messages]


# ------------------------------------------------------------ the rows


class Rows:
    """Messages in the order in which they came, each with its row number. No number is used twice."""

    def __init__(self, table: pa.Table, extra: Mapping[str, Sequence[object]] = _NOTHING) -> None:
        self.table = table
        self.extra = {name: _checked(name, values, len(table)) for name, values in extra.items()}
        """The values of further columns, and of message columns with changed cells."""
        self.removed = np.zeros(len(table), dtype=bool)
        self.changes = 0
        """Counts how often cells were changed."""

    def __len__(self) -> int:
        """Return how many row numbers are in use, removed ones included."""
        return len(self.table)

    @cached_property
    def keys(self) -> list[MessageKey]:
        return _keys_of_table(self.table)

    @cached_property
    def numbers(self) -> dict[MessageKey, int]:
        """Return the row number of each key, removed ones included."""
        return {key: row for row, key in enumerate(self.keys)}

    def with_extra(self, first: int = 0) -> pa.Table:
        """Return the columns of the rows from a number on, with the further ones."""
        columns: Any = {name: self.table.column(name).slice(first) for name in self.table.column_names}
        return pa.table(columns | {name: array_of_cells(values[first:]) for name, values in self.extra.items()})

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
        for name in self.extra | added.extra:
            values = added.values(name)
            both.extra[name] = [*self.values(name), *(values[row] for row in new)]
        # Numbers stay, so data by number stays, too.
        keys = [added.keys[row] for row in new]
        both.keys = [*self.keys, *keys]
        both.numbers = self.numbers | {key: row for row, key in enumerate(keys, len(self))}
        both.removed[: len(self)] = self.removed
        return both

    def patch(self, values: Mapping[MessageKey, Mapping[str, object]]) -> dict[str, dict[int, object]]:
        """Change cells, and return by column those that had other values before."""
        changed: dict[str, dict[int, object]] = {}
        for key, cells in values.items():
            for row in self.present([key]):
                for name, value in cells.items():
                    known = self.extra.setdefault(name, self.values(name))
                    if known[row] != value:
                        known[row] = value
                        changed.setdefault(name, {})[row] = value
        self.changes += bool(changed)
        return changed

    def values(self, name: str) -> list[object]:
        if name in self.extra:
            return self.extra[name]
        table: Any = self.table
        return table.column(name).to_pylist() if name in table.column_names else [None] * len(self)

    def column(self, name: str) -> Any:
        return array_of_cells(self.extra[name]) if name in self.extra else self.table.column(name)

    def cell(self, row: int, name: str) -> Any:
        value: Any = self.extra[name][row] if name in self.extra else self.table.column(name)[row].as_py()
        return json_letters(value) if name == "body_text" and value else value

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


def _checked(name: str, values: Sequence[object], count: int) -> list[object]:
    if len(values) != count:
        raise ValueError(f"The column {name!r} has {len(values)} values for {count} messages: give one for each.")
    return list(values)


# ------------------------------------------------------------ words in texts that are too long for a row


def long_texts(table: pa.Table) -> dict[str, Any]:
    """Return the columns of which the rows show only a part of some texts."""
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
        yield np.packbits(holding(texts.values(), word, count), bitorder="little").tobytes()


def holding(texts: Iterable[Any], words: str, count: int) -> np.ndarray[Any, Any]:
    """Return for each row whether one of its texts contains these words."""
    found = np.zeros(count, dtype=bool)
    for column in texts:
        hits: Any = pc.match_substring(column, words, ignore_case=True)
        found |= hits.fill_null(fill_value=False).to_numpy()
    return found


# ------------------------------------------------------------ values in JSON bodies, which are hostile input


def body_values(texts: Iterable[str | None], path: Path) -> list[str | None]:
    """Return the value at a path in each body as text, None where there is none; of objects and lists their kind."""
    return [_value_at(text, path) for text in texts]


def _value_at(text: str | None, path: Path) -> str | None:
    if text is None or len(text) > PARSED_CHARACTERS:
        return None
    try:
        value: Any = _DECODER.decode(text.lstrip("\ufeff"))
    except (ValueError, RecursionError):
        return None
    for part in path:
        if isinstance(part, int):
            items: Sequence[Any] = cast("list[Any]", value) if isinstance(value, list) else ()
            if part >= len(items):
                return None
            value = items[part]
        elif isinstance(value, dict) and part in value:
            value = cast("dict[str, Any]", value)[part]
        else:
            return None
    return _text_of(value)


def _text_of(value: Any) -> str:
    if isinstance(value, dict):
        return "{…}"
    if isinstance(value, list):
        return "[…]"
    return value if isinstance(value, str) else _CONSTANTS[value]
