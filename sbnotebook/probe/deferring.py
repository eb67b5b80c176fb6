"""Probes of deferral, and of what counts as a delivery."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Final

import anyio
from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus.exceptions import MessageNotFoundError, OperationTimeoutError

from sbnotebook.model import Abandon, DeadLetter, Defer
from sbnotebook.probe.probe import Saw, blank, probe, words_of
from sbnotebook.settlement import read_service_part
from sbnotebook.settlement.sdk.management import delete_deferred, receive_deferred, settle_by_tokens
from sbnotebook.settlement.sdk.receivers import ReceivedLock

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage
    from azure.servicebus.aio import ServiceBusReceiver

    from sbnotebook.probe.probe import Site

_AT_ONCE: Final = 250
_SHORT: Final = 5.0
"""Seconds: the shortest lock that Azure gives."""
_EXPIRY: Final = 10.0
_NEXT_WITHIN: Final = 5
_ANSWER_WITHIN: Final = 10.0
_NOWHERE: Final = 1 << 40
"""A sequence number that no message has."""


@probe
async def deferred_all_or_none(site: Site) -> Saw:
    """A request for deferred messages locks all of them or none."""
    async with _deferred(site, 2) as (receiver, numbers):
        error = await site.refusal(receive_deferred(receiver, [*numbers, _NOWHERE]))
        after = [await site.refusal(receive_deferred(receiver, [number])) for number in numbers]
    words = f"two and a missing one: {words_of(error)}; then each alone: {words_of(after[0])}"
    return Saw(isinstance(error, MessageNotFoundError) and after == [None, None], words)


@probe
async def deferred_delivery_count(site: Site) -> Saw:
    """Locking a deferred message by its number counts as a delivery."""
    counts: list[int] = []
    async with _deferred(site, 1) as (receiver, numbers):
        for _ in range(3):
            (message,) = await receive_deferred(receiver, numbers)
            counts.append(_count_of(message))
            await settle_by_tokens(receiver, [message.lock_token], Abandon(), answer_within=_ANSWER_WITHIN)
    return Saw(counts == [counts[0], counts[0] + 1, counts[0] + 2], f"delivery counts {counts}, abandoned in between")


def _count_of(message: ServiceBusReceivedMessage | ReceivedLock) -> int:
    """Return how often a message was delivered, by its own bytes where the SDK was not given all of them."""
    if isinstance(message, ReceivedLock):
        return read_service_part(message.payload or b"").fields["delivery_count"]
    return message.delivery_count or 0


@probe
async def deferred_removed_250(site: Site) -> Saw:
    """250 deferred messages are removed at once, by their numbers."""
    async with _deferred(site, _AT_ONCE) as (receiver, numbers):
        removed = await delete_deferred(receiver, numbers)
        left = len(await site.peek(receiver, _AT_ONCE))
    return Saw((removed, left) == (_AT_ONCE, 0), f"{removed} removed, {left} left")


@probe
async def dead_letter_delivery_count(site: Site) -> Saw:
    """In a dead-letter queue neither the end of a lock, nor abandoning, nor deferring counts as a delivery."""
    async with site.filled(blank(), lock=_SHORT) as receiver:
        await site.settle(receiver, DeadLetter(), await site.take(receiver, 1))
    async with site.letters() as letters:
        found = await site.take(letters, 1)
        await site.wait(_SHORT + 2)
        found += await site.take(letters, 1)
        await site.settle(letters, Abandon(), found[-1:])
        found += await site.take(letters, 1)
        await site.settle(letters, Defer(), found[-1:])
        counts = [_count_of(message) for message in found]
        counts += map(_count_of, await receive_deferred(letters, [found[-1].sequence_number or 0]))
    words = "first {}, after its lock ended {}, abandoned {}, deferred {}".format(*counts)
    return Saw(len(set(counts)) == 1, words)


@probe
async def deferred_expiry(site: Site) -> Saw:
    """A deferred message that has expired can no longer be received."""
    async with _deferred(site, 1, lives=timedelta(seconds=_EXPIRY)) as (receiver, numbers):
        await site.wait(_EXPIRY + 2)
        error = await site.refusal(receive_deferred(receiver, numbers))
    return Saw(isinstance(error, MessageNotFoundError), words_of(error))


@probe
async def deferred_dead_letter_of_session(site: Site) -> Saw:
    """A deferred dead letter of an entity that requires sessions can be received over another link."""
    async with site.filled(blank(session_id="one"), session="one") as session:
        (message,) = await site.take(session, 1)
        await session.dead_letter_message(message)
    async with site.letters() as letters:
        (letter,) = await site.take(letters, 1)
        await letters.defer_message(letter)
    async with site.letters() as another:
        error = await site.refusal(receive_deferred(another, [letter.sequence_number or 0]))
    return Saw(error is None, words_of(error))


@probe
async def deferred_only_session(site: Site) -> Saw:
    """A session with deferred messages only is not given as the next one."""
    async with site.filled(blank(session_id="one"), session="one") as session:
        (message,) = await site.take(session, 1)
        await session.defer_message(message)
    saw = Saw(is_expected=False, words="it was given")
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(_let_time_pass, site)
        try:
            async with site.receiver(session_id=NEXT_AVAILABLE_SESSION, max_wait_time=_NEXT_WITHIN):
                pass
        except OperationTimeoutError as error:
            saw = Saw(is_expected=True, words=words_of(error))
        tasks.cancel_scope.cancel()
    return saw


async def _let_time_pass(site: Site) -> None:
    while True:
        await site.wait(1)


@asynccontextmanager
async def _deferred(
    site: Site, count: int, *, lives: timedelta | None = None
) -> AsyncGenerator[tuple[ServiceBusReceiver, list[int]]]:
    """Make a queue with deferred messages, and give their numbers with a receiver that is open while the block runs."""
    async with site.filled(blank(count, time_to_live=lives)) as receiver:
        taken = await site.take(receiver, count)
        await site.settle(receiver, Defer(), taken)
        yield receiver, [message.sequence_number or 0 for message in taken]
