"""The process that drives a stream is killed at random moments, often, and every message is counted afterwards.

Spark's part is played by :mod:`tests.crash.engine`; ``test_streams.py`` kills Spark itself. ``SBNOTEBOOK_CRASHES`` says
how many of ten deaths each (1 unless said); ``SBNOTEBOOK_SEED`` repeats a run's random choices.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pytest

from tests.crash import engine
from tests.crash.engine import EngineJob, last
from tests.crash.processes import ROOT, Emulator, environment, wait_until
from tests.crash.supply import Supply

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")

RUNS: Final = int(os.environ.get("SBNOTEBOOK_CRASHES", "1"))
SEED: Final = int(os.environ.get("SBNOTEBOOK_SEED") or random.SystemRandom().getrandbits(32))
DEATHS: Final = int(os.environ.get("SBNOTEBOOK_DEATHS", "4"))
QUEUE: Final = "orders"
LOCK: Final = "PT5S"
PLENTY: Final = 400


class Run:
    """An emulator, a sender, and engines that die one after the other.

    Args:
        directory: an empty one.
        seed: of all random choices.
    """

    def __init__(self, directory: Path, seed: str) -> None:
        self.directory = directory
        self.chance = random.Random(seed)  # noqa: S311 - no secrets
        properties: dict[str, object] = {"LockDuration": LOCK, "MaxDeliveryCount": 2000}
        self.emulator = Emulator(directory / "emulator", QUEUE, properties)
        self.supply = Supply(self.emulator.connection_string, QUEUE, self.waiting, PLENTY, seed)

    def waiting(self) -> int:
        try:
            return self.emulator.counts().get("active", 0)
        except OSError:
            return 0  # it is dead

    def start(self) -> subprocess.Popen[bytes]:
        options = {
            "entity": QUEUE,
            "mode": "consume",
            "connectionString": self.emulator.connection_string,
            "maxMessagesPerTrigger": str(self.chance.choice((7, 50, 300))),
            "partitions": str(self.chance.choice((1, 2))),
        }
        job = EngineJob(options, str(self.directory), self.chance.random() < 0.5)
        command = [sys.executable, engine.__file__, json.dumps(asdict(job))]
        with (self.directory / "said").open("ab") as said, (self.directory / "log").open("ab") as log:
            return subprocess.Popen(command, stdout=said, stderr=log, cwd=ROOT, env=environment())

    def live(self, *, is_last: bool) -> None:
        """One engine, and sometimes the emulator's death on the way."""
        process = self.start()
        try:
            if is_last:
                self.supply.stop()
                wait_until("an empty queue", lambda: is_alive(process) and not self.emulator.counts())
                return
            log = self.chance.choice(("offsets", "commits", "sink"))
            before = last(self.directory / log) + self.chance.choice((0, 0, 1, 5))
            wait_until(f"a file in {log}", lambda: is_alive(process) and last(self.directory / log) > before)
            if self.chance.random() < 0.3:
                self.emulator.kill()
                self.emulator.start()
            threading.Event().wait(self.chance.choice((0, self.chance.uniform(0, 0.05), self.chance.uniform(0, 1))))
        finally:
            process.kill()
            process.wait()

    def rows(self) -> list[dict[str, Any]]:
        return [row for path in (self.directory / "sink").glob("*") for row in json.loads(path.read_text())]


def is_alive(process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "the process died by itself"
    return True


@pytest.mark.parametrize("number", range(RUNS))
def test_killed_engine_reads_each_message_once(tmp_path: Path, number: int) -> None:
    seed = f"{SEED}-{number}"
    print(f"SBNOTEBOOK_SEED={SEED}, {seed}")  # noqa: T201 - pytest shows it if the test fails
    run = Run(tmp_path, seed)
    try:
        for death in range(DEATHS + 1):
            run.live(is_last=death == DEATHS)
        counts = run.emulator.counts()
    finally:
        run.emulator.kill()
    rows, supply = run.rows(), run.supply
    assert "differs" not in (tmp_path / "said").read_text(), "a micro-batch was not the same when it was read again"
    assert not counts
    numbers = Counter(row["sequence_number"] for row in rows)
    twice = [number for number, times in numbers.items() if times > 1]
    assert not twice, f"{len(twice)} are there twice, such as {min(twice)}"
    found = {row["message_id"]: row["digest"] for row in rows}
    lost = supply.confirmed.keys() - found.keys()
    assert not lost, f"{len(lost)} of {len(supply.confirmed)} are lost, such as {min(lost)}"
    assert found.items() <= (supply.confirmed | supply.unknown).items()
    delivered = Counter(row["delivery_count"] for row in rows)
    print(f"{len(rows)} messages by how often they were delivered: {dict(sorted(delivered.items()))}")  # noqa: T201
