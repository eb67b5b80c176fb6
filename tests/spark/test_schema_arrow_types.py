"""The types that Spark and Arrow agree on; make check-spark runs it with older versions of Spark."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import PySparkTypeError
from pyspark.sql.types import DataType, LongType, StructField, StructType, TimestampType

from sbnotebook.spark.schema import arrow_schema_for


def test_arrow_types_have_times_in_utc() -> None:
    utc: Any = pa.timestamp("us", "UTC")
    schema = arrow_schema_for(StructType([StructField("at", TimestampType()), StructField("number", LongType())]))
    assert schema.equals(pa.schema([("at", utc), ("number", pa.int64())]))


def test_arrow_type_raises_for_unsupported_types() -> None:
    with pytest.raises(PySparkTypeError):
        arrow_schema_for(StructType([StructField("x", DataType())]))
