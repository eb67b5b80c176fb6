"""Removing or deferring all, or many, messages of an entity; messages that arrive after the plan was made stay.

Without an archive, Service Bus itself removes messages by their age, and none is received.

Sources: Service Bus documentation, "Batch delete messages in Azure Service Bus": at most 500 messages a request on
Standard and 4,000 on Premium, on a best-effort basis, locked messages stay, partitioned entities are not supported.
azure-sdk-for-net pull request 62625: the requests end with an answer of zero, and the receiver of a session purges that
session only. What happens to deferred and scheduled messages, no source says: those that are left go one by one.

Messages can also be received and deleted in one step. "If the message transfer fails, the message is lost" (Service Bus
documentation, "Message transfers, locks, and settlement", ReceiveAndDelete). The archive gets each message as soon as
it arrives, before the caller.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import repeat
from typing import Any, Final, TypeAlias, cast

import anyio
import anyio.lowlevel
import anyio.to_thread
from azure.core.exceptions import AzureError, ResourceNotFoundError
from azure.servicebus import ServiceBusReceiveMode
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.errors import ArchiveError, ConfigurationError
from sbnotebook.model import (
    Complete,
    Defer,
    EntityAddress,
    MessageState,
    Outcome,
    OutcomeStatus,
    PeekedMessage,
    Purge,
    ReceivedMessage,
)
from sbnotebook.model.report import counted
from sbnotebook.settlement import administration
from sbnotebook.settlement.actions.reach import LOCKED, Chosen, Reach, Selection, select, settling
from sbnotebook.settlement.actions.send import cancel_scheduled
from sbnotebook.settlement.connecting.failures import Failure, explained
from sbnotebook.settlement.engine import ENDS_A_RUN, FINISH_WITHIN, Run
from sbnotebook.settlement.interrupts import in_flight
from sbnotebook.settlement.locking.ahead import Search
from sbnotebook.settlement.locking.settle import archived_from
from sbnotebook.settlement.memory.archive import Archive, ArchiveState
from sbnotebook.settlement.pace import AUTO, SENDERS, Limiter
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import Plan, Preview, Progress, check_wait
from sbnotebook.settlement.requests import in_parallel
from sbnotebook.settlement.sdk.receivers import LockReceiver
from sbnotebook.settlement.wire.decoding import peeked_from_payload

VERB: Final = "receive and delete"
_STEP: Final = 100
"""Messages that are asked for at once, and so those on their way when a connection breaks."""
_MORE_WAIT: Final = 1.0
_WITHDRAW: Final = 5.0
_CLOSE_TIMEOUT: Final = 15.0


@dataclass(slots=True, eq=False)
class _Taken:
    address: EntityAddress
    namespace: Callable[[], str]
    archive: Archive | None
    messages: list[PeekedMessage]
    count: int = 0
    unkept: list[tuple[PeekedMessage, bytes]] = field(default_factory=list[tuple[PeekedMessage, bytes]])

    def take(self, payload: bytes) -> None:
        message = peeked_from_payload(payload, self.address)
        self.messages.append(message)
        self.count += 1
        if self.archive is not None:
            self.unkept.append((message, payload))

    async def keep(self) -> None:
        fresh = [*self.unkept]
        if fresh and self.archive is not None:
            # Must not be interrupted between the two. If it fails, they are written with the next ones, or at the end.
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._write, self.archive, fresh)
                del self.unkept[: len(fresh)]

    def _write(self, archive: Archive, fresh: Sequence[tuple[PeekedMessage, bytes]]) -> None:
        archive.keep([archived_from(*each, self.namespace(), VERB, ArchiveState.REMOVED) for each in fresh])


async def receive_and_delete(
    entity: Place,
    count: int,
    *,
    max_wait: float = 5.0,
    archived: bool = True,
    into: list[PeekedMessage] | None = None,
    progress: Progress | None = None,
) -> list[PeekedMessage]:
    """Receive messages that are removed as they are sent, to ``max_wait`` seconds without one.

    The archive and the list ``into`` get each message as it arrives, also if the call is cancelled. Without room in the
    archive, an ArchiveError is raised and nothing is removed.
    """
    if count < 1:
        raise ConfigurationError("Receive at least 1 message.")
    check_wait(max_wait)
    archive = entity.namespace.archive if archived else None
    if archive is not None:
        await anyio.to_thread.run_sync(archive.require_room)
    taken = _Taken(entity.address, entity.namespace.identity, archive, [] if into is None else into)
    receiver = entity.namespace.connection.receiver(
        entity.address, retries=0, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE
    )
    receiver.sink = taken.take
    async with receiver:
        try:
            await _receive(receiver, taken, count, max_wait, progress)
        except (ServiceBusError, OSError, ArchiveError) as error:
            if not taken.count:
                raise
            _warn(taken, explained(error))
        finally:
            with anyio.move_on_after(_CLOSE_TIMEOUT, shield=True):
                await _end(receiver, taken)
    return taken.messages


async def _receive(
    receiver: LockReceiver, taken: _Taken, count: int, max_wait: float, progress: Progress | None
) -> None:
    wait = max_wait
    while taken.count < count:
        before = taken.count
        await receiver.take(min(count - before, _STEP), wait)
        await taken.keep()
        if progress is not None:
            progress(taken.count - before)
        if taken.count == before:
            return
        wait = min(_MORE_WAIT, max_wait)


async def _end(receiver: LockReceiver, taken: _Taken) -> None:
    """Take the messages still on their way, for any end of the receiving."""
    await receiver.withdraw_credit(_WITHDRAW)
    try:
        await taken.keep()
    except ArchiveError as error:
        _warn(taken, f"What arrived last is not in the archive. {error}")


def _warn(taken: _Taken, why: str) -> None:
    warnings.warn(
        f"Only {taken.count:,} messages were received: {why} Messages that were on their way may be lost.",
        stacklevel=3,
    )


_MOST, _MOST_PREMIUM = 500, 4_000
"""Messages that a request removes at most."""
_SHOWN: Final = 10
"""The first messages that a plan can show."""


async def plan_sweep(
    place: Place,
    decision: Purge | Defer,
    chosen: Chosen,
    *,
    archived: bool = True,
    way: str = "",
    progress: Progress | None = None,
) -> Plan:
    """Peek at all messages, and return a plan to remove or to defer those that are meant; ``way`` ends its sentence."""
    seen = await select(place, chosen, progress)
    is_purge = isinstance(decision, Purge)
    seen.check_reach("removed" if is_purge else "deferred")
    note = (
        await _kept(place, seen, archived=archived)
        if is_purge
        else "From then on they can only be received by sequence number. The numbers are written to the journal of "
        "this machine before."
    )
    if not (is_purge or place.address.sub_queue):
        note += " This counts as a delivery: at its maximum, a message is dead-lettered and reported as deferred."
    sentence = seen.sentence(decision.verb, place, *filter(None, (note, way)))
    return place.new_plan(
        decision,
        seen.messages,
        partial(sweep, place, decision, seen, archived),
        described=Preview(sentence, tuple(seen.messages)),
        others=seen.between,
        options={} if archived else {"archived": False},
    )


async def sweep(place: Place, decision: Purge | Defer, seen: Selection, archived: bool, run: Run) -> None:
    """Remove or defer the messages of a run, in any state."""
    archive, is_purge = place.namespace.archive, isinstance(decision, Purge)
    if is_purge and archived and archive is not None:
        await anyio.to_thread.run_sync(archive.require_room, seen.room)
    in_state: dict[MessageState, list[ReceivedMessage]] = {state: [] for state in MessageState}
    for message in run.without_outcome():
        in_state[message.state].append(message)
    steps = settling(run, Complete() if is_purge else decision)
    reach = Reach(place, run, steps, archived=archived, search=Search(expected=seen.to_lock))
    await reach.active(in_state[MessageState.ACTIVE])
    await reach.deferred(in_state[MessageState.DEFERRED])
    await cancel_scheduled(place, run, in_state[MessageState.SCHEDULED], archived=archived)
    await reach.find_missing(run.without_outcome())


async def _kept(place: Place, seen: Selection, *, archived: bool) -> str:
    archive = place.namespace.archive
    if archive is None or not archived:
        return "They are removed for good: nothing is archived."
    try:
        await anyio.to_thread.run_sync(archive.require_room, seen.room)
    except ArchiveError as error:
        return f"As it is now, it will be refused. {error}"
    return f"They are kept in the archive for {archive.retention.days:,} days, and undo sends them back."


# ---------------------------------------------------------------- on the server


_Known: TypeAlias = tuple[int | None, int, str | None]
"""The number of messages, the limit of one request, and the reason why the server cannot choose by age, if any."""
_UNKNOWN: Final = (None, _MOST, None)


async def plan_purge(place: Place, chosen: Chosen, *, archived: bool = True, progress: Progress | None = None) -> Plan:
    """Return a plan to remove messages: on the server where nothing is archived and their age alone chooses them."""
    by_age = chosen == Chosen(before=chosen.before)
    if not by_age or (archived and place.namespace.archive is not None):
        return await plan_sweep(place, Purge(), chosen, archived=archived, progress=progress)
    looks: list[Callable[[], Awaitable[Any]]] = [
        partial(_known, place),
        partial(place.peek, _SHOWN),  # also opens the connection of the purge
    ]
    known, first = cast(
        "tuple[_Known | None, list[PeekedMessage]]", await in_parallel(lambda look: look(), looks, len(looks))
    )
    total, most, refusal = known or _UNKNOWN
    if known is None or refusal is not None:
        way = f"Each is received and removed: {refusal}." if refusal else ""
        return await plan_sweep(place, Purge(), chosen, archived=archived, way=way, progress=progress)
    # Last, so that it includes what the administration counted.
    now = place.namespace.clock.now()
    before = min(chosen.before or now, now)
    before -= timedelta(microseconds=before.microsecond % 1_000)  # the service counts in milliseconds
    # Only a part of the counted messages may be that old.
    total = total if chosen.before is None or not total else None
    shown = [each for each in first if each.enqueued_time is not None and each.enqueued_time < before]
    return place.new_plan(
        Purge(before),
        (),
        lambda run: _Deletion(place, before, total, most, run).carry_out(),
        finds_messages=True,
        described=Preview(_sentence(place, before, total, most), tuple(shown)),
        total=total,
        options={} if archived else {"archived": False},
        speeds=None,
    )


def _sentence(place: Place, before: datetime, total: int | None, most: int) -> str:
    requests = "" if total is None else f", so about {-(-total // most) + 1:,}"
    count = "the messages" if total is None else counted(total)
    return (
        f"purge {count} of {place.in_plans} enqueued before {before.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC. Service "
        f"Bus itself removes the active ones, and none is received; if it refuses, each is received and removed. It "
        f"costs an operation for each {most:,} messages{requests}. Deferred and scheduled messages go one by "
        "one. Locked messages stay. The others are removed for good: nothing is archived, and undo cannot send them "
        "back."
    )


async def _known(place: Place) -> _Known | None:
    """Return what the administration says, which is nothing without its rights; None where there is no such entity."""
    address, connection = place.address, place.namespace.connection
    asks: list[Callable[[], Awaitable[Any]]] = [
        partial(administration.tier_of, connection),
        partial(administration.counts_of, connection, [address.entity]),
        partial(administration.properties_of, connection, address.entity),
        partial(administration.properties_of, connection, EntityAddress(address.name)),
    ]
    try:
        tier, (counts,), own, whole = await in_parallel(lambda ask: ask(), asks, len(asks))
    except (ResourceNotFoundError, AttributeError):  # the SDK looks for a queue's description in a topic's
        return None
    except (AzureError, OSError):  # without the right, or Microsoft's emulator without its port of the administration
        return _UNKNOWN
    count = counts.count_in(address.sub_queue) + (0 if address.sub_queue else counts.scheduled)
    return count, _MOST_PREMIUM if tier.casefold() == "premium" else _MOST, _refusal(address, own, whole)


def _refusal(address: EntityAddress, own: Any, whole: Any) -> str | None:
    if own.requires_session and address.sub_queue is None:
        return "it requires sessions, and Service Bus removes messages of one held session only"
    if whole.enable_partitioning:
        return "it has partitions, for which Service Bus does not support that"
    return None


class _Deletion:
    """One purge on the server; an unanswered request is repeated for the same time, and only its count is lost."""

    def __init__(self, place: Place, before: datetime, total: int | None, most: int, run: Run) -> None:
        self._place, self._before, self._total, self._run = place, before, total, run
        self._size = run.group_size(most)
        self._limiter = Limiter(in_flight=SENDERS)  # a request is for as many messages as a transfer
        self._peeker = place.peeker  # its connection may be warm
        self._removed = self._requests = self._lost = 0
        self._is_empty = self._is_done = False
        run.others = self._outcomes
        run.way = lambda: f"by Service Bus itself, with {self._requests:,} request{'s' * (self._requests != 1)}"

    async def carry_out(self) -> None:
        if self._total == 0:
            return
        self._place.namespace.connection.require_writing()
        refusal = await self._delete()
        self._is_done = self._run.stopped is None
        if refusal is not None:
            self._run.way = lambda: f"each was received, because Service Bus refused otherwise: {refusal}"
            seen = await select(self._place, Chosen(before=self._before))
            seen.check_reach("removed")
            self._run.begin_with(seen.messages)
            await sweep(self._place, Purge(), seen, False, self._run)
        elif self._is_done:
            await self._sweep_rest()

    async def _delete(self) -> str | None:
        """Remove messages until there are none, and return why the first request was refused, or None."""
        try:
            # The first one alone opens the link, and shows whether Service Bus has the operation.
            await self._alone()
        except ENDS_A_RUN as error:
            failure = Failure.of(error)
            if failure.is_refusal and not failure.is_busy:
                return failure.text
            raise
        while not (self._is_empty or self._run.stopped):
            async with anyio.create_task_group() as tasks:
                for _ in range(self._wanted()):
                    tasks.start_soon(self._beside_others)
            # One that found none may have come between others that removed some.
            self._is_empty = False
            await self._alone()
        return None

    def _wanted(self) -> int:
        """Return how many requests the remaining messages are worth, besides the one that finds none."""
        limits, total = self._run.limits, self._total
        most = self._limiter.in_flight if limits.max_in_flight == AUTO else limits.max_in_flight
        most = 1 if limits.rate else most
        return most if total is None else min(most, -(-max(total - self._removed, 0) // self._size))

    async def _beside_others(self) -> None:
        """Make requests until one finds nothing, or fails: the next one alone opens the link again, or says why."""
        with contextlib.suppress(Exception):
            while not (self._is_empty or self._run.stopped) and self._peeker.is_ready:
                await self._request(partial(self._ask, beside=True))

    async def _alone(self) -> None:
        """Make a request, again while Service Bus is away."""
        try:
            await self._request(partial(self._place.patiently, self._ask))
        except ENDS_A_RUN as error:
            if not (self._removed or self._lost):
                raise
            self._run.stop(f"Not attempted: {explained(error)}")

    async def _request(self, ask: Callable[[], Awaitable[int]]) -> None:
        await self._run.pace.wait(self._size)
        if self._run.stopped is not None:
            return
        self._requests += 1
        with self._run.grace.period(FINISH_WITHIN) as scope:
            removed = await ask()
            self._is_empty = not removed
            self._removed += removed
            self._run.tell([self._outcome()] * removed, removed)
        self._lost += scope.cancelled_caught
        await anyio.lowlevel.checkpoint_if_cancelled()

    async def _ask(self, *, beside: bool = False) -> int:
        started, flight = anyio.current_time(), in_flight()
        flight.began(self._size)
        try:
            removed = await self._peeker.delete(self._size, self._before, beside=beside)
        except (ServiceBusError, OSError) as error:
            self._lost += Failure.of(error).is_unanswered
            raise
        finally:
            flight.ended(self._size)
        self._limiter.answered(anyio.current_time() - started)
        return removed

    async def _sweep_rest(self) -> None:
        """Remove the deferred and scheduled messages, which Service Bus left, and tell of locked ones."""
        left: list[PeekedMessage] = []
        async for page in self._place.peeker.pages():
            old = [each for each in page if each.enqueued_time is not None and each.enqueued_time < self._before]
            left += old
            if not old:  # numbers are given in the order of arrival
                break
        self._run.begin_with(left)
        locked = [each for each in left if each.state is MessageState.ACTIVE]
        self._run.end(locked, OutcomeStatus.SKIPPED, LOCKED)
        await sweep(self._place, Purge(), Selection(), False, self._run)

    def _outcome(self, status: OutcomeStatus = OutcomeStatus.SETTLED, why: str | None = None) -> Outcome:
        return Outcome(status, Purge.verb, self._place.address, description=why)

    def _outcomes(self) -> Iterable[Outcome]:
        """Yield the outcomes of messages that Service Bus removed, or was asked to: it tells no more than counts."""
        yield from repeat(self._outcome(), self._removed)
        unanswered = (
            f"Service Bus did not answer a request to remove up to {self._size:,} messages: it may have removed them, "
            "and they are not counted here."
        )
        yield from repeat(self._outcome(OutcomeStatus.UNCONFIRMED, unanswered), self._lost)
        if self._run.stopped is not None and not self._is_done:
            # Without a count, one of them stands for all.
            left = 1 if self._total is None else max(self._total - self._removed, 0)
            yield from repeat(self._outcome(OutcomeStatus.SKIPPED, self._run.stopped), left)
