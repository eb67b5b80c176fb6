"""The offset of a stream that consumes: the messages of its last micro-batch."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, Self

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, ReceivedMessage

_RANGE: Final = re.compile(r"([0-9]{1,19})(?:-([0-9]{1,19}))?", re.ASCII)
_AT_LEAST_ONCE: Final = "at-least-once"
_MOST: Final = 10_000_000
"""Messages of a micro-batch at most; a checkpoint with more is not one of ours."""


@dataclass(frozen=True, slots=True)
class BatchMessage:
    """The number, the size in bytes, and the enqueued time in ms of a message."""

    number: int
    size: int
    enqueued: int | None

    @classmethod
    def of(cls, message: ReceivedMessage, size: int | None = None) -> Self:
        """Return the facts of a message."""
        if size is None:
            properties = message.application_properties
            size = 1 + len(message.body) + sum(len(name) + len(str(value)) for name, value in properties.items())
        return cls(message.sequence_number, size, _enqueued(message))


@dataclass(frozen=True, slots=True)
class ConsumeOffset:
    """The messages of a micro-batch, as Spark's checkpoint keeps them before they are deferred."""

    entity: EntityAddress
    batch: int = 0
    numbers: tuple[int, ...] = ()
    enqueued: tuple[int, int] | None = None
    """The first and last times in ms: they tell the messages from those of an entity that was made anew."""
    is_locked: bool = False
    """True for delivery at least once: the messages stay locked, and the stream never defers them."""
    is_adopted: bool = False
    """True if the messages were deferred before. That does not show that Spark read the micro-batch."""

    @classmethod
    def parse(cls, given: Mapping[str, Any], entity: EntityAddress, *, is_locked: bool = False) -> Self:
        """Read an offset out of a checkpoint."""
        try:
            offset = cls(
                EntityAddress.parse(given["entity"]),
                int(given["batch"]),
                tuple(_numbers(given["ranges"])),
                _pair(given["enqueued"]),
                given.get("delivery") == _AT_LEAST_ONCE,
                given.get("adopted") is True,
            )
        except (AttributeError, LookupError, TypeError, ValueError):
            raise ConfigurationError(
                "The checkpoint is not that of a stream with mode=consume: give each stream a checkpointLocation of "
                "its own."
            ) from None
        if offset.entity != entity:
            raise ConfigurationError(
                f"The checkpoint is that of a stream of {offset.entity}, and this one is of {entity}: give each stream "
                "a checkpointLocation of its own."
            )
        if offset.is_locked != is_locked:
            option = "without the option delivery" if is_locked else f'with .option("delivery", "{_AT_LEAST_ONCE}")'
            raise ConfigurationError(
                f"The checkpoint is that of a stream {option}: start it so again, or give this stream a new "
                "checkpointLocation."
            )
        return offset

    def as_dict(self) -> dict[str, Any]:
        """Return the offset as Spark writes it.

        Example:
            >>> ConsumeOffset(EntityAddress("orders"), 7, (1, 2, 3, 9), (1000, 2000)).as_dict()
            {'batch': 7, 'entity': 'orders', 'ranges': '1-3,9', 'enqueued': '1000-2000'}
        """
        kind = {"delivery": _AT_LEAST_ONCE} if self.is_locked else {"adopted": True} if self.is_adopted else {}
        return {
            "batch": self.batch,
            "entity": self.entity.path,
            "ranges": ",".join(f"{first}-{last}" if last > first else str(first) for first, last in self.ranges),
            "enqueued": "" if self.enqueued is None else "{}-{}".format(*self.enqueued),
        } | kind

    @property
    def ranges(self) -> list[tuple[int, int]]:
        """Return the numbers as ranges, both ends included."""
        return ranges_of(self.numbers)

    def next(self, messages: Iterable[BatchMessage], *, are_adopted: bool = False) -> Self:
        """Return the offset of the next micro-batch, which is made of these messages."""
        in_order = sorted(messages, key=lambda message: message.number)
        times = [message.enqueued for message in in_order if message.enqueued is not None]
        enqueued = (min(times), max(times)) if times else None
        numbers = tuple(message.number for message in in_order)
        return type(self)(self.entity, self.batch + 1, numbers, enqueued, self.is_locked, are_adopted)

    def is_of(self, message: ReceivedMessage) -> bool:
        """Return whether a message with one of the numbers is one of the messages, by its enqueued time."""
        time = _enqueued(message)
        return self.enqueued is None or time is None or self.enqueued[0] <= time <= self.enqueued[1]


def _enqueued(message: ReceivedMessage) -> int | None:
    time = message.enqueued_time
    return None if time is None else round(time.timestamp() * 1000)


def ranges_of(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return numbers in order as ranges, both ends included.

    Example:
        >>> ranges_of([1, 2, 3, 7, 9, 10])
        [(1, 3), (7, 7), (9, 10)]
    """
    ranges: list[tuple[int, int]] = []
    for number in numbers:
        if ranges and ranges[-1][1] == number - 1:
            ranges[-1] = ranges[-1][0], number
        else:
            ranges.append((number, number))
    return ranges


def _numbers(text: str) -> Iterator[int]:
    count = 0
    for part in text.split(",") if text else ():
        first, last = _pair(part) or (0, -1)
        count += last - first + 1
        if first < 1 or last < first or count > _MOST:
            raise ValueError(part)
        yield from range(first, last + 1)


def _pair(text: str) -> tuple[int, int] | None:
    if not text:
        return None
    found = _RANGE.fullmatch(text)
    if found is None:
        raise ValueError(text)
    return int(found[1]), int(found[2] or found[1])
