"""One entity: look at, lock, settle, send and consume its messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any, Literal, cast

import anyio

from sbnotebook.analysis import query
from sbnotebook.analysis.decoders import Decoding, columns_of
from sbnotebook.analysis.decoding import Decode, decoder_for
from sbnotebook.analysis.frames import messages_from, one_table, tables_of_pages, to_send
from sbnotebook.client.async_batch import AsyncDeferredMessages, AsyncLockedBatch, AsyncLockedSession, deferred_messages
from sbnotebook.client.async_plan import AsyncPlan, AsyncProcessing, count_of, plan_send
from sbnotebook.client.messages import MOST_NAMES, Messages, Present, present_in
from sbnotebook.client.portal import Keeper, blocking, if_interrupted, is_synchronous, progress_bar, warn, watched
from sbnotebook.client.receivers import Receivers, Router, clones_sent
from sbnotebook.client.targets import (
    Choice,
    address,
    check_choice,
    check_sequence_number,
    chosen,
    duration,
    message_filter,
    message_state,
    start_time,
    time_to_come,
    whole_number,
)
from sbnotebook.client.verbs import SdkNames, documented
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
    Send,
)
from sbnotebook.model.budget import Allowance
from sbnotebook.model.decision import AUTO, MaxResubmits
from sbnotebook.model.edits import Edit, refuse_coroutine_function
from sbnotebook.settlement import (
    DEFAULT_MAX_HELD,
    DEFAULT_RENEW_FOR,
    InFlight,
    LockReference,
    MessageFunction,
    PeekCursor,
    Policy,
    Resources,
    SequenceNumbers,
)
from sbnotebook.settlement import AsyncEntity as Place
from sbnotebook.settlement import Plan as InnerPlan
from sbnotebook.settlement import Processing as InnerProcessing


@documented
class AsyncEntity(SdkNames):
    """One queue, topic, subscription or sub-queue."""

    def __init__(self, place: Place) -> None:
        self.place = place

    @property
    def address(self) -> EntityAddress:
        """Return its address."""
        return self.place.address

    # ---------------------------------------------------------------- looking

    async def peek(  # noqa: PLR0913 (each option has a name)
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

        Raises:
            ConfigurationError: the expression, the state, the number or the decoder is wrong.
            MissingExtraError: the extra of the decoder is missing.
        """
        decoding = None if decode is None else Decoding(decoder_for(decode))
        if max_messages is not None:
            max_messages = whole_number(max_messages, "max_messages")
        check_sequence_number(from_sequence_number, "from_sequence_number")
        if to_sequence_number is not None and to_sequence_number < from_sequence_number:
            raise ConfigurationError(
                f"to_sequence_number, {to_sequence_number}, is before from_sequence_number, {from_sequence_number}: "
                "exchange them."
            )
        most = max_messages if where is None else None
        # Messages in another state or session are passed on the way.
        total = most if state is None and session_id is None else None
        with progress_bar(f"peek {self.address}", total, shown=show_progress) as advance:
            cursor = PeekCursor(from_sequence_number, to_sequence_number, most, message_state(state), session_id)
            pages = self.place.peeker.unread_pages(cursor)
            tables = tables_of_pages(pages, cursor, advance, unpacking)
            if decoding is not None:
                tables = decoding.tables(tables)
            if where is None:
                return Messages(await one_table(tables), where_from=str(self.address))
            seen = Present()
            found = await query.first_matching(seen.noting(tables), where, max_messages, columns=columns_of(decoding))
        return Messages(found, where_from=str(self.address), note="" if len(found) else str(seen))

    def parts(
        self,
        size: int = 1_000,
        *,
        where: str | None = None,
        from_sequence_number: int = 1,
        state: str | None = None,
        decode: Decode | None = None,
    ) -> AsyncIterator[Messages]:
        """Peek at the current messages in parts; later messages are in no part.

        Only one part is in memory at a time. A loop that resubmits each part ends, also where the consumer still fails
        and dead-letters the messages again.

        Args:
            size: messages in a part at most.
            from_sequence_number: where to begin, included.
            state: ``active``, ``deferred`` or ``scheduled`` messages only.
            decode: as for :meth:`peek`.

        Raises:
            ConfigurationError: the expression, the state or the decoder is wrong, or the size is below 1.

        Example:
            >>> letters = namespace.entity("orders/$dlq")  # doctest: +SKIP
            >>> async for part in letters.parts(500):  # doctest: +SKIP
            ...     (await (await letters.resubmit(part, to="orders")).apply(rate=100)).raise_for_failures()
        """
        size = whole_number(size, "size", least=1)
        look = partial(self.peek, size, where=where, state=state, decode=decode, show_progress=False)
        return self._parts(look, size, from_sequence_number)

    async def _parts(self, look: Callable[..., Awaitable[Messages]], size: int, start: int) -> AsyncIterator[Messages]:
        for first, last in await SequenceNumbers.of(self.place).spans():
            following = max(first, start)
            while following <= last:
                part = await look(from_sequence_number=following, to_sequence_number=last)
                if part:
                    yield part
                if len(part) < size:
                    break
                following = part[-1].sequence_number + 1

    async def scheduled(self, max_messages: int | None = None, *, where: str | None = None) -> Messages:
        """Look at the messages of a queue that become active later; arguments as for :meth:`peek`."""
        return await self.peek(max_messages, where=where, state=MessageState.SCHEDULED)

    async def deferred(self, *, show_progress: bool = True) -> AsyncDeferredMessages:
        """Find the deferred messages, in the journal and in the entity, which is peeked to its end."""
        with progress_bar(f"look into {self.address}", None, shown=show_progress) as advance:
            return await deferred_messages(self.place, advance)

    # ---------------------------------------------------------------- locking

    async def lock(
        self,
        count: int | None = 10,
        *,
        max_wait: float | str | timedelta = 5.0,
        renew_for: str | timedelta = DEFAULT_RENEW_FOR,
    ) -> AsyncLockedBatch:
        """Lock messages and hold them, with their locks renewed, until they are settled or the batch is closed.

        Args:
            count: how many messages at most; None for all that come, up to 50,000, and 0 for none yet.
                ``batch.receive`` locks more.
            max_wait: seconds to wait for the first, or a duration such as ``"1m"``.
            renew_for: for how long locks are renewed, such as ``"30m"``.
        """
        count = None if count is None else whole_number(count, "count")
        held = self.place.batch(renew_for=duration(renew_for))
        batch = AsyncLockedBatch(self.place, held, await Keeper.opened(held))
        try:
            if count != 0:
                await batch.receive(count, max_wait=max_wait)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await batch.close()
            raise
        return batch

    async def sessions(self) -> list[str]:
        """List the sessions that have active messages or a state; ``peek(session_id=…)`` looks into one."""
        return await self.place.sessions()

    async def session(self, session_id: str, *, renew_for: str | timedelta = DEFAULT_RENEW_FOR) -> AsyncLockedSession:
        """Lock a session and hold it until it is closed.

        Args:
            session_id: which one; it need not have messages.
            renew_for: for how long its lock is renewed, such as ``"30m"``.

        Raises:
            SessionCannotBeLockedError: the SDK's own: another receiver holds it.
        """
        session = self.place.session(session_id, renew_for=duration(renew_for))
        return AsyncLockedSession(self.place, session, await Keeper.opened(session))

    async def next_session(
        self, *, max_wait: float | str | timedelta = 60.0, renew_for: str | timedelta = DEFAULT_RENEW_FOR
    ) -> AsyncLockedSession:
        """Lock the next session that has messages and no receiver.

        Args:
            max_wait: seconds to wait for one.
            renew_for: for how long its lock is renewed, such as ``"30m"``.

        Raises:
            OperationTimeoutError: the SDK's own: there was none within ``max_wait`` seconds.
        """
        within = duration(max_wait).total_seconds()
        session = self.place.session(None, max_wait=within, renew_for=duration(renew_for))
        return AsyncLockedSession(self.place, session, await Keeper.opened(session))

    async def settle_by_token(self, decision: Decision, locks: LockReference | Iterable[LockReference]) -> AsyncPlan:
        """Plan to settle messages that another batch or process locked, by their lock tokens.

        Args:
            decision: complete, abandon, dead-letter or defer.
            locks: one or several locked messages, or pairs of sequence number and lock token.

        Raises:
            DecisionError: the decision is not possible, or a lock is not of this entity.
        """
        one = isinstance(locks, LockedMessage) or (isinstance(locks, tuple) and isinstance(locks[0], int))
        several = cast("Iterable[LockReference]", [locks] if one else locks)
        return AsyncPlan(await blocking(self.place.plan_by_token, decision, several))

    async def receive_and_delete(
        self, count: int, *, max_wait: float | str | timedelta = 5.0, archived: bool = True, show_progress: bool = True
    ) -> Messages:
        """Receive messages that the service removes as it sends them; a message lost on the way is lost permanently.

        Args:
            count: how many at most.
            max_wait: seconds to wait for the first.
            archived: False to write nothing to the archive; otherwise messages are written to it as they arrive.

        Raises:
            KeyboardInterrupt: it was interrupted; the attribute ``messages`` has those that had arrived. With
                ``await``, the CancelledError has it.
        """
        await warn(
            "Receive-and-delete removes each message as Service Bus sends it: a message lost on the way "
            "cannot be recovered. If you must not lose messages, lock and complete them instead."
        )
        taken: list[PeekedMessage] = []

        def keep(interrupt: BaseException) -> None:
            interrupt.__dict__["messages"] = Messages(taken, where_from=str(self.address))
            interrupt.add_note(f"{len(taken):,} messages were received before, and are in sys.last_value.messages.")

        with progress_bar(f"receive from {self.address}", count, shown=show_progress) as advance:
            wait = duration(max_wait).total_seconds()
            receive = partial(self.place.receive_and_delete, count, max_wait=wait, archived=archived)
            if_interrupted(keep)
            try:
                await receive(into=taken, progress=advance)
            except asyncio.CancelledError as cancelled:
                keep(cancelled)
                raise
        return Messages(taken, where_from=str(self.address))

    # ---------------------------------------------------------------- plans for messages in their place

    async def resubmit(  # noqa: PLR0913 (each option has a name)
        self,
        messages: Choice | None = None,
        *,
        where: str | None = None,
        to: str | EntityAddress | AsyncEntity | None = None,
        delay: str | timedelta | None = None,
        edit: Edit | None = None,
        max_resubmits: MaxResubmits = AUTO,
        resend_unknown: bool = False,
        atomic: bool | Literal["forward"] = False,
        show_progress: bool = True,
    ) -> AsyncPlan:
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

        Raises:
            ConfigurationError: no messages are given.
            DecisionError: the messages cannot go there, or not in transactions.
        """
        there = None
        if isinstance(to, AsyncEntity):
            there, to = to.place.namespace, to.address
        decision = Resubmit(address(to), duration(delay), max_resubmits, resend_unknown, atomic)
        meant = await self._meant(messages, where)
        whole = [message for message in meant if isinstance(message, ReceivedMessage)]
        if len(whole) < len(meant):
            look = partial(self.place.pick, meant, decision, edit=edit, to_namespace=there)
            plan = await self._looked(look, shown=show_progress)
        else:
            plan = await blocking(self.place.plan_resubmit, whole, decision, edit=edit, to_namespace=there)
        return AsyncPlan(plan, receivers=self._said_of(plan, meant, there))

    async def pick(
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
    ) -> AsyncPlan:
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

        Raises:
            ConfigurationError: no messages are given.
            DecisionError: the decision or a message cannot be picked here, or ``max_held`` or more other messages are
                in the way.
        """
        meant = await self._meant(messages, where)
        pick = partial(self.place.pick, meant, decision, edit=edit, abandon_rest=abandon_rest, archived=archived)
        plan = await self._looked(partial(pick, max_held=max_held), shown=show_progress)
        return AsyncPlan(plan, receivers=self._said_of(plan, meant))

    async def _meant(self, messages: Choice | None, where: str | None) -> list[ReceivedMessage | int]:
        check_choice(messages, where)
        if where is None:
            return await blocking(chosen, messages, self.address)
        return await blocking(list[ReceivedMessage | int], await self.peek(where=where, state="active"))

    async def purge(
        self,
        *,
        where: str | None = None,
        before: str | datetime | timedelta | None = None,
        to_sequence_number: int | None = None,
        state: str | None = None,
        archived: bool = True,
        show_progress: bool = True,
    ) -> AsyncPlan:
        """Plan to remove the messages that are here now; later ones stay.

        Args:
            before: only those that were enqueued before then; a duration such as ``"2d"`` counts back from now.
            to_sequence_number: only those up to this number, included.
            state: ``active``, ``deferred`` or ``scheduled`` messages only.
            archived: False to remove them for good; otherwise ``namespace.undo`` can send them back. Without an
                archive, and with no other choice than ``before``, Service Bus removes them itself, which takes seconds.

        Raises:
            ConfigurationError: the expression, the duration or the state is wrong.
        """
        look = partial(
            self.place.purge,
            only=await blocking(message_filter, where),
            before=start_time(before),
            to_sequence_number=to_sequence_number,
            state=message_state(state),
            archived=archived,
        )
        return AsyncPlan(await self._looked(look, shown=show_progress))

    async def defer_all(
        self,
        *,
        where: str | None = None,
        before: str | datetime | timedelta | None = None,
        to_sequence_number: int | None = None,
        max_messages: int | None = None,
        show_progress: bool = True,
    ) -> AsyncPlan:
        """Plan to defer the active messages that are here now, so that each can be settled by its number.

        Args:
            before: only those that were enqueued before then; a duration such as ``"2d"`` counts back from now.
            to_sequence_number: only those up to this number, included.
            max_messages: maximum number of messages, from the first; None for all.

        Raises:
            ConfigurationError: the expression or the duration is wrong.
            DecisionError: too many other messages are between them.

        Example:
            >>> plan = await letters.defer_all(where="dead_letter_reason = 'Invalid'")  # doctest: +SKIP
            >>> await plan.apply()  # doctest: +SKIP
            <Report Deferred 1,200 messages>
        """
        look = partial(
            self.place.defer_all,
            only=await blocking(message_filter, where),
            before=start_time(before),
            to_sequence_number=to_sequence_number,
            max_messages=max_messages,
        )
        return AsyncPlan(await self._looked(look, shown=show_progress))

    async def _looked(self, look: Callable[..., Awaitable[InnerPlan]], *, shown: bool) -> InnerPlan:
        """Make a plan by looking at messages, whose number is not known."""
        with progress_bar(f"look into {self.address}", None, shown=shown) as advance:
            return await look(progress=advance)

    def _said_of(
        self, plan: InnerPlan, meant: Sequence[object], to: Resources | None = None
    ) -> Callable[[], Awaitable[str]]:
        """Return a sentence on the entity for a plan of no messages, else on the subscriptions that take clones."""
        if not meant:
            return self._names_present
        return partial(clones_sent, to or self.place.namespace, plan)

    async def _names_present(self) -> str:
        return present_in((await self.peek(MOST_NAMES, show_progress=False)).to_arrow())

    async def receivers_of(self, message: Message | str | bytes | Mapping[str, Any]) -> Receivers:
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
            >>> print(await namespace.entity("events").receivers_of({"subject": "late"}))  # doctest: +SKIP
            Taken by events/subscriptions/audit (by $Default).

        Source: Service Bus documentation, "Topic filters and actions"; "EntityStatus Enumeration" in Microsoft's
        reference, for disabled subscriptions.
        """
        (one,) = messages_from([message])
        is_place = self.address == self.address.sends_to
        found = await Router(self.place.namespace.connection).receivers(self.address, one) if is_place else None
        if found is None:
            raise DecisionError(f"{self.address} is not a topic: ask a topic which subscriptions take a message.")
        return found

    # ---------------------------------------------------------------- sending

    async def send(
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

        Returns:
            An outcome for each message, in the same order.
        """
        with progress_bar(f"send to {self.address}", count_of(messages), shown=show_progress) as advance:
            report = await self.place.send(
                await blocking(to_send, messages),
                max_in_flight=max_in_flight,
                batch_size=batch_size,
                rate=rate,
                progress=advance,
                total=count_of(messages),
            )
        return watched(report)

    async def plan_send(
        self, data: Any, *, at: str | datetime | None = None, delay: str | timedelta | None = None
    ) -> AsyncPlan:
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
            >>> await namespace.entity("orders").plan_send(["a", "b"], delay="5m")  # doctest: +SKIP
            Plan: send 2 messages to orders, active 5m later.
        """
        return await blocking(plan_send, self.place, data, at, delay)

    async def schedule(
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
        """
        with progress_bar(f"schedule to {self.address}", count_of(messages), shown=show_progress) as advance:
            report = await self.place.send(
                await blocking(messages_from, messages),
                Send(time_to_come(at), duration(delay)),
                own_times=True,
                max_in_flight=max_in_flight,
                rate=rate,
                progress=advance,
                total=count_of(messages),
            )
        return watched(report)

    async def cancel_scheduled(self, messages: Choice) -> AsyncPlan:
        """Plan to remove scheduled messages.

        Args:
            messages: which ones, as for :meth:`pick`.

        Raises:
            DecisionError: a message is not of this entity, or is not scheduled.
        """
        return AsyncPlan(self.place.plan_cancel_scheduled(await blocking(chosen, messages, self.address)))

    async def warm(self, senders: int) -> None:
        """Open connections for sending ahead of time, each takes about half a second.

        Args:
            senders: how many, as many as there will be transfers in flight.
        """
        await self.place.namespace.pool(self.address).warm(senders)

    # ---------------------------------------------------------------- consuming

    async def process(  # noqa: PLR0913 (each option has a name)
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

        Returns:
            An outcome for each message.

        Raises:
            ConfigurationError: a number is out of range.
            Exception: the function's own, where the policy says so, as it does by default. A note on it says how the
                messages ended.
        """
        own = {"rate": rate, "max_messages": max_messages, "by_session": by_session, "archived": archived}
        own["max_in_flight"] = max_in_flight
        with progress_bar(f"process {self.address}", max_messages, shown=show_progress) as advance:
            report = await self._processing(function, policy, max_wait, seen, progress=advance, **own).run()
        return watched(report)

    async def start_processing(  # noqa: PLR0913 (each option has a name)
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
    ) -> AsyncProcessing:
        """Consume messages in the background; arguments as for :meth:`process`.

        It runs until it is stopped, unless ``max_wait`` says when the entity counts as empty.
        """
        own = {"rate": rate, "max_messages": max_messages, "by_session": by_session, "archived": archived}
        own["max_in_flight"] = max_in_flight
        return AsyncProcessing(self._processing(function, policy, max_wait, seen, **own))

    def _processing(
        self,
        function: MessageFunction,
        policy: Policy | None,
        max_wait: float | str | timedelta | None,
        seen: bool | str | timedelta,
        **options: Any,
    ) -> InnerProcessing:
        if not callable(function):
            raise ConfigurationError(f"Messages are processed by a function, not by {type(function).__name__}.")
        if is_synchronous():
            refuse_coroutine_function(function, "The function")
        wait = duration(max_wait)
        options["policy"] = policy or Policy()
        options["max_wait"] = None if wait is None else wait.total_seconds()
        options["seen"] = seen if isinstance(seen, bool) else duration(seen)
        return self.place.processing(function, **options)

    def __repr__(self) -> str:
        return f"<Entity {self.address} on {self.place.namespace.host}>"
