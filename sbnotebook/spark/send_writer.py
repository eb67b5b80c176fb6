"""Sending the rows of a frame as messages: what Spark asks of a writer. :mod:`sbnotebook.spark.send_task` sends."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from sbnotebook.spark.options import WriteOptions
from sbnotebook.spark.send_task import SendTask, SentMessages

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["SendStreamWriter", "SendWriter", "SentMessages"]

_LOG: Final = logging.getLogger(__name__)


class SendWriter(DataSourceArrowWriter):
    """Sends each row as a message: see :func:`sbnotebook.analysis.frames.messages_from` for how it becomes one.

    A message that was sent cannot be taken back. A task that Spark repeats sends its rows again, with the same
    message ids where the frame has a column ``message_id``, so that duplicate detection recognises them. It is
    pickled and sent to the workers, so it holds no connection.

    Args:
        options: where to and how.
        schema: of the frame.

    Raises:
        ConfigurationError: the columns cannot be sent, or ``failuresPath`` cannot be written.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._task = SendTask.prepared(options, schema, is_stream=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentMessages:
        """Send the rows of one task.

        Raises:
            SbNotebookError: not all could be sent; says how many were.
        """
        return self._task.run(iterator)

    def commit(self, messages: list[SentMessages | None]) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Report what was sent, and what was not."""
        _report(self._task, messages)

    def abort(self, messages: list[SentMessages | None]) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Report what was sent; it stays sent."""
        _report_failure(self._task, messages)


class SendStreamWriter(DataSourceStreamArrowWriter):
    """Sends the rows of each micro-batch as :class:`SendWriter` does.

    A micro-batch that Spark repeats, because the query was stopped in the middle of it, is sent again.

    Args:
        options: where to and how.
        schema: of the frame.

    Raises:
        ConfigurationError: the columns cannot be sent, or ``failuresPath`` cannot be written.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._task = SendTask.prepared(options, schema, is_stream=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentMessages:
        """Send the rows of one task.

        Raises:
            SbNotebookError: not all could be sent; says how many were.
        """
        return self._task.run(iterator)

    def commit(self, messages: list[SentMessages | None], batchId: int) -> None:  # noqa: N803 # pyright: ignore[reportIncompatibleMethodOverride]
        """Report what was sent, and what was not."""
        _report(self._task, messages, f"Micro-batch {batchId}: ")

    def abort(self, messages: list[SentMessages | None], batchId: int) -> None:  # noqa: N803 # pyright: ignore[reportIncompatibleMethodOverride]
        """Report what was sent; it stays sent."""
        _report_failure(self._task, messages, f"Micro-batch {batchId}: ")


def _report(task: SendTask, messages: Sequence[SentMessages | None], what: str = "") -> None:
    """Log how it ended; Spark lets warnings through to the standard error of its driver, and nothing that is less."""
    sent = sum(message.count for message in messages if message is not None)
    failed = sum(message.failed for message in messages if message is not None)
    if not failed:
        _LOG.info("%s%s messages were sent to %s.", what, f"{sent:,}", task.address)
        return
    first = next(message.first_failure for message in messages if message is not None and message.failed)
    said = "%s%s messages were sent to %s, and %s rows were not: they are in failuresPath. The first: %s"
    _LOG.warning(said, what, f"{sent:,}", task.address, f"{failed:,}", first)


def _report_failure(task: SendTask, messages: Sequence[SentMessages | None], what: str = "") -> None:
    ended = [message.count for message in messages if message is not None]
    said = "%sThe write to %s failed; what was sent stays there: %s messages of %s tasks that ended well, and what the "
    _LOG.warning(said + "error says of the others.", what, task.address, f"{sum(ended):,}", f"{len(ended):,}")
