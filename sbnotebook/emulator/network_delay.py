"""A line to the emulator that is as long as asked for: every byte arrives later, in each direction."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Any, cast

_ROUND_TRIP = 2
"""Delays that opening a connection takes before the client sends its first byte."""


def delayed(protocol: asyncio.Protocol, delay: Callable[[], float]) -> asyncio.Protocol:
    """Return a protocol for a socket that passes everything on to another, later."""
    return _Line(protocol, delay)


class _Line(asyncio.Protocol, asyncio.Transport):
    """The protocol of a socket, and the transport of the protocol that it serves."""

    def __init__(self, protocol: asyncio.Protocol, delay: Callable[[], float]) -> None:
        super().__init__()
        self._protocol = protocol
        self._delay = delay
        self._inward, self._outward = _Lane(delay), _Lane(delay)
        self._socket: asyncio.Transport | None = None
        self._is_closing = False

    # ---------------------------------------------------------------- from the socket

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        self._inward.hold(_ROUND_TRIP * self._delay())
        self._protocol.connection_made(self)

    def data_received(self, data: bytes) -> None:
        if self._inward.is_free:
            self._protocol.data_received(data)
        else:
            self._inward.carry(lambda: self._protocol.data_received(data))

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
        if self._outward.is_free:
            self._send(data)
        else:
            self._outward.carry(self._send, bytes(data))

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

    def __init__(self, delay: Callable[[], float]) -> None:
        self._delay = delay
        self._under_way: deque[tuple[Callable[..., None], Any]] = deque()
        self._free_at = 0.0

    @property
    def is_free(self) -> bool:
        """Return whether calls happen at once: there is no delay, and none is waiting."""
        return not (self._free_at or self._delay())

    def hold(self, seconds: float) -> None:
        """Carry nothing for so long, in addition to the delay."""
        if seconds:
            self._free_at = asyncio.get_running_loop().time() + seconds + self._delay()

    def carry(self, act: Callable[..., None], *arguments: Any) -> None:
        """Call ``act`` after the delay; at once where there is none."""
        if self.is_free:
            act(*arguments)
            return
        loop = asyncio.get_running_loop()
        self._free_at = max(self._free_at, loop.time() + self._delay())
        self._under_way.append((act, arguments))
        loop.call_at(self._free_at, self._arrive)

    def _arrive(self) -> None:
        act, arguments = self._under_way.popleft()
        if not (self._under_way or self._delay()):
            self._free_at = 0.0
        act(*arguments)
