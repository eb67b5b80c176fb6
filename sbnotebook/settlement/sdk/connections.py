"""Connections of sbnotebook's own, which several tasks use at once, their links, and their refreshed tokens.

The first task that waits reads frames for all, and wakes the others. A valid token serves until the service has
confirmed the next one.

The SDK refreshes a token when a tenth of its lifetime is left, in the middle of the next operation. It marks the
connection as 'in progress' before it asks the credential. If the credential then fails or is slow, or the caller is
cancelled, the connection refuses all further work, although its token is valid for minutes. The locks of its messages
end, and nothing can be released.

Source: ``update_token`` and ``handle_token`` in ``_pyamqp/aio/_cbs_async.py`` of azure-servicebus 7.15.

In the SDK, tasks that share a connection hold each other up. No task writes while another waits for a frame. A task
whose answer was read by another task notices it a tenth of a second later. Tasks that send large messages at once mix
up their frames, because a session counts a transfer only after it has written it. A request that the service rejects
fails all requests that wait at that moment.

The classes here are subclasses of the SDK's, which stay as they are. :mod:`~sbnotebook.settlement.sdk.clients` makes
the connection of each receiver, sender and browser of them.

Sources: ``Session._outgoing_transfer`` in ``_pyamqp/aio/_session_async.py``, ``SenderLink._outgoing_transfer`` in
``_sender_async.py``, and ``ManagementOperation.execute`` in ``_management_operation_async.py``, of version 7.15.
"""

# The SDK's classes are untyped.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUntypedBaseClass=false

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import math
import time
from collections.abc import Generator
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

import anyio
from azure.servicebus.exceptions import ServiceBusConnectionError, SessionLockLostError

from sbnotebook.settlement.sdk.errors import given_up
from sbnotebook.settlement.sdk.private import (
    AmqpConnectionClass,
    AmqpSessionClass,
    AuthenticatorClass,
    Browser,
    CbsAuthState,
    LinkDeliverySettleReason,
    LinkState,
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
    private,
)

if TYPE_CHECKING:
    from azure.core.credentials import AccessToken
    from azure.servicebus.aio import ServiceBusReceiver, ServiceBusSender

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


def _transport_class(theirs: Any) -> type:  # noqa: C901 (it holds a class)
    """Return the subclass of a socket. With one base, the layout of its objects is the same."""

    class Transport(theirs):
        """A socket that one task writes to while another waits for a frame."""

        async def frame_come(self) -> tuple[int, Any] | None:
            """Read the channel and the fields of the next frame if all of it has come: that takes no time.

            The SDK reads the head and the rest apart, and takes as long for that as to decode them. It reads frames of
            rare kinds.
            """
            reader = getattr(self, "reader", None)
            come: bytearray = getattr(reader, "_buffer", _NOTHING)
            if reader is None or come[_SIZE:_KIND] != _PLAIN or self.socket_lock.locked() or reader.exception():
                return None
            begun, size = self._read_buffer, int.from_bytes(come[:_SIZE], "big")
            if not _HEAD < size <= len(come) or begun.tell() != len(begun.getbuffer()):
                return None
            frame = memoryview(await reader.readexactly(size))
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


_LOGGER: Final = logging.getLogger(__name__)
_FIRST_WITHIN: Final = 45.0
"""Seconds that the credential may take for the first token: less than a link has to open."""
_GLANCE_AT_TOKEN: Final = 0.1
"""Seconds that an operation waits for the credential. A shared access key needs none."""
_LOOK_AGAIN: Final = 1
"""Seconds until the next look at a credential that has not answered."""
_TRY_AGAIN: Final = 5
"""The most seconds until the next attempt: a quarter of the remaining time of the valid token."""
_LAST: Final = 5
"""Seconds before the end of the valid token in which operations wait for the next one, because they may outlast it.

They wait until that end, when the SDK raises that the token has expired."""
_WINDOW: Final = 0.1
"""The part of a token's life in which it is refreshed; the SDK's."""


async def refresh_if_due(receiver: ServiceBusReceiver) -> None:
    """Refresh the token of a receiver's connection if that is due; the SDK does so only when the receiver is used."""
    handler = private(receiver)._handler
    if handler is not None:
        with contextlib.suppress(Exception):  # the next operation reports the fault
            await handler.auth_complete_async()


def is_expired(handler: Any) -> bool:
    """Return whether the token of a client's connection has expired, and no next one is on its way."""
    cbs = handler._cbs_authenticator
    return cbs is not None and cbs.auth_state is not CbsAuthState.IN_PROGRESS and cbs._expires_on <= time.time()


def stop_refreshing(handler: Any) -> None:
    """Ask the credential no longer for a token of a connection that is closed; nothing where it is not being asked."""
    coming: asyncio.Task[AccessToken | None] | None = getattr(handler._cbs_authenticator, "_coming", None)
    if coming is not None:
        coming.cancel()


class RefreshingAuthenticator(AuthenticatorClass):
    """The token of one connection, refreshed without waiting for it."""

    _coming: asyncio.Task[AccessToken | None] | None = None
    """Asks the credential for the next token."""
    _sent: AccessToken | None = None
    """The next token, which was sent and is not confirmed."""

    async def update_token(self) -> None:
        """Put the first token, or begin to refresh it."""
        if self.auth_state is not CbsAuthState.REFRESH_REQUIRED:
            # Without it nothing works, so wait for it.
            with first_token():
                await super().update_token()
            return
        # The SDK asks again when this is left of the valid token.
        self.auth_state = CbsAuthState.OK
        left = int(self._expires_on - time.time())
        self._refresh_window = left - _LOOK_AGAIN
        # Ask the credential in a separate task, which no operation cancels, and send its token when it arrives.
        coming: asyncio.Task[AccessToken | None] = self._coming or asyncio.create_task(_asked(self))
        self._coming = coming
        await asyncio.wait({coming}, timeout=_GLANCE_AT_TOKEN if left > _LAST else max(left, _GLANCE_AT_TOKEN))
        if not coming.done():
            return
        self._coming = None
        token = None if coming.cancelled() else coming.result()
        self._refresh_window = left - max(_LOOK_AGAIN, min(_TRY_AGAIN, left // 4))
        if token is not None:
            self._sent = token
            await put_token(self, self._auth, token)
            if left <= _LAST:
                self.auth_state, self._token_put_time = CbsAuthState.IN_PROGRESS, int(time.time())

    async def _on_execute_operation_complete(
        self,
        result: PutResult,
        status: int | None,
        description: str | None,
        answer: Any,
        error_condition: str | None = None,
        error: Exception | None = None,
    ) -> None:
        token: AccessToken | None = self._sent
        if token is None:
            # The SDK passes 'error' where the service has rejected the request, and does not take it.
            await super()._on_execute_operation_complete(result, status, description, answer, error_condition or error)
            return
        self._sent = None
        self.auth_state = CbsAuthState.OK  # any token that it has; next, the SDK checks whether that has expired
        if result is not PutResult.OK or error_condition:
            _LOGGER.warning("A refreshed token was refused, which is tried again: %s", error_condition or status)
            return
        self._expires_on = token.expires_on
        self._refresh_window = int((token.expires_on - time.time()) * _WINDOW)


@contextlib.contextmanager
def first_token() -> Generator[None]:
    """Limit the time of a block that waits for the credential's first token, in which a user may sign in."""
    with anyio.move_on_after(_FIRST_WITHIN) as scope:
        yield
    if scope.cancelled_caught:
        text = (
            f"The credential gave no token in {_FIRST_WITHIN:g} seconds: finish signing in and try again, or check "
            "that this machine reaches the service that gives tokens."
        )
        raise given_up(ServiceBusConnectionError(message=text))


async def put_token(cbs: Any, auth: Any, token: AccessToken) -> None:
    kind, until = auth.token_type, datetime.fromtimestamp(token.expires_on, UTC)
    await cbs._put_token(token.token, kind.decode() if isinstance(kind, bytes) else kind, auth.audience, until)


async def _asked(cbs: Any) -> AccessToken | None:
    try:
        return await cbs._auth.get_token()
    except Exception as error:  # noqa: BLE001 (after any error of the credential, the valid token still works)
        _LOGGER.warning("A token could not be refreshed, which is tried again: %s", type(error).__name__)
        return None


_GLANCE: Final = 0.005
"""Seconds to look for frames that have come already."""
_MANY_FRAMES: Final = 100
_MANY_DETACHES: Final = 10
"""More than come together: the SDK stops to read behind each."""
_CLOSE_WITHIN, _HANG_UP_WITHIN = 5.0, 2.0
"""Seconds."""


def is_open(client: ServiceBusReceiver | ServiceBusSender) -> bool:
    """Return whether the link is open and its token has not expired; see :func:`catch_up`."""
    parts = private(client)
    handler = parts._handler
    return bool(handler is not None and parts._running and is_attached(handler) and not is_expired(handler))


def is_attached(handler: Any) -> bool:
    link, connection = handler._link, handler._connection
    if link is None or link.state is not LinkState.ATTACHED or connection is None or connection._error is not None:
        return False
    # A connection that the other side has ended is seen here before the SDK reads from it.
    reader = getattr(connection._transport, "reader", None)
    return reader is None or not (reader.at_eof() or reader.exception())


def is_ready(browser: Browser) -> bool:
    """Return whether a browser is open and has an open link for requests, as far as the SDK has noticed."""
    parts = private(browser)
    handler = parts._handler
    if handler is None or not parts._running or handler._connection is None or handler._connection._error is not None:
        return False
    return bool(handler._mgmt_links) and all(node._mgmt_error is None for node in handler._mgmt_links.values())


async def catch_up(client: ServiceBusReceiver | ServiceBusSender) -> None:
    """Let the SDK read what the service has said meanwhile, such as a detach, so that :func:`is_open` knows it."""
    handler = private(client)._handler
    connection = None if handler is None else handler._connection
    if connection is None:
        return
    for _ in range(2):  # the first turn of the loop finds the bytes on the socket, the second one has read them
        await asyncio.sleep(0)
    reader = getattr(connection._transport, "reader", None)
    # Bytes that have come may be part of a frame, or an empty one, and the end of the connection behind it.
    if reader is None or reader._buffer or reader.at_eof() or reader.exception():
        with contextlib.suppress(Exception):  # is_open reports its fault
            for _ in range(_MANY_DETACHES):
                before = connection._last_frame_received_time
                await connection.listen(wait=_GLANCE, batch=_MANY_FRAMES)
                if connection._last_frame_received_time == before:
                    return


async def reopen(client: ServiceBusReceiver | ServiceBusSender) -> None:
    """Open a receiver or sender, or open it again after it lost its connection or link; nothing when it is open."""
    if is_open(client):
        return
    session: Any = getattr(client, "session", None)
    if session:
        # The SDK would lock the session again, but the locks of the messages received before are gone.
        raise SessionLockLostError(message=f"The link of session {session.session_id!r} is gone.")
    await hang_up(line_of(client))
    parts = private(client)
    with contextlib.suppress(Exception):  # it is broken: only the new one matters
        await parts._close_handler()
    parts._handler, parts._running = None, False
    await parts._open_with_retry()


def line_of(client: ServiceBusReceiver | ServiceBusSender) -> Any:
    """Return a client's socket for :func:`hang_up`; the SDK forgets a broken one without closing it."""
    handler = private(client)._handler
    return None if handler is None or handler._connection is None else handler._connection._transport


def frame_size(client: ServiceBusReceiver | ServiceBusSender) -> int | None:
    """Return the bytes of the largest frame that the service takes, as it said when the client was opened."""
    handler = private(client)._handler
    return handler._connection._remote_max_frame_size if handler and handler._connection else None


async def close(client: Any) -> None:
    """Close a client in limited time; one that is broken must not hide the error that ended the work."""
    with anyio.move_on_after(_CLOSE_WITHIN, shield=True), contextlib.suppress(Exception):
        await client.close()


async def hang_up(line: Any) -> None:
    """Close a socket, also if the work around it was cancelled; nothing if it is closed.

    A transaction that is open is rolled back when its connection ends, and over TLS the SDK closes the socket only
    after a moment of waiting.
    """
    if line is None:
        return
    with anyio.move_on_after(_HANG_UP_WITHIN, shield=True), contextlib.suppress(Exception):
        await line.close()
    # The SDK leaves the session of a WebSocket that never opened.
    session = getattr(line, "session", None)
    if session is not None:
        with anyio.move_on_after(_HANG_UP_WITHIN, shield=True), contextlib.suppress(Exception):
            await session.close()
