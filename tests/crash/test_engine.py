"""The process that drives a stream is killed at random moments, often, and every message is counted afterwards.

Spark's part is played by :mod:`tests.crash.engine`; ``test_streams.py`` kills Spark itself.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import pytest

from tests.chances import IS_THOROUGH, chance, rounds
from tests.crash import engine
from tests.crash.engine import EngineJob, last
from tests.crash.supply import READ, Supply
from tests.kills import ROOT, Emulator, environment, wait_until

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL")

RUNS: Final = rounds(1, 5)
DEATHS: Final = 4 if IS_THOROUGH else 1
ONE_WAY_MS: Final = (0, 25)
"""Milliseconds to the emulator, and as many back; in turns."""
QUEUE: Final = "orders"
LOCK: Final = "PT5S"
PLENTY: Final = 400


class Run:
    """An emulator, a sender, and engines that die one after the other.

    Args:
        directory: an empty one.
        seed: of all random choices.
        delivery: the stream's option.
        sessions: how many sessions the messages are of; 0 for none.
        one_way_ms: to the emulator.
    """

    def __init__(
        self, directory: Path, seed: str, delivery: str = "exactly-once", *, sessions: int = 0, one_way_ms: int
    ) -> None:
        self.directory, self.delivery = directory, delivery
        self.chance = chance(seed)
        properties: dict[str, object] = {
            "LockDuration": LOCK,
            "MaxDeliveryCount": 2000,
            "RequiresSession": bool(sessions),
        }
        self.emulator = Emulator(directory / "emulator", {QUEUE: properties}, one_way_ms).start()
        self.supply = Supply(self.emulator.connection_string, QUEUE, self.waiting, PLENTY, seed, sessions)

    def waiting(self) -> int:
        try:
            return self.emulator.counts().get("active", 0)
        except OSError:
            return 0  # it is dead

    def start(self) -> subprocess.Popen[bytes]:
        options = {
            "entity": QUEUE,
            "mode": "consume",
            "delivery": self.delivery,
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
        return [row | {"batch": int(path.name)} for path in self.files() for row in json.loads(path.read_text())]

    def files(self) -> list[Path]:
        """Those of the sink, in their order; one for each micro-batch."""
        found = (path for path in (self.directory / "sink").glob("*") if path.name.isdigit())
        return sorted(found, key=lambda path: int(path.name))

    def tell(self, deaths: int) -> None:
        """Live and die so often; then each message that was sent must be in the sink, and none in the queue."""
        try:
            for death in range(deaths + 1):
                self.live(is_last=death == deaths)
            counts = self.emulator.counts()
        finally:
            self.emulator.kill()
        assert not counts
        names = [row["message_id"] for row in self.rows()]
        for row in self.rows():
            self.supply.ledger.see(row["message_id"], row["digest"], READ)
        self.supply.ledger.count({READ: names}, may_repeat=() if self.delivery == "exactly-once" else (READ,))


def is_alive(process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "the process died by itself"
    return True


@pytest.mark.thorough  # test_streams.py shows it with Spark itself
@pytest.mark.parametrize("number", range(RUNS))
def test_killed_engine_reads_each_message_once(tmp_path: Path, number: int) -> None:
    seed = f"engine {number}"
    run = Run(tmp_path, seed, one_way_ms=ONE_WAY_MS[number % 2])
    run.tell(DEATHS)
    assert "differs" not in (tmp_path / "said").read_text(), "a micro-batch was not the same when it was read again"
    rows = run.rows()
    delivered = Counter(row["delivery_count"] for row in rows)
    print(f"{len(rows)} messages by how often they were delivered: {dict(sorted(delivered.items()))}")  # noqa: T201


@pytest.mark.parametrize("number", range(RUNS))
def test_killed_engine_loses_no_message_at_least_once(tmp_path: Path, number: int) -> None:
    seed = f"at least once {number}"
    run = Run(tmp_path, seed, "at-least-once", one_way_ms=ONE_WAY_MS[(number + 1) % 2])
    run.tell(DEATHS)
    first: dict[int, int] = {}
    again: set[int] = set()
    rows = run.rows()
    for row in rows:
        if first.setdefault(row["sequence_number"], row["batch"]) != row["batch"]:
            again.add(first[row["sequence_number"]])
    assert len({(row["batch"], row["sequence_number"]) for row in rows}) == len(rows)
    # The death of a stream, and one of the emulator, leave one micro-batch each that is durable and not completed.
    assert len(again) <= 2 * DEATHS
    print(f"{len(rows)} rows of {len(first)} messages: those of {len(again)} micro-batches came twice")  # noqa: T201


@pytest.mark.parametrize("number", range(RUNS))
def test_killed_engine_keeps_sessions_in_order(tmp_path: Path, number: int) -> None:
    seed = f"sessions {number}"
    run = Run(tmp_path, seed, sessions=5, one_way_ms=ONE_WAY_MS[number % 2])
    run.tell(DEATHS)
    assert "differs" not in (tmp_path / "said").read_text(), "a micro-batch was not the same when it was read again"
    last_of: dict[str, int] = {}
    for row in run.rows():
        assert row["sequence_number"] > last_of.get(row["session_id"], 0), (
            "each session is in order, and each message once"
        )
        last_of[row["session_id"]] = row["sequence_number"]
    print(f"{len(run.rows())} messages of {len(last_of)} sessions")  # noqa: T201 - pytest shows it if the test fails
