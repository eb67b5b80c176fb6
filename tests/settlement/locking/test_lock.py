# pyright: reportPrivateUsage=false

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta
from uuid import uuid4

import anyio
import pytest

from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import BatchClosedError, ConfigurationError, DecisionError
from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    Message,
    MessageState,
    OutcomeStatus,
    ReceivedMessage,
    Release,
    Resubmit,
)
from sbnotebook.settlement import AsyncEntity, AsyncNamespace
from sbnotebook.settlement.locking.lock_table import LockEventKind
from sbnotebook.settlement.sdk import clients
from sbnotebook.settlement.wire.encoding import payload_of
from tests.filled_queues import deferred_queue, delivery_counts, filled_queue, session_messages
from tests.hand_clock import HandClock
from tests.settlement.waiting import until

pytestmark = pytest.mark.anyio

MINUTE = timedelta(minutes=1)
RENEWING, ENDED = LockEventKind.RENEWING, LockEventKind.ENDED


async def test_every_decision_does_what_it_says_and_the_rest_is_released(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "decisions", 6)
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


async def test_a_group_without_messages_is_settled_at_once(namespace: AsyncNamespace) -> None:
    queue = await deferred_queue(namespace, 1, 1)

    def refuse(message: ReceivedMessage) -> Message:
        raise ValueError(f"not {message.message_id}")

    # It is received by its number, and no clone of it is sent.
    (failed,) = await queue.plan_resubmit(await queue.peek(), Resubmit(to=queue.address), edit=refuse).apply()
    assert failed.status is OutcomeStatus.FAILED
    assert "ValueError: not 1" in (failed.description or "")


async def test_locks_are_renewed_before_a_third_is_left_and_then_settle(
    namespace_by_hand: AsyncNamespace, clock: HandClock
) -> None:
    queue = await filled_queue(namespace_by_hand, "renewed", 3)
    async with queue.batch() as batch:
        held = await batch.receive(3)
        for _ in range(3):
            await clock.turn(45)
            ends = [batch.table.locked_until(message.sequence_number) for message in held]
            assert all(end and end - clock.now() > timedelta(seconds=20) for end in ends)
        assert batch.renewal.fault is None
        assert (await batch.settle(Complete())).ok
    assert await queue.peek() == []


async def test_only_the_very_locks_of_the_batch_can_be_settled(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "own", 2)
    twin = await filled_queue(namespace, "twin", 2)
    async with queue.batch() as batch, twin.batch() as other:
        held, theirs = await batch.receive(1), await other.receive(1)
        assert held[0].sequence_number == theirs[0].sequence_number == 1
        forged = held[0].with_changes(lock_token=uuid4())
        (seen, *_) = await queue.peek(1)
        for stranger in (theirs[0], forged, seen):
            with pytest.raises(DecisionError, match="not in this batch"):
                await batch.settle(Complete(), [*held, stranger])  # type: ignore[list-item]
        assert batch.messages == held
    assert len(await queue.peek()) == len(await twin.peek()) == 2


async def test_a_message_given_twice_is_settled_once(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "given-twice", 2)
    async with queue.batch() as batch:
        first, second = await batch.receive(2)
        report = await batch.settle(Complete(), [first, first])
        assert [outcome.status for outcome in report] == [OutcomeStatus.SETTLED]
        report = await queue.plan(batch, Complete(), [second, second]).apply()
        assert [outcome.status for outcome in report] == [OutcomeStatus.SETTLED]


async def test_a_receive_takes_no_more_than_it_was_asked_for(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "no-more", 2)
    async with queue.batch() as batch, anyio.create_task_group() as tasks:
        received: list[int] = []

        async def receive() -> None:
            received.extend(m.sequence_number for m in await batch.receive(4, max_wait=10, more_wait=10))

        tasks.start_soon(receive)
        await until(lambda: len(batch.messages) == 2)
        assert (await queue.send([Message(message_id=f"late{n}") for n in range(8)], max_in_flight=1)).ok
        await until(lambda: received)
        assert received == [1, 2, 3, 4]
        assert len(batch.messages) == 4


async def test_two_that_settle_the_same_messages_share_them(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "shared", 30)
    reports: list[list[OutcomeStatus]] = []
    async with queue.batch() as batch:
        held = await batch.receive(30)

        async def settle() -> None:
            reports.append([outcome.status for outcome in await batch.settle(Complete(), held, max_in_flight=1)])

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(settle)
            tasks.start_soon(settle)
    both = {OutcomeStatus.SETTLED, OutcomeStatus.ALREADY_SETTLED}
    assert all({one, two} == both for one, two in zip(*reports, strict=True))
    assert await queue.peek() == []


async def test_what_arrives_after_a_receive_is_locked_by_nobody(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "afterwards", 0)
    async with queue.batch() as batch, queue.batch() as second:
        assert await batch.receive(10, max_wait=1) == ()
        assert (await queue.send([Message(body=b"%d" % n) for n in range(5)])).ok
        taken = await second.receive(5, max_wait=1)
        assert [message.delivery_count for message in taken] == [0] * 5
        assert batch.messages == ()


async def test_a_receive_that_is_cut_off_leaves_nothing_locked(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "cut-off", 0)
    async with queue.batch() as batch, queue.batch() as second:
        with anyio.move_on_after(0.3) as scope:
            await batch.receive(10, max_wait=30)
        assert scope.cancelled_caught
        assert (await queue.send([Message(body=b"x")])).ok
        assert len(await second.receive(1, max_wait=1)) == 1


async def test_locks_are_renewed_while_a_receive_waits(namespace_by_hand: AsyncNamespace, clock: HandClock) -> None:
    queue = await filled_queue(namespace_by_hand, "waiting", 1)
    async with queue.batch() as batch, anyio.create_task_group() as tasks:
        (held,) = await batch.receive(1)
        before = batch.table.locked_until(held.sequence_number)
        assert before is not None
        ended = anyio.Event()

        async def wait_for_more() -> None:
            await batch.receive(1, max_wait=30)
            ended.set()

        tasks.start_soon(wait_for_more)
        await clock.turn(35)
        await until(lambda: (batch.table.locked_until(held.sequence_number) or before) > before)
        assert not ended.is_set()
        tasks.cancel_scope.cancel()


async def unreadable_queue(namespace: AsyncNamespace, name: str) -> AsyncEntity:
    """Create a queue with three messages, of which the second is not readable."""
    queue = await filled_queue(namespace, name, 1)
    text_as_data = b"\x00\x53\x75\xa1\x03bad"  # a data section holds binary, and nothing else
    async with namespace.connection.sender(queue.address) as sender:
        for payload in (text_as_data, payload_of(Message(message_id="good"))):
            await clients.make_ready(sender)
            await clients.send_payload(sender, payload)
    return queue


async def test_lock_holds_and_dead_letters_an_unreadable_message(namespace: AsyncNamespace) -> None:
    queue = await unreadable_queue(namespace, "unreadable")
    async with queue.batch() as batch:
        first, unreadable, good = await batch.receive(3)
        assert [first.message_id, good.message_id] == ["m0", "good"]
        assert (first.unreadable, good.unreadable) == (None, None)
        assert unreadable.unreadable
        assert unreadable.sequence_number == 2
        assert (await batch.settle(DeadLetter("Unreadable"), [unreadable])).ok
        assert (await batch.settle(Complete())).settled == 2
    assert await queue.peek() == []
    (dead,) = await namespace.entity("unreadable/$dlq").peek()
    assert dead.unreadable


# ---------------------------------------------------------------------- for how long


async def test_extend_renews_before_and_after_renewal_ended(
    namespace_by_hand: AsyncNamespace, clock: HandClock
) -> None:
    queue = await filled_queue(namespace_by_hand, "longer", 2, lock_duration=MINUTE)
    async with queue.batch(renew_for=timedelta(seconds=30)) as batch:
        held = await batch.receive(2)
        begin = clock.now()
        assert batch.extend(timedelta(seconds=1)) == begin + timedelta(seconds=30), "never for less than before"
        assert batch.extend(MINUTE) == begin + MINUTE
        await clock.turn(45)
        assert batch.renewal.state.kind is RENEWING
        await clock.turn(20)
        assert batch.renewal.state.kind is ENDED
        batch.extend(2 * MINUTE)
        assert batch.renewal.state.kind is RENEWING
        await clock.turn(90)
        assert batch.renewal.state.kind is RENEWING
        assert batch.table.lost == ()
        assert min(batch.lock_ends.values()) > clock.now()
        with pytest.raises(ConfigurationError, match="30m"):
            batch.extend(timedelta())
        with pytest.raises(ConfigurationError, match="longer than nothing"):
            batch.extend(-MINUTE)
        assert (await batch.settle(Complete(), held)).ok
        assert batch.lock_ends == {}
    with pytest.raises(BatchClosedError):
        batch.extend(MINUTE)


async def test_closing_during_a_receive_leaves_nothing_locked(emulator: RunningEmulator, own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "closed-meanwhile", 20)
    emulator.faults.entity("closed-meanwhile").delivery_delay_ms = 300
    async with anyio.create_task_group() as tasks, queue.batch() as batch:

        async def receive() -> None:
            with suppress(BatchClosedError):
                await batch.receive(30)

        tasks.start_soon(receive)
        await anyio.sleep(0.1)  # the messages are locked, and on their way
    async with queue.batch() as batch:
        assert len(await batch.receive(20)) == 20
    assert set((await delivery_counts(queue)).values()) == {0}


async def test_locks_are_renewed_for_half_an_hour_by_default(
    namespace_by_hand: AsyncNamespace, clock: HandClock
) -> None:
    queue = await filled_queue(namespace_by_hand, "default", 1)
    async with queue.batch() as batch:
        assert batch.renewal.until == clock.now() + timedelta(minutes=30)
        with pytest.raises(DecisionError, match="which is before the delay of 31m ends"):
            await batch.settle(Abandon(delay=31 * MINUTE), await batch.receive(1))


async def test_extend_renews_a_session_and_its_messages(namespace_by_hand: AsyncNamespace, clock: HandClock) -> None:
    queue = await filled_queue(
        namespace_by_hand, "sessions", session_messages("aa"), lock_duration=MINUTE, requires_session=True
    )
    async with queue.session("a", renew_for=timedelta(seconds=10)) as session:
        held = await session.receive(2, max_wait=1)
        await clock.turn(12)
        assert session.renewal.state.kind is ENDED
        session.extend(2 * MINUTE)
        await clock.turn(90)
        assert not session.is_lost
        ends = session.lock_ends
        assert list(ends) == [message.sequence_number for message in held]
        assert len(set(ends.values())) == 1, "one lock holds all of them"
        assert min(ends.values()) > clock.now()
        assert (await session.settle(Complete(), held)).ok
