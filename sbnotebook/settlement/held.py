"""What a batch holds, and how each message that it held ended."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from typing import TYPE_CHECKING, Final
from uuid import UUID

from sbnotebook.errors import DecisionError
from sbnotebook.model import Decision, EntityAddress, LockedMessage, Outcome, OutcomeStatus
from sbnotebook.settlement.settle import outcome_for

if TYPE_CHECKING:
    from azure.servicebus import ServiceBusReceivedMessage

__all__ = ["HeldMessages", "Hold"]

_STILL_HELD: Final = frozenset({OutcomeStatus.FAILED, OutcomeStatus.UNCONFIRMED, OutcomeStatus.SKIPPED})
_MAY_BE_DONE: Final = "An earlier settlement had no answer: it may have been done."


@dataclass(slots=True, eq=False)
class Hold:
    """One lock.

    Args:
        message: the value that users see.
        received: the SDK's object that stands for the lock.
        locked_from: when the lock was asked for, or renewed last.
        locked_until: when it ends.
        is_read: False as long as ``message`` has nothing but its number and its lock token.
        in_doubt: a settlement was begun and its answer is not known.
    """

    message: LockedMessage
    received: ServiceBusReceivedMessage
    locked_from: datetime
    locked_until: datetime
    is_read: bool = True
    in_doubt: bool = False


class HeldMessages:
    """The locks of one batch by sequence number, and the ends of those that ended by lock token.

    Args:
        address: the entity that all of them are of.
    """

    def __init__(self, address: EntityAddress) -> None:
        self._address = address
        self._holds: dict[int, Hold] = {}
        self._ended: dict[UUID, tuple[int, OutcomeStatus]] = {}

    def __iter__(self) -> Iterator[Hold]:
        return iter(tuple(self._holds.values()))

    def __len__(self) -> int:
        return len(self._holds)

    def get(self, sequence_number: int) -> Hold | None:
        """The lock of a message; None when it is not held."""
        return self._holds.get(sequence_number)

    def of(self, message: LockedMessage) -> Hold | None:
        """The very lock that a message came with; None when that one ended."""
        hold = self._holds.get(message.sequence_number)
        return hold if hold is not None and hold.message.lock_token == message.lock_token else None

    def add(self, hold: Hold) -> None:
        """Hold one more; an earlier lock of the same message has ended, or it would not have come again."""
        earlier = self._holds.get(hold.message.sequence_number)
        if earlier is not None:
            self.lose(earlier)
        self._holds[hold.message.sequence_number] = hold

    @property
    def lost(self) -> tuple[int, ...]:
        """Numbers of messages whose last lock ended before they were settled."""
        last = dict(self._ended.values())
        return tuple(n for n, status in last.items() if status is OutcomeStatus.LOCK_LOST and n not in self._holds)

    def check_ours(self, messages: Iterable[LockedMessage]) -> None:
        """Refuse messages that were not locked here.

        Raises:
            DecisionError: at least one of them is a stranger.
        """
        strangers = [message for message in messages if not self._is_ours(message)]
        if strangers:
            first = getattr(strangers[0], "sequence_number", "?")
            raise DecisionError(
                f"{len(strangers)} messages are not of this batch (the first is #{first}): lock them first."
            )

    def _is_ours(self, message: object) -> bool:
        # A number alone is no proof: each entity counts from 1, and a message may be locked again elsewhere.
        if not isinstance(message, LockedMessage) or message.entity != self._address:
            return False
        number, _ = self._ended.get(message.lock_token, (None, None))
        return self.of(message) is not None or number == message.sequence_number

    def note(self, hold: Hold, outcome: Outcome, *, was_in_doubt: bool) -> Outcome:
        """Write down how an attempt to settle ended.

        Args:
            hold: the lock.
            outcome: of this attempt alone.
            was_in_doubt: whether an earlier attempt is without an answer.

        Returns:
            What is known of the message after all attempts: what an earlier one may have done stays unconfirmed.
        """
        if was_in_doubt and not outcome.ok:
            text = f"{_MAY_BE_DONE} Since then: {outcome.description or outcome.status}"
            known = replace(outcome, status=OutcomeStatus.UNCONFIRMED, description=text)
        else:
            known = outcome
        hold.in_doubt = known.status is OutcomeStatus.UNCONFIRMED
        # What failed or has no answer is still held, and is released at the end or tried again.
        if outcome.status not in _STILL_HELD:
            self._end(hold, known.status)
        return known

    def lose(self, hold: Hold) -> None:
        """The lock ended, if it is held still."""
        if self._holds.get(hold.message.sequence_number) is hold:
            self._end(hold, OutcomeStatus.UNCONFIRMED if hold.in_doubt else OutcomeStatus.LOCK_LOST)

    def outcome_of(self, message: LockedMessage, decision: Decision) -> Outcome:
        """The outcome of a message of this batch for which nothing was attempted now."""
        hold = self.of(message)
        if hold is not None:
            status = OutcomeStatus.UNCONFIRMED if hold.in_doubt else OutcomeStatus.SKIPPED
            return outcome_for(message, decision, status, _MAY_BE_DONE if hold.in_doubt else "It was not attempted.")
        _, status = self._ended[message.lock_token]
        if status is OutcomeStatus.LOCK_LOST:
            return outcome_for(message, decision, status, "The lock ended before.")
        if status is OutcomeStatus.UNCONFIRMED:
            return outcome_for(message, decision, status, f"{_MAY_BE_DONE} Its lock has ended.")
        return outcome_for(message, decision, OutcomeStatus.ALREADY_SETTLED, "It was settled before in this batch.")

    def _end(self, hold: Hold, status: OutcomeStatus) -> None:
        number, token = hold.message.sequence_number, hold.message.lock_token
        if self._holds.get(number) is hold:
            del self._holds[number]
        self._ended.pop(token, None)
        self._ended[token] = (number, status)
