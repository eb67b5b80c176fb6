from __future__ import annotations

import pytest

from sbnotebook.emulator.entities import BrokeredMessage, MessageState
from sbnotebook.emulator.entities.message_log import MessageLog
from sbnotebook.emulator.entities.schedule import Schedule


@pytest.fixture
def log() -> MessageLog:
    return MessageLog(0)


@pytest.fixture
def schedule(log: MessageLog) -> Schedule:
    return Schedule(log)


def plan(log: MessageLog, schedule: Schedule, number: int, when: int) -> BrokeredMessage:
    message = BrokeredMessage(number, number, 0, b"", state=MessageState.SCHEDULED, scheduled_time=when)
    log.add(message)
    schedule.add(message)
    return message


def take(log: MessageLog, schedule: Schedule, now: int) -> list[int]:
    found: list[int] = []
    for message in schedule.due(now):
        log.remove(message)
        schedule.removed()
        found.append(message.sequence_number)
    return found


def test_messages_are_due_in_the_order_of_their_times(log: MessageLog, schedule: Schedule) -> None:
    for number, when in ((1, 30), (2, 10), (3, 20), (4, 10)):
        plan(log, schedule, number, when)
    assert (len(schedule), schedule.next_time) == (4, 10)
    assert take(log, schedule, 9) == []
    assert take(log, schedule, 20) == [2, 4, 3]
    assert (len(schedule), schedule.next_time) == (1, 30)


def test_messages_are_cancelled_all_or_none(log: MessageLog, schedule: Schedule) -> None:
    for number in (1, 2):
        plan(log, schedule, number, 10)
    log.add(BrokeredMessage(3, 3, 0, b""))
    for other in (3, 99):
        assert not schedule.cancel([1, other], log.remove)
    assert len(schedule) == 2
    assert schedule.cancel([1, 1, 2], log.remove)
    assert (len(schedule), len(log)) == (0, 1)
    assert take(log, schedule, 10) == []


def test_cancelled_messages_are_forgotten_in_the_end(log: MessageLog, schedule: Schedule) -> None:
    plan(log, schedule, 1, 9000)
    times: set[int | None] = set()
    for number in range(2, 200):
        plan(log, schedule, number, 1000)
        assert schedule.cancel([number], log.remove)
        times.add(schedule.next_time)
    assert times == {1000, 9000}
    assert take(log, schedule, 9000) == [1]
    assert schedule.next_time is None


def test_a_restored_schedule_knows_what_stands_in_the_log(log: MessageLog, schedule: Schedule) -> None:
    for number, when in ((1, 30), (2, 10)):
        log.add(BrokeredMessage(number, number, 0, b"", state=MessageState.SCHEDULED, scheduled_time=when))
    schedule.restore([(30, 1), (10, 2)])
    assert (len(schedule), schedule.next_time) == (2, 10)
    assert take(log, schedule, 30) == [2, 1]
