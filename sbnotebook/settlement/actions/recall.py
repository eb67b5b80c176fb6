"""The steps of a resubmit that interrupted runs have done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import Enum, auto
from typing import Final

import anyio.to_thread

from sbnotebook.model import EntityAddress, Resubmit
from sbnotebook.settlement.actions.clone_search import CloneSearch
from sbnotebook.settlement.locking.renewal import Clock
from sbnotebook.settlement.memory.journal import Journal, OriginalKey, ResubmitEntry, ResubmitState

_SEND_WITHIN: Final = timedelta(minutes=2)
"""The least remaining time in which the destination drops duplicates, for a clone to be sent again."""
_MAX_DESCRIPTION: Final = 500
_CONNECT: Final = "connect to it, and resubmit to there again, or resume with others=[namespace]."
_CUT_OFF: Final = "An earlier resubmit of this message was interrupted, and its clone"


class Verdict(Enum):
    """The decision on a message whose resubmit may have begun before."""

    NEW = auto()
    """Nothing was begun."""
    SENT = auto()
    """Its clone is confirmed, or is in its destination: complete the original."""
    AGAIN = auto()
    """Its clone is to be sent again."""
    UNKNOWN = auto()
    """Its clone may have been sent or not, so it stays as it is."""


@dataclass(frozen=True, slots=True)
class Recalled:
    verdict: Verdict
    earlier: ResubmitEntry | None = None
    why: str | None = None
    until: datetime | None = None
    unseen: str | None = None


_NEW: Final = Recalled(Verdict.NEW)


@dataclass(frozen=True, slots=True, eq=False)
class Recall:
    journal: Journal
    search_in: Callable[[tuple[str, EntityAddress]], CloneSearch | None]
    to: tuple[str, EntityAddress]
    decision: Resubmit
    clock: Clock

    async def of(
        self, namespace: str, originals: Sequence[OriginalKey], *, can_make_edited: bool = True
    ) -> list[Recalled]:
        earlier = await anyio.to_thread.run_sync(self.journal.find_begun, namespace, originals)
        begun = [earlier.get(original) for original in originals]
        there = await self._clones_there([entry for entry in begun if entry is not None])
        return [
            _NEW if entry is None else await self._judge(entry, there, can_make_edited=can_make_edited)
            for entry in begun
        ]

    async def _judge(self, earlier: ResubmitEntry, there: set[int], *, can_make_edited: bool) -> Recalled:
        if earlier.id in there:
            return Recalled(Verdict.SENT, earlier, f"An earlier run had sent its clone to {earlier.destination}.")
        search = self.search_in(earlier.place)
        if search is None:
            where = f"{earlier.destination} in {earlier.destination_namespace}"
            why = f"{_CUT_OFF} went to {where}: {_CONNECT}"[:_MAX_DESCRIPTION]
            return Recalled(Verdict.UNKNOWN, earlier, why, unseen=f"it went to {where}: {_CONNECT}")
        known = await self._without_its_clone(earlier, search, can_make_edited=can_make_edited)
        return replace(known, unseen="; ".join(search.unseen) or None)

    async def _without_its_clone(
        self, earlier: ResubmitEntry, search: CloneSearch, *, can_make_edited: bool
    ) -> Recalled:
        doubts = [*search.doubts, *search.unseen]
        besides = f" Besides, {'; '.join(doubts)}." if doubts else ""
        if earlier.edited and not can_make_edited:
            why = f"{_CUT_OFF}, which was edited, is not to be found: resubmit it with the same edit."
            return Recalled(Verdict.UNKNOWN, earlier, f"{why}{besides}"[:_MAX_DESCRIPTION])
        if self.decision.resend_unknown:
            return Recalled(Verdict.AGAIN, earlier, f"{_CUT_OFF} may have arrived and been consumed.")
        if until := await self._dropped_until(earlier):
            why = f"{_CUT_OFF} is dropped by {earlier.destination} if it has arrived."
            return Recalled(Verdict.AGAIN, earlier, why, until)
        why = f"{_CUT_OFF} is not to be found: it may have been sent and consumed. To send it again nevertheless, "
        return Recalled(
            Verdict.UNKNOWN, earlier, f"{why}resubmit with resend_unknown=True.{besides}"[:_MAX_DESCRIPTION]
        )

    async def _clones_there(self, entries: Sequence[ResubmitEntry]) -> set[int]:
        """Return the entries whose clone is confirmed, or is in its destination."""
        sent: set[int] = set()
        doubtful: dict[tuple[str, EntityAddress], list[ResubmitEntry]] = {}
        for entry in entries:
            if entry.state in (ResubmitState.SENT, ResubmitState.DONE):
                sent.add(entry.id)
            else:
                doubtful.setdefault(entry.place, []).append(entry)
        for place, those in doubtful.items():
            search = self.search_in(place)
            found = await search.find({entry.clone_id for entry in those}) if search else set[str]()
            sent |= {entry.id for entry in those if entry.clone_id in found}
        return sent

    async def _dropped_until(self, earlier: ResubmitEntry) -> datetime | None:
        """Return before when a second clone may be sent, to be dropped if the first has arrived; None for never."""
        search = self.search_in(self.to)
        if earlier.place != self.to or earlier.changed is None or search is None:
            return None
        if earlier.state is ResubmitState.GONE:  # it changed when the original was missed, long after the attempt
            return None
        window = await search.duplicate_window()
        until = earlier.changed + (window or timedelta(0)) - _SEND_WITHIN
        return until if earlier.changed <= self.clock.now() < until else None
