"""What the workers of one run of ``process`` share."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Final, TypedDict

import anyio
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusServerBusyError,
)

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, LockedMessage, Outcome
from sbnotebook.model.report import Tally
from sbnotebook.settlement.locking.renewal import Clock
from sbnotebook.settlement.memory.seen import key_of
from sbnotebook.settlement.pace import Pace
from sbnotebook.settlement.plan import Limits
from sbnotebook.settlement.processing.calls import Calls, Ended
from sbnotebook.settlement.processing.finish import Finish
from sbnotebook.settlement.processing.lease import Leases
from sbnotebook.settlement.processing.policy import Policy, Then

if TYPE_CHECKING:
    from sbnotebook.settlement.locking.settle import Progress

__all__ = ["PASSING_TROUBLE", "Bell", "Options", "ProcessOptions", "Run"]

PASSING_TROUBLE: Final = (
    OSError,
    OperationTimeoutError,
    ServiceBusCommunicationError,
    ServiceBusConnectionError,
    ServiceBusServerBusyError,
)
"""What a consumer that goes on until it is stopped outlives."""
_MIN_PAUSE: Final = 0.5
_MAX_PAUSE: Final = 30.0
"""Seconds between two attempts where the service cannot be reached."""


class ProcessOptions(TypedDict, total=False):
    """What :class:`Options` takes, for functions that pass it on."""

    policy: Policy
    max_in_flight: int
    rate: float | None
    max_messages: int | None
    max_wait: float | None
    by_session: bool
    archived: bool


@dataclass(frozen=True, slots=True)
class Options:
    """How an entity is consumed.

    Args:
        policy: what each end of the function means.
        max_in_flight: how many messages the function is called with at once, each in a thread of its own. With one,
            they are worked on in their order. Of sessions so many are worked on at once, each in its order.
        rate: messages a second at most, None for no limit.
        max_messages: stop after so many, None for all.
        max_wait: seconds to wait for a message until the entity counts as empty; None to go on until it is stopped.
        by_session: whether sessions are consumed.
        seen: whether, or for how long, messages whose work is done are remembered, so that it is not done twice: see
            :mod:`sbnotebook.settlement.memory.seen`.
        archived: whether messages are kept in the local archive before they are removed.
        progress: told of every message that is finished.

    Raises:
        ConfigurationError: a number that cannot be.
    """

    policy: Policy = field(default_factory=Policy)
    max_in_flight: int = 1
    rate: float | None = None
    max_messages: int | None = None
    max_wait: float | None = 2.0
    by_session: bool = False
    seen: timedelta | bool = False
    archived: bool = True
    progress: Progress | None = None

    def __post_init__(self) -> None:
        Limits(self.max_in_flight, self.rate)  # refuses what cannot be
        if self.max_messages is not None and self.max_messages < 1:
            raise ConfigurationError("max_messages is 1 or more, or None for all.")
        if self.max_wait is not None and self.max_wait <= 0:
            raise ConfigurationError("max_wait is above 0 seconds, or None to go on until it is stopped.")

    @property
    def comes_again(self) -> bool:
        """Whether a message that is given back is delivered again in the same run.

        In a run that ends when the entity is empty it is held back until then, so that each is tried once. Held back,
        the first message of a session would hold up the session.
        """
        return self.max_wait is None or self.by_session


class Bell:
    """Wakes everybody who waits for something to change; only for tasks of one loop."""

    def __init__(self) -> None:
        self._event = anyio.Event()

    def ring(self) -> None:
        """Something has changed."""
        rung, self._event = self._event, anyio.Event()
        rung.set()

    async def wait(self) -> None:
        """Wait for the next ring."""
        await self._event.wait()


class Run:
    """What the workers of one run share.

    Args:
        entity: what is consumed.
        options: how.
        calls: call the function.
        finish: settles.
        clock: the time of leases.
    """

    def __init__(self, entity: EntityAddress, options: Options, calls: Calls, finish: Finish, clock: Clock) -> None:
        self.options = options
        self.calls = calls
        self.finish = finish
        self.clock = clock
        self.leases = Leases(entity)
        self.tally = Tally()
        self.is_stopping = False
        self.error: BaseException | None = None
        """What ended the run, and is raised."""
        self.trouble: str | None = None
        """What goes wrong at the moment."""
        self.taken = 0
        """Messages that were taken in to have the function called."""
        self.repeated = 0
        self.not_settled = 0
        self._noted = 0
        self._pace = Pace(options.rate)
        self._pace_turn = anyio.Lock()
        self._pause = _MIN_PAUSE
        self.bell = Bell()
        self._scopes: set[anyio.CancelScope] = set()

    @property
    def at_once(self) -> int:
        """How many messages a worker may take at once."""
        return min(self.calls.in_one_go, self._pace.at_once or self.calls.in_one_go)

    @property
    def left(self) -> int | None:
        """How many messages may still be taken in; None for any number."""
        maximum = self.options.max_messages
        return None if maximum is None else max(0, maximum - self.taken)

    async def wait_for_pace(self, count: int) -> bool:
        """Wait until so many messages may be begun; False when the run is stopped before."""
        async with self._pace_turn:
            with self.until_stopped():
                await self._pace.wait(count)
        return not self.is_stopping

    @contextmanager
    def until_stopped(self) -> Generator[anyio.CancelScope]:
        """A block that is cut off when the run is stopped, unless :meth:`keep` was called for it before."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            if self.is_stopping:
                scope.cancel()
            try:
                yield scope
            finally:
                self._scopes.discard(scope)

    def key_of(self, message: LockedMessage) -> str:
        """What two messages have in common of which one waits for the other: two deliveries of the same message."""
        return key_of(message) if self.calls.remembers else str(message.sequence_number)

    def all_well(self, trouble: str | None = None) -> None:
        """The service was reached; trouble is what goes wrong all the same."""
        self.trouble, self._pause = trouble, _MIN_PAUSE

    async def wait_out(self, error: Exception) -> None:
        """Wait before the next attempt, longer each time, and say why."""
        self.trouble = f"{type(error).__name__}: it is tried again."
        self._pause = min(self._pause * 2, _MAX_PAUSE)
        await anyio.sleep(self._pause)

    def keep(self, block: anyio.CancelScope) -> None:
        """From now on this block is not cut off: a stop waits for what is worked on in it."""
        self._scopes.discard(block)

    def stop(self) -> None:
        """Begin no more messages."""
        self.is_stopping = True
        self.calls.stop()
        for scope in tuple(self._scopes):
            scope.cancel()
        self.bell.ring()

    def fail(self, error: BaseException) -> None:
        """Stop, and raise this at the end; the first error counts."""
        self.error = self.error or error
        self.stop()

    def ended(self, worker: int, ended: Ended) -> None:
        """A function has ended: count it, and stop where the policy says so."""
        if ended.done_at is not None:
            self.repeated += 1
            return
        self.leases.ended_for(worker, ended.message.sequence_number, ended.end)
        then = self.options.policy.row(ended.end).then
        if then is Then.STOP:
            self.stop()
        elif then is Then.RAISE and ended.error is not None:
            self.fail(ended.error)

    def note(self, outcome: Outcome, index: int | None = None) -> int:
        """A message is finished; the index is given for a message that was finished before, and is returned."""
        if index is None:
            index, self._noted = self._noted, self._noted + 1
            if self.options.progress is not None:
                self.options.progress(1)
        self.tally.note(index, outcome)
        self.not_settled += not outcome.ok
        if self.finish.error is not None:
            self.fail(self.finish.error)
        return index
