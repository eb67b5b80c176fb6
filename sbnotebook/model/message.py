"""Messages as immutable values: to be sent, peeked, and locked.

``Message.extras`` holds everything that a message carries besides its named fields, so that nothing of it is lost. The
column ``extras`` holds the same as one AMQP map. Source: AMQP 1.0 part 3, sections 3.2.1 to 3.2.8.

Source: Service Bus documentation, "Message sequencing and timestamps": the upper 16 bits of a sequence number are the
partition. An entity without partitions has only partition 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache, partial
from itertools import islice
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Self, cast
from uuid import UUID

from sbnotebook.amqp import AmqpValue, decode_exactly, encode
from sbnotebook.errors import AmqpDecodeError, ConfigurationError, DecisionError, in_one_frame, near_match
from sbnotebook.model.address import EntityAddress
from sbnotebook.model.amqp_layout import MAPS
from sbnotebook.model.body import BodyType, Marks, body_of_text, body_text, decode_body, edited_body, read_form
from sbnotebook.model.json_text import read_json, rewrite_json, write_json

_SHIFT: Final = 48


def partition_of(number: int) -> int:
    return number >> _SHIFT


def start_of_partition(partition: int) -> int:
    """Return the first sequence number that a message of a partition can have; 1 in the first partition."""
    return max(partition << _SHIFT, 1)


def end_of_partition(partition: int) -> int:
    """Return the last sequence number that a message of a partition can have; -1 before the first partition."""
    return (partition + 1 << _SHIFT) - 1


DEAD_LETTER_REASON: Final = "DeadLetterReason"
DEAD_LETTER_ERROR_DESCRIPTION: Final = "DeadLetterErrorDescription"
RESUBMIT_COUNT: Final = "ResubmitCount"
ORIGINAL_MESSAGE_ID: Final = "OriginalMessageId"
"""The property that keeps the message ID of the first message through resubmits and returns."""

HEADER_EXTRAS: Final = ("durable", "priority", "first_acquirer")
"""Fields of the header section (3.2.1)."""
PROPERTY_EXTRAS: Final = ("user_id", "absolute_expiry_time", "creation_time", "group_sequence")
"""Fields of the properties section (3.2.4) that a message has no field for."""
_TYPED: Final = (
    "message_id", "to", "subject", "reply_to", "correlation_id", "content_type", "content_encoding", "session_id",
    "reply_to_session_id",
)  # fmt: skip
PROPERTY_NAMES: Final = "application_property_names"
"""Names of application properties that are not strings, by the text that stands for them."""
DATA_SECTIONS: Final = "data_sections"
"""The sizes of the sections of a body of bytes, where it is not exactly one."""
UNREADABLE: Final = "unreadable"
"""Why the bytes could not be read as a message."""
EXTRAS: Final = frozenset({*HEADER_EXTRAS, *PROPERTY_EXTRAS, *MAPS, *_TYPED, PROPERTY_NAMES, DATA_SECTIONS, UNREADABLE})
"""All names. The name of a field has its value if the value has an unusual type."""

_MAX_COUNT: Final = 2**31 - 1
_REPR_TEXT: Final = 60
_REPR_BODY: Final = 1_000
_REPR_LATER: Final = ("body", "application_properties", "extras")
_NOTHING: Final[Mapping[str, AmqpValue]] = MappingProxyType({})


class MessageState(StrEnum):
    """The state of a message in its entity (annotation ``x-opt-message-state``)."""

    ACTIVE = "active"
    DEFERRED = "deferred"
    SCHEDULED = "scheduled"


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Message:
    """A message as a sender writes it.

    Args:
        body: for ``BodyType.DATA`` the bytes themselves, otherwise AMQP encoded: see :meth:`of_value`. A text is
            written in the charset and the compression that the message names, in UTF-8 without one.
        body_type: which AMQP body sections hold the body.
        message_id: the sender's identifier; the service's duplicate detection looks at it.
        session_id: the session that the message belongs to.
        partition_key: keeps messages with the same key on one partition.
        correlation_id: an identifier of the application's own.
        subject: what the message is about; other clients call it the label.
        content_type: of the body, such as ``application/json``.
        content_encoding: of the body, such as ``gzip``.
        to: an address of the application's own.
        reply_to: the address to answer to.
        reply_to_session_id: the session to answer to.
        time_to_live: how long the message lives after it was enqueued, None for the entity's default.
        scheduled_enqueue_time: when the message becomes active, None for at once.
        application_properties: values by name; their AMQP types are those of :mod:`sbnotebook.amqp`.
        extras: values without a field of their own, by the names in ``EXTRAS``; those of a peeked message
            are sent again. The name of a field has its value with its AMQP type, unless the field was changed.

    Raises:
        ConfigurationError: the body is neither bytes nor a text, or the text is none of its charset.

    Example:
        >>> message = Message(body="{}", subject="UA", application_properties={"attempt": 1})
        >>> message.body_text
        '{}'
    """

    body: bytes = b""
    body_type: BodyType = BodyType.DATA
    message_id: str | None = None
    session_id: str | None = None
    partition_key: str | None = None
    correlation_id: str | None = None
    subject: str | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    to: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    time_to_live: timedelta | None = None
    scheduled_enqueue_time: datetime | None = None
    application_properties: Mapping[str, AmqpValue] = field(default_factory=lambda: _NOTHING)
    extras: Mapping[str, AmqpValue] = field(default_factory=lambda: _NOTHING)

    def __post_init__(self) -> None:
        if type(self.body) is not bytes:
            object.__setattr__(self, "body", _as_bytes(self.body, self.marks))
        if not isinstance(self.application_properties, MappingProxyType):
            frozen = MappingProxyType(dict(self.application_properties))
            object.__setattr__(self, "application_properties", frozen)
        if not isinstance(self.extras, MappingProxyType):
            object.__setattr__(self, "extras", MappingProxyType(dict(self.extras)))

    @classmethod
    def of_value(cls, value: AmqpValue, **fields: Any) -> Self:
        """Build a message whose body is one AMQP value of any type."""
        return cls(body=encode(value), body_type=BodyType.VALUE, **fields)

    @classmethod
    def of_sequence(cls, *sequences: list[AmqpValue], **fields: Any) -> Self:
        """Build a message whose body is AMQP sequences; none is one empty sequence, the least that a body has."""
        return cls(body=b"".join(map(encode, sequences or ([],))), body_type=BodyType.SEQUENCE, **fields)

    @property
    def body_text(self) -> str | None:
        """Return the body as text; None when it is not text."""
        return body_text(self.body, self.marks)

    @property
    def json(self) -> Any:
        """Return the body parsed as JSON: a dict or a list of its own, which you may change.

        Numbers with a point are floats that remember how they were written, so that ``with_changes(json=…)`` leaves
        1.10 as it is.

        Raises:
            DecisionError: the body is not JSON, or has a name twice in an object.

        Example:
            >>> order = Message(body='{"carrier": "DHL", "fare": 1.10}')
            >>> order.json["carrier"]
            'DHL'
        """
        text, form = read_form(self.body, self.marks, is_for_edit=True)
        if text is None or form.note:
            raise DecisionError(form.fault or "The body is packed, and too large to be read as JSON.")
        return read_json(text)

    @property
    def marks(self) -> Marks:
        """Return what the message says of its body."""
        return Marks(self.body_type, self.content_type, self.content_encoding, self.application_properties)

    @property
    def body_value(self) -> AmqpValue:
        """Return the body as an AMQP value: bytes, the value, or the list of sequences."""
        return decode_body(self.body, self.body_type)

    @property
    def resubmit_count(self) -> int:
        """Return how often the message was resubmitted (property ``ResubmitCount``), 0 to 2,147,483,647."""
        count = self.application_properties.get(RESUBMIT_COUNT)
        # Any sender can set the property: a number that no column holds must not fail the messages around it.
        return min(max(int(count), 0), _MAX_COUNT) if isinstance(count, int) else 0

    @property
    def unreadable(self) -> str | None:
        """Return why a received message could not be read, if so: its bytes are the body, and it cannot be sent."""
        return _text_or_none(self.extras.get(UNREADABLE))

    def with_changes(self, **changes: Any) -> Self:
        """Return the same message with other field values.

        Args:
            changes: by the names of the fields. A text as ``body`` is packed as the body was: compressed, in its
                charset, in the wrapper of an older .NET client, as an AMQP value. ``json`` takes a value in place of
                ``body``, and leaves all of the document that is equal as it was written. Bytes as ``body`` are taken
                as they are.

        Raises:
            ConfigurationError: a message has no such field.
            DecisionError: the text cannot be packed as the body was, or the value is not JSON.

        Example:
            >>> order = Message(body='{"fare": 1.10, "carrier": "DHL"}')
            >>> order.with_changes(json=order.json | {"carrier": "UPS"}).body
            b'{"fare": 1.10, "carrier": "UPS"}'
        """
        if "json" in changes:
            if "body" in changes:
                raise ConfigurationError("Give json or body, not both.")
            changes["body"] = self._rewritten(changes.pop("json"))
        for name in changes.keys() - self.__dataclass_fields__.keys():
            near = near_match(name, self.__dataclass_fields__)
            hint = f"did you mean {near}?" if near else f"there are {', '.join(self.__dataclass_fields__)}."
            raise ConfigurationError(f"A message has no field {name[:_REPR_TEXT]!r}; {hint}")
        if isinstance(changes.get("body"), str):
            after = replace(self, **(changes | {"body": b""})).marks
            changes["body"] = edited_body(self.body, self.marks, after, changes["body"])
        return replace(self, **changes)

    def _rewritten(self, value: Any) -> str:
        text, _ = read_form(self.body, self.marks, is_for_edit=True)
        try:
            return rewrite_json(text or "", value)
        except DecisionError:
            if text is not None and text.lstrip()[:1] in ("{", "["):
                raise  # such as an object with a name twice: which of them is meant is not known
            return write_json(value)

    def __reduce__(self) -> tuple[Any, ...]:
        # A read-only mapping cannot be pickled, a dict can; Spark and subprocesses need it.
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__}
        fields |= {"application_properties": dict(self.application_properties), "extras": dict(self.extras)}
        return (partial(type(self), **fields), ())

    def __repr__(self) -> str:
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in _REPR_LATER}
        shown = [f"{name}={_shown(value)}" for name, value in fields.items() if value is not None]
        body = f"body={self.body[:_REPR_TEXT]!r}, {len(self.body)} bytes"
        return f"{type(self).__name__}({', '.join([*shown, body])})"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:  # noqa: ARG002 (IPython asks for it)
        """Show a message alone in a cell as a line for each field that has a value."""
        if len(printer.stack) > 1:  # within a list
            printer.text(repr(self))
            return
        body = self.body_text if self.body_text is not None else self.body[:_REPR_BODY]
        fields = {name: getattr(self, name) for name in self.__dataclass_fields__ if name not in _REPR_LATER}
        lines = [f"{name:30}{_shown(value)}" for name, value in fields.items() if value is not None]
        lines += [
            f"{'application_properties':30}{name[:_REPR_TEXT]!r}: {repr(value)[:_REPR_TEXT]}"
            for name, value in islice(self.application_properties.items(), 20)
        ]
        said = f"{'body':30}{body[:_REPR_BODY]!r}, {len(self.body):,} bytes"
        printer.text("\n".join([type(self).__name__, *lines, said]))


def _shown(value: object) -> str:
    # The sender wrote the text, so quote it and limit its length.
    return repr(value[:_REPR_TEXT]) if type(value) is str else str(value)


def _as_bytes(body: Any, marks: Marks) -> bytes:
    if body is None:
        return b""
    if isinstance(body, (bytes, bytearray, memoryview)):
        return bytes(cast("bytes", body))
    if not isinstance(body, str):
        raise ConfigurationError(
            f"The body of a message is bytes or a text, not {type(body).__name__}: give json.dumps(body), or use "
            "Message.of_value(body) for an AMQP value."
        )
    try:
        return body_of_text(body, marks)
    except DecisionError as error:
        raise ConfigurationError(str(error)) from None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ReceivedMessage(Message):
    """A message as the service gave it, with what the service added.

    Args:
        entity: that holds the message.
        sequence_number: the service's own number of the message, unique in the entity.
        enqueued_sequence_number: its number in the entity that it was first sent to.
        enqueued_time: when the service accepted it, or made it active.
        expires_at: when it expires, None for never.
        delivery_count: deliveries that ended without being settled, 0 on the first.
        state: active, deferred or scheduled.
        dead_letter_source: the entity that dead-lettered it, known only after forwarding.
    """

    entity: EntityAddress
    sequence_number: int
    enqueued_sequence_number: int | None = None
    enqueued_time: datetime | None = None
    expires_at: datetime | None = None
    delivery_count: int = 0
    state: MessageState = MessageState.ACTIVE
    dead_letter_source: str | None = None

    @property
    def dead_letter_reason(self) -> str | None:
        """Return why the message was dead-lettered (application property ``DeadLetterReason``)."""
        return _text_or_none(self.application_properties.get(DEAD_LETTER_REASON))

    @property
    def dead_letter_error_description(self) -> str | None:
        """Return what explains the reason (``DeadLetterErrorDescription``)."""
        return _text_or_none(self.application_properties.get(DEAD_LETTER_ERROR_DESCRIPTION))

    if not TYPE_CHECKING:  # all names would exist

        def __getattr__(self, name: str) -> Any:
            """Raise AttributeError, with what settles a message for a verb that does."""
            said = f"{type(self).__name__!r} object has no attribute {name!r}"
            if name in ("complete", "abandon", "dead_letter", "defer", "release"):
                said = f"A message is a value: batch.{name}(message) settles a locked one, entity.pick(…) a peeked one."
            raise in_one_frame(AttributeError(said, name=name, obj=self))


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class PeekedMessage(ReceivedMessage):
    """A message that was looked at. It is not locked and cannot be settled."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class LockedMessage(ReceivedMessage):
    """A message that is held under a lock, and can be settled.

    Args:
        lock_token: names the lock; it can settle the message from another connection too.
        locked_until: when the lock ended as it was received; the batch that holds it renews it.
    """

    lock_token: UUID
    locked_until: datetime | None = None


def _text_or_none(value: AmqpValue) -> str | None:
    return None if value is None else str(value)


@lru_cache  # messages that came together have the same times
def time_text(moment: datetime | None) -> str:
    """Return an enqueued time as local records hold it: ISO 8601 in UTC, empty without a time."""
    return moment.astimezone(UTC).isoformat() if moment else ""


def extras_to_bytes(extras: Mapping[str, AmqpValue]) -> bytes | None:
    return encode(dict(extras)) if extras else None


def extras_from_bytes(data: bytes | bytearray | None) -> dict[str, AmqpValue]:
    if not data:
        return {}
    try:
        extras: Any = decode_exactly(bytes(data))
    except AmqpDecodeError:
        extras = None
    if not isinstance(extras, dict) or not extras.keys() <= EXTRAS:  # pyright: ignore[reportUnknownMemberType]
        raise ConfigurationError("The column extras holds AMQP maps that peek has made, not these bytes.")
    return extras  # pyright: ignore[reportUnknownVariableType]
