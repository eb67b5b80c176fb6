"""Deferred messages for synchronous code."""

from __future__ import annotations

from collections.abc import Iterable

from sbnotebook.analysis import query
from sbnotebook.client.messages import Messages
from sbnotebook.client.plan import Plan
from sbnotebook.model import Abandon, Complete, DeadLetter, Decision, ReceivedMessage
from sbnotebook.settlement.deferring.deferred import Deferrals
from sbnotebook.settlement.entity import AsyncEntity
from sbnotebook.settlement.memory.deferral_ledger import DeferralEntry

__all__ = ["DeferredMessages"]


class DeferredMessages(Messages):
    """The messages that are deferred in an entity, and what the journal says of them. Made by ``entity.deferred()``.

    They are settled by plans; resubmit them with ``entity.resubmit(…)``.

    Args:
        entity: where they stand.
        found: what was found there and in the journal.
    """

    def __init__(self, entity: AsyncEntity, found: Deferrals) -> None:
        super().__init__(found.messages.values(), where_from=str(found))
        self._entity = entity
        self._found = found

    @property
    def orphans(self) -> Messages:
        """Those that this journal does not have: somebody else deferred them, or the journal was lost."""
        return Messages(self._found.orphans, where_from=f"Orphans in {self._entity.address}")

    @property
    def gone(self) -> tuple[DeferralEntry, ...]:
        """What the journal has and the entity has not: settled elsewhere, expired, or never deferred."""
        return self._found.gone

    def plan(
        self, decision: Decision, messages: Iterable[ReceivedMessage] | None = None, *, where: str | None = None
    ) -> Plan:
        """A plan to settle deferred messages.

        Args:
            decision: complete, dead-letter or abandon.
            messages: which ones, all of these by default.
            where: of these, only those for which this SQL expression is true.

        Raises:
            DecisionError: the decision is not possible, or a message is not deferred there.
        """
        chosen = query.where(tuple(self if messages is None else messages), where)
        return Plan(self._entity.plan_deferred(chosen, decision))

    def complete(self, messages: Iterable[ReceivedMessage] | None = None, *, where: str | None = None) -> Plan:
        """A plan to complete messages: they are done with and removed. Arguments as for :meth:`plan`."""
        return self.plan(Complete(), messages, where=where)

    def abandon(self, messages: Iterable[ReceivedMessage] | None = None, *, where: str | None = None) -> Plan:
        """A plan to abandon messages: they stay deferred, with a delivery count one higher."""
        return self.plan(Abandon(), messages, where=where)

    def dead_letter(
        self,
        messages: Iterable[ReceivedMessage] | None = None,
        *,
        where: str | None = None,
        reason: str | None = None,
        description: str | None = None,
    ) -> Plan:
        """A plan to dead-letter messages with a reason and a description."""
        return self.plan(DeadLetter(reason, description), messages, where=where)
