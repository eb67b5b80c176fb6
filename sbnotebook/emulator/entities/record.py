"""The record of an entity: its number, its times, and the last sequence number that it gave to a message."""

from __future__ import annotations

from sbnotebook.emulator.entities.partitions import PARTITION_SHIFT, PARTITIONS


class EntityRecord:
    def __init__(self, entity_id: int, kind: str, now: int, last_sequence_number: int = 0) -> None:
        self.entity_id = entity_id  # its number, which it keeps
        self.kind = kind  # "queue", "topic" or "subscription"
        self.created_time = self.updated_time = now  # ms
        self.accessed_time: int | None = None
        self.last_sequence_number = last_sequence_number

    @property
    def idle_since(self) -> int:
        """Return when the entity was last used or changed, in ms."""
        return max(self.updated_time, self.accessed_time or self.created_time)

    def next_number(self, partition: int | None = None) -> int:
        self.last_sequence_number += 1
        if partition is None:
            return self.last_sequence_number
        return (partition % PARTITIONS) << PARTITION_SHIFT | self.last_sequence_number
