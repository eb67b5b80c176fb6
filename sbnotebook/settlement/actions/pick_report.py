"""Reports of work that had to lock other messages, too."""

from __future__ import annotations

from collections.abc import Iterable

from sbnotebook.model import Outcome, Report

__all__ = ["PickReport"]


class PickReport(Report):
    """The outcomes of the chosen messages, and how the others were given back that had to be locked to reach them.

    Args:
        outcomes: of the chosen messages, in their order.
        rest: an outcome for each of the others that were held.
    """

    def __init__(self, outcomes: Iterable[Outcome], rest: Report) -> None:
        super().__init__(outcomes)
        self.rest = rest

    def __str__(self) -> str:
        text = super().__str__()
        if self.rest:
            text += f"; {self.rest.settled:,} others were given back as they were"
        if not self.rest.ok:
            text += (
                f", {len(self.rest) - self.rest.settled:,} were not: their delivery counts go up when their locks end"
            )
        return text
