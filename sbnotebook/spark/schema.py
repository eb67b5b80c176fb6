"""The message columns as Spark sees them, and Spark's types as Arrow hands them to Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, from_arrow_type, to_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from sbnotebook.amqp.sections import APPLICATION_PROPERTIES, DATA, PROPERTIES, SECTIONS
from sbnotebook.analysis.decoders import DECODE_ERROR, DECODED, NEEDED, Decoder, Decoding
from sbnotebook.analysis.frames import arrow_schema
from sbnotebook.analysis.page_columns import PageColumns
from sbnotebook.client.portal import collecting_seldom
from sbnotebook.errors import ConfigurationError
from sbnotebook.model.budget import UNPACKED_BYTES_OF_TABLE, Allowance
from sbnotebook.model.schema import COLUMNS, Column

if TYPE_CHECKING:
    from sbnotebook.settlement import Page, PeekCursor

_COLUMNS: Final = {column.name: column for column in COLUMNS}
_FIELDS: Final[StructType] = from_arrow_schema(arrow_schema())
_SECTIONS: Final = {
    name: frozenset(sections)
    for sections, names in (
        ((), "entity sequence_number enqueued_sequence_number partition_key enqueued_time scheduled_enqueue_time"),
        ((), "locked_until delivery_count state dead_letter_source"),
        ((PROPERTIES,), "message_id session_id correlation_id subject content_type content_encoding to reply_to"),
        ((PROPERTIES,), "reply_to_session_id expires_at time_to_live_ms"),
        ((APPLICATION_PROPERTIES,), "dead_letter_reason dead_letter_error_description resubmit_count"),
        ((APPLICATION_PROPERTIES,), "application_properties application_property_types"),
        ((DATA,), "body body_type"),
        ((PROPERTIES, APPLICATION_PROPERTIES, DATA), "body_text"),
    )
    for name in names.split()
}
"""The sections of a message that each column is made of; a column that is not here needs all of them."""
_FULL, _FULL_BYTES = 2000, 4 << 20
"""Rows and bytes of a batch, about: each one costs Spark some milliseconds, and is in memory as a whole."""
_SHOWN: Final = 80


def message_schema(decoder: Decoder | None = None) -> StructType:
    """Return all message columns in their order, and those of decoded bodies; each can be null.

    Example:
        >>> message_schema()["sequence_number"].dataType.simpleString()
        'bigint'
    """
    return StructType(_FIELDS.fields + (_decoded_fields(decoder) if decoder is not None else []))


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
                if field.name in own:
                    _refuse_other(field, own[field.name])
            fields = [field for field in fields if field.name not in own]
            names = {field.name for field in fields}
            fields += [_FIELDS[name] for name in NEEDED if name not in names]
        columns = [_column(field) for field in fields]
        self.sections = frozenset[int]().union(*(_SECTIONS.get(column.name, SECTIONS) for column in columns))
        """The sections of a message that these columns need: see :func:`peeked_from_payload`."""
        # Spark compares each batch with this very schema.
        self._schema: Any = arrow_schema_for(schema)
        read: Any = self._schema if self._decoder is None else arrow_schema_for(StructType(fields))
        self._pages = PageColumns(columns, read, self.sections)
        self._begin()

    def _begin(self) -> None:
        self._size = self._rows = 0
        self._parts: list[pa.RecordBatch] = []
        self._unpacking = Allowance(UNPACKED_BYTES_OF_TABLE)

    def add(self, page: Page, cursor: PeekCursor) -> list[pa.RecordBatch]:
        """Add the wanted messages of a page: see :meth:`PageColumns.taken`. Return a batch as soon as it is full."""
        with collecting_seldom():  # messages have no cycles, and looking for them took a fifth of the time
            part = self._decoded(self._pages.taken(page, cursor, self._unpacking))
        self._parts.append(part)
        self._rows += part.num_rows
        self._size += sum(map(len, page.payloads))
        return self.rest() if self._rows >= _FULL or self._size >= _FULL_BYTES else []

    def rest(self) -> list[pa.RecordBatch]:
        """Return the messages so far as one batch, or as few where it would be too large for Arrow."""
        parts = self._parts if self._rows else []
        self._begin()
        table: Any = pa.Table.from_batches(parts, schema=self._schema)
        return table.combine_chunks().to_batches() if parts else []

    def _decoded(self, taken: Any) -> pa.RecordBatch:
        if self._decoder is None:
            return taken
        place = self._schema.get_field_index(DECODED)
        kind: Any = self._schema.field(place).type if place >= 0 else self._decoder.schema
        own = dict(zip((DECODED, DECODE_ERROR), Decoding(self._decoder).columns(taken, kind), strict=True))
        arrays = [own[name] if name in own else taken.column(name) for name in self._schema.names]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _refuse_other(field: StructField, own: StructField) -> None:
    if (field.dataType, field.nullable) != (own.dataType, own.nullable):
        raise ConfigurationError(f"The column {own.name} is a {own.dataType.simpleString()[:_SHOWN]} that can be null.")


def _column(field: StructField) -> Column:
    column = _COLUMNS.get(field.name)
    if column is None:
        raise ConfigurationError(f"There is no message column {field.name[:_SHOWN]!r}: {', '.join(_COLUMNS)}.")
    _refuse_other(field, _FIELDS[field.name])
    return column


def arrow_schema_for(schema: StructType) -> Any:
    """Return the Arrow schema for one of Spark, with times in UTC."""
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # before Spark 4.2 the time zone cannot be given, and is UTC
        return to_arrow_schema(schema)
