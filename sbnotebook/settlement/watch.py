"""The report of interrupted work.

Work that sends, settles or removes publishes its report so far (:func:`reporting`). A caller that may cancel it uses a
:class:`Watch`, which has the report even after a cancellation. In synchronous code that is done for every call: the
``KeyboardInterrupt`` of a Ctrl-C has the report as its attribute ``report``.

The work of a plan also tells each outcome as it comes, so that callers need not search all of them repeatedly.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from contextvars import ContextVar, Token
from types import TracebackType
from typing import Final, Self

from sbnotebook.model import Outcome, Report
from sbnotebook.settlement.pace import Flight

OutcomeListener = Callable[[Iterable[Outcome]], object]
"""Is given outcomes as they come."""

_AROUND: Final[ContextVar[tuple[Watch | None, Flight | None]]] = ContextVar("_AROUND", default=(None, None))
"""The watch of the work here, and the count of its messages that wait for answers."""


def ignore_outcomes(_outcomes: Iterable[Outcome]) -> None:
    """Do nothing with outcomes: no caller watches."""


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
        self.tell = told or ignore_outcomes
        self.flight = Flight()
        """The messages of the block that wait for an answer of Service Bus."""
        self._works: list[Callable[[], Report]] = []
        self._token: Token[tuple[Watch | None, Flight | None]] | None = None

    @property
    def report(self) -> Report:
        """Return the outcomes that are known now, of all work in the block one after the other.

        UNCONFIRMED marks messages in progress, SKIPPED messages not begun; it lacks input that was not read yet.
        """
        reports = [work() for work in self._works]
        return sum(reports[1:], reports[0]) if reports else Report()

    def follow(self, so_far: Callable[[], Report]) -> None:
        """Watch one more work; :func:`reporting` does this."""
        self._works.append(so_far)

    def __enter__(self) -> Self:
        around, flight = _AROUND.get()
        if around is not None:
            around.follow(lambda: self.report)
            self.tell = _both(self.tell, around.tell)
        self.flight = flight or self.flight
        self._token = _AROUND.set((self, self.flight))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._token is not None:
            _AROUND.reset(self._token)


def _both(one: OutcomeListener, other: OutcomeListener) -> OutcomeListener:
    def tell(outcomes: Iterable[Outcome]) -> None:
        known = tuple(outcomes)
        one(known)
        other(known)

    return tell


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
    if watch is not None:
        watch.follow(so_far)
    token = _AROUND.set((None, in_flight()))
    try:
        yield watch.tell if watch is not None else ignore_outcomes
    finally:
        _AROUND.reset(token)
