"""A namespace, asynchronously: its entities, and the connections to them that are kept warm."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from types import TracebackType
from typing import Any, Self

import anyio
import anyio.to_thread

from sbnotebook.errors import InvalidEntityAddressError
from sbnotebook.model import EntityAddress
from sbnotebook.settlement import administration
from sbnotebook.settlement.actions.clone_search import CloneSearch
from sbnotebook.settlement.actions.reach import is_gone, is_locked_elsewhere
from sbnotebook.settlement.actions.resume import plan_resume
from sbnotebook.settlement.actions.undo import plan_undo
from sbnotebook.settlement.config import namespace_config
from sbnotebook.settlement.entity import AsyncEntity
from sbnotebook.settlement.parallel import alike
from sbnotebook.settlement.plan import Plan
from sbnotebook.settlement.resources import Resources


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
        return await namespace_config(self.connection)

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
