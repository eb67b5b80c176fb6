from __future__ import annotations

import gc
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest

from sbnotebook.model import EntityAddress, LockedMessage
from sbnotebook.settlement.processing.calls import EndedCall, LostCalls
from sbnotebook.settlement.processing.policy import End

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def delivered(number: int, *, times: int = 1) -> LockedMessage:
    return LockedMessage(
        entity=EntityAddress("orders"),
        sequence_number=number,
        enqueued_time=NOW,
        lock_token=UUID(int=100 * times + number),
        body=b"content",
        message_id=f"m{number}",
    )


def test_a_message_that_comes_again_finds_its_call() -> None:
    lost, again = LostCalls(), delivered(1, times=2)
    lost.keep(EndedCall(delivered(1), End.SKIPPED, error=ValueError(), done_at=NOW), 7)
    assert lost.take(again) == (EndedCall(again, End.SKIPPED, done_at=NOW), 7)
    assert lost.take(again) is None


@pytest.mark.parametrize("seconds", [1, -1])
def test_another_message_of_the_same_number_is_not_settled(seconds: int) -> None:
    lost = LostCalls()
    lost.keep(EndedCall(delivered(1), End.COMPLETED), 0)
    assert lost.take(replace(delivered(1), enqueued_time=NOW + timedelta(seconds=seconds))) is None


def test_a_message_that_was_settled_has_no_call() -> None:
    lost = LostCalls()
    lost.keep(EndedCall(delivered(1), End.COMPLETED), 0)
    lost.forget(delivered(1, times=2))
    lost.forget(delivered(2))
    assert lost.take(delivered(1)) is None


def test_the_contents_of_messages_are_not_kept() -> None:
    lost = LostCalls()
    lost.keep(EndedCall(delivered(1), End.FAILED, error=ValueError(delivered(1))), 0)
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is LockedMessage and each.body == b"content"]


def test_the_last_calls_are_kept_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbnotebook.settlement.processing.calls._LOST_KEPT", 2)
    lost = LostCalls()
    for number in (1, 2, 1, 3):
        lost.keep(EndedCall(delivered(number), End.COMPLETED), number)
    kept = [number for number in (1, 2, 3) if lost.take(delivered(number))]
    assert kept == [1, 3], "the second was kept longest ago"
