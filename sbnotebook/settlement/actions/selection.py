"""The selection of messages for an action, by peeking: nothing is locked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

import anyio
import anyio.to_thread

from sbnotebook.errors import DecisionError
from sbnotebook.model import MessageState, PeekedMessage
from sbnotebook.settlement.locking.ahead import DEFAULT_MAX_HELD
from sbnotebook.settlement.locking.records import room_of
from sbnotebook.settlement.peek import PeekCursor
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.terms import Progress

MessageFilter = Callable[[Sequence[PeekedMessage]], Sequence[PeekedMessage]]
"""Gives those of some messages that are meant."""

_SHOWN: Final = 100
"""Messages that are kept whole, to be shown."""
_NAMED: Final = 5
_MAX_NAME: Final = 60
_MOST_NAMES: Final = 1_000
"""Different names that are counted among messages that do not match: their senders choose them."""


@dataclass(frozen=True, slots=True)
class Chosen:
    only: MessageFilter | None = None
    before: datetime | None = None
    to_sequence_number: int | None = None
    state: MessageState | None = None
    max_messages: int | None = None
    numbers: Collection[int] | None = None

    def __post_init__(self) -> None:
        if self.max_messages is not None and self.max_messages < 0:
            raise DecisionError("max_messages is 0 or more.")

    async def those_meant(self, page: Sequence[PeekedMessage]) -> Sequence[PeekedMessage]:
        end = self.before
        wanted: Sequence[PeekedMessage] = [
            message
            for message in page
            if self.state in (None, message.state)
            and (end is None or (message.enqueued_time is not None and message.enqueued_time < end))
            and (self.numbers is None or message.sequence_number in self.numbers)
        ]
        return wanted if self.only is None else await anyio.to_thread.run_sync(self.only, wanted)


@dataclass(slots=True)
class Selection:
    messages: list[PeekedMessage] = field(default_factory=list[PeekedMessage])
    states: Counter[str] = field(default_factory=Counter[str])
    names: Counter[str] = field(default_factory=Counter[str])
    bytes: int = 0
    room: int = 0
    """Bytes that the archive takes for them at most."""
    to_lock: int = 0
    """Active messages up to the last one that is meant."""
    passed: Counter[str] = field(default_factory=Counter[str])
    """Names of the messages before the first one that is meant."""
    looked_at: int = 0
    """The number of messages before the first one that is meant."""
    first: datetime | None = None
    last: datetime | None = None
    in_session: dict[str | None, int] = field(default_factory=dict["str | None", int])
    """Active messages of each session up to the last one of it that is meant."""
    delivered: int = 0
    """Messages of :attr:`to_lock` that were delivered before."""
    seconds: float = 0.0

    @property
    def between(self) -> int:
        """Count the active messages that stay and come before a selected message."""
        return self.to_lock - self.states[MessageState.ACTIVE]

    def note(self, chosen: Iterable[PeekedMessage], page: Iterable[PeekedMessage], *, whole: bool) -> None:
        """Count the chosen messages of a page, and the others before the first one."""
        for message in chosen:
            self.states[message.state] += 1
            self.names[message.dead_letter_reason or message.subject or ""] += 1
            self.bytes += len(message.body)
            self.room += room_of(message)
            when = message.enqueued_time
            if when is not None:
                self.first, self.last = min(self.first or when, when), max(self.last or when, when)
            # Bodies of a million messages would not fit into memory.
            self.messages.append(message if whole or len(self.messages) < _SHOWN else _without_body(message))
        for message in () if self.messages else page:
            name = (message.dead_letter_reason if message.entity.sub_queue else message.subject) or ""
            self.looked_at += 1
            if name in self.passed or len(self.passed) < _MOST_NAMES:
                self.passed[name] += 1

    def check_reach(self, what: str) -> None:
        """Refuse where too many others would have to be held."""
        if self.between > DEFAULT_MAX_HELD and not any(message.session_id for message in self.messages):
            raise DecisionError(
                f"{self.between:,} other messages are between those to be {what}, and all of them would be "
                f"locked meanwhile; {DEFAULT_MAX_HELD:,} can be. Take those near the head first, with "
                "to_sequence_number=…, or take more of them."
            )

    def sentence(self, verb: str, entity: Place, *more: str) -> str:
        count = len(self.messages)
        if not count:
            return f"{verb} 0 messages of {entity.in_plans}. {self.present(entity)}"
        states = ", ".join(f"{number:,} {state}" for state, number in self.states.most_common())
        kind = "reason or subject" if entity.address.sub_queue else "subject"
        what = f"{verb} {count:,} message{'s' if count != 1 else ''} of {entity.in_plans}: {states}"
        sentences = [
            f"{what}; {self.bytes:,} bytes of bodies{self._times()}.",
            f"By {kind}: {_named(self.names)}.",
        ]
        if self.between:
            sentences.append(f"{self.between:,} other messages between them are locked meanwhile and then released.")
        return " ".join([*sentences, *more])

    def present(self, entity: Place) -> str:
        return names_sentence(self.passed, self.looked_at, is_of_reasons=entity.address.sub_queue is not None)

    def _times(self) -> str:
        if self.first is None or self.last is None:
            return ""
        return f", enqueued from {self.first:%Y-%m-%d %H:%M:%S} to {self.last:%Y-%m-%d %H:%M:%S} UTC"


async def select(entity: Place, chosen: Chosen, progress: Progress | None = None) -> Selection:
    """Peek from the head to the last message that may be meant; with ``numbers``, messages are kept whole."""
    seen, began = Selection(), anyio.current_time()
    active, delivered, in_session = 0, 0, Counter[str | None]()
    last = chosen.to_sequence_number if chosen.numbers is None else max(chosen.numbers, default=0)
    async for page in entity.peeker.pages(PeekCursor(to_sequence_number=last)):
        wanted = await chosen.those_meant(page)
        if chosen.max_messages is not None:
            wanted = wanted[: chosen.max_messages - len(seen.messages)]
        seen.note(wanted, page, whole=chosen.numbers is not None)
        numbers = {message.sequence_number for message in wanted}
        for message in page:
            if message.state is MessageState.ACTIVE:
                active += 1
                delivered += message.delivery_count > 0
                in_session[message.session_id] += 1
                if message.sequence_number in numbers:
                    seen.to_lock, seen.delivered = active, delivered
                    seen.in_session[message.session_id] = in_session[message.session_id]
        if progress is not None:
            progress(len(page))
        if len(seen.messages) == chosen.max_messages:
            break
    seen.seconds = anyio.current_time() - began
    return seen


def names_sentence(names: Counter[str], looked_at: int, *, is_of_reasons: bool) -> str:
    """Return which names the messages have that were looked at, for a choice that matches none of them.

    Args:
        names: how many messages have each dead-letter reason or subject.
        looked_at: messages in all.
        is_of_reasons: whether the names are dead-letter reasons.

    Example:
        >>> names_sentence(Counter(paid=2), 2, is_of_reasons=False)
        "Messages looked at: 2, with these subjects: 'paid' 2."
    """
    if not looked_at:
        return "There are no messages to choose from."
    kind = "dead-letter reasons" if is_of_reasons else "subjects"
    return f"Messages looked at: {looked_at:,}, with these {kind}: {_named(names)}."


def _without_body(message: PeekedMessage) -> PeekedMessage:
    return PeekedMessage(
        entity=message.entity,
        sequence_number=message.sequence_number,
        message_id=message.message_id,
        enqueued_time=message.enqueued_time,
        session_id=message.session_id,
        state=message.state,
    )


def _named(names: Counter[str]) -> str:
    named = [f"{_quoted(name)} {number:,}" for name, number in names.most_common(_NAMED)]
    left = len(names) - len(named)
    return f"{', '.join(named)}{f' and {left:,} more' if left > 0 else ''}"


def _quoted(name: str) -> str:
    # It came from the sender of the message.
    return repr(name[:_MAX_NAME]) if name else "none"
