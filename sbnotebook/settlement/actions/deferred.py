"""Deferred messages, which the service gives by their sequence numbers only: found, locked and settled."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import anyio
import anyio.to_thread

from sbnotebook.errors import DecisionError
from sbnotebook.model import (
    Complete,
    Decision,
    EntityAddress,
    MessageState,
    PeekedMessage,
    ReceivedMessage,
    Report,
)
from sbnotebook.model.message import time_text
from sbnotebook.settlement.actions.reach import Reach, settling
from sbnotebook.settlement.engine import Run
from sbnotebook.settlement.memory.journal import DeferralEntry
from sbnotebook.settlement.pace import AUTO, InFlight
from sbnotebook.settlement.place import Place
from sbnotebook.settlement.plan import Limits, Plan, check_decision


@dataclass(frozen=True, slots=True)
class Deferrals:
    """The deferred messages of an entity.

    Args:
        entity: which one.
        messages: when the messages that are deferred there now were enqueued, by number.
        entries: what the journal has of the entity, by number.
    """

    entity: EntityAddress
    messages: Mapping[int, datetime | None]
    entries: Mapping[int, DeferralEntry]

    @property
    def orphans(self) -> tuple[int, ...]:
        """Return the numbers of deferred messages that the journal does not have."""
        return tuple(number for number in self.messages if number not in self.entries)

    @property
    def gone(self) -> tuple[DeferralEntry, ...]:
        """Return the entries of the journal whose messages are not deferred in the entity."""
        return tuple(entry for number, entry in self.entries.items() if number not in self.messages)

    def __str__(self) -> str:
        found, orphans = len(self.messages), len(self.orphans)
        split = f": {found - orphans:,} in the journal, {orphans:,} orphans" if found else ""
        return f"{found:,} deferred in {self.entity}{split}; {len(self.gone):,} in the journal only"


async def compare_deferrals(place: Place, look: Callable[[], Awaitable[Mapping[int, datetime | None]]]) -> Deferrals:
    """Compare the journal with the deferred messages; ``look`` finds when each was enqueued, by number."""
    deferrals, entity = place.namespace.tables.deferrals, place.address
    # A message that is deferred or settled meanwhile must not look as if it were gone.
    before = await anyio.to_thread.run_sync(deferrals, entity)
    messages = await look()
    after = await anyio.to_thread.run_sync(deferrals, entity) if before.keys() != messages.keys() else before
    gone = {number: entry for number, entry in before.items() if number in after and number not in messages}
    known = {
        number: entry
        for number, entry in (before | after).items()
        # Another enqueued time: it is of an earlier entity with the same name.
        if number in messages and entry.enqueued_time == time_text(messages[number])
    }
    return Deferrals(entity, messages, known | gone)


def plan_deferred(place: Place, messages: Iterable[ReceivedMessage], decision: Decision) -> Plan:
    """Return a plan to complete, dead-letter or abandon deferred messages, which are locked by their numbers."""
    check_decision(decision, place.address, deferred=True)
    chosen = tuple(messages)
    others = [m for m in chosen if m.entity != place.address or m.state is not MessageState.DEFERRED]
    if others:
        raise DecisionError(
            f"{len(others):,} of the messages are not deferred in {place.address} "
            f"(the first is #{others[0].sequence_number}): choose from its deferred messages."
        )

    return place.new_plan(decision, chosen, lambda run: Reach(place, run, settling(run)).deferred(run.messages))


async def settle_deferred(
    place: Place,
    decisions: Mapping[int, Decision],
    *,
    max_in_flight: InFlight = AUTO,
    archived: bool = True,
    journalled: bool = True,
) -> Report:
    """Settle deferred messages by their numbers, each as it was decided."""
    for decision in set(decisions.values()):
        check_decision(decision, place.address, deferred=True)
    state = MessageState.DEFERRED
    messages = [PeekedMessage(entity=place.address, sequence_number=number, state=state) for number in decisions]
    run = Run(messages, Complete(), Limits(max_in_flight), decisions=decisions)
    reach = Reach(place, run, settling(run), archived=archived, journalled=journalled)
    return await run.carry_out(lambda run: reach.deferred(run.messages))
