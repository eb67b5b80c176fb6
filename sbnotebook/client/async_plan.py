"""Plans, which are carried out once, also in the background, and functions that consume in the background."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from sbnotebook.analysis.frames import collect_spark_frame, messages_from, to_pandas, to_send
from sbnotebook.analysis.tables import Shown, Table
from sbnotebook.client.plan_code import cell_of, python_of
from sbnotebook.client.portal import Work, blocking, in_background, progress_bar, warn, watched
from sbnotebook.client.receivers import sent_to
from sbnotebook.client.targets import RampSizes, duration, ramp_of, time_to_come
from sbnotebook.client.verbs import ShownAsPreview, documented, moved
from sbnotebook.errors import ConfigurationError
from sbnotebook.model import Decision, EntityAddress, Message, Outcome, Purge, ReceivedMessage, Report, Send
from sbnotebook.model.decision import AUTO
from sbnotebook.settlement import AsyncEntity as Place
from sbnotebook.settlement import InFlight, Limits, Pause, Preview, ProcessStatus, Ramp, RampStep
from sbnotebook.settlement import Plan as InnerPlan
from sbnotebook.settlement import Processing as InnerProcessing

if TYPE_CHECKING:
    import pandas as pd

_MOST_READ: Final = 100_000
"""Messages of an iterator that a plan holds."""
_LEASE: Final = (
    *("worker", "session_id", "since", "count", "last_sequence_number"),
    *("working_on", "working_since", "ended"),
)
"""Columns of the workers of a run."""
_CODED: Final = 101
"""Messages of a send that are looked at for its code, one more than it may have."""


@documented
class AsyncPlan(ShownAsPreview):
    """Messages and a decision. Making a plan does nothing; :meth:`apply` carries it out, once.

    Shown as a preview: a sentence, the first messages, and what an edit changes in them.
    """

    def __init__(
        self,
        plan: InnerPlan,
        *,
        keeps: object = None,
        ramp: Ramp | None = None,
        receivers: Callable[[], Awaitable[str]] | None = None,
        new: Callable[[], Iterable[Message]] | None = None,
    ) -> None:
        self._plan = plan
        self._new = new
        self._receivers = receivers
        self._received_by: str | None = None
        self._keeps = keeps
        self._ramp = ramp

    @property
    def entity(self) -> EntityAddress:
        """Return the address of the messages."""
        return self._plan.entity

    @property
    def inner(self) -> InnerPlan:
        """Return the plan of the settlement library."""
        return self._plan

    @property
    def decision(self) -> Decision:
        """Return the decision."""
        return self._plan.decision

    @property
    def verb(self) -> str:
        """Return the decision in a word, such as ``complete``."""
        return self._plan.decision.verb

    @property
    def question(self) -> str:
        """Return the question whether to carry it out, which names the action, the count, the entity and the namespace.

        Example:
            >>> print((await letters.resubmit(await letters.peek())).question)  # doctest: +SKIP
            Resubmit 143 messages of orders/$dlq on contoso-prod?
        """
        return self._plan.question

    @property
    def messages(self) -> tuple[ReceivedMessage, ...]:
        """Return the messages."""
        return self._plan.messages

    @property
    def ramp(self) -> Ramp | None:
        """Return the ramp that :meth:`with_ramp` gave the plan."""
        return self._ramp

    @property
    def total(self) -> int:
        """Return how many messages its progress counts: its own, or all that it has to lock."""
        return len(self.messages) if self._plan.total is None else self._plan.total

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas frame with the messages, and the column ``decision`` before their own columns."""
        frame = to_pandas(self.messages if self._new is None else self._new())
        frame.insert(0, "decision", self.verb)
        return frame

    async def preview(self, rows: int = 5) -> Preview:
        """Return what applying would do, without doing it.

        Args:
            rows: how many messages are shown, and edited to show the changes.
        """
        preview = await blocking(self._plan.preview, rows)
        if self._received_by is None:
            self._received_by = await self._receivers() if self._receivers is not None else ""
        said = [preview.sentence, self._ramp.sentence(len(self)) if self._ramp else "", self._received_by]
        return replace(preview, sentence=" ".join(filter(None, said)))

    def with_ramp(
        self, batches: RampSizes = 10, *, watch: str | float | timedelta = "10m", stop_at: float = 0.0
    ) -> AsyncPlan:
        """Return the same plan with a ramp: small batches go first, each only if consumers complete the one before.

        Args:
            batches: the sizes of the batches that go first, such as ``"1,5,20,100"`` or 10.

        Raises:
            ConfigurationError: a number is out of its range.
            DecisionError: the plan has no clones to watch.

        Example:
            >>> plan = await letters.resubmit(where="subject = 'late'")  # doctest: +SKIP
            >>> await plan.with_ramp("1,20", stop_at=0.02).apply()  # doctest: +SKIP
            <Report Resubmitted 200 messages; ramp: 1 sent, 1 consumed → 20 sent, 20 consumed>
        """
        ramp = ramp_of(batches, watch, stop_at)
        self._plan.check_ramp()
        return AsyncPlan(self._plan, keeps=self._keeps, ramp=ramp, receivers=self._receivers)

    def as_cell(self, *, rate: float | None = None) -> str:
        """Return the plan as a cell that does the same: a magic, or Python where no magic says the same.

        The code names the messages by their sequence numbers; a send has up to 100 messages in its code. A function
        that edits messages is not part of it.

        Args:
            rate: messages a second at most, None for no limit.

        Raises:
            DecisionError: no code can say the same, as for the release of held messages.

        Example:
            >>> letters = namespace.entity("orders/$dlq")  # doctest: +SKIP
            >>> print((await letters.resubmit([7, 8, 9], to="orders")).as_cell())  # doctest: +SKIP
            %sb_resubmit orders/$dlq --messages 7-9 --to orders
        """
        return cell_of(self._plan, self._sent(), rate, self._ramp)

    def as_python(self, *, target: str | None = None, rate: float | None = None) -> str:
        """Return the plan as Python that makes it again, shows it, and applies it. See :meth:`as_cell`.

        Args:
            target: the host of the namespace, None for the one that the environment names.

        Raises:
            DecisionError: no code can say the same, as for the release of held messages.
        """
        return python_of(self._plan, self._sent(), rate, self._ramp, target)

    def _sent(self) -> list[Message]:
        return [] if self._new is None else list(islice(self._new(), _CODED))

    @moved("plan.with_ramp(…)", "ramp", "watch", "stop_at")
    async def apply(
        self,
        *,
        max_in_flight: InFlight = AUTO,
        rate: float | None = None,
        show_progress: bool = True,
    ) -> Report:
        """Carry the plan out; a progress bar appears when it takes longer than a second.

        If no message matches an expression, it warns, and names the reasons or subjects of the others.

        Args:
            show_progress: False for no bar, and no warning.

        Returns:
            An outcome for each of the messages. With a ramp, ``report.steps`` has the batches, ``report.fates`` tells
            what became of their clones, and ``report.stopped`` why the others did not follow: these are SKIPPED.

        Raises:
            ConfigurationError: a number is out of its range.
            DecisionError: the plan was applied already, or its clones cannot be watched; nothing was done.
        """
        first = self._ramp
        limits = Limits(max_in_flight, rate, ramp=first)
        if not len(self) and show_progress and self._receivers is not None:
            await warn((await self.preview()).sentence)  # names the reasons of the others
        with progress_bar(self.decision.verb, self.total or None, shown=show_progress) as advance:
            if first is not None:
                with progress_bar("watch", sum(first.batches), shown=show_progress) as seen:
                    return watched(await self._plan.apply(replace(limits, seen=_curve(seen)), advance))
            return watched(await self._plan.apply(limits, advance))

    @moved("plan.with_ramp(…)", "ramp", "watch", "stop_at")
    async def start(self, *, max_in_flight: InFlight = AUTO, rate: float | None = None) -> AsyncRunning:
        """Carry the plan out in the background: watch, pause or cancel it. Arguments as for :meth:`apply`.

        Example:
            >>> running = await (await letters.purge()).start(rate=50)  # doctest: +SKIP
            >>> await running.pause()  # doctest: +SKIP
            >>> await running.resume()  # doctest: +SKIP
            >>> await running.result()  # doctest: +SKIP
            <Report Purged 200 messages>
        """
        self._plan.once.check()
        return AsyncRunning(self, Limits(max_in_flight, rate, Pause(), self._ramp))

    def __len__(self) -> int:
        inner = self._plan
        if self._new is not None or (isinstance(inner.decision, Purge) and inner.decision.before is not None):
            return 1 if inner.total is None else inner.total  # 1 where only Service Bus knows it
        return len(self.messages)

    def _previewed(self) -> Preview:
        return self._plan.preview()


def plan_send(place: Place, data: Any, at: str | datetime | None, delay: str | timedelta | None) -> AsyncPlan:
    """Plan to send messages: see :meth:`sbnotebook.client.Entity.plan_send`."""
    held: Any = [data] if isinstance(data, (Message, str, bytes, Mapping)) else collect_spark_frame(data)
    if count_of(held) is None:
        held = [*islice(messages_from(held), _MOST_READ + 1)]
        if len(held) > _MOST_READ:
            raise ConfigurationError(
                f"A plan holds at most {_MOST_READ:,} messages of an iterator, to count and show them, and "
                "nothing was sent: send it with entity.send(…), which reads as it sends."
            )
    decision, new = Send(time_to_come(at), duration(delay)), partial(messages_from, held)
    make = partial(to_send, held) if decision.is_for_now else new
    plan = place.plan_send(make, decision, total=len(held), shown=islice(new(), 5))
    return AsyncPlan(plan, receivers=lambda: sent_to(place, new()), new=new)


class AsyncRunning:
    """A plan that is carried out in the background. Made by ``await plan.start()``."""

    def __init__(self, plan: AsyncPlan, limits: Limits) -> None:
        self._of = plan
        self._done = 0
        self._steps: Sequence[RampStep] = ()
        self._new: deque[Outcome] = deque()
        self._pause = limits.pause or Pause()
        self._work = Work(plan.inner.apply, replace(limits, seen=self._see), self._advance, told=self._new.extend)
        self._task = in_background(self._work.until_the_end)

    @property
    def plan(self) -> AsyncPlan:
        """Return the plan."""
        return self._of

    @property
    def done(self) -> int:
        """Return the number of messages that its progress counts until now, of ``plan.total``."""
        return self._done

    @property
    def steps(self) -> Sequence[RampStep]:
        """Return the batches of a ramp until now; none before the first is watched."""
        return self._steps

    def _advance(self, count: int) -> None:
        self._done += count

    def _see(self, steps: Sequence[RampStep]) -> None:
        self._steps = steps

    def new_outcomes(self) -> list[Outcome]:
        """Return the outcomes that are new since the last call, in the order in which they came.

        In the end :meth:`result` has all, with those that were not attempted.
        """
        return [self._new.popleft() for _ in range(len(self._new))]

    async def pause(self) -> None:
        """Begin nothing more; work in progress ends, and locks are renewed.

        A group of up to 200 messages, or 500 of an undo, that has begun is not left half done.
        """
        self._pause.begin()

    async def resume(self) -> None:
        """Continue after a pause."""
        self._pause.end()

    @property
    def is_paused(self) -> bool:
        """Return True from :meth:`pause` until :meth:`resume`."""
        return self._pause.is_on

    @property
    def is_held(self) -> bool:
        """Return True if a pause has stopped all work in progress."""
        return self._pause.holds

    async def cancel(self) -> None:
        """Begin nothing more, wait some seconds for work in progress, and release the other messages.

        This returns at once; :meth:`result` waits for the end, and returns the report.
        """
        self._work.stop()

    async def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended, and return whether it has.

        Args:
            timeout: seconds at most, None for no limit.
        """
        await asyncio.wait({self._task}, timeout=timeout)
        return self._task.done()

    @property
    def in_flight(self) -> int:
        """Return how many messages wait for an answer of Service Bus, as of the last that began to."""
        return self._work.watch.flight.latest

    @property
    def report(self) -> Report:
        """Return the outcomes known now: UNCONFIRMED for messages in progress, SKIPPED for messages not begun."""
        return self._work.watch.report

    async def result(self) -> Report:
        """Wait for the end.

        Returns:
            An outcome for each of the messages, also when it was cancelled.

        Raises:
            Exception: what ended it; its attribute ``report`` has the outcomes until then, where there are any.
        """
        try:
            return watched(await asyncio.shield(self._task))
        except InterruptedError:
            return watched(self._work.watch.report)
        except Exception as error:
            if report := self._work.watch.report:
                error.__dict__.setdefault("report", report)
            raise


def _curve(advance: Callable[..., object] | None) -> Callable[[Sequence[RampStep]], object] | None:
    if advance is None:
        return None
    known = [0]

    def show(steps: Sequence[RampStep]) -> None:
        now = sum(step.consumed + step.back for step in steps)
        advance(now - known[0], f"batch {len(steps)}: {steps[-1]}")
        known[0] = now

    return show


def count_of(messages: Any) -> int | None:
    """Return how many messages there are to send; None where that is not known before."""
    is_one = isinstance(messages, (Message, str, bytes, bytearray, memoryview, Mapping))
    return len(messages) if hasattr(messages, "__len__") and not is_one else None


class AsyncProcessing(Shown):
    """A function that consumes an entity in the background. Made by ``await entity.start_processing(…)``.

    Shown as its workers, their messages and their progress. As a context manager it stops when the block ends.
    """

    def __init__(self, processing: InnerProcessing) -> None:
        self._processing = processing
        self._task = in_background(processing.run)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._processing.stop()
        if error is None:
            await self.stop()

    @property
    def status(self) -> ProcessStatus:
        """Return the messages and sessions that its workers have now, and how the finished messages ended."""
        return self._processing.status

    @property
    def report(self) -> Report:
        """Return the outcomes that are known now."""
        return self._processing.report

    async def stop(self) -> Report:
        """Begin no more messages, wait for the functions that run, settle their messages, and release the rest.

        Returns:
            An outcome for each message.

        Raises:
            Exception: what ended the run before.
        """
        self._processing.stop()
        return watched(await asyncio.shield(self._task))

    async def wait(self, seconds: float | None = None) -> Report | None:
        """Wait until it has ended.

        Args:
            seconds: how long at most, None for no limit.

        Returns:
            An outcome for each message; None when it has not ended.

        Raises:
            Exception: what ended the run.
        """
        done, _ = await asyncio.wait({self._task}, timeout=seconds)
        return watched(self._task.result()) if done else None

    def _table(self, most: int) -> Table:  # noqa: ARG002 (all rows)
        status = self.status
        return _LEASE, [[getattr(lease, name) for name in _LEASE] for lease in status.leases], str(status)
