"""Every job at a distance: round trips that 10,000 messages take, and messages a second; and its time without any.

The emulator, a process of its own that keeps messages in memory, delays every byte of every connection by half a round
trip. Without a delay, the processor time of this process and of the emulator sets the limit. Each job opens its
connections in the time that is measured, and uses its defaults. Beside it, the plain SDK completes messages one by one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

from azure.servicebus import ServiceBusClient

from benchmarks.emulators import Emulator, emulator
from benchmarks.results import Result
from sbnotebook.client import Namespace, Plan
from sbnotebook.client.targets import Target
from sbnotebook.model import Complete, DeadLetter, Message
from sbnotebook.settlement import Archive, Connection, Journal

__all__ = ["measure"]

COUNT: Final = 10_000
ROUND_TRIPS_MS: Final = (10, 50, 150)
TARGETS: Final = {
    "send 10,000": 20,
    "peek 10,000": 25,
    "lock 10,000 and dead-letter them": 120,
    "resubmit 2,000 of 10,000": 80,
    "pick 100 of 8,000": 60,
    "purge 5,000 of 7,900 by where, archived": 110,
    "undo that purge": 45,
    "defer 10,000": 130,
    "list 10,000 deferred messages": 25,
    "complete 10,000 deferred": 110,
    "process 2,000 with a function that does nothing, 20 at once": 70,
}
"""Round trips at most, at 50 ms."""
_AT: Final = 50
SECONDS: Final = {
    "lock 10,000 and dead-letter them": 2.5,
    "resubmit 2,000 of 10,000": 2.5,
    "purge 5,000 of 7,900 by where, archived": 3.0,
    "defer 10,000": 2.5,
}
"""Seconds at most, without a delay."""
_SDK_COUNT: Final = 200


class _Took(NamedTuple):
    """The seconds of a job, its messages, and the processor time of this process and of the emulator."""

    seconds: float
    messages: int
    here: float = 0.0
    there: float = 0.0


class _Far(NamedTuple):
    """A far emulator, and what this machine remembers of it."""

    running: Emulator
    folder: Path

    @contextmanager
    def namespace(self) -> Generator[Namespace]:
        """Connect anew, as a job that begins does."""
        journal, archive = Journal(self.folder / "journal.sqlite"), Archive(self.folder / "archive.sqlite")
        target = Target(Connection(self.running.connection_string), "")
        with Namespace(target, journal=journal, archive=archive) as names:
            yield names


def measure() -> list[Result]:
    """Measure every job at every distance."""
    results = [
        Result(
            f"{name}, on one machine",
            f"{took.seconds:.2f} s ({took.messages / took.seconds:,.0f} a second; processor time: {took.here:.2f} s, "
            f"and {took.there:.2f} s of the emulator)",
            f"at most {SECONDS[name]:g} s" if name in SECONDS else "",
            took.seconds <= SECONDS[name] if name in SECONDS else None,
        )
        for name, took in _measured(0).items()
    ]
    for round_trip in ROUND_TRIPS_MS:
        for name, job in _measured(round_trip).items():
            took = job.seconds
            trips, most = took * 1000 / round_trip, TARGETS.get(name) if round_trip == _AT else None
            results.append(
                Result(
                    f"{name}, round trip {round_trip} ms",
                    f"{trips:.0f} round trips ({took:.2f} s)",
                    f"at most {most}" if most else "",
                    trips <= most if most else None,
                )
            )
    return results


def _measured(round_trip: int) -> dict[str, _Took]:
    found: dict[str, _Took] = {}
    with emulator() as running, TemporaryDirectory() as folder:
        far = _Far(running, Path(folder))

        def job(name: str, count: int, act: Callable[[Namespace], object]) -> None:
            running.set_faults(network_delay_ms=round_trip // 2)
            began, here, there = time.perf_counter(), time.process_time(), running.cpu_time()
            with far.namespace() as names:
                act(names)
                took = time.perf_counter() - began
            found[name] = _Took(took, count, time.process_time() - here, running.cpu_time() - there)
            running.set_faults(network_delay_ms=0)

        with far.namespace() as names:
            for queue in ("send", "peek", "lock", "resubmit", "pick", "purge", "defer", "process", "sdk"):
                names.create_queue(queue)
        _run_jobs(far, job)
        running.set_faults(network_delay_ms=round_trip // 2)
        found["the plain SDK: complete 200 one by one"] = _Took(_completed_by_sdk(running), _SDK_COUNT)
    return found


def _run_jobs(far: _Far, job: Callable[[str, int, Callable[[Namespace], object]], None]) -> None:
    job("send 10,000", COUNT, lambda names: names.entity("send").send(_messages(COUNT), show_progress=False))
    _fill(far, "peek", COUNT)
    job("peek 10,000", COUNT, lambda names: names.entity("peek").peek(show_progress=False))
    _fill(far, "lock", COUNT)
    job("lock 10,000 and dead-letter them", COUNT, _lock_and_dead_letter)
    _fill(far, "resubmit", COUNT)
    with far.namespace() as names, names.entity("resubmit").lock(COUNT) as batch:
        batch.dead_letter(reason="bench").raise_for_failures()
    job("resubmit 2,000 of 10,000", 2_000, _resubmit)
    _fill(far, "pick", 8_000)
    job("pick 100 of 8,000", 100, _pick)
    _fill(far, "purge", 7_900)
    job("purge 5,000 of 7,900 by where, archived", 5_000, _purge)
    job("undo that purge", 5_000, lambda names: _apply(names.undo(entity="purge"), 5_000))
    _fill(far, "defer", COUNT)
    job("defer 10,000", COUNT, lambda names: _apply(names.entity("defer").defer_all(show_progress=False), COUNT))
    job("list 10,000 deferred messages", COUNT, lambda names: names.entity("defer").deferred(show_progress=False))
    job("complete 10,000 deferred", COUNT, _complete_deferred)
    _fill(far, "process", 2_000)
    job(
        "process 2,000 with a function that does nothing, 20 at once",
        2_000,
        lambda names: names.entity("process").process(lambda _: None, max_in_flight=20, max_messages=2_000),
    )
    _fill(far, "sdk", _SDK_COUNT)


def _messages(count: int) -> Iterator[Message]:
    """Yield messages with bodies of 1 kB; 50 of 79 are of the carrier that is purged."""
    for number in range(count):
        carrier = "UA" if number % 79 < 50 else "DL"
        yield Message(body=b'{"carrier": "%s", "note": "%s"}' % (carrier.encode(), b"x" * 960), message_id=f"m{number}")


def _fill(far: _Far, queue: str, count: int) -> None:
    with far.namespace() as names:
        names.entity(queue).send(_messages(count), show_progress=False).raise_for_failures()


def _apply(plan: Plan, count: int) -> None:
    report = plan.apply(show_progress=False)
    report.raise_for_failures()
    if len(report) != count:
        raise RuntimeError(f"{len(report):,} messages are in the report, not {count:,}.")


def _lock_and_dead_letter(names: Namespace) -> None:
    with names.entity("lock").lock(COUNT) as batch:
        _apply(batch.plan(DeadLetter("bench")), COUNT)


def _resubmit(names: Namespace) -> None:
    letters = names.entity("resubmit/$dlq")
    _apply(letters.resubmit(letters.peek(COUNT, show_progress=False)[::5]), 2_000)


def _pick(names: Namespace) -> None:
    queue = names.entity("pick")
    _apply(queue.pick(queue.peek(show_progress=False)[79::80], Complete(), show_progress=False), 100)


def _purge(names: Namespace) -> None:
    _apply(names.entity("purge").purge(where="body_json->>'carrier' = 'UA'", show_progress=False), 5_000)


def _complete_deferred(names: Namespace) -> None:
    _apply(names.entity("defer").deferred(show_progress=False).plan(Complete()), COUNT)


def _completed_by_sdk(running: Emulator) -> float:
    began = time.perf_counter()
    with (
        ServiceBusClient.from_connection_string(running.connection_string) as client,
        client.get_queue_receiver("sdk") as receiver,
    ):
        done = 0
        while done < _SDK_COUNT:
            for message in receiver.receive_messages(100, max_wait_time=5):
                receiver.complete_message(message)
                done += 1
    return time.perf_counter() - began
