"""Namespaces: connect, and reach their entities, the journal and the archive of this machine."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

import anyio
import pyarrow as pa

from sbnotebook.analysis.decoding import Decode
from sbnotebook.analysis.frames import table_to_pandas
from sbnotebook.analysis.query import result_of, tables_in
from sbnotebook.client.async_batch import close_batches
from sbnotebook.client.async_entity import AsyncEntity
from sbnotebook.client.async_plan import AsyncPlan
from sbnotebook.client.dead_letters import SAMPLE, DeadLetters, look_at
from sbnotebook.client.difference import MessageDifference, last_good, message_of
from sbnotebook.client.finding import MOST_FOUND, FoundMessages, Search, find_messages
from sbnotebook.client.history import MOST_RESUBMITS, History, Remembered, history_of, history_tables, schemas
from sbnotebook.client.messages import Messages
from sbnotebook.client.portal import blocking, is_synchronous, progress_bar, warn
from sbnotebook.client.receivers import clones_sent
from sbnotebook.client.targets import (
    EMULATOR,
    About,
    Choice,
    ServiceCredential,
    Target,
    about,
    address,
    duration,
    resolve,
    start_time,
    whole_number,
)
from sbnotebook.client.verbs import SdkNames, documented
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, Outcome
from sbnotebook.model.connection_strings import Hidden, hidden
from sbnotebook.model.decision import AUTO
from sbnotebook.settlement import (
    Archive,
    AssistantCalls,
    EntityCounts,
    InFlight,
    Journal,
    ResubmitEntry,
    Resubmitted,
    sign_in,
)
from sbnotebook.settlement import AsyncNamespace as Resources

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

    from sbnotebook.client.async_namespace_copy import AsyncNamespaceCopy
    from sbnotebook.client.copying import Comparison, Copied
    from sbnotebook.client.rehearsal import Consumer, Rehearsal
    from sbnotebook.spark.frame_plan import FramePlan


@documented
class AsyncNamespace(SdkNames):
    """A Service Bus namespace. Made by ``await AsyncNamespace.connect(…)``.

    Args:
        target: its connection, and how that was found.
        journal: records resubmits, None for the user's own.
        archive: as for :meth:`connect`; True for the one beside the journal.
    """

    def __init__(
        self, target: Target, *, journal: Journal | None = None, archive: Archive | bool | None = True
    ) -> None:
        self._found_by = target.found_by
        self.resources = Resources(target.connection, journal=journal, archive=archive)

    @classmethod
    async def connect(
        cls,
        target: str | Hidden | None = None,
        *,
        credential: Any = None,
        archive: Archive | bool | None = True,
        write: bool | None = None,
        allow_remote: bool = False,
    ) -> AsyncNamespace:
        """Connect to a Service Bus namespace, and sign in. On Azure, writing is off until you give ``write=True``.

        Service Bus may not tell at once whether an account has rights: a warning then says that its first use will.

        Args:
            target: ``emulator``, ``NAMESPACE.servicebus.windows.net``, ``env:VARIABLE``, ``secret:SCOPE/KEY``
                (Databricks), ``credential:NAME@HOST`` (a service credential of Unity Catalog) or a connection string;
                None takes it from the environment, or else the emulator.
            credential: a token credential of azure.identity for a namespace's host name; None for its
                DefaultAzureCredential.
            archive: where messages are kept before they are removed, so that ``undo`` can send them back: True for the
                user's own, unless SBNOTEBOOK_ARCHIVE is off in the environment; False or None for nowhere.
            write: True to also send, lock, settle, create and remove. With False you can make and preview plans, and
                applying one raises ReadOnlyError. None, the default, is True on an emulator and False on Azure.
            allow_remote: True to reach an emulator on another machine, such as a container. Everything, the key too,
                goes there unencrypted. The hosts in the environment variable SBNOTEBOOK_EMULATOR_HOSTS are always
                allowed.

        Raises:
            ConfigurationError: the target cannot be used.
            EmulatorStartError: the emulator could not be started.
            azure.servicebus.exceptions.ServiceBusConnectionError: the namespace was not reached, in 15 seconds at most.
            azure.servicebus.exceptions.ServiceBusAuthenticationError: it refuses the key, or there is no account to
                sign in with. A sign-in may take 45 seconds.

        Example:
            >>> namespace = await AsyncNamespace.connect("emulator")  # doctest: +SKIP
            >>> await namespace.entity("orders/$dlq").peek(10)  # doctest: +SKIP
        """
        target = hidden(target)
        found = await blocking(resolve, target, credential, allow_remote=allow_remote)
        if write is not None:
            found.connection.read_only = not write
        namespace = cls(found, archive=archive)
        try:
            signed_in = await sign_in(found.connection)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await namespace.close()
            raise
        if not signed_in.is_confirmed:
            await warn(
                f"{namespace.host} answered, and has not confirmed {signed_in.name}: the sign-in is checked "
                "at the first use."
            )
        return namespace

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def found_by(self) -> str:
        """Return how the target was found, in words."""
        return self._found_by

    @property
    def host(self) -> str:
        """Return the namespace's host name."""
        return self.resources.host

    async def identity(self) -> str:
        """Return what the files of this machine know the namespace by; an emulator is asked for it the first time.

        It stays the same when the emulator starts on another port, and however the host name is spelled.

        Raises:
            azure.servicebus.exceptions.ServiceBusConnectionError: the emulator does not answer.
        """
        return await blocking(self.resources.identity)

    @property
    def is_emulator(self) -> bool:
        """Return True for an emulator on a development machine."""
        return self.resources.connection.is_emulator

    @property
    def read_only(self) -> bool:
        """Return True where writing is off: you can make plans, but not apply them."""
        return self.resources.connection.read_only

    @property
    def connection_string(self) -> str | None:
        """Return the connection string, a secret; None where a credential is used."""
        return self.resources.connection.connection_string

    @property
    def service_credential(self) -> str | None:
        """Return the name of the service credential of Unity Catalog; None where there is none."""
        credential = self.resources.connection.credential
        return credential.name if isinstance(credential, ServiceCredential) else None

    @property
    def archive(self) -> Archive | None:
        """Return the archive of removed messages; None when there is none."""
        return self.resources.archive

    @property
    def assistant_calls(self) -> AssistantCalls:
        """Return the calls of assistants in this namespace, which the journal of this machine keeps for 30 days."""
        return self.resources.assistant_calls

    async def about(self) -> About:
        """Sign in and return the host, the identity, and whether writing is on. Shown as a few lines.

        Raises:
            azure.servicebus.exceptions.ServiceBusError: as for :meth:`connect`.
        """
        return await about(self.resources.connection, self.found_by)

    def entity(self, address: str | EntityAddress) -> AsyncEntity:
        """Return a queue, topic, subscription or sub-queue, such as ``orders/$dlq``.

        Raises:
            InvalidEntityAddressError: the text is not an address.
        """
        return AsyncEntity(self.resources.entity(address))

    # ---------------------------------------------------------------- its entities

    async def entities(self, *, topics: Collection[str] | None = None) -> list[EntityCounts]:
        """List all entities with their counts, which are management operations: do not call this often."""
        return await self.resources.entities(topics)

    async def counts(self, addresses: str | EntityAddress | Iterable[str | EntityAddress]) -> list[EntityCounts]:
        """Count the messages of queues and subscriptions, in the given order; a management operation for each."""
        return await self.resources.counts(addresses)

    async def create_queue(
        self,
        name: str,
        *,
        lock_duration: str | timedelta | None = None,
        max_delivery_count: int | None = None,
        requires_session: bool = False,
    ) -> None:
        """Create a queue."""
        await self.resources.create_queue(
            name,
            lock_duration=duration(lock_duration),
            max_delivery_count=max_delivery_count,
            requires_session=requires_session,
        )

    async def create_topic(self, name: str) -> None:
        """Create a topic; :meth:`create_subscription` gives it subscriptions.

        Example:
            >>> await namespace.create_topic("events")  # doctest: +SKIP
        """
        await self.resources.create_topic(name)

    async def create_subscription(
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
            >>> await namespace.create_subscription("events", "audit")  # doctest: +SKIP
        """
        await self.resources.create_subscription(
            topic,
            name,
            lock_duration=duration(lock_duration),
            max_delivery_count=max_delivery_count,
            requires_session=requires_session,
        )

    async def delete_queue(self, name: str) -> None:
        """Delete a queue with all of its messages; ``undo`` cannot restore them."""
        await self.resources.delete_queue(name)

    async def dead_letters(
        self, entities: Iterable[str | EntityAddress] | str | EntityAddress | None = None, *, sample: int = SAMPLE
    ) -> DeadLetters:
        """Look at all dead-letter queues: their counts, oldest and newest messages, growth, and most frequent causes.

        It locks nothing. The counts take a management operation for 100 queues, and one for each topic. The causes are
        those of a sample, the first messages of each queue. The journal of this machine keeps the counts, from which
        the next look tells the growth.

        Example:
            >>> letters = await namespace.dead_letters()  # doctest: +SKIP
            >>> [(str(queue.address), queue.count) for queue in letters.above(100)]  # doctest: +SKIP
        """
        chosen = _addresses(entities)
        if whole_number(sample, "sample", least=1) > SAMPLE:
            raise ConfigurationError(f"The sample has {SAMPLE} messages of each queue at most, not {sample:,}.")
        return await look_at(self.resources, chosen, sample)

    async def find(
        self,
        entities: Iterable[str | EntityAddress] | str | EntityAddress | None = None,
        *,
        message_id: str | None = None,
        correlation_id: str | None = None,
        where: str | None = None,
        max_messages: int = MOST_FOUND,
        depth: int | None = None,
        decode: Decode | None = None,
        show_progress: bool = True,
    ) -> FoundMessages:
        """Search entities and their sub-queues for messages, several at the same time. It locks nothing.

        Give one or more of ``message_id``, ``correlation_id`` and ``where``: a message has to meet all of them. The
        messages are in the order of their enqueued times. It leaves out sub-queues that Service Bus counts as empty.
        ``decode`` decodes the bodies before ``where`` sees them, as in :meth:`AsyncEntity.peek`.

        Example:
            >>> found = await namespace.find(correlation_id="order-4711")  # doctest: +SKIP
            >>> found.timeline()  # doctest: +SKIP
        """
        deep = None if depth is None else whole_number(depth, "depth", least=1)
        most = whole_number(max_messages, "max_messages", least=1)
        search = Search(message_id, correlation_id, where, most, deep)
        with progress_bar("find", None, shown=show_progress) as advance:
            return await find_messages(self.resources, search, _addresses(entities), advance, decode)

    async def history(
        self,
        entity: str | EntityAddress | None = None,
        *,
        max_messages: int = MOST_RESUBMITS,
        others: Iterable[AsyncNamespace] = (),
    ) -> History:
        """List the resubmits in the journal of this machine, and look up what became of each clone.

        A clone is waiting in its destination, consumed, or back in a dead-letter queue with the reason. Where more than
        a consumer can be the reason that it is gone, its fate is unknown, and the description says why. It only peeks.

        Example:
            >>> history = await namespace.history("orders/$dlq")  # doctest: +SKIP
            >>> [(entry.message_id, entry.reason) for entry in history.came_back]  # doctest: +SKIP
        """
        most = whole_number(max_messages, "max_messages", least=1)
        return await history_of(self.resources, address(entity), most, others=[each.resources for each in others])

    async def diff(
        self,
        entity: str | EntityAddress,
        one: int,
        other: int | None = None,
        *,
        other_entity: str | EntityAddress | None = None,
    ) -> MessageDifference:
        """Compare two messages: their fields, properties, and the values in JSON bodies. It only peeks.

        Example:
            >>> await namespace.diff("orders/$dlq", 7)  # doctest: +SKIP
            >>> await namespace.diff("orders/$dlq", 7, 12, other_entity="orders")  # doctest: +SKIP
        """
        if other is None and other_entity is not None:
            raise ConfigurationError("Give the sequence number in the other entity, too.")
        place, there = self.entity(entity), self.entity(entity if other_entity is None else other_entity)
        numbers = [whole_number(each, "A sequence number") for each in (one, other) if each is not None]
        first = await message_of(place, numbers[0])
        if other is None:
            return MessageDifference(first, await last_good(place, self.entity(place.address.entity), first))
        return MessageDifference(first, await message_of(there, numbers[1]))

    async def sql(
        self,
        query: str,
        entities: Iterable[str | EntityAddress] | str | EntityAddress = (),
        *,
        max_messages: int | None = None,
        bodies: bool = False,
        show_progress: bool = True,
    ) -> pd.DataFrame:
        """Run a SQL query over the messages of entities and over the files of this machine.

        The tables are ``messages``, which it peeks, so that it locks nothing; ``journal``, the resubmits of 30 days;
        ``archive``, the removed messages; and ``notes``, those on causes. The column ``cause`` joins them.

        Args:
            query: one SELECT. It sees no file and no other table.
            entities: whose messages the table ``messages`` has; its column ``entity`` says where each is.
            max_messages: maximum for each entity, from its first message; None for all.
            bodies: True to give the table ``archive`` the columns of bodies, such as ``body_text``.

        Returns:
            A pandas frame, of at most 256 MB.

        Raises:
            ConfigurationError: the query is wrong, or reads ``messages`` and no entity is given.

        Example:
            >>> await namespace.sql(
            ...     "SELECT entity, count(*) AS n FROM messages GROUP BY entity", ["orders", "orders/$dlq"]
            ... )  # doctest: +SKIP
            >>> await namespace.sql(
            ...     "SELECT cause, count(*) AS n FROM journal WHERE resubmitted > now() - INTERVAL 7 DAY GROUP BY cause"
            ... )  # doctest: +SKIP
        """
        addresses = _addresses(entities) or []
        # A query that is wrong is refused before messages are peeked.
        named = {*await blocking(tables_in, query, schemas(bodies=bodies))}
        if not addresses and "messages" in named:
            raise ConfigurationError("Name the entities to query, such as orders/$dlq.")
        found = [await self.entity(each).peek(max_messages, show_progress=show_progress) for each in addresses]
        messages = pa.concat_tables([Messages().to_arrow(), *(each.to_arrow() for each in found)])
        others = await blocking(history_tables, self.resources, named - {"messages"}, bodies=bodies)
        return table_to_pandas(await blocking(result_of, messages, query, others))

    # ---------------------------------------------------------------- copies, the journal and the archive

    async def resume(
        self,
        entity: str | EntityAddress | None = None,
        *,
        resend_unknown: bool = False,
        max_wait: float | str | timedelta = 0.0,
        others: Iterable[AsyncNamespace] = (),
    ) -> list[AsyncPlan]:
        """Plan to finish resubmits that a crash or a lost connection interrupted.

        Args:
            entity: only originals of this one, None for all.
            resend_unknown: send again also what may have arrived and been consumed.
            max_wait: seconds to wait for originals that are still locked, or a duration such as ``"1m"``.
            others: connected namespaces to which clones may have been sent.

        Returns:
            A plan for each entity with originals; none if no resubmit was interrupted.

        Example:
            >>> for plan in await namespace.resume():  # doctest: +SKIP
            ...     print(plan)
            ...     await plan.apply()
        """
        found = await self.resources.resume(
            entity,
            resend_unknown=resend_unknown,
            max_wait=duration(max_wait).total_seconds(),
            others=[each.resources for each in others],
        )
        return [AsyncPlan(plan) for plan in found]

    async def rehearse(
        self, plan: AsyncPlan, consumer: Consumer | None = None, *, timeout: str | float | timedelta = "1m"
    ) -> Rehearsal:
        """Carry a resubmit out on copies of its messages, in an emulator of this process; the namespace stays as it is.

        Args:
            plan: a resubmit within this namespace, of 10,000 messages at most.
            consumer: processes the clones, for real: a function, or a command, which gets the connection string of the
                emulator in SERVICEBUS_CONNECTION_STRING. None to see only what arrives.
            timeout: for how long a command may run, such as ``"1m"``.

        Example:
            >>> (await namespace.rehearse(plan, my_function)).counts  # doctest: +SKIP
            {<RehearsalResult.CONSUMED: 'consumed'>: 2}
        """
        from sbnotebook.client.rehearsal import rehearse  # it loads the emulator

        return await rehearse(plan.inner, consumer, timeout=duration(timeout), on=self.resources)

    async def copy_to(
        self,
        target: str,
        entity: str | EntityAddress,
        messages: Choice | None = None,
        *,
        where: str | None = None,
        max_messages: int | None = None,
        mask: str | Iterable[str] = (),
        show_progress: bool = True,
    ) -> AsyncNamespaceCopy:
        """Copy messages by peeking into a fresh emulator of this process; this namespace stays as it is.

        The emulator gets the tier of the namespace, and the entity with its options, rules and sessions, and the
        entities to which it forwards. Copies keep the numbers, times and states of the messages, and do not expire.

        Args:
            target: ``"emulator"``.
            entity: where the messages are: a queue, a subscription or a sub-queue.
            messages: which ones, as for ``entity.pick``; None for the active messages.
            where: only active messages for which this SQL expression over the message columns is true.
            max_messages: maximum number of messages, from the first; None for all. A copy has 10,000 at most.
            mask: values to replace before they are copied, such as ``["$.email", "application_properties.customer",
                "correlation_id"]``: see :class:`sbnotebook.analysis.masks.Masks`. With a path into bodies, a body that
                is not JSON is replaced as a whole.

        Returns:
            A namespace with the copies, which you close.

        Raises:
            ConfigurationError: the target or the choice is wrong.
            DecisionError: there are no such messages, or too many; or none has a value at a path of ``mask``.
            azure.core.exceptions.AzureError: the options could not be read; it needs the right Manage.

        Example:
            >>> async with await namespace.copy_to("emulator", "orders/$dlq") as copy:  # doctest: +SKIP
            ...     await (await copy.entity("orders/$dlq").resubmit(copy.messages)).apply()
        """
        from sbnotebook.analysis.masks import Masks
        from sbnotebook.client.async_namespace_copy import AsyncNamespaceCopy
        from sbnotebook.client.copying import copied, messages_to_copy  # it loads the emulator

        if target != EMULATOR:
            raise ConfigurationError(f"A copy goes to 'emulator', not to {str(target)[:40]!r}.")
        masks = Masks(mask)
        place = self.entity(entity)
        most = None if max_messages is None else whole_number(max_messages, "max_messages", least=1)
        meant = await messages_to_copy(place, messages, where, most, show_progress=show_progress)
        copy = copied(self.resources.connection, place.address, meant, masks=masks)
        return await AsyncNamespaceCopy.of(copy, f"a copy of {place.address}")

    async def snapshot(
        self, *, sample: int = 0, mask: str | Iterable[str] = (), show_progress: bool = True
    ) -> AsyncNamespaceCopy:
        """Copy all entities with their options, rules and counts into a fresh emulator of this process.

        It peeks. ``save`` writes a file, from which ``sbnotebook emulator --from FILE`` starts an emulator. Keys,
        metadata and sizes are left out.

        Args:
            sample: how many messages to copy from each queue, subscription and dead-letter queue; 0 for none.
            mask: values of these to replace, as for ``copy_to``.

        Returns:
            A namespace with the entities, which you close.

        Raises:
            DecisionError: these are more than 10,000 messages, or none has a value at a path of ``mask``.
            azure.core.exceptions.AzureError: the options could not be read; it needs the right Manage.

        Example:
            >>> async with await namespace.snapshot(sample=10, mask="$.email") as copy:  # doctest: +SKIP
            ...     await copy.save("shop.sbcopy")
        """
        from sbnotebook.analysis.masks import Masks
        from sbnotebook.client.async_namespace_copy import AsyncNamespaceCopy
        from sbnotebook.client.copying import snapshot_of  # it loads the emulator

        most = whole_number(sample, "sample", least=0)

        async def peek(place: EntityAddress) -> Messages:
            return await self.entity(place).peek(most, show_progress=show_progress)

        entities = await self.entities()
        copy = await snapshot_of(self.resources.connection, entities, peek if most else None, Masks(mask))
        return await AsyncNamespaceCopy.of(copy, f"a snapshot of {self.host}")

    async def compare(self, other: AsyncNamespace | Path | str, *, counts: bool = True) -> Comparison:
        """Compare the entities, options, rules and counts of this namespace with those of another, or of a snapshot.

        Args:
            other: a namespace, or the file of a snapshot.
            counts: False to leave out the numbers of messages.

        Returns:
            The differences: none where the namespaces are the same.

        Raises:
            ConfigurationError: the file is not a copy.
            azure.core.exceptions.AzureError: the options could not be read; it needs the right Manage.

        Example:
            >>> await namespace.compare("shop.sbcopy")  # doctest: +SKIP
            No difference between 127.0.0.1:5672 and the copy in shop.sbcopy.
        """
        from sbnotebook.client.async_namespace_copy import AsyncNamespaceCopy
        from sbnotebook.client.copying import compared

        async with AsyncExitStack() as stack:
            if not isinstance(other, AsyncNamespace):
                if not str(other).lower().endswith(".sbcopy"):  # it may be a secret
                    raise ConfigurationError("Compare with connect(…), or with the .sbcopy file of a snapshot.")
                other = await stack.enter_async_context(await AsyncNamespaceCopy.read(other))
            (name, one), (there, copy) = [await each._described(stack) for each in (self, other)]  # noqa: SLF001
            return compared(one, copy, (name, there), counts=counts)

    async def _described(self, stack: AsyncExitStack) -> tuple[str, Copied]:
        """Return the name of the namespace, and what its snapshot holds while the stack is open."""
        snapshot: AsyncNamespace = await stack.enter_async_context(await self.snapshot())
        _, found = await snapshot._described(stack)  # pyright: ignore[reportPrivateUsage]
        return self.host, found

    async def unfinished(self, entity: str | EntityAddress | None = None) -> list[ResubmitEntry]:
        """List the resubmits in the journal that have not ended, oldest first: interrupted, or still running.

        Args:
            entity: only originals of this one, None for all.
        """
        path = None if entity is None else EntityAddress.parse(entity).path
        return await blocking(self.resources.journal.unfinished, await self.identity(), path)

    async def remembered(self) -> Remembered:
        """Return the records of this machine: unfinished resubmits, deferrals, removed messages and notes on causes.

        Shown as a table, with the magic that continues each of them.
        """
        archive, identity = self.archive, await self.identity()
        return Remembered(
            unfinished=await self.unfinished(),
            deferred=await blocking(self.resources.tables.deferral_counts),
            removed=await blocking(archive.counts, identity) if archive is not None else [],
            notes=await self.notes(),
            retention=archive.retention if archive is not None else None,
        )

    async def undo(
        self,
        report: Iterable[Outcome] | DataFrame | str | EntityAddress | None = None,
        *,
        entity: str | EntityAddress | None = None,
        since: str | datetime | timedelta | None = None,
        to: str | EntityAddress | None = None,
        include_unknown: bool = False,
        include_resubmitted: bool = False,
        new_ids: bool | None = None,
    ) -> AsyncPlan:
        """Plan to send removed messages back from the archive: the same messages, with new sequence numbers.

        Args:
            report: messages that these outcomes removed; may be a frame from :meth:`settle_frame`. An address, such as
                ``"orders"``, is the same as ``entity``. Without it, give ``entity`` or ``since`` or both.
            entity: messages that were removed from this entity.
            since: messages that were removed then or later; a duration such as ``"2h"`` counts back from now.
            to: the queue or topic that they are sent to; by default the one that each was in.
            include_unknown: also messages that may not have been removed, or may have been sent back before.
            include_resubmitted: also originals of resubmits. Their clones exist, so this doubles them.
            new_ids: whether they get new message ids; by default where the destination drops duplicates.

        Raises:
            ConfigurationError: there is no archive.
            DecisionError: there is nothing to send back, all of it was resubmitted, or ``to`` is missing.

        Example:
            >>> await (await namespace.undo(entity="orders/$dlq", since="2h")).apply()  # doctest: +SKIP
        """
        if isinstance(report, (str, EntityAddress)):
            if entity is not None and address(entity) != address(report):
                raise ConfigurationError(f"Give one entity to undo, not {report} and {entity}.")
            report, entity = None, report
        plan = await self.resources.undo(
            await blocking(_outcomes, report),
            entity=entity,
            since=start_time(since),
            to=to,
            include_unknown=include_unknown,
            include_resubmitted=include_resubmitted,
            new_ids=new_ids,
        )
        return AsyncPlan(plan, receivers=partial(clones_sent, self.resources, plan))

    async def plan_settle_frame(
        self, frame: DataFrame, *, entity: str | EntityAddress | None = None, archived: bool = True
    ) -> FramePlan:
        """Plan to settle messages by the rows of a Spark frame: see :meth:`settle_frame`."""
        from sbnotebook.spark.frame_plan import FramePlan

        # It waits for Spark, on a thread, and for what it does here, on the background loop.
        there = self.resources
        if not is_synchronous():
            there = Resources(there.connection.again(), journal=there.journal, archive=there.archive)
        return await blocking(FramePlan, there, frame, entity=entity, archived=archived)

    async def settle_frame(
        self,
        frame: DataFrame,
        *,
        entity: str | EntityAddress | None = None,
        max_in_flight: InFlight = AUTO,
        archived: bool = True,
        show_progress: bool = True,
    ) -> DataFrame:
        """Settle messages by the rows of a Spark frame, at once, and not lazily.

        This process settles them: deferred messages by their numbers, and others in a pass for each decision.

        Args:
            frame: a row for each message, with the columns ``sequence_number`` and ``decision`` (``complete``,
                ``dead_letter``, ``abandon``, ``defer`` or ``resubmit``), ``reason`` and ``description`` for dead
                letters, and ``entity``. It is computed once.
            entity: the entity of all messages, where no column says it.
            max_in_flight: settlements that wait for their answer at once.

        Returns:
            A frame with an outcome for each message: entity, sequence_number, decision, status, message_id,
            condition, description, tracking_id and retryable. It is fixed, and can be given to :meth:`undo`.

        Raises:
            ConfigurationError: a column is missing or wrong.
            DecisionError: a row cannot be carried out, or a message has two decisions; nothing was done.

        Example:
            >>> frame = spark.read.format("servicebus").options(target="emulator", entity="orders/$dlq").load()
            ... # doctest: +SKIP
            >>> decided = frame.selectExpr(
            ...     "entity", "sequence_number", "if(subject = 'test', 'complete', 'resubmit') AS decision"
            ... )  # doctest: +SKIP
            >>> outcomes = await namespace.settle_frame(decided)  # doctest: +SKIP
            >>> outcomes.groupBy("status").count().show()  # doctest: +SKIP
        """
        plan = await self.plan_settle_frame(frame, entity=entity, archived=archived)
        return await blocking(plan.apply, max_in_flight=max_in_flight, show_progress=show_progress)

    async def note(self, fingerprint: str, text: str) -> None:
        """Keep a note on a cause of dead letters in the journal of this machine; an empty text removes it.

        Args:
            fingerprint: the cause's: see ``messages.groups()``.
            text: the note, of 2,000 characters at most; it replaces an earlier one.

        Raises:
            ConfigurationError: the note is too long.

        Example:
            >>> cause = (await namespace.entity("orders/$dlq").peek()).groups()[0]  # doctest: +SKIP
            >>> await namespace.note(cause.fingerprint, "price list was empty, see INC-4711")  # doctest: +SKIP
        """
        await blocking(self.resources.tables.write_note, fingerprint, text)

    async def notes(self) -> dict[str, str]:
        """Return the notes on causes in this namespace, by fingerprint."""
        return await blocking(self.resources.tables.notes)

    async def count_resubmits(self, entity: str | EntityAddress, counts: Mapping[str, int]) -> None:
        """Add to the counts of resubmitted messages in the journal of this machine; panels do so after each resubmit.

        Args:
            entity: that held the messages, such as ``orders/$dlq``.
            counts: how many, by the fingerprint of their cause.
        """
        await blocking(self.resources.tables.add_resubmits, EntityAddress.parse(entity), counts, datetime.now(UTC))

    async def counted_resubmits(self, entity: str | EntityAddress) -> dict[str, Resubmitted]:
        """Return when messages of each cause were last resubmitted in a panel, and how many in all, by fingerprint.

        Args:
            entity: that held the messages, such as ``orders/$dlq``.
        """
        return await blocking(self.resources.tables.resubmits, EntityAddress.parse(entity))

    async def config(self) -> dict[str, Any]:
        """Return the entities and rules as a ``Config.json``, which Microsoft's emulator and ours read.

        It has no keys, no messages and no metadata. A warning names each option that the file cannot say, and each
        limit of Microsoft's emulator that it exceeds. The limits are 50 queues and topics, 50 subscriptions of a
        topic, 10 deliveries, and messages that live for 1 hour. Rules with SQL parameters are left out.

        Raises:
            azure.core.exceptions.AzureError: the entities could not be read; it needs the right Manage.

        Example:
            >>> Path("Config.json").write_text(json.dumps(await namespace.config(), indent=2))  # doctest: +SKIP

        Source: Service Bus documentation, "Overview of the Azure Service Bus emulator", and the schema
        ``ServiceBus-Emulator/Schema/Config-schema.json`` in Azure/azure-service-bus-emulator-installer.
        """
        config, notes = await self.resources.config()
        for note in notes:
            await warn(note)
        return config

    async def close(self) -> None:
        """Close the batches that are still open, which releases what they hold, and all connections."""
        try:
            await close_batches(self.resources)
        finally:
            await self.resources.close()

    def __repr__(self) -> str:
        return f"<Namespace {self.host}, source: {self.found_by}{', read-only' if self.read_only else ''}>"


def _outcomes(report: Iterable[Outcome] | DataFrame | None) -> Iterable[Outcome] | None:
    if not hasattr(report, "toArrow"):
        return cast("Iterable[Outcome] | None", report)
    from sbnotebook.spark.frame_plan import outcomes_in

    return outcomes_in(cast("DataFrame", report))


def _addresses(entities: Iterable[str | EntityAddress] | str | EntityAddress | None) -> list[EntityAddress] | None:
    """Return the addresses of one or some entities; None for all."""
    if isinstance(entities, (str, EntityAddress)):
        entities = (entities,)
    return None if entities is None else [EntityAddress.parse(each) for each in entities]
