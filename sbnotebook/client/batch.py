"""A held batch of messages, for synchronous code."""

from __future__ import annotations

import atexit
import os
import warnings
import weakref
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Final, Self
from weakref import WeakSet

from sbnotebook.analysis import query, tables
from sbnotebook.client.durations import duration
from sbnotebook.client.keeper import Keeper
from sbnotebook.client.plan import Plan
from sbnotebook.client.portal import portal, run
from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    Decision,
    Defer,
    EntityAddress,
    LockedMessage,
    OutcomeStatus,
    Release,
    Report,
)
from sbnotebook.settlement.deferring.wake_up import WakeUp, wake
from sbnotebook.settlement.entity import AsyncEntity
from sbnotebook.settlement.locking.lock import LockedBatch as AsyncLockedBatch
from sbnotebook.settlement.locking.lock_events import LockEvent, LockWatcher
from sbnotebook.settlement.namespace import AsyncNamespace

__all__ = ["LockedBatch", "close_batches"]

_GIVEN_BACK: Final = (OutcomeStatus.LOCK_LOST, OutcomeStatus.ALREADY_SETTLED, OutcomeStatus.NOT_FOUND)
_OPEN: Final[WeakSet[LockedBatch]] = WeakSet()
"""Batches that are open, to be closed when the interpreter ends."""


class LockedBatch:
    """Messages that are held under locks, renewed in the background until they are settled or the batch is closed.

    Closing releases what was not settled, which does not raise a delivery count. Made by ``entity.lock(…)``. A batch
    that nobody holds any more is closed by itself, with a ResourceWarning.

    Args:
        entity: where the messages are.
        batch: the asynchronous batch, not open yet.
    """

    def __init__(self, entity: AsyncEntity, batch: AsyncLockedBatch) -> None:
        self.address = entity.address
        self._entity = entity
        self._batch = batch
        self._keeper = Keeper(batch)
        self._forgotten = weakref.finalize(self, self._keeper.abandon)
        self._forgotten.atexit = False  # what is open as the interpreter ends is closed by close_batches
        self._open = True
        _OPEN.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def messages(self) -> tuple[LockedMessage, ...]:
        """The messages that are held now."""
        return self._batch.messages

    @property
    def lost(self) -> tuple[int, ...]:
        """Sequence numbers of messages whose lock ended before they were settled."""
        return self._batch.lost

    @property
    def renewal_error(self) -> str | None:
        """What is wrong with renewing, in a sentence; None when all is well."""
        return self._batch.renewal_error

    @property
    def status(self) -> LockEvent:
        """How renewing goes: see :attr:`sbnotebook.settlement.locking.lock.LockedBatch.status`."""
        return self._batch.status

    @property
    def events(self) -> tuple[LockEvent, ...]:
        """What has happened to the locks until now, lost ones among it."""
        return self._batch.events

    def watch(self, watcher: LockWatcher) -> Callable[[], None]:
        """Have each event told at once, in the library's own thread; gives a function that ends it.

        Args:
            watcher: called with each event; it must be quick, and must not use the batch.
        """
        return self._batch.watch(watcher)

    @property
    def is_open(self) -> bool:
        """Whether messages can be held: False when it is closed."""
        return self._batch.is_open

    @property
    def lock_ends(self) -> dict[int, datetime]:
        """When the locks that are held end by this machine's clock, as renewed last, by sequence number."""
        return self._batch.lock_ends

    @property
    def renew_until(self) -> datetime:
        """When renewing stops; the locks end soon after."""
        return self._batch.renew_until

    def extend(self, renew_for: str | timedelta) -> datetime:
        """Renew the locks for longer.

        Args:
            renew_for: for how long at least, from now, such as ``"30m"``; never for less than before.

        Returns:
            When renewing stops.
        """
        return portal().call(self._batch.extend, duration(renew_for))

    def receive(self, count: int, *, max_wait: float = 5.0) -> tuple[LockedMessage, ...]:
        """Lock more messages: see :meth:`sbnotebook.settlement.locking.lock.LockedBatch.receive`."""

        async def receive() -> tuple[LockedMessage, ...]:
            return await self._batch.receive(count, max_wait=max_wait)

        return run(receive)

    def plan(
        self, decision: Decision, messages: Iterable[LockedMessage] | None = None, *, where: str | None = None
    ) -> Plan:
        """A plan to settle messages of this batch.

        Args:
            decision: what is to be done.
            messages: which ones, all that are held by default.
            where: of these, only those for which this SQL expression is true.
        """
        chosen = query.where(tuple(self.messages if messages is None else messages), where)
        return Plan(self._entity.plan(self._batch, decision, chosen), keeps=self)

    def complete(self, messages: Iterable[LockedMessage] | None = None, *, where: str | None = None) -> Report:
        """Complete messages: they are done with and removed. Arguments as for :meth:`plan`."""
        return self.plan(Complete(), messages, where=where).apply()

    def abandon(
        self,
        messages: Iterable[LockedMessage] | None = None,
        *,
        where: str | None = None,
        delay: str | timedelta | None = None,
    ) -> Report:
        """Abandon messages: they are delivered again, with a delivery count one higher.

        Args:
            messages: which ones, all that are held by default.
            where: of these, only those for which this SQL expression is true.
            delay: hold them for so long first, with their locks renewed, such as ``"2m"``. An interrupt meanwhile
                leaves them held.
        """
        decision = Abandon(duration(delay) if delay is not None else None)
        return self.plan(decision, messages, where=where).apply()

    def dead_letter(
        self,
        messages: Iterable[LockedMessage] | None = None,
        *,
        where: str | None = None,
        reason: str | None = None,
        description: str | None = None,
    ) -> Report:
        """Dead-letter messages with a reason and a description."""
        return self.plan(DeadLetter(reason, description), messages, where=where).apply()

    def defer(
        self,
        messages: Iterable[LockedMessage] | None = None,
        *,
        where: str | None = None,
        wake_after: str | timedelta | None = None,
        wake_to: str | None = None,
    ) -> Report:
        """Defer messages: from then on they are received by their sequence numbers only.

        Args:
            messages: which ones, all that are held by default.
            where: of these, only those for which this SQL expression is true.
            wake_after: when a wake-up message for each of them becomes active, such as ``"1h"``; None for none.
            wake_to: the queue or topic for the wake-up messages, the queue itself by default.
        """
        after = duration(wake_after) if wake_after is not None else None
        to = EntityAddress.parse(wake_to) if wake_to is not None else None
        return self.plan(Defer(after, to), messages, where=where).apply()

    def wake(self, message: LockedMessage) -> LockedMessage | None:
        """Lock the deferred message that a wake-up message is for: settle it, and then complete the wake-up.

        Returns:
            The message; None when it is not deferred any more, or when ``message`` is no wake-up message.
        """
        wake_up = WakeUp.of(message)
        return run(wake, self._batch, wake_up) if wake_up else None

    def let_lapse(self, messages: Iterable[LockedMessage]) -> datetime | None:
        """Let go of messages without a word: see :meth:`sbnotebook.settlement.locking.lock.LockedBatch.let_lapse`."""
        return portal().call(self._batch.let_lapse, messages)

    def release(self, messages: Iterable[LockedMessage] | None = None, *, where: str | None = None) -> Report:
        """Release messages: they are given back as if they had not been delivered."""
        return self.plan(Release(), messages, where=where).apply()

    @property
    def release_report(self) -> Report | None:
        """How the messages were released that were still held as the batch was closed; None while it is open."""
        return self._batch.release_report

    def close(self) -> None:
        """Release what is still held and close the receiver; warn when that was not possible for some.

        Closing twice does nothing more.
        """
        if self._open:
            self._open = False
            _OPEN.discard(self)
            self._forgotten.detach()
            self._keeper.close()
            self._warn_of_unreleased()

    def is_of(self, namespace: AsyncNamespace) -> bool:
        """Whether its messages are of this namespace."""
        return self._entity.namespace is namespace

    def _warn_of_unreleased(self) -> None:
        report = self._batch.release_report or Report()
        # A lock that was lost is no lock that lasts.
        held = [outcome for outcome in report.failures if outcome.status not in _GIVEN_BACK]
        ends = [end for outcome in held if (end := self._batch.locked_until(outcome.sequence_number or 0))]
        if ends:
            warnings.warn(
                f"{len(held):,} of {len(report):,} messages of {self.address} could not be released: their locks last "
                f"until {max(ends):%Y-%m-%d %H:%M:%S} UTC, and then they come again with a delivery count one higher.",
                stacklevel=3,
            )

    def __len__(self) -> int:
        return len(self.messages)

    def __repr__(self) -> str:
        return tables.messages_text(self._renewed, self._caption, columns=tables.LOCKED_COLUMNS)

    def _repr_html_(self) -> str:
        return tables.messages_html(self._renewed, self._caption, columns=tables.LOCKED_COLUMNS)

    @property
    def _renewed(self) -> list[LockedMessage]:
        """The messages with the ends of their locks as they were renewed last."""
        ends = self.lock_ends
        return [m.with_changes(locked_until=ends.get(m.sequence_number, m.locked_until)) for m in self.messages]

    @property
    def _caption(self) -> str:
        lost = f", {len(self.lost):,} locks lost" if self.lost else ""
        failing = f", {self.renewal_error}" if self.renewal_error else ""
        return f"Locked in {self.address}{lost}{failing}"


def close_batches(namespace: AsyncNamespace | None = None) -> None:
    """Close the batches that are still open.

    Args:
        namespace: only those of this namespace, None for all.
    """
    for batch in list(_OPEN):
        if namespace is None or batch.is_of(namespace):
            batch.close()


atexit.register(close_batches)
if hasattr(os, "register_at_fork"):
    # They are the parent's: the child of a fork does not have the thread that holds them.
    os.register_at_fork(after_in_child=_OPEN.clear)
