"""A snapshot: what a store gives back at the start, and how a namespace is restored from it.

A snapshot holds summaries only; messages are read when they are asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from sbnotebook.emulator.entities.box import ReceivingEntity
from sbnotebook.emulator.entities.json_form import stored_options, stored_rules
from sbnotebook.emulator.entities.message import BrokeredState
from sbnotebook.emulator.entities.message_log import Storage
from sbnotebook.emulator.entities.options import QueueOptions, SubscriptionOptions, TopicOptions
from sbnotebook.emulator.entities.partitions import without_partition
from sbnotebook.emulator.entities.queue import Queue
from sbnotebook.emulator.entities.registry import AnyEntity, Registry
from sbnotebook.emulator.entities.sessions import Sessions
from sbnotebook.emulator.entities.topic import Subscription, Topic
from sbnotebook.errors import EmulatorError
from sbnotebook.model.address import EntityAddress

_Rows = list[tuple[Any, ...]]


class Snapshot(NamedTuple):
    """The rows of a store; times are in ms."""

    entities: _Rows  # number, kind, path, what ``stored`` returned, creation, update, last sequence number given out
    # Box, shelf, messages, bytes of their payloads, active ones, when the first is due, deferred and scheduled ones
    shelves: _Rows
    sessions: _Rows  # box, id, state and its time
    seen: _Rows  # entity, message id and its end, by end


def restore(registry: Registry, snapshot: Snapshot, storage: Storage, *, now: int) -> None:
    """Restore an empty registry from a snapshot; locks are not kept."""
    registry.residency.storage = storage
    entities: dict[int, AnyEntity] = {}
    for entity_id, kind, path, description, created_time, updated_time, last_number in snapshot.entities:
        entity = entities[entity_id] = _entity(registry, entity_id, kind, path, description, created_time)
        # The store does not keep when an entity was used: an idle one gets its time again.
        entity.updated_time, entity.accessed_time = updated_time, now
        entity.last_sequence_number = without_partition(last_number)  # earlier files have the partition, too
        registry.add(entity)
    _fill(entities, snapshot)
    for entity in entities.values():
        registry.watch(entity)
        if entity.sessions is not None:
            _make_ready(entity, entity.sessions)
    # Messages that still had to be forwarded.
    for entity in entities.values():
        if isinstance(entity, ReceivingEntity) and entity.sessions is None:
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
            entity.restore_session_state(entity.sessions.find_or_create(session_id), state, updated_time)
    for entity_id, message_id, until in snapshot.seen:
        entity = entities.get(entity_id)
        if isinstance(entity, Queue | Topic):
            entity.restore_seen(message_id, until)


def _entity(
    registry: Registry, entity_id: int, kind: str, path: str, description: dict[str, Any], created_time: int
) -> AnyEntity:
    if kind == "queue":
        return Queue(registry, entity_id, path, stored_options(QueueOptions, path, description), created_time)
    if kind == "topic":
        return Topic(registry, entity_id, path, stored_options(TopicOptions, path, description), created_time)
    address = EntityAddress.parse(path)
    topic = registry.find_topic(address.name)
    if kind != "subscription" or address.subscription is None:
        raise EmulatorError(f"The entity {path!r} was kept by another version of sbnotebook.")
    if topic is None:
        raise EmulatorError(f"The subscription {path!r} was kept without its topic.")
    options = stored_options(SubscriptionOptions, path, description)
    return Subscription(entity_id, topic, address.subscription, options, stored_rules(description), created_time)


def _make_ready(entity: AnyEntity, sessions: Sessions) -> None:
    # The waiting receivers of each session are needed at once.
    for message in entity.peek(0, entity.message_count):
        if message.state is not BrokeredState.SCHEDULED:
            sessions.added(message)
        if message.state is BrokeredState.ACTIVE:
            sessions.make_ready(message)
