"""100 sends to a broker that takes 80 ms to accept each: the plain SDK's loop, ours with 10 in flight, and one batch.

The limit for 10 in flight is 100 / 10 x 0.08 s = 0.8 s. All three run against the same emulator in one run; the ratios
count, not the seconds.
"""

from __future__ import annotations

import time
from statistics import median

from azure.servicebus import ServiceBusClient, ServiceBusMessage
from rich.console import Console
from rich.table import Table

from sbnotebook.client import Entity, Namespace
from sbnotebook.client.targets import Target
from sbnotebook.model import Message
from sbnotebook.settlement import Connection

COUNT = 100
IN_FLIGHT = 10
DELAY = 0.08
LIMIT = COUNT / IN_FLIGHT * DELAY
ROUNDS = 3


def main() -> None:
    """Measure and print."""
    from sbnotebook.emulator import running

    with running(queues=["bench"]) as emulator, Namespace(Target(Connection(emulator.connection_string), "")) as names:
        queue = names.entity("bench")
        queue.warm(IN_FLIGHT)
        emulator.faults.accept_delay_ms = round(DELAY * 1000)
        plain = plain_sdk_loop(emulator.connection_string)
        single = median(timed(queue, 1) for _ in range(ROUNDS))
        batch = median(timed(queue, COUNT) for _ in range(ROUNDS))
    show(plain, single, batch)


def plain_sdk_loop(connection_string: str) -> float:
    """Seconds for the SDK sending one message after another, on a connection that is open."""
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_sender("bench") as sender,
    ):
        sender.send_messages(ServiceBusMessage(b"warm"))
        started = time.perf_counter()
        for number in range(COUNT):
            sender.send_messages(ServiceBusMessage(str(number)))
        return time.perf_counter() - started


def timed(queue: Entity, batch_size: int) -> float:
    """Seconds for our send on a warm pool."""
    messages = [Message(body=str(number).encode(), message_id=str(number)) for number in range(COUNT)]
    started = time.perf_counter()
    report = queue.send(messages, max_in_flight=IN_FLIGHT, batch_size=batch_size, show_progress=False)
    elapsed = time.perf_counter() - started
    report.raise_for_failures()
    return elapsed


def show(plain: float, single: float, batch: float) -> None:
    """Print the three as a table."""
    table = Table("100 messages, 80 ms to accept each transfer", "seconds", "ratio to the limit of 0.8 s")
    for name, seconds in (
        ("plain SDK, one after the other", plain),
        (f"ours, max_in_flight={IN_FLIGHT}, one message each", single),
        ("ours, one batch", batch),
    ):
        table.add_row(name, f"{seconds:.2f}", f"{seconds / LIMIT:.2f}")
    Console().print(table)


if __name__ == "__main__":
    main()
