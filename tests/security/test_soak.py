"""Damaged conversations over AMQP and HTTP for a while: the emulator stays small, and answers others in time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from statistics import quantiles
from threading import Event, Thread
from urllib.request import urlopen

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from benchmarks import emulators
from tests.chances import SEED
from tests.security.attacked import AttackedEmulator, attacked

pytestmark = pytest.mark.thorough

SECONDS = float(os.environ.get("SBNOTEBOOK_SOAK_SECONDS", "30"))
"""Ten minutes in ``make soak``, half a minute in a thorough run."""
ONE_WAY_MS = (0, 25)
"""Milliseconds to the emulator, and as many back; each takes half of the time."""
MOST_MEGABYTES = 150
MOST_SECONDS = 0.25 if SECONDS > 60 else 2.5
"""At the 99th percentile, beside the network; in a short run beside other tests the machine's load decides."""

MOST_TRIPS = 8
"""Ways of what is timed: a question over HTTP opens a connection."""


def drain(emulator: AttackedEmulator, done: Event) -> None:
    """Receive the attackers' messages: they are not an attack on the memory."""
    while not done.is_set():
        try:
            with (
                ServiceBusClient.from_connection_string(emulator.connection_string) as client,
                client.get_queue_receiver("orders", receive_mode="receiveanddelete") as receiver,
            ):
                while not done.is_set():
                    receiver.receive_messages(500, max_wait_time=1)
        except Exception as error:  # noqa: BLE001 - the attackers may delete the queue
            print("The queue is not drained:", error)  # noqa: T201
            time.sleep(0.1)


@pytest.mark.parametrize("one_way_ms", ONE_WAY_MS)
def test_mutations_neither_fill_the_memory_nor_delay_others(tmp_path: Path, one_way_ms: int) -> None:
    times: list[float] = []
    memory: list[float] = []
    done = Event()
    with attacked(tmp_path, "--queue", "others") as emulator:
        emulators.Emulator(emulator.connection_string, emulator.process.pid).set_faults(network_delay_ms=one_way_ms)
        seed, seconds = str(SEED), SECONDS / len(ONE_WAY_MS)
        command = [sys.executable, "-m", "tests.security.attackers", str(emulator.port), str(seconds), seed]
        draining = Thread(target=drain, args=(emulator, done), daemon=True)
        draining.start()
        with (
            ServiceBusClient.from_connection_string(emulator.connection_string, retry_total=0) as client,
            client.get_queue_sender("others") as sender,
            client.get_queue_receiver("others", receive_mode="receiveanddelete") as receiver,
            subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as attackers,
        ):
            while attackers.poll() is None:
                begun = time.monotonic()
                sender.send_messages(ServiceBusMessage("x"))
                times.append(time.monotonic() - begun)
                assert receiver.receive_messages(1, max_wait_time=30)
                begun = time.monotonic()
                with urlopen(f"http://127.0.0.1:{emulator.port}/health", timeout=30) as answer:
                    answer.read()
                times.append(time.monotonic() - begun)
                memory.append(emulator.megabytes)
                time.sleep(0.02)
            assert attackers.stdout is not None
            count = int(attackers.stdout.read())
        done.set()
        draining.join(10)
        late, log = quantiles(times, n=100)[-1], emulator.log.stat().st_size
        print(f"{count} connections, seed {seed}: {max(memory):.0f} MB, {1000 * late:.0f} ms, a log of {log} bytes")  # noqa: T201
        assert count > 5 * seconds
        assert max(memory) < MOST_MEGABYTES
        assert late < MOST_SECONDS + one_way_ms * MOST_TRIPS / 1000
        assert log < 200_000
