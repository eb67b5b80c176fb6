from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.emulator.entities import BrokeredMessage
from sbnotebook.emulator.entities.message_log import MessageLog


def message(number: int) -> BrokeredMessage:
    return BrokeredMessage(number, number, 0, b"x" * (number % 7))


@given(st.lists(st.integers(1, 5_000), unique=True), st.data())
def test_it_is_a_sorted_map(numbers: list[int], data: st.DataObject) -> None:
    log = MessageLog()
    model: dict[int, BrokeredMessage] = {}
    for number in numbers:
        model[number] = message(number)
        log.add(model[number])
        if data.draw(st.booleans()):
            gone = model.pop(data.draw(st.sampled_from(sorted(model))))
            log.remove(gone)
    start = data.draw(st.integers(0, 5_001))
    assert [found.sequence_number for found in log.walk(start)] == [n for n in sorted(model) if n >= start]
    assert len(log) == len(model)
    assert log.size_bytes == sum(len(kept.payload) for kept in model.values())
    assert all(log.get(number) is model.get(number) for number in numbers)


def test_a_walk_from_the_middle_of_many_is_quick() -> None:
    log = MessageLog()
    for number in range(1, 200_001):
        log.add(message(number))
    for number in range(1, 100_000):  # what a consumer has taken from the front
        found = log.get(number)
        assert found is not None
        log.remove(found)
    begun = time.process_time()
    for _ in range(100):
        assert next(log.walk(1)).sequence_number == 100_000
        assert next(log.walk(150_000)).sequence_number == 150_000
    # Stepping over 100,000 numbers each time would take a second.
    assert time.process_time() - begun < 0.2


def test_a_number_that_is_not_there_is_not_found() -> None:
    log = MessageLog()
    log.add(message(5))
    assert log.get(4) is None
    assert log.get(5_000_000) is None
    with pytest.raises(KeyError):
        log.remove(message(6))
