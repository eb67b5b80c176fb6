"""In which order the messages of a partitioned entity are peeked."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, takewhile
from typing import Final

from sbnotebook.emulator.entities.changes import PARTITION_SHIFT
from sbnotebook.emulator.entities.message import BrokeredMessage
from sbnotebook.emulator.entities.message_log import MessageLog

__all__ = ["PARTITIONS", "tour"]

PARTITIONS: Final = 16
"""As many as an entity of the tier Standard has (Service Bus documentation, "Partitioned queues and topics")."""
_ORDER: Final = (0, 1, *chain.from_iterable((PARTITIONS + 1 - each, each) for each in range(2, PARTITIONS // 2 + 1)))


def tour(log: MessageLog, sequence_number: int) -> Iterator[BrokeredMessage]:
    """The messages from a sequence number on to the end of its partition, and then those of the partitions behind it.

    These come one after the other, but not in the order of their numbers. So it was seen at the service: who goes on
    behind the last message of each page comes to all partitions, and who goes on behind the largest number does not.

    Args:
        log: of the entity.
        sequence_number: where to begin, included.
    """
    first = sequence_number >> PARTITION_SHIFT
    for partition in _ORDER[_ORDER.index(first) :] if first in _ORDER else ():
        start = max(sequence_number if partition == first else 0, partition << PARTITION_SHIFT)
        end = partition + 1 << PARTITION_SHIFT
        yield from takewhile(lambda message, end=end: message.sequence_number < end, log.walk(start))
