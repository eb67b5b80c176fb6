"""MicroBatches an entity as a stream: each message once, from end to end, where the sink takes each micro-batch once.

Spark writes the offset of a micro-batch to its checkpoint, reads the micro-batch as often as it needs to, and writes to
the checkpoint that it is done. So that all reads give the same messages, a micro-batch goes through four steps:

1. ``latestOffset`` *locks* messages and gives their sequence numbers as the offset. Whoever is killed here leaves
   nothing behind: the locks end by themselves, and the messages come again.
2. Spark writes the offset. Then ``partitions`` *defers* these messages, and plans to read those of which that is
   confirmed. Only now are they set aside, so no message is set aside that no checkpoint knows.
3. ``read`` *peeks* the deferred messages by their numbers, in any task, as often as Spark likes. Nobody else receives
   them meanwhile, because a deferred message is given only to who asks for it by its number.
4. ``latestOffset`` of the next micro-batch comes when this one is durable, and *removes* it before it locks another.
   Spark calls ``commit`` late or never, so nothing is left to do there.

Why the same messages are read after any crash: tasks run only after ``partitions`` has returned, and then each message
of the offset is either deferred, for certain, or it is not part of the micro-batch and its lock is gone. A process that
starts again asks for the same offset and finds the first by peeking; the others are active, and come again in a later
micro-batch, with an offset of their own. Whoever was killed within ``partitions`` has read nothing, so that any part of
the messages may be the micro-batch. A deferral that had no answer is repeated, and then looked at, until it is known;
when that takes longer than a minute the query ends before it has read anything.

Why nothing is removed that was not read: the process that planned a micro-batch removes the numbers that it planned.
Where it did not plan it at all, because the sink passed over its number, nothing is removed, and the messages come
again. A process that starts later removes what is deferred under the numbers of the last offset. These were read,
unless all of this comes together: a message was not set aside when the micro-batch was planned, the query ended before
it wrote the next offset (which follows at once then, without messages if there are none), and another program, or a
process that should have been dead, deferred that message meanwhile. So nobody else should defer messages of an entity
that is consumed as a stream. The offset has the times of its messages, so that the checkpoint of one entity never
removes from another.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from sbnotebook.client.scrubbing import scrubbed
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import MessageState
from sbnotebook.spark.consume_offset import ConsumeOffset, ranges_of
from sbnotebook.spark.consume_query import ConsumeQuery
from sbnotebook.spark.micro_batches import report_loss
from sbnotebook.spark.numbered_pages import numbered_pages
from sbnotebook.spark.options import StreamOptions
from sbnotebook.spark.peek_reader import prefetched
from sbnotebook.spark.schema import MessageBatches
from sbnotebook.spark.task_context import warm_namespace

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["ConsumeStream", "DeferredMessages"]


@dataclass
class DeferredMessages(InputPartition):
    """The messages that one task reads.

    Args:
        batch: the micro-batch, as the offset counts it.
        ranges: of their sequence numbers, both ends included.
    """

    batch: int
    ranges: list[tuple[int, int]]

    @property
    def numbers(self) -> list[int]:
        """Their sequence numbers."""
        return [number for first, last in self.ranges for number in range(first, last + 1)]


class ConsumeStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Takes messages out of an entity, each exactly once: ``readStream`` with ``mode=consume``.

    It is pickled and sent to the workers, which call :meth:`read` only. The other methods are called in one process
    for each query, which opens its connections at the first call and keeps them.

    Args:
        options: what is consumed, and how much at once.
        schema: the message columns that are wanted.

    Raises:
        ConfigurationError: the schema has other columns than messages have.
    """

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._batches = MessageBatches(schema)
        self._query: ConsumeQuery | None = None

    # ---------------------------------------------------------------- in the process that drives the query

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """Where a new stream begins: with no messages."""
        return ConsumeOffset(self._options.entity).as_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        """How many messages a micro-batch has at most; the bytes are counted here."""
        return ReadMaxRows(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """Take what is there now, and nothing that comes later."""
        with self._scrubbed():
            self._opened().take_only_what_is_there()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """Remove the messages of ``start``, which are durable, and lock those of the next micro-batch.

        Args:
            start: the offset up to which everything is durable.
            limit: how many messages at most.

        Returns:
            The offset of the next micro-batch, or ``start`` when there are no messages.

        Raises:
            ConfigurationError: the trigger is once, the entity has sessions, or the checkpoint is not this stream's.
            SbNotebookError: the service does not answer, or refuses it.
        """
        with self._scrubbed():
            if isinstance(limit, ReadAllAvailable):
                raise ConfigurationError(
                    "A stream with mode=consume cannot end after one micro-batch (trigger once), because its messages "
                    "would not be removed: use trigger(availableNow=True)."
                )
            most = self._options.max_messages
            most = min(most, limit.max_rows) if isinstance(limit, ReadMaxRows) else most
            offset = self._offset(start)
            return self._opened().latest(offset, most).as_dict()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 (Spark's name)
        """What the query's progress shows as the latest offset of the source.

        Returns:
            ``backlog``, the messages that wait behind the micro-batch, where the connection may ask for that (right
            Manage), and ``orphans``, the deferred messages that belong to nobody, if there are any.
        """
        with self._scrubbed():
            return None if self._query is None else self._query.progress()

    def partitions(
        self,
        start: dict[str, Any],  # noqa: ARG002 (the offset tells all)
        end: dict[str, Any],
    ) -> list[DeferredMessages]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Set the messages of a micro-batch aside, whose offset is in the checkpoint now, and divide them among tasks.

        Args:
            start: where it begins.
            end: its offset; it may be one that another process has given.

        Raises:
            SbNotebookError: some of them are not there any more, or it is not certain that they are set aside.
        """
        with self._scrubbed():
            offset = self._offset(end)
            numbers = self._opened().plan(offset)
        count = max(1, min(self._options.partitions, len(numbers)))
        cuts = [len(numbers) * part // count for part in range(count + 1)]
        return [DeferredMessages(offset.batch, ranges_of(numbers[first:last])) for first, last in pairwise(cuts)]

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: Spark says this late or never, and :meth:`latestOffset` has removed the messages by then."""

    def stop(self) -> None:
        """Give back what is locked and not set aside, without raising a delivery count."""
        life, self._query = self._query, None
        if life is not None:
            life.close()

    def _offset(self, given: dict[str, Any]) -> ConsumeOffset:
        return ConsumeOffset.parse(given, self._options.entity)

    def _opened(self) -> ConsumeQuery:
        if self._query is None:
            self._query = ConsumeQuery(self._options)
            _stop_at_sigterm()
        return self._query

    # ---------------------------------------------------------------- in the workers

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Peek the messages of one partition, the same again for a repeated task or a second action.

        Args:
            partition: one of :meth:`partitions`.

        Raises:
            SbNotebookError: some of them are not there any more.
        """
        options, numbers = self._options, partition.numbers
        missing = set(numbers)
        with self._scrubbed():
            with warm_namespace(options.namespace) as namespace:
                pages = numbered_pages(namespace.entity(options.entity), numbers, self._batches.sections)
                with closing(prefetched(pages)) as read:
                    for page in read:
                        there = [message for message in page if message.state is MessageState.DEFERRED]
                        missing.difference_update(message.sequence_number for message in there)
                        if there:
                            yield self._batches.of(there)
            if missing:
                report_loss(options.entity, missing, partition.batch, fails=options.fail_on_data_loss)

    @contextmanager
    def _scrubbed(self) -> Generator[None]:
        with scrubbed(self._options.namespace.secrets):
            yield


def _stop_at_sigterm() -> None:
    """Have :meth:`ConsumeStream.stop` called when Spark ends the process, which it does by this signal."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _exit)


def _exit(*_: object) -> NoReturn:
    raise SystemExit(0)
