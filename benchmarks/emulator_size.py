"""1,000,000 messages of 1 kB in the emulator: its memory, its start on them, and a page of a peek anywhere.

The messages are sent in batches by the SDK to an emulator that is a process of its own. ``COUNT`` may be
given as the first argument.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusReceiver
from rich.console import Console
from rich.table import Table

from benchmarks.emulators import QUEUE, emulator

COUNT: Final = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
BODY: Final = b"x" * 1000
BATCH: Final = 500
PAGE: Final = 250
ROUNDS: Final = 5


def main() -> None:
    """Measure and print."""
    table = Table(f"{COUNT:,} messages of 1 kB", "")
    with tempfile.TemporaryDirectory() as directory:
        with started(Path(directory)) as (process, client, _):
            table.add_row("resident memory, empty", f"{resident(process):.0f} MB")
            table.add_row("sending, in batches", f"{send(client):.0f} s")
            table.add_row("resident memory after sending", f"{resident(process):.0f} MB")
            table.add_row("peeking at everything", f"{browse(client):.0f} s")
            table.add_row("resident memory after that", f"{resident(process):.0f} MB")
        with started(Path(directory)) as (process, client, seconds):
            table.add_row("start, until it says that it is ready", f"{seconds:.2f} s")
            table.add_row("resident memory after the start", f"{resident(process):.0f} MB")
            with client.get_queue_receiver(QUEUE) as receiver:
                receiver.peek_messages(1)
                for name, start in (("beginning", 1), ("middle", COUNT // 2), ("end", COUNT - PAGE + 1)):
                    table.add_row(f"a page of {PAGE} at the {name}", f"{page_time(receiver, start) * 1000:.0f} ms")
    Console().print(table)


@contextmanager
def started(directory: Path) -> Generator[tuple[int, ServiceBusClient, float]]:
    """Return the emulator's process, a client of it, and the seconds until it was ready."""
    begun = time.perf_counter()
    with emulator(directory) as running:
        seconds = time.perf_counter() - begun
        with ServiceBusClient.from_connection_string(running.connection_string) as client:
            yield running.pid, client, seconds


def send(client: ServiceBusClient) -> float:
    """Return the seconds to send all messages."""
    begun = time.perf_counter()
    with client.get_queue_sender(QUEUE) as sender:
        batch = [ServiceBusMessage(BODY) for _ in range(BATCH)]
        for sent in range(0, COUNT, BATCH):
            sender.send_messages(batch[: COUNT - sent])
    return time.perf_counter() - begun


def browse(client: ServiceBusClient) -> float:
    """Return the seconds to peek at all messages, page by page."""
    begun = time.perf_counter()
    seen = 0
    with client.get_queue_receiver(QUEUE) as receiver:
        while page := receiver.peek_messages(PAGE, sequence_number=seen + 1):
            seen = page[-1].sequence_number or 0
    if seen != COUNT:
        sys.exit(f"{COUNT - seen} messages are missing")
    return time.perf_counter() - begun


def page_time(receiver: ServiceBusReceiver, start: int) -> float:
    """Return the seconds for a page, the client's part included."""
    seconds: list[float] = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        receiver.peek_messages(PAGE, sequence_number=start)
        seconds.append(time.perf_counter() - begun)
    return median(seconds)


def resident(process: int) -> float:
    """Megabytes that a process has in memory."""
    said = subprocess.check_output([shutil.which("ps") or "ps", "-o", "rss=", "-p", str(process)], text=True)
    return int(said) / 1024


if __name__ == "__main__":
    main()
