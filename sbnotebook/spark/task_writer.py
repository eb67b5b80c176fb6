"""What the writers have in common: they send or settle in tasks, and count, commit and fail in the same way."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from sbnotebook.errors import SbNotebookError
from sbnotebook.model import Outcome, OutcomeStatus
from sbnotebook.spark.driver_log import log_on_driver
from sbnotebook.spark.failed_rows import OUTCOME_COLUMNS, FailureFile, FailuresFolder
from sbnotebook.spark.scrubbing import in_words, scrubbed
from sbnotebook.spark.shipping import Shipped
from sbnotebook.spark.task_context import refuse_speculation

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from sbnotebook.spark.options import WriteOptions

_LOG: Final = logging.getLogger(__name__)


@dataclass
class TaskResult(WriterCommitMessage):
    """The result of one task."""

    done: int = 0
    gone: int = 0  # messages that a repeated task or micro-batch did not find
    failed: int = 0  # all other rows, also those that are unknown
    unknown: int = 0  # without an answer: they may be done
    first_failure: str | None = None
    job: str | None = None  # of the failure file

    def fail(self, outcome: Outcome) -> None:
        """Count a row that failed."""
        self.failed += 1
        self.unknown += outcome.status is OutcomeStatus.UNCONFIRMED
        number = None if outcome.sequence_number is None else f"#{outcome.sequence_number}"
        parts = filter(None, (number, outcome.status.value, outcome.condition, outcome.description))
        self.first_failure = self.first_failure or ": ".join(parts)


class TaskWriter(Shipped, DataSourceArrowWriter, DataSourceStreamArrowWriter):
    """Sends or settles by the rows of a frame: Spark calls it on the driver and in each task.

    Rows that fail are counted, and fail the job when its tasks have ended, unless ``failuresPath`` keeps them. Rows
    without an answer fail the task, which Spark may repeat. The writer is pickled and sent to the workers, so it holds
    no connection.
    """

    DONE: ClassVar[str]
    """The sentence about messages that are sent or settled, with ``{count}`` and ``{entity}``."""
    MAY: ClassVar[str]
    """The doubt about messages without an answer."""
    REST: ClassVar[str] = ""
    """The effect of a failure without ``failuresPath`` on other rows."""

    def __init__(self, options: WriteOptions, schema: StructType, *, is_stream: bool) -> None:
        with scrubbed(options.namespace.secrets):
            self.check(schema, options)
        self.options = options
        self.is_stream = is_stream
        self._failures = FailuresFolder.prepared(options.failures_path, schema, is_stream=is_stream)

    @staticmethod
    @abstractmethod
    def check(schema: StructType, options: WriteOptions) -> None:
        """Refuse columns that cannot be written."""

    @abstractmethod
    def carry_out(self, batches: Iterator[pa.RecordBatch], result: TaskResult, file: FailureFile | None) -> None:
        """Send or settle by the rows of one task; count them, and write those that failed."""

    # ------------------------------------------------------------------ in a task

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        """Carry out the rows of one task."""
        failures = self._failures
        with scrubbed(self.options.namespace.secrets + (failures.secrets if failures else ())):
            refuse_speculation(self.options)
            file = failures.file() if failures else None
            result = TaskResult(job=file.job if file else None)
            own = (
                batch.drop_columns([name for name in OUTCOME_COLUMNS if name in batch.schema.names])
                for batch in iterator
            )
            try:
                self.carry_out(own, result, file)
                self._finish(result, file)
            except BaseException as error:
                if file is not None:
                    with suppress(OSError):
                        file.discard()  # another attempt of this task writes them again
                if not isinstance(error, Exception):
                    raise
                text = f"{self._done(result.done)} by this task, then it failed: {in_words(error)}"
                raise SbNotebookError(text) from error
        return result

    def _finish(self, result: TaskResult, file: FailureFile | None) -> None:
        if file is not None:
            file.finish()
        elif result.unknown:  # Spark may run the task again, which finds out
            raise SbNotebookError(
                f"{result.unknown:,} of its rows got no answer ({self.MAY}). The first: {result.first_failure}"
            )

    # ------------------------------------------------------------------ on the driver

    def commit(self, messages: list[TaskResult | None], batchId: int | None = None) -> None:  # noqa: N803 # pyright: ignore[reportIncompatibleMethodOverride]
        """Log how many messages are done, have failed, or are unknown; raise for rows that no folder keeps."""
        tasks = [message for message in messages if message is not None]
        if self._failures is not None:
            self._failures.remove_rest([task.job for task in tasks], len(messages))
        done, gone, failed, unknown = (_sum(tasks, name) for name in ("done", "gone", "failed", "unknown"))
        text = f"{_prefix(batchId)}{self._done(done)}"
        if gone:
            text += f", {gone:,} were not there any more (a run before this one settled them, or they have expired)"
        text += f", {failed - unknown:,} failed, and {unknown:,} are unknown{f' ({self.MAY})' if unknown else ''}"
        if not failed:
            log_on_driver(_LOG, logging.WARNING if gone else logging.INFO, f"{text}.")
            return
        first = next(task.first_failure for task in tasks if task.first_failure)
        if self._failures is not None:
            log_on_driver(_LOG, logging.WARNING, f"{text}; their rows are in failuresPath. The first: {first}")
            return
        with scrubbed(self.options.namespace.secrets):
            raise SbNotebookError(
                f'{text}{self.REST}. The first: {first} - option("failuresPath", FOLDER) keeps such rows, and carries '
                "out the others."
            )

    def abort(self, messages: list[TaskResult | None], batchId: int | None = None) -> None:  # noqa: N803 # pyright: ignore[reportIncompatibleMethodOverride]
        """Log how many messages are done although the write failed; they stay so."""
        tasks = [message for message in messages if message is not None]
        text = (
            f"{_prefix(batchId)}The write failed, and nothing is taken back: {self._done(_sum(tasks, 'done'))} by "
            f"{len(tasks):,} successful tasks. For the other tasks, see the error."
        )
        log_on_driver(_LOG, logging.WARNING, text)

    def _done(self, count: int) -> str:
        return self.DONE.format(count=f"{count:,}", entity=self.options.entity)


def _sum(tasks: Sequence[TaskResult], name: str) -> int:
    return sum(getattr(task, name) for task in tasks)


def _prefix(batch: int | None) -> str:
    return "" if batch is None else f"Micro-batch {batch}: "
