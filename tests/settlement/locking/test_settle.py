"""Settling over a connection that stalls and breaks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from sbnotebook.model import Complete, Decision, Defer, LockedMessage, Outcome, OutcomeStatus, Release, Report
from sbnotebook.settlement import AsyncNamespace, Journal
from sbnotebook.settlement.locking.lock import LockedBatch
from tests.filled_queues import filled_queue
from tests.settlement.proxy import Proxy

pytestmark = pytest.mark.anyio

SETTLED, UNCONFIRMED, SKIPPED = OutcomeStatus.SETTLED, OutcomeStatus.UNCONFIRMED, OutcomeStatus.SKIPPED


@pytest.fixture
async def far(proxy: Proxy, tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace(proxy.connection, journal=Journal(tmp_path / "far.sqlite")) as namespace:
        await anyio.to_thread.run_sync(namespace.identity)  # so that later answers are those of settlements
        yield namespace


async def settle_and(disturb: object, batch: LockedBatch, proxy: Proxy, decision: Decision | None = None) -> Report:
    """Settle while answers are withheld, and disturb once one is on its way."""
    reports: list[Report] = []

    async def settle() -> None:
        reports.append(await batch.settle(decision or Complete()))

    proxy.withhold()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(settle)
        with anyio.fail_after(10):
            await proxy.withheld.wait()
        assert callable(disturb)
        disturb()
    return reports[0]


def by_number(report: Report) -> dict[int | None, Outcome]:
    return {outcome.sequence_number: outcome for outcome in report}


async def test_defer_begins_all_at_once_without_a_limit(
    namespace: AsyncNamespace, far: AsyncNamespace, proxy: Proxy
) -> None:
    await filled_queue(namespace, "broken-range", 150)
    async with far.entity("broken-range").batch() as batch:
        assert len(await batch.receive(150)) == 150
        report = await settle_and(proxy.cut, batch, proxy, Defer())
        assert report.counts == {UNCONFIRMED: 150}


async def test_settle_leaves_the_rest_after_a_broken_connection(
    namespace: AsyncNamespace, far: AsyncNamespace, proxy: Proxy
) -> None:
    await filled_queue(namespace, "broken", 150)
    async with far.entity("broken").batch() as batch:
        held = await batch.receive(150)
        assert len(held) == 150
        first = await settle_and(proxy.cut, batch, proxy)
        assert set(first.counts) == {UNCONFIRMED, SKIPPED}
        assert 1 <= first.counts[UNCONFIRMED] <= 10
        assert batch.messages == held
        second = await batch.settle(Complete())
        assert set(second.counts) <= {SETTLED, UNCONFIRMED}
        known, then = by_number(first), by_number(second)
        for number, outcome in then.items():
            assert known[number].status is UNCONFIRMED or outcome.status is SETTLED, outcome
        # The first settlement can never be confirmed, and never be denied.
        again = await batch.settle(Complete(), held)
        for number, outcome in by_number(again).items():
            expected = OutcomeStatus.ALREADY_SETTLED if then[number].status is SETTLED else UNCONFIRMED
            assert outcome.status is expected
        assert batch.lost == ()
    assert await namespace.entity("broken").peek() == []


async def test_settle_cancelled_leaves_only_cut_off_in_doubt(
    namespace: AsyncNamespace, far: AsyncNamespace, proxy: Proxy
) -> None:
    await filled_queue(namespace, "cancelled", 30)
    async with far.entity("cancelled").batch() as batch:
        held = await batch.receive(30)
        done = held[:5]
        assert (await batch.settle(Complete(), done)).ok
        proxy.withhold()
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def cancel() -> None:
                    await proxy.withheld.wait()
                    scope.cancel()

                tasks.start_soon(cancel)
                await batch.settle(Complete(), max_in_flight=5)
        proxy.resume()
        assert scope.cancelled_caught
        assert len(batch.messages) == 25, "without an answer it is still held"
        report = await batch.settle(Complete(), held)
        statuses = [outcome.status for outcome in report]
        assert statuses[:5] == [OutcomeStatus.ALREADY_SETTLED] * 5
        assert statuses.count(UNCONFIRMED) in range(1, 6)
        assert statuses.count(SETTLED) == 25 - statuses.count(UNCONFIRMED)
    assert await namespace.entity("cancelled").peek() == []


async def test_what_cannot_be_released_is_in_the_report_of_the_release(
    namespace: AsyncNamespace, far: AsyncNamespace, proxy: Proxy
) -> None:
    await filled_queue(namespace, "unreleased", 20)
    batch = far.entity("unreleased").batch()
    async with batch:
        held: tuple[LockedMessage, ...] = await batch.receive(20)
        proxy.cut()
    report = batch.release_report
    assert report is not None
    assert len(report) == len(held) == 20
    assert set(report.counts) <= {UNCONFIRMED, SKIPPED}
    assert all(outcome.verb == Release.verb for outcome in report)
    assert batch.locked_until(held[0].sequence_number) is not None
