from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sbnotebook.client import Namespace
from sbnotebook.errors import SbNotebookError
from sbnotebook.model import Message
from sbnotebook.model.amqp import Described, Int, Symbol, Timestamp, ULong
from sbnotebook.spark import send_writer
from sbnotebook.spark.options import WriteOptions
from sbnotebook.spark.send_writer import SendWriter, SentMessages
from sbnotebook.testing.comparison import differences

Read = Callable[..., DataFrame]
Write = Callable[..., None]


def writer_to(queue: str, connection_string: str, **options: str) -> SendWriter:
    return SendWriter(WriteOptions.parse({"entity": queue, "connectionString": connection_string, **options}))


def texts(*chunks: list[str]) -> Iterator[pa.RecordBatch]:
    return iter([pa.RecordBatch.from_pydict({"body_text": chunk}) for chunk in chunks])


def test_messages_come_through_spark_as_they_were(read: Read, write: Write, namespace: Namespace, queue: str) -> None:
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


def test_a_frame_without_a_body_is_sent_as_json(
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


def test_many_rows_of_many_partitions_are_each_sent_once(
    write: Write, spark: SparkSession, namespace: Namespace, queue: str
) -> None:
    frame = spark.range(0, 2000, numPartitions=2).select(f.format_string("m%d", "id").alias("message_id"))
    write(frame.withColumn("body_text", f.lit("x")), queue, maxInFlight=2, batchSize=100)
    found = [message.message_id for message in namespace.entity(queue).peek()]
    assert sorted(map(str, found)) == sorted(f"m{n}" for n in range(2000))


def test_only_append_is_possible(write: Write, spark: SparkSession, queue: str) -> None:
    with pytest.raises(AnalysisException, match="Messages can only be added to an entity"):
        write(spark.range(1), queue, mode="overwrite")
    with pytest.raises(AnalysisException, match='use either the "Append"'):
        write(spark.range(1), queue, mode="error")


def test_a_failure_fails_the_job_with_counts(
    write: Write, spark: SparkSession, namespace: Namespace, queue: str
) -> None:
    frame = spark.createDataFrame([("ok",), ("x" * 1_100_000,)], "body_text string").coalesce(1)
    says = f"1 messages of this task were sent to {queue}, then it failed: send: 1 settled, 1 failed. .*size-exceeded"
    with pytest.raises(PythonException, match=says):
        write(frame, queue)
    assert len(namespace.entity(queue).peek()) == 1


# ---------------------------------------------------------------- one task, in this process


def test_a_task_tells_how_many_it_sent(connection_string: str, namespace: Namespace, queue: str) -> None:
    writer = writer_to(queue, connection_string)
    assert writer.write(texts(["a", "b"], [], ["c"])) == SentMessages(3)
    assert writer.write(iter([])) == SentMessages(0)
    assert len(namespace.entity(queue).peek()) == 3


def test_what_was_sent_before_a_failure_is_counted(
    connection_string: str, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    writer = writer_to(queue, connection_string)
    with pytest.raises(
        SbNotebookError, match=r"^2 messages of this task were sent to .*, then it failed: .*holds bytes"
    ):
        writer.write(iter([*texts(["a", "b"]), pa.RecordBatch.from_pydict({"body": [1]})]))
    writer.abort([SentMessages(4), None])
    assert f"4 messages that tasks sent to {queue} before stay there" in caplog.text


def test_the_rate_holds_from_one_chunk_to_the_next(
    connection_string: str, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(send_writer, "_ROWS_AT_ONCE", 5)
    writer = writer_to(queue, connection_string, rate="50")
    began = time.monotonic()
    assert writer.write(texts([str(n) for n in range(40)])) == SentMessages(40)
    assert time.monotonic() - began >= 0.8


def test_nobody_loses_a_message_that_has_no_answer_yet(connection_string: str, queue: str) -> None:
    """A task that is cut off in the middle has either sent a chunk or says how far it came."""

    def cut() -> Iterator[pa.RecordBatch]:
        yield from texts(["a"] * 3)
        raise EOFError

    with pytest.raises(SbNotebookError, match=r"^3 messages of this task were sent to .*, then it failed: EOFError"):
        writer_to(queue, connection_string).write(cut())
