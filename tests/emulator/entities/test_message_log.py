from __future__ import annotations

from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.emulator.entities.message import BrokeredMessage
from sbnotebook.emulator.entities.message_log import SHELF, MessageLog, Residency
from tests.costs import steps


def message(number: int, size: int | None = None, **more: object) -> BrokeredMessage:
    size = number % 7 if size is None else size
    return BrokeredMessage(number, number, 0, b"x" * size, size, **more)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


class Shelves:
    """Return dropped payloads unchanged."""

    def __init__(self) -> None:
        self.messages: dict[int, BrokeredMessage] = {}
        self.loaded: list[int] = []

    def load_shelf(self, box: int, shelf: int) -> list[BrokeredMessage]:
        assert box == 5
        self.loaded.append(shelf)
        return [found for number, found in sorted(self.messages.items()) if number // SHELF == shelf]

    def load_payload(self, box: int, sequence_number: int) -> bytes:
        return b"%d-%d" % (box, sequence_number)


def filled_log(budget: int, numbers: range) -> tuple[MessageLog, Residency, Shelves]:
    shelves = Shelves()
    residency = Residency(shelves, budget)
    log = MessageLog(5, residency)
    for number in numbers:
        shelves.messages[number] = message(number, 100)
        log.add(shelves.messages[number])
        log.make_ready(shelves.messages[number])
    return log, residency, shelves


@given(st.lists(st.integers(1, 5_000), unique=True), st.data())
def test_a_message_log_is_a_sorted_map(numbers: list[int], data: st.DataObject) -> None:
    residency = Residency()
    log = MessageLog(0, residency)
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
    assert log.size_bytes == sum(len(kept.payload or b"") for kept in model.values())
    assert all(log.get(number) is model.get(number) for number in numbers)
    assert residency.size == sum(shelf.size + 512 * shelf.count for shelf in log.resident_shelves())
    for kept in model.values():
        log.remove(kept)
    assert (residency.size, log.size_bytes, len(log)) == (0, 0, 0)


def test_a_walk_from_the_middle_of_many_is_quick() -> None:
    log = MessageLog(0)
    for number in range(1, 20_001):
        log.add(message(number))
    for number in range(1, 10_000):  # what a consumer has taken from the front
        found = log.get(number)
        assert found is not None
        log.remove(found)
    assert next(log.walk(1)).sequence_number == 10_000
    assert next(log.walk(15_000)).sequence_number == 15_000
    # Stepping over all that were removed would take 10,000.
    assert steps(lambda: next(log.walk(1))) < 3_000
    assert steps(lambda: next(log.walk(15_000))) < 3_000


@pytest.mark.parametrize(
    "numbers", [(5, 1024), (5, 2049), (1030, 1), (1030, 2049), (1029 * SHELF, 5), (5 * SHELF * SHELF, 5)]
)
def test_numbers_that_are_far_apart_are_found(numbers: tuple[int, int]) -> None:
    log = MessageLog(0)
    messages = [message(number, 1) for number in numbers]
    for each in messages:
        log.add(each)
    assert [log.get(number) for number in numbers] == messages
    assert [found.sequence_number for found in log.walk()] == sorted(numbers)


def shed_all(log: MessageLog) -> None:
    for shelf in log.resident_shelves():
        log.shed(shelf.number)


@given(
    st.lists(st.integers(1, 3 * SHELF), unique=True, min_size=1, max_size=20),
    st.lists(st.sampled_from(["take", "front", "place", "back", "shed", "withdraw"]), max_size=40),
)
def test_messages_are_taken_from_where_they_were_put_back(numbers: list[int], steps: list[str]) -> None:
    shelves = Shelves()
    log = MessageLog(5, Residency(shelves))
    for number in numbers:
        shelves.messages[number] = message(number)
        log.add(shelves.messages[number])
        log.make_ready(shelves.messages[number])
    places, taken = {number: (number, 0) for number in numbers}, list[BrokeredMessage]()
    for turn, step in enumerate(steps, 1):
        if step == "shed":
            shed_all(log)
        elif step == "take":
            found = log.take_ready()
            expected = min(places, key=lambda number: places[number], default=None)
            assert (found.sequence_number if found else None) == expected
            if found is not None:
                del places[found.sequence_number]
                found.lock_token = uuid4()
                taken.append(found)
        elif step == "withdraw" and places:
            number = max(places)
            gone = log.get(number)
            assert gone is not None
            log.withdraw(gone)
            log.remove(gone)
            del places[number], shelves.messages[number]
        elif step in ("front", "place", "back") and taken:
            back = taken.pop(0)
            back.lock_token = None
            log.make_ready(back, step)
            number = back.sequence_number
            places[number] = {"front": (-turn, 0), "place": (number, 0), "back": (max(shelves.messages), turn)}[step]
        assert log.ready_count == len(places)
    rest = [log.take_ready() for _ in places]
    assert [found.sequence_number for found in rest if found] == sorted(places, key=lambda number: places[number])
    assert log.take_ready() is None


# ------------------------------------------------------------------------------------------- shedding


def test_least_recently_used_shelves_are_shed_and_loaded_again() -> None:
    log, residency, shelves = filled_log(budget=1_500_000, numbers=range(4 * SHELF))
    residency.turn += 1
    log.get(10)  # the first shelf is in use
    residency.shed()
    assert residency.size <= 1_125_000
    assert [shelf.number for shelf in log.resident_shelves()] == [0]
    assert [found.sequence_number for found in log.walk(3 * SHELF)] == list(range(3 * SHELF, 4 * SHELF))
    assert shelves.loaded == [3]
    assert residency.size == sum(shelf.size + 512 * shelf.count for shelf in log.resident_shelves())
    assert [found.sequence_number for found in iter(log.take_ready, None)] == list(range(4 * SHELF))


def test_a_shelf_with_a_locked_message_is_not_shed() -> None:
    log, residency, _ = filled_log(budget=1, numbers=range(10))
    taken = log.take_ready()
    assert taken is not None
    taken.lock_token = object()  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
    residency.shed()
    assert log.get(0) is taken
    taken.lock_token = None
    for _ in range(2000):  # it is not tried again at once
        residency.shed()
    assert log.resident_shelves() == []
    assert residency.size == 0


# --------------------------------------------------------------------------------------------- expiry


def test_messages_expire_in_order_whatever_was_taken() -> None:
    log = MessageLog(0)
    log.add(last := message(9 * SHELF, 1, expires_at=10**10))
    log.expect(last)
    for number in range(3):  # A consumer takes all others at once.
        log.add(kept := message(number, 1, expires_at=10**9 + number))
        log.make_ready(kept)
        log.expect(kept)
        assert log.take_ready() is kept
        log.remove(kept)
    log.add(kept := message(5000, 1, expires_at=7))
    log.make_ready(kept)
    log.expect(kept)
    assert log.next_due == 7
    assert log.due(7) == [kept]
    log.remove(kept)
    assert log.next_due == 10**10
    assert log.due(10**10) == [last]
