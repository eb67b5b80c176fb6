"""Clones: the messages that a resubmit sends in place of others, and the ids that tell them from all others."""

from __future__ import annotations

import hashlib
import re
from datetime import datetime
from operator import attrgetter
from typing import Final

from sbnotebook.model.decision import Resubmit
from sbnotebook.model.edits import Edit, edited_by
from sbnotebook.model.message import (
    DEAD_LETTER_ERROR_DESCRIPTION,
    DEAD_LETTER_REASON,
    ORIGINAL_MESSAGE_ID,
    RESUBMIT_COUNT,
    Message,
    ReceivedMessage,
    time_text,
)

_FIELDS: Final = (*Message.__dataclass_fields__,)
_values: Final = attrgetter(*_FIELDS)
_CLONE_ID: Final = re.compile(r"~(\d{1,10})-[0-9a-f]{16}\Z")
_MAX_MESSAGE_ID: Final = 128
_MAX_COUNT: Final = 2**31 - 1
"""Of the AMQP type int, which the property has in the clones of other tools, too."""


def clone_of(message: ReceivedMessage, decision: Resubmit, edit: Edit | None, now: datetime) -> Message:
    """Return the message that a resubmit sends in place of an original.

    It keeps all that the sender wrote, drops the reasons of the dead-letter queue, counts in ``ResubmitCount``, names
    the first original in ``OriginalMessageId``, and has its own message id. The id is derived from the original's id,
    place, enqueued time and count. So it is the same for each attempt of the same resubmit, and differs from all other
    messages. So the service's duplicate detection drops it only when the same resubmit has brought it there before.

    Args:
        message: the original.
        decision: says how much later the clone becomes active.
        edit: changes the message that is sent, None for nothing.
        now: from when a delay counts.

    Raises:
        DecisionError: the edit failed.

    Source: Service Bus documentation, "Duplicate detection".
    """
    edited = edited_by(edit, message) if edit else message
    properties = dict(edited.application_properties)
    properties.pop(DEAD_LETTER_REASON, None)
    properties.pop(DEAD_LETTER_ERROR_DESCRIPTION, None)
    properties[RESUBMIT_COUNT] = _count_of(message)
    if message.message_id is not None:
        properties.setdefault(ORIGINAL_MESSAGE_ID, message.message_id)
    fields = dict(zip(_FIELDS, _values(edited), strict=True))
    fields["application_properties"] = properties
    fields["message_id"] = clone_id_of(message)
    is_scheduled_anew = edited.scheduled_enqueue_time != message.scheduled_enqueue_time
    scheduled = edited.scheduled_enqueue_time if is_scheduled_anew else None
    fields["scheduled_enqueue_time"] = now + decision.delay if decision.delay else scheduled
    return Message(**fields)


def _count_of(message: ReceivedMessage) -> int:
    return min(message.resubmit_count + 1, _MAX_COUNT)


def clone_id_of(message: ReceivedMessage) -> str:
    """Return the message id of the clone of an original, which no edit changes.

    Args:
        message: the original.
    """
    original = message.application_properties.get(ORIGINAL_MESSAGE_ID) or message.message_id
    place = f"{message.entity.path.casefold()}#{message.sequence_number}"
    # The time, too: a queue that was made anew counts from 1 again.
    full = f"{place}#{time_text(message.enqueued_time)}"
    # Eight bytes: of thousands with one message id no two must have the same.
    mark = f"~{_count_of(message)}-{hashlib.sha256(full.encode()).hexdigest()[:16]}"
    return marked_id(str(original) if original else place, mark)


def marked_id(base: str, mark: str) -> str:
    """Return a message id with a mark at its end; a hash of it takes the place of one that is too long."""
    if len(base) + len(mark) > _MAX_MESSAGE_ID:
        base = hashlib.sha256(base.encode(errors="surrogatepass")).hexdigest()
    return base + mark


def lineage_of(clone_id: str) -> tuple[str, int]:
    """Return the id of the first original, and how often it was resubmitted with this clone.

    The first is a hash where the id was too long for the clone's, and the place of an original that had no id. For an
    id that no clone has, it is the id itself, and 0.

    Args:
        clone_id: the message id of a clone.

    Example:
        >>> lineage_of("order-7~2-0123456789abcdef"), lineage_of("order-7")
        (('order-7', 2), ('order-7', 0))
    """
    found = _CLONE_ID.search(clone_id)
    return (clone_id[: found.start()], int(found[1])) if found else (clone_id, 0)
