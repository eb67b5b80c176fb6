"""Reading an entity into a frame by peeking: nothing is locked, and nothing is removed."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader

from sbnotebook.client.portal import run
from sbnotebook.settlement import AsyncEntity, AsyncNamespace
from sbnotebook.spark.options import ReadOptions
from sbnotebook.spark.schema import MessageBatches
from sbnotebook.spark.scrubbing import scrubbed
from sbnotebook.spark.sequence_ranges import SequenceRange, plan_ranges

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

__all__ = ["PeekReader"]


class PeekReader(DataSourceReader):
    """Reads what an entity holds when the rows are needed: anew for each action, the same again for a repeated task.

    Messages that are removed in the meantime are missing then, and new ones are there; ``persist()`` keeps a frame
    as it was read. It is pickled and sent to the workers, so it holds no connection.

    Args:
        options: what is read.
        schema: the message columns that are wanted.

    Raises:
        ConfigurationError: the schema has other columns than messages have.
    """

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        MessageBatches(schema)  # refuses it here, not in each worker

    def partitions(self) -> list[SequenceRange]:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Cut what is read into as many ranges as were asked for. Spark does this once for each ``load()``."""
        options = self._options
        whole = SequenceRange(options.from_sequence_number, options.to_sequence_number)
        if options.partitions == 1:
            return [whole]
        with self._entity() as entity:

            async def next_number(number: int) -> int | None:
                page = await entity.peek(1, from_sequence_number=number)
                return page[0].sequence_number if page else None

            return run(plan_ranges, options.partitions, whole, next_number)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Peek one range, a record batch for each page that the service gives."""
        options, batches = self._options, MessageBatches(self._schema)
        with self._entity() as entity:
            pages = entity.pages(
                from_sequence_number=partition.first,
                to_sequence_number=partition.last,
                max_messages=options.max_messages,
                state=options.state,
            )
            while page := run(anext, pages, None):
                yield batches.of(page)

    @contextmanager
    def _entity(self) -> Generator[AsyncEntity]:
        target = self._options.namespace
        with scrubbed(target.secrets):
            namespace = AsyncNamespace(target.connection())
            try:
                yield namespace.entity(self._options.entity)
            finally:
                run(namespace.close)
