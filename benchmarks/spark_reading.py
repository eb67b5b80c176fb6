"""Reading 100,000 messages of 1 kB into Spark, beside the plain SDK's peek loop that looks at no message.

The emulator runs in a process of its own, as a service does. Spark runs on the cores of this machine and drops the rows
(its sink ``noop``), so that nothing but reading is measured; the rounds alternate. The parts are measured in CPU time,
which other work on the machine changes least. The SDK's part is peeking; the conversion turns bytes into columns.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import psutil

from benchmarks import peeking
from benchmarks.emulators import QUEUE, Emulator, emulator
from benchmarks.results import Result
from sbnotebook.client import Namespace
from sbnotebook.client.portal import run
from sbnotebook.client.targets import Target
from sbnotebook.model import Message
from sbnotebook.settlement import AsyncNamespace, Connection, PeekCursor
from sbnotebook.spark import load, session
from sbnotebook.spark.schema import MessageBatches, message_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNT = peeking.COUNT
MANY = 1_000_000
BODY = b"x" * 1024
ROUNDS = 5
MUST = {1: 0.5, 2: 0.9}
"""By partitions; 0.7 and 1.3 are aimed for."""
MEMORY_MUST = 256
"""Megabytes by which the driver may grow while it reads a gigabyte."""
PART_MUST = 0.05
"""The time of a read of 1 % of the messages, to that of all."""


def measure() -> list[Result]:
    """Measure all."""
    with _spark() as spark:
        return [*_measure_reading(spark), *_measure_many(spark)]


def _measure_reading(spark: SparkSession) -> list[Result]:
    with _filled(COUNT) as running:
        _read(spark, running, 1)  # imports, and starts workers
        _read(spark, running, 2)
        bare: list[float] = []
        ours: dict[int, list[float]] = {1: [], 2: []}
        narrow: list[float] = []
        for _ in range(ROUNDS):
            bare.append(min(_bare(running)))
            for partitions, times in ours.items():
                times.append(_timed(lambda count=partitions: _read(spark, running, count)))
            narrow.append(_timed(lambda: _read(spark, running, 1, "sequence_number long, message_id string")))
        shares = _shares(spark, running)
    plain = median(bare)
    results = [_result(f"{count} partition{'s'[: count - 1]}", plain, ours[count], MUST[count]) for count in ours]
    return [*results, _result("1 partition, two columns", plain, narrow, None), shares]


def _result(what: str, plain: float, ours: list[float], must: float | None) -> Result:
    ratio = plain / median(ours)
    return Result(
        f"read {COUNT:,} messages of 1 kB into Spark, {what}, to the plain SDK's peek loop that reads nothing",
        f"{ratio:.2f} ({COUNT / median(ours):,.0f} messages a second, the loop {COUNT / plain:,.0f})",
        "" if must is None else str(must),
        None if must is None else ratio >= must,
    )


def _bare(running: Emulator) -> Iterator[float]:
    """Measure the SDK's two loops."""
    yield peeking.bare_loop(running.connection_string)
    yield asyncio.run(peeking.bare_async_loop(running.connection_string))


def _shares(spark: SparkSession, running: Emulator) -> Result:
    """Return where the CPU time of one read goes, in microseconds a message."""
    java = _java()

    def times() -> list[float]:
        workers = sum(sum(each.cpu_times()[:4]) for each in java.children(recursive=True))
        return [running.cpu_time(), sum(java.cpu_times()[:2]), workers]

    before = times()
    _read(spark, running, 1)
    service, jvm, workers = (_micro(after - start) for start, after in zip(before, times(), strict=True))
    payloads, peeking_time = _cpu_timed(lambda: run(_payloads, running))
    batches = MessageBatches(message_schema())
    _, converting = _cpu_timed(lambda: [batches.add(page, PeekCursor()) for page in payloads])
    parts = (
        f"emulator {service:.0f}, Spark's Java {jvm:.0f}, Python worker {workers:.0f}, "
        f"of which the SDK {peeking_time:.0f} and the conversion {converting:.0f}"
    )
    return Result("where the time of reading a message into Spark goes", f"{parts} µs of CPU time")


async def _payloads(running: Emulator) -> list[Any]:
    async with AsyncNamespace(Connection(running.connection_string)) as namespace:
        peeker = namespace.entity(QUEUE).peeker
        pages = [await peeker.page(1)]
        while pages[-1].payloads:
            pages.append(await peeker.page(pages[-1].last_number + 1))
    return pages[:-1]  # the last one is empty


def _measure_many(spark: SparkSession) -> list[Result]:
    java = _java()
    with _filled(MANY) as running, Namespace(Target(Connection(running.connection_string), "")) as namespace:
        _read(spark, running, 2, "sequence_number long")
        _reset_peak(os.getpid())
        before, java_before = _memory(os.getpid()), _memory(java.pid)
        spent = _timed(lambda: _read(spark, running, 2))
        grown, java_grown = _peak(os.getpid()) - before, _memory(java.pid) - java_before
        last = f"sequence_number > {MANY * 99 // 100}"
        ratio = _timed(lambda: _drop(load(namespace, QUEUE, where=last, partitions=2, spark=spark))) / spent
    grows = Result(
        f"read {MANY:,} messages of 1 kB into Spark: what the driver's Python grows by",
        f"{grown:.0f} MB (Java {java_grown:.0f} MB within its limit; {MANY / spent:,.0f} messages a second)",
        f"{MEMORY_MUST} MB",
        grown < MEMORY_MUST,
    )
    text = f"load the last 1 % of {MANY:,} messages of 1 kB by an expression, to a read of all"
    return [grows, Result(text, f"{ratio:.3f} x", f"at most {PART_MUST} x", ratio <= PART_MUST)]


# ---------------------------------------------------------------- parts


@contextmanager
def _spark() -> Generator[SparkSession]:
    spark = session()
    try:
        yield spark
    finally:
        spark.stop()


@contextmanager
def _filled(count: int) -> Generator[Emulator]:
    with emulator() as running, Namespace(Target(Connection(running.connection_string), "")) as namespace:
        messages = (
            Message(body=BODY, message_id=str(number), subject="UA", application_properties={"attempt": number % 5})
            for number in range(count)
        )
        namespace.entity(QUEUE).send(messages, show_progress=False).raise_for_failures()
        yield running


def _read(spark: SparkSession, running: Emulator, partitions: int, columns: str | None = None) -> None:
    reader = spark.read.format("servicebus").option("connectionString", running.connection_string)
    if columns is not None:
        reader = reader.schema(columns)
    _drop(reader.options(entity=QUEUE, partitions=partitions).load())


def _drop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _java() -> psutil.Process:
    """Return the Java process of Spark that this one started."""
    return next(each for each in psutil.Process().children(recursive=True) if each.name() == "java")


def _timed(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def _cpu_timed(function: Callable[[], Any]) -> tuple[Any, float]:
    started = time.process_time()
    found = function()
    return found, _micro(time.process_time() - started)


def _micro(seconds: float) -> float:
    return seconds / COUNT * 1e6


def _memory(pid: int) -> float:
    return psutil.Process(pid).memory_info().rss / 2**20


def _reset_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _peak(pid: int) -> float:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 2**10
    return 0.0
