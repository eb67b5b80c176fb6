"""An emulator in a thread with a clock to turn by hand, and the real SDK on it."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient

from sbnotebook.emulator import ManualClock, QueueOptions, RunningEmulator, running, stop

SDK_POLLS = {0.05: 0.001, 1: 0.01}
"""Seconds: how long the SDK sleeps between two looks, and how long it does here."""


@pytest.fixture(autouse=True)
def prompt_sdk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the SDK look more often whether a client is open, or closed: it sleeps for half a second, or a whole one."""

    def sleep(seconds: float) -> None:
        time.sleep(SDK_POLLS.get(seconds, seconds))

    async def sleep_in_loop(seconds: float, *result: Any) -> Any:
        return await asyncio.sleep(SDK_POLLS.get(seconds, seconds), *result)

    clock, loops = vars(time) | {"sleep": sleep}, vars(asyncio) | {"sleep": sleep_in_loop}
    for module in ("_servicebus_receiver", "_servicebus_sender", "_pyamqp.client"):
        monkeypatch.setattr(f"azure.servicebus.{module}.time", SimpleNamespace(**clock))
    for module in ("aio._servicebus_receiver_async", "aio._servicebus_sender_async", "_pyamqp.aio._client_async"):
        monkeypatch.setattr(f"azure.servicebus.{module}.asyncio", SimpleNamespace(**loops))


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


@pytest.fixture
def data_dir(tmp_path: Path) -> Iterator[Path]:
    """The data directory of an emulator in the background, which ends with the test."""
    directory = tmp_path / "emulator"
    yield directory
    stop(directory)


@pytest.fixture(scope="module")
def broken_connections() -> Iterator[None]:
    """Collect the sockets of connections that broke here, where they are expected: the SDK leaves them open."""
    yield
    gc.collect()
