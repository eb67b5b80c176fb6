"""Sends: against the limit that round trips set, against the plain SDK, and a million of them in little memory.

Each against an emulator that is a process of its own. The limit for n in flight is 100 / n x 80 ms.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Final

from azure.servicebus import ServiceBusClient, ServiceBusMessage, ServiceBusSender
from azure.servicebus.aio import ServiceBusClient as AsyncClient
from azure.servicebus.aio import ServiceBusSender as AsyncSender

from benchmarks.emulators import QUEUE, emulator
from benchmarks.results import Result
from sbnotebook.client import Entity, Namespace
from sbnotebook.client.targets import Target
from sbnotebook.model import Message
from sbnotebook.settlement import Connection

__all__ = ["measure"]

COUNT: Final = 100
DELAY: Final = 0.08
ROUNDS: Final = 5
BULK: Final = 20_000
ONE_BY_ONE: Final = 2_000
LIST: Final = 500
BODY: Final = b"x" * 200
MILLION: Final = 1_000_000
MOST_GROWTH: Final = 50
"""Megabytes."""


def measure() -> list[Result]:
    """Measure everything about sends."""
    with emulator() as running:  # in memory: a disk would be a part of each round trip
        running.set_faults(accept_delay_ms=round(DELAY * 1000))
        delayed = [in_flight(running.connection_string, count) for count in (1, 10, 20, 50)]
    with tempfile.TemporaryDirectory() as directory, emulator(Path(directory)) as running:
        return [*delayed, *throughput(running.connection_string), million(running.connection_string)]


@contextmanager
def queue(connection_string: str) -> Generator[Entity]:
    """Open the queue on connections of its own."""
    with Namespace(Target(Connection(connection_string), "")) as namespace:
        yield namespace.entity(QUEUE)


def in_flight(connection_string: str, count: int) -> Result:
    """100 sends of a message each, with so many in flight: warm, and with nothing open before."""
    limit = COUNT / count * DELAY
    rounds = count  # each as short as there are many in flight
    with queue(connection_string) as cold:
        first = timed(lambda: send(cold, numbered(COUNT), count, 1))
    with queue(connection_string) as warm:
        warm.warm(count)
        seconds = median(timed(lambda: send(warm, numbered(COUNT), count, 1)) for _ in range(rounds))
    by_hand = asyncio.run(sdk_in_parallel(connection_string, count, rounds))
    ratio = seconds / limit
    return Result(
        f"{COUNT} sends, 80 ms until each is accepted, {count} in flight",
        f"{ratio:.2f} x the limit of {limit:g} s ({seconds:.2f} s; {first:.2f} s when nothing is open yet; "
        f"{by_hand:.2f} s with as many open senders of the plain SDK)",
        "at most 1.15 x",
        ratio <= 1.15,
    )


async def sdk_in_parallel(connection_string: str, count: int, rounds: int) -> float:
    """Return the seconds that as many open senders of the SDK take, each sending its share one by one."""
    async with AsyncClient.from_connection_string(connection_string) as client:
        senders = [client.get_queue_sender(QUEUE) for _ in range(count)]
        await asyncio.gather(*(sender.create_message_batch() for sender in senders))

        async def share(sender: AsyncSender) -> None:
            for number in range(COUNT // count):
                await sender.send_messages(ServiceBusMessage(BODY, message_id=str(number)))

        found: list[float] = []
        for _ in range(rounds):
            started = time.perf_counter()
            await asyncio.gather(*map(share, senders))
            found.append(time.perf_counter() - started)
        return median(found)


def throughput(connection_string: str) -> list[Result]:
    """Measure messages a second without a delay, beside the SDK's own loops."""
    best: list[float] = []
    single: list[float] = []
    ours: list[float] = []
    ours_single: list[float] = []
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_sender(QUEUE) as sender,
        queue(connection_string) as entity,
    ):
        sender.send_messages(ServiceBusMessage(BODY))
        entity.warm(10)
        for _ in range(ROUNDS):  # in turn, so that other work on the machine affects all of them
            best.append(BULK / timed(lambda: sdk_lists(sender)))
            single.append(ONE_BY_ONE / timed(lambda: sdk_one_by_one(sender)))
            ours.append(BULK / timed(lambda: send(entity, numbered(BULK), 10, None)))
            ours_single.append(ONE_BY_ONE / timed(lambda: send(entity, numbered(ONE_BY_ONE), 10, 1)))
    rate, listed, looped = median(ours), median(best), median(single)
    return [
        Result(
            f"send of {BULK:,} messages of {len(BODY)} bytes",
            f"{rate / listed:.1f} x the SDK's loop over lists of {LIST} ({rate:,.0f} against {listed:,.0f} a second)",
            "at least 0.9 x",
            rate >= 0.9 * listed,
        ),
        Result(
            "the same against the SDK sending one by one",
            f"{rate / looped:.1f} x ({looped:,.0f} a second; ours with batch_size=1 {median(ours_single):,.0f})",
            "at least 2 x",
            rate >= 2 * looped,
        ),
    ]


def million(connection_string: str) -> Result:
    """Measure the growth of a process that sends a million messages from a generator."""
    command = [sys.executable, "-m", "benchmarks.sending", connection_string]
    grown, seconds = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    return Result(
        f"{MILLION:,} sends from a generator, their report included",
        f"{float(grown):.0f} MB more resident at most, in {float(seconds):.0f} s",
        f"within {MOST_GROWTH} MB",
        float(grown) <= MOST_GROWTH,
    )


def send_a_million(connection_string: str) -> tuple[float, float]:
    """Send; the growth in megabytes, and the seconds. In a process of its own: the peak is that of the process."""
    with queue(connection_string) as entity:
        entity.warm(10)
        send(entity, numbered(BULK), 10, None)  # everything is imported, and has the buffers that it needs
        before = resident()
        started = time.perf_counter()
        peak = 0.0

        def messages() -> Iterator[Message]:
            nonlocal peak
            for number, message in enumerate(numbered(MILLION)):
                if number % 1000 == 0:
                    peak = max(peak, resident())
                yield message

        report = entity.send(messages(), show_progress=False)
        seconds = time.perf_counter() - started
        peak = max(peak, resident())
        if report.settled != MILLION:
            sys.exit(f"{report}")
        return peak - before, seconds


def resident() -> float:
    """Megabytes that this process has in memory."""
    with open("/proc/self/status") as status:  # noqa: PTH123 (many times)
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS"))


def numbered(count: int) -> Iterator[Message]:
    """Return messages with an identifier each that does not compress well."""
    return (
        Message(body=BODY, message_id=f"{hash((number, count)) & (2**64 - 1):016x}-{number}") for number in range(count)
    )


def send(entity: Entity, messages: Iterator[Message], max_in_flight: int, batch_size: int | None) -> None:
    """Our send."""
    report = entity.send(messages, max_in_flight=max_in_flight, batch_size=batch_size, show_progress=False)
    report.raise_for_failures()


def sdk_lists(sender: ServiceBusSender) -> None:
    """Send with the SDK's quickest loop: lists that are a batch each."""
    for start in range(0, BULK, LIST):
        sender.send_messages([ServiceBusMessage(BODY, message_id=str(start + number)) for number in range(LIST)])


def sdk_one_by_one(sender: ServiceBusSender) -> None:
    """Send with the SDK's loop of most examples."""
    for number in range(ONE_BY_ONE):
        sender.send_messages(ServiceBusMessage(BODY, message_id=str(number)))


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


if __name__ == "__main__":
    print(*send_a_million(sys.argv[1]))
