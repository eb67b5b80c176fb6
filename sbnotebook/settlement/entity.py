"""One entity of a namespace, and its asynchronous actions."""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from datetime import datetime, timedelta
from functools import partial
from typing import Unpack

from sbnotebook.model import (
    Decision,
    Defer,
    LockedMessage,
    Message,
    MessageState,
    PeekedMessage,
    ReceivedMessage,
    Report,
    Resubmit,
    Send,
    Tally,
)
from sbnotebook.model.decision import AUTO
from sbnotebook.settlement.actions.by_token import LockReference, plan_by_token
from sbnotebook.settlement.actions.deferred import Deferrals, find_deferred, plan_deferred, settle_deferred
from sbnotebook.settlement.actions.pick import plan_pick
from sbnotebook.settlement.actions.purge import plan_purge
from sbnotebook.settlement.actions.receive_and_delete import RECEIVE_AND_DELETE_WARNING, receive_and_delete
from sbnotebook.settlement.actions.resubmit import plan_resubmit
from sbnotebook.settlement.actions.schedule import plan_cancel_scheduled, timed
from sbnotebook.settlement.actions.selection import Chosen, MessageFilter, names_present
from sbnotebook.settlement.actions.send import plan_send
from sbnotebook.settlement.actions.sweep import plan_sweep
from sbnotebook.settlement.costs import Cost
from sbnotebook.settlement.locking.ahead import DEFAULT_MAX_HELD
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.pace import InFlight
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import Edit, Limits, Plan
from sbnotebook.settlement.processing.calls import AnyFunction
from sbnotebook.settlement.processing.process import Processing
from sbnotebook.settlement.processing.run import Options, ProcessOptions
from sbnotebook.settlement.resources import Resources
from sbnotebook.settlement.sequence_numbers import SequenceNumbers
from sbnotebook.settlement.terms import Progress, check_decision
from sbnotebook.settlement.wire.encoded_rows import EncodedRows


class AsyncEntity(Place):
    """One queue, topic, subscription or sub-queue, and its actions.

    Args:
        namespace: where it is.
        address: which one.
    """

    async def names_present(self) -> str:
        """Return which dead-letter reasons or subjects the first messages have, as a sentence."""
        return await names_present(self)

    async def parts(
        self, size: int = 1_000, *, from_sequence_number: int = 1, state: MessageState | None = None
    ) -> AsyncIterator[list[PeekedMessage]]:
        """Yield the messages that are here now in parts; messages that come later are in none of them.

        So a loop that resubmits each part ends, also where consumers dead-letter the messages again.

        Args:
            size: messages in a part at most.
            from_sequence_number: where to begin, included.
            state: only messages in this state.
        """
        for first, last in await SequenceNumbers.of(self).spans():
            start = max(first, from_sequence_number)
            while start <= last:
                part = await self.peek(size, from_sequence_number=start, to_sequence_number=last, state=state)
                if part:
                    yield part
                if len(part) < size:
                    break
                start = part[-1].sequence_number + 1

    async def send(
        self,
        messages: Iterable[Message | EncodedRows],
        *,
        max_in_flight: InFlight = AUTO,
        batch_size: int | None = None,
        rate: float | None = None,
        progress: Progress | None = None,
    ) -> Report:
        """Send messages here and wait for every confirmation: applies :meth:`plan_send`.

        See :func:`sbnotebook.settlement.sending.delivery.send_many`.
        """
        plan = plan_send(self, lambda: messages, batch_size=batch_size)
        return await plan.apply(Limits(max_in_flight, rate), progress)

    async def schedule(
        self,
        messages: Iterable[Message],
        *,
        at: datetime | None = None,
        delay: timedelta | None = None,
        max_in_flight: InFlight = AUTO,
        batch_size: int | None = None,
        rate: float | None = None,
        progress: Progress | None = None,
    ) -> Report:
        """Send messages that become active later: see :func:`sbnotebook.settlement.actions.schedule.schedule_many`."""
        times = timed(messages, at, delay)  # raises for a time that is not clear, before anything is planned
        plan = plan_send(self, lambda: times, own_times=True, batch_size=batch_size)
        return await plan.apply(Limits(max_in_flight, rate), progress)

    def plan_send(
        self,
        messages: Callable[[], Iterable[Message | EncodedRows]],
        decision: Send | None = None,
        *,
        batch_size: int | None = None,
        tally: Tally | None = None,
        total: int | None = None,
        shown: Iterable[Message] = (),
    ) -> Plan:
        """Return a plan to send messages: see :func:`sbnotebook.settlement.actions.send.plan_send`."""
        return plan_send(self, messages, decision, batch_size=batch_size, tally=tally, total=total, shown=shown)

    def plan(self, batch: LockedBatch, decision: Decision, messages: Iterable[LockedMessage] | None = None) -> Plan:
        """Return a plan to settle messages that are held.

        Args:
            batch: the open batch that holds them.
            decision: complete, abandon, dead-letter, defer or release.
            messages: which ones, all that are held by default.

        Raises:
            DecisionError: the decision is not possible here.
        """
        check_decision(decision, self.address)
        chosen = tuple(batch.messages if messages is None else messages)

        settle = partial(batch.settle_in, decision, chosen)
        return self.new_plan(decision, chosen, settle, gives_back=False, cost=Cost(transfers=0))

    def plan_by_token(self, decision: Decision, locks: Iterable[LockReference]) -> Plan:
        """Return a plan to settle messages that another receiver locked.

        See :func:`sbnotebook.settlement.actions.by_token.plan_by_token`.
        """
        return plan_by_token(self, decision, locks)

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

        See :mod:`sbnotebook.settlement.actions.receive_and_delete`.
        """
        warnings.warn(RECEIVE_AND_DELETE_WARNING, stacklevel=2)
        return await receive_and_delete(self, count, max_wait=max_wait, archived=archived, into=into, progress=progress)

    def plan_resubmit(
        self,
        messages: Iterable[ReceivedMessage],
        decision: Resubmit | None = None,
        *,
        edit: Edit | None = None,
        to_namespace: Resources | None = None,
    ) -> Plan:
        """Return a plan to send clones of messages and to complete the originals.

        Args:
            messages: which ones, as they were peeked.
            decision: where to, how much later and how often; by default to the entity itself, at once.
            edit: gives the message to send for each message.
            to_namespace: of the destination; None for the same.

        Raises:
            DecisionError: the messages cannot go there.
            ReadOnlyError: the connection to the other namespace is read-only.
        """
        return plan_resubmit(self, messages, decision, edit=edit, to_namespace=to_namespace)

    async def deferred(self, progress: Progress | None = None) -> Deferrals[PeekedMessage]:
        """List the deferred messages, by the journal and by peeking at all messages: see :class:`Deferrals`."""
        return await find_deferred(self, progress)

    def plan_deferred(self, messages: Iterable[ReceivedMessage], decision: Decision) -> Plan:
        """Return a plan to settle deferred messages, which are locked by their numbers.

        Args:
            messages: which ones, as they were peeked.
            decision: complete, dead-letter or abandon; resubmit them with :meth:`plan_resubmit`.

        Raises:
            DecisionError: the decision is not possible for deferred messages, or one of them is not deferred here.
        """
        return plan_deferred(self, messages, decision)

    async def settle_deferred(
        self,
        decisions: Mapping[int, Decision],
        *,
        max_in_flight: InFlight = AUTO,
        archived: bool = True,
        journalled: bool = True,
    ) -> Report:
        """Settle deferred messages by their numbers, each as it was decided.

        Args:
            decisions: complete, dead-letter or abandon, by sequence number.
            max_in_flight: settlements that wait for their answer at once.
            archived: False where completed messages are removed for good.
            journalled: False where this machine's journal is not to know of it.
        """
        limits = Limits(max_in_flight)
        return await settle_deferred(self, decisions, limits, archived=archived, journalled=journalled)

    async def pick(
        self,
        messages: Iterable[ReceivedMessage | int],
        decision: Decision,
        *,
        edit: Edit | None = None,
        abandon_rest: bool = False,
        max_held: int = DEFAULT_MAX_HELD,
        archived: bool = True,
        to_namespace: Resources | None = None,
        progress: Progress | None = None,
    ) -> Plan:
        """Return a plan to settle, defer or resubmit messages anywhere in the entity: see :func:`plan_pick`."""
        return await plan_pick(
            self,
            messages,
            decision,
            edit=edit,
            abandon_rest=abandon_rest,
            max_held=max_held,
            archived=archived,
            to_namespace=to_namespace,
            progress=progress,
        )

    async def purge(
        self,
        *,
        only: MessageFilter | None = None,
        before: datetime | timedelta | None = None,
        to_sequence_number: int | None = None,
        state: MessageState | None = None,
        archived: bool = True,
        progress: Progress | None = None,
    ) -> Plan:
        """Return a plan to remove current messages; without an archive, Service Bus removes all old ones itself.

        Args:
            only: returns the meant ones of some messages; None for all.
            before: messages that were enqueued before then; a duration counts back from now.
            to_sequence_number: messages up to this number, included.
            state: only messages in this state.
            archived: whether to keep them in the local archive.
            progress: told of the messages that were peeked.
        """
        chosen = Chosen(only, before, to_sequence_number, state)
        return await plan_purge(self, chosen, archived=archived, progress=progress)

    async def defer_all(
        self,
        *,
        only: MessageFilter | None = None,
        before: datetime | timedelta | None = None,
        to_sequence_number: int | None = None,
        max_messages: int | None = None,
        progress: Progress | None = None,
    ) -> Plan:
        """Return a plan to defer the current active messages.

        Args:
            only: returns the meant ones of some messages; None for all.
            before: messages that were enqueued before then; a duration counts back from now.
            to_sequence_number: messages up to this number, included.
            max_messages: at most this many.
            progress: told of the messages that were peeked.
        """
        chosen = Chosen(only, before, to_sequence_number, MessageState.ACTIVE, max_messages)
        return await plan_sweep(self, Defer(), chosen, progress=progress)

    async def scheduled(self, max_messages: int | None = None) -> list[PeekedMessage]:
        """Peek at all messages of a queue, and return those that become active later; a topic does not show them."""
        return await self.peek(max_messages, state=MessageState.SCHEDULED)

    def plan_cancel_scheduled(self, messages: Iterable[ReceivedMessage | int]) -> Plan:
        """Return a plan to remove scheduled messages.

        See :func:`sbnotebook.settlement.actions.schedule.plan_cancel_scheduled`.
        """
        return plan_cancel_scheduled(self, messages)

    def processing(self, function: AnyFunction, **options: Unpack[ProcessOptions]) -> Processing:
        """Return a run that consumes messages with a function: ``run()`` begins it.

        Args:
            function: the work; an ordinary function runs in threads, an async one on this loop.
            options: see :class:`sbnotebook.settlement.processing.run.Options`.

        Raises:
            ConfigurationError: a number that cannot be.
            DecisionError: the policy cannot be carried out here.
        """
        return Processing(self, function, Options(**options))

    async def process(self, function: AnyFunction, **options: Unpack[ProcessOptions]) -> Report:
        """Consume messages with a function, and settle each by the end of the function: see :meth:`processing`."""
        return await self.processing(function, **options).run()
