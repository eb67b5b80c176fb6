"""Deferring all, or many, messages of an entity, so that they can be settled by their numbers in any order."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from sbnotebook.model import Defer, MessageState, Report
from sbnotebook.settlement.actions.sweep import Chosen, look
from sbnotebook.settlement.actions.sweeping import Sweeping
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import Limits, Plan, Preview
from sbnotebook.settlement.terms import Progress

__all__ = ["plan_defer_all"]

_BY_NUMBER: Final = (
    "They are had by their numbers only from then on, which are written to the journal of this machine before."
)


async def plan_defer_all(entity: Place, chosen: Chosen, progress: Progress | None = None) -> Plan:
    """A plan to defer active messages, by peeking at all of them. Messages that come later stay active.

    Args:
        entity: a queue, a subscription, or a sub-queue.
        chosen: which messages; active ones only, whatever it says of states.
        progress: told of every page that is peeked, in messages.

    Returns:
        The plan. Applying it defers the messages in their order, the numbers of each group on disk before it is sent,
        while others that stand between them are locked and released again. When it is cut off, a new plan goes on
        with what is left.

    Raises:
        DecisionError: too many others stand between.
    """
    seen = await look(entity, replace(chosen, state=MessageState.ACTIVE), progress)
    seen.check_reach("deferred")
    sentence = seen.sentence(Defer.verb, entity, _BY_NUMBER)

    def describe(rows: int) -> Preview:
        return Preview(sentence, tuple(seen.messages[:rows]))

    async def carry_out(plan: Plan, limits: Limits, progress: Progress | None) -> Report:
        return await Sweeping(entity, plan, limits, progress, standing=seen.standing).run()

    return Plan(entity.address, Defer(), tuple(seen.messages), carry_out, describe=describe)
