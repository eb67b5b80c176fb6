"""A namespace and its entities, with all their asynchronous actions, and the connections that are kept warm."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from functools import partial
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread

from sbnotebook.errors import InvalidEntityAddressError
from sbnotebook.model import (
    Decision,
    Defer,
    EntityAddress,
    LockedMessage,
    Message,
    MessageState,
    Report,
    Send,
)
from sbnotebook.settlement import administration
from sbnotebook.settlement.actions.clone_search import CloneSearch
from sbnotebook.settlement.actions.deferred import compare_deferrals, plan_deferred, settle_deferred
from sbnotebook.settlement.actions.pick import plan_by_token, plan_pick
from sbnotebook.settlement.actions.purge import plan_purge, plan_sweep, receive_and_delete
from sbnotebook.settlement.actions.reach import Chosen, MessageFilter, is_gone, is_locked_elsewhere
from sbnotebook.settlement.actions.resubmit import plan_resubmit
from sbnotebook.settlement.actions.resume import plan_resume
from sbnotebook.settlement.actions.send import plan_cancel_scheduled, plan_send
from sbnotebook.settlement.actions.undo import plan_undo
from sbnotebook.settlement.locking.lock import LockedBatch
from sbnotebook.settlement.locking.wake_up import receive_deferred_of
from sbnotebook.settlement.pace import AUTO, InFlight
from sbnotebook.settlement.place import Place, Resources
from sbnotebook.settlement.plan import Limits, Plan, Progress, check_decision, moment_of
from sbnotebook.settlement.processing.calls import AnyFunction
from sbnotebook.settlement.processing.process import Options, Processing
from sbnotebook.settlement.processing.workers import SessionProcessing, SharedProcessing
from sbnotebook.settlement.requests import alike
from sbnotebook.settlement.wire.encoding import EncodedRows


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
        total: int | None = None,
    ) -> Report:
        """Send messages here and wait for every confirmation: applies :meth:`plan_send`.

        With ``own_times``, those without another time become active each at its own. Where the ``total`` is known, the
        report has an outcome for each, also if the send is interrupted.
        """
        plan = self.plan_send(lambda: messages, decision, own_times=own_times, batch_size=batch_size, total=total)
        return await plan.apply(Limits(max_in_flight, rate), progress)

    async def max_delivery_count(self) -> int:
        """Return the deliveries after which Service Bus dead-letters a message; this needs the right Manage."""
        return (await administration.properties_of(self.namespace.connection, self.address)).max_delivery_count

    def plan(self, batch: LockedBatch, decision: Decision, messages: Iterable[LockedMessage] | None = None) -> Plan:
        """Return a plan to settle or release messages of an open batch, by default all that are not settled yet."""
        check_decision(decision, self.address)
        chosen = tuple(batch.table.unsettled if messages is None else messages)
        return self.new_plan(decision, chosen, partial(batch.settle_in, decision, chosen))

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


class AsyncNamespace(Resources):
    """A Service Bus namespace. Use it as an asynchronous context manager, or call :meth:`close`.

    Args:
        connection: how it is reached.
        journal: records resubmits, None for the user's own.
        clock: where the time of locks comes from, None for the machine's clock.
        archive: where messages are kept before they are removed: True for the file beside the journal, unless
            SBNOTEBOOK_ARCHIVE is off in the environment; False or None for nowhere.

    Example:
        >>> async def first_ten(connection_string: str) -> list[PeekedMessage]:
        ...     async with AsyncNamespace(Connection(connection_string)) as namespace:
        ...         return await namespace.entity("orders/$dlq").peek(10)
    """

    undo = plan_undo
    is_gone = staticmethod(is_gone)
    is_locked_elsewhere = staticmethod(is_locked_elsewhere)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def entity(self, address: str | EntityAddress) -> AsyncEntity:
        """Return a queue, topic, subscription or sub-queue by its address, without a request."""
        return AsyncEntity(self, EntityAddress.parse(address))

    def clone_search(self, to: EntityAddress) -> CloneSearch:
        """Return a search for the clones that were sent to a queue or topic."""
        return CloneSearch(self, to)

    async def config(self) -> tuple[dict[str, Any], list[str]]:
        """Return the entities and rules as a ``Config.json``, and a sentence for each thing that is left out."""
        return await administration.namespace_config(self.connection)

    async def entities(self, topics: Collection[str] | None = None) -> list[administration.EntityCounts]:
        """List all entities with their counts: see :func:`sbnotebook.settlement.administration.list_entities`."""
        return await administration.list_entities(self.connection, topics)

    async def counts(
        self, addresses: str | EntityAddress | Iterable[str | EntityAddress]
    ) -> list[administration.EntityCounts]:
        """Return the counts of one or some queues and subscriptions; each costs a management operation."""
        if isinstance(addresses, (str, EntityAddress)):
            addresses = (addresses,)
        return await administration.counts_of(self.connection, map(EntityAddress.parse, addresses))

    async def create_queue(self, name: str, **options: Any) -> None:
        """Make a queue; options of the SDK that are None or False are left to Service Bus."""
        async with administration.changing(self.connection, EntityAddress.parse(name)) as client:
            await client.create_queue(name, **_given(options))

    async def create_topic(self, name: str) -> None:
        """Make a topic."""
        async with administration.changing(self.connection, EntityAddress.parse(name)) as client:
            await client.create_topic(name)

    async def create_subscription(self, topic: str, name: str, **options: Any) -> None:
        """Make a subscription of a topic, with options as for :meth:`create_queue`."""
        address = EntityAddress.parse(f"{topic}/subscriptions/{name}")
        if address.subscription != name:
            raise InvalidEntityAddressError(f"{name[:80]!r} is not the name of a subscription.")
        async with administration.changing(self.connection, address, parent=address.sends_to) as client:
            await client.create_subscription(topic, name, **_given(options))

    async def delete_queue(self, name: str) -> None:
        """Remove a queue with all of its messages; you cannot recover them."""
        async with administration.changing(self.connection, EntityAddress.parse(name)) as client:
            await client.delete_queue(name)

    async def resume(
        self,
        entity: str | EntityAddress | None = None,
        *,
        resend_unknown: bool = False,
        max_wait: float = 0.0,
        others: Iterable[Resources] = (),
    ) -> list[Plan]:
        """Return plans to finish interrupted resubmits, one for each entity with originals.

        With ``resend_unknown`` they send again also what may have arrived and been consumed, and with ``max_wait``
        they wait for originals that are still locked. Clones may have been sent to other namespaces, which are given
        then. See :func:`sbnotebook.settlement.actions.resume.plan_resume`.
        """
        only = EntityAddress.parse(entity) if entity is not None else None
        there = {await anyio.to_thread.run_sync(other.identity): other for other in others}
        entries = await anyio.to_thread.run_sync(lambda: self.journal.unfinished(self.identity()))
        return [
            await plan_resume(self.entity(source), mine, there, resend_unknown=resend_unknown, max_wait=max_wait)
            for mine in alike(entries, lambda entry: EntityAddress.parse(entry.source))
            if only in (None, source := EntityAddress.parse(mine[0].source))
        ]


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None and value is not False}
