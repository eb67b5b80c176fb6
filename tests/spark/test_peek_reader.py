from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable, Generator
from typing import Any, cast

import pyspark
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.types import StructType

from sbnotebook.amqp import Timestamp, ULong
from sbnotebook.analysis.frames import arrow_schema, messages_of_table, to_arrow
from sbnotebook.client import Namespace
from sbnotebook.emulator import QueueOptions, RunningEmulator, stop
from sbnotebook.model import Message
from sbnotebook.spark.options import ReadOptions
from sbnotebook.spark.peek_reader import PeekReader, RangesOfTask
from sbnotebook.spark.schema import message_schema

Read = Callable[..., DataFrame]
IS_4_0 = pyspark.__version__.startswith("4.0.")
"""It has no writer in Arrow, and plans each action anew: see make check-spark."""


def fill(namespace: Namespace, queue: str, count: int) -> None:
    assert namespace.entity(queue).send([Message(body=b"%d" % n, message_id=f"m{n}") for n in range(count)]).ok


def consume(namespace: Namespace, queue: str, count: int) -> None:
    assert namespace.entity(queue).process(lambda _: None, max_messages=count, show_progress=False).ok


def test_read_returns_what_peek_returns_each_time(read: Read, namespace: Namespace, queue: str) -> None:
    messages = [
        Message(
            body=b'{"delay": 5}', subject="UA", application_properties={"n": ULong(7), "at": Timestamp(1), "s": "x"}
        ),
        Message.of_value({"a": [1, None]}, message_id="value", session_id="s"),
        Message(body="größer".encode(), correlation_id="c", content_type="text/plain"),
    ]
    assert namespace.entity(queue).send(messages).ok
    peeked = namespace.entity(queue).peek()
    frame = read(queue)
    for _ in range(2):
        table = frame.toArrow().cast(arrow_schema())
        assert table.to_pylist() == to_arrow(peeked).to_pylist()
        assert messages_of_table(table) == list(peeked)
    assert [message.delivery_count for message in namespace.entity(queue).peek()] == [0, 0, 0]


@pytest.mark.parametrize(
    "name",
    [
        "masstransit/fault--shop.contracts/orderplaced--",
        *(pytest.param(name, marks=pytest.mark.thorough) for name in ("-orders.", "x" * 260)),
    ],
)
def test_entities_of_every_name_are_read_and_written(
    read: Read, write: Callable[..., None], spark: SparkSession, namespace: Namespace, name: str
) -> None:
    namespace.create_queue(name)
    if IS_4_0:
        assert namespace.entity(name).send(Message(body=b"hello", message_id="m1")).ok
    else:
        write(spark.createDataFrame([("hello", "m1")], "body string, message_id string"), name)
    assert [(row.entity, row.message_id) for row in read(name).collect()] == [(name, "m1")]


def test_partitions_read_each_message_once(read: Read, namespace: Namespace, queue: str) -> None:
    fill(namespace, queue, 1200)
    frame = read(queue, "message_id string, sequence_number long", partitions=2)
    rows = frame.withColumn("partition", spark_partition_id()).collect()
    assert sorted(row.message_id for row in rows) == sorted(f"m{n}" for n in range(1200))
    assert sorted(Counter(row.partition for row in rows)) == [0, 1]
    assert min(Counter(row.partition for row in rows).values()) > 400

    consume(namespace, queue, 1000)
    fill(namespace, queue, 1)
    assert frame.union(frame).count() == (402 if IS_4_0 else 400), "the first action fixed the end"
    assert read(queue, "sequence_number long").count() == 201


def test_read_starts_the_emulator_on_demand(spark: SparkSession) -> None:
    reader = spark.read.format("servicebus").options(entity="nowhere", target="emulator")
    try:
        with pytest.raises(AnalysisException, match="There is no queue or topic 'nowhere'"):
            reader.load().collect()
    finally:
        assert stop(), "it was running"


# ---------------------------------------------------------------- the reader, in this process


def reader_of(queue: str, connection_string: str, **options: object) -> PeekReader:
    given = {"entity": queue, "connectionString": connection_string, **{name: str(o) for name, o in options.items()}}
    return PeekReader(ReadOptions.parse(given), StructType([message_schema()["sequence_number"]]))


def numbers_in(reader: PeekReader, partition: RangesOfTask) -> list[int]:
    return [row["sequence_number"] for batch in reader.read(partition) for row in batch.to_pylist()]


def numbers(queue: str, connection_string: str, **options: object) -> list[int]:
    reader = reader_of(queue, connection_string, **options)
    return [number for partition in reader.partitions() for number in numbers_in(reader, partition)]


def test_read_keeps_to_range_limit_and_state(namespace: Namespace, queue: str, connection_string: str) -> None:
    fill(namespace, queue, 10)
    with namespace.entity(queue).lock(2) as batch:
        batch.defer()
    all_of_them = [message.sequence_number for message in namespace.entity(queue).peek()]

    def read(**options: object) -> list[int]:
        return numbers(queue, connection_string, **options)

    first = all_of_them[3]
    assert read(fromSequenceNumber=first, toSequenceNumber=all_of_them[6]) == all_of_them[3:7]
    assert read(fromSequenceNumber=first, maxMessages=2, state="active") == all_of_them[3:5]
    assert read(fromSequenceNumber=all_of_them[-1] + 1, state="active") == []
    assert read(state="deferred") == all_of_them[:2]


def test_read_of_an_empty_entity_or_range_has_no_rows(namespace: Namespace, connection_string: str, queue: str) -> None:
    assert numbers(f"{queue}/$dlq", connection_string, partitions=8) == []
    fill(namespace, queue, 3)
    last = namespace.entity(queue).peek()[-1].sequence_number
    for partitions in (1, 4):
        assert numbers(queue, connection_string, fromSequenceNumber=last + 1, partitions=partitions) == []
        whole = {"fromSequenceNumber": last + 5, "toSequenceNumber": last + 9}
        assert numbers(queue, connection_string, partitions=partitions, **whole) == []


@pytest.mark.parametrize("partitions", [1, 3])
def test_read_has_only_messages_of_its_planning_that_are_left(
    namespace: Namespace, connection_string: str, queue: str, partitions: int
) -> None:
    fill(namespace, queue, 600)
    reader = reader_of(queue, connection_string, partitions=partitions)
    ranges = reader.partitions()
    assert len(ranges) == partitions
    consume(namespace, queue, 350)
    left = [message.sequence_number for message in namespace.entity(queue).peek()]
    fill(namespace, queue, 5)
    read = [number for one in ranges for number in numbers_in(reader, one)]
    assert read == left, "none that came later"
    consume(namespace, queue, 255)
    assert [number for one in ranges for number in numbers_in(reader, one)] == []


def test_tasks_share_the_partitions_of_an_entity(
    namespace: Namespace, connection_string: str, partitioned_queue: str
) -> None:
    queue = namespace.entity(partitioned_queue)
    assert queue.send([Message(partition_key=f"key {n % 7}") for n in range(700)]).ok
    all_of_them = sorted(message.sequence_number for message in queue.peek())
    reader = reader_of(partitioned_queue, connection_string, partitions=4)
    tasks = reader.partitions()
    assert queue.send([Message(partition_key=f"key {n}") for n in range(100)]).ok
    parts = [numbers_in(reader, one) for one in tasks]
    assert sorted(number for part in parts for number in part) == all_of_them, "none that came after the planning"
    assert len(parts) == 4
    assert len(all_of_them) == 700
    everything = sorted(message.sequence_number for message in queue.peek())
    middle = everything[350]
    upper = numbers(partitioned_queue, connection_string, fromSequenceNumber=middle, partitions=3)
    lower = numbers(partitioned_queue, connection_string, toSequenceNumber=middle - 1)
    assert (sorted(lower), sorted(upper)) == (everything[:350], everything[350:])


def test_record_batches_are_of_a_middle_size(namespace: Namespace, connection_string: str, queue: str) -> None:
    fill(namespace, queue, 5000)
    reader = reader_of(queue, connection_string)
    (whole,) = reader.partitions()
    assert [batch.num_rows for batch in reader.read(whole)] == [2000, 2000, 1000]
    last = namespace.entity(queue).peek()[-1].sequence_number
    assert namespace.entity(queue).send([Message(body=bytes(200_000)) for _ in range(100)]).ok
    sizes = [batch.num_rows for batch in reader.read(RangesOfTask([(last + 1, last + 100)]))]
    assert sum(sizes) == 100
    assert max(sizes) < 50


def test_reader_that_stops_early_lets_go(namespace: Namespace, connection_string: str, queue: str) -> None:
    fill(namespace, queue, 5000)
    reader = reader_of(queue, connection_string)
    (whole,) = reader.partitions()
    batches = cast("Generator[Any]", reader.read(whole))
    assert next(batches).num_rows == 2000
    batches.close()
    assert len(numbers_in(reader, whole)) == 5000


def test_read_does_not_lock_sessions(
    namespace: Namespace, connection_string: str, shared_emulator: RunningEmulator
) -> None:
    name = f"sessions-{uuid.uuid4().hex[:8]}"
    shared_emulator.create_queue(name, QueueOptions(requires_session=True))
    assert namespace.entity(name).send([Message(session_id=f"s{n % 3}") for n in range(9)]).ok
    with namespace.entity(name).session("s1"):
        assert len(numbers(name, connection_string, partitions=2)) == 9
