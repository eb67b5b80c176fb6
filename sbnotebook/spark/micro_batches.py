"""Taking messages out of an entity, batch by batch, so that each batch can be read again until it is durable.

This is the asynchronous part of :class:`sbnotebook.spark.consume_stream.ConsumeStream`, in the one process that drives
its query. The order of the steps is explained there.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import anyio

from sbnotebook.errors import ConfigurationError, SbNotebookError
from sbnotebook.model import EntityAddress, MessageState, ReceivedMessage
from sbnotebook.settlement import AsyncEntity
from sbnotebook.spark.consume_offset import BatchMessage, ConsumeOffset
from sbnotebook.spark.peek_reader import peeked

if TYPE_CHECKING:
    from sbnotebook.settlement import DeferredDeleter
    from sbnotebook.spark.batch_locking import BatchLocker
    from sbnotebook.spark.session_batches import SessionLocker

_LOG: Final = logging.getLogger(__name__)
_PAUSE: Final = 1.0
_LOOKS: Final = 30
_PERHAPS_READ: Final = (
    "%d messages of %s that this stream adopted (one is #%d) are orphans again, because it ended before it removed "
    'them: your sink may have them or not. With .option("orphans", "adopt") they come again.'
)


@dataclass(frozen=True, slots=True)
class _Locked:
    """A micro-batch whose offset Spark has, and which it has not planned yet."""

    start: ConsumeOffset
    end: ConsumeOffset
    messages: tuple[ReceivedMessage, ...]
    adopted: list[BatchMessage]


@dataclass(slots=True, kw_only=True)
class Counts:
    """The messages of a query so far."""

    locked: int = 0
    """Messages that this process has locked for micro-batches."""
    deferred: int = 0
    """Messages that this process has deferred."""
    removed: int = 0
    """Messages that this process has removed."""
    orphans: dict[int, BatchMessage] = field(default_factory=dict[int, BatchMessage])
    """Messages that were deferred before, for the next micro-batches."""


@dataclass(slots=True)
class MicroBatches(Counts):
    """The micro-batches of one entity: each is locked, deferred, read, and then removed."""

    entity: AsyncEntity
    locker: BatchLocker | SessionLocker
    deleter: DeferredDeleter | SessionLocker
    fails_on_data_loss: bool = True
    _locked: _Locked | None = None
    _planned: tuple[ConsumeOffset, tuple[int, ...]] | None = None
    _removed: ConsumeOffset | None = None

    @property
    def held_count(self) -> int:
        """Return how many messages the stream has locked or deferred, and not removed yet."""
        planned = len(self._planned[1]) if self._planned and self._planned[0] != self._removed else 0
        return planned + self.locker.held_count

    async def latest(self, start: ConsumeOffset, max_messages: int) -> ConsumeOffset:
        """Remove the messages up to ``start``, which are durable; lock the next ones, and return their offset."""
        locked = self._locked
        if locked is not None and locked.start == start:
            return locked.end  # asked again
        # Find the messages that come again.
        self._locked = None
        if locked is not None and locked.end == start:
            # Spark counts it as done and never planned it. A sink does this that has the number of a micro-batch from
            # an earlier checkpoint. It was not read: its messages are still locked, and come again.
            self._planned, self._removed, again = None, start, locked.adopted
        else:
            again = await self._deferred_late(start)
        self.orphans = {message.number: message for message in again} | self.orphans
        # Make the next micro-batch of deferred messages that are adopted, or else of messages that are locked now.
        adopted = self._adopt(max_messages)
        messages = await self._remove_and_lock(start, 0 if adopted else max_messages)
        if not (adopted or messages or self._left_behind(start)):
            return start
        self.locked += len(messages)
        end = start.next([*adopted, *map(BatchMessage.of, messages)], are_adopted=bool(adopted))
        self._locked = _Locked(start, end, messages, adopted)
        return end

    def _left_behind(self, start: ConsumeOffset) -> set[int]:
        """Return the numbers of an offset whose messages were not deferred, and so not read, when it was planned here.

        As long as that offset is the last one, a process that starts later would believe that messages deferred under
        these numbers were read. So another offset follows, if need be that of an empty micro-batch.
        """
        if self._planned is None or self._planned[0] != start or len(self._planned[1]) == len(start.numbers):
            return set()
        return set(start.numbers).difference(self._planned[1])

    async def _deferred_late(self, start: ConsumeOffset) -> list[BatchMessage]:
        """Return those left behind that another process, which was not dead yet, has deferred since."""
        found = await peeked(self.entity, self._left_behind(start))
        return [BatchMessage.of(message) for message in found if message.state is MessageState.DEFERRED]

    async def _remove_and_lock(self, start: ConsumeOffset, max_messages: int) -> tuple[ReceivedMessage, ...]:
        """Do both at once; when this returns, nothing of the last micro-batch is left, for certain."""
        errors: list[Exception] = []
        messages: tuple[ReceivedMessage, ...] = ()

        async def remove() -> None:
            try:
                await self._remove(start)
            except Exception as error:  # noqa: BLE001 (raised below, and not in a group)
                errors.append(error)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(remove)
            if max_messages:
                messages = await self.locker.lock(max_messages)
        if errors:
            raise errors[0]
        return messages

    async def plan(self, end: ConsumeOffset) -> tuple[int, ...]:
        """Defer the messages of a micro-batch whose offset is in the checkpoint; return their numbers."""
        if self._planned is None or self._planned[0] != end:
            locked, self._locked = self._locked, None
            if locked is not None and locked.end == end and locked.messages:
                numbers = await self.locker.defer(locked.messages)
                self.deferred += len(numbers)
            else:
                is_adopted = locked is not None and locked.end == end
                numbers = await self._still_deferred(end, fails=self.fails_on_data_loss and not is_adopted)
            self._planned = end, tuple(numbers)
        return self._planned[1]

    async def _still_deferred(self, end: ConsumeOffset, *, fails: bool) -> list[int]:
        """Return the messages of a micro-batch that are deferred, where this process did not defer them."""
        states = await those_of(self.entity, end)
        for _ in range(_LOOKS):
            if all(state is MessageState.DEFERRED for state in states.values()):
                break
            await anyio.sleep(_PAUSE)  # the last deferrals of a process that was ended may still arrive
            before, states = states, await those_of(self.entity, end)
            if states == before:
                break
        deferred = await self.locker.those_deferred(states)
        absent = set(end.numbers) - states.keys()
        # Where none is deferred and some are active, the stream ended before it deferred any, and nothing was read.
        fails = fails and bool(deferred or not states)
        report_loss(self.entity.address, absent, end.batch, fails=fails)
        if len(deferred) < len(states):
            _LOG.warning(
                "%d messages of micro-batch %d were not deferred before the stream ended: they come again later.",
                len(states) - len(deferred),
                end.batch,
            )
        return deferred

    async def _remove(self, start: ConsumeOffset) -> None:
        if start == self._removed:
            return
        if self._planned is not None and self._planned[0] == start:
            numbers: Sequence[int] = self._planned[1]
        else:
            states = await those_of(self.entity, start)
            numbers = [number for number, state in states.items() if state is MessageState.DEFERRED]
            if start.is_adopted and numbers:
                # Perhaps no process has read them: a sink may pass over a micro-batch, and then nothing is planned.
                _LOG.warning(_PERHAPS_READ, len(numbers), self.entity.address, numbers[0])
                numbers = ()
        await self.deleter.delete(numbers)
        self.removed += len(numbers)
        self._removed = start

    def _adopt(self, max_messages: int) -> list[BatchMessage]:
        adopted: list[BatchMessage] = []
        size = 0
        for message in self.orphans.values():
            size += message.size
            if len(adopted) == max_messages or (adopted and size > self.locker.max_bytes):
                break
            adopted.append(message)
        for message in adopted:
            del self.orphans[message.number]
        return adopted


async def those_of(entity: AsyncEntity, offset: ConsumeOffset) -> dict[int, MessageState]:
    """Return the messages of an offset that are in the entity: their numbers and states."""
    found = await peeked(entity, offset.numbers)
    for message in found:
        if not offset.is_of(message):
            raise ConfigurationError(
                f"The checkpoint is not that of {entity.address} as it is now: #{message.sequence_number} came at "
                "another time, so the entity was made anew, or is in another namespace. Start with a new "
                "checkpointLocation."
            )
    return {message.sequence_number: message.state for message in found}


def report_loss(entity: EntityAddress, numbers: Collection[int], batch: int, *, fails: bool) -> None:
    """Raise or warn because messages of a micro-batch are gone; do nothing for no messages."""
    if not numbers:
        return
    text = (
        f"{len(numbers):,} messages of {entity} that belong to micro-batch {batch} are not there any more (the first "
        f"is #{min(numbers)}): they have expired, were dead-lettered, or something else has removed them."
    )
    if fails:
        raise SbNotebookError(
            f'{text} To continue without them, start the stream with .option("failOnDataLoss", "false").'
        )
    _LOG.warning("%s The stream continues without them.", text)
