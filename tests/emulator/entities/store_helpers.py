"""Storage for tests of the registry: in dictionaries, or in the real store."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Protocol

from sbnotebook.emulator.entities import BrokeredMessage, Change, MessageState, Registry
from sbnotebook.emulator.entities.changes import (
    BOXES_PER_ENTITY,
    EntityDeleted,
    EntityKept,
    MessageAdded,
    MessageIdSeen,
    MessageRemoved,
    MessageUpdated,
    SessionStateSet,
)
from sbnotebook.emulator.entities.message_log import SHELF, ShelfSummary, Storage
from sbnotebook.emulator.entities.snapshot import (
    Snapshot,
    StoredBox,
    StoredEntity,
    StoredMessageId,
    StoredSession,
)
from sbnotebook.emulator.store import Store

__all__ = ["Keeper", "Kept", "OnDisk"]

LARGE = 200
"""Bytes of a payload from which on it does not come with its shelf."""
_NUMBER = (1 << 48) - 1


class Keeper(Storage, Protocol):
    """Keeps what changes."""

    def keep(self, registry: Registry) -> None:
        """End a turn: store the changes, and drop payloads that the store has."""
        ...

    def snapshot(self, now: int) -> Snapshot:
        """What a namespace is restored from."""
        ...

    def close(self) -> None:
        """Nothing more is kept."""
        ...


class OnDisk:
    """The real store, in a directory of its own."""

    def __init__(self) -> None:
        self._directory = TemporaryDirectory()
        self._store = Store(Path(self._directory.name))

    def keep(self, registry: Registry) -> None:
        """The end of a turn."""
        self._store.apply(registry.take_changes())
        registry.residency.shed()

    def load_shelf(self, box: int, shelf: int) -> list[BrokeredMessage]:
        """What ``Storage`` says."""
        return self._store.load_shelf(box, shelf)

    def load_payload(self, box: int, sequence_number: int) -> bytes:
        """What ``Storage`` says."""
        return self._store.load_payload(box, sequence_number)

    def snapshot(self, now: int) -> Snapshot:
        """What another process would find."""
        self._store.close()
        self._store = Store(Path(self._directory.name))
        return self._store.load(now)

    def close(self) -> None:
        """Nothing more is kept."""
        self._store.close()
        self._directory.cleanup()


class Kept:
    """What a store does, by means of dictionaries; it looks closely at what it is given."""

    def __init__(self) -> None:
        self.entities: dict[int, EntityKept] = {}
        self.last: dict[int, int] = {}
        self.messages: dict[int, dict[int, BrokeredMessage]] = {}
        self.sessions: dict[tuple[int, str], SessionStateSet] = {}
        self.seen: dict[tuple[int, str], int] = {}

    def keep(self, registry: Registry) -> None:
        """End a turn: store the changes, and drop payloads that the store has."""
        for change in registry.take_changes():
            self.apply(change)
        kept = [message for box in self.messages.values() for message in box.values()]
        assert all(message.size == len(message.payload or b"") for message in kept)
        registry.residency.shed()

    def apply(self, change: Change) -> None:
        match change:
            case EntityKept():
                self.entities[change.entity_id] = change
            case EntityDeleted():
                self._delete(change.entity_id)
            case MessageAdded(box, message):
                self._add(box, message)
            case MessageUpdated(box, message, has_new_payload):
                self._update(box, message, has_new_payload=has_new_payload)
            case MessageRemoved(box, number):
                del self.messages[box][number]
            case SessionStateSet():
                self.sessions[change.box, change.session_id] = change
            case MessageIdSeen():
                self.seen[change.entity_id, change.message_id] = change.until

    def _delete(self, entity_id: int) -> None:
        del self.entities[entity_id]
        boxes = range(entity_id * BOXES_PER_ENTITY, (entity_id + 1) * BOXES_PER_ENTITY)
        self.messages = {box: kept for box, kept in self.messages.items() if box not in boxes}
        self.sessions = {key: kept for key, kept in self.sessions.items() if key[0] not in boxes}
        self.seen = {key: until for key, until in self.seen.items() if key[0] != entity_id}

    def _add(self, box: int, message: BrokeredMessage) -> None:
        entity_id, number = box // BOXES_PER_ENTITY, message.sequence_number
        assert entity_id in self.entities, "nothing comes to an entity that is gone"
        assert message.payload is not None, "a message cannot be kept without its bytes"
        assert message.size == len(message.payload)
        assert number not in self.messages.setdefault(box, {}), "a number is given out once"
        self.last[entity_id] = max(self.last.get(entity_id, 0), number & _NUMBER)
        self.messages[box][number] = _unlocked(message)

    def _update(self, box: int, message: BrokeredMessage, *, has_new_payload: bool) -> None:
        known = self.messages[box][message.sequence_number]
        kept = self.messages[box][message.sequence_number] = _unlocked(message)
        if not has_new_payload:
            kept.payload = known.payload

    def load_shelf(self, box: int, shelf: int) -> list[BrokeredMessage]:
        """What ``Storage`` says."""
        found = [kept for number, kept in sorted(self.messages.get(box, {}).items()) if number // SHELF == shelf]
        return [replace(kept, payload=kept.payload if kept.size <= LARGE else None) for kept in found]

    def load_payload(self, box: int, sequence_number: int) -> bytes:
        """What ``Storage`` says."""
        payload = self.messages[box][sequence_number].payload
        assert payload is not None
        return payload

    def snapshot(self, now: int) -> Snapshot:
        """What a namespace is restored from."""
        entities = [
            StoredEntity(number, kept.kind, kept.path, kept.description, kept.created_time, kept.updated_time, last)
            for number, kept in sorted(self.entities.items())
            for last in [self.last.get(number, 0)]
        ]
        entities.sort(key=lambda entity: entity.kind == "subscription")
        return Snapshot(
            entities,
            {box: _box(kept) for box, kept in self.messages.items() if kept},
            [
                StoredSession(box, session_id, kept.state, kept.updated_time)
                for (box, session_id), kept in self.sessions.items()
                if kept.state is not None
            ],
            [
                StoredMessageId(entity_id, message_id, until)
                for (entity_id, message_id), until in sorted(self.seen.items())
                if until > now
            ],
        )

    def close(self) -> None:
        """Nothing more is kept."""


def _unlocked(message: BrokeredMessage) -> BrokeredMessage:
    return replace(message, lock_token=None, locked_until=0)


def _box(kept: dict[int, BrokeredMessage]) -> StoredBox:
    shelves: dict[int, list[BrokeredMessage]] = {}
    for number, message in sorted(kept.items()):
        shelves.setdefault(number // SHELF, []).append(message)
    scheduled = [
        (message.scheduled_time or 0, number)
        for number, message in kept.items()
        if message.state is MessageState.SCHEDULED
    ]
    deferred = sum(message.state is MessageState.DEFERRED for message in kept.values())
    return StoredBox([_summary(number, shelf) for number, shelf in shelves.items()], deferred, sorted(scheduled))


def _summary(number: int, messages: list[BrokeredMessage]) -> ShelfSummary:
    active = [message for message in messages if message.state is MessageState.ACTIVE]
    expiries = [message.expires_at for message in active if message.expires_at is not None]
    size = sum(message.size for message in messages)
    return ShelfSummary(number, len(messages), size, len(active), min(expiries, default=None))
