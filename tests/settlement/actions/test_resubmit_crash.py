"""Processes that resubmit are killed at every step and at random, and every message is counted afterwards."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, Final

import anyio
import pytest

from sbnotebook.amqp import Long, UInt
from sbnotebook.emulator import QueueOptions, RunningEmulator, running
from sbnotebook.model import Complete, DeadLetter, Message, PeekedMessage
from sbnotebook.model.message import ORIGINAL_MESSAGE_ID
from sbnotebook.settlement import AsyncNamespace, Connection, Journal
from tests.chances import IS_THOROUGH, chance, rounds
from tests.kills import Ledger
from tests.settlement.actions import crashing_resubmit
from tests.settlement.actions.crashing_resubmit import MENDED, Job

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGKILL"),
]

CRASHES: Final = rounds(1, 10)
ONE_WAY_MS: Final = (0, 25) if IS_THOROUGH else (25,)
"""Milliseconds to the emulator, and as many back."""
PLENTY: Final = 250
"""Messages to resubmit at the begin of each run: more than go together, and several groups beside each other."""
LANES: Final = 2 if IS_THOROUGH else 1
"""Lanes in each world: processes wait most of the time."""
LOCK: Final = 20_000
"""Milliseconds: shorter than what a resume waits for locks."""
PATIENCE: Final = 120
"""Seconds after which something hangs."""
ORIGINAL, CLONE, CONSUMED = "in the source", "in the destination", "consumed"
STEPS: Final = [f"{when} {state}" for state in ("intended", "sent", "done") for when in ("before", "after")]
TRIES: Final = 4
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
    ledger: Ledger = field(default_factory=Ledger)
    deaths: int = 0

    @property
    def to(self) -> str:
        return f"{self.name}-to"

    async def run(self, deaths: list[tuple[str, float]]) -> None:
        """Die in each of these ways, count after each, and finish at last."""
        self.emulator.create_queue(self.name, QueueOptions(max_delivery_count=2000, lock_duration=LOCK))
        self.emulator.create_queue(self.to, QueueOptions(requires_duplicate_detection=self.world is World.ONCE))
        for die_at, die_later in deaths:
            for _ in range(TRIES if die_at else 1):  # a process that gets no free message does not reach its step
                await self.top_up()
                if await self.once(die_at, die_later):
                    break
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
        new = [f"{self.name}-{len(self.ledger.entries) + n}" for n in range(missing)]
        messages = [
            Message(body=name.encode(), message_id=name, application_properties={"n": Long(7)}, extras={"priority": 9})
            for name in new
        ]
        assert (await self.namespace.entity(self.name).send(messages)).ok
        for name in new:
            self.ledger.enter(name, name.encode(), ORIGINAL)
        self.ledger.begin(new, CLONE)

    async def once(self, die_at: str, die_later: float) -> bool:
        """Return whether one process, from its start to its end, was killed."""
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
                code = await self.follow(process, dies=die_later >= 0)
        finally:
            with suppress(ProcessLookupError):
                process.kill()
        # What it held is free again at once; not that which the emulator gives to it before it sees that it is dead.
        self.emulator.lose_locks(self.name)
        self.deaths += code != 0
        return code != 0

    async def follow(self, process: Process, *, dies: bool) -> int:
        assert process.stdout is not None
        resumed = await read(process)
        assert resumed["what"] == "resumed"
        assert not resumed.keys() & {"failed", "lock lost", "skipped", "already settled"}, resumed
        await self.count()
        with suppress(BrokenPipeError, ConnectionResetError):
            await process.communicate(b"\n")
        code = await process.wait()
        assert code in ((-signal.SIGKILL, 0) if dies else (0,))
        return code

    async def consume_some(self) -> None:
        """A consumer takes half of the clones."""
        await self.count(is_resumed=False)
        if self.world is World.QUIET:
            return
        async with self.namespace.entity(self.to).batch() as batch:
            clones = await batch.receive(PLENTY // 2, max_wait=1.0)
            self.ledger.confirm(map(original_of, clones), CONSUMED)
            assert (await batch.settle(Complete())).ok

    async def count(self, *, is_resumed: bool = True) -> set[str]:
        """Compare the messages with the sent ones; return the ids of remaining originals."""
        clones = [self.checked(clone) for clone in await self.namespace.entity(self.to).peek()]
        originals = {original.message_id or "" for original in await self.namespace.entity(self.name).peek()}
        consumed = self.ledger.at(CONSUMED)
        # The next run completes an original whose clone was sent, unless that was consumed meanwhile unseen.
        left = originals - set(() if is_resumed else clones)
        left -= set(consumed if self.world is World.BUSY or not is_resumed else ())
        self.ledger.begin(self.ledger.at(ORIGINAL), CLONE)
        self.ledger.count({ORIGINAL: left, CLONE: clones, CONSUMED: consumed})
        self.ledger.begin(self.ledger.at(ORIGINAL), CLONE)
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


def lanes_of_deaths(dice: random.Random) -> list[list[tuple[str, float]]]:
    """At each step once, and often in the middle of sending and of completing and at random: dealt out to the lanes."""
    deaths = [(step, 0.0) for step in STEPS]
    if IS_THOROUGH:
        deaths += [(step, dice.uniform(0.001, UNTIL_SENT)) for step in ("after intended", "after sent")]
        deaths += [("", dice.uniform(0.001, 2.5)) for _ in range(CRASHES)]
    dice.shuffle(deaths)
    count = LANES * len(World)
    return [deaths[start::count] for start in range(count)]


@pytest.mark.parametrize("one_way_ms", ONE_WAY_MS)
async def test_resubmit_killed_loses_nothing_and_sends_nothing_twice(tmp_path: Path, one_way_ms: int) -> None:
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
            for lane, deaths in zip(lanes, lanes_of_deaths(chance("resubmit")), strict=True):
                tasks.start_soon(lane.run, deaths)
    return sum(lane.deaths for lane in lanes)


ATOMIC: Final = "atomic"
FEW: Final = 60
"""Messages to resubmit in each run: there is one transaction after the other."""


@pytest.mark.parametrize("one_way_ms", ONE_WAY_MS)
async def test_atomic_killed_leaves_both_or_neither(tmp_path: Path, one_way_ms: int) -> None:
    dice, ledger, killed = chance("atomic"), Ledger(), 0
    with running() as emulator:
        emulator.create_queue(ATOMIC, QueueOptions(lock_duration=LOCK))
        emulator.faults.network_delay_ms = one_way_ms
        connection, journal = Connection(emulator.connection_string), Journal(tmp_path / "counting.sqlite")
        async with AsyncNamespace(connection, journal=journal, archive=None) as namespace:
            for die_later in (*(dice.uniform(0.05, 0.6) for _ in range(CRASHES)), -1.0):
                await fill_dead_letters(namespace, ledger)
                job = Job(emulator.connection_string, str(tmp_path / "j.sqlite"), f"{ATOMIC}/$dlq", ATOMIC, atomic=True)
                killed += await died(replace(job, die_later=die_later))
                emulator.lose_locks(ATOMIC)
                await count_atomic(namespace, ledger)
    assert not ledger.at(ORIGINAL), "the last process was not killed, and left something"
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


async def fill_dead_letters(namespace: AsyncNamespace, ledger: Ledger) -> None:
    """Fill the dead-letter queue up again."""
    first = len(ledger.entries)
    new = [str(first + n) for n in range(FEW - len(ledger.at(ORIGINAL)))]
    queue = namespace.entity(ATOMIC)
    assert (await queue.send([Message(body=b"x", message_id=name) for name in new])).ok
    async with queue.batch() as batch:
        assert len(await batch.receive(len(new))) == len(new)
        assert (await batch.settle(DeadLetter("Bad"))).ok
    for name in new:
        ledger.enter(name, b"x", ORIGINAL)


async def count_atomic(namespace: AsyncNamespace, ledger: Ledger) -> None:
    """Hold what there is against what there was, and take the clones away."""
    left = [each.message_id or "" for each in await namespace.entity(f"{ATOMIC}/$dlq").peek()]
    async with namespace.entity(ATOMIC).batch() as batch:
        clones = await batch.receive(FEW, max_wait=0.5)
        assert (await batch.settle(Complete())).ok
    taken = ledger.at(CLONE)
    ledger.begin(ledger.at(ORIGINAL), CLONE)
    ledger.count({ORIGINAL: left, CLONE: [*taken, *map(original_of, clones)]})
