"""Peeking 100,000 messages into Arrow, beside the plain SDK's peek loop that looks at no message, and filtering them.

The emulator runs in a process of its own, as a service does. Both use one receiver and ask for 250 messages at a time.
The plain loop is the faster of the SDK's two, synchronous and asynchronous; the SDK decodes each message there, but
drops the types, reads no body and makes no table.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from statistics import median

from azure.servicebus import ServiceBusClient
from azure.servicebus.aio import ServiceBusClient as AsyncServiceBusClient

from benchmarks.emulators import QUEUE, emulator
from benchmarks.results import Result
from sbnotebook.client import Entity, Messages, Namespace
from sbnotebook.client.targets import Target
from sbnotebook.model import Message
from sbnotebook.settlement import Connection

COUNT = 100_000
PAGE = 250
ROUNDS = 5
MUST = 0.6
WHERE = "dead_letter_reason = 'Invalid' and body_json->>'$.carrier' = 'UA' and (body_json->>'$.flight')::int > 9000"


def measure() -> list[Result]:
    """Measure both."""
    with emulator() as running, Namespace(Target(Connection(running.connection_string), "")) as namespace:
        queue = namespace.entity(QUEUE)
        queue.send(_messages(), show_progress=False).raise_for_failures()
        _peek(queue)  # imports and connects
        bare: dict[str, list[float]] = {"synchronous": [], "asynchronous": []}
        ours: list[float] = []
        for _ in range(ROUNDS):
            bare["synchronous"].append(bare_loop(running.connection_string))
            bare["asynchronous"].append(asyncio.run(bare_async_loop(running.connection_string)))
            ours.append(_timed(lambda: _peek(queue)))
        messages = _peek(queue)
        filtering = median(_timed(lambda: messages.where(WHERE)) for _ in range(ROUNDS))
    kind, plain = min(((name, median(times)) for name, times in bare.items()), key=lambda pair: pair[1])
    ratio = plain / median(ours)
    return [
        Result(
            f"peek {COUNT:,} messages into Arrow, to the plain SDK's {kind} loop that reads nothing",
            f"{ratio:.2f} ({COUNT / median(ours):,.0f} messages a second, the loop {COUNT / plain:,.0f})",
            f"{MUST}",
            ratio >= MUST,
        ),
        Result(
            f"filter {COUNT:,} messages by a property and two values of their JSON bodies",
            f"{filtering:.2f} s",
            "1 s",
            filtering < 1,
        ),
    ]


def _messages() -> Iterator[Message]:
    for number in range(COUNT):
        carrier = ("UA", "AA", "DL")[number % 3]
        flight = {"carrier": carrier, "flight": number % 10_000, "note": "x" * 200}
        yield Message(
            body=json.dumps(flight).encode(),
            message_id=str(number),
            subject=carrier,
            content_type="application/json",
            application_properties={
                "DeadLetterReason": "Invalid",
                "DeadLetterErrorDescription": f"Flight {number} has no tail number",
                "attempt": number % 5,
            },
        )


def _peek(queue: Entity) -> Messages:
    messages = queue.peek(show_progress=False)
    if len(messages) != COUNT:
        raise RuntimeError(f"{len(messages)} messages came in place of {COUNT}.")
    return messages


def _timed(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def bare_loop(connection_string: str) -> float:
    """Return the seconds that the SDK's synchronous loop takes for all messages."""
    with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_receiver(QUEUE) as receiver,
    ):
        receiver.peek_messages(1)  # opens the links
        started = time.perf_counter()
        found, start = 0, 1
        while page := receiver.peek_messages(PAGE, sequence_number=start):
            found += len(page)
            start = (page[-1].sequence_number or 0) + 1
        return _checked(found, started)


async def bare_async_loop(connection_string: str) -> float:
    """Return the seconds that its asynchronous loop takes."""
    async with (
        AsyncServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_receiver(QUEUE) as receiver,
    ):
        await receiver.peek_messages(1)
        started = time.perf_counter()
        found, start = 0, 1
        while page := await receiver.peek_messages(PAGE, sequence_number=start):
            found += len(page)
            start = (page[-1].sequence_number or 0) + 1
        return _checked(found, started)


def _checked(found: int, started: float) -> float:
    elapsed = time.perf_counter() - started
    if found != COUNT:
        raise RuntimeError(f"{found} messages came in place of {COUNT}.")
    return elapsed
