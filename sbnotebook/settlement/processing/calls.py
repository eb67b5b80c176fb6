"""Calling a user's function with messages: in threads, or on the loop when it is an async one."""

from __future__ import annotations

import inspect
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final, cast

import anyio
import anyio.to_thread

from sbnotebook.model import LockedMessage
from sbnotebook.settlement.locking.renewal import Clock
from sbnotebook.settlement.memory.seen import Seen, key_of
from sbnotebook.settlement.processing.envelope import Fault
from sbnotebook.settlement.processing.policy import End, RejectMessage, SkipMessage, StopProcessing

__all__ = ["AnyFunction", "AsyncFunction", "Calls", "Ended", "Function", "Go"]

Function = Callable[[LockedMessage], object]
"""Does the work for one message; raises SkipMessage, RejectMessage or StopProcessing to say how it ended."""
AsyncFunction = Callable[[LockedMessage], Awaitable[object]]
"""The same as an ``async def``."""
AnyFunction = Function | AsyncFunction

_HOP: Final = 0.005
"""Seconds of quick functions that are run in one go: to go to a thread and back takes as long as some of them."""
_MAX_IN_ONE_GO: Final = 50
_ENDS: Final[dict[type[Exception], End]] = {
    SkipMessage: End.SKIPPED,
    RejectMessage: End.REJECTED,
    StopProcessing: End.STOPPED,
}


@dataclass(frozen=True, slots=True)
class Ended:
    """How the function ended for one message.

    Args:
        message: which one.
        end: how.
        fault: what happened, where it did not return.
        error: the exception itself.
        done_at: when the work was done before; then the function was not called.
    """

    message: LockedMessage
    end: End
    fault: Fault | None = None
    error: BaseException | None = None
    done_at: datetime | None = None


@dataclass(slots=True)
class Go:
    """Messages that one worker works on in one go, because the function is quick.

    Args:
        todo: those that are not begun; others may take them over, from the right.
        ends: how the function ended for those that are done, at once when it has.
    """

    todo: deque[LockedMessage]
    ends: deque[Ended] = field(default_factory=deque["Ended"])
    begun: float = field(default_factory=time.monotonic)


class Calls:
    """Calls one function, so many at once as workers ask for it.

    Args:
        function: the user's.
        clock: the time of faults.
        at_once: how many workers there are.
        seen: knows the messages for which the function is not called again; None for no memory.
    """

    def __init__(
        self,
        function: AnyFunction,
        clock: Clock,
        *,
        at_once: int,
        seen: Seen | None = None,
    ) -> None:
        self._function = function
        self._clock = clock
        self._seen = seen
        self._limiter = anyio.CapacityLimiter(at_once)
        self._component = str(getattr(function, "__qualname__", None) or type(function).__qualname__)
        called: object = getattr(function, "__call__", None)  # noqa: B004 (of an object, whose method may be async)
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)
        self._kind = "async function" if self.is_async else "function"
        self._seconds_each = 1.0
        self._is_stopped = False

    @property
    def remembers(self) -> bool:
        """Whether messages whose work is done are remembered."""
        return self._seen is not None

    @property
    def in_one_go(self) -> int:
        """How many messages a worker may take at once: one, unless the function is quick."""
        return 1 if self.is_async else max(1, min(_MAX_IN_ONE_GO, int(_HOP / self._seconds_each)))

    def stop(self) -> None:
        """Begin no more messages."""
        self._is_stopped = True

    async def run(self, go: Go) -> None:
        """Run the function on a few messages, one after the other, until all are done or they take too long together.

        It cannot be cut off: a thread cannot be ended, and a message whose work goes on must not be given back.
        """
        with anyio.CancelScope(shield=True):
            if self.is_async:
                go.ends.append(await self._run_async(go.todo.popleft()))
            else:
                await anyio.to_thread.run_sync(self._run_in_thread, go, limiter=self._limiter)

    def _run_in_thread(self, go: Go) -> None:
        known = self._done_before(tuple(go.todo))
        begun, elapsed, count = time.perf_counter(), 0.0, 0
        while not self._is_stopped and elapsed < _HOP:
            try:
                message = go.todo.popleft()
            except IndexError:  # all are done, or were taken over
                break
            go.ends.append(self._known_end(message, known) or self._call(message))
            elapsed, count = time.perf_counter() - begun, count + 1
        if count:
            each = elapsed / count
            # At once when it gets slower, little by little when it gets quicker.
            self._seconds_each = max(each, (self._seconds_each + each) / 2, 1e-6)

    def _call(self, message: LockedMessage) -> Ended:
        try:
            self._function(message)
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 (a user's; the policy says what follows)
            return self._ended_by(message, error)
        return Ended(message, End.COMPLETED)

    async def _run_async(self, message: LockedMessage) -> Ended:
        if self._seen is not None:
            known = await anyio.to_thread.run_sync(self._done_before, (message,))
            done = self._known_end(message, known)
            if done is not None:
                return done
        try:
            await cast("AsyncFunction", self._function)(message)
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 (as above)
            return self._ended_by(message, error)
        return Ended(message, End.COMPLETED)

    def _done_before(self, messages: Collection[LockedMessage]) -> dict[str, datetime]:
        return self._seen.done_at(messages) if self._seen is not None else {}

    def _known_end(self, message: LockedMessage, known: Mapping[str, datetime]) -> Ended | None:
        done_at = known.get(key_of(message)) if known else None
        return Ended(message, End.COMPLETED, done_at=done_at) if done_at is not None else None

    def _ended_by(self, message: LockedMessage, error: BaseException) -> Ended:
        end = next((end for kind, end in _ENDS.items() if isinstance(error, kind)), End.FAILED)
        fault = Fault.of(error, component=self._component, component_kind=self._kind, time=self._clock.now())
        return Ended(message, end, fault, error)
