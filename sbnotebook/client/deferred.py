"""The deferred messages of an entity, compared with the journal, and the plans that settle them.

Do not edit: ``make format`` writes this file from async_deferred.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sbnotebook.client.async_deferred import AsyncDeferredMessages
from sbnotebook.client.choosing import Choice
from sbnotebook.client.messages import Messages
from sbnotebook.client.plan import Plan
from sbnotebook.client.portal import run
from sbnotebook.client.verbs import Twin
from sbnotebook.model import Decision
from sbnotebook.settlement import DeferralEntry

if TYPE_CHECKING:
    import pyarrow as pa


class DeferredMessages(Messages, Twin):
    """The deferred messages of an entity, compared with the journal. Made by ``entity.deferred()``.

    Plans settle them; resubmit them with ``entity.resubmit(…)``.
    """

    def __init__(self, asynchronous: AsyncDeferredMessages) -> None:
        super().__init__(asynchronous.to_arrow(), where_from=asynchronous.where_from, note=asynchronous.note)
        self._deferred = asynchronous

    @property
    def asynchronous(self) -> AsyncDeferredMessages:
        """Return the asynchronous twin."""
        return self._deferred

    def where(self, expression: str | None) -> DeferredMessages:
        """Return the messages for which a SQL expression over the message columns is true; plans settle them, too."""
        return DeferredMessages(self._deferred.where(expression))

    def _with(self, table: pa.Table) -> DeferredMessages:
        return DeferredMessages(self._deferred._with(table))  # noqa: SLF001  # pyright: ignore[reportPrivateUsage]

    @property
    def orphans(self) -> DeferredMessages:
        """Return those that are not in this journal: another machine deferred them, or the journal was lost."""
        return DeferredMessages(self._deferred.orphans)

    @property
    def gone(self) -> tuple[DeferralEntry, ...]:
        """Return those that are only in the journal: settled elsewhere, expired, or never deferred."""
        return self._deferred.gone

    def plan(self, decision: Decision, messages: Choice | None = None, *, where: str | None = None) -> Plan:
        """Plan to settle deferred messages.

        Args:
            decision: complete, dead-letter or abandon.
            messages: which ones, as for ``entity.pick``; all of these by default.
            where: of these, only those for which this SQL expression is true.

        Raises:
            DecisionError: the decision is not possible, or a message is not deferred there.
        """
        return Plan(run(self._deferred.plan, decision, messages, where=where))

    def complete(self, messages: Choice | None = None, *, where: str | None = None) -> Plan:
        """Plan to complete messages, which removes them. Arguments as for :meth:`plan`."""
        return Plan(run(self._deferred.complete, messages, where=where))

    def abandon(self, messages: Choice | None = None, *, where: str | None = None) -> Plan:
        """Plan to abandon messages: they stay deferred, with a delivery count one higher."""
        return Plan(run(self._deferred.abandon, messages, where=where))

    def dead_letter(
        self,
        messages: Choice | None = None,
        *,
        where: str | None = None,
        reason: str | None = None,
        description: str | None = None,
        error_description: str | None = None,
    ) -> Plan:
        """Plan to dead-letter messages with a reason and a description. Other arguments as for :meth:`plan`.

        Args:
            messages: which ones, all of these by default.
            where: of these, only those for which this SQL expression is true.
            reason: short, and the same for the same cause.
            description: the fault of the message.
            error_description: the name of ``description`` in the SDK, which is accepted, too.
        """
        return Plan(
            run(
                self._deferred.dead_letter,
                messages,
                where=where,
                reason=reason,
                description=description,
                error_description=error_description,
            )
        )
