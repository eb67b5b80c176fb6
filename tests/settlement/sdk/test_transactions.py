"""A transaction's time limit, and its steps one by one."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import anyio
import pytest
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError

from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import EntityAddress, Message
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.sdk import transactions
from sbnotebook.settlement.sdk.transactions import DischargeUnansweredError, TransactionLine
from sbnotebook.settlement.wire.encoding import payload_of
from tests.settlement.actions.dead_letters import dead_letters

pytestmark = pytest.mark.anyio

LETTERS = EntityAddress.parse("orders/$dlq")
MORE_THAN_SOCKETS_BUFFER = 40_000_000


@pytest.fixture
async def line(own: AsyncNamespace, emulator: RunningEmulator) -> AsyncIterator[TransactionLine]:
    await dead_letters(own, "orders", 1)
    line = TransactionLine(own.connection.browser(LETTERS), own.connection.sender(EntityAddress("orders")))
    await line.open()
    yield line
    emulator.thaw()
    await line.close()


async def token_of(namespace: AsyncNamespace) -> UUID:
    async with namespace.connection.receiver(LETTERS) as receiver:
        (letter,) = await receiver.receive_messages(1, max_wait_time=5)
        return UUID(str(letter.lock_token))


async def test_a_transaction_ends_also_where_nothing_is_read(
    own: AsyncNamespace, emulator: RunningEmulator, line: TransactionLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await token_of(own)
    monkeypatch.setattr(transactions, "_LIMIT", 1.0)
    declare = line._transfer  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    async def freeze_after_declaring(*given: Any) -> object:
        state = await declare(*given)
        emulator.freeze()
        return state

    monkeypatch.setattr(line, "_transfer", freeze_after_declaring)
    with anyio.fail_after(15), pytest.raises(OperationTimeoutError, match="took too long"):
        await line.move(payload_of(Message(body=bytes(MORE_THAN_SOCKETS_BUFFER))), token)


async def test_a_commit_without_an_answer_is_unknown(
    own: AsyncNamespace, emulator: RunningEmulator, line: TransactionLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await token_of(own)
    monkeypatch.setattr(transactions, "_LIMIT", 1.0)
    await line.begin(payload_of(Message(body=b"clone")), token)
    emulator.freeze()
    with anyio.fail_after(15), pytest.raises(DischargeUnansweredError, match="took too long"):
        await line.commit()


async def test_a_line_that_was_cut_says_so_each_time(
    own: AsyncNamespace, emulator: RunningEmulator, line: TransactionLine
) -> None:
    token = await token_of(own)
    emulator.drop_connections()
    for _ in range(2):  # while it reads, and before it sends
        with anyio.fail_after(15), pytest.raises(ServiceBusConnectionError):
            await line.begin(payload_of(Message(body=b"clone")), token)


async def test_a_line_sends_to_another_entity_by_way_of_its_own(own: AsyncNamespace) -> None:
    await dead_letters(own, "orders", 1)
    await own.create_queue("far")
    token, connection = await token_of(own), own.connection
    near, far = (connection.sender(EntityAddress(name)) for name in ("orders", "far"))
    line = TransactionLine(connection.browser(LETTERS), far, via=near)
    await line.open()
    await line.move(payload_of(Message(body=b"clone")), token)
    await line.close()
    assert [message.body for message in await own.entity("far").peek()] == [b"clone"]
    assert await own.entity("orders/$dlq").peek() == []
