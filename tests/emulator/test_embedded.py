from __future__ import annotations

import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from sbnotebook.emulator import ManualClock, QueueOptions, RunningEmulator, running
from sbnotebook.errors import ConfigurationError, EmulatorError, InvalidEntityAddressError


def test_emulator_runs_while_the_block_runs(tmp_path: Path) -> None:
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


def test_emulator_ends_with_an_error_in_the_block(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="mine"), running(data_dir=tmp_path):
        raise RuntimeError("mine")
    with running(data_dir=tmp_path):
        pass


def test_a_start_that_fails_is_raised() -> None:
    with pytest.raises(ConfigurationError, match="cannot be the name"), running(queues=["a/$dlq"]):
        pass


def test_emulator_can_be_stopped_in_the_block() -> None:
    with running(queues=["orders"]) as emulator:
        emulator.stop()
        with suppress(EmulatorError):
            while True:
                emulator.counts("orders")
        with pytest.raises(EmulatorError, match="The emulator has ended"):
            emulator.create_queue("bills")
        emulator.stop()


FULL_DISK = """
import resource, signal, sys
from pathlib import Path
from sbnotebook.emulator import running
from sbnotebook.errors import EmulatorError

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
try:
    with running(data_dir=Path(sys.argv[1])) as emulator:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
        try:
            emulator.create_queue("orders")
        except EmulatorError as error:
            print(error)
except EmulatorError as error:
    print(error)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no limit for the size of files")
def test_a_store_failure_is_raised_at_the_end_of_the_block(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL_DISK, str(tmp_path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True)
    inside, at_the_end = done.stdout.splitlines()
    assert inside == "The emulator has ended."
    assert "its data could not be kept" in at_the_end


def until_all_have_left(emulator: RunningEmulator) -> None:
    """Wait until the emulator has read the end of each connection, a moment after the client closed it."""
    peers = emulator._server.broker.peers  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
    deadline = time.monotonic() + 30
    while peers:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_an_idle_entity_is_deleted() -> None:
    clock = ManualClock()
    with running(queues={"brief": QueueOptions(auto_delete_on_idle=300_000)}, clock=clock) as emulator:
        with (
            ServiceBusClient.from_connection_string(emulator.connection_string) as client,
            client.get_queue_receiver("brief") as receiver,
        ):
            receiver.peek_messages()
            clock.advance(400)
            assert emulator.counts("brief").active == 0  # It is attached to.
        until_all_have_left(emulator)  # Until then, the entity is in use.
        clock.advance(299)
        assert emulator.counts("brief").active == 0
        clock.advance(1)
        with pytest.raises(EmulatorError, match="There is no queue"):
            emulator.counts("brief")


def test_queues_come_and_go() -> None:
    with running() as emulator:
        emulator.create_queue("bills", QueueOptions(5_000, 1))
        assert emulator.counts("bills") == (0, 0, 0, 0, 0, 0)
        with pytest.raises(EmulatorError, match="already an entity 'BILLS'"):
            emulator.create_queue("BILLS")
        with pytest.raises(InvalidEntityAddressError):
            emulator.create_queue("a b")
        emulator.delete("Bills")
        for wanting in (emulator.counts, emulator.delete):
            with pytest.raises(EmulatorError, match=r"There is no queue.* 'bills'"):
                wanting("bills")


LEFT_OPEN = """
import sys
from contextlib import ExitStack
from pathlib import Path
from azure.servicebus import ServiceBusClient, ServiceBusMessage
from sbnotebook.emulator import running

stack = ExitStack()
emulator = stack.enter_context(running(queues=["orders"], data_dir=Path(sys.argv[1])))
client = ServiceBusClient.from_connection_string(emulator.connection_string)
client.get_queue_sender("orders").send_messages(ServiceBusMessage("kept"))
"""


def test_an_emulator_left_open_ends_with_the_process(tmp_path: Path) -> None:
    subprocess.run([sys.executable, "-c", LEFT_OPEN, str(tmp_path)], timeout=60, check=True)
    with running(data_dir=tmp_path) as emulator:
        assert emulator.counts("orders").active == 1
