"""A held batch of messages, for synchronous code."""

from __future__ import annotations

from collections.abc import Iterable
from types import TracebackType
from typing import Self

from sbnotebook.client import query, tables
from sbnotebook.client.plan import Plan
from sbnotebook.client.portal import portal, run
from sbnotebook.model import (
    Abandon,
    Complete,
    DeadLetter,
    Decision,
    Defer,
    LockedMessage,
    Release,
    Report,
)
from sbnotebook.settlement.lock import LockedBatch as AsyncLockedBatch
from sbnotebook.settlement.namespace import AsyncEntity

__all__ = ["LockedBatch"]


class LockedBatch:
    """Messages that are held under locks, renewed in the background until they are settled or the batch is closed.

    Closing releases what was not settled, which does not raise a delivery count. Made by ``entity.lock(…)``.

    Args:
        entity: where the messages are.
        batch: the asynchronous batch, not open yet.
    """

    def __init__(self, entity: AsyncEntity, batch: AsyncLockedBatch) -> None:
        self.address = entity.address
        self._entity = entity
        self._batch = batch
        self._opened = portal().wrap_async_context_manager(batch)
        self._opened.__enter__()
        self._open = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def messages(self) -> tuple[LockedMessage, ...]:
        """The messages that are held now."""
        return self._batch.messages

    @property
    def lost(self) -> tuple[int, ...]:
        """Sequence numbers of messages whose lock ended before they were settled."""
        return self._batch.lost

    @property
    def renewal_error(self) -> str | None:
        """Why the last renewal failed, None when it did not."""
        return self._batch.renewal_error

    def receive(self, count: int, *, max_wait: float = 5.0) -> tuple[LockedMessage, ...]:
        """Lock more messages: see :meth:`sbnotebook.settlement.lock.LockedBatch.receive`."""

        async def receive() -> tuple[LockedMessage, ...]:
            return await self._batch.receive(count, max_wait=max_wait)

        return run(receive)

    def plan(
        self, decision: Decision, messages: Iterable[LockedMessage] | None = None, *, where: str | None = None
    ) -> Plan:
        """A plan to settle messages of this batch.

        Args:
            decision: what is to be done.
            messages: which ones, all that are held by default.
            where: of these, only those for which this SQL expression is true.
        """
        chosen = query.where(tuple(self.messages if messages is None else messages), where)
        return Plan(self._entity.plan(self._batch, decision, chosen))

    def complete(self, messages: Iterable[LockedMessage] | None = None, *, where: str | None = None) -> Report:
        """Complete messages: they are done with and removed. Arguments as for :meth:`plan`."""
        return self.plan(Complete(), messages, where=where).apply()

    def abandon(self, messages: Iterable[LockedMessage] | None = None, *, where: str | None = None) -> Report:
        """Abandon messages: they are delivered again, with a delivery count one higher."""
        return self.plan(Abandon(), messages, where=where).apply()

    def dead_letter(
        self,
        messages: Iterable[LockedMessage] | None = None,
        *,
        where: str | None = None,
        reason: str | None = None,
        description: str | None = None,
    ) -> Report:
        """Dead-letter messages with a reason and a description."""
        return self.plan(DeadLetter(reason, description), messages, where=where).apply()

    def defer(self, messages: Iterable[LockedMessage] | None = None, *, where: str | None = None) -> Report:
        """Defer messages: from then on they are received by their sequence numbers only."""
        return self.plan(Defer(), messages, where=where).apply()

    def release(self, messages: Iterable[LockedMessage] | None = None, *, where: str | None = None) -> Report:
        """Release messages: they are given back as if they had not been delivered."""
        return self.plan(Release(), messages, where=where).apply()

    def close(self) -> None:
        """Release what is still held and close the receiver. Closing twice does nothing more."""
        if self._open:
            self._open = False
            self._opened.__exit__(None, None, None)

    def __len__(self) -> int:
        return len(self.messages)

    def __repr__(self) -> str:
        return tables.messages_text(self.messages, self._caption)

    def _repr_html_(self) -> str:
        return tables.messages_html(self.messages, self._caption)

    @property
    def _caption(self) -> str:
        lost = f", {len(self.lost):,} locks lost" if self.lost else ""
        failing = f", {self.renewal_error}" if self.renewal_error else ""
        return f"Locked in {self.address}{lost}{failing}"
