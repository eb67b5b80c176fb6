"""Namespaces: connect, and reach their entities, the journal and the archive of this machine.

Do not edit: ``make format`` writes this file from async_namespace.py.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from sbnotebook.analysis.decoding import Decode
from sbnotebook.client.async_namespace import AsyncNamespace
from sbnotebook.client.async_namespace_copy import AsyncNamespaceCopy
from sbnotebook.client.dead_letters import SAMPLE, DeadLetters
from sbnotebook.client.difference import MessageDifference
from sbnotebook.client.entity import Entity
from sbnotebook.client.finding import MOST_FOUND, FoundMessages
from sbnotebook.client.history import MOST_RESUBMITS, History, Remembered
from sbnotebook.client.messages import Messages
from sbnotebook.client.plan import Plan
from sbnotebook.client.portal import run
from sbnotebook.client.targets import (
    About,
    Choice,
    Target,
)
from sbnotebook.client.verbs import Twin, twin_of
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
)

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

    from sbnotebook.client.copying import Comparison
    from sbnotebook.client.rehearsal import Consumer, Rehearsal
    from sbnotebook.spark.frame_plan import FramePlan


class Namespace(Twin[AsyncNamespace]):
    """A Service Bus namespace. Made by ``connect(…)``.

    Args:
        target: its connection, and how that was found.
        journal: records resubmits, None for the user's own.
        archive: as for :func:`connect`; True for the one beside the journal.
    """

    def __init__(
        self, target: Target | AsyncNamespace, *, journal: Journal | None = None, archive: Archive | bool | None = True
    ) -> None:
        super().__init__(
            target if isinstance(target, AsyncNamespace) else AsyncNamespace(target, journal=journal, archive=archive)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self.asynchronous.__aexit__, kind, error, trace)

    @property
    def found_by(self) -> str:
        """Return how the target was found, in words."""
        return self.asynchronous.found_by

    @property
    def host(self) -> str:
        """Return the namespace's host name."""
        return self.asynchronous.host

    def identity(self) -> str:
        """Return what the files of this machine know the namespace by; an emulator is asked for it the first time.

        It stays the same when the emulator starts on another port, and however the host name is spelled.

        Raises:
            azure.servicebus.exceptions.ServiceBusConnectionError: the emulator does not answer.
        """
        return run(self.asynchronous.identity)

    @property
    def is_emulator(self) -> bool:
        """Return True for an emulator on a development machine."""
        return self.asynchronous.is_emulator

    @property
    def read_only(self) -> bool:
        """Return True where writing is off: you can make plans, but not apply them."""
        return self.asynchronous.read_only

    @property
    def connection_string(self) -> str | None:
        """Return the connection string, a secret; None where a credential is used."""
        return self.asynchronous.connection_string

    @property
    def service_credential(self) -> str | None:
        """Return the name of the service credential of Unity Catalog; None where there is none."""
        return self.asynchronous.service_credential

    @property
    def archive(self) -> Archive | None:
        """Return the archive of removed messages; None when there is none."""
        return self.asynchronous.archive

    @property
    def assistant_calls(self) -> AssistantCalls:
        """Return the calls of assistants in this namespace, which the journal of this machine keeps for 30 days."""
        return self.asynchronous.assistant_calls

    def about(self) -> About:
        """Sign in and return the host, the identity, and whether writing is on. Shown as a few lines.

        Raises:
            azure.servicebus.exceptions.ServiceBusError: as for :func:`connect`.
        """
        return run(self.asynchronous.about)

    def entity(self, address: str | EntityAddress) -> Entity:
        """Return a queue, topic, subscription or sub-queue, such as ``orders/$dlq``.

        Raises:
            InvalidEntityAddressError: the text is not an address.
        """
        return Entity(self.asynchronous.entity(address))

    def entities(self, *, topics: Collection[str] | None = None) -> list[EntityCounts]:
        """List all entities with their counts, which are management operations: do not call this often."""
        return run(self.asynchronous.entities, topics=topics)

    def counts(self, addresses: str | EntityAddress | Iterable[str | EntityAddress]) -> list[EntityCounts]:
        """Count the messages of queues and subscriptions, in the given order; a management operation for each."""
        return run(self.asynchronous.counts, addresses)

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
            self.asynchronous.create_queue,
            name,
            lock_duration=lock_duration,
            max_delivery_count=max_delivery_count,
            requires_session=requires_session,
        )

    def create_topic(self, name: str) -> None:
        """Create a topic; :meth:`create_subscription` gives it subscriptions.

        Example:
            >>> namespace.create_topic("events")  # doctest: +SKIP
        """
        run(self.asynchronous.create_topic, name)

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
            >>> namespace.create_subscription("events", "audit")  # doctest: +SKIP
        """
        run(
            self.asynchronous.create_subscription,
            topic,
            name,
            lock_duration=lock_duration,
            max_delivery_count=max_delivery_count,
            requires_session=requires_session,
        )

    def delete_queue(self, name: str) -> None:
        """Delete a queue with all of its messages; ``undo`` cannot restore them."""
        run(self.asynchronous.delete_queue, name)

    def dead_letters(
        self, entities: Iterable[str | EntityAddress] | str | EntityAddress | None = None, *, sample: int = SAMPLE
    ) -> DeadLetters:
        """Look at all dead-letter queues: their counts, oldest and newest messages, growth, and most frequent causes.

        It locks nothing. The counts take a management operation for 100 queues, and one for each topic. The causes are
        those of a sample, the first messages of each queue. The journal of this machine keeps the counts, from which
        the next look tells the growth.

        Example:
            >>> letters = namespace.dead_letters()  # doctest: +SKIP
            >>> [(str(queue.address), queue.count) for queue in letters.above(100)]  # doctest: +SKIP
        """
        return run(self.asynchronous.dead_letters, entities, sample=sample)

    def find(
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
        ``decode`` decodes the bodies before ``where`` sees them, as in :meth:`Entity.peek`.

        Example:
            >>> found = namespace.find(correlation_id="order-4711")  # doctest: +SKIP
            >>> found.timeline()  # doctest: +SKIP
        """
        return run(
            self.asynchronous.find,
            entities,
            message_id=message_id,
            correlation_id=correlation_id,
            where=where,
            max_messages=max_messages,
            depth=depth,
            decode=decode,
            show_progress=show_progress,
        )

    def history(
        self,
        entity: str | EntityAddress | None = None,
        *,
        max_messages: int = MOST_RESUBMITS,
        others: Iterable[Namespace] = (),
    ) -> History:
        """List the resubmits in the journal of this machine, and look up what became of each clone.

        A clone is waiting in its destination, consumed, or back in a dead-letter queue with the reason. Where more than
        a consumer can be the reason that it is gone, its fate is unknown, and the description says why. It only peeks.

        Example:
            >>> history = namespace.history("orders/$dlq")  # doctest: +SKIP
            >>> [(entry.message_id, entry.reason) for entry in history.came_back]  # doctest: +SKIP
        """
        return run(
            self.asynchronous.history, entity, max_messages=max_messages, others=[each.asynchronous for each in others]
        )

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
            >>> namespace.diff("orders/$dlq", 7)  # doctest: +SKIP
            >>> namespace.diff("orders/$dlq", 7, 12, other_entity="orders")  # doctest: +SKIP
        """
        return run(self.asynchronous.diff, entity, one, other, other_entity=other_entity)

    def sql(
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
            show_progress: False for no bar.

        Returns:
            A pandas frame, of at most 256 MB.

        Raises:
            ConfigurationError: the query is wrong, or reads ``messages`` and no entity is given.

        Example:
            >>> namespace.sql(
            ...     "SELECT entity, count(*) AS n FROM messages GROUP BY entity", ["orders", "orders/$dlq"]
            ... )  # doctest: +SKIP
            >>> namespace.sql(
            ...     "SELECT cause, count(*) AS n FROM journal WHERE resubmitted > now() - INTERVAL 7 DAY GROUP BY cause"
            ... )  # doctest: +SKIP
        """
        return run(
            self.asynchronous.sql,
            query,
            entities,
            max_messages=max_messages,
            bodies=bodies,
            show_progress=show_progress,
        )

    def resume(
        self,
        entity: str | EntityAddress | None = None,
        *,
        resend_unknown: bool = False,
        max_wait: float | str | timedelta = 0.0,
        others: Iterable[Namespace] = (),
    ) -> list[Plan]:
        """Plan to finish resubmits that a crash or a lost connection interrupted.

        Args:
            entity: only originals of this one, None for all.
            resend_unknown: send again also what may have arrived and been consumed.
            max_wait: seconds to wait for originals that are still locked, or a duration such as ``"1m"``.
            others: connected namespaces to which clones may have been sent.

        Returns:
            A plan for each entity with originals; none if no resubmit was interrupted.

        Example:
            >>> for plan in namespace.resume():  # doctest: +SKIP
            ...     print(plan)
            ...     plan.apply()
        """
        return [
            Plan(each)
            for each in run(
                self.asynchronous.resume,
                entity,
                resend_unknown=resend_unknown,
                max_wait=max_wait,
                others=[each.asynchronous for each in others],
            )
        ]

    def rehearse(
        self, plan: Plan, consumer: Consumer | None = None, *, timeout: str | float | timedelta = "1m"
    ) -> Rehearsal:
        """Carry a resubmit out on copies of its messages, in an emulator of this process; the namespace stays as it is.

        Args:
            plan: a resubmit within this namespace, of 10,000 messages at most.
            consumer: processes the clones, for real: a function, or a command, which gets the connection string of the
                emulator in SERVICEBUS_CONNECTION_STRING. None to see only what arrives.
            timeout: for how long a command may run, such as ``"1m"``.

        Example:
            >>> namespace.rehearse(plan, my_function).counts  # doctest: +SKIP
            {<RehearsalResult.CONSUMED: 'consumed'>: 2}
        """
        return run(self.asynchronous.rehearse, twin_of(plan), consumer, timeout=timeout)

    def copy_to(
        self,
        target: str,
        entity: str | EntityAddress,
        messages: Choice | None = None,
        *,
        where: str | None = None,
        max_messages: int | None = None,
        mask: str | Iterable[str] = (),
        show_progress: bool = True,
    ) -> NamespaceCopy:
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
            show_progress: False for no bar.

        Returns:
            A namespace with the copies, which you close.

        Raises:
            ConfigurationError: the target or the choice is wrong.
            DecisionError: there are no such messages, or too many; or none has a value at a path of ``mask``.
            azure.core.exceptions.AzureError: the options could not be read; it needs the right Manage.

        Example:
            >>> with namespace.copy_to("emulator", "orders/$dlq") as copy:  # doctest: +SKIP
            ...     copy.entity("orders/$dlq").resubmit(copy.messages).apply()
        """
        return NamespaceCopy(
            run(
                self.asynchronous.copy_to,
                target,
                entity,
                messages,
                where=where,
                max_messages=max_messages,
                mask=mask,
                show_progress=show_progress,
            )
        )

    def snapshot(self, *, sample: int = 0, mask: str | Iterable[str] = (), show_progress: bool = True) -> NamespaceCopy:
        """Copy all entities with their options, rules and counts into a fresh emulator of this process.

        It peeks. ``save`` writes a file, from which ``sbnotebook emulator --from FILE`` starts an emulator. Keys,
        metadata and sizes are left out.

        Args:
            sample: how many messages to copy from each queue, subscription and dead-letter queue; 0 for none.
            mask: values of these to replace, as for ``copy_to``.
            show_progress: False for no bar.

        Returns:
            A namespace with the entities, which you close.

        Raises:
            DecisionError: these are more than 10,000 messages, or none has a value at a path of ``mask``.
            azure.core.exceptions.AzureError: the options could not be read; it needs the right Manage.

        Example:
            >>> with namespace.snapshot(sample=10, mask="$.email") as copy:  # doctest: +SKIP
            ...     copy.save("shop.sbcopy")
        """
        return NamespaceCopy(run(self.asynchronous.snapshot, sample=sample, mask=mask, show_progress=show_progress))

    def compare(self, other: Namespace | Path | str, *, counts: bool = True) -> Comparison:
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
            >>> namespace.compare("shop.sbcopy")  # doctest: +SKIP
            No difference between 127.0.0.1:5672 and the copy in shop.sbcopy.
        """
        return run(self.asynchronous.compare, twin_of(other), counts=counts)

    def unfinished(self, entity: str | EntityAddress | None = None) -> list[ResubmitEntry]:
        """List the resubmits in the journal that have not ended, oldest first: interrupted, or still running.

        Args:
            entity: only originals of this one, None for all.
        """
        return run(self.asynchronous.unfinished, entity)

    def remembered(self) -> Remembered:
        """Return the records of this machine: unfinished resubmits, deferrals, removed messages and notes on causes.

        Shown as a table, with the magic that continues each of them.
        """
        return run(self.asynchronous.remembered)

    def undo(
        self,
        report: Iterable[Outcome] | DataFrame | str | EntityAddress | None = None,
        *,
        entity: str | EntityAddress | None = None,
        since: str | datetime | timedelta | None = None,
        to: str | EntityAddress | None = None,
        include_unknown: bool = False,
        include_resubmitted: bool = False,
        new_ids: bool | None = None,
    ) -> Plan:
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
            >>> namespace.undo(entity="orders/$dlq", since="2h").apply()  # doctest: +SKIP
        """
        return Plan(
            run(
                self.asynchronous.undo,
                report,
                entity=entity,
                since=since,
                to=to,
                include_unknown=include_unknown,
                include_resubmitted=include_resubmitted,
                new_ids=new_ids,
            )
        )

    def plan_settle_frame(
        self, frame: DataFrame, *, entity: str | EntityAddress | None = None, archived: bool = True
    ) -> FramePlan:
        """Plan to settle messages by the rows of a Spark frame: see :meth:`settle_frame`."""
        return run(self.asynchronous.plan_settle_frame, frame, entity=entity, archived=archived)

    def settle_frame(
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
            archived: False to remove messages for good; otherwise ``namespace.undo`` can send them back.
            show_progress: False for no bar.

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
            >>> outcomes = namespace.settle_frame(decided)  # doctest: +SKIP
            >>> outcomes.groupBy("status").count().show()  # doctest: +SKIP
        """
        return run(
            self.asynchronous.settle_frame,
            frame,
            entity=entity,
            max_in_flight=max_in_flight,
            archived=archived,
            show_progress=show_progress,
        )

    def note(self, fingerprint: str, text: str) -> None:
        """Keep a note on a cause of dead letters in the journal of this machine; an empty text removes it.

        Args:
            fingerprint: the cause's: see ``messages.groups()``.
            text: the note, of 2,000 characters at most; it replaces an earlier one.

        Raises:
            ConfigurationError: the note is too long.

        Example:
            >>> cause = namespace.entity("orders/$dlq").peek().groups()[0]  # doctest: +SKIP
            >>> namespace.note(cause.fingerprint, "price list was empty, see INC-4711")  # doctest: +SKIP
        """
        run(self.asynchronous.note, fingerprint, text)

    def notes(self) -> dict[str, str]:
        """Return the notes on causes in this namespace, by fingerprint."""
        return run(self.asynchronous.notes)

    def count_resubmits(self, entity: str | EntityAddress, counts: Mapping[str, int]) -> None:
        """Add to the counts of resubmitted messages in the journal of this machine; panels do so after each resubmit.

        Args:
            entity: that held the messages, such as ``orders/$dlq``.
            counts: how many, by the fingerprint of their cause.
        """
        run(self.asynchronous.count_resubmits, entity, counts)

    def counted_resubmits(self, entity: str | EntityAddress) -> dict[str, Resubmitted]:
        """Return when messages of each cause were last resubmitted in a panel, and how many in all, by fingerprint.

        Args:
            entity: that held the messages, such as ``orders/$dlq``.
        """
        return run(self.asynchronous.counted_resubmits, entity)

    def config(self) -> dict[str, Any]:
        """Return the entities and rules as a ``Config.json``, which Microsoft's emulator and ours read.

        It has no keys, no messages and no metadata. A warning names each option that the file cannot say, and each
        limit of Microsoft's emulator that it exceeds. The limits are 50 queues and topics, 50 subscriptions of a
        topic, 10 deliveries, and messages that live for 1 hour. Rules with SQL parameters are left out.

        Raises:
            azure.core.exceptions.AzureError: the entities could not be read; it needs the right Manage.

        Example:
            >>> Path("Config.json").write_text(json.dumps(namespace.config(), indent=2))  # doctest: +SKIP

        Source: Service Bus documentation, "Overview of the Azure Service Bus emulator", and the schema
        ``ServiceBus-Emulator/Schema/Config-schema.json`` in Azure/azure-service-bus-emulator-installer.
        """
        return run(self.asynchronous.config)

    def close(self) -> None:
        """Close the batches that are still open, which releases what they hold, and all connections."""
        run(self.asynchronous.close)

    def __repr__(self) -> str:
        return self.asynchronous.__repr__()


class NamespaceCopy(Namespace):
    """A copy of messages and of the entities that hold them, in an emulator of this process: a namespace of its own.

    Work in it as in any namespace. Its journal and its archive are its own. Closing it removes all of it.
    ``namespace.copy_to(…)`` makes it.
    """

    asynchronous: AsyncNamespaceCopy  # pyright: ignore[reportIncompatibleVariableOverride]

    @property
    def messages(self) -> Messages:
        """Return the copied messages as they were at first."""
        return self.asynchronous.messages

    @property
    def unreadable(self) -> dict[int, str]:
        """Return the sequence numbers of chosen messages that could not be read, nor copied, with the reason."""
        return self.asynchronous.unreadable

    @property
    def masked(self) -> dict[str, int]:
        """Return in how many messages each masked path had a value."""
        return self.asynchronous.masked

    @property
    def masked_whole(self) -> int:
        """Return the number of bodies that were masked as a whole, because they are not JSON."""
        return self.asynchronous.masked_whole

    def save(self, path: Path | str, *, overwrite: bool = False) -> Path:
        """Write the messages as they were copied, and the entities, to one file that only its owner can read.

        :func:`sbnotebook.read_copy` reads it, also on another machine. It has the messages without loss, with their
        masks, and no keys.

        Args:
            path: the file, which ends in ``.sbcopy``.
            overwrite: True to replace an existing file.

        Returns:
            The path of the file.

        Raises:
            ConfigurationError: the file has another ending, it exists, or there is no such folder.

        Example:
            >>> with namespace.copy_to("emulator", "orders/$dlq", mask="$.email") as copy:  # doctest: +SKIP
            ...     copy.save("orders.sbcopy")
        """
        return run(self.asynchronous.save, path, overwrite=overwrite)

    @property
    def summary(self) -> str:
        """Return the number of messages and masked values, in sentences."""
        return self.asynchronous.summary


def connect(
    target: str | Hidden | None = None,
    *,
    credential: Any = None,
    archive: Archive | bool | None = True,
    write: bool | None = None,
    allow_remote: bool = False,
) -> Namespace:
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
        >>> namespace = connect("emulator")  # doctest: +SKIP
        >>> namespace.entity("orders/$dlq").peek(10)  # doctest: +SKIP
    """
    target = hidden(target)
    return Namespace(
        run(
            AsyncNamespace.connect,
            target,
            credential=credential,
            archive=archive,
            write=write,
            allow_remote=allow_remote,
        )
    )


def read_copy(path: Path | str) -> NamespaceCopy:
    """Read a copy that :meth:`NamespaceCopy.save` wrote into a fresh emulator of this process. It needs no namespace.

    Args:
        path: the file, which may come from a stranger: its size is limited, and nothing in it is evaluated.

    Returns:
        A namespace with the copies, which you close.

    Raises:
        ConfigurationError: the file cannot be read, or is not a copy.

    Example:
        >>> with read_copy("orders.sbcopy") as copy:  # doctest: +SKIP
        ...     copy.messages.groups()
    """
    return NamespaceCopy(run(AsyncNamespaceCopy.read, path))
