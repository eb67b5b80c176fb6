"""What is written down on this machine around each settlement: deferrals in the journal, removals in the archive."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol
from uuid import UUID

from sbnotebook.model import Decision, Outcome

if TYPE_CHECKING:
    from sbnotebook.settlement.locking.held import Hold

__all__ = ["Record"]


class Record(Protocol):
    """Written before messages are settled, and again when it is known how that ended."""

    async def before(self, decision: Decision, holds: Sequence[Hold]) -> None:
        """Write down what is about to be done; on disk when this returns.

        Raises:
            SbNotebookError: it cannot be written; then these messages are not settled.
        """
        ...

    async def after(self, decision: Decision, outcomes: Mapping[UUID, Outcome]) -> None:
        """Write down how it ended, by lock token; messages that are missing were not attempted."""
        ...
