"""Several tasks on one connection of the SDK."""

# ruff: noqa: SLF001 (the tests look into the SDK)
# pyright: reportPrivateUsage=false

from __future__ import annotations

import asyncio
import errno
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, nullcontext
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

import anyio
import anyio.to_thread
import pytest
from azure.servicebus._pyamqp.message import BatchMessage
from azure.servicebus._pyamqp.message import Message as SdkMessage
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.emulator import RunningEmulator
from sbnotebook.model import Complete, EntityAddress, Message
from sbnotebook.settlement import AsyncNamespace
from sbnotebook.settlement.sdk import management
from sbnotebook.settlement.sdk.connections import Encoded, line_of
from sbnotebook.settlement.wire.encoding import payload_of

if TYPE_CHECKING:
    from sbnotebook.settlement.sdk.receivers import LockReceiver

pytestmark = pytest.mark.anyio

REQUESTS = 50


@asynccontextmanager
async def receiver_of(namespace: AsyncNamespace, name: str) -> AsyncGenerator[LockReceiver]:
    await namespace.create_queue(name)
    async with namespace.connection.receiver(EntityAddress(name)) as receiver:
        await management.peek_payloads(receiver, 1, 1)  # opens the link to the management node
        yield receiver


@pytest.mark.thorough
async def test_requests_do_not_wait_for_a_task_that_receives(namespace: AsyncNamespace) -> None:
    async with receiver_of(namespace, "sharing-receive") as receiver, anyio.create_task_group() as tasks:
        tasks.start_soon(receiver.take, 1, 60)
        await anyio.sleep(0.05)
        began = time.monotonic()
        for _ in range(REQUESTS):
            assert await management.peek_payloads(receiver, 1, 1) == []
        # The SDK's own way takes a tenth of a second for each, and twice that where two tasks read.
        assert time.monotonic() - began < REQUESTS * 0.1 / 2
        tasks.cancel_scope.cancel()


@pytest.mark.thorough
async def test_requests_of_several_tasks_are_under_way_at_once(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    async with receiver_of(own, "sharing-requests") as receiver:
        await own.entity("sharing-requests").send([Message()])
        emulator.faults.network_delay_ms = 100
        began = time.monotonic()
        found: list[int] = []

        async def ask() -> None:
            found.append(len(await management.peek_payloads(receiver, 1, 1)))

        async with anyio.create_task_group() as tasks:
            for _ in range(REQUESTS):
                tasks.start_soon(ask)
        assert found == [1] * REQUESTS
        assert time.monotonic() - began < REQUESTS * 0.2 / 2  # one after the other, each takes a round trip


@pytest.mark.parametrize(
    ("error", "is_open"),
    [
        (ConnectionResetError(errno.ECONNRESET, "reset"), False),
        (BlockingIOError(errno.EAGAIN, "busy"), True),
        (TimeoutError("slow"), True),
        (None, True),
    ],
    ids=["reset", "busy", "slow", "none"],
)
async def test_a_write_that_fails_says_whether_the_line_is_gone(
    namespace: AsyncNamespace, monkeypatch: pytest.MonkeyPatch, error: OSError | None, is_open: bool
) -> None:
    async with receiver_of(namespace, f"sharing-writes-{is_open}-{type(error).__name__}") as receiver:
        line: Any = line_of(receiver)

        async def fail(_: bytes) -> None:
            if error is not None:
                raise error

        with monkeypatch.context() as broken, pytest.raises(type(error)) if error else nullcontext():
            broken.setattr(line, "_write", fail)
            await line.write(b"")
        assert line.connected == is_open
        line.connected = True


async def test_tasks_go_on_where_the_one_that_reads_is_cancelled(namespace: AsyncNamespace) -> None:
    async with receiver_of(namespace, "sharing-cancelled") as receiver, anyio.create_task_group() as tasks:
        for _ in range(5):
            with anyio.move_on_after(0.02) as reading:
                tasks.start_soon(_ask, receiver)
                await receiver.take(1, max_wait=60)
            assert reading.cancelled_caught
        assert await management.peek_payloads(receiver, 1, 1) == []


async def test_all_tasks_learn_that_the_connection_is_lost(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    errors: list[Exception] = []
    async with receiver_of(own, "sharing-lost") as receiver:

        async def fail() -> None:
            try:
                await management.settle_by_tokens(receiver, [uuid4()], Complete(), answer_within=30)
            except (ServiceBusError, OSError) as error:
                errors.append(error)

        emulator.faults.network_delay_ms = 200
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(fail)
            await anyio.sleep(0.1)
            await anyio.to_thread.run_sync(emulator.drop_connections)
        assert len(errors) == 5


async def _ask(receiver: LockReceiver) -> None:
    for _ in range(REQUESTS):
        assert await management.peek_payloads(receiver, 1, 1) == []


async def test_a_request_that_is_rejected_fails_alone(own: AsyncNamespace, emulator: RunningEmulator) -> None:
    async with receiver_of(own, "sharing-rejected") as receiver:
        await own.entity("sharing-rejected").send([Message()])
        nested: Any = 1
        for _ in range(80):  # deeper than the emulator, or Microsoft's clients, decode
            nested = [nested]
        emulator.faults.network_delay_ms = 50
        ends: list[Exception | list[bytes]] = []

        async def ask(number: Any) -> None:
            try:
                ends.append(await management.peek_payloads(receiver, 1, number, once=True))
            except Exception as error:  # noqa: BLE001 (the SDK's own)
                ends.append(error)

        async with anyio.create_task_group() as tasks:
            for number in (1, 1, nested, 1):
                tasks.start_soon(ask, number)
                await anyio.sleep(0.005)
        assert sorted(type(end).__name__ for end in ends) == ["AMQPException", "list", "list", "list"]
        assert len(await management.peek_payloads(receiver, 1, 1, once=True)) == 1


async def test_transfers_of_several_tasks_do_not_mix(namespace: AsyncNamespace) -> None:
    await namespace.create_queue("sharing-transfers")
    later = datetime.now(UTC) + timedelta(hours=1)
    body = bytes(200_000)  # several frames

    def message(name: str) -> dict[str, Any]:
        payload = payload_of(Message(body=body, message_id=name, scheduled_enqueue_time=later))
        return {"message-id": name, "message": bytearray(payload)}

    sender = namespace.connection.sender(EntityAddress("sharing-transfers"))
    async with sender:
        await management.schedule_payloads(sender, [message("first")])
        transport = cast("Any", sender)._handler._connection._transport
        write = transport._write

        async def write_to_a_full_socket(data: bytes) -> None:
            await write(data)
            await anyio.sleep(0.001)

        transport._write = write_to_a_full_socket
        names = [f"m{n}" for n in range(12)]
        answers = await asyncio.gather(*(management.schedule_payloads(sender, [message(name)]) for name in names))
    assert len({number for (number,) in answers}) == len(names)
    scheduled = await namespace.entity("sharing-transfers").peek()
    assert {each.message_id for each in scheduled} == {"first", *names}


async def test_messages_and_batches_have_the_formats_of_the_sdk() -> None:
    formats = [Encoded(b"", is_batch=is_batch).format for is_batch in (False, True)]
    assert formats == [vars(kind)["_code"] for kind in (SdkMessage, BatchMessage)]
