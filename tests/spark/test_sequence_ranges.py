from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sbnotebook.client import Namespace
from sbnotebook.client.portal import run
from sbnotebook.model import EntityAddress, Message
from sbnotebook.settlement import AsyncNamespace, Connection
from sbnotebook.settlement.sequence_numbers import last_numbers, next_number_of
from sbnotebook.spark.sequence_ranges import SequenceRange, plan_ranges
from tests.settlement.test_sequence_numbers import LARGEST, NUMBERS, PARTITION, Entity, Partitioned, by_partition


def plan(entity: Entity, count: int, first: int = 1, last: int | None = None) -> list[SequenceRange]:
    return asyncio.run(plan_ranges(count, SequenceRange(first, last), entity.next_number))


def held(entity: Entity, ranges: list[SequenceRange]) -> list[int]:
    """How many messages each range has."""
    ends = [LARGEST if one.last is None else one.last for one in ranges]
    return [sum(one.first <= n <= end for n in entity.numbers) for one, end in zip(ranges, ends, strict=True)]


@given(NUMBERS, st.integers(1, 12), st.integers(1, 6000), st.none() | st.integers(1, LARGEST))
@example([LARGEST], 2, 1, None)
@example([1, LARGEST - 1], 3, 1, None)
@example([1, PARTITION, LARGEST], 12, 1, None)
@example([], 2, LARGEST, LARGEST)
def test_planned_ranges_cover_all_and_do_not_overlap(
    numbers: list[int], count: int, first: int, last: int | None
) -> None:
    last = None if last is None else max(first, last)
    entity = Entity(numbers)
    ranges = plan(entity, count, first, last)
    assert 1 <= len(ranges) <= count
    assert (ranges[0].first, ranges[-1].last) == (first, last)
    for one, following in pairwise(ranges):
        assert one.last is not None
        assert one.first <= one.last == following.first - 1
    assert last is None or ranges[-1].first <= last
    assert sum(held(entity, ranges)) == sum(first <= n <= (last or LARGEST) for n in numbers)


LAYOUTS = {
    "dense": [*range(700_001, 1_200_001)],
    "a gap of a billion": [*range(1, 3001), *range(10**9, 10**9 + 60_000)],
    "one of ten": random.Random(1).sample(range(1, 500_000), 50_000),  # noqa: S311 (no secret)
    "every ten-thousandth": [*range(5, 500_000_000, 10_000)],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", [2, 4, 7])
def test_planned_ranges_hold_about_as_many_messages(layout: str, count: int) -> None:
    entity = Entity(sorted(LAYOUTS[layout]))
    ranges = plan(entity, count)
    found = held(entity, ranges)
    assert len(found) == count
    assert sum(found) == len(entity.numbers)
    assert min(found) > 0.7 * max(found), found
    assert entity.asked < 150


def test_planning_one_range_asks_nothing() -> None:
    entity = Entity([1, 2, 3])
    assert plan(entity, 1, 2, 9) == [SequenceRange(2, 9)]
    assert entity.asked == 0


def test_empty_entity_is_one_range() -> None:
    assert plan(Entity([]), 8) == [SequenceRange(1, None)]
    assert plan(Entity([50]), 8, 1, 49) == [SequenceRange(1, 49)]


def test_planned_ranges_are_no_more_than_numbers() -> None:
    assert plan(Entity([7, 8]), 8) == [SequenceRange(1, 7), SequenceRange(8, None)]


def test_partitions_are_planned_as_one_range() -> None:
    entity = Partitioned([51 * PARTITION + 1, 52 * PARTITION + 7], [52, 51])
    assert plan(entity, 4) == [SequenceRange(1, None)]


def test_last_numbers_of_a_partitioned_queue(
    namespace: Namespace, partitioned_queue: str, connection_string: str
) -> None:
    queue = namespace.entity(partitioned_queue)
    assert queue.send([Message(partition_key=f"key {n % 5}") for n in range(400)]).ok
    numbers = [message.sequence_number for message in queue.peek()]
    assert len(by_partition(numbers)) > 2

    async def ask() -> tuple[dict[int, int], list[SequenceRange]]:
        async with AsyncNamespace(Connection(connection_string)) as asked:
            next_number = next_number_of(asked.entity(EntityAddress.parse(partitioned_queue)))
            return await last_numbers(next_number), await plan_ranges(4, SequenceRange(1, None), next_number)

    lasts, ranges = run(ask)
    assert lasts == by_partition(numbers)
    assert min(held(Entity(numbers), ranges)) > 50
