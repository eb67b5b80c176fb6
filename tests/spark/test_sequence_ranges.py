from __future__ import annotations

import asyncio
import random
from bisect import bisect_left
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sbnotebook.client import Namespace
from sbnotebook.client.portal import run
from sbnotebook.model import EntityAddress, Message
from sbnotebook.settlement import AsyncNamespace, Connection
from sbnotebook.spark.sequence_ranges import (
    SequenceRange,
    end_of_partition,
    last_numbers,
    next_number_of,
    partition_of,
    plan_ranges,
)

LARGEST = 2**63 - 1
PARTITION = 1 << 48
IN_PARTITIONS = st.tuples(st.integers(0, 3), st.integers(1, 5000)).map(lambda pair: pair[0] * PARTITION + pair[1])
NUMBERS = st.lists(st.integers(1, 5000) | IN_PARTITIONS | st.integers(1, LARGEST), unique=True, max_size=60).map(sorted)


class Entity:
    """The sequence numbers of an entity, and how often it was asked."""

    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers
        self.asked = 0

    async def next_number(self, number: int) -> int | None:
        assert 1 <= number <= LARGEST
        self.asked += 1
        place = bisect_left(self.numbers, number)
        return self.numbers[place] if place < len(self.numbers) else None


class Partitioned(Entity):
    """One whose partitions come one after the other, and not in the order of their numbers."""

    def __init__(self, numbers: list[int], order: list[int]) -> None:
        super().__init__(numbers)
        there = {partition_of(number) for number in numbers}
        self.order = [0, *(each for each in order if each in there - {0})]

    async def next_number(self, number: int) -> int | None:
        assert 1 <= number <= LARGEST
        self.asked += 1
        if number < PARTITION or partition_of(number) in self.order:
            for each in self.order[self.order.index(partition_of(number)) :]:
                mine = [n for n in self.numbers if partition_of(n) == each]
                behind = [n for n in mine if each != partition_of(number) or n >= number]
                if behind:
                    return behind[0]
        return None


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


# ---------------------------------------------------------------- the last numbers


def by_partition(numbers: list[int]) -> dict[int, int]:
    return {partition_of(number): number for number in sorted(numbers)}


@given(NUMBERS, NUMBERS)
@example([LARGEST], [LARGEST])
@example([1, PARTITION + 3], [PARTITION + 5])
def test_last_numbers_finds_each_partition(numbers: list[int], passed: list[int]) -> None:
    entity = Entity(numbers)
    assert asyncio.run(last_numbers(entity.next_number)) == by_partition(numbers)
    known = by_partition(passed)
    behind = by_partition([number for number in numbers if number > known.get(partition_of(number), -1)])
    assert asyncio.run(last_numbers(entity.next_number, known)) == known | behind


@given(
    st.lists(st.tuples(st.integers(51, 56), st.integers(1, 3000)), min_size=1, max_size=40, unique=True),
    st.permutations(range(51, 57)),
    st.lists(st.tuples(st.integers(51, 56), st.integers(1, 3000)), max_size=4),
)
def test_last_numbers_finds_partitions_in_any_order(
    numbers: list[tuple[int, int]], order: list[int], passed: list[tuple[int, int]]
) -> None:
    there = sorted(partition * PARTITION + n for partition, n in numbers)
    entity = Partitioned(there, order)
    assert asyncio.run(last_numbers(entity.next_number)) == by_partition(there)
    assert plan(entity, 4) == [SequenceRange(1, None)]
    known = by_partition([partition * PARTITION + n for partition, n in passed])
    behind = by_partition([number for number in there if number > known.get(partition_of(number), -1)])
    assert asyncio.run(last_numbers(entity.next_number, known)) == known | behind


def test_last_numbers_takes_few_requests() -> None:
    entity = Entity(list(range(1, 1_000_001)))
    assert asyncio.run(last_numbers(entity.next_number)) == {0: 1_000_000}
    assert entity.asked < 35
    entity.asked = 0
    assert asyncio.run(last_numbers(entity.next_number, {0: 1_000_000})) == {0: 1_000_000}
    assert entity.asked == 1
    assert asyncio.run(last_numbers(entity.next_number, {0: 999_990})) == {0: 1_000_000}
    assert entity.asked < 15


def test_last_numbers_keeps_known_partitions() -> None:
    entity = Entity([1, PARTITION + 1])
    known = {0: end_of_partition(0)}
    assert asyncio.run(last_numbers(entity.next_number, known)) == {**known, 1: PARTITION + 1}


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
