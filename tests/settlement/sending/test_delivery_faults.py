"""Sends that meet faults: every message has an outcome, and what that says is true."""


# pyright: reportPrivateUsage=false

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import anyio.to_thread
import pytest
from azure.servicebus._pyamqp.aio._cbs_async import CBSAuthenticator
from azure.servicebus.exceptions import ServiceBusQuotaExceededError

from sbnotebook.emulator import QueueOptions, RunningEmulator
from sbnotebook.model import EntityAddress, Message, OutcomeStatus, Report
from sbnotebook.settlement import AsyncNamespace, Watch
from sbnotebook.settlement.pace import Limiter
from sbnotebook.settlement.sdk import clients
from sbnotebook.settlement.sending.delivery import SEND, SenderPool, send_many
from tests.filled_queues import filled_queue
from tests.settlement.proxy import Proxy

pytestmark = pytest.mark.anyio

SETTLED, UNCONFIRMED = OutcomeStatus.SETTLED, OutcomeStatus.UNCONFIRMED


def numbered(count: int, *, at: int | None = None, then: Callable[[], object] = int) -> Iterator[Message]:
    for number in range(count):
        if number == at:
            then()
        yield Message(body=b"%d" % number, message_id=f"m{number}")


def ids(report: Report, status: OutcomeStatus) -> set[str]:
    return {outcome.message_id or "" for outcome in report if outcome.status is status}


async def assert_true(namespace: AsyncNamespace, name: str, report: Report, count: int) -> None:
    """Check that settled messages arrived once, unconfirmed ones at most once, and no others."""
    assert [outcome.message_id for outcome in report] == [f"m{number}" for number in range(count)]
    stored = [message.message_id or "" for message in await namespace.entity(name).peek()]
    assert len(stored) == len(set(stored))
    assert ids(report, SETTLED) <= set(stored) <= ids(report, SETTLED) | ids(report, UNCONFIRMED)


async def test_refused_batch_fails_only_its_bad_messages(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("culprits")
    good = list(numbered(50))
    bad = [Message(message_id=name, application_properties={"too long": "x" * 70_000}) for name in ("a", "b")]
    report = await namespace.entity("culprits").send([*good[:20], bad[0], *good[20:], bad[1]])
    assert [(outcome.message_id, outcome.status) for outcome in report.failures] == [
        ("a", OutcomeStatus.FAILED),
        ("b", OutcomeStatus.FAILED),
    ]
    assert report.settled == len(await namespace.entity("culprits").peek()) == 50
    (culprit, _) = report.failures
    assert culprit.condition == "amqp:link:message-size-exceeded"
    assert "properties" in (culprit.description or "")
    assert culprit.retryable is False


@pytest.mark.parametrize("keys", [[None], ["a", "b"]], ids=["no key", "two keys"])
async def test_partitions_with_duplicate_detection_get_all_messages(
    own: AsyncNamespace, emulator: RunningEmulator, keys: list[str | None]
) -> None:
    emulator.create_queue("parts", QueueOptions(enable_partitioning=True, requires_duplicate_detection=True))
    messages = [Message(message_id=f"m{n:02}", partition_key=keys[n % len(keys)], body=b"x") for n in range(30)]
    report = await own.entity("parts").send(messages)
    assert report.ok, report.failures
    peeked = await own.entity("parts").peek()
    assert sorted(message.message_id or "" for message in peeked) == [message.message_id for message in messages]


async def test_refusal_has_condition_text_and_tracking_id(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    await namespace.create_queue("refused")
    faults = shared_emulator.faults.entity("refused")
    faults.reject_nth, faults.reject_condition = 2, "amqp:resource-limit-exceeded"
    report = await namespace.entity("refused").send(numbered(3), max_in_flight=1, batch_size=1)
    assert [outcome.status for outcome in report] == [SETTLED, OutcomeStatus.FAILED, SETTLED]
    assert report[1].condition == "amqp:resource-limit-exceeded"
    assert report[1].tracking_id
    assert report[1].description
    assert report[1].retryable is not None


@pytest.mark.parametrize(
    "condition", ["amqp:internal-error", "com.microsoft:operation-cancelled", "com.microsoft:container-close"]
)
async def test_work_that_the_service_broke_off_is_unconfirmed(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, condition: str
) -> None:
    name = f"broken-off-{condition.split(':')[1]}"
    await namespace.create_queue(name)
    faults = shared_emulator.faults.entity(name)
    faults.reject_nth, faults.reject_condition = 2, condition
    report = await namespace.entity(name).send(numbered(3), max_in_flight=1, batch_size=1)
    assert [outcome.status for outcome in report] == [SETTLED, UNCONFIRMED, SETTLED]
    assert (report[1].condition, report[1].retryable) == (condition, True)


async def test_without_a_token_nothing_is_sent_and_it_says_so(
    namespace: AsyncNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The credential does not answer when the token of an open sender is due."""
    queue = await filled_queue(namespace, "no-token", 0)
    asked: list[object] = []

    async def token_is_due(self: CBSAuthenticator) -> bool:
        asked.append(self)
        raise OSError("login.microsoftonline.com does not answer")

    def then() -> None:  # one sender is open by then
        monkeypatch.setattr(CBSAuthenticator, "handle_token", token_is_due)

    report = await queue.send(numbered(20, at=0, then=then), batch_size=10)
    assert asked
    monkeypatch.undo()
    assert report.counts == {OutcomeStatus.FAILED: 20}
    assert {outcome.retryable for outcome in report} == {True}
    assert await queue.peek() == []
    assert (await queue.send(numbered(20))).settled == 20


async def test_what_is_not_wanted_any_more_is_not_sent(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    await namespace.create_queue("withheld")
    shared_emulator.faults.entity("withheld").server_busy = 1
    asked: list[int] = []

    def withhold(index: int) -> tuple[OutcomeStatus, str] | None:
        asked.append(index)
        return (OutcomeStatus.SKIPPED, "Too late.") if index and len(asked) > 3 else None

    pool = SenderPool(namespace.connection, EntityAddress("withheld"))
    report = await send_many(pool, numbered(3), replace(SEND, withhold=withhold))
    assert asked == [0, 1, 2] * 2, "it was not asked before each attempt"
    assert [outcome.status for outcome in report] == [SETTLED, OutcomeStatus.SKIPPED, OutcomeStatus.SKIPPED]
    assert [(outcome.message_id, outcome.description) for outcome in report.failures] == [
        ("m1", "Too late."),
        ("m2", "Too late."),
    ]
    await assert_true(namespace, "withheld", report, 3)


@pytest.mark.parametrize("breaks", ["drop_connections", "close_links"])
@pytest.mark.parametrize("batch_size", [1, 10])
async def test_dropped_connections_cost_only_transfers_in_flight(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, breaks: str, batch_size: int
) -> None:
    name = f"{breaks.replace('_', '-')}-{batch_size}"
    await namespace.create_queue(name)
    shared_emulator.faults.entity(name).accept_delay_ms = 20
    messages = numbered(200, at=100, then=lambda: getattr(shared_emulator, breaks)(name))
    report = await namespace.entity(name).send(messages, max_in_flight=4, batch_size=batch_size)
    assert ids(report, OutcomeStatus.FAILED) == set()
    assert len(ids(report, UNCONFIRMED)) <= 4 * batch_size
    await assert_true(namespace, name, report, 200)


@pytest.mark.parametrize(("refused", "status", "left"), [(2, SETTLED, 0), (5, OutcomeStatus.FAILED, 2)])
async def test_a_connection_that_is_refused_is_tried_three_times(
    namespace: AsyncNamespace, proxy: Proxy, refused: int, status: OutcomeStatus, left: int
) -> None:
    queue = await filled_queue(namespace, f"refused-{refused}", 0)
    pool = SenderPool(proxy.connection, queue.address)
    await send_many(pool, [Message(message_id="m0")])
    proxy.cut()
    proxy.to_refuse = refused
    [outcome] = await send_many(pool, [Message(message_id="m1")])
    assert (outcome.status, outcome.retryable, proxy.to_refuse) == (status, status is not SETTLED or None, left)
    assert len(await queue.peek()) == 1 + (status is SETTLED)
    await pool.close()


@pytest.mark.parametrize("breaks", ["drop_connections", "close_links"])
async def test_idle_senders_with_dropped_connections_are_replaced(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, breaks: str
) -> None:
    name = f"idle-{breaks.replace('_', '-')}"
    await namespace.create_queue(name)
    await namespace.pool(EntityAddress(name)).warm(3)
    getattr(shared_emulator, breaks)(name)
    await anyio.sleep(1.2)  # senders that were idle for a second are checked
    report = await namespace.entity(name).send(numbered(9), max_in_flight=3, batch_size=1)
    assert report.settled == 9


async def test_a_sender_idle_while_the_machine_slept_is_replaced(
    namespace: AsyncNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    await namespace.create_queue("slept")
    pool, wall_clock = SenderPool(namespace.connection, EntityAddress("slept")), time.time
    async with pool.slot() as before:
        pass
    monkeypatch.setattr(time, "time", lambda: wall_clock() + 300)  # the monotonic time stands still meanwhile
    async with pool.slot() as after:
        assert after is not before
    await pool.close()


async def test_a_refused_sender_is_not_asked_for_with_each_pack(
    namespace: AsyncNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    await namespace.create_queue("quota")
    pool, attempts = SenderPool(namespace.connection, EntityAddress("quota")), 0
    await pool.warm(10)

    async def refuse() -> None:
        nonlocal attempts
        attempts += 1
        await anyio.lowlevel.checkpoint()
        raise ServiceBusQuotaExceededError(message="There are as many connections as may be.")

    monkeypatch.setattr(pool, "_open", refuse)
    pool.limiter = Limiter(in_flight=(40, 40, 1))  # more senders than there are
    report = await send_many(pool, numbered(300), batch_size=1)
    assert report.settled == 300
    assert 1 <= attempts <= 40
    await pool.close()


async def test_doubted_pool_asks_for_the_size_limits_again(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    pool = SenderPool(namespace.connection, EntityAddress("takes-more"))
    for kilobytes in (1_024, 2_048):
        shared_emulator.create_queue("takes-more", QueueOptions(max_message_size_kb=kilobytes))
        assert (await pool.sizes()).message == kilobytes * 1024
        shared_emulator.delete("takes-more")
        pool.doubt()
    await pool.close()


async def test_missing_answer_is_unconfirmed_and_the_rest_is_sent(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    await namespace.create_queue("frozen")
    pool = SenderPool(namespace.connection, EntityAddress("frozen"))
    pool.answer_within = 2.0
    await pool.warm(2)
    messages = numbered(12, at=6, then=lambda: shared_emulator.freeze("frozen"))
    report = await send_many(pool, messages, max_in_flight=2, batch_size=1)
    shared_emulator.thaw()
    assert 1 <= len(ids(report, UNCONFIRMED)) <= 3
    assert report.settled + len(ids(report, UNCONFIRMED)) == 12
    assert all("No answer" in (outcome.description or "") for outcome in report.failures)
    await assert_true(namespace, "frozen", report, 12)
    await pool.close()


async def test_a_large_transfer_gets_more_time(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbnotebook.settlement.sending.delivery._SLOWEST", 1)  # byte a second
    await namespace.create_queue("large-and-slow")
    shared_emulator.faults.entity("large-and-slow").accept_delay_ms = 300
    pool = SenderPool(namespace.connection, EntityAddress("large-and-slow"))
    pool.answer_within = 0.1
    assert (await send_many(pool, numbered(1))).ok
    await pool.close()


async def test_busy_service_gets_small_parts_of_what_was_packed(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    await namespace.create_queue("split")
    queue, largest = namespace.entity("split"), list[int]()
    for busy in (0, 1, 0):
        shared_emulator.faults.entity("split").server_busy = busy
        counts: list[int] = []
        report = await queue.send(numbered(90), max_in_flight=1, progress=counts.append)
        largest.append(max(counts))
        await assert_true(namespace, "split", report, 90)
        await (await queue.purge()).apply()
    assert largest[0] > 20, "a transfer takes many where the service was not busy"
    assert max(largest[1:]) <= 20, "the next send, too, has small ones"


async def test_busy_service_fails_as_retryable_in_the_end(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    await namespace.create_queue("overwhelmed")
    waited: list[float] = []

    async def wait(seconds: float) -> None:
        waited.append(seconds)
        await anyio.lowlevel.checkpoint()

    pool = namespace.pool(EntityAddress("overwhelmed"))
    pool.limiter = Limiter(lambda: sum(waited), wait)
    faults = shared_emulator.faults.entity("overwhelmed")
    faults.server_busy = 1_000
    report = await namespace.entity("overwhelmed").send(numbered(10), max_in_flight=1, batch_size=10)
    assert 60 < sum(waited) < 90, "it is tried for a minute"
    assert 850 < faults.server_busy < 995, "and rarely"
    assert [outcome.status for outcome in report] == [OutcomeStatus.FAILED] * 10
    assert {(outcome.condition, outcome.retryable) for outcome in report.failures} == {
        ("com.microsoft:server-busy", True)
    }


async def test_cancelling_waits_for_transfers_in_flight_only(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    await namespace.create_queue("cancelled")
    await namespace.pool(EntityAddress("cancelled")).warm(3)
    shared_emulator.faults.entity("cancelled").accept_delay_ms = 400
    pulled = 0

    def endless() -> Iterator[Message]:
        nonlocal pulled
        for message in numbered(1_000_000):
            pulled += 1
            if pulled == 10:
                anyio.from_thread.run_sync(scope.cancel)
            yield message

    scope = anyio.CancelScope()
    with Watch() as watch, scope:
        await namespace.entity("cancelled").send(endless(), max_in_flight=3, batch_size=1)
    assert scope.cancelled_caught
    report = watch.report
    assert len(report) == pulled <= 12
    assert set(report.counts) == {SETTLED, OutcomeStatus.SKIPPED}
    assert report.counts[SETTLED] >= 3
    await assert_true(namespace, "cancelled", report, len(report))


async def test_no_transfer_begins_after_an_interrupt(
    namespace: AsyncNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    await namespace.create_queue("halved")
    await namespace.pool(EntityAddress("halved")).warm(1)
    send, scope, begun = clients.send_payload, anyio.CancelScope(), 0

    async def interrupted(*given: Any, **options: Any) -> None:
        nonlocal begun
        begun += 1
        scope.cancel()
        await send(*given, **options)

    monkeypatch.setattr(clients, "send_payload", interrupted)
    messages = [Message(message_id=f"m{number}", session_id="s") for number in range(39)]
    bad = Message(message_id="m39", session_id="s", application_properties={"too long": "x" * 70_000})
    with Watch() as watch, scope:
        await namespace.entity("halved").send([*messages, bad])
    assert begun == 1, "the batch is refused, and its halves are not sent"
    assert watch.report.counts == {OutcomeStatus.SKIPPED: 40}
    await assert_true(namespace, "halved", watch.report, 40)


async def test_cancelling_does_not_wait_forever(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbnotebook.settlement.sending.delivery._FINISH_WITHIN", 0.3)
    await namespace.create_queue("stuck")
    await namespace.pool(EntityAddress("stuck")).warm(2)
    scope = anyio.CancelScope()

    def freeze() -> None:
        shared_emulator.freeze("stuck")
        anyio.from_thread.run_sync(scope.cancel)

    messages = numbered(12, at=6, then=freeze)
    with Watch() as watch, scope:
        await namespace.entity("stuck").send(messages, max_in_flight=2, batch_size=2)
    shared_emulator.thaw()
    report = watch.report
    assert set(report.counts) <= {SETTLED, UNCONFIRMED, OutcomeStatus.SKIPPED}
    assert OutcomeStatus.SKIPPED in report.counts
    await assert_true(namespace, "stuck", report, len(report))


async def test_a_send_that_ends_early_reports_the_whole_total(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "counted", 0)
    scope = anyio.CancelScope()

    def cancel() -> None:
        anyio.from_thread.run_sync(scope.cancel)

    def fail() -> None:
        raise KeyError("the 11th")

    with Watch() as cancelled, scope:
        await queue.send(numbered(1_000, at=10, then=cancel), max_in_flight=1, batch_size=1, total=1_000)
    with Watch() as failed, pytest.raises(KeyError, match="the 11th"):
        await queue.send(numbered(1_000, at=10, then=fail), total=1_000)
    for watch in cancelled, failed:
        assert len(watch.report) == 1_000
        assert {outcome.status for outcome in watch.report[20:]} == {OutcomeStatus.SKIPPED}
    assert failed.report.settled == 10
    assert (await queue.send(numbered(3), total=4)).ok  # it ended by itself


async def test_send_with_a_waiting_input_can_be_cancelled(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("waiting")
    waits, never = threading.Event(), threading.Event()

    def waiting() -> Iterator[Message]:
        yield from numbered(5)
        waits.set()
        never.wait(60)
        yield Message(message_id="too late")

    watch = Watch()
    async with anyio.create_task_group() as tasks:
        with watch:
            tasks.start_soon(namespace.entity("waiting").send, waiting())
        await anyio.to_thread.run_sync(waits.wait)
        tasks.cancel_scope.cancel()
    never.set()
    assert [outcome.message_id for outcome in watch.report] == [f"m{number}" for number in range(5)]
    assert set(watch.report.counts) == {OutcomeStatus.SKIPPED}
    assert await namespace.entity("waiting").peek() == []
