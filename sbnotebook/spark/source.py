"""The data source that Spark knows as ``servicebus``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, ClassVar, Concatenate, ParamSpec, TypeVar

import pyspark
from pyspark.sql.datasource import DataSource

from sbnotebook.errors import ConfigurationError

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, DataSourceStreamReader
    from pyspark.sql.types import StructType

    from sbnotebook.spark.options import WriteOptions
    from sbnotebook.spark.peek_reader import PeekReader

__all__ = ["ServiceBusDataSource"]

Arguments = ParamSpec("Arguments")
Made = TypeVar("Made")


def _told(
    method: Callable[Concatenate[ServiceBusDataSource, Arguments], Made],
) -> Callable[Concatenate[ServiceBusDataSource, Arguments], Made]:
    """Let the errors of a method out as users shall see them."""

    @wraps(method)
    def run(self: ServiceBusDataSource, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Made:
        from sbnotebook.client.scrubbing import scrubbed
        from sbnotebook.spark.given import secrets_in

        with scrubbed(secrets_in(self.given())):
            try:
                return method(self, *args, **kwargs)
            except ImportError as error:
                if not (error.name or "").startswith("pyspark"):
                    raise
                raise ConfigurationError(
                    f"The Spark here, {pyspark.__version__}, is too old for this: it needs Spark 4.2 or newer."
                ) from None

    return run


class ServiceBusDataSource(DataSource):
    """``format("servicebus")``: its options are in :mod:`sbnotebook.spark.options`.

    This module is imported at the first look-up of any data source, so it imports the rest only when it is used.

    Attributes:
        connection_strings: those that :func:`sbnotebook.spark.register` was given, by the hosts that they are for.
    """

    connection_strings: ClassVar[Mapping[str, str]] = {}

    def given(self) -> dict[str, str]:
        """The options by the lower case of their names, with the connection string of a namespace that is named."""
        options = {name.lower(): value for name, value in self.options.items()}
        text = self.connection_strings.get(options.get("fullyqualifiednamespace", "").strip().lower())
        if text is not None:
            del options["fullyqualifiednamespace"]
            options["connectionstring"] = text
        return options

    @classmethod
    def name(cls) -> str:
        """What stands in ``format(…)``."""
        return "servicebus"

    @_told
    def schema(self) -> StructType:
        """All message columns. Spark asks at ``load()``, so that wrong options are refused there."""
        from sbnotebook.spark.options import check_names
        from sbnotebook.spark.schema import message_schema

        check_names(self.given())
        return message_schema()

    @_told
    def reader(self, schema: StructType) -> PeekReader:
        """Read by peeking.

        Args:
            schema: the columns that the user wants.
        """
        from sbnotebook.spark.options import ReadOptions
        from sbnotebook.spark.peek_reader import PeekReader

        return PeekReader(ReadOptions.parse(self.given()), schema)

    @_told
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Stream by peeking onward, or by consuming.

        Args:
            schema: the columns that the user wants.
        """
        from sbnotebook.spark.browse_stream import BrowseStream
        from sbnotebook.spark.consume_stream import ConsumeStream
        from sbnotebook.spark.options import Mode, StreamOptions

        options = StreamOptions.parse(self.given())
        return (ConsumeStream if options.mode is Mode.CONSUME else BrowseStream)(options, schema)

    @_told
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Write by sending, or by settling.

        Args:
            schema: the frame's columns.
            overwrite: whether what is there shall be replaced.

        Raises:
            ConfigurationError: it shall, which cannot be.
        """
        from sbnotebook.spark.options import Operation
        from sbnotebook.spark.send_writer import SendWriter
        from sbnotebook.spark.settle_writer import SettleWriter

        options = self._to_append('write.mode("append")', overwrite=overwrite)
        return (SettleWriter if options.operation is Operation.SETTLE else SendWriter)(options, schema)

    @_told
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Write each micro-batch by sending, or by settling.

        Args:
            schema: the frame's columns.
            overwrite: whether what is there shall be replaced.

        Raises:
            ConfigurationError: it shall, which cannot be.
        """
        from sbnotebook.spark.options import Operation
        from sbnotebook.spark.send_writer import SendStreamWriter
        from sbnotebook.spark.settle_writer import SettleStreamWriter

        options = self._to_append('outputMode("append")', overwrite=overwrite)
        return (SettleStreamWriter if options.operation is Operation.SETTLE else SendStreamWriter)(options, schema)

    def _to_append(self, said: str, *, overwrite: bool) -> WriteOptions:
        from sbnotebook.spark.options import WriteOptions

        if overwrite:
            raise ConfigurationError(f"Messages can only be added to an entity: {said}.")
        return WriteOptions.parse(self.given())
