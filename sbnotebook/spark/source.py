"""The data source that Spark knows as ``servicebus``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from sbnotebook.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sbnotebook.spark.peek_reader import PeekReader
    from sbnotebook.spark.send_writer import SendWriter

__all__ = ["ServiceBusDataSource"]


class ServiceBusDataSource(DataSource):
    """``format("servicebus")``: its options are in :mod:`sbnotebook.spark.options`.

    This module is imported at the first look-up of any data source, so it imports the rest only when it is used.
    """

    @classmethod
    def name(cls) -> str:
        """What stands in ``format(…)``."""
        return "servicebus"

    def schema(self) -> StructType:
        """All message columns. Spark asks at ``load()``, so that wrong options are refused there."""
        from sbnotebook.spark.options import ReadOptions
        from sbnotebook.spark.schema import message_schema

        ReadOptions.parse(self.options)
        return message_schema()

    def reader(self, schema: StructType) -> PeekReader:
        """Read by peeking.

        Args:
            schema: the columns that the user wants.
        """
        from sbnotebook.spark.options import ReadOptions
        from sbnotebook.spark.peek_reader import PeekReader

        return PeekReader(ReadOptions.parse(self.options), schema)

    def writer(self, schema: StructType, overwrite: bool) -> SendWriter:  # noqa: ARG002 (any columns can be sent)
        """Write by sending.

        Args:
            schema: the frame's columns.
            overwrite: whether what is there shall be replaced.

        Raises:
            ConfigurationError: it shall, which cannot be.
        """
        from sbnotebook.spark.options import WriteOptions
        from sbnotebook.spark.send_writer import SendWriter

        if overwrite:
            raise ConfigurationError('Messages can only be added to an entity: write.mode("append").')
        return SendWriter(WriteOptions.parse(self.options))
