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
"""Transfers or settlements that wait for their answer at once: a number, or as many as keep the line busy."""
AUTO: Final = "auto"

SENDERS: Final = 10, 50, 1_000
"""Transfers that ``"auto"`` lets wait at once: at least, at most, and for each second that the quickest answer takes.
Each holds many messages, and has a connection of its own. A Standard namespace includes 1,000 connections."""
_SETTLEMENTS: Final = 10, 400, 8_000
"""The same of frames with settlements."""
_FIRST_RATE: Final = 700.0
"""Operations a second after the first refusal."""
_STEP: Final = 40.0
"""Operations a second by which the rate grows in each second."""
_BELOW, _FAR_BELOW = 0.8, 0.3
"""The part of the rate that a refusal leaves, and one before which nothing was accepted since the last."""
_STOP: Final = 1.0
"""Seconds without an operation after the first refusal, until Service Bus grants new credits."""
_CREDITS_EVERY, _ANSWERED = 1.0, 0.4
"""Seconds of the refusals that count as one, and those before an accepted operation can show that they are over."""
_BURST: Final = 0.05
"""Seconds whose operations may begin together."""
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


class Limiter:
    """Limits the requests of one batch, or of all senders to one entity.

    With ``"auto"``, as many may wait at once as keep the line busy, by the time of the quickest answer (Little's law).
    So few are unknown when a connection breaks over a short line.

    It also limits the operations a second: settlements, and messages of transfers. Until Service Bus refuses one,
    there is no limit. Then nothing begins for a second, and the rate is 700. Each second in which it is used adds 40,
    and each second with refusals leaves four fifths of it. So the rates of several clients become alike, however they
    began.

    Sources: D. Chiu, R. Jain, "Analysis of the increase and decrease algorithms for congestion avoidance", 1989, which
    proves this. Service Bus documentation, "Throttling operations in Azure Service Bus": a Standard namespace has 1,000
    credits, and gets them anew each second.
    """

    def __init__(
        self,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[object]] = anyio.sleep,
        in_flight: tuple[int, int, int] = _SETTLEMENTS,
    ) -> None:
        self._least, self._most, self._per_second = in_flight
        self._quickest = math.inf
        self.answers = 0
        self.now = now
        self.waiting = 0
        """Requests that wait for their answer now, in all tasks that share the limiter."""
        self.heard_at = 0.0
        """When the last answer came."""
        self._sleep = sleep
        self._turn = anyio.Lock()
        self._rate = math.inf
        self._cut_at = -math.inf
        self._is_used = self._is_accepted = False
        self._tokens = 0.0
        self._filled_at = 0.0

    @property
    def in_flight(self) -> int:
        """Return how many requests may wait at once with ``"auto"``."""
        is_known = self._quickest != math.inf
        return min(max(int(self._quickest * self._per_second), self._least), self._most) if is_known else self._least

    def answered(self, seconds: float) -> None:
        self.answers += 1
        self._quickest = min(self._quickest, seconds)

    @property
    def is_limited(self) -> bool:
        """Return whether Service Bus refused an operation of late."""
        if self._rate != math.inf and self.now() - self._filled_at > _FORGET_AFTER:
            self._rate = math.inf
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
        self._is_accepted = True
        if self._is_used and self._rate != math.inf and self.now() - self._cut_at >= _ANSWERED:
            self._rate += min(_STEP / self._rate, 1.0) * count

    def refused(self) -> None:
        now = self.now()
        if self._rate == math.inf:
            self._rate, self._tokens = _FIRST_RATE, 0.0
            self._filled_at = self._cut_at = now + _STOP
        elif now - self._cut_at > _CREDITS_EVERY:
            self._rate = max(self._rate * (_BELOW if self._is_accepted else _FAR_BELOW), 1.0)
            self._cut_at, self._is_accepted = now, False


def transfers_in_flight(limit: InFlight) -> int:
    """Return how many transfers may wait for their confirmation at once; each has a connection of its own."""
    return SENDERS[0] if limit == AUTO else limit


def check_in_flight(limit: object) -> None:
    if limit != AUTO and (not isinstance(limit, int) or limit < 1):
        raise ConfigurationError('max_in_flight is 1 or more, or "auto".')
