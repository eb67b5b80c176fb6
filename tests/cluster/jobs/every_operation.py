"""Writes, reads, consumes and settles on a cluster; prints the results, in JSON."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

import sbnotebook as sb
from sbnotebook.spark import register

COUNT = 200


def main() -> None:
    """Do each with all messages."""
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    with sb.connect("env:SERVICEBUS") as namespace:
        register(spark, os.environ["SERVICEBUS"])
        options = {"entity": "orders", "fullyQualifiedNamespace": namespace.host}
        said: dict[str, Any] = {"places": places(spark)}
        said["wrote"] = write(spark, options)
        said["read"] = read(spark, options)
        said["consumed"] = consume(spark, options)
        said["settled"] = settle(spark, namespace)
    sys.stdout.write(json.dumps(said) + "\n")
    spark.stop()


def places(spark: SparkSession) -> list[str]:
    """Return from where workers import sbnotebook."""

    def place(_: int) -> str:
        import sbnotebook.spark

        return sbnotebook.spark.__file__

    numbers: Any = spark.sparkContext.parallelize(range(20), 20)
    return sorted(set(numbers.map(place).collect()))


def write(spark: SparkSession, options: dict[str, str]) -> int:
    """Send, in two tasks."""
    rows = spark.range(COUNT).selectExpr("concat('m', id) AS message_id", "concat('body ', id) AS body")
    rows.repartition(2).write.format("servicebus").options(**options).mode("append").save()
    return COUNT


def read(spark: SparkSession, options: dict[str, str]) -> list[str]:
    """Peek, in two tasks."""
    frame = spark.read.format("servicebus").options(**options, partitions=2).load()
    return sorted(row.message_id for row in frame.select("message_id").collect())


def consume(spark: SparkSession, options: dict[str, str]) -> list[str]:
    """Take all messages out, in micro-batches of two tasks."""
    taken: dict[int, list[str]] = {}

    def keep(frame: DataFrame, batch: int) -> None:
        taken[batch] = [row.message_id for row in frame.select("message_id").collect()]

    stream = spark.readStream.format("servicebus").options(**options, mode="consume", partitions=2)
    writer = stream.option("maxMessagesPerTrigger", COUNT // 2).load().writeStream.foreachBatch(keep)
    writer.option("checkpointLocation", str(Path("checkpoint").absolute())).trigger(
        availableNow=True
    ).start().awaitTermination()
    return sorted(each for ids in taken.values() for each in ids)


def settle(spark: SparkSession, namespace: sb.Namespace) -> dict[str, int]:
    """Complete deferred messages, by the rows of a frame."""
    queue = namespace.entity("orders")
    queue.send((sb.Message(message_id=f"s{n}") for n in range(COUNT)), show_progress=False).raise_for_failures()
    queue.defer_all(show_progress=False).apply(show_progress=False).raise_for_failures()
    numbers = [(message.sequence_number, "complete") for message in queue.peek(show_progress=False)]
    rows = spark.createDataFrame(numbers, "sequence_number long, decision string").repartition(2)
    outcomes = namespace.settle_frame(rows, entity="orders", archived=False, show_progress=False)
    return {row.status: row["count"] for row in outcomes.groupBy("status").count().collect()}


if __name__ == "__main__":
    main()
