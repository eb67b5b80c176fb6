"""Streams that are written: each micro-batch is sent, and sent again where Spark repeats it."""

from __future__ import annotations

import json
from asyncio import Transport
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming.query import StreamingQuery

from sbnotebook.client import Namespace
from sbnotebook.emulator.service.broker import ConnectionLimit
from sbnotebook.model import MessageState

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

LARGE = "x" * 1_100_000
SCHEMA = "message_id string, body_text string"
Start = Callable[..., StreamingQuery]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The input: each file in it is a micro-batch."""
    folder = tmp_path / "input"
    folder.mkdir()
    return folder


@pytest.fixture
def start(spark: SparkSession, folder: Path, checkpoint: str, connection_string: str, queue: str) -> Start:
    """Writes all files of the folder that were not written yet to the queue."""

    def start(frame: DataFrame | None = None, **options: str) -> StreamingQuery:
        files = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1).json(str(folder))
        writer = (files if frame is None else frame).writeStream.format("servicebus")
        given = {"connectionString": connection_string, "entity": queue, "checkpointLocation": checkpoint, **options}
        return writer.options(**given).trigger(availableNow=True).start()

    return start


def put(folder: Path, name: str, **rows: str) -> None:
    lines = [json.dumps({"message_id": key, "body_text": body}) for key, body in rows.items()]
    (folder / f"{name}.json").write_text("\n".join(lines))


def ids_in(namespace: Namespace, queue: str) -> Counter[str]:
    return Counter(str(message.message_id) for message in namespace.entity(queue).peek())


@pytest.mark.thorough
def test_micro_batches_share_their_connections(
    start: Start, folder: Path, namespace: Namespace, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[object] = []
    arrive = ConnectionLimit.arrive

    def count(connections: ConnectionLimit, transport: Transport) -> None:
        opened.append(transport)
        arrive(connections, transport)

    namespace.entity(queue).peek()  # its own connection
    monkeypatch.setattr(ConnectionLimit, "arrive", count)
    for name in "abcdefghijkl":
        put(folder, name, **{name: "1"})
    start().awaitTermination()
    assert ids_in(namespace, queue) == Counter("abcdefghijkl")
    assert len(opened) < 12, "fewer than one for each micro-batch"


def test_failed_row_ends_the_query_and_a_restart_sends_again(
    start: Start, folder: Path, namespace: Namespace, queue: str, tmp_path: Path, spark: SparkSession
) -> None:
    put(folder, "1", a="1")
    put(folder, "2", b="2", c=LARGE)
    says = f"1 messages were sent to {queue}, 1 failed, and 0 are unknown"
    with pytest.raises(StreamingQueryException, match=says):
        start().awaitTermination()
    assert ids_in(namespace, queue) == Counter("ab")
    with pytest.raises(StreamingQueryException, match=says):  # it continues with the micro-batch that failed
        start().awaitTermination()
    assert ids_in(namespace, queue) == Counter("abb")
    failures = str(tmp_path / "failures")
    for _ in range(2):
        start(failuresPath=failures).awaitTermination()
    assert ids_in(namespace, queue) == Counter("abbb")
    assert [row.message_id for row in spark.read.parquet(failures).collect()] == ["c"]


@pytest.mark.thorough
def test_repeated_micro_batch_replaces_the_failures_of_more_tasks(
    start: Start, spark: SparkSession, folder: Path, checkpoint: str, tmp_path: Path
) -> None:
    put(folder, "1", **dict.fromkeys("abcdefgh", LARGE))
    files = spark.readStream.schema(SCHEMA).json(str(folder))
    failures = tmp_path / "failures"
    for tasks in (4, 2):
        start(files.repartition(tasks), failuresPath=str(failures)).awaitTermination()
        assert len(list(failures.glob("failed-*"))) == tasks
        for commit in ("0", ".0.crc"):  # as if Spark had ended before it wrote that
            (Path(checkpoint) / "commits" / commit).unlink(missing_ok=True)
    found = spark.read.parquet(str(failures)).collect()
    assert Counter(row.message_id for row in found) == Counter("abcdefgh")


def test_wrong_columns_end_the_query_before_sending(
    start: Start, spark: SparkSession, folder: Path, namespace: Namespace, queue: str
) -> None:
    put(folder, "1", a="1")
    frame = spark.readStream.schema(SCHEMA).json(str(folder)).selectExpr("1 AS subject", "body_text")
    with pytest.raises(StreamingQueryException, match="The column subject has the type int, but it must be a string"):
        start(frame).awaitTermination()
    assert not ids_in(namespace, queue)


def test_foreach_batch_sends(
    spark: SparkSession, folder: Path, checkpoint: str, connection_string: str, namespace: Namespace, queue: str
) -> None:
    put(folder, "1", a="1", b="2")

    def send(frame: DataFrame, _batch: int) -> None:
        options = {"connectionString": connection_string, "entity": queue}
        frame.write.format("servicebus").mode("append").options(**options).save()

    files = spark.readStream.schema(SCHEMA).json(str(folder)).writeStream.foreachBatch(send)
    files.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    assert ids_in(namespace, queue) == Counter("ab")


@pytest.mark.thorough
def test_writes_of_one_micro_batch_keep_failures_apart(
    spark: SparkSession, folder: Path, checkpoint: str, connection_string: str, queue: str, tmp_path: Path
) -> None:
    put(folder, "1", a=LARGE, b=LARGE, c="3")
    failures = str(tmp_path / "failures")

    def send(frame: DataFrame, _batch: int) -> None:
        options = {"connectionString": connection_string, "entity": queue, "failuresPath": failures}
        for key in "abc":
            part = frame.where(f"message_id = '{key}'").coalesce(1)
            part.write.format("servicebus").mode("append").options(**options).save()

    files = spark.readStream.schema(SCHEMA).json(str(folder)).writeStream.foreachBatch(send)
    files.option("checkpointLocation", checkpoint).trigger(availableNow=True).start().awaitTermination()
    assert Counter(row.message_id for row in spark.read.parquet(failures).collect()) == Counter("ab")


@pytest.mark.thorough
def test_stream_of_messages_is_sent_on_unchanged(
    start: Start, stream: Callable[..., DataFrame], namespace: Namespace, queue: str
) -> None:
    namespace.create_queue(f"{queue}-from")
    namespace.entity(f"{queue}-from").send([{"message_id": "a", "body": "1"}, {"message_id": "b", "body": "2"}])
    start(stream(f"{queue}-from")).awaitTermination()
    assert ids_in(namespace, queue) == Counter("ab")


@pytest.mark.thorough
def test_consumed_messages_wait_for_a_failures_folder(
    start: Start, stream: Callable[..., DataFrame], namespace: Namespace, queue: str, tmp_path: Path
) -> None:
    # Spark asks for the writer of a stream when its source has planned the first micro-batch, and not before.
    namespace.create_queue(f"{queue}-from")
    namespace.entity(f"{queue}-from").send([{"message_id": "a"}, {"message_id": "b"}])
    (tmp_path / "file").touch()
    frame = stream(f"{queue}-from", mode="consume")
    with pytest.raises(Exception, match=r"Mkdirs failed|FileAlreadyExists|Parent path is not a directory"):
        start(frame, checkpointLocation=str(tmp_path / "file" / "folder"))
    assert {message.state for message in namespace.entity(f"{queue}-from").peek()} == {MessageState.ACTIVE}
    with pytest.raises(StreamingQueryException, match="failuresPath cannot be written"):
        start(frame, failuresPath=str(tmp_path / "file" / "folder")).awaitTermination()
    start(frame, failuresPath=str(tmp_path / "folder")).awaitTermination()
    assert ids_in(namespace, queue) == Counter("ab")
    assert not namespace.entity(f"{queue}-from").peek()
