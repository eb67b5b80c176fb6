from __future__ import annotations

from uuid import uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sbnotebook.emulator.entities import BrokeredMessage, MessageState
from sbnotebook.emulator.entities.message_log import SHELF, MessageLog, Residency, ShelfSummary
from tests.costs import steps


def message(number: int, size: int | None = None, **more: object) -> BrokeredMessage:
    return BrokeredMessage(number, number, 0, b"x" * (number % 7 if size is None else size), **more)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


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
    assert residency.size == log.resident_size
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


def test_a_number_that_is_not_there_is_not_found() -> None:
    log = MessageLog(0)
    log.add(message(5))
    assert log.get(4) is None
    assert log.get(5_000_000) is None
    with pytest.raises(KeyError):
        log.remove(message(6))


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
            log.make_ready(back)
            log.put_back(back, step)
            number = back.sequence_number
            places[number] = {"front": (-turn, 0), "place": (number, 0), "back": (max(shelves.messages), turn)}[step]
        assert log.ready_count == len(places)
    rest = [log.take_ready() for _ in places]
    assert [found.sequence_number for found in rest if found] == sorted(places, key=lambda number: places[number])
    assert log.take_ready() is None


def test_a_message_that_was_put_back_can_be_withdrawn() -> None:
    log = MessageLog(0)
    messages = [message(number) for number in (1, 2, 3)]
    for each in messages:
        log.add(each)
        log.make_ready(each)
    for each in messages[:2]:
        assert log.take_ready() is each
    for each in messages[:2]:
        log.make_ready(each)
        log.put_back(each, "front")
    log.withdraw(messages[1])
    log.remove(messages[1])
    assert list(iter(log.take_ready, None)) == [messages[0], messages[2]]


def test_ready_messages_are_taken_by_number() -> None:
    log = MessageLog(0)
    for number in (3000, 5, 2000, 7, 6):
        log.add(message(number))
        log.make_ready(message(number))
    withdrawn = log.get(6)
    assert withdrawn is not None
    log.withdraw(withdrawn)
    log.remove(withdrawn)
    assert log.ready_count == 4
    assert [found.sequence_number for found in iter(log.take_ready, None)] == [5, 7, 2000, 3000]
    assert log.ready_count == 0


def test_a_payload_can_be_replaced() -> None:
    log = MessageLog(0, residency := Residency())
    log.add(kept := message(1, 10))
    log.replace_payload(kept, b"longer than it was" * 50)
    assert (kept.size, log.size_bytes, residency.size) == (900, 900, log.resident_size)
    log.remove(kept)
    assert residency.size == 0


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
    assert residency.size == log.resident_size
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


def test_messages_without_a_storage_stay_in_memory() -> None:
    log = MessageLog(5, residency := Residency(None, budget=1))
    log.add(message(1))
    residency.shed()
    assert log.get(1) is not None


def test_a_shelf_that_is_shed_can_still_be_added_to() -> None:
    log, residency, shelves = filled_log(budget=1, numbers=range(11))
    residency.shed()
    assert residency.size == 0
    log.add(message(11, 100))
    assert shelves.loaded == [0]
    assert [found.sequence_number for found in log.walk()] == list(range(12))
    assert residency.size == log.resident_size == log.size_bytes + 12 * 512


def test_a_large_payload_is_loaded_when_it_is_read() -> None:
    log, _, _ = filled_log(budget=1, numbers=range(1))
    assert log.payload(message(3, 2)) == b"xx"
    assert log.payload(BrokeredMessage(4, 4, 0, None, size=9)) == b"5-4"
    with pytest.raises(AssertionError, match="lost"):
        MessageLog(0).payload(BrokeredMessage(4, 4, 0, None, size=9))


@pytest.mark.parametrize("count", [9, 11])
def test_a_shelf_that_comes_back_with_another_count_is_noticed(count: int) -> None:
    log, residency, shelves = filled_log(budget=1, numbers=range(10))
    residency.shed()
    shelves.messages = {number: message(number, 100) for number in range(count)}
    with pytest.raises(AssertionError, match=f"10 messages came back with {count}"):
        log.get(5)


def test_restored_shelves_are_loaded_when_they_are_read() -> None:
    shelves = Shelves()
    shelves.messages = {
        1: message(1, 10, state=MessageState.DEFERRED),
        2: message(2, 20, expires_at=70),
        SHELF: message(SHELF, 30),
    }
    log = MessageLog(5, residency := Residency(shelves))
    log.restore([ShelfSummary(0, 2, 30, 1, 70), ShelfSummary(1, 1, 30, 1, None)])
    assert (len(log), log.size_bytes, log.ready_count, log.next_expiry) == (3, 60, 2, 70)
    assert (shelves.loaded, residency.size) == ([], 0)
    assert [found.sequence_number for found in log.due(70)] == [2]
    assert shelves.loaded == [0]


def test_a_closed_log_takes_no_room() -> None:
    log, residency, _ = filled_log(budget=10**9, numbers=range(5000))
    other, _, _ = filled_log(budget=10**9, numbers=range(10))
    assert residency.size == log.resident_size
    log.close()
    assert residency.size == 0
    assert other.resident_size > 0


# --------------------------------------------------------------------------------------------- expiry


def test_active_messages_without_a_lock_expire() -> None:
    log = MessageLog(0)
    for number, more in enumerate(
        [{"expires_at": 50}, {"expires_at": 60}, {}, {"expires_at": 40, "state": MessageState.DEFERRED}]
    ):
        log.add(kept := message(number, 1, **more))
        log.expect_expiry(kept)
    assert log.next_expiry == 40
    assert log.due(49) == []
    assert [found.sequence_number for found in log.due(50)] == [0]
    assert log.next_expiry == 60


def test_times_that_are_outdated_do_not_pile_up() -> None:
    log = MessageLog(0)
    log.add(last := message(9 * SHELF, 1, expires_at=10**10))
    log.expect_expiry(last)
    for number in range(5000):  # A consumer takes all others at once.
        log.add(kept := message(number, 1, expires_at=10**9 + number))
        log.make_ready(kept)
        assert log.take_ready() is kept
        log.remove(kept)
    assert len(log._expiries) < 100  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    log.add(kept := message(5000, 1, expires_at=7))
    log.make_ready(kept)
    assert log.next_expiry == 7
    assert log.due(7) == [kept]
    log.remove(kept)
    assert log.due(10**10) == [last]


def test_a_time_that_is_outdated_hides_none_that_is_due() -> None:
    log = MessageLog(0)
    messages = [message(number, 1, expires_at=number) for number in (1, SHELF, 2 * SHELF)]
    for each in messages:
        log.add(each)
        log.expect_expiry(each)
    log.remove(messages[0])
    assert log.due(10**6) == messages[1:]


def test_the_time_of_a_message_that_is_gone_finds_nothing() -> None:
    log = MessageLog(0)
    late, early, lasting = (message(number, 1, expires_at=when) for number, when in ((1, 100), (2, 50), (3, None)))
    for each in (late, early, lasting):
        log.add(each)
        log.expect_expiry(each)
    log.remove(late)
    assert log.due(50) == [early]
    log.remove(early)
    assert log.due(100) == []
    assert log.next_expiry is None


def test_the_budget_is_64_megabytes_unless_it_is_told() -> None:
    for size, remains in ((67_108_864 - 512, True), (67_108_864 - 511, False)):
        shelves = Shelves()
        log = MessageLog(5, residency := Residency(shelves))
        log.add(BrokeredMessage(1, 1, 0, None, size))
        residency.shed()
        assert bool(log.resident_shelves()) is remains


def test_shedding_stops_at_three_quarters_of_the_budget() -> None:
    log, residency, _ = filled_log(budget=4 * SHELF * 612 - 1, numbers=range(4 * SHELF))
    for turn, shelf in enumerate((2, 0, 3, 1)):
        residency.turn = turn
        log.get(shelf * SHELF)
    residency.shed()
    # Two shelves are left: three would be a byte too many. The others were used earlier.
    assert [shelf.number for shelf in log.resident_shelves()] == [1, 3]
    assert residency.size == 2 * SHELF * 612


def test_shedding_is_tried_again_after_1024_turns_or_more_bytes() -> None:
    log, residency, _ = filled_log(budget=1_000, numbers=range(2))
    taken = log.take_ready()
    assert taken is not None
    taken.lock_token = uuid4()
    residency.shed()
    taken.lock_token = None
    for turn in (1024, 2048):
        while log.resident_shelves() and residency.turn < 3_000:
            residency.shed()
        assert residency.turn == turn
        taken.lock_token = uuid4()
        assert log.get(taken.sequence_number) is taken
        residency.shed()
        taken.lock_token = None
    log, residency, shelves = filled_log(budget=1_000, numbers=range(2))
    taken = log.take_ready()
    assert taken is not None
    taken.lock_token = uuid4()
    residency.shed()
    taken.lock_token = None
    for size, remains in ((250 - 512, True), (1, False)):  # up to a quarter of the budget more, and beyond
        residency.size += size + 512
        residency.shed()
        assert bool(log.resident_shelves()) is remains
    assert shelves.loaded == []


def test_a_forgotten_log_is_not_shed() -> None:
    log, residency, _ = filled_log(budget=1, numbers=range(10))
    residency.forget(log)
    residency.shed()
    assert len(log.resident_shelves()) == 1


def test_a_message_of_a_shelf_in_the_store_cannot_be_removed() -> None:
    log, residency, shelves = filled_log(budget=1, numbers=range(10))
    residency.shed()
    with pytest.raises(AssertionError, match="shelf of the message 3 was shed"):
        log.remove(shelves.messages[3])
    residency.storage = None
    with pytest.raises(AssertionError, match="nowhere else"):
        log.get(3)


def test_restored_messages_are_taken_and_walked_in_order() -> None:
    shelves = Shelves()
    shelves.messages = {number: message(number, 1) for number in (1, 2, SHELF, SHELF + 1)}
    log = MessageLog(5, Residency(shelves))
    log.restore([ShelfSummary(0, 2, 2, 2, None), ShelfSummary(1, 2, 2, 2, None)])
    assert [found.sequence_number for found in iter(log.take_ready, None)] == [1, 2, SHELF, SHELF + 1]
    assert (log.ready_count, log.take_ready()) == (0, None)
    assert [found.sequence_number for found in log.walk(2)] == [2, SHELF, SHELF + 1]
