"""Verbs of a namespace that list, count, create and delete its entities."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta

from sbnotebook.client.coercions import duration
from sbnotebook.client.portal import run
from sbnotebook.client.sdk_names import SdkNames
from sbnotebook.model import EntityAddress
from sbnotebook.settlement.administration import EntityCounts
from sbnotebook.settlement.namespace import AsyncNamespace

__all__ = ["Administering"]


class Administering(SdkNames):
    """The part of :class:`sbnotebook.client.Namespace` that manages entities."""

    _namespace: AsyncNamespace

    def entities(self, *, topics: Collection[str] | None = None) -> list[EntityCounts]:
        """List all entities with their counts, which are management operations: do not call this often.

        Args:
            topics: the names of those whose subscriptions are listed, too; None for all, each an operation.
        """
        return run(self._namespace.entities, topics)

    def counts(self, addresses: str | EntityAddress | Iterable[str | EntityAddress]) -> list[EntityCounts]:
        """Count the messages of queues and subscriptions, in the given order; a management operation for each.

        Raises:
            azure.core.exceptions.ResourceNotFoundError: there is no such entity.
        """
        return run(self._namespace.counts, addresses)

    def create_queue(
        self,
        name: str,
        *,
        lock_duration: str | timedelta | None = None,
        max_delivery_count: int | None = None,
        requires_session: bool = False,
    ) -> None:
        """Create a queue.

        Args:
            name: its name.
            lock_duration: how long a lock lasts, such as ``"2m"``; None for the service's default of a minute.
            max_delivery_count: deliveries until a message is dead-lettered, None for the service's default of 10.
            requires_session: True when each message belongs to a session.

        Raises:
            azure.core.exceptions.ResourceExistsError: an entity has this name already.
        """
        run(
            self._namespace.create_queue,
            name,
            lock_duration=duration(lock_duration),
            max_delivery_count=max_delivery_count,
            requires_session=requires_session,
        )

    def create_topic(self, name: str) -> None:
        """Create a topic; :meth:`create_subscription` gives it subscriptions.

        Args:
            name: its name.

        Raises:
            azure.core.exceptions.ResourceExistsError: an entity has this name already.

        Example:
            >>> connect("emulator").create_topic("events")  # doctest: +SKIP
        """
        run(self._namespace.create_topic, name)

    def create_subscription(
        self,
        topic: str,
        name: str,
        *,
        lock_duration: str | timedelta | None = None,
        max_delivery_count: int | None = None,
        requires_session: bool = False,
    ) -> None:
        """Create a subscription of a topic, which gets all messages that are sent to the topic.

        Args:
            topic: the name of its topic.
            name: its own name.
            lock_duration: as for :meth:`create_queue`.
            max_delivery_count: as for :meth:`create_queue`.
            requires_session: True when each message belongs to a session.

        Raises:
            azure.core.exceptions.ResourceExistsError: the topic has such a subscription already.
            azure.core.exceptions.ResourceNotFoundError: there is no such topic.

        Example:
            >>> connect("emulator").create_subscription("events", "audit")  # doctest: +SKIP
        """
        run(
            self._namespace.create_subscription,
            topic,
            name,
            lock_duration=duration(lock_duration),
            max_delivery_count=max_delivery_count,
            requires_session=requires_session,
        )

    def delete_queue(self, name: str) -> None:
        """Delete a queue with all of its messages; ``undo`` cannot restore them."""
        run(self._namespace.delete_queue, name)
