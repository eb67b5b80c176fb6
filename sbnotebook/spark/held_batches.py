"""Micro-batches that stay locked until they are durable: ``mode=consume`` with ``delivery=at-least-once``.

A micro-batch goes through three steps:

1. ``latestOffset`` *locks* messages, and returns their sequence numbers as the offset.
2. Tasks *peek* all messages of the offset by their numbers. sbnotebook renews their locks meanwhile, so that no other
   receiver gets them. It locks the messages of the next offset at the same time.
3. ``latestOffset`` begins to *complete* them when they are durable, while Spark writes the next offset. Spark gets no
   tasks for that one before all are completed, so that a crash repeats messages of one micro-batch at most.

Why no message is lost: a message is completed only by the process that planned its micro-batch, and only after the
micro-batch is durable. Tasks read each message of an offset, or fail. A process that starts again plans the last offset
with the messages that the entity still holds.

When a message comes twice: a process ended after a micro-batch was durable, and before all of its messages were
completed; or a lock was lost, and another receiver got the message. A message whose lock was lost, and which comes back
to the same process, is completed without being read again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio

from sbnotebook.model import Complete, LockedMessage
from sbnotebook.settlement import AsyncEntity
from sbnotebook.spark.batch_locking import BatchLocker
from sbnotebook.spark.consume_offset import BatchMessage, ConsumeOffset
from sbnotebook.spark.micro_batches import Counts, report_loss, those_of

_LOG: Final = logging.getLogger(__name__)
_PAUSE: Final = 1.0
_MOST_DONE: Final = 200_000
"""Numbers of durable messages that are not completed. Those that are forgotten come twice if they come again."""


@dataclass(slots=True)
class HeldBatches(Counts):
    """The micro-batches of one entity: each is locked, read, and then completed; none is deferred."""

    entity: AsyncEntity
    locker: BatchLocker
    _next: tuple[ConsumeOffset, ConsumeOffset] | None = None
    """The start and the end of a micro-batch whose offset Spark has, and which it has not planned yet."""
    _planned: tuple[ConsumeOffset, tuple[int, ...]] | None = None
    _completing: asyncio.Task[None] | None = None
    """Completes the messages that are durable."""
    _ahead: asyncio.Task[None] | None = None
    """Locks messages for the micro-batch after the next one, when these are completed."""
    _done: dict[int, ConsumeOffset] = field(default_factory=dict[int, ConsumeOffset])
    """The offsets of messages that are durable, and which this process has not completed yet."""

    @property
    def held_count(self) -> int:
        """Return how many messages the stream has locked."""
        return len(self.locker.batch.messages)

    async def latest(self, start: ConsumeOffset, max_messages: int) -> ConsumeOffset:
        """Begin to complete the durable messages, and lock the next micro-batch."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            await ahead
        following, self._next = self._next, None
        if following is not None and following[0] == start:
            self._next = following
            return following[1]  # asked again
        if self._planned is not None and self._planned[0] == start:
            # A micro-batch that was not planned here was perhaps not read: Spark passes over one whose number the sink
            # has already. Its messages are still locked, or come again.
            self._done |= dict.fromkeys(self._planned[1], start)
            self._planned = None
        # Those that were locked ahead need nothing more, if they are a whole micro-batch.
        messages, is_whole = self.locker.chosen(max_messages, passing_over=self._is_done)
        if not is_whole:
            messages = await self._lock(max_messages)
            if not messages:
                return start
        self.locked += len(messages)
        end = start.next(map(BatchMessage.of, messages))
        self._next = start, end
        self._completing = asyncio.create_task(self._complete())
        self._ahead = asyncio.create_task(self._lock_ahead(self._completing, max_messages))
        return end

    async def _lock(self, max_messages: int) -> tuple[LockedMessage, ...]:
        """Lock messages, and complete those of them that are durable already."""
        while True:
            await self._complete()
            messages = await self.locker.lock(max_messages)
            if not any(map(self._is_done, messages)):
                return messages

    async def _lock_ahead(self, completing: asyncio.Task[None], max_messages: int) -> None:
        await _result(completing)
        await self.locker.lock_ahead(max_messages)

    async def _complete(self) -> None:
        done = [message for message in self.locker.batch.messages if self._is_done(message)]
        if done:
            outcomes = await self.locker.settle_until_known(Complete(), done)
            completed = [number for number, outcome in outcomes.items() if outcome.ok]
            for number in completed:
                del self._done[number]
            self.removed += len(completed)
            self._warn_of_others([number for number, outcome in outcomes.items() if not outcome.ok])
            self.locker.batch.table.forget_ended()
        for number in list(self._done)[:-_MOST_DONE]:
            del self._done[number]

    def _warn_of_others(self, numbers: Sequence[int]) -> None:
        if numbers:
            _LOG.warning(
                "%d messages of %s were read and could not be completed (the first is #%d): if another receiver has "
                "got them, they are processed twice.",
                len(numbers),
                self.entity.address,
                numbers[0],
            )

    def _is_done(self, message: LockedMessage) -> bool:
        offset = self._done.get(message.sequence_number)
        return offset is not None and offset.is_of(message)

    async def plan(self, end: ConsumeOffset) -> tuple[int, ...]:
        """Return the numbers of the messages of a micro-batch whose offset is in the checkpoint.

        When this returns, the messages of the micro-batch before are completed.
        """
        if self._completing is not None:
            await _result(self._completing)
        if self._planned is None or self._planned[0] != end:
            following, self._next = self._next, None
            is_ours = following is not None and following[1] == end
            self._planned = end, end.numbers if is_ours else await self._still_there(end)
        return self._planned[1]

    async def close(self) -> None:
        """Complete the durable messages, and lock no more."""
        if self._completing is not None:
            await asyncio.wait({self._completing})
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.cancel()
            await asyncio.gather(ahead, return_exceptions=True)

    async def _still_there(self, end: ConsumeOffset) -> tuple[int, ...]:
        """Return the messages of a micro-batch that another process has locked, as far as no receiver took them."""
        found = await those_of(self.entity, end)
        if len(found) < len(end.numbers):
            await anyio.sleep(_PAUSE)  # an empty answer may be wrong
            found |= await those_of(self.entity, end)
            report_loss(self.entity.address, set(end.numbers) - found.keys(), end.batch, fails=False)
        return tuple(sorted(found))


async def _result(task: asyncio.Task[None]) -> None:
    """Wait for a task, which continues if the caller is cancelled, and raise its error."""
    await asyncio.wait({task})
    task.result()
