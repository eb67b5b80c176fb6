"""Look at all dead-letter queues of a namespace: their counts, and a sample of the messages of each.

Service Bus counts dead letters with their entity, so one listing has the counts of all. The rest is peeked, at several
queues at the same time: the first page of each, and its last message.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final

import anyio.to_thread

from sbnotebook.amqp.sections import APPLICATION_PROPERTIES, HEADER, MESSAGE_ANNOTATIONS, PROPERTIES
from sbnotebook.errors import ConfigurationError, JournalError, SbNotebookError, near_match
from sbnotebook.model import EntityAddress, PeekedMessage, SubQueue
from sbnotebook.model.partition import end_of_partition, partition_of
from sbnotebook.settlement import (
    AsyncNamespace,
    EntityCounts,
    Look,
    Peeker,
    SequenceNumbers,
    explained,
    in_parallel,
)

AT_ONCE: Final = 32
"""Queues that are peeked at the same time, at most."""
_WITHOUT_BODIES: Final = (HEADER, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES)


@dataclass(frozen=True, slots=True)
class DeadLetterLook:
    """One dead-letter queue, as this look found it.

    Args:
        address: the sub-queue.
        count: its messages, as Service Bus counts them.
        before: the last look at it from this machine; None for the first, and if the journal cannot be used.
        sample: its first messages, without their bodies.
        last: the message with the greatest sequence number; None where it is not known, as in a partitioned entity of
            more messages than the sample has.
        problem: why the queue could not be peeked at; None if it could.
    """

    address: EntityAddress
    count: int
    before: Look | None = None
    sample: Sequence[PeekedMessage] = ()
    last: PeekedMessage | None = None
    problem: str | None = None


async def look_at_dead_letters(
    namespace: AsyncNamespace, entities: Collection[EntityAddress] | None, *, sample: int, now: datetime
) -> tuple[list[DeadLetterLook], int]:
    """Look at the dead-letter queues that have messages, or had some at the last look, and count the entities.

    The queue with the most messages comes first. It locks nothing, and keeps the counts in the journal for the next
    look.
    """
    topics = None if entities is None else {each.name for each in entities}
    listed = choose_entities(await namespace.entities(topics), entities)
    counts = dict(_dead_letters(listed))
    before = await _looks_before(namespace, counts, now)
    wanted = [each for each, count in counts.items() if count or (each in before and before[each].messages)]
    looks = await in_parallel(
        lambda each: _look(namespace, each, counts[each], before.get(each), sample), wanted, AT_ONCE
    )
    return sorted(looks, key=lambda look: -look.count), len(listed)


def choose_entities(
    listed: Sequence[EntityCounts], entities: Collection[EntityAddress] | None = None
) -> list[EntityCounts]:
    """Return the queues and subscriptions that addresses name, by default all; a topic names its subscriptions."""
    places = [counts for counts in listed if counts.kind != "topic"]
    if entities is None:
        return places
    chosen: dict[EntityAddress, EntityCounts] = {}
    for address in entities:
        found = [each for each in places if address.entity in (each.address, each.address.sends_to)]
        if not found and not any(each.address == address.entity for each in listed):
            near = near_match(str(address.entity), (str(each.address) for each in listed))
            hint = f" (did you mean {near}?)" if near else ""
            raise ConfigurationError(
                f"There is no queue, topic or subscription {str(address.entity)!r}{hint}: %sb_entities lists them."
            )
        chosen |= {each.address: each for each in found}
    return list(chosen.values())


def _dead_letters(listed: Sequence[EntityCounts]) -> Iterator[tuple[EntityAddress, int]]:
    for each in listed:
        yield each.address.dead_letter, each.dead_letter
        transfer = EntityAddress(each.address.name, each.address.subscription, SubQueue.TRANSFER_DEAD_LETTER)
        yield transfer, each.transfer_dead_letter


async def _looks_before(
    namespace: AsyncNamespace, counts: Mapping[EntityAddress, int], now: datetime
) -> dict[EntityAddress, Look]:
    try:
        return await anyio.to_thread.run_sync(partial(namespace.notes.replace_looks, counts, now))
    except (JournalError, ConfigurationError):  # without a journal, the growth is unknown
        return {}


async def _look(
    namespace: AsyncNamespace, address: EntityAddress, count: int, before: Look | None, sample: int
) -> DeadLetterLook:
    if not count:
        return DeadLetterLook(address, count, before)
    peeker = namespace.peeker(address)
    try:
        page = await peeker.page(1, sample)
        messages = page.messages(_WITHOUT_BODIES)
        last = await _last(peeker, messages, max(count, len(messages))) if messages else None
    except SbNotebookError:
        raise
    except Exception as error:  # noqa: BLE001 (a queue that is gone must not hide what others have)
        return DeadLetterLook(address, count, before, problem=explained(error))
    return DeadLetterLook(address, count, before, messages, last)


async def _last(peeker: Peeker, sample: Sequence[PeekedMessage], count: int) -> PeekedMessage | None:
    """Return the last message; the count tells where it probably is, if no number is missing."""
    known: dict[int, PeekedMessage] = {}

    async def next_number(number: int) -> int | None:
        page = await peeker.page(number, 1, attempts=1)
        for message in page.messages(_WITHOUT_BODIES):
            known[message.sequence_number] = message
            return message.sequence_number
        return None

    numbers, first, seen = SequenceNumbers(next_number), sample[0].sequence_number, sample[-1]
    end = end_of_partition(partition_of(first))
    if partition_of(seen.sequence_number) != partition_of(first):
        return None if count > len(sample) else seen
    known[seen.sequence_number] = seen
    guess = max(first + count - 1, seen.sequence_number)
    found = await next_number(guess) if guess > seen.sequence_number else guess
    if found is not None and found <= end:
        last = await numbers.last(found, end, step=1)
    else:
        last = await numbers.last(seen.sequence_number, guess - 1)
    if count > len(sample) and await next_number(end + 1) is not None:
        return None  # other partitions follow
    return known[last]
