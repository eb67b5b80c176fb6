"""How fast messages are sent or settled: as the caller allows, and as the service bears."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable, Callable
from typing import Final, Literal, TypeAlias

import anyio
import anyio.lowlevel

from sbnotebook.errors import ConfigurationError

InFlight: TypeAlias = int | Literal["auto"]
"""Transfers or settlements that wait for their answer at once: a number, or as many as the network bears."""
AUTO: Final = "auto"

_SENDERS, MOST_SENDERS = 10, 50
"""Transfers that ``"auto"`` lets wait at once, at first and at most: each holds many messages, and has a connection of
its own. A Standard namespace includes 1,000 connections."""
_LEAST, _MOST = 10, 400
"""The most settlements that ``"auto"`` lets wait at once. The SDK checks all at each answer, so more are not faster."""
_LEAST_QUEUED, _MOST_QUEUED = 3.0, 6.0
"""Settlements that queue up on the way to the service and back, by the time that they take."""
_STEP: Final = 3.0
"""Settlements by which the window grows or shrinks in a round trip."""
_PERIOD: Final = 10.0
"""Seconds for which the shortest round trip is remembered, at least."""
_DRAIN: Final = 1.5
"""Windows of answers during which half as many may wait: one until the queue is gone, and half a one to measure."""
_TOLERATED: Final = 0.25
"""The part of the window that may queue up, where that is more: answers come irregularly on a busy machine."""
_FIRST_RATE: Final = 350.0
"""Operations a second after the first refusal, and with which a search begins."""
_SEARCH_STEP, _STEP_UP = 200.0, 15.0
"""Operations a second by which the rate grows in each second of a search, and later."""
_SPEEDS_UP_AFTER, _DOUBLINGS = 3.0, 3.0
"""Seconds after a refusal from which the step doubles each second, because a client may have left, and how often."""
_SEARCH_BELOW, _LAST_BELOW, _BELOW = 0.5, 0.75, 0.88
"""The part of the rate that a refusal leaves in a search, at its end, and later."""
_SEARCH: Final = 4.0
"""Seconds after which the next refusal ends a search."""
_SEARCHES_EVERY: Final = 8.0
"""Seconds between two searches, at least."""
_STOP: Final = 1.0
"""Seconds without an operation before a search, until Service Bus grants new credits and the last answers are there."""
_PART, _CROWD = 0.1, 0.25
"""The part of a second's operations whose refusal lowers the rate once more, and that shows that a client has come."""
_CREDITS_EVERY, _ANSWERED = 1.0, 0.4
"""Seconds of the refusals that count as one, and those before an accepted operation can show that they are over."""
_BURST: Final = 0.05
"""Seconds whose settlements may begin together."""
_LONGEST_WAIT: Final = 16.0
"""Seconds that a transfer waits for its turn at most, however many messages the transfers before it held."""
_GLANCE: Final = 0.01
"""Seconds that a transfer waits for its turn, at least."""
_FORGET_AFTER: Final = 60.0
"""Seconds without a question after which nothing is held against the service any more."""


class Pause:
    """Pauses work: requests in progress end, no new ones begin, and locks are renewed meanwhile.

    It is begun and ended on the loop that the work runs in.
    """

    def __init__(self) -> None:
        self._over: anyio.Event | None = None
        self._held_up = 0
        self.in_progress = 0
        """Requests in progress of work that makes several at once, some of which may be held up already."""
        self.was_used = False
        """True once it has begun."""

    @property
    def is_on(self) -> bool:
        """Tell whether the pause has begun and not ended."""
        return self._over is not None

    @property
    def holds(self) -> bool:
        """Return whether work waits for the end of the pause, so that nothing is in progress."""
        return self._held_up > 0 and not self.in_progress

    def begin(self) -> None:
        """Pause later requests; once is enough."""
        self.was_used = True
        self._over = self._over or anyio.Event()

    def end(self) -> None:
        """Let all work continue."""
        over, self._over = self._over, None
        if over is not None:
            over.set()

    async def wait(self) -> None:
        """Wait until it has ended; at once where it has not begun."""
        while self._over is not None:
            self._held_up += 1
            try:
                await self._over.wait()
            finally:
                self._held_up -= 1


class Pace:
    """Limits the messages of each second; one object serves one piece of work from start to end."""

    def __init__(self, rate: float | None, pause: Pause | None = None) -> None:
        self._pause = pause
        self._turn = anyio.Lock()
        self.rate = rate
        """Messages a second at most, None for no limit."""
        self._seconds_each = 1.0 / rate if rate else 0.0
        self._next_at = 0.0
        self.at_once = max(1, int(rate)) if rate else None
        """Messages that may go together, a second's worth; None for any number."""
        self.is_free = not rate and pause is None
        """Whether nothing is ever held back."""

    async def wait(self, count: int) -> None:
        """Wait until the next ``count`` messages may go; without a rate it is only a chance to be cancelled."""
        if self.is_free:
            await anyio.lowlevel.checkpoint()
            return
        now = anyio.current_time()
        await anyio.sleep(max(0.0, self._next_at - now))
        if self._pause is not None and self._pause.is_on:
            await self._pause.wait()
            now = anyio.current_time()
        self._next_at = max(now, self._next_at) + count * self._seconds_each

    async def begin(self, count: int) -> None:
        """Wait as :meth:`wait` does, beside other tasks that do the same, and count a request until :meth:`end`."""
        if self.is_free:
            return
        async with self._turn:
            await self.wait(count)
        if self._pause is not None:
            self._pause.in_progress += 1

    def end(self) -> None:
        if self._pause is not None:
            self._pause.in_progress -= 1


class Flight:
    """Counts the messages of a run that wait for an answer of Service Bus."""

    def __init__(self) -> None:
        self.now = 0
        """Messages that wait now."""
        self.latest = 0
        """The number that waited when the last one began: it says more than ``now`` between two groups."""
        self.most = 0
        """The most that waited at once."""

    def began(self, count: int) -> None:
        self.now += count
        self.latest = self.now
        self.most = max(self.most, self.now)

    def ended(self, count: int) -> None:
        self.now -= count


class AllowedRate:
    """Finds how many operations a second a namespace allows, from those that it refuses because it is busy.

    An operation is a settlement or a message of a transfer. Until the first refusal there is no limit. Then nothing
    begins for a second, and a search starts with a low rate, which grows fast and is halved by refusals. After some
    seconds the search ends, and steps and cuts are small. Many refusals then mean that another client has come, and all
    clients search again.

    The rate of each client grows by the same amount, and each refusal leaves the same part of it. So the rates of
    clients become alike, however they began. Growth stops while the rate is not used.

    Sources: D. Chiu, R. Jain, "Analysis of the increase and decrease algorithms for congestion avoidance", 1989, which
    proves this. Service Bus documentation, "Throttling operations in Azure Service Bus": a Standard namespace has 1,000
    credits, and gets them anew each second.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
    ) -> None:
        self.now = now
        self._sleep = sleep
        self._turn = anyio.Lock()
        self._rate = math.inf
        self._is_searching = True
        self._searched_at = self._refused_at = -math.inf
        self._is_refused = self._is_used = False
        self._refused = self._uncut = 0
        self._tokens = 0.0
        self._filled_at = 0.0

    @property
    def is_limited(self) -> bool:
        if self._rate != math.inf and self.now() - self._filled_at > _FORGET_AFTER:
            self._rate, self._searched_at = math.inf, -math.inf  # the next refusal begins a search
        return self._rate != math.inf

    def is_open(self) -> bool:
        if not self.is_limited:
            return True
        now = self.now()
        most = max(1.0, self._rate * _BURST)
        tokens = self._tokens + max(now - self._filled_at, 0.0) * self._rate
        self._filled_at = max(now, self._filled_at)
        self._is_used, self._tokens = tokens < most, min(tokens, most)
        return self._tokens >= 1

    async def wait(self, count: int) -> None:
        """Wait until so many operations may begin together, and count them; return at once while there is no limit."""
        if not self.is_open():
            async with self._turn:
                latest = self.now() + _LONGEST_WAIT
                while not self.is_open() and self.now() < latest:
                    until = max((1 - self._tokens) / self._rate, self._filled_at - self.now(), _GLANCE)
                    await self._sleep(min(until, latest - self.now()))
        self.began(count)

    def began(self, count: int = 1) -> None:
        self._tokens -= count

    def accepted(self, count: int = 1) -> None:
        if self._rate == math.inf:
            return
        quiet = self.now() - self._refused_at
        if quiet >= _ANSWERED:
            self._is_refused = False
        if self._is_refused or not self._is_used:
            return
        doubled = 2 ** min(max(quiet - _SPEEDS_UP_AFTER, 0.0), _DOUBLINGS)
        step = _SEARCH_STEP if self._is_searching else _STEP_UP * doubled
        self._rate += min(step / self._rate, 1.0) * count

    def refused(self, count: int = 1) -> None:
        now = self.now()
        if now < self._refused_at:
            return  # they began before the search
        if not self._is_refused or now - self._refused_at > _CREDITS_EVERY:
            self._is_refused, self._refused_at, self._refused, self._uncut = True, now, 0, 0
            self._cut(now)
        self._refused += count
        self._uncut += count
        if self._uncut > _PART * self._rate and not self._is_searching:
            self._uncut = 0
            self._cut(now)
        is_crowded = self._refused > _CROWD * self._rate and now - self._searched_at > _SEARCHES_EVERY
        if is_crowded or self._searched_at == -math.inf:
            self._search(now)

    def _cut(self, now: float) -> None:
        is_last = self._is_searching and now - self._searched_at > _SEARCH
        part = _LAST_BELOW if is_last else _SEARCH_BELOW if self._is_searching else _BELOW
        self._is_searching &= not is_last
        self._rate = max(self._rate * part, 1.0)

    def _search(self, now: float) -> None:
        self._rate, self._is_searching, self._searched_at = min(self._rate, _FIRST_RATE), True, now
        self._tokens, self._filled_at, self._refused_at = 0.0, now + _STOP, now + _STOP


class Window:
    """Says how many settlements may wait for their answer at once: a number, or as many as the network bears.

    With ``"auto"`` it begins with 10 and doubles each round trip while answers come about as fast as the fastest of
    late. Once half a window of them come later, settlements queue up on the way. From then on it grows and shrinks by a
    few each round trip, so that three to six of them queue up, or a quarter of a large window. After a whole window of
    fast answers it doubles again: a busy machine can be late for a moment. When Service Bus refuses settlements because
    it is busy, the window also limits their rate. It finds the rate that a namespace allows, and shares it with other
    clients.

    A line may become longer for good, so the fastest answer is forgotten after a while. If only slower ones came since,
    either the line is longer, or the window's own queue delays all of them. So half as many may wait for two or three
    round trips: the queue drains, and answers show how long the line is.

    Sources: L. Brakmo, S. O'Malley, L. Peterson, "TCP Vegas: New techniques for congestion detection and avoidance",
    1994, which counts segments where this counts settlements. N. Cardwell et al., "BBR: Congestion-based congestion
    control", 2016, which drains the queue when its shortest round trip is old (ProbeRTT).

    Args:
        limit: the number, or ``"auto"``.
        now: the time in seconds, from any begin.
        most: with ``"auto"``, the most that may wait.

    Example:
        >>> window = Window("auto", now=lambda: 0.0)
        >>> for _ in range(30):
        ...     window.answered(0.05, in_flight=window.size)
        >>> window.size, Window(3).size
        (40, 3)
    """

    def __init__(self, limit: InFlight, now: Callable[[], float] = time.monotonic, most: int = _MOST) -> None:
        self.is_fixed = limit != AUTO
        """True for a given number, which is never exceeded."""
        self.waiting = 0
        """Settlements that wait for their answer now, in all tasks that share the window."""
        self.heard_at = 0.0
        """The monotonic time of the last answer, in all tasks that share the window."""
        self._size: float = _LEAST if limit == AUTO else limit
        self._now = now
        self._most = most
        self._grows_fast = True
        self._late = 0.0
        """Late answers less prompt ones, from a whole window of prompt ones to half a window of late ones."""
        self._shortest = self._shortest_before = math.inf
        self._since = -math.inf
        self._draining = 0.0
        """Answers until as many may wait again as before, where it is above 0."""
        self._allowed_rate = AllowedRate(now)

    @property
    def size(self) -> int:
        """Return how many settlements may wait for their answer at once."""
        return int(self._size / 2 if self._draining > 0 else self._size)

    @property
    def has_room(self) -> bool:
        """Return whether another settlement may begin now."""
        return self.waiting < self.size and (self.is_fixed or self._allowed_rate.is_open())

    @property
    def is_limited(self) -> bool:
        """Return whether Service Bus refused a settlement of late, so that this limits their rate."""
        return not self.is_fixed and self._allowed_rate.is_limited

    async def wait_for_rate(self, count: int) -> None:
        """Wait until so many settlements may begin in one request; at once while Service Bus refuses none."""
        if not self.is_fixed:
            await self._allowed_rate.wait(count)

    def began(self, count: int = 1) -> None:
        """Count a settlement that begins to wait for its answer, of so many messages."""
        self.waiting += 1
        self._allowed_rate.began(count)

    def ended(self) -> None:
        """Count a settlement that waits no longer."""
        self.waiting -= 1

    def answered(self, seconds: float, *, in_flight: int, count: int = 1, at_least: float | None = None) -> None:
        """Learn from an answer."""
        if self.is_fixed:
            return
        self._remember(seconds)
        self._allowed_rate.accepted(count)
        if self._draining > 0 or in_flight < self._size / 2:
            return  # it says nothing about more
        surely = seconds if at_least is None else at_least
        queued = self._size * (1 - min(self._shortest, self._shortest_before) / surely) if surely > 0 else 0.0
        is_late = queued > max(_MOST_QUEUED, self._size * _TOLERATED)
        is_prompt = queued < max(_LEAST_QUEUED, self._size * _TOLERATED / 2)
        self._late = min(max(self._late + is_late - is_prompt, -self._size), self._size / 2)
        if self._late in (-self._size, self._size / 2):
            self._grows_fast = self._late < 0
        if is_late and not self._grows_fast:
            self._size = max(self._size - _STEP / self._size, min(self._size, _LEAST))
        elif is_prompt:
            self._size = min(self._size + (1 if self._grows_fast else _STEP / self._size), self._most)

    def accepted(self, count: int) -> None:
        """Learn that Service Bus has accepted so many settlements of one request."""
        if not self.is_fixed:
            self._allowed_rate.accepted(count)

    def refused(self, count: int = 1) -> None:
        """Let fewer wait, because the service is busy; once for all requests that were in progress together."""
        if not self.is_fixed:
            self._allowed_rate.refused(count)

    def _remember(self, seconds: float) -> None:
        # The shortest of this period and of the one before.
        now = self._now()
        self._draining -= 1
        if now - self._since > _PERIOD:
            if self._shortest_before < self._shortest:
                self._draining = _DRAIN * self._size
            self._shortest_before, self._shortest, self._since = self._shortest, math.inf, now
        self._shortest = min(self._shortest, seconds)


def transfers_in_flight(limit: InFlight) -> int:
    """Return how many transfers may wait for their confirmation at once; each has a connection of its own.

    Args:
        limit: a number, or ``"auto"``.

    Example:
        >>> transfers_in_flight("auto"), transfers_in_flight(3)
        (10, 3)
    """
    return _SENDERS if limit == AUTO else limit


def check_in_flight(limit: object) -> None:
    if limit != AUTO and (not isinstance(limit, int) or limit < 1):
        raise ConfigurationError('max_in_flight is 1 or more, or "auto".')
