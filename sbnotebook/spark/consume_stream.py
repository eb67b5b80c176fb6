"""Consuming an entity as a stream: each message once, from end to end, where the sink takes each micro-batch once."""

from __future__ import annotations

import contextlib
import logging
import signal
import threading
from collections.abc import Generator, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from sbnotebook.client.keeper import Keeper
from sbnotebook.client.portal import portal, run
from sbnotebook.errors import ConfigurationError, SbNotebookError
from sbnotebook.model import MessageState
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.deferring.deleting import DeferredDeleter
from sbnotebook.spark.consume_offset import ConsumeOffset, ranges_of
from sbnotebook.spark.consuming import Consuming
from sbnotebook.spark.intake import Intake
from sbnotebook.spark.numbered_pages import numbered_pages
from sbnotebook.spark.options import Orphans, StreamOptions
from sbnotebook.spark.orphan_scan import find_orphans, report_orphans
from sbnotebook.spark.schema import MessageBatches
from sbnotebook.spark.scrubbing import scrubbed
from sbnotebook.spark.sequence_ranges import last_numbers, next_number_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["ConsumeStream", "DeferredMessages"]

_LOG: Final = logging.getLogger(__name__)
_MAX_BYTES: Final = 256 << 20
"""Bytes of a micro-batch where nothing is said: they are in memory until they are set aside."""
_RENEW_FOR: Final = timedelta(days=3650)
_CLOSE_WITHIN: Final = 5.0


@dataclass
class DeferredMessages(InputPartition):
    """The messages that one task reads.

    Args:
        ranges: of their sequence numbers, both ends included.
        batch: the micro-batch.
    """

    ranges: list[tuple[int, int]]
    batch: int


@dataclass(slots=True)
class _Life:
    """What is open in the process that drives the query."""

    namespace: AsyncNamespace
    keeper: Keeper
    consuming: Consuming
    ours: set[int] = field(default_factory=set[int])
    is_begun: bool = False
    scan: Future[int] | None = None


class ConsumeStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """To be documented."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._life: _Life | None = None
        MessageBatches(schema)  # refuses it here, not in each worker

    # ---------------------------------------------------------------- where the query is driven

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """Where a new stream begins: with no messages."""
        return ConsumeOffset(self._options.entity).as_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        """How many messages a micro-batch has at most."""
        return ReadMaxRows(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """Take what is there now, and nothing that comes later."""
        with self._scrubbed():
            consuming = self._opened().consuming
            consuming.intake.until = run(last_numbers, next_number_of(consuming.entity))

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """Remove the messages up to ``start``, which are durable, and lock the next micro-batch.

        Args:
            start: the offset up to which everything is durable.
            limit: how many messages at most.

        Returns:
            The offset of the next micro-batch, or ``start`` when there are no messages.
        """
        with self._scrubbed():
            before = ConsumeOffset.parse(start, self._options.entity)
            count = self._limit(limit)
            life = self._opened()
            life.ours.update(before.numbers)
            self._begin(life)
            latest = run(life.consuming.latest, before, count)
            if life.scan is not None:
                life.ours.update(latest.numbers)
            return latest.as_dict()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[DeferredMessages]:  # noqa: ARG002  # pyright: ignore[reportIncompatibleMethodOverride]
        """Set the messages of a micro-batch aside, whose offset is in the checkpoint now, and divide them among tasks.

        Args:
            start: where it begins.
            end: its offset.
        """
        with self._scrubbed():
            offset = ConsumeOffset.parse(end, self._options.entity)
            life = self._opened()
            life.ours.update(offset.numbers)
            numbers = run(life.consuming.plan, offset)
        count = max(1, min(self._options.partitions, len(numbers)))
        cuts = [len(numbers) * part // count for part in range(count + 1)]
        return [DeferredMessages(ranges_of(numbers[first:last]), offset.batch) for first, last in pairwise(cuts)]

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: Spark says this late or never, and :meth:`latestOffset` has done it by then."""

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802 (Spark's name)
        """What the query's progress shows as the source's latest offset."""
        return None

    def stop(self) -> None:
        """Give back what is locked and not set aside."""
        life, self._life = self._life, None
        if life is not None:
            with contextlib.suppress(Exception):  # its locks end by themselves
                if life.scan is not None:
                    life.scan.cancel()
                life.keeper.close(_CLOSE_WITHIN)
                portal().start_task_soon(_close, life).result(_CLOSE_WITHIN)

    def _opened(self) -> _Life:
        if self._life is None:
            options = self._options
            namespace = AsyncNamespace(options.namespace.connection(), archive=None)
            entity = namespace.entity(options.entity)
            batch = entity.batch(renew_for=_RENEW_FOR, recorded=False)
            keeper = Keeper(batch)
            intake = Intake(entity, batch, options.max_bytes or _MAX_BYTES)
            deleter = DeferredDeleter(namespace.connection, options.entity)
            self._life = _Life(
                namespace, keeper, Consuming(entity, intake, deleter, fails_on_data_loss=options.fail_on_data_loss)
            )
            _stop_at_sigterm()
        return self._life

    def _begin(self, life: _Life) -> None:
        if life.is_begun:
            return
        life.is_begun = True
        entity = life.consuming.entity
        if self._options.orphans is Orphans.REPORT:
            life.scan = portal().start_task_soon(report_orphans, entity, life.ours)
        elif self._options.orphans is Orphans.ADOPT:
            life.consuming.orphans |= run(find_orphans, entity, life.ours)

    def _limit(self, limit: ReadLimit) -> int:
        if isinstance(limit, ReadAllAvailable):
            raise ConfigurationError(
                "A stream with mode=consume cannot end after one micro-batch (trigger once), because its messages "
                "would not be removed: use trigger(availableNow=True)."
            )
        most = self._options.max_messages
        return min(most, limit.max_rows) if isinstance(limit, ReadMaxRows) else most

    # ---------------------------------------------------------------- in the workers

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Peek the messages of one partition, the same again for a repeated task or a second action.

        Raises:
            SbNotebookError: some of them are not deferred there any more.
        """
        options, batches = self._options, MessageBatches(self._schema)
        numbers = [number for first, last in partition.ranges for number in range(first, last + 1)]
        count = 0
        with self._scrubbed():
            namespace = AsyncNamespace(options.namespace.connection(), archive=None)
            try:
                pages = numbered_pages(namespace.entity(options.entity), numbers)
                while page := run(anext, pages, None):
                    there = [message for message in page if message.state is MessageState.DEFERRED]
                    count += len(there)
                    if there:
                        yield batches.of(there)
            finally:
                run(namespace.close)
            if count < len(numbers):
                self._tell_loss(len(numbers) - count, partition.batch)

    def _tell_loss(self, count: int, batch: int) -> None:
        text = (
            f"{count:,} messages of {self._options.entity} that belong to micro-batch {batch} are not there any more: "
            "they have expired, or something else has removed them."
        )
        if self._options.fail_on_data_loss:
            raise SbNotebookError(
                f'{text} To go on without them, start the stream with .option("failOnDataLoss", "false").'
            )
        _LOG.warning("%s The stream goes on without them.", text)

    @contextmanager
    def _scrubbed(self) -> Generator[None]:
        with scrubbed(self._options.namespace.secrets):
            yield


async def _close(life: _Life) -> None:
    await life.consuming.deleter.close()
    await life.namespace.close()


def _stop_at_sigterm() -> None:
    """Have :meth:`ConsumeStream.stop` called when Spark ends the process, which it does by this signal."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _exit)


def _exit(*_: object) -> NoReturn:
    raise SystemExit(0)
