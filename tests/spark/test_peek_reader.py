from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import spark_partition_id
from pyspark.sql.types import StructType

from sbnotebook.client import Namespace
from sbnotebook.client.frames import arrow_schema, peeked_messages, to_arrow
from sbnotebook.emulator import stop
from sbnotebook.model import Message
from sbnotebook.model.amqp import Timestamp, ULong
from sbnotebook.spark.options import ReadOptions
from sbnotebook.spark.peek_reader import PeekReader
from sbnotebook.spark.schema import message_schema

Read = Callable[..., DataFrame]


def fill(namespace: Namespace, queue: str, count: int) -> None:
    assert namespace.entity(queue).send([Message(body=b"%d" % n, message_id=f"m{n}") for n in range(count)]).ok


def consume(namespace: Namespace, queue: str, count: int) -> None:
    assert namespace.entity(queue).process(lambda _: None, max_messages=count, show_progress=False).ok


def test_a_frame_is_what_peek_finds_and_can_be_read_again(read: Read, namespace: Namespace, queue: str) -> None:
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
        assert peeked_messages(table) == list(peeked)
    assert [message.delivery_count for message in namespace.entity(queue).peek()] == [0, 0, 0]


def test_ranges_are_peeked_in_parallel_and_nothing_is_read_twice(read: Read, namespace: Namespace, queue: str) -> None:
    fill(namespace, queue, 1200)
    frame = read(queue, "message_id string, sequence_number long", partitions=2)
    rows = frame.withColumn("partition", spark_partition_id()).collect()
    assert sorted(row.message_id for row in rows) == sorted(f"m{n}" for n in range(1200))
    assert sorted(Counter(row.partition for row in rows)) == [0, 1]
    assert min(Counter(row.partition for row in rows).values()) > 400

    consume(namespace, queue, 1000)
    fill(namespace, queue, 1)
    assert frame.count() == 201, "ranges cover what went and what came since they were planned"


def test_a_wrong_option_is_refused_at_load(read: Read, queue: str) -> None:
    with pytest.raises(AnalysisException, match="There is no option 'maxmesages' here"):
        read(queue, maxMesages=1)


def test_the_emulator_is_started_on_demand(spark: SparkSession) -> None:
    reader = spark.read.format("servicebus").options(entity="nowhere", target="emulator")
    try:
        with pytest.raises(PythonException, match="/nowhere' could not be found"):
            reader.load().collect()
    finally:
        assert stop(), "it was running"


# ---------------------------------------------------------------- the reader, in this process


def numbers(queue: str, connection_string: str, **options: object) -> list[int]:
    given = {"entity": queue, "connectionString": connection_string, **{name: str(o) for name, o in options.items()}}
    reader = PeekReader(ReadOptions.parse(given), StructType([message_schema()["sequence_number"]]))
    rows = [row for partition in reader.partitions() for batch in reader.read(partition) for row in batch.to_pylist()]
    return [row["sequence_number"] for row in rows]


def test_a_range_a_limit_and_a_state_are_kept_to(namespace: Namespace, queue: str, connection_string: str) -> None:
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


def test_an_empty_entity_has_no_rows(connection_string: str, queue: str) -> None:
    assert numbers(f"{queue}/$dlq", connection_string, partitions=8) == []
