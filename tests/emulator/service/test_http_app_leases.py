from __future__ import annotations

import asyncio

import pytest

from sbnotebook.emulator.service.http_app import ProcessLeases


@pytest.mark.anyio
async def test_a_lease_or_a_client_is_a_use() -> None:
    leases = ProcessLeases()
    clients = [1]
    waiting = asyncio.ensure_future(leases.wait_until_unused(0.05, lambda: bool(clients)))
    with leases.held():
        clients.clear()
        await asyncio.sleep(0.3)
        assert (waiting.done(), leases.count) == (False, 1)
    await asyncio.wait_for(waiting, 5)
    assert leases.count == 0
