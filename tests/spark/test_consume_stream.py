"""Consuming an entity as a stream, in Spark."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.functions import udf

from sbnotebook.client import Namespace
from sbnotebook.model import Message

from .stream_processes import fill

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Stream = Callable[..., "DataFrame"]
_WAIT = 120


def run(frame: DataFrame, checkpoint: str, function: Callable[[DataFrame, int], None]) -> list[Any]:
    """Take the current messages, and pass each micro-batch to a function; return the progress of each."""
    writer = frame.writeStream.option("checkpointLocation", checkpoint).foreachBatch(function)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination(_WAIT)
    return [progress["numInputRows"] for progress in query.recentProgress if progress["numInputRows"]]


def ids_of(frame: DataFrame) -> list[str]:
    return sorted(row.message_id for row in frame.select("message_id").collect())


def test_available_now_consumes_all_messages_once(
    stream: Stream, spark: SparkSession, namespace: Namespace, queue: str, checkpoint: str, tmp_path: Path
) -> None:
    out = str(tmp_path / "out")
    ids = fill(namespace, queue, 150)
    frame = stream(queue, mode="consume", maxMessagesPerTrigger=100, partitions=2)
    writer = frame.writeStream.format("parquet").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start(out)
    query.awaitTermination(_WAIT)
    assert [progress["numInputRows"] for progress in query.recentProgress] == [100, 50]
    told = [json.loads(progress["sources"][0]["latestOffset"]) for progress in query.recentProgress]
    assert {each.pop("entity") for each in told} == {queue}
    assert [each.pop("orphans", 0) for each in told] == [0, 0]
    # Each micro-batch is reported when it is locked; the one before is removed by then.
    assert told == [
        {"locked": 100, "deferred": 0, "removed": 0, "inFlight": 100, "backlog": 50},
        {"locked": 150, "deferred": 100, "removed": 100, "inFlight": 50, "backlog": 0},
    ]
    assert ids_of(spark.read.parquet(out)) == ids
    assert not namespace.entity(queue).peek()


def test_micro_batch_is_read_again_after_actions_and_failures(
    stream: Stream, namespace: Namespace, queue: str, checkpoint: str, tmp_path: Path
) -> None:
    ids = fill(namespace, queue, 60)
    mark = tmp_path / "failed"
    seen: list[tuple[int, list[str]]] = []

    @udf("string")
    def fails_once(text: str) -> str:
        if text == "m00055" and not mark.exists():
            mark.touch()
            raise ZeroDivisionError
        return text

    def write(frame: DataFrame, batch: int) -> None:
        seen.append((batch, ids_of(frame)))
        frame.select(fails_once("message_id")).collect()
        if len(seen) == 1:
            raise OSError("the sink is full")

    frame = stream(queue, "message_id string", mode="consume", maxMessagesPerTrigger=30)
    for _ in range(2):
        with pytest.raises(StreamingQueryException):
            run(frame, checkpoint, write)
    fill(namespace, queue, 5, 60)
    run(frame, checkpoint, write)
    first, second, more = ids[:30], ids[30:], [f"m{n:05}" for n in range(60, 65)]
    assert seen == [(0, first), (0, first), (1, second), (1, second), (2, more)]
    assert not namespace.entity(queue).peek()


@pytest.mark.thorough
def test_stopped_query_removes_the_last_batch_and_releases_locks(
    stream: Stream, namespace: Namespace, queue: str, checkpoint: str
) -> None:
    got: list[list[str]] = []

    def write(frame: DataFrame, _batch: int) -> None:
        got.append(ids_of(frame))
        if len(got) == 2:
            raise OSError("the sink is full")

    frame = stream(queue, "message_id string", mode="consume", maxBytesPerTrigger="1k")
    writer = frame.writeStream.option("checkpointLocation", checkpoint).foreachBatch(write)
    query = writer.trigger(processingTime="0 seconds").start()
    assert not query.lastProgress or not query.lastProgress["numInputRows"]
    ids = fill(namespace, queue, 1)
    assert until(lambda: bool(got) and not namespace.entity(queue).peek())
    assert query.isActive

    # The large one is locked after the small one, does not fit into its micro-batch, and is held for the next.
    messages = [Message(message_id="small", body=b"x" * 400), Message(message_id="large", body=b"x" * 3000)]
    assert namespace.entity(queue).send(messages).ok
    with pytest.raises(StreamingQueryException, match="the sink is full"):
        query.awaitTermination(_WAIT)
    assert got == [ids, ["small"]]
    with namespace.entity(queue).lock(1, max_wait=120) as batch:
        assert [(message.message_id, message.delivery_count) for message in batch.messages] == [("large", 0)]


@pytest.mark.thorough  # test_consume_stream_steps.py has the refusal
def test_trigger_once_is_refused_with_advice(stream: Stream, namespace: Namespace, queue: str, checkpoint: str) -> None:
    fill(namespace, queue, 1)
    writer = stream(queue, mode="consume").writeStream.option("checkpointLocation", checkpoint)
    query = writer.format("memory").queryName(f"once_{uuid.uuid4().hex}").trigger(once=True).start()
    with pytest.raises(StreamingQueryException, match="availableNow=True"):
        query.awaitTermination(_WAIT)
    with namespace.entity(queue).lock(1, max_wait=30) as batch:
        assert [message.delivery_count for message in batch.messages] == [0]


def until(condition: Callable[[], bool], seconds: float = _WAIT) -> bool:
    """Wait until something holds; whether it does."""
    end = time.monotonic() + seconds
    while not (held := condition()) and time.monotonic() < end:
        time.sleep(0.1)
    return held
