"""Consuming an entity with a function, settling each message by how the function ended."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from sbnotebook.model import Abandon, Complete, DeadLetter, Decision, LockedMessage, Outcome, Report
from sbnotebook.settlement.lock import LockedBatch
from sbnotebook.settlement.plan import Limits
from sbnotebook.settlement.settle import Progress

__all__ = ["Policy", "Processor", "RejectMessage", "process"]

Processor = Callable[[LockedMessage], None]
"""Does the work for one message; raises :class:`RejectMessage` when delivering it again would not help."""

_WINDOW: Final = 500
_MAX_DESCRIPTION: Final = 1_000


class RejectMessage(Exception):  # noqa: N818 (a decision that a function takes, not an error of the program)
    """Raised by a user's function: the message cannot be processed, now or later.

    Args:
        reason: short and the same for the same cause, because messages are grouped by it.
        description: what is wrong with this message.
    """

    def __init__(self, reason: str, description: str | None = None) -> None:
        super().__init__(reason if description is None else f"{reason}: {description}")
        self.reason = reason
        self.description = description


@dataclass(frozen=True, slots=True)
class Policy:
    """What happens to a message by how the function ended; each row can be changed.

    Args:
        completed: the function returned.
        failed: the function raised something else than RejectMessage.

    A rejected message is dead-lettered with its reason and description.
    """

    completed: Decision = field(default_factory=Complete)
    failed: Decision = field(default_factory=Abandon)

    def decide(self, function: Processor, message: LockedMessage) -> Decision:
        """Run the function on one message, and give the decision that its end stands for."""
        try:
            function(message)
        except RejectMessage as rejection:
            description = (rejection.description or "")[:_MAX_DESCRIPTION] or None
            return DeadLetter(rejection.reason, description)
        except Exception:  # noqa: BLE001 (a user's function may raise anything; the policy says what follows)
            return self.failed
        return self.completed


async def process(
    batch: LockedBatch,
    function: Processor,
    *,
    policy: Policy,
    limits: Limits,
    max_messages: int | None = None,
    max_wait: float = 2.0,
    progress: Progress | None = None,
) -> Report:
    """Lock messages window by window, run the function on each, and settle it only after the function ended.

    Args:
        batch: on the entity, not open yet.
        function: the work.
        policy: what each end means.
        limits: settlements in flight.
        max_messages: stop after so many, None for when the entity is empty.
        max_wait: seconds to wait for a message until the entity counts as empty.
        progress: told of every message that is finished.

    Returns:
        An outcome for each message, in the order in which they came.
    """
    outcomes: list[Outcome] = []
    async with batch:
        while max_messages is None or len(outcomes) < max_messages:
            wanted = _WINDOW if max_messages is None else min(_WINDOW, max_messages - len(outcomes))
            locked = await batch.receive(wanted, max_wait=max_wait)
            if not locked:
                break
            by_decision: dict[Decision, list[LockedMessage]] = defaultdict(list)
            for message in locked:
                by_decision[policy.decide(function, message)].append(message)
            for decision, messages in by_decision.items():
                outcomes += await batch.settle(
                    decision, messages, max_in_flight=limits.max_in_flight, progress=progress
                )
    return Report(outcomes)
