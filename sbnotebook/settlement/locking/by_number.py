"""Deferred messages, which Service Bus gives by their sequence numbers only: receive them, and remove them.

To remove messages, they are received in receive-and-delete mode. Their content is ignored: the caller has it already. A
request without an answer is repeated, which is safe: a sequence number belongs to one message for ever (Service Bus
documentation, "Message sequencing and timestamps").
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import anyio

from sbnotebook.errors import SbNotebookError
from sbnotebook.model import MessageState
from sbnotebook.model.message import partition_of
from sbnotebook.settlement.connecting.connection import Connection
from sbnotebook.settlement.connecting.failures import REFUSED_FOR_ONE, Failure
from sbnotebook.settlement.peek import Peeker
from sbnotebook.settlement.requests import OUTAGE_PATIENCE, alike, by_halves, halves, patiently
from sbnotebook.settlement.sdk import connections, management
from sbnotebook.settlement.sdk.receivers import ReceivedLock
from sbnotebook.settlement.wire.decoding import peeked_from_payload

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusReceiver

_CHUNK: Final = 100
"""Messages removed by one request; all of them come in its answer."""
_PAUSES: Final = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Seconds to wait for other receivers to release messages."""


async def receive_those_there(
    receiver: ServiceBusReceiver, peeker: Peeker, numbers: Sequence[int]
) -> list[ReceivedLock]:
    """Lock deferred messages of one partition, in the order of their numbers, without those that cannot be received.

    The service refuses a request if one of its messages cannot be received. Then request only deferred ones, and halves
    until one that another receiver has locked is alone. What an answer leaves out, because it would be too large, is
    asked for again.
    """
    received: list[ReceivedLock] = []

    async def ask(part: Sequence[int]) -> list[Sequence[int]]:
        try:
            some = await management.receive_deferred(receiver, part)
        except REFUSED_FOR_ONE:
            there = await those_deferred(peeker, part)
            return halves(there) if len(there) == len(part) else [there]
        received.extend(some)
        came = {lock.sequence_number for lock in some}
        return [[number for number in part if number not in came]] if some else []

    await by_halves(ask, numbers)
    return sorted(received, key=lambda lock: lock.sequence_number)


async def those_deferred(peeker: Peeker, sequence_numbers: Iterable[int], *, patience: float = 0.0) -> list[int]:
    """Peek at messages, and return the numbers of those that are deferred now, locked ones among them, in order."""
    found = await peeker.payloads_of(sequence_numbers, patience=patience)
    states = {number: peeked_from_payload(payload, peeker.address, ()).state for number, payload in found.items()}
    return sorted(number for number, state in states.items() if state is MessageState.DEFERRED)


def same_partition_chunks(sequence_numbers: Iterable[int], size: int) -> list[Sequence[int]]:
    """Return the numbers in order, each once, in chunks of one partition: Service Bus takes no others."""
    return alike(sorted(set(sequence_numbers)), partition_of, size)


class Removal(NamedTuple):
    """The end of a removal. Messages in neither set are as they were."""

    removed: set[int]
    unknown: set[int]


class DeferredDeleter:
    """Removes deferred messages of one entity over one link that is kept."""

    def __init__(self, connection: Connection, peeker: Peeker) -> None:
        self._connection = connection
        self._address = peeker.address
        self._peeker = peeker
        self._receiver: ServiceBusReceiver | None = None
        self._opening = anyio.Lock()

    async def delete(self, sequence_numbers: Iterable[int]) -> None:
        """Remove messages; ignore those that are gone or not deferred."""
        left = list(sequence_numbers)
        for pause in _PAUSES:
            await anyio.sleep(pause)
            ends = Removal(set(), set())
            await self.remove(left, ends)
            left = await self._those_there([number for number in left if number not in ends.removed])
            if not left:
                return
        raise SbNotebookError(
            f"{len(left):,} deferred messages of {self._address} cannot be removed (the first is #{left[0]}): another "
            "receiver holds them; end it, and start again."
        )

    async def remove(self, sequence_numbers: Iterable[int], ends: Removal) -> None:
        """Remove the messages that no other receiver holds. Several tasks may do so at once."""
        for chunk in same_partition_chunks(sequence_numbers, _CHUNK):
            try:
                await self._remove(chunk, ends)
            except Exception:
                ends.unknown.update(set(chunk) - ends.removed)
                raise

    async def close(self) -> None:
        """Close the link; the next removal opens another."""
        await self._hang_up(self._receiver)

    async def _remove(self, chunk: Sequence[int], ends: Removal) -> None:
        unanswered: set[int] = set()

        async def ask(part: Sequence[int]) -> list[Sequence[int]]:
            try:
                removed = await patiently(self._attempt, part, unanswered, address=self._address)
            except REFUSED_FOR_ONE:
                there = await self._those_there(part)
                ends.unknown.update(unanswered.intersection(part).difference(there))
                # All or nothing: without those that are gone, or by halves, to find those that another receiver holds.
                return halves(there) if len(there) == len(part) else [there]
            left = [] if removed == len(part) else await self._those_there(part) if removed else part
            ends.removed.update(set(part).difference(left))
            return [left] if removed else []  # an answer that would be too large may leave some out

        await by_halves(ask, chunk)

    async def _attempt(self, chunk: Sequence[int], unanswered: set[int]) -> int:
        receiver = await self.open()  # until then nothing is sent
        try:
            return await management.delete_deferred(receiver, chunk)
        except REFUSED_FOR_ONE:
            raise
        except Exception as error:
            await self._hang_up(receiver)  # its link may be broken
            if not Failure.of(error).is_busy:
                unanswered.update(chunk)
            raise

    async def open(self) -> ServiceBusReceiver:
        """Return the link, open."""
        async with self._opening:
            if self._receiver is None:
                self._receiver = self._connection.receiver(self._address)
            await connections.reopen(self._receiver)
            return self._receiver

    async def _hang_up(self, receiver: ServiceBusReceiver | None) -> None:
        if receiver is None or receiver is not self._receiver:  # another task has opened a new one
            return
        self._receiver = None
        await connections.close(receiver)

    async def _those_there(self, numbers: Sequence[int]) -> list[int]:
        return await those_deferred(self._peeker, numbers, patience=OUTAGE_PATIENCE)
