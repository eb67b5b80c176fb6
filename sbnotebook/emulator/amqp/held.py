"""The memory that clients make the emulator keep: counted for each connection, limited for each one and for all.

It counts only memory that outlives a read: sessions, links, incomplete messages, and answers that the client has not
read. The emulator closes a connection beyond its limit. Beyond the limit of a pool, the connection that takes most of
the pool is dropped, or the one that has been holding something for the longest time.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final, cast

from sbnotebook.errors import ProtocolViolationError

if TYPE_CHECKING:
    from collections.abc import Iterable

_MEBIBYTE: Final = 1_048_576
# Links of one connection: many more than any client has, since every SDK opens several connections before
_MAX_HANDLES: Final = 5000
# Bytes of the sessions and links of one connection: 5000 links with names and addresses of usual length
_MAX_STATE: Final = 32 * _MEBIBYTE
# Bytes: the largest message that a premium namespace takes, and some more beside it
_MAX_MESSAGES: Final = 128 * _MEBIBYTE
# Bytes of a connection without a token, which needs no more than two links and one short message
_MAX_OF_A_STRANGER: Final = 4 * _MEBIBYTE


class Pool:
    """Memory that several connections share."""

    def __init__(self, limit: int, most: int, *, drops_oldest: bool = False) -> None:
        self.limit = limit
        self._most = most  # bytes of one connection
        self._size = 0
        self._drops_oldest = drops_oldest
        self._held: dict[HeldMemory, int] = {}  # in the order in which they began to hold something

    def add(self, holder: HeldMemory, size: int) -> None:
        """Count more bytes of a connection, or fewer if ``size`` is below 0."""
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
            self._drop_one(holder)

    def _drop_one(self, adding: HeldMemory) -> None:
        victim = next(iter(self._held)) if self._drops_oldest else max(self._held, key=self._held.__getitem__)
        text = f"The connections of all clients hold more than {self.limit} bytes, and this one has to make room."
        victim.leave()
        if victim is adding:
            raise ProtocolViolationError(text, "amqp:resource-limit-exceeded")
        victim.drop(text)


class SharedMemory:
    def __init__(self) -> None:
        # What connections without a token hold, and the sessions and links of the others, and their messages
        self.strangers = Pool(16 * _MEBIBYTE, _MAX_OF_A_STRANGER, drops_oldest=True)
        self.state = Pool(24 * _MEBIBYTE, _MAX_STATE)
        self.messages = Pool(80 * _MEBIBYTE, _MAX_MESSAGES, drops_oldest=True)
        self.transactions = 0  # bytes of messages in open transactions

    def expect(self, message_size: int) -> None:
        """Make room for several messages of this size (bytes), which an entity takes."""
        self.messages.limit = max(self.messages.limit, 4 * message_size)


class HeldMemory:
    def __init__(self, shared: SharedMemory, drop: Callable[[str], None]) -> None:
        self.links: dict[tuple[bool, str], Any] = {}  # the links that are attached or attaching, by role and name
        self.handles = 0  # number that the client has in use
        self.state_size = self.messages_size = 0  # bytes of sessions and links, and of messages and answers
        self.drop = drop
        self._shared = shared
        self._state = self._messages = shared.strangers
        self._has_left = False

    def add_handle(self) -> None:
        self.handles += 1
        if self.handles > _MAX_HANDLES:
            raise ProtocolViolationError(
                f"A connection can have {_MAX_HANDLES} links: open another one.", "amqp:resource-limit-exceeded"
            )

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
        left += _parts(value)
    return size


def _parts(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        mapping = cast("dict[Any, Any]", value)
        return [*mapping, *mapping.values()]
    if isinstance(value, list | tuple):
        return cast("Iterable[Any]", value)
    # A composite, such as a source, or a described value.
    return [getattr(value, name) for name in getattr(value, "__dataclass_fields__", ())]
