# ruff: noqa: SLF001 (a lock is taken away behind the library's back)
# pyright: reportPrivateUsage=false

from __future__ import annotations

from datetime import timedelta
from uuid import uuid4

import anyio
import pytest

from sbnotebook.errors import DecisionError
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
from sbnotebook.settlement.sdk import senders
from sbnotebook.settlement.wire.encoding import payload_of
from sbnotebook.testing.clock import HandClock
from tests.filled_queues import filled_queue

pytestmark = pytest.mark.anyio


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


async def test_locks_are_renewed_before_a_third_is_left_and_then_settle(
    namespace_by_hand: AsyncNamespace, clock: HandClock
) -> None:
    queue = await filled_queue(namespace_by_hand, "renewed", 3)
    async with queue.batch() as batch:
        held = await batch.receive(3)
        for _ in range(3):
            await clock.turn(45)
            ends = [batch.locked_until(message.sequence_number) for message in held]
            assert all(end and end - clock.now() > timedelta(seconds=20) for end in ends)
        assert batch.renewal_error is None
        assert (await batch.settle(Complete())).ok
    assert await queue.peek() == []


@pytest.fixture
def small_frames(monkeypatch: pytest.MonkeyPatch) -> None:
    """The SDK asks for frames as small as the service's: larger messages then come in several."""
    monkeypatch.setattr("azure.servicebus._pyamqp.client.MAX_FRAME_SIZE_BYTES", 64 * 1024)


@pytest.mark.usefixtures("small_frames")
async def test_messages_of_several_frames_keep_their_bytes(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("large")
    queue = namespace.entity("large")
    body = bytes(range(256)) * 1024
    sent = [body, b"small", body[::-1], b"small, too"]
    assert (await queue.send((Message(body=each) for each in sent), max_in_flight=1)).ok
    async with queue.batch() as batch:
        held = await batch.receive(4)
        assert [message.body for message in held] == sent
        hold = batch._held.of(held[0])
        assert hold is not None
        assert (hold.lock.payload or b"").endswith(payload_of(Message(body=body)))


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
    queue = await filled_queue(namespace, "given-twice", 1)
    async with queue.batch() as batch:
        (held,) = await batch.receive(1)
        report = await batch.settle(Complete(), [held, held])
        assert [outcome.status for outcome in report] == [OutcomeStatus.SETTLED] * 2


async def test_a_receive_takes_no_more_than_it_was_asked_for(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "no-more", 2)
    async with queue.batch() as batch, anyio.create_task_group() as tasks:
        received: list[int] = []

        async def receive() -> None:
            received.extend(m.sequence_number for m in await batch.receive(4, max_wait=10, more_wait=10))

        tasks.start_soon(receive)
        with anyio.fail_after(10):
            while len(batch.messages) < 2:  # noqa: ASYNC110 (there is no event to wait for)
                await anyio.sleep(0.02)
        assert (await queue.send([Message(message_id=f"late{n}") for n in range(8)], max_in_flight=1)).ok
        with anyio.fail_after(10):
            while not received:  # noqa: ASYNC110 (as above)
                await anyio.sleep(0.02)
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
    await namespace.create_queue("afterwards")
    queue = namespace.entity("afterwards")
    async with queue.batch() as batch, queue.batch() as second:
        assert await batch.receive(10, max_wait=1) == ()
        assert (await queue.send([Message(body=b"%d" % n) for n in range(5)])).ok
        taken = await second.receive(5, max_wait=1)
        assert [message.delivery_count for message in taken] == [0] * 5
        assert batch.messages == ()


async def test_a_receive_that_is_cut_off_leaves_nothing_locked(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("cut-off")
    queue = namespace.entity("cut-off")
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
        before = batch.locked_until(held.sequence_number)
        assert before is not None
        ended = anyio.Event()

        async def wait_for_more() -> None:
            await batch.receive(1, max_wait=30)
            ended.set()

        tasks.start_soon(wait_for_more)
        await clock.turn(35)
        with anyio.fail_after(30):
            while (batch.locked_until(held.sequence_number) or before) <= before:  # noqa: ASYNC110
                await anyio.sleep(0.02)
        assert not ended.is_set()
        tasks.cancel_scope.cancel()


async def test_an_error_of_the_body_comes_out_as_it_is(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "body", 1)
    batch = queue.batch()
    with pytest.raises(ZeroDivisionError):  # noqa: PT012 (the raise is the body's)
        async with batch:
            await batch.receive(1)
            raise ZeroDivisionError
    (left,) = await queue.peek()
    assert left.delivery_count == 0
    assert batch.release_report is not None
    assert (batch.release_report.ok, len(batch.release_report)) == (True, 1)


async def unreadable_queue(namespace: AsyncNamespace, name: str) -> AsyncEntity:
    """Create a queue with three messages, of which the second is not readable."""
    queue = await filled_queue(namespace, name, 1)
    text_as_data = b"\x00\x53\x75\xa1\x03bad"  # a data section holds binary, and nothing else
    async with namespace.connection.sender(queue.address) as sender:
        for payload in (text_as_data, payload_of(Message(message_id="good"))):
            await senders.make_ready(sender)
            await senders.send_payload(sender, payload)
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


async def test_after_renew_for_a_settlement_reports_the_lost_lock(
    namespace_by_hand: AsyncNamespace, clock: HandClock
) -> None:
    queue = await filled_queue(namespace_by_hand, "lost", 2)
    async with queue.batch(renew_for=timedelta(seconds=10)) as batch:
        first, second = await batch.receive(2)
        await batch.settle(Complete(), [second])
        await clock.turn(59)
        assert batch.lost == ()
        await clock.turn(1)
        with anyio.fail_after(10):
            while not batch.lost:  # noqa: ASYNC110 (there is no event to wait for)
                await anyio.sleep(0.02)
        assert batch.lost == (first.sequence_number,)
        assert batch.messages == ()
        report = await batch.settle(Complete(), [first, second])
        assert [outcome.status for outcome in report] == [OutcomeStatus.LOCK_LOST, OutcomeStatus.ALREADY_SETTLED]
    (still_there,) = await queue.peek()
    assert still_there.delivery_count == 1
