from __future__ import annotations

import socket
from collections.abc import Generator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender

from sbnotebook.emulator import ManualClock, RunningEmulator, running
from sbnotebook.emulator.faults import Faults
from sbnotebook.errors import EmulatorError


@contextmanager
def client_of(emulator: RunningEmulator) -> Generator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(emulator.connection_string, retry_total=0) as client:
        yield client


@contextmanager
def orders(emulator: RunningEmulator) -> Generator[ServiceBusSender]:
    with client_of(emulator) as client, client.get_queue_sender("orders") as sender:
        yield sender


def test_reset_removes_entities_locks_and_faults(tmp_path: Path) -> None:
    with running(queues=["orders", "bills"], data_dir=tmp_path) as emulator:
        with orders(emulator) as sender, client_of(emulator) as client:
            sender.send_messages([ServiceBusMessage("x"), ServiceBusMessage("y")])
            receiver = client.get_queue_receiver("orders")
            assert len(receiver.receive_messages(max_wait_time=5)) == 1
            emulator.faults.accept_delay_ms = 60_000
            emulator.freeze()
            emulator.reset()
            assert emulator.faults == Faults()

        for name in ("orders", "bills"):
            with pytest.raises(EmulatorError, match=f"no queue or subscription '{name}'"):
                emulator.counts(name)
        emulator.create_queue("orders")
        with orders(emulator) as sender:
            sender.send_messages(ServiceBusMessage("z"))
        assert emulator.counts("orders").active == 1
    with running(data_dir=tmp_path) as emulator:
        assert emulator.counts("orders").active == 1
        with pytest.raises(EmulatorError, match="no queue or subscription 'bills'"):
            emulator.counts("bills")


def test_every_connection_is_dropped() -> None:
    with running() as emulator:
        url = urlsplit(emulator.http_url)
        with socket.create_connection((url.hostname or "", url.port or 0), timeout=10) as connection:
            connection.sendall(b"AMQP\x00\x01\x00\x00")
            assert connection.recv(8) == b"AMQP\x00\x01\x00\x00"
            emulator.reset()
            try:
                rest = connection.recv(8)
            except ConnectionResetError:
                rest = b""
            assert rest == b""


def schedule(emulator: RunningEmulator, after: timedelta) -> None:
    with orders(emulator) as sender:
        sender.schedule_messages(ServiceBusMessage("x"), datetime.now(UTC) + after)
    assert emulator.counts("orders").scheduled == 1


def test_use_clock_also_ends_locks_taken_before() -> None:
    with running(queues=["orders"]) as emulator:
        schedule(emulator, timedelta(hours=1))
        clock = ManualClock()
        emulator.use_clock(clock)
        clock.advance(2 * 3600)
        assert emulator.counts("orders").active == 1


def test_the_clock_of_the_start_is_used_again() -> None:
    first, second = ManualClock(), ManualClock()
    with running(clock=first) as emulator:
        emulator.use_clock(second)
        emulator.reset()
        emulator.create_queue("orders")
        schedule(emulator, timedelta(hours=1))
        second.advance(2 * 3600)
        assert emulator.counts("orders").active == 0
        first.advance(2 * 3600)
        assert emulator.counts("orders").active == 1
