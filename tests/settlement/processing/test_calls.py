from __future__ import annotations

import gc
import time
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import anyio.lowlevel
import pytest

from sbnotebook.model import EntityAddress, LockedMessage
from sbnotebook.settlement.processing.calls import CallGroup, EndedCall, FunctionCaller, LostCalls
from sbnotebook.settlement.processing.policy import End
from sbnotebook.testing.clock import HandClock

pytestmark = pytest.mark.anyio

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


def group_of(count: int) -> CallGroup:
    return CallGroup(deque(map(delivered, range(1, count + 1))))


async def test_slow_calls_have_a_hop_each() -> None:
    seconds = 0.006
    caller = FunctionCaller(lambda _: time.sleep(seconds) if seconds else None, HandClock(), workers=1)
    for _ in range(12):
        group = group_of(2)
        await caller.run(group)
        assert (len(group.todo), len(group.ends), caller.group_size) == (1, 1, 1)
    seconds = 0.05
    await caller.run(group_of(1))
    seconds = 0.0
    await caller.run(group_of(1))
    assert caller.group_size == 1, "one quick call does not make a function quick"


async def test_calls_of_an_async_function_share_no_hop() -> None:
    async def work(_message: LockedMessage) -> None:
        await anyio.lowlevel.checkpoint()

    caller = FunctionCaller(work, HandClock(), workers=1)
    for _ in range(12):
        await caller.run(group_of(1))
    assert caller.group_size == 1


async def test_a_stopped_caller_begins_no_more_of_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sbnotebook.settlement.processing.calls._GROUP_SECONDS", 60.0)

    def work(message: LockedMessage) -> None:
        if message.sequence_number == 2:
            caller.stop()

    caller, group = FunctionCaller(work, HandClock(), workers=1), group_of(4)
    await caller.run(group)
    assert [ended.message.sequence_number for ended in group.ends] == [1, 2]
