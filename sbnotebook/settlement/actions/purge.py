"""Removing all, or many, messages of an entity; what came after the plan was made stays."""

from __future__ import annotations

import anyio.to_thread

from sbnotebook.errors import ArchiveError
from sbnotebook.model import Purge, Report
from sbnotebook.settlement.actions.sweep import Chosen, Swept, look
from sbnotebook.settlement.actions.sweeping import Sweeping
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import Limits, Plan, Preview
from sbnotebook.settlement.terms import Progress

__all__ = ["plan_purge"]


async def plan_purge(entity: Place, chosen: Chosen, *, archived: bool = True, progress: Progress | None = None) -> Plan:
    """A plan to remove messages, by peeking at all of them. Messages that come later stay.

    Args:
        entity: a queue, a subscription, or a sub-queue.
        chosen: which messages.
        archived: False to remove them for good.
        progress: told of every page that is peeked, in messages.

    Returns:
        The plan. Applying it writes the messages to the archive and removes them: active ones in their order, while
        others that stand between them are locked and released again, deferred ones by their numbers, and scheduled
        ones by cancelling them. When it is cut off, a new plan goes on with what is left.

    Raises:
        DecisionError: too many others stand between.
    """
    seen = await look(entity, chosen, progress)
    seen.check_reach("removed")
    sentence = seen.sentence(Purge.verb, entity, await _kept(entity, seen, archived=archived))

    def describe(rows: int) -> Preview:
        return Preview(sentence, tuple(seen.messages[:rows]))

    async def carry_out(plan: Plan, limits: Limits, progress: Progress | None) -> Report:
        archive = entity.namespace.archive
        if archive is not None and archived:
            await anyio.to_thread.run_sync(archive.require_room, seen.bytes)
        return await Sweeping(entity, plan, limits, progress, standing=seen.standing, archived=archived).run()

    return Plan(entity.address, Purge(), tuple(seen.messages), carry_out, describe=describe)


async def _kept(entity: Place, seen: Swept, *, archived: bool) -> str:
    archive = entity.namespace.archive
    if archive is None or not archived:
        return "They are removed for good: nothing is archived."
    try:
        await anyio.to_thread.run_sync(archive.require_room, seen.bytes)
    except ArchiveError as error:
        return f"As it is now, it will be refused. {error}"
    return f"They are kept in the archive for {archive.retention.days:,} days, and undo sends them back."
