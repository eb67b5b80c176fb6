from __future__ import annotations

import asyncio
import sys

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbnotebook.emulator import running
from sbnotebook.emulator.server import run_loop


def module_of_the_loop() -> str:
    async def module() -> str:
        return type(asyncio.get_running_loop()).__module__

    return run_loop(module())


def test_the_loop_is_that_of_uvloop() -> None:
    pytest.importorskip("uvloop")
    assert module_of_the_loop() == "uvloop"


def test_an_emulator_without_uvloop_runs_in_the_loop_of_asyncio(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)  # As if it were not installed.
    assert module_of_the_loop().startswith("asyncio.")
    with (
        running(queues=["orders"]) as emulator,
        ServiceBusClient.from_connection_string(emulator.connection_string) as client,
        client.get_queue_sender("orders") as sender,
        client.get_queue_receiver("orders") as receiver,
    ):
        sender.send_messages(ServiceBusMessage("one"))
        (message,) = receiver.receive_messages(1, 10)
        receiver.complete_message(message)
        assert emulator.counts("orders").active == 0
