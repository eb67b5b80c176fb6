"""The shape of messages: where their values lie, found in one message, and then in many at once; headers of faults.

The messages of an entity differ in a few values and in little else. :func:`shape_of` goes through one message and notes
a step for each part: bytes that are the same in each message of its shape, or a value that differs.
:meth:`Shape.places` takes these steps in all messages of a page together, with numpy. It tells which messages have the
shape, and where their values lie. What no step knows counts as bytes that are the same, so that a message that is
unusual in any way has another shape.

Frameworks move a message to an error queue of their own, or dead-letter it without a reason that says anything, and
write the fault into its application properties.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
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
from sbnotebook.errors import AmqpDecodeError, ConfigurationError
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
from sbnotebook.model.budget import MATCHED_CHARACTERS

_SILENT: Final = frozenset({"", "fault", "dead-letter", "maxdeliverycountexceeded"})
"""Reasons that say nothing, in lower case."""
_LONGEST_NAME: Final = 500


_FRAMEWORKS: Final[dict[str, tuple[str, ...]]] = {
    # Particular/NServiceBus: SetExceptionHeaders in src/NServiceBus.Core/Utils/ExceptionHeaderHelper.cs, and for the
    # queue FailedQ in src/NServiceBus.Core/Recoverability/Faults/FaultsHeaderKeys.cs.
    "NServiceBus": (
        "NServiceBus.ExceptionInfo.ExceptionType",
        "NServiceBus.ExceptionInfo.Message",
        "NServiceBus.ExceptionInfo.StackTrace",
        "NServiceBus.FailedQ",
        "NServiceBus.TimeOfFailure",
    ),
    # MassTransit/MassTransit: src/MassTransit.Abstractions/MessageHeaders.cs.
    "MassTransit": (
        "MT-Fault-ExceptionType",
        "MT-Fault-Message",
        "MT-Fault-StackTrace",
        "MT-Fault-InputAddress",
        "MT-Fault-Timestamp",
    ),
    # rebus-org/Rebus: ErrorDetails and SourceQueue in Rebus/Messages/Headers.cs. The details are the text of the
    # exception, its type and stack trace included.
    "Rebus": ("", "rbs2-error-details", "", "rbs2-source-queue", ""),
}
"""The application properties with the type of a fault, its message, stack trace, queue and time.

The names are from the public code of each framework; the empty text is for one that it does not write.

Azure Functions and Dapr write none. After an exception in a function, the extension raises it in the SDK's processor,
which abandons the message (Azure/azure-sdk-for-net,
sdk/servicebus/Microsoft.Azure.WebJobs.Extensions.ServiceBus/src/Primitives/MessageProcessor.cs). Dapr abandons it
without properties (dapr/components-contrib, internal/component/azure/servicebus/subscription.go). Their messages become
dead letters by MaxDeliveryCountExceeded.
"""


def add_fault_headers(
    framework: str,
    *,
    exception_type: str = "",
    message: str = "",
    stack_trace: str = "",
    queue: str = "",
    time: str = "",
) -> None:
    """Add a framework whose application properties say why a message failed, for causes of this process.

    Args:
        framework: its name; another framework of this name is replaced.
        exception_type: the property with the type of the exception.
        message: the property with its message.
        stack_trace: the property with its stack trace.
        queue: the property that says where the message failed.
        time: the property that says when.

    Raises:
        ConfigurationError: there is neither a type nor a message.

    Example:
        >>> add_fault_headers("Acme", exception_type="acme-error", message="acme-error-text")
        >>> fault_of(None, None, {"acme-error": "Late", "acme-error-text": "Truck 7 is late"})
        ('Late', 'Late: Truck 7 is late')
    """
    if not exception_type and not message:
        raise ConfigurationError("Fault headers need the property of the exception's type, or of its message.")
    _FRAMEWORKS[framework] = (exception_type, message, stack_trace, queue, time)


def header_names() -> list[str]:
    return [name for names in _FRAMEWORKS.values() for name in names[:2] if name]


def fault_of(
    reason: str | None, description: str | None, properties: Mapping[Any, Any]
) -> tuple[str | None, str | None]:
    """Return the reason and the description of a message, from a framework's properties where its own say nothing."""
    if (reason or "").lower() not in _SILENT:
        return reason, description
    for names in _FRAMEWORKS.values():
        kind, message, trace, queue, time = (_text(properties.get(name)) if name else "" for name in names)
        if not kind and not message:
            continue
        if not kind:  # such as Rebus: the text of an exception begins with its type
            kind = message.partition(":")[0].strip().rpartition(" ")[2]
            said = message
        else:
            said = f"{kind}: {message}" if message else kind
        where = " ".join(part for part in (f"in {queue}" if queue else "", f"at {time}" if time else "") if part)
        parts = (said, trace, f"Failed {where}." if where else "")
        return kind[:_LONGEST_NAME] or reason, "\n".join(part for part in parts if part)[:MATCHED_CHARACTERS]
    return reason, description


def _text(value: Any) -> str:
    return value[:MATCHED_CHARACTERS] if isinstance(value, str) else "" if value is None else str(value)[:_LONGEST_NAME]


Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]
_Flags = npt.NDArray[np.bool_]

_MOST_STEPS, _MOST_CONSTANT = 200, 4096
"""With more steps, or more bytes that are the same, it would take longer than to decode each message."""
_MAX_COUNT: Final = 2**31 - 1
_LAST_TIME: Final = 2**47
"""Milliseconds since 1970, in the year 6429: no time to live leads from an earlier time out of the calendar."""

# Constructors (AMQP 1.0 section 1.6), whose upper half tells how many bytes a value takes.
_NULL: Final = 0x40
_TEXT, _BINARY, _TIMESTAMP, _UUID = (0xA1, 0xB1), (0xA0, 0xB0), (0x83,), (0x98,)
_UINT, _LONG = (0x43, 0x52, 0x70), (0x55, 0x81)
_OTHERS: Final = ((0x44, 0x53, 0x80), (0x54, 0x71), (0x41, 0x42), (0x50,), (0x51,), (0x60,), (0x61,), (0x82,))
_ALIKE: Final = {code: codes for codes in (_UINT, _LONG, _TIMESTAMP, _UUID, *_OTHERS) for code in codes}
"""The constructors of one type, of which a writer chooses by the value, by each of them."""
_SHORT: Final = 0xA
_WIDTHS: Final = np.repeat([*[0] * 5, 1, 2, 4, 8, 16, *[0] * 6], 16)
_WIDE: Final = (1, 4, 8)
"""Bytes of the whole numbers that become columns."""
_LISTS: Final = {0xC0: 1, 0xD0: 4}
_MAPS: Final = {0xC1: 1, 0xD1: 4}
"""Bytes that the size takes, and as many the count."""

_Known = Mapping[str, tuple[str, tuple[int, ...]]]
_FROM_SERVICE: Final[_Known] = {
    SEQUENCE_NUMBER: ("sequence_number", _LONG),
    ENQUEUED_SEQUENCE_NUMBER: ("enqueued_sequence_number", _LONG),
    ENQUEUED_TIME: ("enqueued_time", _TIMESTAMP),
    SCHEDULED_TIME: ("scheduled_enqueue_time", _TIMESTAMP),
    LOCKED_UNTIL: ("locked_until", _TIMESTAMP),
    PARTITION_KEY: ("partition_key", _TEXT),
    STATE: ("", ()),
}
_FROM_LINK: Final[_Known] = {LOCK_TOKEN: ("lock_token", _UUID)}
"""Annotations of the message, and of its delivery: the value that differs, and its constructors."""
TIMES: Final = ("enqueued_time", "scheduled_enqueue_time")
MOMENTS: Final = ("absolute_expiry_time", "creation_time")
COUNTS: Final = ("sequence_number", "enqueued_sequence_number", "delivery_count", "time_to_live")
_TEXT_PROPERTIES: Final = frozenset(
    {"message_id", "to", "subject", "reply_to", "correlation_id", "session_id", "reply_to_session_id"}
)
_WITH_COLUMN: Final = frozenset({"DeadLetterReason", "DeadLetterErrorDescription", "ResubmitCount"})
"""Application properties that have a column of their own. Only their texts differ from message to message."""
_SCHEDULED: Final = 2


class Value(NamedTuple):
    start: Numbers
    length: Numbers
    is_null: _Flags | None
    """None where there is one in each."""


@dataclass(slots=True)
class Places:
    """The positions of the values of messages, and the numbers among them."""

    buffer: Bytes
    at: Numbers
    fits: _Flags = field(init=False)
    values: dict[str, Value] = field(default_factory=dict[str, Value], init=False)
    numbers: dict[str, Numbers] = field(default_factory=dict[str, Numbers], init=False)
    ends: list[Numbers] = field(default_factory=list[Numbers], init=False)

    def __post_init__(self) -> None:
        self.fits = np.ones(len(self.at), np.bool_)

    def window(self, width: int, ahead: int = 0) -> Bytes:
        """Return as many bytes of each message from where it is, or further on, a row for each."""
        return self.buffer.take(self.at[:, None] + np.arange(ahead, ahead + width), mode="clip")

    def size(self, width: int, ahead: int = 0) -> Numbers:
        return self.window(width, ahead).view(f">u{width}")[:, 0].astype(np.int64)

    def whole(self, name: str, sign: str) -> Numbers:
        """Return a value as whole numbers, ``i`` for those with a sign, and ``u``."""
        start, length, _ = self.values[name]
        found = np.zeros(len(start), np.int64)
        for width in _WIDE:
            rows = np.flatnonzero(length == width)
            if len(rows):
                held = self.buffer.take(start[rows, None] + np.arange(width), mode="clip")
                found[rows] = held.view(f">{sign}{width}")[:, 0]
        return found


_Step = Callable[[Places], None]


@dataclass(frozen=True, slots=True)
class Shape:
    """The steps through messages that are made like one."""

    steps: tuple[_Step, ...]
    fields: frozenset[str]
    texts: tuple[str, ...]
    names: tuple[str, ...]
    """Of all application properties."""
    properties: Mapping[str, str]
    """The fields of those that differ, by their names."""
    turns_active: bool | None = None
    """For a message that was scheduled, whether it was enqueued anew since; None for any other."""

    def places(self, buffer: Bytes, starts: Numbers, ends: Numbers) -> Places:
        found = Places(buffer, starts)
        for step in self.steps:
            step(found)
            if not found.fits.any():
                return found
        # Steps only go forward. So in a message that ends where it should, each value lies inside of it.
        found.fits &= found.at == ends
        for names, sign in ((COUNTS[:2], "i"), (COUNTS[2:], "u"), (TIMES, "i"), (MOMENTS, "i")):
            found.numbers |= {name: found.whole(name, sign) for name in names if name in self.fields}
        self._check(found.numbers, found.fits)
        return found

    def _check(self, numbers: Mapping[str, Numbers], fits: _Flags) -> None:
        """Leave out messages with a value that decoding takes for another one."""
        fits &= numbers["sequence_number"] > 0
        if "time_to_live" in numbers:
            fits &= numbers["time_to_live"] != MAX_TTL
        if "delivery_count" in numbers:
            fits &= numbers["delivery_count"] <= _MAX_COUNT
        for name in TIMES:
            if name in numbers:
                fits &= (numbers[name] >= FIRST_MOMENT) & (numbers[name] < _LAST_TIME)
        if self.turns_active is not None:
            fits &= (numbers[TIMES[0]] >= numbers[TIMES[1]]) == self.turns_active


def shape_of(payload: bytes) -> Shape | None:
    """Return the shape of a message that can be read; None for one that is better decoded by itself."""
    try:
        walk, sections = _Walk(payload), split(payload)
        bodies = sum(section.code in (DATA, SEQUENCE, VALUE) for section in sections)
        for section in sections:
            walk.at = section.value_start
            if section.code == DATA:
                if bodies == 1 and payload[walk.at] in _BINARY:
                    walk.value("body", _BINARY)
            elif section.code in _SECTIONS:
                _SECTIONS[section.code](walk)
            walk.at = section.end
        return walk.shape()
    except (AmqpDecodeError, IndexError):
        return None


class _Walk:
    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self.at = 0
        self.lives_long = False
        self.is_scheduled = False
        self.names: tuple[str, ...] = ()
        self.properties: dict[str, str] = {}
        self._noted = 0
        self._constant = 0
        self._steps: list[_Step] = []
        self._fields: dict[str, bool] = {}
        """Those that differ, and whether each is a text."""

    def shape(self) -> Shape | None:
        self._take(None, self.at)
        texts = tuple(name for name, is_text in self._fields.items() if is_text)
        shape = Shape(tuple(self._steps), frozenset(self._fields), texts, self.names, self.properties)
        if "sequence_number" not in self._fields:
            return None
        if not self.is_scheduled:
            return shape
        if not self._fields.keys() >= {*TIMES}:
            return None
        ends = np.array([len(self.payload)], np.int64)
        numbers = shape.places(np.frombuffer(self.payload, np.uint8), np.zeros(1, np.int64), ends).numbers
        return replace(shape, turns_active=bool(numbers[TIMES[0]][0] >= numbers[TIMES[1]][0]))

    def items(self, widths: Mapping[int, int], each: int = 1) -> Iterator[int]:
        """Go through a list or a map, and yield the number of each item; none where it is neither."""
        width = widths.get(self.payload[self.at])
        if width is None:
            return
        self.at += 1
        self._take(partial(_size, width=width), self.at + width)
        self.at += width
        yield from range(int.from_bytes(self.payload[self.at - width : self.at]) // each)
        self._take(_end, self.at)

    def value(self, name: str, codes: tuple[int, ...], *, with_code: bool = False) -> None:
        self._fields[name] = codes[0] == _TEXT[0]
        self._take(_value(name, codes, with_code=with_code), skip(self.payload, self.at))

    def same(self) -> None:
        """Pass a value that is the same in each message."""
        self.at = skip(self.payload, self.at)

    def item(self) -> Any:
        value, self.at = decode(self.payload, self.at)
        return value

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


# ---------------------------------------------------------------- sections


def _header(walk: _Walk) -> None:
    for place in walk.items(_LISTS):
        is_uint = walk.payload[walk.at] in _UINT
        if place == TTL and is_uint:
            # The most that the header holds stands for other lives: see ``_read_long_life`` of the conversion.
            walk.lives_long = decode(walk.payload, walk.at)[0] == MAX_TTL
        if place == DELIVERY_COUNT and is_uint:
            walk.value("delivery_count", _UINT)
        elif place == TTL and is_uint and not walk.lives_long:
            walk.value("time_to_live", _UINT)
        else:
            walk.same()


def _annotations(walk: _Walk, known: _Known) -> None:
    seen = set[str]()
    for _ in walk.items(_MAPS, each=2):
        key = walk.item()
        name, codes = known.get(key, ("", ())) if isinstance(key, str) else ("", ())
        if isinstance(key, str) and key in known:
            if key in seen:
                raise AmqpDecodeError("An annotation comes twice.")
            seen.add(key)
        if key == STATE and known is _FROM_SERVICE:
            walk.is_scheduled = decode(walk.payload, walk.at)[0] == _SCHEDULED
        if walk.payload[walk.at] in codes:
            walk.value(name, codes)
        else:
            walk.same()


def _properties(walk: _Walk) -> None:
    for place in walk.items(_LISTS):
        name = PROPERTY_FIELDS[place] if place < len(PROPERTY_FIELDS) else ""
        code = walk.payload[walk.at]
        if name in _TEXT_PROPERTIES and code in (*_TEXT, _NULL):
            walk.value(name, (*_TEXT, _NULL))
        elif name in MOMENTS and code in _TIMESTAMP and not walk.lives_long:
            walk.value(name, _TIMESTAMP)
        else:
            walk.same()


def _application_properties(walk: _Walk) -> None:
    named: Any = decode(walk.payload, walk.at)[0]
    names: list[Any] = [*named] if isinstance(named, dict) else [None]
    if any(type(name) is not str for name in names):
        return
    walked: list[str] = []
    for place in walk.items(_MAPS, each=2):
        name, code = walk.item(), walk.payload[walk.at]
        walked.append(name)
        codes = _TEXT if code in _TEXT else () if name in _WITH_COLUMN else _ALIKE.get(code, ())
        if codes:
            walk.properties[name] = f"property {place}"
            walk.value(f"property {place}", codes, with_code=codes is not _TEXT)
        else:
            walk.same()
    if len(walked) != len(names):
        raise AmqpDecodeError("An application property comes twice.")
    walk.names = tuple(names)


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


def _size(places: Places, width: int) -> None:
    size = places.size(width)
    places.at = places.at + width
    places.ends.append(places.at + size)


def _end(places: Places) -> None:
    places.fits &= places.at == places.ends.pop()


def _value(name: str, codes: tuple[int, ...], *, with_code: bool) -> _Step:
    is_known = np.isin(np.arange(256), codes)
    widths = np.where(is_known, _WIDTHS, 0)

    def step(places: Places) -> None:
        code = places.buffer.take(places.at, mode="clip")
        places.fits &= is_known[code]
        start, is_missing = places.at + 1, None
        if codes[0] >> 4 == _SHORT:
            is_short, is_large = code == codes[0], code == codes[1]
            length = np.where(is_short, places.buffer.take(start, mode="clip"), 0).astype(np.int64)
            if is_large.any():
                length = np.where(is_large, places.size(4, 1), length)
                start = start + 4 * is_large
            start = start + is_short
            is_missing = code == _NULL
        else:
            length = widths[code]
        is_missing = is_missing if is_missing is not None and is_missing.any() else None
        places.values[name] = Value(start - with_code, length + with_code, is_missing)
        places.at = start + length

    return step
