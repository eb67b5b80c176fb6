"""Call a user's function with messages: in threads, or on the loop if it is an async function."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Final, cast

import anyio
import anyio.to_thread

from sbnotebook.model import LockedMessage
from sbnotebook.settlement.locking.renewal import Clock
from sbnotebook.settlement.memory.seen import Seen, key_of
from sbnotebook.settlement.processing.policy import End, Fault, RejectMessage, SkipMessage, StopProcessing

MessageFunction = Callable[[LockedMessage], object]
"""Does the work for one message; raises SkipMessage, RejectMessage or StopProcessing to say how it ended."""
AsyncFunction = Callable[[LockedMessage], Awaitable[object]]
"""The same as an ``async def``."""
AnyFunction = MessageFunction | AsyncFunction

_GROUP_SECONDS: Final = 0.005
"""Seconds of quick calls in one thread hop, because a hop to a thread and back takes as long as some functions."""
_MAX_GROUP: Final = 50
_LOST_KEPT: Final = 10_000
"""Calls kept until their messages come again: more than lose their locks together."""
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


class LostCalls:
    """Ended calls whose settlement was not confirmed. If their messages come again, these are only settled.

    It keeps the last calls only, and not the content of their messages: some never come again, because another
    consumer has settled them.
    """

    def __init__(self) -> None:
        self._calls: dict[int, EndedCall] = {}

    def keep(self, ended: EndedCall) -> None:
        message = ended.message
        bare = LockedMessage(
            entity=message.entity,
            sequence_number=message.sequence_number,
            enqueued_time=message.enqueued_time,
            lock_token=message.lock_token,
        )
        self.forget(message)
        self._calls[message.sequence_number] = replace(ended, message=bare, error=None)
        if len(self._calls) > _LOST_KEPT:
            del self._calls[next(iter(self._calls))]

    def forget(self, message: LockedMessage) -> None:
        self._calls.pop(message.sequence_number, None)

    def take(self, message: LockedMessage) -> EndedCall | None:
        """Return the call of a message that has come again; None if there was none."""
        ended = self._calls.pop(message.sequence_number, None)
        if ended is None or ended.message.enqueued_time != message.enqueued_time:
            return None
        return replace(ended, message=message)


@dataclass(slots=True)
class CallGroup:
    """Messages that one worker works on in one thread hop, because the function is quick."""

    todo: deque[LockedMessage]
    ends: deque[EndedCall] = field(default_factory=deque["EndedCall"])
    begun: float = field(default_factory=time.monotonic)


class FunctionCaller:
    def __init__(
        self, function: AnyFunction, clock: Clock, *, workers: int, seen: Seen | None = None, last: Collection[End] = ()
    ) -> None:
        self._function = function
        self._clock = clock
        self._seen = seen
        self._last = last
        self._limiter = anyio.CapacityLimiter(workers)
        self._component = str(getattr(function, "__qualname__", None) or type(function).__qualname__)
        called: object = getattr(function, "__call__", None)  # noqa: B004 (of an object, whose method may be async)
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
        self._kind = "async function" if self.is_async else "function"
        self._seconds_each = 1.0
        self._is_stopped = False

    @property
    def remembers(self) -> bool:
        return self._seen is not None

    @property
    def group_size(self) -> int:
        """Return how many messages a worker may take at once: one, unless the function is quick."""
        return 1 if self.is_async else max(1, min(_MAX_GROUP, int(_GROUP_SECONDS / self._seconds_each)))

    def stop(self) -> None:
        self._is_stopped = True

    async def run(self, group: CallGroup) -> None:
        """Call the function for a group, one message after the other, until all are done or the time is used up.

        The run does not let it be cancelled: a thread cannot be ended, and a message in work must not be released.
        """
        if self.is_async:
            group.ends.append(await self._run_async(group.todo.popleft()))
        else:
            await anyio.to_thread.run_sync(self._run_in_thread, group, limiter=self._limiter)

    def _run_in_thread(self, group: CallGroup) -> None:
        known = self._done_before(tuple(group.todo))
        begun, elapsed, count = time.perf_counter(), 0.0, 0
        while not self._is_stopped and elapsed < _GROUP_SECONDS:
            try:
                message = group.todo.popleft()
            except IndexError:  # all are done, or were taken over
                break
            ended = self._known_end(message, known) or self._call(message)
            group.ends.append(ended)
            if ended.done_at is None and ended.end in self._last:
                self.stop()  # the run hears of it only after the group
            elapsed, count = time.perf_counter() - begun, count + 1
        if count:
            each = elapsed / count
            # The estimate rises at once when the function gets slower, and falls slowly when it gets quicker.
            self._seconds_each = max(each, (self._seconds_each + each) / 2, 1e-6)

    def _call(self, message: LockedMessage) -> EndedCall:
        try:
            self._function(message)
        except BaseException as error:  # noqa: BLE001 (a user's; the policy decides)
            return self._ended_by(message, error)
        return EndedCall(message, End.COMPLETED)

    async def _run_async(self, message: LockedMessage) -> EndedCall:
        if self._seen is not None:
            known = await anyio.to_thread.run_sync(self._done_before, (message,))
            done = self._known_end(message, known)
            if done is not None:
                return done
        try:
            await cast("AsyncFunction", self._function)(message)
        except BaseException as error:  # noqa: BLE001 (as above; a child task's CancelledError is not a cancellation)
            _take_back_cancellations()
            return self._ended_by(message, error)
        return EndedCall(message, End.COMPLETED)

    def _done_before(self, messages: Collection[LockedMessage]) -> dict[str, datetime]:
        return self._seen.done_at(messages) if self._seen is not None else {}

    def _known_end(self, message: LockedMessage, known: Mapping[str, datetime]) -> EndedCall | None:
        done_at = known.get(key_of(message)) if known else None
        return EndedCall(message, End.COMPLETED, done_at=done_at) if done_at is not None else None

    def _ended_by(self, message: LockedMessage, error: BaseException) -> EndedCall:
        end = next((end for kind, end in _ENDS.items() if isinstance(error, kind)), End.FAILED)
        fault = Fault.of(error, component=self._component, component_kind=self._kind, time=self._clock.now())
        return EndedCall(message, end, fault, error)


def _take_back_cancellations() -> None:
    """Let the task continue that a function may have cancelled: only a stop of the run ends a worker."""
    task = asyncio.current_task()
    while task is not None and task.cancelling():
        task.uncancel()
