"""The columns of a frame that is sent, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from pyspark.errors import PySparkTypeError
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    CharType,
    DataType,
    DoubleType,
    FloatType,
    IntegralType,
    MapType,
    NullType,
    StringType,
    StructType,
    TimestampType,
    VarcharType,
)

from sbnotebook.errors import ConfigurationError, near_match
from sbnotebook.model.schema import COLUMNS, SENT_COLUMNS, ColumnType
from sbnotebook.spark.failed_rows import OUTCOME_COLUMNS
from sbnotebook.spark.schema import arrow_type

__all__ = ["check_sent_columns"]

_TEXT: Final = (StringType, CharType, VarcharType)
_VALUES: Final = (*_TEXT, BooleanType, IntegralType, FloatType, DoubleType, BinaryType, TimestampType)
_BODIES: Final = ("body", "body_text")
_KAFKA: Final = frozenset(
    ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers", "includeHeaders")
)
"""Source: Spark's documentation, "Structured Streaming + Kafka Integration Guide"."""
_SHOWN: Final = 80
_ALIKE: Final = 0.85


def check_sent_columns(schema: StructType) -> None:
    """Refuse a frame whose rows cannot be sent as the user means them.

    Args:
        schema: the frame's.

    Raises:
        ConfigurationError: a message column has a wrong type, a column would be lost, or there is nothing that could be
            a body.

    Example:
        >>> check_sent_columns(StructType().add("message_id", "string").add("carrier", "string"))
        >>> check_sent_columns(StructType().add("message_id", "long").add("carrier", "string"))
        Traceback (most recent call last):
        ...
        sbnotebook.errors.ConfigurationError: The column message_id has the type bigint, but it must be a string: ...
    """
    names = [field.name for field in schema.fields]
    for name in names:
        if names.count(name) > 1:
            raise ConfigurationError(f"There are several columns {name[:_SHOWN]}: rename or drop all but one.")
    for field in schema.fields:
        _check_type(field.name, field.dataType)
    others = [name for name in names if name not in SENT_COLUMNS and name not in OUTCOME_COLUMNS]
    if any(name in _BODIES for name in names):
        _refuse_misspelt(others)
        return
    _refuse_misspelt_body(others)
    _refuse_columns_of_kafka(others)
    if not others:
        raise ConfigurationError(
            "The frame has nothing to send: give it a column body or body_text, or other columns, of which a JSON body "
            "is made."
        )


def _check_type(name: str, kind: DataType) -> None:
    if name in SENT_COLUMNS and not isinstance(kind, NullType):
        holds, fits = _KINDS[name]
        if not fits(kind):
            shown = kind.simpleString()[:_SHOWN]
            raise ConfigurationError(f"The column {name} has the type {shown}, but it must be {holds}: cast it.")
    try:
        with suppress(ValueError):  # an empty map, which Spark passes on
            arrow_type(kind)
    except PySparkTypeError:
        shown = kind.simpleString()[:_SHOWN]
        raise ConfigurationError(
            f"The column {name[:_SHOWN]} cannot be sent: Spark does not hand a {shown} to Python."
        ) from None


def _refuse_misspelt(others: list[str]) -> None:
    """Refuse names such as messageId: beside a body, such a column would not be sent."""
    for name in others:
        near = near_match(name, SENT_COLUMNS, cutoff=_ALIKE)
        if near:
            raise ConfigurationError(
                f"The column {name[:_SHOWN]} is not a message column and would not be sent: "
                f"rename it to {near}, or drop it."
            )


def _refuse_misspelt_body(others: list[str]) -> None:
    """Refuse names such as Body or bodyText: without a body, such a column would become a part of a JSON body."""
    plain = {column.replace("_", ""): column for column in _BODIES}
    for name in others:
        meant = plain.get(name.lower().replace("_", ""))
        if meant is not None:
            raise ConfigurationError(
                f"The column {name[:_SHOWN]} would become a part of a JSON body: rename it to {meant}, or to something "
                "else if it is to be a part."
            )


def _refuse_columns_of_kafka(others: list[str]) -> None:
    """Refuse a frame for Kafka's sink: its value would become a part of a JSON body, and its key, too."""
    if "value" in others and _KAFKA.issuperset(others):
        raise ConfigurationError(
            f"The columns {', '.join(others)} are those of Kafka, and would become a JSON body: select value AS body, "
            "and key AS partition_key or session_id. For JSON, select to_json(struct(*)) AS body_text."
        )


def _is_map(of: tuple[type[DataType], ...]) -> Callable[[DataType], bool]:
    def fits(kind: DataType) -> bool:
        return (
            isinstance(kind, MapType)
            and isinstance(kind.keyType, _TEXT)
            and isinstance(kind.valueType, (*of, NullType))
        )

    return fits


def _kinds() -> dict[str, tuple[str, Callable[[DataType], bool]]]:
    by_type: dict[ColumnType, tuple[str, Callable[[DataType], bool]]] = {
        ColumnType.STRING: ("a string", lambda kind: isinstance(kind, _TEXT)),
        ColumnType.INT: ("a whole number", lambda kind: isinstance(kind, IntegralType)),
        ColumnType.LONG: ("a whole number", lambda kind: isinstance(kind, IntegralType)),
        ColumnType.TIMESTAMP: ("a timestamp", lambda kind: isinstance(kind, TimestampType)),
        ColumnType.BINARY: ("binary", lambda kind: isinstance(kind, BinaryType)),
        ColumnType.STRING_MAP: ("a map of strings to strings", _is_map(_TEXT)),
    }
    kinds = {column.name: by_type[column.type] for column in COLUMNS}
    kinds["body"] = ("binary or a string", lambda kind: isinstance(kind, (*_TEXT, BinaryType)))
    kinds["application_properties"] = (
        "a map of strings to strings, numbers, booleans, timestamps or binary values",
        _is_map(_VALUES),
    )
    return kinds


_KINDS: Final = _kinds()
