"""The deferred messages of an entity, compared with the journal, and the plans that settle them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing
from datetime import datetime
from typing import TYPE_CHECKING, NamedTuple, cast

from sbnotebook.analysis import frames, query
from sbnotebook.client.async_plan import AsyncPlan
from sbnotebook.client.choosing import Choice, chosen_of
from sbnotebook.client.coercions import dead_letter
from sbnotebook.client.messages import Messages
from sbnotebook.client.portal import blocking
from sbnotebook.client.verbs import documented
from sbnotebook.model import Abandon, Complete, Decision, MessageState, PeekedMessage
from sbnotebook.settlement import AsyncEntity as Place
from sbnotebook.settlement import DeferralEntry, Deferrals, Page, PeekCursor, Progress, compare_deferrals
from sbnotebook.settlement import Plan as InnerPlan

if TYPE_CHECKING:
    import pyarrow as pa


class DeferredRow(NamedTuple):
    """The sequence number of a deferred message, and its enqueued time."""

    number: int
    enqueued_time: datetime | None


@documented
class AsyncDeferredMessages(Messages):
    """The deferred messages of an entity, compared with the journal. Made by ``await entity.deferred()``.

    Plans settle them; resubmit them with ``await entity.resubmit(…)``.

    Args:
        place: their entity.
        table: the messages that are in the entity, with all message columns.
        found: their numbers, and those that are in the journal.
        where_from: the table's caption; None for ``found`` in words.
    """

    def __init__(
        self, place: Place, table: pa.Table, found: Deferrals[DeferredRow], *, where_from: str | None = None
    ) -> None:
        super().__init__(table, where_from=str(found) if where_from is None else where_from)
        self._place = place
        self._found = found

    def where(self, expression: str | None) -> AsyncDeferredMessages:
        """Return the messages for which a SQL expression over the message columns is true; plans settle them, too."""
        return cast("AsyncDeferredMessages", super().where(expression))

    def _with(self, table: pa.Table) -> AsyncDeferredMessages:
        return AsyncDeferredMessages(self._place, table, self._found, where_from=self.where_from)

    @property
    def orphans(self) -> AsyncDeferredMessages:
        """Return those that are not in this journal: another machine deferred them, or the journal was lost."""
        orphans = {row.number for row in self._found.orphans}
        numbers = frames.values_of_column(self._arrow.column("sequence_number"))
        places = [place for place, number in enumerate(numbers) if number in orphans]
        table = self._in_places(places).to_arrow()
        caption = f"Orphans in {self._place.address}"
        return AsyncDeferredMessages(self._place, table, self._found, where_from=caption)

    @property
    def gone(self) -> tuple[DeferralEntry, ...]:
        """Return those that are only in the journal: settled elsewhere, expired, or never deferred."""
        return self._found.gone

    async def plan(self, decision: Decision, messages: Choice | None = None, *, where: str | None = None) -> AsyncPlan:
        """Plan to settle deferred messages.

        Args:
            decision: complete, dead-letter or abandon.
            messages: which ones, as for ``entity.pick``; all of these by default.
            where: of these, only those for which this SQL expression is true.

        Raises:
            DecisionError: the decision is not possible, or a message is not deferred there.
        """

        def planned() -> InnerPlan:
            chosen = chosen_of(self, messages, self._place.address, PeekedMessage)
            return self._place.plan_deferred(query.where(chosen, where), decision)

        return AsyncPlan(await blocking(planned))

    async def complete(self, messages: Choice | None = None, *, where: str | None = None) -> AsyncPlan:
        """Plan to complete messages, which removes them. Arguments as for :meth:`plan`."""
        return await self.plan(Complete(), messages, where=where)

    async def abandon(self, messages: Choice | None = None, *, where: str | None = None) -> AsyncPlan:
        """Plan to abandon messages: they stay deferred, with a delivery count one higher."""
        return await self.plan(Abandon(), messages, where=where)

    async def dead_letter(
        self,
        messages: Choice | None = None,
        *,
        where: str | None = None,
        reason: str | None = None,
        description: str | None = None,
        error_description: str | None = None,
    ) -> AsyncPlan:
        """Plan to dead-letter messages with a reason and a description. Other arguments as for :meth:`plan`.

        Args:
            messages: which ones, all of these by default.
            where: of these, only those for which this SQL expression is true.
            reason: short, and the same for the same cause.
            description: the fault of the message.
            error_description: the name of ``description`` in the SDK, which is accepted, too.
        """
        return await self.plan(dead_letter(reason, description, error_description), messages, where=where)


async def deferred_messages(place: Place, progress: Progress | None = None) -> AsyncDeferredMessages:
    """Compare the journal with the entity, which is peeked to its end."""
    table = frames.to_arrow(())

    async def look() -> dict[int, DeferredRow]:
        nonlocal table
        cursor = PeekCursor(state=MessageState.DEFERRED)
        pages = _counted(place.peeker.unread_pages(cursor), progress)
        table = await frames.one_table(frames.tables_of_pages(pages, cursor))
        numbers = frames.values_of_column(table.column("sequence_number"))
        times = frames.values_of_column(table.column("enqueued_time"))
        return dict(zip(numbers, map(DeferredRow, numbers, times), strict=True))

    found = await compare_deferrals(place, look)
    return AsyncDeferredMessages(place, table, found)


async def _counted(pages: AsyncIterator[Page], progress: Progress | None) -> AsyncGenerator[Page]:
    async with aclosing(cast("AsyncGenerator[Page]", pages)):
        async for page in pages:
            if progress is not None:
                progress(len(page.payloads))
            yield page
