"""Carries out one operation while a test kills processes of the cluster; prints the result, in JSON.

Environment: ``OPERATION``, and ``FOLDER``, which the machines share. After the test has killed the driver, it
starts the same job again.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import sbnotebook as sb
from sbnotebook.spark import register

COUNT = 600
RUNS = 6
LOCK = 5.0


def main() -> None:
    """Do it."""
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark, os.environ["SERVICEBUS"])
    with sb.connect("env:SERVICEBUS") as namespace:
        options = {"entity": "orders", "fullyQualifiedNamespace": namespace.host}
        said = OPERATIONS[os.environ["OPERATION"]](spark, namespace, options)
    sys.stdout.write(json.dumps(said) + "\n")
    spark.stop()


def write(spark: SparkSession, _: sb.Namespace, options: dict[str, str]) -> None:
    """Send, in two tasks."""
    rows = spark.range(COUNT).selectExpr("concat('m', id) AS message_id", "'x' AS body_text").repartition(2)
    rows.write.format("servicebus").options(**options, rate=100).mode("append").save()


def read(spark: SparkSession, _: sb.Namespace, options: dict[str, str]) -> dict[str, int]:
    """Peek, in two tasks."""
    frame = spark.read.format("servicebus").options(**options, partitions=2).load()
    return dict(Counter(row.message_id for row in frame.select("message_id").collect()))


def consume(spark: SparkSession, _: sb.Namespace, options: dict[str, str]) -> dict[str, int]:
    """Take all messages out."""
    folder, delivery = os.environ["FOLDER"], os.environ["OPERATION"]
    stream = spark.readStream.format("servicebus").options(**options, mode="consume", partitions=2, delivery=delivery)
    writer = (
        stream.option("maxMessagesPerTrigger", COUNT // 6).load().select("message_id").writeStream.format("parquet")
    )
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint").trigger(availableNow=True)
    writer.start(f"{folder}/output").awaitTermination()
    return dict(Counter(row.message_id for row in spark.read.parquet(f"{folder}/output").collect()))


def settle(spark: SparkSession, namespace: sb.Namespace, options: dict[str, str]) -> list[str]:
    """Complete deferred messages until none is left; return how each run ended."""
    said: list[str] = []
    for _run in range(RUNS):
        numbers = [(message.sequence_number, "complete") for message in namespace.entity("orders").peek()]
        if not numbers:
            break
        rows = spark.createDataFrame(numbers, "sequence_number long, decision string").repartition(2)
        try:
            writer = rows.write.format("servicebus").mode("append").options(**options, operation="settle")
            writer.options(archive=False, maxInFlight=1).save()
            said.append("settled")
        except PySparkException as error:
            said.append(f"failed: {error}"[:500])
        time.sleep(LOCK)  # until the locks of dead tasks have ended
    return said


OPERATIONS: dict[str, Callable[[SparkSession, sb.Namespace, dict[str, str]], Any]] = {
    "write": write,
    "read": read,
    "exactly-once": consume,
    "at-least-once": consume,
    "settle": settle,
}

if __name__ == "__main__":
    main()
