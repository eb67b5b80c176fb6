"""Looking at 50 entities: the overview of their dead letters at a distance, and a search in 100,000 messages.

The emulator, a process of its own, keeps the messages in memory. For the overview it delays every byte of every
connection by half a round trip, and the time includes opening the connections. The search is compared with peeking at
the same messages, one entity after the other, in the same run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final

from benchmarks.emulators import Emulator, emulator
from benchmarks.results import Result, show
from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.model import Message
from sbnotebook.settlement import Connection, Journal

__all__ = ["measure"]

ENTITIES: Final = 50
ROUND_TRIP_MS: Final = 50
OVERVIEW: Final = 3.0
COUNT: Final = 100_000
ROUNDS: Final = 5
FIND: Final = 1.5
NAMES: Final = tuple(f"bench-{number:02}" for number in range(ENTITIES))
WHERE: Final = "body_json->>'$.carrier' = 'UA' and (body_json->>'$.order')::int % 10000 = 7"


def measure() -> list[Result]:
    """Measure the overview and the search."""
    return [_overview(), *_searches()]


def _overview() -> Result:
    letters = 300
    with emulator() as running, TemporaryDirectory() as folder:
        with _connected(running, Path(folder)) as names:
            for name in NAMES:
                names.create_queue(name)
                names.entity(name).send(_messages(letters), show_progress=False).raise_for_failures()
                with names.entity(name).lock(letters) as batch:
                    batch.dead_letter(reason="Invalid", description="no price").raise_for_failures()
        running.set_faults(network_delay_ms=ROUND_TRIP_MS // 2)
        times: list[float] = []
        for _ in range(ROUNDS):
            began = time.perf_counter()
            with _connected(running, Path(folder)) as names:
                found = names.dead_letters()
                times.append(time.perf_counter() - began)
            if found.total != ENTITIES * letters:
                raise RuntimeError(f"{found.total:,} dead letters were found.")
    took = median(times)
    return Result(
        f"overview of {ENTITIES} dead-letter queues, round trip {ROUND_TRIP_MS} ms",
        f"{took:.2f} s ({took * 1000 / ROUND_TRIP_MS:.0f} round trips)",
        f"{OVERVIEW:.0f} s",
        took <= OVERVIEW,
    )


def _searches() -> list[Result]:
    with emulator() as running, TemporaryDirectory() as folder, _connected(running, Path(folder)) as names:
        for number, name in enumerate(NAMES):
            names.create_queue(name)
            part = range(number * COUNT // ENTITIES, (number + 1) * COUNT // ENTITIES)
            names.entity(name).send(_messages(len(part), part.start), show_progress=False).raise_for_failures()
        searches = {
            "a correlation id": (lambda: names.find(correlation_id="c777", show_progress=False), 1),
            "a message id and its clones": (lambda: names.find(message_id="m777", show_progress=False), 1),
            "an expression over bodies": (lambda: names.find(where=WHERE, show_progress=False), None),
        }
        _peek_all(names)  # imports and connects
        peeking = median(_timed(lambda: _peek_all(names)) for _ in range(ROUNDS))
        results: list[Result] = []
        for what, (search, expected) in searches.items():
            found = search()
            if (expected is not None and len(found) != expected) or found.looked != COUNT:
                raise RuntimeError(f"{found.summary}")
            took = median(_timed(search) for _ in range(ROUNDS))
            results.append(
                Result(
                    f"find {what} in {COUNT:,} messages of {ENTITIES} queues, to peeking them",
                    f"{took / peeking:.2f} ({took:.2f} s, peeking {peeking:.2f} s)",
                    f"{FIND}",
                    took <= FIND * peeking,
                )
            )
    return results


def _connected(running: Emulator, folder: Path) -> Namespace:
    target = Target(Connection(running.connection_string), "")
    return Namespace(target, journal=Journal(folder / "journal.sqlite"), archive=False)


def _messages(count: int, first: int = 0) -> Iterator[Message]:
    for number in range(first, first + count):
        carrier = ("UA", "AA", "DL")[number % 3]
        yield Message(
            body=b'{"carrier": "%s", "order": %d, "note": "%s"}' % (carrier.encode(), number, b"x" * 200),
            message_id=f"m{number}",
            correlation_id=f"c{number}",
            subject=carrier,
        )


def _peek_all(names: Namespace) -> None:
    found = sum(len(names.entity(name).peek(show_progress=False)) for name in NAMES)
    if found != COUNT:
        raise RuntimeError(f"{found:,} messages came in place of {COUNT:,}.")


def _timed(function: Callable[[], object]) -> float:
    began = time.perf_counter()
    function()
    return time.perf_counter() - began


if __name__ == "__main__":
    show(measure())
