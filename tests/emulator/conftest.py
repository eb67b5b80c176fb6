"""An emulator in a thread with a clock to turn by hand, and the real SDK on it."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient

from sbnotebook.emulator import ManualClock, QueueOptions, RunningEmulator, running


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def emulator(clock: ManualClock) -> Iterator[RunningEmulator]:
    """Has the queue ``orders``: locks of 30 seconds, three deliveries."""
    with running(queues={"orders": QueueOptions(30_000, 3)}, clock=clock) as server:
        yield server


@pytest.fixture
def client(emulator: RunningEmulator) -> Iterator[ServiceBusClient]:
    with ServiceBusClient.from_connection_string(emulator.connection_string, retry_total=0) as client:
        yield client


@pytest.fixture(scope="module")
def broken_connections() -> Iterator[None]:
    """Collect the sockets of connections that broke here, where they are expected: the SDK leaves them open."""
    yield
    gc.collect()
