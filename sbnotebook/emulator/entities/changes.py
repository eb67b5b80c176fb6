"""Changes of the entities that a store has to keep; locks are not kept.

A message is in a box: each queue, subscription and sub-queue is one, and so is the schedule of a
topic. Boxes have numbers; those of one entity follow each other (``BOXES_PER_ENTITY``). A message
that goes from one box to another is removed from the one and added to the other, in one turn.

The two changes that come with every message are not frozen, because that costs twice as much.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from sbnotebook.emulator.entities.message import BrokeredMessage

BOXES_PER_ENTITY: Final = 4
"""An entity's number times this is its box; the next two are its dead-letter and its transfer dead-letter queue."""


@dataclass(frozen=True, slots=True)
class EntitySaved:
    """A new entity, or new options or rules of an entity."""

    entity_id: int  # its number, which it keeps
    kind: str  # "queue", "topic" or "subscription"
    path: str  # its path
    description: dict[str, Any]  # its options, and a subscription's rules: plain JSON values
    created_time: int  # ms
    updated_time: int  # ms


@dataclass(frozen=True, slots=True)
class EntityDeleted:
    entity_id: int


@dataclass(slots=True)
class MessageAdded:
    """A message was added to a box; its number is now the entity's last sequence number."""

    box: int
    message: BrokeredMessage


@dataclass(frozen=True, slots=True)
class MessageUpdated:
    box: int
    message: BrokeredMessage
    has_new_payload: bool = False


@dataclass(slots=True)
class MessageRemoved:
    box: int
    sequence_number: int


@dataclass(frozen=True, slots=True)
class SessionStateSet:
    box: int
    session_id: str
    state: bytes | None
    updated_time: int


@dataclass(frozen=True, slots=True)
class MessageIdSeen:
    """A message with this id has come in at ``seen_at``; a second message is a duplicate until ``until`` (both in ms).

    Those whose time has passed may be forgotten.
    """

    entity_id: int
    message_id: str
    until: int
    seen_at: int = 0


Change = EntitySaved | EntityDeleted | MessageAdded | MessageUpdated | MessageRemoved | SessionStateSet | MessageIdSeen
