"""A topic and its subscriptions: a message that is sent to the topic is copied to those whose rules match."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from sbnotebook.emulator.entities.box import BOXES_PER_ENTITY, ReceivingEntity
from sbnotebook.emulator.entities.message import (
    BrokeredMessage,
    BrokeredState,
    DeadLetterReason,
    read_sent,
)
from sbnotebook.emulator.entities.options import SubscriptionOptions, TopicOptions
from sbnotebook.emulator.entities.partitions import PARTITION_SHIFT
from sbnotebook.emulator.entities.queue import Destination
from sbnotebook.emulator.entities.rules.operands import FilterError
from sbnotebook.emulator.entities.rules.rule import Rule
from sbnotebook.emulator.entities.rules.subject import RuleSubject

if TYPE_CHECKING:
    from sbnotebook.emulator.entities.registry import Registry


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
        # An action may have changed the session, or made the properties too large.
        for each in payloads:
            copy = self._copy(message, each, now)
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
        """Hand on a message that is active; keep one that is scheduled."""
        if message.state is BrokeredState.SCHEDULED:
            super().put(message, now)
            return
        for subscription in self.subscriptions_by_name.values():
            subscription.take_in(message, now)


_HEADER_TOO_LARGE = DeadLetterReason(
    "HeaderSizeExceeded",
    "The size quota for this stream has been exceeded: a rule's action made the properties too large.",
)
