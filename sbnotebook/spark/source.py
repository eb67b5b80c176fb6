"""The data source that Spark knows as ``servicebus``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import TYPE_CHECKING, ClassVar, Concatenate, NoReturn, ParamSpec, TypeVar

import pyspark
from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
)

from sbnotebook.errors import ConfigurationError
from sbnotebook.spark.shipping import Shipped

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from sbnotebook.analysis.decoders import Decoder
    from sbnotebook.client.targets import NamespaceTarget
    from sbnotebook.model.connection_strings import Hidden
    from sbnotebook.spark.peek_reader import PeekReader
    from sbnotebook.spark.send_writer import SendWriter
    from sbnotebook.spark.settle_writer import SettleWriter

Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")


def _with_clear_errors(
    method: Callable[Concatenate[ServiceBusDataSource, Arguments], Result],
) -> Callable[Concatenate[ServiceBusDataSource, Arguments], Result]:
    """Raise the errors of a method without secrets, and as sentences that say what to do."""

    @wraps(method)
    def run(self: ServiceBusDataSource, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        from sbnotebook.spark.options import secrets_in
        from sbnotebook.spark.scrubbing import scrubbed

        with scrubbed(secrets_in(self.given())):
            try:
                return method(self, *args, **kwargs)
            except ImportError as error:
                if not (error.name or "").startswith("pyspark"):
                    raise
                least = "4.1" if "writer" in method.__name__.lower() else "4.2"
                raise ConfigurationError(
                    f"The Spark here, {pyspark.__version__}, is too old for this: it needs Spark {least} or newer."
                ) from None

    return run


class RefusedStream(DataSourceStreamReader):
    """A stream that cannot be: Spark hides an error of ``streamReader`` behind an UnboundLocalError of its own.

    Source: ``pyspark.sql.streaming.python_streaming_source_runner`` of Spark 4.3, whose ``finally`` stops the reader.
    """

    def __init__(self, error: ConfigurationError) -> None:
        self._error = error

    def _refuse(self, *_: object) -> NoReturn:
        raise self._error

    initialOffset = latestOffset = partitions = read = _refuse  # noqa: N815 (Spark's names)  # pyright: ignore[reportAssignmentType]


class ServiceBusDataSource(Shipped, DataSource):
    """``format("servicebus")``: its options are in :mod:`sbnotebook.spark.options`.

    This module is imported at the first look-up of any data source, so it imports the rest only when it is used.
    """

    connection_strings: ClassVar[Mapping[str, NamespaceTarget]] = {}
    decoders: ClassVar[Mapping[str, Decoder]] = {}

    def given(self) -> dict[str, Hidden | NamespaceTarget]:
        """Return the options by lower-case names, with the connection string that was registered for the namespace."""
        from sbnotebook.model.connection_strings import Hidden
        from sbnotebook.spark.options import hidden_options

        if self.decoders:
            from sbnotebook.analysis.decoding import decoder as give_name

            for name, decoder in self.decoders.items():  # Spark plans in another process
                give_name(name, decoder)
        options = hidden_options(self.options)
        host = options.get("fullyqualifiednamespace")
        registered = self.connection_strings.get(host.reveal().lower()) if isinstance(host, Hidden) else None
        if registered is not None and "credential" not in options:
            del options["fullyqualifiednamespace"]
            options["connectionstring"] = registered
        return options

    @classmethod
    def name(cls) -> str:
        """Return the name for ``format(…)``."""
        return "servicebus"

    @_with_clear_errors
    def schema(self) -> StructType:
        """Return all message columns. Spark asks at ``load()``, so wrong options and entities are refused there."""
        from sbnotebook.spark.options import read_or_stream
        from sbnotebook.spark.schema import message_schema
        from sbnotebook.spark.task_context import check_place

        options = read_or_stream(self.given())
        check_place(options)
        return message_schema(options.decode)

    @_with_clear_errors
    def reader(self, schema: StructType) -> PeekReader:
        """Return a reader that peeks."""
        from sbnotebook.spark.options import ReadOptions
        from sbnotebook.spark.peek_reader import PeekReader

        return PeekReader(ReadOptions.parse(self.given()), schema)

    @_with_clear_errors
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """Return a stream that browses or consumes, or one that raises why it cannot."""
        from sbnotebook.spark.browse_stream import BrowseStream
        from sbnotebook.spark.consume_stream import ConsumeStream
        from sbnotebook.spark.options import StreamOptions

        try:
            options = StreamOptions.parse(self.given())
            return (ConsumeStream if options.consumes else BrowseStream)(options, schema)
        except ConfigurationError as error:
            return RefusedStream(error)

    @_with_clear_errors
    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """Return a writer that sends or settles."""
        if overwrite:
            raise ConfigurationError('Messages can only be added to an entity: write.mode("append").')
        return self._writer(schema, is_stream=False)

    @_with_clear_errors
    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: N802
        """Return a writer that sends or settles each micro-batch."""
        if overwrite:
            raise ConfigurationError('Messages can only be added to an entity: outputMode("append").')
        return self._writer(schema, is_stream=True)

    def _writer(self, schema: StructType, *, is_stream: bool) -> SendWriter | SettleWriter:
        from sbnotebook.spark.options import WriteOptions
        from sbnotebook.spark.send_writer import SendWriter
        from sbnotebook.spark.settle_writer import SettleWriter
        from sbnotebook.spark.task_context import check_place

        options = WriteOptions.parse(self.given())
        kind = SendWriter if options.sends else SettleWriter
        writer = kind(options, schema, is_stream=is_stream)
        check_place(options)
        return writer
