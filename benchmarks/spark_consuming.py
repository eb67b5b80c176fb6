"""A consume stream from end to end, beside the plain SDK's loop that receives and completes.

The emulator is a process of its own that keeps messages in memory; it, Spark and the loop share two cores. The stream
runs with ``availableNow`` until the queue is empty, in a warm session. The time is measured from ``start()`` to its
end, into ``noop``, which drops the rows, and into Parquet. The loop is the asynchronous SDK's with one receiver, as its
samples have it: ``receive_messages`` for up to 100, then ``complete_message`` for one after the other; it does nothing
with the messages. The stream does for each message what makes it exactly once: lock, defer, peek, remove.

Each stream takes about 1.5 seconds to start and to end, in which Python loads PySpark, the SDK and sbnotebook. So
the two deliveries are compared with 200,000 messages, in 20 micro-batches.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from statistics import linear_regression, median
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import psutil
from azure.servicebus.aio import ServiceBusClient

from benchmarks.emulators import QUEUE, emulator
from benchmarks.results import Result
from sbnotebook.client import Entity, Namespace
from sbnotebook.client.targets import Target
from sbnotebook.model import Message
from sbnotebook.settlement import Connection
from sbnotebook.spark import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["measure"]

COUNT: Final = 40_000
MANY: Final = 200_000
"""Messages by which the two deliveries are compared."""
BODY: Final = b"x" * 1000
AT_ONCE: Final = 100
"""Messages that the loop receives at once."""
ROUNDS: Final = 3
LEAST: Final = 0.5
LEAST_RATIO: Final = 1.1
"""Of at-least-once to exactly-once."""
BATCHES: Final = 220
SETTLED_FROM: Final = 20
"""Micro-batches after which what is made once has been made."""
SMALL: Final = 50
"""Messages of a micro-batch where memory is looked at."""
MOST_GROWTH: Final = 5.0
"""MB in 200 micro-batches."""
_STREAM_PROCESS: Final = "python_streaming_source_runner"


class Streamed(NamedTuple):
    """A run of a stream.

    Args:
        seconds: from its start to its end.
        parts: milliseconds of its micro-batches, by what Spark calls them.
    """

    seconds: float
    parts: dict[str, int]


def measure() -> list[Result]:
    """Measure how fast a stream consumes, where its time goes, and how much memory it takes."""
    with (
        TemporaryDirectory() as directory,
        emulator() as running,
        Namespace(Target(Connection(running.connection_string), ""), archive=False) as names,
        _session() as spark,
    ):
        queue = names.entity(QUEUE)
        bench = _Bench(spark, running.connection_string, queue, Path(directory))
        return [*bench.speed(), *bench.deliveries(), *bench.memory()]


class _Bench:
    def __init__(self, spark: SparkSession, connection_string: str, queue: Entity, directory: Path) -> None:
        self._spark, self._queue, self._directory = spark, queue, directory
        self._connection_string = connection_string
        self._names = map(str, count())

    def speed(self) -> list[Result]:
        """Measure the stream and the loop in turns."""
        self._fill(1_000)
        self._consume("parquet")  # starts the parts that start once
        bare: list[float] = []
        streams: dict[str, list[Streamed]] = {"noop": [], "parquet": []}
        quick: list[Streamed] = []
        for _ in range(ROUNDS):
            self._fill(COUNT)
            bare.append(asyncio.run(_bare_loop(self._connection_string)))
            for sink, runs in streams.items():
                self._fill(COUNT)
                runs.append(self._consume(sink))
            self._fill(COUNT)
            quick.append(self._consume("parquet", delivery="at-least-once"))
        plain = median(bare)
        speeds = [_speed(sink, runs, plain) for sink, runs in streams.items()]
        exact = streams["parquet"]
        return [*speeds, _parts(exact), _ratio(COUNT, quick, exact), _parts(quick)]

    def deliveries(self, rounds: int = ROUNDS) -> list[Result]:
        """Measure at-least-once and exactly-once in turns, with many messages."""
        runs: dict[str, list[Streamed]] = {"exactly-once": [], "at-least-once": []}
        for _ in range(rounds):
            for delivery, found in runs.items():
                self._fill(MANY)
                found.append(self._consume("parquet", delivery=delivery))
        exact, quick = runs.values()
        return [_ratio(MANY, quick, exact), _parts(quick), _parts(exact, "exactly-once")]

    def memory(self) -> list[Result]:
        """Measure the memory that the process of the stream and Java keep from micro-batch to micro-batch."""
        self._fill(BATCHES * SMALL)
        query = self._started("noop", maxMessagesPerTrigger=SMALL)
        process: list[tuple[int, float]] = []
        java: list[tuple[int, float]] = []
        while not query.awaitTermination(0.1):  # pyright: ignore[reportArgumentType] - Spark's hint is too narrow
            batch = int((query.lastProgress or {"batchId": 0})["batchId"])
            if batch < SETTLED_FROM or (process and process[-1][0] == batch):
                continue
            resident = _resident()
            if resident is not None:
                process.append((batch, resident))
            if not java or batch >= java[-1][0] + 20:
                java.append((batch, self._heap()))
        return [
            _growth("the driver's Python process of a consume stream, resident", process, MOST_GROWTH),
            _growth("the driver's Java, used after a collection", java, None),
        ]

    def _fill(self, number: int) -> None:
        messages = (Message(body=BODY, message_id=next(self._names)) for _ in range(number))
        self._queue.send(messages, show_progress=False).raise_for_failures()
        gc.collect()

    def _consume(self, sink: str, **options: str) -> Streamed:
        started = time.perf_counter()
        query = self._started(sink, **options)
        query.awaitTermination()
        seconds = time.perf_counter() - started
        parts: dict[str, int] = {}
        for progress in query.recentProgress:
            for name, milliseconds in progress["durationMs"].items():
                parts[name] = parts.get(name, 0) + int(milliseconds)
        if self._queue.peek(1, show_progress=False):
            raise RuntimeError("The stream left messages.")
        return Streamed(seconds, parts)

    def _started(self, sink: str, **options: Any) -> StreamingQuery:
        reader = self._spark.readStream.format("servicebus").option("connectionString", self._connection_string)
        messages = reader.options(entity=QUEUE, mode="consume", partitions=2, **options).load()
        name = next(self._names)
        place = {"checkpointLocation": str(self._directory / f"checkpoint-{name}")}
        if sink != "noop":
            place["path"] = str(self._directory / f"output-{name}")
        return messages.writeStream.format(sink).options(**place).trigger(availableNow=True).start()

    def _heap(self) -> float:
        context: Any = self._spark.sparkContext
        java = context._jvm.java.lang  # noqa: SLF001 - no public name has Java's figures
        java.System.gc()
        runtime = java.Runtime.getRuntime()
        return (runtime.totalMemory() - runtime.freeMemory()) / 1e6


def _speed(sink: str, runs: list[Streamed], plain: float) -> Result:
    seconds = median(run.seconds for run in runs)
    return Result(
        f"consume {COUNT:,} messages of 1 kB by a Spark stream into {sink}",
        f"{plain / seconds:.2f} x the SDK's loop that receives up to {AT_ONCE} and completes each "
        f"({COUNT / seconds:,.0f} against {COUNT / plain:,.0f} a second)",
        f"at least {LEAST} x",
        plain / seconds >= LEAST,
    )


def _ratio(count: int, runs: list[Streamed], exact: list[Streamed]) -> Result:
    took, exactly = (median(run.seconds for run in each) for each in (runs, exact))
    return Result(
        f"consume {count:,} messages of 1 kB by a Spark stream into parquet, with delivery=at-least-once",
        f"{exactly / took:.2f} x exactly-once ({count / took:,.0f} against {count / exactly:,.0f} a second)",
        f"at least {LEAST_RATIO} x",
        exactly / took >= LEAST_RATIO,
    )


def _parts(runs: list[Streamed], what: str = "that") -> Result:
    parts = {name: median(run.parts.get(name, 0) for run in runs) / 1000 for name in runs[0].parts}
    named = ("latestOffset", "walCommit", "queryPlanning", "addBatch", "commitOffsets")
    said = ", ".join(f"{name} {parts.get(name, 0.0):.1f} s" for name in named)
    around = median(run.seconds - run.parts["triggerExecution"] / 1000 for run in runs)
    return Result(
        f"of {what}, {median(run.seconds for run in runs):.1f} s", f"{said}, start and end of the stream {around:.1f} s"
    )


def _growth(what: str, found: list[tuple[int, float]], most: float | None) -> Result:
    slope = linear_regression(*zip(*found, strict=True)).slope * 200
    return Result(
        f"memory of {what}, over {found[-1][0] - found[0][0]} micro-batches",
        f"{slope:+.1f} MB in 200 micro-batches ({found[0][1]:.0f} MB, at the end {found[-1][1]:.0f} MB)",
        "" if most is None else f"at most {most:.0f} MB more",
        None if most is None else slope <= most,
    )


def _resident() -> float | None:
    """MB of the process that is the stream's in the driver; None when it has ended."""
    for process in psutil.Process().children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if any(_STREAM_PROCESS in part for part in process.cmdline()):
                return process.memory_info().rss / 1e6
    return None


async def _bare_loop(connection_string: str) -> float:
    async with (
        ServiceBusClient.from_connection_string(connection_string) as client,
        client.get_queue_receiver(QUEUE) as receiver,
    ):
        started = time.perf_counter()
        done = 0
        while done < COUNT:
            messages = await receiver.receive_messages(max_message_count=AT_ONCE, max_wait_time=5)
            for message in messages:
                await receiver.complete_message(message)
            done += len(messages)
        return time.perf_counter() - started


@contextmanager
def _session() -> Generator[SparkSession]:
    spark = session()
    try:
        yield spark
    finally:
        spark.stop()
