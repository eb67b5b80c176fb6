"""Calling a user's function with messages: in threads, or on the loop when it is an async one."""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, cast

import anyio
import anyio.to_thread

from sbnotebook.model import LockedMessage
from sbnotebook.settlement.envelope import Fault
from sbnotebook.settlement.policy import End, RejectMessage, SkipMessage, StopProcessing
from sbnotebook.settlement.renewal import Clock
from sbnotebook.settlement.seen import Seen

__all__ = ["AnyFunction", "AsyncFunction", "Calls", "Ended", "Function"]

Function = Callable[[LockedMessage], object]
"""Does the work for one message; raises SkipMessage, RejectMessage or StopProcessing to say how it ended."""
AsyncFunction = Callable[[LockedMessage], Awaitable[object]]
"""The same as an ``async def``."""
AnyFunction = Function | AsyncFunction

_HOP: Final = 0.005
"""Seconds of quick functions that are run in one go: to go to a thread and back takes about as long as 0.1 ms of work,
and what is done in one go is settled when all of it is done."""
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


class Calls:
    """Calls one function, so many at once as workers ask for it.

    Args:
        function: the user's.
        clock: the time of faults.
        at_once: how many workers there are.
        seen: knows the messages for which the function is not called again; None for no memory.
        done: the ends after which the work counts as done, and is remembered at once.
    """

    def __init__(
        self,
        function: AnyFunction,
        clock: Clock,
        *,
        at_once: int,
        seen: Seen | None = None,
        done: Collection[End] = (),
    ) -> None:
        self._function = function
        self._clock = clock
        self._seen = seen
        self._done = frozenset(done)
        self.error: Exception | None = None
        """Why what is done could not be remembered, a disk that is full."""
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

    async def run(self, messages: Sequence[LockedMessage]) -> list[Ended]:
        """Run the function on a few messages, one after the other.

        It cannot be cut off: a thread cannot be ended, and a message whose work goes on must not be given back.

        Returns:
            The ends of the first of them, at least one. The others were not begun: they took too long together, or
            it was stopped.
        """
        ends: list[Ended] = []
        with anyio.CancelScope(shield=True):
            if self.is_async:
                ends = [await self._run_async(messages[0])]
            else:
                ends = await anyio.to_thread.run_sync(self._run_in_thread, messages, limiter=self._limiter)
        return ends

    def _run_in_thread(self, messages: Sequence[LockedMessage]) -> list[Ended]:
        ends: list[Ended] = []
        begun = time.perf_counter()
        elapsed = 0.0
        for message in messages:
            try:
                done = self._done_before(message)
            except Exception:
                if not ends:
                    raise
                break  # those before it are not forgotten for that; it is found again with the next message
            ends.append(done or self._call(message))
            elapsed = time.perf_counter() - begun
            if self._is_stopped or elapsed > _HOP:
                break
        self._remember(ends)
        each = elapsed / len(ends)
        # At once when it gets slower, little by little when it gets quicker.
        self._seconds_each = max(each, (self._seconds_each + each) / 2, 1e-6)
        return ends

    def _call(self, message: LockedMessage) -> Ended:
        try:
            self._function(message)
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 (a user's; the policy says what follows)
            return self._ended_by(message, error)
        return Ended(message, End.COMPLETED)

    async def _run_async(self, message: LockedMessage) -> Ended:
        if self._seen is not None:
            done = await anyio.to_thread.run_sync(self._done_before, message)
            if done is not None:
                return done
        try:
            await cast("AsyncFunction", self._function)(message)
        except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001 (as above)
            ended = self._ended_by(message, error)
        else:
            ended = Ended(message, End.COMPLETED)
        if self._seen is not None:
            await anyio.to_thread.run_sync(self._remember, [ended])
        return ended

    def _remember(self, ends: Sequence[Ended]) -> None:
        done = [ended.message for ended in ends if ended.end in self._done and ended.done_at is None]
        if self._seen is not None and done:
            try:
                self._seen.remember(done)
            except Exception as error:  # noqa: BLE001 (the work is done all the same, and the messages are completed)
                self.error = error

    def _done_before(self, message: LockedMessage) -> Ended | None:
        done_at = self._seen.done_at(message) if self._seen is not None else None
        return Ended(message, End.COMPLETED, done_at=done_at) if done_at is not None else None

    def _ended_by(self, message: LockedMessage, error: BaseException) -> Ended:
        end = next((end for kind, end in _ENDS.items() if isinstance(error, kind)), End.FAILED)
        fault = Fault.of(error, component=self._component, component_kind=self._kind, time=self._clock.now())
        return Ended(message, end, fault, error)
