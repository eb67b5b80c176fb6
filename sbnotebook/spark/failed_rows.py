"""Rows that failed, as Parquet in a folder: all their columns, and how they ended.

You can read the folder with ``spark.read.parquet(folder)`` from the beginning, because it holds a file without rows.
Each task writes its own file. A repeated attempt of the task uses the same name, so that its rows replace those of the
attempt before.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self
from urllib.parse import urlsplit
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs
from pyarrow import parquet
from pyspark import TaskContext
from pyspark.sql.types import StructType

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Outcome
from sbnotebook.spark.driver_log import log_on_driver
from sbnotebook.spark.schema import arrow_schema_for
from sbnotebook.spark.scrubbing import in_words, scrubbed
from sbnotebook.spark.task_context import local_properties

OUTCOME_COLUMNS: Final = ("outcome_status", "outcome_condition", "outcome_description")
"""The columns that are written beside a row's own."""

_LOG: Final = logging.getLogger(__name__)
_ROWS_AT_ONCE: Final = 1000
_FILE: Final = re.compile(r"failed-(?P<job>.+)-(?P<task>[0-9]+)\.parquet", re.ASCII)
_STREAM: Final = ("sql.streaming.queryId", "streaming.sql.batchId")
"""The properties of a task that name its micro-batch; both stay the same when the micro-batch is repeated."""


@dataclass(frozen=True)
class FailuresFolder:
    """A folder for rows that failed. It can be pickled.

    A stream names its files by the micro-batch, because it writes each one once. Within foreachBatch there may be
    several writes of one micro-batch, and none may take another's place.
    """

    path: str
    is_stream: bool = False
    job: str = field(default_factory=lambda: uuid4().hex[:12])

    def __post_init__(self) -> None:
        if self.path.lower().startswith("dbfs:"):
            raise ConfigurationError(
                "failuresPath is written by Python, which does not know dbfs: - give the folder as the cluster's "
                "nodes see it, /Volumes/CATALOG/SCHEMA/VOLUME/FOLDER or /dbfs/FOLDER."
            )
        if ":" not in self.path.partition("/")[0]:  # a task's working directory may be another one
            object.__setattr__(self, "path", str(Path(self.path).absolute()))

    @classmethod
    def prepared(cls, path: str | None, schema: StructType, *, is_stream: bool) -> Self | None:
        """Make the folder of a write, and check that such rows can be written to it, before anything is sent.

        Call it on the driver. Without a path, there is no folder.
        """
        if path is None:
            return None
        prepared = cls(path, is_stream)
        with scrubbed(prepared.secrets):
            try:
                rows = pa.Table.from_batches([], arrow_schema_for(_without_outcomes(schema)))
                filesystem, folder = prepared._open()
                filesystem.create_dir(folder, recursive=True)
                file = FailureFile(filesystem, folder, prepared._no_rows, prepared.job)
                file.add(rows, [])
                file.finish()
            except (OSError, ValueError, pa.ArrowException) as error:
                raise ConfigurationError(f"failuresPath cannot be written: {error}.") from None
        return prepared

    @property
    def secrets(self) -> tuple[str, ...]:
        """Return the texts that must not be shown: an address may hold a key."""
        try:
            password = urlsplit(self.path).password
        except ValueError:
            return ()
        return (password,) if password else ()

    def file(self) -> FailureFile:
        """Return the file of the task that runs here."""
        filesystem, folder = self._open()
        there: Any = filesystem.get_file_info(f"{folder}/{self._no_rows}")
        if there.type is not pafs.FileType.File:
            raise ConfigurationError(
                "failuresPath is not the same folder on the driver and on the workers: give one that they share."
            )
        job, task = self._job_and_task()
        return FailureFile(filesystem, folder, f"failed-{job}-{task:05d}.parquet", job)

    def remove_rest(self, jobs: Collection[str | None], tasks: int) -> None:
        """Remove the files of a micro-batch that ran before with more tasks. Call it on the driver."""
        if not self.is_stream:
            return  # no other write has files of the same name
        try:
            filesystem, folder = self._open()
            for each in filesystem.get_file_info(pafs.FileSelector(folder)):
                found = _FILE.fullmatch(each.base_name)
                if found and found["job"] in jobs and int(found["task"]) >= tasks:
                    filesystem.delete_file(each.path)
        except OSError as error:
            why = in_words(error, self.secrets)
            text = f"Rows of the first run of a repeated micro-batch may remain in failuresPath: {why}"
            log_on_driver(_LOG, logging.WARNING, text)

    @property
    def _no_rows(self) -> str:
        # Each write has its own, because a worker's folder may hold the files of an earlier write.
        return f"no-rows-{self.job}.parquet"

    def _open(self) -> tuple[Any, str]:
        if self.path.startswith("/"):
            return pafs.LocalFileSystem(), self.path.rstrip("/") or "/"
        if self.path.startswith("file:"):
            return pafs.LocalFileSystem(), "/" + self.path.removeprefix("file:").strip("/")
        filesystem, folder = pafs.FileSystem.from_uri(self.path)
        return filesystem, folder.rstrip("/")

    def _job_and_task(self) -> tuple[str, int]:
        context = TaskContext.get()
        if context is None:
            return self.job, 0
        properties = local_properties()
        batch = [properties[name] for name in _STREAM if name in properties]
        job = "-".join(batch) if self.is_stream and len(batch) == len(_STREAM) else self.job
        return job, context.partitionId()


class FailureFile:
    """The rows of one task that failed: a Parquet file that appears when it is finished, and replaces an older one."""

    def __init__(self, filesystem: Any, folder: str, name: str, job: str) -> None:
        self.job = job
        self._filesystem = filesystem
        self._path = f"{folder}/{name}"
        # An object store shows a file when it is complete. In a folder, the file gets its name only then: Spark ignores
        # names that begin with an underscore.
        is_local = isinstance(filesystem, pafs.LocalFileSystem)
        self._written = f"{folder}/_{uuid4().hex}-{name}" if is_local else self._path
        self._writer: Any = None
        self._waiting: list[pa.Table] = []
        self._count = 0

    def add(self, rows: pa.RecordBatch | pa.Table, outcomes: Sequence[Outcome]) -> None:
        """Write rows, with an outcome each."""
        table: Any = rows if isinstance(rows, pa.Table) else pa.Table.from_batches([rows])
        values = zip(*((each.status.value, each.condition, each.description) for each in outcomes), strict=True)
        for name, column in zip(OUTCOME_COLUMNS, values if outcomes else ((), (), ()), strict=True):
            table = table.append_column(name, pa.array(column, pa.string()))
        self._waiting.append(table)
        self._count += len(outcomes)
        if self._count >= _ROWS_AT_ONCE:
            self._flush()

    def finish(self) -> None:
        """Publish the rows; without any, remove those of an earlier attempt."""
        self._flush()
        if self._writer is None:
            if self._filesystem.get_file_info(self._path).type is not pafs.FileType.NotFound:
                self._filesystem.delete_file(self._path)
            return
        self._writer.close()
        if self._written != self._path:
            self._filesystem.move(self._written, self._path)

    def discard(self) -> None:
        """Drop the rows, because the task failed; another attempt writes them again."""
        if self._writer is not None:
            self._writer.close()
            self._filesystem.delete_file(self._written)

    def _flush(self) -> None:
        if not self._waiting:
            return
        rows, self._waiting, self._count = pa.concat_tables(self._waiting), [], 0
        if self._writer is None:
            self._writer = parquet.ParquetWriter(self._written, rows.schema, filesystem=self._filesystem)
        self._writer.write_table(rows)


def _without_outcomes(schema: StructType) -> StructType:
    return StructType([field for field in schema.fields if field.name not in OUTCOME_COLUMNS])
