from __future__ import annotations

import threading
import time
from collections import defaultdict

import anyio
import pytest
from azure.servicebus.exceptions import SessionLockLostError

from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import DecisionError
from sbnotebook.model import Abandon, Defer, LockedMessage, Message, OutcomeStatus, Release
from sbnotebook.settlement import AsyncNamespace, Policy, PolicyRow, Then
from sbnotebook.settlement.locking.sessions import SessionBatch
from sbnotebook.settlement.place import Waits
from tests.filled_queues import filled_queue

pytestmark = pytest.mark.anyio

GO_ON = Policy(failed=PolicyRow(Abandon(), Then.GO_ON))
LONG = 1_200
"""More messages than are held behind one that was given back."""


def in_turn(sessions: str, each: int) -> list[Message]:
    """Return messages a0, b0, a1, b1 and so on of sessions a and b, say."""
    return [Message(message_id=f"{session}{n}", session_id=session) for n in range(each) for session in sessions]


class Worker:
    """Records the order in which the messages of each session were processed."""

    def __init__(self) -> None:
        self.order: defaultdict[str | None, list[str | None]] = defaultdict(list)
        self._running: set[str | None] = set()

    def __call__(self, message: LockedMessage) -> None:
        assert message.session_id not in self._running, "two of one session at once"
        self._running.add(message.session_id)
        self.order[message.session_id].append(message.message_id)
        self._running.discard(message.session_id)


async def test_sessions_are_done_at_once_and_each_in_order(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "ordered", in_turn("abc", 5), requires_session=True)
    worker, together = Worker(), threading.Barrier(3)

    def work(message: LockedMessage) -> None:
        if message.message_id in ("a0", "b0", "c0"):
            together.wait(60)  # ends only when three sessions are worked on at once
        worker(message)

    report = await queue.process(work, by_session=True, max_in_flight=3, max_wait=0.5)
    assert report.settled == len(report) == 15
    assert worker.order == {session: [f"{session}{n}" for n in range(5)] for session in "abc"}
    assert await queue.peek() == []


async def test_more_sessions_than_workers_are_done_one_by_one(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "many-sessions", in_turn("abcd", 3), requires_session=True)
    worker, waiting = Worker(), list[int]()

    def work(message: LockedMessage) -> None:
        waiting.append(processing.status.waiting)
        worker(message)

    processing = queue.processing(work, by_session=True, max_wait=0.5)
    with anyio.fail_after(29):  # in a run without an end, one request for a session waits for longer
        assert (await processing.run()).settled == 12
    assert (min(waiting), max(waiting)) == (0, 2), "two messages of a session wait while the first is worked on"
    assert (processing.status.waiting, processing.status.unsettled) == (0, 0)
    assert worker.order == {session: [f"{session}{n}" for n in range(3)] for session in "abcd"}
    leases = processing.status.leases
    assert sorted((lease.session_id, lease.count) for lease in leases) == [(each, 3) for each in "abcd"]
    assert all(lease.ended for lease in leases)


async def test_failing_message_blocks_its_session_until_dead_lettered(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "poisoned", in_turn("a", 3), max_delivery_count=2, requires_session=True)
    worker = Worker()

    def work(message: LockedMessage) -> None:
        worker(message)
        if message.message_id == "a1":
            raise ZeroDivisionError

    report = await queue.process(work, by_session=True, policy=GO_ON, max_wait=0.5)
    assert worker.order["a"] == ["a0", "a1", "a1", "a2"]
    assert [outcome.verb for outcome in report] == ["complete", "abandon", "abandon", "complete"]
    (dead,) = await namespace.entity("poisoned/$dlq").peek()
    assert (dead.message_id, dead.dead_letter_reason) == ("a1", "MaxDeliveryCountExceeded")
    assert await queue.peek() == []


@pytest.mark.parametrize(("order", "one_way_ms"), [("front", 0), ("place", 0), ("back", 0), ("back", 50)])
async def test_order_is_kept_wherever_returned_messages_come(
    own: AsyncNamespace, emulator: RunningEmulator, order: str, one_way_ms: int
) -> None:
    queue = await filled_queue(own, "returned", in_turn("a", 6), max_delivery_count=3, requires_session=True)
    emulator.faults.entity("returned").order_after_release = order
    worker = Worker()

    def work(message: LockedMessage) -> None:
        worker(message)
        if message.message_id == "a1" and message.delivery_count == 0:  # others come while it is abandoned
            anyio.from_thread.run(queue.send, [Message(message_id="a6", session_id="a")])
        if message.message_id == "a4" or (message.message_id == "a1" and message.delivery_count == 0):
            raise ZeroDivisionError

    emulator.faults.network_delay_ms = one_way_ms
    report = await queue.process(work, by_session=True, policy=GO_ON, max_wait=0.5)
    assert worker.order["a"] == ["a0", "a1", "a1", "a2", "a3", "a4", "a4", "a4", "a5", "a6"]
    assert report.settled == len(report) == 10
    assert {m.message_id for m in await own.entity("returned/$dlq").peek()} == {"a4"}, "it is awaited no more"


@pytest.mark.parametrize("order", ["front", "place", "back"])
async def test_order_is_kept_when_a_session_is_opened_again(
    own: AsyncNamespace, emulator: RunningEmulator, order: str
) -> None:
    queue = await filled_queue(own, "reopened", in_turn("a", 6), requires_session=True)
    emulator.faults.entity("reopened").order_after_release = order
    worker, lost = Worker(), threading.Event()

    def work(message: LockedMessage) -> None:
        worker(message)
        if message.message_id == "a2" and not lost.is_set():
            lost.set()
            anyio.from_thread.run(queue.send, [Message(message_id="a6", session_id="a")])
            emulator.lose_locks("reopened")  # all six come again

    await queue.process(work, by_session=True, max_wait=1)
    assert worker.order["a"] == [f"a{n}" for n in range(7)]
    assert await queue.peek() == []


@pytest.mark.parametrize("order", ["front", "place", "back"])
async def test_order_is_kept_after_another_gave_messages_back(
    own: AsyncNamespace, emulator: RunningEmulator, order: str
) -> None:
    messages = [Message(message_id=f"a{n:03}", session_id="a") for n in range(120)]  # they come in several parts
    queue = await filled_queue(own, "others", messages, requires_session=True)
    emulator.faults.entity("others").order_after_release = order
    emulator.faults.entity("others").empty_peeks = 2
    async with queue.session("a") as session:
        await session.settle(Abandon(), await session.receive(3))
        await session.settle(Defer(), await session.receive(1))
    emulator.faults.entity("others").server_busy = 1
    worker = Worker()
    await queue.process(worker, by_session=True, max_wait=0.5)
    done = worker.order["a"]
    assert (done, len(done)) == (sorted(map(str, done)), 119)


async def test_order_is_kept_where_the_middle_was_given_back(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    messages = [Message(message_id=f"a{n:03}", session_id="a") for n in range(400)]  # two pages of a peek
    queue = await filled_queue(own, "middle", messages, requires_session=True)
    async with queue.session("a") as session:
        held = await session.receive(397)
        await session.settle(Abandon(), held[:200])  # to their old place
        emulator.faults.entity("middle").order_after_release = "back"
        await session.settle(Abandon(), held[200:])
    worker = Worker()
    await queue.process(worker, by_session=True, max_wait=0.5)
    assert worker.order["a"] == [message.message_id for message in messages]


@pytest.mark.parametrize("order", ["front", "place", "back"])
@pytest.mark.parametrize("failures", [1, 2])
async def test_order_is_kept_with_more_messages_than_are_held(
    own: AsyncNamespace, emulator: RunningEmulator, order: str, failures: int
) -> None:
    queue = await filled_queue(own, "long", in_turn("a", LONG), max_delivery_count=2, requires_session=True)
    emulator.faults.entity("long").order_after_release = order
    worker = Worker()

    def work(message: LockedMessage) -> None:
        worker(message)
        if message.message_id == "a0" and message.delivery_count < failures:
            raise ZeroDivisionError
        if message.message_id == "a9":
            processing.stop()

    processing = queue.processing(work, by_session=True, policy=GO_ON, max_wait=0.5)
    with anyio.fail_after(60):
        await processing.run()
    assert worker.order["a"] == ["a0", *(f"a{n}" for n in range(10))]
    assert len(await own.entity("long/$dlq").peek()) == failures - 1
    if order != "back":
        assert len(processing.status.leases) == 1, "it is held until the message has come, or is gone"


@pytest.mark.parametrize("count", [5, LONG])
async def test_unconfirmed_message_does_not_block_its_session(
    own: AsyncNamespace, emulator: RunningEmulator, count: int
) -> None:
    own.waits = Waits(idle_session=60.0)  # no silence shows it is gone
    queue = await filled_queue(own, "unconfirmed", in_turn("a", count), requires_session=True)
    worker = Worker()

    def work(message: LockedMessage) -> None:
        worker(message)
        if message.message_id == "a0":
            emulator.faults.entity("unconfirmed").drop_after_nth = 1  # it is completed, which is not confirmed
        if message.message_id == "a4":
            processing.stop()

    processing = queue.processing(work, by_session=True, max_wait=0.5)
    with anyio.fail_after(45):
        report = await processing.run()
    assert worker.order["a"] == [f"a{n}" for n in range(5)]
    assert [outcome.status for outcome in report][:2] == [OutcomeStatus.UNCONFIRMED, OutcomeStatus.SETTLED]
    assert len(processing.status.leases) == 2, "it is opened again because its connection broke, and for nothing else"


@pytest.mark.parametrize("count", [3, LONG])
async def test_message_that_is_peeked_and_never_comes_is_given_up(
    namespace: AsyncNamespace, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    async def numbers_from(_: SessionBatch, first: int) -> tuple[set[int], int]:
        return {0}, first

    monkeypatch.setattr(SessionBatch, "numbers_from", numbers_from)
    queue = await filled_queue(namespace, f"ghost-{count}", in_turn("a", count), requires_session=True)
    worker = Worker()

    def work(message: LockedMessage) -> None:
        worker(message)
        if message.message_id == "a2":
            processing.stop()

    processing = queue.processing(work, by_session=True, max_wait=0.5)
    with anyio.fail_after(60):
        await processing.run()
    assert worker.order["a"] == ["a0", "a1", "a2"]
    assert len(processing.status.leases) == 3, "the session was opened twice more for the message that does not come"


async def test_stop_ends_running_and_waiting_session_workers(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "stopped-session", in_turn("a", 2), requires_session=True)
    begun, go_on = threading.Event(), threading.Event()

    def work(_message: LockedMessage) -> None:
        begun.set()
        assert go_on.wait(60)

    processing = queue.processing(work, by_session=True, max_in_flight=2, max_wait=None)
    with anyio.fail_after(60):  # one of the workers waits for a session that never comes
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(processing.run)
            assert await anyio.to_thread.run_sync(begun.wait, 60)
            processing.stop()
            go_on.set()
    assert processing.status.state == "ended"
    assert [(o.message_id, o.status) for o in processing.report] == [("a0", OutcomeStatus.SETTLED)]
    assert [(m.message_id, m.delivery_count) for m in await queue.peek()] == [("a1", 0)]


async def test_max_messages_is_kept_by_sessions_worked_on_at_once(own: AsyncNamespace) -> None:
    queue, called = await filled_queue(own, "at-once", in_turn("abcd", 3), requires_session=True), list[int]()

    async def work(message: LockedMessage) -> None:
        called.append(message.sequence_number)
        await anyio.sleep(0.1)

    for most in (1, 2, 3):
        called.clear()
        report = await queue.process(work, by_session=True, max_messages=most, max_in_flight=4, max_wait=0.5)
        assert len(called) == len(report) == report.settled == most
    assert [message.delivery_count for message in await queue.peek()] == [0] * 6


async def test_release_in_a_session_is_refused(namespace: AsyncNamespace) -> None:
    with pytest.raises(DecisionError, match="forever"):
        await namespace.entity("x").process(print, by_session=True, policy=Policy(skipped=Release()))


async def test_message_in_work_is_done_once_when_its_session_is_lost(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    queue = await filled_queue(namespace, "lost-at-work", in_turn("a", 3), requires_session=True)
    worker, lost, twice = Worker(), threading.Event(), threading.Event()

    def work(message: LockedMessage) -> None:
        worker(message)
        if message.message_id == "a1" and lost.is_set():
            twice.set()
        elif message.message_id == "a1":
            lost.set()
            shared_emulator.lose_locks("lost-at-work")
            deadline = time.monotonic() + 30
            while not shared_emulator.counts("lost-at-work").locked:  # until the other worker has it
                assert time.monotonic() < deadline
                time.sleep(0.01)
            assert not twice.wait(0.5)

    await queue.process(work, by_session=True, max_in_flight=2, max_wait=1, seen=False)
    assert worker.order["a"] == ["a0", "a1", "a2"]
    assert await queue.peek() == []


async def test_session_lost_with_too_many_messages_has_fewer_locked(
    own: AsyncNamespace, emulator: RunningEmulator
) -> None:
    queue = await filled_queue(own, "few", in_turn("a", 20), max_delivery_count=10, requires_session=True)
    faults = emulator.faults.entity("few")
    faults.max_unsettled, faults.over_max_unsettled = 4, "detach"
    worker = Worker()
    with anyio.fail_after(60):
        report = await queue.process(worker, by_session=True, max_wait=0.5)
    assert report.settled == len(report) == 20
    assert worker.order["a"] == [f"a{n}" for n in range(20)]
    assert await own.entity("few/$dlq").peek() == []


async def test_session_lost_again_and_again_ends_the_run(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    queue = await filled_queue(own, "lost", in_turn("a", 20), max_delivery_count=20, requires_session=True)
    faults = emulator.faults.entity("lost")
    faults.max_unsettled, faults.over_max_unsettled, faults.order_after_release = 4, "detach", "back"

    def work(message: LockedMessage) -> None:
        if message.message_id == "a0":  # it comes behind all others, which the link never holds together
            raise ZeroDivisionError

    with anyio.fail_after(60), pytest.raises(SessionLockLostError):
        await queue.process(work, by_session=True, policy=GO_ON, max_wait=0.5)
    assert max(message.delivery_count for message in await queue.peek()) < 10
