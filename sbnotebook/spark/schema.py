"""The message columns as Spark sees them, and Spark's types as Arrow hands them to Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from sbnotebook.amqp.sections import APPLICATION_PROPERTIES, DATA, PROPERTIES, SECTIONS
from sbnotebook.analysis.page_columns import PageColumns
from sbnotebook.errors import ConfigurationError
from sbnotebook.model.schema import COLUMNS, Column, ColumnType

if TYPE_CHECKING:
    from sbnotebook.model.budget import Allowance
    from sbnotebook.settlement import Page, PeekCursor

_TYPES: Final[dict[ColumnType, DataType]] = {
    ColumnType.STRING: StringType(),
    ColumnType.INT: IntegerType(),
    ColumnType.LONG: LongType(),
    ColumnType.TIMESTAMP: TimestampType(),
    ColumnType.BINARY: BinaryType(),
    ColumnType.STRING_MAP: MapType(StringType(), StringType()),
}
_COLUMNS: Final = {column.name: column for column in COLUMNS}
_FROM_SERVICE: Final = (
    "entity", "sequence_number", "enqueued_sequence_number", "partition_key", "enqueued_time",
    "scheduled_enqueue_time", "locked_until", "delivery_count", "state", "dead_letter_source",
)  # fmt: skip
_FROM_PROPERTIES: Final = (
    "message_id", "session_id", "correlation_id", "subject", "content_type", "content_encoding", "to", "reply_to",
    "reply_to_session_id", "expires_at", "time_to_live_ms",
)  # fmt: skip
_FROM_APPLICATION_PROPERTIES: Final = (
    "dead_letter_reason", "dead_letter_error_description", "resubmit_count", "application_properties",
    "application_property_types",
)  # fmt: skip
_SECTIONS: Final = (
    dict.fromkeys(_FROM_SERVICE, frozenset[int]())
    | dict.fromkeys(_FROM_PROPERTIES, frozenset((PROPERTIES,)))
    | dict.fromkeys(_FROM_APPLICATION_PROPERTIES, frozenset((APPLICATION_PROPERTIES,)))
    | {"body": frozenset((DATA,)), "body_type": frozenset((DATA,))}
    | {"body_text": frozenset((PROPERTIES, APPLICATION_PROPERTIES, DATA))}
)
"""The sections of a message that each column is made of; a column that is not here needs all of them."""
_SHOWN: Final = 80


def message_schema() -> StructType:
    """Return all message columns in their order; each can be null.

    Example:
        >>> message_schema()["sequence_number"].dataType.simpleString()
        'bigint'
    """
    return StructType([StructField(column.name, _TYPES[column.type]) for column in COLUMNS])


class MessageBatches:
    """Arrow batches of messages with the columns that a user chose.

    Args:
        schema: all message columns, or those of them that the user wants.

    Raises:
        ConfigurationError: there is no such column, or it has another type.
    """

    def __init__(self, schema: StructType) -> None:
        columns = [_column(field) for field in schema.fields]
        self.sections = frozenset[int]().union(*(_SECTIONS.get(column.name, SECTIONS) for column in columns))
        """The sections of a message that these columns need: see :func:`peeked_from_payload`."""
        # Spark compares each batch with this very schema.
        self._schema: Any = arrow_schema_for(schema)
        self._pages = PageColumns(columns, self._schema, self.sections)

    def of_page(self, page: Page, cursor: PeekCursor, unpacking: Allowance) -> pa.RecordBatch:
        """Return the wanted messages of a page as a batch: see :meth:`PageColumns.taken`."""
        return self._pages.taken(page, cursor, unpacking)

    def together(self, batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Return batches as one, or as few where it would be too large for Arrow."""
        table: Any = pa.Table.from_batches(batches, schema=self._schema)
        return table.combine_chunks().to_batches()


def _column(field: StructField) -> Column:
    column = _COLUMNS.get(field.name)
    if column is None:
        raise ConfigurationError(f"There is no message column {field.name[:_SHOWN]!r}: {', '.join(_COLUMNS)}.")
    if field.dataType != _TYPES[column.type] or not field.nullable:
        kind = _TYPES[column.type].simpleString()
        raise ConfigurationError(f"The message column {field.name} is a {kind} that can be null.")
    return column


def arrow_schema_for(schema: StructType) -> Any:
    """Return the Arrow schema for one of Spark, with times in UTC."""
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # before Spark 4.2 the time zone cannot be given, and is UTC
        return to_arrow_schema(schema)


def arrow_type(kind: DataType) -> Any:
    """Return the Arrow type for one of Spark, with times in UTC."""
    try:
        return to_arrow_type(kind, timezone="UTC")
    except TypeError:
        return to_arrow_type(kind)
