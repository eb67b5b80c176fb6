"""One entity of a namespace, asynchronously: what can be done there."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Unpack

from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    Complete,
    Decision,
    LockedMessage,
    MessageState,
    PeekedMessage,
    ReceivedMessage,
    Report,
    Resubmit,
)
from sbnotebook.settlement.deferring.defer_all import plan_defer_all
from sbnotebook.settlement.deferring.deferred import Deferrals, compared, plan_of_deferred, settle_deferred
from sbnotebook.settlement.entity_sends import AsyncEntitySends
from sbnotebook.settlement.locking.by_token import Lock, plan_by_token
from sbnotebook.settlement.locking.lock import DEFAULT_RENEW_FOR, LockedBatch
from sbnotebook.settlement.locking.receive_and_delete import WARNING as RECEIVE_AND_DELETE_WARNING
from sbnotebook.settlement.locking.receive_and_delete import receive_and_delete
from sbnotebook.settlement.locking.sessions import SessionBatch, session_ids
from sbnotebook.settlement.locking.settle import DEFAULT_MAX_IN_FLIGHT, Progress, check_decision
from sbnotebook.settlement.picking.pick import PickOptions, plan_pick
from sbnotebook.settlement.picking.sweep import Chosen, Filter
from sbnotebook.settlement.plan import Edit, Limits, Plan, refuse_coroutine_function
from sbnotebook.settlement.processing.calls import AnyFunction
from sbnotebook.settlement.processing.process import Processing
from sbnotebook.settlement.processing.run import Options, ProcessOptions
from sbnotebook.settlement.removing.purge import plan_purge
from sbnotebook.settlement.resubmitting.resubmit import Resubmitter
from sbnotebook.settlement.sending.schedule import plan_cancel_scheduled

__all__ = ["AsyncEntity"]


class AsyncEntity(AsyncEntitySends):
    """One queue, topic, subscription or sub-queue: what can be done there.

    Args:
        namespace: where it is.
        address: which one.
    """

    def pages(
        self,
        *,
        from_sequence_number: int = 1,
        to_sequence_number: int | None = None,
        max_messages: int | None = None,
        state: MessageState | None = None,
        session_id: str | None = None,
    ) -> AsyncIterator[list[PeekedMessage]]:
        """Peek page after page to the end: see :meth:`sbnotebook.settlement.peek.Peeker.pages`."""
        return self.namespace.peeker(self.address).pages(
            from_sequence_number=from_sequence_number,
            to_sequence_number=to_sequence_number,
            max_messages=max_messages,
            state=state,
            session_id=session_id,
        )

    async def peek(
        self,
        max_messages: int | None = None,
        *,
        from_sequence_number: int = 1,
        to_sequence_number: int | None = None,
        state: MessageState | None = None,
        session_id: str | None = None,
        progress: Progress | None = None,
    ) -> list[PeekedMessage]:
        """Look at messages without locking them.

        Args:
            max_messages: how many at most, None for all of them.
            from_sequence_number: where to begin, included.
            to_sequence_number: where to stop, included; None for the end.
            state: only messages in this state.
            session_id: only messages of this session, which is not locked by that.
            progress: told of every page, in messages.
        """
        found: list[PeekedMessage] = []
        async for page in self.pages(
            from_sequence_number=from_sequence_number,
            to_sequence_number=to_sequence_number,
            max_messages=max_messages,
            state=state,
            session_id=session_id,
        ):
            found += page
            if progress is not None:
                progress(len(page))
        return found

    def batch(
        self,
        *,
        renew_for: timedelta = DEFAULT_RENEW_FOR,
        verb: str = Complete.verb,
        archived: bool = True,
        recorded: bool = True,
    ) -> LockedBatch:
        """An empty batch to lock messages with; open it as an asynchronous context manager.

        Args:
            renew_for: for how long locks are renewed.
            verb: what its settlements are part of, for the archive.
            archived: False where completed messages are removed for good.
            recorded: False where nothing at all is written down on this machine, because somebody else does.
        """
        namespace = self.namespace
        return LockedBatch(
            namespace.connection,
            self.address,
            renew_for=renew_for,
            clock=namespace.clock,
            records=namespace.records(verb, archived=archived) if recorded else (),
        )

    async def sessions(self, *, updated_after: datetime | None = None) -> list[str]:
        """The sessions that have active messages or a state.

        See :func:`sbnotebook.settlement.locking.sessions.session_ids`.
        """
        return await session_ids(self.namespace.connection, self.address, updated_after=updated_after)

    def session(
        self, session_id: str, *, renew_for: timedelta = DEFAULT_RENEW_FOR, archived: bool = True
    ) -> SessionBatch:
        """A session by its name; open it as an asynchronous context manager, and nobody else can have it meanwhile.

        Raises:
            DecisionError: a sub-queue, which has no sessions.
        """
        return self._session(session_id, renew_for=renew_for, archived=archived)

    def next_session(
        self, *, max_wait: float = 60.0, renew_for: timedelta = DEFAULT_RENEW_FOR, archived: bool = True
    ) -> SessionBatch:
        """The next session that has messages and that nobody holds; opened as :meth:`session` is.

        Opening it raises the SDK's OperationTimeoutError when there is none within ``max_wait`` seconds.
        """
        return self._session(None, max_wait=max_wait, renew_for=renew_for, archived=archived)

    def _session(
        self, session_id: str | None, *, renew_for: timedelta, archived: bool, max_wait: float = 60.0
    ) -> SessionBatch:
        namespace = self.namespace
        return SessionBatch(
            namespace.connection,
            self.address,
            session_id,
            max_wait=max_wait,
            renew_for=renew_for,
            clock=namespace.clock,
            records=namespace.records(archived=archived),
        )

    def plan(self, batch: LockedBatch, decision: Decision, messages: Iterable[LockedMessage] | None = None) -> Plan:
        """A plan to settle messages that are held.

        Args:
            batch: the open batch that holds them.
            decision: complete, abandon, dead-letter, defer or release.
            messages: which ones, all that are held by default.

        Raises:
            DecisionError: the decision is not possible here.
        """
        check_decision(decision, self.address)
        chosen = tuple(batch.messages if messages is None else messages)

        async def carry_out(plan: Plan, limits: Limits, progress: Progress | None) -> Report:
            return await batch.settle(
                plan.decision, chosen, max_in_flight=limits.max_in_flight, progress=progress, pace=limits.pace()
            )

        return Plan(self.address, decision, chosen, carry_out)

    def plan_by_token(self, decision: Decision, locks: Iterable[Lock]) -> Plan:
        """A plan to settle what another receiver locked.

        See :func:`sbnotebook.settlement.locking.by_token.plan_by_token`.
        """
        return plan_by_token(self.address, decision, locks, self.batch)

    async def receive_and_delete(
        self,
        count: int,
        *,
        max_wait: float = 5.0,
        archived: bool = True,
        into: list[PeekedMessage] | None = None,
        progress: Progress | None = None,
    ) -> list[PeekedMessage]:
        """Receive messages that are removed as they are sent.

        See :mod:`sbnotebook.settlement.locking.receive_and_delete`.
        """
        warnings.warn(RECEIVE_AND_DELETE_WARNING, stacklevel=2)
        return await receive_and_delete(self, count, max_wait=max_wait, archived=archived, into=into, progress=progress)

    def plan_resubmit(
        self, messages: Iterable[ReceivedMessage], decision: Resubmit | None = None, *, edit: Edit | None = None
    ) -> Plan:
        """A plan to send clones of messages that stand here and to complete the originals.

        Args:
            messages: which ones, as they were peeked.
            decision: where to, how much later and how often; by default to the entity itself, at once.
            edit: gives the message to send for each message.

        Raises:
            DecisionError: the messages cannot go there.
        """
        destination = (decision.to if decision else None) or self.address.sends_to
        decision = replace(decision or Resubmit(), to=destination)

        chosen = tuple(messages)
        strangers = [message for message in chosen if message.entity != self.address]
        if strangers:
            raise DecisionError(
                f"{len(strangers)} of the messages do not stand in {self.address} "
                f"(the first stands in {strangers[0].entity}): resubmit them from where they stand."
            )
        refuse_coroutine_function(edit, "An edit")

        async def carry_out(plan: Plan, limits: Limits, progress: Progress | None) -> Report:
            await self.namespace.require_room(chosen)  # told before a clone is sent
            return await Resubmitter(self, decision).run(plan, limits, progress)

        return Plan(self.address, decision, chosen, carry_out, edit)

    async def deferred(self, progress: Progress | None = None) -> Deferrals:
        """What is deferred here, by the journal and by peeking at all messages: see :class:`Deferrals`."""
        return await compared(self.namespace.deferral_ledger, self.address, self.pages(), progress)

    def plan_deferred(self, messages: Iterable[ReceivedMessage], decision: Decision) -> Plan:
        """A plan to settle deferred messages, which are locked by their numbers.

        Args:
            messages: which ones, as they were peeked.
            decision: complete, dead-letter or abandon; resubmit them with :meth:`plan_resubmit`.

        Raises:
            DecisionError: the decision is not possible for deferred messages, or one of them is not deferred here.
        """
        return plan_of_deferred(self.address, tuple(messages), decision, self.batch)

    async def settle_deferred(
        self,
        decisions: Mapping[int, Decision],
        *,
        max_in_flight: int = DEFAULT_MAX_IN_FLIGHT,
        archived: bool = True,
        journalled: bool = True,
    ) -> Report:
        """Settle deferred messages by their numbers, each as it was decided, at once and without a plan.

        Args:
            decisions: complete, dead-letter or abandon, by sequence number.
            max_in_flight: settlements that wait for their answer at once.
            archived: False where completed messages are removed for good.
            journalled: False where this machine's journal is not to know of it.

        See :func:`sbnotebook.settlement.deferring.deferred.settle_deferred`.
        """
        namespace = self.namespace
        records = namespace.records(archived=archived, journalled=journalled)
        batch = LockedBatch(namespace.connection, self.address, clock=namespace.clock, records=records)
        return await settle_deferred(batch, decisions, Limits(max_in_flight))

    async def pick(
        self,
        messages: Iterable[ReceivedMessage | int],
        decision: Decision,
        *,
        progress: Progress | None = None,
        **options: Unpack[PickOptions],
    ) -> Plan:
        """A plan to settle, defer or resubmit messages wherever they stand: see :func:`plan_pick`."""
        return await plan_pick(self, messages, decision, progress=progress, **options)

    async def purge(
        self,
        *,
        only: Filter | None = None,
        before: datetime | timedelta | None = None,
        to_sequence_number: int | None = None,
        state: MessageState | None = None,
        archived: bool = True,
        progress: Progress | None = None,
    ) -> Plan:
        """A plan to remove messages that stand here now.

        See :func:`sbnotebook.settlement.removing.purge.plan_purge`.
        """
        chosen = Chosen(only, before, to_sequence_number, state)
        return await plan_purge(self, chosen, archived=archived, progress=progress)

    async def defer_all(
        self,
        *,
        only: Filter | None = None,
        before: datetime | timedelta | None = None,
        to_sequence_number: int | None = None,
        max_messages: int | None = None,
        progress: Progress | None = None,
    ) -> Plan:
        """A plan to defer the active messages that stand here now.

        See :func:`sbnotebook.settlement.deferring.defer_all.plan_defer_all`.
        """
        chosen = Chosen(only, before, to_sequence_number, max_messages=max_messages)
        return await plan_defer_all(self, chosen, progress)

    async def scheduled(self, max_messages: int | None = None) -> list[PeekedMessage]:
        """The messages of a queue that become active later, by looking at all of it; a topic does not show them."""
        return await self.peek(max_messages, state=MessageState.SCHEDULED)

    def plan_cancel_scheduled(self, messages: Iterable[ReceivedMessage | int]) -> Plan:
        """A plan to remove scheduled messages.

        See :func:`sbnotebook.settlement.sending.schedule.plan_cancel_scheduled`.
        """
        return plan_cancel_scheduled(self, messages)

    def processing(
        self,
        function: AnyFunction,
        *,
        seen: timedelta | bool = False,
        progress: Progress | None = None,
        **options: Unpack[ProcessOptions],
    ) -> Processing:
        """A run that consumes messages with a function, to be watched and stopped; it begins with its ``run()``.

        Args:
            function: the work; an ordinary function runs in threads, an async one on this loop.
            seen: whether, or for how long, messages whose work is done are remembered.
            progress: told of every message that is finished.
            options: how, see :class:`sbnotebook.settlement.processing.run.Options`.

        Raises:
            ConfigurationError: a number that cannot be.
            DecisionError: the policy cannot be carried out here.
        """
        return Processing(self, function, Options(seen=seen, progress=progress, **options))

    async def process(
        self,
        function: AnyFunction,
        *,
        seen: timedelta | bool = False,
        progress: Progress | None = None,
        **options: Unpack[ProcessOptions],
    ) -> Report:
        """Consume messages with a function and settle each by how that ended: see :meth:`processing`."""
        return await self.processing(function, seen=seen, progress=progress, **options).run()
