"""A snapshot: what a store gives back at the start, and how a namespace is restored from it.

A snapshot holds summaries only; messages are read when they are asked for.
"""

from __future__ import annotations

from itertools import groupby
from typing import Any, Final

from sbnotebook.emulator.entities.box import BOXES_PER_ENTITY, ReceivingEntity
from sbnotebook.emulator.entities.json_form import stored_options, stored_rules
from sbnotebook.emulator.entities.message import BrokeredState
from sbnotebook.emulator.entities.message_log import ShelfSummary, Storage
from sbnotebook.emulator.entities.options import QueueOptions, SubscriptionOptions, TopicOptions
from sbnotebook.emulator.entities.partitions import without_partition
from sbnotebook.emulator.entities.queue import Queue
from sbnotebook.emulator.entities.registry import AnyEntity, Registry
from sbnotebook.emulator.entities.topic import Subscription, Topic
from sbnotebook.errors import EmulatorError
from sbnotebook.model.address import EntityAddress

StoredEntity = tuple[int, str, str, dict[str, Any], int, int, int]
"""The number, the kind, the path, what ``stored`` returned, when it was created and updated (ms), and the last sequence
number that it gave out, 0 if none."""
StoredBox = tuple[list[ShelfSummary], int, list[tuple[int, int]]]
"""The shelves that have messages, in order; how many are set aside; and of scheduled messages the time (ms) and the
sequence number, in order."""
Snapshot = tuple[
    list[StoredEntity], dict[int, StoredBox], list[tuple[int, str, bytes, int]], list[tuple[int, str, int]]
]
"""Entities, topics before their subscriptions; boxes by number; box, id, state and its time of sessions; and entity, id
and end (ms) of the message ids whose time has not passed."""
_NOTHING: Final[StoredBox] = ([], 0, [])


def restore(registry: Registry, snapshot: Snapshot, storage: Storage, *, now: int) -> None:
    """Restore an empty registry from a snapshot; locks are not kept."""
    registry.residency.storage = storage
    entities, boxes, sessions, seen = snapshot
    # The entities and their boxes.
    by_id: dict[int, AnyEntity] = {}
    for entity_id, kind, path, description, created_time, updated_time, last_number in entities:
        entity = by_id[entity_id] = _entity(registry, entity_id, kind, path, description, created_time)
        # The store does not keep when an entity was used: an idle one gets its time again.
        entity.updated_time, entity.accessed_time = updated_time, now
        entity.last_sequence_number = without_partition(last_number)
        _restore_boxes(entity, boxes)
        registry.restore(entity)
    # The states of sessions, and the ids for duplicate detection.
    for box, session_id, state, updated_time in sessions:
        entity = by_id.get(box // BOXES_PER_ENTITY)
        if isinstance(entity, ReceivingEntity) and entity.sessions is not None:
            session = entity.sessions.find_or_create(session_id)
            entity.restore_session_state(session, state, updated_time)
    for entity_id, ids in groupby(seen, key=lambda entry: entry[0]):
        entity = by_id.get(entity_id)
        if isinstance(entity, Queue | Topic):
            entity.restore_seen((message_id, until) for _, message_id, until in ids)
    # Messages that still had to be forwarded.
    for entity in by_id.values():
        if isinstance(entity, ReceivingEntity) and entity.sessions is None:
            entity.start_forwarding(now)


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


def _restore_boxes(entity: AnyEntity, boxes: dict[int, StoredBox]) -> None:
    for box in entity.boxes:
        box.restore(*boxes.get(box.box, _NOTHING))
    if entity.sessions is not None:
        # The waiting receivers of each session are needed at once.
        for message in entity.peek(0, entity.message_count):
            if message.state is not BrokeredState.SCHEDULED:
                entity.sessions.added(message)
            if message.state is BrokeredState.ACTIVE:
                entity.sessions.make_ready(message)
