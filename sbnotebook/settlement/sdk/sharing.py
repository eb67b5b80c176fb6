"""Connections of sbnotebook's own, which several tasks can use: the first reads frames for all, and wakes the others.

In the SDK, tasks that share a connection hold each other up. No task writes while another waits for a frame. A task
whose answer was read by another task notices it a tenth of a second later. Tasks that send large messages at once mix
up their frames, because a session counts a transfer only after it has written it. A request that the service rejects
fails all requests that wait at that moment.

The classes here and in :mod:`~sbnotebook.settlement.sdk.tokens` are subclasses of the SDK's, which stay as they are.
:mod:`~sbnotebook.settlement.sdk.clients` makes the connection of each receiver, sender and browser of them.

Sources: ``Session._outgoing_transfer`` in ``_pyamqp/aio/_session_async.py``, ``SenderLink._outgoing_transfer`` in
``_sender_async.py``, and ``ManagementOperation.execute`` in ``_management_operation_async.py``, of version 7.15.
"""

# The SDK's classes are untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUntypedBaseClass=false

from __future__ import annotations

import asyncio
import contextlib
import errno
import math
import time
from typing import Any, Final

from sbnotebook.settlement.sdk.private import (
    AmqpConnectionClass,
    AmqpSessionClass,
    LinkDeliverySettleReason,
    OperationClass,
    PutResult,
    SenderLinkClass,
    SessionTransferState,
    TcpTransport,
    TransferFrame,
    WebSocketTransport,
    decode_empty_frame,
    decode_frame,
    encode_frame,
)

_MORE_FRAMES: Final = 50
_FRAME_ROOM: Final = 72
"""The most bytes that a transfer frame takes beside its payload (AMQP 1.0 sections 2.3.1 and 2.7.5)."""
_MESSAGE_FORMAT, _BATCH_FORMAT = 0, 0x80013700
"""Formats of a single message and of a batch (the SDK's ``Message`` and ``BatchMessage``)."""
_SIZE, _KIND, _HEAD = 4, 6, 8
"""Ends of the parts of a frame's header: its size, its kind, and its channel (AMQP 1.0 section 2.3.1)."""
_PLAIN, _NOTHING = bytearray(b"\x02\x00"), bytearray()
_PASSES: Final = frozenset({errno.EAGAIN, errno.EINTR, errno.ENOENT, errno.EWOULDBLOCK})
"""Errors after which the SDK takes a connection for open still."""
_FAILED: Final = (PutResult.ERROR, PutResult.LINK_CLOSED)


class Encoded:
    """AMQP bytes that a sender transfers as they are, in place of one of the SDK's messages."""

    def __init__(self, payload: bytes, *, is_batch: bool) -> None:
        self.payload = payload
        self.format = _BATCH_FORMAT if is_batch else _MESSAGE_FORMAT


def size_come(transport: Any) -> int:
    """Return the size of the next frame if all of it has come; 0 for rare kinds, too."""
    reader = getattr(transport, "reader", None)
    come: bytearray = getattr(reader, "_buffer", _NOTHING)
    if reader is None or come[_SIZE:_KIND] != _PLAIN or transport.socket_lock.locked() or reader.exception():
        return 0
    begun, size = transport._read_buffer, int.from_bytes(come[:_SIZE], "big")
    return size if _HEAD < size <= len(come) and begun.tell() == len(begun.getbuffer()) else 0


def _transport_class(theirs: Any) -> type:  # noqa: C901 (it holds a class)
    """Return the subclass of a socket. With one base, the layout of its objects is the same."""

    class Transport(theirs):
        """A socket that one task writes to while another waits for a frame."""

        async def frame_come(self) -> tuple[int, Any] | None:
            """Read the channel and the fields of the next frame if all of it has come: that takes no time.

            The SDK reads the head and the rest apart, and takes as long for that as to decode them.
            """
            size = size_come(self)
            if not size:
                return None
            frame = memoryview(await self.reader.readexactly(size))
            return int.from_bytes(frame[_KIND:_HEAD], "big"), decode_frame(frame[_HEAD:])

        async def receive_frame(self, timeout: float | None = None, **options: Any) -> tuple[Any, Any]:  # noqa: ASYNC109 (the SDK's)
            # The SDK waits by asyncio.wait_for, which up to Python 3.11 starts a task for each frame. That takes longer
            # than reading the frame.
            if frame := await self.frame_come():
                return frame
            try:
                async with asyncio.timeout(timeout):
                    header, channel, payload = await self.read(**options)
            except (TimeoutError, asyncio.IncompleteReadError):
                return None, None
            return channel, decode_frame(payload) if payload else decode_empty_frame(header)

        async def send_frame(self, channel: int, frame: Any, **options: Any) -> None:
            if isinstance(frame, bytes):  # whole frames
                await self.write(frame)
                return
            head, rest = encode_frame(frame, **options)
            await self.write(head if rest is None else head + channel.to_bytes(2, "big") + rest)

        async def write(self, data: bytes) -> None:
            """Write a frame, as the SDK's method does, also while a task waits for one to read."""
            async with self.turns:
                try:
                    await self._write(data)
                except TimeoutError:
                    raise
                except OSError as error:
                    if error.errno not in _PASSES:
                        self.connected = False
                    raise

    return Transport


_TRANSPORTS: Final = {theirs: _transport_class(theirs) for theirs in (TcpTransport, WebSocketTransport)}


class SharedConnection(AmqpConnectionClass):
    """A connection of one receiver, sender or browser, which several tasks can use."""

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self._transport.__class__ = _TRANSPORTS[type(self._transport)]
        self._transport.turns = asyncio.Lock()
        self._reader: asyncio.Task[Any] | None = None
        """The task that reads now."""
        self._has_read = asyncio.Event()
        """Set and replaced as the task that reads has read some: it wakes the others."""

    def create_session(self, **options: Any) -> Any:
        session = super().create_session(**options)
        session.__class__ = _SharedSession
        session.turns = asyncio.Lock()
        return session

    async def listen(self, wait: float | bool = False, batch: int = 1, **options: Any) -> None:
        """Read and process frames, as the SDK's method does; where another task reads, wait until it has read some."""
        me = asyncio.current_task()
        if self._reader is not None and self._reader is not me:
            if self._error is not None:
                raise self._error
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._seconds(wait)):
                    await self._has_read.wait()
            return
        if self._reader is me:  # a frame is processed that makes it read another one
            await super().listen(wait=wait, batch=batch, **options)
            return
        self._reader = me
        try:
            await super().listen(wait=wait, batch=batch, **options)
            # Those that have come already, too: each turn wakes all other tasks.
            for _ in range(_MORE_FRAMES):
                if self._error or not self._can_read() or not (frame := await self._transport.frame_come()):
                    break
                await self._process_incoming_frame(*frame)
        finally:
            self._reader = None
            has_read, self._has_read = self._has_read, asyncio.Event()
            has_read.set()

    def _seconds(self, wait: float | bool) -> float | None:
        if isinstance(wait, bool):
            return None if wait else self._socket_timeout
        return wait


class _SharedSession(AmqpSessionClass):
    """The session of a connection; each transfer leaves whole before the next one begins."""

    def create_sender_link(self, target_address: Any, **options: Any) -> Any:
        link = super().create_sender_link(target_address, **options)
        link.__class__ = _SharedSenderLink
        return link

    async def _outgoing_transfer(self, delivery: Any, network_trace_params: Any) -> None:
        # As the SDK's method, which encodes each transfer twice, the first time only to learn its length.
        connection = self._connection
        payload, room = delivery.frame["payload"], connection._remote_max_frame_size - _FRAME_ROOM
        if network_trace_params or self.remote_incoming_window <= 0:
            await super()._outgoing_transfer(delivery, network_trace_params)
            return
        delivery.frame["delivery_id"] = self.next_outgoing_id
        for start in range(0, max(len(payload), 1), room):
            fields = {**delivery.frame, "payload": payload[start : start + room], "more": start + room < len(payload)}
            await connection._process_outgoing_frame(self.channel, TransferFrame(**fields))
        self.next_outgoing_id += 1
        self.remote_incoming_window -= 1
        self.outgoing_window -= 1
        delivery.transfer_state = SessionTransferState.OKAY


class _SharedSenderLink(SenderLinkClass):
    """A link to send by, which also takes messages that are encoded already."""

    async def _outgoing_transfer(self, delivery: Any) -> bool:
        """Transfer a message, as the SDK's method does, when those that began before have left."""
        async with self._session.turns:
            if delivery.sent:  # by another task, which heard of new credit meanwhile
                return delivery.settled
            if not isinstance(delivery.message, Encoded):
                return await super()._outgoing_transfer(delivery)
            return await self._transfer_encoded(delivery)

    async def _transfer_encoded(self, delivery: Any) -> bool:
        count = self.delivery_count + 1
        delivery.frame = {
            "handle": self.handle,
            "delivery_tag": count.to_bytes(4, "big"),
            "message_format": delivery.message.format,
            "settled": delivery.settled,
            "more": False,
            **dict.fromkeys(("rcv_settle_mode", "state", "resume", "aborted", "batchable")),
            "payload": delivery.message.payload,
        }
        await self._session._outgoing_transfer(delivery, self.network_trace_params if self.network_trace else None)
        if delivery.transfer_state != SessionTransferState.OKAY:
            return False
        self.delivery_count = count
        self.current_link_credit -= 1
        delivery.sent = True
        if delivery.settled:
            await delivery.on_settled(LinkDeliverySettleReason.SETTLED, None)
        return bool(delivery.settled)


class SharedOperation(OperationClass):
    """The links to a management node, by which several tasks can ask at once."""

    async def execute(
        self,
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
        pending = await self._mgmt_link.execute_operation(
            message, answered, timeout=timeout, operation=operation, type=operation_type
        )
        try:
            while not answers:
                if self._mgmt_error is not None:  # the link is gone
                    raise self._mgmt_error
                if time.monotonic() >= until:
                    raise TimeoutError(f"Failed to receive mgmt response in {timeout} seconds")
                await self._connection.listen()
        finally:
            self._mgmt_link.cancel_operation(pending)
        result, status, description, answer, error = answers[0]
        if result in _FAILED and error is not None:
            raise error
        return status, description, answer
