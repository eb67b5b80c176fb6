"""The shape of messages: where their values lie, found in one message, and then in many at once.

The messages of an entity differ in a few values and in little else. :func:`shape_of` goes through one message and notes
a step for each part: bytes that are the same in each message of its shape, or a value that differs.
:meth:`Shape.places` takes these steps in all messages of a page together, with numpy. It tells which messages have the
shape, and where their values lie. What no step knows counts as bytes that are the same, so that a message that is
unusual in any way has another shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from sbnotebook.amqp import decode, skip
from sbnotebook.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    DELIVERY_ANNOTATIONS,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    split,
)
from sbnotebook.errors import AmqpDecodeError
from sbnotebook.model.amqp_layout import (
    DELIVERY_COUNT,
    ENQUEUED_SEQUENCE_NUMBER,
    ENQUEUED_TIME,
    FIRST_MOMENT,
    LOCK_TOKEN,
    LOCKED_UNTIL,
    MAX_TTL,
    PARTITION_KEY,
    PROPERTY_FIELDS,
    SCHEDULED_TIME,
    SEQUENCE_NUMBER,
    STATE,
    TTL,
)

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]

_MOST_STEPS, _MOST_CONSTANT = 200, 4096
"""With more steps, or more bytes that are the same, it would take longer than to decode each message."""
_MAX_COUNT: Final = 2**31 - 1
_LAST_TIME: Final = 2**47
"""Milliseconds since 1970, in the year 6429: no time to live leads from an earlier time out of the calendar."""

# Constructors (AMQP 1.0 section 1.6).
_NULL, _TRUE, _FALSE, _TIMESTAMP, _UUID = 0x40, 0x41, 0x42, 0x83, 0x98
_TEXT, _BINARY = (0xA1, 0xB1), (0xA0, 0xB0)
_LISTS: Final = {0xC0: 1, 0xD0: 4}
_MAPS: Final = {0xC1: 1, 0xD1: 4}
"""Bytes that the size takes, and as many the count."""
_FIXED: Final = {0x50: ">u1", 0x51: ">i1", 0x60: ">u2", 0x61: ">i2", 0x82: ">f8", _TIMESTAMP: ">i8", _UUID: "V16"}
"""Values of one width, by constructor."""


class _Whole(NamedTuple):
    """The constructors of one type of whole numbers; a writer chooses by the number."""

    zero: int
    small: int
    full: int
    layout: str


_UINT: Final = _Whole(0x43, 0x52, 0x70, ">u4")
_LONG: Final = _Whole(-1, 0x55, 0x81, ">i8")
_WHOLES: Final = (_UINT, _LONG, _Whole(0x44, 0x53, 0x80, ">u8"), _Whole(-1, 0x54, 0x71, ">i4"))
_WHOLE: Final = {code: each for each in _WHOLES for code in each[:3]}

_FROM_SERVICE: Final[Mapping[str, tuple[str, tuple[int, ...]]]] = {
    SEQUENCE_NUMBER: ("sequence_number", _LONG[1:3]),
    ENQUEUED_SEQUENCE_NUMBER: ("enqueued_sequence_number", _LONG[1:3]),
    ENQUEUED_TIME: ("enqueued_time", (_TIMESTAMP,)),
    SCHEDULED_TIME: ("scheduled_enqueue_time", (_TIMESTAMP,)),
    LOCKED_UNTIL: ("locked_until", (_TIMESTAMP,)),
    PARTITION_KEY: ("partition_key", _TEXT),
    STATE: ("", ()),
}
_FROM_LINK: Final[Mapping[str, tuple[str, tuple[int, ...]]]] = {LOCK_TOKEN: ("lock_token", (_UUID,))}
"""Annotations of the message, and of its delivery: the value that differs, and its constructors."""
_TIMES: Final = ("enqueued_time", "scheduled_enqueue_time")
_TEXT_PROPERTIES: Final = frozenset(
    {"message_id", "to", "subject", "reply_to", "correlation_id", "session_id", "reply_to_session_id"}
)
_TIME_PROPERTIES: Final = frozenset({"absolute_expiry_time", "creation_time"})
_WITH_COLUMN: Final = frozenset({"DeadLetterReason", "DeadLetterErrorDescription", "ResubmitCount"})
"""Application properties that have a column of their own. Only their texts differ from message to message."""
_SCHEDULED: Final = 2


class Text(NamedTuple):
    """The position of a text in each message."""

    start: Numbers
    length: Numbers
    is_null: _Flags | None
    """None where there is one in each."""


class Property(NamedTuple):
    """An application property that differs."""

    name: str
    field: str
    code: int


@dataclass(slots=True)
class Places:
    """The positions of the values of messages, and the numbers among them."""

    buffer: Bytes
    at: Numbers
    fits: _Flags = field(init=False)
    texts: dict[str, Text] = field(default_factory=dict[str, Text], init=False)
    numbers: dict[str, npt.NDArray[Any]] = field(default_factory=dict[str, npt.NDArray[Any]], init=False)
    ends: list[Numbers] = field(default_factory=list[Numbers], init=False)

    def __post_init__(self) -> None:
        self.fits = np.ones(len(self.at), np.bool_)

    def byte(self, ahead: int = 0) -> Bytes:
        """Return the byte at which each message is, or one further on."""
        return self.buffer.take(self.at + ahead, mode="clip")

    def number(self, layout: str, ahead: int = 0) -> npt.NDArray[Any]:
        """Return the value that lies there in each message, as numpy reads it."""
        kind = np.dtype(layout)
        return self.window(kind.itemsize, ahead).view(kind)[:, 0]

    def window(self, width: int, ahead: int = 0) -> Bytes:
        """Return as many bytes of each message, a row for each."""
        return self.buffer.take(self.at[:, None] + np.arange(ahead, ahead + width), mode="clip")


_Step = Callable[[Places], None]


@dataclass(frozen=True, slots=True)
class Shape:
    """The steps through messages that are made like one."""

    steps: tuple[_Step, ...]
    properties: tuple[Property, ...]
    names: tuple[str, ...]
    fields: frozenset[str]
    turns_active: bool | None
    """For a message that was scheduled, whether it was enqueued anew since; None for any other."""

    def places(self, buffer: Bytes, starts: Numbers, ends: Numbers) -> Places:
        """Take all steps through messages."""
        found = Places(buffer, starts)
        for step in self.steps:
            step(found)
            if not found.fits.any():
                return found
        # Steps only go forward. So in a message that ends where it should, each value lies inside of it.
        found.fits &= found.at == ends
        self._check(found.numbers, found.fits)
        return found

    def _check(self, numbers: Mapping[str, npt.NDArray[Any]], fits: _Flags) -> None:
        """Leave out messages with a value that decoding takes for another one."""
        fits &= numbers["sequence_number"] > 0
        if "time_to_live" in numbers:
            fits &= numbers["time_to_live"] != MAX_TTL
        if "delivery_count" in numbers:
            fits &= numbers["delivery_count"] <= _MAX_COUNT
        for name in _TIMES:
            if name in numbers:
                fits &= (numbers[name] >= FIRST_MOMENT) & (numbers[name] < _LAST_TIME)
        if self.turns_active is not None:
            fits &= (numbers["enqueued_time"] >= numbers["scheduled_enqueue_time"]) == self.turns_active


def shape_of(payload: bytes) -> Shape | None:
    """Return the shape of a message that can be read; None for one that is better decoded by itself."""
    try:
        walk, sections = _Walk(payload), split(payload)
        bodies = sum(section.code in (DATA, SEQUENCE, VALUE) for section in sections)
        for section in sections:
            walk.at = section.value_start
            if section.code == DATA:
                if bodies == 1 and payload[walk.at] in _BINARY:
                    walk.text("body", _BINARY)
            elif section.code in _SECTIONS:
                _SECTIONS[section.code](walk)
            walk.at = section.end
        return walk.shape()
    except (AmqpDecodeError, IndexError):
        return None


class _Walk:
    """Goes through one message, and notes a step for each part."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.at = 0
        self.lives_long = False
        self.is_scheduled = False
        self.properties: list[Property] = []
        self.names: tuple[str, ...] = ()
        self._noted = 0
        self._constant = 0
        self._steps: list[_Step] = []
        self._fields: set[str] = set()

    def shape(self) -> Shape | None:
        """Return the steps; None for a message that is better decoded by itself."""
        self._take(None, self.at)
        if self._constant > _MOST_CONSTANT or "sequence_number" not in self._fields:
            return None
        turns_active = None
        if self.is_scheduled:
            if not self._fields.issuperset(_TIMES):
                return None
            places = _places_in(self.payload, self._steps)
            turns_active = bool(places.numbers[_TIMES[0]][0] >= places.numbers[_TIMES[1]][0])
        return Shape(tuple(self._steps), tuple(self.properties), self.names, frozenset(self._fields), turns_active)

    def compound(self, widths: Mapping[int, int]) -> int | None:
        """Go into a list or a map, and return the number of its items; None where it is neither."""
        width = widths.get(self.payload[self.at])
        if width is None:
            return None
        self.at += 1
        self._take(_size(f">u{width}"), self.at + width)
        self.at += width
        return int.from_bytes(self.payload[self.at - width : self.at])

    def end_of_compound(self) -> None:
        """Note that the list or map ends here."""
        self._take(_end, self.at)

    def text(self, name: str, codes: tuple[int, int], *, or_null: bool = False) -> None:
        """Note a text that differs, or bytes."""
        self._differs(name, _text(name, codes, or_null=or_null), skip(self.payload, self.at))

    def value(self, name: str) -> None:
        """Note a text or a number that differs."""
        code, end = self.payload[self.at], skip(self.payload, self.at)
        if code in _TEXT:
            step = _text(name, _TEXT)
        elif code in _WHOLE:
            step = _whole(name, _WHOLE[code])
        elif code in _FIXED:
            self.at += 1  # the constructor is the same in each
            step = _fixed(name, _FIXED[code])
        else:
            step = _boolean(name)
        self._differs(name, step, end)

    def same(self) -> None:
        """Pass a value that is the same in each message."""
        self.at = skip(self.payload, self.at)

    def item(self) -> Any:
        """Pass a value that is the same in each message, and return it."""
        value, self.at = decode(self.payload, self.at)
        return value

    def _differs(self, name: str, step: _Step, end: int) -> None:
        self._fields.add(name)
        self._take(step, end)

    def _take(self, step: _Step | None, end: int) -> None:
        """Note the bytes since the last step, which are the same in each message, and a step that goes to an end."""
        constant = self.payload[self._noted : self.at]
        self._constant += len(constant)
        if len(self._steps) > _MOST_STEPS or self._constant > _MOST_CONSTANT:
            raise AmqpDecodeError("The message is better decoded by itself.")
        if constant:
            self._steps.append(_same(constant))
        if step is not None:
            self._steps.append(step)
        self.at = self._noted = end


def _places_in(payload: bytes, steps: list[_Step]) -> Places:
    places = Places(np.frombuffer(payload, np.uint8), np.zeros(1, np.int64))
    for step in steps:
        step(places)
    return places


# ---------------------------------------------------------------- sections


def _header(walk: _Walk) -> None:
    count = walk.compound(_LISTS)
    for place in range(count or 0):
        is_uint = walk.payload[walk.at] in _UINT[:3]
        if place == TTL and is_uint:
            # The most that the header holds stands for other lives: see ``_read_long_life`` of the conversion.
            walk.lives_long = decode(walk.payload, walk.at)[0] == MAX_TTL
        if place == DELIVERY_COUNT and is_uint:
            walk.value("delivery_count")
        elif place == TTL and is_uint and not walk.lives_long:
            walk.value("time_to_live")
        else:
            walk.same()
    if count is not None:
        walk.end_of_compound()


def _annotations(walk: _Walk, known: Mapping[str, tuple[str, tuple[int, ...]]]) -> None:
    seen = set[str]()
    count = walk.compound(_MAPS)
    for _ in range((count or 0) // 2):
        key = walk.item()
        name, codes = known.get(key, ("", ())) if isinstance(key, str) else ("", ())
        if isinstance(key, str) and key in known:
            if key in seen:
                raise AmqpDecodeError("An annotation comes twice.")
            seen.add(key)
        if key == STATE and known is _FROM_SERVICE:
            walk.is_scheduled = decode(walk.payload, walk.at)[0] == _SCHEDULED
        if walk.payload[walk.at] in codes:
            walk.value(name)
        else:
            walk.same()
    if count is not None:
        walk.end_of_compound()


def _properties(walk: _Walk) -> None:
    count = walk.compound(_LISTS)
    for place in range(count or 0):
        name = PROPERTY_FIELDS[place] if place < len(PROPERTY_FIELDS) else ""
        code = walk.payload[walk.at]
        if name in _TEXT_PROPERTIES and code in (*_TEXT, _NULL):
            walk.text(name, _TEXT, or_null=True)
        elif name in _TIME_PROPERTIES and code == _TIMESTAMP and not walk.lives_long:
            walk.value(name)
        else:
            walk.same()
    if count is not None:
        walk.end_of_compound()


def _application_properties(walk: _Walk) -> None:
    named: Any = decode(walk.payload, walk.at)[0]
    names: list[Any] = [*named] if isinstance(named, dict) else [None]
    if any(type(name) is not str for name in names):
        return
    count = walk.compound(_MAPS)
    for place in range((count or 0) // 2):
        name = walk.item()
        code = walk.payload[walk.at]
        if code in _TEXT or (code in _DIFFERING and name not in _WITH_COLUMN):
            walk.properties.append(Property(name, f"property {place}", code))
            walk.value(f"property {place}")
        else:
            walk.same()
    if count is not None and count != 2 * len(names):
        raise AmqpDecodeError("An application property comes twice.")
    walk.names = tuple(names)
    if count is not None:
        walk.end_of_compound()


_DIFFERING: Final = frozenset({*_WHOLE, *_FIXED, _TRUE, _FALSE} - {-1})
_SECTIONS: Final[Mapping[int, Callable[[_Walk], None]]] = {
    HEADER: _header,
    DELIVERY_ANNOTATIONS: partial(_annotations, known=_FROM_LINK),
    MESSAGE_ANNOTATIONS: partial(_annotations, known=_FROM_SERVICE),
    PROPERTIES: _properties,
    APPLICATION_PROPERTIES: _application_properties,
}

# ---------------------------------------------------------------- steps


def _same(expected: bytes) -> _Step:
    pattern = np.frombuffer(expected, np.uint8)

    def step(places: Places) -> None:
        places.fits &= (places.window(len(expected)) == pattern).all(axis=1)
        places.at = places.at + len(expected)

    return step


def _size(layout: str) -> _Step:
    def step(places: Places) -> None:
        size = places.number(layout).astype(np.int64)
        places.at = places.at + np.dtype(layout).itemsize
        places.ends.append(places.at + size)

    return step


def _end(places: Places) -> None:
    places.fits &= places.at == places.ends.pop()


def _text(name: str, codes: tuple[int, int], *, or_null: bool = False) -> _Step:
    def step(places: Places) -> None:
        code = places.byte()
        is_short, is_long = code == codes[0], code == codes[1]
        is_null = code == _NULL if or_null else None
        places.fits &= is_short | is_long if is_null is None else is_short | is_long | is_null
        length = np.where(is_short, places.byte(1), 0).astype(np.int64)
        head = np.where(is_short, 2, 1)
        if is_long.any():
            length = np.where(is_long, places.number(">u4", 1), length)
            head = np.where(is_long, 5, head)
        start = places.at + head
        places.texts[name] = Text(start, length, is_null if is_null is not None and is_null.any() else None)
        places.at = start + length

    return step


def _whole(name: str, kind: _Whole) -> _Step:
    width = np.dtype(kind.layout).itemsize
    small = np.dtype("i1" if kind.layout[1] == "i" else "u1")

    def step(places: Places) -> None:
        code = places.byte()
        is_small, is_full = code == kind.small, code == kind.full
        places.fits &= is_small | is_full | (code == kind.zero)
        value = np.where(is_small, places.byte(1).view(small), 0).astype(kind.layout[1:])
        head = np.where(is_small, 2, 1)
        if is_full.any():
            value = np.where(is_full, places.number(kind.layout, 1), value)
            head = np.where(is_full, 1 + width, head)
        places.numbers[name] = value
        places.at = places.at + head

    return step


def _fixed(name: str, layout: str) -> _Step:
    kind = np.dtype(layout)

    def step(places: Places) -> None:
        found = places.number(layout)
        places.numbers[name] = found if kind.kind == "V" else found.astype(kind.newbyteorder("="))
        places.at = places.at + kind.itemsize

    return step


def _boolean(name: str) -> _Step:
    def step(places: Places) -> None:
        code = places.byte()
        places.numbers[name] = code == _TRUE
        places.fits &= (code == _TRUE) | (code == _FALSE)
        places.at = places.at + 1

    return step
