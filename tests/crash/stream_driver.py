"""A driver that streams an entity into Parquet until it is killed or told to stop, and says what happens.

Run with a job, a dict in JSON: see :class:`Job`. It prints what happens, a line in JSON each: ``started``, ``ended``
(of an available-now run), ``failed`` with the reason. A query that failed, or that ended, is started again with the
same checkpoint. A line on its input stops it: then it writes the rows that the sink holds, as Spark reads them, to
``rows.json``, and ends.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, sha2

from sbnotebook.spark import register

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


@dataclass
class Job:
    """The stream and its options.

    Args:
        connection_string: of the emulator.
        options: of the stream, the entity too.
        directory: where the checkpoint, the output and the rows are.
        master: Spark's.
        is_available_now: whether it runs again and again until nothing is left, or always.
    """

    connection_string: str
    options: dict[str, str]
    directory: str
    master: str
    is_available_now: bool

    @property
    def output(self) -> str:
        """Where the messages go."""
        return str(Path(self.directory, "output"))

    @property
    def checkpoint(self) -> str:
        """The offset from which the stream continues."""
        return str(Path(self.directory, "checkpoint"))


def say(what: str, reason: str = "") -> None:
    """Tell the process that started this one."""
    sys.stdout.write(json.dumps({"what": what, "reason": reason}) + "\n")
    sys.stdout.flush()


def started(master: str) -> SparkSession:
    """A small session."""
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(master).appName("crash")
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "600m",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    register(spark)
    return spark


def query_of(spark: SparkSession, job: Job) -> StreamingQuery:
    """The stream, from where the checkpoint is."""
    reader = spark.readStream.format("servicebus").option("connectionString", job.connection_string)
    messages: DataFrame = reader.options(**job.options).load()
    writer = messages.writeStream.format("parquet").option("checkpointLocation", job.checkpoint)
    trigger: dict[str, Any] = {"availableNow": True} if job.is_available_now else {"processingTime": "0 seconds"}
    return writer.trigger(**trigger).start(job.output)


def run_once(spark: SparkSession, job: Job, stopped: threading.Event) -> None:
    """One query until it ends, fails, or is stopped."""
    try:
        query = query_of(spark, job)
        while not query.awaitTermination(0.2):  # pyright: ignore[reportArgumentType] - Spark's hint is too narrow
            if stopped.is_set():
                query.stop()
    except (PySparkException, Py4JError) as error:
        say("failed", str(error))
    else:
        say("ended")


def write_rows(spark: SparkSession, job: Job) -> None:
    """What the sink holds: of its files, Spark reads those that its log names."""
    columns = ["message_id", "sequence_number", "delivery_count", sha2(col("body"), 256).alias("digest")]
    rows = [row.asDict() for row in spark.read.parquet(job.output).select(*columns).collect()]
    Path(job.directory, "rows.json").write_text(json.dumps(rows))


def main(job: Job) -> None:
    """Do the job."""
    stopped = threading.Event()

    def listen() -> None:
        sys.stdin.readline()
        stopped.set()

    threading.Thread(target=listen, daemon=True).start()
    spark = started(job.master)
    say("started")
    while not stopped.is_set():
        run_once(spark, job, stopped)
    write_rows(spark, job)
    spark.stop()


if __name__ == "__main__":
    main(Job(**json.loads(sys.argv[1])))
