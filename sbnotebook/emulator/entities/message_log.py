"""Messages by sequence number and partition: found at once, walked in order, out of memory while they are not needed.

The records of 1,000,000 messages, with the bodies in the store, would take 250 MB, and the emulator 7 s to start. With
shelves it takes 2 MB for them, and 1 to 2 s.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import chain, count, takewhile
from typing import Any, Final

from sbnotebook.emulator.entities.message import BrokeredMessage, BrokeredState

SHELF: Final = 1024
"""Sequence numbers on one shelf, which is loaded and given up as a whole."""
# Turns after which it is tried again to give up messages, though the last time there were too few to spare
_PATIENCE: Final = 1024
_OVERHEAD: Final = 512  # Bytes that a message takes besides its payload, about


class Residency:
    """Decides which messages are in memory, for all logs together."""

    def __init__(self, storage: Any = None, budget: int = 67_108_864) -> None:
        self.storage = storage  # the ``Store``, from which messages are loaded that are not in memory; None without one
        self.size = 0
        self.turn = 0
        self._budget = budget  # bytes of messages that stay in memory, if a store has them, too
        self.logs: set[MessageLog] = set()  # those that can give up messages
        self._try_again_at = budget

    def shed(self) -> None:
        """Give up the least recently used messages if there are too many; call it once all changes are kept."""
        self.turn += 1
        is_too_early = self.size <= self._try_again_at and self.turn % _PATIENCE
        if self.storage is None or self.size <= self._budget or is_too_early:
            return
        shelves = [(shelf.last_used, shelf.number, log) for log in self.logs for shelf in log.resident_shelves()]
        for _, number, log in sorted(shelves, key=lambda entry: entry[0]):
            if self.size <= self._budget * 3 // 4:
                break
            log.shed(number)
        # Locked messages have to stay: do not search for others at every turn.
        self._try_again_at = max(self._budget, self.size + self._budget // 4)


@dataclass(slots=True, eq=False)
class _Shelf:
    number: int
    # None while they are only in the store
    messages: dict[int, BrokeredMessage] | None = field(default_factory=dict[int, BrokeredMessage])
    count: int = 0
    size: int = 0
    ready: list[int] = field(default_factory=list[int])  # a heap of sequence numbers, with some that are gone
    ready_count: int = 0
    next_due: int | None = None
    due: list[tuple[int, int]] | None = None  # times and numbers, the first one last; None before they are needed
    last_used: int = 0


class MessageLog:
    """All messages of a box, on shelves by the high digits of their numbers.

    A shelf that was kept and has no locked message can be shed, and is loaded again when it is asked for.
    """

    def __init__(self, box: int, residency: Residency | None = None) -> None:
        self.box = box
        self.size_bytes = 0  # bytes of all payloads; a payload must not change while it is in here
        self.ready_count = 0  # messages that ``take_ready`` can give
        self._residency = residency or Residency()
        self._residency.logs.add(self)
        self._shelves: dict[int, _Shelf] = {}
        self._order: list[int] = []  # the shelves' numbers, ascending
        self._first_ready = 0  # no shelf before this one has something ready in the place of its number
        # Ready messages that are not ordered by their numbers: places and numbers, in order.
        self._moved: list[tuple[tuple[int, int], int]] = []
        self._turns = count(1)

    def __len__(self) -> int:
        return sum(shelf.count for shelf in self._shelves.values())

    def restore(self, number: int, messages: int, size: int, active: int, next_due: int | None) -> None:
        """Restore a shelf, whose messages stay in the store."""
        shelf = self._new_shelf(number)
        shelf.messages, shelf.count, shelf.size, shelf.ready_count = None, messages, size, active
        shelf.next_due = next_due
        self.size_bytes += size
        self.ready_count += active

    def add(self, message: BrokeredMessage) -> None:
        number, size = message.sequence_number, message.size
        shelf = self._shelves.get(number // SHELF) or self._new_shelf(number // SHELF)
        self._messages(shelf.number)[number] = message
        shelf.count += 1
        shelf.size += size
        self.size_bytes += size
        self._residency.size += size + _OVERHEAD

    def get(self, sequence_number: int) -> BrokeredMessage | None:
        return self._messages(sequence_number // SHELF).get(sequence_number)

    def remove(self, message: BrokeredMessage) -> None:
        number, size = message.sequence_number, message.size
        shelf = self._shelves[number // SHELF]
        del self._messages(shelf.number)[number]
        shelf.count -= 1
        shelf.size -= size
        self.size_bytes -= size
        self._residency.size -= size + _OVERHEAD
        if not shelf.count:
            del self._shelves[shelf.number]
            del self._order[bisect_left(self._order, shelf.number)]

    def payload(self, message: BrokeredMessage) -> bytes:
        if message.payload is not None:
            return message.payload
        return self._residency.storage.load_payload(self.box, message.sequence_number)

    def make_ready(self, message: BrokeredMessage, order: str = "place") -> None:
        """Let ``take_ready`` find a message that is in here: in the place of its number, at the front or the back."""
        number = message.sequence_number
        shelf = self._shelves[number // SHELF]
        if order == "place":
            heappush(shelf.ready, number)
            self._first_ready = min(self._first_ready, shelf.number)
        else:
            turn = next(self._turns)
            place = -turn if order == "front" else max(self._messages(self._order[-1]))
            insort(self._moved, ((place, turn), number))
        shelf.ready_count += 1
        self.ready_count += 1

    def take_ready(self) -> BrokeredMessage | None:
        """Return the ready message that is the next one, which is not ready any more; None without one.

        That is the one with the smallest number, unless others were put back elsewhere.
        """
        shelf = self._next_shelf()
        if self._moved and (shelf is None or self._moved[0][0][0] < shelf.ready[0]):
            _, number = self._moved.pop(0)
            shelf = self._shelves[number // SHELF]
        elif shelf is not None:
            number = heappop(shelf.ready)
        else:
            return None
        shelf.ready_count -= 1
        self.ready_count -= 1
        return self._messages(shelf.number)[number]

    def _next_shelf(self) -> _Shelf | None:
        """Return the first shelf that has a ready message in the place of its number; it is the first one there."""
        while True:
            shelf = self._shelves.get(self._first_ready)
            if shelf is not None and shelf.ready_count:
                # A number in the heap may be of a message that is gone.
                messages = self._messages(shelf.number)
                while shelf.ready and shelf.ready[0] not in messages:
                    heappop(shelf.ready)
                if shelf.ready:
                    return shelf
            position = bisect_right(self._order, self._first_ready)
            if position == len(self._order):
                return None
            self._first_ready = self._order[position]

    def withdraw(self, message: BrokeredMessage) -> None:
        self._shelves[message.sequence_number // SHELF].ready_count -= 1
        self.ready_count -= 1
        self._moved = [each for each in self._moved if each[1] != message.sequence_number]

    def expect(self, message: BrokeredMessage) -> None:
        """Let ``due`` find this message once it is due, if it ever is."""
        shelf, when = self._shelves[message.sequence_number // SHELF], message.due_time
        if when is not None:
            shelf.next_due, shelf.due = when if shelf.next_due is None else min(when, shelf.next_due), None

    def due(self, now: int) -> list[BrokeredMessage]:
        """Return the messages that are due, by their times; the caller has to remove them."""
        found: list[tuple[int, int, BrokeredMessage]] = []
        for shelf in [*self._shelves.values()]:
            if shelf.next_due is not None and shelf.next_due <= now:
                messages = self._messages(shelf.number)
                if shelf.due is None:
                    times = ((message.due_time, number) for number, message in messages.items())
                    shelf.due = sorted(((time, number) for time, number in times if time is not None), reverse=True)
                while shelf.due and shelf.due[-1][0] <= now:
                    time, number = shelf.due.pop()
                    # It may be gone, or locked.
                    if number in messages and messages[number].due_time == time:
                        found.append((time, number, messages[number]))
                shelf.next_due = shelf.due[-1][0] if shelf.due else None
        return [message for *_, message in sorted(found)]

    @property
    def next_due(self) -> int | None:
        """Return when ``due`` has a message to find, or may have, in ms; None if never."""
        return earliest(*(shelf.next_due for shelf in self._shelves.values()))

    def walk(self, sequence_number: int = 0) -> Iterator[BrokeredMessage]:
        """Yield the messages from this number on, in order; the log must not change meanwhile."""
        for position in range(bisect_left(self._order, sequence_number // SHELF), len(self._order)):
            messages = self._messages(self._order[position])
            numbers = sorted(messages)
            for number in numbers[bisect_left(numbers, sequence_number) :]:
                yield messages[number]

    def resident_shelves(self) -> list[_Shelf]:
        return [shelf for shelf in self._shelves.values() if shelf.messages is not None]

    def shed(self, number: int) -> None:
        shelf = self._shelves[number]
        if shelf.messages is None or any(message.lock_token is not None for message in shelf.messages.values()):
            return
        shelf.messages, shelf.due, shelf.ready = None, None, []
        self._residency.size -= shelf.size + shelf.count * _OVERHEAD

    def close(self) -> None:
        self._residency.logs.discard(self)
        self._residency.size -= sum(shelf.size + shelf.count * _OVERHEAD for shelf in self.resident_shelves())
        self._shelves.clear()

    def _new_shelf(self, number: int) -> _Shelf:
        shelf = self._shelves[number] = _Shelf(number)
        insort(self._order, number)
        return shelf

    def _messages(self, number: int) -> dict[int, BrokeredMessage]:
        shelf = self._shelves.get(number)
        if shelf is None:
            return {}
        shelf.last_used = self._residency.turn
        return self._load(shelf) if shelf.messages is None else shelf.messages

    def _load(self, shelf: _Shelf) -> dict[int, BrokeredMessage]:
        messages: list[BrokeredMessage] = self._residency.storage.load_shelf(self.box, shelf.number)
        if len(messages) != shelf.count:
            raise AssertionError(f"A shelf of {shelf.count} messages came back with {len(messages)}.")
        shelf.messages = {message.sequence_number: message for message in messages}
        moved = {number for _, number in self._moved}
        # In order, and so a heap.
        shelf.ready = [
            number
            for number, message in shelf.messages.items()
            if message.state is BrokeredState.ACTIVE and number not in moved
        ]
        self._residency.size += shelf.size + shelf.count * _OVERHEAD
        return shelf.messages


def earliest(*moments: int | None) -> int | None:
    return min((moment for moment in moments if moment is not None), default=None)


PARTITIONS: Final = 16
"""As many as an entity of the tier Standard has (Service Bus documentation, "Partitioned queues and topics")."""

PARTITION_SHIFT: Final = 48
"""The bits of a sequence number that count messages; the bits above them are the number of a partition.

Source: Service Bus documentation, "Message sequencing and timestamps".
"""

_ORDER: Final = (0, 1, *chain.from_iterable((PARTITIONS + 1 - each, each) for each in range(2, PARTITIONS // 2 + 1)))


def tour(log: MessageLog, sequence_number: int) -> Iterator[BrokeredMessage]:
    """Yield the messages from a sequence number to the end of its partition, then those of the later partitions.

    The partitions follow each other in an order of their own, not by number, as observed at the service. A client that
    continues after the last message of each page reaches all partitions; a client that continues after the largest
    sequence number does not.
    """
    first = sequence_number >> PARTITION_SHIFT
    for partition in _ORDER[_ORDER.index(first) :] if first in _ORDER else ():
        start = max(sequence_number if partition == first else 0, partition << PARTITION_SHIFT)
        end = partition + 1 << PARTITION_SHIFT
        yield from takewhile(lambda message, end=end: message.sequence_number < end, log.walk(start))
