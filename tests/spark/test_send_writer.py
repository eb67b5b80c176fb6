from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException, PySparkException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sbnotebook.amqp import Described, Int, Symbol, Timestamp, ULong, type_name
from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.emulator import QueueOptions, RunningEmulator
from sbnotebook.model import Message
from sbnotebook.settlement import Connection
from tests.comparison import differences

Read = Callable[..., DataFrame]
Write = Callable[..., None]


def test_messages_round_trip_through_spark(read: Read, write: Write, namespace: Namespace, queue: str) -> None:
    types = {"n": ULong(7), "i": Int(-1), "at": Timestamp(1), "sym": Symbol("s"), "raw": b"\x00", "none": None}
    messages = [
        Message(body=b"\x00\xff", subject="UA", message_id="first", application_properties=types),
        Message.of_value(Described(Symbol("d"), [1, None]), session_id="s", reply_to="r"),
        Message.of_sequence([1], ["zwei"], content_type="x/y"),
        Message(),
    ]
    assert namespace.entity(queue).send(messages).ok
    namespace.create_queue(f"{queue}-copy")
    write(read(queue), f"{queue}-copy")
    copies = sorted(namespace.entity(f"{queue}-copy").peek(), key=lambda message: message.message_id != "first")
    originals = namespace.entity(queue).peek()
    assert len(copies) == len(originals) == 4
    left = list(copies)
    for original in originals:
        left.remove(next(copy for copy in left if not differences(original, copy)))


def test_frame_without_a_body_is_sent_as_json(
    write: Write, spark: SparkSession, namespace: Namespace, queue: str
) -> None:
    frame = spark.sql(
        "SELECT carrier AS subject, concat('id-', carrier) AS message_id, carrier, 5 AS flights, map('a', 1) AS counts,"
        " timestamp '2013-01-01 05:15:00' AS first, X'00FF' AS raw, array(named_struct('x', map())) AS deep"
        " FROM VALUES ('UA'), ('AA') AS t(carrier)"
    )
    write(frame, queue)
    found = {message.subject: message for message in namespace.entity(queue).peek()}
    assert {message.message_id for message in found.values()} == {"id-UA", "id-AA"}
    assert found["UA"].content_type == "application/json"
    assert json.loads(found["UA"].body) == {
        "carrier": "UA",
        "flights": 5,
        "counts": {"a": 1},
        "first": "2013-01-01T05:15:00+00:00",
        "raw": "AP8=",
        "deep": [{"x": {}}],
    }


def test_rows_of_many_partitions_are_sent_once(
    write: Write, spark: SparkSession, namespace: Namespace, queue: str
) -> None:
    frame = spark.range(0, 2000, numPartitions=2).select(f.format_string("m%d", "id").alias("message_id"))
    write(frame.withColumn("body_text", f.lit("x")), queue, maxInFlight=2, batchSize=100)
    found = [message.message_id for message in namespace.entity(queue).peek()]
    assert sorted(map(str, found)) == sorted(f"m{n}" for n in range(2000))


def test_missing_entity_is_refused_before_a_task_starts(write: Write, spark: SparkSession) -> None:
    frame = spark.range(1).selectExpr("id AS sequence_number", "'complete' AS decision")
    with pytest.raises(AnalysisException, match="There is no queue or topic 'nowhere'"):
        write(frame, "nowhere", operation="settle")


def test_failed_row_fails_the_job_with_counts(
    write: Write, spark: SparkSession, namespace: Namespace, queue: str
) -> None:
    frame = spark.createDataFrame([("ok",), ("x" * 1_100_000,)], "body_text string").coalesce(1)
    says = (
        f"1 messages were sent to {queue}, 1 failed, and 0 are unknown; the other rows of the tasks that failed were "
        "not sent. The first: failed: amqp:link:message-size-exceeded"
    )
    with pytest.raises(PySparkException, match=says):
        write(frame, queue)
    assert len(namespace.entity(queue).peek()) == 1


def rejected(spark: SparkSession, count: int, partitions: int) -> DataFrame:
    """Rows of which every tenth cannot be sent."""
    rows = spark.range(0, count, numPartitions=partitions).select(
        f.format_string("m%d", "id").alias("message_id"), "id"
    )
    kind = f.when(f.col("id") % 10 == 3, f.lit("no such type")).otherwise(f.lit("long"))
    typed = f.create_map(f.lit("n"), kind).alias("application_property_types")
    values = f.create_map(f.lit("n"), f.col("id").cast("string")).alias("application_properties")
    return rows.select("message_id", f.lit("x").alias("body_text"), values, typed)


def test_failed_rows_can_be_repaired_and_written_again(
    write: Write, spark: SparkSession, namespace: Namespace, queue: str, tmp_path: Path
) -> None:
    folder = tmp_path / "failed"
    write(rejected(spark, 2000, 3), queue, failuresPath=folder.as_uri())
    failed = spark.read.parquet(str(folder))
    assert {row.message_id for row in failed.collect()} == {f"m{n}" for n in range(3, 2000, 10)}
    (why,) = failed.select("outcome_status", "outcome_condition", "outcome_description").distinct().take(2)[:1]
    assert (why.outcome_status, why.outcome_condition) == ("failed", "amqp:encode-error")
    assert "is not a property value of the AMQP type 'no such type'" in why.outcome_description
    assert len(namespace.entity(queue).peek()) == 1800
    write(failed.drop("application_property_types"), queue, failuresPath=str(tmp_path / "again"))
    assert len({message.message_id for message in namespace.entity(queue).peek()}) == 2000
    assert spark.read.parquet(str(tmp_path / "again")).count() == 0


def test_unsendable_frame_is_refused_before_sending(
    write: Write, spark: SparkSession, namespace: Namespace, queue: str, tmp_path: Path
) -> None:
    frame = spark.range(10).withColumn("body_text", f.lit("x"))
    with pytest.raises(AnalysisException, match="The column message_id has the type bigint, but it must be a string"):
        write(frame.withColumnRenamed("id", "message_id"), queue)
    (tmp_path / "file").touch()
    with pytest.raises(AnalysisException, match="failuresPath cannot be written: "):
        write(frame, queue, failuresPath=str(tmp_path / "file" / "folder"))
    with pytest.raises(
        PythonException, match=r"maxInFlightTotal is 1, but [0-9,]+ tasks can run at once and each needs"
    ):
        write(frame, queue, maxInFlightTotal=1)
    assert len(namespace.entity(queue).peek()) == 0


REPEATED = """
import sys
import time
from pathlib import Path
import sbnotebook
from pyspark.sql import SparkSession
from sbnotebook.spark import register

marker, connection_string, once, plain, failures = sys.argv[1:]
# The second number says how often a task is tried.
spark = SparkSession.builder.master("local[1,2]").config("spark.ui.enabled", "false").getOrCreate()
spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
register(spark)

def failing_once(queue):
    def rows(batches):
        yield from batches
        if not Path(marker).exists():
            Path(marker).touch()
            with sbnotebook.connect(connection_string) as namespace:
                until = time.monotonic() + 120
                while len(namespace.entity(queue).peek(200)) < 200 and time.monotonic() < until:
                    time.sleep(0.1)
            raise EOFError("the first attempt")
    return rows

frame = spark.range(0, 1000, numPartitions=1).selectExpr(
    "concat('m', id) AS message_id", "repeat('x', if(id = 7, 1100000, 1000)) AS body_text"
)
for queue in (once, plain):
    Path(marker).unlink(missing_ok=True)
    failing = frame.mapInArrow(failing_once(queue), frame.schema)
    failing.write.format("servicebus").mode("append").options(
        connectionString=connection_string, entity=queue, failuresPath=failures
    ).save()
"""


@pytest.mark.thorough  # test_send_writer_task.py repeats a task without Spark
def test_repeated_task_sends_the_same_message_ids(
    spark: SparkSession, shared_emulator: RunningEmulator, connection_string: str, queue: str, tmp_path: Path
) -> None:
    """The first attempt fails when many messages are there; duplicate detection knows those of the second."""
    shared_emulator.create_queue(f"{queue}-once", QueueOptions(requires_duplicate_detection=True))
    arguments = [str(tmp_path / "marker"), connection_string, f"{queue}-once", queue, str(tmp_path / "failures")]
    environment = {**os.environ, "PYSPARK_PYTHON": sys.executable}
    ended = subprocess.run(
        [sys.executable, "-c", REPEATED, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=540,
        env=environment,
    )
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr.count("999 messages were sent to") == 2
    assert "statically registered" not in ended.stderr, "Spark warns of register(spark) as documented"
    with Namespace(Target(Connection(connection_string), "")) as namespace:
        once, twice = (
            Counter(str(message.message_id) for message in namespace.entity(name).peek())
            for name in (f"{queue}-once", queue)
        )
    ids = {f"m{n}" for n in range(1000)} - {"m7"}
    assert once == Counter(dict.fromkeys(ids, 1))
    assert set(twice) == ids
    assert twice.total() >= len(ids) + 200
    # One file for each write, because the second attempt's file replaces the first.
    assert [row.message_id for row in spark.read.parquet(str(tmp_path / "failures")).collect()] == ["m7"] * 2


def test_schedules_keys_and_types_arrive(write: Write, spark: SparkSession, namespace: Namespace, queue: str) -> None:
    namespace.create_queue(f"{queue}-sessions", requires_session=True)
    write(
        spark.sql(
            "SELECT concat('s', id % 3) AS session_id, 'x' AS body, timestamp '2999-01-01 00:00:00' AS"
            " scheduled_enqueue_time, map('n', 5) AS application_properties, 60000 AS time_to_live_ms FROM range(30)"
        ),
        f"{queue}-sessions",
    )
    found = namespace.entity(f"{queue}-sessions").scheduled()
    assert len(found) == 30
    assert {message.session_id for message in found} == {"s0", "s1", "s2"}
    assert {message.scheduled_enqueue_time for message in found} == {datetime(2999, 1, 1, tzinfo=UTC)}
    assert {type_name(message.application_properties["n"]) for message in found} == {"int"}
    assert {message.time_to_live for message in found} == {timedelta(minutes=1)}


def test_entity_sends_a_spark_frame(spark: SparkSession, namespace: Namespace, queue: str) -> None:
    frame = spark.sql("SELECT 'UA' AS subject, timestamp '2013-01-01 05:15:00' AS first")
    assert namespace.entity(queue).send(frame).settled == 1
    assert namespace.entity(queue).plan_send(frame).apply().settled == 1
    for message in namespace.entity(queue).peek():
        assert (message.subject, json.loads(message.body)) == ("UA", {"first": "2013-01-01T05:15:00+00:00"})
