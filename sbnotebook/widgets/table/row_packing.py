r"""The rows of a table, by number and by key, and as compressed columns for a widget in the browser.

Nothing is made per message where Arrow can do it for all: texts are cut, cleaned and joined, one to a line, numbers
and times are floats. So 100,000 messages are packed in a fraction of a second.

A column is coded as one of

- ``text``: the cells of UTF-8, joined by ``\n``; ``\0`` is a null (no cleaned cell holds either),
- ``codes``: as many uint32 as there are rows, places in a list of texts that follows them; for columns with few values,
- ``float``: float64; NaN is a null; times are milliseconds since 1970, flags 0 and 1,
- ``long``: int64 for numbers that a float64 cannot hold; the smallest is a null.

A message is addressed by its key, never by its place: filters, sorting and removal change places, and an action on the
wrong message may go unnoticed and cannot always be undone.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbnotebook.analysis.decoders import DECODE_ERROR
from sbnotebook.analysis.page_columns import array_of_flags, array_of_numbers, array_of_values
from sbnotebook.client.messages import Messages
from sbnotebook.model import ReceivedMessage
from sbnotebook.model.body import json_letters
from sbnotebook.model.budget import PARSED_CHARACTERS
from sbnotebook.model.json_text import Path

BODY: Final = "body_json"
"""The prefix of the names of columns with values in JSON bodies, as in an expression of ``where``."""
CUT: Final = 200
"""Characters of a text that are shown in a row; who wants more looks into the message."""

_MAX_PACKET: Final = 1_000_000
"""Bytes: Databricks takes no message of more than 5 MB, and large ones delay those behind them."""
_FIRST: Final = 500
_AT_ONCE: Final = 10_000
_EXACT: Final = 2**53
_arrow: Final[Any] = pa
_kernels: Final[Any] = pc
# Arrow makes a scalar of a Python value only after it has imported pandas.
_NULL_TEXT, _LINE_END, _IS, _COMMA = array_of_values(["\0", "\n", "=", ", "], pa.string())
_NULL_WHOLE, _NULL_FLOAT = (array_of_numbers(np.array([value]))[0] for value in (-(2**63), math.nan))
_PLAIN_NAME: Final = re.compile(r"[^\W\d][\w-]*+")
_SPACES: Final = r"[\t\r\n]+"
_UNPRINTABLE: Final = r"[\p{C}\p{Zl}\p{Zp}]"
IN_COLUMNS: Final = ("DeadLetterReason", "DeadLetterErrorDescription", "ResubmitCount")
"""Application properties that are columns of their own."""
NOT_SHOWN: Final = ("body", "application_property_types", "extras")
_TITLES: Final = {
    "application_properties": "properties",
    "body_text": "body",
    "dead_letter_error_description": "description",
    "dead_letter_reason": "reason",
    "delivery_count": "deliveries",
    "enqueued_time": "enqueued",
    "sequence_number": "sequence",
}
_FIRST_COLUMNS: Final = (
    "sequence_number",
    "enqueued_time",
    "locked_until",
    "state",
    "subject",
    "delivery_count",
    "dead_letter_reason",
    "dead_letter_error_description",
    "body_text",
    "message_id",
    "session_id",
)


def title_of(name: str) -> str:
    if name.startswith((f"{BODY}.", f"{BODY}[")):
        return name.removeprefix(BODY).removeprefix(".")
    return _TITLES.get(name, name.replace("_", " "))


def path_name(path: Path) -> str:
    parts = (f".{part}" if _PLAIN_NAME.fullmatch(str(part)) else f"[{json.dumps(part)}]" for part in path)
    return BODY + "".join(parts)


@dataclass(frozen=True, slots=True)
class TableColumn:
    name: str
    kind: str
    hidden: bool = False
    late: bool = False
    """True for a column that only changed cells have; it goes when they go."""

    @property
    def message(self) -> dict[str, Any]:
        return asdict(self) | {"title": title_of(self.name) + (" (UTC)" if self.kind == "time" else "")}


@dataclass(frozen=True, slots=True)
class Packet:
    first: int
    count: int
    parts: list[dict[str, Any]]
    data: bytes


def table_columns(table: pa.Table, extra: Iterable[str] = (), chosen: Sequence[str] | None = None) -> list[TableColumn]:
    """Return the columns that hold something or are named, with those that are shown at first before the others."""
    everywhere = {*extra, *(name for name in table.column_names if _tells(name, table.column(name)))}
    if chosen is None:
        several = ["entity"] if _kernels.count_distinct(table.column("entity")).as_py() > 1 else []
        shown = [name for name in (*several, *_FIRST_COLUMNS) if name in everywhere]
        shown += [name for name in extra if name not in shown]
    else:
        shown = [name for name in chosen if name in table.column_names]
    hidden = [name for name in table.column_names if name in everywhere and name not in shown]
    kinds = dict(zip(table.column_names, map(_kind, table.schema.types), strict=True))
    return [TableColumn(name, kinds[name], hidden=name not in shown) for name in (*shown, *hidden)]


def packets(table: pa.Table, columns: Sequence[TableColumn]) -> Iterator[Packet]:
    """Yield the rows, a few first, so that users soon see them."""
    start, size = 0, _FIRST
    while start < len(table):
        yield from _packed(table, columns, start, min(size, len(table) - start))
        start, size = start + size, _AT_ONCE


def cleaned(texts: Any) -> Any:
    """Cut texts at :data:`CUT` characters, with a dot for unprintable characters and a space for line ends."""
    in_line = _kernels.replace_substring_regex(_kernels.utf8_slice_codeunits(texts, 0, CUT), _SPACES, " ")
    return _kernels.replace_substring_regex(in_line, _UNPRINTABLE, "·")


def shown_texts(name: str, values: Any) -> Any:
    """Return the values of a column as texts: maps as ``name=value, …``, JSON bodies with letters for their escapes."""
    if pa.types.is_map(values.type):
        return pa.chunked_array([_properties(chunk) for chunk in values.chunks], pa.string())
    if not pa.types.is_string(values.type):
        texts = [None if value is None else str(value) for value in values.to_pylist()]
    elif name == "body_text" and _kernels.any(_kernels.match_substring(values, "\\u")).as_py():
        texts = [None if text is None else json_letters(text) for text in values.to_pylist()]
    else:
        return values
    return pa.chunked_array([array_of_values(texts, pa.string())])


def array_of_cells(values: Sequence[object]) -> Any:
    """Return values of any kind as an array; as texts where they are of several kinds."""
    try:
        return _arrow.array(values)
    except (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError, OverflowError):
        return pa.array([None if value is None else str(value) for value in values], pa.string())


def changed_cells(name: str, values: Sequence[object], known: TableColumn | None) -> tuple[TableColumn, pa.Table]:
    cells = array_of_cells(values)
    return known or TableColumn(name, _kind(cells.type), late=True), pa.table({name: cells})


def _tells(name: str, values: Any) -> bool:
    """Tell whether a column has a value that is not null, empty or what nearly every message has."""
    if name in NOT_SHOWN or values.null_count == len(values):
        return False
    if name in ("state", "resubmit_count", "delivery_count", "body_type"):
        return not {"active", 0, "data", None}.issuperset(values.unique().to_pylist())
    if pa.types.is_map(values.type):
        return any(_own(chunk.keys).any() for chunk in values.chunks)
    return not pa.types.is_string(values.type) or _kernels.max(_kernels.binary_length(values)).as_py() > 0


def _kind(kind: Any) -> str:
    if pa.types.is_boolean(kind):
        return "flag"
    if pa.types.is_temporal(kind) and not pa.types.is_time(kind) and not pa.types.is_duration(kind):
        return "time"
    return "number" if pa.types.is_integer(kind) or pa.types.is_floating(kind) else "text"


def _packed(table: pa.Table, columns: Sequence[TableColumn], start: int, count: int) -> Iterator[Packet]:
    part = table.slice(start, count)
    pieces = [(column, *_coded(column, part.column(column.name))) for column in columns]
    data = zlib.compress(b"".join(piece for _, _, piece in pieces), level=1)
    if len(data) > _MAX_PACKET and count > 1:
        half = count // 2
        yield from _packed(table, columns, start, half)
        yield from _packed(table, columns, start + half, count - half)
        return
    parts = [{"name": column.name, "coding": coding, "bytes": len(piece)} for column, coding, piece in pieces]
    yield Packet(start, count, parts, data)


def _coded(column: TableColumn, values: Any) -> tuple[str, bytes]:
    if column.kind == "text":
        texts = cleaned(shown_texts(column.name, values)).combine_chunks()
        coded = texts.dictionary_encode(null_encoding="encode")
        if len(coded.dictionary) > max(1, len(texts) // 4):
            return "text", _lines(texts)
        codes = _in_numpy(coded.indices.cast(pa.uint32())).astype("<u4").tobytes()
        return "codes", codes + _lines(coded.dictionary)
    array = values.combine_chunks()
    if _kind(array.type) == "text":  # in a column of numbers, texts are nulls
        array = pa.nulls(len(array))
    if column.kind == "time":
        array = array.cast(pa.timestamp("ms"), safe=False).cast(pa.int64())
    elif pa.types.is_integer(array.type) and any(
        abs(value or 0) > _EXACT for value in _kernels.min_max(array).as_py().values()
    ):
        return "long", _in_numpy(array.cast(pa.int64()).fill_null(_NULL_WHOLE)).astype("<i8").tobytes()
    return "float", _in_numpy(array.cast(pa.float64(), safe=False).fill_null(_NULL_FLOAT)).astype("<f8").tobytes()


def _in_numpy(array: Any) -> np.ndarray[Any, Any]:
    """Return the numbers of an array without nulls; ``to_numpy`` would import pandas."""
    return np.from_dlpack(array)


def _properties(array: Any) -> Any:
    """Maps as texts, without the properties that are columns of their own."""
    start, end = array.offsets[0].as_py(), array.offsets[-1].as_py()
    names, values = array.keys[start:end], array.items[start:end]
    own = _own(names)
    before = np.concatenate([[0], np.cumsum(own)]).astype(np.int32)  # how many there are before each place
    pairs = _kernels.binary_join_element_wise(names, values, _IS, null_handling="replace")
    offsets = array_of_numbers(before[_in_numpy(array.offsets) - start])
    return _kernels.binary_join(pa.ListArray.from_arrays(offsets, pairs.filter(array_of_flags(own))), _COMMA)


def _own(names: Any) -> np.ndarray[Any, Any]:
    known = _kernels.is_in(names, array_of_values(IN_COLUMNS, pa.string()))
    return ~_in_numpy(known.cast(pa.uint8())).astype(bool)


def _lines(texts: Any) -> bytes:
    ends = array_of_numbers(np.array([0, len(texts)], np.int32))
    (joined,) = _kernels.binary_join(pa.ListArray.from_arrays(ends, texts.fill_null(_NULL_TEXT)), _LINE_END)
    return joined.as_buffer().to_pybytes()


MessageKey = tuple[str, int]
"""The address of the entity as text, and the sequence number."""
Decoded = tuple[str | None, str | None]
"""The text that a decoder made of a body, and why there is none."""

NOTHING: Final[Mapping[str, Sequence[object]]] = {}
_MAX_WORDS: Final = 20
# Numbers stay text: one of a million digits would take hours.
_DECODER: Final = json.JSONDecoder(parse_int=str, parse_float=str, parse_constant=str)
_CONSTANTS: Final = {None: "null", True: "true", False: "false"}
_KINDS: Final[dict[Any, str]] = {dict: "{…}", list: "[…]"}


def keys_of(messages: Messages | Iterable[ReceivedMessage]) -> list[MessageKey]:
    if isinstance(messages, Messages):
        table: Any = messages.to_arrow()
        return list(zip(*(table.column(name).to_pylist() for name in ("entity", "sequence_number")), strict=True))
    return [(str(message.entity), message.sequence_number) for message in messages]


# ------------------------------------------------------------ the rows


class Rows:
    """Messages in the order in which they came, each with its row number. No number is used twice."""

    def __init__(self, table: Any, extra: Mapping[str, Sequence[object]] = NOTHING) -> None:
        self.table = table
        for name, values in extra.items():
            if len(values) != len(table):
                raise ValueError(
                    f"The column {name!r} has {len(values)} values for {len(table)} messages: give one for each."
                )
        self.extra = {name: list(values) for name, values in extra.items()}
        """The values of further columns, and of message columns with changed cells."""
        self.removed = np.zeros(len(table), dtype=bool)
        self.changes = 0
        """Counts how often cells were changed."""

    def __len__(self) -> int:
        """Return how many row numbers are in use, removed ones included."""
        return len(self.table)

    @cached_property
    def keys(self) -> list[MessageKey]:
        return keys_of(Messages(self.table))

    @cached_property
    def numbers(self) -> dict[MessageKey, int]:
        """Return the row number of each key, removed ones included."""
        return {key: row for row, key in enumerate(self.keys)}

    def with_extra(self, first: int = 0) -> pa.Table:
        """Return the columns of the rows from a number on, with the further ones."""
        columns = {name: self.table.column(name).slice(first) for name in self.table.column_names}
        return pa.table(columns | {name: array_of_cells(values[first:]) for name, values in self.extra.items()})

    @cached_property
    def long_texts(self) -> dict[str, Any]:
        """Return the columns of which the rows show only a part of some texts."""
        long: dict[str, Any] = {}
        for name in self.table.column_names:
            column = self.table.column(name)
            if name not in NOT_SHOWN and (pa.types.is_string(column.type) or pa.types.is_map(column.type)):
                texts = shown_texts(name, column)
                if (_kernels.max(_kernels.utf8_length(texts)).as_py() or 0) > CUT:
                    long[name] = texts
        return long

    def present(self, keys: Iterable[MessageKey]) -> list[int]:
        """Return the row numbers of these keys, without those that are unknown or removed."""
        found = (self.numbers.get(key) for key in dict.fromkeys(keys))
        return [row for row in found if row is not None and not self.removed[row]]

    def extended(self, added: Rows) -> Rows:
        """Return these rows with further ones behind them, without the messages that are already in these rows."""
        known = self.numbers.get
        new = [row for row, key in enumerate(added.keys) if (at := known(key)) is None or self.removed[at]]
        taken = added.table if len(new) == len(added) else _taken(added.table, new)
        values = {name: (self.values(name), added.values(name)) for name in self.extra | added.extra}
        extra = {name: [*ours, *map(theirs.__getitem__, new)] for name, (ours, theirs) in values.items()}
        both = Rows(pa.concat_tables([self.table, taken], promote_options="default"), extra)
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
        return self.table.column(name).to_pylist() if name in self.table.column_names else [None] * len(self)

    def cell(self, row: int, name: str) -> Any:
        value: Any = self.extra[name][row] if name in self.extra else self.table.column(name)[row].as_py()
        return json_letters(value) if name == "body_text" and value else value

    def message(self, row: int) -> tuple[ReceivedMessage, Decoded | None]:
        """Return a message, and what a decoder made of its body; None where no decoder was used."""
        is_decoded = DECODE_ERROR in self.table.column_names
        made = [self.table.column(name)[row].as_py() for name in ("body_text", DECODE_ERROR) if is_decoded]
        return self.messages([row])[0], (made[0], made[1]) if made else None

    def messages(self, rows: Sequence[int] | None = None) -> Messages:
        """Return the messages at these row numbers; by default all that were not removed."""
        if rows is None:
            return Messages(self.table.filter(array_of_flags(~self.removed)) if self.removed.any() else self.table)
        return Messages(_taken(self.table, rows))


def _taken(values: Any, rows: Sequence[int]) -> Any:
    return values.take(array_of_numbers(np.asarray(rows, np.int64)))


# ------------------------------------------------------------ words in texts


def matches(texts: Mapping[str, Any], words: Sequence[str], count: int) -> Iterable[bytes]:
    """Yield for each word the rows that contain it, as bits. Upper and lower case are the same."""
    for word in words[:_MAX_WORDS]:
        yield np.packbits(holding(texts.values(), word, count), bitorder="little").tobytes()


def holding(texts: Iterable[Any], words: str, count: int) -> np.ndarray[Any, Any]:
    """Return for each row whether one of its texts contains these words."""
    found = np.zeros(count, dtype=bool)
    for column in texts:
        found |= _kernels.match_substring(column, words, ignore_case=True).fill_null(fill_value=False).to_numpy()
    return found


# ------------------------------------------------------------ values in JSON bodies, which are hostile input


def body_values(table: Any, path: Path) -> list[object]:
    """Return the value at a path in each body as text, None where there is none; of objects and lists their kind."""
    return [_value_at(text, path) for text in table.column("body_text").to_pylist()]


def _value_at(text: str | None, path: Path) -> str | None:
    if text is None or len(text) > PARSED_CHARACTERS:
        return None
    try:
        value: Any = _DECODER.decode(text.lstrip("\ufeff"))
        for part in path:
            if isinstance(value, str):
                return None
            value = value[part]
    except (ValueError, RecursionError, LookupError, TypeError):
        return None
    return value if isinstance(value, str) else _KINDS.get(type(value)) or _CONSTANTS[value]
