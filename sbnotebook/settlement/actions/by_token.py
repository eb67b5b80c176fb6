"""Settling messages that another receiver locked, in this process or another: by their lock tokens.

The service owns a lock, not the connection. While the lock lasts, its token settles the message over any connection
(operation ``com.microsoft:update-disposition``; Service Bus documentation, "AMQP 1.0 in Azure Service Bus:
request-response-based operations"). Only releasing a message needs the link that delivered it.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from sbnotebook.errors import DecisionError
from sbnotebook.model import Decision, EntityAddress, LockedMessage, Release
from sbnotebook.settlement.engine import Run
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import Plan
from sbnotebook.settlement.terms import check_decision

LockReference = LockedMessage | tuple[int, UUID | str]
"""A message as it was locked, or its sequence number and lock token."""


def plan_by_token(place: Place, decision: Decision, locks: Iterable[LockReference]) -> Plan:
    """Return a plan to settle messages by their lock tokens, which alone decide."""
    check_decision(decision, place.address)
    if isinstance(decision, Release):
        raise DecisionError(
            "A message can be released only by the batch that locked it: abandon it, which raises its delivery count, "
            "or let its lock end."
        )
    chosen = tuple(_locked(lock, place.address) for lock in locks)

    async def work(run: Run) -> None:
        async with place.batch() as adopting:
            run.begin_with(await adopting.adopt(chosen))
            await adopting.settle_in(decision, run.messages, run)

    return place.new_plan(decision, chosen, work)


def _locked(lock: LockReference, entity: EntityAddress) -> LockedMessage:
    if isinstance(lock, LockedMessage):
        if lock.entity != entity:
            raise DecisionError(f"#{lock.sequence_number} is in {lock.entity}, not in {entity}.")
        return lock
    try:
        number, token = lock
        return LockedMessage(entity=entity, sequence_number=int(number), lock_token=UUID(str(token)))
    except (TypeError, ValueError):
        raise DecisionError(
            "A lock is a message that was locked, or its sequence number and its lock token, "
            'such as (7, "7a5ebd3e-b74d-4b4e-9fc2-8a1f0f6f0b6c").'
        ) from None
