"""Settling by the rows of a frame: the writer that Spark calls, on the driver and in each task."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from sbnotebook.client.decisions import read_decisions
from sbnotebook.client.scrubbing import scrubbed
from sbnotebook.client.settle_task import SettleTask, TaskStorage
from sbnotebook.client.shipping import Shipped
from sbnotebook.errors import SbNotebookError
from sbnotebook.model import Outcome, OutcomeStatus
from sbnotebook.settlement import Journal, archive_of, is_gone
from sbnotebook.spark.driver_log import log_on_driver
from sbnotebook.spark.failed_rows import OUTCOME_COLUMNS, FailureFile, FailuresFolder
from sbnotebook.spark.options import WriteOptions
from sbnotebook.spark.schema import arrow_schema_for
from sbnotebook.spark.task_context import attempt_number, in_flight_of_task, is_local, refuse_speculation

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_LOG: Final = logging.getLogger(__name__)


@dataclass
class SettledRows(WriterCommitMessage):
    """The result of one task.

    Args:
        settled: rows that were carried out.
        gone: rows whose messages were gone when a task or a micro-batch was repeated.
        failed: all others.
        first_failure: why the first of these was not carried out.
        unknown: rows that failed because Service Bus did not answer: they may be settled.
        job: that of :class:`sbnotebook.spark.failed_rows.FailureFile`; None without ``failuresPath``.
    """

    settled: int = 0
    gone: int = 0
    failed: int = 0
    first_failure: str | None = None
    unknown: int = 0
    job: str | None = None

    def add(self, outcomes: Sequence[Outcome], *, is_repeated: bool) -> list[int]:
        """Count outcomes; return the positions of those that failed."""
        failed: list[int] = []
        for row, outcome in enumerate(outcomes):
            if outcome.ok:
                self.settled += 1
            elif is_repeated and is_gone(outcome):
                self.gone += 1
            else:
                failed.append(row)
        if failed and self.first_failure is None:
            first = outcomes[failed[0]]
            self.first_failure = f"#{first.sequence_number}: {first.status}: {first.description}"
        self.failed += len(failed)
        self.unknown += sum(outcomes[row].status is OutcomeStatus.UNCONFIRMED for row in failed)
        return failed


class SettleWriter(Shipped, DataSourceArrowWriter, DataSourceStreamArrowWriter):
    """Completes, dead-letters or abandons deferred messages: see :mod:`sbnotebook.client.decisions` for the columns.

    A task or a micro-batch that Spark repeats finds messages gone that its first run settled. They are counted, and are
    not failures. The writer is pickled and sent to the workers, so it holds no connection.

    Args:
        options: where and how.
        schema: of the frame.
        is_stream: whether Spark writes micro-batches of a stream.

    Raises:
        ConfigurationError: a column is missing or has another type, or ``failuresPath`` cannot be written.
    """

    def __init__(self, options: WriteOptions, schema: StructType, *, is_stream: bool) -> None:
        with scrubbed(options.namespace.secrets):
            arrow: Any = arrow_schema_for(schema)
            read_decisions(pa.Table.from_batches([], arrow), options.entity)
        self._options = options
        self._is_stream = is_stream
        self._failures = FailuresFolder.prepared(options.failures_path, schema, is_stream=is_stream)

    # ------------------------------------------------------------------ in a task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SettledRows:
        """Settle by the rows of one task; those that fail are counted, and fail the job when all tasks have ended."""
        failures = self._failures
        with scrubbed(self._options.namespace.secrets + (failures.secrets if failures else ())):
            refuse_speculation(self._options)
            task = self._task()
            file = failures.file() if failures else None
            try:
                result = self._settle(task, iterator, file)
                if file is not None:
                    file.finish()
            except BaseException:
                if file is not None:
                    file.discard()
                raise
        return result

    def _task(self) -> SettleTask:
        options, journal = self._options, Journal()
        archive = archive_of(options.archived, journal.path.parent)
        return SettleTask(
            options.namespace,
            in_flight_of_task(options),
            TaskStorage.of(journal, archive) if is_local() else TaskStorage(),
            options.entity,
            archived=options.archived,
            is_repeated=self._is_stream or attempt_number() > 0,
        )

    def _settle(self, task: SettleTask, batches: Iterator[pa.RecordBatch], file: FailureFile | None) -> SettledRows:
        result = SettledRows(job=file.job if file else None)
        own = (
            batch.drop_columns([name for name in OUTCOME_COLUMNS if name in batch.schema.names]) for batch in batches
        )
        with closing(task.settle(own)) as settled:
            for rows, outcomes in settled:
                failed = result.add(outcomes, is_repeated=task.is_repeated)
                if failed and file is not None:
                    file.add(rows.take(pa.array(failed)), [outcomes[row] for row in failed])
        return result

    # ------------------------------------------------------------------ on the driver

    def commit(self, messages: list[SettledRows | None], batchId: int | None = None) -> None:  # noqa: N803 # pyright: ignore[reportIncompatibleMethodOverride]
        """Log how many messages were settled."""
        tasks = [message for message in messages if message is not None]
        if self._failures is not None:
            self._failures.remove_rest([task.job for task in tasks], len(messages))
        settled, gone, failed = (sum(getattr(each, count) for each in tasks) for count in ("settled", "gone", "failed"))
        text = f"{_prefix(batchId)}{settled:,} messages of {self._options.entity} were settled"
        if gone:
            text += f", and {gone:,} were not there any more: a run before this one settled them, or they have expired"
        if not failed:
            log_on_driver(_LOG, logging.WARNING if gone else logging.INFO, f"{text}, 0 failed, and 0 are unknown.")
            return
        unknown = sum(each.unknown for each in tasks)
        text += f"; {failed:,} rows failed"
        if unknown:
            text += f", {unknown:,} of them unknown (they may be settled)"
        first = next(each.first_failure for each in tasks if each.failed)
        if all(each.job is not None for each in tasks if each.failed):
            log_on_driver(_LOG, logging.WARNING, f"{text}: they are in failuresPath. The first: {first}")
            return
        with scrubbed(self._options.namespace.secrets):
            raise SbNotebookError(f'{text}. The first: {first} - option("failuresPath", FOLDER) keeps such rows.')

    def abort(self, messages: list[SettledRows | None], batchId: int | None = None) -> None:  # noqa: N803 # pyright: ignore[reportIncompatibleMethodOverride]
        """Log how many messages were settled although the write failed; they stay settled."""
        settled = sum(message.settled for message in messages if message is not None)
        text = (
            "%sThe write failed; %s messages of %s that tasks settled before stay so, and others may be settled, too."
        )
        log_on_driver(_LOG, logging.WARNING, text % (_prefix(batchId), f"{settled:,}", self._options.entity))


def _prefix(batch: int | None) -> str:
    return "" if batch is None else f"Micro-batch {batch}: "
