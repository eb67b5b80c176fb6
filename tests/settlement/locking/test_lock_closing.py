"""Closing a batch while another task receives over it, and a closing that is cancelled itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import anyio
import pytest

from sbnotebook.emulator import RunningEmulator
from sbnotebook.errors import BatchClosedError
from sbnotebook.model import Message
from sbnotebook.settlement import AsyncEntity, AsyncNamespace
from sbnotebook.settlement.locking.lock import LockedBatch
from tests.filled_queues import delivery_counts, filled_queue
from tests.settlement.namespaces import namespace_of
from tests.settlement.proxy import Proxy

pytestmark = pytest.mark.anyio


@pytest.fixture
async def behind(proxy: Proxy, tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    """The namespace of :func:`namespace`, over connections that can be cut."""
    async with namespace_of(proxy.connection, tmp_path) as behind:
        yield behind


async def test_it_does_not_wait_for_a_receive_that_cannot_connect(
    namespace: AsyncNamespace, behind: AsyncNamespace, proxy: Proxy
) -> None:
    await namespace.create_queue("cut-off")
    async with anyio.create_task_group() as tasks:
        async with behind.entity("cut-off").batch() as batch:
            tasks.start_soon(_receive, batch)
            await _cut(proxy)
            began = anyio.current_time()
        assert anyio.current_time() - began < 2


async def test_a_lost_link_does_not_open_again_for_a_closed_batch(
    namespace: AsyncNamespace, behind: AsyncNamespace, proxy: Proxy
) -> None:
    await namespace.create_queue("open-again")
    queue = namespace.entity("open-again")
    async with anyio.create_task_group() as tasks:
        async with behind.entity("open-again").batch() as batch:
            tasks.start_soon(_receive, batch)
            await _cut(proxy)
        proxy.to_refuse = 0
        assert (await queue.send([Message(body=b"x", message_id=f"m{n}") for n in range(20)])).ok
    await _expect_untouched(queue)


async def test_a_cancelled_closing_has_released_its_messages(emulator: RunningEmulator, own: AsyncNamespace) -> None:
    queue = await filled_queue(own, "cancelled", 20)
    batch, held, closing = queue.batch(), anyio.Event(), anyio.Event()

    async def hold() -> None:
        async with batch:
            await batch.receive(20)
            held.set()
            await closing.wait()

    holding = asyncio.create_task(hold())
    await held.wait()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_receive, batch)
        await anyio.sleep(0.1)
        emulator.faults.network_delay_ms = 150
        closing.set()
        await anyio.sleep(0.1)  # it waits until the service has withdrawn the request of the receive
        holding.cancel()
        with suppress(asyncio.CancelledError):
            await holding
    emulator.faults.network_delay_ms = 0
    assert not batch.is_open
    await _expect_untouched(queue)


async def test_a_cancelled_receive_releases_what_is_on_a_slow_line(
    namespace: AsyncNamespace, behind: AsyncNamespace, proxy: Proxy
) -> None:
    queue = await filled_queue(namespace, "slow-line", [bytes(100_000)] * 20)
    async with behind.entity("slow-line").batch() as batch:
        proxy.seconds_a_read = 0.05
        with anyio.move_on_after(0.5) as scope:
            await batch.receive(20)
        assert scope.cancelled_caught
        proxy.seconds_a_read = 0.0
    await _expect_untouched(queue)


async def _receive(batch: LockedBatch) -> None:
    with pytest.raises(BatchClosedError):
        await batch.receive(30, max_wait=60)


async def _cut(proxy: Proxy) -> None:
    await anyio.sleep(0.1)
    proxy.to_refuse = 1_000
    proxy.cut()
    await anyio.sleep(0.3)


async def _expect_untouched(queue: AsyncEntity) -> None:
    async with queue.batch() as batch:
        assert len(await batch.receive(20)) == 20
    assert set((await delivery_counts(queue)).values()) == {0}
