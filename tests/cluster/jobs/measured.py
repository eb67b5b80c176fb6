"""Carries out ``OPERATIONS`` with ``COUNT`` messages, and prints a line of JSON for each, with the times of its ends.

``benchmarks/spark_on_cluster.py`` starts it, and looks at the memory of the processes meanwhile.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from pyspark.sql import SparkSession

import sbnotebook as sb
from sbnotebook.spark import register

COUNT = int(os.environ["COUNT"])
ROUNDS = int(os.environ["ROUNDS"])
NAMES = os.environ["OPERATIONS"].split(",")
QUEUE = "measured"
DEFER = f"""
import sbnotebook as sb
with sb.connect("env:SERVICEBUS") as namespace:
    namespace.entity("{QUEUE}").defer_all(show_progress=False).apply(show_progress=False).raise_for_failures()
"""
"""Defers all messages: in a process of its own, whose memory is not that of the driver."""


def main() -> None:
    """Do each in turn, ``ROUNDS`` times; a round with few messages before them starts what starts once."""
    spark = SparkSession.builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark, os.environ["SERVICEBUS"])
    with sb.connect("env:SERVICEBUS") as namespace:
        namespace.create_queue(QUEUE)
        operations = Operations(spark, namespace)
        for count in [2_000, *[COUNT] * ROUNDS]:
            for name in NAMES:
                began, ended = operations.measure(name, count)
                sys.stdout.write(json.dumps([name, count, began, ended]) + "\n")
                sys.stdout.flush()
    spark.stop()


class Operations:
    """The operations on one queue.

    Args:
        spark: a session on a cluster.
        namespace: an emulator's.
    """

    def __init__(self, spark: SparkSession, namespace: sb.Namespace) -> None:
        self._spark, self._namespace = spark, namespace
        self._options = {"entity": QUEUE, "fullyQualifiedNamespace": namespace.host}

    def measure(self, name: str, count: int) -> tuple[float, float]:
        """Carry one out; return when it began and ended.

        Args:
            name: of the operation, and how many tasks it has, or how it delivers.
            count: of messages.
        """
        operation, how = name.split()
        queue = self._namespace.entity(QUEUE)
        if operation != "write" and not queue.peek(1, show_progress=False):
            self.write(count, 2)
        if operation == "settle":
            subprocess.run([sys.executable, "-c", DEFER], check=True)
        began = time.time()
        match operation:
            case "write":
                self.write(count, int(how))
            case "read":
                self.read(int(how))
            case "consume":
                self.consume(how)
            case _:
                self.settle(int(how))
        return began, time.time()

    def write(self, count: int, tasks: int) -> None:
        """Send messages of 500 bytes: a million of 1 kB would just fit into a queue."""
        rows = self._spark.range(0, count, numPartitions=tasks)
        rows = rows.selectExpr("concat('m', id) AS message_id", "repeat('x', 500) AS body_text")
        rows.write.format("servicebus").options(**self._options).mode("append").save()

    def read(self, partitions: int) -> None:
        """Peek at all, and drop the rows."""
        frame = self._spark.read.format("servicebus").options(**self._options, partitions=partitions).load()
        frame.write.format("noop").mode("overwrite").save()

    def consume(self, delivery: str) -> None:
        """Take all messages out, and drop the rows."""
        with TemporaryDirectory(dir=Path.home()) as folder:
            stream = self._spark.readStream.format("servicebus").options(**self._options, mode="consume")
            messages = stream.options(partitions=2, delivery=delivery).load()
            writer = messages.writeStream.format("noop").option("checkpointLocation", folder)
            writer.trigger(availableNow=True).start().awaitTermination()
        self._must_be_empty()

    def settle(self, tasks: int) -> None:
        """Complete all, which are deferred."""
        options = self._options | {"state": "deferred", "partitions": str(tasks)}
        frame = self._spark.read.format("servicebus").options(**options).load()
        rows = frame.selectExpr("sequence_number", "'complete' AS decision")
        writer = rows.write.format("servicebus").options(**self._options, operation="settle", archive=False)
        writer.mode("append").save()
        self._must_be_empty()

    def _must_be_empty(self) -> None:
        if self._namespace.entity(QUEUE).peek(1, show_progress=False):
            raise RuntimeError("Messages are left.")


if __name__ == "__main__":
    main()
