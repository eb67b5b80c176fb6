"""Links and connections of the SDK's clients: open or not, and opened again."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, Final

import anyio
from azure.servicebus.exceptions import SessionLockLostError

from sbnotebook.settlement.sdk.private import Browser, LinkState, private
from sbnotebook.settlement.sdk.tokens import is_expired

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusReceiver, ServiceBusSender

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
