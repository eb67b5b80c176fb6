"""What happens to a message by how a user's function ended: a table whose rows can be changed."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from sbnotebook.errors import DecisionError
from sbnotebook.model import Abandon, Complete, DeadLetter, Decision, EntityAddress, Release, Resubmit
from sbnotebook.settlement.locking.settle import check_decision

if TYPE_CHECKING:
    from sbnotebook.settlement.processing.envelope import Fault

__all__ = ["End", "Policy", "PolicyRow", "RejectMessage", "SkipMessage", "StopProcessing", "Then"]

_MAX_REASON: Final = 200
_MAX_DESCRIPTION: Final = 1_000


class SkipMessage(Exception):  # noqa: N818 (a decision that a function takes, not an error of the program)
    """Raised by a user's function: there is nothing to do for this message.

    Args:
        reason: why, for the report.
    """

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or "")
        self.reason = reason


class RejectMessage(Exception):  # noqa: N818
    """Raised by a user's function: the message cannot be processed, now or later.

    Args:
        reason: short and the same for the same cause, because messages are grouped by it.
        description: what is wrong with this message.
    """

    def __init__(self, reason: str, description: str | None = None) -> None:
        super().__init__(reason if description is None else f"{reason}: {description}")
        self.reason = reason
        self.description = description


class StopProcessing(Exception):  # noqa: N818
    """Raised by a user's function: nothing can be processed now, this message and those after it are left for later.

    Args:
        reason: why, for the report.
    """

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or "")
        self.reason = reason


class End(StrEnum):
    """How a function ended for one message."""

    COMPLETED = "completed"
    """It returned; what it returned does not matter."""
    SKIPPED = "skipped"
    """It raised :class:`SkipMessage`."""
    REJECTED = "rejected"
    """It raised :class:`RejectMessage`."""
    STOPPED = "stopped"
    """It raised :class:`StopProcessing`."""
    FAILED = "failed"
    """It raised anything else."""


class Then(StrEnum):
    """What happens to the run after a message."""

    GO_ON = "go on"
    STOP = "stop"
    """No more messages are begun, and the report is given."""
    RAISE = "raise"
    """No more messages are begun, and the function's exception is raised when all that ran has ended."""


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """What happens at one end.

    Args:
        decision: what becomes of the message. A dead-lettering without a reason takes those of the function.
        then: what becomes of the run.
        envelope_to: a queue or topic; before the message is settled, a copy of it that tells what happened is sent
            there,
            see :mod:`sbnotebook.settlement.processing.envelope`. The message is settled only when that is confirmed.

    Raises:
        DecisionError: a resubmit, which is not a settlement, or envelopes to what cannot be sent to.

    Example:
        >>> print(PolicyRow(Complete(), envelope_to="faults"))
        an envelope to faults, complete, go on
    """

    decision: Decision
    then: Then = Then.GO_ON
    envelope_to: EntityAddress | str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "then", Then(self.then))
        if isinstance(self.decision, Resubmit):
            raise DecisionError("A policy settles messages; resubmit them with a plan of their own.")
        address = self.destination
        if address is not None and (address.subscription is not None or address.sub_queue is not None):
            raise DecisionError(f"Envelopes cannot be sent to {address}: name a queue or a topic.")

    @property
    def destination(self) -> EntityAddress | None:
        """Where envelopes go."""
        return None if self.envelope_to is None else EntityAddress.parse(self.envelope_to)

    def decision_for(self, fault: Fault | None) -> Decision:
        """The decision, with the function's reason where it has none of its own."""
        if not isinstance(self.decision, DeadLetter) or self.decision.reason is not None or fault is None:
            return self.decision
        description = self.decision.description or fault.text
        return DeadLetter(fault.reason[:_MAX_REASON], description[:_MAX_DESCRIPTION] if description else None)

    def __str__(self) -> str:
        envelope = f"an envelope to {self.destination}, " if self.envelope_to is not None else ""
        return f"{envelope}{self.decision.verb}, {self.then}"


_DEFAULTS: Final = {
    End.COMPLETED: PolicyRow(Complete()),
    End.SKIPPED: PolicyRow(Complete()),
    End.REJECTED: PolicyRow(DeadLetter()),
    End.STOPPED: PolicyRow(Abandon(), Then.STOP),
    End.FAILED: PolicyRow(Abandon(), Then.RAISE),
}


@dataclass(frozen=True, slots=True)
class Policy:
    """The table: a row for each end of a function. Where only a decision is given, the rest of the row stays.

    Args:
        completed: the function returned.
        skipped: it raised SkipMessage.
        rejected: it raised RejectMessage.
        stopped: it raised StopProcessing.
        failed: it raised anything else. Where the run goes on, a message that is abandoned is held until the end, so
            that it does not come again in the same run.

    Raises:
        DecisionError: a row that cannot be.

    Example:
        >>> print(Policy(rejected=PolicyRow(Complete(), envelope_to="faults"), failed=PolicyRow(Abandon(), Then.GO_ON)))
        completed: complete, go on
        skipped: complete, go on
        rejected: an envelope to faults, complete, go on
        stopped: abandon, stop
        failed: abandon, go on
    """

    completed: PolicyRow | Decision = _DEFAULTS[End.COMPLETED]
    skipped: PolicyRow | Decision = _DEFAULTS[End.SKIPPED]
    rejected: PolicyRow | Decision = _DEFAULTS[End.REJECTED]
    stopped: PolicyRow | Decision = _DEFAULTS[End.STOPPED]
    failed: PolicyRow | Decision = _DEFAULTS[End.FAILED]

    def __post_init__(self) -> None:
        for row in fields(self):
            given: PolicyRow | Decision = getattr(self, row.name)
            if not isinstance(given, PolicyRow):
                object.__setattr__(self, row.name, replace(_DEFAULTS[End(row.name)], decision=given))
        if self.row(End.COMPLETED).envelope_to is not None:
            raise DecisionError("An envelope tells what went wrong: there is none for a message that is completed.")

    def row(self, end: End) -> PolicyRow:
        """The row of one end."""
        return getattr(self, end.value)

    @property
    def rows(self) -> dict[End, PolicyRow]:
        """The whole table."""
        return {end: self.row(end) for end in End}

    @property
    def done(self) -> set[End]:
        """The ends after which nothing is left to do but to complete the message."""
        return {e for e, row in self.rows.items() if isinstance(row.decision, Complete) and row.envelope_to is None}

    @property
    def destinations(self) -> set[EntityAddress]:
        """Where envelopes go, of all rows."""
        return {row.destination for row in self.rows.values() if row.destination is not None}

    def check(self, entity: EntityAddress, *, comes_again: bool) -> None:
        """Refuse a table that cannot be carried out on an entity.

        Args:
            entity: where the messages stand.
            comes_again: whether what is given back is delivered again in the same run.

        Raises:
            DecisionError: says what to do instead.
        """
        for end, row in self.rows.items():
            # Nobody may ever be rejected; and then the outcome says that it cannot be dead-lettered again.
            if end is not End.REJECTED:
                check_decision(row.decision, entity)
            if row.destination == entity:
                raise DecisionError(f"Envelopes to {entity} would be processed there themselves: name another entity.")
            if comes_again and isinstance(row.decision, Release) and row.then is Then.GO_ON:
                raise DecisionError(
                    f"A message that is {end} would be released and come again at once, for ever: abandon or defer it."
                )
            if comes_again and isinstance(row.decision, Abandon) and row.decision.delay:
                raise DecisionError(
                    f"A message that is {end} would be held for its delay, and all others with it: "
                    "abandon it without a delay, or end when the entity is empty (max_wait)."
                )

    def __str__(self) -> str:
        return "\n".join(f"{end}: {row}" for end, row in self.rows.items())
