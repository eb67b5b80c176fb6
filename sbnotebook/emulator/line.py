"""A client's line to the emulator: what speaks over it, how long it takes, and how long it may be silent."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, Final, cast

from sbnotebook.emulator.logs import clean_logger
from sbnotebook.emulator.service.broker import Broker
from sbnotebook.emulator.service.peer import AmqpPeer

_LOGGER: Final = clean_logger(__name__)
# The first letters of the methods of HTTP; AMQP begins with an A, and TLS with a control character
_HTTP_INITIALS: Final = frozenset(b"CDGHOPT")
_SILENCE: Final = 30.0  # Seconds that a client may take to its first byte, or to the end of its first request's head
_DEAF: Final = 30.0  # Seconds that a client over HTTP may take to read what fills its connection
_END_OF_HEAD: Final = b"\r\n\r\n"
_MAX_HEAD: Final = 65_536  # The most bytes of a head to wait for; more than the server for HTTP accepts
_ROUND_TRIP: Final = 2  # Delays that opening a connection takes before the client sends its first byte


class Line(asyncio.Protocol, asyncio.Transport):
    """The protocol of a socket, and the transport of AMQP or HTTP behind it: it passes everything on, later.

    The first byte shows which of the two it is; HTTP begins once the request's head is complete. A connection that
    stays silent, never completes a head, or does not read what it asked for over HTTP, is ended: it would keep its
    place for ever.
    """

    def __init__(self, broker: Broker, http: Callable[[], asyncio.Protocol]) -> None:
        super().__init__()
        self._broker = broker
        self._new_http = http
        self._protocol: asyncio.Protocol | None = None
        self._hear: Callable[[bytes], None] = self._sniff
        self._inward, self._outward = _Lane(broker), _Lane(broker)
        self._socket: asyncio.Transport | None = None
        self._is_http = self._is_closing = False
        self._end: asyncio.TimerHandle | None = None
        self._head = bytearray()

    # ---------------------------------------------------------------- from the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        self._inward.hold(_ROUND_TRIP)
        self._end_after(_SILENCE)
        self._broker.connections.arrive(self)

    def data_received(self, data: bytes) -> None:
        if self._inward.free_at or self._broker.faults.network_delay_ms:
            self._inward.carry(self._hear, data)
        else:
            self._hear(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._socket = None
        self._inward.carry(self._lose, exc)

    def pause_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.pause_writing()
            self._end_after(_DEAF if self._is_http else None)

    def resume_writing(self) -> None:
        if self._protocol is not None:
            self._protocol.resume_writing()
            self._end_after(None)

    def _sniff(self, data: bytes) -> None:
        if self._protocol is not None:  # its delay began before the first byte arrived
            self._protocol.data_received(data)
            return
        searched = max(len(self._head) - len(_END_OF_HEAD), 0)
        self._head += data
        if self._head.startswith(b"A"):
            self._speak(AmqpPeer(self._broker))
        elif self._head[0] not in _HTTP_INITIALS:
            _LOGGER.info("A client speaks neither AMQP nor HTTP. TLS has a port of its own: --tls.")
            self.abort()
        elif self._head.find(_END_OF_HEAD, searched) >= 0 or len(self._head) > _MAX_HEAD:
            self._speak(self._new_http(), is_http=True)  # which refuses a head that is too long

    def _speak(self, protocol: asyncio.Protocol, *, is_http: bool = False) -> None:
        if not self.is_closing():
            self._end_after(None)
            self._protocol, self._hear, self._is_http = protocol, protocol.data_received, is_http
            if is_http:
                self._broker.connections.speak_http(self)
            protocol.connection_made(self)
            protocol.data_received(bytes(self._head))
            self._head.clear()

    def _lose(self, exc: Exception | None) -> None:
        self._end_after(None)
        self._broker.connections.leave(self)
        if self._protocol is not None:
            self._protocol.connection_lost(exc)

    def _end_after(self, seconds: float | None) -> None:
        if self._end is not None:
            self._end.cancel()
        self._end = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self.abort)

    # ---------------------------------------------------------------- to the socket

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default if self._socket is None else self._socket.get_extra_info(name, default)

    def is_closing(self) -> bool:
        return self._is_closing or self._socket is None or self._socket.is_closing()

    def pause_reading(self) -> None:
        if self._socket is not None:
            self._socket.pause_reading()

    def resume_reading(self) -> None:
        if self._socket is not None:
            self._socket.resume_reading()

    def get_write_buffer_size(self) -> int:
        return 0 if self._socket is None else self._socket.get_write_buffer_size()

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._outward.free_at or self._broker.faults.network_delay_ms:
            self._outward.carry(self._send, bytes(data))
        elif self._socket is not None and not self._socket.is_closing():
            self._socket.write(data)

    def close(self) -> None:
        self._is_closing = True
        self._outward.carry(self._hang_up)

    def abort(self) -> None:
        self._is_closing = True
        if self._socket is not None:
            self._socket.abort()

    def _send(self, data: bytes) -> None:
        if self._socket is not None and not self._socket.is_closing():
            self._socket.write(data)

    def _hang_up(self) -> None:
        if self._socket is not None:
            self._socket.close()


class _Lane:
    """One direction: calls that happen after the delay, in the order in which they were asked for."""

    def __init__(self, broker: Broker) -> None:
        self.free_at = 0.0  # until when it carries something; 0 for nothing
        self._broker = broker
        self._under_way: deque[tuple[Callable[..., None], Any]] = deque()

    def _delay(self) -> float:
        return self._broker.faults.network_delay_ms / 1000

    def hold(self, delays: int) -> None:
        """Carry nothing for so many delays, in addition to the first."""
        if self._delay():
            self.free_at = asyncio.get_running_loop().time() + (delays + 1) * self._delay()

    def carry(self, act: Callable[..., None], *arguments: Any) -> None:
        """Call ``act`` after the delay; at once where there is none."""
        if not (self.free_at or self._broker.faults.network_delay_ms):
            act(*arguments)
            return
        loop = asyncio.get_running_loop()
        self.free_at = max(self.free_at, loop.time() + self._delay())
        self._under_way.append((act, arguments))
        loop.call_at(self.free_at, self._arrive)

    def _arrive(self) -> None:
        act, arguments = self._under_way.popleft()
        if not (self._under_way or self._delay()):
            self.free_at = 0.0
        act(*arguments)
