"""Purging on the server: Service Bus removes messages by their age, and none is received.

Sources: Service Bus documentation, "Batch delete messages in Azure Service Bus": at most 500 messages a request on
Standard and 4,000 on Premium, on a best-effort basis, locked messages stay, partitioned entities are not supported.
azure-sdk-for-net pull request 62625: the requests end with an answer of zero, and the receiver of a session purges that
session only. What happens to deferred and scheduled messages, no source says: those that are left go one by one.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from functools import partial
from itertools import repeat
from typing import Any, Final, NamedTuple, cast

import anyio
import anyio.lowlevel
from azure.core.exceptions import AzureError, HttpResponseError
from azure.servicebus.exceptions import ServiceBusError

from sbnotebook.model import MessageState, Outcome, OutcomeStatus, PeekedMessage, Purge, Report, SubQueue
from sbnotebook.model.decision import AUTO
from sbnotebook.model.outcome import counted
from sbnotebook.settlement.actions.reach import LOCKED
from sbnotebook.settlement.actions.selection import Chosen, Selection
from sbnotebook.settlement.actions.sweep import plan_sweep, sweep
from sbnotebook.settlement.connecting.failures import Failure, explained
from sbnotebook.settlement.engine import ENDS_A_RUN, PickReport
from sbnotebook.settlement.grace import Grace
from sbnotebook.settlement.pace import Limiter
from sbnotebook.settlement.parallel import in_parallel
from sbnotebook.settlement.patience import patiently
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import Limits, Plan, Preview
from sbnotebook.settlement.terms import Progress, outcome_for
from sbnotebook.settlement.watch import OutcomeListener, ignore_outcomes, reporting

_MOST, _MOST_PREMIUM = 500, 4_000
"""Messages that a request removes at most."""
_SHOWN: Final = 10
"""The first messages that a plan can show."""
_FINISH_WITHIN: Final = 10.0
"""Seconds that requests in progress get when the purge is interrupted."""
_AGAIN: Final = "Purge again to continue."
_INTERRUPTED: Final = "Not attempted: the purge was interrupted before."
_UNANSWERED: Final = (
    "Service Bus did not answer a request to remove up to {:,} messages: it may have removed them, and they are not "
    "counted here."
)
_SESSIONS: Final = "it requires sessions, and Service Bus removes messages of one held session only"
_PARTITIONS: Final = "it has partitions, for which Service Bus does not support that"


class _Known(NamedTuple):
    """Facts by which a purge is planned; ``refusal`` says why the server cannot choose by age."""

    total: int | None = None
    most: int = _MOST
    refusal: str | None = None


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
    if known is None or known.refusal is not None:
        way = f"Each is received and removed: {known.refusal}." if known else ""
        return await plan_sweep(place, Purge(), chosen, archived=archived, way=way, progress=progress)
    # Last, so that it includes what the administration counted.
    now = place.namespace.clock.now()
    before = min(chosen.end or now, now)
    # Only a part of the counted messages may be that old.
    known = known._replace(total=known.total if chosen.before is None or not known.total else None)
    shown = [each for each in first if each.enqueued_time is not None and each.enqueued_time < before]

    async def carry_out(plan: Plan, limits: Limits, progress: Progress | None) -> Report:  # noqa: ARG001
        return await _Deletion(place, before, known, limits, progress).run()

    return Plan(
        place.address,
        Purge(before),
        (),
        carry_out,
        described=Preview(_sentence(place, before, known), tuple(shown)),
        total=known.total,
        options={} if archived else {"archived": False},
        on=place.namespace.in_plans,
    )


def _sentence(place: Place, before: datetime, known: _Known) -> str:
    requests = "" if known.total is None else f", so about {-(-known.total // known.most) + 1:,}"
    count = "the messages" if known.total is None else counted(known.total)
    return (
        f"purge {count} of {place.in_plans} enqueued before {before.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC. Service "
        f"Bus itself removes the active ones, and none is received; if it refuses, each is received and removed. It "
        f"costs an operation for each {known.most:,} messages{requests}. Deferred and scheduled messages go one by "
        "one. Locked messages stay. The others are removed for good: nothing is archived, and undo cannot send them "
        "back."
    )


async def _known(place: Place) -> _Known | None:
    """Return what the administration says, which is nothing without its rights; None where there is no such entity."""
    address = place.address
    try:
        async with place.namespace.connection.administration_client() as client:
            name, subscription = address.name, address.subscription
            asks: list[Callable[[], Awaitable[Any]]] = [client.get_namespace_properties]
            if subscription is None:
                asks += [partial(client.get_queue, name), partial(client.get_queue_runtime_properties, name)]
            else:
                asks += [partial(client.get_subscription, name, subscription)]
                asks += [partial(client.get_subscription_runtime_properties, name, subscription)]
                asks += [partial(client.get_topic, name)]
            namespace, own, counts, *topics = await in_parallel(lambda ask: ask(), asks, len(asks))
    except HttpResponseError as error:
        return None if error.status_code == 404 else _Known()  # noqa: PLR2004
    except (AzureError, OSError):  # Microsoft's emulator without its port of the administration
        return _Known()
    except AttributeError:  # the SDK looks for a queue's description in a topic's
        return None
    needs_session = own.requires_session and address.sub_queue is None
    refusal = _SESSIONS if needs_session else _PARTITIONS if (*topics, own)[0].enable_partitioning else None
    count = {
        None: counts.active_message_count + (getattr(counts, "scheduled_message_count", 0) or 0),
        SubQueue.DEAD_LETTER: counts.dead_letter_message_count,
        SubQueue.TRANSFER_DEAD_LETTER: counts.transfer_dead_letter_message_count,
    }[address.sub_queue]
    return _Known(count, _MOST_PREMIUM if str(namespace.messaging_sku).casefold() == "premium" else _MOST, refusal)


class _Deletion:
    """One purge on the server; an unanswered request is repeated for the same time, and only its count is lost."""

    def __init__(
        self, place: Place, before: datetime, known: _Known, limits: Limits, progress: Progress | None
    ) -> None:
        self._place, self._before, self._known = place, before, known
        self._limits, self._progress = limits, progress
        self._pace = limits.pace()
        self._size = min(known.most, self._pace.at_once or known.most)
        self._limiter = Limiter.of_senders()  # a request is for as many messages as a transfer
        self._peeker = place.peeker  # its connection may be warm
        self._grace = Grace(self._interrupt)
        self._tell: OutcomeListener = ignore_outcomes
        self._removed = self._requests = self._lost = 0
        self._is_empty = self._is_done = False
        self._stopped: str | None = None
        self._error: Exception | None = None
        self._stay: list[PeekedMessage] = []

    async def run(self) -> Report:
        if self._known.total == 0:
            return self._report()
        self._place.namespace.connection.require_writing()
        start = anyio.current_time()
        with reporting(self._report) as self._tell:
            refusal = await self._delete()
            rest = [] if refusal or self._stopped else await self._left()
        if refusal is not None:
            return await self._one_by_one(refusal)
        report = self._report()
        if rest:
            report = self._as_report([*report, *await self._sweep(rest)])
        return report.timed(anyio.current_time() - start, self._most_at_once() * self._size)

    async def _delete(self) -> str | None:
        """Remove messages until there are none, and return why the first request was refused, or None."""
        async with self._grace.watching():
            # The first one alone opens the link, and shows whether Service Bus has the operation.
            await self._alone()
            if self._error is not None and not (self._removed or self._lost):
                failure = Failure.of(self._error)
                if failure.is_refusal and not failure.is_busy:
                    return failure.text
                raise self._error
            while not (self._is_empty or self._stopped):
                async with anyio.create_task_group() as tasks:
                    for _ in range(self._wanted()):
                        tasks.start_soon(self._beside_others)
                # One that found none may have come between others that removed some.
                self._is_empty = False
                await self._alone()
            self._is_done = self._stopped is None
        await anyio.lowlevel.checkpoint_if_cancelled()
        return None

    def _wanted(self) -> int:
        """Return how many requests the remaining messages are worth, besides the one that finds none."""
        total, most = self._known.total, self._most_at_once()
        return most if total is None else min(most, -(-max(total - self._removed, 0) // self._size))

    def _most_at_once(self) -> int:
        if self._limits.rate:
            return 1
        in_flight = self._limits.max_in_flight
        return self._limiter.in_flight if in_flight == AUTO else in_flight

    async def _beside_others(self) -> None:
        """Make requests until one finds nothing, or fails: the next one alone opens the link again, or says why."""
        while not (self._is_empty or self._stopped) and self._peeker.is_ready:
            with contextlib.suppress(Exception):
                await self._request(partial(self._ask, self._peeker.delete_beside))
                continue
            return

    async def _alone(self) -> None:
        """Make a request, again while Service Bus is away."""
        try:
            await self._request(partial(patiently, self._ask, self._peeker.delete, address=self._place.address))
        except ENDS_A_RUN as error:
            self._error = error
            self._stopped = f"Not attempted: {explained(error)} {_AGAIN}"

    async def _request(self, ask: Callable[[], Awaitable[int]]) -> None:
        await self._pace.wait(self._size)
        if self._stopped is not None:
            return
        self._requests += 1
        with self._grace.period(_FINISH_WITHIN) as scope:
            self._note(await ask())
        self._lost += scope.cancelled_caught
        await anyio.lowlevel.checkpoint_if_cancelled()

    async def _ask(self, delete: Callable[[int, datetime], Awaitable[int]]) -> int:
        started = anyio.current_time()
        try:
            removed = await delete(self._size, self._before)
        except (ServiceBusError, OSError) as error:
            self._lost += Failure.of(error).is_unanswered
            raise
        self._limiter.answered(anyio.current_time() - started)
        return removed

    def _note(self, removed: int) -> None:
        self._is_empty = not removed
        self._removed += removed
        if removed:
            self._tell([self._outcome()] * removed)
            if self._progress is not None:
                self._progress(removed)

    def _interrupt(self) -> None:
        if not self._is_done:  # also called at the end
            self._stopped = self._stopped or _INTERRUPTED

    # ---------------------------------------------------------------- what Service Bus left

    async def _left(self) -> list[PeekedMessage]:
        """Find the messages that are left: the deferred and scheduled ones, which are returned, and locked ones."""
        rest: list[PeekedMessage] = []
        async for page in self._place.peeker.pages():
            old = [each for each in page if each.enqueued_time is not None and each.enqueued_time < self._before]
            self._stay += [each for each in old if each.state is MessageState.ACTIVE]
            rest += [each for each in old if each.state is not MessageState.ACTIVE]
            if not old:  # numbers are given in the order of arrival
                break
        return rest

    async def _sweep(self, rest: list[PeekedMessage]) -> Report:
        plan = self._place.new_plan(Purge(), rest, partial(sweep, self._place, Purge(), Selection(), False))
        return await plan.carry_out(plan, self._limits, self._progress)

    async def _one_by_one(self, refusal: str) -> Report:
        plan = await plan_sweep(self._place, Purge(), Chosen(before=self._before), archived=False)
        report = await plan.carry_out(plan, self._limits, self._progress)
        given_back = report.rest if isinstance(report, PickReport) else Report()
        return PickReport(report, given_back, f"each was received, because Service Bus refused otherwise: {refusal}")

    # ---------------------------------------------------------------- the report

    def _outcome(self, status: OutcomeStatus = OutcomeStatus.SETTLED, why: str | None = None) -> Outcome:
        return Outcome(status, Purge.verb, self._place.address, description=why)

    def _report(self) -> PickReport:
        outcomes = [*repeat(self._outcome(), self._removed)]
        outcomes += repeat(self._outcome(OutcomeStatus.UNCONFIRMED, _UNANSWERED.format(self._size)), self._lost)
        outcomes += [outcome_for(message, Purge(), OutcomeStatus.SKIPPED, LOCKED) for message in self._stay]
        if self._stopped is not None:
            # Without a count, one of them stands for all.
            total = self._known.total
            left = 1 if total is None else max(total - self._removed, 0)
            outcomes += repeat(self._outcome(OutcomeStatus.SKIPPED, self._stopped), left)
        return self._as_report(outcomes)

    def _as_report(self, outcomes: list[Outcome]) -> PickReport:
        plural = "" if self._requests == 1 else "s"
        return PickReport(outcomes, Report(), f"by Service Bus itself, with {self._requests:,} request{plural}")
