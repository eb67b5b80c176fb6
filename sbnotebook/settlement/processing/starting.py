"""Making a run of ``process`` for an entity."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final

from sbnotebook.settlement.memory.seen import DEFAULT_RETENTION, Seen
from sbnotebook.settlement.processing.process import Processing, Workers
from sbnotebook.settlement.processing.process_run import Options, Run
from sbnotebook.settlement.processing.process_sessions import SessionWorkers
from sbnotebook.settlement.processing.process_shared import SharedWorkers

if TYPE_CHECKING:
    from sbnotebook.settlement.entity import AsyncEntity
    from sbnotebook.settlement.processing.calls import AnyFunction

__all__ = ["processing"]

_FOR_EVER: Final = timedelta(days=3650)
"""For how long locks are renewed: until the function has ended, whenever that is."""


def processing(entity: AsyncEntity, function: AnyFunction, options: Options) -> Processing:
    """A run on one entity: see :meth:`sbnotebook.settlement.entity.AsyncEntity.processing`."""
    namespace = entity.namespace
    memory: Seen | None = None
    if options.seen is not False:
        retention = DEFAULT_RETENTION if options.seen is True else options.seen
        memory = Seen(namespace.journal.database, namespace.host, retention)

    def make_workers(run: Run) -> Workers:
        if options.by_session:
            return SessionWorkers(
                run, lambda wait: entity.next_session(max_wait=wait, renew_for=_FOR_EVER, archived=options.archived)
            )
        batch = entity.batch(renew_for=_FOR_EVER, archived=options.archived)
        return SharedWorkers(run, batch)

    return Processing(
        entity.address,
        function,
        options,
        make_workers=make_workers,
        pools={address: namespace.pool(address) for address in options.policy.destinations},
        host=namespace.host,
        clock=namespace.clock,
        seen=memory,
    )
