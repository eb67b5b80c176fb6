"""Changes of the entities that a store has to keep; locks are not kept.

A message is in a box: each queue, subscription and sub-queue is one, and so is the schedule of a
topic. Boxes have numbers; those of one entity follow each other (``BOXES_PER_ENTITY``). A message
that goes from one box to another is removed from the one and added to the other, in one turn.
"""

from __future__ import annotations

from typing import Any, Final

from sbnotebook.emulator.entities.message import BrokeredMessage
from sbnotebook.emulator.entities.partitions import PARTITION_SHIFT

BOXES_PER_ENTITY: Final = 4
"""An entity's number times this is its box; the next two are its dead-letter and its transfer dead-letter queue."""
COUNTER: Final = (1 << PARTITION_SHIFT) - 1

_Key = tuple[int, int]  # Box and sequence number


class Changes:
    """The changes of one turn. Of a message that came and went within the turn only its number is left."""

    def __init__(self) -> None:
        # In order: the number of an entity with its kind, path, description and times; None for one that was deleted.
        self.entities: list[tuple[int, tuple[str, str, dict[str, Any], int, int] | None]] = []
        self.added: dict[_Key, BrokeredMessage] = {}
        self.updated: dict[_Key, BrokeredMessage] = {}
        self.rewritten: set[_Key] = set()  # those updated messages whose bytes were changed
        self.removed: set[_Key] = set()
        self.last: dict[int, int] = {}  # by entity: the number of the last message that was added
        self.sessions: dict[tuple[int, str], tuple[bytes | None, int]] = {}  # the state and its time, by box and id
        self.seen: list[tuple[int, str, int]] = []  # an entity, a message id, and until when it is a duplicate (ms)
        self.seen_at = 0  # when the last of them came in, ms

    def __bool__(self) -> bool:
        messages = self.added or self.updated or self.removed or self.last
        return bool(messages or self.entities or self.sessions or self.seen)

    def clear(self) -> None:
        for each in (self.added, self.updated, self.rewritten, self.removed, self.last, self.sessions):
            each.clear()
        self.entities.clear()
        self.seen.clear()

    def add(self, box: int, message: BrokeredMessage) -> None:
        number = message.sequence_number
        self.added[box, number] = message
        entity_id = box // BOXES_PER_ENTITY
        if number & COUNTER > self.last.get(entity_id, 0) & COUNTER:
            self.last[entity_id] = number

    def update(self, box: int, message: BrokeredMessage, *, has_new_payload: bool = False) -> None:
        key = box, message.sequence_number
        if key in self.added:
            self.added[key] = message
            return
        self.updated[key] = message
        if has_new_payload:
            self.rewritten.add(key)

    def remove(self, box: int, number: int) -> None:
        key = box, number
        if self.added.pop(key, None) is None:
            self.updated.pop(key, None)
            self.rewritten.discard(key)
            self.removed.add(key)
