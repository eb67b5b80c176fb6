"""Any order of messages, crashes, lost locks, broken connections and other receivers: each message comes once."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest

from sbnotebook.client import Namespace
from sbnotebook.emulator import ManualClock, QueueOptions, RunningEmulator
from sbnotebook.errors import SbNotebookError
from sbnotebook.model import Message
from tests.chances import chance, rounds

from .stream_processes import Query

_SEEDS = rounds(2, 10)
_ACTS = 30
_OF_THE_QUERY = 5
"""How much more often the query goes on than that something happens to it."""


class Story:
    """A query, its queue, and what happens to both.

    Args:
        emulator: goes by the clock.
        namespace: of the emulator.
        clock: turned by hand.
        seed: of what happens.
    """

    def __init__(self, emulator: RunningEmulator, namespace: Namespace, clock: ManualClock, seed: int) -> None:
        self.emulator, self.clock = emulator, clock
        self.random = chance("story", seed)
        name = f"queue-{uuid.uuid4().hex[:8]}"
        # So many deliveries that none of them is the last.
        emulator.create_queue(
            name, QueueOptions(max_delivery_count=2000, enable_partitioning=self.random.random() < 0.3)
        )
        self.queue = namespace.entity(name)
        self.faults = emulator.faults.entity(name)
        self.query = Query(emulator, name, {"maxMessagesPerTrigger": "5", "orphans": "ignore"})
        self.sent: list[str] = []
        self.others: list[str] = []
        self.partitions: list[Any] | None = None
        self.first: list[str] | None = None
        self.told: list[str] = []

    def tell(self) -> None:
        """One act that is possible now."""
        if not self.query.is_open:
            goes_on = self.ask
        elif self.partitions is None:
            goes_on = self.plan
        elif self.first is None:
            goes_on = self.read
        else:
            goes_on = self.random.choice([self.read, self.commit])
        acts: list[Callable[[], object]] = [goes_on] * _OF_THE_QUERY
        acts += [self.kill, self.stop, self.break_connection, self.lose_locks, self.end_locks, self.send]
        # Not while a micro-batch is open: what it has lost and others have completed is data loss to a replay.
        acts += [] if self.query.is_open else [self.take]
        act = self.random.choice(acts)
        self.told.append(act.__name__)
        act()

    # ---------------------------------------------------------------- the query

    def ask(self) -> None:
        with self.started_again():
            self.query.ask()

    def plan(self) -> None:
        with self.started_again():
            self.partitions = self.query.planned()

    def read(self) -> None:
        ids = self.query.read(self.partitions or [])
        assert self.first in (None, ids), "the same is read again, also by another process"
        self.first = ids
        self.query.write(ids)

    def commit(self) -> None:
        self.query.commit()
        self.partitions = self.first = None

    # ---------------------------------------------------------------- what happens to it

    def kill(self) -> None:
        self.query.kill()
        self.partitions = None

    def stop(self) -> None:
        self.query.stop()
        self.partitions = None

    def break_connection(self) -> None:
        setattr(self.faults, self.random.choice(["drop_before_nth", "drop_after_nth"]), self.random.randint(1, 4))

    def lose_locks(self) -> None:
        self.emulator.lose_locks(str(self.queue.address))

    def end_locks(self) -> None:
        self.clock.advance(61)

    # ---------------------------------------------------------------- the others

    def send(self) -> None:
        self.mend()
        ids = [f"m{len(self.sent) + n:04}" for n in range(self.random.randint(1, 8))]
        assert self.queue.send([Message(message_id=each) for each in ids]).ok
        self.sent += ids

    def take(self) -> None:
        self.mend()
        with self.queue.lock(2, max_wait=0.2) as batch:
            self.others += [outcome.message_id or "" for outcome in batch.complete() if outcome.ok]

    # ---------------------------------------------------------------- how it ends

    def end(self) -> None:
        """All messages that are left are consumed, and each has come once."""
        self.mend()
        self.query.stop()
        self.clock.advance(61)
        self.query.drain()
        self.query.stop()
        assert sorted(self.query.ids + self.others) == self.sent
        assert not self.queue.peek()

    def mend(self) -> None:
        self.faults.drop_before_nth = self.faults.drop_after_nth = 0

    @contextmanager
    def started_again(self) -> Generator[None]:
        """A query that fails is started again."""
        try:
            yield
        except SbNotebookError:
            self.kill()


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize("seed", range(_SEEDS))
def test_each_message_comes_once_whatever_happens(
    emulator: RunningEmulator, own: Namespace, clock: ManualClock, seed: int
) -> None:
    story = Story(emulator, own, clock, seed)
    try:
        story.send()
        for _ in range(_ACTS):
            story.tell()
        story.end()
    finally:
        story.query.stop()
        print(seed, " ".join(story.told))  # noqa: T201 (shown when it fails)
