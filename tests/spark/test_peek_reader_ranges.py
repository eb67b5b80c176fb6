from __future__ import annotations

from collections.abc import AsyncIterator
from threading import Event

import anyio
import pytest

from sbnotebook.client import Namespace
from sbnotebook.client.targets import NamespaceTarget
from sbnotebook.model import EntityAddress, Message, MessageState
from sbnotebook.model.message import partition_of, start_of_partition
from sbnotebook.settlement import OUTAGE_PATIENCE
from sbnotebook.spark.options import ReadOptions
from sbnotebook.spark.peek_reader import prefetched, read_ranges
from sbnotebook.spark.schema import message_schema

LONGEST = 60


def test_prefetched_gets_the_next_item_meanwhile() -> None:
    begun = [Event() for _ in range(3)]

    async def items() -> AsyncIterator[int]:
        for number, event in enumerate(begun):
            event.set()
            yield number

    for number in prefetched(items()):
        assert all(event.wait(LONGEST) for event in begun[: number + 2])


def test_prefetched_raises_after_earlier_items() -> None:
    async def items() -> AsyncIterator[int]:
        yield 1
        raise ConnectionError("gone")

    found = prefetched(items())
    assert next(found) == 1
    with pytest.raises(ConnectionError, match="gone"):
        next(found)


def test_prefetched_does_not_wait_when_closed() -> None:
    ended = Event()

    async def items() -> AsyncIterator[int]:
        yield 1
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    found = prefetched(items())
    assert next(found) == 1
    found.close()
    assert ended.wait(LONGEST)


def test_read_ranges_reads_in_order_over_one_connection(
    namespace: Namespace, queue: str, connection_string: str
) -> None:
    assert namespace.entity(queue).send([Message() for _ in range(30)]).ok
    numbers = [message.sequence_number for message in namespace.entity(queue).peek()]
    schema = message_schema()
    ranges = [(numbers[2], numbers[4]), (numbers[20], numbers[-1])]
    options = ReadOptions(entity=EntityAddress.parse(queue), namespace=NamespaceTarget(connection_string))
    read = read_ranges(options, type(schema)([schema["sequence_number"]]), ranges, patience=OUTAGE_PATIENCE)
    (batch,) = list(read)
    assert batch.to_pydict()["sequence_number"] == [*numbers[2:5], *numbers[20:]]


@pytest.mark.parametrize("state", [None, MessageState.ACTIVE])
@pytest.mark.parametrize("count", [0, 3, 10, 70, 100])
def test_read_ranges_counts_messages_of_all_ranges(
    namespace: Namespace, partitioned_queue: str, connection_string: str, state: MessageState | None, count: int
) -> None:
    entity = namespace.entity(partitioned_queue)
    assert entity.send([Message(partition_key=f"key {n % 7}") for n in range(70)]).ok
    lasts: dict[int, int] = {}
    for message in entity.peek():
        lasts[partition_of(message.sequence_number)] = message.sequence_number
    assert len(lasts) > 1
    ranges = [(start_of_partition(partition), last) for partition, last in lasts.items()]
    target, address = NamespaceTarget(connection_string), EntityAddress.parse(partitioned_queue)
    options = ReadOptions(entity=address, namespace=target, state=state)
    schema = type(message_schema())([message_schema()["sequence_number"]])
    read = read_ranges(options, schema, ranges, max_messages=count)
    assert sum(batch.num_rows for batch in read) == min(count, 70)
