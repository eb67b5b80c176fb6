"""A dead letter that is sent to an entity of the user's choice: the message, and what happened to it.

It is a message with the original's body and typed properties, and these application properties. What the original
has of the same names is overwritten, so that nobody can send a fault that did not happen.

==============================  =================================================================================
``FaultComponent``              the function that ended this way, by its qualified name
``FaultComponentKind``          ``function`` or ``async function``
``FaultType``                   the exception's type
``FaultText``                   the exception's text, without secrets and cut
``FaultTime``                   when the function ended
``DeadLetterTime``              when the envelope was made
``DeadLetterReason``            why, as in a dead-letter queue, so that envelopes are grouped as dead letters are
``DeadLetterErrorDescription``  what explains that
``SourceNamespace``             the host that the original stood on
``SourceEntity``                the entity that it stood in
``SourceSequenceNumber``        its number there
``SourceMessageId``             its message id, where it had one
``SourceEnqueuedTime``          when it came there
``SourceDeliveryCount``         how many deliveries had failed before this one
``SourceConsumer``              the machine and the process that had its lock, as in a status's leases
``OriginalMessageId``           the id of the first message, where it was resubmitted before, or the original's
==============================  =================================================================================
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Self

from sbnotebook.model import Message, ReceivedMessage
from sbnotebook.model.amqp import AmqpValue, Int, Timestamp
from sbnotebook.model.message import DEAD_LETTER_ERROR_DESCRIPTION, DEAD_LETTER_REASON
from sbnotebook.settlement.connecting.connection import scrub
from sbnotebook.settlement.processing.lease import consumer
from sbnotebook.settlement.processing.policy import RejectMessage, SkipMessage, StopProcessing
from sbnotebook.settlement.resubmitting.resubmit import ORIGINAL_MESSAGE_ID

__all__ = ["Fault", "envelope_of"]

_MAX_TEXT: Final = 1_000
_MAX_NAME: Final = 200
_MAX_MESSAGE_ID: Final = 128


@dataclass(frozen=True, slots=True)
class Fault:
    """What happened to one message.

    Args:
        component: the function's qualified name.
        component_kind: ``function`` or ``async function``.
        type: the exception's type.
        reason: short and the same for the same cause.
        text: what explains it, without secrets and cut.
        time: when.
    """

    component: str
    component_kind: str
    type: str
    reason: str
    text: str | None
    time: datetime

    @classmethod
    def of(cls, error: BaseException, *, component: str, component_kind: str, time: datetime) -> Self:
        """The fault that an exception of a function stands for.

        The cause of a RejectMessage that was raised ``from`` another exception is that other one.
        """
        said = isinstance(error, (RejectMessage, SkipMessage, StopProcessing))
        cause = error.__cause__ if said and error.__cause__ is not None else error
        text = error.description if isinstance(error, RejectMessage) else _text_of(error)
        reason = error.reason if isinstance(error, RejectMessage) else type(error).__name__
        return cls(
            component[:_MAX_NAME],
            component_kind,
            type(cause).__name__[:_MAX_NAME],
            scrub(str(reason))[:_MAX_NAME],
            scrub(str(text))[:_MAX_TEXT] if text else None,
            time,
        )


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 (a user's exception whose text fails, too)
        return "(its text cannot be had)"


def envelope_of(message: ReceivedMessage, fault: Fault, *, namespace: str, now: datetime) -> Message:
    """The envelope for one message.

    It does not expire and is not scheduled, whatever the original says. Its message id is derived from the original's
    and from where that stood: the same each time that the same message is dead-lettered, so that a second envelope is
    recognised, and is dropped by an entity with duplicate detection.

    Args:
        message: the original.
        fault: what happened to it.
        namespace: the host that it stands on.
        now: the time.
    """
    added: dict[str, AmqpValue] = {
        "FaultComponent": fault.component,
        "FaultComponentKind": fault.component_kind,
        "FaultType": fault.type,
        "FaultText": fault.text,
        "FaultTime": Timestamp.from_datetime(fault.time),
        "DeadLetterTime": Timestamp.from_datetime(now),
        DEAD_LETTER_REASON: fault.reason,
        DEAD_LETTER_ERROR_DESCRIPTION: fault.text,
        "SourceNamespace": namespace,
        "SourceEntity": message.entity.path,
        "SourceSequenceNumber": message.sequence_number,
        "SourceMessageId": message.message_id,
        "SourceEnqueuedTime": Timestamp.from_datetime(message.enqueued_time) if message.enqueued_time else None,
        "SourceDeliveryCount": Int(message.delivery_count),
        "SourceConsumer": consumer(),
    }
    properties = {name: value for name, value in message.application_properties.items() if name not in added}
    properties |= {name: value for name, value in added.items() if value is not None}
    if message.message_id is not None:
        properties.setdefault(ORIGINAL_MESSAGE_ID, message.message_id)
    fields = {name: getattr(message, name) for name in Message.__dataclass_fields__}
    fields["application_properties"] = properties
    fields["message_id"] = _envelope_id(message)
    fields["scheduled_enqueue_time"] = fields["time_to_live"] = None
    return Message(**fields)


def _envelope_id(message: ReceivedMessage) -> str:
    enqueued = message.enqueued_time.isoformat() if message.enqueued_time else ""
    place = f"{message.entity.path.casefold()}#{message.sequence_number}@{enqueued}"
    mark = f"~fault-{hashlib.sha256(place.encode()).hexdigest()[:8]}"
    base = message.message_id or place
    if len(base) + len(mark) > _MAX_MESSAGE_ID:
        base = hashlib.sha256(base.encode(errors="surrogatepass")).hexdigest()
    return base + mark
