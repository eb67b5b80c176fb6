# ruff: noqa: SLF001 (a lock is taken away behind the library's back)
# pyright: reportPrivateUsage=false

from __future__ import annotations

from datetime import timedelta

import pytest

from sbnotebook.errors import BatchClosedError, DecisionError
from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    Message,
    MessageState,
    OutcomeStatus,
    Release,
)
from sbnotebook.settlement import AsyncEntity, AsyncNamespace
from sbnotebook.testing.clock import HandClock

pytestmark = pytest.mark.anyio


async def filled(
    namespace: AsyncNamespace, name: str, count: int, lock_duration: timedelta | None = None
) -> AsyncEntity:
    await namespace.create_queue(name, lock_duration=lock_duration)
    queue = namespace.entity(name)
    await queue.send((Message(body=b"%d" % n, message_id=f"m{n}") for n in range(count)), max_in_flight=1)
    return queue


async def test_every_decision_does_what_it_says_and_the_rest_is_released(namespace: AsyncNamespace) -> None:
    queue = await filled(namespace, "decisions", 6)
    async with queue.batch() as batch:
        held = await batch.receive(6)
        assert [message.message_id for message in held] == [f"m{n}" for n in range(6)]
        for decision, message in zip(
            (Complete(), Abandon(), DeadLetter("Bad", "no good"), Defer(), Release()), held, strict=False
        ):
            report = await batch.settle(decision, [message])
            assert [outcome.status for outcome in report] == [OutcomeStatus.SETTLED], report[0].description
        assert [message.message_id for message in batch.messages] == ["m5"]

    left = {message.message_id: message for message in await queue.peek()}
    assert set(left) == {"m1", "m3", "m4", "m5"}
    assert left["m1"].delivery_count == 1
    assert left["m3"].state is MessageState.DEFERRED
    assert left["m4"].delivery_count == 0, "releasing must not count as a delivery"
    assert left["m5"].delivery_count == 0, "closing a batch must not count as a delivery"
    (dead,) = await namespace.entity("decisions/$dlq").peek()
    assert (dead.message_id, dead.dead_letter_reason, dead.dead_letter_error_description) == ("m2", "Bad", "no good")
    assert dead.body == b"2"


async def test_released_messages_can_be_locked_again_at_once(namespace: AsyncNamespace) -> None:
    queue = await filled(namespace, "again", 3)
    for _ in range(2):
        async with queue.batch() as batch:
            assert len(await batch.receive(3, max_wait=2)) == 3


async def test_settling_twice_says_so_and_strangers_are_refused(namespace: AsyncNamespace) -> None:
    queue = await filled(namespace, "twice", 2)
    async with queue.batch() as batch, queue.batch() as other:
        (first,) = await batch.receive(1)
        (second,) = await other.receive(1)
        await batch.settle(Complete(), [first])
        again = await batch.settle(Complete(), [first])
        assert [outcome.status for outcome in again] == [OutcomeStatus.ALREADY_SETTLED]
        with pytest.raises(DecisionError, match="not of this batch"):
            await batch.settle(Complete(), [second])
    with pytest.raises(BatchClosedError):
        await batch.settle(Complete(), [first])


async def test_a_dead_letter_queue_does_not_take_dead_letters(namespace: AsyncNamespace) -> None:
    queue = await filled(namespace, "deadend", 1)
    async with queue.batch() as batch:
        await batch.receive(1)
        await batch.settle(DeadLetter("Bad"))
    async with namespace.entity("deadend/$dlq").batch() as batch:
        held = await batch.receive(1)
        with pytest.raises(DecisionError, match="dead-letter queue already"):
            await batch.settle(DeadLetter("Worse"))
        assert (await batch.settle(Complete())).settled == len(held) == 1


async def test_locks_are_renewed_before_a_third_is_left_and_then_settle(
    namespace_by_hand: AsyncNamespace, clock: HandClock
) -> None:
    queue = await filled(namespace_by_hand, "renewed", 3)
    async with queue.batch() as batch:
        held = await batch.receive(3)
        for _ in range(3):
            await clock.turn(45)
            ends = [batch.locked_until(message.sequence_number) for message in held]
            assert all(end and end - clock.now() > timedelta(seconds=20) for end in ends)
        assert batch.renewal_error is None
        assert (await batch.settle(Complete())).ok
    assert await queue.peek() == []


async def test_after_renew_for_a_lost_lock_is_told_and_nothing_was_done(
    namespace_by_hand: AsyncNamespace, clock: HandClock
) -> None:
    queue = await filled(namespace_by_hand, "lost", 2)
    async with queue.batch(renew_for=timedelta(seconds=10)) as batch:
        first, second = await batch.receive(2)
        await batch.settle(Complete(), [second])
        await clock.turn(62)
        assert batch.lost == (first.sequence_number,)
        assert batch.messages == ()
        report = await batch.settle(Complete(), [first, second])
        assert [outcome.status for outcome in report] == [OutcomeStatus.LOCK_LOST, OutcomeStatus.ALREADY_SETTLED]
    (still_there,) = await queue.peek()
    assert still_there.delivery_count == 1


async def test_a_lock_that_the_service_took_away_is_found_among_others(
    namespace_by_hand: AsyncNamespace, clock: HandClock
) -> None:
    queue = await filled(namespace_by_hand, "taken", 3)
    async with queue.batch() as batch:
        held = await batch.receive(3)
        stolen = batch._holds[held[1].sequence_number].received
        async with namespace_by_hand.connection.receiver(queue.address) as other:
            await other.abandon_message(stolen)
        stolen._settled = False  # the SDK notes it on the object that both share
        await clock.turn(40)
        assert batch.lost == (held[1].sequence_number,)
        assert [message.message_id for message in batch.messages] == ["m0", "m2"]
        assert (await batch.settle(Complete())).ok


async def test_a_message_of_several_frames_keeps_its_bytes(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("large")
    queue = namespace.entity("large")
    body = bytes(range(256)) * 1024
    assert (await queue.send([Message(body=body)])).ok
    async with queue.batch() as batch:
        (held,) = await batch.receive(1)
        assert held.body == body
