"""The events of locks, as they are kept, shown and told."""

from __future__ import annotations

import logging
from datetime import UTC, datetime

import pytest

from sbnotebook.settlement.locking.lock_events import LockEvent, LockEventKind, LockEvents, numbered

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


def event(kind: LockEventKind, *numbers: int) -> LockEvent:
    return LockEvent(kind, NOON, numbers)


def test_the_last_thousand_events_are_kept() -> None:
    events = LockEvents(NOON)
    for number in range(1_001):
        events.tell(event(LockEventKind.LOST, number))
    assert [each.sequence_numbers for each in events.kept] == [(number,) for number in range(1, 1_001)]


def test_the_state_is_the_newest_event_but_for_lost_locks() -> None:
    events = LockEvents(NOON)
    assert events.state == event(LockEventKind.RENEWING)
    for kind in (LockEventKind.FAILING, LockEventKind.LOST):
        events.tell(event(kind, 1))
        assert (events.state.kind, events.state.is_trouble) == (LockEventKind.FAILING, True)
    events.tell(event(LockEventKind.RENEWING))
    assert not events.state.is_trouble


def test_a_watcher_that_fails_is_logged_and_the_others_are_told(caplog: pytest.LogCaptureFixture) -> None:
    events, told = LockEvents(NOON), list[LockEvent]()

    def fail(_: LockEvent) -> None:
        raise ValueError("a bug of the watcher")

    leave = events.watch(fail)
    events.watch(told.append)
    with caplog.at_level(logging.ERROR):
        events.tell(event(LockEventKind.LATE))
    assert [each.kind for each in told] == [LockEventKind.LATE]
    assert "a bug of the watcher" in caplog.text
    caplog.clear()
    leave()
    leave()
    events.tell(event(LockEventKind.RENEWING))
    assert (len(told), caplog.text) == (2, "")


@pytest.mark.parametrize(
    ("count", "text"), [(0, ""), (1, "#1"), (5, "#1, #2, #3, #4, #5"), (1_005, "#1, #2, #3, #4, #5 and 1,000 more")]
)
def test_sequence_numbers_are_shown_up_to_five(count: int, text: str) -> None:
    assert numbered(range(1, count + 1)) == text


def test_an_event_without_numbers_and_words_is_its_kind() -> None:
    assert str(event(LockEventKind.ENDED)) == "2026-01-02 12:00:00 UTC ended"
