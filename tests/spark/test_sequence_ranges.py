from __future__ import annotations

import asyncio
from bisect import bisect_left
from itertools import pairwise

from hypothesis import example, given
from hypothesis import strategies as st

from sbnotebook.spark.sequence_ranges import SequenceRange, plan_ranges

LARGEST = 2**63 - 1
NUMBERS = st.lists(st.integers(1, 5000) | st.integers(1, LARGEST), unique=True, max_size=60).map(sorted)


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


def plan(entity: Entity, count: int, first: int = 1, last: int | None = None) -> list[SequenceRange]:
    return asyncio.run(plan_ranges(count, SequenceRange(first, last), entity.next_number))


@given(NUMBERS, st.integers(1, 12), st.integers(1, 6000), st.none() | st.integers(1, LARGEST))
@example([LARGEST], 2, 1, None)
@example([1, LARGEST - 1], 3, 1, None)
def test_the_ranges_are_all_that_was_asked_for_and_do_not_overlap(
    numbers: list[int], count: int, first: int, last: int | None
) -> None:
    last = None if last is None else max(first, last)
    ranges = plan(Entity(numbers), count, first, last)
    assert 1 <= len(ranges) <= count
    assert (ranges[0].first, ranges[-1].last) == (first, last)
    for one, following in pairwise(ranges):
        assert one.last is not None
        assert one.first <= one.last == following.first - 1
    assert last is None or ranges[-1].first <= last


def test_they_hold_about_as_many_messages_each() -> None:
    entity = Entity(list(range(700_001, 1_200_001)))
    ranges = plan(entity, 4)
    held = [sum(one.first <= n <= (one.last or LARGEST) for n in entity.numbers) for one in ranges]
    assert len(held) == 4
    assert min(held) > 0.75 * max(held)
    assert entity.asked < 30


def test_one_range_asks_nothing() -> None:
    entity = Entity([1, 2, 3])
    assert plan(entity, 1, 2, 9) == [SequenceRange(2, 9)]
    assert entity.asked == 0


def test_an_empty_entity_is_one_range() -> None:
    assert plan(Entity([]), 8) == [SequenceRange(1, None)]
    assert plan(Entity([50]), 8, 1, 49) == [SequenceRange(1, 49)]


def test_there_are_no_more_ranges_than_numbers() -> None:
    assert plan(Entity([7, 8]), 8) == [SequenceRange(1, 7), SequenceRange(8, None)]
