"""The offset of a stream that consumes: the messages of its last micro-batch."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, Final, Self

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, ReceivedMessage
from sbnotebook.spark.options import AT_LEAST_ONCE

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
                None if given["enqueued"] is None else _pair(given["enqueued"]),
                given.get("delivery") == AT_LEAST_ONCE,
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
            option = "without the option delivery" if is_locked else f'with .option("delivery", "{AT_LEAST_ONCE}")'
            raise ConfigurationError(
                f"The checkpoint is that of a stream {option}: start it so again, or give this stream a new "
                "checkpointLocation."
            )
        return offset

    def as_dict(self) -> dict[str, Any]:
        """Return the offset as Spark writes it.

        Example:
            >>> ConsumeOffset(EntityAddress("orders"), 7, (1, 2, 3, 9), (1000, 2000)).as_dict()
            {'batch': 7, 'entity': 'orders', 'ranges': [[1, 3], [9, 9]], 'enqueued': [1000, 2000]}
        """
        kind = {"delivery": AT_LEAST_ONCE} if self.is_locked else {"adopted": True} if self.is_adopted else {}
        return {
            "batch": self.batch,
            "entity": self.entity.path,
            "ranges": [list(each) for each in ranges_of(self.numbers)],
            "enqueued": self.enqueued and list(self.enqueued),
        } | kind

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


def _numbers(ranges: Iterable[Sequence[int]]) -> Iterator[int]:
    count = 0
    for each in ranges:
        first, last = _pair(each)
        count += last - first + 1
        if first < 1 or last < first or count > _MOST:
            raise ValueError(each)
        yield from range(first, last + 1)


def _pair(given: Sequence[int]) -> tuple[int, int]:
    first, last = map(index, given)
    return first, last
