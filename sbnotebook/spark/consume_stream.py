"""Consuming an entity as a stream: each message once, from end to end, where the sink takes each micro-batch once.

Spark writes the offset of a micro-batch to its checkpoint, reads the micro-batch as often as it needs to, and writes to
the checkpoint that it is done. So that all reads give the same messages, a micro-batch goes through four steps:

1. ``latestOffset`` *locks* messages and returns their sequence numbers as the offset. A process that is killed here
   leaves nothing behind: the locks expire, and the messages come again.
2. Spark writes the offset. Then ``partitions`` *defers* these messages, and plans to read those whose deferral is
   confirmed. So every deferred message is in a checkpoint.
3. ``read`` *peeks* the deferred messages by their numbers, in any task, as often as Spark likes. No other receiver gets
   them meanwhile, because Service Bus hands out a deferred message only by its number.
4. Spark calls ``latestOffset`` for the next micro-batch when this one is durable. It *removes* this one before it locks
   another. Spark calls ``commit`` late or never, so ``commit`` does nothing.

Why the same messages are read after any crash: tasks run only after ``partitions`` has returned. By then each message
of the offset is either deferred, for certain, or it is not part of the micro-batch and its lock is gone. A process that
starts again asks for the same offset and finds the deferred messages by peeking. The others are active, and come again
in a later micro-batch, with an offset of their own. A process that was killed within ``partitions`` has read nothing,
so any part of the messages may be the micro-batch. A deferral without an answer is repeated, and then verified by
peeking, until its outcome is known. If that takes longer than a minute, the query ends before it has read anything.

Why no message is removed unread: the process that planned a micro-batch removes the numbers that it planned. Where it
did not plan the micro-batch at all, because the sink passed over its number, it removes nothing, and the messages come
again. A process that starts later removes the messages that are deferred under the numbers of the last offset. These
were read, except in a rare combination. A message was not deferred when the micro-batch was planned. The query ended
before it wrote the next offset, which then follows at once, even without messages. And another program, or a process
that should have been dead, deferred that message meanwhile. So no other program should defer messages of an entity that
a stream consumes. Adopted messages were deferred before, which does not say that they were read. So their offset says
that they are adopted, and a process that starts later leaves them as orphans. The offset has the enqueued times of its
messages, so that the checkpoint of one entity never removes messages from another.

All of this is for ``delivery=exactly-once``, the default. :mod:`sbnotebook.spark.held_batches` has the steps of
``delivery=at-least-once``.

One stream of a Spark driver consumes an entity at a time. Spark makes two sources of a stream that is joined with
itself, each in a process of its own. Each message would go to one of the two, so that the join finds no pairs. The
processes of one driver are children of its Java process, which is how they find each other.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import platform
import signal
import sqlite3
import tempfile
import threading
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, MessageState
from sbnotebook.settlement import OUTAGE_PATIENCE, Page, PeekCursor
from sbnotebook.spark.consume_offset import ConsumeOffset
from sbnotebook.spark.consume_query import ConsumeQuery
from sbnotebook.spark.micro_batches import report_loss
from sbnotebook.spark.options import StreamOptions
from sbnotebook.spark.peek_reader import RangesOfTask, prefetched
from sbnotebook.spark.schema import MessageBatches
from sbnotebook.spark.scrubbing import scrubbed
from sbnotebook.spark.shipping import Shipped
from sbnotebook.spark.task_context import warm_namespace

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

_COLLECT_EVERY: Final = 5_000
"""New objects after which Python looks for cycles. A search visits thousands of locks, and took a sixth of the time."""
_LOG: Final = logging.getLogger(__name__)
_ENDS_WITHIN: Final = 10.0
"""Seconds that the process of a stream may take to end when its query was stopped, before it starts again."""


class ConsumeStream(Shipped, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Takes messages out of an entity, each exactly once: ``readStream`` with ``mode=consume``.

    It is pickled and sent to the workers, which call :meth:`read` only. The other methods are called in one process
    for each query, which opens its connections at the first call and keeps them.
    """

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        MessageBatches(schema, options.decode)  # refuses it here, not in each worker
        self._query: ConsumeQuery | None = None

    # ---------------------------------------------------------------- in the process that drives the query

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """Return where a new stream begins: with no messages."""
        return ConsumeOffset(self._options.entity, is_locked=not self._options.defers).as_dict()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark's name)
        """Return how many messages a micro-batch has at most; sbnotebook limits its bytes.

        Spark calls this for each source of a query before it asks the first one for messages.
        """
        self._claim()
        return ReadMaxRows(self._options.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark's name)
        """Take the messages of this moment, and none that come later."""
        with self._scrubbed():
            self._opened().take_only_what_is_there()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 (Spark's name)
        """Remove the messages of ``start``, which are durable, and lock those of the next micro-batch."""
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
        """Return what the query's progress shows as the latest offset of the source.

        Spark has no other place for it: its stream of a Python data source reports no ``metrics``, and its name is that
        of a Java object. Source: PythonMicroBatchStreamWithAdmissionControl of Spark 4.3, which does not implement
        ReportsSourceMetrics.
        """
        with self._scrubbed():
            return None if self._query is None else self._query.progress()

    def partitions(
        self,
        start: dict[str, Any],  # noqa: ARG002 (the end says it all)
        end: dict[str, Any],
    ) -> list[RangesOfTask]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Defer the messages of a micro-batch, whose offset is in the checkpoint now, and divide them among tasks."""
        with self._scrubbed():
            offset = self._offset(end)
            query = self._opened()
            parts = query.divide(query.plan(offset), self._options.partitions)
        return [RangesOfTask(part, offset.batch) for part in parts]

    def stop(self) -> None:
        """Release the locked messages that are not deferred, without raising a delivery count."""
        query, self._query = self._query, None
        if query is not None:
            query.close()

    def _offset(self, given: dict[str, Any]) -> ConsumeOffset:
        return ConsumeOffset.parse(given, self._options.entity, is_locked=not self._options.defers)

    def _opened(self) -> ConsumeQuery:
        if self._query is None:
            self._claim()
            self._query = ConsumeQuery(self._options)
            _stop_at_sigterm()
            gc.set_threshold(_COLLECT_EVERY, *gc.get_threshold()[1:])
        return self._query

    def _claim(self) -> None:
        with self._scrubbed():
            be_sole_consumer(str(self._options.namespace.connection().host), self._options.entity)

    # ---------------------------------------------------------------- in the workers

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Peek the messages of one partition, the same again for a repeated task or a second action."""
        options, numbers = self._options, partition.numbers
        missing = set(numbers)
        with self._scrubbed():
            with warm_namespace(options.namespace) as namespace:
                batches, everything = MessageBatches(self._schema, options.decode), PeekCursor()
                pages = namespace.peeker(options.entity).pages_of(numbers, patience=OUTAGE_PATIENCE)
                with closing(prefetched(pages)) as read:
                    for page in read:
                        there = [each for each in page if not options.defers or each[1].state is MessageState.DEFERRED]
                        found = [message.sequence_number for _, message in there]
                        missing.difference_update(found)
                        if there:
                            payloads = [payload for payload, _ in there]
                            yield from batches.add(Page(options.entity, found[0], payloads), everything)
                yield from batches.rest()
            if missing:
                report_loss(options.entity, missing, partition.batch, fails=options.fail_on_data_loss)

    @contextmanager
    def _scrubbed(self) -> Generator[None]:
        with scrubbed(self._options.namespace.secrets):
            yield


def _stop_at_sigterm() -> None:
    """Have :meth:`ConsumeStream.stop` called when Spark ends the process with SIGTERM."""
    if threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _exit)


def _exit(_number: int, frame: FrameType | None) -> None:
    """Raise SystemExit, at which Spark calls :meth:`ConsumeStream.stop`; do nothing while that runs.

    Spark sends the signal twice within milliseconds, and the second one would end the release of the messages. It never
    kills the process. Source: PythonStreamingSourceRunner.stop of Spark 4.3, which calls stopWorker and stop of
    PythonWorkerFactory. Both call Process.destroy.
    """
    while frame is not None:
        if frame.f_code is ConsumeStream.stop.__code__:
            return
        frame = frame.f_back
    raise SystemExit(0)


@cache
def be_sole_consumer(host: str, entity: EntityAddress, ends_within: float = _ENDS_WITHIN) -> sqlite3.Connection | None:
    """Keep the other processes of this driver from consuming an entity, until this process ends.

    The lock is that of a SQLite file, which the operating system releases when the process ends in any way. Call it as
    often as you like.
    """
    place = f"{platform.node()} {os.getppid()} {host.lower()} {entity.path.lower()}"
    file = f"{hashlib.sha256(place.encode()).hexdigest()[:32]}.sqlite"
    try:
        # A folder of this machine: containers that share a home directory also share the numbers of processes.
        folder = Path(tempfile.gettempdir()) / f"sbnotebook-consuming-{getattr(os, 'getuid', int)()}"
        folder.mkdir(mode=0o700, exist_ok=True)
        lock = sqlite3.connect(folder / file, timeout=ends_within, isolation_level=None, check_same_thread=False)
        lock.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode != sqlite3.SQLITE_BUSY:
            return _unguarded(entity, error)
    except OSError as error:
        return _unguarded(entity, error)
    else:
        return lock
    raise ConfigurationError(
        f"Another stream of this Spark driver consumes {entity}, and each message goes to one of them only: a join of "
        "a stream with itself finds no pairs. Consume it once, and use foreachBatch for joins and for several sinks."
    )


def _unguarded(entity: EntityAddress, error: Exception) -> None:
    _LOG.warning("A second stream of this driver that consumes %s would not be noticed: %s.", entity, error)
