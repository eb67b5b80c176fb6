"""Locking as many messages as a micro-batch takes, and setting them aside."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final

import anyio

from sbnotebook.errors import ConfigurationError, SbNotebookError
from sbnotebook.model import Defer, LockedMessage, MessageState, Outcome, OutcomeStatus, ReceivedMessage, Release
from sbnotebook.settlement import AsyncEntity, LockedBatch
from sbnotebook.settlement.patience import PATIENCE, patiently
from sbnotebook.spark.consume_offset import BatchMessage
from sbnotebook.spark.numbered_pages import numbered_pages
from sbnotebook.spark.sequence_ranges import partition_of

__all__ = ["BatchLocker"]

_LOG: Final = logging.getLogger(__name__)
_FIRST_WAIT, _MORE_WAIT = 1.0, 0.25
"""Seconds to wait for the first message of a micro-batch, and for more of them."""
_STEP, _GROWTH = 1000, 4
"""Messages locked at once at most, and by which factor their number grows, as nobody knows yet how large they are."""
_LEFT_WITHIN, _LEFT_PAUSE = 10.0, 0.5
"""Seconds to wait for messages that are there and do not come, because another receiver holds them."""
_IN_FLIGHT: Final = 100
_PAUSE: Final = 1.0
_UNDECIDED: Final = frozenset({OutcomeStatus.UNCONFIRMED, OutcomeStatus.SKIPPED, OutcomeStatus.FAILED})
_PARTITION_SHIFT: Final = 48


@dataclass(slots=True)
class _Came:
    """What has come for a micro-batch, each message counted once, in about."""

    wanted: int = 0
    size: int = 0
    beyond: int = 0
    partitions: set[int] = field(default_factory=set[int])
    """Of those that are beyond what is wanted."""


@dataclass(slots=True)
class BatchLocker:
    """Takes messages of one entity, over one batch that is open as long as the stream.

    Args:
        entity: whose messages they are.
        batch: open.
        max_bytes: bytes of a micro-batch at most; a message that is larger comes alone.
        until: the last number of each partition that is taken; None for all.
    """

    entity: AsyncEntity
    batch: LockedBatch
    max_bytes: int
    until: Mapping[int, int] | None = None
    _is_tried: bool = False

    # ---------------------------------------------------------------- locking

    async def lock(self, max_messages: int) -> tuple[LockedMessage, ...]:
        """Lock messages, so many at most; none when none come within a second.

        What was locked beyond the bytes stays held, and comes into the next micro-batch.
        """
        give_up = anyio.current_time() + _LEFT_WITHIN
        while True:
            await self._receive(max_messages)
            chosen = self._chosen(max_messages)
            await self._release_beyond()
            if chosen or self.until is None or not await patiently(self._is_more, address=self.entity.address):
                return chosen
            if anyio.current_time() > give_up:
                _LOG.warning("The stream ends before messages of %s that other receivers hold.", self.entity.address)
                return ()
            await anyio.sleep(_LEFT_PAUSE)

    async def _receive(self, max_messages: int) -> None:
        came, wait = _Came(), _FIRST_WAIT
        self._count(self.batch.messages, came)
        while step := self._step(max_messages, came):
            more = await patiently(partial(self.batch.receive, max_wait=wait), step, address=self.entity.address)
            if not more:
                return
            self._count(more, came)
            wait = _MORE_WAIT

    def _count(self, messages: Sequence[LockedMessage], came: _Came) -> None:
        for message in messages:
            if self._is_wanted(message):
                came.wanted += 1
                came.size += BatchMessage.of(message).size
            else:
                came.beyond += 1
                came.partitions.add(partition_of(message.sequence_number))

    def _step(self, max_messages: int, came: _Came) -> int:
        """How many messages to ask for next; 0 when there are enough."""
        left = min(max_messages - came.wanted, _STEP, max(1, _GROWTH * (came.wanted + came.beyond)))
        if came.wanted:
            left = min(left, (self.max_bytes - came.size) * came.wanted // came.size)
        return 0 if self._is_past(came) else max(left, 0)

    def _chosen(self, max_messages: int) -> tuple[LockedMessage, ...]:
        chosen: list[LockedMessage] = []
        size = 0
        for message in filter(self._is_wanted, self.batch.messages):
            size += BatchMessage.of(message).size
            if len(chosen) == max_messages or (chosen and size > self.max_bytes):
                break
            chosen.append(message)
        return tuple(chosen)

    def _is_wanted(self, message: ReceivedMessage) -> bool:
        number = message.sequence_number
        return self.until is None or number <= self.until.get(partition_of(number), -1)

    def _is_past(self, came: _Came) -> bool:
        """Whether all that is wanted stands in front of what has come, because messages come in order."""
        if self.until is None:
            return False
        return came.beyond >= _STEP or (came.beyond > 0 and came.partitions >= self.until.keys())

    async def _release_beyond(self) -> None:
        beyond = [message for message in self.batch.messages if not self._is_wanted(message)]
        if beyond:
            await self.batch.settle(Release(), beyond)

    async def _is_more(self) -> bool:
        """Whether messages that are wanted are there still."""
        for partition, last in (self.until or {}).items():
            pages = self.entity.pages(
                from_sequence_number=max(partition << _PARTITION_SHIFT, 1),
                to_sequence_number=last,
                max_messages=1,
                state=MessageState.ACTIVE,
            )
            async for _ in pages:
                return True
        return False

    async def release(self, messages: Sequence[LockedMessage]) -> None:
        """Let go of messages that are held still."""
        await self.batch.settle(Release(), messages)

    # ---------------------------------------------------------------- deferring

    async def defer(self, messages: Sequence[LockedMessage]) -> list[int]:
        """Set messages aside; gives the numbers of those that are deferred now, for certain.

        The others come again by themselves: their lock was lost, or the service refused it.

        Raises:
            SbNotebookError: of some it cannot be made certain.
            ConfigurationError: the entity dead-letters what is deferred.
        """
        if self._is_tried or not messages:
            return self._told(messages, await self._deferred_of(messages))
        # One first, because an entity that dead-letters what is deferred would do that to all of them.
        deferred = await self._deferred_of(messages[:1])
        first = messages[0]
        is_gone = not (deferred or first.delivery_count or first.sequence_number in self.batch.lost)
        if is_gone and not await self._is_there(first):
            raise ConfigurationError(
                f"{self.entity.address} dead-letters messages at their first deferral, which counts as a delivery: "
                "set its maximum delivery count to 2 or more."
            )
        self._is_tried = True
        return self._told(messages, deferred | await self._deferred_of(messages[1:]))

    async def _deferred_of(self, messages: Sequence[LockedMessage]) -> set[int]:
        outcomes = await self._outcomes(messages)
        settled = {number for number, outcome in outcomes.items() if outcome.ok}
        doubtful = {number for number, outcome in outcomes.items() if outcome.status is OutcomeStatus.UNCONFIRMED}
        # A deferral counts as a delivery, and one too many moves a message to the dead-letter queue.
        delivered_before = {message.sequence_number for message in messages if message.delivery_count}
        at_risk = settled & (delivered_before | ({messages[0].sequence_number} if messages else set()))
        if doubtful:
            await anyio.sleep(_PAUSE)  # what was sent last may be on its way
        return (settled - at_risk) | await self._found_deferred(doubtful | at_risk)

    def _told(self, messages: Sequence[LockedMessage], deferred: set[int]) -> list[int]:
        missing = [message.sequence_number for message in messages if message.sequence_number not in deferred]
        if missing:
            _LOG.warning(
                "%d messages of %s (the first is #%d) could not be set aside and are not in this micro-batch: their "
                "locks were lost, and they come again, or they were delivered too often, and are dead-lettered.",
                len(missing),
                self.entity.address,
                missing[0],
            )
        return sorted(deferred)

    async def _outcomes(self, messages: Sequence[LockedMessage]) -> dict[int, Outcome]:
        outcomes: dict[int, Outcome] = {}
        todo, until = list(messages), anyio.current_time() + PATIENCE
        while todo:
            report = await self.batch.settle(Defer(), todo, max_in_flight=_IN_FLIGHT)
            outcomes |= {m.sequence_number: outcome for m, outcome in zip(todo, report, strict=True)}
            held = {message.lock_token for message in self.batch.messages}
            refused = [m for m in todo if m.lock_token in held and _is_refused(outcomes[m.sequence_number])]
            if refused:
                await self.release(refused)
            todo = [
                m
                for m in todo
                if m.lock_token in held and outcomes[m.sequence_number].status in _UNDECIDED and m not in refused
            ]
            if todo and anyio.current_time() > until:
                raise SbNotebookError(
                    f"Whether {len(todo):,} messages of {self.entity.address} are set aside is not known "
                    f"({outcomes[todo[0].sequence_number].description}): nothing of this micro-batch was read. Start "
                    "the stream again, which finds out."
                )
            await anyio.sleep(_PAUSE if todo else 0)
        return outcomes

    async def _found_deferred(self, numbers: set[int]) -> set[int]:
        pages = numbered_pages(self.entity, numbers, ())
        return {m.sequence_number async for page in pages for m in page if m.state is MessageState.DEFERRED}

    async def _is_there(self, message: LockedMessage) -> bool:
        return bool([page async for page in numbered_pages(self.entity, [message.sequence_number], ())])


def _is_refused(outcome: Outcome) -> bool:
    return outcome.status is OutcomeStatus.FAILED and not outcome.retryable
