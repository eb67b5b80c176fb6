"""Settles by the rows of a frame, while its workers are killed in the middle: run by test_settling.py.

Argument: a folder for the journal and the archive. It prints the outcomes of each run as a line in JSON: how many there
are of each status and description.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

import psutil

from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.model import Message
from sbnotebook.settlement import Connection, Journal
from tests.crash.stream_driver import started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT: Final = 2_000
RUNS: Final = 4
LOCK: Final = timedelta(seconds=5)


def main(folder: Path) -> None:
    """Settle until nothing is left."""
    spark = started("local[2,4]")
    with running() as emulator:
        target = Target(Connection(emulator.connection_string), "a test")
        with Namespace(target, journal=Journal(folder / "journal.sqlite")) as namespace:
            namespace.create_queue("orders", lock_duration=LOCK)
            queue = namespace.entity("orders")
            queue.send((Message(message_id=f"m{n}") for n in range(COUNT)), show_progress=False).raise_for_failures()
            queue.defer_all(show_progress=False).apply(show_progress=False).raise_for_failures()
            threading.Thread(target=kill_workers, args=(emulator,), daemon=True).start()
            settle(spark, namespace)
    spark.stop()


def settle(spark: SparkSession, namespace: Namespace) -> None:
    """Say what became of the messages, run after run."""
    rows = spark.range(1, COUNT + 1).selectExpr("id AS sequence_number", "'complete' AS decision")
    for _ in range(RUNS):
        outcomes = namespace.settle_frame(rows, entity="orders", show_progress=False).collect()
        counted = Counter((row.status, row.description) for row in outcomes)
        left = len(namespace.entity("orders").peek(show_progress=False))
        archive = namespace.archive
        kept = {row.sequence_number for row in archive.find(namespace.identity())} if archive else set[int]()
        said = {"outcomes": [[*key, count] for key, count in counted.items()], "left": left, "archived": len(kept)}
        sys.stdout.write(json.dumps(said) + "\n")
        if not left:
            return
        time.sleep(LOCK.total_seconds())  # what the dead worker had locked


def kill_workers(emulator: RunningEmulator) -> None:
    """Kill them as soon as they have settled some."""
    while emulator.counts("orders").deferred > COUNT - 100:
        time.sleep(0.01)
    for process in filter(is_worker, psutil.Process().children(recursive=True)):
        with suppress(psutil.NoSuchProcess):
            process.kill()


def is_worker(process: psutil.Process) -> bool:
    """Whether a process is a worker: Spark's daemon has forked it, and it has the daemon's command."""
    with suppress(psutil.NoSuchProcess):  # it has ended in the meantime
        parent = process.parent()
        commands = [process.cmdline(), parent.cmdline() if parent is not None else []]
        return all("pyspark.daemon" in command for command in commands)
    return False


if __name__ == "__main__":
    main(Path(sys.argv[1]))
