"""Settles by the rows of a frame, in tasks whose workers are killed in the middle: run by test_settling.py.

It prints in JSON how many messages are left, and how many the archive has.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from contextlib import suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import psutil

from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.model import Message
from sbnotebook.settlement import Connection
from sbnotebook.spark import register
from tests.crash.stream_driver import started

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COUNT: Final = 2_000
LOCK: Final = timedelta(seconds=5)


def main() -> None:
    """Settle once."""
    spark = started("local[2,4]")
    with running() as emulator:
        target = Target(Connection(emulator.connection_string), "a test")
        with Namespace(target) as namespace:
            namespace.create_queue("orders", lock_duration=LOCK)
            queue = namespace.entity("orders")
            queue.send((Message(message_id=f"m{n}") for n in range(COUNT)), show_progress=False).raise_for_failures()
            queue.defer_all(show_progress=False).apply(show_progress=False).raise_for_failures()
            threading.Thread(target=kill_workers, args=(emulator,), daemon=True).start()
            settle(spark, namespace, emulator.connection_string)
    spark.stop()


def settle(spark: SparkSession, namespace: Namespace, connection_string: str) -> None:
    """Print the number of messages left, and of those in the archive."""
    register(spark)
    rows = spark.range(1, COUNT + 1).selectExpr("id AS sequence_number", "'complete' AS decision")
    options = {"entity": "orders", "connectionString": connection_string, "operation": "settle"}
    rows.write.format("servicebus").mode("append").options(**options).save()
    left = len(namespace.entity("orders").peek(show_progress=False))
    archive = namespace.archive
    kept = {row.sequence_number for row in archive.find(namespace.identity())} if archive else set[int]()
    sys.stdout.write(json.dumps({"left": left, "archived": len(kept)}) + "\n")


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
    main()
