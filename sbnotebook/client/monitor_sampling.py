"""Sample the counts of entities for a monitor, and estimate the rates of arrival and departure between samples.

The service reports counts, but not rates. Each message gets the next sequence number when it arrives, so the newest
number grows by the number of arrivals, including messages that have left since. A few peeks find the newest number of
an existing message. So the rates are lower bounds: messages that come and go between two samples are counted as soon as
a later one is seen. What arrives while a sample is taken counts in the next one: the newest number is read before the
counts and after them. A scheduled message counts when it is scheduled, and again when it becomes active. Partitioned
entities number each partition by itself: for them, only the change of the counts is known.

Source: Service Bus documentation, "Message sequencing and timestamps" (sequence numbers; the partition in their upper
bits).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final

from sbnotebook.client.async_entity import AsyncEntity
from sbnotebook.client.dead_letters import choose_entities, last_near
from sbnotebook.client.namespace import Namespace
from sbnotebook.client.portal import run
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import EntityAddress, MessageState
from sbnotebook.model.message import end_of_partition
from sbnotebook.settlement import EntityCounts, SequenceNumbers

_MOST: Final = 12
"""Entities that are sampled when none is named."""
_LOOKED_AT: Final = 10
"""Messages at the head that are searched for an active one; those before it are deferred or scheduled."""


@dataclass(frozen=True, slots=True)
class Sample:
    """The counts and rates of an entity at one moment.

    Args:
        entity: the queue or subscription.
        time: the moment.
        active: messages that can be received, deferred ones counted with them.
        scheduled: messages that become active later.
        dead_letter: messages in the dead-letter queue.
        transfer_dead_letter: messages in the transfer dead-letter queue.
        oldest_age: seconds since the oldest active message was enqueued; None when there is none at the head.
        arrived: messages a second that arrived since the sample before, at least; None for the first.
        left: messages a second that were completed, dead-lettered, expired or forwarded since, at least.
        newest: the sequence number of the newest message that was seen; None for none, and for partitioned entities.
    """

    entity: EntityAddress
    time: datetime
    active: int
    scheduled: int
    dead_letter: int
    transfer_dead_letter: int
    oldest_age: float | None = None
    arrived: float | None = None
    left: float | None = None
    newest: int | None = None


class Sampler:
    """Takes samples of entities: for each a management operation, and a few peeks, which lock nothing."""

    def __init__(
        self,
        namespace: Namespace,
        entities: Iterable[str | EntityAddress] | None = None,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._namespace = namespace.asynchronous
        self._asked = None if entities is None else [EntityAddress.parse(each) for each in entities]
        for address in self._asked or ():
            if address.sub_queue is not None:
                raise ConfigurationError(f"{address} is counted with {address.entity}: watch that.")
        self._chosen: list[EntityAddress] | None = None
        self._now = now
        self._last: dict[EntityAddress, Sample] = {}

    def sample(self) -> list[Sample]:
        return run(self._sample_all)

    async def _sample_all(self) -> list[Sample]:
        if self._chosen is None:
            topics = None if self._asked is None else [address.name for address in self._asked]
            self._chosen = self._choose(await self._namespace.entities(topics=topics))
        newest = {address: await self._newest_before(address) for address in self._chosen}
        counted = await self._namespace.counts(self._chosen)
        return [await self._sample(counts, newest[counts.address]) for counts in counted]

    def _choose(self, entities: list[EntityCounts]) -> list[EntityAddress]:
        watched = choose_entities(entities, self._asked)
        if self._asked and not watched:
            raise ConfigurationError(
                f"There is no queue or subscription {self._asked[0]}, and no topic with subscriptions."
            )
        if self._asked is None:
            fullest = sorted(watched, key=lambda counts: -(counts.active + counts.dead_letter + counts.scheduled))
            kept = {counts.address for counts in fullest[:_MOST]}
            watched = [counts for counts in watched if counts.address in kept]
        return [counts.address for counts in watched]

    async def _newest_before(self, address: EntityAddress) -> int | None:
        last = self._last.get(address)
        if last is None or last.newest is None:
            return None
        expected = (last.arrived or 0) * (self._now() - last.time).total_seconds()
        return await _newest(self._namespace.entity(address), last.newest, round(expected))

    async def _sample(self, counts: EntityCounts, newest_before: int | None) -> Sample:
        entity = self._namespace.entity(counts.address)
        last = self._last.get(counts.address)
        time = self._now()
        known = newest_before or (last.newest if last is not None else None) or 0
        first = counts.active + counts.scheduled if last is None else 0
        sample = Sample(
            counts.address,
            time,
            counts.active,
            counts.scheduled,
            counts.dead_letter,
            counts.transfer_dead_letter,
            oldest_age=await _oldest_age(entity, time),
            newest=await _newest(entity, known, first),
        )
        self._last[counts.address] = sample = _with_rates(sample, last, newest_before) if last is not None else sample
        return sample


async def _oldest_age(entity: AsyncEntity, now: datetime) -> float | None:
    # Bodies may be large: ask for one message first, and for others only when that one is not active.
    for count in (1, _LOOKED_AT):
        head = await entity.peek(count, show_progress=False)
        active = [message for message in head if message.state is MessageState.ACTIVE]
        if active or len(head) < count:
            break
    oldest = active[0].enqueued_time if active else None
    return None if oldest is None else max(0.0, (now - oldest).total_seconds())


async def _newest(entity: AsyncEntity, known: int, expected: int) -> int | None:
    """Return the newest number, which is probably the known one and as many more; None for a partitioned entity."""
    there, end, seen = SequenceNumbers.of(entity.place), end_of_partition(0), [known]

    async def next_number(number: int) -> int | None:
        found = await there.next(number)
        seen.append(found or 0)
        return found

    if (first := await next_number(known + 1)) is not None:
        known = await last_near(next_number, first, known + max(1, expected), end)
    return (known or None) if max(seen) <= end else None


def _with_rates(sample: Sample, last: Sample, newest_before: int | None) -> Sample:
    seconds = (sample.time - last.time).total_seconds()
    if seconds <= 0:
        return sample
    grown = sample.active + sample.scheduled - last.active - last.scheduled
    # Without a message in the last sample, the number does not tell the arrivals since.
    numbered = newest_before - last.newest if newest_before is not None and last.newest is not None else 0
    arrived = max(grown, numbered, 0)
    return replace(sample, arrived=arrived / seconds, left=(arrived - grown) / seconds)
