"""Removing all, or many, messages of an entity; messages that arrive after the plan was made stay."""

from __future__ import annotations

from functools import partial

import anyio.to_thread

from sbnotebook.errors import ArchiveError
from sbnotebook.model import Complete, MessageState, Purge, ReceivedMessage, Report
from sbnotebook.settlement import engine
from sbnotebook.settlement.actions.reach import Reach, settling
from sbnotebook.settlement.actions.schedule import cancel_scheduled
from sbnotebook.settlement.actions.selection import Chosen, Selection, select
from sbnotebook.settlement.costs import Cost
from sbnotebook.settlement.engine import Run
from sbnotebook.settlement.locking.ahead import Search
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import Limits, Plan, Preview
from sbnotebook.settlement.terms import Progress


async def plan_purge(place: Place, chosen: Chosen, *, archived: bool = True, progress: Progress | None = None) -> Plan:
    """Peek at all messages, and return a plan to remove those that are meant. Messages that come later stay."""
    seen = await select(place, chosen, progress)
    seen.check_reach("removed")
    sentence = seen.sentence(Purge.verb, place, await _kept(place, seen, archived=archived))

    def describe(rows: int) -> Preview:
        return Preview(sentence, tuple(seen.messages[:rows]))

    async def carry_out(plan: Plan, limits: Limits, progress: Progress | None) -> Report:
        archive = place.namespace.archive
        if archive is not None and archived:
            await anyio.to_thread.run_sync(archive.require_room, seen.room)
        look = partial(_purge, place, seen.standing, archived)
        return await engine.carry_out(plan.messages, plan.decision, look, limits, progress, Report())

    return Plan(
        place.address,
        Purge(),
        tuple(seen.messages),
        carry_out,
        describe=describe,
        speeds=place.namespace.speeds,
        on=place.namespace.in_plans,
        cost=Cost(others=seen.between),
        options={} if archived else {"archived": False},
    )


async def _purge(place: Place, standing: int, archived: bool, run: Run) -> None:
    in_state: dict[MessageState, list[ReceivedMessage]] = {state: [] for state in MessageState}
    for message in run.messages:
        in_state[message.state].append(message)
    active = in_state[MessageState.ACTIVE]
    search = Search(expected=standing)
    reach = Reach(place, run, settling(run, Complete()), Purge(), archived=archived, search=search)
    await reach.active(active, from_head=len(active) == standing)
    await reach.deferred(in_state[MessageState.DEFERRED])
    await cancel_scheduled(place, run, in_state[MessageState.SCHEDULED], archived=archived)
    await reach.those_left(run.without_outcome())


async def _kept(place: Place, seen: Selection, *, archived: bool) -> str:
    archive = place.namespace.archive
    if archive is None or not archived:
        return "They are removed for good: nothing is archived."
    try:
        await anyio.to_thread.run_sync(archive.require_room, seen.room)
    except ArchiveError as error:
        return f"As it is now, it will be refused. {error}"
    return f"They are kept in the archive for {archive.retention.days:,} days, and undo sends them back."
