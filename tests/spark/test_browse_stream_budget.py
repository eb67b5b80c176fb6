from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping

import pytest

from sbnotebook.client import Namespace
from sbnotebook.client.portal import run
from sbnotebook.model import EntityAddress, Message
from sbnotebook.model.message import partition_of
from sbnotebook.settlement import AsyncEntity, AsyncNamespace, Connection
from sbnotebook.settlement.peek import PAGE
from sbnotebook.spark.browse_stream import Room, end_of_batch


@pytest.fixture
def own(connection_string: str) -> Iterator[AsyncNamespace]:
    namespace = AsyncNamespace(Connection(connection_string), archive=None)
    yield namespace
    run(namespace.close)


def numbers(namespace: Namespace, entity: str) -> list[int]:
    return [message.sequence_number for message in namespace.entity(entity).peek()]


def read_on(
    entity: AsyncEntity, messages: int, size: int | None = None, *, until: Mapping[int, int] | None = None
) -> Iterator[tuple[dict[int, int], dict[int, int]]]:
    """Each micro-batch with where it begins and where it ends, until nothing is left."""

    async def step(read: dict[int, int]) -> dict[int, int]:
        return await end_of_batch(entity, read, Room(messages, size or math.inf), until=until)

    before: dict[int, int] = {}
    while (after := run(step, before)) != before:
        yield before, after
        before = after


def between(found: list[int], before: dict[int, int], after: dict[int, int]) -> list[int]:
    return [n for n in found if before.get(partition_of(n), -1) < n <= after.get(partition_of(n), -1)]


def batches(entity: AsyncEntity, found: list[int], messages: int, size: int | None = None) -> list[int]:
    """How many messages each micro-batch has; that all are in one of them is tested."""
    parts = [between(found, before, after) for before, after in read_on(entity, messages, size)]
    assert Counter(n for part in parts for n in part) == Counter(found)
    return [len(part) for part in parts]


def test_end_of_batch_of_a_dense_entity_is_the_limit(namespace: Namespace, queue: str, own: AsyncNamespace) -> None:
    assert namespace.entity(queue).send(Message() for _ in range(3 * PAGE)).ok
    entity = own.entity(EntityAddress.parse(queue))
    found = numbers(namespace, queue)
    assert batches(entity, found, PAGE - 100) == [150, 150, 150, 150, 150]
    assert batches(entity, found, 2 * PAGE) == [2 * PAGE, PAGE]
    assert batches(entity, found, 10_000) == [3 * PAGE]
    assert [*read_on(entity, 10_000)][-1][1] == {0: found[-1]}, "not beyond the last message"


def test_end_of_batch_counts_rare_messages_and_passes_gaps(
    namespace: Namespace, queue: str, own: AsyncNamespace
) -> None:
    all_of_them = namespace.entity(queue)
    assert all_of_them.send([Message(subject="x" if n % 10 else "kept") for n in range(3000)], max_in_flight=1).ok
    all_of_them.purge(where="subject = 'x'", archived=False).apply()
    found = numbers(namespace, queue)
    assert len(found) == 300
    entity = own.entity(EntityAddress.parse(queue))
    assert batches(entity, found, 100) == [100, 100, 100]
    assert batches(entity, found, 260) == [260, 40]


def test_end_of_batch_counts_bytes(namespace: Namespace, queue: str, own: AsyncNamespace) -> None:
    sizes = [1000, 1000, 9000, 1000, 1000, 1000, 9000, 9000, 10]
    assert namespace.entity(queue).send([Message(body=bytes(size)) for size in sizes], max_in_flight=1).ok
    entity = own.entity(EntityAddress.parse(queue))
    assert batches(entity, numbers(namespace, queue), 100, 4000) == [2, 1, 3, 1, 1, 1]
    assert batches(entity, numbers(namespace, queue), 2, 10**9) == [2, 2, 2, 2, 1]


def test_end_of_batch_gives_every_partition_its_share(
    namespace: Namespace, partitioned_queue: str, own: AsyncNamespace
) -> None:
    queue = namespace.entity(partitioned_queue)
    assert queue.send([Message(partition_key=f"key {n % 3}") for n in range(300)]).ok
    found = numbers(namespace, partitioned_queue)
    held = Counter(map(partition_of, found))
    assert len(held) == 3
    entity = own.entity(EntityAddress.parse(partitioned_queue))
    parts = [between(found, *offsets) for offsets in read_on(entity, 60)]
    assert [len(part) for part in parts] == [60] * 5
    assert set(Counter(map(partition_of, parts[0])).values()) == {20}

    # One that comes later with a lower number than the last that was read.
    *_, (_, after) = read_on(entity, 1000)
    first = min(held)
    keys = {partition: f"key {n}" for n, partition in enumerate(_partitions_of_keys(namespace, partitioned_queue))}
    assert queue.send([Message(partition_key=keys[first], subject="late")]).ok
    (late,) = queue.peek(where="subject = 'late'")
    assert late.sequence_number < max(found)

    async def step() -> dict[int, int]:
        return await end_of_batch(entity, after, Room(1000))

    assert between([late.sequence_number], after, run(step)) == [late.sequence_number]


def _partitions_of_keys(namespace: Namespace, queue: str) -> list[int]:
    partitions = {m.partition_key: partition_of(m.sequence_number) for m in namespace.entity(queue).peek()}
    return [partitions[f"key {n}"] for n in range(3)]


def test_end_of_batch_stops_at_until(namespace: Namespace, partitioned_queue: str, own: AsyncNamespace) -> None:
    queue = namespace.entity(partitioned_queue)
    assert queue.send([Message(partition_key="a") for _ in range(10)]).ok
    found = numbers(namespace, partitioned_queue)
    until = {partition_of(found[0]): found[-1]}
    assert queue.send([Message(partition_key=key) for key in "aabbcc"]).ok
    entity = own.entity(EntityAddress.parse(partitioned_queue))
    assert [after for _, after in read_on(entity, 1000, until=until)] == [until]
    assert [between(found, *offsets) for offsets in read_on(entity, 4, until=until)] == [
        found[:4],
        found[4:8],
        found[8:],
    ]
