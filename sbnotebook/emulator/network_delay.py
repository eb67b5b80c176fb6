"""A line to the emulator that is as long as asked for: every byte arrives later, in each direction."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from sbnotebook.emulator.service.broker import Broker

_ROUND_TRIP = 2  # Delays that opening a connection takes before the client sends its first byte


class DelayedLine(asyncio.Protocol, asyncio.Transport):
    """The protocol of a socket, and the transport of the protocol that it serves: it passes everything on, later."""

    def __init__(self, protocol: asyncio.Protocol, broker: Broker) -> None:
        super().__init__()
        self._protocol = protocol
        self._broker = broker
        self._inward, self._outward = _Lane(broker), _Lane(broker)
        self._socket: asyncio.Transport | None = None
        self._is_closing = False

    # ---------------------------------------------------------------- from the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        self._inward.hold(_ROUND_TRIP)
        self._protocol.connection_made(self)

    def data_received(self, data: bytes) -> None:
        if self._inward.free_at or self._broker.faults.network_delay_ms:
            self._inward.carry(lambda: self._protocol.data_received(data))
        else:
            self._protocol.data_received(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._socket = None
        self._inward.carry(lambda: self._protocol.connection_lost(exc))

    def pause_writing(self) -> None:
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        self._protocol.resume_writing()

    # ---------------------------------------------------------------- to the socket

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = cast("asyncio.Protocol", protocol)

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

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

    def _send(self, data: bytes | bytearray | memoryview) -> None:
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
        if not (self.free_at or self._delay()):
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
