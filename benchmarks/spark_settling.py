"""Triage at scale: 100,000 messages are deferred, read by Spark, decided on, and settled by the rows of its frame.

The emulator, Spark's JVM and its Python workers share the cores of this machine. Beside it the plain SDK's own loop
settles deferred messages, in turn with Spark: it receives them by their numbers and completes one after the other.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Final

from azure.servicebus import ServiceBusClient

from benchmarks.emulators import emulator
from benchmarks.results import Result
from sbnotebook.client import Entity, Namespace
from sbnotebook.client.targets import Target
from sbnotebook.model import Message
from sbnotebook.settlement import Connection, Journal
from sbnotebook.spark import session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["measure"]

COUNT: Final = 100_000
BODY: Final = b"x" * 1024
PART: Final = 5_000
"""Messages of each round beside the SDK, which has no more than 10,000 requests answered on one link."""
ROUNDS: Final = 3
_AT_ONCE: Final = 50
_MOST_SECONDS: Final = 600
_MOST_MEGABYTES: Final = 300
_LEAST: Final = 0.5
_MEGABYTE: Final = 1024


def measure() -> list[Result]:
    """Measure the seconds of each step, the memory of this process, and the ratio to the SDK."""
    spark = session(lambda _: None)
    try:
        with emulator() as running, TemporaryDirectory() as folder:
            target = Target(Connection(running.connection_string), "")
            with Namespace(target, journal=Journal(Path(folder) / "journal.sqlite")) as namespace:
                bench = _Bench(spark, namespace, running.connection_string)
                return [*bench.beside_the_sdk(), *bench.at_scale()]
    finally:
        spark.stop()


class _Bench:
    """One Spark and one emulator.

    Args:
        spark: a session.
        namespace: the emulator's.
        connection_string: the emulator's.
    """

    def __init__(self, spark: SparkSession, namespace: Namespace, connection_string: str) -> None:
        self._spark = spark
        self._namespace = namespace
        self._connection_string = connection_string
        self._seconds: dict[str, float] = {}

    def at_scale(self) -> list[Result]:
        """Run from the first to the last step, once."""
        entity = self._filled("letters", COUNT)
        before = _peak()
        with self._timed("defer_all"):
            plan = entity.defer_all(show_progress=False)
            deferred = plan.apply(show_progress=False).settled
        with self._timed("read and decide"):
            settling = self._namespace.plan_settle_frame(self._decided("letters"))
        with self._timed("settle_frame"):
            outcomes = settling.apply(show_progress=False)
        grown = _peak() - before
        settled = outcomes.where("status = 'settled'").count()
        total = sum(self._seconds.values())
        steps = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self._seconds.items())
        whole = deferred == settled == COUNT and len(entity.peek(1, show_progress=False)) == 0
        return [
            Result(
                f"triage of {COUNT:,} messages of 1 kB with Spark: deferred, read, decided on and settled",
                f"{total:.0f} s ({steps}); {deferred:,} deferred, {settled:,} settled",
                f"at most {_MOST_SECONDS} s, all of them",
                total <= _MOST_SECONDS and whole,
            ),
            Result(
                f"memory of the driver's Python for it ({COUNT * len(BODY) / 2**20:.0f} MB of bodies)",
                f"{grown:.0f} MB more",
                f"at most {_MOST_MEGABYTES} MB more",
                grown <= _MOST_MEGABYTES,
            ),
        ]

    def beside_the_sdk(self) -> list[Result]:
        """Settling alone, in turns."""
        rounds = [self._round(number) for number in range(ROUNDS + 1)][1:]  # the first starts Spark's workers
        spark, bare = (median(seconds) for seconds in zip(*rounds, strict=True))
        return [
            Result(
                f"settle_frame of {PART:,} deferred messages, to the plain SDK's loop",
                f"{bare / spark:.2f} x ({PART / spark:,.0f} against {PART / bare:,.0f} a second)",
                f"at least {_LEAST} x",
                bare / spark >= _LEAST,
            )
        ]

    def _round(self, number: int) -> tuple[float, float]:
        for name in ("spark", "bare"):
            queue = self._filled(f"{name}-{number}", PART)
            queue.defer_all(show_progress=False).apply(show_progress=False)
        plan = self._namespace.plan_settle_frame(self._decided(f"spark-{number}"))
        began = time.perf_counter()
        outcomes = plan.apply(show_progress=False)
        between = time.perf_counter()
        self._bare(f"bare-{number}")
        ended = time.perf_counter()
        if outcomes.where("status <> 'settled'").count():
            raise RuntimeError("Not all were settled.")
        return between - began, ended - between

    def _bare(self, queue: str) -> None:
        numbers = [message.sequence_number for message in self._namespace.entity(queue).peek(show_progress=False)]
        client = ServiceBusClient.from_connection_string(self._connection_string)
        with client, client.get_queue_receiver(queue) as receiver:
            for start in range(0, PART, _AT_ONCE):
                for message in receiver.receive_deferred_messages(numbers[start : start + _AT_ONCE]):
                    receiver.complete_message(message)

    def _filled(self, name: str, count: int) -> Entity:
        self._namespace.create_queue(name)
        queue = self._namespace.entity(name)
        sent = (Message(body=BODY, subject=f"s{number % 4}") for number in range(count))
        queue.send(sent, show_progress=False).raise_for_failures()
        return queue

    def _decided(self, name: str) -> DataFrame:
        options = {"connectionString": self._connection_string, "entity": name}
        reader = self._spark.read.format("servicebus").options(**options, state="deferred", partitions=2)
        decision = "CASE WHEN subject = 's0' THEN 'dead_letter' ELSE 'complete' END AS decision"
        return reader.load().selectExpr("entity", "sequence_number", decision, "subject AS reason")

    @contextmanager
    def _timed(self, step: str) -> Generator[None]:
        began = time.perf_counter()
        yield
        self._seconds[step] = time.perf_counter() - began


def _peak() -> float:
    """Megabytes of memory that this process has had at most."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _MEGABYTE
