"""Deferring all, or many, messages of an entity, so that they can be settled by their numbers in any order."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from sbnotebook.model import Defer, MessageState, Report
from sbnotebook.settlement import engine
from sbnotebook.settlement.actions.reach import Reach, settling
from sbnotebook.settlement.actions.selection import Chosen, select
from sbnotebook.settlement.costs import Cost
from sbnotebook.settlement.engine import Run
from sbnotebook.settlement.locking.ahead import Search
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import Limits, Plan, Preview
from sbnotebook.settlement.terms import Progress

_BY_NUMBER: Final = (
    "From then on they can only be received by sequence number. The numbers are written to the journal of this machine "
    "before."
)


async def plan_defer_all(place: Place, chosen: Chosen, progress: Progress | None = None) -> Plan:
    """Peek at all messages, and return a plan to defer active ones. Messages that come later stay active."""
    seen = await select(place, replace(chosen, state=MessageState.ACTIVE), progress)
    seen.check_reach("deferred")
    sentence = seen.sentence(Defer.verb, place, _BY_NUMBER)

    def describe(rows: int) -> Preview:
        return Preview(sentence, tuple(seen.messages[:rows]))

    async def carry_out(plan: Plan, limits: Limits, progress: Progress | None) -> Report:
        look = partial(_defer, place, seen.standing)
        return await engine.carry_out(plan.messages, plan.decision, look, limits, progress, Report())

    return Plan(
        place.address,
        Defer(),
        tuple(seen.messages),
        carry_out,
        describe=describe,
        speeds=place.namespace.speeds,
        on=place.namespace.in_plans,
        cost=Cost(others=seen.between),
    )


async def _defer(place: Place, standing: int, run: Run) -> None:
    reach = Reach(place, run, settling(run, Defer()), Defer(), search=Search(expected=standing))
    await reach.active(run.messages, from_head=len(run.messages) == standing)
    await reach.those_left(run.without_outcome())
