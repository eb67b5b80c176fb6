"""Plans: messages and a decision, with the costs, to be looked at before they are carried out.

Source of the operations: Azure, "Service Bus pricing", FAQ "How is the operations meter calculated for queues and
topics?": an operation is any API interaction. To send or receive a message counts one for each 64 KB or part of it. To
complete, abandon or defer it counts one more, and each delivery counts by itself. To renew a lock counts, too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import accumulate
from numbers import Integral, Real
from typing import Final, NamedTuple, TypeAlias, cast

from sbnotebook.errors import ConfigurationError, DecisionError
from sbnotebook.model import (
    Abandon,
    CancelScheduled,
    Complete,
    DeadLetter,
    Decision,
    Defer,
    EntityAddress,
    LockedMessage,
    Message,
    MessageState,
    Outcome,
    OutcomeStatus,
    ReceivedMessage,
    Report,
    Resubmit,
    Send,
    SubQueue,
    Undo,
)
from sbnotebook.model.decision import AUTO, MAX_TEXT
from sbnotebook.model.durations import duration_text
from sbnotebook.model.edits import Edit, EditChange, edit_changes, effect_of
from sbnotebook.model.report import counted
from sbnotebook.settlement.interrupts import Watch
from sbnotebook.settlement.pace import InFlight, Pause, check_in_flight, transfers_in_flight

ANOTHER: Final = "Not attempted: another message has its number now, because the entity was made anew. Peek again."

Progress = Callable[[int], None]
"""Called with the number of messages that were finished since the last call."""


def check_decision(decision: Decision, entity: EntityAddress, *, deferred: bool = False) -> None:
    """Refuse a decision that the service would refuse for every message.

    Args:
        decision: the action on the messages.
        entity: that holds them.
        deferred: whether they are deferred messages, which can be neither deferred nor released.

    Raises:
        DecisionError: says what to do instead.
    """
    if deferred and not isinstance(decision, Complete | DeadLetter | Abandon):
        raise DecisionError(
            f"To {decision.verb} deferred messages is not possible: complete, dead-letter, abandon or resubmit them."
        )
    if deferred and isinstance(decision, Abandon) and decision.delay:
        raise DecisionError("An abandoned message that was deferred stays deferred: a delay changes nothing.")
    if not isinstance(cast("object", decision), Decision):
        raise DecisionError("A decision is one of sbnotebook's own, such as Complete() or DeadLetter(reason).")
    if isinstance(decision, DeadLetter) and entity.sub_queue is SubQueue.DEAD_LETTER:
        raise DecisionError(
            f"{entity} is a dead-letter queue already: complete, resubmit or defer its messages instead."
        )
    wakes_here = isinstance(decision, Defer) and decision.wake_after is not None and decision.wake_to is None
    if wakes_here and entity != entity.sends_to:
        raise DecisionError(
            f"A wake-up message cannot be sent to {entity} itself, and in {entity.sends_to} others would get it: "
            "name a queue for it, wake_to=…"
        )


def moment_of(given: datetime | timedelta | None) -> datetime | None:
    """Return a time, or that of a duration back from now."""
    if isinstance(given, timedelta):
        return datetime.now(UTC) - given
    return given.astimezone() if given is not None else None


def check_wait(seconds: float) -> None:
    """Refuse a wait in which no message can come: the answer of Service Bus takes its time."""
    if not 0 < seconds < float("inf"):
        raise ConfigurationError(f"max_wait is above 0 seconds, such as 5; {seconds} is not.")


def outcome_for(
    message: ReceivedMessage, decision: Decision, status: OutcomeStatus, description: str | None = None
) -> Outcome:
    """Return the outcome of one message without an error of the service."""
    return Outcome(
        status=status,
        verb=decision.verb,
        entity=message.entity,
        sequence_number=message.sequence_number,
        message_id=message.message_id,
        description=description,
    )


def is_same(message: ReceivedMessage, chosen: ReceivedMessage) -> bool:
    """Tell whether a message with the number of a chosen message is that message.

    An entity that was made anew gives the same numbers to others, at other times. Where a time is not known, such as
    where only a number was given, the number decides.
    """
    times = message.enqueued_time, chosen.enqueued_time
    return None in times or times[0] == times[1]


_BILLED: Final = 64 * 1024
"""Bytes of one operation."""
_LEAST: Final = 100
"""Messages from which on the cost is worth a sentence, and the speed of a run says something about the next one."""

_REQUESTS: Final = {
    CancelScheduled.verb: (0, 1),
    Resubmit.verb: (2, 1),
    Send.verb: (1, 0),
    Undo.verb: (1, 0),
}
"""The transfers and the settlements that each message of a verb takes; another verb takes one of each."""


_APPLIED: Final = "This plan was applied already, and a plan is applied once: make a new one."
_QUESTIONS: Final = {Send.verb: ("Send", "to"), Undo.verb: ("Send back", "of")}
"""How a question names an action, and which word is before the entity; for others the verb, and 'of'."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How fast a plan is carried out.

    Args:
        max_in_flight: transfers or settlements that wait for their answer at once; ``"auto"`` for as many as the
            network bears: see :class:`sbnotebook.settlement.pace.Limiter`.
        rate: messages a second at most, None for no limit.
        pause: holds it up while it is on, between groups of up to 200 messages, or 500 of an undo, and between
            transfers of a send. No group is left half done.
        ramp: batches of a resubmit that go first and are watched; None for none.
        seen: told of the batches of a ramp after each look at the clones.

    Raises:
        ConfigurationError: a limit that cannot be.
    """

    max_in_flight: InFlight = AUTO
    rate: float | None = None
    pause: Pause | None = None
    ramp: Ramp | None = None
    seen: StepListener | None = None

    def __post_init__(self) -> None:
        check_in_flight(self.max_in_flight)
        if self.rate is not None and not (isinstance(self.rate, Real) and self.rate > 0):
            raise ConfigurationError("rate is a number above 0, of messages a second.")

    @property
    def transfers(self) -> int:
        """Return how many transfers may wait for their confirmation at once, at first with ``"auto"``."""
        return transfers_in_flight(self.max_in_flight)


class RampStep(NamedTuple):
    """One batch of a ramp.

    Args:
        sent: clones that were sent.
        consumed: those that a consumer has removed.
        back: those that were dead-lettered again; the others wait, or their fate is unknown.

    Example:
        >>> str(RampStep(20, 18, 2))
        '20 sent, 18 consumed, 2 back'
    """

    sent: int
    consumed: int = 0
    back: int = 0

    def __str__(self) -> str:
        back = f", {self.back:,} back" if self.back else ""
        return f"{self.sent:,} sent, {self.consumed:,} consumed{back}"


StepListener: TypeAlias = "Callable[[Sequence[RampStep]], object]"
"""Is given the batches of a ramp until now."""


@dataclass(frozen=True, slots=True)
class Ramp:
    """Growing batches of a resubmit, each of which is watched before the next one goes.

    Args:
        batches: the sizes of the batches; the other messages follow the last one.
        watch: for how long at most the clones of a batch are watched.
        stop_at: the share of a batch from 0 to 1. When it is dead-lettered again, the others stay; 0 for any message.

    Raises:
        ConfigurationError: a number that cannot be.

    Example:
        >>> Ramp((1, 5, 20, 100), stop_at=0.02).stops(RampStep(20, 18, 2))
        True
    """

    batches: tuple[int, ...] = (10,)
    watch: timedelta = timedelta(minutes=10)
    stop_at: float = 0.0

    def __post_init__(self) -> None:
        if not self.batches or not all(isinstance(each, Integral) and each > 0 for each in self.batches):
            raise ConfigurationError('A ramp is the sizes of batches from 1, such as "1,5,20,100" or 10.')
        if not 0 <= self.stop_at <= 1:  # not a number, either
            raise ConfigurationError("stop_at is a share from 0 to 1, such as 0.02.")
        if self.watch <= timedelta(0):
            raise ConfigurationError('watch is longer than nothing, such as "10m".')

    def stops(self, step: RampStep) -> bool:
        """Return whether too many of a batch came back."""
        return step.back > 0 and step.back >= self.stop_at * step.sent

    def sentence(self, total: int) -> str:
        """Return what happens to a plan of so many messages, as sentences.

        Example:
            >>> Ramp((2,), timedelta(minutes=5)).sentence(9)
            'Ramp: 2 first, watched for 5m at most. The other 7 follow if none of these comes back.'
            >>> Ramp((1, 5), timedelta(minutes=5), 0.02).sentence(9)
            'Ramp: 1, then 5, each watched for 5m at most. The other 3 follow if less than 2% of each batch come back.'
            >>> Ramp((1, 5), timedelta(seconds=9)).sentence(3)
            'Ramp: 1, then 2, each watched for 9s at most. The next ones follow if none of each batch comes back.'
        """
        watch, is_one = duration_text(self.watch), len(self.batches) == 1
        if is_one and self.batches[0] >= total:
            return f"Ramp: all {total:,}, watched for {watch} at most."
        before = accumulate(self.batches, initial=0)
        sizes = ", then ".join(
            f"{min(size, total - sent):,}" for size, sent in zip(self.batches, before, strict=False) if sent < total
        )
        first = f"Ramp: {sizes} first, watched" if is_one else f"Ramp: {sizes}, each watched"
        whole = "these" if is_one else "each batch"
        limit = f"less than {self.stop_at * 100:g}% of {whole} come" if self.stop_at else f"none of {whole} comes"
        others = total - sum(self.batches)
        next_ones = f"The other {others:,} follow" if others > 0 else "The next ones follow"
        return f"{first} for {watch} at most. {next_ones} if {limit} back."


@dataclass(frozen=True, slots=True)
class Preview:
    """What a plan would do.

    Args:
        sentence: the plan in words and numbers.
        messages: the first messages of it.
        changes: what the edit changes in these.
    """

    sentence: str
    messages: tuple[Message, ...]
    changes: tuple[EditChange, ...] = ()

    def __str__(self) -> str:
        lines = [self.sentence]
        lines += [f"  #{c.sequence_number} {c.field}: {c.before!r} -> {c.after!r}" for c in self.changes]
        return "\n".join(lines)


CarryOut: TypeAlias = "Callable[[Plan, Limits, Progress | None], Awaitable[Report]]"
"""Carries a plan out; the part of the library that made the plan gives it."""


class ApplyOnce:
    """Lets a plan be applied once, by any thread."""

    def __init__(self) -> None:
        self._begun = threading.Lock()

    def check(self) -> None:
        """Raise a DecisionError if the plan was applied."""
        if self._begun.locked():
            raise DecisionError(_APPLIED)

    def begin(self) -> None:
        """Note that the plan is applied; raise a DecisionError if it was applied before."""
        if not self._begun.acquire(blocking=False):
            raise DecisionError(_APPLIED)

    @contextmanager
    def applying(self) -> Generator[None]:
        """Apply the plan in a block; if the block fails before it did anything, the plan can be applied again."""
        self.begin()
        watch = Watch()
        try:
            with watch:
                yield
        except BaseException:
            if all(outcome.status is OutcomeStatus.SKIPPED for outcome in watch.report):
                self._begun.release()
            raise


@dataclass(frozen=True, slots=True)
class Plan:
    """Messages and a decision on them. Making a plan does nothing; applying it carries it out, once.

    Args:
        entity: that holds the messages.
        decision: the action.
        messages: with which messages, each once.
        edit: changes what a resubmit sends, None for nothing.
        described: the preview of all its messages; None where the decision says all.
        more: sentences of the preview that follow the first.
        total: how many messages its progress counts, None where it counts those that are decided on.
        speeds: the messages a second of the last run of each action, which plans of a namespace share; None for a
            plan without an estimate of its time and operations.
        others: messages that are locked on the way, and released.
        sends_clones: whether it may be carried out with a ramp, which watches the clones.
        options: how it is carried out where that is not the usual way, by the names of the arguments of its verb.
        once: shared with the copies of the plan.
        on: the words with which its sentences name the namespace, such as `` on shop``; none for an emulator.
    """

    entity: EntityAddress
    decision: Decision
    messages: tuple[ReceivedMessage, ...]
    carry_out: CarryOut = field(repr=False)
    edit: Edit | None = field(default=None, repr=False)
    described: Preview | None = field(default=None, repr=False)
    more: str = field(default="", repr=False)
    total: int | None = None
    speeds: dict[str, float] | None = field(default=None, repr=False, compare=False)
    others: int = field(default=0, repr=False, compare=False)
    sends_clones: bool = field(default=False, repr=False, compare=False)
    options: Mapping[str, bool | int] = field(default_factory=dict[str, bool | int], repr=False)
    once: ApplyOnce = field(default_factory=ApplyOnce, repr=False, compare=False)
    on: str = field(default="", repr=False, compare=False)

    def __post_init__(self) -> None:
        # Each delivery of a message is another one, and an entity that was made anew gives the same numbers to others.
        once = {
            (m.entity, m.sequence_number, m.enqueued_time, getattr(m, "lock_token", None)): m for m in self.messages
        }
        object.__setattr__(self, "messages", tuple(once.values()))

    @property
    def question(self) -> str:
        """Return the question whether to carry the plan out: its action, count, entity and namespace."""
        verb, direction = _QUESTIONS.get(self.decision.verb, (self.decision.verb.capitalize(), "of"))
        others = len({message.entity for message in self.messages} - {self.entity})
        more = f" and {others:,} other entit{'ies' if others > 1 else 'y'}" if others else ""
        what = counted(len(self.messages) if self.messages else self.total)
        to = _destination(self.decision, self.entity)
        return f"{verb} {what} {direction} {self.entity}{more}{self.on}{to}?"

    def preview(self, rows: int = 5) -> Preview:
        """Return what applying would do, with the first messages and their changes."""
        preview = self._first(rows)
        said = [preview.sentence, self.more]
        if self.speeds is not None and (self.messages or self.total):
            said.append(self._estimate(self.speeds.get(self._kind)))
            # A plan to send knows only its first messages.
            messages, count = (self.messages, None) if self.messages else (preview.messages, self.total)
            verb, others, locked = self.decision.verb, self.others, self._is_locked
            said.append(self.operations(verb, messages, count, others=others, locked=locked))
        return replace(preview, sentence=" ".join(filter(None, said)))

    @staticmethod
    def operations(
        verb: str, messages: Sequence[Message] = (), count: int | None = None, *, others: int = 0, locked: bool = False
    ) -> str:
        """Return the operations of a plan, as a sentence; an empty text for a plan of few messages.

        Locks that are renewed, and attempts that are repeated, cost more. The messages are all or the first of
        ``count``, and ``locked`` ones are not received any more. The ``others`` are locked on the way, and released.

        Example:
            >>> Plan.operations("complete", [Message(body=b"1")] * 4_000)
            'It costs a Standard namespace about 8,000 operations.'
        """
        count = len(messages) if count is None else count
        if count + others < _LEAST:
            return ""
        transfers, settlements = _REQUESTS.get(verb, (1, 1))
        parts = sum(max(1, -(-len(message.body) // _BILLED)) for message in messages)
        moved = parts / len(messages) * count if messages else count
        operations = (0 if locked else round(moved * transfers)) + count * settlements + 2 * others
        return f"It costs a Standard namespace about {operations:,} operations."

    def _estimate(self, speed: float | None) -> str:
        if speed is None or not self._count:
            return ""
        seconds = self._count / speed
        takes = "less than a second" if seconds < 1 else f"about {duration_text(seconds, rounded=True)}"
        return (
            f"This takes {takes} at {speed:,.0f} messages a second, the speed of the last {self._kind} over this "
            "connection, or longer with a rate."
        )

    def _first(self, rows: int) -> Preview:
        if (whole := self.described) is not None:
            return Preview(whole.sentence, whole.messages[:rows], whole.changes[:rows])
        shown = self.messages[:rows]
        changes = tuple(change for message in shown for change in edit_changes(message, self.edit)) if self.edit else ()
        effect = effect_of(self.edit, self.messages, shown, changes) if self.edit else ""
        return Preview(self._sentence() + effect, shown, changes)

    async def apply(
        self,
        limits: Limits | None = None,
        progress: Progress | None = None,
    ) -> Report:
        """Carry the plan out, all at once or with a ramp.

        Args:
            limits: how fast, and with which ramp.
            progress: told of every message that is finished.

        Returns:
            An outcome for each of the messages: SKIPPED for those that did not follow a ramp.

        Raises:
            DecisionError: the plan was applied already, or sends no clones that could be watched; nothing was done.
        """
        limits, start = limits or Limits(), time.monotonic()
        if limits.ramp is not None:
            self.check_ramp()
        with self.once.applying():
            report = await self.carry_out(self, limits, progress)
        self.note(report, limits, time.monotonic() - start)
        return report

    def check_ramp(self) -> None:
        """Raise a DecisionError if it sends no clones, which a ramp watches."""
        if not self.sends_clones:
            raise DecisionError(
                f"A ramp goes with a resubmit, whose clones can be watched; apply this {self.decision.verb} without."
            )

    def note(self, report: Report, limits: Limits, seconds: float) -> None:
        """Remember the speed of a run for later previews.

        A run with a rate, a ramp or a used pause says nothing, nor does one with failures or of few messages.
        """
        is_free = limits.rate is None and limits.ramp is None and not (limits.pause and limits.pause.was_used)
        count = self._count or len(report)
        if self.speeds is not None and is_free and report.settled == len(report) and count >= _LEAST and seconds > 0:
            self.speeds[self._kind] = count / seconds

    @property
    def _kind(self) -> str:
        """Return what the time of a plan depends on: locked messages need not be received first."""
        return f"{self.decision.verb} of locked messages" if self._is_locked else self.decision.verb

    @property
    def _is_locked(self) -> bool:
        return any(isinstance(message, LockedMessage) for message in self.messages[:1])

    @property
    def _count(self) -> int:
        return len(self.messages) if self.total is None else self.total

    def _sentence(self) -> str:
        what = f"{self.decision.verb} {counted(len(self.messages))} of {self.entity}{self.on}"
        edited = ", edited" if self.edit else ""
        return f"{what}{_details(self.decision, self.entity)}{edited}.{self._notes()}"

    def _notes(self) -> str:
        if not isinstance(self.decision, Resubmit):
            return ""
        limit = self.decision.limit_at(self.entity)
        often = sum(message.resubmit_count >= limit for message in self.messages) if limit is not None else 0
        ends = "stay" if self.entity.sub_queue else "are dead-lettered"
        deferred = sum(message.state is MessageState.DEFERRED for message in self.messages)
        notes = {
            f" {often:,} of them were resubmitted {limit} times or more, and {ends}.": often,
            f" {deferred:,} of them {'is' if deferred == 1 else 'are'} deferred: if its clone fails, a deferred "
            "message stays locked until its lock ends, and its delivery count may rise.": deferred,
        }
        return "".join(note for note, is_said in notes.items() if is_said)


def _destination(decision: Decision, entity: EntityAddress) -> str:
    match decision:
        case Resubmit(to=to, to_host=host) if to and (host or to != entity.sends_to):
            return f" to {to}{f' in {host}' if host else ''}"
        case Undo(to=to) if to:
            return f" to {to}"
        case _:
            return ""


def _details(decision: Decision, entity: EntityAddress) -> str:
    match decision:
        case Resubmit():
            return _details_of_resubmit(decision, entity)
        case DeadLetter(reason, description):
            named = {"reason": reason, "description": description}
            said = " and ".join(f"the {name} {text!r}" for name, text in named.items() if text)
            cut = f", which sbnotebook shortened to {MAX_TEXT:,} characters" if decision.shortened else ""
            return f" with {said}{cut}" if said else ""
        case Abandon(delay):
            later = f", {duration_text(delay)} later" if delay else ""
            return f"{later}; this raises their delivery counts"
        case Defer(wake_after, wake_to) if wake_after is not None:
            later = duration_text(wake_after)
            return f", and send a wake-up message for each to {wake_to or entity}, active {later} later"
        case _:
            return ""


def _details_of_resubmit(decision: Resubmit, entity: EntityAddress) -> str:
    to, to_host, own = decision.to, decision.to_host, entity.sends_to
    beyond = "left here" if entity.sub_queue else "dead-lettered"
    stored = f", which {own} stores and forwards later" if to not in (None, own) else ""
    parts = {
        f" to {to}": to,
        f" in {to_host}": to_host,
        # To resubmit from a subscription looks like to put back, and is more.
        " (which copies them into each subscription whose rules take them)": (
            entity.subscription and to == own and not to_host
        ),
        f", {duration_text(decision.delay or 0)} later": decision.delay,
        f", at most {decision.max_resubmits} times each (then {beyond})": isinstance(decision.max_resubmits, int),
        f", each in one transaction{stored} (experimental)": decision.atomic,
    }
    return "".join(text for text, is_said in parts.items() if is_said)
