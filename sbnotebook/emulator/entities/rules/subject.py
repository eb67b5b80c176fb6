"""The message as rules see it: properties by name, read from its bytes and written back into them.

Sections are decoded when a rule reads them. Everything that no action sets stays byte for byte.

Source: Service Bus documentation, "Messages, payloads, and serialization"; AMQP 1.0 part 3, section 3.2.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from sbnotebook.amqp import AmqpValue, Int, Long, Symbol, Timestamp, UInt, encode
from sbnotebook.amqp.sections import (
    APPLICATION_PROPERTIES,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    find_section,
    section_value,
    with_list_item,
    with_map_items,
)
from sbnotebook.emulator.entities.rules.operands import (
    FilterError,
    Operand,
    amqp_value,
    combine,
    convert,
    text_of,
    to_operand,
)
from sbnotebook.errors import AmqpDecodeError

_LONGEST_SPAN: Final = 2**32 - 1
_MILLISECOND: Final = timedelta(milliseconds=1)


_Home = tuple[int, int | str, type]
"""The section, the place in it and the type of a system property."""
_PARTITION, _VIA = Symbol("x-opt-partition-key"), Symbol("x-opt-via-partition-key")
_SCHEDULED: Final = Symbol("x-opt-scheduled-enqueue-time")
_HOMES: Final[dict[str, _Home]] = {
    "messageid": (PROPERTIES, 0, str),
    "to": (PROPERTIES, 2, str),
    "label": (PROPERTIES, 3, str),
    "subject": (PROPERTIES, 3, str),
    "replyto": (PROPERTIES, 4, str),
    "correlationid": (PROPERTIES, 5, str),
    "contenttype": (PROPERTIES, 6, str),
    "sessionid": (PROPERTIES, 10, str),
    "replytosessionid": (PROPERTIES, 12, str),
    "partitionkey": (MESSAGE_ANNOTATIONS, _PARTITION, str),
    "viapartitionkey": (MESSAGE_ANNOTATIONS, _VIA, str),
    "transactionpartitionkey": (MESSAGE_ANNOTATIONS, _VIA, str),
    "scheduledenqueuetimeutc": (MESSAGE_ANNOTATIONS, _SCHEDULED, Timestamp),
    "scheduledenqueuetime": (MESSAGE_ANNOTATIONS, _SCHEDULED, Timestamp),
    "timetolive": (HEADER, 2, timedelta),
}


class RuleSubject:
    """One message while rules are evaluated on it."""

    __slots__ = ("_decoded", "_folded", "enqueued_time", "payload", "sequence_number")

    def __init__(self, payload: bytes, *, enqueued_time: int | None = None, sequence_number: int | None = None) -> None:
        self.payload = payload  # the encoded message, with all changes
        self.enqueued_time = enqueued_time  # ms; when the topic took it
        self.sequence_number = sequence_number  # in the topic
        self._decoded: dict[int, Any] = {}
        self._folded: dict[str, str] | None = None

    def user(self, name: str) -> Operand:
        """Return the value of an application property; None if there is none. The case of the name is ignored."""
        properties = self._map(APPLICATION_PROPERTIES)
        value = properties.get(name)
        if value is None:
            key = self._key(name)
            value = None if key is None else properties[key]
        return to_operand(value)

    def system(self, name: str) -> Operand:
        """Return the value of a system property; None if it is not set. The case of the name is ignored."""
        home = _HOMES.get(name.lower())
        if home is not None:
            return self._read(home)
        known = _READ_ONLY.get(name.lower())
        if known is None:
            raise FilterError(f"There is no system property {name[:40]!r}.")
        return known(self)

    def exists(self, name: str, *, system: bool) -> bool:
        """Tell whether a message has a property; an application property that is null counts, too."""
        if system:
            return self.system(name) is not None
        return self._key(name) is not None

    def set(self, name: str, value: Operand, *, system: bool) -> None:
        """Set a property; a number keeps the type that the property had if it fits."""
        if system:
            section, place, kind = home = self._writable(name)
            self._read(home)  # a section that cannot be read cannot be written either
            self._write(section, place, _fitting(name, kind, value))
            return
        key = self._key(name)
        if key is not None:
            value = convert(value, self.user(key))
        try:
            encoded = encode(amqp_value(value))
        except (OverflowError, TypeError, UnicodeError):
            raise FilterError(f"AMQP has nothing for the value of the property {name[:40]!r}.") from None
        self._write(APPLICATION_PROPERTIES, name if key is None else key, encoded)

    def remove(self, name: str, *, system: bool) -> None:
        if system:
            home = self._writable(name)
            if self._read(home) is not None:
                self._write(*home[:2], None)
            return
        key = self._key(name)
        if key is not None:
            self._write(APPLICATION_PROPERTIES, key, None)

    def _writable(self, name: str) -> _Home:
        home = _HOMES.get(name.lower())
        if home is None:
            self.system(name)
            raise FilterError(f"The system property {name[:40]!r} cannot be changed.")
        return home

    def _read(self, home: _Home) -> Operand:
        section, key, kind = home
        if isinstance(key, int):
            fields = self._value(section, list)
            value = fields[key] if key < len(fields) else None
        else:
            value = self._map(section).get(key)
        if kind is timedelta and isinstance(value, UInt):
            return timedelta(milliseconds=value)
        # The identifiers of a message may be numbers or UUIDs on AMQP; to Service Bus they are texts.
        return str(value) if kind is str and isinstance(value, int | UUID) else value

    def _key(self, name: str) -> str | None:
        properties = self._map(APPLICATION_PROPERTIES)
        if name in properties:
            return name
        if self._folded is None:
            self._folded = {key.lower(): key for key in reversed(properties) if isinstance(key, str)}
        return self._folded.get(name.lower())

    def _map(self, section: int) -> dict[Any, AmqpValue]:
        return self._value(section, dict)

    def _value(self, code: int, kind: type) -> Any:
        known = self._decoded.get(code)
        if known is not None:
            return known
        value: Any = kind()
        try:
            section = find_section(self.payload, code)
            if section is not None:
                value = section_value(self.payload, section)
        except AmqpDecodeError as error:
            raise FilterError(f"The properties of the message cannot be read: {error}") from None
        if not isinstance(value, kind):
            raise FilterError("The properties of the message cannot be read: a section is of the wrong type.")
        self._decoded[code] = value
        return value

    def _write(self, section: int, key: int | str, value: bytes | None) -> None:
        """Write a value, or take it away; the section was read before, so it is known to be well-formed."""
        if isinstance(key, int):
            self.payload = with_list_item(self.payload, section, key, value)
        else:
            self.payload = with_map_items(self.payload, section, {key: value})
        self._decoded.pop(section, None)
        self._folded = None


def _fitting(name: str, kind: type, value: Operand) -> bytes | None:
    """Return a value in the AMQP type of its system property; None for none."""
    if value is None:
        return None
    if kind is str:
        return encode(text_of(value))
    if kind is Timestamp and isinstance(value, Timestamp):
        return encode(value)
    if isinstance(value, timedelta) and kind is timedelta and value >= timedelta():
        return encode(UInt(min(value // _MILLISECOND, _LONGEST_SPAN)))
    wanted = "moment" if kind is Timestamp else "time span of zero or more"
    raise FilterError(f"The system property {name[:40]!r} must be a {wanted}.")


def _enqueued(subject: RuleSubject) -> Operand:
    time = subject.enqueued_time
    return None if time is None else Timestamp(time)


def _number(subject: RuleSubject) -> Operand:
    return None if subject.sequence_number is None else Long(subject.sequence_number)


def _expiry(subject: RuleSubject) -> Operand:
    return combine("+", _enqueued(subject), subject.system("TimeToLive"))


_READ_ONLY: Final[dict[str, Callable[[RuleSubject], Operand]]] = {
    "enqueuedtimeutc": _enqueued,
    "enqueuedtime": _enqueued,
    "sequencenumber": _number,
    "enqueuedsequencenumber": _number,
    "expiresatutc": _expiry,
    "expiresat": _expiry,
    "size": lambda subject: Long(len(subject.payload)),
    # A message has been delivered, locked or dead-lettered only after the rules.
    "deliverycount": lambda _subject: Int(0),
    **dict.fromkeys(("deadlettersource", "lockeduntilutc", "locktoken"), lambda _subject: None),
}
