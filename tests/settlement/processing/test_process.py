from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from functools import partial

import anyio
import anyio.lowlevel
import pytest

from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    Defer,
    LockedMessage,
    Message,
    MessageState,
    OutcomeStatus,
    Release,
    Report,
)
from sbnotebook.settlement import (
    AsyncNamespace,
    Policy,
    PolicyRow,
    RejectMessage,
    SkipMessage,
    StopProcessing,
    Then,
    Watch,
)
from sbnotebook.settlement.processing.calls import AnyFunction
from tests.filled_queues import filled_queue
from tests.hand_clock import HandClock
from tests.settlement.waiting import append_to

pytestmark = pytest.mark.anyio


GO_ON = Policy(failed=PolicyRow(Abandon(), Then.GO_ON))


def consumer(message: LockedMessage) -> None:
    match message.body:
        case b"bad":
            raise RejectMessage("Invalid", "it is bad")
        case b"broken":
            raise ZeroDivisionError("nothing goes into nothing")
        case b"nothing to do":
            raise SkipMessage("not ours")
        case b"not now":
            raise StopProcessing("the database is down")
        case _:
            return


async def test_a_message_is_settled_by_how_the_function_ended(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "consumed", [b"good", b"bad", b"broken", b"nothing to do", b"good"])

    report = await queue.process(consumer, policy=GO_ON, max_wait=0.5)

    assert [(outcome.message_id, outcome.verb, outcome.status, outcome.description) for outcome in report] == [
        ("m0", "complete", OutcomeStatus.SETTLED, None),
        ("m1", "dead-letter", OutcomeStatus.SETTLED, "The function rejected it: Invalid: it is bad"),
        ("m3", "complete", OutcomeStatus.SETTLED, "The function skipped it: not ours"),
        ("m4", "complete", OutcomeStatus.SETTLED, None),
        # Last, so that it does not come again in the same run.
        ("m2", "abandon", OutcomeStatus.SETTLED, "The function failed: ZeroDivisionError: nothing goes into nothing"),
    ]
    (failed,) = await queue.peek()
    assert (failed.body, failed.delivery_count) == (b"broken", 1)
    (dead,) = await namespace.entity("consumed/$dlq").peek()
    assert (dead.body, dead.dead_letter_reason, dead.dead_letter_error_description) == (b"bad", "Invalid", "it is bad")


@pytest.mark.parametrize("session_id", [None, "s"], ids=["a queue", "a session"])
async def test_messages_that_trickle_in_are_worked_on_as_they_come(own: AsyncNamespace, session_id: str | None) -> None:
    await own.create_queue("orders", requires_session=session_id is not None)
    queue, taken, taken_while_sending = own.entity("orders"), list[int](), 0

    async def work(message: LockedMessage) -> None:
        taken.append(message.sequence_number)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(queue.process, work, max_messages=15, max_wait=30, by_session=session_id is not None))
        for _ in range(15):
            taken_while_sending = len(taken)
            await queue.send([Message(session_id=session_id)])
            await anyio.sleep(0.3)
    assert len(taken) == 15
    assert taken_while_sending > 7


async def test_error_of_the_function_is_raised_after_settling(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "raised", [b"good", b"broken", b"good", b"good"])
    with pytest.raises(ZeroDivisionError) as raised:
        await queue.process(consumer, max_wait=0.5)
    assert raised.value.__notes__ == ["Until then: Completed 1 message; abandoned 1 message."]
    left = {message.message_id: message.delivery_count for message in await queue.peek()}
    assert left == {"m1": 1, "m2": 0, "m3": 0}, "what was not begun is released"


async def test_a_function_can_stop_the_run_without_an_error(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "stopped", [b"good", b"not now", b"good"])
    report = await queue.process(consumer, max_wait=0.5)
    assert [(outcome.verb, outcome.description) for outcome in report] == [
        ("complete", None),
        ("abandon", "The function stopped the run: the database is down"),
    ]
    assert {message.message_id: message.delivery_count for message in await queue.peek()} == {"m1": 1, "m2": 0}


@pytest.mark.parametrize("session_id", [None, "s"], ids=["a queue", "a session"])
@pytest.mark.parametrize(
    ("body", "policy"),
    [
        (b"not now", Policy()),
        (b"broken", Policy()),
        (b"bad", Policy(rejected=PolicyRow(DeadLetter(), Then.STOP))),
        (b"nothing to do", Policy(skipped=PolicyRow(Complete(), Then.RAISE))),
        (b"good", Policy(completed=PolicyRow(Complete(), Then.STOP))),
    ],
)
async def test_a_quick_function_is_not_called_after_it_stopped(
    own: AsyncNamespace, body: bytes, policy: Policy, session_id: str | None
) -> None:
    queue, called = own.entity("orders"), list[int]()
    await own.create_queue("orders", requires_session=session_id is not None)
    quick = b"nothing to do" if body == b"good" else b"good"
    bodies = [*[quick] * 150, body, *[quick] * 50]
    assert (await queue.send((Message(body=each, session_id=session_id) for each in bodies), max_in_flight=1)).ok

    def work(message: LockedMessage) -> None:
        called.append(message.sequence_number)
        consumer(message)

    with contextlib.suppress(ZeroDivisionError, SkipMessage):
        await queue.process(work, policy=policy, max_wait=30, by_session=session_id is not None)
    assert called == [*range(1, 152)]
    left = {message.sequence_number: message.delivery_count for message in await queue.peek()}
    assert {number: count for number, count in left.items() if number > 151} == dict.fromkeys(range(152, 202), 0)


async def test_a_run_that_would_raise_nothing_goes_on(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "nothing-to-raise", [Message(body=b"a"), Message(body=b"b")])
    report = await queue.process(lambda _: None, policy=Policy(completed=PolicyRow(Complete(), Then.RAISE)))
    assert (report.settled, len(report)) == (2, 2)


async def test_every_row_of_the_policy_can_be_changed(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "rows", [b"good", b"bad", b"broken", b"nothing to do", b"not now"])
    policy = Policy(
        completed=Release(),
        skipped=Defer(),
        rejected=Complete(),
        stopped=PolicyRow(Complete(), Then.GO_ON),
        failed=PolicyRow(DeadLetter(), Then.GO_ON),
    )
    report = await queue.process(consumer, policy=policy, max_wait=0.5)
    assert {outcome.message_id: outcome.verb for outcome in report} == {
        "m0": "release",
        "m1": "complete",
        "m2": "dead-letter",
        "m3": "defer",
        "m4": "complete",
    }
    assert {m.message_id: (m.state, m.delivery_count) for m in await queue.peek()} == {
        "m0": (MessageState.ACTIVE, 0),
        "m3": (MessageState.DEFERRED, 1),
    }
    (dead,) = await namespace.entity("rows/$dlq").peek()
    assert (dead.dead_letter_reason, dead.dead_letter_error_description) == (
        "ZeroDivisionError",
        "nothing goes into nothing",
    )


async def test_functions_run_at_once_and_each_message_is_done_once(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "parallel", [b"%d" % n for n in range(20)])
    together = threading.Barrier(4)
    done: list[str | None] = []

    def work(message: LockedMessage) -> None:
        together.wait(30)  # ends only when four are here at once
        done.append(message.message_id)

    assert (await queue.process(work, max_in_flight=4, max_wait=0.5)).settled == 20
    assert sorted(map(str, done)) == sorted(f"m{n}" for n in range(20))


async def test_an_async_function_runs_on_the_loop(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "async", [b"good", b"bad", b"good"])
    loop_thread = threading.current_thread()

    async def work(message: LockedMessage) -> None:
        await anyio.lowlevel.checkpoint()
        assert threading.current_thread() is loop_thread
        consumer(message)

    report = await queue.process(work, max_in_flight=3, max_wait=0.5)
    assert sorted(outcome.verb for outcome in report) == ["complete", "complete", "dead-letter"]


async def test_calls_wait_while_a_thousand_messages_are_unsettled(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    queue = await filled_queue(namespace, "unsettled", 3_000)
    faults = shared_emulator.faults.entity("unsettled")
    faults.settle_delay_ms = 1_500
    ended, ended_before = 0, list[int]()

    async def work(_: LockedMessage) -> None:
        nonlocal ended
        await anyio.lowlevel.checkpoint()
        ended += 1

    def progress(_: int) -> None:
        ended_before.append(ended)
        faults.settle_delay_ms = 0

    assert (await queue.process(work, max_in_flight=4, max_wait=4, progress=progress)).settled == 3_000
    assert ended_before[0] < 1_200, "beside a thousand, only those of the first settlement"


async def test_stop_settles_running_messages_and_releases_the_rest(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "graceful", [b"%d" % n for n in range(10)])
    begun, go_on = threading.Event(), threading.Event()

    def work(_message: LockedMessage) -> None:
        begun.set()
        assert go_on.wait(30)

    processing = queue.processing(work, max_wait=None)
    reports: list[Report] = []

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(append_to, reports, processing.run)
        assert await anyio.to_thread.run_sync(begun.wait, 30)
        await anyio.to_thread.run_sync(processing.stop)  # from any thread
        await anyio.sleep(0.2)
        assert (processing.status.state, processing.status.unsettled) == ("stopping", 0)
        assert not reports
        with pytest.raises(ConfigurationError, match="has run already"):
            await processing.run()
        go_on.set()
    assert [outcome.message_id for outcome in reports[0]] == ["m0"]
    assert [message.delivery_count for message in await queue.peek()] == [0] * 9
    assert (processing.status.state, processing.status.unsettled) == ("ended", 0)


async def test_cancellation_lets_an_async_function_come_to_its_end(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "cancelled-async", [b"%d" % n for n in range(3)])
    begun, done = anyio.Event(), list[str | None]()

    async def work(message: LockedMessage) -> None:
        begun.set()
        await anyio.sleep(0.2)
        done.append(message.message_id)

    with Watch() as watch, anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(queue.process, work)
            await begun.wait()
            scope.cancel()
    assert scope.cancelled_caught
    assert done == ["m0"]
    assert [(outcome.message_id, outcome.status) for outcome in watch.report] == [("m0", OutcomeStatus.SETTLED)]


async def test_cancellation_of_asyncio_alone_stops_the_run(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "cancelled-natively", [b"%d" % n for n in range(3)])
    begun, go_on = threading.Event(), threading.Event()

    def work(_message: LockedMessage) -> None:
        begun.set()
        assert go_on.wait(30)

    processing = queue.processing(work)
    task = asyncio.create_task(processing.run())
    assert await anyio.to_thread.run_sync(begun.wait, 30)
    task.cancel()
    await anyio.sleep(0.1)
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [(outcome.message_id, outcome.status) for outcome in processing.report] == [("m0", OutcomeStatus.SETTLED)]
    assert [(message.message_id, message.delivery_count) for message in await queue.peek()] == [("m1", 0), ("m2", 0)]


async def test_stop_before_the_entity_is_open_ends_at_once(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "unopened", [b"good"])
    processing = queue.processing(consumer, max_wait=None)
    processing.stop()
    assert len(await processing.run()) == 0
    assert len(await queue.peek()) == 1
    with pytest.raises(ConfigurationError, match="has run already"):
        await processing.run()


async def test_status_shows_leases_and_counts(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "watched", [b"good", b"bad", b"good", b"last", b"waiting"])
    begun, go_on = threading.Event(), threading.Event()

    def work(message: LockedMessage) -> None:
        if message.body == b"last":
            begun.set()
            assert go_on.wait(30)
        consumer(message)

    processing = queue.processing(work, max_wait=0.5)
    assert processing.status.state == "not begun"
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(processing.run)
        assert await anyio.to_thread.run_sync(begun.wait, 30)
        (lease,) = processing.status.leases
        assert lease.worker.endswith(f"/{os.getpid()}/1")
        assert (lease.entity, lease.session_id, lease.ended) == (queue.address, None, None)
        assert lease.working_on is not None
        go_on.set()
    status = processing.status
    (lease,) = status.leases
    assert (lease.count, lease.last_sequence_number, lease.working_on) == (5, 5, None)
    assert lease.ended is not None
    assert str(status) == "watched (ended): 4 completed, 1 rejected"


@pytest.mark.parametrize("error", [SystemExit("bye"), KeyboardInterrupt()])
async def test_system_exit_of_the_function_ends_the_run_only(namespace: AsyncNamespace, error: BaseException) -> None:
    queue = await filled_queue(namespace, f"exit-{type(error).__name__}", [b"x", b"y"])

    def work(_message: LockedMessage) -> None:
        raise error

    with pytest.raises(RuntimeError, match=f"{type(error).__name__} ended the run"):
        await queue.process(work, max_wait=0.5)
    assert [message.delivery_count for message in await queue.peek()] == [1, 0]


class OddError(BaseException):
    """An error outside Exception, as test runners and other frameworks have."""


async def cancelled_child(_message: LockedMessage) -> None:
    task = asyncio.ensure_future(asyncio.sleep(60))
    task.cancel()
    await task


async def cancelled_itself(_message: LockedMessage) -> None:
    task = asyncio.current_task()
    assert task is not None
    task.cancel()
    await asyncio.sleep(60)


async def odd(_message: LockedMessage) -> None:
    raise OddError


def cancelled_in_thread(_message: LockedMessage) -> None:
    raise asyncio.CancelledError


def odd_in_thread(_message: LockedMessage) -> None:
    raise OddError


@pytest.mark.parametrize(
    ("function", "by_session"),
    [
        (cancelled_child, False),
        (cancelled_itself, False),
        (odd, False),
        (cancelled_in_thread, False),
        (odd_in_thread, False),
        (cancelled_itself, True),
        (odd, True),
    ],
)
async def test_errors_that_are_no_exceptions_are_failures(
    namespace: AsyncNamespace, function: AnyFunction, by_session: bool
) -> None:
    messages = [Message(message_id=f"m{n}", session_id="s") for n in range(3)]
    queue = await filled_queue(namespace, f"{function.__name__}-{by_session}", messages, requires_session=by_session)
    kind = "OddError" if "odd" in function.__name__ else "CancelledError"

    processing = queue.processing(function, by_session=by_session, max_wait=0.5)
    with pytest.raises(RuntimeError, match=f"{kind} ended the run") as raised:
        await processing.run()
    assert raised.value.__notes__ == ["Until then: Abandoned 1 message."]
    assert [outcome.description for outcome in processing.report] == [f"The function failed: {kind}"]
    assert [(m.message_id, m.delivery_count) for m in await queue.peek()] == [("m0", 1), ("m1", 0), ("m2", 0)]

    ends_by_policy = Policy(failed=PolicyRow(DeadLetter(), Then.GO_ON))
    report = await queue.process(function, by_session=by_session, policy=ends_by_policy, max_wait=0.5)
    assert [(outcome.message_id, outcome.status) for outcome in report] == [
        (f"m{n}", OutcomeStatus.SETTLED) for n in range(3)
    ]


async def test_locks_are_renewed_while_the_function_works(namespace_by_hand: AsyncNamespace, clock: HandClock) -> None:
    queue = await filled_queue(namespace_by_hand, "long", 3)
    turned = threading.Event()

    def work(_message: LockedMessage) -> None:
        assert turned.wait(30), "the loop stood still while the function worked"

    async def turn() -> None:
        await clock.turn(150)  # a lock lasts a minute
        turned.set()

    report = Report()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(turn)
        report = await queue.process(work, max_messages=3, max_wait=5)
    assert [outcome.status for outcome in report] == [OutcomeStatus.SETTLED] * 3


async def test_impossible_options_are_refused_before_locking(namespace: AsyncNamespace) -> None:
    nowhere = namespace.entity("nowhere")
    with pytest.raises(DecisionError, match="forever"):
        await nowhere.process(consumer, policy=Policy(completed=Release()), max_wait=None)
    numbers = ({"max_in_flight": 0}, {"max_in_flight": "auto"}, {"rate": 0.0}, {"max_messages": 0}, {"max_wait": 0.0})
    below = ({"max_in_flight": -1}, {"rate": -1.0}, {"max_messages": -1}, {"max_wait": -1.0})
    for options in (*numbers, *below):
        with pytest.raises(ConfigurationError):
            await nowhere.process(consumer, **options)  # pyright: ignore[reportArgumentType]


async def test_rejected_dead_letter_stays_in_the_dead_letter_queue(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "rejected", [b"bad"])
    assert (await queue.process(consumer, max_wait=0.5)).ok
    report = await namespace.entity("rejected/$dlq").process(consumer, max_wait=0.5)
    assert [outcome.status for outcome in report] == [OutcomeStatus.FAILED]
    (still_there,) = await namespace.entity("rejected/$dlq").peek()
    assert still_there.delivery_count == 0
