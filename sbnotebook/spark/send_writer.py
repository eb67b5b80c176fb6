"""Sending the rows of a frame as messages, with a limit on what is in flight in each task."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from sbnotebook.client.frames import messages_from
from sbnotebook.client.portal import run
from sbnotebook.errors import SbNotebookError
from sbnotebook.model import Message, Report
from sbnotebook.settlement import AsyncEntity, AsyncNamespace
from sbnotebook.spark.options import WriteOptions
from sbnotebook.spark.scrubbing import in_words, scrubbed

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["SendStreamWriter", "SendWriter", "SentMessages"]

_ROWS_AT_ONCE: Final = 5_000
_LOG: Final = logging.getLogger(__name__)


@dataclass
class SentMessages(WriterCommitMessage):
    """What one task sent, every message confirmed.

    Args:
        count: how many messages.
    """

    count: int


class SendWriter(DataSourceArrowWriter):
    """Sends each row as a message: see :func:`sbnotebook.client.frames.messages_from` for how it becomes one.

    A message that was sent cannot be taken back. A task that Spark repeats sends its rows again, with the same
    message ids where the frame has a column ``message_id``, so that duplicate detection recognises them. It is
    pickled and sent to the workers, so it holds no connection.

    Args:
        options: where to and how.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:  # noqa: ARG002 (to be checked)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SentMessages:
        """Send the rows of one task.

        Raises:
            SbNotebookError: not all could be sent; says how many were.
        """
        target, address, sent = self._options.namespace, self._options.entity, 0
        with scrubbed(target.secrets):
            namespace = AsyncNamespace(target.connection())
            try:
                for messages in _chunks(iterator):
                    report = self._send(namespace.entity(address), messages)
                    sent += report.settled
                    _check(report)
            except Exception as error:
                raise SbNotebookError(
                    f"{sent:,} messages of this task were sent to {address}, then it failed: {in_words(error)}"
                ) from error
            finally:
                run(namespace.close)
        return SentMessages(sent)

    def commit(self, messages: list[SentMessages | None]) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Report what was sent."""
        _LOG.info("%d messages were sent to %s.", _total(messages), self._options.entity)

    def abort(self, messages: list[SentMessages | None]) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Report what was sent; it stays sent."""
        sent = _total(messages)
        _LOG.warning("The job failed; %d messages that tasks sent to %s before stay there.", sent, self._options.entity)

    def _send(self, entity: AsyncEntity, messages: list[Message]) -> Report:
        options, began = self._options, time.monotonic()

        async def send() -> Report:
            return await entity.send(
                messages, max_in_flight=options.max_in_flight, batch_size=options.batch_size, rate=options.rate
            )

        report = run(send)
        if options.rate is not None:  # the limit goes on from one chunk to the next
            time.sleep(max(0.0, began + len(messages) / options.rate - time.monotonic()))
        return report


class SendStreamWriter(DataSourceStreamArrowWriter):
    """To be built."""


def _check(report: Report) -> None:
    if not report.ok:
        first = report.failures[0]
        raise SbNotebookError(f"{report}. The first that was not: {first.condition}: {first.description}")


def _chunks(batches: Iterator[pa.RecordBatch]) -> Iterator[list[Message]]:
    """The rows as messages, so many at once that their outcomes fit in memory."""
    for batch in batches:
        for start in range(0, batch.num_rows, _ROWS_AT_ONCE):
            yield list(messages_from(batch.slice(start, _ROWS_AT_ONCE)))


def _total(messages: list[SentMessages | None]) -> int:
    return sum(message.count for message in messages if message is not None)
