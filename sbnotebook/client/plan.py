"""Plans for synchronous code."""

from __future__ import annotations

from sbnotebook.client import progress, tables
from sbnotebook.client.portal import run
from sbnotebook.model import Decision, EntityAddress, ReceivedMessage, Report
from sbnotebook.settlement.locking.settle import DEFAULT_MAX_IN_FLIGHT
from sbnotebook.settlement.plan import Limits, Preview
from sbnotebook.settlement.plan import Plan as AsyncPlan

__all__ = ["Plan"]


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
    def messages(self) -> tuple[ReceivedMessage, ...]:
        """With which messages."""
        return self._plan.messages

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
        total = len(self.messages) if self._plan.total is None else self._plan.total
        with progress.bar(self.decision.verb, total, shown=show_progress) as advance:
            return run(self._plan.apply, limits, advance)

    def __len__(self) -> int:
        return len(self.messages)

    def __repr__(self) -> str:
        return tables.preview_text(self.preview())

    def _repr_html_(self) -> str:
        return tables.preview_html(self.preview())
