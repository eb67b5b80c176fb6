"""The search for clones: a look at each place where a clone may be, without locking anything.

Dead-lettering keeps the message id, and each clone has an id of its own (see
:mod:`sbnotebook.model.clones`). So a clone that is dead-lettered again is recognised by its id. A clone of
that clone names the first original in ``OriginalMessageId`` and has a higher ``ResubmitCount``.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable
from contextlib import aclosing
from datetime import datetime, timedelta
from typing import Final

from azure.core.exceptions import AzureError, ResourceNotFoundError

from sbnotebook.amqp.sections import APPLICATION_PROPERTIES, PROPERTIES
from sbnotebook.model import EntityAddress, Fate, FateStatus, PeekedMessage, SubQueue
from sbnotebook.model.clones import lineage_of
from sbnotebook.model.message import ORIGINAL_MESSAGE_ID, end_of_partition
from sbnotebook.settlement import administration
from sbnotebook.settlement.administration import DestinationDescription
from sbnotebook.settlement.connecting.failures import Failure, explained
from sbnotebook.settlement.memory.journal import SentClone
from sbnotebook.settlement.peek import PeekCursor
from sbnotebook.settlement.place import Place, Resources, SequenceNumbers

_READ: Final = (PROPERTIES, APPLICATION_PROPERTIES)


class CloneSearch:
    """Looks for clones in the queue or topic that they were sent to, and where their messages go from there.

    It only peeks. Where Service Bus shows a clone nowhere, and more than a consumer can be the reason, the fate is
    unknown: a topic with several subscriptions, a filter, forwarding, expired messages, an entity that was deleted, or
    a look that failed.
    """

    def __init__(
        self,
        namespace: Resources,
        destination: EntityAddress,
        *,
        forwarded_from: EntityAddress | None = None,
    ) -> None:
        self.destination = destination
        self.doubts: dict[str, bool] = {}
        """Why a clone may be there and not be seen, in words; True where only a scheduled one is not seen."""
        self.unseen: dict[str, None] = {}
        """The entities that :meth:`find` could not search, and the reasons."""
        self.failed = False
        """True if a place did not answer the last look, so that the next look may find more."""
        self._forwarded_from = forwarded_from
        self._namespace = namespace
        self._described: dict[EntityAddress, DestinationDescription] = {}
        self._lasts: dict[EntityAddress, dict[int, int]] = {}
        self._takes_all: bool | None = None

    async def duplicate_window(self) -> timedelta | None:
        """Return for how long the destination drops a second message with the same id; None when it does not.

        It is also None where that cannot be asked, for want of the right Manage.
        """
        return (await self._describe(self.destination)).duplicate_window

    async def find(self, ids: Collection[str]) -> set[str]:
        """Return the message ids in the destination: active, scheduled, deferred, dead-lettered, or forwarded."""
        fates = await self._look(ids, self.unseen)
        return {each for each, fate in fates.items() if fate.status is not FateStatus.UNKNOWN}

    async def mark(self) -> None:
        """Note the last message of each place: later looks begin behind them, so call it before anything is sent.

        Clones get higher numbers: a number is given as a message is sent, and a dead-letter queue either keeps it or
        gives one of its own.
        Source: Service Bus documentation, "Message sequencing and timestamps".
        """
        for place in await self.places():
            self._lasts[place] = await SequenceNumbers.of(Place(self._namespace, place)).lasts()

    async def fates(self, clones: Iterable[SentClone | str], now: datetime) -> dict[str, Fate]:
        """Return the fates of clones, of which at least the ids are known, by their ids.

        A peek may miss a message now and then, so look twice before you rely on a clone that is not to be found.
        """
        sent = [SentClone(each) if isinstance(each, str) else each for each in clones]
        wanted = {clone.message_id: clone for clone in sent}
        doubts: dict[str, None] = {}
        self.failed = False
        if self._forwarded_from is not None:
            doubts[f"{self._forwarded_from} stores it first, and forwards it later"] = None
        fates = await self._look(wanted, doubts)
        described = await self._describe(self.destination)
        doubts |= await self._ways_out(described)
        for clone_id, clone in wanted.items():
            if clone_id not in fates:
                fates[clone_id] = self._fate_of_unseen(clone, doubts, described.keeps, now)
        return {clone_id: fates[clone_id] for clone_id in wanted}

    def _fate_of_unseen(self, clone: SentClone, doubts: Iterable[str], keeps: timedelta | None, now: datetime) -> Fate:
        mine = [doubt for doubt, is_scheduled in self.doubts.items() if clone.is_scheduled or not is_scheduled]
        lives = min(keeps or timedelta.max, clone.time_to_live or timedelta.max)
        if keeps is not None and clone.sent is not None and now - clone.sent >= lives:
            mine.append("it may have expired")
        why = "; ".join([*doubts, *mine])
        if not why:
            return Fate(FateStatus.CONSUMED, clone.message_id)
        text = f"It is not to be found, which need not mean that it was consumed: {why}."
        return Fate(FateStatus.UNKNOWN, clone.message_id, description=text)

    # ---------------------------------------------------------------- looking

    async def places(self) -> list[EntityAddress]:
        """Return where a message that was sent there may be, in the order in which messages move."""
        places: list[EntityAddress] = []
        targets = [self.destination]
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
                self._described[address] = await administration.describe(self._namespace.connection, address.name)
            except ResourceNotFoundError:
                self._described[address] = DestinationDescription(False, None, (), ())
                self.doubts[f"there is no queue or topic {address} any more"] = False
            except (AzureError, OSError) as error:
                # Taken for a queue that forwards nothing.
                self._described[address] = DestinationDescription(False, None, (address,), ())
                why = f"{address} could not be asked about duplicates and forwarding ({type(error).__name__})"
                self.doubts[f"{why}, for which the right Manage is needed"] = False
        return self._described[address]

    async def _look(self, ids: Collection[str], doubts: dict[str, None]) -> dict[str, Fate]:
        fates: dict[str, Fate] = {}
        for place in await self.places():
            if left := {clone_id for clone_id in ids if _is_open(fates.get(clone_id), place)}:
                found = await self._in_place(place, left, doubts)
                fates |= {each: fate for each, fate in found.items() if _says_more(fate, fates.get(each))}
        return fates

    async def _in_place(self, place: EntityAddress, ids: set[str], doubts: dict[str, None]) -> dict[str, Fate]:
        fates: dict[str, Fate] = {}
        left, originals = set(ids), {name: clone_id for clone_id in ids for name in (clone_id, lineage_of(clone_id)[0])}
        try:
            async with aclosing(self._pages(place)) as pages:
                async for page in pages:
                    for message in page:
                        if message.message_id in left:
                            left.remove(message.message_id)
                            fates[message.message_id] = _found(message.message_id, message)
                        else:
                            fates = _of_next_clone(message, originals) | fates
                    if not left:
                        break
        except (AzureError, OSError) as error:
            self.failed |= Failure.of(error).is_transient
            doubts[f"{place} could not be looked into ({explained(error)})"] = None
        return fates

    async def _pages(self, place: EntityAddress) -> AsyncGenerator[list[PeekedMessage]]:
        lasts = self._lasts.get(place, {})
        spans: list[tuple[int, int | None]] = [(lasts.get(0, 0) + 1, None)]
        if lasts.keys() - {0}:
            numbers = SequenceNumbers.of(Place(self._namespace, place))
            spans = [(first, end_of_partition(each)) async for each, first in numbers.firsts(lasts)]
        for first, last in spans:
            cursor = PeekCursor(first, last)
            async for page in self._namespace.peeker(place).unread_pages(cursor):
                yield cursor.take(page.messages(_READ))

    # ---------------------------------------------------------------- judging

    async def _ways_out(self, described: DestinationDescription) -> dict[str, None]:
        """Return how messages may leave the destination without a consumer, in words."""
        ways = {f"messages are forwarded to {target}": None for target in described.forwards_to}
        if described.is_topic and len(described.places) != 1:
            ways[f"{self.destination} has {len(described.places):,} subscriptions"] = None
        elif described.is_topic:
            if self._takes_all is None:
                try:
                    self._takes_all = await administration.takes_all(self._namespace.connection, described.places[0])
                except (AzureError, OSError):
                    self._takes_all = False
            if not self._takes_all:
                ways[f"a filter of {described.places[0]} may have refused it"] = None
        return ways


def _found(clone_id: str, message: PeekedMessage) -> Fate:
    # A dead letter that was forwarded is in no sub-queue any more, and keeps its reason. A clone is sent without.
    back = message.entity.sub_queue is not None or message.dead_letter_source or message.dead_letter_reason
    return Fate(
        FateStatus.CAME_BACK if back else FateStatus.WAITING,
        clone_id,
        message.entity,
        message.sequence_number,
        message.dead_letter_reason,
        message.dead_letter_error_description,
    )


def _is_open(fate: Fate | None, place: EntityAddress) -> bool:
    """Tell whether a place may say more: the copy of one subscription may wait while another came back."""
    if fate is None or fate.entity is None or fate.status is FateStatus.UNKNOWN:
        return True
    is_elsewhere = place.sub_queue is not None and place.entity != fate.entity.entity
    return is_elsewhere and fate.status is FateStatus.WAITING


def _says_more(fate: Fate, before: Fate | None) -> bool:
    return before is None or before.status is FateStatus.UNKNOWN or fate.status is FateStatus.CAME_BACK


def _of_next_clone(message: PeekedMessage, originals: dict[str, str]) -> dict[str, Fate]:
    """Return the fate of a clone that was dead-lettered and resubmitted since, if a message is the next clone."""
    original = message.application_properties.get(ORIGINAL_MESSAGE_ID)
    clone_id = originals.get(original) if isinstance(original, str) else None
    if clone_id is None or message.resubmit_count <= lineage_of(clone_id)[1]:
        return {}
    # Several originals may have the same id, so this does not prove it.
    why = f"A later clone of its original is in {message.entity}: it came back, and was resubmitted."
    place = message.entity, message.sequence_number
    return {clone_id: Fate(FateStatus.UNKNOWN, clone_id, *place, message.dead_letter_reason, why)}
