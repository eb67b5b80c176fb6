"""Micro-batches of an entity with sessions: each session in order, and each message exactly once.

The steps are those of :mod:`sbnotebook.spark.consume_stream`, with one difference. Only the receiver that holds a
session can lock its messages. So ``latestOffset`` *peeks* the first active messages and locks nothing. ``partitions``
then takes one session after the other, defers its messages in their order, and lets it go. To remove messages, it takes
the session again. Source: Microsoft's documentation, "Message sessions".

Why a session keeps its order: an offset has the first messages of each session. A micro-batch is planned when, in each
session, the deferred messages of the offset come before all others of the offset. If the process ends before, tasks
have read nothing, and the next process defers the messages in the gaps first. A task reads whole sessions, by their
numbers.
"""

from __future__ import annotations

import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final

import anyio

from sbnotebook.amqp.sections import PROPERTIES
from sbnotebook.errors import ConfigurationError, SbNotebookError
from sbnotebook.model import (
    Complete,
    Defer,
    LockedMessage,
    MessageState,
    OutcomeStatus,
    PeekedMessage,
    ReceivedMessage,
    Report,
)
from sbnotebook.model.message import partition_of
from sbnotebook.settlement import OUTAGE_PATIENCE, AsyncEntity, SequenceNumbers, SessionBatch, in_parallel
from sbnotebook.spark.batch_locking import dead_letters_deferred
from sbnotebook.spark.peek_reader import pages_up_to, peeked
from sbnotebook.spark.scrubbing import in_words

_LOG: Final = logging.getLogger(__name__)
_AT_ONCE: Final = 8
"""Sessions that are taken at once."""
_IN_FLIGHT: Final = 100
_STEP: Final = 1000
_WAIT: Final = 1.0
"""Seconds to wait for the messages of a session."""
_PAUSE, _SET_ASIDE = 0.5, 3.0
"""Seconds between two tries, and to leave out a session that another receiver holds."""
_TAKE_WITHIN: Final = 3.0
"""Seconds to wait for a session that another receiver holds."""
_TRIES: Final = 3
"""Times that a stream which ends with the messages of its beginning tries to take a session."""
_TAKEN_WITHIN: Final = 360.0
"""Seconds after which a session that must be taken is given up: the lock of a dead process lasts five minutes."""
_LOOKS: Final = 2
"""Looks that find no deferred messages until they count as removed: an empty answer may be wrong."""
_RENEW_FOR: Final = timedelta(hours=1)

Sessions = Mapping[str, Sequence[int]]
"""Numbers of messages, by session."""


@dataclass(slots=True)
class SessionLocker:
    """Chooses, defers and removes the messages of one entity that requires sessions."""

    entity: AsyncEntity
    max_bytes: int
    until: Mapping[int, int] | None = None
    sessions: dict[int, str] = field(default_factory=dict[int, str])
    """The sessions of the messages of the last plan, by number."""
    _lasts: Mapping[int, int] = field(default_factory=dict[int, int])
    """The last number of each partition when messages were chosen last."""
    _aside: dict[str, float] = field(default_factory=dict[str, float])
    """Sessions that another receiver holds, and until when they are left out."""
    _tries: Counter[str] = field(default_factory=Counter[str])
    """Times that a session could not be taken."""
    _is_tried: bool = False
    """True once Service Bus has kept a message that was deferred here, and not dead-lettered it."""
    _refusal: ConfigurationError | None = None
    _trying: anyio.Lock = field(default_factory=anyio.Lock)

    @property
    def held_count(self) -> int:
        """Return how many messages are locked between two calls: none."""
        return 0

    # ---------------------------------------------------------------- choosing

    async def lock(self, max_messages: int) -> tuple[PeekedMessage, ...]:
        """Return the messages for a micro-batch, and lock nothing; none when none come within a second."""
        give_up = anyio.current_time() + _WAIT
        while True:
            chosen, others = await self._first(max_messages)
            is_over = not others if self.until is not None else anyio.current_time() > give_up
            if chosen or is_over:
                return chosen
            await anyio.sleep(_PAUSE)

    async def _first(self, max_messages: int) -> tuple[tuple[PeekedMessage, ...], int]:
        """Return the first active messages, and how many were left out because other receivers hold their sessions."""
        now = anyio.current_time()
        self._aside = {session: until for session, until in self._aside.items() if until > now}
        chosen: list[PeekedMessage] = []
        size = others = 0
        if self.until is None:
            self._lasts = await SequenceNumbers.of(self.entity, patience=OUTAGE_PATIENCE).lasts(self._lasts)
        found: Any = pages_up_to(self.entity, self._lasts if self.until is None else self.until)
        async with aclosing(found) as pages:
            async for page in pages:
                for payload, message in zip(page.payloads, page.messages((PROPERTIES,)), strict=True):
                    if message.state is not MessageState.ACTIVE or not self._is_wanted(message.sequence_number):
                        continue
                    session = message.session_id or ""
                    if session in self._aside or self._is_given_up(session):
                        others += not self._is_given_up(session)
                        continue
                    size += len(payload)
                    if len(chosen) == max_messages or (chosen and size > self.max_bytes):
                        return tuple(chosen), others
                    chosen.append(message)
        return tuple(chosen), others

    def _is_given_up(self, session: str) -> bool:
        return self.until is not None and self._tries[session] >= _TRIES

    def _is_wanted(self, number: int) -> bool:
        return self.until is None or number <= self.until.get(partition_of(number), -1)

    # ---------------------------------------------------------------- deferring

    async def defer(self, messages: Sequence[ReceivedMessage]) -> list[int]:
        """Defer messages; return the numbers of those that are deferred now, for certain.

        The others come again: another receiver holds their session, or has taken them.
        """
        numbers = [message.sequence_number for message in messages]
        deferred = await self.those_deferred(numbers, await self._of_each(by_session(messages), self._defer_in))
        if missing := set(numbers).difference(deferred):
            await self._warn_of_gone(missing)
        return deferred

    async def _warn_of_gone(self, numbers: set[int]) -> None:
        gone = numbers.difference(message.sequence_number for message in await self._peek(numbers))
        if gone:
            _LOG.warning(
                "%d messages of %s (the first is #%d) are gone, and are not in this micro-batch: they were delivered "
                "too often, and are dead-lettered, or they have expired, or another receiver has removed them.",
                len(gone),
                self.entity.address,
                min(gone),
            )

    async def those_deferred(self, numbers: Iterable[int], doubtful: Sessions | None = None) -> list[int]:
        """Return the numbers of messages that are deferred, when no message of their sessions is left between them."""
        numbers, give_up = list(numbers), anyio.current_time() + _TAKEN_WITHIN
        doubtful = doubtful or {}
        while True:
            found = await self._peek(numbers)
            # A session that was taken again has no deferrals of an old link that could still arrive.
            todo = {**_gaps(found), **doubtful}
            if not todo:
                self.sessions = {message.sequence_number: message.session_id or "" for message in found}
                return sorted(m.sequence_number for m in found if m.state is MessageState.DEFERRED)
            if anyio.current_time() > give_up:
                raise self._not_taken(todo)
            await anyio.sleep(_PAUSE)
            doubtful = await self._of_each(todo, self._defer_in)

    async def _defer_in(self, session: str, numbers: Sequence[int]) -> Sequence[int]:
        """Defer messages of a session, in their order; return those of which it is not certain."""
        wanted, doubtful = set(numbers), set[int]()
        try:
            async with self._taken(session) as batch:
                while wanted and (came := await batch.receive(self._step(len(wanted)), max_wait=_WAIT)):
                    ours = [message for message in came if message.sequence_number in wanted]
                    doubtful = {message.sequence_number for message in ours}
                    report = await self._settle(batch, ours)
                    doubtful = {
                        m.sequence_number for m, each in zip(ours, report, strict=True) if not _is_known(each.status)
                    }
                    del self._tries[session]
                    wanted -= {message.sequence_number for message in ours}
                    if doubtful or len(ours) < len(came):
                        break
        except Exception as error:
            if error is self._refusal:
                raise
            self._set_aside(session, error)  # a session that is not taken comes later
        return sorted(doubtful)

    def _step(self, count: int) -> int:
        # One first, because an entity that dead-letters deferred messages would do that to all of them.
        return min(count, _STEP) if self._is_tried else 1

    async def _settle(self, batch: SessionBatch, messages: Sequence[LockedMessage]) -> Report:
        """Defer messages; until it is known that a deferral keeps a message, one of one session at a time."""
        if self._is_tried:
            return await batch.settle(Defer(), messages, max_in_flight=_IN_FLIGHT)
        async with self._trying:
            if self._refusal is not None:
                raise self._refusal
            report = await batch.settle(Defer(), messages)
            if messages and report.ok and not self._is_tried:
                first = messages[0]
                self._is_tried = bool(await self._peek([first.sequence_number]))
                if not (self._is_tried or first.delivery_count):
                    self._refusal = dead_letters_deferred(self.entity.address, first.sequence_number)
                    raise self._refusal
            return report

    # ---------------------------------------------------------------- removing

    async def delete(self, sequence_numbers: Iterable[int]) -> None:
        """Remove deferred messages; ignore those that are gone."""
        left, give_up, looks = set(sequence_numbers), anyio.current_time() + _TAKEN_WITHIN, 0
        while left and looks < _LOOKS:
            found = [message for message in await self._peek(left) if message.state is MessageState.DEFERRED]
            looks = 0 if found else looks + 1
            todo = by_session(found)
            kept = await self._of_each(todo, self._complete_in)
            left -= {
                number for session, numbers in todo.items() for number in numbers if number not in kept.get(session, ())
            }
            if kept and anyio.current_time() > give_up:
                raise self._not_taken(kept)
            await anyio.sleep(_PAUSE if kept or looks == 1 else 0)

    async def _complete_in(self, session: str, numbers: Sequence[int]) -> Sequence[int]:
        """Complete deferred messages of a session; return those that are not completed for certain."""
        left = set(numbers)
        try:
            async with self._taken(session) as batch:
                locked = await batch.receive_deferred(numbers)
                report = await batch.settle(Complete(), locked, max_in_flight=_IN_FLIGHT)
                left -= {message.sequence_number for message, each in zip(locked, report, strict=True) if each.ok}
        except Exception as error:  # noqa: BLE001 (it is tried again)
            self._set_aside(session, error)
        return sorted(left)

    # ---------------------------------------------------------------- sessions

    def _taken(self, session: str) -> SessionBatch:
        return self.entity.session(
            session, max_wait=_TAKE_WITHIN, renew_for=_RENEW_FOR, archived=False, journalled=False
        )

    def _set_aside(self, session: str, error: Exception) -> None:
        _LOG.info("A session of %s was not taken: %s", self.entity.address, in_words(error))
        self._aside[session] = anyio.current_time() + _SET_ASIDE
        self._tries[session] += 1
        if self._tries[session] == _TRIES and self.until is not None:
            _LOG.warning("The stream ends without a session of %s that another receiver holds.", self.entity.address)

    async def _of_each(
        self, sessions: Sessions, act: Callable[[str, Sequence[int]], Awaitable[Sequence[int]]]
    ) -> dict[str, Sequence[int]]:
        """Act in each session, in several at once; return the numbers that are left, by session."""
        rests = await in_parallel(lambda each: act(*each), sessions.items(), _AT_ONCE)
        return {session: rest for session, rest in zip(sessions, rests, strict=True) if rest}

    async def _peek(self, numbers: Iterable[int]) -> list[PeekedMessage]:
        found = await peeked(self.entity, numbers, (PROPERTIES,))
        return sorted(found, key=lambda message: message.sequence_number)

    def _not_taken(self, sessions: Sessions) -> SbNotebookError:
        count = sum(map(len, sessions.values()))
        return SbNotebookError(
            f"Another receiver holds {len(sessions):,} sessions of {self.entity.address}, in which {count:,} messages "
            "of this stream are deferred: end it, and start the stream again."
        )


def by_session(messages: Iterable[ReceivedMessage]) -> dict[str, list[int]]:
    """Return the numbers of messages by session, in their order."""
    sessions: defaultdict[str, list[int]] = defaultdict(list)
    for message in sorted(messages, key=lambda message: message.sequence_number):
        sessions[message.session_id or ""].append(message.sequence_number)
    return dict(sessions)


def _gaps(messages: Sequence[PeekedMessage]) -> dict[str, list[int]]:
    """Return the active messages before a deferred one of the same session, by session."""
    last = {m.session_id: m.sequence_number for m in messages if m.state is MessageState.DEFERRED}
    return by_session(
        m for m in messages if m.state is MessageState.ACTIVE and m.sequence_number < last.get(m.session_id, 0)
    )


def _is_known(status: OutcomeStatus) -> bool:
    return status not in (OutcomeStatus.UNCONFIRMED, OutcomeStatus.SKIPPED)
