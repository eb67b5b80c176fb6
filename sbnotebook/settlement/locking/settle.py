"""Settling many messages, pipelined, with an outcome for each, and with local records before and after."""

from __future__ import annotations

import contextlib
import logging
import sqlite3
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar, Final, TypeAlias
from uuid import UUID

import anyio
import anyio.lowlevel
import anyio.to_thread
from azure.servicebus.exceptions import (
    ServiceBusConnectionError,
    ServiceBusError,
    ServiceBusServerBusyError,
    SessionLockLostError,
)

from sbnotebook.errors import ArchiveError, DecisionError
from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    Decision,
    Defer,
    EntityAddress,
    LockedMessage,
    MessageState,
    Outcome,
    OutcomeStatus,
    PeekedMessage,
    ReceivedMessage,
    Release,
    Report,
)
from sbnotebook.model.decision import AUTO
from sbnotebook.model.message import partition_of, time_text
from sbnotebook.settlement.connecting.failures import Failure
from sbnotebook.settlement.engine import GROUP
from sbnotebook.settlement.interrupts import Grace, in_flight
from sbnotebook.settlement.locking.lock_table import HeldMessages, Hold
from sbnotebook.settlement.memory.archive import Archive, ArchivedMessage, ArchiveState, room_for
from sbnotebook.settlement.memory.journal import NamespaceTables
from sbnotebook.settlement.pace import InFlight, Limiter
from sbnotebook.settlement.peek import Peeker
from sbnotebook.settlement.plan import outcome_for
from sbnotebook.settlement.requests import alike, halves, in_parallel
from sbnotebook.settlement.sdk import connections, management, settling
from sbnotebook.settlement.wire.decoding import peeked_from_payload
from sbnotebook.settlement.wire.encoding import payload_of

if TYPE_CHECKING:
    from datetime import datetime

    from azure.servicebus.aio import ServiceBusReceiver

_LOGGER: Final = logging.getLogger(__name__)
_ANNOTATIONS: Final = 300
"""Bytes at most that Service Bus adds to a message, beside the texts of a dead letter."""


Record: TypeAlias = Callable[
    [Decision, Sequence[Hold], Mapping[UUID, Outcome]], contextlib.AbstractAsyncContextManager[None]
]
"""Writes a local record around settlements: on disk before they begin, and again as it ends without an error. By then
the mapping has the outcomes that are known, by lock token; the block itself may have failed."""


@contextlib.asynccontextmanager
async def recording_deferrals(
    tables: NamespaceTables, decision: Decision, holds: Sequence[Hold], outcomes: Mapping[UUID, Outcome]
) -> AsyncGenerator[None]:
    if isinstance(decision, Defer):
        await anyio.to_thread.run_sync(tables.intend, [hold.message for hold in holds])
    yield
    deferred = {h.message.lock_token for h in holds if h.message.state is MessageState.DEFERRED}
    if isinstance(decision, Defer):
        await _note(tables.confirm, (o for o in outcomes.values() if o.ok))
        # Without an answer, the intent stays: the outcome is unknown. Messages deferred before still are.
        active = [o for token, o in outcomes.items() if token not in deferred]
        await _note(tables.forget, (o for o in active if not o.ok and o.status is not OutcomeStatus.UNCONFIRMED))
    elif isinstance(decision, Complete | DeadLetter):
        await _note(tables.forget, (o for token, o in outcomes.items() if o.ok and token in deferred))


async def _note(write: Callable[[list[tuple[EntityAddress, int]]], None], outcomes: Iterable[Outcome]) -> None:
    keys = [(o.entity, o.sequence_number) for o in outcomes if o.sequence_number is not None]
    # Without this record an entry stays as it was, which `compared` finds. That must not hide the outcome.
    if keys:
        try:
            await anyio.to_thread.run_sync(write, keys)
        except (OSError, sqlite3.Error) as error:
            _LOGGER.warning("The outcome of deferring %d messages could not be recorded: %s", len(keys), error)


@contextlib.asynccontextmanager
async def recording_removals(
    archive: Archive,
    namespace: Callable[[], str],
    peeker: Callable[[EntityAddress], Peeker],
    verb: str,
    decision: Decision,
    holds: Sequence[Hold],
    outcomes: Mapping[UUID, Outcome],
) -> AsyncGenerator[None]:
    """Keep messages that are about to be completed, and record which of them are removed; the others stay unknown."""
    if not isinstance(decision, Complete):
        yield
        return
    payloads = await _payloads(holds, peeker)

    def keep() -> list[int]:
        name = namespace()
        return archive.keep([_archived(hold, payloads.get(hold.message.sequence_number), name, verb) for hold in holds])

    rows: list[int] = []
    with anyio.CancelScope(shield=True):  # must not be interrupted between the write and its result
        rows = await anyio.to_thread.run_sync(keep)
    yield
    ends = [(row, outcomes.get(hold.message.lock_token)) for row, hold in zip(rows, holds, strict=True)]
    doubtful = {row for row, hold in zip(rows, holds, strict=True) if hold.in_doubt}
    await note_ends(archive, {row: end for row, end in ends if end is not None or row not in doubtful})


async def note_ends(archive: Archive, ends: Mapping[int, Outcome | None]) -> None:
    """Record how removals ended, by the rows of their messages; None for one that was not attempted."""
    known = {row: end for row, end in ends.items() if end is None or end.status is not OutcomeStatus.UNCONFIRMED}
    states = {row: _state_after(end) for row, end in known.items()}
    # Without this record they count as unconfirmed. That must not hide the outcome.
    with contextlib.suppress(ArchiveError):
        await anyio.to_thread.run_sync(archive.note, states)


def _state_after(end: Outcome | None) -> ArchiveState | None:
    if end is None or end.status in (OutcomeStatus.SKIPPED, OutcomeStatus.FAILED):
        return None
    return ArchiveState.REMOVED if end.ok else ArchiveState.KEPT


async def _payloads(holds: Sequence[Hold], peeker: Callable[[EntityAddress], Peeker]) -> dict[int, bytes]:
    """Return the bytes by sequence number, as they came; peek again where they did not come whole."""
    found = {hold.message.sequence_number: hold.lock.payload for hold in holds if hold.lock.payload is not None}
    missing = [number for hold in holds if (number := hold.message.sequence_number) not in found]
    if missing:
        found |= await peeker(holds[0].message.entity).payloads_of(missing)
    return found


def _archived(hold: Hold, payload: bytes | None, namespace: str, verb: str) -> ArchivedMessage:
    message: ReceivedMessage = hold.message
    if payload is None:
        payload = payload_of(message)  # it is gone already, most likely; this is the message as it was read
    elif not hold.is_read:
        message = replace(peeked_from_payload(payload, message.entity), sequence_number=message.sequence_number)
    return archived_from(message, payload, namespace, verb)


def archived_from(
    message: ReceivedMessage, payload: bytes, namespace: str, verb: str, state: ArchiveState = ArchiveState.REMOVING
) -> ArchivedMessage:
    return ArchivedMessage(
        namespace=namespace,
        entity=message.entity.path,
        sequence_number=message.sequence_number,
        message_id=message.message_id,
        enqueued_time=time_text(message.enqueued_time),
        verb=verb,
        payload=payload,
        state=state,
    )


def room_of(message: ReceivedMessage) -> int:
    """Return how many bytes of the archive a message takes at most, before it is received."""
    try:
        size = len(payload_of(message))
    except Exception:  # noqa: BLE001 (a message that cannot be sent again is kept as it came)
        size = len(message.body)
    texts = message.dead_letter_reason, message.dead_letter_error_description, message.dead_letter_source
    said = sum(len(text.encode(errors="replace")) for text in texts if text)
    return room_for(size + _ANNOTATIONS + said, str(message.entity), message.message_id)


Pair: TypeAlias = tuple[LockedMessage, Decision]

_ROUND_TRIPS: Final = 20
"""Round trips of a group, where a number limits the settlements in flight: then an interrupt can take effect."""
_RELEASED: Final = 2_000
"""Messages that are released together: nothing is recorded of them, and one frame releases up to a hundred."""
_NOT_RELEASED: Final = "The link refused to release it, although its lock was renewed: it comes again when that ends."
_TOKENS: Final = 200
"""Messages that one request settles over the management node, at most. Service Bus documents no limit."""
_TOKENS_WHILE_BUSY: Final = 20
"""The same while Service Bus is busy: it refuses a request as a whole."""
_REQUESTS: Final = 10
"""Requests of a group that wait at once, at most, where halves of a refused one are tried again."""
_PAUSES: Final = (0.5, 2.0, 4.0)
"""Seconds before each further attempt by token where Service Bus answers that it is busy, or breaks off."""
_FRAMES: Final = 4
"""Frames that settle as many messages as may be in flight together."""
_BEFORE_RANGES: Final = 32
"""Answers to single messages before ``"auto"`` completes more than one with a frame: then it is worth the risk."""
_COMPLETED, _TRIED = 25, 2
"""Messages that a frame completes with ``"auto"``, and the first of a batch that completes more than one."""


def group_size(decision: Decision, in_flight: InFlight) -> int:
    if in_flight != AUTO:
        return in_flight * _ROUND_TRIPS
    return _RELEASED if isinstance(decision, Release) else GROUP


class Settling:
    """Decisions of one kind that are carried out on messages of one batch; never raises for one message.

    A lock that was renewed and that the link calls lost is tried once more by its token, over the management node. The
    same is done where Service Bus is busy, or breaks off (``amqp:internal-error``: 'please retry the operation').

    The settlements are pipelined: N messages cost about N / 400 round trips. After one that had no answer
    nothing more is attempted: the connection is most likely lost, and each further attempt would be one more message
    of which it is unknown whether it is settled.
    """

    answer_within: ClassVar[float] = 20.0
    """Seconds that a settlement waits for its answer."""
    released_within: ClassVar[float] = 10.0
    """The same for a release: its outcome may stay unknown, and other consumers wait for the message."""
    unanswered_within: ClassVar[float] = 0.5
    """The same where releases are not confirmed."""
    finish_within: ClassVar[float] = 5.0
    """Seconds that requests in progress are waited for when the caller is cancelled."""

    def __init__(  # noqa: PLR0913 (all but three have a default)
        self,
        receivers: Sequence[ServiceBusReceiver],
        pairs: Sequence[Pair],
        held: HeldMessages,
        *,
        now: Callable[[], datetime],
        max_in_flight: InFlight = AUTO,
        limiter: Limiter | None = None,
        ended: Callable[[LockedMessage, Outcome], object] | None = None,
        peeker: Peeker | None = None,
        opening: anyio.Lock | None = None,
        together: bool = False,
    ) -> None:
        self._receivers = receivers
        self.decision = pairs[0][1]
        if not isinstance(self.decision, Complete | Abandon | DeadLetter | Defer | Release):
            raise DecisionError(f"To {self.decision.verb} is not a settlement: it is planned on the entity.")
        self.outcomes: dict[UUID, Outcome] = {}
        """The outcomes so far, by lock token, also after :meth:`run` was cancelled."""
        self._decisions = {message.lock_token: decision for message, decision in pairs}
        self._held = held
        self._most_in_flight = None if max_in_flight == AUTO else max_in_flight
        self._limiter = limiter or Limiter()
        self._on_end = ended
        self._peeker = peeker
        self._opening = opening or anyio.Lock()
        self._together = together
        self._now = now
        self._lost: list[tuple[Hold, Outcome]] = []
        """Locks that are lost, perhaps because an earlier request has settled their messages."""
        self._flight = in_flight()
        self._asking = anyio.CapacityLimiter(_REQUESTS)
        self.stopped: str | None = None
        """Why nothing more is attempted, in a sentence; None where the connection lasts."""
        self._interrupted: str | None = None

    async def run(self, holds: Sequence[Hold]) -> None:
        """Settle some messages, and add their outcomes to those that are known.

        If the caller is cancelled, this begins no more settlements and waits five seconds for those in progress. Those
        without an answer by then stay unconfirmed.
        """
        grace = Grace(self._interrupt)
        async with grace.watching():
            try:
                with grace.period(self.finish_within):
                    await self._settle(holds)
            finally:
                for hold in holds:
                    hold.was_in_doubt, hold.asked_at = hold.in_doubt, None
            await anyio.lowlevel.checkpoint_if_cancelled()

    async def _settle(self, holds: Sequence[Hold]) -> None:
        *_, last = receivers = [*self._receivers]
        for receiver in receivers:
            await connections.catch_up(receiver)
        await self._open(last, holds)
        if self._together and isinstance(self.decision, Complete):
            await self._settle_by_tokens(last, self._left(holds), or_on_link=True)
        for receiver in receivers:
            tags = settling.on_link(receiver)
            here = [hold for hold in self._left(holds) if hold.lock.delivery_tag in tags]
            try:
                if here:
                    await self._settle_on_link(receiver, here)
            finally:
                self._flight.ended(sum(hold.asked_at is not None for hold in here))  # where it was interrupted
        await self._settle_by_tokens(last, self._left(holds))
        await self._look_at_lost()

    def _left(self, holds: Sequence[Hold]) -> list[Hold]:
        return [hold for hold in holds if hold.message.lock_token not in self.outcomes]

    def _interrupt(self) -> None:
        self._interrupted = "It was interrupted before."

    def _settle_on_link(self, receiver: ServiceBusReceiver, holds: Sequence[Hold]) -> Awaitable[None]:
        sizes, in_flight = self._sizes(len(holds)), self._most_in_flight
        parts = [holds[part] for part in settling.ranges([hold.lock for hold in holds], *sizes)]
        if in_flight is not None and not isinstance(self.decision, Release):  # a given number counts messages
            in_flight = max(1, in_flight // max(map(len, parts)))

        def begin(index: int) -> bool:
            if self.stopped or self._interrupted or (len(parts[index]) > 1 and not self._may_send_range()):
                return False
            now = self._now()
            for hold in parts[index]:
                hold.asked_at = now
            self._flight.began(len(parts[index]))
            return True

        def end(index: int, errors: list[Exception | None]) -> None:
            self._flight.ended(len(parts[index]))
            is_silent = self._is_silent_range(receiver, errors)
            for hold, error in zip(parts[index], errors, strict=True):
                failure = None if error is None or isinstance(self.decision, Release) else Failure.of(error)
                if failure is not None and (is_silent or _is_refused_by_link(hold, failure) or failure.may_pass):
                    _try_again([hold], may_be_done=is_silent or failure.is_broken_off)  # by its token
                else:
                    self._note(hold, self._ended(hold, error, receiver))

        frames = [([hold.lock for hold in part], self._decisions[part[0].message.lock_token]) for part in parts]
        return settling.LinkSettling(receiver, self._limiter).run(
            frames, answer_within=self._answer_within, began=begin, ended=end, in_flight=in_flight
        )

    def _answer_within(self) -> float:
        if not isinstance(self.decision, Release):
            return self.answer_within
        return self.released_within if self._held.confirms_releases else self.unanswered_within

    def _may_send_range(self) -> bool:
        is_for_ranges = isinstance(self.decision, Complete | Defer) and self._held.confirms_ranges is not False
        return is_for_ranges or isinstance(self.decision, Release)

    def _is_silent_range(self, receiver: ServiceBusReceiver, errors: Sequence[Exception | None]) -> bool:
        """Tell whether several messages were settled by one frame that a link does not confirm, and remember it.

        Microsoft's client for .NET completes ranges of deliveries, and waits for their confirmation: azure-amqp,
        AmqpSession.cs, CanBatch. No source says that Azure confirms the deferral of a range, nor a release.
        """
        is_silent = all(isinstance(error, ServiceBusConnectionError) for error in errors)
        if not is_silent or not connections.is_open(receiver):
            if not is_silent and len(errors) > 1 and self._held.confirms_ranges is None:
                self._held.confirms_ranges = True
            return False
        if isinstance(self.decision, Release):
            self._held.confirms_releases = False
        elif len(errors) > 1:
            self._held.confirms_ranges = False
            return True
        return False

    async def _settle_by_tokens(
        self, receiver: ServiceBusReceiver, holds: Sequence[Hold], *, or_on_link: bool = False
    ) -> None:
        """Settle over the management node, many messages in a request. If it is refused, each half is tried again.

        With ``or_on_link``, requests that are refused for another reason than a lock are left to the link.

        No source says whether a request that is refused for one lost lock has settled the other messages: the second
        attempt may find the lock of a message lost that the first has settled.
        """

        async def settle(part: Sequence[Hold], pauses: Sequence[float] = _PAUSES) -> None:
            async with self._asking:
                await self._limiter.wait(len(part))
                skipped = [self._skipped(hold) for hold in part]
                error = None if all(skipped) else await self._attempt_by_tokens(receiver, part)
            failure = None if error is None else Failure.of(error)
            if failure is not None and pauses and failure.may_pass:
                _try_again(part, may_be_done=failure.is_broken_off)
                await anyio.sleep(pauses[0])
                few = [part[start : start + self._most] for start in range(0, len(part), self._most)]
                await in_parallel(lambda each: settle(each, pauses[1:]), few, len(few))
            elif failure is not None and len(part) > 1 and (failure.is_lock_lost or failure.is_too_large):
                _try_again(part, may_be_done=failure.is_lock_lost)
                await in_parallel(lambda half: settle(half, pauses), halves(part), 2)
            elif or_on_link and failure is not None and failure.is_refusal:
                _try_again(part, may_be_done=False)
            else:
                for hold, skip in zip(part, skipped, strict=True):
                    self._note(hold, skip or self._ended(hold, error, receiver))

        for part in self._requests(holds):
            await settle(part)

    def _requests(self, holds: Sequence[Hold]) -> list[Sequence[Hold]]:
        """Return what each request settles: messages of one partition, for the same reason.

        Messages that may be settled already are apart: a refusal because of them says nothing about the others.
        """

        def key(hold: Hold) -> object:
            message = hold.message
            return self._decisions[message.lock_token], partition_of(message.sequence_number), hold.in_doubt

        return alike(holds, key, self._most)

    @property
    def _most(self) -> int:
        most = _TOKENS_WHILE_BUSY if self._limiter.is_limited else _TOKENS
        return most if self._most_in_flight is None else min(self._most_in_flight, most)

    async def _look_at_lost(self) -> None:
        """Look for messages whose locks are lost, and which an earlier request may have settled: a peek may show it."""
        lost, self._lost = self._lost, []
        there: Mapping[int, PeekedMessage] = {}
        if lost and self._peeker is not None and not isinstance(self.decision, Abandon):
            with contextlib.suppress(ServiceBusError, OSError):  # then they stay unconfirmed
                there = await self._peeker.messages_of((hold.message.sequence_number for hold, _ in lost), ())
        for hold, outcome in lost:
            known = outcome
            if (found := there.get(hold.message.sequence_number)) is not None:
                hold.was_in_doubt = False
                if isinstance(self.decision, Defer) and found.state is MessageState.DEFERRED:
                    known = outcome_for(hold.message, self.decision, OutcomeStatus.SETTLED)
            self._note_for_good(hold, known)

    def _note(self, hold: Hold, outcome: Outcome) -> None:
        if hold.was_in_doubt and outcome.status is OutcomeStatus.LOCK_LOST:
            self.outcomes[hold.message.lock_token] = self._held.note(hold, outcome)
            self._lost.append((hold, outcome))
        else:
            self._note_for_good(hold, outcome)

    def _note_for_good(self, hold: Hold, outcome: Outcome) -> None:
        self.outcomes[hold.message.lock_token] = known = self._held.note(hold, outcome)
        if self._on_end is not None:
            self._on_end(hold.message, known)

    def _sizes(self, count: int) -> tuple[int, int]:
        """Return how many of some messages the first frame settles at most, and each later frame.

        Many are released and deferred. With ``"auto"``, many are completed once the service has answered to single
        messages, and confirmed a frame of two.
        """
        if not self._may_send_range():
            return 1, 1
        if isinstance(self.decision, Release) or (isinstance(self.decision, Defer) and self._most_in_flight is None):
            return count, count
        if self._most_in_flight is not None:
            most = max(1, self._most_in_flight // _FRAMES)
            return most, most
        if self._limiter.answers < _BEFORE_RANGES or self._limiter.is_limited:
            return 1, 1
        return (_COMPLETED, _COMPLETED) if self._held.confirms_ranges else (_TRIED, 1)

    def report(self, messages: Iterable[LockedMessage]) -> Report:
        known, decision = self.outcomes, self.decision
        return Report(known.get(each.lock_token) or self._held.outcome_of(each, decision) for each in messages)

    async def _open(self, receiver: ServiceBusReceiver, holds: Sequence[Hold]) -> None:
        # Here and not in the tasks, which would all open it at the same time. Another link cannot release.
        if self.stopped is None and not isinstance(self.decision, Release) and not connections.is_open(receiver):
            try:
                async with self._opening:  # a task that receives may be opening it just now
                    await connections.reopen(receiver)
            except SessionLockLostError as error:  # only these are lost with it: others of the run continue
                for hold in holds:
                    self._note(hold, self._ended(hold, error, receiver))
            except (ServiceBusError, OSError) as error:
                self.stopped = f"Not attempted: there is no connection ({type(error).__name__})."

    def _skipped(self, hold: Hold) -> Outcome | None:
        reason = self.stopped or self._interrupted
        if isinstance(self.decision, Release):
            reason = reason or "Not attempted: the link that it came on is gone; it comes again when its lock ends."
        return outcome_for(hold.message, self.decision, OutcomeStatus.SKIPPED, reason) if reason else None

    async def _attempt_by_tokens(self, receiver: ServiceBusReceiver, holds: Sequence[Hold]) -> Exception | None:
        for hold in holds:
            hold.asked_at = self._now()
        tokens = [hold.message.lock_token for hold in holds]
        self._flight.began(len(tokens))
        try:
            decision = self._decisions[tokens[0]]
            await management.settle_by_tokens(receiver, tokens, decision, answer_within=self.answer_within)
        except Exception as error:  # noqa: BLE001 (each message has an outcome for any error of the SDK)
            if isinstance(error, ServiceBusServerBusyError):
                self._limiter.refused()
            return error
        finally:
            self._flight.ended(len(tokens))
        self._limiter.accepted(len(tokens))
        return None

    def _ended(self, hold: Hold, error: Exception | None, receiver: ServiceBusReceiver) -> Outcome:
        if error is None:
            decision = self._decisions[hold.message.lock_token]
            note = decision.shortened if isinstance(decision, DeadLetter) else None
            return outcome_for(hold.message, decision, OutcomeStatus.SETTLED, note)
        failure = Failure.of(error)
        outcome = failure.outcome(self.decision.verb, hold.message)
        if isinstance(self.decision, Release) and _is_refused_by_link(hold, failure):
            return replace(outcome, status=OutcomeStatus.FAILED, description=f"{_NOT_RELEASED} {outcome.description}")
        # An unconfirmed release does no harm, and a message that is not given back counts as a delivery.
        if outcome.status is OutcomeStatus.UNCONFIRMED and not (
            isinstance(self.decision, Release) and connections.is_open(receiver)
        ):
            self.stopped = "Not attempted: a settlement before was not confirmed, and the connection may be lost."
        return outcome


def _try_again(holds: Iterable[Hold], *, may_be_done: bool) -> None:
    """Note that a settlement is tried in another way, after one that may have been done or was not."""
    for hold in holds:
        hold.was_in_doubt, hold.asked_at = hold.was_in_doubt or may_be_done, None


def _is_refused_by_link(hold: Hold, failure: Failure) -> bool:
    """Return whether a link calls a lock lost that was renewed, and is still held as far as is known.

    Azure was seen to refuse settlements over the link after 12 to 20 minutes of renewal. Source: azure-service-bus,
    issues 684 and 685; azure-sdk-for-net, issues 28025 and 40339.
    """
    return hold.renewals > 0 and failure.is_lock_lost
