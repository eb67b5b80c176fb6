"""A cluster's processes or the emulator are killed in the middle of every operation; every message is counted."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil
import pytest

from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.model import Message
from sbnotebook.settlement import Connection
from tests.chances import chance, rounds
from tests.cluster.jobs.killed import COUNT, LOCK
from tests.cluster.nodes import Cluster, end
from tests.kills import Emulator, Ledger, wait_until

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL"),
    pytest.mark.thorough,
]
EACH: Final = sorted(f"m{number}" for number in range(COUNT))
BATCH: Final = COUNT // 6
QUEUE, OUTPUT, REMOVED = "orders", "the output", "removed"
OPERATIONS: Final = ("write", "read", "exactly-once", "at-least-once", "settle")
DELIVERIES: Final[dict[str, tuple[str, ...]]] = {"exactly-once": (), "at-least-once": (OUTPUT,)}
"""Where each delivery may have a message twice."""
VICTIMS: Final = ("executor", "Python worker", "worker", "driver", "emulator")
KILLS: Final = [(each, victim, kill) for kill in range(rounds(1, 1)) for each in OPERATIONS for victim in VICTIMS]
PATIENCE: Final = 300.0


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Emulator]:
    """An emulator that keeps its messages on disk, at the distance of 5 ms."""
    properties = {"LockDuration": f"PT{LOCK:.0f}S", "MaxDeliveryCount": 100}
    with Emulator(tmp_path / "emulator", {QUEUE: properties}, one_way_ms=5) as emulator:
        yield emulator


@pytest.mark.parametrize(("operation", "victim", "kill"), KILLS)
def test_kill_loses_nothing_and_repeats_nothing_unannounced(
    cluster: Cluster, emulator: Emulator, tmp_path: Path, operation: str, victim: str, kill: int
) -> None:
    dice = chance(operation, victim, kill)
    fill(emulator, operation)
    given = {"SERVICEBUS": emulator.connection_string, "OPERATION": operation, "FOLDER": str(tmp_path)}
    job = cluster.start("killed.py", **given)
    try:
        wait_until("work", lambda: job.poll() is not None or is_under_way(cluster, emulator, operation))
        time.sleep(dice.random() * 0.5)
        if job.poll() is not None:
            pytest.fail(f"It was over before the kill: {job.communicate()[1][-5_000:]}")
        kill_one(cluster, emulator, job, victim, dice)
        printed, complaints = job.communicate(timeout=PATIENCE)
        if job.returncode and victim in {"driver", "emulator"}:  # its user starts it again
            printed, complaints = cluster.run("killed.py", **given)
        else:
            assert job.returncode == 0, complaints
    finally:
        end(job)
        cluster.replace_dead_workers()
    said = json.loads(printed.splitlines()[-1])
    # Executors that outlive their driver for a moment may settle the rest.
    assert said or operation == "write" or (operation == "settle" and victim in {"driver", "emulator"})
    check(emulator, operation, said)


def fill(emulator: Emulator, operation: str) -> None:
    """Send what the operation needs."""
    if operation == "write":
        return
    with Namespace(Target(Connection(emulator.connection_string), "a test"), archive=False) as namespace:
        queue = namespace.entity("orders")
        queue.send([Message(message_id=each) for each in EACH], show_progress=False).raise_for_failures()
        if operation == "settle":
            queue.defer_all(show_progress=False).apply(show_progress=False).raise_for_failures()


def is_under_way(cluster: Cluster, emulator: Emulator, operation: str) -> bool:
    counts = Counter(emulator.counts())
    match operation:
        case "write":
            return counts["active"] > 50
        case "read":
            return any(map(python_of, cluster.executors()))
        case "settle":
            return counts["deferred"] < COUNT - 50
        case _:
            return counts["active"] + counts["deferred"] < COUNT - BATCH


def python_of(executor: psutil.Process) -> list[psutil.Process]:
    """Return the Python processes of an executor, which starts others for moments: Hadoop asks a shell for the user."""
    with suppress(psutil.NoSuchProcess):
        return [each for each in executor.children(recursive=True) if "python" in each.name()]
    return []


def kill_one(
    cluster: Cluster, emulator: Emulator, job: subprocess.Popen[str], victim: str, dice: random.Random
) -> None:
    if victim == "driver":
        kill_all([psutil.Process(job.pid), *psutil.Process(job.pid).children(recursive=True)])
        return
    if victim == "emulator":
        emulator.kill()
        time.sleep(dice.random() * 3)
        emulator.start()
        return
    busy = [each for each in cluster.executors() if python_of(each)]
    executor = dice.choice(busy or cluster.executors())
    killed = {
        "executor": lambda: [executor],
        "Python worker": lambda: python_of(executor),
        "worker": lambda: [psutil.Process(executor.ppid())],
    }[victim]()
    assert killed
    kill_all(killed)


def kill_all(processes: list[psutil.Process]) -> None:
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()


def check(emulator: Emulator, operation: str, said: Any) -> None:
    """Count every message."""
    with Namespace(Target(Connection(emulator.connection_string), "a test")) as namespace:
        left = [message.message_id or "" for message in namespace.entity(QUEUE).peek(show_progress=False)]
    ledger = Ledger()
    for name in EACH:
        ledger.enter(name, place=OUTPUT if operation in DELIVERIES else REMOVED if operation == "settle" else QUEUE)
    match operation:
        case "write":  # a repeated task sends its messages again, with the same ids
            ledger.count({QUEUE: left}, may_repeat=[QUEUE])
        case "read":
            ledger.count({QUEUE: left})
            assert said == dict.fromkeys(EACH, 1)
        case "settle":
            ledger.count({QUEUE: left, REMOVED: EACH})
        case _:
            ledger.count({QUEUE: left, OUTPUT: Counter[str](said).elements()}, DELIVERIES[operation])
            assert sum(said.values()) - COUNT <= BATCH
