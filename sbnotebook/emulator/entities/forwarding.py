"""How messages go on from one entity to another by themselves.

Source: Service Bus documentation, "Chaining Service Bus entities with autoforwarding".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbnotebook.emulator.entities.intake import Forwarded
from sbnotebook.emulator.entities.message import BrokeredMessage, read_sent
from sbnotebook.emulator.entities.quotas import MAX_HOPS
from sbnotebook.emulator.entities.receivable import DeadLetterReason
from sbnotebook.emulator.entities.refusals import Refusal, RefusedError
from sbnotebook.errors import AmqpDecodeError

if TYPE_CHECKING:
    from sbnotebook.emulator.entities.entity import ReceivingEntity
    from sbnotebook.emulator.entities.queue import Queue
    from sbnotebook.emulator.entities.topic import Topic

__all__ = ["forward"]

_REASONS = {
    Refusal.DISABLED: "MessagingEntityDisabled",
    Refusal.QUOTA_EXCEEDED: "QuotaExceeded",
    Refusal.TOO_LARGE: "MessageSizeExceeded",
    Refusal.NO_SESSION_ID: "Session ID is null.",
}


def forward(
    source: ReceivingEntity,
    message: BrokeredMessage,
    target: str,
    destination: Queue | Topic | None,
    now: int,
    *,
    is_dead: bool,
) -> DeadLetterReason | None:
    """Send a message on.

    Args:
        source: where it comes from.
        message: with its payload.
        target: the name of where it is to go.
        destination: the queue or topic of this name, None if there is none.
        now: ms.
        is_dead: whether it was dead-lettered in ``source``.

    Returns:
        Why it cannot go there; None if it has gone. The message itself is left to the caller.
    """
    if destination is None:
        return DeadLetterReason("MessagingEntityNotFound", f"The entity '{target}' to forward to could not be found.")
    if message.hops >= MAX_HOPS:
        text = f"The maximum number of allowed hops when forwarding between entities is {MAX_HOPS}."
        return DeadLetterReason("MaxTransferHopCountExceeded", text)
    try:
        sent = read_sent(message.payload or b"")
        destination.intake.check([sent])
    except AmqpDecodeError as error:
        return DeadLetterReason("ForwardingFailed", str(error))
    except RefusedError as error:
        return DeadLetterReason(_REASONS.get(error.refusal, "ForwardingFailed"), str(error))
    origin = source.path if is_dead else message.dead_letter_source
    destination.intake.take(sent, now, Forwarded(message.enqueued_sequence_number, origin, message.hops + 1))
    return None
