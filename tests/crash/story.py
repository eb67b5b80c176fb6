"""A stream that is killed again and again, as a seed says, and what must be so afterwards."""

from __future__ import annotations

import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Final, Self

from tests.chances import chance
from tests.crash.drivers import Driver
from tests.crash.stream_driver import Job
from tests.crash.supply import READ, Supply
from tests.kills import Emulator, kill, wait_until

QUEUE: Final = "orders"
LOCK_SECONDS: Final = 5
PLENTY: Final = 300


class Victim(StrEnum):
    """The process to kill."""

    WORKER = "a Python worker"
    STREAM = "the process of the stream in the driver"
    EMULATOR = "the emulator"
    DRIVER = "the driver with all its processes"
    JAVA = "the driver's Java alone"
    PYTHON = "the driver's first Python process alone"


INSIDE: Final = (Victim.WORKER, Victim.STREAM, Victim.EMULATOR)
"""The driver lives on after these."""
WHOLE: Final = (Victim.DRIVER, Victim.JAVA, Victim.PYTHON)


@dataclass(frozen=True)
class Life:
    """One driver from its start to its death.

    Args:
        deaths: the processes to kill, one after the other.
        is_available_now: whether it runs again and again until nothing is left, or always.
        master: Spark's; ``local[2,4]`` tries a task four times.
        options: of the stream; they may change from life to life.
    """

    deaths: Sequence[Victim]
    is_available_now: bool = False
    master: str = "local[2]"
    options: dict[str, str] = field(default_factory=dict[str, str])


def lives_of(dice: random.Random, count: int) -> list[Life]:
    """So many lives that end badly, and one that does not."""
    deaths = [[*dice.choices(INSIDE, k=dice.randint(0, 3)), dice.choice(WHOLE)] for _ in range(count)]
    return [
        Life(
            each,
            is_available_now=dice.random() < 0.5,
            master=dice.choice(("local[2]", "local[2,4]")),
            options={
                "maxMessagesPerTrigger": str(dice.choice((20, 100, 1000))),
                "partitions": str(dice.choice((1, 2, 3))),
            },
        )
        for each in (*deaths, [])
    ]


class Story:
    """An emulator, a sender, and a stream that is killed.

    Args:
        directory: an empty one.
        mode: of the stream.
        seed: of all random choices.
        one_way_ms: to the emulator, and as many back.
        plenty: messages from which on no more are sent, until some were consumed.
    """

    def __init__(self, directory: Path, mode: str, seed: str, one_way_ms: int = 0, plenty: int = PLENTY) -> None:
        self.directory, self.mode, self._plenty = directory, mode, plenty
        self.chance = chance(seed)
        properties: dict[str, object] = {"LockDuration": f"PT{LOCK_SECONDS}S", "MaxDeliveryCount": 2000}
        self.emulator = Emulator(directory / "emulator", {QUEUE: properties}, one_way_ms).start()
        self.supply = Supply(self.emulator.connection_string, QUEUE, self._waiting, plenty, seed)
        self.drivers: list[Driver] = []
        self.deaths: Counter[Victim] = Counter()
        self._begin = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for driver in self.drivers:
            driver.kill()
        reasons = [brief(reason) for driver in self.drivers for reason in driver.heard("failed")]
        for reason, times in Counter(reasons).items():
            print(f"failed {times} times: {reason}")  # noqa: T201
        with suppress(AssertionError):  # it never ended well, and the output says so
            self.emulator.kill()

    def live(self, lives: Sequence[Life]) -> None:
        """Live all of them; the last one ends when everything that was sent has been read."""
        for number, life in enumerate(lives):
            driver = self._born(life)
            self._tell("a driver starts")
            for victim in life.deaths:
                self._await_moment(driver)
                self._tell(f"killed is {victim}")
                self._strike(victim, driver)
            if number + 1 == len(lives):
                self._finish(driver, life)

    @property
    def log(self) -> Path:
        """What the drivers' processes complained about."""
        return self.directory / "drivers.log"

    def _born(self, life: Life) -> Driver:
        options = {"entity": QUEUE, "mode": self.mode, **life.options}
        # Only the end of a run tells that all was browsed.
        is_available_now = life.is_available_now or (self.mode == "browse" and not life.deaths)
        job = Job(self.emulator.connection_string, options, str(self.directory), life.master, is_available_now)
        driver = Driver(job, self.log)
        self.drivers.append(driver)
        return driver

    def _await_moment(self, driver: Driver) -> None:
        """Until a micro-batch was planned or is done, or just some time after the start."""
        kind = self.chance.choice(("offsets", "commits", "time"))
        self._await("the driver's start", driver, lambda: bool(driver.heard("started")))
        if kind == "time":
            self._pass(self.chance.uniform(0, 6))
            return
        before = self._steps(kind)
        self._await(f"new {kind} in the checkpoint", driver, lambda: self._steps(kind) > before)
        self._pass(self.chance.uniform(0, 0.4))

    def _steps(self, kind: str) -> int:
        names = [path.name for path in Path(self.directory, "checkpoint", kind).glob("*") if path.name.isdigit()]
        return max(map(int, names), default=-1)

    def _pass(self, seconds: float) -> None:
        """Let a time go by that only the seed knows: a crash comes at no moment that could be waited for."""
        threading.Event().wait(seconds)

    def _strike(self, victim: Victim, driver: Driver) -> None:
        if victim is Victim.EMULATOR:
            self.emulator.kill()
            self._pass(self.chance.choice((0, 0.5, 3)))
            self.emulator.start()
        elif victim is Victim.DRIVER:
            driver.kill()
        elif victim is Victim.PYTHON:
            driver.kill_only([driver.pid])
        elif victim is Victim.JAVA:
            driver.kill_only(driver.found("/java"))
        else:
            find: dict[Victim, Callable[[], list[int]]] = {
                Victim.WORKER: driver.workers,
                Victim.STREAM: lambda: driver.found("python_streaming_source_runner"),
            }
            found: list[int] = []

            def is_there() -> bool:
                found[:] = find[victim]()
                return bool(found)

            self._await(str(victim), driver, is_there)
            kill([self.chance.choice(found)])
        self.deaths[victim] += 1

    def _finish(self, driver: Driver, life: Life) -> None:
        self._await_said("ended" if life.is_available_now else "started", driver)
        self.supply.stop()
        self._tell("all is sent")
        if self.mode == "consume":
            self._await("an empty queue", driver, lambda: not self.emulator.counts())
        else:
            # The second run from now on began after all was sent.
            self._await_said("ended", driver, 2 + len(driver.heard("ended")))
        self._tell("all is read")
        driver.stop()

    def _await_said(self, what: str, driver: Driver, times: int = 1) -> None:
        self._await(f"a driver's word: {what}", driver, lambda: len(driver.heard(what)) >= times)
        self._tell(f"a driver has {what}")

    def _await(self, what: str, driver: Driver, condition: Callable[[], bool]) -> None:
        def has_come() -> bool:
            assert driver.is_alive, f"the driver died by itself: see {self.log}"
            return condition()

        wait_until(what, has_come)

    def _waiting(self) -> int:
        try:
            active = self.emulator.counts().get("active", 0)
        except OSError:
            return 0  # it is dead; messages read by browsing stay.
        return active if self.mode == "consume" else active - self._plenty * (self._steps("commits") + 1)

    def _tell(self, what: str) -> None:
        """Print what pytest shows if the test fails."""
        print(  # noqa: T201
            f"{time.monotonic() - self._begin:6.1f} s: {what}; planned {self._steps('offsets')}, "
            f"done {self._steps('commits')}, sent {len(self.supply.ledger.at(READ))}"
        )

    def check(self) -> Counter[int]:
        """Compare the sink with the sent messages: each is there once, unchanged.

        Returns:
            How many messages were delivered how often before they were read.
        """
        rows = json.loads((self.directory / "rows.json").read_text())
        for row in rows:
            self.supply.ledger.see(row["message_id"], row["digest"], READ)
        self.supply.ledger.count({READ: [row["message_id"] for row in rows]})
        assert len({row["sequence_number"] for row in rows}) == len(rows)
        return Counter(row["delivery_count"] for row in rows)


def brief(reason: str) -> str:
    """The lines of a failure that tell most, without what differs each time."""
    lines = [re.sub(r"(id|runId) = [0-9a-f-]+|o[0-9]+", "", line).strip()[:300] for line in reason.splitlines()]
    errors = [line for line in lines if "Error: " in line and not line.startswith("at ")]
    return " | ".join(dict.fromkeys([*lines[:1], *errors]))
