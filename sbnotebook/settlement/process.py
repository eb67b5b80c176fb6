"""Consuming an entity with a function, settling each message by how the function ended."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Protocol, TypedDict

import anyio
import anyio.lowlevel
import anyio.to_thread

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, LockedMessage, Outcome, Report
from sbnotebook.model.report import Tally
from sbnotebook.settlement.calls import AnyFunction, Calls, Ended
from sbnotebook.settlement.finish import Finish
from sbnotebook.settlement.lease import Leases, ProcessState, ProcessStatus
from sbnotebook.settlement.pace import Pace
from sbnotebook.settlement.plan import Limits
from sbnotebook.settlement.policy import Policy, Then
from sbnotebook.settlement.renewal import Clock, SystemClock
from sbnotebook.settlement.seen import Seen, key_of
from sbnotebook.settlement.watch import reporting

if TYPE_CHECKING:
    from sbnotebook.settlement.send import SenderPool
    from sbnotebook.settlement.settle import Progress

__all__ = ["Options", "ProcessOptions", "Processing", "Run", "Workers"]

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
            :mod:`sbnotebook.settlement.seen`.
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


class Workers(Protocol):
    """Those who take messages, have the function called, and settle."""

    async def work(self) -> None:
        """Work until there is no more to do, or the run is stopped; then settle what has ended."""
        ...

    @property
    def waiting(self) -> int:
        """Messages that are locked and wait for a worker."""
        ...

    @property
    def unsettled(self) -> int:
        """Messages whose function has ended and that are not settled yet."""
        ...


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
        self.opening: anyio.CancelScope | None = None
        """What is cancelled by a stop as long as nothing is open."""
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
    def until_stopped(self) -> Generator[None]:
        """A block that is cut off when the run is stopped."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            if self.is_stopping:
                scope.cancel()
            try:
                yield
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

    def opened(self) -> None:
        """The entity is open: from now on a stop waits for what is worked on."""
        self.opening = None

    def stop(self) -> None:
        """Begin no more messages."""
        self.is_stopping = True
        self.calls.stop()
        if self.opening is not None:
            self.opening.cancel()
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
        failure = self.finish.error or self.calls.error
        if failure is not None:
            self.fail(failure)
        return index


class Processing:
    """One run of ``process``: can be watched and stopped while it goes on, from any thread.

    Made by :meth:`sbnotebook.settlement.entity.AsyncEntity.processing`.

    Args:
        entity: what is consumed.
        function: the work.
        options: how.
        make_workers: gives those who work.
        pools: senders to the entities that envelopes go to.
        host: the namespace's.
        clock: where the time comes from.
        seen: knows what is done, None for no memory.

    Raises:
        DecisionError: the policy cannot be carried out there.
    """

    def __init__(
        self,
        entity: EntityAddress,
        function: AnyFunction,
        options: Options,
        *,
        make_workers: MakeWorkers,
        pools: Mapping[EntityAddress, SenderPool],
        host: str,
        clock: Clock | None = None,
        seen: Seen | None = None,
    ) -> None:
        options.policy.check(entity, comes_again=options.comes_again)
        clock = clock or SystemClock()
        calls = Calls(function, clock, at_once=options.max_in_flight, seen=seen, done=options.policy.done)
        finish = Finish(options.policy, host, pools, abandons=options.comes_again, seen=seen)
        self._run = Run(entity, options, calls, finish, clock)
        self._workers = make_workers(self._run)
        self._entity = entity
        self._pools = pools
        self._seen = seen
        self._state = ProcessState.WAITING
        self._since: datetime | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def status(self) -> ProcessStatus:
        """Who consumes what, since when, and how far, at this moment."""
        run = self._run
        stopping = self._state is ProcessState.RUNNING and run.is_stopping
        error = f"{type(run.error).__name__} ended it." if run.error is not None else run.trouble
        return ProcessStatus(
            self._entity,
            ProcessState.STOPPING if stopping else self._state,
            self._since,
            run.leases.now(),
            run.leases.ends,
            repeated=run.repeated,
            waiting=self._workers.waiting,
            unsettled=self._workers.unsettled,
            not_settled=run.not_settled,
            error=error,
        )

    @property
    def report(self) -> Report:
        """The outcomes that are known now."""
        return self._run.tally.report()

    def stop(self) -> None:
        """Begin no more messages. What is worked on is settled when its function has ended, the rest is released."""
        self._run.is_stopping = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: it has ended
                self._loop.call_soon_threadsafe(self._run.stop)

    async def run(self) -> Report:
        """Work until it is done or stopped; a cancellation stops it, and waits for the functions that run.

        Returns:
            An outcome for each message that the function ended for, or whose work was done before. Where the function
            did not return, its description says how it ended.

        Raises:
            Exception: the function's own, where the policy says so. A note on it says how the messages ended.
            ServiceBusError: the entity cannot be opened, or no messages can be had any more.
        """
        if self._state is not ProcessState.WAITING:
            raise ConfigurationError("It has run already: make another one.")
        self._loop = asyncio.get_running_loop()
        self._since, self._state = self._run.clock.now(), ProcessState.RUNNING
        try:
            with reporting(self._run.tally.report):
                await self._work_until_stopped()
        finally:
            self._state = ProcessState.ENDED
        await anyio.lowlevel.checkpoint_if_cancelled()
        self._raise_error()
        return self.report

    async def _work_until_stopped(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._stop_when_cancelled)
            # A cancellation from outside only stops it: what is done has still to be settled, under renewed locks.
            with anyio.CancelScope(shield=True) as self._run.opening:
                try:
                    if not self._run.is_stopping:
                        await self._prepare()
                        await self._workers.work()
                except Exception as error:  # noqa: BLE001 (raised when the task group has ended, and not in a group)
                    self._run.fail(error)
            tasks.cancel_scope.cancel()

    async def _stop_when_cancelled(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            self._run.stop()

    async def _prepare(self) -> None:
        """Find out what would fail later before anything is locked."""
        for pool in self._pools.values():
            await pool.warm(1)
        if self._seen is not None:
            await anyio.to_thread.run_sync(self._seen.forget_old)

    def _raise_error(self) -> None:
        error = self._run.error
        if error is None:
            return
        note = f"The messages until then: {self.report}."
        if not isinstance(error, Exception):  # it would end the loop, and not only this run
            error_of_run = RuntimeError(f"The function raised {type(error).__name__}.")
            error_of_run.add_note(note)
            raise error_of_run from error
        error.add_note(note)
        raise error


class MakeWorkers(Protocol):
    """Gives the workers of a run."""

    def __call__(self, run: Run) -> Workers:
        """Make them; nothing is opened yet."""
        ...
