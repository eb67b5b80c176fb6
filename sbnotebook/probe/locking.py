"""Probes of locks and of settling."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.model import Complete, Decision, Defer, Release
from sbnotebook.model.message import partition_of
from sbnotebook.probe.probe import Saw, Site, blank, probe, words_of
from sbnotebook.settlement.sdk.errors import condition_of
from sbnotebook.settlement.sdk.management import browser, delete_messages, renew_locks, settle_by_tokens
from sbnotebook.settlement.sdk.receivers import ReceivedLock

if TYPE_CHECKING:
    from collections.abc import Sequence

    from azure.servicebus.aio import ServiceBusReceiver


_SHORT: Final = 5.0
"""Seconds: the shortest lock that Azure gives."""
_HELD: Final = 5_010


@probe
async def lost_lock_refused(site: Site) -> Saw:
    """Settling after the lock has ended is refused, as lock lost."""
    async with site.filled(blank(), lock=_SHORT) as receiver:
        taken = await site.take(receiver, 1)
        await site.wait(_SHORT + 2)
        (error,) = await site.settle(receiver, Complete(), taken)
    is_lost = error is not None and condition_of(error)[0] == "com.microsoft:message-lock-lost"
    return Saw(is_lost, words_of(error))


@probe
async def release_not_counted(site: Site) -> Saw:
    """A released message comes again with the delivery count that it had."""
    async with site.filled(blank()) as receiver:
        first = await site.take(receiver, 1)
        await site.settle(receiver, Release(), first)
        (again,) = await site.take(receiver, 1)
    return Saw(
        again.delivery_count == first[0].delivery_count, f"{first[0].delivery_count}, then {again.delivery_count}"
    )


@probe
async def release_confirmed(site: Site) -> Saw:
    """The release of one message is confirmed."""
    return await _range(site, Release(), 1)


@probe
async def release_range_confirmed(site: Site) -> Saw:
    """The release of a range of messages is confirmed for each."""
    return await _range(site, Release(), 5)


@probe
async def defer_range_confirmed(site: Site) -> Saw:
    """Deferring a range of messages is confirmed for each message."""
    return await _range(site, Defer(), 5)


@probe
async def complete_range_confirmed(site: Site) -> Saw:
    """Completing a range of messages is confirmed for each message."""
    return await _range(site, Complete(), 5)


async def _range(site: Site, decision: Decision, count: int) -> Saw:
    async with site.filled(blank(count)) as receiver:
        taken = await site.take(receiver, count)
        errors = await site.settle(receiver, decision, taken)
        left = len(await site.peek(receiver, count))
    unconfirmed = [error for error in errors if error is not None]
    why = f": {words_of(unconfirmed[0])}" if unconfirmed else ""
    is_expected = not unconfirmed and left == (0 if decision == Complete() else count)
    return Saw(is_expected, f"{count - len(unconfirmed)} of {count} confirmed, {left} are there{why}")


@probe
async def lock_outlives_link(site: Site) -> Saw:
    """A lock lasts when its link is closed, and its token settles the message over another."""
    async with site.filled(blank()) as receiver:
        (message,) = await site.take(receiver, 1)
    async with site.receiver() as another:
        came_early = bool(await another.receive_messages(max_wait_time=2))
        error = await site.refusal(settle_by_tokens(another, [message.lock_token], Complete(), answer_within=10))
        left = len(await site.peek(another))
    words = f"{'it came to another' if came_early else 'it was held'}; by its token: {words_of(error)}; {left} left"
    return Saw(not came_early and error is None and not left, words)


@probe
async def order_after_release(site: Site) -> Saw:
    """Released messages come again from the places that they had."""
    async with site.filled(map(ServiceBusMessage, "12345")) as receiver:
        return await _released_in_turn(site, receiver)


@probe
async def order_after_release_in_session(site: Site) -> Saw:
    """Released messages of a session come again from their places."""
    async with site.filled((ServiceBusMessage(text, session_id="one") for text in "12345"), session="one") as receiver:
        return await _released_in_turn(site, receiver)


@probe
async def order_after_session_reopens(site: Site) -> Saw:
    """A session that is closed and opened again gives its messages in the order of their numbers."""
    async with site.filled((ServiceBusMessage(text, session_id="one") for text in "12345"), session="one") as receiver:
        for message in await site.take(receiver, 3):
            await site.settle(receiver, Release(), [message])
    async with site.receiver(session_id="one") as receiver:
        order = "".join(map(str, await site.take(receiver, 5)))
    return Saw(order == "12345", f"1, 2 and 3 were released; opened again, it gave {', '.join(order)}")


@probe
async def batch_delete(site: Site) -> Saw:
    """A request removes messages by their age; locked and later ones stay."""
    async with site.filled(map(ServiceBusMessage, "ldoo")) as receiver:
        await site.take(receiver, 1)
        await site.settle(receiver, Defer(), await site.take(receiver, 1))
        last = (await site.peek(receiver, 4))[-1].enqueued_time_utc
        await site.wait(2)
        await site.send([ServiceBusMessage("n")])
        asking, removed = browser(site.client, site.name), [0]
        try:
            while last is not None and (more := await delete_messages(asking, 10, last + timedelta(seconds=1))):
                removed.append(more)
        except ServiceBusError as error:
            return Saw(is_expected=False, words=f"{sum(removed)} removed; {words_of(error)}")
        finally:
            await asking.close()
        left = {str(message) for message in await site.peek(receiver, 5)}
    deferred = "stays" if "d" in left else "is removed, too"
    words = f"{sum(removed)} removed, {len(left)} left; a deferred message {deferred}"
    return Saw(left - {"d"} == {"l", "n"}, words)


async def _released_in_turn(site: Site, receiver: ServiceBusReceiver) -> Saw:
    for message in await site.take(receiver, 3):
        await site.settle(receiver, Release(), [message])
    order = "".join(map(str, await site.take(receiver, 5)))
    return Saw(order == "12345", f"1, 2 and 3 were released, then came {', '.join(order)}")


@probe
async def partition_token_batch(site: Site) -> Saw:
    """Renewing locks of two partitions in one request is refused."""
    async with site.partitioned(12) as receiver:
        taken = await site.take(receiver, 12)
        chosen = _of_two_partitions(taken)
        if len(chosen) < 2:  # noqa: PLR2004
            return Saw(is_expected=None, words="all messages were in one partition")
        error = await site.refusal(renew_locks(receiver, [*map(ReceivedLock.of_message, chosen)]))
    return Saw(error is not None, words_of(error))


def _of_two_partitions(messages: Sequence[ServiceBusReceivedMessage]) -> list[ServiceBusReceivedMessage]:
    by_partition = {partition_of(message.sequence_number or 0): message for message in messages}
    return [*by_partition.values()][:2]


@probe
async def refused_tokens(site: Site) -> Saw:
    """A request to complete messages by their tokens is refused, and completes none, if one is settled already."""
    async with site.filled(blank(3)) as receiver:
        taken = await site.take(receiver, 3)
        await site.settle(receiver, Complete(), taken[1:2])
        tokens = [message.lock_token for message in taken]
        error = await site.refusal(settle_by_tokens(receiver, tokens, Complete(), answer_within=10))
        left = len(await site.peek(receiver, 3))
    return Saw(error is not None and left == len(tokens) - 1, f"{words_of(error)}; {left} of 2 others are left")


@probe
async def held_on_one_link(site: Site) -> Saw:
    """One link holds 5,010 messages."""
    async with site.filled(blank(_HELD), lock=300) as receiver:
        held: list[ServiceBusReceivedMessage] = []
        error = await site.refusal(_hold(receiver, held))
        unsettled = await site.settle(receiver, Complete(), held[:1]) if error is None else []
    is_expected = error is None and len(held) == _HELD and unsettled == [None]
    return Saw(is_expected, f"{len(held):,} held{'' if error is None else f': {words_of(error)}'}")


async def _hold(receiver: ServiceBusReceiver, held: list[ServiceBusReceivedMessage]) -> None:
    while len(held) < _HELD:
        more = await receiver.receive_messages(max_message_count=min(_HELD - len(held), 1_000), max_wait_time=10)
        held += more
        if not more:
            return
