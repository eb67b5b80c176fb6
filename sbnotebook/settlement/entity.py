"""One entity of a namespace, and its asynchronous actions."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sbnotebook.model import (
    Decision,
    Defer,
    LockedMessage,
    Message,
    MessageState,
    Report,
    Send,
)
from sbnotebook.model.decision import AUTO
from sbnotebook.settlement.actions.by_token import plan_by_token
from sbnotebook.settlement.actions.deferred import compare_deferrals, plan_deferred, settle_deferred
from sbnotebook.settlement.actions.pick import plan_pick
from sbnotebook.settlement.actions.purge import plan_purge, plan_sweep
from sbnotebook.settlement.actions.receive_and_delete import receive_and_delete
from sbnotebook.settlement.actions.resubmit import plan_resubmit
from sbnotebook.settlement.actions.schedule import plan_cancel_scheduled
from sbnotebook.settlement.actions.selection import Chosen, MessageFilter
from sbnotebook.settlement.actions.send import plan_send
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.locking.wake_up import receive_deferred_of
from sbnotebook.settlement.pace import InFlight
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import Limits, Plan
from sbnotebook.settlement.processing.calls import AnyFunction
from sbnotebook.settlement.processing.process import Options, Processing
from sbnotebook.settlement.processing.workers import SessionProcessing, SharedProcessing
from sbnotebook.settlement.terms import Progress, check_decision, moment_of
from sbnotebook.settlement.wire.encoded_rows import EncodedRows


class AsyncEntity(Place):
    """One queue, topic, subscription or sub-queue, and its actions.

    Args:
        namespace: where it is.
        address: which one.
    """

    compare_deferrals = compare_deferrals
    plan_send = plan_send
    plan_by_token = plan_by_token
    receive_and_delete = receive_and_delete
    plan_resubmit = plan_resubmit
    plan_deferred = plan_deferred
    settle_deferred = settle_deferred
    pick = plan_pick
    wake = staticmethod(receive_deferred_of)
    plan_cancel_scheduled = plan_cancel_scheduled

    async def send(
        self,
        messages: Iterable[Message | EncodedRows],
        decision: Send | None = None,
        *,
        own_times: bool = False,
        max_in_flight: InFlight = AUTO,
        batch_size: int | None = None,
        rate: float | None = None,
        progress: Progress | None = None,
    ) -> Report:
        """Send messages here and wait for every confirmation: applies :meth:`plan_send`.

        With ``own_times``, those without another time become active each at its own.
        """
        plan = self.plan_send(lambda: messages, decision, own_times=own_times, batch_size=batch_size)
        return await plan.apply(Limits(max_in_flight, rate), progress)

    def plan(self, batch: LockedBatch, decision: Decision, messages: Iterable[LockedMessage] | None = None) -> Plan:
        """Return a plan to settle or release messages that an open batch holds, by default all."""
        check_decision(decision, self.address)
        chosen = tuple(batch.messages if messages is None else messages)

        settle = partial(batch.settle_in, decision, chosen)
        return self.new_plan(decision, chosen, settle)

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

        ``only`` returns the meant ones of some messages; ``before`` is a time, or a duration back from now.
        """
        chosen = Chosen(only, moment_of(before), to_sequence_number, state)
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
        """Return a plan to defer the current active messages, chosen as by :meth:`purge`."""
        chosen = Chosen(only, moment_of(before), to_sequence_number, MessageState.ACTIVE, max_messages)
        return await plan_sweep(self, Defer(), chosen, progress=progress)

    def processing(self, function: AnyFunction, **options: Any) -> Processing:
        """Return a run that consumes messages with a function, in threads unless it is async: ``run()`` begins it.

        The options are those of :class:`sbnotebook.settlement.processing.process.Options`.
        """
        given = Options(**options)
        return (SessionProcessing if given.by_session else SharedProcessing)(self, function, given)

    async def process(self, function: AnyFunction, **options: Any) -> Report:
        """Consume messages with a function, and settle each by the end of the function: see :meth:`processing`."""
        return await self.processing(function, **options).run()
