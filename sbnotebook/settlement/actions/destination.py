"""Where clones go: for how long duplicates are dropped there, and which clones have arrived."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from functools import cache
from types import MappingProxyType
from typing import Final

from azure.core.exceptions import AzureError, ResourceNotFoundError

from sbnotebook.model import EntityAddress, SubQueue
from sbnotebook.settlement import administration
from sbnotebook.settlement.administration import DestinationDescription
from sbnotebook.settlement.connecting.connection import Connection
from sbnotebook.settlement.peek import Peeker
from sbnotebook.settlement.resources import Resources

_NONE: Final[Mapping[str, Resources]] = MappingProxyType({})


class Destination:
    """A queue or topic that clones were sent to.

    Args:
        connection: the namespace.
        address: the queue or topic.
        peeker: gives the peeker of an entity.
    """

    def __init__(
        self, connection: Connection, address: EntityAddress, peeker: Callable[[EntityAddress], Peeker]
    ) -> None:
        self.address = address
        self.doubts: dict[str, bool] = {}
        """Why a clone may have arrived and not be seen, in words; True where only a scheduled one is not seen."""
        self.unseen: dict[str, None] = {}
        """Those of them that say what could not be looked into, in their order."""
        self._connection = connection
        self._peeker = peeker
        self._described: dict[EntityAddress, DestinationDescription] = {}

    async def duplicate_window(self) -> timedelta | None:
        """Return for how long the destination drops a second message with the same id; None when it does not.

        It is also None where that cannot be asked, for want of the right Manage.
        """
        return (await self._describe(self.address)).duplicate_window

    async def find(self, ids: Collection[str]) -> set[str]:
        """Return the message ids in the destination: active, scheduled, deferred, dead-lettered, or forwarded."""
        left = set(ids)
        for place in await self.places():
            if left:
                left -= await self._ids_in(place, left)
        return set(ids) - left

    async def describe(self) -> DestinationDescription:
        """Return what the queue or topic does with messages; where that cannot be asked, a doubt says so."""
        return await self._describe(self.address)

    async def places(self) -> list[EntityAddress]:
        """Return where a message that was sent there may be, in the order in which messages move."""
        places: list[EntityAddress] = []
        targets = [self.address]
        for target in targets:  # it grows
            described = await self._describe(target)
            if described.is_topic:
                self.doubts[f"scheduled messages of the topic {target} cannot be looked at"] = True
            for place in described.places:
                places += [place, place.dead_letter]
                if described.forwards_to:
                    places.append(EntityAddress(place.name, place.subscription, SubQueue.TRANSFER_DEAD_LETTER))
            targets += [each for each in described.forwards_to if each not in targets]
        return places

    async def _describe(self, address: EntityAddress) -> DestinationDescription:
        if address not in self._described:
            try:
                self._described[address] = await administration.describe(self._connection, address.name)
            except ResourceNotFoundError:
                self._described[address] = DestinationDescription(False, None, (), ())
                self.doubts[f"there is no queue or topic {address} any more"] = False
            except (AzureError, OSError) as error:
                # Taken for a queue that forwards nothing.
                self._described[address] = DestinationDescription(False, None, (address,), ())
                why = f"{address} could not be asked about duplicates and forwarding ({type(error).__name__})"
                self.doubts[f"{why}, for which the right Manage is needed"] = False
        return self._described[address]

    async def _ids_in(self, place: EntityAddress, ids: set[str]) -> set[str]:
        found: set[str] = set()
        try:
            async for page in self._peeker(place).pages():
                found |= {message.message_id for message in page if message.message_id} & ids
                if found == ids:
                    break
        except (AzureError, OSError) as error:
            why = f"{place} could not be looked into ({type(error).__name__})"
            self.doubts[why], self.unseen[why] = False, None
        return found


def destinations_of(
    namespace: Resources, others: Mapping[str, Resources] = _NONE
) -> Callable[[tuple[str, EntityAddress]], Destination | None]:
    """Gives the destinations of clones, each of which is asked once what it does with messages."""

    @cache
    def destination(place: tuple[str, EntityAddress]) -> Destination | None:
        name, address = place
        there = others.get(name) if name else namespace
        return None if there is None else Destination(there.connection, address, there.peeker)

    return destination
