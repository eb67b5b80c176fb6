"""All entities of a namespace, the times at which they have work to do, and the snapshot that they are restored from.

A snapshot holds summaries only; messages are read when they are asked for.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from heapq import heapify, heappop, heappush
from typing import Any, Final, NamedTuple, cast

from sbnotebook.emulator.entities.box import Box, Receivable, ReceivingEntity, earliest
from sbnotebook.emulator.entities.json_form import stored, stored_options, stored_rules
from sbnotebook.emulator.entities.message import BrokeredMessage, DeadLetterReason
from sbnotebook.emulator.entities.message_log import PARTITIONS, Residency
from sbnotebook.emulator.entities.options import (
    MAX_SIZE_MB,
    Options,
    QueueOptions,
    SubscriptionOptions,
    Tier,
    TopicOptions,
    forwarding_of,
    forwarding_target,
    options_of,
)
from sbnotebook.emulator.entities.queue import Queue, Subscription, Topic
from sbnotebook.emulator.entities.refusals import Condition, RefusedError
from sbnotebook.emulator.entities.rules.rule import DEFAULT_RULE, TRUE_FILTER, Rule
from sbnotebook.errors import ConfigurationError, EmulatorError, InvalidEntityAddressError
from sbnotebook.model.address import EntityAddress, SubQueue

_MAX_COPIES: Final = 10_000  # Copies of forwarded messages in one turn, which then takes about half a second

AnyEntity = Queue | Topic | Subscription


_Key = tuple[int, int]  # Box and sequence number


class Changes:
    """The changes of one turn that a store has to keep; locks are not kept.

    A message is in a box: each queue, subscription and sub-queue is one, and so is the schedule of a topic. A message
    that goes from one box to another is removed from the one and added to the other, in one turn.
    """

    def __init__(self) -> None:
        # In order: the number of an entity, and the rest of its row; None for one that was deleted.
        self.entities: list[tuple[int, tuple[str, str, dict[str, Any], int, int, int] | None]] = []
        self.added: dict[_Key, BrokeredMessage] = {}
        self.updated: dict[_Key, BrokeredMessage] = {}
        self.removed: set[_Key] = set()
        self.last: dict[int, int] = {}  # by entity: the last sequence number that it gave out, without the partition
        self.sessions: dict[tuple[int, str], tuple[bytes | None, int]] = {}  # the state and its time, by box and id
        self.seen: list[tuple[int, str, int]] = []  # an entity, a message id, and until when it is a duplicate (ms)
        self.seen_at = 0  # when the last of them came in, ms

    def __bool__(self) -> bool:
        return any(vars(self).values())

    def add(self, box: int, message: BrokeredMessage) -> None:
        self.added[box, message.sequence_number] = message

    def update(self, box: int, message: BrokeredMessage) -> None:
        key = box, message.sequence_number
        (self.added if key in self.added else self.updated)[key] = message

    def remove(self, box: int, number: int) -> None:
        key = box, number
        if self.added.pop(key, None) is None:
            self.updated.pop(key, None)
            self.removed.add(key)


class Registry:
    """The queues, topics and subscriptions of a namespace by name; upper and lower case are the same."""

    def __init__(self, tier: Tier = Tier.PREMIUM) -> None:
        self.tier = tier
        self.changes = Changes()  # of this turn
        self.residency = Residency()
        self.is_in_use: Callable[[AnyEntity], bool] = lambda _: False
        self.on_idle: Callable[[AnyEntity], object] = lambda _: None  # called when an entity is to be deleted
        # Where a message comes again that was given back, by entity path: front, place or back.
        self.order_after_release: Callable[[str], str] = lambda _: "place"
        self._entities: dict[str, Queue | Topic] = {}
        self._next_id = 1
        self._alarms: list[tuple[int, int, Box]] = []  # a heap of times and boxes, with some that are outdated
        self._copies = 0  # of forwarded messages, in this turn
        self._waiting: deque[tuple[ReceivingEntity, int]] = deque()

    # ------------------------------------------------------------------------------------- finding

    @property
    def entities(self) -> list[Queue | Topic]:
        return [entity for _, entity in sorted(self._entities.items())]

    @property
    def queues(self) -> list[Queue]:
        return [entity for entity in self.entities if isinstance(entity, Queue)]

    @property
    def topics(self) -> list[Topic]:
        return [entity for entity in self.entities if isinstance(entity, Topic)]

    def find_topic(self, name: str) -> Topic | None:
        entity = self._entities.get(name.casefold())
        return entity if isinstance(entity, Topic) else None

    def find(self, path: str) -> AnyEntity | Receivable | None:
        # Most paths are the name of a queue or topic: no need to parse them.
        known = self._entities.get(path.casefold())
        if known is not None:
            return known
        with suppress(InvalidEntityAddressError):
            address = EntityAddress.parse(path)
            entity: AnyEntity | None = self._entities.get(address.name.casefold())
            if address.subscription is not None:
                entity = entity.find_subscription(address.subscription) if isinstance(entity, Topic) else None
            if address.sub_queue is None:
                return entity
            if isinstance(entity, ReceivingEntity):
                return entity.dead_letter if address.sub_queue is SubQueue.DEAD_LETTER else entity.transfer_dead_letter
        return None

    # -------------------------------------------------------------------- making, changing, removing

    def create_queue(self, name: str, options: QueueOptions | None = None, *, now: int = 0) -> Queue:
        return cast("Queue", self.create(name, options or QueueOptions(), now=now))

    def create_topic(self, name: str, options: TopicOptions | None = None, *, now: int = 0) -> Topic:
        return cast("Topic", self.create(name, options or TopicOptions(), now=now))

    def create(self, name: str, options: QueueOptions | TopicOptions, *, now: int = 0) -> Queue | Topic:
        """Create the queue or topic of these options. Each of its partitions takes in the size that is asked for.

        Source: azure-sdk-for-python, recordings of test_async_mgmt_queue_create_with_queue_description.
        """
        if options.enable_partitioning:
            options = replace(options, max_size_mb=min(options.max_size_mb * PARTITIONS, MAX_SIZE_MB))
        self._check_tier(options)
        name = self._new_name(name)
        made = (
            Topic(self, self._next_id, name, options, now)
            if isinstance(options, TopicOptions)
            else Queue(self, self._next_id, name, options, now)
        )
        self.add(made)
        self._save(made, now)
        return made

    def create_subscription(
        self,
        topic: Topic,
        name: str,
        options: SubscriptionOptions | None = None,
        *,
        now: int = 0,
        rules: Sequence[Rule] | None = None,
    ) -> Subscription:
        options = _lasting(options or SubscriptionOptions())
        if EntityAddress.parse(f"{topic.path}/subscriptions/{name}").subscription != name:
            raise InvalidEntityAddressError(f"{name[:80]!r} cannot be the name of a subscription.")
        if topic.find_subscription(name) is not None:
            raise RefusedError(
                Condition.ENTITY_ALREADY_EXISTS,
                f"There is already a subscription {name!r} of the topic {topic.path!r}.",
            )
        limit = self.tier.quotas.max_subscriptions
        if len(topic.subscriptions) >= limit:
            raise RefusedError(Condition.RESOURCE_LIMIT_EXCEEDED, f"A topic has at most {limit} subscriptions.")
        if rules is None:
            rules = [Rule(DEFAULT_RULE, TRUE_FILTER, created_time=now)]
        subscription = Subscription(self._next_id, topic, name, options, rules, now)
        self.add(subscription)
        self._save(subscription, now)
        return subscription

    def update(self, entity: AnyEntity, options: Options, *, now: int = 0) -> None:
        """Set the options of an entity; as in Service Bus, locks that are held are lost."""
        if isinstance(options, SubscriptionOptions):
            options = _lasting(options)
        self._check_tier(options)
        for name, option in options_of(type(options)).items():
            if option.is_fixed and vars(options)[option.attribute] != vars(entity.options)[option.attribute]:
                # In the words of Service Bus: azure-sdk-for-python, recordings of test_async_mgmt_queue_update_invalid.
                text = f"The value for the {name} property of an existing {entity.kind.title()} cannot be changed."
                raise ConfigurationError(f"SubCode=40000. {text} Delete {entity.path!r} and make it anew.")
        entity.drop_locks(now)
        entity.options = options  # type: ignore[assignment]  # pyright: ignore[reportAttributeAccessIssue]
        self._save(entity, now)
        entity.start_forwarding(now)

    def check_targets(self, *options: Options) -> None:
        """Check the queues and topics to which entities with these options forward.

        Sources: Service Bus documentation, "Chaining Service Bus entities with autoforwarding"; azure-service-bus issue
        203, with this text, and issues 317 and 660. An entity with sessions may forward its dead letters
        (ServiceBusExplorer issue 384), and be created to forward to a topic (azure-sdk-for-python,
        test_mgmt_queue_create_with_queue_description). No source says whether Azure then forwards its messages; the
        emulator does.
        """
        for each in options:
            for option, address in forwarding_of(each).items():
                target = forwarding_target(address)
                destination = self._entities.get(target.casefold())
                if destination is None:
                    text = f"SubCode=40400. The auto forwarding destination entity does not exist: '{target}'."
                    raise RefusedError(Condition.NOT_ALLOWED, text)
                to_queue = option == "forward_to" and isinstance(destination, Queue)
                if to_queue and getattr(each, "requires_session", False):
                    text = "SubCode=40000. Bad Request. An entity with sessions cannot forward to a queue."
                    raise RefusedError(Condition.NOT_ALLOWED, text)

    def put_rule(self, subscription: Subscription, rule: Rule, *, now: int = 0) -> None:
        subscription.rules_by_name[rule.name.casefold()] = rule
        self._save(subscription, now)

    def remove_rule(self, subscription: Subscription, name: str, *, now: int = 0) -> None:
        del subscription.rules_by_name[name.casefold()]
        self._save(subscription, now)

    def delete(self, *entities: AnyEntity) -> None:
        for entity in entities:
            self._delete(entity)
        # The alarms go, too: the next one may be years away.
        self._alarms = [alarm for alarm in self._alarms if not alarm[2].is_deleted]
        heapify(self._alarms)

    # ------------------------------------------------------------------------------------------ time

    def wake(self, sleeper: Box, when: int) -> None:
        """Call ``sleeper.expire`` at a moment (ms), or earlier."""
        if sleeper.alarm is None or when < sleeper.alarm:
            sleeper.alarm = when
            heappush(self._alarms, (when, sleeper.box, sleeper))

    def expire(self, now: int) -> None:
        """Do all that is due: end locks, activate scheduled messages, remove expired ones and idle entities."""
        while self._alarms and self._alarms[0][0] <= now:
            when, _, sleeper = heappop(self._alarms)
            if sleeper.alarm != when or sleeper.is_deleted:
                continue
            sleeper.alarm = None
            sleeper.expire(now)
            self.watch(sleeper, now)

    @property
    def next_deadline(self) -> int | None:
        """Return when ``expire`` has work to do next, or may have, in ms; None if never."""
        return self._alarms[0][0] if self._alarms else None

    def may_forward(self, box: ReceivingEntity, message: BrokeredMessage) -> bool:
        """Tell whether a message may be forwarded now; if not, ``continue_forwarding`` does it.

        So one message cannot keep all clients waiting: if each of n subscriptions forwards to its own topic, the limit
        of hops allows n to the power of five copies.
        """
        if self._copies < _MAX_COPIES and not self._waiting:
            return True
        self._waiting.append((box, message.sequence_number))
        return False

    def continue_forwarding(self, now: int) -> bool:
        """Forward some of the messages that had to wait, at every turn; return whether more of them wait."""
        self._copies = 0
        while self._waiting and self._copies < _MAX_COPIES:
            box, number = self._waiting.popleft()
            box.forward_waiting(number, now)
            self._copies += 1
        return bool(self._waiting)

    def forward(
        self, message: BrokeredMessage, target: str, now: int, dead_letter_source: str | None
    ) -> DeadLetterReason | None:
        name = forwarding_target(target)
        destination = self._entities.get(name.casefold())
        if destination is None:
            return DeadLetterReason("MessagingEntityNotFound", f"The entity '{name}' to forward to could not be found.")
        self._copies += len(destination.subscriptions) if isinstance(destination, Topic) else 1
        return destination.take_forwarded(message, now, dead_letter_source)

    def add(self, entity: AnyEntity) -> None:
        if isinstance(entity, Subscription):
            entity.topic.subscriptions_by_name[entity.name.casefold()] = entity
        else:
            self._entities[entity.path.casefold()] = entity
        self._next_id = max(self._next_id, entity.entity_id + 1)

    def _delete(self, entity: AnyEntity) -> None:
        if isinstance(entity, Subscription):
            del entity.topic.subscriptions_by_name[entity.name.casefold()]
        else:
            del self._entities[entity.path.casefold()]
        if isinstance(entity, Topic):
            for subscription in entity.subscriptions:
                self._delete(subscription)
        for box in entity.boxes:
            box.is_deleted = True
            box.log.close()
        self.changes.entities.append((entity.entity_id, None))

    def _new_name(self, name: str) -> str:
        address = EntityAddress.parse(name)
        # The path of a topic's list of subscriptions cannot be that of an entity.
        if address.subscription or address.sub_queue or address.name.casefold().endswith("/subscriptions"):
            raise InvalidEntityAddressError(f"{name[:80]!r} cannot be the name of a queue or topic.")
        if address.name.casefold() in self._entities:
            raise RefusedError(Condition.ENTITY_ALREADY_EXISTS, f"There is already an entity {address.name!r}.")
        limit = self.tier.quotas.max_entities
        if len(self._entities) >= limit:
            raise RefusedError(
                Condition.RESOURCE_LIMIT_EXCEEDED, f"The namespace has at most {limit} queues and topics."
            )
        return address.name

    def _check_tier(self, options: Options) -> None:
        """Check what Service Bus does not have in this tier.

        Source: Service Bus documentation, "Service Bus Premium and Standard messaging tiers".
        """
        if self.tier is Tier.PREMIUM and getattr(options, "enable_express", False):
            raise RefusedError(Condition.NOT_ALLOWED, "Express entities aren't supported in the tier Premium.")
        if self.tier is not Tier.BASIC:
            return
        needed = ("requires_session", "requires_duplicate_detection", "forward_to", "forward_dead_letters_to")
        asked = [name for name in needed if getattr(options, name, None)]
        if asked or isinstance(options, TopicOptions | SubscriptionOptions):
            what = ", ".join(asked) or "topics"
            raise RefusedError(Condition.NOT_ALLOWED, f"The tier {self.tier.value} does not have {what}.")

    def _save(self, entity: AnyEntity, now: int) -> None:
        entity.updated_time = now
        description = stored(entity.options, entity.rules if isinstance(entity, Subscription) else ())
        row = entity.kind, entity.path, description, entity.created_time, entity.updated_time
        self.changes.entities.append((entity.entity_id, (*row, entity.last_sequence_number)))
        self.watch(entity, now)

    def watch(self, sleeper: Box, now: int) -> None:
        """Wake up when a box has work to do next, or may be idle."""
        deadline = earliest(sleeper.next_deadline, self._idle_end(sleeper, now))
        if deadline is not None and not sleeper.is_deleted:
            self.wake(sleeper, deadline)

    def _idle_end(self, sleeper: Box, now: int) -> int | None:
        # An entity that forwards is never idle: Service Bus documentation, "Chaining Service Bus entities with
        # autoforwarding"; azure-service-bus issue 5.
        if not isinstance(sleeper, AnyEntity) or forwarding_of(sleeper.options):
            return None
        idle = sleeper.options.auto_delete_on_idle
        if idle is None:
            return None
        # The topic gets the same changes as its subscriptions.
        used = [sleeper, *sleeper.subscriptions] if isinstance(sleeper, Topic) else [sleeper]
        for entity in used:
            if self.is_in_use(entity):
                entity.accessed_time = now
        # An entity with scheduled messages is not idle: Service Bus documentation, "Message expiration", "Idleness".
        if any(entity.scheduled_count for entity in used):
            return now + idle
        end = max(max(each.updated_time, each.accessed_time or each.created_time) for each in used) + idle
        if end > now:
            return end
        self.on_idle(sleeper)
        return None


def _lasting(options: SubscriptionOptions) -> SubscriptionOptions:
    """Return options in which a subscription that forwards is never deleted for idleness. A queue keeps its time.

    Source: azure-sdk-for-python, recordings of test_async_mgmt_subscription_update_success and
    test_async_mgmt_queue_update_success.
    """
    return replace(options, auto_delete_on_idle=None) if forwarding_of(options) else options


_Rows = list[tuple[Any, ...]]


class Snapshot(NamedTuple):
    entities: _Rows  # number, kind, path, what ``stored`` returned, creation, update, last sequence number given out
    # Box, shelf, messages, bytes of their payloads, active ones, when the first is due, deferred and scheduled ones
    shelves: _Rows
    sessions: _Rows  # box, id, state and its time
    seen: _Rows  # entity, message id and its end, by end


def restore(registry: Registry, snapshot: Snapshot, storage: Any, *, now: int) -> None:
    """Restore an empty registry from a snapshot; locks are not kept."""
    registry.residency.storage = storage
    entities: dict[int, AnyEntity] = {}
    for entity_id, kind, path, description, created_time, updated_time, last_number in snapshot.entities:
        entity = entities[entity_id] = _entity(registry, entity_id, kind, path, description, created_time)
        # The store does not keep when an entity was used: an idle one gets its time again.
        entity.updated_time, entity.accessed_time = updated_time, now
        entity.last_sequence_number = last_number
        registry.add(entity)
    _fill(entities, snapshot)
    for entity in entities.values():
        registry.watch(entity, now)
        if entity.sessions is not None:
            # The waiting receivers of each session are needed at once.
            entity.sessions.restore(entity.log.walk())
    # Messages that still had to be forwarded.
    for entity in entities.values():
        entity.start_forwarding(now)


def _fill(entities: Mapping[int, AnyEntity], snapshot: Snapshot) -> None:
    """Restore the contents of the boxes; the store may still have those of deleted entities."""
    boxes = {box.box: box for entity in entities.values() for box in entity.boxes}
    for number, *shelf, deferred, scheduled in snapshot.shelves:
        box = boxes.get(number)
        if box is not None:
            box.log.restore(*shelf)
            box.deferred_count += deferred
            box.scheduled_count += scheduled
    for number, session_id, state, updated_time in snapshot.sessions:
        entity = boxes.get(number)
        if isinstance(entity, ReceivingEntity) and entity.sessions is not None:
            entity.restore_session_state(entity.sessions[session_id], state, updated_time)
    for entity_id, message_id, until in snapshot.seen:
        entity = entities.get(entity_id)
        if isinstance(entity, Queue | Topic):
            entity.seen[message_id] = until


def _entity(
    registry: Registry, entity_id: int, kind: str, path: str, description: dict[str, Any], created_time: int
) -> AnyEntity:
    if kind == "queue":
        return Queue(registry, entity_id, path, stored_options(QueueOptions, path, description), created_time)
    if kind == "topic":
        return Topic(registry, entity_id, path, stored_options(TopicOptions, path, description), created_time)
    address = EntityAddress.parse(path)
    topic = registry.find_topic(address.name)
    if topic is None or address.subscription is None:
        raise EmulatorError(f"The entity {path!r} was kept by another version of sbnotebook, or without its topic.")
    options = stored_options(SubscriptionOptions, path, description)
    return Subscription(entity_id, topic, address.subscription, options, stored_rules(description), created_time)
