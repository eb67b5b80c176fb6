"""Peek-locks of messages, by token."""

from __future__ import annotations

from collections import OrderedDict
from itertools import takewhile
from uuid import UUID, uuid4

from sbnotebook.emulator.entities.message import BrokeredMessage


class Locks:
    """The locked messages of a queue, by token, in the order in which their locks end.

    All locks of a queue last equally long, so that is the order of locking and renewing. Those of a session end with
    its own lock, for which the session is asked.
    """

    def __init__(self) -> None:
        # Not a dict: its first item is slow to find when many before it were removed.
        self._held: OrderedDict[UUID, BrokeredMessage] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def take(self, message: BrokeredMessage, until: int) -> UUID:
        token = uuid4()
        message.lock_token, message.locked_until = token, until
        self._held[token] = message
        return token

    def held(self, token: UUID, now: int) -> BrokeredMessage | None:
        """Return the message that a token has locked; None if the lock is lost."""
        message = self._held.get(token)
        return message if message is not None and message.locked_until > now else None

    def renew(self, message: BrokeredMessage, until: int) -> None:
        if message.lock_token is not None:
            message.locked_until = until
            self._held.move_to_end(message.lock_token)

    def drop(self, message: BrokeredMessage) -> None:
        if message.lock_token is not None:
            del self._held[message.lock_token]
            message.lock_token, message.locked_until = None, 0

    def all(self) -> list[BrokeredMessage]:
        return list(self._held.values())

    def expired(self, now: int) -> list[BrokeredMessage]:
        return list(takewhile(lambda message: message.locked_until <= now, self._held.values()))

    @property
    def next_end(self) -> int | None:
        """Return when the next lock ends, in ms; None without a lock."""
        return next(iter(self._held.values())).locked_until if self._held else None
