"""Scheduled messages, in the order in which they become active."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush
from typing import Final

from sbnotebook.emulator.entities.message import BrokeredMessage, BrokeredState
from sbnotebook.emulator.entities.message_log import MessageLog

_SPARE: Final = 64  # Cancelled messages that the schedule may hold however few there are besides


class Schedule:
    def __init__(self, log: MessageLog) -> None:
        self._log = log
        self._heap: list[tuple[int, int]] = []  # with some that are cancelled
        self._count = 0

    def restore(self, entries: Iterable[tuple[int, int]]) -> None:
        """Restore the entries of messages that are in the log: time (ms) and sequence number."""
        self._heap = list(entries)
        heapify(self._heap)
        self._count = len(self._heap)

    def __len__(self) -> int:
        return self._count

    def add(self, message: BrokeredMessage) -> None:
        heappush(self._heap, (message.scheduled_time or 0, message.sequence_number))
        self._count += 1

    def holds(self, sequence_numbers: Sequence[int]) -> bool:
        return all(self._find(number) is not None for number in sequence_numbers)

    def cancel(self, sequence_numbers: Sequence[int], remove: Callable[[BrokeredMessage], None]) -> bool:
        """Remove scheduled messages; return False, without any effect, if one of them is not scheduled."""
        numbers = dict.fromkeys(sequence_numbers)
        messages = [message for number in numbers if (message := self._find(number)) is not None]
        if len(messages) < len(numbers):
            return False
        for message in messages:
            remove(message)
            self.removed()
        return True

    def removed(self) -> None:
        """Count a scheduled message that was removed from the log."""
        self._count -= 1
        # Seldom enough that cancelling a message costs no more for many scheduled ones than for few.
        if len(self._heap) > 2 * self._count + _SPARE:
            self._heap = [entry for entry in self._heap if self._find(entry[1]) is not None]
            heapify(self._heap)

    def due(self, now: int) -> Iterator[BrokeredMessage]:
        while self._heap and self._heap[0][0] <= now:
            message = self._find(heappop(self._heap)[1])
            if message is not None:
                yield message

    @property
    def next_time(self) -> int | None:
        return self._heap[0][0] if self._heap else None

    def _find(self, sequence_number: int) -> BrokeredMessage | None:
        message = self._log.get(sequence_number)
        return message if message is not None and message.state is BrokeredState.SCHEDULED else None
