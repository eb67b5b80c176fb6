"""Removing all, or many, messages of an entity; what came after the plan was made stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

from sbnotebook.errors import ArchiveError, DecisionError
from sbnotebook.model import (
    MessageState,
    PeekedMessage,
    Purge,
    Report,
)
from sbnotebook.settlement.locking.settle import Progress
from sbnotebook.settlement.picking.ahead import DEFAULT_MAX_HELD
from sbnotebook.settlement.plan import Limits, Plan, Preview
from sbnotebook.settlement.removing.purging import Purging

if TYPE_CHECKING:
    from sbnotebook.settlement.entity import AsyncEntity

__all__ = ["Filter", "PurgeOptions", "plan_purge"]

Filter = Callable[[Sequence[PeekedMessage]], Sequence[PeekedMessage]]
"""Gives those of some messages that are meant."""

_SHOWN: Final = 100
"""Messages that are kept whole, to be shown."""
_NAMED: Final = 5
_MAX_NAME: Final = 60


@dataclass(frozen=True, slots=True)
class PurgeOptions:
    """Which messages are removed.

    Args:
        only: of those that are looked at, the ones that are meant; None for all of them.
        before: messages that were enqueued before then; a duration counts back from now.
        to_sequence_number: messages up to this number, included.
        state: messages in this state only.
        archived: False to remove them for good.
    """

    only: Filter | None = None
    before: datetime | timedelta | None = None
    to_sequence_number: int | None = None
    state: MessageState | None = None
    archived: bool = True

    @property
    def end(self) -> datetime | None:
        """The moment that ``before`` means."""
        before = self.before
        if isinstance(before, timedelta):
            return datetime.now(UTC) - before
        return before.astimezone() if before is not None else None


@dataclass(slots=True)
class _Seen:
    """What was found to remove, and what there is to say of it."""

    messages: list[PeekedMessage] = field(default_factory=list[PeekedMessage])
    states: Counter[str] = field(default_factory=Counter[str])
    names: Counter[str] = field(default_factory=Counter[str])
    bytes: int = 0
    standing: int = 0
    """Active messages up to the last that is removed."""
    first: datetime | None = None
    last: datetime | None = None

    @property
    def between(self) -> int:
        """Active messages that stay and stand before one that is removed."""
        return self.standing - self.states[MessageState.ACTIVE]

    def note(self, chosen: Iterable[PeekedMessage]) -> None:
        for message in chosen:
            self.states[message.state] += 1
            self.names[message.dead_letter_reason or message.subject or ""] += 1
            self.bytes += len(message.body)
            when = message.enqueued_time
            if when is not None:
                self.first, self.last = min(self.first or when, when), max(self.last or when, when)
            # Bodies of a million messages would not fit into memory, and nobody reads them.
            kept = message if len(self.messages) < _SHOWN else _without_body(message)
            self.messages.append(kept)


async def plan_purge(entity: AsyncEntity, options: PurgeOptions, progress: Progress | None = None) -> Plan:
    """A plan to remove messages, by peeking at all of them. Messages that come later stay.

    Args:
        entity: a queue, a subscription, or a sub-queue.
        options: which messages.
        progress: told of every page that is peeked, in messages.

    Returns:
        The plan. Applying it writes the messages to the archive and removes them: active ones in their order, while
        others that stand between them are locked and released again, deferred ones by their numbers, and scheduled
        ones by cancelling them. When it is cut off, a new plan goes on with what is left.

    Raises:
        DecisionError: too many others stand between.
    """
    seen = await _look(entity, options, progress)
    if seen.between > DEFAULT_MAX_HELD and not any(message.session_id for message in seen.messages):
        raise DecisionError(
            f"{seen.between:,} other messages stand between those that are to be removed, and all of them would be "
            f"locked meanwhile; {DEFAULT_MAX_HELD:,} can be. Remove those near the head first, with "
            "to_sequence_number=…, or take more of them."
        )
    sentence = await _sentence(entity, seen, options)

    def describe(rows: int) -> Preview:
        return Preview(sentence, tuple(seen.messages[:rows]))

    async def carry_out(plan: Plan, limits: Limits, progress: Progress | None) -> Report:
        archive = entity.namespace.archive
        if archive is not None and options.archived:
            await anyio.to_thread.run_sync(archive.require_room, seen.bytes)
        return await Purging(entity, plan, limits, progress, standing=seen.standing, archived=options.archived).run()

    return Plan(entity.address, Purge(), tuple(seen.messages), carry_out, describe=describe)


async def _look(entity: AsyncEntity, options: PurgeOptions, progress: Progress | None) -> _Seen:
    seen, active, end = _Seen(), 0, options.end
    async for page in entity.pages(to_sequence_number=options.to_sequence_number):
        wanted = [
            message
            for message in page
            if options.state in (None, message.state)
            and (end is None or (message.enqueued_time is not None and message.enqueued_time < end))
        ]
        if options.only is not None:
            wanted = await anyio.to_thread.run_sync(options.only, wanted)
        seen.note(wanted)
        chosen = {message.sequence_number for message in wanted}
        for message in page:
            active += message.state is MessageState.ACTIVE
            if message.sequence_number in chosen and message.state is MessageState.ACTIVE:
                seen.standing = active
        if progress is not None:
            progress(len(page))
    return seen


def _without_body(message: PeekedMessage) -> PeekedMessage:
    return PeekedMessage(
        entity=message.entity,
        sequence_number=message.sequence_number,
        message_id=message.message_id,
        enqueued_time=message.enqueued_time,
        session_id=message.session_id,
        state=message.state,
    )


async def _sentence(entity: AsyncEntity, seen: _Seen, options: PurgeOptions) -> str:
    count = len(seen.messages)
    if not count:
        return f"purge 0 messages of {entity.address}."
    states = ", ".join(f"{number:,} {state}" for state, number in seen.states.most_common())
    named = [f"{_quoted(name)} {number:,}" for name, number in seen.names.most_common(_NAMED)]
    more = len(seen.names) - len(named)
    kind = "reason or subject" if entity.address.sub_queue else "subject"
    what = f"purge {count:,} message{'s' if count != 1 else ''} of {entity.address}: {states}"
    sentences = [
        f"{what}; {seen.bytes:,} bytes of bodies{_times(seen)}.",
        f"By {kind}: {', '.join(named)}{f' and {more:,} more' if more > 0 else ''}.",
    ]
    if seen.between:
        sentences.append(f"{seen.between:,} others stand between them, and are locked meanwhile and then released.")
    return " ".join([*sentences, await _kept(entity, seen, options)])


def _times(seen: _Seen) -> str:
    if seen.first is None or seen.last is None:
        return ""
    return f", enqueued from {seen.first:%Y-%m-%d %H:%M:%S} to {seen.last:%Y-%m-%d %H:%M:%S} UTC"


def _quoted(name: str) -> str:
    # It came from who sent the message.
    return repr(name[:_MAX_NAME]) if name else "none"


async def _kept(entity: AsyncEntity, seen: _Seen, options: PurgeOptions) -> str:
    archive = entity.namespace.archive
    if archive is None or not options.archived:
        return "They are removed for good: nothing is archived."
    try:
        await anyio.to_thread.run_sync(archive.require_room, seen.bytes)
    except ArchiveError as error:
        return f"As it is now, it will be refused. {error}"
    return f"They are kept in the archive for {archive.retention.days:,} days, and undo sends them back."
