"""Settling by the rows of a frame."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from typing import TYPE_CHECKING, ClassVar

import pyarrow as pa

from sbnotebook.settlement import Archive, AsyncNamespace, Journal
from sbnotebook.spark.decisions import check_schema
from sbnotebook.spark.failed_rows import FailureFile
from sbnotebook.spark.options import WriteOptions
from sbnotebook.spark.schema import arrow_schema_for
from sbnotebook.spark.settle_task import SettleTask, TaskStorage
from sbnotebook.spark.task_context import attempt_number, in_flight_of_task, is_local
from sbnotebook.spark.task_writer import TaskResult, TaskWriter

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


class SettleWriter(TaskWriter):
    """Completes, dead-letters or abandons deferred messages: see :mod:`sbnotebook.spark.decisions` for the columns.

    A task or a micro-batch that Spark repeats finds messages gone that its first run settled. They are counted, and are
    not failures.
    """

    DONE: ClassVar = "{count} messages of {entity} were settled"
    MAY: ClassVar = "they may be settled"

    @staticmethod
    def check(schema: StructType, options: WriteOptions) -> None:
        """Refuse a column that is missing or has another type."""
        check_schema(arrow_schema_for(schema), options.entity)

    def carry_out(self, batches: Iterator[pa.RecordBatch], result: TaskResult, file: FailureFile | None) -> None:
        """Settle by the rows of one task."""
        task = self._task()
        with closing(task.settle(batches)) as settled:
            for rows, outcomes in settled:
                failed: list[int] = []
                for row, outcome in enumerate(outcomes):
                    if outcome.ok:
                        result.done += 1
                    elif task.is_repeated and AsyncNamespace.is_gone(outcome):
                        result.gone += 1
                    else:
                        result.fail(outcome)
                        failed.append(row)
                if failed and file is not None:
                    file.add(rows.take(pa.array(failed)), [outcomes[row] for row in failed])

    def _task(self) -> SettleTask:
        options, journal = self.options, Journal()
        archive = Archive.of(options.archived, journal.path.parent)
        return SettleTask(
            options.namespace,
            in_flight_of_task(options),
            TaskStorage.of(journal, archive) if is_local() else TaskStorage(),
            options.entity,
            archived=options.archived,
            is_repeated=self.is_stream or attempt_number() > 0,
        )
