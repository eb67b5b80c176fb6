"""The message columns as Spark sees them, and Spark's types as Arrow hands them to Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
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
from sbnotebook.analysis.decoders import DECODE_ERROR, DECODED, NEEDED, Decoder, Decoding
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


def message_schema(decoder: Decoder | None = None) -> StructType:
    """Return all message columns in their order, and those of decoded bodies; each can be null.

    Example:
        >>> message_schema()["sequence_number"].dataType.simpleString()
        'bigint'
    """
    columns = [StructField(column.name, _TYPES[column.type]) for column in COLUMNS]
    return StructType(columns + (_decoded_fields(decoder) if decoder is not None else []))


def _decoded_fields(decoder: Decoder) -> list[StructField]:
    own: Any = decoder.schema
    kind = from_arrow_type(own, prefer_timestamp_ntz=True)
    return [StructField(DECODED, kind), StructField(DECODE_ERROR, StringType())]


class MessageBatches:
    """Arrow batches of messages with the columns that a user chose."""

    def __init__(self, schema: StructType, decoder: Decoder | None = None) -> None:
        fields = [*schema.fields]
        own = {field.name: field for field in (_decoded_fields(decoder) if decoder is not None else ())}
        self._decoder = decoder if any(field.name in own for field in fields) else None
        if self._decoder is not None:
            for field in fields:
                _refuse_other(field, own.get(field.name))
            fields = [field for field in fields if field.name not in own]
            names = {field.name for field in fields}
            fields += [StructField(name, _TYPES[_COLUMNS[name].type]) for name in NEEDED if name not in names]
        columns = [_column(field) for field in fields]
        self.sections = frozenset[int]().union(*(_SECTIONS.get(column.name, SECTIONS) for column in columns))
        """The sections of a message that these columns need: see :func:`peeked_from_payload`."""
        # Spark compares each batch with this very schema.
        self._schema: Any = arrow_schema_for(schema)
        read: Any = self._schema if self._decoder is None else arrow_schema_for(StructType(fields))
        self._pages = PageColumns(columns, read, self.sections)

    def of_page(self, page: Page, cursor: PeekCursor, unpacking: Allowance) -> pa.RecordBatch:
        """Return the wanted messages of a page as a batch: see :meth:`PageColumns.taken`."""
        taken: Any = self._pages.taken(page, cursor, unpacking)
        if self._decoder is None:
            return taken
        place = self._schema.get_field_index(DECODED)
        kind: Any = self._schema.field(place).type if place >= 0 else self._decoder.schema
        own = dict(zip((DECODED, DECODE_ERROR), Decoding(self._decoder).columns(taken, kind), strict=True))
        arrays = [own[name] if name in own else taken.column(name) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def together(self, batches: Sequence[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Return batches as one, or as few where it would be too large for Arrow."""
        table: Any = pa.Table.from_batches(batches, schema=self._schema)
        return table.combine_chunks().to_batches()


def _refuse_other(field: StructField, own: StructField | None) -> None:
    if own is not None and (field.dataType, field.nullable) != (own.dataType, own.nullable):
        raise ConfigurationError(f"The column {own.name} is a {own.dataType.simpleString()[:_SHOWN]} that can be null.")


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
