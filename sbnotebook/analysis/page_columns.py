"""A page of messages to columns, straight from their bytes where messages are made alike.

:class:`PageColumns` remembers the shapes of the messages that it met: see :mod:`sbnotebook.analysis.shapes`. Arrow's
kernels cut the values that differ out of the page. All other values are those of the message from which the shape was
learnt, which was decoded. Where few messages have the same shape, each is decoded by itself.

``pyarrow.array`` imports pandas, to see whether it was given a pandas object. In a new process that takes as long as
ten round trips over a network, and 50 MB.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import chain, count, repeat
from operator import attrgetter
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbnotebook.amqp import Timestamp, decode
from sbnotebook.amqp.sections import SECTIONS
from sbnotebook.analysis.shapes import COUNTS, MOMENTS, TIMES, Numbers, Places, Shape, shape_of
from sbnotebook.model import MessageState, PeekedMessage
from sbnotebook.model.body import UNUSUAL_STARTS, Marks, body_text, is_usually_utf8, mark_names
from sbnotebook.model.budget import Allowance
from sbnotebook.model.message import extras_to_bytes
from sbnotebook.model.property_text import to_text
from sbnotebook.model.schema import Column, values_of
from sbnotebook.settlement import Page, PeekCursor, peeked_from_payload

_arrow: Final[Any] = pa
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)
_modules: Mapping[str, object] = sys.modules
_MISFITS: Final = (TypeError, ValueError, OverflowError, AttributeError)
"""The exceptions of values that have another type than their column."""


def array_of_numbers(numbers: Any, is_null: Any = None, kind: Any = None) -> Any:
    values = np.ascontiguousarray(numbers)
    validity = None if is_null is None else _bits(~is_null)
    buffers = [validity, _arrow.py_buffer(values)]
    return _arrow.Array.from_buffers(kind or _arrow.from_numpy_dtype(values.dtype), len(values), buffers)


def array_of_flags(flags: Any) -> Any:
    return _arrow.Array.from_buffers(_arrow.bool_(), len(flags), [None, _bits(flags)])


def array_of_values(values: Sequence[Any], kind: Any) -> Any:
    """Return an array of Python values, the same as ``pyarrow.array``."""
    if "pandas" in _modules:
        return _arrow.array(values, type=kind)
    is_null = np.fromiter((value is None for value in values), np.bool_, len(values))
    if is_null.all():
        return _arrow.nulls(len(values), kind)
    try:
        return _array_of_values(values, is_null, kind)
    except _MISFITS:
        return _arrow.array(values, type=kind)


def _array_of_values(values: Sequence[Any], is_null: Any, kind: Any) -> Any:
    types = _arrow.types
    if types.is_timestamp(kind):
        moments = [0 if value is None else (value - _EPOCH) // _MICROSECOND for value in values]
        return array_of_numbers(np.array(moments, np.int64), is_null, kind)
    if types.is_integer(kind):
        whole = [0 if value is None else value for value in values]
        return array_of_numbers(np.array(whole, kind.to_pandas_dtype()), is_null)
    if types.is_map(kind) and not is_null.any():
        pairs = [*chain.from_iterable(value.items() for value in values)]
        keys, items = [key for key, _ in pairs], [item for _, item in pairs]
        offsets = array_of_numbers(_offsets([len(value) for value in values]))
        held = array_of_values(keys, kind.key_type), array_of_values(items, kind.item_type)
        return _arrow.MapArray.from_arrays(offsets, *held, type=kind)
    encode = str.encode if types.is_string(kind) else bytes if types.is_binary(kind) else None
    if encode is None:
        raise TypeError(str(kind))
    pieces = [b"" if value is None else encode(value) for value in values]
    offsets = _arrow.py_buffer(_offsets([*map(len, pieces)]))
    buffers = [_bits(~is_null), offsets, _arrow.py_buffer(b"".join(pieces))]
    return _arrow.Array.from_buffers(kind, len(pieces), buffers)


def _offsets(lengths: Sequence[int]) -> Any:
    ends = np.cumsum(lengths, dtype=np.int64)
    if len(ends) and ends[-1] > np.iinfo(np.int32).max:
        raise OverflowError
    return np.concatenate([[0], ends]).astype(np.int32)


def _bits(flags: Any) -> Any:
    return _arrow.py_buffer(np.packbits(flags, bitorder="little"))


_kernels: Final[Any] = pc
_MOST_SHAPES: Final = 8
_FEW: Final = 12
"""Messages of one shape for which its steps take as long as to decode them."""
_MOST_MISSES: Final = 2
"""Messages of a page that may have a shape of which there are few, until the rest is decoded."""
_MOST_BYTES: Final = 64 << 20
"""A larger page is decoded: its messages would be in memory twice."""
_MICROSECONDS: Final = 1000
_PROPERTIES: Final = "application_properties"
_COLUMN_OF_PROPERTY: Final = {
    "DeadLetterReason": "dead_letter_reason",
    "DeadLetterErrorDescription": "dead_letter_error_description",
}
_IS_UNUSUAL: Final = np.isin(np.arange(256), np.frombuffer(UNUSUAL_STARTS, np.uint8))


class _Row(NamedTuple):
    """A message of a page: what the condition of a cursor is on, its place in the page, and that in the columns."""

    sequence_number: int
    state: MessageState
    session_id: str | None
    place: int
    column_place: int


class PageColumns:
    """Makes columns of the pages of an entity, and remembers how its messages are made."""

    def __init__(self, columns: Sequence[Column], schema: pa.Schema, sections: Collection[int] = SECTIONS) -> None:
        self._columns = columns
        self._schema: Any = schema
        self._sections = sections
        self._known: list[_Known] = []

    def taken(self, page: Page, cursor: PeekCursor, unpacking: Allowance) -> pa.RecordBatch:
        """Return the wanted messages of a page as columns, and move the cursor behind the page.

        The columns are the same as if each message were decoded.
        """
        room, joined = unpacking.left, _Joined(page.payloads)
        self._take_shaped(page, joined, unpacking)
        messages = [
            peeked_from_payload(page.payloads[row], page.entity, self._sections) for row in joined.left.tolist()
        ]
        if not all(message.sequence_number for message in messages):
            # A message without a number gets one from those beside it.
            joined, messages, unpacking.left = _Joined(page.payloads), page.messages(self._sections), room
        if messages:
            arrays: list[Any] = [
                array_of_values(values_of(column, messages, unpacking), field.type)
                for column, field in zip(self._columns, self._schema, strict=True)
            ]
            joined.note(
                joined.left, arrays, [each.sequence_number for each in messages], [each.state for each in messages]
            )
        return self._kept(joined, cursor)

    def _kept(self, joined: _Joined, cursor: PeekCursor) -> pa.RecordBatch:
        batches = [_arrow.RecordBatch.from_arrays(arrays, schema=self._schema) for arrays in joined.parts]
        batch, rows = batches[0], joined.rows
        if cursor.session_id is not None:
            sessions = [session for each in batches for session in each.column("session_id").to_pylist()]
            rows = [row._replace(session_id=session) for row, session in zip(rows, sessions, strict=True)]
        if len(batches) > 1:
            (batch,) = _arrow.Table.from_batches(batches, self._schema).combine_chunks().to_batches()
            rows.sort(key=attrgetter("place"))
        kept = cursor.take(rows)
        if len(batches) == 1 and len(kept) == len(rows):
            return batch
        return batch.take(array_of_numbers(np.array([row.column_place for row in kept], np.int64)))

    def _take_shaped(self, page: Page, joined: _Joined, unpacking: Allowance) -> None:
        if joined.ends[-1] > _MOST_BYTES:
            return
        for known in self._known:
            if len(joined.left) >= _FEW:
                joined.take(known, unpacking)
        misses = 0
        while len(joined.left) >= _FEW and misses < _MOST_MISSES:
            learnt = self._learnt(page, int(joined.left[len(joined.left) // 2]))
            if learnt is not None and joined.take(learnt, unpacking) >= _FEW:
                self._known = [learnt, *self._known][:_MOST_SHAPES]
            else:
                misses += 1

    def _learnt(self, page: Page, row: int) -> _Known | None:
        """Return the shape of one message; None where it is better decoded by itself."""
        payload = page.payloads[row]
        shape = shape_of(payload)
        if shape is None:
            return None
        message = peeked_from_payload(payload, page.entity, self._sections)
        has_own_life = message.time_to_live is None or "time_to_live" in shape.fields
        says_how = message.content_encoding is not None or mark_names(message.application_properties)
        if message.unreadable is not None or says_how or not has_own_life:
            return None
        return _Known(shape, message, self._columns, self._schema)


class _Joined:
    """The messages of a page, one behind the other: those that are left, and the columns of the others."""

    def __init__(self, payloads: Sequence[bytes]) -> None:
        self._lengths: Numbers = np.fromiter(map(len, payloads), np.int64, len(payloads))
        self.ends: Numbers = np.cumsum(self._lengths)
        self.left = np.arange(len(payloads))
        self.parts: list[list[Any]] = []
        self.rows: list[_Row] = []
        self._payloads = payloads

    @cached_property
    def _bytes(self) -> bytes:
        return b"".join(self._payloads)

    def take(self, known: _Known, unpacking: Allowance) -> int:
        rows, found = self.left, self._places(known.shape, self.left)
        if not found.fits.all():
            rows = rows[found.fits]
            found = self._places(known.shape, rows)
        texts = _texts(known.shape, found, self._bytes)
        if texts is None:
            rows = rows[_are_ascii(known.shape, found, self._bytes)]
            found = self._places(known.shape, rows)
            texts = _texts(known.shape, found, self._bytes) or {}
        if len(rows):
            arrays = known.arrays(found, texts, self._bytes, unpacking)
            self.note(rows, arrays, found.numbers["sequence_number"].tolist(), [known.message.state] * len(rows))
            are_others = len(rows) < len(self.left)
            self.left = np.setdiff1d(self.left, rows, assume_unique=True) if are_others else rows[:0]
        return len(rows)

    def note(self, rows: Numbers, arrays: list[Any], numbers: Iterable[int], states: Iterable[MessageState]) -> None:
        self.parts.append(arrays)
        self.rows += map(_Row, numbers, states, repeat(None), rows.tolist(), count(len(self.rows)))

    def _places(self, shape: Shape, rows: Numbers) -> Places:
        ends = self.ends[rows]
        return shape.places(np.frombuffer(self._bytes, np.uint8), ends - self._lengths[rows], ends)


class _Known:
    def __init__(self, shape: Shape, message: PeekedMessage, columns: Sequence[Column], schema: Any) -> None:
        self.shape = shape
        self.message = message
        self._columns = columns
        self._schema = schema
        self._same: dict[str, Any] = {}

    def arrays(self, places: Places, texts: dict[str, Any], joined: bytes, unpacking: Allowance) -> list[Any]:
        differing = self._differing(places, texts, joined, unpacking)
        return [
            self._constant(column, field, len(places.at))
            if (array := differing.get(field.name)) is None
            else array
            if array.type == field.type
            else array.cast(field.type)
            for column, field in zip(self._columns, self._schema, strict=True)
        ]

    def _differing(self, places: Places, texts: dict[str, Any], joined: bytes, unpacking: Allowance) -> dict[str, Any]:
        numbers, wanted = places.numbers, {*self._schema.names}
        found = dict(texts) | {name: array_of_numbers(numbers[name]) for name in COUNTS if name in numbers}
        found |= {name: array_of_numbers(numbers[name] * _MICROSECONDS) for name in TIMES if name in numbers}
        for name, place in self.shape.properties.items():
            if name in _COLUMN_OF_PROPERTY:
                found[_COLUMN_OF_PROPERTY[name]] = texts[place]
        if self.shape.properties and _PROPERTIES in wanted:
            found[_PROPERTIES] = self._properties(texts, places, joined)
        if "body" in texts and "body_text" in wanted:
            found["body_text"] = self._body_text(texts["body"], places, unpacking)
        if (lives := numbers.get("time_to_live")) is not None:
            found["time_to_live_ms"] = array_of_numbers(lives)
            if "enqueued_time" in numbers:
                found["expires_at"] = array_of_numbers((numbers["enqueued_time"] + lives) * _MICROSECONDS)
        if "extras" in wanted and not self.shape.fields.isdisjoint(MOMENTS):
            found["extras"] = self._extras(places)
        return found

    def _constant(self, column: Column, kind: Any, count: int) -> Any:
        held = self._same.get(column.name)
        if held is None or len(held) < count:
            value = array_of_values(values_of(column, [self.message], Allowance(0)), kind.type)
            held = self._same[column.name] = value.take(array_of_numbers(np.zeros(count, np.int64)))
        return held.slice(0, count)

    def _body_text(self, bodies: Any, places: Places, unpacking: Allowance) -> Any:
        content_type = self.message.content_type
        start, length, _ = places.values["body"]
        unusual = _IS_UNUSUAL[places.buffer.take(start, mode="clip")] & (length > 0)
        texts = None
        if is_usually_utf8(content_type):
            try:
                texts = bodies.cast(_arrow.string())
            except _arrow.ArrowInvalid:
                texts = None
        if texts is None:
            unusual = np.ones(len(bodies), np.bool_)
            texts = _arrow.nulls(len(bodies), _arrow.string())
        if not unusual.any():
            return texts
        mask = array_of_flags(unusual)
        decoded = [
            body_text(body, Marks(content_type=content_type), unpacking) for body in bodies.filter(mask).to_pylist()
        ]
        return _kernels.replace_with_mask(texts, mask, array_of_values(decoded, _arrow.string()))

    def _properties(self, texts: dict[str, Any], places: Places, joined: bytes) -> Any:
        count, names = len(places.at), self.shape.names
        values: list[Any] = []
        for name in names:
            place = self.shape.properties.get(name)
            if place is None:
                value = self.message.application_properties[name]
                text = value if type(value) is str else to_text(value)
                values.append(
                    array_of_values([text], _arrow.string()).take(array_of_numbers(np.zeros(count, np.int64)))
                )
            elif place in texts:
                values.append(texts[place])
            else:
                encoded = _cut(places, joined, [place]).dictionary_encode()
                own = [to_text(decode(each, 0)[0]) for each in encoded.dictionary.to_pylist()]
                values.append(array_of_values(own, _arrow.string()).take(encoded.indices))
        items = _arrow.concat_arrays(values) if len(values) > 1 else values[0]
        if len(names) > 1:
            by_row = np.arange(count)[:, None] + count * np.arange(len(names))
            items = items.take(array_of_numbers(by_row.ravel()))
        keys = array_of_values(names, _arrow.string()).take(array_of_numbers(np.tile(np.arange(len(names)), count)))
        offsets = array_of_numbers(np.arange(count + 1, dtype=np.int32) * np.int32(len(names)))
        return _arrow.MapArray.from_arrays(offsets, keys, items)

    def _extras(self, places: Places) -> Any:
        encoded = extras_to_bytes(self.message.extras) or b""
        rows = np.tile(np.frombuffer(encoded, np.uint8), (len(places.at), 1))
        for name in MOMENTS:
            if name in places.numbers:
                start = _place_in_extras(self.message.extras, name)
                rows[:, start : start + 8] = places.numbers[name].astype(">i8").view(np.uint8).reshape(-1, 8)
        offsets = np.arange(len(rows) + 1, dtype=np.int32) * np.int32(len(encoded))
        buffers = [None, _arrow.py_buffer(offsets), _arrow.py_buffer(rows)]
        return _arrow.Array.from_buffers(_arrow.binary(), len(rows), buffers)


def _texts(shape: Shape, places: Places, joined: bytes) -> dict[str, Any] | None:
    """Return all texts by name, and the body as bytes; None where a text is not UTF-8."""
    found: dict[str, Any] = {}
    if not places.fits.any():
        return found
    if shape.texts:
        # All texts together, one column after the other.
        try:
            texts = _cut(places, joined, shape.texts).cast(_arrow.string())
        except pa.ArrowInvalid:
            return None
        count = len(places.at)
        found = {name: texts.slice(place * count, count) for place, name in enumerate(shape.texts)}
    if "body" in places.values:
        found["body"] = _cut(places, joined, ["body"])
    return found


def _are_ascii(shape: Shape, places: Places, joined: bytes) -> Any:
    texts = _cut(places, joined, shape.texts).cast(_arrow.string(), safe=False)
    return _kernels.string_is_ascii(texts).fill_null(True).to_numpy(False).reshape(len(shape.texts), -1).all(axis=0)


def _cut(places: Places, joined: bytes, names: Sequence[str]) -> Any:
    """Return values as bytes, one column after the other."""
    # Cut the page where a value begins or ends. Each second piece is a value.
    count, values = len(places.at), [places.values[name] for name in names]
    cuts = np.empty((count, 2 * len(names)), np.int32)
    for place, (start, length, _) in enumerate(values):
        cuts[:, 2 * place], cuts[:, 2 * place + 1] = start, start + length
    buffers = [None, _arrow.py_buffer(cuts), _arrow.py_buffer(joined)]
    pieces = _arrow.Array.from_buffers(_arrow.binary(), max(cuts.size - 1, 0), buffers)
    rows = 2 * np.arange(len(names))[:, None] + cuts.shape[1] * np.arange(count)
    if all(each.is_null is None for each in values):
        return pieces.take(array_of_numbers(rows.ravel()))
    flags = [np.zeros(count, np.bool_) if each.is_null is None else each.is_null for each in values]
    return pieces.take(array_of_numbers(rows.ravel(), np.concatenate(flags)))


def _place_in_extras(extras: Any, name: str) -> int:
    """Return where a time lies in the encoded extras: there they differ for two times that share no byte."""
    first, second = (
        extras_to_bytes({**extras, name: Timestamp(int.from_bytes(bytes([n] * 8)))}) or b"" for n in (1, 2)
    )
    return next(at for at, pair in enumerate(zip(first, second, strict=True)) if pair[0] != pair[1])
