"""Senders to one entity that are kept warm."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final

import anyio
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError

from sbnotebook.model import EntityAddress
from sbnotebook.settlement.connecting.connection import Connection
from sbnotebook.settlement.pace import Throttle
from sbnotebook.settlement.sdk import links, senders
from sbnotebook.settlement.sending.packing import Sizes

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusSender

__all__ = ["SenderPool"]

_MAX_IDLE: Final = 240.0
"""Seconds after which an idle sender is replaced: the service drops idle connections, and the SDK does not notice."""
_FRESH: Final = 1.0
"""Seconds after which it is looked whether an idle sender's connection still stands."""
_OPEN_WITHIN: Final = 60.0
_CLOSE_WITHIN: Final = 5.0


class SenderPool:
    """Senders to one entity that are kept warm: one for each transfer in flight, because none is safe to share.

    Args:
        connection: the namespace.
        address: a queue or a topic.
        answer_within: seconds to wait for a confirmation; then nobody knows whether the messages arrived. Large
            transfers get more.

    Raises:
        ReadOnlyError: the connection only looks. Told here, before anybody writes down what is to be sent.
    """

    def __init__(self, connection: Connection, address: EntityAddress, *, answer_within: float = 60.0) -> None:
        connection.require_writing()
        self.address = address
        self.answer_within = answer_within
        self.throttle = Throttle()
        """How far the service lets transfers go, for everybody who sends with this pool."""
        self._connection = connection
        self._idle: list[tuple[ServiceBusSender, float]] = []
        self._sizes: Sizes | None = None

    async def warm(self, count: int) -> None:
        """Open senders at once, so that the first sends do not wait for connections.

        Raises:
            azure.servicebus.exceptions.ServiceBusError: the entity cannot be sent to.
        """
        try:
            async with anyio.create_task_group() as tasks:
                for _ in range(count - len(self._idle)):
                    tasks.start_soon(self._open_one)
        except ExceptionGroup as group:
            raise group.exceptions[0] from None  # they all failed for the same reason

    async def sizes(self) -> Sizes:
        """What the entity takes; known once a sender was open.

        Raises:
            azure.servicebus.exceptions.ServiceBusError: the entity cannot be sent to.
        """
        if self._sizes is None:
            async with self.slot() as sender:
                self._sizes = _sizes_of(sender)
        return self._sizes

    def doubt(self) -> None:
        """Look whether idle senders' connections still stand before each is used again, however short it was idle.

        What the entity takes is looked at, too: it may have been made anew.
        """
        self._sizes = None
        long_ago = time.monotonic() - 2 * _FRESH
        self._idle = [(sender, min(since, long_ago)) for sender, since in self._idle]

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[ServiceBusSender]:
        """A sender of one's own for a while, with an open link.

        Raises:
            azure.servicebus.exceptions.ServiceBusError: none could be opened.
        """
        sender = await self._take()
        line = links.line_of(sender)
        try:
            yield sender
        except ServiceBusError as error:
            if links.is_open(sender) and not isinstance(error, OperationTimeoutError):
                self._keep(sender)  # it was refused, and no more than that
            else:
                await _close(sender, line)
            raise
        except BaseException:
            # Cut off in the middle: what it waits for may still come, and must not be taken for something else.
            await _close(sender, line)
            raise
        self._keep(sender)

    async def close(self) -> None:
        """Close all idle senders."""
        idle, self._idle = self._idle, []
        async with anyio.create_task_group() as tasks:
            for sender, _ in idle:
                tasks.start_soon(_close, sender)

    async def _take(self) -> ServiceBusSender:
        while self._idle:
            sender, since = self._idle.pop()
            idle = time.monotonic() - since
            # A send over a connection that is gone would be one of which nobody knows whether it arrived.
            try:
                if idle > _FRESH:
                    await links.catch_up(sender)
                if idle < _MAX_IDLE and links.is_open(sender):
                    return sender
            except BaseException:  # cut off: nobody else knows it any more
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
        self._idle.append((sender, time.monotonic()))


def _sizes_of(sender: ServiceBusSender) -> Sizes:
    return Sizes(senders.max_message_bytes(sender), senders.max_batch_bytes(sender))


async def _close(sender: ServiceBusSender, line: Any = None) -> None:
    line = line or links.line_of(sender)
    with anyio.move_on_after(_CLOSE_WITHIN, shield=True), suppress(Exception):  # there may be nobody to say it to
        await sender.close()
    with anyio.move_on_after(_CLOSE_WITHIN, shield=True):
        await links.hang_up(line)
