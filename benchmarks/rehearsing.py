"""The time of a rehearsal beyond the peek: 1,000 messages, without a consumer and with one that does nothing."""

from __future__ import annotations

import time
from typing import Final

from benchmarks.emulators import emulator
from benchmarks.results import Result, show
from sbnotebook.client import connect
from sbnotebook.client.rehearsal import RehearsalResult
from sbnotebook.model import Message, ReceivedMessage

__all__ = ["measure"]

COUNT: Final = 1_000
TARGET: Final = 5.0
BODY: Final = b'{"order": 12345, "total": 99.5, "carrier": "UA"}' * 10


def consume(_message: ReceivedMessage) -> None:
    """Complete a message without work."""


def measure() -> list[Result]:
    """Measure both, one after the other."""
    results: list[Result] = []
    with emulator() as (connection_string, _), connect(connection_string, archive=False) as namespace:
        namespace.create_queue("bench-rehearsed")
        queue = namespace.entity("bench-rehearsed")
        queue.send([Message(body=BODY, message_id=f"m{n}") for n in range(COUNT)]).raise_for_failures()
        with queue.lock(COUNT) as batch:
            batch.dead_letter(reason="Bad").raise_for_failures()
        letters = namespace.entity("bench-rehearsed/$dlq")
        plan = letters.resubmit(letters.peek())
        for consumer, expected in ((None, RehearsalResult.ARRIVED), (consume, RehearsalResult.CONSUMED)):
            started = time.perf_counter()
            rehearsal = namespace.rehearse(plan, consumer)
            elapsed = time.perf_counter() - started
            if rehearsal.counts != {expected: COUNT}:
                raise AssertionError(rehearsal.counts)
            what = "with a function" if consumer else "without a consumer"
            limit = f"{TARGET:.0f} s beyond the peek"
            results.append(Result(f"rehearse {COUNT:,}, {what}", f"{elapsed:.2f} s", limit, elapsed <= TARGET))
    return results


if __name__ == "__main__":
    show(measure())
