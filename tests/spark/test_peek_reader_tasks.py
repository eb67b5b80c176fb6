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
from sbnotebook.model.message import partition_of
from sbnotebook.settlement import AsyncNamespace, Connection, SequenceNumbers
from sbnotebook.spark.peek_reader import Range, RangesOfTask, plan_tasks
from tests.settlement.test_place_sequence_numbers import LARGEST, NUMBERS, PARTITION, Entity, Partitioned, by_partition


def plan(entity: Entity, count: int, first: int = 1, last: int = LARGEST) -> list[list[Range]]:
    return [task.ranges for task in asyncio.run(plan_tasks(count, (first, last), SequenceNumbers(entity.next_number)))]


def held(entity: Entity, tasks: list[list[Range]]) -> list[int]:
    """Return the number of messages of each task."""
    return [sum(any(first <= n <= last for first, last in task) for n in entity.numbers) for task in tasks]


@given(NUMBERS, st.integers(1, 12), st.integers(1, 6000), st.integers(1, LARGEST))
@example([LARGEST], 2, 1, LARGEST)
@example([1, LARGEST - 1], 3, 1, LARGEST)
@example([1, PARTITION, LARGEST], 12, 1, LARGEST)
@example([], 2, LARGEST, LARGEST)
def test_tasks_read_each_message_once_and_end_with_the_last(
    numbers: list[int], count: int, first: int, last: int
) -> None:
    last = max(first, last)
    entity = Entity(numbers)
    tasks = plan(entity, count, first, last)
    assert 1 <= len(tasks) <= count
    ranges = sorted(each for task in tasks for each in task)
    assert all(before[1] < after[0] for before, after in pairwise(ranges))
    there = [n for n in numbers if first <= n <= last]
    assert sum(held(entity, tasks)) == len(there)
    ends = by_partition(there)
    assert all(one[1] <= ends[partition_of(one[1])] for one in ranges)


LAYOUTS = {
    "dense": [*range(700_001, 1_200_001)],
    "a gap of a billion": [*range(1, 3001), *range(10**9, 10**9 + 60_000)],
    "one of ten": random.Random(1).sample(range(1, 500_000), 50_000),  # noqa: S311 (no secret)
    "every ten-thousandth": [*range(5, 500_000_000, 10_000)],
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("count", [2, 4, 7])
def test_tasks_hold_about_as_many_messages(layout: str, count: int) -> None:
    entity = Entity(sorted(LAYOUTS[layout]))
    found = held(entity, plan(entity, count))
    assert len(found) == count
    assert sum(found) == len(entity.numbers)
    assert min(found) > 0.7 * max(found), found
    assert entity.asked < 150


def test_planning_one_task_asks_for_the_end_only() -> None:
    entity = Entity(LAYOUTS["dense"])
    assert plan(entity, 1) == [[(700_001, 1_200_000)]]
    assert entity.asked < 35


def test_empty_entity_is_one_task_without_ranges() -> None:
    assert plan(Entity([]), 8) == [[]]
    assert plan(Entity([50]), 8, 1, 49) == [[]]


def test_tasks_are_no_more_than_numbers() -> None:
    assert plan(Entity([7, 8]), 8) == [[(7, 7)], [(8, 8)]]


def test_partitions_of_an_entity_end_each_for_itself() -> None:
    low, high = 51 * PARTITION, 52 * PARTITION
    entity = Partitioned([low + 1, low + 9, high + 7], [52, 51])
    last = (high + 7, high + 7)
    assert plan(entity, 1) == [[last, (low + 1, low + 9)]]
    assert plan(entity, 2) == [[(low + 1, low + 5)], [(low + 6, low + 9), last]]


def test_last_numbers_of_a_partitioned_queue(
    namespace: Namespace, partitioned_queue: str, connection_string: str
) -> None:
    queue = namespace.entity(partitioned_queue)
    assert queue.send([Message(partition_key=f"key {n % 5}") for n in range(400)]).ok
    numbers = [message.sequence_number for message in queue.peek()]
    assert len(by_partition(numbers)) > 2

    async def ask() -> tuple[dict[int, int], list[RangesOfTask]]:
        async with AsyncNamespace(Connection(connection_string)) as asked:
            numbers = SequenceNumbers.of(asked.entity(EntityAddress.parse(partitioned_queue)))
            return await numbers.lasts(), await plan_tasks(4, (1, LARGEST), numbers)

    lasts, tasks = run(ask)
    assert lasts == by_partition(numbers)
    assert min(held(Entity(numbers), [task.ranges for task in tasks])) > 50
