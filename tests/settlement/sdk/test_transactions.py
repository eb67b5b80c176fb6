"""A transaction's time limit, and its steps one by one."""

# ruff: noqa: SLF001 (the tests look into the SDK)
# pyright: reportPrivateUsage=false

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from typing import Any
from uuid import UUID

import anyio
import pytest
from azure.servicebus.aio import ServiceBusClient

from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import EntityAddress, Message
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.sdk import management, transactions
from sbnotebook.settlement.sdk.private import private
from sbnotebook.settlement.sdk.transactions import DischargeUnansweredError, TransactionLine
from sbnotebook.settlement.wire.encoding import payload_of
from tests.settlement.actions.dead_letters import dead_letters

pytestmark = pytest.mark.anyio

LETTERS = EntityAddress.parse("orders/$dlq")


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
        (letter,) = await receiver.take(1, max_wait=5)
        return letter.lock_token


async def test_a_commit_without_an_answer_is_unknown(
    own: AsyncNamespace, emulator: RunningEmulator, line: TransactionLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = await token_of(own)
    monkeypatch.setattr(transactions, "_LIMIT", 1.0)
    await line.begin(payload_of(Message(body=b"clone")), token)
    emulator.freeze()
    with anyio.fail_after(15), pytest.raises(DischargeUnansweredError, match="took too long"):
        await line.commit()


async def test_a_close_that_is_cut_off_ends_the_connection(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    await dead_letters(own, "orders", 1)
    async with ServiceBusClient.from_connection_string(emulator.connection_string) as client:
        browser = management.browser(client, LETTERS.path)
        line = TransactionLine(browser, client.get_queue_sender("orders"))
        await line.open()
        handler: Any = private(browser)._handler
        socket = handler._connection._transport
        with anyio.CancelScope() as cut:
            cut.cancel()
            await line.close()
        assert socket.writer is None


async def test_a_token_is_refreshed_in_the_middle_of_a_transaction(own: AsyncNamespace, line: TransactionLine) -> None:
    token = await token_of(own)
    handler: Any = line._parts._handler
    authenticator = handler._cbs_authenticator
    authenticator._expires_on = int(time.time()) + 30
    authenticator._refresh_window = 30
    await line.move(payload_of(Message(body=b"clone")), token)
    assert authenticator._expires_on > time.time() + 60
    assert [message.body for message in await own.entity("orders").peek()] == [b"clone"]
