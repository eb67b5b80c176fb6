"""Streaming an entity by peeking onward: nothing is locked, and nothing is removed."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from sbnotebook.client.portal import run
from sbnotebook.client.scrubbing import scrubbed
from sbnotebook.settlement import AsyncEntity, AsyncNamespace
from sbnotebook.settlement.patience import PATIENCE
from sbnotebook.spark.admission import Room, admit
from sbnotebook.spark.browse_offset import BrowseOffset
from sbnotebook.spark.options import StreamOptions
from sbnotebook.spark.range_reader import read_ranges
from sbnotebook.spark.schema import MessageBatches
from sbnotebook.spark.sequence_ranges import SequenceRange, divide, last_numbers, next_number_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["BrowseStream", "RangesOfTask"]

_LOG: Final = logging.getLogger(__name__)
_ORDER_OF_DEATH: Final = (
    "Messages keep their numbers in %s, which they come to in any order: one that comes there behind another with a "
    "larger number is not a row of this stream. Use mode=consume, or read it as a batch."
)
_IDLE: Final = 0.5
"""Seconds to wait where nothing has come: Spark asks again at once, and the service counts each question."""


@dataclass
class RangesOfTask(InputPartition):
    """The sequence numbers that one task peeks.

    Args:
        ranges: one behind the other.
    """

    ranges: list[SequenceRange]


class BrowseStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Gives each message that comes once, with nothing consumed, so that others can read and settle them, too.

    A micro-batch that is read again, by a repeated task, a second action or after a restart, asks for the same
    sequence numbers: messages that somebody has removed in the meantime are missing then. What was removed before the
    stream came to it is never seen, and a message that changes its state later is not seen a second time. In a
    dead-letter queue messages have the numbers that they had in its entity, and come in any order: those that come
    later with a smaller number than the last are not seen, which is logged as a warning where a stream begins.

    It is pickled and sent to the workers, so it holds no connection until the driver asks it for an offset.

    Args:
        options: what is streamed, and how much at once.
        schema: the message columns that are wanted.

    Raises:
        ConfigurationError: the schema has other columns than messages have.

    Example:
        >>> letters = spark.readStream.format("servicebus").options(entity="orders/$dlq", target="emulator").load()
        ... # doctest: +SKIP
    """

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        MessageBatches(schema)  # refuses it here, not in each worker
        self._namespace: AsyncNamespace | None = None
        self._until: Mapping[int, int] | None = None
        self._latest: BrowseOffset | None = None
        self._has_news = True

    # ---------------------------------------------------------------- where the query is driven

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """Where a new stream begins: before all messages, at a number, or behind what there is now."""
        options = self._options
        if options.entity.sub_queue is not None:
            _LOG.warning(_ORDER_OF_DEATH, options.entity)
        if options.from_sequence_number is not None:
            return BrowseOffset(options.entity, options.from_sequence_number).as_dict()
        with scrubbed(options.namespace.secrets):
            return BrowseOffset(options.entity, read=run(last_numbers, next_number_of(self._entity()))).as_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        """How many messages a micro-batch has at most."""
        return ReadMaxRows(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """Read what is there now, and nothing that comes later."""
        with scrubbed(self._options.namespace.secrets):
            self._until = run(last_numbers, next_number_of(self._entity()))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """Where the next micro-batch ends.

        Args:
            start: where it begins.
            limit: how many messages at most.

        Returns:
            The offset, equal to ``start`` when there are no messages.
        """
        with scrubbed(self._options.namespace.secrets):
            before = BrowseOffset.parse(start, self._options.entity)
            after = before.reading(run(self._reached, before, limit))
        self._has_news = after != before
        self._latest = after
        if not self._has_news and self._until is None:
            time.sleep(_IDLE)
        return after.as_dict()

    async def _reached(self, before: BrowseOffset, limit: ReadLimit) -> Mapping[int, int]:
        entity = self._entity()
        # What cannot be reached at first is told at once; a service that restarts later is waited for.
        patience = 0.0 if self._latest is None else PATIENCE
        if isinstance(limit, ReadAllAvailable):
            return await self._last_numbers(before, patience)
        rows = limit.max_rows if isinstance(limit, ReadMaxRows) else self._options.max_messages
        room = Room(rows, self._options.max_bytes)
        return await admit(entity, before.read, room, first=before.first, until=self._until, patience=patience)

    async def _last_numbers(self, before: BrowseOffset, patience: float) -> Mapping[int, int]:
        ask = next_number_of(self._entity(), patience)
        return await last_numbers(lambda number: ask(max(number, before.first)), before.read)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 (Spark's name)
        """The last messages that there are, for the query's progress: what is behind its offset is the backlog."""
        latest = self._latest
        if latest is None or not self._has_news:
            return None if latest is None else latest.as_dict()
        with scrubbed(self._options.namespace.secrets):
            return latest.reading(run(self._last_numbers, latest, PATIENCE)).as_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[RangesOfTask]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Divide the numbers of a micro-batch among tasks.

        Args:
            start: where it begins.
            end: where it ends.
        """
        with scrubbed(self._options.namespace.secrets):
            entity = self._options.entity
            spans = BrowseOffset.parse(start, entity).spans_to(BrowseOffset.parse(end, entity))
            return [RangesOfTask(ranges) for ranges in divide(spans, self._options.partitions)]

    def stop(self) -> None:
        """Close the connection."""
        namespace, self._namespace = self._namespace, None
        if namespace is not None:
            with contextlib.suppress(Exception):  # the process ends
                run(namespace.close)

    def _entity(self) -> AsyncEntity:
        if self._namespace is None:
            self._namespace = AsyncNamespace(self._options.namespace.connection(), archive=None)
        return self._namespace.entity(self._options.entity)

    # ---------------------------------------------------------------- in the workers

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Peek the messages of one partition."""
        options = self._options
        with scrubbed(options.namespace.secrets):
            yield from read_ranges(
                options.namespace,
                options.entity,
                partition.ranges,
                MessageBatches(self._schema),
                state=options.state,
                patience=PATIENCE,
            )
