"""Removing or deferring all, or many, messages of an entity; messages that arrive after the plan was made stay."""

from __future__ import annotations

from functools import partial
from typing import Final

import anyio.to_thread

from sbnotebook.errors import ArchiveError
from sbnotebook.model import Complete, Defer, MessageState, Purge, ReceivedMessage
from sbnotebook.settlement.actions.reach import Reach, settling
from sbnotebook.settlement.actions.schedule import cancel_scheduled
from sbnotebook.settlement.actions.selection import Chosen, Selection, select
from sbnotebook.settlement.engine import Run
from sbnotebook.settlement.locking.ahead import Search
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import Plan, Preview
from sbnotebook.settlement.terms import Progress

_BY_NUMBER: Final = (
    "From then on they can only be received by sequence number. The numbers are written to the journal of this machine "
    "before."
)


async def plan_sweep(
    place: Place,
    decision: Purge | Defer,
    chosen: Chosen,
    *,
    archived: bool = True,
    way: str = "",
    progress: Progress | None = None,
) -> Plan:
    """Peek at all messages, and return a plan to remove or to defer those that are meant; ``way`` ends its sentence."""
    seen = await select(place, chosen, progress)
    is_purge = isinstance(decision, Purge)
    seen.check_reach("removed" if is_purge else "deferred")
    note = await _kept(place, seen, archived=archived) if is_purge else _BY_NUMBER
    sentence = seen.sentence(decision.verb, place, *filter(None, (note, way)))
    return place.new_plan(
        decision,
        seen.messages,
        partial(sweep, place, decision, seen, archived),
        described=Preview(sentence, tuple(seen.messages)),
        others=seen.between,
        options={} if archived else {"archived": False},
    )


async def sweep(place: Place, decision: Purge | Defer, seen: Selection, archived: bool, run: Run) -> None:
    """Remove or defer the messages of a run, in any state."""
    archive, is_purge = place.namespace.archive, isinstance(decision, Purge)
    if is_purge and archived and archive is not None:
        await anyio.to_thread.run_sync(archive.require_room, seen.room)
    in_state: dict[MessageState, list[ReceivedMessage]] = {state: [] for state in MessageState}
    for message in run.without_outcome():
        in_state[message.state].append(message)
    search = Search(expected=seen.to_lock)
    steps = settling(run, Complete() if is_purge else decision)
    reach = Reach(place, run, steps, archived=archived, search=search)
    await reach.active(in_state[MessageState.ACTIVE])
    await reach.deferred(in_state[MessageState.DEFERRED])
    await cancel_scheduled(place, run, in_state[MessageState.SCHEDULED], archived=archived)
    await reach.find_missing(run.without_outcome())


async def _kept(place: Place, seen: Selection, *, archived: bool) -> str:
    archive = place.namespace.archive
    if archive is None or not archived:
        return "They are removed for good: nothing is archived."
    try:
        await anyio.to_thread.run_sync(archive.require_room, seen.room)
    except ArchiveError as error:
        return f"As it is now, it will be refused. {error}"
    return f"They are kept in the archive for {archive.retention.days:,} days, and undo sends them back."
