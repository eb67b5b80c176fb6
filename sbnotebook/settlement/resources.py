"""The resources of one namespace that all its actions share: connections, local memory, and the clock."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import anyio
import anyio.to_thread

from sbnotebook.model import Complete, EntityAddress, ReceivedMessage
from sbnotebook.settlement.connecting.connection import Connection
from sbnotebook.settlement.connecting.identity import identity_of
from sbnotebook.settlement.costs import Costs
from sbnotebook.settlement.locking.records import Record, recording_deferrals, recording_removals, room_of
from sbnotebook.settlement.locking.renewal import Clock, SystemClock
from sbnotebook.settlement.locking.wake_up import scheduling_wake_ups
from sbnotebook.settlement.memory.archive import Archive
from sbnotebook.settlement.memory.journal import Journal
from sbnotebook.settlement.memory.namespace_tables import AssistantCalls, NamespaceTables
from sbnotebook.settlement.peek import Peeker
from sbnotebook.settlement.sending.sender_pool import SenderPool


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
        self.clock: Clock = clock or SystemClock()
        self.costs = Costs()
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

        See :func:`sbnotebook.settlement.connecting.identity.identity_of`.
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
        errors: list[Exception] = []

        async def close(part: Peeker | SenderPool) -> None:
            try:
                await part.close()
            except Exception as error:  # noqa: BLE001 (it would cancel the close of the others)
                errors.append(error)

        async with AsyncExitStack() as others:
            if self.archive is not None:
                others.callback(self.archive.close)
            others.callback(self.journal.close)
            others.push_async_callback(self.connection.close)
            # Each takes the SDK about half a second.
            async with anyio.create_task_group() as tasks:
                for part in (*peekers, *pools):
                    tasks.start_soon(close, part)
            if errors:
                raise errors[0]

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.host}>"
