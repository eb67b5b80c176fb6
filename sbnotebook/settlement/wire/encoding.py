"""Messages, and rows of frames, as the AMQP bytes that a sender transfers.

:mod:`~sbnotebook.settlement.wire.decoding` reads them.

Spark writes a large frame as fast as its rows become bytes, and making a :class:`sbnotebook.model.Message` of each row
takes most of that time. Only rows that need more than the columns here, such as those with a session, become messages
first. For the others, the bytes here are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import accumulate, pairwise, repeat
from typing import Any, Final, NamedTuple, Self

from sbnotebook.amqp import AmqpValue, Symbol, Timestamp, UInt, encode, list_of_encoded, skip
from sbnotebook.amqp.sections import (
    APPLICATION_PROPERTIES,
    DATA,
    HEADER,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    encode_section,
    section_head,
)
from sbnotebook.errors import AmqpDecodeError, ConfigurationError
from sbnotebook.model import BodyType, Message
from sbnotebook.model.amqp_layout import (
    DELIVERY_COUNT,
    HEADER_FIELDS,
    LAST_MOMENT,
    MAPS,
    MAX_TTL,
    MILLISECOND,
    PARTITION_KEY,
    PROPERTY_FIELDS,
    SCHEDULED_TIME,
    SERVICES_OWN,
    TTL,
    as_text,
    as_time,
    usual,
)
from sbnotebook.model.body import Marks, body_of_text, mark_names
from sbnotebook.model.message import DATA_SECTIONS, EXTRAS, PROPERTY_EXTRAS, PROPERTY_NAMES

_EXPIRY: Final = PROPERTY_FIELDS.index("absolute_expiry_time")
_CREATION: Final = PROPERTY_FIELDS.index("creation_time")


def payload_of(message: Message) -> bytes:
    """Return the AMQP bytes of a message as a sender writes it.

    What only the service can set is left out, so that a peeked message can be sent as it is. So is an absolute expiry
    that is over, or that contradicts the time to live: the service would follow it (azure-sdk-for-python issue 17970).

    Args:
        message: to be sent.
    """
    extras, properties = message.extras, _properties(message)
    # Most messages have only properties and data, so check for each other section only where it can exist.
    parts: list[bytes] = []
    if extras:
        _check_extras(message)
        parts += _header(message), _annotations(message, "delivery_annotations")
    elif message.time_to_live is not None:
        parts.append(_header(message))
    if extras or message.partition_key is not None or message.scheduled_enqueue_time is not None:
        parts.append(_message_annotations(message))
    if properties:
        parts.append(encode_section(PROPERTIES, properties))
    if message.application_properties:
        parts.append(encode_section(APPLICATION_PROPERTIES, _application_properties(message)))
    if message.body_type is BodyType.DATA and not extras:
        parts.append(encode_section(DATA, message.body))
    else:
        parts += _body_section(message), _annotations(message, "footer")
    return b"".join(parts) or encode_section(DATA, b"")


def _check_extras(message: Message) -> None:
    extras = message.extras
    if message.unreadable is not None:
        raise AmqpDecodeError(f"The message could not be read, so it cannot be sent: {message.unreadable}")
    strange = extras.keys() - EXTRAS
    if strange:
        name = str(min(strange, key=str))[:60]
        raise ConfigurationError(f"There is no extra {name!r} of a message: {', '.join(sorted(EXTRAS))}.")
    for name in (*MAPS, PROPERTY_NAMES, DATA_SECTIONS):
        kind = list if name == DATA_SECTIONS else dict
        if not isinstance(extras.get(name), kind | None):
            raise ConfigurationError(f"The extra {name} of a message is a {kind.__name__}.")


def _header(message: Message) -> bytes:
    ttl = message.time_to_live
    values: list[AmqpValue] = [message.extras.get(name) for name in HEADER_FIELDS]
    values[TTL] = None if ttl is None else UInt(min(ttl // MILLISECOND, MAX_TTL))
    values[DELIVERY_COUNT] = None
    values = _without_nulls_at_end(values)
    return encode_section(HEADER, values) if values else b""


def _message_annotations(message: Message) -> bytes:
    values: dict[AmqpValue, AmqpValue] = {}
    own: Any = message.extras.get("message_annotations") or {}
    key, when = own.get(PARTITION_KEY), own.get(SCHEDULED_TIME)
    if message.partition_key is not None:
        values[PARTITION_KEY] = key if as_text(key) == message.partition_key else message.partition_key
    if when is not None and as_time(when) == message.scheduled_enqueue_time:
        values[SCHEDULED_TIME] = when
    elif message.scheduled_enqueue_time is not None:
        values[SCHEDULED_TIME] = Timestamp.from_datetime(message.scheduled_enqueue_time)
    return _annotations(message, "message_annotations", values)


def _annotations(message: Message, name: str, values: dict[AmqpValue, AmqpValue] | None = None) -> bytes:
    """Return a section that is a map, with the entries that have a field of their own first."""
    values = values or {}
    own: Any = message.extras.get(name) or {}
    for key, value in own.items():
        if key not in SERVICES_OWN and key not in (PARTITION_KEY, SCHEDULED_TIME):
            # Keys of annotations are symbols or numbers (section 3.2.10). A user may have written a text.
            values[Symbol(key) if type(key) is str else key] = value
    return encode_section(MAPS[name], values) if values else b""


def _properties(message: Message) -> list[AmqpValue]:
    kind, encoding = message.content_type, message.content_encoding
    values: list[AmqpValue] = [  # in the order of PROPERTY_FIELDS
        message.message_id,
        None,
        message.to,
        message.subject,
        message.reply_to,
        message.correlation_id,
        None if kind is None else usual("content_type", kind),
        None if encoding is None else usual("content_encoding", encoding),
        None,
        None,
        message.session_id,
        None,
        message.reply_to_session_id,
    ]
    if message.extras:
        # Take the extras that have no field, and those with the type of a field that was not changed since.
        for index, name in enumerate(PROPERTY_FIELDS):
            typed = message.extras.get(name)
            if typed is not None and (name in PROPERTY_EXTRAS or as_text(typed) == values[index]):
                values[index] = typed
    if message.time_to_live is not None or message.extras:
        values[_CREATION], values[_EXPIRY] = _life(message.time_to_live, values[_CREATION], values[_EXPIRY])
    return _without_nulls_at_end(values)


def _life(ttl: timedelta | None, creation: AmqpValue, expiry: AmqpValue) -> tuple[AmqpValue, AmqpValue]:
    """Return when the message was created and when it expires, as they are sent."""
    now = Timestamp.from_datetime(datetime.now(UTC))
    milliseconds = None if ttl is None else ttl // MILLISECOND
    if isinstance(expiry, Timestamp) and expiry <= now:
        expiry = None
    if milliseconds is not None and milliseconds > MAX_TTL:
        # It does not fit into the header, so these two hold it (azure-sdk-for-python issue 33674).
        start = creation if isinstance(creation, Timestamp) and creation + milliseconds > now else now
        return start, Timestamp(min(start + milliseconds, LAST_MOMENT))
    if milliseconds is not None and isinstance(creation, Timestamp) and isinstance(expiry, Timestamp):
        expiry = expiry if expiry - creation == milliseconds else None
    return creation, expiry


def _without_nulls_at_end(values: list[AmqpValue]) -> list[AmqpValue]:
    while values and values[-1] is None:
        values.pop()
    return values


def _application_properties(message: Message) -> dict[Any, AmqpValue]:
    names: Any = message.extras.get(PROPERTY_NAMES)
    if not names:
        return dict(message.application_properties)
    return {names.get(name, name): value for name, value in message.application_properties.items()}


def _body_section(message: Message) -> bytes:
    if message.body_type is BodyType.DATA:
        return b"".join(encode_section(DATA, part) for part in _data(message))
    if message.body_type is BodyType.VALUE:
        if skip(message.body) != len(message.body):
            raise AmqpDecodeError("The body is more than one AMQP value.")
        return section_head(VALUE) + message.body
    sequences: Any = message.body_value or [[]]
    return b"".join(encode_section(SEQUENCE, sequence) for sequence in sequences)


def _data(message: Message) -> list[bytes]:
    """Return the body in the sections that it came in, if their sizes still fit it."""
    body = message.body
    written: Any = message.extras.get(DATA_SECTIONS)
    sizes = [size for size in written or () if isinstance(size, int) and size >= 0]
    if written is None or len(sizes) != len(written) or sum(sizes) != len(body):
        return [body]
    ends = [*accumulate(sizes, initial=0)]
    return [body[start:end] for start, end in pairwise(ends)]


_NULL: Final = encode(None)
_PROPERTIES, _NAMED, _DATA = map(section_head, (PROPERTIES, APPLICATION_PROPERTIES, DATA))
_TEXTS: Final = frozenset(PROPERTY_FIELDS) - {"session_id"}
_SAY_HOW: Final = ("content_type", "content_encoding")
"""Columns that say how a text becomes bytes."""
_KINDS: Final = ({bytes}, {str})
_BYTES: Final = frozenset({None, BodyType.DATA.value})
"""Kinds of a body that is bytes."""


class EncodedRows(NamedTuple):
    """Messages without a session and a partition key, as they travel."""

    payloads: list[bytes]
    message_ids: Sequence[str | None]

    @classmethod
    def of(cls, columns: Mapping[str, Sequence[Any]], count: int) -> Self | None:
        """Encode many rows at once, as :func:`sbnotebook.settlement.wire.encoding.payload_of` encodes each message.

        Args:
            columns: the values of each message column.
            count: of the rows.

        Returns:
            The encoded rows; None where a row needs to become a message first.

        Example:
            >>> EncodedRows.of({"message_id": ["a", "b"], "body": [b"{}", b"[]"]}, 2).message_ids
            ['a', 'b']
            >>> EncodedRows.of({"session_id": ["a", "b"], "body": [b"{}", b"[]"]}, 2) is None
            True
        """
        told = {name: values for name, values in columns.items() if _tells(name, values)}
        text = told.pop("body_text", ())
        given, named = told.pop("body", text), told.pop("application_properties", None)
        if told.keys() - _TEXTS or not all(map(_are_texts, told.values())) or set(map(type, given)) not in _KINDS:
            return None
        if type(given[0]) is str and any(mark_names(dict(pairs or ())) for pairs in named or ()):
            return None
        try:
            bodies = _bodies(given, told)
            sections = zip(
                _sections_of_texts(told, count), _sections_of_named(named, count), map(encode, bodies), strict=True
            )
            payloads = [b"".join((properties, own, _DATA, body)) for properties, own, body in sections]
        except (TypeError, ValueError, OverflowError):
            return None
        return cls(payloads, told.get("message_id", [None] * count))


def _tells(name: str, values: Sequence[Any]) -> bool:
    if name == "body_type":
        return not _BYTES.issuperset(values)
    if name == "application_property_types":
        return any(values)
    return values.count(None) < len(values)


def _are_texts(values: Sequence[Any]) -> bool:
    return set(map(type, values)) <= {str, type(None)}


def _bodies(given: Sequence[Any], texts: Mapping[str, Sequence[str | None]]) -> Iterable[bytes]:
    if type(given[0]) is bytes:
        return given
    said = (texts.get(name, repeat(None)) for name in _SAY_HOW)
    return map(body_of_text, given, map(Marks, repeat(BodyType.DATA), *said))


def _sections_of_texts(texts: Mapping[str, Sequence[str | None]], count: int) -> Iterable[bytes]:
    if not texts:
        return repeat(b"", count)
    last = max(map(PROPERTY_FIELDS.index, texts))
    columns = [_encoded(name, texts[name]) if name in texts else repeat(_NULL) for name in PROPERTY_FIELDS[: last + 1]]
    return map(_properties_section, zip(*columns, strict=False))


def _encoded(name: str, values: Sequence[str | None]) -> Iterator[bytes]:
    # Most columns repeat few values, and those that do not are hardly slower for it.
    known = {value: _NULL if value is None else encode(usual(name, value)) for value in set(values)}
    return map(known.__getitem__, values)


def _properties_section(fields: tuple[bytes, ...]) -> bytes:
    while fields and fields[-1] is _NULL:
        fields = fields[:-1]
    return _PROPERTIES + list_of_encoded(fields) if fields else b""


def _sections_of_named(named: Sequence[list[tuple[str, Any]] | None] | None, count: int) -> Iterable[bytes]:
    if named is None:
        return repeat(b"", count)
    return (_NAMED + encode(dict(pairs)) if pairs else b"" for pairs in named)
