"""The messages that a user wants to see, peeked in steps that can be watched and stopped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from threading import Event
from typing import Final

from sbnotebook.client import Entity, Messages
from sbnotebook.model.budget import UNPACKED_BYTES_OF_TABLE, Allowance

_FIRST_STEP: Final = 250
_LARGEST_STEP: Final = 8_000


@dataclass(frozen=True, slots=True)
class PeekRequest:
    count: int = _FIRST_STEP
    from_sequence_number: int = 1
    state: str | None = None
    where: str | None = None
    session_id: str | None = None


@dataclass(frozen=True, slots=True)
class PeekProgress:
    found: int = 0
    looked_at: int = 0
    next_number: int = 1
    is_end: bool = False


def peek_in_steps(entity: Entity, ask: PeekRequest, stop: Event) -> Iterator[tuple[Messages, PeekProgress]]:
    """Yield the messages of each step and the progress, until there are enough or the event is set."""
    Messages().where(ask.where)  # a wrong expression fails before anything is peeked at
    takes_all = ask.state is None and ask.where is None
    unpacking = Allowance(UNPACKED_BYTES_OF_TABLE)
    looked, step = PeekProgress(next_number=ask.from_sequence_number), _FIRST_STEP
    while looked.found < ask.count and not looked.is_end and not stop.is_set():
        wanted = min(step, ask.count - looked.found) if takes_all else step
        page = entity.peek(
            wanted,
            from_sequence_number=looked.next_number,
            session_id=ask.session_id,
            show_progress=False,
            unpacking=unpacking,
        )
        kept = (page if ask.state is None else page.where(f"state = '{ask.state}'")).where(ask.where)
        is_cut = len(kept) > ask.count - looked.found
        kept = kept[: ask.count - looked.found]
        last = kept[-1] if is_cut else page[-1] if page else None
        looked = PeekProgress(
            looked.found + len(kept),
            looked.looked_at + len(page),
            last.sequence_number + 1 if last is not None else looked.next_number,
            is_end=len(page) < wanted and not is_cut,
        )
        yield kept, looked
        step = min(2 * step, _LARGEST_STEP)
