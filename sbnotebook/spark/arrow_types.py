"""Spark's types as those of Arrow that it hands to Python, with the time zone UTC."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql.pandas.types import to_arrow_schema, to_arrow_type

if TYPE_CHECKING:
    from pyspark.sql.types import DataType, StructType

__all__ = ["arrow_schema", "arrow_type"]


def arrow_schema(schema: StructType) -> Any:
    """The schema of Arrow for one of Spark.

    Raises:
        PySparkTypeError: Spark does not hand one of the types to Python.
    """
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # before Spark 4.2 the time zone cannot be given, and is UTC
        return to_arrow_schema(schema)


def arrow_type(kind: DataType) -> Any:
    """The type of Arrow for one of Spark.

    Raises:
        PySparkTypeError: Spark does not hand such a type to Python.
    """
    try:
        return to_arrow_type(kind, timezone="UTC")
    except TypeError:
        return to_arrow_type(kind)
