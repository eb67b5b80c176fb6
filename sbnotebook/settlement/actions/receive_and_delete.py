"""Receiving messages that the service removes as it sends them.

"If the message transfer fails, the message is lost" (Service Bus documentation, "Message transfers, locks, and
settlement", ReceiveAndDelete). The archive gets each message as soon as it arrives, before the caller.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final

import anyio
import anyio.to_thread
from azure.servicebus import ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.errors import ArchiveError, ConfigurationError
from sbnotebook.model import EntityAddress, PeekedMessage
from sbnotebook.settlement.connecting.failures import explained
from sbnotebook.settlement.locking.records import archived_from
from sbnotebook.settlement.memory.archive import Archive, ArchiveState
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.sdk.receivers import LockReceiver
from sbnotebook.settlement.terms import Progress, check_wait
from sbnotebook.settlement.wire.conversion import peeked_from_payload

VERB: Final = "receive and delete"
_STEP: Final = 100
"""Messages that are asked for at once, and so those on their way when a connection breaks."""
_MORE_WAIT: Final = 1.0
_WITHDRAW: Final = 5.0
_CLOSE_TIMEOUT: Final = 15.0


@dataclass(slots=True, eq=False)
class _Taken:
    address: EntityAddress
    namespace: Callable[[], str]
    archive: Archive | None
    messages: list[PeekedMessage]
    count: int = 0
    unkept: list[tuple[PeekedMessage, bytes]] = field(default_factory=list[tuple[PeekedMessage, bytes]])

    def take(self, payload: bytes) -> None:
        message = peeked_from_payload(payload, self.address)
        self.messages.append(message)
        self.count += 1
        if self.archive is not None:
            self.unkept.append((message, payload))

    async def keep(self) -> None:
        fresh, self.unkept = self.unkept, []
        if fresh and self.archive is not None:
            # Must not be interrupted between the two.
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._write, self.archive, fresh)

    def _write(self, archive: Archive, fresh: Sequence[tuple[PeekedMessage, bytes]]) -> None:
        try:
            kept = [archived_from(*each, self.namespace(), VERB, ArchiveState.REMOVED) for each in fresh]
            archive.keep(kept)
        except Exception:
            self.unkept[:0] = fresh  # written with the next ones, or at the end
            raise


async def receive_and_delete(
    entity: Place,
    count: int,
    *,
    max_wait: float = 5.0,
    archived: bool = True,
    into: list[PeekedMessage] | None = None,
    progress: Progress | None = None,
) -> list[PeekedMessage]:
    """Receive messages that are removed as they are sent, to ``max_wait`` seconds without one.

    The archive and the list ``into`` get each message as it arrives, also if the call is cancelled. Without room in the
    archive, an ArchiveError is raised and nothing is removed.
    """
    if count < 1:
        raise ConfigurationError("Receive at least 1 message.")
    check_wait(max_wait)
    archive = entity.namespace.archive if archived else None
    if archive is not None:
        await anyio.to_thread.run_sync(archive.require_room)
    taken = _Taken(entity.address, entity.namespace.identity, archive, [] if into is None else into)
    receiver = entity.namespace.connection.receiver(
        entity.address, retries=0, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
    )
    receiver.sink = taken.take
    async with receiver:
        try:
            await _receive(receiver, taken, count, max_wait, progress)
        except (ServiceBusError, OSError, ArchiveError) as error:
            if not taken.count:
                raise
            _warn(taken, explained(error))
        finally:
            with anyio.move_on_after(_CLOSE_TIMEOUT, shield=True):
                await _end(receiver, taken)
    return taken.messages


async def _receive(
    receiver: LockReceiver, taken: _Taken, count: int, max_wait: float, progress: Progress | None
) -> None:
    wait = max_wait
    while taken.count < count:
        before = taken.count
        await receiver.take(min(count - before, _STEP), wait)
        await taken.keep()
        if progress is not None:
            progress(taken.count - before)
        if taken.count == before:
            return
        wait = min(_MORE_WAIT, max_wait)


async def _end(receiver: LockReceiver, taken: _Taken) -> None:
    """Take the messages still on their way, for any end of the receiving."""
    await receiver.withdraw_credit(_WITHDRAW)
    try:
        await taken.keep()
    except ArchiveError as error:
        _warn(taken, f"What arrived last is not in the archive. {error}")


def _warn(taken: _Taken, why: str) -> None:
    warnings.warn(
        f"Only {taken.count:,} messages were received: {why} Messages that were on their way may be lost.",
        stacklevel=3,
    )
