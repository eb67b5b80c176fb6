"""Batches and sessions of locked messages, for synchronous code."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import warnings
import weakref
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, overload
from weakref import WeakSet

from sbnotebook.analysis import query, tables
from sbnotebook.analysis.frames import to_arrow
from sbnotebook.analysis.shown import Shown, Table
from sbnotebook.client.choosing import Choice, chosen_of
from sbnotebook.client.coercions import address, dead_letter, duration
from sbnotebook.client.plan import Plan
from sbnotebook.client.portal import only_frames_of_the_user, portal, run
from sbnotebook.client.present import present_in
from sbnotebook.client.verbs import SdkNames, mirrors
from sbnotebook.errors import BatchClosedError
from sbnotebook.model import (
    Abandon,
    Complete,
    Decision,
    Defer,
    LockedMessage,
    OutcomeStatus,
    Release,
    Report,
)
from sbnotebook.settlement import (
    DEFAULT_MAX_HELD,
    AsyncEntity,
    AsyncNamespace,
    LockEvent,
    SessionBatch,
    SessionState,
    receive_deferred_of,
)
from sbnotebook.settlement import LockedBatch as AsyncLockedBatch

_NOT_HELD: Final = (OutcomeStatus.LOCK_LOST, OutcomeStatus.ALREADY_SETTLED, OutcomeStatus.NOT_FOUND)
_OPEN: Final[WeakSet[LockedBatch]] = WeakSet()
"""Open batches, which are closed when the interpreter ends."""


class Keeper:
    """A task of the background loop that holds an asynchronous batch open.

    Args:
        batch: not open yet.

    Raises:
        Exception: what opening the batch raises.
    """

    def __init__(self, batch: AsyncLockedBatch) -> None:
        self._batch = batch
        self._opened: Future[None] = Future()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._close = asyncio.Event()
        self._is_told = False
        self._process = os.getpid()
        self._ended = portal().start_task_soon(self._hold)
        try:
            self._opened.result()
        except BaseException:  # also an interrupt: the batch must not stay open unseen
            self._tell_to_close()
            raise

    def close(self, timeout: float | None = None) -> None:
        """Close the batch and wait until its messages are released."""
        self._tell_to_close()
        self._ended.result(timeout)

    def abandon(self) -> None:
        """Close a batch that has no references any more, and warn. Any thread may call this; it does not wait."""
        if os.getpid() != self._process:  # the child of a fork: the batch is the parent's
            return
        self._tell_to_close()
        warnings.warn(
            f"A batch of {self._batch.address} was forgotten while it was open: its {len(self._batch.messages):,} "
            "messages are released. Close it, or lock messages in a with statement.",
            ResourceWarning,
            stacklevel=2,
        )

    async def _hold(self) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            with only_frames_of_the_user():
                async with self._batch:
                    self._opened.set_result(None)
                    if not self._is_told:
                        await self._close.wait()
        except BaseException as error:
            if not self._opened.done():
                self._opened.set_exception(error)
                return
            raise

    def _tell_to_close(self) -> None:
        # Not through the portal: it waits for the loop, and the loop itself may collect a forgotten batch.
        self._is_told = True
        if self._loop is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended, and the batch with it
                self._loop.call_soon_threadsafe(self._close.set)


class LockedBatch(Shown, SdkNames):
    """Messages that are held under locks, renewed in the background until they are settled or the batch is closed.

    Closing releases unsettled messages, which does not raise their delivery counts. Made by ``entity.lock(…)``. A batch
    without references closes itself, with a ResourceWarning.

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
        self._forgotten.atexit = False  # close_batches closes open batches as the interpreter ends
        self._open = True
        _OPEN.add(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    @mirrors(AsyncLockedBatch.messages)
    def messages(self) -> tuple[LockedMessage, ...]:
        return self._batch.messages

    @property
    @mirrors(AsyncLockedBatch.lost)
    def lost(self) -> tuple[int, ...]:
        return self._batch.lost

    @property
    @mirrors(AsyncLockedBatch.renewal_error)
    def renewal_error(self) -> str | None:
        return self._batch.renewal_error

    @property
    @mirrors(AsyncLockedBatch.status)
    def status(self) -> LockEvent:
        return self._batch.status

    @property
    @mirrors(AsyncLockedBatch.events)
    def events(self) -> tuple[LockEvent, ...]:
        return self._batch.events

    @mirrors(AsyncLockedBatch.watch)
    def watch(self, watcher: Callable[[LockEvent], None]) -> Callable[[], None]:
        return self._batch.watch(watcher)

    @property
    @mirrors(AsyncLockedBatch.is_open)
    def is_open(self) -> bool:
        return self._batch.is_open

    @property
    @mirrors(AsyncLockedBatch.lock_ends)
    def lock_ends(self) -> dict[int, datetime]:
        return self._batch.lock_ends

    @property
    @mirrors(AsyncLockedBatch.renew_until)
    def renew_until(self) -> datetime:
        return self._batch.renew_until

    def extend(self, renew_for: str | timedelta) -> datetime:
        """Renew the locks for longer.

        Args:
            renew_for: for how long at least, from now, such as ``"30m"``; never for less than before.

        Returns:
            When renewing stops.
        """
        return portal().call(self._batch.extend, duration(renew_for))

    def receive(self, count: int | None = 10, *, max_wait: float | str | timedelta = 5.0) -> tuple[LockedMessage, ...]:
        """Lock more messages.

        Args:
            count: how many at most; None for all that come, up to 50,000.
            max_wait: seconds to wait for the first, or a duration such as ``"1m"``.

        Returns:
            The messages that were locked by this call; fewer than asked for when the entity has no more.

        Raises:
            BatchClosedError: the batch is closed.
        """
        wait = duration(max_wait).total_seconds()
        return run(self._batch.receive, DEFAULT_MAX_HELD if count is None else count, max_wait=wait)

    def plan(self, decision: Decision, messages: Choice | None = None, *, where: str | None = None) -> Plan:
        """Plan to settle messages of this batch.

        Args:
            decision: the action.
            messages: which ones, as for :meth:`sbnotebook.client.Entity.pick`, such as one message or a list of
                sequence numbers; all that are held by default.
            where: of these, only those for which this SQL expression is true.

        Raises:
            BatchClosedError: the batch is closed, and holds no messages.
            DecisionError: a message is not held here, or the decision is not possible.
        """
        if not self._open:
            raise BatchClosedError(
                f"This batch of {self.address} is closed and holds no messages, so nothing was done: lock them again."
            )
        meant = chosen_of(self.messages, messages, self.address, LockedMessage)
        chosen = query.where(meant, where)
        plan = self._entity.plan(self._batch, decision, chosen)
        return Plan(plan, keeps=self, receivers=None if chosen or where is None else partial(_present, meant))

    def complete(self, messages: Choice | None = None, *, where: str | None = None) -> Report:
        """Complete messages, which removes them. Arguments as for :meth:`plan`."""
        return self.plan(Complete(), messages, where=where).apply()

    def abandon(
        self,
        messages: Choice | None = None,
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
        return self.plan(Abandon(duration(delay)), messages, where=where).apply()

    def dead_letter(
        self,
        messages: Choice | None = None,
        *,
        where: str | None = None,
        reason: str | None = None,
        description: str | None = None,
        error_description: str | None = None,
    ) -> Report:
        """Dead-letter messages with a reason and a description. Other arguments as for :meth:`plan`.

        Args:
            messages: which ones, all that are held by default.
            where: of these, only those for which this SQL expression is true.
            reason: short, and the same for the same cause.
            description: the fault of the message.
            error_description: the name of ``description`` in the SDK, which is accepted, too.
        """
        return self.plan(dead_letter(reason, description, error_description), messages, where=where).apply()

    def defer(
        self,
        messages: Choice | None = None,
        *,
        where: str | None = None,
        wake_after: str | timedelta | None = None,
        wake_to: str | None = None,
    ) -> Report:
        """Defer messages: from then on they can only be received by sequence number.

        Args:
            messages: which ones, all that are held by default.
            where: of these, only those for which this SQL expression is true.
            wake_after: when a wake-up message for each of them becomes active, such as ``"1h"``; None for none.
            wake_to: the queue or topic for the wake-up messages, the queue itself by default.
        """
        return self.plan(Defer(duration(wake_after), address(wake_to)), messages, where=where).apply()

    def wake(self, message: LockedMessage) -> LockedMessage | None:
        """Lock the deferred message that a wake-up message is for: settle it, and then complete the wake-up.

        Returns:
            The message; None if it is no longer deferred, or if ``message`` is not a wake-up message.
        """
        return run(receive_deferred_of, self._batch, message)

    @mirrors(AsyncLockedBatch.let_lapse)
    def let_lapse(self, messages: Choice) -> datetime | None:
        return portal().call(self._batch.let_lapse, chosen_of(self.messages, messages, self.address, LockedMessage))

    def release(self, messages: Choice | None = None, *, where: str | None = None) -> Report:
        """Release messages, which does not raise their delivery counts. Arguments as for :meth:`plan`."""
        return self.plan(Release(), messages, where=where).apply()

    @property
    def release_report(self) -> Report | None:
        """Return the outcomes of the messages that were still held as the batch was closed; None while it is open."""
        return self._batch.release_report

    def close(self) -> None:
        """Release the messages still held, and close the receiver; warn if some could not be released.

        Closing twice does nothing more.
        """
        if self._open:
            self._open = False
            _OPEN.discard(self)
            self._forgotten.detach()
            self._keeper.close()
            self._warn_of_unreleased()

    def is_of(self, namespace: AsyncNamespace) -> bool:
        """Return True when its messages are of this namespace."""
        return self._entity.namespace is namespace

    def _warn_of_unreleased(self) -> None:
        report = self._batch.release_report or Report()
        # A lost lock does not hold its message any longer.
        held = [outcome for outcome in report.failures if outcome.status not in _NOT_HELD]
        ends = [end for outcome in held if (end := self._batch.locked_until(outcome.sequence_number or 0))]
        if ends:
            warnings.warn(
                f"{len(held):,} of {len(report):,} messages of {self.address} could not be released: their locks last "
                f"until {max(ends):%Y-%m-%d %H:%M:%S} UTC, and then they come again with a delivery count one higher.",
                stacklevel=3,
            )

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[LockedMessage]:
        return iter(self.messages)

    @overload
    def __getitem__(self, index: int) -> LockedMessage: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[LockedMessage, ...]: ...
    def __getitem__(self, index: int | slice) -> LockedMessage | tuple[LockedMessage, ...]:
        return self.messages[index]

    def _table(self, most: int) -> Table:
        return tables.messages_table(_Renewed(self), most, self._caption, columns=tables.LOCKED_COLUMNS)

    @property
    def _caption(self) -> str:
        lost = f", {len(self.lost):,} locks lost" if self.lost else ""
        failing = f", {self.renewal_error}" if self.renewal_error else ""
        return f"Locked in {self.address}{lost}{failing}"


async def _present(messages: Sequence[LockedMessage]) -> str:
    return present_in(to_arrow(messages))


class _Renewed(Sequence[LockedMessage]):
    """The messages of a batch with the ends of their locks as they were renewed last, copied as they are asked for."""

    def __init__(self, batch: LockedBatch) -> None:
        self._messages, self._ends = batch.messages, batch.lock_ends

    @overload
    def __getitem__(self, index: int) -> LockedMessage: ...
    @overload
    def __getitem__(self, index: slice) -> list[LockedMessage]: ...
    def __getitem__(self, index: int | slice) -> LockedMessage | list[LockedMessage]:
        if isinstance(index, slice):
            return [self._renewed(message) for message in self._messages[index]]
        return self._renewed(self._messages[index])

    def _renewed(self, message: LockedMessage) -> LockedMessage:
        return message.with_changes(locked_until=self._ends.get(message.sequence_number, message.locked_until))

    def __len__(self) -> int:
        return len(self._messages)


class LockedSession(LockedBatch):
    """A session that is held alone, under a lock that is renewed in the background until it is closed.

    A batch whose messages are those of the session: lock them with ``receive``. Made by ``entity.session(…)`` and
    ``entity.next_session(…)``.

    Args:
        entity: where the session is.
        session: the asynchronous session, not open yet.
    """

    def __init__(self, entity: AsyncEntity, session: SessionBatch) -> None:
        self._session = session
        super().__init__(entity, session)

    @property
    @mirrors(SessionBatch.session_id)
    def session_id(self) -> str:
        return self._session.session_id

    @property
    @mirrors(SessionBatch.is_lost)
    def is_lost(self) -> bool:
        return self._session.is_lost

    @mirrors(SessionBatch.get_state)
    def get_state(self) -> bytes | None:
        return run(self._session.get_state)

    @mirrors(SessionBatch.get_state_text)
    def get_state_text(self) -> str | None:
        return run(self._session.get_state_text)

    @mirrors(SessionBatch.get_state_json)
    def get_state_json(self) -> Any:
        return run(self._session.get_state_json)

    @mirrors(SessionBatch.set_state)
    def set_state(self, state: SessionState) -> None:
        run(self._session.set_state, state)

    @property
    def _caption(self) -> str:
        lost = ", its lock is lost" if self.is_lost else ""
        return f"{super()._caption}, session {self.session_id!r}{lost}"


def close_batches(namespace: AsyncNamespace | None = None) -> None:
    """Close the batches that are still open."""
    with contextlib.ExitStack() as all_of_them:
        for batch in list(_OPEN):
            if namespace is None or batch.is_of(namespace):
                all_of_them.callback(batch.close)


atexit.register(close_batches)
if hasattr(os, "register_at_fork"):
    # They are the parent's: the child of a fork does not have the thread that holds them.
    os.register_at_fork(after_in_child=_OPEN.clear)
