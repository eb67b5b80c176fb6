"""One entity: look at, lock, settle, send and consume its messages.

Do not edit: ``make format`` writes this file from async_entity.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any, Literal

from sbnotebook.analysis.decoding import Decode
from sbnotebook.client.async_entity import AsyncEntity
from sbnotebook.client.batch import DeferredMessages, LockedBatch, LockedSession
from sbnotebook.client.messages import Messages
from sbnotebook.client.plan import Plan, Processing
from sbnotebook.client.portal import (
    in_turn,
    run,
)
from sbnotebook.client.receivers import Receivers
from sbnotebook.client.targets import (
    Choice,
)
from sbnotebook.client.verbs import Twin, twin_of
from sbnotebook.model import (
    Decision,
    EntityAddress,
    Message,
    Report,
)
from sbnotebook.model.budget import Allowance
from sbnotebook.model.decision import AUTO, MaxResubmits
from sbnotebook.model.edits import Edit
from sbnotebook.settlement import (
    DEFAULT_MAX_HELD,
    DEFAULT_RENEW_FOR,
    InFlight,
    LockReference,
    MessageFunction,
    Policy,
)


class Entity(Twin[AsyncEntity]):
    """One queue, topic, subscription or sub-queue."""

    @property
    def address(self) -> EntityAddress:
        """Return its address."""
        return self.asynchronous.address

    def peek(  # noqa: PLR0913 (each option has a name)
        self,
        max_messages: int | None = None,
        *,
        where: str | None = None,
        from_sequence_number: int = 1,
        to_sequence_number: int | None = None,
        state: str | None = None,
        session_id: str | None = None,
        decode: Decode | None = None,
        show_progress: bool = True,
        unpacking: Allowance | None = None,
    ) -> Messages:
        """Look at messages without locking them, to the end of the entity by default.

        Args:
            max_messages: how many are returned at most, None for all. With ``where``, these are the first that match,
                and as many are read as that takes; ``peek(1_000).where(…)`` looks at 1,000 only.
            from_sequence_number: where to begin, included.
            to_sequence_number: where to stop, included; None for the end.
            state: ``active``, ``deferred`` or ``scheduled`` messages only.
            session_id: only messages of this session; does not lock it.
            decode: decodes their bodies first, as :meth:`Messages.decode` does, so that ``where`` sees the values.
            show_progress: False for no bar.
            unpacking: what several calls may unpack together, see :mod:`sbnotebook.model.budget`; None for this call
                alone.
            where: only messages for which this SQL expression over the message columns is true.

        Raises:
            ConfigurationError: the expression, the state, the number or the decoder is wrong.
            MissingExtraError: the extra of the decoder is missing.
        """
        return run(
            self.asynchronous.peek,
            max_messages,
            where=where,
            from_sequence_number=from_sequence_number,
            to_sequence_number=to_sequence_number,
            state=state,
            session_id=session_id,
            decode=decode,
            show_progress=show_progress,
            unpacking=unpacking,
        )

    def parts(
        self,
        size: int = 1000,
        *,
        where: str | None = None,
        from_sequence_number: int = 1,
        state: str | None = None,
        decode: Decode | None = None,
    ) -> Iterator[Messages]:
        """Peek at the current messages in parts; later messages are in no part.

        Only one part is in memory at a time. A loop that resubmits each part ends, also where the consumer still fails
        and dead-letters the messages again.

        Args:
            size: messages in a part at most.
            from_sequence_number: where to begin, included.
            state: ``active``, ``deferred`` or ``scheduled`` messages only.
            decode: as for :meth:`peek`.
            where: only messages for which this SQL expression over the message columns is true.

        Raises:
            ConfigurationError: the expression, the state or the decoder is wrong, or the size is below 1.

        Example:
            >>> letters = namespace.entity("orders/$dlq")  # doctest: +SKIP
            >>> for part in letters.parts(500):  # doctest: +SKIP
            ...     letters.resubmit(part, to="orders").apply(rate=100).raise_for_failures()
        """
        return in_turn(
            self.asynchronous.parts(
                size, where=where, from_sequence_number=from_sequence_number, state=state, decode=decode
            )
        )

    def scheduled(self, max_messages: int | None = None, *, where: str | None = None) -> Messages:
        """Look at the messages of a queue that become active later; arguments as for :meth:`peek`."""
        return run(self.asynchronous.scheduled, max_messages, where=where)

    def deferred(self, *, show_progress: bool = True) -> DeferredMessages:
        """Find the deferred messages, in the journal and in the entity, which is peeked to its end."""
        return DeferredMessages(run(self.asynchronous.deferred, show_progress=show_progress))

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
        return LockedBatch(run(self.asynchronous.lock, count, max_wait=max_wait, renew_for=renew_for))

    def sessions(self) -> list[str]:
        """List the sessions that have active messages or a state; ``peek(session_id=…)`` looks into one."""
        return run(self.asynchronous.sessions)

    def session(self, session_id: str, *, renew_for: str | timedelta = DEFAULT_RENEW_FOR) -> LockedSession:
        """Lock a session and hold it until it is closed.

        Args:
            session_id: which one; it need not have messages.
            renew_for: for how long its lock is renewed, such as ``"30m"``.

        Raises:
            SessionCannotBeLockedError: the SDK's own: another receiver holds it.
        """
        return LockedSession(run(self.asynchronous.session, session_id, renew_for=renew_for))

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
        return LockedSession(run(self.asynchronous.next_session, max_wait=max_wait, renew_for=renew_for))

    def settle_by_token(self, decision: Decision, locks: LockReference | Iterable[LockReference]) -> Plan:
        """Plan to settle messages that another batch or process locked, by their lock tokens.

        Args:
            decision: complete, abandon, dead-letter or defer.
            locks: one or several locked messages, or pairs of sequence number and lock token.

        Raises:
            DecisionError: the decision is not possible, or a lock is not of this entity.
        """
        return Plan(run(self.asynchronous.settle_by_token, decision, locks))

    def receive_and_delete(
        self, count: int, *, max_wait: float | str | timedelta = 5.0, archived: bool = True, show_progress: bool = True
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
        return run(
            self.asynchronous.receive_and_delete,
            count,
            max_wait=max_wait,
            archived=archived,
            show_progress=show_progress,
        )

    def resubmit(  # noqa: PLR0913 (each option has a name)
        self,
        messages: Choice | None = None,
        *,
        where: str | None = None,
        to: str | EntityAddress | Entity | None = None,
        delay: str | timedelta | None = None,
        edit: Edit | None = None,
        max_resubmits: MaxResubmits = AUTO,
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
            edit: a function that returns the message to send for each message.
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
        return Plan(
            run(
                self.asynchronous.resubmit,
                messages,
                where=where,
                to=twin_of(to),
                delay=delay,
                edit=edit,
                max_resubmits=max_resubmits,
                resend_unknown=resend_unknown,
                atomic=atomic,
                show_progress=show_progress,
            )
        )

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
            edit: a function that returns the message to send for each message that is resubmitted.
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
        return Plan(
            run(
                self.asynchronous.pick,
                messages,
                decision,
                where=where,
                edit=edit,
                abandon_rest=abandon_rest,
                max_held=max_held,
                archived=archived,
                show_progress=show_progress,
            )
        )

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
            before: only those that were enqueued before then; a duration such as ``"2d"`` counts back from now.
            to_sequence_number: only those up to this number, included.
            state: ``active``, ``deferred`` or ``scheduled`` messages only.
            archived: False to remove them for good; otherwise ``namespace.undo`` can send them back. Without an
                archive, and with no other choice than ``before``, Service Bus removes them itself, which takes seconds.
            where: only messages for which this SQL expression over the message columns is true.
            show_progress: False for no bar.

        Raises:
            ConfigurationError: the expression, the duration or the state is wrong.
        """
        return Plan(
            run(
                self.asynchronous.purge,
                where=where,
                before=before,
                to_sequence_number=to_sequence_number,
                state=state,
                archived=archived,
                show_progress=show_progress,
            )
        )

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
            before: only those that were enqueued before then; a duration such as ``"2d"`` counts back from now.
            to_sequence_number: only those up to this number, included.
            max_messages: maximum number of messages, from the first; None for all.
            where: only messages for which this SQL expression over the message columns is true.
            show_progress: False for no bar.

        Raises:
            ConfigurationError: the expression or the duration is wrong.
            DecisionError: too many other messages are between them.

        Example:
            >>> plan = letters.defer_all(where="dead_letter_reason = 'Invalid'")  # doctest: +SKIP
            >>> plan.apply()  # doctest: +SKIP
            <Report Deferred 1,200 messages>
        """
        return Plan(
            run(
                self.asynchronous.defer_all,
                where=where,
                before=before,
                to_sequence_number=to_sequence_number,
                max_messages=max_messages,
                show_progress=show_progress,
            )
        )

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
            >>> print(namespace.entity("events").receivers_of({"subject": "late"}))  # doctest: +SKIP
            Taken by events/subscriptions/audit (by $Default).

        Source: Service Bus documentation, "Topic filters and actions"; "EntityStatus Enumeration" in Microsoft's
        reference, for disabled subscriptions.
        """
        return run(self.asynchronous.receivers_of, message)

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
            batch_size: messages in one transfer at most, None for as many as fit.
            max_in_flight: the most operations in progress at once; ``"auto"`` adapts to the network.
            rate: messages a second at most, None for no limit.
            show_progress: False for no bar.

        Returns:
            An outcome for each message, in the same order.
        """
        return run(
            self.asynchronous.send,
            messages,
            max_in_flight=max_in_flight,
            batch_size=batch_size,
            rate=rate,
            show_progress=show_progress,
        )

    def plan_send(self, data: Any, *, at: str | datetime | None = None, delay: str | timedelta | None = None) -> Plan:
        """Plan to send messages, at once or later. Making the plan sends nothing.

        Args:
            data: what :func:`sbnotebook.analysis.frames.messages_from` takes; of an iterator up to 100,000 messages,
                which are read now, because a plan counts them and shows the first.
            at: when they become active, as for :meth:`schedule`; None for at once.
            delay: how much later than when they are sent instead, such as ``"5m"``.

        Raises:
            ConfigurationError: the first messages cannot be made of the data, or the delay is none.
            DecisionError: the time is not clear.

        Example:
            >>> namespace.entity("orders").plan_send(["a", "b"], delay="5m")  # doctest: +SKIP
            Plan: send 2 messages to orders, active 5m later.
        """
        return Plan(run(self.asynchronous.plan_send, data, at=at, delay=delay))

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
            max_in_flight: the most operations in progress at once; ``"auto"`` adapts to the network.
            rate: messages a second at most, None for no limit.
            show_progress: False for no bar.
        """
        return run(
            self.asynchronous.schedule,
            messages,
            at=at,
            delay=delay,
            max_in_flight=max_in_flight,
            rate=rate,
            show_progress=show_progress,
        )

    def cancel_scheduled(self, messages: Choice) -> Plan:
        """Plan to remove scheduled messages.

        Args:
            messages: which ones, as for :meth:`pick`.

        Raises:
            DecisionError: a message is not of this entity, or is not scheduled.
        """
        return Plan(run(self.asynchronous.cancel_scheduled, messages))

    def warm(self, senders: int) -> None:
        """Open connections for sending ahead of time, each takes about half a second.

        Args:
            senders: how many, as many as there will be transfers in flight.
        """
        run(self.asynchronous.warm, senders)

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
            max_messages: stop after this many, None for all.
            max_wait: seconds without a message, or a duration such as ``"1m"``, after which the entity counts as empty;
                None to continue until it is interrupted.
            by_session: True to consume sessions, each in its order.
            seen: whether messages whose work is done are remembered, or for how long, such as ``"1d"``: when one is
                delivered again, it is completed and not done twice.
            rate: messages a second at most, None for no limit.
            archived: False to remove messages for good; otherwise ``namespace.undo`` can send them back.
            show_progress: False for no bar.

        Returns:
            An outcome for each message.

        Raises:
            ConfigurationError: a number is out of range.
            Exception: the function's own, where the policy says so, as it does by default. A note on it says how the
                messages ended.
        """
        return run(
            self.asynchronous.process,
            function,
            policy=policy,
            max_in_flight=max_in_flight,
            rate=rate,
            max_messages=max_messages,
            max_wait=max_wait,
            by_session=by_session,
            seen=seen,
            archived=archived,
            show_progress=show_progress,
        )

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
        return Processing(
            run(
                self.asynchronous.start_processing,
                function,
                policy=policy,
                max_in_flight=max_in_flight,
                rate=rate,
                max_messages=max_messages,
                max_wait=max_wait,
                by_session=by_session,
                seen=seen,
                archived=archived,
            )
        )

    def __repr__(self) -> str:
        return self.asynchronous.__repr__()
