"""The status of a run: its leases, its counts and its errors; and the calls of the user's function.

A lease is a record of work and not ownership. Service Bus distributes the messages of an entity among all receivers,
and a receiver owns each message only as long as its lock lasts. Only a session belongs to one receiver alone.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import platform
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, cast
from uuid import UUID

from sbnotebook.model import EntityAddress, LockedMessage
from sbnotebook.settlement.locking.renewal import Clock
from sbnotebook.settlement.memory.journal import NamespaceTables, key_of
from sbnotebook.settlement.processing.policy import End, Fault, RejectMessage, SkipMessage, StopProcessing

MessageFunction = Callable[[LockedMessage], object]
"""Does the work for one message; raises SkipMessage, RejectMessage or StopProcessing to say how it ended."""
AsyncFunction = Callable[[LockedMessage], Awaitable[object]]
AnyFunction = MessageFunction | AsyncFunction

_ENDS: Final[dict[type[Exception], End]] = {
    SkipMessage: End.SKIPPED,
    RejectMessage: End.REJECTED,
    StopProcessing: End.STOPPED,
}


@dataclass(slots=True, eq=False)
class EndedCall:
    message: LockedMessage
    end: End
    fault: Fault | None = None
    error: BaseException | None = None
    done_at: datetime | None = None
    index: int | None = None
    """Its position in the report; None while it is not there."""
    is_enveloped: bool = False
    """Whether its envelope was confirmed: no second one is sent if the message comes again."""


def is_async(function: AnyFunction) -> bool:
    called: object = getattr(function, "__call__", None)  # noqa: B004 (of an object, whose method may be async)
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)


def call(function: AnyFunction, message: LockedMessage, clock: Clock) -> EndedCall:
    try:
        function(message)
    except BaseException as error:  # noqa: BLE001 (a user's; the policy decides)
        return _ended_by(function, message, error, clock)
    return EndedCall(message, End.COMPLETED)


async def call_on_loop(function: AnyFunction, message: LockedMessage, clock: Clock) -> EndedCall:
    """Call an async function; a cancellation in it ends neither the worker nor the run."""
    try:
        await cast("AsyncFunction", function)(message)
    except BaseException as error:  # noqa: BLE001 (as above; a child task's CancelledError is not a cancellation)
        # The function may have cancelled its task, and only a stop of the run ends a worker.
        task = asyncio.current_task()
        while task is not None and task.cancelling():
            task.uncancel()
        return _ended_by(function, message, error, clock)
    return EndedCall(message, End.COMPLETED)


def ends_before(
    tables: NamespaceTables, within: timedelta, message: LockedMessage, ahead: Iterable[LockedMessage] = ()
) -> Mapping[UUID, EndedCall | None]:
    """Return the ends of messages whose work was done before, and None for others, by lock token; in a thread."""
    by_key = {key_of(each): each for each in (*ahead, message)}
    done = tables.done_at(by_key.values(), within)
    return {
        each.lock_token: EndedCall(each, End.COMPLETED, done_at=done[key]) if key in done else None
        for key, each in by_key.items()
    }


def _ended_by(function: AnyFunction, message: LockedMessage, error: BaseException, clock: Clock) -> EndedCall:
    end = next((end for kind, end in _ENDS.items() if isinstance(error, kind)), End.FAILED)
    component = str(getattr(function, "__qualname__", None) or type(function).__qualname__)
    kind = "async function" if is_async(function) else "function"
    return EndedCall(message, end, Fault.of(error, component=component, component_kind=kind, time=clock.now()), error)


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
        state: ``not begun``, ``running``, ``stopping`` or ``ended``. A run that stops begins no more messages, and
            settles those in work when their functions have ended.
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
    state: str
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
        counts = {
            "done before": self.repeated,
            "locked and waiting": self.waiting,
            "not settled yet": self.unsettled,
            "whose settlement was not confirmed": self.not_settled,
        }
        parts = [f"{self.entity} ({self.state}): {ends}"]
        parts += [f"{count:,} {label}" for label, count in counts.items() if count]
        return ", ".join(parts) + (f". {self.error}" if self.error else "")


def consumer() -> str:
    """Return the names of this machine and process, as leases and envelopes show them."""
    return f"{platform.node() or 'localhost'}/{os.getpid()}"
