"""The outcome of one message, and a report of many, kept small: a million successes take a few bytes each."""

from __future__ import annotations

import pickle
import zlib
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from enum import StrEnum
from functools import lru_cache
from importlib import import_module
from itertools import accumulate, islice, starmap
from operator import attrgetter
from typing import Any, Final, Self, overload

from sbnotebook.errors import SettlementFailedError
from sbnotebook.model.address import EntityAddress
from sbnotebook.model.durations import duration_text

# Texts stay objects, which may hold half a character of a broken sender.
_TYPES: Final = {
    "entity": "object",
    "sequence_number": "Int64",
    "message_id": "object",
    "verb": "object",
    "status": "object",
    "condition": "object",
    "description": "object",
    "tracking_id": "object",
    "retryable": "boolean",
}


class OutcomeStatus(StrEnum):
    """The end of one message."""

    SETTLED = "settled"
    """The service confirmed it."""
    LOCK_LOST = "lock lost"
    """The lock had ended before the decision arrived: nothing was done, the message is delivered again."""
    ALREADY_SETTLED = "already settled"
    """The message had been settled before through this batch."""
    NOT_FOUND = "not found"
    """The entity does not hold this message any more."""
    UNCONFIRMED = "unconfirmed"
    """It was asked for and no answer came: it may or may not have happened."""
    FAILED = "failed"
    """The service refused it: nothing was done."""
    SKIPPED = "skipped"
    """It was not attempted."""


@dataclass(frozen=True, slots=True, repr=False)
class Outcome:
    """The result of a decision, or of a send, for one message.

    Args:
        status: how it ended.
        verb: the attempted action: complete, abandon, dead-letter, defer, release, resubmit, send, schedule.
        entity: that held the message, or to which it was sent.
        sequence_number: the message's number; None for a send, whose answer does not carry one; of a
            scheduled message it is what cancels it.
        message_id: the message's identifier, where it has one.
        condition: the AMQP error condition or the SDK's error type, where there was an error.
        description: the service's words, cut at 500 characters.
        tracking_id: what Azure's support asks for, where the service gave one.
        retryable: whether trying again can help; None when that is not known.
    """

    status: OutcomeStatus
    verb: str
    entity: EntityAddress
    sequence_number: int | None = None
    message_id: str | None = None
    condition: str | None = None
    description: str | None = None
    tracking_id: str | None = None
    retryable: bool | None = None

    @property
    def ok(self) -> bool:
        """Tell whether the service confirmed the action."""
        return self.status is OutcomeStatus.SETTLED

    def to_pandas(self) -> Any:
        """Return a pandas frame with one row, and the fields as columns."""
        return frame_of_outcomes((self,))

    def __repr__(self) -> str:
        which = f"message {self.sequence_number}" if self.sequence_number is not None else f"{self.message_id!r}"
        said = ": ".join(filter(None, (self.condition, self.description and repr(self.description))))
        return f"<Outcome {self.verb} {which} of {self.entity}: {self.status}{f' ({said})' if said else ''}>"


def counted(count: int | None) -> str:
    """Return a number of messages in words, also one that is unknown."""
    return "messages" if count is None else f"{count:,} message{'' if count == 1 else 's'}"


def frame_of_outcomes(outcomes: Iterable[Outcome]) -> Any:
    # By name: the model needs the standard library only, and this function alone needs pandas.
    pd: Any = import_module("pandas")
    rows = [[getattr(outcome, name) for name in _TYPES] for outcome in outcomes]
    frame = pd.DataFrame(rows, columns=list(_TYPES), dtype=object)
    return frame.assign(entity=frame["entity"].map(str), status=frame["status"].map(str)).astype(_TYPES)


class FateStatus(StrEnum):
    """The kinds of fates."""

    WAITING = "waiting"
    """It is where it was sent to: active, locked by a consumer, scheduled or deferred."""
    CAME_BACK = "came back"
    """It was dead-lettered again."""
    CONSUMED = "consumed"
    """It has left its destination, and only a consumer can have removed it."""
    UNKNOWN = "unknown"
    """It is not to be found, and more than a consumer can be the reason."""


@dataclass(frozen=True, slots=True)
class Fate:
    """The fate of one clone.

    Args:
        status: the fate.
        clone_id: the message id of the clone.
        entity: where the clone is now; None where it is not to be found.
        sequence_number: its number there.
        reason: why it was dead-lettered again, as the consumer or Service Bus wrote it.
        description: the consumer's description of that reason; for an unknown fate, the reason in a sentence.
    """

    status: FateStatus
    clone_id: str
    entity: EntityAddress | None = None
    sequence_number: int | None = None
    reason: str | None = None
    description: str | None = None


PAST: Final = {
    "abandon": "abandoned",
    "cancel": "cancelled",
    "complete": "completed",
    "dead-letter": "dead-lettered",
    "defer": "deferred",
    "purge": "purged",
    "release": "released",
    "resubmit": "resubmitted",
    "schedule": "scheduled",
    "send": "sent",
    "undo": "sent back",
}
"""Past participles, by verb."""
_CHUNK: Final = 1024
_TIMED: Final = 100  # Outcomes from which on the speed of a run says something
_FIELDS: Final = attrgetter(*(each.name for each in fields(Outcome)))


@dataclass(frozen=True, slots=True)
class _Chunk:
    """Up to 1,024 outcomes in their order, with the figures that are read often."""

    counts: Counter[tuple[str, OutcomeStatus]]
    failures: tuple[Outcome, ...]
    content: tuple[Outcome, ...] | bytes

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Self:
        return cls(
            Counter((outcome.verb, outcome.status) for outcome in outcomes),
            tuple(outcome for outcome in outcomes if not outcome.ok),
            # Most reports are short, and are looked at at once.
            _packed(outcomes) if len(outcomes) == _CHUNK else tuple(outcomes),
        )

    def outcomes(self) -> tuple[Outcome, ...]:
        return _unpacked(self.content) if isinstance(self.content, bytes) else self.content


def _packed(outcomes: Sequence[Outcome]) -> bytes:
    """Return outcomes field by field, compressed: alike values follow each other."""
    # The other levels of compression take several times as long for a few per cent.
    return zlib.compress(pickle.dumps([*zip(*map(_FIELDS, outcomes), strict=True)], pickle.HIGHEST_PROTOCOL), level=1)


@lru_cache(maxsize=1)  # outcomes that are read one by one are usually of the same chunk
def _unpacked(content: bytes) -> tuple[Outcome, ...]:
    columns = pickle.loads(zlib.decompress(content))  # noqa: S301 (our own bytes, which stay in this process)
    return tuple(starmap(Outcome, zip(*columns, strict=True)))


@dataclass(frozen=True, slots=True)
class RunSpeed:
    """The speed of the run that a report is of.

    Args:
        count: messages that were confirmed.
        seconds: from the start of the run to its end.
        in_flight: the most messages that waited for an answer of Service Bus at once.

    Example:
        >>> str(RunSpeed(10_000, 4.0, 210))
        'in 4s, 2,500 messages a second, at most 210 in flight'
    """

    count: int
    seconds: float
    in_flight: int

    def __str__(self) -> str:
        rate = f"{self.count / self.seconds:,.0f} messages a second, " if self.seconds else ""
        return f"in {duration_text(round(self.seconds, 1))}, {rate}at most {self.in_flight:,} in flight"


class Report(Sequence[Outcome]):
    """The outcomes of one plan, in the order of its messages.

    Outcomes of a long report are kept compressed, so that a million successes take about as much memory as their
    message ids do. Those that are not a success are also kept as they are.

    Example:
        >>> report = Report([])
        >>> len(report), report.ok
        (0, True)
    """

    @dataclass(slots=True)
    class Look:
        """True once a user has looked at the report."""

        is_done: bool = False

    def __init__(self, outcomes: Iterable[Outcome] = ()) -> None:
        self.speed: RunSpeed | None = None
        """The speed of the run; None for fewer than 100 messages, and where no action was carried out."""
        self.made = datetime.now(UTC)
        """When this report was made; of a part of a report, when the whole was."""
        self._looks: tuple[Report.Look, ...] = ()
        self._set_chunks(_chunks_of(outcomes))

    def _set_chunks(self, chunks: Iterable[_Chunk]) -> Self:
        self._chunks = tuple(chunks)
        self._ends = tuple(accumulate(chunk.counts.total() for chunk in self._chunks))
        return self

    def timed(self, seconds: float, in_flight: int) -> Self:
        """Return this report with the speed of its run.

        Args:
            seconds: from the start of the run to its end.
            in_flight: the most messages that waited for an answer of Service Bus at once.
        """
        if len(self) >= _TIMED:
            self.speed = RunSpeed(_by_status(self._chunks)[OutcomeStatus.SETTLED], seconds, in_flight)
        return self

    def watch(self) -> Look:
        """Return an object that knows whether anything of this report, but its length, is read from now on."""
        look = Report.Look()
        self._looks = (*(each for each in self._looks if not each.is_done), look)
        return look

    def _look(self) -> tuple[_Chunk, ...]:
        for look in self._looks:
            look.is_done = True
        return self._chunks

    @property
    def ok(self) -> bool:
        """Tell whether every message was confirmed."""
        return self.settled == len(self)

    @property
    def settled(self) -> int:
        """Return the number of confirmed messages."""
        return _by_status(self._look())[OutcomeStatus.SETTLED]

    @property
    def failures(self) -> tuple[Outcome, ...]:
        """Return the outcomes that are not a success, unconfirmed ones included."""
        return tuple(outcome for chunk in self._look() for outcome in chunk.failures)

    @property
    def counts(self) -> dict[OutcomeStatus, int]:
        """Return the number of messages by status, for the statuses that occurred."""
        found = _by_status(self._look())
        return {status: found[status] for status in OutcomeStatus if found[status]}

    def to_pandas(self) -> Any:
        """Return a pandas frame with a row for each outcome, and the fields of :class:`Outcome` as columns.

        Example:
            >>> from sbnotebook.model.address import EntityAddress
            >>> outcome = Outcome(OutcomeStatus.SETTLED, "complete", EntityAddress("orders"), 7)
            >>> Report([outcome]).to_pandas()["status"][0]
            'settled'
        """
        return frame_of_outcomes(self)

    def raise_for_failures(self) -> None:
        """Raise when any message was not confirmed.

        Raises:
            SettlementFailedError: carries the outcomes that are not a success.
        """
        failures = self.failures
        if failures:
            raise SettlementFailedError(f"{self}.", failures)

    def __add__(self, other: Report) -> Report:
        both = Report()._set_chunks((*self._chunks, *other._chunks))
        both.made = max(self.made, other.made)
        both._looks = tuple(look for look in (*self._looks, *other._looks) if not look.is_done)
        return both

    def __len__(self) -> int:
        return self._ends[-1] if self._ends else 0

    def __iter__(self) -> Iterator[Outcome]:
        return (outcome for chunk in self._look() for outcome in chunk.outcomes())

    @overload
    def __getitem__(self, index: int) -> Outcome: ...
    @overload
    def __getitem__(self, index: slice) -> Report: ...
    def __getitem__(self, index: int | slice) -> Outcome | Report:
        positions = range(len(self))[index]  # raises as a sequence does
        if isinstance(positions, int):
            return self._at(positions)
        part = Report(map(self._at, positions))
        part.made = self.made
        return part

    def _at(self, position: int) -> Outcome:
        number = bisect_right(self._ends, position)
        return self._look()[number].outcomes()[position - self._ends[number]]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Report):
            return NotImplemented
        return len(self) == len(other) and all(one == another for one, another in zip(self, other, strict=True))

    __hash__ = None  # pyright: ignore[reportAssignmentType] (as for a list: equal reports are not one thing)

    def __str__(self) -> str:
        if not self:
            return "no messages"
        chunks = self._look()
        verbs = dict.fromkeys(verb for chunk in chunks for verb, _ in chunk.counts)
        said = "; ".join(_said(verb, _by_status(chunks, verb)) for verb in verbs)
        return said[0].upper() + said[1:]

    def __repr__(self) -> str:
        return f"<Report {self}>"


def _by_status(chunks: Iterable[_Chunk], only: str | None = None) -> Counter[OutcomeStatus]:
    """Count the messages of all verbs, or of one."""
    found = Counter[OutcomeStatus]()
    for chunk in chunks:
        for (verb, status), count in chunk.counts.items():
            if only in (None, verb):
                found[status] += count
    return found


def _said(verb: str, counts: Mapping[OutcomeStatus, int]) -> str:
    done, total = counts[OutcomeStatus.SETTLED], sum(counts.values())
    past = PAST.get(verb, "settled")
    if done == total:
        return f"{past} {counted(total)}"
    others = [status for status in OutcomeStatus if counts[status] and status is not OutcomeStatus.SETTLED]
    return f"{past} {done:,} of {counted(total)}: {', '.join(f'{counts[status]:,} {status}' for status in others)}"


def _chunks_of(outcomes: Iterable[Outcome]) -> Iterator[_Chunk]:
    rest = iter(outcomes)
    while part := tuple(islice(rest, _CHUNK)):
        yield _Chunk.of(part)


@dataclass(slots=True)
class Tally:
    """A report in the making: outcomes are noted as they come, and its report has them in the messages' order.

    It takes little memory as long as messages that lie near to each other end at about the same time.

    Example:
        >>> from sbnotebook.model.address import EntityAddress
        >>> sent = Outcome(OutcomeStatus.SETTLED, "send", EntityAddress("orders"))
        >>> tally = Tally()
        >>> tally.note(7, sent)
        >>> tally.report()
        <Report Sent 1 message>
    """

    _open: dict[int, dict[int, Outcome]] = field(default_factory=dict[int, dict[int, Outcome]])
    _full: dict[int, _Chunk] = field(default_factory=dict[int, _Chunk])

    def note(self, index: int, outcome: Outcome) -> None:
        """Keep the outcome of one message; a later outcome replaces an earlier one.

        Args:
            index: the message's position among all, from 0.
            outcome: how it ended.
        """
        number, position = divmod(index, _CHUNK)
        if number not in self._open:
            full = self._full.pop(number, None)
            self._open[number] = dict(enumerate(full.outcomes())) if full else {}
        part = self._open[number]
        part[position] = outcome
        if len(part) == _CHUNK:
            self._full[number] = _in_order(part)
            del self._open[number]

    def note_alike(
        self,
        indexes: Sequence[int],
        status: OutcomeStatus,  # noqa: ARG002 (for those that only count)
        outcomes: Iterable[Outcome],
    ) -> None:
        """Keep the outcomes of messages that ended in the same way.

        Args:
            indexes: the messages' positions among all, ascending.
            status: how they ended.
            outcomes: of each, in the same order; made as they are looked at.
        """
        for index, outcome in zip(indexes, outcomes, strict=True):
            self.note(index, outcome)

    def report(self) -> Report:
        """Return the report so far, in the messages' order, without messages that have no outcome."""
        chunks = self._full | {number: _in_order(part) for number, part in self._open.items()}
        return Report()._set_chunks(chunks[number] for number in sorted(chunks))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]


def _in_order(part: dict[int, Outcome]) -> _Chunk:
    return _Chunk.of([part[position] for position in sorted(part)])
