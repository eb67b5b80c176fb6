"""Plans, which are carried out once, also in the background, and functions that consume in the background.

Do not edit: ``make format`` writes this file from async_plan.py.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Self

from sbnotebook.analysis.tables import Shown, Table
from sbnotebook.client.async_plan import AsyncPlan, AsyncProcessing, AsyncRunning
from sbnotebook.client.portal import on_loop, run
from sbnotebook.client.targets import RampSizes
from sbnotebook.client.verbs import ShownAsPreview, Twin, moved
from sbnotebook.model import Decision, EntityAddress, Outcome, ReceivedMessage, Report
from sbnotebook.model.decision import AUTO
from sbnotebook.settlement import InFlight, Preview, ProcessStatus, Ramp, RampStep
from sbnotebook.settlement import Plan as InnerPlan

if TYPE_CHECKING:
    import pandas as pd


class Plan(ShownAsPreview, Twin[AsyncPlan]):
    """Messages and a decision. Making a plan does nothing; :meth:`apply` carries it out, once.

    Shown as a preview: a sentence, the first messages, and what an edit changes in them.
    """

    @property
    def entity(self) -> EntityAddress:
        """Return the address of the messages."""
        return self.asynchronous.entity

    @property
    def inner(self) -> InnerPlan:
        """Return the plan of the settlement library."""
        return self.asynchronous.inner

    @property
    def decision(self) -> Decision:
        """Return the decision."""
        return self.asynchronous.decision

    @property
    def verb(self) -> str:
        """Return the decision in a word, such as ``complete``."""
        return self.asynchronous.verb

    @property
    def question(self) -> str:
        """Return the question whether to carry it out, which names the action, the count, the entity and the namespace.

        Example:
            >>> print(letters.resubmit(letters.peek()).question)  # doctest: +SKIP
            Resubmit 143 messages of orders/$dlq on contoso-prod?
        """
        return self.asynchronous.question

    @property
    def messages(self) -> tuple[ReceivedMessage, ...]:
        """Return the messages."""
        return self.asynchronous.messages

    @property
    def ramp(self) -> Ramp | None:
        """Return the ramp that :meth:`with_ramp` gave the plan."""
        return self.asynchronous.ramp

    @property
    def total(self) -> int:
        """Return how many messages its progress counts: its own, or all that it has to lock."""
        return self.asynchronous.total

    def to_pandas(self) -> pd.DataFrame:
        """Return a pandas frame with the messages, and the column ``decision`` before their own columns."""
        return self.asynchronous.to_pandas()

    def preview(self, rows: int = 5) -> Preview:
        """Return what applying would do, without doing it.

        Args:
            rows: how many messages are shown, and edited to show the changes.
        """
        return run(self.asynchronous.preview, rows)

    def with_ramp(
        self, batches: RampSizes = 10, *, watch: str | float | timedelta = "10m", stop_at: float = 0.0
    ) -> Plan:
        """Return the same plan with a ramp: small batches go first, each only if consumers complete the one before.

        Args:
            batches: the sizes of the batches that go first, such as ``"1,5,20,100"`` or 10.
            watch: for how long the clones of a batch are watched at most.
            stop_at: the share of a batch, from 0 to 1, that stops the others when it is dead-lettered again; 0 for any.

        Raises:
            ConfigurationError: a number is out of its range.
            DecisionError: the plan has no clones to watch.

        Example:
            >>> plan = letters.resubmit(where="subject = 'late'")  # doctest: +SKIP
            >>> plan.with_ramp("1,20", stop_at=0.02).apply()  # doctest: +SKIP
            <Report Resubmitted 200 messages; ramp: 1 sent, 1 consumed → 20 sent, 20 consumed>
        """
        return Plan(self.asynchronous.with_ramp(batches, watch=watch, stop_at=stop_at))

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
            >>> print(letters.resubmit([7, 8, 9], to="orders").as_cell())  # doctest: +SKIP
            %sb_resubmit orders/$dlq --messages 7-9 --to orders
        """
        return self.asynchronous.as_cell(rate=rate)

    def as_python(self, *, target: str | None = None, rate: float | None = None) -> str:
        """Return the plan as Python that makes it again, shows it, and applies it. See :meth:`as_cell`.

        Args:
            target: the host of the namespace, None for the one that the environment names.
            rate: messages a second at most, None for no limit.

        Raises:
            DecisionError: no code can say the same, as for the release of held messages.
        """
        return self.asynchronous.as_python(target=target, rate=rate)

    @moved("plan.with_ramp(…)", "ramp", "watch", "stop_at")
    def apply(self, *, max_in_flight: InFlight = AUTO, rate: float | None = None, show_progress: bool = True) -> Report:
        """Carry the plan out; a progress bar appears when it takes longer than a second.

        If no message matches an expression, it warns, and names the reasons or subjects of the others.

        Args:
            show_progress: False for no bar, and no warning.
            max_in_flight: the most operations in progress at once; ``"auto"`` adapts to the network.
            rate: messages a second at most, None for no limit.

        Returns:
            An outcome for each of the messages. With a ramp, ``report.steps`` has the batches, ``report.fates`` tells
            what became of their clones, and ``report.stopped`` why the others did not follow: these are SKIPPED.

        Raises:
            ConfigurationError: a number is out of its range.
            DecisionError: the plan was applied already, or its clones cannot be watched; nothing was done.
        """
        return run(self.asynchronous.apply, max_in_flight=max_in_flight, rate=rate, show_progress=show_progress)

    @moved("plan.with_ramp(…)", "ramp", "watch", "stop_at")
    def start(self, *, max_in_flight: InFlight = AUTO, rate: float | None = None) -> Running:
        """Carry the plan out in the background: watch, pause or cancel it. Arguments as for :meth:`apply`.

        Example:
            >>> running = letters.purge().start(rate=50)  # doctest: +SKIP
            >>> running.pause()  # doctest: +SKIP
            >>> running.resume()  # doctest: +SKIP
            >>> running.result()  # doctest: +SKIP
            <Report Purged 200 messages>
        """
        return Running(run(self.asynchronous.start, max_in_flight=max_in_flight, rate=rate))

    def __len__(self) -> int:
        return self.asynchronous.__len__()


class Running(Twin[AsyncRunning]):
    """A plan that is carried out in the background. Made by ``plan.start()``."""

    @property
    def plan(self) -> Plan:
        """Return the plan."""
        return Plan(self.asynchronous.plan)

    @property
    def done(self) -> int:
        """Return the number of messages that its progress counts until now, of ``plan.total``."""
        return self.asynchronous.done

    @property
    def steps(self) -> Sequence[RampStep]:
        """Return the batches of a ramp until now; none before the first is watched."""
        return self.asynchronous.steps

    def new_outcomes(self) -> list[Outcome]:
        """Return the outcomes that are new since the last call, in the order in which they came.

        In the end :meth:`result` has all, with those that were not attempted.
        """
        return self.asynchronous.new_outcomes()

    def pause(self) -> None:
        """Begin nothing more; work in progress ends, and locks are renewed.

        A group of up to 200 messages, or 500 of an undo, that has begun is not left half done.
        """
        run(self.asynchronous.pause)

    def resume(self) -> None:
        """Continue after a pause."""
        run(self.asynchronous.resume)

    @property
    def is_paused(self) -> bool:
        """Return True from :meth:`pause` until :meth:`resume`."""
        return self.asynchronous.is_paused

    @property
    def is_held(self) -> bool:
        """Return True if a pause has stopped all work in progress."""
        return self.asynchronous.is_held

    def cancel(self) -> None:
        """Begin nothing more, wait some seconds for work in progress, and release the other messages.

        This returns at once; :meth:`result` waits for the end, and returns the report.
        """
        run(self.asynchronous.cancel)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it has ended, and return whether it has.

        Args:
            timeout: seconds at most, None for no limit.
        """
        return run(self.asynchronous.wait, timeout)

    @property
    def in_flight(self) -> int:
        """Return how many messages wait for an answer of Service Bus, as of the last that began to."""
        return self.asynchronous.in_flight

    @property
    def report(self) -> Report:
        """Return the outcomes known now: UNCONFIRMED for messages in progress, SKIPPED for messages not begun."""
        return on_loop(lambda: self.asynchronous.report)

    def result(self) -> Report:
        """Wait for the end.

        Returns:
            An outcome for each of the messages, also when it was cancelled.

        Raises:
            Exception: what ended it; its attribute ``report`` has the outcomes until then, where there are any.
        """
        return run(self.asynchronous.result)


class Processing(Shown, Twin[AsyncProcessing]):
    """A function that consumes an entity in the background. Made by ``entity.start_processing(…)``.

    Shown as its workers, their messages and their progress. As a context manager it stops when the block ends.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        run(self.asynchronous.__aexit__, kind, error, trace)

    @property
    def status(self) -> ProcessStatus:
        """Return the messages and sessions that its workers have now, and how the finished messages ended."""
        return self.asynchronous.status

    @property
    def report(self) -> Report:
        """Return the outcomes that are known now."""
        return on_loop(lambda: self.asynchronous.report)

    def stop(self) -> Report:
        """Begin no more messages, wait for the functions that run, settle their messages, and release the rest.

        Returns:
            An outcome for each message.

        Raises:
            Exception: what ended the run before.
        """
        return run(self.asynchronous.stop)

    def wait(self, seconds: float | None = None) -> Report | None:
        """Wait until it has ended.

        Args:
            seconds: how long at most, None for no limit.

        Returns:
            An outcome for each message; None when it has not ended.

        Raises:
            Exception: what ended the run.
        """
        return run(self.asynchronous.wait, seconds)

    def _table(self, most: int) -> Table:
        return self.asynchronous._table(most)  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]
