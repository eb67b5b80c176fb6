"""Removing deferred messages by their numbers, until it is certain that none of them is left.

The messages are received in receive-and-delete mode, and their content is ignored: the caller has it already. A request
without an answer is repeated, which is safe: a sequence number belongs to one message for ever (Service Bus
documentation, "Message sequencing and timestamps").
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import anyio

from sbnotebook.errors import SbNotebookError
from sbnotebook.model import EntityAddress
from sbnotebook.settlement.connecting.connection import Connection
from sbnotebook.settlement.locking.by_number import CANNOT_ALL_BE_HAD, same_partition_chunks, those_deferred
from sbnotebook.settlement.patience import patiently
from sbnotebook.settlement.peek import Peeker
from sbnotebook.settlement.sdk import links, management

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusReceiver

__all__ = ["DeferredDeleter"]

_CHUNK: Final = 100
"""Messages removed by one request; all of them come in its answer."""
_CLOSE_WITHIN: Final = 5.0
_PAUSES: Final = (0.0, 0.5, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0)
"""Seconds to wait for other receivers to release messages."""


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

    async def close(self) -> None:
        """Close the link; the next removal opens another."""
        await self._hang_up()
        await self._peeker.close()

    async def _delete(self, chunk: Sequence[int]) -> list[int]:
        """Remove messages of a chunk; return the numbers of those that may be left."""
        if not chunk:
            return []
        try:
            removed = await patiently(self._attempt, chunk, address=self._address)
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

    async def _attempt(self, chunk: Sequence[int]) -> int:
        if self._receiver is None:
            self._receiver = self._connection.receiver(self._address)
        try:
            await links.reopen(self._receiver)
            return await management.delete_deferred(self._receiver, chunk)
        except CANNOT_ALL_BE_HAD:
            raise
        except Exception:
            await self._hang_up()  # an answer that comes late must not be taken for that to the next request
            raise

    async def _hang_up(self) -> None:
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            with anyio.move_on_after(_CLOSE_WITHIN, shield=True), contextlib.suppress(Exception):  # it is broken
                await receiver.close()

    async def _those_there(self, numbers: Sequence[int]) -> list[int]:
        return await patiently(those_deferred, self._peeker, numbers, address=self._address)
