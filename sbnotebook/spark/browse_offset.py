"""How far a stream that browses has come."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress
from sbnotebook.spark.sequence_ranges import end_of_partition

__all__ = ["BrowseOffset"]


@dataclass(frozen=True, slots=True)
class BrowseOffset:
    """What stands in the checkpoint.

    A later message of a partitioned entity may have a lower number than an earlier one of another partition, so there
    is one number for each partition; an entity without partitions has the partition 0.

    Args:
        entity: where the messages stand.
        first: the number with which the stream began; those below are never read.
        read: the last number that was read, by partition.
    """

    entity: EntityAddress
    first: int = 1
    read: Mapping[int, int] = field(default_factory=dict[int, int])

    def as_dict(self) -> dict[str, Any]:
        """For Spark; equal offsets are equal as text.

        Example:
            >>> BrowseOffset(EntityAddress("orders"), read={0: 17}).as_dict()
            {'entity': 'orders', 'first': 1, 'read': {'0': 17}}
        """
        read = {str(partition): self.read[partition] for partition in sorted(self.read)}
        return {"entity": str(self.entity), "first": self.first, "read": read}

    @classmethod
    def parse(cls, offset: Mapping[str, Any], entity: EntityAddress) -> Self:
        """What :meth:`as_dict` made.

        Args:
            offset: from a checkpoint.
            entity: the stream's.

        Raises:
            ConfigurationError: it is of another entity, or of another kind of stream.
        """
        try:
            read = {int(partition): int(number) for partition, number in offset["read"].items()}
            found = cls(EntityAddress.parse(offset["entity"]), int(offset["first"]), read)
        except (KeyError, TypeError, ValueError, AttributeError):
            raise ConfigurationError(
                "The checkpoint is of another kind of stream than one that browses Service Bus: "
                "give this stream a checkpointLocation of its own."
            ) from None
        if found.entity != entity:
            raise ConfigurationError(
                f"The checkpoint is of a stream of {found.entity}, and this one reads {entity}: "
                "give it a checkpointLocation of its own."
            )
        return found

    def reading(self, read: Mapping[int, int]) -> Self:
        """The same stream, further on."""
        return replace(self, read=read)

    def spans_to(self, end: Self) -> list[tuple[int, int]]:
        """The first and last numbers to read, by partition, to come to another offset.

        Example:
            >>> orders = EntityAddress("orders")
            >>> BrowseOffset(orders, read={0: 5}).spans_to(BrowseOffset(orders, read={0: 9, 2: 2**49 + 3}))
            [(6, 9), (562949953421312, 562949953421315)]
        """
        starts = {
            partition: max(self.first, self.read.get(partition, end_of_partition(partition - 1)) + 1)
            for partition in sorted(end.read)
        }
        return [(first, end.read[partition]) for partition, first in starts.items() if first <= end.read[partition]]
