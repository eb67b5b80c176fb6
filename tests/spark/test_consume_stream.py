"""Consuming an entity as a stream, in Spark."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sbnotebook.client import Namespace
from sbnotebook.model import Message

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@pytest.fixture
def consume(spark: SparkSession, connection_string: str) -> Callable[..., DataFrame]:
    """Makes a stream that consumes an entity, with options."""

    def consume(entity: str, **options: Any) -> DataFrame:
        reader = spark.readStream.format("servicebus").option("connectionString", connection_string)
        return reader.options(entity=entity, mode="consume", **options).load()

    return consume


def fill(namespace: Namespace, entity: str, count: int, start: int = 0) -> None:
    assert (
        namespace.entity(entity)
        .send([Message(body=b"%d" % n, message_id=f"m{n}") for n in range(start, start + count)])
        .ok
    )


def test_what_is_there_is_consumed_once_and_to_the_end(
    consume: Callable[..., DataFrame], spark: SparkSession, namespace: Namespace, queue: str, tmp_path: Path
) -> None:
    for start in (0, 250):
        fill(namespace, queue, 250, start)
        stream = consume(queue, maxMessagesPerTrigger=100, partitions=2).writeStream
        query = (
            stream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "c"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        query.awaitTermination()
        assert [each["numInputRows"] for each in query.recentProgress] == [100, 100, 50]
    ids = [row.message_id for row in spark.read.parquet(str(tmp_path / "out")).select("message_id").collect()]
    assert sorted(ids) == sorted(f"m{n}" for n in range(500))
    assert not namespace.entity(queue).peek()
