"""Call a user's function with a message, in a thread or on the loop, and note how it ended."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, cast
from uuid import UUID

from sbnotebook.model import LockedMessage
from sbnotebook.settlement.locking.renewal import Clock
from sbnotebook.settlement.memory.namespace_tables import NamespaceTables, key_of
from sbnotebook.settlement.processing.policy import End, Fault, RejectMessage, SkipMessage, StopProcessing

MessageFunction = Callable[[LockedMessage], object]
"""Does the work for one message; raises SkipMessage, RejectMessage or StopProcessing to say how it ended."""
AsyncFunction = Callable[[LockedMessage], Awaitable[object]]
"""The same as an ``async def``."""
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
        _take_back_cancellations()
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
    fault = Fault.of(error, component=component, component_kind=kind, time=clock.now())
    return EndedCall(message, end, fault, error)


def _take_back_cancellations() -> None:
    """Let the task continue that a function may have cancelled: only a stop of the run ends a worker."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
