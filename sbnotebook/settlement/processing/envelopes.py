"""Envelopes: copies of failed messages that are sent to an entity of the user's choice and describe the fault.

An envelope has the original's body and typed properties, and the application properties below. They replace
properties of the same names in the original, so that a sender cannot forge a fault.

==============================  =================================================================================
property                        content
==============================  =================================================================================
``FaultComponent``              the qualified name of the function
``FaultComponentKind``          ``function`` or ``async function``
``FaultType``                   the exception's type
``FaultText``                   the exception's text, without secrets, cut at 1,000 characters
``FaultTime``                   when the function ended
``DeadLetterTime``              when the envelope was made
``DeadLetterReason``            the reason, as in a dead-letter queue, so that envelopes are grouped like dead letters
``DeadLetterErrorDescription``  an explanation of the reason
``SourceNamespace``             the host of the original
``SourceEntity``                the entity of the original
``SourceSequenceNumber``        its sequence number there
``SourceMessageId``             its message ID, if it had one
``SourceEnqueuedTime``          when it was enqueued there
``SourceDeliveryCount``         the number of failed deliveries before this one
``SourceConsumer``              the machine and process that held its lock, as in the leases of a status
``OriginalMessageId``           the ID of the first message if it was resubmitted before, otherwise the original's ID
==============================  =================================================================================
"""

from __future__ import annotations

import hashlib
from datetime import datetime

from sbnotebook.amqp import AmqpValue, Int, Timestamp
from sbnotebook.model import Message, ReceivedMessage
from sbnotebook.model.clones import marked_id
from sbnotebook.model.message import DEAD_LETTER_ERROR_DESCRIPTION, DEAD_LETTER_REASON, ORIGINAL_MESSAGE_ID, time_text
from sbnotebook.settlement.processing.calls import consumer
from sbnotebook.settlement.processing.policy import Fault


def envelope_of(message: ReceivedMessage, fault: Fault, *, namespace: str, now: datetime) -> Message:
    """Return the envelope for one message.

    The envelope does not expire and is not scheduled, even if the original does or is. Its message ID is derived from
    the original's ID and place, so that it is the same each time the same message is dead-lettered. An entity with
    duplicate detection therefore drops a second envelope. Of the place it has 64 bits, so that messages with one ID do
    not share an envelope: of a million of them, two would with a probability of 1 in 37 million.
    """
    added = _about_fault(fault, now) | _about_source(message, namespace)
    # An absent value also replaces the original's property of that name.
    properties = {name: value for name, value in message.application_properties.items() if name not in added}
    properties |= {name: value for name, value in added.items() if value is not None}
    if message.message_id is not None:
        properties.setdefault(ORIGINAL_MESSAGE_ID, message.message_id)
    # The fields of the original that can be sent, changed where an envelope differs.
    fields = {name: getattr(message, name) for name in Message.__dataclass_fields__}
    fields["application_properties"] = properties
    place = f"{message.entity.path.casefold()}#{message.sequence_number}@{time_text(message.enqueued_time)}"
    mark = f"~fault-{hashlib.sha256(place.encode()).hexdigest()[:16]}"
    fields["message_id"] = marked_id(message.message_id or place, mark)
    fields["scheduled_enqueue_time"] = fields["time_to_live"] = None
    return Message(**fields)


def _about_fault(fault: Fault, now: datetime) -> dict[str, AmqpValue]:
    return {
        "FaultComponent": fault.component,
        "FaultComponentKind": fault.component_kind,
        "FaultType": fault.type,
        "FaultText": fault.text,
        "FaultTime": Timestamp.from_datetime(fault.time),
        "DeadLetterTime": Timestamp.from_datetime(now),
        DEAD_LETTER_REASON: fault.reason,
        DEAD_LETTER_ERROR_DESCRIPTION: fault.text,
    }


def _about_source(message: ReceivedMessage, namespace: str) -> dict[str, AmqpValue]:
    return {
        "SourceNamespace": namespace,
        "SourceEntity": message.entity.path,
        "SourceSequenceNumber": message.sequence_number,
        "SourceMessageId": message.message_id,
        "SourceEnqueuedTime": Timestamp.from_datetime(message.enqueued_time) if message.enqueued_time else None,
        "SourceDeliveryCount": Int(message.delivery_count),
        "SourceConsumer": consumer(),
    }
