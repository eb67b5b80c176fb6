"""Many clients at once, and clients that take what they asked for slowly or not at all."""

from __future__ import annotations

import resource
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbnotebook.amqp import encode
from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.emulator.amqp.performatives import SENDER, Accepted, Disposition, Transfer
from tests.emulator.service.conftest import RawClient

MESSAGE = b"\x00\x53\x75" + encode(b"x" * 100)
LARGE = b"\x00\x53\x75" + encode(b"x" * 900_000)


@pytest.fixture
def emulator() -> Iterator[RunningEmulator]:
    with running(queues=["orders", "others"]) as emulator:
        yield emulator


def connected(emulator: RunningEmulator, stack: ExitStack) -> RawClient:
    client = RawClient(emulator.connection_string)
    stack.callback(client.socket.close)
    return client


@pytest.fixture
def many_files() -> Iterator[None]:
    """Both ends of every connection are in this process, and some systems allow only 256 files."""
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    enough = 4096 if most == resource.RLIM_INFINITY else min(4096, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before, enough), most))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))


@pytest.mark.usefixtures("many_files")
@pytest.mark.thorough
def test_five_hundred_clients_at_once(emulator: RunningEmulator) -> None:
    with ExitStack() as stack:
        clients = [connected(emulator, stack) for _ in range(500)]
        for client in clients:
            client.sender("orders")
            client.receiver("orders")
        for client in clients:
            client.push(MESSAGE)
        assert [client.read(Disposition).state for client in clients] == [Accepted()] * 500
        assert emulator.counts("orders").active == 500
        for client in clients:
            client.flow(1, 1)
        for client in clients:
            transfer = client.read(Transfer)
            client.write(Disposition(role=not SENDER, first=transfer.delivery_id or 0, state=Accepted()))
        assert [client.read(Disposition).state for client in clients] == [Accepted()] * 500
        assert emulator.counts("orders").active == 0


def test_a_client_that_never_reads_delays_no_other(emulator: RunningEmulator) -> None:
    with ExitStack() as stack:
        filler, deaf, other = (connected(emulator, stack) for _ in range(3))
        filler.sender("orders")
        for number in range(40):
            filler.transfer(LARGE, number)
        # It asks for everything there is, and takes nothing: its 36 MB do not go into any socket's buffer.
        deaf.receiver("orders")
        deaf.flow(1, 1000)
        other.sender("others")
        other.receiver("others")
        other.flow(1, 1000)
        for number in range(200):
            other.push(MESSAGE, number)
            assert {type(other.read(Disposition)), type(other.read(Transfer))} == {Disposition, Transfer}
        counts = emulator.counts("orders")
        assert 0 < counts.locked < 40, "what the deaf client cannot take is left for others"
        with (
            ServiceBusClient.from_connection_string(emulator.connection_string, retry_total=0) as sdk,
            sdk.get_queue_sender("orders") as sender,
            sdk.get_queue_receiver("orders") as receiver,
        ):
            sender.send_messages(ServiceBusMessage("y"))
            assert receiver.receive_messages(1, max_wait_time=5)
        for _ in range(counts.locked):
            deaf.read(Transfer)  # It can continue at any time.


def test_a_client_that_does_not_stop_writing_delays_no_other(emulator: RunningEmulator) -> None:
    with ExitStack() as stack:
        flooding, other = connected(emulator, stack), connected(emulator, stack)
        flooding.sender("orders")
        flooding.receiver("orders")
        flooding.flow(1, 100_000)
        flooding.socket.settimeout(0.1)
        with suppress(TimeoutError, ConnectionError):
            for number in range(100):
                flooding.push(LARGE, number)  # And it reads none of the answers.
        other.sender("others")
        assert other.transfer(MESSAGE).state == Accepted()
