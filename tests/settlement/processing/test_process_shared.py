from __future__ import annotations

import threading
import time

import anyio
import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus._pyamqp.error import AMQPLinkError
from azure.servicebus.aio._base_handler_async import ServiceBusSharedKeyCredential
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Abandon, LockedMessage, Message, OutcomeStatus
from sbnotebook.settlement import AsyncNamespace, Policy, PolicyRow, Then
from sbnotebook.settlement.processing.process import Processing
from tests.filled_queues import filled_queue
from tests.settlement.waiting import until

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("fault", ["drop_connections", "close_links"])
async def test_endless_run_survives_its_connection(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, fault: str
) -> None:
    name = f"outlives-{fault.replace('_', '-')}"
    queue = await filled_queue(namespace, name, 3)
    done: list[str | None] = []
    processing = queue.processing(lambda message: done.append(message.message_id), max_wait=None, archived=False)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(processing.run)
        await until(lambda: len(processing.report) >= 3)
        getattr(shared_emulator, fault)(name)
        await queue.namespace.pool(queue.address).close()  # the sender's link is lost, too
        assert (await queue.send([Message(message_id="later")])).ok
        await until(lambda: len(processing.report) >= 4)
        processing.stop()
    assert done == ["m0", "m1", "m2", "later"]
    assert await queue.peek() == []


def break_credential(monkeypatch: pytest.MonkeyPatch, errors: list[Exception]) -> None:
    """Have the credential fail once with each error."""
    get_token = ServiceBusSharedKeyCredential.get_token

    async def fail_or_get(self: ServiceBusSharedKeyCredential, *scopes: str, **options: object) -> object:
        if errors:
            raise errors.pop()
        return await get_token(self, *scopes, **options)

    monkeypatch.setattr(ServiceBusSharedKeyCredential, "get_token", fail_or_get)


@pytest.mark.parametrize("by_session", [False, True])
@pytest.mark.parametrize(
    "error",
    [
        ClientAuthenticationError("login.microsoftonline.com answers 500"),
        AMQPLinkError(b"amqp:internal-error", description="Unable to process the request; please retry."),
        ValueError("a credential may raise anything"),
    ],
)
async def test_endless_run_survives_any_error_at_a_reconnect(
    own: AsyncNamespace,
    emulator: RunningEmulator,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    *,
    by_session: bool,
) -> None:
    first, later = (Message(message_id=each, session_id="s") for each in ("first", "later"))
    errors = [error] * (1 if by_session else 5)
    queue = await filled_queue(own, "reconnects", [first], requires_session=by_session)
    done: list[str | None] = []
    processing = queue.processing(
        lambda message: done.append(message.message_id), by_session=by_session, max_wait=None, archived=False
    )
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(processing.run)
        await until(lambda: len(processing.report) >= 1)
        monkeypatch.setattr("sbnotebook.settlement.processing.process._MAX_PAUSE", 0.2)
        break_credential(monkeypatch, errors)
        emulator.drop_connections()
        await until(lambda: processing.status.error and not errors)
        assert (await queue.send([later])).ok
        await until(lambda: len(processing.report) >= 2)
        processing.stop()
    assert (done, errors) == (["first", "later"], [])
    assert await queue.peek() == []


async def test_endless_run_waits_for_its_queue_to_come_back(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    queue = await filled_queue(own, "comes-back", 1)
    processing = queue.processing(lambda _: None, max_wait=None, archived=False)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(processing.run)
        await until(lambda: len(processing.report) >= 1)
        emulator.delete("comes-back")
        await until(lambda: processing.status.error)
        assert "There is no queue or topic 'comes-back'" in str(processing.status.error)
        emulator.create_queue("comes-back")
        while not (await queue.send([Message()])).ok:  # the sender notices at its first send that its queue is gone
            pass
        await until(lambda: len(processing.report) >= 2)
        assert processing.status.error is None
        processing.stop()


async def test_first_error_ends_an_endless_run(own: AsyncNamespace) -> None:
    with pytest.raises(ServiceBusError, match="There is no queue or topic"):
        await own.entity("nowhere").process(lambda _: None, max_wait=None)


async def test_endless_run_settles_what_the_service_refused_before(
    own: AsyncNamespace, emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbnotebook.settlement.processing.finish._PAUSES", (0.0, 0.1))
    monkeypatch.setattr("sbnotebook.settlement.locking.settle._PAUSES", (0.1,))
    monkeypatch.setattr("sbnotebook.settlement.processing.workers._ASK_AGAIN_AFTER", 1.5)
    calls: list[str | None] = []

    def work(message: LockedMessage) -> None:
        calls.append(message.message_id)
        emulator.close_links("busy")  # so that it is settled by a request, which the service refuses
        emulator.faults.entity("busy").server_busy = 1_000

    queue = await filled_queue(own, "busy", 1)
    processing = queue.processing(work, max_wait=None)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(processing.run)
        await until(lambda: len(processing.report) >= 1)
        assert [outcome.ok for outcome in processing.report] == [False]
        assert len(calls) == 1
        assert (processing.status.unsettled, processing.status.not_settled) == (1, 1)
        emulator.faults.entity("busy").server_busy = 0
        await until(lambda: processing.report.settled)
        processing.stop()
    assert (calls, len(processing.report), processing.status.not_settled) == (["m0"], 1, 0)
    assert await queue.peek() == []


@pytest.mark.parametrize("count", [1, 2])
async def test_broken_journal_completes_the_message_and_ends_the_run(namespace: AsyncNamespace, count: int) -> None:
    queue = await filled_queue(namespace, f"forgetful-{count}", count)
    done: list[str | None] = []

    def work(message: LockedMessage) -> None:
        done.append(message.message_id)
        namespace.journal.close()
        namespace.journal.path.write_bytes(b"no journal any more" * 100)

    with pytest.raises(ConfigurationError, match="is not a journal"):
        await queue.process(work, seen=True, archived=False, max_wait=0.5)
    namespace.journal.path.unlink()
    left = [message.message_id for message in await queue.peek()]
    assert left == [f"m{n}" for n in range(count) if f"m{n}" not in done], "what is done is completed all the same"


async def test_outcome_shows_the_error_without_its_secrets(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "secret", 1)

    def work(_message: LockedMessage) -> None:
        raise ValueError("Endpoint=sb://x/;SharedAccessKeyName=n;SharedAccessKey=abcdef=" + "x" * 10_000)

    policy = Policy(failed=PolicyRow(Abandon(), Then.GO_ON))
    (outcome,) = await queue.process(work, policy=policy, max_wait=0.5)
    assert outcome.status is OutcomeStatus.SETTLED
    assert "abcdef" not in str(outcome.description)
    assert len(str(outcome.description)) <= 1_000


async def test_slow_work_locks_little_ahead(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "shares", 40)
    begun, go_on = threading.Event(), threading.Event()

    def work(_message: LockedMessage) -> None:
        begun.set()
        assert go_on.wait(60)

    processing = queue.processing(work, max_in_flight=2, max_wait=0.5)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(processing.run)
        assert await anyio.to_thread.run_sync(begun.wait, 60)
        async with queue.batch() as other:
            assert len(await other.receive(40, max_wait=1)) >= 30
        go_on.set()
    assert await queue.peek() == []


async def test_max_messages_counts_those_that_came_again_once(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    queue = await filled_queue(namespace, "counted-once", 3)
    calls: list[str | None] = []

    def work(message: LockedMessage) -> None:
        calls.append(message.message_id)
        if calls == ["m0", "m1"]:
            deadline = time.monotonic() + 30
            while not processing.status.waiting:  # until the third is locked, too
                assert time.monotonic() < deadline
                time.sleep(0.01)
            shared_emulator.lose_locks("counted-once")
            anyio.from_thread.run(queue.send, [Message(message_id=f"m{number}") for number in (3, 4, 5)])

    processing = queue.processing(work, max_messages=5, max_wait=5, seen=False)
    with anyio.fail_after(60):
        report = await processing.run()
    assert sorted(map(str, calls)) == [f"m{number}" for number in range(5)]
    assert (len(report), report.settled) == (5, 5)
    assert [message.message_id for message in await queue.peek()] == ["m5"]


@pytest.mark.parametrize("by_session", [False, True])
async def test_rate_is_kept_and_does_not_delay_a_stop(namespace: AsyncNamespace, *, by_session: bool) -> None:
    messages = [Message(session_id="s") for _ in range(5)]
    queue = await filled_queue(namespace, f"paced-{by_session}", messages, requires_session=by_session)
    processing = queue.processing(lambda _: None, rate=0.02, max_in_flight=3, max_wait=None, by_session=by_session)
    with anyio.fail_after(40):  # the second message would be begun after 50 seconds
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(processing.run)
            await until(lambda: len(processing.report) >= 1)
            processing.stop()
    assert len(processing.report) == 1
    assert [message.delivery_count for message in await queue.peek()] == [0] * 4


async def test_messages_behind_a_slow_one_are_taken_over(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "behind", 200)
    others_are_done = threading.Event()
    left = set(range(200)) - {150}

    def work(message: LockedMessage) -> None:
        number = int(message.body)
        if number == 150:
            assert others_are_done.wait(30), "some waited behind it although a worker was free"
        left.discard(number)
        if not left:
            others_are_done.set()

    assert (await queue.process(work, max_in_flight=2, max_wait=0.5)).settled == 200


async def test_done_messages_are_settled_before_a_slow_one_ends(namespace: AsyncNamespace) -> None:
    queue = await filled_queue(namespace, "followed", 200)
    settled = threading.Event()
    counts: list[int] = []
    behind: list[int] = []

    def work(message: LockedMessage) -> None:
        (lease,) = processing.status.leases
        behind.append(message.sequence_number - (lease.working_on or 0))
        if message.body == b"199":
            assert settled.wait(30), "what was done before was not settled"

    def progress(count: int) -> None:
        counts.append(count)
        if sum(counts) == 199:
            settled.set()

    processing = queue.processing(work, max_wait=0.5, progress=progress)
    assert (await processing.run()).settled == 200
    assert set(behind) == {0}, "the one in work is shown, also of several in one thread hop"


async def test_a_redelivered_message_in_work_is_not_done_twice(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    queue = await filled_queue(namespace, "again-meanwhile", 1)
    calls: list[int] = []
    processing: list[Processing] = []

    def work(_message: LockedMessage) -> None:
        calls.append(1)
        shared_emulator.lose_locks("again-meanwhile")
        deadline = time.monotonic() + 30
        while not processing[0].status.waiting:  # until it is here for the second time
            assert time.monotonic() < deadline
            time.sleep(0.1)
        time.sleep(0.3)  # the other worker sees that it is in work
        assert processing[0].status.waiting == 1

    processing.append(queue.processing(work, max_in_flight=2, max_wait=2))
    report = await processing[0].run()
    assert [outcome.status for outcome in report] == [OutcomeStatus.SETTLED]
    assert len(calls) == 1
    assert await queue.peek() == []


async def test_a_forgotten_lock_keeps_no_others_from_going_back(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sbnotebook.settlement.locking.lock_table._REMEMBERED", 20)
    calls: list[str | None] = []

    def work(message: LockedMessage) -> None:
        calls.append(message.message_id)
        if message.message_id == "m1" and calls.count("m1") == 1:
            shared_emulator.lose_locks("given-back")
        if message.message_id == "m0":
            raise ValueError("It fails.")

    queue = await filled_queue(namespace, "given-back", 60)
    report = await queue.process(work, policy=Policy(failed=PolicyRow(Abandon(), Then.GO_ON)), max_wait=0.5)
    given_back = [outcome for outcome in report if outcome.message_id == "m0"]
    assert [outcome.status for outcome in given_back] == [OutcomeStatus.LOCK_LOST, OutcomeStatus.SETTLED]
    assert "It fails. The lock had ended before" in str(given_back[0].description)
    assert (report.settled, calls.count("m0")) == (60, 2)
