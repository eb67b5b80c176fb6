"""Links and connections of the SDK's clients: open or not, opened again, and without the SDK's needless waits."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

import anyio
from azure.servicebus.exceptions import (
    OperationTimeoutError,
    ServiceBusConnectionError,
    ServiceBusError,
    SessionLockLostError,
)

from sbnotebook.settlement.sdk.protocol import (
    AnyClient,
    Browser,
    Client,
    Handler,
    LinkState,
    ManagementLinkState,
    ReceiverLink,
    Socket,
    private,
)
from sbnotebook.settlement.sdk.tokens import is_expired, stop_refreshing

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage
    from azure.servicebus.aio import ServiceBusReceiver, ServiceBusSender

__all__ = [
    "catch_up",
    "frame_size",
    "hang_up",
    "is_attached",
    "is_open",
    "is_ready",
    "line_of",
    "receive",
    "reopen",
    "spare_waits",
]

_OPEN_LINKS: Final = (ManagementLinkState.OPENING, ManagementLinkState.OPEN)
_LOOKS: Final = 20
"""Frames that may come before a client is open: twice as many as do."""
_GLANCE: Final = 0.005
"""Seconds to look for frames that have come already."""
_MANY_FRAMES: Final = 100
_MANY_DETACHES: Final = 10
"""More than come together: the SDK stops to read behind each."""
_ANSWER_WITHIN: Final = 60.0
_HANG_UP_WITHIN: Final = 2.0
"""Seconds."""
_OPEN_WITHIN: Final = 60.0
"""Seconds to connect, to have a token confirmed and to attach a link; those to wait for a session come on top."""


def is_open(client: ServiceBusReceiver | ServiceBusSender) -> bool:
    """Return whether a client's connection and link are open, as far as the SDK has noticed; see :func:`catch_up`.

    They are not with an expired token: the SDK would refuse all work over them.
    """
    parts = private(client)
    handler: Handler | None = parts._handler
    return handler is not None and parts._running and is_attached(handler) and not is_expired(handler)


def is_attached(handler: Handler) -> bool:
    """Return whether the connection and the link of a client's handler are open."""
    link, connection = handler._link, handler._connection
    if link is None or link.state is not LinkState.ATTACHED or connection is None or connection._error is not None:
        return False
    # A connection that the other side has ended is seen here before the SDK reads from it.
    reader = getattr(connection._transport, "reader", None)
    return reader is None or not (reader.at_eof() or reader.exception())


def is_ready(browser: Browser) -> bool:
    """Return whether a browser is open and has an open link for requests, as far as the SDK has noticed."""
    parts = private(browser)
    handler: Handler | None = parts._handler
    if handler is None or not parts._running or handler._connection is None or handler._connection._error is not None:
        return False
    return bool(handler._mgmt_links) and all(node._mgmt_error is None for node in handler._mgmt_links.values())


async def catch_up(client: ServiceBusReceiver | ServiceBusSender) -> None:
    """Let the SDK read what the service has said meanwhile, such as a detach, so that :func:`is_open` knows it."""
    handler: Handler | None = private(client)._handler
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
    """Open a receiver or sender, or open it again after it lost its connection or link; nothing when it is open.

    Raises:
        ServiceBusError: it could not be opened. Nothing was sent.
        SessionLockLostError: it is the receiver of a session, whose lock is lost with the link.
    """
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


async def receive(receiver: ServiceBusReceiver, count: int, max_wait: float) -> list[ServiceBusReceivedMessage]:
    """Receive messages, once more over a new link if the receiver loses its own meanwhile.

    Args:
        receiver: an open one.
        count: messages at most.
        max_wait: seconds to wait for the first.

    Raises:
        ServiceBusError: Service Bus refused, or did not answer over the new link either.
        SessionLockLostError: it is the receiver of a session, whose lock is lost with the link.
    """
    try:
        return await receiver.receive_messages(count, max_wait_time=max_wait)
    except ServiceBusConnectionError:
        await reopen(receiver)
        return await receiver.receive_messages(count, max_wait_time=max_wait)


def line_of(client: ServiceBusReceiver | ServiceBusSender) -> Socket | None:
    """Return a client's socket for :func:`hang_up`; the SDK forgets a broken one without closing it."""
    handler: Handler | None = private(client)._handler
    return None if handler is None or handler._connection is None else handler._connection._transport


def frame_size(client: ServiceBusReceiver | ServiceBusSender) -> int | None:
    """Return the bytes of the largest frame that the service takes, as it said when the client was opened."""
    handler = private(client)._handler
    return handler._connection._remote_max_frame_size if handler and handler._connection else None


async def hang_up(line: Socket | None) -> None:
    """Close a socket, also if the work around it was cancelled; nothing if it is closed.

    A transaction that is open is rolled back when its connection ends, and over TLS the SDK closes the socket only
    after a moment of waiting.
    """
    if line is not None:
        with anyio.move_on_after(_HANG_UP_WITHIN, shield=True), contextlib.suppress(Exception):
            await line.close()


def spare_waits(client: AnyClient) -> None:
    """Have a client open and close without the SDK's sleeps, in limited time, and close its socket, too.

    The SDK sleeps after each frame until the client is open, half a second in all, and waits without end for a service
    that is silent. Closing one, it waits up to a second for the task that keeps the connection alive, and it forgets
    the socket of a broken connection. It also stops to answer after 10,000 requests to the management node; here there
    is no limit.

    Args:
        client: not open yet.
    """
    parts = private(client)
    create, close = parts._create_handler, parts._close_handler

    def create_ready(auth: Any) -> None:
        create(auth)
        _look_often(parts._handler)
        _take_more_answers(parts, parts._handler)

    async def close_all() -> None:
        handler: Handler | None = parts._handler
        line = None
        if handler is not None:
            line = None if handler._connection is None else handler._connection._transport
            _end_keeping_alive(handler)
            stop_refreshing(handler)
        try:
            await close()
        finally:
            await hang_up(line)

    parts._create_handler, parts._close_handler = create_ready, close_all
    _open_in_time(parts)


def _open_in_time(parts: Client) -> None:
    open_once = parts._open

    async def open_in_time(*given: Any, **options: Any) -> None:
        if parts._running:
            return
        within = _OPEN_WITHIN + (getattr(parts, "_max_wait_time", None) or 0)
        with anyio.move_on_after(within) as scope:
            await open_once(*given, **options)
        if scope.cancelled_caught:
            place = parts._auth_uri.partition("://")[2]
            text = f"No link to {place} could be opened in {within:g} seconds: Service Bus did not answer."
            raise _given_up(ServiceBusConnectionError(message=text))

    parts._open = open_in_time


def _given_up(error: ServiceBusError) -> ServiceBusError:
    private(error)._retryable = False  # by the SDK, which would wait as long again
    return error


def _look_often(handler: Handler) -> None:
    look = handler.client_ready_async

    async def look_often() -> bool:
        for _ in range(_LOOKS):
            if await look():  # which waits for a frame if it is not
                vars(handler).pop("client_ready_async", None)  # from now on it is asked with every send
                return True
        return False

    handler.client_ready_async = look_often


def _take_more_answers(parts: Client, handler: Handler) -> None:
    """Give the service new credit for answers, wait for each for a limited time, and replace a link that is gone.

    The SDK gives credit once, for 10,000 answers, and waits without end. The service detaches a link that is idle for
    ten minutes, and the SDK does not open another one.
    """
    ask = handler.mgmt_request_async

    async def ask_for_more(*request: Any, **options: Any) -> Any:
        for name, node in tuple(handler._mgmt_links.items()):
            if node._mgmt_error is not None or node._mgmt_link.state not in _OPEN_LINKS:
                del handler._mgmt_links[name]  # the SDK would raise it for each further request, and opens another now
                continue
            answers: ReceiverLink = node._mgmt_link._response_link
            if answers.current_link_credit < answers.link_credit // 2:
                answers._received_delivery_tags.clear()  # the SDK keeps those of all answers, and uses none of them
                await answers.flow()
        answer = None
        with anyio.move_on_after(_ANSWER_WITHIN) as scope:
            answer = await ask(*request, **options)
        if scope.cancelled_caught:
            place = parts._auth_uri.partition("://")[2]
            # Azure was seen to give no answer about a missing subscription (azure-sdk-for-net 43492).
            hint = ": check that the subscription exists" if "/subscriptions/" in place.casefold() else ""
            text = f"{place} did not answer a request in {_ANSWER_WITHIN:g} seconds{hint}."
            error = _given_up(OperationTimeoutError(message=text))
            private(error)._shutdown_handler = handler._link is None  # no message came on a link of this connection
            raise error
        return answer

    handler.mgmt_request_async = ask_for_more


def _end_keeping_alive(handler: Handler) -> None:
    if handler._keep_alive_thread is not None:
        handler._keep_alive_thread.cancel()
        handler._keep_alive_thread = None
