"""Who consumes what, since when, and how far: what a run of ``process`` says of itself while it goes on.

A lease here is an account and no ownership. The service gives the messages of an entity to all who receive there, and
each message is the receiver's as long as its lock lasts. Only a session belongs to one receiver alone.
"""

from __future__ import annotations

import os
import platform
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Final

from sbnotebook.model import EntityAddress
from sbnotebook.settlement.processing.policy import End

__all__ = ["Lease", "Leases", "ProcessState", "ProcessStatus", "consumer"]

_ENDED_KEPT: Final = 100
"""Leases that have ended and are still shown."""


class ProcessState(StrEnum):
    """How far a run is."""

    WAITING = "not begun"
    RUNNING = "running"
    STOPPING = "stopping"
    """No message is begun any more; those that are worked on are settled when their functions have ended."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class Lease:
    """What one worker does.

    Args:
        worker: the machine, the process and the worker's number there.
        entity: what it consumes.
        since: when it began.
        session_id: the session that it holds alone; None where messages are shared.
        count: messages that its function has ended for.
        last_sequence_number: of the last of these.
        working_on: the message that its function works on now; of several that are done together the first.
        working_since: since when.
        ended: when it gave up the session, or the run ended.
    """

    worker: str
    entity: EntityAddress
    since: datetime
    session_id: str | None = None
    count: int = 0
    last_sequence_number: int | None = None
    working_on: int | None = None
    working_since: datetime | None = None
    ended: datetime | None = None


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """A run of ``process`` at one moment.

    Args:
        entity: what is consumed.
        state: how far it is.
        since: when it began; None before.
        leases: what each worker does, those that have ended last.
        ends: how the functions ended, and how often.
        repeated: messages that were done before and only settled now.
        waiting: messages that are locked and wait for a worker.
        unsettled: messages whose function has ended and that are not settled yet.
        not_settled: messages whose settlement was not confirmed.
        error: what goes wrong at the moment, or what ended the run.
    """

    entity: EntityAddress
    state: ProcessState
    since: datetime | None
    leases: tuple[Lease, ...]
    ends: Mapping[End, int]
    repeated: int = 0
    waiting: int = 0
    unsettled: int = 0
    not_settled: int = 0
    error: str | None = None

    @property
    def count(self) -> int:
        """Messages that a function has ended for."""
        return sum(self.ends.values())

    def __str__(self) -> str:
        ends = ", ".join(f"{count:,} {end}" for end, count in self.ends.items() if count) or "no message yet"
        parts = [f"{self.entity} ({self.state}): {ends}"]
        told = {
            "done before": self.repeated,
            "locked and waiting": self.waiting,
            "not settled yet": self.unsettled,
            "whose settlement was not confirmed": self.not_settled,
        }
        parts += [f"{count:,} {what}" for what, count in told.items() if count]
        return ", ".join(parts) + (f". {self.error}" if self.error else "")


def consumer() -> str:
    """The machine and the process that consume, as leases and envelopes name them."""
    return f"{platform.node() or 'localhost'}/{os.getpid()}"


@dataclass(slots=True)
class Leases:
    """The leases of one run, written by its workers and read by anybody.

    A reader in another thread sees each lease as it was at some moment, because a lease is replaced and never changed.
    """

    entity: EntityAddress
    _open: dict[int, Lease] = field(default_factory=dict[int, Lease])
    _ended: deque[Lease] = field(default_factory=lambda: deque[Lease](maxlen=_ENDED_KEPT))
    _ends: Counter[End] = field(default_factory=Counter[End])

    def begin(self, worker: int, now: datetime, session_id: str | None = None) -> None:
        """A worker begins on the entity, or on a session of it."""
        self.end(worker, now)
        name = f"{consumer()}/{worker + 1}"
        self._open[worker] = Lease(name, self.entity, now, session_id)

    def work_on(self, worker: int, sequence_number: int, now: datetime) -> None:
        """A worker's function begins on a message."""
        self._open[worker] = replace(self._open[worker], working_on=sequence_number, working_since=now)

    def ended_for(self, worker: int, sequence_number: int, end: End) -> None:
        """A worker's function ended for a message."""
        lease = self._open[worker]
        self._open[worker] = replace(
            lease,
            count=lease.count + 1,
            last_sequence_number=sequence_number,
            working_on=None,
            working_since=None,
        )
        self._ends[end] += 1

    def end(self, worker: int, now: datetime) -> None:
        """A worker gives up what it consumed, if anything."""
        lease = self._open.pop(worker, None)
        if lease is not None:
            self._ended.append(replace(lease, ended=now, working_on=None, working_since=None))

    def now(self) -> tuple[Lease, ...]:
        """All of them, those that have ended last."""
        return (*self._open.copy().values(), *reversed(self._ended.copy()))

    @property
    def ends(self) -> Mapping[End, int]:
        """How often functions ended in which way."""
        return {end: self._ends[end] for end in End}
