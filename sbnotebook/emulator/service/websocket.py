"""AMQP in a WebSocket, for clients that can only use HTTP.

Every binary message holds bytes of the AMQP connection, cut anywhere.

Source: Service Bus documentation, "AMQP 1.0 in Azure Service Bus and Event Hubs protocol guide",
"Connections and sessions"; OASIS, "AMQP WebSocket Binding".
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from aiohttp import WSMsgType, web

from sbnotebook.emulator.service.broker import Broker
from sbnotebook.emulator.service.peer import AmqpPeer

WEBSOCKET_PATH: Final = "/$servicebus/websocket"
_SUBPROTOCOL: Final = "AMQPWSB10"
_MAX_PIECE: Final = 65_536  # Bytes of one WebSocket message. Clients limit them, regardless of AMQP's frames.
_MAX_MESSAGE: Final = 524_288  # Bytes of one WebSocket message of a client, which may hold several frames
_HIGH_WATER: Final = 65_536  # Bytes that may wait to be written before reading stops, as in asyncio's own transports


def websocket_handler(broker: Broker) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Return the handler for ``WEBSOCKET_PATH``: an AMQP connection for as long as the socket lasts.

    Keys are checked as on any other AMQP connection, not by HTTP. Pages in a browser are refused: no page of another
    origin may reach the emulator, under any name.
    """

    async def handle(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=[_SUBPROTOCOL], compress=False, max_msg_size=_MAX_MESSAGE)
        if _is_from_a_browser(request):
            raise web.HTTPForbidden(text="A page in a browser cannot use the emulator.")
        if not socket.can_prepare(request):
            raise web.HTTPBadRequest(text=f"Ask for a WebSocket with the subprotocol {_SUBPROTOCOL}.")
        # The peer uses the WebSocket as if it were a socket.
        await socket.prepare(request)
        peer = AmqpPeer(broker)
        transport = _WebSocketTransport(request, peer)
        peer.connection_made(transport)
        writing = asyncio.create_task(transport.write_to(socket))
        try:
            await transport.read_from(socket)
        finally:
            writing.cancel()
            peer.connection_lost(None)
        return socket

    return handle


def _is_from_a_browser(request: web.Request) -> bool:
    # A browser always names the origin of the page and itself. The synchronous azure-servicebus names an origin, too,
    # the host that it connects to, but not itself.
    origin = request.headers.get("Origin")
    return origin is not None and ("User-Agent" in request.headers or origin.partition("://")[2] != request.host)


class _WebSocketTransport(asyncio.Transport):
    """The transport of an AMQP connection, over a WebSocket instead of a socket."""

    def __init__(self, request: web.Request, peer: AmqpPeer) -> None:
        super().__init__()
        self._request = request
        self._peer = peer
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue()  # None is the end
        self._waiting = 0
        self._is_paused = False
        self._may_read = asyncio.Event()
        self._may_read.set()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._request.transport if name == "line" else default

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def get_write_buffer_size(self) -> int:
        return self._waiting

    def write(self, data: bytes | bytearray | memoryview) -> None:
        for at in range(0, len(data), _MAX_PIECE):
            self._pieces.put_nowait(bytes(data[at : at + _MAX_PIECE]))
        self._waiting += len(data)
        if self._waiting > _HIGH_WATER and not self._is_paused:
            self._is_paused = True
            self._peer.pause_writing()

    def close(self) -> None:
        self._pieces.put_nowait(None)

    def abort(self) -> None:
        if self._request.transport is not None:
            self._request.transport.abort()

    async def read_from(self, socket: web.WebSocketResponse) -> None:
        """Pass incoming bytes on until the socket ends."""
        async for message in socket:
            if message.type is not WSMsgType.BINARY:
                return
            self._peer.data_received(message.data)
            await self._may_read.wait()

    async def write_to(self, socket: web.WebSocketResponse) -> None:
        """Send the written bytes, and close the socket when the connection is closed."""
        with suppress(ConnectionError):
            while (piece := await self._pieces.get()) is not None:
                await socket.send_bytes(piece)
                self._waiting -= len(piece)
                if self._is_paused and not self._waiting:
                    self._is_paused = False
                    self._peer.resume_writing()
            await socket.close()
