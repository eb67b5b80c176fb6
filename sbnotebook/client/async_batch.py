"""Messages that plans settle: batches and sessions of locked ones, which a task holds open, and deferred ones."""

from __future__ import annotations

import asyncio
import atexit
import os
import weakref
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, cast, overload
from weakref import WeakSet

from sbnotebook.analysis import frames, query, tables
from sbnotebook.analysis.frames import to_arrow
from sbnotebook.analysis.tables import Shown, Table
from sbnotebook.client.async_plan import AsyncPlan
from sbnotebook.client.messages import Messages, present_in
from sbnotebook.client.portal import Keeper, blocking, run, warn
from sbnotebook.client.targets import Choice, address, chosen_of, dead_letter, duration
from sbnotebook.client.verbs import SdkNames, documented
from sbnotebook.errors import BatchClosedError
from sbnotebook.model import (
    Abandon,
    Complete,
    Decision,
    Defer,
    EntityAddress,
    LockedMessage,
    MessageState,
    OutcomeStatus,
    PeekedMessage,
    Release,
    Report,
)
from sbnotebook.settlement import (
    DEFAULT_MAX_HELD,
    DeferralEntry,
    Deferrals,
    LockEvent,
    PeekCursor,
    Progress,
    SessionBatch,
    SessionState,
)
from sbnotebook.settlement import AsyncEntity as Place
from sbnotebook.settlement import AsyncNamespace as Resources
from sbnotebook.settlement import LockedBatch as HeldBatch
from sbnotebook.settlement import Plan as InnerPlan

if TYPE_CHECKING:
    import pyarrow as pa

_OPEN: Final[WeakSet[AsyncLockedBatch]] = WeakSet()
"""Open batches, which are closed when the interpreter ends."""


@documented
class AsyncLockedBatch(Shown, SdkNames):
    """Messages that are held under locks, renewed in the background until they are settled or the batch is closed.

    Closing releases unsettled messages, which does not raise their delivery counts. Made by ``await entity.lock(…)``. A
    batch without references closes itself, with a ResourceWarning.
    """

    def __init__(self, place: Place, batch: HeldBatch, keeper: Keeper) -> None:
        self._place = place
        self._batch = batch
        self._keeper = keeper
        self._forgotten = weakref.finalize(self, keeper.abandon)
        self._forgotten.atexit = False  # open batches are closed as the interpreter ends
        self._open = True
        _OPEN.add(self)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def address(self) -> EntityAddress:
        """Return the address of the entity that holds the messages."""
        return self._place.address

    @property
    def messages(self) -> tuple[LockedMessage, ...]:
        """Return the messages that are held now, in the order in which they came."""
        return self._batch.messages

    @property
    def lost(self) -> tuple[int, ...]:
        """Return the sequence numbers of messages whose lock ended before they were settled."""
        return self._batch.table.lost

    @property
    def renewal_error(self) -> str | None:
        """Return the fault of renewing, in a sentence; None if there is none."""
        return self._batch.renewal.fault

    @property
    def status(self) -> LockEvent:
        """Return how renewing goes: well, late or failing and for which messages, or ended."""
        return self._batch.renewal.state

    @property
    def events(self) -> tuple[LockEvent, ...]:
        """Return the last thousand events of the locks, lost locks included."""
        return self._batch.renewal.events

    def watch(self, watcher: Callable[[LockEvent], None]) -> Callable[[], None]:
        """Call a function at each event of the locks, such as a lock that was lost or a renewal that fails.

        Args:
            watcher: is called on the event loop of the batch: it must be quick, and must not wait for the batch.

        Returns:
            A function that ends it.
        """
        return self._batch.renewal.watch(watcher)

    @property
    def is_open(self) -> bool:
        """Return True until the batch is closed."""
        return self._batch.is_open

    @property
    def lock_ends(self) -> dict[int, datetime]:
        """Return when each held lock ends, as last renewed, by sequence number and the clock of this machine."""
        return self._batch.lock_ends

    @property
    def renew_until(self) -> datetime:
        """Return when renewing stops; the locks end soon after."""
        return self._batch.renewal.until

    @property
    def release_report(self) -> Report | None:
        """Return the outcomes of the messages that were still held as the batch was closed; None while it is open."""
        return self._batch.release_report

    async def extend(self, renew_for: str | timedelta) -> datetime:
        """Renew the locks for longer.

        Args:
            renew_for: for how long at least, from now, such as ``"30m"``; never for less than before.

        Returns:
            When renewing stops.

        Raises:
            BatchClosedError: the batch is closed.
        """
        return self._batch.extend(duration(renew_for))

    async def receive(
        self, count: int | None = 10, *, max_wait: float | str | timedelta = 5.0
    ) -> tuple[LockedMessage, ...]:
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
        return await self._batch.receive(DEFAULT_MAX_HELD if count is None else count, max_wait=wait)

    async def plan(self, decision: Decision, messages: Choice | None = None, *, where: str | None = None) -> AsyncPlan:
        """Plan to settle messages of this batch.

        Args:
            decision: the action.
            messages: which ones, as for ``entity.pick``, such as one message or a list of sequence numbers. By default
                all that are held; those whose locks were lost since the last outcome end as LOCK_LOST.

        Raises:
            BatchClosedError: the batch is closed, and holds no messages.
            DecisionError: a message is not held here, or the decision is not possible.
        """
        if not self._open:
            raise BatchClosedError(
                f"This batch of {self.address} is closed and holds no messages, so nothing was done: lock them again."
            )

        def meant() -> tuple[list[LockedMessage], list[LockedMessage]]:
            held = self._chosen(self._batch.table.unsettled, messages)
            return held, query.where(held, where)

        held, chosen = await blocking(meant)
        plan = replace(self._place.plan(self._batch, decision, chosen), more=self._said_of_lost(chosen))
        present = partial(blocking, lambda: present_in(to_arrow(held)))
        return AsyncPlan(plan, keeps=self, receivers=None if chosen or where is None else present)

    def _said_of_lost(self, chosen: list[LockedMessage]) -> str:
        lost = {message.lock_token for message in tuple(self._batch.table.lost_messages.values())}
        count = sum(message.lock_token in lost for message in chosen)
        return f"{count:,} of them lost {'its lock' if count == 1 else 'their locks'}." if count else ""

    def _chosen(self, held: tuple[LockedMessage, ...], choice: Choice | None) -> list[LockedMessage]:
        lost = tuple(self._batch.table.lost_messages.values())
        return chosen_of(held, choice, self.address, LockedMessage, lost)

    async def complete(self, messages: Choice | None = None, *, where: str | None = None) -> Report:
        """Complete messages, which removes them. Arguments as for :meth:`plan`."""
        return await self._settle(Complete(), messages, where)

    async def abandon(
        self, messages: Choice | None = None, *, where: str | None = None, delay: str | timedelta | None = None
    ) -> Report:
        """Abandon messages: they are delivered again, with a delivery count one higher.

        Args:
            messages: which ones, all that are held by default.
            delay: how long to hold them first, with their locks renewed, such as ``"2m"``. An interrupt meanwhile
                leaves them held.
        """
        return await self._settle(Abandon(duration(delay)), messages, where)

    async def dead_letter(
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
        """
        return await self._settle(dead_letter(reason, description, error_description), messages, where)

    async def defer(
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
            wake_after: when a wake-up message for each of them becomes active, such as ``"1h"``; None for none.
            wake_to: the queue or topic for the wake-up messages, the queue itself by default.
        """
        return await self._settle(Defer(duration(wake_after), address(wake_to)), messages, where)

    async def release(self, messages: Choice | None = None, *, where: str | None = None) -> Report:
        """Release messages, which does not raise their delivery counts. Arguments as for :meth:`plan`."""
        return await self._settle(Release(), messages, where)

    async def _settle(self, decision: Decision, messages: Choice | None, where: str | None) -> Report:
        return await (await self.plan(decision, messages, where=where)).apply()

    async def wake(self, message: LockedMessage) -> LockedMessage | None:
        """Lock the deferred message that a wake-up message is for: settle it, and then complete the wake-up.

        Args:
            message: a wake-up message of this batch.

        Returns:
            The message; None if it is no longer deferred, or if ``message`` is not a wake-up message.
        """
        return await self._place.wake(self._batch, message)

    async def let_lapse(self, messages: Choice) -> datetime | None:
        """Hold messages no longer, and let their locks end; then they come again, with a delivery count one higher.

        Args:
            messages: which ones, as for :meth:`plan`.

        Returns:
            When the last of the locks ends; None when none of the messages is held.
        """
        chosen = await blocking(self._chosen, self.messages, messages)
        return self._batch.let_lapse(chosen)

    async def close(self) -> None:
        """Release the messages still held, and close the receiver; warn if some could not be released.

        Closing twice does nothing more.
        """
        if self._open:
            self._open = False
            _OPEN.discard(self)
            self._forgotten.detach()
            await self._keeper.close()
            await self._warn_of_unreleased()

    def is_of(self, resources: Resources | None) -> bool:
        if resources is None:
            return self._keeper.loop is asyncio.get_running_loop()
        return self._place.namespace is resources

    async def _warn_of_unreleased(self) -> None:
        report = self._batch.release_report or Report()
        # A lost lock does not hold its message any longer.
        gone = (OutcomeStatus.LOCK_LOST, OutcomeStatus.ALREADY_SETTLED, OutcomeStatus.NOT_FOUND)
        held = [outcome for outcome in report.failures if outcome.status not in gone]
        ends = [end for outcome in held if (end := self._batch.table.locked_until(outcome.sequence_number or 0))]
        if ends:
            await warn(
                f"{len(held):,} of {len(report):,} messages of {self.address} could not be released: their locks last "
                f"until {max(ends):%Y-%m-%d %H:%M:%S} UTC, and then they come again with a delivery count one higher."
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
        ends = self.lock_ends
        rows = [
            each.with_changes(locked_until=ends.get(each.sequence_number, each.locked_until))
            for each in self.messages[:most]
        ]
        return tables.messages_table(self.messages, most, self._caption, tables.LOCKED_COLUMNS, rows=rows)

    @property
    def _caption(self) -> str:
        lost = f", {len(self.lost):,} locks lost" if self.lost else ""
        failing = f", {self.renewal_error}" if self.renewal_error else ""
        return f"Locked in {self.address}{lost}{failing}"


class AsyncLockedSession(AsyncLockedBatch):
    """A session that is held alone, under a lock that is renewed in the background until it is closed.

    A batch whose messages are those of the session: lock them with ``receive``. Made by ``await entity.session(…)`` and
    ``await entity.next_session(…)``.
    """

    def __init__(self, place: Place, session: SessionBatch, keeper: Keeper) -> None:
        self._session = session
        super().__init__(place, session, keeper)

    @property
    def session_id(self) -> str:
        """Return the name of the session."""
        return self._session.session_id

    @property
    def is_lost(self) -> bool:
        """Return True when the lock of the session was lost."""
        return self._session.is_lost

    async def get_state(self) -> bytes | None:
        """Return the state of the session; None where it has none."""
        return await self._session.get_state()

    async def get_state_text(self) -> str | None:
        """Return the state as text; None for none. Bytes that are not UTF-8 are shown by their numbers."""
        return await self._session.get_state_text()

    async def get_state_json(self) -> Any:
        """Return the value of a state that is JSON; None where there is none.

        Raises:
            DecisionError: the state is not JSON.
        """
        return await self._session.get_state_json()

    async def set_state(self, state: SessionState) -> None:
        """Set the state of the session.

        Args:
            state: bytes, a text, or a value that becomes JSON; None removes the state.
        """
        await self._session.set_state(state)

    @property
    def _caption(self) -> str:
        lost = ", its lock is lost" if self.is_lost else ""
        return f"{super()._caption}, session {self.session_id!r}{lost}"


@documented
class AsyncDeferredMessages(Messages):
    """The deferred messages of an entity, compared with the journal. Made by ``await entity.deferred()``.

    Plans settle them; resubmit them with ``await entity.resubmit(…)``.
    """

    def __init__(self, place: Place, table: pa.Table, found: Deferrals, *, where_from: str | None = None) -> None:
        super().__init__(table, where_from=str(found) if where_from is None else where_from)
        self._place = place
        self._found = found

    def where(self, expression: str | None) -> AsyncDeferredMessages:
        """Return the messages for which a SQL expression over the message columns is true; plans settle them, too."""
        return cast("AsyncDeferredMessages", super().where(expression))

    def _with(self, table: pa.Table) -> AsyncDeferredMessages:
        return AsyncDeferredMessages(self._place, table, self._found, where_from=self.where_from)

    @property
    def orphans(self) -> AsyncDeferredMessages:
        """Return those that are not in this journal: another machine deferred them, or the journal was lost."""
        orphans = set(self._found.orphans)
        numbers = frames.values_of_column(self._arrow.column("sequence_number"))
        places = [place for place, number in enumerate(numbers) if number in orphans]
        table = self._in_places(places).to_arrow()
        return AsyncDeferredMessages(self._place, table, self._found, where_from=f"Orphans in {self._place.address}")

    @property
    def gone(self) -> tuple[DeferralEntry, ...]:
        """Return those that are only in the journal: settled elsewhere, expired, or never deferred."""
        return self._found.gone

    async def plan(self, decision: Decision, messages: Choice | None = None, *, where: str | None = None) -> AsyncPlan:
        """Plan to settle deferred messages.

        Args:
            decision: complete, dead-letter or abandon.
            messages: which ones, as for ``entity.pick``; all of these by default.

        Raises:
            DecisionError: the decision is not possible, or a message is not deferred there.
        """

        def planned() -> InnerPlan:
            chosen = chosen_of(self, messages, self._place.address, PeekedMessage)
            return self._place.plan_deferred(query.where(chosen, where), decision)

        return AsyncPlan(await blocking(planned))

    async def complete(self, messages: Choice | None = None, *, where: str | None = None) -> AsyncPlan:
        """Plan to complete messages, which removes them. Arguments as for :meth:`plan`."""
        return await self.plan(Complete(), messages, where=where)

    async def abandon(self, messages: Choice | None = None, *, where: str | None = None) -> AsyncPlan:
        """Plan to abandon messages: they stay deferred, with a delivery count one higher."""
        return await self.plan(Abandon(), messages, where=where)

    async def dead_letter(
        self,
        messages: Choice | None = None,
        *,
        where: str | None = None,
        reason: str | None = None,
        description: str | None = None,
        error_description: str | None = None,
    ) -> AsyncPlan:
        """Plan to dead-letter messages with a reason and a description. Other arguments as for :meth:`plan`.

        Args:
            messages: which ones, all of these by default.
        """
        return await self.plan(dead_letter(reason, description, error_description), messages, where=where)


async def deferred_messages(place: Place, progress: Progress | None = None) -> AsyncDeferredMessages:
    table = frames.to_arrow(())

    async def look() -> dict[int, datetime | None]:
        nonlocal table
        cursor = PeekCursor(state=MessageState.DEFERRED)
        pages = place.peeker.unread_pages(cursor)
        table = await frames.one_table(frames.tables_of_pages(pages, cursor, progress))
        numbers = frames.values_of_column(table.column("sequence_number"))
        times = frames.values_of_column(table.column("enqueued_time"))
        return dict(zip(numbers, times, strict=True))

    found = await place.compare_deferrals(look)
    return AsyncDeferredMessages(place, table, found)


async def close_batches(resources: Resources | None = None) -> None:
    """Close the batches of a namespace that are still open, or all of this loop."""
    async with AsyncExitStack() as all_of_them:
        for batch in list(_OPEN):
            if batch.is_of(resources):
                all_of_them.push_async_callback(batch.close)


atexit.register(lambda: run(close_batches) if _OPEN else None)
if hasattr(os, "register_at_fork"):
    # They are the parent's: the child of a fork does not have the thread that holds them.
    os.register_at_fork(after_in_child=_OPEN.clear)
