"""Plans for synchronous code."""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Callable, Iterable

from sbnotebook.analysis import tables
from sbnotebook.client import progress
from sbnotebook.client.portal import Work, portal, run
from sbnotebook.model import Decision, EntityAddress, Outcome, ReceivedMessage, Report
from sbnotebook.settlement.locking.settle import DEFAULT_MAX_IN_FLIGHT, Progress
from sbnotebook.settlement.pace import Pause
from sbnotebook.settlement.plan import Limits, Preview
from sbnotebook.settlement.plan import Plan as AsyncPlan

__all__ = ["Plan", "Running"]


class Plan:
    """Messages and what is to be done with them. Making one does nothing; :meth:`apply` does.

    Shown as what it would do: in words, with its first messages, and with what an edit changes in them.

    Args:
        plan: the asynchronous plan that is carried out.
        keeps: what must not be forgotten before the plan is, such as the batch that holds its messages.
    """

    def __init__(self, plan: AsyncPlan, *, keeps: object = None) -> None:
        self._plan = plan
        self._keeps = keeps

    @property
    def entity(self) -> EntityAddress:
        """Where the messages stand."""
        return self._plan.entity

    @property
    def decision(self) -> Decision:
        """What is to be done."""
        return self._plan.decision

    @property
    def verb(self) -> str:
        """What is to be done, in a word, such as ``complete``."""
        return self._plan.decision.verb

    @property
    def messages(self) -> tuple[ReceivedMessage, ...]:
        """With which messages."""
        return self._plan.messages

    @property
    def total(self) -> int:
        """How many messages its progress counts: those that it is for, or all that have to be locked for it."""
        return len(self.messages) if self._plan.total is None else self._plan.total

    def preview(self, rows: int = 5) -> Preview:
        """What applying would do, without doing it: see :meth:`sbnotebook.settlement.plan.Plan.preview`."""
        return self._plan.preview(rows)

    def apply(
        self, *, max_in_flight: int = DEFAULT_MAX_IN_FLIGHT, rate: float | None = None, show_progress: bool = True
    ) -> Report:
        """Carry the plan out; a progress bar appears when it takes longer than a second.

        Args:
            max_in_flight: transfers or settlements that wait for their answer at once.
            rate: messages a second at most, None for no limit.
            show_progress: False for no bar.

        Returns:
            An outcome for each of the messages.
        """
        limits = Limits(max_in_flight, rate)
        with progress.bar(self.decision.verb, self.total, shown=show_progress) as advance:
            return run(self._plan.apply, limits, advance)

    def start(self, *, max_in_flight: int = DEFAULT_MAX_IN_FLIGHT, rate: float | None = None) -> Running:
        """Carry the plan out in the background, to be watched, paused and cut off. Arguments as for :meth:`apply`.

        Example:
            >>> running = connect("emulator").entity("orders/$dlq").purge().start(rate=50)  # doctest: +SKIP
            >>> running.pause()  # doctest: +SKIP
            >>> running.resume()  # doctest: +SKIP
            >>> running.result()  # doctest: +SKIP
            <Report purge: 200 settled>
        """
        return Running(self, self._plan.apply, Limits(max_in_flight, rate, Pause()))

    def __len__(self) -> int:
        return len(self.messages)

    def __repr__(self) -> str:
        return tables.preview_text(self.preview())

    def _repr_html_(self) -> str:
        return tables.preview_html(self.preview())


class Running:
    """A plan that is carried out in the background. Made by :meth:`Plan.start`; any thread may use it.

    Args:
        plan: which one.
        apply: carries it out.
        limits: how fast; with a pause.
    """

    def __init__(self, plan: Plan, apply: Callable[[Limits, Progress], Awaitable[Report]], limits: Limits) -> None:
        self.plan = plan
        self.done = 0
        """Messages that its progress counts until now, of ``plan.total``."""
        self._lock = threading.Lock()
        self._new: list[Outcome] = []
        self._pause = limits.pause or Pause()
        self._work = Work(apply, limits, self._advance, told=self._note)
        self._work.start()

    def _advance(self, count: int) -> None:
        self.done += count

    def _note(self, outcomes: Iterable[Outcome]) -> None:
        with self._lock:
            self._new += outcomes

    def new_outcomes(self) -> list[Outcome]:
        """The outcomes that came since this was asked last, in the order in which they came.

        They are told as they come. In the end :meth:`result` has all, with those that were not attempted.
        """
        with self._lock:
            new, self._new = self._new, []
        return new

    def pause(self) -> None:
        """Begin nothing more; what is under way comes to its end, and locks are renewed.

        A group of up to 200 messages that has begun is not left half done.
        """
        portal().call(self._pause.begin)

    def resume(self) -> None:
        """Go on after a pause."""
        portal().call(self._pause.end)

    @property
    def is_paused(self) -> bool:
        """Whether it was told to pause."""
        return self._pause.is_on

    @property
    def is_held(self) -> bool:
        """Whether it waits for the pause's end, so that nothing is under way any more."""
        return self._pause.holds

    def cancel(self) -> None:
        """Cut it off: begin nothing more, wait for what is under way for some seconds, and give the rest back.

        It does not wait for that; :meth:`result` does, and says what was done until then.
        """
        self._work.cancel()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended, one way or another.

        Args:
            timeout: seconds at most, None for as long as it takes.

        Returns:
            Whether it has ended.
        """
        return self._work.wait(timeout)

    @property
    def report(self) -> Report:
        """What is known now: UNCONFIRMED is what is under way, SKIPPED what has not begun."""
        return self._work.report

    def result(self) -> Report:
        """Wait for the end.

        Returns:
            An outcome for each of the messages, also when it was cut off.

        Raises:
            Exception: what ended it; its attribute ``report`` has the outcomes until then, where there are any.
        """
        try:
            return self._work.result()
        except InterruptedError:
            return self._work.report
        except Exception as error:
            if report := self._work.report:
                error.__dict__.setdefault("report", report)
            raise
