from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from azure.servicebus import ServiceBusClient
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from sbnotebook.client import Entity, Namespace
from sbnotebook.model import Message
from tests.filled_queues import partly_deferred_queue

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Read = Callable[..., DataFrame]
Write = Callable[..., None]
SCHEMA = "sequence_number long, decision string, reason string"


def left(entity: Entity) -> list[int]:
    return [message.sequence_number for message in entity.peek(show_progress=False)]


def test_settle_writer_settles_deferred_messages(
    spark: SparkSession, write: Write, namespace: Namespace, queue: str
) -> None:
    entity = partly_deferred_queue(namespace, queue, 6, deferred=5)
    rows = [(1, "complete", None), (2, "dead_letter", "Bad"), (3, "Abandon", None), (1, "Complete", "again")]
    write(spark.createDataFrame(rows, SCHEMA).coalesce(1), queue, operation="settle")
    assert left(entity) == [3, 4, 5, 6]
    (letter,) = namespace.entity(f"{queue}/$dlq").peek(show_progress=False)
    assert (letter.message_id, letter.dead_letter_reason) == ("m2", "Bad")
    assert len(entity.deferred(show_progress=False).gone) == 0
    assert namespace.undo(entity=queue).apply(show_progress=False).settled == 1, "it is in the user's own archive"


def test_failed_settle_rows_fail_the_job_with_their_count(
    spark: SparkSession, write: Write, namespace: Namespace, queue: str
) -> None:
    entity = partly_deferred_queue(namespace, queue, 5, deferred=4)
    rows = [(1, "complete", None), (2, "nothing", None), (4, "complete", None), (5, "complete", None)]
    with pytest.raises(PySparkException) as told:
        write(spark.createDataFrame(rows, SCHEMA).coalesce(1), queue, operation="settle")
    said = f"2 messages of {queue} were settled, 2 failed, and 0 are unknown. The first: #2: failed: 'nothing' is not a"
    assert said in str(told.value)
    assert left(entity) == [2, 3, 5]


def test_failed_settle_rows_are_kept_in_failures_path(
    spark: SparkSession, write: Write, connection_string: str, namespace: Namespace, queue: str, tmp_path: Path
) -> None:
    entity = partly_deferred_queue(namespace, queue, 7, deferred=5)
    assert entity.schedule([Message()], delay="1h", show_progress=False).ok
    rows: list[tuple[int | None, str, str | None]] = [
        (1, "complete", None),
        (2, "resubmit", None),
        (3, "complete", None),
        (3, "abandon", None),
        (4, "complete", None),
        (6, "complete", None),
        (8, "complete", None),
        (99, "complete", None),
        (None, "complete", None),
    ]
    frame = spark.createDataFrame(rows, SCHEMA).withColumn("note", f.lit(1)).coalesce(1)
    with ServiceBusClient.from_connection_string(connection_string) as sdk, sdk.get_queue_receiver(queue) as other:
        assert len(other.receive_deferred_messages([4])) == 1
        write(frame, queue, operation="settle", failuresPath=str(tmp_path / "failed"), maxInFlightTotal=4)
    failed = {row.sequence_number: row for row in spark.read.parquet(str(tmp_path / "failed")).collect()}
    assert {
        number: row.outcome_description.removeprefix("Not attempted: ").split(":")[0] for number, row in failed.items()
    } == {
        None: "It has no sequence number.",
        2: "To resubmit deferred messages is not possible",
        3: "Other rows decide otherwise on the same message",
        4: "it exists but could not be locked",
        6: "it is not deferred. Defer it first, or settle it as an active message.",
        8: "it is scheduled, and no receiver gets it before its time",
        99: "It is not there any more",
    }
    assert {row.outcome_status for row in failed.values()} == {"failed", "not found", "skipped"}
    assert {row.note for row in failed.values()} == {1}
    assert left(entity) == [2, 3, 4, 5, 6, 7, 8]


def test_what_is_removed_for_good_is_not_archived(
    spark: SparkSession, write: Write, namespace: Namespace, queue: str
) -> None:
    entity = partly_deferred_queue(namespace, queue, 1, deferred=1)
    write(spark.createDataFrame([(1, "complete", None)], SCHEMA), queue, operation="settle", archive=False)
    assert left(entity) == []
    assert namespace.archive is not None
    assert namespace.archive.find(namespace.identity(), entity.address, numbers=[1]) == []


def start(frame: DataFrame, connection_string: str, queue: str, checkpoint: str, **options: Any) -> StreamingQuery:
    writer = frame.writeStream.format("servicebus").option("connectionString", connection_string)
    return (
        writer.options(entity=queue, operation="settle", checkpointLocation=checkpoint, **options)
        .trigger(availableNow=True)
        .start()
    )


def test_repeated_settle_micro_batch_finds_messages_gone(
    spark: SparkSession, connection_string: str, namespace: Namespace, queue: str, tmp_path: Path
) -> None:
    entity = partly_deferred_queue(namespace, queue, 4, deferred=3)
    spark.createDataFrame([(1, "complete", None), (2, "complete", None)], SCHEMA).write.parquet(str(tmp_path / "rows"))
    frame = spark.readStream.schema(SCHEMA).parquet(str(tmp_path / "rows"))
    for checkpoint in ("first", "second"):  # the second has forgotten what the first one did
        query = start(frame, connection_string, queue, str(tmp_path / checkpoint))
        assert query.awaitTermination(120)
        assert query.exception() is None
        assert left(entity) == [3, 4]
