from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import pytest

from sbnotebook.emulator import QueueOptions, RunningEmulator, Tier, running
from sbnotebook.model import DeadLetter, Defer, Message, OutcomeStatus
from sbnotebook.settlement import AsyncEntity, AsyncNamespace, Limits, Watch
from tests.filled_queues import filled_queue, settle_first
from tests.settlement.namespaces import archive_in, namespace_of

pytestmark = pytest.mark.anyio


@pytest.fixture
def standard() -> Iterator[RunningEmulator]:
    with running(tier=Tier.STANDARD) as server:
        yield server


async def ids(queue: AsyncEntity) -> list[str | None]:
    return [message.message_id for message in await queue.peek()]


async def test_purge_without_archive_removes_on_the_server(standard: RunningEmulator, tmp_path: Path) -> None:
    """No message is received, so no delivery count goes up; messages that came after the plan stay."""
    async with namespace_of(standard, tmp_path) as namespace:
        queue = await filled_queue(namespace, "orders", 1_201)
        plan = await queue.purge(archived=False)
        sentence = plan.preview().sentence
        assert sentence.startswith("purge 1,201 messages of orders enqueued before 20")
        for words in ("an operation for each 500 messages, so about 4.", "Locked messages stay.", "for good"):
            assert words in sentence
        assert [message.message_id for message in plan.preview(2).messages] == ["m0", "m1"]
        assert standard.counts("orders").active == 1_201, "a plan does nothing"
        assert (await queue.send([Message(message_id="late")])).ok
        done = Counter[str]()
        report = await plan.apply(progress=lambda count: done.update(removed=count))
        assert report.counts == {OutcomeStatus.SETTLED: 1_201}
        assert done["removed"] == 1_201
        assert report.ok
        assert len(report) == 1_201
        assert {(outcome.verb, outcome.sequence_number) for outcome in report} == {("purge", None)}
        assert "by Service Bus itself, with " in str(report)
        left = await queue.peek()
        assert [(message.message_id, message.delivery_count) for message in left] == [("late", 0)]
        assert archive_in(namespace).find(namespace.identity()) == []


async def test_purge_on_the_server_leaves_locked_and_newer_messages(own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "orders", 4)
    end = (await queue.peek())[-1].enqueued_time
    assert end is not None
    await anyio.sleep(0.01)  # the service counts in milliseconds
    assert (await queue.send([Message(message_id="new")])).ok
    async with queue.batch() as batch:
        (held,) = await batch.receive(1)
        plan = await queue.purge(before=end + timedelta(milliseconds=1), archived=False)
        assert plan.total is None, "how many are that old is not known"
        report = await plan.apply()
        assert report.counts == {OutcomeStatus.SETTLED: 3, OutcomeStatus.SKIPPED: 1}
        (stayed,) = report.failures
        assert stayed.sequence_number == held.sequence_number
        assert "another receiver has its lock" in (stayed.description or "")
    assert await ids(queue) == ["m0", "new"]


async def test_purge_on_the_server_counts_in_milliseconds(own: AsyncNamespace) -> None:
    """A message of the very millisecond of the plan is not told of as if it were locked."""
    queue = await filled_queue(own, "orders", 1)
    (message,) = await queue.peek()
    assert message.enqueued_time is not None
    plan = await queue.purge(before=message.enqueued_time + timedelta(microseconds=400), archived=False)
    assert plan.preview().messages == ()
    assert len(await plan.apply()) == 0
    assert await queue.peek() == [message]


async def test_purge_on_the_server_takes_sub_queues_and_subscriptions(
    own: AsyncNamespace, emulator: RunningEmulator
) -> None:
    emulator.create_topic("events")
    emulator.create_subscription("events", "audit")
    assert (await own.entity("events").send([Message(), Message()])).ok
    audit = own.entity("events/subscriptions/audit")
    await settle_first(audit, DeadLetter("Bad"))
    for place in ("events/subscriptions/audit", "events/subscriptions/audit/$dlq"):
        plan = await own.entity(place).purge(archived=False)
        assert plan.total == 1
        report = await plan.apply()
        assert report.settled == 1
        assert "by Service Bus itself" in str(report)
    assert len(await (await own.entity("events/subscriptions/audit").purge(archived=False)).apply()) == 0


@pytest.mark.parametrize("is_known", [True, False])
async def test_what_service_bus_cannot_purge_goes_one_by_one(
    own: AsyncNamespace, emulator: RunningEmulator, is_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sessions, partitions, and a namespace without the operation; also without the right to ask for the options."""
    if not is_known:
        monkeypatch.setattr("sbnotebook.settlement.actions.purge._known", nothing_known)
    emulator.create_queue("sessions", QueueOptions(requires_session=True))
    emulator.create_queue("partitions", QueueOptions(enable_partitioning=True))
    emulator.create_queue("lacking")
    emulator.faults.entity("lacking").batch_delete = "refused"
    for name, words in (("sessions", "held session only"), ("partitions", "has partitions"), ("lacking", "")):
        queue = own.entity(name)
        assert (await queue.send([Message(session_id="s")] * 3)).ok
        plan = await queue.purge(archived=False)
        sentence, report = plan.preview().sentence, await plan.apply()
        assert report.counts == {OutcomeStatus.SETTLED: 3}, name
        if is_known and words:
            assert words in sentence
        else:
            assert "if it refuses, each is received" in sentence
            assert "each was received, because Service Bus refused otherwise: " in str(report)
        assert await queue.peek() == []


async def nothing_known(_place: object) -> tuple[None, int, None]:
    return None, 500, None


@pytest.mark.parametrize("fault", ["short", "zero", "busy", "lost", "dropped"])
async def test_purge_on_the_server_survives_faults(own: AsyncNamespace, emulator: RunningEmulator, fault: str) -> None:
    """An answer that is lost is reported as unknown, and the others go all the same."""
    queue = await filled_queue(own, "orders", 30)
    await settle_first(queue, Defer(), 2)
    soon = datetime.now(UTC) + timedelta(hours=1)
    assert (await queue.send([Message(scheduled_enqueue_time=soon)])).ok
    plan = await queue.purge(archived=False)
    faults = emulator.faults.entity("orders")
    faults.short_deletes = 7
    if fault == "zero":
        faults.batch_delete = "zero"
    elif fault == "busy":
        faults.server_busy = 2
    elif fault == "lost":
        faults.drop_after_nth = 2
    elif fault == "dropped":
        faults.drop_before_nth = 3
    report = await plan.apply()
    assert await queue.peek() == []
    if fault in ("lost", "dropped"):
        assert report.counts[OutcomeStatus.UNCONFIRMED] >= 1
        assert "did not answer a request to remove up to 4,000 messages" in (report.failures[0].description or "")
        assert report.settled <= 31
    else:
        assert report.counts == {OutcomeStatus.SETTLED: 31}


async def test_an_interrupted_purge_on_the_server_reports_and_resumes(
    own: AsyncNamespace, emulator: RunningEmulator
) -> None:
    queue = await filled_queue(own, "orders", 40)
    emulator.faults.entity("orders").short_deletes = 10
    plan = await queue.purge(archived=False)
    with Watch() as watch, anyio.CancelScope() as scope:
        await plan.apply(Limits(max_in_flight=1), progress=lambda _: scope.cancel())
    assert watch.report.counts == {OutcomeStatus.SETTLED: 10, OutcomeStatus.SKIPPED: 30}
    assert "interrupted before" in (watch.report.failures[0].description or "")
    assert len(await queue.peek()) == 30
    assert (await (await queue.purge(archived=False)).apply(Limits(rate=8000))).settled == 30
