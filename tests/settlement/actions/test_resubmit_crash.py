"""Processes that resubmit are killed at every step and at random, and every message is counted afterwards.

``SBNOTEBOOK_CRASHES`` says how often at random (3 unless said); ``SBNOTEBOOK_SEED`` repeats a run's random choices.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import signal
import sys
from asyncio.subprocess import PIPE, Process
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from sbnotebook.emulator import RunningEmulator, running
from sbnotebook.emulator.entities import QueueOptions
from sbnotebook.model import Complete, DeadLetter, Message, PeekedMessage
from sbnotebook.model.amqp import Long, UInt
from sbnotebook.settlement import AsyncNamespace, Connection, Journal
from sbnotebook.settlement.actions.clone import ORIGINAL_MESSAGE_ID
from tests.settlement.actions import crashing_resubmit
from tests.settlement.actions.crashing_resubmit import MENDED, Job

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL"),
]

CRASHES: Final = int(os.environ.get("SBNOTEBOOK_CRASHES", "3"))
SEED: Final = int(os.environ.get("SBNOTEBOOK_SEED") or random.SystemRandom().getrandbits(32))
IS_SHORT: Final = "SBNOTEBOOK_CRASHES" not in os.environ
ONE_WAY_MS: Final = (25,) if IS_SHORT else (0, 25)
"""Milliseconds to the emulator, and as many back."""
PLENTY: Final = 250
"""Messages to resubmit at the begin of each run: more than go together, and several groups beside each other."""
LANES: Final = 2
"""Lanes in each world: processes wait most of the time."""
LOCK: Final = 20_000
"""Milliseconds: shorter than what a resume waits for locks."""
PATIENCE: Final = 120
"""Seconds after which something hangs."""
STEPS: Final = [f"{when} {state}" for state in ("intended", "sent", "done") for when in ("before", "after")]
UNTIL_SENT: Final = 0.15
"""Seconds in which the clones of a group are sent, and in which its originals are completed."""


class World(Enum):
    """What the destination is like."""

    QUIET = "nobody consumes, clones are edited, what is unknown is sent again"
    BUSY = "clones are consumed, and what is unknown is left"
    ONCE = "clones are consumed, and duplicates are dropped"


@dataclass
class Lane:
    """A queue whose messages are resubmitted by processes that die, one after the other."""

    name: str
    world: World
    emulator: RunningEmulator
    namespace: AsyncNamespace
    directory: Path
    sent: set[str] = field(default_factory=set[str])
    consumed: Counter[str] = field(default_factory=Counter[str])
    deaths: int = 0

    @property
    def to(self) -> str:
        return f"{self.name}-to"

    async def run(self, deaths: list[tuple[str, float]]) -> None:
        """Die in each of these ways, count after each, and finish at last."""
        self.emulator.create_queue(self.name, QueueOptions(max_delivery_count=2000, lock_duration=LOCK))
        self.emulator.create_queue(self.to, QueueOptions(requires_duplicate_detection=self.world is World.ONCE))
        for die_at, die_later in deaths:
            await self.top_up()
            await self.once(die_at, die_later)
            await self.consume_some()
        left: set[str] = set()
        for _ in range(3):  # some may be locked for a dead process
            await self.once("", -1)
            left = await self.count()
            if not left or self.world is World.BUSY:
                return
        raise AssertionError(f"{len(left)} originals are left")

    async def top_up(self) -> None:
        missing = PLENTY - len(await self.namespace.entity(self.name).peek())
        new = [f"{self.name}-{len(self.sent) + n}" for n in range(missing)]
        messages = [
            Message(body=name.encode(), message_id=name, application_properties={"n": Long(7)}, extras={"priority": 9})
            for name in new
        ]
        assert (await self.namespace.entity(self.name).send(messages)).ok
        self.sent |= set(new)

    async def once(self, die_at: str, die_later: float) -> None:
        """One process from its start to its death."""
        job = Job(
            self.emulator.connection_string,
            str(self.directory / f"{self.name}.sqlite"),
            self.name,
            self.to,
            edited=self.world is World.QUIET,
            resend_unknown=self.world is World.QUIET,
            die_at=die_at,
            die_later=die_later,
        )
        script = crashing_resubmit.__file__
        process = await asyncio.create_subprocess_exec(
            sys.executable, script, json.dumps(asdict(job)), stdin=PIPE, stdout=PIPE
        )
        try:
            with anyio.fail_after(PATIENCE):
                await self.follow(process, dies=die_later >= 0)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
        # What it held is free again at once; not that which the emulator gives to it before it sees that it is dead.
        self.emulator.lose_locks(self.name)

    async def follow(self, process: Process, *, dies: bool) -> None:
        assert process.stdout is not None
        resumed = await read(process)
        assert resumed["what"] == "resumed"
        assert not resumed.keys() & {"failed", "lock lost", "skipped", "already settled"}, resumed
        left = await self.count()
        if self.world is not World.BUSY:
            twice = left & self.consumed.keys()
            assert not twice, f"{len(twice)} are there still, though their clones were sent"
        with suppress(BrokenPipeError, ConnectionResetError):
            await process.communicate(b"\n")
        code = await process.wait()
        assert code in ((-signal.SIGKILL, 0) if dies else (0,))
        self.deaths += code != 0

    async def consume_some(self) -> None:
        """A consumer takes half of the clones."""
        await self.count(is_resumed=False)
        if self.world is World.QUIET:
            return
        async with self.namespace.entity(self.to).batch() as batch:
            clones = await batch.receive(PLENTY // 2, max_wait=1.0)
            self.consumed.update(map(original_of, clones))
            assert (await batch.settle(Complete())).ok

    async def count(self, *, is_resumed: bool = True) -> set[str]:
        """Compare the messages with the sent ones; return the ids of remaining originals."""
        standing = [self.checked(clone) for clone in await self.namespace.entity(self.to).peek()]
        originals = {original.message_id or "" for original in await self.namespace.entity(self.name).peek()}
        delivered = Counter(standing) + self.consumed
        twice = [name for name, times in delivered.items() if times > 1]
        assert not twice, f"{len(twice)} were sent twice, such as {twice[0]}"
        lost = self.sent - originals - delivered.keys()
        assert not lost, f"{len(lost)} are lost, such as {min(lost)}"
        assert originals | delivered.keys() == self.sent
        both = originals & set(standing)
        assert not (is_resumed and both), f"{len(both)} are there still, though their clones are there, too"
        return originals

    def checked(self, clone: PeekedMessage) -> str:
        name = original_of(clone)
        assert clone.body == name.encode() + (MENDED if self.world is World.QUIET else b"")
        assert clone.resubmit_count == 1
        assert clone.application_properties["n"] == Long(7)
        assert clone.extras["priority"] == UInt(9)
        return name


def original_of(clone: PeekedMessage | Any) -> str:
    return str(clone.application_properties[ORIGINAL_MESSAGE_ID])


async def read(process: Process) -> dict[str, Any]:
    assert process.stdout is not None
    line = await process.stdout.readline()
    assert line, "the process ended without a word"
    return json.loads(line)


def lanes_of_deaths(chance: random.Random) -> list[list[tuple[str, float]]]:
    """At each step once, in the middle of sending and of completing, and at random: shared out among the lanes."""
    deaths = [(step, 0.0) for step in STEPS]
    deaths += [("after intended", chance.uniform(0.001, UNTIL_SENT)), ("after sent", chance.uniform(0.001, UNTIL_SENT))]
    deaths += [("", chance.uniform(0.001, 2.5)) for _ in range(CRASHES)]
    chance.shuffle(deaths)
    count = LANES * len(World)
    return [deaths[start::count] for start in range(count)]


@pytest.mark.parametrize("one_way_ms", ONE_WAY_MS)
async def test_resubmit_killed_loses_nothing_and_sends_nothing_twice(tmp_path: Path, one_way_ms: int) -> None:
    print(f"SBNOTEBOOK_SEED={SEED}")  # noqa: T201 - pytest shows it if the test fails
    with running() as emulator:
        emulator.faults.accept_delay_ms = emulator.faults.settle_delay_ms = 0 if one_way_ms else 20
        emulator.faults.network_delay_ms = one_way_ms
        deaths = await die_often(emulator, tmp_path)
    assert deaths >= len(STEPS)


async def die_often(emulator: RunningEmulator, directory: Path) -> int:
    """How many processes died on the way."""
    journal = Journal(directory / "counting.sqlite")
    async with AsyncNamespace(Connection(emulator.connection_string), journal=journal, archive=None) as namespace:
        lanes = [
            Lane(f"{world.name.lower()}-{number}", world, emulator, namespace, directory)
            for number in range(LANES)
            for world in World
        ]
        async with anyio.create_task_group() as tasks:
            for lane, deaths in zip(lanes, lanes_of_deaths(random.Random(SEED)), strict=True):  # noqa: S311 - no secrets
                tasks.start_soon(lane.run, deaths)
    return sum(lane.deaths for lane in lanes)


ATOMIC: Final = "atomic"
FEW: Final = 60
"""Messages to resubmit in each run: there is one transaction after the other."""


@pytest.mark.parametrize("one_way_ms", ONE_WAY_MS)
async def test_atomic_killed_leaves_both_or_neither(tmp_path: Path, one_way_ms: int) -> None:
    print(f"SBNOTEBOOK_SEED={SEED}")  # noqa: T201 - pytest shows it if the test fails
    chance = random.Random(SEED)  # noqa: S311 - no secrets
    killed, moved, given = 0, 0, 0
    with running() as emulator:
        emulator.create_queue(ATOMIC, QueueOptions(lock_duration=LOCK))
        emulator.faults.network_delay_ms = one_way_ms
        connection, journal = Connection(emulator.connection_string), Journal(tmp_path / "counting.sqlite")
        async with AsyncNamespace(connection, journal=journal, archive=None) as namespace:
            for die_later in (*(chance.uniform(0.05, 0.6) for _ in range(CRASHES)), -1.0):
                given += await fill_dead_letters(namespace, given)
                there = {each.message_id or "" for each in await namespace.entity(f"{ATOMIC}/$dlq").peek()}
                job = Job(emulator.connection_string, str(tmp_path / "j.sqlite"), f"{ATOMIC}/$dlq", ATOMIC, atomic=True)
                killed += await died(replace(job, die_later=die_later))
                emulator.lose_locks(ATOMIC)
                moved += await count_atomic(namespace, there)
    assert moved == given, "the last process was not killed, and left something"
    assert killed > CRASHES // 2


async def died(job: Job) -> bool:
    """Let a process work, and return whether it died on the way."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, crashing_resubmit.__file__, json.dumps(asdict(job)), stdin=PIPE, stdout=PIPE
    )
    with anyio.fail_after(PATIENCE):
        resumed = await read(process)
        assert resumed == {"what": "resumed"}, "a transaction leaves nothing to resume"
        await process.communicate(b"\n")
    return await process.wait() != 0


async def fill_dead_letters(namespace: AsyncNamespace, given: int) -> int:
    """Fill the dead-letter queue up again, and return how many are new."""
    missing = FEW - len(await namespace.entity(f"{ATOMIC}/$dlq").peek())
    queue = namespace.entity(ATOMIC)
    assert (await queue.send([Message(body=b"x", message_id=f"{given + n}") for n in range(missing)])).ok
    async with queue.batch() as batch:
        assert len(await batch.receive(missing)) == missing
        assert (await batch.settle(DeadLetter("Bad"))).ok
    return missing


async def count_atomic(namespace: AsyncNamespace, there: set[str]) -> int:
    """Hold what there is against what there was, take the clones away, and return their number."""
    left = {each.message_id or "" for each in await namespace.entity(f"{ATOMIC}/$dlq").peek()}
    async with namespace.entity(ATOMIC).batch() as batch:
        clones = await batch.receive(FEW, max_wait=0.5)
        assert (await batch.settle(Complete())).ok
    assert sorted([*left, *map(original_of, clones)]) == sorted(there), "some are lost, or there twice"
    return len(clones)
