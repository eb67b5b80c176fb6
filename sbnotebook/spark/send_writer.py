"""Sending the rows of a frame as messages: the writer that Spark calls, on the driver and in each task."""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from threading import Lock
from typing import TYPE_CHECKING, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from sbnotebook.analysis.frames import in_slices, rows_to_send
from sbnotebook.client.portal import run
from sbnotebook.client.scrubbing import in_words, scrubbed
from sbnotebook.client.shipping import Shipped
from sbnotebook.errors import ConfigurationError, SbNotebookError
from sbnotebook.model import EntityAddress, Message, Outcome, OutcomeStatus, Report, Tally
from sbnotebook.settlement.plan import Limits
from sbnotebook.settlement.wire.encoded_rows import EncodedRows
from sbnotebook.spark.driver_log import log_on_driver
from sbnotebook.spark.failed_rows import OUTCOME_COLUMNS, FailureFile, FailuresFolder
from sbnotebook.spark.options import WriteOptions
from sbnotebook.spark.sent_columns import check_sent_columns
from sbnotebook.spark.task_context import in_flight_of_task, refuse_speculation, warm_namespace

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

__all__ = ["SendWriter", "SentMessages"]

_LOG: Final = logging.getLogger(__name__)
_UNSENDABLE: Final = "amqp:encode-error"
_DESCRIPTION: Final = 500


@dataclass
class SentMessages(WriterCommitMessage):
    """The result of one task.

    Args:
        count: messages that were sent, each confirmed.
        refused: rows that were not sent, and are in ``failuresPath``.
        unknown: rows that may have arrived, and are there, too.
        first_failure: why the first of these was not sent.
    """

    count: int
    refused: int = 0
    unknown: int = 0
    first_failure: str | None = None

    @property
    def failed(self) -> int:
        """Return how many rows are in ``failuresPath``."""
        return self.refused + self.unknown


class SendWriter(Shipped, DataSourceArrowWriter, DataSourceStreamArrowWriter):
    """Sends each row as a message: see :func:`sbnotebook.analysis.frames.messages_from` for how it becomes one.

    A message that was sent cannot be taken back. A task or a micro-batch that Spark repeats sends its rows again, with
    the same message ids where the frame has a column ``message_id``, so that duplicate detection recognises them. The
    writer is pickled and sent to the workers, so it holds no connection.

    Args:
        options: where to and how.
        schema: of the frame.
        is_stream: whether Spark writes micro-batches of a stream.

    Raises:
        ConfigurationError: the columns cannot be sent, or ``failuresPath`` cannot be written.
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, is_stream: bool) -> None:
        with scrubbed(options.namespace.secrets):
            check_sent_columns(schema)
        self._options = options
        self._failures = FailuresFolder.prepared(options.failures_path, schema, is_stream=is_stream)

    # ------------------------------------------------------------------ in a task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentMessages:
        """Send the rows of one task.

        Raises:
            SbNotebookError: not all could be sent, and there is no folder for those that failed; says how many were.
        """
        options, failures = self._options, self._failures
        with scrubbed(options.namespace.secrets + (failures.secrets if failures else ())):
            refuse_speculation(options)
            max_in_flight = in_flight_of_task(options)
            rows = _RowsOnTheirWay(options.entity, failures.file() if failures else None)
            try:
                self._send(rows, iterator, max_in_flight)
                rows.finish()
            except Exception as error:
                rows.discard()
                done = f"{rows.sent:,} messages of this task were sent to {options.entity}"
                raise SbNotebookError(f"{done}, then it failed: {in_words(error)}") from error
        return SentMessages(rows.sent, rows.failed - rows.unknown, rows.unknown, rows.first_failure)

    def _send(self, rows: _RowsOnTheirWay, batches: Iterator[pa.RecordBatch], max_in_flight: int) -> None:
        options = self._options
        with warm_namespace(options.namespace) as namespace:

            async def send() -> Report:
                entity = namespace.entity(options.entity)
                namespace.pool(options.entity).doubt()  # since the task before, the queue may have been made anew
                plan = entity.plan_send(lambda: rows.messages(batches), batch_size=options.batch_size, tally=rows)
                return await plan.apply(Limits(max_in_flight, options.rate))

            run(send)

    # ------------------------------------------------------------------ on the driver

    def commit(self, messages: list[SentMessages | None], batchId: int | None = None) -> None:  # noqa: N803 # pyright: ignore[reportIncompatibleMethodOverride]
        """Log how many messages were sent, refused or unknown.

        Args:
            messages: the results of the tasks.
            batchId: of a stream's micro-batch.
        """
        tasks = [message for message in messages if message is not None]
        sent, refused, unknown = (
            sum(getattr(each, kind) for each in tasks) for kind in ("count", "refused", "unknown")
        )
        text = f"{_prefix(batchId)}{sent:,} messages were sent to {self._options.entity}, {refused:,} were refused"
        text += f", and {unknown:,} are unknown"
        if not refused + unknown:
            log_on_driver(_LOG, logging.INFO, f"{text}.")
            return
        first = next(message.first_failure for message in tasks if message.first_failure)
        may = " (they may have arrived)" if unknown else ""
        log_on_driver(_LOG, logging.WARNING, f"{text}{may}; their rows are in failuresPath. The first: {first}")

    def abort(self, messages: list[SentMessages | None], batchId: int | None = None) -> None:  # noqa: N803 # pyright: ignore[reportIncompatibleMethodOverride]
        """Log how many messages were sent although the write failed; they stay sent.

        Args:
            messages: the results of the tasks that ended well, None for the others.
            batchId: of a stream's micro-batch.
        """
        ended = [message.count for message in messages if message is not None]
        text = (
            "%sThe write to %s failed, but sent messages stay there: %s messages of %s successful tasks. For the other "
            "tasks, see the error."
        )
        text %= (_prefix(batchId), self._options.entity, f"{sum(ended):,}", f"{len(ended):,}")
        log_on_driver(_LOG, logging.WARNING, text)


def _prefix(batch: int | None) -> str:
    return "" if batch is None else f"Micro-batch {batch}: "


@dataclass(slots=True, eq=False)
class _Part:
    """Rows of which some have no outcome yet.

    Args:
        first: the position of its first row among all that are sent.
        rows: that become messages.
        open: how many have no outcome yet.
    """

    first: int
    rows: pa.RecordBatch
    open: int


class _RowsOnTheirWay(Tally):
    """The rows of a task, each kept until its outcome is known.

    One thread pulls rows, and another one notes outcomes. The first writes the rows that failed, where that delays
    no transfer.

    Args:
        address: where they are sent.
        file: takes rows that failed; None when the first failure ends the task.
    """

    def __init__(self, address: EntityAddress, file: FailureFile | None) -> None:
        super().__init__()
        self._address = address
        self._file = file
        self._parts: list[_Part] = []
        self._failed: deque[tuple[pa.RecordBatch, Outcome]] = deque()
        self._pulled = 0
        self._lock = Lock()
        self._counts: Counter[OutcomeStatus] = Counter()
        self.sent = 0
        """Messages that were confirmed."""
        self.first_failure: str | None = None
        """Why the first of the others was not confirmed."""

    @property
    def failed(self) -> int:
        """Return how many rows were not sent, or were sent without an answer."""
        return self._counts.total()

    @property
    def unknown(self) -> int:
        """Return how many rows were sent without an answer."""
        return self._counts[OutcomeStatus.UNCONFIRMED]

    # ------------------------------------------------------------------ in the thread that pulls

    def messages(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Message | EncodedRows]:
        """Yield what the rows become."""
        for batch in batches:
            own = batch.drop_columns([name for name in OUTCOME_COLUMNS if name in batch.schema.names])
            for rows in in_slices(own):
                yield from self._begin(rows)
                self._write_failed()
                if self.failed and self._file is None:
                    return  # the job fails: nothing more is sent for it

    def _begin(self, rows: pa.RecordBatch) -> Sequence[Message | EncodedRows]:
        made = rows_to_send(rows)
        if isinstance(made, EncodedRows):
            self._expect(rows)
            return [made]
        messages = [message for message in made if isinstance(message, Message)]
        if len(messages) < len(made):
            for row, error in enumerate(made):
                if isinstance(error, ConfigurationError):
                    self._fail(rows.slice(row, 1), self._refusal(error))
            rows = rows.filter(pa.array([isinstance(message, Message) for message in made]))
        if messages:
            self._expect(rows)
        return messages

    def _expect(self, rows: pa.RecordBatch) -> None:
        self._parts.append(_Part(self._pulled, rows, rows.num_rows))
        self._pulled += rows.num_rows

    def _refusal(self, error: ConfigurationError) -> Outcome:
        text = str(error)[:_DESCRIPTION]
        return Outcome(OutcomeStatus.FAILED, "send", self._address, condition=_UNSENDABLE, description=text)

    def _write_failed(self) -> None:
        while self._failed:
            row, outcome = self._failed.popleft()
            if self._file is not None:
                self._file.add(row, [outcome])

    # ------------------------------------------------------------------ where outcomes come

    def note(self, index: int, outcome: Outcome) -> None:
        self.note_alike([index], outcome.status, [outcome])

    def note_alike(self, indexes: Sequence[int], status: OutcomeStatus, outcomes: Iterable[Outcome]) -> None:
        if status is OutcomeStatus.SETTLED:
            self.sent += len(indexes)
        else:
            for index, outcome in zip(indexes, outcomes, strict=True):
                part = self._part_of(index)
                self._fail(part.rows.slice(index - part.first, 1), outcome)
        start = 0
        while start < len(indexes):
            part = self._part_of(indexes[start])
            end = bisect_left(indexes, part.first + part.rows.num_rows, start)
            part.open -= end - start
            if not part.open:
                self._parts.remove(part)
            start = end

    def _part_of(self, index: int) -> _Part:
        return self._parts[bisect_right(self._parts, index, key=_FIRST) - 1]

    def _fail(self, row: pa.RecordBatch, outcome: Outcome) -> None:
        with self._lock:
            self._counts[outcome.status] += 1
            parts = filter(None, (outcome.status.value, outcome.condition, outcome.description))
            self.first_failure = self.first_failure or ": ".join(parts)
        self._failed.append((row, outcome))

    def report(self) -> Report:
        return Report()  # it is all in the counts

    # ------------------------------------------------------------------ at the end

    def finish(self) -> None:
        """Write the rows that failed, or raise for them."""
        self._write_failed()
        if self._file is not None:
            self._file.finish()
        elif self.failed:
            raise SbNotebookError(
                f"{self._failures_in_words()}; the rest of its rows was not sent. The first that was not: "
                f'{self.first_failure} - option("failuresPath", FOLDER) keeps such rows and sends the others.'
            )

    def _failures_in_words(self) -> str:
        hints = {OutcomeStatus.UNCONFIRMED: " (they may have arrived)"}
        return ", ".join(f"{count:,} {status}{hints.get(status, '')}" for status, count in self._counts.items())

    def discard(self) -> None:
        """Drop the rows that failed: another attempt of this task writes them again."""
        if self._file is not None:
            self._file.discard()


_FIRST: Final = attrgetter("first")
