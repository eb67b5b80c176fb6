"""One entity for synchronous code: look at, lock, settle, send and consume its messages."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, cast

from sbnotebook.analysis import query
from sbnotebook.analysis.frames import messages_from, one_table, tables_of_pages, to_send
from sbnotebook.client.batch import LockedBatch, LockedSession
from sbnotebook.client.choosing import Choice, chosen, chosen_by
from sbnotebook.client.coercions import (
    address,
    duration,
    message_filter,
    message_state,
    start_time,
    time_to_come,
    whole_number,
)
from sbnotebook.client.messages import DeferredMessages, Messages, deferred_messages, parts_of
from sbnotebook.client.plan import Plan, SendPlan, count_of
from sbnotebook.client.portal import progress_bar, run
from sbnotebook.client.present import Present
from sbnotebook.client.processing import Processing, process_options
from sbnotebook.client.receivers import Receivers, Router, clones_sent
from sbnotebook.client.unread import watched
from sbnotebook.client.verbs import SdkNames
from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import (
    Decision,
    EntityAddress,
    LockedMessage,
    Message,
    MessageState,
    PeekedMessage,
    ReceivedMessage,
    Report,
    Resubmit,
)
from sbnotebook.model.budget import Allowance
from sbnotebook.model.decision import AUTO, MaxResubmits
from sbnotebook.model.decision import AUTO as DEFAULT_LIMIT
from sbnotebook.settlement import (
    DEFAULT_MAX_HELD,
    DEFAULT_RENEW_FOR,
    RECEIVE_AND_DELETE_WARNING,
    AsyncEntity,
    Edit,
    InFlight,
    LockReference,
    MessageFunction,
    PeekCursor,
    Policy,
    ProcessOptions,
    Progress,
    Resources,
    SequenceNumbers,
    receive_and_delete,
    refuse_coroutine_function,
)
from sbnotebook.settlement import Plan as AsyncPlan
from sbnotebook.settlement import Processing as AsyncProcessing


class Entity(SdkNames):
    """One queue, topic, subscription or sub-queue.

    Args:
        entity: the asynchronous entity that does the work.
    """

    def __init__(self, entity: AsyncEntity) -> None:
        self._entity = entity

    @property
    def address(self) -> EntityAddress:
        """Return its address."""
        return self._entity.address

    # ---------------------------------------------------------------- looking

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
        unpacking: Allowance | None = None,
    ) -> Messages:
        """Look at messages without locking them, to the end of the entity by default.

        Args:
            max_messages: how many are returned at most, None for all. With ``where``, these are the first that match,
                and as many are read as that takes; ``peek(1_000).where(…)`` looks at 1,000 only.
            where: only messages for which this SQL expression over the message columns is true.
            from_sequence_number: where to begin, included.
            to_sequence_number: where to stop, included; None for the end.
            state: ``active``, ``deferred`` or ``scheduled`` messages only.
            session_id: only messages of this session, which is not locked by that.
            show_progress: False for no bar.
            unpacking: what several calls may unpack together, see :mod:`sbnotebook.model.budget`; None for this call
                alone.

        Raises:
            ConfigurationError: the expression, the state or the number is wrong.
        """
        if max_messages is not None:
            max_messages = whole_number(max_messages, "max_messages")
        if to_sequence_number is not None and to_sequence_number < from_sequence_number:
            raise ConfigurationError(
                f"to_sequence_number, {to_sequence_number}, is before from_sequence_number, {from_sequence_number}: "
                "exchange them."
            )
        most = max_messages if where is None else None
        with progress_bar(f"peek {self.address}", most, shown=show_progress) as advance:
            cursor = PeekCursor(from_sequence_number, to_sequence_number, most, message_state(state), session_id)
            pages = self._entity.unread_pages(cursor, session_id=session_id)
            tables = tables_of_pages(pages, cursor, advance, unpacking)
            if where is None:
                return Messages(run(one_table, tables), where_from=str(self.address))
            seen = Present()
            found = run(query.first_matching, seen.noting(tables), where, max_messages)
        return Messages(found, where_from=str(self.address), note="" if len(found) else str(seen))

    def parts(
        self,
        size: int = 1_000,
        *,
        where: str | None = None,
        from_sequence_number: int = 1,
        state: str | None = None,
    ) -> Iterator[Messages]:
        """Peek at the current messages in parts; later messages are in no part.

        Only one part is in memory at a time. A loop that resubmits each part ends, also where the consumer still fails
        and dead-letters the messages again.

        Args:
            size: messages in a part at most.
            where: only messages for which this SQL expression over the message columns is true.
            from_sequence_number: where to begin, included.
            state: ``active``, ``deferred`` or ``scheduled`` messages only.

        Raises:
            ConfigurationError: the expression or the state is wrong, or the size is below 1.

        Example:
            >>> letters = connect("emulator").entity("orders/$dlq")  # doctest: +SKIP
            >>> for part in letters.parts(500):  # doctest: +SKIP
            ...     letters.resubmit(part, to="orders").apply(rate=100).raise_for_failures()
        """
        size = whole_number(size, "size", least=1)
        look = partial(self.peek, size, where=where, state=state, show_progress=False)
        return parts_of(run(SequenceNumbers.of(self._entity).spans), look, size, from_sequence_number)

    def scheduled(self, max_messages: int | None = None, *, where: str | None = None) -> Messages:
        """Look at the messages of a queue that become active later; arguments as for :meth:`peek`."""
        return self.peek(max_messages, where=where, state=MessageState.SCHEDULED)

    def deferred(self, *, show_progress: bool = True) -> DeferredMessages:
        """Find the deferred messages, in the journal and in the entity, which is peeked to its end.

        Args:
            show_progress: False for no bar.
        """
        with progress_bar(f"look into {self.address}", None, shown=show_progress) as advance:
            return run(deferred_messages, self._entity, advance)

    # ---------------------------------------------------------------- locking

    def lock(
        self,
        count: int | None = 10,
        *,
        max_wait: float | str | timedelta = 5.0,
        renew_for: str | timedelta = DEFAULT_RENEW_FOR,
    ) -> LockedBatch:
        """Lock messages and hold them, with their locks renewed, until they are settled or the batch is closed.

        Args:
            count: how many messages at most; None for all that come, up to 50,000, and 0 for none yet.
                ``batch.receive`` locks more.
            max_wait: seconds to wait for the first, or a duration such as ``"1m"``.
            renew_for: for how long locks are renewed, such as ``"30m"``.
        """
        count = None if count is None else whole_number(count, "count")
        batch = LockedBatch(self._entity, self._entity.batch(renew_for=duration(renew_for)))
        try:
            if count != 0:
                batch.receive(count, max_wait=max_wait)
        except BaseException:
            batch.close()
            raise
        return batch

    def sessions(self) -> list[str]:
        """List the sessions that have active messages or a state; ``peek(session_id=…)`` looks into one."""
        return run(self._entity.sessions)

    def session(self, session_id: str, *, renew_for: str | timedelta = DEFAULT_RENEW_FOR) -> LockedSession:
        """Lock a session and hold it until it is closed.

        Args:
            session_id: which one; it need not have messages.
            renew_for: for how long its lock is renewed, such as ``"30m"``.

        Raises:
            SessionCannotBeLockedError: the SDK's own: another receiver holds it.
        """
        return LockedSession(self._entity, self._entity.session(session_id, renew_for=duration(renew_for)))

    def next_session(
        self, *, max_wait: float | str | timedelta = 60.0, renew_for: str | timedelta = DEFAULT_RENEW_FOR
    ) -> LockedSession:
        """Lock the next session that has messages and no receiver.

        Args:
            max_wait: seconds to wait for one.
            renew_for: for how long its lock is renewed, such as ``"30m"``.

        Raises:
            OperationTimeoutError: the SDK's own: there was none within ``max_wait`` seconds.
        """
        wait = duration(max_wait).total_seconds()
        following = self._entity.next_session(max_wait=wait, renew_for=duration(renew_for))
        return LockedSession(self._entity, following)

    def settle_by_token(self, decision: Decision, locks: LockReference | Iterable[LockReference]) -> Plan:
        """Plan to settle messages that another batch or process locked, by their lock tokens.

        Args:
            decision: complete, abandon, dead-letter or defer.
            locks: one or several locked messages, or pairs of sequence number and lock token.

        Raises:
            DecisionError: the decision is not possible, or a lock is not of this entity.
        """
        one = isinstance(locks, LockedMessage) or (isinstance(locks, tuple) and isinstance(locks[0], int))
        return Plan(self._entity.plan_by_token(decision, cast("Iterable[LockReference]", [locks] if one else locks)))

    def receive_and_delete(
        self,
        count: int,
        *,
        max_wait: float | str | timedelta = 5.0,
        archived: bool = True,
        show_progress: bool = True,
    ) -> Messages:
        """Receive messages that the service removes as it sends them; a message lost on the way is lost permanently.

        Args:
            count: how many at most.
            max_wait: seconds to wait for the first.
            archived: False to write nothing to the archive; otherwise messages are written to it as they arrive.
            show_progress: False for no bar.

        Raises:
            KeyboardInterrupt: it was interrupted; the attribute ``messages`` has those that had arrived.
        """
        warnings.warn(RECEIVE_AND_DELETE_WARNING, stacklevel=2)
        taken: list[PeekedMessage] = []
        with progress_bar(f"receive from {self.address}", count, shown=show_progress) as advance:
            wait = duration(max_wait).total_seconds()
            receive = partial(receive_and_delete, self._entity, count, max_wait=wait, archived=archived)
            try:
                run(receive, into=taken, progress=advance)
            except KeyboardInterrupt as interrupt:
                found: Any = interrupt
                found.messages = Messages(taken, where_from=str(self.address))
                interrupt.add_note(f"{len(taken):,} messages were received before, and are in sys.last_value.messages.")
                raise
        return Messages(taken, where_from=str(self.address))

    # ---------------------------------------------------------------- plans for messages in their place

    def resubmit(  # noqa: PLR0913 (each option has a name)
        self,
        messages: Choice | None = None,
        *,
        where: str | None = None,
        to: str | EntityAddress | Entity | None = None,
        delay: str | timedelta | None = None,
        edit: Edit | None = None,
        max_resubmits: MaxResubmits = DEFAULT_LIMIT,
        resend_unknown: bool = False,
        atomic: bool | Literal["forward"] = False,
        show_progress: bool = True,
    ) -> Plan:
        """Plan to send clones of messages of this entity, and to complete the originals.

        Args:
            messages: which ones: messages as they were peeked, or what :meth:`pick` takes, such as sequence numbers, a
                frame, or a group of causes. For sequence numbers, the entity is peeked up to the last of them.
            where: instead, the active messages for which this SQL expression over the message columns is true.
            to: where the clones go: the entity itself by default, or its topic; an entity of another namespace.
            delay: how long until the clones become active, such as ``"5m"``.
            edit: a function that gives the message to send for each message.
            max_resubmits: messages that were resubmitted this often are skipped, and dead-lettered unless they are dead
                letters; None for no limit. By default 5 for dead letters, and no limit for other messages.
            resend_unknown: send again clones that an interrupted run may have sent already.
            atomic: send each clone and complete its original in one transaction, from a dead-letter queue to its own
                entity. ``"forward"`` also sends to others, later: see :class:`Resubmit`. Experimental.
            show_progress: False for no bar.

        Raises:
            ConfigurationError: no messages are given.
            DecisionError: the messages cannot go there, or not in transactions.
        """
        there = to._entity.namespace if isinstance(to, Entity) else None  # noqa: SLF001 (of the same class)
        decision = Resubmit(address(to), duration(delay), max_resubmits, resend_unknown, atomic)
        meant = chosen_by(messages, where, self.address, self.peek)
        whole = [message for message in meant if isinstance(message, ReceivedMessage)]
        if len(whole) < len(meant):
            look = partial(self._entity.pick, meant, decision, edit=edit, to_namespace=there)
            plan = self._looked(look, shown=show_progress)
            return Plan(plan, receivers=self._said_of(plan, meant, there))
        plan = self._entity.plan_resubmit(whole, decision, edit=edit, to_namespace=there)
        return Plan(plan, receivers=self._said_of(plan, meant, there))

    def pick(
        self,
        messages: Choice | None,
        decision: Decision,
        *,
        where: str | None = None,
        edit: Edit | None = None,
        abandon_rest: bool = False,
        max_held: int = DEFAULT_MAX_HELD,
        archived: bool = True,
        show_progress: bool = True,
    ) -> Plan:
        """Plan to settle, defer or resubmit chosen messages in the middle of an entity, and no others.

        Args:
            messages: a peeked message, a sequence number, a row or a frame (pandas, Arrow or Spark) with the column
                ``sequence_number``, a group of :meth:`Messages.groups`, or an outcome. Any iterable of these works,
                too: a list, a pandas Series, a report. None with ``where``.
            where: instead, the active messages for which this SQL expression over the message columns is true.
            decision: such as ``Complete()``, ``DeadLetter("Bad")``, ``Defer()`` or ``Resubmit()``.
            edit: a function that gives the message to send for each message that is resubmitted.
            abandon_rest: abandon messages that were locked on the way and cannot be released, because their link was
                lost. They are available at once then, and their delivery counts go up at once; otherwise both happen
                when their locks end.
            max_held: messages that are locked at once at most: those that were not chosen are held to the end.
            archived: False to complete messages permanently; resubmitted messages are always archived.
            show_progress: False for no bar.

        Raises:
            ConfigurationError: no messages are given.
            DecisionError: the decision or a message cannot be picked here, or ``max_held`` or more other messages are
                in the way.
        """
        meant = chosen_by(messages, where, self.address, self.peek)
        pick = partial(self._entity.pick, meant, decision, edit=edit, abandon_rest=abandon_rest, archived=archived)
        plan = self._looked(partial(pick, max_held=max_held), shown=show_progress)
        return Plan(plan, receivers=self._said_of(plan, meant))

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
        """Plan to remove the messages that are here now; later ones stay.

        Args:
            where: only those for which this SQL expression over the message columns is true.
            before: only those that were enqueued before then; a duration such as ``"2d"`` counts back from now.
            to_sequence_number: only those up to this number, included.
            state: ``active``, ``deferred`` or ``scheduled`` messages only.
            archived: False to remove them for good; otherwise ``namespace.undo`` can send them back. Without an
                archive, and with no other choice than ``before``, Service Bus removes them itself, which takes seconds.
            show_progress: False for no bar.

        Raises:
            ConfigurationError: the expression, the duration or the state is wrong.
        """
        look = partial(
            self._entity.purge,
            only=message_filter(where),
            before=start_time(before),
            to_sequence_number=to_sequence_number,
            state=message_state(state),
            archived=archived,
        )
        return Plan(self._looked(look, shown=show_progress))

    def defer_all(
        self,
        *,
        where: str | None = None,
        before: str | datetime | timedelta | None = None,
        to_sequence_number: int | None = None,
        max_messages: int | None = None,
        show_progress: bool = True,
    ) -> Plan:
        """Plan to defer the active messages that are here now, so that each can be settled by its number.

        Args:
            where: only those for which this SQL expression over the message columns is true.
            before: only those that were enqueued before then; a duration such as ``"2d"`` counts back from now.
            to_sequence_number: only those up to this number, included.
            max_messages: only the first so many of all these.
            show_progress: False for no bar.

        Raises:
            ConfigurationError: the expression or the duration is wrong.
            DecisionError: too many other messages are between them.

        Example:
            >>> letters = connect("emulator").entity("orders/$dlq")  # doctest: +SKIP
            >>> letters.defer_all(where="dead_letter_reason = 'Invalid'").apply()  # doctest: +SKIP
            <Report defer: 1,200 settled>
        """
        look = partial(
            self._entity.defer_all,
            only=message_filter(where),
            before=start_time(before),
            to_sequence_number=to_sequence_number,
            max_messages=max_messages,
        )
        return Plan(self._looked(look, shown=show_progress))

    def _looked(self, look: Callable[..., Awaitable[AsyncPlan]], *, shown: bool) -> AsyncPlan:
        """Make a plan by looking at messages, whose number is not known."""
        with progress_bar(f"look into {self.address}", None, shown=shown) as advance:
            return run(look, progress=advance)

    def _said_of(
        self, plan: AsyncPlan, meant: Sequence[object], to: Resources | None = None
    ) -> Callable[[], Awaitable[str]]:
        """Return a sentence on the entity for a plan of no messages, else on the subscriptions that take clones."""
        if not meant:
            return self._entity.names_present
        return partial(clones_sent, to or self._entity.namespace, plan)

    def receivers_of(self, message: Message | str | bytes | Mapping[str, Any]) -> Receivers:
        """Tell which subscriptions of this topic would take a message, by their rules; nothing is sent.

        Service Bus accepts and drops a message that none takes. Copies that a subscription forwards are followed, and
        disabled subscriptions take copies, too, which wait there. A rule that reads what Service Bus sets as it takes
        the message, such as its sequence number, makes the answer for its subscription unknown.

        Args:
            message: what :meth:`send` takes for one message.

        Returns:
            The subscriptions that take it. Where the connection has no right Manage, the rules cannot be read, and the
            answer is unknown.

        Raises:
            DecisionError: this is not a topic.

        Example:
            >>> print(connect("emulator").entity("events").receivers_of({"subject": "late"}))  # doctest: +SKIP
            Taken by events/subscriptions/audit (by $Default).

        Source: Service Bus documentation, "Topic filters and actions"; "EntityStatus Enumeration" in Microsoft's
        reference, for disabled subscriptions.
        """
        (one,) = messages_from([message])
        is_place = self.address == self.address.sends_to
        found = run(Router(self._entity.namespace.connection).receivers, self.address, one) if is_place else None
        if found is None:
            raise DecisionError(f"{self.address} is not a topic: ask a topic which subscriptions take a message.")
        return found

    # ---------------------------------------------------------------- sending

    def send(
        self,
        messages: Any,
        *,
        max_in_flight: InFlight = AUTO,
        batch_size: int | None = None,
        rate: float | None = None,
        show_progress: bool = True,
    ) -> Report:
        """Send messages and wait for every confirmation.

        Args:
            messages: what :func:`sbnotebook.analysis.frames.messages_from` takes: messages, texts, rows, a pandas
                frame, an Arrow table, or an iterable of them, which is pulled as there is room.
            max_in_flight: transfers that wait for their confirmation at once.
            batch_size: messages in one transfer at most, None for as many as fit.
            rate: messages a second at most, None for no limit.
            show_progress: False for no bar.

        Returns:
            An outcome for each message, in the same order.
        """
        with progress_bar(f"send to {self.address}", count_of(messages), shown=show_progress) as advance:
            report = run(
                self._entity.send,
                to_send(messages),
                max_in_flight=max_in_flight,
                batch_size=batch_size,
                rate=rate,
                progress=advance,
            )
        return watched(report)

    def plan_send(
        self, data: Any, *, at: str | datetime | None = None, delay: str | timedelta | None = None
    ) -> SendPlan:
        """Plan to send messages, at once or later: see :class:`sbnotebook.client.SendPlan`."""
        return SendPlan(self._entity, data, at=at, delay=delay)

    def schedule(
        self,
        messages: Any,
        *,
        at: str | datetime | None = None,
        delay: str | timedelta | None = None,
        max_in_flight: InFlight = AUTO,
        rate: float | None = None,
        show_progress: bool = True,
    ) -> Report:
        """Send messages that become active later; their outcomes have the numbers that cancel them.

        Args:
            messages: as for :meth:`send`.
            at: when, with a time zone, or a text such as ``"2026-11-22T08:00"``, which is in this machine's time zone
                unless it says another; None for each message's own ``scheduled_enqueue_time``.
            delay: how much later than now instead, such as ``"5m"``.
            max_in_flight: requests that wait for their confirmation at once.
            rate: messages a second at most, None for no limit.
            show_progress: False for no bar.
        """
        with progress_bar(f"schedule to {self.address}", count_of(messages), shown=show_progress) as advance:
            report = run(
                self._entity.schedule,
                messages_from(messages),
                at=time_to_come(at),
                delay=duration(delay),
                max_in_flight=max_in_flight,
                rate=rate,
                progress=advance,
            )
        return watched(report)

    def cancel_scheduled(self, messages: Choice) -> Plan:
        """Plan to remove scheduled messages.

        Args:
            messages: which ones, as for :meth:`pick`.

        Raises:
            DecisionError: a message is not of this entity, or is not scheduled.
        """
        return Plan(self._entity.plan_cancel_scheduled(chosen(messages, self.address)))

    def warm(self, senders: int) -> None:
        """Open connections for sending ahead of time, each takes about half a second.

        Args:
            senders: how many, as many as there will be transfers in flight.
        """
        run(self._entity.namespace.pool(self.address).warm, senders)

    # ---------------------------------------------------------------- consuming

    def process(  # noqa: PLR0913 (each option has a name)
        self,
        function: MessageFunction,
        *,
        policy: Policy | None = None,
        max_in_flight: int = 1,
        rate: float | None = None,
        max_messages: int | None = None,
        max_wait: float | str | timedelta | None = 2.0,
        by_session: bool = False,
        seen: bool | str | timedelta = False,
        archived: bool = True,
        show_progress: bool = True,
    ) -> Report:
        """Consume messages with a function until none are left, and settle each by the end of the function.

        Args:
            function: called with each message. It may raise ``SkipMessage``, ``RejectMessage`` or
                ``StopProcessing``; any other exception means that it failed.
            policy: settles a message by the end of the function; None for ``Policy()``.
            max_in_flight: the most calls of the function at once, or with ``by_session`` the most sessions. With 1,
                the default, messages are processed in order. With more, each call runs in its own thread, so the
                function must be thread-safe.
            rate: messages a second at most, None for no limit.
            max_messages: stop after this many, None for all.
            max_wait: seconds without a message, or a duration such as ``"1m"``, after which the entity counts as empty;
                None to continue until it is interrupted.
            by_session: True to consume sessions, each in its order.
            seen: whether messages whose work is done are remembered, or for how long, such as ``"1d"``: when one is
                delivered again, it is completed and not done twice.
            archived: False to complete messages for good; otherwise ``namespace.undo`` can send them back.
            show_progress: False for no bar.

        Returns:
            An outcome for each message.

        Raises:
            ConfigurationError: a number is out of range.
            Exception: the function's own, where the policy says so, as it does by default. A note on it says how the
                messages ended.
        """
        options = process_options(
            policy, max_in_flight, rate, max_messages, max_wait, by_session=by_session, archived=archived
        )
        with progress_bar(f"process {self.address}", max_messages, shown=show_progress) as advance:
            report = run(self._processing(function, seen, options, advance).run)
        return watched(report)

    def start_processing(  # noqa: PLR0913 (each option has a name)
        self,
        function: MessageFunction,
        *,
        policy: Policy | None = None,
        max_in_flight: int = 1,
        rate: float | None = None,
        max_messages: int | None = None,
        max_wait: float | str | timedelta | None = None,
        by_session: bool = False,
        seen: bool | str | timedelta = False,
        archived: bool = True,
    ) -> Processing:
        """Consume messages in the background; arguments as for :meth:`process`.

        It runs until it is stopped, unless ``max_wait`` says when the entity counts as empty.
        """
        options = process_options(
            policy, max_in_flight, rate, max_messages, max_wait, by_session=by_session, archived=archived
        )
        return Processing(self._processing(function, seen, options))

    def _processing(
        self,
        function: MessageFunction,
        seen: bool | str | timedelta,
        options: ProcessOptions,
        progress: Progress | None = None,
    ) -> AsyncProcessing:
        refuse_coroutine_function(function, "The function")
        remembered = seen if isinstance(seen, bool) else duration(seen)
        return self._entity.processing(function, seen=remembered, progress=progress, **options)

    def __repr__(self) -> str:
        return f"<Entity {self.address} on {self._entity.namespace.host}>"
