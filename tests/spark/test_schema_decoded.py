"""Bodies in Avro and in a format of a user as typed columns of Spark."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, datetime
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fastavro
import pyarrow as pa
import pytest
from pyspark.sql.types import StructField, StructType

from sbnotebook.analysis import decoding
from sbnotebook.analysis.avro_bodies import avro_decoder
from sbnotebook.analysis.decoding import decoder
from sbnotebook.client import Namespace
from sbnotebook.errors import ConfigurationError
from sbnotebook.spark import register
from sbnotebook.spark.schema import MessageBatches, message_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

library: Any = fastavro
ORDER: dict[str, Any] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "carrier", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "rates", "type": {"type": "map", "values": "double"}},
        {"name": "key", "type": ["int", "string"]},
    ],
}
AT = datetime(2026, 1, 2, tzinfo=UTC)
TYPE = "struct<carrier:string,at:timestamp,rates:map<string,double>,key:string>"


def avro(carrier: str | None) -> bytes:
    sink = BytesIO()
    value = {"carrier": carrier, "at": AT, "rates": {"EUR": 1.5}, "key": 5}
    library.schemaless_writer(sink, library.parse_schema(ORDER), value)
    return sink.getvalue()


def test_avro_bodies_are_a_typed_column(
    namespace: Namespace, queue: str, read: Callable[..., DataFrame], tmp_path: Path
) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    namespace.entity(queue).send([avro("UA"), b"\x00", avro(None)])
    frame = read(queue, decode=f"avro:{tmp_path}/order.avsc")
    assert frame.schema["decoded"].dataType.simpleString() == TYPE
    rows = frame.selectExpr("decoded.*", "decoded.rates['EUR'] + 1 AS more", "decode_error").collect()
    assert [(row.carrier, row.key, row.more, row.decode_error) for row in rows] == [
        ("UA", "5", 2.5, None),
        (None, None, None, "the body ends in the middle of the value"),
        (None, "5", 2.5, None),
    ]
    assert rows[0]["at"] == AT.astimezone().replace(tzinfo=None)
    assert frame.select("sequence_number").count() == 3


@pytest.mark.thorough
def test_a_stream_that_consumes_decodes(
    namespace: Namespace, queue: str, stream: Callable[..., DataFrame], checkpoint: str, tmp_path: Path
) -> None:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    namespace.entity(queue).send([avro("UA"), b"\x00"])
    frame = stream(queue, mode="consume", decode=f"avro:{tmp_path}/order.avsc").select("decoded.*", "decode_error")
    writer = frame.writeStream.format("parquet").option("checkpointLocation", checkpoint).trigger(availableNow=True)
    writer.start(f"{tmp_path}/out").awaitTermination()
    rows = frame.sparkSession.read.parquet(f"{tmp_path}/out").orderBy("decode_error").collect()
    assert [(row.carrier, row.decode_error) for row in rows] == [
        ("UA", None),
        (None, "the body ends in the middle of the value"),
    ]
    assert len(namespace.entity(queue).peek()) == 0


def lines(body: bytes) -> dict[str, list[str]]:
    return {"items": body.decode().split("|")}


def test_a_decoder_of_the_notebook_goes_to_the_workers(
    spark: SparkSession,
    namespace: Namespace,
    queue: str,
    read: Callable[..., DataFrame],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decoding, "_REGISTERED", {})
    namespace.entity(queue).send(["UA|DL"])
    decoder("lines", lines, schema=pa.schema([("items", pa.list_(pa.string()))]))
    register(spark)
    try:
        (row,) = read(queue, decode="lines").select("decoded.items").collect()
        assert row["items"] == ["UA", "DL"]
    finally:
        monkeypatch.undo()
        register(spark)


def test_the_column_is_as_the_decoder_says() -> None:
    made = avro_decoder(ORDER)
    fields = {field.name: field for field in message_schema(made).fields}
    MessageBatches(StructType([fields["decode_error"], fields["subject"]]), made)
    with pytest.raises(ConfigurationError, match="The column decoded is a struct<carrier"):
        MessageBatches(StructType([StructField("decoded", fields["subject"].dataType)]), made)
    with pytest.raises(ConfigurationError, match="There is no message column 'decoded'"):
        MessageBatches(StructType([fields["decoded"]]))
