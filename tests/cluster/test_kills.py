"""Fifty kills of a cluster's processes or of the emulator, in the middle of every operation; every message is counted.

``SBNOTEBOOK_SEED`` makes other random choices.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final
from urllib.request import Request, urlopen

import psutil
import pytest

from sbnotebook.client import Namespace
from sbnotebook.client.targets import Target
from sbnotebook.model import Message
from sbnotebook.settlement import Connection
from tests.cluster.jobs.killed import COUNT, LOCK
from tests.cluster.nodes import Cluster, end
from tests.crash.processes import Emulator

pytestmark = [
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL"),
    pytest.mark.skipif(os.environ.get("SBNOTEBOOK_CLUSTER") != "all", reason="make check-cluster runs it"),
]
EACH: Final = sorted(f"m{number}" for number in range(COUNT))
BATCH: Final = COUNT // 6
OPERATIONS: Final = ("write", "read", "exactly-once", "at-least-once", "settle")
VICTIMS: Final = ("executor", "Python worker", "worker", "driver", "emulator")
KILLS: Final = [(each, victim, kill) for kill in range(2) for each in OPERATIONS for victim in VICTIMS]
SEED: Final = os.environ.get("SBNOTEBOOK_SEED", "")
PATIENCE: Final = 300.0


@pytest.fixture
def emulator(tmp_path: Path) -> Iterator[Emulator]:
    """An emulator that keeps its messages on disk, at the distance of 5 ms until it is killed."""
    emulator = Emulator(tmp_path / "emulator", "orders", {"LockDuration": f"PT{LOCK:.0f}S", "MaxDeliveryCount": 100})
    faults = json.dumps({"network_delay_ms": 5}).encode()
    urlopen(Request(f"http://{emulator.host}/faults", faults, {"Content-Type": "application/json"})).close()
    yield emulator
    emulator.kill()


@pytest.mark.parametrize(("operation", "victim", "kill"), KILLS)
def test_kill_loses_nothing_and_repeats_nothing_unannounced(
    cluster: Cluster, emulator: Emulator, tmp_path: Path, operation: str, victim: str, kill: int
) -> None:
    chance = random.Random(f"{operation} {victim} {kill}{SEED}")  # noqa: S311 (no secret)
    fill(emulator, operation)
    given = {"SERVICEBUS": emulator.connection_string, "OPERATION": operation, "FOLDER": str(tmp_path)}
    job = cluster.start("killed.py", **given)
    try:
        wait_until(lambda: job.poll() is not None or is_under_way(cluster, emulator, operation))
        time.sleep(chance.random() * 0.5)
        assert job.poll() is None, "it was over before the kill"
        kill_one(cluster, emulator, job, victim, chance)
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
    cluster: Cluster, emulator: Emulator, job: subprocess.Popen[str], victim: str, chance: random.Random
) -> None:
    if victim == "driver":
        kill_all([psutil.Process(job.pid), *psutil.Process(job.pid).children(recursive=True)])
        return
    if victim == "emulator":
        emulator.kill()
        time.sleep(chance.random() * 3)
        emulator.start()
        return
    busy = [each for each in cluster.executors() if python_of(each)]
    executor = chance.choice(busy or cluster.executors())
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
        left = sorted(message.message_id or "" for message in namespace.entity("orders").peek(show_progress=False))
    if operation == "write":
        assert sorted(set(left)) == EACH, "a repeated task sends its messages again, with the same ids"
    elif operation == "read":
        assert said == dict.fromkeys(EACH, 1)
        assert left == EACH
    elif operation == "settle":
        assert not left
    else:
        assert not left
        assert sorted(said) == EACH
        repeated = sum(said.values()) - COUNT
        assert repeated == 0 if operation == "exactly-once" else repeated <= BATCH


def wait_until(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < until, "waited in vain"
        time.sleep(0.02)
