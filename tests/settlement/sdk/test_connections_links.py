# ruff: noqa: SLF001 (this tests private parts of the SDK)
# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportOptionalMemberAccess=false
# pyright: reportAttributeAccessIssue=false, reportUnknownVariableType=false

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import Callable
from typing import Any

import anyio
import pytest
import trustme
from azure.servicebus._pyamqp.aio import _link_async
from azure.servicebus._pyamqp.aio._transport_async import AsyncTransport
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusConnectionError, ServiceBusError

from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import Complete, EntityAddress, Message
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.sdk import clients, connections, management

pytestmark = pytest.mark.anyio

CLIENTS: dict[str, Callable[[AsyncNamespace, EntityAddress], Any]] = {
    "receiver": lambda namespace, address: namespace.connection.receiver(address),
    "sender": lambda namespace, address: namespace.connection.sender(address),
    "browser": lambda namespace, address: namespace.connection.browser(address),
}
TIMES = 12


@pytest.mark.thorough
@pytest.mark.parametrize("kind", CLIENTS)
async def test_clients_are_opened_and_closed_without_sleeping(namespace: AsyncNamespace, kind: str) -> None:
    address = EntityAddress(f"without-sleeping-{kind}")
    await namespace.create_queue(address.path)
    started = time.monotonic()
    for _ in range(TIMES):
        client = CLIENTS[kind](namespace, address)
        await client._open()
        handler = client._handler
        await client.close()
        assert handler._keep_alive_thread is None
    # The SDK would sleep for half a second to open each, and wait for a second to close it.
    assert time.monotonic() - started < TIMES / 2
    assert not [task for task in asyncio.all_tasks() if "_keep_alive" in repr(task) and not task.cancelling()]


async def test_a_receiver_whose_token_has_expired_is_opened_again(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("expired")
    await namespace.entity("expired").send([Message(message_id="m")])
    async with namespace.connection.receiver(EntityAddress("expired")) as receiver:
        receiver._handler._cbs_authenticator._expires_on = int(time.time()) - 1
        assert not connections.is_open(receiver)
        await connections.reopen(receiver)
        assert connections.is_open(receiver)
        (message,) = await receiver.take(1, max_wait=5)
        await management.settle_by_tokens(receiver, [message.lock_token], Complete(), answer_within=20)


async def test_the_socket_of_a_broken_connection_is_closed(
    namespace: AsyncNamespace, shared_emulator: RunningEmulator
) -> None:
    await namespace.create_queue("socket")
    receiver = namespace.connection.receiver(EntityAddress("socket"))
    async with receiver:
        writer = receiver._handler._connection._transport.writer
        shared_emulator.drop_connections("socket")
        with contextlib.suppress(ServiceBusError):
            await receiver.take(1, max_wait=0.2)
    assert writer.is_closing()


@pytest.mark.parametrize("kind", CLIENTS)
async def test_requests_beyond_the_sdks_credit_are_answered(
    namespace: AsyncNamespace, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_link_async, "DEFAULT_LINK_CREDIT", TIMES)
    address = EntityAddress(f"many-requests-{kind}")
    await namespace.create_queue(address.path)
    client = CLIENTS[kind](namespace, address)
    await client._open()
    with anyio.fail_after(20):
        for _ in range(5 * TIMES):
            assert await management.peek_payloads(client, 1, 1) == []
    (node,) = client._handler._mgmt_links.values()
    assert len(node._mgmt_link._response_link._received_delivery_tags) <= TIMES, "they would be more and more"
    await client.close()


async def test_a_socket_is_closed_also_where_the_work_was_cut_off() -> None:
    authority, context = trustme.CA(), ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    is_silent, ended = anyio.Event(), anyio.Event()

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Forward bytes until the other side is silent; then only notice the end."""
        inward, outward = await asyncio.open_connection("127.0.0.1", port_of(server))

        async def back() -> None:
            while data := await inward.read(1 << 16):
                if not is_silent.is_set():
                    writer.write(data)

        answering = asyncio.create_task(back())
        with contextlib.suppress(OSError):
            while data := await reader.read(1 << 16):
                if not is_silent.is_set():
                    outward.write(data)
        ended.set()
        outward.close()
        answering.cancel()

    async def say_nothing(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.read()

    server = await asyncio.start_server(say_nothing, "127.0.0.1", 0, ssl=context)
    proxy = await asyncio.start_server(carry, "127.0.0.1", 0)
    options: Any = {"context": trusting}
    line = AsyncTransport("127.0.0.1", port=port_of(proxy), ssl_opts=options)
    await line.connect()
    is_silent.set()

    with anyio.CancelScope() as scope:
        scope.cancel()
        await connections.hang_up(line)

    with anyio.fail_after(30):
        await ended.wait()
    proxy.close()
    server.close()


@pytest.mark.parametrize("kind", CLIENTS)
async def test_a_silent_service_is_not_waited_for_without_end(
    own: AsyncNamespace, emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    await own.create_queue("orders")
    emulator.freeze_new()
    client = CLIENTS[kind](own, EntityAddress("orders"))
    with monkeypatch.context() as soon, anyio.fail_after(10):
        soon.setattr(clients, "_OPEN_WITHIN", 0.5)
        with pytest.raises(ServiceBusConnectionError, match=r"orders could be opened in 0\.5 s"):
            await connections.reopen(client)
    emulator.thaw()
    await connections.reopen(client)
    assert connections.is_open(client) or kind == "browser"
    await client.close()


@pytest.mark.parametrize(("path", "hint"), [("orders", ""), ("news/subscriptions/all", ": check that the subscr")])
async def test_an_answer_is_not_waited_for_without_end(
    own: AsyncNamespace, emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch, path: str, hint: str
) -> None:
    await own.create_queue("orders")
    emulator.create_topic("news")
    emulator.create_subscription("news", "all")
    browser = own.connection.browser(EntityAddress.parse(path))
    assert await management.peek_payloads(browser, 1, 1) == []
    emulator.freeze()
    words = f"(?i)/{path} did not answer a request in 0.5 seconds{hint}"
    with monkeypatch.context() as soon, anyio.fail_after(10):
        soon.setattr(clients, "_ANSWER_WITHIN", 0.5)
        with pytest.raises(OperationTimeoutError, match=words):
            await management.peek_payloads(browser, 1, 1)
    emulator.thaw()
    assert await management.peek_payloads(browser, 1, 1) == []
    await browser.close()


async def test_an_unanswered_request_ends_no_link_with_messages(
    own: AsyncNamespace, emulator: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    await own.create_queue("orders")
    await own.entity("orders").send([Message()])
    async with own.connection.receiver(EntityAddress("orders")) as receiver:
        (message,) = await receiver.take(1, max_wait=5)
        await management.peek_payloads(receiver, 1, 1)
        emulator.freeze()
        with monkeypatch.context() as soon, anyio.fail_after(10):
            soon.setattr(clients, "_ANSWER_WITHIN", 0.5)
            with pytest.raises(OperationTimeoutError):
                await management.peek_payloads(receiver, 1, 1)
        emulator.thaw()
        await management.settle_by_tokens(receiver, [message.lock_token], Complete(), answer_within=20)
    assert emulator.counts("orders").active == 0


def port_of(server: asyncio.Server) -> int:
    return server.sockets[0].getsockname()[1]
