"""Let several tasks use one connection of the SDK: the first reads frames for all, and wakes the others after each.

In the SDK, tasks that share a connection hold each other up. No task writes while another waits for a frame. A task
whose answer was read by another task notices it a tenth of a second later. Tasks that send large messages at once mix
up their frames, because a session counts a transfer only after it has written it. A request that the service rejects
fails all requests that wait at that moment.

Sources: ``Session._outgoing_transfer`` in ``_pyamqp/aio/_session_async.py``, and ``ManagementOperation.execute`` in
``_management_operation_async.py`` of azure-servicebus 7.15.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import time
from typing import Any, Final

from sbnotebook.settlement.sdk.protocol import (
    AmqpConnection,
    ManagementOperation,
    PutResult,
    Socket,
    connection_class,
    operation_class,
    sender_module,
    transport_module,
)

__all__ = ["LAST_WAIT", "frame_come", "last_wait", "share_connections", "size_come"]

# Attributes that sbnotebook adds to the SDK's connections, transports and sessions.
LAST_WAIT: Final = "_sbnotebook_last_wait"
_TURN: Final = "_sbnotebook_turn"
_WRITING: Final = "_sbnotebook_writing"
_SENDING: Final = "_sbnotebook_sending"
_MORE_FRAMES: Final = 50
_SIZE, _KIND, _HEAD = 4, 6, 8
"""Ends of the parts of a frame's header: its size, its kind, and its channel (AMQP 1.0 section 2.3.1)."""
_TRANSFER, _DISPOSITION = 20, 21
"""Kinds of the frames that are processed most often (AMQP 1.0 sections 2.7.5 and 2.7.6)."""
_PLAIN, _NOTHING = bytearray(b"\x02\x00"), bytearray()
_PASSES: Final = frozenset({errno.EAGAIN, errno.EINTR, errno.ENOENT, errno.EWOULDBLOCK})
"""Errors after which the SDK takes a connection for open still."""

_FAILED: Final = (PutResult.ERROR, PutResult.LINK_CLOSED)

_listen_alone: Final[Any] = connection_class.listen
_transfer_alone: Final[Any] = sender_module.SenderLink._outgoing_transfer


def share_connections() -> None:
    """Replace how the SDK's connections read and write, for the whole process. Calling it again changes nothing."""
    connection_class.listen = _listen
    transport_module.AsyncTransportMixin.write = _write
    sender_module.SenderLink._outgoing_transfer = _transfer
    operation_class.execute = _execute


def last_wait(connection: AmqpConnection) -> float:
    """Return the monotonic time of the last frame for which a task had to wait: all later ones waited to be read."""
    return getattr(connection._transport, LAST_WAIT, 0.0)


async def frame_come(transport: Any) -> tuple[int, Any] | None:
    """Read the channel and the fields of the next frame if all of it has come: that takes no time.

    The SDK reads the head and the rest apart, and takes as long for that as to decode them.
    """
    size = size_come(transport)
    if not size:
        return None
    frame = memoryview(await transport.reader.readexactly(size))
    return int.from_bytes(frame[_KIND:_HEAD], "big"), transport_module.decode_frame(frame[_HEAD:])


def size_come(transport: Any) -> int:
    """Return the size of the next frame if all of it has come; else 0.

    It is 0, too, for an empty frame, and for one with an extended head, which are rare.
    """
    reader = getattr(transport, "reader", None)
    come: bytearray = getattr(reader, "_buffer", _NOTHING)
    if reader is None or come[_SIZE:_KIND] != _PLAIN or transport.socket_lock.locked() or reader.exception():
        return 0
    begun, size = transport._read_buffer, int.from_bytes(come[:_SIZE], "big")
    return size if _HEAD < size <= len(come) and begun.tell() == len(begun.getbuffer()) else 0


class _Turn:
    """Which task reads from a connection now, and what tells the others that it has read."""

    def __init__(self) -> None:
        self.reader: asyncio.Task[Any] | None = None
        self._has_read: asyncio.Event | None = None

    async def wait(self) -> None:
        self._has_read = self._has_read or asyncio.Event()
        await self._has_read.wait()

    def end(self) -> None:
        self.reader = None
        if self._has_read is not None:
            self._has_read.set()
            self._has_read = None


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
                await turn.wait()
        return
    if turn.reader is me:  # a frame is processed that makes it read another one
        await _listen_alone(connection, wait=wait, batch=batch, **options)
        return
    turn.reader = me
    try:
        await _listen_alone(connection, wait=wait, batch=batch, **options)
        # Those that have come already, too: each turn wakes all other tasks.
        for _ in range(_MORE_FRAMES):
            if (
                connection._error
                or not connection._can_read()
                or not (frame := await frame_come(connection._transport))
            ):
                break
            await _process(connection, *frame)
    finally:
        turn.end()


async def _process(connection: AmqpConnection, channel: int, frame: Any) -> None:
    """Process a frame as the SDK's method does, which also evaluates type hints for each frame."""
    kind, fields = frame
    if kind not in (_TRANSFER, _DISPOSITION):
        await connection._process_incoming_frame(channel, frame)
        return
    connection._last_frame_received_time = time.time()
    with contextlib.suppress(KeyError):  # the SDK drops frames of a channel that it does not know, too
        session = connection._incoming_endpoints[channel]
        await (session._incoming_transfer if kind == _TRANSFER else session._incoming_disposition)(fields)


def _seconds(connection: AmqpConnection, wait: float | bool) -> float | None:
    if isinstance(wait, bool):
        return None if wait else connection._socket_timeout
    return wait


async def _write(transport: Socket, data: bytes) -> None:
    """Write a frame, as the SDK's method does, also while a task waits for one to read."""
    async with _lock_of(transport, _WRITING):
        try:
            await transport._write(data)
        except TimeoutError:
            raise
        except OSError as error:
            if error.errno not in _PASSES:
                transport.connected = False
            raise


async def _transfer(link: Any, delivery: Any) -> Any:
    """Transfer a message, as the SDK's method does, when those that began before have left."""
    async with _lock_of(link._session, _SENDING):
        if delivery.sent:  # by another task, which heard of new credit meanwhile
            return delivery.settled
        return await _transfer_alone(link, delivery)


def _lock_of(thing: Any, name: str) -> asyncio.Lock:
    lock: asyncio.Lock | None = getattr(thing, name, None)
    if lock is None:
        lock = asyncio.Lock()
        setattr(thing, name, lock)
    return lock


async def _execute(
    node: ManagementOperation,
    message: Any,
    operation: Any = None,
    operation_type: Any = None,
    timeout: float | None = None,  # noqa: ASYNC109 (the SDK's)
) -> tuple[int, Any, Any]:
    """Make a request, as the SDK's method does, and end with its own answer or error."""
    answers: list[tuple[PutResult, int, Any, Any, Any]] = []

    async def answered(result: PutResult, status: int, description: Any, answer: Any, error: Any = None) -> None:
        answers.append((result, status, description, answer, error))

    until = time.monotonic() + timeout if timeout else math.inf
    pending = await node._mgmt_link.execute_operation(
        message, answered, timeout=timeout, operation=operation, type=operation_type
    )
    try:
        while not answers:
            if node._mgmt_error is not None:  # the link is gone
                raise node._mgmt_error
            if time.monotonic() >= until:
                raise TimeoutError(f"Failed to receive mgmt response in {timeout} seconds")
            await node._connection.listen()
    finally:
        node._mgmt_link.cancel_operation(pending)
    result, status, description, answer, error = answers[0]
    if result in _FAILED and error is not None:
        raise error
    return status, description, answer
