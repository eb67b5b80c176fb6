"""Reading an entity into a frame by peeking: nothing is locked, and nothing is removed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader

from sbnotebook.client.portal import run
from sbnotebook.client.scrubbing import scrubbed
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.spark.options import ReadOptions
from sbnotebook.spark.range_reader import read_ranges
from sbnotebook.spark.schema import MessageBatches
from sbnotebook.spark.sequence_ranges import SequenceRange, next_number_of, plan_ranges

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
        target = options.namespace
        with scrubbed(target.secrets):
            return run(self._plan, whole, AsyncNamespace(target.connection(), archive=None))

    async def _plan(self, whole: SequenceRange, namespace: AsyncNamespace) -> list[SequenceRange]:
        async with namespace:
            next_number = next_number_of(namespace.entity(self._options.entity))
            return await plan_ranges(self._options.partitions, whole, next_number)

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        """Peek one range."""
        options = self._options
        with scrubbed(options.namespace.secrets):
            yield from read_ranges(
                options.namespace,
                options.entity,
                [partition],
                MessageBatches(self._schema),
                max_messages=options.max_messages,
                state=options.state,
            )
