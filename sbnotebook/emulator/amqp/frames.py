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
_MAX_PIECES: Final = 1024  # Pieces of a frame that wait to be joined: each one costs more than a few bytes


Frame = tuple[int, int, bytes]
"""The type of a frame, its channel, and its body. An empty body only shows that the peer is alive."""


class FrameReader:
    """Cuts a stream of bytes into protocol headers and frames."""

    def __init__(self, max_frame_size: int) -> None:
        self._max_frame_size = max_frame_size
        self._buffer = b""
        self._offset = 0
        # Pieces that are joined to the buffer only when they complete a frame, so that a large frame
        # that comes in small pieces is not copied again and again.
        self._pieces: list[bytes] = []
        self._pieces_size = 0

    def receive(self, data: bytes) -> None:
        if len(self._pieces) >= _MAX_PIECES:
            self._pieces = [b"".join(self._pieces)]
        self._pieces.append(data)
        self._pieces_size += len(data)

    @property
    def unread(self) -> int:
        return len(self._buffer) - self._offset + self._pieces_size

    def clear(self) -> None:
        self._buffer, self._offset, self._pieces, self._pieces_size = b"", 0, [], 0

    def next_header(self) -> bytes | None:
        """Return the next 8 bytes, where a protocol header is due; None until all have arrived."""
        if not self._has(HEADER_SIZE):
            return None
        start = self._offset
        self._offset = start + HEADER_SIZE
        return self._buffer[start : self._offset]

    def next_frame(self) -> Frame | None:
        # The header, which says how long the frame is.
        start = self._offset
        if start == len(self._buffer) and not self._pieces:
            self._buffer, self._offset = b"", 0
            return None
        if len(self._buffer) - start < HEADER_SIZE:
            if not self._has(HEADER_SIZE):
                return None
            start = self._offset
        size, words, kind, channel = _HEADER.unpack_from(self._buffer, start)
        if size > self._max_frame_size:
            raise ProtocolViolationError(f"A frame of {size} bytes is larger than {self._max_frame_size} bytes.")
        if not HEADER_SIZE <= 4 * words <= size:
            raise ProtocolViolationError("The header of a frame makes no sense.")
        # The whole frame.
        if len(self._buffer) - start < size:
            if not self._has(size):
                return None
            start = self._offset
        end = self._offset = start + size
        return kind, channel, self._buffer[start + 4 * words : end]

    def _has(self, size: int) -> bool:
        left = len(self._buffer) - self._offset
        if left >= size:
            return True
        if left + self._pieces_size < size:
            # Drop the bytes that were read, and keep only the others.
            self._buffer, self._offset = self._buffer[self._offset :], 0
            return False
        rest = self._buffer[self._offset :]
        self._buffer = b"".join([rest, *self._pieces] if rest else self._pieces)
        self._offset, self._pieces, self._pieces_size = 0, [], 0
        return True


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
