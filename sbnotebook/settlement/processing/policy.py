"""The policy of a run: a table from how a user's function ends for a message to what happens to that message.

Every row can be changed. A function says how it ended by returning, or by raising :class:`SkipMessage`,
:class:`RejectMessage`, :class:`StopProcessing` or any other exception.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from datetime import datetime
from enum import StrEnum
from typing import Final, Self

from sbnotebook.errors import DecisionError
from sbnotebook.model import Abandon, Complete, DeadLetter, Decision, EntityAddress, Release, Resubmit
from sbnotebook.model.connection_strings import scrub
from sbnotebook.settlement.plan import check_decision

_MAX_NAME: Final = 200
_MAX_REASON: Final = 200
_MAX_DESCRIPTION: Final = 1_000


class SkipMessage(Exception):  # noqa: N818 (a decision that a function takes, not an error of the program)
    """Raised by a user's function that has nothing to do for this message.

    Args:
        reason: why, for the report.
    """

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or "")
        self.reason = reason


class RejectMessage(Exception):  # noqa: N818
    """Raised by a user's function that cannot process this message, now or later.

    Args:
        reason: short and the same for the same cause, because messages are grouped by it.
        description: the fault of this message.
    """

    def __init__(self, reason: str, description: str | None = None) -> None:
        super().__init__(reason if description is None else f"{reason}: {description}")
        self.reason = reason
        self.description = description


class StopProcessing(Exception):  # noqa: N818
    """Raised by a user's function that cannot process any message now. This one and the rest are left for later.

    Args:
        reason: why, for the report.
    """

    def __init__(self, reason: str | None = None) -> None:
        super().__init__(reason or "")
        self.reason = reason


class End(StrEnum):
    COMPLETED = "completed"
    """It returned. Its return value is ignored."""
    SKIPPED = "skipped"
    """It raised :class:`SkipMessage`."""
    REJECTED = "rejected"
    """It raised :class:`RejectMessage`."""
    STOPPED = "stopped"
    """It raised :class:`StopProcessing`."""
    FAILED = "failed"
    """It raised anything else."""


class Then(StrEnum):
    """The ways in which a run continues after a message."""

    GO_ON = "continue"
    STOP = "stop"
    """No more messages are begun, and the run returns its report."""
    RAISE = "raise"
    """No more messages are begun. The function's exception is raised after all running calls have ended."""


@dataclass(frozen=True, slots=True)
class Fault:
    component: str
    component_kind: str
    type: str
    reason: str
    text: str | None
    time: datetime

    @classmethod
    def of(cls, error: BaseException, *, component: str, component_kind: str, time: datetime) -> Self:
        """Return the fault for an exception; for a decision raised ``from`` another one, with the type of the other."""
        is_decision = isinstance(error, (RejectMessage, SkipMessage, StopProcessing))
        cause = error.__cause__ if is_decision and error.__cause__ is not None else error
        text = error.description if isinstance(error, RejectMessage) else _text_of(error)
        reason = error.reason if isinstance(error, RejectMessage) else type(error).__name__
        return cls(
            component[:_MAX_NAME],
            component_kind,
            type(cause).__name__[:_MAX_NAME],
            scrub(str(reason), _MAX_REASON),
            scrub(str(text), _MAX_DESCRIPTION) if text else None,
            time,
        )


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:  # noqa: BLE001 (a user's exception whose __str__ fails, too)
        return "(its text is not available)"


@dataclass(frozen=True, slots=True)
class PolicyRow:
    """The row of one end.

    Args:
        decision: how the message is settled. A DeadLetter without a reason takes the reason of the function.
        then: whether the run continues.
        envelope_to: a queue or topic. Before the message is settled, sbnotebook sends a copy that describes the fault
            there (see :mod:`sbnotebook.settlement.processing.envelopes`). The message is settled only after that send
            is confirmed.

    Raises:
        DecisionError: the decision is a Resubmit, which is not a settlement, or nothing can be sent to ``envelope_to``.

    Example:
        >>> print(PolicyRow(Complete(), envelope_to="faults"))
        an envelope to faults, complete, continue
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
        """Return the address of ``envelope_to``."""
        return None if self.envelope_to is None else EntityAddress.parse(self.envelope_to)

    def decision_for(self, fault: Fault | None) -> Decision:
        """Return the decision. A DeadLetter without a reason takes the reason and description of the fault."""
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
    """The table, with a row for each end of a function. A decision alone replaces only the decision of its row.

    Args:
        completed: the function returned.
        skipped: it raised SkipMessage.
        rejected: it raised RejectMessage.
        stopped: it raised StopProcessing.
        failed: it raised anything else. If the run continues, an abandoned message is held until the run ends, so
            that Service Bus does not deliver it again in the same run.

    Raises:
        DecisionError: a row that is not possible.

    Example:
        >>> print(Policy(rejected=PolicyRow(Complete(), envelope_to="faults"), failed=PolicyRow(Abandon(), Then.GO_ON)))
        completed: complete, continue
        skipped: complete, continue
        rejected: an envelope to faults, complete, continue
        stopped: abandon, stop
        failed: abandon, continue
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
        """Return the row of one end."""
        return getattr(self, end.value)

    @property
    def rows(self) -> dict[End, PolicyRow]:
        """Return the whole table."""
        return {end: self.row(end) for end in End}

    def check(self, entity: EntityAddress, *, redelivers: bool) -> None:
        """Refuse a table that cannot be carried out on an entity.

        Args:
            entity: the entity that is consumed.
            redelivers: whether Service Bus delivers a returned message again in the same run.

        Raises:
            DecisionError: a row that is not possible there; the text says what to do instead.
        """
        for end, row in self.rows.items():
            # A function may never reject a message. If it does, the outcome says that it cannot be dead-lettered again.
            if end is not End.REJECTED:
                check_decision(row.decision, entity)
            if row.destination == entity:
                raise DecisionError(f"Envelopes to {entity} would be processed there themselves: name another entity.")
            if redelivers and isinstance(row.decision, Release) and row.then is Then.GO_ON:
                raise DecisionError(
                    f"A message that is {end} would be released and delivered again at once, forever: "
                    "abandon or defer it."
                )
            if redelivers and isinstance(row.decision, Abandon) and row.decision.delay:
                raise DecisionError(
                    f"A message that is {end} would be held for its delay, and all others with it: "
                    "abandon it without a delay, or end when the entity is empty (max_wait)."
                )

    def __str__(self) -> str:
        return "\n".join(f"{end}: {row}" for end, row in self.rows.items())
