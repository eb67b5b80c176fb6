"""Probes of peeking, sequence numbers and times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from azure.servicebus import ServiceBusMessage, ServiceBusMessageState, ServiceBusReceivedMessage

from sbnotebook.model import Release
from sbnotebook.model.message import partition_of
from sbnotebook.probe.probe import Saw, Site, blank, probe
from sbnotebook.settlement.sdk.management import browser, peek_payloads

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusReceiver


_PAGE: Final = 250
_LOOKS: Final = 100
_LATER: Final = 10.0
"""Seconds after which a scheduled message becomes active."""
_MILLISECONDS: Final = 2**32
"""The longest time to live that the header of a message can say: 49.7 days."""


@probe
async def peek_states(site: Site) -> Saw:
    """A peek gives active, locked, deferred and scheduled messages, with their states."""
    async with site.filled(map(ServiceBusMessage, ("locked", "deferred", "active"))) as receiver:
        async with site.sender() as sender:
            await sender.schedule_messages(ServiceBusMessage("scheduled"), datetime.now(UTC) + timedelta(hours=1))
        _, deferred, active = await site.take(receiver, 3)
        await receiver.defer_message(deferred)
        await site.settle(receiver, Release(), [active])
        peeked = await site.peek(receiver, 10)
    found = {str(message): message.state for message in peeked}
    states = ServiceBusMessageState
    wanted = {"locked": states.ACTIVE, "deferred": states.DEFERRED, "active": states.ACTIVE}
    words = ", ".join(f"{name}: {state.name.lower()}" for name, state in sorted(found.items()))
    return Saw(found == wanted | {"scheduled": states.SCHEDULED}, words or "no message")


@probe
async def page_size(site: Site) -> Saw:
    """A peek gives 250 messages at most."""
    async with site.filled(blank(_PAGE + 10)) as receiver:
        peeked = await site.peek(receiver, _PAGE + 10)
    return Saw(len(peeked) == _PAGE, f"{len(peeked)} of {_PAGE + 10} messages")


@probe
async def peek_without_bodies(site: Site) -> Saw:
    """A peek leaves out the bodies where it is asked to."""
    queue = await site.queue()
    await site.send([ServiceBusMessage(b"body" * 250)])
    looking = browser(site.client, queue)
    try:
        sizes = [len((await peek_payloads(looking, 1, 1, with_bodies=wanted))[0]) for wanted in (True, False)]
    finally:
        await looking.close()
    return Saw(sizes[0] >= 1_000 > sizes[1], "{:,} bytes with the body, {:,} without".format(*sizes))  # noqa: PLR2004


@probe
async def no_empty_peeks(site: Site) -> Saw:
    """A peek at a queue with a message is never empty."""
    async with site.filled(blank()) as receiver:
        empty = [not await receiver.peek_messages(max_message_count=1, sequence_number=1) for _ in range(_LOOKS)]
    return Saw(not any(empty), f"{sum(empty)} of {_LOOKS} peeks were empty")


@probe
async def dead_letter_number(site: Site) -> Saw:
    """A dead letter keeps its sequence number."""
    async with site.filled(map(ServiceBusMessage, ("first", "second"))) as receiver:
        _, second = await site.take(receiver, 2)
        await receiver.dead_letter_message(second)
    async with site.letters() as letters:
        (letter,) = await site.take(letters, 1)
    before, after = second.sequence_number, letter.sequence_number
    return Saw(before == after, f"{before} became {after}")


@probe
async def scheduled_number(site: Site) -> Saw:
    """A scheduled message gets another number when it becomes active."""
    before = await _schedule(site)
    after = await _activated(site)
    return Saw(before.sequence_number != after.sequence_number, f"{before.sequence_number} → {after.sequence_number}")


@probe
async def activated_state(site: Site) -> Saw:
    """A message that was scheduled says that it is active, when peeked."""
    await _schedule(site)
    received = await _activated(site)
    async with site.receiver() as receiver:
        peeked = next(each for each in await site.peek(receiver, 2) if str(each) == "later")
    words = f"{peeked.state.name.lower()} when peeked, {received.state.name.lower()} when received"
    return Saw(peeked.state is ServiceBusMessageState.ACTIVE, words)


@probe
async def scheduled_times(site: Site) -> Saw:
    """A scheduled message shows the time when it was sent, and once active the time of that."""
    before = await _schedule(site)
    after = await _activated(site)
    times = before.enqueued_time_utc, before.scheduled_enqueue_time_utc, after.enqueued_time_utc
    known = [time for time in times if time]
    if len(known) < len(times):
        return Saw(is_expected=False, words="a time was missing: {}, {}, {}".format(*times))
    first, due, then = known
    words = f"enqueued {(due - first).total_seconds():.1f} s before it was due, then {(then - due).total_seconds():.1f}"
    return Saw(first < due - timedelta(seconds=_LATER / 2) and then >= due - timedelta(seconds=1), f"{words} s after")


@probe
async def no_time_to_live(site: Site) -> Saw:
    """A message without a time to live comes without one, or with 49.7 days."""
    async with site.filled(blank()) as receiver:
        (peeked,) = await site.peek(receiver)
    lives = peeked.time_to_live
    days = timedelta(milliseconds=_MILLISECONDS)
    is_none = lives is None or abs(lives - days) < timedelta(seconds=1)
    return Saw(is_none, "none" if lives is None else f"{lives.total_seconds() / 86_400:.1f} days")


@probe
async def partition_pages(site: Site) -> Saw:
    """Peeks that continue behind the last message of each page return all messages of a partitioned queue."""
    async with site.partitioned(60) as receiver:
        found = [message.sequence_number or 0 for message in await _pages(receiver)]
    words = f"{len(set(found))} of 60 messages, in {len({partition_of(each) for each in found})} partitions"
    return Saw(len(set(found)) == len(found) == 60, words)  # noqa: PLR2004


@probe
async def peek_from_number(site: Site) -> Saw:
    """A peek from a number of a partition begins with that message."""
    async with site.partitioned(30) as receiver:
        numbers = [message.sequence_number or 0 for message in await _pages(receiver)]
        firsts = [await receiver.peek_messages(max_message_count=1, sequence_number=each) for each in numbers]
    hits = sum(
        bool(first) and first[0].sequence_number == number for first, number in zip(firsts, numbers, strict=True)
    )
    partitions = len({partition_of(number) for number in numbers})
    return Saw(hits == len(numbers) > 0, f"{hits} of {len(numbers)} messages, in {partitions} partitions")


async def _schedule(site: Site) -> ServiceBusReceivedMessage:
    """Schedule a message in a new queue, and peek at it."""
    async with site.filled() as receiver, site.sender() as sender:
        # By the time of the service, which this machine's may differ from.
        await sender.send_messages(ServiceBusMessage("now"))
        (now,) = await site.take(receiver, 1)
        await receiver.complete_message(now)
        due = (now.enqueued_time_utc or datetime.now(UTC)) + timedelta(seconds=_LATER)
        await sender.schedule_messages(ServiceBusMessage("later"), due)
        # Another behind it, so that its next number is not the same by chance.
        await sender.schedule_messages(ServiceBusMessage("much later"), due + timedelta(hours=1))
        (before,) = await site.peek(receiver)
    return before


async def _activated(site: Site) -> ServiceBusReceivedMessage:
    await site.wait(_LATER + 1)
    async with site.receiver() as receiver:
        (after,) = await site.take(receiver, 1, within=20)
        await site.settle(receiver, Release(), [after])
    return after


async def _pages(receiver: ServiceBusReceiver) -> list[ServiceBusReceivedMessage]:
    found: list[ServiceBusReceivedMessage] = []
    after = 0
    while page := await receiver.peek_messages(max_message_count=10, sequence_number=after + 1):
        found += page
        after = page[-1].sequence_number or 0
    return found
