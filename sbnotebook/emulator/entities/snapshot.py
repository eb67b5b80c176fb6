"""A snapshot: what a store gives back at the start, and how a namespace is restored from it.

A snapshot holds summaries only; messages are read when they are asked for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, NamedTuple

from sbnotebook.emulator.entities.changes import BOXES_PER_ENTITY
from sbnotebook.emulator.entities.json_form import stored_options, stored_rules
from sbnotebook.emulator.entities.message import BrokeredState
from sbnotebook.emulator.entities.message_log import ShelfSummary, Storage
from sbnotebook.emulator.entities.options import QueueOptions, SubscriptionOptions, TopicOptions
from sbnotebook.emulator.entities.partitions import without_partition
from sbnotebook.emulator.entities.queue import Queue, ReceivingEntity
from sbnotebook.emulator.entities.record import EntityRecord
from sbnotebook.emulator.entities.registry import AnyEntity, Registry
from sbnotebook.emulator.entities.topic import Subscription, Topic
from sbnotebook.errors import EmulatorError
from sbnotebook.model.address import EntityAddress


class StoredEntity(NamedTuple):
    """An entity in the store; the fields are those of ``EntitySaved``, and one more."""

    entity_id: int
    kind: str
    path: str
    description: dict[str, Any]
    created_time: int
    updated_time: int
    last_sequence_number: int


class StoredBox(NamedTuple):
    shelves: list[ShelfSummary]  # those that have messages, in order
    deferred: int  # how many messages are set aside
    scheduled: list[tuple[int, int]]  # when a message becomes active (ms), and its sequence number; in order


class StoredSession(NamedTuple):
    """The state of a session; ``updated_time`` is in ms."""

    box: int
    session_id: str
    state: bytes
    updated_time: int


class StoredMessageId(NamedTuple):
    """An id that was seen, and until when a second message with it is a duplicate (ms)."""

    entity_id: int
    message_id: str
    until: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that a registry is restored from."""

    entities: list[StoredEntity] = field(default_factory=list[StoredEntity])  # topics before their subscriptions
    boxes: dict[int, StoredBox] = field(default_factory=dict[int, StoredBox])  # those that have messages, by number
    sessions: list[StoredSession] = field(default_factory=list[StoredSession])  # those that have a state
    seen: list[StoredMessageId] = field(default_factory=list[StoredMessageId])  # the ids whose time has not passed


_NOTHING: Final = StoredBox(shelves=[], deferred=0, scheduled=[])


def restore(registry: Registry, snapshot: Snapshot, storage: Storage, *, now: int) -> None:
    """Restore an empty registry from a snapshot; locks are not kept."""
    registry.residency.storage = storage
    # The entities and their boxes.
    by_id: dict[int, AnyEntity] = {}
    for stored in snapshot.entities:
        entity = by_id[stored.entity_id] = _entity(registry, stored, now)
        _restore_boxes(entity, snapshot)
        registry.restore(entity)
    # The states of sessions, and the ids for duplicate detection.
    for box, session_id, state, updated_time in snapshot.sessions:
        entity = by_id.get(box // BOXES_PER_ENTITY)
        if isinstance(entity, ReceivingEntity) and entity.sessions is not None:
            session = entity.sessions.find_or_create(session_id)
            entity.restore_session_state(session, state, updated_time)
    for entity_id, seen in groupby(snapshot.seen, key=lambda entry: entry[0]):
        entity = by_id.get(entity_id)
        if isinstance(entity, Queue | Topic):
            entity.admission.restore_seen((message_id, until) for _, message_id, until in seen)
    # Messages that still had to be forwarded.
    for entity in by_id.values():
        if isinstance(entity, ReceivingEntity) and entity.sessions is None:
            entity.start_forwarding(now)


def _entity(registry: Registry, stored: StoredEntity, now: int) -> AnyEntity:
    record = EntityRecord(stored.entity_id, stored.kind, now, without_partition(stored.last_sequence_number))
    record.created_time, record.updated_time = stored.created_time, stored.updated_time
    record.accessed_time = now  # The store does not keep it: an idle entity gets its time again.
    match stored.kind:
        case "queue":
            return Queue(registry, stored.path, stored_options(QueueOptions, stored.path, stored.description), record)
        case "topic":
            return Topic(registry, stored.path, stored_options(TopicOptions, stored.path, stored.description), record)
        case "subscription":
            return _subscription(registry, stored, record)
        case _:
            raise EmulatorError(f"The entity {stored.path!r} was kept by another version of sbnotebook.")


def _subscription(registry: Registry, stored: StoredEntity, record: EntityRecord) -> Subscription:
    address = EntityAddress.parse(stored.path)
    topic = registry.find_topic(address.name)
    if topic is None or address.subscription is None:
        raise EmulatorError(f"The subscription {stored.path!r} was kept without its topic.")
    options = stored_options(SubscriptionOptions, stored.path, stored.description)
    return Subscription(topic, address.subscription, options, record, stored_rules(stored.description))


def _restore_boxes(entity: AnyEntity, snapshot: Snapshot) -> None:
    if isinstance(entity, Topic):
        stored = snapshot.boxes.get(entity.box, _NOTHING)
        entity.log.restore(stored.shelves)
        entity.schedule.restore(stored.scheduled)
        return
    for box in entity.boxes:
        stored = snapshot.boxes.get(box.box, _NOTHING)
        box.restore(stored.shelves, stored.deferred)
    if isinstance(entity, Queue):
        entity.schedule.restore(snapshot.boxes.get(entity.box, _NOTHING).scheduled)
    if entity.sessions is not None:
        # The waiting receivers of each session are needed at once.
        for message in entity.peek(0, entity.message_count):
            if message.state is not BrokeredState.SCHEDULED:
                entity.sessions.added(message)
            if message.state is BrokeredState.ACTIVE:
                entity.sessions.make_ready(message)
