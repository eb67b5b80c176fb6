"""One run of ``process``: its options, and the state that its workers share."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final

import anyio
from azure.core.exceptions import AzureError

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, LockedMessage, Outcome
from sbnotebook.model.report import Tally
from sbnotebook.settlement.connecting.failures import explained
from sbnotebook.settlement.locking.renewal import Clock
from sbnotebook.settlement.memory.seen import key_of
from sbnotebook.settlement.pace import Pace
from sbnotebook.settlement.plan import Limits
from sbnotebook.settlement.processing.calls import EndedCall, FunctionCaller
from sbnotebook.settlement.processing.finish import Finisher
from sbnotebook.settlement.processing.policy import Policy, Then
from sbnotebook.settlement.processing.status import Leases
from sbnotebook.settlement.terms import Progress, check_wait

SERVICE_ERRORS: Final = (AzureError, OSError)
"""Errors of Service Bus, of the network and of credentials; the SDK's own are AzureErrors, too."""
_MIN_PAUSE: Final = 0.5
_MAX_PAUSE: Final = 30.0
"""Seconds between two attempts to reach Service Bus."""
_MAX_PROBLEM: Final = 300


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
        _check_calls(self.max_in_flight)
        Limits(rate=self.rate)  # raises for a number out of range
        if self.max_messages is not None and self.max_messages < 1:
            raise ConfigurationError("max_messages is 1 or more, or None for all.")
        if self.max_wait is not None:
            check_wait(self.max_wait)

    @property
    def redelivers(self) -> bool:
        """Tell whether Service Bus delivers a returned message again in the same run.

        A run that ends when the entity is empty holds returned messages back until then, so that each is tried once.
        Sessions are the exception: a message that is held back would block the rest of its session.
        """
        return self.max_wait is None or self.by_session


def _check_calls(at_once: object) -> None:
    """Refuse an invalid number of calls, such as ``"auto"``, which other actions take."""
    if not isinstance(at_once, int) or at_once < 1:
        raise ConfigurationError(
            "max_in_flight of process is a number, 1 or more: it counts the calls of your function. Settlements adapt "
            "to the network by themselves."
        )


class ConsumerRun:
    def __init__(
        self, entity: EntityAddress, options: Options, caller: FunctionCaller, finisher: Finisher, clock: Clock
    ) -> None:
        self.options = options
        self.caller = caller
        self.finisher = finisher
        self.clock = clock
        self.leases = Leases(entity)
        self.tally = Tally()
        self._changed = anyio.Event()
        self.is_stopping = False
        self.error: BaseException | None = None
        """The error that ended the run, and that is raised."""
        self.problem: str | None = None
        """The current problem, for the status."""
        self.taken = 0
        """Messages that were taken to have the function called."""
        self.repeated = 0
        self.not_settled = 0
        self._noted = 0
        self._pace = Pace(options.rate)
        self._pace_turn = anyio.Lock()
        self._pause = _MIN_PAUSE
        self._was_reached = False
        self._scopes: set[anyio.CancelScope] = set()

    # ---------------------------------------------------------------- how much to take

    @property
    def group_size(self) -> int:
        return min(self.caller.group_size, self._pace.at_once or self.caller.group_size)

    @property
    def left(self) -> int | None:
        """Return how many messages may still be taken; None for any number."""
        maximum = self.options.max_messages
        return None if maximum is None else max(0, maximum - self.taken)

    async def wait_for_pace(self, messages: Sequence[LockedMessage]) -> bool:
        """Wait until these messages may be begun. Return False if the run is stopped before that."""
        async with self._pace_turn:
            with self.until_stopped():
                await self._pace.wait(len(messages))
        return not self.is_stopping

    def key_of(self, message: LockedMessage) -> str:
        """Return a key that two deliveries of the same message share, so that one waits for the other."""
        return key_of(message) if self.caller.remembers else str(message.sequence_number)

    def notify(self) -> None:
        """Wake all tasks that wait for a change; on the loop of the run only."""
        changed, self._changed = self._changed, anyio.Event()
        changed.set()

    async def wait_for_change(self) -> None:
        await self._changed.wait()

    # ---------------------------------------------------------------- problems

    def note_reachable(self, problem: str | None = None) -> None:
        self.problem, self._pause, self._was_reached = problem, _MIN_PAUSE, True

    async def survive(self, error: Exception) -> None:
        """Wait before the next attempt, twice as long each time up to 30 seconds, and show the error in the status.

        Only a run without an end survives, once Service Bus was reached. Then no error ends it: even a refusal may
        pass, as that of a credential or of a disabled entity does. The processors of Microsoft's SDKs also continue.
        """
        if self.options.max_wait is not None or not self._was_reached:
            raise error
        self.problem = f"It is tried again: {type(error).__name__}: {explained(error)[:_MAX_PROBLEM]}"
        self._pause = min(self._pause * 2, _MAX_PAUSE)
        with self.until_stopped():
            await anyio.sleep(self._pause)

    # ---------------------------------------------------------------- stopping

    @contextmanager
    def until_stopped(self) -> Generator[anyio.CancelScope]:
        """Open a block that is cancelled when the run is stopped, unless :meth:`protect` was called for it before."""
        with anyio.CancelScope() as scope:
            self._scopes.add(scope)
            if self.is_stopping:
                scope.cancel()
            try:
                yield scope
            finally:
                self._scopes.discard(scope)

    def protect(self, scope: anyio.CancelScope) -> None:
        """Protect a block of :meth:`until_stopped` from now on: a stop waits for the work in it."""
        self._scopes.discard(scope)

    def stop(self) -> None:
        self.is_stopping = True
        self.caller.stop()
        for scope in tuple(self._scopes):
            scope.cancel()
        self.notify()

    def fail(self, error: BaseException) -> None:
        """Stop, and raise this error at the end. The first error counts."""
        self.error = self.error or error
        self.stop()

    # ---------------------------------------------------------------- finished work

    def note_end(self, worker: int, ended: EndedCall) -> None:
        """Count a function that has ended, and stop the run if the policy says so."""
        if ended.done_at is not None:
            self.repeated += 1
            return
        self.leases.ended_for(worker, ended.message.sequence_number, ended.end)
        then = self.options.policy.row(ended.end).then
        if then is Then.STOP:
            self.stop()
        elif then is Then.RAISE and ended.error is not None:
            self.fail(ended.error)

    def note_outcome(self, ended: EndedCall, outcome: Outcome) -> None:
        if ended.index is None:
            ended.index, self._noted = self._noted, self._noted + 1
            if self.options.progress is not None:
                self.options.progress(1)
        else:  # it was not settled before
            self.not_settled -= 1
        self.tally.note(ended.index, outcome)
        self.not_settled += not outcome.ok
        if self.finisher.error is not None:
            self.fail(self.finisher.error)
