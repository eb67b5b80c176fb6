"""Partitions of an entity, as sequence numbers tell them.

Source: Service Bus documentation, "Message sequencing and timestamps": the upper 16 bits of a sequence number are the
partition. An entity without partitions has only partition 0.
"""

from __future__ import annotations

from typing import Final

_SHIFT: Final = 48


def partition_of(number: int) -> int:
    return number >> _SHIFT


def start_of_partition(partition: int) -> int:
    """Return the first sequence number that a message of a partition can have; 1 in the first partition."""
    return max(partition << _SHIFT, 1)


def end_of_partition(partition: int) -> int:
    """Return the last sequence number that a message of a partition can have; -1 before the first partition."""
    return (partition + 1 << _SHIFT) - 1
