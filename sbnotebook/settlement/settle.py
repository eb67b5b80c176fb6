"""Settling many messages, pipelined, with an outcome for each."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Final
from uuid import UUID

import anyio
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    Decision,
    Defer,
    EntityAddress,
    Outcome,
    OutcomeStatus,
    ReceivedMessage,
    Release,
    SubQueue,
)
from sbnotebook.settlement import sdk_internals, sdk_locks
from sbnotebook.settlement.failures import outcome_of_error

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage
    from azure.servicebus.aio import ServiceBusReceiver

    from sbnotebook.settlement.held import HeldMessages, Hold

__all__ = ["DEFAULT_MAX_IN_FLIGHT", "Progress", "Settling", "check_decision", "outcome_for"]

DEFAULT_MAX_IN_FLIGHT: Final = 10
_ANSWER_WITHIN: Final = 20.0
"""Seconds."""

Progress = Callable[[int], None]
"""Called with the number of messages that were finished since the last call."""


def check_decision(decision: Decision, entity: EntityAddress) -> None:
    """Refuse a decision that the service would refuse for every message.

    Raises:
        DecisionError: says what to do instead.
    """
    if not _is_decision(decision):
        raise DecisionError("A decision is one of sbnotebook's own, such as Complete() or DeadLetter(reason).")
    if isinstance(decision, DeadLetter) and entity.sub_queue is SubQueue.DEAD_LETTER:
        raise DecisionError(
            f"{entity} is a dead-letter queue already: complete, resubmit or defer its messages instead."
        )
    if isinstance(decision, Defer) and decision.wake_after is not None and decision.wake_to is None:
        _check_wake_up(entity)


def _check_wake_up(entity: EntityAddress) -> None:
    if entity != entity.sends_to:
        raise DecisionError(
            f"A wake-up message cannot be sent to {entity} itself, and in {entity.sends_to} others would get it: "
            "name a queue for it, wake_to=…"
        )


def _is_decision(given: object) -> bool:
    return isinstance(given, Decision)


class Settling:
    """One decision that is carried out on messages of one receiver; never raises for one message.

    The settlements are pipelined: N messages cost about N / max_in_flight round trips. After one that had no answer
    nothing more is attempted: the connection is most likely lost, and each further attempt would be one more message
    of which nobody knows whether it is settled.

    Args:
        receiver: the one that the messages were received from, and that nobody else uses meanwhile.
        decision: complete, abandon, dead-letter, defer or release.
        held: is told of each outcome at once, so that none is lost when the caller is cancelled.
        max_in_flight: settlements that wait for their answer at once.
        progress: told of every message that is finished.
    """

    def __init__(
        self,
        receiver: ServiceBusReceiver,
        decision: Decision,
        held: HeldMessages,
        *,
        max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
        progress: Progress | None = None,
    ) -> None:
        self._receiver = receiver
        self.decision = decision
        self.outcomes: dict[UUID, Outcome] = {}
        """What is known so far, by lock token; it is there also when :meth:`run` was cancelled."""
        if max_in_flight < 1:
            raise ConfigurationError("max_in_flight is 1 or more.")
        self._settle = _verb(receiver, decision)
        self._held = held
        self._max_in_flight = max_in_flight
        self._progress = progress
        self._stopped: str | None = None

    async def run(self, holds: Sequence[Hold]) -> None:
        """Settle some messages, and add their outcomes to those that are known.

        Settlements that are under way when the caller is cancelled are cut off, and in doubt from then on.
        """
        await self._open()
        parts = self._parts(holds)
        todo = iter(parts)

        async def work() -> None:
            for part in todo:
                self.outcomes.update(await self._settle_part(part))
                if self._progress is not None:
                    self._progress(len(part))

        async with anyio.create_task_group() as tasks:
            for _ in range(min(self._max_in_flight, len(parts))):
                tasks.start_soon(work)

    def _parts(self, holds: Sequence[Hold]) -> list[list[Hold]]:
        """What one frame can settle: a message; to release, all whose deliveries follow one another on the link."""
        if not isinstance(self.decision, Release):
            return [[hold] for hold in holds]
        here = [hold for hold in holds if sdk_internals.is_on_link(self._receiver, hold.received)]
        gone = [hold for hold in holds if not sdk_internals.is_on_link(self._receiver, hold.received)]
        return [*(here[part] for part in sdk_locks.ranges([hold.received for hold in here])), *([one] for one in gone)]

    def stop(self, reason: str) -> None:
        """Attempt nothing more; what was not attempted is skipped for this reason."""
        self._stopped = self._stopped or reason

    async def _open(self) -> None:
        # Here and not in the tasks, which would all open it at the same time. Another link cannot release.
        if self._stopped is None and not isinstance(self.decision, Release):
            try:
                await sdk_internals.reopen(self._receiver)
            except (ServiceBusError, OSError) as error:
                self._stopped = f"Not attempted: there is no connection ({type(error).__name__})."

    async def _settle_part(self, holds: Sequence[Hold]) -> dict[UUID, Outcome]:
        doubts = [hold.in_doubt for hold in holds]
        outcomes = self._skipped(holds)
        if not outcomes:
            for hold in holds:
                hold.in_doubt = True
            outcomes = await self._attempt(holds)
        return {
            hold.message.lock_token: self._held.note(hold, outcome, was_in_doubt=doubt)
            for hold, outcome, doubt in zip(holds, outcomes, doubts, strict=True)
        }

    def _skipped(self, holds: Sequence[Hold]) -> list[Outcome]:
        reason = self._stopped
        if isinstance(self.decision, Release) and not sdk_internals.is_on_link(self._receiver, holds[0].received):
            reason = reason or "Not attempted: the link that it came on is gone; it comes again when its lock ends."
        if not reason:
            return []
        return [outcome_for(hold.message, self.decision, OutcomeStatus.SKIPPED, reason) for hold in holds]

    async def _attempt(self, holds: Sequence[Hold]) -> list[Outcome]:
        if len(holds) > 1:
            received = [hold.received for hold in holds]
            errors = await sdk_locks.release_range(self._receiver, received, _ANSWER_WITHIN)
        else:
            errors = [await self._error_of(holds[0])]
        return [self._ended(hold, error) for hold, error in zip(holds, errors, strict=True)]

    async def _error_of(self, hold: Hold) -> Exception | None:
        try:
            await self._settle(hold.received)
        except Exception as error:  # noqa: BLE001 (each message has an outcome, whatever the SDK raises)
            return error
        return None

    def _ended(self, hold: Hold, error: Exception | None) -> Outcome:
        if error is None:
            return outcome_for(hold.message, self.decision, OutcomeStatus.SETTLED)
        outcome = outcome_of_error(
            error,
            verb=self.decision.verb,
            entity=hold.message.entity,
            sequence_number=hold.message.sequence_number,
            message_id=hold.message.message_id,
        )
        if outcome.status is OutcomeStatus.UNCONFIRMED:
            self._stopped = "Not attempted: the connection was lost before."
        return outcome


def _verb(receiver: ServiceBusReceiver, decision: Decision) -> Callable[[ServiceBusReceivedMessage], Awaitable[None]]:
    match decision:
        case Release():
            return lambda message: sdk_internals.release(receiver, message, _ANSWER_WITHIN)
        case Complete() | Abandon() | Defer():
            return lambda message: sdk_internals.settle(receiver, message, decision.verb, _ANSWER_WITHIN)
        case DeadLetter(reason, description):
            return lambda message: sdk_internals.settle(
                receiver, message, decision.verb, _ANSWER_WITHIN, reason=reason, description=description
            )
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
