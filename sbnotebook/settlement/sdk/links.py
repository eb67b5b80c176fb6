"""Links and connections of the SDK's clients: open, open again, and closed without needless waits.

Half a second to open a client, and half a second to close it, are much where a person waits for one message. And after
10,000 requests on one link the SDK waits for an answer that never comes.
"""

# pyright: reportPrivateUsage=false, reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false, reportAttributeAccessIssue=false, reportPrivateImportUsage=false
# pyright: reportOptionalMemberAccess=false

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

from azure.servicebus._pyamqp.aio import _transport_async
from azure.servicebus._pyamqp.constants import LinkState
from azure.servicebus.exceptions import SessionLockLostError

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusReceiver, ServiceBusSender

    from sbnotebook.settlement.sdk.management import Browser

__all__ = ["catch_up", "hang_up", "is_attached", "is_open", "line_of", "reopen", "spare_waits"]

_LOOKS: Final = 20
"""Frames that may come before a client is open: twice as many as do."""
_GLANCE: Final = 0.005
"""Seconds to look for frames that have come already."""
_MANY_FRAMES: Final = 100


async def _receive_frame(transport: Any, timeout: float | None = None, **options: Any) -> tuple[Any, Any]:  # noqa: ASYNC109 (the SDK's)
    try:
        async with asyncio.timeout(timeout):
            header, channel, payload = await transport.read(**options)
    except (TimeoutError, asyncio.IncompleteReadError):
        return None, None
    decoded: Any = _transport_async.decode_frame(payload) if payload else _transport_async.decode_empty_frame(header)
    return channel, decoded


# The SDK waits for each frame by asyncio.wait_for, which up to Python 3.11 makes a task of it: that takes longer than
# to read the frame. This is the same without one.
_transport_async.AsyncTransportMixin.receive_frame = _receive_frame


def is_open(client: ServiceBusReceiver | ServiceBusSender) -> bool:
    """Return whether a client's connection and link stand, as far as the SDK has noticed; see :func:`catch_up`."""
    handler: Any = client._handler
    return handler is not None and client._running and is_attached(handler)


def is_attached(handler: Any) -> bool:
    """Return whether the connection and link of a client's handler stand."""
    link, connection = handler._link, handler._connection
    if link is None or link.state is not LinkState.ATTACHED or connection is None or connection._error is not None:
        return False
    # A connection that the other side has ended is seen here before the SDK reads from it.
    reader = getattr(connection._transport, "reader", None)
    return reader is None or not (reader.at_eof() or reader.exception())


async def catch_up(client: ServiceBusReceiver | ServiceBusSender) -> None:
    """Let the SDK read what the service has said meanwhile, such as that the link is detached, for :func:`is_open`."""
    handler: Any = client._handler
    if handler is not None and handler._connection is not None:
        with contextlib.suppress(Exception):  # what is wrong with it, is_open tells
            await handler._connection.listen(wait=_GLANCE, batch=_MANY_FRAMES)


async def reopen(client: ServiceBusReceiver | ServiceBusSender) -> None:
    """Open a receiver or sender, or open it again when its connection or link was lost; nothing when it is open.

    Raises:
        ServiceBusError: it could not be opened, and nothing was sent.
        SessionLockLostError: it is a session's receiver, whose lock is lost with the link.
    """
    if is_open(client):
        return
    _refuse_lost_session(client)
    await hang_up(line_of(client))
    with contextlib.suppress(Exception):  # it is broken: what matters is the new one
        await client._close_handler()
    client._handler, client._running = None, False
    await client._open_with_retry()


def _refuse_lost_session(client: ServiceBusReceiver | ServiceBusSender) -> None:
    # The SDK would lock the session again, and the locks of what was received before are none any more.
    session: Any = getattr(client, "session", None)
    if session:
        raise SessionLockLostError(message=f"The link of session {session.session_id!r} is gone.")


def line_of(client: ServiceBusReceiver | ServiceBusSender) -> Any:
    """Return the transport of a client, for :func:`hang_up`; the SDK forgets a broken one without closing it."""
    handler: Any = client._handler
    connection = None if handler is None else handler._connection
    return None if connection is None else connection._transport


async def hang_up(line: Any) -> None:
    """Close a transport; nothing when it is closed."""
    if line is not None:
        with contextlib.suppress(Exception):
            await line.close()


def spare_waits(client: ServiceBusReceiver | ServiceBusSender | Browser) -> None:
    """Have a client opened and closed without the time that the SDK sleeps meanwhile, and its socket closed, too.

    The SDK sleeps after each frame that comes until the client is open. When it closes one, it waits up to a second
    until the task that keeps the connection alive has slept, and forgets the socket of a connection that is broken.
    Requests to the management node are answered for as long as the client is open, however many they are.
    """
    create: Any = client._create_handler
    close: Any = client._close_handler

    def create_ready(auth: Any) -> None:
        create(auth)
        _look_often(client._handler)
        _take_more_answers(client._handler)

    async def close_all() -> None:
        handler: Any = client._handler
        transport: Any = None
        if handler is not None:
            transport = getattr(handler._connection, "_transport", None)
            _end_keeping_alive(handler)
        try:
            await close()
        finally:
            if transport is not None:
                with contextlib.suppress(Exception):  # it is closed already
                    await transport.close()

    client._create_handler = create_ready
    client._close_handler = close_all


def _look_often(handler: Any) -> None:
    look: Any = handler.client_ready_async

    async def look_often() -> bool:
        for _ in range(_LOOKS):
            if await look():  # which waits for a frame if it is not
                vars(handler).pop("client_ready_async", None)  # from now on it is asked with every send
                return True
        return False

    handler.client_ready_async = look_often


def _take_more_answers(handler: Any) -> None:
    """Let the service answer again before it has sent as many answers as the SDK says once that it takes, 10,000."""
    ask: Any = handler.mgmt_request_async

    async def ask_for_more(*request: Any, **options: Any) -> Any:
        for node in tuple(handler._mgmt_links.values()):
            answers = node._mgmt_link._response_link
            if answers.current_link_credit < answers.link_credit // 2:
                answers._received_delivery_tags.clear()  # the SDK keeps those of all answers, and needs none of them
                await answers.flow()
        return await ask(*request, **options)

    handler.mgmt_request_async = ask_for_more


def _end_keeping_alive(handler: Any) -> None:
    if handler._keep_alive_thread is not None:
        handler._keep_alive_thread.cancel()
        handler._keep_alive_thread = None
