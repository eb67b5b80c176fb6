"""A namespace, asynchronously: its entities, and the connections to them that are kept warm."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

import anyio
import anyio.to_thread

from sbnotebook.model import Complete, EntityAddress, Outcome, ReceivedMessage
from sbnotebook.settlement import administration
from sbnotebook.settlement.connecting.connection import Connection
from sbnotebook.settlement.deferring.wake_up import WakeUps
from sbnotebook.settlement.entity import AsyncEntity
from sbnotebook.settlement.locking.renewal import Clock, SystemClock
from sbnotebook.settlement.memory.archive import Archive, archive_of
from sbnotebook.settlement.memory.deferral_ledger import DeferralLedger, DeferralRecord
from sbnotebook.settlement.memory.journal import Journal
from sbnotebook.settlement.memory.notes import Notes
from sbnotebook.settlement.peek import Peeker
from sbnotebook.settlement.plan import Plan
from sbnotebook.settlement.records import Record
from sbnotebook.settlement.removing.removals import Removals
from sbnotebook.settlement.removing.undo import Wanted, plan_undo
from sbnotebook.settlement.resubmitting.resume import plan_resume
from sbnotebook.settlement.sending.send import SenderPool

__all__ = ["AsyncNamespace"]


class AsyncNamespace:
    """A Service Bus namespace. Use it as an asynchronous context manager, or call :meth:`close`.

    Args:
        connection: how it is reached.
        journal: where resubmits are written down, None for the user's own.
        clock: where the time of locks comes from, None for the machine's clock.
        archive: where messages are kept before they are removed: True for the file beside the journal, unless
            SBNOTEBOOK_ARCHIVE is off in the environment; False or None for nowhere.

    Example:
        >>> async def first_ten(connection_string: str) -> list[PeekedMessage]:
        ...     async with AsyncNamespace(Connection(connection_string)) as namespace:
        ...         return await namespace.entity("orders/$dlq").peek(10)
    """

    def __init__(
        self,
        connection: Connection,
        *,
        journal: Journal | None = None,
        clock: Clock | None = None,
        archive: Archive | bool | None = True,
    ) -> None:
        self.connection = connection
        self.journal = journal or Journal()
        self.archive = archive_of(archive, self.journal.path.parent)
        self.clock = clock
        self._peekers: dict[EntityAddress, Peeker] = {}
        self._pools: dict[EntityAddress, SenderPool] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def host(self) -> str:
        """The namespace's host name."""
        return self.connection.host or ""

    def entity(self, address: str | EntityAddress) -> AsyncEntity:
        """A queue, topic, subscription or sub-queue by its address. Nothing is asked of the service yet.

        Raises:
            InvalidEntityAddressError: the text is not an address.
        """
        return AsyncEntity(self, EntityAddress.parse(address))

    async def entities(self, topics: Collection[str] | None = None) -> list[administration.EntityCounts]:
        """All entities with their counts: see :func:`sbnotebook.settlement.administration.list_entities`."""
        return await administration.list_entities(self.connection, topics)

    async def counts(
        self, addresses: str | EntityAddress | Iterable[str | EntityAddress]
    ) -> list[administration.EntityCounts]:
        """The counts of one or some queues and subscriptions; a management operation for each."""
        if isinstance(addresses, (str, EntityAddress)):
            addresses = (addresses,)
        return await administration.counts_of(self.connection, map(EntityAddress.parse, addresses))

    async def create_queue(
        self,
        name: str,
        *,
        lock_duration: timedelta | None = None,
        max_delivery_count: int | None = None,
        requires_session: bool = False,
    ) -> None:
        """Make a queue: see :func:`sbnotebook.settlement.administration.create_queue`."""
        await administration.create_queue(
            self.connection,
            name,
            lock_duration=lock_duration,
            max_delivery_count=max_delivery_count,
            requires_session=requires_session,
        )

    async def delete_queue(self, name: str) -> None:
        """Remove a queue with all of its messages; they cannot be had back."""
        await administration.delete_queue(self.connection, name)

    async def resume(
        self, entity: str | EntityAddress | None = None, *, resend_unknown: bool = False, max_wait: float = 0.0
    ) -> list[Plan]:
        """Plans to finish the resubmits that were cut off, one for each entity that originals stand in.

        Args:
            entity: only originals of this one, None for all.
            resend_unknown: send again also what may have arrived and been consumed.
            max_wait: seconds to wait for originals that are still locked.

        See :func:`sbnotebook.settlement.resubmitting.resume.plan_resume`.
        """
        only = EntityAddress.parse(entity) if entity is not None else None
        entries = await anyio.to_thread.run_sync(self.journal.unfinished, self.host)
        sources = dict.fromkeys(EntityAddress.parse(entry.source) for entry in entries)
        return [
            await plan_resume(self.entity(source), resend_unknown=resend_unknown, max_wait=max_wait)
            for source in sources
            if only in (None, source)
        ]

    async def undo(
        self,
        report: Iterable[Outcome] | None = None,
        *,
        entity: str | EntityAddress | None = None,
        since: datetime | timedelta | None = None,
        to: str | EntityAddress | None = None,
        include_unknown: bool = False,
        new_ids: bool | None = None,
    ) -> Plan:
        """A plan to send removed messages back: see :func:`sbnotebook.settlement.removing.undo.plan_undo`."""
        place = EntityAddress.parse(entity) if entity is not None else None
        destination = EntityAddress.parse(to) if to is not None else None
        return await plan_undo(self, Wanted(report, place, since, destination, include_unknown, new_ids))

    def peeker(self, address: EntityAddress) -> Peeker:
        """The warm peeker of an entity."""
        return self._peekers.setdefault(address, Peeker(self.connection, address))

    def pool(self, address: EntityAddress) -> SenderPool:
        """The warm senders to an entity."""
        return self._pools.setdefault(address, SenderPool(self.connection, address))

    async def require_room(self, messages: Iterable[ReceivedMessage]) -> None:
        """Refuse to remove messages that the archive has no room for.

        Raises:
            ArchiveError: they do not fit, or the archive cannot be used.
        """
        if self.archive is not None:
            size = sum(len(message.body) for message in messages)
            await anyio.to_thread.run_sync(self.archive.require_room, size)

    def records(
        self, verb: str = Complete.verb, *, archived: bool = True, journalled: bool = True
    ) -> tuple[Record, ...]:
        """What is written down around each settlement.

        Args:
            verb: what the settlements are part of.
            archived: False where messages are removed for good.
            journalled: False on a machine whose journal nobody reads, a cluster's worker; nothing is deferred there.
        """
        wake_ups = WakeUps(self.pool, self.clock or SystemClock())
        always = (DeferralRecord(self.deferral_ledger), wake_ups) if journalled else ()
        if self.archive is None or not archived:
            return always
        return (*always, Removals(self.archive, self.host, self.peeker, verb))

    @property
    def deferral_ledger(self) -> DeferralLedger:
        """The journal's table of what is deferred in this namespace."""
        return DeferralLedger(self.journal.database, self.host)

    @property
    def notes(self) -> Notes:
        """The journal's notes on causes of dead letters in this namespace; used in a thread, the file may be busy."""
        return Notes(self.journal.database, self.host)

    async def close(self) -> None:
        """Close all connections; batches that are still open must be closed before."""
        peekers, self._peekers = list(self._peekers.values()), {}
        pools, self._pools = list(self._pools.values()), {}
        try:
            # Each takes the SDK about half a second.
            async with anyio.create_task_group() as tasks:
                for part in (*peekers, *pools):
                    tasks.start_soon(part.close)
        finally:
            await self.connection.close()
            self.journal.close()
            if self.archive is not None:
                self.archive.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.host}>"
