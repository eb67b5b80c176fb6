"""Interrupted work: the time that it gets to finish, and its report.

Work that sends, settles or removes publishes its report so far (:func:`reporting`). A caller that may cancel it uses a
:class:`Watch`, which has the report even after a cancellation. In synchronous code that is done for every call: the
``KeyboardInterrupt`` of a Ctrl-C has the report as its attribute ``report``.

The work of a plan also tells each outcome as it comes, so that callers need not search all of them repeatedly.
"""

from __future__ import annotations

import math
from collections.abc import AsyncGenerator, Callable, Generator, Iterable
from contextlib import asynccontextmanager, contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

import anyio

from sbnotebook.model import Outcome, Report
from sbnotebook.settlement.pace import Flight

if TYPE_CHECKING:
    from anyio.abc import TaskGroup


class Grace:
    """Lets blocks of a piece of work continue for some seconds after the work was cancelled."""

    def __init__(self, on_cancel: Callable[[], object] | None = None) -> None:
        self._on_cancel = on_cancel
        self._periods: dict[anyio.CancelScope, float] = {}
        self._is_over = False

    @asynccontextmanager
    async def watching(self) -> AsyncGenerator[TaskGroup]:
        """Notice that the work of this block is cancelled; give the task group that it may start tasks in."""
        failure: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._notice)
            try:
                yield tasks
                self._on_cancel = None  # it has come to its end
            except Exception as error:  # noqa: BLE001 (raised again, and not in a group)
                failure = error
            tasks.cancel_scope.cancel()
        if failure is not None:
            raise failure

    @contextmanager
    def period(self, seconds: float, at_most: float = math.inf) -> Generator[anyio.CancelScope]:
        """Run a block that continues for some seconds after a cancellation, which shows behind it, and then ends."""
        # One scope for both: a second one around each transfer takes as long as packing its messages.
        now = anyio.current_time()
        with anyio.CancelScope(
            deadline=now + min(at_most, seconds if self._is_over else math.inf), shield=True
        ) as scope:
            self._periods[scope] = seconds
            try:
                yield scope
            finally:
                del self._periods[scope]

    async def _notice(self) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            self._is_over = True
            if self._on_cancel is not None:
                self._on_cancel()
            for scope, seconds in self._periods.items():
                scope.deadline = min(scope.deadline, anyio.current_time() + seconds)


OutcomeListener = Callable[[Iterable[Outcome]], object]
"""Is given outcomes as they come."""

_AROUND: Final[ContextVar[tuple[Watch | None, Flight | None]]] = ContextVar("_AROUND", default=(None, None))
"""The watch of the work here, and the count of its messages that wait for answers."""


class Watch:
    """Watches the work of a block: has its report, also when it was cancelled or failed.

    Args:
        told: is given the outcomes of plans as they come, None for no listener; the report alone has those that were
            not attempted.

    Example:
        >>> async def send_for_a_minute(queue: AsyncEntity, messages: Iterable[Message]) -> Report:
        ...     with Watch() as watch, anyio.move_on_after(60):
        ...         await queue.send(messages)
        ...     return watch.report
    """

    def __init__(self, told: OutcomeListener | None = None) -> None:
        self._told = [told] if told else []
        self.flight = Flight()
        """The messages of the block that wait for an answer of Service Bus."""
        self._works: list[Callable[[], Report]] = []
        self._token: Token[tuple[Watch | None, Flight | None]] | None = None

    @property
    def report(self) -> Report:
        """Return the outcomes that are known now, of all work in the block one after the other.

        UNCONFIRMED marks messages in progress, SKIPPED messages not begun. Input that was not read yet is missing
        while the work runs, and in the end, too, where its length is not known, as of a generator.
        """
        reports = [work() for work in self._works]
        return sum(reports[1:], reports[0]) if reports else Report()

    def tell(self, outcomes: Iterable[Outcome]) -> None:
        """Tell those who listen to this watch, or to one around it, of outcomes."""
        if not self._told:
            return  # outcomes may be made as they are read, and millions weigh much
        known = tuple(outcomes)
        for told in self._told:
            told(known)

    def follow(self, so_far: Callable[[], Report]) -> None:
        """Watch one more work; :func:`reporting` does this."""
        self._works.append(so_far)

    def __enter__(self) -> Self:
        around, flight = _AROUND.get()
        if around is not None:
            around.follow(lambda: self.report)
            self._told.append(around.tell)
        self.flight = flight or self.flight
        self._token = _AROUND.set((self, self.flight))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _AROUND.reset(self._token)


def in_flight() -> Flight:
    """Return the count of messages that wait for answers, of the work that this is a part of."""
    return _AROUND.get()[1] or Flight()


@contextmanager
def reporting(so_far: Callable[[], Report]) -> Generator[OutcomeListener]:
    """Show the progress of this block to watchers, and count its messages that wait for answers.

    Sends and settlements in it are a part of it.

    Example:
        >>> async def work(messages: Sequence[Message]) -> Report:
        ...     tally = Tally()
        ...     with reporting(tally.report):
        ...         for index, message in enumerate(messages):
        ...             tally.note(index, await settle(message))
        ...     return tally.report()
    """
    watch, _ = _AROUND.get()
    # Empty at the end: a work that keeps what this yields, and the watch, would wait for the garbage collector.
    listeners: list[OutcomeListener] = []
    if watch is not None:
        watch.follow(so_far)
        listeners.append(watch.tell)
    token = _AROUND.set((None, in_flight()))
    try:
        yield lambda outcomes: [tell(outcomes) for tell in listeners]
    finally:
        _AROUND.reset(token)
        listeners.clear()
