from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta

import pytest

from sbnotebook.errors import DecisionError, SettlementFailedError
from sbnotebook.model import Complete, Defer, EntityAddress, Message, MessageState, OutcomeStatus
from sbnotebook.settlement import AsyncNamespace, Watch
from sbnotebook.settlement.locking.wake_up import SUBJECT, WakeUp
from tests.filled_queues import filled_queue
from tests.hand_clock import HandClock
from tests.settlement.deferrals import deferrals_of

HOUR = timedelta(hours=1)


@pytest.mark.anyio
async def test_a_deferred_message_is_woken_when_it_is_due(namespace_by_hand: AsyncNamespace, clock: HandClock) -> None:
    await filled_queue(namespace_by_hand, "woken", 2, lock_duration=timedelta(minutes=1))
    queue = namespace_by_hand.entity("woken")
    async with queue.batch() as batch:
        await batch.receive(2)
        assert (await batch.settle(Defer(wake_after=HOUR))).settled == 2
        assert await batch.receive(1, max_wait=0.5) == ()
        clock.emulators.advance(HOUR.total_seconds())
        wake_ups = await batch.receive(5)
        said = [WakeUp.of(message) for message in wake_ups]
        assert [each and each.sequence_number for each in said] == [1, 2]
        for message, wake_up in zip(wake_ups, said, strict=True):
            assert wake_up is not None
            original = await wake_up.receive(batch)
            assert original is not None
            assert original.state is MessageState.DEFERRED
            assert (await batch.settle(Complete(), [original])).ok
            assert (await batch.settle(Complete(), [message])).ok
            assert await wake_up.receive(batch) is None
    assert await queue.peek() == []
    assert not (await deferrals_of(queue)).entries


@pytest.mark.anyio
async def test_a_wake_up_without_its_message_does_no_harm(namespace: AsyncNamespace) -> None:
    await filled_queue(namespace, "harmless", 2, lock_duration=timedelta(minutes=1))
    queue = namespace.entity("harmless")
    first, second = await queue.peek()
    async with queue.batch() as batch:
        assert await WakeUp.for_message(first).receive(batch) is None  # it was never deferred
        await batch.receive(2)
        await batch.settle(Defer())
        other = replace(WakeUp.for_message(second), enqueued_time="2020-01-01T00:00:00+00:00")
        assert await other.receive(batch) is None  # another message with the same number
        with pytest.raises(DecisionError, match="is for a message of orders"):
            await replace(other, entity=EntityAddress("orders")).receive(batch)
    assert [m.state for m in await queue.peek()] == [MessageState.DEFERRED] * 2


@pytest.mark.anyio
async def test_nothing_is_deferred_when_the_wake_up_cannot_be_sent(namespace: AsyncNamespace) -> None:
    await filled_queue(namespace, "unsent", 1, lock_duration=timedelta(minutes=1))
    await namespace.create_queue("wakes")
    queue = namespace.entity("unsent")
    async with queue.batch() as batch:
        await batch.receive(1)
        await namespace.entity("wakes").send([Message(body=b"warm")])
        await namespace.delete_queue("wakes")
        with pytest.raises(SettlementFailedError, match=r"1 of 1 wake-up messages to wakes were not confirmed"):
            await batch.settle(Defer(wake_after=HOUR, wake_to=EntityAddress("wakes")))
    (message,) = await queue.peek()
    assert (message.state, message.delivery_count) == (MessageState.ACTIVE, 0)


@pytest.mark.anyio
async def test_a_refused_wake_up_leaves_its_message_skipped(namespace: AsyncNamespace) -> None:
    await filled_queue(namespace, "left", 2, lock_duration=timedelta(minutes=1))
    await namespace.create_queue("rooms", requires_session=True)
    async with namespace.entity("left").batch() as batch:
        await batch.receive(2)
        with (
            Watch() as watch,
            pytest.raises(SettlementFailedError, match=r"give each message a session_id\. So these messages were not"),
        ):
            await batch.settle(Defer(wake_after=HOUR, wake_to=EntityAddress("rooms")))
        assert [outcome.status for outcome in watch.report] == [OutcomeStatus.SKIPPED] * 2
        assert len(batch.messages) == 2


@pytest.mark.anyio
async def test_a_dead_letter_queue_needs_a_queue_for_wake_ups(namespace: AsyncNamespace) -> None:
    await filled_queue(namespace, "dead", 1, lock_duration=timedelta(minutes=1))
    async with namespace.entity("dead/$dlq").batch() as batch:
        with pytest.raises(DecisionError, match=r"name a queue for it, wake_to="):
            await batch.settle(Defer(wake_after=HOUR))


@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b"x" * 10_000, b"[" * 4_000, json.dumps({"entity": "a//b", "sequence_number": 1}).encode()]
    + [
        json.dumps({"entity": "orders", "sequence_number": number, "enqueued_time": ""}).encode()
        for number in (0, -1, "1", 1.5, True)
    ],
)
def test_what_only_looks_like_a_wake_up_is_none(body: bytes) -> None:
    assert WakeUp.of(Message(body=body, subject=SUBJECT)) is None


def test_a_wake_up_has_a_number_from_one_and_a_short_body() -> None:
    said = {"entity": "orders", "sequence_number": 1, "enqueued_time": ""}
    body = json.dumps(said).encode().ljust(4_096)
    assert WakeUp.of(Message(body=body, subject=SUBJECT)) == WakeUp(EntityAddress("orders"), 1, "")
    assert WakeUp.of(Message(body=body + b" ", subject=SUBJECT)) is None
    assert WakeUp.of(Message(body=body)) is None


def test_the_same_deferral_has_the_same_id() -> None:
    wake_up = WakeUp(EntityAddress("orders"), 7, "2026-01-01T00:00:00+00:00")
    due = HandClock().now()
    first, again = (wake_up.message(due, deferral=0), wake_up.message(due + HOUR, deferral=0))
    assert first.message_id == again.message_id
    assert first.message_id != wake_up.message(due, deferral=1).message_id
    assert WakeUp.of(first) == wake_up
    assert first.scheduled_enqueue_time == due


def test_wake_ups_that_cannot_be_are_refused() -> None:
    with pytest.raises(DecisionError, match="cannot come in the past"):
        Defer(wake_after=timedelta(seconds=-1))
    with pytest.raises(DecisionError, match="goes with wake_after"):
        Defer(wake_to=EntityAddress("orders"))
    with pytest.raises(DecisionError, match="is the queue or topic"):
        Defer(wake_after=HOUR, wake_to=EntityAddress.parse("orders/$dlq"))
