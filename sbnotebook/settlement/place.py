"""One address of a namespace, as the place that holds messages: its pages, batches and sessions."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from sbnotebook.model import Complete, Decision, EntityAddress, MessageState, PeekedMessage, ReceivedMessage, Report
from sbnotebook.settlement.engine import Run
from sbnotebook.settlement.locking.lock import DEFAULT_RENEW_FOR, LockedBatch
from sbnotebook.settlement.locking.sessions import SessionBatch, session_ids
from sbnotebook.settlement.peek import Page, PeekCursor
from sbnotebook.settlement.plan import Limits, Plan
from sbnotebook.settlement.resources import Resources
from sbnotebook.settlement.terms import Progress


class Place:
    """A queue, topic, subscription or sub-queue, with its pages and locks."""

    def __init__(self, namespace: Resources, address: EntityAddress) -> None:
        self.namespace = namespace
        self.address = address

    @property
    def in_plans(self) -> str:
        """Return the words with which a plan names the place: its address, on its namespace."""
        return f"{self.address}{self.namespace.in_plans}"

    def new_plan(
        self,
        decision: Decision,
        messages: Iterable[ReceivedMessage],
        work: Callable[[Run], Awaitable[None]],
        *,
        gives_back: bool = True,
        **details: Any,
    ) -> Plan:
        """Return a plan that is carried out by one run.

        Args:
            decision: the action.
            messages: the messages of the plan.
            work: takes the messages of the run through their steps.
            gives_back: whether it locks messages to reach others, so that its report has how they were given back.
            details: further fields of the plan.
        """

        def carry_out(plan: Plan, limits: Limits, progress: Progress | None) -> Awaitable[Report]:
            rest = Report() if gives_back else None
            return Run(plan.messages, plan.decision, limits, progress, rest).carry_out(work)

        speeds, on = self.namespace.speeds, self.namespace.in_plans
        return Plan(self.address, decision, tuple(messages), carry_out, speeds=speeds, on=on, **details)

    # ---------------------------------------------------------------- looking

    def pages(
        self,
        *,
        from_sequence_number: int = 1,
        to_sequence_number: int | None = None,
        max_messages: int | None = None,
        state: MessageState | None = None,
        session_id: str | None = None,
    ) -> AsyncIterator[list[PeekedMessage]]:
        """Yield page after page to the end: see :meth:`sbnotebook.settlement.peek.Peeker.pages`."""
        return self.namespace.peeker(self.address).pages(
            from_sequence_number=from_sequence_number,
            to_sequence_number=to_sequence_number,
            max_messages=max_messages,
            state=state,
            session_id=session_id,
        )

    def unread_pages(self, cursor: PeekCursor, *, session_id: str | None = None) -> AsyncIterator[Page]:
        """Yield page after page as bytes: see :meth:`sbnotebook.settlement.peek.Peeker.unread_pages`."""
        return self.namespace.peeker(self.address).unread_pages(cursor, session_id=session_id, only_busy=True)

    async def peek(
        self,
        max_messages: int | None = None,
        *,
        from_sequence_number: int = 1,
        to_sequence_number: int | None = None,
        state: MessageState | None = None,
        session_id: str | None = None,
        progress: Progress | None = None,
    ) -> list[PeekedMessage]:
        """Look at messages without locking them."""
        found: list[PeekedMessage] = []
        pages = self.namespace.peeker(self.address).pages(
            from_sequence_number=from_sequence_number,
            to_sequence_number=to_sequence_number,
            max_messages=max_messages,
            state=state,
            session_id=session_id,
        )
        async for page in pages:
            found += page
            if progress is not None:
                progress(len(page))
        return found

    # ---------------------------------------------------------------- locking

    def batch(
        self,
        *,
        renew_for: timedelta = DEFAULT_RENEW_FOR,
        verb: str = Complete.verb,
        archived: bool = True,
        recorded: bool = True,
        keep_bodies: bool = True,
    ) -> LockedBatch:
        """Return an empty batch to lock messages with; open it as an asynchronous context manager."""
        namespace = self.namespace
        return LockedBatch(
            namespace.connection,
            namespace.peeker(self.address),
            renew_for=renew_for,
            clock=namespace.clock,
            records=namespace.records(verb, archived=archived) if recorded else (),
            keep_bodies=keep_bodies,
        )

    def batch_of(
        self,
        verb: str,
        *,
        renew_for: timedelta,
        session_id: str | None = None,
        archived: bool = True,
        journalled: bool = True,
    ) -> LockedBatch:
        """Return an empty batch for an action, in a session where the entity requires one."""
        namespace = self.namespace
        records = namespace.records(verb, archived=archived, journalled=journalled)
        where = namespace.connection, namespace.peeker(self.address)
        if session_id is None:
            return LockedBatch(*where, renew_for=renew_for, clock=namespace.clock, records=records)
        return SessionBatch(*where, session_id, renew_for=renew_for, clock=namespace.clock, records=records)

    # ---------------------------------------------------------------- sessions

    async def sessions(self, *, updated_after: datetime | None = None) -> list[str]:
        """List the sessions that have active messages or a state.

        See :func:`sbnotebook.settlement.locking.sessions.session_ids`.
        """
        return await session_ids(self.namespace.connection, self.address, updated_after=updated_after)

    def session(
        self, session_id: str, *, renew_for: timedelta = DEFAULT_RENEW_FOR, archived: bool = True
    ) -> SessionBatch:
        """Return a session by its name; open it as an asynchronous context manager to hold it alone."""
        return self._session(session_id, renew_for=renew_for, archived=archived)

    def next_session(
        self, *, max_wait: float = 60.0, renew_for: timedelta = DEFAULT_RENEW_FOR, archived: bool = True
    ) -> SessionBatch:
        """Return the next session that has messages and that no receiver holds; opened as :meth:`session` is.

        Opening it raises the SDK's OperationTimeoutError when there is none within ``max_wait`` seconds.
        """
        return self._session(None, max_wait=max_wait, renew_for=renew_for, archived=archived)

    def _session(
        self, session_id: str | None, *, renew_for: timedelta, archived: bool, max_wait: float = 60.0
    ) -> SessionBatch:
        namespace = self.namespace
        return SessionBatch(
            namespace.connection,
            namespace.peeker(self.address),
            session_id,
            max_wait=max_wait,
            renew_for=renew_for,
            clock=namespace.clock,
            records=namespace.records(archived=archived),
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address} on {self.namespace.host}>"
