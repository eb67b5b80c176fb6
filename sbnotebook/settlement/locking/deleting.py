"""Removing deferred messages by their numbers, until it is certain that none of them is left.

The messages are received in receive-and-delete mode, and their content is ignored: the caller has it already. A request
without an answer is repeated, which is safe: a sequence number belongs to one message for ever (Service Bus
documentation, "Message sequencing and timestamps").
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import anyio
from azure.servicebus.exceptions import ServiceBusServerBusyError

from sbnotebook.errors import SbNotebookError
from sbnotebook.model import EntityAddress
from sbnotebook.settlement.connecting.connection import Connection
from sbnotebook.settlement.locking.by_number import CANNOT_ALL_BE_HAD, same_partition_chunks, those_deferred
from sbnotebook.settlement.patience import patiently
from sbnotebook.settlement.peek import Peeker
from sbnotebook.settlement.sdk import links, management

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusReceiver

__all__ = ["DeferredDeleter", "Removal"]

_CHUNK: Final = 100
"""Messages removed by one request; all of them come in its answer."""
_CLOSE_WITHIN: Final = 5.0
_PAUSES: Final = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Seconds to wait for other receivers to release messages."""


class Removal(NamedTuple):
    """The end of a removal. Messages in neither set are as they were.

    Args:
        removed: numbers of removed messages.
        unknown: numbers of messages that are gone after a request without an answer: removed by it, or by another
            receiver.
    """

    removed: set[int]
    unknown: set[int]


class DeferredDeleter:
    """Removes deferred messages of one entity over one link that is kept.

    Args:
        connection: the namespace.
        address: a queue, a subscription, or a sub-queue of one.
    """

    def __init__(self, connection: Connection, address: EntityAddress) -> None:
        self._connection = connection
        self._address = address
        self._peeker = Peeker(connection, address)
        self._receiver: ServiceBusReceiver | None = None
        self._opening = anyio.Lock()

    async def open(self) -> None:
        """Open the link.

        Raises:
            ServiceBusError: it could not be opened, such as that of an entity that requires sessions.
        """
        await self._ready()

    async def delete(self, sequence_numbers: Iterable[int]) -> None:
        """Remove messages; ignore those that are gone or not deferred.

        Raises:
            SbNotebookError: some of them are locked by another receiver, and stay.
            ServiceBusError: Service Bus refuses the request or does not answer; some messages may be removed.
        """
        left = list(sequence_numbers)
        for pause in _PAUSES:
            await anyio.sleep(pause)
            refused: list[int] = []
            for chunk in same_partition_chunks(left, _CHUNK):
                refused += await self._delete(chunk)
            left = await self._those_there(refused)
            if not left:
                return
        raise SbNotebookError(
            f"{len(left):,} deferred messages of {self._address} cannot be removed (the first is #{left[0]}): another "
            "receiver holds them; end it, and start again."
        )

    async def remove(self, sequence_numbers: Iterable[int]) -> Removal:
        """Remove the messages that no other receiver holds. Several tasks may do so at once.

        Raises:
            ServiceBusError: Service Bus refuses the request, or does not answer for a minute. Some messages may be
                removed.
        """
        ends = Removal(set(), set())
        for chunk in same_partition_chunks(sequence_numbers, _CHUNK):
            await self._remove(chunk, ends, frozenset())
        return ends

    async def close(self) -> None:
        """Close the link; the next removal opens another."""
        await self._hang_up(self._receiver)
        await self._peeker.close()

    async def _delete(self, chunk: Sequence[int]) -> list[int]:
        """Remove messages of a chunk; return the numbers of those that may be left."""
        if not chunk:
            return []
        try:
            removed = await patiently(self._attempt_noting, chunk, set[int](), address=self._address)
        except CANNOT_ALL_BE_HAD:
            # All or nothing: one of them is gone, or another receiver holds it.
            if len(chunk) == 1:
                return list(chunk)
            there = await self._those_there(chunk)
            if len(there) < len(chunk):
                return await self._delete(there)
            middle = len(chunk) // 2
            return [*await self._delete(chunk[:middle]), *await self._delete(chunk[middle:])]
        if 0 < removed < len(chunk):  # an answer that would be too large may leave some out
            return await self._delete(await self._those_there(chunk))
        return [] if removed else list(chunk)

    async def _remove(self, chunk: Sequence[int], ends: Removal, doubts: frozenset[int]) -> None:
        """Remove messages of a chunk.

        Args:
            chunk: numbers of one partition.
            ends: gets the numbers of the messages that are gone.
            doubts: numbers of an earlier request without an answer.
        """
        if not chunk:
            return
        unanswered: set[int] = set()
        try:
            removed = await patiently(self._attempt_noting, chunk, unanswered, address=self._address)
        except CANNOT_ALL_BE_HAD:
            there = await self._those_there(chunk)
            doubts |= unanswered
            ends.unknown.update(doubts.intersection(chunk).difference(there))
            # All or nothing: without those that are gone, or by halves, to find those that another receiver holds.
            middle = len(there) // 2 if len(there) == len(chunk) else len(there)
            if len(chunk) > 1:
                await self._remove(there[:middle], ends, doubts)
                await self._remove(there[middle:], ends, doubts)
            return
        left = [] if removed == len(chunk) else await self._those_there(chunk) if removed else chunk
        ends.removed.update(set(chunk).difference(left))
        if removed:  # an answer that would be too large may leave some out
            await self._remove(left, ends, doubts)

    async def _attempt_noting(self, chunk: Sequence[int], unanswered: set[int]) -> int:
        receiver = await self._ready()  # until then nothing is sent
        try:
            return await self._attempt(receiver, chunk)
        except (*CANNOT_ALL_BE_HAD, ServiceBusServerBusyError):
            raise
        except Exception:
            unanswered.update(chunk)
            raise

    async def _attempt(self, receiver: ServiceBusReceiver, chunk: Sequence[int]) -> int:
        try:
            return await management.delete_deferred(receiver, chunk)
        except CANNOT_ALL_BE_HAD:
            raise
        except Exception:
            await self._hang_up(receiver)  # its link may be broken
            raise

    async def _ready(self) -> ServiceBusReceiver:
        async with self._opening:
            if self._receiver is None:
                self._receiver = self._connection.receiver(self._address)
            try:
                await links.reopen(self._receiver)
            except Exception:
                await self._hang_up(self._receiver)
                raise
            return self._receiver

    async def _hang_up(self, receiver: ServiceBusReceiver | None) -> None:
        if receiver is None or receiver is not self._receiver:  # another task has opened a new one
            return
        self._receiver = None
        with anyio.move_on_after(_CLOSE_WITHIN, shield=True), contextlib.suppress(Exception):  # it is broken
            await receiver.close()

    async def _those_there(self, numbers: Sequence[int]) -> list[int]:
        return await patiently(those_deferred, self._peeker, numbers, address=self._address)
