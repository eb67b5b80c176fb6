from __future__ import annotations

import asyncio
from bisect import bisect_left

from hypothesis import example, given
from hypothesis import strategies as st

from sbnotebook.model.message import partition_of
from sbnotebook.settlement.place import SequenceNumbers

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


def by_partition(numbers: list[int]) -> dict[int, int]:
    return {partition_of(number): number for number in sorted(numbers)}


@given(NUMBERS, NUMBERS)
@example([LARGEST], [LARGEST])
@example([1, PARTITION + 3], [PARTITION + 5])
def test_last_numbers_finds_each_partition(numbers: list[int], passed: list[int]) -> None:
    entity = Entity(numbers)
    assert asyncio.run(SequenceNumbers(entity.next_number).lasts()) == by_partition(numbers)
    known = by_partition(passed)
    behind = by_partition([number for number in numbers if number > known.get(partition_of(number), -1)])
    assert asyncio.run(SequenceNumbers(entity.next_number).lasts(known)) == known | behind


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
    assert asyncio.run(SequenceNumbers(entity.next_number).lasts()) == by_partition(there)
    known = by_partition([partition * PARTITION + n for partition, n in passed])
    behind = by_partition([number for number in there if number > known.get(partition_of(number), -1)])
    assert asyncio.run(SequenceNumbers(entity.next_number).lasts(known)) == known | behind


def test_last_numbers_takes_few_requests() -> None:
    entity = Entity(list(range(1, 1_000_001)))
    assert asyncio.run(SequenceNumbers(entity.next_number).lasts()) == {0: 1_000_000}
    assert entity.asked < 35
    entity.asked = 0
    assert asyncio.run(SequenceNumbers(entity.next_number).lasts({0: 1_000_000})) == {0: 1_000_000}
    assert entity.asked == 1
    assert asyncio.run(SequenceNumbers(entity.next_number).lasts({0: 999_990})) == {0: 1_000_000}
    assert entity.asked < 15
