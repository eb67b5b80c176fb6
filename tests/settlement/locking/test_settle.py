"""Settling over a connection that stalls and breaks."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import anyio.to_thread
import pytest

from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import Complete, Decision, Defer, LockedMessage, Outcome, OutcomeStatus, Release, Report
from sbnotebook.settlement import AsyncNamespace, Connection, Journal
from sbnotebook.settlement.locking.lock import LockedBatch
from tests.filled_queues import filled_queue

pytestmark = pytest.mark.anyio

SETTLED, UNCONFIRMED, SKIPPED = OutcomeStatus.SETTLED, OutcomeStatus.UNCONFIRMED, OutcomeStatus.SKIPPED


class Proxy:
    """A proxy between the SDK and the emulator, which can withhold the answers and cut every connection."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._writers: list[asyncio.StreamWriter] = []
        self._open = asyncio.Event()
        self._open.set()
        self.withheld = asyncio.Event()

    async def start(self) -> int:
        self.server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self.server.sockets[0].getsockname()[1]

    def withhold(self) -> None:
        self.withheld.clear()
        self._open.clear()

    def resume(self) -> None:
        self._open.set()

    def cut(self) -> None:
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.transport.abort()
        self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers, requests = await asyncio.open_connection("127.0.0.1", self._to)
        self._writers += [writer, requests]
        await asyncio.gather(self._pump(reader, requests), self._pump(answers, writer, answers=True))

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, answers: bool = False) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                if answers and not self._open.is_set():
                    self.withheld.set()
                    await self._open.wait()
                writer.write(data)
                await writer.drain()
        writer.close()


@pytest.fixture
async def proxy(shared_emulator: RunningEmulator) -> AsyncIterator[tuple[Proxy, Connection]]:
    found = re.search(r"sb://[\w.]+:(\d+)", shared_emulator.connection_string)
    assert found is not None
    proxy = Proxy(int(found[1]))
    port = await proxy.start()
    yield proxy, Connection(shared_emulator.connection_string.replace(found[1], str(port), 1))
    proxy.cut()
    proxy.server.close()


@pytest.fixture
async def far(proxy: tuple[Proxy, Connection], tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    async with AsyncNamespace(proxy[1], journal=Journal(tmp_path / "far.sqlite")) as namespace:
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
    namespace: AsyncNamespace, far: AsyncNamespace, proxy: tuple[Proxy, Connection]
) -> None:
    await filled_queue(namespace, "broken-range", 150)
    async with far.entity("broken-range").batch() as batch:
        assert len(await batch.receive(150)) == 150
        report = await settle_and(proxy[0].cut, batch, proxy[0], Defer())
        assert report.counts == {UNCONFIRMED: 150}


async def test_settle_leaves_the_rest_after_a_broken_connection(
    namespace: AsyncNamespace, far: AsyncNamespace, proxy: tuple[Proxy, Connection]
) -> None:
    await filled_queue(namespace, "broken", 150)
    async with far.entity("broken").batch() as batch:
        held = await batch.receive(150)
        assert len(held) == 150
        first = await settle_and(proxy[0].cut, batch, proxy[0])
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
    namespace: AsyncNamespace, far: AsyncNamespace, proxy: tuple[Proxy, Connection]
) -> None:
    await filled_queue(namespace, "cancelled", 30)
    async with far.entity("cancelled").batch() as batch:
        held = await batch.receive(30)
        done = held[:5]
        assert (await batch.settle(Complete(), done)).ok
        proxy[0].withhold()
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:

                async def cancel() -> None:
                    await proxy[0].withheld.wait()
                    scope.cancel()

                tasks.start_soon(cancel)
                await batch.settle(Complete(), max_in_flight=5)
        proxy[0].resume()
        assert scope.cancelled_caught
        assert len(batch.messages) == 25, "without an answer it is still held"
        report = await batch.settle(Complete(), held)
        statuses = [outcome.status for outcome in report]
        assert statuses[:5] == [OutcomeStatus.ALREADY_SETTLED] * 5
        assert statuses.count(UNCONFIRMED) in range(1, 6)
        assert statuses.count(SETTLED) == 25 - statuses.count(UNCONFIRMED)
    assert await namespace.entity("cancelled").peek() == []


async def test_what_cannot_be_released_is_in_the_report_of_the_release(
    namespace: AsyncNamespace, far: AsyncNamespace, proxy: tuple[Proxy, Connection]
) -> None:
    await filled_queue(namespace, "unreleased", 20)
    batch = far.entity("unreleased").batch()
    async with batch:
        held: tuple[LockedMessage, ...] = await batch.receive(20)
        proxy[0].cut()
    report = batch.release_report
    assert report is not None
    assert len(report) == len(held) == 20
    assert set(report.counts) <= {UNCONFIRMED, SKIPPED}
    assert all(outcome.verb == Release.verb for outcome in report)
    assert batch.locked_until(held[0].sequence_number) is not None
