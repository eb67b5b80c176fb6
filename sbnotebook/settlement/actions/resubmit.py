"""Sending a clone of a message and completing the original, so that nothing is lost and nothing is sent twice.

The order is: journal the intent, send the clone, wait for its confirmation, complete the original, journal the end.
A crash leaves either the original alone, or a clone whose id tells that it is one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    MessageState,
    ReceivedMessage,
    Resubmit,
)
from sbnotebook.settlement.actions.atomic import check_atomic
from sbnotebook.settlement.actions.ramp import apply_with_ramp
from sbnotebook.settlement.actions.reach import Reach
from sbnotebook.settlement.actions.resubmit_steps import ResubmitSteps
from sbnotebook.settlement.costs import Cost
from sbnotebook.settlement.engine import BESIDE, GROUP, Run
from sbnotebook.settlement.locking.ahead import Search
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import Edit, Plan, refuse_coroutine_function
from sbnotebook.settlement.resources import Resources

_ATOMIC_GROUP: Final = 1
"""Messages that take their steps together where each has a transaction of its own, which may take minutes."""


def plan_resubmit(
    place: Place,
    messages: Iterable[ReceivedMessage],
    decision: Resubmit | None = None,
    *,
    edit: Edit | None = None,
    search: Search | None = None,
    to_namespace: Resources | None = None,
) -> Plan:
    """Return a plan to send clones of messages and to complete the originals; by default to the entity itself."""
    decision = _elsewhere(place, decision, to_namespace)
    decision = replace(decision or Resubmit(), to=(decision.to if decision else None) or place.address.sends_to)
    chosen = tuple(messages)
    strangers = [message for message in chosen if message.entity != place.address]
    if strangers:
        raise DecisionError(
            f"{len(strangers)} of the messages are not in {place.address} "
            f"(the first is in {strangers[0].entity}): resubmit them there."
        )
    refuse_coroutine_function(edit, "An edit")
    if decision.atomic:
        check_atomic(place.address, decision, chosen)

    async def work(run: Run) -> None:
        await resubmit(place, run, run.messages, decision, edit=edit, search=search, to_namespace=to_namespace)

    return place.new_plan(
        decision,
        chosen,
        work,
        edit=edit,
        cost=Cost(transfers=2, others=max(search.expected - len(chosen), 0) if search else 0),
        with_ramp=partial(apply_with_ramp, place, to_namespace or place.namespace),
    )


def _elsewhere(place: Place, decision: Resubmit | None, to_namespace: Resources | None) -> Resubmit | None:
    """Return the decision; to resubmit to another namespace, it names that namespace."""
    if to_namespace is None or to_namespace is place.namespace:
        return decision
    if decision is None or decision.to is None:
        raise DecisionError("Name the entity of the other namespace: to=other.entity(…).")
    if decision.atomic:
        raise DecisionError("A transaction is within one namespace: resubmit to another one without atomic.")
    place.namespace.connection.require_writing()
    to_namespace.connection.require_writing()
    return replace(decision, to_host=to_namespace.host)


async def resubmit(
    place: Place,
    run: Run,
    messages: Sequence[ReceivedMessage],
    decision: Resubmit,
    *,
    edit: Edit | None = None,
    only_begun: bool = False,
    search: Search | None = None,
    to_namespace: Resources | None = None,
) -> None:
    """Find the originals of a run, and take them through the steps of a resubmit."""
    steps = ResubmitSteps(
        place.namespace, place.address, run, decision, edit, only_begun=only_begun, to_namespace=to_namespace
    )
    if not only_begun:
        await place.namespace.require_room(messages)  # before a clone is sent
    reach = Reach(
        place,
        run,
        steps.run_group,
        group=_ATOMIC_GROUP if decision.atomic else GROUP,
        search=search or Search(),
        beside=0 if decision.atomic else BESIDE,
        in_order=True,
        # A message whose lock was lost after its clone was sent comes again: it is completed, not sent again.
        again=lambda: steps.lost_after_sending,
        patience=0.0 if only_begun else None,  # a resume waits as long as it is asked to
        # A destination that cannot be sent to raises before anything is locked.
        ready=None if only_begun else steps.open,
    )
    try:
        # Scheduled messages never come, and to look for them would lock all others.
        await reach.active([message for message in messages if message.state is MessageState.ACTIVE])
        await reach.find_missing([message for message in messages if run.outcome_of(message) is None])
    finally:
        await steps.close()
