"""Renewing the locks of a batch in the background."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

import anyio
from azure.servicebus.exceptions import MessageLockLostError, ServiceBusServerBusyError

from sbnotebook.errors import let_interrupt_pass
from sbnotebook.model.message import partition_of
from sbnotebook.settlement.connecting.failures import Failure, explained
from sbnotebook.settlement.locking.lock_table import HeldMessages, Hold, LockEvent, LockEventKind, LockWatcher
from sbnotebook.settlement.requests import alike, by_halves, halves, in_parallel
from sbnotebook.settlement.sdk import connections, management
from sbnotebook.settlement.sdk.receivers import ReceivedLock

if TYPE_CHECKING:
    from azure.servicebus.aio import ServiceBusReceiver

_LOGGER: Final = logging.getLogger(__name__)
_KEPT: Final = 1_000
"""Events of a batch."""
_TICK: Final = 1.0
"""Seconds between two looks at the locks."""
_CHUNK: Final = 200
"""Locks renewed in one request. Service Bus documents no limit."""
_AT_ONCE: Final = 4
"""Requests that wait for their answers at once: 50,000 locks take 63 round trips."""
_STILL: Final = timedelta(seconds=5)
"""A longer time between two checks is more than the delay of a busy loop."""
_LEFT: Final = 1 / 3
"""The part of a lock that is left at least when it is renewed."""
_ANSWER_WITHIN: Final = (2.0, 10.0)
"""Seconds that a renewal may take: half of the remaining lock time, but at least and at most these."""
_TOKENS_WITHIN: Final = 1.0
"""Seconds that a look at the tokens may take; the next look takes up what this one began."""
_PROBE_WITHIN: Final = 2.0
"""Seconds that the batch's own link may take to show that it answers again."""


class Clock:
    """Where the time comes from; tests turn one by hand."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await anyio.sleep(seconds)


class Links:
    """The receivers that renewals go over.

    The batch's own come first, in turns, because the service detaches a link over which nothing goes for ten minutes,
    and only the link that a message came on can release it. When they are broken, or did not answer, the other one is
    opened: a lock is renewed by its token, over any connection. Once the batch's own links answer again, they come
    first again.
    """

    def __init__(
        self,
        own: Sequence[ServiceBusReceiver],
        other: Callable[[], ServiceBusReceiver],
    ) -> None:
        self.own = own
        self._turn = 0
        self._other = other
        self._spare: ServiceBusReceiver | None = None
        self._opening = anyio.Lock()
        self._avoids_own = False
        self.is_silent = False
        """True while settlements over the batch's own receivers wait for their answers: the other one renews."""

    async def one(self) -> ServiceBusReceiver:
        own = None if self._avoids_own or self.is_silent else self._next_own()
        if own is not None:
            return own
        async with self._opening:
            if self._spare is None:
                # An open that fails has cleaned up after itself.
                self._spare = await self._other().__aenter__()
            return self._spare

    async def keep_token(self) -> None:
        """Have the batch's own links outlive their tokens, also while nothing goes over them."""
        with anyio.move_on_after(_TOKENS_WITHIN):
            async with anyio.create_task_group() as tasks:
                for own in filter(connections.is_open, self.own):
                    tasks.start_soon(connections.refresh_if_due, own)

    async def failed(self) -> None:
        """Take the other receiver next time, because the one that was used last did not answer."""
        self._avoids_own = not (self._avoids_own or self.is_silent)
        await self.close()

    async def probe(self, renewed: Sequence[ReceivedLock]) -> None:
        """Return to the batch's own receiver, if it is avoided and answers again."""
        own = self._next_own()
        if not (self._avoids_own and renewed and own is not None):
            return
        try:
            with anyio.fail_after(_PROBE_WITHIN):
                await management.renew_locks(own, renewed[:1])
            self._avoids_own = False
        except Exception as error:  # noqa: BLE001 (after any error, the other receiver renews)
            self._avoids_own = not _is_about_messages(error)
        if not self._avoids_own:
            await self.close()

    async def close(self) -> None:
        spare, self._spare = self._spare, None
        if spare is not None:
            await connections.close(spare)

    def _next_own(self) -> ServiceBusReceiver | None:
        """Return the batch's own receiver whose turn it is; None if that is not open."""
        self._turn += 1
        own = self.own[self._turn % len(self.own)] if self.own else None
        return own if own is not None and connections.is_open(own) else None


class Renewal:
    """Keeps the locks of a batch, each by itself, and tells at once when that does not go well."""

    def __init__(self, held: HeldMessages, links: Links, *, clock: Clock, until: datetime) -> None:
        self._held = held
        self._links = links
        self._clock = clock
        self.until = until
        """When renewing stops; may be put off."""
        self.told = LockEvent(LockEventKind.RENEWING, clock.now())
        """The newest event, lost locks aside."""
        self._events: deque[LockEvent] = deque(maxlen=_KEPT)
        self._watchers: list[LockWatcher] = []
        self._looked = clock.now()
        self._is_over = False
        self._why_lost = "The locks ended before the messages were settled."

    async def run(self) -> None:
        try:
            while True:
                await self._look()
                await self._clock.sleep(_TICK)
        finally:
            self._is_over = True
            await self._links.close()

    @property
    def state(self) -> LockEvent:
        """Return how renewing goes: well, late or failing and for which messages, or ended."""
        # By the clock, also while the loop is blocked.
        return (None if self._is_over else self._standstill(self._clock.now())) or self.told

    @property
    def fault(self) -> str | None:
        """Return the fault of renewing, in a sentence; None if there is none."""
        state = self.state
        return state.description if state.is_trouble else None

    @property
    def events(self) -> tuple[LockEvent, ...]:
        """Return the last thousand events of the locks, lost locks included."""
        return tuple(self._events)

    def watch(self, watcher: LockWatcher) -> Callable[[], None]:
        """Have each event told at once on the loop of the batch; return what ends it."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher) if watcher in self._watchers else None

    def extend(self, renew_for: timedelta) -> None:
        self.until = max(self.until, self._clock.now() + renew_for)
        if self.told.kind is LockEventKind.ENDED:
            self._tell(LockEventKind.RENEWING, f"Locks are renewed again, until {self.until:%Y-%m-%d %H:%M:%S} UTC.")

    def tell_lost(self) -> None:
        if lost := self._held.take_newly_lost():
            self._tell(LockEventKind.LOST, self._why_lost, lost)

    def notice(self) -> None:
        now = self._clock.now()
        why = f"Its lock ended at {{:%H:%M:%S}} UTC. {self.told.description}".strip()
        for hold in self._held:
            if hold.ends <= now:
                self._held.lose(hold, why.format(hold.ends))
        self.tell_lost()

    def _tell(
        self, kind: LockEventKind, text: str, numbers: tuple[int, ...] = (), since: datetime | None = None
    ) -> None:
        event = LockEvent(kind, since or self._clock.now(), numbers, text)
        if kind is not LockEventKind.LOST:
            self.told = event
        self._events.append(event)
        for watcher in tuple(self._watchers):
            try:
                watcher(event)
            except BaseException as error:  # what watches must not end the renewal, and the locks with it
                let_interrupt_pass(error)
                _LOGGER.exception("A watcher of locks failed.")

    async def _look(self) -> None:
        await self._links.keep_token()
        now = self._clock.now()
        if now < self._looked:  # locks last no longer because this machine's clock was set back
            self._shift(now - self._looked)
        if (late := self._standstill(now)) is not None:
            self._tell(late.kind, late.description, late.sequence_numbers, late.since)
        if now < self.until:
            await self._renew_due(now)
        elif self.told.kind not in (LockEventKind.ENDED, LockEventKind.LOST):
            numbers = tuple(hold.message.sequence_number for hold in self._held)
            text = "The time for which locks are renewed (renew_for) is over: settle the messages before they end."
            self._tell(LockEventKind.ENDED, text, numbers, self.until)
        self.notice()
        self._looked = self._clock.now()

    def _shift(self, back: timedelta) -> None:
        self.until += back
        for hold in self._held:
            hold.shift(back)

    def _standstill(self, now: datetime) -> LockEvent | None:
        still = now - self._looked
        if still < _STILL or self._looked >= self.until:
            return None
        at_risk = tuple(h.message.sequence_number for h in self._held if h.ends - now < h.period * _LEFT)
        if not at_risk:
            return None
        text = f"The program or the machine stood still for {still.total_seconds():,.0f} s: locks may have ended."
        return LockEvent(LockEventKind.LATE, self._looked, at_risk, text)

    async def _renew_due(self, now: datetime) -> None:
        holds = [*self._held]
        self._links.is_silent = any(hold.is_silent(now) for hold in holds)
        due = [hold for hold in holds if hold.is_due(now, held=len(holds))]
        if not due:
            return
        failed, failure = await self._try_all(due)
        self._tell_result(self._still_held(failed), failure)
        if failure is None:
            await self._links.probe([hold.lock for hold in self._still_held(due)])
        elif not isinstance(failure, ServiceBusServerBusyError):
            await self._links.failed()

    async def _try_all(self, due: Sequence[Hold]) -> tuple[list[Hold], Exception | None]:
        """Renew locks once, and return those that are not renewed, with the error that says most."""
        failed: list[Hold] = []
        failures: list[Exception] = []

        async def renew(some: Sequence[Hold]) -> list[Sequence[Hold]]:
            holds = self._still_held(some)
            broken = next((failure for failure in failures if not _is_about_messages(failure)), None)
            error = broken or (await self._renew(holds) if holds else None)
            if error is None:
                return []
            if _is_about_messages(error) and len(holds) > 1:
                return halves(holds)  # until the one that is to blame is alone
            if isinstance(error, MessageLockLostError):
                self._held.lose(holds[0], "Its lock was lost: the service refused to renew it.")
            else:
                failed.extend(holds)
                failures.append(error)
            return []

        # A request renews locks of one partition, because Service Bus refuses those of several. Source:
        # azure-service-bus-dotnet, issue 386 ("Batching lock tokens for different partitions is not supported").
        parts = alike(due, lambda hold: partition_of(hold.message.sequence_number), _CHUNK)
        await in_parallel(partial(by_halves, renew), parts, _AT_ONCE)
        return failed, min(failures, key=_is_about_messages, default=None)

    def _still_held(self, holds: Sequence[Hold]) -> list[Hold]:
        return [hold for hold in holds if self._held.of(hold.message) is hold]

    async def _renew(self, holds: Sequence[Hold]) -> Exception | None:
        left = (min(hold.ends for hold in holds) - self._clock.now()).total_seconds()
        least, most = _ANSWER_WITHIN
        try:
            with anyio.fail_after(min(max(left / 2, least), most)):
                receiver, asked = await self._links.one(), self._clock.now()
                ends = await management.renew_locks(receiver, [hold.lock for hold in holds])
        except Exception as error:  # noqa: BLE001 (no error may end the batch, and its locks with it)
            return error
        for hold, end in zip(holds, ends, strict=True):
            hold.extend(asked, end)
        return None

    def _tell_result(self, failed: Sequence[Hold], failure: Exception | None) -> None:
        if failure is None:
            if self.told.kind in (LockEventKind.FAILING, LockEventKind.LATE):
                self.tell_lost()
                self._tell(LockEventKind.RENEWING, "Locks are renewed again.")
            return
        words = explained(failure) or "no answer came."
        text = f"Renewing fails and is tried again each second: {type(failure).__name__}: {words}"
        numbers = tuple(hold.message.sequence_number for hold in failed)
        is_known = self.told.kind is LockEventKind.FAILING
        if not is_known or set(self.told.sequence_numbers) != set(numbers):
            self._tell(LockEventKind.FAILING, text, numbers, self.told.since if is_known else None)


def _is_about_messages(error: Exception) -> bool:
    """Tell whether the service answered and refused for a message's sake, so that others may be renewed."""
    return Failure.of(error).is_for_one
