"""Consuming an entity with a function, settling each message by how the function ended."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import anyio
import anyio.to_thread

from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    Decision,
    LockedMessage,
    Outcome,
    OutcomeStatus,
    Report,
    Resubmit,
)
from sbnotebook.settlement.connection import scrub
from sbnotebook.settlement.lock import LockedBatch
from sbnotebook.settlement.pace import Pace
from sbnotebook.settlement.plan import Limits, refuse_coroutine_function
from sbnotebook.settlement.settle import Progress, check_decision, outcome_for

__all__ = ["Policy", "Processor", "RejectMessage", "process"]

Processor = Callable[[LockedMessage], None]
"""Does the work for one message; raises :class:`RejectMessage` when delivering it again would not help."""

_WINDOW: Final = 500
"""Messages that are locked at once."""
_MAX_DESCRIPTION: Final = 1_000


class RejectMessage(Exception):  # noqa: N818 (a decision that a function takes, not an error of the program)
    """Raised by a user's function: the message cannot be processed, now or later.

    Args:
        reason: short and the same for the same cause, because messages are grouped by it.
        description: what is wrong with this message.
    """

    def __init__(self, reason: str, description: str | None = None) -> None:
        super().__init__(reason if description is None else f"{reason}: {description}")
        self.reason = reason
        self.description = description


@dataclass(frozen=True, slots=True)
class Policy:
    """What happens to a message by how the function ended; each row can be changed.

    Args:
        completed: the function returned.
        failed: the function raised something else than RejectMessage. These messages are held until the end, so that
            one that is abandoned does not come again in the same run.

    A rejected message is dead-lettered with its reason and description.

    Raises:
        DecisionError: a resubmit, which is not a settlement.
    """

    completed: Decision = field(default_factory=Complete)
    failed: Decision = field(default_factory=Abandon)

    def __post_init__(self) -> None:
        if isinstance(self.completed, Resubmit) or isinstance(self.failed, Resubmit):
            raise DecisionError("A policy settles messages; resubmit them with a plan of their own.")


@dataclass(frozen=True, slots=True)
class _End:
    """How the function ended for one message."""

    message: LockedMessage
    decision: Decision
    error: str | None = None


async def process(
    batch: LockedBatch,
    function: Processor,
    *,
    policy: Policy,
    limits: Limits,
    max_messages: int | None = None,
    max_wait: float = 2.0,
    progress: Progress | None = None,
) -> Report:
    """Lock messages, run the function on one after the other, and settle each only after the function ended.

    The function runs in a thread, so that locks are renewed while it works. An interrupt takes effect when it has
    ended for the message that it works on; what was not settled by then is released.

    Args:
        batch: on the entity, not open yet.
        function: the work.
        policy: what each end means.
        limits: settlements in flight, and messages a second.
        max_messages: stop after so many, None for when the entity is empty.
        max_wait: seconds to wait for a message until the entity counts as empty.
        progress: told of every message that is finished.

    Returns:
        An outcome for each message. Where the function failed, its description says how.

    Raises:
        DecisionError: the policy cannot be carried out there, or the function is an async one; nothing was done.
    """
    refuse_coroutine_function(function, "The function")
    check_decision(policy.completed, batch.address)
    check_decision(policy.failed, batch.address)
    run = _Run(batch, function, policy, limits, progress)
    async with batch:
        while max_messages is None or run.count < max_messages:
            wanted = _WINDOW if max_messages is None else min(_WINDOW, max_messages - run.count)
            locked = await batch.receive(wanted, max_wait=max_wait)
            if not locked:
                break
            await run.work(locked)
        await run.settle_failed()
    return Report(run.outcomes)


class _Run:
    """The state of one call of :func:`process`."""

    def __init__(
        self, batch: LockedBatch, function: Processor, policy: Policy, limits: Limits, progress: Progress | None
    ) -> None:
        self.outcomes: list[Outcome] = []
        self._batch = batch
        self._function = function
        self._policy = policy
        self._limits = limits
        self._pace = Pace(limits.rate)
        self._progress = progress
        self._failed: list[_End] = []

    @property
    def count(self) -> int:
        """Messages that the function was called with."""
        return len(self.outcomes) + len(self._failed)

    async def work(self, locked: Sequence[LockedMessage]) -> None:
        """Run the function on a few messages and settle these, until all are through."""
        few = min(self._limits.max_in_flight, self._pace.at_once or self._limits.max_in_flight)
        for start in range(0, len(locked), few):
            part = locked[start : start + few]
            await self._pace.wait(len(part))
            ends = await self._run_function(part)
            self._failed += [end for end in ends if end.error is not None]
            await self._settle([end for end in ends if end.error is None])

    async def settle_failed(self) -> None:
        """Settle the messages for which the function failed."""
        await self._settle(self._failed)
        self._failed = []

    async def _run_function(self, messages: Sequence[LockedMessage]) -> list[_End]:
        stopped = threading.Event()

        def work() -> list[_End]:
            return [self._end_of(message) for message in messages if not stopped.is_set()]

        try:
            return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
        finally:
            stopped.set()

    def _end_of(self, message: LockedMessage) -> _End:
        try:
            self._function(message)
        except RejectMessage as rejection:
            description = (rejection.description or "")[:_MAX_DESCRIPTION] or None
            return _End(message, DeadLetter(rejection.reason, description))
        except Exception as error:  # noqa: BLE001 (a user's function may raise anything; the policy says what follows)
            return _End(message, self._policy.failed, f"The function failed: {type(error).__name__}: {error}")
        return _End(message, self._policy.completed)

    async def _settle(self, ends: Sequence[_End]) -> None:
        by_decision: dict[Decision, list[_End]] = defaultdict(list)
        for end in ends:
            by_decision[end.decision].append(end)
        for decision, group in by_decision.items():
            messages = [end.message for end in group]
            try:
                settled: Iterable[Outcome] = await self._batch.settle(
                    decision, messages, max_in_flight=self._limits.max_in_flight, progress=self._progress
                )
            except DecisionError as error:  # a message that is rejected in a dead-letter queue: it stays there
                settled = [outcome_for(m, decision, OutcomeStatus.FAILED, str(error)) for m in messages]
            self.outcomes += [_with_error(o, end.error) for o, end in zip(settled, group, strict=True)]


def _with_error(outcome: Outcome, error: str | None) -> Outcome:
    return outcome if error is None else replace(outcome, description=scrub(error)[:_MAX_DESCRIPTION])
