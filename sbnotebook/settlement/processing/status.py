"""The status of a run of ``process``: its leases, its counts and its errors.

A lease is a record of work and not ownership. Service Bus distributes the messages of an entity among all receivers,
and a receiver owns each message only as long as its lock lasts. Only a session belongs to one receiver alone.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from sbnotebook.model import EntityAddress
from sbnotebook.settlement.processing.policy import End


class ProcessState(StrEnum):
    WAITING = "not begun"
    RUNNING = "running"
    STOPPING = "stopping"
    """No more messages are begun. Those in work are settled when their functions have ended."""
    ENDED = "ended"


@dataclass(slots=True)
class Lease:
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
        entity: the entity that is consumed.
        state: the state of the run.
        since: when it began; None before.
        leases: the work of each worker, ended leases last.
        ends: how many functions ended in each way.
        repeated: messages whose work was done before, and which were only settled now.
        waiting: messages that are locked and wait for a worker.
        unsettled: messages whose function has ended and that are not settled yet.
        not_settled: messages whose settlement was not confirmed.
        error: the current problem, or the error that ended the run.
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
        """Return the number of messages that a function has ended for."""
        return sum(self.ends.values())

    def __str__(self) -> str:
        ends = ", ".join(f"{count:,} {end}" for end, count in self.ends.items() if count) or "no message yet"
        parts = [f"{self.entity} ({self.state}): {ends}"]
        counts = {
            "done before": self.repeated,
            "locked and waiting": self.waiting,
            "not settled yet": self.unsettled,
            "whose settlement was not confirmed": self.not_settled,
        }
        parts += [f"{count:,} {label}" for label, count in counts.items() if count]
        return ", ".join(parts) + (f". {self.error}" if self.error else "")


def consumer() -> str:
    """Return the names of this machine and process, as leases and envelopes show them."""
    return f"{platform.node() or 'localhost'}/{os.getpid()}"
