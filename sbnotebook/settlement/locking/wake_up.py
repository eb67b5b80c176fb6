"""Wake-up messages: scheduled messages to oneself, each of which carries the number of a deferred message.

A deferred message is received by its number only, and nothing limits for how long it is deferred. The wake-up message
is scheduled before the message is deferred. So a crash in between leaves a harmless wake-up for a message that is not
deferred, and never a deferred message without a wake-up.

Source: "4 ways to defer messages in Azure Service Bus", section "Defer the Message".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import UUID

from sbnotebook.errors import DecisionError, SettlementFailedError
from sbnotebook.model import Decision, Defer, EntityAddress, LockedMessage, Message, Outcome, ReceivedMessage
from sbnotebook.model.message import time_text
from sbnotebook.settlement.sending.delivery import SenderPool, send_many

if TYPE_CHECKING:
    from sbnotebook.settlement.locking.lock import LockedBatch
    from sbnotebook.settlement.locking.lock_table import Hold
    from sbnotebook.settlement.locking.renewal import Clock

SUBJECT: Final = "sbnotebook.wake-up"
"""The subject by which a wake-up message is known."""
_MAX_BODY: Final = 4_096


@dataclass(frozen=True, slots=True)
class WakeUp:
    entity: EntityAddress
    sequence_number: int
    enqueued_time: str

    @classmethod
    def of(cls, message: Message) -> Self | None:
        """Return what a wake-up message says; None for any other message.

        Any sender can write such a message, so use it only to find the message to receive.
        """
        if message.subject != SUBJECT or len(message.body) > _MAX_BODY:
            return None
        try:
            said: Any = json.loads(message.body_text or "")
            entity = EntityAddress.parse(said["entity"])
            number, enqueued = said["sequence_number"], said["enqueued_time"]
        except (ValueError, LookupError, TypeError, RecursionError):  # an invalid address is a ValueError
            return None
        is_one = type(number) is int and number > 0 and isinstance(enqueued, str)
        return cls(entity, number, enqueued) if is_one else None

    @classmethod
    def for_message(cls, message: ReceivedMessage) -> Self:
        return cls(message.entity, message.sequence_number, time_text(message.enqueued_time))

    def message(self, due: datetime, *, deferral: int, session_id: str | None = None) -> Message:
        said = {
            "entity": self.entity.path,
            "sequence_number": self.sequence_number,
            "enqueued_time": self.enqueued_time,
        }
        mark = hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]
        return Message(
            body=json.dumps(said).encode(),
            content_type="application/json",
            subject=SUBJECT,
            message_id=f"wake-up-{self.sequence_number}-{deferral}-{mark}",
            session_id=session_id,
            scheduled_enqueue_time=due,
        )

    async def receive(self, batch: LockedBatch) -> LockedMessage | None:
        """Lock the deferred message; return None where it is deferred no more."""
        if batch.address != self.entity:
            raise DecisionError(f"The wake-up is for a message of {self.entity}, and the batch is of {batch.address}.")
        for message in await batch.receive_deferred([self.sequence_number]):
            if WakeUp.for_message(message) == self:
                return message
            batch.let_lapse([message])  # it has the number only
        return None


async def receive_deferred_of(batch: LockedBatch, message: Message) -> LockedMessage | None:
    """Lock the deferred message that a wake-up message is for; return None where there is none.

    Settle it first, and complete the wake-up after it: then a crash in between leaves the wake-up, which comes again.
    """
    wake_up = WakeUp.of(message)
    return None if wake_up is None else await wake_up.receive(batch)


@asynccontextmanager
async def scheduling_wake_ups(
    pool: Callable[[EntityAddress], SenderPool],
    clock: Clock,
    decision: Decision,
    holds: Sequence[Hold],
    _outcomes: Mapping[UUID, Outcome],
) -> AsyncGenerator[None]:
    """Send the wake-ups, and wait until each is confirmed, before messages are deferred.

    Nothing is to be done about their outcomes: a wake-up for a message that is not deferred does no harm.
    """
    if isinstance(decision, Defer) and decision.wake_after is not None:
        messages = [hold.message for hold in holds]
        to = decision.wake_to or messages[0].entity.sends_to
        await _schedule(pool(to), to, messages, clock.now() + decision.wake_after)
    yield


async def _schedule(pool: SenderPool, to: EntityAddress, messages: Sequence[LockedMessage], due: datetime) -> None:
    wake_ups = [
        WakeUp.for_message(m).message(due, deferral=m.delivery_count, session_id=m.session_id) for m in messages
    ]
    failures = (await send_many(pool, wake_ups)).failures
    if failures:
        first = str(failures[0].description).rstrip(".")
        raise SettlementFailedError(
            f"{len(failures):,} of {len(wake_ups):,} wake-up messages to {to} were not confirmed: {first}. So these "
            "messages were not deferred.",
            failures,
        )
