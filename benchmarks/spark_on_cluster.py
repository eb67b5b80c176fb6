"""Every operation on a standalone cluster of Spark: a master, two workers of a core each, and a machine for drivers.

The machines are folders: see ``tests/cluster/nodes.py``. They and the emulator share the cores of this machine, so more
tasks than cores gain nothing. ``SBNOTEBOOK_MESSAGES=1000000`` in the environment measures with more messages, once, and
how much the memory of the processes of Python grows meanwhile.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

import psutil

from benchmarks.emulators import emulator
from benchmarks.results import Result
from tests.cluster.nodes import Cluster, built_wheel, end, running_cluster

__all__ = ["measure"]

COUNT: Final = int(os.environ.get("SBNOTEBOOK_MESSAGES", "20000"))
IS_SHORT: Final = "SBNOTEBOOK_MESSAGES" not in os.environ
ROUNDS: Final = 3 if IS_SHORT else 1
_ALL: Final = (
    *("write 2", "read 1", "read 2", "read 4", "consume exactly-once", "write 1", "consume at-least-once"),
    *("settle 1", "settle 2"),
)
_LONG: Final = ("write 2", "consume exactly-once", "consume at-least-once", "settle 2")
OPERATIONS: Final = _ALL if IS_SHORT else _LONG
MOST_GROWTH: Final = 50.0
"""MB of the driver's Python, and of that of the workers."""
_COMPARED: Final = {
    "read 2": "read 1",
    "read 4": "read 1",
    "write 2": "write 1",
    "consume at-least-once": "consume exactly-once",
    "settle 2": "settle 1",
}


class Sample(NamedTuple):
    """MB that are resident.

    Args:
        at: the time.
        driver: in the driver's Python processes.
        workers: in those of the workers.
    """

    at: float
    driver: float
    workers: float


def measure() -> list[Result]:
    """Measure all operations in turns."""
    with TemporaryDirectory() as directory, emulator() as running:
        wheel, folder = Path(directory, "wheel"), Path(directory, "cluster")
        wheel.mkdir()
        with running_cluster(folder, built_wheel(wheel)) as cluster:
            return _measured(cluster, running.connection_string)


def _measured(cluster: Cluster, connection_string: str) -> list[Result]:
    given = {"COUNT": str(COUNT), "ROUNDS": str(ROUNDS), "OPERATIONS": ",".join(OPERATIONS)}
    # What Spark has by default.
    job = cluster.start("measured.py", "spark.driver.memory=1g", SERVICEBUS=connection_string, **given)
    try:
        with _sampling(cluster, psutil.Process(job.pid)) as samples:
            printed, complaints = job.communicate()
    finally:
        end(job)
    if job.returncode:
        raise RuntimeError(complaints)
    times: dict[str, list[tuple[float, float]]] = {}
    for line in printed.splitlines():
        name, count, began, ended = json.loads(line)
        if count == COUNT:
            times.setdefault(name, []).append((began, ended))
    seconds = {name: median(ended - began for began, ended in found) for name, found in times.items()}
    speeds = [_speed(name, seconds) for name in seconds]
    return speeds if IS_SHORT else [*speeds, *(_growth(name, *found[0], samples) for name, found in times.items())]


def _speed(name: str, seconds: dict[str, float]) -> Result:
    said = f"{COUNT / seconds[name]:,.0f} messages a second"
    if (other := _COMPARED.get(name)) in seconds:
        said = f"{seconds[other] / seconds[name]:.2f} x {_in_words(other)} ({said})"
    return Result(f"{_in_words(name)}, {COUNT:,} messages of 500 bytes on a cluster of two workers", said)


def _in_words(name: str) -> str:
    operation, _, how = name.partition(" ")
    if not how.isdigit():
        return f"{operation} {how} from the start of the stream"
    return f"{operation} with {how} task{'s'[: int(how) - 1]}"


def _growth(name: str, began: float, ended: float, samples: list[Sample]) -> Result:
    """Compare the last half of an operation with the end of its first tenth."""
    late = [sample for sample in samples if began + (ended - began) / 10 <= sample.at <= ended]
    half = late[len(late) // 2 :]
    driver, workers = (max(sample[part] for sample in half) - late[0][part] for part in (1, 2))
    return Result(
        f"memory of Python that {_in_words(name)} takes for {COUNT:,} messages, after a tenth of them",
        f"driver {driver:+.0f} MB ({half[-1].driver:.0f} MB at the end), "
        f"workers {workers:+.0f} MB ({half[-1].workers:.0f} MB)",
        f"at most {MOST_GROWTH:.0f} MB more in each",
        max(driver, workers) <= MOST_GROWTH,
    )


@contextmanager
def _sampling(cluster: Cluster, driver: psutil.Process) -> Generator[list[Sample]]:
    """Look at the memory twice a second, until the block ends."""
    samples: list[Sample] = []
    ended = threading.Event()

    def look() -> None:
        while not ended.wait(0.5):
            with suppress(psutil.NoSuchProcess):
                workers = sum(_of_python(executor) for executor in cluster.executors())
                samples.append(Sample(time.time(), _of_python(driver), workers))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield samples
    finally:
        ended.set()
        thread.join()


def _of_python(process: psutil.Process) -> float:
    """MB of the processes of Python of a tree, not of its Java; what they share after a fork counts once for each."""
    found = 0.0
    for each in [process, *process.children(recursive=True)]:
        with suppress(psutil.NoSuchProcess):
            found += 0.0 if each.name() == "java" else each.memory_info().rss / 1e6
    return found
