"""Peeking an entity to its end beside the kernel's own thread, so that what was found is shown at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sbnotebook.client import Entity
from sbnotebook.client.messages import Messages
from sbnotebook.widgets.background import start

__all__ = ["Loaded", "Loading"]

_FIRST: Final = 250
"""Messages of the first part: one page."""
_LARGEST: Final = 16_000
"""Messages of a part at most, which take about a second to come."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """How peeking has ended.

    Args:
        count: how many messages there were.
        next_number: where it would go on, a sequence number.
        is_end: whether the end of the entity was reached.
        is_stopped: whether it was told to stop.
    """

    count: int
    next_number: int
    is_end: bool
    is_stopped: bool


class Loading:
    """Peeks in a thread of its own and hands on what it finds, in parts that grow.

    The first part is a page, which is there at once. Each one after it is twice as large, because whoever shows them
    has some work with all of the messages for each part.

    Args:
        entity: where.
        part: is given each part, in that thread.
        done: is told how it ended, in that thread.
        failed: is told in a sentence why it could not go on, in that thread.
        from_sequence_number: where to begin, included.
        max_messages: how many at most, None for all.
    """

    def __init__(
        self,
        entity: Entity,
        part: Callable[[Messages], object],
        *,
        done: Callable[[Loaded], object],
        failed: Callable[[str], object],
        from_sequence_number: int = 1,
        max_messages: int | None = None,
    ) -> None:
        self._entity = entity
        self._part = part
        self._next = from_sequence_number
        self._limit = max_messages
        self._stop = threading.Event()
        self.thread = start(self._peek, done=done, failed=failed)

    def stop(self) -> None:
        """Peek no further; what was found until now stays."""
        self._stop.set()

    def _peek(self) -> Loaded:
        count, size, is_end = 0, _FIRST, False
        while not (is_end or self._stop.is_set() or count == self._limit):
            wanted = size if self._limit is None else min(size, self._limit - count)
            found = self._entity.peek(wanted, from_sequence_number=self._next, show_progress=False)
            is_end = len(found) < wanted
            if found:
                count += len(found)
                self._next = found[-1].sequence_number + 1
                self._part(found)
            size = min(2 * size, _LARGEST)
        return Loaded(count, self._next, is_end, not is_end and self._stop.is_set())
