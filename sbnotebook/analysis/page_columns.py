"""A page of messages to columns, straight from their bytes where messages are made alike.

:class:`PageColumns` remembers the shapes of the messages that it met: see :mod:`sbnotebook.analysis.shapes`. Arrow's
kernels cut the values that differ out of the page. All other values are those of the message from which the shape was
learnt, which was decoded. Where few messages have the same shape, each is decoded by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import cached_property, partial
from itertools import chain, repeat
from typing import Any, Final, NamedTuple
from uuid import UUID

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from sbnotebook.amqp import Timestamp
from sbnotebook.amqp.sections import SECTIONS
from sbnotebook.analysis.arrays import array_of_flags, array_of_numbers, array_of_values
from sbnotebook.analysis.shapes import Numbers, Places, Shape, shape_of
from sbnotebook.model import MessageState, PeekedMessage
from sbnotebook.model.body import UNUSUAL_STARTS, Marks, body_text, is_usually_utf8
from sbnotebook.model.budget import Allowance
from sbnotebook.model.message import extras_to_bytes
from sbnotebook.model.packing import mark_names
from sbnotebook.model.property_text import to_text
from sbnotebook.model.schema import Column, values_of
from sbnotebook.settlement import Page, PeekCursor, peeked_from_payload

_arrow: Final[Any] = pa
_kernels: Final[Any] = pc
_MOST_SHAPES: Final = 8
_FEW: Final = 12
"""Messages of one shape for which its steps take as long as to decode them."""
_MOST_MISSES: Final = 2
"""Messages of a page that may have a shape of which there are few, until the rest is decoded."""
_MOST_BYTES: Final = 64 << 20
"""A larger page is decoded: its messages would be in memory twice."""
_MICROSECONDS: Final = 1000
_TIMES: Final = ("enqueued_time", "scheduled_enqueue_time")
_NUMBERS: Final = ("sequence_number", "enqueued_sequence_number", "delivery_count")
_MOMENTS: Final = ("absolute_expiry_time", "creation_time")
_PROPERTIES: Final = "application_properties"
_COLUMN_OF_PROPERTY: Final = {
    "DeadLetterReason": "dead_letter_reason",
    "DeadLetterErrorDescription": "dead_letter_error_description",
}
_TO_TEXT: Final[dict[int, Callable[[Any], str | None]]] = {
    0x82: to_text,
    0x83: lambda value: to_text(Timestamp(value)),
    0x98: lambda value: str(UUID(bytes=value)),
}
"""Text of the property values that Arrow writes otherwise: double, timestamp and uuid, by constructor."""


class _Row(NamedTuple):
    """The condition of a cursor on a message."""

    sequence_number: int
    state: MessageState
    session_id: str | None
    row: int


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
        batch, numbers, states = self._all(page, unpacking)
        untyped: Any = batch
        sessions = repeat(None) if cursor.session_id is None else untyped.column("session_id").to_pylist()
        rows = [*map(_Row, numbers, states, sessions, range(len(numbers)))]
        kept = cursor.take(rows)
        if len(kept) == len(rows):
            return batch
        return untyped.take(array_of_numbers(np.array([row.row for row in kept], np.int64)))

    def _all(self, page: Page, unpacking: Allowance) -> tuple[pa.RecordBatch, list[int], list[MessageState]]:
        room = unpacking.left
        parts, left = self._shaped(page, unpacking)
        rows: list[int] = left.tolist()
        messages = [peeked_from_payload(page.payloads[row], page.entity, self._sections) for row in rows]
        if not all(message.sequence_number for message in messages):
            # A message without a number gets one from those beside it.
            parts, left, messages = [], np.arange(len(page.payloads)), page.messages(self._sections)
            unpacking.left = room
        if messages:
            arrays: list[Any] = [
                array_of_values(values_of(column, messages, unpacking), field.type)
                for column, field in zip(self._columns, self._schema, strict=True)
            ]
            numbers = [message.sequence_number for message in messages]
            parts.append(_Part(left, arrays, numbers, [message.state for message in messages]))
        return _together(parts, self._schema)

    def _shaped(self, page: Page, unpacking: Allowance) -> tuple[list[_Part], Numbers]:
        """Return the messages that have a shape, and the rows of the others."""
        joined = _Joined(page.payloads)
        if joined.ends[-1] > _MOST_BYTES:
            return [], joined.left
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
        return joined.parts, joined.left

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
    """The messages of a page, one behind the other."""

    def __init__(self, payloads: Sequence[bytes]) -> None:
        self._lengths: Numbers = np.fromiter(map(len, payloads), np.int64, len(payloads))
        self.ends: Numbers = np.cumsum(self._lengths)
        self.left = np.arange(len(payloads))
        self.parts: list[_Part] = []
        self._payloads = payloads

    @cached_property
    def _bytes(self) -> bytes:
        return b"".join(self._payloads)

    def take(self, known: _Known, unpacking: Allowance) -> int:
        """Take the messages that have a shape, and return how many they are."""
        rows, found = self.left, self._places(known.shape, self.left)
        if not found.fits.all():
            rows = rows[found.fits]
            found = self._places(known.shape, rows)
        texts = _texts(found, self._bytes)
        if texts is None:
            rows = rows[_are_ascii(found, self._bytes)]
            found = self._places(known.shape, rows)
            texts = _texts(found, self._bytes) or {}
        if not len(rows):
            return 0
        arrays = known.arrays(found, texts, unpacking)
        numbers: list[int] = found.numbers["sequence_number"].tolist()
        self.parts.append(_Part(rows, arrays, numbers, [known.message.state] * len(rows)))
        self.left = np.setdiff1d(self.left, rows, assume_unique=True)
        return len(rows)

    def _places(self, shape: Shape, rows: Numbers) -> Places:
        ends = self.ends[rows]
        return shape.places(np.frombuffer(self._bytes, np.uint8), ends - self._lengths[rows], ends)


class _Part(NamedTuple):
    """Some messages of a page."""

    rows: Numbers
    arrays: list[Any]
    numbers: list[int]
    states: list[MessageState]


def _together(parts: list[_Part], schema: Any) -> tuple[pa.RecordBatch, list[int], list[MessageState]]:
    """Return all messages of a page in their order."""
    batches = [_arrow.RecordBatch.from_arrays(part.arrays, schema=schema) for part in parts]
    numbers = [*chain.from_iterable(part.numbers for part in parts)]
    states = [*chain.from_iterable(part.states for part in parts)]
    if len(parts) == 1:
        return batches[0], numbers, states
    order = np.argsort(np.concatenate([part.rows for part in parts]))
    table: Any = _arrow.Table.from_batches(batches, schema)
    (batch,) = table.take(array_of_numbers(order)).combine_chunks().to_batches()
    places: list[int] = order.tolist()
    return batch, [numbers[at] for at in places], [states[at] for at in places]


class _Known:
    """A shape, and the message from which it was learnt."""

    def __init__(self, shape: Shape, message: PeekedMessage, columns: Sequence[Column], schema: Any) -> None:
        self.shape = shape
        self.message = message
        self._columns = columns
        self._schema = schema
        self._same: dict[str, Any] = {}

    def arrays(self, places: Places, texts: dict[str, Any], unpacking: Allowance) -> list[Any]:
        """Return the columns of messages that have the shape."""
        differing = self._differing(places, texts, unpacking)
        return [
            differing[field.name](field.type)
            if field.name in differing
            else self._constant(column, field, len(places.at))
            for column, field in zip(self._columns, self._schema, strict=True)
        ]

    def _differing(
        self, places: Places, texts: dict[str, Any], unpacking: Allowance
    ) -> dict[str, Callable[[Any], Any]]:
        """Return what makes each column that differs, given its Arrow type."""
        numbers, lives = places.numbers, places.numbers.get("time_to_live")
        found: dict[str, Callable[[Any], Any]] = {
            **{name: partial(_of_type, texts[name]) for name in texts},
            **{name: partial(_of_type, array_of_numbers(numbers[name])) for name in _NUMBERS if name in numbers},
            **{name: partial(_times, numbers[name]) for name in _TIMES if name in numbers},
        }
        for known in self.shape.properties:
            if known.name in _COLUMN_OF_PROPERTY:
                found[_COLUMN_OF_PROPERTY[known.name]] = partial(_of_type, texts[known.field])
            found[_PROPERTIES] = partial(self._properties, texts, places)
        if "body" in texts:
            found["body_text"] = lambda _: self._body_text(texts["body"], places, unpacking)
        if lives is not None:
            found["time_to_live_ms"] = partial(_of_type, array_of_numbers(lives.astype(np.int64)))
            if "enqueued_time" in numbers:
                found["expires_at"] = partial(_times, numbers["enqueued_time"] + lives.astype(np.int64))
        if not self.shape.fields.isdisjoint(_MOMENTS):
            found["extras"] = partial(self._extras, places)
        return found

    def _constant(self, column: Column, kind: Any, count: int) -> Any:
        """Return a column in which each value is that of the message."""
        held = self._same.get(column.name)
        if held is None or len(held) < count:
            value = array_of_values(values_of(column, [self.message], Allowance(0)), kind.type)
            held = self._same[column.name] = value.take(array_of_numbers(np.zeros(count, np.int64)))
        return held.slice(0, count)

    def _body_text(self, bodies: Any, places: Places, unpacking: Allowance) -> Any:
        content_type = self.message.content_type
        start, length, _ = places.texts["body"]
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

    def _properties(self, texts: dict[str, Any], places: Places, kind: Any) -> Any:
        """Return the maps of application properties."""
        count, names = len(places.at), self.shape.names
        differing = {each.name: each for each in self.shape.properties}
        values: list[Any] = []
        for name in names:
            known = differing.get(name)
            if known is None:
                value = self.message.application_properties[name]
                text = value if type(value) is str else to_text(value)
                values.append(array_of_values([text] * count, _arrow.string()))
            elif known.field in texts:
                values.append(texts[known.field])
            else:
                values.append(_number_texts(places.numbers[known.field], known.code))
        items = _arrow.concat_arrays(values) if len(values) > 1 else values[0]
        if len(names) > 1:
            by_row = np.arange(count)[:, None] + count * np.arange(len(names))
            items = items.take(array_of_numbers(by_row.ravel()))
        keys = array_of_values([*names] * count, _arrow.string())
        offsets = array_of_numbers(np.arange(count + 1, dtype=np.int32) * np.int32(len(names)))
        return _arrow.MapArray.from_arrays(offsets, keys, items, type=kind)

    def _extras(self, places: Places, kind: Any) -> Any:
        """Return the extras with the times that differ."""
        encoded = extras_to_bytes(self.message.extras) or b""
        rows = np.tile(np.frombuffer(encoded, np.uint8), (len(places.at), 1))
        for name in _MOMENTS:
            if name in places.numbers:
                start = _place_in_extras(self.message.extras, name)
                rows[:, start : start + 8] = places.numbers[name].astype(">i8").view(np.uint8).reshape(-1, 8)
        offsets = np.arange(len(rows) + 1, dtype=np.int32) * np.int32(len(encoded))
        buffers = [None, _arrow.py_buffer(offsets), _arrow.py_buffer(rows)]
        return _of_type(_arrow.Array.from_buffers(_arrow.binary(), len(rows), buffers), kind)


_IS_UNUSUAL: Final = np.isin(np.arange(256), np.frombuffer(UNUSUAL_STARTS, np.uint8))


def _texts(places: Places, joined: bytes) -> dict[str, Any] | None:
    """Return all texts by name, and the body as bytes; None where a text is not UTF-8."""
    names = [name for name in places.texts if name != "body"]
    found: dict[str, Any] = {}
    if names:
        # All texts together, one column after the other.
        try:
            texts = _cut(places, joined, names).cast(_arrow.string())
        except pa.ArrowInvalid:
            return None
        count = len(places.at)
        found = {name: texts.slice(place * count, count) for place, name in enumerate(names)}
    if "body" in places.texts:
        found["body"] = _cut(places, joined, ["body"])
    return found


def _are_ascii(places: Places, joined: bytes) -> Any:
    """Return which messages have texts of ASCII only."""
    names = [name for name in places.texts if name != "body"]
    texts = _cut(places, joined, names).cast(_arrow.string(), safe=False)
    return _kernels.string_is_ascii(texts).fill_null(True).to_numpy(False).reshape(len(names), -1).all(axis=0)


def _cut(places: Places, joined: bytes, names: list[str]) -> Any:
    """Return texts as bytes, one column after the other."""
    # Cut the page where a text begins or ends. Each second piece is a text.
    count = len(places.at)
    cuts = np.empty((count, 2 * len(names)), np.int32)
    for place, (start, length, _) in enumerate(places.texts[name] for name in names):
        cuts[:, 2 * place], cuts[:, 2 * place + 1] = start, start + length
    buffers = [None, _arrow.py_buffer(cuts), _arrow.py_buffer(joined)]
    pieces = _arrow.Array.from_buffers(_arrow.binary(), max(cuts.size - 1, 0), buffers)
    rows = 2 * np.arange(len(names))[:, None] + cuts.shape[1] * np.arange(count)
    return pieces.take(array_of_numbers(rows.ravel(), _nulls(places, names)))


def _nulls(places: Places, names: list[str]) -> Any:
    """Return which texts are missing; None where none is."""
    flags = [places.texts[name].is_null for name in names]
    if not any(each is not None for each in flags):
        return None
    none = np.zeros(len(places.at), np.bool_)
    return np.concatenate([none if each is None else each for each in flags])


def _of_type(array: Any, kind: Any) -> Any:
    return array if array.type == kind else array.cast(kind)


def _times(milliseconds: Numbers, kind: Any) -> Any:
    return array_of_numbers(milliseconds * _MICROSECONDS).cast(kind)


def _number_texts(numbers: Any, code: int) -> Any:
    """Return the values of a property as texts: see :mod:`sbnotebook.model.property_text`."""
    write = _TO_TEXT.get(code)
    if write is None:
        array = array_of_flags(numbers) if numbers.dtype == np.bool_ else array_of_numbers(numbers)
        return array.cast(_arrow.string())
    return array_of_values([write(value) for value in numbers.tolist()], _arrow.string())


def _place_in_extras(extras: Any, name: str) -> int:
    """Return where a time lies in the encoded extras: there they differ for two times that share no byte."""
    first, second = (
        extras_to_bytes({**extras, name: Timestamp(int.from_bytes(bytes([n] * 8)))}) or b"" for n in (1, 2)
    )
    return next(at for at, pair in enumerate(zip(first, second, strict=True)) if pair[0] != pair[1])
