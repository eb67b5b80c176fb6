"""Messages that plans settle: batches and sessions of locked ones, which a task holds open, and deferred ones.

Do not edit: ``make format`` writes this file from async_batch.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, overload

from sbnotebook.analysis.tables import Shown, Table
from sbnotebook.client.async_batch import AsyncDeferredMessages, AsyncLockedBatch, AsyncLockedSession
from sbnotebook.client.messages import Messages
from sbnotebook.client.plan import Plan
from sbnotebook.client.portal import run
from sbnotebook.client.targets import Choice
from sbnotebook.client.verbs import Twin
from sbnotebook.model import (
    Decision,
    EntityAddress,
    LockedMessage,
    Report,
)
from sbnotebook.settlement import (
    DeferralEntry,
    LockEvent,
    SessionState,
)

if TYPE_CHECKING:
    import pyarrow as pa


class LockedBatch(Shown, Twin[AsyncLockedBatch]):
    """Messages that are held under locks, renewed in the background until they are settled or the batch is closed.

    Closing releases unsettled messages, which does not raise their delivery counts. Made by ``entity.lock(…)``. A
    batch without references closes itself, with a ResourceWarning.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self.asynchronous.__aexit__, kind, error, trace)

    @property
    def address(self) -> EntityAddress:
        """Return the address of the entity that holds the messages."""
        return self.asynchronous.address

    @property
    def messages(self) -> tuple[LockedMessage, ...]:
        """Return the messages that are held now, in the order in which they came."""
        return self.asynchronous.messages

    @property
    def lost(self) -> tuple[int, ...]:
        """Return the sequence numbers of messages whose lock ended before they were settled."""
        return self.asynchronous.lost

    @property
    def renewal_error(self) -> str | None:
        """Return the fault of renewing, in a sentence; None if there is none."""
        return self.asynchronous.renewal_error

    @property
    def status(self) -> LockEvent:
        """Return how renewing goes: well, late or failing and for which messages, or ended."""
        return self.asynchronous.status

    @property
    def events(self) -> tuple[LockEvent, ...]:
        """Return the last thousand events of the locks, lost locks included."""
        return self.asynchronous.events

    def watch(self, watcher: Callable[[LockEvent], None]) -> Callable[[], None]:
        """Call a function at each event of the locks, such as a lock that was lost or a renewal that fails.

        Args:
            watcher: is called on the event loop of the batch: it must be quick, and must not wait for the batch.

        Returns:
            A function that ends it.
        """
        return self.asynchronous.watch(watcher)

    @property
    def is_open(self) -> bool:
        """Return True until the batch is closed."""
        return self.asynchronous.is_open

    @property
    def lock_ends(self) -> dict[int, datetime]:
        """Return when each held lock ends, as last renewed, by sequence number and the clock of this machine."""
        return self.asynchronous.lock_ends

    @property
    def renew_until(self) -> datetime:
        """Return when renewing stops; the locks end soon after."""
        return self.asynchronous.renew_until

    @property
    def release_report(self) -> Report | None:
        """Return the outcomes of the messages that were still held as the batch was closed; None while it is open."""
        return self.asynchronous.release_report

    def extend(self, renew_for: str | timedelta) -> datetime:
        """Renew the locks for longer.

        Args:
            renew_for: for how long at least, from now, such as ``"30m"``; never for less than before.

        Returns:
            When renewing stops.

        Raises:
            BatchClosedError: the batch is closed.
        """
        return run(self.asynchronous.extend, renew_for)

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
        return run(self.asynchronous.receive, count, max_wait=max_wait)

    def plan(self, decision: Decision, messages: Choice | None = None, *, where: str | None = None) -> Plan:
        """Plan to settle messages of this batch.

        Args:
            decision: the action.
            messages: which ones, as for ``entity.pick``, such as one message or a list of sequence numbers. By default
                all that are held; those whose locks were lost since the last outcome end as LOCK_LOST.
            where: only messages for which this SQL expression over the message columns is true.

        Raises:
            BatchClosedError: the batch is closed, and holds no messages.
            DecisionError: a message is not held here, or the decision is not possible.
        """
        return Plan(run(self.asynchronous.plan, decision, messages, where=where))

    def complete(self, messages: Choice | None = None, *, where: str | None = None) -> Report:
        """Complete messages, which removes them. Arguments as for :meth:`plan`."""
        return run(self.asynchronous.complete, messages, where=where)

    def abandon(
        self, messages: Choice | None = None, *, where: str | None = None, delay: str | timedelta | None = None
    ) -> Report:
        """Abandon messages: they are delivered again, with a delivery count one higher.

        Args:
            messages: which ones, all that are held by default.
            delay: how long to hold them first, with their locks renewed, such as ``"2m"``. An interrupt meanwhile
                leaves them held.
            where: only messages for which this SQL expression over the message columns is true.
        """
        return run(self.asynchronous.abandon, messages, where=where, delay=delay)

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
            where: only messages for which this SQL expression over the message columns is true.
            reason: short, and the same for the same cause.
            description: the fault of the message.
            error_description: the name of ``description`` in the SDK, which is accepted, too.
        """
        return run(
            self.asynchronous.dead_letter,
            messages,
            where=where,
            reason=reason,
            description=description,
            error_description=error_description,
        )

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
            wake_after: when a wake-up message for each of them becomes active, such as ``"1h"``; None for none.
            wake_to: the queue or topic for the wake-up messages, the queue itself by default.
            where: only messages for which this SQL expression over the message columns is true.
        """
        return run(self.asynchronous.defer, messages, where=where, wake_after=wake_after, wake_to=wake_to)

    def release(self, messages: Choice | None = None, *, where: str | None = None) -> Report:
        """Release messages, which does not raise their delivery counts. Arguments as for :meth:`plan`."""
        return run(self.asynchronous.release, messages, where=where)

    def wake(self, message: LockedMessage) -> LockedMessage | None:
        """Lock the deferred message that a wake-up message is for: settle it, and then complete the wake-up.

        Args:
            message: a wake-up message of this batch.

        Returns:
            The message; None if it is no longer deferred, or if ``message`` is not a wake-up message.
        """
        return run(self.asynchronous.wake, message)

    def let_lapse(self, messages: Choice) -> datetime | None:
        """Hold messages no longer, and let their locks end; then they come again, with a delivery count one higher.

        Args:
            messages: which ones, as for :meth:`plan`.

        Returns:
            When the last of the locks ends; None when none of the messages is held.
        """
        return run(self.asynchronous.let_lapse, messages)

    def close(self) -> None:
        """Release the messages still held, and close the receiver; warn if some could not be released.

        Closing twice does nothing more.
        """
        run(self.asynchronous.close)

    def __len__(self) -> int:
        return self.asynchronous.__len__()

    def __iter__(self) -> Iterator[LockedMessage]:
        return self.asynchronous.__iter__()

    @overload
    def __getitem__(self, index: int) -> LockedMessage: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[LockedMessage, ...]: ...
    def __getitem__(self, index: int | slice) -> LockedMessage | tuple[LockedMessage, ...]:
        return self.asynchronous.__getitem__(index)

    def _table(self, most: int) -> Table:
        return self.asynchronous._table(most)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


class LockedSession(LockedBatch):
    """A session that is held alone, under a lock that is renewed in the background until it is closed.

    A batch whose messages are those of the session: lock them with ``receive``. Made by ``entity.session(…)`` and
    ``entity.next_session(…)``.
    """

    asynchronous: AsyncLockedSession  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def session_id(self) -> str:
        """Return the name of the session."""
        return self.asynchronous.session_id

    @property
    def is_lost(self) -> bool:
        """Return True when the lock of the session was lost."""
        return self.asynchronous.is_lost

    def get_state(self) -> bytes | None:
        """Return the state of the session; None where it has none."""
        return run(self.asynchronous.get_state)

    def get_state_text(self) -> str | None:
        """Return the state as text; None for none. Bytes that are not UTF-8 are shown by their numbers."""
        return run(self.asynchronous.get_state_text)

    def get_state_json(self) -> Any:
        """Return the value of a state that is JSON; None where there is none.

        Raises:
            DecisionError: the state is not JSON.
        """
        return run(self.asynchronous.get_state_json)

    def set_state(self, state: SessionState) -> None:
        """Set the state of the session.

        Args:
            state: bytes, a text, or a value that becomes JSON; None removes the state.
        """
        run(self.asynchronous.set_state, state)


class DeferredMessages(Messages, Twin[AsyncDeferredMessages]):
    """The deferred messages of an entity, compared with the journal. Made by ``entity.deferred()``.

    Plans settle them; resubmit them with ``entity.resubmit(…)``.
    """

    def __init__(self, asynchronous: AsyncDeferredMessages) -> None:
        super().__init__(asynchronous.to_arrow(), where_from=asynchronous.where_from, note=asynchronous.note)
        self.asynchronous = asynchronous

    def where(self, expression: str | None) -> DeferredMessages:
        """Return the messages for which a SQL expression over the message columns is true; plans settle them, too."""
        return DeferredMessages(self.asynchronous.where(expression))

    def _with(self, table: pa.Table) -> DeferredMessages:
        return DeferredMessages(self.asynchronous._with(table))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    @property
    def orphans(self) -> DeferredMessages:
        """Return those that are not in this journal: another machine deferred them, or the journal was lost."""
        return DeferredMessages(self.asynchronous.orphans)

    @property
    def gone(self) -> tuple[DeferralEntry, ...]:
        """Return those that are only in the journal: settled elsewhere, expired, or never deferred."""
        return self.asynchronous.gone

    def plan(self, decision: Decision, messages: Choice | None = None, *, where: str | None = None) -> Plan:
        """Plan to settle deferred messages.

        Args:
            decision: complete, dead-letter or abandon.
            messages: which ones, as for ``entity.pick``; all of these by default.
            where: only messages for which this SQL expression over the message columns is true.

        Raises:
            DecisionError: the decision is not possible, or a message is not deferred there.
        """
        return Plan(run(self.asynchronous.plan, decision, messages, where=where))

    def complete(self, messages: Choice | None = None, *, where: str | None = None) -> Plan:
        """Plan to complete messages, which removes them. Arguments as for :meth:`plan`."""
        return Plan(run(self.asynchronous.complete, messages, where=where))

    def abandon(self, messages: Choice | None = None, *, where: str | None = None) -> Plan:
        """Plan to abandon messages: they stay deferred, with a delivery count one higher."""
        return Plan(run(self.asynchronous.abandon, messages, where=where))

    def dead_letter(
        self,
        messages: Choice | None = None,
        *,
        where: str | None = None,
        reason: str | None = None,
        description: str | None = None,
        error_description: str | None = None,
    ) -> Plan:
        """Plan to dead-letter messages with a reason and a description. Other arguments as for :meth:`plan`.

        Args:
            messages: which ones, all of these by default.
            where: only messages for which this SQL expression over the message columns is true.
            reason: short, and the same for the same cause.
            description: the fault of the message.
            error_description: the name of ``description`` in the SDK, which is accepted, too.
        """
        return Plan(
            run(
                self.asynchronous.dead_letter,
                messages,
                where=where,
                reason=reason,
                description=description,
                error_description=error_description,
            )
        )
