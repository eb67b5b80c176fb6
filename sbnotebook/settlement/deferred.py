"""Receiving deferred messages, which the service gives by their sequence numbers only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from azure.servicebus.exceptions import MessageLockLostError, MessageNotFoundError

from sbnotebook.settlement import sdk_internals

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage
    from azure.servicebus.aio import ServiceBusReceiver

__all__ = ["receive_those_there", "same_partition_chunks"]

_PARTITION_SHIFT: Final = 48
"""The bits of a sequence number above these are the partition (documentation, "Message sequencing and timestamps")."""


async def receive_those_there(
    receiver: ServiceBusReceiver, sequence_numbers: Sequence[int]
) -> list[ServiceBusReceivedMessage]:
    """Lock deferred messages of one partition; those that cannot be had are left out.

    The service refuses a request when one of its messages cannot be had: it is halved until that one is alone.
    """
    if not sequence_numbers:
        return []
    try:
        return await sdk_internals.receive_deferred(receiver, sequence_numbers)
    except (MessageNotFoundError, MessageLockLostError):
        if len(sequence_numbers) == 1:
            return []
        middle = len(sequence_numbers) // 2
        first = await receive_those_there(receiver, sequence_numbers[:middle])
        return first + await receive_those_there(receiver, sequence_numbers[middle:])


def same_partition_chunks(sequence_numbers: Iterable[int], size: int) -> Iterator[list[int]]:
    """The numbers in order, each once, in chunks of one partition, because the service takes no others.

    Args:
        sequence_numbers: in any order.
        size: numbers in a chunk at most.

    Example:
        >>> [[hex(number) for number in chunk] for chunk in same_partition_chunks([2, 1, 2, 1 << 48, 3], 2)]
        [['0x1', '0x2'], ['0x3'], ['0x1000000000000']]
    """
    by_partition: defaultdict[int, list[int]] = defaultdict(list)
    for number in sorted(set(sequence_numbers)):
        by_partition[number >> _PARTITION_SHIFT].append(number)
    for numbers in by_partition.values():
        yield from (numbers[start : start + size] for start in range(0, len(numbers), size))
