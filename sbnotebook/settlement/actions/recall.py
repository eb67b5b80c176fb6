"""The steps of a resubmit that interrupted runs have done."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Final, Literal, TypeAlias

import anyio.to_thread

from sbnotebook.model import EntityAddress, Resubmit
from sbnotebook.settlement.actions.clone_search import CloneSearch
from sbnotebook.settlement.memory.journal import OriginalKey, ResubmitEntry, ResubmitState
from sbnotebook.settlement.parallel import alike
from sbnotebook.settlement.resources import Resources

Destination: TypeAlias = tuple[str, EntityAddress]
"""The identity of a namespace, and the queue or topic there. It is empty for the namespace of the originals."""

_SEND_WITHIN: Final = timedelta(minutes=2)
"""The least remaining time in which the destination drops duplicates, for a clone to be sent again."""
_MAX_DESCRIPTION: Final = 500
_CONNECT: Final = "connect to it, and resubmit to there again, or resume with others=[namespace]."
_CUT_OFF: Final = "An earlier resubmit of this message was interrupted, and its clone"


Verdict: TypeAlias = Literal["new", "sent", "again", "unknown"]
"""The decision on a message whose resubmit may have begun before.

``new``: nothing was begun. ``sent``: its clone is confirmed, or is in its destination, so the original is completed.
``again``: its clone is sent again. ``unknown``: its clone may have been sent or not, so it stays as it is.
"""


@dataclass(frozen=True, slots=True)
class Recalled:
    verdict: Verdict
    why: str | None = None
    earlier: ResubmitEntry | None = None
    """The attempt of an earlier run."""
    until: datetime | None = None
    """Before when the clone may be sent again."""
    unseen: str | None = None


NEW: Final = Recalled("new")
_CONFIRMED: Final = (ResubmitState.SENT, ResubmitState.DONE)


class Recall:
    """Finds what earlier runs have done, by the journal and in the destinations of their clones."""

    def __init__(self, namespace: Resources, decision: Resubmit, others: Mapping[str, Resources]) -> None:
        self._namespace = namespace
        self._decision = decision
        self._there = {**others, "": namespace}
        self._searches: dict[Destination, CloneSearch] = {}

    async def of(
        self, to: Destination, originals: Sequence[OriginalKey], *, can_make_edited: bool = True
    ) -> list[Recalled]:
        """Return the earlier attempts of originals that are resubmitted to a destination now."""
        journal = self._namespace.journal
        earlier = await anyio.to_thread.run_sync(lambda: journal.find_begun(self._namespace.identity(), originals))
        begun = [earlier.get(original) for original in originals]
        there = await self._clones_there([entry for entry in begun if entry is not None])
        return [
            NEW if entry is None else await self._judge(entry, there, to, can_make_edited=can_make_edited)
            for entry in begun
        ]

    async def _judge(
        self, earlier: ResubmitEntry, there: set[int], to: Destination, *, can_make_edited: bool
    ) -> Recalled:
        if earlier.id in there:
            return Recalled("sent", f"An earlier run had sent its clone to {earlier.destination}.", earlier)
        search = self._search_in(earlier.place)
        if search is None:
            where = f"it went to {earlier.destination} in {earlier.destination_namespace}: {_CONNECT}"
            why = f"{_CUT_OFF} {where.removeprefix('it ')}"[:_MAX_DESCRIPTION]
            return Recalled("unknown", why, earlier, unseen=where)
        judged = partial(Recalled, earlier=earlier, unseen="; ".join(search.unseen) or None)
        doubts = [*search.doubts, *search.unseen]
        if earlier.edited and not can_make_edited:
            why = f"{_CUT_OFF}, which was edited, is not to be found: resubmit it with the same edit."
        elif self._decision.resend_unknown:
            return judged("again", f"{_CUT_OFF} may have arrived and been consumed.")
        elif until := await self._dropped_until(earlier, to, search):
            return judged("again", f"{_CUT_OFF} is dropped by {earlier.destination} if it has arrived.", until=until)
        else:
            why = (
                f"{_CUT_OFF} is not to be found: it may have been sent and consumed. To send it again nevertheless, "
                "resubmit with resend_unknown=True."
            )
        besides = f" Besides, {'; '.join(doubts)}." if doubts else ""
        return judged("unknown", f"{why}{besides}"[:_MAX_DESCRIPTION])

    async def _clones_there(self, entries: Sequence[ResubmitEntry]) -> set[int]:
        """Return the entries whose clone is confirmed, or is in its destination."""
        sent = {entry.id for entry in entries if entry.state in _CONFIRMED}
        for those in alike((entry for entry in entries if entry.id not in sent), lambda entry: entry.place):
            if (search := self._search_in(those[0].place)) is not None:
                found = await search.find({entry.clone_id for entry in those})
                sent |= {entry.id for entry in those if entry.clone_id in found}
        return sent

    def _search_in(self, place: Destination) -> CloneSearch | None:
        """Return the search in a destination, which is asked once what it does with messages; None where it is away."""
        there = self._there.get(place[0])
        return None if there is None else self._searches.setdefault(place, CloneSearch(there, place[1]))

    async def _dropped_until(self, earlier: ResubmitEntry, to: Destination, search: CloneSearch) -> datetime | None:
        """Return before when a second clone may be sent, to be dropped if the first has arrived; None for never."""
        # An entry whose original is gone changed when that was missed, long after the attempt.
        if earlier.place != to or earlier.changed is None or earlier.state is ResubmitState.GONE:
            return None
        window = await search.duplicate_window()
        until = earlier.changed + (window or timedelta(0)) - _SEND_WITHIN
        return until if earlier.changed <= self._namespace.clock.now() < until else None
