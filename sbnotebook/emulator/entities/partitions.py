"""The partitions of an entity: part of each sequence number, and the order in which messages are peeked."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, takewhile
from typing import Final

from sbnotebook.emulator.entities.message import BrokeredMessage
from sbnotebook.emulator.entities.message_log import MessageLog

PARTITIONS: Final = 16
"""As many as an entity of the tier Standard has (Service Bus documentation, "Partitioned queues and topics")."""

PARTITION_SHIFT: Final = 48
"""The bits of a sequence number that count messages; the bits above them are the number of a partition.

Source: Service Bus documentation, "Message sequencing and timestamps".
"""

_ORDER: Final = (0, 1, *chain.from_iterable((PARTITIONS + 1 - each, each) for each in range(2, PARTITIONS // 2 + 1)))


def without_partition(sequence_number: int) -> int:
    return sequence_number & ((1 << PARTITION_SHIFT) - 1)


def tour(log: MessageLog, sequence_number: int) -> Iterator[BrokeredMessage]:
    """Yield the messages from a sequence number to the end of its partition, then those of the later partitions.

    The partitions follow each other in an order of their own, not by number, as observed at the service. A client that
    continues after the last message of each page reaches all partitions; a client that continues after the largest
    sequence number does not.
    """
    first = sequence_number >> PARTITION_SHIFT
    for partition in _ORDER[_ORDER.index(first) :] if first in _ORDER else ():
        start = max(sequence_number if partition == first else 0, partition << PARTITION_SHIFT)
        end = partition + 1 << PARTITION_SHIFT
        yield from takewhile(lambda message, end=end: message.sequence_number < end, log.walk(start))
