"""One address of a namespace, as the place that holds messages: its pages, batches, sessions and sequence numbers.

Service Bus counts the messages of an entity but does not say which numbers they have. Many numbers may have no message
any more. In a partitioned entity, the top 16 bits are the number of a partition, and each partition counts in the bits
below.

Source: Service Bus documentation, "Message sequencing and timestamps".
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from types import MappingProxyType
from typing import Any, Final, Self, TypeVar

import anyio
import anyio.to_thread

from sbnotebook.model import Complete, Decision, EntityAddress, MessageState, PeekedMessage, ReceivedMessage, Report
from sbnotebook.model.message import end_of_partition, partition_of
from sbnotebook.settlement.connecting.connection import Connection, identity_of
from sbnotebook.settlement.engine import Run
from sbnotebook.settlement.locking.lock import DEFAULT_RENEW_FOR, LockedBatch
from sbnotebook.settlement.locking.renewal import Clock
from sbnotebook.settlement.locking.sessions import SessionBatch, refuse_sub_queue
from sbnotebook.settlement.locking.settle import Record, recording_deferrals, recording_removals, room_of
from sbnotebook.settlement.locking.wake_up import scheduling_wake_ups
from sbnotebook.settlement.memory.archive import Archive
from sbnotebook.settlement.memory.journal import AssistantCalls, Journal, NamespaceTables
from sbnotebook.settlement.peek import PeekCursor, Peeker
from sbnotebook.settlement.plan import Limits, Plan, Progress
from sbnotebook.settlement.requests import patiently
from sbnotebook.settlement.sending.delivery import SenderPool


@dataclass(frozen=True, slots=True)
class Waits:
    """Seconds that the actions of a namespace wait. The defaults fit Azure; a test on an emulator needs less."""

    silence: float = 2.0
    held: float = 60.0
    first_pause: float = 0.5
    longest_pause: float = 8.0
    first_look: float = 1.0
    longest_look: float = 5.0
    idle_session: float = 1.0


class Resources:
    """The connections and records that all actions on a namespace share; connections open on first use."""

    waits: Waits = Waits()

    def __init__(
        self,
        connection: Connection,
        *,
        journal: Journal | None = None,
        clock: Clock | None = None,
        archive: Archive | bool | None = True,
    ) -> None:
        self.connection = connection
        self.journal = journal or Journal()
        self.archive = Archive.of(archive, self.journal.path.parent)
        self.clock = clock or Clock()
        self.speeds: dict[str, float] = {}
        """Messages a second of the last run of each action."""
        self._identity: str | None = None
        self._peekers: dict[EntityAddress, Peeker] = {}
        self._pools: dict[EntityAddress, SenderPool] = {}

    @property
    def host(self) -> str:
        """Return the namespace's host name."""
        return self.connection.host

    @property
    def in_plans(self) -> str:
        """Return the words with which a plan names the namespace; none for an emulator, which is on this machine."""
        return "" if self.connection.is_emulator else f" on {self.connection.name}"

    def identity(self) -> str:
        """Return the identity of the namespace in local files. Call it in a thread: the first call asks an emulator.

        See :func:`sbnotebook.settlement.connecting.connection.identity_of`.
        """
        if self._identity is None:
            self._identity = identity_of(self.connection)
        return self._identity

    def peeker(self, address: EntityAddress) -> Peeker:
        """Return the warm peeker of an entity."""
        return self._peekers.setdefault(address, Peeker(self.connection, address))

    def pool(self, address: EntityAddress) -> SenderPool:
        """Return the warm senders to an entity."""
        return self._pools.setdefault(address, SenderPool(self.connection, address))

    async def require_room(self, messages: Iterable[ReceivedMessage]) -> None:
        """Refuse to remove messages that the archive has no room for."""
        if self.archive is not None:
            await anyio.to_thread.run_sync(
                lambda archive: archive.require_room(sum(map(room_of, messages))), self.archive
            )

    def records(
        self, verb: str = Complete.verb, *, archived: bool = True, journalled: bool = True
    ) -> tuple[Record, ...]:
        """Return the local records to write around each settlement of one batch."""
        deferrals = partial(recording_deferrals, self.tables)
        always = (deferrals, partial(scheduling_wake_ups, self.pool, self.clock)) if journalled else ()
        if self.archive is None or not archived:
            return always
        return (*always, partial(recording_removals, self.archive, self.identity, self.peeker, verb))

    @property
    def tables(self) -> NamespaceTables:
        """Return what the journal has of this namespace; use it in a thread, the file may be busy."""
        return NamespaceTables(self.journal, self.identity)

    @property
    def assistant_calls(self) -> AssistantCalls:
        """Return the journal's calls of assistants in this namespace; use them in a thread, too."""
        return AssistantCalls(self.journal, self.identity)

    async def close(self) -> None:
        """Close all connections and files. Close the batches that are still open first."""
        peekers, self._peekers = list(self._peekers.values()), {}
        pools, self._pools = list(self._pools.values()), {}
        async with AsyncExitStack() as others:
            if self.archive is not None:
                others.callback(self.archive.close)
            others.callback(self.journal.close)
            others.push_async_callback(self.connection.close)
            # Each takes the SDK about half a second, and an error of one must not cancel the others.
            closing = (part.close() for part in (*peekers, *pools))
            for error in await asyncio.gather(*closing, return_exceptions=True):
                if error is not None:
                    raise error

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.host}>"


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

        details = {"speeds": self.namespace.speeds, "on": self.namespace.in_plans} | details
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
        return LockedBatch(
            self.namespace.connection,
            self.peeker,
            renew_for=renew_for,
            clock=self.namespace.clock,
            records=self.namespace.records(verb, archived=archived, journalled=journalled),
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


NextNumber = Callable[[int], Awaitable[int | None]]
"""Returns the first sequence number from this one on that has a message, None when there is none."""

LARGEST_NUMBER: Final = 2**63 - 1
_FIRST_STEP, _GROWTH = 256, 8
_NOTHING: Final[Mapping[int, int]] = MappingProxyType({})


class SequenceNumbers:
    """Finds the sequence numbers that messages of an entity have now.

    Args:
        next_number: returns the first number from one on that has a message, None when there is none; see :meth:`of`.

    Example:
        >>> async def newest(entity: AsyncEntity) -> dict[int, int]:
        ...     return await SequenceNumbers.of(entity).lasts()
    """

    def __init__(self, next_number: NextNumber) -> None:
        self.next = next_number

    @classmethod
    def of(cls, entity: Place, *, first: int = 1, patience: float = 0.0) -> Self:
        """Return the numbers of an entity from ``first`` on, which peeks one message at a time.

        While Service Bus does not answer, it is asked again for ``patience`` seconds.
        """

        async def next_number(number: int) -> int | None:
            page = await entity.peeker.page(max(number, first), 1, patience=patience)
            return page.last_number if page.payloads else None

        return cls(next_number)

    async def spans(self) -> list[tuple[int, int]]:
        """Return the first and the last number of each partition that has messages, in the order of Service Bus."""
        firsts = [each async for each in self.firsts()]
        return [(first, await self.last(first, end_of_partition(partition))) for partition, first in firsts]

    async def lasts(self, known: Mapping[int, int] = _NOTHING) -> dict[int, int]:
        """Return the last number that has a message, by partition; some partitions have none.

        With the last numbers of an earlier call, only greater ones are looked for.
        """
        lasts = dict(known)
        async for partition, first in self.firsts(known):
            lasts[partition] = await self.last(first, end_of_partition(partition))
        return lasts

    async def firsts(self, known: Mapping[int, int] = _NOTHING) -> AsyncIterator[tuple[int, int]]:
        """Yield the partitions that have messages, each with its first number: see :meth:`lasts`.

        Behind the last message of a partition, Service Bus continues with another one, in any order.
        """
        seen: set[int] = set()
        first = await self.next(known.get(0, 0) + 1)
        while first is not None and (partition := partition_of(first)) not in seen:
            seen.add(partition)
            passed = known.get(partition, -1)
            if first <= passed:  # the request was for another partition
                first = await self.next(passed + 1) if passed < LARGEST_NUMBER else None
                if first is None or partition_of(first) != partition:
                    continue
            yield partition, first
            end = end_of_partition(partition)
            if partition == 0 and await self.next(end + 1) is None:
                return  # there are no partitions
            last = await self.last(first, end)
            first = await self.next(last + 1) if last < LARGEST_NUMBER else None

    async def last(self, first: int, end: int, step: int = _FIRST_STEP) -> int:
        """Return the last number up to ``end`` that has a message; ``first`` has one.

        The search looks ``step`` beyond it at first; steps grow, then halve.
        """
        low, high = first, end + 1
        while high - low > 1:
            asked = low + step if low + step < high else (low + high) // 2
            found = await self.next(asked)
            if found is None or not asked <= found <= end:
                high = asked
            else:
                low, step = found, step * _GROWTH
        return low
