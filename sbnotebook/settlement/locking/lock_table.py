"""The messages of a batch: those it holds, the outcome of each other one, and the events of their locks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import InitVar, dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from typing import Final, TypeGuard
from uuid import UUID

from sbnotebook.errors import DecisionError
from sbnotebook.model import Decision, EntityAddress, LockedMessage, Outcome, OutcomeStatus, ReceivedMessage
from sbnotebook.settlement.plan import outcome_for
from sbnotebook.settlement.sdk.receivers import ReceivedLock


class LockEventKind(StrEnum):
    """The kinds of events of a lock."""

    RENEWING = "renewing"
    """Locks are renewed as they should be, from the beginning or again."""
    LATE = "late"
    """The program or the machine stood still for so long that locks may have ended; the service is asked."""
    FAILING = "failing"
    """Renewing failed; it is tried again each second as long as the locks last."""
    ENDED = "ended"
    """``renew_for`` is over: locks end one after the other, and are not renewed any more."""
    LOST = "lost"
    """Locks ended before their messages were settled: the messages are delivered again."""


@dataclass(frozen=True, slots=True)
class LockEvent:
    """Something that happened to the locks of a batch.

    Args:
        kind: what happened.
        since: when it happened, or began.
        sequence_numbers: of the messages that it concerns; none where it is all of them.
        description: in a sentence.

    Example:
        >>> from datetime import UTC
        >>> print(LockEvent(LockEventKind.LOST, datetime(2026, 1, 2, tzinfo=UTC), (7,), "The lock ended."))
        2026-01-02 00:00:00 UTC lost: The lock ended. (#7)
    """

    kind: LockEventKind
    since: datetime
    sequence_numbers: tuple[int, ...] = ()
    description: str = ""

    @property
    def is_trouble(self) -> bool:
        """Tell whether locks are lost, or may be soon."""
        return self.kind is not LockEventKind.RENEWING

    def __str__(self) -> str:
        numbers = f" ({number_list(self.sequence_numbers)})" if self.sequence_numbers else ""
        words = f": {self.description}" if self.description else ""
        return f"{self.since:%Y-%m-%d %H:%M:%S} UTC {self.kind}{words}{numbers}"


LockWatcher = Callable[[LockEvent], None]
"""Told of each event, on the event loop of the batch: it must be quick, and must not wait for the batch."""


def number_list(sequence_numbers: Iterable[int], shown: int = 5) -> str:
    """Return sequence numbers as text for people.

    Args:
        sequence_numbers: in the order of the text.
        shown: numbers that are named; the others are counted.

    Example:
        >>> number_list(range(1, 9))
        '#1, #2, #3, #4, #5 and 3 more'
    """
    numbers = tuple(sequence_numbers)
    text = ", ".join(f"#{number}" for number in numbers[:shown])
    return text if len(numbers) <= shown else f"{text} and {len(numbers) - shown:,} more"


_STILL_HELD: Final = frozenset({OutcomeStatus.FAILED, OutcomeStatus.UNCONFIRMED, OutcomeStatus.SKIPPED})
_REMEMBERED: Final = 100_000
"""Messages that ended and of which is still known how."""
_MAY_BE_DONE: Final = "An earlier settlement had no answer: it may have been done."
_SHORTEST, LONGEST = timedelta(seconds=5), timedelta(minutes=5)
"""Locks that Service Bus grants (documentation, "Message transfers, locks, and settlement")."""
_MANY: Final = 1_000
"""Locks that are renewed as early as is safest; more are renewed later, so that they need fewer renewals."""
_RENEW_AT: Final = 3
"""A lock is renewed after a third of it. The service tells when a lock ends by its own clock, and not how long it is:
so a clock that is slow by less than two locks does no harm."""
_RENEW_MANY_AT: Final = 2
"""Many locks are renewed after half of it. The promise is that a third is left; half leaves time for a slow answer."""
_MOMENT: Final = timedelta(seconds=1)
"""Most settlements are answered sooner, and then need no renewal."""
_SHORT: Final = timedelta(seconds=20)
"""Shorter ones than three of these are renewed after this time, or half a lock, so that they are not renewed often."""


@lru_cache(maxsize=8)  # messages that came together have the same times
def lock_times(
    asked: datetime, locked_until: datetime, period: timedelta
) -> tuple[datetime, timedelta, datetime, datetime]:
    """Return the end of a lock, its period, and when one lock and many locks are renewed."""
    left = locked_until - asked
    if left <= timedelta():  # the two clocks differ: the service is asked at once
        return asked + _SHORTEST, period, asked, asked
    # The shortest time seen, because a clock that is set back shows longer ones.
    period = min(period, left if left <= LONGEST + _SHORT else 3 * _SHORT)
    of_many = period / _RENEW_MANY_AT
    return asked + min(left, LONGEST), period, asked + max(period / _RENEW_AT, min(of_many, _SHORT)), asked + of_many


@dataclass(slots=True, eq=False)
class Hold:
    message: LockedMessage
    lock: ReceivedLock
    asked: InitVar[datetime]
    locked_until: datetime
    is_read: bool = True
    was_in_doubt: bool = False
    """True if the outcome of an earlier settlement is unknown."""
    asked_at: datetime | None = None
    """When a settlement began that waits for its answer."""
    size: int = 0
    renewals: int = field(default=-1, init=False)
    ends: datetime = field(init=False)
    """When the lock ends by the clock of this machine."""
    period: timedelta = field(default=LONGEST, init=False)
    """The shortest duration of the lock so far."""
    _due: datetime = field(init=False)
    _due_of_many: datetime = field(init=False)

    def __post_init__(self, asked: datetime) -> None:
        self.extend(asked, self.locked_until)

    def extend(self, asked: datetime, locked_until: datetime) -> None:
        self.locked_until = locked_until
        self.renewals += 1
        self.ends, self.period, self._due, self._due_of_many = lock_times(asked, locked_until, self.period)

    @property
    def in_doubt(self) -> bool:
        return self.was_in_doubt or self.asked_at is not None

    def is_due(self, now: datetime, *, held: int) -> bool:
        # One request renews many locks, and is refused where one of them is settled meanwhile.
        is_settled_now = self.asked_at is not None and not self.is_silent(now)
        return not is_settled_now and now >= (self._due if held <= _MANY else self._due_of_many)

    def is_silent(self, now: datetime) -> bool:
        """Return whether the answer to a settlement of it has been awaited for longer than most answers take."""
        return self.asked_at is not None and now - self.asked_at >= _MOMENT

    def shift(self, by: timedelta) -> None:
        """Note that the clock of this machine was set."""
        self.ends += by
        self._due += by
        self._due_of_many += by


class HeldMessages:
    """The locks of one batch by sequence number, and the ends of those that ended by lock token."""

    def __init__(self, address: EntityAddress) -> None:
        self._address = address
        self._holds: dict[int, Hold] = {}
        self._ended: dict[UUID, tuple[int, OutcomeStatus, str | None]] = {}
        self._newly_lost: list[int] = []
        self.lost_messages: dict[int, LockedMessage] = {}
        """Those whose last lock ended before they were settled, and perhaps came again since, by sequence number."""
        self._untold: set[UUID] = set()
        self.confirms_ranges: bool | None = None
        """True if the service confirms the settlement of several messages at once; None before the first."""
        self.confirms_releases = True
        """False after the service left a release unconfirmed."""

    def __iter__(self) -> Iterator[Hold]:
        return iter(tuple(self._holds.values()))

    def locked_until(self, sequence_number: int) -> datetime | None:
        """Return when the lock of a message ends, as last renewed; None when it is not held."""
        hold = self._holds.get(sequence_number)
        return hold.locked_until if hold else None

    def size_of(self, message: LockedMessage) -> int:
        """Return the bytes of a message that is held, as it came; 0 when it is not held any more."""
        hold = self.of(message)
        return hold.size if hold else 0

    def of(self, message: LockedMessage) -> Hold | None:
        """Return the very lock that a message came with; None when that lock ended."""
        hold = self._holds.get(message.sequence_number)
        return hold if hold is not None and hold.message.lock_token == message.lock_token else None

    def add(self, hold: Hold) -> None:
        """Hold one more; an earlier lock of the same message has ended, or it would not have come again."""
        earlier = self._holds.get(hold.message.sequence_number)
        if earlier is not None:
            self.lose(earlier, "The message came again, so its lock had ended.")
        self._holds[hold.message.sequence_number] = hold

    @property
    def lost(self) -> tuple[int, ...]:
        """Return the numbers of messages whose last lock ended before they were settled."""
        return tuple(number for number in tuple(self.lost_messages) if number not in self._holds)

    @property
    def unsettled(self) -> tuple[LockedMessage, ...]:
        """Return the messages that are held, and those that were lost and of which no outcome told yet."""
        lost = (each for each in tuple(self.lost_messages.values()) if each.sequence_number not in self._holds)
        held = (hold.message for hold in self if hold.is_read)
        return (*held, *(message for message in lost if message.lock_token in self._untold))

    def take_newly_lost(self) -> tuple[int, ...]:
        lost, self._newly_lost = self._newly_lost, []
        return tuple(lost)

    def check_ours(self, messages: Iterable[ReceivedMessage]) -> list[LockedMessage]:
        given = [*messages]
        ours = [message for message in given if self._is_ours(message)]
        if len(ours) < len(given):
            first = getattr(next(each for each in given if not self._is_ours(each)), "sequence_number", "?")
            raise DecisionError(
                f"{len(given) - len(ours)} messages are not in this batch (the first is #{first}): lock them first."
            )
        return ours

    def _is_ours(self, message: object) -> TypeGuard[LockedMessage]:
        # A number alone is not enough: each entity counts from 1, and a message may be locked again elsewhere.
        if not isinstance(message, LockedMessage) or message.entity != self._address:
            return False
        number, *_ = self._ended.get(message.lock_token, (None,))
        return self.of(message) is not None or number == message.sequence_number

    def note(self, hold: Hold, outcome: Outcome) -> Outcome:
        if hold.was_in_doubt and not outcome.ok:
            text = f"{_MAY_BE_DONE} Since then: {outcome.description or outcome.status}"
            known = replace(outcome, status=OutcomeStatus.UNCONFIRMED, description=text)
        else:
            known = outcome
        hold.was_in_doubt, hold.asked_at = known.status is OutcomeStatus.UNCONFIRMED, None
        # What failed or has no answer is still held, and is released at the end or tried again.
        if outcome.status not in _STILL_HELD:
            self._end(hold, known.status, known.description)
        return known

    def lose(self, hold: Hold, why: str = "The lock ended before.") -> None:
        """Note that the lock ended, if it is still held."""
        if self._holds.get(hold.message.sequence_number) is hold:
            self._end(hold, OutcomeStatus.UNCONFIRMED if hold.in_doubt else OutcomeStatus.LOCK_LOST, why)
            self._untold.add(hold.message.lock_token)

    def leave(self, hold: Hold) -> None:
        self._end(hold, OutcomeStatus.SKIPPED, "Its lock was left to end by itself.")

    def forget_settled(self) -> None:
        """Forget which messages were settled: do not settle these again."""
        self._ended = {token: end for token, end in self._ended.items() if end[1] is not OutcomeStatus.SETTLED}

    def forget_ended(self) -> None:
        """Forget how messages ended that are not held any more: do not settle these again."""
        for known in (self._ended, self.lost_messages, self._untold):
            known.clear()

    def outcome_of(self, message: LockedMessage, decision: Decision) -> Outcome:
        """Return the outcome of a message of this batch for which nothing was attempted now."""
        hold = self.of(message)
        if hold is not None:
            status = OutcomeStatus.UNCONFIRMED if hold.in_doubt else OutcomeStatus.SKIPPED
            return outcome_for(message, decision, status, _MAY_BE_DONE if hold.in_doubt else "It was not attempted.")
        if message.lock_token not in self._ended:
            why = "Its lock ended long ago, and sbnotebook has forgotten how: it may have been settled."
            return outcome_for(message, decision, OutcomeStatus.UNCONFIRMED, why)
        self._untold.discard(message.lock_token)
        _, status, why = self._ended[message.lock_token]
        if status in (OutcomeStatus.LOCK_LOST, OutcomeStatus.SKIPPED):
            return outcome_for(message, decision, status, why)
        if status is OutcomeStatus.UNCONFIRMED:
            return outcome_for(message, decision, status, f"{_MAY_BE_DONE} Its lock has ended.")
        return outcome_for(message, decision, OutcomeStatus.ALREADY_SETTLED, "It was settled before in this batch.")

    def _end(self, hold: Hold, status: OutcomeStatus, why: str | None) -> None:
        number, token = hold.message.sequence_number, hold.message.lock_token
        if self._holds.get(number) is hold:
            del self._holds[number]
        self._untold.discard(token)
        self.lost_messages.pop(number, None)
        self._ended.pop(token, None)
        self._ended[token] = (number, status, why)
        if status is OutcomeStatus.LOCK_LOST:
            self._newly_lost.append(number)
            self.lost_messages[number] = hold.message
        if len(self._ended) > _REMEMBERED:  # a batch may be open for weeks
            number, *_ = self._ended.pop(next(iter(self._ended)))
            if (lost := self.lost_messages.get(number)) is not None and lost.lock_token not in self._ended:
                del self.lost_messages[number]
