"""Frames, cut out of bytes that arrive in any pieces, and written back.

A frame is its size (4 bytes, itself included), the offset of its body in words of 4 bytes, a type,
a channel (2 bytes), an optional extended header, which is ignored, and the body.

Source: AMQP 1.0 part 2, transport, section 2.3.
"""

from __future__ import annotations

import struct
from typing import Final

from sbnotebook.errors import ProtocolViolationError

AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1
HEADER_SIZE: Final = 8
"""Bytes of a frame before its body; a protocol header is as long."""
MIN_MAX_FRAME_SIZE: Final = 512
"""Every peer must take frames of this size."""
EMPTY_FRAME: Final = bytes.fromhex("0000000802000000")

_HEADER: Final = struct.Struct(">IBBH")


Frame = tuple[int, int, bytes]
"""The type of a frame, its channel, and its body. An empty body only shows that the peer is alive."""


class FrameReader:
    """Cuts a stream of bytes into protocol headers and frames."""

    def __init__(self, max_frame_size: int) -> None:
        self._max_frame_size = max_frame_size
        self._buffer = bytearray()
        self._offset = 0

    def receive(self, data: bytes) -> None:
        del self._buffer[: self._offset]
        self._offset = 0
        self._buffer += data

    @property
    def unread(self) -> int:
        return len(self._buffer) - self._offset

    def clear(self) -> None:
        self._buffer, self._offset = bytearray(), 0

    def next_header(self) -> bytes | None:
        """Return the next 8 bytes, where a protocol header is due; None until all have arrived."""
        if self.unread < HEADER_SIZE:
            return None
        start, self._offset = self._offset, self._offset + HEADER_SIZE
        return bytes(self._buffer[start : self._offset])

    def next_frame(self) -> Frame | None:
        start, left = self._offset, len(self._buffer) - self._offset
        if left < HEADER_SIZE:
            return None
        # The header says how long the frame is.
        size, words, kind, channel = _HEADER.unpack_from(self._buffer, start)
        if size > self._max_frame_size:
            raise ProtocolViolationError(f"A frame of {size} bytes is larger than {self._max_frame_size} bytes.")
        if not HEADER_SIZE <= 4 * words <= size:
            raise ProtocolViolationError("The header of a frame makes no sense.")
        if left < size:
            return None
        end = self._offset = start + size
        return kind, channel, bytes(self._buffer[start + 4 * words : end])


class FrameWriter:
    def __init__(self) -> None:
        self.max_body_size = MIN_MAX_FRAME_SIZE - HEADER_SIZE
        self.size = 0  # bytes that were written since the last ``take``
        self._parts: list[bytes] = []

    def write(self, channel: int, body: bytes, payload: bytes = b"", *, kind: int = AMQP_FRAME) -> None:
        """Add one frame. The caller makes sure that it is not too large."""
        size = HEADER_SIZE + len(body) + len(payload)
        self._parts += (_HEADER.pack(size, 2, kind, channel), body, payload)
        self.size += size

    def write_bytes(self, data: bytes) -> None:
        """Add bytes as they are: a protocol header, an empty frame."""
        self._parts.append(data)
        self.size += len(data)

    def take(self) -> bytes:
        data = b"".join(self._parts)
        self._parts.clear()
        self.size = 0
        return data
