"""Locking as many messages as a micro-batch takes, and deferring them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import anyio

from sbnotebook.errors import ConfigurationError, SbNotebookError
from sbnotebook.model import (
    Complete,
    Decision,
    Defer,
    EntityAddress,
    LockedMessage,
    MessageState,
    Outcome,
    OutcomeStatus,
    ReceivedMessage,
    Release,
)
from sbnotebook.model.message import partition_of, start_of_partition
from sbnotebook.settlement import OUTAGE_PATIENCE, AsyncEntity, LockedBatch, PeekCursor
from sbnotebook.spark.peek_reader import peeked

_LOG: Final = logging.getLogger(__name__)
_FIRST_WAIT, _MORE_WAIT = 1.0, 0.25
"""Seconds to wait for the first message of a micro-batch, and for more of them."""
_FILL_WITHIN, _FAST = 2.0, 1000.0
"""Seconds in which to fill a micro-batch, unless so many messages come per second."""
_STEP, _GROWTH = 1000, 4
"""Messages to lock at once at most, and the growth of their number while their size is not known yet."""
_LEFT_WITHIN, _LEFT_PAUSE = 10.0, 0.5
"""Seconds to wait for messages that the entity still holds, and between two tries."""
_IN_FLIGHT: Final = 200
"""Deferrals at once, by four frames."""
_PAUSE: Final = 1.0
_UNDECIDED: Final = frozenset({OutcomeStatus.UNCONFIRMED, OutcomeStatus.SKIPPED, OutcomeStatus.FAILED})


@dataclass(slots=True)
class _Received:
    """The messages that have come for a micro-batch, each counted about once."""

    wanted: int = 0
    size: int = 0
    beyond: int = 0
    last: dict[int, int] = field(default_factory=dict[int, int])
    """The highest number that has come, by partition; not kept where every message is wanted."""


@dataclass(slots=True)
class BatchLocker:
    """Locks and defers messages of one entity, over one batch that is open as long as the stream."""

    entity: AsyncEntity
    batch: LockedBatch
    max_bytes: int
    until: Mapping[int, int] | None = None
    _is_tried: bool = False
    _is_past: bool = False
    """True once each partition has delivered its last wanted message, or a later one."""

    @property
    def held_count(self) -> int:
        """Return how many messages are locked now."""
        return len(self.batch.messages)

    # ---------------------------------------------------------------- locking

    async def lock(self, max_messages: int) -> tuple[LockedMessage, ...]:
        """Lock messages for a micro-batch; none when none come within a second.

        Messages beyond the limit of bytes stay locked, for the next micro-batch.
        """
        self.batch.table.forget_ended()
        if self._is_past and not self.batch.messages and await self.is_at_end():
            return ()
        give_up, wait = anyio.current_time() + _LEFT_WITHIN, self._first_wait
        while True:
            await self._receive(max_messages, wait)
            chosen, _ = self.chosen(max_messages)
            await self._release_beyond()
            if chosen or self.until is None or await self.is_at_end():
                return chosen
            # Another receiver holds them, or Service Bus is slow.
            wait = give_up - anyio.current_time()
            if wait <= 0:
                _LOG.warning("The stream ends before messages of %s that other receivers hold.", self.entity.address)
                return ()
            await anyio.sleep(_LEFT_PAUSE)

    async def lock_ahead(self, max_messages: int) -> None:
        """Lock messages for the micro-batch after the one that is held, as far as both have room."""
        await self._receive(max_messages + len(self.batch.messages), self._first_wait)
        await self._release_beyond()

    @property
    def _first_wait(self) -> float:
        # A stream that ends looks whether the entity holds more before it waits for longer.
        return _FIRST_WAIT if self.until is None else _MORE_WAIT

    async def _receive(self, max_messages: int, wait: float) -> None:
        came = _Received()
        self._count(self.batch.messages, came)
        wait = _MORE_WAIT if came.wanted else wait
        got, more_wait, began = 0, 0.0, anyio.current_time()
        while step := self._step(max_messages, came):
            receive = partial(self.batch.receive, max_wait=wait, more_wait=more_wait)
            more = await self.entity.patiently(receive, step)
            if not more:
                return
            self._count(more, came)
            got, passed, wait = got + len(more), anyio.current_time() - began, _MORE_WAIT
            is_slow = got < _FAST * passed
            if is_slow and passed > _FILL_WITHIN:
                return  # where few come, but without a pause, the micro-batch would not end for long
            more_wait = 0.0 if is_slow else _MORE_WAIT

    def _count(self, messages: Sequence[LockedMessage], came: _Received) -> None:
        wanted = [message for message in messages if self._is_wanted(message)]
        came.wanted += len(wanted)
        # The size is 0 where a lock is lost already.
        came.size += sum(max(self.batch.table.size_of(message), 1) for message in wanted)
        came.beyond += len(messages) - len(wanted)
        if self.until is not None:
            for message in messages:
                number = message.sequence_number
                partition = partition_of(number)
                came.last[partition] = max(number, came.last.get(partition, 0))

    def _step(self, max_messages: int, came: _Received) -> int:
        """Return how many messages to ask for next; 0 when there are enough, or no more."""
        left = min(max_messages - came.wanted, _STEP, max(1, _GROWTH * (came.wanted + came.beyond)))
        if came.wanted:
            left = min(left, (self.max_bytes - came.size) * came.wanted // came.size)
        if self.until is not None:
            still = self._still_to_come(self.until, came)
            self._is_past = not still
            left = min(left, still)
        return max(left, 0)

    def _still_to_come(self, until: Mapping[int, int], came: _Received) -> int:
        """Return how many wanted messages can still come at most: messages come in the order of their numbers."""
        if came.beyond >= _STEP:
            return 0
        lasts = (
            (last, came.last.get(partition, start_of_partition(partition) - 1)) for partition, last in until.items()
        )
        return sum(max(last - found, 0) for last, found in lasts)

    def chosen(
        self, max_messages: int, passing_over: Callable[[LockedMessage], bool] | None = None
    ) -> tuple[tuple[LockedMessage, ...], bool]:
        """Return the messages for a micro-batch, and whether it has no room for more."""
        chosen: list[LockedMessage] = []
        size = 0
        for message in self.batch.messages:
            if not self._is_wanted(message) or (passing_over is not None and passing_over(message)):
                continue
            size += self.batch.table.size_of(message)
            if chosen and size > self.max_bytes:
                return tuple(chosen), True
            chosen.append(message)
            if len(chosen) == max_messages:
                return tuple(chosen), True
        return tuple(chosen), False

    def _is_wanted(self, message: ReceivedMessage) -> bool:
        number = message.sequence_number
        return self.until is None or number <= self.until.get(partition_of(number), -1)

    async def _release_beyond(self) -> None:
        beyond = [message for message in self.batch.messages if not self._is_wanted(message)]
        if beyond:
            await self.batch.settle(Release(), beyond)

    async def is_at_end(self) -> bool:
        """Return whether the entity holds no more wanted messages; False where every message is wanted."""
        return self.until is not None and not await self.entity.patiently(self._is_more)

    async def _is_more(self) -> bool:
        """Return whether the entity still holds wanted messages."""
        for partition, last in (self.until or {}).items():
            cursor = PeekCursor(start_of_partition(partition), last, 1, MessageState.ACTIVE)
            async for _ in self.entity.peeker.pages(cursor):
                return True
        return False

    # ---------------------------------------------------------------- deferring

    async def defer(self, messages: Sequence[Any]) -> list[int]:
        """Defer messages; return the numbers of those that are deferred now, for certain.

        The others come again: their locks were lost, or Service Bus refused to defer them.
        """
        if self._is_tried or not messages:
            return self._with_warning(messages, await self._defer(messages))
        # One first, because an entity that dead-letters deferred messages would do that to all of them.
        deferred = await self._defer(messages[:1])
        first = messages[0]
        is_gone = not (deferred or first.delivery_count or first.sequence_number in self.batch.table.lost)
        if is_gone and not await peeked(self.entity, [first.sequence_number]):
            raise dead_letters_deferred(self.entity.address, first.sequence_number)
        self._is_tried = True
        return self._with_warning(messages, deferred | await self._defer(messages[1:]))

    async def _defer(self, messages: Sequence[LockedMessage]) -> set[int]:
        """Defer messages, and peek at those whose outcome is in doubt; return the numbers that are deferred."""
        outcomes = await self.settle_until_known(Defer(), messages)
        settled = {number for number, outcome in outcomes.items() if outcome.ok}
        doubtful = {number for number, outcome in outcomes.items() if outcome.status is OutcomeStatus.UNCONFIRMED}
        # A deferral counts as a delivery, and one too many moves a message to the dead-letter queue. So peek at those
        # that were delivered before, and at one other.
        delivered_before = {message.sequence_number for message in messages if message.delivery_count}
        at_risk = settled & (delivered_before | ({messages[0].sequence_number} if messages else set()))
        if doubtful:
            await anyio.sleep(_PAUSE)  # the last deferrals may still arrive
        return (settled - at_risk) | {*await self.those_deferred(doubtful | at_risk)}

    def _with_warning(self, messages: Sequence[LockedMessage], deferred: set[int]) -> list[int]:
        missing = [message.sequence_number for message in messages if message.sequence_number not in deferred]
        if missing:
            _LOG.warning(
                "%d messages of %s (the first is #%d) could not be deferred and are not in this micro-batch: their "
                "locks were lost, and they come again, or they were delivered too often, and are dead-lettered.",
                len(missing),
                self.entity.address,
                missing[0],
            )
        return sorted(deferred)

    async def settle_until_known(self, decision: Decision, messages: Sequence[LockedMessage]) -> dict[int, Outcome]:
        """Settle messages, again and again where there is no answer; return their outcomes by number."""
        outcomes: dict[int, Outcome] = {}
        todo, until = list(messages), anyio.current_time() + OUTAGE_PATIENCE
        while todo:
            in_flight = "auto" if isinstance(decision, Complete) else _IN_FLIGHT
            report = await self.batch.settle(decision, todo, max_in_flight=in_flight)
            outcomes |= {m.sequence_number: outcome for m, outcome in zip(todo, report, strict=True)}
            # Release messages that Service Bus refuses to settle, and try the undecided ones again.
            held = {message.lock_token for message in self.batch.messages}
            refused = [m for m in todo if m.lock_token in held and _is_refused(outcomes[m.sequence_number])]
            if refused:
                await self.batch.settle(Release(), refused)
            todo = [
                m
                for m in todo
                if m.lock_token in held and outcomes[m.sequence_number].status in _UNDECIDED and m not in refused
            ]
            if todo and anyio.current_time() > until:
                done = "deferred" if isinstance(decision, Defer) else "completed"
                raise SbNotebookError(
                    f"Whether {len(todo):,} messages of {self.entity.address} are {done} is not known "
                    f"({outcomes[todo[0].sequence_number].description}). Start the stream again, which finds out."
                )
            await anyio.sleep(_PAUSE if todo else 0)
        return outcomes

    async def those_deferred(self, numbers: Iterable[int]) -> list[int]:
        """Return the numbers of messages that are deferred."""
        found = await peeked(self.entity, numbers)
        return sorted(message.sequence_number for message in found if message.state is MessageState.DEFERRED)


def dead_letters_deferred(entity: EntityAddress, number: int | None = None) -> ConfigurationError:
    """Return the refusal of an entity, with the number of the message whose deferral showed it."""
    told = "" if number is None else f" This start moved #{number} to the dead-letter queue."
    return ConfigurationError(
        f"{entity} dead-letters messages at their first deferral, which counts as a delivery: set its maximum delivery "
        f"count to 2 or more.{told}"
    )


def _is_refused(outcome: Outcome) -> bool:
    return outcome.status is OutcomeStatus.FAILED and not outcome.retryable
