"""A pool of warm senders to one entity."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import anyio
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from sbnotebook.model import EntityAddress
from sbnotebook.settlement.connecting.connection import Connection
from sbnotebook.settlement.pace import Limiter
from sbnotebook.settlement.parallel import in_parallel
from sbnotebook.settlement.sdk import links, senders
from sbnotebook.settlement.sending.packing import Sizes

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusSender

_MAX_IDLE: Final = 240.0
"""Seconds after which an idle sender is replaced. Service Bus drops idle connections, and the SDK does not notice."""
_FRESH: Final = 1.0
"""Seconds after which the connection of an idle sender is checked before it is used."""
_OPEN_WITHIN: Final = 60.0


class SenderPool:
    """Warm senders to one entity: one for each transfer in flight, because the SDK's senders are not safe to share."""

    def __init__(self, connection: Connection, address: EntityAddress) -> None:
        connection.require_writing()
        self.address = address
        self.answer_within = 60.0
        self.limiter = Limiter.of_senders()
        self._connection = connection
        self._idle: list[tuple[ServiceBusSender, float, float]] = []
        """Senders, each with the monotonic time and the wall-clock time since which it is idle."""
        self._in_use = 0
        self._opening: set[asyncio.Task[None]] = set()
        self._sizes: Sizes | None = None

    async def warm(self, count: int) -> None:
        """Open senders until so many are idle; where that fails, all of them fail for the same reason."""
        await in_parallel(lambda _: self._open_one(), range(count - len(self._idle)), count)

    def open_another(self, count: int, then: Callable[[bool], None]) -> None:
        """Open a sender where there are no more than ``count``, and then tell whether there is one more."""
        if len(self._idle) + self._in_use > count:
            then(True)
            return
        opening = asyncio.create_task(self._open_one())
        self._opening.add(opening)
        opening.add_done_callback(self._opening.discard)
        opening.add_done_callback(lambda ended: then(not ended.cancelled() and ended.exception() is None))

    async def sizes(self) -> Sizes:
        """Return the size limits of the entity. Open a sender if none was open yet."""
        if self._sizes is None:
            async with self.slot() as sender:
                self._sizes = _sizes_of(sender)
        return self._sizes

    def doubt(self) -> None:
        """Check each idle sender before its next use, and read the size limits again: the entity may be a new one."""
        self._sizes = None
        long_ago = time.monotonic() - 2 * _FRESH
        self._idle = [(sender, min(since, long_ago), at) for sender, since, at in self._idle]

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[ServiceBusSender]:
        """Open a context with a sender that no other task uses, with an open link."""
        self._in_use += 1
        try:
            sender = await self._take()
            line = links.line_of(sender)
            try:
                yield sender
            except ServiceBusError as error:
                if links.is_open(sender) and not isinstance(error, OperationTimeoutError):
                    self._keep(sender)  # only the transfer was refused
                else:
                    await _close(sender, line)
                raise
            except BaseException:
                # Cancelled: an answer may still come, and must not count as the answer to the next transfer.
                await _close(sender, line)
                raise
            self._keep(sender)
        finally:
            self._in_use -= 1

    async def close(self) -> None:
        for opening in tuple(self._opening):
            opening.cancel()
        if self._opening:
            await asyncio.wait(self._opening)
        idle, self._idle = self._idle, []
        async with anyio.create_task_group() as tasks:
            for sender, *_ in idle:
                tasks.start_soon(_close, sender)

    async def _take(self) -> ServiceBusSender:
        while self._idle:
            sender, since, at = self._idle.pop()
            # The monotonic time may stand still while the machine sleeps, and the wall clock may be put back.
            idle = max(time.monotonic() - since, time.time() - at)
            # A send over a lost connection would be UNCONFIRMED.
            try:
                if idle > _FRESH:
                    await links.catch_up(sender)
                if idle < _MAX_IDLE and links.is_open(sender):
                    return sender
            except BaseException:  # cancelled, and no longer in the pool
                await _close(sender)
                raise
            await _close(sender)
        return await self._open()

    async def _open(self) -> ServiceBusSender:
        sender = self._connection.sender(self.address)
        try:
            with anyio.fail_after(_OPEN_WITHIN):
                await links.reopen(sender)
        except TimeoutError:
            await _close(sender)
            raise OperationTimeoutError(message=f"{self.address} did not answer.") from None
        except BaseException:
            await _close(sender)
            raise
        self._sizes = _sizes_of(sender)
        return sender

    async def _open_one(self) -> None:
        self._keep(await self._open())

    def _keep(self, sender: ServiceBusSender) -> None:
        self._idle.append((sender, time.monotonic(), time.time()))


def _sizes_of(sender: ServiceBusSender) -> Sizes:
    return Sizes(senders.max_message_bytes(sender), senders.max_batch_bytes(sender))


async def _close(sender: ServiceBusSender, line: Any = None) -> None:
    line = line or links.line_of(sender)
    await links.close(sender)
    await links.hang_up(line)
