"""Consume an entity with a function, and settle each message by how the function ended."""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, cast
from uuid import UUID

import anyio
import anyio.lowlevel
import anyio.to_thread
from azure.core.exceptions import AzureError

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Abandon, Complete, Decision, LockedMessage, Outcome, Release, Report
from sbnotebook.model.report import Tally
from sbnotebook.settlement.connecting.failures import explained
from sbnotebook.settlement.interrupts import reporting
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.pace import Pace
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import Limits, Progress, check_wait
from sbnotebook.settlement.processing.calls import (
    AnyFunction,
    EndedCall,
    Lease,
    ProcessStatus,
    call,
    call_on_loop,
    consumer,
    ends_before,
    is_async,
)
from sbnotebook.settlement.processing.finish import explained_end, send_envelopes, settle_all
from sbnotebook.settlement.processing.policy import End, Policy, Then

RENEW_FOR: Final = timedelta(days=3650)
"""How long locks are renewed: until the function has ended, however long it takes."""
SERVICE_ERRORS: Final = (AzureError, OSError)
"""Errors of Service Bus, of the network and of credentials; the SDK's own are AzureErrors, too."""
_HOP_SECONDS: Final = 0.005
"""Seconds of quick calls in one thread hop, because a hop to a thread and back takes as long as some functions."""
_MIN_PAUSE: Final = 0.5
_MAX_PAUSE: Final = 30.0
"""Seconds between two attempts to reach Service Bus."""
_LOST_KEPT: Final = 10_000
"""Calls kept until their messages come again: more than lose their locks together."""


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a run.

    Args:
        policy: how each end of the function becomes a decision.
        max_in_flight: messages, or sessions, that are worked on at once; with 1, messages keep their order.
        rate: messages a second at most, None for no limit.
        max_messages: stop after this many, None for all.
        max_wait: seconds without a message after which the run ends; None to continue until it is stopped.
        by_session: whether to consume sessions.
        seen: whether, or for how long, messages whose work is done are remembered.
        archived: whether to keep messages in the local archive before they are removed.
        progress: told of every message that is finished.
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
        at_once = cast("object", self.max_in_flight)  # other actions take "auto"
        if not isinstance(at_once, int) or at_once < 1:
            raise ConfigurationError(
                "max_in_flight of process is a number, 1 or more: it counts the calls of your function. Settlements "
                "adapt to the network by themselves."
            )
        Limits(rate=self.rate)  # raises for a number out of range
        if self.max_messages is not None and self.max_messages < 1:
            raise ConfigurationError("max_messages is 1 or more, or None for all.")
        if self.max_wait is not None:
            check_wait(self.max_wait)
        if self.remembers_for is not None and self.remembers_for <= timedelta():
            raise ConfigurationError("The retention of remembered messages must be positive.")

    @property
    def remembers_for(self) -> timedelta | None:
        """Return for how long messages whose work is done are remembered; None for not at all."""
        if isinstance(self.seen, bool):
            return timedelta(days=7) if self.seen else None
        return self.seen

    @property
    def redelivers(self) -> bool:
        """Tell whether Service Bus delivers a returned message again in the same run.

        A run that ends when the entity is empty holds returned messages back until then, so that each is tried once.
        Sessions are the exception: a message that is held back would block the rest of its session.
        """
        return self.max_wait is None or self.by_session


class Processing(ABC):
    """One run of ``process``. Any thread can watch and stop it.

    Made by :meth:`sbnotebook.settlement.namespace.AsyncEntity.processing`.

    Args:
        place: the entity that is consumed.
        function: the work for one message.
        options: the options of the run.

    Raises:
        DecisionError: the policy cannot be carried out on this entity.
        ReadOnlyError: the policy sends envelopes, and the connection is read-only.
    """

    def __init__(self, place: Place, function: AnyFunction, options: Options) -> None:
        self._place, self._function, self._options, self._policy = place, function, options, options.policy
        self._policy.check(place.address, redelivers=options.redelivers)
        namespace, self._clock = place.namespace, place.namespace.clock
        self._tables, self._remembers_for = namespace.tables, options.remembers_for
        destinations = {row.destination for row in self._policy.rows.values()}
        self._pools = {address: namespace.pool(address) for address in destinations if address is not None}
        self._is_async = is_async(function)
        self._threads = anyio.CapacityLimiter(options.max_in_flight)
        # The state of the run.
        self._is_stopping = self._has_ended = False
        self._since: datetime | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = anyio.Event()
        self._until_stopped: set[anyio.CancelScope] = set()
        self._error: BaseException | None = None
        """The error that ended the run, and that is raised."""
        self._problem: str | None = None
        self._pause, self._was_reached = _MIN_PAUSE, False
        self._pace, self._pace_turn = Pace(options.rate), anyio.Lock()
        # The messages and how they ended.
        self._taken: int = 0
        """Messages that were taken to have the function called."""
        self._tally, self._noted = Tally(), 0
        self._ends: Counter[End] = Counter()
        self._repeated = self._not_settled = 0
        self._leases: dict[int, Lease] = {}
        self._ended_leases: deque[Lease] = deque(maxlen=100)
        self._lost: dict[int, EndedCall] = {}
        """The last ended calls whose settlement was not confirmed, by number. If their messages come again, these are
        only settled. Some never come again, because another consumer has settled them."""

    @property
    def status(self) -> ProcessStatus:
        """Return the leases, counts and errors of the run at this moment."""
        state = "ended" if self._has_ended else "stopping" if self._is_stopping else "running"
        error = f"{type(self._error).__name__} ended it." if self._error is not None else self._problem
        leases = (*self._leases.copy().values(), *reversed(self._ended_leases.copy()))
        return ProcessStatus(
            self._place.address,
            state if self._since is not None else "not begun",
            self._since,
            tuple(map(replace, leases)),  # as they are now
            {end: self._ends[end] for end in End},
            repeated=self._repeated,
            waiting=self._waiting,
            unsettled=self._unsettled,
            not_settled=self._not_settled,
            error=error,
        )

    @property
    def report(self) -> Report:
        """Return the outcomes that are known now."""
        return self._tally.report()

    def stop(self) -> None:
        """Begin no more messages. Messages in work are settled when their function has ended; the rest is released."""
        self._is_stopping = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: the run has ended
                self._loop.call_soon_threadsafe(self._stop)

    async def run(self) -> Report:
        """Work until there is no more to do, or until the run is stopped or cancelled.

        It waits for the functions that are running. The report has an outcome for each message that the function
        ended for, or whose work was done before. If the function did not return, the outcome's description says how
        it ended. If the policy says so, the function's own exception is raised, with a note on how the messages
        ended.
        """
        if self._since is not None:
            raise ConfigurationError("It has run already: make another one.")
        self._loop = asyncio.get_running_loop()
        self._since = self._clock.now()
        try:
            with reporting(self._tally.report):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._work_shielded, tasks.cancel_scope)
                    # A cancellation from outside, also one by asyncio alone, only stops the work in its task.
                    try:
                        await anyio.sleep_forever()
                    finally:
                        self._stop()
        finally:
            self._has_ended = True
        await anyio.lowlevel.checkpoint_if_cancelled()
        self._raise_error()
        return self.report

    # ---------------------------------------------------------------- the two kinds of runs

    @property
    @abstractmethod
    def _waiting(self) -> int:
        """Return how many messages are locked and wait for a worker; in any thread."""

    @property
    @abstractmethod
    def _unsettled(self) -> int:
        """Return how many messages are done and not settled; in any thread."""

    @abstractmethod
    async def _work(self) -> None:
        """Work until the run is stopped, or there is no more to do."""

    def _next(self) -> LockedMessage | None:
        """Return the next message for a worker that has ended one quickly; in a thread."""
        return None

    def _ahead(self) -> Iterable[LockedMessage]:
        """Return messages that may be next, to be looked up together; in a thread."""
        return ()

    # ---------------------------------------------------------------- the beginning and the end

    async def _work_shielded(self, over: anyio.CancelScope) -> None:
        # Finished messages are not settled yet, so renew their locks.
        with anyio.CancelScope(shield=True):
            await self._or_fail(self._prepare_and_work)
        over.cancel()

    async def _prepare_and_work(self) -> None:
        # Find errors that would otherwise come later, before anything is locked.
        with self._stoppable():
            for pool in self._pools.values():
                await pool.warm(1)
            if self._remembers_for is not None:
                await anyio.to_thread.run_sync(self._tables.forget_done, self._remembers_for)
        await self._work()

    def _raise_error(self) -> None:
        error = self._error
        if error is not None and not isinstance(error, Exception):  # it would end the loop, and not only this run
            error = RuntimeError(f"{type(error).__name__} ended the run.")
            error.__cause__ = self._error
        if error is not None:
            error.add_note(f"Until then: {self.report}.")
            raise error

    def _stop(self) -> None:
        self._is_stopping = True
        for scope in tuple(self._until_stopped):
            scope.cancel()
        self._notify()

    def _fail(self, error: BaseException) -> None:
        """Stop, and raise this error at the end. The first error counts."""
        self._error = self._error or error
        self._stop()

    async def _or_fail(self, task: Callable[..., Awaitable[None]], *args: object) -> None:
        try:
            await task(*args)
        except BaseException as error:  # noqa: BLE001 (the other tasks settle finished messages; then it is raised)
            self._fail(error)
        self._notify()

    @contextmanager
    def _stoppable(self) -> Generator[anyio.CancelScope]:
        """Open a block that is cancelled when the run is stopped, unless it has left ``_until_stopped`` before."""
        with anyio.CancelScope() as scope:
            self._until_stopped.add(scope)
            if self._is_stopping:
                scope.cancel()
            try:
                yield scope
            finally:
                self._until_stopped.discard(scope)

    def _notify(self) -> None:
        """Wake all tasks that wait for a change."""
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    # ---------------------------------------------------------------- problems

    def _note_reachable(self, problem: str | None = None) -> None:
        self._problem, self._pause, self._was_reached = problem, _MIN_PAUSE, True

    async def _survive(self, error: Exception) -> None:
        """Wait before the next attempt, twice as long each time up to 30 seconds, and show the error in the status.

        Only a run without an end survives, once Service Bus was reached. Then no error ends it: even a refusal may
        pass, as that of a credential or of a disabled entity does. The processors of Microsoft's SDKs also continue.
        """
        if self._options.max_wait is not None or not self._was_reached:
            raise error
        self._problem = f"It is tried again: {type(error).__name__}: {explained(error)[:300]}"
        self._pause = min(self._pause * 2, _MAX_PAUSE)
        with self._stoppable():
            await anyio.sleep(self._pause)

    # ---------------------------------------------------------------- one message

    @property
    def _left(self) -> int | None:
        """Return how many messages may still be taken; None for any number."""
        maximum = self._options.max_messages
        return None if maximum is None else max(0, maximum - self._taken)

    @contextmanager
    def _lease(self, worker: int, session_id: str | None = None) -> Generator[Lease]:
        place = f"{consumer()}/{worker + 1}", self._place.address
        lease = self._leases[worker] = Lease(*place, self._clock.now(), session_id)
        try:
            yield lease
        finally:
            lease.ended = self._clock.now()
            self._ended_leases.append(self._leases.pop(worker))

    @contextmanager
    def _working(self, lease: Lease, message: LockedMessage) -> Generator[None]:
        lease.working_on, lease.working_since = message.sequence_number, self._clock.now()
        yield
        lease.count, lease.last_sequence_number = lease.count + 1, message.sequence_number
        lease.working_on = lease.working_since = None

    async def _wait_for_pace(self, begun: int = 0) -> bool:
        """Wait until one more message may be begun, after others that did not wait. Return False at a stop."""
        async with self._pace_turn:
            with self._stoppable():
                if begun:
                    await self._pace.wait(begun)
                await self._pace.wait(1)
        return not self._is_stopping

    async def _call(self, lease: Lease, message: LockedMessage, ends: deque[EndedCall]) -> int:
        """Have the function called, in a thread also for the next messages. Return for how many that did not wait.

        The run does not let it be cancelled: a thread cannot be ended, and a message in work must not be released.
        """
        if not self._is_async:
            return await anyio.to_thread.run_sync(self._call_in_thread, lease, message, ends, limiter=self._threads)
        ended = None
        if self._remembers_for is not None:
            known = await anyio.to_thread.run_sync(ends_before, self._tables, self._remembers_for, message)
            ended = known[message.lock_token]
        if ended is None:
            with self._working(lease, message):
                ended = await call_on_loop(self._function, message, self._clock)
        ends.append(ended)
        return 0

    def _call_in_thread(self, lease: Lease, first: LockedMessage, ends: deque[EndedCall]) -> int:
        rate, until = self._options.rate, time.monotonic() + _HOP_SECONDS
        most = math.inf if rate is None else rate * _HOP_SECONDS
        message, count = first, -1
        known: Mapping[UUID, EndedCall | None] = {}
        while message is not None and not self._is_stopping:
            if self._remembers_for is not None and message.lock_token not in known:
                known = ends_before(self._tables, self._remembers_for, message, self._ahead())
            ended = known.get(message.lock_token)
            if ended is None:
                with self._working(lease, message):
                    ended = call(self._function, message, self._clock)
                then = self._policy.row(ended.end).then
                if then is Then.STOP or (then is Then.RAISE and ended.error is not None):
                    self._is_stopping = True  # at once: the loop hears of it later
            ends.append(ended)
            count += 1
            message = self._next() if count + 1 < most and time.monotonic() < until else None
        return max(count, 0)

    def _note_end(self, ended: EndedCall) -> None:
        """Count a function that has ended, and stop the run if the policy says so."""
        if ended.done_at is not None:
            self._repeated += 1
            return
        self._ends[ended.end] += 1
        then = self._policy.row(ended.end).then
        if then is Then.STOP:
            self._stop()
        elif then is Then.RAISE and ended.error is not None:
            self._fail(ended.error)

    def _note_outcome(self, ended: EndedCall, outcome: Outcome) -> None:
        if ended.index is None:
            ended.index, self._noted = self._noted, self._noted + 1
            if self._options.progress is not None:
                self._options.progress(1)
        else:  # it was not settled before
            self._not_settled -= 1
        self._tally.note(ended.index, outcome)
        self._not_settled += not outcome.ok

    # ---------------------------------------------------------------- settling

    def _decision(self, ended: EndedCall) -> Decision:
        """Return the decision for a message. One whose work was done before is completed."""
        return Complete() if ended.done_at is not None else self._policy.row(ended.end).decision_for(ended.fault)

    def _returns(self, ended: EndedCall) -> bool:
        return isinstance(self._decision(ended), (Abandon, Release))

    async def _remember(self, ends: Iterable[EndedCall]) -> None:
        """Remember messages whose work is done, before :meth:`_settle`, which remembers those with an envelope."""
        rows = self._policy.rows.items()
        done = {end for end, row in rows if isinstance(row.decision, Complete) and row.envelope_to is None}
        await self._write_down([ended.message for ended in ends if ended.end in done and ended.done_at is None])

    async def _write_down(self, done: Sequence[LockedMessage]) -> None:
        if self._remembers_for is not None and done:
            try:
                await anyio.to_thread.run_sync(self._tables.remember_done, done)
            except Exception as error:  # noqa: BLE001 (a full disk, a deleted file)
                # The error ends the run. The work is done nevertheless, and a completed message is not delivered again.
                self._fail(error)

    async def _settle(self, batch: LockedBatch, ends: Sequence[EndedCall]) -> list[Outcome]:
        # A message whose envelope was not confirmed is not settled: the refusal is its outcome.
        outcomes = await send_envelopes(self._policy, self._pools, self._place.namespace.host, batch, ends)
        refused = [ended for ended in ends if ended in outcomes]
        decisions = {ended: self._decision(ended) for ended in ends if ended not in outcomes}
        # With its envelope sent, the work of a message that is completed now is done.
        completed = [ended for ended, decision in decisions.items() if isinstance(decision, Complete)]
        await self._write_down([ended.message for ended in completed if ended.is_enveloped])
        broken: list[Exception] = []
        outcomes |= await settle_all(batch, decisions, broken)
        if self._options.redelivers:
            await settle_all(batch, dict.fromkeys(refused, Abandon()), broken)
        for error in broken:
            self._fail(error)
        return [explained_end(outcomes[ended], ended) for ended in ends]

    # ---------------------------------------------------------------- calls whose settlement was lost

    def _keep_lost(self, ended: EndedCall) -> None:
        """Keep a call without the content of its message."""
        message = ended.message
        bare = replace(message, body=b"", application_properties={}, extras={})
        self._lost.pop(message.sequence_number, None)
        self._lost[message.sequence_number] = replace(ended, message=bare, error=None)
        if len(self._lost) > _LOST_KEPT:
            del self._lost[next(iter(self._lost))]

    def _take_lost(self, message: LockedMessage) -> EndedCall | None:
        """Return the call of a message that has come again; None if there was none."""
        ended = self._lost.pop(message.sequence_number, None)
        if ended is None or ended.message.enqueued_time != message.enqueued_time:
            return None
        return replace(ended, message=message)
