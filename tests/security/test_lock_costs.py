"""No message fills the memory of the client that locks it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from sbnotebook.emulator import running
from sbnotebook.model import Message
from sbnotebook.settlement import AsyncNamespace, Connection, Journal
from sbnotebook.settlement.sdk import clients
from tests.costs import forget_the_most, megabytes
from tests.security.hostile_payloads import hostile_value

pytestmark = pytest.mark.anyio


@pytest.fixture
async def namespace(tmp_path: Path) -> AsyncIterator[AsyncNamespace]:
    with running() as server:
        journal = Journal(tmp_path / "journal.sqlite")
        async with AsyncNamespace(Connection(server.connection_string), journal=journal) as namespace:
            yield namespace


@pytest.mark.parametrize("value", ["arrays that claim empty lists", "arrays of 64 empty lists"])
async def test_a_small_message_cannot_fill_the_memory(namespace: AsyncNamespace, value: str) -> None:
    await namespace.create_queue("filled")
    queue = namespace.entity("filled")
    await queue.send([Message(message_id="before")])
    payload = b"\x00\x53\x77" + hostile_value(value)
    async with namespace.connection.sender(queue.address) as sender:
        await clients.make_ready(sender)
        await clients.send_payload(sender, payload)
    await queue.send([Message(message_id="behind")])
    before = forget_the_most()
    async with queue.batch() as batch:
        held = await batch.receive(3)
        assert (held[0].message_id, held[2].message_id) == ("before", "behind")
        assert held[1].body_text is None
        assert held[1].body == payload[3:]
    assert megabytes("VmHWM") - before < 100
