"""A batch of messages held under locks that are renewed until they are settled."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self
from uuid import UUID

import anyio
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusError

from sbnotebook.errors import BatchClosedError, DecisionError
from sbnotebook.model import Decision, EntityAddress, LockedMessage, Outcome, OutcomeStatus, Release, Report
from sbnotebook.settlement import sdk_internals
from sbnotebook.settlement.connection import Connection
from sbnotebook.settlement.conversion import locked_from_payload
from sbnotebook.settlement.peek import Peeker
from sbnotebook.settlement.renewal import Clock, SystemClock, renew_at
from sbnotebook.settlement.settle import (
    DEFAULT_MAX_IN_FLIGHT,
    Progress,
    check_decision,
    outcome_for,
    settle_many,
)

if TYPE_CHECKING:
    from anyio.abc import TaskGroup
    from azure.servicebus import ServiceBusReceivedMessage
    from azure.servicebus.aio import ServiceBusReceiver

__all__ = ["DEFAULT_RENEW_FOR", "LockedBatch"]

DEFAULT_RENEW_FOR: Final = timedelta(minutes=30)
_SETTLE_CHUNK: Final = 500
"""Settlements between two chances for a renewal to use the receiver."""
_RENEW_CHUNK: Final = 100
_MORE_WAIT: Final = 1.0
_CLOSE_TIMEOUT: Final = 60.0


@dataclass(slots=True)
class _Hold:
    """One message that is held: the value, the SDK's object, and how long its lock lasts."""

    message: LockedMessage
    received: ServiceBusReceivedMessage
    locked_from: datetime
    locked_until: datetime


class LockedBatch:
    """Messages of one entity that this process holds.

    An asynchronous context manager. While it is open, locks are renewed in the background; when it closes, what
    was not settled is released, which does not raise a delivery count.

    Args:
        connection: the namespace.
        address: a queue, a subscription, or a sub-queue of one.
        renew_for: for how long locks are renewed, counted from the opening of the batch.
        clock: where the time comes from.
    """

    def __init__(
        self,
        connection: Connection,
        address: EntityAddress,
        *,
        renew_for: timedelta = DEFAULT_RENEW_FOR,
        clock: Clock | None = None,
    ) -> None:
        self.address = address
        self._connection = connection
        self.clock = clock or SystemClock()
        self._renew_until = self.clock.now() + renew_for
        self._holds: dict[int, _Hold] = {}
        self._ended: dict[int, OutcomeStatus] = {}
        self._receiver: ServiceBusReceiver | None = None
        self._tasks: TaskGroup | None = None
        self._busy = anyio.Lock()
        self.renewal_error: str | None = None
        """Why the last renewal failed, None when it did not."""

    async def __aenter__(self) -> Self:
        self._receiver = self._connection.receiver(self.address)
        self._tasks = await anyio.create_task_group().__aenter__()
        self._tasks.start_soon(self._renew_in_background)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        tasks, self._tasks = self._tasks, None
        if tasks is None:
            return None
        try:
            with anyio.move_on_after(_CLOSE_TIMEOUT, shield=True):
                await self._release_and_close()
        finally:
            tasks.cancel_scope.cancel()
            await tasks.__aexit__(kind, error, trace)
        return None

    # ---------------------------------------------------------------- what is held

    @property
    def messages(self) -> tuple[LockedMessage, ...]:
        """The messages that are held now, in the order in which they came."""
        return tuple(hold.message for hold in self._holds.values())

    @property
    def lost(self) -> tuple[int, ...]:
        """Sequence numbers of messages whose lock ended before they were settled."""
        return tuple(number for number, status in self._ended.items() if status is OutcomeStatus.LOCK_LOST)

    def locked_until(self, sequence_number: int) -> datetime | None:
        """When the lock of a held message ends as it was renewed last; None when it is not held."""
        hold = self._holds.get(sequence_number)
        return hold.locked_until if hold else None

    # ---------------------------------------------------------------- receiving

    async def receive(self, count: int, *, max_wait: float = 5.0) -> tuple[LockedMessage, ...]:
        """Lock more messages.

        Args:
            count: how many at most.
            max_wait: seconds to wait for the first.

        Returns:
            The messages that were locked by this call; fewer than asked for when the entity has no more.

        Raises:
            BatchClosedError: the batch is closed.
        """
        taken: list[LockedMessage] = []
        wait = max_wait
        while len(taken) < count:
            async with self._busy:
                asked = self.clock.now()
                received = await self._open_receiver().receive_messages(count - len(taken), max_wait_time=wait)
            if not received:
                break
            taken += [await self._hold(message, asked) for message in received]
            wait = min(_MORE_WAIT, max_wait)
        return tuple(taken)

    async def _hold(self, received: ServiceBusReceivedMessage, asked: datetime) -> LockedMessage:
        number, until = int(received.sequence_number or 0), received.locked_until_utc
        payload = sdk_internals.payload_of_received(received)
        if payload is None:  # it came in several frames: look at it again to have its bytes
            payload = await self._peek_payload(number)
        message = locked_from_payload(payload, self.address, UUID(str(received.lock_token)))
        locked_until = until.astimezone(UTC) if until else asked + timedelta(minutes=1)
        self._holds[number] = _Hold(message, received, asked, locked_until)
        self._ended.pop(number, None)
        return message

    async def _peek_payload(self, sequence_number: int) -> bytes:
        peeker = Peeker(self._connection, self.address)
        try:
            (payload,) = await peeker.payloads(sequence_number, 1)
        finally:
            await peeker.close()
        return payload

    # ---------------------------------------------------------------- settling

    async def settle(
        self,
        decision: Decision,
        messages: Iterable[LockedMessage] | None = None,
        *,
        max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
        progress: Progress | None = None,
    ) -> Report:
        """Settle messages of this batch; the outcome of each is in the report, and none raises.

        Args:
            decision: complete, abandon, dead-letter, defer or release.
            messages: which of the messages, all that are held by default.
            max_in_flight: settlements that wait for their answer at once.
            progress: told of every message that is finished.

        Raises:
            DecisionError: the decision is not possible here, or a message is not of this batch; nothing was done.
            BatchClosedError: the batch is closed.
        """
        check_decision(decision, self.address)
        chosen = list(self.messages if messages is None else messages)
        self._check_ours(chosen)
        receiver = self._open_receiver()
        outcomes: dict[int, Outcome] = {}
        held = [message for message in chosen if message.sequence_number in self._holds]
        for start in range(0, len(held), _SETTLE_CHUNK):
            chunk = [self._holds[message.sequence_number] for message in held[start : start + _SETTLE_CHUNK]]
            async with self._busy:
                pairs = [(hold.message, hold.received) for hold in chunk]
                settled = await settle_many(receiver, pairs, decision, max_in_flight=max_in_flight, progress=progress)
            for outcome in settled:
                self._note(outcome)
                outcomes[outcome.sequence_number or 0] = outcome
        return Report(
            outcomes.get(message.sequence_number) or self._outcome_of_gone(message, decision) for message in chosen
        )

    def _check_ours(self, messages: Sequence[LockedMessage]) -> None:
        numbers = (message.sequence_number for message in messages)
        strangers = [number for number in numbers if number not in self._holds and number not in self._ended]
        if strangers:
            raise DecisionError(
                f"{len(strangers)} messages are not of this batch (the first is #{strangers[0]}): lock them first."
            )

    def _note(self, outcome: Outcome) -> None:
        # What failed or has no answer is still held, and is released at the end or tried again.
        if outcome.status not in (OutcomeStatus.FAILED, OutcomeStatus.UNCONFIRMED):
            number = outcome.sequence_number or 0
            self._holds.pop(number, None)
            self._ended[number] = outcome.status

    def _outcome_of_gone(self, message: LockedMessage, decision: Decision) -> Outcome:
        if self._ended.get(message.sequence_number) is OutcomeStatus.LOCK_LOST:
            return outcome_for(message, decision, OutcomeStatus.LOCK_LOST, "The lock ended before.")
        return outcome_for(message, decision, OutcomeStatus.ALREADY_SETTLED, "It was settled before in this batch.")

    # ---------------------------------------------------------------- renewal and the end

    async def _renew_in_background(self) -> None:
        while True:
            await self.clock.sleep(1.0)
            now = self.clock.now()
            due = [h for h in self._holds.values() if renew_at(h.locked_from, h.locked_until) <= now]
            if now >= self._renew_until:
                due = []
            for start in range(0, len(due), _RENEW_CHUNK):
                await self._renew(due[start : start + _RENEW_CHUNK])
            self._drop_expired()

    async def _renew(self, holds: Sequence[_Hold]) -> None:
        try:
            async with self._busy:
                held = [hold for hold in holds if hold.message.sequence_number in self._holds]
                if not held:
                    return
                now = self.clock.now()
                await sdk_internals.renew_locks(self._open_receiver(), [hold.received for hold in held])
        except MessageLockLostError as error:
            await self._find_lost(holds, error)
        except ServiceBusError as error:
            # Tried again within a second, as long as the lock lasts.
            self.renewal_error = f"{type(error).__name__}: locks could not be renewed."
        else:
            self.renewal_error = None
            for hold in held:
                hold.locked_from, hold.locked_until = now, hold.received.locked_until_utc or hold.locked_until

    async def _find_lost(self, holds: Sequence[_Hold], error: MessageLockLostError) -> None:
        if len(holds) == 1:
            self._lose(holds[0])
            self.renewal_error = f"{type(error).__name__}: a lock was lost."
            return
        for hold in holds:
            await self._renew([hold])

    def _drop_expired(self) -> None:
        now = self.clock.now()
        for hold in [hold for hold in self._holds.values() if hold.locked_until <= now]:
            self._lose(hold)

    def _lose(self, hold: _Hold) -> None:
        self._holds.pop(hold.message.sequence_number, None)
        self._ended[hold.message.sequence_number] = OutcomeStatus.LOCK_LOST

    async def _release_and_close(self) -> None:
        try:
            if self._holds:
                await self.settle(Release())
        finally:
            receiver, self._receiver = self._receiver, None
            if receiver is not None:
                await receiver.close()

    def _open_receiver(self) -> ServiceBusReceiver:
        if self._receiver is None:
            raise BatchClosedError("The batch is closed and holds no messages: lock them again.")
        return self._receiver
