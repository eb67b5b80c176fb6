"""Let several tasks use one connection of the SDK: the first reads frames for all, and wakes the others after each.

In the SDK, tasks that share a connection hold each other up. No task writes while another waits for a frame. A task
whose answer was read by another task notices it a tenth of a second later.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
from typing import Any, Final

from sbnotebook.settlement.sdk.protocol import AmqpConnection, Socket, connection_class, transport_module

__all__ = ["share_connections"]

# Attributes that sbnotebook adds to the SDK's connections and transports.
_TURN: Final = "_sbnotebook_turn"
_WRITING: Final = "_sbnotebook_writing"
_PASSES: Final = frozenset({errno.EAGAIN, errno.EINTR, errno.ENOENT, errno.EWOULDBLOCK})
"""Errors after which the SDK takes a connection for open still."""

_listen_alone: Final[Any] = connection_class.listen


def share_connections() -> None:
    """Replace how the SDK's connections read and write, for the whole process. Calling it again changes nothing."""
    connection_class.listen = _listen
    transport_module.AsyncTransportMixin.write = _write


class _Turn:
    """Which task reads from a connection now, and what tells the others that it has read."""

    def __init__(self) -> None:
        self.reader: asyncio.Task[Any] | None = None
        self.has_read = asyncio.Event()

    def end(self) -> None:
        self.reader = None
        if self.has_read.is_set():
            return
        self.has_read.set()
        self.has_read = asyncio.Event()


async def _listen(connection: AmqpConnection, wait: float | bool = False, batch: int = 1, **options: Any) -> None:
    """Read and process frames, as the SDK's method does; where another task reads, wait until it has read some."""
    turn: _Turn | None = getattr(connection, _TURN, None)
    if turn is None:
        turn = _Turn()
        setattr(connection, _TURN, turn)
    me = asyncio.current_task()
    if turn.reader is not None and turn.reader is not me:
        if connection._error is not None:
            raise connection._error
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_seconds(connection, wait)):
                await turn.has_read.wait()
        return
    if turn.reader is me:  # a frame is processed that makes it read another one
        await _listen_alone(connection, wait=wait, batch=batch, **options)
        return
    turn.reader = me
    try:
        await _listen_alone(connection, wait=wait, batch=batch, **options)
    finally:
        turn.end()


def _seconds(connection: AmqpConnection, wait: float | bool) -> float | None:
    if isinstance(wait, bool):
        return None if wait else connection._socket_timeout
    return wait


async def _write(transport: Socket, data: bytes) -> None:
    """Write a frame, as the SDK's method does, also while a task waits for one to read."""
    writing: asyncio.Lock | None = getattr(transport, _WRITING, None)
    if writing is None:
        writing = asyncio.Lock()
        setattr(transport, _WRITING, writing)
    async with writing:
        try:
            await transport._write(data)
        except TimeoutError:
            raise
        except OSError as error:
            if error.errno not in _PASSES:
                transport.connected = False
            raise
