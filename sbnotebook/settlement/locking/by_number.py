"""Deferred messages, which Service Bus gives by their sequence numbers only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from azure.servicebus.exceptions import MessageLockLostError, MessageNotFoundError, MessageSizeExceededError

from sbnotebook.model import EntityAddress, MessageState
from sbnotebook.model.partition import partition_of
from sbnotebook.settlement.peek import Peeker
from sbnotebook.settlement.sdk import management
from sbnotebook.settlement.sdk.receivers import payload_of_received
from sbnotebook.settlement.wire.conversion import peeked_from_payload

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage
    from azure.servicebus.aio import ServiceBusReceiver

__all__ = ["CANNOT_ALL_BE_HAD", "receive_those_there", "same_partition_chunks", "those_deferred"]

CANNOT_ALL_BE_HAD: Final = (MessageNotFoundError, MessageLockLostError, MessageSizeExceededError)
"""What a request for several messages is refused with, that may be granted for some of them."""


async def receive_those_there(
    receiver: ServiceBusReceiver, peeker: Peeker, sequence_numbers: Sequence[int]
) -> list[ServiceBusReceivedMessage]:
    """Lock deferred messages of one partition; those that cannot be received are left out.

    The service refuses a request if one of its messages cannot be received. Then request only deferred ones. If one of
    these is locked, halve the request until that one is alone. What an answer leaves out, because it would be too
    large, is asked for again.
    """
    received: list[ServiceBusReceivedMessage] = []
    left = sequence_numbers
    while left:
        try:
            some = await management.receive_deferred(receiver, left)
        except CANNOT_ALL_BE_HAD:
            return received + await _receive_halves(receiver, await those_deferred(peeker, left), peeker.address)
        received += some
        left = _left_out(left, some, peeker.address)
    return received


def _left_out(
    asked: Sequence[int], received: Sequence[ServiceBusReceivedMessage], entity: EntityAddress
) -> Sequence[int]:
    """Return the numbers to request again; none if no message arrived."""
    if len(received) in (0, len(asked)):
        return ()
    payloads = (payload_of_received(lock) or b"" for lock in received)
    came = {peeked_from_payload(payload, entity, ()).sequence_number for payload in payloads}
    return [number for number in asked if number not in came]


async def _receive_halves(
    receiver: ServiceBusReceiver, sequence_numbers: Sequence[int], entity: EntityAddress
) -> list[ServiceBusReceivedMessage]:
    if not sequence_numbers:
        return []
    try:
        some = await management.receive_deferred(receiver, sequence_numbers)
        return some + await _receive_halves(receiver, _left_out(sequence_numbers, some, entity), entity)
    except CANNOT_ALL_BE_HAD:
        if len(sequence_numbers) == 1:
            return []
        middle = len(sequence_numbers) // 2
        first = await _receive_halves(receiver, sequence_numbers[:middle], entity)
        return first + await _receive_halves(receiver, sequence_numbers[middle:], entity)


async def those_deferred(peeker: Peeker, sequence_numbers: Iterable[int]) -> list[int]:
    """Peek at messages, and return the numbers of those that are deferred now, locked ones among them, in order."""
    found = await peeker.payloads_of(sequence_numbers)
    states = {number: peeked_from_payload(payload, peeker.address, ()).state for number, payload in found.items()}
    return sorted(number for number, state in states.items() if state is MessageState.DEFERRED)


def same_partition_chunks(sequence_numbers: Iterable[int], size: int) -> Iterator[list[int]]:
    """Yield the numbers in order, each once, in chunks of one partition: Service Bus takes no others.

    Args:
        sequence_numbers: in any order.
        size: numbers in a chunk at most.

    Example:
        >>> [[hex(number) for number in chunk] for chunk in same_partition_chunks([2, 1, 2, 1 << 48, 3], 2)]
        [['0x1', '0x2'], ['0x3'], ['0x1000000000000']]
    """
    by_partition: defaultdict[int, list[int]] = defaultdict(list)
    for number in sorted(set(sequence_numbers)):
        by_partition[partition_of(number)].append(number)
    for numbers in by_partition.values():
        yield from (numbers[start : start + size] for start in range(0, len(numbers), size))
