"""Frames, cut out of bytes that arrive in any pieces; the SASL layer; and the memory that clients take.

A frame is its size (4 bytes, itself included), the offset of its body in words of 4 bytes, a type,
a channel (2 bytes), an optional extended header, which is ignored, and the body.

Source: AMQP 1.0 part 2, transport, section 2.3.

With SASL, PLAIN brings a key; the other mechanisms accept every client, whose claims come over ``$cbs``.

Source: AMQP 1.0 part 5, security, section 5.3; RFC 4616 for PLAIN; for the mechanisms, their order and 'Welcome!',
traces of Azure (smallrye-reactive-messaging 987, amqpnetlite 451).

Memory is counted for each connection, and limited for each one and for all. Only memory counts that outlives a read:
sessions, links, incomplete messages, and answers that the client has not read. The emulator closes a connection beyond
its limit. Beyond the limit of a pool, the connection that takes most of the pool is dropped, or the one that has been
holding something for the longest time.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from typing import Annotated, Any, Final

from sbnotebook.amqp import Array, Described, Symbol, UByte, ULong, encode
from sbnotebook.emulator.amqp.performatives import composite, decode_composite
from sbnotebook.errors import ProtocolViolationError

AMQP_FRAME: Final = 0
SASL_FRAME: Final = 1
HEADER_SIZE: Final = 8
"""Bytes of a frame before its body; a protocol header is as long."""
MIN_MAX_FRAME_SIZE: Final = 512
"""Every peer must take frames of this size."""
EMPTY_FRAME: Final = bytes.fromhex("0000000802000000")

_HEADER: Final = struct.Struct(">IBBH")


class FrameReader:
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

    def next_header(self) -> bytes | None:
        if self.unread < HEADER_SIZE:
            return None
        start, self._offset = self._offset, self._offset + HEADER_SIZE
        return bytes(self._buffer[start : self._offset])

    def next_frame(self) -> tuple[int, int, bytes] | None:
        """Return the type of a frame, its channel, and its body, which is empty if it only shows a sign of life."""
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
        self._parts.append(data)
        self.size += len(data)

    def take(self) -> bytes:
        parts, self._parts, self.size = self._parts, [], 0
        return b"".join(parts)


MECHANISMS: Final = ("MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL")
"""Those that Azure offers, in its order. All of them need one step."""

OFFER: Final = encode(Described(ULong(0x40), [Array(map(Symbol, MECHANISMS), Symbol)]))
"""The body of the first SASL frame that the server sends: sasl-mechanisms."""
OUTCOMES: Final = {
    True: encode(Described(ULong(0x44), [UByte(0), b"Welcome!"])),
    False: encode(Described(ULong(0x44), [UByte(1)])),
}
"""That of the second one, sasl-outcome, by whether the client is accepted."""


@composite(0x41)
class SaslInit:
    mechanism: Annotated[str, Symbol]
    initial_response: Annotated[bytes | None, bytes] = None


def is_accepted(body: bytes, log_in: Callable[[str, str], bool]) -> bool:
    """Return whether a client is accepted, by the sasl-init that it sent."""
    init, end = decode_composite(body)
    if not isinstance(init, SaslInit) or end != len(body):
        raise ProtocolViolationError("A sasl-init frame was expected.")
    if init.mechanism != "PLAIN":
        return init.mechanism in MECHANISMS
    # An identity to act as, which has no meaning here, the name, and the password.
    parts = (init.initial_response or b"").decode(errors="replace").split("\0")
    return len(parts) == 3 and log_in(parts[1], parts[2])


_MEBIBYTE: Final = 1_048_576


class Pool:
    def __init__(self, limit: int, most: int, *, drops_oldest: bool = False) -> None:
        self.limit = limit
        self._most = most  # bytes of one connection
        self._size = 0
        self._drops_oldest = drops_oldest
        self._held: dict[HeldMemory, int] = {}  # in the order in which they began to hold something

    def add(self, holder: HeldMemory, size: int) -> None:
        held = self._held.get(holder, 0) + size
        self._size += size
        if held:
            self._held[holder] = held
        else:
            self._held.pop(holder, None)
        if size <= 0:
            return
        if held > self._most:
            text = f"This connection holds more than {self._most} bytes: its links and messages must take less memory."
            raise ProtocolViolationError(text, "amqp:resource-limit-exceeded")
        while self._size > self.limit and self._held:
            victim = next(iter(self._held)) if self._drops_oldest else max(self._held, key=self._held.__getitem__)
            text = f"The connections of all clients hold more than {self.limit} bytes, and this one has to make room."
            victim.leave()
            if victim is holder:
                raise ProtocolViolationError(text, "amqp:resource-limit-exceeded")
            victim.drop(text)


class SharedMemory:
    def __init__(self) -> None:
        # What connections without a token hold: they need two links and a short message
        self.strangers = Pool(16 * _MEBIBYTE, 4 * _MEBIBYTE, drops_oldest=True)
        # The sessions and links of the others: about 7,500, many more than a client has on one connection
        self.state = Pool(24 * _MEBIBYTE, 24 * _MEBIBYTE)
        # Their messages: the largest that a premium namespace takes, and some more beside it
        self.messages = Pool(80 * _MEBIBYTE, 128 * _MEBIBYTE, drops_oldest=True)
        self.transactions = 0  # bytes of messages in open transactions

    def expect(self, message_size: int) -> None:
        """Make room for several messages of this size (bytes), which an entity takes."""
        self.messages.limit = max(self.messages.limit, 4 * message_size)


class HeldMemory:
    def __init__(self, shared: SharedMemory, drop: Callable[[str], None]) -> None:
        self.links: dict[tuple[bool, str], Any] = {}  # the links that are attached or attaching, by role and name
        self.state_size = self.messages_size = 0  # bytes of sessions and links, and of messages and answers
        self.drop = drop
        self._shared = shared
        self._state = self._messages = shared.strangers
        self._has_left = False

    def add_state(self, size: int) -> None:
        if not self._has_left:
            self.state_size += size
            self._state.add(self, size)

    def add_messages(self, size: int) -> None:
        if not self._has_left:
            self.messages_size += size
            self._messages.add(self, size)

    def add_answers(self, size: int) -> None:
        """Count more bytes of answers, or fewer if ``size`` is below 0; drop the connection if they are too many."""
        try:
            self.add_messages(size)
        except ProtocolViolationError as error:
            self.drop(str(error))

    def trust(self) -> None:
        """Use the pools of connections with a token from now on, and their limits."""
        state, messages = self.state_size, self.messages_size
        try:
            self.add_state(-state)
            self.add_messages(-messages)
            self._state, self._messages = self._shared.state, self._shared.messages
            self.add_state(state)
            self.add_messages(messages)
        except ProtocolViolationError as error:
            self.drop(str(error))

    def leave(self) -> None:
        self.add_state(-self.state_size)
        self.add_messages(-self.messages_size)
        self._has_left = True


def footprint(*values: object) -> int:
    """Return about how many bytes these values take in memory, with all that is in them."""
    size, left = 0, list[Any](values)
    while left:
        value: Any = left.pop()
        size += sys.getsizeof(value)
        if isinstance(value, dict):
            left += [*value, *value.values()]
        elif isinstance(value, list | tuple):
            left += value
        else:  # A composite, such as a source, or a described value.
            left += [getattr(value, name) for name in getattr(value, "__dataclass_fields__", ())]
    return size
