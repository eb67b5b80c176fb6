"""Queues, topics and subscriptions: messages that come to one are checked, numbered and dated, or copied by rules."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from zlib import crc32

from sbnotebook.emulator.entities.box import BOXES_PER_ENTITY, Box, ReceivingEntity
from sbnotebook.emulator.entities.message import (
    BrokeredMessage,
    BrokeredState,
    DeadLetterReason,
    SentMessage,
    read_sent,
    with_message_id,
)
from sbnotebook.emulator.entities.message_log import PARTITION_SHIFT, PARTITIONS
from sbnotebook.emulator.entities.options import (
    MAX_HEADER_SIZE,
    MAX_HOPS,
    MAX_ID_LENGTH,
    MAX_PROPERTY_SIZE,
    DestinationOptions,
    EntityStatus,
    QueueOptions,
    SubscriptionOptions,
    TopicOptions,
)
from sbnotebook.emulator.entities.refusals import Condition, RefusedError
from sbnotebook.emulator.entities.rules.rule import Rule
from sbnotebook.emulator.entities.rules.subject import FilterError, RuleSubject
from sbnotebook.errors import AmqpDecodeError

if TYPE_CHECKING:
    from sbnotebook.emulator.entities.registry import Registry

_TRANSFER_FAILURES: Final[dict[Condition | None, str]] = {
    Condition.ENTITY_DISABLED: "MessagingEntityDisabled",
    Condition.RESOURCE_LIMIT_EXCEEDED: "QuotaExceeded",
    Condition.MESSAGE_SIZE_EXCEEDED: "MessageSizeExceeded",
    Condition.NOT_ALLOWED: "Session ID is null.",
}
"""Dead-letter reasons of messages that could not be forwarded; any other refusal is "ForwardingFailed"."""


Forwarded = tuple[int, str | None, int]
"""A forwarded message keeps its first number, the entity that dead-lettered it, and the count of its forwards."""


class Destination(Box):
    """A queue or topic: it checks, numbers and dates the messages that are sent to it.

    Sources: Service Bus documentation, "Duplicate detection", "Message expiration", "Message sequencing
    and timestamps", "Service Bus quotas".
    """

    options: QueueOptions | TopicOptions

    def __init__(self, context: Registry, box: int, path: str, *, now: int) -> None:
        super().__init__(context, box, path, now=now)
        # Until when each id is a duplicate, the oldest first. Not a dict: its first item is slow to find when many
        # before it were removed.
        self.seen: OrderedDict[str, int] = OrderedDict()

    def check(self, messages: Sequence[SentMessage]) -> None:
        options, path = self.options, self.path
        if options.status is not EntityStatus.ACTIVE and not options.status.can_send:
            text = f"Messaging entity '{path}' is currently disabled for sending."
            raise RefusedError(Condition.ENTITY_DISABLED, text)
        # A batch comes in whole or not at all, so its size counts as a whole.
        if self.total_size + sum([len(message.payload) for message in messages]) > options.max_size_mb * 1_048_576:
            text = f"The entity '{path}' has reached its maximum size of {options.max_size_mb} MB."
            raise RefusedError(Condition.RESOURCE_LIMIT_EXCEEDED, text)
        limit = self.context.tier.quotas.message_size(options.max_message_size_kb)
        for message in messages:
            self._check(message, options, limit)

    def check_batch(self, messages: Sequence[SentMessage]) -> None:
        """Check that messages may come in one batch: those for a partitioned entity have one key.

        Source: amqpnetlite issue 120 and azure-sdk-for-python issue 21955, with these texts.
        """
        options = self.options
        if options.enable_partitioning and len({self._key(message) for message in messages}) > 1:
            keys, detection = "SessionId or PartitionKey", ""
            if options.requires_duplicate_detection:
                keys, detection = "SessionId, PartitionKey, or MessageId ", " and duplicate detection"
            text = f"Batching brokered messages with distinct {keys} is not supported for an entity with partitioning"
            raise RefusedError(Condition.NOT_ALLOWED, f"{text}{detection} enabled.")

    def next_number(self, sent: SentMessage) -> int:
        if not self.options.enable_partitioning:
            return self._next_number()
        partition = self.keyed_partition(sent)
        return self._next_number(
            self.last_sequence_number if partition is None else partition
        )  # in turns without a key

    def send(self, sent: SentMessage, now: int, number: int | None = None, forwarded: Forwarded | None = None) -> int:
        """Take a checked message in, unless it is a duplicate, and return its sequence number."""
        self.accessed_time = now
        # Number and date the message.
        number = self.next_number(sent) if number is None else number
        when = sent.scheduled_time
        # The time that a rule's action set counts where the message is forwarded to (Service Bus documentation, "Topic
        # filters and actions"). Nothing is known about forwarded dead letters, which the emulator does not delay.
        if when is not None and (when <= now or (forwarded is not None and forwarded[1] is not None)):
            when = None
        life = self._time_to_live(sent)
        # The record that the broker keeps of it.
        payload = with_message_id(sent)
        message = BrokeredMessage(
            sequence_number=number,
            enqueued_sequence_number=number,
            enqueued_time=now,
            payload=payload,
            size=len(payload),
            state=BrokeredState.ACTIVE if when is None else BrokeredState.SCHEDULED,
            scheduled_time=when,
            expires_at=None if life is None else (now if when is None else when) + life,
            session_id=sent.session_id if getattr(self.options, "requires_session", True) else None,
        )
        if forwarded is not None:
            message.enqueued_sequence_number, message.dead_letter_source, message.hops = forwarded
        # A duplicate gets a number, too, but does not stay.
        if not (self.options.requires_duplicate_detection and self._is_duplicate(sent, now)):
            self.put(message, now)
        return number

    def take_forwarded(
        self, message: BrokeredMessage, now: int, dead_letter_source: str | None
    ) -> DeadLetterReason | None:
        """Take in a copy of a message that another entity forwards.

        Source: Service Bus documentation, "Chaining Service Bus entities with autoforwarding".
        """
        if message.hops >= MAX_HOPS:
            text = f"The maximum number of allowed hops when forwarding between entities is {MAX_HOPS}."
            return DeadLetterReason("MaxTransferHopCountExceeded", text)
        # The target checks it like any message that is sent to it.
        try:
            sent = read_sent(message.payload or b"")
            self.check([sent])
        except (AmqpDecodeError, RefusedError) as error:
            reason = _TRANSFER_FAILURES.get(getattr(error, "condition", None), "ForwardingFailed")
            return DeadLetterReason(reason, str(error))
        self.send(sent, now, forwarded=(message.enqueued_sequence_number, dead_letter_source, message.hops + 1))
        return None

    def transfer(self, sent: SentMessage, target: str, now: int) -> None:
        """Number a message here and send it on to another entity, for which it came here in a transaction.

        Source: Service Bus documentation, "Overview of Service Bus transaction processing", "Transfers and send via".
        """
        number = self.next_number(sent)
        payload = with_message_id(sent)
        message = BrokeredMessage(number, number, now, payload, len(payload))
        failure = self.context.forward(message, target, now, None)
        # A topic has no place for a message that could not be sent on.
        if failure is not None and isinstance(self, Queue):
            self.put_dead(message, failure, now, self.transfer_dead_letter)

    def find_scheduled(self, sequence_number: int) -> BrokeredMessage | None:
        message = self.log.get(sequence_number)
        return message if message is not None and message.state is BrokeredState.SCHEDULED else None

    def cancel_scheduled(self, sequence_numbers: Iterable[int]) -> None:
        for message in filter(None, map(self.find_scheduled, sequence_numbers)):
            self._remove(message)

    def keyed_partition(self, sent: SentMessage) -> int | None:
        key = self._key(sent)
        return None if key is None else crc32(key.encode()) % PARTITIONS

    def _check(self, message: SentMessage, options: DestinationOptions, limit: int) -> None:
        if len(message.payload) > limit:
            text = f"The message has {len(message.payload)} bytes, the limit of '{self.path}' is {limit}."
            raise RefusedError(Condition.MESSAGE_SIZE_EXCEEDED, text)
        if message.header_size > MAX_HEADER_SIZE or message.property_size > MAX_PROPERTY_SIZE:
            raise RefusedError(Condition.MESSAGE_SIZE_EXCEEDED, message.excess or "")
        needs_session = isinstance(options, QueueOptions) and options.requires_session
        if needs_session and message.session_id is None:
            raise RefusedError(
                Condition.NOT_ALLOWED,
                "The SessionId was not set on a message, and it cannot be sent to the entity. Entities that have "
                "session support enabled can only receive messages that have the SessionId set to a valid value.",
            )
        # Also finds out that they can be read, where that is asked for later on.
        is_read = (
            options.requires_duplicate_detection or options.enable_partitioning or isinstance(options, TopicOptions)
        )
        if not (needs_session or is_read):
            return
        for name, value in (("SessionId", message.session_id), ("MessageId", message.message_id)):
            if value is not None and len(value) > MAX_ID_LENGTH:
                text = f"The {name} of a message has at most {MAX_ID_LENGTH} characters."
                raise RefusedError(Condition.ARGUMENT_ERROR, text)

    def _time_to_live(self, sent: SentMessage) -> int | None:
        life = sent.time_to_live
        for limit in (self.options.default_time_to_live, self.context.tier.quotas.max_time_to_live):
            if limit is not None and (life is None or limit < life):
                life = limit
        return life

    def _is_duplicate(self, sent: SentMessage, now: int) -> bool:
        key = sent.message_id
        if key is None:
            return False
        if self.options.enable_partitioning:
            key = f"{sent.session_id or sent.partition_key or ''}\n{key}"
        # Forget the ids whose window has ended, the oldest first.
        while self.seen and next(iter(self.seen.values())) <= now:
            self.seen.popitem(last=False)
        if self.seen.get(key, 0) > now:
            return True
        # Remember a new id, as the newest.
        until = now + self.options.duplicate_detection_window
        self.seen.pop(key, None)
        self.seen[key] = until
        self.context.changes.seen.append((self.entity_id, key, until))
        self.context.changes.seen_at = now
        return False

    def _key(self, sent: SentMessage) -> str | None:
        key = sent.session_id or sent.partition_key
        if key is None and self.options.requires_duplicate_detection:
            key = sent.message_id
        return key


class Queue(ReceivingEntity, Destination):
    """A queue with its sub-queues.

    A message keeps its sequence number and its enqueued time when it is dead-lettered. A scheduled
    one gets a new number when it becomes active.

    Source: Service Bus documentation, "Message sequencing and timestamps".
    """

    kind = "queue"
    options: QueueOptions  # pyright: ignore[reportIncompatibleVariableOverride]


class Subscription(ReceivingEntity):
    """A subscription: gets a copy of each message of its topic that one of its rules matches.

    Source: Service Bus documentation, "Topic filters and actions".
    """

    kind = "subscription"
    options: SubscriptionOptions

    def __init__(
        self,
        entity_id: int,
        topic: Topic,
        name: str,
        options: SubscriptionOptions,
        rules: Sequence[Rule],
        now: int,
    ) -> None:
        super().__init__(topic.context, entity_id, f"{topic.path}/Subscriptions/{name}", options, now)
        self.topic = topic
        self.name = name
        self.rules_by_name = {rule.name.casefold(): rule for rule in rules}  # in lower case

    @property
    def is_partitioned(self) -> bool:
        return self.topic.options.enable_partitioning

    @property
    def rules(self) -> list[Rule]:
        return [rule for _, rule in sorted(self.rules_by_name.items())]

    def find_rule(self, name: str) -> Rule | None:
        return self.rules_by_name.get(name.casefold())

    def take_in(self, message: BrokeredMessage, now: int) -> None:
        """Keep the copies of a message that the rules ask for.

        One if any rule without an action matches, and one more for each rule with an action that does.
        """
        payload = message.payload or b""
        subject = RuleSubject(payload, enqueued_time=now, sequence_number=message.sequence_number)
        try:
            payloads = list(self._copies(subject))
        except FilterError as error:
            if self.options.dead_letter_on_filter_errors:
                why = DeadLetterReason("FilterException", f"A rule of the subscription cannot be evaluated: {error}")
                self.put_dead(self._copy(message, payload, now), why, now)
            return
        for each in payloads:
            copy = self._copy(message, each, now)
            # An action may have changed the session, or made the properties too large.
            changed = None if each is payload else read_sent(each)
            if changed is not None and self.options.requires_session:
                copy.session_id = changed.session_id
            if changed is not None and changed.excess is not None:
                self.put_dead(copy, _HEADER_TOO_LARGE, now)
            else:
                self.put(copy, now)

    def _copies(self, subject: RuleSubject) -> Iterator[bytes]:
        matching = [rule for rule in self.rules_by_name.values() if rule.filter.matches(subject)]
        if any(rule.action is None for rule in matching):
            yield subject.payload
        for rule in matching:
            if rule.action is not None:
                yield rule.copy(subject)

    def _copy(self, message: BrokeredMessage, payload: bytes, now: int) -> BrokeredMessage:
        life, expires_at = self.options.default_time_to_live, message.expires_at
        if life is not None:
            expires_at = now + life if expires_at is None else min(expires_at, now + life)
        return replace(
            message,
            sequence_number=self._next_number(message.sequence_number >> PARTITION_SHIFT),
            payload=payload,
            size=len(payload),
            expires_at=expires_at,
            session_id=message.session_id if self.options.requires_session else None,
        )


class Topic(Destination):
    """A topic: it keeps scheduled messages until they become active, and hands on all others.

    Source: Service Bus documentation, "Service Bus queues, topics, and subscriptions".
    """

    kind = "topic"

    def __init__(self, context: Registry, entity_id: int, name: str, options: TopicOptions, now: int) -> None:
        super().__init__(context, entity_id * BOXES_PER_ENTITY, name, now=now)
        self.options = options
        self.subscriptions_by_name: dict[str, Subscription] = {}  # in lower case

    @property
    def subscriptions(self) -> list[Subscription]:
        return [subscription for _, subscription in sorted(self.subscriptions_by_name.items())]

    def find_subscription(self, name: str) -> Subscription | None:
        return self.subscriptions_by_name.get(name.casefold())

    @property
    def total_size(self) -> int:
        return super().total_size + sum(subscription.total_size for subscription in self.subscriptions_by_name.values())

    def put(self, message: BrokeredMessage, now: int) -> None:
        if message.state is BrokeredState.SCHEDULED:
            super().put(message, now)
        else:
            for subscription in self.subscriptions_by_name.values():
                subscription.take_in(message, now)


_HEADER_TOO_LARGE = DeadLetterReason(
    "HeaderSizeExceeded",
    "The size quota for this stream has been exceeded: a rule's action made the properties too large.",
)
