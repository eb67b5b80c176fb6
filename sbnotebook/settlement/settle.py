"""Settling many messages, pipelined, with an outcome for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final

import anyio
from azure.servicebus import ServiceBusReceivedMessage

from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    Decision,
    Defer,
    EntityAddress,
    LockedMessage,
    Outcome,
    OutcomeStatus,
    ReceivedMessage,
    Release,
    SubQueue,
)
from sbnotebook.settlement import sdk_internals
from sbnotebook.settlement.failures import outcome_of_error

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusReceiver

__all__ = ["DEFAULT_MAX_IN_FLIGHT", "Progress", "check_decision", "outcome_for", "settle_many"]

DEFAULT_MAX_IN_FLIGHT: Final = 10
_RELEASE_TIMEOUT: Final = 10.0

Held = tuple[LockedMessage, ServiceBusReceivedMessage]
Progress = Callable[[int], None]
"""Called with the number of messages that were finished since the last call."""


def check_decision(decision: Decision, entity: EntityAddress) -> None:
    """Refuse a decision that the service would refuse for every message.

    Raises:
        DecisionError: says what to do instead.
    """
    if isinstance(decision, DeadLetter) and entity.sub_queue is SubQueue.DEAD_LETTER:
        raise DecisionError(
            f"{entity} is a dead-letter queue already: complete, resubmit or defer its messages instead."
        )


async def settle_many(
    receiver: ServiceBusReceiver,
    held: Sequence[Held],
    decision: Decision,
    *,
    max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
    progress: Progress | None = None,
) -> list[Outcome]:
    """Settle messages of one receiver; never raises for one message.

    The settlements are pipelined on the one receiver: N messages cost about N / max_in_flight round trips.

    Args:
        receiver: the one that the messages were received from.
        held: each message with the SDK's object that stands for its lock.
        decision: complete, abandon, dead-letter, defer or release.
        max_in_flight: settlements that wait for their answer at once.
        progress: told of every message that is finished.

    Returns:
        An outcome for each message, in the same order. When the caller is cancelled, the settlements that are under
        way are cut off.
    """
    settle = _verb(receiver, decision)
    outcomes: dict[int, Outcome] = {}
    todo = iter(enumerate(held))

    async def work() -> None:
        for index, (message, received) in todo:
            outcomes[index] = await _settle_one(settle, message, received, decision)
            if progress is not None:
                progress(1)

    async with anyio.create_task_group() as tasks:
        for _ in range(min(max_in_flight, len(held))):
            tasks.start_soon(work)
    return [outcomes[index] for index in range(len(held))]


async def _settle_one(
    settle: Callable[[ServiceBusReceivedMessage], Awaitable[None]],
    message: LockedMessage,
    received: ServiceBusReceivedMessage,
    decision: Decision,
) -> Outcome:
    try:
        await settle(received)
    except Exception as error:  # noqa: BLE001 (each message has an outcome, whatever the SDK raises)
        return outcome_of_error(
            error,
            verb=decision.verb,
            entity=message.entity,
            sequence_number=message.sequence_number,
            message_id=message.message_id,
        )
    return outcome_for(message, decision, OutcomeStatus.SETTLED)


def _verb(receiver: ServiceBusReceiver, decision: Decision) -> Callable[[ServiceBusReceivedMessage], Awaitable[None]]:
    match decision:
        case Complete():
            return receiver.complete_message
        case Abandon():
            return receiver.abandon_message
        case Defer():
            return receiver.defer_message
        case DeadLetter(reason, description):
            return lambda message: receiver.dead_letter_message(message, reason=reason, error_description=description)
        case Release():
            return lambda message: sdk_internals.release(receiver, message, _RELEASE_TIMEOUT)
        case _:
            raise DecisionError(f"To {decision.verb} is not a settlement: it is planned on the entity.")


def outcome_for(
    message: ReceivedMessage, decision: Decision, status: OutcomeStatus, description: str | None = None
) -> Outcome:
    """The outcome of one message, where no error of the service has to be told."""
    return Outcome(
        status=status,
        verb=decision.verb,
        entity=message.entity,
        sequence_number=message.sequence_number,
        message_id=message.message_id,
        description=description,
    )
