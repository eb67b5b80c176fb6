"""Writes of Spark beside our own send: with one task, and with two tasks on two cores; connections are open.

The emulator, Spark's JVM and its Python workers share the cores of this machine.
"""

from __future__ import annotations

import os
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

from benchmarks.emulators import Emulator, emulator
from benchmarks.results import Result
from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.model import Message
from sbnotebook.settlement import Connection
from sbnotebook.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["measure"]

COUNT: Final = 100_000
BODY: Final = "x" * 1024
ROUNDS: Final = 5
QUEUE: Final = "written"


class Took(NamedTuple):
    """What one way took.

    Args:
        seconds: until the last confirmation.
        emulator: seconds of CPU time of the emulator.
        ours: seconds of CPU time of this process, Spark's JVM and its Python processes.
    """

    seconds: float
    emulator: float
    ours: float


def measure() -> list[Result]:
    """Measure what Spark writes."""
    spark = session(lambda _: None)
    try:
        # In memory: a disk would be a part of each round trip.
        with emulator() as running, Namespace(Target(Connection(running.connection_string), "")) as namespace:
            return compare(Ways(spark, running, namespace))
    finally:
        spark.stop()


def compare(ways: Ways) -> list[Result]:
    """Measure all ways in turn, so that other load on the machine meets all of them."""
    ways.write(1, 10_000)  # everything is imported, and the workers are there
    ways.write(2, 10_000)
    found: dict[int, list[Took]] = {0: [], 1: [], 2: []}
    for _ in range(ROUNDS):
        for tasks, took in found.items():
            took.append(ways.write(tasks, COUNT))
    return [result(found[tasks], found[0], tasks, least) for tasks, least in ((1, 0.8), (2, 1.4))]


def result(spark: list[Took], own: list[Took], tasks: int, least: float) -> Result:
    """Return one line: the ratio of the medians, and where the time goes."""
    ratio = median(each.seconds for each in own) / median(each.seconds for each in spark)
    each, ours = (COUNT / median(took.seconds for took in ways) for ways in (spark, own))
    return Result(
        f"Spark's write of {COUNT:,} messages of 1 kB, {tasks} task{'s' if tasks > 1 else ''}",
        f"{ratio:.2f} x our own send ({each:,.0f} against {ours:,.0f} a second; CPU time of a message: {cpu(spark)}; "
        f"of our own send: {cpu(own)})",
        f"at least {least} x",
        ratio >= least,
    )


def cpu(ways: list[Took]) -> str:
    """Return the CPU time of a message."""
    emulator, ours = (median(each) / COUNT * 1e6 for each in zip(*(took[1:] for took in ways), strict=True))
    return f"{ours:.0f} µs and {emulator:.0f} µs of the emulator"


class Ways:
    """The ways to send that are compared, all to one queue, so that their connections stay open between the rounds."""

    def __init__(self, spark: SparkSession, running: Emulator, namespace: Namespace) -> None:
        self._spark = spark
        self._running = running
        self._namespace = namespace
        namespace.create_queue(QUEUE)

    def write(self, tasks: int, count: int) -> Took:
        """Send so many messages with so many tasks of Spark, none for our own send."""
        before = self._used()
        if tasks:
            self._with_spark(tasks, count)
        else:
            self._without(count)
        took = Took(*(after - then for after, then in zip(self._used(), before, strict=True)))
        with warnings.catch_warnings(action="ignore"):
            arrived = self._namespace.entity(QUEUE).receive_and_delete(count, archived=False, show_progress=False)
        if len(arrived) != count:
            raise RuntimeError(f"Only {len(arrived):,} of {count:,} messages arrived.")
        return took

    def _used(self) -> Took:
        return Took(time.perf_counter(), self._running.cpu_time(), cpu_of_tree(os.getpid()) - self._emulators())

    def _emulators(self) -> float:
        return cpu_of(self._running.pid)

    def _without(self, count: int) -> None:
        entity = self._namespace.entity(QUEUE)
        report = entity.send(numbered(count), max_in_flight=10, show_progress=False)
        report.raise_for_failures()

    def _with_spark(self, tasks: int, count: int) -> None:
        writer = rows(self._spark, tasks, count).write.format("servicebus").mode("append")
        writer.options(connectionString=self._running.connection_string, entity=QUEUE).save()


def numbered(count: int) -> Iterator[Message]:
    """Return the messages of our own send."""
    body = BODY.encode()
    return (Message(body=body, message_id=f"id-{number}") for number in range(count))


def rows(spark: SparkSession, tasks: int, count: int) -> DataFrame:
    """Return the same messages as a frame."""
    return spark.range(0, count, numPartitions=tasks).selectExpr(
        "concat('id-', id) AS message_id", f"encode('{BODY}', 'UTF-8') AS body"
    )


def cpu_of_tree(pid: int) -> float:
    """Return the seconds of CPU time of a process and of those of its children that still run."""
    children = [
        int(child) for path in Path(f"/proc/{pid}/task").glob("*/children") for child in path.read_text().split()
    ]
    return cpu_of(pid) + sum(map(cpu_of_tree, children))


def cpu_of(pid: int) -> float:
    """Return the seconds of CPU time of a process, 0 if it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
