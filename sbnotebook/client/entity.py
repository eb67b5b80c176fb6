"""One entity for synchronous code: what can be done there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Unpack

from sbnotebook.analysis import query
from sbnotebook.analysis.frames import table_of_pages
from sbnotebook.client import progress
from sbnotebook.client.batch import LockedBatch
from sbnotebook.client.deferred import DeferredMessages
from sbnotebook.client.durations import duration
from sbnotebook.client.entity_sends import EntitySends
from sbnotebook.client.messages import Messages
from sbnotebook.client.plan import Plan
from sbnotebook.client.portal import run
from sbnotebook.client.processing import Processing, processing_of
from sbnotebook.client.receiving import receive_and_delete
from sbnotebook.client.sessions import LockedSession
from sbnotebook.model import Decision, EntityAddress, MessageState, ReceivedMessage, Report, Resubmit
from sbnotebook.settlement.locking.by_token import Lock
from sbnotebook.settlement.locking.lock import DEFAULT_RENEW_FOR
from sbnotebook.settlement.picking.pick import PickOptions
from sbnotebook.settlement.picking.sweep import Filter
from sbnotebook.settlement.plan import Edit
from sbnotebook.settlement.plan import Plan as AsyncPlan
from sbnotebook.settlement.processing.calls import Function
from sbnotebook.settlement.processing.process_run import ProcessOptions

__all__ = ["Entity"]


class Entity(EntitySends):
    """One queue, topic, subscription or sub-queue: what can be done there.

    Args:
        entity: the asynchronous entity that does it.
    """

    def peek(
        self,
        max_messages: int | None = None,
        *,
        where: str | None = None,
        from_sequence_number: int = 1,
        to_sequence_number: int | None = None,
        state: str | None = None,
        session_id: str | None = None,
        show_progress: bool = True,
    ) -> Messages:
        """Look at messages without locking them, to the end of the entity by default.

        Args:
            max_messages: how many are looked at, None for all.
            where: of these, only those for which this SQL expression over the message columns is true.
            from_sequence_number: where to begin, included.
            to_sequence_number: where to stop, included; None for the end.
            state: ``active``, ``deferred`` or ``scheduled`` messages only.
            session_id: only messages of this session, which is not locked by that.
            show_progress: False for no bar.

        Raises:
            ConfigurationError: the expression or the state is wrong.
        """
        kind = MessageState(state) if state is not None else None
        with progress.bar(f"peek {self.address}", max_messages, shown=show_progress) as advance:
            pages = self._entity.pages(
                from_sequence_number=from_sequence_number,
                to_sequence_number=to_sequence_number,
                max_messages=max_messages,
                state=kind,
                session_id=session_id,
            )
            found = run(table_of_pages, pages, advance)
        return Messages(found, where_from=str(self.address)).where(where)

    def lock(
        self, count: int = 0, *, max_wait: float = 5.0, renew_for: str | timedelta = DEFAULT_RENEW_FOR
    ) -> LockedBatch:
        """Lock messages and hold them, with their locks renewed, until they are settled or the batch is closed.

        Args:
            count: how many messages at most; more can be had with ``batch.receive``.
            max_wait: seconds to wait for the first.
            renew_for: for how long locks are renewed, such as ``"30m"``.
        """
        batch = LockedBatch(self._entity, self._entity.batch(renew_for=duration(renew_for)))
        try:
            if count:
                batch.receive(count, max_wait=max_wait)
        except BaseException:
            batch.close()
            raise
        return batch

    def settle_by_token(self, decision: Decision, locks: Iterable[Lock]) -> Plan:
        """A plan to settle what another batch or process locked: locked messages, or pairs of number and lock token.

        See :func:`sbnotebook.settlement.locking.by_token.plan_by_token`.
        """
        return Plan(self._entity.plan_by_token(decision, locks))

    def receive_and_delete(
        self, count: int, *, max_wait: float = 5.0, archived: bool = True, show_progress: bool = True
    ) -> Messages:
        """Receive up to ``count`` messages that are removed as they are sent: what is lost on the way is lost for good.

        What arrived is written to the archive at once, unless ``archived`` is False. ``max_wait`` is seconds for the
        first message. An interrupt has what arrived before as its attribute ``messages``.
        """
        return receive_and_delete(
            self._entity, count, max_wait=max_wait, archived=archived, show_progress=show_progress, stacklevel=2
        )

    def scheduled(self, max_messages: int | None = None, *, where: str | None = None) -> Messages:
        """The messages of a queue that become active later, as :meth:`peek` gives them."""
        return self.peek(max_messages, where=where, state=MessageState.SCHEDULED)

    def resubmit(
        self,
        messages: Iterable[ReceivedMessage],
        *,
        to: str | EntityAddress | None = None,
        delay: str | timedelta | None = None,
        edit: Edit | None = None,
        max_resubmits: int | None = None,
        resend_unknown: bool = False,
    ) -> Plan:
        """A plan to send clones of messages that stand here, and to complete the originals.

        Args:
            messages: which ones, as they were peeked.
            to: where the clones go; by default the entity itself, or a subscription's topic.
            delay: how long until the clones become active, such as ``"5m"``.
            edit: a function that gives the message to send for each message.
            max_resubmits: messages that were resubmitted this often are skipped.
            resend_unknown: send again what an earlier run, which was cut off, may have sent already.

        Raises:
            DecisionError: the messages cannot go there.
        """
        decision = Resubmit(
            to=EntityAddress.parse(to) if to is not None else None,
            delay=duration(delay) if delay is not None else None,
            max_resubmits=max_resubmits,
            resend_unknown=resend_unknown,
        )
        return Plan(self._entity.plan_resubmit(messages, decision, edit=edit))

    def pick(
        self,
        messages: Iterable[ReceivedMessage | int],
        decision: Decision,
        *,
        show_progress: bool = True,
        **options: Unpack[PickOptions],
    ) -> Plan:
        """A plan to settle, defer or resubmit chosen messages in the middle of an entity, and no others.

        Args:
            messages: the messages as they were peeked, or their sequence numbers.
            decision: such as ``Complete()``, ``DeadLetter("Bad")``, ``Defer()`` or ``Resubmit()``.
            show_progress: False for no bar.
            options: ``edit``, ``abandon_rest``, ``max_held`` and ``archived``,
                see :func:`sbnotebook.settlement.picking.pick.plan_pick`.

        Raises:
            DecisionError: the decision or a message is none that can be picked here.
        """
        return self._planned(partial(self._entity.pick, messages, decision, **options), shown=show_progress)

    def deferred(self, *, show_progress: bool = True) -> DeferredMessages:
        """What is deferred here, by the journal and by the entity itself, which is peeked at to its end.

        Args:
            show_progress: False for no bar.
        """
        with progress.bar(f"look into {self.address}", None, shown=show_progress) as advance:
            return DeferredMessages(self._entity, run(self._entity.deferred, advance))

    def purge(
        self,
        *,
        where: str | None = None,
        before: str | datetime | timedelta | None = None,
        to_sequence_number: int | None = None,
        state: str | None = None,
        archived: bool = True,
        show_progress: bool = True,
    ) -> Plan:
        """A plan to remove messages that stand here now; those that come later stay.

        Args:
            where: only those for which this SQL expression over the message columns is true.
            before: only those that were enqueued before then; a duration such as ``"2d"`` counts back from now.
            to_sequence_number: only those up to this number, included.
            state: ``active``, ``deferred`` or ``scheduled`` messages only.
            archived: False to remove them for good; otherwise ``namespace.undo`` can send them back.
            show_progress: False for no bar.

        Raises:
            ConfigurationError: the expression, the duration or the state is wrong.
        """
        look = partial(
            self._entity.purge,
            only=_filter(where),
            before=_begin(before),
            to_sequence_number=to_sequence_number,
            state=MessageState(state) if state is not None else None,
            archived=archived,
        )
        return self._planned(look, shown=show_progress)

    def defer_all(
        self,
        *,
        where: str | None = None,
        before: str | datetime | timedelta | None = None,
        to_sequence_number: int | None = None,
        max_messages: int | None = None,
        show_progress: bool = True,
    ) -> Plan:
        """A plan to defer the active messages that stand here now, so that each can be settled by its number.

        Args:
            where: only those for which this SQL expression over the message columns is true.
            before: only those that were enqueued before then; a duration such as ``"2d"`` counts back from now.
            to_sequence_number: only those up to this number, included.
            max_messages: only the first so many of all these.
            show_progress: False for no bar.

        Raises:
            ConfigurationError: the expression or the duration is wrong.
            DecisionError: too many others stand between them.

        Example:
            >>> letters = connect("emulator").entity("orders/$dlq")  # doctest: +SKIP
            >>> letters.defer_all(where="dead_letter_reason = 'Invalid'").apply()  # doctest: +SKIP
            <Report defer: 1,200 settled>
        """
        look = partial(
            self._entity.defer_all,
            only=_filter(where),
            before=_begin(before),
            to_sequence_number=to_sequence_number,
            max_messages=max_messages,
        )
        return self._planned(look, shown=show_progress)

    def _planned(self, look: Callable[..., Awaitable[AsyncPlan]], *, shown: bool) -> Plan:
        """A plan that is made by looking at messages, of which nobody knows how many they are."""
        with progress.bar(f"look into {self.address}", None, shown=shown) as advance:
            return Plan(run(partial(look, progress=advance)))

    def process(
        self,
        function: Function,
        *,
        seen: bool | str | timedelta = False,
        show_progress: bool = True,
        **options: Unpack[ProcessOptions],
    ) -> Report:
        """Consume messages with a function until there are no more, and settle each by how that ended.

        Args:
            function: is called with each message. It raises ``SkipMessage``, ``RejectMessage`` or ``StopProcessing``
                to say how it ended, and anything else when it failed.
            seen: whether messages whose work is done are remembered, or for how long, such as ``"1d"``: when one is
                delivered again, it is completed and not done twice.
            show_progress: False for no bar.
            options: ``policy``, ``max_in_flight``, ``rate``, ``max_messages``, ``max_wait``, ``by_session`` and
                ``archived``, see :class:`sbnotebook.settlement.processing.process_run.Options`.

        Returns:
            An outcome for each message.

        Raises:
            Exception: the function's own, where the policy says so, as it does by default. A note on it says how the
                messages ended.
        """
        with progress.bar(f"process {self.address}", options.get("max_messages"), shown=show_progress) as advance:
            return run(processing_of(self._entity, function, seen, options, advance).run)

    def start_processing(
        self, function: Function, *, seen: bool | str | timedelta = False, **options: Unpack[ProcessOptions]
    ) -> Processing:
        """Consume messages in the background, to be watched and stopped; arguments as for :meth:`process`.

        It goes on until it is stopped, unless ``max_wait`` says when the entity counts as empty.
        """
        options.setdefault("max_wait", None)
        return Processing(processing_of(self._entity, function, seen, options))

    def sessions(self) -> list[str]:
        """The sessions that have active messages or a state; ``peek(session_id=…)`` looks into one."""
        return run(self._entity.sessions)

    def session(self, session_id: str, *, renew_for: str | timedelta = DEFAULT_RENEW_FOR) -> LockedSession:
        """Lock a session and hold it until it is closed; the SDK's SessionCannotBeLockedError when somebody else does.

        Args:
            session_id: which one; it need not have messages.
            renew_for: for how long its lock is renewed, such as ``"30m"``.
        """
        return LockedSession(self._entity, self._entity.session(session_id, renew_for=duration(renew_for)))

    def next_session(self, *, max_wait: float = 60.0, renew_for: str | timedelta = DEFAULT_RENEW_FOR) -> LockedSession:
        """Lock the next session that has messages and that nobody holds; the SDK's OperationTimeoutError if none comes.

        Args:
            max_wait: seconds to wait for one.
            renew_for: for how long its lock is renewed, such as ``"30m"``.
        """
        following = self._entity.next_session(max_wait=max_wait, renew_for=duration(renew_for))
        return LockedSession(self._entity, following)

    def __repr__(self) -> str:
        return f"<Entity {self.address} on {self._entity.namespace.host}>"


def _begin(before: str | datetime | timedelta | None) -> datetime | timedelta | None:
    return duration(before) if isinstance(before, str) else before


def _filter(where: str | None) -> Filter | None:
    query.where([], where)  # a wrong expression is told before anything is looked at
    return partial(query.where, expression=where) if where is not None else None
