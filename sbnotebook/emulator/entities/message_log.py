"""Messages by sequence number: found at once, and walked in order from any number."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from typing import Final

from sbnotebook.emulator.entities.message import BrokeredMessage

__all__ = ["MessageLog"]

_SHELF: Final = 1024
"""Sequence numbers on one shelf: what a walk that starts in the middle steps over at most."""


class MessageLog:
    """All messages of a queue or sub-queue.

    Messages stand on shelves by the high digits of their numbers. Adding, finding and removing cost
    the same whatever the number of messages; a walk sorts a shelf only if messages came to it out of
    order, as they do in a dead-letter queue, where they keep their numbers.

    Attributes:
        size_bytes: bytes of all payloads; a payload must not change while it is in here.
    """

    def __init__(self) -> None:
        self._shelves: dict[int, dict[int, BrokeredMessage]] = {}
        self._order: list[int] = []  # the shelves' numbers, ascending
        self._unsorted: set[int] = set()
        self._count = 0
        self.size_bytes = 0

    def __len__(self) -> int:
        return self._count

    def add(self, message: BrokeredMessage) -> None:
        """Put in a message whose number is not there yet."""
        number = message.sequence_number
        shelf_number = number // _SHELF
        shelf = self._shelves.get(shelf_number)
        if shelf is None:
            shelf = self._shelves[shelf_number] = {}
            insort(self._order, shelf_number)
        elif number < next(reversed(shelf)):
            self._unsorted.add(shelf_number)
        shelf[number] = message
        self._count += 1
        self.size_bytes += len(message.payload)

    def get(self, sequence_number: int) -> BrokeredMessage | None:
        """The message with this number, None if there is none."""
        shelf = self._shelves.get(sequence_number // _SHELF)
        return None if shelf is None else shelf.get(sequence_number)

    def remove(self, message: BrokeredMessage) -> None:
        """Take out a message that is there."""
        shelf_number = message.sequence_number // _SHELF
        shelf = self._shelves[shelf_number]
        del shelf[message.sequence_number]
        self._count -= 1
        self.size_bytes -= len(message.payload)
        if not shelf:
            del self._shelves[shelf_number]
            del self._order[bisect_left(self._order, shelf_number)]
            self._unsorted.discard(shelf_number)

    def walk(self, sequence_number: int = 0) -> Iterator[BrokeredMessage]:
        """The messages from this number on, in order; the log must not change meanwhile."""
        for position in range(bisect_left(self._order, sequence_number // _SHELF), len(self._order)):
            for message in self._sorted_shelf(self._order[position]).values():
                if message.sequence_number >= sequence_number:
                    yield message

    def _sorted_shelf(self, shelf_number: int) -> dict[int, BrokeredMessage]:
        if shelf_number in self._unsorted:
            self._unsorted.discard(shelf_number)
            self._shelves[shelf_number] = dict(sorted(self._shelves[shelf_number].items()))
        return self._shelves[shelf_number]
