from __future__ import annotations

import pytest

from sbnotebook.emulator.entities.message import BrokeredMessage
from sbnotebook.emulator.entities.message_log import PARTITION_SHIFT, PARTITIONS, MessageLog, tour

ORDER = [0, 1, 15, 2, 14, 3, 13, 4, 12, 5, 11, 6, 10, 7, 9, 8]


@pytest.fixture
def log() -> MessageLog:
    """Two messages in each partition."""
    log = MessageLog(0)
    for partition in range(PARTITIONS):
        for count in (1, 2):
            number = partition << PARTITION_SHIFT | 2 * partition + count
            log.add(BrokeredMessage(number, number, 0, b"", 0))
    return log


def partitions(numbers: list[int]) -> list[int]:
    return [number >> 48 for number in numbers]


def test_a_tour_visits_each_partition_once_in_its_order(log: MessageLog) -> None:
    numbers = [message.sequence_number for message in tour(log, 0)]
    assert partitions(numbers) == [partition for partition in ORDER for _ in range(2)]
    assert len(set(numbers)) == 32


@pytest.mark.parametrize("place", range(16))
def test_a_tour_begins_within_a_partition(log: MessageLog, place: int) -> None:
    second = ORDER[place] << 48 | 2 * ORDER[place] + 2
    first, *others = [message.sequence_number for message in tour(log, second)]
    assert first == second
    assert partitions(others) == [partition for partition in ORDER[place + 1 :] for _ in range(2)]


def test_a_tour_from_beyond_the_last_partition_is_empty(log: MessageLog) -> None:
    assert list(tour(log, 16 << 48)) == []
