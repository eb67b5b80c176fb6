"""What a store gives back at the start: summaries only, the messages are read when they are asked for."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sbnotebook.emulator.entities.message_log import ShelfSummary

__all__ = ["Snapshot", "StoredBox", "StoredEntity", "StoredMessageId", "StoredSession"]


class StoredEntity(NamedTuple):
    """An entity as it was kept; the fields are those of ``EntityKept``, and one more.

    Attributes:
        last_sequence_number: the newest number that it ever gave to a message, 0 if none; in an
            entity with partitions the one whose low 48 bits are the highest.
    """

    entity_id: int
    kind: str
    path: str
    description: dict[str, Any]
    created_time: int
    updated_time: int
    last_sequence_number: int


class StoredBox(NamedTuple):
    """What stands in a box.

    Attributes:
        shelves: those that have messages, in order.
        deferred: how many messages are set aside.
        scheduled: when a message becomes active (ms), and its sequence number; in order.
    """

    shelves: list[ShelfSummary]
    deferred: int
    scheduled: list[tuple[int, int]]


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
    """All that a registry restores itself from.

    Attributes:
        entities: topics before their subscriptions.
        boxes: those that have messages, by number.
        sessions: those that have a state.
        seen: the ids whose time has not passed.
    """

    entities: list[StoredEntity] = field(default_factory=list[StoredEntity])
    boxes: dict[int, StoredBox] = field(default_factory=dict[int, StoredBox])
    sessions: list[StoredSession] = field(default_factory=list[StoredSession])
    seen: list[StoredMessageId] = field(default_factory=list[StoredMessageId])
