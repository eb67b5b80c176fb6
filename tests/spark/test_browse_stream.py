"""Streaming an entity by peeking onward, in Spark."""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark import cloudpickle
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit
from pyspark.sql.types import LongType, StringType, StructType

from sbnotebook.client import Namespace
from sbnotebook.emulator import RunningEmulator, SubscriptionOptions
from sbnotebook.model import Message
from sbnotebook.spark.browse_stream import BrowseStream
from sbnotebook.spark.options import StreamOptions
from sbnotebook.spark.peek_reader import RangesOfTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CLOUDPICKLE: Any = cloudpickle
"""As Spark pickles what it sends to workers."""

LONGEST = 120
NARROW = StructType().add("message_id", StringType()).add("sequence_number", LongType())
Browse = Callable[..., "StreamingQuery"]


@pytest.fixture
def browse(spark: SparkSession, connection_string: str, tmp_path: Path) -> Browse:
    """Starts a stream that browses an entity into Parquet, with options and a trigger."""

    def browse(entity: str, *, trigger: dict[str, Any] | None = None, **options: Any) -> StreamingQuery:
        reader = spark.readStream.format("servicebus").option("connectionString", connection_string).schema(NARROW)
        frame: DataFrame = reader.options(entity=entity, **options).load()
        writer = frame.writeStream.format("parquet").option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(**(trigger or {"availableNow": True})).start(str(tmp_path / "out"))
        if trigger is None or "processingTime" not in trigger:
            assert query.awaitTermination(LONGEST)
        return query

    return browse


@pytest.fixture
def found(spark: SparkSession, tmp_path: Path) -> Callable[[], list[str]]:
    """The message ids that came out."""

    def found() -> list[str]:
        return sorted(row.message_id for row in spark.read.schema(NARROW).parquet(str(tmp_path / "out")).collect())

    return found


def fill(namespace: Namespace, entity: str, *names: str, **fields: Any) -> None:
    assert namespace.entity(entity).send([Message(message_id=name, **fields) for name in names]).ok


def ids(count: int, start: int = 0) -> list[str]:
    return [f"m{n:04}" for n in range(start, start + count)]


def rows(query: StreamingQuery) -> list[int]:
    return [progress["numInputRows"] for progress in query.recentProgress]


def test_browse_stream_yields_each_message_once_over_restarts(
    browse: Browse, found: Callable[[], list[str]], namespace: Namespace, queue: str
) -> None:
    fill(namespace, queue, *ids(250))
    query = browse(queue, maxMessagesPerTrigger=100)
    assert rows(query) == [100, 100, 50]
    (source,) = query.recentProgress[0]["sources"]
    last = namespace.entity(queue).peek()[-1].sequence_number
    assert json.loads(source["latestOffset"])["read"] == {"0": last}, "the backlog shows"
    assert json.loads(source["endOffset"])["read"]["0"] < last

    fill(namespace, queue, *ids(30, 250))
    assert rows(browse(queue, maxMessagesPerTrigger=100)) == [30]
    assert found() == ids(280)
    assert [message.delivery_count for message in namespace.entity(queue).peek()] == [0] * 280


@pytest.mark.thorough  # test_read_all_available_has_no_limit shows it without Spark
def test_trigger_once_reads_all_messages(
    browse: Browse, found: Callable[[], list[str]], namespace: Namespace, queue: str
) -> None:
    fill(namespace, queue, *ids(50))
    assert rows(browse(queue, trigger={"once": True}, maxMessagesPerTrigger=10)) == [50]
    assert found() == ids(50)


def test_browse_stream_from_latest_reads_later_messages_only(
    browse: Browse, found: Callable[[], list[str]], namespace: Namespace, queue: str
) -> None:
    fill(namespace, queue, *ids(5))
    query = browse(queue, trigger={"processingTime": "100 milliseconds"}, fromSequenceNumber="latest")
    try:
        query.processAllAvailable()
        assert not sum(rows(query))
        fill(namespace, queue, *ids(5, 5))
        query.processAllAvailable()
    finally:
        query.stop()
    assert found() == ids(5, 5)


# ---------------------------------------------------------------- without Spark, as Spark does it


class Driven:
    """A stream that is driven to the end of what there is."""

    def __init__(self, connection_string: str, entity: str, **options: Any) -> None:
        given = {"connectionString": connection_string, "entity": entity} | {n: str(o) for n, o in options.items()}
        self.options = StreamOptions.parse(given)
        self.offset: dict[str, Any] | None = None
        self.batches: list[list[str]] = []

    def to_the_end(self, limit: ReadLimit | None = None, *, available_now: bool = True) -> list[str]:
        """The ids that come, in order; each micro-batch is read twice, by instances that went through pickle."""
        stream = BrowseStream(self.options, NARROW)
        worker: BrowseStream = pickle.loads(CLOUDPICKLE.dumps(stream))  # noqa: S301 (our own)
        try:
            start = stream.initialOffset() if self.offset is None else self.offset
            if available_now:
                stream.prepareForTriggerAvailableNow()
            while (end := stream.latestOffset(start, limit or stream.getDefaultReadLimit())) != start:
                tasks = stream.partitions(start, end)
                assert len(tasks) <= self.options.partitions
                twice = [self.read(worker, tasks) for _ in range(2)]
                assert twice[0] == twice[1]
                self.batches.append(twice[0])
                start = self.offset = json.loads(json.dumps(end))
            self.offset = start
            assert stream.partitions(start, end) == []
            assert stream.reportLatestOffset() == start
        finally:
            stream.stop()
        return [name for batch in self.batches for name in batch]

    @staticmethod
    def read(worker: BrowseStream, tasks: list[RangesOfTask]) -> list[str]:
        return [name for task in tasks for batch in worker.read(task) for name in batch.to_pydict()["message_id"]]


def test_browse_stream_reads_partitions_with_lower_numbers(
    namespace: Namespace, partitioned_queue: str, connection_string: str
) -> None:
    for number in range(40):
        fill(namespace, partitioned_queue, f"m{number:04}", partition_key=f"key {number % 4}")
    driven = Driven(connection_string, partitioned_queue, maxMessagesPerTrigger=15, partitions=2)
    assert sorted(driven.to_the_end()) == ids(40)
    highest = max(message.sequence_number for message in namespace.entity(partitioned_queue).peek())
    for number in range(40, 60):
        fill(namespace, partitioned_queue, f"m{number:04}", partition_key=f"key {number % 5}")
    later = [m for m in namespace.entity(partitioned_queue).peek() if (m.message_id or "") > "m0039"]
    assert min(message.sequence_number for message in later) < highest
    assert sorted(driven.to_the_end()) == ids(60)
    assert list(map(len, driven.batches)) == [15, 15, 10, 15, 5]


def test_browse_stream_reads_a_subscription_with_sessions(
    namespace: Namespace, shared_emulator: RunningEmulator, connection_string: str
) -> None:
    topic = f"topic-{uuid.uuid4().hex[:8]}"
    shared_emulator.create_topic(topic)
    shared_emulator.create_subscription(topic, "audit", SubscriptionOptions(requires_session=True))
    for session in ("a", "b"):
        fill(namespace, topic, f"{session}1", f"{session}2", session_id=session)
    subscription = f"{topic}/subscriptions/audit"
    with namespace.entity(subscription).session("a") as batch:
        batch.receive(1)
        assert batch.dead_letter().ok
    assert Driven(connection_string, subscription).to_the_end() == ["a2", "b1", "b2"]
    assert Driven(connection_string, f"{subscription}/$dlq").to_the_end() == ["a1"]


def test_browse_stream_reads_dead_letters_from_a_number_in_a_state(
    namespace: Namespace, queue: str, connection_string: str
) -> None:
    fill(namespace, queue, *ids(6))
    with namespace.entity(queue).lock(6) as batch:
        assert batch.dead_letter().ok
    path = f"{queue}/$dlq"
    letters = namespace.entity(path)
    number = letters.peek()[2].sequence_number
    with letters.lock(4) as batch:
        assert batch.defer().ok
    assert Driven(connection_string, path, fromSequenceNumber=number).to_the_end() == ids(4, 2)
    assert Driven(connection_string, path, fromSequenceNumber=number, state="deferred").to_the_end() == ids(2, 2)


def test_browse_stream_warns_of_the_order_of_dead_letters(
    namespace: Namespace, queue: str, connection_string: str, caplog: pytest.LogCaptureFixture
) -> None:
    fill(namespace, queue, *ids(3))
    driven = Driven(connection_string, f"{queue}/$dlq")
    with namespace.entity(queue).lock(3) as batch:
        assert batch.dead_letter(where="message_id = 'm0002'").ok
        assert driven.to_the_end() == ids(1, 2)
        assert batch.dead_letter().ok
    assert driven.to_the_end() == ids(1, 2), "the others have smaller numbers: if this sees them, drop the warning"
    assert "which they come to in any order" in caplog.text
    caplog.clear()
    Driven(connection_string, queue).to_the_end()
    assert caplog.text == ""


def test_browse_stream_passes_over_removed_messages(namespace: Namespace, queue: str, connection_string: str) -> None:
    fill(namespace, queue, *ids(30))
    driven = Driven(connection_string, queue, maxMessagesPerTrigger=10)
    stream = BrowseStream(driven.options, NARROW)
    start = stream.initialOffset()
    end = stream.latestOffset(start, stream.getDefaultReadLimit())
    assert namespace.entity(queue).process(lambda _: None, max_messages=15, show_progress=False).ok
    assert Driven.read(stream, stream.partitions(start, end)) == []
    after = stream.latestOffset(end, stream.getDefaultReadLimit())
    assert Driven.read(stream, stream.partitions(end, after)) == ids(10, 15)
    stream.stop()
    driven.offset = after
    assert driven.to_the_end() == ids(5, 25)


def test_read_all_available_has_no_limit(namespace: Namespace, queue: str, connection_string: str) -> None:
    fill(namespace, queue, *ids(30))
    driven = Driven(connection_string, queue, maxMessagesPerTrigger=7, maxBytesPerTrigger=100)
    driven.to_the_end(ReadAllAvailable(), available_now=False)
    assert driven.batches == [ids(30)]


def test_bytes_are_limited(namespace: Namespace, queue: str, connection_string: str) -> None:
    fill(namespace, queue, *ids(6), body=bytes(1000))
    driven = Driven(connection_string, queue, maxBytesPerTrigger="3k")
    assert driven.to_the_end() == ids(6)
    assert list(map(len, driven.batches)) == [2, 2, 2]
