"""Taking messages out of an entity, batch by batch, so that each batch can be read again until it is durable.

The work of :class:`sbnotebook.spark.consume_stream.ConsumeStream`, asynchronously, in the one process that drives its
query. Why each step is where it is stands there.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import anyio

from sbnotebook.errors import ConfigurationError, SbNotebookError
from sbnotebook.model import LockedMessage, MessageState, PeekedMessage, ReceivedMessage
from sbnotebook.settlement import AsyncEntity
from sbnotebook.settlement.deferring.deleting import DeferredDeleter
from sbnotebook.spark.consume_offset import ConsumeOffset
from sbnotebook.spark.intake import Intake, size_of
from sbnotebook.spark.numbered_pages import numbered_pages

__all__ = ["Consuming"]

_LOG: Final = logging.getLogger(__name__)
_PAUSE: Final = 1.0


@dataclass(frozen=True, slots=True)
class _Locked:
    """A micro-batch whose offset was given to Spark, and whose messages are locked and not deferred yet."""

    start: ConsumeOffset
    end: ConsumeOffset
    messages: tuple[LockedMessage, ...]


@dataclass(slots=True)
class Consuming:
    """One entity from which micro-batches are taken.

    Args:
        entity: which one.
        intake: locks its messages.
        deleter: removes them.
        fails_on_data_loss: whether messages that are not there any more are an error.
    """

    entity: AsyncEntity
    intake: Intake
    deleter: DeferredDeleter
    fails_on_data_loss: bool = True
    orphans: dict[int, PeekedMessage] = field(default_factory=dict[int, PeekedMessage])
    """Messages that were deferred before, to be taken into the next micro-batches."""
    _locked: _Locked | None = None
    _planned: tuple[ConsumeOffset, tuple[int, ...]] | None = None
    _removed: ConsumeOffset | None = None

    @property
    def in_hand(self) -> int:
        """Messages that are locked for the stream, or deferred by it, and not removed yet."""
        planned = len(self._planned[1]) if self._planned and self._planned[0] != self._removed else 0
        return planned + len(self.intake.batch.messages)

    async def latest(self, start: ConsumeOffset, max_messages: int) -> ConsumeOffset:
        """Remove what is durable, and lock the next micro-batch.

        Args:
            start: everything up to here is durable.
            max_messages: of the next micro-batch.

        Returns:
            Its offset; start, when there are no messages.
        """
        locked = self._locked
        if locked is not None and locked.start == start:
            return locked.end  # asked again
        self._locked = None
        await self._remove(start)
        taken = self._adopt(max_messages) or await self.intake.lock(max_messages)
        if not taken:
            return start
        times = (time for message in taken if (time := _enqueued(message)) is not None)
        end = start.next((message.sequence_number for message in taken), times)
        messages = tuple(message for message in taken if isinstance(message, LockedMessage))
        self._locked = _Locked(start, end, messages)
        return end

    async def plan(self, end: ConsumeOffset) -> tuple[int, ...]:
        """The numbers of a micro-batch whose offset is in the checkpoint; from now on they are deferred.

        Raises:
            SbNotebookError: some of them are not there any more, or it is not certain that they are deferred.
        """
        if self._planned is None or self._planned[0] != end:
            numbers = await self._set_aside(end)
            self._planned, self._locked = (end, tuple(numbers)), None
        return self._planned[1]

    async def _set_aside(self, end: ConsumeOffset) -> list[int]:
        locked = self._locked
        if locked is None or locked.end != end:
            return await self._still_deferred(end)
        adopted = set(end.numbers) - {message.sequence_number for message in locked.messages}
        there = await self._still_deferred(end, adopted) if adopted else []
        return sorted(there + await self.intake.defer(locked.messages))

    # ---------------------------------------------------------------- what another process began

    async def _still_deferred(self, end: ConsumeOffset, numbers: Iterable[int] | None = None) -> list[int]:
        """Which messages of a micro-batch are deferred, where this process did not do it."""
        wanted = set(end.numbers if numbers is None else numbers)
        states = await self._states(end, wanted)
        if any(state is not MessageState.DEFERRED for state in states.values()):
            await anyio.sleep(_PAUSE)  # what a process that was killed has sent last may be on its way
            states = await self._states(end, wanted)
        deferred = [number for number, state in states.items() if state is MessageState.DEFERRED]
        absent = wanted - states.keys()
        if absent:
            self._tell_loss(absent)
        if len(deferred) + len(absent) < len(wanted):
            _LOG.info("The last process did not set aside all of micro-batch %d: the rest comes again.", end.batch)
        return sorted(deferred)

    async def _states(self, offset: ConsumeOffset, numbers: Iterable[int]) -> dict[int, MessageState]:
        states: dict[int, MessageState] = {}
        async for page in numbered_pages(self.entity, numbers):
            for message in page:
                self._check_same(offset, message)
                states[message.sequence_number] = message.state
        return states

    def _check_same(self, offset: ConsumeOffset, message: PeekedMessage) -> None:
        time = _enqueued(message)
        if offset.enqueued is None or time is None or offset.enqueued[0] <= time <= offset.enqueued[1]:
            return
        raise ConfigurationError(
            f"The checkpoint is not that of {self.entity.address} as it is now: #{message.sequence_number} came at "
            "another time, so the entity was made anew or is in another namespace. Start with a new checkpointLocation."
        )

    def _tell_loss(self, absent: set[int]) -> None:
        text = (
            f"{len(absent):,} messages of {self.entity.address} that belong to a micro-batch are not there any more "
            f"(the first is #{min(absent)}): they have expired, or something else has removed them."
        )
        if self.fails_on_data_loss:
            raise SbNotebookError(
                f'{text} To go on without them, start the stream with .option("failOnDataLoss", "false").'
            )
        _LOG.warning("%s The stream goes on without them.", text)

    # ---------------------------------------------------------------- removing, adopting

    async def _remove(self, start: ConsumeOffset) -> None:
        if start == self._removed or not start.numbers:
            return
        if self._planned is not None and self._planned[0] == start:
            numbers: Iterable[int] = self._planned[1]
        else:
            states = await self._states(start, start.numbers)
            numbers = [number for number, state in states.items() if state is MessageState.DEFERRED]
        await self.deleter.delete(numbers)
        self._removed = start

    def _adopt(self, max_messages: int) -> list[PeekedMessage]:
        adopted: list[PeekedMessage] = []
        size = 0
        for message in self.orphans.values():
            size += size_of(message)
            if len(adopted) == max_messages or (adopted and size > self.intake.max_bytes):
                break
            adopted.append(message)
        for message in adopted:
            del self.orphans[message.sequence_number]
        return adopted


def _enqueued(message: ReceivedMessage) -> int | None:
    time = message.enqueued_time
    return None if time is None else _millis(time)


def _millis(time: datetime) -> int:
    return round(time.timestamp() * 1000)
