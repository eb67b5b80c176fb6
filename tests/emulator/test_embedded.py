from __future__ import annotations

import threading
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbnotebook.emulator import QueueOptions, running
from sbnotebook.errors import ConfigurationError, EmulatorError, InvalidEntityAddressError


def test_it_runs_while_the_block_runs(tmp_path: Path) -> None:
    threads = threading.active_count()
    for active in (0, 1):
        with running(queues=["orders"], data_dir=tmp_path) as emulator:
            assert emulator.counts("Orders").active == active
            with (
                ServiceBusClient.from_connection_string(emulator.connection_string, retry_total=0) as client,
                client.get_queue_sender("orders") as sender,
            ):
                sender.send_messages(ServiceBusMessage("x"))
    assert threading.active_count() == threads


def test_it_ends_with_an_error_in_the_block(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="mine"), running(data_dir=tmp_path):
        raise RuntimeError("mine")
    with running(data_dir=tmp_path):
        pass


def test_a_start_that_fails_is_raised(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be the name"), running(queues=["a/$dlq"]):
        pass
    with running(data_dir=tmp_path) as emulator:
        port = int(emulator.http_url.rsplit(":", 1)[1])
        with pytest.raises(EmulatorError, match=f"port {port}"), running(port=port):
            pass


def test_queues_come_and_go() -> None:
    with running() as emulator:
        emulator.create_queue("bills", QueueOptions(5_000, 1))
        assert emulator.counts("bills") == (0, 0, 0, 0, 0)
        with pytest.raises(EmulatorError, match="already an entity 'BILLS'"):
            emulator.create_queue("BILLS")
        with pytest.raises(InvalidEntityAddressError):
            emulator.create_queue("a b")
        emulator.delete_queue("Bills")
        for wanting in (emulator.counts, emulator.delete_queue):
            with pytest.raises(EmulatorError, match="no queue 'bills'"):
                wanting("bills")
