"""Settling by the rows of a frame: what Spark asks of a writer. :mod:`sbnotebook.spark.settle_task` settles."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter

from sbnotebook.client.scrubbing import scrubbed
from sbnotebook.errors import SbNotebookError
from sbnotebook.spark.options import WriteOptions
from sbnotebook.spark.settle_task import SettledRows, SettleTask

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["SettleStreamWriter", "SettleWriter", "SettledRows"]

_LOG: Final = logging.getLogger(__name__)


class SettleWriter(DataSourceArrowWriter):
    """Completes, dead-letters or abandons deferred messages: see :mod:`sbnotebook.client.decisions` for the columns.

    A task that Spark repeats finds messages gone that its first run settled; they are counted, and are no failure.
    It is pickled and sent to the workers, so it holds no connection.

    Args:
        options: where and how.
        schema: of the frame.

    Raises:
        ConfigurationError: a column is missing or has another type, or ``failuresPath`` cannot be written.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._task = SettleTask.prepared(options, schema, is_stream=False)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SettledRows:
        """Settle by the rows of one task.

        Raises:
            ConfigurationError: what is completed could not be archived; nothing was done.
        """
        return self._task.run(iterator)

    def commit(self, messages: list[SettledRows | None]) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Report what was settled.

        Raises:
            SbNotebookError: rows failed, and there is no ``failuresPath``; says how many.
        """
        with scrubbed(self._task.options.namespace.secrets):
            _report(self._task, messages)

    def abort(self, messages: list[SettledRows | None]) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Report what was settled; it stays so."""
        _report_failure(self._task, messages)


class SettleStreamWriter(DataSourceStreamArrowWriter):
    """Settles by the rows of each micro-batch as :class:`SettleWriter` does.

    A micro-batch that Spark repeats, because the query was stopped in the middle of it, finds messages gone that it
    settled before; they are counted, and are no failure.

    Args:
        options: where and how.
        schema: of the frame.

    Raises:
        ConfigurationError: a column is missing or has another type, or ``failuresPath`` cannot be written.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._task = SettleTask.prepared(options, schema, is_stream=True)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> SettledRows:
        """Settle by the rows of one task.

        Raises:
            ConfigurationError: what is completed could not be archived; nothing was done.
        """
        return self._task.run(iterator)

    def commit(self, messages: list[SettledRows | None], batchId: int) -> None:  # noqa: N803 # pyright: ignore[reportIncompatibleMethodOverride]
        """Report what was settled.

        Raises:
            SbNotebookError: rows failed, and there is no ``failuresPath``; says how many.
        """
        with scrubbed(self._task.options.namespace.secrets):
            _report(self._task, messages, f"Micro-batch {batchId}: ")

    def abort(self, messages: list[SettledRows | None], batchId: int) -> None:  # noqa: N803 # pyright: ignore[reportIncompatibleMethodOverride]
        """Report what was settled; it stays so."""
        _report_failure(self._task, messages, f"Micro-batch {batchId}: ")


def _report(task: SettleTask, messages: Sequence[SettledRows | None], what: str = "") -> None:
    tasks = [message for message in messages if message is not None]
    settled, gone, failed = (sum(getattr(each, count) for each in tasks) for count in ("settled", "gone", "failed"))
    entity = task.options.entity
    said = f"{what}{settled:,} messages of {entity} were settled"
    if gone:
        said += f", and {gone:,} were not there any more: a run before this one settled them, or they have expired"
    if not failed:
        (_LOG.warning if gone else _LOG.info)("%s.", said)
        return
    first = next(each.first_failure for each in tasks if each.failed)
    if all(each.kept for each in tasks if each.failed):
        _LOG.warning("%s; %s rows failed: they are in failuresPath. The first: %s", said, f"{failed:,}", first)
        return
    raise SbNotebookError(
        f'{said}; {failed:,} rows failed. The first: {first} - option("failuresPath", FOLDER) keeps such rows.'
    )


def _report_failure(task: SettleTask, messages: Sequence[SettledRows | None], what: str = "") -> None:
    settled = sum(message.settled for message in messages if message is not None)
    said = "%sThe write failed; %s messages of %s that tasks settled before stay so, and others may be settled, too."
    _LOG.warning(said, what, f"{settled:,}", task.options.entity)
