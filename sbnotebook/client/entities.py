"""Verbs of a namespace for its entities: list, count, create and delete them, and look at many of them at once."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

import pyarrow as pa

from sbnotebook.client.coercions import address, duration, whole_number
from sbnotebook.client.dead_letters import SAMPLE, DeadLetters, look_at
from sbnotebook.client.difference import MessageDifference, compare
from sbnotebook.client.entity import Entity
from sbnotebook.client.finding import MOST_FOUND, FoundMessages, Search, find_messages
from sbnotebook.client.history import MOST_RESUBMITS, History, history_of
from sbnotebook.client.messages import Messages
from sbnotebook.client.portal import progress_bar, run
from sbnotebook.client.verbs import SdkNames
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress
from sbnotebook.settlement import AsyncNamespace, EntityCounts

if TYPE_CHECKING:
    import pandas as pd


class NamespaceEntities(SdkNames):
    """The part of :class:`sbnotebook.client.Namespace` that manages its entities, and looks at many of them at once."""

    _namespace: AsyncNamespace

    def entities(self, *, topics: Collection[str] | None = None) -> list[EntityCounts]:
        """List all entities with their counts, which are management operations: do not call this often."""
        return run(self._namespace.entities, topics)

    def counts(self, addresses: str | EntityAddress | Iterable[str | EntityAddress]) -> list[EntityCounts]:
        """Count the messages of queues and subscriptions, in the given order; a management operation for each."""
        return run(self._namespace.counts, addresses)

    def create_queue(
        self,
        name: str,
        *,
        lock_duration: str | timedelta | None = None,
        max_delivery_count: int | None = None,
        requires_session: bool = False,
    ) -> None:
        """Create a queue."""
        run(
            self._namespace.create_queue,
            name,
            lock_duration=duration(lock_duration),
            max_delivery_count=max_delivery_count,
            requires_session=requires_session,
        )

    def create_topic(self, name: str) -> None:
        """Create a topic; :meth:`create_subscription` gives it subscriptions.

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

    def dead_letters(
        self, entities: Iterable[str | EntityAddress] | str | EntityAddress | None = None, *, sample: int = SAMPLE
    ) -> DeadLetters:
        """Look at all dead-letter queues: their counts, oldest and newest messages, growth, and most frequent causes.

        It locks nothing. The counts take a management operation for 100 queues, and one for each topic. The causes are
        those of a sample, the first messages of each queue. The journal of this machine keeps the counts, from which
        the next look tells the growth.

        Example:
            >>> letters = connect("emulator").dead_letters()  # doctest: +SKIP
            >>> [(str(queue.address), queue.count) for queue in letters.above(100)]  # doctest: +SKIP
        """
        chosen = _addresses(entities)
        if whole_number(sample, "sample", least=1) > SAMPLE:
            raise ConfigurationError(f"The sample has {SAMPLE} messages of each queue at most, not {sample:,}.")
        return run(look_at, self._namespace, chosen, sample)

    def find(
        self,
        entities: Iterable[str | EntityAddress] | str | EntityAddress | None = None,
        *,
        message_id: str | None = None,
        correlation_id: str | None = None,
        where: str | None = None,
        max_messages: int = MOST_FOUND,
        depth: int | None = None,
        show_progress: bool = True,
    ) -> FoundMessages:
        """Search entities and their sub-queues for messages, several at the same time. It locks nothing.

        Give one or more of ``message_id``, ``correlation_id`` and ``where``: a message has to meet all of them. The
        messages are in the order of their enqueued times. It leaves out sub-queues that Service Bus counts as empty.

        Example:
            >>> found = connect("emulator").find(correlation_id="order-4711")  # doctest: +SKIP
            >>> found.timeline()  # doctest: +SKIP
        """
        most = whole_number(max_messages, "max_messages", least=1)
        deep = None if depth is None else whole_number(depth, "depth", least=1)
        search = Search(message_id, correlation_id, where, most, deep)
        with progress_bar("find", None, shown=show_progress) as advance:
            return run(find_messages, self._namespace, search, _addresses(entities), advance)

    def history(
        self,
        entity: str | EntityAddress | None = None,
        *,
        max_messages: int = MOST_RESUBMITS,
        others: Iterable[NamespaceEntities] = (),
    ) -> History:
        """List the resubmits in the journal of this machine, and look up what became of each clone.

        A clone is waiting in its destination, consumed, or back in a dead-letter queue with the reason. Where more than
        a consumer can be the reason that it is gone, its fate is unknown, and the description says why. It only peeks.

        Example:
            >>> history = connect("emulator").history("orders/$dlq")  # doctest: +SKIP
            >>> [(entry.message_id, entry.reason) for entry in history.came_back]  # doctest: +SKIP
        """
        most = whole_number(max_messages, "max_messages", least=1)
        there = [other._namespace for other in others]  # noqa: SLF001 (of the same class)
        return run(history_of, self._namespace, address(entity), most, others=there)

    def diff(
        self,
        entity: str | EntityAddress,
        one: int,
        other: int | None = None,
        *,
        other_entity: str | EntityAddress | None = None,
    ) -> MessageDifference:
        """Compare two messages: their fields, properties, and the values in JSON bodies. It only peeks.

        Example:
            >>> connect("emulator").diff("orders/$dlq", 7)  # doctest: +SKIP
            >>> connect("emulator").diff("orders/$dlq", 7, 12, other_entity="orders")  # doctest: +SKIP
        """
        first = Entity(self._namespace.entity(entity))
        second = None if other_entity is None else Entity(self._namespace.entity(other_entity))
        numbers = [whole_number(each, "A sequence number") for each in (one, other) if each is not None]
        own = Entity(self._namespace.entity(first.address.entity))
        return compare(first, numbers[0], numbers[1] if other is not None else None, second, own)

    def sql(
        self,
        query: str,
        entities: Iterable[str | EntityAddress] | str | EntityAddress,
        *,
        max_messages: int | None = None,
        show_progress: bool = True,
    ) -> pd.DataFrame:
        """Run a SQL query over the messages of one or more entities, which it knows as the table ``messages``.

        It peeks, so it locks nothing. The column ``entity`` says where a message is.

        Example:
            >>> connect("emulator").sql(
            ...     "SELECT entity, count(*) AS n FROM messages GROUP BY entity", ["orders", "orders/$dlq"]
            ... )  # doctest: +SKIP
        """
        addresses = _addresses(entities)
        if not addresses:
            raise ConfigurationError("Name the entities to query, such as orders/$dlq.")
        Messages().sql(query)  # a query that is wrong is refused before messages are peeked
        found = [
            Entity(self._namespace.entity(each)).peek(max_messages, show_progress=show_progress) for each in addresses
        ]
        return Messages(pa.concat_tables([each.to_arrow() for each in found])).sql(query)


def _addresses(entities: Iterable[str | EntityAddress] | str | EntityAddress | None) -> list[EntityAddress] | None:
    """Return the addresses of one or some entities; None for all."""
    if isinstance(entities, (str, EntityAddress)):
        entities = (entities,)
    return None if entities is None else [EntityAddress.parse(each) for each in entities]
