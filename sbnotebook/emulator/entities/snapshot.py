"""What a store kept of a namespace: everything but the messages themselves."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sbnotebook.emulator.entities.message_log import ShelfSummary

__all__ = ["Snapshot", "StoredBox", "StoredEntity"]


class StoredEntity(NamedTuple):
    """A queue, topic or subscription; the fields are those of ``EntityKept``.

    ``last_sequence_number`` is the highest that was given out, without the number of a partition.
    """

    entity_id: int
    kind: str
    path: str
    description: dict[str, Any]
    created_time: int
    updated_time: int
    last_sequence_number: int


class StoredBox(NamedTuple):
    """What is in a box.

    Attributes:
        shelves: its messages, by shelf.
        deferred: how many of them are deferred.
        scheduled: those that are scheduled: (time in ms, sequence number).
    """

    shelves: list[ShelfSummary]
    deferred: int
    scheduled: list[tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A namespace as it was kept.

    Attributes:
        entities: topics before their subscriptions.
        boxes: those that hold messages, by number.
        sessions: those that have a state: (box, session id, state, when it was set in ms).
        seen: the message ids that are duplicates still: (entity id, message id, until when in ms), by entity.
    """

    entities: list[StoredEntity] = field(default_factory=list[StoredEntity])
    boxes: dict[int, StoredBox] = field(default_factory=dict[int, StoredBox])
    sessions: list[tuple[int, str, bytes, int]] = field(default_factory=list[tuple[int, str, bytes, int]])
    seen: list[tuple[int, str, int]] = field(default_factory=list[tuple[int, str, int]])
