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

    def __init__(self, limit: int | None = None, *, drops_oldest: bool = False) -> None:
        self.limit = limit
        self.size = 0
        self._drops_oldest = drops_oldest
        self._shares: dict[Share, None] = {}  # Those that hold something, in the order in which they began to.

    def change(self, share: Share, size: int) -> None:
        self.size += size
        if share.size:
            self._shares.setdefault(share)
        else:
            self._shares.pop(share, None)

    def shrink(self, adding: Share) -> None:
        while self.limit is not None and self.size > self.limit and self._shares:
            victim = next(iter(self._shares)) if self._drops_oldest else max(self._shares, key=lambda each: each.size)
            text = f"The connections of all clients hold more than {self.limit} bytes, and this one has to make room."
            victim.leave()
            if victim is adding:
                raise ProtocolViolationError(text, "amqp:resource-limit-exceeded")
            victim.drop(text)


class Share:
    """The bytes that one connection holds of a pool."""

    def __init__(self, pool: Pool, limit: int, drop: Callable[[str], None]) -> None:
        self.size = 0
        self.drop = drop
        self._pool = pool
        self._limit = limit
        self._has_left = False

    def add(self, size: int) -> None:
        """Count more bytes, or fewer if ``size`` is below 0."""
        if self._has_left:
            return
        self.size += size
        self._pool.change(self, size)
        if size <= 0:
            return
        if self.size > self._limit:
            text = f"This connection holds more than {self._limit} bytes: its links and messages must take less memory."
            raise ProtocolViolationError(text, "amqp:resource-limit-exceeded")
        self._pool.shrink(self)

    def move(self, pool: Pool, limit: int) -> None:
        """Hold the bytes of another pool from now on."""
        if not self._has_left:
            size = self.size
            self.add(-size)
            self._pool, self._limit = pool, limit
            self.add(size)

    def leave(self) -> None:
        """Give everything back, because the connection ends."""
        self.add(-self.size)
        self._has_left = True


class SharedMemory:
    def __init__(self) -> None:
        self.strangers = Pool(16 * _MEBIBYTE, drops_oldest=True)  # what connections without a token hold
        self.state = Pool(24 * _MEBIBYTE)  # the sessions and links of the others
        self.messages = Pool(80 * _MEBIBYTE, drops_oldest=True)
        self.transactions = 0  # bytes of messages in open transactions

    def expect(self, message_size: int) -> None:
        """Make room for several messages of this size (bytes), which an entity takes."""
        if self.messages.limit is not None:
            self.messages.limit = max(self.messages.limit, 4 * message_size)


class HeldMemory:
    def __init__(self, shared: SharedMemory | None = None, drop: Callable[[str], None] = lambda _reason: None) -> None:
        self.links: dict[tuple[bool, str], Any] = {}  # the links that are attached or attaching, by role and name
        self.handles = 0  # number that the client has in use
        self._shared = shared
        self._drop = drop
        pool = Pool() if shared is None else shared.strangers
        limits = (_MAX_STATE, _MAX_MESSAGES) if shared is None else (_MAX_OF_A_STRANGER, _MAX_OF_A_STRANGER)
        self.state, self.messages = (Share(pool, limit, drop) for limit in limits)

    def add_handle(self) -> None:
        self.handles += 1
        if self.handles > _MAX_HANDLES:
            raise ProtocolViolationError(
                f"A connection can have {_MAX_HANDLES} links: open another one.", "amqp:resource-limit-exceeded"
            )

    def add_answers(self, size: int) -> None:
        """Count more bytes of answers, or fewer if ``size`` is below 0; drop the connection if they are too many."""
        try:
            self.messages.add(size)
        except ProtocolViolationError as error:
            self._drop(str(error))

    def trust(self) -> None:
        """Use the pools of connections with a token from now on, and their limits."""
        if self._shared is None:
            return
        try:
            self.state.move(self._shared.state, _MAX_STATE)
            self.messages.move(self._shared.messages, _MAX_MESSAGES)
        except ProtocolViolationError as error:
            self._drop(str(error))

    def leave(self) -> None:
        """Give everything back, because the connection ends."""
        self.state.leave()
        self.messages.leave()


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
