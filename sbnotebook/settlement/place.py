"""One address of a namespace, as the place that holds messages: its pages, batches and sessions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from datetime import timedelta
from typing import Any, TypeVar

from sbnotebook.model import Complete, Decision, EntityAddress, MessageState, PeekedMessage, ReceivedMessage, Report
from sbnotebook.settlement.engine import Run
from sbnotebook.settlement.locking.lock import DEFAULT_RENEW_FOR, LockedBatch
from sbnotebook.settlement.locking.sessions import SessionBatch, refuse_sub_queue
from sbnotebook.settlement.patience import patiently
from sbnotebook.settlement.peek import PeekCursor, Peeker
from sbnotebook.settlement.plan import Limits, Plan
from sbnotebook.settlement.resources import Resources
from sbnotebook.settlement.terms import Progress

T = TypeVar("T")


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
        finds_messages: bool = False,
        **details: Any,
    ) -> Plan:
        """Return a plan whose messages ``work`` takes through their steps; the details are further fields of it.

        Where ``finds_messages``, the work begins without any; else it is left out where there are none.
        """

        async def carry_out(plan: Plan, limits: Limits, progress: Progress | None) -> Report:
            run = Run(plan.messages, plan.decision, limits, progress)
            return await run.carry_out(work) if plan.messages or finds_messages else run.report()

        details = {"costs": self.namespace.costs, "on": self.namespace.in_plans} | details
        return Plan(self.address, decision, tuple(messages), carry_out, **details)

    # ---------------------------------------------------------------- looking

    @property
    def peeker(self) -> Peeker:
        """Return what looks at its messages, over a connection that is kept warm."""
        return self.namespace.peeker(self.address)

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
        cursor = PeekCursor(from_sequence_number, to_sequence_number, max_messages, state, session_id)
        async for page in self.peeker.pages(cursor):
            found += page
            if progress is not None:
                progress(len(page))
        return found

    def patiently(self, attempt: Callable[..., Awaitable[T]], *arguments: object) -> Awaitable[T]:
        """Call a function, and call it again for a minute while Service Bus does not answer."""
        return patiently(attempt, *arguments, address=self.address)

    # ---------------------------------------------------------------- locking

    def batch(
        self,
        verb: str = Complete.verb,
        *,
        renew_for: timedelta = DEFAULT_RENEW_FOR,
        archived: bool = True,
        journalled: bool = True,
        keep_bodies: bool = True,
    ) -> LockedBatch:
        """Return an empty batch to lock messages with; open it as an asynchronous context manager."""
        namespace = self.namespace
        return LockedBatch(
            namespace.connection,
            self.peeker,
            renew_for=renew_for,
            clock=namespace.clock,
            records=namespace.records(verb, archived=archived, journalled=journalled),
            keep_bodies=keep_bodies,
        )

    # ---------------------------------------------------------------- sessions

    async def sessions(self) -> list[str]:
        """List the sessions that have active messages or a state, in the order of Service Bus."""
        refuse_sub_queue(self.address)
        found = self.namespace.connection.browser(self.address).list_sessions()
        # The list may change while the service reads it, so a session may appear twice.
        return list(dict.fromkeys([session_id async for session_id in found]))

    def session(
        self,
        session_id: str | None,
        verb: str = Complete.verb,
        *,
        max_wait: float = 60.0,
        renew_for: timedelta = DEFAULT_RENEW_FOR,
        archived: bool = True,
        journalled: bool = True,
    ) -> SessionBatch:
        """Return a session by its name; an asynchronous context manager that holds it alone.

        None is the next session that has messages and that no receiver holds. Opening it raises the SDK's
        OperationTimeoutError when there is none within ``max_wait`` seconds.
        """
        return SessionBatch(
            self.namespace.connection,
            self.peeker,
            session_id,
            max_wait=max_wait,
            renew_for=renew_for,
            clock=self.namespace.clock,
            records=self.namespace.records(verb, archived=archived, journalled=journalled),
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.address} on {self.namespace.host}>"
